"""Latched flags, masks and the interrupt of emulated QSFP modules (SFF-8636 clause 6.2.3)."""

from __future__ import annotations

import pytest

from lumion_hw.emulator.transponders.qsfp import QsfpModule
from tests.emulator.transponders.qsfp_testbench import FULL_LIGHT_W, LANES, Host


def quiet(profile: str = "100g-lr4") -> Host:
    """Return a host whose module has no flag set."""
    host = Host(profile)
    host.sleep(0.5)
    assert host.read_flags() == bytes(12)
    return host


def test_a_module_in_full_light_has_no_flags_and_no_interrupt() -> None:
    host = quiet()
    assert host.byte(2) == 0x02
    assert not host.module.interrupt


@pytest.mark.parametrize("lane", LANES)
def test_loss_of_light_sets_los_lol_and_low_power_of_its_lane(lane: int) -> None:
    host = quiet()
    host.light.received[lane] = 0.0
    host.sleep(0.05)
    host.sleep(0.2)
    bit = 1 << (lane - 1)
    assert host.byte(3) == bit
    assert host.byte(5) == bit
    # Two lanes per byte, the odd lane in the upper half; low alarm 4 and low warning 1.
    nibble = 0x50 if lane % 2 else 0x05
    assert host.byte(9 + (lane - 1) // 2) == nibble
    assert host.byte(10 - (lane - 1) // 2) == 0


def test_a_flag_stays_until_it_is_read_and_comes_back_while_its_cause_lasts() -> None:
    host = quiet()
    host.light.received[2] = 0.0
    host.sleep(0.2)
    assert [host.byte(3), host.byte(3)] == [0x02, 0x02]
    host.light.received[2] = FULL_LIGHT_W
    host.sleep(0.2)
    assert [host.byte(3), host.byte(3)] == [0x02, 0x00]


def test_a_short_loss_of_light_is_latched() -> None:
    host = quiet()
    host.light.received[4] = 0.0
    host.sleep(0.06)
    host.light.received[4] = FULL_LIGHT_W
    host.sleep(0.06)
    host.sleep(0.2)
    assert [host.byte(3), host.byte(3)] == [0x08, 0x00]


def test_reading_one_flag_byte_leaves_the_others() -> None:
    host = quiet()
    host.light.received[1] = 0.0
    host.sleep(0.2)
    host.light.received[1] = FULL_LIGHT_W
    host.sleep(0.2)
    assert host.byte(3) == 0x01
    assert host.byte(5) == 0x01
    assert host.read(3, 3) == bytes(3)


def test_a_sequential_read_over_the_flags_clears_them_all() -> None:
    host = quiet()
    host.light.received[1] = 0.0
    host.sleep(0.2)
    host.light.received[1] = FULL_LIGHT_W
    host.sleep(0.2)
    first = host.read(0, 128)
    assert (first[3], first[5], first[9]) == (0x01, 0x01, 0x50)
    assert host.read_flags() == bytes(12)


def test_the_los_flag_comes_within_100_ms_and_not_at_once() -> None:
    host = quiet()
    host.light.received[1] = 0.0
    seen = []
    for _ in range(10):
        host.sleep(0.01)
        seen.append(host.byte(3))
    assert seen[0] == 0
    assert seen[-1] == 1


def test_rx_los_has_hysteresis() -> None:
    host = quiet()
    seen = []
    for level_dbm in (-15.0, -16.5, -15.0, -14.0, -15.0):
        host.light.received[1] = 1e-3 * 10 ** (level_dbm / 10)
        host.sleep(0.2)
        host.byte(3)
        seen.append(host.byte(3) & 0x01)
    assert seen == [0, 1, 1, 0, 0]


def test_tx_los_and_tx_lol_report_the_host_lanes_without_a_signal() -> None:
    host = quiet()
    host.module.set_host_signal(0b0110)
    host.sleep(0.2)
    assert host.byte(3) == 0x90
    assert host.byte(5) == 0x90
    assert host.lit() == [1, 2, 3, 4], "the squelch of this module does not reduce the mean power"
    host.module.set_host_signal(0b1111)
    host.sleep(0.2)
    host.read_flags()
    assert host.read_flags() == bytes(12)


def test_a_lane_without_clock_recovery_never_loses_lock() -> None:
    host = quiet()
    host.write(98, 0b0111_1110)
    host.module.set_host_signal(0)
    host.light.received = dict.fromkeys(LANES, 0.0)
    host.sleep(0.2)
    assert host.byte(5) == 0b0111_1110
    old = quiet("40g-lr4")
    old.light.received = dict.fromkeys(LANES, 0.0)
    old.sleep(0.2)
    assert (old.byte(3), old.byte(5)) == (0x0F, 0x00)


def test_squelch_of_the_mean_power_darkens_lanes_without_a_host_signal() -> None:
    host = quiet("100g-cwdm4")
    host.module.set_host_signal(0b1110)
    host.sleep(0.4)
    assert host.lit() == [2, 3, 4]
    host.write(127, 3)
    host.write(240, 0x01)
    host.sleep(0.4)
    assert host.lit() == [1, 2, 3, 4]


def test_a_broken_laser_is_dark_and_flagged_until_it_is_repaired() -> None:
    host = quiet()
    host.module.break_laser(3)
    assert host.lit() == [1, 2, 4]
    host.sleep(0.2)
    assert host.byte(4) == 0x04
    assert host.word(54) == host.word(46) == 0
    host.write(86, 0x04)  # a laser that is switched off on purpose does not fail
    host.sleep(0.4)
    host.byte(4)
    assert host.byte(4) == 0x00
    host.write(86, 0x00)
    host.module.repair_laser(3)
    host.sleep(0.5)
    assert host.lit() == [1, 2, 3, 4]
    host.read_flags()
    assert host.read_flags() == bytes(12)


def test_a_disabled_lane_has_low_bias_and_low_power() -> None:
    host = quiet()
    host.write(86, 0x02)
    host.sleep(0.3)
    host.sleep(0.3)
    assert host.read_flags()[8:12] == bytes((0x05, 0x00, 0x05, 0x00))


def test_a_module_without_a_tx_power_monitor_has_no_flags_of_it() -> None:
    host = quiet("40g-lr4")
    host.write(86, 0x0F)
    host.sleep(0.3)
    host.sleep(0.3)
    assert host.read_flags()[8:12] == bytes((0x55, 0x55, 0x00, 0x00))
    assert host.read(50, 8) == bytes(8)


@pytest.mark.parametrize(
    ("fault", "strength", "byte", "flags"),
    [
        ("temp_high", 27.0, 6, 0x20),  # 72 degC: above the warning of 70
        ("temp_high", 40.0, 6, 0xA0),
        ("supply_low", 0.25, 7, 0x10),  # 3.05 V: below the warning of 3.135
        ("supply_low", 0.5, 7, 0x50),
    ],
)
def test_module_monitors_raise_warnings_and_alarms(fault: str, strength: float, byte: int, flags: int) -> None:
    host = quiet()
    host.module.faults.inject(fault, strength)
    host.sleep(0.06)
    host.sleep(0.2)
    assert host.byte(byte) == flags


def test_too_much_light_raises_the_high_alarm() -> None:
    host = quiet()
    host.light.received[3] = 6.0e-3
    host.sleep(0.1)
    host.sleep(0.2)
    assert host.read_flags()[6:8] == bytes((0x00, 0xA0))


def raise_los(module: QsfpModule, host: Host) -> None:
    host.light.received[1] = 0.0


def raise_fault(module: QsfpModule, host: Host) -> None:
    module.break_laser(1)


@pytest.mark.parametrize(
    ("cause", "masks"),
    [
        # Rx LOS, Rx LOL and the low power of lane 1
        (raise_los, ((None, 100, 0x01), (None, 102, 0x01), (3, 242, 0x50))),
        # Tx fault, and the low bias and power of lane 1
        (raise_fault, ((None, 101, 0x01), (3, 244, 0x50), (3, 246, 0x50))),
    ],
)
def test_the_interrupt_ends_when_every_set_flag_is_masked(cause, masks) -> None:
    host = quiet()
    cause(host.module, host)
    host.sleep(0.1)
    host.sleep(0.3)
    assert host.module.interrupt
    assert not host.byte(2) & 0x02
    for page, address, bits in masks:
        assert host.module.interrupt
        if page is not None:
            host.write(127, page)
        host.write(address, bits)
    assert not host.module.interrupt
    assert host.byte(2) & 0x02


def test_an_interrupt_ends_when_the_flags_are_read_after_their_cause() -> None:
    host = quiet()
    host.light.received[1] = 0.0
    host.sleep(0.3)
    host.light.received[1] = FULL_LIGHT_W
    host.sleep(0.3)
    assert host.module.interrupt
    host.read_flags()
    assert not host.module.interrupt


def test_masks_of_initialisation_and_monitors_of_the_module_work_too() -> None:
    host = Host(warm=False)
    host.sleep(0.5)
    host.write(103, 0xF1)
    host.write(104, 0xF0)
    host.sleep(1.8)
    host.byte(2)
    host.byte(3)
    assert not host.module.interrupt
    host.module.faults.inject("temp_high")
    host.module.faults.inject("supply_low")
    host.sleep(0.1)
    host.sleep(0.3)
    assert not host.module.interrupt
    assert host.byte(6) & 0xF1 == 0xA1
    assert host.byte(7) == 0x50


def test_low_power_mode_reports_light_but_no_failures_of_what_is_off() -> None:
    host = quiet()
    host.module.break_laser(1)
    host.module.set_low_power_pin(True)
    host.module.set_host_signal(0)
    host.light.received[2] = 0.0
    host.sleep(0.5)
    host.read_flags()
    flags = host.read_flags()
    assert flags[:3] == bytes((0x02, 0x00, 0x00))


def test_the_host_output_follows_squelch_and_output_disable() -> None:
    host = quiet()
    assert host.module.host_output == 0x0F
    host.light.received[1] = 0.0
    host.sleep(0.2)
    assert host.module.host_output == 0x0E
    host.write(127, 3)
    host.write(240, 0x10)
    assert host.module.host_output == 0x0F
    host.write(241, 0x80)
    assert host.module.host_output == 0x07
    host.module.set_low_power_pin(True)
    host.sleep(0.01)
    assert host.module.host_output == 0x00
