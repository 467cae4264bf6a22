"""Instruments of polarization: the controller, the closed box that improves by itself, and the polarimeter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ActuatorInfo:
    """One actuator of a polarization controller.

    Attributes:
        kind: What the number set means.
        unit: Unit of the number set.
        minimum: Smallest setting.
        maximum: Largest setting.
        step: Smallest change.
        period: Change that brings the same polarization back, if it is known.
        endless: The range has no ends.
    """

    kind: Literal["drive voltage", "retardance", "angle"]
    unit: str
    minimum: float
    maximum: float
    step: float
    period: float | None
    endless: bool


class PolarizationController(Protocol):
    """A controller that turns one state of polarization into another. Thread-safe; every set is read back."""

    @property
    def actuators(self) -> tuple[ActuatorInfo, ...]:
        """The actuators, in the order of :meth:`set`."""

    @property
    def settle_s(self) -> float:
        """Time after a set until the light follows."""

    def set(self, settings: NDArray[np.float64]) -> None:
        """Set all actuators, in their units. Raises ``LimitError`` outside a range, changing nothing."""

    def read(self) -> NDArray[np.float64]:
        """Return the settings in force, in their units."""

    def close(self) -> None:
        """Release the link; idempotent. The settings stay."""


@runtime_checkable
class PolarizationOptimizer(Protocol):
    """A closed box that turns the polarization by itself towards a smaller factor that it is told. Thread-safe.

    Such an instrument has no settings to set: the loop is to measure, to tell, and to let it take its step.
    """

    @property
    def settle_s(self) -> float:
        """Time after a step until the light follows."""

    def start(self) -> None:
        """Begin: the present polarization is where the steps set out from."""

    def improve(self, factor: float) -> None:
        """Tell what the present polarization is worth, smaller being better, and let the box take one step.

        Args:
            factor: A positive number, linear in power, with its largest value near 100.

        Raises:
            LimitError: The factor is not above 0 and at most 100, or not a number; nothing was sent.
        """

    def stop(self) -> None:
        """Hold the polarization as it is. Idempotent."""

    def close(self) -> None:
        """Release the link; idempotent. The polarization stays."""


@dataclass(frozen=True)
class PolarizationReading:
    """State of polarization at one instant.

    Attributes:
        power_w: Total power S0.
        stokes: S1, S2, S3 divided by the polarized power (a point on the sphere), shape ``(3,)``.
        dop: Degree of polarization, 0 to 1; noise can lead a little above 1.
        time_s: When it was read, on the session's clock.
    """

    power_w: float
    stokes: NDArray[np.float64]
    dop: float
    time_s: float


@dataclass(frozen=True)
class PolarimeterSettings:
    """What is set on a polarimeter.

    Attributes:
        frequency_thz: Optical frequency it is calibrated for.
        averaging_s: Averaging time.
    """

    frequency_thz: float
    averaging_s: float


@dataclass(frozen=True)
class PolarimeterLimits:
    """Lowest and highest settings of a polarimeter, both ends included.

    Attributes:
        frequency_thz: Optical frequencies.
        averaging_s: Averaging times.
    """

    frequency_thz: tuple[float, float]
    averaging_s: tuple[float, float]


class Polarimeter(Protocol):
    """Measures states of polarization. Thread-safe; settings are read back."""

    def read(self) -> PolarizationReading:
        """Return the present state, all components of one instant. Raises ``DeviceError`` outside the power range."""

    def set_frequency_thz(self, frequency_thz: float) -> float:
        """Set the optical frequency it is calibrated for; returns what is in force. Raises ``LimitError``."""

    def set_averaging_s(self, averaging_s: float) -> float:
        """Set the averaging time; returns what is in force, the nearest it has. Raises ``LimitError``."""

    def settings(self) -> PolarimeterSettings:
        """Ask for the settings in force."""

    def limits(self) -> PolarimeterLimits:
        """Ask for the limits of the settings."""

    def close(self) -> None:
        """Release the link; idempotent."""
