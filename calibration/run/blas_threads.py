"""Limits linear algebra to one thread during a calibration.

With its small matrices, BLAS threads mostly wait for each other (docs/performance.md#run-time-of-a-calibration).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Use one BLAS thread in a ``with`` block or, as ``@one_blas_thread()``, in a function."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
