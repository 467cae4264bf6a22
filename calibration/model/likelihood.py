"""Likelihood of readings: noise, saturation, outliers, drifting light, and errors of the model.

Two features let a fit converge from a distant start. First, readings with large residuals get less weight (Huber).
Second, a predicted field is assumed to have an error of η (model discrepancy) times the typical field at that monitor.
The variance is then σ² = noise² + 2·η²·p·m + η⁴·p², with the typical photocurrent p and the measured one m. η is
estimated from the residuals and falls to zero, or to the field error of effects that no model explains.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from calibration.model.observations import NoiseModel, Observations

Precision = TypeVar("Precision", bound=np.floating[Any])

# Beyond three sigma a residual is more often an outlier than noise (Huber); one bad reading must not dominate a fit.
_HUBER = 3.0
# Largest mean squared residual, each cut at three sigma, that noise alone explains.
_EXPECTED = 1.1
_BISECTIONS = 40
_MAX_DISCREPANCY = 3.0
_ALL = slice(None)


@dataclass(frozen=True)
class SettingDrift:
    """Standard deviations of quantities that drift from setting to setting.

    Attributes:
        power_db: Standard deviation of the light power (laser, polarization).
        common_phase_rad: Standard deviation of the phase common to all PUCs (temperature, frequency).
    """

    power_db: float = 0.0
    common_phase_rad: float = 0.0


SETTING_DRIFT = SettingDrift(power_db=0.01, common_phase_rad=0.01)
"""Usual drift from setting to setting (assumed): power by fibre polarization and laser, phase by 10 to 100 mK at 0.6
rad/K.
"""
_LEAST_DRIFT = 0.3
"""Smallest drift from setting to setting that a fit assumes, relative to the usual one.

Drift curves have errors of about 1 mrad that some 15 settings share. As independent errors of settings they count √15
times as much, 3 to 4 mrad; with less, a fit would take them for changes of its parameters.
"""
MODEL_ERROR = 5e-4
"""Relative error of the model; matters with low-noise meters."""


def with_model_error(noise: NoiseModel) -> NoiseModel:
    """Return the noise of readings with the error of the model added."""
    return replace(noise, relative=float(np.hypot(noise.relative, MODEL_ERROR)))


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Readings with their noise, as input of a fit.

    Attributes:
        observations: Settings and readings.
        noise: Noise of a reading.
        full_scale_ma: Photocurrent above which monitors saturate; ``None`` to ignore saturated readings.
        drift: Quantities that may drift from setting to setting.
        unmodelled_ma2: Shape ``(settings, monitors)``; variance of readings by effects without a parameter, or ``None``
            (Snelson, Ghahramani 2006).
        field_error: Relative error of predicted fields that counts as noise of the readings.
    """

    observations: Observations
    noise: NoiseModel
    full_scale_ma: float | None = None
    drift: SettingDrift = field(default_factory=SettingDrift)
    unmodelled_ma2: Real | None = None
    field_error: float = 0.0

    def __getitem__(self, settings: slice | NDArray[np.int64]) -> Likelihood:
        """Return the likelihood of the chosen settings."""
        unmodelled = None if self.unmodelled_ma2 is None else self.unmodelled_ma2[settings]
        return replace(self, observations=self.observations[settings], unmodelled_ma2=unmodelled)

    @cached_property
    def target_ma(self) -> Real:
        """Readings in mA, shape ``(settings, monitors)``; full scale for saturated readings."""
        bound = 0.0 if self.full_scale_ma is None else self.full_scale_ma
        target: Real = np.where(self.observations.saturated, bound, np.nan_to_num(self.observations.reading_ma))
        return target

    @cached_property
    def used(self) -> NDArray[np.bool_]:
        """Which readings contain information, shape ``(settings, monitors)``."""
        bounds = self.observations.saturated & (self.full_scale_ma is not None)
        used: NDArray[np.bool_] = np.isfinite(self.observations.reading_ma) & ~self.observations.saturated | bounds
        return used

    @cached_property
    def _typical_ma(self) -> Real:
        """Mean reading of each monitor over all settings with the same source, in mA, ``(settings, monitors)``."""
        typical = np.empty(self.target_ma.shape)
        for source in np.unique(self.observations.source):
            chosen = self.observations.source == source
            counts = np.maximum(self.used[chosen].sum(axis=0), 1)
            # The mean over all settings with this source: the typical reading of a monitor scales the error of a wrong
            # model.
            typical[chosen] = (np.maximum(self.target_ma[chosen], 0.0) * self.used[chosen]).sum(axis=0) / counts
        return typical

    def sigma_ma(self, discrepancy: float, settings: slice = _ALL) -> Real:
        """Return the standard deviation of the readings in mA, ``(settings, monitors)``, for a relative field error."""
        level = np.maximum(self.target_ma[settings], 0.0)
        # A field error of η times the typical field changes a bright reading by a mixed product and a dark one by the
        # square: σ² = noise² + 2·η²·p·m + η⁴·p².
        spread = (discrepancy**2 + self.field_error**2) * self._typical_ma[settings]
        variance = self.noise.sigma_ma(level) ** 2 + 2.0 * spread * level + spread**2
        sigma: Real = np.sqrt(variance if self.unmodelled_ma2 is None else variance + self.unmodelled_ma2[settings])
        return sigma

    def residual(self, reading_ma: Real, discrepancy: float, settings: slice = _ALL) -> Real:
        """Return reading minus prediction in standard deviations, ``(settings, monitors)``; 0 if :meth:`idle`."""
        off_ma = self.target_ma[settings] - reading_ma
        residual = np.where(self.used[settings], off_ma / self.sigma_ma(discrepancy, settings), 0.0)
        # A saturated reading is a lower bound, so a larger prediction is not a misfit.
        return np.where(self.observations.saturated[settings], np.maximum(residual, 0.0), residual)

    def idle(self, residual: Real, settings: slice = _ALL) -> NDArray[np.bool_]:
        """Return the readings without influence on a fit: unused, or saturated and predicted above full scale."""
        idle: NDArray[np.bool_] = ~self.used[settings] | (self.observations.saturated[settings] & (residual == 0.0))
        return idle

    def discrepancy(self, reading_ma: Real, drift_ma: Real, maximum: float = _MAX_DISCREPANCY) -> float:
        """Return the smallest relative field error, up to ``maximum``, that explains the residuals; 0 if noise does.

        ``reading_ma``, ``(settings, monitors)``, are predictions; ``drift_ma``, ``(settings, monitors, 2)``, is their
        change for one sigma of each drift.
        """

        def unexplained(discrepancy: float) -> bool:
            residual, sigma = self.residual(reading_ma, discrepancy), self.sigma_ma(discrepancy)
            root = np.sqrt(weight(residual))
            free = without_drift(root * residual, drift_ma * (root / sigma)[..., None])[self.used]
            return bool(np.minimum(free**2, _HUBER**2).mean() > _EXPECTED)

        if not self.used.any() or not unexplained(0.0):
            return 0.0
        # Bisection in the logarithm: the result spans four decades, and only its magnitude matters.
        low, high = 1e-4, maximum
        if unexplained(high):
            return high
        for _ in range(_BISECTIONS):
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if unexplained(middle) else (low, middle)
            # Five per cent accuracy is enough: η only weights readings during a fit and is 0 at its end.
            if high < 1.05 * low:
                break
        return high


