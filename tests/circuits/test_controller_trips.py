"""A mesh controller that has switched its heaters off is named, and its circuits are set up again."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from firmware_protocol import FaultSource
from lumion_hw.bench.bench import with_leave_on
from lumion_hw.bench.controller_faults import check_faults, clear_faults, latched_faults
from lumion_hw.circuits import CircuitMaintenance, CircuitRequest, CircuitService, read_state
from lumion_hw.circuits.service import switch_everything_off
from lumion_hw.errors import ConfigError, LinkError, SafetyError
from tests.circuits.lasting_bench import LastingBench

AB, BA = CircuitRequest("sfp-a", "sfp-b"), CircuitRequest("sfp-b", "sfp-a")


@pytest.fixture
def service(one_bench: LastingBench) -> Iterator[CircuitService]:
    """Two circuits in service, with an event log beside the journal."""
    one_bench.forget()
    with one_bench.service() as opened:
        opened.setup.bench.events.write_to(one_bench.directory / "events.jsonl")
        opened.connect([AB, BA], align=False)
        yield opened
        for fault in latched_faults(opened.setup.bench):
            opened.setup.bench.mesh.controller.clear_fault(fault.fault_id)


def trip(bench: LastingBench, source: FaultSource, *, is_over: bool = True) -> None:
    """Make the controller switch off; afterwards the cause is gone, but the fault is still latched."""
    bench.emulated.faults.inject("mesh0", "trip", source=int(source))
    if is_over:
        bench.emulated.faults.end("mesh0", "trip", source=int(source))


def events(service: CircuitService, *names: str) -> list[dict[str, object]]:
    lines = (service.journal.path.parent / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] in names]


def test_after_a_silence_of_the_host_the_same_currents_are_driven_and_proven(one_bench, service) -> None:
    driven_ma = one_bench.driven_ma()
    trip(one_bench, FaultSource.WATCHDOG)
    assert not one_bench.driven_ma().any()
    proofs = service.restore_after_shutdown()
    assert [proof.proven for proof in proofs] == [True, True]
    assert np.array_equal(one_bench.driven_ma(), driven_ma)
    assert [circuit.name for circuit in service.state.circuits] == ["sfp-a:sfp-b", "sfp-b:sfp-a"]
    (cleared,) = events(service, "fault cleared")
    assert (cleared["fault"], cleared["by"]) == ("WATCHDOG (id 1)", service.lock.program)
    assert service.restore_after_shutdown() is None  # nothing to do, so nothing is measured


@pytest.mark.parametrize("source", [FaultSource.ESTOP, FaultSource.HW_SPI])
def test_any_other_fault_waits_until_it_is_cleared_by_name(one_bench, service, source) -> None:
    bench = service.setup.bench
    trip(one_bench, FaultSource.WATCHDOG)
    trip(one_bench, source)
    with pytest.raises(SafetyError, match=rf"mesh0: .*WATCHDOG.*{source.name}.*`lumion faults BENCH --clear NAME`"):
        service.restore_after_shutdown()
    assert {fault.source for fault in latched_faults(bench)} == {"WATCHDOG", source.name}
    with pytest.raises(
        ConfigError, match=rf"no latched fault has the name or id 'INTERLOCK'; latched faults: .*{source.name}"
    ):
        clear_faults(bench, "INTERLOCK", "ada")
    (cleared,) = clear_faults(bench, source.name.lower(), "ada")
    assert cleared.source == source.name
    assert all(proof.proven for proof in service.restore_after_shutdown())
    check_faults(bench)


def test_a_fault_whose_cause_is_present_is_not_cleared(one_bench, service) -> None:
    trip(one_bench, FaultSource.HW_SPI, is_over=False)
    with pytest.raises(SafetyError, match=r"still present: HW_SPI"):
        clear_faults(service.setup.bench, "HW_SPI", "ada")
    one_bench.emulated.faults.end("mesh0", "trip", source=int(FaultSource.HW_SPI))
    clear_faults(service.setup.bench, "HW_SPI", "ada")


def test_upkeep_names_the_controller_and_blames_no_path(one_bench, service) -> None:
    maintenance = CircuitMaintenance(service)
    maintenance.run(2.0)
    trip(one_bench, FaultSource.WATCHDOG)
    maintenance.run(3.0)
    assert [health.fault for health in maintenance.health] == [None, None]
    assert all(health.proof.proven for health in maintenance.health)
    alarms = events(service, "alarm", "fault cleared", "set up again", "alarm over")
    assert [each["event"] for each in alarms] == ["alarm"] * 2 + ["fault cleared", "set up again"] + ["alarm over"] * 2
    assert {each["place"] for each in alarms if each["event"] == "alarm"} == {"controller"}
    assert "WATCHDOG (id" in str(alarms[0]["detail"])


def test_an_alarm_that_ended_one_upkeep_is_over_in_the_next(one_bench, service) -> None:
    maintenance = CircuitMaintenance(service)
    maintenance.run(2.0)
    trip(one_bench, FaultSource.HW_SPI)
    with pytest.raises(SafetyError):
        maintenance.run(2.0)
    clear_faults(service.setup.bench, "HW_SPI", "ada")
    service.restore_after_shutdown()
    CircuitMaintenance(service).run(1.0)
    names = [str(each["circuit"]) for each in events(service, "alarm over")]
    assert sorted(names) == ["sfp-a:sfp-b", "sfp-b:sfp-a"]


def test_upkeep_that_is_interrupted_by_a_trip_notes_no_dark_mesh(one_bench, service) -> None:
    maintenance, noted_ma = CircuitMaintenance(service), service.state.currents_ma
    maintenance.run(1.0)
    one_bench.emulated.faults.after(0.5, lambda: trip(one_bench, FaultSource.WATCHDOG))
    maintenance.run(0.9)  # it ends while the heaters are off, and records what it has read
    assert not one_bench.driven_ma().any()
    assert service.state.currents_ma == noted_ma
    assert all(proof.proven for proof in service.restore_after_shutdown())


def test_upkeep_sets_circuits_up_again_that_a_restarted_controller_no_longer_drives(one_bench, service) -> None:
    maintenance = CircuitMaintenance(service)
    maintenance.run(2.0)
    one_bench.emulated.faults.inject("mesh0", "restart")
    with pytest.raises(LinkError):
        maintenance.run(3.0)
    service.setup.bench.mesh.controller.open()
    maintenance.run(3.0)
    assert all(health.proof.proven for health in maintenance.health)
    assert [health.fault for health in maintenance.health] == [None, None]
    assert {each["place"] for each in events(service, "alarm")} == {"controller"}


def test_a_trip_in_the_middle_of_a_change_takes_the_change_back(one_bench, service) -> None:
    service.disconnect(["sfp-b:sfp-a"])

    def milestone(name: str) -> None:
        if name == "programmed":
            trip(one_bench, FaultSource.WATCHDOG)

    with pytest.raises(SafetyError):
        service.connect([BA], align=False, milestone=milestone)
    assert service.journal.unfinished is not None
    (proof,) = service.restore_after_shutdown()
    assert proof.proven
    assert service.journal.unfinished is None
    assert [circuit.name for circuit in service.state.circuits] == ["sfp-a:sfp-b"]
    service.connect([BA], align=False)
    assert all(proof.proven for proof in service.setup.prove())


def test_a_disconnect_that_loses_the_controller_leaves_the_circuit_with_its_light(one_bench, service) -> None:
    board, module = one_bench.emulated.faults.board("mesh0"), service.setup.bench.transponders["sfp-a"]
    disable = module.disable

    def disable_and_lose_controller() -> None:
        disable()
        board.power_off()

    module.disable = disable_and_lose_controller
    with pytest.raises(LinkError):
        service.disconnect(["sfp-a:sfp-b"])
    module.disable = disable
    assert not module.status().tx_disabled
    board.power_on()
    service.setup.bench.mesh.controller.open()
    assert [proof.proven for proof in service.restore_after_shutdown()] == [True, True]


def test_a_program_killed_in_a_disconnect_leaves_no_standing_circuit_without_light(one_bench) -> None:
    one_bench.forget()
    with one_bench.service() as first:
        first.connect([AB, BA], align=False)
        first.journal.begin("disconnect", ["sfp-a:sfp-b"], first.setup.bench.mesh.confirmed_currents_ma())
        first.setup.bench.transponders["sfp-a"].disable()  # and no more
    with one_bench.service() as second:
        assert [circuit.name for circuit in second.state.circuits] == ["sfp-a:sfp-b", "sfp-b:sfp-a"]
        second.setup.await_los_clear([AB, BA])
        assert [proof.proven for proof in second.setup.prove()] == [True, True]


def test_opening_a_bench_that_a_dead_program_left_on_latches_nothing(one_bench: LastingBench) -> None:
    one_bench.forget()
    with one_bench.service() as service:
        service.connect([AB], align=False)
    one_bench.clock.sleep(10.0)  # the watchdog has tripped, and the controller holds the heaters
    model, one_bench.model = one_bench.model, with_leave_on(one_bench.model, 0.0)
    try:
        with pytest.raises(SafetyError, match="left the outputs on"):
            one_bench.open()
    finally:
        one_bench.model = model
    with one_bench.service() as service:
        assert latched_faults(service.setup.bench) == ()
        assert [proof.proven for proof in service.setup.prove()] == [True]


def test_the_heaters_of_a_stopped_bench_are_at_rest_though_its_fault_is_latched(one_bench, service) -> None:
    bench = service.setup.bench
    bench.mesh.controller.outputs_off()
    switch_everything_off(bench, service.journal, service.lock)
    assert read_state(service.journal.path.parent)[0].circuits == ()
    assert [fault.source for fault in latched_faults(bench)] == ["ESTOP"]
