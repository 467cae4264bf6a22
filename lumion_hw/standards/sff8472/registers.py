"""Register map of SFP/SFP+ modules: fields, bits and checksums.

Source: SFF-8472 Rev 12.x; the table numbers in this file are unverified. Multi-byte values are big-endian.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lumion_hw.standards.registers import Access, Checksum, NumberFormat, Register

A0H = 0x50
"""7-bit I2C address of the identity memory (8-bit form A0h)."""
A2H = 0x51
"""7-bit I2C address of the diagnostic memory (8-bit form A2h)."""
MEMORY_SIZE = 256
"""Number of bytes of each I2C device."""


@dataclass(frozen=True)
class SfpField(Register):
    """One field of the SFP register map.

    Attributes:
        space: I2C address of the device, ``A0H`` or ``A2H``.
        write_mask: Bits that the host can write, for a one-byte field that is partly writable.
    """

    space: int
    write_mask: int = 0


def _field(
    name: str,
    device: int,
    byte: int,
    length: int,
    kind: NumberFormat = NumberFormat.UINT,
    scale: Fraction = Fraction(1),
    unit: str = "",
    *,
    access: Access = Access.RO,
    write_mask: int = 0,
) -> SfpField:
    return SfpField(name, device, byte, None, length, kind, scale, unit, access, write_mask=write_mask)


def _bit(name: str, device: int, byte: int, bit: int) -> SfpField:
    return SfpField(name, device, byte, (bit, bit), kind=NumberFormat.BOOL)


CHECKSUMS: dict[str, Checksum] = {
    item.name: item
    for item in (
        Checksum("CC_BASE", A0H, 0, 62, 63),
        Checksum("CC_EXT", A0H, 64, 94, 95),
        Checksum("CC_DMI", A2H, 0, 94, 95),
    )
}
"""The three checksums, SFF-8472 Tables 4-1 and 9-1."""


def _thresholds(quantity: str, offset: int, kind: NumberFormat, scale: Fraction, unit: str) -> tuple[SfpField, ...]:
    """Return the four thresholds of one monitor: high alarm, low alarm, high warning, low warning."""
    names = ("high_alarm", "low_alarm", "high_warning", "low_warning")
    return tuple(
        _field(f"{quantity}_{name}", A2H, offset + 2 * index, 2, kind, scale, unit) for index, name in enumerate(names)
    )


_IDENTITY: tuple[SfpField, ...] = (
    _field("identifier", A0H, 0, 1),
    _field("ext_identifier", A0H, 1, 1),
    _field("connector", A0H, 2, 1),
    _field("transceiver_codes", A0H, 3, 8, NumberFormat.BYTES),
    _field("encoding", A0H, 11, 1),
    _field("nominal_rate", A0H, 12, 1, NumberFormat.UINT, Fraction(100), "MBd"),
    _field("rate_identifier", A0H, 13, 1),
    _field("length_smf_km", A0H, 14, 1, NumberFormat.UINT, Fraction(1), "km"),
    _field("length_smf_100m", A0H, 15, 1, NumberFormat.UINT, Fraction(100), "m"),
    _field("length_om2", A0H, 16, 1, NumberFormat.UINT, Fraction(10), "m"),
    _field("length_om1", A0H, 17, 1, NumberFormat.UINT, Fraction(10), "m"),
    _field("length_om4", A0H, 18, 1, NumberFormat.UINT, Fraction(10), "m"),
    _field("length_om3", A0H, 19, 1, NumberFormat.UINT, Fraction(10), "m"),
    _field("vendor_name", A0H, 20, 16, NumberFormat.ASCII),
    _field("ext_compliance", A0H, 36, 1),
    _field("vendor_oui", A0H, 37, 3, NumberFormat.BYTES),
    _field("part_number", A0H, 40, 16, NumberFormat.ASCII),
    _field("revision", A0H, 56, 4, NumberFormat.ASCII),
    _field("wavelength", A0H, 60, 2, NumberFormat.UINT, Fraction(1), "nm"),
    _field("wavelength_fraction", A0H, 62, 1, NumberFormat.UINT, Fraction(1, 100), "nm"),
    _field("cc_base", A0H, 63, 1),
    _field("option_values", A0H, 64, 2, NumberFormat.BYTES),
    _field("rate_margin_max", A0H, 66, 1, NumberFormat.UINT, Fraction(1), "%"),
    _field("rate_margin_min", A0H, 67, 1, NumberFormat.UINT, Fraction(1), "%"),
    _field("serial_number", A0H, 68, 16, NumberFormat.ASCII),
    _field("date_code", A0H, 84, 8, NumberFormat.ASCII),
    _field("diagnostic_type", A0H, 92, 1),
    _field("enhanced_options", A0H, 93, 1),
    _field("compliance", A0H, 94, 1),
    _field("cc_ext", A0H, 95, 1),
    _field("vendor_specific", A0H, 96, 32, NumberFormat.BYTES),
)
"""A0h, SFF-8472 Table 4-1."""

_FACTORY_DATA: tuple[SfpField, ...] = (
    *_thresholds("temperature", 0, NumberFormat.INT, Fraction(1, 256), "degC"),
    *_thresholds("supply", 8, NumberFormat.UINT, Fraction(1, 10_000), "V"),
    *_thresholds("tx_bias", 16, NumberFormat.UINT, Fraction(1, 500), "mA"),
    *_thresholds("tx_power", 24, NumberFormat.UINT, Fraction(1, 10**7), "W"),
    *_thresholds("rx_power", 32, NumberFormat.UINT, Fraction(1, 10**7), "W"),
    # A2h calibration constants, Table 9-6: slopes are U8.8, offsets in counts of the monitor.
    _field("cal_rx_power_4", A2H, 56, 4, NumberFormat.F32),
    _field("cal_rx_power_3", A2H, 60, 4, NumberFormat.F32),
    _field("cal_rx_power_2", A2H, 64, 4, NumberFormat.F32),
    _field("cal_rx_power_1", A2H, 68, 4, NumberFormat.F32),
    _field("cal_rx_power_0", A2H, 72, 4, NumberFormat.F32),
    _field("cal_tx_bias_slope", A2H, 76, 2, NumberFormat.UINT, Fraction(1, 256)),
    _field("cal_tx_bias_offset", A2H, 78, 2, NumberFormat.INT),
    _field("cal_tx_power_slope", A2H, 80, 2, NumberFormat.UINT, Fraction(1, 256)),
    _field("cal_tx_power_offset", A2H, 82, 2, NumberFormat.INT),
    _field("cal_temperature_slope", A2H, 84, 2, NumberFormat.UINT, Fraction(1, 256)),
    _field("cal_temperature_offset", A2H, 86, 2, NumberFormat.INT),
    _field("cal_supply_slope", A2H, 88, 2, NumberFormat.UINT, Fraction(1, 256)),
    _field("cal_supply_offset", A2H, 90, 2, NumberFormat.INT),
    _field("cc_dmi", A2H, 95, 1),
)
"""A2h thresholds (Table 9-5) and calibration constants (Table 9-6)."""

_LIVE_FIELDS: tuple[SfpField, ...] = (
    _field("temperature", A2H, 96, 2, NumberFormat.INT, Fraction(1, 256), "degC"),
    _field("supply", A2H, 98, 2, NumberFormat.UINT, Fraction(1, 10_000), "V"),
    _field("tx_bias", A2H, 100, 2, NumberFormat.UINT, Fraction(1, 500), "mA"),
    _field("tx_power", A2H, 102, 2, NumberFormat.UINT, Fraction(1, 10**7), "W"),
    _field("rx_power", A2H, 104, 2, NumberFormat.UINT, Fraction(1, 10**7), "W"),
    # A2h status, control and flags, Tables 9-11 to 9-14.
    _field("status_control", A2H, 110, 1, NumberFormat.UINT, access=Access.RW, write_mask=0b0100_1000),
    _field("alarm_flags", A2H, 112, 2),
    _field("tx_input_equalization", A2H, 114, 1, NumberFormat.UINT, access=Access.RW),
    _field("rx_output_emphasis", A2H, 115, 1, NumberFormat.UINT, access=Access.RW),
    _field("warning_flags", A2H, 116, 2),
    _field("ext_status_control", A2H, 118, 1, NumberFormat.UINT, access=Access.RW, write_mask=0b0000_1001),
    _field("password", A2H, 123, 4, NumberFormat.BYTES, access=Access.WO),
    _field("page_select", A2H, 127, 1, NumberFormat.UINT, access=Access.RW),
    _field("user_eeprom", A2H, 128, 120, NumberFormat.BYTES, access=Access.RW),
    _field("vendor_control", A2H, 248, 8, NumberFormat.BYTES, access=Access.RO),
)
"""A2h monitors, status, control and flags, Tables 9-11 to 9-14."""

FIELDS: dict[str, SfpField] = {field.name: field for field in (*_IDENTITY, *_FACTORY_DATA, *_LIVE_FIELDS)}

BITS: dict[str, SfpField] = {
    bit.name: bit
    for bit in (
        # Transceiver codes, Table 5-3 (byte 3); all of them are in sff8472/codes.py.
        _bit("code_10gbase_er", A0H, 3, 7),
        _bit("code_10gbase_lrm", A0H, 3, 6),
        _bit("code_10gbase_lr", A0H, 3, 5),
        _bit("code_10gbase_sr", A0H, 3, 4),
        # Options, Table 8-3.
        _bit("power_level_3", A0H, 64, 5),
        _bit("paging_implemented", A0H, 64, 4),
        _bit("retimer", A0H, 64, 3),
        _bit("cooled", A0H, 64, 2),
        _bit("power_level_2", A0H, 64, 1),
        _bit("linear_rx", A0H, 64, 0),
        _bit("rx_decision_threshold", A0H, 65, 7),
        _bit("tunable", A0H, 65, 6),
        _bit("rate_select", A0H, 65, 5),
        _bit("tx_disable_implemented", A0H, 65, 4),
        _bit("tx_fault_implemented", A0H, 65, 3),
        _bit("los_inverted", A0H, 65, 2),
        _bit("los_implemented", A0H, 65, 1),
        # Diagnostic monitoring type, Table 8-5.
        _bit("ddm_implemented", A0H, 92, 6),
        _bit("internally_calibrated", A0H, 92, 5),
        _bit("externally_calibrated", A0H, 92, 4),
        _bit("rx_power_is_average", A0H, 92, 3),
        _bit("address_change_required", A0H, 92, 2),
        # Enhanced options, Table 8-6.
        _bit("flags_implemented", A0H, 93, 7),
        _bit("soft_tx_disable_implemented", A0H, 93, 6),
        _bit("soft_tx_fault_implemented", A0H, 93, 5),
        _bit("soft_rx_los_implemented", A0H, 93, 4),
        _bit("soft_rate_select_implemented", A0H, 93, 3),
        # Status and control, Table 9-11.
        _bit("tx_disable_state", A2H, 110, 7),
        _bit("soft_tx_disable", A2H, 110, 6),
        _bit("rs1_state", A2H, 110, 5),
        _bit("rs0_state", A2H, 110, 4),
        _bit("soft_rs0_select", A2H, 110, 3),
        _bit("tx_fault", A2H, 110, 2),
        _bit("rx_los", A2H, 110, 1),
        _bit("data_not_ready", A2H, 110, 0),
        # Extended status and control, Table 9-14.
        _bit("soft_rs1_select", A2H, 118, 3),
        _bit("power_level_state", A2H, 118, 1),
        _bit("power_level_select", A2H, 118, 0),
    )
}

FLAG_BITS: dict[str, int] = {
    "temperature_high": 15,
    "temperature_low": 14,
    "supply_high": 13,
    "supply_low": 12,
    "tx_bias_high": 11,
    "tx_bias_low": 10,
    "tx_power_high": 9,
    "tx_power_low": 8,
    "rx_power_high": 7,
    "rx_power_low": 6,
}
"""Bit numbers within ``alarm_flags`` and ``warning_flags`` (Tables 9-12 and 9-13)."""
