"""Emulated OZ Optics DA-100 or DD-100 motor-driven attenuator on a serial line.

Commands end with CR, reply lines with CR LF. The last line of a reply is ``Done`` followed by an empty line,
``Error-2`` (bad command) or ``Error-6`` (value out of range). ``Done`` is sent when the motor has stopped. The maker's
manual is not public. Sources: the driver OZOptics_DD100MC of QMI (QuTech-Delft/QMI, qmi/instruments/ozoptics) and the
list of commands in COO-Utilities/ozoptics (dd100mc.py).

Unverified choices: the wording of the replies to ``A?`` and ``CD``; 9600 baud; no echo before ``E1``; no empty line
after an error; ``A`` is relative to the smallest loss of 1.2 dB; the attenuation is proportional to the square of the
motor steps; 6000 steps at the largest attenuation; 3000 steps per second; ``RST`` homes the motor without a reply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from lumion_hw.clock import Clock
from lumion_hw.emulator.wires.text_device import TextDevice

MIN_LOSS_DB = 1.2
FULL_STEPS = 6000
STEPS_PER_S = 3000.0
_HOME_S = 1.0
_BAUD, _REPLY_S = 9600, 0.002
_BAD, _OVERFLOW = "Error-2", "Error-6"


class EmulatedDa100(TextDevice):
    """Emulated OZ Optics DA-100 attenuator.

    Args:
        min_loss_db: Loss at zero attenuation.
    """

    description = "the attenuator"

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        attenuation_max_db: float = 60.0,
        min_loss_db: float = MIN_LOSS_DB,
        changed: Callable[[], None] = lambda: None,
        serial: str = "000001-01",
    ) -> None:
        super().__init__(name, clock, _BAUD, _REPLY_S)
        self._min_loss_db = min_loss_db
        self._max_db, self._changed, self._serial = attenuation_max_db, changed, serial
        self._steps = self._from_steps = 0
        self._start_s = self._end_s = clock.now()
        self._echo = False
        self._insertion_db = 0.0
        self._last = "Done"

    def transmission(self, _channel: int = 1) -> float:
        """Return the fraction of light that the attenuator transmits now."""
        remaining_s = self._end_s - self._clock.now()
        steps = float(self._steps)
        if remaining_s > 0.0:
            moved_fraction = 1.0 - remaining_s / (self._end_s - self._start_s)
            steps = self._from_steps + moved_fraction * (self._steps - self._from_steps)
        return float(10.0 ** (-(self._min_loss_db + self._max_db * (steps / FULL_STEPS) ** 2) / 10.0))

    def _regain_power(self) -> None:
        super()._regain_power()
        self.command_s = self._clock.now()
        self._start_move(0, _HOME_S)

    @property
    def _db(self) -> float:
        return self._max_db * (self._steps / FULL_STEPS) ** 2 + self._insertion_db

    def _carry_out(self, command: str) -> tuple[str, float]:
        wait_s = 0.0
        lines: list[str] = []
        ending = "Done\r\n\r\n"
        for pattern, action in _COMMANDS:
            match = pattern.fullmatch(command.upper())
            if match is not None:
                try:
                    lines, wait_s = action(self, *match.groups())
                except DaRefusal as refusal:
                    ending = f"{refusal.args[0]}\r\n"
                break
        else:
            ending = f"{_BAD}\r\n"
        self._last = ending.split("\r")[0]
        echoed = f"{command}\r\n" if self._echo else ""
        return echoed + "".join(f"{line}\r\n" for line in lines) + ending, wait_s

    def _start_move(self, steps: int, extra_s: float = 0.0) -> float:
        if not 0 <= steps <= FULL_STEPS:
            raise DaRefusal(_OVERFLOW)
        self._changed()
        command_s = self.command_s
        wait_s = max(self._end_s - command_s, 0.0)  # one movement after the other
        self._from_steps, self._steps = self._steps, steps
        duration_s = abs(steps - self._from_steps) / STEPS_PER_S + extra_s
        self._start_s, self._end_s = command_s + wait_s, command_s + wait_s + duration_s
        return wait_s + duration_s

    # -- actions of commands

    def _attenuate(self, text: str) -> tuple[list[str], float]:
        relative_db = float(text) - self._insertion_db
        if not 0.0 <= relative_db <= self._max_db:
            raise DaRefusal(_OVERFLOW)
        wait_s = self._start_move(round(FULL_STEPS * math.sqrt(relative_db / self._max_db)))
        return [f"Pos:{self._steps}"], wait_s

    def _move(self, sign: str, text: str) -> tuple[list[str], float]:
        steps = int(text)
        target = {"+": self._steps + steps, "-": self._steps - steps}.get(sign, steps)
        return [f"Pos:{target}"], self._start_move(target)

    def _step(self, word: str) -> tuple[list[str], float]:
        wait_s = self._start_move(self._steps + (1 if word == "F" else -1))
        return [f"Pos:{self._steps}"], wait_s

    def _home_motor(self) -> tuple[list[str], float]:
        return ["Pos:0"], self._start_move(0, _HOME_S)

    def _set_echo(self, digit: str) -> tuple[list[str], float]:
        self._echo = digit == "1"
        return [], 0.0

    def _set_insertion(self, text: str) -> tuple[list[str], float]:
        if float(text) > 10.0:
            raise DaRefusal(_OVERFLOW)
        self._insertion_db = float(text)
        return [], 0.0

    def _configuration(self) -> tuple[list[str], float]:
        return [f"S/N: {self._serial}", "Wavelength: 1550", f"IL: {self._insertion_db:.2f}", "ATTEN MODE"], 0.0


class DaRefusal(Exception):  # noqa: N818 - a reply of the device, not an error of the program
    """Error reply of the attenuator to a command."""


_NUMBER = r"(\d{1,4}(?:\.\d{0,4})?|\.\d{1,4})"
_COMMANDS: tuple[tuple[re.Pattern[str], Callable[..., tuple[list[str], float]]], ...] = tuple(
    (re.compile(pattern, re.ASCII), action)
    for pattern, action in (
        (r"A" + _NUMBER, EmulatedDa100._attenuate),
        (r"A\?", lambda device: ([f"Atten:{device._db:.2f}(dB)"], 0.0)),
        (r"([FB])", EmulatedDa100._step),
        (r"CD", EmulatedDa100._configuration),
        (r"D", lambda device: ([f"DPos:{device._steps}", f"ATTEN:{device._db:.2f}"], 0.0)),
        (r"E([01])", EmulatedDa100._set_echo),
        (r"H", EmulatedDa100._home_motor),
        (r"L" + _NUMBER, EmulatedDa100._set_insertion),
        (r"RES\?", lambda device: ([device._last], 0.0)),
        (r"RST", EmulatedDa100._home_motor),
        (r"S\?", lambda device: ([f"Pos:{device._steps}"], 0.0)),
        (r"S([+-]?)(\d{1,6})", EmulatedDa100._move),
        (r"W1", lambda _: ([], 0.0)),
    )
)
