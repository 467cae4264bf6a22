"""One thread for linear algebra while a calibration runs.

Its matrices are small and many: threads of a BLAS wait for each other longer than they work, and on a machine that does
something else besides, by an order of magnitude (measured: docs/performance.md#blas-threads).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which the BLAS of this process works on one thread; afterwards it is as before."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limits


def on_one_blas_thread(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a function run inside :func:`one_blas_thread`."""

    @wraps(function)
    def limited(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with one_blas_thread():
            return function(*args, **kwargs)

    return limited
