"""The command tree of the Thorlabs PM100 family, as data (instrument facts, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from lumion_hw.emulator.meters.pm100_sensor import SensorFlag, SensorKind
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Choice,
    Form,
    Numeric,
    Reply,
    ScpiCommand,
    ScpiError,
    event,
    flag_setting,
    group_commands,
    number_setting,
    query,
)
from lumion_hw.emulator.scpi import errors as scpi_errors
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

if TYPE_CHECKING:
    from lumion_hw.emulator.meters.pm100 import ThorlabsPm100

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
"""Spellings that manuals' introductions and public clients use, and the documented headers they stand for."""


def commands(meter: ThorlabsPm100) -> Iterable[ScpiCommand]:
    """Return every command of the family but the common ones."""
    yield from _measurement(meter)
    for quantity in _RANGED:
        yield from _ranged(meter, quantity)
    yield from _correction(meter)
    yield from _zero(meter)
    yield from _input(meter)
    yield from _system(meter)
    integer = meter.state.profile.integer
    yield from group_commands(":STATus:AUXiliary", meter.auxiliary, integer)
    yield from group_commands(":STATus:MEASurement", meter.measurement, integer)


def _does(action: Callable[[], None]) -> Callable[[Call], Reply]:
    def run(call: Call) -> Reply:
        del call
        action()
        return None

    return run


def _limit(meter: ThorlabsPm100, value: float, *kinds: SensorKind) -> Callable[[Call], float]:
    """A fixed limit of a setting that only some sensors have."""

    def known(call: Call) -> float:
        del call
        meter.sensor(*kinds)
        return value

    return known


def _bounded(meter: ThorlabsPm100, kind: SensorKind, limits: tuple[float, float, float], unit: Suffixes) -> Numeric:
    """A number with minimum, maximum and default that only one kind of sensor has."""
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
    yield event(":INITiate[:IMMediate]", _does(meter.initiate))
    yield event(":ABORt", _does(meter.abort))


def _ranged(meter: ThorlabsPm100, quantity: str) -> Iterable[ScpiCommand]:
    """Ranges and references: one amplifier, whose range is told in the unit of each quantity."""
    root, unit, kinds = _RANGED[quantity]

    def scale() -> float:
        """Native unit per unit of this quantity."""
        return 1.0 if quantity in ("CURR", "VOLT") else meter.sensor(*kinds).response

    def limit(index: int) -> Callable[[Call], float]:
        return lambda _: meter.sensor(*kinds).profile.ranges[index] / scale()

    def choose(call: Call, value: float) -> None:
        del call
        meter.sensor(*kinds).choose_range(value * scale())

    def present(call: Call) -> float:
        del call
        sensor = meter.sensor(*kinds)
        return sensor.profile.ranges[sensor.settings.range_index] / scale()

    def set_automatic(call: Call, on: bool) -> None:
        del call
        meter.sensor(*kinds).settings.automatic = on

    def set_reference(call: Call, value: float) -> None:
        del call
        meter.reference[quantity] = value

    def set_relative(call: Call, on: bool) -> None:
        del call
        meter.sensor(*kinds)
        meter.relative[quantity] = on

    bounded = Numeric(limit(0), limit(-1), limit(-1), unit)
    yield number_setting(f"{root}:RANGe[:UPPer]", bounded, present, choose, plain_float)
    if quantity != "ENER":
        yield flag_setting(
            f"{root}:RANGe:AUTO",
            Boolean(),
            lambda _: meter.sensor(*kinds).settings.automatic,
            set_automatic,
            plain_int,
        )
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
    meter: ThorlabsPm100, pattern: str, parameter: Numeric, attribute: str, *kinds: SensorKind, whole: bool = False
) -> ScpiCommand:
    def write(call: Call, value: float) -> None:
        del call
        setattr(meter.sensor(*kinds).settings, attribute, value)

    def read(call: Call) -> float:
        del call
        return float(getattr(meter.sensor(*kinds).settings, attribute))

    return number_setting(pattern, parameter, read, write, (lambda v: plain_int(int(v))) if whole else plain_float)


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
    yield _setting(meter, "[:SENSe]:AVERage[:COUNt]", averages, "averages", whole=True)
    yield _response(meter, "[:SENSe]:CORRection:POWer[:PDIode][:RESPonse]", _PD)
    yield _response(meter, "[:SENSe]:CORRection:POWer:THERmopile[:RESPonse]", _THERMAL)
    yield _response(meter, "[:SENSe]:CORRection:ENERgy[:PYRo][:RESPonse]", _PYRO)

    def choose_unit(call: Call) -> Reply:
        meter.in_dbm = call.text() == "DBM"
        return None

    unit = Form(choose_unit, (Choice(("W", "DBM")),))
    yield ScpiCommand("[:SENSe]:POWer[:DC]:UNIT", unit, Form(lambda _: "DBM" if meter.in_dbm else "W"))
    yield query("[:SENSe]:FREQuency:RANGe[:UPPer]", lambda _: plain_float(_FREQUENCY_HZ[1]))
    yield query("[:SENSe]:FREQuency:RANGe:LOWer", lambda _: plain_float(_FREQUENCY_HZ[0]))


