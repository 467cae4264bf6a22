"""The contracts of attenuators, switches, amplifiers, analysers and temperature controllers catch broken promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lumion_hw.errors import LimitError
from lumion_hw.testing.contracts import (
    OpticalAmplifierContract,
    OpticalSwitchContract,
    SpectrumAnalyzerContract,
    TemperatureControllerContract,
    VariableAttenuatorContract,
)
from tests.testing.contract_fakes import AnyFake
from tests.testing.light_fakes import (
    FakeAmplifier,
    FakeAnalyzer,
    FakeAttenuator,
    FakeBareAttenuator,
    FakeSwitch,
    FakeTemperature,
)


class TestHonestAttenuator(AnyFake, VariableAttenuatorContract):
    make = FakeAttenuator

    @pytest.fixture
    def measured_attenuation_db(self, driver):
        return driver.measured_attenuation_db


class TestHonestAttenuatorWithoutShutter(TestHonestAttenuator):
    make = FakeBareAttenuator


class TestHonestSwitch(AnyFake, OpticalSwitchContract):
    make = FakeSwitch

    @pytest.fixture
    def actual_connections(self, driver):
        return lambda: driver.made


class TestHonestAmplifier(AnyFake, OpticalAmplifierContract):
    make = FakeAmplifier

    @pytest.fixture
    def emitted_dbm(self, driver):
        return driver.emitted_dbm


class TestHonestAnalyzer(AnyFake, SpectrumAnalyzerContract):
    make = FakeAnalyzer

    @pytest.fixture
    def shine(self, driver):
        return driver.shine


class TestHonestTemperatureController(AnyFake, TemperatureControllerContract):
    make = FakeTemperature
    lock_s = 20.0

    @pytest.fixture
    def true_c(self, driver):
        return driver.true_c

    @pytest.fixture
    def heat_suddenly_k(self, driver):
        return driver.heat_suddenly_k

    @pytest.fixture
    def pull_sensor(self, driver):
        return driver.pull_sensor


def broken(promise, *args) -> str:
    """Run one promise with a driver that breaks it; return the sentence."""
    with pytest.raises(pytest.fail.Exception) as caught:
        promise(*args)
    return str(caught.value)


# -- attenuators


def test_an_attenuation_that_is_clipped_is_caught() -> None:
    class Obliging(FakeAttenuator):
        def set_attenuation_db(self, channel: int, attenuation_db: float) -> None:
            super().set_attenuation_db(channel, min(max(attenuation_db, 0.0), 40.0))

    promise = VariableAttenuatorContract().test_an_attenuation_outside_the_limits_is_refused_and_nothing_changes
    assert "nothing was raised" in broken(promise, Obliging(), "above")


def test_channels_that_are_one_are_caught() -> None:
    class Joined(FakeAttenuator):
        def set_attenuation_db(self, channel: int, attenuation_db: float) -> None:
            for each in self.channels:
                super().set_attenuation_db(each, attenuation_db)

    assert "channel 1 has" in broken(VariableAttenuatorContract().test_channels_are_independent, Joined())


def test_light_that_does_not_follow_is_caught() -> None:
    class Stuck(FakeAttenuator):
        def measured_attenuation_db(self, channel: int) -> float | None:
            return 3.0

    driver = Stuck()
    promise = VariableAttenuatorContract().test_the_light_has_followed_when_a_set_returns
    assert "4 dB was set, but 3.000 dB was measured" in broken(promise, driver, driver.measured_attenuation_db)


def test_a_shutter_that_leaks_is_caught() -> None:
    class Leaking(FakeAttenuator):
        def measured_attenuation_db(self, channel: int) -> float | None:
            return 30.0

    driver = Leaking()
    promise = VariableAttenuatorContract().test_no_light_passes_a_closed_shutter
    assert "light passes a closed shutter" in broken(promise, driver, driver.measured_attenuation_db)


def test_closing_that_opens_the_attenuator_is_caught() -> None:
    class Tidy(FakeAttenuator):
        def close(self) -> None:
            self.change(1, attenuation_db=0.0)
            super().close()

    driver = Tidy()
    promise = VariableAttenuatorContract().test_closing_leaves_the_light_as_it_is
    assert "after close() the attenuation is 0.0 dB" in broken(promise, driver, driver.measured_attenuation_db)


# -- switches


def test_a_connection_that_takes_a_port_away_is_caught() -> None:
    class Greedy(FakeSwitch):
        def connect(self, connections) -> None:
            self.known(connections)
            self.made = {k: v for k, v in self.made.items() if v not in connections.values()} | connections

    promise = OpticalSwitchContract().test_a_port_in_use_is_refused_and_nothing_changes
    assert "nothing was raised" in broken(promise, Greedy())


def test_connections_that_replace_all_others_are_caught() -> None:
    class Forgetful(FakeSwitch):
        def connect(self, connections) -> None:
            super().connect(connections)
            self.made = dict(connections)

    promise = OpticalSwitchContract().test_connect_adds_to_existing_connections
    assert "expected {1: 6, 2: 8}, but {2: 8} is read back" in broken(promise, Forgetful())


def test_connections_that_are_left_are_caught() -> None:
    class Adding(FakeSwitch):
        def set_connections(self, connections) -> None:
            self.known(connections)
            self.made = {k: v for k, v in self.made.items() if v not in connections.values()} | connections

    promise = OpticalSwitchContract().test_set_connections_replaces_all_others
    assert "expected {}, but {1: 8, 2: 6} is read back" in broken(promise, Adding())


# -- amplifiers


def test_a_gain_that_is_no_error_and_not_held_is_caught() -> None:
    class Silent(FakeAmplifier):
        def hold_gain_db(self, gain_db: float) -> None:
            self.need_link()

    promise = OpticalAmplifierContract().test_a_value_takes_effect_or_is_unsupported
    assert "nothing was raised" in broken(promise, Silent(), "gain_db")


def test_two_quantities_held_at_once_are_caught() -> None:
    class Both(FakeAmplifier):
        def settings(self):
            return replace(super().settings(), power_dbm=10.0)

    promise = OpticalAmplifierContract().test_a_value_takes_effect_or_is_unsupported
    assert "settings() reports more than one controlled quantity:" in broken(promise, Both(), "current_ma")


def test_ready_before_there_is_light_is_caught() -> None:
    class Hasty(FakeAmplifier):
        def state(self):
            return replace(super().state(), ready=self.on)

        def wait_ready(self, timeout_s: float):
            return self.state()

    driver = Hasty()
    promise = OpticalAmplifierContract().test_light_leaves_it_while_it_is_ready
    assert "the amplifier is ready, but emits no light" in broken(promise, driver, driver.emitted_dbm)


def test_closing_that_switches_an_amplifier_off_is_caught() -> None:
    class Careful(FakeAmplifier):
        def close(self) -> None:
            self.on = False
            super().close()

    driver = Careful()
    promise = OpticalAmplifierContract().test_closing_leaves_the_output_as_it_is
    assert "close() changed the output power from 12.0 to None dBm" in broken(promise, driver, driver.emitted_dbm)


# -- analysers


def test_a_spectrum_that_is_turned_round_is_caught() -> None:
    class Falling(FakeAnalyzer):
        def sweep(self, timeout_s: float):
            found = super().sweep(timeout_s)
            return replace(found, wavelength_nm=found.wavelength_nm[::-1])

    driver = Falling()
    promise = SpectrumAnalyzerContract().test_a_sweep_is_of_the_span_that_was_set
    assert "the ends of the sweep are" in broken(promise, driver, driver.clock)


def test_the_spectrum_of_before_is_caught() -> None:
    class Slow(FakeAnalyzer):
        last = None

        def sweep(self, timeout_s: float):
            found, self.last = self.last or super().sweep(timeout_s), super().sweep(timeout_s)
            return found

    driver = Slow()
    promise = SpectrumAnalyzerContract().test_the_peak_matches_the_light
    assert "the peak of light at 1551.1 nm is 0.900 nm off" in broken(promise, driver, driver.shine)


@pytest.mark.parametrize(("level_dbm", "words"), [(-np.inf, "infinite"), (-210.0, "must be NaN")])
def test_a_number_for_no_level_is_caught(level_dbm: float, words: str) -> None:
    class Brave(FakeAnalyzer):
        def levels_dbm(self, wavelength_nm: np.ndarray) -> np.ndarray:
            found = super().levels_dbm(wavelength_nm)
            found[np.isnan(found)] = level_dbm
            found[:10] = level_dbm
            return found

    driver = Brave()
    promise = SpectrumAnalyzerContract().test_the_peak_matches_the_light
    assert words in broken(promise, driver, driver.shine)


def test_a_resolution_that_is_rounded_to_one_there_is_is_caught() -> None:
    class Obliging(FakeAnalyzer):
        def set_resolution_nm(self, resolution_nm: float) -> None:
            nearest_nm = min(self.able.resolutions_nm, key=lambda each: abs(each - resolution_nm))
            super().set_resolution_nm(nearest_nm)

    promise = SpectrumAnalyzerContract().test_resolutions_and_sensitivities_are_those_it_names
    assert "nothing was raised" in broken(promise, Obliging())


# -- temperature controllers


def test_a_lock_before_the_temperature_is_there_is_caught() -> None:
    class Hasty(FakeTemperature):
        def look(self) -> bool:
            return self.on

        def wait_locked(self, timeout_s: float):
            return self.state()

    driver = Hasty()
    promise = TemperatureControllerContract().test_locked_means_that_the_temperature_is_held
    assert "locked to 27.0 °C, but the body has 24.000 °C" in broken(promise, driver, driver.true_c)


def test_a_loss_that_nobody_saw_and_that_is_not_told_is_caught() -> None:
    class Forgetful(FakeTemperature):
        def heat_suddenly_k(self, kelvin: float) -> None:
            super().heat_suddenly_k(kelvin)
            self.losses = 0

    driver = Forgetful()
    promise = TemperatureControllerContract().test_a_lock_that_was_lost_is_counted_once
    assert "was not counted" in broken(promise, driver, driver.heat_suddenly_k, driver.clock)


def test_a_temperature_without_a_sensor_is_caught() -> None:
    class Brave(FakeTemperature):
        def state(self):
            return replace(super().state(), temperature_c=-273.15)

    driver = Brave()
    promise = TemperatureControllerContract().test_without_its_sensor_there_is_no_temperature
    assert "without a sensor the temperature is -273.15 °C" in broken(promise, driver, driver.pull_sensor, driver.clock)


def test_waiting_that_switches_the_output_on_is_caught() -> None:
    class Helpful(FakeTemperature):
        def wait_locked(self, timeout_s: float):
            self.enable()
            return super().wait_locked(timeout_s)

    driver = Helpful()
    promise = TemperatureControllerContract().test_waiting_for_an_output_that_is_off_is_an_error
    assert "nothing was raised" in broken(promise, driver, driver.clock)


def test_closing_that_lets_the_chip_warm_up_is_caught() -> None:
    class Careful(FakeTemperature):
        def close(self) -> None:
            self.on = False
            super().close()

    driver = Careful()
    promise = TemperatureControllerContract().test_closing_leaves_the_output_on
    assert "after close() the body has" in broken(promise, driver, driver.true_c, driver.clock)


def test_a_refusal_in_another_unit_is_caught() -> None:
    class Kelvin(FakeTemperature):
        def set_temperature_c(self, temperature_c: float) -> None:
            try:
                super().set_temperature_c(temperature_c)
            except LimitError as error:
                error.unit = "K"
                raise

    promise = TemperatureControllerContract().test_settings_outside_the_limits_are_refused_and_nothing_changes
    assert "the unit of the error is K, not °C" in broken(promise, Kelvin())
