"""Typical steps of host software: block reads at linear offsets, masks, break-out, removal and insertion.

Written from the order of steps in the documentation of switch operating systems, not from their code.
"""

from __future__ import annotations

import struct

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.transponders.cmis import CmisModule, Fibre, LinearView, ReceivedLight, join
from lumion_hw.standards.cmis.codec import DURATION_BOUNDS_S
from tests.emulator.transponders.cmis_testbench import GOOD_LIGHT


def at(page: int, byte: int) -> int:
    """Return the linear offset of an upper byte."""
    return page * 128 + byte


class SwitchHost:
    """A switch's view of one cage: an eeprom file and a poll loop."""

    def __init__(self, module: CmisModule, clock: VirtualClock) -> None:
        self.file, self.clock = LinearView(module), clock

    def byte(self, offset: int) -> int:
        return self.file.read(offset, 1)[0]

    def poll(self, condition, limit_s: float) -> float:
        waited = 0.0
        while not condition():
            assert waited < limit_s, "deadline"
            self.clock.sleep(0.1)
            waited += 0.1
        return waited

    def nibbles(self, offset: int) -> list[int]:
        return [value >> shift & 0xF for value in self.file.read(offset, 4) for shift in (0, 4)]

    def bound(self, offset: int, shift: int) -> float:
        return DURATION_BOUNDS_S[self.byte(offset) >> shift & 0xF]

    def bring_up(self, app_sel: int, lanes: range, media_mask: int, frequency: tuple[int, int] | None = None) -> None:
        mask = sum(1 << (lane - 1) for lane in lanes)
        control = self.byte(26)
        self.file.write(26, bytes([control & ~0x50]))
        self.poll(lambda: self.byte(3) >> 1 & 7 == 3, self.bound(at(0x01, 167), 0))
        self.file.write(at(0x10, 130), bytes([self.byte(at(0x10, 130)) | media_mask]))
        self.file.write(at(0x10, 128), bytes([self.byte(at(0x10, 128)) | mask]))
        self.poll(lambda: all(self.nibbles(at(0x11, 128))[lane - 1] == 1 for lane in lanes), 5.0)
        if frequency is not None:
            grid, channel = frequency
            self.file.write(at(0x12, 128), bytes([grid << 4]))
            self.file.write(at(0x12, 136), struct.pack(">h", channel))
            self.poll(lambda: not self.byte(at(0x12, 222)), 180.0)
        for lane in lanes:
            self.file.write(at(0x10, 144 + lane), bytes([app_sel << 4 | (lanes[0] - 1) << 1]))
        self.file.write(at(0x10, 143), bytes([mask]))
        self.poll(lambda: all(self.nibbles(at(0x11, 202))[lane - 1] == 1 for lane in lanes), 10.0)
        assert self.byte(at(0x11, 235)) & mask == mask
        self.file.write(at(0x10, 128), bytes([self.byte(at(0x10, 128)) & ~mask]))
        self.poll(
            lambda: all(self.nibbles(at(0x11, 128))[lane - 1] == 7 for lane in lanes), self.bound(at(0x01, 144), 0)
        )
        self.file.write(at(0x10, 130), bytes([self.byte(at(0x10, 130)) & ~media_mask]))
        self.poll(lambda: all(self.nibbles(at(0x11, 128))[lane - 1] == 4 for lane in lanes), 1.5)


def test_a_switch_brings_up_a_pair_of_400zr_on_another_channel() -> None:
    clock = VirtualClock()
    modules = [CmisModule.from_profile("400zr", clock=clock, seed=seed) for seed in (1, 2)]
    join(*modules, Fibre(loss_db=7.0))
    clock.sleep(1.0)
    hosts = [SwitchHost(module, clock) for module in modules]
    for host in hosts:
        host.bring_up(1, range(1, 9), 0xFF, (7, 18))
    clock.sleep(1.5)
    for host in hosts:
        assert struct.unpack(">I", host.file.read(at(0x12, 168), 4))[0] == 193_550_000
        assert host.byte(at(0x11, 132)) == 0xFF


