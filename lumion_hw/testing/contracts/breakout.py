"""Contract tests for transponders with several data paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from lumion_hw.errors import ConfigError, DeviceError
from lumion_hw.interfaces import BreakoutTransponder
from lumion_hw.testing.contracts.common import (
    DeviceContract,
    expect,
    expect_error,
    fail_without_fixture,
    skip_without_fixture,
)


class BreakoutTransponderContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.BreakoutTransponder`.

    Required fixture: ``driver``. Optional: ``launched_w``, and those of :class:`DeviceContract`.

    Attributes:
        application: Number of an application (AppSel code) that can run in several data paths.
        lock_s: Longest time in seconds from light at the receivers to a lock.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "path": lambda driver: driver.path(1).status(),
        "select": lambda driver: driver.path(1).select_application(1),
        "enable": lambda driver: driver.path(1).enable(),
        "disable": lambda driver: driver.path(1).disable(),
    }
    application: ClassVar[int] = 2
    lock_s: ClassVar[float] = 5.0

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> BreakoutTransponder:
        """An open driver of a module that is powered up and dark."""
        fail_without_fixture("driver", "an open BreakoutTransponder, powered up and dark, closed again after the test")

    @pytest.fixture
    def launched_w(self) -> Callable[[int], float]:
        """A function that measures the launch power, in watts, of a data path, given its first host lane."""
        skip_without_fixture("launched_w", "a function that returns the launch power (W) of the path of a host lane")

    @pytest.fixture
    def first_lanes(self, driver: BreakoutTransponder) -> tuple[int, ...]:
        """First host lanes of all data paths of the application."""
        offered = {item.number: item.first_host_lanes for item in driver.capabilities().applications}
        first_lanes = offered.get(self.application, ())
        expect(
            len(first_lanes) > 1, f"application {self.application} has one data path only, first lanes {first_lanes}"
        )
        return first_lanes

    # -- single paths

    def test_each_path_is_switched_independently(
        self, driver: BreakoutTransponder, first_lanes: tuple[int, ...], launched_w: Callable[[int], float]
    ) -> None:
        """``enable`` and ``disable`` of a path switch the light of this path only."""
        for start in first_lanes:
            driver.path(start).select_application(self.application)
        for start in first_lanes:
            path = driver.path(start)
            path.enable()
            emitting = [lane for lane in first_lanes if launched_w(lane) > 0.0]
            expect(emitting == [start], f"the path of host lane {start} was enabled, but paths {emitting} emit light")
            expect(not path.status().tx_disabled, f"the path of host lane {start} emits light, but reports disabled")
            expect(not driver.status().tx_disabled, "a path emits light, but the module reports disabled")
            other_lanes = [lane for lane in first_lanes if lane != start and not driver.path(lane).status().tx_disabled]
            expect(not other_lanes, f"the paths of host lanes {other_lanes} are dark, but report enabled")
            path.disable()
            expect(launched_w(start) == 0.0, f"the path of host lane {start} still emits light after disable()")
            expect(driver.status().tx_disabled, "all paths are dark, but the module reports enabled")

    def test_switching_one_path_leaves_the_light_of_others(
        self, driver: BreakoutTransponder, first_lanes: tuple[int, ...], launched_w: Callable[[int], float]
    ) -> None:
        """Selecting and switching one path does not change the light of other paths."""
        for start in first_lanes:
            driver.path(start).select_application(self.application)
        driver.enable()
        first_lane, *other_lanes = first_lanes
        before_w = {start: launched_w(start) for start in other_lanes}
        expect(min(before_w.values()) > 0.0, f"enable() of the module left paths dark: {before_w}")
        for name, act in (
            ("disable", driver.path(first_lane).disable),
            ("enable", driver.path(first_lane).enable),
            ("select_application", lambda: driver.path(first_lane).select_application(self.application)),
        ):
            act()
            after_w = {start: launched_w(start) for start in other_lanes}
            expect(
                after_w == before_w, f"{name}() on the path of host lane {first_lane} changed the light of other paths"
            )

    def test_the_module_switches_all_paths(
        self, driver: BreakoutTransponder, first_lanes: tuple[int, ...], launched_w: Callable[[int], float]
    ) -> None:
        """``disable`` of the module switches all paths off."""
        for start in first_lanes:
            driver.path(start).select_application(self.application)
            driver.path(start).enable()
        driver.disable()
        emitting = [start for start in first_lanes if launched_w(start) > 0.0]
        expect(not emitting, f"after disable() of the module the paths of host lanes {emitting} still emit light")

    def test_each_path_reports_its_settings(self, driver: BreakoutTransponder, first_lanes: tuple[int, ...]) -> None:
        """A path reports its own settings; the module lists all paths."""
        for start in first_lanes:
            driver.path(start).select_application(self.application)
        driver.path(first_lanes[-1]).enable()
        expect(
            dict(driver.settings().applications) == dict.fromkeys(first_lanes, self.application),
            f"the settings of the module lack a path: {driver.settings()}",
        )
        for start in first_lanes:
            settings = driver.path(start).settings()
            expect(
                dict(settings.applications) == {start: self.application},
                f"wrong application for the path of host lane {start}: {settings}",
            )
            expect(
                settings.enabled is (start == first_lanes[-1]),
                f"wrong state for the path of host lane {start}: {settings}",
            )

    # -- refusals

    def test_a_path_without_application_is_refused(
        self, driver: BreakoutTransponder, first_lanes: tuple[int, ...]
    ) -> None:
        """A path without application cannot be enabled, and an invalid host lane is rejected."""
        driver.path(first_lanes[0]).select_application(self.application)
        expect_error(DeviceError, "enable() without application", driver.path(first_lanes[-1]).enable)
        expect_error(ConfigError, "a path from host lane 0", lambda: driver.path(0))

    def test_closing_a_path_keeps_the_module_open(
        self, driver: BreakoutTransponder, first_lanes: tuple[int, ...], launched_w: Callable[[int], float]
    ) -> None:
        """``close`` of a path keeps the module open and its transmitters unchanged."""
        path = driver.path(first_lanes[0])
        path.select_application(self.application)
        path.enable()
        path.close()
        expect(launched_w(first_lanes[0]) > 0.0, "close() of a path switched it off")
        expect(not driver.status().tx_disabled, "the module cannot be read after close() of a path")
