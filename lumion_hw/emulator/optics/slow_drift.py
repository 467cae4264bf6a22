"""Changes of an emulated chip over hours and days: temperature drift and heater ageing (all figures assumed).

Drift is off unless the bench file enables it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.optics.disturbances import COMMON_PHASE_RAD_PER_K
from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.emulator.optics.truth import MeshTruth

DAY_S = 86_400.0
_STEP_S = 1.0
"""Time step in s."""
_MIN_CHANGE_K = 1e-3
"""Temperature change in K, about 2e-3 rad of phase, at which the chip is updated at once."""
_TEMPERATURE_TIME_S = 3_600.0
"""Correlation time of the temperature error in s (assumed)."""
_AGEING_TIME_S = 30.0 * DAY_S
"""Correlation time of heaters and waveguide phases in s (assumed)."""


class _OrnsteinUhlenbeck:
    """Independent Ornstein-Uhlenbeck processes (random drifts of bounded size) that start at 0."""

    def __init__(self, count: int, sigma: float, time_s: float, rng: np.random.Generator) -> None:
        self.value = np.zeros(count)
        self._sigma, self._time_s, self._rng = sigma, time_s, rng

    def advance(self, elapsed_s: float) -> NDArray[np.float64]:
        """Advance the processes by a time of any length and return the values."""
        # Exact for any step: daily and per-second steps have the same statistics.
        decay = math.exp(-elapsed_s / self._time_s)
        if self._sigma > 0.0:
            step = self._sigma * math.sqrt(1.0 - decay**2)
            self.value = decay * self.value + step * self._rng.standard_normal(len(self.value))
        return self.value


class SlowDrift:
    """Slow drift of a mesh's true parameters.

    Args:
        truth: True parameters, which change.
        aged_s: Age of the chip in s at the start.

    Attributes:
        temperature_k: Temperature of the chip in K relative to that for which its parameters were drawn.
        on_change: Functions that are called with ``temperature_k`` after every change.
        held_k: Returns the set temperature of a controller, on the same scale; ``None`` for a chip without controller.
    """

    def __init__(
        self,
        truth: MeshTruth,
        physics: PhysicsParameters,
        now_s: Callable[[], float],
        rng: np.random.Generator,
        aged_s: float = 0.0,
    ) -> None:
        self._truth, self._now_s = truth, now_s
        self._fresh_ohm, self._fresh_rad = truth.heater_ohm.copy(), truth.passive_phase.copy()
        self._fresh_joints_rad, self._fresh_p_pi_mw = truth.joint_phase.copy(), truth.p_pi_mw.copy()
        # For short times, a random walk of this size per root day equals the process with this spread.
        sigma_per_root_day = math.sqrt(0.5 * _AGEING_TIME_S / DAY_S)
        sizes = len(truth.heater_ohm), len(truth.passive_phase), len(truth.joint_phase)
        self._temperature = _OrnsteinUhlenbeck(1, physics.temperature_sigma_k, _TEMPERATURE_TIME_S, rng)
        self._resistance = _OrnsteinUhlenbeck(
            sizes[0], sigma_per_root_day * physics.resistance_drift_per_root_day, _AGEING_TIME_S, rng
        )
        self._passive = _OrnsteinUhlenbeck(
            sizes[1], sigma_per_root_day * physics.phase_drift_rad_per_root_day, _AGEING_TIME_S, rng
        )
        self._joints = _OrnsteinUhlenbeck(
            sizes[2], sigma_per_root_day * physics.phase_drift_rad_per_root_day, _AGEING_TIME_S, rng
        )
        self._gain = _OrnsteinUhlenbeck(
            sizes[0], sigma_per_root_day * physics.gain_drift_per_root_day, _AGEING_TIME_S, rng
        )
        self._is_static = not any(
            (
                physics.temperature_sigma_k,
                physics.resistance_drift_per_root_day,
                physics.gain_drift_per_root_day,
                physics.phase_drift_rad_per_root_day,
            )
        )
        self.temperature_k = 0.0
        self.held_k: Callable[[], float] | None = None
        self._last_held_k = 0.0
        self.on_change: list[Callable[[float], None]] = []
        # The first reading covers all days before the bench was opened.
        self._followed_s = self._start_s = now_s() - aged_s

    @property
    def age_s(self) -> float:
        """Age of the chip in seconds."""
        return self._now_s() - self._start_s

    def follow(self) -> bool:
        """Advance the true parameters to the present time. Return whether any has changed."""
        elapsed_s = self._now_s() - self._followed_s
        held_k = self._last_held_k if self.held_k is None else self.held_k()
        setpoint_moved = abs(held_k - self._last_held_k) > _MIN_CHANGE_K
        if not setpoint_moved and (self._is_static or elapsed_s < _STEP_S):
            return False
        self._followed_s, self._last_held_k = self._now_s(), held_k
        self.temperature_k = held_k + float(self._temperature.advance(elapsed_s)[0])
        truth = self._truth
        truth.common_phase_rad = COMMON_PHASE_RAD_PER_K * self.temperature_k
        truth.heater_ohm = self._fresh_ohm * (1.0 + self._resistance.advance(elapsed_s))
        truth.passive_phase = self._fresh_rad + self._passive.advance(elapsed_s)
        truth.joint_phase = self._fresh_joints_rad + self._joints.advance(elapsed_s)
        truth.p_pi_mw = self._fresh_p_pi_mw / (1.0 + self._gain.advance(elapsed_s))
        for listener in self.on_change:
            listener(self.temperature_k)
        return True
