"""Fits with the sign of coupler angles reversed.

Light often shows the mean or the difference of the two coupler angles of a PUC by its square, and its sign only
faintly. A barrier then separates both signs, and a fit stays on the side on which it began.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from calibration.fit.global_fit import ON_THE_WAY_SIGMA, FitResult, GlobalFit
from calibration.model.arrays import Real
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import normal_equations
from calibration.model.parameters import MeshParameters
from calibration.model.physics import Physics
from calibration.model.priors import COUPLER_GROUPS, Prior

_log = logging.getLogger(__name__)

# Share of the remaining work for signs while a fit does not explain its readings.
_MAX_WORK_SHARE = 0.25
# Rounds between two comparisons of the reversed sign with the fit.
_ROUNDS = 3
# A trial ends if this many more runs, each with the gain of the last one, would not make it better than the fit.
_MORE_RUNS = 4.0
# If the information about a coupler angle at zero is below this share of that at its fitted value, light shows little
# but its square, and the opposite sign is tried.
_MAX_BARRIER_SHARE = 0.05
# Decrease of χ², prior included, for which a sign is reversed: three sigma. The prior counts, because with the wrong
# sign an unusual coupler may explain the same light.
_MIN_GAIN = 9.0
# Both coupler angles, each with the other one.
_PAIRS = tuple(zip(COUPLER_GROUPS, reversed(COUPLER_GROUPS), strict=True))
# Sum and difference of the angles of both couplers, over the mean and the difference.
_SHARES = dict(zip(COUPLER_GROUPS, (2.0, 1.0), strict=True))
# Difference between two equivalent solutions, in standard errors, that hardly changes the error.
_SMALL_SIGMA = 0.5
# Increase of χ² at a point that an adjustment of the PUC's parameters may turn into an equivalent solution.
_MAX_UNADJUSTED = 5000.0
# Number of settings that show whether two solutions are equivalent.
_FEW_SETTINGS = 100
# Change of a parameter for its derivative, in rad or dB.
_DIFFERENCE = 1e-4
_ARMS = "arm_difference_db"
_OF_ONE_PUC = ("passive_phase_rad", "loss_db", *COUPLER_GROUPS, _ARMS)


def fit_with_best_signs(
    fitting: GlobalFit, model: MeshModel, likelihood: Likelihood, prior: Prior, fit: FitResult
) -> FitResult:
    """Fit with the sign of the mean or difference of the coupler angles of single PUCs reversed; return the best fit.

    Args:
        fitting: Runs fits of the same parameters and readings as ``fit``.
        model: Model of the mesh.
        likelihood: The readings.
        prior: Prior knowledge.
        fit: The fit so far.
    """
    limit = model.work.spent + _MAX_WORK_SHARE * model.work.remaining
    for name in COUPLER_GROUPS:
        for puc in _pucs_with_barrier(name, model, likelihood, fit):
            # A fit that explains its readings ends soon; before, most work is for the search for missing effects.
            if fit.discrepancy > 0.0 and (model.work.is_used_up or model.work.spent > limit):
                return fit
            trial = _with_reversed_sign(name, puc, fitting, model, likelihood, prior, fit)
            if trial is not None and fit.cost(prior) - trial.cost(prior) > _MIN_GAIN:
                # The trial has had more rounds: only a fit with as many shows which sign is better.
                fit = _finished(fitting, fit)
                if fit.cost(prior) - trial.cost(prior) > _MIN_GAIN:
                    fit = trial
    return fit


def equivalent_solutions(model: MeshModel, likelihood: Likelihood, fit: FitResult) -> Real:
    """Return the standard errors due to other coupler angles with the same light.

    If light does not show the sign of one coupler angle of a PUC, it does not show the sign of the arms' difference in
    loss, either. Both solutions explain the readings, but the other coupler angle differs between them.

    Args:
        model: Model of the mesh.
        likelihood: The readings.
        fit: The fit, with P parameters; its errors are valid.

    Returns:
        Shape ``(P, k)``; a factor of the covariance, one column for each of k PUCs and angles. The sign of the reversed
        angle is not part of its error.
    """
    columns, sigma_rad = list[Real](), np.zeros(model.space.size)
    sigma_rad[fit.free] = np.sqrt(np.diag(fit.inverse))
    # A part of the settings is enough for the parameters of one PUC.
    step = max(len(likelihood.observations) // _FEW_SETTINGS, 1)
    light = _Light(model, likelihood[::step], fit)
    for name, other in _PAIRS:
        angles, own = model.space.group(other), model.space.group(name)
        small_rad = _SMALL_SIGMA * sigma_rad[angles]
        for puc in np.flatnonzero(fit.free[own] & fit.free[angles]).tolist():
            before = _values(fit.parameters, other)[puc]
            turned = _with_reversed_arms(fit.parameters, name, puc)
            points = [point for point in turned if abs(_values(point, other)[puc] - before) > small_rad[puc]]
            chi2 = [light.chi2(point) for point in points]
            if not points or step * min(chi2) > _MAX_UNADJUSTED:
                continue
            chi2_left, change = light.adjusted_change(points[int(np.argmin(chi2))], puc)
            if step * chi2_left < _MIN_GAIN and abs(change[angles][puc]) > small_rad[puc]:
                change[own] = 0.0
                columns.append(change[fit.free] * np.sqrt(0.5))  # both solutions are equally likely
    return np.column_stack(columns) if columns else np.zeros((int(fit.free.sum()), 0))


class _Light:
    """Computed light, in standard deviations of the readings, beside that of a fit."""

    def __init__(self, model: MeshModel, likelihood: Likelihood, fit: FitResult) -> None:
        self._model, self._likelihood, self._fit = model, likelihood, fit
        self._sigma_ma = likelihood.sigma_ma(fit.discrepancy)
        self._of_fit = self._at(fit.parameters)

    def _at(self, parameters: MeshParameters) -> Real:
        light_ma = self._model.predict(parameters, self._likelihood.observations)
        return (light_ma / self._sigma_ma)[self._likelihood.used]

    def chi2(self, point: MeshParameters) -> float:
        """Return how far the light at a point is from that of the fit."""
        return float(((self._at(point) - self._of_fit) ** 2).sum())

    def adjusted_change(self, point: MeshParameters, puc: int) -> tuple[float, Real]:
        """Adjust the parameters of a PUC to the light of the fit; return the χ² left and the whole change."""
        space, present = self._model.space, self._at(point)
        slopes = np.empty((len(present), len(_OF_ONE_PUC)))
        for column, name in enumerate(_OF_ONE_PUC):
            moved = _with_value(point, name, puc, _values(point, name)[puc] + _DIFFERENCE)
            slopes[:, column] = (self._at(moved) - present) / _DIFFERENCE
        off = self._of_fit - present
        adjustment = np.linalg.lstsq(slopes, off, rcond=None)[0]
        change = np.zeros(space.size)
        for name, step in zip(_OF_ONE_PUC, adjustment.tolist(), strict=True):
            before, after = (_values(parameters, name)[puc] for parameters in (self._fit.parameters, point))
            change[space.group(name).start + puc] = after + step - before
        return float(((off - slopes @ adjustment) ** 2).sum()), change


def _finished(fitting: GlobalFit, fit: FitResult) -> FitResult:
    return fitting.run(fit.parameters, near=True, allow_near_information=True, convergence_sigma=ON_THE_WAY_SIGMA)


def _with_reversed_sign(
    name: str, puc: int, fitting: GlobalFit, model: MeshModel, likelihood: Likelihood, prior: Prior, fit: FitResult
) -> FitResult | None:
    """Return the fit with one coupler angle of the opposite sign; ``None`` if the sign falls back or gains nothing."""
    points = [_with_reversed_angle(fit.parameters, name, puc), *_with_reversed_arms(fit.parameters, name, puc)]
    light = _Light(model, likelihood, fit)
    changes = [light.chi2(point) for point in points]
    point = points[int(np.argmin(changes))]
    if min(changes) < _MIN_GAIN:  # light does not show this sign
        return None
    reversed_rad = getattr(point, name)
    # Most signs fall back in the first round.
    trial = fitting.run(point, 1, near=True, earlier_fit=fit, allow_near_information=True)
    excess = np.inf
    while excess > 0.0:
        if getattr(trial.parameters, name)[puc] * reversed_rad[puc] <= 0.0:
            return None
        before = trial.cost(prior)
        trial = fitting.run(trial.parameters, _ROUNDS, near=True, earlier_fit=trial, allow_near_information=True)
        excess = trial.cost(prior) - fit.cost(prior) + _MIN_GAIN
        if excess > _MORE_RUNS * (before - trial.cost(prior)):
            return None
    _log.info("trying the opposite sign of %s of PUC %d", name, puc)
    return _finished(fitting, trial)


def _pucs_with_barrier(name: str, model: MeshModel, likelihood: Likelihood, fit: FitResult) -> list[int]:
    """Return the PUCs whose coupler angle is separated from its opposite by a barrier."""
    is_candidate = fit.free & model.space.mask((name,))
    numbers = np.flatnonzero(is_candidate)
    if not numbers.size:  # the fit ended before it freed them
        return []
    level = _with_all(fit.parameters, name, np.zeros(model.mesh.n_pucs))
    # Without derivatives by the other effects, which would take most of the time.
    plain = model.with_physics(Physics(fixed_values=level.extra_physics))
    wanted = is_candidate[: plain.space.size]
    at_zero = np.diag(normal_equations(plain, level, likelihood, wanted, fit.discrepancy).information)
    at_fit = np.diag(fit.information)[is_candidate[fit.free]]
    pucs: list[int] = (numbers[at_zero < _MAX_BARRIER_SHARE * at_fit] - model.space.group(name).start).tolist()
    return pucs


def _with_reversed_angle(parameters: MeshParameters, name: str, puc: int) -> MeshParameters:
    return _with_value(parameters, name, puc, -_values(parameters, name)[puc])


def _with_reversed_arms(parameters: MeshParameters, name: str, puc: int) -> Iterator[MeshParameters]:
    """Yield parameters with the signs of a coupler angle and of the arms' difference in loss reversed.

    The light of the two arms exchanges its strengths, so that it interferes as before. In the other states of the PUC
    the ratio of these strengths must not change: the other coupler angle follows, first for light in one direction,
    then for light in the opposite one.
    """
    point, other = _with_reversed_angle(parameters, name, puc), dict(_PAIRS)[name]
    reversed_rad, kept_rad = (_SHARES[group] * _values(point, group)[puc] for group in (name, other))
    if _ARMS not in parameters.extra_physics or abs(reversed_rad) + abs(kept_rad) >= 0.5 * np.pi:
        return
    difference_db = _values(point, _ARMS)[puc]
    point, log_ratio = _with_value(point, _ARMS, puc, -difference_db), difference_db * np.log(10.0) / 20.0
    limit = np.cos(reversed_rad)  # of the sine: all light in one arm
    for change in (log_ratio, -log_ratio):
        sine = limit * np.tanh(np.arctanh(np.sin(kept_rad) / limit) + change)
        yield _with_value(point, other, puc, np.arcsin(sine) / _SHARES[other])


def _values(parameters: MeshParameters, name: str) -> Real:
    """Return the values of all PUCs."""
    return parameters.extra_physics[name] if name == _ARMS else getattr(parameters, name)


def _with_value(parameters: MeshParameters, name: str, puc: int, value: float) -> MeshParameters:
    values = _values(parameters, name).copy()
    values[puc] = value
    if name == _ARMS:
        return replace(parameters, extra_physics={**parameters.extra_physics, name: values})
    return _with_all(parameters, name, values)


def _with_all(parameters: MeshParameters, name: str, values: Real) -> MeshParameters:
    changed: dict[str, Any] = {name: values}
    return replace(parameters, **changed)
