"""One host on the serial line of an ITLA: bytes to frames of four, and replies back in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumion_hw.emulator.lasers.itla_frames import FRAME_SIZE
from lumion_hw.emulator.wires.serial_device import SerialPeer
from lumion_hw.emulator.wires.serial_line import SerialLine

if TYPE_CHECKING:
    from lumion_hw.emulator.lasers.itla import Itla

_SILENCE_S = 0.1


class ItlaPeer(SerialPeer):
    """One connection: a line, and the bytes of the present frame."""

    def __init__(self, device: Itla, line: SerialLine) -> None:
        super().__init__(device, line)
        self._frame = bytearray()
        self._heard_s = float("-inf")

    def frames(self, data: bytes, end_s: float) -> list[tuple[bytes, float]]:
        """Read on; return the frames that ``data`` completes and when each arrived."""
        start_s = end_s - self.line.byte_s * len(data)
        if start_s > self._heard_s + _SILENCE_S:
            self._frame.clear()
        self._heard_s = end_s
        complete = []
        for place, byte in enumerate(data, start=1):
            self._frame.append(byte)
            if len(self._frame) == FRAME_SIZE:
                complete.append((bytes(self._frame), start_s + self.line.byte_s * place))
                self._frame.clear()
        return complete
