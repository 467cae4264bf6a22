"""Register map of QSFP+ and QSFP28 modules: fields, bits and checksums.

Source: SFF-8636 Rev 2.11; the table numbers in this file are unverified. Multi-byte values are big-endian. Bytes 0 to
127 are the lower memory (space ``None``); bytes 128 to 255 are one of the pages 00h to 03h.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from lumion_hw.standards.registers import Access, Checksum, NumberFormat, Register

LANES = (1, 2, 3, 4)
"""Numbers of the four lanes."""
IDENTITY_PAGE, USER_PAGE, THRESHOLD_PAGE = 0x00, 0x02, 0x03
PAGE_SELECT_BYTE = 127
FLAT_MEMORY_BYTE, FLAT_MEMORY = 2, 0x04
"""Byte and mask of the bit that says that the module has only page 00h."""
FLAG_BYTES = range(3, 22)
"""Bytes of the lower memory that reading clears: latched flags."""
LIMITS = ("high_alarm", "low_alarm", "high_warning", "low_warning")
"""Names of the four limits, in the order of their bytes and of their flag bits."""

FieldKey = tuple[str, int | None]
"""Name of a field, and its lane; ``None`` for a field of the whole module."""


@dataclass(frozen=True)
class QsfpField(Register):
    """One field of the map; ``space`` is its page, or ``None`` for the lower memory.

    Attributes:
        lane: Lane of the field; ``None`` for the whole module. A field name exists once for each lane.
        support: Name of the attribute of the driver's ``QsfpCapabilities`` that says whether the module has this field;
            empty for fields that all modules have.
    """

    lane: int | None = None
    support: str = ""

    @property
    def key(self) -> FieldKey:
        """Name and lane."""
        return self.name, self.lane


CHECKSUMS: dict[str, Checksum] = {
    item.name: item
    for item in (
        Checksum("CC_BASE", IDENTITY_PAGE, 128, 190, 191),
        Checksum("CC_EXT", IDENTITY_PAGE, 192, 222, 223),
    )
}
"""The two checksums of page 00h (SFF-8636 Table 6-14)."""

_UW_0_1 = (NumberFormat.UINT, Fraction(1, 10**7), "W")
_FORMATS = {
    "temperature": (NumberFormat.INT, Fraction(1, 256), "degC"),
    "supply": (NumberFormat.UINT, Fraction(1, 10_000), "V"),
    "rx_power": _UW_0_1,
    "tx_bias": (NumberFormat.UINT, Fraction(1, 500), "mA"),
    "tx_power": _UW_0_1,
}
MONITORS = tuple(_FORMATS)
"""The five monitors, by field name. The last three exist once for each lane."""
LANE_MONITORS = ("rx_power", "tx_bias", "tx_power")
"""Monitors of each lane, in the order of their bytes."""
POWERS = ("rx_power", "tx_power")
"""Monitors of optical power."""


def _field(
    name: str,
    page: int | None,
    byte: int,
    length: int = 1,
    kind: NumberFormat = NumberFormat.UINT,
    scale: Fraction = Fraction(1),
    unit: str = "",
    *,
    access: Access = Access.RO,
    support: str = "",
    bits: tuple[int, int] | None = None,
) -> QsfpField:
    return QsfpField(name, page, byte, bits, length, kind, scale, unit, access, support=support)


def _bit(
    name: str,
    page: int | None,
    byte: int,
    bit: int,
    *,
    lane: int | None = None,
    access: Access = Access.RO,
    support: str = "",
) -> QsfpField:
    return QsfpField(name, page, byte, (bit, bit), kind=NumberFormat.BOOL, access=access, lane=lane, support=support)


def _lane_bits(name: str, page: int | None, byte: int, low_bit: int, access: Access, support: str) -> list[QsfpField]:
    """Return one bit for each lane, lane 1 lowest."""
    return [_bit(name, page, byte, low_bit + lane - 1, lane=lane, access=access, support=support) for lane in LANES]


def _monitor(name: str, byte: int, lane: int | None = None) -> QsfpField:
    kind, scale, unit = _FORMATS[name]
    return QsfpField(name, None, byte, None, 2, kind, scale, unit, lane=lane, support=name)


def _module_limit_bits(first: int, suffix: str, access: Access) -> list[QsfpField]:
    """Return the flags or masks of temperature (byte ``first``) and supply (the next byte)."""
    return [
        _bit(f"{name}_{limit}{suffix}", None, first + index, 7 - bit, access=access, support=name)
        for index, name in enumerate(("temperature", "supply"))
        for bit, limit in enumerate(LIMITS)
    ]


def _lane_limit_bits(page: int | None, first: int, suffix: str, access: Access) -> list[QsfpField]:
    """Return the flags or masks of the lane monitors: two bytes for each monitor from byte ``first`` on."""
    return [
        # Lanes 1 and 3 are in the upper half of a byte, lanes 2 and 4 in the lower half.
        _bit(
            f"{name}_{limit}{suffix}",
            page,
            first + 2 * index + (lane - 1) // 2,
            (7 if lane % 2 else 3) - bit,
            lane=lane,
            access=access,
            support=name,
        )
        for index, name in enumerate(LANE_MONITORS)
        for lane in LANES
        for bit, limit in enumerate(LIMITS)
    ]


# Lane status flags (bytes 3 to 5) and their masks (bytes 100 to 102) have the same layout.
_STATUS = (
    ("tx_los", 0, 4, "tx_los"),
    ("rx_los", 0, 0, "rx_los"),
    ("tx_eq_fault", 1, 4, "tx_eq_fault"),
    ("tx_fault", 1, 0, "tx_fault"),
    ("tx_lol", 2, 4, "tx_lol"),
    ("rx_lol", 2, 0, "rx_lol"),
)


def _status_bits(first: int, suffix: str, access: Access) -> list[QsfpField]:
    return [
        bit
        for name, offset, low_bit, support in _STATUS
        for bit in _lane_bits(f"{name}{suffix}", None, first + offset, low_bit, access, support)
    ]


_FLAG, _MASK = "_flag", "_mask"

_LOWER: tuple[QsfpField, ...] = (
    _field("identifier", None, 0),
    _field("revision_compliance", None, 1),
    _bit("flat_memory", None, 2, 2),
    _bit("int_l_high", None, 2, 1),  # IntL is low while a flag is set that is not masked
    _bit("data_not_ready", None, 2, 0),
    *_status_bits(3, _FLAG, Access.COR),
    _bit("tc_readiness_flag", None, 6, 1, access=Access.COR, support="tc_readiness"),
    _bit("initialization_complete_flag", None, 6, 0, access=Access.COR, support="initialization_complete"),
    *_module_limit_bits(6, _FLAG, Access.COR),
    *_lane_limit_bits(None, 9, _FLAG, Access.COR),
    _monitor("temperature", 22),
    _monitor("supply", 26),
    *(
        _monitor(name, 34 + 8 * index + 2 * (lane - 1), lane)
        for index, name in enumerate(LANE_MONITORS)
        for lane in LANES
    ),
    *_lane_bits("tx_disable", None, 86, 0, Access.RW, "tx_disable"),
    *(
        QsfpField(
            f"{side}_rate_select",
            None,
            byte,
            (2 * lane - 1, 2 * lane - 2),
            access=Access.RW,
            lane=lane,
            support="rate_select",
        )
        for side, byte in (("rx", 87), ("tx", 88))
        for lane in LANES
    ),
    _bit("software_reset", None, 93, 7, access=Access.WO_SC, support="software_reset"),
    _bit("high_power_class_8_enable", None, 93, 3, access=Access.RW),
    _bit("high_power_class_5_7_enable", None, 93, 2, access=Access.RW),
    _bit("low_power_set", None, 93, 1, access=Access.RW),
    _bit("power_override", None, 93, 0, access=Access.RW),
    *_lane_bits("tx_cdr_on", None, 98, 4, Access.RW, "tx_cdr_control"),
    *_lane_bits("rx_cdr_on", None, 98, 0, Access.RW, "rx_cdr_control"),
    _bit("lp_mode_is_tx_disable", None, 99, 1, access=Access.RW, support="lp_mode_configurable"),
    _bit("int_l_is_rx_los", None, 99, 0, access=Access.RW, support="int_l_configurable"),
    *_status_bits(100, _MASK, Access.RW),
    _bit("tc_readiness_mask", None, 103, 1, access=Access.RW, support="tc_readiness"),
    *_module_limit_bits(103, _MASK, Access.RW),
    _field("max_power", None, 107, 1, NumberFormat.UINT, Fraction(1, 10), "W", support="power_class_8"),
    _field("propagation_delay", None, 108, 2, NumberFormat.UINT, Fraction(10), "ns"),
    _field("low_power_code", None, 110, bits=(7, 4)),
    _bit("far_side_managed", None, 110, 3),
    _field("min_supply_code", None, 110, bits=(2, 0)),
    _field("far_ends", None, 113, bits=(6, 4)),
    _field("near_end_code", None, 113, bits=(3, 0)),
    _field("secondary_ext_compliance", None, 116),
    _field("page_select", None, PAGE_SELECT_BYTE, access=Access.RW),
)
"""Lower memory, SFF-8636 Tables 6-1 to 6-13. Passwords (bytes 119 to 126) are write-only and are not read."""

_BASE_IDENTITY: tuple[QsfpField, ...] = (
    _field("identifier_copy", 0x00, 128),
    _field("ext_identifier", 0x00, 129),
    _bit("clei_present", 0x00, 129, 4),
    _bit("tx_cdr_present", 0x00, 129, 3),
    _bit("rx_cdr_present", 0x00, 129, 2),
    _field("connector", 0x00, 130),
    _field("compliance_codes", 0x00, 131, 8, NumberFormat.BYTES),
    _field("encoding", 0x00, 139),
    _field("nominal_rate", 0x00, 140, 1, NumberFormat.UINT, Fraction(100), "MBd"),
    _field("rate_select_compliance", 0x00, 141),
    _field("length_smf", 0x00, 142, 1, NumberFormat.UINT, Fraction(1), "km", support="optical"),
    _field("length_om3", 0x00, 143, 1, NumberFormat.UINT, Fraction(2), "m", support="optical"),
    _field("length_om2", 0x00, 144, 1, NumberFormat.UINT, Fraction(1), "m", support="optical"),
    _field("length_om1", 0x00, 145, 1, NumberFormat.UINT, Fraction(1), "m", support="optical"),
    _field("attenuation_25_78_ghz", 0x00, 145, 1, NumberFormat.UINT, Fraction(1), "dB", support="attenuation"),
    _field("length_cable", 0x00, 146, 1, NumberFormat.UINT, Fraction(1), "m", support="cable"),
    _field("length_om4", 0x00, 146, 1, NumberFormat.UINT, Fraction(2), "m", support="om4"),
    _field("transmitter", 0x00, 147, bits=(7, 4)),
    _bit("wavelength_control", 0x00, 147, 3),
    _bit("cooled", 0x00, 147, 2),
    _bit("apd_receiver", 0x00, 147, 1),
    _bit("tunable", 0x00, 147, 0),
    _field("vendor_name", 0x00, 148, 16, NumberFormat.ASCII),
    _field("infiniband_codes", 0x00, 164),
    _field("vendor_oui", 0x00, 165, 3, NumberFormat.BYTES),
    _field("part_number", 0x00, 168, 16, NumberFormat.ASCII),
    _field("revision", 0x00, 184, 2, NumberFormat.ASCII),
    _field("wavelength", 0x00, 186, 2, NumberFormat.UINT, Fraction(1, 20), "nm", support="optical"),
    _field("wavelength_tolerance", 0x00, 188, 2, NumberFormat.UINT, Fraction(1, 200), "nm", support="optical"),
    _field("attenuation_2_5_ghz", 0x00, 186, 1, NumberFormat.UINT, Fraction(1), "dB", support="copper"),
    _field("attenuation_5_ghz", 0x00, 187, 1, NumberFormat.UINT, Fraction(1), "dB", support="copper"),
    _field("attenuation_7_ghz", 0x00, 188, 1, NumberFormat.UINT, Fraction(1), "dB", support="attenuation"),
    _field("attenuation_12_9_ghz", 0x00, 189, 1, NumberFormat.UINT, Fraction(1), "dB", support="attenuation"),
    _field("max_case_temperature", 0x00, 190, 1, NumberFormat.UINT, Fraction(1), "degC"),
    _field("cc_base", 0x00, 191),
)
"""Page 00h, base fields, SFF-8636 Table 6-14."""

_OPTIONS: tuple[QsfpField, ...] = tuple(
    _bit(name, 0x00, byte, bit)
    for byte, names in (
        # Bit 7 first; "" is reserved.
        (
            193,
            (
                "",
                "lp_mode_configurable",
                "int_l_configurable",
                "tx_eq_freeze_implemented",
                "tx_eq_adaptive_implemented",
                "tx_eq_fixed_implemented",
                "rx_emphasis_control_implemented",
                "rx_amplitude_control_implemented",
            ),
        ),
        (
            194,
            (
                "tx_cdr_control_implemented",
                "rx_cdr_control_implemented",
                "tx_lol_implemented",
                "rx_lol_implemented",
                "rx_squelch_disable_implemented",
                "rx_output_disable_implemented",
                "tx_squelch_disable_implemented",
                "tx_squelch_implemented",
            ),
        ),
        (
            195,
            (
                "page_02_present",
                "page_01_present",
                "rate_select_implemented",
                "tx_disable_implemented",
                "tx_fault_implemented",
                "tx_squelch_reduces_average",
                "tx_los_implemented",
                "pages_20_21_present",
            ),
        ),
    )
    for bit, name in zip(range(7, -1, -1), names, strict=True)
    if name
)
"""Options, SFF-8636 Table 6-22."""

_EXTENDED_IDENTITY: tuple[QsfpField, ...] = (
    _field("ext_compliance", 0x00, 192),
    *_OPTIONS,
    _field("serial_number", 0x00, 196, 16, NumberFormat.ASCII),
    _field("date_code", 0x00, 212, 8, NumberFormat.ASCII),
    _bit("temperature_monitored", 0x00, 220, 5, support="monitor_bits"),
    _bit("supply_monitored", 0x00, 220, 4, support="monitor_bits"),
    _bit("rx_power_is_average", 0x00, 220, 3, support="rx_power"),
    _bit("tx_power_monitored", 0x00, 220, 2),
    _bit("initialization_complete_implemented", 0x00, 221, 4),
    _bit("extended_rate_select", 0x00, 221, 3),
    _bit("application_select_table", 0x00, 221, 2),
    _bit("tc_readiness_implemented", 0x00, 221, 1),
    _bit("software_reset_implemented", 0x00, 221, 0),
    _field("nominal_rate_high", 0x00, 222, 1, NumberFormat.UINT, Fraction(250), "MBd"),
    _field("cc_ext", 0x00, 223),
    _field("vendor_specific", 0x00, 224, 32, NumberFormat.BYTES),
)
"""Page 00h, extended fields, SFF-8636 Tables 6-22 to 6-26."""

_OTHER_PAGES: tuple[QsfpField, ...] = (
    _field("application_table", 0x01, 128, 128, NumberFormat.BYTES, support="page_01"),
    _field("user_eeprom", USER_PAGE, 128, 128, NumberFormat.BYTES, access=Access.RW, support="page_02"),
)
"""Page 01h (application select table, deprecated) and page 02h (user memory)."""


def _thresholds() -> Iterator[QsfpField]:
    for name, first in (("temperature", 128), ("supply", 144), ("rx_power", 176), ("tx_bias", 184), ("tx_power", 192)):
        kind, scale, unit = _FORMATS[name]
        for index, limit in enumerate(LIMITS):
            yield _field(f"{name}_{limit}", THRESHOLD_PAGE, first + 2 * index, 2, kind, scale, unit, support=name)


_PAGE_03: tuple[QsfpField, ...] = (
    *_thresholds(),
    *_lane_bits("rx_squelch_disable", THRESHOLD_PAGE, 240, 4, Access.RW, "rx_squelch_control"),
    *_lane_bits("tx_squelch_disable", THRESHOLD_PAGE, 240, 0, Access.RW, "tx_squelch_control"),
    *_lane_bits("rx_output_disable", THRESHOLD_PAGE, 241, 4, Access.RW, "rx_output_control"),
    *_lane_bits("tx_eq_adaptive", THRESHOLD_PAGE, 241, 0, Access.RW, "tx_eq_control"),
    *_lane_limit_bits(THRESHOLD_PAGE, 242, _MASK, Access.RW),
)
"""Page 03h: thresholds, lane controls and masks of the lane monitors, SFF-8636 Tables 6-28 to 6-33."""

FIELDS: dict[FieldKey, QsfpField] = {
    field.key: field for field in (*_LOWER, *_BASE_IDENTITY, *_EXTENDED_IDENTITY, *_OTHER_PAGES, *_PAGE_03)
}
"""All fields by name and lane, in the order of their addresses."""

FLAGS: tuple[QsfpField, ...] = tuple(field for field in FIELDS.values() if field.access is Access.COR)
"""Latched flags, which reading clears."""


def find(name: str, lane: int | None = None) -> QsfpField:
    """Return a field. Raises ``KeyError`` if there is no field with this name and lane."""
    return FIELDS[name, lane]


def mask_of_flag(flag: QsfpField) -> QsfpField | None:
    """Return the field that masks the interrupt of a flag; ``None`` for the flag 6.0, which has no mask."""
    return FIELDS.get((flag.name.removesuffix(_FLAG) + _MASK, flag.lane))
