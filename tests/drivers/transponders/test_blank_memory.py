"""An empty cage: memory that reads FFh or 00h only is no module, and never a module without pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.drivers.transponders.dump_decoder import decode_file
from lumion_hw.errors import ConfigError
from lumion_hw.sessions.module.linear_file import LinearPages
from lumion_hw.sessions.module.paged_i2c import PagedI2c
from lumion_hw.sessions.module.pages import ImagePages
from lumion_hw.sessions.module.registers import NotRespondingError
from lumion_hw.standards.cmis.image import MemoryImage
from tests.drivers.transponders.cmis_peer import Peer

BLANK = pytest.mark.parametrize("value", [0xFF, 0x00])
PAGES = 0x40


class Empty:
    """A bus whose every byte reads the same: a bridge without a module behind it."""

    name = "i2c://9"

    def __init__(self, value: int) -> None:
        self.value = value

    def read(self, offset: int, length: int) -> bytes:
        del offset
        return bytes([self.value] * length)

    def write(self, offset: int, data: bytes) -> None:
        """Lose the bytes."""


def linear(peer: Peer) -> bytearray:
    memory = bytearray((PAGES + 1) * 128)
    memory[:128] = peer.lower
    for page, half in peer.pages.items():
        if page < PAGES:
            memory[(page + 1) * 128 : (page + 2) * 128] = half
    return memory


@BLANK
def test_a_blank_bus_has_no_module(value: int, clock: VirtualClock) -> None:
    with pytest.raises(NotRespondingError, match=rf"the module does not answer: .* {value:02X}h") as caught:
        CmisTransponder(Empty(value), clock=clock, device="m1").open()
    assert (caught.value.device, caught.value.address) == ("m1", "i2c://9")
    assert all(word in str(caught.value.hint) for word in ("power", "cage", "address"))


@BLANK
def test_a_blank_bus_does_not_lack_a_page(value: int, clock: VirtualClock) -> None:
    pages = PagedI2c(Empty(value), clock, device="m1")
    with pytest.raises(NotRespondingError, match="does not answer"):
        pages.has_page(0x11)


@BLANK
def test_a_blank_file_has_no_module(value: int, clock: VirtualClock, tmp_path: Path) -> None:
    path = tmp_path / "eeprom"
    path.write_bytes(bytes([value]) * (PAGES + 1) * 128)
    with pytest.raises(NotRespondingError, match="does not answer") as caught:
        CmisTransponder(LinearPages(path, clock, device="m1"), clock=clock, device="m1").open()
    assert caught.value.address == str(path)


@BLANK
def test_a_blank_image_has_no_module(value: int, clock: VirtualClock) -> None:
    image = MemoryImage({(0, page): bytes([value]) * 128 for page in (None, 0x00, 0x11)})
    with pytest.raises(NotRespondingError, match="does not answer"):
        CmisTransponder(ImagePages(image), clock=clock, device="m1").open()


@BLANK
def test_a_module_pulled_out_of_its_cage_does_not_answer(value: int, clock: VirtualClock, tmp_path: Path) -> None:
    path = tmp_path / "eeprom"
    memory = linear(Peer(clock))
    path.write_bytes(memory)
    module = CmisTransponder(LinearPages(path, clock, device="m1"), clock=clock, device="m1")
    module.open()
    assert module.module_readings()["temperature"].value == pytest.approx(45.0)
    path.write_bytes(bytes([value]) * len(memory))
    for call in (module.module_readings, module.identify, module.monitors):
        with pytest.raises(NotRespondingError, match="does not answer"):
            call()
    path.write_bytes(memory)
    assert module.identify().serial == "SN0001"
    module.close()


def test_a_register_full_of_ones_is_no_empty_cage(clock: VirtualClock, tmp_path: Path) -> None:
    peer = Peer(clock)
    peer.put(0x11, 154, b"\xff" * 48)
    path = tmp_path / "eeprom"
    path.write_bytes(linear(peer))
    module = CmisTransponder(LinearPages(path, clock, device="m1"), clock=clock, device="m1")
    module.open()
    assert module.lane_readings(1)["tx_power"].quality.value == "above_range"
    module.close()


@BLANK
@pytest.mark.parametrize("n_bytes", [128, 256, 640])
def test_the_decoder_says_so(value: int, n_bytes: int) -> None:
    with pytest.raises(ConfigError, match=rf"saved\.bin: the module did not answer: .* {value:02X}h") as caught:
        decode_file(bytes([value]) * n_bytes, "saved.bin")
    assert "cage" in str(caught.value.hint)


@BLANK
@pytest.mark.parametrize("key", ["lower", "a0"])
def test_the_decoder_says_so_of_documents(value: int, key: str) -> None:
    document = {key: (bytes([value]) * (128 if key == "lower" else 256)).hex(), "pages": {}}
    with pytest.raises(ConfigError, match="did not answer"):
        decode_file(json.dumps(document).encode(), "saved.json")
