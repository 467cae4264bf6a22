"""Emulated Yokogawa AQ6370 optical spectrum analyser: SCPI over TCP port 10001 with a login.

Sources: AQ6370 series Remote Control User's Manual (IM AQ6370C-17EN; its page on timeouts and the automatic offset at
easymanua.ls); PyMeasure's AQ6370 classes; InstrumentKit's Yokogawa6370; the public QCoDeS driver of AQ637x for display
and correction commands.

Login: ``OPEN "user"`` is answered by ``AUTHENTICATE CRAM-MD5.``. The host then sends a password in clear text, or
``AUTHENTICATE CRAM-MD5 OK``. After the latter it receives a challenge and sends the MD5 sum of challenge and password.
The final reply is ``READY`` (``ready`` up to the AQ6370C). Lengths are in metres; binary traces are little-endian. A
point without measurable light reads -210 dBm.

Unverified choices: messages before the login get no reply; a wrong login gets ``ERROR`` and may be repeated. A sweep
records the light at its end. Sweep times for 100 nm and 1001 points are those of the AQ6370C's data sheet (0.2 s NORM
AUTO to 75 s HIGH3), scaled by span, points and averages. The noise floor is -60 to -90 dBm, depending on the
sensitivity. The resolution filter is a Gaussian of the set full width, with stray light 63 dB below the total. Every
ten minutes a sweep begins with an automatic offset correction of 30 s (``CALibration:ZERO``). Not implemented: analysis
(``CALCulate`` beyond the peak marker), sweeps in frequency, sweeps between markers, and files.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from lumion_hw.clock import Clock
from lumion_hw.emulator.analyzers.aq6370_parameters import CodedWord, Stored, stored_commands
from lumion_hw.emulator.optics.inline_devices import AMPLIFIED_HZ
from lumion_hw.emulator.optics.world import SpectralLine
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Choice,
    Form,
    Numeric,
    Operation,
    Profile,
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
    number_attribute,
    number_setting,
    query,
)
from lumion_hw.emulator.scpi.connection import Connection
from lumion_hw.emulator.scpi.formats import definite_block, keysight_float, plain_int
from lumion_hw.emulator.scpi.units import LENGTH_M, POWER_DBM, RATIO_DB
from lumion_hw.emulator.wires.mains import DeviceConnection

Spectrum = Callable[[], tuple[list[SpectralLine], float]]
"""Function that returns the spectral lines at the input and the noise density in W/Hz."""

LIGHT_M_PER_S = 299_792_458.0
RESOLUTIONS_M = (0.02e-9, 0.05e-9, 0.1e-9, 0.2e-9, 0.5e-9, 1e-9, 2e-9)
TRACES = ("TRA", "TRB", "TRC", "TRD", "TRE", "TRF", "TRG")
SWEEP_S = {0: 0.2, 1: 0.2, 6: 1.0, 2: 2.0, 3: 5.0, 4: 20.0, 5: 75.0}
"""Sweep time in s for 100 nm and 1001 points, by sensitivity (NHLD, NAUT, NORMal, MID, HIGH1, HIGH2, HIGH3)."""
FLOOR_DBM = {0: -60.0, 1: -60.0, 6: -70.0, 2: -75.0, 3: -80.0, 4: -85.0, 5: -90.0}
NO_LIGHT_DBM = -210.0
_STRAY = 10.0**-6.3
_AIR = 1.00027
_GAUSS_BAND = math.sqrt(math.pi / (4.0 * math.log(2.0)))
"""Noise bandwidth of a Gaussian filter divided by its full width at half maximum."""
_ZERO_EVERY_S, _ZERO_S = 600.0, 30.0
_MIN_SWEEP_S = 0.05
_SENSITIVITIES = {"NHLD": 0, "NAUT": 1, "MID": 2, "HIGH1": 3, "HIGH2": 4, "HIGH3": 5, "NORMal": 6}
_MODES = {"SINGle": 1, "REPeat": 2, "AUTO": 3, "SEGMent": 4}
_ATTRIBUTES = {"WRITe": 0, "FIX": 1, "MAX": 2, "MIN": 3, "RAVG": 4, "CALC": 5}
_SPACINGS = {"LOGarithmic": 0, "LINear": 1}
_LEVEL_UNITS = {"DBM": 0, "W": 1, "DBM/NM": 2, "W/NM": 3}
_LOGIN_LIMIT = 1024


@dataclass
class _AnalyzerSettings:
    """Settings of the analyser; lengths in metres."""

    center_m: float = 1.55e-6
    span_m: float = 100e-9
    resolution_m: float = 1e-9
    sensitivity: int = 1
    mode: int = 1
    points: float = 1001.0
    auto_points: bool = True
    averages: float = 1.0
    double_speed: bool = False
    in_air: bool = False
    reference_dbm: float = -10.0
    position: float = 8.0
    interval_s: float = 0.0
    auto_center: bool = False
    x_unit: int = 0
    y_spacing: int = 0
    y_unit: int = 0
    data_format: str = "ASCII"
    active: str = "TRA"
    attributes: dict[str, int] = field(default_factory=lambda: {"TRA": 0} | dict.fromkeys(TRACES[1:], 1))
    visible_traces: set[str] = field(default_factory=lambda: {"TRA"})
    rolling: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TRACES, 2.0))
    level_shift_db: float = 0.0
    wavelength_shift_m: float = 0.0
    display_m: tuple[float, float] | None = None
    stored: Stored = field(default_factory=dict)

    @property
    def start_m(self) -> float:
        """Shortest wavelength of a sweep, in metres."""
        return self.center_m - 0.5 * self.span_m

    @property
    def stop_m(self) -> float:
        """Longest wavelength of a sweep, in metres."""
        return self.center_m + 0.5 * self.span_m

    @property
    def step_m(self) -> float:
        """Wavelength step between two points of a sweep, in metres."""
        return self.span_m / (self.n_points - 1)

    @property
    def scale_m(self) -> tuple[float, float]:
        """First and last wavelength on the display in metres; by default those of the sweep."""
        return self.display_m or (self.start_m, self.stop_m)

    @property
    def n_points(self) -> int:
        """Number of points of a sweep; by default five per resolution bandwidth."""
        if not self.auto_points:
            return round(self.points)
        return round(min(max(5.0 * self.span_m / self.resolution_m, 100.0), 50_000.0)) + 1


@dataclass
class _Trace:
    """One trace: points, and the number of sweeps that it contains."""

    wavelength_m: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    level_dbm: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    sweeps: int = 0


def filtered_w(
    wavelength_m: NDArray[np.float64], resolution_m: float, lines: list[SpectralLine], noise_w_per_hz: float
) -> NDArray[np.float64]:
    """Return the power in watts behind the resolution filter, for each centre wavelength of the filter.

    Args:
        wavelength_m: Centre wavelengths in vacuum; the result has the same shape.
        resolution_m: Full width of the filter at half maximum.
        lines: Spectral lines of the sources.
        noise_w_per_hz: Noise density of the amplifiers.
    """
    frequency_hz = LIGHT_M_PER_S / wavelength_m
    width_hz = frequency_hz * resolution_m / wavelength_m
    total = _STRAY * sum(line.power_w for line in lines) + np.zeros_like(wavelength_m)
    amplified = (AMPLIFIED_HZ[0] <= frequency_hz) & (frequency_hz <= AMPLIFIED_HZ[1])
    total += amplified * noise_w_per_hz * _GAUSS_BAND * width_hz
    for line in lines:
        offset = (frequency_hz - line.frequency_hz) / width_hz
        steepness = 2.0 * math.sqrt(math.log(2.0))
        if line.width_hz <= 0.0:
            total += line.power_w * np.exp(-((steepness * offset) ** 2))
        else:
            half_width = 0.5 * line.width_hz / width_hz
            inside_fraction = 0.5 * (erf(steepness * (offset + half_width)) - erf(steepness * (offset - half_width)))
            total += line.power_w * _GAUSS_BAND * width_hz / line.width_hz * inside_fraction
        if math.isfinite(line.osnr_db):
            sent_w_per_hz = line.power_w * 10.0 ** (-line.osnr_db / 10.0) / 12.5e9
            total += amplified * sent_w_per_hz * _GAUSS_BAND * width_hz
    return np.asarray(total, dtype=np.float64)


class EmulatedAq6370(ScpiDevice):
    """Emulated Yokogawa AQ6370 optical spectrum analyser.

    Args:
        password: Password of that user; any password by default.
        spectrum: Returns the light at its input; dark by default.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        model: str = "AQ6370D",
        serial: str = "91A000001",
        user: str = "anonymous",
        password: str | None = None,
        spectrum: Spectrum = lambda: ([], 0.0),
        rng: np.random.Generator | None = None,
    ) -> None:
        super().__init__(name, clock)
        self._spectrum = spectrum
        self.rng = rng or np.random.default_rng(0)
        self.user, self.password = user, None if user == "anonymous" else password
        self.settings = _AnalyzerSettings()
        self._traces = {trace: _Trace() for trace in TRACES}
        self._sweep: Operation | None = None
        self._marker: tuple[float, float] | None = None
        self._auto_zero = True
        self.before_d = re.fullmatch(r"AQ6370[BC]?", model.upper()) is not None
        self._zeroed_s = clock.now()
        identity = f"YOKOGAWA,{model},{serial},02.08"
        profile = Profile(identity, terminator=b"\r\n", error_number=plain_int, integer=plain_int)
        self._scpi = ScpiInstrument(name, clock, profile, self._reset)
        self._scpi.declare(self._commands())

    def connect(self) -> DeviceConnection:  # type: ignore[override]  # behind a login there is no message to be polled
        """Open another connection. Raises ``ConnectError`` without power or cable."""
        self._require_reachable()
        return DeviceConnection(self, _Login(self, self._scpi.connect()))

    def _reset(self) -> None:
        self._abort()
        self.settings = _AnalyzerSettings()

    # -- commands

    def _commands(self) -> Iterable[ScpiCommand]:
        yield from self._wavelength_commands()
        yield from self._sweep_commands()
        yield from self._trace_commands()
        yield from self._marker_commands()
        yield from self._display_commands()
        yield from stored_commands(lambda: self.settings.stored, before_d=self.before_d)

    def _wavelength_commands(self) -> Iterable[ScpiCommand]:
        bounds = Numeric(1e-9, 2.3e-6, None, LENGTH_M)
        span = Numeric(0.0, 1100e-9, None, LENGTH_M)
        for data_format, limits, write in (
            ("CENTer", bounds, lambda value: self._set_span(value, self.settings.span_m)),
            ("SPAN", span, lambda value: self._set_span(self.settings.center_m, value)),
            ("STARt", bounds, lambda value: self._set_edges(value, self.settings.stop_m)),
            ("STOP", bounds, lambda value: self._set_edges(self.settings.start_m, value)),
        ):
            name = {"CENTer": "center_m", "SPAN": "span_m", "STARt": "start_m", "STOP": "stop_m"}[data_format]
            yield self._number(f":SENSe:WAVelength:{data_format}", limits, name, write)
        for data_format in ("BWIDth", "BANDwidth"):
            limits = Numeric(RESOLUTIONS_M[0], RESOLUTIONS_M[-1], 1e-9, LENGTH_M)
            yield self._number(f":SENSe:{data_format}[:RESolution]", limits, "resolution_m", self._set_resolution)
        medium = CodedWord({"AIR": 0, "VACuum": 1})
        yield self._coded(":SENSe:CORRection:RVELocity:MEDium", medium, "in_air", lambda code: code == 0, invert=True)
        for data_format, limits, name in (
            ("LEVel", Numeric(-60.0, 60.0, 0.0, RATIO_DB), "level_shift_db"),
            ("WAVelength", Numeric(-5e-9, 5e-9, 0.0, LENGTH_M), "wavelength_shift_m"),
        ):
            yield number_attribute(
                f":SENSe:CORRection:{data_format}:SHIFt", limits, lambda: self.settings, name, keysight_float
            )

    def _number(self, pattern: str, limits: Numeric, name: str, write: Callable[[float], None]) -> ScpiCommand:
        return number_setting(
            pattern,
            limits,
            lambda _: float(getattr(self.settings, name)),
            lambda _, value: write(value),
            keysight_float,
        )

    def _coded(
        self,
        pattern: str,
        keywords: CodedWord,
        name: str,
        convert: Callable[[int], object] = int,
        *,
        invert: bool = False,
    ) -> ScpiCommand:
        def write(call: Call) -> Reply:
            setattr(self.settings, name, convert(call.integer()))
            return None

        def read(_: Call) -> Reply:
            value = int(getattr(self.settings, name))
            return str(1 - value if invert else value)

        return ScpiCommand(pattern, Form(write, (keywords,)), Form(read))

    def _sweep_commands(self) -> Iterable[ScpiCommand]:
        def settings() -> _AnalyzerSettings:
            return self.settings

        as_integer = lambda value: str(round(value))  # noqa: E731
        yield self._coded(":UNIT:X", CodedWord({"WAVelength": 0, "FREQuency": 1}), "x_unit")
        for data_format, choices in (("SPACing", _SPACINGS), ("UNIT", _LEVEL_UNITS)):
            yield self._coded(
                f":DISPlay[:WINDow]:TRACe:Y1[:SCALe]:{data_format}", CodedWord(choices), f"y_{data_format.lower()}"
            )
        yield self._coded(":INITiate:SMODe", CodedWord(_MODES), "mode")
        yield action(":INITiate[:IMMediate]", self._initiate)
        yield action("*TRG", self._initiate)
        yield action(":ABORt", self._abort)
        yield self._coded(":SENSe:SENSe", CodedWord(_SENSITIVITIES), "sensitivity")
        yield self._coded(":SENSe:SWEep:SPEed", CodedWord({"1x": 0, "2x": 1}), "double_speed", bool)
        yield self._number_of_points()
        yield flag_attribute(":SENSe:SWEep:POINts:AUTO", settings, "auto_points", str)
        yield self._number(
            ":SENSe:SWEep:STEP", Numeric(1e-12, 1e-7, None, LENGTH_M), "step_m", self._set_point_distance
        )
        averages = Numeric(1, 999, 1, integer=True)
        yield number_attribute(":SENSe:AVERage:COUNt", averages, settings, "averages", as_integer)
        interval = Numeric(0, 99_999, 0, integer=True)
        yield number_attribute(":SENSe:SWEep:TIME:INTerval", interval, settings, "interval_s", as_integer)
        scale = ":DISPlay[:WINDow]:TRACe:Y1"
        yield number_attribute(
            f"{scale}[:SCALe]:RLEVel",
            Numeric(-90.0, 30.0, -10.0, POWER_DBM),
            settings,
            "reference_dbm",
            keysight_float,
        )
        yield number_attribute(
            f"{scale}[:SCALe]:RPOSition", Numeric(0, 12, 8, integer=True), settings, "position", as_integer
        )
        yield ScpiCommand(
            ":CALibration:ZERO[:AUTO]",
            Form(self._set_zero, (CodedWord({"OFF": 0, "ON": 1, "ONCE": 2}),)),
            Form(lambda _: str(int(self._auto_zero))),
        )

    def _number_of_points(self) -> ScpiCommand:
        def write(_: Call, value: float) -> None:
            self.settings.points, self.settings.auto_points = value, False

        limits = Numeric(51, 50_001, 1001, integer=True)
        return number_setting(
            ":SENSe:SWEep:POINts", limits, lambda _: self.settings.n_points, write, lambda value: str(round(value))
        )

    def _trace_commands(self) -> Iterable[ScpiCommand]:
        trace = Choice(TRACES)
        numbers = Numeric(1, 50_001, integer=True, optional=True)
        yield ScpiCommand(":TRACe:ACTive", Form(self._activate, (trace,)), Form(lambda _: self.settings.active))
        for name in TRACES:
            yield self._attribute(name)
            yield self._visibility(name)
            yield self._rolling_average(name)
        for data in (":TRACe[:DATA]:X", ":TRACe[:DATA]:Y"):
            yield query(data, self._axis(data[-1]), trace, numbers, numbers)
        yield query(":TRACe[:DATA]:SNUMber", lambda call: str(len(self._traces[call.text()].level_dbm)), trace)
        yield event(":TRACe:COPY", self._copy, trace, trace)
        yield event(":TRACe:DELete", lambda call: self._delete(call.text()), trace)
        yield action(":TRACe:DELete:ALL", lambda: [self._delete(name) for name in TRACES])
        yield ScpiCommand(
            ":FORMat[:DATA]",
            Form(self._set_format, (Choice(("ASCii", "REAL")), Numeric(32, 64, integer=True, optional=True))),
            Form(lambda _: self.settings.data_format),
        )

    def _marker_commands(self) -> Iterable[ScpiCommand]:
        marker = Numeric(0, 0, integer=True)
        yield action(":CALCulate:MARKer:MAXimum", self._find_peak)
        yield action(":CALCulate:MARKer:MAXimum:SCENter", self._center_on_peak)
        yield action(":CALCulate:MARKer:MAXimum:SRLevel", self._reference_from_peak)
        yield flag_attribute(":CALCulate:MARKer:MAXimum:SCENter:AUTO", lambda: self.settings, "auto_center", str)
        yield query(":CALCulate:MARKer:X", lambda _: keysight_float(self._marker_position()[0]), marker)
        yield query(":CALCulate:MARKer:Y", lambda _: keysight_float(self._marker_position()[1]), marker)

    def _display_commands(self) -> Iterable[ScpiCommand]:
        scale = ":DISPlay[:WINDow]:TRACe:X[:SCALe]"

        def set_display(start_m: float, stop_m: float) -> None:
            if not start_m < stop_m:
                raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
            self.settings.display_m = start_m, stop_m

        def display_edges() -> tuple[float, float]:
            return self.settings.scale_m

        def measure() -> None:
            self._set_edges(*display_edges())

        def center() -> float:
            return 0.5 * sum(display_edges())

        def span() -> float:
            return display_edges()[1] - display_edges()[0]

        bounds, width = Numeric(1e-9, 2.3e-6, None, LENGTH_M), Numeric(0.0, 1100e-9, None, LENGTH_M)
        rows: tuple[tuple[str, Numeric, Callable[[], float], Callable[[float], None]], ...] = (
            ("CENTer", bounds, center, lambda value: set_display(value - 0.5 * span(), value + 0.5 * span())),
            ("SPAN", width, span, lambda value: set_display(center() - 0.5 * value, center() + 0.5 * value)),
            ("STARt", bounds, lambda: display_edges()[0], lambda value: set_display(value, display_edges()[1])),
            ("STOP", bounds, lambda: display_edges()[1], lambda value: set_display(display_edges()[0], value)),
        )
        for data_format, limits, read, write in rows:
            yield number_setting(
                f"{scale}:{data_format}",
                limits,
                lambda _, read=read: read(),  # type: ignore[misc]
                lambda _, value, write=write: write(value),  # type: ignore[misc]
                keysight_float,
            )
        yield action(f"{scale}:INITialize", lambda: setattr(self.settings, "display_m", None))
        yield action(":DISPlay[:WINDow]:TRACe:X:SMSCale", measure)

    # -- actions of commands

    def _set_point_distance(self, step_m: float) -> None:
        self.settings.points = min(max(round(self.settings.span_m / step_m) + 1, 51), 50_001)
        self.settings.auto_points = False

    def _set_span(self, center_m: float, span_m: float) -> None:
        if not 600e-9 <= center_m <= 1700e-9:
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        self.settings.center_m, self.settings.span_m = center_m, span_m

    def _set_edges(self, start_m: float, stop_m: float) -> None:
        if stop_m < start_m:
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
        self._set_span(0.5 * (start_m + stop_m), stop_m - start_m)

    def _set_resolution(self, value_m: float) -> None:
        self.settings.resolution_m = min(RESOLUTIONS_M, key=lambda resolution_m: abs(resolution_m - value_m))

    def _set_zero(self, call: Call) -> Reply:
        code = call.integer()
        if code == 2:
            self._zeroed_s = self._clock.now() + _ZERO_S
            self._scpi.state.begin(_ZERO_S, lambda: None)
        else:
            self._auto_zero = code == 1
        return None

    def sweep_s(self) -> float:
        """Return the duration of a sweep in seconds, without the automatic offset correction."""
        settings = self.settings
        scale = max(settings.span_m / 100e-9, settings.n_points / 1001.0)
        halved = 0.5 if settings.double_speed else 1.0
        return max(SWEEP_S[settings.sensitivity] * scale * settings.averages * halved, _MIN_SWEEP_S)

    def _initiate(self) -> None:
        if self._sweep is not None:
            raise ScpiError(scpi_errors.INIT_IGNORED)
        duration_s, now_s = self.sweep_s(), self._clock.now()
        if self._auto_zero and now_s - self._zeroed_s >= _ZERO_EVERY_S:
            self._zeroed_s = now_s + _ZERO_S
            duration_s += _ZERO_S
        self._scpi.state.status.operation.set_bit(0, False)
        self._sweep = self._scpi.state.begin(duration_s, self._finish)

    def _finish(self) -> None:
        self._sweep = None
        self._measure()
        self._scpi.state.status.operation.set_bit(0, True)
        if self.settings.auto_center:
            self._center_on_peak()
        if self.settings.mode == _MODES["REPeat"]:
            self._initiate()

    def _abort(self) -> None:
        if self._sweep is not None:
            self._scpi.state.abort(self._sweep)
            self._sweep = None

    def _measure(self) -> None:
        settings = self.settings
        reported_m = np.linspace(settings.start_m, settings.stop_m, settings.n_points)
        lines, noise = self._spectrum()
        light_m = (reported_m - settings.wavelength_shift_m) * (_AIR if settings.in_air else 1.0)
        power_w = filtered_w(light_m, settings.resolution_m, lines, noise)
        floor_w = 1e-3 * 10.0 ** (FLOOR_DBM[settings.sensitivity] / 10.0) / math.sqrt(settings.averages)
        read_w = power_w + floor_w * self.rng.standard_normal(len(power_w))
        level_dbm = np.full(len(read_w), NO_LIGHT_DBM)
        is_positive = read_w > 0.0
        level_dbm[is_positive] = 10.0 * np.log10(read_w[is_positive] * 1e3) + settings.level_shift_db
        for name, code in settings.attributes.items():
            self._store(name, code, reported_m, level_dbm)

    def _store(self, name: str, code: int, reported_m: NDArray[np.float64], level_dbm: NDArray[np.float64]) -> None:
        if code in (_ATTRIBUTES["FIX"], _ATTRIBUTES["CALC"]):
            return
        trace, rolling = self._traces[name], self.settings.rolling[name]
        old_dbm = trace.level_dbm
        if code != _ATTRIBUTES["WRITe"] and len(old_dbm) == len(level_dbm) and trace.sweeps:
            if code == _ATTRIBUTES["MAX"]:
                level_dbm = np.maximum(old_dbm, level_dbm)
            elif code == _ATTRIBUTES["MIN"]:
                level_dbm = np.minimum(old_dbm, level_dbm)
            else:
                weight = min(trace.sweeps, rolling - 1)
                mean_w = (weight * 10.0 ** (old_dbm / 10.0) + 10.0 ** (level_dbm / 10.0)) / (weight + 1)
                level_dbm = 10.0 * np.log10(mean_w)
            trace.sweeps += 1
        else:
            trace.sweeps = 1
        trace.wavelength_m, trace.level_dbm = reported_m, level_dbm

    # -- traces

    def _activate(self, call: Call) -> Reply:
        self.settings.active = call.text()
        return None

    def _attribute(self, name: str) -> ScpiCommand:
        def write(call: Call) -> Reply:
            self.settings.attributes[name] = call.integer()
            self._traces[name].sweeps = 0
            return None

        pattern = f":TRACe:ATTRibute[:{name}]" if name == "TRA" else f":TRACe:ATTRibute:{name}"
        return ScpiCommand(
            pattern, Form(write, (CodedWord(_ATTRIBUTES),)), Form(lambda _: str(self.settings.attributes[name]))
        )

    def _visibility(self, name: str) -> ScpiCommand:
        def set_display(_: Call, on: bool) -> None:
            (self.settings.visible_traces.add if on else self.settings.visible_traces.discard)(name)

        # The trace may be omitted, as with its attribute.
        pattern = f":TRACe:STATe[:{name}]" if name == "TRA" else f":TRACe:STATe:{name}"
        return flag_setting(pattern, Boolean(), lambda _: name in self.settings.visible_traces, set_display, str)

    def _rolling_average(self, name: str) -> ScpiCommand:
        pattern = f":TRACe:ATTRibute:RAVG[:{name}]" if name == "TRA" else f":TRACe:ATTRibute:RAVG:{name}"
        return number_setting(
            pattern,
            Numeric(2, 100, 2, integer=True),
            lambda _: self.settings.rolling[name],
            lambda _, value: self.settings.rolling.__setitem__(name, value),
            lambda value: str(round(value)),
        )

    def _axis(self, axis: str) -> Callable[[Call], Reply]:
        def run(call: Call) -> Reply:
            trace = self._traces[call.text()]
            values = trace.wavelength_m if axis == "X" else self._levels(trace)
            first = call.integer(1) if len(call.values) > 1 else 1
            last = call.integer(2) if len(call.values) > 2 else len(values)
            if len(call.values) > 1 and not first <= last <= len(values):
                raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
            selected = values[first - 1 : last]
            if self.settings.data_format == "ASCII":
                return ",".join(keysight_float(value) for value in selected.tolist())
            return definite_block(selected.astype("<f8" if self.settings.data_format == "REAL,64" else "<f4").tobytes())

        return run

    def _levels(self, trace: _Trace) -> NDArray[np.float64]:
        settings, level_dbm = self.settings, trace.level_dbm
        if settings.y_unit in (_LEVEL_UNITS["DBM/NM"], _LEVEL_UNITS["W/NM"]):
            level_dbm = level_dbm - 10.0 * math.log10(1e9 * settings.resolution_m)
        return 1e-3 * 10.0 ** (level_dbm / 10.0) if settings.y_spacing == _SPACINGS["LINear"] else level_dbm

    def _set_format(self, call: Call) -> Reply:
        bits = call.integer(1) if len(call.values) > 1 else 64
        if bits not in (32, 64) or (call.text() == "ASCii" and len(call.values) > 1):
            raise ScpiError(scpi_errors.ILLEGAL_PARAMETER_VALUE)
        self.settings.data_format = "ASCII" if call.text() == "ASCii" else f"REAL,{bits}"
        return None

    def _copy(self, call: Call) -> Reply:
        source = self._traces[call.text(0)]
        self._traces[call.text(1)] = _Trace(source.wavelength_m, source.level_dbm, source.sweeps)
        return None

    def _delete(self, name: str) -> Reply:
        self._traces[name] = _Trace()
        return None

    # -- marker

    def _find_peak(self) -> None:
        trace = self._traces[self.settings.active]
        if not len(trace.level_dbm):
            raise ScpiError(scpi_errors.EXECUTION_ERROR)
        peak = int(np.argmax(trace.level_dbm))
        self._marker = float(trace.wavelength_m[peak]), float(trace.level_dbm[peak])

    def _marker_position(self) -> tuple[float, float]:
        if self._marker is None:
            raise ScpiError(scpi_errors.EXECUTION_ERROR)
        return self._marker

    def _center_on_peak(self) -> None:
        self._find_peak()
        self._set_span(self._marker_position()[0], self.settings.span_m)

    def _reference_from_peak(self) -> None:
        self._find_peak()
        self.settings.reference_dbm = max(-90.0, min(30.0, self._marker_position()[1]))


