"""Emulated Keysight N776xA variable attenuators, and the attenuators of a N7751A or N7752A.

Language: signal conditioning of the 8163A/B, 8164A/B, 8166A/B Programming Guide (pp. 182 and following, ``INPut`` and
``OUTPut``), of which the N77xx are a dialect; limits, slots 1, 3, 5, 7 of the channels, averaging and speed as the
class KeysightN776XX of a public test library has them. Attenuation that is set is that of the filter plus an offset;
insertion loss comes on top of it. The filter moves at a speed in dB/s, and ``*OPC?`` says 0 meanwhile.

Model choices: ``INP:ATT?`` tells where the filter is going, as queries of settings do (check); insertion loss 2.2 dB
and shutter isolation 100 dB (check); speed after ``*RST`` 1000 dB/s (check); power control moves the filter whenever
somebody looks; the N7751A and N7752A are their attenuators alone, and have no power monitor at their outputs (check).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lumion_hw.clock import Clock
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Form,
    Numeric,
    Profile,
    Reply,
    ScpiCommand,
    ScpiDevice,
    ScpiError,
    ScpiInstrument,
    SuffixRange,
    Value,
    action,
    event,
    flag_setting,
    number_setting,
    query,
    word_setting,
)
from lumion_hw.emulator.scpi import errors as scpi_errors
from lumion_hw.emulator.scpi.formats import FLOAT32_MAX, keysight_float32
from lumion_hw.emulator.scpi.keysight_slots import POWER_UNIT, own_modules, slot_commands
from lumion_hw.emulator.scpi.lexer import Token
from lumion_hw.emulator.scpi.units import LENGTH_M, POWER_W, RATIO_DB, TIME_S
from lumion_hw.quantities import dbm_from_w, w_from_dbm

INSERTION_LOSS_DB = 2.2
SHUTTER_DB = 100.0
SPEED_DB_PER_S = 1000.0
LARGEST_DB: Mapping[str, float] = {"N7766A": 35.0, "N7768A": 35.0}
"""Largest attenuation of multimode models (check); that of the others is 45 dB."""
WITHOUT_MONITOR = ("N7751A", "N7752A")
_SMALLEST_MOVE_DB = 0.003
_ZERO_S = 1.0
_STATE = ":OUTPut[n][:CHANnel[m]]"


@dataclass
class _AttenuatorSettings:
    """What ``*RST`` sets back for one channel."""

    offset_db: float = 0.0
    speed_db_per_s: float = SPEED_DB_PER_S
    wavelength_m: float = 1.55e-6
    open: bool = False
    open_at_power_on: bool = False
    in_watts: bool = False
    power_w: float = 1e-3
    power_offset_db: float = 0.0
    control: bool = False
    averaging_s: float = 0.1


@dataclass(frozen=True)
class _PowerLevel:
    """A power with its unit, or in that of its channel; the value is in watts."""

    in_watts: Callable[[Call], bool]
    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the power."""
        value = Numeric(suffixes=POWER_W).parse(token, call)
        if token.suffix or not isinstance(value, float) or self.in_watts(call):
            return value
        return w_from_dbm(min(value, 100.0))


class _AttenuatorChannel:
    """One filter and its shutter."""

    def __init__(self, clock: Clock, largest_db: float, insertion_loss_db: float) -> None:
        self._clock, self.largest_db, self.insertion_loss_db = clock, largest_db, insertion_loss_db
        self.settings = _AttenuatorSettings()
        self._from_db = self._to_db = 0.0
        self._begun_s = self._arrives_s = clock.now()

    @property
    def target_db(self) -> float:
        """Where the filter is or goes."""
        return self._to_db

    @property
    def filter_db(self) -> float:
        """Where the filter is."""
        left_s = self._arrives_s - self._clock.now()
        if left_s <= 0.0:
            return self._to_db
        gone = 1.0 - left_s / (self._arrives_s - self._begun_s)
        return self._from_db + gone * (self._to_db - self._from_db)

    def move(self, target_db: float) -> float:
        """Set out for an attenuation of the filter; return how long that takes."""
        self._from_db = self.filter_db
        self._to_db, self._begun_s = target_db, self._clock.now()
        duration_s = abs(target_db - self._from_db) / self.settings.speed_db_per_s
        self._arrives_s = self._begun_s + duration_s
        return duration_s

    @property
    def transmission(self) -> float:
        """Share of the light that passes."""
        shut_db = 0.0 if self.settings.open else SHUTTER_DB
        return float(10.0 ** (-(self.insertion_loss_db + self.filter_db + shut_db) / 10.0))


