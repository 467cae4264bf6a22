"""Conversion between the settings of a polarization controller and the phases of its squeezers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.interfaces import ActuatorInfo


class SqueezerDrives:
    """Converts settings to drive phases (2π per period) and back; actuators of unknown period stay unchanged.

    Args:
        periods: Known periods by actuator, in the actuator's units.
        present: Present settings of the N actuators, shape ``(N,)``.
    """

    def __init__(
        self,
        actuators: Sequence[ActuatorInfo],
        periods: Mapping[int, float],
        present: NDArray[np.float64],
    ) -> None:
        periodic = [channel for channel in range(len(actuators)) if channel in periods]
        self._rad_per_unit = np.zeros(len(actuators))
        self._rad_per_unit[periodic] = [2.0 * np.pi / periods[channel] for channel in periodic]
        # Equal limits keep actuators without a known period where they are.
        self._limits = np.stack([present, present])
        for channel in periodic:
            self._limits[:, channel] = actuators[channel].minimum, actuators[channel].maximum
        self._steps = np.array([actuator.step for actuator in actuators])
        self._present = present.copy()

    @property
    def phase_limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lowest and highest squeezer phases, rad, shape ``(N,)`` each; equal where the period is unknown."""
        return self._limits[0] * self._rad_per_unit, self._limits[1] * self._rad_per_unit

    def phases(self, settings: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return squeezer phases for controller settings, shape ``(..., N)``, rad; 0 where the period is unknown."""
        phases: NDArray[np.float64] = settings * self._rad_per_unit
        return phases

    def settings(self, phases: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the controller settings for squeezer phases ``(N,)``, within range and in steps of the actuators."""
        moved = self._limits[0] < self._limits[1]
        unrounded = np.divide(phases, self._rad_per_unit, out=self._present.copy(), where=moved)
        stepped = np.where(moved, np.round(unrounded / self._steps) * self._steps, unrounded)
        return np.clip(stepped, *self._limits)
