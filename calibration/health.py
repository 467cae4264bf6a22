"""How well what is known predicts readings, in units of what noise and its own standard errors allow."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.drift import MOST_CHI2, DriftModel, Posterior
from calibration.likelihood import Likelihood
from calibration.model import MeshModel
from lumion_hw.errors import CalibrationError

Real = NDArray[np.float64]

_BRIGHT = 10.0
"""Readings count in a comparison that are, or should be, so many times the floor."""


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
    space, observations = model.space, likelihood.observations
    still = replace(drift, temperature_k=0.0)
    residuals, slopes, places = [], [], []
    for part in model.linearise(known.parameters, observations):
        sigma = likelihood.sigma_ma(0.0, part.settings)
        level = np.maximum(likelihood.target_ma[part.settings], part.reading_ma)
        told = likelihood.used[part.settings] & (level > _BRIGHT * likelihood.noise.floor_ma)
        residuals.append(likelihood.residual(part.reading_ma, 0.0, part.settings)[told])
        slopes.append((part.jacobian / sigma[..., None])[told])
        places.append(np.argwhere(told) + np.array([part.settings.start, 0]))
    residual, slope = np.concatenate(residuals), np.concatenate(slopes)
    spread = known.covariance() + still.covariance(space, known.vector, 0.0)
    doubt = np.eye(len(residual)) + slope @ spread @ slope.T
    warm = drift.covariance(space, known.vector, 0.0) - still.covariance(space, known.vector, 0.0)
    chi2 = [_chi2(residual, each) for each in (doubt, doubt + slope @ warm @ slope.T)]
    off = np.abs(residual) / np.sqrt(np.diag(doubt))
    if not len(off):
        raise CalibrationError("no monitor sees enough light to judge the record", hint="Check light and monitors.")
    worst = int(off.argmax())
    setting, monitor = np.concatenate(places)[worst]
    where = f"monitor at port {space.monitors[monitor]}, light at port {observations.source[setting]}"
    return Health(len(residual), chi2[0], chi2[1], float(off[worst]), where)


def _chi2(residual: Real, covariance: Real) -> float:
    """Return the mean squared residual with correlations taken out."""
    return float(residual @ np.linalg.solve(covariance, residual)) / max(len(residual), 1)
