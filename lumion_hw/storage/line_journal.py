"""An append-only journal file that records operations and their results.

Each entry is one line: eight hex digits with the CRC-32 of the JSON text, a blank, and a JSON object with the running
number ``n``. :meth:`LineJournal.append` returns when the line is on disk. A crash, power failure or full disk loses at
most the line being written.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.json_text import check_numbers, json_text
from lumion_hw.files.reading import MEGABYTE, parse_json, read_file
from lumion_hw.files.writing import check_target, write_file, writing

RESTART_BYTES = 4 * MEGABYTE
"""Size in bytes above which a new journal is started; the old file is kept."""
_MAX_BYTES = 64 * MEGABYTE
OTHER_VERSION = (
    "Another version of this program wrote the journal: use that version, or move the journal away to start a new one."
)
"""Hint for a journal whose entries this version cannot read."""
IsComplete = Callable[[Mapping[str, Any]], bool]
Value = TypeVar("Value")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JournalLines:
    """The contents of a journal.

    Attributes:
        entries: The entries in order, starting with the header.
        incomplete: Bytes of an incomplete last line.
    """

    entries: tuple[dict[str, Any], ...]
    incomplete: bytes


class LineJournal:
    """A journal open for writing, as a context manager. Takes no lock: the caller must hold `BenchLock`.

    Args:
        path: The file; created if missing.
        description: Kind of journal, for messages.
        header: First entry of the journal; an existing journal must have the same.
        is_complete: As for :func:`read_lines`.

    Raises:
        ConfigError: The journal has another header, is damaged, or is not writable.
        LumionError: The disk is full.
    """

    def __init__(
        self,
        path: AnyPath,
        description: str,
        header: Mapping[str, Any],
        is_complete: IsComplete = lambda entry: False,
    ) -> None:
        self.path = Path(path)
        self._description = description
        with writing(description, self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            exists = check_target(self.path, description, overwrite="any").exists()
        existing = read_lines(self.path, description, is_complete) if exists else JournalLines((), b"")
        self._existing, self._header = existing.entries, dict(header)
        self._n = existing.entries[-1]["n"] + 1 if existing.entries else 0
        if existing.incomplete:
            self._save_incomplete(existing.incomplete)
        with writing(description, self.path):
            self._handle: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._handle).st_size - len(existing.incomplete)
            os.ftruncate(self._handle, self._size)
        try:
            if self._existing:
                self._check_header(self._existing[0])
            else:
                self.append(header)
                _sync_directory(self.path.parent)
        except BaseException:
            self.close()
            raise

    def take_existing_entries(self) -> tuple[dict[str, Any], ...]:
        """Return the entries that the journal had when it was opened, the header first; works only once."""
        existing, self._existing = self._existing, ()
        return existing

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append an entry; it is on disk when this returns.

        Raises:
            LumionError: The disk is full or failed; the journal is unchanged.
            ConfigError: The journal is closed, or the entry contains NaN or infinity.
        """
        if self._handle is None:
            raise ConfigError(f"the journal {self.path} is closed")
        check_numbers(entry, f"an entry of {self._description}")
        remaining = line_of({"n": self._n, **entry})
        with writing(self._description, self.path):
            try:
                os.lseek(self._handle, self._size, os.SEEK_SET)
                while remaining:
                    remaining = remaining[os.write(self._handle, remaining) :]
                os.fsync(self._handle)
            except BaseException:
                os.ftruncate(self._handle, self._size)  # half a line would make the next line unreadable
                raise
            self._size = os.lseek(self._handle, 0, os.SEEK_CUR)
        self._n += 1

    def restart_if_large(self, *entries: Mapping[str, Any]) -> None:
        """Replace a large journal by a new one with the header and ``entries``; keep the old file with suffix ``.old``.

        Raises:
            LumionError: The disk is full or failed; the journal is unchanged.
        """
        if self._size <= RESTART_BYTES or self._handle is None:
            return
        documents = [{"n": number, **entry} for number, entry in enumerate((self._header, *entries))]
        old, content = self.path.with_name(self.path.name + ".old"), b"".join(map(line_of, documents))
        with writing(self._description, self.path):
            old.unlink(missing_ok=True)
            os.link(self.path, old)
        write_file(self.path, self._description, content, overwrite="any")
        self.close()
        with writing(self._description, self.path):
            self._handle = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._size, self._n = len(content), len(documents)

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _save_incomplete(self, line: bytes) -> None:
        """Append an incomplete line to the file ``.torn`` next to the journal."""
        path = self.path.with_name(self.path.name + ".torn")
        with writing(self._description, path), path.open("ab") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _check_header(self, header: Mapping[str, Any]) -> None:
        for name, value in self._header.items():
            if header.get(name) != value:
                raise ConfigError(
                    f"{self._description} {self.path} belongs to {name} {header.get(name)!r}, not to {value!r}",
                    hint="Choose another directory with --state.",
                )


