"""The Cramér-Rao bound of a plan: the smallest possible parameter errors for given settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.measure.design import IncrementalSettings
from calibration.model.arrays import Real
from calibration.model.likelihood import Likelihood, SettingDrift
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import normal_equations
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from calibration.model.priors import FREE_GROUPS, Prior
from calibration.model.space import ParameterSpace
from calibration.model.symmetric import Sparse, diagonal, inverse_of, scale_of

# Relative information below which a direction counts as unobservable. Rounding errors are about 1e-14; derivatives in
# single precision, as used in fits, give 2e-9 where two of them cancel (a coupler difference in the dark).
_UNOBSERVABLE = 1e-10
_UNOBSERVABLE_IN_FIT = 1e-8
_NAMED_SHARE = 0.01
_MAX_NAMED = 6
_SETTINGS_PER_SOURCE = 8
# A hundred random settings reach all ranks of docs/calibration.md, 1.3; twice as many are on the safe side.
_FEWEST_SETTINGS = 200
# A parameter counts as set by its prior if more than this share of its information comes from the prior.
_SET_BY_PRIOR = 0.5


@dataclass(frozen=True, eq=False)
class Bound:
    """Fisher information of planned settings about P free parameters of a vector with ``size`` parameters.

    Attributes:
        space: Layout of the parameter vector.
        free: Shape ``(size,)``; which parameters are free.
        information: Shape ``(P, P)``; Fisher information of the readings.
        prior_information: Shape ``(P, P)``; information of the prior, zeros without a prior.
        reachable_rank: Number of parameter combinations that random settings determine; ``None`` if unknown.
    """

    space: ParameterSpace
    free: NDArray[np.bool_]
    information: Real
    prior_information: Sparse
    reachable_rank: int | None = None

    @cached_property
    def rank(self) -> int:
        """Number of independent parameter combinations that the readings determine."""
        return len(self.information) - len(self._unobservable)

    @property
    def n_free(self) -> int:
        """Number of free parameters."""
        return int(self.free.sum())

    def covariance(self) -> Real:
        """Return the smallest possible covariance of all parameters, shape ``(size, size)``; 0 for fixed parameters.

        Combinations that nothing determines contribute nothing.
        """
        total = self.information + self.prior_information
        result = np.zeros((self.space.size, self.space.size))
        result[np.ix_(self.free, self.free)] = inverse_of(total, _UNOBSERVABLE)
        return result

    def sigma(self, name: str) -> Real:
        """Return the smallest possible standard error of each parameter in a group; see :meth:`covariance`."""
        return np.sqrt(np.diag(self.covariance())[self.space.group(name)])

    def rms(self, name: str) -> float:
        """Return the rms standard error of a group; for ``loops``, of loop phases (docs/calibration.md, 1.2)."""
        return float(np.sqrt(np.mean(self.sigma(name) ** 2)))

    def unseen(self) -> tuple[str, ...]:
        """Return descriptions of the parameter combinations that no reading determines, the simplest first.

        Examples: ``loss_db of PUC 0 by +1 with source_db at port 0 by +1, monitor_db at port 0 by +1``, each in its own
        unit; ``coupler_common_rad of PUC 9 alone``.
        """
        free_numbers = np.flatnonzero(self.free)
        texts = []
        for vector in self.unobservable_directions():
            named = np.flatnonzero(np.abs(vector) > _NAMED_SHARE)
            names = [self.space.describe(int(free_numbers[index])) for index in named]
            if len(named) == 1:
                texts.append((1, f"{names[0]} alone"))
                continue
            sign = np.sign(vector[named[0]])
            changes = [f"{name} by {sign * vector[index]:+.3g}" for name, index in zip(names, named, strict=True)]
            omitted = [f"and {len(named) - _MAX_NAMED} more"] if len(named) > _MAX_NAMED else []
            texts.append((len(named), f"{changes[0]} with {', '.join(changes[1:_MAX_NAMED] + omitted)}"))
        return tuple(text for _, text in sorted(texts))

    def unobservable_directions(self) -> Real:
        """Return a basis of the unobservable combinations of P parameters, ``(P - rank, P)``, in their units.

        Each vector has one parameter that no other vector contains; the largest element is 1.
        """
        rows = self._unobservable.copy()
        for row in range(len(rows)):
            # Gauss-Jordan elimination with the largest element as pivot keeps the descriptions short.
            pivot = int(np.abs(rows[row]).argmax())
            rows[row] /= rows[row, pivot]
            is_other = np.arange(len(rows)) != row
            rows[is_other] -= np.outer(rows[is_other, pivot], rows[row])
        rows /= scale_of(self.information)
        _remove_single_parameters(rows)
        largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
        directions: Real = rows / largest[:, None]
        return directions

    def set_by_prior(self) -> NDArray[np.bool_]:
        """Return which parameters are determined mostly by the prior, shape ``(size,)`` (docs/calibration.md, 1.3)."""
        variance = np.diag(self.covariance())[self.free]
        certain = self.prior_information.diagonal() * variance
        result = np.zeros(self.space.size, dtype=np.bool_)
        result[self.free] = certain > _SET_BY_PRIOR
        return result

    @cached_property
    def _unobservable(self) -> Real:
        """Unobservable combinations of P parameters, each scaled by the root of its information, ``(P - rank, P)``."""
        from scipy.linalg import eigh

        scale = scale_of(self.information)
        # Calculating all eigenvectors would take twice as long.
        scaled = self.information / np.outer(scale, scale)
        return eigh(scaled, subset_by_value=(-np.inf, _UNOBSERVABLE_IN_FIT), check_finite=False)[1].T


def plan_bound(
    model: MeshModel,
    parameters: MeshParameters,
    plan: Observations,
    noise: NoiseModel,
    prior: Prior | None = None,
    free: Sequence[str] | NDArray[np.bool_] = FREE_GROUPS,
    drift: SettingDrift | None = None,
) -> Bound:
    """Return the Cramér-Rao bound (smallest possible parameter errors) of a measurement with the given settings.

    Args:
        model: Model of the mesh.
        parameters: Where to evaluate: the true parameters or the best estimate.
        plan: The settings; readings are ignored, except that saturated and missing ones give no information.
        noise: Noise of a reading.
        prior: Prior whose information is added; ``None`` for readings alone.
        free: Groups of unknown parameters, or a mask of shape ``(size,)``.
        drift: Quantities (power, common phase) that may drift between settings.
    """
    mask = free if isinstance(free, np.ndarray) else model.space.free(free)
    # Predicted readings are used, so that a plan has a bound before it is measured. Saturated readings are ignored.
    predicted_ma = np.where(np.isfinite(plan.reading_ma) & ~plan.saturated, model.predict(parameters, plan), np.nan)
    expected = replace(plan, reading_ma=predicted_ma, saturated=np.zeros_like(plan.saturated), late=None)
    likelihood = Likelihood(expected, noise, drift=drift or SettingDrift())
    equations = normal_equations(model.with_double_precision(), parameters, likelihood, mask)
    inner = diagonal(np.zeros(len(equations.gradient))) if prior is None else prior.information(mask)
    return Bound(model.space, mask, equations.information, inner)


def fit_bound(fit: FitResult, model: MeshModel, max_ma: Real, likelihood: Likelihood) -> Bound:
    """Return the Cramér-Rao bound (smallest possible parameter errors) of the readings of a fit.

    It includes the number of parameter combinations that more settings could determine (docs/calibration.md, 1.3).
    ``max_ma`` is the largest current of every heater, 0 for heaters that stay off.
    """
    sources, monitors = model.space.sources, model.space.monitors
    count = max(_FEWEST_SETTINGS, _SETTINGS_PER_SOURCE * len(sources))
    # A fixed seed instead of the run's seed: the reachable rank does not depend on the random settings.
    settings = IncrementalSettings(max_ma, sources, monitors).random(count, np.random.default_rng(0))
    reachable = plan_bound(model, fit.parameters, settings, likelihood.noise, free=fit.free, drift=likelihood.drift)
    return Bound(model.space, fit.free, fit.information, fit.prior_information, reachable.rank)


def _remove_single_parameters(rows: Real) -> None:
    for _ in range(len(rows) if rows.shape[1] > 1 else 0):
        size = np.sort(np.abs(rows), axis=1)
        single = size[:, -2] <= _NAMED_SHARE * size[:, -1]
        for row in np.flatnonzero(single)[np.argsort(size[single, -2] / size[single, -1], kind="stable")]:
            pivot = int(np.abs(rows[row]).argmax())
            is_other = (np.arange(len(rows)) != row) & (rows[:, pivot] != 0.0)
            if is_other.any():
                rows[is_other] -= np.outer(rows[is_other, pivot] / rows[row, pivot], rows[row])
                rows[is_other, pivot] = 0.0
                break
        else:
            return
