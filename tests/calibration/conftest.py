"""Calibrations shared by the tests: one that was recorded, and what is read only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from calibration.measure.bench_probe import BenchProbe
from calibration.record.raw_data import load_raw
from calibration.report.hidden_truth import compare
from lumion_hw.bench.bench import Bench
from lumion_hw.storage import load_record
from tests.calibration.bench_run import SMALL, Calibrated
from tests.recorded_calibration import RECORD, SEED


@pytest.fixture(scope="session")
def recorded() -> Iterator[Calibrated]:
    """The recorded calibration beside the bench it was made on; shared, so a test changes nothing of it."""
    record = load_record(RECORD)
    assert record.raw is not None
    with Bench.emulate(SMALL, seed=SEED) as bench:
        yield Calibrated(bench, BenchProbe(bench), record, compare(bench, record), SEED, load_raw(RECORD, record.raw))
