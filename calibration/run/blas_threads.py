"""Limit of one thread for linear algebra during a calibration.

A calibration uses many small matrices. BLAS threads wait for each other longer than they work, by an order of
magnitude on a busy machine (measured: docs/performance.md#blas-threads).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which the BLAS library uses one thread; afterwards the old setting is restored."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limits


def on_one_blas_thread(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function so that it runs inside :func:`one_blas_thread`."""

    @wraps(function)
    def limited(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with one_blas_thread():
            return function(*args, **kwargs)

    return limited
