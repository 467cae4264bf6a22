"""Errors of a fit due to single crosstalk values that it does not include."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult, GlobalFit
from calibration.fit.pair_crosstalk import Pairs
from calibration.fit.row_scores import Pass
from calibration.measure.design import IncrementalSettings
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.physics import PairDirections
from calibration.model.priors import default_prior
from calibration.model.space import LAW_TERMS
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import FLOOR_MA, RELATIVE, SimulatedMesh

Real = NDArray[np.float64]

SMALL = HexMesh.columns((1, 2, 1))
CURRENT_MA = 1.7


def _pairs(unmodelled: Real | float = 0.0) -> tuple[Pairs, MeshModel, Likelihood, FitResult, Real]:
    """Return pairs of a fit and the information of its prior.

    Effects that are not fitted count as ``unmodelled`` times the noise.
    """
    small = SimulatedMesh.draw(SMALL, 51)
    model = MeshModel(SMALL, small.ports, small.ports)
    walk = IncrementalSettings(np.full(2 * SMALL.n_pucs, 2.3), small.ports, small.ports)
    plan = walk.random(150, np.random.default_rng(5))
    likelihood = Likelihood(small.measure(plan.currents_ma, plan.source), NoiseModel(RELATIVE, FLOOR_MA))
    likelihood = replace(likelihood, unmodelled_ma2=(unmodelled * likelihood.sigma_ma(0.0)) ** 2)
    prior = default_prior(model.space, small.parameters())
    fit = GlobalFit(model, likelihood, prior).run(small.parameters())
    pass_ = Pass(model, fit, likelihood, ())
    return Pairs(model, fit, pass_), model, likelihood, fit, prior.information(fit.free)


@pytest.mark.parametrize("heater", [4, 9])
def test_crosstalk_to_the_other_arm_is_no_error_of_the_phase_that_light_shows(heater: int) -> None:
    """The fit makes up for this crosstalk by the law of the heater, so that the phase between the arms stays right."""
    pairs, model, _, fit, prior = _pairs()
    waveguides = 2 * SMALL.n_pucs + len(SMALL.joints)
    direction = np.zeros((2 * SMALL.n_pucs, waveguides, 1), np.float32)
    direction[heater, heater ^ 1] = 1.0
    rows = pairs._rows[:, : pairs._n]
    shift = pairs._parameter_shift(rows, pairs._total_information(prior), direction)
    firsts = [model.space.group(name).start + heater for name in LAW_TERMS]
    positions = [int(np.count_nonzero(fit.free[:first])) for first in firsts]
    at_a_turn = np.array([CURRENT_MA**power for power in (2, 4, 6)])
    in_law_rad = float(at_a_turn @ shift[positions, 0])
    pairs._subtract_from_laws(shift, direction)
    assert abs(in_law_rad) > 1e-3
    # Light also shows the mean of both arms, in loops, so that the law takes up not all of it.
    assert abs(float(at_a_turn @ shift[positions, 0])) < 0.5 * abs(in_law_rad)


def test_noise_alone_leaves_no_combination_of_parameters_with_a_larger_error() -> None:
    """Single terms of a law have large errors that cancel in its phase. They still cancel where weights are uneven."""
    unmodelled = 3.0 * np.random.default_rng(7).random((150, 1))
    pairs, _, likelihood, fit, prior = _pairs(unmodelled)
    shape = 2 * SMALL.n_pucs + len(SMALL.joints), 2 * SMALL.n_pucs
    none = PairDirections(np.zeros(shape), np.zeros((*shape[::-1], 0), np.float32))
    from_noise = pairs.unfitted_effect(none, 0.1, likelihood, prior, 1.0).from_noise(fit)
    shares = np.linalg.eigvals(np.linalg.solve(fit.inverse, from_noise)).real
    assert shares.max() < 1.0 + 1e-6
    assert np.median(shares) < 0.6


def test_pairs_cannot_deviate_from_a_crosstalk_of_zero() -> None:
    pairs, _, _, fit, prior = _pairs()
    pairs._curve = np.zeros_like(pairs._curve)
    score, step = pairs.score(prior, np.zeros(prior.shape[0]), (), 1.0)
    assert step is None
    assert not score.is_supported_by_data
    assert not (score.excluded_effect @ score.excluded_effect.T).any()
    assert len(score.excluded_effect) == np.count_nonzero(fit.free)
