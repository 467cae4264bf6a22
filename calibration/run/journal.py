"""Journal of a run: a file with every answer of the bench.

Each line contains the CRC-32 of the rest in eight hex digits, a blank, and a JSON object with a running number. The
first entry has device, plan and seed. A killed process loses nothing, a power failure at most the last second.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calibration.measure.logbook import LogbookEntry
from lumion_hw.errors import CalibrationError, ConfigError
from lumion_hw.files.locking import lock_file
from lumion_hw.files.reading import MEGABYTE, check_regular, parse_json, read_file
from lumion_hw.files.writing import check_target, write_file, writing
from lumion_hw.storage.line_journal import line_of

FORMAT = "lumion-calibration-journal"
VERSION = 1
_SYNC_EVERY_S = 1.0
_MAX_BYTES = 4096 * MEGABYTE
_BY_PORT = ("dead", "stated_hz")
_ENTRY_KINDS = ("settings", "launched", "fibre", "tuned", "resistances", "laser", "meter")


def utc_time() -> str:
    """Return the present time, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class JournalHeader:
    """Device, plan and seed of a run, which must be the same when the run is resumed.

    Attributes:
        mesh_sha256: Hash of the text form of the mesh.
        channel_map_sha256: Hash of the map from heaters and monitors to channels.
        plan_sha256: Hash of the plan and the nominal data.
        dead: Ports without light, with reasons.
        stated_hz: Reported frequencies of the tunable sources, by port.
        heater_tau_s: Thermal time constant of the heaters, if known; a resumed run uses the same.
        emulated_chip: Identifier of the chip if it is emulated; otherwise ``None``.
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
    started_utc: str = field(default_factory=utc_time)
    command: str = ""
    heater_tau_s: float | None = None
    emulated_chip: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the header as a JSON document."""
        by_port = {name: {str(port): value for port, value in getattr(self, name).items()} for name in _BY_PORT}
        return {"kind": "header", "format": FORMAT, "version": VERSION, **asdict(self), **by_port}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> JournalHeader:
        """Return the header in a JSON document.

        Raises:
            CalibrationError: The document is not a header, or its version is unknown.
        """
        if document.get("format") != FORMAT or document.get("version") != VERSION:
            raise CalibrationError(f"this is not the header of a {FORMAT} of version {VERSION}")
        from pydantic import TypeAdapter, ValidationError

        complete = {"heater_tau_s": None, "emulated_chip": None, **document}  # older journals do not contain it
        try:
            return TypeAdapter(cls).validate_python({field.name: complete[field.name] for field in fields(cls)})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise CalibrationError(f"this is not a valid header of a {FORMAT}: {where}: {first['msg']}") from error
        except KeyError as error:
            raise CalibrationError(f"this is not a valid header of a {FORMAT}: {error} is missing") from error


@dataclass(frozen=True)
class JournalContents:
    """Contents of a journal.

    Attributes:
        entries: Requests to the bench, with answers.
        notes: Other events: interruptions and resumptions.
        size: Size of the complete lines in bytes.
        lines: Number of complete lines.
    """

    header: JournalHeader
    entries: tuple[LogbookEntry, ...]
    notes: tuple[dict[str, Any], ...]
    finished: bool
    size: int
    lines: int


