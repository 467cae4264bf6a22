"""Which frame the emulated board sends next: RSP, FAULT, LIGHT, SWEEP, TELEMETRY (section 5)."""

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
"""FAULT events that wait for the line; one more, and the oldest is lost (FAULT_PENDING and FAULT_LIST still tell)."""

MOST_REPLIES = 16
"""Replies of one connection that wait because the host does not read; then its requests wait too."""

_AT_ONCE = float("-inf")


class Transmitter:
    """Chooses the next frame of a connection whenever its line is free.

    Replies belong to the connection of their request; events go to the connection from which the current session last
    spoke (section 15) and take their number when they are sent.

    Attributes:
        speaker: That connection, if it is open.
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
        self.speaker: BoardPeer | None = None

    # -- what waits -------------------------------------------------------------------------------------------------

    def answer(self, peer: BoardPeer, request: Frame, status: int, payload: bytes, ready_s: float, flags: int) -> None:
        """Let a reply wait for the line. One too many is lost: only ESTOP is answered without a free place."""
        if not peer.is_open or len(peer.waiting) >= 2 * MOST_REPLIES:
            return
        head = (Kind.RSP, request.command, request.seq, request.session, flags, status, PROTOCOL_MAJOR)
        peer.waiting.append(Outgoing(Priority.RSP, ready_s, Frame(*head, payload)))

    def collect_faults(self) -> None:
        """Take the FAULT events that have come up; without a session to tell they are dropped."""
        events = self._core.events
        if not events:
            return
        self._faults += events
        events.clear()
        # Events lost here are not lost for good: FAULT_PENDING stays set and FAULT_LIST tells.
        surplus = len(self._faults) - (FAULT_QUEUE if self.has_audience else 0)
        for _ in range(surplus):
            self._faults.popleft()
            self._core.count(StatsCounter.EVENTS_DROPPED)

    @property
    def has_audience(self) -> bool:
        """There is a session, and a connection it speaks from."""
        return self._session.number != 0 and self.speaker is not None and self.speaker.is_open

    def change_host(self, number: int, at_s: float) -> None:
        """A session is about to be replaced: the old host still gets its SWEEP_DONE; other events are gone."""
        self._core.count(StatsCounter.EVENTS_DROPPED, len(self._faults))
        self._faults.clear()
        done = self._sweeper.take_done()
        if done is None or self.speaker is None or number == self._session.number:
            return
        frame = self._event(Event.SWEEP_DONE, Stream.SWEEP, self._session.number_event(Stream.SWEEP), done)
        self.speaker.waiting.append(Outgoing(Priority.SWEEP, at_s, frame))

    def reset(self) -> None:
        """Forget everything: a restart."""
        self._faults.clear()
        self.speaker = None

    # -- what goes next ---------------------------------------------------------------------------------------------

    def next_start(self, peer: BoardPeer, now_s: float) -> float | None:
        """Return when the next frame of a connection begins, not before ``now_s``; ``None`` if there is none."""
        if peer.outlet.blocked:
            return None
        ready = [item.ready_s for item in peer.waiting]
        if peer is self.speaker and self.has_audience:
            ready += [time for time, _ in self._sources()]
        return max(min(ready), peer.outlet.free_s, now_s) if ready else None

    def _sources(self) -> list[tuple[float, Priority]]:
        """Return the kinds of events that wait, each with the instant from which on it may be sent."""
        found = [(_AT_ONCE, Priority.FAULT)] if self._faults else []
        light = self._watch.ready_at()
        if light is not None:
            found.append((light, Priority.LIGHT))
        sweep = self._sweeper.ready_at(self._session.tx_max)
        if sweep is not None:
            found.append((sweep, Priority.SWEEP))
        telemetry = self._telemetry.ready_at()
        if telemetry is not None:
            found.append((telemetry, Priority.TELEMETRY))
        return found

    def begin_frame(self, peer: BoardPeer, at_s: float) -> bytes | None:
        """Take the frame that goes next and return its bytes; ``None`` if none is ready at that instant."""
        own = [item for item in peer.waiting if item.ready_s <= at_s]
        ranks = [item.priority for item in own]
        if peer is self.speaker and self.has_audience:
            ranks += [priority for time, priority in self._sources() if time <= at_s]
        if not ranks:
            return None
        # The most urgent that is ready when the line is free: a reply is not held up by telemetry that was ready
        # before.
        rank = min(ranks)
        chosen = next((item for item in own if item.priority is rank), None)
        if chosen is not None:
            peer.waiting.remove(chosen)
        return self._encode(self._next_event(rank) if chosen is None else chosen.frame)

    def _next_event(self, rank: Priority) -> Frame:
        session = self._session
        if rank is Priority.FAULT:
            payload = self._faults.popleft().encode()
            return self._event(Event.FAULT, Stream.FAULT, session.number_event(Stream.FAULT), payload)
        if rank is Priority.LIGHT:
            payload = self._watch.next_event()
            return self._event(Event.LIGHT, Stream.LIGHT, session.number_event(Stream.LIGHT), payload)
        if rank is Priority.SWEEP:
            code, payload = self._sweeper.next_event(session.tx_max)
            return self._event(code, Stream.SWEEP, session.number_event(Stream.SWEEP), payload)
        stream, number, payload = self._telemetry.next_event()
        return self._event(Event.TELEMETRY, stream, number, payload)

    def _event(self, code: Event, stream: int, number: int, payload: bytes) -> Frame:
        return Frame(Kind.EVT, code, number % (1 << 16), self._session.number, 0, stream, PROTOCOL_MAJOR, payload)

    def _encode(self, frame: Frame) -> bytes:
        # Set as the frame leaves, so that it is true of that instant.
        pending = HeaderFlag.FAULT_PENDING if self._core.faults.latched else 0
        head = (frame.kind, frame.command, frame.seq, frame.session, frame.flags | pending, frame.status)
        wire = encode_frame(Frame(*head, frame.version, frame.payload))
        self._core.count(StatsCounter.EVENTS_SENT, int(frame.kind == Kind.EVT))
        self._core.count(StatsCounter.TX_FRAMES)
        self._core.count(StatsCounter.TX_BYTES, len(wire))
        return wire
