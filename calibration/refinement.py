"""Refinement: every PUC again, now that all the others can be set.

Light is led to the PUC and from one of its outputs to a monitor through known states; everything else takes random
states and random common phases at every point, so that strays become noise instead of bias. The fringe of each of the
two outputs is fitted at points uniform in the programmed phase; what is left of its phase corrects the passive phase.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calibration.fringe import fourier
from calibration.knowledge import COMMON_STEPS_RAD, Knowledge, PucKnowledge
from calibration.planning import Planner, View
from calibration.probe import Probe
from lumion_hw.errors import LimitError

POINTS = 16
MOST_PASSES = 5
_CONVERGED_RAD = 0.10
_AVERAGED_PASSES = 2
_CROSSTALK_SIGMA_RAD = 0.010
"""Differential phase that neighbours' heat may add: 0.1-0.3 rad of common phase (mesh.md b.7), of which some 5 % is
differential (assumption). Not measured by this procedure, so it is part of every stated uncertainty."""


@dataclass(frozen=True)
class _Correction:
    """Correction of a passive phase, with its standard error."""

    rad: float
    sigma_rad: float


class Refinement:
    """Stage two of a calibration.

    Args:
        probe: Access to the mesh.
        planner: Views from the live sources to the live monitors.
        knowledge: Improved in place.
        rng: Random backgrounds.
    """

    def __init__(self, probe: Probe, planner: Planner, knowledge: Knowledge, rng: np.random.Generator) -> None:
        self._probe = probe
        self._planner = planner
        self._known = knowledge
        self._rng = rng

    def run(self, done: Callable[[int], None]) -> int:
        """Refine until no PUC moves any more, then average further passes; return the number of passes made."""
        averaged: dict[int, list[_Correction]] = {}
        for turn in range(1, MOST_PASSES + 1):
            corrections = self._pass(done)
            largest = max((abs(correction.rad) for correction in corrections.values()), default=0.0)
            if largest > _CONVERGED_RAD and turn <= MOST_PASSES - _AVERAGED_PASSES:
                for puc, correction in corrections.items():
                    self._shift(puc, correction)
                averaged.clear()  # earlier corrections were against phases that have moved now
                continue
            for puc, correction in corrections.items():
                averaged.setdefault(puc, []).append(correction)
            if max(map(len, averaged.values()), default=0) >= _AVERAGED_PASSES:
                break
        for puc, several in averaged.items():
            self._shift(puc, _mean(several))
        return turn

    def _shift(self, puc: int, correction: _Correction) -> None:
        passive = self._known.pucs[puc].passive_rad + correction.rad
        wrapped = float((passive + np.pi) % (2 * np.pi) - np.pi)
        self._known.pucs[puc] = PucKnowledge(wrapped, float(np.hypot(correction.sigma_rad, _CROSSTALK_SIGMA_RAD)))

    def _pass(self, done: Callable[[int], None]) -> dict[int, _Correction]:
        """Measure every known PUC once on each of its outputs."""
        plan: list[View] = []
        for puc in sorted(self._known.pucs):
            plan += self._best_views(puc)
        measured: dict[int, list[_Correction]] = {}
        # By source: moving the light costs more than moving the heaters.
        for view in sorted(plan, key=lambda view: (view.source, view.puc)):
            correction = self._fringe(view)
            if correction is not None:
                measured.setdefault(view.puc, []).append(correction)
            done(view.puc)
        return {puc: _mean(several) for puc, several in measured.items()}

    def _best_views(self, puc: int) -> list[View]:
        """Return the cheapest view of each output of a PUC."""
        best: dict[str, View] = {}
        for view in self._planner.views({puc}, self._known.pucs):
            best.setdefault(view.output, view)
            if len(best) == 2:
                break
        return list(best.values())

    def _fringe(self, view: View) -> _Correction | None:
        """Fit one output's fringe against the programmed phase, on a new background at every point."""
        self._probe.light(view.source)
        column = self._probe.monitors.index(view.monitor)
        angles = 2 * np.pi * np.arange(POINTS) / POINTS
        readings = np.empty(POINTS)
        for index, angle in enumerate(angles):
            currents = self._known.setting(view.states, self._rng, without=view.puc)
            common = float(self._rng.choice(COMMON_STEPS_RAD))
            try:
                pair = self._known.differential_currents(view.puc, float(angle), common)
            except LimitError:
                return None
            currents[2 * view.puc : 2 * view.puc + 2] = pair
            readings[index] = self._probe.measure(currents)[column]
        if np.isnan(readings).any():
            return None
        design = fourier(angles, 1)
        coefficients, *_ = np.linalg.lstsq(design, readings, rcond=None)
        swing = complex(coefficients[1], -coefficients[2])
        if abs(swing) == 0.0:
            return None
        residual = readings - design @ coefficients
        scatter = float(np.sqrt((residual**2).sum() / (POINTS - 3)))
        # The bar output is dark at phase 0, the cross output bright.
        phase = float(np.angle(-swing if view.output == "bar" else swing))
        return _Correction(phase, scatter * np.sqrt(2.0 / POINTS) / abs(swing))


def _mean(several: list[_Correction]) -> _Correction:
    """Return the weighted circular mean of corrections and its standard error."""
    weights = np.array([1.0 / max(one.sigma_rad, 1e-4) ** 2 for one in several])
    turned = np.exp(1j * np.array([one.rad for one in several]))
    return _Correction(float(np.angle((weights * turned).sum())), float(1.0 / np.sqrt(weights.sum())))
