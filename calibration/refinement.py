"""Refinement: every PUC again, now that all the others can be set.

Light is led to the PUC and from one of its outputs to a monitor through known states; everything else takes random
states and random common phases at every point, so that strays become noise instead of bias. The fringes of the two
outputs are fitted together at points uniform in the programmed phase ψ, as A + C·cos(ψ + δ + s_u·h_u - s_l·h_l): δ
corrects the passive phase, and the scales s_u, s_l of the heater phases h correct the laws of the two heaters where
they are used. The scales are held by what the sweeps are good for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.fringe import fourier
from calibration.knowledge import COMMON_STEPS_RAD, Knowledge, PucKnowledge
from calibration.planning import Planner, View
from calibration.probe import Probe
from lumion_hw.errors import LimitError

POINTS = 16
MOST_PASSES = 5
_CONVERGED_RAD = 0.10
_AVERAGED_PASSES = 2
_CROSSTALK_SIGMA_RAD = 0.006
"""Differential phase that neighbours' heat may add: 0.1-0.3 rad of common phase (mesh.md b.7), of which some 3 % is
differential (assumption). Not measured by this procedure, so it is part of every stated uncertainty."""


_LAW_SIGMA = 0.008
"""How well a sweep on a random background fixes the scale of a heater law; holds the scales in the fit."""

_ROUNDS = 4


@dataclass(frozen=True)
class _Fringe:
    """One output's readings against the programmed phase.

    Attributes:
        sign: +1 for the cross output, bright at ψ = 0, -1 for the bar output.
        psi_rad: Shape ``(n,)``; programmed differential phase.
        upper_rad: Shape ``(n,)``; heater phase of the upper arm.
        lower_rad: Shape ``(n,)``; heater phase of the lower arm.
        readings: Shape ``(n,)``; any linear unit.
    """

    sign: float
    psi_rad: NDArray[np.float64]
    upper_rad: NDArray[np.float64]
    lower_rad: NDArray[np.float64]
    readings: NDArray[np.float64]


@dataclass(frozen=True)
class _Correction:
    """Corrections of one PUC: passive phase with its standard error, and relative corrections of its two laws."""

    rad: float
    sigma_rad: float
    upper_scale: float
    lower_scale: float


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
        """Correct the passive phase and the laws of one PUC."""
        for arm, scale in enumerate((correction.upper_scale, correction.lower_scale)):
            law = self._known.law(puc, arm)
            if law is not None:
                self._known.laws[2 * puc + arm] = law.scaled(1.0 + scale)
        passive = self._known.pucs[puc].passive_rad + correction.rad
        wrapped = float((passive + np.pi) % (2 * np.pi) - np.pi)
        self._known.pucs[puc] = PucKnowledge(wrapped, float(np.hypot(correction.sigma_rad, _CROSSTALK_SIGMA_RAD)))

    def _pass(self, done: Callable[[int], None]) -> dict[int, _Correction]:
        """Measure every known PUC once on each of its outputs."""
        plan: list[View] = []
        for puc in sorted(self._known.pucs):
            plan += self._best_views(puc)
        measured: dict[int, list[_Fringe]] = {}
        # By source: moving the light costs more than moving the heaters.
        for view in sorted(plan, key=lambda view: (view.source, view.puc)):
            fringe = self._fringe(view)
            if fringe is not None:
                measured.setdefault(view.puc, []).append(fringe)
            done(view.puc)
        return {puc: _fit(fringes) for puc, fringes in measured.items()}

    def _best_views(self, puc: int) -> list[View]:
        """Return the cheapest view of each output of a PUC."""
        best: dict[str, View] = {}
        for view in self._planner.views({puc}, self._known.pucs):
            best.setdefault(view.output, view)
            if len(best) == 2:
                break
        return list(best.values())

    def _fringe(self, view: View) -> _Fringe | None:
        """Read one output against the programmed phase, each point on a new background; ``None`` if it saturates."""
        self._probe.light(view.source)
        column = self._probe.monitors.index(view.monitor)
        angles = 2 * np.pi * np.arange(POINTS) / POINTS
        heated = np.zeros((2, POINTS))
        readings = np.empty(POINTS)
        for index, angle in enumerate(angles):
            currents = self._known.setting(view.states, self._rng, without=view.puc)
            common = float(self._rng.choice(COMMON_STEPS_RAD))
            try:
                pair = self._known.differential_currents(view.puc, float(angle), common)
            except LimitError:
                return None
            currents[2 * view.puc : 2 * view.puc + 2] = pair
            for arm, current in enumerate(pair):
                law = self._known.law(view.puc, arm)
                heated[arm, index] = law.phase_rad(current) if law else 0.0
            readings[index] = self._probe.measure(currents)[column]
        if np.isnan(readings).any() or not readings.any():
            return None
        return _Fringe(-1.0 if view.output == "bar" else 1.0, angles, heated[0], heated[1], readings)


def _fit(fringes: list[_Fringe]) -> _Correction:
    """Fit the fringes of one PUC together, by Gauss-Newton from the plain first harmonic."""
    swings, scatters = [], []
    for fringe in fringes:
        design = fourier(fringe.psi_rad, 1)
        coefficients, *_ = np.linalg.lstsq(design, fringe.readings, rcond=None)
        residual = fringe.readings - design @ coefficients
        swings.append(fringe.sign * complex(coefficients[1], -coefficients[2]))
        scatters.append(max(float(np.sqrt((residual**2).sum() / (POINTS - 3))), 1e-12))
    votes = sum((swing * abs(swing) / scatter**2 for swing, scatter in zip(swings, scatters, strict=True)), 0j)
    phase, scales = float(np.angle(votes)), np.zeros(2)
    sigma = float("inf")
    for _ in range(_ROUNDS):
        normal = np.diag([0.0, _LAW_SIGMA**-2, _LAW_SIGMA**-2])
        pull = np.array([0.0, *(-scales * _LAW_SIGMA**-2)])
        for fringe, scatter in zip(fringes, scatters, strict=True):
            argument = fringe.psi_rad + phase + scales[0] * fringe.upper_rad - scales[1] * fringe.lower_rad
            linear = np.stack([np.ones(POINTS), np.cos(argument)], axis=1)
            (level, swing), *_ = np.linalg.lstsq(linear, fringe.readings, rcond=None)
            slope = -swing * np.sin(argument)
            jacobian = np.stack([slope, slope * fringe.upper_rad, -slope * fringe.lower_rad], axis=1) / scatter
            # What level and swing can take up is no evidence for the rest (variable projection).
            basis, _ = np.linalg.qr(linear)
            jacobian -= basis @ (basis.T @ jacobian)
            normal += jacobian.T @ jacobian
            pull += jacobian.T @ (fringe.readings - level - swing * np.cos(argument)) / scatter
        covariance = np.linalg.pinv(normal)
        step = covariance @ pull
        phase += float(step[0])
        scales = scales + step[1:]
        sigma = float(np.sqrt(max(covariance[0, 0], 0.0)))
    return _Correction(float((phase + np.pi) % (2 * np.pi) - np.pi), sigma, float(scales[0]), float(scales[1]))


def _mean(several: list[_Correction]) -> _Correction:
    """Return the weighted mean of corrections and its standard error."""
    weights = np.array([1.0 / max(one.sigma_rad, 1e-4) ** 2 for one in several])
    turned = np.exp(1j * np.array([one.rad for one in several]))
    return _Correction(
        rad=float(np.angle((weights * turned).sum())),
        sigma_rad=float(1.0 / np.sqrt(weights.sum())),
        upper_scale=float(np.average([one.upper_scale for one in several], weights=weights)),
        lower_scale=float(np.average([one.lower_scale for one in several], weights=weights)),
    )
