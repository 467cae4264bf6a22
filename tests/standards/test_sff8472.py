"""The SFF-8472 register map against the standard's layout and worked examples."""

from __future__ import annotations

import pytest

from lumion_hw.standards.registers import Access, NumberFormat, checksum, checksum_matches, encode_unscaled, unscaled
from lumion_hw.standards.sff8472 import registers as sff8472
from lumion_hw.standards.sff8472.registers import A0H, A2H, BITS, CHECKSUMS, FIELDS


def identity_memory() -> bytes:
    """The worked identity of a 10GBASE-ER module."""
    values: dict[str, int | str | bytes] = {
        "identifier": 0x03,
        "ext_identifier": 0x04,
        "connector": 0x07,
        "transceiver_codes": bytes([0x80, 0, 0, 0, 0, 0, 0, 0]),
        "encoding": 0x06,
        "nominal_rate": 0x67,
        "length_smf_km": 0x28,
        "length_smf_100m": 0xFF,
        "vendor_name": "LUMION EMU",
        "vendor_oui": bytes(3),
        "part_number": "EMU-10G-ER",
        "revision": "A0",
        "wavelength": 0x060E,
        "option_values": bytes([0x06, 0x1A]),
        "serial_number": "EMU0000001",
        "date_code": "260101",
        "diagnostic_type": 0x68,
        "enhanced_options": 0xF0,
        "compliance": 0x08,
    }
    memory = bytearray(256)
    for name, value in values.items():
        field = FIELDS[name]
        memory[field.byte : field.end] = encode_unscaled(field, value)
    for name in ("CC_BASE", "CC_EXT"):
        item = CHECKSUMS[name]
        memory[item.byte] = checksum(memory[item.first : item.last + 1])
    return bytes(memory)


def diagnostic_memory() -> bytes:
    """Thresholds and identity calibration of the same module, in the order of the map."""
    raw = (
        "4B00 F600 4600 FB00 8DCC 7404 875A 7A76 FDE8 2710 EA60 3A98 7B87 06A2 621F 0D3C 2710 0064 1F07 0107"
        + " 0000" * 8  # optional thresholds
        + " 00000000" * 3
        + " 3F800000 00000000"
        + " 0100 0000" * 4
    )
    memory = bytearray(256)
    constants = bytes.fromhex(raw)
    memory[: len(constants)] = constants
    return bytes(memory)


def test_the_check_sums_of_the_worked_identity() -> None:
    memory = identity_memory()
    assert memory[63] == 0xC2
    assert memory[95] == 0xE2
    assert checksum_matches(CHECKSUMS["CC_BASE"], memory)
    assert checksum_matches(CHECKSUMS["CC_EXT"], memory)
    wrong = bytearray(memory)
    wrong[70] ^= 1
    assert not checksum_matches(CHECKSUMS["CC_EXT"], bytes(wrong))


def test_the_check_sum_of_the_worked_constants() -> None:
    assert checksum(diagnostic_memory()[:95]) == 0x5C


@pytest.mark.parametrize(
    ("name", "device", "offset", "length"),
    [
        ("vendor_name", A0H, 20, 16),
        ("wavelength", A0H, 60, 2),
        ("serial_number", A0H, 68, 16),
        ("temperature_high_alarm", A2H, 0, 2),
        ("supply_low_alarm", A2H, 10, 2),
        ("tx_bias_high_warning", A2H, 20, 2),
        ("tx_power_low_warning", A2H, 30, 2),
        ("rx_power_low_warning", A2H, 38, 2),
        ("cal_rx_power_4", A2H, 56, 4),
        ("cal_supply_offset", A2H, 90, 2),
        ("temperature", A2H, 96, 2),
        ("rx_power", A2H, 104, 2),
        ("status_control", A2H, 110, 1),
        ("page_select", A2H, 127, 1),
    ],
)
def test_fields_are_where_the_standard_puts_them(name: str, device: int, offset: int, length: int) -> None:
    field = FIELDS[name]
    assert (field.space, field.byte, field.length) == (device, offset, length)


def test_no_two_fields_share_a_byte() -> None:
    for device in (A0H, A2H):
        taken = [byte for field in FIELDS.values() if field.space == device for byte in range(field.byte, field.end)]
        assert len(taken) == len(set(taken))
        assert max(taken) < sff8472.MEMORY_SIZE


def test_every_number_has_the_length_of_its_format() -> None:
    lengths = {NumberFormat.UINT: (1, 2), NumberFormat.INT: (2,), NumberFormat.F32: (4,)}
    assert all(field.length in lengths[field.kind] for field in FIELDS.values() if field.kind in lengths)


def test_the_host_may_write_the_select_bits_only() -> None:
    status = FIELDS["status_control"]
    assert status.access is Access.RW
    assert status.write_mask == BITS["soft_tx_disable"].mask | BITS["soft_rs0_select"].mask
    assert FIELDS["ext_status_control"].write_mask == (BITS["soft_rs1_select"].mask | BITS["power_level_select"].mask)
    assert all(field.write_mask == 0 for field in FIELDS.values() if field.access is not Access.RW)


@pytest.mark.parametrize(
    ("name", "data", "raw", "value"),
    [
        ("temperature", "1980", 0x1980, 25.5),
        ("temperature", "FB00", -0x500, -5.0),
        ("supply", "80E8", 0x80E8, 3.3),
        ("tx_bias", "C350", 0xC350, 100.0),
        ("tx_power", "2710", 0x2710, 1e-3),
        ("cal_rx_power_1", "3F800000", 1.0, 1.0),
        ("cal_tx_bias_slope", "0100", 0x100, 1.0),
        ("cal_tx_bias_offset", "FFFF", -1, -1.0),
        ("nominal_rate", "67", 0x67, 10300.0),
    ],
)
def test_numbers_are_big_endian_and_scaled(name: str, data: str, raw: float, value: float) -> None:
    field = FIELDS[name]
    number = unscaled(field, bytes.fromhex(data))
    assert number == raw
    assert isinstance(number, (int, float))
    assert number * field.scale == pytest.approx(value)
    assert encode_unscaled(field, number) == bytes.fromhex(data)


def test_text_is_padded_with_spaces_and_strange_bytes_are_shown() -> None:
    field = FIELDS["revision"]
    assert encode_unscaled(field, "A0") == b"A0  "
    assert unscaled(field, b"A0  ") == "A0"
    assert unscaled(field, b"A\x00\xff ") == "A??"
    assert unscaled(FIELDS["vendor_oui"], b"\x00\x01\x02") == b"\x00\x01\x02"


def test_what_does_not_fit_is_refused() -> None:
    for name, value in (("revision", "A0000"), ("temperature", 40000), ("temperature", "warm"), ("vendor_oui", 7)):
        with pytest.raises(ValueError, match=name):
            encode_unscaled(FIELDS[name], value)
    with pytest.raises(ValueError, match="2 bytes"):
        unscaled(FIELDS["temperature"], b"\x00")
