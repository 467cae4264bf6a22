"""Message classes, one per message. :mod:`~firmware_protocol.config` has those of CONFIG."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from firmware_protocol.codec import Message, need, pack_fixed, unpack_fixed
from firmware_protocol.codes import (
    DRIVEN_TABLE,
    MIN_MTU,
    PROTOCOL_MAJOR,
    SATURATED,
    Command,
    Drive,
    Event,
    FaultState,
    OutputsState,
    ReadbackFlag,
    StatsCounter,
)
from firmware_protocol.errors import PayloadError
from firmware_protocol.fields import wire

Codes = NDArray[np.uint16]
"""Heater or monitor codes, one per channel."""

Records = NDArray[Any]
"""Array of limit records (``LIMIT_DTYPE``), channel-code pairs (``PAIR_DTYPE``) or monitors (``WATCH_DTYPE``)."""

ReplyT_co = TypeVar("ReplyT_co", bound=Message, covariant=True)


class Request(Protocol[ReplyT_co]):
    """Common interface of all request classes."""

    @property
    def command(self) -> Command:
        """Command code of the request."""

    @property
    def reply(self) -> type[ReplyT_co]:
        """Class of the reply to a successful request."""

    def encode(self) -> bytes:
        """Return the payload bytes of the request."""

    def out_of_range(self) -> tuple[int, int] | None:
        """Return ``(payload offset, value)`` of the first field outside its range, or ``None``."""


class HelloReply(Message):
    """Identity, sizes and times of the board (protocol section 6.1)."""

    proto: int = wire(0, "u8", "", "1..15", "chosen major, the highest both sides speak")
    window: int = wire(1, "u8", "frames", "1,2,4,8,16", "depth of the reply ring and span of outstanding requests")
    fw_rx_max: int = wire(2, "u16", "B on the wire", "256..65535", "largest frame the board accepts")
    fw_tx_max: int = wire(4, "u16", "B on the wire", "256..host_rx_max", "largest frame the board sends")
    n_dac: int = wire(6, "u16", "channels", "1..65535", "drive channels, numbered from 0")
    n_adc: int = wire(8, "u16", "channels", "0..65535", "monitor channels, numbered from 0")
    dac_bits: int = wire(10, "u8", "bit", "8..16", "native resolution of the converters")
    adc_bits: int = wire(11, "u8", "bit", "0,8,9,10,11,12,13,14,15,16", "native resolution of the monitors")
    n_banks: int = wire(12, "u8", "", "1..16", "staging banks")
    n_streams: int = wire(13, "u8", "", "0..14", "telemetry streams, ids 2 to 1 + n_streams")
    outputs_state: OutputsState = wire(14, "u8", "", "0..4", "section 11.1", view="OutputsState")
    drive: Drive = wire(15, "u8", "", "0,1", "0 voltage drive, 1 current drive", view="Drive")
    dac_full_scale: int = wire(16, "u32", "µV or µA", "1..100000000", "output at code 65535, unit by drive")
    adc_full_scale: int = wire(20, "u32", "nA", "", "photocurrent at code 65535")
    tick_us: int = wire(24, "u16", "µs", "1..65535", "length of one tick")
    t_cmd_ms: int = wire(26, "u16", "ms", "1..65535", "worst time from last request byte to first reply byte")
    t_slow_ms: int = wire(28, "u16", "ms", "1..65535", "the same for commands marked S")
    latch_skew_us: int = wire(30, "u16", "µs", "", "worst spread of the outputs in one latch; 65535 = that or more")
    adc_scan_us: int = wire(32, "u16", "µs", "", "one conversion of all monitor channels")
    _reserved_34 = wire(34, "u16")
    features: int = wire(36, "u32", "bits", "", "section 6.4")
    schema_crc32: int = wire(40, "u32", "", "", "CRC-32 of the canonical schema text")
    boot_id: int = wire(44, "u32", "", "", "random per power-up")
    uptime_ms: int = wire(48, "u32", "ms", "", "since power-up, wraps")
    faults: int = wire(52, "u32", "bits", "", "latched fault sources")
    active_generation: int = wire(56, "u32", "", "", "generation of the last latch; 0 after power-up")
    config_crc32: int = wire(60, "u32", "", "", "CRC of the active configuration; 0 = none")
    sweep_mem: int = wire(64, "u32", "B", "", "program memory for sweeps")
    sweep_ring: int = wire(68, "u32", "u16 values", "", "result memory of sweeps")
    serial: str = wire(72, "char[16]", "", "", "serial number")
    fw_version: str = wire(88, "char[16]", "", "", "firmware version")


class HelloRequest(Message):
    """Open a session (protocol section 6.1)."""

    command: ClassVar[Command] = Command.HELLO
    reply: ClassVar[type[HelloReply]] = HelloReply
    proto_min: int = wire(0, "u8", "", "1..15", "lowest protocol major the host speaks", default=PROTOCOL_MAJOR)
    proto_max: int = wire(1, "u8", "", "1..15", "highest protocol major the host speaks", default=PROTOCOL_MAJOR)
    hello_flags: int = wire(2, "u8", "bits", "", "b0 TAKEOVER: replace a live session of another host", default=0)
    _reserved_3 = wire(3, "u8")
    host_rx_max: int = wire(4, "u16", "B on the wire", "256..65535", "largest frame the host accepts", default=MIN_MTU)
    _reserved_6 = wire(6, "u16")
    name: str = wire(8, "char[16]", "", "", "host name, shown to a refused second host", default="")


class PingReply(Message):
    """Board time and state (protocol section 6.2)."""

    token: int = wire(0, "u32", "", "", "echo")
    tick: int = wire(4, "u32", "ticks", "", "board time when the reply was built")
    uptime_ms: int = wire(8, "u32", "ms", "", "wraps")
    outputs_state: OutputsState = wire(12, "u8", "", "0..4", "section 11.1", view="OutputsState")
    _reserved_13 = wire(13, "u8")
    session: int = wire(14, "u16", "", "", "current session, 0 = none")


class PingRequest(Message):
    """Check the connection, and reset the watchdog if a session is open (protocol section 6.2)."""

    command: ClassVar[Command] = Command.PING
    reply: ClassVar[type[PingReply]] = PingReply
    token: int = wire(0, "u32", "", "", "echoed", default=0)


class EstopReply(Message):
    """Confirmation that the outputs are zero (protocol section 11.4)."""

    fault_id: int = wire(0, "u32", "", "", "the latched ESTOP fault")
    tick: int = wire(4, "u32", "ticks", "", "when the outputs went to zero")
    outputs_state: OutputsState = wire(8, "u8", "", "0..4", "SAFE", view="OutputsState")
    _reserved_9 = wire(9, "u8")
    _reserved_10 = wire(10, "u16")


class EstopRequest(Message):
    """Emergency stop, accepted even without a session (protocol section 11.4)."""

    command: ClassVar[Command] = Command.ESTOP
    reply: ClassVar[type[EstopReply]] = EstopReply
    magic: str = wire(0, "char[4]", "", "STOP", "anything else is BAD_VALUE", default="STOP")


class GetStatsReply(Message):
    """Counters since power-up (protocol section 6.3)."""

    uptime_ms: int = wire(0, "u32", "ms", "", "wraps")
    tick: int = wire(4, "u32", "ticks", "", "wraps")
    session: int = wire(8, "u16", "", "", "current session")
    outputs_state: OutputsState = wire(10, "u8", "", "0..4", "section 11.1", view="OutputsState")
    _reserved_11 = wire(11, "u8")
    _n = wire(12, "u16", "", "24..", "number of counters that follow")
    _reserved_14 = wire(14, "u16")
    counters: NDArray[np.uint32] = wire(
        16, "u32[n]", "events", "", "since power-up, never reset; order of the counter table"
    )

    def counter(self, counter: StatsCounter) -> int:
        """Return one counter. Raises ``IndexError`` if the board did not send this counter."""
        return int(self.counters[counter])


class GetStatsRequest(Message):
    """Request the board's counters (protocol section 6.3)."""

    command: ClassVar[Command] = Command.GET_STATS
    reply: ClassVar[type[GetStatsReply]] = GetStatsReply


