"""Bytes in transmission between host and emulated board (section 15)."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from lumion_hw.errors import ConfigError


class TimedBytes:
    """Queue of bytes that are transmitted one after the other on a line.

    Args:
        byte_s: Transmission time of one byte in seconds; 0 if all bytes of one write pass together.
    """

    def __init__(self, byte_s: float) -> None:
        self._byte_s = byte_s
        self._data = bytearray()
        self._runs: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return len(self._data)

    def append(self, data: bytes | bytearray, start_s: float) -> float:
        """Append bytes; byte j passes at ``start_s + (j + 1) x byte_s``. Return the time of the last byte."""
        if data:
            self._data += data
            self._runs.append((start_s, len(data)))
        return start_s + self._byte_s * len(data)

    def find(self, byte: bytes, start: int = 0) -> int:
        """Return the index of the first ``byte`` from ``start`` on; -1 if there is none."""
        return self._data.find(byte, start)

    def skip_bytes(self, byte: bytes) -> int:
        """Return the index of the first byte other than ``byte``; the length if there is none."""
        return len(self._data) - len(self._data.lstrip(byte))

    def pass_time_s(self, index: int) -> float:
        """Return the time at which a byte passes. Raises ``IndexError`` for an index beyond the queue."""
        for start_s, count in self._runs:
            if index < count:
                return start_s + self._byte_s * (index + 1)
            index -= count
        raise IndexError("the line has no byte at this index")

    def next_run_end_s(self) -> float | None:
        """Return the time at which the last byte of the oldest write passes; ``None`` for an empty queue."""
        if not self._runs:
            return None
        start_s, count = self._runs[0]
        return start_s + self._byte_s * count

    def count_passed(self, at_s: float) -> int:
        """Return how many bytes have passed by a time."""
        total = 0
        for start_s, count in self._runs:
            if at_s < start_s:
                break
            if self._byte_s:
                # Sums of byte times have rounding errors that grow with the clock's time.
                slack = 1e-6 + 1e-15 * abs(at_s) / self._byte_s
                passed = min(count, int((at_s - start_s) / self._byte_s + slack))
            else:
                passed = count
            total += passed
            if passed < count:
                break
        return total

    def remove(self, count: int) -> bytes:
        """Remove and return the oldest ``count`` bytes."""
        data = bytes(self._data[:count])
        del self._data[:count]
        while count:
            start_s, size = self._runs.popleft()
            if size > count:
                # The remaining bytes of a run keep their times.
                self._runs.appendleft((start_s + self._byte_s * count, size - count))
                break
            count -= size
        return data

    def clear(self) -> None:
        """Discard all queued bytes."""
        self._data.clear()
        self._runs.clear()


MAX_UNREAD_BYTES = 4096
"""Largest number of unread bytes in each direction."""

BITS_PER_BYTE = 10
"""Bits per byte on a UART (8N1: start bit, eight data bits, stop bit)."""

LATENCY_BYTES = 62
"""Data bytes in a full packet of a USB-UART bridge: 64 bytes minus two status bytes."""

USB_FRAME_S = 0.001
"""Length of a USB full-speed frame in seconds."""

USB_PACKET_BYTES = 64
USB_PACKETS_PER_FRAME = 13
"""Bulk packets of one device in one USB frame: 832 bytes per ms, 0.8 MB/s (protocol section 14)."""

_DEFAULT_LATENCY_MS = 16
_MAX_LATENCY_MS = 255
_ROUNDING = 1e-6  # in frames or timer periods: sums of floating-point times have rounding errors


@dataclass(frozen=True)
class Pacing:
    """Transmission times of the line between host and board.

    Attributes:
        mode: ``none``, ``uart``, ``ftdi`` or ``usb-fs``.
        byte_s: Time of one byte on a UART in seconds; 0 without a UART.
        latency_s: Latency timer of the USB bridge in seconds; 0 without a bridge.
    """

    mode: str
    byte_s: float = 0.0
    latency_s: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Pacing:
        """Parse ``none``, ``uart:<baud>``, ``ftdi:<baud>[:<ms>]`` or ``usb-fs``; other text raises ``ConfigError``."""
        mode, *numbers = text.split(":")
        counts = {"none": (0,), "usb-fs": (0,), "uart": (1,), "ftdi": (1, 2)}
        if len(numbers) not in counts.get(mode, ()) or not all(item.isascii() and item.isdigit() for item in numbers):
            raise ConfigError(
                f"{text!r} is not a pacing mode", hint="Use none, uart:<baud>, ftdi:<baud>:<ms> or usb-fs."
            )
        if not numbers:
            return cls(mode)
        baud = int(numbers[0])
        latency_ms = 0 if mode == "uart" else int(([*numbers, str(_DEFAULT_LATENCY_MS)])[1])
        if baud == 0 or (mode == "ftdi" and not 1 <= latency_ms <= _MAX_LATENCY_MS):
            raise ConfigError(
                f"pacing {text!r} has {baud} baud and a latency timer of {latency_ms} ms",
                hint=f"Give a positive baud rate and a latency timer of 1 to {_MAX_LATENCY_MS} ms.",
            )
        return cls(mode, BITS_PER_BYTE / baud, latency_ms * 1e-3)

    @property
    def is_uart(self) -> bool:
        """Whether the line is a UART (docs/protocol.md, section 2.4)."""
        return self.byte_s > 0.0

    def delivery_delay(self) -> DeliveryDelay:
        """Return the delay of this line from board to host."""
        if self.mode == "ftdi":
            return LatencyTimerDelay(self.latency_s)
        return UsbFrameDelay() if self.mode == "usb-fs" else DeliveryDelay()


class DeliveryDelay:
    """Delivery without delay."""

    def next_delivery(self, line: TimedBytes) -> float | None:
        """Return the next time to deliver bytes of ``line``; ``None`` if there are none."""
        return line.next_run_end_s()

    def deliver(self, line: TimedBytes, now_s: float) -> bytes:
        """Remove and return the bytes that have reached the host."""
        return line.remove(line.count_passed(now_s))


class LatencyTimerDelay(DeliveryDelay):
    """Delay of a USB-UART bridge, which sends when 62 bytes wait or its latency timer expires.

    The timer always runs, so a single reply waits up to a whole timer period, the gap of 15-16 ms in recorded traffic.
    """

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._last_s = 0.0

    def next_delivery(self, line: TimedBytes) -> float | None:
        """Return the time of the next packet with bytes; ``None`` if there are no bytes."""
        if not len(line):
            return None
        periods = max(math.ceil((line.pass_time_s(0) - self._last_s) / self._latency_s - _ROUNDING), 1)
        timer_s = self._last_s + periods * self._latency_s
        # A full packet is sent at once; the timer applies to the rest.
        return min(timer_s, line.pass_time_s(LATENCY_BYTES - 1)) if len(line) >= LATENCY_BYTES else timer_s

    def deliver(self, line: TimedBytes, now_s: float) -> bytes:
        """Remove and return the bytes of all packets that have reached the host."""
        packets = bytearray()
        while (at_s := self.next_delivery(line)) is not None and at_s <= now_s:
            # At least the byte that was due, despite rounding errors of its time.
            packets += line.remove(min(max(line.count_passed(at_s), 1), LATENCY_BYTES))
            self._last_s = at_s
        return bytes(packets)


class UsbFrames:
    """The 1-ms frames of USB full speed."""

    def __init__(self) -> None:
        self._frame = 0
        self._packets = 0

    def next_packet(self, ready_s: float) -> float:
        """Return the time of the first frame with room for a packet that is ready at ``ready_s``."""
        # Data that is ready within a frame is carried by the next one.
        frame = max(math.floor(ready_s / USB_FRAME_S + _ROUNDING) + 1, self._frame)
        if frame == self._frame and self._packets == USB_PACKETS_PER_FRAME:
            frame += 1
        self._packets = self._packets + 1 if frame == self._frame else 1
        self._frame = frame
        return frame * USB_FRAME_S


class UsbFrameDelay(DeliveryDelay):
    """Delay of USB full speed to the host: each 1-ms frame carries up to 13 packets."""

    def __init__(self) -> None:
        self._last_frame = 0

    def _next_frame(self, line: TimedBytes) -> int:
        return max(math.floor(line.pass_time_s(0) / USB_FRAME_S + _ROUNDING), self._last_frame) + 1

    def next_delivery(self, line: TimedBytes) -> float | None:
        """Return the time of the next frame with bytes; ``None`` if there are no bytes."""
        return self._next_frame(line) * USB_FRAME_S if len(line) else None

    def deliver(self, line: TimedBytes, now_s: float) -> bytes:
        """Remove and return the bytes of all packets that have reached the host."""
        packets = bytearray()
        while len(line) and (frame := self._next_frame(line)) * USB_FRAME_S <= now_s:
            # Data that is ready exactly at the edge has missed this frame.
            waiting = line.count_passed((frame - _ROUNDING) * USB_FRAME_S)
            packets += line.remove(min(waiting, USB_PACKET_BYTES * USB_PACKETS_PER_FRAME))
            self._last_frame = frame
        return bytes(packets)


MAX_WRITER_BYTES = 65536
"""Largest number of bytes stored for a host that does not wait; further bytes are lost."""

_DELIMITER = b"\0"


class HostToBoardLine:
    """Line from host to board, which holds at most 4096 unread bytes."""

    def __init__(self, pacing: Pacing) -> None:
        self._line = TimedBytes(pacing.byte_s)
        self._frames = UsbFrames() if pacing.mode == "usb-fs" else None
        self._writer = bytearray()
        self._free_s = float("-inf")
        self._inside_frame = False

    @property
    def free_bytes(self) -> int:
        """Number of bytes that the host may write without waiting."""
        # Waiting bytes come first: nothing may overtake them.
        return MAX_UNREAD_BYTES - len(self._line) if not self._writer else 0

    def write(self, data: bytes, at_s: float) -> int:
        """Accept bytes from the host. Return how many were lost."""
        self._writer += data
        self._enter(at_s)
        overflow = max(len(self._writer) - MAX_WRITER_BYTES, 0)
        del self._writer[MAX_WRITER_BYTES:]
        return overflow

    def next_arrival(self) -> float | None:
        """Return the next time at which a frame is complete or the board reads bytes; ``None`` for never."""
        if not len(self._line):
            return None
        index = self._frame_end_index()
        if index >= 0:
            return self._line.pass_time_s(index)
        # A full buffer without delimiter is read, so that the writer can continue and the decoder reports an oversized
        # frame.
        return self._line.pass_time_s(len(self._line) - 1) if self._writer else None

    def read_frame(self, at_s: float) -> bytes:
        """Remove and return the bytes of the frame that has just arrived."""
        index = self._frame_end_index()
        return self._read(index + 1 if index >= 0 else len(self._line), at_s)

    def read(self, at_s: float) -> bytes:
        """Remove and return all bytes that have arrived at the board."""
        return self._read(self._line.count_passed(at_s), at_s)

    def clear(self) -> None:
        """Discard all bytes in transmission."""
        self._line.clear()
        self._writer.clear()
        self._free_s = float("-inf")
        self._inside_frame = False

    def _frame_end_index(self) -> int:
        # Consecutive delimiters are not frames: reading continues to the delimiter that ends one.
        return self._line.find(_DELIMITER, 0 if self._inside_frame else self._line.skip_bytes(_DELIMITER))

    def _read(self, count: int, at_s: float) -> bytes:
        data = self._line.remove(count)
        if data:
            self._inside_frame = not data.endswith(_DELIMITER)
            self._enter(at_s)
        return data

    def _enter(self, at_s: float) -> None:
        count = min(MAX_UNREAD_BYTES - len(self._line), len(self._writer))
        if not count:
            return
        data = self._writer[:count]
        del self._writer[:count]
        if self._frames is None:
            self._free_s = self._line.append(data, max(self._free_s, at_s))
            return
        for start in range(0, count, USB_PACKET_BYTES):
            self._line.append(data[start : start + USB_PACKET_BYTES], self._frames.next_packet(at_s))


class BoardToHostLine:
    """Line from board to host, which holds at most 4096 unread bytes."""

    def __init__(self, pacing: Pacing) -> None:
        self._pacing = pacing
        self._delivery_delay = pacing.delivery_delay()
        self._line = TimedBytes(pacing.byte_s)
        self._unsent = b""
        self.free_s = float("-inf")

    @property
    def blocked(self) -> bool:
        """Whether no frame can start before the host reads bytes."""
        return bool(self._unsent) or len(self._line) >= MAX_UNREAD_BYTES

    def send(self, wire: bytes, at_s: float) -> None:
        """Start to transmit a frame to the host."""
        free_bytes = MAX_UNREAD_BYTES - len(self._line)
        self._unsent = wire[free_bytes:]
        self.free_s = self._line.append(wire[:free_bytes], max(self.free_s, at_s))

    def remove(self, now_s: float) -> bytes:
        """Remove and return the bytes that have reached the host."""
        blocked = self.blocked
        data = self._delivery_delay.deliver(self._line, now_s)
        # The rest of the frame was blocked: it continues from now.
        if data and blocked:
            self.free_s = max(self.free_s, now_s)
            self.send(self._unsent, now_s)
        return data

    def next_delivery(self) -> float | None:
        """Return the time at which more bytes reach the host; ``None`` if there are none."""
        return self._delivery_delay.next_delivery(self._line)

    def clear(self) -> None:
        """Discard all bytes in transmission."""
        self._line.clear()
        self._unsent = b""
        self.free_s = float("-inf")
        self._delivery_delay = self._pacing.delivery_delay()
