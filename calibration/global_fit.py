"""The global clear-box fit: all parameters of a mesh from all readings at once, by maximum likelihood.

Gauss-Newton steps on the exact derivatives, damped where a step does not help (Levenberg-Marquardt). From afar it is
led by the doubt of :mod:`calibration.likelihood`: the noise a wrong model would have is found from the residuals, falls
with them, and is zero at the end, where the fit is one of maximum likelihood for the noise alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.likelihood import Likelihood, without_drift
from calibration.model import MeshModel
from calibration.normal import NormalEquations, normal_equations, surrogate_cost
from calibration.parameters import MeshParameters
from calibration.priors import FREE_GROUPS, Prior

Real = NDArray[np.float64]

_log = logging.getLogger(__name__)

MOST_ROUNDS = 60
_CONVERGED = 0.02
"""Root mean square step, in standard errors, at which a fit has converged."""
_LATE_GROUPS = ("rho4", "rho6", "coupler_common_rad", "coupler_difference_rad", "crosstalk", "heat_factor")
_EARLY_DOUBT = 0.05
"""As long as fields are wrong by more than this, the fine parameters stay where they started."""
_EARLY_STEP = 0.3
_UNLIKE_RAD = 3e-3
"""Where coupler differences of 0 begin instead: that of a PUC that is a path of its own (15, 34, 53) shows as its
square only, so that 0 is no slope to leave by, and its sign stays open."""
_PATIENCE, _PROGRESS = 8, 0.93
"""A fit is given up whose doubt has not fallen by this factor over so many rounds."""
_STILL = 5
"""The same, where it has not fallen at all."""
_DAMPING_START, _DAMPING_NEAR = 1e-3, 1e-7
_DAMPING_LEAST = 1e-9
_DAMPING_MOST = 1e6
_LARGEST_TURN_RAD = 0.4
"""No phase turns farther in one step."""
_LARGEST_DB = 3.0


@dataclass(frozen=True)
class Round:
    """One step of a fit.

    Attributes:
        doubt: η, the share of the typical field by which the model was taken to be wrong.
        chi2_per_reading: Mean squared residual against noise alone, cut at three sigma each.
        step_sigma: Root mean square step, in standard errors.
    """

    doubt: float
    chi2_per_reading: float
    step_sigma: float


@dataclass(frozen=True, eq=False)
class FitResult:
    """What a fit found.

    Attributes:
        parameters: The point of largest likelihood.
        vector: The same as a vector.
        free: Shape ``(size,)``; which parameters were free.
        information: Shape ``(P, P)``; Fisher information of the readings about the free parameters.
        prior_information: Shape ``(P, P)``; that of the prior.
        converged: Whether steps became smaller than the standard errors.
        doubt: η at the end; above 0 the model does not explain the readings.
        chi2_per_reading: Sum of squared residuals over readings used, noise alone.
        chi2_per_dof: The same over readings less what of the parameters they determine, not the prior.
        rounds: What each step did.
    """

    parameters: MeshParameters
    vector: Real
    free: NDArray[np.bool_]
    information: Real
    prior_information: Real
    converged: bool
    doubt: float
    chi2_per_reading: float
    chi2_per_dof: float
    rounds: tuple[Round, ...]

    @property
    def certified(self) -> bool:
        """Whether the fit has converged on a point that explains the readings."""
        return self.converged and self.doubt == 0.0

    def covariance(self) -> Real:
        """Return the covariance of all parameters, prior included, shape ``(size, size)``; 0 where they were held."""
        result = np.zeros((len(self.vector), len(self.vector)))
        scale = _scale(self.information + self.prior_information)
        inner = np.linalg.pinv((self.information + self.prior_information) / np.outer(scale, scale), hermitian=True)
        result[np.ix_(self.free, self.free)] = inner / np.outer(scale, scale)
        return result


class GlobalFit:
    """Fits a model to readings.

    Args:
        model: The model.
        likelihood: The readings and what to make of them.
        prior: What is known without them.
        free: Groups of parameters, or a mask of shape ``(size,)``; the others keep their start values.
        done: Told of every round.
        give_up: Told the point after every round; ends the fit by answering yes.
    """

    def __init__(
        self,
        model: MeshModel,
        likelihood: Likelihood,
        prior: Prior,
        free: Sequence[str] | NDArray[np.bool_] = FREE_GROUPS,
        done: Callable[[Round], None] = lambda _: None,
        give_up: Callable[[Real], bool] = lambda _: False,
    ) -> None:
        self._model, self._likelihood, self._prior = model, likelihood, prior
        self._wanted = free if isinstance(free, np.ndarray) else model.space.mask(free)
        self._free_first(early=True)
        self._done, self._give_up = done, give_up

    def _free_first(self, *, early: bool) -> None:
        """Free all that is wanted; early only what moves light much: a fine knob must not stand in for a coarse."""
        self._free = self._wanted & ~self._model.space.mask(_LATE_GROUPS) if early else self._wanted
        self._prior_information = self._prior.information(self._free)

    def run(self, start: MeshParameters, rounds: int = MOST_ROUNDS, *, near: bool = False) -> FitResult:
        """Fit from a start, for so many rounds at most; from a ``near`` one, another fit's end, in full steps."""
        point = self._model.space.pack(start)
        level = self._model.space.mask(("coupler_difference_rad",)) & (point == 0.0) & self._wanted
        point[level] = _UNLIKE_RAD
        self._free_first(early=not near)
        equations, doubt = self._about(point, None, np.inf)
        damping, converged, early = _DAMPING_NEAR if near else _DAMPING_START, False, not near
        history: list[Round] = []
        while not converged and len(history) < rounds and not _stalled(history):
            point, damping, step_sigma = self._step(point, equations, damping, doubt)
            before = doubt
            if early and (doubt < _EARLY_DOUBT or step_sigma < _EARLY_STEP):
                early = False
                self._free_first(early=False)
            equations, doubt = self._about(point, equations, doubt)
            history.append(Round(doubt, self._chi2(equations), step_sigma))
            _log.debug("round %d: %s, damping %.1e", len(history), history[-1], damping)
            self._done(history[-1])
            converged = step_sigma < _CONVERGED and doubt == before and not early
            if self._give_up(point):
                break
        return self._result(point, equations, converged, doubt, history)

    def _about(self, point: Real, before: NormalEquations | None, doubt: float) -> tuple[NormalEquations, float]:
        """Return the normal equations about a point and the doubt they are weighed by, no larger than before."""
        parameters = self._model.space.unpack(point)
        reading = self._model.predict(parameters, self._likelihood.observations)
        drift_ma = np.zeros((*reading.shape, 2)) if before is None else before.drift_ma
        doubt = min(doubt, self._likelihood.doubt(reading, drift_ma))
        return normal_equations(self._model, parameters, self._likelihood, self._free, doubt), doubt

    def _step(self, point: Real, equations: NormalEquations, damping: float, doubt: float) -> tuple[Real, float, float]:
        """Return the next point, the damping that led to it, and its distance in standard errors."""
        free, prior = self._free, self._prior_information
        slope = equations.gradient - prior @ (point - self._prior.mean)[free]
        matrix = equations.information + prior
        cost = self._cost(point, equations, equations.reading_ma, doubt)
        while True:
            step = _solve(matrix, slope, damping)
            step *= self._shortening(step)
            ahead = point.copy()
            ahead[free] += step
            reading = self._model.predict(self._model.space.unpack(ahead), self._likelihood.observations)
            size = float(np.sqrt(np.maximum(step @ matrix @ step, 0.0) / len(step)))
            if self._cost(ahead, equations, reading, doubt) <= cost:
                return ahead, max(damping / 10.0, _DAMPING_LEAST), size
            if size < _CONVERGED or damping > _DAMPING_MOST:
                return point, damping, 0.0
            damping *= 10.0

    def _shortening(self, step: Real) -> float:
        """Return what to multiply a step by so that no phase and no level moves too far at once."""
        space = self._model.space
        full = np.zeros(space.size)
        full[self._free] = np.abs(step)
        turn = float(full[space.mask(("passive_phase_rad", "loops"))].max())
        level = float(full[space.mask(("source_db", "monitor_db"))].max())
        return min(1.0, _LARGEST_TURN_RAD / max(turn, 1e-300), _LARGEST_DB / max(level, 1e-300))

    def _cost(self, point: Real, equations: NormalEquations, reading_ma: Real, doubt: float) -> float:
        away = (point - self._prior.mean)[self._free]
        cost = surrogate_cost(self._likelihood, equations, reading_ma, doubt)
        return cost + 0.5 * float(away @ self._prior_information @ away)

    def _chi2(self, equations: NormalEquations) -> float:
        squares = self._squares(equations)
        return float(np.minimum(squares, 9.0).mean()) if len(squares) else 0.0

    def _squares(self, equations: NormalEquations) -> Real:
        """Return the squared residuals of the readings used, noise alone, what drifted taken out."""
        residual, sigma = self._likelihood.residual(equations.reading_ma, 0.0), self._likelihood.sigma_ma(0.0)
        squares: Real = without_drift(residual, equations.drift_ma / sigma[..., None])[self._likelihood.used] ** 2
        return squares

    def _result(
        self, point: Real, equations: NormalEquations, converged: bool, doubt: float, history: list[Round]
    ) -> FitResult:
        total, used = float(self._squares(equations).sum()), int(self._likelihood.used.sum())
        determined = _determined(equations.information, self._prior_information)
        return FitResult(
            parameters=self._model.space.unpack(point),
            vector=point,
            free=self._free,
            information=equations.information,
            prior_information=self._prior_information,
            converged=converged,
            doubt=doubt,
            chi2_per_reading=total / max(used, 1),
            chi2_per_dof=total / max(used - determined, 1.0),
            rounds=tuple(history),
        )


