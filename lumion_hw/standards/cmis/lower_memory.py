"""CMIS lower memory, 00h:0-127: identity, state, flags, monitors, global controls, masks, applications, page select."""

from __future__ import annotations

from fractions import Fraction

from lumion_hw.standards.cmis.fields import Certainty, Field, bit, limit_flags
from lumion_hw.standards.registers import Access, Array, NumberFormat

PER_256_C = Fraction(1, 256)
"""Degrees Celsius per count of a temperature."""
PER_100_UV = Fraction(1, 10_000)
"""Volts per count of a supply voltage."""
APPLICATION_STRIDE = 32
"""Distance in bits between two application descriptors."""

_L = None
_CHECK = Certainty.CHECK
_MONITORS = (("temperature", 0, 0), ("supply", 0, 4), ("aux1", 1, 0), ("aux2", 1, 4), ("aux3", 2, 0), ("custom", 2, 4))


def application_fields(prefix: str, page: int | None, byte: int, count: int, first: int) -> tuple[Field, ...]:
    """Return the fields of a block of application descriptors."""
    array = Array("application", count, APPLICATION_STRIDE, first)
    return (
        Field(f"{prefix}_host_interface", page, byte, kind=NumberFormat.ENUM, codes="host_interface", array=array),
        Field(
            f"{prefix}_media_interface",
            page,
            byte + 1,
            kind=NumberFormat.ENUM,
            codes="media_interface_smf",
            array=array,
            note="the table depends on media_type",
        ),
        Field(f"{prefix}_host_lane_count", page, byte + 2, (7, 4), array=array),
        Field(f"{prefix}_media_lane_count", page, byte + 2, (3, 0), array=array),
        Field(
            f"{prefix}_host_lane_options",
            page,
            byte + 3,
            array=array,
            note="bit k: the application may start on host lane k + 1",
        ),
    )


def _monitor_bits(suffix: str, first_byte: int, access: Access) -> tuple[Field, ...]:
    return tuple(
        field
        for name, offset, low in _MONITORS
        for field in limit_flags(
            name, suffix, _L, first_byte + offset, low, access=access, support=f"{name}_monitor_supported"
        )
    )


def _summary() -> tuple[Field, ...]:
    banks = Array("bank", 4, 8, 0)
    return tuple(
        Field(f"flag_summary_page_{page:02x}h", _L, 4, (number, number), kind=NumberFormat.BOOL, array=banks)
        for number, page in enumerate((0x11, 0x12, 0x14, 0x2C))
    )


