"""What a transponder of several data paths promises: each is switched and reported without touching the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from lumion_hw.errors import ConfigError, DeviceError
from lumion_hw.interfaces import BreakoutTransponder
from lumion_hw.testing.contracts.common import (
    DeviceContract,
    fail_without_fixture,
    promised,
    refused,
    skip_without_fixture,
)


class BreakoutTransponderContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.BreakoutTransponder`.

    Fixture to give: ``driver``. Optional: ``launched_w``, and those of :class:`DeviceContract`.

    Attributes:
        application: AppSel code of an application that can run several times side by side, on light of its own.
        lock_s: Time from light at the receivers to a lock.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "path": lambda driver: driver.path(1).status(),
        "select": lambda driver: driver.path(1).select_application(1),
        "enable": lambda driver: driver.path(1).enable(),
        "disable": lambda driver: driver.path(1).disable(),
    }
    application: ClassVar[int] = 2
    lock_s: ClassVar[float] = 5.0

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> BreakoutTransponder:
        """An open driver of a module that is powered up and dark."""
        fail_without_fixture("driver", "an open BreakoutTransponder, powered up and dark, closed again after the test")

    @pytest.fixture
    def launched_w(self) -> Callable[[int], float]:
        """Returns the power that really leaves the path from a host lane, in watts."""
        skip_without_fixture("launched_w", "a function that measures what the path from a host lane launches, in watts")

    @pytest.fixture
    def starts(self, driver: BreakoutTransponder) -> tuple[int, ...]:
        """The first host lanes of the application."""
        offered = {item.number: item.first_host_lanes for item in driver.capabilities().applications}
        starts = offered.get(self.application, ())
        promised(len(starts) > 1, f"application {self.application} cannot run several times: it begins on {starts}")
        return starts

    # -- one path after the other

    def test_each_path_comes_up_and_goes_dark_alone(
        self, driver: BreakoutTransponder, starts: tuple[int, ...], launched_w: Callable[[int], float]
    ) -> None:
        """One path after the other is selected, switched on and off; light follows, on this path alone."""
        for start in starts:
            driver.path(start).select_application(self.application)
        for start in starts:
            path = driver.path(start)
            path.enable()
            lit = [each for each in starts if launched_w(each) > 0.0]
            promised(lit == [start], f"the path from host lane {start} was switched on; light leaves {lit}")
            promised(not path.status().tx_disabled, f"the path from host lane {start} launches light as disabled")
            promised(not driver.status().tx_disabled, "a path launches light, the module says that it is disabled")
            others = [each for each in starts if each != start and not driver.path(each).status().tx_disabled]
            promised(not others, f"the paths from host lanes {others} are dark and say that they are on")
            path.disable()
            promised(launched_w(start) == 0.0, f"disable() of the path from host lane {start} returned with light")
            promised(driver.status().tx_disabled, "all paths are dark, the module says that it is on")

    def test_switching_one_path_leaves_the_light_of_others(
        self, driver: BreakoutTransponder, starts: tuple[int, ...], launched_w: Callable[[int], float]
    ) -> None:
        """Selecting, enabling and disabling one path changes the light of no other path."""
        for start in starts:
            driver.path(start).select_application(self.application)
        driver.enable()
        one, *others = starts
        before_w = {start: launched_w(start) for start in others}
        promised(min(before_w.values()) > 0.0, f"enable() of the module left paths dark: {before_w}")
        for name, act in (
            ("disable", driver.path(one).disable),
            ("enable", driver.path(one).enable),
            ("select_application", lambda: driver.path(one).select_application(self.application)),
        ):
            act()
            after_w = {start: launched_w(start) for start in others}
            promised(after_w == before_w, f"{name}() of the path from host lane {one} changed the light of others")

    def test_the_module_switches_all_paths(
        self, driver: BreakoutTransponder, starts: tuple[int, ...], launched_w: Callable[[int], float]
    ) -> None:
        """``disable`` of the module darkens every path, whichever way it was switched on."""
        for start in starts:
            driver.path(start).select_application(self.application)
            driver.path(start).enable()
        driver.disable()
        lit = [start for start in starts if launched_w(start) > 0.0]
        promised(not lit, f"disable() of the module left the paths from host lanes {lit} lit")

    def test_each_path_says_how_it_is_set(self, driver: BreakoutTransponder, starts: tuple[int, ...]) -> None:
        """Settings of a path are its own; those of the module name all paths by their first host lanes."""
        for start in starts:
            driver.path(start).select_application(self.application)
        driver.path(starts[-1]).enable()
        promised(
            dict(driver.settings().applications) == dict.fromkeys(starts, self.application),
            f"{driver.settings()} lacks a path",
        )
        for start in starts:
            settings = driver.path(start).settings()
            promised(dict(settings.applications) == {start: self.application}, f"a path with {settings}")
            promised(settings.enabled is (start == starts[-1]), f"the path from host lane {start} has {settings}")

    # -- refusals

    def test_a_path_without_application_is_refused(self, driver: BreakoutTransponder, starts: tuple[int, ...]) -> None:
        """A path is switched on only with an application; one that cannot be is refused by name."""
        driver.path(starts[0]).select_application(self.application)
        refused(DeviceError, "enable() without application", driver.path(starts[-1]).enable)
        refused(ConfigError, "a path from host lane 0", lambda: driver.path(0))

    def test_closing_a_path_closes_nothing(
        self, driver: BreakoutTransponder, starts: tuple[int, ...], launched_w: Callable[[int], float]
    ) -> None:
        """``close`` of a path leaves the module open, and its transmitter as it is."""
        path = driver.path(starts[0])
        path.select_application(self.application)
        path.enable()
        path.close()
        promised(launched_w(starts[0]) > 0.0, "close() of a path switched it off")
        promised(not driver.status().tx_disabled, "the module cannot be read after close() of a path")
