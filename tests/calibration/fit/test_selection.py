"""How many terms a heater law needs, for heaters that follow different physics."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.fit.global_fit import FitResult, GlobalFit
from calibration.measure.design import IncrementalSettings
from calibration.model.gauge import wrapped
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.priors import FREE_GROUPS, default_prior
from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.fit.law_significance import law_terms_needed, open_signs, significance
from tests.calibration.simulated_mesh import FLOOR_MA, RELATIVE, SimulatedMesh, start_near

SMALL = HexMesh.columns((1, 2, 1))
MOST_MA = 2.3
"""Up to nearly two turns and a half of an average heater."""


def _fit(small: SimulatedMesh, free: tuple[str, ...] = FREE_GROUPS) -> tuple[FitResult, MeshModel]:
    model = MeshModel(SMALL, small.ports, small.ports)
    walk = IncrementalSettings(np.full(2 * SMALL.n_pucs, MOST_MA), small.ports, small.ports)
    plan = walk.random(250, np.random.default_rng(5))
    likelihood = Likelihood(small.measure(plan.currents_ma, plan.source), NoiseModel(RELATIVE, FLOOR_MA))
    start = start_near(small, 0.05, 0.02)
    return GlobalFit(model, likelihood, default_prior(model.space, start), free).run(start), model


@pytest.mark.parametrize(("rise_per_mw", "terms"), [pytest.param(0.0, 1, marks=pytest.mark.long), (0.02, 3)])
def test_a_resistance_that_rises_asks_for_three_terms_and_a_constant_one_for_one(
    rise_per_mw: float, terms: int
) -> None:
    """The true law is implicit, a·I²/(1 - b·I²): b is 0.02 per mA², and (b·I²)² of two turns is 0.1 rad."""
    small = SimulatedMesh.draw(SMALL, 51, PhysicsParameters(thermal_nonlinearity_per_mw=rise_per_mw))
    fit, model = _fit(small)
    assert fit.certified
    assert law_terms_needed(fit, model.space) == terms


def test_two_terms_miss_the_law_and_the_fit_says_so() -> None:
    small = SimulatedMesh.draw(SMALL, 51)
    fit, model = _fit(small, tuple(name for name in FREE_GROUPS if name != "rho6"))
    assert not fit.certified
    assert significance(fit, model.space, "rho6").freedom == 0
    assert not significance(fit, model.space, "rho6").needed


def test_the_sign_of_a_coupler_difference_stays_open_where_only_its_square_shows() -> None:
    """PUCs 10 and 12 have a port at either end: paths of one PUC, and half of their light meets no loop."""
    small = SimulatedMesh.draw(SMALL, 51)
    model = MeshModel(SMALL, small.ports, small.ports)
    walk = IncrementalSettings(np.full(2 * SMALL.n_pucs, MOST_MA), small.ports, small.ports)
    plan = walk.random(150, np.random.default_rng(5))
    likelihood = Likelihood(small.measure(plan.currents_ma, plan.source), NoiseModel(RELATIVE, FLOOR_MA))
    start = small.parameters()
    fit = GlobalFit(model, likelihood, default_prior(model.space, start)).run(start)
    undecided = open_signs(model, fit, likelihood)
    assert {10, 12} <= set(undecided)
    wrong = np.sign(fit.parameters.coupler_difference_rad) != np.sign(start.coupler_difference_rad)
    clear = np.abs(start.coupler_difference_rad) > 2e-3
    assert set(np.flatnonzero(wrong & clear).tolist()) <= set(undecided)
    assert len(undecided) < SMALL.n_pucs / 2


@pytest.mark.long
def test_three_terms_do_for_another_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published form, I² and I³, is no even law: what is left of it costs less than 3 mrad."""
    small = SimulatedMesh.draw(SMALL, 51)
    heat = small.truth.heater_ohm * 1e-3
    monkeypatch.setattr(small.truth, "heater_power_mw", lambda currents: heat * (currents**2 + 0.03 * currents**3))
    fit, _ = _fit(small)
    error = wrapped(fit.parameters.passive_phase_rad - small.truth.passive_phase)
    assert 1e3 * np.sqrt(np.mean(error**2)) < 3
