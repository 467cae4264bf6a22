"""Signs of coupler angles that light shows only faintly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibration.fit import coupler_signs
from calibration.fit.coupler_signs import equivalent_solutions, fit_with_best_signs
from calibration.fit.global_fit import FitResult, GlobalFit
from calibration.measure.design import IncrementalSettings
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.parameters import MeshParameters
from calibration.model.physics import Physics
from calibration.model.priors import FREE_GROUPS, Prior, default_prior
from calibration.model.work import FitWork
from lumion_hw.mesh.layout.topologies import build_mesh
from lumion_hw.mesh.layout.topology import MeshTopology
from tests.calibration.simulated_mesh import SimulatedMesh

CORNER = 2
"""PUC of a 2x2 crossbar that the light of the last input passes first."""
INPUTS, OUTPUTS = range(2), range(2, 4)


EFFECTS = {"heat_loss_db_per_mw": np.zeros(1), "background_share": np.zeros(4), "arm_difference_db": np.zeros(4)}
"""Effects of a 2x2 crossbar that the fits include."""


def _measured(model: MeshModel, truth: MeshParameters, settings: int, rng: np.random.Generator) -> Likelihood:
    """Return readings of random settings with noise."""
    walk = IncrementalSettings(np.full(2 * model.mesh.n_pucs, 2.3), model.space.sources, model.space.monitors)
    plan = walk.random(settings, rng)
    light_ma = model.predict(truth, plan)
    noise = NoiseModel(5e-4, 1e-9)
    reading_ma = light_ma + noise.sigma_ma(light_ma) * rng.standard_normal(light_ma.shape)
    return Likelihood(replace(plan, reading_ma=reading_ma), noise)


@dataclass(frozen=True)
class Corner:
    """Readings of a crossbar whose corner gives nearly the same light for both signs of its mean coupler angle."""

    truth: MeshParameters
    fitting: GlobalFit
    model: MeshModel
    likelihood: Likelihood
    prior: Prior

    @classmethod
    def draw(cls, heat_loss_db_per_mw: float) -> Corner:
        """Draw one; without loss by heat both signs give the same light."""
        mesh = build_mesh("crossbar", (2,))
        model = MeshModel(mesh, INPUTS, OUTPUTS).with_physics(Physics(dict.fromkeys(EFFECTS, 1e-3)))
        drawn = SimulatedMesh.draw(mesh, 33).parameters()
        rng = np.random.default_rng(4)
        truth = replace(
            drawn,
            source_db=drawn.source_db[:2],
            second_db=drawn.second_db[:2],
            monitor_ma_per_mw=drawn.monitor_ma_per_mw[2:],
            coupler_common_rad=rng.normal(0.0, 0.05, mesh.n_pucs),
            coupler_difference_rad=rng.normal(0.0, 0.1, mesh.n_pucs),
            extra_physics={**EFFECTS, "heat_loss_db_per_mw": np.full(1, heat_loss_db_per_mw)},
        )
        truth.coupler_common_rad[CORNER], truth.coupler_difference_rad[CORNER] = 0.05, -0.12
        likelihood = _measured(model, truth, 200, rng)
        prior = default_prior(model.space, truth).with_physics(model.space)
        fitting = GlobalFit(model, likelihood, prior, (*FREE_GROUPS, *EFFECTS))
        return cls(truth, fitting, model, likelihood, prior)

    def start(self, *, reverse: bool) -> MeshParameters:
        """Return the true parameters without the effects; the sign at the corner reversed on request."""
        common = self.truth.coupler_common_rad.copy()
        common[CORNER] *= -1.0 if reverse else 1.0
        return replace(self.truth, coupler_common_rad=common, extra_physics=EFFECTS)

    def best(self, fit: FitResult) -> float:
        """Return the mean coupler angle of the corner after both signs were tried."""
        found = fit_with_best_signs(self.fitting, self.model, self.likelihood, self.prior, fit)
        return float(found.parameters.coupler_common_rad[CORNER])


def test_the_sign_of_a_mean_coupler_angle_is_found_although_stray_light_explains_the_other_one() -> None:
    corner = Corner.draw(heat_loss_db_per_mw=2e-3)
    fit = corner.fitting.run(corner.start(reverse=True))
    assert fit.parameters.coupler_common_rad[CORNER] < 0.0
    assert corner.best(fit) == pytest.approx(0.05, abs=1e-4)


def test_the_right_sign_stays_although_the_fit_has_not_converged() -> None:
    """A trial runs to its end: a fit with fewer rounds would lose against the wrong sign."""
    corner = Corner.draw(heat_loss_db_per_mw=2e-4)
    wrong = corner.fitting.run(corner.start(reverse=True))
    fit = corner.fitting.run(corner.start(reverse=False), rounds=1, near=True)
    assert fit.cost(corner.prior) > wrong.cost(corner.prior) + 30.0
    assert corner.best(fit) == pytest.approx(0.05, abs=1e-4)


@pytest.mark.parametrize(("discrepancy", "trials"), [(0.01, 1), (0.0, 6)])
def test_signs_leave_most_work_for_missing_effects_while_a_fit_explains_little(
    monkeypatch: pytest.MonkeyPatch, discrepancy: float, trials: int
) -> None:
    """Each of three PUCs has two angles to try; a trial takes 30 of 100."""
    work, tried = FitWork(allowed=100.0), list[int]()

    def take_work(name: str, puc: int, *_: Any) -> None:
        work.spent += 30.0
        tried.append(puc)

    monkeypatch.setattr(coupler_signs, "_pucs_with_barrier", lambda *_: [0, 1, 2])
    monkeypatch.setattr(coupler_signs, "_with_reversed_sign", take_work)
    model: Any = SimpleNamespace(work=work)
    fit: Any = SimpleNamespace(discrepancy=discrepancy)
    unused: Any = None
    assert fit_with_best_signs(unused, model, unused, unused, fit) is fit
    assert len(tried) == trials


def _fits_from_half_the_rim(mesh: MeshTopology) -> tuple[GlobalFit, MeshModel, Likelihood, Prior, FitResult]:
    """Return a fit of light that enters at half of the ports and leaves at the others, from the true parameters."""
    half = len(mesh.fibre_ports) // 2
    physics = Physics({"arm_difference_db": 0.03})
    model = MeshModel(mesh, mesh.fibre_ports[:half], mesh.fibre_ports[half:]).with_physics(physics)
    drawn, rng = SimulatedMesh.draw(mesh, 33).parameters(), np.random.default_rng(4)
    truth = replace(
        drawn,
        source_db=drawn.source_db[:half],
        monitor_ma_per_mw=drawn.monitor_ma_per_mw[half:],
        coupler_common_rad=rng.normal(0.0, 0.05, mesh.n_pucs),
        coupler_difference_rad=rng.normal(0.0, 0.1, mesh.n_pucs),
        extra_physics={"arm_difference_db": rng.normal(0.0, 0.02, mesh.n_pucs)},
    )
    likelihood = _measured(model, truth, 300, rng)
    prior = default_prior(model.space, truth).with_physics(model.space)
    fitting = GlobalFit(model, likelihood, prior, (*FREE_GROUPS, "arm_difference_db"))
    return fitting, model, likelihood, prior, fitting.run(truth, near=True)


def test_errors_cover_another_coupler_angle_that_gives_the_same_light() -> None:
    """Light that passes a PUC at the rim in one direction hides which coupler comes first and which arm loses more."""
    fitting, model, likelihood, prior, fit = _fits_from_half_the_rim(build_mesh("square", (2, 2)))
    factor = equivalent_solutions(model, likelihood, fit)
    puc = 9
    other = fit.parameters.coupler_difference_rad.copy()
    arms_db = fit.parameters.extra_physics["arm_difference_db"].copy()
    other[puc] *= -1.0
    arms_db[puc] *= -1.0
    start = replace(fit.parameters, coupler_difference_rad=other, extra_physics={"arm_difference_db": arms_db})
    second = fitting.run(start)
    assert second.parameters.coupler_difference_rad[puc] == pytest.approx(other[puc], abs=1e-4)
    assert second.cost(prior) == pytest.approx(fit.cost(prior), abs=1.0)
    apart_rad = second.parameters.coupler_common_rad[puc] - fit.parameters.coupler_common_rad[puc]
    place = np.flatnonzero(fit.free).tolist().index(model.space.group("coupler_common_rad").start + puc)
    assert abs(apart_rad) > 50.0 * np.sqrt(fit.inverse[place, place])
    stated_rad = np.sqrt(fit.inverse[place, place] + (factor[place] ** 2).sum())
    assert stated_rad == pytest.approx(abs(apart_rad) * np.sqrt(0.5), rel=0.05)


def test_light_from_all_sides_shows_every_coupler_angle() -> None:
    _, model, likelihood, _, fit = _fits_from_half_the_rim(build_mesh("rectangular", (4,)))
    assert equivalent_solutions(model, likelihood, fit).shape[1] == 0
