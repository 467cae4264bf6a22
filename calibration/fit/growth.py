"""What physics the light asks for beyond the model: the score of every row of the table, from one pass over the data.

At the end of a fit the slope of the likelihood by parameters that are not in it yet, and their information with that
of the fitted parameters taken out, tell without another fit how much better the light would be explained: the evidence
of a row whose parameters have the width s about zero,

    L(s) = Σ ½·(s²u²/(1 + s²λ) - ln(1 + s²λ))        λ, u: eigenvalues of that information, slope along its vectors

(Laplace; exact for a linear model; a score test of a component of variance at s = 0, Rao 1948). Whether the parameters
are worth having is asked of light that did not find them: each half of the settings judges what the other half says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import WhiteRows, white_rows
from calibration.model.physics import MOST_PAIRS, PHYSICS, ROWS, PairDirections, Physics
from calibration.model.priors import Prior
from calibration.model.space import ParameterSpace
from lumion_hw.mesh.record import CROSSTALK_PAIRS

Real = NDArray[np.float64]

LEAST_GAIN = 25.0
"""Gain of the evidence, and of light that is held out, below which nothing is taken in."""
# Rows that gain this share of the best are as good: of these the cheapest is taken.
_ABLE = 0.8
# Numbers held at once for the directions of pairs: 160 MB.
_MOST_NUMBERS = 2e7
# Settings in a row that belong to one half: those next to each other have most of their heat in common.
_STRETCH = 40
# Settings in a row whose errors are taken to belong together.
_TOGETHER = 20
_POWERS = 2
_OVERSAMPLED = 20
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
        mean_square: Mean of the squared width, by the evidence.
        left_out: Shape ``(P, P)``; covariance of the parameters of the fit by leaving these out, which have not been
            found to be zero.
        pairs: Directions of pairs, if it is the row of these.
    """

    name: str
    gain: float
    held_out: float
    width: float
    mean_square: float
    left_out: Real
    pairs: PairDirections | None = None

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.name}: gain {self.gain:.0f}, held out {self.held_out:.0f}, width {self.width:.3g}"


@dataclass(frozen=True, eq=False)
class _Gram:
    """Information and slope of the fitted parameters (first) and those of a row, for each half of the settings."""

    information: tuple[Real, Real]
    slope: tuple[Real, Real]
    main: int


@dataclass(frozen=True, eq=False)
class Scores:
    """What one pass over the data says about a fit; P free parameters.

    Attributes:
        rows: Scores of the rows that are not in it, those first that gain most.
        information: Shape ``(P, P)``; Fisher information of the readings where the fit ended.
        by_stretch: Shape ``(c, P)``; slope of the likelihood by stretches of settings with the same light.
        by_monitor: Shape ``(M, P)``; the same by monitors.
        tail: Shape ``(P, P)``; covariance by pairs in directions that are not fitted, for a width of one; ``None``
            where pairs are not fitted.
        by_reading: Shape ``(N, M)``; squares of the white residuals.
        by_source: Shape ``(S,)``; their mean by source of the light.
    """

    rows: tuple[RowScore, ...]
    information: Real
    by_stretch: Real
    by_monitor: Real
    tail: Real | None
    by_reading: Real
    by_source: Real


