"""Decodes memory dumps of CMIS modules: all fields as text, and findings about errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache

from lumion_hw.drivers.transponders.cmis.diagnostics import sample_value
from lumion_hw.drivers.transponders.cmis_decoder import identity_checks, live_checks
from lumion_hw.drivers.transponders.cmis_decoder.memory import Dump
from lumion_hw.drivers.transponders.decoded import (
    DecodedField,
    DecodedModule,
    DecodedSample,
    FieldKey,
    Finding,
    Severity,
    cable_text,
    check_answer,
    sorted_by_severity,
)
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces import Quality
from lumion_hw.standards.cmis import ALL_FIELDS, FIELDS, Field, NumberFormat, Value, codes, flag_bytes
from lumion_hw.standards.cmis.codec import (
    SMF_MULTIPLIER_2_SINCE,
    aux_monitor,
    cable_length_m,
    duration_s,
    optical_power,
    smf_length_km,
)
from lumion_hw.standards.cmis.codes import DiagnosticsSelector
from lumion_hw.standards.cmis.diagnostic_pages import VIEW_BER, VIEW_COUNTERS, VIEW_SNR
from lumion_hw.standards.cmis.fields import FIRST_BANKED_PAGE
from lumion_hw.standards.cmis.image import LOWER, MemoryImage
from lumion_hw.standards.cmis.interface_ids import CMIS_IDENTIFIERS, COPPER_TECHNOLOGIES, PASSIVE_COPPER_TECHNOLOGIES
from lumion_hw.standards.cmis.lane_pages import HOST, MEDIA
from lumion_hw.standards.cmis.vdm import CUSTOM_TYPES
from lumion_hw.standards.sff8472.codes import SFF8472_IDENTIFIERS
from lumion_hw.standards.sff8636.codes import SFF8636_IDENTIFIERS

_MEDIA_INTERFACES = frozenset({"application_media_interface", "more_application_media_interface"})
_AUX = {
    "aux1": ("aux1_is_tec_current", "", "tec"),
    "aux2": ("aux2_is_tec_current", "temperature", "tec"),
    "aux3": ("aux3_is_supply_2", "temperature", "supply"),
}
_AUX_UNITS = {"tec": "% TEC current", "temperature": "degC laser temperature", "supply": "V second supply"}
_MW_COUNTS = 1e4  # counts of 0.1 µW per mW


def explained_by(field: Field) -> str:
    """Return the name of the field that says what an auxiliary monitor measures; empty for other fields."""
    stem = field.name.partition("_")[0]
    return _AUX[stem][0] if stem in _AUX and (field.name == stem or field.name.endswith("_threshold")) else ""


def field_text(dump: Dump, field: Field, value: Value) -> str:
    """Return the value of a field as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if field.kind is NumberFormat.ENUM:
        return _code(dump, field, int(value))
    if field.kind is NumberFormat.BOOL:
        return "yes" if value else "no"
    special = _special(dump, field, float(value))
    if special:
        return special
    return f"{value:g} {field.unit}".strip() if isinstance(value, float) else f"{value} {field.unit}".strip()


def _code(dump: Dump, field: Field, code: int) -> str:
    if field.name in _MEDIA_INTERFACES:
        return codes.describe_media_interface(dump.count("media_type"), code)
    return codes.describe(field.codes, code)


def _special(dump: Dump, field: Field, value: float) -> str:
    if explained_by(field):
        return _auxiliary(dump, field.name.partition("_")[0], value)
    for fits, description in _SPECIAL:
        if fits(field):
            return description(dump, value)
    return ""


def _auxiliary(dump: Dump, name: str, value: float) -> str:
    bit, plain, other = _AUX[name]
    kind = other if dump.value(bit) else plain
    return f"{aux_monitor(int(value), kind):.4g} {_AUX_UNITS[kind]}" if kind else ""


def _duration(dump: Dump, code: float) -> str:
    del dump
    bound = duration_s(int(code))
    return "3000 s or more" if bound is None else f"at most {bound:g} s"


def _power(dump: Dump, power_mw: float) -> str:
    del dump
    power_dbm, _ = optical_power(round(power_mw * _MW_COUNTS))
    return f"{power_mw:.4g} mW ({power_dbm:.2f} dBm)" if power_mw else "dark (below -40 dBm)"


def _smf_length(dump: Dump, base: float) -> str:
    # Earlier, code 3 was reserved, and 01h:137 had a different meaning.
    second = dump.count("smf_length_multiplier_2") if dump.advertised.revision >= SMF_MULTIPLIER_2_SINCE else None
    length_km = smf_length_km(dump.count("smf_length_multiplier"), int(base), second)
    return "" if length_km is None else f"{length_km:g} km"


