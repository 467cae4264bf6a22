"""Growing wavefront: heater laws and passive phases of one PUC after the other, from the rim inwards.

Per PUC: sweep each arm uniformly in I² on two random backgrounds and fit the heater's law; then read four phases a
quarter turn apart on many random backgrounds. Averaged over backgrounds the stray light of unknown loops leaves no
phase, and the sign of the fringe at each detector, which tells bar from cross, follows from the mean-light model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.fringe import fit_law
from calibration.knowledge import COMMON_STEPS_RAD, Knowledge, PucKnowledge
from calibration.planning import Planner, View
from calibration.probe import NoiseModel, Probe
from calibration.transport import MeanTransport
from lumion_hw.mesh.topology import State

SWEEP_POINTS = 24
SWEEP_BACKGROUNDS = 2
_BATCH = 16
_MOST_BACKGROUNDS = 64
_GOOD_SIGMA_RAD = 0.12
_ACCEPTED_SIGMA_RAD = 0.2
_DEFERRAL_DB = 3.0
_MOST_DEFERRALS = 2


@dataclass(frozen=True)
class _PhaseEstimate:
    """Passive phase of one PUC and its standard error."""

    passive_rad: float
    sigma_rad: float


class Wavefront:
    """Stage one of a calibration.

    Args:
        probe: Access to the mesh.
        planner: Views from the live sources to the live monitors.
        knowledge: Filled in place.
        noise: Noise of a reading.
        rho2_range: Least and largest ρ2 a heater may have, rad/mA².
        rng: Random backgrounds.
    """

    def __init__(
        self,
        probe: Probe,
        planner: Planner,
        knowledge: Knowledge,
        noise: NoiseModel,
        rho2_range: tuple[float, float],
        rng: np.random.Generator,
    ) -> None:
        self._probe = probe
        self._planner = planner
        self._known = knowledge
        self._noise = noise
        self._rho2_range = rho2_range
        self._rng = rng
        self._transport = MeanTransport(probe.mesh)
        self._monitors = np.array(probe.monitors)

    def run(self, done: Callable[[int], None]) -> None:
        """Measure every PUC that can be seen; ``done`` is called with each PUC finished."""
        deferrals: dict[int, int] = {}
        while self._known.unknown:
            view = self._next_view(deferrals)
            if view is None:
                for puc in self._known.unknown:
                    self._known.stuck[puc] = "no light reaches it from a live source on its way to a live monitor"
                return
            puc = view.puc
            self._probe.light(view.source)
            for arm in (0, 1):
                if 2 * puc + arm not in self._known.laws:
                    self._sweep(view, arm)
            silent = [arm for arm in (0, 1) if self._known.law(puc, arm) is None]
            if silent and deferrals.get(puc, 0) < _MOST_DEFERRALS:
                # Too little light may have passed here: a heater is called dead only after several views.
                deferrals[puc] = deferrals.get(puc, 0) + 1
                for arm in silent:
                    del self._known.laws[2 * puc + arm]
                continue
            if len(silent) == 2:
                self._known.stuck[puc] = "neither heater has any effect on the light"
                done(puc)
                continue
            estimate = self._passive_phase(view)
            if estimate.sigma_rad > _ACCEPTED_SIGMA_RAD and deferrals.get(puc, 0) < _MOST_DEFERRALS:
                deferrals[puc] = deferrals.get(puc, 0) + 1
                continue
            if not np.isfinite(estimate.sigma_rad):
                self._known.stuck[puc] = "no monitor shows its fringe"
                done(puc)
                continue
            self._known.pucs[puc] = PucKnowledge(estimate.passive_rad, estimate.sigma_rad)
            done(puc)

    def _next_view(self, deferrals: dict[int, int]) -> View | None:
        """Return the cheapest view of any unknown PUC, those once deferred at a price."""
        best: dict[int, View] = {}
        for view in self._planner.views(self._known.unknown, self._known.pucs):
            best.setdefault(view.puc, view)
            if view.cost_db > min(v.cost_db for v in best.values()) + _DEFERRAL_DB * _MOST_DEFERRALS:
                break
        return min(
            best.values(), key=lambda v: (v.cost_db + _DEFERRAL_DB * deferrals.get(v.puc, 0), v.puc), default=None
        )

    def _sweep(self, view: View, arm: int) -> None:
        """Sweep one heater over its range on a few backgrounds and fit its law."""
        heater = 2 * view.puc + arm
        squares = np.linspace(0.0, self._probe.heater_max_ma**2, SWEEP_POINTS)
        traces: list[NDArray[np.float64]] = []
        for _ in range(SWEEP_BACKGROUNDS):
            currents = self._known.setting(view.states, self._rng, without=view.puc)
            rows = []
            for square in squares:
                currents[heater] = np.sqrt(square)
                rows.append(self._probe.measure(currents))
            traces.append(np.array(rows))
        fit = fit_law(squares, np.hstack(traces), self._noise, self._probe.heater_max_ma, self._rho2_range)
        self._known.laws[heater] = fit.law
        self._known.residuals[heater] = fit.residual_sigma

    def _passive_phase(self, view: View) -> _PhaseEstimate:
        """Estimate the passive phase from four phases a quarter turn apart on random backgrounds."""
        expected = self._transport.bar_sensitivity(view.source, view.puc, self._usable_states(view))[self._monitors]
        swings: list[NDArray[np.complex128]] = []
        while True:
            swings += [self._quarter_turns(view) for _ in range(_BATCH)]
            estimate = _combine(np.array(swings), expected, self._noise.floor_ma)
            if estimate.sigma_rad < _GOOD_SIGMA_RAD or len(swings) >= _MOST_BACKGROUNDS:
                return estimate

    def _usable_states(self, view: View) -> dict[int, State]:
        """Return the states on the way that can really be set."""
        return {puc: state for puc, state in view.states.items() if puc in self._known.pucs}

    def _quarter_turns(self, view: View) -> NDArray[np.complex128]:
        """Return the complex swing of every monitor against the heated differential phase, on one background."""
        currents = self._known.setting(view.states, self._rng, without=view.puc)
        common = float(self._rng.choice(COMMON_STEPS_RAD))
        swing = np.zeros(len(self._monitors), dtype=np.complex128)
        for quarter in range(4):
            angle = quarter * np.pi / 2
            pair = self._known.heat_currents(view.puc, angle, common)
            currents[2 * view.puc : 2 * view.puc + 2] = pair
            swing += self._probe.measure(currents) * np.exp(-1j * angle) / 2
        return swing


def _combine(swings: NDArray[np.complex128], expected: NDArray[np.float64], floor_ma: float) -> _PhaseEstimate:
    """Return the passive phase on which the detectors agree.

    A detector whose power grows by D per bar share swings by -D/2·cos(ψ + α) with the heated phase ψ. Detectors are
    weighted by the expected swing over the scatter from background to background.

    Args:
        swings: Shape ``(n_backgrounds, n_monitors)``; NaN where a monitor was saturated.
        expected: Shape ``(n_monitors,)``; D, in any unit.
        floor_ma: Least scatter to assume.
    """
    live = ~np.isnan(swings).any(axis=0)
    swings, expected = swings[:, live], expected[live]
    scatter = (np.abs(swings - swings.mean(axis=0)) ** 2).mean(axis=0) + floor_ma**2
    votes = (-expected * swings / scatter).sum(axis=1)
    mean = votes.mean()
    if abs(mean) == 0.0:
        return _PhaseEstimate(0.0, float("inf"))
    across = (votes * np.exp(-1j * np.angle(mean))).imag
    sigma = float(np.sqrt((across**2).mean() / len(votes)) / abs(mean))
    return _PhaseEstimate(float(np.angle(mean)), sigma)
