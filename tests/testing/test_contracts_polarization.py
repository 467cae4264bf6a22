"""The contracts of optimizers and polarimeters pass correct drivers and catch each broken promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lumion_hw.interfaces import PolarimeterSettings
from lumion_hw.testing.contracts import PolarimeterContract, PolarizationOptimizerContract
from tests.testing.contract_fakes import AnyFake, FakeBox, FakePolarimeter


class TestHonestBox(AnyFake, PolarizationOptimizerContract):
    make = FakeBox

    @pytest.fixture
    def executed_factors(self, driver):
        return lambda: driver.steps


class TestHonestPolarimeter(AnyFake, PolarimeterContract):
    make = FakePolarimeter

    @pytest.fixture
    def shine(self, driver):
        return driver.shine


def broken(promise, *args) -> str:
    """Run one promise with a driver that breaks it; return the sentence."""
    with pytest.raises(pytest.fail.Exception) as caught:
        promise(*args)
    return str(caught.value)


def test_a_step_that_is_left_out_is_caught() -> None:
    class Lazy(FakeBox):
        def improve(self, factor: float) -> None:
            super().improve(factor)
            self.steps = self.steps[:3]

    driver = Lazy()
    promise = PolarizationOptimizerContract().test_every_factor_is_a_step
    assert "5 factors were sent, but 3 steps were made" in broken(promise, driver, lambda: driver.steps)


def test_a_factor_that_is_rounded_away_is_caught() -> None:
    class Coarse(FakeBox):
        def improve(self, factor: float) -> None:
            super().improve(factor)
            self.steps[-1] = round(factor, 2)

    driver = Coarse()
    promise = PolarizationOptimizerContract().test_every_factor_is_a_step
    assert "sent 3.3e-05, but the optimizer used 0" in broken(promise, driver, lambda: driver.steps)


def test_a_factor_that_is_clipped_is_caught() -> None:
    class Obliging(FakeBox):
        def improve(self, factor: float) -> None:
            super().improve(min(max(factor, 1e-6), 100.0))

    driver = Obliging()
    promise = PolarizationOptimizerContract().test_an_invalid_factor_is_rejected_without_a_step
    assert "nothing was raised" in broken(promise, driver, 0.0, lambda: driver.steps)


def test_a_step_taken_before_the_refusal_is_caught() -> None:
    class Hasty(FakeBox):
        def improve(self, factor: float) -> None:
            self.steps.append(factor)
            super().improve(factor)

    driver = Hasty()
    promise = PolarizationOptimizerContract().test_an_invalid_factor_is_rejected_without_a_step
    assert "a factor of 100.1 was rejected, but a step was made" in broken(promise, driver, 100.1, lambda: driver.steps)


def test_a_turned_sign_of_the_circular_part_is_caught() -> None:
    class Mirrored(FakePolarimeter):
        def read(self):
            found = super().read()
            return replace(found, stokes=found.stokes * np.array([1.0, 1.0, -1.0]))

    driver = Mirrored()
    promise = PolarimeterContract().test_it_reads_the_light_that_arrives
    assert "rad away" in broken(promise, driver, driver.shine, (0.0, 0.0, 1.0), 1.0)


def test_a_state_divided_by_all_light_is_caught() -> None:
    class Short(FakePolarimeter):
        def read(self):
            found = super().read()
            return replace(found, stokes=found.stokes * found.dop)

    driver = Short()
    promise = PolarimeterContract().test_it_reads_the_light_that_arrives
    assert "must have length 1" in broken(promise, driver, driver.shine, (1.0, 0.0, 0.0), 0.5)


def test_a_reading_of_before_is_caught() -> None:
    class Slow(FakePolarimeter):
        last = None

        def read(self):
            found, self.last = self.last or super().read(), super().read()
            return found

    driver = Slow()
    promise = PolarimeterContract().test_a_reading_is_of_light_after_the_call
    assert "the light was changed" in broken(promise, driver, driver.shine)


def test_a_number_in_the_dark_is_caught() -> None:
    class Brave(FakePolarimeter):
        def read(self):
            self.light = (1e-4, *self.light[1:])
            return super().read()

    driver = Brave()
    promise = PolarimeterContract().test_light_outside_the_range_is_an_error_and_no_number
    assert "nothing was raised" in broken(promise, driver, driver.shine, 1e-9)


def test_an_averaging_time_that_is_not_the_one_in_force_is_caught() -> None:
    class Vague(FakePolarimeter):
        def set_averaging_s(self, averaging_s: float) -> float:
            return 1.5 * super().set_averaging_s(averaging_s)

    assert "set again it became" in broken(PolarimeterContract().test_an_averaging_time_set_is_in_force, Vague())


def test_a_polarimeter_that_tells_other_settings_is_caught() -> None:
    class Vague(FakePolarimeter):
        def settings(self) -> PolarimeterSettings:
            return PolarimeterSettings(self.thz, 2.0 * self.averaging)

    assert "(190.0, 1e-08) is active, but settings() returns" in broken(
        PolarimeterContract().test_settings_and_limits_are_reported, Vague()
    )
