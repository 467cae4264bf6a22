"""Emulated Keysight N7744A/45A/44C/45C multiport optical power meter.

Language: section 3 of the instrument facts (Keysight N774xC Programming Guide). Only what works is declared; anything
else is an undefined header, as on the instrument. Model choices where the manual is silent: a software-triggered
reading always averages anew, also in continuous mode; a dark reading in dBm is the marker value with -261 (one port)
or -231 (all ports); ranges end at -70 and +10 dBm; setting a range ends automatic ranging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator import n77xx_head as physics
from lumion_hw.emulator.n77xx_head import Head, HeadReading
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Command,
    Form,
    Later,
    Numeric,
    Profile,
    Reply,
    ScpiError,
    ScpiInstrument,
    SuffixRange,
    event,
    flag_setting,
    number_setting,
    query,
)
from lumion_hw.emulator.scpi import errors as scpi_errors
from lumion_hw.emulator.scpi.formats import (
    FLOAT32_MAX,
    float32_block,
    keysight_float,
    keysight_float32,
    keysight_int,
    quoted,
    uint16_block,
)
from lumion_hw.emulator.scpi.units import LENGTH_M, POWER_DBM, RATIO_DB, TIME_S
from lumion_hw.errors import ConfigError
from lumion_hw.links.base import Peer
from lumion_hw.quantities import dbm_from_w

_MARKER = keysight_float32(FLOAT32_MAX)
_SENSE = ":SENSe[n][:CHANnel[m]]"

WAVELENGTH = Numeric(*physics.WAVELENGTH_LIMITS_M, physics.DEFAULT_WAVELENGTH_M, LENGTH_M)
AVERAGING = Numeric(*physics.AVERAGING_LIMITS_S, physics.DEFAULT_AVERAGING_S, TIME_S)
RANGE = Numeric(physics.LOWEST_RANGE_DBM, physics.HIGHEST_RANGE_DBM, physics.HIGHEST_RANGE_DBM, POWER_DBM)
OFFSET = Numeric(-200.0, 200.0, 0.0, RATIO_DB)
UNIT = Numeric(0, 1, 0, integer=True)


class KeysightN77xx:
    """A multiport power meter (:class:`~lumion_hw.emulator.device.EmulatedDevice`).

    Args:
        name: Device name of the bench file.
        clock: The injected clock.
        rng: Draws the heads' hidden errors and their noise.
        power_w: Gives the true optical power now at a channel (1..``n_ports``), in watts.
        model: ``N7744A``, ``N7745A``, ``N7744C`` or ``N7745C``; a C accepts only 0 and 1 as Booleans and has the
            ``:ALL:CSV?`` queries.
        serial: Serial number in ``*IDN?``.
        n_ports: Number of channels, 1 to 14 (one status bit each).
        manufacturer: First field of ``*IDN?``; newer units say ``Keysight Technologies``.
        firmware: Last field of ``*IDN?``.
        light_wavelength_nm: Gives the wavelength of the light at a channel, in nanometres; 1550 nm if not given.

    Raises:
        ConfigError: ``n_ports`` is out of range.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        power_w: Callable[[int], float],
        *,
        model: str = "N7745A",
        serial: str = "DE00000001",
        n_ports: int = 8,
        manufacturer: str = "Agilent Technologies",
        firmware: str = "1.02.00",
        light_wavelength_nm: Callable[[int], float] | None = None,
    ) -> None:
        if not 1 <= n_ports <= 14:
            raise ConfigError(f"{name}: {n_ports} ports asked for; an N77xx has 1 to 14", device=name)
        wavelength_nm = light_wavelength_nm or (lambda _channel: 1550.0)
        self._clock = clock
        self._scpi = ScpiInstrument(name, clock, Profile(f"{manufacturer},{model},{serial},{firmware}"), self._reset)
        self._heads = {
            port: Head(_at(power_w, port), _scaled(wavelength_nm, port, 1e-9), stream, clock.now)
            for port, stream in enumerate(rng.spawn(n_ports), start=1)
        }
        self._zero_codes = dict.fromkeys(self._heads, 0)
        newer = model.endswith("C")
        ports = {"n": SuffixRange(1, n_ports), "m": SuffixRange(1, 1)}
        self._scpi.declare((*self._settings(newer), *self._actions(), *(self._csv() if newer else ())), ports)

    @property
    def name(self) -> str:
        """Device name of the bench file."""
        return self._scpi.name

    def connect(self) -> Peer:
        """Open one more connection."""
        return self._scpi.connect()

    def advance(self) -> None:
        """Complete the readings and zeroings that are due."""
        self._scpi.advance()

    # -- declarations

    def _settings(self, strict: bool) -> Iterable[Command]:
        head, flag = self._head, Boolean(strict=strict)

        def setter(name: str) -> Callable[[Call, float], None]:
            return lambda call, value: setattr(head(call).settings, name, value)

        def tune(call: Call, wavelength_m: float) -> None:
            head(call).set_wavelength(wavelength_m)

        def tune_all(call: Call, wavelength_m: float) -> None:
            del call
            for each in self._heads.values():
                each.set_wavelength(wavelength_m)

        def average(call: Call, averaging_s: float) -> None:
            head(call).settings.averaging_s = averaging_s
            head(call).restart()

        yield number_setting(
            f"{_SENSE}:POWer:WAVelength", WAVELENGTH, lambda c: head(c).settings.wavelength_m, tune, keysight_float32
        )
        yield number_setting(
            f"{_SENSE}:POWer:WAVelength:ALL",
            WAVELENGTH,
            lambda c: head(c).settings.wavelength_m,
            tune_all,
            keysight_float32,
        )
        yield number_setting(
            f"{_SENSE}:POWer:ATIMe", AVERAGING, lambda c: head(c).settings.averaging_s, average, keysight_float
        )
        yield number_setting(
            f"{_SENSE}:POWer:RANGe[:UPPer]",
            RANGE,
            lambda c: head(c).settings.range_dbm,
            lambda c, value: head(c).set_range(value),
            keysight_float,
        )
        yield number_setting(
            f"{_SENSE}:CORRection[:LOSS[:INPut[:MAGNitude]]]",
            OFFSET,
            lambda c: head(c).settings.offset_db,
            setter("offset_db"),
            keysight_float,
        )
        yield number_setting(
            f"{_SENSE}:POWer:UNIT",
            UNIT,
            lambda c: head(c).settings.watts,
            lambda c, value: setattr(head(c).settings, "watts", bool(value)),
            lambda value: keysight_int(int(value)),
        )
        for pattern, name in (
            (f"{_SENSE}:POWer:RANGe:AUTO", "automatic"),
            (f"{_SENSE}:POWer:GAIN:AUTO", "gain_automatic"),
            (":INITiate[n]:CONTinuous", "continuous"),
            (f"{_SENSE}:POWer:REFerence:STATe", "relative"),
        ):
            yield flag_setting(pattern, flag, self._getter(name), self._switch(name), keysight_int)

    def _actions(self) -> Iterable[Command]:
        yield query(":READ[n][:CHANnel[m]]:POWer", self._read, marker=_MARKER)
        yield query(":FETCh[n][:CHANnel[m]]:POWer", self._fetch)
        yield query(":READ[n]:POWer:ALL", self._read_all)
        yield query(":READ[n]:POWer:ALL:CONFig", self._configuration)
        yield event(":INITiate[n][:IMMediate]", self._initiate)
        zero = f"{_SENSE}:CORRection:COLLect:ZERO"
        yield Command(zero, Form(lambda c: self._zero((c.suffix["n"],))), Form(self._zero_result))
        yield event(f"{zero}:ALL", lambda _: self._zero(tuple(self._heads)))
        yield event(f"{_SENSE}:POWer:REFerence:DISPlay", self._take_reference)
        yield query(f"{_SENSE}:POWer:REFerence:STATe:RATio", lambda _: "+255,+0")
        yield query(":SLOT[n]:HEAD[m]:TST", lambda _: f"+0,{quoted('self test OK')}")
        yield query(
            ":SLOT[n]:HEAD[m]:WAVelength:RESPonse",
            lambda call: float32_block(self._head(call).responsivity_table().ravel().tolist()),
        )

    def _csv(self) -> Iterable[Command]:
        columns: tuple[tuple[str, Callable[[Head], str]], ...] = (
            ("UNIT", lambda head: str(int(head.settings.watts))),
            ("ATIMe", lambda head: keysight_float(head.settings.averaging_s)),
            ("WAVelength", lambda head: keysight_float32(head.settings.wavelength_m)),
            ("RANGe", lambda head: keysight_float(head.settings.range_dbm)),
        )
        for leaf, column in columns:
            yield query(f":SENSe:POWer:{leaf}:ALL:CSV", self._row(column))

    def _row(self, column: Callable[[Head], str]) -> Callable[[Call], Reply]:
        return lambda _: ",".join(column(head) for head in self._heads.values())

    # -- settings

    def _head(self, call: Call) -> Head:
        return self._heads[call.suffix["n"]]

    def _getter(self, name: str) -> Callable[[Call], bool]:
        return lambda call: bool(getattr(self._head(call).settings, name))

    def _switch(self, name: str) -> Callable[[Call, bool], None]:
        def write(call: Call, on: bool) -> None:
            setattr(self._head(call).settings, name, on)
            self._head(call).restart()

        return write

    def _reset(self) -> None:
        for head in self._heads.values():
            head.reset()
        self._scpi.state.status.operation.condition = 0
        self._scpi.state.status.questionable.condition = 0

    # -- readings

    def _read(self, call: Call) -> Later:
        port = call.suffix["n"]
        exposure = self._heads[port].expose()

        def finish() -> Reply:
            value = self._express(port, self._heads[port].complete(exposure))
            if value is None:
                raise ScpiError(scpi_errors.MATH_ERROR)
            return keysight_float32(value)

        return Later(lambda: exposure.end_s, finish)

    def _fetch(self, call: Call) -> Reply:
        value = self._express(call.suffix["n"], self._head(call).fetch())
        return _MARKER if value is None else keysight_float32(value)

    def _read_all(self, call: Call) -> Later:
        del call
        exposures = {port: head.expose() for port, head in self._heads.items()}
        end_s = max(exposure.end_s for exposure in exposures.values())

        def finish() -> Reply:
            values = [self._express(port, self._heads[port].complete(each)) for port, each in exposures.items()]
            if None in values:
                self._scpi.state.report(scpi_errors.DATA_QUESTIONABLE)
            return float32_block(FLOAT32_MAX if value is None else value for value in values)

        return Later(lambda: end_s, finish)

    def _express(self, port: int, reading: HeadReading) -> float | None:
        """Return a reading in the port's unit; over-range is the marker, dark in dBm is ``None``."""
        settings = self._heads[port].settings
        power_w, in_watts = reading.power_w, settings.watts and not settings.relative
        dark = power_w is not None and power_w <= 0 and not in_watts
        self._scpi.state.status.questionable.set_bit(port, on=dark or power_w is None)
        if power_w is None:
            return FLOAT32_MAX
        if in_watts:
            return power_w
        if dark:
            return None
        return dbm_from_w(power_w) - (dbm_from_w(settings.reference_w) if settings.relative else 0.0)

    def _take_reference(self, call: Call) -> Reply:
        """Make the reading on the display the reference of relative readings."""
        shown_w = self._head(call).fetch().power_w
        if shown_w is None or shown_w <= 0:
            raise ScpiError(scpi_errors.DATA_QUESTIONABLE)
        self._head(call).settings.reference_w = shown_w
        return None

    def _configuration(self, call: Call) -> Reply:
        del call
        return uint16_block(number for port in self._heads for number in (port, 1))

    # -- operations

    def _initiate(self, call: Call) -> Reply:
        port, head = call.suffix["n"], self._head(call)
        if head.settings.continuous or self._measuring(port):
            raise ScpiError(scpi_errors.INIT_IGNORED)
        exposure = head.expose()
        self._begin((port,), exposure.end_s - self._clock.now(), lambda: head.complete(exposure))
        return None

    def _zero(self, ports: tuple[int, ...]) -> Reply:
        if any(self._measuring(port) for port in ports):
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
        dark = {port: self._heads[port].begin_zero() for port in ports}

        def finish() -> None:
            for port in ports:
                succeeded = self._heads[port].finish_zero(dark[port])
                self._zero_codes[port] = 0 if succeeded else scpi_errors.EXECUTION_ERROR
            if any(self._zero_codes[port] for port in ports):
                self._scpi.state.report(scpi_errors.EXECUTION_ERROR)

        self._begin(ports, physics.ZEROING_S, finish)
        return None

    def _zero_result(self, call: Call) -> Later:
        """Reply 0, or the error number of the last zeroing, once it is over."""
        head, port = self._head(call), call.suffix["n"]
        return Later(lambda: max(head.zeroing_until_s, self._clock.now()), lambda: keysight_int(self._zero_codes[port]))

    def _measuring(self, port: int) -> bool:
        return bool(self._scpi.state.status.operation.condition & 1 << port)

    def _begin(self, ports: tuple[int, ...], duration_s: float, on_end: Callable[[], object]) -> None:
        """Run an overlapped operation of some ports; their summary bits in STATus:OPERation are set meanwhile."""
        operation = self._scpi.state.status.operation

        def finish() -> None:
            for port in ports:
                operation.set_bit(port, on=False)
            on_end()

        for port in ports:
            operation.set_bit(port, on=True)
        self._scpi.state.begin(duration_s, finish)


def _at(function: Callable[[int], float], port: int) -> Callable[[], float]:
    return lambda: function(port)


def _scaled(function: Callable[[int], float], port: int, factor: float) -> Callable[[], float]:
    return lambda: function(port) * factor
