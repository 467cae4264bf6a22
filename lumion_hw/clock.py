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
from collections.abc import Callable
from typing import Protocol

from lumion_hw.errors import LimitError


class Ticker(Protocol):
    """A periodic action that can be ended."""

    def cancel(self) -> None:
        """End the periodic action; calling it twice is harmless."""


class Clock(Protocol):
    """Seconds since an arbitrary start, and ways to let them pass."""

    def now(self) -> float:
        """Return the time in seconds; it never runs backwards."""

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass. Raises ``ValueError`` when they are negative, infinite or no number."""

    def call_every(self, period_s: float, action: Callable[[], None]) -> Ticker:
        """Call ``action`` every ``period_s`` seconds until the returned ticker is cancelled."""


def deadline_after(clock: Clock, timeout_s: float) -> float:
    """Return the instant of ``clock`` that ends a wait of ``timeout_s`` from now; infinity waits for ever.

    Every wait that a user asks for is a duration, ``timeout_s``. Instants, ``deadline``, are for links and sessions.

    Raises:
        LimitError: Negative, or no number: no instant would ever be later.
    """
    if timeout_s >= 0.0:
        return clock.now() + timeout_s
    raise LimitError("time to wait", asked=timeout_s, limit=0.0, unit="s", hint="Give a duration from now.")


def _checked(seconds: float) -> float:
    """Return a time to sleep. Infinity would stop a virtual clock for ever: nothing is later."""
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"cannot sleep {seconds} s")
    return seconds


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


class VirtualClock:
    """A clock that moves only when told to; periodic actions run at their exact instants.

    Single-threaded by design: determinism is its purpose.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = start_s
        self._order = itertools.count()
        self._timers: list[tuple[float, int, _Timer]] = []

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Advance by ``seconds``, running the periodic actions that fall due, in order."""
        end = self._now + _checked(seconds)
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            if not timer.alive:
                continue
            self._now = max(self._now, due)
            heapq.heappush(self._timers, (due + timer.period_s, next(self._order), timer))
            timer.action()
        self._now = max(self._now, end)

    def call_every(self, period_s: float, action: Callable[[], None]) -> Ticker:
        """Call ``action`` every ``period_s`` seconds of virtual time, from inside :meth:`sleep`."""
        timer = _Timer(_checked_period(period_s), action)
        heapq.heappush(self._timers, (self._now + period_s, next(self._order), timer))
        return timer


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

    def sleep(self, seconds: float) -> None:
        """Sleep on the wall clock."""
        time.sleep(_checked(seconds))

    def call_every(self, period_s: float, action: Callable[[], None]) -> Ticker:
        """Call ``action`` from a background thread every ``period_s`` seconds."""
        return _ThreadTicker(_checked_period(period_s), action)
