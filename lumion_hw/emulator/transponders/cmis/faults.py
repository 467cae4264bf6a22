"""Faults of one module by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lumion_hw.emulator.transponders.module_fault import ModuleFault

FAULTS: Mapping[str, ModuleFault] = MappingProxyType(
    {
        "los": ModuleFault(1.0, "no light reaches the receivers"),
        "lol": ModuleFault(1.0, "the receivers lose lock"),
        "lof": ModuleFault(1.0, "the receivers lose framing"),
        "tx_failure": ModuleFault(1.0, "the transmitters fail"),
        "tec_runaway": ModuleFault(1.0, "the module enters its fault state with cause 1 (TEC runaway)"),
        "temp_high": ModuleFault(
            40.0, "the case temperature rises by the strength, in degrees Celsius", "temperature rise", 0, 100, "degC"
        ),
        "module_fault": ModuleFault(
            2.0, "the module enters its fault state; the strength is the cause code", "cause in 00h:41", 0, 255
        ),
        "stuck_power_up": ModuleFault(1.0, "power-up never ends"),
        "stuck_init": ModuleFault(1.0, "data path initialisation never ends"),
        "slow_init": ModuleFault(10.0, "data path initialisation takes longer by this factor", "factor", 1, 1000),
        "stuck_config": ModuleFault(1.0, "ConfigStatus stays in progress"),
        "no_init_pending": ModuleFault(1.0, "DPInitPending is not raised when the application stays the same"),
        "reject_appsel0": ModuleFault(1.0, "AppSel 0 is refused"),
        "stuck_tuning": ModuleFault(1.0, "tuning never ends"),
        "wavelength_unlocked": ModuleFault(1.0, "the laser is not locked to its wavelength"),
        "nack": ModuleFault(
            1.0, "the module does not acknowledge the next accesses", "number of accesses", 1, 1_000_000
        ),
        "torn_read": ModuleFault(1.0, "every second byte of a read comes from an older sample than its neighbour"),
        "bad_checksum": ModuleFault(1.0, "the checksum of page 00h is wrong"),
        "counter_truncated": ModuleFault(1.0, "the sub-interval bit counter of page 34h has only 32 bits"),
        "freeze_never_done": ModuleFault(1.0, "a freeze of the statistics never completes"),
        "reserved_bits_set": ModuleFault(1.0, "reserved bits are not 0"),
        "drops_to_lowpwr_on_reset": ModuleFault(1.0, "a reset leaves the software low-power request set"),
        "unplug": ModuleFault(1.0, "the module is unplugged"),
    }
)
"""Faults by name."""
