"""Amonics AEDFA erbium-doped fibre amplifiers: SCPI-like lines at 19200 baud, without ``*IDN?`` or error queue.

Chosen among amplifiers because its command set is quoted from the programming manual by several public clients, written
by different hands: ``amonics_edfa`` (words of replies, line ends, at least 50 ms between commands, states 0 off, 1 on,
2 busy, 4 lock; ``:READ:CH:...``, how many pumps and monitors of each kind there are, asked at opening), KeckLFC's
``amonics_edfa`` (units of set points, units that answer no mode query or have no input monitor, switches that are at
times ignored the first time), and a third class ``AmonicsEDFA``. A unit does not answer a question that it does not
know: what stays silent at opening is taken as not there. A command has no reply, so what it did is seen by reading
back. The modes are ACC (current), APC (power) and AGC (gain, check).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, Unpack

from lumion_hw.clock import Clock, deadline_after
from lumion_hw.drivers.life_cycle import IdentifiedDriver, close_on_error
from lumion_hw.drivers.ranges import check_range
from lumion_hw.drivers.scpi import DeviceNames, ExpectedIdentity, Identity, StrictScpi
from lumion_hw.errors import (
    DeviceError,
    DeviceTimeoutError,
    IdentityError,
    LinkTimeout,
    NotSupportedError,
    VerifyError,
)
from lumion_hw.interfaces import AmplifierLimits, AmplifierMode, AmplifierSettings, AmplifierState
from lumion_hw.links.base import Link
from lumion_hw.quantities import dbm_from_w, w_from_dbm
from lumion_hw.sessions.scpi import ScpiSession

ValueT = TypeVar("ValueT")

_log = logging.getLogger(__name__)

GAP_S = 0.05
"""Least time between two commands (manual, "Important Notes" 4, as quoted by ``amonics_edfa``)."""
WORDS = {"ACC": AmplifierMode.CURRENT, "APC": AmplifierMode.POWER, "AGC": AmplifierMode.GAIN}
"""Names of what it holds."""
_MILLI = {"MA": 1.0, "A": 1e3, "MW": 1.0, "W": 1e3}
"""Units of set points, in mA and mW."""
_ON, _BUSY, _LOCKED = 1, 2, 4
MONITORS = {
    "input power": (":READ:CH:POW:IN?", ":SENS:POW:IN:CH1?"),
    "output power": (":READ:CH:POW:OUT?", ":SENS:POW:OUT:CH1?"),
    "pump current": (":READ:CH:CUR?", ":SENS:CUR:CH1?"),
    "temperature": (":READ:CH:TEMP:BOX?", ":SENS:TEMP:BOX?"),
}
"""How many there are, and what the first one measures: mW, mW, mA and degrees Celsius."""
_SWITCH_S = 5.0
_AGAIN_S = 1.0
_POLL_S = 0.1


@dataclass(frozen=True)
class _HeldQuantity:
    """How one quantity is held: the unit of its set point, and the limits in it."""

    unit: str
    low: float
    high: float
    step: float

    def from_wire(self, value: float) -> float:
        """Return a set point in mA, dBm or dB."""
        if self.unit in ("DBM", "DB"):
            return value
        milli = value * _MILLI[self.unit]
        return dbm_from_w(1e-3 * milli) if self.unit.endswith("W") else milli

    def to_wire(self, value: float) -> float:
        """Return a value in mA, dBm or dB as the amplifier takes it."""
        if self.unit in ("DBM", "DB"):
            return value
        return (1e3 * w_from_dbm(value) if self.unit.endswith("W") else value) / _MILLI[self.unit]

    @property
    def limits(self) -> tuple[float, float]:
        """Limits in mA, dBm or dB; a power of zero has no level, and the smallest step stands in for it."""
        low = max(self.low, self.step) if self.unit.endswith("W") else self.low
        return self.from_wire(low), self.from_wire(self.high)


class AmonicsAedfa(IdentifiedDriver[Identity, ScpiSession]):
    """Driver of one amplifier; implements ``OpticalAmplifier``. Thread-safe; every set is read back.

    A set point is that of its first pump; the others, where there are any, keep theirs, and are switched along with it.

    Args:
        link: The serial link, 19200 baud.
        clock: The link's clock.
        **names: Device name, and the model and serial number that must be found; any if omitted.
    """

    kind = "amplifier"

    def __init__(self, link: Link, clock: Clock, **names: Unpack[DeviceNames]) -> None:
        self._device = names["device"]
        self._session = ScpiSession(
            link,
            clock,
            device=self._device,
            terminator=b"\r\n",
            identity_query=":CAL:SYS:MODEL?",
            gap_s=GAP_S,
        )
        self._scpi = StrictScpi(self._session)
        self._clock = clock
        self._expected = ExpectedIdentity(("AMONICS",), (), names.get("expected_model"), names.get("expected_serial"))
        self._held: dict[AmplifierMode, _HeldQuantity] = {}
        self._n_pumps = 1
        self._monitors: set[str] = set()
        self._has_interlock = True

    def open(self) -> None:
        """Open the link, check the identity, and read what the amplifier can hold and measure.

        What it does not answer to counts as not there, and costs a time-out.

        Raises:
            ConnectError: The link cannot be opened.
            DeviceError: It tells nothing that it can hold.
            IdentityError: Another instrument answers.
            LinkTimeout: Nothing answers.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identity = self._checked_identity(self._session.open())
            words = self._find_words()
            count = self._unless_silent(partial(self._scpi.setting, f":READ:CH:DRIV:{words[0]}?"))
            self._n_pumps = 1 if count is None else round(count)
            found = {word: self._unless_silent(partial(self._read_held, word)) for word in words}
            self._held = {WORDS[word]: held for word, held in found.items() if held is not None}
            if not self._held:
                raise self._refused("open", "it tells no limits of what it holds", "Is it an AEDFA with a serial port?")
            counts = {
                name: self._unless_silent(partial(self._scpi.setting, each)) for name, (each, _) in MONITORS.items()
            }
            self._monitors = {name for name, count in counts.items() if count}
            self._has_interlock = self._unless_silent(partial(self._scpi.setting, ":DRIV:INTERLOCK?")) is not None

    def close(self) -> None:
        """Release the link; idempotent, never raises. The output is left as it is."""
        self._identity = None
        self._session.close()

    def hold_current_ma(self, current_ma: float) -> None:
        """Hold this current of the first pump. Raises as :meth:`OpticalAmplifier.hold_current_ma`."""
        self._hold(AmplifierMode.CURRENT, "pump current", current_ma, "mA")

    def hold_power_dbm(self, power_dbm: float) -> None:
        """Hold this output power. Raises as :meth:`OpticalAmplifier.hold_current_ma`."""
        self._hold(AmplifierMode.POWER, "output power", power_dbm, "dBm")

    def hold_gain_db(self, gain_db: float) -> None:
        """Hold this gain. Raises as :meth:`OpticalAmplifier.hold_current_ma`."""
        self._hold(AmplifierMode.GAIN, "gain", gain_db, "dB")

    def enable(self) -> None:
        """Switch pumps and output on. Raises as :meth:`OpticalAmplifier.enable`."""
        self._check_open()
        if self._interlocked():
            raise self._refused("enable", "its interlock is open", "Close it, and unlock at the panel.")
        word = self._word()
        for pump in range(1, self._n_pumps + 1):
            self._switch(f":DRIV:{word}:STAT:CH{pump}", on=True)
        self._switch(":DRIV:MCTRL", on=True)

    def disable(self) -> None:
        """Switch the output off, and verify it."""
        self._check_open()
        self._switch(":DRIV:MCTRL", on=False)

    def wait_ready(self, timeout_s: float) -> AmplifierState:
        """Wait until it emits and nothing is pending. Raises as :meth:`OpticalAmplifier.wait_ready`."""
        deadline = deadline_after(self._clock, timeout_s)
        while not (state := self.state()).ready:
            if state.flags or not state.emitting:
                raise self._refused(
                    "wait_ready", ", ".join(state.flags) or "the pump is off", "Look at its panel, then call enable()."
                )
            if self._clock.now() >= deadline:
                raise self._session.error(
                    DeviceTimeoutError,
                    f"wait_ready: the amplifier answers, but is busy after {timeout_s:g} s",
                    command="wait_ready",
                    hint="Look at its panel.",
                )
            self._clock.sleep(min(_POLL_S, max(deadline - self._clock.now(), 1e-3)))
        return state

    def state(self) -> AmplifierState:
        """Ask the amplifier what it does."""
        self._check_open()
        with self._session.transaction():
            word = self._word()
            master = self._state_of(":DRIV:MCTRL")
            pumps = [self._state_of(f":DRIV:{word}:STAT:CH{pump}") for pump in range(1, self._n_pumps + 1)]
            flags = ["its interlock is open"] if self._interlocked() else []
            flags += [f"pump {number} is locked" for number, pump in enumerate(pumps, 1) if pump & _LOCKED]
            return AmplifierState(
                emitting=master != 0 and any(pumps),
                ready=not flags and master == _ON and all(pump == _ON for pump in pumps),
                input_power_dbm=_level_dbm(self._monitor("input power")),
                output_power_dbm=_level_dbm(self._monitor("output power")),
                pump_current_ma=self._monitor("pump current"),
                temperature_c=self._monitor("temperature"),
                flags=tuple(flags),
                timestamp_s=self._clock.now(),
            )

    def settings(self) -> AmplifierSettings:
        """Ask for the settings in force."""
        self._check_open()
        with self._session.transaction():
            word = self._word()
            mode = WORDS[word]
            value = self._quantity(word).from_wire(self._scpi.setting(f":DRIV:{word}:CUR:CH1?"))
            return AmplifierSettings(
                mode=mode,
                current_ma=value if mode is AmplifierMode.CURRENT else None,
                power_dbm=value if mode is AmplifierMode.POWER else None,
                gain_db=value if mode is AmplifierMode.GAIN else None,
                enabled=self._state_of(":DRIV:MCTRL") != 0,
            )

    def limits(self) -> AmplifierLimits:
        """Return the limits, as the amplifier stated them when it was opened."""
        self._check_open()
        held = {mode: each.limits for mode, each in self._held.items()}
        return AmplifierLimits(*(held.get(mode) for mode in AmplifierMode))

    # -- in common

    def _find_words(self) -> list[str]:
        """Return the names of what it may hold: all that are known, if it does not say."""
        query = ":READ:MODE:NAMES?"
        names = self._unless_silent(partial(self._session.query, query))
        if names is None:
            return list(WORDS)
        words = [word for word in names.replace(",", " ").upper().split() if word in WORDS]
        if not words:
            raise self._scpi.wrong_shape(query, names, f"some of {', '.join(WORDS)}")
        return words

    def _unless_silent(self, ask: Callable[[], ValueT]) -> ValueT | None:
        """Return an answer, ``None`` if there is none in time."""
        try:
            return ask()
        except LinkTimeout as error:
            _log.info("taken as not there: %s", error)
            return None

    def _hold(self, mode: AmplifierMode, label: str, value: float, unit: str) -> None:
        self._check_open()
        if mode not in self._held:
            there = " and ".join(each.value for each in self._held)
            raise self._session.error(
                NotSupportedError, f"this amplifier holds no {mode.value}", hint=f"It holds {there}."
            )
        word = next(word for word, known in WORDS.items() if known is mode)
        with self._session.transaction():
            held = self._quantity(word)
            check_range(label, value, held.limits, unit, self._session)
            before = self._word()
            if before != word:
                if self._state_of(":DRIV:MCTRL"):
                    why = f"it holds {WORDS[before].value} and emits"
                    raise self._refused(f"hold {mode.value}", why, "Call disable() before another mode.")
                self._session.write(f":MODE:SW:CH1 {word}")
                self._verified("mode", word, self._word)
            # To the amplifier's own step first, or its rounding would show up as a refusal at reading back.
            step = held.step
            wanted = min(max(round(held.to_wire(value) / step) * step, held.low), held.high)
            self._session.write(f":DRIV:{word}:CUR:CH1 {wanted:.6g}")
            found = self._scpi.setting(f":DRIV:{word}:CUR:CH1?")
            self._scpi.verify(f"{label} as {held.unit}", wanted, found, 0.51 * step + 1e-5 * abs(wanted))
            if (unit_now := self._unit(word)) != held.unit:
                raise self._session.error(
                    VerifyError,
                    f"unit of the {label}",
                    wrote=held.unit,
                    read=unit_now,
                    hint="Somebody else changed it meanwhile. Set the value again.",
                )

    def _switch(self, header: str, *, on: bool) -> None:
        """Switch something and wait until it says so; a command that it ignores is sent again."""
        deadline = again_s = self._clock.now()
        deadline += _SWITCH_S
        while (found := self._state_of(header)) != int(on):
            if self._clock.now() >= deadline:
                raise self._session.error(
                    VerifyError,
                    header,
                    wrote=int(on),
                    read=found,
                    hint="Look at the amplifier's panel for an alarm or its interlock.",
                )
            if self._clock.now() >= again_s and not found & _BUSY:
                self._session.write(f"{header} {int(on)}")
                again_s = self._clock.now() + _AGAIN_S
            self._clock.sleep(_POLL_S)

    def _verified(self, label: str, wrote: str, read: Callable[[], str]) -> None:
        found = read()
        if found != wrote:
            raise self._session.error(VerifyError, label, wrote=wrote, read=found)

    def _word(self) -> str:
        """Return the name of what is held; some units that hold one thing only do not answer that question."""
        if len(self._held) == 1:
            (only,) = self._held
            return next(word for word, mode in WORDS.items() if mode is only)
        return self._scpi.read_keyword(":MODE:SW:CH1?", [word for word, mode in WORDS.items() if mode in self._held])

    def _quantity(self, word: str) -> _HeldQuantity:
        """Return how a quantity is held; its unit is read each time, for somebody at the panel may have changed it."""
        mode = WORDS[word]
        if self._held[mode].unit != self._unit(word):
            self._held[mode] = self._read_held(word)
        return self._held[mode]

    def _unit(self, word: str) -> str:
        return self._scpi.read_keyword(f":READ:DRIV:UNIT:{word}:CH1?", (*_MILLI, "DBM", "DB"))

    def _read_held(self, word: str) -> _HeldQuantity:
        unit = self._unit(word)
        limits = (self._scpi.setting(f":READ:DRIV:{label}:{word}:CH1?") for label in ("MIN", "MAX", "STEP"))
        return _HeldQuantity(unit, *limits)

    def _state_of(self, header: str) -> int:
        value = self._scpi.setting(f"{header}?")
        if value not in (0, _ON, _BUSY, _LOCKED):
            raise self._scpi.wrong_shape(f"{header}?", f"{value:g}", "0, 1, 2 or 4")
        return int(value)

    def _interlocked(self) -> bool:
        return self._has_interlock and self._scpi.setting(":DRIV:INTERLOCK?") != 0

    def _monitor(self, name: str) -> float | None:
        """Return what a monitor reads, ``None`` without it."""
        return self._scpi.setting(MONITORS[name][1]) if name in self._monitors else None

    def _checked_identity(self, model: str) -> Identity:
        serial = self._session.query(":CAL:SYS:SERIAL?")
        found = Identity("Amonics", model.strip(), serial.strip(), "")
        wanted = self._expected
        if model.upper().startswith("AEDFA") and wanted.matches(found):
            return found
        self._session.forget_identity()
        raise self._session.error(
            IdentityError,
            f"expected {wanted.model or 'an Amonics AEDFA'}, serial {wanted.serial or 'any'}; "
            f"found {model!r}, serial {serial!r}",
            hint="Check the address in the bench file, or which instrument is plugged in there.",
        )

    def _refused(self, command: str, why: str, hint: str) -> DeviceError:
        return self._session.error(DeviceError, f"{command}: {why}", command=command, hint=hint)


def _level_dbm(power_mw: float | None) -> float | None:
    """Return a power in dBm, ``None`` in the dark or without a monitor."""
    return dbm_from_w(1e-3 * power_mw) if power_mw is not None and power_mw > 0.0 else None
