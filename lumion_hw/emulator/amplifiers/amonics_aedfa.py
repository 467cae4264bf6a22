"""Emulated Amonics AEDFA benchtop erbium-doped fibre amplifier on a serial line (19200 baud, CR LF).

Commands, replies, units (mA and mW) and channel states follow two public drivers and their findings about real units:
the AmonicsEDFA of keckogeco and the driver from which it was ported (tested on an AEDFA-PA-30-B-FA). Unsupported
commands, and queries of the settings of an inactive mode, get no reply. A channel state is 0 off, 1 on, 2 busy, 4
locked.

Unverified choices: a set point beyond the limits, a change of mode during emission, and an activation of a channel that
is off are silently ignored. The amplifier is busy for 0.5 s after switching on. Set points have steps of 0.1 and start
at 0.

At the input power P_in the gain is G = 1 / (1/G0 + (P_in + P_0)/P_sat). G0 is the weak-signal gain of 30 dB, P_sat the
saturation power, which the pump current sets, and P_0 the C-band noise referred to the input. The noise figure is 5 dB,
and without pump the fibre absorbs 40 dB (all assumed).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from lumion_hw.clock import Clock
from lumion_hw.emulator.optics.inline_devices import AMPLIFIED_BAND_HZ, Amplification
from lumion_hw.emulator.wires.text_device import TextDevice
from lumion_hw.quantities import w_from_dbm

NOISE_FIGURE_DB = 5.0
SMALL_SIGNAL_GAIN = 1e3
_UNPUMPED = Amplification(1e-4, -100.0)
_MAX_MA = 1000.0
_THRESHOLD_MA = 50.0
_BUSY_S = 0.5
_BAUD, _REPLY_S = 19_200, 0.005
_OFF, _ON, _BUSY, _LOCKED = "0", "1", "2", "4"


class EmulatedAedfa(TextDevice):
    """Emulated Amonics AEDFA fibre amplifier.

    Args:
        model: Model name, whose first number is the largest output power in dBm.
        passing_w: Returns the power before and after the amplifier in watts; no light by default.
        silent: Prefixes (in capitals) of the commands that this unit does not support.
    """

    description = "the amplifier"

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        model: str = "AEDFA-23-B-FA",
        serial: str = "00000001",
        passing_w: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0),
        changed: Callable[[], None] = lambda: None,
        silent: Collection[str] = (),
    ) -> None:
        super().__init__(name, clock, _BAUD, _REPLY_S)
        self._model, self._serial = model, serial
        self._passing_w, self._changed, self._silent = passing_w, changed, tuple(silent)
        match = re.search(r"\d+(?:\.\d+)?", model)
        self._max_mw = 1e3 * w_from_dbm(min(float(match[0]), 37.0) if match else 23.0)
        self._mode = "ACC"
        self._set_points = {"ACC": 0.0, "APC": 0.0}
        self._channel_on = self._active = False
        self._interlocked = False
        self._ready_s = clock.now()

    def amplification(self, input_w: float) -> Amplification:
        """Return the gain and the noise figure at a total input power in watts."""
        if not self._emits:
            return _UNPUMPED
        noise_w = Amplification(1.0, NOISE_FIGURE_DB).noise_w_per_hz * AMPLIFIED_BAND_HZ
        pump_fraction = (
            1.0 if self._mode == "APC" else (self._set_points["ACC"] - _THRESHOLD_MA) / (_MAX_MA - _THRESHOLD_MA)
        )
        saturated_w = 1e-3 * self._max_mw * max(pump_fraction, 0.0)
        if saturated_w <= 0.0:
            return _UNPUMPED
        gain = 1.0 / (1.0 / SMALL_SIGNAL_GAIN + (input_w + noise_w) / saturated_w)
        if self._mode == "APC":
            gain = min(gain, 1e-3 * self._set_points["APC"] / (input_w + noise_w))
        return Amplification(gain, NOISE_FIGURE_DB)

    def set_interlock(self, opened: bool) -> None:
        """Open or close the interlock. Opening switches the output off; closing leaves it off."""
        self.advance()
        self._interlocked = opened
        if opened:
            self._switch(False)

    @property
    def _emits(self) -> bool:
        return self.powered and self._active and self._channel_on and self._clock.now() >= self._ready_s - 1e-9

    def _lose_power(self) -> None:
        super()._lose_power()
        self._switch(False)
        self._channel_on = False

    def _switch(self, active: bool) -> None:
        self._changed()
        if active and not self._active:
            self._ready_s = self.command_s + _BUSY_S
        self._active = active

    def _carry_out(self, command: str) -> tuple[str, float]:
        if command.upper().startswith(self._silent):
            return "", 0.0
        for pattern, action in _COMMANDS:
            match = pattern.fullmatch(command.upper())
            if match is not None:
                text = action(self, *match.groups())
                return ("" if text is None else f"{text}\r\n"), 0.0
        return "", 0.0

    # -- actions of commands

    def _set_mode(self, mode: str) -> None:
        if not self._active:
            self._mode = mode

    def _set_point(self, mode: str) -> str | None:
        return f"{self._set_points[mode]:.1f}" if mode == self._mode else None

    def _limit(self, mode: str) -> float:
        return _MAX_MA if mode == "ACC" else self._max_mw

    def _set_set_point(self, mode: str, text: str) -> None:
        if mode == self._mode and float(text) <= self._limit(mode) + 1e-9:
            self._changed()
            self._set_points[mode] = round(float(text), 1)

    def _channel_state(self, mode: str) -> str | None:
        if mode != self._mode:
            return None
        if self._interlocked:
            return _LOCKED
        if self._channel_on and self._active and not self._emits:
            return _BUSY
        return _ON if self._channel_on else _OFF

    def _set_channel(self, mode: str, digit: str) -> None:
        if mode == self._mode and not (self._interlocked and digit == "1"):
            self._channel_on = digit == "1"
            if not self._channel_on:
                self._switch(False)

    def _activate(self, digit: str) -> None:
        if digit == "0" or (self._channel_on and not self._interlocked):
            self._switch(digit == "1")

    def _current_ma(self) -> float:
        if not self._emits:
            return 0.0
        if self._mode == "ACC":
            return self._set_points["ACC"]
        return _THRESHOLD_MA + (_MAX_MA - _THRESHOLD_MA) * self._set_points["APC"] / self._max_mw

    def _power_mw(self, port: str) -> str:
        before_w, after_w = self._passing_w()
        return _reading(round(1e3 * (before_w if port == "IN" else after_w), 4))


def _reading(value: float) -> str:
    return f"{value:.6e}"


_COMMANDS: tuple[tuple[re.Pattern[str], Callable[..., str | None]], ...] = tuple(
    (re.compile(pattern, re.ASCII), action)
    for pattern, action in (
        (r":CAL:SYS:MODEL\?", lambda device: device._model),
        (r":CAL:SYS:SERIAL\?", lambda device: device._serial),
        (r":DRIV:INTERLOCK\?", lambda device: str(int(device._interlocked))),
        (r":SENS:TEMP:BOX\?", lambda device: _reading(35.5 if device._active else 28.0)),
        (r":READ:MODE:NAMES\?", lambda _: "ACC APC"),
        (r":READ:CH:(?:CUR|POW:(?:IN|OUT|PD)|TEMP:BOX)\?", lambda _: "1"),
        (r":READ:CH:(?:TEMP:(?:FC|TEC)|VOLT:PS)\?", lambda _: "0"),
        (r":MODE:SW:CH1\?", lambda device: device._mode),
        (r":MODE:SW:CH1 +(ACC|APC)", EmulatedAedfa._set_mode),
        (r":DRIV:(ACC|APC):CUR:CH1\?", EmulatedAedfa._set_point),
        (r":DRIV:(ACC|APC):CUR:CH1 +(\d{1,6}(?:\.\d{0,6})?)", EmulatedAedfa._set_set_point),
        (r":DRIV:(ACC|APC):STAT:CH1\?", EmulatedAedfa._channel_state),
        (r":DRIV:(ACC|APC):STAT:CH1 +([01])", EmulatedAedfa._set_channel),
        (r":DRIV:MCTRL\?", lambda device: str(int(device._active))),
        (r":DRIV:MCTRL +([01])", EmulatedAedfa._activate),
        (r":READ:CH:DRIV:(?:ACC|APC)\?", lambda _: "1"),
        (r":READ:DRIV:STEP:(?:ACC|APC):CH1\?", lambda _: "0.1"),
        (r":SENS:CUR:CH1\?", lambda device: _reading(device._current_ma())),
        (r":READ:DRIV:MAX:(ACC|APC):CH1\?", lambda device, mode: f"{device._limit(mode):.1f}"),
        (r":READ:DRIV:MIN:(ACC|APC):CH1\?", lambda _device, _mode: "0.0"),
        (r":READ:DRIV:UNIT:(ACC|APC):CH1\?", lambda _, mode: "mA" if mode == "ACC" else "mW"),
        (r":SENS:POW:(OUT|IN|PD):CH1\?", EmulatedAedfa._power_mw),
    )
)