_SPECIAL: tuple[tuple[Callable[[Field], bool], Callable[[Dump, float], str]], ...] = (
    (lambda field: field.name.startswith("max_duration_"), _duration),
    (lambda field: field.unit == "mW", _power),
    (lambda field: field.name.endswith("cmis_revision"), lambda _, code: f"{int(code) >> 4}.{int(code) & 15}"),
    (lambda field: field.name == "power_class", lambda _, code: f"class {int(code) + 1}"),
    (
        lambda field: field.name == "cable_length_base",
        lambda dump, base: f"{cable_length_m(dump.count('cable_length_multiplier'), int(base)):g} m",
    ),
    (lambda field: field.name == "smf_length_base", _smf_length),
    (lambda field: field.name == "current_frequency", lambda _, mhz: f"{mhz / 1e6:.6f} THz"),
)


# Identifiers of SFF-8024 whose memory begins like CMIS but has a different layout.
_OTHER_STANDARDS = {0x03: "SFF-8472", 0x0C: "SFF-8436", 0x0D: "SFF-8636", 0x11: "SFF-8636"}
_CMIS_MAJORS = range(3, 6)
_BY_INSTANCE = "vdm_"
_VIEWS = {
    VIEW_BER: {DiagnosticsSelector.BER, DiagnosticsSelector.GATED_BER},
    VIEW_SNR: {DiagnosticsSelector.SNR},
    VIEW_COUNTERS: {*range(0x02, 0x06), *range(0x12, 0x16)},
}


def decode_image(image: MemoryImage) -> DecodedModule:
    """Decode an image. Missing or wrong content becomes a finding.

    Raises ``ConfigError`` if the module does not follow CMIS, or byte 0 of its memory is missing.
    """
    dump = Dump(image)
    _check_kind(dump)
    identifier = dump.count("identifier")
    further = [Dump(image, bank) for bank in range(1, dump.advertised.n_banks)]
    findings = sorted_by_severity(
        [
            *(item for check in (*identity_checks.CHECKS, *live_checks.CHECKS) for item in check(dump)),
            *(item for bank in further for item in _findings_of_bank(bank)),
        ]
    )
    # A note does not make the value of a field unreliable.
    unreliable = {key for item in findings if item.severity is not Severity.NOTE for key in item.fields}
    fields = (*_fields(dump, unreliable), *_fields_of_further_banks(further, unreliable))
    major, minor = dump.advertised.revision
    return DecodedModule(
        source=image.source,
        form_factor=codes.describe("identifier", identifier),
        standard="CMIS",
        revision=f"{major}.{minor}" if image.has(None, (1,)) else "",
        identity=dump.advertised.identity(),
        flat=dump.advertised.flat,
        applications=dump.advertised.applications,
        thresholds=_thresholds(fields),
        checksums={item.name: fits for item, fits in dump.checksums.items()},
        fields=fields,
        samples=tuple(item for bank in (dump, *further) for item in _samples(bank)),
        findings=findings,
        cable=_cable(dump),
    )


def _cable(dump: Dump) -> str:
    medium, technology = dump.value("media_type"), dump.value("media_technology")
    if not all(dump.checksums.values()):
        return ""
    if medium == codes.MediaType.PASSIVE_COPPER or technology in PASSIVE_COPPER_TECHNOLOGIES:
        kind = "passive copper cable"
    elif technology in COPPER_TECHNOLOGIES:
        kind = "active copper cable"
    else:
        return ""
    return cable_text(kind, cable_length_m(dump.count("cable_length_multiplier"), dump.count("cable_length_base")))


def _check_kind(dump: Dump) -> None:
    source = dump.image.source or "dump"
    if dump.value("identifier") is None:
        raise ConfigError(f"{source}: the lower memory is missing", hint="Its byte 0 gives the kind of the module.")
    unknown = dump.image.unknown.get(LOWER, frozenset())
    # A dump without flag bytes has 0 in their place.
    known = bytes(byte for at, byte in enumerate(dump.image.halves[LOWER]) if at not in unknown | flag_bytes(None))
    check_answer(known, "the lower memory", source)
    identifier = dump.count("identifier")
    if identifier in CMIS_IDENTIFIERS:
        return
    plausible = (
        dump.advertised.revision[0] in _CMIS_MAJORS
        and dump.value("identifier_copy") == identifier
        and any(item.space == 0x00 and fits for item, fits in dump.checksums.items())
    )
    if identifier in _OTHER_STANDARDS or not plausible:
        found, standard = (
            f"{identifier:02X}h, {codes.describe('identifier', identifier)}",
            _OTHER_STANDARDS.get(identifier),
        )
        if standard:
            raise ConfigError(
                f"{source}: not a CMIS memory: byte 0 is {found}", hint=f"Its memory follows {standard}, not CMIS."
            )
        raise ConfigError(
            f"{source}: not the memory of a known module: byte 0 is {found}; expected {_known_identifiers()}",
            hint="Use a dump of the memory of a module, with byte 0 of the lower memory first.",
        )


def _known_identifiers() -> str:
    standards = {"SFF-8472": SFF8472_IDENTIFIERS, "SFF-8636": SFF8636_IDENTIFIERS, "CMIS": CMIS_IDENTIFIERS}
    return " or ".join(
        f"{', '.join(f'{code:02X}h' for code in sorted(identifiers))} ({name})"
        for name, identifiers in standards.items()
    )


