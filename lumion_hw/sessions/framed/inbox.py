"""Receiver of replies and events of the mesh controller (protocol section 13).

Received data never raises an error: everything unexpected is counted and dropped.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from firmware_protocol import (
    PROTOCOL_MAJOR,
    AnyEvent,
    BadFrame,
    Decoder,
    Event,
    FaultRecord,
    Frame,
    HeaderFlag,
    Kind,
    Message,
    ProtocolError,
    Refusal,
    Status,
    Stream,
    UnknownCommandError,
    decode_event,
)

Answer = Message | Refusal
"""Reply to a request, or an error reply."""

Sink = Callable[[int, AnyEvent], None]
"""Function that receives the sequence number and content of each event; must return quickly."""

_MAX_EVENTS = 64
_SEQ = 1 << 16
_EVT, _KINDS = int(Kind.EVT), (int(Kind.RSP), int(Kind.EVT))  # plain numbers for speed, as this runs once per frame
_MORE, _FAULT_PENDING = int(HeaderFlag.MORE), int(HeaderFlag.FAULT_PENDING)


class ExpectedReply:
    """A reply that a session waits for.

    Args:
        session: Session id of the request.
        seq: Sequence number of the request.
        command: Command code of the request.
        reply: Class of the reply to status OK.

    Attributes:
        answer: The reply, once it has arrived.
    """

    __slots__ = ("answer", "command", "reply", "seq", "session")

    def __init__(self, session: int, seq: int, command: int, reply: type[Message]) -> None:
        self.session = session
        self.seq = seq
        self.command = command
        self.reply = reply
        self.answer: Answer | None = None


class Inbox:
    """Decodes the frames from the board and assigns replies to requests.

    Args:
        mtu: Largest frame accepted, in bytes.

    Attributes:
        session: Id of the current session; 0 for none.
        fault_pending: Whether the latest frame reported a latched fault.
        counts: Number of events of each kind that protocol section 13 lists.
        faults: Latest fault events of the session, oldest first.
    """

    def __init__(self, mtu: int) -> None:
        self.session = 0
        self.fault_pending = False
        self.counts: Counter[str] = Counter()
        self.faults: deque[FaultRecord] = deque(maxlen=_MAX_EVENTS)
        self._decoder = Decoder(mtu)
        self._mtu = mtu
        self._expected: dict[tuple[int, int], ExpectedReply] = {}
        self._sinks: dict[int, Sink] = {}
        self._next_event: dict[int, int] = dict.fromkeys(Stream, 0)

    def start(self, session: int) -> None:
        """Start a session, and forget everything of the previous session."""
        self.session = session
        self.fault_pending = False
        self.faults.clear()
        self._decoder = Decoder(self._mtu)
        self._expected.clear()
        self._sinks.clear()
        self._next_event = dict.fromkeys(Stream, 0)

    def expect(self, expected: ExpectedReply) -> None:
        """Register a reply that a request waits for."""
        self._expected[expected.session, expected.seq] = expected

    def forget(self, expected: ExpectedReply) -> None:
        """Stop waiting for this reply."""
        self._expected.pop((expected.session, expected.seq), None)

    def listen(self, stream: int, sink: Sink) -> None:
        """Pass events of a stream (number 1 or more) to ``sink`` until :meth:`unlisten` or the session ends."""
        self._sinks[stream] = sink

    def unlisten(self, stream: int) -> None:
        """Stop passing the events of a stream to their receiver."""
        self._sinks.pop(stream, None)

    def take(self, data: bytes) -> None:
        """Process bytes received from the link."""
        self.counts["rx_bytes"] += len(data)
        for item in self._decoder.feed(data):
            if isinstance(item, BadFrame):
                self.counts[f"bad_{item.cause}"] += 1
            elif item.kind == _EVT:
                self._handle_event(item)
            else:
                self._handle_reply(item)

    def _count_drop(self, reason: str) -> None:
        self.counts[reason] += 1

    def _acceptable(self, frame: Frame) -> bool:
        if frame.kind not in _KINDS:
            # A returned request means an echo or a loop-back cable, and has its own counter.
            self._count_drop("echoes" if frame.kind == Kind.REQ else "bad_kind")
        elif frame.version != PROTOCOL_MAJOR:
            self._count_drop("bad_version")
        elif frame.flags & _MORE:
            self._count_drop("more_set")
        else:
            return True
        return False

    def _handle_reply(self, frame: Frame) -> None:
        if not self._acceptable(frame):
            return
        # Looked up before comparing the session: ESTOP and its reply have session 0.
        expected = self._expected.get((frame.session, frame.seq))
        if expected is None and frame.session != self.session:
            self._count_drop("foreign_session")
            return
        self.fault_pending = bool(frame.flags & _FAULT_PENDING)
        if expected is None:
            # Counted and dropped, never raised: a client that raises an error for a
            # late reply stays one reply behind from then on (section 4.4).
            self._count_drop("late")
        elif frame.command != expected.command:
            self._count_drop("mismatched")
        else:
            self._decode(frame, expected)

    def _decode(self, frame: Frame, expected: ExpectedReply) -> None:
        try:
            if frame.status == Status.OK:
                answer: Answer = expected.reply.decode(frame.payload)
            else:
                answer = Refusal.decode(frame.status, frame.payload)
        except ProtocolError:
            # The request keeps waiting and is repeated: an
            # unreadable reply counts as none (section 13, row 13).
            self._count_drop("bad_payload")
            return
        del self._expected[expected.session, expected.seq]
        expected.answer = answer

    def _handle_event(self, frame: Frame) -> None:
        if not self._acceptable(frame):
            return
        stream = frame.status
        if frame.session != self.session:
            self._count_drop("foreign_session")
            return
        if not _carries_event(frame.command, stream) or (stream != Stream.FAULT and stream not in self._sinks):
            self._count_drop("unknown_event")
            return
        # Also if the event is unreadable: every frame carries the flag, because events can be lost.
        self.fault_pending = bool(frame.flags & _FAULT_PENDING)
        try:
            event = decode_event(frame.command, frame.payload)
        except UnknownCommandError:
            self._count_drop("unknown_event")
            return
        except ProtocolError:
            self._count_drop("bad_payload")
            return
        self.counts["events"] += 1
        self._number(stream, frame.seq)
        if isinstance(event, FaultRecord):
            self.faults.append(event)
        else:
            self._sinks[stream](frame.seq, event)

    def _number(self, stream: int, seq: int) -> None:
        if stream not in self._next_event:
            return
        distance = (seq - self._next_event[stream]) % _SEQ
        if distance >= _SEQ // 2:
            self._count_drop("repeated_events")
            return
        self.counts["lost_events"] += distance
        self._next_event[stream] = (seq + 1) % _SEQ


def _carries_event(event: int, stream: int) -> bool:
    if stream == Stream.FAULT:
        return event == Event.FAULT
    if stream == Stream.SWEEP:
        return event in (Event.SWEEP_DATA, Event.SWEEP_DONE)
    if stream == Stream.LIGHT:
        return event == Event.LIGHT
    return event == Event.TELEMETRY
