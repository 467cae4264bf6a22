"""A PUC that breaks where a circuit has no other path: its readings name the PUC, and no healthy server is blamed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.errors import DeviceError
from lumion_hw.fabric import FabricManager, FailureVerdict
from lumion_hw.fabric.detectors.light import Modules
from tests.fabric.chaos import photodiodes
from tests.fabric.managed_fabric import SMALL, managed

PORT_OF_B = 6
AT_RECEIVER, ON_PATH, OF_SPARE = 14, 2, 13
"""PUCs on the paths of sfp-a to sfp-b (0 1 2 3 4 8 14) and of the spare's loop, which have no other path."""


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[FabricManager]:
    with (
        Bench.emulate(SMALL, seed=3) as bench,
        managed(bench, tmp_path, detectors=[photodiodes(), Modules()]) as manager,
    ):
        manager.begin()
        manager.run(1.0)
        yield manager


def break_puc(manager: FabricManager, puc: int) -> None:
    manager.bench.emulated.faults.inject("bench", "stick_heater", puc=puc, arm=1, current_ma=0.0)


def mend_puc(manager: FabricManager, puc: int) -> None:
    world = manager.bench.emulated.world
    world.about_to_change()
    del world.truth.stuck_current_ma[2 * puc + 1]
    world.disturb()


def conditions(manager: FabricManager) -> dict[str, str]:
    status = manager.status
    assert status is not None
    return {unit.name: unit.condition for unit in status.units}


def test_a_puc_at_the_port_of_a_receiver_moves_the_receiver_and_blames_nobody(watched: FabricManager) -> None:
    break_puc(watched, AT_RECEIVER)
    (recovery,) = watched.run(4.0)
    assert (recovery.failed, recovery.spare) == ("b", "c")
    assert watched.state.broken == ()
    assert conditions(watched) == {"a": "in service", "b": "cut off", "c": "in service"}
    assert watched.state.failed["b"] == (
        "sfp-a:sfp-b is dark and has no other path: PUC 14 does not reach its state, perhaps half way"
    )
    assert all(proof.proven for proof in watched.confirm())
    watched.mark_repaired("b")
    assert conditions(watched)["b"] == "cold spare", "its own receiver is still behind the broken PUC"
    assert "PUC 14 does not reach its state" in watched.state.cold["b"]


def test_a_puc_inside_the_mesh_without_a_way_around_blames_nobody(watched: FabricManager) -> None:
    break_puc(watched, ON_PATH)
    (recovery,) = watched.run(4.0)
    assert recovery.spare == "c"
    assert watched.state.broken == ()
    assert "PUC 2 does not reach its state" in watched.state.failed[recovery.failed]
    assert all(proof.proven for proof in watched.confirm())


def test_a_puc_that_only_a_spare_needs_makes_the_spare_cold_and_not_failed(watched: FabricManager) -> None:
    break_puc(watched, OF_SPARE)
    assert watched.run(4.0) == []
    assert watched.state.failed == {}
    assert conditions(watched) == {"a": "in service", "b": "in service", "c": "cold spare"}
    assert "PUC 13 does not reach its state" in watched.state.cold["c"]


def test_a_broken_fibre_before_the_mesh_costs_the_server_that_sends_into_it(watched: FabricManager) -> None:
    watched.bench.emulated.faults.kill_port(PORT_OF_B)
    (recovery,) = watched.run(6.0)
    assert (recovery.failed, recovery.spare, watched.state.broken) == ("b", "c", ("b",))
    assert watched.state.failed["b"].endswith("none of it leaves the mesh: port 6 or its fibre is dead")


def test_without_a_usable_spare_the_job_is_refused_for_the_puc_and_comes_back_when_it_works(
    watched: FabricManager, monkeypatch
) -> None:
    monkeypatch.setattr(watched.standby, "plans_for", lambda *_: ())
    break_puc(watched, AT_RECEIVER)
    assert watched.run(4.0) == []
    assert watched.state.failed == {}
    assert "PUC 14 does not reach its state" in watched.state.refused["a-b"]
    mend_puc(watched, AT_RECEIVER)
    watched.run(60.0)
    assert watched.state.refused == {}
    assert all(proof.proven for proof in watched.confirm())


def test_a_module_that_fails_during_the_diagnosis_leaves_both_suspects(watched: FabricManager, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise DeviceError("sfp-a did not answer")

    monkeypatch.setattr(type(watched.service), "diagnose", fail)
    break_puc(watched, AT_RECEIVER)
    (recovery,) = watched.run(4.0)
    assert watched.state.broken == ()
    assert watched.state.failed[recovery.failed] == (
        "sfp-a:sfp-b is dark and has no other path: a, its fibre or one of PUCs 0 1 2 3 4 8 14 has failed "
        "(no diagnosis: sfp-a did not answer). To find out, exchange the fibres of a and another server: if the fault "
        "moves with a, a has failed"
    )


def test_the_next_manager_finds_that_a_killed_one_had_moved_the_end_of_a_circuit(tmp_path: Path) -> None:
    with Bench.emulate(SMALL, seed=3) as bench:
        with managed(bench, tmp_path) as first:
            first.begin()
            now_s = bench.clock.now()
            broken = FailureVerdict("end", "sfp-a:sfp-b", "light", "PUC 14", now_s, now_s, ("photodiodes",), (), (14,))
            first.journal.begin(broken)
            (plan,) = first.standby.plans["b"]
            assert plan.plan is not None
            first.service.switch(plan.plan)
        with managed(bench, tmp_path) as second:
            assert second.begin() is None
            assert (second.state.places, second.state.cut_off, second.state.open) == ({"b": "c"}, ("b",), None)


def test_the_next_manager_goes_on_with_a_diagnosis_in_which_one_was_killed(tmp_path: Path) -> None:
    with Bench.emulate(SMALL, seed=3) as bench:
        with managed(bench, tmp_path) as first:
            first.begin()
            break_puc(first, AT_RECEIVER)
            now_s, driven_ma = bench.clock.now(), bench.mesh.confirmed_currents_ma()
            dark = FailureVerdict("path", "sfp-a:sfp-b", "light", "dark", now_s, now_s, ("photodiodes",))
            first.journal.begin(dark)
            # As if the program had been killed while it tests PUCs with the transmitter off.
            first.service.journal.begin("diagnose", ["sfp-a:sfp-b"], driven_ma)
            bench.transponders["sfp-a"].disable()
            bench.mesh.program(0.9 * driven_ma)
        with managed(bench, tmp_path) as second:
            second.begin()
            assert second.service.journal.unfinished is None
            assert (second.state.broken, second.state.open, second.state.cut_off) == ((), None, ("b",))
            assert all(proof.proven for proof in second.confirm())