class StageReply(Message):
    """Number of channels prepared so far (protocol section 8.2)."""

    bank_generation: int = wire(0, "u32", "", "", "echo")
    staged: int = wire(4, "u16", "channels", "", "distinct channels staged so far in this bank generation")
    _reserved_6 = wire(6, "u16")


class StageRequest(Message):
    """Prepare codes of neighbouring channels without driving them (protocol section 8.1)."""

    command: ClassVar[Command] = Command.STAGE
    reply: ClassVar[type[StageReply]] = StageReply
    bank_generation: int = wire(0, "u32", "", "", "identifies this content of the bank")
    bank: int = wire(4, "u8", "", "0..n_banks-1", "staging bank")
    _reserved_5 = wire(5, "u8")
    start: int = wire(6, "u16", "channel", "0..n_dac-1", "first channel")
    _count = wire(8, "u16", "codes", "1..n_dac-start", "codes that follow")
    codes: Codes = wire(10, "u16[count]", "code", "0..code_max", "channels start to start + count - 1")


class StageSparseRequest(Message):
    """Prepare codes of single channels (section 8.2), as an array of ``PAIR_DTYPE`` or rows of (channel, code)."""

    command: ClassVar[Command] = Command.STAGE_SPARSE
    reply: ClassVar[type[StageReply]] = StageReply
    bank_generation: int = wire(0, "u32", "", "", "identifies this content of the bank")
    bank: int = wire(4, "u8", "", "0..n_banks-1", "staging bank")
    base: int = wire(5, "u8", "", "0,1", "when this frame opens the bank: 0 empty, 1 copy of the driven table")
    _count = wire(6, "u16", "pairs", "1..65535", "pairs that follow")
    pairs: Records = wire(8, "pair[count]", "", "", "channel u16, code u16; a channel named twice: the last wins")


