"""What a power meter promises: readings that are numbers or typed errors, and settings that are read back."""

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
    fail_without_fixture,
    on_wires_only,
    promised,
    refused,
    run_parallel,
    skip_without_fixture,
    unless_refused,
)

_SHARED_ROUNDS = 20


class PowerMeterContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.PowerMeter`.

    Fixtures to give: ``driver`` (open; short averaging keeps the suite short), ``illuminate``,
    ``wavelength_limits_nm`` and ``averaging_limits_s``. Optional: ``overload``, ``break_zeroing``,
    ``active_wavelength_nm``, what another session can do (``change_unit``, ``change_wavelength``, ``change_range``,
    ``reset``), and those of :class:`DeviceContract`.

    Attributes:
        bright_w: Light that every channel can measure.
        accuracy_db: Largest error of such a reading.
        steady_db: Largest difference between two readings of the same light.
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
        """Return the reading of the first channel; its light is whatever the author's fixture left on."""
        return driver.read(driver.channels[0])

    def agree(self, before: Any, after: Any) -> bool:
        """Tell whether two readings of the same light may be: same channel and state, powers within a decibel."""
        if (before.channel, before.state) != (after.channel, after.state):
            return False
        if before.state is not RangeState.OK:
            return True
        noise_w = 1e-9
        return bool(abs(before.power_w - after.power_w) <= noise_w + 0.26 * abs(before.power_w))

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> PowerMeter:
        """An open driver."""
        fail_without_fixture(
            "driver", "an open PowerMeter, ranging automatically if it can, closed again after the test"
        )

    @pytest.fixture
    def illuminate(self) -> Callable[[int, float], None]:
        """Sets the light at a channel, in watts."""
        fail_without_fixture("illuminate", "a function (channel, power_w) that sets the light at a channel")

    @pytest.fixture
    def wavelength_limits_nm(self) -> tuple[float, float]:
        """Smallest and largest wavelength the meter takes."""
        fail_without_fixture("wavelength_limits_nm", "the smallest and the largest wavelength the meter takes, in nm")

    @pytest.fixture
    def averaging_limits_s(self) -> tuple[float, float]:
        """Shortest and longest averaging time the meter takes."""
        fail_without_fixture("averaging_limits_s", "the shortest and the longest averaging time the meter takes, in s")

    @pytest.fixture
    def overload(self) -> Callable[[int], None]:
        """Brings a channel above its range, by its light or by its range."""
        skip_without_fixture("overload", "a function that brings a channel above its range")

    @pytest.fixture
    def break_zeroing(self) -> Callable[[bool], None]:
        """Makes the meter itself fail to zero, or mends it."""
        skip_without_fixture(
            "break_zeroing", "a function (broken) that makes the meter fail to zero in the dark, or mends it"
        )

    @pytest.fixture
    def active_wavelength_nm(self) -> Callable[[int], float]:
        """Tells the wavelength a channel really uses, from the instrument itself."""
        skip_without_fixture(
            "wavelength_in_force_nm", "a function that asks the instrument for the wavelength of a channel"
        )

    @pytest.fixture
    def change_unit(self) -> Callable[[int], None]:
        """Lets another session give the powers of a channel another unit."""
        skip_without_fixture("change_unit", "a function by which another session changes the unit of a channel")

    @pytest.fixture
    def change_wavelength(self) -> Callable[[int, float], None]:
        """Lets another session change the wavelength of a channel."""
        skip_without_fixture(
            "change_wavelength", "a function by which another session sets the wavelength of a channel, in nm"
        )

    @pytest.fixture
    def change_range(self) -> Callable[[int], None]:
        """Lets another session choose the smallest range of a channel."""
        skip_without_fixture(
            "change_range", "a function by which another session chooses the smallest range of a channel"
        )

    @pytest.fixture
    def reset(self) -> Callable[[], None]:
        """Lets another session reset the meter, as by ``*RST``."""
        skip_without_fixture("reset", "a function by which another session resets the meter, as by *RST")

    # -- what another session changes

    def test_a_unit_changed_by_another_session_gives_no_wrong_power(
        self, driver: PowerMeter, illuminate: Callable[[int, float], None], change_unit: Callable[[int], None]
    ) -> None:
        """A power is in watts whatever the unit of the instrument has become, or it is an error."""
        for power_w in (self.bright_w, 0.1 * self.bright_w):
            for channel in driver.channels:
                illuminate(channel, power_w)
            for channel in (driver.channels[0], driver.channels[-1]):
                for read in (partial(driver.read, channel), lambda channel=channel: driver.read_all()[channel - 1]):
                    change_unit(channel)
                    reading = unless_refused(read)
                    if reading is not None:
                        self._check(reading, channel, power_w)

    def test_a_wavelength_changed_by_another_session_gives_no_wrong_power(
        self,
        driver: PowerMeter,
        illuminate: Callable[[int, float], None],
        wavelength_limits_nm: tuple[float, float],
        change_wavelength: Callable[[int, float], None],
    ) -> None:
        """A power is calibrated for the wavelength that was set through the driver, or it is an error."""
        channel = driver.channels[-1]
        illuminate(channel, self.bright_w)
        for wavelength_nm, other_nm in (wavelength_limits_nm, wavelength_limits_nm[::-1]):
            driver.set_wavelength_nm(channel, wavelength_nm)
            before = driver.read(channel)
            for read in (partial(driver.read, channel), lambda: driver.read_all()[channel - 1]):
                change_wavelength(channel, other_nm)
                self._check_same(before, unless_refused(read), f"another session changed the wavelength to {other_nm}")

    def test_a_range_changed_by_another_session_gives_no_wrong_power(
        self, driver: PowerMeter, illuminate: Callable[[int, float], None], change_range: Callable[[int], None]
    ) -> None:
        """A power beyond a range that somebody else chose is over-range or an error, never a number of that range."""
        for channel in driver.channels:
            illuminate(channel, self.bright_w)
        channel = driver.channels[0]
        for read in (partial(driver.read, channel), lambda: driver.read_all()[channel - 1]):
            change_range(channel)
            reading = unless_refused(read)
            if reading is not None and reading.state is RangeState.OK:
                self._check(reading, channel, self.bright_w)

    def test_a_reset_by_another_session_gives_no_wrong_power(
        self,
        driver: PowerMeter,
        illuminate: Callable[[int, float], None],
        wavelength_limits_nm: tuple[float, float],
        reset: Callable[[], None],
    ) -> None:
        """After a reset by somebody else powers are in watts and for the wavelength that was set, or errors."""
        channel = driver.channels[-1]
        illuminate(channel, self.bright_w)
        driver.set_wavelength_nm(channel, wavelength_limits_nm[0])
        before = driver.read(channel)
        for read in (partial(driver.read, channel), lambda: driver.read_all()[channel - 1]):
            reset()
            self._check_same(before, unless_refused(read), "another session reset the meter")

    # -- logs, of meters that take samples at triggers

    def test_a_log_without_pulses_ends_and_leaves_the_meter_free(self, driver: PowerMeter) -> None:
        """A log that waits for pulses which never come ends in its time, and readings are possible again."""
        if not isinstance(driver, LoggingMeter):
            return
        averaging_s = driver.settings(1).averaging_s
        run = driver.start_triggered_log((1,), 5, averaging_s)
        refused(BusyError, "a reading during a log", lambda: driver.read(1))
        refused(DeviceTimeoutError, "a log without pulses", lambda: run.wait(5.0 * averaging_s))
        run.stop()  # idempotent
        promised(driver.read(1).channel == 1, "no reading after a log that was ended")

    # -- identity

    def test_it_says_who_it_is_and_numbers_its_channels_from_one(self, driver: PowerMeter) -> None:
        """Model, serial number and channels are those the instrument says."""
        promised(bool(driver.model and driver.serial), f"model {driver.model!r} or serial {driver.serial!r} is empty")
        channels = driver.channels
        promised(channels == tuple(range(1, len(channels) + 1)) != (), f"channels are {channels}, not 1, 2, 3 ...")

    # -- readings

    def test_a_reading_is_the_light_in_watts(
        self, driver: PowerMeter, illuminate: Callable[[int, float], None], clock: Clock
    ) -> None:
        """``read`` triggers: the light of now, dated by the host's clock, of the channel asked for."""
        channel = driver.channels[-1]
        for power_w in (self.bright_w, 0.1 * self.bright_w, self.bright_w):
            illuminate(channel, power_w)
            before_s = clock.now()
            reading = driver.read(channel)
            self._check(reading, channel, power_w)
            promised(before_s <= reading.timestamp_s <= clock.now(), "the reading is not dated by the host's clock")

    def test_all_channels_are_read_together_in_order(
        self, driver: PowerMeter, illuminate: Callable[[int, float], None]
    ) -> None:
        """``read_all`` gives one reading per channel, each with the light of its own channel."""
        light_w = {channel: self.bright_w * 0.7**index for index, channel in enumerate(driver.channels)}
        for channel, power_w in light_w.items():
            illuminate(channel, power_w)
        readings = driver.read_all()
        promised(
            tuple(reading.channel for reading in readings) == driver.channels,
            f"read_all() gave channels {[reading.channel for reading in readings]}, not {driver.channels}",
        )
        for reading in readings:
            self._check(reading, reading.channel, light_w[reading.channel])

    def test_a_dark_channel_is_a_number_and_no_decibels(
        self, driver: PowerMeter, illuminate: Callable[[int, float], None]
    ) -> None:
        """In the dark there is a small power or a typed under-range, and never an invented value in dBm."""
        channel = driver.channels[0]
        illuminate(channel, 0.0)
        reading = driver.read(channel)
        if reading.state is not RangeState.OK:
            promised(reading.state is RangeState.UNDER, f"a dark channel is {reading.state.value}")
            refused(OutOfRangeError, "the power of an under-range reading", lambda: reading.power_w)
            return
        promised(abs(reading.power_w) < 1e-3 * self.bright_w, f"a dark channel reads {reading.power_w:g} W")
        if reading.power_w <= 0.0:
            refused(OutOfRangeError, "the dBm of a power that is not positive", lambda: reading.power_dbm)

    def test_an_overload_is_typed_and_no_number(
        self, driver: PowerMeter, illuminate: Callable[[int, float], None], overload: Callable[[int], None]
    ) -> None:
        """Over-range is a state and an ``OutOfRangeError``, never the largest number the instrument can say."""
        for channel in driver.channels:
            illuminate(channel, self.bright_w)
        channel, *others = driver.channels
        overload(channel)
        for reading in (driver.read(channel), driver.read_all()[0]):
            promised(reading.state is RangeState.OVER, f"an overloaded channel is {reading.state.value}")
            refused(OutOfRangeError, "the power of an over-range reading", partial(getattr, reading, "power_w"))
            refused(OutOfRangeError, "the dBm of an over-range reading", partial(getattr, reading, "power_dbm"))
        for reading in driver.read_all()[1:]:
            promised(reading.channel in others, f"read_all() gives channel {reading.channel} twice")
            self._check(reading, reading.channel, self.bright_w)

    # -- settings

    def test_a_wavelength_within_the_limits_is_in_force(
        self,
        driver: PowerMeter,
        wavelength_limits_nm: tuple[float, float],
        active_wavelength_nm: Callable[[int], float],
    ) -> None:
        """Every wavelength from limit to limit is taken and read back, for one channel and not for the others."""
        first, last = driver.channels[0], driver.channels[-1]
        lowest, highest = wavelength_limits_nm
        driver.set_wavelength_nm(last, lowest)
        for wavelength_nm in (lowest, 0.5 * (lowest + highest), highest):
            driver.set_wavelength_nm(first, wavelength_nm)
            found_nm = active_wavelength_nm(first)
            promised(abs(found_nm - wavelength_nm) < 0.01, f"{wavelength_nm:g} nm was set, {found_nm:g} nm is in force")
        if first != last:
            promised(abs(active_wavelength_nm(last) - lowest) < 0.01, f"setting {first} changed channel {last}")

    def test_a_wavelength_outside_the_limits_is_refused_and_nothing_changes(
        self,
        driver: PowerMeter,
        wavelength_limits_nm: tuple[float, float],
        active_wavelength_nm: Callable[[int], float],
    ) -> None:
        """Limits reject, they never clip; NaN is no wavelength."""
        channel = driver.channels[0]
        before_nm = active_wavelength_nm(channel)
        for wavelength_nm in (0.99 * wavelength_limits_nm[0], 1.01 * wavelength_limits_nm[1], math.nan):
            error = refused(
                LimitError,
                f"{wavelength_nm:g} nm",
                partial(driver.set_wavelength_nm, channel, wavelength_nm),
            )
            promised(error.unit == "nm", f"the refusal speaks in {error.unit}, the caller in nm")
        promised(active_wavelength_nm(channel) == before_nm, "a refused wavelength changed the one in force")
        promised(driver.errors() == (), "a refused wavelength was sent to the instrument")

    def test_averaging_times_outside_the_limits_are_refused(
        self, driver: PowerMeter, averaging_limits_s: tuple[float, float]
    ) -> None:
        """The limits themselves are taken; beyond them, and NaN, are refused before anything is sent."""
        channel = driver.channels[0]
        shortest, longest = averaging_limits_s
        for averaging_s in (longest, shortest):
            driver.set_averaging_s(channel, averaging_s)
        for averaging_s in (0.9 * shortest, 0.0, -1.0, 1.1 * longest, math.nan, math.inf):
            refused(LimitError, f"{averaging_s:g} s", partial(driver.set_averaging_s, channel, averaging_s))
        promised(driver.errors() == (), "a refused averaging time was sent to the instrument")

    def test_it_tells_its_settings_and_their_limits(
        self,
        driver: PowerMeter,
        wavelength_limits_nm: tuple[float, float],
        averaging_limits_s: tuple[float, float],
    ) -> None:
        """``settings`` are those in force, whoever set them, and ``limits`` those that sets are held to."""
        channel = driver.channels[-1]
        limits = driver.limits(channel)
        for what, ends, known in (
            ("wavelengths", limits.wavelength_nm, wavelength_limits_nm),
            ("averaging times", limits.averaging_s, averaging_limits_s),
        ):
            fits = all(math.isclose(each, end, rel_tol=1e-6) for each, end in zip(ends, known, strict=True))
            promised(fits, f"{what} go from {known[0]:g} to {known[1]:g}, limits() says {ends}")
        for wavelength_nm, averaging_s in zip(limits.wavelength_nm, limits.averaging_s, strict=True):
            driver.set_wavelength_nm(channel, wavelength_nm)
            driver.set_averaging_s(channel, averaging_s)
            found = driver.settings(channel)
            promised(math.isclose(found.wavelength_nm, wavelength_nm, rel_tol=1e-5), f"{wavelength_nm} nm: {found}")
            promised(math.isclose(found.averaging_s, averaging_s, rel_tol=1e-3), f"{averaging_s} s: {found}")

    def test_a_range_is_in_force_until_the_meter_ranges_by_itself(self, driver: PowerMeter) -> None:
        """A meter with one range, the same twice in ``limits``, always has that; without ranges to set it has none."""
        channel = driver.channels[-1]
        ranges_dbm = driver.limits(channel).range_dbm
        if ranges_dbm is not None:
            shape = isinstance(ranges_dbm, tuple) and len(ranges_dbm) == 2 and all(map(math.isfinite, ranges_dbm))
            promised(shape and ranges_dbm[0] <= ranges_dbm[1], f"ranges in dBm: {ranges_dbm!r}, not (lowest, highest)")
            driver.set_range_dbm(channel, ranges_dbm[1])
            found_dbm = driver.settings(channel).range_dbm
            promised(
                found_dbm is not None and found_dbm >= ranges_dbm[1] - 0.1,
                f"a range of {ranges_dbm[1]} dBm was set, settings() says {found_dbm}",
            )
        driver.set_range_dbm(channel, None)
        expected_dbm = ranges_dbm[0] if ranges_dbm is not None and ranges_dbm[0] == ranges_dbm[1] else None
        found_dbm = driver.settings(channel).range_dbm
        promised(
            found_dbm == expected_dbm,
            f"with automatic ranging, and {ranges_dbm} dBm in limits(), the range is {expected_dbm}, not {found_dbm}",
        )

    def test_averaging_takes_its_time(
        self,
        driver: PowerMeter,
        illuminate: Callable[[int, float], None],
        averaging_limits_s: tuple[float, float],
        clock: Clock,
    ) -> None:
        """A reading is never older than its call: it takes at least the averaging time."""
        channel = driver.channels[0]
        illuminate(channel, self.bright_w)
        averaging_s = min(max(0.1, averaging_limits_s[0]), averaging_limits_s[1])
        driver.set_averaging_s(channel, averaging_s)
        driver.read(channel)
        started = clock.now()
        driver.read(channel)
        took_s = clock.now() - started
        promised(took_s >= 0.99 * averaging_s, f"{averaging_s:g} s were averaged in {took_s:g} s")

    def test_a_range_outside_the_limits_is_refused(self, driver: PowerMeter) -> None:
        """There is no range of 200 dBm, and NaN is none; the meter goes on ranging automatically."""
        channel = driver.channels[0]
        kind = NotSupportedError if driver.limits(channel).range_dbm is None else LimitError
        for range_dbm in (200.0, -200.0, math.nan):
            refused(kind, f"{range_dbm:g} dBm", partial(driver.set_range_dbm, channel, range_dbm))
        driver.set_range_dbm(channel, None)
        promised(driver.errors() == (), "a refused range was sent to the instrument")

    def test_zeroing_is_done_in_the_dark(self, driver: PowerMeter, illuminate: Callable[[int, float], None]) -> None:
        """In the dark ``zero`` succeeds, and readings of light are afterwards what they were."""
        for channel in driver.channels:
            illuminate(channel, 0.0)
        driver.zero()
        illuminate(driver.channels[0], self.bright_w)
        self._check(driver.read(driver.channels[0]), driver.channels[0], self.bright_w)

    def test_zeroing_with_light_on_is_an_error(
        self, driver: PowerMeter, illuminate: Callable[[int, float], None]
    ) -> None:
        """A zero taken in the light would be wrong for ever after: it is a ``DeviceError`` and not in force."""
        last = driver.channels[-1]
        for lit in dict.fromkeys((driver.channels, (last,))):
            for channel in driver.channels:
                illuminate(channel, self.bright_w if channel in lit else 0.0)
            refused(DeviceError, f"zero() with light on {', '.join(map(str, lit))}", driver.zero)
            promised(driver.errors() == (), "the failure of zero() is in the error queue still, for the next call")
            self._check(driver.read(last), last, self.bright_w)

    def test_zeroing_that_fails_in_the_dark_is_an_error(
        self,
        driver: PowerMeter,
        illuminate: Callable[[int, float], None],
        break_zeroing: Callable[[bool], None],
    ) -> None:
        """Whatever the meter cannot zero for is a ``DeviceError``, and once it can, it zeroes again."""
        for channel in driver.channels:
            illuminate(channel, 0.0)
        break_zeroing(True)
        refused(DeviceError, "zero() of a meter that fails", driver.zero)
        promised(driver.errors() == (), "the failure of zero() is in the error queue still, for the next call")
        break_zeroing(False)
        driver.zero()

    def test_a_channel_that_is_not_there_is_refused(self, driver: PowerMeter) -> None:
        """Channels outside ``channels`` are a ``ConfigError``."""
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
                refused(ConfigError, f"{name} of channel {channel}", call)

    def test_the_error_queue_is_drained(self, driver: PowerMeter) -> None:
        """``errors`` gives what the instrument queued, once."""
        driver.errors()
        promised(driver.errors() == (), "the error queue gives the same errors again")

    # -- sharing

    @on_wires_only
    def test_two_threads_share_it(
        self, driver: PowerMeter, illuminate: Callable[[int, float], None], clock: Clock
    ) -> None:
        """Two threads reading two channels never get each other's readings."""
        one, other = driver.channels[0], driver.channels[-1]
        illuminate(one, self.bright_w)
        illuminate(other, 0.01 * self.bright_w if other != one else self.bright_w)

        def read(channel: int, power_w: float) -> None:
            for _ in range(_SHARED_ROUNDS):
                self._check(driver.read(channel), channel, power_w)

        run_parallel(
            clock,
            lambda: read(one, self.bright_w),
            lambda: read(other, 0.01 * self.bright_w if other != one else self.bright_w),
        )

    def _check_same(self, before: PowerReading, after: PowerReading | None, since: str) -> None:
        """Fail unless two readings are of the same light, or there is no second one."""
        if after is None:
            return
        promised(after.state is RangeState.OK and after.power_w > 0.0, f"{since}, now {after!r} is read")
        off_db = 10.0 * math.log10(after.power_w / before.power_w)
        promised(
            abs(off_db) <= self.steady_db,
            f"{since}, and {after.power_w:g} W are read and not {before.power_w:g} W, {off_db:+.2f} dB off",
        )

    def _check(self, reading: PowerReading, channel: int, power_w: float) -> None:
        """Fail unless a reading is the light of its channel, within the accuracy."""
        promised(reading.channel == channel, f"channel {channel} was asked, channel {reading.channel} answered")
        promised(reading.state is RangeState.OK, f"channel {channel} is {reading.state.value} at {power_w:g} W")
        promised(reading.power_w > 0.0, f"channel {channel} reads {reading.power_w:g} W at {power_w:g} W")
        error_db = 10.0 * math.log10(reading.power_w / power_w)
        promised(
            abs(error_db) <= self.accuracy_db,
            f"channel {channel} reads {reading.power_w:g} W at {power_w:g} W, {error_db:+.2f} dB off",
        )
        dbm = 10.0 * math.log10(reading.power_w * 1e3)
        promised(abs(reading.power_dbm - dbm) < 1e-6, f"{reading.power_w:g} W are not {reading.power_dbm:g} dBm")
