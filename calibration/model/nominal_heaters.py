"""Expected heaters of a chip, with the data assumed before a measurement."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibration.model.arrays import Real

_RESISTANCE_SPREAD = 0.1


@dataclass(frozen=True)
class NominalHeaters:
    """Expected resistance and efficiency of the heaters of a chip.

    Resistance rise and crosstalk were published for one chip, and are assumed to be equal per radian of phase on
    others. The defaults are those of the published chip.

    Attributes:
        ohm: Cold resistance.
        p_pi_min_mw: Smallest heat for a phase of π.
        p_pi_max_mw: Largest heat for a phase of π.
    """

    ohm: float = 1000.0
    p_pi_min_mw: float = 1.2
    p_pi_max_mw: float = 2.0

    @property
    def p_pi_mw(self) -> float:
        """Typical heat for a phase of π: the geometric mean of the limits, in mW."""
        return math.sqrt(self.p_pi_min_mw * self.p_pi_max_mw)

    @property
    def rho2_range(self) -> tuple[float, float]:
        """Smallest and largest ρ2 of the heater law to search, in rad/mA², with a margin of 10 %."""
        mw_per_ma2 = self.ohm * 1e-3
        low, high = 1.0 - _RESISTANCE_SPREAD, 1.0 + _RESISTANCE_SPREAD
        return low * np.pi * mw_per_ma2 / self.p_pi_max_mw, high * np.pi * mw_per_ma2 / self.p_pi_min_mw

    @property
    def per_ma2(self) -> float:
        """Factor from published values per mA² to these heaters."""
        published = PUBLISHED_HEATERS
        return (self.ohm / self.p_pi_mw) / (published.ohm / published.p_pi_mw)

    @property
    def per_mw(self) -> float:
        """Factor from published values per mW to these heaters."""
        return PUBLISHED_HEATERS.p_pi_mw / self.p_pi_mw

    @property
    def kernel(self) -> Real:
        """Crosstalk for these heaters: amplitude (rad/mW), decay length (mm) and floor (rad/mW)."""
        return np.array(PUBLISHED_KERNEL) * self.kernel_units

    @property
    def kernel_units(self) -> Real:
        """Factors from the published crosstalk to these heaters: amplitude, decay length, floor."""
        return np.array([self.per_mw, 1.0, self.per_mw])

    @property
    def bending_per_ma2(self) -> float:
        """Expected relative rise of the resistance per mA²."""
        return PUBLISHED_BENDING_PER_MA2 * self.per_ma2


PUBLISHED_HEATERS = NominalHeaters()
"""1.2 to 2.0 mW per π at 1 kΩ (Sánchez-Jácome 2025)."""
PUBLISHED_KERNEL = (2.98e-3, 1.18, 3.94e-4)
"""Crosstalk 0.906·exp(-d/1.18 mm) + 0.12 pm per mW of a heater of 1.34 mW per π, of two heaters together, on a ring of
six PUCs with 119 pm per π: pm · 2π/119/6 · 1/(2·1.34) (Teofilovic 2024).
"""
PUBLISHED_BENDING_PER_MA2 = 0.02
"""The resistance rises by 2 % per mW at 1 kΩ (assumed): 3 % at a phase of π."""
