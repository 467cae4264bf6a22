"""Renewing a calibration with a few settings after everything has drifted a little (docs/calibration.md, 6)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.fit.ageing import find_changes
from calibration.fit.drift import DriftModel, check_health, prior_after_time
from calibration.fit.global_fit import FitResult, GlobalFit
from calibration.measure.design import IncrementalSettings
from calibration.model.gauge import loop_rms_rad, wrapped
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.parameters import MeshParameters
from calibration.model.priors import default_prior
from calibration.run.renewal import RecordPosterior
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import FLOOR_MA, FULL_TURN_MA, RELATIVE, SimulatedMesh, start_near

SMALL = HexMesh.columns((1, 2, 1))
NOISE = NoiseModel(RELATIVE, FLOOR_MA)


@pytest.fixture
def small() -> SimulatedMesh:
    return SimulatedMesh.draw(SMALL, 21)


@pytest.fixture
def model(small: SimulatedMesh) -> MeshModel:
    return MeshModel(SMALL, small.ports, small.ports)


def _readings(small: SimulatedMesh, count: int) -> Likelihood:
    walk = IncrementalSettings(np.full(2 * SMALL.n_pucs, FULL_TURN_MA), small.ports, small.ports)
    plan = walk.random(count, small.rng)
    return Likelihood(small.measure(plan.currents_ma, plan.source), NOISE)


def _fitted(small: SimulatedMesh, model: MeshModel) -> FitResult:
    start = start_near(small, 0.05, 0.02)
    return GlobalFit(model, _readings(small, 150), default_prior(model.space, start)).run(start)


def _errors_mrad(small: SimulatedMesh, found: MeshParameters) -> tuple[float, float]:
    passive = wrapped(found.passive_phase_rad - small.truth.passive_phase)
    loops = loop_rms_rad(SMALL, found.joint_phase_rad - small.truth.joint_phase)
    return 1e3 * float(np.sqrt(np.mean(passive**2))), 1e3 * loops


def _drift(small: SimulatedMesh) -> None:
    """A day: 20 mrad of every passive phase and joint, 0.1 K for all, 1e-3 of every resistance, 0.3 dB of light."""
    truth, rng = small.truth, small.rng
    truth.passive_phase = truth.passive_phase + 0.02 * rng.standard_normal(SMALL.n_pucs)
    truth.joint_phase = truth.joint_phase + 0.02 * rng.standard_normal(len(SMALL.joints)) + 0.06
    truth.heater_ohm = truth.heater_ohm * (1.0 + 1e-3 * rng.standard_normal(2 * SMALL.n_pucs))
    small.source_db = small.source_db + 0.3 * rng.standard_normal(SMALL.n_ports)


def test_thirty_settings_renew_a_calibration(small: SimulatedMesh, model: MeshModel) -> None:
    last = _fitted(small, model)
    _drift(small)
    before = _errors_mrad(small, last.parameters)
    mended = find_changes(model, _readings(small, 30), last, days=1.0)
    groups, variance = model.space.groups, np.diag(mended.covariance)
    assert mended.explains_readings
    after = _errors_mrad(small, mended.parameters)
    for error, off, name in zip(after, before, ("passive_phase_rad", "loops"), strict=True):
        assert off > 10
        assert error < 4
        assert error < 2e3 * np.sqrt(variance[groups[name]].mean())


def test_the_worst_residual_is_in_the_unit_of_the_mean_square(small: SimulatedMesh, model: MeshModel) -> None:
    """A maximum is at least the rms, and its square at most the sum of squares.

    A phase that changes the light by less than its source may drift is significant only against the other readings.
    """
    last = small.parameters()
    vector = model.space.pack(last)
    exact = RecordPosterior(last, vector, np.ones(model.space.size, dtype=bool), np.zeros((model.space.size,) * 2))
    small.truth.passive_phase = small.truth.passive_phase + 0.05 * (np.arange(SMALL.n_pucs) == 3)
    health = check_health(model, _readings(small, 10), exact, DriftModel(source_db=1.0))
    assert not health.is_valid
    assert health.chi2_per_reading <= health.worst_sigma**2 <= health.chi2_per_reading * health.readings


@pytest.mark.long
def test_a_drift_of_another_kind_is_said_and_mostly_where() -> None:
    named = 0
    for seed in range(21, 26):
        small = SimulatedMesh.draw(SMALL, seed)
        model = MeshModel(SMALL, small.ports, small.ports)
        last = _fitted(small, model)
        _drift(small)
        small.truth.stuck_current_ma[10] = 0.0
        mended = find_changes(model, _readings(small, 30), last, days=1.0)
        heaters = [change.number for change in mended.moved if change.kind == "heater" and abs(change.value) > 0.1]
        assert not mended.explains_readings or heaters == [10]
        named += 5 in mended.worst_pucs or heaters == [10]
    assert named >= 4


def test_one_phase_and_one_heater_that_changed_are_found_and_nothing_else_is(
    small: SimulatedMesh, model: MeshModel
) -> None:
    last = _fitted(small, model)
    small.truth.passive_phase = small.truth.passive_phase + 0.1 * (np.arange(SMALL.n_pucs) == 3)
    small.truth.heater_ohm = small.truth.heater_ohm * (1.0 + 0.02 * (np.arange(2 * SMALL.n_pucs) == 9))
    mended = find_changes(model, _readings(small, 40), last, days=1.0)
    found = {(change.kind, change.number): change for change in mended.moved}
    assert set(found) == {("offset", 3), ("heater", 9)}
    offset, heater = found["offset", 3], found["heater", 9]
    assert offset.value == pytest.approx(0.1, abs=4.0 * offset.sigma)
    assert heater.value == pytest.approx(0.02, abs=1e-3)  # as a gain; 0.0206 for a resistance that rises with heat
    # All others keep value and error, to the last bit.
    passive = model.space.group("passive_phase_rad")
    others = np.arange(passive.start, passive.stop) != passive.start + 3
    np.testing.assert_array_equal(mended.vector[passive][others], last.vector[passive][others])
    np.testing.assert_allclose(
        np.diag(mended.covariance)[passive][others], np.diag(last.covariance())[passive][others], rtol=1e-9
    )


def test_where_nothing_changed_nothing_is_changed(small: SimulatedMesh, model: MeshModel) -> None:
    last = _fitted(small, model)
    mended = find_changes(model, _readings(small, 40), last, days=1.0)
    assert mended.moved == ()
    assert mended.explains_readings
    np.testing.assert_array_equal(mended.vector, last.vector)
    np.testing.assert_array_equal(mended.covariance, last.covariance())


def test_a_measured_resistance_separates_it_from_the_gain(small: SimulatedMesh, model: MeshModel) -> None:
    """The heater law in light changes alike; the voltage tells which of the two it was."""
    last = _fitted(small, model)
    rise = 0.02 * (np.arange(2 * SMALL.n_pucs) == 9)
    before_ohm, before_mw = small.truth.heater_ohm, small.truth.p_pi_mw
    small.truth.heater_ohm = before_ohm * (1.0 + rise)
    resistive = find_changes(model, _readings(small, 40), last, 1.0, resistance_change=rise)
    small.truth.heater_ohm, small.truth.p_pi_mw = before_ohm, before_mw / (1.0 + rise)
    thermal = find_changes(model, _readings(small, 40), last, 1.0, resistance_change=0.0 * rise)
    assert [(change.kind, change.number) for change in resistive.moved] == [("resistance", 9)]
    assert [(change.kind, change.number) for change in thermal.moved] == [("gain", 9)]


def test_without_time_only_light_and_temperature_are_uncertain(small: SimulatedMesh, model: MeshModel) -> None:
    last = _fitted(small, model)
    prior = prior_after_time(model.space, last, DriftModel(), days=0.0)
    known = prior.information(last.free)
    places = np.flatnonzero(last.free)
    passive = np.isin(places, np.arange(*model.space.group("passive_phase_rad").indices(model.space.size)))
    marginal = np.linalg.inv(known)[np.ix_(passive, passive)]
    where = model.space.group("passive_phase_rad")
    np.testing.assert_allclose(np.diag(marginal), np.diag(last.covariance())[where], rtol=1e-4)


def test_a_phase_that_all_pucs_have_in_common_is_that_of_the_temperature(
    small: SimulatedMesh, model: MeshModel
) -> None:
    """Turning every PUC is turning every joint: the readings are the same, in the gauge of the loops."""
    plan = _readings(small, 10).observations
    turned = small.exact_ma(plan.currents_ma, plan.source, common_rad=0.06)
    small.truth.joint_phase = small.truth.joint_phase + 0.06
    np.testing.assert_allclose(small.exact_ma(plan.currents_ma, plan.source), turned, rtol=1e-9)
    only = DriftModel(temperature_k=0.1, source_db=0.0, monitor_db=0.0)
    widened = only.covariance(model.space, model.space.pack(small.parameters()), 0.0)
    moved = model.space.directions.T @ np.full(len(SMALL.joints), 0.06)
    loops = model.space.group("loops")
    np.testing.assert_allclose(widened[loops, loops], np.outer(moved, moved), atol=1e-12)


@pytest.mark.long
def test_a_fit_that_says_nothing_of_a_parameter_is_no_start(small: SimulatedMesh, model: MeshModel) -> None:
    last = _fitted(small, model)
    blind = replace(last, information=0.0 * last.information, prior_information=0.0 * last.information)
    nothing = DriftModel(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    with pytest.raises(CalibrationError, match="does not determine"):
        prior_after_time(model.space, blind, nothing, 1.0)
