"""Noise of monitor readings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class NoiseModel:
    """Noise of one monitor reading: σ² = (relative · value)² + floor².

    Attributes:
        relative: Relative part.
        floor_ma: Additive part, with the quantisation step.
    """

    relative: float
    floor_ma: float

    def sigma_ma(self, current_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the standard deviation of readings of the given size."""
        sigma: NDArray[np.float64] = np.hypot(self.relative * current_ma, self.floor_ma)
        return sigma
