"""Scans: settings of a bench swept against readings, every point safe on disk, the bench as it was afterwards."""

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
    MOST_ROWS,
    LogHeader,
    LogJournal,
    LogRow,
    log_header,
    read_table,
)
from lumion_hw.acquisition.own_sweeps import InstrumentSweep, own_sweep
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
"""Longest time a point waits to be acknowledged. Of the wall clock: what a crash takes does not care about another."""
_BY_HOST, _BY_ITSELF = Value(State.OK, 0.0), Value(State.OK, 1.0)


@dataclass(frozen=True)
class ScanProgress:
    """How far a scan is.

    Attributes:
        done: Points that are safe on disk, of this and earlier sittings.
        total: All points.
        left_s: Time still needed at the pace so far; ``None`` before the first point.
        stepped: Why points that a device might sweep by itself are set and read from here; empty if none are.
    """

    done: int
    total: int
    left_s: float | None
    stepped: str = ""


@dataclass(frozen=True, eq=False)
class PreparedScan:
    """A scan that is checked, and has not moved anything yet.

    Attributes:
        bench: The open bench.
        moves: The settings.
        reader: The readings.
        own: The sweep that a device runs by itself, if one can.
        stepped: Why a device that might sweep does not; empty if there is none.
    """

    bench: Bench
    moves: Moves
    reader: Reader
    own: InstrumentSweep | None
    stepped: str = ""

    @property
    def devices(self) -> list[str]:
        """Devices that are set or read."""
        names = [setting.device for setting in self.moves.settings] + [each.device for each in self.reader.columns]
        return list(dict.fromkeys(names))

    @property
    def swept(self) -> list[str]:
        """Names of the settings that are to be put back: arrays whole, wavelengths as frequencies."""
        moved = dict.fromkeys(each.part_of or each.name for each in self.moves.settings)
        return list(moved | dict.fromkeys(self.moves.plan.followers))

    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the file: settings, which way they went, readings."""
        settings = (Column(each.name + SET, each.device, each.unit) for each in self.moves.settings)
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
    """Check a scan: names, values, limits. Arguments and errors as of :func:`scan`; nothing is moved."""
    moves = Moves(bench, sweep, snake)
    if moves.plan.n_points > MOST_ROWS:
        raise ConfigError(f"{moves.plan.n_points} points are more than the {MOST_ROWS} of a scan")
    reader = Reader(bench, (readings,) if isinstance(readings, str) else readings)
    if not keep_meters:
        moves.let_follow(reader.columns)
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
    bench_file: AnyPath | None = None,
    record: CalibrationRecord | None = None,
    progress: Callable[[ScanProgress], None] = lambda progress: None,
) -> ScanData:
    """Sweep settings of a bench against readings.

    Every point is set, waited for as long as its devices say, and read with the averaging that is set on them. Points
    go to a journal (``OUT.journal``) and are safe as soon as they are counted; at the end it becomes the HDF5 file.
    Whatever ends a scan early, the file keeps what is there, :func:`~lumion_hw.acquisition.load_scan` reads it, and
    ``resume`` goes on with it. A reading that fails is kept as such; a device that does not answer twice ends the scan.
    Where the wavelength of a source is swept, the meters that are read are set to it at each point. Afterwards all
    settings that were moved are put back, with light last.

    Args:
        bench: The open bench.
        sweep: Values by the name of a setting; shell wildcards allowed, which move all settings they fit together. A
            tuple of names with as many sequences moves these together. Several entries are a grid, the first slowest.
        readings: Names of channels as of :class:`Reader`; a device name alone means all of its channels.
        out: The HDF5 file; without one the data are returned only.
        resume: Go on with what is in the file.
        snake: Let every other pass of an axis go back, so that no setting jumps.
        by_hand: Set and read every point from here, also where a device can run the sweep by itself.
        keep_meters: Leave the wavelength of the meters as it is.
        leave: Leave the settings at the last point.
        bench_file: The bench file, to be kept with the data; by default what was opened.
        record: The calibration record in force, to be named.
        progress: Told whenever more points are safe.

    Returns:
        The data.

    Raises:
        ConfigError: A name fits nothing, a value is not of its setting's kind, two sources whose wavelengths move apart
            are read by one meter, the file exists, or it is not of this scan; nothing was moved.
        LimitError: A value, or a wavelength that a meter is to follow, is outside its limits; nothing was moved.
        BusyError: Another scan of this program has one of these devices.
        LumionError: A device or the disk failed; the message says how many points are safe, and where.
    """
    prepared = prepare_scan(bench, sweep, readings, snake=snake, by_hand=by_hand, keep_meters=keep_meters)
    target = _target(out, resume)
    with _claimed(prepared), _folder(target) as journal_path:
        snapshot = take_snapshot(bench, ("*", *prepared.swept))
        header = _header(prepared, snapshot, bench_file, record)
        if target is not None and target.exists():  # and it is to be gone on with
            data = load_scan(target)
            _check_same(target, data.header, header)
            return data
        with _journal(journal_path, header, resume) as journal, _kept(journal), _put_back(prepared, snapshot, leave):
            _Scanning(prepared, journal, progress).run()
        return _finished(journal_path, target)


def _finished(journal_path: Path, target: Path | None) -> ScanData:
    """Return the data of a whole scan; its journal becomes the file."""
    data = ScanData.of(*read_table(journal_path))
    if target is not None:
        write_hdf5(journal_path, target)
        journal_path.unlink()
    return data


class _Scanning:
    """A scan under way.

    Args:
        prepared: What to do.
        journal: Where the points go; those in it are done.
        progress: Told whenever more points are safe.
    """

    def __init__(self, prepared: PreparedScan, journal: LogJournal, progress: Callable[[ScanProgress], None]) -> None:
        self._moves, self._reader, self._own = prepared.moves, prepared.reader, prepared.own
        self._stepped = prepared.stepped
        self._plan = prepared.moves.plan
        self._clock = prepared.bench.clock
        self._journal, self._progress = journal, progress
        self._done = np.zeros(self._plan.n_points, dtype=np.bool_)
        self._begun_s = 0.0
        if journal.acknowledged:
            table = read_table(journal.path)[1]
            self._done[table.index] = True
            self._begun_s = float(table.time_s[-1])
        self._origin_s = self._clock.now() - self._begun_s
        self._synced_s, self._before = time.monotonic(), journal.acknowledged

    def run(self) -> None:
        """Visit the points that are left."""
        try:
            if self._own is None:
                for step in range(self._plan.n_points):
                    self._visit(self._plan.place(step))
            else:
                self._run_own(self._own)
        finally:
            self._tell()

    def _run_own(self, own: InstrumentSweep) -> None:
        """Let a device run as many points as it takes; what it does not take is done by hand."""
        for first in range(0, self._plan.n_points, own.points_in_pass):
            end = min(first + own.points_in_pass, self._plan.n_points)
            for begin in range(first, end, own.most_at_once):
                steps = range(begin, min(begin + own.most_at_once, end))
                places = [place for step in steps if not self._is_done(place := self._plan.place(step))]
                if places:
                    self._run_group(own, places)

    def _run_group(self, own: InstrumentSweep, places: Sequence[tuple[int, ...]]) -> None:
        found = own.run(places)
        if isinstance(found, str):
            if found != self._stepped:
                _log.info("set and read point by point: %s", found)
            self._stepped = found
            for place in places:
                self._visit(place)
            return
        for place, point in zip(places, found, strict=True):
            self._keep(place, _BY_ITSELF, point.values, point.numbers)

    def _is_done(self, place: tuple[int, ...]) -> bool:
        return bool(self._done[self._plan.index(place)])

    def _visit(self, place: tuple[int, ...]) -> None:
        if not self._is_done(place):
            self._moves.go(place)
            self._reader.begin()
            self._keep(place, _BY_HOST, self._read(), self._moves.numbers(place))

    def _read(self) -> list[Value]:
        """Read; a device that does not answer is asked once more, and then it is gone."""
        values = self._reader.read()
        if any(isinstance(failure, LinkError) for failure in self._reader.failures.values()):
            values = self._reader.read()
            for failure in self._reader.failures.values():
                if isinstance(failure, LinkError):
                    raise failure
        return values

    def _keep(self, place: tuple[int, ...], way: Value, values: Sequence[Value], numbers: Sequence[float]) -> None:
        settings = [
            Value(State.NO_SIGNAL if math.isnan(number) else State.OK, number)  # NaN: none was set, as automatic
            for number in numbers
        ]
        index = self._plan.index(place)
        self._journal.append(LogRow(index, self._clock.now() - self._origin_s, (*settings, way, *values)))
        self._done[index] = True
        if time.monotonic() - self._synced_s >= _SYNC_S:
            self._tell()
            self._synced_s = time.monotonic()

    def _tell(self) -> None:
        done, total = self._journal.sync(), self._plan.n_points
        fresh = done - self._before
        pace_s = (self._clock.now() - self._origin_s - self._begun_s) / fresh if fresh else None
        left_s = None if pace_s is None else pace_s * (total - done)
        self._progress(ScanProgress(done, total, left_s, self._stepped))


# -- around it

_in_use: WeakKeyDictionary[Bench, set[str]] = WeakKeyDictionary()
_claiming = fork_safe(threading.Lock())


def _target(out: AnyPath | None, resume: bool) -> Path | None:
    """Return where the file is to be written. Raises ``ConfigError`` if it cannot be."""
    if out is None:
        if resume:
            raise ConfigError("a scan without a file cannot be gone on with", hint="Name it with out=.")
        return None
    target = Path(out)
    require_hdf5()
    if not (resume and target.exists()):
        check_target(target, "the scan", over="nothing")
    return target


@contextlib.contextmanager
def _claimed(prepared: PreparedScan) -> Iterator[None]:
    """Have the devices of a scan for it alone, among the scans of this program."""
    with _claiming:
        used = _in_use.setdefault(prepared.bench, set())
        for name in prepared.devices:
            if name in used:
                raise BusyError(
                    "another scan of this program has this device",
                    device=name,
                    hint="Wait for its end. Nothing was moved.",
                )
        used.update(prepared.devices)
    try:
        yield
    finally:
        with _claiming:
            used.difference_update(prepared.devices)


@contextlib.contextmanager
def _folder(target: Path | None) -> Iterator[Path]:
    """Give the path of the journal; without a target it is kept only if the scan does not come to its end."""
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
    told = log_header(bench, prepared.reader, period_s=0.0, n_rows=plan.n_points, bench_file=bench_file, record=record)
    devices = dict(snapshot.identities) | dict(told.devices)
    return replace(told, columns=prepared.columns(), devices=devices, scan=plan, settings=snapshot.document())


def _journal(path: Path, header: LogHeader, resume: bool) -> LogJournal:
    """Begin a journal, or go on with one of the same scan."""
    if not resume:
        return LogJournal.create(path, header)
    journal = LogJournal.resume(path)
    try:
        _check_same(path, journal.header, header)
    except BaseException:
        journal.close()
        raise
    return journal


def _check_same(path: Path, begun: LogHeader, now: LogHeader) -> None:
    """Refuse to go on with another scan than the one begun."""
    hint = "Go on with the same scan of the same bench, or choose another file. Nothing was moved."
    for what, one, other in (
        ("bench", (begun.bench, begun.emulated), (now.bench, now.emulated)),
        ("settings or values", begun.scan, now.scan),
        ("readings", begun.columns, now.columns),
        ("bench file", begun.bench_file and begun.bench_file.sha256, now.bench_file and now.bench_file.sha256),
        ("calibration record", begun.record, now.record),
    ):
        if one != other:
            raise ConfigError(f"{path} was begun with another {what}", hint=hint)
    for name, who in begun.devices.items():
        if name in now.devices and who.contradicts(now.devices[name]):
            raise IdentityError(
                f"{path} was begun with another device: {who}; here is {now.devices[name]}", device=name, hint=hint
            )


@contextlib.contextmanager
def _kept(journal: LogJournal) -> Iterator[None]:
    """Say of whatever ends a scan early what is there."""
    try:
        yield
    except BaseException as error:
        said = (
            f"{journal.acknowledged} of {journal.header.n_rows} points are safe in {journal.path}; "
            "go on with resume=True (--resume), or read them with load_scan."
        )
        if isinstance(error, LumionError):
            error.hint = f"{error.hint} {said}" if error.hint else said
        else:
            error.add_note(said)
        raise


@contextlib.contextmanager
def _put_back(prepared: PreparedScan, snapshot: Snapshot, leave: bool) -> Iterator[None]:
    """Put the swept settings back after a block, whatever ends it."""
    if leave:
        yield
        return
    try:
        yield
    except BaseException as error:
        try:
            problem = _not_put_back(prepared, snapshot)
        except LumionError as failure:
            problem = str(failure)
        if problem:
            error.add_note(problem)
            if isinstance(error, LumionError):
                error.hint = f"{error.hint or ''} {problem}.".lstrip()
        raise
    if problem := _not_put_back(prepared, snapshot):
        raise LumionError(f"all points were taken, but {problem}", hint="Look at the device, and set it by hand.")


def _not_put_back(prepared: PreparedScan, snapshot: Snapshot) -> str:
    """Put the swept settings back, and return what could not be, in words."""
    done = restore(prepared.bench, snapshot, prepared.swept)
    failed = [f"{change.name} was not put back: {error}" for change, error in done.failed]
    failed += [f"{change.name} was not put back" for change in done.left_out]
    failed += [f"{device} was left dark" for device in done.left_dark]
    if not failed:
        for setting in prepared.moves.settings:  # whoever reads next finds the light as it was, not on its way there
            setting.wait_settled()
    return "; ".join(failed)
