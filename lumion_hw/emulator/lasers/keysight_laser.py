"""Emulated Keysight tunable lasers: the N7776C, and the laser module of an 8164B mainframe.

Command language: 8163A/B, 8164A/B, 8166A/B Programming Guide. Choices where the guide is silent: after power-on the
laser is locked with the pin 1234, and switching it on gives error -203. A sweep with inconsistent parameters is refused
with -221. After a sweep the laser stays at the last wavelength. Realigning the cavity takes ten seconds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.lasers.swept_laser import MAX_TRIGGERS, ArmedSweep, LaserProfile, SweepState, SweptLaser
from lumion_hw.emulator.optics.light import Light, LightOutlet
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Choice,
    Form,
    IndexedChoice,
    InstrumentState,
    LimitName,
    Numeric,
    Operation,
    Profile,
    Reply,
    ScpiCommand,
    ScpiDevice,
    ScpiError,
    ScpiInstrument,
    SuffixRange,
    Value,
    action,
    errors as scpi_errors,
    flag_attribute,
    flag_setting,
    number_attribute,
    number_setting,
    query,
    word_setting,
)
from lumion_hw.emulator.scpi.formats import definite_block, float32, keysight_float, keysight_int
from lumion_hw.emulator.scpi.keysight_slots import POWER_UNIT, TRIGGER_WIRINGS, self_as_modules, slot_commands
from lumion_hw.emulator.scpi.lexer import Token, TokenKind
from lumion_hw.emulator.scpi.units import LENGTH_M, POWER_W, SPEED_M_PER_S, TIME_S
from lumion_hw.quantities import dbm_from_w, w_from_dbm

PIN = "1234"
N7776C_SPEEDS_NM_PER_S = (0.5, 1.0, 50.0, 80.0, 200.0)
MIN_STEP_NM = 1e-4
_TIME_LIMITS_S = (0.1, 43_200.0)
_MAX_TRIGGERS_PER_S = 1e6
_DEFAULT_SPEED_NM_PER_S = 50.0
_REALIGN_S = 10.0
HIGH_POWER = "HIGHpower"


@dataclass
class SweepSettings:
    """Sweep parameters of a Keysight laser; the defaults are those after ``*RST``.

    Attributes:
        step_nm: Wavelength step, also between trigger pulses.
        speed_nm_per_s: Speed of continuous sweeps.
        mode: ``STEPped``, ``MANual`` or ``CONTinuous``.
        repeat: ``ONEWay`` or ``TWOWay``.
        cycles: Number of passes.
        logging: Whether the laser logs the wavelength at trigger pulses.
        output: Mode of the trigger output, a keyword of ``TRIGger:OUTPut``.
        input: Reaction to the trigger input, a keyword of ``TRIGger:INPut``.
    """

    start_nm: float
    stop_nm: float
    step_nm: float = 1.0
    speed_nm_per_s: float = 50.0
    mode: str = "STEPped"
    repeat: str = "ONEWay"
    cycles: int = 1
    dwell_s: float = 0.1
    logging: bool = False
    output: str = "DISabled"
    input: str = "IGNore"
    modulated: bool = False


class LaserModule:
    """A Keysight laser with its SCPI commands, stand-alone or in a slot of a mainframe.

    Args:
        on_triggers: Called with the times of the pulses at its trigger output.
        low_sse_loss_db: Power of the other output relative to the low-SSE output (little spontaneous emission), in dB;
            ``None`` for a laser with one output.
    """

    def __init__(
        self,
        state: InstrumentState,
        clock: Clock,
        rng: np.random.Generator,
        profile: LaserProfile,
        speeds_nm_per_s: tuple[float, ...],
        on_triggers: Callable[[NDArray[np.float64]], None],
        *,
        low_sse_loss_db: float | None = None,
    ) -> None:
        self.scpi = state
        self.clock = clock
        self.profile = profile
        self.speeds_nm_per_s = speeds_nm_per_s
        self.low_sse_loss_db = low_sse_loss_db
        self._high_power = profile
        self.locked = True
        self._on_triggers = on_triggers
        self._operation: Operation | None = None
        self.default_nm = min(max(1550.0, profile.limits_nm[0]), profile.limits_nm[1])
        self.laser = SweptLaser(profile, clock, rng, self._pulses, wavelength_nm=self.default_nm)
        self.reset()

    def reset(self) -> None:
        """Reset the laser's settings (``*RST``); the lock stays."""
        low, high = self.profile.limits_nm
        speed = min(self.speeds_nm_per_s, key=lambda speed: abs(speed - _DEFAULT_SPEED_NM_PER_S))
        self.settings = SweepSettings(low, high, speed_nm_per_s=speed)
        self.in_watts = False
        self.select_output(HIGH_POWER)
        self._swept = self._waits_for_trigger = False
        self._operation = None
        self.laser.switch(False)
        self.laser.tune(self.default_nm)
        self.laser.set_power(0.0)

    def advance(self) -> None:
        """Advance the laser to the present time."""
        self.laser.advance()
        if self._operation is not None:
            # The end of a sweep that waited for its trigger is known only now.
            self._operation.end_s = self.laser.end_s

    def _pulses(self, times_s: NDArray[np.float64]) -> None:
        if self.settings.output == "STFinished":
            self._on_triggers(times_s)

    # -- actions of commands

    def lock(self, on: bool, pin: str) -> None:
        """Lock or unlock the laser. Raises ``ScpiError`` -224 for a wrong pin."""
        if pin != PIN:
            raise ScpiError(scpi_errors.ILLEGAL_PARAMETER_VALUE)
        self.locked = on
        if on:
            self.laser.switch(False)

    def switch(self, on: bool) -> None:
        """Switch the laser light on or off. Raises ``ScpiError`` -203 while the laser is locked."""
        # Locked after power-on, so that a host cannot switch the light on by accident.
        if on and self.locked:
            raise ScpiError(scpi_errors.COMMAND_PROTECTED)
        self.laser.switch(on)

    def select_output(self, path: str) -> None:
        """Select the output whose power is regulated."""
        self.path = path
        low, high = self._high_power.power_dbm
        # The low-SSE output passes a filter, which reduces its power.
        less_db = 0.0 if path in (HIGH_POWER, "BHRegulated") else self.low_sse_loss_db or 0.0
        self.profile = replace(self._high_power, power_dbm=(low, high - less_db))
        self.laser.profile = self.profile

    def realign(self) -> None:
        """Start to realign the laser cavity; a running sweep ends."""
        self._end()
        # Overlapped, like tuning: *OPC? reports when the cavity is aligned.
        self._start(self.laser.set_busy(_REALIGN_S))

    def tune(self, wavelength_nm: float) -> None:
        """Start to tune the laser to a wavelength."""
        self._end()
        self._start(self.laser.tune(wavelength_nm))

    def _start(self, duration_s: float | None) -> None:
        self._operation = self.scpi.begin(duration_s, self._finished)

    def _finished(self) -> None:
        self._operation = None

    def _end(self) -> None:
        if self._operation is not None:
            self.scpi.abort(self._operation)
            self._operation = None

    def check(self) -> tuple[int, str]:
        """Return number and text of the first inconsistency in the sweep parameters, or ``(0, "OK")``."""
        settings = self.settings
        span_nm = settings.stop_nm - settings.start_nm
        steps = span_nm / settings.step_nm
        continuous = settings.mode == "CONTinuous"
        duration_s = span_nm / settings.speed_nm_per_s if continuous else _TIME_LIMITS_S[0]
        low, high = self.profile.limits_nm
        # Numbers and texts are those of CHECkparams in the programming guide; the first that applies is reported.
        checks = (
            (span_nm <= 0, 368, "LambdaStop <=LambdaStart"),
            (settings.start_nm < low - 1e-9, 380, "LambdaStart too small"),
            (settings.stop_nm > high + 1e-9, 381, "LambdaStop too large"),
            (continuous and duration_s < _TIME_LIMITS_S[0], 369, "sweepTime too small"),
            (continuous and duration_s > _TIME_LIMITS_S[1], 370, "sweepTime too large"),
            (settings.logging and settings.modulated, 374, "lambda logging and modulation"),
            (settings.logging and settings.output != "STFinished", 375, "lambda logging needs trigger STF"),
            (settings.logging and not continuous, 376, "lambda logging needs mode CONT"),
            (continuous and settings.modulated, 379, "continuous sweep and modulation"),
            (settings.step_nm < MIN_STEP_NM - 1e-12, 372, "step too small"),
            (abs(settings.step_nm / MIN_STEP_NM - round(settings.step_nm / MIN_STEP_NM)) > 1e-3, 377, "step"),
            (
                continuous and settings.speed_nm_per_s / settings.step_nm > _MAX_TRIGGERS_PER_S,
                371,
                "triggerFreq too large",
            ),
            (steps + 1 > MAX_TRIGGERS, 373, "triggerNum too large"),
        )
        return next(((code, text) for is_wrong, code, text in checks if is_wrong), (0, "OK"))

    def plan(self) -> ArmedSweep:
        """Return the sweep that the present settings define."""
        settings = self.settings
        return ArmedSweep(
            settings.start_nm,
            settings.stop_nm,
            settings.step_nm,
            settings.speed_nm_per_s,
            continuous=settings.mode == "CONTinuous",
            two_way=settings.repeat == "TWOWay",
            cycles=settings.cycles,
            dwell_s=settings.dwell_s,
        )

    def control(self, word: str) -> None:
        """Stop, start or pause a sweep. Raises ``ScpiError`` -221 for inconsistent sweep parameters."""
        if word == "STARt":
            if self.check()[0]:
                raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
            self._end()
            self._swept, self._waits_for_trigger = True, self.settings.input == "SWStart"
            if self.settings.mode == "MANual":
                self.laser.hold(self.plan())
            else:
                self.laser.sweep(self.plan(), wait=self._waits_for_trigger)
            self._start(None)  # its end is unknown before its trigger
            self.advance()
        elif word == "STOP":
            self.laser.stop()
            self._end()
            self._swept = False
        else:
            self.laser.pause()

    def step(self, direction: int) -> None:
        """Move a paused sweep by one step. Raises ``ScpiError`` -221 without a paused sweep or at its end."""
        if not self.laser.step(direction):
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)

    def soft_trigger(self) -> None:
        """Start a sweep that waits for a trigger. Raises ``ScpiError`` -211 if no sweep is waiting."""
        if not self.laser.trigger():
            raise ScpiError(scpi_errors.TRIGGER_IGNORED)

    def hardware_trigger(self) -> None:
        """Receive an electrical pulse at the trigger input."""
        if self.settings.input == "SWStart":
            self.laser.trigger()
        elif self.settings.input == "NEXTstep":
            self.laser.step(1)

    @property
    def sweep_number(self) -> int:
        """Sweep state: 0 stopped, 1 running (or preparing), 2 paused."""
        state = self.laser.state
        return {SweepState.STOPPED: 0, SweepState.PAUSED: 2}.get(state, 1)

    @property
    def flag(self) -> int:
        """Sweep flag (816x programming guide p. 139): twice the number of completed passes, 0 without a sweep.

        It is one higher while a triggered sweep has no data yet. The flag stays after the last pass, as public clients
        expect.
        """
        if not self._swept:
            return 0
        # Odd only until the first data are available: clients take an even number above 0 as data to read.
        before_data = self.laser.completed_passes == 0 and self.laser.state in (SweepState.WAITING, SweepState.RUNNING)
        return 2 * self.laser.completed_passes + (self._waits_for_trigger and before_data)

    def logged_m(self) -> NDArray[np.float64]:
        """Wavelengths in metres logged at the trigger pulses."""
        if not self.settings.logging:
            return np.zeros(0)
        return np.asarray(self.laser.logged_nm * 1e-9, dtype=np.float64)


