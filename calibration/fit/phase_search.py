"""Search for all passive and loop phases from random settings, starting without loop phases (docs/calibration.md, 5).

First, :func:`guess_passive_phases` estimates all passive phases at once. With everything else random, the mean power at
a monitor varies with the differential phase ψ of each PUC as -D/2·cos(ψ + α), where D is the dependence of the mean
light on the PUC's bar fraction. A regression of the readings, weighted by the PUC's D over all sources and monitors, on
cos ψ and sin ψ gives α. Each PUC acts as a modulator with its own random code, and every reading is used for all PUCs.
The sign of D distinguishes bar from cross.

Then :class:`PhaseSearch` finds all phases. The amplitudes at the monitors in some hundred random settings outnumber the
unknown phases a hundredfold, so the cost has hardly any false minima. Damped Gauss-Newton steps on new random subsets
of the readings find the true minimum from approximate passive phases and arbitrary loop phases. A subset costs a
fraction of all readings, and its noise moves the search out of shallow minima. The result is the start of the global
fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.ideal_mesh import AmplitudeModel, MeanLight
from calibration.model.observations import NoiseModel, Observations
from calibration.model.work import SCANNED, searched_work

Real = NDArray[np.float64]

# Readings count up to this many times the mean: speckle has a long tail.
_BRIGHTEST = 5.0
_ROUNDS = 20
_DIMMEST = 1e-9
_MOST_DARK = 0.99
_LEAST_SHARE = 1e-3


@dataclass(frozen=True, eq=False)
class Levels:
    """How much light comes in and how much of it monitors show, sources and monitors sharing a common factor.

    Attributes:
        source: Shape ``(S,)``; factor of every source.
        monitor: Shape ``(M,)``; factor of every monitor, their geometric mean 1.
        second: Shape ``(S,)``; power at the second port of every source over that at its first, 0 where there is none;
            ``None`` if no source has one.
    """

    source: Real
    monitor: Real
    second: Real | None = None

    def of_first(self) -> Levels:
        """Return those of the first source alone."""
        return Levels(self.source[:1], self.monitor, None if self.second is None else self.second[:1])


@dataclass(frozen=True, eq=False)
class PassiveGuess:
    """First passive phases.

    Attributes:
        passive_rad: Shape ``(E,)``.
        strength: Shape ``(E,)``; the correlation over its standard deviation without any; about 1 means nothing seen.
    """

    passive_rad: Real
    strength: Real


def mean_levels(observations: Observations, sources: tuple[int, ...], light: MeanLight) -> Levels:
    """Return the levels at which mean light explains the median reading of every source and monitor."""
    number = np.searchsorted(sources, observations.source)
    expected = light.power[np.ix_(observations.monitors, sources)].T
    # The median of a speckle is ln 2 of its mean.
    with np.errstate(invalid="ignore"):
        # Logarithms: levels multiply, and speckle has a long tail.
        excess = np.log(np.maximum(observations.reading_ma, 0.0) / (np.log(2.0) * expected[number]) + _DIMMEST)
    source, monitor = np.zeros(len(sources)), np.zeros(len(observations.monitors))
    # A monitor that reads nothing in most settings shows its level in the brighter half of the others.
    dark = (np.nan_to_num(observations.reading_ma, nan=1.0) <= 0.0).mean(axis=0)
    faint = {index: 0.5 * (1.0 + min(dark[index], _MOST_DARK)) for index in np.flatnonzero(dark >= 0.5).tolist()}
    for _ in range(_ROUNDS):
        for index in range(len(sources)):
            # Medians in turn for sources and monitors, which converge in a few rounds: a mean would follow the
            # brightest speckle.
            source[index] = np.nanmedian(excess[number == index] - monitor)
        alone = excess - source[number][:, None]
        monitor = np.nanmedian(alone, axis=0)
        for index, share in faint.items():
            monitor[index] = np.nanquantile(alone[:, index], share) - np.log(-np.log(1.0 - share) / np.log(2.0))
        source, monitor = source + monitor.mean(), monitor - monitor.mean()
    return Levels(np.exp(source), np.exp(monitor))


def guess_passive_phases(
    observations: Observations, phase_rad: Real, sources: tuple[int, ...], light: MeanLight, levels: Levels
) -> PassiveGuess:
    """Return the passive phases that random settings show.

    Args:
        observations: Settings with all heaters at random.
        phase_rad: Shape ``(N, 2E)``; phases of the heaters at these settings.
        sources: Sources in ascending order.
        light: Mean light.
        levels: Levels of sources and monitors.
    """
    number = np.searchsorted(sources, observations.source)
    expected = light.power[np.ix_(observations.monitors, sources)].T[number]
    typical = expected * levels.source[number][:, None] * levels.monitor
    relative = np.minimum(observations.reading_ma / typical, _BRIGHTEST)
    relative = np.nan_to_num(relative - np.nanmean(relative, axis=0))
    # How strongly each PUC should move each reading, with its sign: readings that a PUC hardly touches have no vote.
    swing = light.relative_swing(sources, observations.monitors)
    votes = np.empty((len(number), swing.shape[2]))
    for index in range(len(sources)):
        votes[number == index] = relative[number == index] @ swing[index]
    turned = np.exp(1j * (phase_rad[:, 0::2] - phase_rad[:, 1::2]))
    design = np.stack([np.ones(turned.shape), turned.real, turned.imag], axis=-1).transpose(1, 0, 2)
    # A ridge of a thousandth, for a PUC whose heaters never moved: its equations would be singular.
    normal = np.swapaxes(design, 1, 2) @ design + _LEAST_SHARE * len(number) * np.eye(3)
    swings = np.linalg.solve(normal, np.swapaxes(design, 1, 2) @ votes.T[..., None])[..., 0]
    total = -swings[:, 1] + 1j * swings[:, 2]
    spread = np.sqrt((votes**2).mean(axis=0) / len(number))
    strength = np.divide(np.abs(total), spread, out=np.zeros(len(total)), where=spread > 0.0)
    return PassiveGuess(np.angle(total), strength)


_CHUNK = 50
# Shares of the phases that a start draws anew, in turn. All of them from time to time: on a small mesh every start near
# a wrong valley may lead back to it.
_REDRAWN = (0.3, 0.3, 0.12, 1.0)
# Starts with so much drawn or more that end where the best is, from which on nothing better is looked for.
_ALIKE_STARTS, _ALIKE_REDRAWN = 2, 0.3
_HUBER = 0.5
_DAMPING = 1e-3
_LARGEST_TURN_RAD = 0.5
_LEVEL_STEP = 0.3
_LEVEL_PRIOR = 0.02
_SURE = 5.0
_RECENT = 6
_USUAL_PUCS, _MOST_USUAL_PUCS = 72, 144
_HARDLY_LESS = 0.8
_SCAN_EVERY = 20
_SCAN_SETTINGS = 30
_SCAN_STEP_RAD = np.pi / 18.0
_SCAN_SIGMA = 4.5
_SCAN_MOVED_RAD = 0.35
# Steps in which a source that was put into the wrong valley shows it: 4 to 6 on 15 PUCs, and the mean of the last 6.
_VALLEY_STEPS = 10
# Share of the light per PUC that couplers as made leave the ideal model at least: 2e-5 measured on 15 and 72 PUCs in
# the right valley, 6e-5 and more with a source in a wrong one.
_UNEXPLAINED_PER_PUC = 4e-5
# One laser in a wrong valley leaves 0.6 % at most: more is left by groups of them, or by other phases. Any of eight
# lasers led out of it on 72 PUCs by 490 settings, also where harsh physics leaves 0.5 % at best. Groups leave 1.2 to
# 4.6 %; exchanged channels 10 %, and work on it would be missing where these are asked for.
_BY_A_LASER, _BY_GROUPS, _LASERS_TRIED = 0.01, 0.05, 2
# Nine in ten passive phases within so much, and the same light left unexplained to two per cent: two starts have found
# the same valley. Passive phases alone may agree between valleys whose loops do not.
_ALIKE_SHARE, _ALIKE_RAD, _ALIKE_UNEXPLAINED = 0.9, 0.2, 0.02
# The same for searches that draw other portions: a false valley leaves six times as much as the right one, or more.
_ALIKE_UNEXPLAINED_AGAIN = 0.25


@dataclass(frozen=True)
class SearchPlan:
    """How to search, on a mesh of up to 144 PUCs; :meth:`on` is the plan for a larger one.

    Attributes:
        portion: Settings per step.
        monitors: Monitors looked at per setting, drawn anew for every chunk of settings.
        steps: Most steps from one start.
        patience: Steps over which less than a fifth has to be gained to end, as long as much is unexplained.
        starts: Most starts.
        unexplained: Share of the light that the ideal model may leave unexplained.
        plausible: Share up to which another start is no better use of time than the global fit: one heater whose law is
            wrong by 7 % leaves 0.5 %, from every start.
        source_phase_rad: Spread of the common phase per PUC between sources, each a laser of its own; 0 for one laser.
        source_prior: Share of the light that a source one such spread from the others has to explain more.
        one_laser_first: Whether the phases are searched in the light of one source alone, and what lasers of their own
            differ by is asked afterwards.
    """

    portion: int = 200
    monitors: int = 14
    steps: int = 150
    patience: int = 25
    starts: int = 12
    unexplained: float = 0.0025
    plausible: float = 0.008
    source_phase_rad: float = 0.0
    source_prior: float = 5e-4
    one_laser_first: bool = False

    def on(self, n_pucs: int) -> SearchPlan:
        """Return the plan for a mesh of so many PUCs.

        On a large one every step needs as many readings for each phase, and there are more steps to go. Light passes
        more elements that are not as the ideal model has them: with the true phases 0.6 % are left on 265 PUCs, 0.2 %
        on 72. And lasers may settle in valleys that fit each other in groups: from all sources at once no start found
        the right one (docs/performance.md).
        """
        if n_pucs <= _MOST_USUAL_PUCS:
            return self
        more = n_pucs / _USUAL_PUCS
        root = math.sqrt(more)
        return replace(
            self,
            portion=round(self.portion * root),
            monitors=round(self.monitors * root),
            steps=round(self.steps * root),
            patience=round(self.patience * root),
            unexplained=self.unexplained * more,
            plausible=self.plausible * more,
            one_laser_first=self.source_phase_rad > 0.0,
        )


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Where the search ended.

    Attributes:
        passive_rad: Shape ``(E,)``.
        joint_rad: Shape ``(J,)``; in no particular gauge.
        source_phase_rad: Shape ``(S,)``; common phase per PUC of each source's light, on top of the joints.
        levels: Levels of sources and monitors.
        misfit: Shape ``(E + J,)``; mean squared residual of the readings that feel each phase.
        unexplained: Share of the light left unexplained.
        steps: Steps made from the last start.
        starts: Starts made.
        agreed: Whether two starts ended in the same valley: no chance find, however much of the light it leaves open.
        work: Readings evaluated, as :class:`calibration.model.work.FitWork` counts them.
    """

    passive_rad: Real
    joint_rad: Real
    source_phase_rad: Real
    levels: Levels
    misfit: Real
    unexplained: float
    steps: int
    starts: int
    agreed: bool = False
    work: float = 0.0


