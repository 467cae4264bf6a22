"""What physics the light asks for beyond the model: the score of every row of the table, from one pass over the data.

At the end of a fit the slope of the likelihood by parameters that are not in it yet, and their information with that
of the fitted parameters taken out, tell without another fit how much better the light would be explained: the evidence
of a row whose parameters have the width s about zero,

    L(s) = Σ ½·(s²u²/(1 + s²λ) - ln(1 + s²λ))        λ, u: eigenvalues of that information, slope along its vectors

(Laplace; exact for a linear model; a score test of a component of variance at s = 0, Rao 1948). Whether the parameters
are worth having is asked of light that did not find them: each half of the settings judges what the other half says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import white_rows
from calibration.model.physics import MOST_PAIRS, PHYSICS, ROWS, PairDirections, Physics
from calibration.model.priors import Prior
from calibration.model.space import ParameterSpace

Real = NDArray[np.float64]

LEAST_GAIN = 25.0
"""Gain of the evidence, and of light that is held out, below which nothing is taken in."""
# Rows that gain this share of the best are as good: of these the cheapest is taken.
_ABLE = 0.8
# Numbers held at once for the directions of pairs: 160 MB.
_MOST_NUMBERS = 2e7
# Settings in a row that belong to one half: those next to each other have most of their heat in common.
_STRETCH = 40
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
        by_width: Shape ``(P, k)``; how the parameters of the fit follow those of the row, if these are left out.
        pairs: Directions of pairs, if it is the row of these.
    """

    name: str
    gain: float
    held_out: float
    width: float
    mean_square: float
    by_width: Real
    pairs: PairDirections | None = None

    @property
    def too_large(self) -> bool:
        """Whether it takes more than any chip has."""
        return self.width > ROWS[self.name].largest


@dataclass(frozen=True, eq=False)
class _Gram:
    """Information and slope of the fitted parameters (first) and those of a row, for each half of the settings."""

    information: tuple[Real, Real]
    slope: tuple[Real, Real]
    main: int


def score_rows(
    model: MeshModel, fit: FitResult, likelihood: Likelihood, prior: Prior, names: Sequence[str]
) -> list[RowScore]:
    """Return the scores of rows that a fit has not taken in, those first that explain most.

    Args:
        model: The model of the fit.
        fit: The fit.
        likelihood: What it explains.
        prior: The prior of the fit, over all parameters of the model.
        names: The rows.
    """
    small = [name for name in names if name != "crosstalk_pairs"]
    ahead = prior.information(fit.free)
    away = ahead @ (fit.vector - prior.mean)[fit.free]
    grams, rows = _gathered(model, fit, likelihood, small, pairs="crosstalk_pairs" in names)
    found = [_scored(name, gram, ahead, away) for name, gram in grams.items()]
    if rows is not None:
        directions, gram = _pairs_gram(model, fit, rows, ahead)
        share = len(rows.settings) / len(likelihood.observations)
        score = _scored("crosstalk_pairs", gram, ahead * share, away * share)
        found.append(replace(score, gain=score.gain / share, pairs=directions))
    return sorted(found, key=lambda score: -score.gain)


@dataclass(frozen=True, eq=False)
class _Rows:
    """White rows of some settings: of fitted parameters and of the phases of waveguides, and their residuals."""

    settings: NDArray[np.int64]
    main: Real
    by_phase: Real
    misfit: Real
    heat_mw: Real


