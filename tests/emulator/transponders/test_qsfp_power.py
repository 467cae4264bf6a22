"""Start-up, power modes, reset and Tx disable of emulated QSFP modules (SFF-8636 Table 6-11, SFF-8679 times)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lumion_hw.emulator.transponders.qsfp import PROFILES, find_profile
from tests.emulator.transponders.qsfp_testbench import LANES, Host, NotAcknowledgedError

ALL = [1, 2, 3, 4]
LR4_W = 1e-3 * 10 ** (1.0 / 10)  # +1.0 dBm


def with_class(power_class: int, **changes: object):
    return replace(find_profile("100g-lr4"), power_class=power_class, max_power_w=6.0, **changes)


@pytest.mark.parametrize("name", [name for name in PROFILES if name != "100g-cr4"])
def test_a_cold_module_is_fully_functional_within_2_s(name: str) -> None:
    host = Host(name, warm=False)
    with pytest.raises(NotAcknowledgedError):
        host.read(0)
    assert host.light.sent == dict.fromkeys(LANES, 0.0)
    host.sleep(0.4)
    assert host.byte(2) & 0x01, "no valid monitors yet"
    assert host.word(22) == host.word(26) == 0
    host.sleep(0.7)
    assert not host.byte(2) & 0x01
    assert host.word(26) > 30_000
    assert host.lit() == []
    host.sleep(0.9)
    assert host.lit() == ALL


def test_the_light_is_reported_once_from_the_constructor_and_then_at_changes() -> None:
    cold = Host(warm=False)
    assert cold.light.emitted == [(100.0, lane, 0.0) for lane in LANES]
    cold.sleep(2.0)
    assert cold.light.emitted[4:] == [(102.0, lane, pytest.approx(LR4_W)) for lane in LANES]
    cold.sleep(100.0)
    assert len(cold.light.emitted) == 8
    warm = Host()
    assert warm.light.emitted == [(100.0, lane, pytest.approx(LR4_W)) for lane in LANES]


def test_a_passive_cable_has_no_light_no_monitors_and_no_waiting_time_for_them() -> None:
    host = Host("100g-cr4", warm=False)
    host.sleep(0.2)
    assert host.byte(2) == 0x06, "flat memory, no interrupt, data ready"
    assert host.read(3, 83) == bytes(83)
    assert host.light.emitted == []


def test_the_next_event_leads_through_the_start_up() -> None:
    host = Host(warm=False)
    times = []
    while (due := host.module.next_event()) is not None and len(times) < 10:
        times.append(round(due - 100.0, 6))
        host.sleep(due - host.clock.now())
    assert times == [0.3, 1.0, 1.8]


def test_the_interrupt_reports_the_end_of_initialisation_until_the_host_has_read_it() -> None:
    host = Host(warm=False)
    host.sleep(1.5)
    assert not host.module.interrupt
    host.sleep(0.5)
    assert host.module.interrupt
    host.read(3, 3)
    assert host.module.interrupt, "the host has not read byte 2"
    assert host.byte(2) & 0x03 == 0x00
    assert host.byte(6) & 0x01, "initialisation complete"
    assert not host.module.interrupt
    assert host.byte(2) & 0x03 == 0x02
    assert not host.byte(6) & 0x01


def test_the_interrupt_after_a_reset_ends_when_byte_2_and_then_a_flag_byte_were_read() -> None:
    host = Host("40g-lr4", warm=False)  # no flag for the end of initialisation: the interrupt itself is its only sign
    host.sleep(1.5)
    assert host.byte(2) == 0x02, "the monitors are valid, initialisation goes on"
    host.sleep(0.5)
    assert host.module.interrupt
    assert host.read_flags() == bytes(12)
    assert host.module.interrupt
    assert host.byte(2) == 0x00
    assert host.module.interrupt
    host.byte(3)
    assert not host.module.interrupt
    assert host.byte(2) == 0x02


@pytest.mark.parametrize(
    ("pin", "control", "is_high"),
    [
        (False, 0b00, True),
        (True, 0b00, False),
        (False, 0b10, True),  # Power_set has no effect without Power_override
        (True, 0b10, False),
        (False, 0b01, True),
        (True, 0b01, True),
        (False, 0b11, False),
        (True, 0b11, False),
    ],
)
def test_power_mode_follows_the_truth_table(pin: bool, control: int, is_high: bool) -> None:
    host = Host()
    host.module.set_low_power_pin(pin)
    host.write(93, control)
    host.sleep(1.0)
    assert host.module.is_high_power is is_high
    assert host.lit() == (ALL if is_high else [])


def test_the_low_power_pin_acts_at_start_up_too() -> None:
    host = Host(warm=False)
    host.module.set_low_power_pin(True)
    host.sleep(5.0)
    assert host.lit() == []
    assert host.word(26) > 30_000, "the monitors work in low-power mode"
    host.module.set_low_power_pin(False)
    host.sleep(0.3)
    assert host.lit() == ALL


def test_changes_of_the_power_mode_take_their_time() -> None:
    host = Host()
    host.module.set_low_power_pin(True)
    host.sleep(100e-6)
    assert host.lit() == []
    host.module.set_low_power_pin(False)
    host.sleep(0.2)
    assert host.lit() == []
    host.sleep(0.1)
    assert host.lit() == ALL
    assert host.try_write(93, 0x03)
    host.sleep(0.05)
    assert host.lit() == ALL
    host.sleep(0.05)
    assert host.lit() == []


def test_a_module_of_class_1_ignores_low_power() -> None:
    host = Host(with_class(1))
    host.module.set_low_power_pin(True)
    host.write(93, 0x03)
    host.sleep(1.0)
    assert host.lit() == ALL


@pytest.mark.parametrize(("power_class", "bit"), [(5, 0x04), (6, 0x04), (7, 0x04), (8, 0x08)])
def test_high_classes_stay_dark_until_their_class_is_enabled(power_class: int, bit: int) -> None:
    host = Host(with_class(power_class))
    assert host.lit() == []
    host.write(93, bit ^ 0x0C)  # the enable bit of the other classes
    host.sleep(0.5)
    assert host.lit() == []
    host.write(93, bit)
    host.sleep(0.3)
    assert host.lit() == ALL
    host.module.set_low_power_pin(True)
    host.sleep(0.1)
    assert host.lit() == []
    host.write(93, bit | 0x01)
    host.sleep(0.3)
    assert host.lit() == ALL


def test_a_high_class_may_also_work_at_reduced_power_without_the_enable_bit() -> None:
    assert Host(with_class(6, waits_for_high_power=False)).lit() == ALL


def test_the_enable_bit_has_no_effect_in_a_module_of_class_4() -> None:
    host = Host()
    host.write(93, 0x04)
    host.sleep(1.0)
    assert host.byte(93) == 0x04
    assert host.lit() == ALL
    host.write(93, 0x07)
    host.sleep(1.0)
    assert host.lit() == []


def test_tx_disable_switches_single_lanes_within_its_times() -> None:
    host = Host()
    assert host.try_write(86, 0b0101)
    host.sleep(0.05)
    assert host.lit() == ALL
    host.sleep(0.05)
    assert host.lit() == [2, 4]
    assert host.try_write(86, 0b0100)
    host.sleep(0.3)
    assert host.lit() == [2, 4]
    host.sleep(0.1)
    assert host.lit() == [1, 2, 4]


def test_tx_disable_that_is_taken_back_in_time_has_no_effect() -> None:
    host = Host()
    host.try_write(86, 0x0F)
    host.sleep(0.01)
    host.try_write(86, 0x00)
    host.sleep(1.0)
    assert len(host.light.emitted) == 4


def test_lanes_can_be_disabled_before_they_ever_shine() -> None:
    host = Host(warm=False)
    host.sleep(0.5)
    host.write(86, 0x0F)
    host.sleep(5.0)
    assert host.lit() == []


def test_a_reset_pulse_clears_the_controls_and_starts_again() -> None:
    host = Host()
    host.write(86, 0x0F)
    host.write(100, 0xFF)
    host.write(127, 3)
    host.sleep(0.5)
    host.module.reset()
    assert not host.acknowledges()
    host.sleep(0.5)
    assert host.read(86) + host.read(100) + host.read(127) == bytes(3)
    assert host.byte(2) & 0x01
    host.sleep(1.5)
    assert host.lit() == ALL


def test_a_module_is_off_while_its_reset_pin_is_asserted() -> None:
    host = Host()
    host.module.set_reset_pin(True)
    assert host.lit() == []
    host.sleep(10.0)
    assert not host.acknowledges()
    host.module.set_reset_pin(False)
    host.sleep(2.0)
    assert host.lit() == ALL


def test_a_software_reset_is_a_reset_and_its_bit_reads_0() -> None:
    host = Host()
    host.write(86, 0x0F)
    assert host.try_write(93, 0x80)
    assert not host.acknowledges()
    host.sleep(0.4)
    assert host.byte(93) == host.byte(86) == 0
    host.sleep(1.6)
    assert host.lit() == ALL


def test_a_module_without_software_reset_ignores_its_bit() -> None:
    host = Host("40g-lr4")
    host.write(93, 0x80)
    assert host.lit() == ALL


def test_a_power_cut_is_dark_at_once_and_a_power_up_starts_again() -> None:
    host = Host()
    host.module.power_off()
    assert host.lit() == []
    assert not host.acknowledges()
    assert host.module.next_event() is None
    host.sleep(5.0)
    host.module.power_on()
    host.sleep(1.9)
    assert host.lit() == ALL
