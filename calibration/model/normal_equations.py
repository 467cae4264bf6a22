"""The normal equations of a fit, gathered batch by batch so that memory does not grow with the number of settings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.model.likelihood import Likelihood, SettingDrift, weight, without_drift
from calibration.model.mesh_model import Linearised, MeshModel
from calibration.model.observations import Observations
from calibration.model.parameters import MeshParameters

Real = NDArray[np.float64]
Single = NDArray[np.float32]

_LN10_PER_10 = np.log(10.0) / 10.0
# Settings whose derivatives are held for one product.
_BLOCK = 96


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """A fit about one point; P free parameters.

    Attributes:
        information: Shape ``(P, P)``; Fisher information of the readings alone, no prior in it.
        gradient: Shape ``(P,)``; slope of the log likelihood.
        reading_ma: Shape ``(N, M)``; the model's readings.
        drift_ma: Shape ``(N, M, 2)``; how they follow one sigma of what may drift from setting to setting.
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
    """Return the normal equations about a point.

    Args:
        model: The model.
        parameters: The point.
        likelihood: The readings, and what to make of them.
        free: Shape ``(size,)``; the parameters wanted.
        discrepancy: η of the likelihood.
    """
    wanted = np.flatnonzero(free)
    information, gradient = np.zeros((len(wanted), len(wanted))), np.zeros(len(wanted))
    reading = np.empty(likelihood.target_ma.shape)
    drift_ma = np.zeros((*reading.shape, 2))
    for settings, felt in portions(model, likelihood.observations, wanted):
        part = _portion(model, parameters, likelihood[settings], wanted[felt], discrepancy)
        information[np.ix_(felt, felt)] += part.information
        gradient[felt] += part.gradient
        reading[settings], drift_ma[settings] = part.reading_ma, part.drift_ma
    return NormalEquations(information, gradient, reading, drift_ma)


