"""Sessions: one conversation per link, holding the lock, the deadlines and the way back after a missed reply.

For those who write a driver, or open a module without a bench file (docs/transponders.md). The modules inside are
private: users import from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumion_hw.public_names import public_names

if TYPE_CHECKING:
    from lumion_hw.sessions.framed.session import FramedSession
    from lumion_hw.sessions.lines import LineSession
    from lumion_hw.sessions.module.adapter import AdapterRegisters, I2cAdapter, PinnedAdapter
    from lumion_hw.sessions.module.adapter_libraries import FtdiAdapter, Mcp2221Adapter, SmbusAdapter
    from lumion_hw.sessions.module.linear_file import LinearFile, LinearPages
    from lumion_hw.sessions.module.paged_i2c import BridgedI2c, PagedI2c
    from lumion_hw.sessions.module.pages import ImagePages, ModulePages, PageNotSupportedError
    from lumion_hw.sessions.module.registers import (
        I2cDevice,
        ModuleAbsentError,
        NotRespondingError,
        RegisterAccess,
        ShortReadError,
    )
    from lumion_hw.sessions.module.sc18im700 import Sc18im700
    from lumion_hw.sessions.scpi import ScpiSession

__all__ = [
    "AdapterRegisters",
    "BridgedI2c",
    "FramedSession",
    "FtdiAdapter",
    "I2cAdapter",
    "I2cDevice",
    "ImagePages",
    "LineSession",
    "LinearFile",
    "LinearPages",
    "Mcp2221Adapter",
    "ModuleAbsentError",
    "ModulePages",
    "NotRespondingError",
    "PageNotSupportedError",
    "PagedI2c",
    "PinnedAdapter",
    "RegisterAccess",
    "Sc18im700",
    "ScpiSession",
    "ShortReadError",
    "SmbusAdapter",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names(
        __name__,
        {
            "framed.session": ("FramedSession",),
            "lines": ("LineSession",),
            "module.adapter": ("AdapterRegisters", "I2cAdapter", "PinnedAdapter"),
            "module.adapter_libraries": ("FtdiAdapter", "Mcp2221Adapter", "SmbusAdapter"),
            "module.linear_file": ("LinearFile", "LinearPages"),
            "module.paged_i2c": ("BridgedI2c", "PagedI2c"),
            "module.pages": ("ImagePages", "ModulePages", "PageNotSupportedError"),
            "module.registers": (
                "I2cDevice",
                "ModuleAbsentError",
                "NotRespondingError",
                "RegisterAccess",
                "ShortReadError",
            ),
            "module.sc18im700": ("Sc18im700",),
            "scpi": ("ScpiSession",),
        },
    )
