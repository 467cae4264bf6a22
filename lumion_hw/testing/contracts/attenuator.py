"""What a variable attenuator promises: attenuations that are in force or refused, each channel its own."""

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
    fail_without_fixture,
    is_done,
    on_wires_only,
    promised,
    refused,
    run_parallel,
    skip_without_fixture,
    unless_refused,
)
from lumion_hw.testing.contracts.tunable_laser import within

_SHARED_ROUNDS = 4


class VariableAttenuatorContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.VariableAttenuator`.

    Fixture to give: ``driver`` (open). Optional: ``taken_db``, what another session can do (``change_offset``,
    ``change_wavelength``, ``reset``), and those of :class:`DeviceContract`.

    Attributes:
        accuracy_db: Largest difference between an attenuation set and the light's.
        readback_db: Largest difference between an attenuation set and read back, besides half a step.
        follows_s: Time in which the light has followed what another session does.
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

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> VariableAttenuator:
        """An open driver."""
        fail_without_fixture("driver", "an open VariableAttenuator, closed again after the test")

    @pytest.fixture
    def taken_db(self) -> Callable[[int], float | None]:
        """Tells what a channel really takes from the light in dB, ``None`` while none passes."""
        skip_without_fixture(
            "taken_db", "a function that returns what a channel really takes in dB, None while none passes"
        )

    @pytest.fixture
    def change_offset(self) -> Callable[[int], None]:
        """Lets another session set an offset of the displayed attenuation of a channel."""
        skip_without_fixture("change_offset", "a function by which another session sets an offset of the attenuation")

    @pytest.fixture
    def change_wavelength(self) -> Callable[[int], None]:
        """Lets another session change the wavelength of a channel."""
        skip_without_fixture(
            "change_wavelength", "a function by which another session changes the wavelength of a channel"
        )

    @pytest.fixture
    def reset(self) -> Callable[[], None]:
        """Lets another session reset the attenuator, as by ``*RST``."""
        skip_without_fixture("reset", "a function by which another session resets the attenuator, as by *RST")

    # -- what another session changes

    def test_an_offset_changed_by_another_session_gives_no_wrong_attenuation(
        self,
        driver: VariableAttenuator,
        change_offset: Callable[[int], None],
        taken_db: Callable[[int], float | None],
    ) -> None:
        """Attenuations, read or set, are those of the light whatever the display counts from, or an error."""
        driver.set_attenuation_db(1, within(driver.limits(1).attenuation_db, 0.4))
        driver.enable(1)
        change_offset(1)
        settings = unless_refused(lambda: driver.settings(1))
        if settings is not None:
            self._check_taken(settings.attenuation_db, taken_db(1), "reported")
        change_offset(1)
        wanted_db = within(driver.limits(1).attenuation_db, 0.6)
        if is_done(lambda: driver.set_attenuation_db(1, wanted_db)):
            self._check_taken(wanted_db, taken_db(1), "set")

    def test_a_wavelength_changed_by_another_session_is_reported_and_set_again(
        self, driver: VariableAttenuator, change_wavelength: Callable[[int], None]
    ) -> None:
        """``settings`` report it; the next attenuation is set for the driver's wavelength again, or is an error."""
        low_high_nm = driver.limits(1).wavelength_nm
        if low_high_nm is None:  # it has none, so nobody can change it
            return
        wanted_nm = within(low_high_nm, 0.6)
        driver.set_wavelength_nm(1, wanted_nm)
        change_wavelength(1)
        found_nm = driver.settings(1).wavelength_nm
        changed = found_nm is not None and abs(found_nm - wanted_nm) > 0.01
        promised(changed, f"settings() reports {found_nm} nm after another session changed the wavelength")
        wanted_db = within(driver.limits(1).attenuation_db, 0.6)
        if is_done(lambda: driver.set_attenuation_db(1, wanted_db)):
            found_nm = driver.settings(1).wavelength_nm
            promised(
                found_nm is not None and abs(found_nm - wanted_nm) < 0.01,
                f"{wanted_db:g} dB was set at {found_nm} nm, the wavelength set is {wanted_nm} nm",
            )

    def test_a_reset_by_another_session_gives_no_wrong_attenuation(
        self,
        driver: VariableAttenuator,
        reset: Callable[[], None],
        taken_db: Callable[[int], float | None],
        clock: Clock,
    ) -> None:
        """After a reset by somebody else the settings are those in force, and a set is right or an error."""
        wanted_db = within(driver.limits(1).attenuation_db, 0.6)
        driver.set_attenuation_db(1, wanted_db)
        driver.enable(1)
        reset()
        clock.sleep(self.follows_s)
        settings = unless_refused(lambda: driver.settings(1))
        if settings is not None:
            promised(
                settings.passing == (taken_db(1) is not None),
                f"it reports {settings}, but the light loses {taken_db(1)} dB",
            )
        if is_done(lambda: driver.set_attenuation_db(1, wanted_db)):
            driver.enable(1)
            self._check_taken(wanted_db, taken_db(1), "set")

    # -- promises

    def test_it_describes_its_channels(self, driver: VariableAttenuator) -> None:
        """It says what it is and has channels from 1, each with limits and a step."""
        promised(bool(driver.model), "it has no model")
        promised(driver.channels == tuple(range(1, len(driver.channels) + 1)), f"its channels are {driver.channels}")
        for channel in driver.channels:
            limits = driver.limits(channel)
            low_db, high_db = limits.attenuation_db
            promised(0.0 <= low_db < high_db < 150.0, f"channel {channel} goes from {low_db} to {high_db} dB")
            promised(limits.attenuation_step_db > 0.0, f"channel {channel} has a step of {limits.attenuation_step_db}")

    def test_an_attenuation_within_the_limits_is_in_force(self, driver: VariableAttenuator) -> None:
        """Every attenuation from limit to limit is taken and read back."""
        limits = driver.limits(1)
        slack_db = 0.51 * limits.attenuation_step_db + self.readback_db
        for fraction in (0.0, 0.31, 1.0, 0.5):
            wanted_db = within(limits.attenuation_db, fraction)
            driver.set_attenuation_db(1, wanted_db)
            found_db = driver.settings(1).attenuation_db
            promised(abs(found_db - wanted_db) <= slack_db, f"{wanted_db:g} dB was set, {found_db:g} dB is read back")

    def test_channels_keep_their_own(self, driver: VariableAttenuator) -> None:
        """What is set on one channel changes no other."""
        wanted_db = {
            channel: within(driver.limits(channel).attenuation_db, 0.2 + 0.1 * channel) for channel in driver.channels
        }
        for channel, each_db in wanted_db.items():
            driver.set_attenuation_db(channel, each_db)
        for channel, each_db in wanted_db.items():
            found_db = driver.settings(channel).attenuation_db
            slack_db = 0.51 * driver.limits(channel).attenuation_step_db + self.readback_db
            promised(abs(found_db - each_db) <= slack_db, f"channel {channel} has {found_db:g} and not {each_db:g} dB")

    def test_the_light_has_followed_when_a_set_returns(
        self, driver: VariableAttenuator, taken_db: Callable[[int], float | None]
    ) -> None:
        """A set returns once the light follows, up and down."""
        driver.enable(1)
        for fraction in (0.1, 0.8, 0.2):
            wanted_db = within(driver.limits(1).attenuation_db, fraction)
            driver.set_attenuation_db(1, wanted_db)
            found_db = taken_db(1)
            told = "nothing passes" if found_db is None else f"{found_db:.3f} dB are taken"
            near = found_db is not None and abs(found_db - wanted_db) <= self.accuracy_db
            promised(near, f"{wanted_db:g} dB was set, {told}")

    @pytest.mark.parametrize("side", ["below", "above", "nan"])
    def test_an_attenuation_outside_the_limits_is_refused_and_nothing_changes(
        self, driver: VariableAttenuator, side: str
    ) -> None:
        """Limits reject, they never clip; NaN is no attenuation."""
        low_db, high_db = driver.limits(1).attenuation_db
        driver.set_attenuation_db(1, within((low_db, high_db), 0.4))
        before = self.observe(driver)
        wanted_db = {"below": low_db - 1.0, "above": high_db + 1.0, "nan": math.nan}[side]
        error = refused(LimitError, f"{wanted_db:g} dB", partial(driver.set_attenuation_db, 1, wanted_db))
        promised(error.unit == "dB", f"the refusal speaks in {error.unit}, the caller in dB")
        promised(self.observe(driver) == before, "a refused attenuation changed settings")

    def test_a_wavelength_is_in_force_or_cannot_be_set(self, driver: VariableAttenuator) -> None:
        """Within its limits it is in force, outside it is refused; without any it cannot be set."""
        low_high_nm = driver.limits(1).wavelength_nm
        if low_high_nm is None:
            refused(NotSupportedError, "a wavelength", partial(driver.set_wavelength_nm, 1, 1550.0))
            return
        wanted_nm = within(low_high_nm, 0.6)
        driver.set_wavelength_nm(1, wanted_nm)
        found_nm = driver.settings(1).wavelength_nm
        promised(found_nm is not None and abs(found_nm - wanted_nm) < 0.01, f"{wanted_nm} nm was set, {found_nm} is")
        before = self.observe(driver)
        for wrong_nm in (low_high_nm[0] - 5.0, low_high_nm[1] + 5.0, math.nan):
            error = refused(LimitError, f"{wrong_nm:g} nm", partial(driver.set_wavelength_nm, 1, wrong_nm))
            promised(error.unit == "nm", f"the refusal speaks in {error.unit}, the caller in nm")
        promised(self.observe(driver) == before, "a refused wavelength changed settings")

    def test_a_shutter_holds_the_light_back_or_there_is_none(self, driver: VariableAttenuator) -> None:
        """Where there is a shutter it is read back and changes no attenuation; without one light always passes."""
        driver.set_attenuation_db(1, within(driver.limits(1).attenuation_db, 0.3))
        driver.enable(1)
        before = driver.settings(1)
        promised(before.passing, "light does not pass after enable()")
        if not driver.limits(1).shutter:
            refused(NotSupportedError, "a shutter that is not there", partial(driver.disable, 1))
            return
        driver.disable(1)
        shut = driver.settings(1)
        promised(not shut.passing, "light passes after disable()")
        promised(shut.attenuation_db == before.attenuation_db, "the shutter changed the attenuation")
        driver.enable(1)
        promised(driver.settings(1) == before, "enable() brings other settings back")

    def test_no_light_passes_a_closed_shutter(
        self, driver: VariableAttenuator, taken_db: Callable[[int], float | None]
    ) -> None:
        """Closed, it takes all light; open, what was set."""
        if not driver.limits(1).shutter:
            return
        driver.disable(1)
        promised(taken_db(1) is None, "light passes a closed shutter")
        driver.enable(1)
        promised(taken_db(1) is not None, "no light passes an open shutter")

    def test_a_channel_that_is_not_there_is_refused(self, driver: VariableAttenuator) -> None:
        """Channels are those that it names."""
        for channel in (0, len(driver.channels) + 1):
            refused(ConfigError, f"channel {channel}", partial(driver.settings, channel))
            refused(ConfigError, f"channel {channel}", partial(driver.set_attenuation_db, channel, 5.0))

    @on_wires_only
    def test_two_threads_share_it(self, driver: VariableAttenuator, clock: Clock) -> None:
        """While one thread sets, another reads attenuations that were set."""
        wanted_db = [within(driver.limits(1).attenuation_db, fraction) for fraction in (0.3, 0.32)]
        driver.set_attenuation_db(1, wanted_db[1])
        slack_db = 0.51 * driver.limits(1).attenuation_step_db + self.readback_db + 0.02 * max(wanted_db)

        def set_them() -> None:
            for round_ in range(_SHARED_ROUNDS):
                driver.set_attenuation_db(1, wanted_db[round_ % 2])

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                found_db = driver.settings(1).attenuation_db
                known = any(abs(found_db - each) <= slack_db for each in wanted_db)
                promised(known, f"{found_db:g} dB was read, which nobody set")

        run_parallel(clock, set_them, read)

    def test_closing_leaves_the_light_as_it_is(
        self, driver: VariableAttenuator, taken_db: Callable[[int], float | None]
    ) -> None:
        """``close`` neither moves nor shuts anything."""
        wanted_db = within(driver.limits(1).attenuation_db, 0.6)
        driver.set_attenuation_db(1, wanted_db)
        driver.enable(1)
        driver.close()
        found_db = taken_db(1)
        promised(found_db is not None and abs(found_db - wanted_db) <= self.accuracy_db, f"close() left {found_db} dB")

    def _check_taken(self, expected_db: float, found_db: float | None, how: str) -> None:
        near = found_db is not None and abs(found_db - expected_db) <= self.accuracy_db
        promised(near, f"{expected_db:g} dB was {how}, but the light loses {found_db} dB")
