"""The commands of Santec TSL lasers, as data (instrument facts, section 8)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Command,
    Form,
    LimitName,
    Numeric,
    Reply,
    Value,
    event,
    flag_setting,
    number_setting,
    query,
)
from lumion_hw.emulator.scpi.formats import keysight_float
from lumion_hw.emulator.scpi.lexer import Kind, Token
from lumion_hw.emulator.scpi.units import FREQUENCY_HZ, LENGTH_NM, POWER_DBM, POWER_W, TIME_S, Suffixes
from lumion_hw.quantities import SPEED_OF_LIGHT_M_PER_S, dbm_from_w, w_from_dbm

if TYPE_CHECKING:
    from lumion_hw.emulator.santec_tsl import SantecTsl

LEGACY, SCPI = 0, 1
"""Numbers of the command sets."""
NOT_A_NUMBER = 9.91e37
_C_NM_THZ = SPEED_OF_LIGHT_M_PER_S * 1e-3
"""Speed of light in nm THz."""
_THZ: Suffixes = {name: power - 12 for name, power in FREQUENCY_HZ.items() if isinstance(power, int)}
_SWEEP = ":WAVelength:SWEep"
_DIGIT = "{:d}".format


@dataclass(frozen=True)
class InForce:
    """A number whose bare form is in the unit of the command set in force: nm and THz, or m and Hz.

    Attributes:
        legacy: Limits and suffixes in the unit of the Legacy set, which is also that of the value.
        per_legacy: One unit of the Legacy set in that of the SCPI set, as a power of ten.
        code: Gives the command set in force.
        optional: May be left out.
    """

    legacy: Numeric
    per_legacy: int
    code: Callable[[], int]
    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the value in the unit of the Legacy set."""
        if token.kind is Kind.NUMBER and not token.suffix and self.code() == SCPI:
            token = dataclasses.replace(token, exponent=token.exponent - self.per_legacy)
        return self.legacy.parse(token, call)

    def reply(self, value: float) -> str:
        """Return a value of the legacy unit in the form of the set in force."""
        return keysight_float(value * 10.0**self.per_legacy) if self.code() == SCPI else f"{value:+.6f}"


