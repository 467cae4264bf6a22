"""Ageing of the heaters during a run, from settings that are measured at its start and again at its end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters

Real = NDArray[np.float64]

# Relative step of all heater phases for the derivative.
_STEP = 1e-4
# Standard errors above which a change counts.
_MIN_SIGMA = 4.0


@dataclass(frozen=True)
class PhaseChange:
    """Relative change of all heater phases at equal power, between two times.

    Attributes:
        relative: Change, positive if heaters turn more at the later time.
        sigma: Standard error of it.
    """

    relative: float
    sigma: float

    @property
    def is_significant(self) -> bool:
        """Whether the change is more than noise."""
        return abs(self.relative) > _MIN_SIGMA * self.sigma


def measure_phase_change(
    model: MeshModel, parameters: MeshParameters, early: Observations, late: Observations, noise: NoiseModel
) -> PhaseChange | None:
    """Return the relative change of all heater phases between two measurements of the same settings.

    A change of the power or of the common phase of a setting (light source, temperature) does not count. ``None`` if
    the settings do not show the phases.
    """
    larger, smaller = (
        model.predict(replace(parameters, heater_law=parameters.heater_law * (1.0 + step)), late)
        for step in (_STEP, -_STEP)
    )
    reading_ma = 0.5 * (larger + smaller)
    valid = np.isfinite(early.reading_ma + late.reading_ma) & ~early.saturated & ~late.saturated
    root = np.where(valid, 1.0 / (np.sqrt(2.0) * noise.sigma_ma(reading_ma)), 0.0)
    # Slow heat of earlier settings differs, and the model knows it.
    expected_ma = reading_ma - model.predict(parameters, early)
    change = root * np.where(valid, late.reading_ma - early.reading_ma - expected_ma, 0.0)
    slope = root * (larger - smaller) / (2.0 * _STEP)
    others = np.stack([root * reading_ma, root * model.by_common_phase(parameters, late)], axis=-1)
    basis, _ = np.linalg.qr(others)
    change, slope = (
        values - (basis @ (np.swapaxes(basis, 1, 2) @ values[..., None]))[..., 0] for values in (change, slope)
    )
    information, freedom = float((slope**2).sum()), int(valid.sum()) - 2 * len(late) - 1
    if not information > 0.0 or freedom < 1:
        return None
    relative = float((slope * change).sum()) / information
    chi2 = float(((change - relative * slope) ** 2).sum()) / freedom
    return PhaseChange(relative, float(np.sqrt(max(chi2, 1.0) / information)))
