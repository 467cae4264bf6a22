"""Lists of where the standards put their fields, typed from descriptions of them that owe nothing to our maps."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from lumion_hw.standards.cmis import NumberFormat

DATA = Path(__file__).parent / "data"
UNSIGNED = frozenset({NumberFormat.UINT, NumberFormat.ENUM, NumberFormat.BOOL})
KINDS = {"S": NumberFormat.INT, "F16": NumberFormat.F16, "F32": NumberFormat.F32, "LE": NumberFormat.UINT_LE}


def records(name: str) -> list[dict[str, str]]:
    """Return the lines of a list in ``tests/data``."""
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True)
class Place:
    """Where a field is: the bytes of its first element, its bits in them, its elements and the bits between them."""

    first: int
    last: int
    high_bit: int
    low_bit: int
    elements: int
    step: int

    def bits(self, element: int = 0) -> frozenset[tuple[int, int]]:
        """Return the bits of an element, counted from 0, as pairs of byte and bit number."""
        low = 8 * self.first + self.low_bit + element * self.step
        width = self.high_bit - self.low_bit + 1 + 8 * (self.last - self.first)
        return frozenset(divmod(low + bit, 8) for bit in range(width))


def place_of(record: dict[str, str]) -> Place:
    """Return the place in a line: ``byte`` 154-155, ``bits`` 7-4 (none: all), ``elements`` and ``step``."""
    first, _, last = record["byte"].partition("-")
    high, _, low = (record["bits"] or "7-0").partition("-")
    return Place(
        int(first),
        int(last or first),
        int(high),
        int(low or high),
        int(record.get("elements") or 1),
        int(record.get("step") or 0),
    )


def scale_of(unit: str) -> tuple[Fraction, str]:
    """Return what one count is: ``1/256 degC``, nothing for a number without unit."""
    scale, _, name = unit.partition(" ")
    return Fraction(scale or 1), name


def kinds_of(number: str) -> tuple[int | None, frozenset[NumberFormat]]:
    """Return the bits and the formats that ``S16``, ``U64 LE``, ``F32`` allow; nothing: bits, codes, text, bytes."""
    if not number:
        return None, UNSIGNED | {NumberFormat.ASCII, NumberFormat.BYTES}
    size, _, order = number.partition(" ")
    kind = KINDS.get(order or size) or KINDS.get(size[0])
    return int(size[1:]), UNSIGNED if kind is None else frozenset({kind})
