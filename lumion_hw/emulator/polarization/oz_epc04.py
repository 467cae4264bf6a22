"""Emulated OZ Optics EPC04 electric polarization controller: four fibre squeezers on a serial port.

Lines end with CR LF at 9600 baud; a reply is one or more lines of text and then ``Done``, or ``Error!``. The maker's
manual is not public. Sources: the tests of QMI (QuTech-Delft/QMI, tests/instruments/ozoptics) for replies,
TommasoBoscardin/APC-Characterization (EPC400.py) for further commands, pyLabLib for ``F3,0055``. Test vectors with
sources: tests/emulator/polarization/test_epc04_dialect.py.

Unverified choices: the replies to ``SN?``, ``VER?``, ``BR?``, ``BR``, ``ENABLE``, ``RESET`` and ``?``, and the rates of
``BR0`` to ``BR3``. A new rate applies from the next start. A ``VF`` command that switches a channel from voltage to
scrambling gets the reply ``Hz``. A channel set to a voltage keeps it while others scramble only after ``ENVF1``.
Without ``ENABLE`` all outputs are at 0 V. ``RESET`` restores the settings stored by ``SAVE``.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.wires.serial_device import SerialDevice, SerialPeer
from lumion_hw.emulator.wires.serial_line import SerialLine

N_CHANNELS = 4
"""Number of squeezers, numbered from 1."""
MAX_MV = 5000
"""Largest drive in either direction, in mV."""
MAX_HZ = 100
"""Fastest scrambling, in Hz."""

RATES = (9600, 19_200, 38_400, 57_600)
"""Line rates in baud, indexed by the number after ``BR``."""

_MAX_LINE = 64
_REPLY_S, _SAVE_S = 0.002, 0.050
_SHAPES = {1: "Sine", 2: "Triangle"}
_OUTPUTS = {True: "Volt", False: "Hz"}
_VERSION = "EPC OEM Driver V2.10"


@dataclass
class _Settings:
    """Settings of the controller; lists have one entry per channel."""

    drive_mv: list[int] = field(default_factory=lambda: [0] * N_CHANNELS)
    frequency_hz: list[int] = field(default_factory=lambda: [10] * N_CHANNELS)
    scrambling: bool = False
    waveform: int = 1
    holding: bool = False
    on_voltage: list[bool] = field(default_factory=lambda: [False] * N_CHANNELS)
    enabled: bool = True
    rate: int = 0


class _Epc04Peer(SerialPeer):
    """One host connection to the controller."""

    command_ends = b"\r\n"

    def __init__(self, device: Epc04, line: SerialLine) -> None:
        super().__init__(device, line)
        self._text = bytearray()

    def append(self, data: bytes) -> str | None:
        """Return the command that the received bytes complete; ``None`` if none is complete."""
        if data[-1:] not in (b"\r", b"\n"):
            self._text += data[: _MAX_LINE + 1 - len(self._text)]
            return None
        self._text += data[:-1][: _MAX_LINE + 1 - len(self._text)]
        # CR LF ends a line twice; the empty line in between is not a command.
        text, self._text = self._text.decode("latin-1"), bytearray()
        return text or None


class Epc04(SerialDevice[_Epc04Peer]):
    """Emulated EPC04 polarization controller; :class:`Squeezers` models the optics.

    Args:
        drive_mv: Called with channel (1 to 4) and voltage in mV, for every channel at construction and at every change.
        echo: Whether a reply begins with the command.
    """

    description = "the controller"

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        drive_mv: Callable[[int, float], None],
        serial: str = "00000001",
        echo: bool = False,
    ) -> None:
        super().__init__(name, clock)
        self._serial = serial
        self._on_drive = drive_mv
        self._echo = echo
        self._phase = [float(value) for value in rng.uniform(0.0, 1.0, N_CHANNELS)]
        self._saved = _Settings()
        self._settings = _Settings()
        self._active_rate = 0
        self._reported: list[float | None] = [None] * N_CHANNELS
        self._drive()

    def power_cycle(self) -> None:
        """Switch the power off and on. Settings return to those stored by ``SAVE``."""
        self.advance()
        for peer in self._peers:
            peer.line.clear()
        self._restore()
        self._drive()

    def _lose_power(self) -> None:
        super()._lose_power()
        self._drive()

    def _new_peer(self) -> _Epc04Peer:
        return _Epc04Peer(self, SerialLine(RATES[self._active_rate]))

    def _follow(self, now_s: float) -> None:
        for peer in self._peers:
            while (chunk := peer.line.take_arrived(now_s, b"\r\n")) is not None:
                command = peer.append(chunk[1])
                if command is not None:
                    self._send_reply(peer.line, command, chunk[0])
        self._drive()

    def _send_reply(self, line: SerialLine, command: str, at_s: float) -> None:
        lines = [command] if self._echo else []
        try:
            lines += [*self._carry_out(command), "Done"]
        except EpcRefusal:
            lines.append("Error!")
        text = "".join(f"{item}\r\n" for item in lines)
        line.send(text.encode("latin-1"), at_s + (_SAVE_S if command == "SAVE" else _REPLY_S))

    def _carry_out(self, command: str) -> list[str]:
        for pattern, action in _COMMANDS:
            if (match := pattern.fullmatch(command)) is not None:
                text = action(self, *(int(group) for group in match.groups()))
                return [text] if isinstance(text, str) else text
        raise EpcRefusal

    def _drive(self) -> None:
        for channel in range(N_CHANNELS):
            voltage = self._voltage_mv(channel) if self.powered else 0.0
            if voltage != self._reported[channel]:  # each call makes the world compute the light anew
                self._reported[channel] = voltage
                self._on_drive(channel + 1, voltage)

    def _voltage_mv(self, channel: int) -> float:
        settings = self._settings
        if not settings.enabled:
            return 0.0
        if not settings.scrambling or (settings.holding and settings.on_voltage[channel]):
            return float(settings.drive_mv[channel])
        # From the clock, not step by step, so that the waveform does not depend on how often it is sampled.
        turns = (settings.frequency_hz[channel] * self._clock.now() + self._phase[channel]) % 1.0
        shape = math.sin(2.0 * math.pi * turns) if settings.waveform == 1 else 4.0 * abs(turns - 0.5) - 1.0
        return MAX_MV * shape

    def _restore(self) -> None:
        self._settings = copy.deepcopy(self._saved)
        # A new rate applies from here on: the reply to BR was still sent at the old rate.
        self._active_rate = self._settings.rate
        for peer in self._peers:
            peer.line.set_baud(RATES[self._active_rate])

    # -- actions of commands

    def _set_voltage(self, channel: int, millivolt: int) -> str:
        self._settings.drive_mv[_index(channel)] = _require_range(millivolt, -MAX_MV, MAX_MV)
        return f"Set CH{channel} DC Voltage at: {millivolt}mV"

    def _voltages(self) -> str:
        return "Voltage(mV): " + " ".join(f"CH{n} {value:+05d}" for n, value in enumerate(self._settings.drive_mv, 1))

    def _set_frequency(self, channel: int, hertz: int) -> str:
        self._settings.frequency_hz[_index(channel)] = _require_range(hertz, 0, MAX_HZ)
        return f"Set CH{channel} AC Frequency at: {hertz}Hz"

    def _frequencies(self) -> str:
        values = enumerate(self._settings.frequency_hz, 1)
        return "Frequency(Hz): " + "  ".join(f"CH{n} {value:03d}" for n, value in values)

    def _set_mode(self, scrambling: bool) -> str:
        self._settings.scrambling = scrambling
        return f"Set To {'AC' if scrambling else 'DC'} Mode"

    def _mode(self) -> str:
        return "Work Mode: " + (f"AC({self._shape})" if self._settings.scrambling else "DC")

    @property
    def _shape(self) -> str:
        return _SHAPES[self._settings.waveform]

    def _set_waveform(self, waveform: int) -> str:
        self._settings.waveform = _require_range(waveform, 1, len(_SHAPES))
        return f"Set AC Waveform at: {self._shape}"

    def _set_holding(self, on: int) -> str:
        self._settings.holding = bool(_require_range(on, 0, 1))
        return f"{'Enable' if on else 'Disable'} DC Voltage Output at AC Mode"

    def _toggle(self, channel: int) -> str:
        index = _index(channel)
        self._settings.on_voltage[index] = not self._settings.on_voltage[index]
        return f"Set CH{channel} output to: {_OUTPUTS[self._settings.on_voltage[index]]} (if possible)"

    def _outputs(self) -> str:
        state = "enabled" if self._settings.holding else "disabled"
        channels = ",".join(f"CH{n}-{'V' if volt else 'F'}" for n, volt in enumerate(self._settings.on_voltage, 1))
        return f"Hz<->Volt at AC Mode is {state}: {channels}"

    def _set_enabled(self, on: int) -> str:
        self._settings.enabled = bool(_require_range(on, 0, 1))
        return f"{'Enable' if on else 'Disable'} Output"

    def _set_rate(self, number: int) -> str:
        self._settings.rate = _require_range(number, 0, len(RATES) - 1)
        return f"Set Baud Rate at: {RATES[number]}"

    def _save(self) -> str:
        self._saved = copy.deepcopy(self._settings)
        return "Write Setting to Flash memory"

    def _reset(self) -> str:
        self._restore()
        return "Reset"


class EpcRefusal(Exception):  # noqa: N818 - a reply of the device, not an error of the program
    """Reply ``Error!`` of the controller to a command."""


def _require_range(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise EpcRefusal
    return value


def _index(channel: int) -> int:
    return _require_range(channel, 1, N_CHANNELS) - 1


_HELP = (
    "Vn,mV VHn VLn VZn V?",
    "Fn,Hz F? WF1 WF2 WF?",
    "MAC MDC M? ENVF0 ENVF1 VFn VF?",
    "ENABLE0 ENABLE1 BRn BR? SN? VER? SAVE RESET ?",
)
_COMMANDS: tuple[tuple[re.Pattern[str], Callable[..., str | list[str]]], ...] = tuple(
    (re.compile(pattern, re.ASCII), action)
    for pattern, action in (
        (r"V(\d),([+-]?\d{1,5})", Epc04._set_voltage),
        (r"VH(\d)", lambda device, channel: device._set_voltage(channel, MAX_MV)),
        (r"VL(\d)", lambda device, channel: device._set_voltage(channel, -MAX_MV)),
        (r"VZ(\d)", lambda device, channel: device._set_voltage(channel, 0)),
        (r"V\?", Epc04._voltages),
        (r"F(\d),(\d{1,5})", Epc04._set_frequency),
        (r"F\?", Epc04._frequencies),
        (r"MDC", lambda device: device._set_mode(False)),
        (r"MAC", lambda device: device._set_mode(True)),
        (r"M\?", Epc04._mode),
        (r"WF(\d)", Epc04._set_waveform),
        (r"WF\?", lambda device: f"AC Waveform: {device._shape}"),
        (r"ENVF(\d)", Epc04._set_holding),
        (r"VF(\d)", Epc04._toggle),
        (r"VF\?", Epc04._outputs),
        (r"ENABLE(\d)", Epc04._set_enabled),
        (r"BR(\d)", Epc04._set_rate),
        (r"BR\?", lambda device: f"Baud Rate: {RATES[device._settings.rate]}"),
        (r"SN\?", lambda device: f"Serial Number: {device._serial}"),
        (r"VER\?", lambda _device: f"Version: {_VERSION}"),
        (r"SAVE", Epc04._save),
        (r"RESET", Epc04._reset),
        (r"\?", lambda _device: list(_HELP)),
    )
)
