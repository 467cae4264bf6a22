"""Description of one field of the CMIS memory.

Bytes 0 to 127 are the lower memory (``page`` ``None``); bytes 128 to 255 are one of the pages. A register with one
entry per lane is one field with an :class:`Array`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypedDict, Unpack

from lumion_hw.standards.registers import Access, Array, NumberFormat, Register

LANES = 8
"""Number of lanes of one bank."""
HALF_BYTES = 128
"""Number of bytes of the lower memory and of each page."""
FIRST_BANKED_PAGE = 0x10
"""First page that exists once per bank; so do all later pages."""

Page = int | None
"""Page number, or ``None`` for the lower memory."""


class Certainty(enum.Enum):
    """How certain the address and meaning of a field are (docs/transponders.md)."""

    TWO_SOURCES = "two sources"
    CHECK = "check"


@dataclass(frozen=True)
class Location:
    """Some bits of one byte. ``page`` is ``None`` for the lower memory."""

    page: Page
    byte: int
    mask: int


@dataclass(frozen=True)
class Field(Register):
    """One field of the CMIS map; ``space`` is its page, or ``None`` for the lower memory.

    Attributes:
        codes: Name of the table in ``codes.TABLES`` with the codes of an ``ENUM`` field.
        multiplier: Name of the field that selects a factor for the scale from ``codec.MULTIPLIERS``.
        support: Name of the field that is not 0 if the module has this field, or of a condition in
            ``index.CONDITIONS``.
        certainty: How certain the address and meaning of the field are.
        view: Condition under which shared bytes have this meaning; only fields with different ``view`` may share bytes.
        note: Further hints for users.
    """

    codes: str = ""
    multiplier: str = ""
    support: str = ""
    certainty: Certainty = Certainty.TWO_SOURCES
    view: str = ""
    note: str = ""

    @property
    def page(self) -> Page:
        """Page, or ``None`` for the lower memory."""
        return self.space

    @property
    def banked(self) -> bool:
        """Whether each bank of the module has its own copy of the field."""
        return self.page is not None and self.page >= FIRST_BANKED_PAGE

    def locations(self, index: int | None = None) -> Iterator[Location]:
        """Yield the bits of one array element, or of all elements if ``index`` is ``None``."""
        if index is None:
            return (location for locations in self._locations.values() for location in locations)
        try:
            return iter(self._locations[index])
        except KeyError:
            raise self._no_element(index) from None

    @cached_property
    def _locations(self) -> dict[int | None, tuple[Location, ...]]:
        return {index: tuple(self._located(index)) for index in self._low_bits}

    def _located(self, index: int | None) -> Iterator[Location]:
        mask = 0xFF if self.bits is None else ((1 << self.width) - 1) << self.shift(index)
        for byte in self.span(index):
            yield Location(self.page, byte, mask)

    def __str__(self) -> str:
        """Return the address in the notation of the standard, such as ``00h:26.4`` or ``11h:128-131``."""
        page = 0 if self.page is None else self.page
        span = self.all_bytes()
        last = f"-{span[-1]}" if len(span) > 1 else ""
        bits = ""
        if self.bits is not None and self.array is None:
            high, low = self.bits
            bits = f".{high}" if high == low else f".{high}-{low}"
        return f"{page:02X}h:{span[0]}{last}{bits}"


class FieldOptions(TypedDict, total=False):
    """Optional attributes of a :class:`Field`."""

    access: Access
    support: str
    certainty: Certainty
    note: str


def bit(name: str, page: Page, byte: int, number: int, **options: Unpack[FieldOptions]) -> Field:
    """Return the description of a field of one bit."""
    return Field(name, page, byte, (number, number), kind=NumberFormat.BOOL, **options)


def lane_bits(name: str, page: Page, byte: int, of: str, **options: Unpack[FieldOptions]) -> Field:
    """Return the description of a field with one bit per lane in one byte, bit 0 for lane 1."""
    return replace(bit(name, page, byte, 0, **options), array=Array(of, LANES, 1))


LIMITS = ("high_alarm", "low_alarm", "high_warning", "low_warning")
"""Order of a monitor's thresholds in memory, and of its flags and masks from bit 0 upwards."""


def limit_flags(
    prefix: str, suffix: str, page: Page, byte: int, first_bit: int, **options: Unpack[FieldOptions]
) -> tuple[Field, ...]:
    """Return the four alarm and warning flags (or masks) of one monitor, from ``first_bit`` upwards."""
    return tuple(
        bit(f"{prefix}_{limit}_{suffix}", page, byte, first_bit + offset, **options)
        for offset, limit in enumerate(LIMITS)
    )
