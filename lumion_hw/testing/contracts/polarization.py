"""What a polarization controller promises: settings within their ranges, all of them or none, and read back."""

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
    fail_without_fixture,
    on_wires_only,
    promised,
    refused,
    run_parallel,
    skip_without_fixture,
)

_SHARED_ROUNDS = 4


def positions(driver: PolarizationController, fraction: float) -> NDArray[np.float64]:
    """Return settings at a fraction of every actuator's range, on its steps."""
    return np.array(
        [
            each.minimum + round(fraction * (each.maximum - each.minimum) / each.step) * each.step
            for each in driver.actuators
        ]
    )


class PolarizationControllerContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.PolarizationController`.

    Fixture to give: ``driver`` (open). Optional: ``in_force``, and those of :class:`DeviceContract`.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "set": lambda driver: driver.set(np.zeros(len(driver.actuators))),
        "read": lambda driver: driver.read(),
    }

    def observe(self, driver: Any) -> object:
        """Return the settings in force."""
        return driver.read().tolist()

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> PolarizationController:
        """An open driver."""
        fail_without_fixture("driver", "an open PolarizationController, closed again after the test")

    @pytest.fixture
    def in_force(self) -> Callable[[], NDArray[np.float64]]:
        """Tells what the actuators really carry, past the driver, in their units."""
        skip_without_fixture("in_force", "a function that returns what the actuators really carry, in their units")

    # -- promises

    def test_it_describes_its_actuators(self, driver: PolarizationController) -> None:
        """Every actuator has a unit, a range and a step; light follows a set within a time that is known."""
        promised(len(driver.actuators) > 0, "there are no actuators")
        for number, each in enumerate(driver.actuators):
            promised(bool(each.kind and each.unit), f"actuator {number} has no unit: {each}")
            promised(each.minimum < each.maximum and each.step > 0.0, f"actuator {number} has no range: {each}")
            promised(each.period is None or each.period > 0.0, f"actuator {number} has no such period: {each}")
        promised(0.0 <= driver.settle_s < 60.0, f"light follows after {driver.settle_s} s")

    def test_what_is_set_is_read_back(self, driver: PolarizationController) -> None:
        """Settings from limit to limit are taken, each actuator its own, to half a step."""
        steps = np.array([each.step for each in driver.actuators])
        for fraction in (0.0, 0.37, 1.0, 0.5):
            wanted = positions(driver, fraction)
            wanted[0] = positions(driver, 0.8 * fraction)[0]
            driver.set(wanted)
            found = driver.read()
            promised(found.shape == wanted.shape, f"{len(wanted)} settings were made, the shape read is {found.shape}")
            promised(bool(np.all(np.abs(found - wanted) <= 0.51 * steps)), f"{wanted} was set, {found} is read back")

    def test_settings_between_steps_go_to_the_nearest(self, driver: PolarizationController) -> None:
        """A setting is rounded to a step, which is the one change a driver may make."""
        steps = np.array([each.step for each in driver.actuators])
        wanted = positions(driver, 0.4) + 0.3 * steps
        driver.set(wanted)
        promised(bool(np.all(np.abs(driver.read() - wanted) <= 0.51 * steps)), "the settings are not the nearest ones")

    def test_what_is_set_is_in_force(
        self, driver: PolarizationController, in_force: Callable[[], NDArray[np.float64]]
    ) -> None:
        """The actuators carry the settings once ``set`` has returned."""
        for fraction in (0.3, 0.6, 0.6):
            wanted = positions(driver, fraction)
            driver.set(wanted)
            promised(np.allclose(in_force(), wanted), f"{wanted} was set, {in_force()} is in force")

    @pytest.mark.parametrize("side", ["below", "above"])
    def test_a_setting_outside_its_range_is_refused_and_nothing_changes(
        self, driver: PolarizationController, side: str
    ) -> None:
        """One setting beyond its range refuses them all."""
        driver.set(positions(driver, 0.5))
        before = driver.read()
        for number, each in enumerate(driver.actuators):
            if each.endless:
                continue
            wanted = positions(driver, 0.25)
            wanted[number] = each.minimum - each.step if side == "below" else each.maximum + each.step
            error = refused(LimitError, f"{wanted[number]:g} {each.unit}", partial(driver.set, wanted))
            promised(error.unit == each.unit, f"the refusal speaks in {error.unit}, the actuator in {each.unit}")
        promised(np.array_equal(driver.read(), before), "a refused set changed settings")

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_what_is_no_number_is_refused_and_nothing_changes(
        self, driver: PolarizationController, value: float
    ) -> None:
        """NaN and infinities are no settings."""
        driver.set(positions(driver, 0.5))
        before = driver.read()
        wanted = positions(driver, 0.25)
        wanted[-1] = value
        refused(LimitError, f"{value}", lambda: driver.set(wanted))
        promised(np.array_equal(driver.read(), before), "a refused set changed settings")

    def test_settings_of_the_wrong_length_are_refused(self, driver: PolarizationController) -> None:
        """There has to be one setting per actuator."""
        n_actuators = len(driver.actuators)
        for shape in ((n_actuators - 1,), (n_actuators + 1,), (1, n_actuators)):
            refused(ConfigError, f"shape {shape}", partial(driver.set, np.zeros(shape)))

    @on_wires_only
    def test_two_threads_share_it(self, driver: PolarizationController, clock: Clock) -> None:
        """While one thread sets, another reads whole settings only."""
        wanted = [positions(driver, 0.5), positions(driver, 0.52)]
        driver.set(wanted[1])

        def set_them() -> None:
            for round_ in range(_SHARED_ROUNDS):
                driver.set(wanted[round_ % 2])

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                found = driver.read()
                promised(any(np.allclose(found, each) for each in wanted), f"{found} was read, which nobody set")

        run_parallel(clock, set_them, read)

    def test_closing_leaves_the_settings(
        self, driver: PolarizationController, in_force: Callable[[], NDArray[np.float64]]
    ) -> None:
        """``close`` leaves the light as it is."""
        wanted = positions(driver, 0.6)
        driver.set(wanted)
        driver.close()
        promised(np.allclose(in_force(), wanted), f"{wanted} was set, {in_force()} is in force after close()")
