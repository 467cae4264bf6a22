"""Validity of a calibration after some time: assumed drift, and a check with few settings (docs/calibration.md, 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import drift_slopes_ma
from calibration.model.parameters import MeshParameters
from calibration.model.priors import Prior
from calibration.model.space import ParameterSpace
from lumion_hw.errors import CalibrationError

MAX_CHI2 = 1.5
"""χ² per degree of freedom above which :class:`DriftModel` does not describe the drift (assumed)."""


@dataclass(frozen=True)
class DriftModel:
    """Changes with time, as one-sigma spreads (assumed; docs/calibration.md, 6).

    Attributes:
        temperature_k: Temperature change of the whole chip, for any duration.
        common_phase_rad_per_k: Phase change of every PUC per kelvin.
        resistance_per_root_day: Relative change of every heater resistance per √day (random walk).
        passive_phase_rad_per_root_day: Change of every passive phase in rad per √day (random walk).
        loop_phase_rad_per_root_day: Phase change of the waveguide joints in rad per √day (random walk).
        source_db: Power change of every source, also of its second port relative to the first.
        monitor_db: Sensitivity change of every monitor.
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
    """Parameters and errors of the last fit or of a record."""

    @property
    def parameters(self) -> MeshParameters:
        """The parameters."""

    @property
    def vector(self) -> Real:
        """The parameters as a vector, shape ``(size,)``."""

    @property
    def free(self) -> NDArray[np.bool_]:
        """Which parameters were free, shape ``(size,)``."""

    def covariance(self) -> Real:
        """Return the covariance of all parameters, shape ``(size, size)``; 0 for fixed parameters."""


def prior_after_time(space: ParameterSpace, last: Posterior, drift: DriftModel, days: float) -> Prior:
    """Return the prior for a fit some days after the last one.

    Raises:
        CalibrationError: A free parameter of the last fit has an infinite error.
    """
    covariance = last.covariance() + drift.covariance(space, last.vector, days)
    variance = np.diag(covariance)[last.free]
    if not (variance > 0.0).all():
        where = space.describe(int(np.flatnonzero(last.free)[np.argmin(variance)]))
        raise CalibrationError(f"the last fit does not determine {where}", hint="Repeat the fit with a prior.")
    return prior_of(last.vector, covariance, last.free)


def prior_of(mean: Real, covariance: Real, free: NDArray[np.bool_]) -> Prior:
    """Return the prior with a mean and a covariance, shape ``(size, size)``, of the free parameters."""
    block = covariance[np.ix_(free, free)]
    spread = np.sqrt(np.diag(block))
    precision = np.zeros_like(covariance)
    # Scaled to a unit diagonal first: variances in Hz² and rad² in one matrix would cost all digits.
    precision[np.ix_(free, free)] = np.linalg.inv(block / np.outer(spread, spread)) / np.outer(spread, spread)
    return Prior(mean, np.full(len(mean), np.inf), precision)


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
    """Agreement of a record with measured settings.

    The power of every source is fitted, because the polarization was aligned again.

    Attributes:
        readings: Number of compared readings.
        chi2_per_reading: Mean squared residual, relative to noise and errors of the record.
        chi2_without_temperature: The same after a fit of the chip temperature, which does not affect switching.
        worst_sigma: Largest residual in standard errors, without the errors that several readings share; its square is
            at least ``chi2_per_reading``.
        worst_at: Monitor and source port of the largest residual.
    """

    readings: int
    chi2_per_reading: float
    chi2_without_temperature: float
    worst_sigma: float
    worst_at: str

    @property
    def is_valid(self) -> bool:
        """Whether the record predicts the readings within its errors."""
        return self.chi2_per_reading < MAX_CHI2


def check_health(model: MeshModel, likelihood: Likelihood, posterior: Posterior, drift: DriftModel) -> Health:
    """Compare measured readings with the predictions of a fit or record.

    ``drift`` contains the tolerated changes.

    Raises:
        CalibrationError: No monitor receives light.
    """
    space = model.space
    spread = posterior.covariance() + replace(drift, temperature_k=0.0).covariance(space, posterior.vector, 0.0)
    compared = _compare_readings(model, likelihood, posterior.parameters)
    if not len(compared.residual):
        raise CalibrationError(
            "no monitor receives enough light to check the record", hint="Check the light sources and the monitors."
        )
    second_order = _second_order_errors(model, likelihood, compared, posterior)
    covariance = compared.covariance(spread) + np.diag(second_order**2)
    deviation_sigma = np.abs(_decorrelated(compared.residual, covariance))
    worst = int(deviation_sigma.argmax())
    setting, monitor = compared.places[worst]
    where = f"monitor at port {space.monitors[monitor]}, light at port {likelihood.observations.source[setting]}"
    chi2 = float(np.mean(deviation_sigma**2))
    warm = _chi2_at_best_temperature(model, likelihood, posterior.vector, spread, drift.warmed(space))
    return Health(len(compared.residual), chi2, min(warm, chi2), float(deviation_sigma[worst]), where)


