"""The register map of SFP/SFP+ modules after SFF-8472, as data: fields, bits, checksums, and their number formats.

Pure description, shared by whoever reads such a module and whoever imitates one. Offsets count within one I2C device;
multi-byte values are big-endian. After SFF-8472 Rev 12.x; the table numbers below still have to be compared with it.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable
from dataclasses import dataclass

A0H = 0x50
"""7-bit I2C address of the identity memory (8-bit form A0h)."""
A2H = 0x51
"""7-bit I2C address of the diagnostic memory (8-bit form A2h); answers only if ``ddm_implemented``."""
MEMORY_SIZE = 256
"""Bytes addressed in each device."""


class Kind(enum.Enum):
    """Number format of a field; the value is its ``struct`` code where it has one."""

    TEXT = "text"
    BYTES = "bytes"
    U8 = ">B"
    U16 = ">H"
    S16 = ">h"
    F32 = ">f"


class Access(enum.Enum):
    """Who may change a field. A ``MIXED`` field has bits of both kinds: see :attr:`Field.write_mask`."""

    RO = "read only"
    RW = "read and write"
    WO = "write only"
    MIXED = "some bits can be written"


@dataclass(frozen=True)
class Field:
    """One field of the map.

    Attributes:
        name: Field name, unique in the map.
        device: 7-bit I2C address, ``A0H`` or ``A2H``.
        offset: First byte.
        length: Number of bytes.
        kind: Number format.
        scale: Unit per count of the raw number.
        unit: Unit of ``raw * scale``; empty for codes, text and calibration constants.
        access: Who may change it.
        write_mask: Bits of a ``MIXED`` one-byte field the host may write.
    """

    name: str
    device: int
    offset: int
    length: int
    kind: Kind
    scale: float = 1.0
    unit: str = ""
    access: Access = Access.RO
    write_mask: int = 0

    @property
    def end(self) -> int:
        """First byte after the field."""
        return self.offset + self.length


@dataclass(frozen=True)
class Bit:
    """One named bit: ``device``, byte ``offset`` and bit number 0 (least significant) to 7."""

    name: str
    device: int
    offset: int
    bit: int

    @property
    def mask(self) -> int:
        """The bit as a byte mask."""
        return 1 << self.bit


@dataclass(frozen=True)
class Checksum:
    """A checksum byte at ``offset`` over the bytes ``first`` to ``last`` (both included) of ``device``."""

    name: str
    device: int
    first: int
    last: int
    offset: int


CHECKSUMS: dict[str, Checksum] = {
    item.name: item
    for item in (
        Checksum("CC_BASE", A0H, 0, 62, 63),
        Checksum("CC_EXT", A0H, 64, 94, 95),
        Checksum("CC_DMI", A2H, 0, 94, 95),
    )
}
"""The three check sums, SFF-8472 Tables 4-1 and 9-1."""


def _thresholds(quantity: str, offset: int, kind: Kind, scale: float, unit: str) -> tuple[Field, ...]:
    """Return the four thresholds of one monitor, in the order high alarm, low alarm, high and low warning."""
    names = ("high_alarm", "low_alarm", "high_warning", "low_warning")
    return tuple(
        Field(f"{quantity}_{name}", A2H, offset + 2 * index, 2, kind, scale, unit) for index, name in enumerate(names)
    )


_IDENTITY: tuple[Field, ...] = (
    Field("identifier", A0H, 0, 1, Kind.U8),
    Field("ext_identifier", A0H, 1, 1, Kind.U8),
    Field("connector", A0H, 2, 1, Kind.U8),
    Field("transceiver_codes", A0H, 3, 8, Kind.BYTES),
    Field("encoding", A0H, 11, 1, Kind.U8),
    Field("nominal_rate", A0H, 12, 1, Kind.U8, 100.0, "MBd"),
    Field("rate_identifier", A0H, 13, 1, Kind.U8),
    Field("length_smf_km", A0H, 14, 1, Kind.U8, 1.0, "km"),
    Field("length_smf_100m", A0H, 15, 1, Kind.U8, 100.0, "m"),
    Field("length_om2", A0H, 16, 1, Kind.U8, 10.0, "m"),
    Field("length_om1", A0H, 17, 1, Kind.U8, 10.0, "m"),
    Field("length_om4", A0H, 18, 1, Kind.U8, 10.0, "m"),
    Field("length_om3", A0H, 19, 1, Kind.U8, 10.0, "m"),
    Field("vendor_name", A0H, 20, 16, Kind.TEXT),
    Field("ext_compliance", A0H, 36, 1, Kind.U8),
    Field("vendor_oui", A0H, 37, 3, Kind.BYTES),
    Field("part_number", A0H, 40, 16, Kind.TEXT),
    Field("revision", A0H, 56, 4, Kind.TEXT),
    Field("wavelength", A0H, 60, 2, Kind.U16, 1.0, "nm"),
    Field("wavelength_fraction", A0H, 62, 1, Kind.U8, 0.01, "nm"),
    Field("cc_base", A0H, 63, 1, Kind.U8),
    Field("option_values", A0H, 64, 2, Kind.BYTES),
    Field("rate_margin_max", A0H, 66, 1, Kind.U8, 1.0, "%"),
    Field("rate_margin_min", A0H, 67, 1, Kind.U8, 1.0, "%"),
    Field("serial_number", A0H, 68, 16, Kind.TEXT),
    Field("date_code", A0H, 84, 8, Kind.TEXT),
    Field("diagnostic_type", A0H, 92, 1, Kind.U8),
    Field("enhanced_options", A0H, 93, 1, Kind.U8),
    Field("compliance", A0H, 94, 1, Kind.U8),
    Field("cc_ext", A0H, 95, 1, Kind.U8),
    Field("vendor_specific", A0H, 96, 32, Kind.BYTES),
)
"""A0h, SFF-8472 Table 4-1."""

_FACTORY_DATA: tuple[Field, ...] = (
    *_thresholds("temperature", 0, Kind.S16, 1.0 / 256.0, "degC"),
    *_thresholds("supply", 8, Kind.U16, 100e-6, "V"),
    *_thresholds("tx_bias", 16, Kind.U16, 2e-3, "mA"),
    *_thresholds("tx_power", 24, Kind.U16, 1e-7, "W"),
    *_thresholds("rx_power", 32, Kind.U16, 1e-7, "W"),
    # A2h calibration constants, Table 9-6: slopes are U8.8, offsets in counts of the monitor.
    Field("cal_rx_power_4", A2H, 56, 4, Kind.F32),
    Field("cal_rx_power_3", A2H, 60, 4, Kind.F32),
    Field("cal_rx_power_2", A2H, 64, 4, Kind.F32),
    Field("cal_rx_power_1", A2H, 68, 4, Kind.F32),
    Field("cal_rx_power_0", A2H, 72, 4, Kind.F32),
    Field("cal_tx_bias_slope", A2H, 76, 2, Kind.U16, 1.0 / 256.0),
    Field("cal_tx_bias_offset", A2H, 78, 2, Kind.S16),
    Field("cal_tx_power_slope", A2H, 80, 2, Kind.U16, 1.0 / 256.0),
    Field("cal_tx_power_offset", A2H, 82, 2, Kind.S16),
    Field("cal_temperature_slope", A2H, 84, 2, Kind.U16, 1.0 / 256.0),
    Field("cal_temperature_offset", A2H, 86, 2, Kind.S16),
    Field("cal_supply_slope", A2H, 88, 2, Kind.U16, 1.0 / 256.0),
    Field("cal_supply_offset", A2H, 90, 2, Kind.S16),
    Field("cc_dmi", A2H, 95, 1, Kind.U8),
)
"""A2h thresholds (Table 9-5, same format as the monitors) and calibration constants (Table 9-6, slopes U8.8)."""

_LIVE: tuple[Field, ...] = (
    Field("temperature", A2H, 96, 2, Kind.S16, 1.0 / 256.0, "degC"),
    Field("supply", A2H, 98, 2, Kind.U16, 100e-6, "V"),
    Field("tx_bias", A2H, 100, 2, Kind.U16, 2e-3, "mA"),
    Field("tx_power", A2H, 102, 2, Kind.U16, 1e-7, "W"),
    Field("rx_power", A2H, 104, 2, Kind.U16, 1e-7, "W"),
    # A2h status, control and flags, Tables 9-11 to 9-14.
    Field("status_control", A2H, 110, 1, Kind.U8, access=Access.MIXED, write_mask=0b0100_1000),
    Field("alarm_flags", A2H, 112, 2, Kind.U16),
    Field("tx_input_equalization", A2H, 114, 1, Kind.U8, access=Access.RW),
    Field("rx_output_emphasis", A2H, 115, 1, Kind.U8, access=Access.RW),
    Field("warning_flags", A2H, 116, 2, Kind.U16),
    Field("ext_status_control", A2H, 118, 1, Kind.U8, access=Access.MIXED, write_mask=0b0000_1001),
    Field("password", A2H, 123, 4, Kind.BYTES, access=Access.WO),
    Field("page_select", A2H, 127, 1, Kind.U8, access=Access.RW),
    Field("user_eeprom", A2H, 128, 120, Kind.BYTES, access=Access.RW),
    Field("vendor_control", A2H, 248, 8, Kind.BYTES, access=Access.RO),
)
"""A2h monitors, status, control and flags, Tables 9-11 to 9-14."""

FIELDS: dict[str, Field] = {field.name: field for field in (*_IDENTITY, *_FACTORY_DATA, *_LIVE)}
"""All fields by name."""

BITS: dict[str, Bit] = {
    bit.name: bit
    for bit in (
        # Transceiver codes, Table 5-3 (byte 3); all of them are in sff8472_codes.
        Bit("code_10gbase_er", A0H, 3, 7),
        Bit("code_10gbase_lrm", A0H, 3, 6),
        Bit("code_10gbase_lr", A0H, 3, 5),
        Bit("code_10gbase_sr", A0H, 3, 4),
        # Options, Table 8-3.
        Bit("power_level_3", A0H, 64, 5),
        Bit("paging_implemented", A0H, 64, 4),
        Bit("retimer", A0H, 64, 3),
        Bit("cooled", A0H, 64, 2),
        Bit("power_level_2", A0H, 64, 1),
        Bit("linear_rx", A0H, 64, 0),
        Bit("rx_decision_threshold", A0H, 65, 7),
        Bit("tunable", A0H, 65, 6),
        Bit("rate_select", A0H, 65, 5),
        Bit("tx_disable_implemented", A0H, 65, 4),
        Bit("tx_fault_implemented", A0H, 65, 3),
        Bit("los_inverted", A0H, 65, 2),
        Bit("los_implemented", A0H, 65, 1),
        # Diagnostic monitoring type, Table 8-5.
        Bit("ddm_implemented", A0H, 92, 6),
        Bit("internally_calibrated", A0H, 92, 5),
        Bit("externally_calibrated", A0H, 92, 4),
        Bit("rx_power_is_average", A0H, 92, 3),
        Bit("address_change_required", A0H, 92, 2),
        # Enhanced options, Table 8-6.
        Bit("flags_implemented", A0H, 93, 7),
        Bit("soft_tx_disable_implemented", A0H, 93, 6),
        Bit("soft_tx_fault_implemented", A0H, 93, 5),
        Bit("soft_rx_los_implemented", A0H, 93, 4),
        Bit("soft_rate_select_implemented", A0H, 93, 3),
        # Status and control, Table 9-11.
        Bit("tx_disable_state", A2H, 110, 7),
        Bit("soft_tx_disable", A2H, 110, 6),
        Bit("rs1_state", A2H, 110, 5),
        Bit("rs0_state", A2H, 110, 4),
        Bit("soft_rs0_select", A2H, 110, 3),
        Bit("tx_fault", A2H, 110, 2),
        Bit("rx_los", A2H, 110, 1),
        Bit("data_not_ready", A2H, 110, 0),
        # Extended status and control, Table 9-14.
        Bit("soft_rs1_select", A2H, 118, 3),
        Bit("power_level_state", A2H, 118, 1),
        Bit("power_level_select", A2H, 118, 0),
    )
}
"""All named bits by name."""

FLAG_BITS: dict[str, int] = {
    "temperature_high": 15,
    "temperature_low": 14,
    "supply_high": 13,
    "supply_low": 12,
    "tx_bias_high": 11,
    "tx_bias_low": 10,
    "tx_power_high": 9,
    "tx_power_low": 8,
    "rx_power_high": 7,
    "rx_power_low": 6,
}
"""Bit numbers within ``alarm_flags`` and, in the same order, ``warning_flags`` (Tables 9-12 and 9-13)."""


def checksum(data: Iterable[int]) -> int:
    """Return the sum of the bytes modulo 256, the form of all three SFF-8472 check sums."""
    return sum(data) & 0xFF


def checksum_matches(item: Checksum, memory: bytes) -> bool:
    """Tell whether ``memory``, an image of ``item.device`` from offset 0, carries the right checksum byte."""
    return checksum(memory[item.first : item.last + 1]) == memory[item.offset]


def decode(field: Field, data: bytes) -> int | float | str | bytes:
    """Return the raw number, the stripped text or the bytes of a field; the scale is not applied.

    Args:
        field: The field.
        data: Exactly its bytes.

    Raises:
        ValueError: ``data`` has another length than the field.
    """
    if len(data) != field.length:
        raise ValueError(f"{field.name} has {field.length} bytes, not {len(data)}")
    if field.kind is Kind.BYTES:
        return data
    if field.kind is Kind.TEXT:
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "?" for byte in data.rstrip(b" \x00"))
        return text.rstrip()
    number: int | float = struct.unpack(field.kind.value, data)[0]
    return number


def encode(field: Field, value: int | float | str | bytes) -> bytes:
    """Return the bytes of a field: the inverse of :func:`decode`; text is padded with spaces.

    Raises:
        ValueError: The value does not fit the field.
    """
    if isinstance(value, (str, bytes)):
        data = value.encode("ascii") if isinstance(value, str) else value
        if field.kind is Kind.TEXT:
            data = data.ljust(field.length)
        if field.kind not in (Kind.TEXT, Kind.BYTES) or len(data) != field.length:
            raise ValueError(f"{value!r} does not fit {field.name} ({field.length} bytes)")
        return data
    if field.kind in (Kind.TEXT, Kind.BYTES):
        raise ValueError(f"{field.name} takes text or bytes, not {value!r}")
    try:
        return struct.pack(field.kind.value, value if field.kind is Kind.F32 else int(value))
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{value!r} does not fit {field.name}") from error
