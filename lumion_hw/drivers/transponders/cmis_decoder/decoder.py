"""A dump in words: every field with its value, and everything that the module or the file got wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lumion_hw.drivers.transponders.cmis.vdm import sample_value
from lumion_hw.drivers.transponders.cmis_decoder import identity_checks, live_checks
from lumion_hw.drivers.transponders.cmis_decoder.memory import Dump, FieldKey, Finding, Severity
from lumion_hw.drivers.transponders.cmis_decoder.words import field_words
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces import Application, Quality, TransponderIdentity
from lumion_hw.interfaces.cmis import ALL_FIELDS, CHECKSUMS, Field, Value, codes
from lumion_hw.interfaces.cmis.codec import checksum_of
from lumion_hw.interfaces.cmis.codes import DiagnosticsSelector
from lumion_hw.interfaces.cmis.diagnostic_pages import VIEW_BER, VIEW_COUNTERS, VIEW_SNR
from lumion_hw.interfaces.cmis.fields import FIRST_BANKED_PAGE, HALF_BYTES
from lumion_hw.interfaces.cmis.image import MemoryImage, parse_image

_OTHER_STANDARDS = {0x03: "SFF-8472", 0x0C: "SFF-8436", 0x0D: "SFF-8636", 0x11: "SFF-8636"}
_BY_INSTANCE = "vdm_"
_VIEWS = {
    VIEW_BER: {DiagnosticsSelector.BER, DiagnosticsSelector.GATED_BER},
    VIEW_SNR: {DiagnosticsSelector.SNR},
    VIEW_COUNTERS: {*range(0x02, 0x06), *range(0x12, 0x16)},
}


@dataclass(frozen=True)
class DecodedField:
    """One field, or one element of an array.

    Attributes:
        name: Name in the register map.
        index: Element, or ``None``.
        address: Its first byte.
        bank: Its bank.
        raw: Its bytes in hexadecimal.
        value: The value in ``unit``; ``None`` if it is not supported, or cannot be believed.
        unit: Unit.
        words: The value for a reader; empty for one that cannot be believed.
        quality: What the value is worth.
    """

    name: str
    index: int | None
    address: str
    bank: int
    raw: str
    value: Value | None
    unit: str
    words: str
    quality: Quality


@dataclass(frozen=True)
class DecodedSample:
    """One diagnostic observable: its name (``type N`` if unknown), lane, source, value and unit."""

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
        revision: CMIS revision, such as ``5.2``.
        identity: Who the module says it is.
        flat: It has only the lower memory and page 00h.
        applications: Ways to run it.
        thresholds: For each monitor its limits in words: high alarm, low alarm, high warning, low warning.
        checksums: For each page check sum whether it fits.
        fields: All fields in the order of the map.
        samples: Diagnostic observables.
        findings: What is wrong, worst first.
    """

    source: str
    form_factor: str
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


def decode_file(data: bytes, source: str = "") -> DecodedModule:
    """Decode the bytes of a file: JSON, a linear image, or 128 bytes of lower memory.

    Raises:
        ConfigError: It is no dump, or of a module that is not managed by CMIS.
    """
    return decode_image(parse_image(data, source))


def decode_image(image: MemoryImage) -> DecodedModule:
    """Decode an image. What is missing or wrong in it becomes a finding.

    Raises:
        ConfigError: The module is not managed by CMIS, or nothing tells what it is.
    """
    dump = Dump(image)
    if dump.value("identifier") is None:
        raise ConfigError(
            f"{image.source or 'dump'}: without byte 0 nothing is known", hint="The lower memory is missing."
        )
    identifier = dump.count("identifier")
    if identifier in _OTHER_STANDARDS:
        raise ConfigError(
            f"{image.source or 'dump'}: identifier {identifier:02X}h is {codes.describe('identifier', identifier)}",
            hint=f"Its memory follows {_OTHER_STANDARDS[identifier]}, not CMIS.",
        )
    findings = tuple(
        sorted(
            (item for check in (*identity_checks.CHECKS, *live_checks.CHECKS) for item in check(dump)),
            key=lambda item: list(Severity).index(item.severity),
        )
    )
    doubtful = {key for item in findings if item.severity is not Severity.NOTE for key in item.fields}
    fields = tuple(_fields(dump, doubtful))
    major, minor = dump.advertised.revision
    return DecodedModule(
        source=image.source,
        form_factor=codes.describe("identifier", identifier),
        revision=f"{major}.{minor}",
        identity=dump.advertised.identity(),
        flat=dump.advertised.flat,
        applications=dump.advertised.applications,
        thresholds=_thresholds(fields),
        checksums=_checksums(dump),
        fields=fields,
        samples=tuple(_samples(dump)),
        findings=findings,
    )


def _fields(dump: Dump, doubtful: set[FieldKey]) -> Iterator[DecodedField]:
    selector = dump.count("diagnostics_selector")
    for field in ALL_FIELDS:
        if field.name.startswith(_BY_INSTANCE) and field.array is not None:
            continue  # samples, thresholds and flags of instances mean nothing without their descriptors
        if field.view and selector not in _VIEWS[field.view]:
            continue
        for index in field.array.indices if field.array else (None,):
            if dump.knows(field, index):
                yield _field(dump, field, index, (field.name, index) in doubtful)


def _field(dump: Dump, field: Field, index: int | None, doubtful: bool) -> DecodedField:
    supported = dump.supported(field.name)
    value = dump.value(field.name, index)
    page = 0 if field.page is None else field.page
    quality = Quality.OK
    if supported is False:
        quality = Quality.NOT_SUPPORTED
    elif doubtful:
        quality = Quality.INCONSISTENT
    elif value is None:
        quality = Quality.STALE
    good = quality is Quality.OK
    return DecodedField(
        name=field.name,
        index=index,
        address=f"{page:02X}h:{field.span(index).start}",
        bank=dump.bank if page >= FIRST_BANKED_PAGE else 0,
        raw=dump.raw_hex(field, index),
        value=value if good else None,
        unit=field.unit,
        words=field_words(dump, field, value) if good and value is not None else "",
        quality=quality,
    )


def _thresholds(fields: tuple[DecodedField, ...]) -> dict[str, tuple[str, ...]]:
    table: dict[str, list[str]] = {}
    for item in fields:
        for limit in ("high_alarm", "low_alarm", "high_warning", "low_warning"):
            suffix = f"_{limit}_threshold"
            if item.name.endswith(suffix) and item.quality is Quality.OK and item.index is None:
                table.setdefault(item.name.removesuffix(suffix), []).append(item.words)
    return {name: tuple(words) for name, words in table.items()}


def _checksums(dump: Dump) -> dict[str, bool]:
    found = {}
    for item in CHECKSUMS:
        half = dump.half(item.page)
        if half is not None and dump.image.has(item.page, range(item.first, item.byte + 1)):
            found[item.name] = checksum_of(item, half) == half[item.byte - HALF_BYTES]
    return found


def _samples(dump: Dump) -> Iterator[DecodedSample]:
    for item, data in live_checks.instances(dump):
        observable = item.descriptor.observable
        name = observable.name if observable else f"type {item.descriptor.code}"
        value = None if data is None else sample_value(item, data)
        if observable is not None and observable.statistic and value is not None and value > 1.0:
            value = None  # a ratio above 1 is a finding, not a reading
        yield DecodedSample(name, item.descriptor.lane, item.source, value, observable.unit if observable else "")
