"""Driver for Keysight (Agilent) tunable lasers: N7776C, and 8164A/B mainframes with a laser in slot 0."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Unpack

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.drivers.held_setup import HeldSetting, HeldSetup
from lumion_hw.drivers.lasers.scpi_laser import SETTLE_S, ScpiLaser, log_timeout_s
from lumion_hw.drivers.scpi import KEYSIGHT_IGNORABLE_ERRORS, DeviceNames
from lumion_hw.errors import DeviceError
from lumion_hw.interfaces import LaserCapabilities, LaserSweep, SweepLog
from lumion_hw.links.base import Link

MODELS = ("8164A", "8164B", "N7776C")
SWEEP_PROBLEMS = {
    368: "the end is not above the start",
    369: "the duration of the sweep is too short",
    370: "the duration of the sweep is too long",
    371: "the trigger rate is too high",
    372: "the step is too small",
    373: "too many triggers",
    374: "modulation and logging exclude each other",
    375: "logging needs a trigger at every step",
    376: "logging needs a continuous sweep",
    377: "the span is not a multiple of the step",
    378: "too many triggers",
    379: "sweep and modulation exclude each other",
    380: "the start is outside the range",
    381: "the end is outside the range",
}
"""Meaning of the codes that ``WAV:SWE:CHEC?`` returns for an impossible sweep."""
_WAVELENGTH_TOLERANCE_NM = 1.1e-4  # 0.1 pm
_POWER_TOLERANCE_DB = 0.006
_SPEED_TOLERANCE = 1e-3
_MAX_LOG_POINTS = 1_000_000
_STOPPED = 0


class KeysightLaser(ScpiLaser):
    """Driver of one laser; implements ``TunableLaser``. Thread-safe; every setting is read back.

    Args:
        link: Link to the instrument (raw socket, port 5025, or VISA).
        clock: Clock of the link.
        **names: Device name and expected identity, as for :class:`~lumion_hw.drivers.scpi.ScpiDriver`.
        pin: PIN that unlocks the laser; without a PIN, switching on a locked laser raises an error.
        settle_s: Settling time of the power after the output is switched on or the power is changed.
    """

    capabilities = LaserCapabilities(tunes_while_emitting=True, measures_power=False, sweep=True, wavelength_log=True)

    makers = ("KEYSIGHT", "AGILENT")
    models = MODELS
    # N7776C: as listed by public drivers. 81600B family: user's guide, table of the wavelength test.
    speeds_nm_per_s: ClassVar = {
        "N7776C": (0.5, 1.0, 50.0, 80.0, 200.0),
        "8164A": (0.5, 5.0, 10.0, 20.0, 40.0, 80.0),
        "8164B": (0.5, 5.0, 10.0, 20.0, 40.0, 80.0),
    }
    ignorable_errors = KEYSIGHT_IGNORABLE_ERRORS

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        pin: str | None = None,
        settle_s: float = SETTLE_S,
        **names: Unpack[DeviceNames],
    ) -> None:
        super().__init__(link, clock, settle_s=settle_s, **names)
        self._pin = pin
        self._power = HeldSetup(self._session)

    def prepare(self) -> tuple[tuple[float, float], tuple[float, float] | None]:
        """Select dBm as power unit, and return the wavelength limits in nm and the power limits in dBm."""
        self._scpi.errors()  # discard errors of earlier users
        label = "unit of the power (0 is dBm)"
        restore = partial(self._scpi.set_number, "SOUR0:POW:UNIT", "0", 0.0, 1.0, 0.0, label)
        restore()
        self._power.hold(HeldSetting("SOUR0:POW:UNIT?", 0, label, restore))
        setting = self._scpi.setting
        return (
            (1e9 * setting("SOUR0:WAV? MIN"), 1e9 * setting("SOUR0:WAV? MAX")),
            (setting("SOUR0:POW? MIN"), setting("SOUR0:POW? MAX")),
        )

    def read_wavelength_nm(self) -> float:
        """Return the wavelength that the laser is set to, in nm."""
        return 1e9 * self._scpi.setting("SOUR0:WAV?")

    def write_wavelength_nm(self, wavelength_nm: float) -> None:
        """Set the wavelength and verify the setting."""
        self._set_nm("SOUR0:WAV", wavelength_nm, "wavelength in nm")

    def read_power_dbm(self) -> float:
        """Return the output power that the laser is set to, in dBm."""
        return self._scpi.setting("SOUR0:POW?", self._power)

    def write_power_dbm(self, power_dbm: float) -> None:
        """Set the output power and verify the setting."""
        text, label = f"{power_dbm:.2f}DBM", "output power in dBm"
        self._scpi.set_number("SOUR0:POW", text, power_dbm, 1.0, _POWER_TOLERANCE_DB, label, self._power)

    def is_emitting(self) -> bool:
        """Return whether the laser output is on."""
        return bool(self._scpi.setting("SOUR0:POW:STAT?"))

    def switch(self, on: bool) -> None:
        """Switch the output on or off and verify the change; unlock the laser first if necessary."""
        with self._session.transaction():
            if on and self._scpi.setting("LOCK?"):
                if self._pin is None:
                    raise self._refused("enable", "the laser is locked", "Set the laser's PIN (key pin).")
                self._scpi.set(f"LOCK 0,{self._pin}")
            self._scpi.set_number("SOUR0:POW:STAT", str(int(on)), int(on), 1.0, 0.0, "output (1 is on)")

    def prepare_sweep(self, plan: LaserSweep) -> int:
        """Set up a continuous sweep with a trigger at every step, and return the number of wavelengths to log."""
        sweep = "SOUR0:WAV:SWE"
        self._scpi.set_keyword(f"{sweep}:MODE", "CONTinuous")
        self._scpi.set_keyword(f"{sweep}:REP", "ONEWay")
        for header, value_nm in (("STAR", plan.start_nm), ("STOP", plan.stop_nm), ("STEP", plan.step_nm)):
            self._set_nm(f"{sweep}:{header}", value_nm, f"{header} of the sweep in nm")
        speed = plan.speed_nm_per_s
        self._scpi.set_number(
            f"{sweep}:SPE", f"{speed:.9g}NM/S", speed, 1e9, _SPEED_TOLERANCE * speed, "speed of the sweep in nm/s"
        )
        # Logging needs a trigger at every step; the check refuses other trigger outputs (375).
        self._scpi.set_keyword("TRIG0:OUTP", "STFinished")
        self._scpi.set_number(f"{sweep}:LLOG", str(int(plan.log)), int(plan.log), 1.0, 0.0, "wavelength log (1 is on)")
        self._check_sweep()
        # The instrument reports its number of triggers, which depends on its rounding of steps.
        return round(self._scpi.setting(f"{sweep}:EXP?")) if plan.log else 0

    def start_sweep(self) -> None:
        """Start the prepared sweep."""
        self._scpi.set("SOUR0:WAV:SWE 1")

    def is_sweeping(self) -> bool:
        """Return whether a sweep is in progress."""
        return round(self._scpi.setting("SOUR0:WAV:SWE?")) != _STOPPED

    def fetch_log(self, plan: LaserSweep, n_logged: int) -> SweepLog:
        """Read the logged wavelengths. Raises ``FrameError`` if they do not belong to the sweep."""
        if not plan.log:
            return SweepLog(None, 0.0, 0.0)
        n_points = round(self._scpi.setting("SOUR0:READ:POIN? LLOG"))
        if n_points != n_logged or not 0 < n_points <= _MAX_LOG_POINTS:
            raise self.foreign_log_error(f"{n_points} points for {n_logged} triggers")
        payload = self._session.query_block("SOUR0:READ:DATA? LLOG", log_timeout_s(8 * n_points))
        if len(payload) != 8 * n_points:
            raise self.foreign_log_error(f"{len(payload)} bytes for {n_points} wavelengths of 8 bytes")
        return self.checked_log(plan, 1e9 * np.frombuffer(payload, "<f8"))

    def end_sweep(self) -> None:
        """Stop the sweep; switch the log and the triggers off."""
        with self._session.transaction():
            self._scpi.set("SOUR0:WAV:SWE 0")
            self._scpi.set("SOUR0:WAV:SWE:LLOG 0")
            self._scpi.set_keyword("TRIG0:OUTP", "DISabled")

    def _set_nm(self, header: str, wavelength_nm: float, label: str) -> None:
        text = f"{wavelength_nm:.5f}NM"
        self._scpi.set_number(header, text, wavelength_nm, 1e9, _WAVELENGTH_TOLERANCE_NM, label)

    def _check_sweep(self) -> None:
        reply = self._session.query("SOUR0:WAV:SWE:CHEC?")
        code_text, _, text = reply.partition(",")
        if not code_text.strip().lstrip("+").isdigit():
            raise self._scpi.wrong_shape("SOUR0:WAV:SWE:CHEC?", reply, "a code and its text")
        code = int(code_text)
        if code:
            raise self._session.error(
                DeviceError,
                f"the laser refused the sweep: {code} {SWEEP_PROBLEMS.get(code, text.strip())}",
                code=code,
                command="SOUR0:WAV:SWE:CHEC?",
                hint="Change range, step or speed of the sweep.",
            )
