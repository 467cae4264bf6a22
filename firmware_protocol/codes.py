"""Codes, bits and states of the protocol (sections 3, 5, 6, 11, 12)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Self

PROTOCOL_MAJOR = 1
"""Major version of the protocol."""

MIN_MTU = 256
"""Frame size in bytes that every controller accepts (section 2.4)."""

NO_CHANNEL = 0xFFFF
"""Value of ``channel`` and ``index`` for "none" in transmitted data."""

SATURATED = 0xFFFF
"""Monitor code that means "above full scale" (section 6.1)."""

DRIVEN_TABLE = 255
"""Value of READBACK's field ``bank`` for the codes that are driven now (section 8.5)."""

FULL_SCALE_CODE = 65535
"""Heater and monitor code at full scale (section 6.1)."""

MAX_STORED_REPLY = 64
"""Longest reply that a controller stores for repetition, in bytes (section 4.2)."""

MAX_TEXT = 32
"""Longest text in an error reply, in bytes (section 5)."""


class Kind(IntEnum):
    """Kind of a frame: request, reply or event (low nibble of ``kind_version`` in the header)."""

    REQ = 0
    RSP = 1
    EVT = 2


class HeaderFlag(IntFlag):
    """Flags in the header of a frame."""

    MORE = 0x01
    RETRY = 0x02
    NO_REPLY = 0x04
    FAULT_PENDING = 0x80


class OutputsState(IntEnum):
    """State of the outputs (section 11.1). BOOT and SAFE drive zeros; GRACE keeps outputs on after a watchdog trip."""

    BOOT = 0
    READY = 1
    SWEEP = 2
    GRACE = 3
    SAFE = 4


class Drive(IntEnum):
    """Unit of ``dac_full_scale``: µV (voltage drive) or µA (current drive)."""

    VOLTAGE = 0
    CURRENT = 1


class _TableEnum(IntEnum):
    """Enum whose members have the columns of a table as attributes."""

    def __new__(cls, code: int, *columns: object) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        names = [name for name in cls.__annotations__ if name != "_value_"]
        for name, column in zip(names, columns, strict=True):
            setattr(member, name, column)
        return member


class Command(_TableEnum):
    """Command codes (protocol section 5).

    Attributes:
        marks: P: may be sent before the previous reply; N: accepts NO_REPLY; R: only reads; S: slow.
        states: Names of the output states that accept the command, or ``any``.
        min_request: Shortest request payload, in bytes.
    """

    _value_: int
    marks: str
    states: str
    min_request: int

    HELLO = 0x00, "R", "any", 24
    PING = 0x01, "PNR", "any", 4
    ESTOP = 0x02, "", "any", 4
    GET_STATS = 0x03, "PR", "any", 0
    CONFIG = 0x10, "", "any; APPLY: BOOT, READY, SAFE", 1
    STAGE = 0x11, "PN", "any", 10
    STAGE_SPARSE = 0x12, "PN", "any", 8
    COMMIT = 0x13, "P", "READY", 20
    SET = 0x14, "P", "READY", 8
    READBACK = 0x15, "PR", "any", 6
    READ_ADC = 0x20, "PR", "any", 8
    SUBSCRIBE = 0x21, "P", "any", 16
    WATCH = 0x22, "P", "any", 8
    SWEEP_LOAD = 0x30, "P", "any but SWEEP", 20
    SWEEP_START = 0x31, "", "READY", 20
    SWEEP_READ = 0x32, "PR", "any", 12
    SWEEP_ACK = 0x33, "PN", "any", 12
    SWEEP_ABORT = 0x34, "", "any", 4
    FAULT_LIST = 0x40, "PR", "any", 8
    FAULT_CLEAR = 0x41, "", "any", 4

    @property
    def pipelined(self) -> bool:
        """Whether the command may be sent before the previous reply has arrived (protocol section 4.3)."""
        return "P" in self.marks

    @property
    def accepts_no_reply(self) -> bool:
        """Whether the command accepts the flag NO_REPLY (no reply is sent)."""
        return "N" in self.marks

    @property
    def reads_only(self) -> bool:
        """Whether the command only reads, so that a repeated request is executed again."""
        return "R" in self.marks


