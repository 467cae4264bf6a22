"""Driver for the Novoptel PM1000 polarimeter over LAN (port 5025) or its USB 2 port (230 400 baud)."""

from __future__ import annotations

import logging
import math

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import Driver, close_on_error, not_open
from lumion_hw.drivers.ranges import check_range
from lumion_hw.errors import (
    DeviceError,
    FrameError,
    IdentityError,
    OutOfRangeError,
    VerifyError,
)
from lumion_hw.interfaces import PolarimeterLimits, PolarimeterSettings, PolarizationReading
from lumion_hw.links.base import Link
from lumion_hw.sessions.codecs.novoptel import LAN, USB2
from lumion_hw.sessions.novoptel import NovoptelSession

_log = logging.getLogger(__name__)

_BASE = 512
ALARMS = _BASE
AVERAGING = _BASE + 1
POWER = (_BASE + 10, _BASE + 11)
LATCHED_STOKES = tuple(range(_BASE + 18, _BASE + 24))
FREQUENCY_MIN, FREQUENCY_MAX, FREQUENCY = (_BASE + offset for offset in (67, 68, 69))
FIRMWARE = _BASE + 128
SERIAL = _BASE + 133
TYPE_NAME = tuple(range(_BASE + 144, _BASE + 160))
_OVER_RANGE, _UNDER_RANGE, _TEMPERATURE = 1 << 1, 1 << 2, 1 << 4
_ANY_ALARM = 1 | _OVER_RANGE | _UNDER_RANGE | _TEMPERATURE
_SAMPLE_S = 10e-9
LARGEST_EXPONENT = 20
LONGEST_AVERAGING_S = _SAMPLE_S * 2**LARGEST_EXPONENT
_THZ_PER_STEP = 0.01
_OFFSET = 1 << 15
_FRACTION = 65536.0
_MIN_WAIT_S = 1e-3


