"""Pair crosstalk: crosstalk from one heater to one waveguide that distance alone does not explain.

Only the best-determined combinations of pairs ("directions") are fitted, because the pairs are too many. See
docs/decisions/0023-unfitted-crosstalk.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.fit.row_scores import (
    MIN_GAIN,
    Equations,
    Pass,
    Placed,
    RowScore,
    Selection,
    joined,
    parameter_numbers,
    predicted_step,
)
from calibration.model.arrays import Real, Single
from calibration.model.gauge import visible_combinations
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import information_of
from calibration.model.physics import MAX_PAIRS, PairDirections
from calibration.model.space import LAW_TERMS
from calibration.model.symmetric import Sparse, diagonal, is_positive, scale_of, solved
from calibration.model.work import CHOOSE_PAIRS_WORK, SCORE_PAIRS_WORK, UNFITTED_PAIRS_WORK, pairs_work
from lumion_hw.mesh.record.calibration_record import CROSSTALK_PAIRS

# Directions whose variance the readings reduce by less than this share are not fitted.
_OBSERVABLE = 0.1
# Number of settings per block, which limits the memory for phases of all directions.
_PART = 128
_OVERSAMPLED = 20
# Number of random directions for traces over all pairs, which gives an accuracy of an eighth.
_PROBES = 64
_PROBES_UNFITTED = 256
# Relative rounding error of information, and the smallest share of unmodelled effects that is subtracted from it.
_ROUNDING, _MIN_PART = 1e-8, 0.1
# Excess of the slopes over noise above which single directions of pairs are examined.
_MIN_EFFECT_SIGMA = 3.0


@dataclass(frozen=True, eq=False)
class Tail:
    """Errors of P fitted parameters due to pair crosstalk that is not fitted.

    Attributes:
        covariance: Shape ``(P, P)``; covariance of the fitted parameters due to it.
        in_weights: Shape ``(P, P)``; the part of the Fisher information that the weights of the readings lose to it,
            because effects that are not fitted count as noise there.
    """

    covariance: Real
    in_weights: Real

    def from_noise(self, fit: FitResult) -> Real:
        """Return the covariance C − C·I·C of a fit due to the noise of the readings alone, shape ``(P, P)``.

        I is estimated from some of the readings, so it may be larger than the information of all of them about a
        combination of parameters that these hardly determine. Then only half of it counts, and so on.
        """
        total = fit.information + fit.prior_information
        unit = np.outer(scale_of(total), scale_of(total))
        total, part = total / unit + _ROUNDING * np.eye(len(total)), self.in_weights / unit
        share = 1.0 if part.any() else 0.0
        while share and not is_positive(total - share * part):
            share = share / 2.0 if share > _MIN_PART else 0.0
        covariance: Real = fit.inverse - share * fit.inverse @ self.in_weights @ fit.inverse
        return covariance


class Pairs:
    """Fisher information that some settings give about crosstalk from single heaters to single waveguides (pairs).

    ``pass_`` contains these settings and their derivatives.
    """

    def __init__(self, model: MeshModel, fit: FitResult, pass_: Pass) -> None:
        kernel = model.heating.crosstalk(replace(fit.parameters, extra_physics={}))
        self._curve = np.concatenate([kernel.arm_rad_per_mw, kernel.joint_rad_per_mw])
        self._single = self._curve.T[..., None].astype(np.float32)
        self._work, self._pass, self._explained = model.work, pass_, fit.discrepancy == 0.0
        self._model, self._fit = model, fit
        self._by_phase, self._heat, self._misfit = pass_.by_phase, pass_.heat_mw, pass_.misfit
        self._rows, self._n = pass_.rows.reshape(-1, pass_.rows.shape[-1]), pass_.main

    def _count_work(self, share: float) -> None:
        waveguides, heaters = self._curve.shape
        pair_work = pairs_work(heaters, waveguides, self._misfit.shape[1], self._n)
        self._work.spent += share * pair_work * self._misfit.size

    def _light(self, directions: Single) -> Single:
        """Return the change of all readings for c combinations of pair crosstalk, ``(readings, c)``."""
        heaters, waveguides, count = directions.shape
        weighted = (directions * self._single).reshape(heaters, -1)
        light = np.empty((*self._by_phase.shape[:2], count), np.float32)
        for part in self._parts():
            light[part] = self._by_phase[part] @ (self._heat[part] @ weighted).reshape(-1, waveguides, count)
        return light.reshape(-1, count)

    def _transpose(self, light: Single) -> Single:
        light = light.reshape(*self._by_phase.shape[:2], -1)
        pairs = np.zeros((*self._curve.T.shape, light.shape[2]), np.float32)
        for part in self._parts():
            phases = np.swapaxes(self._by_phase[part], 1, 2) @ light[part]
            pairs += (self._heat[part].T @ phases.reshape(len(phases), -1)).reshape(pairs.shape)
        pairs *= self._single
        return pairs

    def _parts(self) -> Iterator[slice]:
        return (slice(first, first + _PART) for first in range(0, len(self._heat), _PART))

    def score(
        self, prior_information: Sparse, prior_slope: Real, other_effects: Placed, share: float
    ) -> tuple[RowScore, Real | None]:
        """Score the best-determined combinations of pair crosstalk, together with other effects.

        Args:
            prior_information: Shape ``(P, P)``; prior information about the fitted parameters, times ``share``.
            prior_slope: Shape ``(P,)``; derivative of the cost of the prior, times ``share``.
            other_effects: Parameter positions and prior widths.
            share: Fraction of the settings that are used.

        Returns:
            The score, and the predicted change of all parameters if all these effects are fitted.
        """
        from scipy.sparse import block_diag

        extra_physics = np.concatenate(
            [np.zeros(0, np.int64), *(parameter_numbers(group) for group, _ in other_effects)]
        )
        halves, slopes = self._pass.halves(extra_physics)
        derivatives = self._rows[:, : self._n]
        if len(extra_physics):
            derivatives = self._rows[:, np.concatenate([np.arange(self._n), self._n + extra_physics])]
        n = derivatives.shape[1]
        widths = [np.full(group.stop - group.start, width) for group, width in other_effects]
        others = diagonal(np.concatenate([np.zeros(0), *widths]) ** -2.0)
        prior = block_diag([prior_information, others], format="csr") if len(extra_physics) else prior_information
        information = halves[0] + halves[1] + prior
        elimination = _elimination_matrix(information, derivatives)
        # If a fit does not explain its readings, the slopes cannot be compared with noise.
        if self._explained and (
            unasked := self._score_without_directions(derivatives, information, elimination, share)
        ):
            return unasked, None
        basis, columns = self._directions(elimination)
        self._count_work(SCORE_PAIRS_WORK)

        def scored(equations: Equations) -> RowScore:
            selection = Selection(equations, prior, np.zeros(n), {CROSSTALK_PAIRS: slice(0, columns.shape[1])}, share)
            return selection.rows((CROSSTALK_PAIRS,))[0]

        equations = self._extended_equations(derivatives, halves, slopes, columns)
        score = scored(equations)
        if score.gain > MIN_GAIN and not score.is_supported_by_data:
            # Unfitted directions act as noise, so the readings get the weights of a fit with pairs.
            equations = self._weighted_equations(derivatives, columns, score.width)
            score = scored(equations)
        observable = _observable(columns, score.width, share)
        prior_slope = np.concatenate([prior_slope, np.zeros(n - self._n)])
        step = None
        if score.is_supported_by_data:
            placed = [(slice(number, number + 1), score.width) for number in observable]
            step = predicted_step(equations.halves, placed, prior, prior_slope, share)
        return replace(
            score,
            shift=lambda: score.excluded_effect[: self._n],
            pairs=PairDirections(self._curve, np.asarray(basis[:, :, observable])),
        ), step

    def _extended_equations(
        self, derivatives: Single, halves: tuple[Real, Real], slopes: tuple[Real, Real], columns: Real
    ) -> Equations:
        informations, all_slopes = list[Real](), list[Real]()
        for in_half, main, slope in zip(self._halves(), halves, slopes, strict=True):
            own = columns[in_half]
            across = derivatives[in_half].astype(np.float64).T @ own
            informations.append(joined(main, across, information_of(own)))
            all_slopes.append(np.concatenate([slope, self._misfit.ravel()[in_half] @ own]))
        return Equations.of_halves(
            (informations[0], informations[1]), (all_slopes[0], all_slopes[1]), derivatives.shape[1]
        )

    def _weighted_equations(self, derivatives: Single, columns: Real, width: float) -> Equations:
        heat = self._heat - self._heat.mean(axis=0)
        every = (heat**2) @ (self._single[..., 0] ** 2)
        spread = (self._by_phase**2 @ every[..., None]).ravel() - (columns**2).sum(axis=1)
        weight = 1.0 / np.sqrt(1.0 + width**2 * np.maximum(spread, 0.0))
        rows = np.concatenate([derivatives, columns], axis=1) * weight[:, None]
        misfit = self._misfit.ravel() * weight
        first, second = (information_of(rows[in_half]) for in_half in self._halves())
        slope, other_slope = (misfit[in_half] @ rows[in_half] for in_half in self._halves())
        return Equations.of_halves((first, second), (slope, other_slope), derivatives.shape[1])

    def _halves(self) -> list[NDArray[np.bool_]]:
        return [np.repeat(self._pass.half == half, self._misfit.shape[1]) for half in (0, 1)]

    def best(self, before: PairDirections, prior_information: Sparse, width: float, share: float) -> PairDirections:
        """Return the best-determined combinations of pair crosstalk.

        ``before`` are the best combinations for fewer settings. ``prior_information`` is the prior information about
        the fitted parameters, times ``share``, the fraction of settings used. ``width`` is the prior width of the
        relative deviation of a pair.
        """
        elimination = _elimination_matrix(self._total_information(prior_information), self._rows)
        basis, columns = self._directions(elimination, before.vectors)
        return PairDirections(self._curve, np.asarray(basis[:, :, _observable(columns, width, share)]))

    def _total_information(self, prior_information: Sparse) -> Real:
        first, second = self._pass.information
        information: Real = first + second + prior_information
        return information

    def _random_directions(self, count: int) -> Single:
        directions = np.random.default_rng(0).standard_normal((*self._curve.T.shape, count), np.float32)
        directions *= (self._curve > 0.0).T[..., None]
        return directions

    def _score_without_directions(
        self, derivatives: Single, information: Real, elimination: Single, share: float
    ) -> RowScore | None:
        """Return a score without pair combinations if the pairs have no more effect than noise, otherwise ``None``.

        Score test of a variance (Rao 1948), with random directions (Hutchinson 1989).
        """
        misfit = self._misfit.reshape(-1, 1)
        slope = float((self._transpose(_without(elimination, misfit.astype(np.float32))) ** 2).sum())
        light = _without(elimination, self._light(self._random_directions(_PROBES)))
        expected = float((light**2).sum()) / _PROBES
        spread = 2.0 * float((self._transpose(light) ** 2).sum()) / _PROBES
        if not spread:  # no crosstalk was found, so there is none of which pairs could deviate
            without = np.zeros((self._n, 0), np.float32)
            return RowScore(CROSSTALK_PAIRS, 0.0, 0.0, 0.0, lambda: without)
        variance = (slope - expected) / (0.5 * spread)
        error = np.sqrt(spread) / (0.5 * spread)
        if variance > _MIN_EFFECT_SIGMA * error:
            return None
        # The largest width that noise may hide, and its effect on the fit. More settings would reveal it.
        width = float(np.sqrt((max(variance, 0.0) + error) * share))
        excluded_effect = (
            width * self._parameter_shift(derivatives, information, self._random_directions(_PROBES))
        ).astype(np.float32)
        return RowScore(CROSSTALK_PAIRS, 0.0, 0.0, width, lambda: excluded_effect)

    def _directions(self, elimination: Single, begin: Single | None = None) -> tuple[Single, Real]:
        """Return the best-determined combinations of pair crosstalk and their effect on the readings.

        ``elimination`` is the result of :func:`_elimination_matrix`; the iteration starts at ``begin``.
        """
        # One step of subspace iteration (Halko, Martinsson, Tropp 2011): the readings determine far fewer directions
        # than there are pairs. Directions that are missed count as noise of the readings, and are chosen again later.
        count = min(MAX_PAIRS + _OVERSAMPLED, self._curve.size)
        basis = self._random_directions(count)
        if begin is not None:
            basis[..., : begin.shape[2]] = begin
        self._count_work(CHOOSE_PAIRS_WORK)
        basis = _orthonormal(self._transpose(_without(elimination, self._light(basis))))
        all_light = self._light(basis)
        light = _without(elimination, all_light).astype(np.float64)
        best = np.linalg.eigh(light.T @ light)[1][:, ::-1][:, : min(MAX_PAIRS, count)].astype(np.float32)
        return np.asarray(basis @ best, np.float32), (all_light @ best).astype(np.float64)

    def unfitted_effect(
        self, fitted: PairDirections, width: float, likelihood: Likelihood, prior_information: Sparse, share: float
    ) -> Tail:
        """Return the effect of pair crosstalk that is not fitted on the fitted parameters.

        The variances are estimated with random directions (Hutchinson 1989) to about 10 %.
        """
        directions = self._random_directions(_PROBES_UNFITTED)
        self._count_work(UNFITTED_PAIRS_WORK)
        # The fitted directions are not part of the unfitted effect.
        overlap = np.tensordot(fitted.vectors, directions, axes=([0, 1], [0, 1]))
        directions -= np.asarray(fitted.vectors @ overlap)
        rows, information = self._rows[:, : self._n], self._total_information(prior_information)
        following = self._parameter_shift(rows, information, directions)
        self._subtract_from_laws(following, directions)
        covariance = width**2 * (following @ following.T)
        # A matrix, because a law and the crosstalk of its heater have large errors that cancel in the phase that light
        # shows.
        variance_ma2 = likelihood.sigma_ma(0.0) ** 2
        unmodelled_ma2 = np.zeros_like(variance_ma2) if likelihood.unmodelled_ma2 is None else likelihood.unmodelled_ma2
        unmodelled = np.sqrt(unmodelled_ma2 / variance_ma2).astype(np.float32)
        information = np.zeros_like(information)
        for part in self._parts() if unmodelled.any() else ():
            weighted = self._pass.rows[part][..., : self._n] * unmodelled[part][..., None]
            information += information_of(weighted.astype(np.float64))
        # The inverse is that of all settings; that of the part in this pass is larger, and not only by its size.
        return Tail(covariance, information / share)

    def _subtract_from_laws(self, following: Real, directions: Single) -> None:
        """Subtract from the shifts of heater laws what only makes up for crosstalk in the phases that light shows."""
        space, parameters = self._model.space, self._fit.parameters
        weights = visible_combinations(space.mesh, space.entries, space.monitors)
        change = self._model.heating.law_change(parameters, weights, PairDirections(self._curve, directions))
        change /= np.sqrt(directions.shape[2])
        positions = np.cumsum(self._fit.free) - 1
        for power, name in enumerate(LAW_TERMS):
            group = np.arange(space.size)[space.group(name)]
            free = self._fit.free[group]
            following[positions[group[free]]] -= (parameters.heater_law[:, power, None] * change)[free]

    def _parameter_shift(self, derivatives: Single, information: Real, directions: Single) -> Real:
        """Return the shift of P parameters for c random pair combinations, ``(P, c)``, divided by √c."""
        count = directions.shape[2]
        by_light = np.asarray(derivatives.T @ self._light(directions), np.float64)
        following: Real = solved(information, by_light)[: self._n] / np.sqrt(count)
        return following


def _observable(light: Real, width: float, share: float) -> NDArray[np.int64]:
    """Return the numbers of the directions to fit; badly determined ones increase the errors instead."""
    return np.flatnonzero((light**2).sum(axis=0) / share * width**2 > _OBSERVABLE)


def _elimination_matrix(information: Real, derivatives: Single) -> Single:
    """Return the matrix L⁻¹·Kᵀ, ``(P, N·M)``, for the derivatives K of N·M readings by P known parameters.

    L is the Cholesky factor of ``information``, the information of these parameters with the prior.
    """
    from scipy.linalg import solve_triangular

    factor = np.linalg.cholesky(information).astype(np.float32)
    return np.asarray(solve_triangular(factor, derivatives.T, lower=True, check_finite=False), np.float32)


def _without(elimination: Single, light: Single) -> Single:
    return np.asarray(light - elimination.T @ (elimination @ light), np.float32)


def _orthonormal(directions: Single) -> Single:
    from scipy.linalg import qr

    basis, _ = qr(directions.reshape(-1, directions.shape[2]), mode="economic", check_finite=False)
    return np.asarray(basis, np.float32).reshape(directions.shape)
