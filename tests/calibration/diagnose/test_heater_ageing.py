"""Change of the heaters between two measurements of the same settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.diagnose.heater_ageing import measure_phase_change
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
