"""Emulated Thorlabs PM100D, PM100USB and PM400: one SCPI family of single-channel power and energy meters.

Command language: PM100D, PM100USB and PM400 manuals. Choices where the manuals are silent: the error queue has ten
places, with the texts of the maker's 4000 series. Zeroing with light fails with -200 and keeps the old zero. A power of
zero or less reads 9.91E37 in dBm. The bits of STATus:OPERation are 0 zeroing, 4 measuring, 9 measurement ready; bit 3
of STATus:QUEStionable is over-range. The status groups AUXiliary and MEASurement are always 0.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.meters import thorlabs_pm_sensor as physics
from lumion_hw.emulator.meters.thorlabs_pm_sensor import (
    Pm100Sensor,
    SensorFlag,
    SensorKind,
    SensorProfile,
    SensorSample,
)
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Choice,
    Form,
    Numeric,
    Operation,
    PendingReply,
    Profile,
    RegisterGroup,
    Reply,
    ScpiCommand,
    ScpiDevice,
    ScpiError,
    ScpiInstrument,
    action,
    errors as scpi_errors,
    event,
    flag_attribute,
    flag_setting,
    group_commands,
    number_attribute,
    number_setting,
    query,
    word_setting,
)
from lumion_hw.emulator.scpi.formats import plain_float, plain_int, quoted
from lumion_hw.emulator.scpi.units import (
    CURRENT_A,
    ENERGY_J,
    LENGTH_MM,
    LENGTH_NM,
    PERCENT,
    POWER_W,
    RATIO_DB,
    TIME_S,
    VOLTAGE_V,
    Suffixes,
)
from lumion_hw.errors import ConfigError
from lumion_hw.quantities import ratio_from_db

OVER_RANGE = 9.9e37
NOT_A_NUMBER = 9.91e37
MODELS = ("PM100D", "PM100A", "PM100USB", "PM400", "PM101", "PM160")
INTEGRATED = ("PM160",)
"""Models with a built-in sensor, which reports the device name (as pyLabLib found on a real device)."""

ZEROING_BIT, MEASURING_BIT, READY_BIT = 0, 4, 9
POWER_BIT = 3
AUXILIARY_BIT, MEASUREMENT_BIT = 0, 1
"""Bits of the status groups AUXiliary and MEASurement in the status byte."""

QUANTITIES: dict[str, tuple[SensorKind, ...]] = {
    "POW": (SensorKind.PHOTODIODE, SensorKind.THERMOPILE),
    "CURR": (SensorKind.PHOTODIODE,),
    "VOLT": (SensorKind.THERMOPILE, SensorKind.PYRO),
    "ENER": (SensorKind.PYRO,),
    "PDEN": (SensorKind.PHOTODIODE, SensorKind.THERMOPILE),
    "EDEN": (SensorKind.PYRO,),
    "FREQ": (SensorKind.PHOTODIODE, SensorKind.PYRO),
    "TEMP": tuple(SensorKind),
    "RES": tuple(SensorKind),
}
"""Measurable quantities by keyword in ``CONFigure?``, with the suitable sensors."""
REFERENCED = ("POW", "CURR", "VOLT", "ENER")
"""Quantities with a range and a reference for relative readings."""


class ThorlabsPm100(ScpiDevice):
    """Emulated Thorlabs PM100 console with a power sensor.

    Args:
        sensor: Connected sensor; ``None`` for none.
        model: One of :data:`MODELS`, else ``ConfigError``.
        lenient: Whether to accept also the undocumented headers in
            :data:`~lumion_hw.emulator.meters.thorlabs_pm.MISSPELLINGS`.

    Attributes:
        zero_fails: Whether zeroing fails even in the dark.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        light: Callable[[], Light],
        *,
        sensor: SensorProfile | None = physics.S154C,
        model: str = "PM100D",
        serial: str = "P0000001",
        firmware: str = "2.4.0",
        lenient: bool = False,
    ) -> None:
        if model not in MODELS:
            raise ConfigError(f"there is no model {model}", device=name, hint=f"Use one of {', '.join(MODELS)}.")
        profile = Profile(
            f"Thorlabs,{model},{serial},{firmware}",
            queue_depth=10,
            integer="{:d}".format,
            error_texts={scpi_errors.QUEUE_OVERFLOW: "Error queue overflow"},
            aliases=MISSPELLINGS if lenient else {},
        )
        self.clock = clock
        self.model = model
        self.zero_fails = False
        self._rng = rng
        self._light = light
        super().__init__(name, clock)
        self._scpi = ScpiInstrument(name, clock, profile, self._reset, self._update_sensor, self._next_update)
        self.state = self._scpi.state
        self.auxiliary, self.measurement = RegisterGroup(), RegisterGroup()
        self.state.status.extra.update({AUXILIARY_BIT: self.auxiliary, MEASUREMENT_BIT: self.measurement})
        self._plugged: Pm100Sensor | None = None
        self._unplugged_profile = sensor
        self.calendar: dict[str, int] = {}
        self._reset_console()
        self.plug(sensor)
        self._scpi.declare(commands(self))

    def _reset_console(self) -> None:
        self.quantity = "POW"
        self.in_dbm = False
        self.reference = dict.fromkeys(REFERENCED, 0.0)
        self.relative = dict.fromkeys(REFERENCED, False)
        self.console: dict[str, float] = {"brightness": 1.0, "contrast": 0.5, "beeper": 0.0, "line_hz": 50.0}
        self.adapter = "PHOTodiode"
        self._last: SensorSample | None = None
        self._measuring: Operation | None = None
        self._zeroing: Operation | None = None

    def _update_sensor(self) -> None:
        due_s = self._next_update()
        if self._plugged is not None and due_s is not None and due_s <= self.clock.now():
            self._plugged.update()

    def advance(self) -> None:
        """Advance the meter to the present time."""
        if self._plugged is not None and self._plugged.next_update_s() is not None:
            self._plugged.update()
        super().advance()

    def _next_update(self) -> float | None:
        return None if self._plugged is None else self._plugged.next_update_s()

    def plug(self, profile: SensorProfile | None) -> None:
        """Connect another sensor, or disconnect the present sensor."""
        self._abort_all()
        if profile is not None and self.model in INTEGRATED:
            # pyLabLib recognizes such a meter by the name of its sensor.
            profile = dataclasses.replace(profile, name=self.model)
        self._plugged = None if profile is None else Pm100Sensor(profile, self._light, self._rng, self.clock.now)
        self.quantity = "ENER" if profile is not None and profile.kind is SensorKind.PYRO else "POW"
        self._last = None

    def unplug_sensor(self) -> None:
        """Disconnect the sensor; no effect without a sensor."""
        if self._plugged is not None:
            self._unplugged_profile = self._plugged.profile
            self.plug(None)

    def plug_sensor(self) -> None:
        """Connect the disconnected sensor again; no effect with a sensor."""
        if self._plugged is None:
            self.plug(self._unplugged_profile)

    @property
    def plugged(self) -> Pm100Sensor | None:
        """The connected sensor."""
        return self._plugged

    def sensor(self, *kinds: SensorKind) -> Pm100Sensor:
        """Return the sensor. Raises ``ScpiError`` -113 if the sensor is not of one of the ``kinds``."""
        if self._plugged is None or (kinds and self._plugged.profile.kind not in kinds):
            # The command tree contains only quantities that the connected sensor can measure.
            raise ScpiError(scpi_errors.UNDEFINED_HEADER)
        return self._plugged

    def _reset(self) -> None:
        self._reset_console()
        if self._plugged is not None:
            self._plugged.reset()
            if self._plugged.profile.kind is SensorKind.PYRO:
                self.quantity = "ENER"
        self.state.status.reset_conditions()

    # -- measuring

    def configure(self, quantity: str) -> None:
        """Select the quantity that ``READ?`` measures."""
        self.sensor(*QUANTITIES[quantity])
        self.quantity = quantity

    def initiate(self) -> None:
        """Start one reading in the background. Raises ``ScpiError`` -213 if a reading is already in progress."""
        if self._measuring is not None:
            raise ScpiError(scpi_errors.INIT_IGNORED)
        sensor, start_signal, duration_s = self._start_reading()
        operation = self.state.status.operation

        def finish() -> None:
            self._measuring = None
            self._last = sensor.sample(start_signal)
            operation.set_bit(MEASURING_BIT, False)
            operation.set_bit(READY_BIT, True)

        operation.set_bit(READY_BIT, False)
        operation.set_bit(MEASURING_BIT, True)
        self._measuring = self.state.begin(duration_s, finish)

    def abort(self) -> None:
        """Abort the reading in the background."""
        if self._measuring is not None:
            self.state.abort(self._measuring)
            self._measuring = None
        self.state.status.operation.set_bit(MEASURING_BIT, False)
        self.state.status.operation.set_bit(READY_BIT, False)

    def read(self) -> PendingReply:
        """Start a new sample, and reply the value when the sample is complete."""
        self.abort()
        sensor, start_signal, duration_s = self._start_reading()
        # READ? always starts a new sample, even during an INITiate.
        due_s = self.clock.now() + duration_s

        def finish() -> Reply:
            self._last = sensor.sample(start_signal)
            return self._express(sensor, self._last)

        return PendingReply(lambda: due_s, finish)

    def fetch(self) -> Reply:
        """Reply the last sample."""
        sensor = self.sensor(*QUANTITIES[self.quantity])
        if self._last is None:
            start_signal = sensor.update()
            sensor.settle_range()
            self._last = sensor.sample(start_signal)
        return self._express(sensor, self._last)

    def _start_reading(self) -> tuple[Pm100Sensor, float, float]:
        """Start a reading. Return the sensor, the present signal, and the duration of the reading."""
        sensor = self.sensor(*QUANTITIES[self.quantity])
        start_signal = sensor.update()
        changed = sensor.settle_range()
        # A reading waits for zeroing, which occupies the amplifier.
        waiting_s = max((self._zeroing.end_s or 0.0) - self.clock.now(), 0.0) if self._zeroing else 0.0
        return sensor, start_signal, waiting_s + sensor.averaging_s + physics.RANGE_CHANGE_S * changed

    def _express(self, sensor: Pm100Sensor, sample: SensorSample) -> str:
        self.state.status.questionable.set_bit(POWER_BIT, sample.native is None)
        light_independent = {"FREQ": sample.repetition_hz, "TEMP": physics.TEMPERATURE_C, "RES": physics.PRESENCE_OHM}
        # Valid for any light, even over-range.
        if self.quantity in light_independent:
            return plain_float(light_independent[self.quantity])
        if sample.native is None:
            return plain_float(OVER_RANGE)
        return plain_float(self._convert(sensor, sample.native))

    def _convert(self, sensor: Pm100Sensor, native: float) -> float:
        if self.quantity in ("CURR", "VOLT"):
            return self._relative_to_reference(native)
        value = native / sensor.response * ratio_from_db(sensor.settings.loss_db)
        if self.quantity in ("PDEN", "EDEN"):
            # The radius is 0.05 cm per mm of diameter; densities are per cm².
            return value / (math.pi * (0.05 * sensor.settings.beam_mm) ** 2)
        if self.quantity == "POW" and self.in_dbm:
            level = self.reference["POW"] if self.relative["POW"] else 1e-3
            return 10.0 * math.log10(value / level) if value > 0 < level else NOT_A_NUMBER
        return self._relative_to_reference(value)

    def _relative_to_reference(self, value: float) -> float:
        return value - self.reference[self.quantity] if self.relative[self.quantity] else value

    # -- zeroing

    @property
    def zeroing(self) -> bool:
        """Whether zeroing is in progress."""
        return self._zeroing is not None

    def start_zero(self) -> None:
        """Start zeroing. Raises ``ScpiError`` -221 during zeroing or a reading."""
        sensor = self.sensor()
        if self._zeroing is not None or self._measuring is not None:
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
        dark = sensor.is_dark()
        operation = self.state.status.operation

        def finish() -> None:
            self._zeroing = None
            operation.set_bit(ZEROING_BIT, False)
            # Dark at both ends: light that comes during zeroing would be mistaken for offset.
            if dark and sensor.is_dark() and not self.zero_fails:
                sensor.store_zero()
            else:
                self.state.report(scpi_errors.EXECUTION_ERROR)

        operation.set_bit(ZEROING_BIT, True)
        self._zeroing = self.state.begin(physics.ZEROING_S, finish)

    def abort_zero(self) -> None:
        """Abort zeroing. The previous zero stays valid."""
        if self._zeroing is not None:
            self.state.abort(self._zeroing)
            self._zeroing = None
        self.state.status.operation.set_bit(ZEROING_BIT, False)

    def _abort_all(self) -> None:
        self.abort()
        self.abort_zero()


