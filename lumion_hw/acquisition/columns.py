"""Readable quantities of a bench: one column per quantity, named ``device.quantity`` or ``device.quantity.channel``."""

from __future__ import annotations

import contextlib
import enum
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial

from lumion_hw.bench.bench import Bench
from lumion_hw.errors import ConfigError, LumionError, name_hint
from lumion_hw.interfaces import (
    Application,
    CoherentTransponder,
    LaneMonitoring,
    LinkQuantity,
    MeshController,
    MonitorAdvertising,
    OpticalAmplifier,
    OpticalSwitch,
    Polarimeter,
    PolarizationController,
    PowerMeter,
    PowerReading,
    Quality,
    RangeState,
    TemperatureController,
    Transponder,
    TunableLaser,
    VariableAttenuator,
)


class State(enum.IntEnum):
    """State of a reading: ``OK`` if there is a number, otherwise the reason why there is none."""

    OK = 0
    OVER_RANGE = 1
    UNDER_RANGE = 2
    DARK = 3
    FAILED = 4
    NO_SIGNAL = 5
    INCONSISTENT = 6
    NOT_READ = 7


@dataclass(frozen=True)
class Value:
    """One reading: the value of one column in one row.

    Attributes:
        state: ``OK``, or the reason why there is no number.
        number: The value in the unit of its column; NaN unless the state is ``OK``.
    """

    state: State
    number: float = math.nan


FAILED = Value(State.FAILED)


@dataclass(frozen=True)
class Column:
    """One readable quantity of one device.

    Attributes:
        name: ``device.quantity``, or ``device.quantity.channel`` for devices with several channels.
        device: Name of the device in the bench file.
    """

    name: str
    device: str
    unit: str


Values = dict[str, Value]


@dataclass(frozen=True)
class _ColumnSource:
    """Columns that one query to a device fills.

    Attributes:
        read: Queries the device and returns the values by column name.
        begin: Starts a new average; ``None`` if the device does not average.
        read_one: Returns the value of one column, for devices that read a single channel faster than all.
    """

    device: str
    columns: tuple[Column, ...]
    read: Callable[[], Values]
    begin: Callable[[], object] | None = None
    read_one: Callable[[str], Values] | None = None

    def of(self, selected: Collection[str]) -> _ColumnSource:
        """Return the source for the selected columns only."""
        names = [column.name for column in self.columns if column.name in selected]
        if self.read_one is None or len(names) != 1 or len(self.columns) == 1:
            return self
        return replace(self, read=partial(self.read_one, names[0]))


class Reader:
    """Reads selected columns of a bench, each device once per row.

    Args:
        patterns: Column names with shell wildcards; a device name selects all of its columns.

    Raises:
        ConfigError: A pattern matches no column; the message suggests similar names.
        LumionError: A device that a pattern may match does not answer.

    Attributes:
        columns: The selected columns, in the order of the bench.
        failures: Errors of the last :meth:`read`, by device name.
    """

    def __init__(self, bench: Bench, patterns: Sequence[str] = ("*",)) -> None:
        sources = _sources(bench, patterns)
        columns = [column for source in sources for column in source.columns]
        selected = set(select_names(patterns, {column.name: column.device for column in columns}))
        self.columns = tuple(column for column in columns if column.name in selected)
        used = [source for source in sources if not selected.isdisjoint(item.name for item in source.columns)]
        self._sources = [source.of(selected) for source in used]
        self._averaging = [source for source in self._sources if source.begin is not None]
        self.failures: dict[str, LumionError] = {}

    def begin(self) -> None:
        """Start new averages of the link-performance counters, and wait one averaging time."""
        for source in self._averaging:
            with contextlib.suppress(LumionError):
                source.begin()  # type: ignore[misc] # not None for these sources

    def read(self) -> list[Value]:
        """Read all columns.

        If a device fails, its values have the state ``FAILED``, and :attr:`failures` contains the error.
        """
        values: Values = {}
        self.failures = {}
        for source in self._sources:
            try:
                values |= source.read()
            except LumionError as error:
                self.failures[source.device] = error
        return [values.get(column.name, FAILED) for column in self.columns]


