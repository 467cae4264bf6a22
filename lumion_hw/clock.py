"""Clocks: the wall clock, and a virtual clock on which waiting takes no real time.

An emulated bench has a virtual clock, so that a run with the same seed repeats exactly.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Generic, NewType, Protocol, TypeVar

from lumion_hw.errors import LimitError

T = TypeVar("T")


class Ticker(Protocol):
    """A periodic action that can be cancelled."""

    def cancel(self) -> None:
        """Stop the periodic action; a second call has no effect."""


class ClockEvent(Protocol):
    """An event that is set once; jobs can wait for it."""

    def set(self) -> None:
        """Set the event, so that waiting jobs continue."""

    def wait(self) -> object:
        """Wait until the event is set."""


class Clock(Protocol):
    """A source of time in seconds; can wait and run jobs in parallel."""

    @property
    def is_virtual(self) -> bool:
        """Whether time passes only while a job sleeps."""

    def now(self) -> float:
        """Return the time in seconds since an arbitrary start; it never decreases."""

    def sleep(self, duration_s: float) -> None:
        """Wait for a duration. Raises ``ValueError`` if it is negative, infinite or NaN."""

    def call_every(self, period_s: float, action: Callable[[], None]) -> Ticker:
        """Call ``action`` every ``period_s`` seconds until the returned object is cancelled."""

    def run_parallel(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Run jobs in parallel threads and wait for all.

        Use one job for all devices on the same wire. Jobs that share a device synchronize with :meth:`event`, never
        with a lock that is held while time passes.

        Args:
            jobs: Functions without arguments; a single job runs in the calling thread.

        Returns:
            The results, in the order of the jobs.

        Raises:
            Exception: The error of the first failed job in the order of ``jobs``, with the other errors in its notes.
                Every job has ended.
        """

    def event(self) -> ClockEvent:
        """Return a new event on which jobs of :meth:`run_parallel` can wait."""

    def thread_event(self) -> ClockEvent:
        """Return a new event for which only the calling thread waits; any thread may call this."""


def run_to_future(job: Callable[[], T]) -> Future[T]:
    """Run a job in this thread and return a completed future with its result or exception."""
    future: Future[T] = Future()
    try:
        future.set_result(job())
    except BaseException as error:  # noqa: BLE001 - raised again by results_of()
        future.set_exception(error)
    return future


def results_of(futures: Sequence[Future[T]]) -> list[T]:
    """Return the results of jobs, or raise the first error (Ctrl-C first) with the others in its notes."""
    errors = [error for future in futures if (error := future.exception()) is not None]
    errors.sort(key=lambda error: isinstance(error, Exception))
    for error in errors:
        for other in errors[1:]:
            error.add_note(f"At the same time: {other}")
        raise error
    return [future.result() for future in futures]


Deadline = NewType("Deadline", float)
"""Time on a clock, in seconds, by which a transaction must be complete; returned by :func:`deadline_after`.

A separate type, so that type checkers reject a duration in its place.
"""


def deadline_after(clock: Clock, timeout_s: float) -> Deadline:
    """Return the deadline ``timeout_s`` after the present time; infinity means no deadline.

    Raises:
        LimitError: The duration is negative or NaN.
    """
    if timeout_s >= 0.0:
        return Deadline(clock.now() + timeout_s)
    raise LimitError("time-out is negative or NaN", requested=timeout_s, limit=0.0, unit="s", hint="Give a duration.")


def _checked(duration_s: float) -> float:
    """Return the duration after checking that it is valid for a sleep."""
    if not 0.0 <= duration_s < math.inf:
        raise ValueError(f"the sleep duration must be finite and not negative, not {duration_s} s")
    return duration_s


def _checked_period(period_s: float) -> float:
    if not 0.0 < period_s < math.inf:
        raise ValueError(f"the period must be positive and finite, not {period_s} s")
    return period_s


class _Timer:
    """Periodic action on a virtual clock."""

    def __init__(self, period_s: float, action: Callable[[], None]) -> None:
        self.period_s = period_s
        self.action = action
        self.is_active = True

    def cancel(self) -> None:
        """Stop the periodic action; it does not run again."""
        self.is_active = False


class _Runner:
    """A thread on a virtual clock. One thread at a time runs, until it waits.

    Attributes:
        turn: Lock that the previous thread releases to let this thread run.
        waits_for: The current wait; the innermost if there are several.
        waits_for_own_jobs: Whether this thread waits for jobs that it started.
        error: Exception that the current or next wait raises.
    """

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.turn.acquire()
        self.waits_for: _Wait | None = None
        self.waits_for_own_jobs = False
        self.error: BaseException | None = None


class _Wait:
    """One wait of a thread on a virtual clock."""

    def __init__(self, runner: _Runner) -> None:
        self.runner = runner
        self.is_over = False
        self.is_for_time = False


