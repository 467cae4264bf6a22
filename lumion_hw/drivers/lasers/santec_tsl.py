"""Santec TSL-510, 550, 570 and 710 tunable lasers.

The numbers on the wire depend on a setting of the instrument: ``Legacy`` is nm, ``SCPI`` is metres. A TSL-570 is asked
for it before the first wavelength; older lasers are Legacy always. Every wavelength read has to be one in its unit.
Messages end with CR alone, both ways (manual 7.1.3, as public clients quote it); a GPIB set to CR LF is understood too.

Sweeps give a pulse at every ``TRIG:OUTP:STEP``, and the laser logs its wavelength at each: ``READ:POIN?`` of them, at
most 500 000, as little-endian int32 of 0.1 pm (Legacy) or float64 of metres (SCPI). So it is quoted of the manuals of
TSL-570, 770 and 775, whose Legacy set is that of a TSL-550; clients of a TSL-710 read the same. Of a TSL-510 nothing
is known, and its log is not used. A client saw at most 5000 pulses a second of a TSL-770, the manual of the TSL-775 has
20 000; the smaller figure is taken for all (check). ``TRIG:OUTP:SETT``, pulses even in wavelength or in time, stays as
it is: two manuals give it opposite meanings (check), and the log tells the wavelengths either way.
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
from lumion_hw.drivers.lasers.scpi_laser import SETTLE_S, ScpiLaser, log_patience_s
from lumion_hw.drivers.ranges import check_range
from lumion_hw.drivers.scpi import DeviceNames, is_value
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces import LaserCapabilities, LaserSweep, SweepLog
from lumion_hw.links.base import Link

MODELS = ("TSL-510", "TSL-550", "TSL-570", "TSL-710")
_WITH_CODE = "TSL-570"
_CODE = "SYST:COMM:COD"
_LOGGING = ("TSL-550", "TSL-570", "TSL-710")
_WAVELENGTH_TOLERANCE_NM = 1.1e-4
_POWER_TOLERANCE_DB = 0.011
_SPEED_TOLERANCE = 1e-3
_SANE_NM = (200.0, 20000.0)
_CONTINUOUS_ONE_WAY = 1
_EVERY_STEP = 3
_DARK_DBM = -99.0
"""What the monitor says without light is below this."""
_STOPPED = 0
_LARGEST_LOG = 500_000
_LOG_FORMATS = {4: ("<i4", 1e-4), 8: ("<f8", 1e9)}
"""Numbers of a log by their bytes, and what makes nm of them."""


class Dialect(enum.Enum):
    """What a bare number means (``SYST:COMM:COD?``)."""

    LEGACY = 0
    SCPI = 1

    @property
    def nm_per_unit(self) -> float:
        """Nanometres per unit on the wire."""
        return 1.0 if self is Dialect.LEGACY else 1e9


class SantecTsl(ScpiLaser):
    """Driver of one laser; implements ``TunableLaser``. Thread-safe; every set is read back.

    Args:
        link: The link to the instrument.
        clock: The link's clock.
        **names: As of :class:`~lumion_hw.drivers.scpi.ScpiDriver`.
        limits_nm: Shortest and longest wavelength; a TSL-570 is asked for them, others need them.
        limits_dbm: Lowest and highest power; without them the instrument refuses by itself.
        settle_s: Time until the power follows after the output was switched on or another power was set.
    """

    capabilities = LaserCapabilities(tunes_while_emitting=True, measures_power=True, sweep=True, wavelength_log=False)

    # TSL-570: its manual, p. 81, as a public client quotes it. The older ones take any speed to 100 nm/s, in tenths.
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
        self._given_nm = limits_nm
        self._given_dbm = limits_dbm
        self._dialect = Dialect.LEGACY
        # That several queries may stand in one message no public client shows.
        self._power = HeldSetup(self._session, joined=False)
        self._wavelength = HeldSetup(self._session, joined=False)

    @property
    def dialect(self) -> Dialect:
        """What a bare number means to this instrument."""
        return self._dialect

    def prepare(self) -> tuple[tuple[float, float], tuple[float, float] | None]:
        """Find the dialect, set the unit of powers to dBm, hold both, and read the limits."""
        self._scpi.errors()  # what was left by others is not ours
        self.capabilities = replace(self.capabilities, wavelength_log=self.model.upper() in _LOGGING)
        self._dialect = self._read_dialect()
        self._wavelength = HeldSetup(self._session, joined=False)
        if self.model.upper() == _WITH_CODE:
            self._hold(self._wavelength, _CODE, self._dialect.value, "command set (0 is Legacy, 1 is SCPI)")
        self._hold(self._power, "POW:UNIT", 0, "unit of the power (0 is dBm)")()
        if self.model.upper() == _WITH_CODE:
            found_nm = self._read_nm("WAV:SWE:RANG:MIN?"), self._read_nm("WAV:SWE:RANG:MAX?")
            given_nm = self._given_nm or found_nm
            # The narrower of the two: the bench file may keep a laser to a part of its range.
            limits_nm = max(found_nm[0], given_nm[0]), min(found_nm[1], given_nm[1])
        elif self._given_nm is None:
            raise self._session.error(
                ConfigError,
                f"a {self.model} does not tell its range",
                hint="Give the shortest and the longest wavelength of this laser.",
            )
        else:
            limits_nm = self._given_nm
        return limits_nm, self._given_dbm

    def read_wavelength_nm(self) -> float:
        """Return the wavelength set."""
        return self._read_nm("WAV?")

    def write_wavelength_nm(self, wavelength_nm: float) -> None:
        """Set the wavelength and read it back."""
        self._set_nm("WAV", wavelength_nm, "wavelength in nm")

    def read_power_dbm(self) -> float:
        """Return the power set."""
        return self._scpi.setting("POW?", self._power)

    def write_power_dbm(self, power_dbm: float) -> None:
        """Set the power and read it back."""
        text, label = f"{power_dbm:.2f}", "output power in dBm"
        self._scpi.set_number("POW", text, power_dbm, 1.0, _POWER_TOLERANCE_DB, label, self._power)

    def measure_power_dbm(self) -> float | None:
        """Return the output power as the laser measures it; ``None`` while that is too little for decibels."""
        measured_dbm = self._scpi.number("POW:ACT?", held=self._power)
        if is_value(measured_dbm):
            return measured_dbm if measured_dbm > _DARK_DBM else None
        self._scpi.errors()  # the mark comes with an error of its own
        return None

    def is_emitting(self) -> bool:
        """Tell whether the diode is on and the shutter open."""
        return bool(self._scpi.setting("POW:STAT?")) and not self._scpi.setting("POW:SHUT?")

    def switch(self, on: bool) -> None:
        """Switch the diode on and open the shutter (0), or switch the diode off; read back."""
        with self._session.transaction():
            self._scpi.set_number("POW:STAT", str(int(on)), int(on), 1.0, 0.0, "laser diode (1 is on)")
            if on:
                self.set_shutter(open_=True)

    def set_shutter(self, *, open_: bool) -> None:
        """Open or close the shutter: fast, while the diode stays warm; read back."""
        wanted = 0 if open_ else 1
        self._scpi.set_number("POW:SHUT", str(wanted), wanted, 1.0, 0.0, "shutter (0 is open)")

    def prepare_sweep(self, plan: LaserSweep) -> int:
        """Set one continuous sweep in one direction up, with a pulse at every step."""
        speed = plan.speed_nm_per_s
        if plan.log:
            check_range("pulses of the sweep", speed / plan.step_nm, (0.0, self.pulses_per_s), "1/s", self._session)
            steps = (plan.stop_nm - plan.start_nm) / plan.step_nm
            check_range("pulses of the sweep", steps + 1.0, (1.0, _LARGEST_LOG), "", self._session)
        # The speed first: the steps that are possible depend on it.
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
            ("TRIG:INP:EXT", 0, "trigger input (0 is off)"),  # else the sweep would wait for a pulse
            ("TRIG:INP:STAN", 0, "standby (0 is off)"),  # or for a command
            ("TRIG:OUTP", _EVERY_STEP, "trigger output (3 is steps)"),
        ):
            self._scpi.set_number(header, str(value), value, 1.0, 0.0, label)
        return int(plan.log)

    def start_sweep(self) -> None:
        """Start the sweep that was set up."""
        self._scpi.set("WAV:SWE 1")

    def is_sweeping(self) -> bool:
        """Tell whether a sweep runs (1), waits for a trigger (3) or is being prepared (4)."""
        return round(self._scpi.setting("WAV:SWE?")) != _STOPPED

    def fetch_log(self, plan: LaserSweep, n_logged: int) -> SweepLog:
        """Fetch the logged wavelengths, as many as the laser says, within the sweep and in order."""
        if not n_logged:
            return SweepLog(None, 0.0, 0.0)
        n_points = round(self._scpi.setting("READ:POIN?"))
        if not 0 < n_points <= _LARGEST_LOG:
            raise self.not_its_log(f"{n_points} wavelengths")
        payload = self._session.query_block("READ:DAT?", log_patience_s(8 * n_points))
        # Told by the bytes, and not by the command set: what clients say of it does not agree for all firmware.
        size, rest = divmod(len(payload), n_points)
        if rest or size not in _LOG_FORMATS:
            raise self.not_its_log(f"{len(payload)} bytes for {n_points} wavelengths of 4 or 8 bytes")
        number, nm_per_unit = _LOG_FORMATS[size]
        return self.log_of(plan, nm_per_unit * np.frombuffer(payload, number).astype(np.float64))

    def end_sweep(self) -> None:
        """Stop the sweep."""
        self._scpi.set("WAV:SWE 0")

    def _read_dialect(self) -> Dialect:
        if self.model.upper() != _WITH_CODE:
            return Dialect.LEGACY
        code = self._scpi.setting(f"{_CODE}?")
        if code not in (0, 1):
            raise self._scpi.wrong_shape(f"{_CODE}?", f"{code:g}", "0 or 1")
        return Dialect(int(code))

    def _hold(self, setup: HeldSetup, header: str, value: int, label: str) -> Callable[[], object]:
        """Hold a number, and return what sets it."""
        restore = partial(self._scpi.set_number, header, str(value), value, 1.0, 0.0, label)
        setup.hold(HeldSetting(f"{header}?", value, label, restore))
        return restore

    def _read_nm(self, command: str) -> float:
        """Return a wavelength; one that is none in the dialect's unit is an error, not a wrong number."""
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
