"""One connection's bytes in flight: they take UART time in both directions, on the bench's clock.

Byte i of a write arrives at ``a(i) = max(a(i-1), t_write) + 10/baud``, byte j of an answer leaves at
``b(j) = max(b(j-1), t_ready) + 10/baud`` (8N1; mesh controller protocol, section 15). Without a baud rate both are
immediate.
"""

from __future__ import annotations

from collections import deque


def _passed(start: float, byte_s: float, data: bytes, at_s: float) -> int:
    """Return how many bytes, sent from ``start`` on, have passed by ``at_s``."""
    if at_s < start:
        return 0
    if byte_s == 0.0:
        return len(data)
    # Sums of byte times are rounded, the more the later on the clock.
    slack = 1e-6 + 1e-15 * abs(at_s) / byte_s
    return min(len(data), int((at_s - start) / byte_s + slack))


def _first(data: bytes, marks: bytes, end: int) -> int:
    """Return the place of the first byte out of ``marks`` before ``end``, or -1."""
    places = [place for place in (data.find(mark, 0, end) for mark in marks) if place >= 0]
    return min(places, default=-1)


class SerialLine:
    """Bytes under way between a host and a device; knows times, but has no clock of its own.

    Args:
        baud: Line rate in baud, or ``None`` for a line that takes no time.
    """

    def __init__(self, baud: float | None) -> None:
        self.byte_s = 0.0 if baud is None else 10.0 / baud
        self._inbound: deque[tuple[float, float, bytes]] = deque()
        self._outbound: deque[tuple[float, float, bytes]] = deque()
        self._in_free = self._out_free = float("-inf")

    def set_baud(self, baud: float) -> None:
        """Change the rate for bytes written from now on."""
        self.byte_s = 10.0 / baud

    def receive(self, data: bytes, at_s: float) -> None:
        """The host writes ``data`` at a time."""
        if data:
            start = max(self._in_free, at_s)
            self._in_free = start + self.byte_s * len(data)
            self._inbound.append((start, self.byte_s, bytes(data)))

    def next_arrival(self, marks: bytes) -> float | None:
        """Return when the next byte out of ``marks`` arrives, or ``None`` if none is under way."""
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
        if count < len(data):
            self._inbound.appendleft((end, byte_s, data[count:]))
        return end, data[:count]

    def send(self, data: bytes, ready_s: float) -> float:
        """Put an answer on the line, ready at a time; returns when its last byte has left."""
        if data:
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
            self._outbound.popleft()
            if count < len(data):
                self._outbound.appendleft((start + byte_s * count, byte_s, data[count:]))
        return bytes(taken)

    @property
    def untaken(self) -> int:
        """Bytes of answers that the host has not taken yet."""
        return sum(len(data) for _, _, data in self._outbound)

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
        self._in_free = self._out_free = float("-inf")
