"""A small file that tells what was begun and what came of it: lines that are only ever appended, each on the disk.

One line per entry: the CRC-32 of the rest in eight hex digits, a blank, and one JSON object with its running number
``n``. :meth:`LineJournal.append` returns when the line is on the disk. A process that is killed, a host that loses
power and a disk that is full cost at most the line that was being written; what is left of it is kept beside the file
when it is opened again.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.json_text import check_numbers, json_text
from lumion_hw.files.reading import MEGABYTE, parse_json, read_file
from lumion_hw.files.writing import check_target, write_file, writing

LARGEST_BYTES = 4 * MEGABYTE
"""A journal that has grown beyond this is begun anew with what still counts; the old one stays beside it."""
_MAX_BYTES = 64 * MEGABYTE
OTHER_VERSION = "It is of another version of this program: use that one, or move the journal away to begin anew."
"""What to do about a journal whose entries are not those of this version."""
Value = TypeVar("Value")


@dataclass(frozen=True)
class JournalLines:
    """What a journal holds.

    Attributes:
        entries: Its entries in order, the header first.
        torn: What a line that was never finished has left at the end.
    """

    entries: tuple[dict[str, Any], ...]
    torn: bytes


class LineJournal:
    """A journal open for writing; use it as a context manager. One process at a time: whoever opens it holds a lock.

    Args:
        path: The file; made if there is none.
        what: What it is, for messages, such as ``the journal of circuits``.
        header: Its first entry, where it has to be made; in one that is there these values have to be the same.

    Raises:
        ConfigError: It is of something else, damaged, or nothing can be written there.
        LumionError: There is no room.

    Attributes:
        path: The file.
    """

    def __init__(self, path: AnyPath, what: str, header: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._what = what
        with writing(what, self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            there = check_target(self.path, what, over="any").exists()
        found = read_lines(self.path, what) if there else JournalLines((), b"")
        self._found, self._header, self._n = found.entries, dict(header), len(found.entries)
        if found.torn:
            self._keep_torn(found.torn)
        with writing(what, self.path):
            self._handle: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._handle).st_size - len(found.torn)
            os.ftruncate(self._handle, self._size)
        try:
            if self._found:
                self._check_header(self._found[0])
            else:
                self.append(header)
                _sync_directory(self.path.parent)
        except BaseException:
            self.close()
            raise

    def take_existing_entries(self) -> tuple[dict[str, Any], ...]:
        """Return what was there when it was opened, the header first; once, since nothing of it is kept in memory.

        A program that writes for days would otherwise hold megabytes of what is in the file.
        """
        found, self._found = self._found, ()
        return found

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write an entry; it is on the disk when this returns.

        Raises:
            LumionError: There is no room, or the disk failed: the journal is as it was before.
            ConfigError: It is closed, or the entry holds NaN or infinity: it could not be worked with again.
        """
        if self._handle is None:
            raise ConfigError(f"{self.path}: this journal is closed")
        check_numbers(entry, f"an entry of {self._what}")
        left = _line({"n": self._n, **entry})
        with writing(self._what, self.path):
            try:
                os.lseek(self._handle, self._size, os.SEEK_SET)
                while left:
                    left = left[os.write(self._handle, left) :]
                os.fsync(self._handle)
            except BaseException:
                os.ftruncate(self._handle, self._size)  # half a line would make what follows unreadable
                raise
            self._size = os.lseek(self._handle, 0, os.SEEK_CUR)
        self._n += 1

    def restart_if_large(self, *entries: Mapping[str, Any]) -> None:
        """Write the header and these entries into a new file if this one has grown large; the old one stays beside it.

        Raises:
            LumionError: There is no room, or the disk failed: the journal is as it was before.
        """
        if self._size <= LARGEST_BYTES or self._handle is None:
            return
        documents = [{"n": number, **each} for number, each in enumerate((self._header, *entries))]
        old, content = self.path.with_name(self.path.name + ".old"), b"".join(map(_line, documents))
        with writing(self._what, self.path):
            old.unlink(missing_ok=True)
            os.link(self.path, old)
        write_file(self.path, self._what, content, over="any")
        self.close()
        with writing(self._what, self.path):
            self._handle = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._size, self._n = len(content), len(documents)

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _keep_torn(self, torn: bytes) -> None:
        """Put what is left of an unfinished line beside the file before it is cut off."""
        aside = self.path.with_name(self.path.name + ".torn")
        with writing(self._what, aside), aside.open("ab") as file:
            file.write(torn + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _check_header(self, there: Mapping[str, Any]) -> None:
        for name, value in self._header.items():
            if there.get(name) != value:
                raise ConfigError(
                    f"{self._what} {self.path} is of {name} {there.get(name)!r}, this is {value!r}",
                    hint="Choose another directory with --state.",
                )


def read_lines(path: AnyPath, what: str) -> JournalLines:
    """Read a journal without changing it.

    Args:
        path: The file.
        what: What it is, for messages.

    Raises:
        ConfigError: It cannot be read, or a line that was once whole is damaged; the message says which.
    """
    path = Path(path)
    data = read_file(path, what, max_bytes=_MAX_BYTES)
    *lines, torn = data.split(b"\n")
    entries = []
    for number, line in enumerate(lines):
        entry = _entry(line, f"{path}, line {number + 1}")
        if entry is None or entry.get("n") != number:
            raise ConfigError(
                f"{what} {path} is damaged in line {number + 1} of {len(lines)}: its check sum or number does not fit. "
                "Nothing was changed, in it or on the bench.",
                hint="Restore it from a copy, or move it away to begin anew; then nothing is known of what the mesh "
                "drives.",
            )
        entries.append(entry)
    return JournalLines(tuple(entries), torn)


def checked(kind: type[Value], document: object, path: Path) -> Value:
    """Return what an entry of a journal holds, as a value of its type.

    Args:
        kind: A dataclass, its fields annotated.
        document: What the entry holds, as JSON has it.
        path: The journal, for the message.

    Raises:
        ConfigError: A field is missing, unknown or of another type; the message names it.
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


def _line(document: Mapping[str, Any]) -> bytes:
    text = json_text(document, compact=True).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _entry(line: bytes, name: str) -> dict[str, Any] | None:
    """Return the entry of a line; ``None`` if it is damaged."""
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