_PD, _THERMAL, _PYRO = SensorKind.PHOTODIODE, SensorKind.THERMOPILE, SensorKind.PYRO
_RESPONSE: Suffixes = {"A": 0, "A/W": 0, "V/W": 0, "V/J": 0, "V": 0}
_FREQUENCY_HZ = (1.0, 100e3)
_ADAPTERS = ("PHOTodiode", "THERmal", "PYRo")

_LONG = {
    "POW": "POWer",
    "CURR": "CURRent[:DC]",
    "VOLT": "VOLTage[:DC]",
    "ENER": "ENERgy",
    "PDEN": "PDENsity",
    "EDEN": "EDENsity",
    "FREQ": "FREQuency",
    "TEMP": "TEMPerature",
    "RES": "RESistance",
}
_RANGED: dict[str, tuple[str, Suffixes, tuple[SensorKind, ...]]] = {
    "POW": ("[:SENSe]:POWer[:DC]", POWER_W, (_PD, _THERMAL)),
    "CURR": ("[:SENSe]:CURRent[:DC]", CURRENT_A, (_PD,)),
    "VOLT": ("[:SENSe]:VOLTage[:DC]", VOLTAGE_V, (_THERMAL, _PYRO)),
    "ENER": ("[:SENSe]:ENERgy", ENERGY_J, (_PYRO,)),
}

