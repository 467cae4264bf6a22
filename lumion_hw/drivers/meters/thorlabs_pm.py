"""Driver for Thorlabs PM100D, PM100A, PM100USB, PM400, PM101 and PM160 power meters.

Each meter has one channel. The legacy PM100 is refused, because its commands differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Unpack

from lumion_hw.clock import Clock
from lumion_hw.drivers.held_setup import HeldSetting, HeldSetup
from lumion_hw.drivers.life_cycle import close_on_error
from lumion_hw.drivers.meters.scpi_meter import ScpiMeter
from lumion_hw.drivers.meters.wire_powers import reading
from lumion_hw.drivers.scpi import DeviceNames
from lumion_hw.errors import ConfigError, DeviceError, DeviceTimeoutError, VerifyError
from lumion_hw.interfaces import MeterLimits, MeterSettings, PowerReading
from lumion_hw.links.base import Link
from lumion_hw.quantities import dbm_from_w, w_from_dbm

MODELS = ("PM100D", "PM100A", "PM100USB", "PM400", "PM101", "PM160")
CHANNEL = 1
DEFAULT_SAMPLE_S = 3e-3
"""Duration of one sample of a PM100D, in s; other models may differ."""
WAVELENGTH_TOLERANCE_NM = 0.51
"""Largest accepted difference between the wavelength set and read back, in nm; some sensors round to 1 nm."""
_CORRECTION_TOLERANCE_DB = 1e-3
_FLAG_POWER = 1
# The meter rounds its ranges: without slack, a range would not contain its own limit.
_RANGE_SLACK = 1e-3
_ROUNDED = 1e-6
# Ranges are a decade apart, with uneven limits: a factor of ten and 5 %.
_LARGEST_RANGE_STEP = 10.5
_SHORTEST_TIMEOUT_S = 2.0
_TIMEOUT_FACTOR = 1.2
_ZERO_TIMEOUT_S = 60.0
_ZERO_POLL_S = 0.1


@dataclass(frozen=True)
class Sensor:
    """Sensor head, as reported by ``SYST:SENS:IDN?``.

    Attributes:
        name: Model of the head, such as ``S154C``.
        serial: Serial number of the head.
        calibration: Calibration message of the head.
        flags: 1 power, 2 energy, 16 responsivity settable, 32 wavelength settable, 64 time constant settable,
            256 has a temperature sensor.
    """

    name: str
    serial: str
    calibration: str
    flags: int


class ThorlabsPm(ScpiMeter):
    """Driver of one meter; implements ``PowerMeter``. Thread-safe; every setting is read back.

    Readings are in watts. Opening switches the reference off.

    Args:
        link: Link to the instrument (VISA for USB, serial, or a socket).
        clock: Clock of the link.
        **names: As for :class:`~lumion_hw.drivers.scpi.ScpiDriver`; a model is, for example, ``PM100D``.
        sample_s: Duration of one sample in s; an averaging time is set as a whole number of samples.
    """

    makers = ("THORLABS",)
    models = MODELS
    ignorable_errors = frozenset({-231, -261})  # questionable data, and a dark reading in dBm
    dark = "Cap the sensor"

    def __init__(
        self, link: Link, clock: Clock, *, sample_s: float = DEFAULT_SAMPLE_S, **names: Unpack[DeviceNames]
    ) -> None:
        super().__init__(link, clock, **names)
        self._sample_s = sample_s
        self._sensor: Sensor | None = None
        self._averages = 1
        self._largest_w = math.inf
        self._setup = HeldSetup(self._session)

    def open(self) -> None:
        """Open the link, check identity and sensor, select watts, and switch the reference off.

        Raises the errors of :meth:`Driver.open`, and ``DeviceError`` without a power sensor.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identify()
            self.errors()  # discard errors of earlier users
            self._sensor = self._checked_sensor()
            _, self._largest_w = self._range_limits_w()
            self._setup = HeldSetup(self._session)
            for query, requested, command, label in (
                # READ? measures the configured quantity, which may be the photocurrent.
                ("CONF?", "POW", "CONF:POW", "measured quantity"),
                # A reference set at the front panel would make every reading relative to it.
                ("SENS:POW:REF:STAT?", 0, "SENS:POW:REF:STAT 0", "relative readings (0 is off)"),
                ("SENS:POW:UNIT?", "W", "SENS:POW:UNIT W", "unit"),
            ):
                restore = partial(self._scpi.set, command)
                restore()
                self._setup.hold(HeldSetting(query, requested, label, restore))
            self._hold("SENS:CORR", self._scpi.setting("SENS:CORR?"), _CORRECTION_TOLERANCE_DB, "correction in dB")
            self._setup.restore_changed()
            self.averaging_count()

    @property
    def channels(self) -> tuple[int, ...]:
        """Channel number of the only channel."""
        self._check_open()
        return (CHANNEL,)

    @property
    def sensor(self) -> Sensor:
        """Sensor that was connected when the meter was opened."""
        self._check_open()
        if self._sensor is None:
            raise self._session.error(DeviceError, "the sensor has not been identified")
        return self._sensor

    def wavelength_nm(self, channel: int = CHANNEL) -> float:
        """Return the wavelength for the responsivity, in nm."""
        self._check_channel(channel)
        return self._scpi.setting("SENS:CORR:WAV?")

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Set the wavelength for the responsivity. Raises ``LimitError`` or ``VerifyError``."""
        self._check_channel(channel)
        with self._session.transaction():
            self._scpi.check_limits("SENS:CORR:WAV", "wavelength", wavelength_nm, 1.0, "nm")
            actual_nm = self._set("SENS:CORR:WAV", wavelength_nm, WAVELENGTH_TOLERANCE_NM, "wavelength in nm")
            # Held as the meter rounds it: some sensors use whole nanometres.
            self._hold("SENS:CORR:WAV", actual_nm, 1e-3, "wavelength in nm")

    def averaging_count(self) -> int:
        """Return the number of samples per reading."""
        self._averages = round(self._scpi.setting("SENS:AVER?"))
        return self._averages

    def set_averaging_s(self, channel: int, averaging_s: float) -> None:
        """Set the averaging time, rounded up to whole samples. Raises ``LimitError`` or ``VerifyError``."""
        self._check_channel(channel)
        with self._session.transaction():
            self._scpi.check_limits("SENS:AVER", "averaging time", averaging_s, self._sample_s, "s")
            # Rounded up, so that no reading is averaged over less than the
            # requested time; 1e-9 for quotients such as 0.3 / 0.003.
            requested = max(1, math.ceil(averaging_s / self._sample_s * (1.0 - 1e-9)))
            actual = self._scpi.set_number("SENS:AVER", str(requested), requested, 1.0, 0.0, "averaged samples")
            self._averages = round(actual)
            self._setup.also_restore("averaging", partial(self.set_averaging_s, channel, averaging_s))

    def range_dbm(self, channel: int = CHANNEL) -> float | None:
        """Return the upper limit of the range in dBm, or ``None`` if ranging is automatic."""
        self._check_channel(channel)
        with self._session.transaction():
            if self._scpi.setting("SENS:POW:RANG:AUTO?"):
                return None
            return dbm_from_w(self._scpi.setting("SENS:POW:RANG?"))

    def set_range_dbm(self, channel: int, range_dbm: float | None) -> None:
        """Set the smallest range that includes a power. ``None`` selects automatic ranging.

        Raises ``LimitError``, or ``VerifyError`` if the range read back does not include this power or is more than a
        decade above it.
        """
        self._check_channel(channel)
        with self._session.transaction():
            if range_dbm is not None:
                lowest_w, highest_w = self._range_limits_w()
                self._scpi.check_in_range("range", range_dbm, dbm_from_w(lowest_w), dbm_from_w(highest_w), "dBm")
            automatic = int(range_dbm is None)
            self._scpi.set_number("SENS:POW:RANG:AUTO", str(automatic), automatic, 1.0, 0.0, "automatic ranging")
            self._setup.also_restore("range", partial(self.set_range_dbm, channel, range_dbm))
            if range_dbm is None:
                return
            requested_w = w_from_dbm(range_dbm)
            # The meter reports rounded limits, which may be out of range if sent back; so their names are sent.
            limits_w = ("MIN", lowest_w), ("MAX", highest_w)
            limit_names = [
                keyword for keyword, limit_w in limits_w if math.isclose(requested_w, limit_w, rel_tol=_ROUNDED)
            ]
            self._scpi.set(f"SENS:POW:RANG {limit_names[0] if limit_names else f'{requested_w:.6E}'}")
            actual_w = self._scpi.setting("SENS:POW:RANG?")
            fits = requested_w * (1.0 - _RANGE_SLACK) <= actual_w <= max(requested_w * _LARGEST_RANGE_STEP, lowest_w)
            if not fits:
                raise self._session.error(VerifyError, "range in W", wrote=requested_w, read=actual_w)

    def settings(self, channel: int) -> MeterSettings:
        """Return the present settings."""
        with self._session.transaction():
            averaging_s = self._sample_s * self.averaging_count()
            return MeterSettings(self.wavelength_nm(channel), averaging_s, self.range_dbm(channel))

    def limits(self, channel: int) -> MeterLimits:
        """Return the limits of the settings."""
        self._check_channel(channel)
        with self._session.transaction():
            lowest_w, highest_w = self._range_limits_w()
            return MeterLimits(
                wavelength_nm=self._scpi.limits("SENS:CORR:WAV", 1.0),
                averaging_s=self._scpi.limits("SENS:AVER", self._sample_s),
                range_dbm=(dbm_from_w(lowest_w), dbm_from_w(highest_w)),
            )

    def zero(self) -> None:
        """Zero the meter; the sensor must be dark.

        Raises the errors of :meth:`PowerMeter.zero`, and ``DeviceTimeoutError`` if zeroing did not end in time.
        """
        self._check_channel(CHANNEL)
        self.errors()
        self._session.write("SENS:CORR:COLL:ZERO")
        deadline = self._clock.now() + _ZERO_TIMEOUT_S
        while self._scpi.setting("SENS:CORR:COLL:ZERO:STAT?"):
            if self._clock.now() >= deadline:
                self._scpi.set("SENS:CORR:COLL:ZERO:ABOR")
                raise self._session.error(
                    DeviceTimeoutError,
                    f"zeroing did not end within {_ZERO_TIMEOUT_S:g} s and was stopped",
                    command="SENS:CORR:COLL:ZERO",
                    hint="Cap the sensor and try again.",
                )
            self._clock.sleep(_ZERO_POLL_S)
        failures = self.errors()
        if failures:
            reasons = [f"{code} {text}" for code, text in failures]
            raise self._zeroing_failed(reasons, "SENS:CORR:COLL:ZERO", failures[0][0])

    def read(self, channel: int) -> PowerReading:
        """Measure and return one averaged power reading."""
        self._check_channel(channel)
        wait_s = max(_SHORTEST_TIMEOUT_S, _TIMEOUT_FACTOR * self._averages * self._sample_s)
        with self._session.transaction():
            value_w = self._scpi.number("READ?", wait_s, self._setup)
            return reading(channel, value_w, self._clock.now(), self._largest_w)

    def read_all(self) -> tuple[PowerReading, ...]:
        """Return one power reading of the only channel."""
        return (self.read(CHANNEL),)

    def _set(self, header: str, value: float, tolerance: float, label: str) -> float:
        return self._scpi.set_number(header, f"{value:.9g}", value, 1.0, tolerance, label)

    def _hold(self, header: str, value: float, tolerance: float, label: str) -> None:
        restore = partial(self._set, header, value, tolerance, label)
        self._setup.hold(HeldSetting(f"{header}?", value, label, restore, tolerance))

    def _checked_sensor(self) -> Sensor:
        reply = self._session.query("SYST:SENS:IDN?")
        # Six fields: name, serial number, calibration message, type, subtype, flags (SYSTem:SENSor:IDN?).
        fields = [field.strip().strip('"') for field in reply.split(",")]
        if fields[0].lower() == "no sensor":
            raise self._session.error(
                DeviceError,
                "no sensor is connected",
                command="SYST:SENS:IDN?",
                hint="Connect the sensor, then open the meter again.",
            )
        if len(fields) != 6 or not fields[5].isdigit():
            raise self._scpi.wrong_shape("SYST:SENS:IDN?", reply, "six fields, the last of them flags")
        sensor = Sensor(fields[0], fields[1], fields[2], int(fields[5]))
        if not sensor.flags & _FLAG_POWER:
            raise self._session.error(
                DeviceError,
                f"the sensor {sensor.name} does not measure power",
                command="SYST:SENS:IDN?",
                hint="Connect a power sensor, then open the meter again.",
            )
        return sensor

    def _range_limits_w(self) -> tuple[float, float]:
        lowest_w, highest_w = (self._scpi.setting(f"SENS:POW:RANG? {end}") for end in ("MIN", "MAX"))
        if not 0.0 < lowest_w <= highest_w:
            raise self._scpi.wrong_shape("SENS:POW:RANG? MIN", f"{lowest_w:g}, {highest_w:g}", "ranges in watts")
        return lowest_w, highest_w

    def _check_channel(self, channel: int) -> None:
        if channel not in self.channels:
            raise self._session.error(
                ConfigError, f"there is no channel {channel}", hint=f"The only channel of a {self.model} is {CHANNEL}."
            )
