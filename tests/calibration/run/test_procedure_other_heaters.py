"""Heaters of another power per π than published: the bench file says what to expect."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lumion_hw.bench.bench import Bench
from tests.calibration.bench_run import SMALL, Calibrated, calibrated_bench, within_tolerance

P_PI_MW = {"min": 0.5, "typical": 0.6, "max": 0.9}


def calibrated(tmp_path: Path, typical: dict[str, float]) -> Calibrated:
    data = yaml.safe_load(SMALL.read_text())
    data.setdefault("emulation", {})["p_pi_mw"] = P_PI_MW
    data["mesh"]["typical"] = typical
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(data))
    with Bench.emulate(file, seed=1) as bench:
        return calibrated_bench(bench, 1)


@pytest.mark.campaign
def test_heaters_of_half_the_power_are_calibrated_where_the_bench_file_says_so(tmp_path: Path) -> None:
    found = calibrated(tmp_path, {"p_pi_min_mw": P_PI_MW["min"], "p_pi_max_mw": P_PI_MW["max"]})
    assert within_tolerance(found)
    assert found.record.faults == ()


@pytest.mark.campaign
def test_where_it_does_not_the_record_says_that_nothing_fits(tmp_path: Path) -> None:
    found = calibrated(tmp_path, {})
    assert found.record.quality["fit_certified"] == 0.0
    assert any("not of the power per π" in fault for fault in found.record.faults)