class _VirtualEvent:
    """Event on a virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._is_set = False
        self._waiting: list[_Wait] = []

    def set(self) -> None:
        """Set the event; the waiting jobs continue at this instant, the longest waiter first."""
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            self._clock.due_now(entry)

    def wait(self) -> None:
        """Wait until the event is set; return immediately if it is set already."""
        if not self._is_set:
            self._clock.wait(self._waiting.append)


_DEADLOCK = "deadlock: all parallel jobs wait for events, and no job is left to set them"
# At the same instant timers run before waits end, so that a host sees the emulated hardware after its update.
_TIMER, _WAIT = 0, 1


class VirtualClock:
    """A clock whose time advances only while jobs sleep; periodic actions run at their exact times.

    Parallel jobs take turns: a job runs until it waits, then the job whose wait ends first continues. Threads not
    started by this clock must not wait on it.
    """

    is_virtual = True

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = start_s
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, int, _Timer | _Wait]] = []
        self._n_waits = 0
        self.runners: list[_Runner] = []
        self._threads = threading.local()
        self._n_acting = 0
        self._postponed: list[tuple[float, int, int, _Timer | _Wait]] = []

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def sleep(self, duration_s: float) -> None:
        """Advance the time; timers and jobs that are due before the end run in order."""
        end = self._now + _checked(duration_s)
        if self.runners or (self._agenda and self._agenda[0][0] <= end):
            self.wait(lambda wait: self._until(end, wait))
        else:
            self._now = end  # the usual case: nothing else is due

    def call_every(self, period_s: float, action: Callable[[], None]) -> Ticker:
        """Call ``action`` every ``period_s`` seconds of virtual time, from inside :meth:`sleep`."""
        timer = _Timer(_checked_period(period_s), action)
        self._put(self._now + period_s, _TIMER, timer)
        return timer

    def run_parallel(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Run jobs in parallel; see :meth:`Clock.run_parallel`.

        Raises:
            RuntimeError: Deadlock: all jobs wait for events that no running job can set.
        """
        if len(jobs) < 2:
            return [job() for job in jobs]
        return results_of(_ParallelRun(self, jobs).outcomes())

    def event(self) -> ClockEvent:
        """Return a new event for which jobs of :meth:`run_parallel` can wait."""
        return _VirtualEvent(self)

    def thread_event(self) -> ClockEvent:
        """Return a new event for which only the calling thread waits; see :meth:`Clock.thread_event`."""
        # Threads not started by this clock have no turn to hand over.
        return _VirtualEvent(self) if self.current_runner() in self.runners else threading.Event()

    def due_now(self, wait: _Wait) -> None:
        """End a wait at the current instant."""
        self._put(self._now, _WAIT, wait)

    def wait(self, register: Callable[[_Wait], None]) -> None:
        """Wait while other threads run; ``register`` schedules the end of the given wait."""
        own_runner = self.current_runner()
        outer, own_runner.waits_for = own_runner.waits_for, _Wait(own_runner)
        try:
            if own_runner.error is None:
                register(own_runner.waits_for)
                self.hand_over(own_runner.waits_for)
        finally:
            own_runner.waits_for = outer
        if own_runner.error is not None:
            error, own_runner.error = own_runner.error, None
            raise error

    def set_current_runner(self, runner: _Runner) -> None:
        """Declare that the calling thread is ``runner``."""
        self._threads.runner = runner

    def current_runner(self) -> _Runner:
        """Return the runner of the calling thread."""
        try:
            runner: _Runner = self._threads.runner
        except AttributeError:
            runner = self._threads.runner = _Runner()
        return runner

    def _until(self, end_s: float, wait: _Wait) -> None:
        wait.is_for_time = True
        self._put(end_s, _WAIT, wait)

    def _put(self, due_s: float, rank: int, item: _Timer | _Wait) -> None:
        self._n_waits += rank == _WAIT
        heapq.heappush(self._agenda, (due_s, rank, next(self._order), item))

    def hand_over(self, own_wait: _Wait | None) -> None:
        """Run timers and other threads until the wait ``own_wait`` is over; ``None`` ends this thread."""
        while own_wait is None or not own_wait.is_over:
            if not self._n_waits:
                self._report_deadlock()
            others_are_paused = self._n_acting and own_wait is not None and own_wait.is_for_time
            if not others_are_paused:
                self._resume_others()
            entry = heapq.heappop(self._agenda)
            due, _, _, item = entry
            if others_are_paused and isinstance(item, _Wait) and item.runner is not self.current_runner():
                self._postponed.append(entry)
                continue
            self._now = max(self._now, due)
            if isinstance(item, _Timer):
                if item.is_active:
                    self._put(due + item.period_s, _TIMER, item)
                    self._run_timer(item)
                continue
            self._n_waits -= 1
            item.is_over = True
            # A periodic action inside this wait may itself be waiting; its wait must end first.
            if item is own_wait or item.runner.waits_for is not item:
                continue
            item.runner.turn.release()
            if own_wait is None:
                return
            own_wait.runner.turn.acquire()

    def _run_timer(self, timer: _Timer) -> None:
        """Run a periodic action inside the wait of a thread; all other threads pause until it ends."""
        self._n_acting += 1
        try:
            timer.action()
        finally:
            self._n_acting -= 1
            if not self._n_acting:
                self._resume_others()

    def _resume_others(self) -> None:
        for entry in self._postponed:
            heapq.heappush(self._agenda, entry)
        self._postponed.clear()

    def _report_deadlock(self) -> None:
        """Make all waiting jobs fail, because no running job can set their events."""
        for runner in self.runners:
            if runner.waits_for is not None and not runner.waits_for_own_jobs:
                runner.error = RuntimeError(_DEADLOCK)
                self.due_now(runner.waits_for)
        if not self._n_waits:
            raise RuntimeError(_DEADLOCK)


