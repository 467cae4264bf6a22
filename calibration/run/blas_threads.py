"""Limits linear algebra to one thread during a calibration.

With its small matrices, BLAS threads mostly wait for each other (docs/performance.md#run-time-of-a-calibration).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses one thread."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limits


def on_one_blas_thread(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function to run inside :func:`one_blas_thread`."""

    @wraps(function)
    def limited(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with one_blas_thread():
            return function(*args, **kwargs)

    return limited
