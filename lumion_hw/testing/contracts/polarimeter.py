"""What a polarimeter promises: a state of one instant or an error, and settings that are in force."""

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
    fail_without_fixture,
    on_wires_only,
    promised,
    refused,
    run_parallel,
    skip_without_fixture,
)

Shine = Callable[[float, tuple[float, float, float], float], None]
"""Sets the light: power in W, state on the sphere, degree of polarization."""

_STATES = ((1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 1.0), (0.48, -0.6, 0.64))
_POWER_W = 1e-4
_SHARED_ROUNDS = 4


class PolarimeterContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.Polarimeter`.

    Fixture to give: ``driver`` (open). Optional: ``shine``, and those of :class:`DeviceContract`.

    Attributes:
        frequency_thz: A frequency it can be set to.
        averaging_s: An averaging time it can be set to, roughly.
        sop_tolerance_rad: Largest error of a state.
        dop_tolerance: Largest error of the degree of polarization.
        power_tolerance_db: Largest error of the power.
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
        """Return the present state."""
        return driver.read()

    def agree(self, before: Any, after: Any) -> bool:
        """Tell whether two readings are of the same light."""
        return self._differs(after, before.power_w, before.stokes, before.dop) is None

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> Polarimeter:
        """An open driver; there is light that can be measured."""
        fail_without_fixture("driver", "an open Polarimeter with measurable light, closed again after the test")

    @pytest.fixture
    def shine(self) -> Shine:
        """Sets the light that arrives."""
        skip_without_fixture(
            "shine", "a function that sets the light: power in W, state (S1, S2, S3), degree of polarization"
        )

    # -- promises

    @pytest.mark.parametrize("state", _STATES)
    @pytest.mark.parametrize("dop", [1.0, 0.5])
    def test_it_reads_the_light_that_arrives(
        self, driver: Polarimeter, shine: Shine, state: tuple[float, float, float], dop: float
    ) -> None:
        """Power, state on the sphere and degree of polarization are those of the light."""
        shine(_POWER_W, state, dop)
        reading = driver.read()
        promised(reading.stokes.shape == (3,), f"a state has the shape {reading.stokes.shape}")
        length = float(np.linalg.norm(reading.stokes))
        promised(abs(length - 1.0) < 1e-6, f"a state is a point on the sphere, this one lies at {length:.6f}")
        wrong = self._differs(reading, _POWER_W, np.array(state), dop)
        promised(wrong is None, f"{state} with {dop:.0%} polarized was sent; {wrong}")

    def test_a_reading_is_of_light_after_the_call(self, driver: Polarimeter, shine: Shine) -> None:
        """Light that changed before the call is not averaged with what was before."""
        for state in _STATES * 2:
            shine(_POWER_W, state, 1.0)
            wrong = self._differs(driver.read(), _POWER_W, np.array(state), 1.0)
            promised(wrong is None, f"the light was changed to {state} before the call; {wrong}")

    def test_readings_know_when_they_were_taken(self, driver: Polarimeter, clock: Clock) -> None:
        """Times are those of the clock, and rise."""
        before = clock.now()
        first, second = driver.read().time_s, driver.read().time_s
        promised(before <= first <= second <= clock.now(), f"read at {first} and {second}, called after {before}")

    @pytest.mark.parametrize("power_w", [1e-9, 1.0])
    def test_light_outside_the_range_is_an_error_and_no_number(
        self, driver: Polarimeter, shine: Shine, power_w: float
    ) -> None:
        """Far too little and far too much light are told apart from a state; afterwards readings are right again."""
        shine(power_w, _STATES[0], 1.0)
        refused(DeviceError, f"light of {power_w:g} W", driver.read)
        shine(_POWER_W, _STATES[3], 1.0)
        wrong = self._differs(driver.read(), _POWER_W, np.array(_STATES[3]), 1.0)
        promised(wrong is None, f"after light outside the range {wrong}")

    def test_a_frequency_set_is_in_force(self, driver: Polarimeter) -> None:
        """What is returned is what the instrument has, near what was asked for."""
        found_thz = driver.set_frequency_thz(self.frequency_thz)
        promised(
            abs(found_thz - self.frequency_thz) < 0.1, f"{self.frequency_thz} THz was set, {found_thz} is in force"
        )

    def test_an_averaging_time_set_is_in_force(self, driver: Polarimeter) -> None:
        """What is returned is the nearest that the instrument has, and setting that changes nothing."""
        found_s = driver.set_averaging_s(self.averaging_s)
        promised(found_s > 0.0, f"{self.averaging_s} s was set, {found_s} s is in force")
        again_s = driver.set_averaging_s(found_s)
        promised(abs(again_s - found_s) <= 1e-9 * found_s, f"{found_s} s was in force, set again it became {again_s} s")

    def test_it_tells_its_settings_and_their_limits(self, driver: Polarimeter) -> None:
        """``settings`` are those in force; the ends of ``limits`` are taken, and nothing beyond them."""
        limits = driver.limits()
        for thz, averaging_s in zip(limits.frequency_thz, limits.averaging_s, strict=True):
            in_force = (driver.set_frequency_thz(thz), driver.set_averaging_s(averaging_s))
            found = driver.settings()
            promised(
                math.isclose(found.frequency_thz, in_force[0]) and math.isclose(found.averaging_s, in_force[1]),
                f"{in_force} is in force, settings() says {found}",
            )
        beyond_thz, beyond_s = limits.frequency_thz[1] + 0.1, 1.1 * limits.averaging_s[1]
        refused(LimitError, f"{beyond_thz} THz", lambda: driver.set_frequency_thz(beyond_thz))
        refused(LimitError, f"{beyond_s} s", lambda: driver.set_averaging_s(beyond_s))

    @pytest.mark.parametrize("value", [0.0, -1.0, 1e6, float("nan"), float("inf")])
    def test_settings_outside_their_range_are_refused_and_nothing_changes(
        self, driver: Polarimeter, value: float
    ) -> None:
        """Neither negative nor endless, nor beyond what the instrument has."""
        before = driver.read()
        refused(LimitError, f"{value} THz", partial(driver.set_frequency_thz, value))
        refused(LimitError, f"{value} s", partial(driver.set_averaging_s, value))
        promised(self.agree(before, driver.read()), "a refused setting changed the readings")

    @on_wires_only
    def test_two_threads_share_it(self, driver: Polarimeter, clock: Clock) -> None:
        """While one thread reads, another sets."""
        before = driver.read()

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                found = driver.read()
                promised(self.agree(before, found), f"{before} became {found} while another thread was setting")

        def set_it() -> None:
            for _ in range(_SHARED_ROUNDS):
                driver.set_averaging_s(self.averaging_s)

        run_parallel(clock, read, set_it)

    def _differs(
        self, reading: PolarizationReading, power_w: float, stokes: np.ndarray[Any, Any], dop: float
    ) -> str | None:
        """Return in words by what a reading differs from light, ``None`` if by nothing."""
        off_db = abs(10.0 * float(np.log10(reading.power_w / power_w)))
        off_rad = float(np.arccos(np.clip(reading.stokes @ stokes / np.linalg.norm(stokes), -1.0, 1.0)))
        if off_db > self.power_tolerance_db:
            return f"the power read is {reading.power_w:g} W, not {power_w:g} W"
        if off_rad * dop > self.sop_tolerance_rad:
            return f"the state read is {reading.stokes}, {off_rad:.3f} rad away"
        if abs(reading.dop - dop) > self.dop_tolerance:
            return f"the degree of polarization read is {reading.dop:.3f}, not {dop:.3f}"
        return None
