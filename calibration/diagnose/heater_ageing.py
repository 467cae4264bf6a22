"""Changes of heaters during a run.

Ageing of all heaters shows in settings that are measured at the start of a run and again at its end, and single heaters
that change, such as those with a loose contact, in the residuals of a fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibration.model.arrays import Real, Single
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters

# Relative step of all heater phases for the derivative.
_STEP = 1e-4
# Standard errors above which a change counts.
_MIN_SIGMA = 4.0
# Number of parts of a run between which a single heater is compared.
_PARTS = 8
# A heater is unsteady if its squared change between the parts is so many times that of most heaters. With noise alone,
# one heater in 300,000 is.
_UNSTEADY, _MOST = 4.0, 0.8


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


def find_unsteady_heaters(misfit: Real, by_phase: Single, own_rad: Real) -> dict[int, float]:
    """Return the heaters whose phase at equal power changed during a run, with the largest relative change of each.

    Of the heaters of a PUC only the one that changed most counts: the other one may seem to change with it.

    Args:
        misfit: Shape ``(settings, monitors)``; residuals of a fit in units of noise, in the order of the run.
        by_phase: Shape ``(settings, monitors, waveguides)``; derivatives of the readings by phases, arms first.
        own_rad: Shape ``(settings, heaters)``; phase of every arm due to its own heater.
    """
    parts = [part for part in np.array_split(np.arange(len(misfit)), _PARTS) if len(part)]
    slope, information = np.zeros((2, len(parts), own_rad.shape[1]))
    for number, part in enumerate(parts):
        by_change = by_phase[part, :, : own_rad.shape[1]] * own_rad[part, None]
        slope[number] = np.tensordot(misfit[part], by_change, 2)
        information[number] = (by_change**2).sum(axis=(0, 1))
    total = information.sum(axis=0)
    mean = np.divide(slope.sum(axis=0), total, out=np.zeros_like(total), where=total > 0.0)
    relative = np.divide(slope, information, out=np.zeros_like(slope), where=information > 0.0) - mean
    chi2 = (relative**2 * information).sum(axis=0)
    usual = float(np.quantile(chi2[total > 0.0], _MOST)) if (total > 0.0).any() else 0.0
    clear = np.abs(relative) * np.sqrt(information) > _MIN_SIGMA
    worst = chi2 == np.repeat(chi2.reshape(-1, 2).max(axis=1), 2)
    return {
        int(heater): float(np.abs(relative[clear[:, heater], heater]).max())
        for heater in np.flatnonzero(worst & (chi2 > _UNSTEADY * usual) & clear.any(axis=0))
    }


def describe_unsteady_heater(name: str, relative: float) -> str:
    """Return a sentence about a heater that changed during the run."""
    return (
        f"{name}: its phase at equal power changed by up to {100.0 * abs(relative):.2f} % during the run; the error of "
        "its law includes this change. Check the contact of this channel"
    )
