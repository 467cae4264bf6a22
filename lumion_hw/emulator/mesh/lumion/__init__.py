"""The emulated mesh controller: firmware as a state machine behind the host-controller wire protocol, version 1."""

from lumion_hw.emulator.mesh.lumion.device import MeshBoard
from lumion_hw.emulator.mesh.lumion.profile import PRESETS, BoardProfile, preset

__all__ = ["PRESETS", "BoardProfile", "MeshBoard", "preset"]