def _response(meter: ThorlabsPm100, pattern: str, kind: SensorKind) -> ScpiCommand:
    """Only the response of a sensor without memory can be set; the limits of the others are their response."""

    def limit(settable: float) -> Callable[[Call], float]:
        def value(call: Call) -> float:
            del call
            sensor = meter.sensor(kind)
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
    yield event(f"{root}[:INITiate]", _does(meter.start_zero))
    yield event(f"{root}:ABORt", _does(meter.abort_zero))
    yield query(f"{root}:STATe", lambda _: plain_int(int(meter.zeroing)))
    yield query(f"{root}:MAGNitude", lambda _: plain_float(meter.sensor().zero))


def _input(meter: ThorlabsPm100) -> Iterable[ScpiCommand]:
    def switch(attribute: str, kind: SensorKind) -> tuple[Callable[[Call], bool], Callable[[Call, bool], None]]:
        def write(call: Call, on: bool) -> None:
            del call
            setattr(meter.sensor(kind).settings, attribute, on)

        return lambda _: bool(getattr(meter.sensor(kind).settings, attribute)), write

    for pattern, attribute, kind in (
        (":INPut[:PDIode]:FILTer[:LPASs][:STATe]", "low_bandwidth", _PD),
        (":INPut:THERmopile:ACCelerator[:STATe]", "accelerated", _THERMAL),
    ):
        yield flag_setting(pattern, Boolean(), *switch(attribute, kind), plain_int)
    tau = _bounded(meter, _THERMAL, (0.1, 10.0, 1.0), TIME_S)
    yield _setting(meter, ":INPut:THERmopile:ACCelerator:TAU", tau, "tau_s", _THERMAL)
    threshold = _bounded(meter, _PYRO, (1.0, 90.0, 20.0), PERCENT)
    yield _console(meter, "[:SENSe]:PEAKdetector:THReshold", threshold, "threshold", _PYRO)

    def choose_adapter(call: Call) -> Reply:
        meter.adapter = call.text()
        return None

    short = "".join
    yield ScpiCommand(
        ":INPut:ADAPter[:TYPE]",
        Form(choose_adapter, (Choice(_ADAPTERS),)),
        Form(lambda _: short(letter for letter in meter.adapter if letter.isupper())),
    )


def _console(
    meter: ThorlabsPm100, pattern: str, parameter: Numeric, key: str, *kinds: SensorKind, whole: bool = False
) -> ScpiCommand:
    """A setting that no reading depends on."""

    def write(call: Call, value: float) -> None:
        del call
        if kinds:
            meter.sensor(*kinds)
        meter.console[key] = value

    def read(call: Call) -> float:
        if kinds:
            meter.sensor(*kinds)
        return meter.console.get(key, parameter.named("DEF", call))

    return number_setting(pattern, parameter, read, write, (lambda v: plain_int(int(v))) if whole else plain_float)


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
    """Three integers: a date or a time of day, as set (the emulated calendar stands still)."""
    names = [f"{key} {place}" for place in range(3)]

    def write(call: Call) -> Reply:
        meter.calendar.update({name: call.integer(place) for place, name in enumerate(names)})
        return None

    def read(call: Call) -> Reply:
        del call
        return ",".join(str(meter.calendar.get(name, start[place])) for place, name in enumerate(names))

    parameters = tuple(Numeric(low, high, low, integer=True) for low, high in limits)
    return ScpiCommand(pattern, Form(write, parameters), Form(read))
