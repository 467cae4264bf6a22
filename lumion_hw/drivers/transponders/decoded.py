"""Decoded dump of a module of any standard: fields with their quality, and findings about errors."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lumion_hw.errors import ConfigError
from lumion_hw.interfaces import Application, Quality, TransponderIdentity
from lumion_hw.sessions.module.pages import NO_ANSWER_HINT
from lumion_hw.standards.registers import blank_value

FieldKey = tuple[str, int | None]
"""Name of a field, and the index of an array element."""
PLAUSIBLE_RANGES = {"temperature": (-60.0, 125.0), "supply": (2.5, 4.0)}
"""Plausible ranges of a working module: temperature in °C, supply in V (nominally 3.3 V)."""
_DAMAGE = frozenset({"checksum", "truncated", "unreadable"})
_DATE = re.compile(r"\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01]).{0,2}")


class Severity(enum.Enum):
    """Severity of a finding in a dump of a module."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """An error or peculiarity in the memory dump of a module.

    Attributes:
        severity: ``ERROR``: impossible or contradictory; ``WARNING``: unlikely or against the standard; ``NOTE``:
            information.
        address: Address, such as ``00h:222``.
        kind: ``checksum``, ``impossible``, ``reserved``, ``contradiction``, ``truncated``, ``unreadable`` ...
        message: Value found and value expected.
        fields: Fields whose values are unreliable because of this finding.
    """

    severity: Severity
    address: str
    kind: str
    message: str
    fields: tuple[FieldKey, ...] = ()


@dataclass(frozen=True)
class DecodedField:
    """One decoded field of a memory dump, or one element of an array field.

    Attributes:
        name: Name in the register map.
        index: Index of the element; ``None`` if the field is not an array.
        address: Address of the first byte.
        bank: Bank of the page.
        raw: Bytes in hexadecimal.
        value: Value in ``unit``; ``None`` if unsupported or unreliable. Use it only if ``quality`` is ``ok``.
        unit: Unit; empty for codes, counts, and values with a multiplier in a different field.
        description: Value as text.
        quality: Quality of the value.
    """

    name: str
    index: int | None
    address: str
    bank: int
    raw: str
    value: int | float | bool | str | bytes | None
    unit: str
    description: str
    quality: Quality


@dataclass(frozen=True)
class DecodedSample:
    """One diagnostic sample. Lane 16 means the whole module; an unknown quantity is named ``type N``."""

    name: str
    lane: int
    source: str
    value: float | None
    unit: str


@dataclass(frozen=True)
class DecodedModule:
    """Complete decoded content of a memory dump.

    Attributes:
        source: Origin of the dump.
        form_factor: Name of the form factor.
        standard: Standard of the memory: ``CMIS`` or ``SFF-8472``.
        revision: Revision of the standard, such as ``5.2``; empty if the dump does not say.
        flat: Whether only the lower memory and page 00h exist, as in cables.
        applications: Applications the module offers.
        thresholds: Limits of each monitor as text: high alarm, low alarm, high warning, low warning.
        checksums: Whether each checksum is right.
        fields: All fields in the order of their addresses.
        samples: Diagnostic samples.
        findings: Findings, most severe first.
        cable: Kind and length of a copper cable, such as ``passive copper cable, 3 m``; empty for other modules.
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
    cable: str = ""

    def field(self, name: str, index: int | None = None) -> DecodedField:
        """Return a decoded field. Raises ``KeyError`` if the dump does not contain the field."""
        for item in self.fields:
            if (item.name, item.index) == (name, index):
                return item
        raise KeyError(f"{name} {index}")

    @property
    def damage(self) -> tuple[Finding, ...]:
        """Findings that make the whole memory unreliable."""
        return tuple(item for item in self.findings if item.severity is Severity.ERROR or item.kind in _DAMAGE)


def cable_text(kind: str, length_m: float | None) -> str:
    """Return kind and length of a cable as text; a length of 0 means that it is not stated."""
    return f"{kind}, {length_m:g} m" if kind and length_m else kind


def sorted_by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, most severe first. Findings of equal severity keep their order."""
    return tuple(sorted(findings, key=lambda item: list(Severity).index(item.severity)))


def ranges_text(numbers: Iterable[int]) -> str:
    """Return numbers as text, in which consecutive numbers are a range: ``3, 5-7``."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def check_answer(data: bytes, what: str, source: str) -> None:
    """Raise ``ConfigError`` if saved memory is FFh or 00h only, as from an empty cage.

    Args:
        data: Known bytes of the memory.
        what: Name of the memory, for the message.
        source: Origin of the dump.
    """
    value = blank_value(data)
    if value is not None:
        raise ConfigError(
            f"{source or 'dump'}: the module did not answer: all bytes of {what} are {value:02X}h",
            hint=f"{NO_ANSWER_HINT} Then save the memory again.",
        )


def text_findings(name: str, address: str, raw: bytes, value: str) -> Iterator[Finding]:
    """Yield findings about a string or date in the identity of a module.

    Args:
        name: Name of the field.
        address: Address of the field.
        raw: Bytes of the field.
        value: Decoded text.
    """
    affected = ((name, None),)
    if any(not 0x20 <= byte < 0x7F for byte in raw.rstrip(b"\x00 ")):
        message = f"{name} contains unprintable bytes: {raw.hex()}"
        yield Finding(Severity.WARNING, address, "text", message, affected)
    elif raw != raw.rstrip(b"\x00") and raw.strip(b"\x00 "):
        yield Finding(Severity.NOTE, address, "text", f"{name} is padded with NUL instead of spaces")
    if name in ("vendor_name", "part_number", "serial_number") and not value.strip():
        yield Finding(Severity.WARNING, address, "text", f"{name} is empty")
    if name == "date_code" and value and not _DATE.fullmatch(value):
        yield Finding(Severity.WARNING, address, "impossible", f"{value!r} is not a date of the form YYMMDD", affected)
