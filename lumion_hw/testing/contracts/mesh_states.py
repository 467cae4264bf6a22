"""Contract tests for meshes that accept bar and cross states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.interfaces import MeshStates, PucState, Submission
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
_SETTING: dict[int, PucState] = {0: "cross", 1: "bar"}


ReadStates = Callable[[], Mapping[int, PucState]]
"""A function that returns the actual state of every active unit cell."""


class MeshStatesContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.MeshStates`.

    Required fixture: ``driver``. Optional: ``actual_states``, and those of :class:`DeviceContract`.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "program_states": lambda driver: driver.program_states(_SETTING),
    }

    def observe(self, driver: Any) -> object:
        """Return the text sent for one configuration."""
        return driver.program_states(_SETTING).line

    @pytest.fixture
    def driver(self) -> MeshStates:
        """An open driver."""
        fail_without_fixture("driver", "an open MeshStates, closed again after the test")

    @pytest.fixture
    def actual_states(self) -> ReadStates:
        """A function that returns the actual state of every active unit cell, without using the driver."""
        skip_without_fixture("actual_states", "a function that returns the actual states, by unit cell")

    def test_cells_and_capabilities_are_reported(self, driver: MeshStates) -> None:
        """``info`` contains the number of unit cells and the capability flags."""
        info = driver.info
        expect(info.n_pucs > 0, f"the number of unit cells is invalid: {info}")
        flags = (info.atomic, info.readback, info.watchdog)
        expect(all(isinstance(flag, bool) for flag in flags), f"a capability is not a boolean: {info}")

    def test_a_configuration_replaces_the_previous_one(self, driver: MeshStates, actual_states: ReadStates) -> None:
        """A configuration replaces the previous one; an empty one deactivates all cells."""
        last = driver.info.n_pucs - 1
        every: dict[int, PucState] = {puc: "bar" if puc % 3 else "cross" for puc in range(last + 1)}
        configurations: tuple[dict[int, PucState], ...] = (every, {0: "bar", last: "cross"}, {})
        for states in configurations:
            driver.program_states(states)
            actual = dict(actual_states())
            expect(actual == states, f"sent {states}, but {actual} is active")

    def test_a_submission_has_times_and_its_line(self, driver: MeshStates, clock: Clock) -> None:
        """The times of sending and completion are in order, and each configuration has its own text."""
        before_s = clock.now()
        sent = driver.program_states(_SETTING)
        times_s = [before_s, sent.sent_s, sent.closed_s, clock.now()]
        expect(times_s == sorted(times_s), f"the submission times are not on the host's clock: {times_s}")
        expect(sent.progress_dropped >= 0, f"progress_dropped is negative: {sent}")
        other = driver.program_states({0: "bar", 1: "bar"})
        expect(
            bool(sent.line) and sent.line != other.line, f"two different configurations were both sent as {sent.line!r}"
        )

    def test_an_unknown_cell_is_rejected(self, driver: MeshStates, actual_states: ReadStates) -> None:
        """One invalid cell number rejects the whole configuration."""
        driver.program_states(_SETTING)
        for puc in (-1, driver.info.n_pucs):
            wrong: dict[int, PucState] = {0: "bar", puc: "bar"}
            expect_error(LimitError, f"unit cell {puc}", partial(driver.program_states, wrong))
        expect(dict(actual_states()) == _SETTING, "a rejected configuration changed cells")

    def test_an_invalid_state_is_rejected(self, driver: Any, actual_states: ReadStates) -> None:
        """An invalid state or cell number rejects the whole configuration."""
        driver.program_states(_SETTING)
        for wrong in ({0: "coupling"}, {0: "x"}, {0: None}, {0: 0.5}, {"0": "bar"}, {0.0: "bar"}, {True: "bar"}):
            expect_error(ConfigError, f"{wrong}", partial(driver.program_states, wrong))
        expect(dict(actual_states()) == _SETTING, "a rejected configuration changed cells")

    def test_closing_leaves_the_cells_as_they_are(self, driver: MeshStates, actual_states: ReadStates) -> None:
        """``close`` changes no cell."""
        driver.program_states(_SETTING)
        driver.close()
        expect(dict(actual_states()) == _SETTING, "close() changed cells")

    @on_wires_only
    def test_two_threads_share_the_driver(self, driver: MeshStates, clock: Clock) -> None:
        """Configurations that two threads send at the same time are not mixed."""
        settings: tuple[dict[int, PucState], ...] = ({0: "bar"}, {1: "cross"})
        lines = [driver.program_states(setting).line for setting in settings]
        sent: list[tuple[int, Submission]] = []

        def program(which: int) -> None:
            for _ in range(_SHARED_ROUNDS):
                sent.append((which, driver.program_states(settings[which])))

        run_parallel(clock, partial(program, 0), partial(program, 1))
        expect(
            all(receipt.line == lines[which] for which, receipt in sent),
            f"configurations of the two threads were mixed: {sent}",
        )
