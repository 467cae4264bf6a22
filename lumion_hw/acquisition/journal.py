"""A log file that loses no row it has acknowledged: killed, unplugged or out of room, it is whole up to the last one.

One line of JSON says what the columns are; then follow rows of fixed length, each with its own CRC-32. Rows are only
ever appended, and acknowledged when the operating system has them on the disk. Whatever a crash leaves half written is
recognised by its checksum and cut off when the file is opened again.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition.columns import Column, Reader, State, Value
from lumion_hw.acquisition.scan_plan import ScanPlan
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.identity import DeviceIdentity, device_identities
from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.files import AnyPath
from lumion_hw.files.json_text import json_text
from lumion_hw.files.locking import lock_file
from lumion_hw.files.reading import parse_json, read_file
from lumion_hw.files.writing import writing
from lumion_hw.mesh.record.calibration_record import CalibrationRecord

FORMAT = "lumion-log 2"
_OLDER = "lumion-log 1"  # the same, without what the bench was
JOURNAL = ".journal"
"""What is added to the name of a file for its journal."""
MAX_ROWS = 2**32 - 1
"""Rows are numbered in 32 bits."""
_MAX_BYTES = 1 << 34
_IN_USE = "Wait until that program has ended, or choose another file."


@dataclass(frozen=True)
class LoggedFile:
    """A file that readings depend on.

    Attributes:
        name: Its name, without folders; empty for the description of a served bench.
        sha256: Hash of its bytes.
        text: Its content.
    """

    name: str
    sha256: str
    text: str


@dataclass(frozen=True)
class LoggedRecord:
    """The calibration that was in force.

    Attributes:
        record_id: Its name.
        content_sha256: Hash of what it says.
    """

    record_id: str
    content_sha256: str


@dataclass(frozen=True)
class LogHeader:
    """What a journal is about.

    Attributes:
        bench: Name of the bench.
        columns: Its columns.
        period_s: Time between rows; 0 for a scan, whose rows come when they are ready.
        n_rows: Rows planned.
        started: When the first row was due, ISO 8601 with time zone.
        software: Name and version of the software that began it.
        emulated: Whether the bench was emulated.
        devices: Who the devices said they are, by name.
        bench_file: The bench file; ``None`` if there was none, or it is not known.
        record: The calibration record; ``None`` if there was none.
        scan: What was swept; ``None`` for readings at a steady rate.
        settings: The settings of the whole bench before a scan, as :meth:`Snapshot.document` has them.
    """

    bench: str
    columns: tuple[Column, ...]
    period_s: float
    n_rows: int
    started: str
    software: str = ""
    emulated: bool = False
    devices: Mapping[str, DeviceIdentity] = field(default_factory=dict)
    bench_file: LoggedFile | None = None
    record: LoggedRecord | None = None
    scan: ScanPlan | None = None
    settings: dict[str, Any] | None = None

    def line(self) -> bytes:
        """Return the first line of the file."""
        return json_text({"format": FORMAT, **asdict(self)}, ascii_only=False).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes, path: AnyPath) -> LogHeader:
        """Read the first line. Raises ``ConfigError`` if this is no journal."""
        from pydantic import TypeAdapter, ValidationError

        hint = "Name a file that `lumion log` or `lumion scan` has begun."
        document = parse_json(line, f"{path} is no log of this program", hint=hint)
        if not isinstance(document, dict) or document.pop("format", None) not in (FORMAT, _OLDER):
            raise ConfigError(f"{path} is no log of this program: another format", hint=hint)
        try:
            header = TypeAdapter(cls).validate_python(document)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ConfigError(f"{path} is no log of this program: {where}: {first['msg']}", hint=hint) from error
        paced = header.period_s > 0.0 if header.scan is None else header.scan.n_points == header.n_rows
        if not (header.columns and paced and 0 < header.n_rows <= MAX_ROWS):
            raise ConfigError(f"{path} is no log of this program: it plans no rows", hint=hint)
        return header


def log_header(
    bench: Bench,
    reader: Reader,
    *,
    period_s: float,
    n_rows: int,
    bench_file: AnyPath | None = None,
    record: CalibrationRecord | None = None,
) -> LogHeader:
    """Return the header of a log that begins now, with all that a reader of it may want to know later.

    Args:
        bench: The open bench.
        reader: Reads the columns.
        period_s: Time between rows.
        n_rows: Rows planned.
        bench_file: The bench file, to be kept in the log; by default the one that was opened.
        record: The calibration record that is in force.

    Raises:
        ConfigError: The bench file cannot be read, or another module than the one that was opened is in a socket.
    """
    from lumion_hw import __version__

    devices = dict.fromkeys(column.device for column in reader.columns)
    return LogHeader(
        bench=bench.model.name,
        columns=reader.columns,
        period_s=period_s,
        n_rows=n_rows,
        started=datetime.now(tz=UTC).isoformat(timespec="milliseconds"),
        software=f"lumion-hw {__version__}",
        emulated=bench.is_emulated,
        devices={name: who for name in devices for who in _identities(bench, name)},
        bench_file=_logged_file(bench, bench_file),
        record=None if record is None else LoggedRecord(record.record_id, record.content_sha256),
    )


def _identities(bench: Bench, name: str) -> Iterator[DeviceIdentity]:
    """Yield who a device says it is; one that is silent now has none, and may be recorded once it is back."""
    try:
        yield from device_identities(bench, [name]).values()
    except ConfigError:  # another one has taken its place
        raise
    except LumionError:
        yield DeviceIdentity(bench.model.devices[name].kind)


def _logged_file(bench: Bench, path: AnyPath | None) -> LoggedFile:
    """Return the bench file as it was when the bench was opened, or another one; of a served bench what it says."""
    if path is not None:
        name, data = Path(path).name, read_file(Path(path), "bench file")
    elif bench.file is not None:
        name, data = bench.file.path.name, bench.file.data
    else:
        name, data = "", bench.model.model_dump_json(exclude_none=True).encode()
    return LoggedFile(name, hashlib.sha256(data).hexdigest(), data.decode("utf-8-sig", "replace"))


@dataclass(frozen=True)
class LogRow:
    """One row.

    Attributes:
        index: Number of the row; those that were missed are missing.
        time_s: Seconds since the log was started.
        values: One per column.
    """

    index: int
    time_s: float
    values: tuple[Value, ...]


class LogJournal:
    """An open log file; use it as a context manager. Not thread-safe.

    Attributes:
        path: The file.
        header: What it is about.
        acknowledged: Rows that are on the disk.
        last_index: Number of the last row in the file; -1 before the first.
        lost_bytes: Half-written bytes that were cut off when it was opened.
    """

    def __init__(self, path: Path, header: LogHeader, file: BinaryIO) -> None:
        self.path = path
        self.header = header
        self.acknowledged = 0
        self.last_index = -1
        self.lost_bytes = 0
        self._file = file
        self._written = 0
        self._layout = _layout(len(header.columns))

    @classmethod
    def create(cls, path: AnyPath, header: LogHeader) -> Self:
        """Begin a new file.

        Raises:
            ConfigError: The file exists already, or cannot be made.
        """
        path = Path(path)
        if path.exists():
            raise ConfigError(f"{path} exists", hint="Go on with --resume, or choose another name.")
        with writing("the log", path):
            file = path.open("xb", buffering=0)
            try:
                lock_file(file.fileno(), path, "the journal", _IN_USE)
                file.write(header.line())
                os.fsync(file.fileno())
            except BaseException:
                file.close()
                raise
        return cls(path, header, file)

    @classmethod
    def resume(cls, path: AnyPath) -> Self:
        """Open a file to continue it, locked for this process; a row that a crash left unfinished is cut off.

        Raises:
            ConfigError: There is no such file, or it is no log.
            BusyError: Another process writes to it.
        """
        path = Path(path)
        if not path.is_file():
            _read(path)  # which says what is wrong
        with writing("the log", path):
            file = path.open("r+b", buffering=0)
            try:
                lock_file(file.fileno(), path, "the journal", _IN_USE)
                header, rows, end = _read(path)
                size = file.seek(0, os.SEEK_END)
                file.truncate(end)
                file.seek(end)
            except BaseException:
                file.close()
                raise
        journal = cls(path, header, file)
        journal.lost_bytes = size - end
        journal.acknowledged = journal._written = len(rows.index)
        journal.last_index = int(rows.index[-1]) if len(rows.index) else -1
        return journal

    def append(self, row: LogRow) -> None:
        """Write a row; it is safe after the next :meth:`sync`. Raises as :func:`writing`."""
        packed = _packed(self._layout, row)
        with writing("the log", self.path):
            # A disk that fills takes the beginning of a row without a word; the rest then raises.
            left = memoryview(packed)
            while left:
                left = left[self._file.write(left) :]
        self._written += 1
        self.last_index = row.index

    def sync(self) -> int:
        """Bring everything to the disk and return the number of rows acknowledged."""
        if self._written > self.acknowledged:
            with writing("the log", self.path):
                os.fsync(self._file.fileno())
            self.acknowledged = self._written
        return self.acknowledged

    def close(self) -> None:
        """Close the file; what was not acknowledged may be lost."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, eq=False)
