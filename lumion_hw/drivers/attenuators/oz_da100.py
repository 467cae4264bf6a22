"""OZ Optics DA-100, DD-100 and DD-600 attenuators: a motor behind a serial line of text, 9600 baud.

Every reply is zero or more lines and then ``Done`` or ``Error-`` with a number; commands may be echoed, also without a
line end behind them. The maker's manual is not published; commands, words of the replies and errors are those of three
public clients: QMI's ``dd100mc`` (``D`` answered with ``DPos:1234`` and ``ATTEN:3.00`` by a unit that echoes),
pyLabLib's ``DD100`` (``CD`` with ``IL:`` and ``MAX ATTEN:``), and the Caltech Optical Observatories' ``ozoptics``
(list of commands, ``Atten: 3.00(dB)`` or ``unknown``, the errors). All of it (check) on a unit.
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
"""Largest difference between an attenuation set and read back: the motor has steps (check)."""
ERRORS = {
    "Error-2": "it does not know this command, or its value",
    "Error-5": "its home sensor fails; the unit has to be repaired",
    "Error-6": "the value is too large",
    "Error-7": "the voltage of its motor is not safe",
}
"""Meaning of the refusals."""
_MOVE_S = 30.0
_HOME_S = 60.0
_ATTENUATION = re.compile(r"(?<!MAX )\bATTEN\w*\s*[:=]\s*(UNKNOWN|[+-]?\d+(?:\.\d+)?)")
_LEAST = re.compile(r"\bIL\s*[:=]\s*([+-]?\d+(?:\.\d+)?)")
_MOST = re.compile(r"\bMAX ATTEN\w*\s*[:=]\s*([+-]?\d+(?:\.\d+)?)")


class OzDa100(Driver):
    """Driver of one attenuator; implements ``VariableAttenuator``. Thread-safe; every set is read back.

    A unit that does not know where its motor stands, as after power on, is sent home when it is opened: until then it
    has no attenuation to speak of. It says neither model nor serial number.

    Args:
        link: The serial link, 9600 baud.
        clock: The link's clock.
        device: Device name, for messages.
        attenuation_max_db: Largest attenuation allowed, where the unit does not state a smaller one.
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
            is_marker_reply=lambda lines: _found(_ATTENUATION, lines) is not None,
        )
        self._device = device
        self._largest_db = attenuation_max_db
        self._range_db = (0.0, attenuation_max_db)
        self._is_open = False

    def open(self) -> None:
        """Open the link, check that an attenuator answers, and send it home if it does not know where it is.

        Raises:
            ConnectError: The link cannot be opened.
            IdentityError: Something else answers.
            DeviceError: It does not find home.
            LinkTimeout: Nothing answers.
        """
        with self._session.transaction(), close_on_error(self.close):
            lines = self._session.open()
            known = _found(_ATTENUATION, lines)
            if known is None:
                raise self._session.error(
                    IdentityError,
                    f"expected an OZ Optics attenuator; D is answered with {' / '.join(lines)!r}",
                    hint="Check the address in the bench file, or what is plugged in there.",
                )
            self._range_db = self._stated_range_db()
            if known == "UNKNOWN":
                self._command("H", _HOME_S)
            self._is_open = True

    def close(self) -> None:
        """Release the link; idempotent, never raises. The attenuation stays."""
        self._is_open = False
        self._session.close()

    @property
    def channels(self) -> tuple[int, ...]:
        """The one channel."""
        return (CHANNEL,)

    @property
    def session(self) -> LineSession:
        """The session, for its counters and for commands this driver does not have."""
        return self._session

    def set_attenuation_db(self, channel: int, attenuation_db: float) -> None:
        """Set the attenuation, wait for the motor; see :meth:`VariableAttenuator.set_attenuation_db`."""
        self._check(channel)
        check_range("attenuation", attenuation_db, self._range_db, "dB", self._session)
        with self._session.transaction():
            self._command(f"A{attenuation_db:.2f}", _MOVE_S)
            found_db = self._read_db()
        if not abs(found_db - attenuation_db) <= READBACK_DB:
            raise self._session.error(
                VerifyError,
                "attenuation in dB",
                wrote=attenuation_db,
                read=found_db,
                hint="The motor has not got there; send it home and try again.",
            )

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Refuse: the unit is calibrated for one wavelength, or for a few that it does not tell."""
        self._check(channel)
        raise self._cannot(
            f"the wavelength of this unit is that of its calibration, {wavelength_nm:g} nm cannot be set"
        )

    def enable(self, channel: int) -> None:
        """Nothing to do: it has no shutter."""
        self._check(channel)

    def disable(self, channel: int) -> None:
        """Refuse: it has no shutter."""
        self._check(channel)
        raise self._cannot("this attenuator has no shutter")

    def settings(self, channel: int) -> AttenuatorSettings:
        """Ask for the attenuation in force."""
        self._check(channel)
        return AttenuatorSettings(self._read_db(), None, passing=True)

    def limits(self, channel: int) -> AttenuatorLimits:
        """Return the limits, as the unit states them and the bench file allows."""
        self._check(channel)
        return AttenuatorLimits(self._range_db, STEP_DB, None, shutter=False)

    def home(self) -> None:
        """Send the motor to its home sensor; the light passes through all attenuations on the way.

        Raises:
            DeviceError: It does not find it.
        """
        self._check(CHANNEL)
        self._command("H", _HOME_S)

    def _stated_range_db(self) -> tuple[float, float]:
        """Return the least and the largest attenuation, by ``CD`` where it names them."""
        lines = self._command("CD")
        least, most = _found(_LEAST, lines), _found(_MOST, lines)
        largest_db = self._largest_db if most is None else min(float(most), self._largest_db)
        return (0.0 if least is None else float(least)), largest_db

    def _read_db(self) -> float:
        lines = self._command("D")
        found = _found(_ATTENUATION, lines)
        if found is None:
            self._session.mark_out_of_sync(f"D answered with {lines!r}")
            raise self._session.error(
                FrameError,
                f"D: expected an attenuation, found {' / '.join(lines)!r}",
                hint="Check that nobody else uses this serial line.",
            )
        if found == "UNKNOWN":
            raise self._session.error(
                DeviceError,
                "D: the unit does not know where its motor stands",
                command="D",
                hint="It lost its supply; open it again, or call home().",
            )
        return float(found)

    def _command(self, text: str, timeout_s: float | None = None) -> tuple[str, ...]:
        """Send a command. Raises ``DeviceError`` that says what the number of a refusal means."""
        try:
            return self._session.command(text, timeout_s)
        except DeviceError as error:
            why = next((words for name, words in ERRORS.items() if name in error.message), None)
            error.hint = error.hint if why is None else f"That means: {why}."
            raise

    def _cannot(self, why: str) -> NotSupportedError:
        return self._session.error(NotSupportedError, why)

    def _check(self, channel: int) -> None:
        if not self._is_open:
            raise not_open("the attenuator", self._device, self._session.address)
        if channel != CHANNEL:
            raise self._session.error(
                ConfigError, f"there is no channel {channel}", hint=f"It has the one channel {CHANNEL}."
            )


def _found(pattern: re.Pattern[str], lines: Sequence[str]) -> str | None:
    """Return what a pattern finds in the lines of a reply, in capitals; an echo may stand in front of the first."""
    found = pattern.search("\n".join(lines).upper())
    return None if found is None else found[1]
