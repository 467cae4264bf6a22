"""The two links of an emulated PM1000: binary requests over TCP, and lines of hexadecimal digits over USB 2.

LAN: ``57 Ah Al Dh Dl`` writes and is not acknowledged, ``52 Ah Al`` reads and is answered by ``Dh Dl``. USB:
``W AAA DDDD CR`` writes, ``R AAA 0000 CR`` reads and is answered by ``DDDD CR``. Model choice: bytes that begin no
request, and lines that are none, are skipped without a word. The burst of the USB 2 link (``X``) is not there.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from lumion_hw.emulator.wires.serial_line import SerialLine

if TYPE_CHECKING:
    from lumion_hw.emulator.polarization.pm1000 import Pm1000

WRITE, READ = 0x57, 0x52
_LENGTHS = {WRITE: 5, READ: 3}
_LINE = re.compile(rb"([WRwr])([0-9A-Fa-f]{3})([0-9A-Fa-f]{4})")
_LONGEST_LINE = 8
_ANSWER_S = 0.2e-3


class LanPeer:
    """One TCP connection."""

    def __init__(self, device: Pm1000) -> None:
        self._device = device
        self._buffer = bytearray()
        self._answers: deque[bytes] = deque()

    def receive(self, data: bytes) -> None:
        """Take bytes from the host, now."""
        self._buffer += data
        while self._buffer:
            length = _LENGTHS.get(self._buffer[0], 1)
            if len(self._buffer) < length:
                return
            request = bytes(self._buffer[:length])
            del self._buffer[:length]
            address = int.from_bytes(request[1:3], "big")
            if request[0] == WRITE:
                self._device.write(address, int.from_bytes(request[3:5], "big"))
            elif request[0] == READ:
                self._answers.append(self._device.read(address).to_bytes(2, "big"))

    def transmit(self) -> bytes:
        """Give the answers."""
        output = b"".join(self._answers)
        self._answers.clear()
        return output

    def next_event(self) -> float | None:
        """Return ``None``: answers are ready at once."""
        return None

    def close(self) -> None:
        """The host went away."""


class UsbPeer:
    """One serial connection."""

    def __init__(self, device: Pm1000, line: SerialLine) -> None:
        self._device = device
        self._line = line
        self._text = bytearray()

    def receive(self, data: bytes) -> None:
        """Take bytes from the host, now."""
        self._line.receive(data, self._device.now())
        self._read_on()

    def _read_on(self) -> None:
        while (piece := self._line.arrived(self._device.now(), b"\r")) is not None:
            at_s, data = piece
            self._text += data[: max(_LONGEST_LINE + 2 - len(self._text), 0)]
            if data.endswith(b"\r"):
                request = _LINE.fullmatch(bytes(self._text).strip(b"\r\n"))
                self._text.clear()
                if request is not None:
                    self._carry_out(request[1].upper(), int(request[2], 16), int(request[3], 16), at_s)

    def _carry_out(self, command: bytes, address: int, value: int, at_s: float) -> None:
        if command == b"W":
            self._device.write(address, value)
        else:
            self._line.send(b"%04X\r" % self._device.read(address), at_s + _ANSWER_S)

    def transmit(self) -> bytes:
        """Give the bytes that have left for the host by now."""
        self._read_on()
        return self._line.left(self._device.now())

    def next_event(self) -> float | None:
        """Return when more bytes may leave."""
        times = (self._line.next_departure(), self._line.next_arrival(b"\r"))
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """The host went away."""
        self._line.clear()