class RunJournal:
    """A journal open for writing and locked; made by :meth:`begin` or :meth:`resume`.

    Attributes:
        entries: Requests and answers in the file when it was opened.
        notes: Other events so far.
    """

    def __init__(self, path: Path, handle: int, *, resumed: bool) -> None:
        try:
            lock_file(handle, path, "the journal", "Wait for that run, or choose another --out.")
            contents = read_journal(path) if resumed else None
            if contents and contents.finished:
                raise CalibrationError(
                    f"{path}: the run of this journal is already finished.", hint="Start a new run without --resume."
                )
        except BaseException:
            os.close(handle)
            raise
        self.path = path
        self.entries = contents.entries if contents else ()
        self.notes = list(contents.notes) if contents else []
        self._header = contents.header if contents else None
        self._handle: int | None = handle
        self._size, self._lines = (contents.size, contents.lines) if contents else (0, 0)
        self._has_torn_line = True
        self._synced_s = time.monotonic()

    @classmethod
    def begin(cls, path: Path) -> RunJournal:
        """Start a new journal. An existing file is replaced only when the header is written.

        A file of an interrupted run is renamed to ``NAME.old.journal``.

        Raises:
            BusyError: Another process writes the journal.
            ConfigError: The file cannot be written.
            LumionError: The disk is full.
        """
        with writing("the journal", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(check_target(path, "the journal", overwrite="any"), os.O_RDWR | os.O_CREAT, 0o644)
        return cls(path, handle, resumed=False)

    @classmethod
    def resume(cls, path: Path) -> RunJournal:
        """Open the journal of an interrupted run to continue it.

        Raises:
            BusyError: Another process writes the journal.
            ConfigError: There is no journal.
            CalibrationError: The journal is damaged, or its run was finished.
        """
        try:
            check_regular(path)
            handle = os.open(path, os.O_RDWR)
        except OSError as error:
            raise ConfigError(
                f"there is no journal to resume: {path}: {error.strerror}.", hint="Start a new run without --resume."
            ) from error
        return cls(path, handle, resumed=True)

    @property
    def header(self) -> JournalHeader:
        """Device, plan and seed of the run.

        Raises:
            CalibrationError: The header was not written yet.
        """
        if self._header is None:
            raise CalibrationError(f"{self.path}: this journal has no header yet")
        return self._header

    def write_header(self, header: JournalHeader) -> None:
        """Write the header as the first entry. Raises as :meth:`add`."""
        if self._handle is not None:
            with writing("the journal", self.path):
                if _has_answers(self.path):
                    _back_up(self.path)
        self._write(header.document())
        self._header = header

    def add(self, entry: LogbookEntry) -> None:
        """Write an answer of the bench to the journal.

        Raises:
            LumionError: The disk is full; earlier entries are intact.
        """
        self._write(entry.document())

    def note(self, kind: str, **facts: Any) -> None:
        """Write an event with its time, such as an interruption. Raises as :meth:`add`."""
        note = {"kind": kind, "utc": utc_time(), **facts}
        self._write(note)
        self.notes.append(note)

    def _write(self, document: Mapping[str, Any]) -> None:
        if self._handle is None:
            raise CalibrationError(f"{self.path}: this journal is closed")
        line = line_of({"n": self._lines, **document})
        with writing("the journal", self.path):
            # A full disk or a killed run may have left part of a line, which would make the next lines unreadable.
            if self._has_torn_line:
                os.ftruncate(self._handle, self._size)
            os.lseek(self._handle, self._size, os.SEEK_SET)
            self._has_torn_line = True
            remaining = line
            while remaining:
                remaining = remaining[os.write(self._handle, remaining) :]
            self._size, self._lines, self._has_torn_line = self._size + len(line), self._lines + 1, False
            # Every line goes to the operating system, but to the disk only once a second, because fsync per line would
            # slow the bench down.
            if time.monotonic() - self._synced_s >= _SYNC_EVERY_S:
                os.fsync(self._handle)
                self._synced_s = time.monotonic()

    def sha256(self) -> str:
        """Return the SHA-256 of the journal so far."""
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            remaining_bytes = self._size
            while remaining_bytes and (chunk := file.read(min(remaining_bytes, 1 << 20))):
                digest.update(chunk)
                remaining_bytes -= len(chunk)
        return digest.hexdigest()

    def close(self) -> None:
        """Write everything to the disk and unlock the file; may be called twice."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        try:
            with writing("the journal", self.path):
                if self._header is not None:
                    os.ftruncate(handle, self._size)
                    os.fsync(handle)
                elif os.fstat(handle).st_size == 0:  # this run created the file but was interrupted before the header
                    self.path.unlink(missing_ok=True)
        finally:
            os.close(handle)


def read_journal(path: Path) -> JournalContents:
    """Read a journal; an incomplete last line is ignored.

    Raises:
        CalibrationError: The journal is damaged before its last line; the message gives the position.
        ConfigError: The journal cannot be read.
    """
    hint = "Start a new run without --resume."
    *lines, incomplete = read_file(path, "the journal", max_bytes=_MAX_BYTES, hint=hint).split(b"\n")
    documents: list[dict[str, Any]] = []
    size = 0
    for number, line in enumerate(lines):
        document = _document(line, number, path)
        if document is None:
            if number == len(lines) - 1 and not incomplete:
                break
            raise CalibrationError(
                f"{path}: line {number + 1} (byte {size}) is damaged, and further lines follow",
                hint=f"Restore the file from a copy, delete everything from line {number + 1} on, or start a new run.",
            )
        documents.append(document)
        size += len(line) + 1
    if not documents:
        raise CalibrationError(f"{path}: this journal is empty", hint=hint)
    try:
        header = JournalHeader.of(documents[0])
        entries = tuple(LogbookEntry.of(document) for document in documents[1:] if document.get("kind") in _ENTRY_KINDS)
    except CalibrationError as error:
        raise CalibrationError(f"{path}: {error.message}", hint=hint) from error
    notes = tuple(document for document in documents[1:] if document.get("kind") not in _ENTRY_KINDS)
    finished = any(note.get("kind") == "finished" for note in notes)
    return JournalContents(header, entries, notes, finished, size, len(documents))


def _document(line: bytes, number: int, path: Path) -> dict[str, Any] | None:
    """Return the content of a line; ``None`` if it is damaged or out of sequence.

    Raises:
        CalibrationError: The line is intact but cannot be read by this software.
    """
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    document = parse_json(text, f"{path}: line {number + 1}", error=CalibrationError, hint="Start a new run.")
    return document if isinstance(document, dict) and document.get("n") == number else None


def _has_answers(path: Path) -> bool:
    if path.stat().st_size == 0:
        return False
    try:
        contents = read_journal(path)
    except CalibrationError:
        return True
    return bool(contents.entries) and not contents.finished


def _back_up(path: Path) -> None:
    def fill(copy: Path) -> None:
        shutil.copyfile(path, copy)

    write_file(path.with_name(f"{path.stem}.old{path.suffix}"), "the journal of the previous run", fill)
