"""Drift from setting to setting, measured from residuals."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.model.likelihood import drift_of_readings


@pytest.mark.parametrize(("power", "phase"), [(0.5, 0.35), (0.4, 0.8)])
def test_residuals_show_the_drift_of_power_and_phase(power: float, phase: float) -> None:
    rng = np.random.default_rng(1)
    slopes = 20.0 * rng.standard_normal((800, 4, 2))
    drifts = rng.standard_normal((800, 2)) * [power, phase]
    residual = rng.standard_normal((800, 4)) + (slopes @ drifts[..., None])[..., 0]
    # Residuals beyond three sigma count less, as in a fit.
    np.testing.assert_allclose(drift_of_readings(residual, slopes, 1.0), (power, phase), rtol=0.15)


def test_readings_without_drift_show_the_smallest_one() -> None:
    rng = np.random.default_rng(2)
    slopes = 20.0 * rng.standard_normal((800, 4, 2))
    fitted = 0.8  # a fit has removed a fifth of the scatter
    residual = np.sqrt(fitted) * rng.standard_normal((800, 4))
    np.testing.assert_allclose(drift_of_readings(residual, slopes, fitted), 0.3, rtol=0.1)
