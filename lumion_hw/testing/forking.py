"""Runs an action in a child process created by ``fork``."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable

CHILD_S = 20.0
"""Time after which a child process counts as hanging, in s."""


def run_in_child(action: Callable[[], object]) -> str:
    """Run an action in a forked child process and return its result, or its error.

    Returns:
        The ``repr`` of the result, the class name of the error, or ``hangs``.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on: fork in a process with threads
        child = os.fork()
    if not child:
        try:
            outcome = repr(action())
        except BaseException as error:  # noqa: BLE001 - reported to the parent
            outcome = type(error).__name__
        os.write(writing, outcome.encode())
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