LOWER_MEMORY: tuple[Field, ...] = (
    Field("identifier", _L, 0, kind=NumberFormat.ENUM, codes="identifier"),
    Field("cmis_revision", _L, 1, note="major and minor nibble: 52h is 5.2"),
    bit("flat_memory", _L, 2, 7, note="only the lower memory and page 00h exist"),
    bit("stepped_config_only", _L, 2, 6),
    Field("mci_max_speed", _L, 2, (3, 2), kind=NumberFormat.ENUM, codes="mci_speed", note="bits 5 to 2 since CMIS 5.3"),
    Field(
        "auto_commissioning",
        _L,
        2,
        (1, 0),
        kind=NumberFormat.ENUM,
        codes="auto_commissioning",
        note="CMIS 5.3 and later",
    ),
    Field(
        "module_state",
        _L,
        3,
        (3, 1),
        kind=NumberFormat.ENUM,
        codes="module_state",
        note="the upper nibble may be populated",
    ),
    bit("interrupt_deasserted", _L, 3, 0, note="0: the interrupt is asserted"),
    *_summary(),
    bit("cdb_complete_2_flag", _L, 8, 7, access=Access.COR, support="cdb_instances"),
    bit("cdb_complete_1_flag", _L, 8, 6, access=Access.COR, support="cdb_instances"),
    bit("data_path_firmware_error_flag", _L, 8, 2, access=Access.COR),
    bit("module_firmware_error_flag", _L, 8, 1, access=Access.COR),
    bit("module_state_changed_flag", _L, 8, 0, access=Access.COR),
    *_monitor_bits("flag", 9, Access.COR),
    Field("custom_flags", _L, 13, kind=NumberFormat.BYTES, access=Access.COR),
    Field(
        "temperature",
        _L,
        14,
        length=2,
        kind=NumberFormat.INT,
        scale=PER_256_C,
        unit="degC",
        support="temperature_monitor_supported",
    ),
    Field("supply", _L, 16, length=2, scale=PER_100_UV, unit="V", support="supply_monitor_supported"),
    *(
        Field(
            f"aux{number}",
            _L,
            16 + 2 * number,
            length=2,
            kind=NumberFormat.INT,
            support=f"aux{number}_monitor_supported",
            note=f"meaning from aux{number}_is_{quantity}",
        )
        for number, quantity in enumerate(("tec_current", "tec_current", "supply_2"), 1)
    ),
    Field("custom_monitor", _L, 24, length=2, kind=NumberFormat.BYTES, support="custom_monitor_supported"),
    bit("bank_broadcast", _L, 26, 7, access=Access.RW, support="bank_broadcast_supported"),
    bit("low_pwr_allow_request_hw", _L, 26, 6, access=Access.RW, note="1 after reset; CMIS 4: LowPwr"),
    bit("squelch_method_select", _L, 26, 5, access=Access.RW, note="0 OMA, 1 average power"),
    bit("low_pwr_request_sw", _L, 26, 4, access=Access.RW, note="CMIS 4: ForceLowPwr"),
    bit("software_reset", _L, 26, 3, access=Access.WO_SC),
    bit("cdb_complete_2_mask", _L, 31, 7, access=Access.RW, support="cdb_instances"),
    bit("cdb_complete_1_mask", _L, 31, 6, access=Access.RW, support="cdb_instances"),
    bit("data_path_firmware_error_mask", _L, 31, 2, access=Access.RW),
    bit("module_firmware_error_mask", _L, 31, 1, access=Access.RW),
    bit("module_state_changed_mask", _L, 31, 0, access=Access.RW),
    *_monitor_bits("mask", 32, Access.RW),
    Field("custom_masks", _L, 36, kind=NumberFormat.BYTES, access=Access.RW),
    Field(
        "cdb_status",
        _L,
        37,
        kind=NumberFormat.ENUM,
        codes="cdb_status",
        array=Array("CDB instance", 2, 8),
        support="cdb_instances",
    ),
    Field("firmware_major", _L, 39, note="of the active firmware"),
    Field("firmware_minor", _L, 40, note="of the active firmware"),
    Field("fault_cause", _L, 41, kind=NumberFormat.ENUM, codes="fault_cause"),
    Field("function_type", _L, 57, certainty=_CHECK, note="0 transmission, 1 resource module"),
    Field("media_type", _L, 85, kind=NumberFormat.ENUM, codes="media_type"),
    *application_fields("application", _L, 86, 8, 1),
    Field("password_change", _L, 118, length=4, access=Access.WO_SC),
    Field("password_entry", _L, 122, length=4, access=Access.WO_SC, note="host default 00001011h"),
    Field("bank_select", _L, 126, access=Access.RW, note="write with page_select in one transaction"),
    Field("page_select", _L, 127, access=Access.RWW, note="returns to 00h for an unsupported page"),
)
"""All fields of the lower memory."""

DEFAULT_HOST_PASSWORD = 0x0000_1011
"""Initial host password of a module."""
FLAT_MEMORY_BYTE, FLAT_MEMORY = 2, 0x80
"""Byte and bit of the lower memory that mark a module without other pages than 00h."""
BANK_SELECT_BYTE = 126
"""Byte of BankSelect in the lower memory."""
PAGE_SELECT_BYTE = 127
"""Byte of PageSelect in the lower memory."""