def select_names(patterns: Sequence[str], devices: Mapping[str, str], kind: str = "channel") -> list[str]:
    """Return the column names that match the patterns, in the order of ``devices``.

    Args:
        patterns: Column names with shell wildcards; a device name selects all of its columns.
        devices: Device of every column, by column name.
        kind: Noun for a column in the error message, such as ``channel``.

    Raises:
        ConfigError: A pattern matches no column; the message suggests similar names.
    """
    selected: set[str] = set()
    for pattern in patterns:
        matches = _matching(pattern, devices)
        if not matches:
            names = [*sorted(set(devices.values())), *devices]
            raise ConfigError(f"no {kind} {pattern!r}", hint=name_hint(pattern, names))
        selected |= matches
    return [name for name in devices if name in selected]


def _matching(pattern: str, devices: Mapping[str, str]) -> set[str]:
    return {name for name, device in devices.items() if pattern == device or fnmatchcase(name, pattern)}


def concerns(pattern: str, device: str) -> bool:
    """Return whether a pattern can match a column name of a device.

    A wildcard also matches the dot after the device name.
    """
    before, dot, _ = pattern.partition(".")
    return (
        pattern == device
        or pattern.startswith(f"{device}.")
        or fnmatchcase(device, before)
        or (not dot and any(wildcard in before for wildcard in "*?["))
    )


def raise_silent(patterns: Sequence[str], devices: Mapping[str, str], failures: Mapping[str, LumionError]) -> None:
    """Raise the errors of devices that do not answer, unless each pattern can also match a column of another device.

    Args:
        patterns: Column names with shell wildcards.
        devices: Device of every column, by column name, without the devices that do not answer.
        failures: Errors of the devices that do not answer, by device name.

    Raises:
        LumionError: The error of the device; for several devices an ``ExceptionGroup``.
    """
    errors: dict[str, LumionError] = {}
    for pattern in patterns:
        if not _matching(pattern, devices):
            errors |= {name: error for name, error in failures.items() if concerns(pattern, name)}
    if len(errors) > 1:
        raise ExceptionGroup(f"{', '.join(errors)} do not answer", list(errors.values()))
    for error in errors.values():
        raise error


def _sources(bench: Bench, patterns: Sequence[str]) -> list[_ColumnSource]:
    rows: list[tuple[str, Callable[[], Iterable[_ColumnSource]]]] = [
        *((name, partial(_meter, name, meter)) for name, meter in bench.meters.items()),
        *((name, partial(_module, bench, name, module)) for name, module in bench.transponders.items()),
        *((name, partial(_laser, name, laser)) for name, laser in bench.lasers.items()),
        *((name, partial(_polarization, name, controller)) for name, controller in bench.polarization.items()),
        *((name, partial(_polarimeter, name, polarimeter)) for name, polarimeter in bench.polarimeters.items()),
        *((name, partial(_attenuator, name, attenuator)) for name, attenuator in bench.attenuators.items()),
        *((name, partial(_switch, name, switch)) for name, switch in bench.switches.items()),
        *((name, partial(_amplifier, name, amplifier)) for name, amplifier in bench.amplifiers.items()),
        *(
            (name, partial(_temperature, name, controller))
            for name, controller in bench.temperature_controllers.items()
        ),
        *((name, partial(_controller, name, controller)) for name, controller in _mesh_controllers(bench).items()),
    ]
    # Devices that no pattern can match are not queried, because one of them may not answer.
    concerned = [row for row in rows if any(concerns(pattern, row[0]) for pattern in patterns)] or rows
    return [source for _, sources in concerned for source in sources()]


