"""Several benches at once on this computer: a process for each, so many at a time.

Parent and worker talk over a pipe that no other process has: one that crashes, or is killed in the middle of a word,
leaves no lock behind that another could wait for. Ctrl-C is the parent's affair: it asks the workers to stop, and each
ends its bench as any interrupted run does. A worker whose parent is gone stops by itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext

from calibration.run.bench_job import BenchOutcome, Job, Say, calibrate_bench, not_begun
from lumion_hw.errors import ConfigError

_TERMINATED = 143
_LOOK_EVERY_S = 0.1
"""How often the parent looks whether a worker is to be stopped."""
_END_S = 10.0
"""How long a worker whose bench is done may take to end."""


@dataclass(frozen=True)
class Ended:
    """How a run of several benches ended.

    Attributes:
        outcomes: One per job, in their order.
        interruption: What interrupted it, if anything did.
    """

    outcomes: tuple[BenchOutcome, ...]
    interruption: BaseException | None = None


def calibrate_many(jobs: Sequence[Job], workers: int, say: Say) -> Ended:
    """Calibrate benches in processes of this computer, so many at a time.

    Args:
        jobs: The benches.
        workers: Benches at a time.
        say: Told of every stage of every bench, a line at a time, from other threads too. If it fails with an
            ``OSError``, nobody reads what it prints: the benches go on.

    Raises:
        ConfigError: There are no workers.
    """
    if workers < 1:
        raise ConfigError(f"{workers} workers can do nothing", hint="Give at least 1.")
    context = multiprocessing.get_context("spawn")
    stop, turn = threading.Event(), threading.Lock()

    def tell(line: str) -> None:
        with turn, contextlib.suppress(OSError):
            say(line)

    with ThreadPoolExecutor(workers, thread_name_prefix="lumion-bench") as pool:
        try:
            futures = [pool.submit(_in_process, job, context, stop, tell) for job in jobs]
            return gather(jobs, futures, stop.set, tell)
        except BaseException:
            stop.set()  # what the pool then waits for is that every bench is safe
            raise


def gather(jobs: Sequence[Job], futures: Sequence[Future[BenchOutcome]], stop: Callable[[], None], say: Say) -> Ended:
    """Wait for all outcomes; an interruption stops what runs, drops what does not, and waits for the benches.

    Args:
        jobs: The benches.
        futures: What will be their outcomes.
        stop: Tells workers to stop.
        say: Told of the interruption.
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
            say("stopping: waiting until every bench is safe")
    outcomes = [
        not_begun(job) if future.cancelled() else future.result() for job, future in zip(jobs, futures, strict=True)
    ]
    return Ended(tuple(outcomes), interruption)


def _in_process(job: Job, context: SpawnContext, stop: threading.Event, say: Say) -> BenchOutcome:
    """Calibrate one bench in a process of its own."""
    if stop.is_set():
        return not_begun(job)
    ours, theirs = context.Pipe()
    with ours:
        with theirs:
            process = context.Process(target=_work, args=(job, theirs), name=f"lumion-{job.name}")
            process.start()
        outcome = _attended(ours, stop, say)
    process.join(_END_S)
    process.kill()  # does nothing to one that has ended
    process.join()
    if outcome is None:
        text = "its process died; the controller's watchdog switches the heaters off"
        return BenchOutcome(job.name, "failed", exit_code=1, error=text)
    return outcome


def _attended(worker: Connection, stop: threading.Event, say: Say) -> BenchOutcome | None:
    """Pass on what a worker says until it has its outcome, and tell it to stop; ``None`` if it is gone."""
    told = False
    try:
        while True:
            if stop.is_set() and not told:
                worker.send("stop")
                told = True
            if worker.poll(_LOOK_EVERY_S):
                heard = worker.recv()
                if isinstance(heard, BenchOutcome):
                    return heard
                say(heard)
    except (EOFError, OSError):
        return None


# In the worker ----------------------------------------------------------------------------------------------------


def _work(job: Job, parent: Connection) -> None:
    """Calibrate a bench: Ctrl-C is the parent's affair, SIGTERM unwinds, and without its parent the worker stops."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    stop = threading.Event()
    threading.Thread(target=_listen, args=(parent, stop), name="lumion-parent", daemon=True).start()

    def tell(what: str | BenchOutcome) -> None:
        with contextlib.suppress(OSError):  # a worker whose parent is gone has nobody to tell
            parent.send(what)

    tell(calibrate_bench(job, stop.is_set, tell))


def _listen(parent: Connection, stop: threading.Event) -> None:
    """Stop when the parent says so, or is gone."""
    with contextlib.suppress(EOFError, OSError):
        parent.recv()
    stop.set()


def _terminate(_signal: int, _frame: object) -> None:
    raise SystemExit(_TERMINATED)
