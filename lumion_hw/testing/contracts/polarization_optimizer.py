"""What a box promises that improves the polarization by itself: a step for each factor, and no other step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock
from lumion_hw.errors import LimitError
from lumion_hw.interfaces import PolarizationOptimizer
from lumion_hw.testing.contracts.common import (
    DeviceContract,
    fail_without_fixture,
    on_wires_only,
    promised,
    refused,
    run_parallel,
    skip_without_fixture,
)

_SHARED_ROUNDS = 5
_PART = 1e-5  # factors are float32 on the wire


def _start_and_improve(driver: PolarizationOptimizer) -> None:
    driver.start()
    driver.improve(50.0)


class PolarizationOptimizerContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.PolarizationOptimizer`.

    Fixture to give: ``driver`` (open). Optional: ``factors_taken``, and those of :class:`DeviceContract`.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "start": lambda driver: driver.start(),
        "improve": _start_and_improve,
        "stop": lambda driver: driver.stop(),
    }

    def observe(self, driver: Any) -> object:
        """Hold the polarization: there is nothing to be read, but the box has to answer for it."""
        return driver.stop()

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> PolarizationOptimizer:
        """An open driver."""
        fail_without_fixture("driver", "an open PolarizationOptimizer, closed again after the test")

    @pytest.fixture
    def factors_taken(self) -> Callable[[], Sequence[float]]:
        """Tells the factor of each step that the box has taken, past the driver."""
        skip_without_fixture("factors_taken", "a function that returns the factor of every step that the box has taken")

    # -- promises

    def test_light_follows_a_step_within_a_time_that_is_known(self, driver: PolarizationOptimizer) -> None:
        """``settle_s`` is a time."""
        promised(0.0 <= driver.settle_s < 60.0, f"light follows after {driver.settle_s} s")

    def test_every_factor_is_a_step(
        self, driver: PolarizationOptimizer, factors_taken: Callable[[], Sequence[float]]
    ) -> None:
        """One call, one step, with the factor that was told."""
        told = (100.0, 73.25, 1.0, 0.01, 3.3e-5)
        driver.start()
        for factor in told:
            driver.improve(factor)
        driver.stop()
        taken = tuple(factors_taken())
        promised(len(taken) == len(told), f"{len(told)} factors were told, {len(taken)} steps were taken")
        for factor, found in zip(told, taken, strict=True):
            promised(abs(found - factor) <= _PART * factor, f"{factor:g} was told, the box understood {found:g}")

    @pytest.mark.parametrize("factor", [0.0, -1.0, 100.1, float("nan"), float("inf"), float("-inf")])
    def test_what_is_no_factor_is_refused_and_no_step_is_taken(
        self, driver: PolarizationOptimizer, factor: float, factors_taken: Callable[[], Sequence[float]]
    ) -> None:
        """A factor is above 0 and at most 100."""
        driver.start()
        refused(LimitError, f"a factor of {factor}", partial(driver.improve, factor))
        promised(not factors_taken(), f"a factor of {factor} was refused, and a step taken")

    def test_stopping_twice_is_harmless(self, driver: PolarizationOptimizer) -> None:
        """``stop`` is idempotent, also before the first start."""
        driver.stop()
        driver.start()
        driver.stop()
        driver.stop()

    def test_it_starts_again_after_a_stop(
        self, driver: PolarizationOptimizer, factors_taken: Callable[[], Sequence[float]]
    ) -> None:
        """A search can be taken up again."""
        for _ in range(2):
            driver.start()
            driver.improve(10.0)
            driver.stop()
        promised(len(factors_taken()) == 2, f"two steps were asked for, {len(factors_taken())} were taken")

    @on_wires_only
    def test_two_threads_share_it(
        self, driver: PolarizationOptimizer, clock: Clock, factors_taken: Callable[[], Sequence[float]]
    ) -> None:
        """Each step belongs to one factor, whoever told it."""
        driver.start()

        def tell(factor: float) -> None:
            for _ in range(_SHARED_ROUNDS):
                driver.improve(factor)

        run_parallel(clock, partial(tell, 20.0), partial(tell, 80.0))
        taken = sorted(round(factor) for factor in factors_taken())
        promised(taken == [20] * _SHARED_ROUNDS + [80] * _SHARED_ROUNDS, f"the steps taken are {taken}")
