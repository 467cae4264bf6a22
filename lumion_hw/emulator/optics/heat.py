"""Heat of the heaters, which follows the electrical power with a fast and a slow time constant."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_SETTLED_TAUS = 25.0
"""Number of time constants after which heat counts as settled."""


class Heat:
    """Heat of all heaters as a function of time, in mW.

    Times must not run backwards; an earlier time gives the latest heat.

    Args:
        tau_s: Time constant of every heater, shape ``(heaters,)``, or one for all.
        at_s: Initial time, at which all heaters are cold.
        slow_share: Share of the heat that follows with the slow time constant.

    Attributes:
        present_mw: Heat at the latest time, shape ``(heaters,)``.
    """

    def __init__(
        self,
        heaters: int,
        tau_s: float | NDArray[np.float64],
        at_s: float,
        slow_share: float = 0.0,
        slow_tau_s: float = 20e-3,
    ) -> None:
        shares = [(1.0 - slow_share, tau_s), (slow_share, slow_tau_s)]
        self._components = [
            (share, component_tau_s, np.zeros(heaters)) for share, component_tau_s in shares if share > 0.0
        ]
        self._settled_s = _SETTLED_TAUS * max(float(np.max(tau_s)) for _, tau_s, _ in self._components)
        self.present_mw: NDArray[np.float64] = np.zeros(heaters)
        self._target_mw = self.present_mw
        self.followed_s = at_s
        self._target_set_s = -math.inf

    def aim(self, target_mw: NDArray[np.float64], at_s: float) -> None:
        """Set the steady-state heat that the heaters approach from a time on."""
        # Up to this instant, heat follows the earlier target.
        self.follow(at_s)
        self._target_mw = target_mw
        self._target_set_s = at_s

    def follow(self, at_s: float) -> bool:
        """Advance the heat to a given time. Return whether it has settled."""
        elapsed_s = max(at_s - self.followed_s, 0.0)
        self.followed_s = max(at_s, self.followed_s)
        is_settled = at_s - self._target_set_s > self._settled_s
        if is_settled:
            self.present_mw = self._target_mw  # exactly equal: cached fields stay valid only while the heat is the same
        components = []
        for share, tau_s, heat_mw in self._components:
            present_mw = self._target_mw + (heat_mw - self._target_mw) * np.exp(-elapsed_s / tau_s)
            components.append((share, tau_s, self._target_mw if is_settled else present_mw))
        self._components = components
        if not is_settled:
            self.present_mw = sum((share * heat_mw for share, _, heat_mw in components), np.zeros(len(self._target_mw)))
        return is_settled
