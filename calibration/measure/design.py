"""Choice of settings to measure: random ones, or those with the most information per second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.measure.logbook import HardwareTimes
from calibration.model.arrays import Real, Single
from calibration.model.likelihood import SettingDrift, without_drift
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import drift_slopes_ma
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from calibration.model.priors import PHASE_GROUPS, Prior, modulo_a_turn
from calibration.model.space import LAW_TERMS, ParameterSpace
from calibration.model.symmetric import Sparse
from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.topology import MeshTopology

OFF_SHARE = 0.7
"""Fraction of heaters that are off; gives the most information per second."""
TRIES = 4
"""Number of candidate settings per choice (docs/performance.md)."""
_MEAN_HZ = 1e6
# Relative information below which a combination of parameters counts as unobservable.
_ROUNDING = 1e-12
CHANGED = 18
"""Heaters changed from setting to setting; gives the most information per second on a mesh of 144 heaters."""
DESIGN_GROUPS = (*PHASE_GROUPS, *LAW_TERMS, "loss_db", "coupler_common_rad", "source_db", "second_db", "monitor_db")
"""Parameter groups that the design considers."""


def usually_changed(mesh: MeshTopology, recirculating: int = CHANGED) -> int:
    """Return how many heaters should change from one random setting to the next.

    This is ``recirculating`` in a mesh with loops. Where light never turns back, a few changed heaters leave most of
    the light as it was. A search for phases then has too few independent readings.
    """
    return recirculating if mesh.faces else 2 * mesh.n_pucs


@dataclass(frozen=True, eq=False)
class IncrementalSettings:
    """Random settings in which a few heaters change from one to the next.

    Attributes:
        max_ma: Shape ``(heaters,)``; largest current of every heater, 0 for heaters that must stay off.
        sources: Ports that receive light in turn.
        settings_per_source: Number of settings before the source changes.
        changed: Number of heaters changed from setting to setting.
        off_share: Fraction of the heaters that are off.
    """

    max_ma: Real
    sources: tuple[int, ...]
    monitors: tuple[int, ...]
    settings_per_source: int = 1
    changed: int = CHANGED
    off_share: float = OFF_SHARE

    def random(self, count: int, rng: np.random.Generator) -> Observations:
        """Return ``count`` random settings to be measured."""
        currents = np.empty((count, len(self.max_ma)))
        currents_ma = self._draw(rng, np.arange(len(self.max_ma)))
        for row in currents:
            row[:] = currents_ma
            currents_ma = self.step(currents_ma, rng)
        turn = np.arange(count) // self.settings_per_source % len(self.sources)
        return self.with_light(currents, np.array(self.sources)[turn])

    def step(self, currents_ma: Real, rng: np.random.Generator) -> Real:
        """Return the heater currents of the next setting."""
        # Writing 18 of 144 channels takes a third of the time of a full write and gives nearly as much information,
        # because the light of a recirculating mesh already changes completely.
        following = currents_ma.copy()
        chosen = rng.choice(len(currents_ma), min(self.changed, len(currents_ma)), replace=False)
        following[chosen] = self._draw(rng, chosen)
        # No fit uses the reference setting with all heaters off, which a chip with few heaters would get often.
        if not following.any() and (driven := np.flatnonzero(self.max_ma)).size:
            heater = int(rng.choice(driven))
            following[heater] = np.sqrt(rng.random()) * self.max_ma[heater]
        return following

    def with_light(self, currents_ma: Real, source: NDArray[np.int64]) -> Observations:
        """Return settings without readings, from currents ``(settings, heaters)`` and source ports ``(settings,)``."""
        no_readings = np.zeros((len(currents_ma), len(self.monitors)))
        return Observations(currents_ma, source, self.monitors, no_readings, no_readings > 0.0)

    def _draw(self, rng: np.random.Generator, heaters: NDArray[np.int64]) -> Real:
        # Uniform in I², hence in phase; uniform in I would concentrate the settings at small phases.
        on = rng.random(len(heaters)) >= self.off_share
        return np.where(on, np.sqrt(rng.random(len(heaters))) * self.max_ma[heaters], 0.0)


@dataclass(frozen=True, eq=False)
class Design:
    """Chosen settings, with the expected accuracy.

    Attributes:
        plan: The settings, without readings.
        seconds: Hardware time of the settings.
        sigma_rad: Rms standard error of passive or loop phases after each setting, whichever is larger.
        reached: Whether the required standard error is reached.
        reason: Why no further settings were chosen.
    """

    plan: Observations
    seconds: float
    sigma_rad: Real
    reached: bool
    reason: str


class Designer:
    """Chooses settings by expected information per second of hardware time.

    It takes the candidate that reduces the mean variance of passive and loop phases most, per second (A-optimal).

    Args:
        parameters: Best estimate of the mesh.
        prior: Prior knowledge, or an earlier fit.
        free: Groups of unknown parameters, or a mask.
        times: Duration of the steps of a setting.
        wanted: Shape ``(size,)``; parameters to determine, by default all passive and loop phases.
        drift: Quantities that may differ from setting to setting.
    """

    def __init__(
        self,
        model: MeshModel,
        parameters: MeshParameters,
        noise: NoiseModel,
        prior: Prior,
        free: Sequence[str] | NDArray[np.bool_] = DESIGN_GROUPS,
        times: HardwareTimes | None = None,
        wanted: NDArray[np.bool_] | None = None,
        drift: SettingDrift | None = None,
    ) -> None:
        self._model, self._parameters, self._noise = model, parameters, noise
        self._drift = drift or SettingDrift()
        mask = free if isinstance(free, np.ndarray) else model.space.free(free)
        self._free = np.flatnonzero(mask)
        self._times = times or HardwareTimes()
        self._groups = [self._free_in_group(name, wanted) for name in PHASE_GROUPS]
        self._wanted = np.concatenate(self._groups)
        # An unobservable phase is still known modulo a turn; an infinite variance would hide everything else.
        known = modulo_a_turn(prior.information(mask), model.space.mask(PHASE_GROUPS)[self._free])
        # With several lasers only frequency differences are observable. The mean is fixed; otherwise every setting
        # would seem to measure a phase that no setting can.
        prior_information = at_mean_frequency(model.space, mask, known)
        # Single precision is enough to compare candidates and halves the memory traffic.
        self._root = _root(prior_information).astype(np.float32)

    def _free_in_group(self, name: str, wanted: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        place = self._model.space.group(name)
        inside = (self._free >= place.start) & (self._free < place.stop)
        return np.flatnonzero(inside if wanted is None else inside & wanted[self._free])

    def sigma_rad(self) -> float:
        """Return the rms standard error of the wanted passive or loop phases, whichever is larger."""
        # The sum of squares of a row of R is the variance of its parameter, without any matrix inversion.
        sums = ((self._root[group] ** 2).sum(axis=1) for group in self._groups if len(group))
        return float(np.sqrt(max((float(variance.mean()) for variance in sums), default=0.0)))

    def add(self, observations: Observations) -> None:
        """Add the information of settings, as if they had been measured."""
        for rows in self._rows(observations):
            self._add_information(rows)

    def gain_rad2(self, candidates: Observations) -> Real:
        """Return by how much each candidate reduces the sum of the phase variances, shape ``(settings,)``."""
        return self._gains(self._rows(candidates))

    def choose(
        self,
        walk: IncrementalSettings,
        seconds: float,
        wanted_rad: float,
        rng: np.random.Generator,
        tries: int = TRIES,
        max_settings: int | None = None,
        progress: Callable[[int], None] = lambda chosen: None,
    ) -> Design:
        """Choose settings until the goal is reached, each time the one with the most information per second.

        Args:
            walk: Gives random candidates from the last setting.
            seconds: Available hardware time.
            wanted_rad: Standard error at which to stop.
            rng: Random generator for the candidate settings.
            tries: Number of candidates per choice.
            max_settings: Maximum number of settings.
            progress: Called with the number of settings chosen so far.

        Raises:
            ConfigError: ``tries`` is below 1.
        """
        if tries < 1:
            raise ConfigError(
                f"the number of candidate settings is {tries}, but a design needs at least 1",
                hint="Choose a number of at least 1.",
            )
        currents_ma, active_source, used = np.zeros(len(walk.max_ma)), -1, 0.0
        chosen: list[Real] = []
        sources: list[int] = []
        sigmas, source = [self.sigma_rad()], active_source
        while sigmas[-1] > wanted_rad and (max_settings is None or len(chosen) < max_settings):
            # The source is chosen once per segment, because a change takes longer than a setting.
            if len(chosen) % walk.settings_per_source == 0:
                source = self._next_source(walk, currents_ma, active_source, rng, tries)
            step, rows, cost = self._best_step(walk, currents_ma, source, rng, tries)
            cost += self._times.input_change_s if source != active_source else 0.0
            if used + cost > seconds:
                break
            self._add_information(rows)
            currents_ma, active_source, used = step, source, used + cost
            chosen.append(currents_ma)
            sources.append(source)
            sigmas.append(self.sigma_rad())
            progress(len(chosen))
        reached = sigmas[-1] <= wanted_rad
        accuracy = f"{sigmas[-1]:.2g} rad after {len(chosen)} settings and {used:.3g} s"
        reason = accuracy if reached else f"{accuracy}: the time limit does not allow {wanted_rad:.2g} rad"
        currents = np.stack(chosen) if chosen else np.zeros((0, len(currents_ma)))
        plan = walk.with_light(currents, np.array(sources, np.int64))
        return Design(plan, used, np.array(sigmas[1:]), reached, reason)

    def _best_step(
        self, walk: IncrementalSettings, currents_ma: Real, source: int, rng: np.random.Generator, tries: int
    ) -> tuple[Real, Single, float]:
        steps = np.stack([walk.step(currents_ma, rng) for _ in range(tries)])
        costs = self._times.setting_s((steps != currents_ma).sum(axis=1))
        rows = self._rows(walk.with_light(steps, np.full(tries, source)))
        # Information per second: a step with few changed channels may be better although it gives less information.
        best = int(np.argmax(self._gains(rows) / costs)) if tries > 1 else 0
        return steps[best], rows[best], float(costs[best])

    def _next_source(
        self, walk: IncrementalSettings, currents_ma: Real, active_source: int, rng: np.random.Generator, tries: int
    ) -> int:
        # No information to compare: take the sources in turn.
        if tries == 1 or len(walk.sources) == 1:
            following = walk.sources.index(active_source) + 1 if active_source in walk.sources else 0
            return walk.sources[following % len(walk.sources)]
        # Half of the candidates suffice for the mean of a source; there are several sources.
        tries = max(tries // 2, 1)
        steps = np.stack([walk.step(currents_ma, rng) for _ in range(tries)])
        seconds = walk.settings_per_source * float(self._times.setting_s((steps != currents_ma).sum(axis=1)).mean())
        values = []
        for source in walk.sources:
            gains_rad2 = self.gain_rad2(walk.with_light(steps, np.full(tries, source)))
            change_s = self._times.input_change_s if source != active_source else 0.0
            values.append(walk.settings_per_source * float(gains_rad2.mean()) / (seconds + change_s))
        return walk.sources[int(np.argmax(values))]

    def _rows(self, observations: Observations) -> list[Single]:
        """Return for every setting the derivatives of M readings by P parameters, in units of noise."""
        rows: list[Single] = []
        for part in self._model.linearise(self._parameters, observations):
            sigma = self._noise.sigma_ma(part.reading_ma)
            drift = drift_slopes_ma(self._model, self._parameters, part, self._drift) / sigma[..., None]
            own = part.jacobian[..., self._free]
            own /= sigma[..., None].astype(own.dtype)
            rows += list(np.asarray(without_drift(own, drift), np.float32))
        return rows

    def _gains(self, rows: list[Single]) -> Real:
        root = self._root
        every = (np.concatenate(rows) @ root).reshape(len(rows), -1, root.shape[1])
        gained, every = (every @ root[self._wanted].T).astype(np.float64), every.astype(np.float64)
        # Woodbury formula: the gain of a setting needs a matrix of the size of its readings (28 x 28) only.
        lower = np.linalg.cholesky(np.eye(every.shape[1]) + every @ np.swapaxes(every, 1, 2))
        return np.asarray((np.linalg.solve(lower, gained) ** 2).sum(axis=(1, 2)))

    def _add_information(self, rows: Single) -> None:
        """Update the covariance root R for one more setting with derivatives ``rows``: R·(1 + FᵀF)^-1/2, F = rows·R."""
        projected = rows @ self._root
        # The root is updated and never recalculated: a covariance that shrinks over many decades would lose digits.
        squares, u = np.linalg.eigh(projected.astype(np.float64) @ projected.T)
        root = np.sqrt(1.0 + np.maximum(squares, 0.0))
        shrunk = ((u / (root * (1.0 + root))) @ u.T).astype(np.float32)  # (1 - 1/√(1+s²)) / s², which is 1/2 at 0
        self._root -= (self._root @ projected.T) @ (shrunk @ projected)


def at_mean_frequency(space: ParameterSpace, free: NDArray[np.bool_], information: Real | Sparse) -> Real:
    """Return the information about the free parameters, ``(P, P)``, as if the mean source frequency were known.

    With several lasers, only frequency differences are observable.
    """
    mean = np.where(space.mask(("source_detuning_hz",)), 1.0 / max(len(space.sources), 1), 0.0)[free]
    return information + np.outer(mean, mean) / _MEAN_HZ**2


def _root(information: Real) -> Real:
    """Return the root R of a covariance R·Rᵀ.

    Combinations that no setting determines keep a large but finite variance.
    """
    power = np.diag(information)
    total = information + np.diag(np.where(power > 0.0, _ROUNDING * power, 1.0))
    scale = np.sqrt(np.diag(total))
    return np.ascontiguousarray((np.linalg.inv(np.linalg.cholesky(total / np.outer(scale, scale))) / scale).T)