def _stalled(history: list[Round]) -> bool:
    """Whether the doubt, still there, has hardly fallen over many rounds."""
    doubts = [one.doubt for one in history]
    if doubts[-1:] == [0.0]:
        return False
    still = len(doubts) > _STILL and doubts[-1] == doubts[-1 - _STILL]
    return still or (len(doubts) > _PATIENCE and doubts[-1] > _PROGRESS * doubts[-1 - _PATIENCE])


def _determined(information: Real, prior: Real) -> float:
    """Return how many parameters the readings determine: the trace of their share in all that is known."""
    total = information + prior
    scale = _scale(total)
    unit = np.outer(scale, scale)
    return float(np.trace(np.linalg.pinv(total / unit, hermitian=True) @ (information / unit)))


def _scale(matrix: Real) -> Real:
    """Return the roots of a diagonal, 1 where it is zero."""
    root = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    return np.where(root > 0.0, root, 1.0)


def _solve(matrix: Real, slope: Real, damping: float) -> Real:
    """Return the damped step; every parameter is damped in units of its own scale."""
    from scipy.linalg import cho_factor, cho_solve

    scale = _scale(matrix)
    scaled = matrix / np.outer(scale, scale)
    scaled[np.diag_indices_from(scaled)] += damping
    step: Real = cho_solve(cho_factor(scaled, overwrite_a=True, check_finite=False), slope / scale) / scale
    return step
