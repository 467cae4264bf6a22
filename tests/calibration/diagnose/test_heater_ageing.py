"""Change of the heaters between two measurements of the same settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.diagnose.heater_ageing import find_unsteady_heaters, measure_phase_change
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from tests.calibration.fit.test_diagnosed_fit import Bench
from tests.calibration.simulated_mesh import FLOOR_MA, RELATIVE

NOISE = NoiseModel(RELATIVE, FLOOR_MA)
CHOSEN = np.arange(60)


def _measured(bench: Bench, phase_change: float, **drift: np.ndarray) -> Observations:
    # Phases follow the square of the current, with a curvature of a few per cent.
    currents_ma = bench.asked.currents_ma[CHOSEN] * np.sqrt(1.0 + phase_change)
    return bench.simulated.measure(currents_ma, bench.asked.source[CHOSEN], **drift)


def _parameters(bench: Bench) -> MeshParameters:
    parameters = bench.simulated.parameters()
    return replace(parameters, source_db=np.asarray(parameters.source_db)[:4])


@pytest.mark.parametrize("change", [-0.003, -0.0005, 0.002])
def test_a_change_of_all_heaters_is_measured(change: float) -> None:
    bench = Bench.draw()
    early = _measured(bench, 0.0)
    late = replace(_measured(bench, change), currents_ma=early.currents_ma)
    measured = measure_phase_change(bench.model, _parameters(bench), early, late, NOISE)
    assert measured is not None
    assert measured.is_significant
    assert measured.relative == pytest.approx(change, rel=0.1, abs=4.0 * measured.sigma)
    assert measured.sigma < 1e-4


def test_drift_of_power_and_temperature_is_no_change_of_heaters() -> None:
    bench = Bench.draw()
    early = _measured(bench, 0.0)
    steady = np.ones(len(CHOSEN))
    late = _measured(bench, 0.0, power_db=0.3 * steady, common_rad=0.05 * steady)
    measured = measure_phase_change(bench.model, _parameters(bench), early, late, NOISE)
    assert measured is not None
    assert abs(measured.relative) < 5e-4


def test_settings_without_heat_show_no_change() -> None:
    bench = Bench.draw()
    dark = replace(bench.asked[CHOSEN], currents_ma=np.zeros((len(CHOSEN), bench.asked.currents_ma.shape[1])))
    assert measure_phase_change(bench.model, _parameters(bench), dark, dark, NOISE) is None


def _residuals(jump: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.float64]]:
    """Return residuals, derivatives and phases of settings in which heaters change by ``jump``."""
    rng, heaters = np.random.default_rng(4), jump.shape[1]
    by_phase = rng.normal(0.0, 100.0, (len(jump), 6, heaters + 5)).astype(np.float32)
    own_rad = rng.uniform(0.0, 6.0, jump.shape)
    change = jump - jump.mean(axis=0)  # the fit has the mean
    misfit = rng.standard_normal(by_phase.shape[:2])
    misfit += (by_phase[..., :heaters] @ (own_rad * change)[..., None])[..., 0]
    return misfit, by_phase, own_rad


def test_a_heater_that_jumps_during_the_run_is_found() -> None:
    jump = np.zeros((400, 20))
    jump[150:, 7] = 0.004
    found = find_unsteady_heaters(*_residuals(jump))
    assert list(found) == [7]
    assert found[7] == pytest.approx(0.0025, rel=0.15)  # from the mean, before the jump


def test_heaters_that_all_change_alike_are_no_single_heaters_that_change() -> None:
    drift = np.linspace(0.0, 0.004, 400)[:, None] * np.ones(20)
    assert find_unsteady_heaters(*_residuals(drift)) == {}
    assert find_unsteady_heaters(*_residuals(np.zeros((400, 20)))) == {}


def test_of_the_heaters_of_a_puc_only_the_one_that_changed_most_is_named() -> None:
    jump = np.zeros((400, 20))
    jump[200:, 6:8] = 0.001, 0.004
    assert list(find_unsteady_heaters(*_residuals(jump))) == [7]


def test_a_heater_without_light_is_not_judged() -> None:
    misfit, by_phase, own_rad = _residuals(np.zeros((400, 20)))
    by_phase[:, :, :20] = 0.0
    assert find_unsteady_heaters(misfit, by_phase, own_rad) == {}
