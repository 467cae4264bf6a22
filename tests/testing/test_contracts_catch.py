"""The contracts pass correct drivers and catch each broken promise with a clear message."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.errors import DeviceError, LinkTimeout
from lumion_hw.interfaces import ControllerLimits, MeterSettings, MonitorReading, PowerReading, RangeState
from lumion_hw.testing.contracts import (
    MeshControllerContract,
    MeshStatesContract,
    PolarizationControllerContract,
    PowerMeterContract,
    TransponderContract,
    TunableLaserContract,
)
from tests.testing.contract_fakes import (
    AnyFake,
    FakeController,
    FakeLaser,
    FakeMeter,
    FakeModule,
    FakeSources,
    FakeSqueezer,
    FakeUnit,
)
from tests.waiting import PATIENCE_S

pytest_plugins = ["pytester"]

SLACK_S = 0.1
LIMITS = ControllerLimits(np.array([0.0, 5.0, 5.0]), np.full(3, 1000.0), total_power_mw=40.0)


class TestHonestController(AnyFake, MeshControllerContract):
    make = FakeController

    @pytest.fixture
    def limits(self):
        return LIMITS

    @pytest.fixture
    def driven_ma(self, driver):
        return lambda: driver.driven_ma

    @pytest.fixture
    def output_history_ma(self, driver):
        return lambda: carried(driver)

    @pytest.fixture
    def heater_and_monitor(self):
        return 2, 0

    @pytest.fixture
    def hold_fault(self, driver):
        return driver.hold_fault

    @pytest.fixture
    def saturate(self, driver):
        return lambda: brighten(driver)


class TestHonestSources(TestHonestController):
    make = FakeSources


class TestHonestUnit(AnyFake, MeshStatesContract):
    make = FakeUnit

    @pytest.fixture
    def actual_states(self, driver):
        return lambda: driver.cells


class TestHonestMeter(AnyFake, PowerMeterContract):
    make = FakeMeter
    wavelength_limits_nm = pytest.fixture(lambda self: (1250.0, 1650.0), name="wavelength_limits_nm")
    averaging_limits_s = pytest.fixture(lambda self: (1e-6, 10.0), name="averaging_limits_s")

    @pytest.fixture
    def illuminate(self, driver):
        return driver.light_w.__setitem__

    @pytest.fixture
    def overload(self, driver):
        return lambda channel: driver.light_w.__setitem__(channel, 1.0)

    @pytest.fixture
    def active_wavelength_nm(self, driver):
        return driver.nm.__getitem__

    @pytest.fixture
    def break_zeroing(self, driver):
        return lambda broken: setattr(driver, "zero_fails", broken)


class MeterWithOneRange(FakeMeter):
    ranges_dbm = (10.0, 10.0)


class MeterWithoutRanges(FakeMeter):
    ranges_dbm = None


class TestHonestMeterWithOneRange(TestHonestMeter):
    make = MeterWithOneRange


class TestHonestMeterWithoutRanges(TestHonestMeter):
    make = MeterWithoutRanges


class TestHonestLaser(AnyFake, TunableLaserContract):
    make = FakeLaser

    @pytest.fixture
    def emitted(self, driver):
        return lambda: driver.light


class TestHonestModule(AnyFake, TransponderContract):
    make = FakeModule

    @pytest.fixture
    def receive_dbm(self, driver):
        return driver.receive

    @pytest.fixture
    def launched_w(self, driver):
        return lambda: driver.launched_w


class TestHonestSqueezer(AnyFake, PolarizationControllerContract):
    make = FakeSqueezer

    @pytest.fixture
    def actual_settings(self, driver):
        return lambda: driver.settings


class Given:
    """A request for fixtures that have these values."""

    def __init__(self, **values) -> None:
        self.getfixturevalue = values.__getitem__


def carried(driver) -> list:
    tables, driver.carried = driver.carried, []
    return tables


def brighten(driver) -> int:
    driver.light_ma = np.array([0.1, 3.0])
    return 1


def broken(promise, *args) -> str:
    """Run one promise with a driver that breaks it; return the sentence."""
    with pytest.raises(pytest.fail.Exception) as caught:
        promise(*args)
    return str(caught.value)


def configured(driver):
    driver.configure(LIMITS)
    return driver


# -- every device


def test_a_driver_that_works_after_close_is_caught() -> None:
    class Undead(FakeSqueezer):
        def close(self) -> None: ...

    said = broken(
        PolarizationControllerContract().test_a_closed_driver_raises_a_link_error,
        Undead(),
        SystemClock(),
        SLACK_S,
    )
    assert "after close()" in said
    assert "nothing was raised" in said


def test_a_driver_that_names_no_device_in_its_errors_is_caught() -> None:
    class Nameless(FakeSqueezer):
        def need_link(self) -> None:
            if not self.is_open:
                raise LinkTimeout("gone")

    driver = Nameless()
    said = broken(
        PolarizationControllerContract().test_an_unplugged_device_raises_a_link_error_in_time,
        driver,
        PolarizationControllerContract.calls["read"],
        driver.unplug,
        driver.clock,
        SLACK_S,
    )
    assert "the error does not name the device and its address: gone" in said


def test_a_driver_that_waits_past_its_deadline_is_caught() -> None:
    class Patient(FakeSqueezer):
        def need_link(self) -> None:
            if not self.is_open:
                self.clock.sleep(60.0)
            super().need_link()

    driver = Patient()
    said = broken(
        PolarizationControllerContract().test_an_unplugged_device_raises_a_link_error_in_time,
        driver,
        PolarizationControllerContract.calls["read"],
        driver.unplug,
        driver.clock,
        SLACK_S,
    )
    assert "60.00 s, more than 5 s" in said


def test_an_error_of_another_family_comes_through_as_it_is() -> None:
    class Careless(FakeSqueezer):
        def need_link(self) -> None:
            if not self.is_open:
                raise OSError(5, "Input/output error")

    driver = Careless()
    with pytest.raises(OSError, match="Input/output"):
        PolarizationControllerContract().test_an_unplugged_device_raises_a_link_error_in_time(
            driver, PolarizationControllerContract.calls["read"], driver.unplug, driver.clock, SLACK_S
        )


def test_garbage_taken_for_a_reading_is_caught() -> None:
    class Gullible(FakeSqueezer):
        def read(self):
            return np.full(2, 7.25) if self.garbage else super().read()

    driver = Gullible()
    said = broken(
        PolarizationControllerContract().test_garbage_in_the_stream_never_becomes_a_reading,
        driver,
        driver.disturb,
        b"7.25,noise",
        driver.clock,
        SLACK_S,
    )
    assert "garbage before the reply" in said


def test_a_late_reply_taken_for_the_next_one_is_caught() -> None:
    class OffByOne(FakeSqueezer):
        def __init__(self) -> None:
            super().__init__()
            self.late: list = []

        def read(self):
            if self.silent:
                self.late.append(np.array([99.0, 99.0]))  # what the device had to say at that time
            self.need_link()
            return self.late.pop() if self.late else super().read()

    driver = OffByOne()
    promise = PolarizationControllerContract().test_a_reply_that_comes_late_answers_nothing_else
    assert "the first call after the silence" in broken(promise, driver, driver.hold_replies, driver.clock, SLACK_S)


def test_a_driver_that_needs_its_replies_in_one_piece_is_caught() -> None:
    class Lumpy(FakeSqueezer):
        dripping = False

        def read(self):
            return super().read()[:1] if self.dripping else super().read()

        def drip(self) -> None:
            self.dripping = True

    driver = Lumpy()
    promise = PolarizationControllerContract().test_replies_may_come_byte_by_byte
    assert "byte by byte" in broken(promise, driver, driver.drip)


def test_threads_that_get_each_others_answers_are_caught() -> None:
    class Shared(FakeSqueezer):
        half_set, was_read = threading.Event(), threading.Event()

        def set(self, settings) -> None:
            self.settings = np.array([settings[0], self.settings[1]])  # one after the other, and no lock
            if threading.current_thread() is not threading.main_thread():
                self.half_set.set()
                self.was_read.wait(PATIENCE_S)
            self.settings = np.array(settings)

        def read(self):
            self.half_set.wait(PATIENCE_S)
            seen = super().read()
            self.was_read.set()
            return seen

    said = broken(PolarizationControllerContract().test_two_threads_share_the_driver, Shared(), SystemClock())
    assert "[0. 4.] was read, but was never set" in said


# -- mesh controllers


def test_a_controller_that_clips_is_caught() -> None:
    class Clipping(FakeController):
        def check(self, currents_ma) -> None:
            np.clip(np.nan_to_num(currents_ma), 0.0, LIMITS.heater_max_ma, out=currents_ma)

    for excess in (1.02, -0.1, np.nan):
        promise = MeshControllerContract().test_a_current_outside_its_limit_is_refused_and_nothing_changes
        assert "expected LimitError" in broken(promise, configured(Clipping()), LIMITS, excess)


def test_a_controller_that_drives_what_came_before_the_wrong_current_is_caught() -> None:
    class Piecemeal(FakeController):
        def check(self, currents_ma) -> None:
            self.driven_ma[1] = currents_ma[1]
            super().check(currents_ma)

    promise = MeshControllerContract().test_a_current_outside_its_limit_is_refused_and_nothing_changes
    assert "a rejected table changed outputs" in broken(promise, configured(Piecemeal()), LIMITS, 1.02)


def test_a_controller_that_ignores_the_power_cap_is_caught() -> None:
    class Hot(FakeController):
        def check(self, currents_ma) -> None: ...

    promise = MeshControllerContract().test_a_table_above_the_power_cap_is_refused_and_nothing_changes
    assert "expected LimitError" in broken(promise, configured(Hot()), LIMITS)


def test_a_generation_that_stands_still_is_caught() -> None:
    class Still(FakeController):
        def drive(self, currents_ma) -> None:
            super().drive(currents_ma)
            self.generation = 0

    driver = configured(Still())
    promise = MeshControllerContract().test_the_generation_grows_with_every_table
    assert "generation numbers do not increase: [1, 1, 1]" in broken(promise, driver, LIMITS, driver.clock)


def test_a_saturated_monitor_at_full_scale_is_caught() -> None:
    class Sentinel(FakeController):
        def read_monitors(self, n_avg: int = 1) -> MonitorReading:
            return MonitorReading(np.minimum(self.light_ma, 1.0), np.zeros(2, dtype=bool), 0, self.clock.now())

    driver = configured(Sentinel())
    promise = MeshControllerContract().test_a_saturated_monitor_is_not_a_number
    assert "not marked as saturated" in broken(promise, driver, Given(saturate=lambda: brighten(driver)))


def test_a_fault_that_a_new_table_overrides_is_caught() -> None:
    class Forgetful(FakeController):
        def program(self, currents_ma):
            self.latched.clear()
            return super().program(currents_ma)

    promise = MeshControllerContract().test_a_stopped_controller_stays_off_until_its_fault_is_cleared
    assert "expected SafetyError" in broken(promise, configured(Forgetful()), LIMITS)


def test_a_cleared_fault_that_brings_the_currents_back_is_caught() -> None:
    class Resuming(FakeController):
        def clear_fault(self, fault_id: int) -> None:
            super().clear_fault(fault_id)
            self.driven_ma = np.ones(3)

    promise = MeshControllerContract().test_a_stopped_controller_stays_off_until_its_fault_is_cleared
    assert "clearing a fault switched outputs on" in broken(promise, configured(Resuming()), LIMITS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_driver_that_a_child_can_use_is_caught() -> None:
    class Shared(FakeController):
        def read_back(self):
            return self.driven_ma.copy()

    promise = MeshControllerContract().test_a_forked_child_cannot_use_or_close_the_device
    assert "read_back returned ndarray" in broken(promise, configured(Shared()))


def test_currents_left_behind_by_close_are_caught() -> None:
    class Warm(FakeController):
        def close(self) -> None:
            self.is_open = False

    driver = configured(Warm())
    promise = MeshControllerContract().test_closing_brings_the_outputs_to_zero
    assert "close() left currents on" in broken(promise, driver, LIMITS, lambda: driver.driven_ma)


def test_outputs_that_follow_one_after_the_other_are_no_edge() -> None:
    class OneByOne(FakeController):
        def drive(self, currents_ma) -> None:
            for heater in range(3):
                table = self.driven_ma.copy()
                table[heater] = np.round(currents_ma[heater], 2)
                super().drive(table)

    driver = configured(OneByOne())
    promise = MeshControllerContract().test_outputs_change_at_one_edge_or_each_straight_from_old_to_new
    assert "an atomic controller passed through 3 tables instead of one change" in broken(
        promise, driver, LIMITS, lambda: carried(driver)
    )
    driver.info = replace(driver.info, atomic=False)
    promise(driver, LIMITS, lambda: carried(driver))


def test_outputs_that_go_through_zero_are_caught() -> None:
    class Dipping(FakeSources):
        def drive(self, currents_ma) -> None:
            super().drive(np.zeros(3))
            super().drive(currents_ma)

    driver = configured(Dipping())
    promise = MeshControllerContract().test_outputs_change_at_one_edge_or_each_straight_from_old_to_new
    assert "neither old nor new" in broken(promise, driver, LIMITS, lambda: carried(driver))


def test_readings_invented_without_monitors_are_caught() -> None:
    class Inventive(FakeSources):
        def read_monitors(self, n_avg: int = 1) -> MonitorReading:
            return MonitorReading(np.zeros(0), np.zeros(0, dtype=bool), 0, self.clock.now())

    driver = configured(Inventive())
    promise = MeshControllerContract().test_monitors_are_numbers_within_full_scale
    assert "expected NotSupportedError" in broken(promise, driver, LIMITS, driver.clock)


def test_a_sweep_that_does_nothing_where_it_cannot_be_done_is_caught() -> None:
    class Silent(FakeSources):
        def sweep(self, plan) -> None: ...

    promise = MeshControllerContract().test_a_sweep_records_every_point_and_leaves_what_was_driven
    assert "without this capability" in broken(promise, configured(Silent()), LIMITS)


def test_a_sweep_that_leaves_its_last_point_is_caught() -> None:
    class Staying(FakeController):
        def sweep(self, plan):
            return super().sweep(replace(plan, keep_last=True))

    promise = MeshControllerContract().test_a_sweep_records_every_point_and_leaves_what_was_driven
    assert "the table after the sweep differs from the table before" in broken(promise, configured(Staying()), LIMITS)


def test_rows_of_a_sweep_in_another_order_are_caught() -> None:
    class Shuffled(FakeController):
        def sweep(self, plan):
            result = super().sweep(plan)
            return replace(result, photocurrent_ma=np.roll(result.photocurrent_ma, 1, axis=0))

    promise = MeshControllerContract().test_every_row_of_a_sweep_belongs_to_its_point
    assert "heater current fractions" in broken(
        promise, configured(Shuffled()), LIMITS, Given(heater_and_monitor=(2, 0))
    )


def test_telemetry_of_an_old_table_is_caught() -> None:
    class Stale(FakeController):
        def telemetry(self, period_s, **choice):
            for sample in super().telemetry(period_s, **choice):
                yield replace(sample, reading=replace(sample.reading, generation=1))

    driver = configured(Stale())
    promise = MeshControllerContract().test_other_calls_work_during_and_after_telemetry
    driver.program(np.zeros(3))
    assert "no sample has the generation of the table programmed during telemetry" in broken(promise, driver, LIMITS)


# -- meshes that take states


def test_a_unit_that_takes_what_is_no_state_is_caught() -> None:
    class Trusting(FakeUnit):
        def program_states(self, states):
            self.cells = dict(states)
            return super().program_states({})

    driver = Trusting()
    promise = MeshStatesContract().test_an_invalid_state_is_rejected
    assert "expected ConfigError" in broken(promise, driver, lambda: driver.cells)


def test_a_unit_that_keeps_cells_nobody_named_is_caught() -> None:
    class Sticky(FakeUnit):
        def program_states(self, states):
            before = self.cells
            sent = super().program_states(states)
            self.cells = before | self.cells
            return sent

    driver = Sticky()
    promise = MeshStatesContract().test_a_configuration_replaces_the_previous_one
    assert "is active" in broken(promise, driver, lambda: driver.cells)


# -- power meters


def test_the_largest_number_instead_of_over_range_is_caught() -> None:
    class Sentinel(FakeMeter):
        def reading(self, channel) -> PowerReading:
            over = self.light_w[channel] > self.largest_w
            return PowerReading(channel, RangeState.OK, 0.0, 3.402823e38 if over else self.light_w[channel])

    driver = Sentinel()
    promise = PowerMeterContract().test_an_overload_is_typed_and_no_number
    said = broken(promise, driver, driver.light_w.__setitem__, lambda channel: driver.light_w.update({channel: 1.0}))
    assert "an overloaded channel has the state ok" in said


def test_a_meter_that_repeats_its_last_reading_is_caught() -> None:
    class Stale(FakeMeter):
        def reading(self, channel) -> PowerReading:
            return PowerReading(channel, RangeState.OK, self.clock.now(), 100e-6)

    driver = Stale()
    promise = PowerMeterContract().test_a_reading_is_the_light_in_watts
    assert "10.00 dB off" in broken(promise, driver, driver.light_w.__setitem__, driver.clock)


def test_a_meter_that_mixes_up_its_channels_is_caught() -> None:
    class Swapped(FakeMeter):
        def read_all(self):
            return tuple(reversed(super().read_all()))

    driver = Swapped()
    promise = PowerMeterContract().test_all_channels_are_read_together_in_order
    assert "read_all() returned channels [2, 1], not (1, 2)" in broken(promise, driver, driver.light_w.__setitem__)


def test_a_wavelength_that_is_clipped_is_caught() -> None:
    class Clipping(FakeMeter):
        def set_wavelength_nm(self, channel, wavelength_nm) -> None:
            super().set_wavelength_nm(channel, min(max(wavelength_nm, 1250.0), 1650.0))

    driver = Clipping()
    promise = PowerMeterContract().test_a_wavelength_outside_the_limits_is_refused_and_nothing_changes
    assert "expected LimitError" in broken(promise, driver, (1250.0, 1650.0), driver.nm.__getitem__)


def test_a_setting_that_is_not_in_force_is_caught() -> None:
    class Deaf(FakeMeter):
        def set_wavelength_nm(self, channel, wavelength_nm) -> None: ...

    driver = Deaf()
    promise = PowerMeterContract().test_a_wavelength_within_the_limits_is_in_force
    assert "1250 nm was set, 1550 nm is active" in broken(promise, driver, (1250.0, 1650.0), driver.nm.__getitem__)


def test_settings_that_are_remembered_and_not_asked_for_are_caught() -> None:
    class Remembering(FakeMeter):
        def settings(self, channel) -> MeterSettings:
            return MeterSettings(1550.0, self.averaging[channel], None)

    promise = PowerMeterContract().test_settings_and_limits_are_reported
    assert "1250.0 nm: MeterSettings" in broken(promise, Remembering(), (1250.0, 1650.0), (1e-6, 10.0))


def test_limits_that_are_not_those_of_the_meter_are_caught() -> None:
    promise = PowerMeterContract().test_settings_and_limits_are_reported
    assert "wavelengths range from 1200 to 1650" in broken(promise, FakeMeter(), (1200.0, 1650.0), (1e-6, 10.0))


@pytest.mark.parametrize(
    ("ranges_dbm", "in_force_dbm", "why"),
    [
        ((10.0, -70.0), 10.0, "must give (lowest, highest)"),
        ((10.0,), 10.0, "must give (lowest, highest)"),
        ((-70.0, 10.0), -20.0, "a range of 10.0 dBm was set, but settings() returns -20.0"),
        ((-70.0, 10.0), 10.0, "expected range None, not 10.0"),
        ((10.0, 10.0), None, "a range of 10.0 dBm was set, but settings() returns None"),
        (None, 10.0, "expected range None, not 10.0"),
    ],
)
def test_ranges_that_do_not_fit_the_one_in_force_are_caught(ranges_dbm, in_force_dbm, why: str) -> None:
    class Fixed(FakeMeter):
        def set_range_dbm(self, channel, range_dbm) -> None: ...

        def settings(self, channel) -> MeterSettings:
            return MeterSettings(1550.0, 0.01, in_force_dbm)

    driver = Fixed()
    driver.ranges_dbm = ranges_dbm
    assert why in broken(PowerMeterContract().test_a_range_is_in_force_until_the_meter_ranges_by_itself, driver)


def test_a_reading_older_than_its_call_is_caught() -> None:
    class Hasty(FakeMeter):
        def read(self, channel) -> PowerReading:
            return self.reading(channel)

    driver = Hasty()
    promise = PowerMeterContract().test_a_reading_takes_the_averaging_time
    said = broken(promise, driver, driver.light_w.__setitem__, (1e-6, 10.0), driver.clock)
    assert "a reading with 0.1 s averaging took only 0 s" in said


# -- transponders


def test_a_transmitter_that_stays_lit_is_caught() -> None:
    class Lit(FakeModule):
        launched_w = 1e-3

    driver = Lit()
    promise = TransponderContract().test_the_light_follows_the_switch
    assert "disable() returned with 0.001 W of light" in broken(promise, driver, lambda: driver.launched_w)


def test_loss_of_signal_that_never_clears_is_caught() -> None:
    class Lost(FakeModule):
        def receive(self, power_dbm) -> None: ...

    driver = Lost()
    promise = TransponderContract().test_loss_of_signal_follows_the_light
    assert "LOS is True at -8.0 dBm" in broken(promise, driver, driver.receive, driver.clock)


def test_light_invented_in_the_dark_is_caught() -> None:
    class Hopeful(FakeModule):
        def receive(self, power_dbm) -> None:
            self.received_dbm = -25.0 if power_dbm is None else power_dbm

    driver = Hopeful()
    promise = TransponderContract().test_received_power_is_a_number_or_none
    assert "darkness is read as -25.0 dBm" in broken(promise, driver, driver.receive, driver.clock)


def test_a_transmitter_switched_off_by_closing_is_caught() -> None:
    class Tidy(FakeModule):
        def close(self) -> None:
            self.on = False
            super().close()

    driver = Tidy()
    promise = TransponderContract().test_closing_leaves_the_transmitter_as_it_is
    assert "close() changed the transmitter" in broken(promise, driver, lambda: driver.launched_w)


# -- power meters and lasers


def test_a_zero_taken_in_the_light_is_caught() -> None:
    class Trusting(FakeMeter):
        def zero(self) -> None: ...

    driver = Trusting()
    promise = PowerMeterContract().test_zeroing_with_light_on_is_an_error
    assert "expected DeviceError" in broken(promise, driver, driver.light_w.__setitem__)


def test_a_failed_zero_that_is_not_told_is_caught() -> None:
    class Trusting(FakeMeter):
        def zero(self) -> None: ...

    driver = Trusting()
    promise = PowerMeterContract().test_zeroing_that_fails_in_the_dark_is_an_error
    said = broken(promise, driver, driver.light_w.__setitem__, lambda broken: None)
    assert "expected DeviceError" in said


def test_a_laser_that_clips_its_frequency_is_caught() -> None:
    class Clipping(FakeLaser):
        def check(self, value, low, high, unit) -> None: ...

    promise = TunableLaserContract().test_a_frequency_outside_the_range_is_refused_and_nothing_changes
    for offset in (-1.0, 1.0, np.nan):
        assert "expected LimitError" in broken(promise, Clipping(), offset)
    power = TunableLaserContract().test_a_power_outside_the_range_is_refused_and_nothing_changes
    assert "expected LimitError" in broken(power, Clipping(), 0.5)


def test_a_laser_that_takes_gigahertz_for_its_step_is_caught() -> None:
    class Coarse(FakeLaser):
        def set_frequency_thz(self, frequency_thz: float) -> None:
            super().set_frequency_thz(frequency_thz)
            self.thz = round(frequency_thz, 3)

    promise = TunableLaserContract().test_a_frequency_within_the_range_is_in_force
    driver = Coarse()
    driver.ranges = replace(driver.ranges, frequency_thz=(190.0002, 197.0))
    assert "THz was set" in broken(promise, driver)


def test_a_laser_that_calls_itself_ready_while_it_settles_is_caught() -> None:
    class Hasty(FakeLaser):
        def wait_ready(self, timeout_s: float):
            return replace(self.state(), ready=True, measured_power_dbm=self.dbm)

    driver = Hasty()
    promise = TunableLaserContract().test_the_light_is_what_was_set_once_it_is_ready
    assert "the laser is ready, but emits no light" in broken(promise, driver, lambda: driver.light, driver.clock)


def test_light_left_on_is_caught() -> None:
    class Glowing(FakeLaser):
        def disable(self) -> None:
            self.need_link()

    driver = Glowing()
    promise = TunableLaserContract().test_the_light_is_what_was_set_once_it_is_ready
    assert "light after disable()" in broken(promise, driver, lambda: driver.light, driver.clock)
    promise = TunableLaserContract().test_the_state_follows_the_output
    assert "the laser is off, but reports LaserState(emitting=True, ready=True," in broken(
        promise, driver, driver.clock
    )


def test_a_laser_that_measures_power_in_the_dark_is_caught() -> None:
    class Sentinel(FakeLaser):
        def state(self):
            state = super().state()
            return state if self.on else replace(state, measured_power_dbm=-99.0)

    driver = Sentinel()
    promise = TunableLaserContract().test_the_state_follows_the_output
    assert "measures -99.0 dBm" in broken(promise, driver, driver.clock)


def test_a_laser_that_waits_for_light_nobody_switched_on_is_caught() -> None:
    class Patient(FakeLaser):
        def wait_ready(self, timeout_s: float):
            return self.state()

    driver = Patient()
    promise = TunableLaserContract().test_waiting_for_an_output_that_is_off_is_an_error
    assert "expected DeviceError" in broken(promise, driver, driver.clock)


def test_tuning_that_goes_dark_behind_the_callers_back_is_caught() -> None:
    class Blinking(FakeLaser):
        capabilities = replace(FakeLaser.capabilities, tunes_while_emitting=False)

        def set_frequency_thz(self, frequency_thz: float) -> None:
            if self.on:
                self.on = False
                raise DeviceError("refused", code=9, command="set", device="fake", address="fake://0")
            super().set_frequency_thz(frequency_thz)

    driver = Blinking()
    promise = TunableLaserContract().test_tuning_during_emission_works_or_is_rejected
    assert "switched the output off" in broken(promise, driver, driver.clock)


def test_a_log_that_is_not_of_the_sweep_is_caught() -> None:
    class Backwards(FakeLaser):
        def logged(self, plan):
            return super().logged(plan)[::-1]

    class Short(FakeLaser):
        def logged(self, plan):
            return super().logged(plan)[:10]

    class Metres(FakeLaser):
        def logged(self, plan):
            return 1e-9 * super().logged(plan)

    promise = TunableLaserContract().test_a_sweep_logs_its_wavelengths
    for fake, said in ((Backwards, "do not increase"), (Short, "10 points"), (Metres, "off the sweep")):
        driver = fake()
        assert said in broken(promise, driver, driver.clock)


def test_a_laser_switched_off_by_closing_is_caught() -> None:
    class Tidy(FakeLaser):
        def close(self) -> None:
            self.on = False
            super().close()

    driver = Tidy()
    promise = TunableLaserContract().test_closing_leaves_the_output_as_it_is
    assert "close() switched the output off" in broken(promise, driver, lambda: driver.light, driver.clock)


# -- polarization controllers


def test_settings_made_before_the_wrong_one_are_caught() -> None:
    class Piecemeal(FakeSqueezer):
        def set(self, settings) -> None:
            if abs(settings[0]) <= 100.0:
                self.settings[0] = settings[0]
            super().set(settings)

    promise = PolarizationControllerContract().test_a_setting_outside_its_range_is_refused_and_nothing_changes
    assert "a rejected set changed settings" in broken(promise, Piecemeal(), "above")


def test_a_set_that_is_not_carried_out_is_caught() -> None:
    class Lazy(FakeSqueezer):
        def set(self, settings) -> None:
            self.settings = np.zeros(2)

    promise = PolarizationControllerContract().test_what_is_set_is_read_back
    assert "is read back" in broken(promise, Lazy())


# -- authors


def test_a_contract_without_its_fixtures_says_what_to_give_and_skips_what_cannot_be_proven(pytester) -> None:
    pytester.makeini(f"[pytest]\npythonpath = {Path(__file__).parent}\n")
    pytester.makepyfile(
        """
        import pytest
        from tests.testing.contract_fakes import FakeSqueezer
        from lumion_hw.testing.contracts import PolarizationControllerContract

        class TestBare(PolarizationControllerContract):
            pass

        class TestMine(PolarizationControllerContract):
            @pytest.fixture
            def driver(self):
                return FakeSqueezer()
        """
    )
    chosen = "TestBare and (describes or unplugged) or TestMine and (in_force or leaves or read_back)"
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rs", "-k", chosen)
    result.assert_outcomes(errors=4, passed=1, skipped=2)
    result.stdout.fnmatch_lines_random(
        [
            "this contract needs a fixture 'driver': an open PolarizationController, closed again after the test",
            "*this test needs a fixture 'actual_settings'*",
        ]
    )
