"""Memory of an emulated QSFP module after a reset, and the bits that a host can write.

Number formats (SFF-8636 clauses 6.2.4 and 6.2.5): temperature in 1/256 degC, signed; supply in 100 uV; powers in
0.1 uW; bias in 2 uA.
"""

from __future__ import annotations

from lumion_hw.emulator.transponders.qsfp import offsets
from lumion_hw.emulator.transponders.qsfp.offsets import HALF_BYTES, OPTION_BITS
from lumion_hw.emulator.transponders.qsfp.profiles import REVISION_8436, QsfpProfile
from lumion_hw.quantities import w_from_dbm

_UNITS = {"temperature": 1 / 256, "supply": 100e-6, "tx_bias": 2e-3, "tx_power": 0.1e-6, "rx_power": 0.1e-6}
_VENDOR, _REVISION, _DATE = "LUMION EMU", "A0", "260101"
_EXTENDED_RATE_MBAUD = 25_400.0
"""Above this rate, byte 140 is FFh and byte 222 gives the rate in units of 250 MBd (clause 6.3.6)."""


def encode_monitor(name: str, value: float) -> bytes:
    """Return the two bytes of a monitor or threshold in degC, V, mA or W, limited to the range of the register."""
    low, high = (-0x8000, 0x7FFF) if name == "temperature" else (0, 0xFFFF)
    count = min(max(round(value / _UNITS[name]), low), high)
    return (count & 0xFFFF).to_bytes(2, "big")


def decode_monitor(name: str, data: bytes) -> int:
    """Return the register integer of a monitor or threshold."""
    return int.from_bytes(data, "big", signed=name == "temperature")


def _text(value: str, length: int) -> bytes:
    """Return ASCII text, left-aligned and padded with spaces. Raises ``ValueError`` if it does not fit."""
    data = value.encode("ascii")
    if len(data) > length:
        raise ValueError(f"{value!r} has {len(data)} characters; the field has {length}")
    return data.ljust(length)


def lower_memory(profile: QsfpProfile) -> bytearray:
    """Return the lower memory after a reset, without status and monitors."""
    lower = bytearray(HALF_BYTES)
    lower[offsets.IDENTIFIER] = profile.identifier
    lower[offsets.REVISION] = profile.revision
    # Clock recovery is on by default.
    lower[offsets.CDR_CONTROL] = 0xFF if profile.has_cdr else 0x00
    if profile.power_class == 8:
        lower[offsets.MAX_POWER] = round(10 * profile.max_power_w)
    return lower


def identity_page(profile: QsfpProfile, serial: str) -> bytearray:
    """Return page 00h with its checksums. Raises ``ValueError`` if a text does not fit."""
    fields: dict[int, bytes] = {
        offsets.VENDOR_NAME: _text(_VENDOR, 16),
        offsets.PART_NUMBER: _text(profile.part_number, 16),
        offsets.VENDOR_REVISION: _text(_REVISION, 2),
        offsets.SERIAL_NUMBER: _text(serial, 16),
        offsets.DATE_CODE: _text(_DATE, 8),
        offsets.LENGTHS: bytes(profile.lengths),
    }
    extended_rate = profile.rate_mbaud > _EXTENDED_RATE_MBAUD
    codes = {
        HALF_BYTES: profile.identifier,
        offsets.EXTENDED_IDENTIFIER: profile.extended_identifier,
        offsets.CONNECTOR: profile.connector,
        offsets.COMPLIANCE: profile.ethernet_code,
        offsets.ENCODING: profile.encoding,
        offsets.SIGNALLING_RATE: 0xFF if extended_rate else round(profile.rate_mbaud / 100),
        offsets.EXTENDED_SIGNALLING_RATE: round(profile.rate_mbaud / 250) if extended_rate else 0,
        offsets.RATE_SELECT_VERSION: 0x02 if profile.has("extended_rate_select") else 0x00,  # Table 6-18
        offsets.TECHNOLOGY: profile.technology,
        offsets.EXTENDED_COMPLIANCE: profile.extended_code,
    }
    if profile.attenuations_db:
        fields[offsets.WAVELENGTH] = bytes(profile.attenuations_db)
    else:
        fields[offsets.WAVELENGTH] = round(profile.nominal_nm / 0.05).to_bytes(2, "big")
        fields[offsets.WAVELENGTH_TOLERANCE] = round(profile.tolerance_nm / 0.005).to_bytes(2, "big")
    page = bytearray(HALF_BYTES)
    for byte, code in codes.items():
        page[byte - HALF_BYTES] = code
    for byte, data in fields.items():
        page[byte - HALF_BYTES : byte - HALF_BYTES + len(data)] = data
    for option in profile.options:
        byte, bit = OPTION_BITS[option]
        page[byte - HALF_BYTES] |= 1 << bit
    # Low eight bits of the sum of the bytes.
    for first, last in ((HALF_BYTES, offsets.BASE_CHECKSUM), (offsets.EXTENDED_COMPLIANCE, offsets.EXTENDED_CHECKSUM)):
        page[last - HALF_BYTES] = sum(page[first - HALF_BYTES : last - HALF_BYTES]) & 0xFF
    return page


