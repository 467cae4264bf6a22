"""Contract tests for power meters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock
from lumion_hw.errors import (
    BusyError,
    ConfigError,
    DeviceError,
    DeviceTimeoutError,
    LimitError,
    NotSupportedError,
    OutOfRangeError,
)
from lumion_hw.interfaces import LoggingMeter, PowerMeter, PowerReading, RangeState
from lumion_hw.testing.contracts.common import (
    DeviceContract,
    expect,
    expect_error,
    fail_without_fixture,
    on_wires_only,
    result_or_none,
    run_parallel,
    skip_without_fixture,
)

_SHARED_ROUNDS = 20


Illuminate = Callable[[int, float], None]
"""A function that sets the light at a channel, in watts."""


class PowerMeterContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.PowerMeter`.

    Required fixtures: ``driver`` (open, preferably with short averaging), ``illuminate``,
    ``wavelength_limits_nm`` and ``averaging_limits_s``. Optional: ``overload``, ``break_zeroing``,
    ``active_wavelength_nm``, changes by another session (``change_unit``, ``change_wavelength``, ``change_range``,
    ``reset``), and those of :class:`DeviceContract`.

    Attributes:
        bright_w: Power that every channel can measure, in watts.
        accuracy_db: Largest error of a reading at ``bright_w``, in dB.
        steady_db: Largest difference between two readings of the same light, in dB.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "set_wavelength_nm": lambda driver: driver.set_wavelength_nm(1, 1550.0),
        "set_averaging_s": lambda driver: driver.set_averaging_s(1, 0.01),
        "set_range_dbm": lambda driver: driver.set_range_dbm(1, None),
        "settings": lambda driver: driver.settings(1),
        "zero": lambda driver: driver.zero(),
        "read": lambda driver: driver.read(1),
        "read_all": lambda driver: driver.read_all(),
        "errors": lambda driver: driver.errors(),
    }
    bright_w: ClassVar[float] = 100e-6
    accuracy_db: ClassVar[float] = 0.5
    steady_db: ClassVar[float] = 0.1

    def observe(self, driver: Any) -> object:
        """Read the first channel."""
        return driver.read(driver.channels[0])

    def agree(self, before: Any, after: Any) -> bool:
        """Return whether two readings have the same channel and state, and powers within 1 dB."""
        if (before.channel, before.state) != (after.channel, after.state):
            return False
        if before.state is not RangeState.OK:
            return True
        noise_w = 1e-9
        return bool(abs(before.power_w - after.power_w) <= noise_w + 0.26 * abs(before.power_w))

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> PowerMeter:
        """An open driver."""
        fail_without_fixture("driver", "an open PowerMeter, with automatic range if it has one, closed after the test")

    @pytest.fixture
    def illuminate(self) -> Illuminate:
        """A function that sets the light at a channel, in watts."""
        fail_without_fixture("illuminate", "a function (channel, power_w) that sets the light at a channel")

    @pytest.fixture
    def wavelength_limits_nm(self) -> tuple[float, float]:
        """Smallest and largest wavelength that the meter accepts, in nm."""
        fail_without_fixture("wavelength_limits_nm", "smallest and largest wavelength of the meter, in nm")

    @pytest.fixture
    def averaging_limits_s(self) -> tuple[float, float]:
        """Shortest and longest averaging time that the meter accepts, in seconds."""
        fail_without_fixture("averaging_limits_s", "shortest and longest averaging time of the meter, in s")

    @pytest.fixture
    def overload(self) -> Callable[[int], None]:
        """A function that overloads a channel."""
        skip_without_fixture("overload", "a function that overloads a channel")

    @pytest.fixture
    def break_zeroing(self) -> Callable[[bool], None]:
        """A function that makes zeroing fail (``True``) or work again (``False``)."""
        skip_without_fixture("break_zeroing", "a function that makes zeroing fail (True) or repairs it (False)")

    @pytest.fixture
    def active_wavelength_nm(self) -> Callable[[int], float]:
        """A function that reads the present wavelength of a channel in nm, without using the driver."""
        skip_without_fixture("active_wavelength_nm", "a function that asks the instrument for a channel's wavelength")

    @pytest.fixture
    def change_unit(self) -> Callable[[int], None]:
        """A function that changes the power unit of a channel through another session."""
        skip_without_fixture("change_unit", "a function by which another session changes the unit of a channel")

    @pytest.fixture
    def change_wavelength(self) -> Illuminate:
        """A function that changes the wavelength of a channel through another session."""
        skip_without_fixture("change_wavelength", "a function by which another session sets a channel's wavelength")

    @pytest.fixture
    def change_range(self) -> Callable[[int], None]:
        """A function that selects the smallest range of a channel through another session."""
        skip_without_fixture("change_range", "a function by which another session sets a channel's smallest range")

    @pytest.fixture
    def reset(self) -> Callable[[], None]:
        """A function that resets the meter through another session, as by ``*RST``."""
        skip_without_fixture("reset", "a function by which another session resets the meter, as by *RST")

    # -- changes by another session

    def test_a_unit_changed_by_another_session_gives_no_wrong_power(
        self, driver: PowerMeter, illuminate: Illuminate, change_unit: Callable[[int], None]
    ) -> None:
        """After another session changed the unit, a reading is in watts or an error."""
        for power_w in (self.bright_w, 0.1 * self.bright_w):
            for channel in driver.channels:
                illuminate(channel, power_w)
            for channel in (driver.channels[0], driver.channels[-1]):
                for read in (partial(driver.read, channel), lambda channel=channel: driver.read_all()[channel - 1]):
                    change_unit(channel)
                    reading = result_or_none(read)
                    if reading is not None:
                        self._check(reading, channel, power_w)

    def test_a_wavelength_changed_by_another_session_gives_no_wrong_power(
        self,
        driver: PowerMeter,
        illuminate: Illuminate,
        wavelength_limits_nm: tuple[float, float],
        change_wavelength: Illuminate,
    ) -> None:
        """After another session changed the wavelength, a reading uses the driver's wavelength or is an error."""
        channel = driver.channels[-1]
        illuminate(channel, self.bright_w)
        for wavelength_nm, other_nm in (wavelength_limits_nm, wavelength_limits_nm[::-1]):
            driver.set_wavelength_nm(channel, wavelength_nm)
            before = driver.read(channel)
            for read in (partial(driver.read, channel), lambda: driver.read_all()[channel - 1]):
                change_wavelength(channel, other_nm)
                self._check_same_light(
                    before, result_or_none(read), f"another session changed the wavelength to {other_nm}"
                )

    def test_a_range_changed_by_another_session_gives_no_wrong_power(
        self, driver: PowerMeter, illuminate: Illuminate, change_range: Callable[[int], None]
    ) -> None:
        """After another session changed the range, a reading is right, over-range or an error."""
        for channel in driver.channels:
            illuminate(channel, self.bright_w)
        channel = driver.channels[0]
        for read in (partial(driver.read, channel), lambda: driver.read_all()[channel - 1]):
            change_range(channel)
            reading = result_or_none(read)
            if reading is not None and reading.state is RangeState.OK:
                self._check(reading, channel, self.bright_w)

    def test_a_reset_by_another_session_gives_no_wrong_power(
        self,
        driver: PowerMeter,
        illuminate: Illuminate,
        wavelength_limits_nm: tuple[float, float],
        reset: Callable[[], None],
    ) -> None:
        """After a reset by another session, readings are right or errors."""
        channel = driver.channels[-1]
        illuminate(channel, self.bright_w)
        driver.set_wavelength_nm(channel, wavelength_limits_nm[0])
        before = driver.read(channel)
        for read in (partial(driver.read, channel), lambda: driver.read_all()[channel - 1]):
            reset()
            self._check_same_light(before, result_or_none(read), "another session reset the meter")

    # -- triggered logs

    def test_a_log_without_pulses_ends_and_leaves_the_meter_free(self, driver: PowerMeter) -> None:
        """A log without trigger pulses ends at its time-out, and the meter can be read again."""
        if not isinstance(driver, LoggingMeter):
            return
        averaging_s = driver.settings(1).averaging_s
        run = driver.start_triggered_log((1,), 5, averaging_s)
        expect_error(BusyError, "a reading during a log", lambda: driver.read(1))
        expect_error(DeviceTimeoutError, "a log without pulses", lambda: run.wait(5.0 * averaging_s))
        run.stop()  # idempotent
        expect(driver.read(1).channel == 1, "the meter cannot be read after the log was stopped")

    # -- identity

    def test_identity_and_channels_are_reported(self, driver: PowerMeter) -> None:
        """The meter reports model and serial number; channels are numbered from 1."""
        expect(bool(driver.model and driver.serial), f"model {driver.model!r} or serial {driver.serial!r} is empty")
        channels = driver.channels
        expect(channels == tuple(range(1, len(channels) + 1)) != (), f"the channels are {channels}, not 1, 2, 3 ...")

    # -- readings

    def test_a_reading_is_the_light_in_watts(self, driver: PowerMeter, illuminate: Illuminate, clock: Clock) -> None:
        """``read`` measures the present light of the requested channel."""
        channel = driver.channels[-1]
        for power_w in (self.bright_w, 0.1 * self.bright_w, self.bright_w):
            illuminate(channel, power_w)
            before_s = clock.now()
            reading = driver.read(channel)
            self._check(reading, channel, power_w)
            expect(before_s <= reading.timestamp_s <= clock.now(), "the reading time is not on the host's clock")

    def test_all_channels_are_read_together_in_order(self, driver: PowerMeter, illuminate: Illuminate) -> None:
        """``read_all`` returns one reading per channel, in order."""
        light_w = {channel: self.bright_w * 0.7**index for index, channel in enumerate(driver.channels)}
        for channel, power_w in light_w.items():
            illuminate(channel, power_w)
        readings = driver.read_all()
        expect(
            tuple(reading.channel for reading in readings) == driver.channels,
            f"read_all() returned channels {[reading.channel for reading in readings]}, not {driver.channels}",
        )
        for reading in readings:
            self._check(reading, reading.channel, light_w[reading.channel])

    def test_a_dark_channel_is_a_number_and_no_decibels(self, driver: PowerMeter, illuminate: Illuminate) -> None:
        """A dark channel reads a small power or under-range."""
        channel = driver.channels[0]
        illuminate(channel, 0.0)
        reading = driver.read(channel)
        if reading.state is not RangeState.OK:
            expect(reading.state is RangeState.UNDER, f"a dark channel has the state {reading.state.value}")
            expect_error(OutOfRangeError, "the power of an under-range reading", lambda: reading.power_w)
            return
        expect(abs(reading.power_w) < 1e-3 * self.bright_w, f"a dark channel reads {reading.power_w:g} W")
        if reading.power_w <= 0.0:
            expect_error(OutOfRangeError, "the dBm of a power that is not positive", lambda: reading.power_dbm)

    def test_an_overload_is_typed_and_no_number(
        self, driver: PowerMeter, illuminate: Illuminate, overload: Callable[[int], None]
    ) -> None:
        """An overloaded channel is over-range, and its power raises ``OutOfRangeError``."""
        for channel in driver.channels:
            illuminate(channel, self.bright_w)
        channel, *other_channels = driver.channels
        overload(channel)
        for reading in (driver.read(channel), driver.read_all()[0]):
            expect(reading.state is RangeState.OVER, f"an overloaded channel has the state {reading.state.value}")
            expect_error(OutOfRangeError, "the power of an over-range reading", partial(getattr, reading, "power_w"))
            expect_error(OutOfRangeError, "the dBm of an over-range reading", partial(getattr, reading, "power_dbm"))
        for reading in driver.read_all()[1:]:
            expect(reading.channel in other_channels, f"read_all() returned channel {reading.channel} twice")
            self._check(reading, reading.channel, self.bright_w)

    # -- settings

    def test_a_wavelength_within_the_limits_is_in_force(
        self,
        driver: PowerMeter,
        wavelength_limits_nm: tuple[float, float],
        active_wavelength_nm: Callable[[int], float],
    ) -> None:
        """A wavelength within the limits takes effect for its channel only."""
        first, last = driver.channels[0], driver.channels[-1]
        lowest, highest = wavelength_limits_nm
        driver.set_wavelength_nm(last, lowest)
        for wavelength_nm in (lowest, 0.5 * (lowest + highest), highest):
            driver.set_wavelength_nm(first, wavelength_nm)
            actual_nm = active_wavelength_nm(first)
            expect(abs(actual_nm - wavelength_nm) < 0.01, f"{wavelength_nm:g} nm was set, {actual_nm:g} nm is active")
        if first != last:
            expect(abs(active_wavelength_nm(last) - lowest) < 0.01, f"setting channel {first} changed channel {last}")

    def test_a_wavelength_outside_the_limits_is_refused_and_nothing_changes(
        self,
        driver: PowerMeter,
        wavelength_limits_nm: tuple[float, float],
        active_wavelength_nm: Callable[[int], float],
    ) -> None:
        """Values outside the limits, and NaN, are rejected, and nothing changes."""
        channel = driver.channels[0]
        before_nm = active_wavelength_nm(channel)
        for wavelength_nm in (0.99 * wavelength_limits_nm[0], 1.01 * wavelength_limits_nm[1], math.nan):
            error = expect_error(
                LimitError,
                f"{wavelength_nm:g} nm",
                partial(driver.set_wavelength_nm, channel, wavelength_nm),
            )
            expect(error.unit == "nm", f"the unit of the error is {error.unit}, not nm")
        expect(active_wavelength_nm(channel) == before_nm, "a rejected wavelength changed the active one")
        expect(driver.errors() == (), "a rejected wavelength was sent to the instrument")

    def test_averaging_times_outside_the_limits_are_refused(
        self, driver: PowerMeter, averaging_limits_s: tuple[float, float]
    ) -> None:
        """The limits of the averaging time are accepted; values beyond them and NaN are rejected."""
        channel = driver.channels[0]
        shortest, longest = averaging_limits_s
        for averaging_s in (longest, shortest):
            driver.set_averaging_s(channel, averaging_s)
        for averaging_s in (0.9 * shortest, 0.0, -1.0, 1.1 * longest, math.nan, math.inf):
            expect_error(LimitError, f"{averaging_s:g} s", partial(driver.set_averaging_s, channel, averaging_s))
        expect(driver.errors() == (), "a rejected averaging time was sent to the instrument")

    def test_settings_and_limits_are_reported(
        self, driver: PowerMeter, wavelength_limits_nm: tuple[float, float], averaging_limits_s: tuple[float, float]
    ) -> None:
        """``settings`` returns the present values, and ``limits`` the limits of new ones."""
        channel = driver.channels[-1]
        limits = driver.limits(channel)
        for quantity, reported, expected in (
            ("wavelengths", limits.wavelength_nm, wavelength_limits_nm),
            ("averaging times", limits.averaging_s, averaging_limits_s),
        ):
            fits = all(math.isclose(*pair, rel_tol=1e-6) for pair in zip(reported, expected, strict=True))
            expect(fits, f"{quantity} range from {expected[0]:g} to {expected[1]:g}, but limits() returns {reported}")
        for wavelength_nm, averaging_s in zip(limits.wavelength_nm, limits.averaging_s, strict=True):
            driver.set_wavelength_nm(channel, wavelength_nm)
            driver.set_averaging_s(channel, averaging_s)
            settings = driver.settings(channel)
            expect(math.isclose(settings.wavelength_nm, wavelength_nm, rel_tol=1e-5), f"{wavelength_nm} nm: {settings}")
            expect(math.isclose(settings.averaging_s, averaging_s, rel_tol=1e-3), f"{averaging_s} s: {settings}")

    def test_a_range_is_in_force_until_the_meter_ranges_by_itself(self, driver: PowerMeter) -> None:
        """A range stays until automatic ranging is selected; a meter with a single range always reports it."""
        channel = driver.channels[-1]
        ranges_dbm = driver.limits(channel).range_dbm
        if ranges_dbm is not None:
            shape = isinstance(ranges_dbm, tuple) and len(ranges_dbm) == 2 and all(map(math.isfinite, ranges_dbm))
            expect(
                shape and ranges_dbm[0] <= ranges_dbm[1],
                f"limits() must give (lowest, highest) range in dBm, not {ranges_dbm!r}",
            )
            driver.set_range_dbm(channel, ranges_dbm[1])
            actual_dbm = driver.settings(channel).range_dbm
            expect(
                actual_dbm is not None and actual_dbm >= ranges_dbm[1] - 0.1,
                f"a range of {ranges_dbm[1]} dBm was set, but settings() returns {actual_dbm}",
            )
        driver.set_range_dbm(channel, None)
        expected_dbm = ranges_dbm[0] if ranges_dbm is not None and ranges_dbm[0] == ranges_dbm[1] else None
        actual_dbm = driver.settings(channel).range_dbm
        expect(
            actual_dbm == expected_dbm,
            f"with automatic ranging and ranges {ranges_dbm} dBm, expected range {expected_dbm}, not {actual_dbm}",
        )

    def test_a_reading_takes_the_averaging_time(
        self, driver: PowerMeter, illuminate: Illuminate, averaging_limits_s: tuple[float, float], clock: Clock
    ) -> None:
        """A reading takes at least the averaging time."""
        channel = driver.channels[0]
        illuminate(channel, self.bright_w)
        averaging_s = min(max(0.1, averaging_limits_s[0]), averaging_limits_s[1])
        driver.set_averaging_s(channel, averaging_s)
        driver.read(channel)
        started = clock.now()
        driver.read(channel)
        duration_s = clock.now() - started
        expect(
            duration_s >= 0.99 * averaging_s, f"a reading with {averaging_s:g} s averaging took only {duration_s:g} s"
        )

    def test_a_range_outside_the_limits_is_refused(self, driver: PowerMeter) -> None:
        """Ranges of ±200 dBm and NaN are rejected."""
        channel = driver.channels[0]
        kind = NotSupportedError if driver.limits(channel).range_dbm is None else LimitError
        for range_dbm in (200.0, -200.0, math.nan):
            expect_error(kind, f"{range_dbm:g} dBm", partial(driver.set_range_dbm, channel, range_dbm))
        driver.set_range_dbm(channel, None)
        expect(driver.errors() == (), "a rejected range was sent to the instrument")

    def test_zeroing_is_done_in_the_dark(self, driver: PowerMeter, illuminate: Illuminate) -> None:
        """Zeroing in the dark succeeds, and later readings are correct."""
        for channel in driver.channels:
            illuminate(channel, 0.0)
        driver.zero()
        illuminate(driver.channels[0], self.bright_w)
        self._check(driver.read(driver.channels[0]), driver.channels[0], self.bright_w)

    def test_zeroing_with_light_on_is_an_error(self, driver: PowerMeter, illuminate: Illuminate) -> None:
        """Zeroing with light on any channel raises ``DeviceError``."""
        last = driver.channels[-1]
        for only_channel in dict.fromkeys((driver.channels, (last,))):
            for channel in driver.channels:
                illuminate(channel, self.bright_w if channel in only_channel else 0.0)
            expect_error(DeviceError, f"zero() with light on {', '.join(map(str, only_channel))}", driver.zero)
            expect(driver.errors() == (), "the error of zero() is still in the error queue and would hit the next call")
            self._check(driver.read(last), last, self.bright_w)

    def test_zeroing_that_fails_in_the_dark_is_an_error(
        self, driver: PowerMeter, illuminate: Illuminate, break_zeroing: Callable[[bool], None]
    ) -> None:
        """A failed zeroing raises ``DeviceError``."""
        for channel in driver.channels:
            illuminate(channel, 0.0)
        break_zeroing(True)
        expect_error(DeviceError, "zero() of a meter that fails", driver.zero)
        expect(driver.errors() == (), "the error of zero() is still in the error queue and would hit the next call")
        break_zeroing(False)
        driver.zero()

    def test_a_channel_that_is_not_there_is_refused(self, driver: PowerMeter) -> None:
        """Calls with a channel that does not exist raise ``ConfigError``."""
        for channel in (0, len(driver.channels) + 1, -1):
            calls: dict[str, Callable[[], object]] = {
                "read": partial(driver.read, channel),
                "set_wavelength_nm": partial(driver.set_wavelength_nm, channel, 1550.0),
                "set_averaging_s": partial(driver.set_averaging_s, channel, 0.01),
                "set_range_dbm": partial(driver.set_range_dbm, channel, None),
                "settings": partial(driver.settings, channel),
                "limits": partial(driver.limits, channel),
            }
            for name, call in calls.items():
                expect_error(ConfigError, f"{name} of channel {channel}", call)

    def test_the_error_queue_is_drained(self, driver: PowerMeter) -> None:
        """``errors`` empties the instrument's error queue."""
        driver.errors()
        expect(driver.errors() == (), "a second errors() returned errors again")

    # -- sharing

    @on_wires_only
    def test_two_threads_share_the_driver(self, driver: PowerMeter, illuminate: Illuminate, clock: Clock) -> None:
        """Two threads that read two channels get the readings of their own channels."""
        first, last = driver.channels[0], driver.channels[-1]
        illuminate(first, self.bright_w)
        illuminate(last, 0.01 * self.bright_w if last != first else self.bright_w)

        def read(channel: int, power_w: float) -> None:
            for _ in range(_SHARED_ROUNDS):
                self._check(driver.read(channel), channel, power_w)

        run_parallel(
            clock,
            lambda: read(first, self.bright_w),
            lambda: read(last, 0.01 * self.bright_w if last != first else self.bright_w),
        )

    def _check_same_light(self, before: PowerReading, after: PowerReading | None, since: str) -> None:
        if after is None:
            return
        expect(after.state is RangeState.OK and after.power_w > 0.0, f"{since}; now {after!r} is read")
        off_db = 10.0 * math.log10(after.power_w / before.power_w)
        expect(
            abs(off_db) <= self.steady_db,
            f"{since}; now {after.power_w:g} W is read instead of {before.power_w:g} W, {off_db:+.2f} dB off",
        )

    def _check(self, reading: PowerReading, channel: int, power_w: float) -> None:
        expect(
            reading.channel == channel, f"channel {channel} was read, but the reading is of channel {reading.channel}"
        )
        expect(
            reading.state is RangeState.OK, f"channel {channel} has the state {reading.state.value} at {power_w:g} W"
        )
        expect(reading.power_w > 0.0, f"channel {channel} reads {reading.power_w:g} W at {power_w:g} W")
        error_db = 10.0 * math.log10(reading.power_w / power_w)
        expect(
            abs(error_db) <= self.accuracy_db,
            f"channel {channel} reads {reading.power_w:g} W at {power_w:g} W, {error_db:+.2f} dB off",
        )
        dbm = 10.0 * math.log10(reading.power_w * 1e3)
        expect(abs(reading.power_dbm - dbm) < 1e-6, f"{reading.power_w:g} W does not equal {reading.power_dbm:g} dBm")
