"""What an optical spectrum analyser promises: sweeps of the span that was set, with levels that are numbers or none."""

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
    fail_without_fixture,
    promised,
    refused,
    skip_without_fixture,
    unless_refused,
)
from lumion_hw.testing.contracts.tunable_laser import within


class SpectrumAnalyzerContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.SpectrumAnalyzer`.

    Fixture to give: ``driver`` (open). Optional: ``shine``, what another session can do
    (``change_scale``, ``reset``), and those of :class:`DeviceContract`.

    Attributes:
        sweep_s: Longest time a sweep may take.
        span_nm: First and last wavelength of the sweeps that are tried.
        accuracy_db: Largest difference between the level of light and the peak of its spectrum.
        accuracy_nm: Largest difference between the wavelength of light and of that peak, besides the resolution.
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
        """Return the settings in force."""
        return driver.settings()

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> SpectrumAnalyzer:
        """An open driver."""
        fail_without_fixture("driver", "an open SpectrumAnalyzer, closed again after the test")

    @pytest.fixture
    def shine(self) -> Callable[[float, float | None], None]:
        """Lets light of a wavelength in nm and a power in dBm into the analyser, with ``None`` none at all."""
        skip_without_fixture(
            "shine", "a function that lets light of a wavelength in nm and a power in dBm (or None) in"
        )

    @pytest.fixture
    def change_scale(self) -> Callable[[], None]:
        """Lets another session give the axes other units, such as a linear scale and wavelengths in air."""
        skip_without_fixture("change_scale", "a function by which another session changes the units of the axes")

    @pytest.fixture
    def reset(self) -> Callable[[], None]:
        """Lets another session reset the analyser, as by ``*RST``."""
        skip_without_fixture("reset", "a function by which another session resets the analyser, as by *RST")

    # -- what another session changes

    def test_scales_changed_by_another_session_give_no_wrong_spectrum(
        self, driver: SpectrumAnalyzer, shine: Callable[[float, float | None], None], change_scale: Callable[[], None]
    ) -> None:
        """Wavelengths are nm in vacuum and powers dBm whatever the axes have become, or there is an error."""
        self._look_after(driver, shine, change_scale)

    def test_a_reset_by_another_session_gives_no_wrong_spectrum(
        self, driver: SpectrumAnalyzer, shine: Callable[[float, float | None], None], reset: Callable[[], None]
    ) -> None:
        """After a reset by somebody else a spectrum is right where it has the line, or there is an error."""
        self._look_after(driver, shine, reset)

    def _look_after(
        self, driver: SpectrumAnalyzer, shine: Callable[[float, float | None], None], change: Callable[[], None]
    ) -> None:
        driver.set_span_nm(*self.span_nm)
        driver.set_resolution_nm(driver.limits().resolutions_nm[2])
        wavelength_nm = within(self.span_nm, 0.4)
        shine(wavelength_nm, -10.0)
        before = driver.sweep(self.sweep_s)
        change()
        after = unless_refused(lambda: driver.sweep(self.sweep_s))
        if after is None:
            return
        peaks = [
            (float(each.wavelength_nm[peak]), float(each.power_dbm[peak]))
            for each in (before, after)
            for peak in [int(np.nanargmax(each.power_dbm))]
        ]
        off_nm, off_db = (abs(found - expected) for expected, found in zip(*peaks, strict=True))
        # A reset may have left a wider span, and so a coarser step.
        step_nm = float(np.diff(after.wavelength_nm).max())
        near = off_nm <= self.accuracy_nm + step_nm and off_db <= self.accuracy_db
        promised(near, f"the line was at {peaks[0]} nm and dBm, and is at {peaks[1]} after another session's change")

    # -- promises

    def test_it_describes_itself(self, driver: SpectrumAnalyzer) -> None:
        """It says what it is and what can be set, and is within that."""
        promised(bool(driver.model), "it has no model")
        limits, settings = driver.limits(), driver.settings()
        low_nm, high_nm = limits.wavelength_nm
        promised(low_nm <= settings.start_nm < settings.stop_nm <= high_nm, f"{settings} is not within {limits}")
        promised(settings.sensitivity in limits.sensitivities, f"there is no sensitivity {settings.sensitivity}")
        rising = bool(np.all(np.diff(limits.resolutions_nm) > 0.0))
        promised(rising and limits.resolutions_nm[0] > 0.0, f"the resolutions are {limits.resolutions_nm}")

    def test_a_span_is_in_force_from_wherever_it_was(self, driver: SpectrumAnalyzer) -> None:
        """Spans above, below and around the last one are taken and read back."""
        for start_nm, stop_nm in ((1540.0, 1545.0), (1560.0, 1561.0), (1510.0, 1520.5), (1500.0, 1600.0), self.span_nm):
            driver.set_span_nm(start_nm, stop_nm)
            found = driver.settings()
            near = max(abs(found.start_nm - start_nm), abs(found.stop_nm - stop_nm)) < 2e-3
            promised(near, f"{start_nm} to {stop_nm} nm was set, {found.start_nm} to {found.stop_nm} nm is in force")

    def test_a_span_outside_the_range_is_refused_and_nothing_changes(self, driver: SpectrumAnalyzer) -> None:
        """Limits reject, they never clip; a span rises."""
        driver.set_span_nm(*self.span_nm)
        before = self.observe(driver)
        low_nm, high_nm = driver.limits().wavelength_nm
        for wrong_nm in ((low_nm - 5.0, 1550.0), (1550.0, high_nm + 5.0), (1560.0, 1550.0), (math.nan, 1550.0)):
            error = refused(LimitError, f"{wrong_nm} nm", partial(driver.set_span_nm, *wrong_nm))
            promised(error.unit == "nm", f"the refusal speaks in {error.unit}, the caller in nm")
        promised(self.observe(driver) == before, "a refused span changed settings")

    def test_resolutions_and_sensitivities_are_those_it_names(self, driver: SpectrumAnalyzer) -> None:
        """Each is in force once set, and others are refused."""
        limits = driver.limits()
        for resolution_nm in (limits.resolutions_nm[0], limits.resolutions_nm[-1], limits.resolutions_nm[1]):
            driver.set_resolution_nm(resolution_nm)
            found_nm = driver.settings().resolution_nm
            promised(
                abs(found_nm / resolution_nm - 1.0) < 0.3, f"{resolution_nm} nm was set, {found_nm} nm is in force"
            )
        for sensitivity in (limits.sensitivities[-1], limits.sensitivities[0]):
            driver.set_sensitivity(sensitivity)
            found = driver.settings().sensitivity
            promised(found == sensitivity, f"{sensitivity} was set, {found} is in force")
        before = self.observe(driver)
        for wrong_nm in (0.5 * limits.resolutions_nm[0], 3.0 * limits.resolutions_nm[-1], math.nan):
            refused(LimitError, f"a resolution of {wrong_nm} nm", partial(driver.set_resolution_nm, wrong_nm))
        refused(ConfigError, "a sensitivity there is not", lambda: driver.set_sensitivity("SPLENDID"))
        promised(self.observe(driver) == before, "a refused setting changed settings")

    def test_a_number_of_points_is_in_force(self, driver: SpectrumAnalyzer) -> None:
        """It is read back, left to the analyser with ``None``, and refused outside its limits."""
        low, high = driver.limits().n_points
        driver.set_n_points(max(low, 301))
        promised(driver.settings().n_points == max(low, 301), f"301 was set, {driver.settings().n_points} is in force")
        before = self.observe(driver)
        for wrong in (low - 1, high + 1):
            refused(LimitError, f"{wrong} points", partial(driver.set_n_points, wrong))
        promised(self.observe(driver) == before, "a refused number of points changed settings")
        driver.set_n_points(None)
        promised(driver.settings().n_points is None, "an automatic number of points is not said to be one")

    def test_a_sweep_is_of_the_span_that_was_set(self, driver: SpectrumAnalyzer, clock: Clock) -> None:
        """Its wavelengths rise from one end to the other, as many as were set; it is newer than the call."""
        driver.set_span_nm(*self.span_nm)
        driver.set_n_points(301)
        started_s = clock.now()
        spectrum = driver.sweep(self.sweep_s)
        self._check_shape(spectrum, 301)
        promised(started_s <= spectrum.started_s <= spectrum.ended_s, "the sweep is older than its call")

    def test_light_is_seen_where_and_as_bright_as_it_is(
        self, driver: SpectrumAnalyzer, shine: Callable[[float, float | None], None]
    ) -> None:
        """The peak of a spectrum is that of the light; each sweep sees the light of its time; the dark has no level."""
        driver.set_span_nm(*self.span_nm)
        driver.set_resolution_nm(0.1)
        driver.set_n_points(601)
        for wavelength_nm, power_dbm in ((1550.2, -10.0), (1551.1, -25.0)):
            shine(wavelength_nm, power_dbm)
            spectrum = driver.sweep(self.sweep_s)
            self._check_shape(spectrum, 601)
            peak = int(np.nanargmax(spectrum.power_dbm))
            off_nm = abs(spectrum.wavelength_nm[peak] - wavelength_nm)
            promised(off_nm <= self.accuracy_nm + 0.1, f"light of {wavelength_nm} nm is seen {off_nm:.3f} nm away")
            off_db = abs(spectrum.power_dbm[peak] - power_dbm)
            promised(off_db <= self.accuracy_db, f"light of {power_dbm} dBm is seen {off_db:.2f} dB away")
        shine(1551.1, None)
        dark_dbm = driver.sweep(self.sweep_s).power_dbm
        bright = bool(np.any(dark_dbm[np.isfinite(dark_dbm)] > -50.0))
        promised(not bright, "there is light in a spectrum of the dark")
        promised(not np.any(dark_dbm < -150.0), "the dark has levels that are no levels: NaN was promised")

    def test_a_sweep_ends_in_its_time_or_is_stopped(self, driver: SpectrumAnalyzer, clock: Clock) -> None:
        """The time is a duration; after one that was too short the next sweep is right again."""
        driver.set_span_nm(*self.span_nm)
        driver.set_n_points(301)
        for timeout_s in (math.nan, -1.0):
            refused(LimitError, f"sweep({timeout_s})", partial(driver.sweep, timeout_s))
        started_s = clock.now()
        try:
            driver.sweep(0.0)
        except DeviceTimeoutError as error:
            promised(bool(error.device and error.address), f"the error names no device or no address: {error}")
        promised(clock.now() - started_s < self.deadline_s, f"a sweep of 0 s took {clock.now() - started_s:.2f} s")
        self._check_shape(driver.sweep(self.sweep_s), 301)

    def _check_shape(self, spectrum: Spectrum, n_points: int) -> None:
        wavelength_nm, power_dbm = spectrum.wavelength_nm, spectrum.power_dbm
        promised(wavelength_nm.shape == power_dbm.shape == (n_points,), f"{n_points} points, not {wavelength_nm.shape}")
        ends_nm = wavelength_nm[0] - self.span_nm[0], wavelength_nm[-1] - self.span_nm[1]
        promised(max(map(abs, ends_nm)) < 0.02, f"the sweep ends {ends_nm} nm from where it was set to")
        promised(bool(np.all(np.diff(wavelength_nm) > 0.0)), "the wavelengths do not rise")
        promised(not np.any(np.isinf(power_dbm)), "a level is infinite")
