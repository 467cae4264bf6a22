"""Normal equations of a fit, summed in batches of settings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real, Single
from calibration.model.likelihood import Likelihood, SettingDrift, weight, without_drift
from calibration.model.mesh_model import Linearised, MeshModel
from calibration.model.observations import Observations
from calibration.model.parameters import MeshParameters

_LN10_PER_10 = np.log(10.0) / 10.0
# Number of settings per matrix product.
_BLOCK = 96


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """Normal equations around one point; P free parameters.

    Attributes:
        information: Shape ``(P, P)``; Fisher information of the readings, without prior.
        gradient: Shape ``(P,)``; slope of the log likelihood.
        reading_ma: Shape ``(settings, monitors)``; predicted readings.
        drift_ma: Shape ``(settings, monitors, 2)``; change of the predicted readings for one sigma of each drift.
    """

    information: Real
    gradient: Real
    reading_ma: Real
    drift_ma: Real


def normal_equations(
    model: MeshModel,
    parameters: MeshParameters,
    likelihood: Likelihood,
    free: NDArray[np.bool_],
    discrepancy: float = 0.0,
) -> NormalEquations:
    """Return the normal equations of a fit around a parameter point.

    ``free``, ``(size,)``, marks the free parameters. ``discrepancy`` is the relative error of the predicted field, see
    :class:`calibration.model.likelihood.Likelihood`.
    """
    wanted = np.flatnonzero(free)
    information, gradient = np.zeros((len(wanted), len(wanted))), np.zeros(len(wanted))
    reading = np.empty(likelihood.target_ma.shape)
    drift_ma = np.zeros((*reading.shape, 2))
    for settings, variance in portions(model, likelihood.observations, wanted):
        part = _portion(model, parameters, likelihood[settings], wanted[variance], discrepancy)
        information[np.ix_(variance, variance)] += part.information
        gradient[variance] += part.gradient
        reading[settings], drift_ma[settings] = part.reading_ma, part.drift_ma
    return NormalEquations(information, gradient, reading, drift_ma)


def portions(
    model: MeshModel, observations: Observations, wanted: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield, for each source, the indices of its settings and of the free parameters that affect its light."""
    all_settings = np.arange(len(observations))
    if all(model.space.affected_by_source(number).all() for number in range(len(model.space.sources))):
        yield all_settings, np.arange(len(wanted))
        return
    for number, port in enumerate(model.space.sources):
        settings = all_settings[observations.source == port]
        if len(settings):
            yield settings, np.flatnonzero(model.space.affected_by_source(number)[wanted])


def _portion(
    model: MeshModel, parameters: MeshParameters, likelihood: Likelihood, wanted: NDArray[np.int64], discrepancy: float
) -> NormalEquations:
    information, gradient = np.zeros((len(wanted), len(wanted))), np.zeros(len(wanted))
    reading = np.empty(likelihood.target_ma.shape)
    drift_ma = np.zeros((*reading.shape, 2))
    # A few large products are faster than many small ones.
    block = np.empty((_BLOCK, len(model.space.monitors), len(wanted)))
    filled = 0
    for part in model.linearise(parameters, likelihood.observations):
        reading[part.settings] = part.reading_ma
        drift_ma[part.settings] = drift_slopes_ma(model, parameters, part, likelihood.drift)
        misfit, scale = _weighted_slopes(part.reading_ma, likelihood, discrepancy, part.settings)
        drift = drift_ma[part.settings] * scale[..., None]
        # A block of fixed size, processed when full, so that memory does not grow with the number of settings.
        if filled + len(misfit) > _BLOCK:
            information += information_of(block[:filled])
            filled = 0
        rows = block[filled : filled + len(misfit)]
        filled += len(misfit)
        # Power and temperature of every setting are marginalized here, so they need no columns of their own.
        own = part.jacobian[..., wanted]
        own *= scale[..., None].astype(own.dtype)
        rows[...] = without_drift(own, drift)
        gradient += without_drift(misfit, drift).ravel() @ rows.reshape(-1, len(wanted))
    information += information_of(block[:filled])
    return NormalEquations(information, gradient, reading, drift_ma)


@dataclass(frozen=True, eq=False)
class WhiteRows:
    """Residuals and derivatives of some settings in units of noise, with drift eliminated.

    Attributes:
        rows: Shape ``(settings, monitors, P)``; derivatives by P parameters, in single precision.
        misfit: Shape ``(settings, monitors)``; residuals.
        by_phase: Shape ``(settings, monitors, 2E + J)``; derivatives by the phases of 2E arms and J joints.
        heat_mw: Shape ``(settings, heaters)``; heat of every heater.
    """

    settings: slice
    rows: Single
    misfit: Real
    by_phase: Single
    heat_mw: Real


