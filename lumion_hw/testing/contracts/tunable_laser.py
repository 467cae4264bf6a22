"""Contract tests for tunable lasers."""

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
    expect,
    expect_error,
    fail_without_fixture,
    on_wires_only,
    result_or_none,
    run_parallel,
    skip_without_fixture,
    succeeds,
)

_SHARED_ROUNDS = 6


def value_in_range(low_high: tuple[float, float], fraction: float) -> float:
    """Return the value at a fraction of a range: 0 for its start, 1 for its end."""
    low, high = low_high
    return low + fraction * (high - low)


class TunableLaserContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.TunableLaser`.

    Required fixture: ``driver`` (open, output off). Optional: ``emitted``, changes by another session
    (``change_unit``, ``reset``), and those of :class:`DeviceContract`.

    Attributes:
        ready_s: Longest time in seconds until the light follows a setting.
        accuracy_thz: Largest difference between the set frequency and that of the light, in THz.
        accuracy_db: Largest difference between the set power and that of the light, in dB.
        sweep_span_nm: Span of the test sweep.
        sweep_step_nm: Step of the test sweep.
        sweep_speed_nm_per_s: Speed of the test sweep.
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
        """Return whether the output is on, and the active frequency and power."""
        state: LaserState = driver.state()
        return state.emitting, state.frequency_thz, state.power_dbm

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> TunableLaser:
        """An open driver."""
        fail_without_fixture("driver", "an open TunableLaser whose output is off, closed again after the test")

    @pytest.fixture
    def emitted(self) -> Callable[[], tuple[float, float] | None]:
        """A function that measures the light: frequency in THz and power in dBm, or ``None`` if dark."""
        skip_without_fixture("emitted", "a function that returns frequency (THz) and power (dBm), None if dark")

    @pytest.fixture
    def change_unit(self) -> Callable[[], None]:
        """A function that changes the power unit through another session."""
        skip_without_fixture("change_unit", "a function by which another session changes the unit of powers")

    @pytest.fixture
    def reset(self) -> Callable[[], None]:
        """A function that resets the laser through another session, as by ``*RST``."""
        skip_without_fixture("reset", "a function by which another session resets the laser, as by *RST")

    # -- changes by another session

    def test_a_unit_changed_by_another_session_gives_no_wrong_power(
        self,
        driver: TunableLaser,
        change_unit: Callable[[], None],
        emitted: Callable[[], tuple[float, float] | None],
        clock: Clock,
    ) -> None:
        """After another session changed the unit, reported and emitted power are right, or there is an error."""
        first_dbm, second_dbm = (
            value_in_range(driver.ranges.power_dbm or (6.0, 10.0), fraction) for fraction in (0.6, 0.3)
        )
        driver.set_power_dbm(first_dbm)
        driver.enable()
        driver.wait_ready(self.ready_s)
        change_unit()
        state = result_or_none(driver.state)
        if state is not None:
            slack_db = 0.51 * driver.ranges.power_step_db + 1e-6
            expect(
                abs(state.power_dbm - first_dbm) <= slack_db, f"{first_dbm:g} dBm is reported as {state.power_dbm:g}"
            )
        change_unit()
        if not succeeds(lambda: driver.set_power_dbm(second_dbm)):
            return
        driver.wait_ready(self.ready_s)
        light = emitted()
        expect(light is not None, "the laser is ready, but emits no light")
        if light is not None:
            off_db = light[1] - second_dbm
            expect(abs(off_db) <= self.accuracy_db, f"{second_dbm:g} dBm was set, the light is {off_db:+.2f} dB off")

    def test_a_reset_by_another_session_is_reported(
        self, driver: TunableLaser, reset: Callable[[], None], emitted: Callable[[], tuple[float, float] | None]
    ) -> None:
        """After a reset by another session, the reported state is right, or there is an error."""
        driver.set_power_dbm(value_in_range(driver.ranges.power_dbm or (6.0, 10.0), 0.6))
        driver.enable()
        driver.wait_ready(self.ready_s)
        reset()
        state, light = result_or_none(driver.state), emitted()
        if state is not None:
            expect(state.emitting == (light is not None), f"it reports {state}, but the light is {light}")
        wanted_dbm = value_in_range(driver.ranges.power_dbm or (6.0, 10.0), 0.4)
        if succeeds(lambda: driver.set_power_dbm(wanted_dbm)):
            driver.enable()
            self._check_ready(driver.wait_ready(self.ready_s), wanted_dbm)
            light = emitted()
            is_near = light is not None and abs(light[1] - wanted_dbm) <= self.accuracy_db
            expect(is_near, f"{wanted_dbm:g} dBm was set after the reset, the light is {light}")

    # -- identity and ranges

    def test_identity_and_ranges_are_reported(self, driver: TunableLaser) -> None:
        """The laser reports its ranges; only a laser that can sweep has a wavelength log."""
        expect(bool(driver.model and driver.serial), f"model {driver.model!r} or serial {driver.serial!r} is empty")
        ranges = driver.ranges
        low_thz, high_thz = ranges.frequency_thz
        expect(10.0 < low_thz < high_thz < 1000.0, f"the frequency range {low_thz:g} to {high_thz:g} THz is invalid")
        expect(
            0.0 < ranges.frequency_step_thz < 0.1, f"the frequency step {ranges.frequency_step_thz:g} THz is invalid"
        )
        expect(ranges.power_step_db > 0.0, f"the power step {ranges.power_step_db:g} dB is invalid")
        if ranges.power_dbm is not None:
            expect(
                ranges.power_dbm[0] <= ranges.power_dbm[1] < 40.0, f"the power range {ranges.power_dbm} dBm is invalid"
            )
        expect(
            driver.capabilities.sweep or not driver.capabilities.wavelength_log,
            "the laser has a wavelength log, but no sweep",
        )

    # -- frequency and power

    def test_a_frequency_within_the_range_is_in_force(self, driver: TunableLaser) -> None:
        """A frequency within the range takes effect to half a step and is read back."""
        ranges = driver.ranges
        for fraction in (0.0, 0.31, 0.77, 1.0, 0.5):
            wanted_thz = value_in_range(ranges.frequency_thz, fraction)
            driver.set_frequency_thz(wanted_thz)
            self._check_frequency(driver, wanted_thz)

    def test_a_power_within_the_range_is_in_force(self, driver: TunableLaser) -> None:
        """A power within the range takes effect to half a step and is read back."""
        ranges = driver.ranges
        for fraction in (0.0, 0.37, 1.0, 0.5):
            wanted_dbm = value_in_range(ranges.power_dbm or (6.0, 10.0), fraction)
            driver.set_power_dbm(wanted_dbm)
            actual_dbm = driver.state().power_dbm
            expect(
                abs(actual_dbm - wanted_dbm) <= 0.51 * ranges.power_step_db + 1e-6,
                f"{wanted_dbm:g} dBm was set, {actual_dbm:g} dBm is read back",
            )

    @pytest.mark.parametrize("offset", [-1.0, 1.0, math.nan, math.inf])
    def test_a_frequency_outside_the_range_is_refused_and_nothing_changes(
        self, driver: TunableLaser, offset: float
    ) -> None:
        """A frequency outside the range, NaN or a wavelength in nm is rejected, and nothing changes."""
        driver.set_frequency_thz(value_in_range(driver.ranges.frequency_thz, 0.5))
        before = self.observe(driver)
        low_thz, high_thz = driver.ranges.frequency_thz
        for wanted_thz in (low_thz + offset if offset < 0 else high_thz + offset, 1550.0):
            error = expect_error(LimitError, f"{wanted_thz:g} THz", partial(driver.set_frequency_thz, wanted_thz))
            expect(error.unit == "THz", f"the unit of the error is {error.unit}, not THz")
        expect(self.observe(driver) == before, "a rejected frequency changed settings")

    @pytest.mark.parametrize("offset", [-0.5, 0.5, math.nan])
    def test_a_power_outside_the_range_is_refused_and_nothing_changes(
        self, driver: TunableLaser, offset: float
    ) -> None:
        """Values outside the limits, and NaN, are rejected, and nothing changes."""
        before = self.observe(driver)
        limits = driver.ranges.power_dbm
        low_dbm, high_dbm = limits or (-100.0, 100.0)
        wanted_dbm = low_dbm + offset if offset < 0 else high_dbm + offset
        kind: type[LumionError] = LimitError if limits or math.isnan(offset) else LumionError
        expect_error(kind, f"{wanted_dbm:g} dBm", partial(driver.set_power_dbm, wanted_dbm))
        expect(self.observe(driver) == before, "a rejected power changed settings")

    # -- light

    def test_the_light_is_what_was_set_once_it_is_ready(
        self, driver: TunableLaser, emitted: Callable[[], tuple[float, float] | None], clock: Clock
    ) -> None:
        """The laser emits only while enabled, with the set frequency and power."""
        wanted_thz = value_in_range(driver.ranges.frequency_thz, 0.4)
        wanted_dbm = value_in_range(driver.ranges.power_dbm or (6.0, 10.0), 0.6)
        driver.set_frequency_thz(wanted_thz)
        driver.set_power_dbm(wanted_dbm)
        expect(emitted() is None, "the laser emits light before enable()")
        driver.enable()
        self._check_ready(driver.wait_ready(self.ready_s), wanted_dbm)
        light = emitted()
        expect(light is not None, "the laser is ready, but emits no light")
        if light is not None:
            expect(
                abs(light[0] - wanted_thz) <= self.accuracy_thz,
                f"{wanted_thz:g} THz was set, the light has {light[0]:g}",
            )
            expect(
                abs(light[1] - wanted_dbm) <= self.accuracy_db,
                f"{wanted_dbm:g} dBm was set, the light has {light[1]:g}",
            )
        driver.disable()
        expect(emitted() is None, "the laser emits light after disable()")

    def test_the_state_follows_the_output(self, driver: TunableLaser, clock: Clock) -> None:
        """The reported state follows the output: off, then ready within ``ready_s``."""
        self._check_dark(driver.state())
        driver.enable()
        state = driver.wait_ready(self.ready_s)
        expect(state.emitting and state.ready, f"wait_ready() returned {state}")
        expect(driver.state().emitting, "the output is on, but the state reports it off")
        driver.disable()
        self._check_dark(driver.state())

    def test_waiting_for_an_output_that_is_off_is_an_error(self, driver: TunableLaser, clock: Clock) -> None:
        """``wait_ready`` raises an error immediately if the output is off."""
        started = clock.now()
        expect_error(DeviceError, "wait_ready() of a dark laser", lambda: driver.wait_ready(self.ready_s))
        expect(clock.now() - started < self.deadline_s, "waiting for an output that is off did not fail immediately")

    def test_waiting_ends_at_the_time_out(self, driver: TunableLaser, clock: Clock) -> None:
        """``wait_ready`` raises ``DeviceTimeoutError`` at its time-out; a negative or NaN time-out is rejected."""
        driver.enable()
        for timeout_s in (0.0, 0.01):
            started = clock.now()
            try:
                driver.wait_ready(timeout_s)
            except DeviceTimeoutError as error:
                expect(
                    bool(error.device and error.address), f"the error does not name the device and its address: {error}"
                )
            expect(clock.now() - started < 1.0, f"waiting {timeout_s:g} s took {clock.now() - started:.2f} s")
        for timeout_s in (math.nan, -1.0):
            expect_error(LimitError, f"wait_ready({timeout_s})", partial(driver.wait_ready, timeout_s))

    def test_tuning_during_emission_works_or_is_rejected(self, driver: TunableLaser, clock: Clock) -> None:
        """Tuning during emission takes effect, or is rejected without changing anything."""
        before_thz, wanted_thz = (value_in_range(driver.ranges.frequency_thz, fraction) for fraction in (0.25, 0.75))
        driver.set_frequency_thz(before_thz)
        driver.enable()
        driver.wait_ready(self.ready_s)
        if driver.capabilities.tunes_while_emitting:
            driver.set_frequency_thz(wanted_thz)
            driver.wait_ready(self.ready_s)
            self._check_frequency(driver, wanted_thz)
            return
        expect_error(DeviceError, "tuning during emission", lambda: driver.set_frequency_thz(wanted_thz))
        self._check_frequency(driver, before_thz)
        expect(driver.state().emitting, "a rejected frequency switched the output off")

    # -- sweeps

    def test_a_sweep_logs_its_wavelengths(self, driver: TunableLaser, clock: Clock) -> None:
        """The wavelengths of a sweep cover its span, increase, and have one value per step."""
        plan = self._plan(driver, log=driver.capabilities.wavelength_log)
        if not driver.capabilities.sweep:
            expect_error(NotSupportedError, "a sweep of a laser that does not sweep", lambda: driver.sweep(plan))
            return
        expect_error(DeviceError, "a sweep of a dark laser", lambda: driver.sweep(plan))
        driver.enable()
        driver.wait_ready(self.ready_s)
        log = driver.sweep(plan)
        expect(log.ended_s - log.started_s >= 0.9 * plan.duration_s, "the sweep ended sooner than its speed allows")
        if not plan.log:
            expect(log.wavelength_nm is None, "the result has wavelengths, but the laser has no log")
            expect_error(
                NotSupportedError,
                "a sweep with log on a laser without log",
                lambda: driver.sweep(replace(plan, log=True)),
            )
            return
        actual_nm = np.asarray(log.wavelength_nm)
        n_steps = round((plan.stop_nm - plan.start_nm) / plan.step_nm)
        expect(
            actual_nm.ndim == 1 and abs(actual_nm.size - n_steps) <= 1,
            f"the log has {actual_nm.size} points for {n_steps} steps",
        )
        expect(bool(np.all(np.diff(actual_nm) > 0.0)), "the logged wavelengths do not increase")
        ends_nm = (abs(actual_nm[0] - plan.start_nm), abs(actual_nm[-1] - plan.stop_nm))
        expect(max(ends_nm) <= 2.0 * plan.step_nm, f"the ends of the log are {ends_nm} nm off the sweep")

    def test_a_sweep_outside_the_range_is_refused_and_nothing_changes(self, driver: TunableLaser) -> None:
        """A sweep beyond the range, backwards or without speed is rejected, and nothing changes."""
        if not driver.capabilities.sweep:
            return
        driver.enable()
        before = self.observe(driver)
        plan = self._plan(driver, log=False)
        outside_nm = 1e9 * wavelength_m_from_frequency_hz(1e12 * driver.ranges.frequency_thz[0]) + 5.0
        wrong = (
            replace(plan, stop_nm=outside_nm),
            replace(plan, start_nm=plan.stop_nm, stop_nm=plan.start_nm),
            replace(plan, speed_nm_per_s=0.0),
            replace(plan, step_nm=math.nan),
        )
        for each in wrong:
            expect_error(LimitError, f"{each}", partial(driver.sweep, each))
        expect(self.observe(driver) == before, "a rejected sweep changed settings")

    # -- sharing and closing

    @on_wires_only
    def test_two_threads_share_the_driver(self, driver: TunableLaser, clock: Clock) -> None:
        """While one thread sets powers, another reads only values that were set."""
        low_high_dbm = driver.ranges.power_dbm or (6.0, 10.0)
        wanted_dbm = [value_in_range(low_high_dbm, 0.25), value_in_range(low_high_dbm, 0.75)]
        driver.set_power_dbm(wanted_dbm[1])
        step_db = driver.ranges.power_step_db

        def set_values() -> None:
            for round_ in range(_SHARED_ROUNDS):
                driver.set_power_dbm(wanted_dbm[round_ % 2])

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                actual_dbm = driver.state().power_dbm
                is_known = any(abs(actual_dbm - value_dbm) <= 0.51 * step_db + 1e-6 for value_dbm in wanted_dbm)
                expect(is_known, f"{actual_dbm:g} dBm was read, but was never set")

        run_parallel(clock, set_values, read)

    def test_closing_leaves_the_output_as_it_is(
        self, driver: TunableLaser, emitted: Callable[[], tuple[float, float] | None], clock: Clock
    ) -> None:
        """``close`` does not change the output."""
        driver.enable()
        driver.wait_ready(self.ready_s)
        driver.close()
        expect(emitted() is not None, "close() switched the output off")

    # -- helpers

    def _plan(self, driver: TunableLaser, *, log: bool) -> LaserSweep:
        centre_hz = 1e12 * value_in_range(driver.ranges.frequency_thz, 0.5)
        start_nm = round(1e9 * wavelength_m_from_frequency_hz(centre_hz), 1)
        return LaserSweep(
            start_nm, start_nm + self.sweep_span_nm, self.sweep_step_nm, self.sweep_speed_nm_per_s, log=log
        )

    def _check_frequency(self, driver: TunableLaser, wanted_thz: float) -> None:
        actual_thz = driver.state().frequency_thz
        slack_thz = 0.51 * driver.ranges.frequency_step_thz + 1e-9
        expect(abs(actual_thz - wanted_thz) <= slack_thz, f"{wanted_thz:.6f} THz was set, {actual_thz:.6f} is active")

    def _check_ready(self, state: LaserState, wanted_dbm: float) -> None:
        expect(state.emitting and state.ready, f"wait_ready() returned {state}")
        if state.measured_power_dbm is not None:
            off_db = abs(state.measured_power_dbm - wanted_dbm)
            expect(off_db <= self.accuracy_db, f"{wanted_dbm:g} dBm was set, {state.measured_power_dbm:g} measured")

    def _check_dark(self, state: LaserState) -> None:
        expect(not (state.emitting or state.ready), f"the laser is off, but reports {state}")
        expect(state.measured_power_dbm is None, f"the laser is off, but measures {state.measured_power_dbm} dBm")
