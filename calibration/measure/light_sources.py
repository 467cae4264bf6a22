"""Light sources of a bench: transmitters, tunable lasers, and lasers behind a switch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import cast

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.kinds.cmis import CmisModel
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

Connect = Callable[[], None]


class ModuleSource:
    """Transmitter of a transponder module.

    Args:
        connect: Sets the switches between the module and the mesh.
    """

    def __init__(self, name: str, module: Transponder, connect: Connect, *, coherent: bool) -> None:
        self._name, self._module, self._connect = name, module, connect
        self._laser = cast("CoherentTransponder", module) if coherent else None
        self._tuned_hz: float | None = None

    @property
    def spread_hz(self) -> float:
        """Standard deviation of the true frequency from the reported one; smaller after tuning."""
        return MODULE_SPREAD_HZ if self._tuned_hz is None else LASER_SPREAD_HZ

    def on(self) -> None:
        """Connect and switch on the transmitter, and wait until its power and frequency are stable.

        Raises as :func:`connect_switches`.
        """
        self._connect()
        self._module.enable()

    def off(self) -> None:
        """Switch the transmitter off."""
        self._module.disable()

    def launched_dbm(self) -> float:
        """Return the launch power that the module reports while it is on. Raise ``DeviceError`` if there is none."""
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
        """Return the lowest and highest frequency of the module's channel grids; ``None`` if it is not tunable."""
        tuning = self._laser.capabilities().tuning if self._laser is not None else ()
        if not tuning:
            return None
        return min(grid.min_thz for grid in tuning) * 1e12, max(grid.max_thz for grid in tuning) * 1e12

    def tune(self, frequency_hz: float) -> float:
        """Tune the module to the nearest channel of its grids; return the reported frequency.

        This ends the low-power mode. The module may be on or off afterwards.

        Raises:
            LimitError: The frequency is out of range; nothing was changed.
            ConfigError: The module is not tunable.
        """
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
    """A tunable laser.

    Args:
        connect: Sets the switches between the laser and the mesh.
    """

    spread_hz = LASER_SPREAD_HZ

    def __init__(self, laser: TunableLaser, connect: Connect) -> None:
        self._laser, self._connect = laser, connect

    def on(self) -> None:
        """Connect and switch on the laser, and wait until it has settled. Raises as :func:`connect_switches`."""
        self._connect()
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
        """Tune the laser; return the reported frequency. Its output is off during tuning if the laser requires this.

        Raises:
            LimitError: The frequency is out of range; nothing was changed.
        """
        # Such a laser would sweep its light through the chip during tuning.
        if not self._laser.capabilities.tunes_while_emitting:
            self._laser.disable()
        self._laser.set_frequency_thz(frequency_hz * 1e-12)
        return self.frequency_hz()


LightSource = ModuleSource | LaserSource


def connect_switches(path: InputPath, switches: Mapping[str, OpticalSwitch]) -> None:
    """Connect the switches in an input so that the light of its source enters there.

    Raises:
        BusyError: The switch output is connected to another switch input.
        VerifyError: The switch does not make the connection.
    """
    for part in inline_devices(path):
        switch, exit_port = switches[part.device], part.exit_port
        present = switch.connections().get(part.channel)
        if present == exit_port or exit_port is None:
            continue
        if present is not None:
            switch.disconnect([part.channel])
        switch.connect({part.channel: exit_port})


def inline_devices(path: InputPath) -> tuple[InlineDevice, ...]:
    """Return the switches in an input, the one next to the source first."""
    return tuple(part for part in path.through if part.exit_port is not None)


def are_alternatives(path: InputPath, other: InputPath) -> bool:
    """Return whether one source can feed either of two inputs, by a switch or by hand, but not both at once."""
    if path.by_hand and other.by_hand:
        return True
    exits, others = (
        {(part.device, part.channel): part.exit_port for part in inline_devices(each)} for each in (path, other)
    )
    return any(exits[channel] != others[channel] for channel in exits.keys() & others.keys())


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
    pairs = (sorted(double, key=lambda path: path.port) for double in paths.values() if len(double) == 2)
    return dict(sorted((first.port, second.port) for first, second in pairs if not are_alternatives(first, second)))


def light_source(bench: Bench, path: InputPath) -> LightSource:
    """Return the source that feeds an input of a bench.

    Raises:
        ConfigError: The device of the source is not open.
    """
    name, connect = path.source, partial(connect_switches, path, bench.switches)
    closed = [part.device for part in inline_devices(path) if part.device not in bench.switches]
    if not closed and path.laser is not None and name in bench.lasers:
        return LaserSource(bench.lasers[name], connect)
    if not closed and path.transponder is not None and name in bench.transponders:
        coherent = isinstance(bench.model.devices[name], CmisModel)
        return ModuleSource(name, bench.transponders[name], connect, coherent=coherent)
    raise ConfigError(
        "the device of this light source is not open",
        device=closed[0] if closed else name,
        hint="Open the bench without 'only', or add the device to 'only'.",
    )
