"""One connection's bytes in flight: they take UART time in both directions, on the bench's clock.

Byte i of a write arrives at ``a(i) = max(a(i-1), t_write) + 10/baud``, byte j of an answer leaves at
``b(j) = max(b(j-1), t_ready) + 10/baud`` (8N1; docs/protocol.md, section 15). Without a baud rate both are
immediate.

Buffers are finite, as those of a UART and of the port in front of it: what finds no room is lost (overrun).
"""

from __future__ import annotations

from collections import deque

LINE_LIMIT = 4096
"""Bytes on their way on a line that takes time, in each direction: what a serial port of Linux takes at once."""
UNTAKEN_LIMIT = 65536
"""Bytes of answers that lie untaken on a line that takes none."""

_MOST_PIECES = 64
"""Writes that are told apart while they wait: a look at the line costs as much as there are."""


def _passed(start: float, byte_s: float, data: bytes, at_s: float) -> int:
    """Return how many bytes, sent from ``start`` on, have passed by ``at_s``."""
    if at_s < start:
        return 0
    if byte_s == 0.0:
        return len(data)
    # Sums of byte times are rounded, the more the later on the clock.
    slack = 1e-6 + 1e-15 * abs(at_s) / byte_s
    return min(len(data), int((at_s - start) / byte_s + slack))


def _first(data: bytes, marks: bytes | None, end: int) -> int:
    """Return the place of the first byte out of ``marks`` before ``end``, or -1; ``None`` stands for any byte."""
    if marks is None:
        return 0 if end else -1
    places = [place for place in (data.find(mark, 0, end) for mark in marks) if place >= 0]
    return min(places, default=-1)


class SerialLine:
    """Bytes under way between a host and a device; knows times, but has no clock of its own.

    Args:
        baud: Line rate in baud, or ``None`` for a line that takes no time.
        limit: Bytes that may be on their way in each direction, if they take time. What is written beyond is lost, and
            so are answers once there are as many.
    """

    def __init__(self, baud: float | None, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._coming = self._untaken = 0
        self.byte_s = 0.0 if baud is None else 10.0 / baud
        self._inbound: deque[tuple[float, float, bytes]] = deque()
        self._outbound: deque[tuple[float, float, bytes]] = deque()
        self._in_free = self._out_free = float("-inf")

    def set_baud(self, baud: float) -> None:
        """Change the rate for bytes written from now on."""
        self.byte_s = 10.0 / baud

    def receive(self, data: bytes, at_s: float) -> None:
        """The host writes ``data`` at a time; on a line that takes time, what finds no room is lost."""
        if self.byte_s > 0.0:
            data = data[: max(self._limit - self._coming, 0)]
        if not data:
            return
        start = max(self._in_free, at_s)
        # Joining pieces moves no byte in time; it only lets more of them be taken at once.
        crowded = len(self._inbound) >= _MOST_PIECES
        if crowded and start == self._in_free and self._inbound[-1][1] == self.byte_s > 0.0:
            begun, _, waiting = self._inbound.pop()  # right behind the last write: one piece with it
            self._inbound.append((begun, self.byte_s, waiting + data))
        else:
            self._inbound.append((start, self.byte_s, bytes(data)))
        self._in_free = start + self.byte_s * len(data)
        self._coming += len(data)

    def next_arrival(self, marks: bytes | None) -> float | None:
        """Return when the next byte out of ``marks`` (``None``: any) arrives, or ``None`` if none is under way."""
        for start, byte_s, data in self._inbound:
            place = _first(data, marks, len(data))
            if place >= 0:
                return start + byte_s * (place + 1)
        return None

    def arrived(self, at_s: float, marks: bytes = b"") -> tuple[float, bytes] | None:
        """Take the oldest bytes that arrived by ``at_s``: of one write, up to the first byte out of ``marks``.

        Returns:
            Arrival of the last byte taken, and the bytes; ``None`` when nothing (more) has arrived.
        """
        if not self._inbound:
            return None
        start, byte_s, data = self._inbound[0]
        count = _passed(start, byte_s, data, at_s)
        if count == 0:
            return None
        place = _first(data, marks, count)
        count = count if place < 0 else place + 1
        end = start + byte_s * count
        self._inbound.popleft()
        self._coming -= count
        if count < len(data):
            self._inbound.appendleft((end, byte_s, data[count:]))
        return end, data[:count]

    def send(self, data: bytes, ready_s: float) -> float:
        """Put an answer on the line, ready at a time; returns when its last byte has left.

        It is lost if too many bytes lie untaken.
        """
        # Judged before the answer, not with it: one that has begun is sent as a whole.
        if data and self._untaken < (self._limit if self.byte_s > 0.0 else UNTAKEN_LIMIT):
            self._untaken += len(data)
            start = max(self._out_free, ready_s)
            self._out_free = start + self.byte_s * len(data)
            self._outbound.append((start, self.byte_s, bytes(data)))
        return max(self._out_free, ready_s)

    def left(self, at_s: float) -> bytes:
        """Take the bytes that have left for the host by ``at_s``."""
        taken = bytearray()
        while self._outbound:
            start, byte_s, data = self._outbound[0]
            count = _passed(start, byte_s, data, at_s)
            if count == 0:
                break
            taken += data[:count]
            self._untaken -= count
            self._outbound.popleft()
            if count < len(data):
                self._outbound.appendleft((start + byte_s * count, byte_s, data[count:]))
        return bytes(taken)

    @property
    def untaken(self) -> int:
        """Bytes of answers that the host has not taken yet."""
        return self._untaken

    def next_departure(self) -> float | None:
        """Return when the last byte of the oldest answer under way leaves, or ``None``."""
        if not self._outbound:
            return None
        start, byte_s, data = self._outbound[0]
        return start + byte_s * len(data)

    def clear(self) -> None:
        """Lose everything under way (power loss, unplugged)."""
        self._inbound.clear()
        self._outbound.clear()
        self._coming = self._untaken = 0
        self._in_free = self._out_free = float("-inf")
