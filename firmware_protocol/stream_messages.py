"""Messages of telemetry and sweeps (sections 9 and 10), one frozen class each; units and ranges stand in the layouts.

Masks and pieces of an image are ``bytes``; records are arrays of shape (records, values per record).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from firmware_protocol.codec import Message
from firmware_protocol.codes import SATURATED, Command, Event, OutputsState
from firmware_protocol.messages import Codes
from firmware_protocol.stream_codes import EndReason, RunState, SubscribeFlag


def _saturated(codes: NDArray[Any]) -> NDArray[np.bool_]:
    return cast(NDArray[np.bool_], codes == SATURATED)


@dataclass(frozen=True, eq=False)
class SubscribeReply(Message):
    """State of a stream (section 9.1); every event numbered below ``next_event`` was sent before this reply."""

    stream: int
    count: int
    next_event: int
    dropped: int


@dataclass(frozen=True, eq=False)
class SubscribeRequest(Message):
    """Start, stop or renew a telemetry stream (section 9.1); an empty mask selects every monitor."""

    command: ClassVar[Command] = Command.SUBSCRIBE
    reply: ClassVar[type[SubscribeReply]] = SubscribeReply
    stream: int
    credit_limit: int
    period_ticks: int = 0
    n_avg: int = 1
    mask: bytes = b""
    sub_flags: int = 0

    def out_of_range(self) -> tuple[int, int] | None:
        """As of every message; a renewal uses ``stream`` and ``credit_limit`` only."""
        found = super().out_of_range()
        renewal = bool(self.sub_flags & SubscribeFlag.RENEW)
        return None if renewal and found is not None and found[0] != 0 else found


@dataclass(frozen=True, eq=False)
class TelemetryEvent(Message):
    """One averaged scan of the monitors of a stream (section 9.2)."""

    event: ClassVar[Event] = Event.TELEMETRY
    tick: int
    dropped: int
    generation: int
    chip_temp: int | None
    adc: Codes

    @property
    def saturated(self) -> NDArray[np.bool_]:
        """Where the monitor is above full scale and the code is no value; shape of ``adc``."""
        return _saturated(self.adc)


@dataclass(frozen=True, eq=False)
class SweepLoadReply(Message):
    """How much of an image the board holds (section 10.2)."""

    sweep_id: int
    received: int


@dataclass(frozen=True, eq=False)
class SweepLoadRequest(Message):
    """One piece of a sweep image (section 10.2)."""

    command: ClassVar[Command] = Command.SWEEP_LOAD
    reply: ClassVar[type[SweepLoadReply]] = SweepLoadReply
    sweep_id: int
    total: int
    offset: int
    image_crc32: int
    data: bytes

    def out_of_range(self) -> tuple[int, int] | None:
        """As of every message; the piece lies inside the image."""
        found = super().out_of_range()
        if found is None and self.offset >= self.total:
            found = self.layout.offset_of("offset"), self.offset
        if found is None and len(self.data) > self.total - self.offset:
            found = self.layout.offset_of("len"), len(self.data)
        return found


@dataclass(frozen=True, eq=False)
class SweepStartReply(Message):
    """Receipt of a started run (section 10.3)."""

    generation: int
    tick: int
    records: int
    n_adc: int
    outputs_state: OutputsState


@dataclass(frozen=True, eq=False)
class SweepStartRequest(Message):
    """Run the loaded image (section 10.3)."""

    command: ClassVar[Command] = Command.SWEEP_START
    reply: ClassVar[type[SweepStartReply]] = SweepStartReply
    generation: int
    sweep_id: int
    base_crc32: int
    credit_limit: int
    repeat: int = 1
    run_flags: int = 0


@dataclass(frozen=True, eq=False)
class SweepDataEvent(Message):
    """Neighbouring records of a run (section 10.4); ``values`` has shape (records, values per record)."""

    event: ClassVar[Event] = Event.SWEEP_DATA
    generation: int
    first: int
    tick: int
    values: Codes

    @property
    def saturated(self) -> NDArray[np.bool_]:
        """Where the monitor is above full scale and the code is no value; shape of ``values``."""
        return _saturated(self.values)


@dataclass(frozen=True, eq=False)
class SweepDoneEvent(Message):
    """A run has ended (section 10.4)."""

    event: ClassVar[Event] = Event.SWEEP_DONE
    generation: int
    records: int
    dropped: int
    tick: int
    crc32: int
    late: int
    reason: EndReason
    outputs_state: OutputsState


@dataclass(frozen=True, eq=False)
class SweepReadReply(Message):
    """State of the last run and the records asked for (section 10.4); ``reason`` is ``None`` while it runs."""

    generation: int
    first: int
    produced: int
    oldest: int
    dropped: int
    run_state: RunState
    reason: EndReason | None
    values: Codes

    @property
    def saturated(self) -> NDArray[np.bool_]:
        """Where the monitor is above full scale and the code is no value; shape of ``values``."""
        return _saturated(self.values)


@dataclass(frozen=True, eq=False)
class SweepReadRequest(Message):
    """Ask for records by index, or with ``count`` 0 for the state alone (section 10.4)."""

    command: ClassVar[Command] = Command.SWEEP_READ
    reply: ClassVar[type[SweepReadReply]] = SweepReadReply
    generation: int
    first: int = 0
    count: int = 0


@dataclass(frozen=True, eq=False)
class SweepAckReply(Message):
    """What a run has produced and still holds (section 10.4)."""

    generation: int
    produced: int
    oldest: int


@dataclass(frozen=True, eq=False)
class SweepAckRequest(Message):
    """Release records and move the push limit (section 10.4); neither ever moves back."""

    command: ClassVar[Command] = Command.SWEEP_ACK
    reply: ClassVar[type[SweepAckReply]] = SweepAckReply
    generation: int
    up_to: int
    credit_limit: int


@dataclass(frozen=True, eq=False)
class SweepAbortReply(Message):
    """Why and when a run ended (section 10.4)."""

    generation: int
    records: int
    tick: int
    outputs_state: OutputsState
    reason: EndReason


@dataclass(frozen=True, eq=False)
class SweepAbortRequest(Message):
    """End a run and drive the base table again (section 10.4)."""

    command: ClassVar[Command] = Command.SWEEP_ABORT
    reply: ClassVar[type[SweepAbortReply]] = SweepAbortReply
    generation: int
