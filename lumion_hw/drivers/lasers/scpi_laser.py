"""What lasers that are set in wavelengths over SCPI have in common."""

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
    """Compare a sweep with the range of the laser. Raises ``LimitError``; nothing was changed."""
    check_range("start of the sweep", plan.start_nm, low_high_nm, "nm", session)
    check_range("end of the sweep", plan.stop_nm, (plan.start_nm, low_high_nm[1]), "nm", session)
    span_nm = plan.stop_nm - plan.start_nm
    check_range("span of the sweep", span_nm, (1e-4, low_high_nm[1] - low_high_nm[0]), "nm", session)
    check_range("step of the sweep", plan.step_nm, (1e-5, span_nm), "nm", session)
    check_range("speed of the sweep", plan.speed_nm_per_s, (1e-6, 1e6), "nm/s", session)


_log = logging.getLogger(__name__)

_POLL_S = 0.05
# Lasers need time before and behind the span to reach their speed and to stop.
_SWEEP_FACTOR = 1.2
_SWEEP_PATIENCE_S = 20.0
_LOG_TOLERANCE_NM = 2.0
_SLOWEST_BYTES_PER_S = 50e3
SETTLE_S = 2.0
"""Time given to the power to follow a switch or a setting."""


def log_patience_s(n_bytes: int) -> float:
    """Return how long to wait for a logged block of so many bytes."""
    return 2.0 + n_bytes / _SLOWEST_BYTES_PER_S


def thz_from_nm(wavelength_nm: float) -> float:
    """Return the optical frequency in THz of a vacuum wavelength in nm."""
    return 1e-12 * frequency_hz_from_wavelength_m(1e-9 * wavelength_nm)


def nm_from_thz(frequency_thz: float) -> float:
    """Return the vacuum wavelength in nm of an optical frequency in THz."""
    return 1e9 * wavelength_m_from_frequency_hz(1e12 * frequency_thz)


