"""One host connection to the emulated board."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from firmware_protocol import Decoder, Frame
from lumion_hw.emulator.mesh.lumion.wires import BoardToHostLine, HostToBoardLine, Pacing


class Priority(IntEnum):
    """Priority of an outgoing frame; the lowest number is sent first."""

    RSP = 0
    FAULT = 1
    LIGHT = 2
    SWEEP = 3
    TELEMETRY = 4


@dataclass(frozen=True)
class Outgoing:
    """A frame that waits to be sent on one connection."""

    priority: Priority
    ready_s: float
    frame: Frame


class _Board(Protocol):
    """The board as a connection uses it; :mod:`lumion_hw.emulator.mesh.lumion.device` imports this module."""

    def now(self) -> float:
        """Return the time of the board in s."""

    def advance(self) -> None:
        """Execute all actions that are due."""

    def next_due(self) -> float | None:
        """Return the time in s of the board's next action of its own; ``None`` if there is none."""

    def count_lost_bytes(self, count: int) -> None:
        """Add bytes that a connection has dropped to the board's counter."""

    def disconnect(self, peer: BoardPeer) -> None:
        """Remove a closed connection."""


class BoardPeer:
    """One host connection to the board.

    Args:
        mtu: Largest frame the board accepts, in bytes.

    Attributes:
        waiting: Frames to send on this connection, oldest first.
        pending: Number of requests received and not yet executed.
    """

    def __init__(self, board: _Board, pacing: Pacing, mtu: int) -> None:
        self._board = board
        self._mtu = mtu
        self.from_host = HostToBoardLine(pacing)
        self.to_host = BoardToHostLine(pacing)
        self.waiting: list[Outgoing] = []
        self.pending = 0
        self.is_open = True
        self.clear()

    def clear(self) -> None:
        """Discard all bytes in transmission."""
        self.from_host.clear()
        self.to_host.clear()
        self.decoder = Decoder(self._mtu)
        self.waiting.clear()
        self.pending = 0

    @property
    def free_bytes(self) -> int:
        """Number of bytes that the host may write now."""
        return self.from_host.free_bytes

    def receive(self, data: bytes) -> None:
        """Start the transmission of bytes that the host sends."""
        self._board.advance()
        if self.is_open:
            # A writer that ignores `room` loses bytes, as on a UART without flow control.
            self._board.count_lost_bytes(self.from_host.write(data, self._board.now()))
            self._board.advance()

    def transmit(self) -> bytes:
        """Return the bytes that have reached the host."""
        self._board.advance()
        return self.to_host.remove(self._board.now())

    def next_event(self) -> float | None:
        """Return the time at which more bytes may reach the host."""
        times = (self.to_host.next_delivery(), self._board.next_due())
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """Close the connection from the host's side. Outputs stay on until the watchdog trips."""
        self._board.disconnect(self)
