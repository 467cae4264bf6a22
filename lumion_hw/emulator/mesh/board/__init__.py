"""The emulated mesh controller: firmware as a state machine behind the host-controller wire protocol, version 1."""

from lumion_hw.emulator.mesh.board.device import MeshBoard
from lumion_hw.emulator.mesh.board.profile import PRESETS, BoardProfile, preset

__all__ = ["PRESETS", "BoardProfile", "MeshBoard", "preset"]
