"""Order of the frames that the emulated board sends: RSP, FAULT, LIGHT, SWEEP, TELEMETRY (protocol section 5)."""

from __future__ import annotations

from collections import deque

from firmware_protocol import (
    PROTOCOL_MAJOR,
    Event,
    FaultRecord,
    Frame,
    HeaderFlag,
    Kind,
    StatsCounter,
    Stream,
    encode_frame,
)
from lumion_hw.emulator.mesh.lumion.connection import BoardPeer, Outgoing, Priority
from lumion_hw.emulator.mesh.lumion.core import BoardCore
from lumion_hw.emulator.mesh.lumion.monitors import Telemetry
from lumion_hw.emulator.mesh.lumion.session import Session
from lumion_hw.emulator.mesh.lumion.sweeper import Sweeper
from lumion_hw.emulator.mesh.lumion.watching import MonitorWatch

FAULT_QUEUE = 16
"""Largest number of waiting FAULT events; beyond it the oldest is dropped."""

MAX_UNREAD_REPLIES = 16
"""Largest number of unread replies of a connection; beyond it requests wait too."""

_IMMEDIATELY = float("-inf")


class Transmitter:
    """Chooses the next frame to send on a connection.

    A reply goes to the connection of the request, an event to the connection that last sent a frame of the session
    (docs/protocol.md, section 15).

    Attributes:
        session_connection: Connection that last sent a frame of the session, if it is open.
    """

    def __init__(
        self, core: BoardCore, session: Session, sweeper: Sweeper, telemetry: Telemetry, watch: MonitorWatch
    ) -> None:
        self._core = core
        self._session = session
        self._sweeper = sweeper
        self._telemetry = telemetry
        self._watch = watch
        self._faults: deque[FaultRecord] = deque()
        self.session_connection: BoardPeer | None = None

    # -- waiting frames ---------------------------------------------------------------------------------------------

    def queue_reply(
        self, peer: BoardPeer, request: Frame, status: int, payload: bytes, ready_s: float, flags: int
    ) -> None:
        """Queue a reply. If the queue is full, the reply is lost."""
        if not peer.is_open or len(peer.waiting) >= 2 * MAX_UNREAD_REPLIES:
            return
        header = (Kind.RSP, request.command, request.seq, request.session, flags, status, PROTOCOL_MAJOR)
        peer.waiting.append(Outgoing(Priority.RSP, ready_s, Frame(*header, payload)))

    def collect_faults(self) -> None:
        """Queue new FAULT events. Without a session they are dropped."""
        events = self._core.events
        if not events:
            return
        self._faults += events
        events.clear()
        # Lost events are still reported by FAULT_PENDING and FAULT_LIST.
        surplus = len(self._faults) - (FAULT_QUEUE if self.can_send_events else 0)
        for _ in range(surplus):
            self._faults.popleft()
            self._core.count(StatsCounter.EVENTS_DROPPED)

    @property
    def can_send_events(self) -> bool:
        """Whether a session is open and has a connection to send on."""
        return self._session.number != 0 and self.session_connection is not None and self.session_connection.is_open

    def change_host(self, number: int, at_s: float) -> None:
        """Prepare for a new session. All waiting events are dropped except SWEEP_DONE."""
        self._core.count(StatsCounter.EVENTS_DROPPED, len(self._faults))
        self._faults.clear()
        payload = self._sweeper.take_done_event()
        if payload is None or self.session_connection is None or number == self._session.number:
            return
        frame = self._event(Event.SWEEP_DONE, Stream.SWEEP, self._session.take_event_number(Stream.SWEEP), payload)
        self.session_connection.waiting.append(Outgoing(Priority.SWEEP, at_s, frame))

    def reset(self) -> None:
        """Drop all frames that wait to be sent."""
        self._faults.clear()
        self.session_connection = None

    # -- next frame -------------------------------------------------------------------------------------------------

    def next_start(self, peer: BoardPeer, now_s: float) -> float | None:
        """Return the start time of a connection's next frame, not before ``now_s``; ``None`` if no frame waits."""
        if peer.to_host.blocked:
            return None
        ready = [item.ready_s for item in peer.waiting]
        if peer is self.session_connection and self.can_send_events:
            ready += [time for time, _ in self._waiting_events()]
        return max(min(ready), peer.to_host.free_s, now_s) if ready else None

    def _waiting_events(self) -> list[tuple[float, Priority]]:
        waiting_events = [(_IMMEDIATELY, Priority.FAULT)] if self._faults else []
        light = self._watch.next_ready_s()
        if light is not None:
            waiting_events.append((light, Priority.LIGHT))
        sweep = self._sweeper.next_ready_s(self._session.tx_max)
        if sweep is not None:
            waiting_events.append((sweep, Priority.SWEEP))
        telemetry = self._telemetry.next_ready_s()
        if telemetry is not None:
            waiting_events.append((telemetry, Priority.TELEMETRY))
        return waiting_events

    def take_next_frame(self, peer: BoardPeer, at_s: float) -> bytes | None:
        """Remove the next frame and return its bytes; ``None`` if no frame is ready."""
        frames = [item for item in peer.waiting if item.ready_s <= at_s]
        ranks = [item.priority for item in frames]
        if peer is self.session_connection and self.can_send_events:
            ranks += [priority for time, priority in self._waiting_events() if time <= at_s]
        if not ranks:
            return None
        # The most urgent frame that is ready when the line is free: telemetry that was ready earlier does not delay a
        # reply.
        priority = min(ranks)
        frame = next((item for item in frames if item.priority is priority), None)
        if frame is not None:
            peer.waiting.remove(frame)
        return self._encode(self._take_event(priority) if frame is None else frame.frame)

    def _take_event(self, priority: Priority) -> Frame:
        session = self._session
        if priority is Priority.FAULT:
            payload = self._faults.popleft().encode()
            return self._event(Event.FAULT, Stream.FAULT, session.take_event_number(Stream.FAULT), payload)
        if priority is Priority.LIGHT:
            payload = self._watch.take_event()
            return self._event(Event.LIGHT, Stream.LIGHT, session.take_event_number(Stream.LIGHT), payload)
        if priority is Priority.SWEEP:
            code, payload = self._sweeper.take_event(session.tx_max)
            return self._event(code, Stream.SWEEP, session.take_event_number(Stream.SWEEP), payload)
        stream, number, payload = self._telemetry.take_event()
        return self._event(Event.TELEMETRY, stream, number, payload)

    def _event(self, code: Event, stream: int, number: int, payload: bytes) -> Frame:
        return Frame(Kind.EVT, code, number % (1 << 16), self._session.number, 0, stream, PROTOCOL_MAJOR, payload)

    def _encode(self, frame: Frame) -> bytes:
        # Set when the frame leaves, so that it is valid at that time.
        pending = HeaderFlag.FAULT_PENDING if self._core.faults.latched else 0
        header = (frame.kind, frame.command, frame.seq, frame.session, frame.flags | pending, frame.status)
        wire = encode_frame(Frame(*header, frame.version, frame.payload))
        self._core.count(StatsCounter.EVENTS_SENT, int(frame.kind == Kind.EVT))
        self._core.count(StatsCounter.TX_FRAMES)
        self._core.count(StatsCounter.TX_BYTES, len(wire))
        return wire
