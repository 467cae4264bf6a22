"""Scans: sweep settings of a bench, record readings at every point, and restore the settings afterwards."""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np

from lumion_hw.acquisition.columns import Column, Reader, State, Value
from lumion_hw.acquisition.hdf5 import write_hdf5
from lumion_hw.acquisition.journal import (
    JOURNAL,
    MAX_ROWS,
    LogHeader,
    LogJournal,
    LogRow,
    log_header,
    read_table,
)
from lumion_hw.acquisition.live_scan import LiveScan, NotebookView, View
from lumion_hw.acquisition.own_sweeps import InstrumentSweep, own_sweep
from lumion_hw.acquisition.scan_curve import ScanCurve
from lumion_hw.acquisition.scan_data import ScanData, load_scan
from lumion_hw.acquisition.scan_moves import Moves, Sweep
from lumion_hw.acquisition.scan_plan import BY_INSTRUMENT, SET
from lumion_hw.acquisition.snapshot import Snapshot, restore, take_snapshot
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import BusyError, ConfigError, IdentityError, LinkError, LumionError
from lumion_hw.files import AnyPath
from lumion_hw.files.hdf5 import require_hdf5
from lumion_hw.files.writing import check_target
from lumion_hw.links.owner import fork_safe
from lumion_hw.mesh.record.calibration_record import CalibrationRecord

_log = logging.getLogger(__name__)

_SYNC_S = 0.2
"""Longest time until a point is safe on the disk, by the wall clock."""
_BY_HOST, _BY_INSTRUMENT = Value(State.OK, 0.0), Value(State.OK, 1.0)


@dataclass(frozen=True)
class ScanProgress:
    """Progress of a scan.

    Attributes:
        done: Number of points on the disk, of this and earlier runs.
        left_s: Estimated remaining time; ``None`` before the first point.
        stepped: Reason why the host sets the points although the instrument has a sweep function; empty otherwise.
    """

    done: int
    total: int
    left_s: float | None
    stepped: str = ""


