"""Modules that answer only one byte per read: no flag is lost and no number is torn, behind every adapter."""

from __future__ import annotations

from typing import Literal

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.sfp_memory import SfpMemory
from lumion_hw.sessions.module.adapter import AdapterRegisters
from lumion_hw.sessions.module.paged_i2c import BridgedI2c, PagedI2c
from lumion_hw.sessions.module.registers import NotRespondingError
from tests.sessions.i2c_libraries import Wire
from tests.sessions.test_i2c_adapters import SMBUS, Case, adapter_on, every_adapter


class ByteModule:
    """A module whose number counts up with every read of a byte, and whose flags are cleared by reading them.

    Args:
        number: Byte of the 2-byte number.
        flags: Flag bytes.
        silent: Byte whose first read is not acknowledged.
    """

    def __init__(self, *, number: int, flags: range = range(0), silent: int = -1) -> None:
        self.memory = bytearray(256)
        self.memory[0:3] = b"\x18\x52\x00"
        self.memory[127] = 0x11
        self.number, self.flags, self.silent = number, flags, silent
        self.value = 0x00FE
        for byte in flags:
            self.memory[byte] = 0xFF

    def read(self, offset: int, length: int) -> bytes:
        assert length == 1
        if offset == self.silent:
            self.silent = -1
            raise NotRespondingError("busy")
        self.value += offset in (self.number, self.number + 1)
        self.memory[self.number : self.number + 2] = self.value.to_bytes(2, "big")
        data = self.memory[offset]
        if offset in self.flags:
            self.memory[offset] = 0
        return bytes([data])

    def write(self, offset: int, data: bytes) -> None:
        self.memory[offset : offset + len(data)] = data


def pages_on(case: Case, module: ByteModule, clock: VirtualClock) -> PagedI2c:
    adapter = adapter_on(case, Wire(x50=module), largest_read=1)
    return PagedI2c(BridgedI2c(adapter), clock, device="m1")


@every_adapter
def test_a_flag_survives_a_byte_that_is_not_acknowledged(case: Case, clock: VirtualClock) -> None:
    module = ByteModule(number=186, flags=range(134, 154), silent=140)
    assert pages_on(case, module, clock).read_page(0x11, 134, 20) == b"\xff" * 20


@every_adapter
def test_the_two_bytes_of_a_number_belong_together(case: Case, clock: VirtualClock) -> None:
    # The number passes from 00FFh to 0100h between its two bytes: 0000h would be -40 dBm instead of -15.9 dBm.
    module = ByteModule(number=186)
    data = pages_on(case, module, clock).read_page(0x11, 186, 16)
    assert int.from_bytes(data[:2], "big") in range(0x00FE, module.value + 1)


@every_adapter
def test_the_monitors_of_an_sfp_belong_together(case: Case, clock: VirtualClock) -> None:
    module = ByteModule(number=104)
    registers = AdapterRegisters(adapter_on(case, Wire(x51=module), largest_read=1), clock, device="m1")
    data = SfpMemory(registers, clock, "m1").monitors()
    assert int.from_bytes(data[8:10], "big") in range(0x00FE, module.value + 1)


@every_adapter
@pytest.mark.parametrize("offset", [13, 14])
def test_an_odd_length_does_not_split_a_number(case: Case, offset: int, clock: VirtualClock) -> None:
    wire = Wire(x50=_Any())
    adapter_on(case, wire, largest_read=5).read(0x50, offset, 20)
    starts = [out[0] for _, out, _ in wire.transfers]
    assert all(start % 2 == 0 for start in starts[1:])
    assert all(n_read <= 5 for _, _, n_read in wire.transfers)


class SteppingModule:
    """A module with one number, which has another value from one read of its page on."""

    def __init__(self, number: range, old: bytes, new: bytes, changing_read: int) -> None:
        self._memory = bytearray(256)
        self._memory[0:3] = b"\x18\x52\x00"
        self._memory[number.start : number.stop] = old
        self._number, self._new, self._reads_left = number, new, changing_read

    def read(self, offset: int, length: int) -> bytes:
        assert length == 1
        if offset >= 128:
            if self._reads_left == 0:
                self._memory[self._number.start : self._number.stop] = self._new
            self._reads_left -= 1
        return bytes([self._memory[offset]])

    def write(self, offset: int, data: bytes) -> None:
        self._memory[offset : offset + len(data)] = data


OLD, NEW = 0x0001_00FF, 0x0002_0000  # the bytes at even offsets do not change


@pytest.mark.parametrize(
    ("page", "first", "length", "number", "order"),
    [
        (0x12, 168, 32, range(172, 176), "big"),  # current frequency of lane 2
        (0x34, 128, 60, range(144, 152), "big"),  # corrected bits (C-CMIS)
        (0x34, 168, 12, range(176, 180), "big"),  # uncorrectable frames (C-CMIS)
        (0x35, 128, 12, range(132, 136), "big"),  # chromatic dispersion (C-CMIS)
        (0x14, 192, 64, range(200, 208), "little"),  # checked bits of a test pattern
        (0x14, 192, 64, range(208, 216), "little"),
    ],
)
def test_a_number_of_four_or_eight_bytes_is_never_torn(
    page: int, first: int, length: int, number: range, order: Literal["big", "little"], clock: VirtualClock
) -> None:
    old, new = (value.to_bytes(len(number), order) for value in (OLD, NEW))
    for changing_read in range(2 * length + 2):
        module = SteppingModule(number, old, new, changing_read)
        adapter = adapter_on(SMBUS, Wire(x50=module), largest_read=1)
        data = PagedI2c(BridgedI2c(adapter), clock, device="m1").read_page(page, first, length)
        assert data[number.start - first : number.stop - first] in (old, new), changing_read


class _Any:
    def read(self, offset: int, length: int) -> bytes:
        return bytes(length)

    def write(self, offset: int, data: bytes) -> None: ...
