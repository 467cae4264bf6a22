"""How well a model's readings explain those taken: noise, saturation, outliers, drifting light, model discrepancy.

Two things make a fit from afar possible. A reading far off counts less (Huber). And as long as parameters are wrong, a
predicted field is off by a share η of the typical field at that monitor, so that dark readings, which are sharp only
for a model that is right, do not lead astray: σ² = noise² + 2·η²·p·m + η⁴·p², p the typical and m the read
photocurrent. This model discrepancy η is found from the residuals themselves and falls to zero as they do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibration.model.observations import NoiseModel, Observations

Real = NDArray[np.float64]
Precision = TypeVar("Precision", bound=np.floating[Any])

# Beyond three sigma a residual is an outlier more often than noise (Huber): one broken reading must not lead a fit.
_HUBER = 3.0
# Mean squared residual, cut at three sigma, up to which noise alone is taken for the cause.
_EXPECTED = 1.1
_BISECTIONS = 40
_MOST_DISCREPANCY = 3.0
_ALL = slice(None)


@dataclass(frozen=True)
class SettingDrift:
    """How much may differ from setting to setting; estimated for each and no concern of the parameters.

    Attributes:
        power_db: Spread of the power of the light: laser, polarization.
        common_phase_rad: Spread of the phase that all PUCs have in common: temperature, frequency.
    """

    power_db: float = 0.0
    common_phase_rad: float = 0.0


SETTING_DRIFT = SettingDrift(power_db=0.01, common_phase_rad=0.01)
"""What may vary from setting to setting: polarization in the fibres and laser power (assumption); and the temperature,
whose lock leaves 10 mK to 0.1 K of 0.6 rad/K (assumed)."""
MODEL_ERROR = 5e-4
"""Relative error of the model. Quiet meters see it: with 2e-4 readings of 1e-4 noise are not explained, with this they
are. Steps of the drive are not in it, they are known; three terms leave 1e-4 of a heater law."""


def with_model_error(noise: NoiseModel) -> NoiseModel:
    """Return the noise of readings together with the error of the model."""
    return replace(noise, relative=float(np.hypot(noise.relative, MODEL_ERROR)))


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Readings together with their noise: what a fit is to explain.

    Attributes:
        observations: Settings and readings.
        noise: Noise of a reading.
        full_scale_ma: What saturated monitors read at least; without it their readings say nothing.
        drift: What may differ from setting to setting.
        unmodelled_ma2: Shape ``(N, M)``; variance of readings by what a chip does and no parameter describes; ``None``
            if nothing. Taken for noise that is independent from reading to reading (Snelson, Ghahramani 2006).
    """

    observations: Observations
    noise: NoiseModel
    full_scale_ma: float | None = None
    drift: SettingDrift = field(default_factory=SettingDrift)
    unmodelled_ma2: Real | None = None

    def __getitem__(self, settings: slice | NDArray[np.int64]) -> Likelihood:
        """Return that of some of the settings."""
        unmodelled = None if self.unmodelled_ma2 is None else self.unmodelled_ma2[settings]
        return replace(self, observations=self.observations[settings], unmodelled_ma2=unmodelled)

    @cached_property
    def target_ma(self) -> Real:
        """Shape ``(N, M)``; the readings, full scale where saturated."""
        bound = 0.0 if self.full_scale_ma is None else self.full_scale_ma
        target: Real = np.where(self.observations.saturated, bound, np.nan_to_num(self.observations.reading_ma))
        return target

    @cached_property
    def used(self) -> NDArray[np.bool_]:
        """Shape ``(N, M)``; readings that say something."""
        bounds = self.observations.saturated & (self.full_scale_ma is not None)
        used: NDArray[np.bool_] = np.isfinite(self.observations.reading_ma) & ~self.observations.saturated | bounds
        return used

    @cached_property
    def _typical_ma(self) -> Real:
        """Shape ``(N, M)``; mean reading of the monitor over all settings with this source."""
        typical = np.empty(self.target_ma.shape)
        for source in np.unique(self.observations.source):
            chosen = self.observations.source == source
            counts = np.maximum(self.used[chosen].sum(axis=0), 1)
            # Mean over all settings with this source: what a monitor of that place usually sees is the measure of how
            # far a wrong model may be off there.
            typical[chosen] = (np.maximum(self.target_ma[chosen], 0.0) * self.used[chosen]).sum(axis=0) / counts
        return typical

    def sigma_ma(self, discrepancy: float, settings: slice = _ALL) -> Real:
        """Return the standard deviation of the readings, shape ``(n, M)``, at a model discrepancy η."""
        level = np.maximum(self.target_ma[settings], 0.0)
        # A field that is off by η of the typical one changes a bright reading by the product of both, a dark one by the
        # square alone: σ² = noise² + 2·η²·p·m + η⁴·p².
        spread = discrepancy**2 * self._typical_ma[settings]
        variance = self.noise.sigma_ma(level) ** 2 + 2.0 * spread * level + spread**2
        sigma: Real = np.sqrt(variance if self.unmodelled_ma2 is None else variance + self.unmodelled_ma2[settings])
        return sigma

    def residual(self, reading_ma: Real, discrepancy: float, settings: slice = _ALL) -> Real:
        """Return read minus predicted in sigmas, shape ``(n, M)``; 0 where nothing is said or a bound is kept."""
        off_ma = self.target_ma[settings] - reading_ma
        residual = np.where(self.used[settings], off_ma / self.sigma_ma(discrepancy, settings), 0.0)
        # A saturated reading says "at least so much": a prediction above it is no misfit.
        return np.where(self.observations.saturated[settings], np.maximum(residual, 0.0), residual)

    def idle(self, residual: Real, settings: slice = _ALL) -> NDArray[np.bool_]:
        """Return which readings have no say in a fit: those unused, and bounds that are kept."""
        idle: NDArray[np.bool_] = ~self.used[settings] | (self.observations.saturated[settings] & (residual == 0.0))
        return idle

    def discrepancy(self, reading_ma: Real, drift_ma: Real, most: float = _MOST_DISCREPANCY) -> float:
        """Return the least model discrepancy η that explains the residuals; 0 if noise does.

        Args:
            reading_ma: Shape ``(N, M)``; the model's readings.
            drift_ma: Shape ``(N, M, 2)``; how they follow one sigma of each drift.
            most: Largest answer, returned where nothing smaller explains them.
        """

        def unexplained(discrepancy: float) -> bool:
            residual, sigma = self.residual(reading_ma, discrepancy), self.sigma_ma(discrepancy)
            root = np.sqrt(weight(residual))
            free = without_drift(root * residual, drift_ma * (root / sigma)[..., None])[self.used]
            return bool(np.minimum(free**2, _HUBER**2).mean() > _EXPECTED)

        if not self.used.any() or not unexplained(0.0):
            return 0.0
        # Bisection in the logarithm: the answer spans four decades, and only its size matters.
        low, high = 1e-4, most
        if unexplained(high):
            return high
        for _ in range(_BISECTIONS):
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if unexplained(middle) else (low, middle)
            # Five per cent are enough: it only weighs readings on the way, and is 0 at the end.
            if high < 1.05 * low:
                break
        return high


