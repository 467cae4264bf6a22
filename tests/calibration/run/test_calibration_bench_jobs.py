"""The whole procedure on many benches, small and large: minutes, so run by ``make campaign``."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.bench.bench import Bench
from tests.calibration.bench_run import SMALL, calibrated_bench, within_tolerance

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize("seed", [31, 32, 33])
def test_all_72_pucs_of_the_prototype_bench_are_calibrated(seed: int) -> None:
    with Bench.emulate("lumion-prototype", seed=seed) as bench:
        found = calibrated_bench(bench, seed)
    assert within_tolerance(found)
    assert found.record.faults == ()
    assert len(found.report.phase_error_rad) == 72
    assert np.abs(found.report.phase_error_rad).max() < 0.02
    stated = np.array([entry.passive_phase_sigma_rad for entry in found.record.pucs], dtype=float)
    assert 0.3 < (found.report.phase_error_rad / stated).std() < 2.0


def test_small_benches_of_many_seeds_are_calibrated_and_honest_about_it() -> None:
    normalised: list[float] = []
    for seed in range(40, 48):
        with Bench.emulate(SMALL, seed=seed) as bench:
            found = calibrated_bench(bench, seed)
        assert within_tolerance(found), f"seed {seed}"
        stated = np.array([entry.passive_phase_sigma_rad for entry in found.record.pucs], dtype=float)
        normalised += (found.report.phase_error_rad / stated).tolist()
    assert 0.3 < np.std(normalised) < 2.0
    assert abs(np.mean(normalised)) < 4 * np.std(normalised) / np.sqrt(len(normalised))
