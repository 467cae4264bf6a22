"""The prior width of an effect, estimated again from its fitted values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from calibration.fit.row_scores import fitted_prior_width
from calibration.model.mesh_model import MeshModel
from calibration.model.physics import Physics
from calibration.model.priors import PRIOR_SIGMA, Prior, coupler_spreads
from lumion_hw.mesh.layout.hexagonal import HexMesh


@pytest.mark.parametrize("rest", [0.0, 3e-5])
def test_values_that_only_the_prior_determines_do_not_widen_it(rest: float) -> None:
    """Of six numbers of shared returns a small chip shows two; the others are near zero, where a fit ends."""
    mesh, width = HexMesh.columns((1,)), 3e-4
    model = MeshModel(mesh, (0,), (1,)).with_physics(Physics({"shared_return_per_ma": width}))
    group = model.space.group("shared_return_per_ma")
    # A standard error of 1e-5 from the readings, besides the prior.
    information = np.full(group.stop - group.start, width**-2)
    information[:2] += 1e-5**-2
    vector, inverse = np.zeros(model.space.size), np.eye(model.space.size)
    vector[group] = [2e-4, -4e-4, *([rest] * (len(information) - 2))]
    inverse[group, group] = np.diag(1.0 / information)
    fit = SimpleNamespace(free=np.ones(model.space.size, bool), inverse=inverse, vector=vector)
    found = fitted_prior_width(model.space, cast(Any, fit), "shared_return_per_ma", width)
    # The rms of both values is 3.2e-4.
    assert found == pytest.approx(3.2e-4, rel=0.3)


def test_uneven_couplers_widen_the_prior_of_the_others() -> None:
    """Couplers whose angle light hardly shows do not count, and even couplers leave the prior as it is."""
    mesh = HexMesh.columns((2, 1))
    space = MeshModel(mesh, (0,), (1,)).space
    prior = Prior(np.zeros(space.size), space.vector(PRIOR_SIGMA))
    vector, sigma = np.zeros(space.size), np.full(space.size, 1e-3)
    common, difference = space.group("coupler_common_rad"), space.group("coupler_difference_rad")
    vector[common] = np.where(np.arange(mesh.n_pucs) % 2, 0.12, -0.12)
    vector[common.start], sigma[common.start] = 0.0, 0.025
    vector[difference] = 0.005
    assert coupler_spreads(space, prior, vector, sigma) == {"coupler_common_rad": pytest.approx(0.12)}
