"""Errors of heater laws in the phases that light shows.

Light shows the phase of a heater as a sum over several waveguides. An effect that a fit leaves out may shift a law and
at the same time add to this sum, so that most of the shift is no error of the phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.fit.row_scores import Equations, Halves
from calibration.model.arrays import Real, Single
from calibration.model.gauge import visible_combinations
from calibration.model.heating import law_point_weights
from calibration.model.mesh_model import MeshModel
from calibration.model.physics import select_test_heaters
from calibration.model.space import LAW_TERMS
from calibration.model.symmetric import inverse_of, root_of, subtract_product
from lumion_hw.mesh.record.calibration_record import CROSSTALK_PAIRS

# Number of currents at which each heater is driven alone, in equal steps of their square.
_STEPS = 24
# Variance of a phase in rad² that counts as zero.
_NO_VARIANCE = 1e-30


class HeaterLaws:
    """Phases of H heaters as light shows them, each heater driven alone with S currents.

    Args:
        model: Model of the fit, with P fitted parameters.
        fit: The fit.
        max_ma: Shape ``(H,)``; largest current of every heater in the readings.
        effects: Position of the parameters of effects that are not fitted, by name; p parameters.
    """

    def __init__(self, model: MeshModel, fit: FitResult, max_ma: Real, effects: Mapping[str, slice]) -> None:
        squares, heaters = np.linspace(0.0, 1.0, _STEPS + 1)[1:], len(max_ma)
        self._space, self._free, self._effects = model.space, fit.free, effects
        self._per_term = np.divide(1.0, max_ma, out=np.zeros(heaters), where=max_ma > 0.0) ** [[2], [4], [6]]
        self._powers = squares[:, None] ** np.arange(1, 4)
        self._three_terms = np.linalg.pinv(self._powers)
        weights = visible_combinations(model.mesh, model.space.entries, model.space.monitors)
        arm, joint = np.split(weights[:, None], [heaters], axis=2)
        names = {*effects, *model.space.physics.widths}
        self._own_rad, parts = np.empty((_STEPS, heaters)), dict[str, list[Real]]()
        for step, square in enumerate(squares):  # one by one: together they need gigabytes on a large mesh
            heated = model.heating.phases(fit.parameters, np.sqrt(square) * np.diag(max_ma))
            self._own_rad[step] = heated.own_rad.sum(axis=1)
            slopes = model.heating.chain(fit.parameters, heated, arm, joint)
            slopes |= model.heating.by_rows(names, fit.parameters, heated, arm, joint)
            for name, by_one in slopes.items():
                parts.setdefault(name, []).append(by_one[:, 0].astype(np.float64))
        self._slopes: dict[str, Real] = {name: np.stack(parts.pop(name)) for name in tuple(parts)}
        if (pairs := model.space.physics.pairs) is not None:
            change = model.heating.law_change(fit.parameters, weights, pairs)
            self._slopes[CROSSTALK_PAIRS] = self._own_rad[..., None] * change

    def at_constant_phase(self, equations: Equations) -> Equations:
        """Return normal equations for effects that leave the phases of heaters driven alone unchanged.

        The parameters of the effects change the laws as well. The shift of a law due to such an effect is the error of
        the phase that light shows. The given equations are overwritten.
        """
        terms = np.zeros((3, self._own_rad.shape[1], equations.across.shape[1]))
        for name in self._effects.keys() & self._slopes.keys():
            terms[..., self._effects[name]] = -self._in_three_terms(self._slopes[name])
        changes = self._as_parameters(terms)
        n, laws = len(changes), np.flatnonzero(changes.any(axis=1))
        by_law, halves_before = changes[laws], equations.halves

        def change(main: Real, across: Real, inner: Real, by_law: Real) -> None:
            subtract_product(inner, -by_law.T, across[laws])
            subtract_product(across, -main[:, laws], by_law)
            subtract_product(inner, -across[laws].T, by_law)

        def with_changes(slope: Real, by_law: Real) -> Real:
            return np.concatenate([slope[:n], slope[n:] + by_law.T @ slope[laws]])

        def halves(chosen: NDArray[np.int64]) -> Halves:
            informations, slopes = halves_before(chosen)
            own = by_law[:, chosen]
            for half in informations:
                change(half[:n, :n], half[:n, n:], half[n:, n:], own)
                half[n:, :n] = half[:n, n:].T
            return informations, (with_changes(slopes[0], own), with_changes(slopes[1], own))

        change(equations.main[0] + equations.main[1], equations.across, equations.inner, by_law)
        return replace(equations, slope=with_changes(equations.slope, by_law), halves=halves)

    def deviation_effect(
        self, by_deviation: Single, information: Real, slope: Real, width: float, share: float
    ) -> Single:
        """Return the factor F of the covariance F·Fᵀ of the fitted parameters due to k law deviations.

        Args:
            by_deviation: Shape ``(P, k)``; change of the fitted parameters by the deviations.
            information: Shape ``(k, k)``; information of the used settings about the deviations.
            slope: Shape ``(k,)``; slope of the log likelihood.
            width: Prior width of the deviations.
            share: Fraction of the settings that are used.
        """
        covariance = inverse_of(information / share + np.eye(len(slope)) * width**-2.0)
        deviations = np.column_stack([root_of(covariance), covariance @ slope / share])
        return self._with_law_errors(by_deviation @ deviations, deviations).astype(np.float32)

    def _with_law_errors(self, shift: Real, deviations: Real) -> Real:
        """Return the errors of P parameters for c sets of deviations, ``(p, c)``, that shift them by ``shift``.

        Three terms cannot follow the errors of a law at each current. Their covariance is that of errors which have the
        same variance, but are independent at each current.
        """
        tested = select_test_heaters(self._own_rad.shape[1])
        vector = np.zeros((self._space.size, shift.shape[1]))
        vector[self._free] = shift
        phases, in_others = np.zeros((2, *self._own_rad.shape, shift.shape[1]))
        for name in (name for name in self._space.groups if name in self._slopes):
            part = self._slopes[name] @ vector[self._space.groups[name]]
            phases += part
            if name not in LAW_TERMS:
                in_others += part
        own_rad = self._own_rad[:, tested]
        by_point = own_rad[..., None] * law_point_weights(own_rad)
        left = by_point - np.tensordot(self._powers, self._in_three_terms(by_point), axes=1)
        phases[:, tested] -= np.einsum("shp,hpc->shc", left, deviations.reshape(len(tested), -1, shift.shape[1]))
        variance = (phases**2).sum(axis=2)
        # Heaters that are not tested deviate as the others do, relative to their phase.
        other = np.setdiff1d(np.arange(len(variance.T)), tested)
        relative = variance[:, tested] / np.maximum(own_rad**2, _NO_VARIANCE)
        variance[:, other] = relative.mean(axis=1, keepdims=True) * self._own_rad[:, other] ** 2
        factor = self._term_factor(variance)
        terms, numbers = np.zeros((3, len(factor), len(factor), 3)), np.arange(len(factor))
        terms[:, numbers, numbers] = np.swapaxes(factor, 0, 1)
        # Errors of other parameters are no errors of these phases.
        at_constant_phase = -self._as_parameters(self._in_three_terms(in_others))
        others = np.where(self._space.mask(LAW_TERMS)[self._free, None], at_constant_phase, shift)
        return np.hstack([others, self._as_parameters(terms.reshape(3, len(factor), -1))])

    def _term_factor(self, variance: Real) -> Real:
        """Return the factor of the covariance of the terms, ``(H, 3, 3)``, for variances of phases ``(S, H)``."""
        covariance = np.einsum("as,sh,bs->hab", self._three_terms, variance, self._three_terms)
        by_terms = np.einsum("sa,hab,sb->h", self._powers, covariance, self._powers)
        scale = np.sqrt(variance.sum(axis=0) / np.maximum(by_terms, _NO_VARIANCE))
        factor: Real = np.linalg.cholesky(covariance + _NO_VARIANCE * np.eye(3)) * scale[:, None, None]
        return factor

    def _in_three_terms(self, phases_rad: Real) -> Real:
        """Return the three law terms, ``(3, H, k)``, nearest to phases ``(S, H, k)``."""
        terms: Real = np.tensordot(self._three_terms, phases_rad, axes=1)
        return terms

    def _as_parameters(self, terms: Real) -> Real:
        parameters = np.zeros((self._space.size, terms.shape[2]))
        for power, name in enumerate(LAW_TERMS):
            parameters[self._space.groups[name]] = self._per_term[power, :, None] * terms[power]
        fitted: Real = parameters[self._free]
        return fitted
