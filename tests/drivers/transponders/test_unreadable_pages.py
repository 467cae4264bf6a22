"""A page that cannot be read costs that page and no other: opening, dumping and decoding go on without it."""

from __future__ import annotations

import json

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.drivers.transponders.cmis_decoder import decode_image
from lumion_hw.drivers.transponders.dump_decoder import decode_file
from lumion_hw.drivers.transponders.sfp import SfpTransponder
from lumion_hw.errors import LinkError
from lumion_hw.interfaces import Quality
from lumion_hw.sessions.module.registers import ModuleAbsentError, NotRespondingError, ShortReadError
from lumion_hw.standards.cmis.image import LOWER, half_name, parse_image
from tests.drivers.transponders.cmis_peer import Peer
from tests.drivers.transponders.sfp_memories import A2H, CONSTANTS, IDENTITY, MONITORS

SILENT = {
    "not acknowledged": NotRespondingError("not acknowledged"),
    "absent": ModuleAbsentError("no answer"),
    "short": ShortReadError("3 of 128 bytes"),
}


class BadPage:
    """The peer, with a page whose bytes the bus does not give."""

    name = "bad"

    def __init__(self, peer: Peer, page: int, error: LinkError = SILENT["not acknowledged"]) -> None:
        self.peer = peer
        self.page = page
        self.error = error

    def read(self, offset: int, length: int) -> bytes:
        if self.peer.lower[127] == self.page and offset >= 128:
            raise self.error
        return self.peer.read(offset, length)

    def write(self, offset: int, data: bytes) -> None:
        self.peer.write(offset, data)


def opened(bus: object, clock: VirtualClock) -> CmisTransponder:
    driver = CmisTransponder(bus, clock, device="zr1")  # type: ignore[arg-type]
    driver.open()
    return driver


@pytest.fixture
def peer(clock: VirtualClock) -> Peer:
    return Peer(clock)


SOUND = opened(Peer(VirtualClock()), VirtualClock()).dump()
PAGES = sorted(page for _, page in SOUND.halves if page not in (None, 0x00, 0x2C))
"""All pages that a dump reads besides those that identify the module; 2Ch has only flags, which are left alone."""


def test_the_sound_module_has_many_pages_and_none_is_unreadable() -> None:
    assert len(PAGES) > 15
    assert SOUND.unreadable == {}
    assert "unreadable" not in SOUND.to_document()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page:02X}h")
def test_one_unreadable_page_is_named_and_all_others_are_kept(peer: Peer, clock: VirtualClock, page: int) -> None:
    image = opened(BadPage(peer, page), clock).dump()
    assert list(image.unreadable) == [(0, page)]
    assert "not acknowledged" in image.unreadable[0, page]
    kept = {half for half in SOUND.halves if half != (0, page)}
    # Without the advertisement of page 01h nobody knows which of the optional pages there are.
    assert image.halves.keys() == kept if page != 0x01 else image.halves.keys() <= kept
    assert all(image.halves[half] == SOUND.halves[half] for half in image.halves if half != LOWER)
    assert image.halves[LOWER][:126] == SOUND.halves[LOWER][:126], "bank and page select are those of the last access"
    again = parse_image(json.dumps(image.to_document()).encode())
    assert (again.unreadable, again.halves) == (image.unreadable, image.halves)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page:02X}h")
def test_a_decoded_dump_says_which_page_is_missing_and_why(peer: Peer, clock: VirtualClock, page: int) -> None:
    module = decode_image(opened(BadPage(peer, page), clock).dump())
    (found,) = (item for item in module.findings if item.kind == "unreadable")
    assert found.address == f"{page:02X}h"
    assert found.message.startswith(f"the page {page:02X}h could not be read: ")
    assert found in module.damage
    assert not any(item.kind == "missing_page" for item in module.findings)
    assert module.field("vendor_name").quality is Quality.OK
    assert module.field("temperature").quality in (Quality.OK, Quality.STALE)


@pytest.mark.parametrize("error", SILENT.values(), ids=SILENT)
def test_however_the_bus_fails_the_rest_is_read(peer: Peer, clock: VirtualClock, error: LinkError) -> None:
    image = opened(BadPage(peer, 0x02, error), clock).dump()
    assert [half_name(half) for half in image.unreadable] == ["02"]


