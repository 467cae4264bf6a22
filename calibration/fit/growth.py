"""What physics the light asks for beyond the model: the score of every row of the table, from one pass over the data.

At the end of a fit the slope of the likelihood by parameters that are not in it yet, and their information with that
of the fitted parameters taken out, tell without another fit how much better the light would be explained: the evidence
of a row whose parameters have the width s about zero,

    L(s) = Σ ½·(s²u²/(1 + s²λ) - ln(1 + s²λ))        λ, u: eigenvalues of that information, slope along its vectors

(Laplace; exact for a linear model; a score test of a component of variance at s = 0, Rao 1948). Whether the parameters
are worth having is asked of light that did not find them: each half of the settings judges what the other half says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import Single, information_of, white_rows
from calibration.model.physics import MOST_PAIRS, PHYSICS, ROWS, PairDirections, Physics, size_of
from calibration.model.priors import Prior
from calibration.model.space import LAW_TERMS, ParameterSpace
from calibration.model.symmetric import solved
from calibration.model.work import BESIDE, DIRECTIONS, SCORED, pairs_work
from lumion_hw.mesh.record import CROSSTALK_PAIRS

Real = NDArray[np.float64]

_Placed = Sequence[tuple[slice, float]]
"""Rows by where they are among all parameters, with their widths."""
LEAST_GAIN = 25.0
"""Gain of the evidence, and of light that is held out, below which nothing is taken in."""
# Rows that gain this share of the best are as good: of these the cheapest is taken.
_ABLE = 0.8
# Readings that a pass looks at.
_MOST_READINGS = 12_000
# The same where directions of pairs are chosen for all settings.
_MOST_FOR_PAIRS = 16_000
# Directions of pairs that light tells less than this share of, of what their width is, are not fitted.
_TOLD = 0.1
# Numbers held at once for the directions of pairs, in single precision: 400 MB.
_MOST_NUMBERS = 1e8
# Readings whose information is summed up in one product.
_AT_ONCE = 3_000
# Settings whose phases are held at once for all directions of pairs.
_PART = 128
# Settings in a row that belong to one half: those next to each other have most of their heat in common.
_STRETCH = 40
# Settings in a row whose errors are taken to belong together.
_TOGETHER = 20
_OVERSAMPLED = 20
# Directions at random by which traces over all pairs are estimated: to an eighth.
_PROBES = 64
_PROBES_BESIDE = 256
# Slopes by pairs beyond what noise makes them, from which on pairs are looked at one direction at a time.
_ASKED_SIGMA = 3.0
# Share of what laws depart by at their points that the best three terms leave, rms over heat from a sixth of a turn up
# to all that heaters are driven to (the points independent, linear between them).
_LEFT_BY_TERMS = 0.6
_WIDTHS = 121
# Decades of widths that are looked at, below the largest.
_DECADES = 4.0


@dataclass(frozen=True, eq=False)
class RowScore:
    """What a row of the table would explain.

    Attributes:
        name: The row.
        gain: Gain of the evidence, in units of the logarithm.
        held_out: Gain of the likelihood of settings that did not find the parameters, by the same amount.
        width: Width of its parameters that explains most.
        left_out: Shape ``(P, k)``, in single precision; F, with F·Fᵀ the covariance of the parameters of the fit by
            leaving these out, which have not been found to be zero: of all rows together it would fill gigabytes.
        pairs: Directions of pairs, if it is the row of these.
    """

    name: str
    gain: float
    held_out: float
    width: float
    left_out: Single
    pairs: PairDirections | None = None

    @property
    def is_asked(self) -> bool:
        """Whether light asks for it: light that found its parameters and light that did not."""
        return self.gain > LEAST_GAIN and self.held_out > LEAST_GAIN

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.name}: gain {self.gain:.0f}, held out {self.held_out:.0f}, width {self.width:.3g}"


@dataclass(frozen=True, eq=False)
class _Gram:
    """Normal equations of P fitted parameters and p of rows, for each half of the settings.

    Information of parameters of rows is summed up for those that are asked for: on a large mesh there are thousands,
    and few rows gain anything.

    Attributes:
        main: Each of shape ``(P, P)``; information of the fitted parameters.
        across: Each of shape ``(P, p)``; theirs with those of rows.
        slope: Each of shape ``(P + p,)``.
        inner: Returns the information of some of those of rows, each ``(k, k)``, by their numbers.
    """

    main: tuple[Real, Real]
    across: tuple[Real, Real]
    slope: tuple[Real, Real]
    inner: Callable[[NDArray[np.int64]], tuple[Real, Real]]

    def among(self, chosen: NDArray[np.int64]) -> tuple[tuple[Real, Real], tuple[Real, Real]]:
        """Return information and slope of the fitted parameters and some of those of rows, for each half."""
        inner = self.inner(chosen)
        first, second = (
            np.block([[self.main[half], self.across[half][:, chosen]], [self.across[half][:, chosen].T, inner[half]]])
            for half in (0, 1)
        )
        n = len(self.main[0])
        slopes = [np.concatenate([slope[:n], slope[n + chosen]]) for slope in self.slope]
        return (first, second), (slopes[0], slopes[1])


@dataclass(frozen=True, eq=False)
class Tail:
    """What pairs in directions that are not fitted do to P fitted parameters.

    Attributes:
        covariance: Shape ``(P, P)``.
        as_noise: Shape ``(P,)``; the part of the variances by noise that stands for it in the weights of readings.
    """

    covariance: Real
    as_noise: Real


@dataclass(frozen=True, eq=False)
class Scores:
    """What one pass over the data says about a fit; P free parameters.

    Attributes:
        rows: Scores of the rows that are not in it, those first that gain most.
        chosen: The rows to take in together: each gains beside those before it.
        information: Shape ``(P, P)``; Fisher information of the settings looked at, where the fit ended.
        by_stretch: Shape ``(c, P)``; slope of the likelihood by stretches of settings with the same light.
        by_monitor: Shape ``(M, P)``; the same by monitors.
        tail: What pairs do in directions that are not fitted; ``None`` where pairs are not fitted.
        by_reading: Shape ``(N, M)``; squares of the white residuals.
        by_source: Shape ``(S,)``; their mean by source of the light.
    """

    rows: tuple[RowScore, ...]
    chosen: tuple[RowScore, ...]
    information: Real
    by_stretch: Real
    by_monitor: Real
    tail: Tail | None
    by_reading: Real
    by_source: Real


def score_rows(
    model: MeshModel,
    fit: FitResult,
    likelihood: Likelihood,
    prior: Prior,
    names: Sequence[str],
    but: Collection[str] = (),
) -> Scores:
    """Return the scores of rows that a fit has not taken in, and what the same pass says about its errors.

    Args:
        model: The model of the fit.
        fit: The fit.
        likelihood: What it explains.
        prior: The prior of the fit, over all parameters of the model.
        names: The rows.
        but: Those that are not to be taken in, whatever they gain.
    """
    small, known = [name for name in names if name != CROSSTALK_PAIRS], model.space.physics
    but = {*but, *(row.name for row in PHYSICS if not row.fitted)}
    few = _thinned(likelihood, _MOST_READINGS, model, small)
    share = len(few.observations) / len(likelihood.observations)
    ahead = prior.information(fit.free) * share
    away = ahead @ (fit.vector - prior.mean)[fit.free]
    pass_ = _Pass(model, fit, few, small)
    found = _Selection(pass_.gram, ahead, away, pass_.places, share, {"law_deviation": _by_law(model.space, fit)})
    rows, chosen, tail = found.rows(but), found.chosen(but), None
    del found  # half a gigabyte on a large mesh, and pairs need as much
    if CROSSTALK_PAIRS in names:
        score = _Pairs(model, fit, pass_).score(ahead, [(pass_.places[row.name], row.width) for row in chosen], share)
        rows = sorted([*rows, score], key=lambda row: -row.gain)
        chosen = [*chosen, *([score] if score.is_asked and score.name not in but else [])]
    elif known.pairs is not None:
        tail = _Pairs(model, fit, pass_).beside(known.pairs, known.widths[CROSSTALK_PAIRS], few, ahead, share)
    return Scores(
        tuple(rows),
        tuple(chosen),
        pass_.gram.main[0] + pass_.gram.main[1],
        pass_.by_stretch,
        pass_.by_monitor,
        tail,
        pass_.misfit**2,
        np.array([_mean_square(pass_.misfit[few.observations.source == port]) for port in model.space.sources]),
    )


def pair_directions(
    model: MeshModel, fit: FitResult, likelihood: Likelihood, prior: Prior, before: PairDirections
) -> PairDirections:
    """Return the directions of pairs that light tells best, of a fit that has pairs in others.

    Light of further settings tells other combinations of pairs than that which directions were first chosen by.

    Args:
        model: The model of the fit.
        fit: The fit, of some of the settings at least.
        likelihood: The settings.
        prior: The prior of the fit, over all parameters of the model.
        before: The directions of the fit.
    """
    physics = model.space.physics
    widths = {name: width for name, width in physics.widths.items() if name != CROSSTALK_PAIRS}
    held = {CROSSTALK_PAIRS: fit.parameters.further[CROSSTALK_PAIRS]}
    other = model.beyond(Physics(widths, held=held))
    few, size = _thinned(likelihood, _MOST_FOR_PAIRS, other), other.space.size
    beside = replace(fit, free=fit.free[:size], vector=fit.vector[:size])
    share = len(few.observations) / len(likelihood.observations)
    pairs = _Pairs(model, fit, _Pass(other, beside, few, ()))
    ahead = prior.beyond(other.space).information(beside.free) * share
    return pairs.best(before, ahead, physics.widths[CROSSTALK_PAIRS], share)


def _thinned(likelihood: Likelihood, most_readings: int, model: MeshModel, small: Sequence[str] = ()) -> Likelihood:
    """Return a likelihood of as many settings as it takes to tell, evenly over the run, and as there is room for."""
    settings, monitors = likelihood.target_ma.shape
    sizes = (size_of(ROWS[name], model.mesh, len(model.space.sources), monitors) for name in small)
    each = model.space.size + sum(sizes) + 2 * model.mesh.n_pucs + len(model.mesh.joints)
    most = min(settings, max(min(most_readings, int(_MOST_NUMBERS / each)) // monitors, 1))
    return likelihood[np.unique(np.linspace(0, settings - 1, most).astype(np.int64))]


class _Selection:
    """Rows scored beside each other by the normal equations of all of them: one after the other is taken in.

    Args:
        gram: Of fitted parameters and those of all rows.
        ahead: Shape ``(P, P)``; information of the prior of the fitted ones.
        away: Shape ``(P,)``; its slope, with the sign of a cost.
        places: Where rows are among the parameters of all of them.
        share: Share of the settings that were looked at.
        errors: By name of a row that is not fitted, what errors of the fitted parameters it makes: ``left_out`` for a
            width of one, which its parameters need not be known for.
    """

    def __init__(
        self,
        gram: _Gram,
        ahead: Real,
        away: Real,
        places: Mapping[str, slice],
        share: float,
        errors: Mapping[str, Real] = MappingProxyType({}),
    ) -> None:
        self._gram, self._ahead, self._away, self._share, self._places = gram, ahead, away, share, places
        self._errors = errors
        n, slope = len(ahead), gram.slope[0] + gram.slope[1]
        self._across = gram.across[0] + gram.across[1]
        following = solved(gram.main[0] + gram.main[1] + ahead, np.column_stack([self._across, slope[:n] - away]))
        self._by_row = np.asarray(following[:, :-1], np.float64)
        self._outer: Real = slope[n:] - self._across.T @ following[:, -1]
        self._alone = {name: self._felt(_numbers(place)) for name, place in places.items()}
        self._scores = [self._score(name, *felt) for name, felt in self._alone.items()]
        asked = [score.name for score in self._scores if score.gain >= LEAST_GAIN]
        # Only of rows that light may ask for it is asked what they gain beside each other.
        self._asked = np.concatenate([np.zeros(0, np.int64), *(_numbers(places[name]) for name in asked)])
        ends = np.cumsum([0, *(places[name].stop - places[name].start for name in asked)])
        self._place_among_asked = {name: slice(int(ends[i]), int(ends[i + 1])) for i, name in enumerate(asked)}

    def _felt(self, chosen: NDArray[np.int64]) -> tuple[Real, Real]:
        """Return information and slope of some parameters of rows, the fitted ones following."""
        first, second = self._gram.inner(chosen)
        return first + second - self._across[:, chosen].T @ self._by_row[:, chosen], self._outer[chosen]

    def rows(self, but: Collection[str]) -> list[RowScore]:
        """Return the scores of all rows, those first that gain most; with held-out light of those refused."""
        found = [self._with_left_out(score, *self._alone[score.name]) for score in self._scores]
        asked = [self._held_out(score, ()) if score.name in but else score for score in found]
        return sorted(asked, key=lambda row: -row.gain)

    def chosen(self, but: Collection[str]) -> list[RowScore]:
        """Return the rows to take in: again and again the cheapest of those that gain about as much as the best."""
        (inner, outer), taken = self._felt(self._asked), list[RowScore]()
        order = [row.name for row in PHYSICS]
        places = {name: place for name, place in self._place_among_asked.items() if name not in but}
        while True:
            left = [name for name in places if name not in {row.name for row in taken}]
            scores = sorted(
                (self._score(name, inner[places[name], places[name]], outer[places[name]]) for name in left),
                key=lambda row: -row.gain,
            )
            able: list[RowScore] = []
            for score in scores:
                # What gains less than the best that is asked need not be asked.
                if score.gain < LEAST_GAIN or (able and score.gain < _ABLE * able[0].gain):
                    break
                if (held := self._held_out(score, taken)).is_asked:
                    able.append(held)
            if not able:
                return taken
            row = min(able, key=lambda score: order.index(score.name))
            place = places[row.name]
            taken.append(self._with_left_out(row, inner[place, place], outer[place]))
            # The rest as it is beside this row: its parameters follow.
            own = inner[place, place] + np.eye(place.stop - place.start) * row.width**-2.0
            turned = solved(own, np.column_stack([inner[place], outer[place]]))
            by_own = inner[:, place].copy()
            inner, outer = inner - by_own @ turned[:, :-1], outer - by_own @ turned[:, -1]

    def _score(self, name: str, information: Real, slope: Real) -> RowScore:
        """Return a score without what leaving the row out does: that takes longer than all else, and few are asked."""
        widths, evidence = evidence_of(information, slope, ROWS[name].largest)
        best = int(evidence.argmax())
        return RowScore(
            name, float(evidence[best]) / self._share, 0.0, float(widths[best]), np.zeros((0, 0), np.float32)
        )

    def _with_left_out(self, score: RowScore, information: Real, slope: Real) -> RowScore:
        place, largest = self._places[score.name], ROWS[score.name].largest
        mean_square = _mean_square_width(*evidence_of(information, slope, largest), largest)
        if (by_one := self._errors.get(score.name)) is not None:
            return replace(score, left_out=(np.sqrt(mean_square) * by_one).astype(np.float32))
        return replace(score, left_out=_left_out(self._by_row[:, place], information, slope, mean_square, self._share))

    def _held_out(self, score: RowScore, beside: Sequence[RowScore]) -> RowScore:
        """Return a score with what light that is held out gains, if light gains at all."""
        if score.gain < LEAST_GAIN:
            return score
        others = [(self._place_among_asked[one.name], one.width) for one in beside]
        mine = (self._place_among_asked[score.name], score.width)
        gain = sum(judged.gain([*others, mine]) - judged.gain(others) for judged in self._judged)
        return replace(score, held_out=gain / self._share)

    @cached_property
    def _judged(self) -> tuple[_Judged, ...]:
        informations, slopes = self._gram.among(self._asked)
        return tuple(_Judged.of(informations, slopes, half, self._ahead, self._away) for half in (0, 1))


def _by_law(space: ParameterSpace, fit: FitResult) -> Real:
    """Return the errors that laws have for each share that they depart by at their points, shape ``(P, 2E)``.

    What the best three terms leave of it shows in no error of theirs: at any current a law is off by about that.
    """
    errors = np.zeros((space.size, 2 * space.mesh.n_pucs))
    for name in LAW_TERMS:
        place = space.groups[name]
        errors[place] = np.diag(_LEFT_BY_TERMS * fit.vector[place])
    return errors[fit.free]


def _numbers(place: slice) -> NDArray[np.int64]:
    return np.arange(place.start, place.stop)


def _mean_square_width(widths: Real, evidence: Real, largest: float) -> float:
    """Return the mean of the squared width by its evidence, flat in its logarithm up to the largest (assumed)."""
    allowed = widths <= largest
    weight = np.exp(np.where(allowed, evidence - evidence[allowed].max(), -np.inf))
    return float((weight * widths**2).sum() / weight.sum())


def _left_out(by_row: Real, information: Real, slope: Real, mean_square: float, share: float) -> Single:
    """Return ``left_out`` of :class:`RowScore` for the parameters of a row, which are not known to be zero."""
    known = np.linalg.inv(information / share + np.eye(len(information)) / mean_square)
    moved = by_row @ (known @ (slope / share))
    return np.column_stack([by_row @ np.linalg.cholesky(0.5 * (known + known.T)), moved]).astype(np.float32)


class _Pass:
    """One pass over the settings of a fit: white rows, by its parameters and those of small rows, and their sums.

    Args:
        model: The model of the fit.
        fit: The fit.
        likelihood: The settings.
        small: Names of rows whose parameters stand behind those of the fit.

    Attributes:
        main: Number of parameters of the fit, P.
        places: By name of a small row, where its parameters are among those of all of them.
        by_stretch: Shape ``(c, P)``; slopes by stretches of settings.
        by_monitor: Shape ``(M, P)``; the same by monitors.
        misfit: Shape ``(N, M)``; white residuals.
        rows: Shape ``(N, M, P + p)``; white rows, in single precision.
        by_phase: Shape ``(N, M, W)``; by the phases of waveguides.
        heat_mw: Shape ``(N, 2E)``.
    """

    def __init__(self, model: MeshModel, fit: FitResult, likelihood: Likelihood, small: Sequence[str]) -> None:
        widths = {row.name: row.usual for row in PHYSICS if row.name in (*model.space.physics.names, *small)}
        wider = model.beyond(Physics(widths, model.space.physics.pairs, model.space.physics.held))
        groups = (wider.space.groups[name] for name in model.space.groups)
        main = np.concatenate([np.arange(place.start, place.stop) for place in groups])[fit.free]
        groups_of = {name: wider.space.group(name) for name in small}
        wanted = np.concatenate([main, *(np.arange(place.start, place.stop) for place in groups_of.values())])
        self.main, size = len(main), len(wanted)
        ends = np.cumsum([0, *(place.stop - place.start for place in groups_of.values())])
        self.places = {name: slice(int(ends[i]), int(ends[i + 1])) for i, name in enumerate(groups_of)}
        self.by_monitor = np.zeros((len(model.space.monitors), self.main))
        self.misfit: Real = np.zeros(likelihood.target_ma.shape)
        self.half = _half(np.arange(len(self.misfit)))
        waveguides = 2 * model.mesh.n_pucs + len(model.mesh.joints)
        self.rows: Single = np.empty((*self.misfit.shape, size), np.float32)
        self.by_phase: Single = np.empty((*self.misfit.shape, waveguides), np.float32)
        self.heat_mw: Single = np.empty((len(self.misfit), 2 * model.mesh.n_pucs), np.float32)
        stretches = _stretches(likelihood.observations.source)
        self.by_stretch = np.zeros((int(stretches.max()) + 1, self.main))
        for part in white_rows(wider, fit.parameters, likelihood, wanted):
            mine = part.settings
            self.misfit[mine], self.rows[mine] = part.misfit, part.rows
            self.by_phase[mine], self.heat_mw[mine] = part.by_phase, part.heat_mw
            slopes = part.rows[..., : self.main] * part.misfit[..., None].astype(np.float32)
            self.by_monitor += slopes.sum(axis=0)
            np.add.at(self.by_stretch, stretches[mine], slopes.sum(axis=1))
        self._halves = self._equations(0), self._equations(1)

    @property
    def gram(self) -> _Gram:
        """Normal equations of the fitted parameters and those of all small rows."""
        # Made when asked for: kept, it and the pass would hold each other, and gigabytes, until garbage is looked for.
        (main, across, slope), (second_main, second_across, second_slope) = self._halves
        return _Gram((main, second_main), (across, second_across), (slope, second_slope), self._inner)

    def _equations(self, half: int) -> tuple[Real, Real, Real]:
        """Return what half of the settings says: of fitted parameters, of these with those of rows, and all slopes."""
        n, size = self.main, self.rows.shape[-1]
        main, across, slope = np.zeros((n, n)), np.zeros((n, size - n)), np.zeros(size)
        for settings in self._settings(half):
            block = self.rows[settings].reshape(-1, size).astype(np.float64)
            main += information_of(block[:, :n])
            across += block[:, :n].T @ block[:, n:]
            slope += self.misfit[settings].ravel() @ block
        return main, across, slope

    def _inner(self, chosen: NDArray[np.int64]) -> tuple[Real, Real]:
        """Return the information of some parameters of rows, by either half of the settings."""
        halves = np.zeros((2, len(chosen), len(chosen)))
        for half in (0, 1):
            for settings in self._settings(half):
                block = self.rows[settings].reshape(-1, self.rows.shape[-1])[:, self.main + chosen]
                halves[half] += information_of(block.astype(np.float64))
        return halves[0], halves[1]

    def _settings(self, half: int) -> Iterator[NDArray[np.int64]]:
        """Yield the settings of a half, many at once: a sum of few costs as much as the matrix."""
        mine = np.flatnonzero(self.half == half)
        at_once = max(_AT_ONCE // self.misfit.shape[1], 1)
        return (mine[first : first + at_once] for first in range(0, len(mine), at_once))


def _mean_square(values: Real) -> float:
    return float(np.mean(values**2)) if values.size else 0.0


def _stretches(source: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the stretch that every setting belongs to: light at one source, and not too many."""
    begins = np.concatenate([[True], np.diff(source) != 0])
    since = np.arange(len(source)) - np.maximum.accumulate(np.where(begins, np.arange(len(source)), 0))
    number: NDArray[np.int64] = np.cumsum(begins | (since % _TOGETHER == 0)) - 1
    return number


