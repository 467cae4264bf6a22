"""Pages 1Ah (advertisements, flags, controls) and 1Bh (set points, monitors) of external laser sources.

External laser small form factor pluggable (ELSFP) modules follow OIF-ELSFP-CMIS-01.0 tables 4 to 12. The addresses
agree with one public implementation and were not checked against the document.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from lumion_hw.standards.cmis.fields import LANES, LIMITS, Certainty, Field, bit, lane_bits
from lumion_hw.standards.cmis.lane_pages import MEDIA
from lumion_hw.standards.registers import Access, Array, NumberFormat

ELSFP = "external laser source"
"""Condition in ``Field.support``: the module is an external laser source (ELSFP)."""
_CONTROL = 0x1A
_MONITORS = 0x1B
_PER_10_UW = Fraction(1, 100)  # mW
_PER_100_UA = Fraction(1, 10)  # mA
_BY_BYTE = Array(MEDIA, LANES, 8)
_BY_WORD = Array(MEDIA, LANES, 16)
_ALL_LASERS = 32
_LATCHED = "assumed to be cleared by reading"


def _power(name: str, page: int, byte: int) -> Field:
    return Field(name, page, byte, length=2, scale=_PER_10_UW, unit="mW", support=ELSFP, certainty=Certainty.CHECK)


def _bias(name: str, page: int, byte: int) -> Field:
    return Field(name, page, byte, length=2, scale=_PER_100_UA, unit="mA", support=ELSFP, certainty=Certainty.CHECK)


def _code(name: str, byte: int, bits: tuple[int, int], stride_bits: int) -> Field:
    return Field(
        name,
        _CONTROL,
        byte,
        bits,
        kind=NumberFormat.ENUM,
        codes=name,
        array=Array(MEDIA, LANES, stride_bits),
        support=ELSFP,
        certainty=Certainty.CHECK,
    )


def _bits(name: str, byte: int, access: Access = Access.RO, note: str = "") -> Field:
    return lane_bits(name, _CONTROL, byte, MEDIA, access=access, support=ELSFP, certainty=Certainty.CHECK, note=note)


def _all_lasers(name: str, byte: int) -> Field:
    field = bit(name, _CONTROL, byte, 0, access=Access.COR, support=ELSFP, certainty=Certainty.CHECK, note=_LATCHED)
    return replace(field, array=Array("laser", _ALL_LASERS, 1))


_LIMITED = tuple(f"laser_{quantity}_{limit}" for quantity in ("bias", "power") for limit in LIMITS)

PAGE_1AH: tuple[Field, ...] = (
    _power("laser_power_max", _CONTROL, 128),
    _power("laser_power_min", _CONTROL, 130),
    _bias("laser_bias_max", _CONTROL, 132),
    _bias("laser_bias_min", _CONTROL, 134),
    Field("laser_count", _CONTROL, 140, (7, 1), support=ELSFP, certainty=Certainty.CHECK),
    Field(
        "laser_control_mode",
        _CONTROL,
        140,
        (0, 0),
        kind=NumberFormat.ENUM,
        codes="laser_control_mode",
        support=ELSFP,
        certainty=Certainty.CHECK,
    ),
    *(_bias(f"laser_bias_{limit}_threshold", _CONTROL, 141 + 2 * order) for order, limit in enumerate(LIMITS)),
    *(_power(f"laser_power_{limit}_threshold", _CONTROL, 149 + 2 * order) for order, limit in enumerate(LIMITS)),
    bit("laser_warning_summary", _CONTROL, 165, 3, support=ELSFP, certainty=Certainty.CHECK),
    bit("laser_fault_summary", _CONTROL, 165, 2, support=ELSFP, certainty=Certainty.CHECK),
    _all_lasers("laser_fault_flag", 166),
    _all_lasers("laser_warning_flag", 174),
    Field("laser_save_restore", _CONTROL, 184, access=Access.RW, support=ELSFP, certainty=Certainty.CHECK),
    Field("laser_save_restore_status", _CONTROL, 185, support=ELSFP, certainty=Certainty.CHECK),
    *(_bits(f"{name}_flag", 186 + order, Access.COR, _LATCHED) for order, name in enumerate(_LIMITED)),
    *(_bits(f"{name}_mask", 198 + order, Access.RW) for order, name in enumerate(_LIMITED)),
    _bits("laser_alarm_summary_mask", 210, Access.RW),
    _bits("laser_warning_summary_mask", 211, Access.RW),
    _code("laser_fault_code", 212, (3, 0), 8),
    _code("laser_warning_code", 212, (7, 4), 8),
    _bits("laser_enable", 220, Access.RW),
    _code("laser_state", 221, (1, 0), 2),
    _bits("laser_fibre_checked", 223, Access.RW),
    Field("laser_fibre", _CONTROL, 224, array=_BY_BYTE, support=ELSFP, certainty=Certainty.CHECK),
    Field(
        "laser_frequency",
        _CONTROL,
        232,
        length=2,
        scale=Fraction(5),
        unit="GHz",
        array=_BY_WORD,
        support=ELSFP,
        certainty=Certainty.CHECK,
    ),
    Field("laser_check_power", _CONTROL, 248, unit="mW", support=ELSFP, certainty=Certainty.CHECK),
)
"""Fields of page 1Ah."""

PAGE_1BH: tuple[Field, ...] = (
    replace(_bias("laser_bias_setpoint", _MONITORS, 128), array=_BY_WORD, access=Access.RW),
    replace(_power("laser_power_setpoint", _MONITORS, 144), array=_BY_WORD, access=Access.RW),
    replace(_bias("laser_bias", _MONITORS, 184), array=_BY_WORD),
    replace(_power("laser_power", _MONITORS, 200), array=_BY_WORD),
    Field(
        "laser_voltage",
        _MONITORS,
        232,
        scale=Fraction(15, 1000),
        unit="V",
        array=_BY_BYTE,
        support=ELSFP,
        certainty=Certainty.CHECK,
    ),
    Field(
        "laser_supply_current",
        _MONITORS,
        240,
        length=2,
        scale=Fraction(1, 5),
        unit="mA",
        support=ELSFP,
        certainty=Certainty.CHECK,
    ),
)
"""Fields of page 1Bh."""