def _fields(dump: Dump, unreliable: set[FieldKey]) -> Iterator[DecodedField]:
    selector = dump.count("diagnostics_selector")
    for field in ALL_FIELDS:
        if dump.half(field.page) is None:
            continue
        if field.name.startswith(_BY_INSTANCE) and field.array is not None:
            continue  # samples, thresholds and flags of instances are meaningless without descriptors
        # The meaning of the bytes of page 14h depends on its selector.
        if field.view and selector not in _VIEWS[field.view]:
            continue
        for index in field.array.indices if field.array else (None,):
            if dump.has_field(field, index):
                yield _field(dump, field, index, (field.name, index) in unreliable)


def _findings_of_bank(dump: Dump) -> Iterator[Finding]:
    """Yield the findings about lanes 9 and up, with their numbers over all banks."""
    suffix = f" of bank {dump.bank}"
    for check in live_checks.OF_LANES:
        for item in check(dump):
            keys = tuple((name, None if index is None else dump.number_of(index)) for name, index in item.fields)
            yield replace(item, address=item.address.removesuffix(suffix) + suffix, fields=keys)


def _fields_of_further_banks(further: Iterable[Dump], unreliable: set[FieldKey]) -> Iterator[DecodedField]:
    """Yield the fields of lanes 9 and up, by lane number; other fields of these banks repeat those of bank 0."""
    for dump in further:
        for field in ALL_FIELDS:
            if not _lanes_of(field) or field.view or field.array is None:
                continue
            for index in field.array.indices:
                if dump.has_field(field, index):
                    number = dump.number_of(index)
                    yield replace(_field(dump, field, index, (field.name, number) in unreliable), index=number)


def _field(dump: Dump, field: Field, index: int | None, unreliable: bool) -> DecodedField:
    supported = dump.supported(field.name) is not False and not _is_absent(dump, field, index)
    value = dump.value(field.name, index)
    page = 0 if field.page is None else field.page
    # A value also depends on its support bit, its multiplier and its list of lanes.
    damaged = any(map(dump.is_damaged, _read_with(field.name)))
    quality = Quality.OK
    # A support bit with a wrong checksum does not prove that a field is missing.
    if not supported and not damaged:
        quality = Quality.NOT_SUPPORTED
    elif unreliable:
        quality = Quality.INCONSISTENT
    elif value is None:
        quality = Quality.STALE
    elif damaged:
        quality = Quality.CHECKSUM_WRONG
    good = supported and quality in (Quality.OK, Quality.CHECKSUM_WRONG)
    return DecodedField(
        name=field.name,
        index=index,
        address=f"{page:02X}h:{field.span(index).start}",
        bank=dump.bank if page >= FIRST_BANKED_PAGE else 0,
        raw=dump.raw_hex(field, index),
        value=value if good else None,
        unit=field.unit,
        description=field_text(dump, field, value) if good and value is not None else "",
        quality=quality,
    )


def _is_absent(dump: Dump, field: Field, index: int | None) -> bool:
    lanes = {MEDIA: dump.media_lanes, HOST: dump.host_lanes}.get(_lanes_of(field))
    return lanes is not None and index not in lanes


def _lanes_of(field: Field) -> str:
    return field.array.of if field.banked and field.array is not None else ""


@cache
def _read_with(name: str) -> tuple[Field, ...]:
    """Return a field and all fields that decide what it means."""
    field = FIELDS[name]
    lanes = "application_media_lane_options" if _lanes_of(field) == MEDIA else ""
    needed = (name for name in (field.support, field.multiplier, explained_by(field), lanes) if name in FIELDS)
    return (field, *(further for name in needed for further in _read_with(name)))


def _thresholds(fields: tuple[DecodedField, ...]) -> dict[str, tuple[str, ...]]:
    table: dict[str, list[str]] = {}
    for item in fields:
        for limit in ("high_alarm", "low_alarm", "high_warning", "low_warning"):
            suffix = f"_{limit}_threshold"
            if item.name.endswith(suffix) and item.quality is Quality.OK and item.index is None:
                table.setdefault(item.name.removesuffix(suffix), []).append(item.description)
    return {name: tuple(description) for name, description in table.items()}


def _samples(dump: Dump) -> Iterator[DecodedSample]:
    for item, data in live_checks.instances(dump):
        observable = item.descriptor.observable
        origin = "vendor-specific " if item.descriptor.code in CUSTOM_TYPES else ""
        name = observable.name if observable else f"{origin}type {item.descriptor.code}"
        value = None if data is None else sample_value(item, data)
        if observable is not None and observable.is_ratio and value is not None and value > 1.0:
            value = None  # a ratio above 1 is a finding
        lane = item.lane if item.offset and item.lane is not None else item.descriptor.lane
        yield DecodedSample(name, lane, item.source, value, observable.unit if observable else "")
