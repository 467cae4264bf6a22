"""Request processing of the emulated firmware (protocol sections 3-5, 13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from firmware_protocol import (
    PROTOCOL_MAJOR,
    AnyRequest,
    BadCause,
    BadFrame,
    Command,
    EndReason,
    Feature,
    FieldError,
    Frame,
    HeaderFlag,
    HelloFlag,
    HelloRequest,
    Kind,
    Message,
    PayloadError,
    Refusal,
    StatsCounter,
    Status,
    StoredReply,
    Verdict,
    accepts_no_reply,
    decode_request,
    is_read,
)
from lumion_hw.emulator.mesh.lumion import identity, monitoring, settings, sweeps, tables
from lumion_hw.emulator.mesh.lumion.context import Context, DeferredReply, Result, bad_value

Handler = Callable[[Context, Any, float], Result]

HANDLERS: dict[Command, Handler] = {
    Command.PING: identity.ping,
    Command.ESTOP: identity.estop,
    Command.GET_STATS: identity.get_stats,
    Command.CONFIG: settings.config,
    Command.STAGE: tables.stage,
    Command.STAGE_SPARSE: tables.stage_sparse,
    Command.COMMIT: tables.commit,
    Command.SET: tables.set_table,
    Command.READBACK: tables.readback,
    Command.READ_ADC: monitoring.read_adc,
    Command.SUBSCRIBE: monitoring.subscribe,
    Command.WATCH: monitoring.watch,
    Command.SWEEP_LOAD: sweeps.sweep_load,
    Command.SWEEP_START: sweeps.sweep_start,
    Command.SWEEP_READ: sweeps.sweep_read,
    Command.SWEEP_ACK: sweeps.sweep_ack,
    Command.SWEEP_ABORT: sweeps.sweep_abort,
    Command.FAULT_LIST: identity.fault_list,
    Command.FAULT_CLEAR: identity.fault_clear,
}
"""Handler of each command."""

_HANDLER_CHECKS_RANGES = frozenset(
    (Command.COMMIT, Command.SET, Command.CONFIG, Command.READBACK, Command.SWEEP_LOAD, Command.SWEEP_START)
)
"""Commands whose handler checks the ranges of the fields."""

_SWEEPS = frozenset(
    (Command.SWEEP_LOAD, Command.SWEEP_START, Command.SWEEP_READ, Command.SWEEP_ACK, Command.SWEEP_ABORT)
)
_READS = frozenset(command for command in Command if command.reads_only)
_SILENT = frozenset(command for command in Command if command.accepts_no_reply)

_BAD_COUNTERS = {
    BadCause.OVERSIZE: StatsCounter.BAD_OVERSIZE,
    BadCause.COBS: StatsCounter.BAD_COBS,
    BadCause.SHORT: StatsCounter.BAD_SHORT,
    BadCause.CRC: StatsCounter.BAD_CRC,
}


@dataclass(frozen=True)
class ReadyReply:
    """A reply that is ready to be sent.

    Attributes:
        retry: Whether a stored reply is repeated.
    """

    status: int
    payload: bytes
    retry: bool = False


@dataclass(frozen=True)
class Work:
    """A request that the firmware has executed or is executing.

    Attributes:
        result: Result of the request, or a deferred reply.
        stored: Whether the result is stored for a repeated request.
        reads: Whether a repeated request is executed again.
        silent: Whether no reply is sent.
    """

    frame: Frame
    result: Result
    stored: bool = False
    reads: bool = False
    silent: bool = False


class BoardFirmware:
    """Checks and executes request frames, one at a time."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def accept(self, item: Frame | BadFrame, at_s: float) -> Frame | None:
        """Count a received frame, and return it if it is valid; otherwise ``None`` (section 13)."""
        core = self.context.core
        if isinstance(item, BadFrame):
            core.count(_BAD_COUNTERS[item.cause])
            return None
        core.count(StatsCounter.RX_FRAMES)
        if item.kind != Kind.REQ:
            core.count(StatsCounter.BAD_KIND)
            return None
        if item.version != PROTOCOL_MAJOR:
            core.count(StatsCounter.BAD_VERSION)
            return None
        # Only the session feeds the watchdog: no other host may keep outputs on.
        if self.is_from_session(item):
            core.last_fed_s = max(core.last_fed_s, at_s)
        return item

    def is_from_session(self, frame: Frame) -> bool:
        """Return whether a frame carries the number of the current session."""
        return frame.session != 0 and frame.session == self.context.session.number

    def execute(self, frame: Frame, at_s: float) -> Work | ReadyReply | None:
        """Execute a request (section 4). Return it or a stored reply; ``None`` if the frame is dropped."""
        session, core = self.context.session, self.context.core
        if frame.command == Command.HELLO:
            return Work(frame, self._hello(frame, at_s))
        # ESTOP, and PING outside of sessions, need no session: any connected host may stop or find the board.
        if frame.command == Command.ESTOP or (frame.command == Command.PING and frame.session == 0):
            return Work(frame, self._run_handler(frame, self._decode(frame), at_s))
        if not self.is_from_session(frame):
            core.count(StatsCounter.BAD_SESSION)
            return Work(frame, Refusal(Status.SESSION, value=session.number))
        return self._execute_by_sequence(frame, at_s)

    def _execute_by_sequence(self, frame: Frame, at_s: float) -> Work | ReadyReply | None:
        """Execute a request, or replay the stored reply, by sequence number (docs/protocol.md, section 4.2)."""
        session, core = self.context.session, self.context.core
        judgement = session.ring.judge(frame.seq)
        if judgement.verdict is Verdict.DROP:
            return None
        if judgement.verdict is Verdict.REPLAY and judgement.stored is not None:
            core.count(StatsCounter.REPLAYED)
            return ReadyReply(judgement.stored.status, judgement.stored.payload, retry=True)
        if judgement.verdict is Verdict.STALE:
            core.count(StatsCounter.STALE)
            return Work(frame, Refusal(Status.STALE, value=session.last_seq))
        core.count(StatsCounter.SEQ_GAPS, judgement.gap)
        # Before decoding: a refused request has used its number, and a repeat gets the same refusal.
        session.note_executed(frame.seq)
        request = self._decode(frame)
        reads = frame.command in _READS if isinstance(request, Refusal) else is_read(request)
        result = self._run_handler(frame, request, at_s)
        return Work(frame, result, stored=True, reads=reads, silent=_is_silent(frame, request))

    def finish(self, work: Work, result: Message | Refusal) -> ReadyReply | None:
        """Store the result of a request. Return the reply; ``None`` if the host wants none."""
        core, ring, seq = self.context.core, self.context.session.ring, work.frame.seq
        status = result.status if isinstance(result, Refusal) else int(Status.OK)
        payload = result.encode()
        if work.stored and work.silent:
            ring.store_silent(seq)
        # A repeated read is executed again: it changes nothing, and its reply need not be stored.
        elif work.stored and work.reads:
            ring.store_read(seq)
        elif work.stored:
            ring.store(seq, StoredReply(work.frame.command, status, payload))
        if work.silent:
            core.count(StatsCounter.NO_REPLY_ERRORS, int(status != Status.OK))
            return None
        return ReadyReply(status, payload)

    def _run_handler(self, frame: Frame, request: AnyRequest | Refusal, at_s: float) -> Result:
        if isinstance(request, Refusal):
            return request
        command = Command(frame.command)
        # Ranges are checked before the state, except where the specification has them later.
        bad_field = None if command in _HANDLER_CHECKS_RANGES else request.out_of_range()
        return bad_value(*bad_field) if bad_field is not None else HANDLERS[command](self.context, request, at_s)

    def _decode(self, frame: Frame) -> AnyRequest | Refusal:
        refusal = self._refuse_frame(frame)
        if refusal is not None:
            return refusal
        try:
            return decode_request(frame.command, frame.payload)
        except PayloadError as error:
            return Refusal(Status.BAD_LENGTH, value=error.length, limit=error.minimum)
        except FieldError as error:
            return bad_value(error.offset, error.value)

    def _refuse_frame(self, frame: Frame) -> Refusal | None:
        if frame.flags & HeaderFlag.MORE:
            return Refusal(Status.NOT_SUPPORTED, text="MORE")
        if frame.command not in tuple(Command):
            self.context.core.count(StatsCounter.UNKNOWN_COMMAND)
            return Refusal(Status.UNKNOWN_COMMAND, value=frame.command)
        command = Command(frame.command)
        if len(frame.payload) < command.min_request:
            return Refusal(Status.BAD_LENGTH, value=len(frame.payload), limit=command.min_request)
        if command in _SWEEPS and not self.context.core.profile.has(Feature.SWEEP):
            return Refusal(Status.NOT_SUPPORTED, value=Feature.SWEEP)
        return None

    def _hello(self, frame: Frame, at_s: float) -> Result:
        try:
            request = HelloRequest.decode(frame.payload)
        except PayloadError as error:
            return Refusal(Status.BAD_LENGTH, value=error.length, limit=error.minimum)
        bad_field = request.out_of_range()
        if bad_field is not None:
            return bad_value(*bad_field)
        if request.proto_min > PROTOCOL_MAJOR:
            return Refusal(Status.TOO_NEW, value=request.proto_min, limit=PROTOCOL_MAJOR)
        if frame.session == 0:
            return Refusal(Status.BAD_VALUE, value=0, text="session 0")
        session = self.context.session
        # A repeated HELLO whose reply was lost: the session is in its initial state and is not opened again.
        if self.is_from_session(frame) and frame.seq == session.hello_seq and session.is_fresh:
            return identity.hello_reply(self.context, session.tx_max, at_s)
        return self._replace_session(frame, request, at_s)

    def _replace_session(self, frame: Frame, request: HelloRequest, at_s: float) -> Result:
        session, core = self.context.session, self.context.core
        # A session that has been silent for the watchdog's time is no longer live, and may be replaced.
        remaining_s = core.last_fed_s + core.watchdog_s - at_s
        is_other_host = session.number not in (0, frame.session)
        if is_other_host and remaining_s > 0 and not request.hello_flags & HelloFlag.TAKEOVER:
            return Refusal(Status.BUSY, value=round(remaining_s * 1e3), text=session.name)
        run = self.context.sweeper.running
        if run is None:
            return self._open(frame, request, at_s)
        # No further point before that edge; the run ends there, with the base table.
        run.stop_latching()
        edge = core.tick_number(at_s) + 1
        return DeferredReply(core.edge_s(edge), lambda: self._end_sweep_and_open(frame, request, edge))

    def _end_sweep_and_open(self, frame: Frame, request: HelloRequest, edge: int) -> Message:
        self.context.sweeper.finish(EndReason.HOST_CHANGED, edge)
        return self._open(frame, request, self.context.core.edge_s(edge))

    def _open(self, frame: Frame, request: HelloRequest, at_s: float) -> Message:
        context = self.context
        core, session = context.core, context.session
        context.transmitter.change_host(frame.session, at_s)
        context.sweeper.change_host()
        context.telemetry.clear()
        context.watch.clear()
        session.open(frame.session, frame.seq, request.name, min(core.profile.mtu, request.host_rx_max))
        for bank in core.banks:
            bank.clear()
        core.armed = None
        core.pending = None
        core.last_fed_s = max(core.last_fed_s, at_s)
        return identity.hello_reply(context, session.tx_max, at_s)


def _is_silent(frame: Frame, request: AnyRequest | Refusal) -> bool:
    if not frame.flags & HeaderFlag.NO_REPLY:
        return False
    if isinstance(request, Refusal):
        return frame.command in _SILENT
    return accepts_no_reply(request)


def complete(result: Result) -> Message | Refusal:
    """Return the result, completed if it is a deferred reply."""
    return result.finish() if isinstance(result, DeferredReply) else result
