"""Codes of CMIS registers and their names.

Unknown codes are not an error; they are shown as ``0xNN``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from lumion_hw.interfaces import quality
from lumion_hw.standards.cmis import interface_ids

Quality = quality.Quality
"""Quality of a reading."""


class ModuleState(enum.IntEnum):
    """Module state, 00h:3.3-1."""

    LOW_PWR = 1
    PWR_UP = 2
    READY = 3
    PWR_DN = 4
    FAULT = 5


MODULE_TRANSIENT = frozenset({ModuleState.PWR_UP, ModuleState.PWR_DN})
"""Module states that end by themselves."""


class DataPathState(enum.IntEnum):
    """Data path state of a host lane, 11h:128-131. An unused lane is in the state ``DEACTIVATED``."""

    DEACTIVATED = 1
    INIT = 2
    DEINIT = 3
    ACTIVATED = 4
    TX_TURN_ON = 5
    TX_TURN_OFF = 6
    INITIALIZED = 7


DATA_PATH_TRANSIENT = frozenset(
    {DataPathState.INIT, DataPathState.DEINIT, DataPathState.TX_TURN_ON, DataPathState.TX_TURN_OFF}
)
"""Data path states that end by themselves. A host must not write during these states."""


class ConfigStatus(enum.IntEnum):
    """Result of the last applied configuration of a host lane, 11h:202-205. Codes 13 to 15 are custom."""

    UNDEFINED = 0x0
    SUCCESS = 0x1
    REJECTED = 0x2
    REJECTED_INVALID_APPSEL = 0x3
    REJECTED_INVALID_DATA_PATH = 0x4
    REJECTED_INVALID_SI = 0x5
    REJECTED_LANES_IN_USE = 0x6
    REJECTED_PARTIAL_DATA_PATH = 0x7
    IN_PROGRESS = 0xC


class FaultCause(enum.IntEnum):
    """Cause of ``ModuleState.FAULT``, 00h:41. Codes 32 to 63 are custom; 4 to 6 exist in newer revisions."""

    NONE = 0
    TEC_RUNAWAY = 1
    DATA_MEMORY = 2
    PROGRAM_MEMORY = 3
    TRANSMITTER = 4
    RECEIVER = 5
    TEMPERATURE = 6


class MediaType(enum.IntEnum):
    """Media type, 00h:85, which selects the table of media interface ids."""

    UNDEFINED = 0
    MMF = 1
    SMF = 2
    PASSIVE_COPPER = 3
    ACTIVE_CABLE = 4
    BASE_T = 5


class AutoCommissioning(enum.IntEnum):
    """How a ``SteppedConfigOnly`` module configures lanes by itself, 00h:2.1-0 (CMIS 5.3 and later)."""

    NONE = 0
    REGULAR = 1
    HOT = 2


class CdbStatus(enum.IntEnum):
    """Status of a CDB command, 00h:37 and 00h:38: b7 busy, b6 failed, b5:0 result."""

    IDLE = 0x00
    DONE = 0x01
    DONE_PREVIOUS_ABORTED = 0x03
    FAILED = 0x40
    UNKNOWN_COMMAND = 0x41
    PARAMETER = 0x42
    NOT_ABORTED = 0x43
    CHECK_TIMEOUT = 0x44
    BAD_CHECK_CODE = 0x45
    PASSWORD = 0x46
    WRONG_STATE = 0x47
    CAPTURED = 0x81
    CHECKING = 0x82
    EXECUTING = 0x83


CDB_BUSY = 0x80
"""Bit of a CDB status: the command is still running."""
CDB_FAILED = 0x40
"""Bit of a CDB status: the command failed."""


class CdbCommand(enum.IntEnum):
    """CDB commands used in this project."""

    QUERY_STATUS = 0x0000
    ENTER_PASSWORD = 0x0001
    CHANGE_PASSWORD = 0x0002
    MODULE_FEATURES = 0x0040
    FIRMWARE_FEATURES = 0x0041
    FIRMWARE_INFO = 0x0100
    FIRMWARE_START = 0x0101
    FIRMWARE_ABORT = 0x0102
    FIRMWARE_WRITE_LPL = 0x0103
    FIRMWARE_WRITE_EPL = 0x0104
    FIRMWARE_COMPLETE = 0x0107
    FIRMWARE_COPY = 0x0108
    FIRMWARE_RUN = 0x0109
    FIRMWARE_COMMIT = 0x010A


CDB_FIRMWARE_WRITES = range(0x0101, 0x010B)
"""CDB commands that change firmware."""


class Pattern(enum.IntEnum):
    """Test patterns: code in page 13h, and bit number in its lists of supported patterns."""

    PRBS31Q = 0x0
    PRBS31 = 0x1
    PRBS23Q = 0x2
    PRBS23 = 0x3
    PRBS15Q = 0x4
    PRBS15 = 0x5
    PRBS13Q = 0x6
    PRBS13 = 0x7
    PRBS9Q = 0x8
    PRBS9 = 0x9
    PRBS7Q = 0xA
    PRBS7 = 0xB
    SSPRQ = 0xC
    CUSTOM = 0xE
    USER = 0xF


class DiagnosticsSelector(enum.IntEnum):
    """Selects the content of 14h:192-255; written to 14h:128."""

    NONE = 0x00
    BER = 0x01
    HOST_COUNTERS_1_4 = 0x02
    HOST_COUNTERS_5_8 = 0x03
    MEDIA_COUNTERS_1_4 = 0x04
    MEDIA_COUNTERS_5_8 = 0x05
    SNR = 0x06
    GATED_BER = 0x11
    GATED_HOST_COUNTERS_1_4 = 0x12
    GATED_HOST_COUNTERS_5_8 = 0x13
    GATED_MEDIA_COUNTERS_1_4 = 0x14
    GATED_MEDIA_COUNTERS_5_8 = 0x15


class Grid(enum.IntEnum):
    """Codes of the frequency grids, 12h:128-135.7-4."""

    GHZ_3_125 = 0
    GHZ_6_25 = 1
    GHZ_12_5 = 2
    GHZ_25 = 3
    GHZ_50 = 4
    GHZ_100 = 5
    GHZ_33 = 6
    GHZ_75 = 7
    GHZ_150 = 8


def _table(members: type[enum.IntEnum]) -> dict[int, str]:
    return {member.value: member.name.lower() for member in members}


TABLES: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {
        "module_state": _table(ModuleState),
        "data_path_state": _table(DataPathState),
        "config_status": _table(ConfigStatus),
        "network_path_config_status": {
            **_table(ConfigStatus),
            0x4: "rejected_invalid_network_path",
            0x7: "rejected_partial_network_path",
        },
        "fault_cause": _table(FaultCause),
        "media_type": _table(MediaType),
        "auto_commissioning": _table(AutoCommissioning),
        "cdb_status": _table(CdbStatus),
        "cdb_command": _table(CdbCommand),
        "pattern": _table(Pattern),
        "diagnostics_selector": _table(DiagnosticsSelector),
        "grid": {
            0: "3.125 GHz",
            1: "6.25 GHz",
            2: "12.5 GHz",
            3: "25 GHz",
            4: "50 GHz",
            5: "100 GHz",
            6: "33.3 GHz",
            7: "75 GHz",
            8: "150 GHz",
        },
        "squelch_method": {0: "none", 1: "OMA", 2: "average power", 3: "host selects"},
        "laser_control_mode": {0: "constant current", 1: "constant power"},
        "laser_state": {0: "off", 1: "ramping", 2: "on"},
        "laser_fault_code": {0: "none", 1: "power control failed", 2: "current control failed"},
        "laser_warning_code": {0: "none", 1: "power control", 2: "current control"},
        "mci_speed": {0: "400 kHz", 1: "1 MHz"},
        "identifier": interface_ids.IDENTIFIERS,
        "connector": interface_ids.CONNECTORS,
        "technology": interface_ids.TECHNOLOGIES,
        "host_interface": interface_ids.HOST_INTERFACES,
        "media_interface_smf": interface_ids.MEDIA_SMF,
        "media_interface_mmf": interface_ids.MEDIA_MMF,
        "media_interface_copper": interface_ids.MEDIA_PASSIVE_COPPER,
        "media_interface_active": interface_ids.MEDIA_ACTIVE_CABLE,
        "media_interface_base_t": interface_ids.MEDIA_BASE_T,
    }
)
"""Names of the codes of ``ENUM`` fields, by the name in ``Field.codes``."""

MEDIA_TABLES: Mapping[int, str] = MappingProxyType(
    {
        MediaType.MMF: "media_interface_mmf",
        MediaType.SMF: "media_interface_smf",
        MediaType.PASSIVE_COPPER: "media_interface_copper",
        MediaType.ACTIVE_CABLE: "media_interface_active",
        MediaType.BASE_T: "media_interface_base_t",
    }
)
"""Name of the table in ``TABLES`` with the media interface ids, by media type."""


VENDOR_SPECIFIC = "vendor-specific"
"""Text for codes that the vendor defines."""
_VENDOR_OR_RESERVED = ((range(0x80, 0x100), VENDOR_SPECIFIC), (range(0x80), "reserved"))
_INTERFACES = ((range(0xC0, 0x100), VENDOR_SPECIFIC), (range(0xC0), "reserved"))

RANGES: Mapping[str, tuple[tuple[range, str], ...]] = MappingProxyType(
    {
        "identifier": _VENDOR_OR_RESERVED,
        "connector": _VENDOR_OR_RESERVED,
        "technology": ((range(0x100), "reserved"),),
        "media_type": ((range(0x40, 0x90), VENDOR_SPECIFIC), (range(0x100), "reserved")),
        "fault_cause": ((range(32, 64), VENDOR_SPECIFIC), (range(0x100), "reserved")),
        **dict.fromkeys(
            ("config_status", "network_path_config_status"),
            ((range(0xD, 0x10), VENDOR_SPECIFIC), (range(0x10), "reserved")),
        ),
        "laser_state": ((range(3, 4), "reserved"),),
        **dict.fromkeys(
            ("laser_fault_code", "laser_warning_code"), ((range(9, 16), VENDOR_SPECIFIC), (range(9), "reserved"))
        ),
        **dict.fromkeys(("host_interface", *MEDIA_TABLES.values()), _INTERFACES),
    }
)
"""Meaning of code ranges that are not in ``TABLES`` (SFF-8024 Tables 4-1 to 4-10, CMIS). The first match counts."""


def is_known(table: str, code: int) -> bool:
    """Return whether a table lists a code."""
    return code in TABLES.get(table, {})


def describe(table: str, code: int) -> str:
    """Return the name of a code in one of the ``TABLES``, or ``0xNN`` with the meaning of its range."""
    if is_known(table, code):
        return TABLES[table][code]
    kind = next((kind for codes, kind in RANGES.get(table, ()) if code in codes), "")
    return f"0x{code:02X} ({kind})" if kind else f"0x{code:02X}"


def media_table(media_type: int) -> str:
    """Return the name of the table with the media interface ids of a media type; empty if there is none."""
    return MEDIA_TABLES.get(media_type, "")


def describe_media_interface(media_type: int, code: int) -> str:
    """Return the name of a media interface id of this media type."""
    if not code:
        return "undefined"  # also where there is no table
    return describe(media_table(media_type), code)
