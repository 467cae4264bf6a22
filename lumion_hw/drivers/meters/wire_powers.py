"""From numbers on the wire to readings: marks such as over-range, and impossible powers, are never OK."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lumion_hw.drivers.scpi import NOT_A_VALUE
from lumion_hw.interfaces import PowerReading, RangeState

_LARGEST_SHARE = 2.1
"""Ranges overflow 3 dB above their nominal power (1.9999 on the panels of Keysight), not before."""
_NEGATIVE_SHARE = 0.01
"""Offset and noise of a dark sensor in its highest range stay far below this share of the range."""


def states_of(values_w: NDArray[np.float64], largest_w: float) -> NDArray[np.object_]:
    """Return what each of many numbers is, in the shape of ``values_w``.

    Marks are the largest float32 or float64, 9.9E37, infinities and NaN. A power beyond what the sensor can measure, or
    as far below zero as no dark sensor reads, comes from another unit or a fault: it is no power.

    Args:
        values_w: Numbers in watts.
        largest_w: Nominal power of the highest range of the sensor.
    """
    states = np.full(values_w.shape, RangeState.OK, dtype=np.object_)
    states[np.isnan(values_w) | (values_w < -_NEGATIVE_SHARE * largest_w)] = RangeState.INVALID
    states[values_w > _LARGEST_SHARE * largest_w] = RangeState.OVER
    states[values_w <= -NOT_A_VALUE] = RangeState.UNDER
    return states


def reading(channel: int, power_w: float, timestamp_s: float, largest_w: float) -> PowerReading:
    """Return the reading that a number in watts, or a mark, stands for; ``largest_w`` as for :func:`states_of`."""
    state = states_of(np.array([power_w]), largest_w)[0]
    return PowerReading(channel, state, timestamp_s, power_w if state is RangeState.OK else None)