@dataclass(frozen=True, eq=False)
class PreparedScan:
    """A scan that was checked but has not started.

    Attributes:
        moves: The swept settings.
        own: The sweep that an instrument runs by itself; ``None`` if the host sets all points.
        stepped: Reason why the host sets the points although the instrument has a sweep function; empty otherwise.
    """

    bench: Bench
    moves: Moves
    reader: Reader
    own: InstrumentSweep | None
    stepped: str = ""

    @property
    def devices(self) -> list[str]:
        """Names of the devices that the scan sets or reads."""
        names = [setting.device for setting in self.moves.settings] + [column.device for column in self.reader.columns]
        return list(dict.fromkeys(names))

    @property
    def swept(self) -> list[str]:
        """Names of the settings to restore after the scan."""
        moved = dict.fromkeys(setting.part_of or setting.name for setting in self.moves.settings)
        return list(moved | dict.fromkeys(self.moves.plan.followers))

    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the scan file: settings, a flag for instrument sweeps, and readings."""
        settings = (Column(item.name + SET, item.device, item.unit) for item in self.moves.settings)
        return (*settings, Column(BY_INSTRUMENT, "scan", "1"), *self.reader.columns)


def prepare_scan(
    bench: Bench,
    sweep: Sweep,
    readings: Sequence[str],
    *,
    snake: bool = False,
    by_hand: bool = False,
    keep_meters: bool = False,
) -> PreparedScan:
    """Check names, values and limits of a scan without changing anything; arguments and errors as for :func:`scan`."""
    moves = Moves(bench, sweep, snake)
    if moves.plan.n_points > MAX_ROWS:
        raise ConfigError(f"the scan has {moves.plan.n_points} points, more than {MAX_ROWS}", hint="Give fewer values.")
    reader = Reader(bench, (readings,) if isinstance(readings, str) else readings)
    if not keep_meters:
        moves.set_followers(reader.columns)
    own = "" if by_hand else own_sweep(bench, moves, reader)
    return (
        PreparedScan(bench, moves, reader, None, own)
        if isinstance(own, str)
        else PreparedScan(bench, moves, reader, own)
    )


def scan(
    bench: Bench,
    sweep: Sweep,
    readings: Sequence[str],
    *,
    out: AnyPath | None = None,
    resume: bool = False,
    snake: bool = False,
    by_hand: bool = False,
    keep_meters: bool = False,
    leave: bool = False,
    live: bool | View = False,
    bench_file: AnyPath | None = None,
    record: CalibrationRecord | None = None,
    progress: Callable[[ScanProgress], None] = lambda progress: None,
) -> ScanData:
    """Sweep settings of a bench and record readings at every point.

    At each point the settings are written, the devices settle, and the readings are taken. During the scan the data are
    in a journal (``OUT.journal``); at the end they are written to the HDF5 file. An interrupted scan can be read with
    :func:`~lumion_hw.acquisition.load_scan` and continued with ``resume``. If the wavelength of a source is swept, the
    power meters are set to the same wavelength. At the end all changed settings are restored.

    Args:
        bench: The open bench.
        sweep: Values by setting name. A name with shell wildcards sets all matching settings to the same values; a
            tuple of names with a tuple of sequences sets several settings together. Several entries form a grid, in
            which the first entry changes slowest.
        readings: Channel names with shell wildcards; a device name selects all of its channels.
        out: The HDF5 file; without it the data are only returned.
        resume: Whether to continue an interrupted scan.
        snake: Whether to sweep the faster axes back and forth, so that no setting jumps between passes.
        by_hand: Whether the host sets every point, even if an instrument can run the sweep.
        keep_meters: Whether to keep the wavelength settings of the meters.
        leave: Whether to leave the settings at the last point instead of restoring them.
        live: Whether to draw the scan in the notebook while it runs; or a function that is called with the data so far,
            at most four times per second and for at most a fifth of the time.
        bench_file: The bench file to store with the data; by default the one that was opened.
        record: The calibration record to note in the data.
        progress: Called when new points are on disk.

    Raises:
        ConfigError: A name matches nothing, a value has the wrong type, a meter would need two wavelengths at once,
            the file exists or belongs to another scan, or ``live`` is true outside a notebook; nothing was changed.
        LimitError: A value, or a wavelength of a meter, is outside its limits; nothing was changed.
        BusyError: Another scan of this program uses one of the devices.
        LumionError: A device or the disk failed; the message gives the journal and the number of saved points.
    """
    prepared = prepare_scan(bench, sweep, readings, snake=snake, by_hand=by_hand, keep_meters=keep_meters)
    target, view = _target(out, resume), NotebookView() if live is True else live or None
    with _claimed(prepared), _folder(target) as journal_path:
        snapshot = take_snapshot(bench, ("*", *prepared.swept))
        header = _header(prepared, snapshot, bench_file, record)
        if target is not None and target.exists():  # only with resume: the scan is already complete
            return _complete_scan(target, header)
        live_scan = None if view is None else LiveScan(header, view)
        with _resumable(journal_path, header, resume) as journal, _settings_restored(prepared, snapshot, leave):
            _Scanning(prepared, journal, progress, live_scan).run()
        return _finished(journal_path, target, live_scan)


def _finished(journal_path: Path, target: Path | None, live_scan: LiveScan | None) -> ScanData:
    """Show the complete scan, and convert its journal to the file."""
    if live_scan is not None:
        live_scan.show()
    data = ScanData.of(*read_table(journal_path))
    if target is not None:
        write_hdf5(journal_path, target)
        journal_path.unlink()
    return data


class _Scanning:
    """A running scan: moves the settings, takes the readings and stores each point in the journal."""

    def __init__(
        self,
        prepared: PreparedScan,
        journal: LogJournal,
        progress: Callable[[ScanProgress], None],
        live: LiveScan | None,
    ) -> None:
        self._moves, self._reader, self._own = prepared.moves, prepared.reader, prepared.own
        self._stepped = prepared.stepped
        self._plan = prepared.moves.plan
        self._bench, self._clock = prepared.bench, prepared.bench.clock
        self._failure = ""
        self._stage = " × ".join(axis.name for axis in self._plan.axes)
        self._journal, self._progress, self._live = journal, progress, live
        self._curve = ScanCurve(self._plan, self._reader.columns)
        self._is_point_done = np.zeros(self._plan.n_points, dtype=np.bool_)
        self._elapsed_before_s = 0.0
        if journal.acknowledged:
            table = read_table(journal.path)[1]
            self._is_point_done[table.index] = True
            self._elapsed_before_s = float(table.time_s[-1])
            if live is not None:
                live.load(table)
        self._origin_s = self._clock.now() - self._elapsed_before_s
        self._synced_s, self._before = time.monotonic(), journal.acknowledged

    def run(self) -> None:
        """Measure all points that the journal does not contain yet."""
        try:
            if self._own is None:
                for step in range(self._plan.n_points):
                    self._visit(self._plan.position(step))
            else:
                self._run_instrument_sweep(self._own)
        except BaseException as error:
            self._failure = str(error) or type(error).__name__
            raise
        finally:
            self._report_progress()

    def _run_instrument_sweep(self, own: InstrumentSweep) -> None:
        for first in range(0, self._plan.n_points, own.points_in_pass):
            end = min(first + own.points_in_pass, self._plan.n_points)
            for begin in range(first, end, own.max_points_per_sweep):
                steps = range(begin, min(begin + own.max_points_per_sweep, end))
                positions = [position for step in steps if not self._is_stored(position := self._plan.position(step))]
                if positions:
                    self._run_group(own, positions)

    def _run_group(self, own: InstrumentSweep, positions: Sequence[tuple[int, ...]]) -> None:
        result = own.run(positions)
        if isinstance(result, str):
            if result != self._stepped:
                _log.info("the host sets the points one by one: %s", result)
            self._stepped = result
            for position in positions:
                self._visit(position)
            return
        for position, point in zip(positions, result, strict=True):
            self._store_point(position, _BY_INSTRUMENT, point.values, point.numbers)

    def _is_stored(self, position: tuple[int, ...]) -> bool:
        return bool(self._is_point_done[self._plan.index(position)])

    def _visit(self, position: tuple[int, ...]) -> None:
        if not self._is_stored(position):
            self._moves.move_to(position)
            self._reader.begin()
            self._store_point(position, _BY_HOST, self._read(), self._moves.numbers(position))

    def _read(self) -> list[Value]:
        values = self._reader.read()
        if any(isinstance(failure, LinkError) for failure in self._reader.failures.values()):
            values = self._reader.read()
            for failure in self._reader.failures.values():
                if isinstance(failure, LinkError):
                    raise failure
        return values

    def _store_point(
        self, position: tuple[int, ...], origin: Value, values: Sequence[Value], numbers: Sequence[float]
    ) -> None:
        settings = [
            Value(State.NO_SIGNAL if math.isnan(number) else State.OK, number)  # NaN means None, such as automatic
            for number in numbers
        ]
        index = self._plan.index(position)
        row = LogRow(index, self._clock.now() - self._origin_s, (*settings, origin, *values))
        self._journal.append(row)
        self._is_point_done[index] = True
        self._curve.add(position, values)
        is_view_due = self._live is not None and self._live.add(row)
        if is_view_due or time.monotonic() - self._synced_s >= _SYNC_S:  # points are safe before a view takes its time
            self._report_progress()
            self._synced_s = time.monotonic()
        if self._live is not None and is_view_due:
            self._live.show()

    def _report_progress(self) -> None:
        done, total = self._journal.sync(), self._plan.n_points
        fresh = done - self._before
        pace_s = (self._clock.now() - self._origin_s - self._elapsed_before_s) / fresh if fresh else None
        left_s = None if pace_s is None else pace_s * (total - done)
        self._bench.report_progress("scan", self._stage, done, total, self._failure, self._curve.document())
        self._progress(ScanProgress(done, total, left_s, self._stepped))


# -- preparation and clean-up

_in_use: WeakKeyDictionary[Bench, set[str]] = WeakKeyDictionary()
_claiming = fork_safe(threading.Lock())


def _target(out: AnyPath | None, resume: bool) -> Path | None:
    if out is None:
        if resume:
            raise ConfigError("a scan without a file cannot be resumed", hint="Give the file with out=.")
        return None
    target = Path(out)
    require_hdf5()
    if not (resume and target.exists()):
        check_target(target, "the scan", overwrite="nothing")
    return target


@contextlib.contextmanager
def _claimed(prepared: PreparedScan) -> Iterator[None]:
    """Reserve the devices during the ``with`` block, so that no other scan of this program can use them."""
    with _claiming:
        used = _in_use.setdefault(prepared.bench, set())
        for name in prepared.devices:
            if name in used:
                raise BusyError(
                    "another scan of this program is using this device",
                    device=name,
                    hint="Wait until that scan ends. Nothing was changed.",
                )
        used.update(prepared.devices)
    try:
        yield
    finally:
        with _claiming:
            used.difference_update(prepared.devices)


@contextlib.contextmanager
def _folder(target: Path | None) -> Iterator[Path]:
    """Yield the path of the journal. Without a target file, the journal is deleted after a complete scan."""
    if target is not None:
        yield target.with_name(target.name + JOURNAL)
        return
    folder = Path(tempfile.mkdtemp(prefix="lumion-scan-"))
    yield folder / "scan.journal"
    shutil.rmtree(folder, ignore_errors=True)


def _header(
    prepared: PreparedScan, snapshot: Snapshot, bench_file: AnyPath | None, record: CalibrationRecord | None
) -> LogHeader:
    bench, plan = prepared.bench, prepared.moves.plan
    base = log_header(bench, prepared.reader, period_s=0.0, n_rows=plan.n_points, bench_file=bench_file, record=record)
    devices = dict(snapshot.identities) | dict(base.devices)
    return replace(base, columns=prepared.columns(), devices=devices, scan=plan, settings=snapshot.document())


def _journal(path: Path, header: LogHeader, resume: bool) -> LogJournal:
    if not resume:
        return LogJournal.create(path, header)
    journal = LogJournal.resume(path)
    try:
        _check_resumable(path, journal.header, header)
    except BaseException:
        journal.close()
        raise
    return journal


def _complete_scan(target: Path, header: LogHeader) -> ScanData:
    data = load_scan(target)
    _check_resumable(target, data.header, header)
    return data


def _check_resumable(path: Path, stored: LogHeader, current: LogHeader) -> None:
    hint = "Resume with the same scan of the same bench, or choose another file. Nothing was changed."
    for quantity, before, after in (
        ("bench", (stored.bench, stored.emulated), (current.bench, current.emulated)),
        ("scan", stored.scan, current.scan),
        ("readings", stored.columns, current.columns),
        (
            "bench file",
            stored.bench_file and stored.bench_file.sha256,
            current.bench_file and current.bench_file.sha256,
        ),
        ("calibration record", stored.record, current.record),
    ):
        if before != after:
            raise ConfigError(f"the scan in {path} was started with another {quantity}", hint=hint)
    for name, identity in stored.devices.items():
        if name in current.devices and identity.contradicts(current.devices[name]):
            raise IdentityError(
                f"the scan in {path} was started with another device: {identity}; "
                f"this bench has {current.devices[name]}",
                device=name,
                hint=hint,
            )


@contextlib.contextmanager
def _resumable(path: Path, header: LogHeader, resume: bool) -> Iterator[LogJournal]:
    """Open the journal of a scan. Errors in the ``with`` block get a hint how to resume the scan."""
    with _journal(path, header, resume) as journal, _with_resume_hint(journal):
        yield journal


@contextlib.contextmanager
def _with_resume_hint(journal: LogJournal) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        text = (
            f"{journal.acknowledged} of {journal.header.n_rows} points are saved in {journal.path}; "
            "continue with resume=True (--resume), or read them with load_scan."
        )
        if isinstance(error, LumionError):
            error.hint = f"{error.hint} {text}" if error.hint else text
        else:
            error.add_note(text)
        raise


@contextlib.contextmanager
def _settings_restored(prepared: PreparedScan, snapshot: Snapshot, leave: bool) -> Iterator[None]:
    if leave:
        yield
        return
    try:
        yield
    except BaseException as error:
        try:
            problem = _restore_failures(prepared, snapshot)
        except LumionError as failure:
            problem = str(failure)
        if problem:
            error.add_note(problem)
            if isinstance(error, LumionError):
                error.hint = f"{error.hint or ''} {problem}.".lstrip()
        raise
    if problem := _restore_failures(prepared, snapshot):
        raise LumionError(f"all points are saved, but {problem}", hint="Restore the device manually.")


def _restore_failures(prepared: PreparedScan, snapshot: Snapshot) -> str:
    result = restore(prepared.bench, snapshot, prepared.swept)
    failed = [f"{change.name} was not restored: {error}" for change, error in result.failed]
    failed += [f"{change.name} was not restored" for change in result.left_out]
    failed += [f"{device} is still switched off" for device in result.left_dark]
    if not failed:
        for setting in prepared.moves.settings:  # so that the next reading does not see the light still settling
            setting.wait_settled()
    return "; ".join(failed)
