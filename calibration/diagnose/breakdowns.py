"""Detection of heaters and monitors that fail during a calibration run.

A heater is taken as dead from the setting on for which the readings then fit best; 0 means that it never worked.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from calibration.model.ideal_mesh import MeanLight
from calibration.model.likelihood import Likelihood, weight
from calibration.model.mesh_model import MeshModel
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.normal_equations import mean_squared_residual
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters

# Step between the settings of the first, coarse pass.
_COARSE = 6
_SHORTLIST = 4
_PHASES = 4
_MIN_GAIN = 60.0
# Minimum share of the robust cost that one dead heater must explain.
_MIN_SHARE = 0.03
_MIN_MA = 0.3
_JUDGING_DISCREPANCY = 0.1
_LAWS, _LAW_SHARE = 21, 0.9
_DARK_SIGMA = 6.0
# A dead monitor is dark for at least this many settings in a row, and three times longer than ever before.
_MIN_DARK = 12
_DARKER = 3
# Mean light of a source at a monitor, relative to that of its brightest source, below which darkness means nothing.
_FAINT = 0.03
_ALL = slice(None)


@dataclass(frozen=True)
class Breakdown:
    """Failure of one element at some setting of the run.

    Attributes:
        number: Heater number (2·PUC + arm), or port of the monitor.
        first: Number of the first setting in which the element did not work; 0 if it has never worked.
        turn_rad: For a heater stuck at a constant current: change of the passive phase of its PUC.
        gain: Decrease of the cost of the fit if this failure is assumed.
    """

    number: int
    first: int
    turn_rad: float = 0.0
    gain: float = 0.0


def find_dead_monitors(observations: Observations, noise: NoiseModel, light: MeanLight) -> tuple[Breakdown, ...]:
    """Return the monitors that went dark during the run and stayed dark until its end.

    ``light`` is the mean transmission of the mesh over random settings.
    """
    dark = ~(observations.reading_ma > _DARK_SIGMA * noise.floor_ma) & ~observations.saturated
    # A meter that is moved by hand has no reading while it is elsewhere.
    present = np.isfinite(observations.reading_ma) | observations.saturated
    # A source whose light seldom reaches a monitor leaves it dark for long: a path through eleven MZIs that all must
    # happen to be set right carries light in few settings.
    mean = light.power[np.array(observations.monitors)[:, None], observations.source].T
    expected = present & (mean >= _FAINT * mean.max(axis=0, initial=0.0))
    deaths = []
    for column, port in enumerate(observations.monitors):
        bright = np.flatnonzero(present[:, column] & ~dark[:, column])
        if not len(bright):
            deaths.append(Breakdown(port, 0))
        elif all(_stays_dark(dark[counted[:, column], column]) for counted in (present, expected)):
            deaths.append(Breakdown(port, int(bright[-1]) + 1))
    return tuple(deaths)


def _stays_dark(dark: NDArray[np.bool_]) -> bool:
    """Return whether a monitor stays dark to the end, for far longer than ever before.

    Destructive interference makes a monitor dark at times.
    """
    bright = np.flatnonzero(~dark)
    if not len(bright):
        return True
    runs = np.diff(np.concatenate([[-1], bright])) - 1
    last = len(dark) - 1 - int(bright[-1])
    return last >= max(_MIN_DARK, _DARKER * int(runs.max()))


def without_dead_monitors(observations: Observations, deaths: Collection[Breakdown]) -> Observations:
    """Return observations with the readings of dead monitors set to NaN."""
    reading = observations.reading_ma.copy()
    for death in deaths:
        reading[death.first :, observations.monitors.index(death.number)] = np.nan
    return replace(observations, reading_ma=reading)


def without_dead_heater(observations: Observations, death: Breakdown) -> Observations:
    """Return observations with the current of a dead heater set to zero from its failure on."""
    currents = observations.currents_ma.copy()
    currents[death.first :, death.number] = 0.0
    return replace(observations, currents_ma=currents)


def find_dead_heater(
    model: MeshModel, parameters: MeshParameters, likelihood: Likelihood, dead: Collection[int] = ()
) -> Breakdown | None:
    """Return the heater whose failure explains most of the misfit; ``None`` if there is none.

    The readings must be in time order. Heaters in ``dead`` are skipped.
    """
    setting_costs = _SettingCosts(model, parameters, likelihood)
    # First all heaters on every sixth setting, then the best few on all. A real failure shows in many settings.
    coarse = np.arange(0, len(likelihood.observations), _COARSE)
    live = [heater for heater in np.flatnonzero(parameters.heater_law[:, 0]).tolist() if heater not in dead]
    gain_by_heater = {heater: setting_costs.best(heater, coarse, turns=1)[0] for heater in live}
    shortlist = sorted(gain_by_heater, key=lambda heater: -gain_by_heater[heater])[:_SHORTLIST]
    every = np.arange(len(likelihood.observations))
    strongest = max(((*setting_costs.best(heater, every, _PHASES), heater) for heater in shortlist), default=None)
    # If the fit is wrong, some heater always explains a little. A real failure explains a share of the whole cost.
    if strongest is None or strongest[0] < max(_MIN_GAIN, _MIN_SHARE * float(setting_costs.cost.sum())):
        return None
    gain, first, turn, heater = strongest
    return Breakdown(heater, first, turn, gain)


def cost_reduction(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood, other: Observations) -> float:
    """Return the decrease of the cost of a fit if ``other`` observations replace the original ones."""
    setting_costs = _SettingCosts(model, parameters, likelihood)
    cost = setting_costs.costs(replace(likelihood, observations=other), model.predict(parameters, other))
    return float(setting_costs.cost.sum() - cost.sum())


class _SettingCosts:
    """Costs of all settings, for a fit and for hypotheses about a heater that failed during the run."""

    def __init__(self, model: MeshModel, parameters: MeshParameters, likelihood: Likelihood) -> None:
        self._model, self._parameters, self._likelihood = model, parameters, likelihood
        reading = model.predict(parameters, likelihood.observations)
        # All hypotheses are judged with the same sigma: that of the model discrepancy of the unchanged fit.
        self._sigma_ma = likelihood.sigma_ma(likelihood.discrepancy(reading, np.zeros((*reading.shape, 2))))
        self.cost = self.costs(likelihood, reading)

    def settings_cost(self, parameters: MeshParameters, settings: NDArray[np.int64]) -> Real:
        """Return the costs of some settings, predicted with other parameters."""
        reading_ma = self._model.predict(parameters, self._likelihood.observations[settings])
        return self.costs(self._likelihood, reading_ma, settings)

    def best(self, heater: int, settings: NDArray[np.int64], turns: int) -> tuple[float, int, float]:
        """Return the best hypothesis that a heater failed: decrease of the cost, first setting, and turn in rad.

        Args:
            heater: The heater.
            settings: Settings to consider, in the order of the run.
            turns: Number of turns of the passive phase to try, over 2π. With 1, the heater is only tried without
                current, otherwise also stuck at a current.
        """
        best = (0.0, 0, 0.0)
        # Settings with the heater off contain no information, unless the phase turned (heater stuck at a current).
        affected = settings[self._likelihood.observations.currents_ma[settings, heater] > _MIN_MA]
        for turn in np.arange(turns) * 2.0 * np.pi / turns:
            if turn:
                affected = settings
            gain = np.zeros(len(settings))
            gain[np.isin(settings, affected)] = self.cost[affected] - self._without(heater, affected, float(turn))
            # Gain of "dead from this setting to the end", for all settings at once.
            gain_to_end = np.cumsum(gain[::-1])[::-1]
            first = int(np.argmax(gain_to_end)) if len(gain_to_end) else 0
            if len(gain_to_end) and gain_to_end[first] > best[0]:
                # The failure may have come earlier, in the settings just before that left the heater off.
                before = settings[:first][np.isin(settings[:first], affected)]
                start = int(before[-1]) + 1 if len(before) else 0
                best = (float(gain_to_end[first]), start, float(turn))
        return best

    def _without(self, heater: int, settings: NDArray[np.int64], turn_rad: float) -> Real:
        part = without_dead_heater(self._likelihood.observations[settings], Breakdown(heater, 0))
        passive = self._parameters.passive_phase_rad.copy()
        passive[heater // 2] += turn_rad
        reading_ma = self._model.predict(replace(self._parameters, passive_phase_rad=passive), part)
        return self.costs(self._likelihood, reading_ma, settings)

    def costs(self, likelihood: Likelihood, reading_ma: Real, settings: NDArray[np.int64] | slice = _ALL) -> Real:
        """Return the costs of some settings, shape ``(settings,)``, for their predicted readings in mA."""
        deviation_sigma = (likelihood.target_ma[settings] - reading_ma) / self._sigma_ma[settings]
        residual = np.where(likelihood.used[settings], deviation_sigma, 0.0)
        residual = np.where(likelihood.observations.saturated[settings], np.maximum(residual, 0.0), residual)
        return np.asarray(0.5 * (weight(residual) * residual**2).sum(axis=1))


def coarse_cost(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood) -> float:
    """Return an approximate cost of a fit, from every sixth setting."""
    return robust_cost(model, parameters, likelihood[np.arange(0, len(likelihood.observations), _COARSE)])


def robust_cost(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood) -> float:
    """Return an approximate cost of a fit, which assumes a typical error of the predicted field."""
    residual = likelihood.residual(model.predict(parameters, likelihood.observations), _JUDGING_DISCREPANCY)
    return float((weight(residual) * residual**2).sum())


def find_better_law(
    model: MeshModel,
    parameters: MeshParameters,
    likelihood: Likelihood,
    heaters: NominalHeaters,
    dead: Collection[int] = (),
) -> MeshParameters | None:
    """Return parameters with a better law for the heater that fits worst; ``None`` if there is none.

    The law (phase against current) of a heater with a weak signal may be wrong by one fringe.
    """
    misfit = mean_squared_residual(model, parameters, likelihood)[model.space.group("rho2")].copy()
    misfit[list(dead)] = 0.0
    setting_costs, bending = _SettingCosts(model, parameters, likelihood), heaters.bending_per_ma2
    settings = np.arange(0, len(likelihood.observations), _COARSE)
    # A new law must lower the cost by a tenth: one of 21 x 8 points always fits a little better by chance.
    lowest_cost, best = _LAW_SHARE * float(setting_costs.cost[settings].sum()), None
    for heater in np.argsort(-misfit)[:_SHORTLIST].tolist():
        for rho2, turn in itertools.product(np.linspace(*heaters.rho2_range, _LAWS), range(2 * _PHASES)):
            laws, passive = parameters.heater_law.copy(), parameters.passive_phase_rad.copy()
            laws[heater] = rho2 * np.array([1.0, bending, bending**2])
            passive[heater // 2] += turn * np.pi / _PHASES
            changed = replace(parameters, heater_law=laws, passive_phase_rad=passive)
            cost = float(setting_costs.settings_cost(changed, settings).sum())
            if cost < lowest_cost:
                lowest_cost, best = cost, changed
    return best
