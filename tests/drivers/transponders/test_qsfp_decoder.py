"""Dumps of QSFP modules: values, units and quality of fields, findings, and damage that is never shown as a value."""

from __future__ import annotations

import json

import pytest

from lumion_hw.drivers.transponders.decoded import DecodedModule, Severity
from lumion_hw.drivers.transponders.dump_decoder import decode_file
from lumion_hw.interfaces import Quality
from lumion_hw.standards.sff8636.registers import FIELDS
from tests.drivers.transponders.qsfp_memories import cable, linear, lr4, sealed

COVERED = range(128, 224)
"""Bytes of page 00h that the two check sums cover, with the check sums themselves."""

LR4, CABLE = linear(lr4()), linear(cable())


def changed(data: bytes, *changes: tuple[int, int], seal: bool = True) -> bytes:
    """Return a memory file with changed bytes of lower memory and page 00h, with right check sums if asked."""
    memory = bytearray(data)
    for byte, value in changes:
        memory[byte] = value
    if seal:
        memory[128:256] = sealed(bytes(memory[128:256]))
    return bytes(memory)


def kinds(module: DecodedModule) -> set[str]:
    return {finding.kind for finding in module.findings}


def test_a_module_without_errors() -> None:
    # The four lanes receive nearly the same power: 1 mW, then 0.5 mW three times.
    module = decode_file(changed(LR4, *zip(range(38, 42), bytes.fromhex("13881388"), strict=True)), "lr4.bin")
    assert (module.form_factor, module.standard, module.revision) == ("QSFP28", "SFF-8636", "2.8 to 2.10")
    assert module.identity.serial == "QT0000000001"
    assert module.checksums == {"CC_BASE": True, "CC_EXT": True}
    assert not module.flat
    assert module.findings == ()
    assert module.thresholds["temperature"] == ("75 degC", "-5 degC", "70 degC", "0 degC")
    assert module.thresholds["rx_power"] == ("5.00 dBm", "-14.50 dBm", "4.00 dBm", "-12.50 dBm")


@pytest.mark.parametrize(
    ("name", "lane", "text"),
    [
        ("temperature", None, "30.5 degC"),
        ("supply", None, "3.3 V"),
        ("rx_power", 2, "-3.01 dBm"),
        ("tx_bias", 4, "40 mA"),
        ("connector", None, "LC"),
        ("encoding", None, "64B/66B"),
        ("nominal_rate", None, "more than 25.4 GBd, see byte 222"),
        ("nominal_rate_high", None, "25750 MBd"),
        ("length_smf", None, "10 km"),
        ("transmitter", None, "1310 nm EML"),
        ("wavelength", None, "1302.35 nm"),
        ("wavelength_tolerance", None, "1.03 nm"),
        ("ext_compliance", None, "100GBASE-LR4 or 25GBASE-LR"),
        ("ext_identifier", None, "power class 4"),
        ("tx_cdr_on", 3, "yes"),
        ("max_case_temperature", None, "70 degC"),
        ("software_reset_implemented", None, "yes"),
        ("low_power_code", None, "1.5 W"),
        ("min_supply_code", None, "3.3 V"),
    ],
)
def test_fields_as_text(name: str, lane: int | None, text: str) -> None:
    assert decode_file(LR4).field(name, lane).description == text


def test_received_power_can_be_a_modulation_amplitude() -> None:
    assert decode_file(changed(LR4, (220, 0x34))).field("rx_power", 1).description == "0.00 dBm OMA"


def test_a_dark_and_a_saturated_lane_have_no_value() -> None:
    module = decode_file(changed(LR4, (34, 0), (35, 0), (36, 0xFF), (37, 0xFF)))
    assert [module.field("rx_power", lane).quality for lane in (1, 2, 3)] == [
        Quality.BELOW_RANGE,
        Quality.ABOVE_RANGE,
        Quality.OK,
    ]


