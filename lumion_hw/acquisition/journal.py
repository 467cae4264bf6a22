"""A log file that keeps every acknowledged row after a crash, a power failure or a full disk.

The first line is JSON and describes the columns. Rows of fixed length follow, each with a CRC-32.
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
_OLDER = "lumion-log 1"  # the same, without the description of the bench
JOURNAL = ".journal"
"""Suffix added to the name of the data file."""
MAX_ROWS = 2**32 - 1
"""Limit of 32-bit row numbers."""
_MAX_BYTES = 1 << 34
_IN_USE = "Wait until that program ends, or choose another file."


@dataclass(frozen=True)
class LoggedFile:
    """Copy of the bench file, stored in a journal.

    Attributes:
        name: File name without folders; empty for the description of a served bench.
        sha256: Hash of the file's bytes.
        text: Content of the file.
    """

    name: str
    sha256: str
    text: str


@dataclass(frozen=True)
class LoggedRecord:
    """Reference to the calibration record in use during a recording, with the SHA-256 of the record."""

    record_id: str
    content_sha256: str


@dataclass(frozen=True)
class LogHeader:
    """The header of a recording's journal.

    Attributes:
        period_s: Time between rows; 0 for a scan, which has no fixed period.
        n_rows: Number of planned rows.
        started: Time of the first row, ISO 8601 with time zone.
        software: Name and version of the software that started the recording.
        emulated: Whether the bench was emulated.
        bench_file: Copy of the bench file, if known.
        record: The calibration record, if there was one.
        scan: Plan of the scan; ``None`` for readings at a fixed rate.
        settings: All settings of the bench before a scan, as returned by :meth:`Snapshot.document`.
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
        """Return the header as the first line of a journal file."""
        return json_text({"format": FORMAT, **asdict(self)}, ascii_only=False).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes, path: AnyPath) -> LogHeader:
        """Parse the first line of a journal file. Raises ``ConfigError`` if the file is not a journal."""
        from pydantic import TypeAdapter, ValidationError

        hint = "Give a journal of `lumion log` or `lumion scan`."
        document = parse_json(line, f"the first line of {path}", hint=hint)
        if not isinstance(document, dict) or document.pop("format", None) not in (FORMAT, _OLDER):
            raise ConfigError(f"{path} is not a journal of this program: its format has a different name", hint=hint)
        try:
            header = TypeAdapter(cls).validate_python(document)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ConfigError(f"{path} is not a journal of this program: {where}: {first['msg']}", hint=hint) from error
        is_plausible = header.period_s > 0.0 if header.scan is None else header.scan.n_points == header.n_rows
        if not (header.columns and is_plausible and 0 < header.n_rows <= MAX_ROWS):
            raise ConfigError(
                f"{path} is not a journal of this program: the planned number of rows is wrong",
                hint=hint,
            )
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
    """Return the header for a recording that starts now.

    ``bench_file`` is stored in the log (by default the file that was opened); ``record`` is the calibration record in
    use.

    Raises:
        ConfigError: The bench file cannot be read, or a module was replaced after the bench was opened.
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
        devices={name: identity for name in devices for identity in _identities(bench, name)},
        bench_file=_logged_file(bench, bench_file),
        record=None if record is None else LoggedRecord(record.record_id, record.content_sha256),
    )


def _identities(bench: Bench, name: str) -> Iterator[DeviceIdentity]:
    try:
        yield from device_identities(bench, [name]).values()
    except ConfigError:  # it was replaced by another one
        raise
    except LumionError:
        yield DeviceIdentity(bench.model.devices[name].kind)


def _logged_file(bench: Bench, path: AnyPath | None) -> LoggedFile:
    if path is not None:
        name, data = Path(path).name, read_file(Path(path), "bench file")
    elif bench.file is not None:
        name, data = bench.file.path.name, bench.file.data
    else:
        name, data = "", bench.model.model_dump_json(exclude_none=True).encode()
    return LoggedFile(name, hashlib.sha256(data).hexdigest(), data.decode("utf-8-sig", "replace"))


@dataclass(frozen=True)
class LogRow:
    """One row of a recording.

    Attributes:
        index: Number of the row; missed rows are counted.
        time_s: Seconds since the log was started.
        values: Values of the row, one per column.
    """

    index: int
    time_s: float
    values: tuple[Value, ...]


class LogJournal:
    """An open journal file of a recording, as a context manager. Not thread-safe.

    Attributes:
        acknowledged: Number of rows on the disk.
        last_index: Number of the last row in the file; -1 before the first.
        lost_bytes: Length of an incomplete row that was removed when the file was opened.
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
        """Create a new journal file.

        Raises:
            ConfigError: The file exists already or cannot be created.
        """
        path = Path(path)
        if path.exists():
            raise ConfigError(f"{path} exists already", hint="Continue with --resume, or choose another name.")
        with writing("the log", path):
            file = path.open("xb", buffering=0)
            try:
                lock_file(file.fileno(), path, "the journal", _IN_USE)
                _write_all(file, header.line())
                os.fsync(file.fileno())
            except BaseException:
                file.close()
                path.unlink(missing_ok=True)  # half a header could be neither continued nor created again
                raise
        return cls(path, header, file)

    @classmethod
    def resume(cls, path: AnyPath) -> Self:
        """Open and lock a journal file to continue the recording. An incomplete last row is removed.

        Raises:
            ConfigError: The file does not exist or is not a journal.
            BusyError: Another process is using the file.
        """
        path = Path(path)
        if not path.is_file():
            _read(path)  # raises the exact error
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
        """Append a row. It is safe on the disk after the next :meth:`sync`. Raises as :func:`writing`."""
        packed = _packed(self._layout, row)
        with writing("the log", self.path):
            _write_all(self._file, packed)
        self._written += 1
        self.last_index = row.index

    def sync(self) -> int:
        """Write all appended rows to the disk and return the number of rows that are safe there."""
        if self._written > self.acknowledged:
            with writing("the log", self.path):
                os.fsync(self._file.fileno())
            self.acknowledged = self._written
        return self.acknowledged

    def close(self) -> None:
        """Close the file. Rows appended after the last :meth:`sync` can be lost."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _write_all(file: BinaryIO, data: bytes) -> None:
    # A full disk accepts the beginning without an error; writing the rest then raises.
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[file.write(remaining) :]


@dataclass(frozen=True, eq=False)
class LogTable:
    """All rows of a journal.

    Attributes:
        index: Numbers of the rows, shape ``(rows,)``.
        time_s: Seconds since the log was started, shape ``(rows,)``.
        value: Values, shape ``(rows, columns)``, NaN where there is no number.
        state: Values of :class:`State`, shape ``(rows, columns)``.
    """

    index: NDArray[np.uint32]
    time_s: NDArray[np.float64]
    value: NDArray[np.float64]
    state: NDArray[np.uint8]

    def rows(self) -> Iterator[LogRow]:
        """Yield the rows of the recording."""
        for index, time_s, numbers, states in zip(self.index, self.time_s, self.value, self.state, strict=True):
            values = (Value(State(state), number) for number, state in zip(numbers.tolist(), states, strict=True))
            yield LogRow(int(index), float(time_s), tuple(values))


def read_table(path: AnyPath) -> tuple[LogHeader, LogTable]:
    """Return the header of a journal file, and its rows as arrays. Raises as :func:`read_journal`."""
    header, table, _ = _read(Path(path))
    return header, table


def read_journal(path: AnyPath) -> tuple[LogHeader, list[LogRow]]:
    """Return the header and the rows of a journal file; an unfinished last row is omitted.

    Raises:
        ConfigError: The file does not exist or is not a journal.
    """
    header, table, _ = _read(Path(path))
    return header, list(table.rows())


def _read(path: Path) -> tuple[LogHeader, LogTable, int]:
    data = read_file(path, "the log", max_bytes=_MAX_BYTES)
    begin = data.find(b"\n") + 1
    header = LogHeader.parse(data[: max(begin - 1, 0)], path)
    table = _table(memoryview(data)[begin:], len(header.columns))
    check_rows(path, header, table.index)
    return header, table, begin + len(table.index) * (_layout(len(header.columns)).size + 4)


def check_rows(path: AnyPath, header: LogHeader, index: NDArray[np.uint32]) -> None:
    """Raise ``ConfigError`` if a journal has more rows than its header plans."""
    if len(index) and int(index.max()) >= header.n_rows:
        raise ConfigError(
            f"{path} is damaged: it has row {int(index.max())}, but only rows 0 to {header.n_rows - 1} are planned",
            hint="Restore the file from a copy, or start again with another file.",
        )


def _layout(n_columns: int) -> struct.Struct:
    return struct.Struct(f"<Id{n_columns}d{n_columns}B")


def _packed(layout: struct.Struct, row: LogRow) -> bytes:
    body = layout.pack(
        row.index, row.time_s, *(value.number for value in row.values), *(int(value.state) for value in row.values)
    )
    return body + zlib.crc32(body).to_bytes(4, "little")


def _table(data: memoryview, n: int) -> LogTable:
    fields = [("index", "<u4"), ("time_s", "<f8"), ("value", "<f8", (n,)), ("state", "u1", (n,)), ("crc", "<u4")]
    packed = np.ndarray((len(data) // (_layout(n).size + 4),), np.dtype(fields), data)
    step, size = packed.dtype.itemsize, packed.dtype.itemsize - 4
    crcs = (zlib.crc32(data[start : start + size]) for start in range(0, len(packed) * step, step))
    is_intact = np.fromiter(crcs, np.uint32, len(packed)) == packed["crc"]
    is_intact &= np.all(packed["state"] <= max(State), axis=1)
    intact = packed[: len(packed) if is_intact.all() else int(np.argmin(is_intact))]
    return LogTable(*(np.array(intact[name]) for name in ("index", "time_s", "value", "state")))


def columns_of(names: Sequence[Column]) -> str:
    """Return column names as text for a message."""
    return ", ".join(column.name for column in names)
