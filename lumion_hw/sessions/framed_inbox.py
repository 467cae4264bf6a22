"""What a host does with everything that arrives on a framed link (protocol section 13): accept, count, or drop.

Nothing here raises on what came over the wire. A reply is accepted only if session, sequence number and command equal
those of the waiting request; whatever else arrives is counted and dropped.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from firmware_protocol import (
    PROTOCOL_MAJOR,
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
)

_KEPT_EVENTS = 64


@dataclass(frozen=True)
class Wanted:
    """The one reply a session waits for.

    Attributes:
        session: Session id of the request.
        seq: Sequence number of the request.
        command: Command code of the request.
        reply: Class of the reply to status OK.
    """

    session: int
    seq: int
    command: int
    reply: type[Message]


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
        self._next_fault_event: int | None = None

    def start(self, session: int) -> None:
        """Begin a session: what was half received and what the last session announced is forgotten."""
        self.session = session
        self.fault_pending = False
        self.faults.clear()
        self._decoder = Decoder(self._mtu)
        self._next_fault_event = None

    def take(self, data: bytes, wanted: Wanted | None) -> Message | Refusal | None:
        """Work through bytes from the link; return the answer to the waiting request if it is among them."""
        answer: Message | Refusal | None = None
        self.counts["rx_bytes"] += len(data)
        for item in self._decoder.feed(data):
            if isinstance(item, BadFrame):
                self.counts[f"bad_{item.cause}"] += 1
            elif item.kind == Kind.EVT:
                self._take_event(item)
            else:
                found = self._take_reply(item, wanted if answer is None else None)
                answer = found if answer is None else answer
        return answer

    def _drop(self, why: str) -> None:
        self.counts[why] += 1

    def _acceptable(self, frame: Frame) -> bool:
        """Check what replies and events have in common; rows 6, 7 and 11."""
        if frame.kind not in (Kind.RSP, Kind.EVT):
            self._drop("echoes" if frame.kind == Kind.REQ else "bad_kind")
        elif frame.version != PROTOCOL_MAJOR:
            self._drop("bad_version")
        elif frame.flags & HeaderFlag.MORE:
            self._drop("more_set")
        else:
            return True
        return False

    def _take_reply(self, frame: Frame, wanted: Wanted | None) -> Message | Refusal | None:
        if not self._acceptable(frame):
            return None
        if frame.session != self.session and (wanted is None or frame.session != wanted.session):
            self._drop("foreign_session")
            return None
        self.fault_pending = bool(frame.flags & HeaderFlag.FAULT_PENDING)
        if wanted is None or (frame.session, frame.seq) != (wanted.session, wanted.seq):
            self._drop("late")
        elif frame.command != wanted.command:
            self._drop("mismatched")
        else:
            return self._decode(frame, wanted)
        return None

    def _decode(self, frame: Frame, wanted: Wanted) -> Message | Refusal | None:
        try:
            if frame.status == Status.OK:
                return wanted.reply.decode(frame.payload)
            return Refusal.decode(frame.status, frame.payload)
        except ProtocolError:
            self._drop("bad_payload")
            return None

    def _take_event(self, frame: Frame) -> None:
        if not self._acceptable(frame):
            return
        if frame.session != self.session:
            self._drop("foreign_session")
            return
        if frame.command != Event.FAULT or frame.status != Stream.FAULT:
            self._drop("unknown_event")
            return
        self.fault_pending = bool(frame.flags & HeaderFlag.FAULT_PENDING)
        if self._next_fault_event is not None:
            self.counts["lost_events"] += (frame.seq - self._next_fault_event) % 65536
        self._next_fault_event = (frame.seq + 1) % 65536
        try:
            self.faults.append(FaultRecord.decode(frame.payload))
            self.counts["events"] += 1
        except ProtocolError:
            self._drop("bad_payload")
