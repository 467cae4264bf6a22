"""An emulated OZ Optics DA-100 or DD-100 motor-driven attenuator behind a serial line.

Commands are ended by CR; an answer is lines ended by CR LF, then ``Done`` and an empty line, or ``Error-2`` (bad
command), ``Error-6`` (overflow: beyond its range). Sources, since the maker's manual is not public: the driver
OZOptics_DD100MC of QMI (QuTech-Delft/QMI, qmi/instruments/ozoptics: answers of ``A``, ``D``, ``CD``, ``H``) and the
list of commands in COO-Utilities/ozoptics (dd100mc.py). The motor moves while the host waits: ``Done`` comes at its
end.

Model choices: words of ``A?`` and ``CD`` (check); 9600 baud, no echo before ``E1``; ``A`` counts from the least loss,
which is 1.2 dB; a blade in a beam, so that attenuation grows with the square of the steps; 6000 steps at the largest
attenuation, 3000 a second; homing takes the way back and a second more; an error has no empty line behind it (check);
``RST`` homes and is silent until then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from lumion_hw.clock import Clock
from lumion_hw.emulator.wires.text_device import TextDevice

LEAST_LOSS_DB = 1.2
FULL_STEPS = 6000
STEPS_PER_S = 3000.0
_HOME_S = 1.0
_BAUD, _ANSWER_S = 9600, 0.002
_BAD, _OVERFLOW = "Error-2", "Error-6"


class EmulatedDa100(TextDevice):
    """The attenuator (:class:`~lumion_hw.emulator.wires.device.EmulatedDevice`).

    Args:
        name: Device name of the bench file.
        clock: The injected clock.
        attenuation_max_db: Its largest attenuation.
        least_loss_db: What it takes at its least.
        changed: Called when the motor sets out.
        serial: Serial number in ``CD``.
    """

    what = "the attenuator"

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        attenuation_max_db: float = 60.0,
        least_loss_db: float = LEAST_LOSS_DB,
        changed: Callable[[], None] = lambda: None,
        serial: str = "000001-01",
    ) -> None:
        super().__init__(name, clock, _BAUD, _ANSWER_S)
        self._least_db = least_loss_db
        self._max_db, self._changed, self._serial = attenuation_max_db, changed, serial
        self._steps = self._from_steps = 0
        self._begun_s = self._arrives_s = clock.now()
        self._echo = False
        self._insertion_db = 0.0
        self._last = "Done"

    def transmission(self, _channel: int = 1) -> float:
        """Return the share of the light that passes now, the motor perhaps on its way; it stays without power."""
        left_s = self._arrives_s - self._clock.now()
        steps = float(self._steps)
        if left_s > 0.0:
            gone = 1.0 - left_s / (self._arrives_s - self._begun_s)
            steps = self._from_steps + gone * (self._steps - self._from_steps)
        return float(10.0 ** (-(self._least_db + self._max_db * (steps / FULL_STEPS) ** 2) / 10.0))

    def _regain_power(self) -> None:
        super()._regain_power()
        self.command_s = self._clock.now()
        self._go(0, _HOME_S)

    @property
    def _db(self) -> float:
        return self._max_db * (self._steps / FULL_STEPS) ** 2 + self._insertion_db

    def _carry_out(self, command: str) -> tuple[str, float]:
        waits_s = 0.0
        lines: list[str] = []
        ending = "Done\r\n\r\n"
        for pattern, action in _COMMANDS:
            found = pattern.fullmatch(command.upper())
            if found is not None:
                try:
                    lines, waits_s = action(self, *found.groups())
                except DaRefusal as refusal:
                    ending = f"{refusal.args[0]}\r\n"
                break
        else:
            ending = f"{_BAD}\r\n"
        self._last = ending.split("\r")[0]
        echoed = f"{command}\r\n" if self._echo else ""
        return echoed + "".join(f"{line}\r\n" for line in lines) + ending, waits_s

    def _go(self, steps: int, more_s: float = 0.0) -> float:
        """Set out for a position; return how long it takes, what is under way included."""
        if not 0 <= steps <= FULL_STEPS:
            raise DaRefusal(_OVERFLOW)
        self._changed()
        now = self.command_s
        waits_s = max(self._arrives_s - now, 0.0)  # one motion after the other
        self._from_steps, self._steps = self._steps, steps
        duration_s = abs(steps - self._from_steps) / STEPS_PER_S + more_s
        self._begun_s, self._arrives_s = now + waits_s, now + waits_s + duration_s
        return waits_s + duration_s

    # -- what commands do

    def _attenuate(self, text: str) -> tuple[list[str], float]:
        relative_db = float(text) - self._insertion_db
        if not 0.0 <= relative_db <= self._max_db:
            raise DaRefusal(_OVERFLOW)
        waits_s = self._go(round(FULL_STEPS * math.sqrt(relative_db / self._max_db)))
        return [f"Pos:{self._steps}"], waits_s

    def _move(self, sign: str, text: str) -> tuple[list[str], float]:
        steps = int(text)
        target = {"+": self._steps + steps, "-": self._steps - steps}.get(sign, steps)
        return [f"Pos:{target}"], self._go(target)

    def _step(self, word: str) -> tuple[list[str], float]:
        waits_s = self._go(self._steps + (1 if word == "F" else -1))
        return [f"Pos:{self._steps}"], waits_s

    def _home(self) -> tuple[list[str], float]:
        return ["Pos:0"], self._go(0, _HOME_S)

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


class DaRefusal(Exception):  # noqa: N818 - what a device answers, not an error of the program
    """A command that is answered by an error."""


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
        (r"H", EmulatedDa100._home),
        (r"L" + _NUMBER, EmulatedDa100._set_insertion),
        (r"RES\?", lambda device: ([device._last], 0.0)),
        (r"RST", EmulatedDa100._home),
        (r"S\?", lambda device: ([f"Pos:{device._steps}"], 0.0)),
        (r"S([+-]?)(\d{1,6})", EmulatedDa100._move),
        (r"W1", lambda _: ([], 0.0)),
    )
)