@dataclass(frozen=True)
class _ComparedReadings:
    """Differences between readings and predictions, in standard errors.

    Attributes:
        residual: Shape ``(n,)``; reading minus prediction.
        slope: Shape ``(n, size)``; derivative of the prediction by all parameters.
        drift: Shape ``(n, 2)``; change of the prediction for one sigma of each drifting quantity.
        places: Shape ``(n, 2)``; index of setting and monitor.
    """

    residual: Real
    slope: Real
    drift: Real
    places: NDArray[np.int64]

    def covariance(self, spread: Real) -> Real:
        """Return the covariance of the residuals, ``(n, n)``, for that of the parameters, ``(size, size)``."""
        setting = self.places[:, 0]
        # Drift is common to all readings of one setting, and independent between settings.
        together = (setting[:, None] == setting) * (self.drift @ self.drift.T)
        covariance: Real = np.eye(len(self.residual)) + together + self.slope @ spread @ self.slope.T
        return covariance


def _compare_readings(model: MeshModel, likelihood: Likelihood, parameters: MeshParameters) -> _ComparedReadings:
    residuals, slopes, drifts, places = [], [], [], []
    for part in model.linearise(parameters, likelihood.observations):
        sigma = likelihood.sigma_ma(0.0, part.settings)
        level = np.maximum(likelihood.target_ma[part.settings], part.reading_ma)
        # A bright reading or a bright prediction counts, so that misdirected light shows at both ports.
        informative = likelihood.used[part.settings] & (level > _BRIGHT * likelihood.noise.floor_ma)
        residuals.append(likelihood.residual(part.reading_ma, 0.0, part.settings)[informative])
        slopes.append((part.jacobian / sigma[..., None])[informative])
        drifts.append((drift_slopes_ma(model, parameters, part, likelihood.drift) / sigma[..., None])[informative])
        places.append(np.argwhere(informative) + np.array([part.settings.start, 0]))
    return _ComparedReadings(*map(np.concatenate, (residuals, slopes, drifts, places)))


def _second_order_errors(
    model: MeshModel, likelihood: Likelihood, compared: _ComparedReadings, posterior: Posterior
) -> Real:
    """Return the part of the prediction errors that is quadratic in the parameter errors, in standard errors.

    An error e of the field E changes a reading by 2·E·e + e²; at a dark port the second part is larger.
    """
    light = model.space.mask(("source_db", "monitor_db", *(("second_db",) if model.space.seconds else ())))
    of_mesh = np.where(light[:, None] | light, 0.0, posterior.covariance())
    linear = np.einsum("ij,jk,ik->i", compared.slope, of_mesh, compared.slope)
    at = compared.places[:, 0], compared.places[:, 1]
    level = np.maximum(likelihood.target_ma[at], likelihood.noise.floor_ma) / likelihood.sigma_ma(0.0)[at]
    # Two: e has two components, and the errors of several PUCs add up.
    errors: Real = 2.0 * np.maximum(linear, 0.0) / (4.0 * level)
    return errors


def _chi2_at_best_temperature(
    model: MeshModel, likelihood: Likelihood, vector: Real, spread: Real, warmed: Real
) -> float:
    """Return χ² per reading at the best temperature, with a penalty for the temperature change.

    ``spread`` is the covariance of the other parameter changes; ``warmed`` is the parameter change for one sigma of
    temperature.
    """

    def at(rise: float) -> tuple[float, float]:
        """Return χ² per reading at a given temperature change, and the next Newton step of the temperature."""
        compared = _compare_readings(model, likelihood, model.space.unpack(vector + rise * warmed))
        by_temperature = compared.slope @ warmed
        turned = np.linalg.solve(compared.covariance(spread), np.column_stack([compared.residual, by_temperature]))
        chi2 = float(compared.residual @ turned[:, 0] + rise**2) / max(len(compared.residual), 1)
        # Newton step for one number with its prior, limited because the slope is valid for a fraction of a loop only.
        step = float(by_temperature @ turned[:, 0] - rise) / (float(by_temperature @ turned[:, 1]) + 1.0)
        return chi2, min(max(step, -_LONGEST_STEP), _LONGEST_STEP)

    tried = {float(rise): at(float(rise)) for rise in _TRIED}
    rise = min(tried, key=lambda trial: tried[trial][0])
    best, step = tried[rise]
    for _ in range(_STEPS):
        rise += step
        chi2, step = at(rise)
        best = min(best, chi2)
    return best


def _decorrelated(residual: Real, covariance: Real) -> Real:
    """Return the residuals in independent units of their standard errors, each as close as possible to its reading.

    The sum of their squares is χ² (Kessy, Lewin, Strimmer 2018, "ZCA-cor"). A residual divided by its own standard
    error would be small wherever an error that all readings share, such as the power of a source, is large.
    """
    sigma = np.sqrt(np.diag(covariance))
    variance, turn = np.linalg.eigh(covariance / np.outer(sigma, sigma))
    decorrelated: Real = turn @ ((turn.T @ (residual / sigma)) / np.sqrt(variance))
    return decorrelated
