"""One connection to the emulated board."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from firmware_protocol import Decoder, Frame
from lumion_hw.emulator.mesh.lumion.wires import Inlet, Outlet, Pacing


class Priority(IntEnum):
    """Rank of a frame on its way out; the lowest goes first."""

    RSP = 0
    FAULT = 1
    LIGHT = 2
    SWEEP = 3
    TELEMETRY = 4


@dataclass(frozen=True)
class Outgoing:
    """A frame that belongs to one connection and waits for its line.

    Attributes:
        priority: Its rank.
        ready_s: Instant from which on it may be sent.
        frame: The frame; FAULT_PENDING is set when it is sent.
    """

    priority: Priority
    ready_s: float
    frame: Frame


class _Board(Protocol):
    """What a connection needs of its board."""

    def now(self) -> float:
        """Return the time of the board's clock."""

    def advance(self) -> None:
        """Bring the board to the present time."""

    def next_due(self) -> float | None:
        """Return when the board does something by itself."""

    def lost_bytes(self, count: int) -> None:
        """Count bytes a host sent although there was no room."""

    def disconnect(self, peer: BoardPeer) -> None:
        """Forget a connection."""


class BoardPeer:
    """One connection to the board: bytes under way, a frame decoder, and the replies that wait for the line.

    Args:
        board: The board.
        pacing: How fast bytes pass.
        mtu: Largest frame the board accepts, B.

    Attributes:
        waiting: Frames for this connection alone, oldest first.
        pending: Requests received and not yet executed.
        is_open: The host has not gone away.
    """

    def __init__(self, board: _Board, pacing: Pacing, mtu: int) -> None:
        self._board = board
        self._mtu = mtu
        self.inlet = Inlet(pacing)
        self.outlet = Outlet(pacing)
        self.waiting: list[Outgoing] = []
        self.pending = 0
        self.is_open = True
        self.clear()

    def clear(self) -> None:
        """Lose everything under way: a restart or a power loss."""
        self.inlet.clear()
        self.outlet.clear()
        self.decoder = Decoder(self._mtu)
        self.waiting.clear()
        self.pending = 0

    @property
    def room(self) -> int:
        """Bytes the host may write now; a writer that respects it is held up as by a real wire (section 15)."""
        return self.inlet.room

    def receive(self, data: bytes) -> None:
        """Take bytes from the host, now."""
        self._board.advance()
        if self.is_open:
            # A writer that ignores `room` loses bytes, as on a UART without flow control.
            self._board.lost_bytes(self.inlet.write(data, self._board.now()))
            self._board.advance()

    def transmit(self) -> bytes:
        """Give the bytes that have reached the host by now."""
        self._board.advance()
        return self.outlet.take(self._board.now())

    def next_event(self) -> float | None:
        """Return when more bytes may reach the host."""
        times = (self.outlet.next_delivery(), self._board.next_due())
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """The host went away; the watchdog decides what follows."""
        self._board.disconnect(self)
