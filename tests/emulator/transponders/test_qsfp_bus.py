"""The two-wire interface of emulated QSFP modules (SFF-8636 clauses 5 and 6.1): addresses, pages, writes, password."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
from lumion_hw.emulator.transponders.qsfp import find_profile
from lumion_hw.links.memory import MemoryLink
from tests.emulator.transponders.qsfp_testbench import Host

PASSWORD = (0x00, 0x00, 0x10, 0x11)


def test_only_the_address_50h_is_acknowledged() -> None:
    host = Host()
    assert [address for address in range(0x80) if host.module.i2c_start(address, True, 100.0)] == [0x50]


def test_a_module_that_is_not_addressed_ignores_the_bus() -> None:
    host = Host()
    assert not host.module.i2c_start(0x51, True, 100.0)
    assert host.module.i2c_read() == 0xFF
    assert not host.module.i2c_write(0)


def test_reads_roll_over_within_each_half() -> None:
    host = Host()
    lower, upper = host.read(0, 128), host.read(128, 128)
    assert host.read(120, 16)[8:] == lower[:8]
    assert host.read(250, 12) == upper[-6:] + upper[:6]
    assert host.read(128, 256) == upper + upper


def test_a_host_that_reads_one_byte_at_a_time_sees_the_same_memory() -> None:
    host = Host()
    page = host.read(128, 128)
    assert bytes(host.byte(address) for address in range(128, 256)) == page


def test_a_read_of_the_current_address_continues_after_the_last_one() -> None:
    host = Host()
    upper = host.read(128, 128)
    host.read(148, 3)
    assert host.module.i2c_start(0x50, True, host.clock.now())
    assert bytes(host.module.i2c_read() for _ in range(2)) == upper[23:25]
    host.module.i2c_stop(host.clock.now())
    host.write(86, 0x01)
    assert host.module.i2c_start(0x50, True, host.clock.now())
    assert host.module.i2c_read() == host.byte(87)


def test_pages_are_selected_by_byte_127() -> None:
    host = Host()
    identity, user, thresholds = host.page(0), host.page(2), host.page(3)
    assert identity[0] == 0x11
    assert user == bytes(128)
    assert thresholds[:2].hex() == "4b00"
    assert host.byte(127) == 3
    assert host.page(0) == identity


@pytest.mark.parametrize("page", [1, 4, 0x20, 0xFF])
def test_a_missing_page_is_not_accepted_and_page_00h_is_read(page: int) -> None:
    host = Host()
    host.page(3)
    identity = host.page(page)
    assert host.byte(127) == 0
    assert identity[0] == 0x11
    host.write(128, 0xAA)  # a host that believes in the page cannot do harm
    assert host.byte(128) == 0x11


def test_flat_memory_ignores_page_select() -> None:
    host = Host("100g-cr4")
    assert host.byte(2) & 0x04
    identity = host.read(128, 128)
    for page in (1, 2, 3):
        assert host.page(page) == identity
        assert host.byte(127) == 0


def test_a_write_has_at_most_four_bytes() -> None:
    host = Host()
    host.write(123, *PASSWORD)
    host.write(127, 2)
    host.write(128, 1, 2, 3, 4)
    assert not host.try_write(132, 5, 6, 7, 8, 9)
    host.sleep(0.1)
    assert host.read(128, 8) == bytes((1, 2, 3, 4, 0, 0, 0, 0)), "the whole long write is lost"


def test_a_write_rolls_over_within_its_half() -> None:
    host = Host()
    host.write(123, *PASSWORD)
    host.write(127, 2)
    host.write(254, 1, 2, 3, 4)
    assert host.read(254, 4) == bytes((1, 2, 3, 4))
    assert host.read(128, 2) == bytes((3, 4))


def test_a_repeated_start_after_data_discards_the_write() -> None:
    host = Host()
    now = host.clock.now()
    assert host.module.i2c_start(0x50, False, now)
    assert all(host.module.i2c_write(value) for value in (86, 0x0F))
    assert host.module.i2c_start(0x50, True, now)
    host.module.i2c_stop(now)
    assert host.byte(86) == 0


def test_identity_monitors_and_thresholds_are_read_only() -> None:
    host = Host()
    before, thresholds = host.read(128, 128), host.page(3)[:112]
    for address in (0, 1, 2, 22, 26, 34, 107):
        value = host.byte(address)
        host.write(address, value ^ 0xFF)
        if address not in (22, 26, 34):
            assert host.byte(address) == value
        else:
            assert abs(host.byte(address) - value) < 10
    host.write(127, 0)
    for address in (128, 148, 168, 191, 196, 223, 255):
        host.write(address, 0xA5)
    assert host.read(128, 128) == before
    host.write(127, 3)
    host.write(128, 0, 0, 0, 0)
    assert host.page(3)[:112] == thresholds


def test_only_implemented_control_bits_can_be_written() -> None:
    host = Host()
    for address, kept in ((86, 0x0F), (87, 0x00), (88, 0x00), (98, 0xFF), (99, 0x00), (100, 0xFF), (101, 0x0F)):
        host.write(address, 0xFF)
        assert host.byte(address) == kept, address
        host.write(address, 0x00)
    host.write(93, 0x7F)
    assert host.byte(93) == 0x0F
    host.write(127, 3)
    for address, kept in ((240, 0xFF), (241, 0xF0), (242, 0xFF), (247, 0xFF), (248, 0x00)):
        host.write(address, 0xFF)
        assert host.byte(address) == kept, address


def test_a_module_with_rate_select_keeps_two_bits_for_each_lane_and_direction() -> None:
    profile = find_profile("100g-lr4")
    host = Host(replace(profile, options=profile.options | {"rate_select", "extended_rate_select"}))
    assert (host.byte(141), host.byte(195) & 0x20, host.byte(221) & 0x08) == (0x02, 0x20, 0x08)
    host.write(87, 0b10_01_00_11, 0b11_00_01_10)
    assert host.read(87, 2) == bytes((0b10_01_00_11, 0b11_00_01_10))
    host.module.reset()
    host.sleep(1.0)
    assert host.read(87, 2) == bytes(2)


def test_an_old_module_has_no_enable_bits_for_high_power_and_no_control_of_clock_recovery() -> None:
    host = Host("40g-lr4")
    host.write(93, 0x8F)
    assert host.byte(93) == 0x03
    host.write(98, 0xFF)
    assert host.byte(98) == 0x00
    host.write(127, 3)
    host.write(244, 0xFF, 0xFF, 0xFF, 0xFF)
    assert host.read(244, 4) == bytes((0xFF, 0xFF, 0x00, 0x00)), "masks of biases, none of launched powers"


def test_clock_recovery_is_on_by_default() -> None:
    assert Host("100g-lr4").byte(98) == 0xFF


def test_the_user_eeprom_needs_the_password_and_survives_a_power_cycle() -> None:
    host = Host()
    host.write(127, 2)
    host.write(128, 0x55)
    assert host.byte(128) == 0
    host.write(123, *PASSWORD)
    assert host.read(119, 8) == bytes(8), "password bytes read as 0"
    host.write(128, 0x55)
    assert host.byte(128) == 0x55
    host.module.power_off()
    host.module.power_on()
    host.sleep(3.0)
    assert host.page(2)[0] == 0x55
    host.write(128, 0x66)
    assert host.byte(128) == 0x55, "the password is forgotten with the supply"


def test_a_wrong_password_locks_again() -> None:
    host = Host()
    host.write(123, *PASSWORD)
    host.write(123, 1, 2, 3, 4)
    host.write(127, 2)
    host.write(128, 0x55)
    assert host.byte(128) == 0


def test_the_password_can_be_changed_by_a_host_that_knows_it() -> None:
    host = Host()
    host.write(119, 0x12, 0x34, 0x56, 0x78)  # locked: no effect
    host.write(123, *PASSWORD)
    host.write(119, 0x12, 0x34, 0x56, 0x78)
    host.module.reset()
    host.sleep(3.0)
    host.write(127, 2)
    host.write(123, *PASSWORD)
    host.write(128, 1)
    assert host.byte(128) == 0
    host.write(123, 0x12, 0x34, 0x56, 0x78)
    host.write(128, 1)
    assert host.byte(128) == 1


def test_a_host_password_begins_below_80h() -> None:
    host = Host()
    host.write(123, *PASSWORD)
    host.write(119, 0x80, 0x00, 0x00, 0x01)
    host.module.reset()
    host.sleep(3.0)
    host.write(123, *PASSWORD)
    host.write(127, 2)
    host.write(128, 1)
    assert host.byte(128) == 1


def test_a_module_that_stores_a_write_does_not_acknowledge() -> None:
    host = Host()
    host.write(123, *PASSWORD)
    host.write(127, 2)
    assert host.try_write(128, 1)
    host.sleep(0.039)
    assert not host.acknowledges()
    host.sleep(0.002)
    assert host.acknowledges()
    assert host.try_write(86, 0x01)
    assert not host.acknowledges()
    host.sleep(0.002)
    assert host.acknowledges()


def test_page_select_takes_no_time() -> None:
    host = Host()
    assert host.try_write(127, 3)
    assert host.read(128, 2).hex() == "4b00"


def test_a_module_that_is_not_selected_does_not_acknowledge() -> None:
    host = Host()
    host.module.set_module_select(False)
    assert not host.acknowledges()
    host.module.set_module_select(True)
    assert host.acknowledges()


def test_the_bridge_reads_and_writes_a_module_on_its_bus() -> None:
    """The messages of the SC18IM700 data sheet: S address length data ... P."""
    host = Host()
    bridge = I2cBridge("bridge", host.clock, [host.module])
    link = MemoryLink(bridge.connect, host.clock, "memory://bridge")
    link.open(0.0)

    def send(message: bytes, count: int) -> bytes:
        link.write(message, host.clock.now())
        deadline, answer = host.clock.now() + 1.0, b""
        while len(answer) < count and host.clock.now() < deadline:
            answer += link.read(deadline)
        return answer

    assert send(b"S\xa0\x01\x94S\xa1\x0aP", 10) == b"LUMION EMU"
    send(b"S\xa0\x02\x56\x03P", 0)
    assert send(b"R\x0aP", 1) == b"\xf0"
    host.sleep(0.5)
    assert host.lit() == [3, 4]
