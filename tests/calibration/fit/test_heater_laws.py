"""Errors of heater laws in the phases that light shows, due to effects that a fit leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult, GlobalFit
from calibration.fit.growth import score_rows
from calibration.fit.heater_laws import HeaterLaws
from calibration.fit.row_scores import Equations, RowScore
from calibration.measure.design import IncrementalSettings
from calibration.model.gauge import visible_combinations
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.parameters import MeshParameters
from calibration.model.physics import LAW_DEVIATION, LAW_POINTS, Physics, select_test_heaters
from calibration.model.priors import default_prior
from calibration.model.space import LAW_TERMS
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import FLOOR_MA, SimulatedMesh

Real = NDArray[np.float64]

SMALL = HexMesh.columns((1, 2, 1))
HEATERS = 2 * SMALL.n_pucs
TESTED = select_test_heaters(HEATERS)
MAX_MA = 2.3
NOISE = 3e-4
DEVIATION = 1e-3


@pytest.fixture(scope="module")
def model() -> MeshModel:
    ports = tuple(SimulatedMesh.draw(SMALL, 51).ports)
    return MeshModel(SMALL, ports, ports)


def _fitted(model: MeshModel, effects: Mapping[str, Real]) -> tuple[MeshParameters, FitResult, Mapping[str, RowScore]]:
    """Return true parameters, a fit of readings with effects that the fit leaves out, and the scores of all effects."""
    truth = replace(SimulatedMesh.draw(SMALL, 51).parameters(), extra_physics=dict(effects))
    walk = IncrementalSettings(np.full(HEATERS, MAX_MA), model.space.sources, model.space.monitors)
    plan = walk.random(250, np.random.default_rng(5))
    light_ma = model.with_physics(Physics(dict.fromkeys(effects, 1.0))).predict(truth, plan)
    noise = NoiseModel(NOISE, FLOOR_MA)
    noise_ma = noise.sigma_ma(light_ma) * np.random.default_rng(6).standard_normal(light_ma.shape)
    likelihood = Likelihood(replace(plan, reading_ma=light_ma + noise_ma), noise)
    start = replace(truth, extra_physics={})
    prior = default_prior(model.space, start)
    fit = GlobalFit(model, likelihood, prior).run(start)
    scores = score_rows(model, fit, likelihood, prior, ("crosstalk_directions", LAW_DEVIATION))
    return truth, fit, {row.name: row for row in scores.rows}


def _alone_rad(model: MeshModel, parameters: MeshParameters, alone_ma: Real) -> Real:
    """Return the phase of every heater as light shows it, driven alone, shape ``(heaters,)``."""
    heated = model.heating.phases(parameters, np.eye(HEATERS) * alone_ma)
    weights = visible_combinations(SMALL, model.space.entries, model.space.monitors)
    phase: Real = (weights * np.hstack([heated.arm_rad, heated.joint_rad])).sum(axis=1)
    return phase


def _law_slopes(model: MeshModel, fit: FitResult, alone_ma: Real) -> Real:
    slopes = np.zeros((HEATERS, model.space.size))
    for power, name in zip((2, 4, 6), LAW_TERMS, strict=True):
        slopes[:, model.space.groups[name]] = np.diag(alone_ma**power)
    return slopes[:, fit.free]


def test_crosstalk_that_depends_on_the_direction_shifts_laws_but_hardly_their_phases(
    model: MeshModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part on the other arm of the own PUC is in the law and in the phase alike."""

    def unchanged(self: HeaterLaws, equations: Equations) -> Equations:
        return equations

    alone_ma, none = np.full(HEATERS, 1.7), {"crosstalk_directions": np.zeros(2)}
    _, fit, rows = _fitted(model, none)
    monkeypatch.setattr(HeaterLaws, "at_constant_phase", unchanged)
    _, _, by_terms = _fitted(model, none)
    slopes = _law_slopes(model, fit, alone_ma)
    in_phase, in_terms = (slopes @ each["crosstalk_directions"].excluded_effect for each in (rows, by_terms))
    assert np.linalg.norm(in_phase) < 0.6 * np.linalg.norm(in_terms)


def test_errors_that_three_terms_leave_are_as_large_as_stated_at_each_quarter_turn(model: MeshModel) -> None:
    """Before, they were a share of the phase, although a fit leaves less at large phases than at small ones."""
    deviation = DEVIATION * np.random.default_rng(7).standard_normal(len(TESTED) * LAW_POINTS)
    truth, fit, rows = _fitted(model, {LAW_DEVIATION: deviation})
    ratios = []
    for turns in (0.25, 0.5, 0.75, 1.0):
        own_rad = 2.0 * np.pi * turns
        alone_ma = np.sqrt(own_rad / truth.heater_law[:, 0])
        error = _alone_rad(model, fit.parameters, alone_ma) - _alone_rad(model, truth, alone_ma)
        slopes = _law_slopes(model, fit, alone_ma)
        stated = np.einsum("hp,pq,hq->h", slopes, fit.inverse, slopes)
        stated += ((slopes @ rows[LAW_DEVIATION].excluded_effect) ** 2).sum(axis=1)
        ratios.append(float(np.sqrt(np.mean((error**2 / stated)[TESTED]))))
    assert min(ratios) > 0.6, ratios
    assert max(ratios) < 1.6, ratios
    assert 0.75 < np.sqrt(np.mean(np.square(ratios))) < 1.35, ratios