class PhaseSearch:
    """Searches phases that explain readings.

    Args:
        model: Model of the amplitudes.
        observations: Readings of random settings.
        source_number: Shape ``(N,)``; which of the model's sources was lit.
        arm_rad: Shape ``(N, 2E)``; phases that heat gives the arms.
        joint_rad: Shape ``(N, J)``; phases that heat gives the joints.
        noise: Noise of a reading.
        plan: How to search.
        rng: Portions and first loops.
    """

    def __init__(
        self,
        model: AmplitudeModel,
        observations: Observations,
        source_number: NDArray[np.int64],
        arm_rad: Real,
        joint_rad: Real,
        noise: NoiseModel,
        plan: SearchPlan,
        rng: np.random.Generator,
    ) -> None:
        self._model, self._source, self._heated = model, source_number, (arm_rad, joint_rad)
        self._plan, self._rng, self._work = plan, rng, 0.0
        self._n_sources = int(source_number.max()) + 1
        reading = observations.reading_ma
        self._amplitude = np.sqrt(np.maximum(np.nan_to_num(reading), 0.0))
        mean = np.nanmean(np.maximum(reading, 0.0), axis=0)
        # Amplitudes, each over the mean of its monitor, with ten floors below: dark monitors do not decide.
        self._weight = np.where(np.isnan(reading), 0.0, 1.0 / np.sqrt(mean + 10.0 * noise.floor_ma))

    def run(
        self,
        guess: PassiveGuess,
        levels: Levels,
        done: Callable[[int, float], None],
        before: SearchResult | None = None,
        known: SearchResult | None = None,
        most_work: float = math.inf,
    ) -> SearchResult:
        """Search from a guess, or from where a search of fewer settings ended.

        Later starts go on from the best so far with phases drawn anew where it explains least: on a large mesh most
        is right, and no draw of everything would be right everywhere.

        Args:
            guess: First passive phases.
            levels: First levels of sources and monitors.
            done: Told each step and the share unexplained.
            before: Where an earlier search ended.
            known: Where a search that began elsewhere ended: in the same valley nothing else is looked for.
            most_work: Readings predicted from which on no further start is begun.
        """
        if before is None:
            point = self._drawn_point(guess.passive_rad)
        else:
            point, levels = _point_of(before), before.levels
        best = self._resolve_laser_valleys(self._from(point, levels, 1, done), done)
        starts, alike = 1, 0
        while best.unexplained > self._plan.plausible and starts < self._plan.starts and alike < _ALIKE_STARTS:
            if self._work > most_work:
                break
            if known is not None and is_same_valley_from_other_search(known, best):
                break
            share = _REDRAWN[(starts - 1) % len(_REDRAWN)]
            starts += 1
            other = self._from(self._redrawn(best, guess, share), best.levels, starts, done)
            # A few phases that come back are no sign that what is left unexplained is not the search's to find.
            if is_same_valley(best, other):
                alike += share >= _ALIKE_REDRAWN
            elif other.unexplained < best.unexplained:
                alike, other = 0, self._resolve_laser_valleys(other, done)
            best = replace(min(best, other, key=lambda one: one.unexplained), agreed=alike >= _ALIKE_STARTS)
        return replace(best, starts=starts, work=self._work)

    def add_other_lasers(self, alone: SearchResult, levels: Levels) -> SearchResult:
        """Return where a search in the light of the first source ended, with each other laser where it explains most.

        Args:
            alone: Where it ended.
            levels: First levels of all sources and monitors.
        """
        # The monitors' levels are found; the sources' count against them.
        source = np.concatenate([alone.levels.source, levels.source[1:]])
        found = replace(
            alone,
            source_phase_rad=np.zeros(self._n_sources),
            levels=replace(levels, source=source, monitor=alone.levels.monitor),
        )
        point = self._scanned(_point_of(found), (np.sqrt(source), np.sqrt(alone.levels.monitor)))
        turned = point[-self._n_sources :]
        return replace(found, source_phase_rad=turned - turned[0])

    def _drawn_point(self, passive_rad: Real) -> Real:
        """Return passive phases with loops drawn, and all sources alike."""
        drawn = self._rng.uniform(0.0, 2.0 * np.pi, len(self._model.mesh.joints))
        return np.concatenate([passive_rad, drawn, np.zeros(self._n_sources)])

    def _redrawn(self, found: SearchResult, guess: PassiveGuess, share: float) -> Real:
        """Return where a search ended, with a share of the phases drawn anew: those whose readings fit worst."""
        point, worst = _point_of(found), found.misfit >= np.quantile(found.misfit, 1.0 - share)
        # A passive phase that the guess is sure of is right and is worth keeping.
        worst[: len(guess.strength)] &= guess.strength < _SURE
        drawn = np.flatnonzero(worst)
        point[drawn] = self._rng.uniform(0.0, 2.0 * np.pi, len(drawn))
        return point

    def _resolve_laser_valleys(self, found: SearchResult, done: Callable[[int, float], None]) -> SearchResult:
        """Return where a search ends once no laser, nor a group of them, is a valley off.

        A laser turned by a sixth of a turn per PUC leaves what goes round a cell of six PUCs as it was, and the other
        loops settle between the lasers. Half of all starts end with one laser off, and ten times the light of the right
        valley left unexplained; some on a large mesh with lasers in two groups, and more left.
        """
        if not self._plan.source_phase_rad or self._n_sources == 1:
            return found
        return self._with_lasers_moved(self._by_one_laser(found, done), done)

    def _by_one_laser(self, found: SearchResult, done: Callable[[int, float], None]) -> SearchResult:
        """Return where a search ends that goes on in the light of one laser alone, and then of all.

        In the light of one nothing holds loops between groups of lasers, and with these at their place each other laser
        is a scan of one number.
        """
        if not max(_BY_A_LASER, self._plan.plausible) <= found.unexplained < _BY_GROUPS:
            return found
        for source in self._rng.permutation(self._n_sources)[:_LASERS_TRIED].tolist():
            alone = self._from(_point_of(found), found.levels, found.starts, done, lit=source)
            told = self._scanned(_point_of(alone), self._scale(alone.levels))
            other = self._from(told, alone.levels, found.starts, done, _VALLEY_STEPS)
            if other.unexplained < _HARDLY_LESS * found.unexplained:
                return self._from(_point_of(other), other.levels, found.starts, done)
        return found

    def _with_lasers_moved(self, found: SearchResult, done: Callable[[int, float], None]) -> SearchResult:
        """Return where a search ends once no laser explains more one valley farther."""
        mesh = self._model.mesh
        enough = min(self._plan.plausible, _UNEXPLAINED_PER_PUC * mesh.n_pucs)
        if not mesh.faces or not enough < found.unexplained < _BY_A_LASER:
            return found
        valley_rad = 2.0 * np.pi / min(len(face) for face in mesh.faces)
        phases = len(found.passive_rad) + len(found.joint_rad)
        for _ in range(2 * self._n_sources):
            tried = []
            for source in range(self._n_sources):
                for turn in (valley_rad, -valley_rad):
                    point = _point_of(found)
                    point[phases + source] += turn
                    tried.append(self._from(point, found.levels, found.starts, done, _VALLEY_STEPS))
            best = min(tried, key=lambda one: one.unexplained)
            if best.unexplained > _HARDLY_LESS * found.unexplained:
                break
            found = self._from(_point_of(best), best.levels, found.starts, done)
        return found

    def _from(
        self,
        point: Real,
        levels: Levels,
        start: int,
        done: Callable[[int, float], None],
        most_steps: int | None = None,
        lit: int | None = None,
    ) -> SearchResult:
        """Search from a point, in the light of all sources or of one."""
        n_pucs, n_joints = self._model.mesh.n_pucs, len(self._model.mesh.joints)
        settings = np.arange(len(self._source)) if lit is None else np.flatnonzero(self._source == lit)
        scan = lit is None and self._plan.source_phase_rad > 0.0
        scale, costs = self._scale(levels), list[float]()
        order = np.empty(0, dtype=np.int64)
        for step in range(1, (most_steps or self._plan.steps) + 1):
            # Every setting is used once before any is used again.
            if len(order) < self._plan.portion:
                order = self._rng.permutation(settings)
            chosen, order = np.sort(order[: self._plan.portion]), order[self._plan.portion :]
            point, scale, cost, misfit = self._step(point, scale, chosen)
            costs.append(cost)
            done(step, cost)
            # Valleys of a source's phase lie π/3 apart, and no step leads from one to the next.
            if scan and step % _SCAN_EVERY == 0 and cost > self._plan.unexplained:
                point = self._scanned(point, scale)
            if self._settled(costs):
                elsewhere = self._scanned(point, scale) if scan else point
                if np.abs(elsewhere - point).max() < _SCAN_MOVED_RAD:
                    break
                point, costs = elsewhere, []  # a source was a valley off
        return SearchResult(
            passive_rad=point[:n_pucs],
            joint_rad=point[n_pucs : n_pucs + n_joints],
            source_phase_rad=_within_half_a_turn(point[n_pucs + n_joints :]),
            levels=Levels(*(part**2 for part in scale)),
            misfit=misfit[: n_pucs + n_joints],
            unexplained=float(np.mean(costs[-_RECENT:])) if costs else 1.0,
            steps=step,
            starts=start,
        )

    def _scale(self, levels: Levels) -> tuple[Real, ...]:
        """Return the roots of levels: of sources, of monitors, and of the second ports of sources if there are any."""
        second: list[Real] = []
        if self._model.has_second.any():
            second = [np.sqrt(self._model.has_second if levels.second is None else levels.second)]
        return np.sqrt(levels.source), np.sqrt(levels.monitor), *second

    def _settled(self, costs: list[float]) -> bool:
        """Return whether the last steps explain no more than those before; patience is greater while much is open."""
        for patience, most in ((_RECENT, self._plan.unexplained), (self._plan.patience, np.inf)):
            if len(costs) >= 2 * patience:
                before, now = np.mean(costs[-2 * patience : -patience]), np.mean(costs[-patience:])
                if now < most and now > _HARDLY_LESS * before:
                    return True
        return False

    def _step(
        self, point: Real, scale: tuple[Real, ...], chosen: NDArray[np.int64]
    ) -> tuple[Real, tuple[Real, ...], float, Real]:
        """Make one step on a portion of the settings.

        Returns:
            Point, roots of the levels, mean squared residual, and that of the readings that feel each phase.
        """
        size = len(point)
        matrix, slope = np.zeros((size, size)), np.zeros(size)
        felt, off = np.zeros(size), np.zeros(size)
        gain = [np.zeros((2, len(part))) for part in scale]
        total, count = 0.0, 0.0
        for first in range(0, len(chosen), _CHUNK):
            part = chosen[first : first + _CHUNK]
            source = self._source[part]
            monitor = self._drawn(len(part))
            self._work += searched_work(self._model.mesh.n_pucs) * monitor.size
            amplitude, derivative, by_second = self._linearise(point, part, monitor, *scale[2:])
            factor = scale[0][source][:, None] * scale[1][monitor]
            weight = self._weight[part[:, None], monitor]
            residual = (self._amplitude[part[:, None], monitor] - factor * amplitude) * weight
            total, count = total + float((residual**2).sum()), count + float((weight > 0.0).sum())
            # A reading that is off by more than half of the mean amplitude belongs to another valley: it counts less.
            root = np.sqrt(_HUBER / np.maximum(np.abs(residual), _HUBER))
            derivative *= (factor * weight * root).astype(np.float32)[..., None]
            flat = derivative.reshape(-1, size)
            matrix += flat.T @ flat
            slope += flat.T @ (residual * root).astype(np.float32).ravel()
            power = flat**2
            felt, off = felt + power.sum(axis=0), off + (residual**2).astype(np.float32).ravel() @ power
            lit = source[:, None] + 0 * monitor
            levels: list[tuple[NDArray[np.int64], NDArray[np.floating]]]
            levels = [(lit, amplitude), (monitor, amplitude), (lit, by_second)]
            for (where, by_level), sums in zip(levels, gain, strict=False):
                shown = factor * by_level * weight * root
                np.add.at(sums[0], where, residual * root * shown)
                np.add.at(sums[1], where, shown**2)
        misfit: Real = np.divide(off, felt, out=np.zeros(size), where=felt > 0.0)
        return point + self._turn(matrix, slope), self._levelled(scale, gain), total / max(count, 1.0), misfit

    def _drawn(self, n: int) -> NDArray[np.int64]:
        """Draw the monitors to be looked at in n settings, ``(n, k)``; the same in all, and only these are solved."""
        drawn = self._rng.permutation(self._amplitude.shape[1])[: self._plan.monitors]
        return np.tile(drawn, (n, 1))

    def _linearise(
        self, point: Real, part: NDArray[np.int64], monitor: NDArray[np.int64], second: Real | None = None
    ) -> tuple[Real, NDArray[np.float32], NDArray[np.float32]]:
        """Return amplitudes, derivatives by passive, joint and source phases, and those by the level of seconds."""
        n_pucs, n_joints = self._model.mesh.n_pucs, len(self._model.mesh.joints)
        source = self._source[part]
        # Light passes joints and PUCs in turn, so a phase common to all PUCs is one common to all joints.
        joint = point[n_pucs : n_pucs + n_joints] + point[n_pucs + n_joints :][source][:, None]
        heated = self._heated[0][part]
        amplitude, by_phase = self._model.linearise(
            heated[:, 0::2] + point[:n_pucs], heated[:, 1::2], joint + self._heated[1][part], source, monitor, second
        )
        by_phase, by_second = by_phase[..., : n_pucs + n_joints], by_phase[..., n_pucs + n_joints :].sum(axis=-1)
        derivative = np.zeros((*by_phase.shape[:2], len(point)), dtype=np.float32)
        derivative[..., : n_pucs + n_joints] = by_phase
        if self._plan.source_phase_rad:
            common = by_phase[..., n_pucs:].sum(axis=-1)
            derivative[np.arange(len(part)), :, n_pucs + n_joints + source] = common
        return amplitude, derivative, by_second

    def _scanned(self, point: Real, scale: tuple[Real, ...]) -> Real:
        """Return the point with each source's common phase where it explains most.

        A shift by a sixth of a turn leaves every loop round one cell as it was: valleys lie side by side.
        """
        phases = len(point) - self._n_sources
        spread = self._plan.source_phase_rad
        count = int(np.ceil(_SCAN_SIGMA * spread / _SCAN_STEP_RAD))
        centre = float(np.median(point[phases:]))
        shifts = centre + np.arange(-count, count + 1) * _SCAN_STEP_RAD
        # The spread of lasers decides where readings do not.
        prior = ((shifts - centre) / spread) ** 2 * self._plan.source_prior
        result = point.copy()
        for source in range(self._n_sources):
            part = self._rng.permutation(np.flatnonzero(self._source == source))[:_SCAN_SETTINGS]
            costs = [self._unexplained(point, scale, part, source, float(shift)) for shift in shifts]
            self._work += SCANNED * len(shifts) * len(part) * self._amplitude.shape[1]
            result[phases + source] = shifts[int(np.argmin(costs + prior))]
        return result

    def _unexplained(
        self, point: Real, scale: tuple[Real, ...], part: NDArray[np.int64], source: int, common_rad: float
    ) -> float:
        """Return the mean squared residual of settings lit by one source if that were its common phase."""
        n_pucs, n_joints = self._model.mesh.n_pucs, len(self._model.mesh.joints)
        every = np.tile(np.arange(self._amplitude.shape[1]), (len(part), 1))
        joint = point[n_pucs : n_pucs + n_joints] + common_rad + self._heated[1][part]
        heated = self._heated[0][part]
        upper, lower = heated[:, 0::2] + point[:n_pucs], heated[:, 1::2]
        amplitude = self._model.predict(upper, lower, joint, source, every, *scale[2:])
        residual = (self._amplitude[part] - scale[0][source] * scale[1] * amplitude) * self._weight[part]
        return float(np.minimum(residual**2, _HUBER**2).mean())

    def _turn(self, matrix: Real, slope: Real) -> Real:
        """Return the damped step of all phases, none farther than half a radian."""
        diagonal = np.diag(matrix)
        phases = len(diagonal) - self._n_sources
        # The mean is added so that phases without any light do not run away.
        damping = _DAMPING * (diagonal + diagonal[:phases].mean())
        if self._plan.source_phase_rad:
            damping[phases:] += diagonal[phases:].mean() * _DAMPING
        step = np.linalg.solve(matrix + np.diag(damping), slope)
        return np.clip(step, -_LARGEST_TURN_RAD, _LARGEST_TURN_RAD)

    def _levelled(self, scale: tuple[Real, ...], gain: list[Real]) -> tuple[Real, ...]:
        """Return the roots of the levels, moved a part of the way to where they fit best."""
        moved = [
            part * np.exp(_LEVEL_STEP * sums[0] / (sums[1] + _LEVEL_PRIOR * sums[1].mean()))
            for part, sums in zip(scale, gain, strict=True)
        ]
        # Sources and monitors share a factor that no reading tells: monitors have the geometric mean 1.
        common = np.exp(np.log(moved[1]).mean())
        return moved[0] * common, moved[1] / common, *moved[2:]


