"""What a temperature controller promises: set points in force or refused, and a lock that says when it was lost."""

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
    fail_without_fixture,
    on_wires_only,
    promised,
    refused,
    run_parallel,
    skip_without_fixture,
)
from lumion_hw.testing.contracts.tunable_laser import within

_SHARED_ROUNDS = 4


class TemperatureControllerContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.TemperatureController`.

    Fixture to give: ``driver`` (open, output off). Optional: ``true_c``, ``push``, ``pull_sensor``, and those of
    :class:`DeviceContract`.

    Attributes:
        lock_s: Longest time until the temperature is held.
        near_c: A temperature that is reached within it.
        resolution_c: Largest difference between a set point and what is read back.
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
        """Return the settings in force."""
        return driver.settings()

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> TemperatureController:
        """An open driver."""
        fail_without_fixture("driver", "an open TemperatureController whose output is off, closed again after the test")

    @pytest.fixture
    def true_c(self) -> Callable[[], float]:
        """Tells the temperature that the controlled body really has."""
        skip_without_fixture("true_c", "a function that returns the temperature the body really has")

    @pytest.fixture
    def push(self) -> Callable[[float], None]:
        """Warms the body up at once by some kelvin, as a draught or a lamp would."""
        skip_without_fixture("push", "a function that warms the body up at once by some kelvin")

    @pytest.fixture
    def pull_sensor(self) -> Callable[[], None]:
        """Takes the sensor off the controller."""
        skip_without_fixture("pull_sensor", "a function that takes the sensor off the controller")

    # -- settings

    def test_it_describes_itself(self, driver: TemperatureController) -> None:
        """It says what it is, and its limits are limits."""
        promised(bool(driver.model), "it has no model")
        limits = driver.limits()
        for low, high in (limits.setpoint_c, limits.tolerance_c, limits.window_s):
            promised(low < high, f"{limits} are no limits")

    def test_a_temperature_within_the_limits_is_in_force(self, driver: TemperatureController) -> None:
        """Every set point from limit to limit is taken and read back."""
        low_high_c = driver.limits().setpoint_c
        for fraction in (0.0, 0.37, 1.0, 0.5):
            wanted_c = within(low_high_c, fraction)
            driver.set_temperature_c(wanted_c)
            found_c = driver.settings().setpoint_c
            promised(abs(found_c - wanted_c) <= self.resolution_c, f"{wanted_c} °C was set, {found_c} °C is in force")
            promised(driver.state().setpoint_c == found_c, "state() and settings() tell different set points")

    def test_a_tolerance_is_in_force(self, driver: TemperatureController) -> None:
        """Nearness and time are taken and read back."""
        for tolerance_c, window_s in ((0.5, 2.0), (0.05, 5.0)):
            driver.set_tolerance(tolerance_c, window_s)
            found = driver.settings()
            near = abs(found.tolerance_c - tolerance_c) <= 0.006 and abs(found.window_s - window_s) <= 0.06
            promised(near, f"{tolerance_c} K, {window_s} s was set; {found.tolerance_c} K, {found.window_s} s is")

    def test_settings_outside_the_limits_are_refused_and_nothing_changes(self, driver: TemperatureController) -> None:
        """Limits reject, they never clip; NaN is no temperature."""
        driver.set_temperature_c(self.near_c)
        before, limits = self.observe(driver), driver.limits()
        for wrong_c in (limits.setpoint_c[0] - 5.0, limits.setpoint_c[1] + 5.0, math.nan):
            error = refused(LimitError, f"{wrong_c} °C", partial(driver.set_temperature_c, wrong_c))
            promised(error.unit == "°C", f"the refusal speaks in {error.unit}, the caller in °C")
        for wrong in ((limits.tolerance_c[1] + 1.0, 1.0), (0.1, limits.window_s[1] + 1.0), (math.nan, 1.0)):
            refused(LimitError, f"a tolerance of {wrong}", partial(driver.set_tolerance, *wrong))
        promised(self.observe(driver) == before, "a refused setting changed settings")

    # -- the lock

    def test_it_locks_and_says_so(self, driver: TemperatureController) -> None:
        """Off it is not locked; on it is within its time, near the set point; off again it is not."""
        self._prepare(driver)
        state = driver.state()
        promised(not (state.enabled or state.locked), f"an output that is off says {state}")
        driver.enable()
        state = driver.wait_locked(self.lock_s)
        promised(state.enabled and state.locked, f"wait_locked() returned {state}")
        near = state.temperature_c is not None and abs(state.temperature_c - self.near_c) <= 0.11
        promised(near, f"{self.near_c} °C is said to be held at {state.temperature_c}")
        driver.disable()
        after = driver.state()
        promised(not (after.enabled or after.locked), f"after disable() it says {after}")
        promised(after.losses == state.losses + 1, "a lock that ended with the output is no loss to it")

    def test_locked_means_that_the_temperature_is_held(
        self, driver: TemperatureController, true_c: Callable[[], float]
    ) -> None:
        """What it calls locked is within the tolerance."""
        self._prepare(driver)
        driver.enable()
        driver.wait_locked(self.lock_s)
        promised(abs(true_c() - self.near_c) <= 0.15, f"{self.near_c} °C is locked, the body has {true_c():.3f} °C")

    def test_a_lock_that_was_lost_is_counted_once(
        self, driver: TemperatureController, push: Callable[[float], None], clock: Clock
    ) -> None:
        """Also one that came back before anybody asked; asked again, it is not counted again."""
        self._prepare(driver)
        driver.enable()
        losses = driver.wait_locked(self.lock_s).losses
        promised(driver.state().losses == losses, "a lock that holds is counted as lost")
        push(3.0)
        clock.sleep(self.lock_s)
        state = driver.state()
        promised(state.locked, f"{self.lock_s:g} s after a push of 3 K it is not locked again: {state}")
        promised(state.losses > losses, "the lock was lost for a while, and it does not tell")
        promised(driver.state().losses == state.losses, "a loss is counted twice")

    def test_without_its_sensor_there_is_no_temperature(
        self, driver: TemperatureController, pull_sensor: Callable[[], None], clock: Clock
    ) -> None:
        """A sensor that is not there gives no number, no lock, and an error to whoever waits."""
        self._prepare(driver)
        driver.enable()
        pull_sensor()
        clock.sleep(1.0)
        state = driver.state()
        promised(state.temperature_c is None, f"without a sensor it is {state.temperature_c} °C")
        promised(not state.locked and bool(state.faults), f"without a sensor it says {state}")
        refused(DeviceError, "wait_locked() without a sensor", lambda: driver.wait_locked(self.lock_s))

    def test_waiting_for_an_output_that_is_off_is_an_error(self, driver: TemperatureController, clock: Clock) -> None:
        """``wait_locked`` does not wait for what nobody switched on."""
        started_s = clock.now()
        refused(DeviceError, "wait_locked() with the output off", lambda: driver.wait_locked(self.lock_s))
        promised(clock.now() - started_s < self.deadline_s, "waiting for an output that is off took its time")

    def test_waiting_ends_when_its_time_is_over(self, driver: TemperatureController, clock: Clock) -> None:
        """The time is a duration; one that is none is refused."""
        self._prepare(driver)
        driver.enable()
        started_s = clock.now()
        error = refused(DeviceTimeoutError, "a lock within 0.1 s", lambda: driver.wait_locked(0.1))
        promised(bool(error.device and error.address), f"the error names no device or no address: {error}")
        promised(clock.now() - started_s < self.deadline_s, f"to wait 0.1 s took {clock.now() - started_s:.2f} s")
        for timeout_s in (math.nan, -1.0):
            refused(LimitError, f"wait_locked({timeout_s})", partial(driver.wait_locked, timeout_s))

    # -- sharing and closing

    @on_wires_only
    def test_two_threads_share_it(self, driver: TemperatureController, clock: Clock) -> None:
        """While one thread sets, another reads set points that were set."""
        wanted_c = [25.0, 26.0]
        driver.set_temperature_c(wanted_c[1])

        def set_them() -> None:
            for round_ in range(_SHARED_ROUNDS):
                driver.set_temperature_c(wanted_c[round_ % 2])

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                found_c = driver.settings().setpoint_c
                known = any(abs(found_c - each) <= self.resolution_c for each in wanted_c)
                promised(known, f"{found_c:g} °C was read, which nobody set")

        run_parallel(clock, set_them, read)

    def test_closing_leaves_the_output_on(
        self, driver: TemperatureController, true_c: Callable[[], float], clock: Clock
    ) -> None:
        """``close`` lets go of nothing: the temperature is held on."""
        self._prepare(driver)
        driver.enable()
        driver.wait_locked(self.lock_s)
        driver.close()
        clock.sleep(60.0 if self.lock_s >= 60.0 else 0.0)
        promised(abs(true_c() - self.near_c) <= 0.15, f"after close() the body has {true_c():.3f} °C")

    def _prepare(self, driver: TemperatureController) -> None:
        driver.set_tolerance(0.1, 1.0)
        driver.set_temperature_c(self.near_c)
