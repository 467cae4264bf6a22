"""A dump as the checks see it, and the findings they leave."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lumion_hw.drivers.transponders.cmis.advertised import Advertised
from lumion_hw.interfaces.cmis import FIELDS, Field, Page, Value, decode
from lumion_hw.interfaces.cmis.codec import cut
from lumion_hw.interfaces.cmis.image import MemoryImage

FieldKey = tuple[str, int | None]
"""A field, or one element of an array."""


class Severity(enum.Enum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """Something in a dump that is not as it should be.

    Attributes:
        severity: ``ERROR``: impossible or contradictory; ``WARNING``: unlikely or against the standard; ``NOTE``:
            worth knowing.
        address: Where, such as ``00h:222``.
        kind: What sort of thing: ``checksum``, ``impossible``, ``reserved``, ``contradiction``, ``truncated`` ...
        message: What was found and what was expected.
        fields: Fields whose value cannot be believed.
    """

    severity: Severity
    address: str
    kind: str
    message: str
    fields: tuple[FieldKey, ...] = ()


class Dump:
    """A memory image with its advertisement.

    Args:
        image: The image.
        bank: Bank of the lane pages.
    """

    def __init__(self, image: MemoryImage, bank: int = 0) -> None:
        self.image = image
        self.bank = bank
        self.advertised = Advertised(self._known_half, lambda page: (0, page) in image.halves)

    def half(self, page: Page) -> bytes | None:
        """Return the bytes of a page, of the chosen bank where there are banks."""
        return self.image.half(page, self._bank(page))

    def value(self, name: str, index: int | None = None) -> Value | None:
        """Return the value of a field; ``None`` if one of its bytes is not known."""
        field = FIELDS[name]
        half = self.half(field.page)
        if half is None or not self.knows(field, index):
            return None
        return decode(field, cut(field, half, index), index)

    def number(self, name: str, index: int | None = None) -> float | None:
        """Return the value of a numeric field; ``None`` if it is not known."""
        value = self.value(name, index)
        return float(value) if isinstance(value, (int, float)) else None

    def count(self, name: str, index: int | None = None) -> int:
        """Return the value of an integer field; 0 if it is not known."""
        value = self.value(name, index)
        return int(value) if isinstance(value, (int, float)) else 0

    def knows(self, field: Field, index: int | None = None) -> bool:
        """Tell whether all bytes of a field are known."""
        return self.image.has(field.page, field.span(index), self._bank(field.page))

    def raw_hex(self, field: Field, index: int | None = None) -> str:
        """Return the bytes of a known field in hexadecimal."""
        half = self.half(field.page)
        return "" if half is None else cut(field, half, index).hex()

    def supported(self, name: str) -> bool | None:
        """Tell whether the module has a field."""
        return self.advertised.supported(name)

    def has(self, name: str) -> bool:
        """Tell whether a field is supported and its page in the dump."""
        return bool(self.supported(name)) and self.half(FIELDS[name].page) is not None

    def _bank(self, page: Page) -> int:
        return self.bank if page is not None and page >= 0x10 else 0

    def _known_half(self, page: Page) -> bytes | None:
        return self.image.half(page)


def address(name: str, index: int | None = None) -> str:
    """Return the address of a field or element."""
    field = FIELDS[name]
    if index is None:
        return str(field)
    page = 0 if field.page is None else field.page
    return f"{page:02X}h:{field.span(index).start}"


def finding(
    severity: Severity, kind: str, message: str, name: str, index: int | None = None, *, doubt: bool = True
) -> Finding:
    """Return a finding about a field; ``doubt`` says that its value cannot be believed."""
    return Finding(severity, address(name, index), kind, message, ((name, index),) if doubt else ())
