"""The photonic mesh as mathematics: topology, unit cell, scattering, routing, calibration record and its inverse."""

from lumion_hw.mesh.hexagonal import HexMesh
from lumion_hw.mesh.topology import MeshTopology, State, Trace

__all__ = ["HexMesh", "MeshTopology", "State", "Trace"]
