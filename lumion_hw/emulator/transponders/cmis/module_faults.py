"""Faults of an emulated CMIS module, by name; apart from the module, so that whoever lists them need not load it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class ModuleFault:
    """One fault.

    Attributes:
        strength: How much, if nothing is said.
        effect: What happens.
        counts: What the strength counts; most are there or not.
        low: Least strength.
        high: Greatest strength.
        unit: Unit of the strength.
    """

    strength: float
    effect: str
    counts: str = "1: there"
    low: float = 1.0
    high: float = 1.0
    unit: str = ""


FAULTS: Mapping[str, ModuleFault] = MappingProxyType(
    {
        "los": ModuleFault(1.0, "no light reaches the receivers"),
        "lol": ModuleFault(1.0, "the receivers lose lock"),
        "lof": ModuleFault(1.0, "the receivers lose framing"),
        "tx_failure": ModuleFault(1.0, "the transmitters fail"),
        "tec_runaway": ModuleFault(1.0, "module fault with cause 1"),
        "temp_high": ModuleFault(
            40.0, "the case is hotter by so many degrees Celsius", "how much hotter", 0, 100, "degC"
        ),
        "module_fault": ModuleFault(2.0, "module fault with this cause", "cause of 00h:41", 0, 255),
        "stuck_power_up": ModuleFault(1.0, "power-up never ends"),
        "stuck_init": ModuleFault(1.0, "data path initialisation never ends"),
        "slow_init": ModuleFault(10.0, "data path initialisation takes so many times as long", "factor", 1, 1000),
        "stuck_config": ModuleFault(1.0, "ConfigStatus stays in progress"),
        "no_init_pending": ModuleFault(1.0, "DPInitPending is not raised when the application stays the same"),
        "reject_appsel0": ModuleFault(1.0, "AppSel 0 is refused"),
        "stuck_tuning": ModuleFault(1.0, "tuning never ends"),
        "wavelength_unlocked": ModuleFault(1.0, "the laser is not on its wavelength"),
        "nack": ModuleFault(1.0, "the next accesses, so many, are not acknowledged", "how many accesses", 1, 1_000_000),
        "torn_read": ModuleFault(1.0, "every second byte of a read is older than its neighbour"),
        "bad_checksum": ModuleFault(1.0, "the checksum of page 00h is wrong"),
        "counter_truncated": ModuleFault(1.0, "the sub-interval bit counter of page 34h has only 32 bits"),
        "freeze_never_done": ModuleFault(1.0, "a freeze of the statistics never completes"),
        "reserved_bits_set": ModuleFault(1.0, "reserved bits are not 0"),
        "drops_to_lowpwr_on_reset": ModuleFault(1.0, "a reset leaves a software low power request behind"),
        "unplug": ModuleFault(1.0, "the module is pulled out"),
    }
)
"""Faults by name."""
