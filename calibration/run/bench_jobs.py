"""Calibration of several benches at once on this computer, with one process per bench.

A worker stops its run when the parent process ends.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lumion_hw.errors import ConfigError, exit_code
from lumion_hw.files import AnyPath

if TYPE_CHECKING:
    from lumion_hw.bench.file.model import BenchModel
import contextlib
import multiprocessing
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext

State = Literal["calibrated", "out of tolerance", "failed", "interrupted", "not begun"]
Stopped = Callable[[], bool]
PrintLine = Callable[[str], None]

INTERRUPTED = 130
OUT_OF_TOLERANCE = 3


@dataclass(frozen=True)
class BenchJob:
    """A bench to be calibrated.

    Attributes:
        bench_file: Path of the bench file, or name of a built-in bench.
        record: Path of the record; other files are stored next to it.
        seed: Seed of the settings and the emulation.
        tolerance_db: Largest allowed verification error above noise, if any.
    """

    bench_file: str
    name: str
    record: str
    emulate: bool = False
    seed: int = 0
    tolerance_db: float | None = None


@dataclass(frozen=True)
class BenchOutcome:
    """Result of a job.

    Attributes:
        state: How the job ended.
        record: Path of the record, complete or not; ``None`` if there is none.
        exit_code: Exit code that ``lumion-calibrate run`` would return.
        wall_s: Elapsed time.
        figures: Counts, residuals and times of the run.
        faults: Faults of the bench, one sentence each.
    """

    name: str
    state: State
    record: str | None = None
    exit_code: int = 0
    error: str = ""
    wall_s: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


def jobs_for(
    bench_files: Sequence[AnyPath],
    out: AnyPath,
    emulate: bool = False,
    seed: int = 0,
    tolerance_db: float | None = None,
) -> list[BenchJob]:
    """Return one calibration job per bench; no device is opened.

    Emulated benches get the seeds ``seed``, ``seed + 1``, and so on.

    Raises:
        ConfigError: A file is invalid, or two benches have the same name, device address or device serial number.
    """
    from lumion_hw.bench.bench import load

    files, out = [str(file) for file in bench_files], Path(out)
    models = [load(file) for file in files]
    check_distinct(files, models)
    return [
        BenchJob(file, model.name, str(out / f"{_file_name(model.name)}.json"), emulate, seed + number, tolerance_db)
        for number, (file, model) in enumerate(zip(files, models, strict=True))
    ]


def check_distinct(bench_files: Sequence[str], models: Sequence[BenchModel]) -> None:
    """Raise an error if two benches use the same device.

    This applies to emulated benches too.

    Raises:
        ConfigError: Two benches share a device; the message names files and devices.
    """
    owners: dict[tuple[str, ...], str] = {}
    for file, model in zip(bench_files, models, strict=True):
        claims: dict[tuple[str, ...], str] = {("bench", _file_name(model.name)): f"the name {model.name!r}"}
        for name, device in model.devices.items():
            if device.address is not None:
                claims["address", _canonical_address(device.address)] = f"device {name} at {device.address}"
            serial = getattr(device, "serial", None)
            if serial is not None:
                kind: str = getattr(device, "kind")  # noqa: B009 - every member of the device union has one
                claims["serial", kind, serial] = f"device {name}, serial {serial}"
        for claim, resource in claims.items():
            if claim in owners:
                raise ConfigError(
                    f"{owners[claim]} and {file} both use {resource}, so they cannot be calibrated at the same time",
                    hint="List each bench once, and give each its own devices.",
                )
            owners[claim] = file


def calibrate_bench(job: BenchJob, stopped: Stopped, print_line: PrintLine) -> BenchOutcome:
    """Calibrate one bench; heaters and light are off afterwards.

    ``stopped`` is called between steps; if it returns true, the run stops. ``print_line`` is called with a progress
    line for every stage.
    """
    from calibration.run.blas_threads import one_blas_thread
    from calibration.run.journaled_run import calibrate
    from calibration.run.verification import out_of_tolerance
    from lumion_hw.bench.bench import Bench
    from lumion_hw.polarization import Aligner

    record, began_s = Path(job.record), time.monotonic()
    before, last_stage = _changed_at(record), ""

    def progress(stage: str, _done: int, _total: int) -> None:
        nonlocal last_stage
        if stopped():
            raise KeyboardInterrupt
        if stage != last_stage:
            last_stage = stage
            print_line(f"{job.name}: {stage}")

    try:
        progress("opening", 0, 1)
        opened = Bench.emulate(job.bench_file, seed=job.seed) if job.emulate else Bench.open(job.bench_file)
        with opened as bench, bench.dark(), one_blas_thread():
            bench.events.write_to(record.with_suffix(".events.jsonl"))
            calibrated = calibrate(
                bench,
                Aligner(bench.clock),
                job.seed,
                record,
                progress,
                find_faults=lambda calibrated: out_of_tolerance(calibrated, job.tolerance_db),
            )
    except BaseException as error:  # noqa: BLE001 - the other benches continue after any error
        return _failed_outcome(job, error, time.monotonic() - began_s, before)
    wall_s = time.monotonic() - began_s
    print_line(f"{job.name}: done in {wall_s:.0f} s")
    state: State = "out of tolerance" if calibrated.faults else "calibrated"
    code = OUT_OF_TOLERANCE if calibrated.faults else 0
    return BenchOutcome(job.name, state, job.record, code, "", wall_s, dict(calibrated.quality), calibrated.faults)


def not_started_outcome(job: BenchJob) -> BenchOutcome:
    """Return the outcome of a job that was not started."""
    return BenchOutcome(job.name, "not begun", exit_code=INTERRUPTED, error="stopped before it was started")


def _failed_outcome(job: BenchJob, error: BaseException, wall_s: float, before: float | None) -> BenchOutcome:
    path = Path(job.record)
    incomplete = path.with_suffix(".incomplete.json")
    written = incomplete if incomplete.exists() else path if _changed_at(path) != before else None
    record = None if written is None else str(written)
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return BenchOutcome(job.name, "interrupted", record, INTERRUPTED, "stopped; heaters and light are off", wall_s)
    return BenchOutcome(job.name, "failed", record, exit_code(error), f"{type(error).__name__}: {error}", wall_s)


def _changed_at(path: Path) -> float | None:
    return path.stat().st_mtime if path.exists() else None


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)


def _canonical_address(address: str) -> str:
    where, _, _ = address.partition("?")
    scheme, slashes, path = where.partition("://")
    if scheme == "serial":
        return f"{scheme}{slashes}{os.path.realpath(path)}"
    return where.lower()


_TERMINATED = 143
# Interval at which the parent checks for stop requests.
_POLL_INTERVAL_S = 0.1
# Time that a worker may take to exit after its bench is done.
_END_S = 10.0


@dataclass(frozen=True)
class Ended:
    """Result of a run of several benches: one outcome per job, in order, and the exception that ended the run."""

    outcomes: tuple[BenchOutcome, ...]
    interruption: BaseException | None = None


def calibrate_benches(jobs: Sequence[BenchJob], workers: int, print_line: PrintLine) -> Ended:
    """Calibrate benches in separate processes, ``workers`` at a time.

    ``print_line`` is called with a progress line for every stage of every bench, also from other threads. If
    ``print_line`` raises ``OSError``, it is not called again.

    Raises:
        ConfigError: The number of workers is below 1.
    """
    if workers < 1:
        raise ConfigError(
            f"the number of workers is {workers}, but at least 1 is required", hint="Choose a number of at least 1."
        )
    context = multiprocessing.get_context("spawn")
    stop, turn = threading.Event(), threading.Lock()

    def send_line(line: str) -> None:
        with turn, contextlib.suppress(OSError):
            print_line(line)

    with ThreadPoolExecutor(workers, thread_name_prefix="lumion-bench") as pool:
        try:
            futures = [pool.submit(_in_process, job, context, stop, send_line) for job in jobs]
            return gather(jobs, futures, stop.set, send_line)
        except BaseException:
            stop.set()  # the pool then waits until heaters and light of every bench are off
            raise


def gather(
    jobs: Sequence[BenchJob], futures: Sequence[Future[BenchOutcome]], stop: Callable[[], None], print_line: PrintLine
) -> Ended:
    """Wait for all outcomes; after an interruption, stop running benches and cancel waiting ones.

    ``stop`` stops the workers; ``print_line`` is called with a line about the interruption.
    """
    interruption: BaseException | None = None
    while True:
        try:
            wait([future for future in futures if not future.cancelled()])
            break
        except (KeyboardInterrupt, SystemExit) as error:
            interruption = interruption or error
            stop()
            for future in futures:
                future.cancel()
            print_line("stopping: waiting until heaters and light of every bench are off")
    outcomes = [
        not_started_outcome(job) if future.cancelled() else future.result()
        for job, future in zip(jobs, futures, strict=True)
    ]
    return Ended(tuple(outcomes), interruption)


def _in_process(job: BenchJob, context: SpawnContext, stop: threading.Event, print_line: PrintLine) -> BenchOutcome:
    if stop.is_set():
        return not_started_outcome(job)
    parent_end, worker_end = context.Pipe()
    with parent_end:
        with worker_end:
            process = context.Process(target=_work, args=(job, worker_end), name=f"lumion-{job.name}")
            process.start()
        outcome = _attended(parent_end, stop, print_line)
    process.join(_END_S)
    # A worker whose bench is done can be killed safely.
    process.kill()  # no effect if it has ended
    process.join()
    if outcome is None:
        text = "the process of this bench died; the controller's watchdog switches the heaters off"
        return BenchOutcome(job.name, "failed", exit_code=1, error=text)
    return outcome


def _attended(worker: Connection, stop: threading.Event, print_line: PrintLine) -> BenchOutcome | None:
    is_reported = False
    try:
        while True:
            if stop.is_set() and not is_reported:
                worker.send("stop")
                is_reported = True
            if worker.poll(_POLL_INTERVAL_S):
                message = worker.recv()
                if isinstance(message, BenchOutcome):
                    return message
                print_line(message)
    except (EOFError, OSError):
        return None


# In the worker ----------------------------------------------------------------------------------------------------


def _work(job: BenchJob, parent: Connection) -> None:
    """Calibrate a bench in a worker. SIGTERM or the end of the parent process stops the run; Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    stop = threading.Event()
    threading.Thread(target=_listen, args=(parent, stop), name="lumion-parent", daemon=True).start()

    def send(message: str | BenchOutcome) -> None:
        with contextlib.suppress(OSError):  # the parent is gone
            parent.send(message)

    send(calibrate_bench(job, stop.is_set, send))


def _listen(parent: Connection, stop: threading.Event) -> None:
    with contextlib.suppress(EOFError, OSError):
        parent.recv()
    stop.set()
