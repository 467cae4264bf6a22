"""Converts received numbers to power readings; over-range marks and impossible powers become invalid readings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lumion_hw.drivers.scpi import NOT_A_VALUE
from lumion_hw.interfaces import PowerReading, RangeState

_MAX_FRACTION = 2.1
"""Largest valid ratio of power to the nominal power of the highest range."""
_NEGATIVE_FRACTION = 0.01
"""Powers below minus this fraction of the highest range are invalid."""


def range_states(values_w: NDArray[np.float64], largest_w: float) -> NDArray[np.object_]:
    """Return whether each number is a valid power, over-range or invalid, in the shape of ``values_w``.

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
    """Return a number in watts as a reading; ``largest_w`` as for :func:`range_states`."""
    state = range_states(np.array([power_w]), largest_w)[0]
    return PowerReading(channel, state, timestamp_s, power_w if state is RangeState.OK else None)
