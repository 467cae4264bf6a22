"""Bytes on a line, each with its instant."""

from __future__ import annotations

from collections import deque


class TimedBytes:
    """A queue of bytes that pass one after the other.

    Args:
        byte_s: Time of one byte, s; 0 when the bytes of a run pass together.
    """

    def __init__(self, byte_s: float) -> None:
        self._byte_s = byte_s
        self._data = bytearray()
        self._runs: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return len(self._data)

    def append(self, data: bytes | bytearray, start_s: float) -> float:
        """Put a run at the end: its byte j passes at ``start_s + (j + 1) x byte_s``; returns when its last one does."""
        if data:
            self._data += data
            self._runs.append((start_s, len(data)))
        return start_s + self._byte_s * len(data)

    def find(self, byte: bytes, start: int = 0) -> int:
        """Return the place of the first such byte from ``start`` on, or -1."""
        return self._data.find(byte, start)

    def first_other_than(self, byte: bytes) -> int:
        """Return the place of the first byte that is another one; the length if there is none."""
        return len(self._data) - len(self._data.lstrip(byte))

    def time_of(self, place: int) -> float:
        """Return when the byte at a place passes. Raises ``IndexError`` if there is none."""
        for start_s, count in self._runs:
            if place < count:
                return start_s + self._byte_s * (place + 1)
            place -= count
        raise IndexError("no byte at this place")

    def end_of_run(self) -> float | None:
        """Return when the last byte of the oldest run passes, or ``None``."""
        if not self._runs:
            return None
        start_s, count = self._runs[0]
        return start_s + self._byte_s * count

    def passed(self, at_s: float) -> int:
        """Return how many bytes have passed by an instant."""
        total = 0
        for start_s, count in self._runs:
            if at_s < start_s:
                break
            if self._byte_s:
                # Sums of byte times are rounded, the more the later on the clock.
                slack = 1e-6 + 1e-15 * abs(at_s) / self._byte_s
                done = min(count, int((at_s - start_s) / self._byte_s + slack))
            else:
                done = count
            total += done
            if done < count:
                break
        return total

    def take(self, count: int) -> bytes:
        """Take the oldest ``count`` bytes."""
        data = bytes(self._data[:count])
        del self._data[:count]
        while count:
            start_s, size = self._runs.popleft()
            if size > count:
                self._runs.appendleft((start_s + self._byte_s * count, size - count))
                break
            count -= size
        return data

    def clear(self) -> None:
        """Lose all of them."""
        self._data.clear()
        self._runs.clear()
