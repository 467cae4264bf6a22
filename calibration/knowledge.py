"""What is known of the mesh so far, and the heater settings that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.heater import HeaterLaw
from lumion_hw.mesh.inverse import DIFFERENTIAL_RAD, split_phase
from lumion_hw.mesh.topology import HexMesh, State

COMMON_STEPS_RAD = (0.0, 2.0 * np.pi / 3.0, 4.0 * np.pi / 3.0)
"""Common phases that average to zero, once and twice passed: they turn stray interference into noise."""

_RANDOM_SQUARE_FRACTION = 0.65
"""Unknown heaters are driven at random up to this share of the largest I², about one and a half turns."""


@dataclass(frozen=True)
class PucKnowledge:
    """A PUC whose states can be set.

    Attributes:
        passive_rad: Passive phase of the upper arm.
        sigma_rad: Its standard error.
    """

    passive_rad: float
    sigma_rad: float


class Knowledge:
    """Heater laws and passive phases found so far.

    Args:
        mesh: The mesh.
        heater_max_ma: Largest heater current.
    """

    def __init__(self, mesh: HexMesh, heater_max_ma: float) -> None:
        self.mesh = mesh
        self.heater_max_ma = heater_max_ma
        self.laws: dict[int, HeaterLaw | None] = {}
        self.residuals: dict[int, float] = {}
        self.pucs: dict[int, PucKnowledge] = {}
        self.stuck: dict[int, str] = {}
        self._settings: dict[int, tuple[PucKnowledge, dict[tuple[State, int], tuple[float, float]]]] = {}

    @property
    def unknown(self) -> set[int]:
        """PUCs that are neither known nor given up."""
        return set(range(self.mesh.n_pucs)) - set(self.pucs) - set(self.stuck)

    def law(self, puc: int, arm: int) -> HeaterLaw | None:
        """Return the law of a heater (arm 0 upper, 1 lower), ``None`` if it is dead or not measured."""
        return self.laws.get(2 * puc + arm)

    def differential_currents(self, puc: int, differential_rad: float, common_rad: float) -> tuple[float, float]:
        """Return the currents that set φu - φl of a PUC, its passive phase taken as known.

        Raises:
            LimitError: The phase is out of reach.
        """
        return self._currents(puc, differential_rad, self.pucs[puc].passive_rad, common_rad)

    def heat_currents(self, puc: int, differential_rad: float, common_rad: float) -> tuple[float, float]:
        """Return the currents that add a difference of heater phases, whatever the passive phase."""
        return self._currents(puc, differential_rad, 0.0, common_rad)

    def _currents(
        self, puc: int, differential_rad: float, passive_rad: float, common_rad: float
    ) -> tuple[float, float]:
        upper, lower = self.law(puc, 0), self.law(puc, 1)
        up, down = split_phase(differential_rad, passive_rad, upper, lower, common_rad)
        return (upper.current_ma(up) if upper else 0.0), (lower.current_ma(down) if lower else 0.0)

    def _state_currents(self, puc: int, state: State, common: int) -> tuple[float, float]:
        """Return the currents of a state at one of the common steps; reckoned once per passive phase."""
        known = self.pucs[puc]
        made, currents = self._settings.get(puc, (None, {}))
        if made is not known:
            currents = {}
            self._settings[puc] = (known, currents)
        key = (state, common)
        if key not in currents:
            currents[key] = self.differential_currents(puc, DIFFERENTIAL_RAD[state], COMMON_STEPS_RAD[common])
        return currents[key]

    def setting(
        self, states: Mapping[int, State], rng: np.random.Generator, without: int | None = None
    ) -> NDArray[np.float64]:
        """Return a setting with the wanted states and everything else at random.

        Known PUCs take their wanted state, or a random one of the two, at a random common phase; unknown ones random
        currents; PUC ``without`` stays unheated.
        """
        n_pucs = self.mesh.n_pucs
        square = _RANDOM_SQUARE_FRACTION * self.heater_max_ma**2
        currents = np.sqrt(rng.uniform(0.0, square, 2 * n_pucs))
        common = rng.integers(len(COMMON_STEPS_RAD), size=n_pucs).tolist()
        at_random = rng.random(n_pucs) < 0.5
        for puc in self.pucs:
            state = states.get(puc) or ("bar" if at_random[puc] else "cross")
            currents[2 * puc : 2 * puc + 2] = self._state_currents(puc, state, common[puc])
        if without is not None:
            currents[2 * without : 2 * without + 2] = 0.0
        return currents