def _mesh_controllers(bench: Bench) -> Mapping[str, MeshController]:
    section = bench.model.mesh
    if section is None:
        return {}
    try:
        controller = bench.mesh.controller
    except ConfigError:  # not open, or a mesh that is controlled by cell states
        return {}
    return {section.controller: controller} if controller.info.n_monitors else {}


_RANGE_STATES = {
    RangeState.OK: State.OK,
    RangeState.OVER: State.OVER_RANGE,
    RangeState.UNDER: State.UNDER_RANGE,
    RangeState.INVALID: State.FAILED,
}


def power_value(state: RangeState, power_w: float) -> Value:
    """Convert a power reading to the value of a column."""
    return Value(State.OK, power_w) if state is RangeState.OK else Value(_RANGE_STATES[state])


def _meter(name: str, meter: PowerMeter) -> Iterator[_ColumnSource]:
    channels = {f"{name}.power.{channel}": channel for channel in meter.channels}

    def value(reading: PowerReading) -> Value:
        return power_value(reading.state, reading.power_w if reading.state is RangeState.OK else math.nan)

    yield _ColumnSource(
        name,
        tuple(Column(column, name, "W") for column in channels),
        lambda: {f"{name}.power.{reading.channel}": value(reading) for reading in meter.read_all()},
        read_one=lambda column: {column: value(meter.read(channels[column]))},
    )


_MODULE_QUANTITIES = {
    "temperature_c": "°C",
    "supply_v": "V",
    "tx_bias_ma": "mA",
    "tx_power_dbm": "dBm",
    "rx_power_dbm": "dBm",
}


def _attributes(name: str, query: Callable[[], object], units: Mapping[str, str]) -> _ColumnSource:
    def read() -> Values:
        result = query()
        numbers = {quantity: getattr(result, quantity) for quantity in units}
        return {
            f"{name}.{quantity}": _missing(quantity) if number is None else Value(State.OK, float(number))
            for quantity, number in numbers.items()
        }

    return _ColumnSource(
        name, tuple(Column(f"{name}.{quantity}", name, unit) for quantity, unit in units.items()), read
    )


def _measured(module: Transponder, quantities: Mapping[str, str]) -> dict[str, str]:
    """Return the quantities that a module may measure. A missing monitor is neither dark nor failed."""
    missing = module.missing_monitors() if isinstance(module, MonitorAdvertising) else frozenset()
    return {quantity: unit for quantity, unit in quantities.items() if quantity not in missing}


def _transponder(name: str, module: Transponder) -> _ColumnSource:
    return _attributes(name, module.monitors, _measured(module, _MODULE_QUANTITIES))


_QUALITIES = {
    Quality.OK: State.OK,
    Quality.BELOW_RANGE: State.DARK,
    Quality.ABOVE_RANGE: State.OVER_RANGE,
    Quality.INCONSISTENT: State.INCONSISTENT,
}
_UNIT_IN_NAME = {
    "dB": "_db",
    "dBm": "_dbm",
    "MHz": "_mhz",
    "ps": "_ps",
    "ps^2": "_ps2",
    "ps/nm": "_ps_per_nm",
    "krad/s": "_krad_per_s",
    "%": "_percent",
    "degC": "_c",
    "V": "_v",
}


_LANE_QUANTITIES = {"tx_bias_ma": "mA", "tx_power_dbm": "dBm", "rx_power_dbm": "dBm"}


def _lanes(name: str, module: LaneMonitoring, lanes: Collection[int], quantities: Mapping[str, str]) -> _ColumnSource:
    names = {(lane, quantity): f"{name}.{quantity}.{lane}" for lane in lanes for quantity in quantities}

    def read() -> Values:
        values = {column: _missing(quantity) for (_, quantity), column in names.items()}
        for lane in module.lane_monitors():
            for quantity in quantities:
                number = getattr(lane, quantity)
                if number is not None and (lane.lane, quantity) in names:
                    values[names[lane.lane, quantity]] = Value(State.OK, float(number))
        return values

    columns = tuple(Column(column, name, quantities[quantity]) for (_, quantity), column in names.items())
    return _ColumnSource(name, columns, read)


