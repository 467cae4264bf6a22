"""The two memories of an emulated 10GBASE-ER SFP+ module (SFF-8472 Tables 4-1 and 9-1)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lumion_hw.quantities import w_from_dbm
from lumion_hw.standards.registers import checksum, encode_unscaled
from lumion_hw.standards.sff8472.registers import BITS, CHECKSUMS, FIELDS, MEMORY_SIZE

THRESHOLDS: Mapping[str, tuple[float, float, float, float]] = MappingProxyType(
    {
        "temperature": (75.0, -10.0, 70.0, -5.0),
        "supply": (3.63, 2.97, 3.465, 3.135),
        "tx_bias": (130.0, 20.0, 120.0, 30.0),
        "tx_power": (5.0, -7.7, 4.0, -4.7),
        "rx_power": (0.0, -20.0, -1.0, -15.8),
    }
)
"""High alarm, low alarm, high warning, low warning by monitor: degC, V, mA (bias), dBm (powers)."""

_ALARM_LEVELS = ("high_alarm", "low_alarm", "high_warning", "low_warning")


def raw_value(name: str, value: float) -> int:
    """Return the register integer of a monitor or threshold value (powers in W), limited to the register range."""
    count = round(value / float(FIELDS[name].scale))
    low, high = (-0x8000, 0x7FFF) if name.startswith("temperature") else (0, 0xFFFF)
    return min(max(count, low), high)


def identity_image(
    vendor: str,
    part_number: str,
    serial: str,
    *,
    revision: str = "A0",
    date_code: str = "260101",
    oui: bytes = bytes(3),
) -> bytearray:
    """Return the A0h memory with checksums (SFF-8472 Table 4-1). Raises ``ValueError`` if a string is too long."""
    values: dict[str, int | str | bytes] = {
        "identifier": 0x03,
        "ext_identifier": 0x04,
        "connector": 0x07,
        "transceiver_codes": bytes((0x80, 0, 0, 0, 0, 0, 0, 0)),
        "encoding": 0x06,
        "nominal_rate": 0x67,
        "length_smf_km": 0x28,
        "length_smf_100m": 0xFF,
        "vendor_name": vendor,
        "vendor_oui": oui,
        "part_number": part_number,
        "revision": revision,
        "wavelength": 1550,
        "option_values": bytes((0x06, 0x1A)),
        "serial_number": serial,
        "date_code": date_code,
        "diagnostic_type": 0x68,
        "enhanced_options": 0xF0,
        "compliance": 0x08,
    }
    memory = bytearray(MEMORY_SIZE)
    for name, value in values.items():
        field = FIELDS[name]
        memory[field.byte : field.end] = encode_unscaled(field, value)
    for name in ("CC_BASE", "CC_EXT"):
        item = CHECKSUMS[name]
        memory[item.byte] = checksum(memory[item.first : item.last + 1])
    return memory


def diagnostics_image(thresholds: Mapping[str, tuple[float, float, float, float]]) -> bytearray:
    """Return the A2h memory before any measurement."""
    memory = bytearray(MEMORY_SIZE)
    for quantity, levels in thresholds.items():
        for level, value in zip(_ALARM_LEVELS, levels, strict=True):
            name = f"{quantity}_{level}"
            count = raw_value(name, w_from_dbm(value) if quantity.endswith("power") else value)
            memory[FIELDS[name].byte : FIELDS[name].end] = encode_unscaled(FIELDS[name], count)
    # Internally calibrated: the external calibration constants must change nothing.
    constants = {"cal_rx_power_1": 1.0} | {
        f"cal_{quantity}_slope": 0x0100 for quantity in ("tx_bias", "tx_power", "temperature", "supply")
    }
    for name, constant in constants.items():
        memory[FIELDS[name].byte : FIELDS[name].end] = encode_unscaled(FIELDS[name], constant)
    item = CHECKSUMS["CC_DMI"]
    memory[item.byte] = checksum(memory[item.first : item.last + 1])
    return memory


def _write_masks() -> bytes:
    """Return the bits of memory A2h that a host can write (A0h 64.4, 93.3)."""
    masks = bytearray(MEMORY_SIZE)
    eeprom = FIELDS["user_eeprom"]
    masks[eeprom.byte : eeprom.end] = b"\xff" * eeprom.length
    for name in ("soft_tx_disable", "power_level_select"):
        masks[BITS[name].byte] |= BITS[name].mask
    return bytes(masks)


WRITE_MASKS = _write_masks()
"""Bits of each A2h byte that a host can change."""
