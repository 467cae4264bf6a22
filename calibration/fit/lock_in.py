"""First passive phases from random settings alone, all PUCs at once.

With everything else at random the power at a monitor swings with the differential phase ψ of each PUC as
-D/2·cos(ψ + α) on average, D how mean light follows the PUC's bar share. So regressing the readings, weighted by a
PUC's D over all sources and monitors, on cos ψ and sin ψ finds its α: each PUC is a modulator with its own random code,
and every reading is used for all of them. The sign of D tells bar from cross.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.model.mean_light import MeanLight
from calibration.model.observations import Observations

Real = NDArray[np.float64]

_BRIGHTEST = 5.0
"""Readings count up to this many times the mean: speckle has a long tail."""
_ROUNDS = 20
_DIMMEST = 1e-9
_MOST_DARK = 0.99
_LEAST_SHARE = 1e-3


@dataclass(frozen=True, eq=False)
class Levels:
    """How much light comes in and how much of it monitors show, sources and monitors sharing a common factor.

    Attributes:
        source: Shape ``(S,)``; factor of every source.
        monitor: Shape ``(M,)``; factor of every monitor, their geometric mean 1.
        second: Shape ``(S,)``; power at the second port of every source over that at its first, 0 where there is none;
            ``None`` if no source has one.
    """

    source: Real
    monitor: Real
    second: Real | None = None


@dataclass(frozen=True, eq=False)
class PassiveGuess:
    """First passive phases.

    Attributes:
        passive_rad: Shape ``(E,)``.
        strength: Shape ``(E,)``; the correlation over its standard deviation without any; about 1 means nothing seen.
    """

    passive_rad: Real
    strength: Real


def mean_levels(observations: Observations, sources: tuple[int, ...], light: MeanLight) -> Levels:
    """Return the levels at which mean light explains the median reading of every source and monitor."""
    number = np.searchsorted(sources, observations.source)
    expected = light.power[np.ix_(observations.monitors, sources)].T
    # The median of a speckle is ln 2 of its mean.
    with np.errstate(invalid="ignore"):
        excess = np.log(np.maximum(observations.reading_ma, 0.0) / (np.log(2.0) * expected[number]) + _DIMMEST)
    source, monitor = np.zeros(len(sources)), np.zeros(len(observations.monitors))
    # A monitor that reads nothing in most settings shows its level in the brighter half of the others.
    dark = (np.nan_to_num(observations.reading_ma, nan=1.0) <= 0.0).mean(axis=0)
    faint = {index: 0.5 * (1.0 + min(dark[index], _MOST_DARK)) for index in np.flatnonzero(dark >= 0.5).tolist()}
    for _ in range(_ROUNDS):
        for index in range(len(sources)):
            source[index] = np.nanmedian(excess[number == index] - monitor)
        alone = excess - source[number][:, None]
        monitor = np.nanmedian(alone, axis=0)
        for index, share in faint.items():
            monitor[index] = np.nanquantile(alone[:, index], share) - np.log(-np.log(1.0 - share) / np.log(2.0))
        source, monitor = source + monitor.mean(), monitor - monitor.mean()
    return Levels(np.exp(source), np.exp(monitor))


def lock_in(
    observations: Observations, phase_rad: Real, sources: tuple[int, ...], light: MeanLight, levels: Levels
) -> PassiveGuess:
    """Return the passive phases that random settings show.

    Args:
        observations: Settings with all heaters at random.
        phase_rad: Shape ``(N, 2E)``; phases of the heaters at these settings.
        sources: Sources in ascending order.
        light: Mean light.
        levels: Levels of sources and monitors.
    """
    number = np.searchsorted(sources, observations.source)
    expected = light.power[np.ix_(observations.monitors, sources)].T[number]
    typical = expected * levels.source[number][:, None] * levels.monitor
    relative = np.minimum(observations.reading_ma / typical, _BRIGHTEST)
    relative = np.nan_to_num(relative - np.nanmean(relative, axis=0))
    swing = light.relative_swing(sources, observations.monitors)
    votes = np.empty((len(number), swing.shape[2]))
    for index in range(len(sources)):
        votes[number == index] = relative[number == index] @ swing[index]
    turned = np.exp(1j * (phase_rad[:, 0::2] - phase_rad[:, 1::2]))
    design = np.stack([np.ones(turned.shape), turned.real, turned.imag], axis=-1).transpose(1, 0, 2)
    normal = np.swapaxes(design, 1, 2) @ design + _LEAST_SHARE * len(number) * np.eye(3)
    swings = np.linalg.solve(normal, np.swapaxes(design, 1, 2) @ votes.T[..., None])[..., 0]
    total = -swings[:, 1] + 1j * swings[:, 2]
    spread = np.sqrt((votes**2).mean(axis=0) / len(number))
    strength = np.divide(np.abs(total), spread, out=np.zeros(len(total)), where=spread > 0.0)
    return PassiveGuess(np.angle(total), strength)