_SIGNAL_CHECK_PERIOD_S = 0.1


class _ParallelRun(Generic[T]):
    """One parallel run of two or more jobs on a virtual clock."""

    def __init__(self, clock: VirtualClock, jobs: Sequence[Callable[[], T]]) -> None:
        self._clock, self._jobs = clock, jobs
        self._caller = clock.current_runner()
        self._caller_is_job = self._caller in clock.runners  # then other jobs run meanwhile
        self._runners = [_Runner() for _ in jobs]
        self._outcomes: dict[int, Future[T]] = {}
        self._all_finished = clock.event()
        self._started_lock, self._ended_lock = threading.Lock(), threading.Lock()
        self._ended_lock.acquire()

    def outcomes(self) -> list[Future[T]]:
        """Run all jobs and return their outcomes, in the order of the jobs."""
        if self._caller_is_job:
            self._start()
            self._caller.waits_for_own_jobs = True
            try:
                self._all_finished.wait()
            finally:
                self._caller.waits_for_own_jobs = False
        else:
            self._start_and_wait()
        return [self._outcomes[number] for number in range(len(self._jobs))]

    def _start_and_wait(self) -> None:
        # In the main thread Ctrl-C can arrive between any two steps, so every step here can be repeated: a second
        # starter thread ends at once, and nothing depends on whether the lock was acquired.
        interrupt: KeyboardInterrupt | None = None
        is_launched = False
        while True:
            try:
                while len(self._outcomes) < len(self._jobs):
                    if not is_launched:
                        threading.Thread(target=self._start, name="lumion-job", daemon=True).start()
                        is_launched = True
                    # CPython handles a signal that arrives just before a wait only when this wait ends.
                    self._ended_lock.acquire(timeout=_SIGNAL_CHECK_PERIOD_S)
                break
            except KeyboardInterrupt as error:
                interrupt = error
                for runner in [*self._runners, *self._clock.runners]:
                    if not runner.waits_for_own_jobs:
                        runner.error = KeyboardInterrupt()
        if interrupt is not None:
            raise interrupt

    def _start(self) -> None:
        if not self._started_lock.acquire(blocking=False):
            return
        self._clock.runners += self._runners
        for number, runner in enumerate(self._runners):
            if number or self._caller_is_job:
                runner.waits_for = _Wait(runner)
                self._clock.due_now(runner.waits_for)
                threading.Thread(target=self._run_job, args=(number,), name="lumion-job", daemon=True).start()
        if not self._caller_is_job:
            self._run_job(0)  # in the caller's turn

    def _run_job(self, number: int) -> None:
        runner = self._runners[number]
        self._clock.set_current_runner(runner)
        if runner.waits_for is not None:
            runner.turn.acquire()
            runner.waits_for = None
        future = run_to_future(self._jobs[number])
        self._clock.runners.remove(runner)
        self._outcomes[number] = future
        if len(self._outcomes) == len(self._jobs):
            if not self._caller_is_job:
                self._ended_lock.release()
                return
            self._all_finished.set()
        self._clock.hand_over(None)


def boot_id() -> str:
    """Return an identifier of the present boot of this computer, or empty text if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class _ThreadTicker:
    """Periodic action in a background thread."""

    def __init__(self, period_s: float, action: Callable[[], None]) -> None:
        self._stop = threading.Event()
        self._period_s = period_s
        self._action = action
        self._thread = threading.Thread(target=self._run, name="lumion-ticker", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            self._action()

    def cancel(self) -> None:
        """Stop the action, and wait up to 5 s for a running call to end."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5.0)


class SystemClock:
    """Real time, from ``time.monotonic``."""

    is_virtual = False

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def sleep(self, duration_s: float) -> None:
        """Sleep on the wall clock."""
        time.sleep(_checked(duration_s))

    def call_every(self, period_s: float, action: Callable[[], None]) -> Ticker:
        """Call ``action`` from a background thread every ``period_s`` seconds."""
        return _ThreadTicker(_checked_period(period_s), action)

    def run_parallel(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Run jobs in parallel; see :meth:`Clock.run_parallel`."""
        if len(jobs) < 2:
            return [job() for job in jobs]
        with ThreadPoolExecutor(len(jobs) - 1, thread_name_prefix="lumion-job") as pool:
            futures = [pool.submit(job) for job in jobs[1:]]
            first = run_to_future(jobs[0])
            wait(futures)
        return results_of([first, *futures])

    def event(self) -> ClockEvent:
        """Return an event of the threading library."""
        return threading.Event()

    def thread_event(self) -> ClockEvent:
        """Return an event of the threading library."""
        return threading.Event()
