"""Outliers: settings whose light disagrees with all other settings, such as a wrong current or a touched fibre."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from calibration.model.likelihood import Likelihood, without_drift
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import drift_at
from calibration.model.observations import NoiseModel
from calibration.model.parameters import MeshParameters

MIN_OUTLIER_CHI2 = 9.0
"""Mean squared residual of an outlier, relative to that of all but the worst tenth of the settings."""
OUTLIER_FIELD_ERROR = 3e-3
"""Relative field error that makes no outlier. Without it, a slightly wrong null in the light of a good meter would."""
MAX_OUTLIER_SHARE = 0.1
"""With a larger share of outliers, the fit and not the settings may be wrong."""

_MAX_NAMED = 5


def find_outliers(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood) -> NDArray[np.int64]:
    """Return the numbers of the settings whose readings disagree with a fit of all settings."""
    reading_ma = model.predict(parameters, likelihood.observations)
    drift_ma = drift_at(model, parameters, likelihood.observations, reading_ma, likelihood.drift)
    residual = likelihood.residual(reading_ma, OUTLIER_FIELD_ERROR)
    sigma_ma = likelihood.sigma_ma(OUTLIER_FIELD_ERROR)
    used = likelihood.used
    squares = np.where(used, without_drift(residual, drift_ma / sigma_ma[..., None]), 0.0) ** 2
    chi2 = squares.sum(axis=1) / np.maximum(used.sum(axis=1), 1)
    # If the model is a little wrong, the settings with most heat deviate most; they are no outliers.
    usual = max(float(np.quantile(chi2[used.any(axis=1)], 1.0 - MAX_OUTLIER_SHARE)) if used.any() else 0.0, 1.0)
    return np.flatnonzero(chi2 > MIN_OUTLIER_CHI2 * usual)


def is_different(first_ma: Real, second_ma: Real, noise: NoiseModel) -> bool:
    """Return whether two readings of all monitors in the same setting differ as those of an outlier do."""
    level_ma = np.maximum(0.5 * (first_ma + second_ma), 0.0)
    by_field_ma2 = 2.0 * OUTLIER_FIELD_ERROR**2 * level_ma * np.nanmean(level_ma)
    variance_ma2 = noise.sigma_ma(first_ma) ** 2 + noise.sigma_ma(second_ma) ** 2 + by_field_ma2
    return float(np.nanmean((first_ma - second_ma) ** 2 / variance_ma2)) > MIN_OUTLIER_CHI2


def describe_outliers(times_s: Real) -> str:
    """Return a sentence about settings that were left out, with their times since the start of the run."""
    named = ", ".join(f"{time_s:.1f} s" for time_s in times_s[:_MAX_NAMED])
    rest = f" and {len(times_s) - _MAX_NAMED} more" if len(times_s) > _MAX_NAMED else ""
    count = "1 setting disagrees" if len(times_s) == 1 else f"{len(times_s)} settings disagree"
    return (
        f"{count} with all others and had to be left out (measured at {named}{rest}): a heater had a wrong current, "
        "or a fibre moved"
    )