class Event(IntEnum):
    """Event codes (protocol section 5)."""

    TELEMETRY = 0x80
    SWEEP_DATA = 0x81
    SWEEP_DONE = 0x82
    FAULT = 0x83
    LIGHT = 0x84


class Stream(IntEnum):
    """Fixed stream numbers of events. Monitor readings use 2 … 1 + n_streams."""

    FAULT = 0
    SWEEP = 1
    LIGHT = 16


class Status(_TableEnum):
    """Status codes (protocol section 12).

    Attributes:
        channel_means: Meaning of ``channel`` in the error reply; empty if unused.
        value_means: Meaning of ``value``.
        limit_means: Meaning of ``limit``.
    """

    _value_: int
    channel_means: str
    value_means: str
    limit_means: str

    OK = 0, "", "", ""
    BUSY = 1, "", "ms to wait", ""
    UNKNOWN_COMMAND = 2, "", "command", ""
    BAD_LENGTH = 3, "", "payload length", "minimum"
    BAD_VALUE = 4, "payload offset", "value", ""
    BAD_CHANNEL = 5, "channel", "", "number of channels"
    LIMIT = 6, "channel", "asked", "allowed"
    NOT_CONFIGURED = 7, "", "", ""
    SAFE = 8, "", "latched mask", ""
    INTERLOCK = 9, "channel", "measured", "threshold"
    INCOMPLETE = 10, "first missing", "have", "need"
    STALE = 11, "", "number compared with", ""
    SESSION = 12, "", "current session", ""
    TOO_OLD = 13, "", "offered proto_max", "lowest supported"
    TOO_NEW = 14, "", "offered proto_min", "highest supported"
    TOO_BIG = 15, "", "asked", "largest that fits"
    NO_MEMORY = 16, "", "asked", "available"
    HW_SPI = 17, "", "error register", ""
    HW_ADC = 18, "", "error register", ""
    HW_I2C = 19, "", "error register", ""
    TIMEOUT = 20, "", "ms", ""
    OVERFLOW = 21, "", "oldest available", ""
    NOT_SUPPORTED = 22, "", "feature bit", ""
    FLASH = 23, "", "error register", ""
    CRC_MISMATCH = 24, "", "computed CRC", "given CRC"
    UNKNOWN_FAULT = 25, "", "fault id", "newest id"


class Feature(_TableEnum):
    """Bit numbers of ``features`` (protocol section 6.4).

    Attributes:
        meaning: Capability of a board with this feature.
    """

    _value_: int
    meaning: str

    COMMIT_AT_TICK = 0, "COMMIT with when = 1"
    COMMIT_TRIGGER = 1, "COMMIT with when = 2"
    SWEEP = 2, "sweep commands"
    SWEEP_TRIGGER = 3, "sweep image with trigger = 1"
    CHANNEL_SENSE = 4, "measured channel current and voltage; trip_ua works"
    FLASH_CONFIG = 5, "APPLY with SAVE; configuration restored at power-up, state BOOT until APPLY"
    EXTERNAL_LOOP = 6, "external interlock input"
    HW_WATCHDOG = 7, "independent processor watchdog whose reset forces the outputs to 0"
    BOOTLOADER = 9, "command 0x70"
    CHIP_TEMPERATURE = 10, "chip_temp is valid, OVER_TEMPERATURE available"
    SUPPLY_SENSE = 11, "SUPPLY available"
    CLEAR_ONE = 12, "FAULT_CLEAR clears the fault it names and no other, and refuses an unknown id"
    MONITOR_WATCH = 13, "WATCH: tells by itself when light at a monitor goes and comes"


