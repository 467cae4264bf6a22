"""One frozen class per message; a request names its reply. CONFIG and refusals are in :mod:`~firmware_protocol.config`.

Every class packs itself by the layout of the same name (:mod:`firmware_protocol.layouts`), where units, ranges and the
meaning of each field stand. Sentinels of the wire are ``None`` here, counts are the length of their array.
"""

from __future__ import annotations

from dataclasses import dataclass
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

Codes = NDArray[np.uint16]
"""Drive or monitor codes, one per channel."""

Records = NDArray[Any]
"""Array of limit records (``LIMIT_DTYPE``) or of pairs (``PAIR_DTYPE``)."""

ReplyT_co = TypeVar("ReplyT_co", bound=Message, covariant=True)


class Request(Protocol[ReplyT_co]):
    """What every request class offers: its command, the class of its reply, and its payload."""

    @property
    def command(self) -> Command:
        """Command code."""

    @property
    def reply(self) -> type[ReplyT_co]:
        """Class of the reply to status OK."""

    def encode(self) -> bytes:
        """Return the payload."""

    def out_of_range(self) -> tuple[int, int] | None:
        """Return ``(payload offset, value)`` of the first field outside its range, or ``None``."""


@dataclass(frozen=True, eq=False)
class HelloReply(Message):
    """Identity, sizes and times of the board (section 6.1)."""

    proto: int
    window: int
    fw_rx_max: int
    fw_tx_max: int
    n_dac: int
    n_adc: int
    dac_bits: int
    adc_bits: int
    n_banks: int
    n_streams: int
    outputs_state: OutputsState
    drive: Drive
    dac_full_scale: int
    adc_full_scale: int
    tick_us: int
    t_cmd_ms: int
    t_slow_ms: int
    latch_skew_us: int
    adc_scan_us: int
    features: int
    schema_crc32: int
    boot_id: int
    uptime_ms: int
    faults: int
    active_generation: int
    config_crc32: int
    sweep_mem: int
    sweep_ring: int
    serial: str
    fw_version: str


@dataclass(frozen=True, eq=False)
class HelloRequest(Message):
    """Open a session (section 6.1); the session id travels in the header."""

    command: ClassVar[Command] = Command.HELLO
    reply: ClassVar[type[HelloReply]] = HelloReply
    proto_min: int = PROTOCOL_MAJOR
    proto_max: int = PROTOCOL_MAJOR
    hello_flags: int = 0
    host_rx_max: int = MIN_MTU
    name: str = ""


@dataclass(frozen=True, eq=False)
class PingReply(Message):
    """Board time and state (section 6.2)."""

    token: int
    tick: int
    uptime_ms: int
    outputs_state: OutputsState
    session: int


@dataclass(frozen=True, eq=False)
class PingRequest(Message):
    """Probe, and food for the watchdog when sent in the session (section 6.2)."""

    command: ClassVar[Command] = Command.PING
    reply: ClassVar[type[PingReply]] = PingReply
    token: int = 0


@dataclass(frozen=True, eq=False)
class EstopReply(Message):
    """The outputs are zero (section 11.4)."""

    fault_id: int
    tick: int
    outputs_state: OutputsState


@dataclass(frozen=True, eq=False)
class EstopRequest(Message):
    """Emergency stop, outside of sessions and sequence (section 11.4)."""

    command: ClassVar[Command] = Command.ESTOP
    reply: ClassVar[type[EstopReply]] = EstopReply
    magic: str = "STOP"


@dataclass(frozen=True, eq=False)
class GetStatsReply(Message):
    """Counters since power-up (section 6.3), in the order of :class:`StatsCounter`."""

    uptime_ms: int
    tick: int
    session: int
    outputs_state: OutputsState
    counters: NDArray[np.uint32]

    def counter(self, counter: StatsCounter) -> int:
        """Return one counter. Raises ``IndexError`` if the board did not send it."""
        return int(self.counters[counter])


@dataclass(frozen=True, eq=False)
class GetStatsRequest(Message):
    """Ask for the counters (section 6.3)."""

    command: ClassVar[Command] = Command.GET_STATS
    reply: ClassVar[type[GetStatsReply]] = GetStatsReply


@dataclass(frozen=True, eq=False)
class StageReply(Message):
    """How much of a bank is staged (section 8.2)."""

    bank_generation: int
    staged: int


@dataclass(frozen=True, eq=False)
class StageRequest(Message):
    """Stage codes of neighbouring channels (section 8.1)."""

    command: ClassVar[Command] = Command.STAGE
    reply: ClassVar[type[StageReply]] = StageReply
    bank_generation: int
    bank: int
    start: int
    codes: Codes


@dataclass(frozen=True, eq=False)
class StageSparseRequest(Message):
    """Stage single channels (section 8.2); ``pairs`` has ``PAIR_DTYPE`` or rows of (channel, code)."""

    command: ClassVar[Command] = Command.STAGE_SPARSE
    reply: ClassVar[type[StageReply]] = StageReply
    bank_generation: int
    bank: int
    base: int
    pairs: Records


@dataclass(frozen=True, eq=False)
class CommitReply(Message):
    """Receipt of a latch, or of an armed commit (section 8.3)."""

    generation: int
    tick: int
    crc32: int
    latched: bool
    outputs_state: OutputsState