class NovoptelPm1000(Driver):
    """Driver of one polarimeter; implements ``Polarimeter``. Thread-safe; every setting is read back.

    The sign of S3 is that of the instrument, which its register 45 can invert.

    Args:
        link: Link to the instrument.
        clock: Clock of the link.
        serial_line: Whether the link is the USB 2 port instead of LAN.
        expected_serial: Required serial number; any if omitted.
    """

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        serial_line: bool = False,
        expected_serial: str | None = None,
    ) -> None:
        self._session = NovoptelSession(
            link, clock, device=device, form=USB2 if serial_line else LAN, landmarks=TYPE_NAME
        )
        self._clock = clock
        self._device = device
        self._expected_serial = expected_serial
        self._held: dict[int, int] = {}
        self._model = self._serial = self._firmware = ""
        self._is_open = False

    def open(self) -> None:
        """Open the link and check the identity. Settings do not change. Raises the errors of :meth:`Driver.open`."""
        with self._session.transaction(), close_on_error(self.close):
            self._identify()
            (exponent,) = self._session.read(AVERAGING)
            self._held = {AVERAGING: exponent}
            self._is_open = True

    def close(self) -> None:
        """Release the link; idempotent, never raises."""
        self._is_open = False
        self._session.close()

    @property
    def model(self) -> str:
        """Type name, such as ``PM1000-100M-XL-FA-N20-D``."""
        return self._model

    @property
    def serial(self) -> str:
        """Serial number."""
        return self._serial

    @property
    def firmware(self) -> str:
        """Version of the firmware, four digits."""
        return self._firmware

    def read(self) -> PolarizationReading:
        """Return the state of polarization, averaged after the call. All components are measured at the same time.

        Raises:
            OutOfRangeError: There is too much or too little light.
            DeviceError: The instrument is too hot or too cold, or the light is not polarized.
            LinkError: The reading could not be transferred.
        """
        with self._session.transaction():
            self._check_open()
            words, time_s = self._latched()
            if words[-1] & _ANY_ALARM:  # possibly an old alarm
                self._session.write(ALARMS, 0)
                words, time_s = self._latched()
            self._check_alarms(words[-1])
        power_uw = words[0] + words[1] / _FRACTION
        # Two words each, integer and fraction; S1 to S3 have an offset of 2^15.
        stokes_uw = np.array(
            [high - _OFFSET + low / _FRACTION for high, low in zip(words[2:8:2], words[3:8:2], strict=True)]
        )
        polarized_uw = float(np.linalg.norm(stokes_uw))
        if not power_uw > 0.0:
            raise self._out_of_range("too little light", ALARMS)
        if not polarized_uw > 0.0:
            raise self._refusal("the light is not polarized")
        return PolarizationReading(1e-6 * power_uw, stokes_uw / polarized_uw, polarized_uw / power_uw, time_s)

    def set_frequency_thz(self, frequency_thz: float) -> float:
        """Set the optical frequency to the nearest 10 GHz, and return the frequency set.

        Raises ``LimitError`` outside the instrument's range, or ``VerifyError`` if the frequency read back differs.
        """
        with self._session.transaction():
            self._check_open()
            check_range("optical frequency", frequency_thz, self.limits().frequency_thz, "THz", self._session)
            return _THZ_PER_STEP * self._set(FREQUENCY, round(frequency_thz / _THZ_PER_STEP), "frequency / 10 GHz")

    def set_averaging_s(self, averaging_s: float) -> float:
        """Set the averaging time to the nearest value 10 ns x 2^n, at most 10.49 ms, and return the time set.

        Raises ``LimitError`` outside this range, or ``VerifyError`` if the time read back differs.
        """
        with self._session.transaction():
            self._check_open()
            check_range("averaging time", averaging_s, (_SAMPLE_S, LONGEST_AVERAGING_S), "s", self._session)
            exponent = min(max(round(math.log2(averaging_s / _SAMPLE_S)), 0), LARGEST_EXPONENT)
            return _averaging_s(self._set(AVERAGING, exponent, "exponent of the averaging time"))

    def settings(self) -> PolarimeterSettings:
        """Return the present settings."""
        with self._session.transaction():
            self._check_open()
            word, exponent = self._session.read(FREQUENCY, AVERAGING)
            return PolarimeterSettings(_THZ_PER_STEP * word, _averaging_s(exponent))

    def limits(self) -> PolarimeterLimits:
        """Return the limits of the settings."""
        with self._session.transaction():
            self._check_open()
            lowest_thz, highest_thz = (
                _THZ_PER_STEP * word for word in self._session.read(FREQUENCY_MIN, FREQUENCY_MAX)
            )
            return PolarimeterLimits((lowest_thz, highest_thz), (_SAMPLE_S, LONGEST_AVERAGING_S))

    # -- the registers

    def _latched(self) -> tuple[tuple[int, ...], float]:
        for _ in range(2):
            # An average that began just before the call ends after one averaging time, the next one after two.
            self._clock.sleep(max(2.0 * _averaging_s(self._held[AVERAGING]), _MIN_WAIT_S))
            time_s = self._clock.now()
            words = self._session.read(*POWER, *LATCHED_STOKES, ALARMS, *self._held)
            actual = words[-len(self._held) :]
            changed = [
                register for register, word in zip(self._held, actual, strict=True) if word != self._held[register]
            ]
            if not changed:
                return words[: -len(self._held)], time_s
            _log.warning("%s: another program changed registers %s; restored", self._device, changed)
            for register in changed:
                self._set(register, self._held[register], f"register {register}")
        raise self._session.error(
            VerifyError,
            f"registers {', '.join(map(str, changed))} changed during the reading",
            wrote=[self._held[register] for register in changed],
            read=[dict(zip(self._held, actual, strict=True))[register] for register in changed],
            hint="Another program changes these registers. The reading was discarded.",
        )

    def _set(self, register: int, word: int, label: str) -> int:
        self._session.write(register, word)
        (actual,) = self._session.read(register)
        if actual != word:
            raise self._session.error(
                VerifyError, label, wrote=word, read=actual, hint="Check whether another program uses this polarimeter."
            )
        self._held[register] = word
        return actual

    def _identify(self) -> None:
        try:
            words = self._session.open()
        except FrameError as error:
            raise self._identity_error(error.message) from error
        name = b"".join(word.to_bytes(2, "big") for word in words).rstrip(b"\0 ")
        self._model = name.decode("ascii", "replace")
        if not self._model.startswith("PM1000"):
            raise self._identity_error(repr(self._model))
        firmware, serial = self._session.read(FIRMWARE, SERIAL)
        self._firmware, self._serial = ".".join(f"{firmware:04X}"), str(serial)
        if self._expected_serial not in (None, self._serial):
            raise self._identity_error(f"{self._model}, serial {self._serial}")

    # -- checks

    def _check_alarms(self, alarms: int) -> None:
        if alarms & _OVER_RANGE:
            raise self._out_of_range("too much light", alarms)
        if alarms & _UNDER_RANGE:
            raise self._out_of_range("too little light", alarms)
        if alarms & _TEMPERATURE:
            raise self._refusal("the temperature of the instrument is out of range")
        if alarms & _ANY_ALARM:
            raise self._refusal("the instrument reports an unnamed alarm")

    def _out_of_range(self, label: str, alarms: int) -> OutOfRangeError:
        return self._session.error(
            OutOfRangeError,
            f"{label} to measure a state of polarization",
            code=alarms,
            command="read",
            hint="The range is about -18 to 4 dBm, or -36 to -14 dBm with the sensitive option.",
        )

    def _refusal(self, label: str) -> DeviceError:
        return self._session.error(DeviceError, label, command="read", hint="Check the display of the instrument.")

    def _identity_error(self, actual: str) -> IdentityError:
        return self._session.error(
            IdentityError,
            f"expected a PM1000, serial {self._expected_serial or 'any'}; found {actual}",
            hint="Check the address in the bench file and which instrument is connected there.",
        )

    def _check_open(self) -> None:
        if not self._is_open:
            raise not_open("the polarimeter", self._device, self._session.address)


def _averaging_s(exponent: int) -> float:
    return float(_SAMPLE_S * 2 ** min(exponent, LARGEST_EXPONENT))
