"""Planning after the first fit: measure the settings with the most information until the goal is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.measure.design import Designer, IncrementalSettings, at_mean_frequency
from calibration.measure.logbook import HardwareTimes, Logbook, LogbookEntry
from calibration.model.arrays import Real
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import Observations, select_monitors
from calibration.model.physics import Physics
from calibration.model.priors import PHASE_GROUPS, Prior
from calibration.model.response import without_reflections
from calibration.model.space import ParameterSpace
from calibration.model.symmetric import inverse_of
from calibration.model.work import SCORE_EFFECTS_WORK, chosen_work, derivatives_work

BATCH = 700
"""Maximum number of settings between two fits."""
STRETCH = 20
"""Number of settings before the source may change."""
# Smallest batch that justifies a fit of all readings.
_MIN_BATCH = 200
_MAX_BATCHES = 12
# Settings are chosen for a slightly better value than required, because the next fit ends at another point.
_AIM = 0.92
# A batch must be expected to lower the standard error by this factor.
_MAX_ERROR_RATIO = 0.98
# The same if all remaining settings would not reach the goal, even if the error fell with their square root.
_MIN_BATCH_GAIN = 0.8
# Factor on the present information that represents an infinite number of settings.
_UNLIMITED_S = 1e6
_MAX_NAMED = 5
# Laser frequencies are named as the cause if with known ones less than this share of the error would remain.
_KNOWN_FREQUENCY_SHARE = 0.5


@dataclass(frozen=True)
class Goal:
    """Required accuracy of a calibration, and limits of the effort.

    Attributes:
        sigma_rad: Required rms standard error of passive and of loop phases. The default of 1 mrad is below a step of a
            14-bit drive (1.5 mrad) and below temperature drift (6 mrad at 10 mK, assumed).
        hardware_s: Maximum hardware time.
        settings: Maximum number of settings.
    """

    sigma_rad: float = 1e-3
    hardware_s: float = 90.0
    settings: int = 5000


@dataclass(frozen=True)
class Knowledge:
    """Accuracy of the phases after a fit, and the limit for many more settings.

    Attributes:
        sigma: Shape ``(size,)``; standard errors, with phases at the mean source frequency; 0 for fixed parameters.
        limit: Shape ``(size,)``; standard errors after an infinite number of settings.
        wanted: Shape ``(size,)``; phases that can reach the goal.
    """

    sigma: Real
    limit: Real
    wanted: NDArray[np.bool_]

    @classmethod
    def of(cls, space: ParameterSpace, fit: FitResult, goal_rad: float) -> Knowledge:
        """Return the accuracy of the phases after a fit."""
        sigma = _sigma(space, fit, fit.information)
        # Unobservable phases do not improve with more settings; a goal that includes them could never be reached.
        limit = _sigma(space, fit, _UNLIMITED_S * fit.information)
        phases = space.mask(PHASE_GROUPS) & fit.free
        return cls(sigma, limit, phases & (limit <= goal_rad))

    def rms_rad(self, space: ParameterSpace, mask: NDArray[np.bool_] | None = None) -> float:
        """Return the rms standard error of passive or loop phases, whichever is larger; 0 without phases."""
        spreads = []
        for name in PHASE_GROUPS:
            chosen = space.mask((name,)) & (self.sigma > 0.0) & (True if mask is None else mask)
            spreads.append(float(np.sqrt(np.mean(self.sigma[chosen] ** 2))) if chosen.any() else 0.0)
        return max(spreads)


@dataclass(frozen=True)
class PlanningOutcome:
    """Result of the planning.

    Attributes:
        sigma_rad: Rms standard error of passive or loop phases, whichever is larger.
        settings: Number of measured settings.
        shortfall: Reason why the goal was missed; empty if it was reached.
    """

    sigma_rad: float
    settings: int
    shortfall: str


@dataclass
class AdaptiveMeasurement:
    """Measures further settings in batches until a goal is reached or is out of reach.

    Attributes:
        logbook: Access to the mesh; its effort so far counts.
        model: Model of the last fit.
        likelihood: The readings so far, with noise.
        max_ma: Shape ``(heaters,)``; largest current of every heater.
        reserve_s: Hardware time reserved for later stages, with ``reserve_settings`` settings.
        dark_ma: Monitor readings without light, by port.
        dead: Descriptions of dead sources and monitors.
        on_step: Called with the numbers of measured and planned settings.
    """

    logbook: Logbook
    model: MeshModel
    likelihood: Likelihood
    max_ma: Real
    goal: Goal
    rng: np.random.Generator
    times: HardwareTimes = field(default_factory=HardwareTimes)
    reserve_s: float = 0.0
    reserve_settings: int = 0
    dark_ma: Mapping[int, float] = field(default_factory=dict)
    dead: Sequence[str] = ()
    on_step: Callable[[int, int], None] = lambda done, total: None

    def run(
        self,
        fit: FitResult,
        observations: Observations,
        refit: Callable[[Observations, FitResult], tuple[MeshModel, FitResult]],
    ) -> tuple[FitResult, Observations, PlanningOutcome]:
        """Measure and fit in turn until the goal is reached or is out of reach.

        ``refit`` fits observations from an earlier fit; it returns the new fit and its model.
        """
        first, reason, aim_rad = len(observations), "", _AIM * self.goal.sigma_rad
        knowledge = Knowledge.of(self.model.space, fit, self.goal.sigma_rad)
        work = self.model.work
        for batch in range(_MAX_BATCHES):
            if knowledge.rms_rad(self.model.space, knowledge.wanted) <= self.goal.sigma_rad or reason:
                break
            max_settings = self._affordable_settings(observations)
            # The first batch is more valuable than all later ones.
            if batch and max_settings < _MIN_BATCH:
                reason = "the work limit does not allow another fit"
                break
            plan, promised_rad, reason = self._next_batch(fit, knowledge, aim_rad, max(max_settings, _MIN_BATCH))
            if not len(plan):
                break
            work.spent += chosen_work(self.model.space.plain) * plan.reading_ma.size if batch else 0
            observations = observations + self._measure(plan)
            self.on_step(len(observations) - first, len(observations) - first)
            self.model, fit = refit(observations, fit)
            self.likelihood = replace(self.likelihood, field_error=self.model.space.physics.field_error)
            knowledge = Knowledge.of(self.model.space, fit, self.goal.sigma_rad)
            # The design keeps extra physics fixed. If the next fit does not, its errors are larger than predicted.
            # Without a stricter aim, ever smaller batches would follow, each with a fit of all readings.
            reached_rad = knowledge.rms_rad(self.model.space, knowledge.wanted)
            aim_rad *= min(promised_rad / max(reached_rad, promised_rad), 1.0)
            if not fit.certified:
                reason = "the fit does not explain all readings any longer"
        added = len(observations) - first
        missed_goal = shortfall(self.model.space, knowledge, fit, self.goal.sigma_rad, reason, self.dead)
        return fit, observations, PlanningOutcome(knowledge.rms_rad(self.model.space), added, missed_goal)

    def _affordable_settings(self, observations: Observations) -> int:
        readings = self.model.work.remaining / (SCORE_EFFECTS_WORK * derivatives_work(self.model.space.size))
        return int(min(max(readings / len(observations.monitors) - len(observations), 0.0), BATCH))

    def _next_batch(
        self, fit: FitResult, knowledge: Knowledge, aim_rad: float, max_settings: int
    ) -> tuple[Observations, float, str]:
        # The first setting of a batch writes all channels and changes the source; a batch must at least allow that.
        begin_s = float(self.times.setting_s(np.array(len(self.max_ma)))) + self.times.input_change_s
        left_s = self.goal.hardware_s - self.logbook.effort.hardware_s - self.reserve_s - begin_s
        remaining_settings = self.goal.settings - self.logbook.effort.settings - self.reserve_settings
        designer = designer_after(self.model, fit, self.likelihood, self.times, knowledge.wanted)
        before = designer.sigma_rad()
        space = self.model.space
        walk = IncrementalSettings(self.max_ma, space.sources, space.monitors, settings_per_source=STRETCH)
        max_settings = min(max_settings, max(remaining_settings, 0))
        design = designer.choose(walk, left_s, aim_rad, self.rng, max_settings=max_settings)
        promised = float(design.sigma_rad[-1]) if len(design.sigma_rad) else before
        if design.reached:
            return design.plan, promised, ""
        if len(design.plan) >= remaining_settings:
            return design.plan, promised, f"{self.goal.settings} settings are used up"
        if len(design.plan) < max_settings:
            return design.plan, promised, f"{self.goal.hardware_s:g} s of hardware time are used up"
        used = self.logbook.effort.settings + len(design.plan)
        # At best, errors fall with the square root of the number of settings. If even that misses the goal, a batch
        # must help a lot.
        is_out_of_reach = used * (promised / self.goal.sigma_rad) ** 2 > self.goal.settings
        if promised > (_MIN_BATCH_GAIN if is_out_of_reach else _MAX_ERROR_RATIO) * before:
            promise = f"{1e3 * before:.2g} to {1e3 * promised:.2g} mrad"
            return design.plan[:0], promised, f"{len(design.plan)} more settings would lower it from {promise} only"
        return design.plan, promised, ""

    def _measure(self, plan: Observations) -> Observations:
        first = len(self.logbook)
        ends = [0, *(np.flatnonzero(np.diff(plan.source)) + 1).tolist(), len(plan)]
        for start, end in pairwise(ends):
            self.logbook.light_only_port(int(plan.source[start]))
            self.logbook.measure_batch(plan.currents_ma[start:end])
        return select_monitors(self.logbook.observations(first), plan.monitors, self.dark_ma)


def shortfall(
    space: ParameterSpace,
    knowledge: Knowledge,
    fit: FitResult,
    goal_rad: float,
    reason: str = "",
    dead: Sequence[str] = (),
) -> str:
    """Return a sentence that says why the goal is missed; empty if it is reached.

    ``reason`` is the reason why the measurement ended, or empty. ``dead`` describes dead sources and monitors.
    """
    reached = knowledge.rms_rad(space)
    if reached <= goal_rad:
        return ""
    unseen = space.mask(PHASE_GROUPS) & fit.free & ~knowledge.wanted
    reasons = [reason] if reason else []
    if unseen.any():
        reasons.append(_unseen_text(space, knowledge, unseen, dead))
    if knowledge.rms_rad(space, knowledge.wanted) > goal_rad:
        reasons.append(f"largest errors: {_named(space, np.where(knowledge.wanted, knowledge.sigma, 0.0))}")
    reasons += _frequency_reasons(space, knowledge, fit)
    return f"the goal is {1e3 * goal_rad:.3g} mrad, but only {1e3 * reached:.3g} mrad was reached: {'; '.join(reasons)}"


def _frequency_reasons(space: ParameterSpace, knowledge: Knowledge, fit: FitResult) -> list[str]:
    """Return a sentence if unknown laser frequencies cause most of the error."""
    detunings = space.mask(("source_detuning_hz",))
    if not (detunings & fit.free).any():
        return []
    known = ~detunings[fit.free]
    total = (fit.information + fit.prior_information)[np.ix_(known, known)]
    sigma = np.zeros(space.size)
    sigma[fit.free & ~detunings] = np.sqrt(np.maximum(np.diag(inverse_of(total)), 0.0))
    reached = replace(knowledge, sigma=sigma).rms_rad(space)
    if reached > _KNOWN_FREQUENCY_SHARE * knowledge.rms_rad(space):
        return []
    largest_ghz = 1e-9 * knowledge.sigma[detunings].max()
    return [
        f"the frequencies of the lasers are only known to ±{largest_ghz:.2g} GHz; with known ones the error would be "
        f"{1e3 * reached:.2g} mrad, so use one laser for all inputs"
    ]


def light_change_s(entries: Sequence[LogbookEntry]) -> float:
    """Return the average time in s of a source change."""
    measured = [entry for entry in entries if len(entry.currents_ma)]
    durations = [
        (late.at_s - early.at_s, late.source != early.source, len(late.currents_ma))
        for early, late in pairwise(measured)
    ]
    # Medians ignore single slow answers of the bench.
    same_source_s = [seconds / count for seconds, moved, count in durations if not moved]
    each_s = float(np.median(same_source_s)) if same_source_s else 0.0
    moves = [seconds - count * each_s for seconds, moved, count in durations if moved]
    return max(float(np.median(moves)), 0.0) if moves else 0.0


def designer_after(
    model: MeshModel,
    fit: FitResult,
    likelihood: Likelihood,
    times: HardwareTimes,
    wanted: NDArray[np.bool_] | None = None,
) -> Designer:
    """Return a designer that starts from the errors of a fit."""
    total: Real = fit.information + fit.prior_information
    free, vector, parameters = fit.free, fit.vector, fit.parameters
    if model.space.physics.names:
        # Extra physics would slow the choice down several times, and settings are chosen for phases only.
        plain = ~model.space.mask(model.space.physics.names)
        plain_rows = np.flatnonzero(plain[free])
        inner, eliminated = total[np.ix_(plain_rows, plain_rows)], np.flatnonzero(~plain[free])
        across = total[np.ix_(plain_rows, eliminated)]
        total = inner - across @ np.linalg.solve(total[np.ix_(eliminated, eliminated)], across.T)
        parameters = replace(fit.parameters, extra_physics=without_reflections(fit.parameters.extra_physics))
        model = model.with_physics(Physics(fixed_values=parameters.extra_physics))
        free, vector = free[: model.space.size], vector[: model.space.size]
        wanted = None if wanted is None else wanted[: model.space.size]
    precision = np.zeros((model.space.size, model.space.size))
    # The exact posterior of the fit is the prior of the design, so settings are chosen for the missing information.
    precision[np.ix_(free, free)] = total
    prior = Prior(vector, np.full(model.space.size, np.inf), precision)
    # A field error of η changes a typical reading by √2·η.
    noise = replace(
        likelihood.noise, relative=float(np.hypot(likelihood.noise.relative, np.sqrt(2.0) * likelihood.field_error))
    )
    return Designer(model, parameters, noise, prior, free, times, wanted, likelihood.drift)


def _sigma(space: ParameterSpace, fit: FitResult, information: Real) -> Real:
    information_at_mean = at_mean_frequency(space, fit.free, information + fit.prior_information)
    sigma = np.zeros(space.size)
    sigma[fit.free] = np.sqrt(np.maximum(np.diag(inverse_of(information_at_mean)), 0.0))
    return sigma


def _named(space: ParameterSpace, sigma: Real) -> str:
    worst = [int(index) for index in np.argsort(-sigma)[:_MAX_NAMED] if sigma[index] > 0.0]
    return ", ".join(f"{_phase_name(space, index)} ({1e3 * sigma[index]:.2g} mrad)" for index in worst)


def _phase_name(space: ParameterSpace, index: int) -> str:
    loops = space.group("loops")
    if not loops.start <= index < loops.stop:
        return f"PUC {index - space.group('passive_phase_rad').start}"
    joint = int(np.abs(space.directions[:, index - loops.start]).argmax())
    first, second = (int(port) // 4 for port in space.mesh.joints[joint])
    return f"the loops through the joint of PUCs {first} and {second}"


def _unseen_text(space: ParameterSpace, knowledge: Knowledge, unseen: NDArray[np.bool_], dead: Sequence[str]) -> str:
    groups = {"PUC": "passive_phase_rad", "loop": "loops"}
    counts = {word: int((unseen & space.mask((group,))).sum()) for word, group in groups.items()}
    counted = " and ".join(f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts.items() if count)
    named = _named(space, np.where(unseen, knowledge.limit, 0.0))
    behind = f", with {'; '.join(dead)}" if dead else ""
    return f"no setting determines {counted}{behind}: {named}"
