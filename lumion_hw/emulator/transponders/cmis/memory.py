"""Memory of one emulated module: bytes by page, latched flags, and the contents after a reset.

Flags (CMIS 5.2 clauses 6.3.3 and 8.2.3): an event or a lasting condition sets a flag. Reading the byte clears the flag,
but a condition that still holds sets it again. A masked flag raises no interrupt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from lumion_hw.emulator.transponders.cmis.profiles import Limits, ModuleProfile, ModuleQuirks, VdmInstance
from lumion_hw.standards.cmis import (
    ALL_FIELDS,
    CHECKSUMS,
    FIELDS,
    Access,
    Page,
    Value,
    decode,
    encode,
    is_supported,
    raw,
)
from lumion_hw.standards.cmis.administrative_pages import GRID_NAMES
from lumion_hw.standards.cmis.cdb import CDB_PAGE, EPL_PAGES
from lumion_hw.standards.cmis.codec import checksum_of, duration_code, encode_vdm_value, optical_power_count
from lumion_hw.standards.cmis.fields import HALF_BYTES, LIMITS, Field
from lumion_hw.standards.cmis.interface_ids import END_OF_APPLICATIONS
from lumion_hw.standards.cmis.vdm import DESCRIPTOR_PAGE, OBSERVABLES, Descriptor, encode_descriptor
from lumion_hw.standards.registers import NumberFormat, raw_limits


class Memory:
    """Lower memory and upper pages of bank 0, 128 bytes each."""

    def __init__(self, pages: Iterable[int]) -> None:
        self._halves: dict[Page, bytearray] = {None: bytearray(HALF_BYTES)}
        self._halves |= {page: bytearray(HALF_BYTES) for page in pages}

    @property
    def pages(self) -> tuple[Page, ...]:
        """The pages of the module; ``None`` stands for the lower memory."""
        return tuple(self._halves)

    def has(self, page: Page) -> bool:
        """Return whether the module has a page."""
        return page in self._halves

    def half(self, page: Page) -> bytearray:
        """Return the array with the 128 bytes of a page, not a copy."""
        return self._halves[page]

    def byte(self, page: Page, byte: int) -> int:
        """Return byte 0 to 255 of a page."""
        return self._halves[page][byte % HALF_BYTES]

    def set_byte(self, page: Page, byte: int, value: int) -> None:
        """Set byte 0 to 255 of a page."""
        self._halves[page][byte % HALF_BYTES] = value

    def _field_bytes(self, name: str, index: int | None) -> bytes:
        field = FIELDS[name]
        span = field.span(index)
        first = span.start % HALF_BYTES
        return bytes(self._halves[field.page][first : first + len(span)])

    def value(self, name: str, index: int | None = None) -> Value:
        """Return the value of a field in its unit. Raises the errors of ``codec.decode``."""
        return decode(FIELDS[name], self._field_bytes(name, index), index)

    def number(self, name: str, index: int | None = None) -> float:
        """Return the value of a numeric field."""
        value = self.value(name, index)
        return 0.0 if isinstance(value, (str, bytes)) else float(value)

    def count(self, name: str, index: int | None = None) -> int:
        """Return the raw integer of a field; 0 without the field's page."""
        if FIELDS[name].page not in self._halves:
            return 0
        return raw(FIELDS[name], self._field_bytes(name, index), index)

    def advertised(self, name: str) -> int | None:
        """Return the raw integer of an advertising field; ``None`` if ``name`` is no field."""
        return self.count(name) if name in FIELDS else None

    def put(self, name: str, value: Value, index: int | None = None) -> None:
        """Set a field to a value in its unit. Raises the errors of ``codec.encode``."""
        field = FIELDS[name]
        data = encode(field, value, index, current=self._field_bytes(name, index) if field.bits is not None else None)
        first = field.span(index).start % HALF_BYTES
        self._halves[field.page][first : first + len(data)] = data

    def put_limited(self, name: str, value: float, index: int | None = None) -> None:
        """Set a numeric field to the nearest value that it can hold."""
        field = FIELDS[name]
        low, high = raw_limits(field)
        # The nearest value to an infinite value is a limit of the range.
        count = high if value > 0 else low
        if math.isfinite(value):
            count = min(max(round(value if field.scale == 1 else value / float(field.scale)), low), high)
        first = field.span(index).start % HALF_BYTES
        data = count.to_bytes(field.length, "big", signed=field.kind is NumberFormat.INT)
        self._halves[field.page][first : first + field.length] = (
            data[::-1] if field.kind is NumberFormat.UINT_LE else data
        )

    def lanes(self, name: str) -> int:
        """Return a field with one bit per lane, bit 0 for lane 1; 0 without the field's page."""
        field = FIELDS[name]
        return self._halves[field.page][field.byte % HALF_BYTES] if field.page in self._halves else 0

    def put_lanes(self, name: str, mask: int) -> None:
        """Set a field with one bit per lane."""
        field = FIELDS[name]
        self._halves[field.page][field.byte % HALF_BYTES] = mask & 0xFF

    def refresh_checksums(self) -> None:
        """Recompute the checksums of all pages."""
        for item in CHECKSUMS:
            if item.space in self._halves:
                half = self._halves[item.space]
                half[item.byte % HALF_BYTES] = checksum_of(item, bytes(half))


