"""A fit, and what else has to be assumed for it to explain all readings.

A fit that explains everything is left as it is. Otherwise known causes are tried on its readings: something drifted, a
heater died on the way, a sweep found the law of another fringe, two channels are exchanged. The cause that explains
most is taken out of settings and readings, and all is fitted again, until everything is explained or no cause is left.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibration.diagnose.breakdowns import (
    Breakdown,
    coarse_cost,
    cost_reduction,
    exchange,
    find_better_law,
    find_dead_heater,
    find_dead_monitors,
    without_dead_heater,
    without_dead_monitors,
)
from calibration.diagnose.drift_trajectory import DriftTrajectories, fit_drift_trajectories, measure_drift
from calibration.diagnose.element_faults import exchanged_channel_defects, heater_breakdown_defect
from calibration.fit.frequencies import equivalent_branches
from calibration.fit.global_fit import CONVERGED_SIGMA, FitResult, GlobalFit, Round
from calibration.fit.growth import Scores, pair_directions, score_rows
from calibration.fit.row_scores import RowScore, fitted_prior_width
from calibration.fit.stated_errors import MAX_ERROR_FACTOR, needed_rows, stated_errors
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import mean_squared_residual
from calibration.model.observations import Observations
from calibration.model.parameters import MeshParameters
from calibration.model.physics import PHYSICS, ROWS, Physics
from calibration.model.priors import Prior
from calibration.model.space import LAW_TERMS
from calibration.model.work import TAKEN_IN, derivatives_work
from lumion_hw.mesh.record.calibration_record import CROSSTALK_PAIRS, Defect

Real = NDArray[np.float64]

_log = logging.getLogger(__name__)

_MOST_ROUNDS = 6
_MOST_FOLLOWED = 2
_HEATER_GROUPS = (*LAW_TERMS, "heat_factor")
# Held where a PUC is stuck: of one that never moves light shows its split and the loops about it. What couplers and
# phase contribute to these cannot be told, and a fit that tried would follow a bent valley without end.
_COUPLER_GROUPS = ("coupler_common_rad", "coupler_difference_rad")
# PUCs between whose heaters an exchange is looked for.
_SUSPECTS = 5
_EXCHANGED_SHARE = 0.6
_SWEPT_ALIVE_SIGMA = 8.0
# Steps towards the least of another branch: it is a few standard errors away, and for a comparison near is enough.
_BRANCH_ROUNDS = 3
# Step, in standard errors, at which a fit ends that is not the last one: the next settings, or the next cause, move it
# farther than all that is left, and each round near the end takes as long as one that leads there.
_ON_THE_WAY_SIGMA = 0.3
# As many times the settings, with which directions of pairs are chosen again.
_MANY_MORE = 1.3
# Model discrepancy beyond which a fit is not near enough for its slopes to tell what physics is missing.
_NEARLY = 0.1


@dataclass(frozen=True, eq=False)
class DiagnosedFit:
    """A fit, and what had to be assumed for it.

    Attributes:
        fit: The fit.
        likelihood: The readings it explains, what happened to them taken out.
        dead: Heaters without effect at the end of the run.
        defects: What happened, in words and as data.
        exchanged: Pairs of heaters whose channels are exchanged.
        trajectories: What drifted; ``None`` if it was not looked at.
        deaths: Heaters that died.
        followed: How often trajectories were taken out since the last settings were added.
        rough: Whether it was fitted in full steps from a start that was not near enough, and did not converge.
        physics: What had to be taken in beyond the model of every chip.
        gains: By name of a row of it, what it gained when it was taken in, in units of the logarithm of the evidence.
        refused: Rows that were tried and did not explain what they promised.
        widened: By group, the factor by which errors were widened when they were stated.
        doubts: Why the errors stated cannot be believed, or the fit at all; in words.
    """

    fit: FitResult
    likelihood: Likelihood
    dead: frozenset[int]
    defects: tuple[Defect, ...] = ()
    exchanged: tuple[tuple[int, int], ...] = ()
    trajectories: DriftTrajectories | None = None
    deaths: tuple[Breakdown, ...] = ()
    followed: int = 0
    rough: bool = False
    physics: Physics = field(default_factory=Physics)
    gains: Mapping[str, float] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    widened: Mapping[str, float] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()

    @property
    def certified(self) -> bool:
        """Whether all is explained, with the channel map as given, and errors are what they are stated to be."""
        return self.fit.certified and not self.exchanged and not self.doubts

    @property
    def parameters(self) -> MeshParameters:
        """The parameters at the end of the run: dead heaters have no law."""
        laws = self.fit.parameters.heater_law.copy()
        laws[sorted(self.dead)] = 0.0
        return replace(self.fit.parameters, heater_law=laws)


@dataclass(frozen=True, eq=False)
class TimedReadings:
    """All settings of a run in the order of time.

    Attributes:
        observations: Settings and readings.
        taken_s: Shape ``(N,)``; when.
    """

    observations: Observations
    taken_s: Real


@dataclass(frozen=True, eq=False)
class FaultDiagnosis:
    """Fits readings, and looks for causes where the model does not explain them.

    Attributes:
        model: The model.
        prior: What is known without readings.
        free: Shape ``(size,)``; parameters that are free.
        reach_ma: Shape ``(2E,)``; currents up to which heaters are driven in the settings to fit.
        channels: Drive channel of every heater, to name it by.
        swept_sigma: By heater, how clearly its sweep showed it.
        rho2_range: Least and largest ρ2 to expect, rad/mA².
        likelihood: The readings to explain.
        whole: All settings of the run, those of the likelihood the last ones with heat.
        done: Told of every round of a fit.
        trying: Told in words what is tried as an explanation.
        scored: What the last pass over the data said, and of which fit: several steps in a row ask for the same.
    """

    model: MeshModel
    prior: Prior
    free: NDArray[np.bool_]
    reach_ma: Real
    channels: Sequence[int]
    swept_sigma: Sequence[float]
    rho2_range: tuple[float, float]
    likelihood: Likelihood
    whole: TimedReadings
    done: Callable[[Round], None] = lambda _: None
    trying: Callable[[str], None] = lambda _: None
    scored: dict[tuple[int, frozenset[str]], tuple[FitResult, Scores]] = field(default_factory=dict)

    def with_physics(self, physics: Physics) -> FaultDiagnosis:
        """Return the diagnosis of the same readings with other physics beyond the model of every chip."""
        if physics is self.model.space.physics:
            return self
        model = self.model.with_physics(physics)
        free = np.ones(model.space.size, dtype=np.bool_)
        kept = min(model.space.size, self.model.space.size, self.model.space.plain)
        free[:kept] = self.free[:kept]
        return replace(self, model=model, prior=self.prior.with_physics(model.space), free=free)

    def begin(self, start: MeshParameters) -> DiagnosedFit:
        """Fit from a start without looking for causes. Heaters without a law there count as dead."""
        # Heaters without a law are dead from the start and take no part in the fit.
        dead = frozenset(np.flatnonzero(start.heater_law[:, 0] == 0.0).tolist())
        now = self._branched(DiagnosedFit(self._fit(start, self._alive, dead), self._alive, dead))
        # From near, physics that is missing shows in the slopes; from a false valley it would only seem to.
        near = 0.0 < now.fit.discrepancy < _NEARLY and now.fit.converged
        if not near or (grown := self._grown(now)) is now:
            return now
        # Half a turn per PUC shows in little: physics that was missing may have decided for the wrong side.
        return self.with_physics(grown.physics)._branched(grown)

    def settle(self, now: DiagnosedFit) -> DiagnosedFit:
        """Look for causes until all readings are explained or no known cause is left."""
        me = self.with_physics(now.physics)
        return me._named(me._exchanged(me._settled(now)))

    def continue_from(self, before: DiagnosedFit) -> DiagnosedFit:
        """Fit all readings from a fit of fewer of them, then look for causes as :meth:`settle` does."""
        me = self.with_physics(before.physics)
        now = me._expected(before)
        many = len(self.likelihood.observations) > _MANY_MORE * len(before.likelihood.observations)
        if before.physics.pairs is not None and many and me._may_take_in():
            # On readings as they are taken now: what has drifted is out.
            likelihood = replace(me._alive, observations=me._taken_out(now))
            pairs = pair_directions(me.model, now.fit, likelihood, me.prior, before.physics.pairs)
            now = replace(now, physics=now.physics.having(CROSSTALK_PAIRS, now.physics.widths[CROSSTALK_PAIRS], pairs))
            return self.with_physics(now.physics).settle(self.with_physics(now.physics)._again(now))
        return me.settle(me._again(now, before.fit))

    def stated(self, now: DiagnosedFit) -> DiagnosedFit:
        """Return the fit with all physics that light asks for, and its errors stated for where it ended."""
        if not now.fit.certified:
            return self._unexplained(now)
        now = self.with_physics(now.physics)._ended(now)
        before, scores, is_overdrawn = now, self._harmful(now), False
        while scores.chosen:
            rows = scores.chosen
            if not self.with_physics(now.physics)._may_take_in():
                # A certificate that hangs on one more fit is worth it, once, beyond the work that is allowed.
                rows = () if is_overdrawn else self._uncertifiable(now, rows)
                is_overdrawn = True
            if not rows:
                break
            now = self.with_physics(now.physics)._with_rows(now, rows)
            scores = self._harmful(now)
        if now.physics is not before.physics and now.trajectories is not None and not self.model.work.is_used_up:
            # Physics that was missing may have been taken for a drift: what readings say beside it is asked anew, once.
            now = self.with_physics(now.physics)._settled(replace(now, followed=0))
            scores = self._harmful(now)
        me = self.with_physics(now.physics)
        if now.physics is not before.physics and (other := me._branched(now)) is not now:
            now, scores = other, self._harmful(other)
        if now is not before:
            now = me._ended(now)
        fit = me._fitting(now.likelihood, now.dead).stated(now.fit)
        found = stated_errors(me.model.space, fit, scores)
        return replace(now, fit=found.fit, widened=found.widened, doubts=found.doubts)

    def _may_take_in(self) -> bool:
        """Return whether work is left to take something into a fit that explains its readings, and to state errors."""
        derivatives = derivatives_work(self.model.space.size) * self.likelihood.target_ma.size
        return self.model.work.reaches(TAKEN_IN * derivatives)

    def _ended(self, now: DiagnosedFit) -> DiagnosedFit:
        """Return a fit with what is left of the way: so far it ended as near as the next step needed it."""
        given, fit = (now.fit.parameters, now.likelihood, now.dead), now.fit
        if fit.converged and fit.rounds[-1].step_sigma < CONVERGED_SIGMA:
            return now
        return replace(now, fit=self._fit(*given, near=True, known=now.fit, convergence_sigma=CONVERGED_SIGMA))

    def _harmful(self, now: DiagnosedFit) -> Scores:
        """Return the scores of a fit that explains its readings; chosen are only rows that it cannot do without."""
        me = self.with_physics(now.physics)
        scores = me._scores(now)
        return replace(scores, chosen=needed_rows(me.model.space, now.fit, scores.chosen))

    def _uncertifiable(self, now: DiagnosedFit, rows: Sequence[RowScore]) -> tuple[RowScore, ...]:
        """Return the rows without which the errors of a fit cannot be certified."""
        return needed_rows(self.with_physics(now.physics).model.space, now.fit, rows, MAX_ERROR_FACTOR)

    def _unexplained(self, now: DiagnosedFit) -> DiagnosedFit:
        """Return a fit that does not explain its readings with what they say of the reasons."""
        me = self.with_physics(now.physics)
        scores = me._scores(now)
        used_up = ("all the work that is allowed was spent on explanations",) if self.model.work.is_used_up else ()
        found = stated_errors(me.model.space, now.fit, scores)
        return replace(now, fit=found.fit, widened=found.widened, doubts=(*used_up, *found.doubts))

    # -- physics beyond the model of every chip -----------------------------------------------------------------------

    def _scores(self, now: DiagnosedFit) -> Scores:
        key = id(now.fit), now.refused
        if key not in self.scored:
            self.trying("physics beyond the model")
            names = [row.name for row in PHYSICS if row.name not in now.physics.widths]
            self.scored.clear()
            self.scored[key] = now.fit, score_rows(self.model, now.fit, now.likelihood, self.prior, names, now.refused)
        return self.scored[key][1]

    def _rows(self, now: DiagnosedFit) -> tuple[RowScore, ...]:
        """Return the rows to take in next, if light asks for any and there is work left."""
        if self.model.work.is_used_up or now.exchanged:
            return ()
        return self._scores(now).chosen

    def _grown(self, now: DiagnosedFit) -> DiagnosedFit:
        """Return a fit that does not explain its readings with the rows that light asks for."""
        for _ in PHYSICS:
            rows = self.with_physics(now.physics)._rows(now) if now.fit.discrepancy > 0.0 else ()
            if not rows:
                break
            now = self.with_physics(now.physics)._with_rows(now, rows)
        return now

    def _with_rows(self, now: DiagnosedFit, rows: Sequence[RowScore]) -> DiagnosedFit:
        """Return the fit with rows taken in; without them, and the rows refused, if that explains no more."""
        self.trying(" and ".join(ROWS[row.name].words for row in rows))
        _log.info("%s; discrepancy %.3g before", "; ".join(map(str, rows)), now.fit.discrepancy)
        physics = self._widths(now)
        for row in rows:
            physics = physics.having(row.name, min(row.width, ROWS[row.name].largest), row.pairs)
        me, likelihood = self.with_physics(physics), now.likelihood
        # With the same weights before and after, or what rows explain could not be told.
        if physics.pairs is not now.physics.pairs:
            likelihood = me._weighed(likelihood, now.fit.parameters)
        fit = me._fit(now.fit.parameters, likelihood, now.dead, near=True)
        better = now.fit.chi2_per_reading * now.fit.readings - fit.chi2_per_reading * fit.readings
        no_less = fit.discrepancy == now.fit.discrepancy and better < rows[0].gain
        if fit.discrepancy > now.fit.discrepancy or no_less:
            if len(rows) > 1:  # too much at once: the first alone
                return self._with_rows(now, rows[:1])
            return replace(now, refused=now.refused | {row.name for row in rows})
        gains = {**now.gains, **{row.name: row.gain for row in rows}}
        return replace(now, physics=physics, fit=fit, likelihood=likelihood, gains=gains, rough=False)

    def _weighed(self, likelihood: Likelihood, parameters: MeshParameters) -> Likelihood:
        """Return a likelihood in which readings count less that follow pairs of which no direction is fitted."""
        return replace(likelihood, unmodelled_ma2=self.model.unmodelled_ma2(parameters, likelihood.observations))

    def _widths(self, now: DiagnosedFit) -> Physics:
        """Return the physics of a fit with its widths as the fit itself says they are."""
        physics = now.physics
        for name, width in now.physics.widths.items() if now.fit.certified else ():
            physics = physics.having(name, fitted_prior_width(self.model.space, now.fit, name, width))
        return physics

    def _named(self, now: DiagnosedFit) -> DiagnosedFit:
        """Return the diagnosed fit with what happened in words."""
        if now.exchanged:
            return replace(now, defects=exchanged_channel_defects(now.exchanged, self.channels))
        settings = len(now.likelihood.observations)
        named = [heater_breakdown_defect(death.number, self.channels, death.first, settings) for death in now.deaths]
        return replace(now, defects=tuple(named))

    @cached_property
    def _alive(self) -> Likelihood:
        """The readings without those of dead monitors."""
        observations = self.likelihood.observations
        alive = without_dead_monitors(observations, find_dead_monitors(observations, self.likelihood.noise))
        return replace(self.likelihood, observations=alive)

    def _settled(self, now: DiagnosedFit) -> DiagnosedFit:
        """Return the fit after the last cause that explains more, at most six of them."""
        for _ in range(_MOST_ROUNDS):
            if now.physics is not self.model.space.physics:
                return self.with_physics(now.physics)._settled(now)
            other = None if self.model.work.is_used_up else self._explained(now)
            if other is None:
                break
            if other.physics is not now.physics or other.refused != now.refused:
                now = other  # fitted already
                continue
            again = self._again(other, now.fit if other.deaths == now.deaths else None)
            law = other is not now and other.trajectories is now.trajectories and other.deaths == now.deaths
            # Another law that explains no more is a wrong trail; going on from it would try all heaters in turn.
            if law and again.fit.discrepancy >= now.fit.discrepancy:  # not the law: the fit is lost elsewhere
                break
            now = again
        return now

    def _branched(self, now: DiagnosedFit) -> DiagnosedFit:
        """Return the fit with a source half a turn per PUC away, if that explains more than it is unlikely."""
        group = self.model.space.group("source_detuning_hz")
        if not self.free[group].all():
            return now
        readings = int(now.likelihood.used.sum())
        best, least = now, now.fit.chi2_per_reading * readings
        for point, cost in equivalent_branches(now.fit.parameters, float(self.prior.sigma[group].mean())):
            fitting = self._fitting(now.likelihood, now.dead)
            fit = fitting.run(point, _BRANCH_ROUNDS, near=True, known=now.fit, kept=True)
            # The readings decide, against what the frequencies cost: on the wrong side the slope of the arms is bent,
            # and every passive phase with it by most of a milliradian.
            if fit.chi2_per_reading * readings + cost < least:
                best, least = replace(now, fit=fit), fit.chi2_per_reading * readings + cost
        if best is now:
            return now
        # There the frequencies show in another way: that it looks almost the same is good for a comparison only.
        return replace(now, fit=self._fit(best.fit.parameters, now.likelihood, now.dead, near=True))

    def _expected(self, before: DiagnosedFit) -> DiagnosedFit:
        """Return a fit of fewer settings with the trajectories that it sees in all of them, if anything had drifted.

        A fit knows phases to a few milliradians: what goes on drifting is seen before it leads the next fit astray.
        """
        now = replace(before, followed=0)
        if now.trajectories is None:
            return now
        trajectories = self._trajectories(now)
        return (
            replace(self._following(now, trajectories), followed=0) if trajectories.differs(now.trajectories) else now
        )

    def _explained(self, now: DiagnosedFit) -> DiagnosedFit | None:
        """Return the fit with one more cause taken in, not fitted again yet; ``None`` if none explains more."""
        # Followed twice at most since the last settings were taken: the same readings show no more. Nor do they where
        # the fit has hardly moved since.
        still = now.followed > 0 and now.fit.path_length_sigma < _ON_THE_WAY_SIGMA
        trajectories = self._trajectories(now) if now.followed < _MOST_FOLLOWED and not still else None
        if now.fit.discrepancy > 0.0 and not now.rough:
            # Whatever explains more goes first, and all is fitted again: a death looks like a drift for the settings
            # after it, and the other way round.
            self.trying("an element that died")
            death = find_dead_heater(self.model, now.fit.parameters, now.likelihood, now.dead)
            rows = self._rows(now) if now.fit.discrepancy < _NEARLY else ()
            others = [0.0 if death is None else death.gain]
            others.append(0.0 if trajectories is None else self._gain(now, trajectories))
            if rows and sum(row.gain for row in rows) > max(others):
                return self._with_rows(now, rows)
            if death is not None and (trajectories is None or death.gain > self._gain(now, trajectories)):
                _log.info("%s; discrepancy %.3g before", death, now.fit.discrepancy)
                return replace(now, dead=now.dead | {death.number}, deaths=(*now.deaths, death))
        if trajectories is not None and (
            trajectories.moved if now.trajectories is None else trajectories.differs(now.trajectories)
        ):
            _log.info("the run drifted; discrepancy %.3g before", now.fit.discrepancy)
            return self._following(now, trajectories)
        if now.rough:  # what seemed near may not have been: then the long way round
            return now
        if now.fit.discrepancy > 0.0:
            law = find_better_law(self.model, now.fit.parameters, now.likelihood, self.rho2_range, now.dead)
            return None if law is None else replace(now, fit=replace(now.fit, parameters=law))
        return None

    def _trajectories(self, now: DiagnosedFit) -> DriftTrajectories:
        """Return what drifted, by the readings as they were taken."""
        whole, noise = self.whole, self._alive.noise
        # Drift is asked of the readings as they were taken, deaths and exchanges out, earlier trajectories left in:
        # else what is followed would vanish from what is seen.
        joined = _put(whole.observations, self._taken_out(replace(now, trajectories=None)))
        return fit_drift_trajectories(
            measure_drift(self.model, now.fit.parameters, joined, whole.taken_s, noise, self.reach_ma)
        )

    def _gain(self, now: DiagnosedFit, trajectories: DriftTrajectories) -> float:
        """Return how much better the readings fit once these trajectories are taken out."""
        other = self._taken_out(replace(now, trajectories=trajectories))
        return cost_reduction(self.model, now.fit.parameters, now.likelihood, other)

    def _taken_out(self, now: DiagnosedFit) -> Observations:
        """Return the settings and readings with all taken out that is known to have happened."""
        observations = self._alive.observations
        for death in now.deaths:
            observations = without_dead_heater(observations, death)
        for one, other in now.exchanged:
            observations = _exchanged(observations, one, other)
        if now.trajectories is not None:
            taken_s = self.whole.taken_s[_places(self.whole.observations, observations)]
            observations = now.trajectories.taken_out(observations, taken_s, now.fit.parameters.delay_s)
        return observations

    def _following(self, now: DiagnosedFit, trajectories: DriftTrajectories) -> DiagnosedFit:
        """Return a diagnosed fit with other trajectories, and its parameters moved to the end of these.

        A fit is about where its trajectories end. Another end is another phase that all PUCs have in common, the
        same on all joints, and another power of the sources: known from what is taken out of its settings now and was
        before.
        """
        following = replace(now, trajectories=trajectories, followed=now.followed + 1)
        before, parameters = now.likelihood.observations, now.fit.parameters
        after = self._taken_out(following)[np.arange(len(before))]
        # The change of the trajectories moves every setting by its own amount; the median is what they have in common.
        turn_hz = float(np.median(before.detunings_hz - after.detunings_hz))
        source_db = np.array(parameters.source_db, dtype=np.float64)
        for number, port in enumerate(self.model.space.sources):
            mine = before.source == port
            was, now_is = before.reading_ma[mine], after.reading_ma[mine]
            bright = (was > 0.0) & (now_is > 0.0)
            if bright.any():
                source_db[number] += 10.0 * float(np.log10(np.median(now_is[bright] / was[bright])))
        joints = parameters.joint_phase_rad + 2.0 * np.pi * parameters.delay_s * turn_hz
        moved = replace(parameters, joint_phase_rad=joints, source_db=source_db)
        return replace(following, fit=replace(now.fit, parameters=moved))

    def _again(self, now: DiagnosedFit, known: FitResult | None = None) -> DiagnosedFit:
        """Return a fit with all taken out that is known to have happened.

        Args:
            now: Where to begin, and what happened.
            known: The last fit, if settings and parameters are about those it had.
        """
        likelihood = self._weighed(replace(self._alive, observations=self._taken_out(now)), now.fit.parameters)
        passive = now.fit.parameters.passive_phase_rad.copy()
        laws = now.fit.parameters.heater_law.copy()
        for death in now.deaths:
            if death.first == 0 and laws[death.number].any():
                laws[death.number] = 0.0
                passive[death.number // 2] += death.turn_rad
        start = replace(now.fit.parameters, passive_phase_rad=passive, heater_law=laws)
        # A heater that died half-way keeps its law: it worked until then.
        never = frozenset(np.flatnonzero(laws[:, 0] == 0.0).tolist())
        near = now.fit.certified
        # Information of readings that no longer count cannot be taken over.
        if not np.array_equal(now.likelihood.used, likelihood.used[: len(now.likelihood.used)]):
            known = None
        fit = self._fit(start, likelihood, never, near=near, known=known)
        return replace(now, fit=fit, likelihood=likelihood, rough=near and not fit.certified)

    def _exchanged(self, now: DiagnosedFit) -> DiagnosedFit:
        """Return the diagnosed fit with two channels exchanged, if that explains more than two heaters being dead."""
        # Two heaters that look dead though their sweeps saw them clearly: more likely each is driven by the other's
        # channel.
        odd = [d.number for d in now.deaths if self.swept_sigma[d.number] > _SWEPT_ALIVE_SIGMA]
        for one, other in itertools.combinations(sorted(odd), 2):
            rest = tuple(death for death in now.deaths if death.number not in (one, other))
            case = replace(now, dead=now.dead - {one, other}, exchanged=((one, other),), deaths=rest, trajectories=None)
            given = replace(self._alive, observations=self._taken_out(case))
            start, _ = exchange(self.model, now.fit.parameters, given, one, other, self.prior)
            again = self._again(replace(case, fit=replace(now.fit, parameters=start), trajectories=now.trajectories))
            if again.fit.discrepancy < now.fit.discrepancy or again.fit.chi2_per_dof < now.fit.chi2_per_dof:
                return again
        return now

    def exchanged_from(self, start: MeshParameters, now: DiagnosedFit) -> DiagnosedFit:
        """Return the fit with two channels exchanged, if that explains everything. The last cause that is tried.

        With two channels exchanged a fit goes astray everywhere. Where it began, the phases of all other PUCs are about
        right, the two are among those whose readings fit worst, and exchanging the right pair takes away most of that.

        Args:
            start: Where the fit began.
            now: The fit that does not explain all readings.
        """
        dead = frozenset(np.flatnonzero(start.heater_law[:, 0] == 0.0).tolist())
        misfit = mean_squared_residual(self.model, start, self._alive)[self.model.space.group("passive_phase_rad")]
        suspects = np.argsort(-misfit)[:_SUSPECTS].tolist()
        live = sorted(heater for puc in suspects for heater in (2 * puc, 2 * puc + 1) if heater not in dead)
        # Among ten heaters some pair always fits a little better: the right one takes off two fifths at least.
        least, best = _EXCHANGED_SHARE * coarse_cost(self.model, start, self._alive), None
        for one, other in itertools.combinations(live, 2):
            if one // 2 == other // 2:  # both arms of one PUC: the light is the same
                continue
            given = replace(self._alive, observations=_exchanged(self._alive.observations, one, other))
            found, cost = exchange(self.model, start, given, one, other, self.prior)
            if cost < least:
                least, best = cost, (found, ((one, other),))
        if best is None:
            return now
        _log.info("channels of heaters %s exchanged; discrepancy %.3g before", best[1][0], now.fit.discrepancy)
        fit = replace(now.fit, parameters=best[0])
        case = DiagnosedFit(fit, self._alive, dead, exchanged=best[1])
        again = self._settled(self._again(case))
        return self._named(again) if again.fit.certified else now

    def _fit(
        self,
        start: MeshParameters,
        likelihood: Likelihood,
        dead: frozenset[int],
        *,
        near: bool = False,
        known: FitResult | None = None,
        convergence_sigma: float = _ON_THE_WAY_SIGMA,
    ) -> FitResult:
        fitting = self._fitting(likelihood, dead)
        return fitting.run(start, near=near, known=known, kept=True, convergence_sigma=convergence_sigma)

    def _fitting(self, likelihood: Likelihood, dead: frozenset[int]) -> GlobalFit:
        free = self.free.copy()
        for name in _HEATER_GROUPS:
            free[self.model.space.group(name).start + np.array(sorted(dead), dtype=np.int64)] = False
        # Both heaters of a PUC dead: its couplers are held, see above.
        stuck = np.array([heater // 2 for heater in sorted(dead) if heater % 2 == 0 and heater + 1 in dead], np.int64)
        for name in _COUPLER_GROUPS:
            free[self.model.space.group(name).start + stuck] = False
        # A fit that does not explain its readings ends with the work that is allowed; what was found by then is said
        # not to hold. One that does is a few rounds from its end, and would be worth nothing without them.
        work = self.model.work

        def give_up(discrepancy: float) -> bool:
            return discrepancy > 0.0 and work.is_used_up

        return GlobalFit(self.model, likelihood, self.prior, free, self.done, give_up)


def _places(whole: Observations, part: Observations) -> NDArray[np.int64]:
    """Return where in a whole run the settings of its end are; reference settings are not among them."""
    return np.flatnonzero(whole.currents_ma.any(axis=1))[-len(part) :]


def _put(whole: Observations, part: Observations) -> Observations:
    """Return a whole run with the settings of its end as they are taken to have been."""
    places = _places(whole, part)
    currents, reading = whole.currents_ma.copy(), whole.reading_ma.copy()
    currents[places], reading[places] = part.currents_ma, part.reading_ma
    return replace(whole, currents_ma=currents, reading_ma=reading)


def _exchanged(observations: Observations, one: int, other: int) -> Observations:
    currents = observations.currents_ma.copy()
    currents[:, [one, other]] = currents[:, [other, one]]
    return replace(observations, currents_ma=currents)
