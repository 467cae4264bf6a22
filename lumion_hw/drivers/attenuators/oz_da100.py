"""Driver for OZ Optics DA-100, DD-100 and DD-600 attenuators: motorized, text over a serial line at 9600 baud.

The maker's manual is not published. Sources: three public clients, namely ``dd100mc`` of QMI, ``DD100`` of pyLabLib,
and ``ozoptics`` of the Caltech Optical Observatories. Not verified on a unit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import Driver, close_on_error, not_open
from lumion_hw.drivers.ranges import check_range
from lumion_hw.errors import ConfigError, DeviceError, FrameError, IdentityError, NotSupportedError, VerifyError
from lumion_hw.interfaces import AttenuatorLimits, AttenuatorSettings
from lumion_hw.links.base import Link
from lumion_hw.sessions.lines import LineSession

CHANNEL = 1
STEP_DB = 0.01
READBACK_DB = 0.1
"""Largest accepted difference between the attenuation set and read back, in dB (unverified)."""
ERRORS = {
    "Error-2": "the unit does not know this command or its value",
    "Error-5": "the home sensor failed; the unit must be repaired",
    "Error-6": "the value is too large",
    "Error-7": "the motor voltage is not safe",
}
"""Meaning of the error numbers in replies."""
_MOVE_S = 30.0
_HOME_S = 60.0
_ATTENUATION = re.compile(r"(?<!MAX )\bATTEN\w*\s*[:=]\s*(UNKNOWN|[+-]?\d+(?:\.\d+)?)")
_MIN_ATTENUATION = re.compile(r"\bIL\s*[:=]\s*([+-]?\d+(?:\.\d+)?)")
_MAX_ATTENUATION = re.compile(r"\bMAX ATTEN\w*\s*[:=]\s*([+-]?\d+(?:\.\d+)?)")


class OzDa100(Driver):
    """Driver of one attenuator; implements ``VariableAttenuator``. Thread-safe; every setting is read back.

    If the position of the motor is unknown, as after power-on, opening homes the motor. The unit reports neither model
    nor serial number.

    Args:
        link: Serial link, 9600 baud.
        clock: Clock of the link.
        attenuation_max_db: Largest attenuation allowed; a smaller limit reported by the unit has priority.
    """

    model = "DA-100"
    serial = ""

    def __init__(self, link: Link, clock: Clock, *, device: str, attenuation_max_db: float = 60.0) -> None:
        self._session = LineSession(
            link,
            clock,
            device=device,
            done="Done",
            failed=r"Error\s*(?:-\s*\d+|!)",
            marker="D",
            is_marker_reply=lambda lines: _find_match(_ATTENUATION, lines) is not None,
        )
        self._device = device
        self._largest_db = attenuation_max_db
        self._range_db = (0.0, attenuation_max_db)
        self._is_open = False

    def open(self) -> None:
        """Open the link, check that an attenuator replies, and home the motor if its position is unknown.

        Raises the errors of :meth:`Driver.open`, and ``DeviceError`` if the unit does not find its home position.
        """
        with self._session.transaction(), close_on_error(self.close):
            lines = self._session.open()
            attenuation = _find_match(_ATTENUATION, lines)
            if attenuation is None:
                raise self._session.error(
                    IdentityError,
                    f"expected an OZ Optics attenuator; the reply to D is {' / '.join(lines)!r}",
                    hint="Check the address in the bench file, and which device is connected there.",
                )
            self._range_db = self._stated_range_db()
            if attenuation == "UNKNOWN":
                self._command("H", _HOME_S)
            self._is_open = True

    def close(self) -> None:
        """Release the link; idempotent, never raises. The attenuation stays."""
        self._is_open = False
        self._session.close()

    @property
    def channels(self) -> tuple[int, ...]:
        """Channel number of the only attenuator."""
        return (CHANNEL,)

    @property
    def session(self) -> LineSession:
        """The session, for its counters and for commands that this driver does not cover."""
        return self._session

    def set_attenuation_db(self, channel: int, attenuation_db: float) -> None:
        """Set the attenuation and wait for the motor; see :meth:`VariableAttenuator.set_attenuation_db`."""
        self._check_channel(channel)
        check_range("attenuation", attenuation_db, self._range_db, "dB", self._session)
        with self._session.transaction():
            self._command(f"A{attenuation_db:.2f}", _MOVE_S)
            actual_db = self._read_db()
        if not abs(actual_db - attenuation_db) <= READBACK_DB:
            raise self._session.error(
                VerifyError,
                "the attenuation in dB was not reached",
                wrote=attenuation_db,
                read=actual_db,
                hint="The motor did not reach the position. Call home() and try again.",
            )

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Raise ``NotSupportedError``: the wavelength of this unit cannot be set."""
        self._check_channel(channel)
        raise self._not_supported_error(
            f"this unit has the fixed wavelength of its calibration; {wavelength_nm:g} nm cannot be set"
        )

    def enable(self, channel: int) -> None:
        """Do nothing: the unit has no shutter."""
        self._check_channel(channel)

    def disable(self, channel: int) -> None:
        """Raise ``NotSupportedError``: the unit has no shutter."""
        self._check_channel(channel)
        raise self._not_supported_error("this attenuator has no shutter")

    def settings(self, channel: int) -> AttenuatorSettings:
        """Return the present attenuation."""
        self._check_channel(channel)
        return AttenuatorSettings(self._read_db(), None, passing=True)

    def limits(self, channel: int) -> AttenuatorLimits:
        """Return the attenuation limits: the reported range, narrowed by ``attenuation_max_db``."""
        self._check_channel(channel)
        return AttenuatorLimits(self._range_db, STEP_DB, None, shutter=False)

    def home(self) -> None:
        """Move the motor to its home sensor; the attenuation passes through all values on the way.

        Raises ``DeviceError`` if the motor does not find the sensor.
        """
        self._check_channel(CHANNEL)
        self._command("H", _HOME_S)

    def _stated_range_db(self) -> tuple[float, float]:
        lines = self._command("CD")
        smallest, largest = _find_match(_MIN_ATTENUATION, lines), _find_match(_MAX_ATTENUATION, lines)
        largest_db = self._largest_db if largest is None else min(float(largest), self._largest_db)
        return (0.0 if smallest is None else float(smallest)), largest_db

    def _read_db(self) -> float:
        lines = self._command("D")
        match = _find_match(_ATTENUATION, lines)
        if match is None:
            self._session.mark_out_of_sync(f"D answered with {lines!r}")
            raise self._session.error(
                FrameError,
                f"D: expected an attenuation, found {' / '.join(lines)!r}",
                hint="Check that no other program uses this serial line.",
            )
        if match == "UNKNOWN":
            raise self._session.error(
                DeviceError,
                "D: the unit does not know its motor position",
                command="D",
                hint="The unit lost power. Open the attenuator again, or call home().",
            )
        return float(match)

    def _command(self, text: str, timeout_s: float | None = None) -> tuple[str, ...]:
        try:
            return self._session.command(text, timeout_s)
        except DeviceError as error:
            reason = next((meaning for name, meaning in ERRORS.items() if name in error.message), None)
            error.hint = error.hint if reason is None else f"Meaning: {reason}."
            raise

    def _not_supported_error(self, reason: str) -> NotSupportedError:
        return self._session.error(NotSupportedError, reason)

    def _check_channel(self, channel: int) -> None:
        if not self._is_open:
            raise not_open("the attenuator", self._device, self._session.address)
        if channel != CHANNEL:
            raise self._session.error(
                ConfigError, f"there is no channel {channel}", hint=f"This attenuator has only channel {CHANNEL}."
            )


def _find_match(pattern: re.Pattern[str], lines: Sequence[str]) -> str | None:
    match = pattern.search("\n".join(lines).upper())
    return None if match is None else match[1]
