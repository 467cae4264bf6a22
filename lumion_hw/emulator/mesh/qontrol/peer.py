"""One connection to the chain: bytes under way in both directions, bounded, and the request reader between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from lumion_hw.emulator.mesh.qontrol.requests import BinaryRequest, RequestReader, TextLine
from lumion_hw.emulator.mesh.qontrol.timing import ReplyTiming
from lumion_hw.emulator.wires.serial_line import SerialLine

OUTPUT_LIMIT = 1 << 16
"""Unread bytes above which requests are lost, as with a full buffer of the module."""
INPUT_LIMIT = 1 << 16
"""Bytes on their way to the modules above which more are lost."""

_LOOK_S = 0.001


class _Chain(Protocol):
    """What a connection needs of its chain."""

    @property
    def powered(self) -> bool:
        """The modules have power; without it bytes are lost."""

    def now(self) -> float:
        """Return the time of the chain's clock."""

    def advance(self) -> None:
        """Bring the chain to the present time."""

    def next_due(self) -> float | None:
        """Return when the supervision speaks next."""

    def disconnect(self, peer: QontrolPeer) -> None:
        """Forget a connection."""


class QontrolPeer:
    """One connection to the chain.

    Args:
        chain: The chain.
        baud: Line rate, or ``None`` for none.
        reader: Cuts the input into requests.
        timing: When replies reach the host.
    """

    def __init__(self, chain: _Chain, baud: float | None, reader: RequestReader, timing: ReplyTiming) -> None:
        self._chain = chain
        self._line = SerialLine(baud, INPUT_LIMIT)
        self._reader = reader
        self._timing = timing
        self._coming = 0
        self._arrived_s = float("-inf")
        self._leaving = 0

    def receive(self, data: bytes) -> None:
        """Take bytes from the host, now."""
        self._chain.advance()
        if not self._chain.powered:
            return
        taken = data[: INPUT_LIMIT - self._coming] if self._line.byte_s else data
        now = self._chain.now()
        self._line.receive(taken, now)
        self._coming += len(taken)
        self._arrived_s = max(self._arrived_s, now) + self._line.byte_s * len(taken)
        self._chain.advance()

    def transmit(self) -> bytes:
        """Give the bytes that have reached the host by now."""
        self._chain.advance()
        data = self._line.left(self._timing.visible_s(self._chain.now()))
        self._leaving -= len(data)
        return data

    def next_event(self) -> float | None:
        """Return when more bytes may reach the host."""
        departure = self._line.next_departure()
        times = [self._chain.next_due(), None if departure is None else self._timing.delivered_s(departure)]
        if self._coming:
            times.append(min(self._arrived_s, self._chain.now() + _LOOK_S))
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """The host went away."""
        self._chain.disconnect(self)

    # -- the module's side

    def requests(self, now_s: float) -> Iterator[tuple[float, TextLine | BinaryRequest]]:
        """Give the requests that have arrived by a time, with their times."""
        while (piece := self._line.arrived(now_s)) is not None:
            end_s, data = piece
            self._coming -= len(data)
            yield from self._reader.feed(data, end_s, self._line.byte_s)

    @property
    def full(self) -> bool:
        """The host leaves too much unread."""
        return self._leaving >= OUTPUT_LIMIT

    def send(self, data: bytes, ready_s: float) -> None:
        """Put bytes on the line, however many; ask for :attr:`full` before."""
        self._leaving += len(data)
        self._line.send(data, ready_s)

    def clear(self) -> None:
        """Lose everything under way, and what was read of a request."""
        self._line.clear()
        self._reader.reset()
        self._coming = self._leaving = 0
        self._arrived_s = float("-inf")
