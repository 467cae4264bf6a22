"""The global fit on meshes whose truth the test knows, with the noise and the faults of docs/calibration.md, 2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibration.diagnose.drift_trajectory import measure_drift
from calibration.fit.global_fit import FitResult, GlobalFit
from calibration.measure.design import IncrementalSettings
from calibration.model.gauge import loop_rms_rad, wrapped
from calibration.model.likelihood import Likelihood, SettingDrift
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import (
    NormalEquations,
    drift_at,
    equations_with,
    mean_squared_residual,
    normal_equations,
)
from calibration.model.observations import NoiseModel
from calibration.model.parameters import MeshParameters
from calibration.model.priors import FREE_GROUPS, default_prior
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import (
    FLOOR_MA,
    FULL_TURN_MA,
    RELATIVE,
    RESPONSIVITY_MA_PER_MW,
    SimulatedMesh,
    start_near,
)

SMALL = HexMesh.columns((1, 2, 1))
NOISE = NoiseModel(RELATIVE, FLOOR_MA)
SETTINGS = 150


@pytest.fixture
def small() -> SimulatedMesh:
    return SimulatedMesh.draw(SMALL, 11)


def _model(simulated: SimulatedMesh) -> MeshModel:
    return MeshModel(simulated.mesh, simulated.ports, simulated.ports)


def _fitted(simulated: SimulatedMesh, likelihood: Likelihood, start: MeshParameters) -> FitResult:
    model = _model(simulated)
    return GlobalFit(model, likelihood, default_prior(model.space, start)).run(start)


def _errors_mrad(simulated: SimulatedMesh, found: MeshParameters) -> tuple[float, float]:
    """Rms error of the passive phases, and of the loops as docs/calibration.md, 1.2, compares them."""
    truth = simulated.parameters()
    passive = wrapped(found.passive_phase_rad - truth.passive_phase_rad)
    loops = loop_rms_rad(simulated.mesh, found.joint_phase_rad - truth.joint_phase_rad)
    return 1e3 * float(np.sqrt(np.mean(passive**2))), 1e3 * loops


def _bounds_mrad(simulated: SimulatedMesh, fit: FitResult) -> tuple[float, float]:
    groups, variance = _model(simulated).space.groups, np.diag(fit.covariance())
    passive, loops = variance[groups["passive_phase_rad"]], variance[groups["loops"]]
    return 1e3 * float(np.sqrt(passive.mean())), 1e3 * float(np.sqrt(loops.mean()))


def test_a_mesh_is_found_from_a_tenth_of_a_radian_away(small: SimulatedMesh) -> None:
    observations = small.measure(*small.random_settings(SETTINGS))
    fit = _fitted(small, Likelihood(observations, NOISE), start_near(small, 0.1, 0.03))
    assert fit.certified
    assert 0.8 < fit.chi2_per_dof < 1.2
    for error, bound in zip(_errors_mrad(small, fit.parameters), _bounds_mrad(small, fit), strict=True):
        assert error < 2 * bound
    assert _errors_mrad(small, fit.parameters)[0] < 5
    # begun at balance, the couplers are found with their signs, which single paths do not show
    truth = small.parameters()
    assert np.abs(fit.parameters.coupler_common_rad - truth.coupler_common_rad).max() < 3e-3
    assert np.abs(truth.coupler_common_rad).max() > 1e-2


@pytest.mark.campaign
def test_the_whole_72_puc_mesh_is_found_from_a_third_of_a_radian_away() -> None:
    simulated = SimulatedMesh.draw(HexMesh.smartlight(), 10)
    walk = IncrementalSettings(np.full(144, FULL_TURN_MA), simulated.ports, simulated.ports)
    plan = walk.random(300, np.random.default_rng(10))
    likelihood = Likelihood(simulated.measure(plan.currents_ma, plan.source), NOISE)
    fit = _fitted(simulated, likelihood, start_near(simulated, 0.3, 0.05))
    assert fit.certified
    for error, bound in zip(_errors_mrad(simulated, fit.parameters), _bounds_mrad(simulated, fit), strict=True):
        assert error < 1.5 * bound < 1.5
    # PUC 15 is a path of its own: its coupler difference shows as a square; left at 0 it costs 6 sigma of phase
    where = _model(simulated).space.group("passive_phase_rad")
    sigma = np.sqrt(np.diag(fit.covariance()))[where]
    off = wrapped(fit.parameters.passive_phase_rad - simulated.truth.passive_phase) / sigma
    assert np.abs(off).max() < 4.5
    assert np.std(off) == pytest.approx(1.0, abs=0.25)


def test_groups_that_are_not_free_stay_where_they_were(small: SimulatedMesh) -> None:
    observations = small.measure(*small.random_settings(40))
    start, model = start_near(small, 0.05, 0.01), _model(small)
    fit = GlobalFit(
        model, Likelihood(observations, NOISE), default_prior(model.space, start), ("passive_phase_rad", "loops")
    ).run(start, rounds=3)
    np.testing.assert_array_equal(fit.parameters.heater_law, start.heater_law)
    np.testing.assert_array_equal(fit.parameters.loss_db, start.loss_db)
    assert (fit.parameters.passive_phase_rad != start.passive_phase_rad).all()
    held = ~model.space.mask(("passive_phase_rad", "loops"))
    assert not fit.covariance()[held].any()


def test_the_slope_of_the_likelihood_is_that_of_its_cost(small: SimulatedMesh) -> None:
    model = _model(small)
    likelihood = Likelihood(small.measure(*small.random_settings(30)), NOISE)
    space, free = model.space, model.space.mask(FREE_GROUPS)
    start = space.pack(start_near(small, 0.02, 0.01))
    equations = normal_equations(model, space.unpack(start), likelihood, free, discrepancy=0.05)
    direction = np.zeros(space.size)
    spread = np.sqrt(np.diag(equations.information) + default_prior(space, space.unpack(start)).sigma[free] ** -2.0)
    direction[free] = np.random.default_rng(2).standard_normal(free.sum()) / spread

    def cost(point: np.ndarray) -> float:
        size = np.abs(likelihood.residual(model.predict(space.unpack(point), likelihood.observations), 0.05))
        return float(np.where(size <= 3.0, 0.5 * size**2, 3.0 * size - 4.5).sum())  # Huber

    slope = (cost(start + 1e-4 * direction) - cost(start - 1e-4 * direction)) / 2e-4
    assert -equations.gradient @ direction[free] == pytest.approx(slope, rel=1e-4)


def test_with_given_information_slope_and_drift_are_those_of_the_point(small: SimulatedMesh) -> None:
    model, drift = _model(small), SettingDrift(power_db=0.05, common_phase_rad=0.02)
    likelihood = Likelihood(small.measure(*small.random_settings(40)), NOISE, drift=drift)
    free = model.space.mask(FREE_GROUPS)
    start = start_near(small, 0.002, 0.0005)
    equations = normal_equations(model, start, likelihood, free)
    by_differences = drift_at(model, start, likelihood.observations, equations.reading_ma, drift)
    np.testing.assert_allclose(by_differences, equations.drift_ma, rtol=1e-5, atol=1e-6 * equations.drift_ma.max())
    again = equations_with(model, start, likelihood, equations.information, equations.reading_ma, free)
    np.testing.assert_allclose(again.gradient, equations.gradient, atol=1e-5 * np.abs(equations.gradient).max())


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Over how many settings information was gathered, each time."""
    counts: list[int] = []

    def counting(*given: Any) -> NormalEquations:
        counts.append(len(given[2].observations))
        return normal_equations(*given)

    monkeypatch.setattr("calibration.fit.global_fit.normal_equations", counting)
    return counts


