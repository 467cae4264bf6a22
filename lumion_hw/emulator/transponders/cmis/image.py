"""The memory of a module as it comes out of a reset: advertisements from its profile, defaults in the controls."""

from __future__ import annotations

from collections.abc import Iterator

from lumion_hw.emulator.transponders.cmis.memory import Memory
from lumion_hw.emulator.transponders.cmis.profile import Limits, ModuleProfile, ModuleQuirks, VdmInstance
from lumion_hw.standards.cmis import FIELDS, NumberFormat
from lumion_hw.standards.cmis.administrative_pages import GRID_NAMES
from lumion_hw.standards.cmis.cdb import CDB_PAGE, EPL_PAGES
from lumion_hw.standards.cmis.codec import duration_code, encode_vdm_value, optical_power_count
from lumion_hw.standards.cmis.fields import LIMITS
from lumion_hw.standards.cmis.interface_ids import END_OF_APPLICATIONS
from lumion_hw.standards.cmis.vdm import DESCRIPTOR_PAGE, OBSERVABLES, Descriptor, encode_descriptor

_DURATION_MARGIN = 1.2
_COHERENT_PAGES = (0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x38, 0x3A, 0x3B, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45)
_LOWER_APPLICATIONS = 8
_OPEN_UNSIGNED_SET, _OPEN_SIGNED_SET = 14, 15


def pages_of(profile: ModuleProfile) -> tuple[int, ...]:
    """Return the upper pages a module of this type has."""
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

    Raises:
        ValueError: ``serial`` does not fit its field, or the profile names a field that does not exist.
        LimitError: A number of the profile does not fit its register.
    """
    memory = Memory(pages_of(profile))
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
        memory.put("tx_lane_wavelength", min(lane, profile.media_lanes) if present else 0, lane)
        memory.put("tx_lane_fibre", lane if present else 0, lane)
        memory.put("rx_lane_wavelength", min(lane, profile.media_lanes) if present else 0, lane)
        memory.put("rx_lane_fibre", lane if present else 0, lane)


def _put_advertisements(memory: Memory, profile: ModuleProfile) -> None:
    memory.put("vdm_supported", bool(profile.vdm))
    memory.put("diagnostic_pages_supported", profile.diagnostics)
    memory.put("page_03h_supported", profile.user_eeprom)
    memory.put("coherent_pages_supported", False)  # reserved before CMIS 5.3
    if profile.cdb is not None:
        memory.put("cdb_instances", 1)
        memory.put("cdb_background_mode", profile.cdb.background)
        memory.put("cdb_epl_pages", profile.cdb.epl_pages_code)
        memory.put("cdb_length_extension", 120.0)
        memory.put("cdb_use_extended_busy", 1)
        memory.put("cdb_extended_busy", 1)


def _put_durations(memory: Memory, profile: ModuleProfile) -> None:
    times = profile.timing
    for name, seconds in (
        ("dp_deinit", times.dp_deinit_s),
        ("dp_init", times.dp_init_s),
        ("power_up", times.power_up_s),
        ("power_down", times.power_down_s + times.dp_deinit_s + times.tx_turn_off_s),
        ("tx_turn_on", times.tx_turn_on_s),
        ("tx_turn_off", times.tx_turn_off_s),
    ):
        memory.put(f"max_duration_{name}", duration_code(seconds * _DURATION_MARGIN))


def threshold_value(memory: Memory, monitor: str, value: float) -> float:
    """Return a threshold of a monitor in the unit of its register: mW for powers, counts for auxiliary monitors."""
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
    """Return the threshold set of each observable of a group that has limits of its own."""
    codes = dict.fromkeys(item.code for item in profile.vdm[group] if item.code in profile.vdm_thresholds)
    return {code: number for number, code in enumerate(codes)}


def _set_of(instance: VdmInstance, sets: dict[int, int]) -> int:
    signed = OBSERVABLES[instance.code].kind is NumberFormat.INT
    return sets.get(instance.code, _OPEN_SIGNED_SET if signed else _OPEN_UNSIGNED_SET)


def _threshold_rows(profile: ModuleProfile, group: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield each threshold set with the bytes of its four limits; two sets never raise an alarm."""
    for code, number in threshold_sets(profile, group).items():
        limits: Limits = profile.vdm_thresholds[code]
        yield number, [encode_vdm_value(OBSERVABLES[code], value) for value in limits]
    yield _OPEN_UNSIGNED_SET, [b"\xff\xff", b"\x00\x00"] * 2
    yield _OPEN_SIGNED_SET, [b"\x7f\xff", b"\x80\x00"] * 2


def _put_vdm(memory: Memory, profile: ModuleProfile) -> None:
    for group, instances in enumerate(profile.vdm):
        sets = threshold_sets(profile, group)
        for place, instance in enumerate(instances):
            descriptor = Descriptor(_set_of(instance, sets), instance.lane, instance.code)
            memory.half(DESCRIPTOR_PAGE + group)[2 * place : 2 * place + 2] = encode_descriptor(descriptor)
        for number, row in _threshold_rows(profile, group):
            for limit, data in zip(LIMITS, row, strict=True):
                memory.put(f"vdm_{group}_{limit}_threshold", data, number)
    if profile.vdm:
        memory.put("vdm_groups", len(profile.vdm) - 1)
        memory.put("vdm_fine_interval", profile.timing.sub_interval_s * 1e3)


def _put_defaults(memory: Memory, profile: ModuleProfile) -> None:
    """Set the controls to what they are after a reset (CMIS 8.2.9: 00h:26 is 40h; application 1 on its lanes)."""
    memory.put("low_pwr_allow_request_hw", True)
    first = profile.applications[0]
    sets = ["staged_0", "active"]
    if memory.count("staged_set_1_supported"):
        sets.append("staged_1")
    for start in range(8):
        if not first.host_options >> start & 1:
            continue
        for lane in range(start + 1, start + 1 + first.host_lanes):
            for name in sets:
                memory.put(f"{name}_app_sel", 1, lane)
                memory.put(f"{name}_data_path_id", start, lane)
    laser = profile.laser
    if laser is not None:
        for lane in range(1, profile.media_lanes + 1):
            memory.put("grid", laser.default_grid, lane)
            memory.put("channel", laser.default_channel, lane)
            memory.put("target_output_power", laser.default_power_dbm, lane)
