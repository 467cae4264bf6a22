"""Something done in a child made by ``fork``, and what became of it."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable

CHILD_S = 20.0
"""Time after which a child counts as hanging."""


def in_child(action: Callable[[], object]) -> str:
    """Run an action in a child; return the name of what it raised, else its result in words, or ``hangs``.

    The child ends at once, without unwinding the test it was made in.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on: fork in a process with threads
        child = os.fork()
    if not child:
        try:
            said = repr(action())
        except BaseException as error:  # noqa: BLE001 - told to the parent
            said = type(error).__name__
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    end_s = time.monotonic() + CHILD_S
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > end_s:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reading)
            return "hangs"
        time.sleep(1e-3)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode()
