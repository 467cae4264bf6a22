"""An emulated OZ Optics EPC04 electric polarization controller: four fibre squeezers behind a serial port.

Dialect of the EPC04/EPC-400: 9600 baud, lines ended by CR LF, every answer zero or more lines and then ``Done`` or
``Error!``. The layout of the answers to ``M?``, ``F?`` and ``WF?`` is not published; here they read like ``V?`` or like
the command that sets the value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.serial_device import SerialDevice, SerialPeer
from lumion_hw.emulator.serial_line import SerialLine

N_CHANNELS = 4
"""Squeezers, numbered from 1."""
MAX_MV = 5000
"""Largest drive in either direction, mV."""
MAX_HZ = 100
"""Fastest scrambling, Hz."""
BAUD = 9600
"""Line rate."""

_MAX_LINE = 64
_ANSWER_S, _SAVE_S = 0.002, 0.050


@dataclass
class _Settings:
    """What SAVE keeps."""

    drive_mv: list[int] = field(default_factory=lambda: [0] * N_CHANNELS)
    frequency_hz: list[int] = field(default_factory=lambda: [10] * N_CHANNELS)
    scrambling: bool = False
    waveform: int = 1

    def copy(self) -> _Settings:
        """Return an independent copy."""
        return _Settings(list(self.drive_mv), list(self.frequency_hz), self.scrambling, self.waveform)


class _Epc04Peer(SerialPeer):
    """One connection: a line and the characters of the present command."""

    marks = b"\r\n"

    def __init__(self, device: Epc04, line: SerialLine) -> None:
        super().__init__(device, line)
        self._text = bytearray()

    def take(self, data: bytes) -> str | None:
        """Read on; returns a command when ``data`` ends one. Empty lines are none, endless ones are cut to nonsense."""
        if data[-1:] not in (b"\r", b"\n"):
            self._text += data[: _MAX_LINE + 1 - len(self._text)]
            return None
        self._text += data[:-1][: _MAX_LINE + 1 - len(self._text)]
        text, self._text = self._text.decode("latin-1"), bytearray()
        return text or None


class Epc04(SerialDevice[_Epc04Peer]):
    """The controller: an emulated device that reports its drive voltages and leaves the optics to others.

    Args:
        name: Device name of the bench file.
        clock: The clock of the bench.
        rng: Draws the phases of the scrambling waveforms.
        drive_mv: Called with channel (1 to 4) and voltage in mV for every channel at construction, then on change.
            While scrambling the voltages are those at the time of :meth:`advance`, full swing.
        echo: The command is sent back as the first line of its answer.
    """

    what = "the controller"

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        drive_mv: Callable[[int, float], None],
        echo: bool = False,
    ) -> None:
        super().__init__(name, clock)
        self._report = drive_mv
        self._echo = echo
        self._phase = [float(value) for value in rng.uniform(0.0, 1.0, N_CHANNELS)]
        self._saved = _Settings()
        self._settings = _Settings()
        self._reported: list[float | None] = [None] * N_CHANNELS
        self._drive()

    def power_cycle(self) -> None:
        """Power off and on: settings are those kept by ``SAVE``, bytes under way are lost."""
        self.advance()
        for peer in self._peers:
            peer.line.clear()
        self._settings = self._saved.copy()
        self._drive()

    def _lose_power(self) -> None:
        super()._lose_power()
        self._drive()

    def _new_peer(self) -> _Epc04Peer:
        return _Epc04Peer(self, SerialLine(BAUD))

    def _follow(self, now: float) -> None:
        """Execute what has arrived, and let the scrambling follow the clock."""
        for peer in self._peers:
            while (piece := peer.line.arrived(now, b"\r\n")) is not None:
                command = peer.take(piece[1])
                if command is not None:
                    self._answer(peer.line, command, piece[0])
        self._drive()

    def _answer(self, line: SerialLine, command: str, at_s: float) -> None:
        lines = [command] if self._echo else []
        found = None
        for pattern, action in _COMMANDS:
            found = pattern.fullmatch(command)
            if found is not None:
                result = action(self, *(int(group) for group in found.groups()))
                lines += ["Error!"] if result is None else [*result, "Done"]
                break
        if found is None:
            lines.append("Error!")
        text = "".join(f"{item}\r\n" for item in lines)
        line.send(text.encode("latin-1"), at_s + (_SAVE_S if command == "SAVE" else _ANSWER_S))

    def _drive(self) -> None:
        for channel in range(N_CHANNELS):
            voltage = self._voltage_mv(channel) if self.powered else 0.0
            if voltage != self._reported[channel]:
                self._reported[channel] = voltage
                self._report(channel + 1, voltage)

    def _voltage_mv(self, channel: int) -> float:
        settings = self._settings
        if not settings.scrambling:
            return float(settings.drive_mv[channel])
        turn = (settings.frequency_hz[channel] * self._clock.now() + self._phase[channel]) % 1.0
        shape = math.sin(2.0 * math.pi * turn) if settings.waveform == 1 else 4.0 * abs(turn - 0.5) - 1.0
        return MAX_MV * shape

    def _channels(self, values: list[int]) -> list[str]:
        return [" ".join(f"CH{channel} {value}" for channel, value in enumerate(values, 1))]

    def _set_voltage(self, channel: int, millivolt: int) -> list[str] | None:
        if not 1 <= channel <= N_CHANNELS or abs(millivolt) > MAX_MV:
            return None
        self._settings.drive_mv[channel - 1] = millivolt
        return []

    def _set_frequency(self, channel: int, hertz: int) -> list[str] | None:
        if not 1 <= channel <= N_CHANNELS or not 0 <= hertz <= MAX_HZ:
            return None
        self._settings.frequency_hz[channel - 1] = hertz
        return []

    def _set_waveform(self, waveform: int) -> list[str] | None:
        if waveform not in (1, 2):
            return None
        self._settings.waveform = waveform
        return []

    def _set_mode(self, scrambling: bool) -> list[str]:
        self._settings.scrambling = scrambling
        return []

    def _save(self) -> list[str]:
        self._saved = self._settings.copy()
        return []


_COMMANDS: tuple[tuple[re.Pattern[str], Callable[..., list[str] | None]], ...] = tuple(
    (re.compile(pattern, re.ASCII), action)
    for pattern, action in (
        (r"V(\d),([+-]?\d{1,5})", Epc04._set_voltage),
        (r"V\?", lambda device: device._channels(device._settings.drive_mv)),
        (r"F(\d),(\d{1,3})", Epc04._set_frequency),
        (r"F\?", lambda device: device._channels(device._settings.frequency_hz)),
        (r"MDC", lambda device: device._set_mode(False)),
        (r"MAC", lambda device: device._set_mode(True)),
        (r"M\?", lambda device: ["MAC" if device._settings.scrambling else "MDC"]),
        (r"WF(\d)", Epc04._set_waveform),
        (r"WF\?", lambda device: [f"WF{device._settings.waveform}"]),
        (r"SAVE", Epc04._save),
    )
)
