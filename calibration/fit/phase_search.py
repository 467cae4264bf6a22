"""Search for all passive and loop phases from random settings (docs/calibration.md, 5).

:func:`guess_passive_phases` first estimates all passive phases by a regression of the readings.

:class:`PhaseSearch` then finds all phases by Gauss-Newton steps on random subsets of the readings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real, Single
from calibration.model.gauge import wrapped
from calibration.model.ideal_mesh import AmplitudeModel, MeanLight
from calibration.model.observations import NoiseModel, Observations
from calibration.model.work import SCAN_WORK, searched_work

# Tuned constants, each with its reason. "Unexplained" is the fraction of the light that the ideal model leaves
# unexplained; a "valley" is a minimum of the cost.
# fmt: off
# name = value                                  why
_BRIGHTEST = 5.0                              # clip readings at 5 times the mean: speckle has a long tail
_LEVEL_ROUNDS = 20                            # the medians of sources and monitors converge in a few rounds
_DIMMEST = 1e-9                               # keeps the logarithm of a dark reading finite
_MAX_DARK_FRACTION = 0.99                     # beyond, a faint monitor has too few readings for a quantile
_RIDGE = 1e-3                                 # keeps the equations of a PUC regular whose heaters never moved
_SETTINGS_PER_CHUNK = 50                      # bounds the memory of the derivatives
_REDRAWN_FRACTIONS = (0.3, 0.3, 0.12, 1.0)    # per start, in turn; 1.0: on a small mesh every start near a wrong valley
#                                               may lead back to this valley
_MIN_AGREEMENTS = 2                           # end after two starts that return to the best valley ...
_MIN_REDRAWN_FRACTION = 0.3                   # ... with at least this fraction redrawn: fewer would return anyway
_MIN_GUESSED = 0.5                            # if fewer passive phases are guessed, only completely new starts agree
_HUBER_RESIDUAL = 0.5                         # beyond half of the mean amplitude a reading belongs to another valley
_DAMPING = 1e-3                               # relative to the diagonal: keeps phases without light from running away
_MAX_TURN_RAD = 0.5                           # per step; the derivatives hold no farther
_LEVEL_STEP = 0.3                             # levels follow slowly: until phases are right, residuals mislead them
_LEVEL_PRIOR = 0.02                           # damps levels of sources and monitors that are hardly lit
_TRUSTED_STRENGTH = 5.0                       # passive phases guessed at 5 sigma are right and are not redrawn
_AVERAGED_STEPS = 6                           # a subset is noisy: average the cost over its last six
_REFERENCE_PUCS = 72                          # the defaults of SearchPlan are for this size ...
_MAX_UNSCALED_PUCS = 144                      # ... and serve up to twice as many PUCs
_STALLED_RATIO = 0.8                          # less than a fifth gained counts as no progress
_STEPS_PER_SCAN = 20                          # no step crosses from one valley of a source's phase to the next
_SCAN_SETTINGS = 30                           # enough for the one number that a scan looks for
_SCAN_STEP_RAD = np.pi / 18.0                 # six steps per valley: valleys are pi/3 apart
_SCAN_RANGE_SIGMA = 4.5                       # covers the spread of the lasers
_MIN_SCAN_MOVE_RAD = 0.35                     # two scan steps: a smaller move stays in its valley
_VALLEY_STEPS = 10                            # a source in a wrong valley shows within 4 to 6 steps on 15 PUCs
_MIN_UNEXPLAINED_PER_PUC = 4e-5               # right valley: 2e-5 on 15 and 72 PUCs; wrong source valley: 6e-5 or more
_MAX_ONE_LASER_UNEXPLAINED = 0.01             # one laser in a wrong valley leaves at most 0.6 %
_MAX_GROUPS_UNEXPLAINED = 0.05                # groups of lasers leave 1.2 to 4.6 %; exchanged channels 10 %
_MAX_LASERS_TRIED = 2                         # any of eight lasers resolved the groups (72 PUCs, 490 settings)
_SAME_VALLEY_QUANTILE = 0.9                   # two results agree if nine of ten passive phases ...
_SAME_VALLEY_RAD = 0.2                        # ... agree within 0.2 rad ...
_SAME_VALLEY_UNEXPLAINED = 0.02               # ... and unexplained agrees within 2 %: loops may differ otherwise
_SAME_VALLEY_UNEXPLAINED_OTHER_SEARCH = 0.25  # other subsets: a wrong valley leaves six times as much, or more
# fmt: on


@dataclass(frozen=True, eq=False)
class Levels:
    """Power levels of S sources and sensitivities of M monitors, up to a common factor.

    Attributes:
        source: Shape ``(S,)``; power of every source.
        monitor: Shape ``(M,)``; relative sensitivity of every monitor, with geometric mean 1.
        second: Shape ``(S,)``; power at the second port of a source over that at its first, 0 without a second port;
            ``None`` if no source has two ports.
    """

    source: Real
    monitor: Real
    second: Real | None = None

    def first_source_only(self) -> Levels:
        """Return the power levels for the first source and all monitors."""
        return Levels(self.source[:1], self.monitor, None if self.second is None else self.second[:1])


@dataclass(frozen=True, eq=False)
class PassiveGuess:
    """Estimated passive phases.

    Attributes:
        strength: Shape ``(pucs,)``; signal over noise of the estimate; about 1 means no signal.
    """

    passive_rad: Real
    strength: Real


def mean_levels(observations: Observations, sources: tuple[int, ...], light: MeanLight) -> Levels:
    """Return the levels at which the predicted mean light equals the median reading of each source and monitor."""
    number = np.searchsorted(sources, observations.source)
    expected = light.power[np.ix_(observations.monitors, sources)].T[number]
    reached = expected > 0.0
    # The median of speckle is ln 2 times its mean.
    level_ma, nowhere = np.maximum(observations.reading_ma, 0.0), np.full(expected.shape, np.nan)
    share = np.divide(level_ma, np.log(2.0) * expected, out=nowhere, where=reached)
    # Use logarithms, because levels multiply and speckle has a long tail.
    excess = np.log(share + _DIMMEST)
    source, monitor = np.zeros(len(sources)), np.zeros(len(observations.monitors))
    seen = np.flatnonzero(np.isfinite(excess).any(axis=0))
    # For a monitor that reads zero in most settings, use a quantile of its brighter readings.
    dark = (share[:, seen] <= 0.0).sum(axis=0) / reached[:, seen].sum(axis=0)
    quantiles = 0.5 * (1.0 + np.minimum(dark, _MAX_DARK_FRACTION))
    faint = list(zip(seen[dark >= 0.5].tolist(), quantiles[dark >= 0.5].tolist(), strict=True))
    for _ in range(_LEVEL_ROUNDS):
        for index in range(len(sources)):
            # Alternate medians for sources and monitors. A mean would follow the brightest speckle.
            source[index] = np.nanmedian(excess[number == index] - monitor)
        corrected = excess - source[number][:, None]
        monitor[seen] = np.nanmedian(corrected[:, seen], axis=0)
        for index, quantile in faint:
            of_speckle = np.log(-np.log(1.0 - quantile) / np.log(2.0))
            monitor[index] = np.nanquantile(corrected[:, index], quantile) - of_speckle
        source, monitor = source + monitor.mean(), monitor - monitor.mean()
    return Levels(np.exp(source), np.exp(monitor))


def guess_passive_phases(
    observations: Observations, phase_rad: Real, sources: tuple[int, ...], light: MeanLight, levels: Levels
) -> PassiveGuess:
    """Estimate the passive phases from settings with random heater currents.

    ``phase_rad`` contains the phases caused by the heaters, shape ``(settings, heaters)``. ``sources`` are in ascending
    order. ``light`` is the mean transmission of the mesh over random settings.
    """
    number = np.searchsorted(sources, observations.source)
    expected = light.power[np.ix_(observations.monitors, sources)].T[number]
    typical = expected * levels.source[number][:, None] * levels.monitor
    is_used = np.isfinite(observations.reading_ma) & (typical > 0.0)
    relative = np.divide(observations.reading_ma, typical, out=np.zeros(typical.shape), where=is_used)
    relative = np.minimum(relative, _BRIGHTEST)
    mean = relative.sum(axis=0) / np.maximum(is_used.sum(axis=0), 1)
    relative = np.where(is_used, relative - mean, 0.0)
    # Expected signed effect of each PUC on each reading; readings that a PUC hardly affects get no weight.
    swing = light.relative_swing(sources, observations.monitors)
    votes = np.empty((len(number), swing.shape[2]))
    for index in range(len(sources)):
        votes[number == index] = relative[number == index] @ swing[index]
    turned = np.exp(1j * (phase_rad[:, 0::2] - phase_rad[:, 1::2]))
    design = np.stack([np.ones(turned.shape), turned.real, turned.imag], axis=-1).transpose(1, 0, 2)
    # The ridge serves PUCs whose heaters never moved; their equations would be singular.
    normal = np.swapaxes(design, 1, 2) @ design + _RIDGE * len(number) * np.eye(3)
    swings = np.linalg.solve(normal, np.swapaxes(design, 1, 2) @ votes.T[..., None])[..., 0]
    total = -swings[:, 1] + 1j * swings[:, 2]
    spread = np.sqrt((votes**2).mean(axis=0) / len(number))
    strength = np.divide(np.abs(total), spread, out=np.zeros(len(total)), where=spread > 0.0)
    return PassiveGuess(np.angle(total), strength)


@dataclass(frozen=True)
class SearchPlan:
    """Parameters of the phase search, for up to 144 PUCs; :meth:`on` returns those for a larger mesh.

    Attributes:
        portion: Number of settings used in each step.
        monitors: Number of monitors used per setting.
        steps: Maximum number of steps from one start.
        patience: Number of steps in which the unexplained light must fall by a fifth, otherwise the search ends.
        starts: Maximum number of starts.
        unexplained: Fraction of the light that may remain unexplained at the right minimum.
        plausible: Fraction of unexplained light below which no further start is tried.
        source_phase_rad: Spread of the phase per PUC between separate lasers; 0 for a single laser.
        source_prior: Cost of a source phase that differs by ``source_phase_rad``, as a fraction of the light.
        one_laser_first: Whether to search with the light of one laser first, then to find the phases of the others.
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
        """Return the parameters for a mesh with this many PUCs.

        A larger mesh needs more readings and steps, and more light remains unexplained (docs/performance.md).
        """
        if n_pucs <= _MAX_UNSCALED_PUCS:
            return self
        ratio = n_pucs / _REFERENCE_PUCS
        root = math.sqrt(ratio)
        return replace(
            self,
            portion=round(self.portion * root),
            monitors=round(self.monitors * root),
            steps=round(self.steps * root),
            patience=round(self.patience * root),
            unexplained=self.unexplained * ratio,
            plausible=self.plausible * ratio,
            one_laser_first=self.source_phase_rad > 0.0,
        )


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Result of a phase search on E PUCs and J waveguide joints.

    Attributes:
        passive_rad: Shape ``(pucs,)``; passive phases.
        joint_rad: Shape ``(joints,)``; phases of the waveguide joints, with arbitrary unobservable parts.
        source_phase_rad: Shape ``(sources,)``; phase per PUC for each source.
        levels: Power levels of sources and sensitivities of monitors.
        misfit: Shape ``(E + J,)``; mean squared residual of the readings that depend on each phase.
        unexplained: Fraction of the light that remains unexplained.
        steps: Number of steps from the last start.
        starts: Number of starts.
        agreed: Whether two starts ended in the same minimum.
        work: Number of evaluated readings.
    """

    passive_rad: Real
    joint_rad: Real
    source_phase_rad: Real
    levels: Levels
    misfit: Real
    unexplained: float
    steps: int
    starts: int = 1
    agreed: bool = False
    work: float = 0.0


class PhaseSearch:
    """Searches for the phases of E PUCs and J waveguide joints that explain the readings of N settings.

    Args:
        observations: Readings of random settings.
        source_number: Shape ``(N,)``; index of the active source.
        arm_rad: Shape ``(N, 2E)``; phases of the arms caused by heat.
        joint_rad: Shape ``(N, J)``; phases of waveguide joints caused by heat.
        plan: Parameters of the search.
        rng: Random generator.
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
        self._on_step: Callable[[int, float], None] = lambda step, unexplained: None
        self._n_sources, self._n_pucs = int(source_number.max()) + 1, model.mesh.n_pucs
        self._n_phases = model.mesh.n_pucs + len(model.mesh.joints)
        reading = observations.reading_ma
        self._amplitude = np.sqrt(np.maximum(np.nan_to_num(reading), 0.0))
        mean = np.nanmean(np.maximum(reading, 0.0), axis=0)
        # Amplitudes relative to the mean of their monitor plus ten noise floors, so that dark monitors do not dominate.
        self._weight = np.where(np.isnan(reading), 0.0, 1.0 / np.sqrt(mean + 10.0 * noise.floor_ma))

    def run(
        self,
        guess: PassiveGuess,
        levels: Levels,
        on_step: Callable[[int, float], None],
        before: SearchResult | None = None,
        seed_result: SearchResult | None = None,
        max_work: float = math.inf,
    ) -> SearchResult:
        """Search for all phases from a guess, or continue a search of fewer settings.

        Args:
            guess: Estimated passive phases.
            levels: Initial power levels of sources and sensitivities of monitors.
            on_step: Called with the step number and the unexplained fraction of the light.
            before: Result of the search to continue.
            seed_result: Result from another start; the search ends if it reaches the same minimum.
            max_work: Number of predicted readings after which no further start begins.
        """
        self._on_step = on_step
        if before is None:
            joints_rad = self._rng.uniform(0.0, 2.0 * np.pi, self._n_phases - self._n_pucs)
            point = np.concatenate([guess.passive_rad, joints_rad, np.zeros(self._n_sources)])
        else:
            point, levels = _to_point(before), before.levels
        best = self._resolve_laser_valleys(self._search_from(point, levels))
        starts, agreements = 1, 0
        is_guessed = guess.strength[self._model.mesh.interferes] >= _TRUSTED_STRENGTH
        min_redrawn = _MIN_REDRAWN_FRACTION if is_guessed.size and is_guessed.mean() >= _MIN_GUESSED else 1.0
        while best.unexplained > self._plan.plausible and starts < self._plan.starts and agreements < _MIN_AGREEMENTS:
            if self._work > max_work:
                break
            if seed_result is not None and is_same_valley_from_other_search(seed_result, best):
                break
            quantile = _REDRAWN_FRACTIONS[(starts - 1) % len(_REDRAWN_FRACTIONS)]
            starts += 1
            other = self._search_from(self._redrawn(best, guess, quantile), best.levels)
            # Starts that redraw only a few phases prove nothing by returning to the same valley.
            if is_same_valley(best, other):
                agreements += quantile >= min_redrawn
            elif other.unexplained < best.unexplained:
                agreements, other = 0, self._resolve_laser_valleys(other)
            best = min(best, other, key=lambda result: result.unexplained)
            best = replace(best, agreed=agreements >= _MIN_AGREEMENTS)
        return replace(best, starts=starts, work=self._work)

    def add_other_lasers(self, corrected: SearchResult, levels: Levels) -> SearchResult:
        """Add the phases of the other lasers to a search result for the first laser.

        ``levels`` contains the initial powers and sensitivities.
        """
        # Monitor levels are known from this result; source levels are relative to them.
        source = np.concatenate([corrected.levels.source, levels.source[1:]])
        levels = replace(levels, source=source, monitor=corrected.levels.monitor)
        search_result = replace(corrected, source_phase_rad=np.zeros(self._n_sources), levels=levels)
        point = self._scan_frequencies(_to_point(search_result), (np.sqrt(source), np.sqrt(corrected.levels.monitor)))
        turned = point[-self._n_sources :]
        return replace(search_result, source_phase_rad=turned - turned[0])

    def _redrawn(self, search_result: SearchResult, guess: PassiveGuess, quantile: float) -> Real:
        point, misfit = _to_point(search_result), search_result.misfit
        worst = misfit >= np.quantile(misfit, 1.0 - quantile)
        # Keep passive phases that were estimated with a strong signal.
        worst[: len(guess.strength)] &= (guess.strength < _TRUSTED_STRENGTH) & self._model.mesh.interferes
        redrawn = np.flatnonzero(worst)
        point[redrawn] = self._rng.uniform(0.0, 2.0 * np.pi, len(redrawn))
        return point

    def _resolve_laser_valleys(self, search_result: SearchResult) -> SearchResult:
        """Return the search result after moving lasers out of wrong minima."""
        if not self._plan.source_phase_rad or self._n_sources == 1:
            return search_result
        return self._with_lasers_moved(self._by_one_laser(search_result))

    def _by_one_laser(self, search_result: SearchResult) -> SearchResult:
        least = max(_MAX_ONE_LASER_UNEXPLAINED, self._plan.plausible)
        if not least <= search_result.unexplained < _MAX_GROUPS_UNEXPLAINED:
            return search_result
        for source in self._rng.permutation(self._n_sources)[:_MAX_LASERS_TRIED].tolist():
            corrected = self._search_from(_to_point(search_result), search_result.levels, only_source=source)
            scanned = self._scan_frequencies(_to_point(corrected), self._scale(corrected.levels))
            other = self._search_from(scanned, corrected.levels, _VALLEY_STEPS)
            if other.unexplained < _STALLED_RATIO * search_result.unexplained:
                return self._search_from(_to_point(other), other.levels)
        return search_result

    def _with_lasers_moved(self, search_result: SearchResult) -> SearchResult:
        mesh = self._model.mesh
        enough = min(self._plan.plausible, _MIN_UNEXPLAINED_PER_PUC * mesh.n_pucs)
        if not mesh.faces or not enough < search_result.unexplained < _MAX_ONE_LASER_UNEXPLAINED:
            return search_result
        valley_rad = 2.0 * np.pi / min(len(face) for face in mesh.faces)
        for _ in range(2 * self._n_sources):
            tried = []
            for source in range(self._n_sources):
                for turn in (valley_rad, -valley_rad):
                    point = _to_point(search_result)
                    point[self._n_phases + source] += turn
                    tried.append(self._search_from(point, search_result.levels, _VALLEY_STEPS))
            best = min(tried, key=lambda result: result.unexplained)
            if best.unexplained > _STALLED_RATIO * search_result.unexplained:
                break
            search_result = self._search_from(_to_point(best), best.levels)
        return search_result

    def _search_from(
        self, point: Real, levels: Levels, max_steps: int | None = None, only_source: int | None = None
    ) -> SearchResult:
        settings = np.arange(len(self._source)) if only_source is None else np.flatnonzero(self._source == only_source)
        scan = only_source is None and self._plan.source_phase_rad > 0.0
        scale, costs = self._scale(levels), list[float]()
        order = np.empty(0, dtype=np.int64)
        for step in range(1, (max_steps or self._plan.steps) + 1):
            # Use every setting once before using any again.
            if len(order) < self._plan.portion:
                order = self._rng.permutation(settings)
            chosen, order = np.sort(order[: self._plan.portion]), order[self._plan.portion :]
            point, scale, cost, misfit = self._step(point, scale, chosen)
            costs.append(cost)
            self._on_step(step, cost)
            # Valleys of a source's phase are π/3 apart, and no step leads from one to the next.
            if scan and step % _STEPS_PER_SCAN == 0 and cost > self._plan.unexplained:
                point = self._scan_frequencies(point, scale)
            if self._has_stalled(costs):
                rescanned = self._scan_frequencies(point, scale) if scan else point
                if np.abs(rescanned - point).max() < _MIN_SCAN_MOVE_RAD:
                    break
                point, costs = rescanned, []  # a source was in a wrong valley
        return SearchResult(
            passive_rad=point[: self._n_pucs],
            joint_rad=point[self._n_pucs : self._n_phases],
            source_phase_rad=_wrap_half_turns(point[self._n_phases :]),
            levels=Levels(*(part**2 for part in scale)),
            misfit=misfit[: self._n_phases],
            unexplained=float(np.mean(costs[-_AVERAGED_STEPS:])) if costs else 1.0,
            steps=step,
        )

    def _scale(self, levels: Levels) -> tuple[Real, ...]:
        """Return the square roots of source powers, monitor sensitivities, and second-port powers."""
        second: list[Real] = []
        if self._model.has_second.any():
            second = [np.sqrt(self._model.has_second if levels.second is None else levels.second)]
        return np.sqrt(levels.source), np.sqrt(levels.monitor), *second

    def _has_stalled(self, costs: list[float]) -> bool:
        for rounds, limit in ((_AVERAGED_STEPS, self._plan.unexplained), (self._plan.patience, np.inf)):
            if len(costs) >= 2 * rounds:
                before, latest = np.mean(costs[-2 * rounds : -rounds]), np.mean(costs[-rounds:])
                if latest < limit and latest > _STALLED_RATIO * before:
                    return True
        return False

    def _step(
        self, point: Real, scale: tuple[Real, ...], chosen: NDArray[np.int64]
    ) -> tuple[Real, tuple[Real, ...], float, Real]:
        """Improve all phases by one step on a subset of the settings.

        Returns:
            New phases, square roots of the power levels, mean squared residual, and for each phase the mean squared
            residual of the readings that depend on it.
        """
        size = len(point)
        matrix, slope = np.zeros((size, size)), np.zeros(size)
        sensitivity, off = np.zeros(size), np.zeros(size)
        gain = [np.zeros((2, len(part))) for part in scale]
        total, count = 0.0, 0.0
        for first in range(0, len(chosen), _SETTINGS_PER_CHUNK):
            part = chosen[first : first + _SETTINGS_PER_CHUNK]
            source = self._source[part]
            monitors = self._rng.permutation(self._amplitude.shape[1])[: self._plan.monitors]
            monitor = np.tile(monitors, (len(part), 1))
            self._work += searched_work(self._model.mesh.n_pucs) * monitor.size
            amplitude, derivative, by_second = self._linearise(point, part, monitor, *scale[2:])
            factor = scale[0][source][:, None] * scale[1][monitor]
            weight = self._weight[part[:, None], monitor]
            residual = (self._amplitude[part[:, None], monitor] - factor * amplitude) * weight
            total, count = total + float((residual**2).sum()), count + float((weight > 0.0).sum())
            # Readings off by more than half of the mean amplitude belong to another valley and count less.
            root = np.sqrt(_HUBER_RESIDUAL / np.maximum(np.abs(residual), _HUBER_RESIDUAL))
            derivative *= (factor * weight * root).astype(np.float32)[..., None]
            flat = derivative.reshape(-1, size)
            matrix += flat.T @ flat
            slope += flat.T @ (residual * root).astype(np.float32).ravel()
            power = flat**2
            sensitivity, off = sensitivity + power.sum(axis=0), off + (residual**2).astype(np.float32).ravel() @ power
            only_source = source[:, None] + 0 * monitor
            levels: list[tuple[NDArray[np.int64], NDArray[np.floating]]]
            levels = [(only_source, amplitude), (monitor, amplitude), (only_source, by_second)]
            for (where, by_level), sums in zip(levels, gain, strict=False):
                by_root = factor * by_level * weight * root
                np.add.at(sums[0], where, residual * root * by_root)
                np.add.at(sums[1], where, by_root**2)
        misfit: Real = np.divide(off, sensitivity, out=np.zeros(size), where=sensitivity > 0.0)
        point = point + self._phase_step(matrix, slope)
        return point, self._update_levels(scale, gain), total / max(count, 1.0), misfit

    def _linearise(
        self, point: Real, part: NDArray[np.int64], monitor: NDArray[np.int64], second: Real | None = None
    ) -> tuple[Real, Single, Single]:
        n_pucs, n_phases, source = self._n_pucs, self._n_phases, self._source[part]
        # Light passes joints and PUCs alternately, so a phase common to all PUCs equals a phase common to all joints.
        joint = point[n_pucs:n_phases] + point[n_phases:][source][:, None]
        heated = self._heated[0][part]
        amplitude, by_phase = self._model.linearise(
            heated[:, 0::2] + point[:n_pucs], heated[:, 1::2], joint + self._heated[1][part], source, monitor, second
        )
        by_phase, by_second = by_phase[..., :n_phases], by_phase[..., n_phases:].sum(axis=-1)
        derivative = np.zeros((*by_phase.shape[:2], len(point)), dtype=np.float32)
        derivative[..., :n_phases] = by_phase
        if self._plan.source_phase_rad:
            common = by_phase[..., n_pucs:].sum(axis=-1)
            derivative[np.arange(len(part)), :, n_phases + source] = common
        return amplitude, derivative, by_second

    def _scan_frequencies(self, point: Real, scale: tuple[Real, ...]) -> Real:
        spread = self._plan.source_phase_rad
        count = int(np.ceil(_SCAN_RANGE_SIGMA * spread / _SCAN_STEP_RAD))
        centre = float(np.median(point[self._n_phases :]))
        shifts = centre + np.arange(-count, count + 1) * _SCAN_STEP_RAD
        # The prior spread of the lasers decides where readings do not.
        prior = ((shifts - centre) / spread) ** 2 * self._plan.source_prior
        result = point.copy()
        for source in range(self._n_sources):
            part = self._rng.permutation(np.flatnonzero(self._source == source))[:_SCAN_SETTINGS]
            costs = [self._unexplained(point, scale, part, source, float(shift)) for shift in shifts]
            self._work += SCAN_WORK * len(shifts) * len(part) * self._amplitude.shape[1]
            result[self._n_phases + source] = shifts[int(np.argmin(costs + prior))]
        return result

    def _unexplained(
        self, point: Real, scale: tuple[Real, ...], part: NDArray[np.int64], source: int, common_rad: float
    ) -> float:
        every = np.tile(np.arange(self._amplitude.shape[1]), (len(part), 1))
        joint = point[self._n_pucs : self._n_phases] + common_rad + self._heated[1][part]
        heated = self._heated[0][part]
        upper, lower = heated[:, 0::2] + point[: self._n_pucs], heated[:, 1::2]
        amplitude = self._model.predict(upper, lower, joint, source, every, *scale[2:])
        residual = (self._amplitude[part] - scale[0][source] * scale[1] * amplitude) * self._weight[part]
        return float(np.minimum(residual**2, _HUBER_RESIDUAL**2).mean())

    def _phase_step(self, matrix: Real, slope: Real) -> Real:
        """Return the damped step of all phases, each limited to half a radian."""
        diagonal = np.diag(matrix)
        phases = self._n_phases
        # Adding the mean keeps phases without light from running away.
        damping = _DAMPING * (diagonal + diagonal[:phases].mean())
        if self._plan.source_phase_rad:
            damping[phases:] += diagonal[phases:].mean() * _DAMPING
        step = np.linalg.solve(matrix + np.diag(damping), slope)
        return np.clip(step, -_MAX_TURN_RAD, _MAX_TURN_RAD)

    def _update_levels(self, scale: tuple[Real, ...], gain: list[Real]) -> tuple[Real, ...]:
        moved = [
            part * np.exp(_LEVEL_STEP * sums[0] / (sums[1] + _LEVEL_PRIOR * sums[1].mean()))
            for part, sums in zip(scale, gain, strict=True)
        ]
        # Readings cannot determine the common factor of sources and monitors: monitors get geometric mean 1.
        common = np.exp(np.log(moved[1]).mean())
        return moved[0] * common, moved[1] / common, *moved[2:]