def test_a_switch_breaks_a_dr4_out_one_path_after_the_other() -> None:
    clock = VirtualClock()
    module = CmisModule.from_profile("400g-dr4", clock=clock, optics=lambda lane, at_s: ReceivedLight(0.0, 0.0))
    clock.sleep(1.0)
    host = SwitchHost(module, clock)
    host.file.write(26, b"\x00")
    host.file.write(at(0x10, 128), b"\xff")
    clock.sleep(10.0)
    for lane in range(1, 9):
        host.file.write(at(0x10, 144 + lane), b"\x00")
    host.file.write(at(0x10, 143), b"\xff")
    clock.sleep(0.1)
    for path in range(4):
        first = 1 + 2 * path
        host.bring_up(2, range(first, first + 2), 1 << path)
    clock.sleep(1.0)
    assert host.nibbles(at(0x11, 128)) == [4] * 8
    assert host.byte(at(0x11, 132)) == 0xFF
    assert [value & 0x0E for value in host.file.read(at(0x11, 206), 8)] == [0, 0, 4, 4, 8, 8, 12, 12]


def test_a_block_read_of_the_lower_memory_wipes_its_flags_as_it_does_in_the_field() -> None:
    clock = VirtualClock()
    module = CmisModule.from_profile("400zr", clock=clock)
    clock.sleep(1.0)
    file = LinearView(module)
    assert file.read(0, 128)[8] == 0x01
    assert file.read(0, 128)[8] == 0x00


@pytest.mark.parametrize(
    ("flag_page", "flag_byte", "mask_page", "mask_byte"),
    [(None, 8, None, 31), (0x11, 134, 0x10, 213), (0x11, 147, 0x10, 226), (0x12, 231, 0x12, 239)],
)
def test_a_mask_silences_the_interrupt_and_leaves_the_flag(
    flag_page: int | None, flag_byte: int, mask_page: int | None, mask_byte: int
) -> None:
    clock = VirtualClock()
    module = CmisModule.from_profile("400zr", clock=clock, low_power_pin=False)
    file = LinearView(module)
    clock.sleep(1.0)

    def offset(page: int | None, byte: int) -> int:
        return byte if page is None else at(page, byte)

    for page, first, count in ((None, 31, 6), (0x10, 213, 20), (0x12, 239, 8), (0x13, 206, 8), (0x2D, 128, 128)):
        file.write(offset(page, first), b"\xff" * count)
    assert module.interrupt is False
    clock.sleep(40.0)
    file.write(at(0x12, 136), b"\x00\x00")  # the present channel: complete at once
    assert module.interrupt is False
    assert file.read(3, 1)[0] & 1 == 1
    file.write(offset(mask_page, mask_byte), b"\x00")
    assert module.interrupt is True
    assert file.read(3, 1)[0] & 1 == 0
    assert file.read(offset(flag_page, flag_byte), 1)[0] != 0


def test_the_summary_names_the_page_that_has_flags() -> None:
    clock = VirtualClock()
    module = CmisModule.from_profile("400zr", clock=clock, low_power_pin=False)
    file = LinearView(module)
    clock.sleep(40.0)
    assert file.read(4, 4) == bytes([0b1001, 0, 0, 0])  # dark: page 11h and VDM
    file.read(at(0x11, 134), 20)
    module.connect(optics=lambda lane, at_s: GOOD_LIGHT)
    clock.sleep(1.0)
    file.read(at(0x11, 134), 20)
    file.read(at(0x2C, 128), 128)
    assert file.read(4, 1) == b"\x00"


def test_a_module_that_was_swapped_is_found_in_low_power() -> None:
    clock = VirtualClock()
    module = CmisModule.from_profile("400zr", clock=clock)
    clock.sleep(1.0)
    host = SwitchHost(module, clock)
    host.bring_up(1, range(1, 9), 0xFF)
    module.unplug()
    clock.sleep(10.0)
    module.plug()
    clock.sleep(1.0)
    assert host.byte(3) >> 1 & 7 == 1
    assert host.nibbles(at(0x11, 128)) == [1] * 8
    host.bring_up(1, range(1, 9), 0xFF)