class FaultSource(_TableEnum):
    """Fault sources (protocol section 11.3), as bit numbers.

    Attributes:
        unit: Unit of ``value`` and ``limit``.
        feature: Feature that the source needs; ``None`` for a source that is always enabled.
    """

    _value_: int
    unit: str
    feature: Feature | None

    OVER_TEMPERATURE = 0, "0.01 °C", Feature.CHIP_TEMPERATURE
    TOTAL_POWER = 1, "mW", Feature.CHANNEL_SENSE
    CHANNEL_CURRENT = 2, "µA", Feature.CHANNEL_SENSE
    CHANNEL_VOLTAGE = 3, "mV", Feature.CHANNEL_SENSE
    SUPPLY = 4, "mV", Feature.SUPPLY_SENSE
    HW_SPI = 5, "error register", None
    HW_ADC = 6, "error register", None
    HW_I2C = 7, "error register", None
    EXTERNAL_LOOP = 8, "0 / 1", Feature.EXTERNAL_LOOP
    WATCHDOG = 9, "ms", None
    SELF_TEST = 10, "test number", None
    ESTOP = 11, "0 host, 1 button", None
    MEMORY = 12, "", None

    @property
    def mask(self) -> int:
        """Bit of this fault source in a mask."""
        return 1 << self


class FaultState(IntEnum):
    """State of a fault in a fault record."""

    CLEARED = 0
    LATCHED = 1
    PRESENT = 2


class WatchdogPolicy(IntEnum):
    """Reaction of the outputs when the watchdog trips (protocol section 11.2)."""

    OFF = 0
    RAMP = 1
    HOLD = 2


class ConfigOp(IntEnum):
    """First byte of a CONFIG request (protocol section 7.1)."""

    GLOBAL = 0
    LIMITS = 1
    APPLY = 2
    READ_GLOBAL = 3
    READ_LIMITS = 4


class CommitWhen(IntEnum):
    """Time at which the command COMMIT drives the prepared codes (protocol section 8.3)."""

    NEXT_TICK = 0
    AT_TICK = 1
    TRIGGER = 2


class SparseBase(IntEnum):
    """Initial codes for the command STAGE_SPARSE (protocol section 8.2)."""

    EMPTY = 0
    DRIVEN = 1


class HelloFlag(IntFlag):
    """Flags of the command HELLO."""

    TAKEOVER = 0x01


class ApplyFlag(IntFlag):
    """Flags of the command CONFIG APPLY."""

    SAVE = 0x01


class ReadbackFlag(IntFlag):
    """Flags of the command READBACK."""

    CODES = 0x01


class StatsCounter(IntEnum):
    """Counters of the command GET_STATS, in order (protocol section 6.3)."""

    RX_FRAMES = 0
    RX_BYTES = 1
    TX_FRAMES = 2
    TX_BYTES = 3
    BAD_COBS = 4
    BAD_SHORT = 5
    BAD_CRC = 6
    BAD_OVERSIZE = 7
    BAD_KIND = 8
    BAD_VERSION = 9
    BAD_SESSION = 10
    STALE = 11
    REPLAYED = 12
    SEQ_GAPS = 13
    UNKNOWN_COMMAND = 14
    NO_REPLY_ERRORS = 15
    UART_ERRORS = 16
    EVENTS_SENT = 17
    EVENTS_DROPPED = 18
    LATCHES = 19
    REFUSED = 20
    WD_TRIPS = 21
    FAULTS = 22
    TICK_OVERRUNS = 23


def has_feature(features: int, feature: Feature) -> bool:
    """Return whether the HELLO reply's ``features`` contain a feature."""
    return bool(features >> feature & 1)


def fault_source_name(source: int) -> str:
    """Return the name of a fault source, or ``VENDOR_24`` or ``RESERVED_13`` for a number without a name."""
    try:
        return FaultSource(source).name
    except ValueError:
        return f"VENDOR_{source}" if source >= 24 else f"RESERVED_{source}"


def status_name(status: int) -> str:
    """Return the name of a status code, or ``STATUS_n`` for an unknown code."""
    try:
        return Status(status).name
    except ValueError:
        return f"STATUS_{status}"
