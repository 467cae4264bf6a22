"""Processor of the emulated board, which executes all actions at their scheduled times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np

from firmware_protocol import BadFrame, Command, Frame, HeaderFlag, StatsCounter, Status
from lumion_hw.emulator.mesh.lumion.connection import BoardPeer
from lumion_hw.emulator.mesh.lumion.context import Context, DeferredReply
from lumion_hw.emulator.mesh.lumion.firmware import BoardFirmware, ReadyReply, Work, complete
from lumion_hw.emulator.mesh.lumion.transmitter import MAX_UNREAD_REPLIES

MAX_WAITING_REQUESTS = 32
"""Largest number of waiting requests of a connection; beyond it the board stops reading."""

Due = tuple[float, Callable[[], None]]


class Noise:
    """Random corruption of bytes; each byte is replaced with the probability ``rate``."""

    def __init__(self, rate: float, seed: int) -> None:
        self._rate = rate
        self._rng = np.random.default_rng(seed)

    def damage(self, data: bytes) -> bytes:
        """Return received bytes after random corruption."""
        wire = np.frombuffer(data, dtype=np.uint8)
        is_damaged = self._rng.random(wire.size) < self._rate
        return np.where(is_damaged, self._rng.integers(0, 256, wire.size, dtype=np.uint8), wire).tobytes()


class Processor:
    """Executes all actions of one board up to a given time.

    Actions due at the same time run in this order: received bytes, scheduled changes of the outputs (watchdog, armed
    commits), the sweep, requests, telemetry, frames to send.

    Attributes:
        time: Time up to which the board has run.
        reading: Whether bytes from hosts are read.
        frames_to_lose: Number of valid frames to drop silently (scripted fault).
    """

    def __init__(self, context: Context, firmware: BoardFirmware, start_s: float) -> None:
        self._context = context
        self._core = context.core
        self._transmitter = context.transmitter
        self._firmware = firmware
        self._t_cmd_s = context.core.profile.t_cmd_ms * 1e-3
        self._inbox: deque[tuple[float, BoardPeer, Frame]] = deque()
        self._current: tuple[Work, DeferredReply, BoardPeer] | None = None
        self.peers: list[BoardPeer] = []
        self.time = start_s
        self.reading = True
        self.frames_to_lose = 0
        self.noise: Noise | None = None

    def reset(self, at_s: float) -> None:
        """Restart the processor: drop all work in progress."""
        self.time = at_s
        self._inbox.clear()
        self._current = None
        for peer in self.peers:
            peer.clear()

    def shift(self, seconds: float, now_s: float) -> None:
        """Delay all scheduled times by the duration of a freeze that ends at ``now_s``."""
        self.time = now_s
        self._inbox = deque((ready_s + seconds, peer, frame) for ready_s, peer, frame in self._inbox)
        if self._current is not None:
            work, deferred, peer = self._current
            self._current = (work, DeferredReply(deferred.at_s + seconds, deferred.finish), peer)

    # -- order ------------------------------------------------------------------------------------------------------

    def run(self, now_s: float) -> None:
        """Carry out all actions that are due up to a time."""
        self._transmitter.collect_faults()
        while (due := self.next_due(now_s)) is not None and due[0] <= now_s:
            self.time = max(self.time, due[0])
            due[1]()
            self._transmitter.collect_faults()
        self.time = max(self.time, now_s)
        for peer in self.peers:
            if self._is_reading(peer) and (data := peer.from_host.read(now_s)):
                self._decode(peer, data, now_s)  # the beginning of a frame, or endless garbage

    def next_due(self, now_s: float) -> Due | None:
        """Return the board's next action and the time of this action."""
        first, action = float("inf"), None
        for time, candidate in self._candidates():
            # Strictly earlier: at equal times the action listed first goes first.
            if time is not None and time < first:
                first, action = time, candidate
        telemetry_s, watch_s = self._context.telemetry.next_due(), self._context.watch.next_due(self.time)
        starts = [(self._transmitter.next_start(peer, self.time), peer) for peer in self.peers]
        start_s, sender = min(
            ((time, peer) for time, peer in starts if time is not None),
            key=lambda item: item[0],
            default=(float("inf"), None),
        )
        other_due_s = min(first, start_s, float("inf") if telemetry_s is None else telemetry_s)
        if watch_s is not None and watch_s < first and watch_s <= other_due_s:
            until_s = min(other_due_s, max(now_s, watch_s))
            return watch_s, partial(self._context.watch.run_due, until_s)
        if telemetry_s is not None and telemetry_s < first and telemetry_s <= start_s:
            # Before that time, nothing can change what a stream may send.
            until_s = min(first, start_s, max(now_s, telemetry_s))
            return telemetry_s, partial(self._sample, until_s)
        if sender is not None and start_s < first:
            return start_s, partial(self._transmit, sender)
        return None if action is None else (first, action)

    def _candidates(self) -> list[tuple[float | None, Callable[[], None]]]:
        candidates: list[tuple[float | None, Callable[[], None]]] = []
        for peer in self.peers:
            arrival_s = peer.from_host.next_arrival() if self._is_reading(peer) else None
            if arrival_s is not None:
                candidates.append((max(arrival_s, self.time), partial(self._receive, peer)))
        candidates.append((self._core.next_due(), self._core.run_due))
        candidates.append((self._context.sweeper.next_due(), self._context.sweeper.run_due))
        if self._current is not None:
            candidates.append((self._current[1].at_s, self._finish_current))
        else:
            # A host that does not read its replies delays its own requests, not those of others.
            ready_s = next((ready_s for ready_s, peer, _ in self._inbox if not _has_unread_replies(peer)), None)
            candidates.append((ready_s, self._execute_next))
        return candidates

    # -- received bytes ---------------------------------------------------------------------------------------------

    def _is_reading(self, peer: BoardPeer) -> bool:
        return self.reading and peer.pending < MAX_WAITING_REQUESTS

    def _receive(self, peer: BoardPeer) -> None:
        self._decode(peer, peer.from_host.read_frame(self.time), self.time)

    def _decode(self, peer: BoardPeer, data: bytes, at_s: float) -> None:
        self._core.count(StatsCounter.RX_BYTES, len(data))
        for item in peer.decoder.feed(data if self.noise is None else self.noise.damage(data)):
            if isinstance(item, Frame) and self.frames_to_lose > 0:
                self.frames_to_lose -= 1
                continue
            self._handle_item(peer, item, at_s)

    def _handle_item(self, peer: BoardPeer, item: Frame | BadFrame, at_s: float) -> None:
        frame = self._firmware.accept(item, at_s)
        if frame is None:
            return
        if self._firmware.is_from_session(frame):
            self._transmitter.session_connection = peer
        # The processing time of section 15 starts at the closing delimiter.
        ready_s = at_s + self._t_cmd_s
        if frame.command == Command.ESTOP:  # outputs change at once; the reply takes its usual time
            self._send_outcome(peer, frame, self._firmware.execute(frame, at_s), ready_s)
        else:
            peer.pending += 1
            self._inbox.append((ready_s, peer, frame))

    # -- requests ---------------------------------------------------------------------------------------------------

    def _execute_next(self) -> None:
        entry = next(item for item in self._inbox if not _has_unread_replies(item[1]))
        self._inbox.remove(entry)
        _, peer, frame = entry
        peer.pending -= 1
        outcome = self._firmware.execute(frame, self.time)
        if isinstance(outcome, Work) and isinstance(outcome.result, DeferredReply):
            self._current = (outcome, outcome.result, peer)
        else:
            self._send_outcome(peer, frame, outcome, self.time)

    def _finish_current(self) -> None:
        if self._current is not None:
            work, _, peer = self._current
            self._current = None
            self._send_outcome(peer, work.frame, work, self.time)

    def _send_outcome(self, peer: BoardPeer, frame: Frame, outcome: Work | ReadyReply | None, ready_s: float) -> None:
        if isinstance(outcome, Work):
            outcome = self._firmware.finish(outcome, complete(outcome.result))
        if frame.command == Command.HELLO and self._firmware.is_from_session(frame):
            self._transmitter.session_connection = peer
        if outcome is None:
            return
        self._core.count(StatsCounter.REFUSED, int(outcome.status != Status.OK))
        flags = HeaderFlag.RETRY if outcome.retry else 0
        self._transmitter.queue_reply(peer, frame, outcome.status, outcome.payload, ready_s, flags)

    # -- outgoing frames --------------------------------------------------------------------------------------------

    def _sample(self, until_s: float) -> None:
        session_connection = self._transmitter.session_connection
        blocked = (
            not self._transmitter.can_send_events or session_connection is None or session_connection.to_host.blocked
        )
        self._context.telemetry.run_due(until_s, blocked=blocked)

    def _transmit(self, peer: BoardPeer) -> None:
        wire = self._transmitter.take_next_frame(peer, self.time)
        if wire is not None:
            peer.to_host.send(wire if self.noise is None else self.noise.damage(wire), self.time)


def _has_unread_replies(peer: BoardPeer) -> bool:
    return len(peer.waiting) >= MAX_UNREAD_REPLIES
