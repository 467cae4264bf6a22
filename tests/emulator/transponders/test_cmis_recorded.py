"""Memory images used as modules: real dumps, images of an emulated module, and invalid images."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lumion_hw.emulator.transponders.cmis import RecordedModule
from lumion_hw.errors import ConfigError
from lumion_hw.sessions.module.registers import I2cDevice
from tests.emulator.transponders.cmis_testbench import lit

SHARED = Path(os.environ.get("LUMION_SHARED", Path(__file__).parents[4] / "shared"))  # next to the checkout
DUMPS = SHARED / "data" / "cmis_dumps"


def test_an_image_of_an_emulated_module_reads_like_the_module() -> None:
    host = lit()
    recorded: I2cDevice = RecordedModule(host.module.image(), name="copy")
    assert recorded.name == "copy"
    for page in (0x00, 0x01, 0x04, 0x10, 0x12, 0x20, 0x35):
        host.select(page)
        recorded.write(126, bytes([0, page]))
        assert recorded.read(128, 100) == host.module.read(128, 100), page


def test_flags_of_an_image_are_read_once_and_controls_keep_what_is_written() -> None:
    recorded = RecordedModule({"lower": "1852" + "00" * 6 + "01", "pages": {"10": ""}})
    assert recorded.read(8, 1) == b"\x01"
    assert recorded.read(8, 1) == b"\x00"
    recorded.write(127, b"\x10")
    recorded.write(128, b"\xff")
    recorded.write(143, b"\xff")
    assert recorded.read(128, 1) == b"\xff"
    assert recorded.read(143, 1) == b"\x00"


def test_a_flat_memory_has_page_00h_only_and_rolls_over() -> None:
    recorded = RecordedModule({"lower": "185280", "pages": {"00": "18"}})
    recorded.write(126, b"\x00\x11")
    assert recorded.read(127, 2) == b"\x00\x18"
    assert recorded.read(255, 2) == b"\x00\x18"


@pytest.mark.parametrize(
    "image",
    [
        {},
        {"lower": "zz"},
        {"lower": 5},
        {"lower": "00", "pages": {"xx": "00"}},
        {"lower": "00", "pages": []},
        {"lower": "00" * 129},
    ],
)
def test_what_is_not_an_image_is_refused(image: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="image"):
        RecordedModule(image)


@pytest.mark.skipif(not DUMPS.is_dir(), reason="memory pages of real modules are not here")
def test_every_real_dump_can_be_put_on_a_bus() -> None:
    for path in sorted(DUMPS.glob("*.json")):
        dump = json.loads(path.read_text(encoding="utf-8"))
        recorded = RecordedModule(dump)
        assert recorded.read(0, 4).hex() == dump["lower"][:8]
        for page, text in dump["pages"].items():
            recorded.write(126, bytes([0, int(page, 16)]))
            assert recorded.read(127, 1)[0] == int(page, 16)
            assert recorded.read(128, 1).hex() == text[:2]
