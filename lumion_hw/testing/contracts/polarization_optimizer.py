"""Contract tests for instruments that optimize polarization by themselves."""

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
    expect,
    expect_error,
    fail_without_fixture,
    on_wires_only,
    run_parallel,
    skip_without_fixture,
)

_SHARED_ROUNDS = 5
_RELATIVE_TOLERANCE = 1e-5  # factors are float32 on the wire


def _start_and_step(driver: PolarizationOptimizer) -> None:
    driver.start()
    driver.improve(50.0)


class PolarizationOptimizerContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.PolarizationOptimizer`.

    Required fixture: ``driver`` (open). Optional: ``executed_factors``, and those of :class:`DeviceContract`.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "start": lambda driver: driver.start(),
        "improve": _start_and_step,
        "stop": lambda driver: driver.stop(),
    }

    def observe(self, driver: Any) -> object:
        """Stop the optimizer; the contract reads a value here, but an optimizer has none."""
        return driver.stop()

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> PolarizationOptimizer:
        """An open driver."""
        fail_without_fixture("driver", "an open PolarizationOptimizer, closed again after the test")

    @pytest.fixture
    def executed_factors(self) -> Callable[[], Sequence[float]]:
        """A function that returns the factors of all steps made so far, without using the driver."""
        skip_without_fixture("executed_factors", "a function that returns the factor of every step the optimizer made")

    # -- tests

    def test_the_settling_time_is_finite(self, driver: PolarizationOptimizer) -> None:
        """``settle_s`` lies between 0 and 60 s."""
        expect(0.0 <= driver.settle_s < 60.0, f"the settling time is {driver.settle_s} s")

    def test_every_factor_is_a_step(
        self, driver: PolarizationOptimizer, executed_factors: Callable[[], Sequence[float]]
    ) -> None:
        """Each call of ``improve`` makes exactly one step with the given factor."""
        factors = (100.0, 73.25, 1.0, 0.01, 3.3e-5)
        driver.start()
        for factor in factors:
            driver.improve(factor)
        driver.stop()
        executed = tuple(executed_factors())
        expect(len(executed) == len(factors), f"{len(factors)} factors were sent, but {len(executed)} steps were made")
        for factor, actual in zip(factors, executed, strict=True):
            expect(
                abs(actual - factor) <= _RELATIVE_TOLERANCE * factor,
                f"sent {factor:g}, but the optimizer used {actual:g}",
            )

    @pytest.mark.parametrize("factor", [0.0, -1.0, 100.1, float("nan"), float("inf"), float("-inf")])
    def test_an_invalid_factor_is_rejected_without_a_step(
        self, driver: PolarizationOptimizer, factor: float, executed_factors: Callable[[], Sequence[float]]
    ) -> None:
        """A factor that is not above 0 and at most 100 is rejected, and no step is made."""
        driver.start()
        expect_error(LimitError, f"a factor of {factor}", partial(driver.improve, factor))
        expect(not executed_factors(), f"a factor of {factor} was rejected, but a step was made")

    def test_stopping_twice_is_harmless(self, driver: PolarizationOptimizer) -> None:
        """A second ``stop`` has no effect, also before the first start."""
        driver.stop()
        driver.start()
        driver.stop()
        driver.stop()

    def test_it_starts_again_after_a_stop(
        self, driver: PolarizationOptimizer, executed_factors: Callable[[], Sequence[float]]
    ) -> None:
        """The optimizer can be started again after a stop."""
        for _ in range(2):
            driver.start()
            driver.improve(10.0)
            driver.stop()
        expect(len(executed_factors()) == 2, f"two steps were requested, but {len(executed_factors())} were made")

    @on_wires_only
    def test_two_threads_share_the_driver(
        self, driver: PolarizationOptimizer, clock: Clock, executed_factors: Callable[[], Sequence[float]]
    ) -> None:
        """Each factor sent by two threads makes exactly one step."""
        driver.start()

        def improve(factor: float) -> None:
            for _ in range(_SHARED_ROUNDS):
                driver.improve(factor)

        run_parallel(clock, partial(improve, 20.0), partial(improve, 80.0))
        executed = sorted(round(factor) for factor in executed_factors())
        expect(executed == [20] * _SHARED_ROUNDS + [80] * _SHARED_ROUNDS, f"the steps made are {executed}")
