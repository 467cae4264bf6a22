"""Decodes memory dumps of QSFP modules (SFF-8636): all fields as text, and findings about errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from lumion_hw.drivers.transponders.decoded import (
    PLAUSIBLE_RANGES,
    DecodedField,
    DecodedModule,
    Finding,
    Severity,
    cable_text,
    sorted_by_severity,
    text_findings,
)
from lumion_hw.drivers.transponders.lane_difference import KIND, LR4, LR4_40G, Power, describe_difference
from lumion_hw.drivers.transponders.qsfp_identity import END_OF_READINGS, FIRST_READING, capabilities_of, identity_of
from lumion_hw.interfaces import Quality
from lumion_hw.quantities import dbm_from_w
from lumion_hw.standards.cmis import codes as sff8024
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.image import LOWER, MemoryImage, half_name
from lumion_hw.standards.registers import Checksum, checksum_matches, checksum_of, decode, raw, unscaled
from lumion_hw.standards.sff8636 import codes
from lumion_hw.standards.sff8636.registers import (
    CHECKSUMS,
    FIELDS,
    IDENTITY_PAGE,
    LANES,
    LIMITS,
    MONITORS,
    POWERS,
    THRESHOLD_PAGE,
    USER_PAGE,
    QsfpField,
    find,
)

_TEXTS = ("vendor_name", "part_number", "revision", "serial_number", "date_code")
_ABOVE = 0xFF  # lengths and rates above the range of their byte
_FULL_SCALE = 0xFFFF
_DEFAULT_CASE_C = 70  # largest case temperature if byte 190 is 0
_MAX_PRINTED_BYTES = 16
Words = Callable[[int], str]
_Meaning = tuple[int | float | str | bytes | None, str, str, Quality]
"""Value, unit, description and quality of a field."""


def _of(table: Mapping[int, str]) -> Words:
    return lambda code: table.get(code, "unspecified" if not code else f"0x{code:02X}")


def _number_of(table: Mapping[int, float], unit: str) -> Words:
    return lambda code: f"{table[code]:g} {unit}" if code in table else f"0x{code:02X} (reserved)"


_CODES: Mapping[str, Words] = {
    "identifier": lambda code: sff8024.describe("identifier", code),
    "identifier_copy": lambda code: sff8024.describe("identifier", code),
    "connector": lambda code: sff8024.describe("connector", code),
    "revision_compliance": _of(codes.REVISIONS),
    "encoding": _of(codes.ENCODINGS),
    "ext_compliance": _of(codes.EXTENDED_COMPLIANCE),
    "secondary_ext_compliance": _of(codes.EXTENDED_COMPLIANCE),
    "transmitter": _of(codes.TRANSMITTERS),
    "ext_identifier": lambda code: f"power class {codes.power_class(code)}",
    "low_power_code": _number_of(codes.LOW_POWER_W, "W"),
    "min_supply_code": _number_of(codes.MIN_SUPPLY_V, "V"),
    "far_ends": _of(codes.FAR_ENDS),
}
_OVERFLOW_TEXTS = {
    "nominal_rate": "more than 25.4 GBd, see byte 222",
    "length_smf": "more than 254 km",
    "length_om3": "more than 508 m",
    "length_om2": "more than 254 m",
    "length_om1": "more than 254 m",
    "length_cable": "more than 254 m",
}
"""Meaning of FFh (SFF-8636 clause 6.3)."""


class _QsfpDump:
    """Memory image of a QSFP module."""

    def __init__(self, image: MemoryImage) -> None:
        self.image = image
        self.lower = image.halves.get(LOWER, bytes(HALF_BYTES))
        self.page = image.half(IDENTITY_PAGE) or bytes(HALF_BYTES)
        self.has_identity = image.has(IDENTITY_PAGE, range(128, 224))
        self.capabilities = capabilities_of(self.lower, self.page)

    @cached_property
    def checksums(self) -> dict[Checksum, bool]:
        """Whether each checksum in the dump is right."""
        return {
            item: checksum_matches(item, self.page, 128)
            for item in CHECKSUMS.values()
            if self.image.has(IDENTITY_PAGE, range(item.first, item.byte + 1))
        }

    @cached_property
    def wrong(self) -> tuple[Checksum, ...]:
        """The checksums that are wrong."""
        return tuple(item for item, fits in self.checksums.items() if not fits)

    def has_field(self, field: QsfpField) -> bool:
        """Return whether the image contains all bytes of a field."""
        return self.image.has(field.space, field.span())

    def raw(self, field: QsfpField) -> bytes:
        """Return the bytes of a field; zeros if the image lacks the half page."""
        half = self.image.half(field.space) or bytes(HALF_BYTES)
        first = field.byte % HALF_BYTES
        return half[first : first + field.length]

    def number(self, name: str, lane: int | None = None) -> float | None:
        """Return the value of a numeric field, or ``None`` if it is not in the dump or not supported."""
        field = find(name, lane)
        if not self.has_field(field) or not self.supported(field):
            return None
        value = decode(field, self.raw(field))
        return float(value) if isinstance(value, (int, float)) else None

    def supported(self, field: QsfpField) -> bool:
        """Return whether the module has a field, as far as page 00h is known."""
        if not self.has_identity:
            return True
        if field.support in MONITORS and field.name != "rx_power_is_average":
            return self.capabilities.measures(field.support, self.lower[FIRST_READING:END_OF_READINGS])
        return self.capabilities.has(field.support)

    def quality(self, field: QsfpField, quality: Quality) -> Quality:
        """Return the quality of a value that would be ``quality`` in a memory with correct checksums."""
        wrong = self.wrong
        if not wrong:
            return quality
        # The byte of the checksum is included, because either may be damaged.
        covered = any(
            item.space == field.space and item.first <= byte <= item.byte for item in wrong for byte in field.span()
        )
        if covered:
            return Quality.CHECKSUM_WRONG
        # Bytes 131, 147 and 192 decide which meaning other bytes have; byte 220, which monitors exist.
        is_monitor = field.support in MONITORS and field.space != IDENTITY_PAGE
        doubtful = any(not is_monitor or item.name == "CC_EXT" for item in wrong)
        return Quality.CHECKSUM_WRONG if quality is Quality.OK and field.support and doubtful else quality


def decode_qsfp(image: MemoryImage) -> DecodedModule:
    """Decode a memory image of a QSFP module. Missing or wrong content becomes a finding."""
    dump = _QsfpDump(image)
    fields = tuple(_field(dump, field) for field in FIELDS.values() if dump.has_field(field))
    return DecodedModule(
        source=image.source,
        form_factor=sff8024.describe("identifier", dump.lower[0]),
        standard="SFF-8636",
        revision=_CODES["revision_compliance"](dump.capabilities.revision) if image.has(None, (1,)) else "",
        identity=identity_of(dump.page),
        flat=dump.capabilities.flat,
        applications=(),
        thresholds=_thresholds(fields),
        checksums={item.name: fits for item, fits in dump.checksums.items()},
        fields=fields,
        samples=(),
        findings=sorted_by_severity(finding for check in _CHECKS for finding in check(dump)),
        cable=_cable(dump, fields),
    )


def _cable(dump: _QsfpDump, fields: tuple[DecodedField, ...]) -> str:
    if not dump.has_identity or dump.wrong:
        return ""
    length_m = next((item.value for item in fields if item.name == "length_cable"), None)
    return cable_text(codes.copper_cable(dump.page), length_m if isinstance(length_m, int | float) else None)


# -- fields


def _address(field: QsfpField) -> str:
    bit = "" if field.bits is None else f".{field.bits[0]}" + (f"-{field.bits[1]}" if field.width > 1 else "")
    # Lower memory is called page 00h too; addresses below 128 are unambiguous.
    return f"{field.space or 0:02X}h:{field.byte}{bit}"


def _field(dump: _QsfpDump, field: QsfpField) -> DecodedField:
    data = dump.raw(field)
    if dump.supported(field):
        value, unit, description, quality = _meaning(dump, field, data)
    else:
        value, unit, description, quality = None, field.unit, "", Quality.NOT_SUPPORTED
    quality = dump.quality(field, quality)
    return DecodedField(field.name, field.lane, _address(field), 0, data.hex(), value, unit, description, quality)


def _meaning(dump: _QsfpDump, field: QsfpField, data: bytes) -> _Meaning:
    value = unscaled(field, data)
    if isinstance(value, (bool, str)):
        return value, "", value if isinstance(value, str) else ("no", "yes")[value], Quality.OK
    if isinstance(value, bytes):
        return value, "", _bytes_text(dump, field, value), Quality.OK
    if field.support in POWERS and field.length == 2:
        return _power(dump, field, raw(field, data))
    if field.name in _CODES:
        return value, "", _CODES[field.name](int(value)), Quality.OK
    return _quantity(field, data)


def _quantity(field: QsfpField, data: bytes) -> _Meaning:
    count, value = raw(field, data), decode(field, data)
    if field.name in _OVERFLOW_TEXTS and count == _ABOVE:
        return None, field.unit, _OVERFLOW_TEXTS[field.name], Quality.ABOVE_RANGE
    if field.name == "max_case_temperature" and not count:
        value = _DEFAULT_CASE_C
    text = f"{value:.6g}" if isinstance(value, (int, float)) else str(value)
    return value, field.unit, f"{text} {field.unit}".rstrip(), Quality.OK


def _bytes_text(dump: _QsfpDump, field: QsfpField, value: bytes) -> str:
    if field.name == "compliance_codes" and dump.has_identity:
        return ", ".join(codes.technologies(dump.page))
    return value[:_MAX_PRINTED_BYTES].hex() + ("..." if len(value) > _MAX_PRINTED_BYTES else "")


def _power(dump: _QsfpDump, field: QsfpField, count: int) -> _Meaning:
    # A saturated converter returns the full-scale count.
    if count == _FULL_SCALE:
        return None, "dBm", "above +8.16 dBm", Quality.ABOVE_RANGE
    if not count:
        return None, "dBm", "dark (below -40 dBm)", Quality.BELOW_RANGE
    power_dbm = dbm_from_w(count * float(field.scale))
    is_rx = field.support == "rx_power" and dump.has_identity
    kind = ("", " OMA")[is_rx and not dump.capabilities.rx_power_is_average]
    return power_dbm, "dBm", f"{power_dbm:.2f} dBm{kind}", Quality.OK


def _thresholds(fields: tuple[DecodedField, ...]) -> dict[str, tuple[str, ...]]:
    usable = (Quality.OK, Quality.BELOW_RANGE)
    text = {item.name: item.description for item in fields if item.index is None and item.quality in usable}
    table = {monitor: [text.get(f"{monitor}_{limit}", "") for limit in LIMITS] for monitor in MONITORS}
    return {monitor: tuple(row) for monitor, row in table.items() if all(row)}


# -- findings


def _missing(dump: _QsfpDump) -> Iterator[Finding]:
    for remark in dump.image.remarks:
        yield Finding(Severity.WARNING, remark.partition(":")[0], "truncated", f"the dump is incomplete: {remark}")
    for half, reason in dump.image.unreadable.items():
        yield Finding(Severity.WARNING, half_name(half), "unreadable", f"the page could not be read: {reason}")
    if not dump.has_identity:
        message = "page 00h is not complete, so the dump does not say what the module is"
        yield Finding(Severity.WARNING, "00h:128", "truncated", message)
        return
    is_paged = not dump.capabilities.flat and dump.image.has(None, (2,))
    announced = ((THRESHOLD_PAGE, is_paged), (USER_PAGE, dump.capabilities.page_02))
    for page, is_present in announced:
        if is_present and dump.image.half(page) is None and (0, page) not in dump.image.unreadable:
            message = f"the module has page {page:02X}h, but the dump does not contain it"
            yield Finding(Severity.NOTE, "00h:2", "missing_page", message)


def _checksums(dump: _QsfpDump) -> Iterator[Finding]:
    for item, fits in dump.checksums.items():
        if not fits:
            expected, stored = checksum_of(item, dump.page, 128), dump.page[item.byte - 128]
            message = (
                f"{item.name} over {item.first}-{item.last} is {expected:02X}h, but the module contains {stored:02X}h"
            )
            yield Finding(Severity.WARNING, f"00h:{item.byte}", "checksum", message)


def _texts(dump: _QsfpDump) -> Iterator[Finding]:
    for name in _TEXTS:
        field = find(name)
        if dump.has_field(field):
            data = dump.raw(field)
            yield from text_findings(name, _address(field), data, str(unscaled(field, data)))


def _identity(dump: _QsfpDump) -> Iterator[Finding]:
    if not dump.has_identity:
        return
    first, copy = dump.lower[0], dump.page[0]
    if first != copy:
        message = f"the identifier is {first:02X}h in byte 0 and {copy:02X}h in byte 128"
        yield Finding(Severity.WARNING, "00h:128", "contradiction", message, (("identifier_copy", None),))
    revision = dump.capabilities.revision
    if revision not in codes.REVISIONS:
        message = f"revision code {revision:02X}h is reserved"
        yield Finding(Severity.WARNING, "00h:1", "reserved", message, (("revision_compliance", None),))
    if dump.capabilities.power_class_8 and not dump.capabilities.max_power_w:
        message = "the module is in power class 8 but does not state its power in byte 107"
        yield Finding(Severity.WARNING, "00h:107", "contradiction", message, (("max_power", None),))
    if dump.capabilities.flat and dump.image.half(THRESHOLD_PAGE) is not None:
        message = "the dump contains page 03h, but the module has flat memory"
        yield Finding(Severity.WARNING, "00h:2.2", "contradiction", message)
    if not dump.image.has(None, range(1, 3)):
        return
    for side in ("tx", "rx"):
        if not getattr(dump.capabilities, f"{side}_cdr") and dump.page[194 - 128] & {"tx": 0x80, "rx": 0x40}[side]:
            message = f"the module can switch a {side.capitalize()} clock recovery that it does not have"
            yield Finding(Severity.NOTE, "00h:194", "contradiction", message)


def _monitors(dump: _QsfpDump) -> Iterator[Finding]:
    for monitor, (low, high) in PLAUSIBLE_RANGES.items():
        value, field = dump.number(monitor), find(monitor)
        if value is not None and not low <= value <= high:
            message = f"{value:g} {field.unit} is not a plausible {monitor} of a working module"
            yield Finding(Severity.ERROR, _address(field), "impossible", message, ((monitor, None),))
    for monitor in MONITORS:
        limits = [
            dump.number(f"{monitor}_{limit}") for limit in ("low_alarm", "low_warning", "high_warning", "high_alarm")
        ]
        present = [limit for limit in limits if limit is not None]
        if len(present) < len(limits) or not any(present):
            continue
        address = _address(find(f"{monitor}_high_alarm"))
        unit = find(monitor, None if monitor in PLAUSIBLE_RANGES else 1).unit
        if present != sorted(present):
            text = ", ".join(f"{limit:g}" for limit in present)
            message = f"{monitor} thresholds are out of order: {text} {unit}"
            yield Finding(Severity.WARNING, address, "contradiction", message)
            continue
        yield from _outside(dump, monitor, present[0], present[-1])


def _outside(dump: _QsfpDump, monitor: str, low: float, high: float) -> Iterator[Finding]:
    for lane in (None,) if monitor in PLAUSIBLE_RANGES else LANES:
        value, field = dump.number(monitor, lane), find(monitor, lane)
        # A dark lane is usual: nothing is connected or the transmitter is off.
        if value is None or low <= value <= high or (lane is not None and value < low):
            continue
        label = monitor if lane is None else f"{monitor} of lane {lane}"
        message = f"{label} is {value:g} {field.unit}, outside its alarm limits {low:g} to {high:g}"
        yield Finding(Severity.WARNING, _address(field), "outside_limits", message)


def _lane_differences(dump: _QsfpDump) -> Iterator[Finding]:
    if not dump.has_identity or not codes.lanes_share_fibre(dump.page):
        return
    limits = LR4_40G if codes.is_40g_lr4(dump.page) else LR4
    names: tuple[Power, ...] = ("tx_power", "rx_power")
    for name in names:
        powers_w = {lane: dump.number(name, lane) for lane in LANES}
        levels_dbm = {lane: dbm_from_w(power_w) if power_w else None for lane, power_w in powers_w.items()}
        message = describe_difference(name, levels_dbm, limits)
        if message:
            yield Finding(Severity.WARNING, _address(find(name, LANES[0])), KIND, message)


_CHECKS = (_missing, _checksums, _texts, _identity, _monitors, _lane_differences)
