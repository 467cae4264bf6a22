"""Drift: validity of a calibration after some time, and its renewal with a few settings (docs/calibration.md, 6).

The prior of the new fit is the covariance of the last fit, widened by what may have changed since. No parameter has to
be frozen: parameters that do not drift are held by their prior. :func:`check_health` compares predicted and measured
readings, in units of noise and stated standard errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult, GlobalFit
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import mean_squared_residual
from calibration.model.parameters import MeshParameters
from calibration.model.priors import Prior
from calibration.model.space import ParameterSpace
from lumion_hw.errors import CalibrationError

Real = NDArray[np.float64]

MAX_CHI2 = 1.5
"""χ² per degree of freedom above which the drift is not of the kind assumed (assumed)."""
_WORST = 5


@dataclass(frozen=True)
class DriftModel:
    """What may change with time (assumed; docs/calibration.md, 6); spreads, one sigma.

    Attributes:
        temperature_k: Of the whole chip, however short the time.
        common_phase_rad_per_k: Of every PUC.
        resistance_per_root_day: Of every heater, relative; random walk.
        passive_phase_rad_per_root_day: Of every PUC, random walk.
        loop_phase_rad_per_root_day: Of the joints, random walk.
        source_db: Of every source, and of its second port over its first, however short the time.
        monitor_db: Of every monitor, however short the time.
    """

    temperature_k: float = 0.1
    common_phase_rad_per_k: float = 0.6
    resistance_per_root_day: float = 1e-3
    passive_phase_rad_per_root_day: float = 0.02
    loop_phase_rad_per_root_day: float = 0.02
    source_db: float = 0.3
    monitor_db: float = 0.05

    def covariance(self, space: ParameterSpace, vector: Real, days: float) -> Real:
        """Return the covariance of the changes after some days, shape ``(size, size)``."""
        root, groups = np.sqrt(days), space.groups
        spread = np.zeros(space.size)
        spread[groups["passive_phase_rad"]] = self.passive_phase_rad_per_root_day * root
        spread[groups["loops"]] = self.loop_phase_rad_per_root_day * root
        spread[groups["rho2"]] = self.resistance_per_root_day * root * vector[groups["rho2"]]
        spread[groups["source_db"]] = spread[space.group("second_db")] = self.source_db
        spread[groups["monitor_db"]] = self.monitor_db
        warmed = self.warmed(space)
        # Everything walks by itself, but for the temperature, which turns all loops together: one direction, of rank
        # one.
        widened: Real = np.diag(spread**2) + np.outer(warmed, warmed)
        return widened

    def warmed(self, space: ParameterSpace) -> Real:
        """Return what one sigma of the temperature adds to all parameters, shape ``(size,)``."""
        # A phase that all PUCs have in common is the same phase on every joint: half from the PUC on either side.
        added = np.zeros(space.size)
        rise_rad = self.temperature_k * self.common_phase_rad_per_k
        added[space.groups["loops"]] = space.directions.sum(axis=0) * rise_rad
        return added


class Posterior(Protocol):
    """What was known last: a :class:`~calibration.fit.global_fit.FitResult`, or what a record keeps of one."""

    @property
    def parameters(self) -> MeshParameters:
        """The point of largest likelihood."""

    @property
    def vector(self) -> Real:
        """The same as a vector, shape ``(size,)``."""

    @property
    def free(self) -> NDArray[np.bool_]:
        """Which parameters were free, shape ``(size,)``."""

    def covariance(self) -> Real:
        """Return the covariance of all parameters, shape ``(size, size)``; 0 where they were held."""


@dataclass(frozen=True, eq=False)
class Renewal:
    """A calibration renewed.

    Attributes:
        fit: The new fit.
        covariance: Shape ``(size, size)``; of all parameters, prior included; 0 where they were held.
        holds: Whether the drift was of the kind assumed.
        worst_pucs: PUCs whose readings fit worst, the worst first; what to measure again if it was not.
    """

    fit: FitResult
    covariance: Real
    holds: bool
    worst_pucs: tuple[int, ...]


def prior_after_time(space: ParameterSpace, last: Posterior, drift: DriftModel, days: float) -> Prior:
    """Return what is known some days after a fit.

    Raises:
        CalibrationError: The last fit leaves parameters without any bound that were free.
    """
    free = last.free
    covariance = _widened(space, last, drift, days)
    spread = np.sqrt(np.diag(covariance))
    if not (spread > 0.0).all():
        where = space.describe(int(np.flatnonzero(free)[np.argmin(spread)]))
        raise CalibrationError(f"the last fit says nothing about {where}", hint="Fit it with a prior.")
    precision = np.zeros((space.size, space.size))
    # Scaled to a unit diagonal first: variances of Hz and rad in one matrix cost all digits.
    precision[np.ix_(free, free)] = np.linalg.inv(covariance / np.outer(spread, spread)) / np.outer(spread, spread)
    return Prior(last.vector, np.full(space.size, np.inf), precision)


def renew(
    model: MeshModel, likelihood: Likelihood, last: Posterior, days: float, drift: DriftModel | None = None
) -> Renewal:
    """Fit a few new settings, some 30, with what the last fit knew as prior.

    Args:
        model: The model.
        likelihood: The new readings.
        last: The last fit.
        days: Time since.
        drift: What may have happened in it.
    """
    drift = drift or DriftModel()
    prior = prior_after_time(model.space, last, drift, days)
    fit = GlobalFit(model, likelihood, prior, last.free).run(last.parameters)
    misfit = _misfit_by_puc(model, fit.parameters, likelihood)
    # Certified alone is not enough: χ² per degree of freedom may still say that the drift was of another kind.
    holds = fit.certified and fit.chi2_per_dof < MAX_CHI2
    fitted = fit.free[last.free]  # a fit that gets nowhere never comes to free the fine parameters
    information = np.zeros((len(fitted), len(fitted)))
    information[np.ix_(fitted, fitted)] = fit.information
    covariance = np.zeros((model.space.size, model.space.size))
    covariance[np.ix_(last.free, last.free)] = _updated(_widened(model.space, last, drift, days), information)
    return Renewal(fit, covariance, holds, tuple(np.argsort(-misfit)[:_WORST].tolist()))


def _misfit_by_puc(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood) -> Real:
    """Return the largest mean squared residual at any PUC's phase or heaters: a dead heater shows at its law."""
    misfit, space = mean_squared_residual(model, parameters, likelihood), model.space
    heaters = misfit[space.group("rho2")].reshape(-1, 2).max(axis=1)
    by_puc: Real = np.maximum(misfit[space.group("passive_phase_rad")], heaters)
    return by_puc