def _half(settings: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the half that settings belong to, by their numbers in the order of the run."""
    return settings // _STRETCH % 2


def width_after(space: ParameterSpace, fit: FitResult, name: str, width: float) -> float:
    """Return the width of a row's parameters that the fit of them says, the largest of the table at most.

    Args:
        space: Where parameters have their places.
        fit: The fit.
        name: The row.
        width: Width it was fitted with.
    """
    free = np.flatnonzero(fit.free)
    place = space.groups[name]
    chosen = (free >= place.start) & (free < place.stop)
    known = np.linalg.inv(fit.inverse[np.ix_(chosen, chosen)])
    row = ROWS[name]
    slope = known @ fit.vector[free[chosen]]
    widths, evidence = evidence_of(known - np.eye(len(known)) * width**-2, slope, row.largest)
    return float(min(widths[int(evidence.argmax())], row.largest))


def evidence_of(information: Real, slope: Real, largest: float) -> tuple[Real, Real]:
    """Return widths from far below to beyond the largest, and the evidence of each."""
    values, vectors = np.linalg.eigh(0.5 * (information + information.T))
    values, along = np.maximum(values, 0.0), (vectors.T @ slope) ** 2
    widths = largest * np.logspace(-_DECADES, 0.5, _WIDTHS)
    known = 1.0 + np.outer(widths**2, values)
    evidence = 0.5 * (widths[:, None] ** 2 * along / known - np.log(known)).sum(axis=1)
    return widths, evidence


@dataclass(frozen=True, eq=False)
class _Judged:
    """What one half of the settings says of m parameters of rows, the fitted ones following, and the other judges.

    Attributes:
        information: Shape ``(m, m)``; of the half that finds them.
        slope: Shape ``(m,)``.
        judged_information: Shape ``(m, m)``; of the half that judges, the fitted ones following as the first has it.
        judged_slope: Shape ``(m,)``.
    """

    information: Real
    slope: Real
    judged_information: Real
    judged_slope: Real

    @classmethod
    def of(
        cls, informations: tuple[Real, Real], slopes: tuple[Real, Real], half: int, ahead: Real, away: Real
    ) -> _Judged:
        """Return what a half finds, by information and slope of fitted parameters and those of rows for each half."""
        n, found, judge = len(ahead), informations[half], informations[1 - half]
        slope, judge_slope = slopes[half], slopes[1 - half]
        right = np.column_stack([found[:n, n:], slope[:n] - 0.5 * away])
        following = solved(found[:n, :n] + 0.5 * ahead, right)
        by_row, alone = following[:, :-1], following[:, -1]
        felt = judge[:n, :n] @ following - np.column_stack([judge[:n, n:], np.zeros(n)])
        across = by_row.T @ felt
        return cls(
            found[n:, n:] - found[n:, :n] @ by_row,
            slope[n:] - found[n:, :n] @ alone,
            across[:, :-1] + judge[n:, n:] - judge[n:, :n] @ by_row,
            judge_slope[n:] - by_row.T @ judge_slope[:n] + across[:, -1] - judge[n:, :n] @ alone,
        )

    def gain(self, rows: _Placed) -> float:
        """Return how much better the judge's light is explained by what the other half says of some rows."""
        chosen = np.concatenate([np.zeros(0, np.int64), *(np.arange(place.start, place.stop) for place, _ in rows)])
        inner = self.information[np.ix_(chosen, chosen)].copy()
        spread = np.concatenate([np.zeros(0), *(np.full(place.stop - place.start, width) for place, width in rows)])
        inner[np.diag_indices_from(inner)] += spread**-2.0
        step = solved(inner, self.slope[chosen]) if len(chosen) else np.zeros(0)
        judged = self.judged_information[np.ix_(chosen, chosen)]
        return float(self.judged_slope[chosen] @ step - 0.5 * step @ judged @ step)


class _Pairs:
    """What light tells of pairs of a waveguide and a heater, by the rows of some settings.

    Args:
        model: The model of the fit.
        fit: The fit.
        pass_: The settings: their rows by the parameters of the fit, and by those of small rows.
    """

    def __init__(self, model: MeshModel, fit: FitResult, pass_: _Pass) -> None:
        kernel = model.heating.crosstalk(replace(fit.parameters, further={}))
        self._curve = np.concatenate([kernel.arm_rad_per_mw, kernel.joint_rad_per_mw])
        self._single = self._curve.T[..., None].astype(np.float32)
        self._work, self._pass, self._explained = model.work, pass_, fit.discrepancy == 0.0
        self._by_phase, self._heat, self._misfit = pass_.by_phase, pass_.heat_mw, pass_.misfit
        self._rows, self._n = pass_.rows.reshape(-1, pass_.rows.shape[-1]), pass_.main

    def _spend(self, share: float) -> None:
        waveguides, heaters = self._curve.shape
        each = pairs_work(heaters, waveguides, self._misfit.shape[1], self._n)
        self._work.spent += share * each * self._misfit.size

    def _light(self, directions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the light by directions ``(2E, W, c)``, shape ``(N·M, c)``."""
        heaters, waveguides, count = directions.shape
        felt = (directions * self._single).reshape(heaters, -1)
        light = np.empty((*self._by_phase.shape[:2], count), np.float32)
        for part in self._parts():
            light[part] = self._by_phase[part] @ (self._heat[part] @ felt).reshape(-1, waveguides, count)
        return light.reshape(-1, count)

    def _back(self, light: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return its transpose: what light of shape ``(N·M, c)`` says of all pairs, ``(2E, W, c)``."""
        light = light.reshape(*self._by_phase.shape[:2], -1)
        pairs = np.zeros((*self._curve.T.shape, light.shape[2]), np.float32)
        for part in self._parts():
            phases = np.swapaxes(self._by_phase[part], 1, 2) @ light[part]
            pairs += (self._heat[part].T @ phases.reshape(len(phases), -1)).reshape(pairs.shape)
        pairs *= self._single
        return pairs

    def _parts(self) -> Iterator[slice]:
        """Yield the settings some at a time: phases of all waveguides for all directions are half a gigabyte."""
        return (slice(first, first + _PART) for first in range(0, len(self._heat), _PART))

    def score(self, ahead: Real, beside: Sequence[tuple[slice, float]], share: float) -> RowScore:
        """Return the score of pairs beside rows that are taken in, in the directions that light tells best.

        Args:
            ahead: Information of the prior of the fitted parameters, of these settings.
            beside: Where the rows to be taken in are, and their widths.
            share: Share of all settings that a pass looks at.
        """
        further = np.concatenate([np.zeros(0, np.int64), *(_numbers(place) for place, _ in beside)])
        halves, slopes = self._pass.gram.among(further)
        seen = self._rows[:, np.concatenate([np.arange(self._n), self._n + further])]
        n = seen.shape[1]
        prior = np.zeros((n, n))
        prior[: self._n, : self._n] = ahead
        first = self._n
        for place, width in beside:
            size = place.stop - place.start
            prior[np.arange(first, first + size), np.arange(first, first + size)] = width**-2.0
            first += size
        whole = halves[0] + halves[1] + prior
        known = _seen(whole, seen)
        # A fit that does not explain its readings says nothing of what noise alone would do.
        if self._explained and (unasked := self._unasked(seen, whole, known, share)):
            return unasked
        basis, columns = self._directions(known)
        self._spend(SCORED)

        def scored(gram: _Gram) -> RowScore:
            selection = _Selection(gram, prior, np.zeros(n), {CROSSTALK_PAIRS: slice(0, columns.shape[1])}, share)
            return selection.rows((CROSSTALK_PAIRS,))[0]

        found = scored(self._beside_columns(seen, halves, slopes, columns))
        if found.gain > LEAST_GAIN and not found.is_asked:
            # What lies in no direction hides what those fitted explain: readings count as in a fit with pairs.
            found = scored(self._weighed_columns(seen, columns, found.width))
        directions = self._told(basis, columns, found.width, share)
        return replace(found, left_out=found.left_out[: self._n], pairs=directions)

    def _beside_columns(
        self, seen: Single, halves: tuple[Real, Real], slopes: tuple[Real, Real], columns: Real
    ) -> _Gram:
        """Return the normal equations of known parameters, whose own ones are there, and of further columns."""
        across: list[Real] = []
        inner: list[Real] = []
        all_slopes: list[Real] = []
        for half, mine in enumerate(self._halves()):
            own = columns[mine]
            across.append(seen[mine].astype(np.float64).T @ own)
            inner.append(information_of(own))
            all_slopes.append(np.concatenate([slopes[half], self._misfit.ravel()[mine] @ own]))
        return _gram_of(halves, across, inner, all_slopes)

    def _weighed_columns(self, seen: Single, columns: Real, width: float) -> _Gram:
        """Return the same, each reading with the noise that pairs in other directions are to it."""
        heat = self._heat - self._heat.mean(axis=0)
        every = (heat**2) @ (self._single[..., 0] ** 2)
        spread = (self._by_phase**2 @ every[..., None]).ravel() - (columns**2).sum(axis=1)
        weight = 1.0 / np.sqrt(1.0 + width**2 * np.maximum(spread, 0.0))
        rows, misfit, n = (
            np.concatenate([seen, columns], axis=1) * weight[:, None],
            self._misfit.ravel() * weight,
            seen.shape[1],
        )
        whole = [information_of(rows[mine]) for mine in self._halves()]
        slopes = [misfit[mine] @ rows[mine] for mine in self._halves()]
        return _gram_of(
            [each[:n, :n] for each in whole], [each[:n, n:] for each in whole], [each[n:, n:] for each in whole], slopes
        )

    def _halves(self) -> list[NDArray[np.bool_]]:
        """Return which readings belong to either half of the settings."""
        return [np.repeat(self._pass.half == half, self._misfit.shape[1]) for half in (0, 1)]

    def best(self, before: PairDirections, ahead: Real, width: float, share: float) -> PairDirections:
        """Return the directions that light tells best beside all that is fitted.

        Args:
            before: Those that fewer settings told best.
            ahead: Information of the prior of the fitted parameters, of these settings.
            width: Width of the pairs.
            share: Share of all settings that these are.
        """
        known = _seen(self._whole(ahead), self._rows)
        return self._told(*self._directions(known, before.vectors), width, share)

    def _whole(self, ahead: Real) -> Real:
        """Return information of the fitted parameters by these settings and their prior."""
        first, second = self._pass.gram.main
        whole: Real = first + second + ahead
        return whole

    def _told(self, basis: NDArray[np.float32], light: Real, width: float, share: float) -> PairDirections:
        # Directions that light hardly tells are left to the errors.
        told = np.flatnonzero((light**2).sum(axis=0) / share * width**2 > _TOLD)
        return PairDirections(self._curve, np.asarray(basis[:, :, told]))

    def _at_random(self, count: int) -> NDArray[np.float32]:
        """Return directions in which every pair is off by about one, shape ``(2E, W, c)``."""
        directions = np.random.default_rng(0).standard_normal((*self._curve.T.shape, count), np.float32)
        directions *= (self._curve > 0.0).T[..., None]
        return directions

    def _unasked(
        self, seen: NDArray[np.float32], whole: Real, known: NDArray[np.float32], here: float
    ) -> RowScore | None:
        """Return a score without any directions if slopes by pairs are no larger than noise makes them.

        Score test of a variance (Rao 1948), its traces by directions at random (Hutchinson 1989).
        """
        misfit = self._misfit.reshape(-1, 1)
        slope = float((self._back(_without(known, misfit.astype(np.float32))) ** 2).sum())
        light = _without(known, self._light(self._at_random(_PROBES)))
        expected = float((light**2).sum()) / _PROBES
        spread = 2.0 * float((self._back(light) ** 2).sum()) / _PROBES
        variance = (slope - expected) / (0.5 * spread)
        error = np.sqrt(spread) / (0.5 * spread)
        if variance > _ASKED_SIGMA * error:
            return None
        # What width noise may hide, and what that does to the fit. More settings would show it as much better.
        width = float(np.sqrt((max(variance, 0.0) + error) * here))
        left_out = (width * self._following(seen, whole, self._at_random(_PROBES))).astype(np.float32)
        return RowScore(CROSSTALK_PAIRS, 0.0, 0.0, width, left_out)

    def _directions(
        self, known: NDArray[np.float32], begin: NDArray[np.float32] | None = None
    ) -> tuple[NDArray[np.float32], Real]:
        """Return the directions that light tells best, and the light by them, what is known taken out.

        Args:
            known: As :func:`_seen` returns it.
            begin: Directions that other light tells best, ``(2E, W, c)``.
        """
        # One step of subspace iteration (Halko, Martinsson, Tropp 2011): what light tells lies in far fewer directions
        # than pairs. What is missed counts as noise of the readings that feel it, and directions are chosen again.
        count = min(MOST_PAIRS + _OVERSAMPLED, self._curve.size)
        basis = self._at_random(count)
        if begin is not None:
            basis[..., : begin.shape[2]] = begin
        self._spend(DIRECTIONS)
        basis = _orthonormal(self._back(_without(known, self._light(basis))))
        whole = self._light(basis)
        light = _without(known, whole).astype(np.float64)
        best = np.linalg.eigh(light.T @ light)[1][:, ::-1][:, : min(MOST_PAIRS, count)].astype(np.float32)
        return np.asarray(basis @ best, np.float32), (whole @ best).astype(np.float64)

    def beside(self, fitted: PairDirections, width: float, likelihood: Likelihood, ahead: Real, share: float) -> Tail:
        """Return what pairs beside the directions fitted do to the fitted parameters.

        By directions at random (Hutchinson 1989): variances to a tenth.
        """
        directions = self._at_random(_PROBES_BESIDE)
        self._spend(BESIDE)
        # Of the directions that are fitted nothing is left out.
        known = np.tensordot(fitted.vectors, directions, axes=([0, 1], [0, 1]))
        directions -= np.asarray(fitted.vectors @ known)
        rows, whole = self._rows[:, : self._n], self._whole(ahead)
        following = self._following(rows, whole, directions)
        covariance = width**2 * (following @ following.T)
        as_noise = np.zeros(self._n)
        if likelihood.unmodelled_ma2 is not None:
            # Fields of random signs, of the size that readings are taken to be off by each for itself.
            size = np.sqrt(likelihood.unmodelled_ma2).ravel() / likelihood.sigma_ma(0.0).ravel()
            signs = np.random.default_rng(1).choice(np.array([-1.0, 1.0], np.float32), (len(size), _PROBES_BESIDE))
            moved = solved(whole, np.asarray(rows.T @ (signs * size[:, None].astype(np.float32)), np.float64))
            # Of more settings than were looked at less is left.
            as_noise = share * (moved**2).mean(axis=1)
        return Tail(covariance, as_noise)

    def _following(self, known: NDArray[np.float32], whole: Real, directions: NDArray[np.float32]) -> Real:
        """Return how the fitted parameters follow directions that known ones are fitted without, ``(P, c)`` over √c."""
        count = directions.shape[2]
        along = np.asarray(known.T @ self._light(directions), np.float64)
        following: Real = solved(whole, along)[: self._n] / np.sqrt(count)
        return following


def _gram_of(main: Sequence[Real], across: Sequence[Real], inner: Sequence[Real], slope: Sequence[Real]) -> _Gram:
    """Return normal equations of parameters whose information is there."""

    def among(chosen: NDArray[np.int64]) -> tuple[Real, Real]:
        first, second = (each[np.ix_(chosen, chosen)] for each in inner)
        return first, second

    return _Gram((main[0], main[1]), (across[0], across[1]), (slope[0], slope[1]), among)


def _seen(whole: Real, known: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what takes out of light of shape ``(N·M,)`` what known parameters explain, shape ``(P, N·M)``.

    Args:
        whole: Shape ``(P, P)``; their information and prior.
        known: Shape ``(N·M, P)``; their rows.
    """
    from scipy.linalg import solve_triangular

    factor = np.linalg.cholesky(whole).astype(np.float32)
    return np.asarray(solve_triangular(factor, known.T, lower=True, check_finite=False), np.float32)


def _without(seen: NDArray[np.float32], light: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(light - seen.T @ (seen @ light), np.float32)


def _orthonormal(directions: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an orthonormal basis of directions ``(2E, W, c)``."""
    from scipy.linalg import qr

    basis, _ = qr(directions.reshape(-1, directions.shape[2]), mode="economic", check_finite=False)
    return np.asarray(basis, np.float32).reshape(directions.shape)
