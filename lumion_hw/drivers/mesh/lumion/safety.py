"""Switches heaters off when the process ends by a signal or the interpreter ends."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType

from lumion_hw.drivers.life_cycle import Driver

# On a bad link, writing zeros and checking them may take 1.5 s each, and the emergency stop another second. A second
# Ctrl-C must not interrupt that.
_IGNORE_SIGNALS_S = 5.0
_EXIT_STATUS = 143  # 128 + SIGTERM, as shells report it


_opened: weakref.WeakSet[Driver] = weakref.WeakSet()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_opened.clear)  # these drivers belong to the parent process


def close_at_exit(driver: Driver) -> None:
    """Close a driver when the interpreter ends."""
    if not _opened:
        # Functions run in reverse order of registration. Registering again lets this one run before functions that
        # were registered since, and that may close what a driver needs.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _opened.add(driver)


def _close_all() -> None:
    for driver in tuple(_opened):
        driver.close()


@contextlib.contextmanager
def safe_on_signals() -> Iterator[None]:
    """Make SIGTERM raise ``SystemExit(143)`` and SIGINT raise ``KeyboardInterrupt`` in a ``with`` block.

    Put this block around the ``with`` block of the drivers, so that they are closed. Further signals within 5 s are
    ignored. Has no effect outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    ignore_until_s = -math.inf

    def handler(error: Callable[[], BaseException]) -> Callable[[int, FrameType | None], None]:
        """Return a signal handler that raises an error, and ignores signals that follow within a short time."""

        def raise_error(number: int, frame: FrameType | None) -> None:
            nonlocal ignore_until_s
            del number, frame
            now_s = time.monotonic()
            if now_s < ignore_until_s:
                return
            ignore_until_s = now_s + _IGNORE_SIGNALS_S
            raise error()

        return raise_error

    signal.signal(signal.SIGTERM, handler(lambda: SystemExit(_EXIT_STATUS)))
    signal.signal(signal.SIGINT, handler(KeyboardInterrupt))
    try:
        yield
    finally:
        for number, action in previous.items():
            signal.signal(number, signal.SIG_DFL if action is None else action)
