"""The journal of a run: every answer of the bench as it comes, in a file that survives whatever ends the run.

One line per entry: the CRC-32 of the rest in eight hex digits, a blank, and one JSON object with its running number.
The first is the header: device, plan and seed of the run. Every entry is handed to the operating system at once, and to
the disk once a second: a process that is killed loses nothing, a host that loses power a second. A last line that is
torn is dropped.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calibration.measure.logbook import LogbookEntry
from lumion_hw.errors import CalibrationError, ConfigError
from lumion_hw.files.json_text import json_text
from lumion_hw.files.locking import lock_file
from lumion_hw.files.reading import MEGABYTE, check_regular, parse_json, read_file
from lumion_hw.files.writing import check_target, write_file, writing

FORMAT = "lumion-calibration-journal"
VERSION = 1
_SYNC_EVERY_S = 1.0
_MAX_BYTES = 4096 * MEGABYTE
_BY_PORT = ("dead", "stated_hz")
_ENTRY_KINDS = ("settings", "launched", "fibre", "tuned")


def now_utc() -> str:
    """Return the present time, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class JournalHeader:
    """Device, plan and seed of a run. Going on needs all the same, but for when and by which command it was begun.

    Attributes:
        serial: Serial number of the controller.
        model: Its model.
        firmware: Its firmware.
        mesh_sha256: Hash of the mesh's canonical text.
        channel_map_sha256: Hash of the map from heaters and monitors to channels.
        plan_sha256: Hash of the plan and of the nominal figures the run starts from.
        seed: Seed of everything random.
        software: Name and version of this software.
        wavelength_nm: Wavelength of the light.
        sources: Ports where light was injected.
        dead: Ports whose light did not arrive, and why; they are not tried again.
        stated_hz: What the sources that can be tuned said of their frequency when the run was begun, by port.
        started_utc: When the run was begun.
        command: The command line, if it was begun by one.
        heater_tau_s: Thermal time constant of the heaters when the run was begun, if it was seen: it is not measured
            anew, so that the same wait makes the same plan.
    """

    serial: str
    model: str
    firmware: str
    mesh_sha256: str
    channel_map_sha256: str
    plan_sha256: str
    seed: int
    software: str
    wavelength_nm: float
    sources: tuple[int, ...]
    dead: Mapping[int, str] = field(default_factory=dict)
    stated_hz: Mapping[int, float] = field(default_factory=dict)
    started_utc: str = field(default_factory=now_utc)
    command: str = ""
    heater_tau_s: float | None = None

    def document(self) -> dict[str, Any]:
        """Return the header as JSON can hold it."""
        by_port = {name: {str(port): each for port, each in getattr(self, name).items()} for name in _BY_PORT}
        return {"kind": "header", "format": FORMAT, "version": VERSION, **asdict(self), **by_port}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> JournalHeader:
        """Return the header of a document.

        Raises:
            CalibrationError: It is none, or of an unknown version.
        """
        if document.get("format") != FORMAT or document.get("version") != VERSION:
            raise CalibrationError(f"no header of a {FORMAT} of version {VERSION}")
        from pydantic import TypeAdapter, ValidationError

        known = {"heater_tau_s": None, **document}  # journals from before it was measured have none
        try:
            return TypeAdapter(cls).validate_python({each.name: known[each.name] for each in fields(cls)})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise CalibrationError(f"no header of a {FORMAT}: {where}: {first['msg']}") from error
        except KeyError as error:
            raise CalibrationError(f"no header of a {FORMAT}: it lacks {error}") from error


@dataclass(frozen=True)
class JournalContents:
    """What a journal holds.

    Attributes:
        header: Device, plan and seed of the run.
        entries: The answers of the bench.
        notes: What happened besides: interruptions and resumptions.
        finished: Whether the run came to its end.
        size: Bytes up to the end of the last whole line.
        lines: Whole lines.
    """

    header: JournalHeader
    entries: tuple[LogbookEntry, ...]
    notes: tuple[dict[str, Any], ...]
    finished: bool
    size: int
    lines: int