_SUMMARY_PAGES = (0x11, 0x12, 0x14, 0x2C)
_CUSTOM = ("custom_flags", "custom_masks")


def _flag_mask_pairs() -> Iterator[tuple[Field, Field]]:
    for field in ALL_FIELDS:
        if field.access is not Access.COR:
            continue
        mask = _CUSTOM[1] if field.name == _CUSTOM[0] else f"{field.name.removesuffix('_flag')}_mask"
        if mask in FIELDS:
            yield field, FIELDS[mask]


def _byte_pairs() -> tuple[tuple[Page, int, Page, int], ...]:
    pairs = {
        (flag.page, first.byte, mask.page, second.byte): None
        for flag, mask in _flag_mask_pairs()
        for first, second in zip(flag.locations(), mask.locations(), strict=True)
    }
    return tuple(pairs)


_BYTE_PAIRS = _byte_pairs()


class Flags:
    """The flags of one module, which stay set until they are read."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._held: dict[tuple[Page, int], int] = {}
        self._flag_mask_pairs = [pair for pair in _BYTE_PAIRS if memory.has(pair[0]) and memory.has(pair[2])]
        self._active: set[tuple[str, int | None]] = set()
        self._conditions: dict[tuple[str, int | None], tuple[bool, ...]] = {}
        self._locations: dict[tuple[str, int | None], tuple[Page, int, int] | None] = {}
        self._summaries = [(page, *_summary_bit(page)) for page in _SUMMARY_PAGES if memory.has(page)]

    def _flag_location(self, name: str, index: int | None) -> tuple[Page, int, int] | None:
        key = (name, index)
        if key not in self._locations:
            field = FIELDS[name]
            # A flag that is not advertised is never set: a host could not interpret it.
            exists = self._memory.has(field.page) and is_supported(field, self._memory.advertised) is not False
            self._locations[key] = (field.page, field.span(index)[0], 1 << field.shift(index)) if exists else None
        return self._locations[key]

    def raise_event(self, name: str, index: int | None = None) -> None:
        """Set a flag because of an event."""
        location = self._flag_location(name, index)
        if location is not None:
            page, byte, mask = location
            self._memory.set_byte(page, byte, self._memory.byte(page, byte) | mask)

    def hold(self, name: str, active: bool, index: int | None = None) -> None:
        """Set a flag while a condition lasts."""
        key = (name, index)
        if active == (key in self._active):  # no change; a read has set the flag again by itself
            return
        location = self._flag_location(name, index)
        if location is None:
            return
        if active:
            self._active.add(key)
        else:
            self._active.discard(key)
        page, byte, mask = location
        flags = self._held.get((page, byte), 0)
        self._held[page, byte] = flags | mask if active else flags & ~mask
        if active:
            self._memory.set_byte(page, byte, self._memory.byte(page, byte) | mask)

    def hold_all(self, names: tuple[str, ...], active: tuple[bool, ...], index: int | None = None) -> None:
        """Set several flags, each while its own condition lasts."""
        # Called for every limit of every monitor at every sample, nearly always without a change.
        if self._conditions.get((names[0], index)) != active:
            self._conditions[names[0], index] = active
            for name, is_active in zip(names, active, strict=True):
                self.hold(name, is_active, index)

    def value_after_read(self, page: Page, byte: int) -> int:
        """Return the value of a flag byte after a read: the conditions that still hold."""
        return self._held.get((page, byte), 0)

    @property
    def interrupt(self) -> bool:
        """Whether an unmasked flag is set (CMIS 6.3.3.3)."""
        memory = self._memory
        return any(
            flags & ~memory.byte(mask_page, mask_byte)
            for page, byte, mask_page, mask_byte in self._flag_mask_pairs
            if (flags := memory.byte(page, byte))
        )

    def put_summaries(self) -> None:
        """Update the flag summaries in 00h:4 and on page 12h."""
        # Called at every read of the lower memory, so it uses bits that were looked up once.
        lower = self._memory.half(None)
        for page, byte, mask in self._summaries:
            any_set = any(map(self._memory.half(page).__getitem__, _FLAG_OFFSETS[page]))
            lower[byte] = lower[byte] | mask if any_set else lower[byte] & ~mask
        if self._memory.has(0x12):
            # Bytes 231 to 238: the flags of one lane each.
            lanes = sum(1 << lane for lane in range(8) if self._memory.byte(0x12, 231 + lane))
            self._memory.put_lanes("tuning_flag_summary", lanes)


def _summary_bit(page: int) -> tuple[int, int]:
    field = FIELDS[f"flag_summary_page_{page:02x}h"]
    return field.span(0).start, 1 << field.shift(0)


_FLAG_OFFSETS = {
    page: sorted({first % HALF_BYTES for flag_page, first, _, _ in _BYTE_PAIRS if flag_page == page})
    for page in _SUMMARY_PAGES
}
"""Offsets of the flag bytes of a page within its 128 bytes."""


_DURATION_MARGIN = 1.2  # hosts derive their deadlines from these codes; a real module stays below them
_COHERENT_PAGES = (0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x38, 0x3A, 0x3B, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45)
_LOWER_APPLICATIONS = 8
_DEFAULT_AMPLITUDE = 1
_FIRST_WITH_COHERENT_BIT = 0x53
_OPEN_UNSIGNED_SET, _OPEN_SIGNED_SET = 14, 15


def upper_pages(profile: ModuleProfile) -> tuple[int, ...]:
    """Return the upper pages of a module of this type."""
    pages = [0x00, 0x01, 0x02, 0x10, 0x11]
    if profile.user_eeprom:
        pages.append(0x03)
    if profile.laser is not None:
        pages += [0x04, 0x12]
    if profile.diagnostics:
        pages += [0x13, 0x14]
    if profile.vdm:
        pages += [first + group for first in (0x20, 0x24, 0x28) for group in range(len(profile.vdm))]
        pages += [0x2C, 0x2D, 0x2F]
    if profile.coherent:
        pages += _COHERENT_PAGES
    if profile.cdb is not None:
        pages += [CDB_PAGE, *EPL_PAGES[: profile.cdb.epl_pages]]
    return tuple(sorted(pages))


def build_memory(profile: ModuleProfile, quirks: ModuleQuirks, serial: str) -> Memory:
    """Return the memory of a module after a reset.

    Raises ``ValueError`` if ``serial`` does not fit its field or the profile names an unknown field, and ``LimitError``
    if a number of the profile does not fit its register.
    """
    memory = Memory(upper_pages(profile))
    for name, value in profile.registers.items():
        if memory.has(FIELDS[name].page):
            memory.put(name, value)
    memory.put("serial_number", serial)
    memory.put("stepped_config_only", quirks.stepped_config_only)
    _put_applications(memory, profile)
    _put_advertisements(memory, profile)
    _put_durations(memory, profile)
    _put_thresholds(memory, profile)
    _put_laser(memory, profile)
    _put_vdm(memory, profile)
    _put_defaults(memory, profile)
    memory.refresh_checksums()
    return memory


def _put_applications(memory: Memory, profile: ModuleProfile) -> None:
    for number in range(1, 16):
        prefix = "application" if number <= _LOWER_APPLICATIONS else "more_application"
        application = profile.application(number)
        if application is None:
            memory.put(f"{prefix}_host_interface", END_OF_APPLICATIONS, number)
            continue
        memory.put(f"{prefix}_host_interface", application.host_interface, number)
        memory.put(f"{prefix}_media_interface", application.media_interface, number)
        memory.put(f"{prefix}_host_lane_count", application.host_lanes, number)
        memory.put(f"{prefix}_media_lane_count", application.media_lanes, number)
        memory.put(f"{prefix}_host_lane_options", application.host_options, number)
        memory.put("application_media_lane_options", application.media_options, number)
    for lane in range(1, 9):
        present = lane <= profile.media_lanes
        memory.put("media_lane_unsupported", not present, lane)
        fibre, wavelength = profile.fibre(lane) if present else (0, 0)
        for direction in ("tx", "rx"):
            memory.put(f"{direction}_lane_wavelength", wavelength, lane)
            memory.put(f"{direction}_lane_fibre", fibre, lane)


def _put_advertisements(memory: Memory, profile: ModuleProfile) -> None:
    memory.put("vdm_supported", bool(profile.vdm))
    memory.put("diagnostic_pages_supported", profile.diagnostics)
    memory.put("page_03h_supported", profile.user_eeprom)
    is_reserved = memory.count("cmis_revision") < _FIRST_WITH_COHERENT_BIT
    memory.put("coherent_pages_supported", profile.coherent and not is_reserved)
    if profile.cdb is not None:
        memory.put("cdb_instances", 1)
        memory.put("cdb_background_mode", profile.cdb.background)
        memory.put("cdb_epl_pages", profile.cdb.epl_pages_code)
        memory.put("cdb_length_extension", 120.0)  # 8 + 120: a page of extended payload in one write
        memory.put("cdb_use_extended_busy", 1)
        memory.put("cdb_extended_busy", 1)


def _put_durations(memory: Memory, profile: ModuleProfile) -> None:
    times = profile.timing
    for name, seconds in (
        ("dp_deinit", times.dp_deinit_s),
        ("dp_init", times.dp_init_s),
        ("power_up", times.power_up_s),
        # Power-down waits for the data paths, which turn off their light and de-initialise first.
        ("power_down", times.power_down_s + times.dp_deinit_s + times.tx_turn_off_s),
        ("tx_turn_on", times.tx_turn_on_s),
        ("tx_turn_off", times.tx_turn_off_s),
    ):
        memory.put(f"max_duration_{name}", duration_code(seconds * _DURATION_MARGIN))


def threshold_value(memory: Memory, monitor: str, value: float) -> float:
    """Return a threshold of a monitor in register units: mW for powers, counts for auxiliary monitors."""
    if monitor in ("tx_power", "rx_power"):
        return optical_power_count(value) * 1e-4
    if monitor == "tx_bias":
        return value / (1 << memory.count("bias_scale"))
    if monitor == "aux1":
        return round(value * 32767 / 100)
    if monitor == "aux2":
        return round(value * 256)
    return value


def _put_thresholds(memory: Memory, profile: ModuleProfile) -> None:
    for monitor, limits in profile.thresholds.items():
        for limit, value in zip(LIMITS, limits, strict=True):
            memory.put(f"{monitor}_{limit}_threshold", threshold_value(memory, monitor, value))
    if profile.coherent:
        for which in ("rx_total_power", "rx_signal_power"):
            for limit, value in zip(LIMITS, profile.thresholds["rx_power"], strict=True):
                memory.put(f"{which}_{limit}_threshold", value)


def _put_laser(memory: Memory, profile: ModuleProfile) -> None:
    laser = profile.laser
    if laser is None:
        return
    for grid, (low, high) in laser.grids.items():
        memory.put(f"grid_{GRID_NAMES[grid]}_supported", True)
        memory.put(f"grid_{GRID_NAMES[grid]}_low_channel", low)
        memory.put(f"grid_{GRID_NAMES[grid]}_high_channel", high)
    if laser.fine is not None:
        memory.put("fine_tuning_supported", True)
        memory.put("fine_tuning_resolution", laser.fine.resolution_mhz)
        memory.put("fine_tuning_low", laser.fine.low_mhz)
        memory.put("fine_tuning_high", laser.fine.high_mhz)
    memory.put("programmable_power_supported", True)
    memory.put("min_output_power", laser.min_power_dbm)
    memory.put("max_output_power", laser.max_power_dbm)


def threshold_sets(profile: ModuleProfile, group: int) -> dict[int, int]:
    """Return the number of the threshold set for each VDM observable of a group that has limits."""
    codes = dict.fromkeys(item.code for item in profile.vdm[group] if item.code in profile.vdm_thresholds)
    return {code: number for number, code in enumerate(codes)}


def _threshold_set(instance: VdmInstance, sets: dict[int, int]) -> int:
    signed = OBSERVABLES[instance.code].kind is NumberFormat.INT
    return sets.get(instance.code, _OPEN_SIGNED_SET if signed else _OPEN_UNSIGNED_SET)


def _threshold_rows(profile: ModuleProfile, group: int) -> Iterator[tuple[int, list[bytes]]]:
    for code, number in threshold_sets(profile, group).items():
        limits: Limits = profile.vdm_thresholds[code]
        yield number, [encode_vdm_value(OBSERVABLES[code], value) for value in limits]
    yield _OPEN_UNSIGNED_SET, [b"\xff\xff", b"\x00\x00"] * 2
    yield _OPEN_SIGNED_SET, [b"\x7f\xff", b"\x80\x00"] * 2


def _put_vdm(memory: Memory, profile: ModuleProfile) -> None:
    for group, instances in enumerate(profile.vdm):
        sets = threshold_sets(profile, group)
        for index, instance in enumerate(instances):
            descriptor = Descriptor(_threshold_set(instance, sets), instance.lane, instance.code)
            memory.half(DESCRIPTOR_PAGE + group)[2 * index : 2 * index + 2] = encode_descriptor(descriptor)
        for number, row in _threshold_rows(profile, group):
            for limit, data in zip(LIMITS, row, strict=True):
                memory.put(f"vdm_{group}_{limit}_threshold", data, number)
    if profile.vdm:
        memory.put("vdm_groups", len(profile.vdm) - 1)
        memory.put("vdm_fine_interval", profile.timing.sub_interval_s * 1e3)


def application_settings(memory: Memory) -> dict[str, int]:
    """Return the signal-integrity settings of all applications, which a lane uses without explicit control.

    The active control set shows them. Settings that the module does not have are 0; clock recovery without a bypass
    control is on.
    """
    amplitudes = memory.count("rx_output_levels") if memory.count("rx_amplitude_supported") else 0
    return {
        "tx_adaptive_eq": memory.count("tx_adaptive_eq_supported"),
        "tx_cdr": memory.count("tx_cdr_supported"),
        "rx_cdr": memory.count("rx_cdr_supported"),
        "rx_amplitude": _DEFAULT_AMPLITUDE if amplitudes >> _DEFAULT_AMPLITUDE & 1 else 0,
    }


def _put_defaults(memory: Memory, profile: ModuleProfile) -> None:
    """Set the controls to the values after a reset (CMIS 8.2.9: 00h:26 is 40h; application 1 on its lanes)."""
    memory.put("low_pwr_allow_request_hw", True)
    first = profile.applications[0]
    sets = ["staged_0", "active"]
    if memory.count("staged_set_1_supported"):
        sets.append("staged_1")  # both staged sets begin as copies of the active set
    # Application 1 on all lanes where it may start: without a low-power pin a module lights up by itself.
    for start in range(8):
        if not first.host_options >> start & 1:
            continue
        for lane in range(start + 1, start + 1 + first.host_lanes):
            for name in sets:
                memory.put(f"{name}_app_sel", 1, lane)
                memory.put(f"{name}_data_path_id", start, lane)
                for setting, value in application_settings(memory).items():
                    memory.put(f"{name}_{setting}", value, lane)
    laser = profile.laser
    if laser is not None:
        for lane in range(1, profile.media_lanes + 1):
            memory.put("grid", laser.default_grid, lane)
            memory.put("channel", laser.default_channel, lane)
            memory.put("target_output_power", laser.default_power_dbm, lane)
