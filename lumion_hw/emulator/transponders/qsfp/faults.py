"""Faults of one emulated QSFP module by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lumion_hw.emulator.transponders.module_fault import ModuleFault

FAULTS: Mapping[str, ModuleFault] = MappingProxyType(
    {
        "los": ModuleFault(1.0, "no light reaches the receivers"),
        "lol": ModuleFault(1.0, "the receivers lose lock"),
        "tx_failure": ModuleFault(1.0, "all lasers fail"),
        "temp_high": ModuleFault(
            40.0, "the case temperature rises by the strength, in degrees Celsius", "temperature rise", 0, 100, "degC"
        ),
        "supply_low": ModuleFault(0.4, "the supply voltage drops by the strength, in V", "voltage drop", 0, 3, "V"),
        "stuck_init": ModuleFault(1.0, "initialisation never ends: monitors stay invalid, and the module stays dark"),
        "slow_init": ModuleFault(10.0, "initialisation takes longer by this factor", "factor", 1, 1000),
        "stuck_low_power": ModuleFault(1.0, "the module does not leave low-power mode"),
        "nack": ModuleFault(
            1.0, "the module does not acknowledge the next accesses", "number of accesses", 1, 1_000_000
        ),
        "torn_read": ModuleFault(1.0, "the second byte of every monitor comes from an older sample than the first"),
        "bad_checksum": ModuleFault(1.0, "the checksum CC_BASE of page 00h is wrong"),
        "reserved_bits_set": ModuleFault(1.0, "reserved bits of the status and control bytes are not 0"),
        "unplug": ModuleFault(1.0, "the module is unplugged"),
    }
)
"""Faults by name."""
