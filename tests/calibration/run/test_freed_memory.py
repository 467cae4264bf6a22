"""While a calibration runs, memory that arrays free serves the next ones; afterwards the system has it back."""

from __future__ import annotations

import ctypes
import multiprocessing
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calibration.run.freed_memory import keep_freed_memory

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library has no mallopt")
BYTES = 48_000_000
PAGE = resource.getpagesize()


def pages_cleared(times: int = 6) -> int:
    """Return how many pages the system had to clear for arrays made and dropped one after the other."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        np.ones(BYTES // 8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def arrays_are_made_of_what_others_have_freed() -> None:
    outside = pages_cleared()
    with keep_freed_memory():
        pages_cleared(1)
        assert pages_cleared() < 0.1 * outside


def memory_goes_back_after_the_last_run_and_not_before() -> None:
    with keep_freed_memory():
        with keep_freed_memory():
            pages_cleared(1)
        held = resident()
        assert pages_cleared() < 1000
    assert resident() < held - 0.8 * BYTES


def it_goes_back_after_a_failure() -> None:
    with pytest.raises(ValueError, match="cut short"), keep_freed_memory():
        raise ValueError("cut short")
    pages_cleared(1)
    assert pages_cleared() > 1000


@pytest.mark.parametrize(
    "holds",
    [
        arrays_are_made_of_what_others_have_freed,
        memory_goes_back_after_the_last_run_and_not_before,
        it_goes_back_after_a_failure,
    ],
)
def test_in_a_process_without_other_runs(holds: Callable[[], None]) -> None:
    # In this one another run may go on in a thread that nobody waits for, and the heap is that of all tests.
    process = multiprocessing.get_context("spawn").Process(target=holds)
    process.start()
    process.join()
    assert process.exitcode == 0
