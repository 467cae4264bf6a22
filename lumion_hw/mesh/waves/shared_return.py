"""Heater currents that depend on each other: by a return conductor that channels share, and by a supply that sags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]

RETURN_GROUP_SIZES = (4, 8, 12, 16, 24, 32, 40)
"""Possible numbers of consecutive channels with a shared return (assumed)."""
# With 15 mA in all heaters, 4 steps suffice if 0.15 % of the current is lost and 13 if 7.5 % is. At 30 %, far beyond
# any usable chip, the iteration does not converge, and the limit keeps it from overflowing.
_MAX_STEPS = 20
_CONVERGED_MA = 1e-9


@dataclass(frozen=True, eq=False)
class SharedReturns:
    """Current that heaters lose because other heaters use the same return conductor.

        I = driven - Σ j·(a·driven + b)    j: mean current of the other heaters, as if the group were full

    The sum is over the group sizes in :data:`RETURN_GROUP_SIZES`, each with its own coefficients a (in 1/mA) and b. All
    currents then fall by a share that rises with the cube of the total current, if the supply sags.

    Attributes:
        members: For every group size, a matrix with 1 where a heater (row) belongs to a group (column).
    """

    members: tuple[Real, ...]

    @classmethod
    def from_channels(cls, channels: Sequence[int]) -> SharedReturns:
        """Return the groups for heaters on these controller channels."""
        groups = [np.asarray(channels, dtype=np.int64) // size for size in RETURN_GROUP_SIZES]
        return cls(tuple((group[:, None] == np.unique(group)).astype(np.float64) for group in groups))

    def others_mean_ma(self, driven_ma: Real) -> Real:
        """Return the mean current j of the other heaters in a group, shape ``(T, …, 2E)`` for T group sizes.

        Args:
            driven_ma: Driven currents, shape ``(…, 2E)`` for E PUCs.
        """
        sums = [driven_ma @ members @ members.T for members in self.members]
        return np.stack(
            [(sum_ma - driven_ma) / (size - 1) for sum_ma, size in zip(sums, RETURN_GROUP_SIZES, strict=True)]
        )

    def flowing_ma(self, driven_ma: Real, rho2: Real, extra: Mapping[str, Real]) -> Real:
        """Return the currents that flow through the heaters, shape ``(…, 2 n_pucs)``.

        Args:
            driven_ma: Driven currents, shape ``(…, 2 n_pucs)``.
            rho2: First terms of the heater laws, shape ``(2 n_pucs,)``, in rad/mA²; 0 for a dead heater.
            extra: May contain ``shared_return_per_ma``, the coefficients a of all group sizes, then b; and
                ``supply_sag_share``, shape ``(1,)``, the relative loss at a load of 1, see :func:`relative_load`.
        """
        flowing = driven_ma
        if (per_ma := extra.get("shared_return_per_ma")) is not None:
            loss_fraction, loss_ma = (
                np.tensordot(part, self.others_mean_ma(driven_ma), axes=1) for part in np.split(per_ma, 2)
            )
            flowing = flowing - loss_fraction * driven_ma - loss_ma
        if (share := extra.get("supply_sag_share")) is not None:
            flowing = flowing * (1.0 - share * relative_load(driven_ma, rho2)[..., None] ** 3)
        return flowing

    def driven_ma(self, flowing_ma: Real, rho2: Real, extra: Mapping[str, Real]) -> Real:
        """Return the currents to drive so that the given currents flow, shape ``(2 n_pucs,)``; never negative."""
        driven = flowing_ma
        for _ in range(_MAX_STEPS):
            # Only a small fraction is lost, so each step reduces the error by this small factor.
            step = flowing_ma - self.flowing_ma(driven, rho2, extra)
            driven = np.maximum(driven + step, 0.0)
            if np.abs(step).max(initial=0.0) < _CONVERGED_MA:
                break
        return driven


def relative_load(driven_ma: Real, rho2: Real) -> Real:
    """Return the total current relative to that with all heaters at a phase of π, shape ``(…)``.

    The arguments are those of :meth:`SharedReturns.flowing_ma`.
    """
    live = max(int(np.count_nonzero(rho2)), 1)
    load: Real = driven_ma @ np.sqrt(rho2.clip(0.0) / np.pi) / live
    return load
