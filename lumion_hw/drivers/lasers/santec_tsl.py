"""Driver for Santec TSL-510, 550, 570 and 710 tunable lasers.

Sources: manuals of the TSL-570, 770 and 775, and public clients of the TSL-550 and 710. Wavelengths are in nm in the
``Legacy`` command set and in metres in the ``SCPI`` command set. A log contains at most 500 000 wavelengths; the
TSL-510 has no log. The limit of 5000 trigger pulses per second was measured by a public client on a TSL-770 (unverified
for other models).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar, Unpack

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.drivers.held_setup import HeldSetting, HeldSetup
from lumion_hw.drivers.lasers.scpi_laser import SETTLE_S, ScpiLaser, log_timeout_s
from lumion_hw.drivers.ranges import check_range
from lumion_hw.drivers.scpi import DeviceNames, is_value
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces import LaserCapabilities, LaserSweep, SweepLog
from lumion_hw.links.base import Link

MODELS = ("TSL-510", "TSL-550", "TSL-570", "TSL-710")
_MODEL_WITH_CODE = "TSL-570"
_CODE = "SYST:COMM:COD"
_LOGGING = ("TSL-550", "TSL-570", "TSL-710")
_WAVELENGTH_TOLERANCE_NM = 1.1e-4
_POWER_TOLERANCE_DB = 0.011
_SPEED_TOLERANCE = 1e-3
_SANE_NM = (200.0, 20000.0)
_CONTINUOUS_ONE_WAY = 1
_EVERY_STEP = 3
_DARK_DBM = -99.0
"""Power reading below which the laser counts as dark, in dBm."""
_STOPPED = 0
_MAX_LOG_POINTS = 500_000
_LOG_FORMATS = {4: ("<i4", 1e-4), 8: ("<f8", 1e9)}
"""Number type of logged wavelengths and nanometres per count, by the number of bytes per value."""


class Dialect(enum.Enum):
    """Command set of the laser (``SYST:COMM:COD?``), which determines the unit of wavelengths."""

    LEGACY = 0
    SCPI = 1

    @property
    def nm_per_unit(self) -> float:
        """Nanometres per unit of the wavelengths in this command set."""
        return 1.0 if self is Dialect.LEGACY else 1e9


class SantecTsl(ScpiLaser):
    """Driver of one laser; implements ``TunableLaser``. Thread-safe; every setting is read back.

    Args:
        clock: Clock of the link.
        **names: Device name and expected identity, as for :class:`~lumion_hw.drivers.scpi.ScpiDriver`.
        limits_nm: Shortest and longest wavelength; not needed for a TSL-570, which reports them.
        limits_dbm: Lowest and highest power; if omitted, only the instrument checks the power.
        settle_s: Settling time of the power after the output is switched on or the power is changed.
    """

    capabilities = LaserCapabilities(tunes_while_emitting=True, measures_power=True, sweep=True, wavelength_log=False)

    # TSL-570: manual p. 81, as quoted by a public client. Older models accept any speed up to 100 nm/s in steps of 0.1.
    speeds_nm_per_s: ClassVar = {
        "TSL-570": (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0),
        "TSL-550": (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0),
        "TSL-710": (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0),
    }
    pulses_per_s = 5000.0
    makers = ("SANTEC",)
    models = MODELS
    terminator = b"\r"

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        limits_nm: tuple[float, float] | None = None,
        limits_dbm: tuple[float, float] | None = None,
        settle_s: float = SETTLE_S,
        **names: Unpack[DeviceNames],
    ) -> None:
        super().__init__(link, clock, settle_s=settle_s, **names)
        self._configured_nm = limits_nm
        self._configured_dbm = limits_dbm
        self._dialect = Dialect.LEGACY
        # No public client sends several queries in one message.
        self._power = HeldSetup(self._session, joined=False)
        self._wavelength = HeldSetup(self._session, joined=False)

    @property
    def dialect(self) -> Dialect:
        """Command set that this laser uses."""
        return self._dialect

    def prepare(self) -> tuple[tuple[float, float], tuple[float, float] | None]:
        """Read the command set, select dBm, and return the wavelength limits in nm and the power limits in dBm."""
        self._scpi.errors()  # discard errors of earlier users
        self.capabilities = replace(self.capabilities, wavelength_log=self.model.upper() in _LOGGING)
        self._dialect = self._read_dialect()
        self._wavelength = HeldSetup(self._session, joined=False)
        if self.model.upper() == _MODEL_WITH_CODE:
            self._hold(self._wavelength, _CODE, self._dialect.value, "command set (0 is Legacy, 1 is SCPI)")
        self._hold(self._power, "POW:UNIT", 0, "unit of the power (0 is dBm)")()
        if self.model.upper() == _MODEL_WITH_CODE:
            reported_nm = self._read_nm("WAV:SWE:RANG:MIN?"), self._read_nm("WAV:SWE:RANG:MAX?")
            configured_nm = self._configured_nm or reported_nm
            # The narrower of both ranges: the bench file may restrict a laser.
            limits_nm = max(reported_nm[0], configured_nm[0]), min(reported_nm[1], configured_nm[1])
        elif self._configured_nm is None:
            raise self._session.error(
                ConfigError,
                f"a {self.model} does not report its wavelength range",
                hint="Set the shortest and the longest wavelength of this laser.",
            )
        else:
            limits_nm = self._configured_nm
        return limits_nm, self._configured_dbm

    def read_wavelength_nm(self) -> float:
        """Return the wavelength that the laser is set to, in nm."""
        return self._read_nm("WAV?")

    def write_wavelength_nm(self, wavelength_nm: float) -> None:
        """Set the wavelength and verify the setting."""
        self._set_nm("WAV", wavelength_nm, "wavelength in nm")

    def read_power_dbm(self) -> float:
        """Return the output power that the laser is set to, in dBm."""
        return self._scpi.setting("POW?", self._power)

    def write_power_dbm(self, power_dbm: float) -> None:
        """Set the output power and verify the setting."""
        text, label = f"{power_dbm:.2f}", "output power in dBm"
        self._scpi.set_number("POW", text, power_dbm, 1.0, _POWER_TOLERANCE_DB, label, self._power)

    def measure_power_dbm(self) -> float | None:
        """Return the measured output power, or ``None`` if the laser is dark."""
        measured_dbm = self._scpi.number("POW:ACT?", held=self._power)
        if is_value(measured_dbm):
            return measured_dbm if measured_dbm > _DARK_DBM else None
        self._scpi.errors()  # the marker also queues an error
        return None

    def is_emitting(self) -> bool:
        """Return whether the diode is on and the shutter open."""
        return bool(self._scpi.setting("POW:STAT?")) and not self._scpi.setting("POW:SHUT?")

    def switch(self, on: bool) -> None:
        """Switch the diode on and open the shutter, or switch the diode off. Verify both."""
        with self._session.transaction():
            self._scpi.set_number("POW:STAT", str(int(on)), int(on), 1.0, 0.0, "laser diode (1 is on)")
            if on:
                self.set_shutter(open_=True)

    def set_shutter(self, *, open_: bool) -> None:
        """Open or close the shutter and verify the change. The diode stays on."""
        state = 0 if open_ else 1
        self._scpi.set_number("POW:SHUT", str(state), state, 1.0, 0.0, "shutter (0 is open)")

    def prepare_sweep(self, plan: LaserSweep) -> int:
        """Set up one continuous sweep with a trigger at every step, and return the number of wavelengths to log."""
        speed = plan.speed_nm_per_s
        if plan.log:
            check_range("pulses of the sweep", speed / plan.step_nm, (0.0, self.pulses_per_s), "1/s", self._session)
            steps = (plan.stop_nm - plan.start_nm) / plan.step_nm
            check_range("pulses of the sweep", steps + 1.0, (1.0, _MAX_LOG_POINTS), "", self._session)
        # The speed is set first, because the allowed steps depend on it.
        self._scpi.set_number(
            "WAV:SWE:SPE", f"{speed:.9g}", speed, 1.0, _SPEED_TOLERANCE * speed, "speed of the sweep in nm/s"
        )
        for header, value_nm, label in (
            ("WAV:SWE:STAR", plan.start_nm, "start"),
            ("WAV:SWE:STOP", plan.stop_nm, "end"),
            ("WAV:SWE:STEP", plan.step_nm, "step"),
            ("TRIG:OUTP:STEP", plan.step_nm, "distance of the pulses"),
        ):
            self._set_nm(header, value_nm, f"{label} of the sweep in nm")
        for header, value, label in (
            ("WAV:SWE:MOD", _CONTINUOUS_ONE_WAY, "mode of the sweep"),
            ("WAV:SWE:CYCL", 1, "cycles of the sweep"),
            ("WAV:SWE:DEL", 0, "delay of the sweep"),
            ("TRIG:INP:EXT", 0, "trigger input (0 is off)"),  # otherwise the sweep waits for a pulse
            ("TRIG:INP:STAN", 0, "standby (0 is off)"),  # otherwise the sweep waits for a command
            ("TRIG:OUTP", _EVERY_STEP, "trigger output (3 is steps)"),
        ):
            self._scpi.set_number(header, str(value), value, 1.0, 0.0, label)
        return int(plan.log)

    def start_sweep(self) -> None:
        """Start the prepared sweep."""
        self._scpi.set("WAV:SWE 1")

    def is_sweeping(self) -> bool:
        """Return whether a sweep is running, being prepared, or waiting for a trigger."""
        return round(self._scpi.setting("WAV:SWE?")) != _STOPPED

    def fetch_log(self, plan: LaserSweep, n_logged: int) -> SweepLog:
        """Read the logged wavelengths. Raises ``FrameError`` if they do not belong to the sweep."""
        if not n_logged:
            return SweepLog(None, 0.0, 0.0)
        n_points = round(self._scpi.setting("READ:POIN?"))
        if not 0 < n_points <= _MAX_LOG_POINTS:
            raise self.foreign_log_error(f"{n_points} wavelengths")
        payload = self._session.query_block("READ:DAT?", log_timeout_s(8 * n_points))
        # The format follows from the number of bytes; clients disagree on whether it depends on the command set.
        size, remainder = divmod(len(payload), n_points)
        if remainder or size not in _LOG_FORMATS:
            raise self.foreign_log_error(f"{len(payload)} bytes for {n_points} wavelengths of 4 or 8 bytes")
        number, nm_per_unit = _LOG_FORMATS[size]
        return self.checked_log(plan, nm_per_unit * np.frombuffer(payload, number).astype(np.float64))

    def end_sweep(self) -> None:
        """Stop the sweep."""
        self._scpi.set("WAV:SWE 0")

    def _read_dialect(self) -> Dialect:
        if self.model.upper() != _MODEL_WITH_CODE:
            return Dialect.LEGACY
        code = self._scpi.setting(f"{_CODE}?")
        if code not in (0, 1):
            raise self._scpi.wrong_shape(f"{_CODE}?", f"{code:g}", "0 or 1")
        return Dialect(int(code))

    def _hold(self, setup: HeldSetup, header: str, value: int, label: str) -> Callable[[], object]:
        restore = partial(self._scpi.set_number, header, str(value), value, 1.0, 0.0, label)
        setup.hold(HeldSetting(f"{header}?", value, label, restore))
        return restore

    def _read_nm(self, command: str) -> float:
        number = self._scpi.setting(command, self._wavelength)
        value_nm = number * self._dialect.nm_per_unit
        if not _SANE_NM[0] < value_nm < _SANE_NM[1]:
            unit = "nm" if self._dialect is Dialect.LEGACY else "m"
            raise self._scpi.wrong_shape(command, f"{number:g}", f"a wavelength in {unit} ({self._dialect.name})")
        return value_nm

    def _set_nm(self, header: str, value_nm: float, label: str) -> None:
        factor = self._dialect.nm_per_unit
        text = f"{value_nm:.5f}" if self._dialect is Dialect.LEGACY else f"{value_nm:.5f}E-9"
        self._scpi.set_number(header, text, value_nm, factor, _WAVELENGTH_TOLERANCE_NM, label, self._wavelength)
