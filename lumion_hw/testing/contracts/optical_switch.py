"""Contract tests for optical switches."""

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
    expect,
    expect_error,
    fail_without_fixture,
    on_wires_only,
    run_parallel,
    skip_without_fixture,
)

_SHARED_ROUNDS = 4


class OpticalSwitchContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.OpticalSwitch` with at least three inputs and three outputs.

    Required fixture: ``driver`` (open). Optional: ``actual_connections``, and those of :class:`DeviceContract`.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "connections": lambda driver: driver.connections(),
        "connect": lambda driver: driver.connect({}),
        "set_connections": lambda driver: driver.set_connections({}),
    }

    def observe(self, driver: Any) -> object:
        """Return the active connections."""
        return dict(driver.connections())

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> OpticalSwitch:
        """An open driver."""
        fail_without_fixture("driver", "an open OpticalSwitch, closed again after the test")

    @pytest.fixture
    def actual_connections(self) -> Callable[[], Mapping[int, int]]:
        """A function that returns the actual connections, as a mapping from input port to output port."""
        skip_without_fixture("actual_connections", "a function that returns the output port of each connected input")

    # -- tests

    def test_it_describes_its_ports(self, driver: OpticalSwitch) -> None:
        """No port of the switch is both input and output."""
        expect(bool(driver.model), "the model name is empty")
        ports = driver.ports
        expect(
            len(ports.inputs) >= 3 and len(ports.outputs) >= 3,
            f"the switch needs three inputs and outputs, but has {ports}",
        )
        expect(not set(ports.inputs) & set(ports.outputs), f"a port is both input and output: {ports}")

    def test_connect_adds_to_existing_connections(self, driver: OpticalSwitch) -> None:
        """``connect`` keeps existing connections; repeating one of them is allowed."""
        first, second, third = self._pairs(driver)
        driver.set_connections(first)
        driver.connect(second)
        self._check(driver, first | second)
        driver.connect(first | third)
        self._check(driver, first | second | third)

    def test_a_port_in_use_is_refused_and_nothing_changes(self, driver: OpticalSwitch) -> None:
        """A connection to an input or output in use is rejected, and nothing changes."""
        first, second, third = self._pairs(driver)
        driver.set_connections(first | second)
        (entry, output), (other_entry, other_out), (free_entry, free_out) = (
            *first.items(),
            *second.items(),
            *third.items(),
        )
        for wanted in (
            {entry: free_out},
            {free_entry: other_out},
            {entry: other_out},
            {free_entry: free_out} | {other_entry: output},
        ):
            expect_error(BusyError, f"{wanted}", partial(driver.connect, wanted))
        self._check(driver, first | second)

    def test_ports_that_are_not_there_are_refused_and_nothing_changes(self, driver: OpticalSwitch) -> None:
        """Unknown ports, ports of the wrong side, and two inputs for one output are rejected."""
        first, second, _ = self._pairs(driver)
        driver.set_connections(first)
        entry, output = next(iter(second.items()))
        other = driver.ports.inputs[2]
        for wanted in (
            {output: entry},
            {entry: max(driver.ports.outputs) + 1},
            {0: output},
            {entry: output, other: output},
        ):
            for make in (driver.connect, driver.set_connections):
                expect_error(ConfigError, f"{wanted}", partial(make, wanted))
        expect_error(ConfigError, "no such input", lambda: driver.disconnect([0]))
        self._check(driver, first)

    def test_disconnect_removes_only_the_named_inputs(self, driver: OpticalSwitch) -> None:
        """``disconnect`` keeps other connections and ignores unconnected inputs."""
        first, second, third = self._pairs(driver)
        driver.set_connections(first | second)
        driver.disconnect([*first, *third])
        self._check(driver, second)

    def test_set_connections_replaces_all_others(self, driver: OpticalSwitch) -> None:
        """``set_connections`` removes all other connections."""
        first, second, _ = self._pairs(driver)
        driver.set_connections(first | second)
        crossed = dict(zip(sorted(first | second), sorted((first | second).values(), reverse=True), strict=True))
        driver.set_connections(crossed)
        self._check(driver, crossed)
        driver.set_connections({})
        self._check(driver, {})

    def test_the_light_follows(
        self, driver: OpticalSwitch, actual_connections: Callable[[], Mapping[int, int]]
    ) -> None:
        """When a call returns, the light follows the connections."""
        first, second, third = self._pairs(driver)
        driver.set_connections(first)
        driver.connect(second | third)
        driver.disconnect(list(second))
        expect(
            dict(actual_connections()) == first | third,
            f"{first | third} was set, but the light follows {dict(actual_connections())}",
        )

    @on_wires_only
    def test_two_threads_share_the_driver(self, driver: OpticalSwitch, clock: Clock) -> None:
        """While one thread sets connections, another reads only connections that were set."""
        first, second, _ = self._pairs(driver)
        wanted = [first, second]
        driver.set_connections(wanted[1])

        def set_values() -> None:
            for round_ in range(_SHARED_ROUNDS):
                driver.set_connections(wanted[round_ % 2])

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                connections = dict(driver.connections())
                expect(connections in wanted, f"{connections} was read, but was never set")

        run_parallel(clock, set_values, read)

    def test_closing_leaves_the_connections(
        self, driver: OpticalSwitch, actual_connections: Callable[[], Mapping[int, int]]
    ) -> None:
        """``close`` does not change the connections."""
        first, second, _ = self._pairs(driver)
        driver.set_connections(first | second)
        driver.close()
        expect(
            dict(actual_connections()) == first | second,
            f"after close() the connections are {dict(actual_connections())}",
        )

    # -- helpers

    def _pairs(self, driver: OpticalSwitch) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
        ports = driver.ports
        return (
            {ports.inputs[0]: ports.outputs[1]},
            {ports.inputs[1]: ports.outputs[-1]},
            {ports.inputs[-1]: ports.outputs[0]},
        )

    def _check(self, driver: OpticalSwitch, wanted: Mapping[int, int]) -> None:
        connections = dict(driver.connections())
        expect(connections == wanted, f"expected {dict(wanted)}, but {connections} is read back")
