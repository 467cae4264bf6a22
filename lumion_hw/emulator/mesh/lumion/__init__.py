"""Emulated LUMION mesh controller: its firmware as a state machine, with wire protocol version 1.

Sections named in these modules are those of docs/protocol.md.
"""

from lumion_hw.emulator.mesh.lumion.device import MeshBoard
from lumion_hw.emulator.mesh.lumion.profile import PRESETS, BoardProfile, preset

__all__ = ["PRESETS", "BoardProfile", "MeshBoard", "preset"]
