"""Emulated ITLA: a tunable laser with four-byte frames on a serial line."""

from lumion_hw.emulator.lasers.itla.device import Itla
from lumion_hw.emulator.lasers.itla.laser import ItlaProfile

__all__ = ["Itla", "ItlaProfile"]