class LogTable:
    """All rows of a journal.

    Attributes:
        index: Numbers of the rows, shape ``(rows,)``.
        time_s: Seconds since the log was started, shape ``(rows,)``.
        value: Shape ``(rows, columns)``, NaN where there is no number.
        state: Shape ``(rows, columns)``, numbers of :class:`State`.
    """

    index: NDArray[np.uint32]
    time_s: NDArray[np.float64]
    value: NDArray[np.float64]
    state: NDArray[np.uint8]

    def rows(self) -> Iterator[LogRow]:
        """Yield row by row."""
        for index, time_s, numbers, states in zip(self.index, self.time_s, self.value, self.state, strict=True):
            values = (Value(State(state), number) for number, state in zip(numbers.tolist(), states, strict=True))
            yield LogRow(int(index), float(time_s), tuple(values))


def read_table(path: AnyPath) -> tuple[LogHeader, LogTable]:
    """Return header and rows of a file as arrays, as :func:`read_journal` does."""
    header, table, _ = _read(Path(path))
    return header, table


def read_journal(path: AnyPath) -> tuple[LogHeader, list[LogRow]]:
    """Return header and rows of a file; an unfinished last row is left out.

    Raises:
        ConfigError: There is no such file, or it is no log.
    """
    header, table, _ = _read(Path(path))
    return header, list(table.rows())


