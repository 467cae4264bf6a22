"""The commands of Keysight tunable lasers, as data (instrument facts, section 7)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lumion_hw.emulator.meters.keysight_slots import POWER_UNIT, TRIGGER_WIRINGS
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Choice,
    Form,
    LimitName,
    NumberOrWord,
    Numeric,
    Reply,
    ScpiCommand,
    ScpiError,
    Value,
    event,
    flag_setting,
    number_setting,
    query,
)
from lumion_hw.emulator.scpi import errors as scpi_errors
from lumion_hw.emulator.scpi.formats import definite_block, float32, keysight_float, keysight_int
from lumion_hw.emulator.scpi.lexer import Token, TokenKind
from lumion_hw.emulator.scpi.spelling import short_form
from lumion_hw.emulator.scpi.units import LENGTH_M, POWER_W, SPEED_M_PER_S, TIME_S
from lumion_hw.quantities import dbm_from_w, w_from_dbm

if TYPE_CHECKING:
    from lumion_hw.emulator.lasers.keysight_laser import LaserModule

SOURCE = "[:SOURce[s]][:CHANnel[c]]"
_SWEEP = f"{SOURCE}:WAVelength:SWEep"
_MODES = ("STEPped", "MANual", "CONTinuous")
_REPEATS = ("ONEWay", "TWOWay")
OUTPUTS = ("DISabled", "STFinished", "SWFinished", "SWSTarted")
INPUTS = ("IGNore", "NEXTstep", "SWStart")
_ACTIONS = ("STOP", "STARt", "PAUSe")
_DATA = ("LLOGging", "PMAX")
_PATHS = ("HIGHpower", "LOWSse", "BHRegulated", "BLRegulated")


@dataclass(frozen=True)
class KeysightLevel:
    """A power in W, dBm or, without a unit, in the unit set; its value is in W.

    Attributes:
        module: The laser.
        optional: May be left out.
    """

    module: LaserModule
    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the power in W."""
        if token.kind is TokenKind.NUMBER and not token.suffix and not self.module.in_watts:
            low, high = self.module.profile.power_dbm
            return w_from_dbm(float(Numeric(low, high).parse(token, call)))
        return self.number().parse(token, call)

    def number(self) -> Numeric:
        """Return the same in W, with its limits."""
        low, high = (w_from_dbm(limit) for limit in self.module.profile.power_dbm)
        return Numeric(low * (1 - 1e-9), high * (1 + 1e-9), 1e-3, POWER_W)


def laser_commands(module: LaserModule) -> Iterable[ScpiCommand]:
    """Return every command of the source but its triggers."""
    yield from _source(module)
    yield from _sweep_settings(module)
    yield from _sweep_control(module)
    yield from _readout(module)