@pytest.mark.parametrize("page", [0x02, 0x04, 0x13, 0x20, 0x2F])
def test_opening_goes_on_without_a_page_and_says_so(peer: Peer, clock: VirtualClock, page: int) -> None:
    driver = opened(BadPage(peer, page), clock)
    assert any(f"page {page:02X}h cannot be read" in words for words in driver.warnings)
    driver.power_up()
    driver.select_application(1)
    driver.enable()
    assert driver.monitors().temperature_c == 45.0


def test_stages_whose_bounds_are_not_known_have_none(peer: Peer, clock: VirtualClock) -> None:
    assert set(opened(BadPage(peer, 0x01), clock).capabilities().durations_s.values()) == {None}


def test_without_page_00h_nobody_knows_which_module_it_is(peer: Peer, clock: VirtualClock) -> None:
    with pytest.raises(NotRespondingError):
        opened(BadPage(peer, 0x00), clock)


def test_a_module_that_is_gone_is_no_unreadable_page(peer: Peer, clock: VirtualClock) -> None:
    driver = opened(peer, clock)
    peer.plugged = False
    with pytest.raises(ModuleAbsentError):
        driver.dump()


# -- flat memories


class Cable:
    """A passive cable after CMIS 5.2 clause 8.1: lower memory and page 00h in an EEPROM that takes no write."""

    name = "cable"

    def __init__(self, at_126: bytes = bytes(2)) -> None:
        self.memory = bytearray(256)
        self.memory[0:3] = bytes([0x18, 0x52, 0x80])  # QSFP-DD, CMIS 5.2, flat
        self.memory[85] = 0x03  # passive copper
        self.memory[126:128] = at_126
        self.memory[128] = 0x18
        self.memory[129:145] = b"LUMION CABLE".ljust(16)
        self.memory[148:164] = b"DAC-1M".ljust(16)
        self.memory[166:182] = b"C0001".ljust(16)
        self.memory[222] = sum(self.memory[128:222]) % 256

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.memory[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        raise NotRespondingError(f"write of {data.hex()} at {offset} not acknowledged")


@pytest.mark.parametrize("at_126", [b"\x00\x00", b"\xff\xff"], ids=["zeros", "erased bytes where page select would be"])
def test_a_cable_that_takes_no_writes_is_opened_and_dumped(clock: VirtualClock, at_126: bytes) -> None:
    driver = opened(Cable(at_126), clock)
    assert driver.identify().serial == "C0001"
    assert driver.is_flat
    image = driver.dump()
    assert set(image.halves) == {(0, None), (0, 0x00)}
    assert decode_image(image).identity.part_number == "DAC-1M"
    assert clock.now() == 0.0, "nothing was waited for"


def test_a_paged_module_that_shows_another_page_is_told_page_00h(peer: Peer, clock: VirtualClock) -> None:
    peer.lower[126:128] = b"\x00\x11"
    assert opened(peer, clock).identify().serial == "SN0001"
    assert peer.lower[127] == 0x00


# -- SFF-8472


class HalfRead:
    """An SFP whose diagnostic memory is read up to a byte."""

    name = "slot 1"

    def __init__(self, clock: VirtualClock, readable: int) -> None:
        del clock
        self.readable = 256
        self.later = readable
        self.memory = {0x50: IDENTITY + bytes(160), A2H: CONSTANTS + MONITORS + bytes(146)}

    def open(self) -> None: ...

    def close(self) -> None: ...

    def transaction(self):  # type: ignore[no-untyped-def]
        from contextlib import nullcontext

        return nullcontext()

    def read(self, device: int, offset: int, length: int) -> bytes:
        if device == A2H and offset + length > self.readable:
            raise NotRespondingError("not acknowledged")
        return self.memory[device][offset : offset + length]

    def write(self, device: int, offset: int, data: bytes) -> None:
        raise NotRespondingError("not acknowledged")


@pytest.mark.parametrize("readable", [0, 128])
def test_an_sfp_is_dumped_as_far_as_it_can_be_read(clock: VirtualClock, readable: int) -> None:
    registers = HalfRead(clock, readable)
    driver = SfpTransponder(registers, clock, device="sfp1")  # type: ignore[arg-type]
    driver.open()
    registers.readable = readable
    image = driver.dump()
    assert (image.a0, image.a2) == (registers.memory[0x50], registers.memory[A2H][:readable])
    assert image.unreadable == {"a2": f"from byte {readable}: not acknowledged"}
    module = decode_file(json.dumps(image.to_document()).encode())
    (found,) = module.findings
    assert (found.kind, found.address) == ("unreadable", "A2h")
    assert f"from byte {readable}" in found.message
    assert module.identity.serial == "EMU0000001"
    assert found in module.damage
