"""Interface of a temperature controller with one sensor and one thermo-electric cooler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class TemperatureSettings:
    """Settings of a temperature controller.

    Attributes:
        setpoint_c: Target temperature.
        tolerance_c: Largest deviation from the setpoint that counts as locked.
        window_s: Time for which the temperature must stay within the tolerance to count as locked.
        enabled: Whether the output is switched on.
    """

    setpoint_c: float
    tolerance_c: float
    window_s: float
    enabled: bool


@dataclass(frozen=True)
class TemperatureLimits:
    """Lowest and highest settings of a temperature controller, both included.

    Attributes:
        setpoint_c: Range in which the controller does not switch itself off.
        tolerance_c: Tolerance.
        window_s: Time within the tolerance that is required for lock.
    """

    setpoint_c: tuple[float, float]
    tolerance_c: tuple[float, float]
    window_s: tuple[float, float]


@dataclass(frozen=True)
class TemperatureState:
    """Present state of a temperature controller.

    Attributes:
        temperature_c: Sensor temperature; ``None`` if the sensor is open, shorted or missing.
        setpoint_c: Target temperature.
        current_a: Current through the cooler, negative when heating; ``None`` if not measured.
        enabled: Whether the output is switched on.
        locked: Whether the output is on and the temperature has been within the tolerance for ``window_s``.
        losses: Number of times that the lock was lost since opening.
        faults: Active faults in plain words, such as an open interlock or sensor.
        timestamp_s: Host clock when the last value arrived.
    """

    temperature_c: float | None
    setpoint_c: float
    current_a: float | None
    enabled: bool
    locked: bool
    losses: int
    faults: tuple[str, ...]
    timestamp_s: float


class TemperatureController(Protocol):
    """A temperature controller. Thread-safe; every setting is read back.

    Opening and closing do not switch the output.
    """

    @property
    def model(self) -> str:
        """Model name that the instrument reports."""

    @property
    def serial(self) -> str:
        """Serial number that the instrument reports."""

    def set_temperature_c(self, temperature_c: float) -> None:
        """Set the target temperature, without waiting until it is reached; see :meth:`wait_locked`.

        Raises:
            LimitError: The temperature is outside the controller's limits; nothing was changed.
            DeviceError: The controller refuses the command.
            VerifyError: The temperature read back differs.
        """

    def set_tolerance(self, tolerance_c: float, window_s: float) -> None:
        """Set the tolerance, and the time within the tolerance after which the temperature counts as locked.

        Raises the errors of :meth:`set_temperature_c`.
        """

    def enable(self) -> None:
        """Switch the output on.

        Raises ``DeviceError`` if the output does not stay on, for example with an open interlock.
        """

    def disable(self) -> None:
        """Switch the output off and verify that it is off."""

    def wait_locked(self, timeout_s: float) -> TemperatureState:
        """Wait until the temperature is locked, and return the state of the controller.

        Args:
            timeout_s: Longest wait, from now.

        Raises:
            DeviceError: The output is off, or the controller reports a fault.
            DeviceTimeoutError: The temperature did not lock in time.
            LimitError: ``timeout_s`` is negative or not a number.
        """

    def state(self) -> TemperatureState:
        """Read the present state of the controller."""

    def settings(self) -> TemperatureSettings:
        """Return the present settings."""

    def limits(self) -> TemperatureLimits:
        """Return the limits of the settings."""

    def close(self) -> None:
        """Release the link; idempotent. The output stays as it is."""
