"""What an emulated chip does over hours and days: its temperature wanders, its heaters age.

Nothing is published of the drift of such chips: all figures are assumptions. Off unless the bench file asks for it. A
bench begins as its seed draws it; :class:`SlowDrift` moves that truth with the clock, and can begin with days that have
passed before the bench was opened.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.optics.disturbances import COMMON_PHASE_RAD_PER_K
from lumion_hw.emulator.optics.truth import MeshTruth, PhysicsParameters

DAY_S = 86_400.0
_STEP_S = 1.0
"""Nothing moves noticeably in less."""
_NOTICED_K = 1e-3
"""A temperature controller has moved the chip when it has moved it by more: 2e-3 rad of phase or so."""
_TEMPERATURE_TIME_S = 3_600.0
"""Correlation time of the temperature that the control leaves: it follows the room (assumption)."""
_AGEING_TIME_S = 30.0 * DAY_S
"""Correlation time of resistances and waveguides: they do not walk away for ever (assumption)."""


class _Wandering:
    """Ornstein-Uhlenbeck processes that all begin at 0.

    Args:
        count: Number of them.
        sigma: Spread they tend to.
        time_s: Correlation time.
        rng: Source of steps.
    """

    def __init__(self, count: int, sigma: float, time_s: float, rng: np.random.Generator) -> None:
        self.value = np.zeros(count)
        self._sigma, self._time_s, self._rng = sigma, time_s, rng

    def advance(self, elapsed_s: float) -> NDArray[np.float64]:
        """Let time pass, exactly however long, and return the values."""
        # Exact for any step: a look a day and a look a second draw the same process.
        kept = math.exp(-elapsed_s / self._time_s)
        if self._sigma > 0.0:
            step = self._sigma * math.sqrt(1.0 - kept**2)
            self.value = kept * self.value + step * self._rng.standard_normal(len(self.value))
        return self.value


class SlowDrift:
    """Moves the truth of a mesh with time.

    Args:
        truth: What moves.
        physics: How much.
        now_s: The clock.
        rng: Source of everything random here.
        aged_s: Time that has passed since the truth was drawn.

    Attributes:
        temperature_k: Temperature of the chip over that at which the truth was drawn.
        on_change: Told the temperature whenever it has changed.
        held_k: Returns what a temperature controller holds the chip at, over the temperature at which the truth was
            drawn; the chip wanders about that. Without one it is held there.
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
        self._fresh_joints_rad = truth.joint_phase.copy()
        # A random walk of so much per root day is for short times the process of this spread.
        walk = math.sqrt(0.5 * _AGEING_TIME_S / DAY_S)
        sizes = len(truth.heater_ohm), len(truth.passive_phase), len(truth.joint_phase)
        self._temperature = _Wandering(1, physics.temperature_sigma_k, _TEMPERATURE_TIME_S, rng)
        self._resistance = _Wandering(sizes[0], walk * physics.resistance_drift_per_root_day, _AGEING_TIME_S, rng)
        self._passive = _Wandering(sizes[1], walk * physics.phase_drift_rad_per_root_day, _AGEING_TIME_S, rng)
        self._joints = _Wandering(sizes[2], walk * physics.phase_drift_rad_per_root_day, _AGEING_TIME_S, rng)
        self._still = not any(
            (physics.temperature_sigma_k, physics.resistance_drift_per_root_day, physics.phase_drift_rad_per_root_day)
        )
        self.temperature_k = 0.0
        self.held_k: Callable[[], float] | None = None
        self._held_at_k = 0.0
        self.on_change: list[Callable[[float], None]] = []
        # The first look lets all days pass that lie before the opening of the bench.
        self._at_s = self._drawn_s = now_s() - aged_s

    @property
    def age_s(self) -> float:
        """Time since the truth was drawn."""
        return self._now_s() - self._drawn_s

    def follow(self) -> bool:
        """Bring the truth up to the present time; return whether it has moved."""
        elapsed_s = self._now_s() - self._at_s
        held_k = self._held_at_k if self.held_k is None else self.held_k()
        steered = abs(held_k - self._held_at_k) > _NOTICED_K
        if not steered and (self._still or elapsed_s < _STEP_S):
            return False
        self._at_s, self._held_at_k = self._now_s(), held_k
        self.temperature_k = held_k + float(self._temperature.advance(elapsed_s)[0])
        truth = self._truth
        truth.common_phase_rad = COMMON_PHASE_RAD_PER_K * self.temperature_k
        truth.heater_ohm = self._fresh_ohm * (1.0 + self._resistance.advance(elapsed_s))
        truth.passive_phase = self._fresh_rad + self._passive.advance(elapsed_s)
        truth.joint_phase = self._fresh_joints_rad + self._joints.advance(elapsed_s)
        for told in self.on_change:
            told(self.temperature_k)
        return True