def weight(residual: Real) -> Real:
    """Return the weight of residuals: 1 within three sigma, less beyond (Huber)."""
    weight: Real = _HUBER / np.maximum(np.abs(residual), _HUBER)
    return weight


def without_drift(values: NDArray[Precision], drift: Real) -> NDArray[Precision]:
    """Return values with drift D treated as noise: V^-1/2 · values with V = 1 + D·Dᵀ; all in standard deviations.

    Shapes: values ``(n, M)`` or ``(n, M, P)`` for n settings and M monitors. D, ``(n, M, 2)``, is the change of the
    readings for one sigma of each drift. With D = U·s·Wᵀ, V^-1/2 is 1 - U·(1 - 1/√(1+s²))·Uᵀ.
    """
    if not drift.any():
        return values
    columns = values if values.ndim == 3 else values[..., None]
    # V = 1 + D·Dᵀ differs from 1 in two directions per setting only, so its root needs no matrix over all readings.
    u, s, _ = np.linalg.svd(drift, full_matrices=False)
    removed = (u * (1.0 - 1.0 / np.sqrt(1.0 + s**2))[:, None]).astype(values.dtype)
    free: NDArray[Precision] = columns - removed @ (np.swapaxes(u, 1, 2).astype(values.dtype) @ columns)
    return free.reshape(values.shape)


def drift_of_readings(residual: Real, drift: Real, spare: float) -> tuple[float, float]:
    """Return the standard deviations of power and phase drift that the residuals show, relative to the assumed ones.

    Maximum likelihood of residuals with covariance 1 + D·diag(σ²)·Dᵀ, between :data:`_LEAST_DRIFT` of the assumed drift
    and all of it.

    Args:
        residual: Shape ``(settings, M)``; residuals in standard deviations.
        drift: Shape ``(settings, M, 2)``; D, their change for one sigma of each assumed drift.
        spare: Share of the readings' freedom that the fitted parameters left.
    """
    from scipy.optimize import minimize

    root = np.sqrt(weight(residual))
    r, d = root * residual / np.sqrt(spare), root[..., None] * drift
    gram, along = np.swapaxes(d, 1, 2) @ d, (np.swapaxes(d, 1, 2) @ r[..., None])[..., 0]

    def cost(log_sizes: Real) -> float:
        size = np.exp(log_sizes)
        inner = np.eye(2) + size[:, None] * gram * size
        scaled = along * size
        explained = (scaled * np.linalg.solve(inner, scaled[..., None])[..., 0]).sum()
        return float(np.log(np.linalg.det(inner)).sum() - explained)

    found = minimize(cost, np.log([0.5, 0.5]), method="L-BFGS-B", bounds=[(np.log(_LEAST_DRIFT), 0.0)] * 2)
    power, phase = np.exp(found.x)
    return float(power), float(phase)
