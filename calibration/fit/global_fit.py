"""Global fit of all parameters of a mesh to all readings by maximum likelihood.

Damped Gauss-Newton steps with exact derivatives (Levenberg-Marquardt); readings far from the model get a low weight at
first.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from calibration.model.likelihood import Likelihood, without_drift
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import (
    NormalEquations,
    drift_at,
    equations_with,
    normal_equations,
    surrogate_cost,
)
from calibration.model.parameters import MeshParameters
from calibration.model.priors import FREE_GROUPS, PHASE_GROUPS, Prior, modulo_a_turn
from calibration.model.symmetric import Sparse, inverse_of, scale_of, solved
from calibration.model.work import solution_work

_log = logging.getLogger(__name__)

MAX_ROUNDS = 60
CONVERGED_SIGMA = 0.02
"""A fit has converged when the rms step is below this many standard errors."""
ON_THE_WAY_SIGMA = 0.3
"""Step, in standard errors, at which an intermediate fit ends. The next settings or the next cause move it farther than
the remaining distance, and rounds near the end take as long as earlier ones."""
_LATE_GROUPS = ("rho4", "rho6", "coupler_common_rad", "coupler_difference_rad", "heat_factor")
# The fine parameters stay fixed while predicted fields are wrong by more than this.
_EARLY_DISCREPANCY = 0.05
_EARLY_STEP = 0.3
# Start value for coupler differences of 0. The readings depend only on the square of the difference in PUCs that are
# the only path (15, 34, 53), so a fit could not leave 0. Its sign stays unknown.
_UNLIKE_RAD = 3e-3
# A fit stops if its discrepancy has not fallen by this factor over so many rounds.
_STALL_ROUNDS, _PROGRESS = 8, 0.93
# The same number if the discrepancy has not fallen at all.
_UNCHANGED_ROUNDS = 5
# A fit has also converged if χ² falls by less than this (2 standard errors of one parameter) over so many rounds.
# Crosstalk and laws of a chip with few heaters form a curved valley, along which a fit creeps for hundreds of rounds.
_STEADY_ROUNDS, _STEADY_CHI2 = 20, 4.0
# Largest rms distance, in standard errors, at which the information matrix is kept.
_MAX_REUSE_SIGMA = 4.0
# A smaller relative change of the slope is too inexact to correct the curvature.
_MIN_CURVED = 1e-3
_DAMPING_START, _DAMPING_NEAR = 1e-3, 1e-7
_DAMPING_MIN = 1e-9
# Smaller damping has no effect: hardly any direction has so little curvature.
_DAMPING_EFFECTIVE = 1e-5
_DAMPING_MAX = 1e6
# An information matrix calculated within this distance of the end is valid at the end.
_NEAR_SIGMA = 0.1
# Number of failed steps after which a kept information matrix is recalculated.
_MAX_FAILED_STEPS = 3
# Largest change of a phase in one step.
_LARGEST_TURN_RAD = 0.4
_LARGEST_DB = 3.0


@dataclass(frozen=True)
class Round:
    """One step of a fit.

    Attributes:
        discrepancy: Assumed relative error of the predicted field.
        chi2_per_reading: Mean squared residual relative to the noise, clipped at three sigma.
        step_sigma: Root mean square step, in standard errors.
    """

    discrepancy: float
    chi2_per_reading: float
    step_sigma: float


@dataclass(frozen=True, eq=False)
class FitResult:
    """Result of a fit of P free parameters.

    Attributes:
        vector: The fitted parameters as a vector.
        free: Shape ``(size,)``; which parameters were free.
        information: Shape ``(P, P)``; Fisher information of the readings.
        prior_information: Shape ``(P, P)``; information of the prior.
        converged: Whether the steps became smaller than the standard errors.
        discrepancy: Relative error of the predicted field at the end; above 0 the model does not explain the readings.
        chi2_per_reading: Mean squared residual relative to the noise.
        readings: Number of readings used.
        rounds: All steps of the fit.
        settings: Number of fitted settings.
        information_distance_sigma: Rms distance from the result to the point where ``information`` was calculated, in
            standard errors.
        stated: Shape ``(P, P)``; covariance that includes effects missing in the model
            (:mod:`calibration.fit.stated_errors`); ``None`` if not calculated.
    """

    parameters: MeshParameters
    vector: Real
    free: NDArray[np.bool_]
    information: Real
    prior_information: Sparse
    converged: bool
    discrepancy: float
    chi2_per_reading: float
    readings: int
    rounds: tuple[Round, ...]
    settings: int
    information_distance_sigma: float = 0.0
    stated: Real | None = None

    @property
    def path_length_sigma(self) -> float:
        """Rms distance from the start to the result of the fit, in standard errors."""
        return sum(fit_round.step_sigma for fit_round in self.rounds)

    @property
    def certified(self) -> bool:
        """Whether the fit has converged and explains the readings."""
        return self.converged and self.discrepancy == 0.0

    @property
    def chi2_per_dof(self) -> float:
        """Sum of squared residuals per degree of freedom. Parameters determined by the prior are not counted."""
        # The trace counts the parameters that the readings determine; parameters held by their prior do not count.
        determined = float((self.inverse * self.information).sum())
        return self.chi2_per_reading * self.readings / max(self.readings - determined, 1.0)

    def cost(self, prior: Prior) -> float:
        """Return χ² of readings and prior."""
        deviation = (self.vector - prior.mean)[self.free]
        return self.chi2_per_reading * self.readings + float(deviation @ self.prior_information @ deviation)

    def covariance(self) -> Real:
        """Return the covariance of all parameters, prior included, shape ``(size, size)``; 0 for fixed parameters."""
        result = np.zeros((len(self.vector), len(self.vector)))
        result[np.ix_(self.free, self.free)] = self.inverse if self.stated is None else self.stated
        return result

    @cached_property
    def inverse(self) -> Real:
        """Shape ``(P, P)``; covariance of the free parameters if the model is correct."""
        # Combinations that neither readings nor prior determine get no variance.
        return inverse_of(self.information + self.prior_information)


@dataclass(frozen=True, eq=False)
class _FitState:
    """State of a running fit; P free parameters.

    Attributes:
        point: Shape ``(size,)``; current parameter vector.
        equations: Normal equations at ``point``.
        discrepancy: Assumed relative error of the predicted field.
        curvature: Shape ``(P, P)``; information and prior, corrected by changes of the slope.
        gathered: Shape ``(size,)``; point at which the information was calculated.
        information_distance_sigma: Distance from ``point`` to ``gathered`` at the start of the fit, in standard errors.
    """

    point: Real
    equations: NormalEquations
    discrepancy: float
    curvature: Real
    gathered: Real
    information_distance_sigma: float = 0.0


@dataclass(frozen=True, eq=False)
class _FitStep:
    """A step that was tried: its point, the predicted readings and the damping."""

    state: _FitState
    point: Real
    reading_ma: Real
    size_sigma: float
    damping: float


class GlobalFit:
    """Fits a model to readings.

    Args:
        likelihood: Readings with their noise.
        free: Names of the parameter groups to fit, or a mask of shape ``(size,)``; others keep their start values.
        on_round: Function called with every finished :class:`Round`.
        should_stop: Called with the model discrepancy (relative field error) after every round; the fit ends if it
            returns true.
    """

    def __init__(
        self,
        model: MeshModel,
        likelihood: Likelihood,
        prior: Prior,
        free: Sequence[str] | NDArray[np.bool_] = FREE_GROUPS,
        on_round: Callable[[Round], None] = lambda _: None,
        should_stop: Callable[[float], bool] = lambda _: False,
    ) -> None:
        self._model, self._likelihood, self._prior = model, likelihood, prior
        self._wanted = free if isinstance(free, np.ndarray) else model.space.free(free)
        self._free_first(early=True)
        self._on_round, self._should_stop = on_round, should_stop

    def _free_first(self, *, early: bool) -> None:
        late = (*_LATE_GROUPS, *self._model.space.physics.names)
        # Crosstalk that is hardly known shifts phases as much as other coarse parameters do.
        crosstalk = self._model.space.group("crosstalk").start
        if self._prior.sigma[crosstalk] < self._prior.mean[crosstalk]:
            late = (*late, "crosstalk")
        self._free = self._wanted & ~self._model.space.mask(late) if early else self._wanted
        self._prior_information = self._prior.information(self._free)

    def run(
        self,
        start: MeshParameters,
        rounds: int = MAX_ROUNDS,
        *,
        near: bool = False,
        earlier_fit: FitResult | None = None,
        allow_near_information: bool = False,
        convergence_sigma: float = CONVERGED_SIGMA,
    ) -> FitResult:
        """Fit from a start point.

        Args:
            start: Start point.
            rounds: Maximum number of rounds.
            near: Whether the start is near the end of another fit, so that steps need no damping.
            earlier_fit: A fit of the first settings, if its information is still valid at the start point.
            allow_near_information: Whether the returned information may be from a point near the end. For final errors
                call :meth:`stated`.
            convergence_sigma: Rms step, in standard errors, at which the fit ends.
        """
        point = self._model.space.pack(start)
        # A difference that affects the readings only through its square has no slope at 0 and would stay there.
        level = self._model.space.mask(("coupler_difference_rad",)) & (point == 0.0) & self._wanted
        point[level] = _UNLIKE_RAD
        # Coarse before fine: otherwise curvatures and crosstalk would compensate phases that are still wrong
        # (docs/decisions/0006).
        self._free_first(early=not near)
        state = self._state_near_solution(point, earlier_fit) if near else self._initial_state(point)
        damping, converged, early = _DAMPING_NEAR if near else _DAMPING_START, False, not near
        history: list[Round] = []
        coarse = 0  # rounds with coarse parameters only
        while not converged and len(history) < rounds and (early or not _stalled(history[coarse:])):
            step = self._step(state, damping)
            near_enough = state.discrepancy < _EARLY_DISCREPANCY or step.size_sigma < _EARLY_STEP
            # In a large mesh light passes so many couplers that a fit of coarse parameters alone never gets near.
            freed = early and (near_enough or _stalled(history))
            if freed:
                early, coarse = False, len(history)
                self._free_first(early=False)
            before, state, damping = state, self._next_state(step.state, step, recalculate=freed), step.damping
            history.append(Round(state.discrepancy, self._chi2(state.equations), step.size_sigma))
            _log.debug("round %d: %s, damping %.1e", len(history), history[-1], damping)
            self._on_round(history[-1])
            # The fit does not end while the model discrepancy still falls: the next round changes the weights of the
            # readings.
            # A fit that has just freed the fine parameters has not yet moved them.
            is_unmoved = step.size_sigma < convergence_sigma and state.discrepancy == before.discrepancy
            converged = (is_unmoved or self._is_steady(history[coarse:])) and not early and not freed
            if self._should_stop(state.discrepancy):
                break
        result = self._result(state, converged, history)
        return result if allow_near_information else self.stated(result)

    def stated(self, fit: FitResult) -> FitResult:
        """Return the fit with an information matrix calculated at its end point."""
        if fit.information_distance_sigma < _NEAR_SIGMA:
            return fit
        equations = normal_equations(self._model, fit.parameters, self._likelihood, fit.free, fit.discrepancy)
        return replace(fit, information=equations.information, information_distance_sigma=0.0)

    def _is_steady(self, history: Sequence[Round]) -> bool:
        latest = history[-_STEADY_ROUNDS - 1 :]
        if len(latest) <= _STEADY_ROUNDS or any(fit_round.discrepancy > 0.0 for fit_round in latest):
            return False
        gain = (latest[0].chi2_per_reading - latest[-1].chi2_per_reading) * int(self._likelihood.used.sum())
        return abs(gain) < _STEADY_CHI2

    def _initial_state(self, point: Real) -> _FitState:
        reading_ma = self._reading_ma(point)
        discrepancy = self._likelihood.discrepancy(reading_ma, np.zeros((*reading_ma.shape, 2)))
        return self._gather_state(point, discrepancy)

    def _state_near_solution(self, point: Real, earlier_fit: FitResult | None) -> _FitState:
        parameters, likelihood = self._model.space.unpack(point), self._likelihood
        reading_ma, settings = self._reading_ma(point), likelihood.observations
        drift_ma = drift_at(self._model, parameters, settings, reading_ma, likelihood.drift)
        discrepancy = likelihood.discrepancy(reading_ma, drift_ma)
        # The other fit's information is valid only if that fit explained its readings with the same free parameters.
        if (
            earlier_fit is None
            or discrepancy > 0.0
            or not earlier_fit.certified
            or not np.array_equal(earlier_fit.free, self._free)
        ):
            return self._gather_state(point, discrepancy)
        information = earlier_fit.information
        if len(settings) > earlier_fit.settings:
            # Only the information of the new settings is calculated, which takes four fifths of the time of a round.
            new_readings = likelihood[np.arange(earlier_fit.settings, len(settings))]
            information = information + normal_equations(self._model, parameters, new_readings, self._free).information
        equations = equations_with(self._model, parameters, likelihood, information, reading_ma, self._free)
        return replace(
            self._state_at(point, equations, discrepancy),
            information_distance_sigma=earlier_fit.information_distance_sigma,
        )

    def _gather_state(self, point: Real, discrepancy: float) -> _FitState:
        parameters = self._model.space.unpack(point)
        return self._state_at(
            point, normal_equations(self._model, parameters, self._likelihood, self._free, discrepancy), discrepancy
        )

    def _state_at(self, point: Real, equations: NormalEquations, discrepancy: float) -> _FitState:
        return _FitState(point, equations, discrepancy, equations.information + self._prior_information, point)

    def _next_state(self, state: _FitState, step: _FitStep, *, recalculate: bool) -> _FitState:
        # The discrepancy never rises (docs/decisions/0006); otherwise the fit could run in circles.
        discrepancy = min(state.discrepancy, self._likelihood.discrepancy(step.reading_ma, state.equations.drift_ma))
        distance = (step.point - state.gathered)[self._free]
        # Kept information is valid within a standard error or two; farther away the curvature differs.
        if recalculate or discrepancy != state.discrepancy or _rms(distance, state.curvature) > _MAX_REUSE_SIGMA:
            return self._gather_state(step.point, discrepancy)
        parameters = self._model.space.unpack(step.point)
        information = state.equations.information
        equations = equations_with(
            self._model, parameters, self._likelihood, information, step.reading_ma, self._free, discrepancy
        )
        after = replace(state, point=step.point, equations=equations)
        # The exact change of the slope along the step corrects the kept curvature (BFGS).
        turn, change = (step.point - state.point)[self._free], self._slope(state) - self._slope(after)
        return replace(after, curvature=_bfgs_update(state.curvature, turn, change))

    def _reading_ma(self, point: Real) -> Real:
        return self._model.predict(self._model.space.unpack(point), self._likelihood.observations)

    def _slope(self, state: _FitState) -> Real:
        deviation = (state.point - self._prior.mean)[self._free]
        slope: Real = state.equations.gradient - self._prior_information @ deviation
        return slope

    def _step(self, state: _FitState, damping: float) -> _FitStep:
        slope, cost = self._slope(state), self._cost(state, state.point, state.equations.reading_ma)
        for tried in itertools.count(1):
            # Levenberg-Marquardt: ten times more damping until the cost falls, then a tenth of it.
            turn = _solve(state.curvature, slope, damping)
            self._model.work.spent += solution_work(len(turn))
            turn *= self._shortening(turn)
            trial = state.point.copy()
            trial[self._free] += turn
            reading_ma, size = self._reading_ma(trial), _rms(turn, state.curvature)
            if self._cost(state, trial, reading_ma) <= cost:
                return _FitStep(state, trial, reading_ma, size, max(damping / 10.0, _DAMPING_MIN))
            # No step lowers the cost: the point stays, and the fit converges or stops.
            if size < CONVERGED_SIGMA or damping > _DAMPING_MAX:
                return _FitStep(state, state.point, state.equations.reading_ma, 0.0, damping)
            damping = max(10.0 * damping, _DAMPING_EFFECTIVE)
            # The curvature of parameters that show only as their square, such as some coupler differences, may have
            # changed.
            if tried == _MAX_FAILED_STEPS and state.gathered is not state.point:
                return self._step(self._gather_state(state.point, state.discrepancy), _DAMPING_NEAR)
        raise AssertionError("no step lowered the cost, although the damping was increased without limit")

    def _shortening(self, step: Real) -> float:
        space = self._model.space
        # Derivatives are valid within about 0.4 rad only.
        full = np.zeros(space.size)
        full[self._free] = np.abs(step)
        turn = float(full[space.mask(("passive_phase_rad", "loops"))].max())
        level = float(full[space.mask(("source_db", "monitor_db"))].max())
        return min(1.0, _LARGEST_TURN_RAD / max(turn, 1e-300), _LARGEST_DB / max(level, 1e-300))

    def _cost(self, state: _FitState, point: Real, reading_ma: Real) -> float:
        deviation = (point - self._prior.mean)[self._free]
        cost = surrogate_cost(self._likelihood, state.equations, reading_ma, state.discrepancy)
        return cost + 0.5 * float(deviation @ self._prior_information @ deviation)

    def _chi2(self, equations: NormalEquations) -> float:
        squares = self._squares(equations)
        return float(np.minimum(squares, 9.0).mean()) if len(squares) else 0.0

    def _squares(self, equations: NormalEquations) -> Real:
        residual, sigma = self._likelihood.residual(equations.reading_ma, 0.0), self._likelihood.sigma_ma(0.0)
        squares: Real = without_drift(residual, equations.drift_ma / sigma[..., None])[self._likelihood.used] ** 2
        return squares

    def _result(self, state: _FitState, converged: bool, history: list[Round]) -> FitResult:
        equations = state.equations
        total, used = float(self._squares(equations).sum()), int(self._likelihood.used.sum())
        return FitResult(
            parameters=self._model.space.unpack(state.point),
            vector=state.point,
            free=self._free,
            information=equations.information,
            prior_information=modulo_a_turn(self._prior_information, self._model.space.mask(PHASE_GROUPS)[self._free]),
            converged=converged,
            discrepancy=state.discrepancy,
            chi2_per_reading=total / max(used, 1),
            readings=used,
            rounds=tuple(history),
            settings=len(self._likelihood.observations),
            information_distance_sigma=state.information_distance_sigma
            + _rms((state.point - state.gathered)[self._free], state.curvature),
        )


def _stalled(history: list[Round]) -> bool:
    discrepancies = [fit_round.discrepancy for fit_round in history]
    if discrepancies[-1:] == [0.0]:
        return False
    is_unchanged = len(discrepancies) > _UNCHANGED_ROUNDS and discrepancies[-1] == discrepancies[-1 - _UNCHANGED_ROUNDS]
    return is_unchanged or (
        len(discrepancies) > _STALL_ROUNDS and discrepancies[-1] > _PROGRESS * discrepancies[-1 - _STALL_ROUNDS]
    )


def _rms(step: Real, curvature: Real) -> float:
    return float(np.sqrt(np.maximum(step @ curvature @ step, 0.0) / max(len(step), 1)))


def _bfgs_update(curvature: Real, step: Real, change: Real) -> Real:
    """Return the curvature corrected by the change of slope along a step (Broyden, Fletcher, Goldfarb, Shanno 1970)."""
    expected = curvature @ step
    # If the slope did not change along the step, the update would divide by zero.
    if not step @ change > _MIN_CURVED * (step @ expected):
        return curvature
    updated: Real = (
        curvature + np.outer(change, change / (step @ change)) - np.outer(expected, expected / (step @ expected))
    )
    return updated


def _solve(matrix: Real, slope: Real, damping: float) -> Real:
    scale = scale_of(matrix)
    scaled = matrix / np.outer(scale, scale)
    scaled[np.diag_indices_from(scaled)] += damping
    step: Real = solved(scaled, slope / scale) / scale
    return step
