"""Byte addresses of the emulated memory (SFF-8636 rev 2.11).

Addresses 0 to 127 are the lower memory, 128 to 255 the selected upper page.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

HALF_BYTES = 128
"""Size of the lower memory and of an upper page, in bytes."""
LANES = (1, 2, 3, 4)
"""Numbers of the lanes."""

# Lower memory.
IDENTIFIER, REVISION, STATUS = 0, 1, 2
FLAT_MEMORY_BIT, INTERRUPT_RELEASED_BIT, DATA_NOT_READY_BIT = 0x04, 0x02, 0x01
"""Bits of the status byte. The second is the level of the IntL pin: 0 while the interrupt is asserted."""
LOS_FLAGS, FAULT_FLAGS, LOL_FLAGS, TEMPERATURE_FLAGS, SUPPLY_FLAGS = 3, 4, 5, 6, 7
RX_POWER_FLAGS, TX_BIAS_FLAGS, TX_POWER_FLAGS = 9, 11, 13
LAST_FLAGS = 21
INIT_COMPLETE_BIT = 0x01
"""Bit of ``TEMPERATURE_FLAGS``."""
TEMPERATURE, SUPPLY, RX_POWER, TX_BIAS, TX_POWER = 22, 26, 34, 42, 50
TX_DISABLE, RX_RATE_SELECT, TX_RATE_SELECT, POWER_CONTROL, CDR_CONTROL = 86, 87, 88, 93, 98
OVERRIDE_BIT, LOW_POWER_BIT, ENABLE_5_TO_7_BIT, ENABLE_8_BIT, SOFTWARE_RESET_BIT = 0x01, 0x02, 0x04, 0x08, 0x80
"""Bits of the power control byte (Table 6-10)."""
FIRST_MASK, LAST_MASK = 100, 104
MAX_POWER = 107
PASSWORD_CHANGE, PASSWORD_ENTRY, PAGE_SELECT = 119, 123, 127

# Upper page 00h.
EXTENDED_IDENTIFIER, CONNECTOR, COMPLIANCE, ENCODING, SIGNALLING_RATE = 129, 130, 131, 139, 140
RATE_SELECT_VERSION, LENGTHS, TECHNOLOGY = 141, 142, 147
VENDOR_NAME, PART_NUMBER, VENDOR_REVISION = 148, 168, 184
WAVELENGTH, WAVELENGTH_TOLERANCE, BASE_CHECKSUM, EXTENDED_COMPLIANCE = 186, 188, 191, 192
SERIAL_NUMBER, DATE_CODE = 196, 212
EXTENDED_SIGNALLING_RATE, EXTENDED_CHECKSUM = 222, 223

# Upper page 03h.
THRESHOLDS: Mapping[str, int] = MappingProxyType(
    {"temperature": 128, "supply": 144, "rx_power": 176, "tx_bias": 184, "tx_power": 192}
)
"""First byte of the four thresholds of a monitor: high alarm, low alarm, high warning, low warning."""
SQUELCH_DISABLE, OUTPUT_DISABLE = 240, 241
FIRST_MONITOR_MASK, LAST_MONITOR_MASK = 242, 247

FLAG_MASKS: Mapping[int, tuple[int | None, int]] = MappingProxyType(
    {byte: (None, FIRST_MASK + byte - LOS_FLAGS) for byte in range(LOS_FLAGS, SUPPLY_FLAGS + 1)}
    | {byte: (3, FIRST_MONITOR_MASK + byte - RX_POWER_FLAGS) for byte in range(RX_POWER_FLAGS, TX_POWER_FLAGS + 2)}
)
"""Page and byte of the interrupt masks of each flag byte; page ``None`` is the lower memory."""

OPTION_BITS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "tx_cdr_control": (194, 7),
        "rx_cdr_control": (194, 6),
        "tx_cdr_lol": (194, 5),
        "rx_cdr_lol": (194, 4),
        "rx_squelch_disable": (194, 3),
        "rx_output_disable": (194, 2),
        "tx_squelch_disable": (194, 1),
        "tx_squelch": (194, 0),
        "page_02h": (195, 7),
        "page_01h": (195, 6),
        "rate_select": (195, 5),
        "tx_disable": (195, 4),
        "tx_fault": (195, 3),
        "tx_squelch_of_average_power": (195, 2),
        "tx_los": (195, 1),
        "temperature_monitor": (220, 5),
        "supply_monitor": (220, 4),
        "rx_average_power": (220, 3),
        "tx_power_monitor": (220, 2),
        "init_complete_flag": (221, 4),
        "extended_rate_select": (221, 3),
        "software_reset": (221, 0),
    }
)
"""Byte and bit of each option that a profile can advertise (Tables 6-22 to 6-24)."""
