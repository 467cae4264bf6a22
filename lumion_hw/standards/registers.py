"""Describes the fields in the memory of pluggable modules: address, number format and codec.

A memory has several spaces of at most 256 bytes: the pages of CMIS, or the two I2C devices of SFF-8472.
"""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

from lumion_hw.errors import LimitError

Bits = tuple[int, int]
"""Highest and lowest bit number of a field within its byte."""

Value = int | float | bool | str | bytes
"""Decoded value: a number in the field's unit, a bit, a code, text or bytes."""


class NumberFormat(enum.Enum):
    """Number format of a field. Numbers of several bytes are big-endian unless the name says otherwise."""

    UINT = "unsigned"
    INT = "two's complement"
    UINT_LE = "unsigned, little-endian"
    BOOL = "one bit"
    ENUM = "code"
    F16 = "F16: 11-bit mantissa, 5-bit decimal exponent"
    F32 = "IEEE 754 single precision"
    ASCII = "text"
    BYTES = "bytes"


class Access(enum.Enum):
    """Who can change a field, and whether reading it clears it."""

    RO = "read only"
    RW = "read and write"
    RWW = "read and write; the module may change it too"
    WO = "write only: a trigger or a secret that reads as 0"
    WO_SC = "write only, clears itself"
    COR = "read only, cleared by the read"


