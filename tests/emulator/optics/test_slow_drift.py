"""Drift of an emulated chip in time: temperature and resistances (docs/sources.md), and none unless configured."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.optics.slow_drift import DAY_S, SlowDrift
from lumion_hw.emulator.optics.truth import MeshTruth, draw_mesh
from tests.emulator.optics.world_testbench import MESH, PLAIN

SMALL = Path(__file__).parents[2] / "data" / "small.yaml"


def drifting(clock: VirtualClock, seed: int = 1, aged_s: float = 0.0, **spread: float) -> tuple[SlowDrift, MeshTruth]:
    physics = dataclasses.replace(PLAIN, **spread)
    truth = draw_mesh(MESH, physics, np.random.default_rng(3))
    return SlowDrift(truth, physics, clock.now, np.random.default_rng(seed), aged_s), truth


def test_a_bench_that_is_not_asked_to_drift_stays_as_it_was_drawn() -> None:
    clock = VirtualClock()
    drift, truth = drifting(clock, aged_s=100 * DAY_S)
    assert not drift.follow()
    assert truth.common_phase_rad == 0.0
    np.testing.assert_array_equal(truth.heater_ohm, 1000.0)


def test_resistances_walk_by_their_spread_in_a_day_and_twice_that_in_four() -> None:
    for days, spread in ((1.0, 1e-3), (4.0, 2e-3)):
        seen = []
        for seed in range(40):
            drift, truth = drifting(VirtualClock(), seed, aged_s=days * DAY_S, resistance_drift_per_root_day=1e-3)
            assert drift.follow()
            seen += (truth.heater_ohm / 1000.0 - 1.0).tolist()
        # 1200 heaters give a standard error of 2 %; the pull back to the mean takes up to 7 % after 4 of 30 days.
        assert np.std(seen) == pytest.approx(spread, rel=0.1)


def test_gains_walk_by_their_spread_and_resistances_stay() -> None:
    seen = []
    for seed in range(20):
        drift, truth = drifting(VirtualClock(), seed, aged_s=DAY_S, gain_drift_per_root_day=1e-3)
        fresh_mw = truth.p_pi_mw
        assert drift.follow()
        seen += (fresh_mw / truth.p_pi_mw - 1.0).tolist()
        np.testing.assert_array_equal(truth.heater_ohm, 1000.0)
    assert np.std(seen) == pytest.approx(1e-3, rel=0.12)


def test_the_temperature_stays_about_its_set_point_and_turns_every_puc_by_six_tenths_per_kelvin() -> None:
    clock = VirtualClock()
    drift, truth = drifting(clock, temperature_sigma_k=0.1)
    seen = []
    for _ in range(400):
        clock.sleep(7200.0)
        drift.follow()
        seen.append(drift.temperature_k)
        assert truth.common_phase_rad == pytest.approx(0.6 * drift.temperature_k)
    assert np.std(seen) == pytest.approx(0.1, rel=0.2)
    assert abs(np.mean(seen)) < 0.03


def test_many_small_steps_are_as_far_as_one_large_one() -> None:
    ends = []
    for seed in range(10):
        clock = VirtualClock()
        drift, truth = drifting(clock, seed, phase_drift_rad_per_root_day=0.02)
        for _ in range(24):
            clock.sleep(3600.0)
            drift.follow()
        ends += truth.joint_phase.tolist()
    assert np.std(ends) == pytest.approx(0.02, rel=0.12)


def test_an_aged_bench_is_older_than_its_clock_and_differs_from_the_fresh_one_of_its_seed(tmp_path: Path) -> None:
    path = tmp_path / "drifting.yaml"
    emulation = "emulation: {temperature_sigma_k: 0.1, resistance_drift_per_root_day: 1.0e-3}\n"
    path.write_text(SMALL.read_text() + emulation)
    with Bench.emulate(path, seed=5) as fresh, Bench.emulate(path, seed=5, aged_s=DAY_S) as aged:
        before, after = fresh.emulated.world.truth, aged.emulated.world.truth
        assert aged.emulated.slow_drift.age_s == pytest.approx(DAY_S, abs=60.0)
        np.testing.assert_array_equal(before.passive_phase, after.passive_phase)
        change = after.heater_ohm / before.heater_ohm - 1.0
        assert 5e-4 < np.std(change) < 2e-3
        sample = next(aged.mesh.controller.telemetry(0.1))
        assert sample.chip_temperature_c is not None
        warmed_k = aged.emulated.slow_drift.temperature_k
        rest_k = next(fresh.mesh.controller.telemetry(0.1)).chip_temperature_c
        assert rest_k is not None
        assert sample.chip_temperature_c - rest_k == pytest.approx(warmed_k, abs=0.02)  # board: 10 mK steps


def test_a_warm_chip_shows_in_loops_and_not_in_a_single_puc() -> None:
    clock = VirtualClock()
    drift, truth = drifting(clock, temperature_sigma_k=0.1)
    clock.sleep(DAY_S)
    drift.follow()
    assert abs(truth.common_phase_rad) > 1e-3
    np.testing.assert_array_equal(truth.passive_phase, 0.0)
    assert math.isclose(drift.age_s, DAY_S)
