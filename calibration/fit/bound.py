"""The Cramér-Rao bound of a plan: how well settings can at best tell the parameters, before or after they are measured.

The Fisher information of a plan is that of the normal equations at the model's own readings. What it has no direction
for is listed in words; the phase gauge is not among it, as joint phases are counted in loops
(docs/calibration.md, 1.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibration.fit.global_fit import FitResult
from calibration.measure.design import IncrementalSettings
from calibration.model.likelihood import Likelihood, SettingDrift
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import normal_equations
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from calibration.model.priors import FREE_GROUPS, Prior
from calibration.model.space import ParameterSpace
from calibration.model.symmetric import inverse_of, scale_of

Real = NDArray[np.float64]

# Share of the typical information below which a direction counts as unseen. Rounding leaves 1e-14, that of derivatives
# in single precision, as fits make them, 2e-9 where two of them cancel (a coupler difference in the dark).
_NOTHING = 1e-10
_NOTHING_OF_A_FIT = 1e-8
_NAMED_SHARE = 0.01
_MOST_NAMED = 6
_SETTINGS_PER_SOURCE = 8
# With a hundred random settings all ranks of docs/calibration.md, 1.3, are reached; this is on the safe side.
_FEWEST_SETTINGS = 200
# A parameter is set by its prior where more than this share of its certainty comes from there.
_SET_BY_PRIOR = 0.5


@dataclass(frozen=True, eq=False)
class Bound:
    """What a plan can tell of P free parameters.

    Attributes:
        space: Where parameters have their places.
        free: Shape ``(size,)``; which are free.
        information: Shape ``(P, P)``; Fisher information of the readings.
        prior_information: Shape ``(P, P)``; that of the prior, zeros without one.
        reachable_rank: Rank that random settings of the same ports reach; ``None``: not asked. Near the threshold
            settings chosen for what they tell may show more.
    """

    space: ParameterSpace
    free: NDArray[np.bool_]
    information: Real
    prior_information: Real
    reachable_rank: int | None = None

    @cached_property
    def rank(self) -> int:
        """Number of independent combinations that the readings show."""
        return len(self.information) - len(self._nothing)

    @property
    def n_free(self) -> int:
        """Number of free parameters."""
        return int(self.free.sum())

    def covariance(self) -> Real:
        """Return the least covariance of all parameters, shape ``(size, size)``; 0 where held.

        Combinations that neither readings nor prior show are left out: they add nothing to it.
        """
        total = self.information + self.prior_information
        result = np.zeros((self.space.size, self.space.size))
        result[np.ix_(self.free, self.free)] = inverse_of(total, _NOTHING)
        return result

    def sigma(self, name: str) -> Real:
        """Return the least standard errors of a group, shape ``(n,)``; see :meth:`covariance`."""
        sigma: Real = np.sqrt(np.diag(self.covariance())[self.space.group(name)])
        return sigma

    def rms(self, name: str) -> float:
        """Return the root mean square of :meth:`sigma`; for ``loops`` it is per loop (docs/calibration.md, 1.2)."""
        return float(np.sqrt(np.mean(self.sigma(name) ** 2)))

    def unseen(self) -> tuple[str, ...]:
        """Return in words which parameters can change together without any reading that shows it, the simplest first.

        Such as ``loss_db of PUC 0 by +1 with source_db at port 0 by +1, monitor_db at port 0 by +1``, each in its own
        unit; ``coupler_common_rad of PUC 9 alone`` if no reading feels it.
        """
        places = np.flatnonzero(self.free)
        texts = []
        for vector in self.unobservable_directions():
            named = np.flatnonzero(np.abs(vector) > _NAMED_SHARE)
            names = [self.space.describe(int(places[index])) for index in named]
            if len(named) == 1:
                texts.append((1, f"{names[0]} alone"))
                continue
            sign = np.sign(vector[named[0]])
            changes = [f"{name} by {sign * vector[index]:+.3g}" for name, index in zip(names, named, strict=True)]
            more = [f"and {len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
            texts.append((len(named), f"{changes[0]} with {', '.join(changes[1:_MOST_NAMED] + more)}"))
        return tuple(text for _, text in sorted(texts))

    def unobservable_directions(self) -> Real:
        """Return a basis of what the readings do not show, shape ``(P - rank, P)``, in the parameters' own units.

        It is reduced: each vector has a parameter of its own. The largest element of each is 1.
        """
        rows = self._nothing.copy()
        for row in range(len(rows)):
            # Gauss-Jordan by the largest element: directions in words stay short.
            pivot = int(np.abs(rows[row]).argmax())
            rows[row] /= rows[row, pivot]
            others = np.arange(len(rows)) != row
            rows[others] -= np.outer(rows[others, pivot], rows[row])
        rows /= scale_of(self.information)
        _take_out_single(rows)
        largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
        directions: Real = rows / largest[:, None]
        return directions

    def set_by_prior(self) -> NDArray[np.bool_]:
        """Return which parameters owe most of what is known to the prior, ``(size,)`` (docs/calibration.md, 1.3)."""
        variance = np.diag(self.covariance())[self.free]
        certain = np.diag(self.prior_information) * variance
        result = np.zeros(self.space.size, dtype=np.bool_)
        result[self.free] = certain > _SET_BY_PRIOR
        return result

    @cached_property
    def _nothing(self) -> Real:
        """Combinations that the readings do not show, ``(P - rank, P)``, each parameter in units of itself alone."""
        from scipy.linalg import eigh

        scale = scale_of(self.information)
        # Those alone: all of them take twice the time.
        scaled = self.information / np.outer(scale, scale)
        vectors: Real = eigh(scaled, subset_by_value=(-np.inf, _NOTHING_OF_A_FIT), check_finite=False)[1].T
        return vectors


def plan_bound(
    model: MeshModel,
    parameters: MeshParameters,
    plan: Observations,
    noise: NoiseModel,
    prior: Prior | None = None,
    free: Sequence[str] | NDArray[np.bool_] = FREE_GROUPS,
    drift: SettingDrift | None = None,
) -> Bound:
    """Return the bound of settings at a point; readings that were taken are not looked at, only where there are none.

    Args:
        model: The model.
        parameters: The point; best the truth, else the best guess.
        plan: The settings. Readings that are saturated or no numbers count for nothing.
        noise: Noise of a reading.
        prior: What is known besides, if that is to count.
        free: Groups of unknown parameters, or a mask of shape ``(size,)``.
        drift: What may differ from setting to setting.
    """
    mask = free if isinstance(free, np.ndarray) else model.space.mask(free)
    # The model's own readings, so that a plan has a bound before it is measured; saturated ones count for nothing.
    known = np.where(np.isfinite(plan.reading_ma) & ~plan.saturated, model.predict(parameters, plan), np.nan)
    nothing = np.zeros(known.shape, dtype=np.bool_)
    expected = Observations(plan.currents_ma, plan.source, plan.monitors, known, nothing, plan.detuning_hz)
    likelihood = Likelihood(expected, noise, drift=drift or SettingDrift())
    equations = normal_equations(model.with_double_precision(), parameters, likelihood, mask)
    inner = np.zeros_like(equations.information) if prior is None else prior.information(mask)
    return Bound(model.space, mask, equations.information, inner)


def fit_bound(fit: FitResult, model: MeshModel, most_ma: Real, likelihood: Likelihood) -> Bound:
    """Return what the readings of a fit could tell, and what settings of the same ports can tell at all.

    Random settings reach the rank that a model's ports allow; more of them do not raise it (docs/calibration.md, 1.3).

    Args:
        fit: The fit.
        model: Its model, with the ports that have light and those that are read.
        most_ma: Shape ``(2E,)``; largest current of every heater, 0 for those that stay off.
        likelihood: Noise of a reading, and what may differ from setting to setting.
    """
    sources, monitors = model.space.sources, model.space.monitors
    count = max(_FEWEST_SETTINGS, _SETTINGS_PER_SOURCE * len(sources))
    # A seed of its own and not the run's: the rank that ports can reach does not depend on the draw.
    settings = IncrementalSettings(most_ma, sources, monitors).random(count, np.random.default_rng(0))
    reachable = plan_bound(model, fit.parameters, settings, likelihood.noise, free=fit.free, drift=likelihood.drift)
    return Bound(model.space, fit.free, fit.information, fit.prior_information, reachable.rank)


def _take_out_single(rows: Real) -> None:
    """Take parameters that some direction is all of out of the other directions, in place.

    In its own unit one that hardly shows is larger than all others, and would hide them.
    """
    for _ in range(len(rows) if rows.shape[1] > 1 else 0):
        size = np.sort(np.abs(rows), axis=1)
        single = size[:, -2] <= _NAMED_SHARE * size[:, -1]
        for row in np.flatnonzero(single)[np.argsort(size[single, -2] / size[single, -1], kind="stable")]:
            pivot = int(np.abs(rows[row]).argmax())
            others = (np.arange(len(rows)) != row) & (rows[:, pivot] != 0.0)
            if others.any():
                rows[others] -= np.outer(rows[others, pivot] / rows[row, pivot], rows[row])
                rows[others, pivot] = 0.0
                break
        else:
            return
