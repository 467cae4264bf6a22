"""What an optical amplifier promises: what it holds is in force or refused, and light that is on or off as told."""

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
    fail_without_fixture,
    is_done,
    promised,
    refused,
    skip_without_fixture,
    unless_refused,
)
from lumion_hw.testing.contracts.tunable_laser import within

_UNITS = {"current_ma": "mA", "power_dbm": "dBm", "gain_db": "dB"}
_MODES = dict(zip(_UNITS, AmplifierMode, strict=True))


class OpticalAmplifierContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.OpticalAmplifier`.

    Fixture to give: ``driver`` (open, output off). Optional: ``emitted_dbm``, ``change_mode``, and those of
    :class:`DeviceContract`.

    Attributes:
        ready_s: Longest time until the light follows.
        accuracy: Largest relative difference between what is set and what is read back.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "disable": lambda driver: driver.disable(),
        "state": lambda driver: driver.state(),
        "settings": lambda driver: driver.settings(),
    }
    ready_s: ClassVar[float] = 60.0
    accuracy: ClassVar[float] = 0.01

    def observe(self, driver: Any) -> object:
        """Return the settings in force."""
        return driver.settings()

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> OpticalAmplifier:
        """An open driver."""
        fail_without_fixture("driver", "an open OpticalAmplifier whose output is off, closed again after the test")

    @pytest.fixture
    def emitted_dbm(self) -> Callable[[], float | None]:
        """Tells the power in dBm that really leaves, ``None`` in the dark, with light at the input."""
        skip_without_fixture("emitted_dbm", "a function that returns the power in dBm that really leaves it, or None")

    @pytest.fixture
    def change_mode(self) -> Callable[[], None]:
        """Lets another session make the amplifier hold another quantity; its output is off."""
        skip_without_fixture("change_mode", "a function by which another session makes it hold another quantity")

    # -- what another session changes

    @pytest.mark.parametrize("name", _UNITS)
    def test_a_mode_changed_by_another_session_is_reported(
        self, driver: OpticalAmplifier, change_mode: Callable[[], None], name: str
    ) -> None:
        """``settings`` report the new mode, and the next set is in force, or there is an error."""
        limits = getattr(driver.limits(), name)
        if limits is None:
            return
        getattr(driver, f"hold_{name}")(within(limits, 0.3))
        change_mode()
        settings = unless_refused(driver.settings)
        if settings is not None:
            held = [unit for unit in _UNITS if getattr(settings, unit) is not None]
            promised(held == [unit for unit in _UNITS if _MODES[unit] is settings.mode], f"it reports {settings}")
        wanted = within(limits, 0.5)
        if is_done(lambda: getattr(driver, f"hold_{name}")(wanted)):
            found = getattr(driver.settings(), name)
            slack = self.accuracy * max(abs(each) for each in limits)
            promised(found is not None and abs(found - wanted) <= slack, f"{wanted:g} was set, {found} is read back")

    # -- promises

    def test_it_holds_something(self, driver: OpticalAmplifier) -> None:
        """It says what it is, and can hold at least one quantity, within limits."""
        promised(bool(driver.model), "it has no model")
        held = self._held(driver.limits())
        promised(bool(held), "it holds nothing")
        for name, (low, high) in held.items():
            promised(low < high, f"{name} goes from {low} to {high}")

    @pytest.mark.parametrize("name", _UNITS)
    def test_what_is_held_is_in_force_or_cannot_be_held(self, driver: OpticalAmplifier, name: str) -> None:
        """Within its limits it is in force and the only one; what it cannot hold is not supported."""
        limits = getattr(driver.limits(), name)
        hold = getattr(driver, f"hold_{name}")
        if limits is None:
            refused(NotSupportedError, f"hold_{name}", partial(hold, 1.0))
            return
        for fraction in (0.3, 0.9, 0.5):
            wanted = within(limits, fraction)
            hold(wanted)
            settings = driver.settings()
            found = getattr(settings, name)
            promised(settings.mode is _MODES[name], f"hold_{name}() was called, the mode is {settings.mode}")
            slack = self.accuracy * max(abs(each) for each in limits)
            promised(found is not None and abs(found - wanted) <= slack, f"{wanted:g} was set, {found} is read back")
            others = [getattr(settings, other) for other in _UNITS if other != name]
            promised(others == [None, None], f"it says that it holds other quantities, too: {settings}")

    @pytest.mark.parametrize("name", _UNITS)
    def test_what_is_outside_the_limits_is_refused_and_nothing_changes(
        self, driver: OpticalAmplifier, name: str
    ) -> None:
        """Limits reject, they never clip; NaN is no setting."""
        limits = getattr(driver.limits(), name)
        if limits is None:
            return
        hold = getattr(driver, f"hold_{name}")
        hold(within(limits, 0.5))
        before = self.observe(driver)
        span = limits[1] - limits[0]
        for wanted in (limits[0] - 0.1 * span, limits[1] + 0.1 * span, math.nan):
            error = refused(LimitError, f"hold_{name}({wanted:g})", partial(hold, wanted))
            promised(error.unit == _UNITS[name], f"the refusal speaks in {error.unit}, the caller in {_UNITS[name]}")
        promised(self.observe(driver) == before, "a refused setting changed settings")

    def test_what_it_says_follows_the_output(self, driver: OpticalAmplifier) -> None:
        """Off it is neither emitting nor ready; on it is both within its time; off again it is dark."""
        self._hold_some(driver)
        state = driver.state()
        promised(not (state.emitting or state.ready), f"an amplifier that is off says {state}")
        driver.enable()
        state = driver.wait_ready(self.ready_s)
        promised(state.emitting and state.ready and not state.flags, f"wait_ready() returned {state}")
        promised(driver.settings().enabled, "an enabled output is said to be off")
        driver.disable()
        state = driver.state()
        promised(not (state.emitting or state.ready), f"after disable() it says {state}")

    def test_light_leaves_it_while_it_is_ready(
        self, driver: OpticalAmplifier, emitted_dbm: Callable[[], float | None]
    ) -> None:
        """Dark until it is enabled; then as much as it says; dark again once disabled."""
        self._hold_some(driver)
        dark_dbm = emitted_dbm()
        driver.enable()
        state = driver.wait_ready(self.ready_s)
        bright_dbm = emitted_dbm()
        promised(bright_dbm is not None, "there is no light though the amplifier is ready")
        if bright_dbm is not None:
            promised(dark_dbm is None or bright_dbm > dark_dbm + 3.0, f"it emits {dark_dbm} dBm before it is enabled")
            told_dbm = state.output_power_dbm
            promised(
                told_dbm is None or abs(told_dbm - bright_dbm) < 1.0, f"{bright_dbm:g} dBm leave, it says {told_dbm}"
            )
        driver.disable()
        after_dbm = emitted_dbm()
        promised(after_dbm is None or dark_dbm is not None, f"{after_dbm} dBm leave after disable()")

    def test_waiting_for_an_output_that_is_off_is_an_error(self, driver: OpticalAmplifier, clock: Clock) -> None:
        """``wait_ready`` does not wait for light that nobody switched on."""
        started_s = clock.now()
        refused(DeviceError, "wait_ready() of an amplifier that is off", lambda: driver.wait_ready(self.ready_s))
        promised(clock.now() - started_s < self.deadline_s, "waiting for an output that is off took its time")

    def test_waiting_ends_when_its_time_is_over(self, driver: OpticalAmplifier, clock: Clock) -> None:
        """The time is a duration; one that is none is refused."""
        self._hold_some(driver)
        driver.enable()
        started_s = clock.now()
        try:
            driver.wait_ready(0.0)
        except DeviceTimeoutError as error:
            promised(bool(error.device and error.address), f"the error names no device or no address: {error}")
        promised(clock.now() - started_s < self.deadline_s, f"to wait 0 s took {clock.now() - started_s:.2f} s")
        for timeout_s in (math.nan, -1.0):
            refused(LimitError, f"wait_ready({timeout_s})", partial(driver.wait_ready, timeout_s))

    def test_another_mode_while_it_emits_is_done_or_refused(self, driver: OpticalAmplifier) -> None:
        """Where it cannot be done nothing changes, and the light stays on."""
        limits = self._held(driver.limits())
        if len(limits) < 2:
            return
        first, second = list(limits)[:2]
        getattr(driver, f"hold_{first}")(within(limits[first], 0.5))
        driver.enable()
        driver.wait_ready(self.ready_s)
        before = self.observe(driver)
        try:
            getattr(driver, f"hold_{second}")(within(limits[second], 0.5))
        except DeviceError:
            promised(self.observe(driver) == before, "a refused mode changed settings")
        else:
            promised(driver.settings().mode is _MODES[second], "another mode was set and is not in force")

    def test_closing_leaves_the_output_as_it_is(
        self, driver: OpticalAmplifier, emitted_dbm: Callable[[], float | None]
    ) -> None:
        """``close`` switches nothing off."""
        self._hold_some(driver)
        driver.enable()
        driver.wait_ready(self.ready_s)
        before_dbm = emitted_dbm()
        driver.close()
        after_dbm = emitted_dbm()
        same = before_dbm is not None and after_dbm is not None and abs(after_dbm - before_dbm) < 1.0
        promised(same, f"{before_dbm} dBm before close(), {after_dbm} after")

    # -- in common

    def _held(self, limits: AmplifierLimits) -> dict[str, tuple[float, float]]:
        return {each.name: value for each in fields(limits) if (value := getattr(limits, each.name)) is not None}

    def _hold_some(self, driver: OpticalAmplifier) -> None:
        name, limits = next(iter(self._held(driver.limits()).items()))
        getattr(driver, f"hold_{name}")(within(limits, 0.6))
