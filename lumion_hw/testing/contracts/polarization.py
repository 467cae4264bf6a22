"""Contract tests for polarization controllers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.interfaces import PolarizationController
from lumion_hw.testing.contracts.common import (
    DeviceContract,
    expect,
    expect_error,
    fail_without_fixture,
    on_wires_only,
    run_parallel,
    skip_without_fixture,
)

_SHARED_ROUNDS = 4


def positions(driver: PolarizationController, fraction: float) -> NDArray[np.float64]:
    """Return settings at a fraction of the range of each actuator, rounded to its steps."""
    return np.array(
        [
            actuator.minimum + round(fraction * (actuator.maximum - actuator.minimum) / actuator.step) * actuator.step
            for actuator in driver.actuators
        ]
    )


class PolarizationControllerContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.PolarizationController`.

    Required fixture: ``driver`` (open). Optional: ``actual_settings``, and those of :class:`DeviceContract`.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "set": lambda driver: driver.set(np.zeros(len(driver.actuators))),
        "read": lambda driver: driver.read(),
    }

    def observe(self, driver: Any) -> object:
        """Return the active settings."""
        return driver.read().tolist()

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> PolarizationController:
        """An open driver."""
        fail_without_fixture("driver", "an open PolarizationController, closed again after the test")

    @pytest.fixture
    def actual_settings(self) -> Callable[[], NDArray[np.float64]]:
        """A function that returns the actual settings, without using the driver."""
        skip_without_fixture("actual_settings", "a function that returns the actual settings, in the actuators' units")

    # -- tests

    def test_it_describes_its_actuators(self, driver: PolarizationController) -> None:
        """Every actuator has a unit, a range and a step, and the settling time is finite."""
        expect(len(driver.actuators) > 0, "there are no actuators")
        for number, actuator in enumerate(driver.actuators):
            expect(bool(actuator.kind and actuator.unit), f"actuator {number} has no unit: {actuator}")
            expect(
                actuator.minimum < actuator.maximum and actuator.step > 0.0,
                f"actuator {number} has no range: {actuator}",
            )
            expect(
                actuator.period is None or actuator.period > 0.0, f"actuator {number} has an invalid period: {actuator}"
            )
        expect(0.0 <= driver.settle_s < 60.0, f"the settling time is {driver.settle_s} s")

    def test_what_is_set_is_read_back(self, driver: PolarizationController) -> None:
        """Settings within the limits are read back within half a step."""
        steps = np.array([actuator.step for actuator in driver.actuators])
        for fraction in (0.0, 0.37, 1.0, 0.5):
            wanted = positions(driver, fraction)
            wanted[0] = positions(driver, 0.8 * fraction)[0]
            driver.set(wanted)
            actual = driver.read()
            expect(
                actual.shape == wanted.shape,
                f"{len(wanted)} settings were set, but read() returns shape {actual.shape}",
            )
            expect(bool(np.all(np.abs(actual - wanted) <= 0.51 * steps)), f"{wanted} was set, {actual} is read back")

    def test_settings_between_steps_go_to_the_nearest(self, driver: PolarizationController) -> None:
        """A setting between two steps is rounded to the nearest step."""
        steps = np.array([actuator.step for actuator in driver.actuators])
        wanted = positions(driver, 0.4) + 0.3 * steps
        driver.set(wanted)
        expect(
            bool(np.all(np.abs(driver.read() - wanted) <= 0.51 * steps)),
            "a setting was not rounded to the nearest step",
        )

    def test_what_is_set_is_in_force(
        self, driver: PolarizationController, actual_settings: Callable[[], NDArray[np.float64]]
    ) -> None:
        """When ``set`` returns, the actuators have their settings."""
        for fraction in (0.3, 0.6, 0.6):
            wanted = positions(driver, fraction)
            driver.set(wanted)
            expect(np.allclose(actual_settings(), wanted), f"{wanted} was set, {actual_settings()} is in force")

    @pytest.mark.parametrize("side", ["below", "above"])
    def test_a_setting_outside_its_range_is_refused_and_nothing_changes(
        self, driver: PolarizationController, side: str
    ) -> None:
        """One setting outside its range rejects all settings, and nothing changes."""
        driver.set(positions(driver, 0.5))
        before = driver.read()
        for number, actuator in enumerate(driver.actuators):
            if actuator.endless:
                continue
            wanted = positions(driver, 0.25)
            wanted[number] = actuator.minimum - actuator.step if side == "below" else actuator.maximum + actuator.step
            error = expect_error(LimitError, f"{wanted[number]:g} {actuator.unit}", partial(driver.set, wanted))
            expect(error.unit == actuator.unit, f"the unit of the error is {error.unit}, not {actuator.unit}")
        expect(np.array_equal(driver.read(), before), "a rejected set changed settings")

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_non_finite_settings_are_rejected(self, driver: PolarizationController, value: float) -> None:
        """NaN and infinite settings are rejected, and nothing changes."""
        driver.set(positions(driver, 0.5))
        before = driver.read()
        wanted = positions(driver, 0.25)
        wanted[-1] = value
        expect_error(LimitError, f"{value}", lambda: driver.set(wanted))
        expect(np.array_equal(driver.read(), before), "a rejected set changed settings")

    def test_settings_of_the_wrong_length_are_refused(self, driver: PolarizationController) -> None:
        """``set`` needs exactly one setting per actuator."""
        n_actuators = len(driver.actuators)
        for shape in ((n_actuators - 1,), (n_actuators + 1,), (1, n_actuators)):
            expect_error(ConfigError, f"shape {shape}", partial(driver.set, np.zeros(shape)))

    @on_wires_only
    def test_two_threads_share_the_driver(self, driver: PolarizationController, clock: Clock) -> None:
        """While one thread sets the actuators, another reads only complete settings."""
        wanted = [positions(driver, 0.5), positions(driver, 0.52)]
        driver.set(wanted[1])

        def set_values() -> None:
            for round_ in range(_SHARED_ROUNDS):
                driver.set(wanted[round_ % 2])

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                actual = driver.read()
                expect(
                    any(np.allclose(actual, positions_set) for positions_set in wanted),
                    f"{actual} was read, but was never set",
                )

        run_parallel(clock, set_values, read)

    def test_closing_leaves_the_settings(
        self, driver: PolarizationController, actual_settings: Callable[[], NDArray[np.float64]]
    ) -> None:
        """``close`` does not change the settings."""
        wanted = positions(driver, 0.6)
        driver.set(wanted)
        driver.close()
        expect(np.allclose(actual_settings(), wanted), f"{wanted} was set, {actual_settings()} is active after close()")
