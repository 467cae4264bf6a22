"""What a mesh that takes states promises: whole configurations, nothing wrong sent, no proof where there is none."""

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
    fail_without_fixture,
    on_wires_only,
    promised,
    refused,
    run_parallel,
    skip_without_fixture,
)

_SHARED_ROUNDS = 5
_SETTING: dict[int, PucState] = {0: "cross", 1: "bar"}


class MeshStatesContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.MeshStates`.

    Fixtures to give: ``driver``. Optional: ``in_force``, and those of :class:`DeviceContract`.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "program_states": lambda driver: driver.program_states(_SETTING),
    }

    def observe(self, driver: Any) -> object:
        """Return what is sent for one configuration: there is nothing to be read back."""
        return driver.program_states(_SETTING).line

    @pytest.fixture
    def driver(self) -> MeshStates:
        """A driver, ready."""
        fail_without_fixture("driver", "a MeshStates, ready, closed again after the test")

    @pytest.fixture
    def in_force(self) -> Callable[[], Mapping[int, PucState]]:
        """Tells the state of every unit cell that is active, past the driver."""
        skip_without_fixture("in_force", "a function that returns the states that are really in force, by unit cell")

    def test_it_says_how_many_cells_it_has_and_what_it_lacks(self, driver: MeshStates) -> None:
        """``info`` names the number of unit cells, and what cannot be relied on."""
        info = driver.info
        promised(info.n_pucs > 0, f"this is no number of unit cells: {info}")
        flags = (info.atomic, info.readback, info.watchdog)
        promised(all(isinstance(flag, bool) for flag in flags), f"these are no capabilities: {info}")

    def test_what_is_sent_is_in_force_and_cells_not_named_are_inactive(
        self, driver: MeshStates, in_force: Callable[[], Mapping[int, PucState]]
    ) -> None:
        """Every configuration is a whole one; the empty one switches all cells off."""
        last = driver.info.n_pucs - 1
        every: dict[int, PucState] = {puc: "bar" if puc % 3 else "cross" for puc in range(last + 1)}
        wanted: tuple[dict[int, PucState], ...] = (every, {0: "bar", last: "cross"}, {})
        for states in wanted:
            driver.program_states(states)
            found = dict(in_force())
            promised(found == states, f"{states} was sent, {found} is in force")

    def test_a_submission_is_dated_and_says_what_was_sent(self, driver: MeshStates, clock: Clock) -> None:
        """Sent comes before ended, both by the host's clock; another configuration is another text."""
        before_s = clock.now()
        sent = driver.program_states(_SETTING)
        times_s = [before_s, sent.sent_s, sent.closed_s, clock.now()]
        promised(times_s == sorted(times_s), f"the submission is not dated by the host's clock: {times_s}")
        promised(sent.progress_dropped >= 0, f"this is no count: {sent}")
        other = driver.program_states({0: "bar", 1: "bar"})
        promised(bool(sent.line) and sent.line != other.line, f"two configurations were sent as {sent.line!r}")

    def test_a_cell_that_is_not_there_is_refused_and_nothing_is_sent(
        self, driver: MeshStates, in_force: Callable[[], Mapping[int, PucState]]
    ) -> None:
        """One wrong number refuses the whole configuration."""
        driver.program_states(_SETTING)
        for puc in (-1, driver.info.n_pucs):
            wrong: dict[int, PucState] = {0: "bar", puc: "bar"}
            refused(LimitError, f"unit cell {puc}", partial(driver.program_states, wrong))
        promised(dict(in_force()) == _SETTING, "a refused configuration changed cells")

    def test_what_is_no_state_is_refused_and_nothing_is_sent(
        self, driver: Any, in_force: Callable[[], Mapping[int, PucState]]
    ) -> None:
        """A state is bar or cross; an index is a whole number."""
        driver.program_states(_SETTING)
        for wrong in ({0: "coupling"}, {0: "x"}, {0: None}, {0: 0.5}, {"0": "bar"}, {0.0: "bar"}, {True: "bar"}):
            refused(ConfigError, f"{wrong}", partial(driver.program_states, wrong))
        promised(dict(in_force()) == _SETTING, "a refused configuration changed cells")

    def test_closing_leaves_the_cells_as_they_are(
        self, driver: MeshStates, in_force: Callable[[], Mapping[int, PucState]]
    ) -> None:
        """There is no safe state to go to: circuits outlive the host."""
        driver.program_states(_SETTING)
        driver.close()
        promised(dict(in_force()) == _SETTING, "close() changed cells")

    @on_wires_only
    def test_two_threads_share_it(self, driver: MeshStates, clock: Clock) -> None:
        """Each thread's configurations are whole and its own."""
        settings: tuple[dict[int, PucState], ...] = ({0: "bar"}, {1: "cross"})
        lines = [driver.program_states(each).line for each in settings]
        sent: list[tuple[int, Submission]] = []

        def program(which: int) -> None:
            for _ in range(_SHARED_ROUNDS):
                sent.append((which, driver.program_states(settings[which])))

        run_parallel(clock, partial(program, 0), partial(program, 1))
        promised(all(each.line == lines[which] for which, each in sent), f"configurations were mixed up: {sent}")
