"""What a record says of the conditions it was made under, and how far it holds; by hand from docs/sources.md."""

from __future__ import annotations

import math

import pytest

from calibration.fit.drift import DriftModel
from calibration.measure.bench_probe import BenchProbe
from calibration.record.conditions import (
    LOOP_REACH_HZ,
    TEMPERATURE_REACH_K,
    ConditionsWatch,
    valid_for_s,
    wavelength_reach_nm,
)
from lumion_hw.bench.bench import Bench
from tests.calibration.bench_run import SMALL


def test_a_loop_of_six_turns_a_tenth_of_a_radian_in_a_quarter_of_a_gigahertz() -> None:
    # Its free spectral range is 1 / (6 · 11.25 ps) = 14.8 GHz (published); 0.1 rad is 1/62.8 of it.
    assert pytest.approx(14.81e9 / (2 * math.pi / 0.1), rel=1e-3) == LOOP_REACH_HZ


def test_switching_holds_some_nanometres_and_kelvins_about_what_was_seen() -> None:
    # -30 dB is a differential phase of 2/√1000 = 63 mrad; at 25 mrad/nm that is 2.5 nm, at 3e-3 · 2π per K 3.4 K.
    assert wavelength_reach_nm(193.41e12) == pytest.approx(0.06325 / 25e-3, rel=0.02)
    assert pytest.approx(0.06325 / (3e-3 * 6.283), rel=1e-3) == TEMPERATURE_REACH_K


def test_a_calibration_of_72_pucs_is_to_be_checked_after_a_day_and_a_half() -> None:
    # √(20² + 3.14²) = 20.2 mrad per root day; the worst of 72 is 2.46 of them: (63.2 / 49.8)² = 1.61 days.
    assert valid_for_s(72) == pytest.approx(1.61 * 86_400.0, rel=0.01)
    quieter = DriftModel(passive_phase_rad_per_root_day=0.01, resistance_per_root_day=0.5e-3)
    assert valid_for_s(72, quieter) == pytest.approx(4 * valid_for_s(72))


def test_an_input_without_light_says_so() -> None:
    with Bench.emulate(SMALL, seed=1) as bench:
        bench.emulated.faults.kill_port(6)
        probe = BenchProbe(bench)
        probe.align_all(dict.fromkeys((1, 11), "left out"))  # only the dark one is searched
        said = ConditionsWatch(bench, probe)().polarization
    assert said["6"] == "pol-b found no light"
