"""The polarization controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

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
