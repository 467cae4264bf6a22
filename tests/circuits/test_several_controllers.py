"""Circuits on a mesh with two controllers survive what happens to one of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from firmware_protocol import FaultSource
from lumion_hw.bench.controller_faults import clear_faults, latched_faults
from lumion_hw.circuits import CircuitMaintenance, CircuitRequest, CircuitService
from lumion_hw.errors import CircuitError, LinkError, SafetyError
from tests.bench.several_controllers import split_bench
from tests.circuits.lasting_bench import LastingBench

AB, BA = CircuitRequest("sfp-a", "sfp-b"), CircuitRequest("sfp-b", "sfp-a")


@pytest.fixture(scope="module")
def one_bench(tmp_path_factory: pytest.TempPathFactory) -> LastingBench:
    directory = tmp_path_factory.mktemp("bench")
    return LastingBench(directory, split_bench(directory))


@pytest.fixture
def service(one_bench: LastingBench) -> Iterator[CircuitService]:
    """Two circuits in service."""
    one_bench.forget()
    with one_bench.service() as opened:
        opened.connect([AB, BA], align=False)
        yield opened
        for fault in latched_faults(opened.setup.bench):
            opened.setup.bench.mesh.controller.clear_fault(fault.fault_id)


def trip(bench: LastingBench, source: FaultSource) -> None:
    bench.emulated.faults.inject("mesh1", "trip", source=int(source))
    bench.emulated.faults.end("mesh1", "trip", source=int(source))


def test_both_controllers_carry_the_circuits(one_bench, service) -> None:
    driven_ma = one_bench.driven_ma()
    assert driven_ma[:15].any()
    assert driven_ma[15:].any()
    assert [proof.proven for proof in service.setup.prove()] == [True, True]


def test_a_watchdog_trip_of_one_controller_is_like_one_of_the_whole_mesh(one_bench, service) -> None:
    driven_ma = one_bench.driven_ma()
    maintenance = CircuitMaintenance(service)
    maintenance.run(2.0)
    trip(one_bench, FaultSource.WATCHDOG)
    maintenance.run(3.0)
    assert [health.fault for health in maintenance.health] == [None, None]
    assert all(health.proof.proven for health in maintenance.health)
    assert np.array_equal(one_bench.driven_ma(), driven_ma)


def test_any_other_trip_of_one_controller_switches_all_off_until_it_is_cleared(one_bench, service) -> None:
    trip(one_bench, FaultSource.HW_SPI)
    with pytest.raises(SafetyError, match=r"mesh0\+mesh1: the mesh controller .* HW_SPI of mesh1 \(id \d+02\)"):
        service.check_driven()
    assert not one_bench.driven_ma().any()
    (cleared,) = clear_faults(service.setup.bench, "HW_SPI", "ada")
    assert cleared.extra["controller"] == "mesh1"
    assert [proof.proven for proof in service.restore_after_shutdown()] == [True, True]


def test_a_trip_in_the_middle_of_a_change_takes_the_change_back(one_bench, service) -> None:
    service.disconnect(["sfp-b:sfp-a"])

    def milestone(name: str) -> None:
        if name == "programmed":
            trip(one_bench, FaultSource.WATCHDOG)

    with pytest.raises(SafetyError):
        service.connect([BA], align=False, milestone=milestone)
    (proof,) = service.restore_after_shutdown()
    assert proof.proven
    assert [circuit.name for circuit in service.state.circuits] == ["sfp-a:sfp-b"]


def test_circuits_come_back_after_a_power_cut_of_one_controller(one_bench, service) -> None:
    maintenance = CircuitMaintenance(service)
    maintenance.run(2.0)
    board = one_bench.emulated.faults.board("mesh1")
    board.power_off()
    with pytest.raises(LinkError, match="mesh1"):
        maintenance.run(3.0)
    board.power_on()
    service.setup.bench.mesh.controller.open()
    assert not one_bench.driven_ma().any()
    maintenance.run(3.0)
    assert all(health.proof.proven for health in maintenance.health)


def test_a_change_that_one_controller_does_not_follow_is_rolled_back(one_bench, service) -> None:
    service.disconnect(["sfp-b:sfp-a"])
    driven_ma = one_bench.driven_ma()
    board, programmed = one_bench.emulated.faults.board("mesh1"), service.setup.bench.mesh.controller.program

    def pull_and_program(currents_ma):
        board.pull_cable()
        return programmed(currents_ma)

    service.setup.bench.mesh.controller.program = pull_and_program
    with pytest.raises(LinkError, match=r"mesh1.*The other controllers drive their former currents"):
        service.connect([BA], align=False)
    del service.setup.bench.mesh.controller.program
    assert np.array_equal(one_bench.driven_ma(), driven_ma)
    board.plug_cable()
    service.setup.bench.mesh.controller.open()
    service.restore_after_shutdown()
    assert [circuit.name for circuit in service.state.circuits] == ["sfp-a:sfp-b"]
    assert [proof.proven for proof in service.setup.prove()] == [True]
    service.connect([BA], align=False)


def test_a_program_killed_between_two_controllers_leaves_the_circuits_as_before(one_bench) -> None:
    one_bench.forget()
    with one_bench.service() as first:
        first.connect([AB], align=False)
        driven_ma = one_bench.driven_ma()
        first.journal.begin("connect", ["sfp-b:sfp-a"], first.setup.bench.mesh.confirmed_currents_ma())
        first.setup.bench.mesh.controller.parts["mesh0"].program(np.full(15, 0.4))  # and no more
    assert not np.array_equal(one_bench.driven_ma(), driven_ma)
    with one_bench.service() as second:
        assert np.allclose(one_bench.driven_ma(), driven_ma, atol=1e-4)
        assert [circuit.name for circuit in second.state.circuits] == ["sfp-a:sfp-b"]
        assert [proof.proven for proof in second.setup.prove()] == [True]


def test_a_power_cut_of_one_controller_while_no_program_runs_ends_the_circuits(one_bench) -> None:
    one_bench.forget()
    with one_bench.service() as first:
        first.connect([AB], align=False)
    board = one_bench.emulated.faults.board("mesh1")
    board.power_off()
    board.power_on()
    assert one_bench.driven_ma()[:15].any()
    with one_bench.service() as second:
        assert [circuit.name for circuit in second.lost_circuits] == ["sfp-a:sfp-b"]
        assert not one_bench.driven_ma().any()
        second.connect([AB], align=False)


def test_other_currents_of_one_controller_are_still_a_foreign_change(one_bench) -> None:
    one_bench.forget()
    with one_bench.service() as first:
        first.connect([AB], align=False)
        first.setup.bench.mesh.controller.parts["mesh1"].program(np.full(15, 0.4))
    with pytest.raises(CircuitError, match="not driven as the journal records"), one_bench.service():
        pass
