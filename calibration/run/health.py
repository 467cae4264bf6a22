"""How well what is known predicts readings, in units of what noise and its own standard errors allow."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.drift import MOST_CHI2, DriftModel, Posterior
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.parameters import MeshParameters
from lumion_hw.errors import CalibrationError

Real = NDArray[np.float64]

_BRIGHT = 10.0
"""Readings count in a comparison that are, or should be, so many times the floor."""
_STEPS = 8
_LONGEST_STEP = 0.5
"""Longest step of the temperature, in its own sigmas: 0.03 rad of common phase."""


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
        return self.chi2_per_reading < MOST_CHI2


def health_of(model: MeshModel, likelihood: Likelihood, known: Posterior, drift: DriftModel) -> Health:
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
    doubt = found.doubt(spread)
    off = np.abs(found.residual) / np.sqrt(np.diag(doubt))
    worst = int(off.argmax())
    setting, monitor = found.places[worst]
    where = f"monitor at port {space.monitors[monitor]}, light at port {likelihood.observations.source[setting]}"
    still = _chi2(found.residual, doubt)
    warm = _but_temperature(model, likelihood, known.vector, spread, drift.warmed(space))
    return Health(len(found.residual), still, min(warm, still), float(off[worst]), where)


@dataclass(frozen=True)
class _Comparison:
    """Readings beside a prediction, in sigmas.

    Attributes:
        residual: Read minus predicted, shape ``(n,)``.
        slope: Of the prediction by all parameters, shape ``(n, size)``.
        places: Setting and monitor of every reading, shape ``(n, 2)``.
    """

    residual: Real
    slope: Real
    places: NDArray[np.int64]

    def doubt(self, spread: Real) -> Real:
        """Return the covariance of the residuals for parameters with a covariance."""
        doubt: Real = np.eye(len(self.residual)) + self.slope @ spread @ self.slope.T
        return doubt


def _compared(model: MeshModel, likelihood: Likelihood, parameters: MeshParameters) -> _Comparison:
    residuals, slopes, places = [], [], []
    for part in model.linearise(parameters, likelihood.observations):
        sigma = likelihood.sigma_ma(0.0, part.settings)
        level = np.maximum(likelihood.target_ma[part.settings], part.reading_ma)
        told = likelihood.used[part.settings] & (level > _BRIGHT * likelihood.noise.floor_ma)
        residuals.append(likelihood.residual(part.reading_ma, 0.0, part.settings)[told])
        slopes.append((part.jacobian / sigma[..., None])[told])
        places.append(np.argwhere(told) + np.array([part.settings.start, 0]))
    return _Comparison(np.concatenate(residuals), np.concatenate(slopes), np.concatenate(places))


def _but_temperature(model: MeshModel, likelihood: Likelihood, vector: Real, spread: Real, warmed: Real) -> float:
    """Return χ² per reading at the temperature that fits best, its own deviation counted.

    A tenth of a kelvin turns the light of a ring too far for one slope: the temperature is found step by step.

    Args:
        model: The model.
        likelihood: The readings.
        vector: What is known.
        spread: Covariance of everything else, shape ``(size, size)``.
        warmed: What one sigma of the temperature adds to the parameters.
    """
    rise, chi2 = 0.0, np.inf
    for _ in range(_STEPS):
        found = _compared(model, likelihood, model.space.unpack(vector + rise * warmed))
        doubt, along = found.doubt(spread), found.slope @ warmed
        turned = np.linalg.solve(doubt, np.column_stack([found.residual, along]))
        chi2 = min(chi2, float(found.residual @ turned[:, 0] + rise**2) / max(len(found.residual), 1))
        step = float(along @ turned[:, 0] - rise) / (float(along @ turned[:, 1]) + 1.0)
        rise += min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
    return chi2


def _chi2(residual: Real, covariance: Real) -> float:
    """Return the mean squared residual with correlations taken out."""
    return float(residual @ np.linalg.solve(covariance, residual)) / max(len(residual), 1)
