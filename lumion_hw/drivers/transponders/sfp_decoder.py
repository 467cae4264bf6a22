"""Decodes memory dumps of SFP modules (SFF-8472): all fields as text, and findings about errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from lumion_hw.drivers.transponders.decoded import (
    PLAUSIBLE_RANGES,
    DecodedField,
    DecodedModule,
    Finding,
    Severity,
    cable_text,
    ranges_text,
    sorted_by_severity,
    text_findings,
)
from lumion_hw.drivers.transponders.sfp_diagnostics import (
    LARGEST_RAW,
    MONITORS,
    CalibrationKind,
    DiagnosticCalibration,
    OpticalPower,
    implausibility_text,
)
from lumion_hw.drivers.transponders.sfp_identity import capabilities_of, identity_of, is_set
from lumion_hw.interfaces import Quality, RangeState, TransponderIdentity
from lumion_hw.standards.cmis import codes
from lumion_hw.standards.registers import Checksum, NumberFormat, checksum, checksum_matches, unscaled
from lumion_hw.standards.sff8472.codes import (
    ENCODINGS,
    EXTENDED_COMPLIANCE,
    REVISIONS,
    cable_kind,
    is_copper,
    technologies,
)
from lumion_hw.standards.sff8472.image import SfpImage
from lumion_hw.standards.sff8472.registers import A0H, A2H, BITS, CHECKSUMS, FIELDS, FLAG_BITS, SfpField

LIMITS = ("high_alarm", "low_alarm", "high_warning", "low_warning")
_POWERS = ("tx_power", "rx_power")
_TEXTS = ("vendor_name", "part_number", "revision", "serial_number", "date_code")
_IDENTITY = {
    "vendor": "vendor_name",
    "part_number": "part_number",
    "revision": "revision",
    "serial": "serial_number",
    "date_code": "date_code",
    "technology": "transceiver_codes",
}
_ADDRESSES = {A0H: "A0h", A2H: "A2h"}
_KEYS = {A0H: "a0", A2H: "a2"}
_SUPPORTED_BY = {  # bit of A0h that must be set for a bit, or all bits of one kind, to be valid
    "soft_tx_disable": "soft_tx_disable_implemented",
    "tx_fault": "soft_tx_fault_implemented",
    "rx_los": "soft_rx_los_implemented",
    "soft_rs0_select": "soft_rate_select_implemented",
    "alarm": "flags_implemented",
    "warning": "flags_implemented",
    "cal": "externally_calibrated",
    "wavelength_fraction": "tunable",
}
_DECIDED_BY = {"rate_margin_max": FIELDS["nominal_rate"].byte}
"""Byte of A0h that decides what a field means, if not a bit of ``_SUPPORTED_BY``."""
_OVERFLOW_TEXTS = {"length_smf_km": "more than 254 km", "length_smf_100m": "more than 25.4 km"}

_MAX_PRINTED_BYTES = 16
Words = Callable[[int], str]


def _code(table: str) -> Words:
    return lambda code: codes.describe(table, code)


def _of(table: Mapping[int, str]) -> Words:
    return lambda code: table.get(code, "unspecified" if not code else f"0x{code:02X}")


_CODES: Mapping[str, Words] = {
    "identifier": _code("identifier"),
    "connector": _code("connector"),
    "encoding": _of(ENCODINGS),
    "compliance": _of(REVISIONS),
    "ext_compliance": _of(EXTENDED_COMPLIANCE),
}


def _support_of(name: str) -> str | None:
    return _SUPPORTED_BY.get(name if name in _SUPPORTED_BY else name.partition("_")[0])


class _SfpDump:
    """Memory image of an SFP module."""

    def __init__(self, image: SfpImage) -> None:
        self.image = image
        self.memories = {A0H: image.a0, A2H: image.a2}
        self.capabilities = capabilities_of(image.a0)
        self.copper = is_copper(image.a0)

    @cached_property
    def checksums(self) -> dict[Checksum, bool]:
        """Whether each checksum in the dump is right."""
        memories = {item: self.memories[item.space] for item in CHECKSUMS.values()}
        return {
            item: checksum_matches(item, memory)
            for item, memory in memories.items()
            if self.has(item.space, range(item.first, item.byte + 1))
        }

    @cached_property
    def calibration(self) -> DiagnosticCalibration | None:
        """Calibration of the monitors, or ``None`` if the dump does not contain its constants."""
        has_kind = self.has(A0H, [BITS["internally_calibrated"].byte])
        is_external = self.capabilities.calibration is CalibrationKind.EXTERNAL
        constants = range(FIELDS["cal_rx_power_4"].byte, FIELDS["cal_supply_offset"].end)
        if not has_kind or len(self.image.a2) < FIELDS["cc_dmi"].end or (is_external and not self.has(A2H, constants)):
            return None
        return DiagnosticCalibration.from_memory(self.capabilities.calibration, self.image.a2)

    def has(self, device: int, span: Iterable[int]) -> bool:
        """Return whether all given bytes of the memory at ``device`` are known."""
        return self.image.has(_KEYS[device], span)

    def has_field(self, field: SfpField) -> bool:
        """Return whether the image contains all bytes of a field."""
        return self.has(field.space, range(field.byte, field.end))

    def raw(self, field: SfpField) -> bytes:
        """Return the bytes of a field."""
        return self.memories[field.space][field.byte : field.end]

    def number(self, name: str) -> float | None:
        """Return the calibrated value of a monitor or threshold, or ``None`` if the value is not known."""
        field = FIELDS[name]
        count = unscaled(field, self.raw(field)) if self.has_field(field) else None
        if not isinstance(count, (int, float)) or self.calibration is None:
            return None
        return self.calibration.value(_monitor_of(name), count)

    def is_plausible(self, name: str) -> bool:
        """Return whether a monitor can have this value; unknown values count as plausible."""
        field, monitor = FIELDS[name], _monitor_of(name)
        count = unscaled(field, self.raw(field)) if self.has_field(field) else None
        if not isinstance(count, (int, float)) or self.calibration is None:
            return True
        if monitor in _POWERS and count == LARGEST_RAW:
            return True  # a saturated converter is always plausible
        return self.calibration.is_plausible(monitor, count)

    def supported(self, name: str, device: int) -> bool:
        """Return whether the module implements a field of the memory at I2C address ``device``."""
        # Without this bit, A2h need not contain diagnostics.
        if device == A2H and not self.capabilities.diagnostics:
            return not self.has(A0H, [BITS["ddm_implemented"].byte])
        if name == "wavelength" and self.copper:
            return False  # copper cables have no wavelength; the bytes may describe the cable
        support = _support_of(name)
        return support is None or is_set(support, self.image.a0) or not self.has(A0H, [BITS[support].byte])

    def damaged(self, name: str, device: int, offset: int) -> bool:
        """Return whether a wrong checksum makes a field at ``offset`` of the memory at ``device`` doubtful."""
        support = _support_of(name)
        deciding = BITS[support].byte if support is not None else _DECIDED_BY.get(name)
        return self._is_under_wrong_sum(device, offset) or (
            deciding is not None and self._is_under_wrong_sum(A0H, deciding)
        )

    def _is_under_wrong_sum(self, device: int, offset: int) -> bool:
        damaged = {item.name for item, fits in self.checksums.items() if not fits}
        if device == A2H and "CC_EXT" in damaged:
            return True  # A0h:92-93 define how to interpret A2h
        if device == A2H and "CC_DMI" in damaged and self.capabilities.calibration is CalibrationKind.EXTERNAL:
            return True
        # The byte of the checksum is included, because either may be damaged.
        own = (item for item in self.checksums if item.space == device and item.first <= offset <= item.byte)
        return any(item.name in damaged for item in own)


def decode_sfp(image: SfpImage) -> DecodedModule:
    """Decode a memory image of an SFP module. Missing or wrong content becomes a finding."""
    dump = _SfpDump(image)
    fields = (*_fields(dump), *_bits(dump), *_flags(dump))
    return DecodedModule(
        source=image.source,
        form_factor=codes.describe("identifier", image.a0[0]),
        standard="SFF-8472",
        revision=_CODES["compliance"](image.a0[FIELDS["compliance"].byte]) if _is_known(dump, "compliance") else "",
        identity=_identity(dump),
        flat=not dump.capabilities.diagnostics,
        applications=(),
        thresholds=_thresholds(fields),
        checksums={item.name: fits for item, fits in dump.checksums.items()},
        fields=fields,
        samples=(),
        findings=sorted_by_severity(finding for check in _CHECKS for finding in check(dump)),
        cable=_cable(dump, fields),
    )


def _cable(dump: _SfpDump, fields: tuple[DecodedField, ...]) -> str:
    if not all(dump.checksums.values()) or not dump.has(A0H, (2, 8, 36)):
        return ""
    length_m = next((item.value for item in fields if item.name == "length_om4"), None)
    return cable_text(cable_kind(dump.image.a0), length_m if isinstance(length_m, int | float) else None)


def _is_known(dump: _SfpDump, name: str) -> bool:
    return dump.has_field(FIELDS[name])


def _identity(dump: _SfpDump) -> TransponderIdentity:
    """Return the identity. Parts with unknown bytes are empty."""
    identity = identity_of(dump.image.a0)
    unknown: dict[str, Any] = {part: "" for part, name in _IDENTITY.items() if not _is_known(dump, name)}
    if not _is_known(dump, "wavelength"):
        unknown["wavelength_nm"] = 0.0
    return replace(identity, **unknown)


# -- fields


def _monitor_of(name: str) -> str:
    stem = next((name.removesuffix(f"_{limit}") for limit in LIMITS if name.endswith(f"_{limit}")), name)
    return stem if stem in MONITORS else ""


def _fields(dump: _SfpDump) -> Iterator[DecodedField]:
    for field in FIELDS.values():
        if dump.has_field(field):
            yield _field(dump, field)


def _field(dump: _SfpDump, field: SfpField) -> DecodedField:
    raw = dump.raw(field)
    value, unit, description, quality = _meaning(dump, field, unscaled(field, raw))
    return _decoded(dump, field.name, field.space, field.byte, raw, value, unit, description, quality)


def _meaning(
    dump: _SfpDump, field: SfpField, value: int | float | str | bytes
) -> tuple[int | float | str | bytes | None, str, str, Quality]:
    if isinstance(value, str):
        return value, "", value, Quality.OK
    if isinstance(value, bytes):
        description = ", ".join(technologies(dump.image.a0)) if field.name == "transceiver_codes" else ""
        return (
            value,
            "",
            description or value[:_MAX_PRINTED_BYTES].hex() + ("..." if len(value) > _MAX_PRINTED_BYTES else ""),
            Quality.OK,
        )
    if _monitor_of(field.name):
        return _monitor(dump, field, value)
    if field.name in _CODES:
        return value, "", _CODES[field.name](int(value)), Quality.OK
    # FFh means that the value exceeds the byte (SFF-8472, bytes 12, 14 and 15).
    if field.kind is NumberFormat.UINT and value == 0xFF and field.name in (*_OVERFLOW_TEXTS, "nominal_rate"):
        description = _OVERFLOW_TEXTS.get(field.name, "more than 25.4 GBd, see byte 66")
        return None, field.unit, description, Quality.ABOVE_RANGE
    scale, unit = float(field.scale), field.unit
    # Byte 18 is in units of 10 m for OM4, and in metres for copper.
    if field.name == "length_om4" and dump.copper:
        scale = 1.0
    # With FFh in byte 12, bytes 66 and 67 contain the rate in units of 250 MBd and its margin.
    if field.name == "rate_margin_max" and dump.image.a0[FIELDS["nominal_rate"].byte] == 0xFF:
        scale, unit = 250.0, "MBd"
    number = value if scale == 1.0 else value * scale
    is_number = math.isfinite(number)
    quality = Quality.OK if is_number else Quality.INCONSISTENT
    return number if is_number else None, unit, f"{number:g} {unit}".rstrip(), quality


def _monitor(
    dump: _SfpDump, field: SfpField, count: int | float
) -> tuple[int | float | str | bytes | None, str, str, Quality]:
    monitor = _monitor_of(field.name)
    if dump.calibration is None:
        return None, field.unit, "", Quality.STALE
    number = dump.calibration.value(monitor, count)
    if not dump.is_plausible(field.name):
        unit = "dBm" if monitor in _POWERS else field.unit
        return None, unit, implausibility_text(monitor, number), Quality.INCONSISTENT
    if monitor not in _POWERS:
        return number, field.unit, f"{number:.5g} {field.unit}", Quality.OK
    power: OpticalPower = dump.calibration.power(monitor, int(count))
    if power.power_dbm is None:
        is_over = power.state is RangeState.OVER
        description = "above +8.16 dBm" if is_over else "dark (below -40 dBm)"
        return None, "dBm", description, Quality.ABOVE_RANGE if is_over else Quality.BELOW_RANGE
    return power.power_dbm, "dBm", f"{power.power_dbm:.2f} dBm", Quality.OK


def _bits(dump: _SfpDump) -> Iterator[DecodedField]:
    for bit in BITS.values():
        memory = dump.memories[bit.space]
        if dump.has(bit.space, [bit.byte]):
            value, raw = bool(memory[bit.byte] & bit.mask), memory[bit.byte : bit.byte + 1]
            description = "yes" if value else "no"
            yield _decoded(dump, bit.name, bit.space, bit.byte, raw, value, "", description, Quality.OK)


def _flags(dump: _SfpDump) -> Iterator[DecodedField]:
    for kind in ("alarm", "warning"):
        field = FIELDS[f"{kind}_flags"]
        if dump.has_field(field):
            raw = dump.raw(field)
            for name, bit in FLAG_BITS.items():
                value = bool(int.from_bytes(raw, "big") >> bit & 1)
                description = "yes" if value else "no"
                yield _decoded(dump, f"{kind}_{name}", A2H, field.byte, raw, value, "", description, Quality.OK)


def _decoded(
    dump: _SfpDump,
    name: str,
    device: int,
    offset: int,
    raw: bytes,
    value: int | float | str | bytes | None,
    unit: str,
    description: str,
    quality: Quality,
) -> DecodedField:
    if not dump.supported(name, device):
        value, description, quality = None, "", Quality.NOT_SUPPORTED
    if dump.damaged(name, device, offset) and quality is not Quality.STALE:
        quality = Quality.CHECKSUM_WRONG
    address = f"{_ADDRESSES[device]}:{offset}"
    return DecodedField(name, None, address, 0, raw.hex(), value, unit, description, quality)


def _thresholds(fields: tuple[DecodedField, ...]) -> dict[str, tuple[str, ...]]:
    description = {item.name: item.description for item in fields if item.quality in (Quality.OK, Quality.BELOW_RANGE)}
    table = {monitor: [description.get(f"{monitor}_{limit}") for limit in LIMITS] for monitor in MONITORS}
    return {
        monitor: tuple(item for item in row if item is not None) for monitor, row in table.items() if None not in row
    }


# -- findings


def _missing_bytes(dump: _SfpDump) -> Iterator[Finding]:
    for remark in dump.image.remarks:
        yield Finding(Severity.WARNING, remark.partition(":")[0], "truncated", f"the dump is incomplete: {remark}")
    for key, reason in dump.image.unreadable.items():
        yield Finding(Severity.WARNING, f"{key.upper()}h", "unreadable", f"the memory could not be read {reason}")
    for key, offsets in dump.image.unknown.items():
        message = f"{len(offsets)} bytes are unknown: {ranges_text(offsets)}"
        yield Finding(Severity.NOTE, f"{key.upper()}h", "unread", message)


def _checksums(dump: _SfpDump) -> Iterator[Finding]:
    for item, fits in dump.checksums.items():
        if not fits:
            memory = dump.memories[item.space]
            expected, stored = checksum(memory[item.first : item.last + 1]), memory[item.byte]
            message = (
                f"{item.name} over {item.first}-{item.last} is {expected:02X}h, but the module contains {stored:02X}h"
            )
            yield Finding(Severity.WARNING, f"{_ADDRESSES[item.space]}:{item.byte}", "checksum", message)


def _texts(dump: _SfpDump) -> Iterator[Finding]:
    for name in _TEXTS:
        field = FIELDS[name]
        if dump.has_field(field):
            yield from text_findings(name, f"A0h:{field.byte}", dump.raw(field), str(unscaled(field, dump.raw(field))))


def _diagnostics(dump: _SfpDump) -> Iterator[Finding]:
    capabilities, present = dump.capabilities, bool(dump.image.a2)
    if capabilities.diagnostics and not present and "a2" not in dump.image.unreadable:
        yield Finding(Severity.NOTE, "A0h:92", "missing_page", "the module has A2h, but the dump does not contain it")
    if present and not capabilities.diagnostics and dump.has(A0H, [BITS["ddm_implemented"].byte]):
        message = "the dump contains A2h, but the module does not announce it"
        yield Finding(Severity.WARNING, "A0h:92", "contradiction", message)
    if capabilities.diagnostics and capabilities.calibration is CalibrationKind.INCONSISTENT:
        message = "calibration is marked as both internal and external, or neither; treated as internal"
        yield Finding(Severity.WARNING, "A0h:92", "contradiction", message)
    if capabilities.address_change:
        yield Finding(Severity.WARNING, "A0h:92", "unknown", "A2h requires an address change, which is not supported")


def _implausible(dump: _SfpDump, monitor: str) -> Iterator[Finding]:
    for name in (monitor, *(f"{monitor}_{limit}" for limit in LIMITS)):
        value = dump.number(name)
        if value is not None and not dump.is_plausible(name):
            message = f"{name} is {implausibility_text(monitor, value)}"
            yield Finding(Severity.ERROR, f"A2h:{FIELDS[name].byte}", "impossible", message)


def _constants(dump: _SfpDump) -> Iterator[Finding]:
    if dump.capabilities.calibration is not CalibrationKind.EXTERNAL:
        return
    for name, field in FIELDS.items():
        if field.kind is NumberFormat.F32 and dump.has_field(field):
            constant = unscaled(field, dump.raw(field))
            if isinstance(constant, float) and not math.isfinite(constant):
                message = f"{name} is {constant}, so the power cannot be calibrated"
                yield Finding(Severity.ERROR, f"A2h:{field.byte}", "impossible", message)


def _monitors(dump: _SfpDump) -> Iterator[Finding]:
    if not dump.capabilities.diagnostics:
        return
    for monitor in MONITORS:
        yield from _implausible(dump, monitor)
        value, location = dump.number(monitor), f"A2h:{FIELDS[monitor].byte}"
        low, high = PLAUSIBLE_RANGES.get(monitor, (float("-inf"), float("inf")))
        if value is not None and not dump.is_plausible(monitor):
            continue
        if value is not None and not low <= value <= high:
            message = f"{value:g} {FIELDS[monitor].unit} is not a plausible {monitor} of a working module"
            yield Finding(Severity.ERROR, location, "impossible", message)
            continue
        limits = [
            dump.number(f"{monitor}_{limit}") for limit in ("low_alarm", "low_warning", "high_warning", "high_alarm")
        ]
        present_limits = [limit for limit in limits if limit is not None]
        usable = all(dump.is_plausible(f"{monitor}_{limit}") for limit in LIMITS)
        if len(present_limits) < len(limits) or not any(present_limits) or not usable:
            continue
        first = f"A2h:{FIELDS[f'{monitor}_high_alarm'].byte}"
        if present_limits != sorted(present_limits):
            limits_text = ", ".join(f"{limit:g}" for limit in present_limits)
            message = f"{monitor} thresholds are out of order: {limits_text} {FIELDS[monitor].unit}"
            yield Finding(Severity.WARNING, first, "contradiction", message)
        elif (
            value is not None
            and not (monitor in _POWERS and value < present_limits[0])
            and not present_limits[0] <= value <= present_limits[-1]
        ):
            low, high = present_limits[0], present_limits[-1]
            message = f"{monitor} is {value:g} {FIELDS[monitor].unit}, outside its alarm limits {low:g} to {high:g}"
            yield Finding(Severity.WARNING, location, "outside_limits", message)


_CHECKS = (_missing_bytes, _checksums, _texts, _diagnostics, _constants, _monitors)
