"""Monitors whose fibres are exchanged, from readings in random settings before any phase is known."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.phase_search import guess_passive_phases, mean_levels
from calibration.model.arrays import Real
from calibration.model.ideal_mesh import MeanLight
from calibration.model.observations import Observations

# Two ports of one PUC, exchanged, leave the strength of all phase estimates as it is; a wrong exchange lowers it.
_MIN_RELATIVE_STRENGTH = 0.999
# An exchange that raises the sum of squares by this factor is the only candidate (1.1 to 1.2 on 15 PUCs).
_CLEAR = 1.05
_MAX_CANDIDATES = 6


def exchange_monitors(observations: Observations, first: int, second: int) -> Observations:
    """Return the observations with the readings of two monitors (indices) exchanged."""
    order = np.arange(len(observations.monitors))
    order[[first, second]] = second, first
    reading_ma, saturated = observations.reading_ma[:, order], observations.saturated[:, order]
    return replace(observations, reading_ma=reading_ma, saturated=saturated)


def exchange_candidates(
    observations: Observations, phase_rad: Real, sources: tuple[int, ...], light: MeanLight, pucs: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Return pairs of monitors (indices) whose exchange may explain the readings, the most probable first.

    An exchange is the more probable the better the exchanged readings determine the passive phases.

    Args:
        observations: Readings in random settings.
        phase_rad: Shape ``(settings, heaters)``; phases due to the heaters.
        sources: Ports of the sources, in ascending order.
        light: Mean transmission of the mesh over random settings.
        pucs: Shape ``(pucs,)``; PUCs whose phase changes the light.
    """

    def strength(first: int, second: int) -> float:
        exchanged = exchange_monitors(observations, first, second)
        levels = mean_levels(exchanged, sources, light)
        guess = guess_passive_phases(exchanged, phase_rad, sources, light, levels)
        return float((guess.strength[pucs] ** 2).sum())

    before = strength(0, 0)
    strength_by_pair = {pair: strength(*pair) for pair in itertools.combinations(range(len(observations.monitors)), 2)}
    ordered = sorted(strength_by_pair, key=lambda pair: -strength_by_pair[pair])
    if ordered and strength_by_pair[ordered[0]] > _CLEAR * before:
        return ordered[:1]
    return [pair for pair in ordered if strength_by_pair[pair] > _MIN_RELATIVE_STRENGTH * before][:_MAX_CANDIDATES]
