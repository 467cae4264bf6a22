"""Emulated Santec TSL-510, TSL-550, TSL-570 and TSL-710 tunable lasers.

Sources: the maker's samples (santec-corporation/python-samples), QMI (qmi/instruments/santec/tsl_570.py and its tests)
and a QCoDeS driver with the manual's list of 62 commands. Messages end with a carriage return both ways (manual 7.1.3);
LF and CR LF are accepted too. Errors are those of the maker's table. Without light the monitor reports less than -99
dBm. The monitor is before the shutter (measured on a TSL-775). No terminator follows a binary block.

Choices where the manual is silent: a cycle of a two-way sweep is one pass forward and one back. Zero cycles count as
one. A sweep with ``TRIGger:INPut:EXTernal`` or ``:STANdby`` on waits for its software trigger or a pulse. After
``*RST`` the trigger output is off. The log contains the wavelength at every pulse of the trigger output (as on the
TSL-775). Pulses come at most 20 000 times a second (TSL-775; unverified for other models), the first at the start of
the sweep (unverified). Fine tuning, offset, attenuator, modulation, coherence control and ``TRIGger:OUTPut:SETTing``
have no effect on the light.

Logged powers are in dBm, as float64 in the SCPI command set (as a QCoDeS driver reads them) and as float32 in the
Legacy set (unverified). Shutdown is not implemented.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.lasers.swept_laser import (
    ArmedSweep,
    LaserProfile,
    Pulses,
    SweepState,
    SweptLaser,
)
from lumion_hw.emulator.optics.light import Light, LightOutlet
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Form,
    LimitName,
    Numeric,
    Operation,
    Profile,
    Reply,
    ScpiCommand,
    ScpiDevice,
    ScpiError,
    ScpiInstrument,
    Value,
    action,
    errors as scpi_errors,
    flag_attribute,
    flag_setting,
    number_attribute,
    number_setting,
    query,
)
from lumion_hw.emulator.scpi.formats import definite_block, keysight_float
from lumion_hw.emulator.scpi.lexer import Token, TokenKind
from lumion_hw.emulator.scpi.units import FREQUENCY_HZ, LENGTH_NM, POWER_DBM, POWER_W, TIME_S, Suffixes
from lumion_hw.errors import ConfigError
from lumion_hw.quantities import SPEED_OF_LIGHT_M_PER_S, dbm_from_w, w_from_dbm

MODELS = ("TSL-510", "TSL-550", "TSL-570", "TSL-710")
SPEEDS_NM_PER_S = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
SLOW_SPEEDS_NM_PER_S = (0.5, 100.0)
"""Lowest and highest sweep speed in nm/s of the models older than the TSL-570."""
MAX_LOGGED_POINTS = 500_000
MAX_PULSES_PER_S = 20e3
FIRMWARE = "0026.0026.0011"
FACTORY_NETWORK = {"IPADdress": "192.168.1.100", "SMASk": "255.255.255.0", "DGATeway": "192.168.1.1"}
_DEFAULT_NM = 1550.0
_PULSES = (Pulses.NONE, Pulses.STOP, Pulses.START, Pulses.STEP)
"""Pulses that a sweep sends, by the parameter of ``TRIGger:OUTPut``."""
_STATES = {
    SweepState.STOPPED: 0,
    SweepState.RUNNING: 1,
    SweepState.PAUSED: 1,
    SweepState.WAITING: 3,
    SweepState.PREPARING: 4,
}


@dataclass
class TslSettings:
    """Settings of the Santec laser; the defaults are those after ``*RST``.

    Attributes:
        step_nm: Step of a stepped sweep.
        step_thz: Frequency step, without effect on the light.
        speed_nm_per_s: Speed of continuous sweeps.
        delay_s: Delay between passes.
        cycles: Number of consecutive sweeps.
        mode: Sweep mode; bit 0 is set for continuous, bit 1 for two-way sweeps.
        in_mw: Whether powers are in mW rather than dBm.
        external: Whether a sweep waits for a pulse at the trigger input.
        standby: Whether a sweep waits for the software trigger.
        output: Timing of the trigger output, a number of ``TRIGger:OUTPut``.
        output_step_nm: Wavelength step between trigger pulses in a continuous sweep.
        without_effect: Settings without effect on the light, by command name.
    """

    start_nm: float
    stop_nm: float
    step_nm: float = 0.1
    step_thz: float = 0.01
    speed_nm_per_s: float = 10.0
    dwell_s: float = 0.0
    delay_s: float = 0.0
    cycles: float = 1
    mode: float = 1
    in_mw: bool = False
    external: bool = False
    standby: bool = False
    output: float = 0
    output_step_nm: float = 0.1
    without_effect: dict[str, float] = field(default_factory=dict)


class EmulatedSantecTsl(ScpiDevice):
    """Emulated Santec TSL tunable laser.

    Args:
        model: One of :data:`MODELS`; only the TSL-570 has two command sets.
        terminator: Ends every reply.
        on_triggers: Called with the times of the pulses at its trigger output.
        emit: Called with the light at every change.

    Attributes:
        slow: Whether the model is older and slower than the TSL-570.
        code: Present command set (Legacy or SCPI).
        network: Reported network addresses, by command keyword.

    Raises:
        ConfigError: The model is unknown.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        model: str = "TSL-570",
        serial: str = "00000001",
        profile: LaserProfile | None = None,
        terminator: bytes = b"\r",
        on_triggers: Callable[[NDArray[np.float64]], None] | None = None,
        emit: Callable[[Light], None] | None = None,
    ) -> None:
        if model not in MODELS:
            raise ConfigError(f"there is no model {model}", device=name, hint=f"Use one of {', '.join(MODELS)}.")
        self.slow = model != "TSL-570"
        self.firmware = FIRMWARE
        self.profile = profile or LaserProfile((1480.0, 1640.0), power_dbm=(-15.0, 13.0))
        self._outlet = LightOutlet(emit)
        identity = Profile(
            f"SANTEC,{model},{serial},{FIRMWARE}",
            terminator=terminator,
            cr_ends=True,
            terminated_blocks=False,
            error_number="{:d}".format,
            scpi_version=None,
        )
        super().__init__(name, clock)
        self._scpi = ScpiInstrument(name, clock, identity, self._default, self._follow, self._next_update)
        self.code = LEGACY
        self.network, self.port = dict(FACTORY_NETWORK), 5000
        self.laser = SweptLaser(self.profile, clock, rng, on_triggers or (lambda _times: None))
        self._operation: Operation | None = None
        self._default()
        self._scpi.declare(commands(self))

    def _default(self) -> None:
        self.settings = TslSettings(*self.profile.limits_nm)
        self._repeating = False
        self._operation = None
        self.diode, self.shutter_closed = False, self.slow
        self._shutter = (-math.inf, self.shutter_closed)  # time of its last movement, and state before
        self.laser.switch(False)
        self.laser.tune(_DEFAULT_NM)
        self.laser.set_power(0.0)

    def light(self) -> Light:
        """Return the light that the laser emits, with its wavelength and power errors."""
        return self.light_at(self._scpi.state.clock.now())

    def light_at(self, at_s: float) -> Light:
        """Return the light that the laser emitted at a past time, with its wavelength and power errors."""
        light = self.laser.light_at(at_s)
        moved_s, before = self._shutter
        return Light(0.0, light.wavelength_nm) if (self.shutter_closed if at_s >= moved_s else before) else light

    def trigger(self) -> None:
        """Receive an electrical pulse at the trigger input."""
        if self.settings.external:
            self.laser.trigger()

    def _follow(self) -> None:
        self.laser.advance()
        # No operation ends between two repetitions: *OPC? waits for STOP.
        if self._repeating and self.laser.state is SweepState.STOPPED:
            self._restart_sweep()
        if self._operation is not None:
            self._operation.end_s = None if self._repeating else self.laser.end_s
        self._outlet.report(self.light)

    def _next_update(self) -> float | None:
        return self.laser.end_s if self._repeating else None

    def _restart_sweep(self) -> None:
        try:
            self._start_laser_sweep()
        except ScpiError as refusal:  # settings have changed since
            self.stop()
            self._scpi.state.report(refusal.code)

    # -- actions of commands

    def switch_diode(self, on: bool) -> None:
        """Switch the laser diode on or off."""
        self.diode = on
        self.laser.switch(on)

    def move_shutter(self, shutter_closed: bool) -> None:
        """Close or open the laser's shutter."""
        self._shutter, self.shutter_closed = (self._scpi.state.clock.now(), self.shutter_closed), shutter_closed

    def monitored_w(self) -> float:
        """Return the power at the built-in monitor, before the shutter, in W."""
        return self.laser.light().power_w

    def tune(self, wavelength_nm: float) -> None:
        """Tune the laser to a wavelength; a running sweep ends."""
        self.stop()
        self._operation = self._scpi.state.begin(self.laser.tune(wavelength_nm), self._finished)

    def set_speed(self, speed_nm_per_s: float) -> None:
        """Set the speed of continuous sweeps. Raises ``ScpiError`` -222 for an unavailable speed."""
        speed = round(speed_nm_per_s, 1) if self.slow else speed_nm_per_s
        low, high = SLOW_SPEEDS_NM_PER_S
        if not (low <= speed <= high if self.slow else speed in SPEEDS_NM_PER_S):
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        self.settings.speed_nm_per_s = speed

    @property
    def sweep_number(self) -> int:
        """Sweep state: 0 stopped, 1 running, 3 waiting for a trigger, 4 preparing."""
        return _STATES[self.laser.state]

    def start_sweep(self, *, repeat: bool) -> None:
        """Start the set number of sweeps, or repeat until stopped. Raises ``ScpiError`` -200 if this is impossible."""
        self.stop()
        self._start_laser_sweep()
        self._repeating = repeat
        self._operation = self._scpi.state.begin(None, self._finished)
        self._follow()

    def _start_laser_sweep(self) -> None:
        settings = self.settings
        continuous, two_way = bool(int(settings.mode) & 1), bool(int(settings.mode) & 2)
        spacing_nm = max(settings.output_step_nm, settings.speed_nm_per_s / MAX_PULSES_PER_S)
        plan = ArmedSweep(
            settings.start_nm,
            settings.stop_nm,
            spacing_nm if continuous else settings.step_nm,
            settings.speed_nm_per_s,
            continuous=continuous,
            two_way=two_way,
            cycles=max(int(settings.cycles), 1) * (2 if two_way else 1),
            dwell_s=settings.dwell_s,
            delay_s=settings.delay_s,
            pulses=_PULSES[int(settings.output)],
        )
        if plan.stop_nm <= plan.start_nm or (plan.steps + 1) * plan.cycles > MAX_LOGGED_POINTS:
            raise ScpiError(scpi_errors.EXECUTION_ERROR)
        self.laser.sweep(plan, wait=settings.external or settings.standby)

    def stop(self) -> None:
        """Stop the sweep or the tuning at the present wavelength."""
        self._repeating = False
        self.laser.stop()
        if self._operation is not None:
            self._scpi.state.abort(self._operation)
            self._operation = None

    def _finished(self) -> None:
        self._operation = None

    def soft_trigger(self) -> None:
        """Start a sweep that waits for a trigger. Raises ``ScpiError`` -200 if no sweep is waiting."""
        if not self.laser.trigger():
            raise ScpiError(scpi_errors.EXECUTION_ERROR)


