"""The emulated mesh controller as a device: connections, bytes in time, and the order in which things happen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    PROTOCOL_MAJOR,
    BadFrame,
    Command,
    Decoder,
    Event,
    FaultSource,
    Feature,
    Frame,
    HeaderFlag,
    Kind,
    OutputsState,
    StatsCounter,
    Status,
    Stream,
    encode_frame,
)
from lumion_hw.clock import Clock
from lumion_hw.emulator.board.connection import BoardPeer
from lumion_hw.emulator.board.core import BoardCore
from lumion_hw.emulator.board.faults import Condition
from lumion_hw.emulator.board.firmware import Answer, Firmware, Work, result_of
from lumion_hw.emulator.board.profile import BoardProfile
from lumion_hw.emulator.board.session import Context, Later, Session
from lumion_hw.emulator.serial_line import SerialLine
from lumion_hw.errors import ConnectError

_END = b"\0"


class MeshBoard:
    """An emulated mesh controller (wire protocol version 1; sweeps and telemetry are not built in).

    Args:
        name: Device name of the bench file.
        clock: The clock of the bench.
        rng: Draws ``boot_id``.
        drive: Called with the outputs, shape ``(n_dac,)`` in mA (mV for voltage drive), and the exact instant, whenever
            they change. Instants never run backwards but may lie before the clock's present time.
        sense_ma: Called with a number of scans; returns the mean photocurrents in mA, shape ``(n_adc,)``.
        profile: What the board is.
        baud: Rate of the serial line in baud; ``None`` for USB or TCP, where bytes take no time.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        drive: Callable[[NDArray[np.float64], float], None],
        sense_ma: Callable[[int], NDArray[np.float64]],
        profile: BoardProfile | None = None,
        baud: int | None = None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._rng = rng
        self._baud = baud
        self.profile = profile or BoardProfile()
        self.core = BoardCore(self.profile, drive, clock.now(), self._draw_boot_id())
        self._session = Session(self.profile.window)
        self._firmware = Firmware(Context(self.core, self._session, sense_ma))
        self._peers: list[BoardPeer] = []
        self._inbox: deque[tuple[float, BoardPeer, Frame]] = deque()
        self._current: tuple[Work, Later, BoardPeer] | None = None
        self._speaker: BoardPeer | None = None
        self._time = clock.now()
        self._frozen_at: float | None = None
        self._to_lose = 0
        self._advancing = False
        self.powered = True

    def _draw_boot_id(self) -> int:
        return int(self._rng.integers(1, 1 << 32))

    # -- the device -------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Device name of the bench file."""
        return self._name

    @property
    def state(self) -> OutputsState:
        """State of the outputs, as of the last :meth:`advance`."""
        return self.core.state

    @property
    def driven_codes(self) -> NDArray[np.uint16]:
        """Copy of the table driven, as of the last :meth:`advance`; shape ``(n_dac,)``."""
        return self.core.driven.copy()

    @property
    def boot_id(self) -> int:
        """Random number of this power-up."""
        return self.core.boot_id

    def now(self) -> float:
        """Return the time of the board's clock."""
        return self._clock.now()

    def connect(self) -> BoardPeer:
        """Open one more connection. Raises ``ConnectError`` while the board has no power."""
        if not self.powered:
            raise ConnectError("the mesh controller has no power", device=self._name, hint="Switch it on.")
        peer = BoardPeer(self, SerialLine(self._baud), self.profile.mtu)
        self._peers.append(peer)
        return peer

    def disconnect(self, peer: BoardPeer) -> None:
        """Forget a connection; what has arrived from it is still executed."""
        self.advance()
        peer.is_open = False
        if peer in self._peers:
            self._peers.remove(peer)
        if self._speaker is peer:
            self._speaker = None

    def next_event(self) -> float | None:
        """Return the next time at which the board does something by itself, or ``None``."""
        if self._frozen_at is not None or not self.powered:
            return self._hw_reset_due()
        due = self._next_due()
        return None if due is None else due[0]

    def advance(self) -> None:
        """Do everything that falls due up to the clock's present time, each thing at its own instant."""
        if self._advancing:  # a scan asks the optical world, which asks every device to advance
            return
        self._advancing = True
        try:
            now = self._clock.now()
            self._check_hw_watchdog(now)
            if self._frozen_at is None and self.powered:
                self._run(now)
        finally:
            self._advancing = False

    # -- order of events --------------------------------------------------------------------------------------------

    def _run(self, now: float) -> None:
        while (due := self._next_due()) is not None and due[0] <= now:
            self._time = max(self._time, due[0])
            due[1]()
            self._send_events()
        self._time = max(self._time, now)
        for peer in self._peers:
            while (piece := peer.line.arrived(now)) is not None:  # the beginning of a frame, or endless garbage
                self._take(peer, piece[1], piece[0])

    def _next_due(self) -> tuple[float, Callable[[], None]] | None:
        """Return what happens next; at one instant bytes come first, then the outputs' own events, then requests."""
        candidates: list[tuple[float, Callable[[], None]]] = []
        arrival = min(
            (
                (time, index)
                for index, peer in enumerate(self._peers)
                if (time := peer.line.next_arrival(_END)) is not None
            ),
            default=None,
        )
        if arrival is not None:
            peer = self._peers[arrival[1]]
            candidates.append((max(arrival[0], self._time), lambda: self._receive(peer)))
        own = self.core.next_due()
        if own is not None:
            candidates.append((own, self.core.run_due))
        if self._current is not None:
            candidates.append((self._current[1].at_s, self._finish_current))
        elif self._inbox:
            candidates.append((self._inbox[0][0], self._serve))
        return min(candidates, key=lambda item: item[0], default=None)

    def _receive(self, peer: BoardPeer) -> None:
        """Take bytes up to the next delimiter."""
        while (piece := peer.line.arrived(self._time, _END)) is not None:
            self._take(peer, piece[1], self._time)
            if piece[1].endswith(_END):
                break

    def _take(self, peer: BoardPeer, data: bytes, at_s: float) -> None:
        self.core.count(StatsCounter.RX_BYTES, len(data))
        for item in peer.decoder.feed(data):
            if isinstance(item, Frame) and self._to_lose > 0:
                self._to_lose -= 1
                continue
            self._hear(peer, item, at_s)

    def _hear(self, peer: BoardPeer, item: Frame | BadFrame, at_s: float) -> None:
        frame = self._firmware.hears(item, at_s)
        if frame is None:
            return
        if self._firmware.is_own(frame):
            self._speaker = peer
        ready = at_s + self.profile.t_cmd_ms * 1e-3
        if frame.command == Command.ESTOP:  # waits for nothing: outputs at once, the reply in its time
            self._answer(peer, frame, self._firmware.execute(frame, at_s), ready)
        else:
            self._inbox.append((ready, peer, frame))

    def _serve(self) -> None:
        _, peer, frame = self._inbox.popleft()
        outcome = self._firmware.execute(frame, self._time)
        if isinstance(outcome, Work) and isinstance(outcome.result, Later):
            self._current = (outcome, outcome.result, peer)
            return
        if frame.command == Command.HELLO and self._firmware.is_own(frame):
            self._speaker = peer
        self._answer(peer, frame, outcome, self._time)

    def _finish_current(self) -> None:
        if self._current is None:
            return
        work, _, peer = self._current
        self._current = None
        self._answer(peer, work.frame, work, self._time)

    def _answer(self, peer: BoardPeer, frame: Frame, outcome: Work | Answer | None, at_s: float) -> None:
        if isinstance(outcome, Work):
            outcome = self._firmware.finish(outcome, result_of(outcome.result))
        if outcome is None:
            return
        self.core.count(StatsCounter.REFUSED, int(outcome.status != Status.OK))
        flags = HeaderFlag.RETRY if outcome.retry else HeaderFlag(0)
        reply = (Kind.RSP, frame.command, frame.seq, frame.session, flags, outcome.status, outcome.payload)
        self._send(peer, *reply, at_s=at_s)

    def _send_events(self) -> None:
        """Send the FAULT events that have come up, on stream 0, to where the session last spoke from."""
        for record in self.core.events:
            peer = self._speaker
            if peer is None or not peer.is_open or self._session.number == 0:
                self.core.count(StatsCounter.EVENTS_DROPPED)
                continue
            number = self._session.events_sent % (1 << 16)
            self._session.events_sent += 1
            self.core.count(StatsCounter.EVENTS_SENT)
            event = (Kind.EVT, Event.FAULT, number, self._session.number, HeaderFlag(0), Stream.FAULT, record.encode())
            self._send(peer, *event, at_s=self._time)
        self.core.events.clear()

    def _send(
        self,
        peer: BoardPeer,
        kind: Kind,
        command: int,
        seq: int,
        session: int,
        flags: HeaderFlag,
        status: int,
        payload: bytes,
        *,
        at_s: float,
    ) -> None:
        if self.core.faults.latched:
            flags |= HeaderFlag.FAULT_PENDING
        wire = encode_frame(Frame(kind, command, seq, session, int(flags), status, PROTOCOL_MAJOR, payload))
        if peer.is_open:
            self.core.count(StatsCounter.TX_FRAMES)
            self.core.count(StatsCounter.TX_BYTES, len(wire))
            peer.line.send(wire, at_s)

    # -- fault hooks ------------------------------------------------------------------------------------------------

    def trip(
        self, source: int, *, channel: int | None = None, value: int = 0, limit: int = 0, present: bool = False
    ) -> int | None:
        """Let a fault source trip now.

        Args:
            source: Number of the source (``FaultSource``, or 24 to 31).
            channel: Channel concerned.
            value: What was measured, in the unit of the source.
            limit: The threshold, in the unit of the source.
            present: The condition stays until :meth:`remove_condition`, also over a reset.

        Returns:
            Id of the latched fault, or ``None`` when the active configuration does not enable the source (a condition
            that is present then trips as soon as it is enabled).
        """
        self.advance()
        core = self.core
        if present:
            core.faults.set_present(source, channel, Condition(value, limit))
        if not core.enabled(source):
            return None
        record = core.trip(source, self._time, channel=channel, value=value, limit=limit)
        if source == FaultSource.WATCHDOG:
            core.go_safe(self._time)
        self._send_events()
        return record.fault_id

    def remove_condition(self, source: int, channel: int | None = None) -> None:
        """End a fault condition; a latched fault stays latched until it is cleared by its id."""
        self.advance()
        self.core.faults.set_present(source, channel, None)

    def trigger(self) -> None:
        """Give the external trigger: a commit armed for it latches at the next tick edge."""
        self.advance()
        self.core.trigger(self._time)

    def corrupt_bank(self, bank: int, channel: int = 0) -> None:
        """Flip a bit of a staged code in memory: its CRC is wrong from now on."""
        self.advance()
        self.core.banks[bank].codes[channel] ^= 1

    def lose_frames(self, count: int) -> None:
        """Lose the next ``count`` good frames without a trace."""
        self._to_lose += count

    def reset(self) -> None:
        """Restart the processor: new ``boot_id``, outputs 0, connections stay open but forget what is under way."""
        self.advance()
        self._reboot(self._clock.now())

    def power_off(self) -> None:
        """Cut the supply: outputs 0 now, nothing answers, connections are refused."""
        self.advance()
        self.powered = False
        self.core.go_safe(self._clock.now())
        for peer in self._peers:
            peer.line.clear()

    def power_on(self) -> None:
        """Give the supply back: a power-up."""
        if not self.powered:
            self.powered = True
            self._reboot(self._clock.now())

    def freeze(self) -> None:
        """Let the processor hang: no ticks, no answers, outputs as they are, until :meth:`thaw` or a reset.

        A board with the feature HW_WATCHDOG is reset after ``hw_watchdog_s``.
        """
        self.advance()
        if self._frozen_at is None:
            self._frozen_at = self._clock.now()

    def thaw(self) -> None:
        """End a freeze; to the board no time has passed."""
        self.advance()
        if self._frozen_at is None:
            return
        stood_s = self._clock.now() - self._frozen_at
        self._frozen_at = None
        self._time = self._clock.now()
        self.core.shift(stood_s)
        self.core.count(StatsCounter.TICK_OVERRUNS, int(stood_s / self.profile.tick_s))
        self._inbox = deque((ready + stood_s, peer, frame) for ready, peer, frame in self._inbox)
        if self._current is not None:
            work, later, peer = self._current
            self._current = (work, Later(later.at_s + stood_s, later.finish), peer)
        self.advance()

    def _hw_reset_due(self) -> float | None:
        if self._frozen_at is None or not self.powered or not self.profile.has(Feature.HW_WATCHDOG):
            return None
        return self._frozen_at + self.profile.hw_watchdog_s

    def _check_hw_watchdog(self, now: float) -> None:
        due = self._hw_reset_due()
        if due is not None and due <= now:
            self._reboot(due)

    def _reboot(self, at_s: float) -> None:
        self._frozen_at = None
        self._time = at_s
        self._inbox.clear()
        self._current = None
        self._speaker = None
        self._session.close()
        for peer in self._peers:
            peer.line.clear()
            peer.decoder = Decoder(self.profile.mtu)
        self.core.boot(at_s, self._draw_boot_id())
        self._send_events()
