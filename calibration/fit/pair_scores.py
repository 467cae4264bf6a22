"""What light tells of crosstalk of pairs, which are more than readings can tell: the directions that it tells best.

docs/decisions/0023-pairs-that-are-not-fitted.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.fit.row_scores import MIN_GAIN, HalvedEquations, Pass, RowScore, Selection, parameter_numbers
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import Single, information_of
from calibration.model.physics import MAX_PAIRS, PairDirections
from calibration.model.symmetric import solved
from calibration.model.work import BESIDE, DIRECTIONS, SCORED, pairs_work
from lumion_hw.mesh.record.calibration_record import CROSSTALK_PAIRS

Real = NDArray[np.float64]

# Directions of pairs that light tells less than this share of, of what their width is, are not fitted.
_TOLD = 0.1
# Settings whose phases are held at once for all directions of pairs.
_PART = 128
_OVERSAMPLED = 20
# Directions at random by which traces over all pairs are estimated: to an eighth.
_PROBES = 64
_PROBES_BESIDE = 256
# Slopes by pairs beyond what noise makes them, from which on pairs are looked at one direction at a time.
_ASKED_SIGMA = 3.0


@dataclass(frozen=True, eq=False)
class Tail:
    """What pairs in directions that are not fitted do to P fitted parameters.

    Attributes:
        covariance: Shape ``(P, P)``.
        as_noise: Shape ``(P,)``; the part of the variances by noise that stands for it in the weights of readings.
    """

    covariance: Real
    as_noise: Real


class Pairs:
    """What light tells of pairs of a waveguide and a heater, by the rows of some settings.

    Args:
        model: The model of the fit.
        fit: The fit.
        pass_: The settings: their rows by the parameters of the fit, and by those of small rows.
    """

    def __init__(self, model: MeshModel, fit: FitResult, pass_: Pass) -> None:
        kernel = model.heating.crosstalk(replace(fit.parameters, extra_physics={}))
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
        extra_physics = np.concatenate([np.zeros(0, np.int64), *(parameter_numbers(place) for place, _ in beside)])
        halves, slopes = self._pass.gram.among(extra_physics)
        seen = self._rows[:, np.concatenate([np.arange(self._n), self._n + extra_physics])]
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

        def scored(gram: HalvedEquations) -> RowScore:
            selection = Selection(gram, prior, np.zeros(n), {CROSSTALK_PAIRS: slice(0, columns.shape[1])}, share)
            return selection.rows((CROSSTALK_PAIRS,))[0]

        found = scored(self._beside_columns(seen, halves, slopes, columns))
        if found.gain > MIN_GAIN and not found.is_supported_by_data:
            # What lies in no direction hides what those fitted explain: readings count as in a fit with pairs.
            found = scored(self._weighed_columns(seen, columns, found.width))
        directions = self._told(basis, columns, found.width, share)
        return replace(found, excluded_effect=found.excluded_effect[: self._n], pairs=directions)

    def _beside_columns(
        self, seen: Single, halves: tuple[Real, Real], slopes: tuple[Real, Real], columns: Real
    ) -> HalvedEquations:
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

    def _weighed_columns(self, seen: Single, columns: Real, width: float) -> HalvedEquations:
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
        excluded_effect = (width * self._following(seen, whole, self._at_random(_PROBES))).astype(np.float32)
        return RowScore(CROSSTALK_PAIRS, 0.0, 0.0, width, excluded_effect)

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
        count = min(MAX_PAIRS + _OVERSAMPLED, self._curve.size)
        basis = self._at_random(count)
        if begin is not None:
            basis[..., : begin.shape[2]] = begin
        self._spend(DIRECTIONS)
        basis = _orthonormal(self._back(_without(known, self._light(basis))))
        whole = self._light(basis)
        light = _without(known, whole).astype(np.float64)
        best = np.linalg.eigh(light.T @ light)[1][:, ::-1][:, : min(MAX_PAIRS, count)].astype(np.float32)
        return np.asarray(basis @ best, np.float32), (whole @ best).astype(np.float64)

    def unfitted_effect(
        self, fitted: PairDirections, width: float, likelihood: Likelihood, ahead: Real, share: float
    ) -> Tail:
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


def _gram_of(
    main: Sequence[Real], across: Sequence[Real], inner: Sequence[Real], slope: Sequence[Real]
) -> HalvedEquations:
    """Return normal equations of parameters whose information is there."""

    def among(chosen: NDArray[np.int64]) -> tuple[Real, Real]:
        first, second = (each[np.ix_(chosen, chosen)] for each in inner)
        return first, second

    return HalvedEquations((main[0], main[1]), (across[0], across[1]), (slope[0], slope[1]), among)


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
