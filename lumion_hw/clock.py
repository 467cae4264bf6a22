"""Time as a parameter: the wall clock, and a virtual clock on which an hour of settling takes no time.

Everything in the package that waits takes a :class:`Clock`. On an emulated bench in one process the clock is virtual
and the same seed gives the same run, instant for instant.
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
    """A periodic action that can be ended."""

    def cancel(self) -> None:
        """End the periodic action; calling it twice is harmless."""


class ClockEvent(Protocol):
    """Something that one job waits for until another one says that it has come about."""

    def set(self) -> None:
        """Let those that wait go on, and never wait again."""

    def wait(self) -> object:
        """Return when it is set; at once if it is."""


class Clock(Protocol):
    """Seconds since an arbitrary start, and ways to let them pass."""

    def now(self) -> float:
        """Return the time in seconds; it never runs backwards."""

    def sleep(self, duration_s: float) -> None:
        """Let this time pass. Raises ``ValueError`` when it is negative, infinite or no number."""

    def call_every(self, period_s: float, action: Callable[[], None]) -> Ticker:
        """Call ``action`` every ``period_s`` seconds until the returned ticker is cancelled."""

    def side_by_side(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Do several things at once, each in a thread of its own: the whole takes as long as the slowest.

        Devices on one wire are asked one after another by whoever holds the wire: give every wire one job. Jobs that
        share a device have to meet by :meth:`event`, never by a lock that one of them holds while time passes.

        Args:
            jobs: What to do; one alone is done in the caller's own thread.

        Returns:
            What each returned, in the order of the jobs.

        Raises:
            Exception: What was raised in one, the first in their order; those of others are in its notes. All jobs were
                done to their end.
        """

    def event(self) -> ClockEvent:
        """Return something for jobs that stand side by side to wait for."""

    def own_event(self) -> ClockEvent:
        """Return something for this thread alone to wait for, be it a job or one that the clock has not started."""


def outcome(job: Callable[[], T]) -> Future[T]:
    """Do a job now and return how it ended."""
    ended: Future[T] = Future()
    try:
        ended.set_result(job())
    except BaseException as error:  # noqa: BLE001 - raised again by answers()
        ended.set_exception(error)
    return ended


def answers(outcomes: Sequence[Future[T]]) -> list[T]:
    """Return what jobs returned, or raise the first error, with the others in its notes; interrupts come first."""
    errors = [error for each in outcomes if (error := each.exception()) is not None]
    errors.sort(key=lambda error: isinstance(error, Exception))
    for error in errors:
        for other in errors[1:]:
            error.add_note(f"At the same time: {other}")
        raise error
    return [each.result() for each in outcomes]


Deadline = NewType("Deadline", float)
"""An instant of a clock at which all of a transaction has to be over, in its seconds; :func:`deadline_after` makes it.

It is a type of its own, so that no duration passes for one: links and sessions hand it down through a chain of calls.
"""


def deadline_after(clock: Clock, timeout_s: float) -> Deadline:
    """Return the instant of ``clock`` that ends a wait of ``timeout_s`` from now; infinity waits for ever.

    Every wait that a user asks for is a duration, ``timeout_s``. Deadlines are for links and sessions.

    Raises:
        LimitError: Negative, or no number: no instant would ever be later.
    """
    if timeout_s >= 0.0:
        return Deadline(clock.now() + timeout_s)
    raise LimitError("time to wait", asked=timeout_s, limit=0.0, unit="s", hint="Give a duration from now.")


def _checked(duration_s: float) -> float:
    """Return a time to sleep. Infinity would stop a virtual clock for ever: nothing is later."""
    if not 0.0 <= duration_s < math.inf:
        raise ValueError(f"cannot sleep {duration_s} s")
    return duration_s


def _checked_period(period_s: float) -> float:
    if not 0.0 < period_s < math.inf:
        raise ValueError(f"period must be positive and finite, not {period_s}")
    return period_s


class _Timer:
    """One periodic action on a virtual clock."""

    def __init__(self, period_s: float, action: Callable[[], None]) -> None:
        self.period_s = period_s
        self.action = action
        self.alive = True

    def cancel(self) -> None:
        """End the periodic action."""
        self.alive = False


class _Runner:
    """A thread that shares a virtual clock with others: one runs at a time, until it waits.

    Attributes:
        turn: Released by the thread that hands over to this one. A bare lock: Ctrl-C in the middle of a semaphore or a
            condition, which are written in Python, leaves them broken.
        waits_for: What it waits for at present; the innermost where a periodic action waits inside another wait.
        leads: It waits for jobs of its own.
        error: Raised by its present or next wait.
    """

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.turn.acquire()
        self.waits_for: _Wait | None = None
        self.leads = False
        self.error: BaseException | None = None


class _Wait:
    """One wait of a runner, for an instant or for an event."""

    def __init__(self, runner: _Runner) -> None:
        self.runner = runner
        self.is_over = False
        self.is_for_time = False


