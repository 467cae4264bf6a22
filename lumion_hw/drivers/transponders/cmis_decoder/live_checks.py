"""Checks of the changing content of a memory dump: states, monitors, lanes, tuning, diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lumion_hw.drivers.transponders.cmis.diagnostics import Instance, listed_instances, sample_value
from lumion_hw.drivers.transponders.cmis.performance import FEC_PAGE, bit_error_ratios, read_counters
from lumion_hw.drivers.transponders.cmis_decoder.memory import Dump, finding
from lumion_hw.drivers.transponders.decoded import PLAUSIBLE_RANGES, Finding, Severity
from lumion_hw.drivers.transponders.lane_difference import KIND, Power, describe_difference
from lumion_hw.quantities import dbm_from_w
from lumion_hw.standards.cmis import FIELDS, byte_access, codes
from lumion_hw.standards.cmis.codec import aux_monitor
from lumion_hw.standards.cmis.coherent_pages import FEC_COUNTERS, LINK_QUANTITIES
from lumion_hw.standards.cmis.fields import FIRST_BANKED_PAGE, HALF_BYTES
from lumion_hw.standards.cmis.vdm import CUSTOM_TYPES, DESCRIPTOR_PAGE, GROUPS, SAMPLE_PAGE

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
_LANES = range(1, 9)
_LANE_MONITORS = {"tx_power": "mW", "tx_bias": "mA", "rx_power": "mW"}
_LIMIT_ORDER = ("low_alarm", "low_warning", "high_warning", "high_alarm")
_RESERVED_OK = frozenset({0x03, 0x14, 0x9F})
"""Pages whose undefined bytes may have any content."""
_MAX_LISTED = 8
_ROUNDING = 1.01  # F16 numbers may have only three digits


def states(dump: Dump) -> Iterator[Finding]:
    """Yield findings about reserved states and codes of the module."""
    state = dump.count("module_state")
    is_known = dump.value("module_state") is not None
    if is_known and not dump.advertised.flat and state not in tuple(codes.ModuleState):
        yield finding(_ERROR, "reserved", f"module state {state} is reserved", "module_state")
    cause = dump.count("fault_cause")
    if is_known and cause and state != codes.ModuleState.FAULT and not dump.advertised.flat:
        message = f"a fault cause ({codes.describe('fault_cause', cause)}) without a fault state"
        yield finding(_WARNING, "contradiction", message, "fault_cause")


def lane_states(dump: Dump) -> Iterator[Finding]:
    """Yield findings about reserved states and codes of lanes, and about lanes with unknown applications."""
    state = dump.count("module_state")
    for lane in sorted(dump.host_lanes) if dump.half(0x11) else ():
        path = dump.count("data_path_state", lane)
        if dump.value("data_path_state", lane) is None:
            continue
        if path not in tuple(codes.DataPathState):
            yield finding(_ERROR, "reserved", f"data path state {path} is reserved", "data_path_state", lane)
        # In low power, all data paths are deactivated regardless of control bits (CMIS, data path state machine).
        elif path != codes.DataPathState.DEACTIVATED and state in (codes.ModuleState.LOW_PWR, codes.ModuleState.PWR_UP):
            message = f"lane {dump.number_of(lane)} is {codes.describe('data_path_state', path)} in low power"
            yield finding(_ERROR, "contradiction", message, "data_path_state", lane)
        status = dump.count("config_status", lane)
        if status in range(8, 12):
            yield finding(_WARNING, "reserved", f"configuration status {status:X}h is reserved", "config_status", lane)
        yield from _selection(dump, lane, path)


def _selection(dump: Dump, lane: int, path: int) -> Iterator[Finding]:
    if dump.value("active_app_sel", lane) is None or not dump.has_applications:
        return
    offered = {item.number: item for item in dump.advertised.applications}
    number, identity = dump.count("active_app_sel", lane), dump.count("active_data_path_id", lane)
    if number and number not in offered:
        message = f"lane {dump.number_of(lane)} runs application {number}, which is not advertised"
        yield finding(_ERROR, "contradiction", message, "active_app_sel", lane)
    elif number:
        first = identity + 1
        # The first host lane is the name of a data path.
        if not first <= lane < first + offered[number].host_lanes:
            path_text = f"data path {dump.number_of(first)} with {offered[number].host_lanes} lanes"
            message = f"lane {dump.number_of(lane)} belongs to {path_text}"
            yield finding(_ERROR, "contradiction", message, "active_data_path_id", lane)
    elif path in (codes.DataPathState.ACTIVATED, codes.DataPathState.INITIALIZED):
        state_text = codes.describe("data_path_state", path)
        message = f"lane {dump.number_of(lane)} is {state_text} without an application"
        yield finding(_WARNING, "contradiction", message, "active_app_sel", lane)


def monitors(dump: Dump) -> Iterator[Finding]:
    """Yield findings about implausible module monitors, and about monitors that are not advertised."""
    for name, (low, high) in PLAUSIBLE_RANGES.items():
        value = dump.number(name)
        supported = dump.supported(name)
        if value is None:
            continue
        if supported and not low <= value <= high:
            message = f"{value:g} {FIELDS[name].unit} is not a plausible {name} of a working module"
            yield finding(_ERROR, "impossible", message, name)
        elif supported is False and value and not dump.advertised.flat:
            message = f"{name} reads {value:g} {FIELDS[name].unit}, but is not advertised"
            yield finding(_NOTE, "not_supported", message, name, unreliable=False)
    # 01h:145 defines what Aux3 measures.
    kind = "supply" if dump.value("aux3_is_supply_2") else "temperature"
    aux3 = dump.number("aux3")
    if (
        dump.supported("aux3")
        and aux3 is not None
        and kind == "supply"
        and not 0.5 <= aux_monitor(int(aux3), kind) <= 6
    ):
        message = f"{aux_monitor(int(aux3), kind):g} V is not a plausible second supply"
        yield finding(_WARNING, "impossible", message, "aux3")


def _is_outside(value: float | None, low: float | None, high: float | None) -> bool:
    if value is None or low is None or high is None or low >= high:
        return False
    return not low <= value <= high


def operation(dump: Dump) -> Iterator[Finding]:
    """Yield findings about monitors outside the specified operating conditions, 01h:146-150."""
    temperature, supply = dump.number("temperature"), dump.number("supply")
    low, high = dump.number("module_temperature_min"), dump.number("module_temperature_max")
    min_supply_v = dump.number("min_supply")
    if dump.has("temperature") and _is_outside(temperature, low, high):
        message = f"the module is at {temperature:.1f} degC, outside its specified {low:g} to {high:g} degC"
        yield finding(_WARNING, "outside_limits", message, "temperature", unreliable=False)
    if supply is not None and min_supply_v and dump.has("supply") and supply < min_supply_v:
        message = f"the supply is {supply:.3f} V, below the {min_supply_v:g} V that the module requires"
        yield finding(_WARNING, "outside_limits", message, "supply", unreliable=False)


def thresholds(dump: Dump) -> Iterator[Finding]:
    """Yield findings about missing thresholds and thresholds out of order."""
    if dump.half(0x02) is None:
        return
    for name in ("temperature", "supply", *_LANE_MONITORS):
        if not dump.supported(name):
            continue
        values = _limits(dump, name)
        readable = [value for value in values.values() if value is not None]
        first = f"{name}_high_alarm_threshold"
        if len(readable) < len(values):
            continue
        if not any(readable):
            yield finding(
                _WARNING, "contradiction", f"{name} is monitored, but its thresholds are 0", first, unreliable=False
            )
        elif readable != sorted(readable):
            limits_text = ", ".join(f"{limit.replace('_', ' ')} {values[limit]:g}" for limit in _LIMIT_ORDER)
            yield finding(_WARNING, "contradiction", f"{name} thresholds are out of order: {limits_text}", first)


def _limits(dump: Dump, name: str) -> dict[str, float | None]:
    return {limit: dump.number(f"{name}_{limit}_threshold") for limit in _LIMIT_ORDER}


def module_limits(dump: Dump) -> Iterator[Finding]:
    """Yield findings about module monitors outside their alarm limits."""
    yield from _outside_limits(dump, ("temperature", "supply"))


def lane_limits(dump: Dump) -> Iterator[Finding]:
    """Yield findings about lane monitors outside their alarm limits."""
    yield from _outside_limits(dump, tuple(_LANE_MONITORS))


def _outside_limits(dump: Dump, names: tuple[str, ...]) -> Iterator[Finding]:
    for name in names if dump.half(0x02) is not None else ():
        limits = [value for value in _limits(dump, name).values() if value is not None]
        if dump.supported(name) and len(limits) == len(_LIMIT_ORDER) and any(limits) and limits == sorted(limits):
            yield from _outside(dump, name, limits[0], limits[-1])


def _outside(dump: Dump, name: str, low: float, high: float) -> Iterator[Finding]:
    for index in (None,) if name in PLAUSIBLE_RANGES else _emitting_lanes(dump):
        value = dump.number(name, index)
        # Too little received light is a dark fibre, and no fault of the module.
        if value is not None and not low <= value <= high and not (name == "rx_power" and value < low):
            lane = "" if index is None else f" of lane {dump.number_of(index)}"
            message = f"{name}{lane} is {value:g} {FIELDS[name].unit}, outside its alarm limits {low:g} to {high:g}"
            yield finding(_WARNING, "outside_limits", message, name, index, unreliable=False)


def _emitting_lanes(dump: Dump) -> list[int]:
    if not dump.has_applications:
        return []
    return [
        lane
        for lane in _LANES
        if dump.value("data_path_state", lane) == codes.DataPathState.ACTIVATED
        and not dump.value("tx_disable", lane)
        and lane in dump.media_lanes
    ]


def lanes(dump: Dump) -> Iterator[Finding]:
    """Yield findings about unadvertised lane monitors, absent lanes with light, and active lanes without light."""
    if dump.half(0x11) is None:
        return
    for name in _LANE_MONITORS:
        active = [lane for lane in _LANES if dump.number(name, lane)]
        if dump.supported(name) is False and active and not dump.advertised.flat:
            message = f"{name} is not 0 on lanes {_listing(map(dump.number_of, active))}, but is not advertised"
            yield finding(_NOTE, "not_supported", message, name, active[0], unreliable=False)
    yield from _differences(dump)
    for lane in _emitting_lanes(dump):
        if dump.supported("tx_power") and dump.number("tx_power", lane) == 0.0:
            message = f"lane {dump.number_of(lane)} is activated but emits no light"
            yield finding(_WARNING, "contradiction", message, "tx_power", lane, unreliable=False)


def _differences(dump: Dump) -> Iterator[Finding]:
    candidates: dict[Power, list[int]] = {"tx_power": _emitting_lanes(dump), "rx_power": sorted(dump.media_lanes)}
    for name, candidate_lanes in candidates.items():
        if not dump.supported(name):
            continue
        direction = name.partition("_")[0]
        by_fibre: dict[int, dict[int, float | None]] = {}
        for lane in candidate_lanes:
            power_mw = dump.number(name, lane)
            fibre = dump.count(f"{direction}_lane_fibre", lane)
            # Modules that do not state the fibres have 0 everywhere.
            if fibre:
                by_fibre.setdefault(fibre, {})[lane] = dbm_from_w(power_mw * 1e-3) if power_mw else None
        for powers_dbm in by_fibre.values():
            numbered_dbm = {dump.number_of(lane): level_dbm for lane, level_dbm in powers_dbm.items()}
            message = describe_difference(name, numbered_dbm)
            if message:
                yield finding(_WARNING, KIND, message, name, min(powers_dbm), unreliable=False)


def absent(dump: Dump) -> Iterator[Finding]:
    """Yield findings about lanes with light that are marked as absent."""
    if dump.half(0x11) is None:
        return
    absent_lanes = [lane for lane in _LANES if dump.value("media_lane_unsupported", lane)]
    active = [lane for lane in absent_lanes if lane in dump.emitting_lanes]
    if active:
        message = f"media lanes {_listing(absent_lanes)} are marked as absent, but there is light on {_listing(active)}"
        affected = tuple(("media_lane_unsupported", lane) for lane in active)
        yield Finding(_WARNING, "00h:210", "contradiction", message, affected)


def _listing(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def secrets(dump: Dump) -> Iterator[Finding]:
    """Yield findings about write-only fields, such as passwords, that do not read as 0."""
    for name in ("password_entry", "password_change"):
        value = dump.value(name)
        if isinstance(value, bytes) and any(value):
            yield finding(_WARNING, "contradiction", f"{name} reads {value.hex()}, not 0", name)
        elif isinstance(value, int) and value:
            yield finding(_WARNING, "contradiction", f"{name} reads {value:08X}h, not 0", name)


def link(dump: Dump) -> Iterator[Finding]:
    """Yield findings about impossible link performance."""
    if not dump.advertised.coherent:
        return
    for quantity in LINK_QUANTITIES if dump.half(0x35) else ():
        average, low, high = (dump.number(f"pm_{quantity.name}_{word}") for word in ("avg", "min", "max"))
        if average is not None and low is not None and high is not None and not low <= average <= high:
            message = f"{quantity.name}: minimum {low:g}, average {average:g}, maximum {high:g} {quantity.unit}"
            yield finding(_ERROR, "contradiction", message, f"pm_{quantity.name}_avg")
    half = dump.half(FEC_PAGE)
    if half is not None:
        length = FEC_COUNTERS[-1][1] + FEC_COUNTERS[-1][2] - HALF_BYTES
        ratios = bit_error_ratios(read_counters(half[:length]))
        if ratios is not None and not ratios[3]:
            message = "the average of the corrected bits is not between minimum and maximum"
            yield finding(_WARNING, "contradiction", message, "media_fec_bits_sub_interval")
        if ratios is not None and ratios[0] > 0.5:
            yield finding(_ERROR, "impossible", f"bit error ratio {ratios[0]:g}, above 0.5", "media_fec_corrected_bits")


def instances(dump: Dump) -> tuple[tuple[Instance, bytes | None], ...]:
    """Return the VDM instances, each with the bytes of its sample; ``None`` for missing bytes."""
    findings = []
    for group in range(GROUPS):
        descriptors, samples = dump.half(DESCRIPTOR_PAGE + group), dump.half(SAMPLE_PAGE + group)
        for item in listed_instances(descriptors, group, dump.bank) if descriptors else ():
            at = 2 * item.number
            findings.append((item, samples[at : at + 2] if samples else None))
    return tuple(findings)


def diagnostics(dump: Dump) -> Iterator[Finding]:
    """Yield findings about unknown VDM instances and impossible values."""
    values: dict[tuple[str, int | None], tuple[Instance, float]] = {}
    unknown: dict[int, int] = {}
    for item, data in instances(dump):
        observable = item.descriptor.observable
        if observable is None:
            unknown[item.descriptor.code] = unknown.get(item.descriptor.code, 0) + 1
            continue
        if data is None:
            continue
        value = sample_value(item, data)
        key = (observable.name, item.lane)
        if key in values and values[key][0].source != item.source:
            message = f"{observable.name}{_of_lane(item.lane)} is also listed at {values[key][0].source}"
            yield Finding(_NOTE, item.source, "contradiction", message)
        values[key] = (item, value)
        if observable.is_ratio and value > 1.0:
            yield Finding(_ERROR, item.source, "impossible", f"{observable.name} is {value:g}, a ratio above 1")
    for whose, types in (
        ("of vendor-specific types", [code for code in unknown if code in CUSTOM_TYPES]),
        ("of unknown types", [code for code in unknown if code not in CUSTOM_TYPES]),
    ):
        if types:
            message = f"{sum(unknown[code] for code in types)} instances {whose}: {_listing(sorted(types))}"
            yield Finding(_NOTE, "20h:128", "unknown", message)
    for (name, lane), (item, value) in values.items():
        if "_avg_" in name:
            low = values.get((name.replace("_avg_", "_min_"), lane))
            high = values.get((name.replace("_avg_", "_max_"), lane))
            if low and high and not low[1] / _ROUNDING <= value <= high[1] * _ROUNDING:
                message = f"{name}{_of_lane(lane)}: minimum {low[1]:g}, average {value:g}, maximum {high[1]:g}"
                yield Finding(_WARNING, item.source, "contradiction", message)


def _of_lane(lane: int | None) -> str:
    return "" if lane is None else f" of lane {lane}"


def reserved(dump: Dump) -> Iterator[Finding]:
    """Yield one finding per page with reserved bits that are set."""
    for bank, page in dump.image.halves:
        is_banked = page is not None and page >= FIRST_BANKED_PAGE
        if page in _RESERVED_OK or bank != dump.bank or (bank and not is_banked):
            continue
        half, defined = dump.image.halves[bank, page], byte_access(page).defined
        first = 0 if page is None else HALF_BYTES
        if not any(defined):
            yield Finding(_NOTE, f"{page or 0:02X}h", "unknown", "the fields of this page are unknown")
            continue
        # Real modules may set reserved bits, so this is only a note.
        undefined = [first + at for at in range(HALF_BYTES) if half[at] & ~defined[at]]
        if undefined:
            listing = ", ".join(
                f"{byte} ({half[byte - first] & ~defined[byte - first] & 0xFF:02X}h)"
                for byte in undefined[:_MAX_LISTED]
            )
            omitted = f" and {len(undefined) - _MAX_LISTED} more" if len(undefined) > _MAX_LISTED else ""
            message = f"unknown bits are set in bytes {listing}{omitted}"
            yield Finding(_NOTE, f"{page or 0:02X}h:{undefined[0]}", "reserved", message)


def tuning(dump: Dump) -> Iterator[Finding]:
    """Yield findings about impossible laser frequencies."""
    if not dump.advertised.tunable or dump.half(0x12) is None:
        return
    for lane in sorted(dump.media_lanes):
        mhz = dump.number("current_frequency", lane)
        # Far outside all bands in use; 0 means that the laser was never tuned.
        if mhz and not 150_000_000 <= mhz <= 300_000_000:
            yield finding(_ERROR, "impossible", f"no laser has the frequency {mhz:g} MHz", "current_frequency", lane)
        code = dump.count("grid", lane)
        if code not in tuple(codes.Grid):
            message = f"grid code {code:X}h of lane {dump.number_of(lane)} is reserved"
            yield finding(_ERROR, "reserved", message, "grid", lane)


CHECKS: tuple[Callable[[Dump], Iterator[Finding]], ...] = (
    states,
    lane_states,
    monitors,
    operation,
    thresholds,
    module_limits,
    lane_limits,
    lanes,
    absent,
    secrets,
    tuning,
    link,
    diagnostics,
    reserved,
)
"""All checks of the changing content."""

OF_LANES: tuple[Callable[[Dump], Iterator[Finding]], ...] = (
    lane_states,
    lane_limits,
    lanes,
    tuning,
    diagnostics,
    reserved,
)
"""The checks that also apply to further banks."""