class CommitReply(Message):
    """Confirmation that prepared codes are driven, or will be later (protocol section 8.3)."""

    generation: int = wire(0, "u32", "", "", "echo")
    tick: int = wire(4, "u32", "ticks", "", "edge of the latch, or planned edge (0 for a trigger)")
    crc32: int = wire(8, "u32", "", "", "CRC-32 of the table driven (latched) or armed (not latched)")
    latched: bool = wire(12, "u8", "", "0,1", "1 outputs have changed, 0 armed", view="bool")
    outputs_state: OutputsState = wire(13, "u8", "", "0..4", "section 11.1", view="OutputsState")
    _reserved_14 = wire(14, "u16")


class CommitRequest(Message):
    """Drive the prepared codes (protocol section 8.3)."""

    command: ClassVar[Command] = Command.COMMIT
    reply: ClassVar[type[CommitReply]] = CommitReply
    generation: int = wire(0, "u32", "", "", "number of the table that becomes active")
    bank_generation: int = wire(4, "u32", "", "", "which content of the bank is meant")
    crc32: int = wire(8, "u32", "", "", "CRC-32 of the n_dac codes, u16 little endian, channel order")
    bank: int = wire(16, "u8", "", "0..n_banks-1", "staging bank")
    count: int = wire(18, "u16", "channels", "n_dac", "size of the table the host believes in")
    when: int = wire(17, "u8", "", "0,1,2", "0 next tick edge, 1 at at_tick, 2 external trigger", default=0)
    at_tick: int = wire(12, "u32", "ticks", "", "only with when = 1, else 0", default=0)


class SetReply(CommitReply):
    """Confirmation of the command SET (protocol section 8.4)."""


class SetRequest(Message):
    """Drive codes for all channels in one frame (protocol section 8.4)."""

    command: ClassVar[Command] = Command.SET
    reply: ClassVar[type[SetReply]] = SetReply
    generation: int = wire(0, "u32", "", "", "newer than the active one")
    _reserved_4 = wire(4, "u16")
    _count = wire(6, "u16", "codes", "n_dac", "codes that follow")
    codes: Codes = wire(8, "u16[count]", "code", "0..code_max", "whole table, channel order")


class ReadbackReply(Message):
    """Number, CRC-32 and, on request, codes of a table with the codes of all channels (protocol section 8.5)."""

    generation: int = wire(0, "u32", "", "", "active generation, or the bank generation")
    crc32: int = wire(4, "u32", "", "", "of the whole table; unstaged channels of a bank count as 0")
    tick: int = wire(8, "u32", "ticks", "", "edge of the last latch; 0 for a bank")
    outputs_state: OutputsState = wire(12, "u8", "", "0..4", "section 11.1", view="OutputsState")
    bank: int = wire(13, "u8", "", "", "echo")
    staged: int = wire(14, "u16", "channels", "", "staged channels of the bank; n_dac for bank 255")
    start: int = wire(16, "u16", "channel", "", "echo")
    _count = wire(18, "u16", "codes", "", "codes that follow, 0 without CODES")
    codes: Codes = wire(20, "u16[count]", "code", "", "codes as commanded")


class ReadbackRequest(Message):
    """Read back the driven codes (bank ``DRIVEN_TABLE``) or prepared codes (protocol section 8.5)."""

    command: ClassVar[Command] = Command.READBACK
    reply: ClassVar[type[ReadbackReply]] = ReadbackReply
    bank: int = wire(
        0, "u8", "", "0..n_banks-1 or 255", "staging bank; 255 = the table driven now", default=DRIVEN_TABLE
    )
    rb_flags: int = wire(
        1,
        "u8",
        "bits",
        "",
        "b0 CODES: append codes; without it start and count are ignored",
        default=ReadbackFlag.CODES,
    )
    start: int = wire(2, "u16", "channel", "0..n_dac-1", "first channel", default=0)
    count: int = wire(4, "u16", "codes", "1..n_dac-start", "codes wanted", default=0)

    def out_of_range(self) -> tuple[int, int] | None:
        """Return ``(payload offset, value)`` of the first field outside its range, or ``None``."""
        return super().out_of_range() if self.rb_flags & ReadbackFlag.CODES else None