MISSPELLINGS: Mapping[str, str] = {
    "[:SENSe]:CORRection:WAVE": "[:SENSe]:CORRection:WAVelength",
    "[:SENSe]:RANGe:AUTO": "[:SENSe]:POWer[:DC]:RANGe:AUTO",
    "[:SENSe]:POWer[:DC]:REFerence:VALue": "[:SENSe]:POWer[:DC]:REFerence",
    "[:SENSe]:CURRent[:DC]:REFerence:VALue": "[:SENSe]:CURRent[:DC]:REFerence",
    "[:SENSe]:ENERgy:REFerence:VALue": "[:SENSe]:ENERgy:REFerence",
    "[:SENSe]:VOLTage[:DC]:STATe": "[:SENSe]:VOLTage[:DC]:REFerence:STATe",
    ":STATus:QUEStionable:PRESet": ":STATus:PRESet",
    **{
        f":STATus:AUXillary{leaf}": f":STATus:AUXiliary{leaf}"
        for leaf in ("[:EVENt]", ":CONDition", ":ENABle", ":PTRansition", ":NTRansition")
    },
}
"""Undocumented headers in manuals and public clients, with the documented equivalents."""


def commands(meter: ThorlabsPm100) -> Iterable[ScpiCommand]:
    """Return all SCPI commands of the meter family except the common commands."""
    yield from _measurement(meter)
    for quantity in _RANGED:
        yield from _ranged(meter, quantity)
    yield from _correction(meter)
    yield from _zero(meter)
    yield from _input(meter)
    yield from _system(meter)
    integer = meter.state.profile.integer
    yield from group_commands(":STATus:AUXiliary", lambda _: meter.auxiliary, integer)
    yield from group_commands(":STATus:MEASurement", lambda _: meter.measurement, integer)


