"""Drift: what a calibration is still worth after some time, and how a few settings renew it (calibration.md 6).

What was known is the prior of the new fit: the covariance of the last one, widened by what may have happened since.
Nothing has to be frozen: what does not drift is held by what was known of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult, GlobalFit
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import strain
from calibration.model.parameters import MeshParameters
from calibration.model.priors import Prior
from calibration.model.space import ParameterSpace
from lumion_hw.errors import CalibrationError

Real = NDArray[np.float64]

MOST_CHI2 = 1.5
"""χ² per degree of freedom above which the drift is not of the kind assumed (calibration.md 6, assumption)."""
_WORST = 5


@dataclass(frozen=True)
class DriftModel:
    """What may change with time (assumptions of calibration.md 6 and mesh.md b.11); spreads, one sigma.

    Attributes:
        temperature_k: Of the whole chip, however short the time.
        common_phase_rad_per_k: Of every PUC.
        resistance_per_root_day: Of every heater, relative; random walk.
        passive_phase_rad_per_root_day: Of every PUC, random walk.
        loop_phase_rad_per_root_day: Of the joints, random walk.
        source_db: Of every source, and of its second port over its first, however short the time.
        monitor_db: Of every monitor, however short the time.
    """

    temperature_k: float = 0.1
    common_phase_rad_per_k: float = 0.6
    resistance_per_root_day: float = 1e-3
    passive_phase_rad_per_root_day: float = 0.02
    loop_phase_rad_per_root_day: float = 0.02
    source_db: float = 0.3
    monitor_db: float = 0.05

    def covariance(self, space: ParameterSpace, vector: Real, days: float) -> Real:
        """Return the covariance of the changes after some days, shape ``(size, size)``."""
        root, groups = np.sqrt(days), space.groups
        spread = np.zeros(space.size)
        spread[groups["passive_phase_rad"]] = self.passive_phase_rad_per_root_day * root
        spread[groups["loops"]] = self.loop_phase_rad_per_root_day * root
        spread[groups["rho2"]] = self.resistance_per_root_day * root * vector[groups["rho2"]]
        spread[groups["source_db"]] = spread[space.group("second_db")] = self.source_db
        spread[groups["monitor_db"]] = self.monitor_db
        warmed = self.warmed(space)
        widened: Real = np.diag(spread**2) + np.outer(warmed, warmed)
        return widened

    def warmed(self, space: ParameterSpace) -> Real:
        """Return what one sigma of the temperature adds to all parameters, shape ``(size,)``."""
        # A phase that all PUCs have in common is the same phase on every joint: half from the PUC on either side.
        added = np.zeros(space.size)
        rise_rad = self.temperature_k * self.common_phase_rad_per_k
        added[space.groups["loops"]] = space.directions.sum(axis=0) * rise_rad
        return added


class Posterior(Protocol):
    """What was known last: a :class:`~calibration.fit.global_fit.FitResult`, or what a record keeps of one."""

    @property
    def parameters(self) -> MeshParameters:
        """The point of largest likelihood."""

    @property
    def vector(self) -> Real:
        """The same as a vector, shape ``(size,)``."""

    @property
    def free(self) -> NDArray[np.bool_]:
        """Which parameters were free, shape ``(size,)``."""

    def covariance(self) -> Real:
        """Return the covariance of all parameters, shape ``(size, size)``; 0 where they were held."""


@dataclass(frozen=True, eq=False)
class Renewal:
    """A calibration renewed.

    Attributes:
        fit: The new fit.
        covariance: Shape ``(size, size)``; of all parameters, prior included; 0 where they were held.
        holds: Whether the drift was of the kind assumed.
        worst_pucs: PUCs whose readings fit worst, the worst first; what to measure again if it was not.
    """

    fit: FitResult
    covariance: Real
    holds: bool
    worst_pucs: tuple[int, ...]


def widened_prior(space: ParameterSpace, last: Posterior, drift: DriftModel, days: float) -> Prior:
    """Return what is known some days after a fit.

    Raises:
        CalibrationError: The last fit leaves parameters without any bound that were free.
    """
    free = last.free
    covariance = _widened(space, last, drift, days)
    spread = np.sqrt(np.diag(covariance))
    if not (spread > 0.0).all():
        where = space.describe(int(np.flatnonzero(free)[np.argmin(spread)]))
        raise CalibrationError(f"the last fit says nothing about {where}", hint="Fit it with a prior.")
    precision = np.zeros((space.size, space.size))
    precision[np.ix_(free, free)] = np.linalg.inv(covariance / np.outer(spread, spread)) / np.outer(spread, spread)
    return Prior(last.vector, np.full(space.size, np.inf), precision)


def renew(
    model: MeshModel, likelihood: Likelihood, last: Posterior, days: float, drift: DriftModel | None = None
) -> Renewal:
    """Fit a few new settings, some 30, with what the last fit knew as prior.

    Args:
        model: The model.
        likelihood: The new readings.
        last: The last fit.
        days: Time since.
        drift: What may have happened in it.
    """
    drift = drift or DriftModel()
    prior = widened_prior(model.space, last, drift, days)
    fit = GlobalFit(model, likelihood, prior, last.free).run(last.parameters)
    tension = _strain_by_puc(model, fit.parameters, likelihood)
    holds = fit.certified and fit.chi2_per_dof < MOST_CHI2
    fitted = fit.free[last.free]  # a fit that gets nowhere never comes to free the fine parameters
    information = np.zeros((len(fitted), len(fitted)))
    information[np.ix_(fitted, fitted)] = fit.information
    covariance = np.zeros((model.space.size, model.space.size))
    covariance[np.ix_(last.free, last.free)] = _updated(_widened(model.space, last, drift, days), information)
    return Renewal(fit, covariance, holds, tuple(np.argsort(-tension)[:_WORST].tolist()))


def _strain_by_puc(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood) -> Real:
    """Return the largest strain at any PUC's passive phase or heaters: a heater that died strains its law most."""
    tension, space = strain(model, parameters, likelihood), model.space
    heaters = tension[space.group("rho2")].reshape(-1, 2).max(axis=1)
    by_puc: Real = np.maximum(tension[space.group("passive_phase_rad")], heaters)
    return by_puc


def _widened(space: ParameterSpace, last: Posterior, drift: DriftModel, days: float) -> Real:
    """Return the covariance of the free parameters some days after a fit, shape ``(P, P)``."""
    wide: Real = (last.covariance() + drift.covariance(space, last.vector, days))[np.ix_(last.free, last.free)]
    return wide


def _updated(covariance: Real, information: Real) -> Real:
    """Return a covariance after readings: L·(1 + Lᵀ·I·L)⁻¹·Lᵀ of its root L.

    Not the inverse of a sum of inverses: what is known to a milliradian of a sum is not known to a radian of its terms
    (frequency of the light and loops), and inverting both loses digits that count.
    """
    spread = np.sqrt(np.diag(covariance))
    root = np.linalg.cholesky(covariance / np.outer(spread, spread)) * spread[:, None]
    seen = np.eye(len(root)) + root.T @ information @ root
    after: Real = root @ np.linalg.solve(seen, root.T)
    return 0.5 * (after + after.T)
