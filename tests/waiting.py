"""Waiting for what happens in another thread or process: as short as possible, and never for ever."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from lumion_hw.clock import SystemClock


class PatientClock(SystemClock):
    """The wall clock of a host whose seconds are five: a busy machine takes its time to answer.

    What the host waits for may take five times as long. Its sleeps and its signs of life are those of every host.
    """

    def now(self) -> float:
        return super().now() / 5.0


Bound = Callable[[subprocess.Popen[str]], None]
"""Kills a process that a test has waited for too long."""
PATIENCE_S = 300.0
"""Longer than any process of a test takes to say its next word, on a busy machine too."""
_TRIES = 20


def until(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Return as soon as a condition is true; fail if it is not in time."""
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, f"not so after {patience_s:g} s"
        time.sleep(0.001)


def promptly(take: Callable[[], object], within_s: float, at_least_s: float = 0.0) -> None:
    """Fail unless something, done again and again, is once done in time; it never may be done too early.

    A busy machine makes everything late, but not every time; what is too slow is late every time.
    """
    took_s: list[float] = []
    while not took_s or min(took_s) >= within_s:
        assert len(took_s) < _TRIES, f"it took {min(took_s):.3f} s at best, not {within_s:g} s"
        start_s = time.monotonic()
        take()
        took_s.append(time.monotonic() - start_s)
        assert took_s[-1] >= at_least_s, f"it took {took_s[-1]:.3f} s, not {at_least_s:g} s"
