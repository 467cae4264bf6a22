"""The heat of a chip's heaters: it follows what drives them with one time constant, a share of it with a slower one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_SETTLED_TAU = 25.0
"""Time constants after which heat is taken as settled: the rest is below 1e-10."""


class Heat:
    """Heat of all heaters as a function of time.

    Instants must not run backwards; one that does finds the heat of the latest.

    Args:
        heaters: How many there are.
        tau_s: Time constant.
        at_s: Present instant; all are cold.
        slow_share: Share that follows with another time constant.
        slow_tau_s: That one.

    Attributes:
        present_mw: Heat at the instant last looked at, shape ``(heaters,)``.
    """

    def __init__(
        self, heaters: int, tau_s: float, at_s: float, slow_share: float = 0.0, slow_tau_s: float = 20e-3
    ) -> None:
        shares = [(1.0 - slow_share, tau_s), (slow_share, slow_tau_s)]
        self._parts = [(share, part_tau_s, np.zeros(heaters)) for share, part_tau_s in shares if share > 0.0]
        self._settled_s = _SETTLED_TAU * max(part_tau_s for _, part_tau_s, _ in self._parts)
        self.present_mw: NDArray[np.float64] = np.zeros(heaters)
        self._target_mw = self.present_mw
        self._followed_s = at_s
        self._aimed_s = -math.inf

    def aim(self, target_mw: NDArray[np.float64], at_s: float) -> None:
        """From this instant on the heaters are driven so that this is where heat settles."""
        # What was aimed at before counts up to this instant.
        self.follow(at_s)
        self._target_mw = target_mw
        self._aimed_s = at_s

    def follow(self, at_s: float) -> bool:
        """Let the heat come to an instant; return whether it has settled."""
        elapsed_s = max(at_s - self._followed_s, 0.0)
        self._followed_s = max(at_s, self._followed_s)
        settled = at_s - self._aimed_s > self._settled_s
        if settled:
            self.present_mw = self._target_mw  # exactly: whoever keeps solutions relies on it
        parts = []
        for share, tau_s, heat_mw in self._parts:
            now_mw = self._target_mw + (heat_mw - self._target_mw) * math.exp(-elapsed_s / tau_s)
            parts.append((share, tau_s, self._target_mw if settled else now_mw))
        self._parts = parts
        if not settled:
            self.present_mw = sum((share * heat_mw for share, _, heat_mw in parts), np.zeros(len(self._target_mw)))
        return settled
