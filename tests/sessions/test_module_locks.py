"""The locks on the ways to a module: an access in several steps, and a transaction, are not entered by another thread.

One test for each lock; without the lock it fails each time, not now and then (``one_at_a_time``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.sessions.module.adapter import AdapterRegisters
from lumion_hw.sessions.module.adapter_libraries import FtdiAdapter, SmbusAdapter
from lumion_hw.sessions.module.linear_file import LinearFile
from lumion_hw.sessions.module.paged_i2c import PagedI2c
from lumion_hw.sessions.module.pages import ImagePages
from lumion_hw.standards.cmis.image import MemoryImage
from tests.one_at_a_time import Interleaved, Yielding
from tests.sessions.i2c_libraries import Wire, pyftdi_on, smbus2_on


class Memory:
    """256 bytes of a device on a bus."""

    name = "bus"

    def __init__(self) -> None:
        self.data = bytearray(256)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data


class Pages(Memory):
    """A module whose upper bytes say which page they are of."""

    def read(self, offset: int, length: int) -> bytes:
        return bytes((self.data[:128] + self.data[127:128] * 128)[offset : offset + length])


@pytest.fixture
def threads() -> Interleaved:
    return Interleaved()


def test_a_page_is_read_while_it_is_selected(threads: Interleaved, clock: VirtualClock) -> None:
    pages = PagedI2c(Yielding(threads, Pages()), clock, device="zr1")
    found = threads.run(*[partial(pages.read_page, page, 200, 2) for page in (0x01, 0x02, 0x04)])
    assert found == [b"\x01\x01", b"\x02\x02", b"\x04\x04"]
    threads.assert_one_at_a_time()


@pytest.mark.parametrize("other", ["read", "assert_signal", "is_asserted"])
def test_a_read_in_pieces_is_one_access(threads: Interleaved, other: str) -> None:
    wire: Any = Yielding(threads, Wire(x50=Memory()))
    adapter = FtdiAdapter("ftdi://ftdi:232h/1", library=pyftdi_on(wire), largest_read=8, pins={"reset_l": 4})
    adapter.open()
    arguments = {"read": (0x50, 128, 32), "assert_signal": ("reset_l", True), "is_asserted": ("reset_l",)}[other]
    threads.run(partial(adapter.read, 0x50, 0, 32), partial(getattr(adapter, other), *arguments))
    threads.assert_one_at_a_time()


def count_to_three(threads: Interleaved, way: Any, *place: int) -> None:
    """Three transactions at once, each of which adds 1 to the byte at ``place`` and lets others in after its read."""
    by_page = hasattr(way, "read_page")
    read: Callable[..., bytes] = way.read_page if by_page else way.read
    write: Callable[..., None] = way.write_page if by_page else way.write

    def add_one() -> None:
        with way.transaction():
            before = read(*place, 1)[0]
            threads.give_way()
            write(*place, bytes([before + 1]))

    way.open()
    threads.run(*[add_one] * 3)
    assert read(*place, 1) == b"\x03"
    way.close()


def test_a_transaction_over_an_adapter_is_not_entered(threads: Interleaved, clock: VirtualClock) -> None:
    adapter = SmbusAdapter("i2c://1", library=smbus2_on(Wire(x50=Memory())))
    count_to_three(threads, AdapterRegisters(adapter, clock, device="sfp1"), 0x50, 8)


def test_a_transaction_over_a_file_is_not_entered(threads: Interleaved, clock: VirtualClock, tmp_path: Path) -> None:
    path = tmp_path / "eeprom"
    path.write_bytes(bytes(512))
    count_to_three(threads, LinearFile(str(path), clock, device="sfp1"), 0x51, 8)


def test_a_transaction_of_pages_is_not_entered(threads: Interleaved, clock: VirtualClock) -> None:
    count_to_three(threads, PagedI2c(Memory(), clock, device="zr1"), 0x10, 130)


def test_a_transaction_of_an_image_is_not_entered(threads: Interleaved) -> None:
    image = MemoryImage({(0, None): bytes(128), (0, 0x10): bytes(128)})
    count_to_three(threads, ImagePages(image, writable=True), 0x10, 130)
