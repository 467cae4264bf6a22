"""Reading files that somebody named: regular ones, up to a size, and JSON as JSON is."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.files.input_kinds import input_kind

MEGABYTE = 1 << 20
MAX_BYTES = 64 * MEGABYTE
"""More than any document of this program has."""
MOST_LEVELS = 32
_WHOLE_LIMIT = 1 << 64
KINDS: dict[int, str] = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
"""What is no regular file, in words."""


def read_file(
    path: Path,
    what: str,
    *,
    max_bytes: int = MAX_BYTES,
    error: type[LumionError] = ConfigError,
    hint: str | None = None,
) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file.
        what: What it should be, for the message.
        max_bytes: Largest size.
        error: Class of the error.
        hint: What to do instead.

    Raises:
        LumionError: As ``error``: it cannot be read, is a device, a pipe or a directory, or is larger.
    """
    try:
        check_regular(path)  # before it is opened: to open a device may already do something
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            data = file.read(max_bytes + 1)
    except (OSError, ValueError) as found:
        shown = str(path) if len(str(path)) <= 300 else f"{str(path)[:300]}…"
        reason = getattr(found, "strerror", None) or str(found)
        raise error(f"cannot read {what} {shown}: {reason}.", hint=hint) from found
    if len(data) > max_bytes:
        raise error(f"{what} {path} is larger than {max_bytes // 1024} KiB", hint=hint or "No such file is as large.")
    return data


def path_exists(path: Path, what: str) -> bool:
    """Return whether there is something at a path.

    Raises:
        ConfigError: The system does not say, such as in a directory that this user must not read.
    """
    try:
        return path.exists()
    except OSError as error:
        raise ConfigError(f"cannot read {what} {str(path)[:300]}: {error.strerror or error}.") from error


def check_regular(path: Path) -> None:
    """Raise ``OSError`` if there is no regular file at a path."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise OSError(0, f"it is {KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file")


def read_json(
    path: Path,
    what: str,
    *,
    max_bytes: int = MAX_BYTES,
    error: type[LumionError] = ConfigError,
    hint: str | None = None,
) -> Any:
    """Return the document in a JSON file; arguments and errors as for :func:`read_file` and :func:`parse_json`."""
    data = read_file(path, what, max_bytes=max_bytes, error=error, hint=hint)
    check_kind(data, path, what, error=error, hint=hint)
    return parse_json(data, str(path), error=error, hint=hint)


def check_kind(
    data: bytes, path: Path, what: str, *, error: type[LumionError] = ConfigError, hint: str | None = None
) -> None:
    """Raise an error if a file is of another kind of input file than the one expected.

    Args:
        data: Its content.
        path: The file, for the message.
        what: What it should be, such as ``bench file``.
        error: Class of the error.
        hint: What to do instead.
    """
    kind = input_kind(data)
    if kind is not None and kind.partition(" ")[2] != what:
        raise error(f"{path} is {kind}, not a {what}", hint=hint)


def parse_json(text: str | bytes, name: str, *, error: type[LumionError] = ConfigError, hint: str | None = None) -> Any:
    """Return a JSON document.

    Args:
        text: The document; bytes are UTF-8.
        name: What it is called in the message.
        error: Class of the error.
        hint: What to do instead.

    Raises:
        LumionError: As ``error``: it is not JSON, is nested deeper than :data:`MOST_LEVELS`, or holds what no other
            reader of JSON could take: NaN, infinity, numbers too large, half a surrogate pair. The message says where.
    """
    odd: list[str] = []

    def real(word: str) -> float:
        number = float(word)
        if not math.isfinite(number):
            odd.append(word)
        return number

    def whole(word: str) -> int:
        number = int(word) if len(word) <= 20 else _WHOLE_LIMIT
        if abs(number) >= _WHOLE_LIMIT:
            odd.append(word)
        return number

    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        document = json.loads(decoded, parse_float=real, parse_int=whole, parse_constant=real)
    except RecursionError as found:
        raise error(f"{name}: is nested deeper than {MOST_LEVELS} levels", hint=hint) from found
    except ValueError as found:
        raise error(f"{name}: is not JSON: {found}", hint=hint) from found
    for depth, level in enumerate(_levels(document)):
        if depth > MOST_LEVELS:
            raise error(f"{name}: is nested deeper than {MOST_LEVELS} levels", hint=hint)
        if odd or "\\u" in decoded:
            _refuse_odd(level, name, error, hint)
    return document


Level = list[tuple[str, Any]]


def _levels(document: Any) -> Iterator[Level]:
    """Yield the values of a document level by level, each with its name."""
    level: Level = [("", document)]
    while level:
        yield level
        level = [child for name, value in level for child in _children(name, value)]


def _children(name: str, value: Any) -> Level:
    if isinstance(value, dict):
        return [(f"{name}.{key}" if name else key, each) for key, each in value.items()]
    if isinstance(value, list):
        return [(f"{name}[{number}]", each) for number, each in enumerate(value)]
    return []


def _refuse_odd(level: Level, name: str, error: type[LumionError], hint: str | None) -> None:
    """Refuse the first value of a level that is no JSON, by its name."""

    def refuse(where: str, what: str) -> NoReturn:
        where = where.encode("utf-8", "backslashreplace").decode()
        raise error(f"{name}: {where or 'the document'} is {what}", hint=hint)

    for where, value in level:
        if isinstance(value, float) and not math.isfinite(value):
            refuse(where, "NaN" if math.isnan(value) else "infinite")
        if isinstance(value, int) and abs(value) >= _WHOLE_LIMIT:
            refuse(where, "a number too large")
        for text in (where, value) if isinstance(value, str) else (where,):
            if any("\ud800" <= letter <= "\udfff" for letter in text):
                refuse(where, "text with half of a surrogate pair")
