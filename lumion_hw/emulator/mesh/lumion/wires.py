"""The two directions of one connection to the emulated board: bytes under way, paced and bounded (section 15)."""

from __future__ import annotations

from lumion_hw.emulator.mesh.lumion.pacing import UNREAD_LIMIT, USB_PACKET_BYTES, Pacing, UsbFrames
from lumion_hw.emulator.mesh.lumion.timed_bytes import TimedBytes

WRITER_LIMIT = 65536
"""Bytes kept for a writer that should wait and does not (an in-process link hands over all it has); more are lost."""

_END = b"\0"


class Inlet:
    """Host to board. At most 4096 bytes lie unread; what the host writes beyond waits with the writer.

    Args:
        pacing: When bytes arrive.
    """

    def __init__(self, pacing: Pacing) -> None:
        self._line = TimedBytes(pacing.byte_s)
        self._frames = UsbFrames() if pacing.mode == "usb-fs" else None
        self._writer = bytearray()
        self._free_s = float("-inf")
        self._inside = False

    @property
    def room(self) -> int:
        """Bytes the host may write without having to wait."""
        return UNREAD_LIMIT - len(self._line) if not self._writer else 0

    def write(self, data: bytes, at_s: float) -> int:
        """The host writes; returns how many bytes were lost because it did not wait."""
        self._writer += data
        self._enter(at_s)
        lost = max(len(self._writer) - WRITER_LIMIT, 0)
        del self._writer[WRITER_LIMIT:]
        return lost

    def next_arrival(self) -> float | None:
        """Return when the next frame is complete, or when reading lets more bytes in; ``None`` if nothing will be."""
        if not len(self._line):
            return None
        place = self._end_of_frame()
        if place >= 0:
            return self._line.time_of(place)
        return self._line.time_of(len(self._line) - 1) if self._writer else None

    def read_frame(self, at_s: float) -> bytes:
        """Take the bytes up to the delimiter that has just arrived."""
        place = self._end_of_frame()
        return self._read(place + 1 if place >= 0 else len(self._line), at_s)

    def read(self, at_s: float) -> bytes:
        """Take whatever has arrived."""
        return self._read(self._line.passed(at_s), at_s)

    def clear(self) -> None:
        """Lose everything under way."""
        self._line.clear()
        self._writer.clear()
        self._free_s = float("-inf")
        self._inside = False

    def _end_of_frame(self) -> int:
        """Return the place of the next delimiter behind a byte that is none, or -1."""
        return self._line.find(_END, 0 if self._inside else self._line.first_other_than(_END))

    def _read(self, count: int, at_s: float) -> bytes:
        data = self._line.take(count)
        if data:
            self._inside = not data.endswith(_END)
            self._enter(at_s)
        return data

    def _enter(self, at_s: float) -> None:
        """Let bytes of the writer onto the line, as many as there is room for."""
        count = min(UNREAD_LIMIT - len(self._line), len(self._writer))
        if not count:
            return
        data = self._writer[:count]
        del self._writer[:count]
        if self._frames is None:
            self._free_s = self._line.append(data, max(self._free_s, at_s))
            return
        for start in range(0, count, USB_PACKET_BYTES):
            self._line.append(data[start : start + USB_PACKET_BYTES], self._frames.next_packet(at_s))


class Outlet:
    """Board to host, one frame after the other. At most 4096 bytes lie untaken; the rest of a frame waits for room.

    Args:
        pacing: When bytes leave and reach the host.
    """

    def __init__(self, pacing: Pacing) -> None:
        self._pacing = pacing
        self._gate = pacing.gate()
        self._line = TimedBytes(pacing.byte_s)
        self._rest = b""
        self.free_s = float("-inf")

    @property
    def blocked(self) -> bool:
        """No further frame can begin before the host takes bytes."""
        return bool(self._rest) or len(self._line) >= UNREAD_LIMIT

    def send(self, wire: bytes, at_s: float) -> None:
        """Begin a frame."""
        room = UNREAD_LIMIT - len(self._line)
        self._rest = wire[room:]
        self.free_s = self._line.append(wire[:room], max(self.free_s, at_s))

    def take(self, now_s: float) -> bytes:
        """Give the host what has reached it by now."""
        blocked = self.blocked
        data = self._gate.deliver(self._line, now_s)
        if data and blocked:
            self.free_s = max(self.free_s, now_s)
            self.send(self._rest, now_s)
        return data

    def next_delivery(self) -> float | None:
        """Return when more bytes reach the host, or ``None``."""
        return self._gate.next_delivery(self._line)

    def clear(self) -> None:
        """Lose everything under way."""
        self._line.clear()
        self._rest = b""
        self.free_s = float("-inf")
        self._gate = self._pacing.gate()
