"""One connection to the emulated board."""

from __future__ import annotations

from typing import Protocol

from firmware_protocol import Decoder
from lumion_hw.emulator.serial_line import SerialLine


class _Board(Protocol):
    """What a connection needs of its board."""

    def now(self) -> float:
        """Return the time of the board's clock."""

    def advance(self) -> None:
        """Bring the board to the present time."""

    def next_event(self) -> float | None:
        """Return when the board does something by itself."""

    def disconnect(self, peer: BoardPeer) -> None:
        """Forget a connection."""


class BoardPeer:
    """One connection to the board: bytes under way and a frame decoder."""

    def __init__(self, board: _Board, line: SerialLine, mtu: int) -> None:
        self._board = board
        self.line = line
        self.decoder = Decoder(mtu)
        self.is_open = True

    def receive(self, data: bytes) -> None:
        """Take bytes from the host, now."""
        self._board.advance()
        if self.is_open:
            self.line.receive(data, self._board.now())
            self._board.advance()

    def transmit(self) -> bytes:
        """Give the bytes that have left for the host by now."""
        self._board.advance()
        return self.line.left(self._board.now())

    def next_event(self) -> float | None:
        """Return when more bytes may leave."""
        times = (self.line.next_departure(), self._board.next_event())
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """The host went away; the watchdog decides what follows."""
        self._board.disconnect(self)
