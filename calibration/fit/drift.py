"""Validity of a calibration after some time, and its renewal with a few settings (docs/calibration.md, 6).

The prior of the new fit is the covariance of the last fit, increased by possible changes since. All parameters stay
free, because the narrow prior keeps parameters that do not drift in place. :func:`check_health` compares predicted and
measured readings in units of noise and standard errors.
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
"""χ² per degree of freedom above which the drift does not follow :class:`DriftModel` (assumed value)."""
_WORST = 5


@dataclass(frozen=True)
class DriftModel:
    """Changes with time (assumed; docs/calibration.md, 6), as one-sigma spreads.

    Attributes:
        temperature_k: Temperature change of the whole chip, for any duration.
        common_phase_rad_per_k: Phase change of every PUC per kelvin.
        resistance_per_root_day: Relative change of every heater resistance per √day (random walk).
        passive_phase_rad_per_root_day: Change of every passive phase in rad per √day (random walk).
        loop_phase_rad_per_root_day: Phase change of the waveguide joints in rad per √day (random walk).
        source_db: Power change of every source, and of its second port relative to its first, for any duration.
        monitor_db: Sensitivity change of every monitor, for any duration.
    """

    temperature_k: float = 0.1
    common_phase_rad_per_k: float = 0.6
    resistance_per_root_day: float = 1e-3
    passive_phase_rad_per_root_day: float = 0.02
    loop_phase_rad_per_root_day: float = 0.02
    source_db: float = 0.3
    monitor_db: float = 0.05

    def covariance(self, space: ParameterSpace, vector: Real, days: float) -> Real:
        """Return the covariance of the parameter changes after some days, shape ``(size, size)``."""
        root, groups = np.sqrt(days), space.groups
        spread = np.zeros(space.size)
        spread[groups["passive_phase_rad"]] = self.passive_phase_rad_per_root_day * root
        spread[groups["loops"]] = self.loop_phase_rad_per_root_day * root
        spread[groups["rho2"]] = self.resistance_per_root_day * root * vector[groups["rho2"]]
        spread[groups["source_db"]] = spread[space.group("second_db")] = self.source_db
        spread[groups["monitor_db"]] = self.monitor_db
        warmed = self.warmed(space)
        # All parameters drift independently, except for the temperature: it turns all loops together (rank one).
        widened: Real = np.diag(spread**2) + np.outer(warmed, warmed)
        return widened

    def warmed(self, space: ParameterSpace) -> Real:
        """Return the change of all parameters if the temperature rises by ``temperature_k``, shape ``(size,)``."""
        # A phase common to all PUCs equals the same phase on every joint: half comes from the PUC on either side.
        added = np.zeros(space.size)
        rise_rad = self.temperature_k * self.common_phase_rad_per_k
        added[space.groups["loops"]] = space.directions.sum(axis=0) * rise_rad
        return added


class Posterior(Protocol):
    """Last known parameters and errors: a :class:`~calibration.fit.global_fit.FitResult`, or read from a record."""

    @property
    def parameters(self) -> MeshParameters:
        """The point of largest likelihood."""

    @property
    def vector(self) -> Real:
        """The point of largest likelihood as a vector, shape ``(size,)``."""

    @property
    def free(self) -> NDArray[np.bool_]:
        """Which parameters were free, shape ``(size,)``."""

    def covariance(self) -> Real:
        """Return the covariance of all parameters, shape ``(size, size)``; 0 for fixed parameters."""


@dataclass(frozen=True, eq=False)
class Renewal:
    """Result of the renewal of a calibration.

    Attributes:
        fit: The new fit.
        covariance: Shape ``(size, size)``; covariance of all parameters, prior included; 0 for fixed parameters.
        holds: Whether the measured drift agrees with the drift model.
        worst_pucs: PUCs with the largest misfit, the worst first; measure them again if ``holds`` is false.
    """

    fit: FitResult
    covariance: Real
    holds: bool
    worst_pucs: tuple[int, ...]


def prior_after_time(space: ParameterSpace, last: Posterior, drift: DriftModel, days: float) -> Prior:
    """Return the prior for a fit some days after the last one.

    Raises:
        CalibrationError: A free parameter of the last fit has no finite error.
    """
    free = last.free
    covariance = _aged_covariance(space, last, drift, days)
    spread = np.sqrt(np.diag(covariance))
    if not (spread > 0.0).all():
        where = space.describe(int(np.flatnonzero(free)[np.argmin(spread)]))
        raise CalibrationError(f"the last fit does not determine {where}", hint="Repeat the fit with a prior.")
    precision = np.zeros((space.size, space.size))
    # Scaled to a unit diagonal first: variances in Hz² and rad² in one matrix would cost all digits.
    precision[np.ix_(free, free)] = np.linalg.inv(covariance / np.outer(spread, spread)) / np.outer(spread, spread)
    return Prior(last.vector, np.full(space.size, np.inf), precision)


def renew(
    model: MeshModel, likelihood: Likelihood, last: Posterior, days: float, drift: DriftModel | None = None
) -> Renewal:
    """Fit about 30 new settings, with the last fit as prior.

    ``days`` is the time since the last fit; ``drift`` holds the assumed changes during this time.
    """
    drift = drift or DriftModel()
    prior = prior_after_time(model.space, last, drift, days)
    fit = GlobalFit(model, likelihood, prior, last.free).run(last.parameters)
    misfit = _misfit_by_puc(model, fit.parameters, likelihood)
    # A certified fit is not enough: χ² per degree of freedom may still show drift of another kind.
    holds = fit.certified and fit.chi2_per_dof < MAX_CHI2
    fitted = fit.free[last.free]  # a fit without progress never frees the fine parameters
    information = np.zeros((len(fitted), len(fitted)))
    information[np.ix_(fitted, fitted)] = fit.information
    covariance = np.zeros((model.space.size, model.space.size))
    covariance[np.ix_(last.free, last.free)] = _covariance_after_readings(
        _aged_covariance(model.space, last, drift, days), information
    )
    return Renewal(fit, covariance, holds, tuple(np.argsort(-misfit)[:_WORST].tolist()))


def _misfit_by_puc(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood) -> Real:
    """Return, for every PUC, the largest mean squared residual of its phase and heater parameters.

    A heater that died since the last fit has a large residual of its heater law (phase against current).
    """
    misfit, space = mean_squared_residual(model, parameters, likelihood), model.space
    heaters = misfit[space.group("rho2")].reshape(-1, 2).max(axis=1)
    by_puc: Real = np.maximum(misfit[space.group("passive_phase_rad")], heaters)
    return by_puc


def _aged_covariance(space: ParameterSpace, last: Posterior, drift: DriftModel, days: float) -> Real:
    """Return the covariance of the free parameters some days after a fit, shape ``(P, P)``."""
    wide: Real = (last.covariance() + drift.covariance(space, last.vector, days))[np.ix_(last.free, last.free)]
    return wide


def _covariance_after_readings(covariance: Real, information: Real) -> Real:
    """Return a covariance L·Lᵀ after new readings with Fisher information I: L·(1 + Lᵀ·I·L)⁻¹·Lᵀ.

    Inverting a sum of inverses would lose digits, because the sum of a frequency and a loop phase is known to a
    milliradian although neither of them is known to a radian.
    """
    spread = np.sqrt(np.diag(covariance))
    # Using the root keeps the digits of sums that are known to a milliradian.
    root = np.linalg.cholesky(covariance / np.outer(spread, spread)) * spread[:, None]
    seen = np.eye(len(root)) + root.T @ information @ root
    after: Real = root @ np.linalg.solve(seen, root.T)
    return 0.5 * (after + after.T)


# A comparison uses readings whose measured or predicted value is at least this multiple of the noise floor.
_BRIGHT = 10.0
_STEPS = 6
# Temperatures tried first, in sigmas. A ring resonance repeats within a few sigmas, and Newton steps from the wrong
# side diverge (on the recorded chip of 15 PUCs from -0.08 rad of common phase on).
_TRIED = np.arange(-3.0, 3.01, 0.5)
# Largest temperature step, in sigmas: 0.03 rad of common phase.
_LONGEST_STEP = 0.5


@dataclass(frozen=True)
class Health:
    """Agreement of a record with measured settings, relative to noise and the record's standard errors.

    The power of every source is free, because the polarization was aligned again.

    Attributes:
        readings: Number of compared readings.
        chi2_per_reading: Mean squared residual, weighted with the full covariance of the readings.
        but_temperature: Mean squared residual after fitting the chip temperature, which does not affect switching.
        worst_sigma: Largest residual.
        worst_at: Monitor and source port of the largest residual.
    """

    readings: int
    chi2_per_reading: float
    but_temperature: float
    worst_sigma: float
    worst_at: str

    @property
    def holds(self) -> bool:
        """Whether the record still predicts readings within its stated errors."""
        return self.chi2_per_reading < MAX_CHI2


def check_health(model: MeshModel, likelihood: Likelihood, posterior: Posterior, drift: DriftModel) -> Health:
    """Compare measured readings with the predictions of a fit or record.

    ``drift`` holds the changes that are tolerated: source power, and for ``Health.but_temperature`` also the chip
    temperature.

    Raises:
        CalibrationError: No monitor receives light.
    """
    space = model.space
    spread = posterior.covariance() + replace(drift, temperature_k=0.0).covariance(space, posterior.vector, 0.0)
    found = _compared(model, likelihood, posterior.parameters)
    if not len(found.residual):
        raise CalibrationError(
            "no monitor receives enough light to check the record", hint="Check the light sources and the monitors."
        )
    covariance = found.covariance(spread)
    off = np.abs(found.residual) / np.sqrt(np.diag(covariance))
    worst = int(off.argmax())
    setting, monitor = found.places[worst]
    where = f"monitor at port {space.monitors[monitor]}, light at port {likelihood.observations.source[setting]}"
    still = _chi2(found.residual, covariance)
    warm = _chi2_at_best_temperature(model, likelihood, posterior.vector, spread, drift.warmed(space))
    return Health(len(found.residual), still, min(warm, still), float(off[worst]), where)


@dataclass(frozen=True)
class _ComparedReadings:
    """Differences between readings and predictions, in sigmas.

    Attributes:
        residual: Reading minus prediction, shape ``(readings,)``.
        slope: Derivative of the prediction by all parameters, shape ``(readings, size)``.
        places: Indices of setting and monitor of every reading, shape ``(readings, 2)``.
    """

    residual: Real
    slope: Real
    places: NDArray[np.int64]

    def covariance(self, spread: Real) -> Real:
        """Return the covariance of the residuals due to noise and to the given covariance of the parameters."""
        covariance: Real = np.eye(len(self.residual)) + self.slope @ spread @ self.slope.T
        return covariance


def _compared(model: MeshModel, likelihood: Likelihood, parameters: MeshParameters) -> _ComparedReadings:
    residuals, slopes, places = [], [], []
    for part in model.linearise(parameters, likelihood.observations):
        sigma = likelihood.sigma_ma(0.0, part.settings)
        level = np.maximum(likelihood.target_ma[part.settings], part.reading_ma)
        # A bright reading or a bright prediction counts, so that misdirected light shows at both ports.
        told = likelihood.used[part.settings] & (level > _BRIGHT * likelihood.noise.floor_ma)
        residuals.append(likelihood.residual(part.reading_ma, 0.0, part.settings)[told])
        slopes.append((part.jacobian / sigma[..., None])[told])
        places.append(np.argwhere(told) + np.array([part.settings.start, 0]))
    return _ComparedReadings(np.concatenate(residuals), np.concatenate(slopes), np.concatenate(places))


def _chi2_at_best_temperature(
    model: MeshModel, likelihood: Likelihood, vector: Real, spread: Real, warmed: Real
) -> float:
    """Return χ² per reading at the best-fitting temperature, including a penalty for the temperature change.

    A tenth of a kelvin moves a ring resonance too far for a linear model. Several temperatures are tried, and the best
    one is refined step by step. ``spread`` is the covariance of all parameter changes except those due to temperature;
    ``warmed`` is the change of the parameters for one sigma of temperature.
    """

    def at(rise: float) -> tuple[float, float]:
        """Return χ² per reading at a given temperature change, and the next Newton step of the temperature."""
        found = _compared(model, likelihood, model.space.unpack(vector + rise * warmed))
        along = found.slope @ warmed
        turned = np.linalg.solve(found.covariance(spread), np.column_stack([found.residual, along]))
        chi2 = float(found.residual @ turned[:, 0] + rise**2) / max(len(found.residual), 1)
        # Newton iteration for one number with its prior. The step is limited because the slope is valid for a fraction
        # of a loop only.
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
    return float(residual @ np.linalg.solve(covariance, residual)) / max(len(residual), 1)