def _lanes_of(applications: Iterable[Application]) -> list[int]:
    """Return the media lanes that a module can use."""
    lanes = {
        lane
        for application in applications
        for first in application.first_media_lanes
        for lane in range(first, first + application.media_lanes)
    }
    return sorted(lanes)


def _module(bench: Bench, name: str, module: Transponder) -> list[_ColumnSource]:
    sources, quantities = [_transponder(name, module)], _measured(module, _LANE_QUANTITIES)
    if not isinstance(module, CoherentTransponder):
        return (
            [*sources, _lanes(name, module, range(1, 5), quantities)] if isinstance(module, LaneMonitoring) else sources
        )
    capabilities = module.capabilities()
    lanes = _lanes_of(capabilities.applications)
    # In a bench file, each lane can be a device, and then has the columns of a module.
    is_split = any(other.startswith(f"{name}/") for other in bench.transponders)
    if isinstance(module, LaneMonitoring) and len(lanes) > 1 and not is_split:
        sources.append(_lanes(name, module, lanes, quantities))
    monitor_names = {column.name for source in sources for column in source.columns}
    columns = {}
    for quantity, unit in capabilities.performance.items():
        stem, dot, lane = quantity.partition(".")
        column = Column(
            f"{name}.{stem}{_UNIT_IN_NAME.get(unit, '')}{dot}{lane}", name, unit.replace("degC", "°C") or "1"
        )
        if column.name not in monitor_names:
            columns[quantity] = column
    return [*sources, _performance(bench, name, module, columns)] if columns else sources


_LOCK_S, _INTERVAL_S = 10.0, 2.0
"""Longest wait for a link to lock, and averaging time of the link statistics, in seconds."""


def _performance(bench: Bench, name: str, module: CoherentTransponder, columns: Mapping[str, Column]) -> _ColumnSource:
    def read() -> Values:
        quantities = module.performance().quantities
        return {column.name: _link_value(quantities.get(quantity)) for quantity, column in columns.items()}

    def begin() -> None:
        module.wait_for_lock(_LOCK_S)  # without a lock the next reading has the state NO_SIGNAL
        module.performance()  # ends the interval in which the change happened
        bench.clock.sleep(_INTERVAL_S)

    return _ColumnSource(name, tuple(columns.values()), read, begin)


def _link_value(quantity: LinkQuantity | None) -> Value:
    """Return the average of a link quantity since the last row, or the present value if there is no average."""
    reading = quantity and (quantity.average or quantity.current)
    if not reading:
        return Value(State.NO_SIGNAL)
    state = _QUALITIES.get(reading.quality, State.NO_SIGNAL)
    if state is not State.OK:
        return Value(state)
    return Value(state, reading.value) if reading.value is not None else Value(State.NO_SIGNAL)


_LASER_QUANTITIES = {"frequency_thz": "THz", "power_dbm": "dBm", "measured_power_dbm": "dBm"}


def _laser(name: str, laser: TunableLaser) -> Iterator[_ColumnSource]:
    measured = laser.capabilities.measures_power
    quantities = {q: unit for q, unit in _LASER_QUANTITIES.items() if measured or q != "measured_power_dbm"}

    def read() -> Values:
        state = laser.state()
        values = {quantity: getattr(state, quantity) for quantity in quantities}
        numbers = {
            quantity: Value(State.DARK) if number is None else Value(State.OK, number)
            for quantity, number in values.items()
        }
        if not state.emitting:  # the power setting of a laser that is off is not a power
            numbers |= {quantity: Value(State.DARK) for quantity in quantities if quantity != "frequency_thz"}
        return {f"{name}.{quantity}": value for quantity, value in numbers.items()}

    yield _ColumnSource(name, tuple(Column(f"{name}.{q}", name, unit) for q, unit in quantities.items()), read)


