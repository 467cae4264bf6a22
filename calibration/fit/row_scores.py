"""Scores of additional physical effects (rows of the table ``PHYSICS``).

See :mod:`calibration.fit.growth`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.model.arrays import Real, Single
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import information_of, white_rows
from calibration.model.physics import PHYSICS, ROWS, PairDirections, Physics
from calibration.model.space import ParameterSpace
from calibration.model.symmetric import Sparse, inverse_of, root_of, solved, subtract_product

Placed = Sequence[tuple[slice, float]]
"""Effects to score together: for each, the slice of its parameters and its prior width."""
MIN_GAIN = 25.0
"""Smallest gain (in log evidence, and in log likelihood of held-out readings) for which an effect is added."""
# Rows with at least this share of the best gain count as equal; the cheapest of them is chosen.
_NEAR_BEST_GAIN_FRACTION = 0.8
# Number of readings per matrix product.
_AT_ONCE = 3_000
# Consecutive settings in one half: neighbours share most of their heat and must not be split.
_STRETCH = 40
# Consecutive settings whose errors are assumed to be correlated.
_SETTINGS_PER_SEGMENT = 20
_WIDTHS = 121
# Information of the readings about a direction, relative to that of the prior, below which it does not count.
_MIN_INFORMATION = 1e-3
# Probability that a chip has a certain effect, before its readings are known (assumed).
_PRESENT = 0.2
# Decades of widths below the largest that are evaluated.
_DECADES = 4.0


@dataclass(frozen=True, eq=False)
class RowScore:
    """Predicted gain of adding one physical effect to a fit of P parameters.

    Attributes:
        gain: Gain in log evidence.
        held_out: Gain in log likelihood of held-out settings, scaled to the same amount of data.
        width: Most likely prior width of the parameters of the effect.
        shift: Returns the value of :attr:`excluded_effect`, which only final errors need.
        pairs: Combinations of pair crosstalk, if the effect is pair crosstalk.
    """

    name: str
    gain: float
    held_out: float
    width: float
    shift: Callable[[], Single]
    pairs: PairDirections | None = None

    @cached_property
    def excluded_effect(self) -> Single:
        """Factor F, ``(P, k)``, of the covariance F·Fᵀ of the fitted parameters if the effect is left out."""
        effect = self.shift()
        object.__setattr__(self, "shift", lambda: effect)  # the function keeps the equations of all effects in memory
        return effect

    @property
    def is_supported_by_data(self) -> bool:
        """Whether evidence and held-out settings both support adding the effect."""
        return self.gain > MIN_GAIN and self.held_out > MIN_GAIN

    def __str__(self) -> str:
        return f"{self.name}: gain {self.gain:.0f}, held out {self.held_out:.0f}, width {self.width:.3g}"


Halves = tuple[tuple[Real, Real], tuple[Real, Real]]
"""For each half of the settings, the information of P fitted and m effect parameters, and the slopes of all of them."""


@dataclass(frozen=True, eq=False)
class Equations:
    """Normal equations of P fitted parameters and p parameters of further effects.

    The equations of single halves of the settings are calculated for chosen effect parameters only: those of all need
    a gigabyte on a large mesh.

    Attributes:
        main: For each half, shape ``(P, P)``; information about the fitted parameters.
        across: Shape ``(P, p)``; cross terms between fitted and effect parameters, of all settings.
        inner: Shape ``(p, p)``; information about the effect parameters, of all settings.
        slope: Shape ``(P + p,)``; slope of the log likelihood, of all settings.
        halves: Returns the equations of both halves for chosen effect parameters.
    """

    main: tuple[Real, Real]
    across: Real
    inner: Real
    slope: Real
    halves: Callable[[NDArray[np.int64]], Halves]

    @classmethod
    def of_halves(cls, informations: tuple[Real, Real], slopes: tuple[Real, Real], n: int) -> Equations:
        """Return the equations of n fitted parameters and all others, given for each half of the settings."""
        total = informations[0][:, n:] + informations[1][:, n:]

        def halves(chosen: NDArray[np.int64]) -> Halves:
            places = np.concatenate([np.arange(n), n + chosen])
            first, second = (information[np.ix_(places, places)] for information in informations)
            return (first, second), (slopes[0][places], slopes[1][places])

        main = informations[0][:n, :n], informations[1][:n, :n]
        return cls(main, total[:n], total[n:], slopes[0] + slopes[1], halves)


def joined(main: Real, across: Real, inner: Real) -> Real:
    """Return the information of P fitted and m effect parameters, shape ``(P + m, P + m)``."""
    return np.block([[main, across], [across.T, inner]]) if inner.size else main


class Pass:
    """Derivatives of all readings by the parameters of a fit and of small effects, in units of noise.

    Args:
        small: Names of effects with few parameters, which follow those of the fit in the vector.

    Attributes:
        main: Number of fitted parameters, P.
        places: Position of the parameters of each small effect, by name.
        by_segment: Shape ``(c, P)``; slopes in each of c groups of consecutive settings.
        by_monitor: Shape ``(M, P)``; slopes at each of M monitors.
        misfit: Shape ``(settings, M)``; residuals in units of noise.
        rows: Shape ``(settings, M, P + p)``; derivatives in units of noise.
        by_phase: Shape ``(settings, M, W)``; derivatives by the phases of W waveguides.
        heat_mw: Shape ``(settings, heaters)``; heat of every heater in every setting.
    """

    def __init__(self, model: MeshModel, fit: FitResult, likelihood: Likelihood, small: Sequence[str]) -> None:
        widths = {row.name: row.usual for row in PHYSICS if row.name in (*model.space.physics.names, *small)}
        wider = model.with_physics(Physics(widths, model.space.physics.pairs, model.space.physics.fixed_values))
        groups = (wider.space.groups[name] for name in model.space.groups)
        main = np.concatenate([np.arange(group.start, group.stop) for group in groups])[fit.free]
        groups_of = {name: wider.space.group(name) for name in small}
        columns = np.concatenate([main, *(np.arange(group.start, group.stop) for group in groups_of.values())])
        self.main, size = len(main), len(columns)
        ends = np.cumsum([0, *(group.stop - group.start for group in groups_of.values())])
        self.places = {name: slice(int(ends[i]), int(ends[i + 1])) for i, name in enumerate(groups_of)}
        self.by_monitor = np.zeros((len(model.space.monitors), self.main))
        self.misfit: Real = np.zeros(likelihood.target_ma.shape)
        self.half = _half(np.arange(len(self.misfit)))
        waveguides = 2 * model.mesh.n_pucs + len(model.mesh.joints)
        self.rows: Single = np.empty((*self.misfit.shape, size), np.float32)
        self.by_phase: Single = np.empty((*self.misfit.shape, waveguides), np.float32)
        self.heat_mw: Single = np.empty((len(self.misfit), 2 * model.mesh.n_pucs), np.float32)
        stretches = _segment_numbers(likelihood.observations.source)
        self.by_segment = np.zeros((int(stretches.max()) + 1, self.main))
        for part in white_rows(wider, fit.parameters, likelihood, columns):
            settings = part.settings
            self.misfit[settings], self.rows[settings] = part.misfit, part.rows
            self.by_phase[settings], self.heat_mw[settings] = part.by_phase, part.heat_mw
            slopes = part.rows[..., : self.main] * part.misfit[..., None].astype(np.float32)
            self.by_monitor += slopes.sum(axis=0)
            np.add.at(self.by_segment, stretches[settings], slopes.sum(axis=1))
        self.information = self._main_information(0), self._main_information(1)

    def equations(self) -> Equations:
        """Return the normal equations of the fitted parameters and those of all small effects."""
        n, size = self.main, self.rows.shape[-1]
        across, inner, slope = np.zeros((n, size - n)), np.zeros((size - n, size - n)), np.zeros(size)
        for half in (0, 1):
            for settings in self._settings(half):
                block = self.rows[settings].reshape(-1, size).astype(np.float64)
                across += block[:, :n].T @ block[:, n:]
                inner += information_of(block[:, n:])
                slope += self.misfit[settings].ravel() @ block
        return Equations(self.information, across, inner, slope, self.halves)

    def halves(self, chosen: NDArray[np.int64]) -> Halves:
        """Return the equations of both halves of the settings for the fitted and the chosen effect parameters."""
        n, columns = self.main, np.concatenate([np.arange(self.main), self.main + chosen])
        informations, slopes = list[Real](), list[Real]()
        for half in (0, 1):
            across, inner, slope = np.zeros((n, len(chosen))), np.zeros((len(chosen),) * 2), np.zeros(len(columns))
            for settings in self._settings(half):
                block = self.rows[settings].reshape(-1, self.rows.shape[-1])[:, columns].astype(np.float64)
                across += block[:, :n].T @ block[:, n:]
                inner += information_of(block[:, n:])
                slope += self.misfit[settings].ravel() @ block
            informations.append(joined(self.information[half], across, inner))
            slopes.append(slope)
        return (informations[0], informations[1]), (slopes[0], slopes[1])

    def _main_information(self, half: int) -> Real:
        information = np.zeros((self.main, self.main))
        for settings in self._settings(half):
            information += information_of(self.rows[settings][..., : self.main].astype(np.float64))
        return information

    def _settings(self, half: int) -> Iterator[NDArray[np.int64]]:
        in_half = np.flatnonzero(self.half == half)
        at_once = max(_AT_ONCE // self.misfit.shape[1], 1)
        return (in_half[first : first + at_once] for first in range(0, len(in_half), at_once))


class Selection:
    """Selection of the physical effects to add to a fit of P parameters, one after the other.

    Args:
        equations: Normal equations of the fitted and all effect parameters; overwritten.
        prior_information: Shape ``(P, P)``; prior information about the fitted parameters.
        prior_slope: Shape ``(P,)``; derivative of the cost of the prior by the fitted parameters.
        places: Position of the parameters, by effect.
        share: Fraction of the settings that are used.
    """

    def __init__(
        self,
        equations: Equations,
        prior_information: Sparse,
        prior_slope: Real,
        places: Mapping[str, slice],
        share: float,
    ) -> None:
        self._halves, self._prior_information, self._prior_slope = equations.halves, prior_information, prior_slope
        self._share, self._places, n = share, places, len(prior_slope)
        right = np.column_stack([equations.across, equations.slope[:n] - prior_slope])
        following = solved(equations.main[0] + equations.main[1] + prior_information, right)
        slope: Real = equations.slope[n:] - equations.across.T @ following[:, -1]
        information = equations.inner
        subtract_product(information, equations.across.T, following[:, :-1])
        scores = [self._score(name, information[group, group], slope[group]) for name, group in places.items()]
        self._scores = sorted(scores, key=lambda score: -score.gain)
        places_by_gain = {score.name: places[score.name] for score in self._scores}
        by_row = following[:, :-1].astype(np.float32)
        self._effects = ExcludedEffects(by_row, information, slope, places_by_gain, share)
        candidates = [score.name for score in self._scores if score.gain >= MIN_GAIN]
        # Joint gains are calculated only for rows that may be required.
        self._candidate_parameters = np.concatenate(
            [np.zeros(0, np.int64), *(parameter_numbers(places[name]) for name in candidates)]
        )
        ends = np.cumsum([0, *(places[name].stop - places[name].start for name in candidates)])
        self._candidate_places = {name: slice(int(ends[i]), int(ends[i + 1])) for i, name in enumerate(candidates)}

    def effect(self, name: str) -> tuple[Single, Real, Real]:
        """Return how the fitted parameters follow an effect, ``(P, k)``, and its information and slope."""
        group, effects = self._places[name], self._effects
        return effects.by_row[:, group], effects.information[group, group], effects.slope[group]

    def rows(self, excluded: Collection[str]) -> list[RowScore]:
        """Return the scores of all effects, the largest gain first."""
        rows = (self._held_out(score, ()) if score.name in excluded else score for score in self._scores)
        return [self._with_effect(row) for row in rows]

    def chosen(self, excluded: Collection[str]) -> list[RowScore]:
        """Return the effects to add, chosen one by one by gain and computing time."""
        candidates, chosen = self._candidate_parameters, list[RowScore]()
        inner, outer = self._effects.information[np.ix_(candidates, candidates)], self._effects.slope[candidates]
        order = [row.name for row in PHYSICS]
        places = {name: group for name, group in self._candidate_places.items() if name not in excluded}
        while True:
            remaining = [name for name in places if name not in {row.name for row in chosen}]
            scores = sorted(
                (self._score(name, inner[places[name], places[name]], outer[places[name]]) for name in remaining),
                key=lambda row: -row.gain,
            )
            able: list[RowScore] = []
            for score in scores:
                # Rows with less gain than the best supported row need no further check.
                if score.gain < MIN_GAIN or (able and score.gain < _NEAR_BEST_GAIN_FRACTION * able[0].gain):
                    break
                if (held_out := self._held_out(score, chosen)).is_supported_by_data:
                    able.append(held_out)
            if not able:
                return chosen
            row = min(able, key=lambda score: order.index(score.name))
            group = places[row.name]
            chosen.append(self._alone(row, inner[group, group], outer[group]))
            # Eliminate the parameters of this row from the remaining rows.
            own = inner[group, group] + np.eye(group.stop - group.start) * row.width**-2.0
            turned = solved(own, np.column_stack([inner[group], outer[group]]))
            by_own = inner[:, group].copy()
            inner, outer = inner - by_own @ turned[:, :-1], outer - by_own @ turned[:, -1]

    def _score(self, name: str, information: Real, slope: Real) -> RowScore:
        widths, evidence = evidence_by_width(information, slope, ROWS[name].largest)
        best = int(evidence.argmax())
        return RowScore(name, float(evidence[best]) / self._share, 0.0, float(widths[best]), _no_shift)

    def _alone(self, score: RowScore, information: Real, slope: Real) -> RowScore:
        by_row, places = self._effects.by_row[:, self._places[score.name]].copy(), {score.name: slice(0, len(slope))}
        effects = ExcludedEffects(by_row, information.copy(), slope.copy(), places, self._share)
        return replace(score, shift=lambda: effects.factors[score.name])

    def _with_effect(self, score: RowScore) -> RowScore:
        effects = self._effects  # a score must not keep all equations in memory
        return replace(score, shift=lambda: effects.factors[score.name])

    def _held_out(self, score: RowScore, added: Sequence[RowScore]) -> RowScore:
        if score.gain < MIN_GAIN:
            return score
        other_places = [(self._candidate_places[score.name], score.width) for score in added]
        own_place = (self._candidate_places[score.name], score.width)
        gain = sum(
            validation.gain([*other_places, own_place]) - validation.gain(other_places)
            for validation in self._cross_validations
        )
        return replace(score, held_out=gain / self._share)

    @cached_property
    def _cross_validations(self) -> tuple[_CrossValidation, ...]:
        informations, slopes = self._halves(self._candidate_parameters)
        return tuple(
            _CrossValidation.of(informations, slopes, half, self._prior_information, self._prior_slope)
            for half in (0, 1)
        )


def predicted_step(
    halves: Callable[[NDArray[np.int64]], Halves],
    effects: Placed,
    prior_information: Sparse,
    prior_slope: Real,
    share: float,
) -> Real:
    """Return the change of P fitted parameters and of k effect parameters, ``(P + k,)``, in a fit with these effects.

    Args:
        halves: Returns the normal equations of the fitted parameters and chosen effect parameters.
        effects: The effects to fit.
        prior_information: Shape ``(P, P)``; prior information about the fitted parameters, times ``share``.
        prior_slope: Shape ``(P,)``; derivative of the cost of the prior, times ``share``.
        share: Fraction of the settings that are used.
    """
    numbers = np.concatenate([np.zeros(0, np.int64), *(parameter_numbers(group) for group, _ in effects)])
    (first, second), (slope, other_slope) = halves(numbers)
    information, n = first + second, len(prior_slope)
    information[:n, :n] = information[:n, :n] + prior_information
    widths = np.concatenate([np.zeros(0), *(np.full(group.stop - group.start, width) for group, width in effects)])
    effect = np.arange(n, len(information))
    information[effect, effect] += share * widths**-2.0
    slope = slope + other_slope
    slope[:n] -= prior_slope
    return solved(information, slope)


def parameter_numbers(group: slice) -> NDArray[np.int64]:
    """Return the parameter numbers in a slice."""
    return np.arange(group.start, group.stop)


def _mean_square_width(name: str, information: Real, slope: Real) -> float:
    """Return the mean square of the width of an effect over chips with the effect and chips without it.

    Before the readings, widths up to the usual one are equally likely in their logarithm. Above it, their probability
    falls with the square of the width.
    """
    row = ROWS[name]
    widths, evidence = evidence_by_width(information, slope, row.largest)
    before = np.where(widths <= row.largest, np.minimum(1.0, (row.usual / widths) ** 2), 0.0)
    highest = max(float(evidence[widths <= row.largest].max()), 0.0)
    weight = before * np.exp(np.minimum(evidence - highest, 0.0))
    without = before.sum() * (1.0 - _PRESENT) / _PRESENT * np.exp(-highest)
    return float((weight * widths**2).sum() / (weight.sum() + without))


def _no_shift() -> Single:
    return np.zeros((0, 0), np.float32)


@dataclass(frozen=True, eq=False)
class ExcludedEffects:
    """Errors of P fitted parameters due to all effects that a fit leaves out.

    Attributes:
        by_row: Shape ``(P, p)``; change of the fitted parameters by the p parameters of the effects.
        information: Shape ``(p, p)``; information of the used settings about the effects.
        slope: Shape ``(p,)``; slope of the log likelihood.
        places: Position of the parameters by effect, the effect with the largest gain first.
        share: Fraction of the settings that are used.
    """

    by_row: Single
    information: Real
    slope: Real
    places: Mapping[str, slice]
    share: float

    @cached_property
    def factors(self) -> dict[str, Single]:
        """By effect, the factor F of the covariance F·Fᵀ of the fitted parameters if the effect is left out.

        Each effect explains what the effects before it leave unexplained, so that the sum of all covariances is that of
        a fit which includes all effects.
        """
        by_row, factors = self.by_row.astype(np.float64), dict[str, Single]()
        used = np.column_stack([self.information, self.slope])
        all_settings = used / self.share
        for name, group in self.places.items():
            width2 = _mean_square_width(name, used[group, group], used[group, -1])
            prior = np.eye(group.stop - group.start) / width2
            covariance = inverse_of(all_settings[group, group] + prior)
            moved = covariance @ all_settings[group, -1]
            factors[name] = (by_row[:, group] @ np.column_stack([root_of(covariance), moved])).astype(np.float32)
            subtract_product(by_row, by_row[:, group] @ covariance, all_settings[group, :-1])
            subtract_product(all_settings, all_settings[:, group] @ covariance, all_settings[group].copy())
            subtract_product(used, used[:, group] @ inverse_of(used[group, group] + prior), used[group].copy())
        return factors


def _segment_numbers(source: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the segment of every setting.

    A segment is a limited number of consecutive settings with the same source.
    """
    begins = np.concatenate([[True], np.diff(source) != 0])
    since = np.arange(len(source)) - np.maximum.accumulate(np.where(begins, np.arange(len(source)), 0))
    number: NDArray[np.int64] = np.cumsum(begins | (since % _SETTINGS_PER_SEGMENT == 0)) - 1
    return number


