"""The tunable laser: one output whose frequency and power are set, and which may sweep and log its wavelengths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LaserCapabilities:
    """What a laser can do beyond frequency, power, on and off.

    Attributes:
        tunes_while_emitting: The frequency can be set while the output is on. Where it cannot, ``set_frequency_thz``
            refuses with a ``DeviceError`` until ``disable`` was called.
        measures_power: The laser measures its own output power.
        sweep: It sweeps continuously.
        wavelength_log: It logs the wavelengths of a sweep.
    """

    tunes_while_emitting: bool
    measures_power: bool
    sweep: bool
    wavelength_log: bool


@dataclass(frozen=True)
class LaserRanges:
    """Limits as the instrument itself states them, both ends included.

    Attributes:
        frequency_thz: Lowest and highest frequency.
        frequency_step_thz: Settings are rounded to multiples of this step, or of the step in wavelength it stands for.
        power_dbm: Lowest and highest output power; ``None`` if the instrument states none and refuses by itself.
        power_step_db: Settings are rounded to multiples of this step.
        sweep_nm_per_s: Speeds of sweeps, ascending; empty if they are not known, or the laser does not sweep.
        sweep_pulses_per_s: Most pulses that its trigger output gives in a second of a sweep.
    """

    frequency_thz: tuple[float, float]
    frequency_step_thz: float
    power_dbm: tuple[float, float] | None
    power_step_db: float
    sweep_nm_per_s: tuple[float, ...] = ()
    sweep_pulses_per_s: float = math.inf


@dataclass(frozen=True)
class LaserState:
    """What a laser does at one moment.

    Attributes:
        emitting: The output is switched on.
        ready: The output is switched on, and nothing is pending: light of the set frequency and power leaves it.
        frequency_thz: The setting in force.
        power_dbm: The setting in force.
        measured_power_dbm: Output power as the laser measures it; ``None`` if it does not, or if it is dark.
        flags: Warnings and alarms that are active, in the instrument's own words.
        timestamp_s: Host clock when the last of these arrived.
    """

    emitting: bool
    ready: bool
    frequency_thz: float
    power_dbm: float
    measured_power_dbm: float | None
    flags: tuple[str, ...]
    timestamp_s: float


@dataclass(frozen=True)
class LaserSweep:
    """A continuous sweep in one direction, once.

    Attributes:
        start_nm: First wavelength in vacuum.
        stop_nm: Last wavelength, above ``start_nm``.
        step_nm: Distance of the triggers that the laser puts out, and of logged wavelengths.
        speed_nm_per_s: Speed.
        log: Log the wavelength of every trigger.
    """

    start_nm: float
    stop_nm: float
    step_nm: float
    speed_nm_per_s: float
    log: bool = False

    @property
    def duration_s(self) -> float:
        """Time from the first to the last wavelength."""
        return (self.stop_nm - self.start_nm) / self.speed_nm_per_s


@dataclass(frozen=True)
class SweepLog:
    """What a sweep left.

    Attributes:
        wavelength_nm: Logged wavelengths in vacuum, in order, shape ``(n,)``; ``None`` if no log was asked for.
        started_s: Host clock when the sweep was started.
        ended_s: Host clock when the laser was seen to have ended it.
    """

    wavelength_nm: NDArray[np.float64] | None
    started_s: float
    ended_s: float


class TunableLaser(Protocol):
    """A tunable laser. Thread-safe; every set is read back. What a laser cannot do raises ``NotSupportedError``.

    Frequencies are optical frequencies in vacuum. Opening and closing leave the output as it is.
    """

    @property
    def model(self) -> str:
        """Model as the instrument says it."""

    @property
    def serial(self) -> str:
        """Serial number as the instrument says it."""

    @property
    def capabilities(self) -> LaserCapabilities:
        """What this laser can do."""

    @property
    def ranges(self) -> LaserRanges:
        """Limits of this laser."""

    def set_frequency_thz(self, frequency_thz: float) -> None:
        """Set the frequency. The light may need longer than this call to follow: see :meth:`wait_ready`.

        Raises:
            LimitError: Outside the laser's range; nothing was changed.
            DeviceError: The laser refuses, such as one that does not tune while it emits.
            VerifyError: The laser keeps another frequency.
        """

    def set_power_dbm(self, power_dbm: float) -> None:
        """Set the output power.

        Raises:
            LimitError: Outside the laser's range; nothing was changed.
            DeviceError: The laser refuses.
            VerifyError: The laser keeps another power.
        """

    def enable(self) -> None:
        """Switch the output on. The light may need longer than this call: see :meth:`wait_ready`."""

    def disable(self) -> None:
        """Switch the output off, and verify it."""

    def wait_ready(self, timeout_s: float) -> LaserState:
        """Wait until the laser emits at its settings, at most ``timeout_s`` from now; return that state.

        Raises:
            DeviceError: The output is off, or the laser reports a failure.
            DeviceTimeoutError: The laser answers, but was not ready in time.
            LimitError: The time is negative or no number.
        """

    def state(self) -> LaserState:
        """Ask the laser what it does."""

    def sweep(self, plan: LaserSweep) -> SweepLog:
        """Sweep once and wait for the end. The output has to be on.

        Raises:
            NotSupportedError: This laser does not sweep, or does not log.
            LimitError: The sweep leaves the laser's range; nothing was changed.
            DeviceError: The laser refuses the sweep.
            DeviceTimeoutError: The sweep does not end in time; it was stopped.
            FrameError: The log is not that of the sweep.
        """

    def close(self) -> None:
        """Release the link; idempotent. The output is left as it is."""