def _read(path: Path) -> tuple[LogHeader, LogTable, int]:
    """Return header, good rows, and where they end."""
    data = read_file(path, "the log", max_bytes=_MAX_BYTES)
    begin = data.find(b"\n") + 1
    header = LogHeader.parse(data[: max(begin - 1, 0)], path)
    table = _table(memoryview(data)[begin:], len(header.columns))
    check_rows(path, header, table.index)
    return header, table, begin + len(table.index) * (_layout(len(header.columns)).size + 4)


def check_rows(path: AnyPath, header: LogHeader, index: NDArray[np.uint32]) -> None:
    """Refuse rows beyond those planned. Raises ``ConfigError``."""
    if len(index) and int(index.max()) >= header.n_rows:
        raise ConfigError(
            f"{path} is damaged: it has a row {int(index.max())}, and {header.n_rows} rows from 0 are planned",
            hint="Restore it from a copy, or begin anew with another file.",
        )


def _layout(n_columns: int) -> struct.Struct:
    return struct.Struct(f"<Id{n_columns}d{n_columns}B")


def _packed(layout: struct.Struct, row: LogRow) -> bytes:
    body = layout.pack(
        row.index, row.time_s, *(value.number for value in row.values), *(int(value.state) for value in row.values)
    )
    return body + zlib.crc32(body).to_bytes(4, "little")


def _table(data: memoryview, n: int) -> LogTable:
    """Return rows up to one that is cut short or damaged."""
    fields = [("index", "<u4"), ("time_s", "<f8"), ("value", "<f8", (n,)), ("state", "u1", (n,)), ("crc", "<u4")]
    packed = np.ndarray((len(data) // (_layout(n).size + 4),), np.dtype(fields), data)
    step, size = packed.dtype.itemsize, packed.dtype.itemsize - 4
    crcs = (zlib.crc32(data[start : start + size]) for start in range(0, len(packed) * step, step))
    whole = np.fromiter(crcs, np.uint32, len(packed)) == packed["crc"]
    whole &= np.all(packed["state"] <= max(State), axis=1)
    good = packed[: len(packed) if whole.all() else int(np.argmin(whole))]
    return LogTable(*(np.array(good[name]) for name in ("index", "time_s", "value", "state")))


def columns_of(names: Sequence[Column]) -> str:
    """Return the columns for a message."""
    return ", ".join(column.name for column in names)
