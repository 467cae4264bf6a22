"""Drives that share a return: the current of one lifts the potential of the others, so that less flows through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]

RETURN_GROUP_SIZES = (4, 8, 12, 16, 24, 32, 40)
"""Drives in a row of channels that may share one: those of usual modules, converters and connectors (assumed)."""
_MOST_STEPS = 20
_EXACT_MA = 1e-9


@dataclass(frozen=True, eq=False)
class SharedReturns:
    """What heaters lose to others on their return.

        I = driven - Σ j·(a·driven + b)    j: mean current of the others of the group, were all of its drives there

    There is one a, in 1/mA, and one b for every size of a group in :data:`RETURN_GROUP_SIZES`: a drive of finite output
    resistance loses a share of its current, one that holds its voltage a current.

    Attributes:
        members: For every size, shape ``(2E, g)``: 1 where a heater is of one of g groups.
    """

    members: tuple[Real, ...]

    @classmethod
    def from_channels(cls, channels: Sequence[int]) -> SharedReturns:
        """Return those of heaters on these drive channels."""
        groups = [np.asarray(channels, dtype=np.int64) // size for size in RETURN_GROUP_SIZES]
        return cls(tuple((group[:, None] == np.unique(group)).astype(np.float64) for group in groups))

    def others_ma(self, driven_ma: Real) -> Real:
        """Return j of heaters driven with ``(…, 2E)``, shape ``(T, …, 2E)``."""
        sums = [driven_ma @ members @ members.T for members in self.members]
        return np.stack(
            [(sum_ma - driven_ma) / (size - 1) for sum_ma, size in zip(sums, RETURN_GROUP_SIZES, strict=True)]
        )

    def flowing_ma(self, driven_ma: Real, per_ma: Real | None) -> Real:
        """Return the currents that flow, shape ``(…, 2E)``.

        Args:
            driven_ma: Shape ``(…, 2E)``.
            per_ma: Shape ``(2T,)``; a of all sizes, then b; ``None`` where nothing is lost.
        """
        if per_ma is None:
            return driven_ma
        share, lost_ma = (np.tensordot(part, self.others_ma(driven_ma), axes=1) for part in np.split(per_ma, 2))
        flowing: Real = driven_ma - share * driven_ma - lost_ma
        return flowing

    def driven_ma(self, flowing_ma: Real, per_ma: Real | None) -> Real:
        """Return the currents to drive, so that these flow, shape ``(2E,)``; none below zero."""
        driven = flowing_ma
        for _ in range(_MOST_STEPS):
            # What is lost is a small part: a step leaves as small a part of the error.
            step = flowing_ma - self.flowing_ma(driven, per_ma)
            driven = np.maximum(driven + step, 0.0)
            if np.abs(step).max(initial=0.0) < _EXACT_MA:
                break
        return driven