def _widened(space: ParameterSpace, last: Posterior, drift: DriftModel, days: float) -> Real:
    """Return the covariance of the free parameters some days after a fit, shape ``(P, P)``."""
    wide: Real = (last.covariance() + drift.covariance(space, last.vector, days))[np.ix_(last.free, last.free)]
    return wide


def _updated(covariance: Real, information: Real) -> Real:
    """Return a covariance after readings: L·(1 + Lᵀ·I·L)⁻¹·Lᵀ of its root L.

    Not the inverse of a sum of inverses: what is known to a milliradian of a sum is not known to a radian of its terms
    (frequency of the light and loops), and inverting both loses digits that count.
    """
    spread = np.sqrt(np.diag(covariance))
    # By its root: what was known to a milliradian as a sum keeps its digits.
    root = np.linalg.cholesky(covariance / np.outer(spread, spread)) * spread[:, None]
    seen = np.eye(len(root)) + root.T @ information @ root
    after: Real = root @ np.linalg.solve(seen, root.T)
    return 0.5 * (after + after.T)


# Readings count in a comparison that are, or should be, so many times the floor.
_BRIGHT = 10.0
_STEPS = 6
# Temperatures tried first, in sigmas: a ring turns over within a few of them, and from the wrong side of a turn the
# steps lead away: on the recorded chip of 15 PUCs from -0.08 rad of common phase on.
_TRIED = np.arange(-3.0, 3.01, 0.5)
# Longest step of the temperature, in its own sigmas: 0.03 rad of common phase.
_LONGEST_STEP = 0.5


@dataclass(frozen=True)
class Health:
    """How well a record predicts settings, in units of what noise and its own standard errors allow.

    The power of every source is free: its polarization was aligned anew.

    Attributes:
        readings: Number of readings compared.
        chi2_per_reading: Mean squared residual, correlations taken out.
        but_temperature: The same if the temperature of the whole chip may have moved as well, which switching does not
            feel.
        worst_sigma: Largest residual.
        worst_at: Where, in words.
    """

    readings: int
    chi2_per_reading: float
    but_temperature: float
    worst_sigma: float
    worst_at: str

    @property
    def holds(self) -> bool:
        """Whether the record is as true as on the day it was made."""
        return self.chi2_per_reading < MAX_CHI2