class OwnJournal:
    """Base class of journals of one kind, open for writing, as context managers.

    Args:
        lines: The journal file.
    """

    def __init__(self, lines: LineJournal) -> None:
        self._lines = lines

    def close(self) -> None:
        """Close the journal file; may be called twice."""
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lines(path: AnyPath, description: str, is_complete: IsComplete = lambda entry: False) -> JournalLines:
    """Read a journal without changing it.

    Args:
        path: The file.
        description: Kind of journal, for messages.
        is_complete: Whether an entry contains everything that earlier entries say. Damage before the last such entry is
            harmless, except in the header: the damaged lines are left out, with a warning in the log.

    Raises:
        ConfigError: The journal cannot be read, or a complete line is damaged; the message gives the line number.
    """
    path = Path(path)
    data = read_file(path, description, max_bytes=_MAX_BYTES)
    *lines, incomplete = data.split(b"\n")
    if _entry(incomplete[:-1], str(path)) is not None:
        lines, incomplete = [*lines, incomplete], b""  # complete, but for a damaged end of the line
    entries, damaged, complete = list[dict[str, Any]](), list[int](), 0
    for number, line in enumerate(lines, 1):
        entry = _entry(line, f"{path}, line {number}")
        expected = entries[-1]["n"] + 1 if entries else 0
        if entry is None or not isinstance(entry.get("n"), int) or entry["n"] < expected:
            damaged.append(number)
            continue
        if entry["n"] > expected and damaged[-1:] != [number - 1]:
            damaged.append(number)  # the line before it is missing
        entries.append(entry)
        if is_complete(entry):
            complete = number
    has_header = bool(entries) and entries[0]["n"] == 0
    if damaged and (damaged[-1] > complete or not has_header):
        raise ConfigError(
            f"{description} {path} is damaged: line {damaged[0]} of {len(lines)} has a wrong checksum or number. "
            "Nothing was changed, in the journal or on the bench.",
            hint="Restore it from a backup, or move it away to start a new journal; the state of the mesh is then "
            "unknown.",
        )
    if damaged:
        _log.warning("%s %s: line %d is damaged; later lines contain all that counts", description, path, damaged[0])
    return JournalLines(tuple(entries), incomplete)


def parse_entry(kind: type[Value], document: object, path: Path) -> Value:
    """Convert the JSON document of a journal entry to a dataclass.

    Args:
        kind: A dataclass with annotated fields.
        document: The JSON document.
        path: The journal, for the message.

    Raises:
        ConfigError: A field is missing, unknown or of another type; the message names the field.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the entry"
        raise ConfigError(f"{path}: {field}: {first['msg']}", hint=OTHER_VERSION) from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=OTHER_VERSION) from error


def line_of(document: Mapping[str, Any]) -> bytes:
    """Return an entry, which includes its number ``n``, as a line of a journal."""
    text = json_text(document, compact=True).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _entry(line: bytes, name: str) -> dict[str, Any] | None:
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    entry = parse_json(text, name)
    return entry if isinstance(entry, dict) else None


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
