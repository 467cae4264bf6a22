"""Heaters: from current to heat, and from heat to the phase of the heater's own arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.chip.effects import EffectSizes

Real = NDArray[np.float64]
Integers = NDArray[np.int64]

_GROUP = 12
"""Number of heaters with a common ground return (assumed)."""
_GROUP_MA = 3.0
_CONTACT_HEAT_SHARE = 0.1
"""Share of the contacts' heat that reaches the arm along the metal (assumed)."""
_HARMONICS = 3


@dataclass(frozen=True, eq=False)
class HeaterVariations:
    """Random parameters of the heaters of E PUCs.

    Attributes:
        contact_ohm: Shape ``(2E,)``; resistance of each heater's contacts.
        irregular: Shape ``(2E, 3)``; amplitudes of the irregular part of the phase as a function of heat.
        ground_return_share: Share of its current that a heater loses while the eleven other heaters on its ground
            return carry 3 mA each.
        group: Shape ``(2E,)``; number of the ground return that each heater uses.
    """

    contact_ohm: Real
    irregular: Real
    ground_return_share: float
    group: Integers

    @classmethod
    def draw(cls, channels: Sequence[int], sizes: EffectSizes, rng: np.random.Generator) -> HeaterVariations:
        """Draw the parameters of all heaters.

        Args:
            channels: Drive channel of each heater; twelve consecutive channels share a ground return.
            sizes: Sizes of the imperfections.
            rng: Source of random numbers.
        """
        heaters = len(channels)
        return cls(
            # Contacts vary more than films: by a third (assumed).
            sizes.heater_contact_ohm * np.abs(1.0 + 0.3 * rng.standard_normal(heaters)),
            # Each sine has an rms of 1/√2; all three together have the requested size.
            sizes.heater_irregularity * np.sqrt(2.0 / _HARMONICS) * rng.standard_normal((heaters, _HARMONICS)),
            sizes.ground_return_share,
            # Arms without a channel, which carry no current, are group 0.
            np.asarray(channels, dtype=np.int64) // _GROUP + 1,
        )

    def carried_ma(self, driven_ma: Real) -> Real:
        """Return the actual heater currents in mA, which other heaters on the same ground return reduce."""
        if not self.ground_return_share:
            return driven_ma
        total_ma, count = np.bincount(self.group, weights=driven_ma), np.bincount(self.group)
        others_mean_ma = (total_ma[self.group] - driven_ma) / np.maximum(count[self.group] - 1, 1)
        # The loss of current is limited to all of it: currents do not reverse.
        carried: Real = driven_ma * np.maximum(1.0 - self.ground_return_share * others_mean_ma / _GROUP_MA, 0.0)
        return carried

    def heat_mw(self, current_ma: Real, heater_ohm: Real, rise_per_mw: Real) -> Real:
        """Return the steady-state heat of each heater in mW, shape ``(2E,)`` for E PUCs.

        The resistance rises with the heat P: R = R0·(1 + γ·P), so that P = I²R0 / (1 - γ·I²R0) at the current I. The
        denominator is at least 0.1.
        """
        squared = current_ma**2 * 1e-3
        cold_mw = squared * heater_ohm
        heat: Real = cold_mw / np.maximum(1.0 - rise_per_mw * cold_mw, 0.1)
        return heat + _CONTACT_HEAT_SHARE * squared * self.contact_ohm

    def own_arm_phase_rad(self, heat_mw: Real, heat_per_pi_mw: Real) -> Real:
        """Return the phase in rad that each heater adds to its own arm: π at the heat P_π, plus an irregular part."""
        turns = heat_mw / heat_per_pi_mw
        phase: Real = np.pi * turns
        if self.irregular.any():
            orders = np.arange(1, _HARMONICS + 1)
            waves = np.sin(2.0 * np.pi * orders * turns[:, None] / 3.0)
            phase = phase * (1.0 + (self.irregular * waves).sum(axis=1))
        return phase
