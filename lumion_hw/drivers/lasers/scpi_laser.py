"""Base of drivers for lasers that are set by wavelength over SCPI."""

from __future__ import annotations

import abc
import logging
import math
import threading
from collections.abc import Mapping
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock, deadline_after
from lumion_hw.drivers.life_cycle import close_on_error
from lumion_hw.drivers.ranges import check_range
from lumion_hw.drivers.scpi import DeviceNames, ScpiDriver
from lumion_hw.errors import (
    DeviceError,
    DeviceTimeoutError,
    FrameError,
    LumionError,
    NotSupportedError,
)
from lumion_hw.interfaces import LaserCapabilities, LaserRanges, LaserState, LaserSweep, SweepLog
from lumion_hw.links.base import Link
from lumion_hw.links.owner import fork_safe
from lumion_hw.quantities import frequency_hz_from_wavelength_m, wavelength_m_from_frequency_hz
from lumion_hw.sessions.conversation import Conversation


def check_sweep(plan: LaserSweep, low_high_nm: tuple[float, float], session: Conversation) -> None:
    """Raise ``LimitError`` if a sweep exceeds the range of the laser. Nothing is changed."""
    check_range("start of the sweep", plan.start_nm, low_high_nm, "nm", session)
    check_range("end of the sweep", plan.stop_nm, (plan.start_nm, low_high_nm[1]), "nm", session)
    span_nm = plan.stop_nm - plan.start_nm
    check_range("span of the sweep", span_nm, (1e-4, low_high_nm[1] - low_high_nm[0]), "nm", session)
    check_range("step of the sweep", plan.step_nm, (1e-5, span_nm), "nm", session)
    check_range("speed of the sweep", plan.speed_nm_per_s, (1e-6, 1e6), "nm/s", session)


_log = logging.getLogger(__name__)

_POLL_S = 0.05
# Lasers need additional time to reach their speed and to stop.
_SWEEP_FACTOR = 1.2
_SWEEP_MARGIN_S = 20.0
_LOG_TOLERANCE_NM = 2.0
_SLOWEST_BYTES_PER_S = 50e3
SETTLE_S = 2.0
"""Default settling time of the power after a change."""


def log_timeout_s(n_bytes: int) -> float:
    """Return the time limit in s for reading a wavelength log of ``n_bytes``."""
    return 2.0 + n_bytes / _SLOWEST_BYTES_PER_S


def thz_from_nm(wavelength_nm: float) -> float:
    """Return the optical frequency in THz of a vacuum wavelength in nm."""
    return 1e-12 * frequency_hz_from_wavelength_m(1e-9 * wavelength_nm)


def nm_from_thz(frequency_thz: float) -> float:
    """Return the vacuum wavelength in nm of an optical frequency in THz."""
    return 1e9 * wavelength_m_from_frequency_hz(1e12 * frequency_thz)