class ScpiLaser(ScpiDriver):
    """Base of the drivers; implements ``TunableLaser`` but for the instrument's own commands. Thread-safe.

    A setting holds the session until it is read back; waiting does not.

    Args:
        link: The link to the instrument.
        clock: The link's clock.
        **names: As of :class:`~lumion_hw.drivers.scpi.ScpiDriver`.
        settle_s: Time until the power follows after the output was switched on or another power was set.

    Attributes:
        step_nm: Settings are rounded to multiples of this.
        power_step_db: So are powers.
        speeds_nm_per_s: Speeds of sweeps by model.
        pulses_per_s: Most pulses that a sweep gives in a second.
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
        self._settled_s = clock.now()
        self._limits_nm = (0.0, 0.0)
        self._limits_dbm: tuple[float, float] | None = None
        self._sweeping = fork_safe(threading.Lock())

    # -- what an instrument has of its own

    @abc.abstractmethod
    def prepare(self) -> tuple[tuple[float, float], tuple[float, float] | None]:
        """Bring the instrument into a known state; return its limits of wavelength in nm and of power in dBm."""

    @abc.abstractmethod
    def read_wavelength_nm(self) -> float:
        """Return the wavelength set."""

    @abc.abstractmethod
    def write_wavelength_nm(self, wavelength_nm: float) -> None:
        """Set the wavelength and read it back."""

    @abc.abstractmethod
    def read_power_dbm(self) -> float:
        """Return the power set."""

    @abc.abstractmethod
    def write_power_dbm(self, power_dbm: float) -> None:
        """Set the power and read it back."""

    def measure_power_dbm(self) -> float | None:
        """Return the power measured, ``None`` if there is none. Called while the output is on and ready."""
        return None

    @abc.abstractmethod
    def is_emitting(self) -> bool:
        """Tell whether the output is on."""

    @abc.abstractmethod
    def switch(self, on: bool) -> None:
        """Switch the output and read it back."""

    @abc.abstractmethod
    def prepare_sweep(self, plan: LaserSweep) -> int:
        """Set a sweep up; return the number of wavelengths that will be logged, 0 without a log."""

    @abc.abstractmethod
    def start_sweep(self) -> None:
        """Start the sweep that was set up."""

    @abc.abstractmethod
    def is_sweeping(self) -> bool:
        """Tell whether a sweep is under way."""

    @abc.abstractmethod
    def fetch_log(self, plan: LaserSweep, n_logged: int) -> SweepLog:
        """Return the log of the sweep that ended; its times are put in afterwards."""

    @abc.abstractmethod
    def end_sweep(self) -> None:
        """Stop a sweep, or what is left of one."""

    # -- the interface

    def open(self) -> None:
        """Open the link, check the identity and read the limits. The output stays as it is.

        Raises:
            ConnectError: The link cannot be opened.
            IdentityError: Another instrument answers.
            LinkTimeout: Nothing answers.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identify()
            self._limits_nm, self._limits_dbm = self.prepare()

    @property
    def ranges(self) -> LaserRanges:
        """Limits of the instrument; the step of frequencies is that of wavelengths at the short end."""
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
        """Set the frequency, to the nearest step of the wavelength.

        Raises:
            LimitError: Outside the laser's range; nothing was changed.
            DeviceError: The laser refuses.
            VerifyError: The laser keeps another one.
        """
        check_range("frequency", frequency_thz, self.ranges.frequency_thz, "THz", self._session)
        # To the instrument's own step first, or its rounding would show up as a refusal at reading back.
        wavelength_nm = round(nm_from_thz(frequency_thz) / self.step_nm) * self.step_nm
        shortest_nm, longest_nm = self._limits_nm
        self.write_wavelength_nm(min(max(wavelength_nm, shortest_nm), longest_nm))  # rounding only

    def set_power_dbm(self, power_dbm: float) -> None:
        """Set the output power, to the nearest step.

        Raises:
            LimitError: Outside the laser's range; nothing was changed.
            DeviceError: The laser refuses.
            VerifyError: The laser keeps another power.
        """
        check_range("output power", power_dbm, self.ranges.power_dbm, "dBm", self._session)
        self.write_power_dbm(power_dbm)
        self._settled_s = self._clock.now() + self._settle_s

    def enable(self) -> None:
        """Switch the output on; read back."""
        self._check_open()
        self.switch(True)
        self._settled_s = self._clock.now() + self._settle_s

    def disable(self) -> None:
        """Switch the output off; read back."""
        self._check_open()
        self.switch(False)

    def state(self) -> LaserState:
        """Ask the laser what it does."""
        self._check_open()
        with self._session.transaction():
            emitting = self.is_emitting()
            # In this order: asking a dark laser for pending operations would clear its status register for nothing.
            ready = emitting and self._clock.now() >= self._settled_s and self._scpi.operations_done()
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
        """Wait until the laser emits and no operation is pending. Raises as :meth:`TunableLaser.wait_ready`."""
        deadline = deadline_after(self._clock, timeout_s)
        while not (state := self.state()).ready:
            if not state.emitting:
                raise self._refused("wait_ready", "the output is off", "Call enable() first.")
            if self._clock.now() >= deadline:
                raise self._too_slow("wait_ready", "an operation is pending")
            self._clock.sleep(min(_POLL_S, max(deadline - self._clock.now(), 1e-3)))
        return state

    def sweep(self, plan: LaserSweep) -> SweepLog:
        """Sweep once and wait for the end. Raises as :meth:`TunableLaser.sweep`."""
        self._check_open()
        if plan.log and not self.capabilities.wavelength_log:
            raise self._session.error(
                NotSupportedError,
                "this laser does not log wavelengths",
                command="sweep",
                hint="Sweep without log, and take the wavelengths from speed and time.",
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
        deadline = started_s + _SWEEP_FACTOR * plan.duration_s + _SWEEP_PATIENCE_S
        while self.is_sweeping():
            if self._clock.now() >= deadline:
                raise self._too_slow("sweep", f"the sweep of {plan.duration_s:.3g} s does not end; it was stopped")
            self._clock.sleep(_POLL_S)
        # Taken before the log is fetched, which may take longer than the sweep.
        ended_s = self._clock.now()
        log = self.fetch_log(plan, n_logged)
        self.end_sweep()
        return SweepLog(log.wavelength_nm, started_s, ended_s)

    def log_of(self, plan: LaserSweep, found_nm: NDArray[np.float64]) -> SweepLog:
        """Return logged wavelengths in nm as a log. Raises ``FrameError`` if they are not those of the sweep."""
        # A log left over from another sweep may have the right length by chance; its wavelengths tell.
        low_nm, high_nm = plan.start_nm - _LOG_TOLERANCE_NM, plan.stop_nm + _LOG_TOLERANCE_NM
        if not np.all((found_nm > low_nm) & (found_nm < high_nm)) or not np.all(np.diff(found_nm) > 0.0):
            raise self.not_its_log(f"wavelengths from {found_nm[0]:.6g} to {found_nm[-1]:.6g} nm, not rising with it")
        return SweepLog(found_nm, 0.0, 0.0)

    def not_its_log(self, seen: str) -> FrameError:
        """Return the error of a log that is another one's."""
        return self._session.error(
            FrameError,
            f"the log is not that of the sweep: {seen}",
            hint="Sweep again; check that nobody else uses the laser.",
        )

    def _stop_quietly(self) -> None:
        """Stop a sweep that failed, if the instrument still listens; what failed first is what is reported."""
        try:
            self.end_sweep()
        except LumionError as error:
            _log.warning("%s: the sweep that failed was not stopped: %s", self._session.device, error)

    def _refused(self, command: str, why: str, hint: str) -> DeviceError:
        return self._session.error(DeviceError, f"{command}: {why}", command=command, hint=hint)

    def _too_slow(self, command: str, seen: str) -> DeviceTimeoutError:
        return self._session.error(
            DeviceTimeoutError,
            f"{command}: the laser answers, but is not done in time; {seen}",
            command=command,
            hint="Lasers tune and settle for seconds; look at the panel for a lock or an alarm.",
        )