def _missing(quantity: str) -> Value:
    """Return the value that stands for a missing number: ``DARK`` for a power, otherwise ``FAILED``."""
    return Value(State.DARK) if quantity.endswith("_dbm") else FAILED


def _polarization(name: str, controller: PolarizationController) -> Iterator[_ColumnSource]:
    def read() -> Values:
        settings = controller.read()
        return {f"{name}.setting.{index}": Value(State.OK, float(value)) for index, value in enumerate(settings, 1)}

    columns = tuple(
        Column(f"{name}.setting.{index}", name, actuator.unit) for index, actuator in enumerate(controller.actuators, 1)
    )
    yield _ColumnSource(name, columns, read)


def _polarimeter(name: str, polarimeter: Polarimeter) -> Iterator[_ColumnSource]:
    def read() -> Values:
        reading = polarimeter.read()
        numbers = {"power": reading.power_w, "dop": reading.dop}
        numbers |= {f"s{index}": float(part) for index, part in enumerate(reading.stokes, 1)}
        return {f"{name}.{quantity}": Value(State.OK, number) for quantity, number in numbers.items()}

    units = {"power": "W", "dop": "1", "s1": "1", "s2": "1", "s3": "1"}
    yield _ColumnSource(name, tuple(Column(f"{name}.{quantity}", name, unit) for quantity, unit in units.items()), read)


def _attenuator(name: str, attenuator: VariableAttenuator) -> Iterator[_ColumnSource]:
    def read() -> Values:
        current = {channel: attenuator.settings(channel) for channel in attenuator.channels}
        return {
            f"{name}.attenuation_db.{channel}": Value(State.OK, settings.attenuation_db)
            if settings.passing
            else Value(State.DARK)
            for channel, settings in current.items()
        }

    columns = tuple(Column(f"{name}.attenuation_db.{channel}", name, "dB") for channel in attenuator.channels)
    yield _ColumnSource(name, columns, read)


def _switch(name: str, switch: OpticalSwitch) -> Iterator[_ColumnSource]:
    inputs = switch.ports.inputs

    def read() -> Values:
        outputs = switch.connections()
        return {
            f"{name}.output.{port}": Value(State.OK, outputs[port]) if port in outputs else Value(State.NO_SIGNAL)
            for port in inputs
        }

    yield _ColumnSource(name, tuple(Column(f"{name}.output.{port}", name, "1") for port in inputs), read)


_AMPLIFIER_QUANTITIES = {
    "input_power_dbm": "dBm",
    "output_power_dbm": "dBm",
    "pump_current_ma": "mA",
    "temperature_c": "°C",
}


def _amplifier(name: str, amplifier: OpticalAmplifier) -> Iterator[_ColumnSource]:
    yield _attributes(name, amplifier.state, _AMPLIFIER_QUANTITIES)


_TEMPERATURE_QUANTITIES = {"temperature_c": "°C", "setpoint_c": "°C", "current_a": "A", "locked": "1"}


def _temperature(name: str, controller: TemperatureController) -> Iterator[_ColumnSource]:
    yield _attributes(name, controller.state, _TEMPERATURE_QUANTITIES)


def _controller(name: str, controller: MeshController) -> Iterator[_ColumnSource]:
    def read() -> Values:
        photocurrent_ma = controller.read_monitors().photocurrent_ma
        return {
            f"{name}.monitor.{index}": Value(State.OVER_RANGE) if math.isnan(value) else Value(State.OK, float(value))
            for index, value in enumerate(photocurrent_ma)
        }

    columns = tuple(Column(f"{name}.monitor.{index}", name, "mA") for index in range(controller.info.n_monitors))
    yield _ColumnSource(name, columns, read)
