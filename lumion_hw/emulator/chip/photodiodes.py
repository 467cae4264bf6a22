"""Imperfections of photodiodes: compression, leakage between channels, offset drift."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.chip.effects import EffectSizes

Real = NDArray[np.float64]

_OFFSET_TIME_S = 600.0


class PhotodiodeArray:
    """The photodiode monitors of a chip.

    Args:
        now_s: Time at which the offsets start to drift from 0.
    """

    def __init__(self, sizes: EffectSizes, rng: np.random.Generator, now_s: float) -> None:
        self._compression_per_ma = sizes.photodiode_compression_per_ma
        self._leakage = sizes.photodiode_leakage
        self._sigma_ma = 1e-6 * sizes.photodiode_offset_drift_na
        self._rng = rng
        self._offset_ma: Real = np.zeros(0)
        self._followed_s = now_s

    @property
    def is_ideal(self) -> bool:
        """Whether all photodiodes are without imperfections."""
        return not (self._compression_per_ma or self._leakage or self._sigma_ma)

    def read_ma(self, current_ma: Real, at_s: float) -> Real:
        """Return n photodiode readings in mA for the currents of n ideal photodiodes in mA, shape ``(n,)``."""
        if self.is_ideal:
            return current_ma
        read = current_ma / (1.0 + self._compression_per_ma * np.maximum(current_ma, 0.0))
        if self._leakage:
            neighbours = np.zeros_like(read)
            neighbours[1:] += read[:-1]
            neighbours[:-1] += read[1:]
            read = read + self._leakage * neighbours
        return read + self._offsets_ma(len(read), at_s)

    def _offsets_ma(self, channels: int, at_s: float) -> Real:
        if not self._sigma_ma:
            return np.zeros(channels)
        if len(self._offset_ma) != channels:
            self._offset_ma = np.zeros(channels)
        elapsed_s = at_s - self._followed_s
        if elapsed_s > 0.0:
            # Exact for any step of an Ornstein-Uhlenbeck process.
            decay = math.exp(-elapsed_s / _OFFSET_TIME_S)
            step = self._sigma_ma * math.sqrt(1.0 - decay**2)
            self._offset_ma = decay * self._offset_ma + step * self._rng.standard_normal(channels)
            self._followed_s = at_s
        return self._offset_ma
