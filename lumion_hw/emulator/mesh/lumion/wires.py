"""The two directions of one connection to the emulated board: bytes under way, paced and bounded (section 15)."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from lumion_hw.errors import ConfigError


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
                # The rest of a run keeps the times that its bytes had.
                self._runs.appendleft((start_s + self._byte_s * count, size - count))
                break
            count -= size
        return data

    def clear(self) -> None:
        """Lose all of them."""
        self._data.clear()
        self._runs.clear()


UNREAD_LIMIT = 4096
"""Bytes that may lie unread in each direction; then the writer waits."""

BITS_PER_BYTE = 10
"""8N1 on a UART."""

LATENCY_BYTES = 62
"""Bytes that a USB-UART bridge sends at once, whatever its timer says: a packet without its two status bytes."""

USB_FRAME_S = 0.001
"""Length of a frame on USB full speed, s."""

USB_PACKET_BYTES = 64
USB_PACKETS_PER_FRAME = 13
"""Bulk packets of one device in one frame: 832 bytes, which is what 0.8 MB/s (section 14) comes to in whole packets."""

_DEFAULT_LATENCY_MS = 16
_LONGEST_LATENCY_MS = 255
_EDGE = 1e-6  # of a frame or timer period: sums of floating-point times are rounded


@dataclass(frozen=True)
class Pacing:
    """A pacing mode.

    Attributes:
        mode: ``none``, ``uart``, ``ftdi`` or ``usb-fs``.
        byte_s: Time of one byte on a UART, s; 0 without one.
        latency_s: Latency timer of the bridge, s; 0 without one.
    """

    mode: str
    byte_s: float = 0.0
    latency_s: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Pacing:
        """Return the mode of ``none``, ``uart:<baud>``, ``ftdi:<baud>[:<ms>]`` or ``usb-fs``.

        Raises:
            ConfigError: It is none of them.
        """
        mode, *numbers = text.split(":")
        counts = {"none": (0,), "usb-fs": (0,), "uart": (1,), "ftdi": (1, 2)}
        if len(numbers) not in counts.get(mode, ()) or not all(item.isascii() and item.isdigit() for item in numbers):
            raise ConfigError(f"no pacing mode: {text!r}", hint="Use none, uart:<baud>, ftdi:<baud>:<ms> or usb-fs.")
        if not numbers:
            return cls(mode)
        baud = int(numbers[0])
        latency_ms = 0 if mode == "uart" else int(([*numbers, str(_DEFAULT_LATENCY_MS)])[1])
        if baud == 0 or (mode == "ftdi" and not 1 <= latency_ms <= _LONGEST_LATENCY_MS):
            raise ConfigError(
                f"pacing {text!r} asks for {baud} baud and a latency of {latency_ms} ms",
                hint=f"The baud rate is positive, the latency timer 1 to {_LONGEST_LATENCY_MS} ms.",
            )
        return cls(mode, BITS_PER_BYTE / baud, latency_ms * 1e-3)

    @property
    def is_uart(self) -> bool:
        """Bytes pass a UART: frames are kept short (section 2.4)."""
        return self.byte_s > 0.0

    def gate(self) -> Gate:
        """Return what the board's bytes pass on their way to the host."""
        if self.mode == "ftdi":
            return LatencyGate(self.latency_s)
        return UsbGate() if self.mode == "usb-fs" else Gate()


class Gate:
    """Nothing between the board's last bit and the host: a byte is there when it has left."""

    def next_delivery(self, line: TimedBytes) -> float | None:
        """Return when the host should look for bytes of ``line``, or ``None``: at the end of a frame."""
        return line.end_of_run()

    def deliver(self, line: TimedBytes, now_s: float) -> bytes:
        """Take what has reached the host by now."""
        return line.take(line.passed(now_s))


class LatencyGate(Gate):
    """A USB-UART bridge: holds bytes until 62 wait or its timer runs out.

    The timer runs on when nothing waits: an empty packet (status bytes alone) is a delivery too. A lone reply so waits
    up to the whole latency, which is the gap of 15-16 ms in recorded traffic.
    """

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._last_s = 0.0

    def next_delivery(self, line: TimedBytes) -> float | None:
        """Return the instant of the next packet with bytes in it, or ``None``."""
        if not len(line):
            return None
        periods = max(math.ceil((line.time_of(0) - self._last_s) / self._latency_s - _EDGE), 1)
        timer_s = self._last_s + periods * self._latency_s
        # A full packet goes at once; the timer is for the rest.
        return min(timer_s, line.time_of(LATENCY_BYTES - 1)) if len(line) >= LATENCY_BYTES else timer_s

    def deliver(self, line: TimedBytes, now_s: float) -> bytes:
        """Take the packets that have reached the host by now."""
        packets = bytearray()
        while (at_s := self.next_delivery(line)) is not None and at_s <= now_s:
            # At least the byte that it was due for, whatever the last bit of its time.
            packets += line.take(min(max(line.passed(at_s), 1), LATENCY_BYTES))
            self._last_s = at_s
        return bytes(packets)


class UsbFrames:
    """The 1-ms frames of USB full speed and the packets used in the present one."""

    def __init__(self) -> None:
        self._frame = 0
        self._packets = 0

    def next_packet(self, ready_s: float) -> float:
        """Return the instant of the frame that carries a packet ready at ``ready_s``: the next one with room."""
        # What is ready within a frame is carried by the next one.
        frame = max(math.floor(ready_s / USB_FRAME_S + _EDGE) + 1, self._frame)
        if frame == self._frame and self._packets == USB_PACKETS_PER_FRAME:
            frame += 1
        self._packets = self._packets + 1 if frame == self._frame else 1
        self._frame = frame
        return frame * USB_FRAME_S


class UsbGate(Gate):
    """USB full speed, towards the host: the next frame takes up to 13 packets of what waits."""

    def __init__(self) -> None:
        self._last_frame = 0

    def _next_frame(self, line: TimedBytes) -> int:
        return max(math.floor(line.time_of(0) / USB_FRAME_S + _EDGE), self._last_frame) + 1

    def next_delivery(self, line: TimedBytes) -> float | None:
        """Return the instant of the next frame that carries bytes, or ``None``."""
        return self._next_frame(line) * USB_FRAME_S if len(line) else None

    def deliver(self, line: TimedBytes, now_s: float) -> bytes:
        """Take the packets that have reached the host by now."""
        packets = bytearray()
        while len(line) and (frame := self._next_frame(line)) * USB_FRAME_S <= now_s:
            # What is ready at the very edge has missed this frame.
            waiting = line.passed((frame - _EDGE) * USB_FRAME_S)
            packets += line.take(min(waiting, USB_PACKET_BYTES * USB_PACKETS_PER_FRAME))
            self._last_frame = frame
        return bytes(packets)


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
        # Bytes that wait with the writer come first: nothing may overtake them.
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
        # No delimiter in a full buffer: it is read, so that the writer gets on and the decoder can call it oversized.
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
        # Delimiters in a row are empty pieces, which are no frames: reading goes on to the one that ends something.
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
        # The rest of the frame could not leave before: it goes on from now.
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
