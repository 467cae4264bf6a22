"""Every field and bit of the SFF-8472 map is where the standard puts it.

``tests/data/sff8472_golden.csv`` was typed from the memory map of SONiC (SFF-8472 Rev 12.3), from ``sfp.h`` of Linux
and, for what those do not use, from register lists of tools for SFF-8472 Rev 12.4; nothing in it comes from our map.
"""

from __future__ import annotations

from collections import Counter

from lumion_hw.standards.registers import Register, unscaled
from lumion_hw.standards.sff8472.registers import A0H, A2H, BITS, FIELDS, FLAG_BITS, MEMORY_SIZE
from tests.every import for_every
from tests.golden import kinds_of, place_of, records, scale_of

ROWS = {record["field"]: record for record in records("sff8472_golden.csv")}
DEVICES = {"A0h": A0H, "A2h": A2H}
FLAGS = {
    f"{name}_{kind}_flag": (f"{kind}_flags", number)
    for name, number in FLAG_BITS.items()
    for kind in ("alarm", "warning")
}
MAP: dict[str, Register] = {**FIELDS, **BITS}


def _ours(name: str) -> tuple[int, frozenset[tuple[int, int]]]:
    """The device and the bits of a field, of a named bit, or of one of the flags, which are numbered in two bytes."""
    if name in FLAGS:
        word = FIELDS[FLAGS[name][0]]
        number = FLAGS[name][1]
        return word.space, frozenset({(word.byte + 1 - number // 8, number % 8)})
    field = MAP[name]
    low = 0 if field.bits is None else field.bits[1]
    return field.space or 0, frozenset(divmod(8 * field.byte + low + bit, 8) for bit in range(field.width))


def test_the_list_has_every_field_and_bit_once() -> None:
    ours = Counter([*FIELDS, *BITS, *FLAGS])
    assert Counter(record["field"] for record in records("sff8472_golden.csv")) == ours


@for_every(ROWS)
def test_a_field_lies_on_the_bits_of_the_standard(name: str) -> None:
    assert _ours(name) == (DEVICES[ROWS[name]["device"]], place_of(ROWS[name]).bits())


@for_every(FIELDS)
def test_a_number_is_written_as_the_standard_says(name: str) -> None:
    field = FIELDS[name]
    width, kinds = kinds_of(ROWS[name]["number"])
    assert field.kind in kinds
    assert width in (None, 8 * field.length)
    assert (field.scale, field.unit) == scale_of(ROWS[name]["unit"])


@for_every(MAP)
def test_a_field_is_decoded_from_its_own_bytes(name: str) -> None:
    """The bytes on both sides make no difference, and neither do the other bits of its byte."""
    field = MAP[name]
    span = slice(field.byte, field.end)
    lone = bytearray(MEMORY_SIZE)
    hole = bytearray(b"\xff" * MEMORY_SIZE)
    for byte, bit in place_of(ROWS[name]).bits():
        lone[byte] |= 1 << bit
        hole[byte] &= ~(1 << bit)
    length = field.end - field.byte
    everything, nothing = unscaled(field, b"\xff" * length), unscaled(field, bytes(length))
    assert repr(everything) != repr(nothing)
    assert repr(unscaled(field, bytes(lone[span]))) == repr(everything)
    assert repr(unscaled(field, bytes(hole[span]))) == repr(nothing)
