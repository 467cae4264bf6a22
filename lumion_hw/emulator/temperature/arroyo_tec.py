"""Emulated Arroyo TECSource 5300 temperature controller: text over a serial line (38400 baud) or TCP.

Command language: Arroyo Computer Interfacing Manual as public drivers quote it (MSL-Equipment's ComboSource 6305, a
driver of the 7154, NIST's arroyo class). Commands are in short or long form, ended by CR, LF or both. Several commands
in a line are separated by ``;``, their replies by ``,``. A command after ``;`` is looked up at the level of the
previous command, then level by level up to the root. Bits of ``TEC:COND?``: 1 current limit, 2 voltage limit, 4 sensor
limit, 8 and 16 temperature limits, 32 sensor shorted, 64 sensor open, 128 module open, 512 out of tolerance, 1024
output on. ``TEC:TOL`` sets the tolerance and the time for which the temperature must be within it.

Unverified choices: the event register ``TEC:EVEnt?`` has the bits of the condition register and keeps each until the
host reads it. The reply to ``*IDN?`` and the errors are assumed (errors as on ILX Lightwave controllers). ``ERRSTR?``
replies pairs of number and quoted text. Without output the controller is out of tolerance. An open interlock contact
counts as an open module and switches the output off, as a limit does.

Plant (assumed): 20 K per ampere in steady state with a time constant of 30 s; a PI controller with current limit; a 10
kOhm thermistor of B = 3950 K with 1 mK of noise.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.scpi.formats import forms
from lumion_hw.emulator.wires.text_device import TextDevice

REFERENCE_C = 25.0
"""Temperature in degrees Celsius for which the parameters of an emulated chip are drawn."""
_AMBIENT_C = 22.0
_PLANT_GAIN_K_PER_A, _TIME_S = 20.0, 30.0
_KP_A_PER_K, _KI_A_PER_K_S = 1.0, 0.15
_OHM = 1.5
_STEP_S, _MAX_CATCH_UP_S = 0.05, 600.0
_SENSOR_K = 1e-3
_BAUD, _REPLY_S = 38_400, 0.002
_MAX_ERRORS = 10

CURRENT_LIMIT, HIGH_LIMIT, LOW_LIMIT, SENSOR_OPEN, MODULE_OPEN = 1, 8, 16, 64, 128
OUT_OF_TOLERANCE, OUTPUT_ON = 512, 1024
_ERRORS = {
    123: "Command not found",
    126: "Wrong number of parameters",
    201: "Value out of range",
    202: "Invalid value",
    402: "TEC sensor open",
    403: "TEC module open",
    407: "TEC temperature limit",
}


@dataclass
class _TecSettings:
    """Settings of the temperature controller."""

    setpoint_c: float = REFERENCE_C
    tolerance_k: float = 0.2
    window_s: float = 5.0
    limit_a: float = 3.0
    high_c: float = 85.0
    low_c: float = 0.0
    mode: str = "T"
    current_a: float = 0.0
    gain: str = "30"
    sensor: int = 1
    constants: tuple[float, ...] = (1.125, 2.347, 0.855)
    pid: tuple[float, ...] = (1.0, 0.15, 0.0)
    fan: tuple[float, ...] = (12.0, 1, 5)


class TecRefusal(Exception):  # noqa: N818 - a reply of the device, not an error of the program
    """Error of a command, with a number for the error queue."""


class EmulatedArroyoTec(TextDevice):
    """Emulated Arroyo controller with the plate that it cools.

    Args:
        holding: Whether the plate starts at the set point; otherwise the output is off and the plate is at ambient
            temperature.
    """

    description = "the temperature controller"

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        serial: str = "0000001",
        rng: np.random.Generator | None = None,
        holding: bool = False,
        model: str = "5305",
    ) -> None:
        super().__init__(name, clock, _BAUD, _REPLY_S)
        self._identity = f"Arroyo Instruments,{model},{serial},v3.34"
        self._rng = rng
        self.settings = _TecSettings()
        self._on = holding
        self._plate_c = REFERENCE_C if holding else _AMBIENT_C
        self._integral_a = (REFERENCE_C - _AMBIENT_C) / _PLANT_GAIN_K_PER_A if holding else 0.0
        self._plate_s = self._started_s = clock.now()
        self._in_tolerance_since_s: float | None = clock.now() - 3600.0 if holding else None
        self._faults = 0
        self._events = 0
        self._errors: deque[int] = deque(maxlen=_MAX_ERRORS)
        self._path: tuple[str, ...] = ()

    # -- the plate

    def plate_c(self) -> float:
        """Return the plate temperature in degrees Celsius."""
        self._update_plate()
        return self._plate_c

    def heat_suddenly_k(self, kelvin: float) -> None:
        """Change the plate temperature at once by a number of kelvin, as hot or cold air does."""
        self.advance()
        self._update_plate()
        self._plate_c += kelvin
        self._in_tolerance_since_s = None

    def set_interlock(self, opened: bool) -> None:
        """Open or close the interlock contact. Opening switches the output off; closing leaves it off."""
        self._fault(MODULE_OPEN, opened, 403)

    def unplug_sensor(self, unplugged: bool) -> None:
        """Disconnect or reconnect the temperature sensor. Without the sensor the output switches off."""
        self._fault(SENSOR_OPEN, unplugged, 402)

    def _fault(self, bit: int, present: bool, error: int) -> None:
        self.advance()
        self._update_plate()
        self._faults = self._faults | bit if present else self._faults & ~bit
        if present and self._on:
            self._trip(error)

    def _trip(self, error: int) -> None:
        self._on, self._integral_a, self._in_tolerance_since_s = False, 0.0, None
        self._errors.append(error)

    def _current_a(self, error_k: float) -> float:
        if not (self._on and self.powered):
            return 0.0
        limit_a = self.settings.limit_a
        if self.settings.mode == "ITE":
            return max(-limit_a, min(limit_a, self.settings.current_a))
        gain = 1.0 if self.settings.gain == "PID" else float(self.settings.gain) / 30.0
        return max(-limit_a, min(limit_a, gain * _KP_A_PER_K * error_k + self._integral_a))

    def _update_plate(self, to_s: float | None = None) -> None:
        now_s = self._clock.now() if to_s is None else to_s
        # Earlier times are skipped: everything has settled by then.
        self._plate_s = max(self._plate_s, now_s - _MAX_CATCH_UP_S)
        while now_s - self._plate_s > 1e-9:
            self._step(min(_STEP_S, now_s - self._plate_s))

    def _step(self, step_s: float) -> None:
        settings = self.settings
        error_k = settings.setpoint_c - self._plate_c
        current_a = self._current_a(error_k)
        if self._on and settings.mode != "ITE" and abs(current_a) < settings.limit_a:
            self._integral_a += _KI_A_PER_K_S * error_k * step_s  # not at the limit, where the integral would wind up
        settled_c = _AMBIENT_C + _PLANT_GAIN_K_PER_A * current_a
        self._plate_c = settled_c + (self._plate_c - settled_c) * math.exp(-step_s / _TIME_S)
        self._plate_s += step_s
        if not self._on or abs(settings.setpoint_c - self._plate_c) > settings.tolerance_k:
            self._in_tolerance_since_s = None
        elif self._in_tolerance_since_s is None:
            self._in_tolerance_since_s = self._plate_s
        if self._on and not settings.low_c <= self._plate_c <= settings.high_c:
            self._trip(407)
        self._events |= self.condition()

    def _lose_power(self) -> None:
        super()._lose_power()
        self._update_plate()
        self._on, self._integral_a, self._in_tolerance_since_s = False, 0.0, None

    def _follow(self, now_s: float) -> None:
        super()._follow(now_s)
        self._update_plate()

    # -- the language

    def _carry_out(self, command: str) -> tuple[str, float]:
        replies: list[str] = []
        self._path = ()
        self._update_plate(self.command_s)
        for unit in command.split(";"):
            try:
                reply = self._run_command(unit.strip())
            except TecRefusal as refusal:
                self._errors.append(refusal.args[0])
                continue
            if reply is not None:
                replies.append(reply)
        return (f"{','.join(replies)}\r\n" if replies else ""), 0.0

    def _run_command(self, unit: str) -> str | None:
        if not unit:
            return None
        header, _, argument_text = unit.partition(" ")
        is_query = header.endswith("?")
        words = tuple(header.removesuffix("?").lstrip(":").upper().split(":"))
        arguments = [part.strip() for part in argument_text.split(",")] if argument_text.strip() else []
        for depth in range(len(self._path), -1, -1):
            full = (*self._path[:depth], *words)
            if (full, is_query) in _COMMANDS:
                action = _COMMANDS[full, is_query]
                if not full[0].startswith("*"):
                    self._path = full[:-1]
                return action(self, arguments)
        raise TecRefusal(123)

    def condition(self) -> int:
        """Return the condition bits that ``TEC:COND?`` replies."""
        settings = self.settings
        in_tolerance = (
            self._in_tolerance_since_s is not None
            and self._plate_s - self._in_tolerance_since_s >= settings.window_s - 1e-6
        )
        limited = self._on and abs(self._current_a(settings.setpoint_c - self._plate_c)) >= settings.limit_a
        return (
            self._faults
            | CURRENT_LIMIT * limited
            | HIGH_LIMIT * (self._plate_c > settings.high_c)
            | LOW_LIMIT * (self._plate_c < settings.low_c)
            | OUT_OF_TOLERANCE * (not in_tolerance)
            | OUTPUT_ON * self._on
        )

    def status_byte(self) -> int:
        """Return the status byte (``*STB?``): bit 2 for a queued error, bit 3 for a condition of the cooler."""
        faults = self.condition() & ~(OUT_OF_TOLERANCE | OUTPUT_ON)
        return 4 * bool(self._errors) | 8 * bool(faults)

    def _pop_events(self) -> int:
        events, self._events = self._events | self.condition(), 0
        return events

    def _measured_temperature(self) -> str:
        noise_k = 0.0 if self._rng is None else _SENSOR_K * float(self._rng.standard_normal())
        return "0.000" if self._faults & SENSOR_OPEN else f"{self._plate_c + noise_k:.3f}"

    def _resistance(self) -> str:
        kelvin = self._plate_c + 273.15
        kiloohm = 10.0 * math.exp(3950.0 * (1.0 / kelvin - 1.0 / 298.15))
        return "0.000" if self._faults & SENSOR_OPEN else f"{kiloohm:.3f}"

    def _measured_a(self) -> float:
        return self._current_a(self.settings.setpoint_c - self._plate_c)

    def _switch(self, on: bool) -> None:
        if on and self._faults:
            raise TecRefusal(402 if self._faults & SENSOR_OPEN else 403)
        if on and not self.settings.low_c <= self._plate_c <= self.settings.high_c:
            raise TecRefusal(407)
        if on != self._on:
            self._on, self._integral_a, self._in_tolerance_since_s = on, 0.0, None

    def _set_setpoint(self, value: float) -> None:
        if not self.settings.low_c <= value <= self.settings.high_c:
            raise TecRefusal(201)
        self.settings.setpoint_c, self._in_tolerance_since_s = round(value, 3), None

    def _set_tolerance(self, tolerance_k: float, window_s: float) -> None:
        self.settings.tolerance_k, self.settings.window_s = tolerance_k, window_s
        self._in_tolerance_since_s = None

    def _pop_errors(self, *, texts: bool) -> str:
        entries = [f'{code},"{_ERRORS[code]}"' if texts else f"{code}" for code in self._errors]
        self._errors.clear()
        return ",".join(entries) or "0"

    def _reset(self) -> None:
        self._switch(False)
        self.settings = _TecSettings()

    def _elapsed(self) -> str:
        seconds = self._clock.now() - self._started_s
        hours, minutes = int(seconds // 3600), int(seconds // 60) % 60
        return f"{hours // 24}:{hours % 24:02d}:{minutes:02d}:{seconds % 60:05.2f}"


_Action = Callable[[EmulatedArroyoTec, list[str]], str | None]


def _number(text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise TecRefusal(202) from None
    if not low <= value <= high:  # also rejects NaN
        raise TecRefusal(201)
    return value


def _query(read: Callable[[EmulatedArroyoTec], str]) -> _Action:
    def run(device: EmulatedArroyoTec, arguments: list[str]) -> str | None:
        if arguments:
            raise TecRefusal(126)
        return read(device)

    return run


def _command(action: Callable[..., None], *limits: tuple[float, float]) -> _Action:
    def run(device: EmulatedArroyoTec, arguments: list[str]) -> str | None:
        if len(arguments) != len(limits):
            raise TecRefusal(126)
        action(device, *(_number(text, *limit) for text, limit in zip(arguments, limits, strict=True)))
        return None

    return run


def _output(device: EmulatedArroyoTec, arguments: list[str]) -> str | None:
    words = {"0": False, "OFF": False, "1": True, "ON": True}
    if len(arguments) != 1:
        raise TecRefusal(126)
    if arguments[0].upper() not in words:
        raise TecRefusal(202)
    device._switch(words[arguments[0].upper()])
    return None


def _gain(device: EmulatedArroyoTec, arguments: list[str]) -> str | None:
    if len(arguments) != 1:
        raise TecRefusal(126)
    if arguments[0].upper() not in ("1", "3", "5", "10", "30", "50", "100", "300", "PID"):
        raise TecRefusal(202)
    device.settings.gain = arguments[0].upper()
    return None


def _stored(name: str, low: float, high: float, digits: int) -> tuple[_Action, _Action]:
    return (
        _query(lambda device: f"{getattr(device.settings, name):.{digits}f}"),
        _command(lambda device, value: setattr(device.settings, name, value), (low, high)),
    )


def _list(name: str, forms: Sequence[str], *limits: tuple[float, float]) -> tuple[_Action, _Action]:
    """Return query and command of a setting of several numbers; ``forms`` are the formats of the reply."""

    def write(device: EmulatedArroyoTec, *values: float) -> None:
        setattr(device.settings, name, values)

    return (
        _query(
            lambda device: ",".join(
                reply_format.format(value)
                for reply_format, value in zip(forms, getattr(device.settings, name), strict=True)
            )
        ),
        _command(write, *limits),
    )


def _mode(word: str) -> _Action:
    return _command(lambda device: setattr(device.settings, "mode", word))


_TABLE: tuple[tuple[str, _Action | None, _Action | None], ...] = (
    ("*IDN", _query(lambda device: device._identity), None),
    ("*CLS", None, _command(lambda device: device._errors.clear())),
    ("*RST", None, _command(EmulatedArroyoTec._reset)),
    ("*STB", _query(lambda device: str(device.status_byte())), None),
    ("*OPC", _query(lambda _: "1"), _command(lambda _: None)),
    ("ERR", _query(lambda device: device._pop_errors(texts=False)), None),
    ("ERRors", _query(lambda device: device._pop_errors(texts=False)), None),
    ("ERRSTR", _query(lambda device: device._pop_errors(texts=True)), None),
    ("TIME", _query(EmulatedArroyoTec._elapsed), None),
    ("BEEP", None, _command(lambda _device, _on: None, (0, 2))),
    (
        "TEC:T",
        _query(EmulatedArroyoTec._measured_temperature),
        _command(EmulatedArroyoTec._set_setpoint, (-200.0, 500.0)),
    ),
    ("TEC:R", _query(EmulatedArroyoTec._resistance), None),
    ("TEC:SET:T", _query(lambda device: f"{device.settings.setpoint_c:.3f}"), None),
    (
        "TEC:ITE",
        _query(lambda device: f"{device._measured_a():.3f}"),
        _command(lambda device, value: setattr(device.settings, "current_a", value), (-5.0, 5.0)),
    ),
    ("TEC:SET:ITE", _query(lambda device: f"{device.settings.current_a:.3f}"), None),
    ("TEC:V", _query(lambda device: f"{_OHM * device._measured_a():.3f}"), None),
    ("TEC:OUTput", _query(lambda device: str(int(device._on))), _output),
    (
        "TEC:TOLerance",
        _query(lambda device: f"{device.settings.tolerance_k:.2f},{device.settings.window_s:.1f}"),
        _command(EmulatedArroyoTec._set_tolerance, (0.01, 10.0), (0.1, 50.0)),
    ),
    ("TEC:LIMit:ITE", *_stored("limit_a", 0.05, 5.0, 2)),
    ("TEC:LIMit:THI", *_stored("high_c", -199.0, 250.0, 1)),
    ("TEC:LIMit:TLO", *_stored("low_c", -199.0, 250.0, 1)),
    ("TEC:GAIN", _query(lambda device: device.settings.gain), _gain),
    ("TEC:SENsor", *_stored("sensor", 0, 7, 0)),
    ("TEC:CONST", *_list("constants", ("{:.3f}",) * 3, *((-9.999, 9.999),) * 3)),
    ("TEC:PID", *_list("pid", ("{:.4f}",) * 3, *((0.0, 100.0),) * 3)),
    ("TEC:FAN", *_list("fan", ("{:.1f}", "{:.0f}", "{:.0f}"), (0.0, 12.0), (1, 3), (1, 240))),
    ("TEC:EVEnt", _query(lambda device: str(device._pop_events())), None),
    ("TEC:COND", _query(lambda device: str(device.condition())), None),
    ("TEC:MODE", _query(lambda device: device.settings.mode), None),
    ("TEC:MODE:T", None, _mode("T")),
    ("TEC:MODE:ITE", None, _mode("ITE")),
)
_COMMANDS: dict[tuple[tuple[str, ...], bool], _Action] = {
    (words, is_query): action
    for pattern, query, command in _TABLE
    for words in itertools.product(*(sorted(forms(word)) for word in pattern.split(":")))
    for is_query, action in ((True, query), (False, command))
    if action is not None
}
