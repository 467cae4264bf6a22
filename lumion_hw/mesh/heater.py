"""The calibrated law of one heater: phase against current, and its inverse."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lumion_hw.errors import LimitError


@dataclass(frozen=True)
class HeaterLaw:
    """Phase of one arm, φ = ρ2·I² + ρ4·I⁴, the form that heating with a resistance that rises suggests (mesh.md b.4).

    Attributes:
        rho2_rad_per_ma2: Coefficient of I², positive.
        rho4_rad_per_ma4: Coefficient of I⁴.
        max_ma: Largest current at which the law holds and the heater may be driven.
    """

    rho2_rad_per_ma2: float
    rho4_rad_per_ma4: float
    max_ma: float

    def phase_rad(self, current_ma: float) -> float:
        """Return the phase at a current."""
        square = current_ma * current_ma
        return self.rho2_rad_per_ma2 * square + self.rho4_rad_per_ma4 * square * square

    @property
    def max_phase_rad(self) -> float:
        """Largest phase within the current limit."""
        return self.phase_rad(self.max_ma)

    def current_ma(self, phase_rad: float) -> float:
        """Return the current for a phase of at least 0.

        Raises:
            LimitError: The phase is negative or needs more than the largest current.
        """
        if not 0.0 <= phase_rad <= self.max_phase_rad:
            raise LimitError("heater phase out of reach", asked=phase_rad, limit=self.max_phase_rad, unit="rad")
        if abs(self.rho4_rad_per_ma4) < 1e-12:
            return math.sqrt(phase_rad / self.rho2_rad_per_ma2)
        root = math.sqrt(self.rho2_rad_per_ma2**2 + 4.0 * self.rho4_rad_per_ma4 * phase_rad)
        # The form with the root in the denominator keeps its precision near zero phase.
        return math.sqrt(2.0 * phase_rad / (self.rho2_rad_per_ma2 + root))
