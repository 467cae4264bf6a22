"""Contract tests for variable attenuators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError, LimitError, NotSupportedError
from lumion_hw.interfaces import VariableAttenuator
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
from lumion_hw.testing.contracts.tunable_laser import value_in_range

_SHARED_ROUNDS = 4


class VariableAttenuatorContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.VariableAttenuator`.

    Required fixture: ``driver`` (open). Optional: ``measured_attenuation_db``, changes by another session
    (``change_offset``, ``change_wavelength``, ``reset``), and those of :class:`DeviceContract`.

    Attributes:
        accuracy_db: Largest difference between the set and the measured attenuation, in dB.
        readback_db: Largest difference between set and read-back attenuation in dB, beyond half a step.
        follows_s: Time in seconds until the light follows a change by another session.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "set_attenuation_db": lambda driver: driver.set_attenuation_db(1, 7.0),
        "settings": lambda driver: driver.settings(1),
    }
    accuracy_db: ClassVar[float] = 0.2
    readback_db: ClassVar[float] = 1e-6
    follows_s: ClassVar[float] = 1.0

    def observe(self, driver: Any) -> object:
        """Return the settings of all channels."""
        return tuple(driver.settings(channel) for channel in driver.channels)

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> VariableAttenuator:
        """An open driver."""
        fail_without_fixture("driver", "an open VariableAttenuator, closed again after the test")

    @pytest.fixture
    def measured_attenuation_db(self) -> Callable[[int], float | None]:
        """A function that measures the attenuation of a channel in dB; ``None`` if the channel blocks the light."""
        skip_without_fixture("measured_attenuation_db", "a function that measures attenuation (dB), None if blocked")

    @pytest.fixture
    def change_offset(self) -> Callable[[int], None]:
        """A function that changes the display offset of a channel through another session."""
        skip_without_fixture("change_offset", "a function by which another session sets an offset of the attenuation")

    @pytest.fixture
    def change_wavelength(self) -> Callable[[int], None]:
        """A function that changes the wavelength of a channel through another session."""
        skip_without_fixture("change_wavelength", "a function by which another session sets a channel's wavelength")

    @pytest.fixture
    def reset(self) -> Callable[[], None]:
        """A function that resets the attenuator through another session, as by ``*RST``."""
        skip_without_fixture("reset", "a function by which another session resets the attenuator, as by *RST")

    # -- changes by another session

    def test_an_offset_changed_by_another_session_gives_no_wrong_attenuation(
        self,
        driver: VariableAttenuator,
        change_offset: Callable[[int], None],
        measured_attenuation_db: Callable[[int], float | None],
    ) -> None:
        """A display offset set by another session never causes a wrong attenuation; an error is allowed."""
        driver.set_attenuation_db(1, value_in_range(driver.limits(1).attenuation_db, 0.4))
        driver.enable(1)
        change_offset(1)
        settings = result_or_none(lambda: driver.settings(1))
        if settings is not None:
            self._check_attenuation(settings.attenuation_db, measured_attenuation_db(1), "reported")
        change_offset(1)
        wanted_db = value_in_range(driver.limits(1).attenuation_db, 0.6)
        if succeeds(lambda: driver.set_attenuation_db(1, wanted_db)):
            self._check_attenuation(wanted_db, measured_attenuation_db(1), "set")

    def test_a_wavelength_changed_by_another_session_is_reported_and_set_again(
        self, driver: VariableAttenuator, change_wavelength: Callable[[int], None]
    ) -> None:
        """A wavelength changed by another session is reported; setting an attenuation restores it, or fails."""
        low_high_nm = driver.limits(1).wavelength_nm
        if low_high_nm is None:  # this attenuator has no wavelength setting
            return
        wanted_nm = value_in_range(low_high_nm, 0.6)
        driver.set_wavelength_nm(1, wanted_nm)
        change_wavelength(1)
        actual_nm = driver.settings(1).wavelength_nm
        changed = actual_nm is not None and abs(actual_nm - wanted_nm) > 0.01
        expect(changed, f"settings() reports {actual_nm} nm after another session changed the wavelength")
        wanted_db = value_in_range(driver.limits(1).attenuation_db, 0.6)
        if succeeds(lambda: driver.set_attenuation_db(1, wanted_db)):
            actual_nm = driver.settings(1).wavelength_nm
            expect(
                actual_nm is not None and abs(actual_nm - wanted_nm) < 0.01,
                f"{wanted_db:g} dB was set at {actual_nm} nm instead of {wanted_nm} nm",
            )

    def test_a_reset_by_another_session_gives_no_wrong_attenuation(
        self,
        driver: VariableAttenuator,
        reset: Callable[[], None],
        measured_attenuation_db: Callable[[int], float | None],
        clock: Clock,
    ) -> None:
        """After a reset by another session, settings are correct and can be changed; errors are allowed."""
        wanted_db = value_in_range(driver.limits(1).attenuation_db, 0.6)
        driver.set_attenuation_db(1, wanted_db)
        driver.enable(1)
        reset()
        clock.sleep(self.follows_s)
        settings = result_or_none(lambda: driver.settings(1))
        if settings is not None:
            expect(
                settings.passing == (measured_attenuation_db(1) is not None),
                f"it reports {settings}, but attenuates by {measured_attenuation_db(1)} dB",
            )
        if succeeds(lambda: driver.set_attenuation_db(1, wanted_db)):
            driver.enable(1)
            self._check_attenuation(wanted_db, measured_attenuation_db(1), "set")

    # -- tests

    def test_it_describes_its_channels(self, driver: VariableAttenuator) -> None:
        """The attenuator reports its channels, from 1, each with limits and a step."""
        expect(bool(driver.model), "the model name is empty")
        expect(
            driver.channels == tuple(range(1, len(driver.channels) + 1)),
            f"the channels are not numbered from 1: {driver.channels}",
        )
        for channel in driver.channels:
            limits = driver.limits(channel)
            low_db, high_db = limits.attenuation_db
            expect(0.0 <= low_db < high_db < 150.0, f"the limits of channel {channel} are {low_db} and {high_db} dB")
            expect(limits.attenuation_step_db > 0.0, f"channel {channel} has a step of {limits.attenuation_step_db} dB")

    def test_an_attenuation_within_the_limits_is_in_force(self, driver: VariableAttenuator) -> None:
        """An attenuation within the limits takes effect and is read back."""
        limits = driver.limits(1)
        slack_db = 0.51 * limits.attenuation_step_db + self.readback_db
        for fraction in (0.0, 0.31, 1.0, 0.5):
            wanted_db = value_in_range(limits.attenuation_db, fraction)
            driver.set_attenuation_db(1, wanted_db)
            actual_db = driver.settings(1).attenuation_db
            expect(abs(actual_db - wanted_db) <= slack_db, f"{wanted_db:g} dB was set, {actual_db:g} dB is read back")

    def test_channels_are_independent(self, driver: VariableAttenuator) -> None:
        """Setting one channel does not change the others."""
        wanted_db = {
            channel: value_in_range(driver.limits(channel).attenuation_db, 0.2 + 0.1 * channel)
            for channel in driver.channels
        }
        for channel, attenuation_db in wanted_db.items():
            driver.set_attenuation_db(channel, attenuation_db)
        for channel, attenuation_db in wanted_db.items():
            actual_db = driver.settings(channel).attenuation_db
            slack_db = 0.51 * driver.limits(channel).attenuation_step_db + self.readback_db
            expect(
                abs(actual_db - attenuation_db) <= slack_db,
                f"channel {channel} has {actual_db:g} dB instead of {attenuation_db:g} dB",
            )

    def test_the_light_has_followed_when_a_set_returns(
        self, driver: VariableAttenuator, measured_attenuation_db: Callable[[int], float | None]
    ) -> None:
        """When a call that sets an attenuation returns, the light has followed."""
        driver.enable(1)
        for fraction in (0.1, 0.8, 0.2):
            wanted_db = value_in_range(driver.limits(1).attenuation_db, fraction)
            driver.set_attenuation_db(1, wanted_db)
            actual_db = measured_attenuation_db(1)
            measured = "no light passes" if actual_db is None else f"{actual_db:.3f} dB was measured"
            is_near = actual_db is not None and abs(actual_db - wanted_db) <= self.accuracy_db
            expect(is_near, f"{wanted_db:g} dB was set, but {measured}")

    @pytest.mark.parametrize("side", ["below", "above", "nan"])
    def test_an_attenuation_outside_the_limits_is_refused_and_nothing_changes(
        self, driver: VariableAttenuator, side: str
    ) -> None:
        """Values outside the limits, and NaN, are rejected, and nothing changes."""
        low_db, high_db = driver.limits(1).attenuation_db
        driver.set_attenuation_db(1, value_in_range((low_db, high_db), 0.4))
        before = self.observe(driver)
        wanted_db = {"below": low_db - 1.0, "above": high_db + 1.0, "nan": math.nan}[side]
        error = expect_error(LimitError, f"{wanted_db:g} dB", partial(driver.set_attenuation_db, 1, wanted_db))
        expect(error.unit == "dB", f"the unit of the error is {error.unit}, not dB")
        expect(self.observe(driver) == before, "a rejected attenuation changed settings")

    def test_a_wavelength_is_in_force_or_cannot_be_set(self, driver: VariableAttenuator) -> None:
        """A wavelength within the limits takes effect, or wavelengths cannot be set."""
        low_high_nm = driver.limits(1).wavelength_nm
        if low_high_nm is None:
            expect_error(NotSupportedError, "a wavelength", partial(driver.set_wavelength_nm, 1, 1550.0))
            return
        wanted_nm = value_in_range(low_high_nm, 0.6)
        driver.set_wavelength_nm(1, wanted_nm)
        actual_nm = driver.settings(1).wavelength_nm
        expect(
            actual_nm is not None and abs(actual_nm - wanted_nm) < 0.01,
            f"{wanted_nm} nm was set, {actual_nm} nm is active",
        )
        before = self.observe(driver)
        for wrong_nm in (low_high_nm[0] - 5.0, low_high_nm[1] + 5.0, math.nan):
            error = expect_error(LimitError, f"{wrong_nm:g} nm", partial(driver.set_wavelength_nm, 1, wrong_nm))
            expect(error.unit == "nm", f"the unit of the error is {error.unit}, not nm")
        expect(self.observe(driver) == before, "a rejected wavelength changed settings")

    def test_a_shutter_works_or_is_unsupported(self, driver: VariableAttenuator) -> None:
        """The state of the shutter is read back, and closing it keeps the attenuation; or there is no shutter."""
        driver.set_attenuation_db(1, value_in_range(driver.limits(1).attenuation_db, 0.3))
        driver.enable(1)
        before = driver.settings(1)
        expect(before.passing, "light does not pass after enable()")
        if not driver.limits(1).shutter:
            expect_error(NotSupportedError, "disable() without a shutter", partial(driver.disable, 1))
            return
        driver.disable(1)
        shut = driver.settings(1)
        expect(not shut.passing, "light passes after disable()")
        expect(shut.attenuation_db == before.attenuation_db, "the shutter changed the attenuation")
        driver.enable(1)
        expect(driver.settings(1) == before, "enable() did not restore the settings")

    def test_no_light_passes_a_closed_shutter(
        self, driver: VariableAttenuator, measured_attenuation_db: Callable[[int], float | None]
    ) -> None:
        """A closed shutter blocks all light; an open shutter lets light pass."""
        if not driver.limits(1).shutter:
            return
        driver.disable(1)
        expect(measured_attenuation_db(1) is None, "light passes a closed shutter")
        driver.enable(1)
        expect(measured_attenuation_db(1) is not None, "no light passes an open shutter")

    def test_a_channel_that_is_not_there_is_refused(self, driver: VariableAttenuator) -> None:
        """Calls with a channel that does not exist raise ``ConfigError``."""
        for channel in (0, len(driver.channels) + 1):
            expect_error(ConfigError, f"channel {channel}", partial(driver.settings, channel))
            expect_error(ConfigError, f"channel {channel}", partial(driver.set_attenuation_db, channel, 5.0))

    @on_wires_only
    def test_two_threads_share_the_driver(self, driver: VariableAttenuator, clock: Clock) -> None:
        """One thread reads only values that another thread has set."""
        wanted_db = [value_in_range(driver.limits(1).attenuation_db, fraction) for fraction in (0.3, 0.32)]
        driver.set_attenuation_db(1, wanted_db[1])
        slack_db = 0.51 * driver.limits(1).attenuation_step_db + self.readback_db + 0.02 * max(wanted_db)

        def set_values() -> None:
            for round_ in range(_SHARED_ROUNDS):
                driver.set_attenuation_db(1, wanted_db[round_ % 2])

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                actual_db = driver.settings(1).attenuation_db
                is_known = any(abs(actual_db - value_db) <= slack_db for value_db in wanted_db)
                expect(is_known, f"{actual_db:g} dB was read, but was never set")

        run_parallel(clock, set_values, read)

    def test_closing_leaves_the_light_as_it_is(
        self, driver: VariableAttenuator, measured_attenuation_db: Callable[[int], float | None]
    ) -> None:
        """``close`` changes neither attenuation nor shutter."""
        wanted_db = value_in_range(driver.limits(1).attenuation_db, 0.6)
        driver.set_attenuation_db(1, wanted_db)
        driver.enable(1)
        driver.close()
        actual_db = measured_attenuation_db(1)
        expect(
            actual_db is not None and abs(actual_db - wanted_db) <= self.accuracy_db,
            f"after close() the attenuation is {actual_db} dB",
        )

    def _check_attenuation(self, expected_db: float, actual_db: float | None, action: str) -> None:
        is_near = actual_db is not None and abs(actual_db - expected_db) <= self.accuracy_db
        expect(is_near, f"{expected_db:g} dB was {action}, but {actual_db} dB is measured")