class EmulatedN776xA(ScpiDevice):
    """The attenuator (:class:`~lumion_hw.emulator.wires.device.EmulatedDevice`).

    Args:
        name: Device name of the bench file.
        clock: The injected clock.
        model: Model in ``*IDN?``.
        serial: Serial number in ``*IDN?``.
        n_channels: Attenuators, numbered from 1; in its language they are slots 1, 3, 5, 7.
        passing_w: Returns the power before and behind a channel in watts; nothing is there if not given.
        changed: Called when a channel begins to pass more or less light.
        insertion_loss_db: What every channel takes at its least.
        firmware: Last field of ``*IDN?``.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        model: str = "N7764A",
        serial: str = "MY00000001",
        n_channels: int = 4,
        passing_w: Callable[[int], tuple[float, float]] = lambda _: (0.0, 0.0),
        changed: Callable[[], None] = lambda: None,
        insertion_loss_db: float = INSERTION_LOSS_DB,
        firmware: str = "1.50",
    ) -> None:
        super().__init__(name, clock)
        self._passing_w, self._changed = passing_w, changed
        largest_db = LARGEST_DB.get(model, 45.0)
        self._channels = {
            2 * k + 1: _AttenuatorChannel(clock, largest_db, insertion_loss_db) for k in range(n_channels)
        }
        self._monitored = model not in WITHOUT_MONITOR
        profile = Profile(f"Agilent Technologies,{model},{serial},{firmware}", tells_busy=True)
        self._scpi = ScpiInstrument(name, clock, profile, self._reset, self._follow)
        slots = {"n": SuffixRange(1, 2 * n_channels), "m": SuffixRange(1, 1)}
        self._modules = own_modules(profile.identity, self._channels)
        self._scpi.declare(self._commands(), slots)

    def transmission(self, channel: int) -> float:
        """Return the share of the light that a channel passes; ``channel`` counts from 1."""
        return self._channels[2 * channel - 1].transmission if self.powered else float(10.0 ** (-SHUTTER_DB / 10.0))

    def _lose_power(self) -> None:
        super()._lose_power()
        self._changed()

    def _regain_power(self) -> None:
        kept = {slot: each.settings.open_at_power_on for slot, each in self._channels.items()}
        super()._regain_power()
        for slot, opens in kept.items():
            self._channels[slot].settings.open_at_power_on = self._channels[slot].settings.open = opens
        self._changed()

    def _reset(self) -> None:
        for channel in self._channels.values():
            channel.settings = _AttenuatorSettings(open_at_power_on=channel.settings.open_at_power_on)
            channel.move(0.0)
        self._changed()

    def _of(self, call: Call) -> _AttenuatorChannel:
        channel = self._channels.get(call.suffix["n"])
        if channel is None:
            raise ScpiError(scpi_errors.SUFFIX_OUT_OF_RANGE)
        return channel

    # -- commands

    def _commands(self) -> Iterable[ScpiCommand]:
        yield from slot_commands(self._modules, self._channels)
        yield from self._input_commands()
        yield from self._output_commands()
        if self._monitored:
            yield from self._power_commands()

    def _attribute(self, pattern: str, limits: Numeric, name: str) -> ScpiCommand:
        def write(call: Call, value: float) -> None:
            setattr(self._of(call).settings, name, value)

        return number_setting(
            pattern, limits, lambda call: float(getattr(self._of(call).settings, name)), write, keysight_float32
        )

    def _flag(self, pattern: str, name: str) -> ScpiCommand:
        def write(call: Call, on: bool) -> None:
            setattr(self._of(call).settings, name, on)
            self._changed()

        return flag_setting(pattern, Boolean(), lambda call: bool(getattr(self._of(call).settings, name)), write, str)

    def _input_commands(self) -> Iterable[ScpiCommand]:
        least = lambda call: self._of(call).settings.offset_db  # noqa: E731 - two limits that follow the offset
        most = lambda call: self._of(call).settings.offset_db + self._of(call).largest_db  # noqa: E731
        root = ":INPut[n][:CHANnel[m]]"
        yield number_setting(
            f"{root}:ATTenuation",
            Numeric(least, most, least, RATIO_DB),
            lambda call: self._of(call).target_db + self._of(call).settings.offset_db,
            self._attenuate,
            keysight_float32,
        )
        yield self._attribute(f"{root}:ATTenuation:SPEed", Numeric(0.1, 1000.0, SPEED_DB_PER_S), "speed_db_per_s")
        yield self._attribute(f"{root}:OFFSet", Numeric(-200.0, 200.0, 0.0, RATIO_DB), "offset_db")
        yield event(f"{root}:OFFSet:DISPlay", self._offset_from_display)
        yield self._attribute(f"{root}:WAVelength", Numeric(1.26e-6, 1.64e-6, 1.55e-6, LENGTH_M), "wavelength_m")

    def _output_commands(self) -> Iterable[ScpiCommand]:
        yield self._flag(f"{_STATE}[:STATe]", "open")
        yield self._flag(f"{_STATE}[:STATe]:APOWeron", "open_at_power_on")

    def _power_commands(self) -> Iterable[ScpiCommand]:
        yield ScpiCommand(
            f"{_STATE}:POWer",
            Form(self._hold_power, (_PowerLevel(lambda call: self._of(call).settings.in_watts),)),
            Form(lambda call: keysight_float32(self._set_power(call))),
        )
        yield word_setting(
            f"{_STATE}:POWer:UNit", POWER_UNIT, self._unit, self._set_unit, lambda word: f"+{int(word == 'W')}"
        )
        yield self._attribute(f"{_STATE}:POWer:OFFSet", Numeric(-60.0, 60.0, 0.0, RATIO_DB), "power_offset_db")
        yield self._flag(f"{_STATE}:POWer:CONTRol", "control")
        yield self._attribute(f"{_STATE}:ATIMe", Numeric(0.002, 1.0, 0.1, TIME_S), "averaging_s")
        yield action(f"{_STATE}:CORRection:COLLect:ZERO", self._zero)
        yield action(":OUTPut[n][:CHANnel[m]]:CORRection:COLLect:ZERO:ALL", self._zero)
        for verb in ("READ", "FETCh"):
            yield query(f":{verb}[n][:CHANnel[m]]:POWer", self._read_power, marker=keysight_float32(FLOAT32_MAX))

    def _attenuate(self, call: Call, value_db: float) -> None:
        channel = self._of(call)
        channel.settings.control = False  # the filter obeys one of the two
        self._move(channel, value_db - channel.settings.offset_db)

    def _move(self, channel: _AttenuatorChannel, filter_db: float) -> None:
        self._changed()
        self._scpi.state.begin(channel.move(filter_db), lambda: None)

    def _offset_from_display(self, call: Call) -> Reply:
        channel = self._of(call)
        channel.settings.offset_db = -channel.target_db
        return None

    # -- power

    def _unit(self, call: Call) -> str:
        return "W" if self._of(call).settings.in_watts else "DBM"

    def _set_unit(self, call: Call, word: str) -> None:
        self._of(call).settings.in_watts = word == "W"

    def _shown(self, channel: _AttenuatorChannel, power_w: float) -> float:
        shown_w = power_w * float(10.0 ** (channel.settings.power_offset_db / 10.0))
        if channel.settings.in_watts:
            return shown_w
        if shown_w <= 0.0:
            raise ScpiError(scpi_errors.MATH_ERROR)
        return dbm_from_w(shown_w)

    def _set_power(self, call: Call) -> float:
        settings = self._of(call).settings
        return settings.power_w if settings.in_watts else dbm_from_w(settings.power_w)

    def _hold_power(self, call: Call) -> Reply:
        settings, power_w = self._of(call).settings, call.number()
        if not w_from_dbm(-60.0) <= power_w <= w_from_dbm(20.0):
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        settings.power_w, settings.control = power_w, True
        self._follow()
        return None

    def _read_power(self, call: Call) -> Reply:
        channel = self._of(call)
        return keysight_float32(self._shown(channel, self._passing_w((call.suffix["n"] + 1) // 2)[1]))

    def _zero(self) -> None:
        self._scpi.state.begin(_ZERO_S, lambda: None)

    def _follow(self) -> None:
        """Let power control move the filters."""
        for slot, channel in self._channels.items():
            settings = channel.settings
            if not settings.control:
                continue
            before_w, _ = self._passing_w((slot + 1) // 2)
            if before_w <= 0.0:
                continue
            wanted_w = settings.power_w / 10.0 ** (settings.power_offset_db / 10.0)
            wanted_db = 10.0 * math.log10(before_w / wanted_w) - channel.insertion_loss_db
            target_db = min(max(wanted_db, 0.0), channel.largest_db)
            if abs(target_db - channel.target_db) > _SMALLEST_MOVE_DB:
                self._move(channel, target_db)
