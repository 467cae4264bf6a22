"""Planted effects change the readings of the emulated bench; nothing is calibrated here."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from lumion_hw.bench.bench import Bench
from tests.calibration.bench_run import SMALL
from tests.calibration.planted_physics import (
    Moment,
    Plant,
    Real,
    ageing_heaters,
    glitches,
    none,
    sagging_supply,
    warming_laser,
    while_read,
)
from tests.calibration.sealed_physics import EFFECTS

_SETTINGS = 60
_MIN_MA = 1e-5
_OPEN = (ageing_heaters(0.0005), glitches(0.03), warming_laser(0.02, 300e6), sagging_supply(0.0005))


@cache
def _bench_file(folder: Path) -> Path:
    """Return a copy of the small bench without noise."""
    bench = yaml.safe_load(SMALL.read_text(encoding="utf-8"))
    bench["emulation"] = {"monitor_noise_relative": 0.0, "monitor_noise_floor_dbm": -120.0}
    path = folder / "bench.yaml"
    path.write_text(yaml.safe_dump(bench), encoding="utf-8")
    return path


def _readings_ma(folder: Path, plant: Plant) -> Real:
    """Return readings of random settings with one source on, which changes every ten settings."""
    rng, readings = np.random.default_rng(0), []
    with Bench.emulate(_bench_file(folder), seed=5) as bench:
        world = bench.emulated.world
        plant(bench.emulated)
        sources = [path.source for path in world.wiring.inputs]
        for number in range(_SETTINGS):
            if number % 10 == 0:
                for index, source in enumerate(sources):
                    world.set_transmitter(source, 1e-3 if index == number // 10 % len(sources) else 0.0)
            world.drive_heaters(rng.uniform(0.0, 2.5, len(world.truth.p_pi_mw)), bench.clock.now())
            bench.clock.sleep(0.05)
            readings.append(world.monitor_ma(np.arange(world.mesh.n_ports), 0.8, 1, bench.clock.now()))
    return np.array(readings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module")
def without_effect(folder: Path) -> Real:
    return _readings_ma(folder, none())


def test_the_same_bench_gives_the_same_readings_again(folder: Path, without_effect: Real) -> None:
    np.testing.assert_array_equal(_readings_ma(folder, none()), without_effect)


@pytest.mark.parametrize("plant", [*EFFECTS.values(), *_OPEN], ids=lambda plant: "")
def test_planted_effect_changes_readings(folder: Path, without_effect: Real, plant: Plant) -> None:
    change = np.abs(_readings_ma(folder, plant) / np.maximum(without_effect, _MIN_MA) - 1.0)[without_effect > _MIN_MA]
    assert change.max() > 1e-4


def test_change_during_readings_leaves_the_chip_as_it_was(folder: Path) -> None:
    with Bench.emulate(_bench_file(folder), seed=5) as bench:
        world, seen = bench.emulated.world, []

        def turn(moment: Moment) -> None:
            seen.append(moment)
            world.truth.passive_phase = world.truth.passive_phase + 0.1
            world.chains[0].frequency_hz += 1e9

        before_rad, before_hz = world.truth.passive_phase.copy(), world.chains[0].frequency_hz
        while_read(lambda bench: turn)(bench.emulated)
        world.drive_heaters(np.full(len(world.truth.p_pi_mw), 1.5), bench.clock.now())
        world.monitor_ma(np.arange(world.mesh.n_ports), 0.8, 1, bench.clock.now())

        np.testing.assert_array_equal(world.truth.passive_phase, before_rad)
        assert world.chains[0].frequency_hz == before_hz
        np.testing.assert_array_equal(seen[0].driven_ma, 1.5)


def test_heater_that_carries_its_power_for_pi_for_20_s_ages_by_the_share(folder: Path) -> None:
    with Bench.emulate(_bench_file(folder), seed=5) as bench:
        world = bench.emulated.world
        ageing_heaters(0.003)(bench.emulated)
        fresh_mw, driven_ma = world.truth.p_pi_mw.copy(), np.zeros(len(world.truth.p_pi_mw))
        driven_ma[4] = 1.2
        world.drive_heaters(driven_ma, 0.0)
        turns = world.truth.heater_power_mw(driven_ma)[4] / fresh_mw[4]
        world.drive_heaters(0.0 * driven_ma, 20.0 / turns)

        assert fresh_mw[4] / world.truth.p_pi_mw[4] == pytest.approx(0.997)
        np.testing.assert_array_equal(np.delete(world.truth.p_pi_mw, 4), np.delete(fresh_mw, 4))


def test_twenty_effects_are_sealed() -> None:
    assert len(EFFECTS) == 20
