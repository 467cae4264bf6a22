"""Reads user files: regular files only, up to a maximum size, and strict JSON."""

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
"""Largest file to read, in bytes."""
MAX_LEVELS = 32
_INTEGER_LIMIT = 1 << 64
KINDS: dict[int, str] = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
"""Names of the kinds of paths that are not regular files."""


def read_file(
    path: Path,
    description: str,
    *,
    max_bytes: int = MAX_BYTES,
    error: type[LumionError] = ConfigError,
    hint: str | None = None,
) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file.
        description: Kind of file, for the message.
        max_bytes: Largest accepted size, in bytes.
        error: Class of the error.
        hint: Hint of the error.

    Raises:
        LumionError: Of class ``error``: the file cannot be read, is not a regular file, or is too large.
    """
    try:
        check_regular(path)  # before opening, because opening a device may already have an effect
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            data = file.read(max_bytes + 1)
    except (OSError, ValueError) as cause:
        path_text = str(path) if len(str(path)) <= 300 else f"{str(path)[:300]}…"
        reason = getattr(cause, "strerror", None) or str(cause)
        raise error(f"cannot read {description} {path_text}: {reason}.", hint=hint) from cause
    if len(data) > max_bytes:
        raise error(
            f"{description} {path} is larger than {max_bytes // 1024} KiB",
            hint=hint or "It is probably another kind of file.",
        )
    return data


def path_exists(path: Path, description: str) -> bool:
    """Return whether a path exists.

    Raises:
        ConfigError: The system denies access.
    """
    try:
        return path.exists()
    except OSError as error:
        raise ConfigError(f"cannot read {description} {str(path)[:300]}: {error.strerror or error}.") from error


def check_regular(path: Path) -> None:
    """Raise ``OSError`` if a path is not a regular file."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise OSError(0, f"it is {KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file")


def read_json(
    path: Path,
    description: str,
    *,
    max_bytes: int = MAX_BYTES,
    error: type[LumionError] = ConfigError,
    hint: str | None = None,
) -> Any:
    """Read a JSON file; arguments and errors as for :func:`read_file` and :func:`parse_json`."""
    data = read_file(path, description, max_bytes=max_bytes, error=error, hint=hint)
    check_kind(data, path, description, error=error, hint=hint)
    return parse_json(data, str(path), error=error, hint=hint)


def check_kind(
    data: bytes, path: Path, description: str, *, error: type[LumionError] = ConfigError, hint: str | None = None
) -> None:
    """Raise an error of the given class if a file is of another kind than expected.

    ``description`` is the expected kind, such as ``bench file``.
    """
    kind = input_kind(data)
    if kind is not None and kind.partition(" ")[2] != description:
        raise error(f"{path} is {kind}, not a {description}", hint=hint)


def parse_json(text: str | bytes, name: str, *, error: type[LumionError] = ConfigError, hint: str | None = None) -> Any:
    """Parse a JSON document.

    Args:
        text: The document; bytes are UTF-8.
        name: Name of the document, for messages.
        error: Class of the error.
        hint: Hint of the error.

    Raises:
        LumionError: Of class ``error``: the text is not JSON, is nested deeper than :data:`MAX_LEVELS`, or contains
            NaN, infinity, too large numbers or half a surrogate pair. The message names the key.
    """
    invalid: list[str] = []

    def parse_float(literal: str) -> float:
        number = float(literal)
        if not math.isfinite(number):
            invalid.append(literal)
        return number

    def parse_int(literal: str) -> int:
        number = int(literal) if len(literal) <= 20 else _INTEGER_LIMIT
        if abs(number) >= _INTEGER_LIMIT:
            invalid.append(literal)
        return number

    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        document = json.loads(decoded, parse_float=parse_float, parse_int=parse_int, parse_constant=parse_float)
    except RecursionError as cause:
        raise error(f"{name} is nested deeper than {MAX_LEVELS} levels", hint=hint) from cause
    except ValueError as cause:
        raise error(f"{name} is not JSON: {cause}", hint=hint) from cause
    for depth, level in enumerate(_levels(document)):
        if depth > MAX_LEVELS:
            raise error(f"{name} is nested deeper than {MAX_LEVELS} levels", hint=hint)
        if invalid or "\\u" in decoded:
            _check_values(level, name, error, hint)
    return document


Level = list[tuple[str, Any]]


def _levels(document: Any) -> Iterator[Level]:
    level: Level = [("", document)]
    while level:
        yield level
        level = [child for name, value in level for child in _children(name, value)]


def _children(name: str, value: Any) -> Level:
    if isinstance(value, dict):
        return [(f"{name}.{key}" if name else key, item) for key, item in value.items()]
    if isinstance(value, list):
        return [(f"{name}[{number}]", item) for number, item in enumerate(value)]
    return []


def _check_values(level: Level, name: str, error: type[LumionError], hint: str | None) -> None:
    def fail(key: str, problem: str) -> NoReturn:
        key = key.encode("utf-8", "backslashreplace").decode()
        raise error(f"{name}: {key or 'the document'} is {problem}", hint=hint)

    for key, value in level:
        if isinstance(value, float) and not math.isfinite(value):
            fail(key, "NaN" if math.isnan(value) else "infinite")
        if isinstance(value, int) and abs(value) >= _INTEGER_LIMIT:
            fail(key, "a number that is too large")
        for text in (key, value) if isinstance(value, str) else (key,):
            if any("\ud800" <= character <= "\udfff" for character in text):
                fail(key, "text with half a surrogate pair")