def _limit(meter: ThorlabsPm100, value: float, *kinds: SensorKind) -> Callable[[Call], float]:

    def limit(call: Call) -> float:
        del call
        meter.sensor(*kinds)
        return value

    return limit


def _bounded(meter: ThorlabsPm100, kind: SensorKind, limits: tuple[float, float, float], unit: Suffixes) -> Numeric:
    low, high, default = (_limit(meter, value, kind) for value in limits)
    return Numeric(low, high, default, unit)


def _measurement(meter: ThorlabsPm100) -> Iterable[ScpiCommand]:
    def configure(quantity: str) -> None:
        meter.abort()
        meter.configure(quantity)

    for quantity, long in _LONG.items():

        def measure(call: Call, quantity: str = quantity) -> object:
            del call
            configure(quantity)
            return meter.read()

        yield event(f":CONFigure[:SCALar]:{long}", lambda _, q=quantity: configure(q))  # type: ignore[misc]
        yield query(f":MEASure[:SCALar]:{long}", measure)  # type: ignore[arg-type]
    yield query(":CONFigure", lambda _: meter.quantity)
    yield query(":READ", lambda _: meter.read())
    yield query(":FETCh", lambda _: meter.fetch())
    yield action(":INITiate[:IMMediate]", meter.initiate)
    yield action(":ABORt", meter.abort)


