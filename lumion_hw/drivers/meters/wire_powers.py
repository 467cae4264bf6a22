"""Converts received numbers to readings; markers such as over-range and impossible powers never become ``OK``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lumion_hw.drivers.scpi import NOT_A_VALUE
from lumion_hw.interfaces import PowerReading, RangeState

_MAX_FRACTION = 2.1
"""Largest valid ratio of power to range: ranges overflow 3 dB above their nominal power (panels show 1.9999)."""
_NEGATIVE_FRACTION = 0.01
"""Powers below minus this fraction of the highest range are invalid: they exceed offset and noise of dark sensors."""


def range_states(values_w: NDArray[np.float64], largest_w: float) -> NDArray[np.object_]:
    """Return the range state of each number, in the shape of ``values_w``.

    Markers are the largest float32 or float64, 9.9E37, infinities and NaN. A power above the capability of the sensor,
    or far below zero, is invalid: either its unit is not watt, or the meter has a fault.

    Args:
        values_w: Numbers in watts.
        largest_w: Nominal power of the highest range of the sensor.
    """
    states = np.full(values_w.shape, RangeState.OK, dtype=np.object_)
    states[np.isnan(values_w) | (values_w < -_NEGATIVE_FRACTION * largest_w)] = RangeState.INVALID
    states[values_w > _MAX_FRACTION * largest_w] = RangeState.OVER
    states[values_w <= -NOT_A_VALUE] = RangeState.UNDER
    return states


def reading(channel: int, power_w: float, timestamp_s: float, largest_w: float) -> PowerReading:
    """Return the reading for a number in watts or a marker; ``largest_w`` as for :func:`range_states`."""
    state = range_states(np.array([power_w]), largest_w)[0]
    return PowerReading(channel, state, timestamp_s, power_w if state is RangeState.OK else None)
