"""Calibrations shared by the tests: each takes seconds, so each is made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_run import SMALL, Calibrated, calibrated_bench

from lumion_hw.bench.bench import Bench


@pytest.fixture(scope="session")
def small_path() -> Path:
    """The bench file of the small bench: 15 PUCs, 16 ports, three servers."""
    return SMALL


@pytest.fixture(scope="session", params=[1, 2])
def small_calibrated(request: pytest.FixtureRequest) -> Iterator[Calibrated]:
    """The small bench of each seed, calibrated; shared, so a test leaves it as it found it."""
    with Bench.emulate(SMALL, seed=request.param) as bench:
        yield calibrated_bench(bench, request.param)
