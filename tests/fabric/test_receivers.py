"""Light that is lost behind the mesh: the receiver is asked before a sender or a path is blamed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.fabric import FabricManager
from lumion_hw.fabric.detectors.light import Modules
from tests.fabric.chaos import photodiodes
from tests.fabric.managed_fabric import managed

RECEIVER_OF_B = 8


@pytest.fixture
def watched(bench: Bench, tmp_path: Path) -> Iterator[FabricManager]:
    """The started manager with the detectors that a bench file has if it names none."""
    with managed(bench, tmp_path, detectors=[photodiodes(), Modules()]) as manager:
        manager.begin()
        yield manager


def test_a_fibre_behind_the_mesh_costs_its_receiver_and_not_the_sender(watched: FabricManager) -> None:
    watched.bench.emulated.faults.kill_port(RECEIVER_OF_B)
    (recovery,) = watched.run(3.0)
    assert (recovery.failed, recovery.spare) == ("b", "c")
    assert "fibre behind the mesh or receiver" in watched.state.failed["b"]
    assert all(proof.proven for proof in watched.confirm())


def test_a_photodiode_that_dies_is_no_failure_while_the_receiver_has_its_light(watched: FabricManager) -> None:
    watched.bench.emulated.faults.kill_monitor(RECEIVER_OF_B)
    assert watched.run(5.0) == []
    state = watched.state
    assert (state.failed, state.refused, state.avoided) == ({}, {}, ())
    assert not watched.judge.dark


def test_a_receiver_that_does_not_answer_is_no_witness(watched: FabricManager) -> None:
    watched.bench.emulated.faults.inject("sfp-b", "bus_stuck")
    watched.bench.emulated.faults.kill_modules(["sfp-a"])
    recoveries = watched.run(6.0)
    assert "a" in watched.state.failed
    assert {recovery.failed for recovery in recoveries} <= {"a", "b"}
