"""Light sources of a bench: transmitters, tunable lasers, and lasers behind a switch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, cast

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.kinds.cmis import CmisModel
from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError, DeviceError
from lumion_hw.interfaces import CoherentTransponder, Transponder, TunableLaser
from lumion_hw.interfaces.optical_switch import OpticalSwitch
from lumion_hw.interfaces.transponder import TuningRange
from lumion_hw.interfaces.wiring import InlineDevice, InputPath
from lumion_hw.quantities import frequency_hz_from_wavelength_m

MODULE_SPREAD_HZ = 6.25e9
"""Frequency accuracy of modules without wavelength lockers: 0.05 nm (assumption)."""
LASER_SPREAD_HZ = 1.25e9
"""Frequency accuracy of tunable lasers: 0.01 nm (assumption)."""
_READY_S = 60.0


class LightSource(Protocol):
    """One light source of the bench."""

    @property
    def spread_hz(self) -> float:
        """Standard deviation of the true frequency from the reported one."""

    def on(self) -> None:
        """Switch the light source on, and wait until its power and frequency are stable."""

    def off(self) -> None:
        """Switch the light source off."""

    def launched_dbm(self) -> float:
        """Return the reported launch power while the source is on. Raise ``DeviceError`` if there is none."""

    def frequency_hz(self) -> float:
        """Return the reported optical frequency."""

    def tunable_hz(self) -> tuple[float, float] | None:
        """Return the lowest and highest frequency of the source; ``None`` if it is not tunable."""

    def tune(self, frequency_hz: float) -> float:
        """Tune the source to the nearest possible frequency; return the reported frequency.

        The source may be on or off afterwards.

        Raises:
            LimitError: The frequency is out of range; nothing was changed.
            ConfigError: The source is not tunable.
        """


class ModuleSource:
    """Transmitter of a transponder module."""

    def __init__(self, name: str, module: Transponder, *, coherent: bool) -> None:
        self._name, self._module = name, module
        self._laser = cast("CoherentTransponder", module) if coherent else None
        self._tuned_hz: float | None = None

    @property
    def spread_hz(self) -> float:
        """Standard deviation of the true frequency from the reported one; smaller after tuning."""
        return MODULE_SPREAD_HZ if self._tuned_hz is None else LASER_SPREAD_HZ

    def on(self) -> None:
        """Switch the transmitter on."""
        self._module.enable()

    def off(self) -> None:
        """Switch the transmitter off."""
        self._module.disable()

    def launched_dbm(self) -> float:
        """Return the launch power that the module reports."""
        power_dbm = self._module.monitors().tx_power_dbm
        if power_dbm is None:
            raise DeviceError("the module reports no launch power", device=self._name)
        return power_dbm

    def frequency_hz(self) -> float:
        """Return the frequency to which the module was tuned, or the nominal frequency."""
        if self._tuned_hz is not None:
            return self._tuned_hz
        return frequency_hz_from_wavelength_m(self._module.identify().wavelength_nm * 1e-9)

    def tunable_hz(self) -> tuple[float, float] | None:
        """Return the lowest and highest frequency of the module's channel grids."""
        tuning = self._laser.capabilities().tuning if self._laser is not None else ()
        if not tuning:
            return None
        return min(grid.min_thz for grid in tuning) * 1e12, max(grid.max_thz for grid in tuning) * 1e12

    def tune(self, frequency_hz: float) -> float:
        """Tune the module to the nearest channel of its grids; this ends the low-power mode."""
        if self._laser is None:
            raise ConfigError("this module cannot be tuned", device=self._name)
        wanted_thz, grids = frequency_hz * 1e-12, self._laser.capabilities().tuning
        usable_grids = [grid for grid in grids if grid.min_thz <= wanted_thz <= grid.max_thz]
        channels = [_nearest_thz(grid, wanted_thz) for grid in usable_grids]
        # A module in low-power mode rejects tuning.
        self._laser.power_up()
        # A frequency outside all grids is passed on unchanged; the driver rejects it with its range.
        nearest_thz = min(channels, key=lambda thz: abs(thz - wanted_thz), default=wanted_thz)
        self._tuned_hz = self._laser.tune(nearest_thz).frequency_thz * 1e12
        return self._tuned_hz


def _nearest_thz(grid: TuningRange, wanted_thz: float) -> float:
    step_thz = grid.spacing_ghz * 1e-3
    return grid.min_thz + round((wanted_thz - grid.min_thz) / step_thz) * step_thz


