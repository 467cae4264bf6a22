"""What a fit that does not explain its readings says of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.fit.global_fit import GlobalFit
from calibration.measure.design import IncrementalSettings
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel, Observations
from calibration.model.priors import default_prior
from calibration.run.conclusions import find_worst_misfits
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import FLOOR_MA, FULL_TURN_MA, RELATIVE, SimulatedMesh

SMALL = HexMesh.columns((2, 3, 2))
NOISE = NoiseModel(RELATIVE, FLOOR_MA)
LYING = 4


@pytest.fixture
def small() -> SimulatedMesh:
    return SimulatedMesh.draw(SMALL, 31)


def _worst_after_a_fit(small: SimulatedMesh, observations: Observations) -> tuple[str, ...]:
    model, likelihood = MeshModel(SMALL, small.ports, small.ports), Likelihood(observations, NOISE)
    start = small.parameters()
    fit = GlobalFit(model, likelihood, default_prior(model.space, start)).run(start, near=True)
    return find_worst_misfits(model, fit.parameters, likelihood)


def test_only_a_monitor_that_lies_is_named_first(small: SimulatedMesh) -> None:
    walk = IncrementalSettings(np.full(2 * SMALL.n_pucs, FULL_TURN_MA), small.ports, small.ports, changed=60)
    plan = walk.random(200, small.rng)
    honest = small.measure(plan.currents_ma, plan.source)
    lying = np.arange(len(small.ports)) == LYING
    bent = np.where(lying, 0.8 * np.maximum(honest.reading_ma, 0.0) ** 0.9, honest.reading_ma)
    worst = _worst_after_a_fit(small, replace(honest, reading_ma=bent))[0]
    assert worst.startswith(f"monitor_db at port {small.ports[LYING]}:")
    assert _worst_after_a_fit(small, honest) == ()
