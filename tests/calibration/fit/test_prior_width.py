"""The prior width of an effect, estimated again from its fitted values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from calibration.fit.row_scores import fitted_prior_width
from calibration.model.mesh_model import MeshModel
from calibration.model.physics import Physics
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