def threshold_page(profile: QsfpProfile) -> bytearray:
    """Return page 03h after a reset. Monitors that the module does not have, have no thresholds."""
    page = bytearray(HALF_BYTES)
    for name, levels in profile.thresholds.items():
        if name == "tx_power" and not profile.has("tx_power_monitor"):
            continue
        first = offsets.THRESHOLDS[name] - HALF_BYTES
        for index, level in enumerate(levels):
            value = w_from_dbm(level) if name.endswith("power") else level
            page[first + 2 * index : first + 2 * index + 2] = encode_monitor(name, value)
    return page


def lower_write_mask(profile: QsfpProfile) -> bytes:
    """Return the bits of the lower memory that a host can write."""
    mask = bytearray(HALF_BYTES)
    if profile.is_flat:
        return bytes(mask)
    has = profile.has
    power_bits = offsets.OVERRIDE_BIT | offsets.LOW_POWER_BIT
    if profile.revision != REVISION_8436:
        power_bits |= offsets.ENABLE_5_TO_7_BIT | offsets.ENABLE_8_BIT
        power_bits |= offsets.SOFTWARE_RESET_BIT if has("software_reset") else 0
    masks = {
        offsets.TX_DISABLE: 0x0F if has("tx_disable") else 0,
        offsets.RX_RATE_SELECT: 0xFF if has("rate_select") else 0,
        offsets.TX_RATE_SELECT: 0xFF if has("rate_select") else 0,
        offsets.POWER_CONTROL: power_bits,
        offsets.CDR_CONTROL: (0xF0 if has("tx_cdr_control") else 0) | (0x0F if has("rx_cdr_control") else 0),
        offsets.FIRST_MASK: (0xF0 if has("tx_los") else 0) | 0x0F,
        offsets.FIRST_MASK + 1: 0x0F if has("tx_fault") else 0,
        offsets.FIRST_MASK + 2: (0xF0 if has("tx_cdr_lol") else 0) | (0x0F if has("rx_cdr_lol") else 0),
        offsets.FIRST_MASK + 3: 0xF0 | (offsets.INIT_COMPLETE_BIT if has("init_complete_flag") else 0),
        offsets.FIRST_MASK + 4: 0xF0,
        offsets.PAGE_SELECT: 0xFF,
    }
    for byte, bits in masks.items():
        mask[byte] = bits
    return bytes(mask)


def control_write_mask(profile: QsfpProfile) -> bytes:
    """Return the bits of page 03h that a host can write: squelch, output and the masks of the channel monitors."""
    mask = bytearray(HALF_BYTES)
    has = profile.has
    squelch = (0xF0 if has("rx_squelch_disable") else 0) | (0x0F if has("tx_squelch_disable") else 0)
    mask[offsets.SQUELCH_DISABLE - HALF_BYTES] = squelch
    mask[offsets.OUTPUT_DISABLE - HALF_BYTES] = 0xF0 if has("rx_output_disable") else 0
    last = offsets.LAST_MONITOR_MASK if has("tx_power_monitor") else offsets.LAST_MONITOR_MASK - 2
    for byte in range(offsets.FIRST_MONITOR_MASK, last + 1):
        mask[byte - HALF_BYTES] = 0xFF
    return bytes(mask)
