"""Contract tests for polarimeters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from lumion_hw.clock import Clock
from lumion_hw.errors import DeviceError, LimitError
from lumion_hw.interfaces import Polarimeter, PolarizationReading
from lumion_hw.testing.contracts.common import (
    DeviceContract,
    expect,
    expect_error,
    fail_without_fixture,
    on_wires_only,
    run_parallel,
    skip_without_fixture,
)

Shine = Callable[[float, tuple[float, float, float], float], None]
"""A function that sets the light: power in W, state on the Poincaré sphere, degree of polarization."""

_STATES = ((1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 1.0), (0.48, -0.6, 0.64))
_POWER_W = 1e-4
_SHARED_ROUNDS = 4


class PolarimeterContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.Polarimeter`.

    Required fixture: ``driver`` (open). Optional: ``shine``, and those of :class:`DeviceContract`.

    Attributes:
        frequency_thz: A frequency in THz that the polarimeter accepts.
        averaging_s: An averaging time in seconds that the polarimeter accepts.
        sop_tolerance_rad: Largest error of a state of polarization, in radians on the Poincaré sphere.
        dop_tolerance: Largest error of the degree of polarization.
        power_tolerance_db: Largest error of the power, in dB.
    """

    frequency_thz: ClassVar[float] = 193.4
    averaging_s: ClassVar[float] = 1e-3
    sop_tolerance_rad: ClassVar[float] = 0.02
    dop_tolerance: ClassVar[float] = 0.02
    power_tolerance_db: ClassVar[float] = 0.3
    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "read": lambda driver: driver.read(),
        "set_frequency_thz": lambda driver: driver.set_frequency_thz(193.4),
        "set_averaging_s": lambda driver: driver.set_averaging_s(1e-3),
        "settings": lambda driver: driver.settings(),
    }

    def observe(self, driver: Any) -> object:
        """Read the present polarization."""
        return driver.read()

    def agree(self, before: Any, after: Any) -> bool:
        """Return whether two readings agree within the tolerances."""
        return self._differs(after, before.power_w, before.stokes, before.dop) is None

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> Polarimeter:
        """An open driver of a polarimeter that receives measurable light."""
        fail_without_fixture("driver", "an open Polarimeter with measurable light, closed again after the test")

    @pytest.fixture
    def shine(self) -> Shine:
        """A function that sets the light at the polarimeter."""
        skip_without_fixture("shine", "a function that sets power (W), state (S1, S2, S3) and degree of polarization")

    # -- tests

    @pytest.mark.parametrize("state", _STATES)
    @pytest.mark.parametrize("dop", [1.0, 0.5])
    def test_it_reads_the_light_that_arrives(
        self, driver: Polarimeter, shine: Shine, state: tuple[float, float, float], dop: float
    ) -> None:
        """Power, state and degree of polarization of a reading match the light."""
        shine(_POWER_W, state, dop)
        reading = driver.read()
        expect(reading.stokes.shape == (3,), f"the Stokes vector has shape {reading.stokes.shape}, not (3,)")
        length = float(np.linalg.norm(reading.stokes))
        expect(abs(length - 1.0) < 1e-6, f"the Stokes vector must have length 1, not {length:.6f}")
        wrong = self._differs(reading, _POWER_W, np.array(state), dop)
        expect(wrong is None, f"the light is {state}, {dop:.0%} polarized; {wrong}")

    def test_a_reading_is_of_light_after_the_call(self, driver: Polarimeter, shine: Shine) -> None:
        """A reading contains no light from before the call."""
        for state in _STATES * 2:
            shine(_POWER_W, state, 1.0)
            wrong = self._differs(driver.read(), _POWER_W, np.array(state), 1.0)
            expect(wrong is None, f"the light was changed to {state} before the call; {wrong}")

    def test_readings_have_times_of_the_clock(self, driver: Polarimeter, clock: Clock) -> None:
        """The time of a reading lies between call and return."""
        before = clock.now()
        first, second = driver.read().time_s, driver.read().time_s
        expect(
            before <= first <= second <= clock.now(),
            f"the readings have times {first} and {second}, but the calls began at {before}",
        )

    @pytest.mark.parametrize("power_w", [1e-9, 1.0])
    def test_light_outside_the_range_is_an_error_and_no_number(
        self, driver: Polarimeter, shine: Shine, power_w: float
    ) -> None:
        """Too little or too much light raises an error."""
        shine(power_w, _STATES[0], 1.0)
        expect_error(DeviceError, f"light of {power_w:g} W", driver.read)
        shine(_POWER_W, _STATES[3], 1.0)
        wrong = self._differs(driver.read(), _POWER_W, np.array(_STATES[3]), 1.0)
        expect(wrong is None, f"after light outside the range: {wrong}")

    def test_a_frequency_set_is_in_force(self, driver: Polarimeter) -> None:
        """``set_frequency_thz`` returns the present frequency, which is close to the requested one."""
        actual_thz = driver.set_frequency_thz(self.frequency_thz)
        expect(
            abs(actual_thz - self.frequency_thz) < 0.1, f"{self.frequency_thz} THz was set, {actual_thz} is in force"
        )

    def test_an_averaging_time_set_is_in_force(self, driver: Polarimeter) -> None:
        """``set_averaging_s`` returns the present averaging time; setting this value again changes nothing."""
        actual_s = driver.set_averaging_s(self.averaging_s)
        expect(actual_s > 0.0, f"{self.averaging_s} s was set, {actual_s} s is in force")
        repeated_s = driver.set_averaging_s(actual_s)
        expect(
            abs(repeated_s - actual_s) <= 1e-9 * actual_s,
            f"the active averaging time is {actual_s} s, set again it became {repeated_s} s",
        )

    def test_settings_and_limits_are_reported(self, driver: Polarimeter) -> None:
        """``settings`` returns the present values; values within the limits are accepted, others rejected."""
        limits = driver.limits()
        for thz, averaging_s in zip(limits.frequency_thz, limits.averaging_s, strict=True):
            in_force = (driver.set_frequency_thz(thz), driver.set_averaging_s(averaging_s))
            settings = driver.settings()
            expect(
                math.isclose(settings.frequency_thz, in_force[0]) and math.isclose(settings.averaging_s, in_force[1]),
                f"{in_force} is active, but settings() returns {settings}",
            )
        outside_thz, outside_s = limits.frequency_thz[1] + 0.1, 1.1 * limits.averaging_s[1]
        expect_error(LimitError, f"{outside_thz} THz", lambda: driver.set_frequency_thz(outside_thz))
        expect_error(LimitError, f"{outside_s} s", lambda: driver.set_averaging_s(outside_s))

    @pytest.mark.parametrize("value", [0.0, -1.0, 1e6, float("nan"), float("inf")])
    def test_settings_outside_their_range_are_refused_and_nothing_changes(
        self, driver: Polarimeter, value: float
    ) -> None:
        """Negative, infinite, NaN and too large settings are rejected."""
        before = driver.read()
        expect_error(LimitError, f"{value} THz", partial(driver.set_frequency_thz, value))
        expect_error(LimitError, f"{value} s", partial(driver.set_averaging_s, value))
        expect(self.agree(before, driver.read()), "a rejected setting changed the readings")

    @on_wires_only
    def test_two_threads_share_the_driver(self, driver: Polarimeter, clock: Clock) -> None:
        """Readings stay correct while another thread sets the averaging time."""
        before = driver.read()

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                reading = driver.read()
                expect(
                    self.agree(before, reading),
                    f"{before} became {reading} while another thread set the averaging time",
                )

        def set_averaging() -> None:
            for _ in range(_SHARED_ROUNDS):
                driver.set_averaging_s(self.averaging_s)

        run_parallel(clock, read, set_averaging)

    def _differs(
        self, reading: PolarizationReading, power_w: float, stokes: np.ndarray[Any, Any], dop: float
    ) -> str | None:
        off_db = abs(10.0 * float(np.log10(reading.power_w / power_w)))
        off_rad = float(np.arccos(np.clip(reading.stokes @ stokes / np.linalg.norm(stokes), -1.0, 1.0)))
        if off_db > self.power_tolerance_db:
            return f"the power read is {reading.power_w:g} W, not {power_w:g} W"
        if off_rad * dop > self.sop_tolerance_rad:
            return f"the state read is {reading.stokes}, {off_rad:.3f} rad away"
        if abs(reading.dop - dop) > self.dop_tolerance:
            return f"the degree of polarization read is {reading.dop:.3f}, not {dop:.3f}"
        return None
