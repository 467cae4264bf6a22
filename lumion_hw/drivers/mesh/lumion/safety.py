"""Ways out of a process on which heaters are brought to their safe state: signals, and the end of the interpreter.

No signal handler is installed by importing or opening a driver. SIGINT already raises ``KeyboardInterrupt``; SIGTERM by
itself ends a process without running any ``finally``, and then only the controller's watchdog is left.
"""

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

# On a bad link zeros and the question what became of them may wait up to 1.5 s each,
# the emergency stop another second; an impatient second Ctrl-C must not cut that short.
_UNDISTURBED_S = 5.0
_TERMINATED = 143  # 128 + SIGTERM, as a shell reports it


_opened: weakref.WeakSet[Driver] = weakref.WeakSet()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_opened.clear)  # a child has opened none of them


def close_at_exit(driver: Driver) -> None:
    """Close a driver when the interpreter ends, if nobody did before and it is still in use."""
    if not _opened:
        # Functions run in the reverse order of registration: registered anew,
        # it runs before what was registered meanwhile and may be needed by it.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _opened.add(driver)


def _close_all() -> None:
    for driver in tuple(_opened):
        driver.close()


@contextlib.contextmanager
def safe_on_signals() -> Iterator[None]:
    """Let SIGTERM raise ``SystemExit(143)`` and SIGINT ``KeyboardInterrupt`` while the block runs.

    Put it around the ``with`` of the drivers. Further signals within 5 s of the first are ignored: heaters are brought
    to their safe state without being interrupted at it. Outside of the main thread, where Python runs no signal
    handlers, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    quiet_until_s = -math.inf

    def handler(error: Callable[[], BaseException]) -> Callable[[int, FrameType | None], None]:
        def unwind(number: int, frame: FrameType | None) -> None:
            nonlocal quiet_until_s
            del number, frame
            now = time.monotonic()
            if now < quiet_until_s:
                return
            quiet_until_s = now + _UNDISTURBED_S
            raise error()

        return unwind

    signal.signal(signal.SIGTERM, handler(lambda: SystemExit(_TERMINATED)))
    signal.signal(signal.SIGINT, handler(KeyboardInterrupt))
    try:
        yield
    finally:
        for number, action in previous.items():
            signal.signal(number, signal.SIG_DFL if action is None else action)