def _ranged(meter: ThorlabsPm100, quantity: str) -> Iterable[ScpiCommand]:
    root, unit, kinds = _RANGED[quantity]

    def scale() -> float:
        return 1.0 if quantity in ("CURR", "VOLT") else meter.sensor(*kinds).response

    def limit(index: int) -> Callable[[Call], float]:
        return lambda _: meter.sensor(*kinds).profile.ranges[index] / scale()

    def select(call: Call, value: float) -> None:
        del call
        meter.sensor(*kinds).select_range(value * scale())

    def present(call: Call) -> float:
        del call
        sensor = meter.sensor(*kinds)
        return sensor.profile.ranges[sensor.settings.range_index] / scale()

    def set_reference(call: Call, value: float) -> None:
        del call
        meter.reference[quantity] = value

    def set_relative(call: Call, on: bool) -> None:
        del call
        meter.sensor(*kinds)
        meter.relative[quantity] = on

    bounded = Numeric(limit(0), limit(-1), limit(-1), unit)
    yield number_setting(f"{root}:RANGe[:UPPer]", bounded, present, select, plain_float)
    if quantity != "ENER":
        yield flag_attribute(f"{root}:RANGe:AUTO", lambda: meter.sensor(*kinds).settings, "automatic", plain_int)
    none = _limit(meter, 0.0, *kinds)
    reference = Numeric(none, limit(-1), none, unit)
    yield number_setting(
        f"{root}:REFerence",
        reference,
        lambda _: (meter.sensor(*kinds), meter.reference[quantity])[1],
        set_reference,
        plain_float,
    )
    yield flag_setting(
        f"{root}:REFerence:STATe",
        Boolean(),
        lambda _: (meter.sensor(*kinds), meter.relative[quantity])[1],
        set_relative,
        plain_int,
    )


def _setting(
    meter: ThorlabsPm100, pattern: str, parameter: Numeric, attribute: str, *kinds: SensorKind, as_integer: bool = False
) -> ScpiCommand:
    reply = (lambda v: plain_int(int(v))) if as_integer else plain_float
    return number_attribute(pattern, parameter, lambda: meter.sensor(*kinds).settings, attribute, reply)


