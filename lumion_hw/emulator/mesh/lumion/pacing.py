"""How fast bytes pass between a host and the emulated board, and how many may lie unread (section 15)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lumion_hw.emulator.mesh.lumion.timed_bytes import TimedBytes
from lumion_hw.errors import ConfigError

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
        return min(timer_s, line.time_of(LATENCY_BYTES - 1)) if len(line) >= LATENCY_BYTES else timer_s

    def deliver(self, line: TimedBytes, now_s: float) -> bytes:
        """Take the packets that have reached the host by now."""
        packets = bytearray()
        while (at_s := self.next_delivery(line)) is not None and at_s <= now_s:
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
            waiting = line.passed((frame - _EDGE) * USB_FRAME_S)
            packets += line.take(min(waiting, USB_PACKET_BYTES * USB_PACKETS_PER_FRAME))
            self._last_frame = frame
        return bytes(packets)