def _source(module: LaserModule) -> Iterable[ScpiCommand]:
    def lock(call: Call) -> Reply:
        module.lock(call.flag(0), str(call.integer(1)))
        return None

    pin = Numeric(0, 9999, integer=True)
    yield ScpiCommand(":LOCK", Form(lock, (Boolean(), pin)), Form(lambda _: keysight_int(int(module.locked))))
    for pattern in (f"{SOURCE}:POWer:STATe", ":OUTPut[s][:CHANnel[c]][:STATe]"):
        yield flag_setting(pattern, Boolean(), lambda _: module.laser.on, lambda _, on: module.switch(on), keysight_int)

    def set_power(call: Call) -> Reply:
        module.laser.set_power(dbm_from_w(call.number()))
        return None

    def power(call: Call) -> Reply:
        power_w = call.number() if call.values else w_from_dbm(module.laser.power_dbm)
        return keysight_float(power_w if module.in_watts else dbm_from_w(power_w))

    level = KeysightLevel(module)
    yield ScpiCommand(
        f"{SOURCE}:POWer[:LEVel[:IMMediate[:AMPLitude]]]",
        Form(set_power, (level,)),
        Form(power, (LimitName(level.number()),)),
    )

    def set_unit(call: Call) -> Reply:
        module.in_watts = call.text() == "W"
        return None

    yield ScpiCommand(
        f"{SOURCE}:POWer:UNIT",
        Form(set_unit, (POWER_UNIT,)),
        Form(lambda _: keysight_int(int(module.in_watts))),
    )
    if module.low_sse_loss_db is not None:

        def set_path(call: Call) -> Reply:
            module.regulate(call.text())
            return None

        path = Form(lambda _: short_form(module.path))
        yield ScpiCommand(":OUTPut[s][:CHANnel[c]]:PATH", Form(set_path, (Choice(_PATHS),)), path)
    yield event(f"{SOURCE}:WAVelength:CORRection:ARA", _does(module.realign))
    low, high = (limit * 1e-9 for limit in module.profile.limits_nm)
    yield number_setting(
        f"{SOURCE}:WAVelength[:CW]",
        Numeric(low * (1 - 1e-12), high * (1 + 1e-12), module.default_nm * 1e-9, LENGTH_M),
        lambda _: module.laser.wavelength_nm * 1e-9,
        lambda _, metres: module.tune(metres * 1e9),
        keysight_float,
    )
    yield flag_setting(
        f"{SOURCE}:AM:STATe",
        Boolean(),
        lambda _: module.settings.modulated,
        lambda _, on: setattr(module.settings, "modulated", on),
        keysight_int,
    )


def _sweep_settings(module: LaserModule) -> Iterable[ScpiCommand]:
    low, high = (limit * 1e-9 for limit in module.profile.limits_nm)
    place = Numeric(low * (1 - 1e-12), high * (1 + 1e-12), None, LENGTH_M)
    for pattern, name, parameter in (
        ("STARt", "start_nm", place),
        ("STOP", "stop_nm", place),
        ("STEP[:WIDTh]", "step_nm", Numeric(1e-13, high - low, None, LENGTH_M)),
    ):
        yield number_setting(
            f"{_SWEEP}:{pattern}",
            parameter,
            lambda _, name=name: float(getattr(module.settings, name)) * 1e-9,  # type: ignore[misc]
            lambda _, value, name=name: setattr(module.settings, name, value * 1e9),  # type: ignore[misc]
            keysight_float,
        )

    def set_speed(call: Call, metres_per_s: float) -> None:
        del call
        nearest = min(module.speeds_nm_per_s, key=lambda speed: abs(speed - metres_per_s * 1e9))
        if abs(nearest - metres_per_s * 1e9) > 1e-6:
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        module.settings.speed_nm_per_s = nearest

    slow, fast = min(module.speeds_nm_per_s) * 1e-9, max(module.speeds_nm_per_s) * 1e-9
    yield number_setting(
        f"{_SWEEP}:SPEed",
        Numeric(slow * (1 - 1e-12), fast * (1 + 1e-12), module.settings.speed_nm_per_s * 1e-9, SPEED_M_PER_S),
        lambda _: module.settings.speed_nm_per_s * 1e-9,
        set_speed,
        keysight_float,
    )
    yield number_setting(
        f"{_SWEEP}:DWELl",
        Numeric(0.0, 100.0, 0.1, TIME_S),
        lambda _: module.settings.dwell_s,
        lambda _, value: setattr(module.settings, "dwell_s", value),
        keysight_float,
    )
    yield number_setting(
        f"{_SWEEP}:CYCLes",
        Numeric(1, 999, 1, integer=True),
        lambda _: module.settings.cycles,
        lambda _, value: setattr(module.settings, "cycles", int(value)),
        lambda value: keysight_int(int(value)),
    )
    yield flag_setting(
        f"{_SWEEP}:LLOGging",
        Boolean(),
        lambda _: module.settings.logging,
        lambda _, on: setattr(module.settings, "logging", on),
        keysight_int,
    )
    yield _word(module, f"{_SWEEP}:MODE", _MODES, "mode")
    yield _word(module, f"{_SWEEP}:REPeat", _REPEATS, "repeat")


