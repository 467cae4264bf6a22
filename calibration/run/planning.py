"""Adaptive planning: after the first fit, measure what tells most about what is known worst, until enough is known.

The fit says how well every phase is known, and the design which settings would tell most about the worst of them per
second of hardware time (:mod:`calibration.measure.design`). A batch of them is measured, the fit goes on from where it
stands, and so on. It ends when the wanted standard error is reached, when time or settings are used up, or when no
number of settings would do: some phases may not show in any light that this bench can make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.measure.design import Designer, IncrementalSettings, at_mean_frequency
from calibration.measure.logbook import HardwareTimes, Logbook, LogbookEntry
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import Observations, seen_by
from calibration.model.physics import Physics
from calibration.model.priors import PHASE_GROUPS, Prior
from calibration.model.response import of_one_way
from calibration.model.space import ParameterSpace
from calibration.model.symmetric import inverse_of
from calibration.model.work import MEASURED_ON, chosen_work, derivatives_work

Real = NDArray[np.float64]

BATCH = 700
"""Most settings from one fit to the next."""
STRETCH = 20
"""Settings after which the light may move."""
# Settings below which a batch is not worth a fit of all.
_LEAST_BATCH = 200
_MOST_BATCHES = 12
# Settings are chosen for a little more than is wanted: the next fit is about another point.
_AIM = 0.92
# A batch that is not expected to lower the standard error by this factor is not worth a fit.
_HARDLY = 0.98
# The same where all settings there are would not reach the goal, were the error to fall with their root from there.
_WORTH = 0.8
# As many times the information there is as stands for settings without end.
_FOREVER = 1e6
_MOST_NAMED = 5


@dataclass(frozen=True)
class Goal:
    """When a calibration knows enough, and what it may cost.

    Attributes:
        sigma_rad: Wanted standard error of passive phases and of loops, root mean square. A milliradian is less than a
            step of 14 bit may be (1.5 mrad), than a step of 0.001 in the coupling (2 mrad) and than what a
            temperature lock leaves of every phase (6 mrad at 10 mK, assumed): what is known better cannot be set
            better.
        hardware_s: Most hardware time of the whole calibration.
        settings: Most settings of the whole calibration.
    """

    sigma_rad: float = 1e-3
    hardware_s: float = 90.0
    settings: int = 5000


@dataclass(frozen=True)
class Knowledge:
    """How well the phases are known after a fit.

    Attributes:
        sigma: Shape ``(size,)``; standard errors at the mean frequency of the sources, 0 where held.
        limit: Shape ``(size,)``; those after settings without end.
        wanted: Shape ``(size,)``; phases that such settings would tell well enough.
    """

    sigma: Real
    limit: Real
    wanted: NDArray[np.bool_]

    @classmethod
    def of(cls, space: ParameterSpace, fit: FitResult, goal_rad: float) -> Knowledge:
        """Return what is known after a fit."""
        sigma = _sigma(space, fit, fit.information)
        # What the ports do not show stays, however long one measures: a goal that counts it would never be met.
        limit = _sigma(space, fit, _FOREVER * fit.information)
        phases = space.mask(PHASE_GROUPS) & fit.free
        return cls(sigma, limit, phases & (limit <= goal_rad))

    def rms_rad(self, space: ParameterSpace, among: NDArray[np.bool_] | None = None) -> float:
        """Return the rms standard error of passive phases or of loops, whichever is larger; 0 if there are none."""
        spreads = []
        for name in PHASE_GROUPS:
            chosen = space.mask((name,)) & (self.sigma > 0.0) & (True if among is None else among)
            spreads.append(float(np.sqrt(np.mean(self.sigma[chosen] ** 2))) if chosen.any() else 0.0)
        return max(spreads)


@dataclass(frozen=True)
class PlanningOutcome:
    """How the planning ended.

    Attributes:
        sigma_rad: Standard error reached, root mean square of passive phases or of loops, whichever is larger.
        settings: Settings chosen and measured.
        shortfall: Why the goal was missed; empty if it was reached.
    """

    sigma_rad: float
    settings: int
    shortfall: str


@dataclass
class AdaptiveMeasurement:
    """Measures further settings, batch by batch, until a goal is reached or cannot be.

    Attributes:
        logbook: Access to the mesh; what it has counted so far counts against the goal.
        model: The model of the last fit.
        likelihood: The readings so far, and what to make of them.
        most_ma: Shape ``(2E,)``; largest current of every heater.
        goal: When to end.
        rng: Random steps to choose from.
        times: What settings cost on this bench, moving the light included.
        reserve_s: Hardware time that later stages need.
        reserve_settings: Settings that they need.
        dark_ma: By port, what its monitor reads in the dark.
        dead: Sources and monitors that are dead, in words.
        done: Told the settings measured and those planned so far.
    """

    logbook: Logbook
    model: MeshModel
    likelihood: Likelihood
    most_ma: Real
    goal: Goal
    rng: np.random.Generator
    times: HardwareTimes = field(default_factory=HardwareTimes)
    reserve_s: float = 0.0
    reserve_settings: int = 0
    dark_ma: Mapping[int, float] = field(default_factory=dict)
    dead: Sequence[str] = ()
    done: Callable[[int, int], None] = lambda done, total: None

    def run(
        self,
        fit: FitResult,
        observations: Observations,
        refit: Callable[[Observations, FitResult], tuple[MeshModel, FitResult]],
    ) -> tuple[FitResult, Observations, PlanningOutcome]:
        """Measure and fit again until the goal is reached or cannot be.

        Args:
            fit: The first fit.
            observations: What it has explained.
            refit: Fits observations, from where a fit stands; with the model, which may have grown.
        """
        first, why, aim_rad = len(observations), "", _AIM * self.goal.sigma_rad
        known = Knowledge.of(self.model.space, fit, self.goal.sigma_rad)
        work = self.model.work
        for batch in range(_MOST_BATCHES):
            if known.rms_rad(self.model.space, known.wanted) <= self.goal.sigma_rad or why:
                break
            most = self._affordable(observations)
            # The first batch is worth more than all later ones.
            if batch and most < _LEAST_BATCH:
                why = "the work that is allowed does not reach for another fit"
                break
            plan, promised_rad, why = self._next(fit, known, aim_rad, max(most, _LEAST_BATCH))
            if not len(plan):
                break
            work.spent += chosen_work(self.model.space.plain) * plan.reading_ma.size if batch else 0
            observations = observations + self._measured(plan)
            self.done(len(observations) - first, len(observations) - first)
            self.model, fit = refit(observations, fit)
            known = Knowledge.of(self.model.space, fit, self.goal.sigma_rad)
            # A design holds what is known of further physics; where the next fit does not, errors come out larger than
            # promised. Without more asked of the next batch, ever smaller ones would follow, each with a fit of all.
            reached_rad = known.rms_rad(self.model.space, known.wanted)
            aim_rad *= min(promised_rad / max(reached_rad, promised_rad), 1.0)
            if not fit.certified:
                why = "the fit no longer explains all readings"
        added = len(observations) - first
        told = shortfall(self.model.space, known, fit, self.goal.sigma_rad, why, self.dead)
        return fit, observations, PlanningOutcome(known.rms_rad(self.model.space), added, told)

    def _affordable(self, observations: Observations) -> int:
        """Return how many settings the work that is left reaches for: a fit with them, and stating errors."""
        readings = self.model.work.left / (MEASURED_ON * derivatives_work(self.model.space.size))
        return int(min(max(readings / len(observations.monitors) - len(observations), 0.0), BATCH))

    def _next(self, fit: FitResult, known: Knowledge, aim_rad: float, most: int) -> tuple[Observations, float, str]:
        """Return the next batch, the standard error it promises, and why it is the last one if it is."""
        # The first setting of a batch writes every channel and moves the light; a batch that cannot pay that is not
        # begun.
        begin_s = float(self.times.setting_s(np.array(len(self.most_ma)))) + self.times.input_change_s
        left_s = self.goal.hardware_s - self.logbook.effort.hardware_s - self.reserve_s - begin_s
        left = self.goal.settings - self.logbook.effort.settings - self.reserve_settings
        designer = designer_after(self.model, fit, self.likelihood, self.times, known.wanted)
        before = designer.sigma_rad()
        space = self.model.space
        walk = IncrementalSettings(self.most_ma, space.sources, space.monitors, settings_per_source=STRETCH)
        most = min(most, max(left, 0))
        design = designer.choose(walk, left_s, aim_rad, self.rng, most=most)
        promised = float(design.sigma_rad[-1]) if len(design.sigma_rad) else before
        if design.reached:
            return design.plan, promised, ""
        if len(design.plan) >= left:
            return design.plan, promised, f"{self.goal.settings} settings are used up"
        if len(design.plan) < most:
            return design.plan, promised, f"{self.goal.hardware_s:g} s of hardware time are used up"
        used = self.logbook.effort.settings + len(design.plan)
        # Errors fall with the root of the settings at best. Where even that would not reach the goal, a batch has to be
        # worth much.
        hopeless = used * (promised / self.goal.sigma_rad) ** 2 > self.goal.settings
        if promised > (_WORTH if hopeless else _HARDLY) * before:
            promise = f"{1e3 * before:.2g} to {1e3 * promised:.2g} mrad"
            return design.plan[:0], promised, f"{len(design.plan)} more settings would lower it from {promise} only"
        return design.plan, promised, ""

    def _measured(self, plan: Observations) -> Observations:
        """Return settings as measured, stretch by stretch of the light."""
        first = len(self.logbook)
        ends = [0, *(np.flatnonzero(np.diff(plan.source)) + 1).tolist(), len(plan)]
        for start, end in pairwise(ends):
            self.logbook.light_only_port(int(plan.source[start]))
            self.logbook.measure_many(plan.currents_ma[start:end])
        return seen_by(self.logbook.observations(first), plan.monitors, self.dark_ma)


def shortfall(
    space: ParameterSpace, known: Knowledge, fit: FitResult, goal_rad: float, why: str = "", dead: Sequence[str] = ()
) -> str:
    """Return in words why a goal is missed, or nothing if it is not.

    Args:
        space: Where parameters have their places.
        known: How well phases are known.
        fit: By which fit.
        goal_rad: Wanted standard error.
        why: Why measuring ended, if not for what cannot be seen.
        dead: Sources and monitors that are dead, in words.
    """
    reached = known.rms_rad(space)
    if reached <= goal_rad:
        return ""
    unseen = space.mask(PHASE_GROUPS) & fit.free & ~known.wanted
    reasons = [why] if why else []
    if unseen.any():
        reasons.append(_unseen_text(space, known, unseen, dead))
    if known.rms_rad(space, known.wanted) > goal_rad:
        reasons.append(f"known worst: {_named(space, np.where(known.wanted, known.sigma, 0.0))}")
    return f"wanted {1e3 * goal_rad:.3g} mrad, reached {1e3 * reached:.3g} mrad: {'; '.join(reasons)}"


def light_change_s(entries: Sequence[LogbookEntry]) -> float:
    """Return what moving the light has cost on this bench so far, beyond the settings themselves.

    A function of what a journal keeps, so that a run resumed finds the same.
    """
    taken = [entry for entry in entries if len(entry.currents_ma)]
    spent = [
        (late.at_s - early.at_s, late.source != early.source, len(late.currents_ma)) for early, late in pairwise(taken)
    ]
    # Medians: one slow answer of a bench is not what moving the light costs.
    still = [seconds / count for seconds, moved, count in spent if not moved]
    each_s = float(np.median(still)) if still else 0.0
    moves = [seconds - count * each_s for seconds, moved, count in spent if moved]
    return max(float(np.median(moves)), 0.0) if moves else 0.0


def designer_after(
    model: MeshModel,
    fit: FitResult,
    likelihood: Likelihood,
    times: HardwareTimes,
    wanted: NDArray[np.bool_] | None = None,
) -> Designer:
    """Return a designer that starts from what a fit knows; physics beyond the model of every chip is held as found."""
    known: Real = fit.information + fit.prior_information
    free, vector, parameters = fit.free, fit.vector, fit.parameters
    if model.space.physics.names:
        # Its parameters would make choosing several times as long, and phases are what settings are chosen for.
        plain = ~model.space.mask(model.space.physics.names)
        kept = np.flatnonzero(plain[free])
        inner, rest = known[np.ix_(kept, kept)], np.flatnonzero(~plain[free])
        across = known[np.ix_(kept, rest)]
        known = inner - across @ np.linalg.solve(known[np.ix_(rest, rest)], across.T)
        parameters = replace(fit.parameters, extra_physics=of_one_way(fit.parameters.extra_physics))
        model = model.with_physics(Physics(held=parameters.extra_physics))
        free, vector = free[: model.space.size], vector[: model.space.size]
        wanted = None if wanted is None else wanted[: model.space.size]
    precision = np.zeros((model.space.size, model.space.size))
    # What the fit knows is the prior of the design, exactly: settings are chosen for what is still missing.
    precision[np.ix_(free, free)] = known
    prior = Prior(vector, np.full(model.space.size, np.inf), precision)
    return Designer(model, parameters, likelihood.noise, prior, free, times, wanted, likelihood.drift)


def _sigma(space: ParameterSpace, fit: FitResult, information: Real) -> Real:
    """Return the standard errors by some information and the prior, shape ``(size,)``; a prior holds all of them."""
    whole = at_mean_frequency(space, fit.free, information + fit.prior_information)
    sigma = np.zeros(space.size)
    sigma[fit.free] = np.sqrt(np.maximum(np.diag(inverse_of(whole)), 0.0))
    return sigma


def _named(space: ParameterSpace, sigma: Real) -> str:
    """Return the worst known phases in words."""
    worst = [int(index) for index in np.argsort(-sigma)[:_MOST_NAMED] if sigma[index] > 0.0]
    return ", ".join(f"{_phase_name(space, index)} ({1e3 * sigma[index]:.2g} mrad)" for index in worst)


def _phase_name(space: ParameterSpace, index: int) -> str:
    """Return a phase in words: a PUC, or a loop by the joint that carries most of it."""
    loops = space.group("loops")
    if not loops.start <= index < loops.stop:
        return f"PUC {index - space.group('passive_phase_rad').start}"
    joint = int(np.abs(space.directions[:, index - loops.start]).argmax())
    one, other = (int(port) // 4 for port in space.mesh.joints[joint])
    return f"the loops through the joint of PUCs {one} and {other}"


def _unseen_text(space: ParameterSpace, known: Knowledge, unseen: NDArray[np.bool_], dead: Sequence[str]) -> str:
    """Return in words which phases no setting tells."""
    pucs = int((unseen & space.mask(("passive_phase_rad",))).sum())
    loops = int((unseen & space.mask(("loops",))).sum())
    named = _named(space, np.where(unseen, known.limit, 0.0))
    behind = f", with {'; '.join(dead)}" if dead else ""
    return f"{pucs} PUCs and {loops} loops do not show in any setting{behind}: {named}"
