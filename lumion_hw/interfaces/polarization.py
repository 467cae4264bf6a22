"""Interfaces of polarization controllers, automatic optimizers and polarimeters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ActuatorInfo:
    """One actuator of a polarization controller.

    Attributes:
        kind: Physical quantity that is set.
        unit: Unit of the setting.
        minimum: Smallest setting.
        maximum: Largest setting.
        step: Smallest change.
        period: Change after which the polarization repeats; ``None`` if unknown.
        endless: Whether the actuator can turn without end.
    """

    kind: Literal["drive voltage", "retardance", "angle"]
    unit: str
    minimum: float
    maximum: float
    step: float
    period: float | None
    endless: bool


class PolarizationController(Protocol):
    """Transforms one state of polarization into another. Thread-safe; every setting is read back."""

    @property
    def actuators(self) -> tuple[ActuatorInfo, ...]:
        """Actuators, in the order that :meth:`set` uses."""

    @property
    def settle_s(self) -> float:
        """Time from a change of settings until the light has settled."""

    def set(self, settings: NDArray[np.float64]) -> None:
        """Set all actuators. Raises ``LimitError`` if a value is out of range; nothing changes then.

        Args:
            settings: One value per actuator, in its unit.
        """

    def read(self) -> NDArray[np.float64]:
        """Return the present settings, one per actuator, in its unit."""

    def close(self) -> None:
        """Release the link; idempotent. The settings stay."""


@runtime_checkable
class PolarizationOptimizer(Protocol):
    """An instrument that minimizes a figure of merit by changing the polarization. Thread-safe.

    The host measures the figure of merit and reports it; the instrument then makes its next step.
    """

    @property
    def settle_s(self) -> float:
        """Time from a step until the light has settled."""

    def start(self) -> None:
        """Start the search from the present polarization."""

    def improve(self, factor: float) -> None:
        """Report the figure of merit of the present polarization (smaller is better). The instrument makes one step.

        Args:
            factor: Figure of merit, linear in optical power, scaled so that its largest value is near 100.

        Raises:
            LimitError: The factor is not above 0 and at most 100; nothing was sent.
        """

    def stop(self) -> None:
        """Stop the search and hold the present polarization; idempotent."""

    def close(self) -> None:
        """Release the link; idempotent. The polarization stays."""


@dataclass(frozen=True)
class PolarizationReading:
    """State of polarization at one instant.

    Attributes:
        power_w: Total power S0.
        stokes: S1, S2, S3 divided by the polarized power, shape ``(3,)``.
        dop: Degree of polarization, 0 to 1; noise can make it slightly larger than 1.
        time_s: Time of the reading, on the driver's clock.
    """

    power_w: float
    stokes: NDArray[np.float64]
    dop: float
    time_s: float


@dataclass(frozen=True)
class PolarimeterSettings:
    """Optical frequency used for the calibration of a polarimeter, and its averaging time."""

    frequency_thz: float
    averaging_s: float


@dataclass(frozen=True)
class PolarimeterLimits:
    """Lowest and highest optical frequency and averaging time of a polarimeter, both included."""

    frequency_thz: tuple[float, float]
    averaging_s: tuple[float, float]


class Polarimeter(Protocol):
    """Measures states of polarization. Thread-safe; settings are read back."""

    def read(self) -> PolarizationReading:
        """Measure the state of polarization. Raises ``DeviceError`` if the power is out of range."""

    def set_frequency_thz(self, frequency_thz: float) -> float:
        """Set the optical frequency for the calibration; return the frequency set.

        Raises ``LimitError`` out of range.
        """

    def set_averaging_s(self, averaging_s: float) -> float:
        """Set the averaging time; return the nearest available value, which is set.

        Raises ``LimitError`` out of range.
        """

    def settings(self) -> PolarimeterSettings:
        """Return the present settings."""

    def limits(self) -> PolarimeterLimits:
        """Return the limits of the settings."""

    def close(self) -> None:
        """Release the link; idempotent."""
