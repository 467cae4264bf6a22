"""Interface of a tunable laser."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LaserCapabilities:
    """Optional capabilities of a laser.

    Attributes:
        tunes_while_emitting: Whether the frequency can be set while the output is on.
        measures_power: Whether the laser measures its output power.
        sweep: Whether the laser can sweep continuously.
        wavelength_log: Whether the laser can log the wavelengths of a sweep.
    """

    tunes_while_emitting: bool
    measures_power: bool
    sweep: bool
    wavelength_log: bool


@dataclass(frozen=True)
class LaserRanges:
    """Limits that the instrument reports, both ends included.

    Attributes:
        frequency_thz: Lowest and highest frequency.
        frequency_step_thz: Step to which frequency settings are rounded.
        power_dbm: Lowest and highest output power; ``None`` if the instrument does not report its limits.
        power_step_db: Step to which power settings are rounded.
        sweep_nm_per_s: Available sweep speeds, ascending; empty if unknown, or if the laser does not sweep.
        sweep_pulses_per_s: Highest pulse rate of the trigger output during a sweep.
    """

    frequency_thz: tuple[float, float]
    frequency_step_thz: float
    power_dbm: tuple[float, float] | None
    power_step_db: float
    sweep_nm_per_s: tuple[float, ...] = ()
    sweep_pulses_per_s: float = math.inf


@dataclass(frozen=True)
class LaserState:
    """Present state of a laser.

    Attributes:
        emitting: Whether the output is switched on.
        ready: Whether the output is on and has the set frequency and power.
        frequency_thz: Set frequency.
        power_dbm: Set power.
        measured_power_dbm: Measured output power; ``None`` if the laser is dark or has no monitor.
        flags: Active warnings and alarms, in the instrument's words.
        timestamp_s: Host clock when the last value arrived.
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
    """One continuous sweep in one direction.

    Attributes:
        start_nm: First wavelength in vacuum.
        stop_nm: Last wavelength, above ``start_nm``.
        step_nm: Spacing of the trigger pulses and of the logged wavelengths.
        speed_nm_per_s: Sweep speed.
        log: Whether to log the wavelength at every trigger pulse.
    """

    start_nm: float
    stop_nm: float
    step_nm: float
    speed_nm_per_s: float
    log: bool = False

    @property
    def duration_s(self) -> float:
        """Duration from the first to the last wavelength."""
        return (self.stop_nm - self.start_nm) / self.speed_nm_per_s


@dataclass(frozen=True)
class SweepLog:
    """Times and logged wavelengths of a finished sweep.

    Attributes:
        wavelength_nm: Logged wavelengths in vacuum, in order, shape ``(n,)``; ``None`` without a log.
        started_s: Host clock at the start of the sweep.
        ended_s: Host clock at the end of the sweep.
    """

    wavelength_nm: NDArray[np.float64] | None
    started_s: float
    ended_s: float


class TunableLaser(Protocol):
    """A tunable laser. Thread-safe; every setting is read back. Unsupported operations raise ``NotSupportedError``.

    Opening and closing do not switch the output.
    """

    @property
    def model(self) -> str:
        """Model name that the instrument reports."""

    @property
    def serial(self) -> str:
        """Serial number that the instrument reports."""

    @property
    def capabilities(self) -> LaserCapabilities:
        """Optional capabilities of this laser."""

    @property
    def ranges(self) -> LaserRanges:
        """Limits of this laser."""

    def set_frequency_thz(self, frequency_thz: float) -> None:
        """Set the optical frequency in vacuum. The light may settle later; see :meth:`wait_ready`.

        Raises:
            LimitError: The frequency is outside the laser's range; nothing was changed.
            DeviceError: The laser refuses, for example because it cannot tune while it emits.
            VerifyError: The frequency read back differs.
        """

    def set_power_dbm(self, power_dbm: float) -> None:
        """Set the output power.

        Raises:
            LimitError: The power is outside the laser's range; nothing was changed.
            DeviceError: The laser refuses the command.
            VerifyError: The power read back differs.
        """

    def enable(self) -> None:
        """Switch the output on. The light may appear later; see :meth:`wait_ready`."""

    def disable(self) -> None:
        """Switch the output off and verify that it is off."""

    def wait_ready(self, timeout_s: float) -> LaserState:
        """Wait until the laser emits the set frequency and power, and return the state of the laser.

        Args:
            timeout_s: Longest wait, from now.

        Raises:
            DeviceError: The output is off, or the laser reports a failure.
            DeviceTimeoutError: The laser responds, but was not ready in time.
            LimitError: ``timeout_s`` is negative or not a number.
        """

    def state(self) -> LaserState:
        """Read the present state of the laser."""

    def sweep(self, plan: LaserSweep) -> SweepLog:
        """Make one wavelength sweep and wait until it ends. The output must be on.

        Raises:
            NotSupportedError: The laser cannot sweep, or cannot log.
            LimitError: The sweep exceeds the laser's range; nothing was changed.
            DeviceError: The laser refuses the sweep.
            DeviceTimeoutError: The sweep did not end in time and was stopped.
            FrameError: The log does not belong to the sweep.
        """

    def close(self) -> None:
        """Release the link; idempotent. The output stays as it is."""
