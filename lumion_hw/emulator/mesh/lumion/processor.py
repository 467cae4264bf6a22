"""The emulated board's processor: the order in which things happen, each at its own instant."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np

from firmware_protocol import BadFrame, Command, Frame, HeaderFlag, StatsCounter, Status
from lumion_hw.emulator.mesh.lumion.connection import BoardPeer
from lumion_hw.emulator.mesh.lumion.context import Context, DeferredReply
from lumion_hw.emulator.mesh.lumion.firmware import Answer, BoardFirmware, Work, result_of
from lumion_hw.emulator.mesh.lumion.transmitter import MOST_REPLIES

MOST_REQUESTS = 32
"""Requests of one connection that wait; then no more of its bytes are read."""

Due = tuple[float, Callable[[], None]]


class Noise:
    """Damages bytes on the lines, by seed.

    Args:
        rate: Probability of a byte to be replaced by a random one, 0 to 1.
        seed: Seed.
    """

    def __init__(self, rate: float, seed: int) -> None:
        self._rate = rate
        self._rng = np.random.default_rng(seed)

    def damage(self, data: bytes) -> bytes:
        """Return the bytes as they arrive."""
        wire = np.frombuffer(data, dtype=np.uint8)
        hit = self._rng.random(wire.size) < self._rate
        return np.where(hit, self._rng.integers(0, 256, wire.size, dtype=np.uint8), wire).tobytes()


class Processor:
    """Runs one board up to a given instant.

    At one instant, bytes come first, then what the outputs do by themselves (watchdog, armed commits), then the sweep,
    then requests, then telemetry, and last the frames that leave, so that the most urgent one is chosen.

    Args:
        context: The parts of the board.
        firmware: Judges and executes frames.
        start_s: Present instant.

    Attributes:
        peers: Open connections.
        time: How far the board has come; never runs backwards.
        reading: Bytes from hosts are read.
        frames_to_lose: Good frames that are lost without a trace.
        noise: Damage on the lines, if any.
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
        """Restart: everything under way is lost."""
        self.time = at_s
        self._inbox.clear()
        self._current = None
        for peer in self.peers:
            peer.clear()

    def shift(self, seconds: float, now_s: float) -> None:
        """The processor stood still for so long, until now."""
        self.time = now_s
        self._inbox = deque((ready_s + seconds, peer, frame) for ready_s, peer, frame in self._inbox)
        if self._current is not None:
            work, later, peer = self._current
            self._current = (work, DeferredReply(later.at_s + seconds, later.finish), peer)

    # -- order ------------------------------------------------------------------------------------------------------

    def run(self, now_s: float) -> None:
        """Do everything that falls due up to an instant."""
        self._transmitter.collect_faults()
        while (due := self.next_due(now_s)) is not None and due[0] <= now_s:
            self.time = max(self.time, due[0])
            due[1]()
            self._transmitter.collect_faults()
        self.time = max(self.time, now_s)
        for peer in self.peers:
            if self._listens(peer) and (data := peer.inlet.read(now_s)):
                self._take(peer, data, now_s)  # the beginning of a frame, or endless garbage

    def next_due(self, now_s: float) -> Due | None:
        """Return what happens next, and when; ``now_s`` is how far telemetry may be counted in one go."""
        first, action = float("inf"), None
        for time, candidate in self._candidates():
            # Strictly earlier: at one instant the earlier in the list goes first.
            if time is not None and time < first:
                first, action = time, candidate
        telemetry_s, watch_s = self._context.telemetry.next_due(), self._context.watch.next_due(self.time)
        starts = [(self._transmitter.next_start(peer, self.time), peer) for peer in self.peers]
        start_s, sender = min(
            ((time, peer) for time, peer in starts if time is not None),
            key=lambda item: item[0],
            default=(float("inf"), None),
        )
        others_s = min(first, start_s, float("inf") if telemetry_s is None else telemetry_s)
        if watch_s is not None and watch_s < first and watch_s <= others_s:
            until_s = min(others_s, max(now_s, watch_s))
            return watch_s, partial(self._context.watch.run_due, until_s)
        if telemetry_s is not None and telemetry_s < first and telemetry_s <= start_s:
            # Nothing can change what a stream may send before that.
            until_s = min(first, start_s, max(now_s, telemetry_s))
            return telemetry_s, partial(self._sample, until_s)
        if sender is not None and start_s < first:
            return start_s, partial(self._transmit, sender)
        return None if action is None else (first, action)

    def _candidates(self) -> list[tuple[float | None, Callable[[], None]]]:
        """Return what may be next but for telemetry and frames that leave; the earlier in the list goes first."""
        found: list[tuple[float | None, Callable[[], None]]] = []
        for peer in self.peers:
            arrival_s = peer.inlet.next_arrival() if self._listens(peer) else None
            if arrival_s is not None:
                found.append((max(arrival_s, self.time), partial(self._receive, peer)))
        found.append((self._core.next_due(), self._core.run_due))
        found.append((self._context.sweeper.next_due(), self._context.sweeper.run_due))
        if self._current is not None:
            found.append((self._current[1].at_s, self._finish_current))
        else:
            # A host that does not read its replies holds up its own requests, not those of others.
            ready_s = next((ready_s for ready_s, peer, _ in self._inbox if not _is_choked(peer)), None)
            found.append((ready_s, self._serve))
        return found

    # -- bytes in ---------------------------------------------------------------------------------------------------

    def _listens(self, peer: BoardPeer) -> bool:
        return self.reading and peer.pending < MOST_REQUESTS

    def _receive(self, peer: BoardPeer) -> None:
        self._take(peer, peer.inlet.read_frame(self.time), self.time)

    def _take(self, peer: BoardPeer, data: bytes, at_s: float) -> None:
        self._core.count(StatsCounter.RX_BYTES, len(data))
        for item in peer.decoder.feed(data if self.noise is None else self.noise.damage(data)):
            if isinstance(item, Frame) and self.frames_to_lose > 0:
                self.frames_to_lose -= 1
                continue
            self._hear(peer, item, at_s)

    def _hear(self, peer: BoardPeer, item: Frame | BadFrame, at_s: float) -> None:
        frame = self._firmware.accepted(item, at_s)
        if frame is None:
            return
        if self._firmware.is_own(frame):
            self._transmitter.speaker = peer
        # The processing time of section 15 counts from the closing delimiter.
        ready_s = at_s + self._t_cmd_s
        if frame.command == Command.ESTOP:  # waits for nothing: outputs at once, the reply in its time
            self._answer(peer, frame, self._firmware.execute(frame, at_s), ready_s)
        else:
            peer.pending += 1
            self._inbox.append((ready_s, peer, frame))

    # -- requests ---------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        entry = next(item for item in self._inbox if not _is_choked(item[1]))
        self._inbox.remove(entry)
        _, peer, frame = entry
        peer.pending -= 1
        outcome = self._firmware.execute(frame, self.time)
        if isinstance(outcome, Work) and isinstance(outcome.result, DeferredReply):
            self._current = (outcome, outcome.result, peer)
        else:
            self._answer(peer, frame, outcome, self.time)

    def _finish_current(self) -> None:
        if self._current is not None:
            work, _, peer = self._current
            self._current = None
            self._answer(peer, work.frame, work, self.time)

    def _answer(self, peer: BoardPeer, frame: Frame, outcome: Work | Answer | None, ready_s: float) -> None:
        if isinstance(outcome, Work):
            outcome = self._firmware.finish(outcome, result_of(outcome.result))
        if frame.command == Command.HELLO and self._firmware.is_own(frame):
            self._transmitter.speaker = peer
        if outcome is None:
            return
        self._core.count(StatsCounter.REFUSED, int(outcome.status != Status.OK))
        flags = HeaderFlag.RETRY if outcome.retry else 0
        self._transmitter.answer(peer, frame, outcome.status, outcome.payload, ready_s, flags)

    # -- what leaves ------------------------------------------------------------------------------------------------

    def _sample(self, until_s: float) -> None:
        speaker = self._transmitter.speaker
        blocked = not self._transmitter.has_audience or speaker is None or speaker.outlet.blocked
        self._context.telemetry.run_due(until_s, blocked=blocked)

    def _transmit(self, peer: BoardPeer) -> None:
        wire = self._transmitter.begin_frame(peer, self.time)
        if wire is not None:
            peer.outlet.send(wire if self.noise is None else self.noise.damage(wire), self.time)


def _is_choked(peer: BoardPeer) -> bool:
    """The host does not read its replies: its requests wait."""
    return len(peer.waiting) >= MOST_REPLIES
