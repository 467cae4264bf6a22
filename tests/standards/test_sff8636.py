"""The SFF-8636 map: places, numbers and codes.

``tests/data/sff8636_golden.csv`` was typed from ``qsfp.h`` of ethtool 6.1, the memory map of SONiC, the register list
of surf for revision 2.11 and C headers of the pages; ``tests/data/sff8636_values.csv`` has bytes of public dumps with
the values that ethtool 6.1 prints for them. Nothing in either comes from our map or decoder.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from lumion_hw.drivers.transponders.qsfp_identity import QsfpCapabilities
from lumion_hw.quantities import dbm_from_w
from lumion_hw.standards.registers import Access, checksum, number
from lumion_hw.standards.sff8636 import codes
from lumion_hw.standards.sff8636.registers import (
    CHECKSUMS,
    FIELDS,
    FLAG_BYTES,
    FLAGS,
    LANES,
    FieldKey,
    find,
    mask_of_flag,
)
from tests.every import for_every
from tests.golden import records


def _key(record: dict[str, str]) -> FieldKey:
    return record["field"], int(record["lane"]) if record["lane"] else None


PLACES = {_key(record): record for record in records("sff8636_golden.csv")}
VALUES = records("sff8636_values.csv")
PAGES = {"lower": None, "00": 0x00, "01": 0x01, "02": 0x02, "03": 0x03}
RESOLUTION = {"dBm": 0.0051, "degC": 0.0051, "V": 0.00006, "mA": 0.0006, "nm": 0.0006}


def test_the_list_has_every_field_once() -> None:
    assert PLACES.keys() == FIELDS.keys()
    assert len(records("sff8636_golden.csv")) == len(FIELDS)


@for_every(PLACES)
def test_a_field_lies_where_the_standard_puts_it(key: FieldKey) -> None:
    field, record = FIELDS[key], PLACES[key]
    assert (field.space, field.byte) == (PAGES[record["page"]], int(record["byte"]))
    bits = (int(record["high_bit"]), int(record["low_bit"])) if record["high_bit"] else None
    assert field.bits == bits


@for_every(VALUES, name=lambda record: f"{record['field']}-{record['bytes']}")
def test_bytes_of_real_modules_have_the_values_that_ethtool_prints(record: dict[str, str]) -> None:
    field = find(*_key(record))
    value = number(field, bytes.fromhex(record["bytes"]))
    shown = dbm_from_w(value) if record["unit"] == "dBm" else value
    assert shown == pytest.approx(float(record["value"]), abs=RESOLUTION.get(record["unit"], 1e-9))


def test_fields_share_bytes_only_where_the_meaning_differs() -> None:
    """Of two fields on the same bits, at most one can be supported by a module."""
    alternatives = {"attenuation", "copper", "optical", "cable", "om4"}
    owners: dict[tuple[int | None, int, int], str] = {}
    for field in FIELDS.values():
        for byte in field.span():
            for bit in range(8):
                if field.bits is None or field.bits[1] <= bit <= field.bits[0]:
                    other = owners.setdefault((field.space, byte, bit), field.name)
                    if other != field.name and other != "ext_identifier":
                        assert {field.support, find(other).support} <= alternatives, (field.name, other)


def test_every_condition_of_a_field_is_a_capability() -> None:
    assert {field.support for field in FIELDS.values()} - {""} <= set(QsfpCapabilities.__annotations__)


def test_flags_are_exactly_the_bytes_that_reading_clears() -> None:
    assert {field.byte for field in FLAGS} <= set(FLAG_BYTES)
    assert all(field.access is Access.COR and field.space is None for field in FLAGS)
    assert {field.name for field in FLAGS if mask_of_flag(field) is None} == {"initialization_complete_flag"}


def test_a_mask_has_the_bits_of_its_flag() -> None:
    """Bytes 100 to 104 mask bytes 3 to 7, and bytes 242 to 247 of page 03h mask bytes 9 to 14."""
    for flag in FLAGS:
        mask = mask_of_flag(flag)
        if mask is not None:
            offset = 97 if flag.byte < 9 else 233
            assert (mask.byte, mask.bits) == (flag.byte + offset, flag.bits), flag.name


def test_checksums_cover_what_the_standard_says() -> None:
    cover = {name: (item.first, item.last, item.byte) for name, item in CHECKSUMS.items()}
    assert cover == {"CC_BASE": (128, 190, 191), "CC_EXT": (192, 222, 223)}
    assert checksum([0xFF, 0x02]) == 0x01


@pytest.mark.parametrize(
    ("name", "scale", "unit"),
    [
        ("temperature", Fraction(1, 256), "degC"),
        ("supply", Fraction(1, 10_000), "V"),
        ("max_power", Fraction(1, 10), "W"),
        ("propagation_delay", Fraction(10), "ns"),
        ("nominal_rate", Fraction(100), "MBd"),
        ("nominal_rate_high", Fraction(250), "MBd"),
        ("length_om3", Fraction(2), "m"),
        ("length_om4", Fraction(2), "m"),
        ("wavelength", Fraction(1, 20), "nm"),
        ("wavelength_tolerance", Fraction(1, 200), "nm"),
    ],
)
def test_units_are_those_of_the_standard(name: str, scale: Fraction, unit: str) -> None:
    assert (find(name).scale, find(name).unit) == (scale, unit)


@pytest.mark.parametrize(
    ("byte", "expected", "power_w"),
    [
        (0x00, 1, 1.5),
        (0x40, 2, 2.0),
        (0x80, 3, 2.5),
        (0xC0, 4, 3.5),
        (0xCC, 4, 3.5),
        (0xC1, 5, 4.0),
        (0xCE, 6, 4.5),
        (0xCF, 7, 5.0),
        (0x20, 8, 7.2),
        (0xEF, 8, 7.2),
    ],
)
def test_power_classes(byte: int, expected: int, power_w: float) -> None:
    """SFF-8636 Table 6-16, as also listed by SONiC; byte 107 is 72 here, in units of 0.1 W."""
    assert codes.power_class(byte) == expected
    assert codes.max_power_w(byte, 72) == power_w


def test_class_8_without_a_power_is_unknown() -> None:
    assert codes.max_power_w(0x20, 0) is None
    assert codes.max_power_w(0xC0, 0) == 3.5


def test_codes_of_sff8024_differ_from_those_of_sfp_modules() -> None:
    """In the encodings of SFF-8636, Manchester is 06h; in those of SFF-8472 it is 04h."""
    assert (codes.ENCODINGS[0x04], codes.ENCODINGS[0x05], codes.ENCODINGS[0x06]) == (
        "SONET scrambled",
        "64B/66B",
        "Manchester",
    )
    assert codes.EXTENDED_COMPLIANCE[0x03] == "100GBASE-LR4 or 25GBASE-LR"
    assert len(LANES) == 4