def _correction(meter: ThorlabsPm100) -> Iterable[ScpiCommand]:
    def limit_nm(index: int) -> Callable[[Call], float]:
        return lambda _: meter.sensor().profile.limits_nm[index]

    wavelength = Numeric(limit_nm(0), limit_nm(1), lambda _: meter.sensor().profile.default_nm, LENGTH_NM, silent=True)
    yield _setting(meter, "[:SENSe]:CORRection:WAVelength", wavelength, "wavelength_nm")
    loss = Numeric(-60.0, 60.0, 0.0, RATIO_DB)
    yield _setting(meter, "[:SENSe]:CORRection[:LOSS[:INPut[:MAGNitude]]]", loss, "loss_db")
    beam = Numeric(0.1, 100.0, 9.5, LENGTH_MM)
    yield _setting(meter, "[:SENSe]:CORRection:BEAMdiameter", beam, "beam_mm")
    averages = Numeric(1, 10_000, 1, integer=True)
    yield _setting(meter, "[:SENSe]:AVERage[:COUNt]", averages, "averages", as_integer=True)
    yield _response(meter, "[:SENSe]:CORRection:POWer[:PDIode][:RESPonse]", _PD)
    yield _response(meter, "[:SENSe]:CORRection:POWer:THERmopile[:RESPonse]", _THERMAL)
    yield _response(meter, "[:SENSe]:CORRection:ENERgy[:PYRo][:RESPonse]", _PYRO)

    yield word_setting(
        "[:SENSe]:POWer[:DC]:UNIT",
        Choice(("W", "DBM")),
        lambda _: "DBM" if meter.in_dbm else "W",
        lambda _, unit: setattr(meter, "in_dbm", unit == "DBM"),
    )
    yield query("[:SENSe]:FREQuency:RANGe[:UPPer]", lambda _: plain_float(_FREQUENCY_HZ[1]))
    yield query("[:SENSe]:FREQuency:RANGe:LOWer", lambda _: plain_float(_FREQUENCY_HZ[0]))


def _response(meter: ThorlabsPm100, pattern: str, kind: SensorKind) -> ScpiCommand:
    """Return the command for the sensor's response. A sensor with stored response accepts no other value."""

    def limit(settable: float) -> Callable[[Call], float]:
        def value(call: Call) -> float:
            del call
            sensor = meter.sensor(kind)
            # A sensor with memory has one response, which MIN, MAX and DEF all return.
            return settable if SensorFlag.RESPONSE_SETTABLE in sensor.profile.flags else sensor.response

        return value

    def write(call: Call, value: float) -> None:
        del call
        sensor = meter.sensor(kind)
        if SensorFlag.RESPONSE_SETTABLE not in sensor.profile.flags:
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
        sensor.settings.response = value

    parameter = Numeric(limit(1e-3), limit(1e3), limit(1.0), _RESPONSE)
    return number_setting(pattern, parameter, lambda _: meter.sensor(kind).response, write, plain_float)


def _zero(meter: ThorlabsPm100) -> Iterable[ScpiCommand]:
    root = "[:SENSe]:CORRection:COLLect:ZERO"
    yield action(f"{root}[:INITiate]", meter.start_zero)
    yield action(f"{root}:ABORt", meter.abort_zero)
    yield query(f"{root}:STATe", lambda _: plain_int(int(meter.zeroing)))
    yield query(f"{root}:MAGNitude", lambda _: plain_float(meter.sensor().zero))


