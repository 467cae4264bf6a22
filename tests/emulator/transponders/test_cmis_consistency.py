"""All places where the emulated module shows a quantity agree, in every module state.

The monitors of the module (00h) work in all states. Those of lanes and of the link need power, and a missing optical
power is at the floor of -40 dBm on pages 11h, 24h and 35h alike.
"""

from __future__ import annotations

import dataclasses

import pytest

from tests.emulator.transponders.cmis_testbench import GOOD_LIGHT, Host, lit
from tests.emulator.transponders.test_cmis_performance import freeze, vdm

FLOOR_DBM = -40.0
LOW_PWR, PWR_UP, READY, PWR_DN, FAULT = 1, 2, 3, 4, 5


def check(host: Host, state: int) -> None:
    """Compare all pages with each other."""
    assert host.raw("module_state") == state
    samples = vdm(host)
    laser_c = int.from_bytes(host.read(None, 20, 2), "big", signed=True) / 256
    tec_percent = int.from_bytes(host.read(None, 18, 2), "big", signed=True) * 100 / 32767
    assert samples["laser_temperature", 1] == pytest.approx(laser_c, abs=0.1)
    assert 20.0 < laser_c < 90.0  # the thermometer works without laser power
    assert samples["tec_current", 1] == pytest.approx(tec_percent, abs=0.1)
    for sample, lane_monitor in (("tx_power", "tx_power"), ("rx_total_power", "rx_power")):
        milliwatts = float(host.get(lane_monitor, 1))
        if milliwatts == 0.0:
            assert samples[sample, 1] == FLOOR_DBM
        else:
            assert 10 ** (samples[sample, 1] / 10) == pytest.approx(milliwatts, rel=0.02)
    if state != READY:
        assert samples["rx_signal_power", 1] == FLOOR_DBM
        assert host.raw("tx_bias", 1) == 0
        for name in ("tx_power", "rx_total_power", "rx_signal_power"):
            assert [host.get(f"pm_{name}_{word}") for word in ("avg", "min", "max")] == [FLOOR_DBM] * 3
        for name in ("osnr", "esnr", "pdl", "cfo", "ber_current_media", "ber_current_host", "modulator_bias_xi"):
            assert samples[name, 1] == 0.0
        assert not any(host.read(0x34, 128, 60))


def test_low_power_shows_one_floor_on_all_pages() -> None:
    host = Host()
    host.wait(0.6)
    check(host, LOW_PWR)


def test_pages_agree_through_a_whole_life() -> None:
    host = lit()
    host.wait(3.0)
    check(host, READY)
    host.write(None, 26, 0x10)  # LowPwrRequestSW
    host.wait(1.0)
    check(host, PWR_DN)
    host.wait(5.0)
    check(host, LOW_PWR)
    host.write(None, 26, 0x00)
    host.wait(1.0)
    check(host, PWR_UP)
    host.until(lambda: host.raw("module_state") == READY, 100.0, 0.5)
    host.wait(1.0)
    check(host, READY)
    host.module.faults.inject("tec_runaway")
    host.wait(1.0)
    check(host, FAULT)


def test_what_is_frozen_outlives_a_power_down() -> None:
    host = lit()
    host.wait(3.0)
    freeze(host)
    before = host.read(0x34, 128, 60)
    assert any(before)
    host.write(None, 26, 0x10)
    host.wait(6.0)
    assert host.raw("module_state") == LOW_PWR
    assert host.read(0x34, 128, 60) == before


def test_a_new_interval_begins_when_the_module_is_ready_again() -> None:
    """Light of -8 dBm before the power-down and of -12 dBm after it: the average must not mix the two."""
    host = lit(light=GOOD_LIGHT)
    host.write(None, 26, 0x10)
    host.wait(6.0)
    host.light = dataclasses.replace(GOOD_LIGHT, total_power_dbm=-12.0, signal_power_dbm=-12.0)
    host.write(None, 26, 0x00)
    host.until(lambda: host.states()[0] == 4, 100.0, 0.5)
    host.wait(3.0)
    assert float(host.get("pm_rx_total_power_max")) == pytest.approx(-12.0, abs=0.6)


def test_page_14h_shows_what_a_pattern_checker_counts_and_nothing_without_one() -> None:
    """14h:208 does not show the errors of the traffic: those are on 24h and 34h (CMIS 8.12, 8.13: BERT results)."""
    host = lit()
    host.write(0x14, 128, 0x01)
    host.wait(1.0)
    assert vdm(host)["ber_current_media", 1] > 1e-4
    assert host.get("media_ber", 1) == 0.0
    pattern = 0x1  # PRBS31
    host.light = dataclasses.replace(GOOD_LIGHT, test_pattern=pattern)
    host.put("media_checker_pattern", pattern, 1)
    host.put_lanes("media_checker_enable", 0x01)
    host.wait(1.0)
    assert host.get("media_ber", 1) == pytest.approx(vdm(host)["ber_current_media", 1], rel=0.05)