def white_rows(
    model: MeshModel, parameters: MeshParameters, likelihood: Likelihood, wanted: NDArray[np.int64]
) -> Iterator[WhiteRows]:
    """Yield residuals and derivatives in units of noise, in blocks of settings.

    ``wanted`` are the indices of the P parameters.
    """
    for part in model.linearise(parameters, likelihood.observations):
        misfit, scale = _weighted_slopes(part.reading_ma, likelihood, 0.0, part.settings)
        drift = drift_slopes_ma(model, parameters, part, likelihood.drift) * scale[..., None]
        factor = scale[..., None].astype(np.float32)
        rows = without_drift(part.jacobian[..., wanted] * factor, drift)
        by_phase, heat = model.by_waveguides(parameters, likelihood.observations[part.settings])
        yield WhiteRows(
            part.settings, rows, without_drift(misfit, drift), without_drift(by_phase * factor, drift), heat
        )


def information_of(block: Real) -> Real:
    """Return the information matrix of derivatives ``(..., P)`` in units of noise, summed in double precision."""
    rows = block.reshape(math.prod(block.shape[:-1]), block.shape[-1])
    information: Real = rows.T @ rows
    return information


def equations_with(
    model: MeshModel,
    parameters: MeshParameters,
    likelihood: Likelihood,
    information: Real,
    reading_ma: Real,
    free: NDArray[np.bool_],
    discrepancy: float = 0.0,
) -> NormalEquations:
    """Return the normal equations at a point, with an information matrix from a nearby point.

    ``information`` must belong to the same free parameters; ``reading_ma`` are the predicted readings.
    """
    # D is recalculated at every point. With D of the other point, source frequencies were wrong by a standard error.
    drift_ma = drift_at(model, parameters, likelihood.observations, reading_ma, likelihood.drift)
    misfit, scale = _weighted_slopes(reading_ma, likelihood, discrepancy)
    drift = drift_ma * scale[..., None]
    white = without_drift(without_drift(misfit, drift), drift)  # symmetric V^-1/2, applied to residuals and derivatives
    gradient = model.slope(parameters, likelihood.observations, white * scale)[free]
    return NormalEquations(information, gradient, reading_ma, drift_ma)


def surrogate_cost(likelihood: Likelihood, about: NormalEquations, reading_ma: Real, discrepancy: float) -> float:
    """Return half the sum of squared residuals for other predictions, with the weights of the normal equations."""
    root = np.sqrt(weight(likelihood.residual(about.reading_ma, discrepancy)))
    drift = about.drift_ma * (root / likelihood.sigma_ma(discrepancy))[..., None]
    return 0.5 * float((without_drift(root * likelihood.residual(reading_ma, discrepancy), drift) ** 2).sum())


def mean_squared_residual(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood) -> Real:
    """Return, for each parameter, the mean squared residual of the readings that depend on it, shape ``(size,)``.

    It is about 1 if the model is right, large at a faulty element, and 0 if no reading depends on the parameter.
    """
    sensitivity, find_worst_misfits = np.zeros(model.space.size), np.zeros(model.space.size)
    for part in model.linearise(parameters, likelihood.observations):
        misfit, scale = _weighted_slopes(part.reading_ma, likelihood, 0.0, part.settings)
        # A parameter is judged by the readings that depend on it, weighted by the size of their derivatives.
        power = (part.jacobian * scale[..., None]) ** 2
        sensitivity += power.sum(axis=(0, 1))
        find_worst_misfits += np.tensordot(misfit**2, power, axes=2)
    ratio: Real = np.divide(find_worst_misfits, sensitivity, out=np.zeros_like(sensitivity), where=sensitivity > 0.0)
    return ratio


def _weighted_slopes(
    reading_ma: Real, likelihood: Likelihood, discrepancy: float, settings: slice = slice(None)
) -> tuple[Real, Real]:
    residual = likelihood.residual(reading_ma, discrepancy, settings)
    root = np.where(likelihood.idle(residual, settings), 0.0, np.sqrt(weight(residual)))
    return root * residual, root / likelihood.sigma_ma(discrepancy, settings)


def drift_at(
    model: MeshModel, parameters: MeshParameters, observations: Observations, reading_ma: Real, drift: SettingDrift
) -> Real:
    """Return the result of :func:`drift_slopes_ma` for all settings, by finite differences."""
    if not drift.power_db and not drift.common_phase_rad:
        return np.zeros((*reading_ma.shape, 2))
    by_phase = model.by_common_phase(parameters, observations)
    return np.stack([_LN10_PER_10 * reading_ma * drift.power_db, by_phase * drift.common_phase_rad], axis=-1)


def drift_slopes_ma(model: MeshModel, parameters: MeshParameters, part: Linearised, drift: SettingDrift) -> Real:
    """Return the change of readings for one sigma of each drift, shape ``(settings, monitors, 2)``."""
    power = _LN10_PER_10 * part.reading_ma * drift.power_db
    # Only the active source has a derivative, so the sum over sources selects it; a frequency change is a common phase.
    turned = part.jacobian[..., model.space.groups["source_detuning_hz"]].sum(axis=-1)
    common = turned / (2.0 * np.pi * parameters.delay_s) * drift.common_phase_rad
    return np.stack([power, common], axis=-1)
