"""Page 19h: active control set by direction. Bytes placed by hand after a public implementation of CMIS 5.2."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis_decoder import decode_image
from lumion_hw.interfaces import Quality
from lumion_hw.standards.cmis.image import Half, MemoryImage
from tests.drivers.transponders.cmis_peer import Peer


@pytest.mark.parametrize(("advertised", "quality"), [(0x40, Quality.OK), (0x00, Quality.NOT_SUPPORTED)])
def test_the_data_paths_of_each_direction(advertised: int, quality: Quality) -> None:
    peer = Peer(VirtualClock())
    peer.pages[0x19] = bytearray(128)
    peer.put(0x01, 162, bytes([peer.get(0x01, 162)[0] & ~0x40 | advertised]))  # unidirectional reconfiguration
    peer.put(0x19, 128, b"\x11\x11\x24")  # transmitters of lanes 1 and 2: application 1; lane 3: application 2
    peer.put(0x19, 136, b"\x30")  # receiver of lane 1: application 3
    peer.checksum()
    halves: dict[Half, bytes] = {(0, page): bytes(half) for page, half in peer.pages.items()}
    halves[0, None] = bytes(peer.lower)
    module = decode_image(MemoryImage(halves))
    fields = {(item.name, item.index): item for item in module.fields}
    assert fields["tx_active_app_sel", 3].quality is quality
    if quality is Quality.OK:
        assert [fields["tx_active_app_sel", lane].value for lane in (1, 2, 3, 4)] == [1, 1, 2, 0]
        assert fields["tx_active_data_path_id", 3].value == 2
        assert (fields["tx_active_explicit_control", 2].value, fields["rx_active_app_sel", 1].value) == (True, 3)
        assert fields["rx_active_app_sel", 1].address == "19h:136"
