"""Monitors of emulated QSFP modules: accuracy, noise, refresh and coherence (SFF-8636 clauses 6.2.4 and 6.2.5)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lumion_hw.emulator.transponders.qsfp import PROFILES, find_profile
from tests.emulator.transponders.qsfp_testbench import FULL_LIGHT_W, Host, dbm

OPTICAL = [name for name in PROFILES if name != "100g-cr4"]
TRUE_RX_DBM = 10 * np.log10(FULL_LIGHT_W * 1e3)


@pytest.mark.parametrize("name", OPTICAL)
@pytest.mark.parametrize("seed", range(5))
def test_every_monitor_is_within_the_accuracy_of_the_standard(name: str, seed: int) -> None:
    host = Host(name, seed=seed)
    host.sleep(0.1)
    profile = host.profile
    temperature = int.from_bytes(host.read(22, 2), "big", signed=True)
    assert temperature / 256 == pytest.approx(profile.temperature_c, abs=3.0)
    assert host.word(26) * 100e-6 == pytest.approx(profile.supply_v, rel=0.03)
    for lane in range(4):
        assert dbm(host.word(34 + 2 * lane)) == pytest.approx(TRUE_RX_DBM, abs=3.0)
        assert host.word(42 + 2 * lane) * 2e-3 == pytest.approx(profile.bias_ma, rel=0.1)
        if profile.has("tx_power_monitor"):
            assert dbm(host.word(50 + 2 * lane)) == pytest.approx(profile.launch_dbm, abs=3.0)


def test_two_modules_have_different_errors_and_lanes_too() -> None:
    one, two = Host(seed=1), Host(seed=2)
    readings = [[host.word(50 + 2 * lane) for lane in range(4)] for host in (one, two)]
    assert len({*readings[0], *readings[1]}) == 8


def test_the_noise_of_the_power_monitors_is_0_05_db_rms() -> None:
    host = Host()
    readings = []
    for _ in range(400):
        host.sleep(0.06)
        readings.append(dbm(host.word(34)))
    assert np.std(readings) == pytest.approx(0.05, rel=0.15)


def test_monitors_change_at_their_period_and_not_with_every_read() -> None:
    host = Host()
    first = host.read(34, 24)
    host.clock.sleep(0.01)
    assert host.read(34, 24) == first
    host.clock.sleep(0.05)
    assert host.read(34, 24) != first


def test_a_monitor_does_not_change_between_its_two_bytes() -> None:
    host = Host()
    host.byte(22)
    host.sleep(0.1)
    now = host.clock.now()
    assert host.module.i2c_start(0x50, False, now)
    host.module.i2c_write(34)
    assert host.module.i2c_start(0x50, True, now)
    high = host.module.i2c_read()
    host.light.received[1] = 0.0
    host.sleep(1.0)  # the host stretches the clock
    low = host.module.i2c_read()
    host.module.i2c_stop(host.clock.now())
    assert dbm(high << 8 | low) == pytest.approx(TRUE_RX_DBM, abs=3.0)


def test_negative_temperatures_are_in_two_s_complement() -> None:
    host = Host(replace(find_profile("100g-lr4"), temperature_c=-10.0))
    raw = host.word(22)
    assert raw & 0x8000
    assert raw / 256 - 256 == pytest.approx(-10.0, abs=3.0)


def test_the_receive_monitor_saturates_at_both_ends() -> None:
    host = Host()
    host.light.received = {1: 20e-3, 2: 1e-9, 3: 0.0, 4: -1.0}
    host.sleep(0.1)
    assert [host.word(34 + 2 * lane) for lane in range(4)] == [0xFFFF, 0, 0, 0]


def test_a_dark_lane_has_neither_bias_nor_power() -> None:
    host = Host()
    host.write(86, 0x08)
    host.sleep(0.2)
    assert host.word(48) == host.word(56) == 0
    assert host.word(46) > 0


def test_light_that_brings_all_modules_up_to_date_is_read_once() -> None:
    host = Host()
    lanes = []

    def received_w(lane: int) -> float:
        lanes.append(lane)
        host.module.advance()  # as in the optical world, where a reading first makes every device advance
        return FULL_LIGHT_W

    host.light.received_w = received_w
    host.clock.sleep(0.1)
    assert dbm(host.word(34)) == pytest.approx(TRUE_RX_DBM, abs=3.0)
    assert lanes == [1, 2, 3, 4]
    host.sleep(0.1)
    assert lanes == [1, 2, 3, 4, 1, 2, 3, 4]
