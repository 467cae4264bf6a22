"""A watch over a host that has stopped calling, for controllers without a watchdog of their own.

It is a thread of this process and ends with it: it helps against a script that hangs, not against one that is killed.
"""

from __future__ import annotations

from collections.abc import Callable

from lumion_hw.clock import Clock, Ticker

_LOOKS_PER_PERIOD = 4


class IdleWatch:
    """Calls an action when nothing was used for a while, and again for every look after that.

    Args:
        clock: The clock.
        idle_s: How long is too long; ``None`` watches nothing.
        action: Called with the idle time in seconds, from the clock's ticker.
    """

    def __init__(self, clock: Clock, idle_s: float | None, action: Callable[[float], None]) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._action = action
        self._used_s = clock.now()
        self._ticker: Ticker | None = None

    def used(self) -> None:
        """Begin the idle time anew."""
        self._used_s = self._clock.now()

    def start(self) -> None:
        """Begin to watch, unless it is being done already."""
        self.used()
        if self._ticker is None and self._idle_s is not None:
            self._ticker = self._clock.call_every(self._idle_s / _LOOKS_PER_PERIOD, self._look)

    def stop(self) -> None:
        """End watching; idempotent."""
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            ticker.cancel()

    def _look(self) -> None:
        idle_s = self._clock.now() - self._used_s
        if self._idle_s is not None and idle_s >= self._idle_s:
            self._action(idle_s)
