"""Contract tests for optical amplifiers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock
from lumion_hw.errors import DeviceError, DeviceTimeoutError, LimitError, NotSupportedError
from lumion_hw.interfaces import AmplifierLimits, AmplifierMode, OpticalAmplifier
from lumion_hw.testing.contracts.common import (
    DeviceContract,
    expect,
    expect_error,
    fail_without_fixture,
    result_or_none,
    skip_without_fixture,
    succeeds,
)
from lumion_hw.testing.contracts.tunable_laser import value_in_range

_UNITS = {"current_ma": "mA", "power_dbm": "dBm", "gain_db": "dB"}
_MODES = dict(zip(_UNITS, AmplifierMode, strict=True))


class OpticalAmplifierContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.OpticalAmplifier`.

    Required fixture: ``driver`` (open, output off). Optional: ``emitted_dbm``, ``change_mode``, and those of
    :class:`DeviceContract`.

    Attributes:
        ready_s: Longest time in seconds until the light follows a setting.
        accuracy: Largest relative difference between a set value and its read-back.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "disable": lambda driver: driver.disable(),
        "state": lambda driver: driver.state(),
        "settings": lambda driver: driver.settings(),
    }
    ready_s: ClassVar[float] = 60.0
    accuracy: ClassVar[float] = 0.01

    def observe(self, driver: Any) -> object:
        """Return the active settings."""
        return driver.settings()

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> OpticalAmplifier:
        """An open driver."""
        fail_without_fixture("driver", "an open OpticalAmplifier whose output is off, closed again after the test")

    @pytest.fixture
    def emitted_dbm(self) -> Callable[[], float | None]:
        """A function that returns the actual output power in dBm, or ``None`` if the output is dark."""
        skip_without_fixture("emitted_dbm", "a function that returns the actual output power in dBm, or None if dark")

    @pytest.fixture
    def change_mode(self) -> Callable[[], None]:
        """A function that changes the control mode through another session while the output is off."""
        skip_without_fixture("change_mode", "a function by which another session changes the control mode")

    # -- changes by another session

    @pytest.mark.parametrize("name", _UNITS)
    def test_a_mode_changed_by_another_session_is_reported(
        self, driver: OpticalAmplifier, change_mode: Callable[[], None], name: str
    ) -> None:
        """A mode changed by another session is reported, and a new value then takes effect; or both calls fail."""
        limits = getattr(driver.limits(), name)
        if limits is None:
            return
        getattr(driver, f"hold_{name}")(value_in_range(limits, 0.3))
        change_mode()
        settings = result_or_none(driver.settings)
        if settings is not None:
            controlled = [unit for unit in _UNITS if getattr(settings, unit) is not None]
            expect(
                controlled == [unit for unit in _UNITS if _MODES[unit] is settings.mode],
                f"settings() has values that do not belong to its mode: {settings}",
            )
        wanted = value_in_range(limits, 0.5)
        if succeeds(lambda: getattr(driver, f"hold_{name}")(wanted)):
            actual = getattr(driver.settings(), name)
            slack = self.accuracy * max(abs(limit) for limit in limits)
            expect(actual is not None and abs(actual - wanted) <= slack, f"{wanted:g} was set, {actual} is read back")

    # -- tests

    def test_it_controls_at_least_one_quantity(self, driver: OpticalAmplifier) -> None:
        """The amplifier can control at least one quantity."""
        expect(bool(driver.model), "the model name is empty")
        limits = self._limits(driver.limits())
        expect(bool(limits), "limits() names no quantity")
        for name, (low, high) in limits.items():
            expect(low < high, f"the limits of {name} are {low} and {high}")

    @pytest.mark.parametrize("name", _UNITS)
    def test_a_value_takes_effect_or_is_unsupported(self, driver: OpticalAmplifier, name: str) -> None:
        """A value within the limits takes effect and selects its mode; an unsupported quantity is rejected."""
        limits = getattr(driver.limits(), name)
        hold = getattr(driver, f"hold_{name}")
        if limits is None:
            expect_error(NotSupportedError, f"hold_{name}", partial(hold, 1.0))
            return
        for fraction in (0.3, 0.9, 0.5):
            wanted = value_in_range(limits, fraction)
            hold(wanted)
            settings = driver.settings()
            actual = getattr(settings, name)
            expect(settings.mode is _MODES[name], f"hold_{name}() was called, but the mode is {settings.mode}")
            slack = self.accuracy * max(abs(limit) for limit in limits)
            expect(actual is not None and abs(actual - wanted) <= slack, f"{wanted:g} was set, {actual} is read back")
            other_values = [getattr(settings, other) for other in _UNITS if other != name]
            expect(other_values == [None, None], f"settings() reports more than one controlled quantity: {settings}")

    @pytest.mark.parametrize("name", _UNITS)
    def test_values_outside_the_limits_are_rejected(self, driver: OpticalAmplifier, name: str) -> None:
        """Values outside the limits, and NaN, are rejected, and nothing changes."""
        limits = getattr(driver.limits(), name)
        if limits is None:
            return
        hold = getattr(driver, f"hold_{name}")
        hold(value_in_range(limits, 0.5))
        before = self.observe(driver)
        span = limits[1] - limits[0]
        for wanted in (limits[0] - 0.1 * span, limits[1] + 0.1 * span, math.nan):
            error = expect_error(LimitError, f"hold_{name}({wanted:g})", partial(hold, wanted))
            expect(error.unit == _UNITS[name], f"the unit of the error is {error.unit}, not {_UNITS[name]}")
        expect(self.observe(driver) == before, "a rejected setting changed settings")

    def test_the_state_follows_the_output(self, driver: OpticalAmplifier) -> None:
        """The reported state follows the output: off, then ready within ``ready_s``, then off again."""
        self._set_a_quantity(driver)
        state = driver.state()
        expect(not (state.emitting or state.ready), f"the amplifier is off, but reports {state}")
        driver.enable()
        state = driver.wait_ready(self.ready_s)
        expect(state.emitting and state.ready and not state.flags, f"wait_ready() returned {state}")
        expect(driver.settings().enabled, "the output is on, but settings() reports it off")
        driver.disable()
        state = driver.state()
        expect(not (state.emitting or state.ready), f"after disable() the amplifier reports {state}")

    def test_light_leaves_it_while_it_is_ready(
        self, driver: OpticalAmplifier, emitted_dbm: Callable[[], float | None]
    ) -> None:
        """The amplifier emits only while enabled, with the reported power."""
        self._set_a_quantity(driver)
        dark_dbm = emitted_dbm()
        driver.enable()
        state = driver.wait_ready(self.ready_s)
        bright_dbm = emitted_dbm()
        expect(bright_dbm is not None, "the amplifier is ready, but emits no light")
        if bright_dbm is not None:
            expect(
                dark_dbm is None or bright_dbm > dark_dbm + 3.0, f"the amplifier emits {dark_dbm} dBm before enable()"
            )
            reported_dbm = state.output_power_dbm
            expect(
                reported_dbm is None or abs(reported_dbm - bright_dbm) < 1.0,
                f"the output power is {bright_dbm:g} dBm, but {reported_dbm} is reported",
            )
        driver.disable()
        after_dbm = emitted_dbm()
        expect(after_dbm is None or dark_dbm is not None, f"the amplifier still emits {after_dbm} dBm after disable()")

    def test_waiting_for_an_output_that_is_off_is_an_error(self, driver: OpticalAmplifier, clock: Clock) -> None:
        """``wait_ready`` raises an error immediately if the output is off."""
        started_s = clock.now()
        expect_error(DeviceError, "wait_ready() of an amplifier that is off", lambda: driver.wait_ready(self.ready_s))
        expect(clock.now() - started_s < self.deadline_s, "waiting for an output that is off did not fail immediately")

    def test_waiting_ends_at_the_time_out(self, driver: OpticalAmplifier, clock: Clock) -> None:
        """Waiting ends at the time-out; a negative or NaN time-out is rejected."""
        self._set_a_quantity(driver)
        driver.enable()
        started_s = clock.now()
        try:
            driver.wait_ready(0.0)
        except DeviceTimeoutError as error:
            expect(bool(error.device and error.address), f"the error does not name the device and its address: {error}")
        expect(clock.now() - started_s < self.deadline_s, f"waiting 0 s took {clock.now() - started_s:.2f} s")
        for timeout_s in (math.nan, -1.0):
            expect_error(LimitError, f"wait_ready({timeout_s})", partial(driver.wait_ready, timeout_s))

    def test_a_mode_change_during_emission_works_or_is_rejected(self, driver: OpticalAmplifier) -> None:
        """Changing the mode during emission takes effect, or is rejected without changing anything."""
        limits = self._limits(driver.limits())
        if len(limits) < 2:
            return
        first, second = list(limits)[:2]
        getattr(driver, f"hold_{first}")(value_in_range(limits[first], 0.5))
        driver.enable()
        driver.wait_ready(self.ready_s)
        before = self.observe(driver)
        try:
            getattr(driver, f"hold_{second}")(value_in_range(limits[second], 0.5))
        except DeviceError:
            expect(self.observe(driver) == before, "a rejected mode changed settings")
        else:
            expect(driver.settings().mode is _MODES[second], "the new mode was accepted, but is not active")

    def test_closing_leaves_the_output_as_it_is(
        self, driver: OpticalAmplifier, emitted_dbm: Callable[[], float | None]
    ) -> None:
        """``close`` does not change the output."""
        self._set_a_quantity(driver)
        driver.enable()
        driver.wait_ready(self.ready_s)
        before_dbm = emitted_dbm()
        driver.close()
        after_dbm = emitted_dbm()
        is_same = before_dbm is not None and after_dbm is not None and abs(after_dbm - before_dbm) < 1.0
        expect(is_same, f"close() changed the output power from {before_dbm} to {after_dbm} dBm")

    # -- helpers

    def _limits(self, limits: AmplifierLimits) -> dict[str, tuple[float, float]]:
        return {item.name: value for item in fields(limits) if (value := getattr(limits, item.name)) is not None}

    def _set_a_quantity(self, driver: OpticalAmplifier) -> None:
        name, limits = next(iter(self._limits(driver.limits()).items()))
        getattr(driver, f"hold_{name}")(value_in_range(limits, 0.6))
