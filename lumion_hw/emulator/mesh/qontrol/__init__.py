"""Emulated chain of Qontrol output modules."""

from lumion_hw.emulator.mesh.qontrol.chain import QontrolChain
from lumion_hw.emulator.mesh.qontrol.load import OPEN, SHORT, HeaterLoad
from lumion_hw.emulator.mesh.qontrol.profile import (
    BAUD,
    IDEAL_READBACK,
    ChainProfile,
    ErrorOrder,
    ModuleSpec,
    OverLimit,
    Readback,
    ReplyMode,
)

__all__ = [
    "BAUD",
    "IDEAL_READBACK",
    "OPEN",
    "SHORT",
    "ChainProfile",
    "ErrorOrder",
    "HeaterLoad",
    "ModuleSpec",
    "OverLimit",
    "QontrolChain",
    "Readback",
    "ReplyMode",
]