def test_lanes_that_receive_different_powers_in_one_fibre() -> None:
    """1, 0.5, 0.25 and 0.1 mW; IEEE 802.3 allows 5.5 dB for 100GBASE-LR4 and 7.5 dB for 40GBASE-LR4."""
    [finding] = decode_file(LR4).findings
    assert finding.kind == "lane_difference"
    assert finding.message.startswith(
        "lane 3 receives -6.0 dBm, 6.0 dB less than lane 1; lane 4 receives -10.0 dBm, 10.0 dB less than lane 1 "
        "(limit 5.5 dB). Read the launched powers at the far end."
    )
    module = decode_file(changed(LR4, (131, 0x02), (192, 0)))
    assert [item.message.partition(",")[0] for item in module.findings] == ["lane 4 receives -10.0 dBm"]
    # PSM4 has a fibre per lane, and a PLR4 module with its MPO connector claims 40GBASE-LR4.
    assert decode_file(changed(LR4, (192, 0x07))).findings == ()
    assert decode_file(changed(LR4, (131, 0x02), (192, 0), (130, 0x0C))).findings == ()


def test_a_lane_with_a_weak_laser_and_a_dark_lane() -> None:
    # Launched 1 mW, 0.1 mW, 0.9 µW (dark below -30 dBm, IEEE 802.3 Table 88-7) and 1 mW; nothing received.
    launched = (*zip(range(50, 58), bytes.fromhex("271003E800092710"), strict=True),)
    dark = ((byte, 0) for byte in range(34, 42))
    [finding] = decode_file(changed(LR4, *launched, *dark)).findings
    assert finding.message == (
        "lane 2 launches -10.0 dBm, 10.0 dB less than lane 1 (limit 5 dB). A laser is weak: replace the module."
    )


def test_a_copper_cable() -> None:
    module = decode_file(CABLE)
    assert module.flat
    assert module.identity.wavelength_nm == 0.0
    texts = {name: module.field(name).description for name in FIELD_NAMES if "attenuation" in name}
    assert texts == {
        "attenuation_2_5_ghz": "4 dB",
        "attenuation_5_ghz": "6 dB",
        "attenuation_7_ghz": "8 dB",
        "attenuation_12_9_ghz": "11 dB",
        "attenuation_25_78_ghz": "22 dB",
    }
    assert module.field("length_cable").description == "3 m"
    for name in ("wavelength", "length_om1", "length_om4", "temperature", "supply"):
        assert module.field(name).quality is Quality.NOT_SUPPORTED, name
    assert module.field("rx_power", 1).quality is Quality.NOT_SUPPORTED
    assert module.findings == ()


FIELD_NAMES = sorted({name for name, _ in FIELDS})


def test_a_cable_of_the_first_revision_states_two_attenuations() -> None:
    """Bytes 188 and 189 have a different meaning in SFF-8436."""
    module = decode_file(changed(CABLE, (1, 0x01)))
    assert module.field("attenuation_5_ghz").quality is Quality.OK
    assert module.field("attenuation_7_ghz").quality is Quality.NOT_SUPPORTED


def test_a_length_is_that_of_the_cable_or_a_reach_on_om4() -> None:
    """Byte 146 in units of 2 m for an 850 nm VCSEL behind a connector."""
    module = decode_file(changed(LR4, (147, 0x00), (146, 50), (192, 0x02)))
    assert module.field("length_om4").description == "100 m"
    assert module.field("length_cable").quality is Quality.NOT_SUPPORTED
    optical_cable = decode_file(changed(LR4, (147, 0x00), (146, 50), (192, 0x18), (130, 0x23)))
    assert optical_cable.field("length_cable").description == "50 m"
    assert optical_cable.field("rx_power", 1).quality is Quality.OK


