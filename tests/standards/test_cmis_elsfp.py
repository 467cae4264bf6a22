"""Pages 1Ah and 1Bh of an external laser source: bytes placed by hand after OIF-ELSFP-CMIS-01.0 tables 4 to 12.

The addresses are those of a public implementation of these tables; the document itself was not at hand.
"""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis_decoder import decode_image
from lumion_hw.drivers.transponders.decoded import DecodedModule
from lumion_hw.interfaces import Quality
from lumion_hw.standards.cmis import FIELDS, Certainty, fields_of
from lumion_hw.standards.cmis.image import Half, MemoryImage
from tests.drivers.transponders.cmis_peer import Peer


def decoded(identifier: int) -> DecodedModule:
    peer = Peer(VirtualClock())
    peer.lower[0] = identifier
    peer.pages |= {0x1A: bytearray(128), 0x1B: bytearray(128)}
    peer.put(0x00, 128, bytes([identifier]))
    peer.put(None, 86, b"\xff" + bytes(31))  # it carries no traffic
    peer.put(0x1A, 128, b"\x27\x10\x00\x64\x0f\xa0\x00\x0a")  # 100 and 1 mW; 400 and 1 mA
    peer.put(0x1A, 140, b"\x11")  # eight lasers, constant power
    peer.put(0x1A, 141, b"\x0f\x00")
    peer.put(0x1A, 155, b"\x00\xc8")
    peer.put(0x1A, 169, b"\x80")  # laser 32
    peer.put(0x1A, 186, b"\x04")  # bias of laser 3 is high
    peer.put(0x1A, 214, b"\x92")  # warning: vendor-specific; fault: current control
    peer.put(0x1A, 220, b"\x07")
    peer.put(0x1A, 221, b"\x18\x02")  # laser 2 on, 3 ramping, 5 on
    peer.put(0x1A, 234, b"\xb3\x18")
    peer.put(0x1B, 128, b"\x09\xc4")
    peer.put(0x1B, 186, b"\x09\xc5")
    peer.put(0x1B, 214, b"\x1f\x40")
    peer.put(0x1B, 239, b"\x64")
    peer.put(0x1B, 240, b"\x13\x88")
    peer.checksum()
    halves: dict[Half, bytes] = {(0, page): bytes(half) for page, half in peer.pages.items()}
    halves[0, None] = bytes(peer.lower)
    return decode_image(MemoryImage(halves))


@pytest.mark.parametrize(
    ("name", "lane", "value", "description"),
    [
        ("laser_power_max", None, 100.0, "100 mW (20.00 dBm)"),
        ("laser_power_min", None, 1.0, "1 mW (0.00 dBm)"),
        ("laser_bias_max", None, 400.0, "400 mA"),
        ("laser_bias_min", None, 1.0, "1 mA"),
        ("laser_count", None, 8, "8"),
        ("laser_control_mode", None, 1, "constant power"),
        ("laser_bias_high_alarm_threshold", None, 384.0, "384 mA"),
        ("laser_power_low_warning_threshold", None, 2.0, "2 mW (3.01 dBm)"),
        ("laser_fault_flag", 32, True, "yes"),
        ("laser_fault_flag", 31, False, "no"),
        ("laser_bias_high_alarm_flag", 3, True, "yes"),
        ("laser_fault_code", 3, 2, "current control failed"),
        ("laser_warning_code", 3, 9, "0x09 (vendor-specific)"),
        ("laser_enable", 3, True, "yes"),
        ("laser_enable", 4, False, "no"),
        ("laser_state", 2, 2, "on"),
        ("laser_state", 3, 1, "ramping"),
        ("laser_state", 4, 0, "off"),
        ("laser_state", 5, 2, "on"),
        ("laser_frequency", 2, 229_240.0, "229240 GHz"),
        ("laser_bias_setpoint", 1, 250.0, "250 mA"),
        ("laser_bias", 2, 250.1, "250.1 mA"),
        ("laser_power", 8, 80.0, "80 mW (19.03 dBm)"),
        ("laser_voltage", 8, 1.5, "1.5 V"),
        ("laser_supply_current", None, 1000.0, "1000 mA"),
    ],
)
def test_a_field_of_an_external_laser_source(name: str, lane: int | None, value: float, description: str) -> None:
    field = decoded(0x22).field(name, lane)
    assert field.value == pytest.approx(value)
    assert field.description == description


def test_no_other_module_has_these_pages() -> None:
    module = decoded(0x18)
    assert {item.quality for item in module.fields if item.name.startswith("laser_power")} == {Quality.NOT_SUPPORTED}


def test_no_address_of_these_pages_counts_as_confirmed() -> None:
    found = [*fields_of(0x1A), *fields_of(0x1B)]
    assert len(found) == 52
    assert {field.certainty for field in found} == {Certainty.CHECK}
    assert str(FIELDS["laser_power"]) == "1Bh:200-215"