def _to_point(search_result: SearchResult) -> Real:
    return np.concatenate([search_result.passive_rad, search_result.joint_rad, search_result.source_phase_rad])


def is_same_valley(first: SearchResult, second: SearchResult, max_difference: float = _SAME_VALLEY_UNEXPLAINED) -> bool:
    """Return whether two searches ended in the same minimum, with equal phases and equal unexplained light."""
    difference_rad = np.abs(wrapped(first.passive_rad - second.passive_rad))
    larger = max(first.unexplained, second.unexplained)
    is_same_light = abs(first.unexplained - second.unexplained) <= max_difference * larger
    return is_same_light and bool(np.quantile(difference_rad, _SAME_VALLEY_QUANTILE) < _SAME_VALLEY_RAD)


def is_same_valley_from_other_search(first: SearchResult, second: SearchResult) -> bool:
    """Return whether two searches with different starts ended in the same minimum."""
    return is_same_valley(first, second, _SAME_VALLEY_UNEXPLAINED_OTHER_SEARCH)


def _wrap_half_turns(source_rad: Real) -> Real:
    """Shift source phases by half turns, so that each is near the median.

    Half a turn per PUC has no effect on loops with an even number of PUCs.
    """
    middle = float(np.median(source_rad))
    return middle + (source_rad - middle + 0.5 * np.pi) % np.pi - 0.5 * np.pi
