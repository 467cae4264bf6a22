"""Every field of the CMIS map is where the tables of the standard put it, bit by bit.

``tests/data/cmis_golden.csv`` was typed from xcvr-emu (the tables of CMIS 5.2 with their names), a C overlay of the
pages of CMIS 5.4, the memory maps of SONiC and FBOSS, a decoder of CMIS 5.3, and the header of a fork of ethtool for
OIF-C-CMIS-01.3; ``cmis_vdm_golden.csv`` from SONiC. Nothing in them comes from our map.
"""

from __future__ import annotations

from collections import Counter

from lumion_hw.standards.cmis import ALL_FIELDS, FIELDS, Field, NumberFormat, Value, decode_from
from lumion_hw.standards.cmis.vdm import OBSERVABLES
from tests.every import for_every
from tests.golden import kinds_of, place_of, records, scale_of

ROWS = {record["field"]: record for record in records("cmis_golden.csv")}
VDM = {int(record["code"]): record for record in records("cmis_vdm_golden.csv")}
HALF = 128


def _indices(field: Field) -> list[int | None]:
    return [None] if field.array is None else list(field.array.indices)


def _half(bits: frozenset[tuple[int, int]], others: int) -> bytes:
    """128 bytes in which these bits differ from all the others, which are ``others``."""
    half = bytearray([0xFF * others] * HALF)
    for byte, bit in bits:
        half[byte % HALF] ^= 1 << bit
    return bytes(half)


def _without(field: Field, index: int | None, byte: int, bit: int) -> Value:
    """What is decoded if this bit alone is clear, or for a text if its byte is a letter: no bit makes a character."""
    half = bytearray(b"\xff" * HALF)
    half[byte % HALF] = ord("A") if field.kind is NumberFormat.ASCII else 0xFF ^ 1 << bit
    return decode_from(field, bytes(half), index)


def test_the_list_has_every_field_once() -> None:
    assert Counter(record["field"] for record in records("cmis_golden.csv")) == Counter(
        field.name for field in ALL_FIELDS
    )


@for_every(ROWS)
def test_a_field_lies_on_the_bits_of_the_standard(name: str) -> None:
    field, place = FIELDS[name], place_of(ROWS[name])
    page = int(ROWS[name]["page"].removesuffix("h"), 16)
    assert field.page == (None if place.first < HALF else page)
    assert page == 0 or place.first >= HALF
    indices = _indices(field)
    assert len(indices) == place.elements
    for element, index in enumerate(indices):
        ours = {(at.byte, bit) for at in field.locations(index) for bit in range(8) if at.mask >> bit & 1}
        assert ours == place.bits(element), index


@for_every(ROWS)
def test_a_number_is_written_as_the_standard_says(name: str) -> None:
    field = FIELDS[name]
    width, kinds = kinds_of(ROWS[name]["number"])
    assert field.kind in kinds
    assert width in (None, 8 * field.length)
    assert (field.scale, field.unit) == scale_of(ROWS[name]["unit"])


@for_every(ROWS)
def test_the_decoder_reads_these_bits_and_none_beside_them(name: str) -> None:
    """Both sides of every edge: what the bits beside a field are makes no difference, each of its own does."""
    field, place = FIELDS[name], place_of(ROWS[name])
    for element, index in enumerate(_indices(field)):
        bits = place.bits(element)
        nothing = decode_from(field, bytes(HALF), index)
        everything = decode_from(field, b"\xff" * HALF, index)
        assert nothing != everything
        assert decode_from(field, _half(bits, 0), index) == everything, index
        assert decode_from(field, _half(bits, 1), index) == nothing, index
        for byte, bit in bits:
            assert _without(field, index, byte, bit) != everything, (index, byte, bit)


def test_every_vdm_observable_has_the_number_format_of_the_standard() -> None:
    assert OBSERVABLES.keys() == VDM.keys()
    for code, item in OBSERVABLES.items():
        _, kinds = kinds_of(VDM[code]["number"])
        assert item.name == VDM[code]["observable"]
        assert item.kind in kinds, item.name
        assert (item.scale, item.unit) == scale_of(VDM[code]["unit"]), item.name
        assert item.statistic == (VDM[code]["kind"] == "S"), item.name
