"""Pages 16h, 17h and 19h: network paths, and data paths by direction. Bytes placed by hand after public decoders."""

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


@pytest.mark.parametrize(("advertised", "quality"), [(0x80, Quality.OK), (0x00, Quality.NOT_SUPPORTED)])
def test_the_state_of_network_paths(advertised: int, quality: Quality) -> None:
    peer = Peer(VirtualClock())
    peer.pages[0x16] = bytearray(128)
    peer.put(0x01, 142, bytes([peer.get(0x01, 142)[0] & ~0x80 | advertised]))  # pages 16h and 17h
    peer.put(0x16, 178, b"\x41")  # lane 1: success; lane 2: no such network path
    peer.put(0x16, 200, b"\x24")  # lane 1: activated; lane 2: initialises
    peer.checksum()
    halves: dict[Half, bytes] = {(0, page): bytes(content) for page, content in peer.pages.items()}
    module = decode_image(MemoryImage({**halves, (0, None): bytes(peer.lower)}))
    found = {(item.name, item.index): item for item in module.fields}
    assert found["network_path_state", 1].quality is quality
    if advertised:
        assert [found["network_path_state", lane].description for lane in (1, 2)] == ["activated", "init"]
        assert [found["network_path_config_status", lane].description for lane in (1, 2)] == [
            "success",
            "rejected_invalid_network_path",
        ]
