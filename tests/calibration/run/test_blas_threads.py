"""A calibration has one BLAS thread, whatever the machine has, and leaves the others as they were."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from calibration.run.blas_threads import one_blas_thread
from calibration.run.procedure import Calibration
from calibration.run.verification import verify


def blas_threads() -> list[int]:
    np.eye(2) @ np.eye(2)
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_the_blas_works_on_one_thread_inside_and_as_before_outside() -> None:
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert blas_threads() == before


def test_threads_come_back_after_a_failure() -> None:
    @one_blas_thread()
    def fail() -> None:
        raise ValueError(blas_threads())

    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        with pytest.raises(ValueError, match=r"\[1"):
            fail()
        assert blas_threads() == before


@pytest.mark.parametrize("entry", [Calibration.run, verify])
def test_every_way_into_a_calibration_is_limited(entry: object) -> None:
    assert hasattr(entry, "__wrapped__")