@dataclass(frozen=True)
class Level:
    """A power whose bare form is in the unit set; its value is in dBm.

    Attributes:
        tsl: The laser.
        optional: May be left out.
    """

    tsl: SantecTsl
    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the power in dBm."""
        if token.kind is Kind.NUMBER and not token.suffix and self.tsl.settings.in_mw:
            token = dataclasses.replace(token, suffix="MW")
        if token.suffix in POWER_W and token.suffix not in POWER_DBM:
            low, high = (w_from_dbm(limit) for limit in self.tsl.profile.power_dbm)
            return dbm_from_w(float(Numeric(low * (1 - 1e-9), high * (1 + 1e-9), None, POWER_W).parse(token, call)))
        return self.in_dbm().parse(token, call)

    def in_dbm(self) -> Numeric:
        """Return the same in dBm, with its limits."""
        low, high = self.tsl.profile.power_dbm
        return Numeric(low, high, 0.0, POWER_DBM)


def _number(pattern: str, parameter: InForce, read: Callable[[], float], write: Callable[[float], None]) -> Command:
    """Declare a number whose unit depends on the command set in force."""

    def run_set(call: Call) -> Reply:
        write(call.number())
        return None

    def run_query(call: Call) -> Reply:
        return parameter.reply(call.number() if call.values else read())

    return Command(pattern, Form(run_set, (parameter,)), Form(run_query, (LimitName(parameter.legacy),)))


def _switch(pattern: str, read: Callable[[], bool], write: Callable[[bool], None]) -> Command:
    return flag_setting(pattern, Boolean(), lambda _: read(), lambda _, on: write(on), _DIGIT)


def _does(action: Callable[[], None]) -> Callable[[Call], Reply]:
    def run(call: Call) -> Reply:
        del call
        action()
        return None

    return run


def commands(tsl: SantecTsl) -> Iterable[Command]:
    """Return every command but the common ones."""
    yield from _power(tsl)
    low, high = tsl.profile.limits_nm
    wavelength = InForce(Numeric(low - 1e-9, high + 1e-9, None, LENGTH_NM), -9, lambda: tsl.code)
    frequency = InForce(Numeric(_C_NM_THZ / high - 1e-9, _C_NM_THZ / low + 1e-9, None, _THZ), 12, lambda: tsl.code)
    yield from _places(tsl, ":WAVelength", wavelength, lambda nm: nm, (low, high))
    yield from _places(
        tsl, ":FREQuency", frequency, lambda value: _C_NM_THZ / value, (_C_NM_THZ / high, _C_NM_THZ / low)
    )
    yield from _steps(tsl, high - low)
    yield from _sweep(tsl)
    yield from _triggers(tsl)
    if not tsl.slow:
        yield number_setting(
            ":SYSTem:COMMunicate:CODe",
            Numeric(0, 1, 0, integer=True),
            lambda _: tsl.code,
            lambda _, value: setattr(tsl, "code", int(value)),
            lambda value: str(int(value)),
        )


def _power(tsl: SantecTsl) -> Iterable[Command]:
    yield _switch(":POWer:STATe", lambda: tsl.diode, tsl.switch_diode)
    yield _switch(":POWer:SHUTter", lambda: tsl.shut, tsl.move_shutter)
    yield _switch(":POWer:UNIT", lambda: tsl.settings.in_mw, lambda on: setattr(tsl.settings, "in_mw", on))

    def express(power_dbm: float) -> str:
        return f"{w_from_dbm(power_dbm) * 1e3:+.6f}" if tsl.settings.in_mw else f"{power_dbm:+.4f}"

    def set_power(call: Call) -> Reply:
        tsl.laser.set_power(call.number())
        return None

    level = Level(tsl)
    reply = Form(
        lambda call: express(call.number() if call.values else tsl.laser.power_dbm), (LimitName(level.in_dbm()),)
    )
    yield Command(":POWer[:LEVel]", Form(set_power, (level,)), reply)

    def monitor(call: Call) -> Reply:
        del call
        power_w = tsl.monitored_w()
        if power_w > 0:
            return express(dbm_from_w(power_w))
        return f"{0.0:+.6f}" if tsl.settings.in_mw else tsl.dark_reply()

    yield query(":POWer:ACTual", monitor)


def _places(
    tsl: SantecTsl,
    root: str,
    parameter: InForce,
    turn: Callable[[float], float],
    limits: tuple[float, float],
) -> Iterable[Command]:
    """Wavelengths, or the same as frequencies: ``turn`` makes one of the other, both ways."""
    yield _number(root, parameter, lambda: turn(tsl.laser.wavelength_nm), lambda value: tsl.tune(turn(value)))
    yield _number(
        f"{root}:SWEep:STARt",
        parameter,
        lambda: turn(tsl.settings.start_nm),
        lambda value: setattr(tsl.settings, "start_nm", turn(value)),
    )
    yield _number(
        f"{root}:SWEep:STOP",
        parameter,
        lambda: turn(tsl.settings.stop_nm),
        lambda value: setattr(tsl.settings, "stop_nm", turn(value)),
    )
    if not tsl.slow:
        yield query(f"{root}:SWEep:RANGe:MINimum", lambda _: parameter.reply(limits[0]))
        yield query(f"{root}:SWEep:RANGe:MAXimum", lambda _: parameter.reply(limits[1]))


def _steps(tsl: SantecTsl, span_nm: float) -> Iterable[Command]:
    length = InForce(Numeric(1e-4, span_nm, None, LENGTH_NM), -9, lambda: tsl.code)
    yield _number(
        f"{_SWEEP}:STEP[:WIDTh]",
        length,
        lambda: tsl.settings.step_nm,
        lambda value: setattr(tsl.settings, "step_nm", value),
    )
    frequency = InForce(Numeric(2e-5, 20.0, None, _THZ), 12, lambda: tsl.code)
    yield _number(
        ":FREQuency:SWEep:STEP[:WIDTh]",
        frequency,
        lambda: tsl.settings.step_thz,
        lambda value: setattr(tsl.settings, "step_thz", value),
    )


def _sweep(tsl: SantecTsl) -> Iterable[Command]:
    def control(call: Call) -> Reply:
        if call.flag():
            tsl.start_sweep(repeat=False)
        else:
            tsl.stop()
        return None

    yield Command(f"{_SWEEP}[:STATe]", Form(control, (Boolean(),)), Form(lambda _: str(tsl.sweep_number)))
    yield event(f"{_SWEEP}:REPeat", _does(lambda: tsl.start_sweep(repeat=True)))
    yield query(f"{_SWEEP}:COUNt", lambda _: str(tsl.laser.passes_done))
    yield number_setting(
        f"{_SWEEP}:SPEed",
        Numeric(0.5, 200.0, 10.0),
        lambda _: tsl.settings.speed_nm_per_s,
        lambda _, value: tsl.set_speed(value),
        lambda value: f"{value:g}",
    )
    for leaf, name, parameter, decimals in (
        ("DWELl", "dwell_s", Numeric(0.0, 999.9, 0.0, TIME_S), 1),
        ("DELay", "delay_s", Numeric(0.0, 999.9, 0.0, TIME_S), 1),
        ("CYCLes", "cycles", Numeric(0, 999, 1, integer=True), 0),
        ("MODe", "mode", Numeric(0, 3, 1, integer=True), 0),
    ):
        yield number_setting(
            f"{_SWEEP}:{leaf}",
            parameter,
            lambda _, name=name: float(getattr(tsl.settings, name)),  # type: ignore[misc]
            lambda _, value, name=name: setattr(tsl.settings, name, value),  # type: ignore[misc]
            lambda value, decimals=decimals: f"{value:.{decimals}f}",  # type: ignore[misc]
        )


def _triggers(tsl: SantecTsl) -> Iterable[Command]:
    yield _switch(
        ":TRIGger:INPut:EXTernal",
        lambda: tsl.settings.external,
        lambda on: setattr(tsl.settings, "external", on),
    )
    yield _switch(
        ":TRIGger:INPut:STANdby", lambda: tsl.settings.standby, lambda on: setattr(tsl.settings, "standby", on)
    )
    yield event(":TRIGger:INPut:SOFTtrigger", _does(tsl.soft_trigger))
