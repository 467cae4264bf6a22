"""Heater channels that are wired to other heaters than the bench file says."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from calibration.diagnose.breakdowns import coarse_cost
from calibration.model.arrays import Real
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.observations import Observations
from calibration.model.parameters import MeshParameters
from calibration.model.priors import Prior
from calibration.model.space import LAW_TERMS

EXCHANGED = "exchanged channels"
"""Each of two channels drives the heater of the other."""
SHARED = "shared channel"
"""One channel drives two heaters in parallel; the channel of the second heater drives nothing."""

# Rows: currents that the first and the second heater carry; columns: currents of their channels. Heaters in parallel
# carry about half each; the fitted heater laws contain the difference, because a law is linear in squared current.
_CARRIED: dict[str, Real] = {EXCHANGED: np.array([[0.0, 1.0], [1.0, 0.0]]), SHARED: np.array([[0.5, 0.0], [0.5, 0.0]])}
_PHASES = 8
# Smallest fitted law of a heater that shares a channel, relative to the smallest expected law: the heater then carries
# a quarter of the current instead of half.
_MIN_LAW_SHARE = 0.25


@dataclass(frozen=True)
class Miswiring:
    """Two heaters of different PUCs with wrong channels.

    Attributes:
        kind: ``EXCHANGED`` or ``SHARED``.
        first: Heater number (2·PUC + arm); of a shared channel, the heater to which the bench file assigns it.
        second: Number of the other heater.
    """

    kind: str
    first: int
    second: int

    @property
    def heaters(self) -> list[int]:
        """Both heaters."""
        return [self.first, self.second]

    def corrected(self, observations: Observations) -> Observations:
        """Return the observations with the currents that the two heaters really carry."""
        currents = observations.currents_ma.copy()
        currents[:, self.heaters] = currents[:, self.heaters] @ _CARRIED[self.kind].T
        return replace(observations, currents_ma=currents)

    def with_expected_laws(self, parameters: MeshParameters, heaters: NominalHeaters) -> MeshParameters:
        """Return parameters with the expected laws for both heaters, as a sweep of a shared channel shows neither."""
        laws, bending = parameters.heater_law.copy(), heaters.bending_per_ma2
        rho2 = np.pi * heaters.ohm * 1e-3 / heaters.p_pi_mw
        laws[self.heaters] = rho2 * np.array([1.0, bending, bending**2])
        return replace(parameters, heater_law=laws)

    def is_plausible(self, parameters: MeshParameters, heaters: NominalHeaters) -> bool:
        """Return whether both heaters have an effect with the fitted laws.

        Without this check, a weak heater and a dead heater would look like a shared channel.
        """
        rho2 = parameters.heater_law[self.heaters, 0]
        return self.kind != SHARED or bool((rho2 > _MIN_LAW_SHARE * heaters.rho2_range[0]).all())

    def start(
        self,
        model: MeshModel,
        parameters: MeshParameters,
        likelihood: Likelihood,
        prior: Prior,
        heaters: NominalHeaters,
    ) -> tuple[MeshParameters, float]:
        """Return start parameters for a fit with this wiring, and the cost at this start.

        ``likelihood`` has the corrected currents; ``heaters`` are the expected heaters of the chip.
        """
        if self.kind == EXCHANGED:  # the sweep of each channel has shown the law of the other heater
            laws = parameters.heater_law.copy()
            for heater, by in ((self.first, self.second), (self.second, self.first)):
                laws[heater] = [prior.mean[model.space.group(name)][by] for name in LAW_TERMS]
        else:
            laws = self.with_expected_laws(parameters, heaters).heater_law
        # With wrong channels the fitted phases of both PUCs are meaningless: try all combinations on a 45° grid.
        turns = np.arange(_PHASES) * 2.0 * np.pi / _PHASES
        best, lowest_cost = parameters, np.inf
        for first, second in itertools.product(turns, turns):
            passive = parameters.passive_phase_rad.copy()
            passive[self.first // 2] += first
            passive[self.second // 2] += second
            turned = replace(parameters, passive_phase_rad=passive, heater_law=laws)
            cost = coarse_cost(model, turned, likelihood)
            if cost < lowest_cost:
                best, lowest_cost = turned, cost
        return best, lowest_cost


def miswiring_candidates(live: Collection[int], dead: Collection[int]) -> Iterator[Miswiring]:
    """Yield the wrong wirings that can explain a misfit.

    Args:
        live: Suspected heaters whose channel has an effect on the light.
        dead: Heaters whose channel has no effect; without any, no channel can be shared.
    """
    pairs = itertools.chain(
        ((EXCHANGED, *pair) for pair in itertools.combinations(sorted(live), 2)),
        ((SHARED, *pair) for pair in itertools.product(sorted(live), sorted(dead))),
    )
    for kind, first, second in pairs:
        # Exchanging both arms of one PUC does not change the light, and both arms together do not change it either.
        if first // 2 != second // 2:
            yield Miswiring(kind, first, second)