class EmulatedKeysightLaser(ScpiDevice):
    """Emulated stand-alone Keysight tunable laser.

    Args:
        on_triggers: Called with the times of the pulses at its trigger output.
        emit: Called with the light at every change.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        model: str = "N7776C",
        serial: str = "DE00000002",
        firmware: str = "1.06.00",
        profile: LaserProfile | None = None,
        on_triggers: Callable[[NDArray[np.float64]], None] | None = None,
        emit: Callable[[Light], None] | None = None,
    ) -> None:
        identity = f"Keysight Technologies,{model},{serial},{firmware}"
        super().__init__(name, clock)
        # A meter on a trigger cable measures at every pulse, with the light of its time: pulses are sent without a
        # host.
        self._scpi = ScpiInstrument(
            name,
            clock,
            Profile(identity, reports_busy=True),
            self._reset,
            self._follow,
            lambda: self.module.laser.next_update_s(),  # noqa: PLW0108 - the module is made after the instrument
        )
        self._outlet = LightOutlet(emit)
        self.module = LaserModule(
            self._scpi.state,
            clock,
            rng,
            profile or LaserProfile((1480.0, 1640.0)),
            N7776C_SPEEDS_NM_PER_S,
            on_triggers or (lambda _times: None),
        )
        commands = (
            *laser_commands(self.module),
            *trigger_commands(self.module),
            *slot_commands(self_as_modules(identity, (0,)), (0,)),
        )
        self._scpi.declare(commands, {"s": SuffixRange(0, 0, 0), "c": SuffixRange(1, 1), "n": SuffixRange(0, 0, 0)})

    def light(self) -> Light:
        """Return the light that the laser emits, with its wavelength and power errors."""
        return self.module.laser.light()

    def light_at(self, at_s: float) -> Light:
        """Return the light that the laser emitted at a past time, with its wavelength and power errors."""
        return self.module.laser.light_at(at_s)

    def trigger(self) -> None:
        """Receive an electrical pulse at the trigger input."""
        self.module.hardware_trigger()

    def _reset(self) -> None:
        self.module.reset()

    def _follow(self) -> None:
        self.module.advance()
        self._outlet.report(self.module.laser.light)


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
    """SCPI parameter for a laser power, in the selected unit if the host sends no unit; parsed to W."""

    module: LaserModule
    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the received power in W."""
        if token.kind is TokenKind.NUMBER and not token.suffix and not self.module.in_watts:
            low, high = self.module.profile.power_dbm
            return w_from_dbm(float(Numeric(low, high).parse(token, call)))
        return self.number().parse(token, call)

    def number(self) -> Numeric:
        """Return the power limits as a numeric SCPI parameter in W."""
        low, high = (w_from_dbm(limit) for limit in self.module.profile.power_dbm)
        # A limit that was reported in dBm and comes back in W must not be out of range by rounding.
        return Numeric(low * (1 - 1e-9), high * (1 + 1e-9), 1e-3, POWER_W)