class ReadAdcReply(Message):
    """Monitor codes of one averaged scan (protocol section 9)."""

    tick: int = wire(0, "u32", "ticks", "", "start of the first scan")
    generation: int = wire(4, "u32", "", "", "active generation at that time")
    start: int = wire(8, "u16", "channel", "", "echo")
    _count = wire(10, "u16", "channels", "", "echo")
    adc: Codes = wire(12, "u16[count]", "code", "", "65535 = saturated")

    @property
    def saturated(self) -> NDArray[np.bool_]:
        """Mask of the readings above full scale; same shape as ``adc``."""
        return cast(NDArray[np.bool_], self.adc == SATURATED)


class ReadAdcRequest(Message):
    """Request an averaged scan of the monitors (protocol section 9)."""

    command: ClassVar[Command] = Command.READ_ADC
    reply: ClassVar[type[ReadAdcReply]] = ReadAdcReply
    start: int = wire(0, "u16", "channel", "0..n_adc-1", "first monitor")
    count: int = wire(2, "u16", "channels", "1..n_adc-start", "monitors wanted")
    n_avg: int = wire(4, "u16", "", "1..4096", "scans averaged", default=1)
    _reserved_6 = wire(6, "u16")


class FaultRecord(Message):
    """One fault (protocol section 11.3)."""

    event: ClassVar[Event] = Event.FAULT
    fault_id: int = wire(0, "u32", "", "1..", "counts up from 1 in one boot")
    tick: int = wire(4, "u32", "ticks", "", "when it tripped")
    source: int = wire(8, "u8", "", "0..31", "bit number of the fault source")
    fault_state: FaultState = wire(
        9, "u8", "", "0,1,2", "0 cleared, 1 latched, 2 latched and still present", view="FaultState"
    )
    channel: int | None = wire(10, "u16", "channel", "", "channel concerned", none=0xFFFF, default=None)
    value: int = wire(12, "i32", "by source", "", "measured", default=0)
    limit: int = wire(16, "i32", "by source", "", "threshold", default=0)


FaultEvent = FaultRecord
"""Payload of the FAULT event."""


class FaultListReply(Message):
    """Faults stored by the board, ascending by id (protocol section 11.3)."""

    latched: int = wire(0, "u32", "bits", "", "latched sources")
    newest_id: int = wire(4, "u32", "", "", "0 = no fault since power-up")
    _count = wire(8, "u8", "records", "", "records that follow")
    outputs_state: OutputsState = wire(9, "u8", "", "0..4", "section 11.1", view="OutputsState")
    _record_size = wire(10, "u16", "B", "20..", "stride of the records, allows growth")
    records: tuple[FaultRecord, ...] = wire(12, "fault[count]", "", "", "fault records, ascending id", default=())

    def encode(self) -> bytes:
        """Return the payload bytes."""
        values = dict(vars(self), count=len(self.records), record_size=FaultRecord.layout.fixed_size)
        return pack_fixed(self.layout, values) + b"".join(record.encode() for record in self.records)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Decode the fault list.

        Raises:
            PayloadError: The payload is too short.
        """
        values = unpack_fixed(cls.layout, payload)
        count, stride = int(str(values.pop("count"))), int(str(values.pop("record_size")))
        minimum = FaultRecord.layout.fixed_size
        if count and stride < minimum:
            raise PayloadError(
                cls.layout.name,
                "record_size",
                offset=cls.layout.offset_of("record_size"),
                length=stride,
                minimum=minimum,
            )
        raw = need(cls.layout, cls.layout.fields[-1], payload, count * stride)
        values["records"] = tuple(FaultRecord.decode(raw[i * stride : (i + 1) * stride]) for i in range(count))
        return cls(**cast("dict[str, Any]", values))


class FaultListRequest(Message):
    """Request the faults stored by the board (protocol section 11.3)."""

    command: ClassVar[Command] = Command.FAULT_LIST
    reply: ClassVar[type[FaultListReply]] = FaultListReply
    first_id: int = wire(0, "u32", "", "", "0 = oldest kept", default=0)
    max_records: int = wire(4, "u8", "records", "", "0 = as many as fit", default=0)
    _reserved_5 = wire(5, "u8")
    _reserved_6 = wire(6, "u16")


class FaultClearReply(Message):
    """Fault sources that are still latched (protocol section 11.3)."""

    latched: int = wire(0, "u32", "bits", "", "what is still latched")
    newest_id: int = wire(4, "u32", "", "", "0 = no fault since power-up")
    outputs_state: OutputsState = wire(8, "u8", "", "0..4", "section 11.1", view="OutputsState")
    _reserved_9 = wire(9, "u8")
    _reserved_10 = wire(10, "u16")


class FaultClearRequest(Message):
    """Clear one latched fault (protocol section 11.3). Early firmware also clears all faults with lower ids."""

    command: ClassVar[Command] = Command.FAULT_CLEAR
    reply: ClassVar[type[FaultClearReply]] = FaultClearReply
    fault_id: int = wire(0, "u32", "", "", "the fault to clear")