def weight(residual: Real) -> Real:
    """Return how much residuals count: 1 within three sigma, less beyond (Huber)."""
    weight: Real = _HUBER / np.maximum(np.abs(residual), _HUBER)
    return weight


def without_drift(values: NDArray[Precision], drift: Real) -> NDArray[Precision]:
    """Return values of every reading as if noise were white though each setting drifts: V^-1/2 with V = 1 + D·Dᵀ.

    With D = U·s·Wᵀ that root is 1 - U·(1 - 1/√(1+s²))·Uᵀ.

    Args:
        values: Shape ``(n, M)``, or ``(n, M, P)`` for several at once; in sigmas. The answer has their precision.
        drift: Shape ``(n, M, 2)``; D, what one sigma of each drift does, in the same units.
    """
    if not drift.any():
        return values
    columns = values if values.ndim == 3 else values[..., None]
    # V = 1 + D·Dᵀ differs from 1 in two directions per setting only, so that its root needs no matrix of all readings.
    u, s, _ = np.linalg.svd(drift, full_matrices=False)
    taken = (u * (1.0 - 1.0 / np.sqrt(1.0 + s**2))[:, None]).astype(values.dtype)
    free: NDArray[Precision] = columns - taken @ (np.swapaxes(u, 1, 2).astype(values.dtype) @ columns)
    return free.reshape(values.shape)
