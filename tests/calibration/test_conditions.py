"""What a record says of the conditions it was made under, and how far it holds; numbers by hand from mesh.md b.9."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from bench_run import SMALL

from calibration.fit.drift import DriftModel
from calibration.measure.bench_probe import BenchProbe
from calibration.record.conditions import (
    ConditionsWatch,
    loop_reach_hz,
    temperature_reach_k,
    valid_for_s,
    wavelength_reach_nm,
)
from lumion_hw.bench.bench import Bench
from lumion_hw.circuits import Aligner
from lumion_hw.cli.demo.steps import calibrate
from lumion_hw.storage import load_record


def test_a_loop_of_six_turns_a_tenth_of_a_radian_in_a_quarter_of_a_gigahertz() -> None:
    # Its free spectral range is 1 / (6 · 11.25 ps) = 14.8 GHz (published); 0.1 rad is 1/62.8 of it.
    assert loop_reach_hz() == pytest.approx(14.81e9 / (2 * math.pi / 0.1), rel=1e-3)


def test_switching_holds_some_nanometres_and_kelvins_about_what_was_seen() -> None:
    # -30 dB is a differential phase of 2/√1000 = 63 mrad; at 25 mrad/nm that is 2.5 nm, at 3e-3 · 2π per K 3.4 K.
    assert wavelength_reach_nm(193.41e12) == pytest.approx(0.06325 / 25e-3, rel=0.02)
    assert temperature_reach_k() == pytest.approx(0.06325 / (3e-3 * 6.283), rel=1e-3)


def test_a_calibration_of_72_pucs_is_to_be_checked_after_a_day_and_a_half() -> None:
    # √(20² + 3.14²) = 20.2 mrad per root day; the worst of 72 is 2.46 of them: (63.2 / 49.8)² = 1.61 days.
    assert valid_for_s(72) == pytest.approx(1.61 * 86_400.0, rel=0.01)
    quieter = DriftModel(passive_phase_rad_per_root_day=0.01, resistance_per_root_day=0.5e-3)
    assert valid_for_s(72, quieter) == pytest.approx(4 * valid_for_s(72))


def test_a_calibration_writes_down_its_conditions(tmp_path: Path) -> None:
    with Bench.emulate(SMALL, seed=1, aged_s=3600.0) as bench:
        calibrate(bench, Aligner(bench.clock), 1, tmp_path / "record.json")
        chip_c = bench.mesh.chip_temperature_c()
        done_s = bench.emulated.slow_drift.age_s
    conditions = load_record(tmp_path / "record.json").conditions
    assert conditions.wavelengths_nm == (1550.0,)
    assert conditions.wavelength_range_nm == pytest.approx((1547.5, 1552.5), abs=0.1)
    assert conditions.reference_hz == pytest.approx(299_792_458.0 / 1550e-9)
    assert conditions.temperature_range_c == pytest.approx((chip_c, chip_c), abs=0.011)
    assert conditions.polarization == {
        "1": "turned to TE by pol-a",
        "6": "turned to TE by pol-b",
        "11": "turned to TE by pol-c",
    }
    assert conditions.laser_power_dbm == pytest.approx(1.0, abs=3.0)  # a module's own meter is good to 3 dB
    assert conditions.emulated_age_s is not None
    assert 3600.0 < conditions.emulated_age_s <= done_s
    assert "a loop of six PUCs turns 0.1 rad in 0.24 GHz (1.9 pm)" in conditions.ambient


def test_an_input_without_light_says_so() -> None:
    with Bench.emulate(SMALL, seed=1) as bench:
        bench.emulated.faults.kill_port(6)
        probe = BenchProbe(bench)
        probe.align_all()
        said = ConditionsWatch(bench, probe)().polarization
    assert said["6"] == "dark: pol-b found no light"
