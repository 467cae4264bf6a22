"""What broke while it was measured: heaters and monitors that work up to some setting and not from there on.

Readings are in the order of time. A fit over all of them is led astray where an element died, but not far: most
readings do not feel it. So for every heater and setting the cost of the readings is compared with the cost without the
heater. The sum of these gains from some setting to the end, at its largest, is what the assumption "dead from there
on" is worth. The first setting is one of them: a heater that has never worked, and was taken for alive by its sweeps.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.likelihood import Likelihood, weight
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import mean_squared_residual
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from calibration.model.priors import Prior
from calibration.model.space import LAW_TERMS

Real = NDArray[np.float64]

# Every so many settings are looked at first.
_COARSE = 6
_SHORTLIST = 4
_PHASES = 4
_LEAST_GAIN = 60.0
# Least share of the robust cost that has to be explained by one heater's death.
_LEAST_SHARE = 0.03
_LEAST_MA = 0.3
_JUDGING_DISCREPANCY = 0.1
_LAWS, _LAW_SHARE, _BENDING = 21, 0.9, 0.02
_DARK_SIGMA = 6.0
# Settings that a monitor has to be dark in a row, and three times as many as ever before.
_LEAST_DARK = 12
_DARKER = 3


@dataclass(frozen=True)
class Breakdown:
    """An element that does nothing from some setting on.

    Attributes:
        number: Heater (2·PUC + arm), or port of a monitor.
        first: Number of the first setting without it; 0 if it has never worked.
        turn_rad: Passive phase that its PUC has from then on, beyond that of before: of a heater stuck at a current.
        gain: By how much the robust cost falls.
    """

    number: int
    first: int
    turn_rad: float = 0.0
    gain: float = 0.0


def find_dead_monitors(observations: Observations, noise: NoiseModel) -> tuple[Breakdown, ...]:
    """Return the monitors that are dark from some setting to the last, as they never were before."""
    dark = ~(observations.reading_ma > _DARK_SIGMA * noise.floor_ma) & ~observations.saturated
    deaths = []
    for port, column in zip(observations.monitors, dark.T, strict=True):
        lit = np.flatnonzero(~column)
        if not len(lit):
            deaths.append(Breakdown(port, 0))
            continue
        # A monitor is dark now and then by interference. Dead is only what stays dark to the end, far longer than ever
        # before.
        runs = np.diff(np.concatenate([[-1], lit])) - 1
        last = len(column) - 1 - int(lit[-1])
        if last >= max(_LEAST_DARK, _DARKER * int(runs.max())):
            deaths.append(Breakdown(port, int(lit[-1]) + 1))
    return tuple(deaths)


def without_dead_monitors(observations: Observations, deaths: Collection[Breakdown]) -> Observations:
    """Return observations in which dead monitors say nothing."""
    reading = observations.reading_ma.copy()
    for death in deaths:
        reading[death.first :, observations.monitors.index(death.number)] = np.nan
    return replace(observations, reading_ma=reading)


def without_dead_heater(observations: Observations, death: Breakdown) -> Observations:
    """Return observations with no current in a heater from the setting on at which it died."""
    currents = observations.currents_ma.copy()
    currents[death.first :, death.number] = 0.0
    return replace(observations, currents_ma=currents)


def find_dead_heater(
    model: MeshModel, parameters: MeshParameters, likelihood: Likelihood, but: Collection[int] = ()
) -> Breakdown | None:
    """Return the heater whose death explains most of what a fit leaves unexplained; ``None`` if none does.

    Args:
        model: The model.
        parameters: Where the fit ended.
        likelihood: The readings, in the order they were taken.
        but: Heaters known to be dead.
    """
    judge = _SettingCosts(model, parameters, likelihood)
    # All heaters on every sixth setting, the best few on all: a sixth of the time, and a death is worth many settings.
    coarse = np.arange(0, len(likelihood.observations), _COARSE)
    live = [heater for heater in range(2 * model.mesh.n_pucs) if heater not in but]
    worth = {heater: judge.best(heater, coarse, turns=1)[0] for heater in live if parameters.heater_law[heater, 0]}
    shortlist = sorted(worth, key=lambda heater: -worth[heater])[:_SHORTLIST]
    every = np.arange(len(likelihood.observations))
    found = max(((*judge.best(heater, every, _PHASES), heater) for heater in shortlist), default=None)
    # With a wrong fit some heater always explains a little: a death has to explain a share of all that is open.
    if found is None or found[0] < max(_LEAST_GAIN, _LEAST_SHARE * float(judge.cost.sum())):
        return None
    gain, first, turn, heater = found
    return Breakdown(heater, first, turn, gain)


def cost_reduction(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood, other: Observations) -> float:
    """Return by how much the robust cost falls if settings and readings are taken to be others."""
    judge = _SettingCosts(model, parameters, likelihood)
    cost = judge.costs_of(replace(likelihood, observations=other), model.predict(parameters, other))
    return float(judge.cost.sum() - cost.sum())


class _SettingCosts:
    """What settings cost, as they are and without a heater."""

    def __init__(self, model: MeshModel, parameters: MeshParameters, likelihood: Likelihood) -> None:
        self._model, self._parameters, self._likelihood = model, parameters, likelihood
        reading = model.predict(parameters, likelihood.observations)
        # One yardstick for all hypotheses: the model discrepancy of the fit as it is, not of each of them.
        self._sigma_ma = likelihood.sigma_ma(likelihood.discrepancy(reading, np.zeros((*reading.shape, 2))))
        self.cost = self._costs(reading, np.arange(len(reading)))

    def costs_of(self, likelihood: Likelihood, reading_ma: Real) -> Real:
        """Return what every setting of other readings costs, by the same yardstick."""
        residual = np.where(likelihood.used, (likelihood.target_ma - reading_ma) / self._sigma_ma, 0.0)
        residual = np.where(likelihood.observations.saturated, np.maximum(residual, 0.0), residual)
        cost: Real = 0.5 * (weight(residual) * residual**2).sum(axis=1)
        return cost

    def settings_cost(self, parameters: MeshParameters, settings: NDArray[np.int64]) -> Real:
        """Return what some settings cost with other parameters."""
        return self._costs(self._model.predict(parameters, self._likelihood.observations[settings]), settings)

    def best(self, heater: int, settings: NDArray[np.int64], turns: int) -> tuple[float, int, float]:
        """Return how much is explained at best if a heater died, from which setting on, and with what turn."""
        best = (0.0, 0, 0.0)
        # Settings that leave the heater off cannot tell. With a turn of the passive phase (stuck at a current) all can.
        felt = settings[self._likelihood.observations.currents_ma[settings, heater] > _LEAST_MA]
        for turn in np.arange(turns) * 2.0 * np.pi / turns:
            if turn:
                felt = settings
            gain = np.zeros(len(settings))
            gain[np.isin(settings, felt)] = self.cost[felt] - self._without(heater, felt, float(turn))
            # Gain of "dead from here to the end" for every beginning at once.
            from_here = np.cumsum(gain[::-1])[::-1]
            first = int(np.argmax(from_here)) if len(from_here) else 0
            if len(from_here) and from_here[first] > best[0]:
                # Settings that did not feel it before the first that did are as well without it.
                before = settings[:first][np.isin(settings[:first], felt)]
                start = int(before[-1]) + 1 if len(before) else 0
                best = (float(from_here[first]), start, float(turn))
        return best

    def _without(self, heater: int, settings: NDArray[np.int64], turn_rad: float) -> Real:
        part = self._likelihood.observations[settings]
        currents = part.currents_ma.copy()
        currents[:, heater] = 0.0
        passive = self._parameters.passive_phase_rad.copy()
        passive[heater // 2] += turn_rad
        changed = replace(self._parameters, passive_phase_rad=passive)
        return self._costs(self._model.predict(changed, replace(part, currents_ma=currents)), settings)

    def _costs(self, reading_ma: Real, settings: NDArray[np.int64]) -> Real:
        off = (self._likelihood.target_ma[settings] - reading_ma) / self._sigma_ma[settings]
        residual = np.where(self._likelihood.used[settings], off, 0.0)
        bound = self._likelihood.observations.saturated[settings]
        residual = np.where(bound, np.maximum(residual, 0.0), residual)
        cost: Real = 0.5 * (weight(residual) * residual**2).sum(axis=1)
        return cost


def coarse_cost(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood) -> float:
    """Return what some of the settings cost at a point, by a model taken to be somewhat wrong."""
    few = likelihood[np.arange(0, len(likelihood.observations), _COARSE)]
    residual = few.residual(model.predict(parameters, few.observations), _JUDGING_DISCREPANCY)
    return float((weight(residual) * residual**2).sum())


def exchange(
    model: MeshModel, parameters: MeshParameters, likelihood: Likelihood, one: int, other: int, prior: Prior
) -> tuple[MeshParameters, float]:
    """Return the start of a fit with the channels of two heaters exchanged, where the readings fit best, and its cost.

    Args:
        model: The model.
        parameters: Where a fit without the two heaters ended, or where one is to begin.
        likelihood: The readings, the currents already exchanged.
        one: Heater.
        other: The one whose channel it has.
        prior: Laws the two had by their sweeps, each by its channel.
    """
    laws = parameters.heater_law.copy()
    for heater, by in ((one, other), (other, one)):
        laws[heater] = [prior.mean[model.space.group(name)][by] for name in LAW_TERMS]
    # With the wrong channel the fit gave both PUCs phases that mean nothing: all combinations on a grid of 45°.
    turns = np.arange(2 * _PHASES) * np.pi / _PHASES
    best, least = parameters, np.inf
    for first, second in itertools.product(turns, turns):
        passive = parameters.passive_phase_rad.copy()
        passive[one // 2] += first
        if other // 2 != one // 2:
            passive[other // 2] += second
        elif second:
            continue
        turned = replace(parameters, passive_phase_rad=passive, heater_law=laws)
        cost = coarse_cost(model, turned, likelihood)
        if cost < least:
            best, least = turned, cost
    return best, least


def find_better_law(
    model: MeshModel,
    parameters: MeshParameters,
    likelihood: Likelihood,
    rho2_range: tuple[float, float],
    but: Collection[int] = (),
) -> MeshParameters | None:
    """Return a point with another law for the heater whose readings fit worst, if that explains more.

    A sweep that hardly saw its heater may have found the law of another fringe.

    Args:
        model: The model.
        parameters: Where a fit ended.
        likelihood: The readings.
        rho2_range: Least and largest ρ2 to expect, rad/mA².
        but: Heaters known to be dead.
    """
    misfit = mean_squared_residual(model, parameters, likelihood)[model.space.group("rho2")].copy()
    misfit[list(but)] = 0.0
    judge = _SettingCosts(model, parameters, likelihood)
    settings = np.arange(0, len(likelihood.observations), _COARSE)
    # Another law has to take off a tenth at least: of 21 by 8 points one always fits a little better.
    least, best = _LAW_SHARE * float(judge.cost[settings].sum()), None
    for heater in np.argsort(-misfit)[:_SHORTLIST].tolist():
        for rho2, turn in itertools.product(np.linspace(*rho2_range, _LAWS), range(2 * _PHASES)):
            laws, passive = parameters.heater_law.copy(), parameters.passive_phase_rad.copy()
            laws[heater] = rho2 * np.array([1.0, _BENDING, _BENDING**2])
            passive[heater // 2] += turn * np.pi / _PHASES
            changed = replace(parameters, heater_law=laws, passive_phase_rad=passive)
            cost = float(judge.settings_cost(changed, settings).sum())
            if cost < least:
                least, best = cost, changed
    return best
