from __future__ import annotations

import pytest

from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.waves.scattering import Solver


@pytest.fixture(scope="session")
def smartlight() -> HexMesh:
    """The 72-PUC mesh; shared, because nothing in a mesh can be changed by a test."""
    return HexMesh.smartlight()


@pytest.fixture(scope="session")
def solver(smartlight: HexMesh) -> Solver:
    return Solver(smartlight)
