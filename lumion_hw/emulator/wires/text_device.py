"""Emulated devices that reply to lines of text on a serial line."""

from __future__ import annotations

import abc

from lumion_hw.clock import Clock
from lumion_hw.emulator.wires.serial_device import SerialDevice, SerialPeer
from lumion_hw.emulator.wires.serial_line import SerialLine

_MAX_LINE = 256


class TextPeer(SerialPeer):
    """One host connection to a device with text commands."""

    command_ends = b"\r\n"

    def __init__(self, device: TextDevice, line: SerialLine) -> None:
        super().__init__(device, line)
        self._text = bytearray()

    def append(self, data: bytes) -> str | None:
        """Return the command that the received bytes complete; ``None`` if none is complete."""
        is_complete = data[-1:] in (b"\r", b"\n")
        self._text += (data[:-1] if is_complete else data)[: _MAX_LINE + 1 - len(self._text)]
        if not is_complete:
            return None
        text, self._text = self._text.decode("latin-1").strip(), bytearray()
        return text or None


class TextDevice(SerialDevice[TextPeer]):
    """Base class of devices with one text command per line, ended by CR, LF or both.

    Args:
        answer_s: Time from the end of a command to the first character of its reply.

    Attributes:
        command_s: Arrival time of the command.
    """

    def __init__(self, name: str, clock: Clock, baud: int, answer_s: float) -> None:
        super().__init__(name, clock)
        self._baud, self._answer_s = baud, answer_s
        self.command_s = clock.now()

    def _new_peer(self) -> TextPeer:
        return TextPeer(self, SerialLine(self._baud))

    def _follow(self, now_s: float) -> None:
        for peer in self._peers:
            while (chunk := peer.line.take_arrived(now_s, b"\r\n")) is not None:
                command = peer.append(chunk[1])
                if command is not None:
                    self.command_s = chunk[0]
                    text, delay_s = self._carry_out(command)
                    peer.line.send(text.encode("latin-1"), chunk[0] + self._answer_s + delay_s)

    @abc.abstractmethod
    def _carry_out(self, command: str) -> tuple[str, float]:
        """Execute a command. Return the reply with line ends, and the extra time in s that the command takes."""