def _input(meter: ThorlabsPm100) -> Iterable[ScpiCommand]:
    def settings(kind: SensorKind) -> Callable[[], object]:
        return lambda: meter.sensor(kind).settings

    for pattern, attribute, kind in (
        (":INPut[:PDIode]:FILTer[:LPASs][:STATe]", "low_bandwidth", _PD),
        (":INPut:THERmopile:ACCelerator[:STATe]", "accelerated", _THERMAL),
    ):
        yield flag_attribute(pattern, settings(kind), attribute, plain_int)
    tau = _bounded(meter, _THERMAL, (0.1, 10.0, 1.0), TIME_S)
    yield _setting(meter, ":INPut:THERmopile:ACCelerator:TAU", tau, "tau_s", _THERMAL)
    threshold = _bounded(meter, _PYRO, (1.0, 90.0, 20.0), PERCENT)
    yield _console(meter, "[:SENSe]:PEAKdetector:THReshold", threshold, "threshold", _PYRO)

    yield word_setting(
        ":INPut:ADAPter[:TYPE]",
        Choice(_ADAPTERS),
        lambda _: meter.adapter,
        lambda _, adapter: setattr(meter, "adapter", adapter),
    )


def _console(
    meter: ThorlabsPm100, pattern: str, parameter: Numeric, key: str, *kinds: SensorKind, as_integer: bool = False
) -> ScpiCommand:
    def write(call: Call, value: float) -> None:
        del call
        if kinds:
            meter.sensor(*kinds)
        meter.console[key] = value

    def read(call: Call) -> float:
        if kinds:
            meter.sensor(*kinds)
        return meter.console.get(key, parameter.named_limit("DEF", call))

    return number_setting(pattern, parameter, read, write, (lambda v: plain_int(int(v))) if as_integer else plain_float)


def _system(meter: ThorlabsPm100) -> Iterable[ScpiCommand]:
    def identify(call: Call) -> Reply:
        del call
        if meter.plugged is None:
            return "no sensor,,no sensor,0,0,0"
        profile = meter.plugged.profile
        fields = (profile.name, profile.serial, profile.calibrated, profile.kind.value, profile.subtype, profile.flags)
        return ",".join(str(int(field)) if isinstance(field, int) else field for field in fields)

    def set_line(call: Call, value: float) -> None:
        del call
        if value not in (50.0, 60.0):
            raise ScpiError(scpi_errors.ILLEGAL_PARAMETER_VALUE)
        meter.console["line_hz"] = value

    yield query(":SYSTem:SENSor:IDN", identify)
    yield query(":CALibration:STRing", lambda _: quoted(meter.sensor().profile.calibrated))
    yield event(":SYSTem:BEEPer[:IMMediate]", lambda _: None)
    yield flag_setting(
        ":SYSTem:BEEPer:STATe",
        Boolean(),
        lambda _: bool(meter.console["beeper"]),
        lambda _, on: meter.console.__setitem__("beeper", float(on)),
        plain_int,
    )
    line = Numeric(50, 60, 50, {"HZ": 0}, integer=True)
    yield number_setting(
        ":SYSTem:LFRequency", line, lambda _: meter.console["line_hz"], set_line, lambda v: plain_int(int(v))
    )
    yield _triple(meter, ":SYSTem:DATE", "date", ((2000, 2099), (1, 12), (1, 31)), (2025, 1, 1))
    yield _triple(meter, ":SYSTem:TIME", "time", ((0, 23), (0, 59), (0, 59)), (0, 0, 0))
    yield _console(meter, ":DISPlay:BRIGhtness", Numeric(0.0, 1.0, 1.0), "brightness")
    if meter.model == "PM100D":
        yield _console(meter, ":DISPlay:CONTrast", Numeric(0.0, 1.0, 0.5), "contrast")


def _triple(
    meter: ThorlabsPm100, pattern: str, key: str, limits: tuple[tuple[int, int], ...], start: tuple[int, ...]
) -> ScpiCommand:
    names = [f"{key} {i}" for i in range(3)]

    def write(call: Call) -> Reply:
        meter.calendar.update({name: call.integer(i) for i, name in enumerate(names)})
        return None

    def read(call: Call) -> Reply:
        del call
        return ",".join(str(meter.calendar.get(name, start[i])) for i, name in enumerate(names))

    parameters = tuple(Numeric(low, high, low, integer=True) for low, high in limits)
    return ScpiCommand(pattern, Form(write, parameters), Form(read))
