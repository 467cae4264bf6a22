"""Phase of a heater as a function of current, and its inverse."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lumion_hw.errors import LimitError

# Laws that bend by -20 to +30 % at full current need at most 5 steps.
_NEWTON_STEPS = 8


@dataclass(frozen=True)
class HeaterLaw:
    """Phase of one arm as a function of heater current, φ = ρ2·I² + ρ4·I⁴ + ρ6·I⁶.

    Source of this form: docs/decisions/0006-global-fit.md.

    Attributes:
        rho2_rad_per_ma2: Coefficient of I², positive.
        rho4_rad_per_ma4: Coefficient of I⁴.
        max_ma: Largest allowed current; the phase must rise up to there.
        rho6_rad_per_ma6: Coefficient of I⁶.
    """

    rho2_rad_per_ma2: float
    rho4_rad_per_ma4: float
    max_ma: float
    rho6_rad_per_ma6: float = 0.0

    def phase_rad(self, current_ma: float) -> float:
        """Return the phase of the heated arm at a heater current."""
        return self._phase_of_square(current_ma * current_ma)

    def _phase_of_square(self, square: float) -> float:
        return square * (self.rho2_rad_per_ma2 + square * (self.rho4_rad_per_ma4 + square * self.rho6_rad_per_ma6))

    def bend(self, current_ma: float) -> float:
        """Return the phase divided by ρ2·I², which is above 1 because the resistance rises with heat."""
        square = current_ma * current_ma
        return 1.0 + square * (self.rho4_rad_per_ma4 + square * self.rho6_rad_per_ma6) / self.rho2_rad_per_ma2

    @property
    def max_phase_rad(self) -> float:
        """Largest phase that the heater reaches within its current limit."""
        return self.phase_rad(self.max_ma)

    def scaled(self, factor: float) -> HeaterLaw:
        """Return the heater law with all phases multiplied by a factor."""
        return HeaterLaw(
            self.rho2_rad_per_ma2 * factor,
            self.rho4_rad_per_ma4 * factor,
            self.max_ma,
            self.rho6_rad_per_ma6 * factor,
        )

    def current_ma(self, phase_rad: float) -> float:
        """Return the heater current for a phase of at least 0.

        Raises:
            LimitError: The phase is negative, or needs more than the largest current.
        """
        if not 0.0 <= phase_rad <= self.max_phase_rad:
            raise LimitError(
                "the heater cannot reach this phase", requested=phase_rad, limit=self.max_phase_rad, unit="rad"
            )
        # The first term of the law is by far the largest, so Newton's method starts close to the solution.
        square = phase_rad / self.rho2_rad_per_ma2
        for _ in range(_NEWTON_STEPS):
            slope = self.rho2_rad_per_ma2 + square * (2 * self.rho4_rad_per_ma4 + 3 * square * self.rho6_rad_per_ma6)
            step = (self._phase_of_square(square) - phase_rad) / slope
            square -= step
            if abs(step) < 1e-12:
                break
        return math.sqrt(max(square, 0.0))
