"""Messages of monitor streams and sweeps (sections 9 and 10)."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from firmware_protocol.codec import Message
from firmware_protocol.codes import SATURATED, Command, Event, OutputsState
from firmware_protocol.fields import wire
from firmware_protocol.messages import Codes, Records
from firmware_protocol.stream_codes import EndReason, RunState, SubscribeFlag


def _saturated(codes: NDArray[Any]) -> NDArray[np.bool_]:
    return cast(NDArray[np.bool_], codes == SATURATED)


class SubscribeReply(Message):
    """State of a stream (protocol section 9.1). All events before number ``next_event`` have been sent."""

    stream: int = wire(0, "u8", "", "", "echo")
    _reserved_1 = wire(1, "u8")
    count: int = wire(2, "u16", "channels", "", "channels selected")
    next_event: int = wire(4, "u32", "", "", "number of the next event")
    dropped: int = wire(8, "u32", "events", "", "dropped by the board since the subscription")


class SubscribeRequest(Message):
    """Start, stop or renew a stream of monitor readings (protocol section 9.1). An empty mask selects all monitors."""

    command: ClassVar[Command] = Command.SUBSCRIBE
    reply: ClassVar[type[SubscribeReply]] = SubscribeReply
    stream: int = wire(0, "u8", "", "2..1+n_streams", "telemetry stream")
    credit_limit: int = wire(8, "u32", "events", "", "events with number < credit_limit may be sent (absolute)")
    period_ticks: int = wire(4, "u32", "ticks", "", "0 stops the stream", default=0)
    n_avg: int = wire(2, "u16", "", "1..4096", "scans averaged per record", default=1)
    mask: bytes = wire(16, "u8[mask_len]", "bits", "", "bit i of byte j selects channel 8 j + i", default=b"")
    sub_flags: int = wire(1, "u8", "bits", "", "b0 RENEW: only credit_limit is used, everything else stays", default=0)
    _mask_len = wire(12, "u16", "B", "0..8192", "0 = all channels")
    _reserved_14 = wire(14, "u16")

    def out_of_range(self) -> tuple[int, int] | None:
        """Return ``(payload offset, value)`` of the first field outside its range, or ``None``."""
        values = super().out_of_range()
        renewal = bool(self.sub_flags & SubscribeFlag.RENEW)
        return None if renewal and values is not None and values[0] != 0 else values


class TelemetryEvent(Message):
    """One averaged monitor reading of a stream (protocol section 9.2)."""

    event: ClassVar[Event] = Event.TELEMETRY
    tick: int = wire(0, "u32", "ticks", "", "start of the scan")
    dropped: int = wire(4, "u32", "events", "", "records discarded so far for lack of credit or queue space")
    generation: int = wire(8, "u32", "", "", "active generation when sampled")
    chip_temp: int | None = wire(12, "i16", "0.01 °C", "", "chip temperature", none=-32768)
    _count = wire(14, "u16", "channels", "", "codes that follow")
    adc: Codes = wire(16, "u16[count]", "code", "", "selected channels, ascending; 65535 = saturated")

    @property
    def saturated(self) -> NDArray[np.bool_]:
        """Mask of the readings above full scale; same shape as ``adc``."""
        return _saturated(self.adc)


class WatchReply(Message):
    """Reply to the command WATCH (protocol section 9.3).

    Event number ``next_event`` will report the monitors' state.
    """

    next_event: int = wire(0, "u32", "", "", "number of the next LIGHT event")
    n_watched: int = wire(4, "u16", "channels", "", "monitors watched")
    n_dark: int = wire(6, "u16", "channels", "", "of them dark at present")


class WatchRequest(Message):
    """Watch the light at monitors (section 9.3); ``monitors`` is an array of ``WATCH_DTYPE`` or rows."""

    command: ClassVar[Command] = Command.WATCH
    reply: ClassVar[type[WatchReply]] = WatchReply
    watch_flags: int = wire(0, "u8", "bits", "", "b0 CLEAR: forget all monitors first", default=0)
    _reserved_1 = wire(1, "u8")
    period_ticks: int = wire(2, "u16", "ticks", "", "time between two scans; 0 = as before", default=0)
    _count = wire(4, "u16", "monitors", "0..65535", "records that follow")
    _reserved_6 = wire(6, "u16")
    monitors: Records = wire(
        8, "watch[count]", "", "", "channel u16, dark_below u16, light_from u16, hold_ticks u16", default=()
    )


class LightEvent(Message):
    """Report which watched monitors are dark (protocol section 9.3)."""

    event: ClassVar[Event] = Event.LIGHT
    tick: int = wire(0, "u32", "ticks", "", "scan after which the state was this one")
    since: int = wire(4, "u32", "ticks", "", "first of the scans that showed the change; tick, if nothing changed")
    generation: int = wire(8, "u32", "", "", "active generation at that scan")
    _mask_len = wire(12, "u16", "B", "", "bytes of the mask: (n_adc + 7) / 8")
    _reserved_14 = wire(14, "u16")
    dark: bytes = wire(16, "u8[mask_len]", "bits", "", "bit i of byte j: monitor 8 j + i is watched and dark")


class SweepLoadReply(Message):
    """Number of bytes of an encoded sweep that the board has received (protocol section 10.2)."""

    sweep_id: int = wire(0, "u32", "", "", "echo")
    received: int = wire(4, "u32", "B", "", "contiguous bytes from 0 held now")


class SweepLoadRequest(Message):
    """One piece of an encoded sweep (protocol section 10.2)."""

    command: ClassVar[Command] = Command.SWEEP_LOAD
    reply: ClassVar[type[SweepLoadReply]] = SweepLoadReply
    sweep_id: int = wire(0, "u32", "", "1..", "identifies the image")
    total: int = wire(4, "u32", "B", "1..sweep_mem", "length of the whole image")
    offset: int = wire(8, "u32", "B", "0..total-1", "position of this piece")
    image_crc32: int = wire(12, "u32", "", "", "CRC-32 of the whole image")
    _len = wire(16, "u16", "B", "1..total-offset", "bytes that follow")
    _reserved_18 = wire(18, "u16")
    data: bytes = wire(20, "u8[len]", "", "", "bytes of the image")

    def out_of_range(self) -> tuple[int, int] | None:
        """Return ``(payload offset, value)`` of the first field outside its range, or ``None``."""
        values = super().out_of_range()
        if values is None and self.offset >= self.total:
            values = self.layout.offset_of("offset"), self.offset
        if values is None and len(self.data) > self.total - self.offset:
            values = self.layout.offset_of("len"), len(self.data)
        return values


class SweepStartReply(Message):
    """Confirmation that a sweep has started (protocol section 10.3)."""

    generation: int = wire(0, "u32", "", "", "echo")
    tick: int = wire(4, "u32", "ticks", "", "edge of the first point")
    records: int = wire(8, "u32", "", "", "n_points x repeat")
    n_adc: int = wire(12, "u16", "values", "", "values per record")
    outputs_state: OutputsState = wire(14, "u8", "", "0..4", "SWEEP while running", view="OutputsState")
    _reserved_15 = wire(15, "u8")


class SweepStartRequest(Message):
    """Run the loaded sweep (protocol section 10.3)."""

    command: ClassVar[Command] = Command.SWEEP_START
    reply: ClassVar[type[SweepStartReply]] = SweepStartReply
    generation: int = wire(0, "u32", "", "", "newer than the active one; names this run, becomes active at once")
    sweep_id: int = wire(4, "u32", "", "", "image to run")
    base_crc32: int = wire(8, "u32", "", "", "CRC-32 of the table the host believes driven")
    credit_limit: int = wire(12, "u32", "records", "", "records with index < credit_limit may be pushed")
    repeat: int = wire(16, "u16", "", "1..65535", "passes over the image; n_points x repeat < 2^31", default=1)
    run_flags: int = wire(
        18, "u16", "bits", "", "b0 OVERWRITE the oldest record of a full ring, b1 NO_BASE_CHECK", default=0
    )


class SweepDataEvent(Message):
    """Consecutive records of a sweep (protocol section 10.4); ``values`` has shape (records, values per record)."""

    event: ClassVar[Event] = Event.SWEEP_DATA
    generation: int = wire(0, "u32", "", "", "run")
    first: int = wire(4, "u32", "record", "", "index of the first record")
    tick: int = wire(8, "u32", "ticks", "", "first scan of the first record")
    _count = wire(12, "u16", "records", "1..", "records that follow")
    _n_adc = wire(14, "u16", "values", "", "values per record")
    values: Codes = wire(16, "u16[count,n_adc]", "code", "", "record by record; 65535 = saturated")

    @property
    def saturated(self) -> NDArray[np.bool_]:
        """Mask of the readings above full scale; same shape as ``values``."""
        return _saturated(self.values)


class SweepDoneEvent(Message):
    """Report that a sweep has ended (protocol section 10.4)."""

    event: ClassVar[Event] = Event.SWEEP_DONE
    generation: int = wire(0, "u32", "", "", "run")
    records: int = wire(4, "u32", "", "", "records produced")
    dropped: int = wire(8, "u32", "records", "", "overwritten")
    tick: int = wire(12, "u32", "ticks", "", "edge of the final latch")
    crc32: int = wire(16, "u32", "", "", "table driven after the run")
    late: int = wire(20, "u16", "points", "", "points whose dwell_us was exceeded; saturates")
    reason: EndReason = wire(22, "u8", "", "0..5", "why the run ended", view="EndReason")
    outputs_state: OutputsState = wire(23, "u8", "", "0..4", "section 11.1", view="OutputsState")


class SweepReadReply(Message):
    """State of the last sweep and the requested records (section 10.4); ``reason`` is ``None`` while it runs."""

    generation: int = wire(0, "u32", "", "", "echo")
    first: int = wire(4, "u32", "record", "", "echo")
    produced: int = wire(8, "u32", "records", "", "records produced so far")
    oldest: int = wire(12, "u32", "record", "", "oldest record still held")
    dropped: int = wire(16, "u32", "records", "", "overwritten so far")
    _count = wire(20, "u16", "records", "", "records that follow: min(asked, produced - first)")
    _n_adc = wire(22, "u16", "values", "", "values per record")
    run_state: RunState = wire(
        24, "u8", "", "0..3", "0 none, 1 running, 2 paused (ring full), 3 ended", view="RunState"
    )
    reason: EndReason | None = wire(
        25, "u8", "", "0..5", "why the run ended; 255 while not ended", none=255, view="EndReason"
    )
    _reserved_26 = wire(26, "u16")
    values: Codes = wire(28, "u16[count,n_adc]", "code", "", "record by record; 65535 = saturated")

    @property
    def saturated(self) -> NDArray[np.bool_]:
        """Mask of the readings above full scale; same shape as ``values``."""
        return _saturated(self.values)


class SweepReadRequest(Message):
    """Request records by index, or only the state with ``count`` 0 (protocol section 10.4)."""

    command: ClassVar[Command] = Command.SWEEP_READ
    reply: ClassVar[type[SweepReadReply]] = SweepReadReply
    generation: int = wire(0, "u32", "", "", "run")
    first: int = wire(4, "u32", "record", "", "index of the first record wanted", default=0)
    count: int = wire(8, "u16", "records", "", "records wanted; 0 = status only", default=0)
    _reserved_10 = wire(10, "u16")


class SweepAckReply(Message):
    """Number of records that a sweep has produced, and the oldest stored record (protocol section 10.4)."""

    generation: int = wire(0, "u32", "", "", "echo")
    produced: int = wire(4, "u32", "records", "", "records produced so far")
    oldest: int = wire(8, "u32", "record", "", "oldest record still held")


class SweepAckRequest(Message):
    """Acknowledge records, and set the limit of records to send (protocol section 10.4)."""

    command: ClassVar[Command] = Command.SWEEP_ACK
    reply: ClassVar[type[SweepAckReply]] = SweepAckReply
    generation: int = wire(0, "u32", "", "", "run")
    up_to: int = wire(4, "u32", "record", "", "records with index < up_to are released; never moves back")
    credit_limit: int = wire(8, "u32", "records", "", "new push limit; never moves back")


class SweepAbortReply(Message):
    """Reason and time of the end of a sweep (protocol section 10.4)."""

    generation: int = wire(0, "u32", "", "", "echo")
    records: int = wire(4, "u32", "", "", "records produced")
    tick: int = wire(8, "u32", "ticks", "", "edge at which the base table was driven again")
    outputs_state: OutputsState = wire(12, "u8", "", "0..4", "section 11.1", view="OutputsState")
    reason: EndReason = wire(13, "u8", "", "0..5", "why the run ended", view="EndReason")
    _reserved_14 = wire(14, "u16")


class SweepAbortRequest(Message):
    """End a sweep and restore the heater codes before it (protocol section 10.4)."""

    command: ClassVar[Command] = Command.SWEEP_ABORT
    reply: ClassVar[type[SweepAbortReply]] = SweepAbortReply
    generation: int = wire(0, "u32", "", "", "run")
