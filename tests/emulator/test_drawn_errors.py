"""The errors that emulated lasers and power meters draw have the specified spread, neither half nor twice of it.

The spreads are written here by hand, and checked on the output of the device, not on its attributes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.lasers.itla.laser import ItlaPhysics
from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser
from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl
from lumion_hw.emulator.lasers.swept_laser import LaserProfile, SweptLaser
from lumion_hw.emulator.meters.photodiode_head import EmulatedHead
from lumion_hw.emulator.optics.light import Light
from lumion_hw.quantities import dbm_from_w

N = 1000
ROOM = 0.1
"""Four standard deviations of the spread for this number of draws are 9 %."""


def spread(values: list[float], expected: float, room: float = ROOM) -> None:
    assert np.std(values) == pytest.approx(expected, rel=room)
    assert np.mean(values) == pytest.approx(0.0, abs=4.0 * expected / np.sqrt(len(values)))


def swept(seed: int) -> Light:
    clock = VirtualClock()
    laser = SweptLaser(LaserProfile((1500.0, 1600.0)), clock, np.random.default_rng(seed), lambda times: None)
    laser.set_power(3.0)
    laser.switch(True)
    clock.sleep(20.0)
    return laser.light()


def santec(seed: int) -> Light:
    clock = VirtualClock()
    laser = EmulatedSantecTsl("laser", clock, np.random.default_rng(seed))
    host = laser.connect()
    host.receive(b"POW:STAT 1;:POW 3;:WAV 1550\r")
    clock.sleep(20.0)
    return laser.light()


def keysight(seed: int) -> Light:
    clock = VirtualClock()
    laser = EmulatedKeysightLaser("laser", clock, np.random.default_rng(seed))
    host = laser.connect()
    host.receive(b"LOCK 0,1234;:OUTP0 1;:SOUR0:POW 3DBM;:SOUR0:WAV 1550NM\n")
    clock.sleep(20.0)
    return laser.light()


# A whole instrument is made for each draw of the last two; what it draws with is the first.
@pytest.mark.parametrize(
    ("lit", "n", "room"), [(swept, N, ROOM), (santec, N // 4, 2 * ROOM), (keysight, N // 4, 2 * ROOM)]
)
def test_power_and_wavelength_of_a_swept_laser(lit: Callable[[int], Light], n: int, room: float) -> None:
    lights = [lit(seed) for seed in range(n)]
    spread([dbm_from_w(each.power_w) - 3.0 for each in lights], 0.15, room)
    spread([each.wavelength_nm - 1550.0 for each in lights], 0.003, room)


def test_power_and_frequency_of_an_itla() -> None:
    lights = []
    for seed in range(N):
        laser = ItlaPhysics(np.random.default_rng(seed), 0.0)
        laser.set_target(10.0, 0.0, emits=True, dark=False)
        lights.append(laser.light(193.4e6, 60.0))
    # 0.25 dB, limited to twice that.
    errors_db = [dbm_from_w(each.power_w) - 10.0 for each in lights]
    spread(errors_db, 0.24)
    assert max(map(abs, errors_db)) == pytest.approx(0.5, abs=1e-6)
    spread([299792.458e3 / each.wavelength_nm - 193.4e3 for each in lights], 0.3)


def test_gain_and_zero_of_a_power_meter() -> None:
    lit, dark = [], []
    for seed in range(N):
        light_w = [1e-3]
        head = EmulatedHead(
            lambda light_w=light_w: light_w[0], lambda: 1.55e-6, np.random.default_rng(seed), VirtualClock().now
        )
        lit.append(head.complete(head.expose()).power_w / 1e-3 - 1.0)
        light_w[0] = 0.0
        dark.append(head.complete(head.expose()).power_w)
    # 1 %, limited to 2.5 %; with 0.004 dB of the range.
    spread(lit, 0.0099)
    assert max(map(abs, lit)) == pytest.approx(0.025, abs=0.004)
    spread(dark, 2e-11)
