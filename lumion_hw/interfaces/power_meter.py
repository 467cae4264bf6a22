"""The optical power meter, one or several channels."""

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
    """Whether a reading is a number."""

    OK = "ok"
    OVER = "over-range"
    UNDER = "under-range"
    INVALID = "not a number"


@dataclass(frozen=True)
class PowerReading:
    """One reading of one channel.

    Attributes:
        channel: Channel as in the instrument's own numbering, from 1.
        state: ``OK`` or the reason why there is no number.
        timestamp_s: Host clock when the reading arrived.
    """

    channel: int
    state: RangeState
    timestamp_s: float
    _value_w: float | None = None

    def __repr__(self) -> str:
        """Return one line."""
        value = self.state.value if self._value_w is None else f"{self._value_w:.6g} W"
        if self._value_w is not None and self._value_w > 0.0:
            value += f" ({dbm_from_w(self._value_w):.2f} dBm)"
        return f"<PowerReading of channel {self.channel}: {value}>"

    @property
    def power_w(self) -> float:
        """Power in watts; may be zero or slightly negative in the dark.

        Raises:
            OutOfRangeError: The reading is not a number.
        """
        if self._value_w is None:
            raise OutOfRangeError(f"channel {self.channel} is {self.state.value}", hint="Change the range.")
        return self._value_w

    @property
    def power_dbm(self) -> float:
        """Power in dBm.

        Raises:
            OutOfRangeError: The reading is not a number, or not positive.
        """
        value_w = self.power_w
        if not value_w > 0:
            raise OutOfRangeError(f"channel {self.channel} reads {value_w:.3g} W, which has no value in dBm")
        return dbm_from_w(value_w)


@dataclass(frozen=True)
class PowerLog:
    """Equally spaced readings of several channels.

    Attributes:
        channels: Channels, in the order of the rows.
        power_w: Powers in watts, shape ``(n_channels, n_samples)``; NaN wherever ``state`` is not ``OK``.
        state: What each sample is, shape ``(n_channels, n_samples)``, of :class:`RangeState`.
        period_s: Time between samples; ``None`` if they were triggered from outside.
        started_s: Host clock when the run was started.
    """

    channels: tuple[int, ...]
    power_w: NDArray[np.float64]
    state: NDArray[np.object_]
    period_s: float | None
    started_s: float


@dataclass(frozen=True)
class MeterSettings:
    """What is set on one channel.

    Attributes:
        wavelength_nm: Wavelength used for the responsivity.
        averaging_s: Averaging time.
        range_dbm: Power range; ``None`` while ranging is automatic. A meter with one range has that one, always.
    """

    wavelength_nm: float
    averaging_s: float
    range_dbm: float | None


@dataclass(frozen=True)
class MeterLimits:
    """Lowest and highest settings of one channel, both ends included, as the instrument states them.

    Attributes:
        wavelength_nm: Wavelengths.
        averaging_s: Averaging times.
        range_dbm: Power ranges; the same twice for a meter with one range, ``None`` for one that always ranges by
            itself.
    """

    wavelength_nm: tuple[float, float]
    averaging_s: tuple[float, float]
    range_dbm: tuple[float, float] | None


class PowerMeter(Protocol):
    """An optical power meter. Thread-safe; every set is read back."""

    @property
    def channels(self) -> tuple[int, ...]:
        """Channel numbers, from 1."""

    @property
    def model(self) -> str:
        """Model as the instrument says it."""

    @property
    def serial(self) -> str:
        """Serial number as the instrument says it."""

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Set the wavelength used for the responsivity. Raises ``LimitError`` outside the instrument's limits."""

    def set_averaging_s(self, channel: int, averaging_s: float) -> None:
        """Set the averaging time. Raises ``LimitError`` outside the instrument's limits."""

    def set_range_dbm(self, channel: int, range_dbm: float | None) -> None:
        """Set the power range, or let the meter choose among its own with ``None``, which every meter takes.

        Raises:
            LimitError: There is no such range.
            NotSupportedError: The meter always ranges by itself (``limits`` has no ranges).
        """

    def settings(self, channel: int) -> MeterSettings:
        """Ask for the settings in force. Raises ``NotSupportedError`` for a meter that has nothing to set."""

    def limits(self, channel: int) -> MeterLimits:
        """Ask for the limits of the settings. Raises ``NotSupportedError`` for a meter that has nothing to set."""

    def zero(self) -> None:
        """Take the readings of all channels in the dark as zero; the light has to be off.

        Raises:
            DeviceError: The meter refuses or fails, such as with light on a channel; its zero is not to be relied on.
        """

    def read(self, channel: int) -> PowerReading:
        """Trigger and return one reading."""

    def read_all(self) -> tuple[PowerReading, ...]:
        """Return one reading per channel, taken together."""

    def errors(self) -> tuple[tuple[int, str], ...]:
        """Drain the instrument's error queue."""

    def close(self) -> None:
        """Release the link; idempotent."""


class LogRun(Protocol):
    """A log under way. End it with :meth:`wait` or :meth:`stop`."""

    def wait(self, timeout_s: float | None = None) -> PowerLog:
        """Wait for the last sample, fetch all and stop the run, however it ends; at most so long from now.

        Raises:
            DeviceTimeoutError: The run did not complete in time: there were too few triggers.
            FrameError: A channel gave another number of samples.
        """

    def stop(self) -> None:
        """End the run; idempotent."""


@runtime_checkable
class LoggingMeter(PowerMeter, Protocol):
    """A power meter that by itself takes a sample at every pulse of its trigger input. Not every meter can."""

    @property
    def max_samples(self) -> int:
        """Samples per channel that it holds at least."""

    def start_triggered_log(
        self, channels: Sequence[int], n_samples: int, averaging_s: float, *, internal_trigger: bool = False
    ) -> LogRun:
        """Begin to wait for pulses, and average at each.

        Args:
            channels: Channels to log.
            n_samples: Samples per channel; the range stays what it is during the run.
            averaging_s: Averaging time of one sample; a pulse that comes meanwhile is lost.
            internal_trigger: The pulses come from the instrument itself, such as a laser in the sensors' mainframe.

        Raises:
            LimitError: There are no such samples; nothing was changed.
            BusyError: A run is under way.
            DeviceError: The meter refuses these values.
        """