@dataclass(frozen=True)
class Array:
    """Repetition of a field: ``count`` elements, ``stride_bits`` bits apart, numbered from ``first``.

    Attributes:
        of: Meaning of an element, such as ``host lane``.
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
        """Numbers of the elements of the array."""
        return range(self.first, self.first + self.count)


@dataclass(frozen=True)
class Register:
    """One field of a module's memory map.

    Attributes:
        name: Unique name.
        space: Page of CMIS (``None``: the lower memory), or 7-bit address of the I2C device of SFF-8472.
        byte: Address of the first byte of the first element, 0 to 255.
        bits: Highest and lowest bit of a field within one byte; ``None`` for whole bytes.
        length: Number of bytes of one element.
        kind: Number format.
        scale: Exact size of one count of the raw number, in ``unit``.
        unit: Unit of the scaled value; empty for codes, counts, text and bits.
        access: Who can change the field, and whether reading it clears it.
        array: Repetition of the field; ``None`` for a single field.
    """

    name: str
    space: int | None
    byte: int
    bits: Bits | None = None
    length: int = 1
    kind: NumberFormat = NumberFormat.UINT
    scale: Fraction = Fraction(1)
    unit: str = ""
    access: Access = Access.RO
    array: Array | None = None

    @property
    def end(self) -> int:
        """Address of the first byte after the field; for an array, after its first element."""
        return self.byte + self.length

    @property
    def mask(self) -> int:
        """Mask of the first element within its byte; FFh for whole bytes."""
        return 0xFF if self.bits is None else (1 << self.width) - 1 << self.bits[1]

    @cached_property
    def width(self) -> int:
        """Number of bits of one element of the field."""
        return 8 * self.length if self.bits is None else self.bits[0] - self.bits[1] + 1

    def shift(self, index: int | None = None) -> int:
        """Return the lowest bit number of an element within its last byte.

        Raises:
            ValueError: ``index`` is missing, not needed, or not in the array.
        """
        try:
            return self._shifts[index]
        except KeyError:
            raise self._no_element(index) from None

    def span(self, index: int | None = None) -> range:
        """Return the byte addresses of one element of the field.

        Raises:
            ValueError: ``index`` is missing, not needed, or not in the array.
        """
        try:
            return self._spans[index]
        except KeyError:
            raise self._no_element(index) from None

    def all_bytes(self) -> range:
        """Return the byte addresses of all elements of the field."""
        if self.array is None:
            return self.span()
        return range(self.span(self.array.first).start, self.span(self.array.indices[-1]).stop)

    # A bring-up reads tens of thousands of fields, so the places of their elements are computed only once.

    @cached_property
    def _low_bits(self) -> dict[int | None, int]:
        first = 8 * self.byte + (0 if self.bits is None else self.bits[1])
        if self.array is None:
            return {None: first}
        return {index: first + (index - self.array.first) * self.array.stride_bits for index in self.array.indices}

    @cached_property
    def _spans(self) -> dict[int | None, range]:
        starts = {index: low // 8 for index, low in self._low_bits.items()}
        return {index: range(start, start + self.length) for index, start in starts.items()}

    @cached_property
    def _shifts(self) -> dict[int | None, int]:
        return {index: 0 if self.bits is None else low % 8 for index, low in self._low_bits.items()}

    def _no_element(self, index: int | None) -> ValueError:
        if self.array is None:
            return ValueError(f"{self.name} is a single field, not an array: element {index} does not exist")
        low, high = self.array.indices[0], self.array.indices[-1]
        return ValueError(f"{self.name} has no {self.array.of} {index}: give {low} to {high}")


@dataclass(frozen=True)
class Checksum:
    """A checksum at ``byte``: the sum of the bytes ``first`` to ``last`` (both included) of a space, modulo 256."""

    name: str
    space: int
    first: int
    last: int
    byte: int


def checksum(data: Iterable[int]) -> int:
    """Return the sum of some bytes modulo 256."""
    return sum(data) & 0xFF


def checksum_of(item: Checksum, memory: bytes, start: int = 0) -> int:
    """Return the checksum that ``memory``, which begins at byte ``start``, should contain at ``item.byte``."""
    return checksum(memory[item.first - start : item.last - start + 1])


def checksum_matches(item: Checksum, memory: bytes, start: int = 0) -> bool:
    """Return whether ``memory``, which begins at byte ``start``, contains the right checksum."""
    return checksum_of(item, memory, start) == memory[item.byte - start]


def raw(field: Register, data: bytes, index: int | None = None) -> int:
    """Return the raw integer of a field, before scaling, with its sign for ``INT``.

    Args:
        field: Field to decode. Text and bytes give the big-endian number of their bytes.
        data: Bytes of ``field.span(index)``.
        index: Element of an array.

    Raises:
        ValueError: ``data`` has the wrong length, or ``index`` does not fit the field.
    """
    span = field.span(index)
    if len(data) != len(span):
        raise ValueError(f"{field.name} ({field}) has {len(span)} bytes, not {len(data)}")
    # Everything is big-endian, except SNR and counters of CMIS page 14h.
    count = int.from_bytes(data, "little" if field.kind is NumberFormat.UINT_LE else "big")
    if field.bits is not None:
        count = count >> field.shift(index) & ((1 << field.width) - 1)
    if field.kind is NumberFormat.INT and count >> (field.width - 1):
        count -= 1 << field.width
    return count


def unscaled(field: Register, data: bytes, index: int | None = None) -> Value:
    """Return the value of a field, or of an array element, in counts. Arguments and errors as for :func:`raw`."""
    count = raw(field, data, index)
    if field.kind is NumberFormat.BYTES:
        return bytes(data)
    if field.kind is NumberFormat.ASCII:
        return text(data)
    if field.kind is NumberFormat.BOOL:
        return bool(count)
    if field.kind is NumberFormat.F16:
        return f16_decode(count)
    if field.kind is NumberFormat.F32:
        return float(struct.unpack(">f", data)[0])
    return count


def decode(field: Register, data: bytes, index: int | None = None) -> Value:
    """Return the value of a field, or of an array element, in ``field.unit``.

    Arguments and errors as for :func:`raw`.
    """
    value = unscaled(field, data, index)
    # Scaled as an exact fraction and rounded to a float once: 0.1
    # µW times a count must give the same number everywhere.
    return value if field.scale == 1 or isinstance(value, (str, bytes, bool)) else float(value * field.scale)


def number(field: Register, data: bytes, index: int | None = None) -> float:
    """Return the value of a numeric field as a float. Raises ``ValueError``, also for text and bytes."""
    value = decode(field, data, index)
    if isinstance(value, (str, bytes)):
        raise ValueError(f"{field.name} is not a number")
    return float(value)


def encode(field: Register, value: Value, index: int | None = None, *, current: bytes | None = None) -> bytes:
    """Return the bytes of ``field.span(index)`` for a value. Numbers are rounded to the nearest count.

    Args:
        field: Field to encode.
        value: Value in ``field.unit``.
        index: Element of an array.
        current: Present content of the bytes; needed for a part of a byte, to keep the other bits.

    Raises:
        LimitError: The number does not fit the field.
        ValueError: The value has the wrong type or length, or ``current`` is missing or has the wrong length.
    """
    return _placed(field, count_of(field, value), index, current)


def encode_unscaled(field: Register, value: Value) -> bytes:
    """Return the bytes of a field for a value in counts.

    Raises:
        LimitError: The number does not fit the field.
        ValueError: The value has the wrong type or length.
    """
    return _placed(field, count_of(field, value, Fraction(1)), None, None)


def _placed(field: Register, count: int | bytes, index: int | None, current: bytes | None) -> bytes:
    span = field.span(index)
    if isinstance(count, bytes):
        return count
    if field.bits is None:
        little = field.kind is NumberFormat.UINT_LE
        return count.to_bytes(len(span), "little" if little else "big", signed=field.kind is NumberFormat.INT)
    # The other bits must not become 0: they hold other settings.
    if current is None or len(current) != 1:
        raise ValueError(f"{field.name} ({field}) is a part of a byte: give the current byte to keep its other bits")
    mask = (1 << field.width) - 1
    shift = field.shift(index)
    return bytes([current[0] & ~(mask << shift) & 0xFF | (count & mask) << shift])


def count_of(field: Register, value: Value, scale: Fraction | None = None) -> int | bytes:
    """Return a number as raw integer; return text, bytes and F32 numbers as bytes. Raises the errors of :func:`encode`.

    Args:
        field: Field to encode.
        value: Value in ``field.unit``.
        scale: Scale that replaces the field's own scale.
    """
    if field.kind in (NumberFormat.ASCII, NumberFormat.BYTES):
        return _encode_bytes(field, value)
    if isinstance(value, (str, bytes)):
        raise ValueError(f"{field.name} must be a number, not {value!r}")
    if field.kind is NumberFormat.F16:
        return f16_encode(float(value))
    if field.kind is NumberFormat.F32:
        return struct.pack(">f", value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} does not fit {field.name}")
    scale = field.scale if scale is None else scale
    count = round(value) if scale == 1 else _nearest_count(value, scale)
    low, high = raw_limits(field)
    if not low <= count <= high:
        limit = float((low if count < low else high) * scale)
        raise LimitError(f"{field.name} ({field})", requested=float(value), limit=limit, unit=field.unit)
    return count


_CLEAR = 1e-3
"""Distance from the midpoint of two counts at which float rounding is certainly right."""


def _nearest_count(value: float, scale: Fraction) -> int:
    """Return the integer nearest to value / scale; of two equally near, the even one."""
    # Fractions are exact but slow. They are needed only where a float cannot show on which side of a half the value is.
    quotient = value / float(scale) if abs(value) < _CLEAR**-4 else math.inf
    if abs(quotient) < _CLEAR**-2 and abs(quotient % 1.0 - 0.5) > _CLEAR:
        return round(quotient)
    return round(Fraction(value) / scale)


def _encode_bytes(field: Register, value: Value) -> bytes:
    if isinstance(value, str) and field.kind is NumberFormat.ASCII:
        data = value.encode("ascii").ljust(field.length)
    elif isinstance(value, bytes):
        data = value
    else:
        raise ValueError(f"{field.name} cannot hold {value!r}")
    if len(data) != field.length:
        raise ValueError(f"{value!r} does not fit {field.name} ({field.length} bytes)")
    return data


def raw_limits(field: Register) -> tuple[int, int]:
    """Return the lowest and highest raw number of a field."""
    if field.kind is NumberFormat.INT:
        return -(1 << (field.width - 1)), (1 << (field.width - 1)) - 1
    return 0, (1 << field.width) - 1


def text(data: bytes) -> str:
    """Return ASCII text without trailing spaces and NULs. Unprintable bytes become ``?``."""
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "?" for byte in data.rstrip(b" \x00"))


def blank_value(data: bytes) -> int | None:
    """Return FFh or 00h if all of the data have this value, as from a bus without a module; else ``None``."""
    values = set(data)
    return values.pop() if values in ({0xFF}, {0x00}) else None


def f16_decode(code: int) -> float:
    """Return the value of an F16 number: mantissa in bits 10:0, times ten to the power of (bits 15:11) − 24."""
    return float(Decimal(code & 0x7FF).scaleb((code >> 11) - 24))


def f16_encode(value: float) -> int:
    """Return the most precise F16 code of a value. Values of 0 or less give 0000h.

    Raises:
        LimitError: The value is above 2.047e10.
        ValueError: The value is NaN.
    """
    if math.isnan(value):
        raise ValueError("NaN has no F16 code")
    if value <= 0:
        return 0
    if not math.isinf(value):
        fraction = Fraction(value)
        # Start at the smallest exponent: of all codes of a number it gives the most digits. A mantissa has at most four
        # digits, so much smaller exponents are impossible.
        for exponent in range(min(max(math.floor(math.log10(value)) + 19, 0), 31), 32):
            mantissa = round(fraction * Fraction(10) ** (24 - exponent))
            if mantissa <= 0x7FF:
                return exponent << 11 | mantissa
    raise LimitError("F16 number", requested=value, limit=2.047e10, unit="")