def laser_commands(module: LaserModule) -> Iterable[ScpiCommand]:
    """Return all SCPI commands of the laser except the trigger commands."""
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

    yield word_setting(
        f"{SOURCE}:POWer:UNIT",
        POWER_UNIT,
        lambda _: keysight_int(int(module.in_watts)),
        lambda _, unit: setattr(module, "in_watts", unit == "W"),
        str,
    )
    if module.low_sse_loss_db is not None:
        path = ":OUTPut[s][:CHANnel[c]]:PATH"
        yield word_setting(path, Choice(_PATHS), lambda _: module.path, lambda _, word: module.select_output(word))
    yield action(f"{SOURCE}:WAVelength:CORRection:ARA", module.realign)
    low, high = (limit * 1e-9 for limit in module.profile.limits_nm)
    yield number_setting(
        f"{SOURCE}:WAVelength[:CW]",
        Numeric(low * (1 - 1e-12), high * (1 + 1e-12), module.default_nm * 1e-9, LENGTH_M),
        lambda _: module.laser.wavelength_nm * 1e-9,
        lambda _, metres: module.tune(metres * 1e9),
        keysight_float,
    )
    yield flag_attribute(f"{SOURCE}:AM:STATe", lambda: module.settings, "modulated", keysight_int)


def _sweep_settings(module: LaserModule) -> Iterable[ScpiCommand]:
    low, high = (limit * 1e-9 for limit in module.profile.limits_nm)
    wavelength = Numeric(low * (1 - 1e-12), high * (1 + 1e-12), None, LENGTH_M)
    for pattern, name, parameter in (
        ("STARt", "start_nm", wavelength),
        ("STOP", "stop_nm", wavelength),
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
        # The laser has only these speeds; any other is refused, except for rounding from nm/s to m/s.
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
    dwell = Numeric(0.0, 100.0, 0.1, TIME_S)
    yield number_attribute(f"{_SWEEP}:DWELl", dwell, lambda: module.settings, "dwell_s", keysight_float)
    yield number_setting(
        f"{_SWEEP}:CYCLes",
        Numeric(1, 999, 1, integer=True),
        lambda _: module.settings.cycles,
        lambda _, value: setattr(module.settings, "cycles", int(value)),
        lambda value: keysight_int(int(value)),
    )
    yield flag_attribute(f"{_SWEEP}:LLOGging", lambda: module.settings, "logging", keysight_int)
    yield _keyword_setting(module, f"{_SWEEP}:MODE", _MODES, "mode")
    yield _keyword_setting(module, f"{_SWEEP}:REPeat", _REPEATS, "repeat")


def _keyword_setting(module: LaserModule, pattern: str, keywords: tuple[str, ...], name: str) -> ScpiCommand:
    return word_setting(
        pattern,
        Choice(keywords),
        lambda _: str(getattr(module.settings, name)),
        lambda _, word: setattr(module.settings, name, word),
    )


def _sweep_control(module: LaserModule) -> Iterable[ScpiCommand]:
    def control(call: Call) -> Reply:
        module.control(call.text())
        return None

    state = Form(lambda _: keysight_int(module.sweep_number))
    yield ScpiCommand(f"{_SWEEP}[:STATe]", Form(control, (IndexedChoice(_ACTIONS),)), state)
    yield query(f"{_SWEEP}:CHECkparams", lambda _: "{},{}".format(*module.check()))
    yield query(f"{_SWEEP}:EXPectedtriggernum", lambda _: keysight_int(module.plan().steps + 1))
    yield query(f"{_SWEEP}:FLAG", lambda _: keysight_int(module.flag))
    yield action(f"{_SWEEP}:SOFTtrigger", module.soft_trigger)
    yield action(f"{_SWEEP}:STEP:NEXT", lambda: module.step(1))
    yield action(f"{_SWEEP}:STEP:PREVious", lambda: module.step(-1))

    def max_power(call: Call) -> Reply:
        # Always in W, as the maker's example and all known public clients expect.
        power_dbm = min(module.profile.max_dbm(call.number(wavelength) * 1e9) for wavelength in range(2))
        return keysight_float(w_from_dbm(power_dbm))

    low, high = (limit * 1e-9 for limit in module.profile.limits_nm)
    span = Numeric(low * (1 - 1e-12), high * (1 + 1e-12), None, LENGTH_M)
    yield query(f"{_SWEEP}:PMAX", max_power, span, span)


def _readout(module: LaserModule) -> Iterable[ScpiCommand]:
    def table() -> list[tuple[float, float]]:
        low, high = module.profile.limits_nm
        wavelengths = [low + step for step in range(int(high - low) + 1)]
        return [(nm * 1e-9, w_from_dbm(module.profile.max_dbm(nm))) for nm in wavelengths]

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
    """Return the trigger commands of an instrument that contains only a laser."""
    yield _keyword_setting(module, ":TRIGger[s][:CHANnel[c]]:OUTPut", OUTPUTS, "output")
    yield _keyword_setting(module, ":TRIGger[s][:CHANnel[c]]:INPut", INPUTS, "input")
    yield action(":TRIGger", module.hardware_trigger, Numeric(1, 2, integer=True))
    wiring = ["DEFault"]
    yield word_setting(
        ":TRIGger:CONFiguration", TRIGGER_WIRINGS, lambda _: wiring[0], lambda _, word: wiring.__setitem__(0, word)
    )
