"""Time: what may pass, and what would never end."""

import math

import pytest

from lumion_hw.clock import Clock, SystemClock, VirtualClock


@pytest.mark.parametrize("clock", [VirtualClock(), SystemClock()], ids=["virtual", "system"])
@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan, -1e-9])
def test_a_time_that_never_passes_is_refused_and_time_goes_on(clock: Clock, seconds: float) -> None:
    before = clock.now()
    with pytest.raises(ValueError, match="sleep duration must"):
        clock.sleep(seconds)
    for period_s in (seconds, 0.0):
        with pytest.raises(ValueError, match="positive and finite"):
            clock.call_every(period_s, lambda: None)
    clock.sleep(0.001)
    assert before < clock.now() < before + 60.0