LEGACY, SCPI = 0, 1
"""Numbers of the command sets."""
DARK_DBM = -99.99
"""Reading of the monitor without light, in dBm."""
NO_ALERTS = "No alerts."
_C_NM_THZ = SPEED_OF_LIGHT_M_PER_S * 1e-3
"""Speed of light in nm THz."""
_THZ: Suffixes = {name: power - 12 for name, power in FREQUENCY_HZ.items() if isinstance(power, int)}
_WAVELENGTH, _FREQUENCY = "[:SOURce]:WAVelength", "[:SOURce][:WAVelength]:FREQuency"
_SWEEP = f"{_WAVELENGTH}:SWEep"
_POWER = "[:SOURce]:POWer"
_WITHOUT_EFFECT: tuple[tuple[str, Numeric, int], ...] = (
    (f"{_WAVELENGTH}:UNIT", Numeric(0, 1, 0, integer=True), 0),
    (f"{_WAVELENGTH}:FINe", Numeric(-100.0, 100.0, 0.0), 2),
    ("[:SOURce]:COHCtrl", Numeric(0, 1, 0, integer=True), 0),
    (f"{_POWER}:ATTenuation", Numeric(0.0, 30.0, 0.0), 2),
    (f"{_POWER}:ATTenuation:AUTo", Numeric(0, 1, 1, integer=True), 0),
    ("[:SOURce]:AM:STATe", Numeric(0, 1, 0, integer=True), 0),
    ("[:SOURce]:AM:SOURce", Numeric(0, 3, 0, integer=True), 0),
    (":TRIGger:INPut[:EXTernal]:ACTive", Numeric(0, 1, 0, integer=True), 0),
    (":TRIGger:OUTPut:ACTive", Numeric(0, 1, 0, integer=True), 0),
    (":TRIGger:OUTPut:SETTing", Numeric(0, 1, 0, integer=True), 0),
    (":TRIGger:THRough", Numeric(0, 1, 0, integer=True), 0),
    (":SYSTem:COMMunicate:GPIB:ADDRess", Numeric(1, 30, 1, integer=True), 0),
    (":SYSTem:COMMunicate:GPIB:DELimiter", Numeric(0, 3, 0, integer=True), 0),
    (":DISPlay:BRIGhtness", Numeric(0, 100, 100, integer=True), 0),
)
"""Settings without effect on the light: pattern, limits and default, decimals of the reply."""
_DIGIT = "{:d}".format


