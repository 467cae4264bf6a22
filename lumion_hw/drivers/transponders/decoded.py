"""A decoded dump of a module of any standard: fields with their worth, and what the module or the file got wrong."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lumion_hw.interfaces import Application, Quality, TransponderIdentity

FieldKey = tuple[str, int | None]
"""A field, or one element of an array."""
SANE = {"temperature": (-60.0, 125.0), "supply": (2.5, 4.0)}
"""What a working module can show, lowest and highest: degrees Celsius around those of any grade, V around 3.3 V."""
_DAMAGE = frozenset({"checksum", "truncated", "unreadable"})
_DATE = re.compile(r"\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01]).{0,2}")


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
        kind: What sort of thing: ``checksum``, ``impossible``, ``reserved``, ``contradiction``, ``truncated``,
            ``unreadable`` ...
        message: What was found and what was expected.
        fields: Fields whose value cannot be believed.
    """

    severity: Severity
    address: str
    kind: str
    message: str
    fields: tuple[FieldKey, ...] = ()


@dataclass(frozen=True)
class DecodedField:
    """One field, or one element of an array.

    Attributes:
        name: Name in the register map.
        index: Element, or ``None``.
        address: Its first byte.
        bank: Its bank.
        raw: Its bytes in hexadecimal.
        value: The value in ``unit``, multiplied where the unit needs it; ``None`` if it is not supported, or cannot be
            believed. Only ``ok`` is a number to work with: with ``checksum_wrong`` it is what the damaged bytes mean.
        unit: Unit; empty for codes and counts, such as the base of a length, whose multiplier is another field.
        words: The value for a reader, lengths multiplied.
        quality: What the value is worth.
    """

    name: str
    index: int | None
    address: str
    bank: int
    raw: str
    value: int | float | bool | str | bytes | None
    unit: str
    words: str
    quality: Quality


@dataclass(frozen=True)
class DecodedSample:
    """One diagnostic observable: its name (``type N`` if unknown), lane (16: module), source, value and unit."""

    name: str
    lane: int
    source: str
    value: float | None
    unit: str


@dataclass(frozen=True)
class DecodedModule:
    """Everything in a dump.

    Attributes:
        source: Where the dump comes from.
        form_factor: Form factor in words.
        standard: What the memory follows: ``CMIS`` or ``SFF-8472``.
        revision: Revision of the standard, such as ``5.2``.
        identity: Who the module says it is.
        flat: It has only the lower memory and page 00h.
        applications: Ways to run it.
        thresholds: For each monitor its limits in words: high alarm, low alarm, high warning, low warning.
        checksums: For each check sum whether it fits.
        fields: All fields in the order of the map.
        samples: Diagnostic observables.
        findings: What is wrong, worst first.
    """

    source: str
    form_factor: str
    standard: str
    revision: str
    identity: TransponderIdentity
    flat: bool
    applications: tuple[Application, ...]
    thresholds: dict[str, tuple[str, ...]]
    checksums: dict[str, bool]
    fields: tuple[DecodedField, ...]
    samples: tuple[DecodedSample, ...]
    findings: tuple[Finding, ...]

    def field(self, name: str, index: int | None = None) -> DecodedField:
        """Return a field. Raises ``KeyError`` if it is not in the dump."""
        for item in self.fields:
            if (item.name, item.index) == (name, index):
                return item
        raise KeyError(f"{name} {index}")

    @property
    def damage(self) -> tuple[Finding, ...]:
        """Findings after which the memory cannot be taken as a whole: wrong check sums, missing bytes, errors."""
        return tuple(item for item in self.findings if item.severity is Severity.ERROR or item.kind in _DAMAGE)


def worst_first(findings: Iterator[Finding]) -> tuple[Finding, ...]:
    """Return findings sorted by severity; those of one severity stay in order."""
    return tuple(sorted(findings, key=lambda item: list(Severity).index(item.severity)))


def text_findings(name: str, address: str, raw: bytes, value: str) -> Iterator[Finding]:
    """Yield what is wrong with a text of an identity, and with a date.

    Args:
        name: Field, named the same in all standards.
        address: Where it stands.
        raw: Its bytes.
        value: What they are decoded to.
    """
    affected = ((name, None),)
    if any(not 0x20 <= byte < 0x7F for byte in raw.rstrip(b"\x00 ")):
        message = f"{name} has bytes that cannot be printed: {raw.hex()}"
        yield Finding(Severity.WARNING, address, "text", message, affected)
    elif raw != raw.rstrip(b"\x00") and raw.strip(b"\x00 "):
        yield Finding(Severity.NOTE, address, "text", f"{name} is padded with NUL instead of spaces")
    if name in ("vendor_name", "part_number", "serial_number") and not value.strip():
        yield Finding(Severity.WARNING, address, "text", f"{name} is empty")
    if name == "date_code" and value and not _DATE.fullmatch(value):
        yield Finding(Severity.WARNING, address, "impossible", f"{value!r} is no date of the form YYMMDD", affected)