class RunJournal:
    """A journal open for writing, locked against other processes. Made by :meth:`begin` or :meth:`resume`.

    Attributes:
        path: The file.
        entries: The answers it held when it was opened.
        notes: What happened besides, up to now.
    """

    def __init__(self, path: Path, handle: int, contents: JournalContents | None = None) -> None:
        self.path = path
        self.entries = contents.entries if contents else ()
        self.notes = list(contents.notes) if contents else []
        self._header = contents.header if contents else None
        self._handle: int | None = handle
        self._size, self._lines = (contents.size, contents.lines) if contents else (0, 0)
        self._torn = True
        self._synced_s = time.monotonic()

    @classmethod
    def begin(cls, path: Path) -> RunJournal:
        """Begin a journal. What lies there stays until this one has a header: a run cut short before loses nothing.

        One of a run that was cut short is then kept beside it as ``NAME.old.journal``.

        Raises:
            BusyError: Another process writes it.
            ConfigError: Nothing can be written there.
            LumionError: There is no room.
        """
        with writing("the journal", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(check_target(path, "the journal", over="any"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            lock_file(handle, path, "the journal", "Wait for that run, or choose another --out.")
        except BaseException:
            os.close(handle)
            raise
        return cls(path, handle)

    @classmethod
    def resume(cls, path: Path) -> RunJournal:
        """Open the journal of a run that was cut short, to go on.

        Raises:
            BusyError: Another process writes it.
            ConfigError: There is none.
            CalibrationError: It is damaged, or its run was finished.
        """
        try:
            check_regular(path)
            handle = os.open(path, os.O_RDWR)
        except OSError as error:
            raise ConfigError(
                f"there is no journal to go on from: {path}: {error.strerror}.", hint="Begin anew, without --resume."
            ) from error
        try:
            lock_file(handle, path, "the journal", "Wait for that run, or choose another --out.")
            contents = read_journal(path)
            if contents.finished:
                raise CalibrationError(
                    f"{path}: the run of this journal was finished.", hint="Begin anew, without --resume."
                )
            return cls(path, handle, contents)
        except BaseException:
            os.close(handle)
            raise

    @property
    def header(self) -> JournalHeader:
        """Device, plan and seed of the run.

        Raises:
            CalibrationError: It was not written yet.
        """
        if self._header is None:
            raise CalibrationError(f"{self.path}: this journal has no header yet")
        return self._header

    def head(self, header: JournalHeader) -> None:
        """Write the header, before anything else is written. Raises as :meth:`add`."""
        if self._handle is not None:
            with writing("the journal", self.path):
                if _worth_keeping(self._handle, self.path):
                    _copy_aside(self._handle, self.path)
        self._write(header.document())
        self._header = header

    def add(self, entry: LogbookEntry) -> None:
        """Write an answer of the bench.

        Raises:
            LumionError: There is no room. What was written before stays whole.
        """
        self._write(entry.document())

    def note(self, kind: str, **facts: Any) -> None:
        """Write that something happened, and when. Raises as :meth:`add`."""
        note = {"kind": kind, "utc": now_utc(), **facts}
        self._write(note)
        self.notes.append(note)

    def _write(self, document: Mapping[str, Any]) -> None:
        if self._handle is None:
            raise CalibrationError(f"{self.path}: this journal is closed")
        line = _line({"n": self._lines, **document})
        with writing("the journal", self.path):
            # A disk that was full may have kept half a line; what follows it would be unreadable.
            if self._torn:  # what a line that failed has left, or a run that was killed
                os.ftruncate(self._handle, self._size)
            os.lseek(self._handle, self._size, os.SEEK_SET)
            self._torn = True
            left = line
            while left:
                left = left[os.write(self._handle, left) :]
            self._size, self._lines, self._torn = self._size + len(line), self._lines + 1, False
            # Every line to the operating system, the disk once a second: fsync for each would slow the bench down.
            if time.monotonic() - self._synced_s >= _SYNC_EVERY_S:
                self._sync()

    def _sync(self) -> None:
        if self._handle is not None:
            os.fsync(self._handle)
            self._synced_s = time.monotonic()

    def sha256(self) -> str:
        """Return the hash of all that was written so far."""
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            left = self._size
            while left and (piece := file.read(min(left, 1 << 20))):
                digest.update(piece)
                left -= len(piece)
        return digest.hexdigest()

    def close(self) -> None:
        """Hand everything to the disk and let other processes have the file; idempotent."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        try:
            with writing("the journal", self.path):
                if self._header is not None:
                    os.ftruncate(handle, self._size)
                    os.fsync(handle)
                elif os.fstat(handle).st_size == 0:  # made by this run, which was cut short before it had a header
                    self.path.unlink(missing_ok=True)
        finally:
            os.close(handle)


def read_journal(path: Path) -> JournalContents:
    """Read a journal; a torn last line is dropped.

    Raises:
        CalibrationError: It is damaged before its last line; the message says where.
        ConfigError: It cannot be read.
    """
    lines = read_file(path, "the journal", max_bytes=_MAX_BYTES, hint="Begin anew, without --resume.").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
        incomplete = False
    else:
        incomplete = True
    documents: list[dict[str, Any]] = []
    size = 0
    for number, line in enumerate(lines):
        last = number == len(lines) - 1
        document = None if incomplete and last else _document(line, number, path)
        if document is None:
            if last:
                break
            raise _damaged(path, number, size)
        documents.append(document)
        size += len(line) + 1
    if not documents:
        raise CalibrationError(f"{path}: this journal holds nothing", hint="Begin anew, without --resume.")
    return _contents(path, documents, size)


def _contents(path: Path, documents: Sequence[dict[str, Any]], size: int) -> JournalContents:
    try:
        header = JournalHeader.of(documents[0])
        entries = tuple(LogbookEntry.of(each) for each in documents[1:] if each.get("kind") in _ENTRY_KINDS)
    except CalibrationError as error:
        raise CalibrationError(f"{path}: {error.message}", hint="Begin anew, without --resume.") from error
    notes = tuple(each for each in documents[1:] if each.get("kind") not in _ENTRY_KINDS)
    finished = any(each.get("kind") == "finished" for each in notes)
    return JournalContents(header, entries, notes, finished, size, len(documents))


def _line(document: Mapping[str, Any]) -> bytes:
    text = json_text(document, compact=True).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _document(line: bytes, number: int, path: Path) -> dict[str, Any] | None:
    """Return what a line holds, ``None`` if it is damaged or not the one that belongs here.

    Raises:
        CalibrationError: It is whole, but no JSON, or holds NaN: no run of this software has written it.
    """
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    document = parse_json(text, f"{path}: line {number + 1}", error=CalibrationError, hint="Begin anew.")
    return document if isinstance(document, dict) and document.get("n") == number else None


def _damaged(path: Path, number: int, offset: int) -> CalibrationError:
    return CalibrationError(
        f"{path}: line {number + 1} (byte {offset}) is damaged, and more follow",
        hint=f"Restore the file from a copy, cut it off before line {number + 1} to lose what follows, or begin anew.",
    )


def _worth_keeping(handle: int, path: Path) -> bool:
    """Return whether a file holds answers of a run that was cut short, or something this software cannot read."""
    if os.fstat(handle).st_size == 0:
        return False
    try:
        contents = read_journal(path)
    except CalibrationError:
        return True
    return bool(contents.entries) and not contents.finished


def _copy_aside(handle: int, path: Path) -> None:
    aside = path.with_name(f"{path.stem}.old{path.suffix}")
    os.lseek(handle, 0, os.SEEK_SET)

    def fill(path: Path) -> None:
        with open(handle, "rb", closefd=False) as there, path.open("wb") as copy:
            while piece := there.read(1 << 20):
                copy.write(piece)

    write_file(aside, "the journal of the run before", fill)
