"""Which settings to measure: random ones made to cost little, or those that tell most per second of hardware time.

Most heaters are off in a setting: passive phases are those of cold heaters, and readings of warm ones alone leave them
to the heater laws' intercepts (on 72 PUCs three times less is known of them). From one setting to the next only
some of the heaters change: writing few channels is faster than writing all, and the light of a recirculating mesh is
another already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.measure.logbook import HardwareTimes
from calibration.model.likelihood import SettingDrift, without_drift
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import Single, drift_slopes_ma
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from calibration.model.priors import PHASE_GROUPS, Prior, modulo_a_turn
from calibration.model.space import ParameterSpace
from lumion_hw.errors import ConfigError

Real = NDArray[np.float64]

OFF_SHARE = 0.7
"""Share of the heaters that are off; of 0.25, 0.5, 0.7, 0.85 and 0.95 the one that tells most per second."""
TRIES = 4
"""Steps to choose from: half the hardware time of a random walk of the same kind (docs/performance.md). More cost in
proportion and bring less: chosen from 32, settings reach 0.40 mrad where those chosen from 8 reach 0.45."""
_MEAN_HZ = 1e6
# Share of what a reading tells of a parameter alone below which a combination counts as not seen.
_ROUNDING = 1e-12
CHANGED = 18
"""Heaters changed from setting to setting: of 144, the number that tells most per second with the times below."""
DESIGN_GROUPS = (
    "passive_phase_rad",
    "rho2",
    "rho4",
    "rho6",
    "loss_db",
    "coupler_common_rad",
    "loops",
    "source_db",
    "second_db",
    "monitor_db",
)
"""What settings are chosen for: the parameters that matter most, without the many that hardly do."""


@dataclass(frozen=True, eq=False)
class IncrementalSettings:
    """Settings of which each changes some of the heaters of the one before.

    Attributes:
        most_ma: Shape ``(2E,)``; largest current of every heater, 0 for those that must stay off.
        sources: Ports lit in turn.
        monitors: Port of every monitor.
        settings_per_source: Settings per source before the light moves on.
        changed: Heaters changed from setting to setting.
        off_share: Share of the heaters that are off.
    """

    most_ma: Real
    sources: tuple[int, ...]
    monitors: tuple[int, ...]
    settings_per_source: int = 1
    changed: int = CHANGED
    off_share: float = OFF_SHARE

    def random(self, count: int, rng: np.random.Generator, first: int = 0) -> Observations:
        """Return so many settings, unread; ``first`` is the number of the first one where a walk goes on."""
        currents = np.empty((count, len(self.most_ma)))
        now = self._draw(rng, np.arange(len(self.most_ma)))
        for row in currents:
            row[:] = now
            now = self.step(now, rng)
        turn = (first + np.arange(count)) // self.settings_per_source % len(self.sources)
        return self.with_light(currents, np.array(self.sources)[turn])

    def step(self, now: Real, rng: np.random.Generator) -> Real:
        """Return the currents of the next setting."""
        # Eighteen of 144 channels cost a third of a full write and tell nearly as much: the light of a recirculating
        # mesh is another already.
        following = now.copy()
        chosen = rng.choice(len(now), min(self.changed, len(now)), replace=False)
        following[chosen] = self._draw(rng, chosen)
        return following

    def with_light(self, currents_ma: Real, source: NDArray[np.int64]) -> Observations:
        """Return settings with these currents, shape ``(N, 2E)``, and light from these ports, ``(N,)``, unread."""
        nothing = np.zeros((len(currents_ma), len(self.monitors)))
        return Observations(currents_ma, source, self.monitors, nothing, nothing > 0.0)

    def _draw(self, rng: np.random.Generator, heaters: NDArray[np.int64]) -> Real:
        """Return currents uniform in their square, or off."""
        # Uniform in I², which is uniform in phase: uniform in I would crowd the settings at small phases.
        on = rng.random(len(heaters)) >= self.off_share
        drawn: Real = np.where(on, np.sqrt(rng.random(len(heaters))) * self.most_ma[heaters], 0.0)
        return drawn


@dataclass(frozen=True, eq=False)
class Design:
    """Settings chosen, and what they promise.

    Attributes:
        plan: The settings, unread.
        seconds: Their hardware time.
        sigma_rad: Root mean square standard error of passive phases and loops, the larger of the two, after each.
        reached: Whether the wanted standard error is met.
        reason: Why the design ends where it does.
    """

    plan: Observations
    seconds: float
    sigma_rad: Real
    reached: bool
    reason: str


class Designer:
    """Chooses settings by expected information per second of hardware time.

    A greedy design: of some random steps always the one that takes most off the mean variance of passive phases and
    loops, per second (A-optimal). What tells most about all parameters alike (D-optimal) leaves a third more of the
    standard error of passive phases.

    Phases count at the mean frequency of the sources: where each source is a laser of its own, what all of them are off
    by is no phase of the mesh.

    Args:
        model: The model.
        parameters: The best guess of the mesh.
        noise: Noise of a reading.
        prior: What is known besides: before anything is measured, or after a fit.
        free: Groups of unknown parameters, or a mask; fewer are faster.
        times: What settings cost.
        wanted: Shape ``(size,)``; parameters to be found out, by default all passive phases and loops.
        drift: What may differ from setting to setting.
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
        mask = free if isinstance(free, np.ndarray) else model.space.mask(free)
        self._free = np.flatnonzero(mask)
        self._times = times or HardwareTimes()
        self._groups = [self._inside(name, wanted) for name in PHASE_GROUPS]
        self._wanted = np.concatenate(self._groups)
        # Several lasers show differences of their frequencies only. The mean is fixed, else every setting seemed to
        # tell of a phase that none can.
        known = at_mean_frequency(model.space, mask, prior.information(mask))
        # Single precision is enough to tell candidates apart, and half the memory to move.
        self._root = _root(known, model.space.mask(PHASE_GROUPS)[self._free]).astype(np.float32)

    def _inside(self, name: str, wanted: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Return where the wanted parameters of a group are among the free ones."""
        place = self._model.space.group(name)
        inside = (self._free >= place.start) & (self._free < place.stop)
        return np.flatnonzero(inside if wanted is None else inside & wanted[self._free])

    def sigma_rad(self) -> float:
        """Return the rms standard error of the passive phases and the loops wanted, the larger of the two."""
        # A row of R squared and summed is the variance of its parameter: no matrix is inverted along the way.
        sums = ((self._root[group] ** 2).sum(axis=1) for group in self._groups if len(group))
        return float(np.sqrt(max((float(variance.mean()) for variance in sums), default=0.0)))

    def add(self, observations: Observations) -> None:
        """Count settings as measured."""
        for rows in self._rows(observations):
            self._add_information(rows)

    def gain_rad2(self, candidates: Observations) -> Real:
        """Return what each of some settings would take off the sum of the wanted variances, shape ``(N,)``."""
        return self._gains(self._rows(candidates))

    def choose(
        self,
        walk: IncrementalSettings,
        seconds: float,
        wanted_rad: float,
        rng: np.random.Generator,
        tries: int = TRIES,
        most: int | None = None,
        progress: Callable[[int], None] = lambda chosen: None,
    ) -> Design:
        """Walk on until enough is known, always by the step that tells most per second.

        Every ``walk.settings_per_source`` settings the light may move to the source that gives most information per
        second, including the time of the move.

        Args:
            walk: The kind of settings.
            seconds: Hardware time there is.
            wanted_rad: Standard error at which to stop; see :meth:`sigma_rad`.
            rng: Random steps.
            tries: Steps to choose from.
            most: Most settings.
            progress: Told the number of settings chosen so far.

        Raises:
            ConfigError: There is nothing to choose from.
        """
        if tries < 1:
            raise ConfigError(f"a design cannot choose from {tries} settings", hint="Give at least 1.")
        now, lit, used = np.zeros(len(walk.most_ma)), -1, 0.0
        chosen: list[Real] = []
        sources: list[int] = []
        sigmas, source = [self.sigma_rad()], lit
        while sigmas[-1] > wanted_rad and (most is None or len(chosen) < most):
            # Where the light goes is asked once a stretch: moving it takes longer than a setting.
            if len(chosen) % walk.settings_per_source == 0:
                source = self._next_source(walk, now, lit, rng, tries)
            step, rows, cost = self._best_step(walk, now, source, rng, tries)
            cost += self._times.input_change_s if source != lit else 0.0
            if used + cost > seconds:
                break
            self._add_information(rows)
            now, lit, used = step, source, used + cost
            chosen.append(now)
            sources.append(source)
            sigmas.append(self.sigma_rad())
            progress(len(chosen))
        reached = sigmas[-1] <= wanted_rad
        told = f"{sigmas[-1]:.2g} rad after {len(chosen)} settings and {used:.3g} s"
        reason = told if reached else f"{told}: no time is left to reach {wanted_rad:.2g} rad"
        currents = np.stack(chosen) if chosen else np.zeros((0, len(now)))
        return Design(
            walk.with_light(currents, np.array(sources, np.int64)), used, np.array(sigmas[1:]), reached, reason
        )

    def _best_step(
        self, walk: IncrementalSettings, now: Real, source: int, rng: np.random.Generator, tries: int
    ) -> tuple[Real, Single, float]:
        """Return the step that tells most per second with the light at a source, its rows, and its time."""
        steps = np.stack([walk.step(now, rng) for _ in range(tries)])
        costs = self._times.setting_s((steps != now).sum(axis=1))
        rows = self._rows(walk.with_light(steps, np.full(tries, source)))
        # Information per second: a step that changes few channels may be worth less and still be the better one.
        best = int(np.argmax(self._gains(rows) / costs)) if tries > 1 else 0
        return steps[best], rows[best], float(costs[best])

    def _next_source(self, walk: IncrementalSettings, now: Real, lit: int, rng: np.random.Generator, tries: int) -> int:
        """Return the source that tells most per second over a stretch, moving the light there included."""
        # Nothing to compare: round robin.
        if tries == 1 or len(walk.sources) == 1:
            return walk.sources[(walk.sources.index(lit) + 1) % len(walk.sources) if lit in walk.sources else 0]
        steps = np.stack([walk.step(now, rng) for _ in range(tries)])
        seconds = walk.settings_per_source * float(self._times.setting_s((steps != now).sum(axis=1)).mean())
        values = []
        for source in walk.sources:
            gain = walk.settings_per_source * float(
                self.gain_rad2(walk.with_light(steps, np.full(tries, source))).mean()
            )
            values.append(gain / (seconds + (self._times.input_change_s if source != lit else 0.0)))
        return walk.sources[int(np.argmax(values))]

    def _rows(self, observations: Observations) -> list[Single]:
        """Return the derivatives of every setting's readings in sigmas, each ``(M, P)``."""
        rows: list[Single] = []
        for part in self._model.linearise(self._parameters, observations):
            sigma = self._noise.sigma_ma(part.reading_ma)
            drift = drift_slopes_ma(self._model, self._parameters, part, self._drift) / sigma[..., None]
            own = part.jacobian[..., self._free]
            own /= sigma[..., None].astype(own.dtype)
            rows += list(np.asarray(without_drift(own, drift), np.float32))
        return rows

    def _gains(self, rows: list[Single]) -> Real:
        """Return what every setting would take off the wanted variances."""
        root = self._root
        every = (np.concatenate(rows) @ root).reshape(len(rows), -1, root.shape[1])
        taken = (every @ root[self._wanted].T).astype(np.float64)
        felt = every.astype(np.float64)
        # Woodbury: the gain of a setting needs a matrix of its readings only, 28 by 28, and none of all parameters.
        lower = np.linalg.cholesky(np.eye(felt.shape[1]) + felt @ np.swapaxes(felt, 1, 2))
        gains: Real = (np.linalg.solve(lower, taken) ** 2).sum(axis=(1, 2))
        return gains

    def _add_information(self, rows: Single) -> None:
        """Count a setting as measured: R·(1 + FᵀF)^-1/2 with F = rows·R, by the few values that F·Fᵀ has."""
        felt = rows @ self._root
        # The root is updated and never made anew: a covariance that shrinks over many decades would lose its digits.
        squares, u = np.linalg.eigh(felt.astype(np.float64) @ felt.T)
        one = np.sqrt(1.0 + np.maximum(squares, 0.0))
        shrunk = ((u / (one * (1.0 + one))) @ u.T).astype(np.float32)  # (1 - 1/√(1+s²)) / s², which is 1/2 at 0
        self._root -= (self._root @ felt.T) @ (shrunk @ felt)


def at_mean_frequency(space: ParameterSpace, free: NDArray[np.bool_], information: Real) -> Real:
    """Return information, shape ``(P, P)``, about the free parameters with the mean frequency of the sources known.

    A mean frequency that is off turns all loops alike: of several lasers only differences can be found.
    """
    mean = np.where(space.mask(("source_detuning_hz",)), 1.0 / max(len(space.sources), 1), 0.0)[free]
    known: Real = information + np.outer(mean, mean) / _MEAN_HZ**2
    return known


def _root(information: Real, phases: NDArray[np.bool_]) -> Real:
    """Return R with R·Rᵀ the covariance: its root loses nothing where it shrinks by many orders of magnitude.

    Combinations of which nothing is known, phases no more than modulo a turn, are what the ports do not show: their
    variance is large and finite, and no setting takes anything off it.
    """
    # A phase that nothing shows is still known modulo a turn: infinite variance would outweigh all that can be found.
    whole = modulo_a_turn(information, phases)
    power = np.diag(whole)
    whole = whole + np.diag(np.where(power > 0.0, _ROUNDING * power, 1.0))
    scale = np.sqrt(np.diag(whole))
    return np.ascontiguousarray((np.linalg.inv(np.linalg.cholesky(whole / np.outer(scale, scale))) / scale).T)
