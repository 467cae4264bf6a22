"""What one field of the CMIS memory is: where its bits are, what they mean, who may change them, and when they exist.

Addresses are those of the standard: bytes 0 to 127 are the lower memory (``page`` ``None``), bytes 128 to 255 the
upper half of ``page``. A per-lane register is one field with an :class:`Array`; its elements lie a fixed number of bits
apart, which covers a bit, a nibble, a byte or a word per lane alike.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

LANES = 8
"""Lanes of one bank."""
HALF_BYTES = 128
"""Bytes of the lower memory and of each page."""
FIRST_BANKED_PAGE = 0x10
"""Pages from here on exist once per bank."""

Page = int | None
"""Page number, or ``None`` for the lower memory."""
Bits = tuple[int, int]
"""Highest and lowest bit number of a field inside its byte."""


class Kind(enum.Enum):
    """Number format. Multi-byte numbers are big-endian unless the name says otherwise."""

    UINT = "unsigned"
    INT = "two's complement"
    UINT_LE = "unsigned, little-endian"
    BOOL = "one bit"
    ENUM = "code"
    F16 = "F16: 11-bit mantissa, 5-bit decimal exponent"
    ASCII = "text"
    BYTES = "bytes"


class Access(enum.Enum):
    """Who may change a field, and what a read does to it."""

    RO = "read only"
    RW = "read and write"
    RWW = "read and write; the module may change it too"
    WO = "write only: a trigger or a secret that reads as 0"
    WO_SC = "write only, clears itself"
    COR = "read only, cleared by the read"


class Certainty(enum.Enum):
    """How well the place and meaning are known (facts, transponders, "Marks")."""

    TWO_SOURCES = "two sources"
    CHECK = "check"


@dataclass(frozen=True)
class Array:
    """The repetition of a field: ``count`` elements, ``stride_bits`` apart, numbered from ``first``.

    Attributes:
        of: What the elements are: ``host lane``, ``media lane``, ``application``, ``instance``, ``bank`` and so on.
        count: Number of elements.
        stride_bits: Distance between elements in bits.
        first: Number of the first element; lanes and applications count from 1, instances from 0.
    """

    of: str
    count: int
    stride_bits: int
    first: int = 1

    @property
    def indices(self) -> range:
        """The numbers of the elements."""
        return range(self.first, self.first + self.count)


@dataclass(frozen=True)
class Location:
    """Bits of one byte: ``page`` (``None`` for the lower memory), ``byte`` 0 to 255 and a bit ``mask``."""

    page: Page
    byte: int
    mask: int


@dataclass(frozen=True)
class Field:
    """One field of the map.

    Attributes:
        name: Unique, snake case.
        page: Page, or ``None`` for the lower memory.
        byte: First byte of the first element, 0 to 255.
        bits: Highest and lowest bit if the field is a part of one byte; ``None`` for whole bytes.
        length: Bytes of one element.
        kind: Number format.
        scale: ``unit`` per count of the raw number, exact.
        unit: Unit of the scaled value; empty for codes, counts, text and bits.
        access: Who may change it.
        array: Repetition, if there is one.
        codes: Name of the table in ``codes.TABLES`` that explains an ``ENUM``.
        multiplier: Name of the advertising field whose code multiplies the scale, by ``codec.MULTIPLIERS``.
        support: Name of the advertising field that must not be 0, or of a condition in ``index.CONDITIONS``.
        certainty: How well it is known.
        view: Fields of different ``view`` may lie on the same bytes; the text says what selects this one.
        note: What else a user should know.
    """

    name: str
    page: Page
    byte: int
    bits: Bits | None = None
    length: int = 1
    kind: Kind = Kind.UINT
    scale: Fraction = Fraction(1)
    unit: str = ""
    access: Access = Access.RO
    array: Array | None = None
    codes: str = ""
    multiplier: str = ""
    support: str = ""
    certainty: Certainty = Certainty.TWO_SOURCES
    view: str = ""
    note: str = ""

    @property
    def banked(self) -> bool:
        """Whether every bank has its own copy."""
        return self.page is not None and self.page >= FIRST_BANKED_PAGE

    @property
    def width(self) -> int:
        """Bits of one element."""
        return 8 * self.length if self.bits is None else self.bits[0] - self.bits[1] + 1

    def shift(self, index: int | None = None) -> int:
        """Return the number of the lowest bit of an element inside its last byte.

        Raises:
            ValueError: ``index`` is missing, superfluous or not in the array.
        """
        return 0 if self.bits is None else self._low_bit(index) % 8

    def span(self, index: int | None = None) -> range:
        """Return the bytes of one element: those to read for it and to write for it.

        Raises:
            ValueError: ``index`` is missing, superfluous or not in the array.
        """
        first = self._low_bit(index) // 8
        return range(first, first + self.length)

    def whole_span(self) -> range:
        """Return the bytes of all elements."""
        if self.array is None:
            return self.span()
        return range(self.span(self.array.first).start, self.span(self.array.indices[-1]).stop)

    def locations(self, index: int | None = None) -> Iterator[Location]:
        """Yield the bits of one element, or of all elements when ``index`` is ``None``."""
        indices = (index,) if self.array is None or index is not None else tuple(self.array.indices)
        for number in indices:
            mask = 0xFF if self.bits is None else ((1 << self.width) - 1) << self.shift(number)
            for byte in self.span(number):
                yield Location(self.page, byte, mask)

    def _low_bit(self, index: int | None) -> int:
        """Return the bit number of the lowest bit of an element, counted from bit 0 of byte 0."""
        first = 8 * self.byte + (0 if self.bits is None else self.bits[1])
        if self.array is None:
            if index is not None:
                raise ValueError(f"{self.name} is one field; it has no element {index}")
            return first
        if index is None or index not in self.array.indices:
            low, high = self.array.indices[0], self.array.indices[-1]
            raise ValueError(f"{self.name} has a {self.array.of} {low} to {high}, not {index}")
        return first + (index - self.array.first) * self.array.stride_bits

    def __str__(self) -> str:
        """Return the address as the standard writes it, such as ``00h:26.4`` or ``11h:128-131``."""
        page = 0 if self.page is None else self.page
        span = self.whole_span()
        last = f"-{span[-1]}" if len(span) > 1 else ""
        bits = ""
        if self.bits is not None and self.array is None:
            high, low = self.bits
            bits = f".{high}" if high == low else f".{high}-{low}"
        return f"{page:02X}h:{span[0]}{last}{bits}"


@dataclass(frozen=True)
class Checksum:
    """A page checksum: the sum of ``first`` to ``last`` (both included) modulo 256 stands at ``byte``."""

    page: int
    first: int
    last: int
    byte: int

    @property
    def name(self) -> str:
        """The checksum's address, such as ``00h:222``."""
        return f"{self.page:02X}h:{self.byte}"


