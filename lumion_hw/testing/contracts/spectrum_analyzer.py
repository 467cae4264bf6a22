"""Contract tests for optical spectrum analysers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError, DeviceTimeoutError, LimitError
from lumion_hw.interfaces import Spectrum, SpectrumAnalyzer
from lumion_hw.testing.contracts.common import (
    DeviceContract,
    expect,
    expect_error,
    fail_without_fixture,
    result_or_none,
    skip_without_fixture,
)
from lumion_hw.testing.contracts.tunable_laser import value_in_range


class SpectrumAnalyzerContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.SpectrumAnalyzer`.

    Required fixture: ``driver`` (open). Optional: ``shine``, changes by another session (``change_scale``,
    ``reset``), and those of :class:`DeviceContract`.

    Attributes:
        sweep_s: Longest duration of a sweep, in seconds.
        span_nm: First and last wavelength of the test sweeps, in nm.
        accuracy_db: Largest difference between the power of the light and the peak of its spectrum, in dB.
        accuracy_nm: Largest wavelength error of the peak in nm, in addition to the resolution.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "set_span_nm": lambda driver: driver.set_span_nm(1540.0, 1560.0),
        "set_n_points": lambda driver: driver.set_n_points(501),
        "settings": lambda driver: driver.settings(),
        "sweep": lambda driver: driver.sweep(60.0),
    }
    sweep_s: ClassVar[float] = 60.0
    span_nm: ClassVar[tuple[float, float]] = (1549.0, 1552.0)
    accuracy_db: ClassVar[float] = 1.0
    accuracy_nm: ClassVar[float] = 0.05

    def observe(self, driver: Any) -> object:
        """Return the active settings."""
        return driver.settings()

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> SpectrumAnalyzer:
        """An open driver."""
        fail_without_fixture("driver", "an open SpectrumAnalyzer, closed again after the test")

    @pytest.fixture
    def shine(self) -> Callable[[float, float | None], None]:
        """A function that sets the wavelength (nm) and power (dBm, ``None`` for dark) of the light."""
        skip_without_fixture("shine", "a function that sets wavelength (nm) and power (dBm or None) of the light")

    @pytest.fixture
    def change_scale(self) -> Callable[[], None]:
        """A function that changes the axis units through another session, such as to wavelengths in air."""
        skip_without_fixture("change_scale", "a function by which another session changes the units of the axes")

    @pytest.fixture
    def reset(self) -> Callable[[], None]:
        """A function that resets the analyser through another session, as by ``*RST``."""
        skip_without_fixture("reset", "a function by which another session resets the analyser, as by *RST")

    # -- changes by another session

    def test_scales_changed_by_another_session_give_no_wrong_spectrum(
        self, driver: SpectrumAnalyzer, shine: Callable[[float, float | None], None], change_scale: Callable[[], None]
    ) -> None:
        """After another session changed the axis units, a spectrum is in vacuum nm and dBm, or an error."""
        self._check_after_change(driver, shine, change_scale)

    def test_a_reset_by_another_session_gives_no_wrong_spectrum(
        self, driver: SpectrumAnalyzer, shine: Callable[[float, float | None], None], reset: Callable[[], None]
    ) -> None:
        """After a reset by another session, a spectrum is right or an error."""
        self._check_after_change(driver, shine, reset)

    def _check_after_change(
        self, driver: SpectrumAnalyzer, shine: Callable[[float, float | None], None], change: Callable[[], None]
    ) -> None:
        driver.set_span_nm(*self.span_nm)
        driver.set_resolution_nm(driver.limits().resolutions_nm[2])
        wavelength_nm = value_in_range(self.span_nm, 0.4)
        shine(wavelength_nm, -10.0)
        before = driver.sweep(self.sweep_s)
        change()
        after = result_or_none(lambda: driver.sweep(self.sweep_s))
        if after is None:
            return
        peaks = [
            (float(spectrum.wavelength_nm[peak]), float(spectrum.power_dbm[peak]))
            for spectrum in (before, after)
            for peak in [int(np.nanargmax(spectrum.power_dbm))]
        ]
        off_nm, off_db = (abs(actual - expected) for expected, actual in zip(*peaks, strict=True))
        # A reset may have left a wider span, and so a coarser step.
        step_nm = float(np.diff(after.wavelength_nm).max())
        is_near = off_nm <= self.accuracy_nm + step_nm and off_db <= self.accuracy_db
        expect(
            is_near,
            f"the line was at {peaks[0]} (nm, dBm), but after the change by another session it is at {peaks[1]}",
        )

    # -- tests

    def test_limits_and_settings_are_consistent(self, driver: SpectrumAnalyzer) -> None:
        """The analyser's settings are within its limits."""
        expect(bool(driver.model), "the model name is empty")
        limits, settings = driver.limits(), driver.settings()
        low_nm, high_nm = limits.wavelength_nm
        expect(low_nm <= settings.start_nm < settings.stop_nm <= high_nm, f"{settings} is not within {limits}")
        expect(
            settings.sensitivity in limits.sensitivities,
            f"the sensitivity {settings.sensitivity} is not among the listed ones",
        )
        rising = bool(np.all(np.diff(limits.resolutions_nm) > 0.0))
        expect(
            rising and limits.resolutions_nm[0] > 0.0,
            f"the resolutions must be positive and increasing: {limits.resolutions_nm}",
        )

    def test_a_span_takes_effect_after_any_other(self, driver: SpectrumAnalyzer) -> None:
        """Spans above, below and around the previous span take effect."""
        for start_nm, stop_nm in ((1540.0, 1545.0), (1560.0, 1561.0), (1510.0, 1520.5), (1500.0, 1600.0), self.span_nm):
            driver.set_span_nm(start_nm, stop_nm)
            settings = driver.settings()
            is_near = max(abs(settings.start_nm - start_nm), abs(settings.stop_nm - stop_nm)) < 2e-3
            expect(
                is_near, f"{start_nm} to {stop_nm} nm was set, {settings.start_nm} to {settings.stop_nm} nm is active"
            )

    def test_a_span_outside_the_range_is_refused_and_nothing_changes(self, driver: SpectrumAnalyzer) -> None:
        """Spans outside the limits, reversed spans and NaN are rejected, and nothing changes."""
        driver.set_span_nm(*self.span_nm)
        before = self.observe(driver)
        low_nm, high_nm = driver.limits().wavelength_nm
        for wrong_nm in ((low_nm - 5.0, 1550.0), (1550.0, high_nm + 5.0), (1560.0, 1550.0), (math.nan, 1550.0)):
            error = expect_error(LimitError, f"{wrong_nm} nm", partial(driver.set_span_nm, *wrong_nm))
            expect(error.unit == "nm", f"the unit of the error is {error.unit}, not nm")
        expect(self.observe(driver) == before, "a rejected span changed settings")

    def test_resolutions_and_sensitivities_are_those_it_names(self, driver: SpectrumAnalyzer) -> None:
        """The listed resolutions and sensitivities take effect; all others are rejected."""
        limits = driver.limits()
        for resolution_nm in (limits.resolutions_nm[0], limits.resolutions_nm[-1], limits.resolutions_nm[1]):
            driver.set_resolution_nm(resolution_nm)
            actual_nm = driver.settings().resolution_nm
            expect(abs(actual_nm / resolution_nm - 1.0) < 0.3, f"{resolution_nm} nm was set, {actual_nm} nm is active")
        for sensitivity in (limits.sensitivities[-1], limits.sensitivities[0]):
            driver.set_sensitivity(sensitivity)
            actual = driver.settings().sensitivity
            expect(actual == sensitivity, f"{sensitivity} was set, {actual} is active")
        before = self.observe(driver)
        for wrong_nm in (0.5 * limits.resolutions_nm[0], 3.0 * limits.resolutions_nm[-1], math.nan):
            expect_error(LimitError, f"a resolution of {wrong_nm} nm", partial(driver.set_resolution_nm, wrong_nm))
        expect_error(ConfigError, "an unknown sensitivity", lambda: driver.set_sensitivity("SPLENDID"))
        expect(self.observe(driver) == before, "a rejected setting changed settings")

    def test_a_number_of_points_is_in_force(self, driver: SpectrumAnalyzer) -> None:
        """The number of points takes effect, is rejected outside its limits, and is automatic with ``None``."""
        low, high = driver.limits().n_points
        driver.set_n_points(max(low, 301))
        expect(driver.settings().n_points == max(low, 301), f"301 points set, {driver.settings().n_points} active")
        before = self.observe(driver)
        for wrong in (low - 1, high + 1):
            expect_error(LimitError, f"{wrong} points", partial(driver.set_n_points, wrong))
        expect(self.observe(driver) == before, "a rejected number of points changed settings")
        driver.set_n_points(None)
        expect(driver.settings().n_points is None, "settings() does not report the automatic number of points as None")

    def test_a_sweep_is_of_the_span_that_was_set(self, driver: SpectrumAnalyzer, clock: Clock) -> None:
        """A sweep covers the span with the set number of points, and starts after the call."""
        driver.set_span_nm(*self.span_nm)
        driver.set_n_points(301)
        started_s = clock.now()
        spectrum = driver.sweep(self.sweep_s)
        self._check_shape(spectrum, 301)
        expect(started_s <= spectrum.started_s <= spectrum.ended_s, "the sweep started before its call")

    def test_the_peak_matches_the_light(
        self, driver: SpectrumAnalyzer, shine: Callable[[float, float | None], None]
    ) -> None:
        """The peak of a sweep matches the light; a dark spectrum has no peak."""
        driver.set_span_nm(*self.span_nm)
        driver.set_resolution_nm(0.1)
        driver.set_n_points(601)
        for wavelength_nm, power_dbm in ((1550.2, -10.0), (1551.1, -25.0)):
            shine(wavelength_nm, power_dbm)
            spectrum = driver.sweep(self.sweep_s)
            self._check_shape(spectrum, 601)
            peak = int(np.nanargmax(spectrum.power_dbm))
            off_nm = abs(spectrum.wavelength_nm[peak] - wavelength_nm)
            expect(off_nm <= self.accuracy_nm + 0.1, f"the peak of light at {wavelength_nm} nm is {off_nm:.3f} nm off")
            off_db = abs(spectrum.power_dbm[peak] - power_dbm)
            expect(off_db <= self.accuracy_db, f"the peak of light at {power_dbm} dBm is {off_db:.2f} dB off")
        shine(1551.1, None)
        dark_dbm = driver.sweep(self.sweep_s).power_dbm
        bright = bool(np.any(dark_dbm[np.isfinite(dark_dbm)] > -50.0))
        expect(not bright, "the dark spectrum shows light")
        expect(not np.any(dark_dbm < -150.0), "dark points below -150 dBm must be NaN")

    def test_a_sweep_ends_in_its_time_or_is_stopped(self, driver: SpectrumAnalyzer, clock: Clock) -> None:
        """A sweep ends within its time-out or is stopped; the next sweep is right."""
        driver.set_span_nm(*self.span_nm)
        driver.set_n_points(301)
        for timeout_s in (math.nan, -1.0):
            expect_error(LimitError, f"sweep({timeout_s})", partial(driver.sweep, timeout_s))
        started_s = clock.now()
        try:
            driver.sweep(0.0)
        except DeviceTimeoutError as error:
            expect(bool(error.device and error.address), f"the error does not name the device and its address: {error}")
        expect(
            clock.now() - started_s < self.deadline_s, f"a sweep with time-out 0 s took {clock.now() - started_s:.2f} s"
        )
        self._check_shape(driver.sweep(self.sweep_s), 301)

    def _check_shape(self, spectrum: Spectrum, n_points: int) -> None:
        wavelength_nm, power_dbm = spectrum.wavelength_nm, spectrum.power_dbm
        expect(
            wavelength_nm.shape == power_dbm.shape == (n_points,),
            f"expected {n_points} points, got shape {wavelength_nm.shape}",
        )
        ends_nm = wavelength_nm[0] - self.span_nm[0], wavelength_nm[-1] - self.span_nm[1]
        expect(max(map(abs, ends_nm)) < 0.02, f"the ends of the sweep are {ends_nm} nm off the set span")
        expect(bool(np.all(np.diff(wavelength_nm) > 0.0)), "the wavelengths do not increase")
        expect(not np.any(np.isinf(power_dbm)), "a level is infinite")