class _Login:
    """Login in front of a connection: passes data on only after the host has logged in."""

    def __init__(self, device: EmulatedAq6370, connection: Connection) -> None:
        self._device, self._connection = device, connection
        self._line = bytearray()
        self._replies = bytearray()
        self._challenge: str | None = None
        self._login_started = self._is_logged_in = False

    def receive(self, data: bytes) -> None:
        """Process bytes from the host; pass them on to the analyser after the login."""
        self._device.advance()
        for byte in data.splitlines(keepends=True) if data else ():
            self._line += byte
            if self._line.endswith(b"\n"):
                line, self._line = bytes(self._line), bytearray()
                self._process_line(line)
            elif len(self._line) > _LOGIN_LIMIT:
                # Too long for a login or a CLOSE: after the login, the data is passed on as it is.
                line, self._line = bytes(self._line), bytearray()
                if self._is_logged_in:
                    self._connection.receive(line)

    def _process_line(self, line: bytes) -> None:
        text = line.decode("latin-1").strip()
        if self._is_logged_in and text.upper() == "CLOSE":
            self._is_logged_in = self._login_started = False
        elif self._is_logged_in:
            self._connection.receive(line)
        elif text.upper().startswith("OPEN"):
            user = text[4:].strip().strip('"')
            self._login_started, self._challenge = user == self._device.user, None
            self._send("AUTHENTICATE CRAM-MD5." if self._login_started else "ERROR")
        elif self._login_started and text.upper() == "AUTHENTICATE CRAM-MD5 OK":
            self._challenge = self._device.rng.bytes(16).hex()
            self._send(self._challenge)
        elif self._login_started:
            self._is_logged_in = self._accepts(text)
            self._login_started = self._is_logged_in
            # Public clients of an AQ6370C expect lower case, those of later models capitals.
            ready = "ready" if self._device.before_d else "READY"
            self._send(ready if self._is_logged_in else "ERROR")

    def _accepts(self, text: str) -> bool:
        password = self._device.password
        if password is None:
            return True
        if self._challenge is None:
            return text == password
        return text.lower() == hashlib.md5(f"{self._challenge}{password}".encode(), usedforsecurity=False).hexdigest()

    def _send(self, text: str) -> None:
        self._replies += f"{text}\r\n".encode("ascii")

    def transmit(self) -> bytes:
        """Return the login's replies, followed by those of the analyser."""
        login_replies, self._replies = bytes(self._replies), bytearray()
        return login_replies + (self._connection.transmit() if self._is_logged_in else b"")

    def next_event(self) -> float | None:
        """Return the time at which the analyser next has something to send."""
        return self._connection.next_event()

    def close(self) -> None:
        """Close the connection to the analyser."""
        self._connection.close()