@dataclass(frozen=True, eq=False)
class CommitRequest(Message):
    """Latch a staged bank (section 8.3)."""

    command: ClassVar[Command] = Command.COMMIT
    reply: ClassVar[type[CommitReply]] = CommitReply
    generation: int
    bank_generation: int
    crc32: int
    bank: int
    count: int
    when: int = 0
    at_tick: int = 0


@dataclass(frozen=True, eq=False)
class SetReply(CommitReply):
    """Receipt of a SET: the same fields as of a COMMIT (section 8.4)."""


@dataclass(frozen=True, eq=False)
class SetRequest(Message):
    """Stage and commit a whole table in one frame (section 8.4)."""

    command: ClassVar[Command] = Command.SET
    reply: ClassVar[type[SetReply]] = SetReply
    generation: int
    codes: Codes


@dataclass(frozen=True, eq=False)
class ReadbackReply(Message):
    """Generation, CRC and, when asked, codes of a table (section 8.5)."""

    generation: int
    crc32: int
    tick: int
    outputs_state: OutputsState
    bank: int
    staged: int
    start: int
    codes: Codes


@dataclass(frozen=True, eq=False)
class ReadbackRequest(Message):
    """Ask for the driven table or a bank (section 8.5); ``DRIVEN_TABLE`` is the table driven now."""

    command: ClassVar[Command] = Command.READBACK
    reply: ClassVar[type[ReadbackReply]] = ReadbackReply
    bank: int = DRIVEN_TABLE
    rb_flags: int = ReadbackFlag.CODES
    start: int = 0
    count: int = 0

    def out_of_range(self) -> tuple[int, int] | None:
        """As of every message; without CODES, ``start`` and ``count`` are ignored."""
        return super().out_of_range() if self.rb_flags & ReadbackFlag.CODES else None


@dataclass(frozen=True, eq=False)
class ReadAdcReply(Message):
    """Monitor codes of one averaged scan (section 9)."""

    tick: int
    generation: int
    start: int
    adc: Codes

    @property
    def saturated(self) -> NDArray[np.bool_]:
        """Where the monitor is above full scale and the code is no value; shape of ``adc``."""
        return cast(NDArray[np.bool_], self.adc == SATURATED)


@dataclass(frozen=True, eq=False)
class ReadAdcRequest(Message):
    """Scan the monitors (section 9)."""

    command: ClassVar[Command] = Command.READ_ADC
    reply: ClassVar[type[ReadAdcReply]] = ReadAdcReply
    start: int
    count: int
    n_avg: int = 1


@dataclass(frozen=True, eq=False)
class FaultRecord(Message):
    """One fault: payload of the FAULT event and record of FAULT_LIST (section 11.3)."""

    event: ClassVar[Event] = Event.FAULT
    fault_id: int
    tick: int
    source: int
    fault_state: FaultState
    channel: int | None = None
    value: int = 0
    limit: int = 0


FaultEvent = FaultRecord
"""The FAULT event carries one fault record."""


@dataclass(frozen=True, eq=False)
class FaultListReply(Message):
    """The faults the board keeps, ascending by id (section 11.3)."""

    latched: int
    newest_id: int
    outputs_state: OutputsState
    records: tuple[FaultRecord, ...] = ()

    def encode(self) -> bytes:
        """Return the payload, with records of version 1."""
        values = dict(vars(self), count=len(self.records), record_size=FaultRecord.layout.fixed_size)
        return pack_fixed(self.layout, values) + b"".join(record.encode() for record in self.records)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Return the list; records longer than those of version 1 are read by their own stride.

        Raises:
            PayloadError: The payload or its records are too short.
        """
        values = unpack_fixed(cls.layout, payload)
        count, stride = int(str(values.pop("count"))), int(str(values.pop("record_size")))
        least = FaultRecord.layout.fixed_size
        if count and stride < least:
            raise PayloadError(
                cls.layout.name, "record_size", offset=cls.layout.offset_of("record_size"), length=stride, minimum=least
            )
        raw = need(cls.layout, cls.layout.fields[-1], payload, count * stride)
        values["records"] = tuple(FaultRecord.decode(raw[i * stride : (i + 1) * stride]) for i in range(count))
        return cls(**cast("dict[str, Any]", values))


@dataclass(frozen=True, eq=False)
class FaultListRequest(Message):
    """Ask for the faults the board keeps (section 11.3)."""

    command: ClassVar[Command] = Command.FAULT_LIST
    reply: ClassVar[type[FaultListReply]] = FaultListReply
    first_id: int = 0
    max_records: int = 0


@dataclass(frozen=True, eq=False)
class FaultClearReply(Message):
    """What is still latched (section 11.3)."""

    latched: int
    newest_id: int
    outputs_state: OutputsState


@dataclass(frozen=True, eq=False)
class FaultClearRequest(Message):
    """Clear every latched fault whose id is not newer than ``fault_id`` (section 11.3)."""

    command: ClassVar[Command] = Command.FAULT_CLEAR
    reply: ClassVar[type[FaultClearReply]] = FaultClearReply
    fault_id: int
