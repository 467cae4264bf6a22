"""Driver for Yokogawa AQ6370, AQ6370B, C, D and E optical spectrum analysers over SCPI.

Sources: the Remote Control Manuals IM AQ6370C-17EN and AQ6370D-17EN, chapter 7, as used by PyMeasure, InstrumentKit and
LabExT. TCP port 10001 requires a login; the driver sends the password as plain text (unverified for all models).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import partial
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock, Deadline, deadline_after
from lumion_hw.drivers.held_setup import HeldSetting, HeldSetup
from lumion_hw.drivers.life_cycle import close_on_error
from lumion_hw.drivers.ranges import check_range
from lumion_hw.drivers.scpi import DeviceNames, ScpiDriver
from lumion_hw.errors import (
    ConfigError,
    ConnectError,
    DeviceTimeoutError,
    FrameError,
    LimitError,
    LinkTimeout,
    LumionError,
)
from lumion_hw.interfaces import Spectrum, SpectrumLimits, SpectrumSettings
from lumion_hw.links.base import Link
from lumion_hw.sessions.scpi import ScpiSession

MODELS = ("AQ6370", "AQ6370B", "AQ6370C", "AQ6370D", "AQ6370E")
ANONYMOUS = "anonymous"
LIMITS = SpectrumLimits(
    wavelength_nm=(600.0, 1700.0),
    resolutions_nm=(0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0),
    sensitivities=("NHLD", "NAUT", "NORM", "MID", "HIGH1", "HIGH2", "HIGH3"),
    n_points=(101, 50001),
)
"""Setting ranges of the AQ6370 family; the instruments have no queries for these ranges."""
SENSITIVITY_NUMBERS = ("NHLD", "NAUT", "MID", "HIGH1", "HIGH2", "HIGH3", "NORM")
"""Sensitivities, by the number that ``:SENS:SENS?`` returns."""
NO_LEVEL_DBM = -200.0
"""Levels below this limit mark missing values: for a power of zero or less, the analyser sends -210 dBm."""
_TRACE = "TRA"
_AXIS = (
    (":FORM", "REAL,64", "REAL,64", "format of traces"),
    (":UNIT:X", "WAV", 0, "unit of the horizontal axis (0 is wavelength)"),
    (":SENS:CORR:RVEL:MED", "VAC", 1, "medium of the wavelengths (1 is vacuum)"),
)
"""Settings that define the wavelength axis: header, value to set, expected reply, and description."""
_LEVELS = (
    (f":TRAC:ATTR:{_TRACE}", "WRIT", 0, "attribute of the trace (0 is write)"),
    (":DISP:TRAC:Y1:SPAC", "LOG", 0, "level scale (0 is logarithmic)"),
    (":DISP:TRAC:Y1:UNIT", "DBM", 0, "unit of levels (0 is dBm)"),
)
"""Settings that define the levels of a trace: header, value to set, expected reply, and description."""
_WAVELENGTH_TOLERANCE_NM = 1.1e-3
_SHIFT_TOLERANCE = 1e-3
"""Largest accepted change of a shift, in nm or dB; the setting steps are 0.001 nm and 0.01 dB."""
_POLL_S = 0.1
_SWEPT = 1  # bit 0 of the operation event register
_SLOWEST_BYTES_PER_S = 50e3
_END_TOLERANCE_NM = 0.1


class LoggedInSession(ScpiSession):
    """SCPI session that begins with a login, as on the TCP port of these analysers.

    Args:
        link: Link to the instrument.
        clock: Clock for time-outs, shared with the link.
        user: User name.
        password_env: Environment variable with the password.
    """

    def __init__(self, link: Link, clock: Clock, *, device: str, user: str, password_env: str | None) -> None:
        super().__init__(link, clock, device=device)
        self._user = user
        self._password_env = password_env

    def open_link(self, timeout_s: float) -> None:
        """Open the link and log in. Raises ``ConnectError`` if the link cannot be opened or the login is refused."""
        password = self._password()
        super().open_link(timeout_s)
        with self.exchange("login", timeout_s) as deadline:
            challenge = self._exchange_line(f'OPEN "{self._user}"', deadline)
            if not challenge.upper().startswith("AUTHENTICATE"):
                raise self._refused(f"expected AUTHENTICATE CRAM-MD5., received {challenge!r}")
            reply = self._exchange_line(password, deadline)
            if reply.upper() != "READY":
                raise self._refused(f"the reply for user {self._user!r} is {reply!r}")

    def _exchange_line(self, message: str, deadline: Deadline) -> str:
        self.send(message.encode("ascii") + b"\n", deadline)
        return self.receive_line("login", deadline).decode("ascii", "replace").strip()

    def _password(self) -> str:
        if self._password_env is None:
            return " "  # required for anonymous, but ignored
        password = os.environ.get(self._password_env, "")
        if not (password.isascii() and password.isprintable() and password):
            raise self.error(
                ConfigError,
                f"the environment variable {self._password_env} does not contain a password",
                hint="Set the variable to the user's password, in printable ASCII.",
            )
        return password

    def _refused(self, reason: str) -> ConnectError:
        return self.error(
            ConnectError,
            f"the login failed: {reason}",
            hint="Check user name and password at the analyser's panel (REMOTE INTERFACE).",
        )


class YokogawaAq6370(ScpiDriver):
    """Driver of one analyser; implements ``SpectrumAnalyzer``. Thread-safe; every setting is read back.

    Args:
        clock: Clock of the link.
        password_env: Environment variable with the password for the TCP port; not needed for ``anonymous``.
        **names: As for :class:`~lumion_hw.drivers.scpi.ScpiDriver`; a model is, for example, ``AQ6370D``.
    """

    kind = "spectrum analyser"
    makers = ("YOKOGAWA",)
    models = MODELS

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        user: str = ANONYMOUS,
        password_env: str | None = None,
        **names: Unpack[DeviceNames],
    ) -> None:
        self._login = user, password_env
        super().__init__(link, clock, **names)
        self._axis = HeldSetup(self._session)
        self._levels = HeldSetup(self._session)

    def _session_on(self, link: Link, clock: Clock, device: str) -> ScpiSession:
        if link.name.startswith(("visa://", "serial://")):
            return super()._session_on(link, clock, device)
        user, password_env = self._login
        return LoggedInSession(link, clock, device=device, user=user, password_env=password_env)

    def open(self) -> None:
        """Open the link, log in if required, check the identity, and select wavelengths in vacuum.

        Raises the errors of :meth:`Driver.open`; a refused login is a ``ConnectError``.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identify()
            self._scpi.errors()  # discard errors of earlier users
            self._hold(self._axis, _AXIS)
            self._hold_shift(self._axis, ":SENS:CORR:WAV:SHIF", 1e9, "NM", "shift of wavelengths in nm")
            self._hold_shift(self._levels, ":SENS:CORR:LEV:SHIF", 1.0, "DB", "shift of levels in dB")

    def set_span_nm(self, start_nm: float, stop_nm: float) -> None:
        """Set the first and last wavelength. Raises the errors of :meth:`SpectrumAnalyzer.set_span_nm`."""
        self._check_open()
        check_range("first wavelength", start_nm, LIMITS.wavelength_nm, "nm", self._session)
        check_range("last wavelength", stop_nm, LIMITS.wavelength_nm, "nm", self._session)
        if not start_nm < stop_nm:
            raise self._session.error(
                LimitError,
                "the last wavelength is too small",
                requested=stop_nm,
                limit=start_nm,
                unit="nm",
                hint="It must be above the first wavelength. Nothing was changed.",
            )
        with self._session.transaction():
            self._axis.restore_changed()
            # The order keeps the first wavelength below the last; otherwise the analyser moves the other one.
            steps = [(":SENS:WAV:STAR", start_nm), (":SENS:WAV:STOP", stop_nm)]
            if start_nm >= 1e9 * self._scpi.setting(":SENS:WAV:STOP?"):
                steps.reverse()
            for header, requested_nm in steps:
                self._scpi.set(f"{header} {requested_nm:.3f}NM")
            for header, requested_nm in steps:
                actual_nm = 1e9 * self._scpi.setting(f"{header}?")
                self._scpi.verify(f"{header} in nm", requested_nm, actual_nm, _WAVELENGTH_TOLERANCE_NM)

    def set_resolution_nm(self, resolution_nm: float) -> None:
        """Set the resolution bandwidth. Raises the errors of :meth:`SpectrumAnalyzer.set_resolution_nm`."""
        self._check_open()
        nearest = min(LIMITS.resolutions_nm, key=lambda value: abs(value - resolution_nm))
        if not abs(resolution_nm - nearest) <= 1e-6:
            raise self._session.error(
                LimitError,
                "resolution",
                requested=resolution_nm,
                limit=nearest,
                unit="nm",
                hint=f"Available: {', '.join(f'{value:g}' for value in LIMITS.resolutions_nm)} nm. Nothing changed.",
            )
        text = f"{resolution_nm:.3f}NM"
        # Some units return the bandwidth at the present wavelength, which is only close to the nominal one.
        self._scpi.set_number(":SENS:BAND", text, resolution_nm, 1e9, 0.2 * nearest, "resolution in nm")

    def set_sensitivity(self, sensitivity: str) -> None:
        """Set the sensitivity by its name. Raises the errors of :meth:`SpectrumAnalyzer.set_sensitivity`."""
        self._check_open()
        name = sensitivity.upper()
        if name not in LIMITS.sensitivities:
            raise self._session.error(
                ConfigError,
                f"there is no sensitivity {sensitivity!r}",
                hint=f"Available: {', '.join(LIMITS.sensitivities)}. Nothing was changed.",
            )
        number = SENSITIVITY_NUMBERS.index(name)
        self._scpi.set_number(":SENS:SENS", name, number, 1.0, 0.0, f"sensitivity (number of {name})")

    def set_n_points(self, n_points: int | None) -> None:
        """Set the number of points. Raises the errors of :meth:`SpectrumAnalyzer.set_n_points`."""
        self._check_open()
        with self._session.transaction():
            if n_points is None:
                self._scpi.set_number(":SENS:SWE:POIN:AUTO", "1", 1.0, 1.0, 0.0, "automatic number of points")
                return
            check_range("number of points", n_points, LIMITS.n_points, "", self._session)
            self._scpi.set_number(":SENS:SWE:POIN:AUTO", "0", 0.0, 1.0, 0.0, "automatic number of points")
            self._scpi.set_number(":SENS:SWE:POIN", f"{n_points:d}", n_points, 1.0, 0.0, "number of points")

    def sweep(self, timeout_s: float) -> Spectrum:
        """Make one sweep into trace A and read the trace. Raises the errors of :meth:`SpectrumAnalyzer.sweep`."""
        self._check_open()
        deadline = deadline_after(self._clock, timeout_s)
        with self._session.transaction():
            settings = self.settings()
            self._hold(self._levels, _LEVELS)
            self._levels.restore_changed()
            self._scpi.set(f":TRAC:ACT {_TRACE}")
            self._scpi.set(":INIT:SMOD SING")
            self._session.write("*CLS")  # clears the event bit of an earlier sweep
            started_s = self._clock.now()
            self._scpi.set(":INIT")
        self._wait_swept(deadline, timeout_s)
        ended_s = self._clock.now()
        with self._session.transaction():
            wavelength_nm = 1e9 * self._trace("X")
            power_dbm = self._trace("Y")
            for setup in (self._axis, self._levels):
                setup.check_unchanged()  # a changed setting is an error, because a sweep cannot be repeated
        self._check_trace(wavelength_nm, power_dbm, settings)
        power_dbm[~(power_dbm > NO_LEVEL_DBM)] = math.nan
        return Spectrum(wavelength_nm, power_dbm, settings.resolution_nm, started_s, ended_s)

    def settings(self) -> SpectrumSettings:
        """Return the present settings."""
        self._check_open()
        return self._axis.read_held(self._read_settings)

    def _read_settings(self) -> SpectrumSettings:
        setting = self._scpi.setting
        number = round(setting(":SENS:SENS?"))
        if not 0 <= number < len(SENSITIVITY_NUMBERS):
            raise self._scpi.wrong_shape(":SENS:SENS?", str(number), "the number of a sensitivity")
        automatic = round(setting(":SENS:SWE:POIN:AUTO?"))
        return SpectrumSettings(
            start_nm=1e9 * setting(":SENS:WAV:STAR?"),
            stop_nm=1e9 * setting(":SENS:WAV:STOP?"),
            resolution_nm=1e9 * setting(":SENS:BAND?"),
            sensitivity=SENSITIVITY_NUMBERS[number],
            n_points=None if automatic else round(setting(":SENS:SWE:POIN?")),
        )

    def _hold(self, setup: HeldSetup, table: Sequence[tuple[str, str, float | str, str]]) -> None:
        for header, text, reply, label in table:
            restore = partial(self._scpi.set, f"{header} {text}")
            restore()
            setup.hold(HeldSetting(f"{header}?", reply, label, restore))

    def _hold_shift(self, setup: HeldSetup, header: str, scale: float, unit: str, label: str) -> None:
        try:
            shift = self._scpi.setting(f"{header}?")
        except LinkTimeout:
            self._scpi.errors()  # the unknown query queues an error
            return
        restore = partial(self._scpi.set, f"{header} {scale * shift:.6g}{unit}")
        setup.hold(HeldSetting(f"{header}?", shift, label, restore, _SHIFT_TOLERANCE / scale))

    def limits(self) -> SpectrumLimits:
        """Return the available settings."""
        self._check_open()
        return LIMITS

    def _wait_swept(self, deadline: Deadline, timeout_s: float) -> None:
        try:
            while not int(self._scpi.setting(":STAT:OPER:EVEN?")) & _SWEPT:
                if self._clock.now() >= deadline:
                    raise self._session.error(
                        DeviceTimeoutError,
                        f"the sweep did not end within {timeout_s:g} s and was stopped",
                        command=":INIT",
                        hint="Allow more time, or use a coarser resolution or a faster sensitivity.",
                    )
                self._clock.sleep(min(_POLL_S, max(deadline - self._clock.now(), 1e-3)))
        except BaseException:
            self._stop_quietly()
            raise

    def _stop_quietly(self) -> None:
        try:
            self._session.write(":ABOR")
        except LumionError:
            return

    def _trace(self, axis: str) -> NDArray[np.float64]:
        command = f":TRAC:{axis}? {_TRACE}"
        timeout_s = 2.0 + 8 * LIMITS.n_points[1] / _SLOWEST_BYTES_PER_S
        payload = self._session.query_block(command, timeout_s)
        if len(payload) % 8:
            raise self._foreign_trace_error(f"{len(payload)} bytes, not a multiple of 8")
        return np.frombuffer(payload, "<f8").astype(np.float64)

    def _check_trace(
        self, wavelength_nm: NDArray[np.float64], power_dbm: NDArray[np.float64], settings: SpectrumSettings
    ) -> None:
        n_points = len(wavelength_nm)
        if n_points != len(power_dbm) or n_points < 2:
            raise self._foreign_trace_error(f"{n_points} wavelengths and {len(power_dbm)} levels")
        if settings.n_points not in (None, n_points):
            raise self._foreign_trace_error(f"{n_points} points instead of {settings.n_points}")
        end_errors_nm = wavelength_nm[0] - settings.start_nm, wavelength_nm[-1] - settings.stop_nm
        if not (np.all(np.diff(wavelength_nm) > 0.0) and max(map(abs, end_errors_nm)) <= _END_TOLERANCE_NM):
            raise self._foreign_trace_error(f"wavelengths from {wavelength_nm[0]:.6g} to {wavelength_nm[-1]:.6g} nm")

    def _foreign_trace_error(self, content: str) -> FrameError:
        return self._session.error(
            FrameError,
            f"the trace does not belong to the sweep: it has {content}",
            hint="Sweep again. Check that no other program uses the analyser.",
        )
