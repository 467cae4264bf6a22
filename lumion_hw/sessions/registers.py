"""Register access to pluggable modules: the interface, its errors, and the ways to reach a module."""

from lumion_hw.sessions.linear_file import LinearFile
from lumion_hw.sessions.register_access import (
    I2cDevice,
    ModuleAbsentError,
    NotRespondingError,
    RegisterAccess,
    ShortReadError,
)
from lumion_hw.sessions.sc18im700 import Sc18im700

__all__ = [
    "I2cDevice",
    "LinearFile",
    "ModuleAbsentError",
    "NotRespondingError",
    "RegisterAccess",
    "Sc18im700",
    "ShortReadError",
]
