"""Interface of an optical power meter."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import OutOfRangeError
from lumion_hw.quantities import dbm_from_w


class RangeState(enum.Enum):
    """Validity of a power reading."""

    OK = "ok"
    OVER = "over-range"
    UNDER = "under-range"
    INVALID = "not a number"


@dataclass(frozen=True)
class PowerReading:
    """One power reading of one channel.

    Attributes:
        channel: Channel number, from 1.
        state: ``OK``, or the reason why there is no value.
        timestamp_s: Host clock when the reading arrived.
    """

    channel: int
    state: RangeState
    timestamp_s: float
    _value_w: float | None = None

    def __repr__(self) -> str:
        value = self.state.value if self._value_w is None else f"{self._value_w:.6g} W"
        if self._value_w is not None and self._value_w > 0.0:
            value += f" ({dbm_from_w(self._value_w):.2f} dBm)"
        return f"<PowerReading of channel {self.channel}: {value}>"

    @property
    def power_w(self) -> float:
        """Power in watts; may be zero or slightly negative in the dark.

        Raises:
            OutOfRangeError: ``state`` is not ``OK``.
        """
        if self._value_w is None:
            raise OutOfRangeError(
                f"the reading of channel {self.channel} is {self.state.value}", hint="Change the range."
            )
        return self._value_w

    @property
    def power_dbm(self) -> float:
        """Power in dBm.

        Raises:
            OutOfRangeError: ``state`` is not ``OK``, or the power is not positive.
        """
        value_w = self.power_w
        if not value_w > 0:
            raise OutOfRangeError(f"channel {self.channel} reads {value_w:.3g} W, which cannot be expressed in dBm")
        return dbm_from_w(value_w)


@dataclass(frozen=True)
class PowerLog:
    """Equally spaced readings of several channels.

    Attributes:
        channels: Channels, in the order of the rows.
        power_w: Shape ``(n_channels, n_samples)``; NaN wherever ``state`` is not ``OK``.
        state: Validity of each sample (:class:`RangeState`), shape ``(n_channels, n_samples)``.
        period_s: Time between samples; ``None`` with external triggers.
        started_s: Host clock at the start of the log.
    """

    channels: tuple[int, ...]
    power_w: NDArray[np.float64]
    state: NDArray[np.object_]
    period_s: float | None
    started_s: float


@dataclass(frozen=True)
class MeterSettings:
    """Settings of one power meter channel.

    Attributes:
        wavelength_nm: Wavelength for the responsivity.
        range_dbm: Power range; ``None`` for automatic ranging.
    """

    wavelength_nm: float
    averaging_s: float
    range_dbm: float | None


@dataclass(frozen=True)
class MeterLimits:
    """Lowest and highest settings of one meter channel, both included.

    Attributes:
        wavelength_nm: Wavelength.
        averaging_s: Averaging time.
        range_dbm: Power range; ``None`` for a meter that can only range automatically.
    """

    wavelength_nm: tuple[float, float]
    averaging_s: tuple[float, float]
    range_dbm: tuple[float, float] | None


class PowerMeter(Protocol):
    """An optical power meter. Thread-safe; every setting is read back."""

    @property
    def channels(self) -> tuple[int, ...]:
        """Channel numbers, from 1."""

    @property
    def model(self) -> str:
        """Model name that the instrument reports."""

    @property
    def serial(self) -> str:
        """Serial number that the instrument reports."""

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Set the wavelength for the responsivity. Raises ``LimitError`` outside the limits."""

    def set_averaging_s(self, channel: int, averaging_s: float) -> None:
        """Set the averaging time. Raises ``LimitError`` outside the limits."""

    def set_range_dbm(self, channel: int, range_dbm: float | None) -> None:
        """Set the power range; ``None`` selects automatic ranging.

        Raises:
            LimitError: The range does not exist.
            NotSupportedError: The meter can only range automatically.
        """

    def settings(self, channel: int) -> MeterSettings:
        """Return the present settings. Raises ``NotSupportedError`` if the meter has no settings."""

    def limits(self, channel: int) -> MeterLimits:
        """Return the limits of the settings. Raises ``NotSupportedError`` if the meter has no settings."""

    def zero(self) -> None:
        """Zero all channels; the light must be off.

        Raises:
            DeviceError: Zeroing failed, for example because a channel receives light; later readings are unreliable.
        """

    def read(self, channel: int) -> PowerReading:
        """Make one power reading and return it."""

    def read_all(self) -> tuple[PowerReading, ...]:
        """Return one power reading per channel, all measured at the same time."""

    def errors(self) -> tuple[tuple[int, str], ...]:
        """Read and empty the instrument's error queue."""

    def close(self) -> None:
        """Release the link; idempotent."""


class LogRun(Protocol):
    """A power log in progress. End the log with :meth:`wait` or :meth:`stop`."""

    def wait(self, timeout_s: float | None = None) -> PowerLog:
        """Wait for the last sample, stop the log, and return its samples. The log is also stopped after an error.

        Args:
            timeout_s: Longest wait, from now.

        Raises:
            DeviceTimeoutError: The log did not complete in time; there were too few triggers.
            FrameError: A channel returned a different number of samples.
        """

    def stop(self) -> None:
        """Stop the log in progress; idempotent."""


@runtime_checkable
class LoggingMeter(PowerMeter, Protocol):
    """A power meter that can take one sample at each trigger pulse."""

    @property
    def max_samples(self) -> int:
        """Number of samples per channel that the meter can always store."""

    def start_triggered_log(
        self, channels: Sequence[int], n_samples: int, averaging_s: float, *, internal_trigger: bool = False
    ) -> LogRun:
        """Start a log that takes one averaged sample at each trigger pulse.

        The power range does not change during the log.

        Args:
            channels: Channels to log.
            n_samples: Samples per channel.
            averaging_s: Averaging time of one sample; a pulse that arrives during averaging is lost.
            internal_trigger: Whether the pulses come from the instrument itself, such as a laser in the same mainframe.

        Raises:
            LimitError: The number of samples or the averaging time is out of range; nothing was changed.
            BusyError: A log is in progress.
            DeviceError: The meter refuses these values.
        """