def score_rows(model: MeshModel, fit: FitResult, likelihood: Likelihood, prior: Prior, names: Sequence[str]) -> Scores:
    """Return the scores of rows that a fit has not taken in, and what the same pass says about its errors.

    Args:
        model: The model of the fit.
        fit: The fit.
        likelihood: What it explains.
        prior: The prior of the fit, over all parameters of the model.
        names: The rows.
    """
    small = [name for name in names if name != CROSSTALK_PAIRS]
    ahead = prior.information(fit.free)
    away = ahead @ (fit.vector - prior.mean)[fit.free]
    pass_ = _Pass(model, fit, likelihood, small, pairs=CROSSTALK_PAIRS in (*names, *model.space.physics.names))
    found = [_scored(name, gram, ahead, away) for name, gram in pass_.grams().items()]
    tail = None
    if (rows := pass_.rows) is not None:
        share = len(rows.settings) / len(likelihood.observations)
        pairs = _Pairs(model, fit, rows)
        if CROSSTALK_PAIRS in names:
            directions, gram = pairs.gram(ahead * share)
            score = _scored(CROSSTALK_PAIRS, gram, ahead * share, away * share)
            found.append(replace(score, gain=score.gain / share, pairs=directions))
        elif model.space.physics.pairs is not None:
            tail = pairs.beside(model.space.physics.pairs, ahead * share)
    return Scores(
        tuple(sorted(found, key=lambda score: -score.gain)),
        pass_.information[:, : pass_.main, : pass_.main].sum(axis=0),
        np.array(pass_.by_stretch),
        pass_.by_monitor,
        tail,
        pass_.misfit**2,
        np.array([_mean_square(pass_.misfit[likelihood.observations.source == port]) for port in model.space.sources]),
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """White rows of some settings: of fitted parameters and of the phases of waveguides, and their residuals."""

    settings: NDArray[np.int64]
    main: Real
    by_phase: Real
    misfit: Real
    heat_mw: Real


class _Pass:
    """One pass over the settings of a fit: sums for small rows, and rows of as many settings as there is room for."""

    def __init__(
        self, model: MeshModel, fit: FitResult, likelihood: Likelihood, small: Sequence[str], *, pairs: bool
    ) -> None:
        widths = {row.name: row.usual for row in PHYSICS if row.name in (*model.space.physics.names, *small)}
        wider = model.beyond(Physics(widths, model.space.physics.pairs, model.space.physics.held))
        groups = (wider.space.groups[name] for name in model.space.groups)
        main = np.concatenate([np.arange(place.start, place.stop) for place in groups])[fit.free]
        self._places = {name: wider.space.group(name) for name in small}
        wanted = np.concatenate([main, *(np.arange(place.start, place.stop) for place in self._places.values())])
        self.main, size = len(main), len(wanted)
        self.information, self.slope = np.zeros((2, size, size)), np.zeros((2, size))
        self.by_monitor, self.by_stretch = np.zeros((len(model.space.monitors), self.main)), list[Real]()
        self.misfit = np.zeros(likelihood.target_ma.shape)
        kept = _kept(model, likelihood, len(main)) if pairs else np.zeros(0, dtype=np.int64)
        parts: list[tuple[Real, ...]] = []
        stretches = _stretches(likelihood.observations.source)
        self.by_stretch = [np.zeros(self.main) for _ in range(int(stretches.max()) + 1)]
        for part in white_rows(wider, fit.parameters, likelihood, wanted, fit.discrepancy, kept):
            self._add(part, stretches[part.settings])
            if part.kept.any():
                parts.append(
                    (part.rows[part.kept][..., : self.main], part.by_phase, part.misfit[part.kept], part.heat_mw)
                )
        joined = (np.concatenate(each) for each in zip(*parts, strict=True))
        self.rows = _Rows(kept, *joined) if parts else None

    def _add(self, part: WhiteRows, stretches: NDArray[np.int64]) -> None:
        self.misfit[part.settings] = part.misfit
        numbers = np.arange(part.settings.start, part.settings.start + len(part.misfit))
        for half in (0, 1):
            mine = (numbers // _STRETCH) % 2 == half
            block = part.rows[mine].reshape(-1, part.rows.shape[-1])
            self.information[half] += block.T @ block
            self.slope[half] += part.misfit[mine].ravel() @ block
        slopes = part.rows[..., : self.main] * part.misfit[..., None]
        self.by_monitor += slopes.sum(axis=0)
        for stretch, slope in zip(stretches, slopes.sum(axis=1), strict=True):
            self.by_stretch[stretch] += slope

    def grams(self) -> dict[str, _Gram]:
        """Return the normal equations of every small row."""
        found, first = {}, self.main
        for name, place in self._places.items():
            chosen = np.concatenate([np.arange(self.main), np.arange(first, first + place.stop - place.start)])
            first += place.stop - place.start
            cut = [matrix[np.ix_(chosen, chosen)] for matrix in self.information]
            found[name] = _Gram((cut[0], cut[1]), (self.slope[0][chosen], self.slope[1][chosen]), self.main)
        return found


def _mean_square(values: Real) -> float:
    return float(np.mean(values**2)) if values.size else 0.0


def _stretches(source: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the stretch that every setting belongs to: light at one source, and not too many."""
    begins = np.concatenate([[True], np.diff(source) != 0])
    since = np.arange(len(source)) - np.maximum.accumulate(np.where(begins, np.arange(len(source)), 0))
    number: NDArray[np.int64] = np.cumsum(begins | (since % _TOGETHER == 0)) - 1
    return number


def _kept(model: MeshModel, likelihood: Likelihood, main: int) -> NDArray[np.int64]:
    """Return the settings whose rows are kept, evenly over the run."""
    waveguides = 2 * model.mesh.n_pucs + len(model.mesh.joints)
    each = len(model.space.monitors) * (main + waveguides)
    settings = len(likelihood.observations)
    most = min(settings, max(int(_MOST_NUMBERS / each), 1))
    return np.unique(np.linspace(0, settings - 1, most).astype(np.int64))


def _scored(name: str, gram: _Gram, ahead: Real, away: Real) -> RowScore:
    """Return the score of a row whose normal equations are given.

    Args:
        name: The row.
        gram: Of fitted parameters and those of the row.
        ahead: Shape ``(P, P)``; information of the prior.
        away: Shape ``(P,)``; slope of the prior, with the sign of a cost.
    """
    n = gram.main
    whole, slope = gram.information[0] + gram.information[1], gram.slope[0] + gram.slope[1]
    total = whole[:n, :n] + ahead
    by_row: Real = np.asarray(np.linalg.solve(total, np.column_stack([whole[:n, n:], slope[:n] - away])), np.float64)
    inner = whole[n:, n:] - whole[n:, :n] @ by_row[:, :-1]
    outer = slope[n:] - whole[n:, :n] @ by_row[:, -1]
    row = ROWS[name]
    widths, evidence = evidence_of(inner, outer, row.largest)
    best = int(evidence.argmax())
    # Flat in the width below the largest (assumed), so that what light cannot tell stays with the table.
    allowed = widths <= row.largest
    weight = np.exp(evidence - evidence.max()) * widths * allowed
    mean_square = float((weight * widths**2).sum() / weight.sum()) if weight.any() else row.largest**2
    held_out = sum(_held_out(gram, ahead, away, float(widths[best]), judge) for judge in (0, 1))
    known = np.linalg.inv(inner + np.eye(len(inner)) / mean_square)
    likely = known @ outer
    moved = by_row[:, :-1] @ likely
    left_out = by_row[:, :-1] @ known @ by_row[:, :-1].T + np.outer(moved, moved)
    return RowScore(name, float(evidence[best]), held_out, float(widths[best]), mean_square, left_out, pairs=None)


def chosen_row(scores: Sequence[RowScore], but: Collection[str] = ()) -> RowScore | None:
    """Return the row to take in: of those that gain about as much as the best, the cheapest; ``None`` if none gains."""
    asked = [s for s in scores if s.gain > LEAST_GAIN and s.held_out > LEAST_GAIN and s.name not in but]
    best = max((score.gain for score in asked), default=0.0)
    able = [score for score in asked if score.gain > _ABLE * best]
    order = [row.name for row in PHYSICS]
    return min(able, key=lambda score: order.index(score.name), default=None)


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


def _held_out(gram: _Gram, ahead: Real, away: Real, width: float, judge: int) -> float:
    """Return how much better one half of the settings is explained by what the other half says of a row."""
    n, seen = gram.main, 1 - judge
    prior = np.zeros_like(gram.information[0])
    prior[:n, :n] = 0.5 * ahead
    prior[np.arange(n, len(prior)), np.arange(n, len(prior))] = width**-2
    slope = gram.slope[seen].copy()
    slope[:n] -= 0.5 * away
    total = gram.information[seen] + prior
    gain = 0.0
    for count, sign in ((len(prior), 1.0), (n, -1.0)):
        step = np.zeros(len(prior))
        step[:count] = np.linalg.solve(total[:count, :count], slope[:count])
        gain += sign * float(gram.slope[judge] @ step - 0.5 * step @ gram.information[judge] @ step)
    return gain


class _Pairs:
    """What light tells of pairs of a waveguide and a heater, by the rows of some settings.

    Args:
        model: The model of the fit.
        fit: The fit.
        rows: The rows.
    """

    def __init__(self, model: MeshModel, fit: FitResult, rows: _Rows) -> None:
        kernel = model.heating.crosstalk(replace(fit.parameters, further={}))
        self._curve = np.concatenate([kernel.arm_rad_per_mw, kernel.joint_rad_per_mw])
        self._single = self._curve[..., None].astype(np.float32)
        self._rows = rows
        self._by_phase, self._heat = rows.by_phase.astype(np.float32), rows.heat_mw.astype(np.float32)
        self._main = rows.main.reshape(-1, rows.main.shape[-1])

    def _light(self, directions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the light by directions ``(W, 2E, c)``, shape ``(N·M, c)``."""
        phases = np.tensordot(self._heat, np.moveaxis(directions * self._single, 1, 0), axes=1)
        return np.asarray((self._by_phase @ phases).reshape(-1, directions.shape[2]), np.float32)

    def _back(self, light: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return its transpose: what light of shape ``(N·M, c)`` says of all pairs, ``(W, 2E, c)``."""
        phases = np.swapaxes(self._by_phase, 1, 2) @ light.reshape(*self._by_phase.shape[:2], -1)
        pairs = np.moveaxis(np.tensordot(self._heat, phases, axes=(0, 0)), 0, 1)
        return np.asarray(pairs * self._single, np.float32)

    def gram(self, ahead: Real) -> tuple[PairDirections, _Gram]:
        """Return the directions that light tells best, and their normal equations."""
        factor = np.linalg.cholesky(self._main.T @ self._main + ahead)
        seen = np.linalg.solve(factor, self._main.T).astype(np.float32)

        def without_main(light: NDArray[np.float32]) -> NDArray[np.float32]:
            return np.asarray(light - seen.T @ (seen @ light))

        # Subspace iteration (Halko, Martinsson, Tropp 2011): what light tells lies in far fewer directions than pairs.
        curve = self._curve
        count = min(MOST_PAIRS + _OVERSAMPLED, curve.size)
        basis = np.random.default_rng(0).standard_normal((*curve.shape, count)).astype(np.float32)
        basis *= (curve > 0.0)[..., None]
        for _ in range(_POWERS):
            basis = self._back(without_main(self._light(basis)))
            basis = np.linalg.qr(basis.reshape(-1, count))[0].astype(np.float32).reshape(basis.shape)
        light = without_main(self._light(basis)).astype(np.float64)
        best = np.linalg.eigh(light.T @ light)[1][:, ::-1][:, : min(MOST_PAIRS, count)].astype(np.float32)
        directions = PairDirections(curve, np.asarray(basis @ best))
        columns = self._light(directions.vectors).reshape(*self._by_phase.shape[:2], -1)
        whole = np.concatenate([self._rows.main, columns], axis=-1)
        halves = (self._rows.settings // _STRETCH) % 2
        grams, slopes = [], []
        for half in (0, 1):
            block = whole[halves == half].reshape(-1, whole.shape[-1])
            grams.append(block.T @ block)
            slopes.append(self._rows.misfit[halves == half].ravel() @ block)
        return directions, _Gram((grams[0], grams[1]), (slopes[0], slopes[1]), self._main.shape[1])

    def beside(self, fitted: PairDirections, ahead: Real) -> Real:
        """Return the covariance of the fitted parameters by pairs beside the directions fitted, for a width of one."""
        total = self._main.T @ self._main + ahead
        felt = np.zeros_like(total)
        for first in range(0, total.shape[0], MOST_PAIRS):
            part = slice(first, first + MOST_PAIRS)
            by_pair = self._back(self._main[:, part].astype(np.float32))
            # Of the directions that are fitted nothing is left out.
            known = np.tensordot(fitted.vectors, by_pair, axes=([0, 1], [0, 1]))
            by_pair -= np.asarray(fitted.vectors @ known)
            felt[part] = self._main_by(by_pair)
        inverse = np.linalg.inv(total)
        covariance: Real = inverse @ felt @ inverse
        return 0.5 * (covariance + covariance.T)

    def _main_by(self, pairs: NDArray[np.float32]) -> Real:
        """Return how slopes by the fitted parameters follow directions, shape ``(c, P)``."""
        product: Real = self._light(pairs).astype(np.float64).T @ self._main
        return product