class ScpiLaser(ScpiDriver):
    """Base of laser drivers with wavelength settings; implements ``TunableLaser``. Thread-safe.

    Args:
        link: Link to the instrument.
        clock: Clock of the link.
        **names: Device name and expected identity, as for :class:`~lumion_hw.drivers.scpi.ScpiDriver`.
        settle_s: Settling time of the power after the output is switched on or the power is changed.

    Attributes:
        step_nm: Wavelengths are rounded to multiples of this step.
        power_step_db: Powers are rounded to multiples of this step.
        speeds_nm_per_s: Available sweep speeds of each model.
        pulses_per_s: Highest pulse rate of a sweep.
    """

    kind = "laser"
    capabilities: LaserCapabilities
    step_nm: ClassVar[float] = 1e-4
    power_step_db: ClassVar[float] = 0.01
    speeds_nm_per_s: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    pulses_per_s: ClassVar[float] = math.inf

    def __init__(self, link: Link, clock: Clock, *, settle_s: float = SETTLE_S, **names: Unpack[DeviceNames]) -> None:
        super().__init__(link, clock, **names)
        self._settle_s = settle_s
        self._settles_at_s = clock.now()
        self._limits_nm = (0.0, 0.0)
        self._limits_dbm: tuple[float, float] | None = None
        self._sweeping = fork_safe(threading.Lock())

    # -- implemented for each instrument

    @abc.abstractmethod
    def prepare(self) -> tuple[tuple[float, float], tuple[float, float] | None]:
        """Select the units, and return the wavelength limits in nm and the power limits in dBm."""

    @abc.abstractmethod
    def read_wavelength_nm(self) -> float:
        """Return the wavelength that the laser is set to, in nm."""

    @abc.abstractmethod
    def write_wavelength_nm(self, wavelength_nm: float) -> None:
        """Set the wavelength and verify the setting."""

    @abc.abstractmethod
    def read_power_dbm(self) -> float:
        """Return the output power that is set, in dBm."""

    @abc.abstractmethod
    def write_power_dbm(self, power_dbm: float) -> None:
        """Set the output power and verify the setting."""

    def measure_power_dbm(self) -> float | None:
        """Return the measured output power, or ``None`` if the laser cannot measure it. The output must be on."""
        return None

    @abc.abstractmethod
    def is_emitting(self) -> bool:
        """Return whether the laser output is on."""

    @abc.abstractmethod
    def switch(self, on: bool) -> None:
        """Switch the output on or off and verify the change."""

    @abc.abstractmethod
    def prepare_sweep(self, plan: LaserSweep) -> int:
        """Set up a sweep, and return the number of wavelengths that will be logged (0 without a log)."""

    @abc.abstractmethod
    def start_sweep(self) -> None:
        """Start the prepared sweep."""

    @abc.abstractmethod
    def is_sweeping(self) -> bool:
        """Return whether a sweep is in progress."""

    @abc.abstractmethod
    def fetch_log(self, plan: LaserSweep, n_logged: int) -> SweepLog:
        """Return the wavelengths of the finished sweep."""

    @abc.abstractmethod
    def end_sweep(self) -> None:
        """Stop a sweep and restore the trigger settings."""

    # -- the interface

    def open(self) -> None:
        """Open the link, check the identity and read the limits. The output stays as it is.

        Raises the errors of :meth:`Driver.open`.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identify()
            self._limits_nm, self._limits_dbm = self.prepare()

    @property
    def ranges(self) -> LaserRanges:
        """Limits of the instrument. The frequency step is that of the shortest wavelength."""
        self._check_open()
        shortest_nm, longest_nm = self._limits_nm
        highest_thz = thz_from_nm(shortest_nm)
        step_thz = highest_thz * self.step_nm / shortest_nm
        return LaserRanges(
            (thz_from_nm(longest_nm), highest_thz),
            step_thz,
            self._limits_dbm,
            self.power_step_db,
            self.speeds_nm_per_s.get(self.model.upper(), ()),
            self.pulses_per_s,
        )

    def set_frequency_thz(self, frequency_thz: float) -> None:
        """Set the frequency, rounded to the nearest wavelength step.

        Raises the errors of :meth:`TunableLaser.set_frequency_thz`.
        """
        check_range("frequency", frequency_thz, self.ranges.frequency_thz, "THz", self._session)
        # Rounded to the instrument's step; otherwise its own rounding would look like a refused setting.
        wavelength_nm = round(nm_from_thz(frequency_thz) / self.step_nm) * self.step_nm
        shortest_nm, longest_nm = self._limits_nm
        self.write_wavelength_nm(min(max(wavelength_nm, shortest_nm), longest_nm))  # rounding only

    def set_power_dbm(self, power_dbm: float) -> None:
        """Set the output power, rounded to the nearest step.

        Raises the errors of :meth:`TunableLaser.set_power_dbm`.
        """
        check_range("output power", power_dbm, self.ranges.power_dbm, "dBm", self._session)
        self.write_power_dbm(power_dbm)
        self._settles_at_s = self._clock.now() + self._settle_s

    def enable(self) -> None:
        """Switch the output on and verify that it is on."""
        self._check_open()
        self.switch(True)
        self._settles_at_s = self._clock.now() + self._settle_s

    def disable(self) -> None:
        """Switch the output off and verify that it is off."""
        self._check_open()
        self.switch(False)

    def state(self) -> LaserState:
        """Read the present state of the laser."""
        self._check_open()
        with self._session.transaction():
            emitting = self.is_emitting()
            # In this order, so that the query for pending operations does not clear the status register of a dark
            # laser.
            ready = emitting and self._clock.now() >= self._settles_at_s and self._scpi.are_operations_complete()
            measured_dbm = self.measure_power_dbm() if ready else None
            if self.capabilities.measures_power:
                ready = measured_dbm is not None
            return LaserState(
                emitting=emitting,
                ready=ready,
                frequency_thz=thz_from_nm(self.read_wavelength_nm()),
                power_dbm=self.read_power_dbm(),
                measured_power_dbm=measured_dbm,
                flags=(),
                timestamp_s=self._clock.now(),
            )

    def wait_ready(self, timeout_s: float) -> LaserState:
        """Wait until the laser emits and no operation is pending. Errors: see :meth:`TunableLaser.wait_ready`."""
        deadline = deadline_after(self._clock, timeout_s)
        while not (state := self.state()).ready:
            if not state.emitting:
                raise self._refused("wait_ready", "the output is off", "Call enable() first.")
            if self._clock.now() >= deadline:
                raise self._timeout_error("wait_ready", "an operation is pending")
            self._clock.sleep(min(_POLL_S, max(deadline - self._clock.now(), 1e-3)))
        return state

    def sweep(self, plan: LaserSweep) -> SweepLog:
        """Make one sweep and wait for its end. Raises the errors of :meth:`TunableLaser.sweep`."""
        self._check_open()
        if plan.log and not self.capabilities.wavelength_log:
            raise self._session.error(
                NotSupportedError,
                "this laser cannot log wavelengths",
                command="sweep",
                hint="Sweep with log=False, and calculate the wavelengths from speed and time.",
            )
        check_sweep(plan, self._limits_nm, self._session)
        with self._sweeping:
            if not self.is_emitting():
                raise self._refused("sweep", "the output is off", "Call enable() and wait_ready() first.")
            try:
                return self._sweep(plan)
            except BaseException:
                self._stop_quietly()
                raise

    def _sweep(self, plan: LaserSweep) -> SweepLog:
        with self._session.transaction():
            n_logged = self.prepare_sweep(plan)
            started_s = self._clock.now()
            self.start_sweep()
        deadline = started_s + _SWEEP_FACTOR * plan.duration_s + _SWEEP_MARGIN_S
        while self.is_sweeping():
            if self._clock.now() >= deadline:
                raise self._timeout_error("sweep", f"the sweep of {plan.duration_s:.3g} s did not end and was stopped")
            self._clock.sleep(_POLL_S)
        # Before reading the log, which may take longer than the sweep.
        ended_s = self._clock.now()
        log = self.fetch_log(plan, n_logged)
        self.end_sweep()
        return SweepLog(log.wavelength_nm, started_s, ended_s)

    def checked_log(self, plan: LaserSweep, wavelengths_nm: NDArray[np.float64]) -> SweepLog:
        """Return wavelengths in nm as a log. Raises ``FrameError`` if they do not belong to the sweep."""
        # A log of an earlier sweep may have the right length by chance, so the wavelengths are checked.
        low_nm, high_nm = plan.start_nm - _LOG_TOLERANCE_NM, plan.stop_nm + _LOG_TOLERANCE_NM
        if not np.all((wavelengths_nm > low_nm) & (wavelengths_nm < high_nm)) or not np.all(
            np.diff(wavelengths_nm) > 0.0
        ):
            raise self.foreign_log_error(f"wavelengths from {wavelengths_nm[0]:.6g} to {wavelengths_nm[-1]:.6g} nm")
        return SweepLog(wavelengths_nm, 0.0, 0.0)

    def foreign_log_error(self, content: str) -> FrameError:
        """Return the error for a log that does not belong to the sweep."""
        return self._session.error(
            FrameError,
            f"the log does not belong to the sweep: it has {content}",
            hint="Sweep again. Check that no other program uses the laser.",
        )

    def _stop_quietly(self) -> None:
        try:
            self.end_sweep()
        except LumionError as error:
            _log.warning("%s: the failed sweep could not be stopped: %s", self._session.device, error)

    def _refused(self, command: str, reason: str, hint: str) -> DeviceError:
        return self._session.error(DeviceError, f"{command}: {reason}", command=command, hint=hint)

    def _timeout_error(self, command: str, details: str) -> DeviceTimeoutError:
        return self._session.error(
            DeviceTimeoutError,
            f"{command}: the laser responds, but was not ready in time; {details}",
            command=command,
            hint="Lasers tune and settle for seconds. Check the panel for a lock or an alarm.",
        )
