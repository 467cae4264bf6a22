"""CMIS pages 00h (identity), 02h (thresholds), 03h (user EEPROM) and 04h (laser capabilities)."""

from __future__ import annotations

from fractions import Fraction

from lumion_hw.standards.cmis.fields import LIMITS, Field, bit
from lumion_hw.standards.cmis.lower_memory import PER_100_UV, PER_256_C
from lumion_hw.standards.registers import Access, Array, Checksum, NumberFormat

PER_0_1_UW = Fraction(1, 10_000)
"""Milliwatts per count of an optical power."""
PER_2_UA = Fraction(2, 1000)
"""Milliamperes per count of a laser bias, before the multiplier of ``bias_scale``."""
PER_0_01_DBM = Fraction(1, 100)
"""dBm per count of a power in dBm."""

CHECKSUMS: tuple[Checksum, ...] = (
    Checksum("00h:222", 0x00, 128, 221, 222),
    Checksum("01h:255", 0x01, 130, 254, 255),
    Checksum("02h:255", 0x02, 128, 254, 255),
    Checksum("04h:255", 0x04, 128, 254, 255),
)
"""Page checksums."""


def _text(name: str, byte: int, length: int) -> Field:
    return Field(name, 0x00, byte, length=length, kind=NumberFormat.ASCII)


PAGE_00H: tuple[Field, ...] = (
    Field("identifier_copy", 0x00, 128, kind=NumberFormat.ENUM, codes="identifier"),
    _text("vendor_name", 129, 16),
    Field("vendor_oui", 0x00, 145, length=3, kind=NumberFormat.BYTES),
    _text("part_number", 148, 16),
    _text("vendor_revision", 164, 2),
    _text("serial_number", 166, 16),
    _text("date_code", 182, 8),
    _text("clei_code", 190, 10),
    Field("power_class", 0x00, 200, (7, 5), note="power class - 1"),
    Field("max_power", 0x00, 201, scale=Fraction(1, 4), unit="W"),
    Field("cable_length_multiplier", 0x00, 202, (7, 6), note="0.1, 1, 10, 100 m"),
    Field("cable_length_base", 0x00, 202, (5, 0), note="0 with multiplier 0: separable"),
    Field("connector", 0x00, 203, kind=NumberFormat.ENUM, codes="connector"),
    Field(
        "copper_attenuation",
        0x00,
        204,
        length=5,
        kind=NumberFormat.BYTES,
        note="dB at 5, 7, 12.9, 25.8 and, from CMIS 5.4, 53.1 GHz",
    ),
    Field(
        "media_lane_unsupported",
        0x00,
        210,
        (0, 0),
        kind=NumberFormat.BOOL,
        array=Array("media lane", 8, 1),
        note="1: the lane is absent",
    ),
    Field("far_end_configuration", 0x00, 211, (4, 0)),
    Field("media_technology", 0x00, 212, kind=NumberFormat.ENUM, codes="technology"),
    Field("page_00h_checksum", 0x00, 222),
    Field("vendor_nv", 0x00, 223, length=33, kind=NumberFormat.BYTES),
)
"""Fields of page 00h, upper half."""


def _thresholds(
    prefix: str, byte: int, kind: NumberFormat, scale: Fraction, unit: str, multiplier: str = ""
) -> tuple[Field, ...]:
    return tuple(
        Field(
            f"{prefix}_{limit}_threshold",
            0x02,
            byte + 2 * index,
            length=2,
            kind=kind,
            scale=scale,
            unit=unit,
            multiplier=multiplier,
            support=f"{prefix}_monitor_supported",
        )
        for index, limit in enumerate(LIMITS)
    )


_ONE = Fraction(1)

PAGE_02H: tuple[Field, ...] = (
    *_thresholds("temperature", 128, NumberFormat.INT, PER_256_C, "degC"),
    *_thresholds("supply", 136, NumberFormat.UINT, PER_100_UV, "V"),
    *_thresholds("aux1", 144, NumberFormat.INT, _ONE, ""),
    *_thresholds("aux2", 152, NumberFormat.INT, _ONE, ""),
    *_thresholds("aux3", 160, NumberFormat.INT, _ONE, ""),
    *_thresholds("custom", 168, NumberFormat.UINT, _ONE, ""),
    *_thresholds("tx_power", 176, NumberFormat.UINT, PER_0_1_UW, "mW"),
    *_thresholds("tx_bias", 184, NumberFormat.UINT, PER_2_UA, "mA", "bias_scale"),
    *_thresholds("rx_power", 192, NumberFormat.UINT, PER_0_1_UW, "mW"),
    Field("page_02h_checksum", 0x02, 255),
)
"""Fields of page 02h."""

PAGE_03H: tuple[Field, ...] = (
    Field(
        "user_eeprom", 0x03, 128, length=128, kind=NumberFormat.BYTES, access=Access.RW, support="page_03h_supported"
    ),
)
"""Page 03h: user EEPROM."""

GRID_NAMES = ("3_125ghz", "6_25ghz", "12_5ghz", "25ghz", "50ghz", "100ghz", "33ghz", "75ghz", "150ghz")
"""Frequency grids as spelled in field names; the index is the grid code."""
_TUNABLE = "transmitter_tunable"


def _laser_grids() -> tuple[Field, ...]:
    supported = tuple(bit(f"grid_{name}_supported", 0x04, 128, code) for code, name in enumerate(GRID_NAMES[:8]))
    limits = tuple(
        Field(
            f"grid_{name}_{end}_channel",
            0x04,
            130 + 4 * code + offset,
            length=2,
            kind=NumberFormat.INT,
            support=f"grid_{name}_supported",
        )
        for code, name in enumerate(GRID_NAMES)
        for end, offset in (("low", 0), ("high", 2))
    )
    return (
        *supported,
        bit("grid_150ghz_supported", 0x04, 129, 6, support=_TUNABLE, note="CMIS 5.3 and later"),
        *limits,
    )


PAGE_04H: tuple[Field, ...] = (
    *_laser_grids(),
    bit("fine_tuning_supported", 0x04, 129, 7, support=_TUNABLE),
    Field("fine_tuning_resolution", 0x04, 190, length=2, unit="MHz", support="fine_tuning_supported"),
    Field("fine_tuning_low", 0x04, 192, length=2, kind=NumberFormat.INT, unit="MHz", support="fine_tuning_supported"),
    Field("fine_tuning_high", 0x04, 194, length=2, kind=NumberFormat.INT, unit="MHz", support="fine_tuning_supported"),
    bit("programmable_power_supported", 0x04, 196, 7, support=_TUNABLE),
    Field(
        "min_output_power",
        0x04,
        198,
        length=2,
        kind=NumberFormat.INT,
        scale=PER_0_01_DBM,
        unit="dBm",
        support="programmable_power_supported",
    ),
    Field(
        "max_output_power",
        0x04,
        200,
        length=2,
        kind=NumberFormat.INT,
        scale=PER_0_01_DBM,
        unit="dBm",
        support="programmable_power_supported",
    ),
    Field("page_04h_checksum", 0x04, 255, support=_TUNABLE),
)