def _word(module: LaserModule, pattern: str, words: tuple[str, ...], name: str) -> ScpiCommand:
    def write(call: Call) -> Reply:
        setattr(module.settings, name, call.text())
        return None

    return ScpiCommand(
        pattern, Form(write, (Choice(words),)), Form(lambda _: short_form(str(getattr(module.settings, name))))
    )


def _sweep_control(module: LaserModule) -> Iterable[ScpiCommand]:
    def control(call: Call) -> Reply:
        module.control(call.text())
        return None

    state = Form(lambda _: keysight_int(module.sweep_number))
    yield ScpiCommand(f"{_SWEEP}[:STATe]", Form(control, (NumberOrWord(_ACTIONS),)), state)
    yield query(f"{_SWEEP}:CHECkparams", lambda _: "{},{}".format(*module.check()))
    yield query(f"{_SWEEP}:EXPectedtriggernum", lambda _: keysight_int(module.plan().steps + 1))
    yield query(f"{_SWEEP}:FLAG", lambda _: keysight_int(module.flag))
    yield event(f"{_SWEEP}:SOFTtrigger", _does(module.soft_trigger))
    yield event(f"{_SWEEP}:STEP:NEXT", _does(lambda: module.step(1)))
    yield event(f"{_SWEEP}:STEP:PREVious", _does(lambda: module.step(-1)))

    def largest(call: Call) -> Reply:
        """Reply in W, whatever the unit set: so the maker's own example and every public client at hand take it."""
        power_dbm = min(module.profile.largest_dbm(call.number(place) * 1e9) for place in range(2))
        return keysight_float(w_from_dbm(power_dbm))

    low, high = (limit * 1e-9 for limit in module.profile.limits_nm)
    span = Numeric(low * (1 - 1e-12), high * (1 + 1e-12), None, LENGTH_M)
    yield query(f"{_SWEEP}:PMAX", largest, span, span)


def _does(action: Callable[[], None]) -> Callable[[Call], Reply]:
    def run(call: Call) -> Reply:
        del call
        action()
        return None

    return run


def _readout(module: LaserModule) -> Iterable[ScpiCommand]:
    def table() -> list[tuple[float, float]]:
        """Greatest power every nanometre."""
        low, high = module.profile.limits_nm
        places = [low + step for step in range(int(high - low) + 1)]
        return [(nm * 1e-9, w_from_dbm(module.profile.largest_dbm(nm))) for nm in places]

    def points(call: Call) -> Reply:
        logging = call.text() == "LLOGging"
        return keysight_int(len(module.logged_m()) if logging else len(table()))

    def data(call: Call) -> Reply:
        if call.text() == "LLOGging":
            return definite_block(module.logged_m().astype("<f8").tobytes())
        return definite_block(b"".join(struct.pack("<df", metres, float32(power_w)) for metres, power_w in table()))

    yield query(f"{SOURCE}:READout:POINts", points, Choice(_DATA))
    yield query(f"{SOURCE}:READout:DATA", data, Choice(_DATA))


def trigger_commands(module: LaserModule) -> Iterable[ScpiCommand]:
    """Return the trigger commands of an instrument that is nothing but a laser."""
    yield _word(module, ":TRIGger[s][:CHANnel[c]]:OUTPut", OUTPUTS, "output")
    yield _word(module, ":TRIGger[s][:CHANnel[c]]:INPut", INPUTS, "input")
    yield event(":TRIGger", _does(module.hardware_trigger), Numeric(1, 2, integer=True))
    wiring = ["DEFault"]

    def wire(call: Call) -> Reply:
        wiring[0] = call.text()
        return None

    yield ScpiCommand(":TRIGger:CONFiguration", Form(wire, (TRIGGER_WIRINGS,)), Form(lambda _: short_form(wiring[0])))
