"""Where scores predict the end of a fit with an added effect."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import GlobalFit
from calibration.fit.growth import score_rows
from calibration.measure.design import IncrementalSettings
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.physics import LAW_DEVIATION, Physics
from calibration.model.priors import default_prior
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import FLOOR_MA, RELATIVE, SimulatedMesh

SMALL = HexMesh.columns((1, 2, 1))
ROW = "compression_per_ma"


def test_the_fit_with_an_added_effect_ends_near_the_prediction() -> None:
    small = SimulatedMesh.draw(SMALL, 51)
    plain = MeshModel(SMALL, small.ports, small.ports)
    walk = IncrementalSettings(np.full(2 * SMALL.n_pucs, 2.3), small.ports, small.ports)
    plan = walk.random(200, np.random.default_rng(5))
    full = plain.with_physics(Physics({ROW: 0.1}))
    vector = full.space.pack(small.parameters())
    vector[full.space.groups[ROW]] = 0.1 * np.random.default_rng(3).random(len(small.ports))
    light = full.predict(full.space.unpack(vector), plan)
    noise = NoiseModel(RELATIVE, FLOOR_MA)
    readings = light + noise.sigma_ma(light) * np.random.default_rng(4).standard_normal(light.shape)
    likelihood = Likelihood(replace(plan, reading_ma=readings), noise)
    prior = default_prior(plain.space, small.parameters())
    fit = GlobalFit(plain, likelihood, prior).run(small.parameters())
    scores = score_rows(plain, fit, likelihood, prior, (ROW, LAW_DEVIATION))
    assert [row.name for row in scores.chosen] == [ROW]
    wider = plain.with_physics(Physics({ROW: min(scores.chosen[0].width, 0.2)}))
    predicted = scores.predicted_vector(fit, plain.space, wider.space)
    fitting = GlobalFit(wider, likelihood, prior.with_physics(wider.space), np.ones(wider.space.size, np.bool_))
    end = fitting.run(wider.space.unpack(predicted), near=True)

    def distance_sigma(start: NDArray[np.float64]) -> float:
        step = (start - end.vector)[end.free]
        return float(np.sqrt(step @ (end.information + end.prior_information) @ step / len(step)))

    present = wider.space.pack(fit.parameters)
    assert distance_sigma(present) > 1.0
    assert distance_sigma(predicted) < 0.25 * distance_sigma(present)