class LaserSource:
    """A tunable laser."""

    spread_hz = LASER_SPREAD_HZ

    def __init__(self, laser: TunableLaser, clock: Clock) -> None:
        self._laser, self._clock = laser, clock

    def on(self) -> None:
        """Switch the laser output on and wait until the laser has settled."""
        self._laser.enable()
        self._laser.wait_ready(_READY_S)

    def off(self) -> None:
        """Switch the laser output off."""
        self._laser.disable()

    def launched_dbm(self) -> float:
        """Return the power setting of the laser, as read back."""
        return self._laser.state().power_dbm

    def frequency_hz(self) -> float:
        """Return the frequency setting of the laser, as read back."""
        return self._laser.state().frequency_thz * 1e12

    def tunable_hz(self) -> tuple[float, float] | None:
        """Return the lowest and highest frequency that the laser reports."""
        low_thz, high_thz = self._laser.ranges.frequency_thz
        return low_thz * 1e12, high_thz * 1e12

    def tune(self, frequency_hz: float) -> float:
        """Tune the laser. Its output is off during tuning if the laser requires this."""
        # Such a laser would sweep its light through the chip during tuning.
        if not self._laser.capabilities.tunes_while_emitting:
            self._laser.disable()
        self._laser.set_frequency_thz(frequency_hz * 1e-12)
        return self.frequency_hz()


class SwitchedSource:
    """Light source behind a switch, at one of the inputs that the switch can select.

    Args:
        source: The laser or module.
        switches: Open switches of the bench, by name.
    """

    def __init__(self, source: LightSource, path: InputPath, switches: Mapping[str, OpticalSwitch]) -> None:
        self._source, self._path, self._switches = source, path, switches

    @property
    def spread_hz(self) -> float:
        """Standard deviation of the true frequency from the reported one."""
        return self._source.spread_hz

    def on(self) -> None:
        """Switch the light to the input, and the source on.

        Raises:
            BusyError: The switch output is connected to another switch input.
            VerifyError: The switch does not make the connection.
        """
        for part in inline_devices(self._path):
            switch, exit_port = self._switches[part.device], part.exit_port
            present = switch.connections().get(part.channel)
            if present == exit_port or exit_port is None:
                continue
            if present is not None:
                switch.disconnect([part.channel])
            switch.connect({part.channel: exit_port})
        self._source.on()

    def off(self) -> None:
        """Switch the source off; the switch stays as it is."""
        self._source.off()

    def launched_dbm(self) -> float:
        """Return the reported launch power of the source."""
        return self._source.launched_dbm()

    def frequency_hz(self) -> float:
        """Return the reported optical frequency."""
        return self._source.frequency_hz()

    def tunable_hz(self) -> tuple[float, float] | None:
        """Return the lowest and highest frequency of the source; ``None`` if it is not tunable."""
        return self._source.tunable_hz()

    def tune(self, frequency_hz: float) -> float:
        """Tune the source to the nearest possible frequency; return the reported frequency."""
        return self._source.tune(frequency_hz)


def inline_devices(path: InputPath) -> tuple[InlineDevice, ...]:
    """Return the switches in an input, the one next to the source first."""
    return tuple(part for part in path.through if part.exit_port is not None)


def are_alternatives(path: InputPath, other: InputPath) -> bool:
    """Return whether one source can feed either of two inputs, by a switch or by hand, but not both at once."""
    if path.by_hand and other.by_hand:
        return True
    exits = {(part.device, part.channel): part.exit_port for part in inline_devices(path)}
    return any(
        exits.get((part.device, part.channel), part.exit_port) != part.exit_port for part in inline_devices(other)
    )


def driven_switches(inputs: Iterable[InputPath]) -> frozenset[str]:
    """Return the switches that a calibration changes."""
    paths = list(inputs)
    return frozenset(
        part.device
        for path in paths
        if any(other.source == path.source and are_alternatives(path, other) for other in paths)
        for part in inline_devices(path)
    )


def dual_input_ports(inputs: Iterable[InputPath]) -> dict[int, int]:
    """Return the second port of every source that feeds two ports, by its first (lower) port.

    A coherent module sends light to both ports or to none; the powers add.
    """
    paths: dict[str, list[InputPath]] = {}
    for path in inputs:
        paths.setdefault(path.source, []).append(path)
    # A source has one port or, for a module with two tributaries, two; a switch or hand leads it to any number in turn.
    pairs = (
        sorted(double_paths, key=lambda path: path.port) for double_paths in paths.values() if len(double_paths) == 2
    )
    return dict(sorted((first.port, second.port) for first, second in pairs if not are_alternatives(first, second)))


def light_source(bench: Bench, path: InputPath) -> LightSource:
    """Return the source that feeds an input of a bench.

    Raises:
        ConfigError: The device of the source is not open.
    """
    name = path.source
    devices = inline_devices(path)
    closed = [part.device for part in devices if part.device not in bench.switches]
    source: LightSource | None = None
    if path.laser is not None and name in bench.lasers:
        source = LaserSource(bench.lasers[name], bench.clock)
    if path.transponder is not None and name in bench.transponders:
        coherent = isinstance(bench.model.devices[name], CmisModel)
        source = ModuleSource(name, bench.transponders[name], coherent=coherent)
    if source is not None and not closed:
        return SwitchedSource(source, path, bench.switches) if devices else source
    raise ConfigError(
        "the device of this light source is not open",
        device=closed[0] if closed else name,
        hint="Open the bench without 'only', or add the device to 'only'.",
    )
