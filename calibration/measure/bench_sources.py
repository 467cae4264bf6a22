"""What lights the mesh of a bench: a module's transmitter or a tunable laser, the same to a calibration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.kinds.cmis import CmisModel
from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError, DeviceError
from lumion_hw.interfaces import CoherentTransponder, Transponder, TunableLaser
from lumion_hw.interfaces.transponder import TuningRange
from lumion_hw.interfaces.wiring import InputPath
from lumion_hw.quantities import frequency_hz_from_wavelength_m

MODULE_SPREAD_HZ = 6.25e9
"""0.05 nm about the nominal wavelength of modules without wavelength lockers (assumption)."""
LASER_SPREAD_HZ = 1.25e9
"""How far tunable lasers may be from the frequency they are set to: 0.01 nm (assumption; swept lasers do better)."""
_READY_S = 60.0


class Source(Protocol):
    """One source of light."""

    @property
    def spread_hz(self) -> float:
        """How far its light may be from the frequency it is said to have."""

    def on(self) -> None:
        """Switch the light on, and wait until it is as it should be."""

    def off(self) -> None:
        """Switch the light off."""

    def launched_dbm(self) -> float:
        """Return the power it is said to launch, while it is on. Raises ``DeviceError`` if it does not say."""

    def frequency_hz(self) -> float:
        """Return the frequency it is said to have."""

    def tunable_hz(self) -> tuple[float, float] | None:
        """Return the frequencies it can be tuned to, lowest and highest; ``None`` if it cannot."""

    def tune(self, frequency_hz: float) -> float:
        """Tune it as near as it goes, and return the frequency it then says it has; it may be dark or lit afterwards.

        Raises:
            LimitError: Out of range; nothing was changed.
            ConfigError: It cannot be tuned.
        """


class ModuleSource:
    """The transmitter of a transponder; a coherent one is tunable.

    Args:
        name: Device name.
        module: Its driver.
        coherent: It has a tunable laser, if it says so itself.
    """

    def __init__(self, name: str, module: Transponder, *, coherent: bool) -> None:
        self._name, self._module = name, module
        self._laser = cast("CoherentTransponder", module) if coherent else None
        self._tuned_hz: float | None = None

    @property
    def spread_hz(self) -> float:
        """How far its light may be from the frequency it is said to have: little once it was tuned."""
        return MODULE_SPREAD_HZ if self._tuned_hz is None else LASER_SPREAD_HZ

    def on(self) -> None:
        """Switch the transmitter on."""
        self._module.enable()

    def off(self) -> None:
        """Switch the transmitter off."""
        self._module.disable()

    def launched_dbm(self) -> float:
        """Return the power that the module reports."""
        power_dbm = self._module.monitors().tx_power_dbm
        if power_dbm is None:
            raise DeviceError("the module reports no launch power", device=self._name)
        return power_dbm

    def frequency_hz(self) -> float:
        """Return the frequency it was tuned to, else that of its nominal wavelength."""
        if self._tuned_hz is not None:
            return self._tuned_hz
        return frequency_hz_from_wavelength_m(self._module.identify().wavelength_nm * 1e-9)

    def tunable_hz(self) -> tuple[float, float] | None:
        """Return the range of its grids."""
        tuning = self._laser.capabilities().tuning if self._laser is not None else ()
        if not tuning:
            return None
        return min(grid.min_thz for grid in tuning) * 1e12, max(grid.max_thz for grid in tuning) * 1e12

    def tune(self, frequency_hz: float) -> float:
        """Tune the module to the nearest channel of its grids; one in low power is powered up for it."""
        if self._laser is None:
            raise ConfigError("this module cannot be tuned", device=self._name)
        asked_thz, grids = frequency_hz * 1e-12, self._laser.capabilities().tuning
        inside = [grid for grid in grids if grid.min_thz <= asked_thz <= grid.max_thz]
        channels = [_nearest_thz(grid, asked_thz) for grid in inside]
        self._laser.power_up()
        nearest_thz = min(channels, key=lambda thz: abs(thz - asked_thz), default=asked_thz)
        self._tuned_hz = self._laser.tune(nearest_thz).frequency_thz * 1e12
        return self._tuned_hz


def _nearest_thz(grid: TuningRange, asked_thz: float) -> float:
    """Return the channel of a grid that is nearest to a frequency inside its range."""
    step_thz = grid.spacing_ghz * 1e-3
    return grid.min_thz + round((asked_thz - grid.min_thz) / step_thz) * step_thz


class LaserSource:
    """A tunable laser.

    Args:
        laser: Its driver.
        clock: Its clock.
    """

    spread_hz = LASER_SPREAD_HZ

    def __init__(self, laser: TunableLaser, clock: Clock) -> None:
        self._laser, self._clock = laser, clock

    def on(self) -> None:
        """Switch the output on and wait until the laser has settled."""
        self._laser.enable()
        self._laser.wait_ready(_READY_S)

    def off(self) -> None:
        """Switch the output off."""
        self._laser.disable()

    def launched_dbm(self) -> float:
        """Return the power set, read back."""
        return self._laser.state().power_dbm

    def frequency_hz(self) -> float:
        """Return the frequency set, read back."""
        return self._laser.state().frequency_thz * 1e12

    def tunable_hz(self) -> tuple[float, float] | None:
        """Return the range that the laser states."""
        low_thz, high_thz = self._laser.ranges.frequency_thz
        return low_thz * 1e12, high_thz * 1e12

    def tune(self, frequency_hz: float) -> float:
        """Tune the laser, dark if it cannot otherwise."""
        if not self._laser.capabilities.tunes_while_emitting:
            self._laser.disable()
        self._laser.set_frequency_thz(frequency_hz * 1e-12)
        return self.frequency_hz()


def lit_together(inputs: Iterable[InputPath]) -> dict[int, int]:
    """Return, by the port of each source that lights two, the second one: the lower port stands for both.

    A coherent module sends both tributaries or none: CMIS switches media lanes, and both are on one. They are of
    independent data, so that no interference of theirs outlasts a monitor's average: their powers add.
    """
    ports: dict[str, list[int]] = {}
    for path in inputs:
        ports.setdefault(path.source, []).append(path.port)
    pairs = (sorted(lit) for lit in ports.values() if len(lit) == 2)
    return dict(sorted((first, second) for first, second in pairs))


def source_of(bench: Bench, path: InputPath) -> Source:
    """Return what feeds an input of a bench.

    Raises:
        ConfigError: It is not open.
    """
    name = path.source
    if path.laser is not None and name in bench.lasers:
        return LaserSource(bench.lasers[name], bench.clock)
    if path.transponder is not None and name in bench.transponders:
        return ModuleSource(name, bench.transponders[name], coherent=isinstance(bench.model.devices[name], CmisModel))
    raise ConfigError("this source of light was not opened", device=name, hint="Leave out 'only', or name it.")
