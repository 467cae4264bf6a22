"""Contract tests for temperature controllers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock
from lumion_hw.errors import DeviceError, DeviceTimeoutError, LimitError
from lumion_hw.interfaces import TemperatureController
from lumion_hw.testing.contracts.common import (
    DeviceContract,
    expect,
    expect_error,
    fail_without_fixture,
    on_wires_only,
    run_parallel,
    skip_without_fixture,
)
from lumion_hw.testing.contracts.tunable_laser import value_in_range

_SHARED_ROUNDS = 4


class TemperatureControllerContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.TemperatureController`.

    Required fixture: ``driver`` (open, output off). Optional: ``true_c``, ``heat_suddenly_k``, ``pull_sensor``, and
    those of :class:`DeviceContract`.

    Attributes:
        lock_s: Longest time until the temperature is locked, in seconds.
        near_c: A temperature in °C that is reached within ``lock_s``.
        resolution_c: Largest difference between the set point and its read-back, in kelvin.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "set_temperature_c": lambda driver: driver.set_temperature_c(25.0),
        "set_tolerance": lambda driver: driver.set_tolerance(0.1, 1.0),
        "disable": lambda driver: driver.disable(),
        "state": lambda driver: driver.state(),
        "settings": lambda driver: driver.settings(),
        "limits": lambda driver: driver.limits(),
    }
    lock_s: ClassVar[float] = 600.0
    near_c: ClassVar[float] = 27.0
    resolution_c: ClassVar[float] = 0.006

    def observe(self, driver: Any) -> object:
        """Return the active settings."""
        return driver.settings()

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> TemperatureController:
        """An open driver."""
        fail_without_fixture("driver", "an open TemperatureController whose output is off, closed again after the test")

    @pytest.fixture
    def true_c(self) -> Callable[[], float]:
        """A function that measures the actual temperature, in °C."""
        skip_without_fixture("true_c", "a function that returns the actual temperature of the body, in °C")

    @pytest.fixture
    def heat_suddenly_k(self) -> Callable[[float], None]:
        """A function that suddenly heats the controlled body by this number of kelvin."""
        skip_without_fixture("heat_suddenly_k", "a function that suddenly heats the body by a given number of kelvin")

    @pytest.fixture
    def pull_sensor(self) -> Callable[[], None]:
        """A function that disconnects the sensor from the controller."""
        skip_without_fixture("pull_sensor", "a function that disconnects the sensor from the controller")

    # -- settings

    def test_model_and_limits_are_reported(self, driver: TemperatureController) -> None:
        """The controller's limits are in order."""
        expect(bool(driver.model), "the model name is empty")
        limits = driver.limits()
        for low, high in (limits.setpoint_c, limits.tolerance_c, limits.window_s):
            expect(low < high, f"lower limits must be below upper limits: {limits}")

    def test_a_temperature_within_the_limits_is_in_force(self, driver: TemperatureController) -> None:
        """A set point within the limits takes effect and is read back."""
        low_high_c = driver.limits().setpoint_c
        for fraction in (0.0, 0.37, 1.0, 0.5):
            wanted_c = value_in_range(low_high_c, fraction)
            driver.set_temperature_c(wanted_c)
            actual_c = driver.settings().setpoint_c
            expect(abs(actual_c - wanted_c) <= self.resolution_c, f"{wanted_c} °C was set, {actual_c} °C is active")
            expect(driver.state().setpoint_c == actual_c, "state() and settings() report different set points")

    def test_a_tolerance_is_in_force(self, driver: TemperatureController) -> None:
        """Tolerance and time within it take effect and are read back."""
        for tolerance_c, window_s in ((0.5, 2.0), (0.05, 5.0)):
            driver.set_tolerance(tolerance_c, window_s)
            settings = driver.settings()
            is_near = abs(settings.tolerance_c - tolerance_c) <= 0.006 and abs(settings.window_s - window_s) <= 0.06
            expect(
                is_near, f"set {tolerance_c} K, {window_s} s; read back {settings.tolerance_c} K, {settings.window_s} s"
            )

    def test_settings_outside_the_limits_are_refused_and_nothing_changes(self, driver: TemperatureController) -> None:
        """Values outside the limits, and NaN, are rejected, and nothing changes."""
        driver.set_temperature_c(self.near_c)
        before, limits = self.observe(driver), driver.limits()
        for wrong_c in (limits.setpoint_c[0] - 5.0, limits.setpoint_c[1] + 5.0, math.nan):
            error = expect_error(LimitError, f"{wrong_c} °C", partial(driver.set_temperature_c, wrong_c))
            expect(error.unit == "°C", f"the unit of the error is {error.unit}, not °C")
        for wrong in ((limits.tolerance_c[1] + 1.0, 1.0), (0.1, limits.window_s[1] + 1.0), (math.nan, 1.0)):
            expect_error(LimitError, f"a tolerance of {wrong}", partial(driver.set_tolerance, *wrong))
        expect(self.observe(driver) == before, "a rejected setting changed settings")

    # -- the lock

    def test_the_lock_is_reported(self, driver: TemperatureController) -> None:
        """While enabled the controller locks within ``lock_s``; while off it is not locked."""
        self._prepare(driver)
        state = driver.state()
        expect(not (state.enabled or state.locked), f"the output is off, but the state is {state}")
        driver.enable()
        state = driver.wait_locked(self.lock_s)
        expect(state.enabled and state.locked, f"wait_locked() returned {state}")
        is_near = state.temperature_c is not None and abs(state.temperature_c - self.near_c) <= 0.11
        expect(is_near, f"locked to {self.near_c} °C, but the temperature is {state.temperature_c}")
        driver.disable()
        after = driver.state()
        expect(not (after.enabled or after.locked), f"after disable() the state is {after}")
        expect(after.losses == state.losses + 1, "disable() while locked was not counted as a loss")

    def test_locked_means_that_the_temperature_is_held(
        self, driver: TemperatureController, true_c: Callable[[], float]
    ) -> None:
        """While locked, the actual temperature is within the tolerance."""
        self._prepare(driver)
        driver.enable()
        driver.wait_locked(self.lock_s)
        expect(abs(true_c() - self.near_c) <= 0.15, f"locked to {self.near_c} °C, but the body has {true_c():.3f} °C")

    def test_a_lock_that_was_lost_is_counted_once(
        self, driver: TemperatureController, heat_suddenly_k: Callable[[float], None], clock: Clock
    ) -> None:
        """A lost lock is counted exactly once, even if the lock has returned before the next reading."""
        self._prepare(driver)
        driver.enable()
        losses = driver.wait_locked(self.lock_s).losses
        expect(driver.state().losses == losses, "an uninterrupted lock was counted as lost")
        heat_suddenly_k(3.0)
        clock.sleep(self.lock_s)
        state = driver.state()
        expect(state.locked, f"not locked again {self.lock_s:g} s after a disturbance of 3 K: {state}")
        expect(state.losses > losses, "a lock that was lost for a while was not counted")
        expect(driver.state().losses == state.losses, "a loss was counted twice")

    def test_without_its_sensor_there_is_no_temperature(
        self, driver: TemperatureController, pull_sensor: Callable[[], None], clock: Clock
    ) -> None:
        """Without a sensor there is neither temperature nor lock, and waiting for a lock raises an error."""
        self._prepare(driver)
        driver.enable()
        pull_sensor()
        clock.sleep(1.0)
        state = driver.state()
        expect(state.temperature_c is None, f"without a sensor the temperature is {state.temperature_c} °C")
        expect(not state.locked and bool(state.faults), f"without a sensor the state is {state}")
        expect_error(DeviceError, "wait_locked() without a sensor", lambda: driver.wait_locked(self.lock_s))

    def test_waiting_for_an_output_that_is_off_is_an_error(self, driver: TemperatureController, clock: Clock) -> None:
        """``wait_locked`` raises an error immediately if the output is off."""
        started_s = clock.now()
        expect_error(DeviceError, "wait_locked() with the output off", lambda: driver.wait_locked(self.lock_s))
        expect(clock.now() - started_s < self.deadline_s, "waiting for an output that is off did not fail immediately")

    def test_waiting_ends_at_the_time_out(self, driver: TemperatureController, clock: Clock) -> None:
        """Waiting ends at the time-out; a negative or NaN time-out is rejected."""
        self._prepare(driver)
        driver.enable()
        started_s = clock.now()
        error = expect_error(DeviceTimeoutError, "a lock within 0.1 s", lambda: driver.wait_locked(0.1))
        expect(bool(error.device and error.address), f"the error does not name the device and its address: {error}")
        expect(clock.now() - started_s < self.deadline_s, f"waiting 0.1 s took {clock.now() - started_s:.2f} s")
        for timeout_s in (math.nan, -1.0):
            expect_error(LimitError, f"wait_locked({timeout_s})", partial(driver.wait_locked, timeout_s))

    # -- sharing and closing

    @on_wires_only
    def test_two_threads_share_the_driver(self, driver: TemperatureController, clock: Clock) -> None:
        """While one thread sets temperatures, another reads only values that were set."""
        wanted_c = [25.0, 26.0]
        driver.set_temperature_c(wanted_c[1])

        def set_values() -> None:
            for round_ in range(_SHARED_ROUNDS):
                driver.set_temperature_c(wanted_c[round_ % 2])

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                actual_c = driver.settings().setpoint_c
                is_known = any(abs(actual_c - value_c) <= self.resolution_c for value_c in wanted_c)
                expect(is_known, f"{actual_c:g} °C was read, but was never set")

        run_parallel(clock, set_values, read)

    def test_closing_leaves_the_output_on(
        self, driver: TemperatureController, true_c: Callable[[], float], clock: Clock
    ) -> None:
        """``close`` leaves the output on, and the temperature stays locked."""
        self._prepare(driver)
        driver.enable()
        driver.wait_locked(self.lock_s)
        driver.close()
        clock.sleep(60.0 if self.lock_s >= 60.0 else 0.0)
        expect(abs(true_c() - self.near_c) <= 0.15, f"after close() the body has {true_c():.3f} °C")

    def _prepare(self, driver: TemperatureController) -> None:
        driver.set_tolerance(0.1, 1.0)
        driver.set_temperature_c(self.near_c)
