"""Draining: an operator takes a healthy server out of service, and a spare takes its place first or nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lumion_hw import Bench
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.fabric import FabricManager, read_fabric
from lumion_hw.fabric.evidence import FailureVerdict
from lumion_hw.fabric.requests import FabricRequest
from tests.fabric.managed_fabric import managed

A_TO_B, A_TO_C = ["sfp-a:sfp-b", "sfp-b:sfp-a"], ["sfp-a:sfp-c", "sfp-c:sfp-a"]


class HookLog:
    """Hooks that note their calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def stop(self, job: str, members: Sequence[str], failed: str) -> None:
        self.calls.append(f"stop {failed}")

    def rebuild(self, job: str, members: Sequence[str]) -> None:
        self.calls.append(f"rebuild {' '.join(members)}")

    def restore(self, job: str, members: Sequence[str]) -> None:
        self.calls.append("restore")

    def resume(self, job: str, members: Sequence[str]) -> None:
        self.calls.append("go")


def standing(manager: FabricManager) -> list[str]:
    return sorted(circuit.name for circuit in manager.service.state.circuits)


def test_a_spare_takes_the_place_of_a_drained_server_and_the_job_goes_on(bench: Bench, tmp_path: Path) -> None:
    hooks, events = HookLog(), dict[str, Any]()
    with managed(bench, tmp_path, hooks=hooks, on_event=events.__setitem__) as manager:
        manager.begin()
        status = FabricRequest("drain", "b", "new memory").perform(manager)
        assert hooks.calls == ["stop b", "rebuild a c", "restore", "go"]
        assert "draining" in events
        assert "verdict" not in events, "a healthy server was reported as failed"
        assert standing(manager) == A_TO_C
        assert [(unit["name"], unit["condition"]) for unit in status["units"]] == [
            ("a", "in service"), ("b", "drained"), ("c", "in service"),
        ]  # fmt: skip
        assert (status["recovery"]["failed"], status["recovery"]["spare"]) == ("b", "c")
        assert status["recovery"]["is_confirmed"] is True
        assert not bench.transponders["sfp-b"].status().tx_fault
        with pytest.raises(ConfigError, match="b is out of service already: new memory"):
            manager.drain("b")
        status = FabricRequest("repaired", "b").perform(manager)
        assert [unit["condition"] for unit in status["units"]] == ["in service", "warm spare", "in service"]
        assert events["repaired"] == {"unit": "b", "words": "b is back as a warm spare"}


def test_a_drained_spare_is_used_no_longer(manager: FabricManager) -> None:
    assert manager.drain("c") is None
    assert standing(manager) == A_TO_B
    assert manager.spares == ()
    assert (dict(manager.state.failed), manager.state.drained) == ({"c": "drained by hand"}, ("c",))
    assert manager.state.broken == ()


def test_without_a_spare_the_server_stays_in_service_and_nothing_changes(manager: FabricManager) -> None:
    manager.drain("c")
    before, told = manager.state, list[str]()
    manager._emit = lambda event, details: told.append(event)
    with pytest.raises(CircuitError, match="b stays in service, because no spare can take its place: the bench file"):
        manager.drain("b")
    assert told[-1] == "not drained"
    assert manager.state == before
    assert standing(manager) == A_TO_B
    manager.check_job_circuits()


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_spare_whose_light_does_not_come_leaves_the_job_as_it_was(
    bench: Bench, tmp_path: Path, is_warm: bool
) -> None:
    hooks = HookLog()
    with managed(bench, tmp_path, hooks=hooks) as manager:
        manager.begin()
        if not is_warm:
            manager.service.disconnect(["sfp-c:sfp-c"])
            manager.plan()
        bench.emulated.faults.kill_port(_port(bench, "sfp-c"))
        with pytest.raises(CircuitError, match=r"b stays in service.*c: "):
            manager.drain("b")
        assert [name for name in standing(manager) if name != "sfp-c:sfp-c"] == A_TO_B
        assert hooks.calls == ["stop b", "rebuild a b", "restore", "go"]
        assert (manager.state.places, manager.state.failed) == ({}, {})
        manager.check_job_circuits()


def _port(bench: Bench, module: str) -> int:
    return next(path.port for path in bench.wiring.inputs if path.transponder == module)


def test_a_drain_that_a_killed_manager_began_is_withdrawn_by_the_next(bench: Bench, tmp_path: Path) -> None:
    with managed(bench, tmp_path) as first:
        first.begin()
        now_s = bench.clock.now()
        first.journal.begin(FailureVerdict("unit", "b", "drain", "new memory", now_s, now_s, ("operator",)))
    with managed(bench, tmp_path) as second:
        second.begin()
        assert second.state.open is None
        assert (second.state.failed, second.state.places) == ({}, {})
        assert "sfp-a:sfp-b" in standing(second)
    assert read_fabric(tmp_path)[1][-1]["outcome"] == "withdrawn"


@pytest.mark.parametrize(("unit", "words"), [("x", "there is no server 'x'"), ("", "there is no server ''")])
def test_an_unknown_server_is_refused_by_name(manager: FabricManager, unit: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        FabricRequest("drain", unit).perform(manager)


def test_a_fault_of_the_controller_is_cleared_and_the_circuits_are_proven_again(manager: FabricManager) -> None:
    manager.bench.mesh.controller.outputs_off()
    with pytest.raises(ConfigError, match="no latched fault has the name or id 'WATCHDOG'"):
        FabricRequest("clear", "WATCHDOG").perform(manager)
    status = FabricRequest("clear", "ESTOP").perform(manager)
    assert status["severity"] == "none"
    assert standing(manager) == [*A_TO_B, "sfp-c:sfp-c"]