@pytest.mark.parametrize(("byte", "text"), [(0xC5, "power class 5"), (0xCE, "power class 6"), (0x20, "power class 8")])
def test_power_classes(byte: int, text: str) -> None:
    module = decode_file(changed(LR4, (129, byte), (107, 72)))
    assert module.field("ext_identifier").description == text
    is_8 = text.endswith("8")
    assert module.field("max_power").description == ("7.2 W" if is_8 else "")


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        (((128, 0x0D),), "contradiction", "the identifier is 11h in byte 0 and 0Dh in byte 128"),
        (((1, 0x40),), "reserved", "revision code 40h is reserved"),
        (((129, 0x20), (107, 0)), "contradiction", "does not state its power in byte 107"),
        (((2, 0x04),), "contradiction", "contains page 03h, but the module has flat memory"),
        (((22, 0x7F),), "impossible", "127.5 degC is not a plausible temperature"),
        (((26, 0x20),), "impossible", "is not a plausible supply"),
        (((22, 0x4C),), "outside_limits", "temperature is 76.5 degC, outside its alarm limits -5 to 75"),
        (((34, 0xA0),), "outside_limits", "rx_power of lane 1 is 0.0040976 W"),
        (((129, 0xC4),), "contradiction", "can switch a Tx clock recovery that it does not have"),
        (((148, 0x07),), "text", "vendor_name contains unprintable bytes"),
        (((214, 0x39),), "impossible", "is not a date"),
    ],
)
def test_findings(changes: tuple[tuple[int, int], ...], kind: str, words: str) -> None:
    findings = [item for item in decode_file(changed(LR4, *changes)).findings if item.kind == kind]
    assert any(words in item.message for item in findings), findings


@pytest.mark.parametrize(("byte", "value"), [(129, 0xC4), (194, 0x7F)])
def test_the_switch_of_a_clock_recovery_needs_both_bits(byte: int, value: int) -> None:
    module = decode_file(changed(LR4, (byte, value)))
    assert module.field("tx_cdr_on", 1).quality is Quality.NOT_SUPPORTED
    assert module.field("rx_cdr_on", 1).quality is Quality.OK


def test_thresholds_out_of_order() -> None:
    memory = bytearray(LR4)
    memory[512:514] = b"\x00\x00"
    findings = decode_file(bytes(memory)).findings
    assert [item.message for item in findings if item.kind == "contradiction"] == [
        "temperature thresholds are out of order: -5, 0, 70, 0 degC"
    ]


def test_a_wrong_checksum_marks_what_it_covers_and_what_that_decides() -> None:
    module = decode_file(changed(LR4, (150, 0x41), seal=False))
    assert module.checksums == {"CC_BASE": False, "CC_EXT": True}
    assert [item.message for item in module.findings if item.kind == "checksum"] == [
        f"CC_BASE over 128-190 is {sum(changed(LR4, (150, 0x41), seal=False)[128:191]) % 256:02X}h, but the module "
        f"contains {LR4[191]:02X}h"
    ]
    assert module.field("vendor_name").quality is Quality.CHECKSUM_WRONG
    assert module.field("cc_base").quality is Quality.CHECKSUM_WRONG
    assert module.field("serial_number").quality is Quality.OK
    assert module.field("rx_power", 1).quality is Quality.OK
    extended = decode_file(changed(LR4, (200, 0x41), seal=False))
    assert extended.field("vendor_name").quality is Quality.OK
    assert extended.field("rx_power", 1).quality is Quality.CHECKSUM_WRONG  # byte 220 says what it is


def test_file_forms() -> None:
    """Raw memories of every length from 128 bytes on, and JSON."""
    pages = lr4()
    document = {
        "lower": pages[None].hex(),
        "pages": {f"{page:02X}": data.hex() for page, data in pages.items() if page is not None},
    }
    from_json = decode_file(json.dumps(document).encode())
    assert {item.name for item in from_json.fields} == {item.name for item in decode_file(LR4).fields}
    assert from_json.identity == decode_file(LR4).identity
    short = decode_file(LR4[:256])
    assert short.identity.serial == "QT0000000001"
    assert kinds(short) == {"missing_page", "lane_difference"}
    shorter = decode_file(LR4[:200])
    assert kinds(shorter) == {"truncated"}
    assert shorter.field("vendor_name").value == "LUMION TEST"
    assert "serial_number" not in {item.name for item in shorter.fields}
    lower = decode_file(LR4[:128])
    assert lower.field("temperature").value == 30.5
    assert lower.field("rx_power", 1).value == 0.0
    assert lower.checksums == {}


def test_every_changed_byte_of_the_identity_is_detected() -> None:
    for byte in COVERED:
        for flip in (0x01, 0x80, 0xFF):
            module = decode_file(changed(LR4, (byte, LR4[byte] ^ flip), seal=False))
            assert False in module.checksums.values()
            assert module.damage
            assert max(finding.severity is Severity.WARNING for finding in module.findings)