def bit(
    name: str,
    page: Page,
    byte: int,
    number: int,
    *,
    access: Access = Access.RO,
    support: str = "",
    certainty: Certainty = Certainty.TWO_SOURCES,
    note: str = "",
) -> Field:
    """Return the field of one bit."""
    return Field(
        name,
        page,
        byte,
        (number, number),
        kind=Kind.BOOL,
        access=access,
        support=support,
        certainty=certainty,
        note=note,
    )


def lane_bits(
    name: str,
    page: Page,
    byte: int,
    of: str,
    *,
    access: Access = Access.RO,
    support: str = "",
    certainty: Certainty = Certainty.TWO_SOURCES,
    note: str = "",
) -> Field:
    """Return the field of one bit per lane in one byte, bit 0 for lane 1."""
    first = bit(name, page, byte, 0, access=access, support=support, certainty=certainty, note=note)
    return replace(first, array=Array(of, LANES, 1))


LIMITS = ("high_alarm", "low_alarm", "high_warning", "low_warning")
"""The order of thresholds in the memory and, from bit 0 upwards, of the flags and masks of one monitor."""


def limit_flags(
    prefix: str,
    suffix: str,
    page: Page,
    byte: int,
    first_bit: int,
    access: Access,
    *,
    support: str = "",
    certainty: Certainty = Certainty.TWO_SOURCES,
) -> tuple[Field, ...]:
    """Return the four flags or masks of one module monitor, from ``first_bit`` upwards in the order of ``LIMITS``."""
    return tuple(
        bit(
            f"{prefix}_{limit}_{suffix}",
            page,
            byte,
            first_bit + offset,
            access=access,
            support=support,
            certainty=certainty,
        )
        for offset, limit in enumerate(LIMITS)
    )