def _half(settings: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the half (0 or 1) to which every setting belongs, for cross-validation."""
    return settings // _STRETCH % 2


def evidence_by_width(information: Real, slope: Real, largest: float) -> tuple[Real, Real]:
    """Return trial prior widths and the log evidence of each."""
    values, vectors = np.linalg.eigh(0.5 * (information + information.T))
    values, projections = np.maximum(values, 0.0), (vectors.T @ slope) ** 2
    widths = largest * np.logspace(-_DECADES, 0.5, _WIDTHS)
    determinant_terms = 1.0 + np.outer(widths**2, values)
    evidence = 0.5 * (widths[:, None] ** 2 * projections / determinant_terms - np.log(determinant_terms)).sum(axis=1)
    return widths, evidence


def fitted_prior_width(space: ParameterSpace, fit: FitResult, name: str, width: float) -> float:
    """Estimate the prior width of an effect again from its fitted parameters, limited to the largest in ``PHYSICS``.

    ``width`` is the prior width that the fit used.
    """
    free = np.flatnonzero(fit.free)
    group = space.groups[name]
    chosen = (free >= group.start) & (free < group.stop)
    information = np.linalg.inv(fit.inverse[np.ix_(chosen, chosen)])
    row, slope = ROWS[name], information @ fit.vector[free[chosen]]
    by_readings = information - np.eye(len(information)) * width**-2
    values, vectors = np.linalg.eigh(0.5 * (by_readings + by_readings.T))
    # Directions that only the prior determines have a slope because the fit ends near its minimum, not at it. This
    # slope would call for any width.
    measured = vectors[:, values > _MIN_INFORMATION * width**-2]
    if not measured.size:
        return width
    widths, evidence = evidence_by_width(by_readings, measured @ (measured.T @ slope), row.largest)
    return float(min(widths[int(evidence.argmax())], row.largest))


@dataclass(frozen=True, eq=False)
class _CrossValidation:
    """Cross-validation of m effect parameters: one half of the settings gives the values, the other half tests them.

    Attributes:
        information: Shape ``(m, m)``; information of the first half.
        slope: Shape ``(m,)``; slope of the log likelihood of the first half.
        test_information: Shape ``(m, m)``; information of the testing half, at the values from the first half.
        test_slope: Shape ``(m,)``; slope of the log likelihood of the testing half.
    """

    information: Real
    slope: Real
    test_information: Real
    test_slope: Real

    @classmethod
    def of(
        cls,
        informations: tuple[Real, Real],
        slopes: tuple[Real, Real],
        half: int,
        prior_information: Sparse,
        prior_slope: Real,
    ) -> _CrossValidation:
        """Return the cross-validation in which half ``half`` of the settings gives the values.

        The parameters of the chip model are eliminated: they follow every change of the effect parameters.

        Args:
            informations: Information of both halves, for the chip model's parameters and then the effect parameters.
            slopes: Slope of the log likelihood of both halves, in the same order.
            half: Half that gives the values, 0 or 1.
            prior_information: Information of the prior of the chip model's parameters.
            prior_slope: Gradient of the prior at the fit; each half has half of the prior.
        """
        n, information, test_information = len(prior_slope), informations[half], informations[1 - half]
        slope, test_slope = slopes[half], slopes[1 - half]
        right = np.column_stack([information[:n, n:], slope[:n] - 0.5 * prior_slope])
        following = solved(information[:n, :n] + 0.5 * prior_information, right)
        by_row, slope_step = following[:, :-1], following[:, -1]
        test_response = test_information[:n, :n] @ following - np.column_stack([test_information[:n, n:], np.zeros(n)])
        across = by_row.T @ test_response
        return cls(
            information[n:, n:] - information[n:, :n] @ by_row,
            slope[n:] - information[n:, :n] @ slope_step,
            across[:, :-1] + test_information[n:, n:] - test_information[n:, :n] @ by_row,
            test_slope[n:] - by_row.T @ test_slope[:n] + across[:, -1] - test_information[n:, :n] @ slope_step,
        )

    def gain(self, rows: Placed) -> float:
        """Return the increase of the log likelihood of the testing half if groups of effect parameters are fitted.

        Args:
            rows: Group of parameters, and width of its prior, for every group to fit.
        """
        chosen = np.concatenate([np.zeros(0, np.int64), *(np.arange(group.start, group.stop) for group, _ in rows)])
        inner = self.information[np.ix_(chosen, chosen)].copy()
        spread = np.concatenate([np.zeros(0), *(np.full(group.stop - group.start, width) for group, width in rows)])
        inner[np.diag_indices_from(inner)] += spread**-2.0
        step = solved(inner, self.slope[chosen]) if len(chosen) else np.zeros(0)
        test_information = self.test_information[np.ix_(chosen, chosen)]
        return float(self.test_slope[chosen] @ step - 0.5 * step @ test_information @ step)
