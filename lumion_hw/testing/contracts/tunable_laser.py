"""What a tunable laser promises: settings that are in force or refused, and light that is on or off as it was told."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from lumion_hw.clock import Clock
from lumion_hw.errors import DeviceError, DeviceTimeoutError, LimitError, LumionError, NotSupportedError
from lumion_hw.interfaces import LaserState, LaserSweep, TunableLaser
from lumion_hw.quantities import wavelength_m_from_frequency_hz
from lumion_hw.testing.contracts.common import (
    DeviceContract,
    fail_without_fixture,
    is_done,
    on_wires_only,
    promised,
    refused,
    run_parallel,
    skip_without_fixture,
    unless_refused,
)

_SHARED_ROUNDS = 6


def within(low_high: tuple[float, float], fraction: float) -> float:
    """Return the value at a fraction of a range."""
    low, high = low_high
    return low + fraction * (high - low)


class TunableLaserContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.TunableLaser`.

    Fixture to give: ``driver`` (open, output off). Optional: ``emitted``, what another session can do (``change_unit``,
    ``reset``), and those of :class:`DeviceContract`.

    Attributes:
        ready_s: Longest time until the light follows.
        accuracy_thz: Largest difference between a frequency set and the light's.
        accuracy_db: Largest difference between a power set and the light's.
        sweep_span_nm: Span of the sweep that is tried.
        sweep_step_nm: Its step.
        sweep_speed_nm_per_s: Its speed.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "set_frequency_thz": lambda driver: driver.set_frequency_thz(193.4),
        "set_power_dbm": lambda driver: driver.set_power_dbm(8.0),
        "enable": lambda driver: driver.enable(),
        "disable": lambda driver: driver.disable(),
        "state": lambda driver: driver.state(),
    }
    ready_s: ClassVar[float] = 60.0
    accuracy_thz: ClassVar[float] = 2.5e-3
    accuracy_db: ClassVar[float] = 1.0
    sweep_span_nm: ClassVar[float] = 2.0
    sweep_step_nm: ClassVar[float] = 0.01
    sweep_speed_nm_per_s: ClassVar[float] = 50.0

    def observe(self, driver: Any) -> object:
        """Return the settings in force, and whether the output is on."""
        state: LaserState = driver.state()
        return state.emitting, state.frequency_thz, state.power_dbm

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> TunableLaser:
        """An open driver."""
        fail_without_fixture("driver", "an open TunableLaser whose output is off, closed again after the test")

    @pytest.fixture
    def emitted(self) -> Callable[[], tuple[float, float] | None]:
        """Tells what really leaves the laser: frequency in THz and power in dBm, or ``None`` in the dark."""
        skip_without_fixture(
            "emitted", "a function that returns the frequency in THz and power in dBm that leave, or None"
        )

    @pytest.fixture
    def change_unit(self) -> Callable[[], None]:
        """Lets another session give powers another unit."""
        skip_without_fixture("change_unit", "a function by which another session changes the unit of powers")

    @pytest.fixture
    def reset(self) -> Callable[[], None]:
        """Lets another session reset the laser, as by ``*RST``."""
        skip_without_fixture("reset", "a function by which another session resets the laser, as by *RST")

    # -- what another session changes

    def test_a_unit_changed_by_another_session_gives_no_wrong_power(
        self,
        driver: TunableLaser,
        change_unit: Callable[[], None],
        emitted: Callable[[], tuple[float, float] | None],
        clock: Clock,
    ) -> None:
        """The reported power and the light are those that were set, in whatever unit, or there is an error."""
        first_dbm, second_dbm = (within(driver.ranges.power_dbm or (6.0, 10.0), each) for each in (0.6, 0.3))
        driver.set_power_dbm(first_dbm)
        driver.enable()
        driver.wait_ready(self.ready_s)
        change_unit()
        state = unless_refused(driver.state)
        if state is not None:
            slack_db = 0.51 * driver.ranges.power_step_db + 1e-6
            promised(
                abs(state.power_dbm - first_dbm) <= slack_db, f"{first_dbm:g} dBm is reported as {state.power_dbm:g}"
            )
        change_unit()
        if not is_done(lambda: driver.set_power_dbm(second_dbm)):
            return
        driver.wait_ready(self.ready_s)
        light = emitted()
        promised(light is not None, "there is no light though the laser is ready")
        if light is not None:
            off_db = light[1] - second_dbm
            promised(abs(off_db) <= self.accuracy_db, f"{second_dbm:g} dBm was set, the light is {off_db:+.2f} dB off")

    def test_a_reset_by_another_session_is_reported(
        self, driver: TunableLaser, reset: Callable[[], None], emitted: Callable[[], tuple[float, float] | None]
    ) -> None:
        """After a reset by somebody else the reported state is the true one, or there is an error."""
        driver.set_power_dbm(within(driver.ranges.power_dbm or (6.0, 10.0), 0.6))
        driver.enable()
        driver.wait_ready(self.ready_s)
        reset()
        state, light = unless_refused(driver.state), emitted()
        if state is not None:
            promised(state.emitting == (light is not None), f"it reports {state}, but the light is {light}")
        wanted_dbm = within(driver.ranges.power_dbm or (6.0, 10.0), 0.4)
        if is_done(lambda: driver.set_power_dbm(wanted_dbm)):
            driver.enable()
            self._check_ready(driver.wait_ready(self.ready_s), wanted_dbm)
            light = emitted()
            near = light is not None and abs(light[1] - wanted_dbm) <= self.accuracy_db
            promised(near, f"{wanted_dbm:g} dBm was set after the reset, the light is {light}")

    # -- what it says

    def test_it_says_who_it_is_and_what_it_can(self, driver: TunableLaser) -> None:
        """Model, serial number and ranges are there, and a log needs a sweep."""
        promised(bool(driver.model and driver.serial), f"model {driver.model!r} or serial {driver.serial!r} is empty")
        ranges = driver.ranges
        low_thz, high_thz = ranges.frequency_thz
        promised(10.0 < low_thz < high_thz < 1000.0, f"{low_thz:g} to {high_thz:g} THz is no range of a laser")
        promised(0.0 < ranges.frequency_step_thz < 0.1, f"{ranges.frequency_step_thz:g} THz is no step")
        promised(ranges.power_step_db > 0.0, f"{ranges.power_step_db:g} dB is no step")
        if ranges.power_dbm is not None:
            promised(ranges.power_dbm[0] <= ranges.power_dbm[1] < 40.0, f"{ranges.power_dbm} dBm is no range")
        promised(driver.capabilities.sweep or not driver.capabilities.wavelength_log, "it logs sweeps it cannot make")

    # -- frequency and power

    def test_a_frequency_within_the_range_is_in_force(self, driver: TunableLaser) -> None:
        """Every frequency from limit to limit is taken, to half a step, and read back."""
        ranges = driver.ranges
        for fraction in (0.0, 0.31, 0.77, 1.0, 0.5):
            wanted_thz = within(ranges.frequency_thz, fraction)
            driver.set_frequency_thz(wanted_thz)
            self._check_frequency(driver, wanted_thz)

    def test_a_power_within_the_range_is_in_force(self, driver: TunableLaser) -> None:
        """Every power from limit to limit is taken, to half a step, and read back."""
        ranges = driver.ranges
        for fraction in (0.0, 0.37, 1.0, 0.5):
            wanted_dbm = within(ranges.power_dbm or (6.0, 10.0), fraction)
            driver.set_power_dbm(wanted_dbm)
            found_dbm = driver.state().power_dbm
            promised(
                abs(found_dbm - wanted_dbm) <= 0.51 * ranges.power_step_db + 1e-6,
                f"{wanted_dbm:g} dBm was set, {found_dbm:g} dBm is read back",
            )

    @pytest.mark.parametrize("offset", [-1.0, 1.0, math.nan, math.inf])
    def test_a_frequency_outside_the_range_is_refused_and_nothing_changes(
        self, driver: TunableLaser, offset: float
    ) -> None:
        """Limits reject, they never clip; NaN is no frequency, and neither is a wavelength."""
        driver.set_frequency_thz(within(driver.ranges.frequency_thz, 0.5))
        before = self.observe(driver)
        low_thz, high_thz = driver.ranges.frequency_thz
        for wanted_thz in (low_thz + offset if offset < 0 else high_thz + offset, 1550.0):
            error = refused(LimitError, f"{wanted_thz:g} THz", partial(driver.set_frequency_thz, wanted_thz))
            promised(error.unit == "THz", f"the refusal speaks in {error.unit}, the caller in THz")
        promised(self.observe(driver) == before, "a refused frequency changed settings")

    @pytest.mark.parametrize("offset", [-0.5, 0.5, math.nan])
    def test_a_power_outside_the_range_is_refused_and_nothing_changes(
        self, driver: TunableLaser, offset: float
    ) -> None:
        """Limits reject, they never clip; NaN is no power."""
        before = self.observe(driver)
        limits = driver.ranges.power_dbm
        low_dbm, high_dbm = limits or (-100.0, 100.0)
        wanted_dbm = low_dbm + offset if offset < 0 else high_dbm + offset
        kind: type[LumionError] = LimitError if limits or math.isnan(offset) else LumionError
        refused(kind, f"{wanted_dbm:g} dBm", partial(driver.set_power_dbm, wanted_dbm))
        promised(self.observe(driver) == before, "a refused power changed settings")

    # -- light

    def test_the_light_is_what_was_set_once_it_is_ready(
        self, driver: TunableLaser, emitted: Callable[[], tuple[float, float] | None], clock: Clock
    ) -> None:
        """Dark until it is enabled; then of the frequency and power set; dark again once disabled."""
        wanted_thz = within(driver.ranges.frequency_thz, 0.4)
        wanted_dbm = within(driver.ranges.power_dbm or (6.0, 10.0), 0.6)
        driver.set_frequency_thz(wanted_thz)
        driver.set_power_dbm(wanted_dbm)
        promised(emitted() is None, "there is light before the output is enabled")
        driver.enable()
        self._check_ready(driver.wait_ready(self.ready_s), wanted_dbm)
        light = emitted()
        promised(light is not None, "there is no light though the laser is ready")
        if light is not None:
            promised(abs(light[0] - wanted_thz) <= self.accuracy_thz, f"{wanted_thz:g} THz: the light is {light[0]:g}")
            promised(abs(light[1] - wanted_dbm) <= self.accuracy_db, f"{wanted_dbm:g} dBm: the light is {light[1]:g}")
        driver.disable()
        promised(emitted() is None, "there is light after disable()")

    def test_what_it_says_follows_the_output(self, driver: TunableLaser, clock: Clock) -> None:
        """Off it is neither emitting nor ready and measures no power; on it is both within its time."""
        self._check_dark(driver.state())
        driver.enable()
        state = driver.wait_ready(self.ready_s)
        promised(state.emitting and state.ready, f"wait_ready() returned {state}")
        promised(driver.state().emitting, "an enabled output is said to be off")
        driver.disable()
        self._check_dark(driver.state())

    def test_waiting_for_an_output_that_is_off_is_an_error(self, driver: TunableLaser, clock: Clock) -> None:
        """``wait_ready`` does not wait for light that nobody switched on."""
        started = clock.now()
        refused(DeviceError, "wait_ready() of a dark laser", lambda: driver.wait_ready(self.ready_s))
        promised(clock.now() - started < self.deadline_s, "waiting for an output that is off took its time")

    def test_waiting_ends_when_its_time_is_over(self, driver: TunableLaser, clock: Clock) -> None:
        """The time is a duration: a laser that is not ready after it is a ``DeviceTimeoutError`` then."""
        driver.enable()
        for timeout_s in (0.0, 0.01):
            started = clock.now()
            try:
                driver.wait_ready(timeout_s)
            except DeviceTimeoutError as error:
                promised(bool(error.device and error.address), f"the error names no device or no address: {error}")
            promised(clock.now() - started < 1.0, f"to wait {timeout_s:g} s took {clock.now() - started:.2f} s")
        for timeout_s in (math.nan, -1.0):
            refused(LimitError, f"wait_ready({timeout_s})", partial(driver.wait_ready, timeout_s))

    def test_tuning_while_it_emits_is_done_or_refused(self, driver: TunableLaser, clock: Clock) -> None:
        """Where it cannot be done, nothing changes; where it can, the frequency is in force."""
        before_thz, wanted_thz = (within(driver.ranges.frequency_thz, fraction) for fraction in (0.25, 0.75))
        driver.set_frequency_thz(before_thz)
        driver.enable()
        driver.wait_ready(self.ready_s)
        if driver.capabilities.tunes_while_emitting:
            driver.set_frequency_thz(wanted_thz)
            driver.wait_ready(self.ready_s)
            self._check_frequency(driver, wanted_thz)
            return
        refused(DeviceError, "tuning while it emits", lambda: driver.set_frequency_thz(wanted_thz))
        self._check_frequency(driver, before_thz)
        promised(driver.state().emitting, "a refused frequency switched the output off")

    # -- sweeps

    def test_a_sweep_logs_its_wavelengths(self, driver: TunableLaser, clock: Clock) -> None:
        """The log begins and ends where the sweep does, rises, and has one wavelength per step."""
        plan = self._plan(driver, log=driver.capabilities.wavelength_log)
        if not driver.capabilities.sweep:
            refused(NotSupportedError, "a sweep of a laser that does not sweep", lambda: driver.sweep(plan))
            return
        refused(DeviceError, "a sweep of a dark laser", lambda: driver.sweep(plan))
        driver.enable()
        driver.wait_ready(self.ready_s)
        log = driver.sweep(plan)
        promised(log.ended_s - log.started_s >= 0.9 * plan.duration_s, "the sweep ended before it can have been made")
        if not plan.log:
            promised(log.wavelength_nm is None, "wavelengths are given that were not logged")
            refused(NotSupportedError, "a log that cannot be made", lambda: driver.sweep(replace(plan, log=True)))
            return
        found_nm = np.asarray(log.wavelength_nm)
        n_steps = round((plan.stop_nm - plan.start_nm) / plan.step_nm)
        promised(found_nm.ndim == 1 and abs(found_nm.size - n_steps) <= 1, f"{found_nm.size} points, {n_steps} steps")
        promised(bool(np.all(np.diff(found_nm) > 0.0)), "the wavelengths do not rise")
        ends_nm = (abs(found_nm[0] - plan.start_nm), abs(found_nm[-1] - plan.stop_nm))
        promised(max(ends_nm) <= 2.0 * plan.step_nm, f"the log ends {ends_nm} nm from where the sweep does")

    def test_a_sweep_outside_the_range_is_refused_and_nothing_changes(self, driver: TunableLaser) -> None:
        """A sweep beyond the range, backwards, or of no speed is refused before anything is changed."""
        if not driver.capabilities.sweep:
            return
        driver.enable()
        before = self.observe(driver)
        plan = self._plan(driver, log=False)
        beyond_nm = 1e9 * wavelength_m_from_frequency_hz(1e12 * driver.ranges.frequency_thz[0]) + 5.0
        wrong = (
            replace(plan, stop_nm=beyond_nm),
            replace(plan, start_nm=plan.stop_nm, stop_nm=plan.start_nm),
            replace(plan, speed_nm_per_s=0.0),
            replace(plan, step_nm=math.nan),
        )
        for each in wrong:
            refused(LimitError, f"{each}", partial(driver.sweep, each))
        promised(self.observe(driver) == before, "a refused sweep changed settings")

    # -- sharing and closing

    @on_wires_only
    def test_two_threads_share_it(self, driver: TunableLaser, clock: Clock) -> None:
        """While one thread sets the power, another reads powers that were set."""
        low_high_dbm = driver.ranges.power_dbm or (6.0, 10.0)
        wanted_dbm = [within(low_high_dbm, 0.25), within(low_high_dbm, 0.75)]
        driver.set_power_dbm(wanted_dbm[1])
        step_db = driver.ranges.power_step_db

        def set_them() -> None:
            for round_ in range(_SHARED_ROUNDS):
                driver.set_power_dbm(wanted_dbm[round_ % 2])

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                found_dbm = driver.state().power_dbm
                known = any(abs(found_dbm - each) <= 0.51 * step_db + 1e-6 for each in wanted_dbm)
                promised(known, f"{found_dbm:g} dBm was read, which nobody set")

        run_parallel(clock, set_them, read)

    def test_closing_leaves_the_output_as_it_is(
        self, driver: TunableLaser, emitted: Callable[[], tuple[float, float] | None], clock: Clock
    ) -> None:
        """``close`` switches nothing off."""
        driver.enable()
        driver.wait_ready(self.ready_s)
        driver.close()
        promised(emitted() is not None, "close() switched the output off")

    # -- in common

    def _plan(self, driver: TunableLaser, *, log: bool) -> LaserSweep:
        centre_hz = 1e12 * within(driver.ranges.frequency_thz, 0.5)
        start_nm = round(1e9 * wavelength_m_from_frequency_hz(centre_hz), 1)
        return LaserSweep(
            start_nm, start_nm + self.sweep_span_nm, self.sweep_step_nm, self.sweep_speed_nm_per_s, log=log
        )

    def _check_frequency(self, driver: TunableLaser, wanted_thz: float) -> None:
        found_thz = driver.state().frequency_thz
        slack_thz = 0.51 * driver.ranges.frequency_step_thz + 1e-9
        promised(abs(found_thz - wanted_thz) <= slack_thz, f"{wanted_thz:.6f} THz was set, {found_thz:.6f} is in force")

    def _check_ready(self, state: LaserState, wanted_dbm: float) -> None:
        promised(state.emitting and state.ready, f"wait_ready() returned {state}")
        if state.measured_power_dbm is not None:
            off_db = abs(state.measured_power_dbm - wanted_dbm)
            promised(off_db <= self.accuracy_db, f"{wanted_dbm:g} dBm was set, {state.measured_power_dbm:g} measured")

    def _check_dark(self, state: LaserState) -> None:
        promised(not (state.emitting or state.ready), f"a dark laser says {state}")
        promised(state.measured_power_dbm is None, f"a dark laser measures {state.measured_power_dbm} dBm")