def check_health(model: MeshModel, likelihood: Likelihood, known: Posterior, drift: DriftModel) -> Health:
    """Compare readings with what a posterior predicts.

    Args:
        model: The model.
        likelihood: The readings, and their noise.
        known: What is known.
        drift: What may have changed all the same: the light of the sources, and for one of the two figures the
            temperature.

    Raises:
        CalibrationError: No monitor sees light.
    """
    space = model.space
    spread = known.covariance() + replace(drift, temperature_k=0.0).covariance(space, known.vector, 0.0)
    found = _compared(model, likelihood, known.parameters)
    if not len(found.residual):
        raise CalibrationError("no monitor sees enough light to judge the record", hint="Check light and monitors.")
    covariance = found.covariance(spread)
    off = np.abs(found.residual) / np.sqrt(np.diag(covariance))
    worst = int(off.argmax())
    setting, monitor = found.places[worst]
    where = f"monitor at port {space.monitors[monitor]}, light at port {likelihood.observations.source[setting]}"
    still = _chi2(found.residual, covariance)
    warm = _but_temperature(model, likelihood, known.vector, spread, drift.warmed(space))
    return Health(len(found.residual), still, min(warm, still), float(off[worst]), where)


@dataclass(frozen=True)
class _ComparedReadings:
    """Readings beside a prediction, in sigmas.

    Attributes:
        residual: Read minus predicted, shape ``(n,)``.
        slope: Of the prediction by all parameters, shape ``(n, size)``.
        places: Setting and monitor of every reading, shape ``(n, 2)``.
    """

    residual: Real
    slope: Real
    places: NDArray[np.int64]

    def covariance(self, spread: Real) -> Real:
        """Return the covariance of the residuals for parameters with a covariance."""
        covariance: Real = np.eye(len(self.residual)) + self.slope @ spread @ self.slope.T
        return covariance


def _compared(model: MeshModel, likelihood: Likelihood, parameters: MeshParameters) -> _ComparedReadings:
    residuals, slopes, places = [], [], []
    for part in model.linearise(parameters, likelihood.observations):
        sigma = likelihood.sigma_ma(0.0, part.settings)
        level = np.maximum(likelihood.target_ma[part.settings], part.reading_ma)
        # Bright by reading or by prediction, so that light that went elsewhere counts at both ends.
        told = likelihood.used[part.settings] & (level > _BRIGHT * likelihood.noise.floor_ma)
        residuals.append(likelihood.residual(part.reading_ma, 0.0, part.settings)[told])
        slopes.append((part.jacobian / sigma[..., None])[told])
        places.append(np.argwhere(told) + np.array([part.settings.start, 0]))
    return _ComparedReadings(np.concatenate(residuals), np.concatenate(slopes), np.concatenate(places))


def _but_temperature(model: MeshModel, likelihood: Likelihood, vector: Real, spread: Real, warmed: Real) -> float:
    """Return χ² per reading at the temperature that fits best, its own deviation counted.

    A tenth of a kelvin turns the light of a ring too far for one slope: temperatures are tried, and the best of them is
    refined step by step.

    Args:
        model: The model.
        likelihood: The readings.
        vector: What is known.
        spread: Covariance of everything else, shape ``(size, size)``.
        warmed: What one sigma of the temperature adds to the parameters.
    """

    def at(rise: float) -> tuple[float, float]:
        """Return chi2 per reading at a temperature, and the step from there."""
        found = _compared(model, likelihood, model.space.unpack(vector + rise * warmed))
        along = found.slope @ warmed
        turned = np.linalg.solve(found.covariance(spread), np.column_stack([found.residual, along]))
        chi2 = float(found.residual @ turned[:, 0] + rise**2) / max(len(found.residual), 1)
        # Newton on one number, with its own prior; steps are cut, because the slope holds for a fraction of a loop
        # only.
        step = float(along @ turned[:, 0] - rise) / (float(along @ turned[:, 1]) + 1.0)
        return chi2, min(max(step, -_LONGEST_STEP), _LONGEST_STEP)

    tried = {float(rise): at(float(rise)) for rise in _TRIED}
    rise = min(tried, key=lambda each: tried[each][0])
    best, step = tried[rise]
    for _ in range(_STEPS):
        rise += step
        chi2, step = at(rise)
        best = min(best, chi2)
    return best


def _chi2(residual: Real, covariance: Real) -> float:
    """Return the mean squared residual with correlations taken out."""
    return float(residual @ np.linalg.solve(covariance, residual)) / max(len(residual), 1)