class _VirtualEvent:
    """An event among the jobs on one virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._is_set = False
        self._waiting: list[_Wait] = []

    def set(self) -> None:
        """Let those that wait go on at this instant, in the order in which they came."""
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._clock.due_now(each)

    def wait(self) -> None:
        """Return when it is set."""
        if not self._is_set:
            self._clock.wait(self._waiting.append)


_NOBODY_LEFT = "all that runs side by side waits for events that nobody is left to set"
# At one instant, what happens by itself comes before what a host finds.
_TIMER, _WAIT = 0, 1


class VirtualClock:
    """A clock that moves only when told to; periodic actions run at their exact instants.

    Jobs side by side take turns, so that the same calls give the same run, instant for instant: a job runs until it
    waits, and hands over to what is due first; of those due at one instant, to the one that has waited longest. Threads
    that the clock has not started have no place on it.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = start_s
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, int, _Timer | _Wait]] = []
        self._n_waits = 0
        self.runners: list[_Runner] = []
        self._threads = threading.local()
        self._n_acting = 0
        self._put_off: list[tuple[float, int, int, _Timer | _Wait]] = []

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def sleep(self, duration_s: float) -> None:
        """Advance by this time, running whatever else falls due, in order."""
        end = self._now + _checked(duration_s)
        if self.runners or (self._agenda and self._agenda[0][0] <= end):
            self.wait(lambda wait: self._until(end, wait))
        else:
            self._now = end  # nothing else is due: nearly every wait

    def call_every(self, period_s: float, action: Callable[[], None]) -> Ticker:
        """Call ``action`` every ``period_s`` seconds of virtual time, from inside :meth:`sleep`."""
        timer = _Timer(_checked_period(period_s), action)
        self._put(self._now + period_s, _TIMER, timer)
        return timer

    def side_by_side(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Do several things at once; see :meth:`Clock.side_by_side`.

        Raises:
            RuntimeError: The jobs wait for events that nobody is left to set.
        """
        if len(jobs) < 2:
            return [job() for job in jobs]
        return answers(_SideBySide(self, jobs).outcomes())

    def event(self) -> ClockEvent:
        """Return something for jobs that stand side by side to wait for."""
        return _VirtualEvent(self)

    def own_event(self) -> ClockEvent:
        """Return something for this thread alone to wait for; see :meth:`Clock.own_event`."""
        # Threads that the clock has not started have no turn here that they could hand over.
        return _VirtualEvent(self) if self.me() in self.runners else threading.Event()

    def due_now(self, wait: _Wait) -> None:
        """Let a wait be over as soon as its turn comes."""
        self._put(self._now, _WAIT, wait)

    def wait(self, register: Callable[[_Wait], None]) -> None:
        """Wait for what ``register`` puts a wait down for, while others take their turns."""
        me = self.me()
        outer, me.waits_for = me.waits_for, _Wait(me)
        try:
            if me.error is None:
                register(me.waits_for)
                self.hand_over(me.waits_for)
        finally:
            me.waits_for = outer
        if me.error is not None:
            error, me.error = me.error, None
            raise error

    def be(self, runner: _Runner) -> None:
        """Make this thread that of a runner."""
        self._threads.runner = runner

    def me(self) -> _Runner:
        """Return the runner of this thread."""
        try:
            runner: _Runner = self._threads.runner
        except AttributeError:
            runner = self._threads.runner = _Runner()
        return runner

    def _until(self, end_s: float, wait: _Wait) -> None:
        wait.is_for_time = True
        self._put(end_s, _WAIT, wait)

    def _put(self, due_s: float, rank: int, what: _Timer | _Wait) -> None:
        self._n_waits += rank == _WAIT
        heapq.heappush(self._agenda, (due_s, rank, next(self._order), what))

    def hand_over(self, mine: _Wait | None) -> None:
        """Let happen what is due, until a wait of this thread is over; hand over for good if it has none."""
        while mine is None or not mine.is_over:
            if not self._n_waits:
                self._nobody_left()
            others_stand_still = self._n_acting and mine is not None and mine.is_for_time
            if not others_stand_still:
                self._resume_others()
            entry = heapq.heappop(self._agenda)
            due, _, _, what = entry
            if others_stand_still and isinstance(what, _Wait) and what.runner is not self.me():
                self._put_off.append(entry)
                continue
            self._now = max(self._now, due)
            if isinstance(what, _Timer):
                if what.alive:
                    self._put(due + what.period_s, _TIMER, what)
                    self._act(what)
                continue
            self._n_waits -= 1
            what.is_over = True
            # Inside this wait a periodic action may wait for something itself: that has to be over first.
            if what is mine or what.runner.waits_for is not what:
                continue
            what.runner.turn.release()
            if mine is None:
                return
            mine.runner.turn.acquire()

    def _act(self, timer: _Timer) -> None:
        """Do a periodic action in the middle of somebody's wait; while it waits for time, all others stand still.

        It may hold what others want, such as a session: who ran then would stop for good, with the turn in hand.
        """
        self._n_acting += 1
        try:
            timer.action()
        finally:
            self._n_acting -= 1
            if not self._n_acting:
                self._resume_others()

    def _resume_others(self) -> None:
        for entry in self._put_off:
            heapq.heappush(self._agenda, entry)
        self._put_off.clear()

    def _nobody_left(self) -> None:
        """Let all jobs that wait for an event fail: nobody runs who could set it."""
        for runner in self.runners:
            if runner.waits_for is not None and not runner.leads:
                runner.error = RuntimeError(_NOBODY_LEFT)
                self.due_now(runner.waits_for)
        if not self._n_waits:
            raise RuntimeError(_NOBODY_LEFT)


_LOOK_FOR_SIGNALS_S = 0.1


class _SideBySide(Generic[T]):
    """Jobs side by side on a virtual clock.

    Args:
        clock: The clock.
        jobs: Two or more.
    """

    def __init__(self, clock: VirtualClock, jobs: Sequence[Callable[[], T]]) -> None:
        self._clock, self._jobs = clock, jobs
        self._caller = clock.me()
        self._caller_is_job = self._caller in clock.runners  # of others, which take their turns meanwhile
        self._runners = [_Runner() for _ in jobs]
        self._outcomes: dict[int, Future[T]] = {}
        self._all_done = clock.event()
        self._begun, self._ended = threading.Lock(), threading.Lock()
        self._ended.acquire()

    def outcomes(self) -> list[Future[T]]:
        """Do all jobs, and return how they ended, in their order."""
        if self._caller_is_job:
            self._begin()
            self._caller.leads = True
            try:
                self._all_done.wait()
            finally:
                self._caller.leads = False
        else:
            self._begin_and_wait()
        return [self._outcomes[number] for number in range(len(self._jobs))]

    def _begin_and_wait(self) -> None:
        # In the main thread Ctrl-C can come between any two steps. So what is done here may be done twice: a thread
        # that begins what has begun ends at once, and the lock is nobody's afterwards, whether it was taken or not.
        interrupt: KeyboardInterrupt | None = None
        is_launched = False
        while True:
            try:
                while len(self._outcomes) < len(self._jobs):
                    if not is_launched:
                        threading.Thread(target=self._begin, name="lumion-job", daemon=True).start()
                        is_launched = True
                    # A signal that comes just before a thread begins to wait is seen when the wait is over (CPython).
                    self._ended.acquire(timeout=_LOOK_FOR_SIGNALS_S)
                break
            except KeyboardInterrupt as error:
                interrupt = error
                for runner in [*self._runners, *self._clock.runners]:
                    if not runner.leads:
                        runner.error = KeyboardInterrupt()
        if interrupt is not None:
            raise interrupt

    def _begin(self) -> None:
        if not self._begun.acquire(blocking=False):
            return
        self._clock.runners += self._runners
        for number, runner in enumerate(self._runners):
            if number or self._caller_is_job:
                runner.waits_for = _Wait(runner)
                self._clock.due_now(runner.waits_for)
                threading.Thread(target=self._do, args=(number,), name="lumion-job", daemon=True).start()
        if not self._caller_is_job:
            self._do(0)  # with the caller's turn

    def _do(self, number: int) -> None:
        """Do one job, in a thread of its own, and hand over for good."""
        runner = self._runners[number]
        self._clock.be(runner)
        if runner.waits_for is not None:
            runner.turn.acquire()
            runner.waits_for = None
        how = outcome(self._jobs[number])
        self._clock.runners.remove(runner)
        self._outcomes[number] = how
        if len(self._outcomes) == len(self._jobs):
            if not self._caller_is_job:
                self._ended.release()
                return
            self._all_done.set()
        self._clock.hand_over(None)


def boot_id() -> str:
    """Return what is the same for all processes that share a monotonic clock; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class _ThreadTicker:
    """One periodic action on the wall clock, in a daemon thread of its own."""

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
        """End the thread; waits for a running action unless called from it."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5.0)


class SystemClock:
    """The monotonic wall clock."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def sleep(self, duration_s: float) -> None:
        """Sleep on the wall clock."""
        time.sleep(_checked(duration_s))

    def call_every(self, period_s: float, action: Callable[[], None]) -> Ticker:
        """Call ``action`` from a background thread every ``period_s`` seconds."""
        return _ThreadTicker(_checked_period(period_s), action)

    def side_by_side(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Do several things at once; see :meth:`Clock.side_by_side`.

        The first job is done in the caller's own thread. So an interrupt of the main thread reaches that job, which can
        tell the others to end; then they are waited for.
        """
        if len(jobs) < 2:
            return [job() for job in jobs]
        with ThreadPoolExecutor(len(jobs) - 1, thread_name_prefix="lumion-job") as pool:
            futures = [pool.submit(job) for job in jobs[1:]]
            first = outcome(jobs[0])
            wait(futures)
        return answers([first, *futures])

    def event(self) -> ClockEvent:
        """Return an event of the threading library."""
        return threading.Event()

    def own_event(self) -> ClockEvent:
        """Return an event of the threading library."""
        return threading.Event()
