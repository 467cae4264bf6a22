"""What an optical switch promises: the connections that were made, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock
from lumion_hw.errors import BusyError, ConfigError
from lumion_hw.interfaces import OpticalSwitch
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


class OpticalSwitchContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.OpticalSwitch`; of a switch with at least three inputs and outputs.

    Fixture to give: ``driver`` (open). Optional: ``joined``, and those of :class:`DeviceContract`.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "connections": lambda driver: driver.connections(),
        "connect": lambda driver: driver.connect({}),
        "set_connections": lambda driver: driver.set_connections({}),
    }

    def observe(self, driver: Any) -> object:
        """Return the connections in force."""
        return dict(driver.connections())

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> OpticalSwitch:
        """An open driver."""
        fail_without_fixture("driver", "an open OpticalSwitch, closed again after the test")

    @pytest.fixture
    def joined(self) -> Callable[[], Mapping[int, int]]:
        """Tells which inputs the light really leaves from which output."""
        skip_without_fixture(
            "joined", "a function that returns the output at which the light of each input really leaves"
        )

    # -- promises

    def test_it_describes_its_ports(self, driver: OpticalSwitch) -> None:
        """It says what it is, and no port is input and output."""
        promised(bool(driver.model), "it has no model")
        ports = driver.ports
        promised(len(ports.inputs) >= 3 and len(ports.outputs) >= 3, f"its ports are {ports}")
        promised(not set(ports.inputs) & set(ports.outputs), f"a port is input and output: {ports}")

    def test_a_connection_joins_what_it_names_and_leaves_the_others(self, driver: OpticalSwitch) -> None:
        """Connections add up; one that is there already may be made again."""
        first, second, third = self._pairs(driver)
        driver.set_connections(first)
        driver.connect(second)
        self._check(driver, first | second)
        driver.connect(first | third)
        self._check(driver, first | second | third)

    def test_a_port_in_use_is_refused_and_nothing_changes(self, driver: OpticalSwitch) -> None:
        """Light that runs is not taken away by a new connection, of its input or its output."""
        first, second, third = self._pairs(driver)
        driver.set_connections(first | second)
        (entry, out), (other_entry, other_out), (free_entry, free_out) = (
            *first.items(),
            *second.items(),
            *third.items(),
        )
        for wanted in (
            {entry: free_out},
            {free_entry: other_out},
            {entry: other_out},
            {free_entry: free_out} | {other_entry: out},
        ):
            refused(BusyError, f"{wanted}", partial(driver.connect, wanted))
        self._check(driver, first | second)

    def test_ports_that_are_not_there_are_refused_and_nothing_changes(self, driver: OpticalSwitch) -> None:
        """Every port has to be one of its side; one output takes one input."""
        first, second, _ = self._pairs(driver)
        driver.set_connections(first)
        entry, out = next(iter(second.items()))
        other = driver.ports.inputs[2]
        for wanted in ({out: entry}, {entry: max(driver.ports.outputs) + 1}, {0: out}, {entry: out, other: out}):
            for make in (driver.connect, driver.set_connections):
                refused(ConfigError, f"{wanted}", partial(make, wanted))
        refused(ConfigError, "no such input", lambda: driver.disconnect([0]))
        self._check(driver, first)

    def test_disconnecting_parts_only_what_is_named(self, driver: OpticalSwitch) -> None:
        """Others stay; an input that is not connected stays so."""
        first, second, third = self._pairs(driver)
        driver.set_connections(first | second)
        driver.disconnect([*first, *third])
        self._check(driver, second)

    def test_setting_connections_parts_all_others(self, driver: OpticalSwitch) -> None:
        """What is not named is gone, and ports in use may be given anew."""
        first, second, _ = self._pairs(driver)
        driver.set_connections(first | second)
        crossed = dict(zip(sorted(first | second), sorted((first | second).values(), reverse=True), strict=True))
        driver.set_connections(crossed)
        self._check(driver, crossed)
        driver.set_connections({})
        self._check(driver, {})

    def test_the_light_follows(self, driver: OpticalSwitch, joined: Callable[[], Mapping[int, int]]) -> None:
        """When a set returns, the light goes where it was told."""
        first, second, third = self._pairs(driver)
        driver.set_connections(first)
        driver.connect(second | third)
        driver.disconnect(list(second))
        promised(dict(joined()) == first | third, f"{first | third} was set, the light goes {dict(joined())}")

    @on_wires_only
    def test_two_threads_share_it(self, driver: OpticalSwitch, clock: Clock) -> None:
        """While one thread sets, another reads connections that were set."""
        first, second, _ = self._pairs(driver)
        wanted = [first, second]
        driver.set_connections(wanted[1])

        def set_them() -> None:
            for round_ in range(_SHARED_ROUNDS):
                driver.set_connections(wanted[round_ % 2])

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                found = dict(driver.connections())
                promised(found in wanted, f"{found} was read, which nobody set")

        run_parallel(clock, set_them, read)

    def test_closing_leaves_the_connections(
        self, driver: OpticalSwitch, joined: Callable[[], Mapping[int, int]]
    ) -> None:
        """``close`` parts nothing."""
        first, second, _ = self._pairs(driver)
        driver.set_connections(first | second)
        driver.close()
        promised(dict(joined()) == first | second, f"close() left {dict(joined())}")

    # -- in common

    def _pairs(self, driver: OpticalSwitch) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
        """Return three connections that share no port, not in the order of the ports."""
        ports = driver.ports
        return (
            {ports.inputs[0]: ports.outputs[1]},
            {ports.inputs[1]: ports.outputs[-1]},
            {ports.inputs[-1]: ports.outputs[0]},
        )

    def _check(self, driver: OpticalSwitch, wanted: Mapping[int, int]) -> None:
        found = dict(driver.connections())
        promised(found == wanted, f"{dict(wanted)} should be in force, {found} is read back")
