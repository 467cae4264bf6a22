"""What a host does with everything that arrives on a framed link (protocol section 13): accept, count, or drop.

Nothing here raises on what came over the wire. A reply is accepted only if session, sequence number and command equal
those of a waiting request; an event only if somebody listens to its stream; whatever else arrives is counted and
dropped.
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
"""What answers a request: its reply, or a refusal as a value."""

Sink = Callable[[int, AnyEvent], None]
"""Takes the events of one stream: ``seq`` of the frame and the event. Called while bytes are read: be brief."""

_KEPT_EVENTS = 64
_SEQ = 1 << 16
_EVT, _KINDS = int(Kind.EVT), (int(Kind.RSP), int(Kind.EVT))  # plain numbers: this runs once per frame
_MORE, _FAULT_PENDING = int(HeaderFlag.MORE), int(HeaderFlag.FAULT_PENDING)


class Wanted:
    """One reply a session waits for.

    Args:
        session: Session id of the request.
        seq: Sequence number of the request.
        command: Command code of the request.
        reply: Class of the reply to status OK.

    Attributes:
        answer: The answer once it has come.
    """

    __slots__ = ("answer", "command", "reply", "seq", "session")

    def __init__(self, session: int, seq: int, command: int, reply: type[Message]) -> None:
        self.session = session
        self.seq = seq
        self.command = command
        self.reply = reply
        self.answer: Answer | None = None


class Inbox:
    """Decodes, matches and counts what comes from the board.

    Args:
        mtu: Largest frame accepted, in bytes on the wire.

    Attributes:
        session: Id of the current session, 0 for none.
        fault_pending: FAULT_PENDING flag of the newest frame of the session.
        counts: How often each thing happened, by the names of protocol section 13.
        faults: The newest FAULT events of the session, oldest first.
    """

    def __init__(self, mtu: int) -> None:
        self.session = 0
        self.fault_pending = False
        self.counts: Counter[str] = Counter()
        self.faults: deque[FaultRecord] = deque(maxlen=_KEPT_EVENTS)
        self._decoder = Decoder(mtu)
        self._mtu = mtu
        self._wanted: dict[tuple[int, int], Wanted] = {}
        self._sinks: dict[int, Sink] = {}
        self._next_event: dict[int, int] = dict.fromkeys(Stream, 0)

    def start(self, session: int) -> None:
        """Begin a session: what was half received, asked for, subscribed to or announced before is forgotten."""
        self.session = session
        self.fault_pending = False
        self.faults.clear()
        self._decoder = Decoder(self._mtu)
        self._wanted.clear()
        self._sinks.clear()
        self._next_event = dict.fromkeys(Stream, 0)

    def expect(self, wanted: Wanted) -> None:
        """Accept this reply from now on, once."""
        self._wanted[wanted.session, wanted.seq] = wanted

    def forget(self, wanted: Wanted) -> None:
        """Wait for this reply no longer; when it comes it is late."""
        self._wanted.pop((wanted.session, wanted.seq), None)

    def listen(self, stream: int, sink: Sink) -> None:
        """Hand the events of a stream (1 … ) to ``sink`` until :meth:`unlisten` or the end of the session."""
        self._sinks[stream] = sink

    def unlisten(self, stream: int) -> None:
        """Drop the events of a stream from now on."""
        self._sinks.pop(stream, None)

    def take(self, data: bytes) -> None:
        """Work through bytes from the link."""
        self.counts["rx_bytes"] += len(data)
        for item in self._decoder.feed(data):
            if isinstance(item, BadFrame):
                self.counts[f"bad_{item.cause}"] += 1
            elif item.kind == _EVT:
                self._take_event(item)
            else:
                self._take_reply(item)

    def _drop(self, why: str) -> None:
        self.counts[why] += 1

    def _acceptable(self, frame: Frame) -> bool:
        """Check what replies and events have in common; rows 6, 7 and 11."""
        if frame.kind not in _KINDS:
            # An own request that comes back is an echo or a loop-back cable, which is worth its own count.
            self._drop("echoes" if frame.kind == Kind.REQ else "bad_kind")
        elif frame.version != PROTOCOL_MAJOR:
            self._drop("bad_version")
        elif frame.flags & _MORE:
            self._drop("more_set")
        else:
            return True
        return False

    def _take_reply(self, frame: Frame) -> None:
        if not self._acceptable(frame):
            return
        # Before the session is compared: ESTOP travels with session 0, and so does its reply.
        wanted = self._wanted.get((frame.session, frame.seq))
        if wanted is None and frame.session != self.session:
            self._drop("foreign_session")
            return
        self.fault_pending = bool(frame.flags & _FAULT_PENDING)
        if wanted is None:
            # Counted and dropped, never raised: a client that raises on a
            # late reply stays one reply behind for ever (section 4.4).
            self._drop("late")
        elif frame.command != wanted.command:
            self._drop("mismatched")
        else:
            self._decode(frame, wanted)

    def _decode(self, frame: Frame, wanted: Wanted) -> None:
        try:
            if frame.status == Status.OK:
                answer: Answer = wanted.reply.decode(frame.payload)
            else:
                answer = Refusal.decode(frame.status, frame.payload)
        except ProtocolError:
            # The request keeps waiting and is repeated; a reply that
            # cannot be read is as good as none (section 13, row 13).
            self._drop("bad_payload")
            return
        del self._wanted[wanted.session, wanted.seq]
        wanted.answer = answer

    def _take_event(self, frame: Frame) -> None:
        if not self._acceptable(frame):
            return
        stream = frame.status
        if frame.session != self.session:
            self._drop("foreign_session")
            return
        if not _belongs(frame.command, stream) or (stream != Stream.FAULT and stream not in self._sinks):
            self._drop("unknown_event")
            return
        # Even where the event itself cannot be read: the flag rides on every frame because events can be lost.
        self.fault_pending = bool(frame.flags & _FAULT_PENDING)
        try:
            event = decode_event(frame.command, frame.payload)
        except UnknownCommandError:
            self._drop("unknown_event")
            return
        except ProtocolError:
            self._drop("bad_payload")
            return
        self.counts["events"] += 1
        self._number(stream, frame.seq)
        if isinstance(event, FaultRecord):
            self.faults.append(event)
        else:
            self._sinks[stream](frame.seq, event)

    def _number(self, stream: int, seq: int) -> None:
        """Count the gaps in a fixed stream; telemetry counts its own, because subscribing starts it anew."""
        if stream not in self._next_event:
            return
        ahead = (seq - self._next_event[stream]) % _SEQ
        if ahead >= _SEQ // 2:
            self._drop("repeated_events")
            return
        self.counts["lost_events"] += ahead
        self._next_event[stream] = (seq + 1) % _SEQ


def _belongs(event: int, stream: int) -> bool:
    """Whether a stream carries this event (section 5)."""
    if stream == Stream.FAULT:
        return event == Event.FAULT
    if stream == Stream.SWEEP:
        return event in (Event.SWEEP_DATA, Event.SWEEP_DONE)
    if stream == Stream.LIGHT:
        return event == Event.LIGHT
    return event == Event.TELEMETRY