def portions(
    model: MeshModel, observations: Observations, wanted: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield settings, and which of the parameters wanted their light can follow: both by number.

    What ports pass of each source are the most parameters that a model grows by. Light of the other sources follows
    none of them: columns of zeros would take half the time of a gather.
    """
    everything = np.arange(len(observations))
    if all(model.space.felt_from(number).all() for number in range(len(model.space.sources))):
        yield everything, np.arange(len(wanted))
        return
    for number, port in enumerate(model.space.sources):
        settings = everything[observations.source == port]
        if len(settings):
            yield settings, np.flatnonzero(model.space.felt_from(number)[wanted])


def _portion(
    model: MeshModel,
    parameters: MeshParameters,
    likelihood: Likelihood,
    wanted: NDArray[np.int64],
    discrepancy: float,
) -> NormalEquations:
    """Return the normal equations of some settings by some parameters."""
    information, gradient = np.zeros((len(wanted), len(wanted))), np.zeros(len(wanted))
    reading = np.empty(likelihood.target_ma.shape)
    drift_ma = np.zeros((*reading.shape, 2))
    # Few large products are faster than many small ones.
    block = np.empty((_BLOCK, len(model.space.monitors), len(wanted)))
    filled = 0
    for part in model.linearise(parameters, likelihood.observations):
        reading[part.settings] = part.reading_ma
        drift_ma[part.settings] = drift_slopes_ma(model, parameters, part, likelihood.drift)
        misfit, scale = _weighed(part.reading_ma, likelihood, discrepancy, part.settings)
        drift = drift_ma[part.settings] * scale[..., None]
        # A fixed block, worked off when full: memory does not grow with the number of settings.
        if filled + len(misfit) > _BLOCK:
            information += information_of(block[:filled])
            filled = 0
        rows = block[filled : filled + len(misfit)]
        filled += len(misfit)
        # Light and temperature of every setting are marginalised here: they are unknowns of the setting, and need no
        # columns.
        own = part.jacobian[..., wanted]
        own *= scale[..., None].astype(own.dtype)
        rows[...] = without_drift(own, drift)
        gradient += without_drift(misfit, drift).ravel() @ rows.reshape(-1, len(wanted))
    information += information_of(block[:filled])
    return NormalEquations(information, gradient, reading, drift_ma)


@dataclass(frozen=True, eq=False)
class WhiteRows:
    """Residuals and derivatives of some settings in units of their noise, what drifts from setting to setting out.

    Attributes:
        settings: Which settings.
        rows: Shape ``(n, M, P)``; in single precision, as derivatives are.
        misfit: Shape ``(n, M)``.
        by_phase: Shape ``(n, M, 2E + J)``; derivatives by the phases of arms and joints.
        heat_mw: Shape ``(n, 2E)``; heat of every heater.
    """

    settings: slice
    rows: Single
    misfit: Real
    by_phase: Single
    heat_mw: Real


def white_rows(
    model: MeshModel,
    parameters: MeshParameters,
    likelihood: Likelihood,
    wanted: NDArray[np.int64],
) -> Iterator[WhiteRows]:
    """Yield white residuals and derivatives about a point, against noise alone, some settings at a time.

    Args:
        model: The model.
        parameters: The point.
        likelihood: The readings, and what to make of them.
        wanted: Shape ``(P,)``; numbers of the parameters.
    """
    for part in model.linearise(parameters, likelihood.observations):
        misfit, scale = _weighed(part.reading_ma, likelihood, 0.0, part.settings)
        drift = drift_slopes_ma(model, parameters, part, likelihood.drift) * scale[..., None]
        each = scale[..., None].astype(np.float32)
        rows = without_drift(part.jacobian[..., wanted] * each, drift)
        by_phase, heat = model.by_waveguides(parameters, likelihood.observations[part.settings])
        yield WhiteRows(part.settings, rows, without_drift(misfit, drift), without_drift(by_phase * each, drift), heat)


def information_of(block: Real) -> Real:
    """Return the information of white rows, shape ``(..., P)``; in double precision, whatever rows were made in.

    What readings do not tell is nothing among sums that are large: less would leave nothing of what the prior says.
    """
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
    """Return the equations about a point with the information of another one near by.

    A fraction of the time of :func:`normal_equations`, and the same slope.

    Args:
        model: The model.
        parameters: The point.
        likelihood: The readings, and what to make of them.
        information: Shape ``(P, P)``; that of the other point, about the same free parameters.
        reading_ma: Shape ``(N, M)``; the model's readings at the point.
        free: Shape ``(size,)``; the parameters wanted.
        discrepancy: η of the likelihood.
    """
    # D is made anew at every point. Left as it was where the information was gathered, it led frequencies of sources a
    # standard error astray.
    drift_ma = drift_at(model, parameters, likelihood.observations, reading_ma, likelihood.drift)
    misfit, scale = _weighed(reading_ma, likelihood, discrepancy)
    drift = drift_ma * scale[..., None]
    white = without_drift(without_drift(misfit, drift), drift)  # V^-1/2, symmetric, of residuals and derivatives
    gradient = model.slope(parameters, likelihood.observations, white * scale)[free]
    return NormalEquations(information, gradient, reading_ma, drift_ma)


def surrogate_cost(likelihood: Likelihood, about: NormalEquations, reading_ma: Real, discrepancy: float) -> float:
    """Return half the sum of squares of other readings, every residual weighed as at the point the equations are about.

    A step that lowers it lowers the robust cost, which lies below it and touches it there.
    """
    root = np.sqrt(weight(likelihood.residual(about.reading_ma, discrepancy)))
    drift = about.drift_ma * (root / likelihood.sigma_ma(discrepancy))[..., None]
    return 0.5 * float((without_drift(root * likelihood.residual(reading_ma, discrepancy), drift) ** 2).sum())


def mean_squared_residual(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood) -> Real:
    """Return the mean squared residual of the readings that feel each parameter, shape ``(size,)``.

    1 where the model holds; large at parameters of elements that do not do what the model says; 0 where none feels it.
    """
    felt, worst_explained = np.zeros(model.space.size), np.zeros(model.space.size)
    for part in model.linearise(parameters, likelihood.observations):
        misfit, scale = _weighed(part.reading_ma, likelihood, 0.0, part.settings)
        # A parameter is judged by the readings that feel it, each by how much it does.
        power = (part.jacobian * scale[..., None]) ** 2
        felt += power.sum(axis=(0, 1))
        worst_explained += np.tensordot(misfit**2, power, axes=2)
    ratio: Real = np.divide(worst_explained, felt, out=np.zeros_like(felt), where=felt > 0.0)
    return ratio


def _weighed(
    reading_ma: Real, likelihood: Likelihood, discrepancy: float, settings: slice = slice(None)
) -> tuple[Real, Real]:
    """Return weighed residuals of some settings, and what derivatives of their readings are to be multiplied by."""
    residual = likelihood.residual(reading_ma, discrepancy, settings)
    root = np.where(likelihood.idle(residual, settings), 0.0, np.sqrt(weight(residual)))
    return root * residual, root / likelihood.sigma_ma(discrepancy, settings)


def drift_at(
    model: MeshModel, parameters: MeshParameters, observations: Observations, reading_ma: Real, drift: SettingDrift
) -> Real:
    """Return what :func:`drift_slopes_ma` does for all settings, from readings alone: by differences."""
    if not drift.power_db and not drift.common_phase_rad:
        return np.zeros((*reading_ma.shape, 2))
    by_phase = model.by_common_phase(parameters, observations)
    return np.stack([_LN10_PER_10 * reading_ma * drift.power_db, by_phase * drift.common_phase_rad], axis=-1)


def drift_slopes_ma(model: MeshModel, parameters: MeshParameters, part: Linearised, drift: SettingDrift) -> Real:
    """Return how readings follow one sigma of what drifts from setting to setting, shape ``(n, M, 2)``."""
    power = _LN10_PER_10 * part.reading_ma * drift.power_db
    # Only the source that is lit has a derivative: the sum over all is that one, and a frequency is a common phase.
    turned = part.jacobian[..., model.space.groups["source_detuning_hz"]].sum(axis=-1)
    common = turned / (2.0 * np.pi * parameters.delay_s) * drift.common_phase_rad
    return np.stack([power, common], axis=-1)
