"""Checks of the constant content of a memory dump: checksums, texts, pages, applications, limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lumion_hw.drivers.transponders.cmis_decoder.memory import Dump, address, finding
from lumion_hw.drivers.transponders.decoded import Finding, Severity, text_findings
from lumion_hw.standards.cmis import ALL_FIELDS, FIELDS, codes
from lumion_hw.standards.cmis.codec import MULTIPLIERS, SMF_MULTIPLIER_2_SINCE, checksum_of, duration_s
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.image import half_name
from lumion_hw.standards.cmis.interface_ids import (
    CMIS_IDENTIFIERS,
    COPPER_TECHNOLOGIES,
    END_OF_APPLICATIONS,
    LASER_TECHNOLOGIES,
)

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
_TEXTS = ("vendor_name", "part_number", "vendor_revision", "serial_number", "date_code", "clei_code")
_DURATIONS = ("dp_init", "dp_deinit", "power_up", "power_down", "tx_turn_on", "tx_turn_off")
_LANES = 8
_UNBOUNDED = 0xD


def checksums(dump: Dump) -> Iterator[Finding]:
    """Yield findings about wrong page checksums."""
    for item, fits in dump.checksums.items():
        half = dump.half(item.space)
        if fits or half is None:
            continue
        expected, stored = checksum_of(item, half), half[item.byte - HALF_BYTES]
        message = (
            f"the checksum over {item.first}-{item.last} is {expected:02X}h, but the module contains {stored:02X}h"
        )
        yield finding(_WARNING, "checksum", message, f"page_{item.space:02x}h_checksum", unreliable=False)


def kind(dump: Dump) -> Iterator[Finding]:
    """Yield findings about contradictions in the form factor, revision and media type of the module."""
    identifier, copy = dump.count("identifier"), dump.count("identifier_copy")
    if identifier not in CMIS_IDENTIFIERS:
        message = f"identifier {identifier:02X}h is not a form factor with CMIS"
        yield finding(_ERROR, "impossible", message, "identifier")
    if dump.value("identifier_copy") is not None and copy != identifier:
        message = f"the identifier is {identifier:02X}h in the lower memory and {copy:02X}h on page 00h"
        yield finding(_ERROR, "contradiction", message, "identifier_copy")
    major, minor = dump.advertised.revision
    if dump.value("cmis_revision") is not None and not 3 <= major <= 5:
        message = f"revision {major}.{minor} of CMIS does not exist; decoded as 5"
        yield finding(_WARNING, "impossible", message, "cmis_revision")
    elif 3 <= major < 5:
        message = f"CMIS {major}.{minor}: fields of CMIS 5 may have a different meaning"
        yield finding(_NOTE, "revision", message, "cmis_revision", unreliable=False)
    medium = dump.count("media_type")
    if not codes.is_known("media_type", medium):
        message = f"the media type is {codes.describe('media_type', medium)}"
        yield finding(_WARNING, "reserved", message, "media_type")


def texts(dump: Dump) -> Iterator[Finding]:
    """Yield findings about identity strings that are empty or unprintable, and about invalid dates."""
    for name in _TEXTS:
        value = dump.value(name)
        if not isinstance(value, str):
            continue
        yield from text_findings(name, address(name), bytes.fromhex(dump.raw_hex(FIELDS[name])), value)


def pages(dump: Dump) -> Iterator[Finding]:
    """Yield findings about advertised pages missing in the dump, and about pages that are not advertised."""
    present = {page for _, page in (*dump.image.halves, *dump.image.unreadable) if page is not None}
    if dump.advertised.flat:
        unexpected = sorted(present - {0x00})
        if unexpected:
            message = f"the memory is flat, but the dump contains pages {_hex(unexpected)}"
            yield finding(_ERROR, "contradiction", message, "flat_memory", unreliable=False)
        return
    # Bits that announce pages. Reading a page that is not announced returns page 00h.
    for expected, name in (
        ({0x00}, "identifier"),
        ({0x01, 0x02, 0x10, 0x11}, "flat_memory"),
        ({0x04, 0x12}, "transmitter_tunable"),
        ({0x13, 0x14}, "diagnostic_pages_supported"),
        ({0x20, 0x24, 0x2F}, "vdm_supported"),
        ({0x03}, "page_03h_supported"),
    ):
        value = dump.value(name)
        advertised = name == "identifier" or (name == "flat_memory" and value is not None) or bool(value)
        if advertised and expected - present:
            missing = sorted(expected - present)
            verb = "pages {} are" if len(missing) > 1 else "page {} is"
            message = (
                f"{verb.format(_hex(missing))} not in the dump, but the module has {'them' if missing[1:] else 'it'}"
            )
            yield finding(_NOTE, "missing_page", message, name, unreliable=False)
        elif not advertised and expected & present and dump.value(name) is not None:
            message = f"page {_hex(sorted(expected & present))} is in the dump, but the module does not advertise it"
            yield finding(_WARNING, "contradiction", message, name, unreliable=False)


def applications(dump: Dump) -> Iterator[Finding]:
    """Yield findings about impossible application descriptors."""
    ended = None
    for number in range(1, 16):
        prefix = "application" if number <= 8 else "more_application"
        host = dump.value(f"{prefix}_host_interface", number)
        if host is None:
            return
        name = f"{prefix}_host_lane_count"
        lanes, media = dump.count(name, number), dump.count(f"{prefix}_media_lane_count", number)
        if host == END_OF_APPLICATIONS:
            ended = ended or number
            continue
        empty = not (host or lanes or media or dump.count(f"{prefix}_media_interface", number))
        if ended is not None:
            # Descriptors 9 to 15 are on a different page, and hosts do not read past the end of the list.
            if not empty and number <= 8:
                message = f"descriptor {number} is not empty, but the list ended at {ended}"
                yield finding(_NOTE, "contradiction", message, name, number, unreliable=False)
            continue
        if empty or dump.value(name, number) is None:
            continue
        yield from _application(dump, prefix, number, lanes, media)


def _application(dump: Dump, prefix: str, number: int, lanes: int, media: int) -> Iterator[Finding]:
    name = f"{prefix}_host_lane_count"
    for side, table in (("host", "host_interface"), ("media", codes.media_table(dump.count("media_type")))):
        code = dump.count(f"{prefix}_{side}_interface", number)
        if code and not codes.is_known(table, code):
            message = f"application {number} has the {side} interface {codes.describe(table, code)}"
            yield finding(_NOTE, "unknown", message, f"{prefix}_{side}_interface", number, unreliable=False)
    if not 1 <= lanes <= _LANES:
        yield finding(_ERROR, "impossible", f"application {number} uses {lanes} host lanes", name, number)
    if media > _LANES:
        message = f"application {number} uses {media} media lanes"
        yield finding(_ERROR, "impossible", message, f"{prefix}_media_lane_count", number)
    for side, count, options in (
        ("host", lanes, dump.value(f"{prefix}_host_lane_options", number)),
        ("media", media, dump.value("application_media_lane_options", number)),
    ):
        field = f"{prefix}_host_lane_options" if side == "host" else "application_media_lane_options"
        if not isinstance(options, int) or not count:
            continue
        starts = [bit + 1 for bit in range(_LANES) if options >> bit & 1]
        if not starts:
            message = f"application {number} has no possible first {side} lane"
            yield finding(_WARNING, "contradiction", message, field, number, unreliable=False)
        too_far = [start for start in starts if start + count - 1 > _LANES]
        if too_far:
            message = f"application {number} uses {count} {side} lanes and may begin on lane {too_far[-1]}"
            yield finding(_ERROR, "impossible", message, field, number)


def limits(dump: Dump) -> Iterator[Finding]:
    """Yield findings about advertised limits that are reserved or contradict each other."""
    for stage in _DURATIONS:
        name = f"max_duration_{stage}"
        code = dump.value(name)
        if isinstance(code, int) and not dump.advertised.flat and duration_s(code) is None and code != _UNBOUNDED:
            yield finding(_WARNING, "reserved", f"duration code {code:X}h is reserved", name)
    yield from _multipliers(dump)
    power = dump.number("max_power")
    if power == 0.0:
        yield finding(_WARNING, "impossible", "the module states a power of 0 W", "max_power")
    low, high = dump.number("module_temperature_min"), dump.number("module_temperature_max")
    # Both 0: not specified.
    if low is not None and high is not None and not dump.advertised.flat and (low or high) and low >= high:
        message = f"the case temperature range is {low:g} to {high:g} degC"
        yield finding(_ERROR, "contradiction", message, "module_temperature_max")
    yield from _laser(dump)


def _multipliers(dump: Dump) -> Iterator[Finding]:
    if dump.advertised.flat:
        return
    for name, factors in MULTIPLIERS.items():
        code = dump.value(name)
        if isinstance(code, int) and code not in factors:
            message = f"code {code} of {name} is reserved, so the multiplied fields have no value"
            multiplied = [field for field in ALL_FIELDS if field.multiplier == name]
            affected = [
                (item.name, index) for item in multiplied for index in (item.array.indices if item.array else (None,))
            ]
            yield Finding(_WARNING, address(name), "reserved", message, ((name, None), *affected))
    if dump.count("smf_length_multiplier") == 3 and dump.advertised.revision < SMF_MULTIPLIER_2_SINCE:
        major, minor = dump.advertised.revision
        message = f"length multiplier code 3 is reserved in CMIS {major}.{minor}; 01h:137 defines it since 5.3"
        affected = [("smf_length_multiplier", None), ("smf_length_base", None)]
        yield Finding(_WARNING, address("smf_length_multiplier"), "reserved", message, tuple(affected))


def media(dump: Dump) -> Iterator[Finding]:
    """Yield findings about contradictions between media type, technology, wavelength and cable length."""
    technology, medium = dump.value("media_technology"), dump.count("media_type")
    if not isinstance(technology, int):
        return
    copper = codes.MediaType.PASSIVE_COPPER
    if medium == copper and technology in LASER_TECHNOLOGIES:
        message = f"passive copper with a laser: {codes.describe('technology', technology)}"
        yield finding(_ERROR, "contradiction", message, "media_technology")
    if medium in (codes.MediaType.SMF, codes.MediaType.MMF) and technology in COPPER_TECHNOLOGIES:
        message = f"an optical module of {codes.describe('technology', technology)}"
        yield finding(_ERROR, "contradiction", message, "media_technology")
    wavelength = dump.number("nominal_wavelength")
    optical = medium in (codes.MediaType.SMF, codes.MediaType.MMF)
    if optical and wavelength is not None and not dump.advertised.flat and not 700 <= wavelength <= 1700:
        message = f"{wavelength:g} nm is not a wavelength of an optical module"
        yield finding(_WARNING, "impossible", message, "nominal_wavelength")
    is_known = dump.value("media_type") is not None
    if is_known and not optical and wavelength and not dump.advertised.flat:
        message = f"a cable with a wavelength of {wavelength:g} nm"
        yield finding(_WARNING, "contradiction", message, "nominal_wavelength")
    if medium == copper and dump.count("cable_length_base") == 0:
        yield finding(_NOTE, "contradiction", "the copper cable has no length", "cable_length_base", unreliable=False)


def _laser(dump: Dump) -> Iterator[Finding]:
    if not dump.advertised.tunable or dump.half(0x04) is None:
        return
    is_known = dump.image.has(0x04, range(HALF_BYTES, 2 * HALF_BYTES))
    if is_known and not dump.advertised.grids.channels:
        yield finding(
            _ERROR, "contradiction", "the tunable laser supports no grid", "grid_100ghz_supported", unreliable=False
        )
    for name in [name for name in FIELDS if name.startswith("grid_") and name.endswith("_low_channel")]:
        grid = name.removesuffix("_low_channel")
        low, high = dump.number(name), dump.number(f"{grid}_high_channel")
        if dump.value(f"{grid}_supported") and low is not None and high is not None and low > high:
            yield finding(_ERROR, "contradiction", f"{grid} channels begin at {low:g}, above their end {high:g}", name)
    power = dump.advertised.tx_power_limits_dbm
    if power is not None and power[0] > power[1]:
        message = f"the lowest output power, {power[0]:g} dBm, is above the highest, {power[1]:g} dBm"
        yield finding(_ERROR, "contradiction", message, "min_output_power")


def remarks(dump: Dump) -> Iterator[Finding]:
    """Yield findings about problems in reading the dump file."""
    for remark in dump.image.remarks:
        half, _, text = remark.partition(": ")
        where = "00h:0" if half == "lower" else f"{half}h"
        yield Finding(_WARNING, where, "truncated", f"the dump contains {text} of the {_half(half)}")


def unreadable(dump: Dump) -> Iterator[Finding]:
    """Yield findings about pages that could not be read from the module."""
    for half, reason in dump.image.unreadable.items():
        half_page = half_name(half)
        yield Finding(_WARNING, f"{half_page}h", "unreadable", f"the {_half(half_page)} could not be read: {reason}")


def _half(half: str) -> str:
    return "lower memory" if half == "lower" else f"page {half}h"


def _hex(numbers: list[int]) -> str:
    return ", ".join(f"{number:02X}h" for number in numbers)


CHECKS: tuple[Callable[[Dump], Iterator[Finding]], ...] = (
    remarks,
    unreadable,
    kind,
    checksums,
    texts,
    pages,
    applications,
    limits,
    media,
)
"""All checks of the constant content."""