def _gathered(
    model: MeshModel, fit: FitResult, likelihood: Likelihood, small: Sequence[str], *, pairs: bool
) -> tuple[dict[str, _Gram], _Rows | None]:
    """Return the normal equations of every small row, and rows of as many settings as memory has room for."""
    physics = Physics(
        {row.name: row.usual for row in PHYSICS if row.name in (*model.space.physics.names, *small)},
        model.space.physics.pairs,
        model.space.physics.held,
    )
    wider = model.beyond(physics)
    main = np.concatenate(
        [np.arange(wider.space.groups[n].start, wider.space.groups[n].stop) for n in model.space.groups]
    )
    main = main[fit.free]
    places = {name: wider.space.group(name) for name in small}
    wanted = np.concatenate([main, *(np.arange(place.start, place.stop) for place in places.values())])
    halves = (np.arange(len(likelihood.observations)) // _STRETCH) % 2
    information = np.zeros((2, len(wanted), len(wanted)))
    slope = np.zeros((2, len(wanted)))
    kept = _kept(model, likelihood, len(main)) if pairs else np.zeros(0, dtype=np.int64)
    parts: list[tuple[Real, ...]] = []
    for part in white_rows(wider, fit.parameters, likelihood, wanted, fit.discrepancy, kept if pairs else None):
        for half in (0, 1):
            mine = halves[part.settings] == half
            block = part.rows[mine].reshape(-1, len(wanted))
            information[half] += block.T @ block
            slope[half] += part.misfit[mine].ravel() @ block
        if part.kept.any():
            parts.append((part.rows[part.kept][..., : len(main)], part.by_phase, part.misfit[part.kept], part.heat_mw))
    grams, first = {}, len(main)
    for name, place in places.items():
        chosen = np.concatenate([np.arange(len(main)), np.arange(first, first + place.stop - place.start)])
        first += place.stop - place.start
        cut = [matrix[np.ix_(chosen, chosen)] for matrix in information]
        grams[name] = _Gram((cut[0], cut[1]), (slope[0][chosen], slope[1][chosen]), len(main))
    if not pairs:
        return grams, None
    return grams, _Rows(kept, *(np.concatenate(each) for each in zip(*parts, strict=True)))


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
    return RowScore(name, float(evidence[best]), held_out, float(widths[best]), mean_square, by_row[:, :-1])


def chosen_row(scores: Sequence[RowScore]) -> RowScore | None:
    """Return the row to take in: of those that gain about as much as the best, the cheapest; ``None`` if none gains."""
    asked = [score for score in scores if score.gain > LEAST_GAIN and score.held_out > LEAST_GAIN]
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


def _pairs_gram(model: MeshModel, fit: FitResult, rows: _Rows, ahead: Real) -> tuple[PairDirections, _Gram]:
    """Return the directions of pairs that light tells best, and their normal equations."""
    kernel = model.heating.crosstalk(replace(fit.parameters, further={}))
    curve = np.concatenate([kernel.arm_rad_per_mw, kernel.joint_rad_per_mw])
    flat = rows.main.reshape(-1, rows.main.shape[-1])
    share = rows.heat_mw.shape[0] / fit.settings
    factor = np.linalg.cholesky(flat.T @ flat + share * ahead)
    seen = np.linalg.solve(factor, flat.T).astype(np.float32)
    by_phase, heat = rows.by_phase.astype(np.float32), rows.heat_mw.astype(np.float32)

    def ahead_of(directions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Light by directions ``(W, 2E, c)``, what fitted parameters can do as well taken out: ``(N·M, c)``."""
        phases = np.tensordot(heat, np.moveaxis(directions * curve[..., None].astype(np.float32), 1, 0), axes=1)
        light = (by_phase @ phases).reshape(-1, directions.shape[2])
        return np.asarray(light - seen.T @ (seen @ light))

    def back_of(light: NDArray[np.float32]) -> NDArray[np.float32]:
        light = (light - seen.T @ (seen @ light)).reshape(*by_phase.shape[:2], -1)
        phases = np.swapaxes(by_phase, 1, 2) @ light
        return np.asarray(
            np.moveaxis(np.tensordot(heat, phases, axes=(0, 0)), 0, 1) * curve[..., None].astype(np.float32)
        )

    # Subspace iteration (Halko, Martinsson, Tropp 2011): what light tells of 38,592 pairs lies in far fewer directions.
    count = min(MOST_PAIRS + _OVERSAMPLED, curve.size)
    basis = np.random.default_rng(0).standard_normal((*curve.shape, count)).astype(np.float32)
    basis *= (curve > 0.0)[..., None]
    for _ in range(_POWERS):
        basis = back_of(ahead_of(basis))
        basis = np.linalg.qr(basis.reshape(-1, count))[0].astype(np.float32).reshape(basis.shape)
    light = ahead_of(basis).astype(np.float64)
    vectors = np.linalg.eigh(light.T @ light)[1]
    best = vectors[:, ::-1][:, : min(MOST_PAIRS, count)].astype(np.float32)
    directions = PairDirections(curve, np.asarray(basis @ best))
    columns = (by_phase @ directions.phases(rows.heat_mw).astype(np.float32)).astype(np.float64)
    whole = np.concatenate([rows.main, columns], axis=-1)
    halves = (rows.settings // _STRETCH) % 2
    grams, slopes = [], []
    for half in (0, 1):
        block = whole[halves == half].reshape(-1, whole.shape[-1])
        grams.append(block.T @ block)
        slopes.append(rows.misfit[halves == half].ravel() @ block)
    return directions, _Gram((grams[0], grams[1]), (slopes[0], slopes[1]), rows.main.shape[-1])
