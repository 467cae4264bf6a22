"""CMIS pages over one I2C address, a linear file and a saved image: the rules of the bus, and what is never trusted."""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConfigError, LinkLost, NotSupportedError
from lumion_hw.sessions.module.linear_file import LinearPages
from lumion_hw.sessions.module.paged_i2c import SFF_8636_PAGES, BridgedI2c, PagedI2c
from lumion_hw.sessions.module.pages import ImagePages, ModulePages, PageNotSupportedError
from lumion_hw.sessions.module.registers import ModuleAbsentError, NotRespondingError, ShortReadError
from lumion_hw.standards.cmis.image import MemoryImage
from tests.waiting import PATIENCE_S


class Bus:
    """A module as the bus sees it: 128 bytes below, and above them the page selected. It keeps a log."""

    name = "bus"

    def __init__(self, clock: VirtualClock, *pages: tuple[int, int]) -> None:
        self.clock = clock
        self.lower = bytearray(b"\x00\x52" + bytes(126))
        self.pages = {(bank, page): bytearray([page + bank]) * 128 for bank, page in ((0, 0), *pages)}
        self.log: list[tuple[str, int, int | bytes]] = []
        self.errors: deque[Exception] = deque()
        self.silent_until = 0.0

    def _acknowledge(self) -> None:
        if self.errors:
            raise self.errors.popleft()
        if self.clock.now() < self.silent_until:
            raise NotRespondingError("not acknowledged")

    def read(self, offset: int, length: int) -> bytes:
        self._acknowledge()
        self.log.append(("R", offset, length))
        bank = self.lower[126] if self.lower[127] >= 0x10 else 0
        return bytes((self.lower + self.pages[bank, self.lower[127]])[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        self._acknowledge()
        self.log.append(("W", offset, data))
        for position, byte in enumerate(data, start=offset):
            if position < 128:
                self.lower[position] = byte
            else:
                self.pages[self.lower[126], self.lower[127]][position - 128] = byte
        if offset + len(data) == 128 and (self.lower[126], self.lower[127]) not in self.pages:
            self.lower[127] = 0  # an unsupported page puts PageSelect back


@pytest.fixture
def bus(clock: VirtualClock) -> Bus:
    return Bus(clock, (0, 1), (0, 0x10), (0, 0x11), (1, 0x11))


@pytest.fixture
def pages(bus: Bus, clock: VirtualClock) -> PagedI2c:
    return PagedI2c(bus, clock, device="t1")


def test_all_three_are_pages_of_a_module(pages: PagedI2c, clock: VirtualClock) -> None:
    assert isinstance(pages, ModulePages)
    assert isinstance(LinearPages("x", clock, device="t1"), ModulePages)
    assert isinstance(ImagePages(MemoryImage({})), ModulePages)
    assert not isinstance(Bus(clock), ModulePages)


def test_a_banked_page_is_selected_by_one_write_of_bank_and_page(pages: PagedI2c, bus: Bus) -> None:
    assert pages.read_page(0x11, 130, 2, bank=1) == b"\x12\x12"
    assert bus.log == [("W", 126, b"\x01\x11"), ("R", 126, 2), ("R", 130, 2)]


def test_a_page_without_banks_leaves_the_bank_alone(pages: PagedI2c, bus: Bus) -> None:
    pages.read_page(0x01, 128, 1)
    assert bus.log[0] == ("W", 127, b"\x01")


def test_the_lower_memory_needs_no_page(pages: PagedI2c, bus: Bus) -> None:
    pages.read_page(None, 0, 3)
    assert bus.log == [("R", 0, 3)]


def test_inside_a_transaction_a_page_is_selected_once(pages: PagedI2c, bus: Bus) -> None:
    with pages.transaction():
        pages.read_page(0x10, 128, 1)
        bus.log.clear()
        pages.read_page(0x10, 145, 8)
        pages.write_page(0x10, 143, b"\xff")
    assert bus.log == [("R", 145, 8), ("W", 143, b"\xff")]


def test_a_module_that_was_reset_meanwhile_is_not_read_on_the_wrong_page(pages: PagedI2c, bus: Bus) -> None:
    pages.read_page(0x11, 128, 1)
    bus.lower[126:128] = b"\x00\x00"  # reset: PageSelect 0
    assert pages.read_page(0x11, 128, 1) == b"\x11"


def test_after_an_error_the_page_is_selected_anew(pages: PagedI2c, bus: Bus) -> None:
    pages.read_page(0x11, 128, 1)
    bus.errors.append(ShortReadError("short"))
    with pytest.raises(ShortReadError):
        pages.read_page(0x11, 128, 1)
    bus.log.clear()
    pages.read_page(0x11, 128, 1)
    assert bus.log[0] == ("W", 126, b"\x00\x11")


def test_an_unsupported_page_is_refused_and_named(pages: PagedI2c, bus: Bus) -> None:
    with pytest.raises(PageNotSupportedError, match=r"t1 @ bus: cannot select page 34h: the module selected page 00h"):
        pages.read_page(0x34, 128, 1)
    assert [pages.has_page(page) for page in (None, 0x01, 0x34)] == [True, True, False]
    assert (pages.has_page(0x11, 1), pages.has_page(0x11, 2)) == (True, False)


def test_a_busy_module_is_asked_again_until_it_answers(pages: PagedI2c, bus: Bus, clock: VirtualClock) -> None:
    bus.silent_until = 0.08
    assert pages.read_page(None, 0, 1) == b"\x00"
    assert clock.now() == pytest.approx(0.08)


def test_a_module_that_stays_silent_is_given_up_at_the_deadline(pages: PagedI2c, bus: Bus, clock: VirtualClock) -> None:
    bus.silent_until = 9.0
    with pytest.raises(NotRespondingError, match=r"t1 @ bus: reading 1 bytes at 0: not acknowledged for 0\.1 s"):
        pages.read_page(None, 0, 1)
    assert clock.now() == pytest.approx(0.1, abs=0.003)
    with pages.retry_for(5.0), pytest.raises(NotRespondingError, match="for 5 s"):
        pages.read_page(None, 0, 1)
    assert clock.now() == pytest.approx(5.1, abs=0.01)


def test_an_absent_module_is_told_at_once_and_by_name(pages: PagedI2c, bus: Bus, clock: VirtualClock) -> None:
    bus.errors.append(ModuleAbsentError("no module"))
    with pytest.raises(ModuleAbsentError) as told:
        pages.read_page(None, 0, 1)
    assert (told.value.device, told.value.address, clock.now()) == ("t1", "bus", 0.0)


def test_with_patience_even_absence_is_waited_out(pages: PagedI2c, bus: Bus, clock: VirtualClock) -> None:
    bus.errors.extend(ModuleAbsentError("no module") for _ in range(100))
    with pages.retry_for(5.0):
        assert pages.read_page(None, 0, 1) == b"\x00"
    bus.errors.extend(ModuleAbsentError("no module") for _ in range(1000))
    with pytest.raises(ModuleAbsentError), pages.retry_for(0.5):
        pages.read_page(None, 0, 1)
    assert clock.now() < 1.0


def test_threads_do_not_read_each_others_pages(pages: PagedI2c) -> None:
    mixed: list[bytes] = []

    def read(page: int) -> None:
        wanted = bytes([page])
        mixed.extend(found for _ in range(300) if (found := pages.read_page(page, 200, 1)) != wanted)

    threads = [threading.Thread(target=read, args=(page,)) for page in (0x01, 0x10, 0x11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert mixed == []


def test_too_few_bytes_are_an_error(pages: PagedI2c) -> None:
    pages._i2c = SimpleNamespace(name="bus", read=lambda offset, length: b"\x00")  # type: ignore[assignment]
    with pytest.raises(ShortReadError, match="1 instead of 2 bytes at 14"):
        pages.read_page(None, 14, 2)


@pytest.mark.parametrize(
    ("page", "byte", "length", "bank"),
    [(None, 120, 9, 0), (None, 128, 1, 0), (0x01, 127, 1, 0), (0x11, 250, 7, 0), (0x01, 128, 1, 1), (0x100, 128, 1, 0)],
)
def test_bytes_that_no_module_has_are_refused(pages: PagedI2c, page: int, byte: int, length: int, bank: int) -> None:
    with pytest.raises(ConfigError, match="are outside the memory"):
        pages.read_page(page, byte, length, bank)


def test_a_write_of_nine_bytes_is_refused(pages: PagedI2c, bus: Bus) -> None:
    with pytest.raises(ConfigError, match="9 bytes are too many for one write to page 10h"):
        pages.write_page(0x10, 145, bytes(9))
    assert bus.log == []


def test_slow_boards_get_a_pause_after_writes(bus: Bus, clock: VirtualClock) -> None:
    PagedI2c(bus, clock, device="t1", hold_off_s=0.02).write_page(0x10, 130, b"\xff")
    assert clock.now() == pytest.approx(0.04)  # page select, then the write


# -- linear file


@pytest.fixture
def eeprom(tmp_path: Path) -> Path:
    """Every byte tells its page: 0 to 2Fh, behind 128 bytes of lower memory."""
    path = tmp_path / "eeprom"
    path.write_bytes(b"\xaa" * 128 + b"".join(bytes([page]) * 128 for page in range(0x30)))
    return path


@pytest.fixture
def linear(eeprom: Path, clock: VirtualClock) -> LinearPages:
    opened = LinearPages(str(eeprom), clock, device="t1", retry_s=0.1)
    opened.open()
    return opened


def test_a_file_holds_the_pages_one_behind_the_other(linear: LinearPages, eeprom: Path) -> None:
    assert linear.read_page(0x12, 200, 2) == b"\x12\x12"
    linear.write_page(0x12, 200, b"\xfc\x18")
    linear.close()
    assert eeprom.read_bytes()[2504:2506] == b"\xfc\x18"  # (12h + 1)·128 + 200 - 128


def test_a_page_beyond_the_file_or_like_page_00h_is_not_there(linear: LinearPages, eeprom: Path) -> None:
    with eeprom.open("r+b") as file:
        file.seek(0x34 * 128 + 128)
        file.write(bytes(128))  # page 34h shows page 00h
    assert [linear.has_page(page) for page in (0x00, 0x12, 0x34, 0x9F)] == [True, True, False, False]
    linear.close()


def test_a_module_pulled_out_of_the_file_is_absent(linear: LinearPages, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> bytes:
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))

    monkeypatch.setattr(os, "pread", gone)
    with pytest.raises(ModuleAbsentError, match="byte 3 of lower memory"):
        linear.read_page(None, 3, 1)
    monkeypatch.undo()
    linear.close()
    with pytest.raises(LinkLost, match="closed"):
        linear.read_page(None, 3, 1)


# -- image


def test_a_replay_shows_its_pages_and_takes_no_writes() -> None:
    image = MemoryImage({(0, None): bytes(range(128)), (0, 0x11): bytes(128)}, source="lab.json")
    pages = ImagePages(image)
    assert pages.read_page(None, 14, 2) == b"\x0e\x0f"
    with pytest.raises(PageNotSupportedError, match=r"lab\.json: there is no page 12h"):
        pages.read_page(0x12, 128, 1)
    with pytest.raises(NotSupportedError, match="saved image"):
        pages.write_page(0x11, 128, b"\x01")
    memory = ImagePages(image, writable=True)
    memory.write_page(0x11, 130, b"\x01")
    assert (memory.read_page(0x11, 130, 1), image.halves[0, 0x11][2]) == (b"\x01", 0)


def test_a_bridge_lends_one_of_its_addresses() -> None:
    calls: list[tuple[object, ...]] = []

    class Registers:
        name = "bridge"

        def open(self) -> None:
            calls.append(("open",))

        def close(self) -> None:
            calls.append(("close",))

        def read(self, device: int, offset: int, length: int) -> bytes:
            calls.append((device, offset))
            return bytes(length)

        def write(self, device: int, offset: int, data: bytes) -> None:
            calls.append((device, offset, data))

    pages = PagedI2c(BridgedI2c(Registers()), VirtualClock(), device="t1")  # type: ignore[arg-type]
    pages.open()
    pages.read_page(None, 0, 3)
    pages.write_page(None, 26, b"\x00")
    pages.close()
    assert calls == [("open",), (0x50, 0), (0x50, 26, b"\x00"), ("close",)]
    assert pages.name == "bridge"


# -- SFF-8636: the same pages without banks


@pytest.fixture
def unbanked(bus: Bus, clock: VirtualClock) -> PagedI2c:
    return PagedI2c(bus, clock, device="q1", scheme=SFF_8636_PAGES)


@pytest.mark.parametrize("page", [1, 0x10])
def test_a_module_without_banks_gets_no_write_and_no_read_of_byte_126(unbanked: PagedI2c, bus: Bus, page: int) -> None:
    """Byte 126 of an SFF-8636 module is the end of a password."""
    assert unbanked.read_page(page, 130, 1) == bytes([page])
    assert bus.log == [("W", 127, bytes([page])), ("R", 127, 1), ("R", 130, 1)]


def test_a_module_without_banks_refuses_a_bank(unbanked: PagedI2c, bus: Bus) -> None:
    with pytest.raises(PageNotSupportedError, match="cannot select page 11h of bank 1: the module has no banks"):
        unbanked.read_page(0x11, 130, 1, bank=1)
    assert not unbanked.has_page(0x11, bank=1)
    assert bus.log == []


@pytest.mark.parametrize(("status", "writes"), [(0x04, False), (0x80, True), (0x00, True)])
def test_the_bit_of_a_flat_memory_is_that_of_the_standard(
    unbanked: PagedI2c, bus: Bus, status: int, writes: bool
) -> None:
    """Bit 2.2 in SFF-8636, bit 2.7 in CMIS; a flat memory need not acknowledge a page select."""
    bus.lower[2], bus.lower[127] = status, 1
    unbanked.read_page(0, 130, 1)
    assert any(kind == "W" for kind, *_ in bus.log) is writes