@dataclass(frozen=True)
class NetworkAddress:
    """SCPI parameter for a network address: four numbers up to 255, separated by dots."""

    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the received network address."""
        del call
        if token.kind is not TokenKind.ADDRESS:
            raise ScpiError(scpi_errors.CHARACTER_NOT_ALLOWED)
        if any(int(part) > 255 for part in token.text.split(".")):
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        return token.text


@dataclass(frozen=True)
class UnitBySet:
    """SCPI number without unit in the message: nm and THz in the Legacy command set, m and Hz in the SCPI set.

    Attributes:
        legacy: Limits and suffixes in the Legacy unit, in which values are stored.
        per_legacy: Exponent of ten from the Legacy to the SCPI unit: -9 for nm to m.
        code: Returns the present command set.
        decimals: Number of decimals of a reply in the Legacy set.
    """

    legacy: Numeric
    per_legacy: int
    code: Callable[[], int]
    decimals: int
    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the received value in the Legacy unit."""
        if token.kind is TokenKind.NUMBER and not token.suffix and self.code() == SCPI:
            # Changes the exponent, so that 1.55E-6 m is exactly 1550 nm.
            token = dataclasses.replace(token, exponent=token.exponent - self.per_legacy)
        return self.legacy.parse(token, call)

    def reply(self, value: float) -> str:
        """Return the reply for a value in the Legacy unit."""
        return keysight_float(value * 10.0**self.per_legacy) if self.code() == SCPI else f"{value:.{self.decimals}f}"