def _point_of(found: SearchResult) -> Real:
    """Return the point where a search ended."""
    return np.concatenate([found.passive_rad, found.joint_rad, found.source_phase_rad])


def is_same_valley(one: SearchResult, other: SearchResult, light: float = _ALIKE_UNEXPLAINED) -> bool:
    """Return whether two searches of the same readings have ended in the same valley.

    Args:
        one: One of them.
        other: The other.
        light: Share by which the light that they leave unexplained may differ.
    """
    off = np.abs((one.passive_rad - other.passive_rad + np.pi) % (2.0 * np.pi) - np.pi)
    left = abs(one.unexplained - other.unexplained) <= light * max(one.unexplained, other.unexplained)
    return left and bool(np.quantile(off, _ALIKE_SHARE) < _ALIKE_RAD)


def is_same_valley_from_other_search(one: SearchResult, other: SearchResult) -> bool:
    """Return whether two searches, each with loops and portions of its own, have ended in the same valley."""
    return is_same_valley(one, other, _ALIKE_UNEXPLAINED_AGAIN)


def _within_half_a_turn(source_rad: Real) -> Real:
    """Return common phases of sources near their median: half a turn per PUC is none on loops of an even number."""
    middle = float(np.median(source_rad))
    near: Real = middle + (source_rad - middle + 0.5 * np.pi) % np.pi - 0.5 * np.pi
    return near
