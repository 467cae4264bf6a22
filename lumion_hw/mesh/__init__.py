"""The photonic mesh as mathematics: topology, unit cell, scattering, routing, calibration record and its inverse."""

from lumion_hw.mesh.topology import HexMesh, State, Trace

__all__ = ["HexMesh", "State", "Trace"]
