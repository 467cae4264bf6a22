"""The memory of one module: its halves by page, read and written by field name."""

from __future__ import annotations

import math
from collections.abc import Iterable

from lumion_hw.standards.cmis import CHECKSUMS, FIELDS, Page, Value, decode, encode, raw
from lumion_hw.standards.cmis.codec import checksum_of
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.registers import NumberFormat, raw_limits


class Memory:
    """Lower memory and upper pages of bank 0, 128 bytes each.

    Args:
        pages: Upper pages that the module has.
    """

    def __init__(self, pages: Iterable[int]) -> None:
        self._halves: dict[Page, bytearray] = {None: bytearray(HALF_BYTES)}
        self._halves |= {page: bytearray(HALF_BYTES) for page in pages}

    @property
    def pages(self) -> tuple[Page, ...]:
        """The halves there are; ``None`` is the lower memory."""
        return tuple(self._halves)

    def has(self, page: Page) -> bool:
        """Tell whether a page exists."""
        return page in self._halves

    def half(self, page: Page) -> bytearray:
        """Return the 128 bytes of a page, to read or to change."""
        return self._halves[page]

    def byte(self, page: Page, byte: int) -> int:
        """Return byte 0 to 255 of a page."""
        return self._halves[page][byte % HALF_BYTES]

    def set_byte(self, page: Page, byte: int, value: int) -> None:
        """Set byte 0 to 255 of a page."""
        self._halves[page][byte % HALF_BYTES] = value

    def _cut(self, name: str, index: int | None) -> bytes:
        field = FIELDS[name]
        span = field.span(index)
        first = span.start % HALF_BYTES
        return bytes(self._halves[field.page][first : first + len(span)])

    def value(self, name: str, index: int | None = None) -> Value:
        """Return the value of a field in its unit. Errors: those of ``codec.decode``."""
        return decode(FIELDS[name], self._cut(name, index), index)

    def number(self, name: str, index: int | None = None) -> float:
        """Return the value of a numeric field."""
        value = self.value(name, index)
        return 0.0 if isinstance(value, (str, bytes)) else float(value)

    def count(self, name: str, index: int | None = None) -> int:
        """Return the raw number of a field, 0 when the module does not have its page."""
        if FIELDS[name].page not in self._halves:
            return 0
        return raw(FIELDS[name], self._cut(name, index), index)

    def put(self, name: str, value: Value, index: int | None = None) -> None:
        """Set a field. Errors: those of ``codec.encode``."""
        field = FIELDS[name]
        data = encode(field, value, index, current=self._cut(name, index) if field.bits is not None else None)
        first = field.span(index).start % HALF_BYTES
        self._halves[field.page][first : first + len(data)] = data

    def put_limited(self, name: str, value: float, index: int | None = None) -> None:
        """Set a numeric field to the nearest value it can hold, as a module's own monitors do."""
        field = FIELDS[name]
        low, high = raw_limits(field)
        count = high if value > 0 else low
        if math.isfinite(value):
            count = min(max(round(value if field.scale == 1 else value / float(field.scale)), low), high)
        first = field.span(index).start % HALF_BYTES
        data = count.to_bytes(field.length, "big", signed=field.kind is NumberFormat.INT)
        self._halves[field.page][first : first + field.length] = (
            data[::-1] if field.kind is NumberFormat.UINT_LE else data
        )

    def lanes(self, name: str) -> int:
        """Return the byte of a field with one bit per lane, bit 0 for lane 1; 0 without its page."""
        field = FIELDS[name]
        return self._halves[field.page][field.byte % HALF_BYTES] if field.page in self._halves else 0

    def put_lanes(self, name: str, mask: int) -> None:
        """Set the byte of a field with one bit per lane."""
        field = FIELDS[name]
        self._halves[field.page][field.byte % HALF_BYTES] = mask & 0xFF

    def refresh_checksums(self) -> None:
        """Make all page checksums right."""
        for item in CHECKSUMS:
            if item.space in self._halves:
                half = self._halves[item.space]
                half[item.byte % HALF_BYTES] = checksum_of(item, bytes(half))
