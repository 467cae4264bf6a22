"""What is stated of the errors of a fit, from what a pass over the data says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.fit.growth import Scores
from calibration.fit.pair_crosstalk import Tail
from calibration.fit.row_scores import ExcludedEffects, RowScore
from calibration.fit.stated_errors import stated_errors
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.physics import ROWS, Physics
from calibration.model.space import ParameterSpace
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import SimulatedMesh

Real = NDArray[np.float64]

SMALL = HexMesh.columns((2,))
VARIANCE = 1e-6


@pytest.fixture(scope="module")
def small() -> SimulatedMesh:
    return SimulatedMesh.draw(SMALL, 3)


@pytest.fixture(scope="module")
def fit(small: SimulatedMesh) -> FitResult:
    """A fit that explains its readings; all parameters are known alike and independently."""
    space = _space(small)
    information = np.eye(space.size) / VARIANCE
    return FitResult(
        parameters=small.parameters(),
        vector=space.pack(small.parameters()),
        free=np.ones(space.size, dtype=np.bool_),
        information=information,
        prior_information=np.zeros_like(information),
        converged=True,
        discrepancy=0.0,
        chi2_per_reading=1.0,
        readings=10_000,
        rounds=(),
        settings=500,
    )


def _space(small: SimulatedMesh) -> ParameterSpace:
    return MeshModel(SMALL, small.ports, small.ports).space


def _scores(fit: FitResult, *rows: RowScore, tail: Tail | None = None) -> Scores:
    """Scores of slopes that scatter as noise does: every stretch and every monitor has its share of the information."""
    size = len(fit.vector)
    slopes = np.sqrt(1.0 / VARIANCE / size) * np.linalg.qr(np.random.default_rng(4).standard_normal((size, size)))[0]
    nothing = np.zeros((1, 1))
    return Scores(rows, (), fit.information, slopes * np.sqrt(size), slopes * np.sqrt(size), tail, nothing, nothing[0])


def _excluded_effect(fit: FitResult, times: float) -> RowScore:
    """A row that light asks for; left out, it makes all errors so many times as large."""
    excluded_effect = np.float32(np.sqrt((times**2 - 1.0) * VARIANCE)) * np.eye(len(fit.vector), dtype=np.float32)
    return RowScore("arm_difference_db", 200.0, 300.0, 0.01, lambda: excluded_effect)


def test_a_row_left_out_widens_errors_and_costs_the_certificate_where_it_more_than_doubles_them(
    small: SimulatedMesh, fit: FitResult
) -> None:
    space = _space(small)
    little, much = (stated_errors(space, fit, _scores(fit, _excluded_effect(fit, times))) for times in (1.5, 2.5))
    assert little.widened["passive_phase_rad"] == pytest.approx(1.5)
    assert little.doubts == ()
    assert much.widened["passive_phase_rad"] == pytest.approx(2.5)
    (doubt,) = much.doubts
    assert doubt.startswith("unequal losses of the arms of a PUC would explain the readings better")


def test_a_heater_that_changed_during_the_run_has_a_larger_error_of_its_law_only(
    small: SimulatedMesh, fit: FitResult
) -> None:
    model = MeshModel(SMALL, small.ports, small.ports).with_physics(Physics(unsteady={5: 0.004}))
    sigma = np.sqrt(np.diag(stated_errors(model.space, fit, _scores(fit)).fit.covariance()))
    number = model.space.groups["rho2"].start + 5
    assert sigma[number] == pytest.approx(np.hypot(0.004 * fit.vector[number], np.sqrt(VARIANCE)))
    other = model.space.groups["rho2"].start + 4
    assert sigma[other] == pytest.approx(np.sqrt(VARIANCE))


def test_correlated_residuals_widen_errors_due_to_readings_but_not_those_due_to_the_prior(
    small: SimulatedMesh, fit: FitResult
) -> None:
    """Residuals correlate so that errors grow by 1.7; readings show the losses of all PUCs but the first."""
    space = _space(small)
    information, prior = fit.information.copy(), np.zeros_like(fit.information)
    unseen = space.groups["loss_db"].start
    information[unseen, unseen], prior[unseen, unseen] = 0.0, 1.0 / VARIANCE
    slopes = 1.7 * _scores(fit).by_segment
    slopes[:, unseen] = 0.0
    scores = replace(_scores(fit), information=information, by_segment=slopes)
    stated = stated_errors(space, replace(fit, information=information, prior_information=prior), scores)
    growth = np.sqrt(np.diag(stated.fit.covariance()) / VARIANCE)
    assert growth[unseen] == pytest.approx(1.0)
    np.testing.assert_allclose(growth[np.arange(space.size) != unseen], 1.7, rtol=0.1)


def test_noise_that_stood_for_pairs_in_the_weights_is_not_counted_beside_what_they_do(
    small: SimulatedMesh, fit: FitResult
) -> None:
    """A third of the variance was that noise; in its place come pairs themselves, three quarters as large as all."""
    size = len(fit.vector)
    tail = Tail(0.75 * VARIANCE * np.eye(size), np.eye(size) / 3.0 / VARIANCE)
    found = stated_errors(_space(small), fit, _scores(fit, tail=tail))
    variance = np.diag(found.fit.covariance())
    np.testing.assert_allclose(variance, (2.0 / 3.0 + 0.75) * VARIANCE, rtol=1e-9)
    assert found.widened["loops"] == pytest.approx(np.sqrt(2.0 / 3.0 + 0.75))


def test_a_reading_that_something_unmodelled_moves_counts_less_in_every_part_of_a_likelihood(
    small: SimulatedMesh,
) -> None:
    noise, readings = NoiseModel(0.005, 1e-6), small.measure(*small.random_settings(6))
    plain = Likelihood(readings, noise)
    moved = np.zeros(plain.target_ma.shape)
    moved[4] = (3.0 * plain.sigma_ma(0.0)[4]) ** 2
    weighed = Likelihood(readings, noise, unmodelled_ma2=moved)
    expected = plain.sigma_ma(0.0)
    expected[4] *= np.sqrt(10.0)
    np.testing.assert_allclose(weighed.sigma_ma(0.0), expected)
    np.testing.assert_allclose(weighed.sigma_ma(0.0, slice(4, 5)), expected[4:5])
    np.testing.assert_allclose(weighed[np.array([1, 4])].sigma_ma(0.0), expected[[1, 4]])


def test_two_effects_that_change_the_readings_alike_count_once() -> None:
    """Each of them alone would move the fitted parameter by 0.01."""
    information, places = np.full((2, 2), 1e8), {"offset_ma": slice(0, 1), "monitor_leak": slice(1, 2)}
    effects = ExcludedEffects(np.ones((1, 2), np.float32), information, np.full(2, 1e8 * 0.01), places, 1.0)
    variance = sum(float((effects.factors[name] ** 2).sum()) for name in places)
    assert np.sqrt(variance) == pytest.approx(0.01, rel=0.1)


def test_an_effect_that_the_readings_do_not_ask_for_counts_as_rare() -> None:
    """Readings that hardly show it exclude no size; most chips do not have it."""
    effects = ExcludedEffects(np.ones((1, 1), np.float32), np.eye(1), np.zeros(1), {"offset_ma": slice(0, 1)}, 1.0)
    assert float((effects.factors["offset_ma"] ** 2).sum()) < 0.02 * ROWS["offset_ma"].largest ** 2


def test_an_effect_that_no_reading_shows_counts_with_less_than_its_usual_size() -> None:
    """Unequal losses of the arms look like uneven couplers where light takes one path only."""
    row = ROWS["arm_difference_db"]
    effects = ExcludedEffects(np.ones((1, 1), np.float32), np.zeros((1, 1)), np.zeros(1), {row.name: slice(0, 1)}, 1.0)
    stated = float(np.linalg.norm(effects.factors[row.name]))
    assert 0.1 * row.usual < stated < row.usual < 0.1 * row.largest
