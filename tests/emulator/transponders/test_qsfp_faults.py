"""Faults of emulated QSFP modules, and the replacement of a module by another one."""

from __future__ import annotations

import pytest

from lumion_hw.emulator.transponders.qsfp import FAULTS, find_profile
from lumion_hw.errors import ConfigError, LimitError
from tests.emulator.transponders.qsfp_testbench import FULL_LIGHT_W, LANES, Host, dbm

ALL = [1, 2, 3, 4]


def test_a_swapped_module_starts_with_its_own_identity_memory_and_errors() -> None:
    host = Host()
    host.write(123, 0, 0, 0x10, 0x11)
    host.write(127, 2)
    host.write(128, 0x55)
    host.module.break_laser(1)
    before = host.word(50 + 2)
    host.module.swap("OTHER-1")
    assert host.light.sent == dict.fromkeys(LANES, 0.0)
    assert not host.acknowledges()
    host.sleep(2.0)
    assert host.read(196, 16) == b"OTHER-1         "
    assert host.page(2) == bytes(128)
    assert host.lit() == ALL
    assert host.word(50 + 2) != before
    page = host.page(0)
    assert page[95] == sum(page[64:95]) & 0xFF


def test_a_module_may_be_swapped_for_another_type() -> None:
    host = Host()
    host.module.swap("CABLE", find_profile("100g-cr4"))
    host.sleep(2.0)
    assert host.byte(192) == 0x0B
    assert host.lit() == []
    host.module.swap("LR4", find_profile("100g-lr4"))
    host.sleep(2.0)
    assert host.lit() == ALL


def test_a_serial_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="characters"):
        Host().module.swap("S" * 17)


def test_an_unplugged_module_is_absent_dark_and_silent() -> None:
    host = Host()
    assert host.module.plugged
    host.module.unplug()
    assert not host.module.plugged
    assert (host.lit(), host.acknowledges(), host.module.interrupt) == ([], False, False)
    host.module.plug()
    host.sleep(1.9)
    assert host.module.plugged
    assert host.lit() == ALL


def test_the_unplug_fault_is_the_same_and_ends_by_itself() -> None:
    host = Host()
    host.module.faults.inject("unplug", lasts_s=5.0)
    assert not host.module.plugged
    host.sleep(5.0)
    assert host.module.plugged
    assert not host.acknowledges()
    host.sleep(2.0)
    assert host.lit() == ALL


def test_los_and_lol_faults_act_on_the_receivers() -> None:
    host = Host()
    host.module.faults.inject("lol")
    host.sleep(0.1)
    host.sleep(0.2)
    assert (host.byte(3), host.byte(5)) == (0x00, 0x0F)
    host.module.faults.inject("los")
    host.sleep(0.1)
    host.sleep(0.2)
    assert host.byte(3) == 0x0F
    assert host.read(34, 8) == bytes(8)
    host.module.faults.clear("los")
    host.sleep(0.1)
    assert dbm(host.word(34)) == pytest.approx(dbm(FULL_LIGHT_W * 1e7), abs=3.0)


def test_a_failure_of_the_transmitter_darkens_and_flags_all_lanes() -> None:
    host = Host()
    host.module.faults.inject("tx_failure")
    assert host.lit() == []
    host.sleep(0.1)
    host.sleep(0.2)
    assert host.byte(4) == 0x0F
    host.module.faults.clear("tx_failure")
    assert host.lit() == ALL


def test_a_stuck_initialisation_ends_with_the_fault() -> None:
    host = Host(warm=False)
    host.module.faults.inject("stuck_init")
    host.sleep(60.0)
    assert host.byte(2) & 0x01
    assert host.lit() == []
    host.module.faults.clear("stuck_init")
    host.sleep(2.0)
    assert not host.byte(2) & 0x01
    assert host.lit() == ALL


def test_a_slow_initialisation_takes_longer_by_its_factor() -> None:
    host = Host()
    host.module.faults.inject("slow_init", 10.0)
    host.module.reset()
    host.sleep(2.9)
    assert not host.acknowledges()
    host.sleep(15.0)
    assert host.lit() == []
    host.sleep(0.2)
    assert host.lit() == ALL


def test_a_module_that_is_stuck_in_low_power_leaves_it_with_the_end_of_the_fault() -> None:
    host = Host()
    host.module.faults.inject("stuck_low_power")
    host.sleep(1.0)
    assert host.lit() == ALL, "it is not in low power yet"
    host.module.set_low_power_pin(True)
    host.sleep(1.0)
    host.module.set_low_power_pin(False)
    host.sleep(10.0)
    assert host.lit() == []
    host.module.faults.clear("stuck_low_power")
    host.sleep(0.3)
    assert host.lit() == ALL


def test_nack_counts_accesses() -> None:
    host = Host()
    host.module.faults.inject("nack", 3)
    assert [host.acknowledges() for _ in range(5)] == [False, False, False, True, True]
    assert host.module.faults.active == ()


def test_a_torn_read_has_the_second_byte_of_an_older_sample() -> None:
    host = Host()
    host.read(34, 2)
    old = host.word(34)
    host.light.received[1] = FULL_LIGHT_W / 8
    host.clock.sleep(0.1)
    host.module.faults.inject("torn_read")
    host.clock.sleep(0.1)
    host.light.received[1] = FULL_LIGHT_W
    host.clock.sleep(0.1)
    torn = host.word(34)
    host.module.faults.clear("torn_read")
    true = host.word(34)
    assert torn >> 8 == true >> 8
    assert torn & 0xFF != true & 0xFF
    assert old != torn


def test_bad_checksum_and_reserved_bits_are_seen_by_the_host() -> None:
    host = Host()
    host.module.faults.inject("bad_checksum")
    page = host.page(0)
    assert page[63] == sum(page[:63]) & 0xFF ^ 0xFF
    host.module.faults.inject("reserved_bits_set")
    assert host.byte(2) & 0xF8 == 0xF8
    host.write(86, 0x01)
    assert host.byte(86) == 0xF1
    host.sleep(0.1)
    assert host.lit() == [2, 3, 4]


def test_a_fault_may_begin_later_and_end_by_itself_even_across_a_reset() -> None:
    host = Host()
    host.module.faults.inject("tx_failure", after_s=5.0, lasts_s=2.0)
    host.module.reset()
    host.sleep(4.0)
    assert host.lit() == ALL
    host.sleep(1.5)
    assert host.lit() == []
    host.sleep(2.0)
    assert host.lit() == ALL


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_can_begin_and_end_and_leaves_a_working_module(name: str) -> None:
    host = Host()
    host.module.faults.inject(name)
    assert host.module.faults.active == (name,)
    host.sleep(1.0)
    host.module.faults.clear(name)
    host.module.reset()
    host.sleep(3.0)
    host.read_flags()
    host.read_flags()
    assert host.read_flags() == bytes(12)
    assert host.lit() == ALL


def test_wrong_faults_are_refused() -> None:
    faults = Host().module.faults
    with pytest.raises(ConfigError, match="no_such"):
        faults.inject("no_such")
    with pytest.raises(ConfigError, match="not a number"):
        faults.inject("temp_high", True)
    with pytest.raises(ConfigError, match="not a number"):
        faults.inject("temp_high", float("nan"))
    with pytest.raises(LimitError, match="out of range"):
        faults.inject("temp_high", 101.0)
    with pytest.raises(LimitError, match="out of range"):
        faults.inject("nack", 0)
