"""Monitors of a module and its lanes, and the live status of lanes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lumion_hw.drivers.transponders.cmis import data_paths as dp
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.data_paths import DataPath
from lumion_hw.drivers.transponders.cmis.diagnostics import Vdm
from lumion_hw.drivers.transponders.cmis.memory import by_bank
from lumion_hw.errors import ConfigError, OutOfRangeError
from lumion_hw.interfaces import LaneMonitors, Monitors, Quality, Reading, SignalStatus
from lumion_hw.quantities import dbm_from_w, w_from_dbm
from lumion_hw.standards.cmis import FIELDS, codes
from lumion_hw.standards.cmis.codec import MIN_POWER_DBM, aux_monitor, multiplied, optical_power
from lumion_hw.standards.cmis.codes import ModuleState
from lumion_hw.standards.cmis.fields import LANES
from lumion_hw.standards.registers import decode, raw

LANE_STATUS_PAGE = 0x11
"""Page of lane flags and lane monitors."""
_LOWER = ("temperature", "supply")
_AUX = {  # bit of 01h:145, then name and meaning of the auxiliary monitor if the bit is 0 and if it is 1
    "aux1": ("aux1_is_tec_current", ("aux1", ""), ("tec_current", "tec")),
    "aux2": ("aux2_is_tec_current", ("laser_temperature", "temperature"), ("tec_current", "tec")),
    "aux3": ("aux3_is_supply_2", ("laser_temperature", "temperature"), ("supply_2", "supply")),
}
_AUX_UNITS = {"tec": "%", "temperature": "degC", "supply": "V", "": ""}
_QUANTITIES = {  # quantity of ``Monitors``, then names of its field and of its VDM sample
    "temperature_c": ("temperature", ""),
    "supply_v": ("supply", ""),
    "tx_bias_ma": ("tx_bias", ""),
    "tx_power_dbm": ("tx_power", "tx_power"),
    "rx_power_dbm": ("rx_power", "rx_total_power"),
}
_LANE = ("tx_power", "tx_bias", "rx_power")


def missing(module: ModuleContext, vdm: Vdm) -> frozenset[str]:
    """Return the quantities of ``Monitors`` that the module does not measure, neither on page 11h nor by VDM."""
    return frozenset(
        quantity
        for quantity, (name, sampled) in _QUANTITIES.items()
        if module.advertised.supported(name) is False and not (sampled and vdm.find(sampled))
    )


def module_readings(module: ModuleContext) -> dict[str, Reading]:
    """Read the monitors of the module."""
    first, last = FIELDS["temperature"].byte, FIELDS["custom_monitor"].span().stop
    # In one transfer, so that the two bytes of a number belong together.
    data = module.memory.pages.read_page(None, first, last - first)
    readings = {}
    for name in (*_LOWER, *_AUX):
        field = FIELDS[name]
        part = data[field.byte - first : field.byte - first + 2]
        meaning, unit = name, field.unit
        value = decode(field, part)
        if name in _AUX:
            bit, plain, other = _AUX[name]
            meaning, kind = other if module.advertised.number(bit) else plain
            unit = _AUX_UNITS[kind]
            value = aux_monitor(raw(field, part), kind) if kind else value
        supported = module.advertised.supported(name)
        quality = Quality.OK if supported else Quality.NOT_SUPPORTED
        number = float(value) if supported and isinstance(value, (int, float)) else None
        if supported or meaning not in readings:
            readings[meaning] = Reading(number, unit, quality, str(field))
    return readings


def lane_readings(module: ModuleContext, lane: int) -> dict[str, Reading]:
    """Read sent power, laser bias and received power of a media lane."""
    return lanes_readings(module, (lane,))[lane]


def lanes_readings(module: ModuleContext, lanes: Collection[int]) -> dict[int, dict[str, Reading]]:
    """Read sent power, laser bias and received power of media lanes, by lane."""
    first, last = FIELDS["tx_power"].byte, FIELDS["rx_power"].all_bytes().stop
    missing = sorted(set(lanes) - set(module.memory.lanes))
    if missing:
        raise module.error(
            ConfigError,
            f"there is no media lane {missing[0]}",
            f"The module has lanes 1 to {module.memory.lanes[-1]}.",
        )
    readings = {}
    for offset, local_lanes in by_bank(lanes).items():
        bank = module.memory.bank_of(LANE_STATUS_PAGE, offset)
        data = module.memory.pages.read_page(LANE_STATUS_PAGE, first, last - first, bank)
        for lane in local_lanes:
            readings[LANES * offset + lane] = {
                name: _lane_reading(module, name, lane, data, first, bank) for name in _LANE
            }
    return readings


def lane_monitors(module: ModuleContext) -> tuple[LaneMonitors, ...]:
    """Read the monitors of all media lanes. Those that the module does not have are ``None``.

    Raises:
        OutOfRangeError: A power is above the measurable range.
    """
    return tuple(
        LaneMonitors(
            lane,
            readings["tx_bias"].value,
            _power_dbm(module, readings["tx_power"]),
            _power_dbm(module, readings["rx_power"]),
        )
        for lane, readings in lanes_readings(module, sorted(module.advertised.media_lanes)).items()
    )


def sampled_power(vdm: Vdm, name: str, lane: int) -> Reading | None:
    """Read a power of a media lane from the VDM samples, or ``None`` if the module has no such sample."""
    item = vdm.find(name, lane)
    if item is None:
        return None
    value = vdm.current(name, lane)
    is_floor = value is None or value <= MIN_POWER_DBM
    return Reading(value, "dBm", Quality.BELOW_RANGE if is_floor else Quality.OK, item.source)


def _lane_reading(module: ModuleContext, name: str, lane: int, data: bytes, first: int, bank: int) -> Reading:
    field = FIELDS[name]
    span = field.span(lane)
    source = f"11h:{span.start} of bank {bank}" if bank else f"11h:{span.start}"
    unit = "mA" if name == "tx_bias" else "dBm"
    # Unsupported monitors read 0, which would be a valid power.
    if not module.advertised.supported(name):
        return Reading(None, unit, Quality.NOT_SUPPORTED, source)
    part = data[span.start - first : span.stop - first]
    if name == "tx_bias":
        bias = multiplied(field, decode(field, part, lane), module.advertised.number(field.multiplier))
        number = float(bias) if isinstance(bias, (int, float)) else None
        return Reading(number, unit, Quality.INCONSISTENT if number is None else Quality.OK, source)
    value, quality = optical_power(raw(field, part, lane))
    return Reading(value, unit, quality, source)


def monitors(module: ModuleContext, vdm: Vdm, lane: int) -> Monitors:
    """Read the monitors of the module and of one media lane. Those that the module does not have are ``None``.

    Bias and powers of lanes that share a fibre (11h:240-255) are added up.

    Raises:
        OutOfRangeError: A power is above the measurable range.
    """
    common = module_readings(module)
    temperature_c, supply_v = (common[name].value for name in _LOWER)
    readings = _fibre_readings(module, lane)
    powers_dbm = {}
    for name, sampled in (("tx_power", "tx_power"), ("rx_power", "rx_total_power")):
        reading: Reading | None = readings[name]
        if readings[name].quality is Quality.NOT_SUPPORTED:
            reading = sampled_power(vdm, sampled, lane)
        powers_dbm[name] = _power_dbm(module, reading)
    return Monitors(
        temperature_c=temperature_c,
        supply_v=supply_v,
        tx_bias_ma=readings["tx_bias"].value,
        tx_power_dbm=powers_dbm["tx_power"],
        rx_power_dbm=powers_dbm["rx_power"],
        timestamp_s=module.clock.now(),
    )


def _fibre_readings(module: ModuleContext, lane: int) -> dict[str, Reading]:
    """Read the lanes in the fibre of a media lane, and add them up."""
    lanes = [lane]
    if len(module.advertised.media_lanes) > 1:
        fibres = module.memory.numbers("tx_lane_fibre")
        own = fibres[lane - 1]
        bank = (lane - 1) // LANES
        # Modules that do not tell have fibre 0 everywhere.
        lanes = [
            other
            for other in module.advertised.media_lanes
            if other == lane or (own and fibres[other - 1] == own and (other - 1) // LANES == bank)
        ]
    found = lanes_readings(module, lanes)
    return {name: _total([found[each][name] for each in lanes]) for name in _LANE}


def _total(readings: list[Reading]) -> Reading:
    present = [reading for reading in readings if reading.quality is Quality.OK and reading.value is not None]
    doubtful = next((item for item in readings if item.quality not in (Quality.OK, Quality.BELOW_RANGE)), None)
    if doubtful is not None or len(present) < 2:
        return doubtful or next(iter(present), readings[0])
    values = [reading.value for reading in present if reading.value is not None]
    if present[0].unit == "dBm":
        return replace(present[0], value=dbm_from_w(sum(map(w_from_dbm, values))))
    return replace(present[0], value=sum(values))


def _power_dbm(module: ModuleContext, reading: Reading | None) -> float | None:
    if reading is not None and reading.quality is Quality.ABOVE_RANGE:
        raise module.error(
            OutOfRangeError, f"the power at {reading.source} is above the module's range", "Insert an attenuator."
        )
    return reading.value if reading is not None and reading.quality is Quality.OK else None


def status(module: ModuleContext, paths: Collection[DataPath], lane: int) -> SignalStatus:
    """Read the live status of data paths. A flag of one media lane counts for all.

    Args:
        module: Open module.
        paths: Data paths to read.
        lane: Media lane to use if there is no data path.
    """
    state = module.memory.number("module_state")
    live = module.flags.live(LANE_STATUS_PAGE)
    lanes = {lane for path in paths for lane in path.media_lanes} or {lane}
    readings = lanes_readings(module, lanes)
    return SignalStatus(
        rx_los=any(
            ("rx_los", item) in live or readings[item]["rx_power"].quality is Quality.BELOW_RANGE for item in lanes
        ),
        tx_fault=any(("tx_failure", item) in live for item in lanes) or state == codes.ModuleState.FAULT,
        tx_disabled=not dp.lanes_on(module, paths),
        data_ready=state == ModuleState.READY,
        timestamp_s=module.clock.now(),
    )