@pytest.mark.long
def test_information_that_is_kept_ends_where_information_gathered_in_every_round_does(
    small: SimulatedMesh, gathered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    likelihood = Likelihood(small.measure(*small.random_settings(SETTINGS)), NOISE)
    start = start_near(small, 0.1, 0.03)
    kept = _fitted(small, likelihood, start)
    few = len(gathered)
    monkeypatch.setattr("calibration.fit.global_fit._MAX_REUSE_SIGMA", 0.0)
    anew = _fitted(small, likelihood, start)
    assert few < len(kept.rounds)
    assert len(gathered) - few >= len(anew.rounds)  # a last step that is none leaves the point where it was
    sigma = np.sqrt(np.diag(anew.covariance()))[anew.free]
    assert np.sqrt(np.mean(((kept.vector - anew.vector)[anew.free] / sigma) ** 2)) < 0.1
    # of a coupler that shows as its square the error depends on where just it is
    linear = ~_model(small).space.mask(("coupler_difference_rad",))[kept.free]
    np.testing.assert_allclose(np.sqrt(np.diag(kept.covariance()))[kept.free][linear], sigma[linear], rtol=0.05)


@pytest.mark.long
def test_a_fit_of_more_settings_takes_over_what_the_last_one_knew(small: SimulatedMesh, gathered: list[int]) -> None:
    every = small.measure(*small.random_settings(2 * SETTINGS))
    few, model = every[np.arange(SETTINGS)], _model(small)
    first = _fitted(small, Likelihood(few, NOISE), start_near(small, 0.1, 0.03))
    gathered.clear()
    prior = default_prior(model.space, first.parameters)
    fit = GlobalFit(model, Likelihood(every, NOISE), prior)
    second = fit.run(first.parameters, near=True, earlier_fit=first)
    assert second.certified
    assert gathered[:1] == [SETTINGS]
    alone = fit.run(first.parameters, near=True)
    np.testing.assert_allclose(np.diag(second.covariance()), np.diag(alone.covariance()), rtol=0.1, atol=1e-30)
    gathered.clear()
    again = fit.run(second.parameters, near=True, earlier_fit=second)
    assert gathered == []
    assert again.certified
    # what is free now is no longer what was: nothing can be taken over
    GlobalFit(model, Likelihood(every, NOISE), prior, ("passive_phase_rad", "loops")).run(
        second.parameters, near=True, earlier_fit=second
    )
    assert gathered[:1] == [2 * SETTINGS]


def test_readings_that_are_nonsense_are_passed_over(small: SimulatedMesh) -> None:
    observations = small.measure(*small.random_settings(SETTINGS))
    wrong = small.rng.random(observations.reading_ma.shape) < 0.01
    readings = np.where(wrong, 3.0 * observations.reading_ma + 0.01, observations.reading_ma)
    fit = _fitted(small, Likelihood(replace(observations, reading_ma=readings), NOISE), start_near(small, 0.1, 0.03))
    assert fit.converged
    for error, bound in zip(_errors_mrad(small, fit.parameters), _bounds_mrad(small, fit), strict=True):
        assert error < 3 * bound


@pytest.mark.parametrize("full_scale_known", [True, pytest.param(False, marks=pytest.mark.long)])
def test_saturated_readings_are_bounds_or_nothing(small: SimulatedMesh, full_scale_known: bool) -> None:
    observations = small.measure(*small.random_settings(SETTINGS))
    full_scale = 0.2 * RESPONSIVITY_MA_PER_MW
    over = observations.reading_ma > full_scale
    assert over.mean() > 0.02
    seen = replace(observations, reading_ma=np.where(over, np.nan, observations.reading_ma), saturated=over)
    likelihood = Likelihood(seen, NOISE, full_scale if full_scale_known else None)
    fit = _fitted(small, likelihood, start_near(small, 0.1, 0.03))
    assert fit.certified
    for error, bound in zip(_errors_mrad(small, fit.parameters), _bounds_mrad(small, fit), strict=True):
        assert error < 2 * bound
    if full_scale_known:
        predicted = _model(small).predict(fit.parameters, seen)
        assert (predicted[over] > 0.97 * full_scale).all()


@pytest.mark.long
def test_light_that_drifts_and_a_chip_that_warms_are_told_from_the_mesh(small: SimulatedMesh) -> None:
    """0.2 dB of power and 30 mrad of common phase (some 50 mK) from setting to setting."""
    currents, source = small.random_settings(250)
    power_db, phase = small.rng.normal(0.0, 0.2, 250), small.rng.normal(0.0, 0.03, 250)
    observations = small.measure(currents, source, power_db, phase)
    start, drift = start_near(small, 0.05, 0.02), SettingDrift(0.2, 0.03)
    blind = _fitted(small, Likelihood(observations, NOISE), start)
    likelihood = Likelihood(observations, NOISE, drift=drift)
    fit = _fitted(small, likelihood, blind.parameters)
    for error, bound, before in zip(
        _errors_mrad(small, fit.parameters),
        _bounds_mrad(small, fit),
        _errors_mrad(small, blind.parameters),
        strict=True,
    ):
        assert error < 2 * bound
        assert error < before
    found = measure_drift(
        _model(small), fit.parameters, observations, np.arange(250.0), NOISE, np.full(2 * SMALL.n_pucs, np.inf)
    )
    off_db = found.power_db - power_db
    within_source = [off_db[source == port] - off_db[source == port].mean() for port in small.ports]
    assert np.std(np.concatenate(within_source)) < 0.03  # what a source has in all its settings is its own power
    assert np.corrcoef(found.phase_rad, phase)[0, 1] > 0.9


def test_a_dead_heater_is_found_to_have_no_law(small: SimulatedMesh) -> None:
    small.truth.stuck_current_ma[9] = 0.0
    observations = small.measure(*small.random_settings(SETTINGS))
    fit = _fitted(small, Likelihood(observations, NOISE), start_near(small, 0.1, 0.03))
    strength = np.abs(fit.parameters.heater_law @ np.array([1.0, 2.0, 4.0]))
    assert strength.argmin() == 9
    assert strength[9] < 0.05 * np.median(strength)


def test_what_breaks_the_model_is_named_by_its_residuals(small: SimulatedMesh) -> None:
    """A heater that died half way through is no parameter's fault: the readings that feel it do not fit."""
    currents, source = small.random_settings(SETTINGS)
    first = small.measure(currents[:75], source[:75])
    small.truth.stuck_current_ma[12] = 0.0
    observations = first + small.measure(currents[75:], source[75:])
    likelihood = Likelihood(observations, NOISE)
    fit = _fitted(small, likelihood, start_near(small, 0.05, 0.02))
    assert not fit.certified
    model = _model(small)
    around = mean_squared_residual(model, fit.parameters, likelihood)[model.space.groups["passive_phase_rad"]]
    assert 6 in np.argsort(around)[-4:]
