"""The photonic mesh as mathematics: topology, unit cell, scattering, routing, calibration record and its inverse."""

from lumion_hw.mesh.hexagonal import HexMesh
from lumion_hw.mesh.rectangular import RectangularMesh
from lumion_hw.mesh.topologies import mesh_from_dict
from lumion_hw.mesh.topology import MeshTopology, State, Trace

__all__ = ["HexMesh", "MeshTopology", "RectangularMesh", "State", "Trace", "mesh_from_dict"]