@dataclass(frozen=True)
class SantecLevel:
    """SCPI parameter for a power, in the selected unit if the host sends no unit; parsed to dBm."""

    tsl: EmulatedSantecTsl
    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the received power in dBm."""
        if token.kind is TokenKind.NUMBER and not token.suffix and self.tsl.settings.in_mw:
            token = dataclasses.replace(token, suffix="MW")
        if token.suffix in POWER_W and token.suffix not in POWER_DBM:
            low, high = (w_from_dbm(limit) for limit in self.tsl.profile.power_dbm)
            return dbm_from_w(float(Numeric(low * (1 - 1e-9), high * (1 + 1e-9), None, POWER_W).parse(token, call)))
        return self.number_dbm().parse(token, call)

    def number_dbm(self) -> Numeric:
        """Return the power limits as a numeric SCPI parameter in dBm."""
        low, high = self.tsl.profile.power_dbm
        return Numeric(low, high, 0.0, POWER_DBM)


def _number(
    pattern: str, parameter: UnitBySet, read: Callable[[], float], write: Callable[[float], None]
) -> ScpiCommand:
    def run_set(call: Call) -> Reply:
        write(call.number())
        return None

    def run_query(call: Call) -> Reply:
        return parameter.reply(call.number() if call.values else read())

    return ScpiCommand(pattern, Form(run_set, (parameter,)), Form(run_query, (LimitName(parameter.legacy),)))


def _switch(pattern: str, read: Callable[[], bool], write: Callable[[bool], None]) -> ScpiCommand:
    return flag_setting(pattern, Boolean(), lambda _: read(), lambda _, on: write(on), _DIGIT)


def commands(tsl: EmulatedSantecTsl) -> Iterable[ScpiCommand]:
    """Return all SCPI commands of the laser except the common commands."""
    yield from _power(tsl)
    low, high = tsl.profile.limits_nm
    wavelength = UnitBySet(Numeric(low - 1e-9, high + 1e-9, None, LENGTH_NM), -9, lambda: tsl.code, 4)
    frequency = UnitBySet(Numeric(_C_NM_THZ / high - 1e-9, _C_NM_THZ / low + 1e-9, None, _THZ), 12, lambda: tsl.code, 5)
    yield from _positions(tsl, _WAVELENGTH, wavelength, lambda nm: nm, (low, high))
    yield from _positions(
        tsl, _FREQUENCY, frequency, lambda value: _C_NM_THZ / value, (_C_NM_THZ / high, _C_NM_THZ / low)
    )
    yield from _steps(tsl, high - low)
    yield from _sweep(tsl)
    yield from _log(tsl)
    yield from _triggers(tsl)
    yield from _settings_without_effect(tsl)
    yield query(":SYSTem:ALERt", lambda _: NO_ALERTS)
    yield query(":SYSTem:VERSion", lambda _: tsl.firmware)
    yield query(":SYSTem:LOCK", lambda _: "0")
    if not tsl.slow:
        yield from _network(tsl)
        low_nm, high_nm = (round(limit_nm) - 1000 for limit_nm in tsl.profile.limits_nm)
        yield query(":SYSTem:CODe", lambda _: f"8-{low_nm:03d}{high_nm:03d}-P-F-SF-15-0")
        yield number_setting(
            ":SYSTem:COMMunicate:CODe",
            Numeric(0, 1, 0, integer=True),
            lambda _: tsl.code,
            lambda _, value: setattr(tsl, "code", int(value)),
            lambda value: str(int(value)),
        )


def _network(tsl: EmulatedSantecTsl) -> Iterable[ScpiCommand]:
    root = ":SYSTem:COMMunicate:ETHernet"

    def address(name: str) -> ScpiCommand:
        def write(call: Call) -> Reply:
            tsl.network[name] = call.text()
            return None

        return ScpiCommand(f"{root}:{name}", Form(write, (NetworkAddress(),)), Form(lambda _: tsl.network[name]))

    yield query(f"{root}:MACaddress", lambda _: "02-00-00-00-00-01")
    yield from map(address, FACTORY_NETWORK)
    yield number_setting(
        f"{root}:PORT",
        Numeric(0, 65_535, 5000, integer=True),
        lambda _: tsl.port,
        lambda _, value: setattr(tsl, "port", int(value)),
        "{:.0f}".format,
    )


def _power(tsl: EmulatedSantecTsl) -> Iterable[ScpiCommand]:
    yield _switch(f"{_POWER}:STATe", lambda: tsl.diode, tsl.switch_diode)
    yield _switch(f"{_POWER}:SHUTter", lambda: tsl.shutter_closed, tsl.move_shutter)
    yield flag_attribute(f"{_POWER}:UNIT", lambda: tsl.settings, "in_mw", _DIGIT)

    def express(power_dbm: float) -> str:
        value = w_from_dbm(power_dbm) * 1e3 if tsl.settings.in_mw else power_dbm
        return keysight_float(value) if tsl.code == SCPI else f"{value:.2f}"

    def set_power(call: Call) -> Reply:
        tsl.laser.set_power(call.number())
        return None

    level = SantecLevel(tsl)
    reply = Form(
        lambda call: express(call.number() if call.values else tsl.laser.power_dbm), (LimitName(level.number_dbm()),)
    )
    yield ScpiCommand(f"{_POWER}[:LEVel]", Form(set_power, (level,)), reply)
    for name, limit_dbm in zip(("MINimum", "MAXimum"), tsl.profile.power_dbm, strict=True):
        yield query(f"{_POWER}[:LEVel]:{name}", lambda _, limit_dbm=limit_dbm: express(limit_dbm))  # type: ignore[misc]

    def monitor(call: Call) -> Reply:
        del call
        power_w = tsl.monitored_w()
        return express(max(dbm_from_w(power_w), DARK_DBM) if power_w > 0 else DARK_DBM)

    yield query(f"{_POWER}:ACTual[:LEVel]", monitor)


def _positions(
    tsl: EmulatedSantecTsl,
    root: str,
    parameter: UnitBySet,
    convert: Callable[[float], float],
    limits: tuple[float, float],
) -> Iterable[ScpiCommand]:
    """Return the commands for wavelength and limits in nm or THz; ``convert`` converts nm to that unit and back."""
    yield _number(root, parameter, lambda: convert(tsl.laser.wavelength_nm), lambda value: tsl.tune(convert(value)))
    yield _number(
        f"{root}:SWEep:STARt",
        parameter,
        lambda: convert(tsl.settings.start_nm),
        lambda value: setattr(tsl.settings, "start_nm", convert(value)),
    )
    yield _number(
        f"{root}:SWEep:STOP",
        parameter,
        lambda: convert(tsl.settings.stop_nm),
        lambda value: setattr(tsl.settings, "stop_nm", convert(value)),
    )
    for name, limit in zip(("MINimum", "MAXimum"), limits, strict=True):
        for pattern in (f"{root}:{name}", *(() if tsl.slow else (f"{root}:SWEep:RANGe:{name}",))):
            yield query(pattern, lambda _, limit=limit: parameter.reply(limit))  # type: ignore[misc]


def _steps(tsl: EmulatedSantecTsl, span_nm: float) -> Iterable[ScpiCommand]:
    length = UnitBySet(Numeric(1e-4, span_nm, None, LENGTH_NM), -9, lambda: tsl.code, 4)
    for pattern, name in ((f"{_SWEEP}:STEP[:WIDTh]", "step_nm"), (":TRIGger:OUTPut:STEP[:WIDTh]", "output_step_nm")):
        yield _number(
            pattern,
            length,
            lambda name=name: float(getattr(tsl.settings, name)),  # type: ignore[misc]
            lambda value, name=name: setattr(tsl.settings, name, value),  # type: ignore[misc]
        )
    frequency = UnitBySet(Numeric(2e-5, 20.0, None, _THZ), 12, lambda: tsl.code, 5)
    yield _number(
        f"{_FREQUENCY}:SWEep:STEP[:WIDTh]",
        frequency,
        lambda: tsl.settings.step_thz,
        lambda value: setattr(tsl.settings, "step_thz", value),
    )


def _sweep(tsl: EmulatedSantecTsl) -> Iterable[ScpiCommand]:
    def control(call: Call) -> Reply:
        if call.flag():
            tsl.start_sweep(repeat=False)
        else:
            tsl.stop()
        return None

    yield ScpiCommand(f"{_SWEEP}[:STATe]", Form(control, (Boolean(),)), Form(lambda _: str(tsl.sweep_number)))
    yield action(f"{_SWEEP}[:STATe]:REPeat", lambda: tsl.start_sweep(repeat=True))
    yield query(f"{_SWEEP}:COUNt", lambda _: str(tsl.laser.completed_passes))
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
        yield number_attribute(f"{_SWEEP}:{leaf}", parameter, lambda: tsl.settings, name, f"{{:.{decimals}f}}".format)


def _log(tsl: EmulatedSantecTsl) -> Iterable[ScpiCommand]:
    """Return the commands for the wavelength log: int32 in 0.1 pm (Legacy set) or float64 in m (SCPI set)."""

    def data(call: Call) -> Reply:
        del call
        nm = tsl.laser.logged_nm
        # Fixed-point 0.1 pm in the old set, IEEE doubles of metres in the new one.
        values = (nm * 1e-9).astype("<f8") if tsl.code == SCPI else np.rint(nm * 1e4).astype("<i4")
        return definite_block(values.tobytes())

    yield query(":READout:POINts", lambda _: str(len(tsl.laser.logged_nm)))
    yield query(":READout:DATa", data)

    def powers(call: Call) -> Reply:
        del call
        dbm = np.maximum(10.0 * np.log10(np.maximum(tsl.laser.logged_w, 1e-30) * 1e3), DARK_DBM)
        return definite_block(dbm.astype("<f8" if tsl.code == SCPI else "<f4").tobytes())

    if not tsl.slow:
        yield query(":READout:DATa:POWer", powers)


def _settings_without_effect(tsl: EmulatedSantecTsl) -> Iterable[ScpiCommand]:
    for pattern, parameter, decimals in _WITHOUT_EFFECT:
        yield number_setting(
            pattern,
            parameter,
            lambda _, pattern=pattern, parameter=parameter: tsl.settings.without_effect.get(
                pattern, parameter.default or 0.0
            ),  # type: ignore[misc]
            lambda _, value, pattern=pattern: tsl.settings.without_effect.__setitem__(pattern, value),  # type: ignore[misc]
            f"{{:.{decimals}f}}".format,
        )
    yield action(
        f"{_WAVELENGTH}:FINetuning:DISable", lambda: tsl.settings.without_effect.pop(f"{_WAVELENGTH}:FINe", None)
    )
    offset = UnitBySet(Numeric(-0.1, 0.1, None, LENGTH_NM), -9, lambda: tsl.code, 4)
    name = f"{_WAVELENGTH}:OFFSet"
    yield _number(
        name,
        offset,
        lambda: tsl.settings.without_effect.get(name, 0.0),
        lambda value: tsl.settings.without_effect.__setitem__(name, value),
    )


def _triggers(tsl: EmulatedSantecTsl) -> Iterable[ScpiCommand]:
    timing = Numeric(0, 3, 0, integer=True)
    yield number_attribute(":TRIGger:OUTPut", timing, lambda: tsl.settings, "output", "{:.0f}".format)
    yield flag_attribute(":TRIGger:INPut:EXTernal", lambda: tsl.settings, "external", _DIGIT)
    yield flag_attribute(":TRIGger:INPut:STANdby", lambda: tsl.settings, "standby", _DIGIT)
    for pattern in (":TRIGger:INPut:SOFTtrigger", f"{_SWEEP}:SOFTtrigger"):  # of the manual, of a sample
        yield action(pattern, tsl.soft_trigger)
