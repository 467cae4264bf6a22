"""Waiting for what happens in another thread or process: as short as possible, and never for ever."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

Bound = Callable[[subprocess.Popen[str]], None]
"""Kills a process that a test has waited for too long."""
PATIENCE_S = 120.0
"""Longer than any process of a test takes to say its next word, on a busy machine too."""


def until(condition: Callable[[], object], patience_s: float = 20.0) -> None:
    """Return as soon as a condition is true; fail if it is not in time."""
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, f"not so after {patience_s:g} s"
        time.sleep(0.001)
