"""Serial line of one connection, with transmission times in both directions.

Byte i that is written at the time t_write arrives at ``a(i) = max(a(i-1), t_write) + 10/baud``. Byte j of a reply that
is ready at t_ready leaves at ``b(j) = max(b(j-1), t_ready) + 10/baud`` (8N1; docs/protocol.md, section 15). Bytes
beyond the buffer size are lost (overrun).
"""

from __future__ import annotations

from collections import deque

LINE_LIMIT = 4096
"""Largest number of bytes in transmission per direction on a timed line, as in a Linux serial port."""
MAX_UNREAD_BYTES = 65536
"""Largest number of unread reply bytes on a line without transmission time."""

_MAX_SEPARATE_WRITES = 64
"""Largest number of writes stored separately."""


def _count_transmitted(start: float, byte_s: float, data: bytes, at_s: float) -> int:
    if at_s < start:
        return 0
    if byte_s == 0.0:
        return len(data)
    # Sums of byte times have rounding errors that grow with the clock's time.
    slack = 1e-6 + 1e-15 * abs(at_s) / byte_s
    return min(len(data), int((at_s - start) / byte_s + slack))


def _first_index(data: bytes, command_ends: bytes | None, end: int) -> int:
    """Return the index before ``end`` of the first byte in ``command_ends`` (``None``: any), or -1."""
    if command_ends is None:
        return 0 if end else -1
    indices = [index for index in (data.find(byte, 0, end) for byte in command_ends) if index >= 0]
    return min(indices, default=-1)


class SerialLine:
    """Bytes in transmission between a host and a device.

    Args:
        baud: Line rate in baud; ``None`` for a line without transmission time.
        limit: Largest number of bytes in transmission per direction on a timed line. Further bytes are lost.
    """

    def __init__(self, baud: float | None, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._inbound_bytes = self._unread = 0
        self.byte_s = 0.0 if baud is None else 10.0 / baud
        self._inbound: deque[tuple[float, float, bytes]] = deque()
        self._outbound: deque[tuple[float, float, bytes]] = deque()
        self._inbound_free_s = self._outbound_free_s = float("-inf")

    def set_baud(self, baud: float) -> None:
        """Change the baud rate from now on."""
        self.byte_s = 10.0 / baud

    def receive(self, data: bytes, at_s: float) -> None:
        """Accept bytes from the host. On a timed line, bytes beyond the buffer are lost."""
        if self.byte_s > 0.0:
            data = data[: max(self._limit - self._inbound_bytes, 0)]
        if not data:
            return
        start = max(self._inbound_free_s, at_s)
        # Joining writes does not change any byte's time; they only become available together.
        is_crowded = len(self._inbound) >= _MAX_SEPARATE_WRITES
        if is_crowded and start == self._inbound_free_s and self._inbound[-1][1] == self.byte_s > 0.0:
            start_before, _, data_before = self._inbound.pop()  # directly after the last write: join the two
            self._inbound.append((start_before, self.byte_s, data_before + data))
        else:
            self._inbound.append((start, self.byte_s, bytes(data)))
        self._inbound_free_s = start + self.byte_s * len(data)
        self._inbound_bytes += len(data)

    def next_arrival(self, command_ends: bytes | None) -> float | None:
        """Return the arrival time of the next byte in ``command_ends``, or ``None``. By default any byte counts."""
        for start, byte_s, data in self._inbound:
            index = _first_index(data, command_ends, len(data))
            if index >= 0:
                return start + byte_s * (index + 1)
        return None

    def take_arrived(self, at_s: float, command_ends: bytes = b"") -> tuple[float, bytes] | None:
        """Remove the arrived bytes of one write, up to the first byte in ``command_ends``.

        Return the arrival time of the last byte, and the bytes; ``None`` if no bytes have arrived.
        """
        if not self._inbound:
            return None
        start, byte_s, data = self._inbound[0]
        count = _count_transmitted(start, byte_s, data, at_s)
        if count == 0:
            return None
        index = _first_index(data, command_ends, count)
        count = count if index < 0 else index + 1
        end = start + byte_s * count
        self._inbound.popleft()
        self._inbound_bytes -= count
        if count < len(data):
            self._inbound.appendleft((end, byte_s, data[count:]))
        return end, data[:count]

    def send(self, data: bytes, ready_s: float) -> float:
        """Queue a reply that is ready at a given time. Return the time of its last byte.

        The reply is lost if too many bytes are unread.
        """
        # The limit is checked before the reply is added: a reply is sent completely or not at all.
        if data and self._unread < (self._limit if self.byte_s > 0.0 else MAX_UNREAD_BYTES):
            self._unread += len(data)
            start = max(self._outbound_free_s, ready_s)
            self._outbound_free_s = start + self.byte_s * len(data)
            self._outbound.append((start, self.byte_s, bytes(data)))
        return max(self._outbound_free_s, ready_s)

    def take_departed(self, at_s: float) -> bytes:
        """Remove and return the bytes that have left the device by ``at_s``."""
        output = bytearray()
        while self._outbound:
            start, byte_s, data = self._outbound[0]
            count = _count_transmitted(start, byte_s, data, at_s)
            if count == 0:
                break
            output += data[:count]
            self._unread -= count
            self._outbound.popleft()
            if count < len(data):
                self._outbound.appendleft((start + byte_s * count, byte_s, data[count:]))
        return bytes(output)

    @property
    def unread(self) -> int:
        """Number of unread reply bytes."""
        return self._unread

    def next_departure(self) -> float | None:
        """Return the time of the last byte of the oldest reply in transmission; ``None`` if there is none."""
        if not self._outbound:
            return None
        start, byte_s, data = self._outbound[0]
        return start + byte_s * len(data)

    def clear(self) -> None:
        """Discard all bytes in transmission."""
        self._inbound.clear()
        self._outbound.clear()
        self._inbound_bytes = self._unread = 0
        self._inbound_free_s = self._outbound_free_s = float("-inf")
