"""The temperature controller: one sensor, one thermo-electric cooler, and whether it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class TemperatureSettings:
    """What is set on a controller.

    Attributes:
        setpoint_c: Temperature it is to hold.
        tolerance_c: Largest distance from it that still counts as held.
        window_s: Time that it has to be held before it counts.
        enabled: The output is switched on.
    """

    setpoint_c: float
    tolerance_c: float
    window_s: float
    enabled: bool


@dataclass(frozen=True)
class TemperatureLimits:
    """Lowest and highest settings, both ends included.

    Attributes:
        setpoint_c: Temperatures at which the controller does not switch itself off.
        tolerance_c: Tolerances.
        window_s: Times.
    """

    setpoint_c: tuple[float, float]
    tolerance_c: tuple[float, float]
    window_s: tuple[float, float]


@dataclass(frozen=True)
class TemperatureState:
    """What a controller does at one moment.

    Attributes:
        temperature_c: Temperature of the sensor; ``None`` if it is open, shorted or not there.
        setpoint_c: Temperature it is to hold.
        current_a: Current through the cooler, negative where it heats; ``None`` if not measured.
        enabled: The output is switched on.
        locked: The output is on, and the temperature has been within the tolerance for the window.
        losses: How often the lock was found lost since opening, also if it had come back when this was asked.
        faults: What is wrong, in plain words, such as an open interlock or sensor.
        timestamp_s: Host clock when the last of these arrived.
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
    """A temperature controller. Thread-safe; every set is read back.

    Opening and closing leave the output as it is: a chip that warms up while a program starts is no calibrated one.
    """

    @property
    def model(self) -> str:
        """Model as the instrument says it."""

    @property
    def serial(self) -> str:
        """Serial number as the instrument says it."""

    def set_temperature_c(self, temperature_c: float) -> None:
        """Set the temperature to hold. It may need minutes to get there: see :meth:`wait_locked`.

        Raises:
            LimitError: Outside the controller's limits; nothing was changed.
            DeviceError: The controller refuses.
            VerifyError: It keeps another one.
        """

    def set_tolerance(self, tolerance_c: float, window_s: float) -> None:
        """Set what counts as held: how near, and for how long. Raises as :meth:`set_temperature_c`."""

    def enable(self) -> None:
        """Switch the output on. Raises ``DeviceError`` if it does not stay on, such as with its interlock open."""

    def disable(self) -> None:
        """Switch the output off, and verify it."""

    def wait_locked(self, timeout_s: float) -> TemperatureState:
        """Wait until the temperature is held, at most ``timeout_s`` from now; return that state.

        Raises:
            DeviceError: The output is off, or the controller reports a fault.
            DeviceTimeoutError: The controller answers, but does not hold the temperature in time.
            LimitError: The time is negative or no number.
        """

    def state(self) -> TemperatureState:
        """Ask the controller what it does."""

    def settings(self) -> TemperatureSettings:
        """Ask for the settings in force."""

    def limits(self) -> TemperatureLimits:
        """Ask for the limits of the settings."""

    def close(self) -> None:
        """Release the link; idempotent. The output is left as it is."""
