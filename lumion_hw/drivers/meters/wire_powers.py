"""From numbers on the wire to readings: marks for over-range and the like never pass as powers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lumion_hw.drivers.scpi import NOT_A_VALUE
from lumion_hw.interfaces import PowerReading, RangeState


def state_of(value: float) -> RangeState:
    """Return what a number is. Marks are the largest float32 or float64, 9.9E37, infinities and NaN."""
    if math.isnan(value):
        return RangeState.INVALID
    if value >= NOT_A_VALUE:
        return RangeState.OVER
    return RangeState.UNDER if value <= -NOT_A_VALUE else RangeState.OK


def reading(channel: int, power_w: float, timestamp_s: float) -> PowerReading:
    """Return the reading that a number in watts, or a mark, stands for."""
    state = state_of(power_w)
    return PowerReading(channel, state, timestamp_s, power_w if state is RangeState.OK else None)


def states_of(values: NDArray[np.float64]) -> NDArray[np.object_]:
    """Return what each of many numbers is, in the shape of ``values``."""
    states = np.full(values.shape, RangeState.OK, dtype=np.object_)
    states[np.isnan(values)] = RangeState.INVALID
    states[values >= NOT_A_VALUE] = RangeState.OVER
    states[values <= -NOT_A_VALUE] = RangeState.UNDER
    return states
