"""Plans of circuits: routes, parked cells and link budgets, before anything is changed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, PathSetup, plan_circuits
from lumion_hw.errors import CalibrationError, CircuitError, NoPathError
from lumion_hw.mesh.programming.inverse import heater_currents_ma
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, Defect
from tests.circuits.known_mesh import A_TO_B, SMALL, edited, path_setup, record_of_truth, with_puc


def round_record(bench: Bench) -> CalibrationRecord:
    """A record in round numbers: 7 dB in, 6 dB out, half a decibel per PUC."""
    record = record_of_truth(bench)
    return replace(
        record,
        pucs=tuple(replace(entry, loss_db=0.5) for entry in record.pucs),
        ports=tuple(replace(entry, input_loss_db=7.0, output_loss_db=6.0) for entry in record.ports),
    )


def test_a_budget_adds_up_by_hand(bench: Bench) -> None:
    plan = plan_circuits(bench, round_record(bench), A_TO_B)
    budget, hops = plan.circuits[0].budget, plan.circuits[0].path.hops
    # small.yaml: launch +1.0 dBm (default of the model), amplifier 9 dB, 0.5 dB before and 0.3 dB behind the mesh, and
    # a tap that takes a tenth: 10·log10(1/0.9) = 0.458 dB.
    assert budget.launch_dbm == 1.0
    assert budget.gain_db == 9.0
    assert budget.fixed_loss_db == pytest.approx(1.258, abs=5e-4)
    assert budget.mesh_loss_db == pytest.approx(13.0 + 0.5 * hops)
    # +1 + 9 - 1.258 - 13 = -4.258 dBm; the sensitivity of 10GBASE-ER is -15.8 dBm, its overload -1.0 dBm.
    assert budget.received_dbm == pytest.approx(-4.258 - 0.5 * hops, abs=5e-4)
    assert budget.margin_db == pytest.approx(11.542 - 0.5 * hops, abs=5e-4)
    assert (budget.sensitivity_dbm, budget.overload_dbm) == (-15.8, -1.0)


def test_what_was_not_measured_is_budgeted_as_typical(bench: Bench) -> None:
    record = round_record(bench)
    blind = replace(record, ports=tuple(replace(e, input_loss_db=None, output_loss_db=None) for e in record.ports))
    circuit = plan_circuits(bench, blind, A_TO_B).circuits[0]
    assert circuit.budget.mesh_loss_db == pytest.approx(2 * 6.85 + 0.5 * circuit.path.hops)  # Sánchez-Jácome 2025


def test_every_circuit_is_routed_from_its_own_port_to_its_own(bench: Bench, setup: PathSetup) -> None:
    plan = setup.plan(A_TO_B)
    assert [(c.path.source, c.path.target) for c in plan.circuits] == [(1, 8), (6, 3)]  # small.yaml, 'wiring'
    for circuit in plan.circuits:
        trace = bench.mesh.topology.trace(circuit.path.source, plan.states)
        assert (trace.port, trace.pucs) == (circuit.path.target, circuit.path.pucs)


def test_pucs_that_no_circuit_uses_are_parked_in_cross(bench: Bench, setup: PathSetup) -> None:
    plan = setup.plan(A_TO_B)
    used = {puc for circuit in plan.circuits for puc in circuit.path.pucs}
    assert set(plan.routing.states) == used
    parked = {puc: state for puc, state in plan.states.items() if puc not in used}
    assert parked == dict.fromkeys(set(range(15)) - used, "cross")
    assert plan.currents_ma == pytest.approx(heater_currents_ma(setup.record, plan.states))


def test_planning_changes_nothing(bench: Bench, setup: PathSetup) -> None:
    board = bench.emulated.faults.board("mesh0")
    before = (board.core.generation, bench.mesh.confirmed_currents_ma().tolist())
    setup.plan(A_TO_B)
    assert (board.core.generation, bench.mesh.confirmed_currents_ma().tolist()) == before
    assert setup.active is None


def test_a_stuck_puc_is_routed_round_and_left_unheated(bench: Bench, setup: PathSetup) -> None:
    stuck = setup.plan(A_TO_B[:1]).circuits[0].path.pucs[3]
    record = with_puc(setup.record, stuck, passive_phase_rad=None, note="stuck")
    plan = plan_circuits(bench, record, A_TO_B[:1])
    assert stuck not in plan.circuits[0].path.pucs
    assert bench.mesh.topology.trace(1, plan.states).port == 8
    assert stuck not in plan.states
    assert plan.currents_ma[2 * stuck : 2 * stuck + 2].tolist() == [0.0, 0.0]


def test_a_puc_stuck_in_the_state_it_is_needed_in_is_used_and_left_unheated(bench: Bench, setup: PathSetup) -> None:
    plan = setup.plan(A_TO_B)
    puc = plan.circuits[0].path.pucs[1]
    state = plan.states[puc]
    stuck = Defect("stuck PUC", "puc", puc, "no effect of either heater", (state,))
    record = replace(with_puc(setup.record, puc, passive_phase_rad=None), defects=(stuck,))
    again = plan_circuits(bench, record, A_TO_B)
    assert again.circuits[0].path.pucs == plan.circuits[0].path.pucs
    assert not again.currents_ma[2 * puc : 2 * puc + 2].any()


def test_the_record_of_an_interrupted_run_is_used_on_request_only(bench: Bench) -> None:
    cut_short = replace(record_of_truth(bench), complete=False)
    with pytest.raises(CalibrationError, match="incomplete"):
        bench.mesh.check_record(cut_short)
    bench.mesh.check_record(cut_short, allow_incomplete=True)


def test_a_mesh_full_of_stuck_pucs_has_no_path_and_says_so(bench: Bench, setup: PathSetup) -> None:
    record = setup.record
    for puc in range(15):
        record = with_puc(record, puc, passive_phase_rad=None)
    with pytest.raises(NoPathError, match="no path from port 1 to port 8 with 30 blocked PUC states"):
        plan_circuits(bench, record, A_TO_B)


def lame(record: CalibrationRecord, puc: int) -> CalibrationRecord:
    """A PUC with one heater that reaches a quarter of a turn; bar is 0.1 rad away and cross is out of reach."""
    entry = record.pucs[puc]
    assert entry.upper.law is not None
    weak = replace(entry.upper.law, max_ma=float(np.sqrt(1.6 / entry.upper.law.rho2_rad_per_ma2)))
    return with_puc(
        record,
        puc,
        passive_phase_rad=float(np.pi - 0.1),
        upper=replace(entry.upper, law=weak),
        lower=replace(entry.lower, law=None),
    )


def test_a_free_puc_that_cannot_reach_cross_is_parked_in_bar(bench: Bench, setup: PathSetup) -> None:
    free = min(set(range(15)) - set(setup.plan(A_TO_B).routing.states))
    plan = plan_circuits(bench, replace(lame(setup.record, free), crosstalk=None), A_TO_B)
    assert plan.states[free] == "bar"


def test_a_state_out_of_reach_is_routed_round(bench: Bench, setup: PathSetup) -> None:
    plan = setup.plan(A_TO_B)
    crossed = next(puc for puc in plan.circuits[0].path.pucs if plan.states[puc] == "cross")
    other = plan_circuits(bench, replace(lame(setup.record, crossed), crosstalk=None), A_TO_B)
    assert other.states[crossed] == "bar"


def test_a_circuit_whose_pucs_are_fixed_keeps_its_path(bench: Bench, setup: PathSetup) -> None:
    alone = setup.plan(A_TO_B[:1])
    # Losses for which another path would be better if the circuit could move.
    dear = replace(
        setup.record,
        pucs=tuple(
            replace(entry, loss_db=1.2 if puc in alone.routing.states else 0.1)
            for puc, entry in enumerate(setup.record.pucs)
        ),
    )
    free = plan_circuits(bench, dear, A_TO_B)
    held = plan_circuits(bench, dear, A_TO_B, fixed=alone.routing.states)
    assert free.circuits[0].path.pucs != alone.circuits[0].path.pucs
    assert held.circuits[0].path.pucs == alone.circuits[0].path.pucs
    assert {puc: held.states[puc] for puc in alone.routing.states} == alone.routing.states


@pytest.mark.parametrize("request_", [CircuitRequest("sfp-x", "sfp-b"), CircuitRequest("sfp-a", "meter0")])
def test_a_module_that_is_not_wired_is_named(setup: PathSetup, request_: CircuitRequest) -> None:
    stranger = "sfp-x" if request_.source == "sfp-x" else "meter0"
    with pytest.raises(CircuitError, match=rf"{request_.source} to {request_.target}: {stranger} is not wired"):
        setup.plan([request_])


def test_a_module_without_a_fibre_is_named(tmp_path: Path) -> None:
    path = edited(tmp_path, ("  pol-a: {", "  sfp-d: {kind: sfp-8472, serial: ER-D}\n  pol-a: {"))
    with Bench.emulate(path, seed=5) as bench, pytest.raises(CircuitError, match=r"sfp-d is not wired.*See 'wiring'"):
        path_setup(bench).plan([CircuitRequest("sfp-d", "sfp-b")])


def test_a_receiver_takes_one_circuit(setup: PathSetup) -> None:
    with pytest.raises(NoPathError, match="sfp-a to sfp-b and circuit sfp-c to sfp-b need the same receiver, sfp-b"):
        setup.plan([CircuitRequest("sfp-a", "sfp-b"), CircuitRequest("sfp-c", "sfp-b")])


def test_a_module_of_an_active_circuit_sends_no_second_one(setup: PathSetup) -> None:
    active = setup.plan([CircuitRequest("sfp-a", "sfp-b")]).circuits
    with pytest.raises(NoPathError, match="the active circuit sfp-a to sfp-b and circuit sfp-a to sfp-c need the same"):
        plan_circuits(setup.bench, setup.record, [CircuitRequest("sfp-a", "sfp-c")], active=active)


def test_the_record_of_another_controller_is_refused(bench: Bench) -> None:
    record = replace(record_of_truth(bench), device_serial="SMALL-0002")
    with pytest.raises(CalibrationError, match="made for SMALL-0002, and this is SMALL-0001"):
        PathSetup(bench, record)
    with pytest.raises(CalibrationError, match="SMALL-0002"):
        plan_circuits(bench, record, A_TO_B)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mesh_sha256": "0" * 64}, "does not match this mesh"),
        ({"heater_channels": tuple(reversed(range(30)))}, "does not match this heater channel map"),
        ({"complete": False}, "incomplete"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(bench: Bench, change: dict[str, object], words: str) -> None:
    record = replace(record_of_truth(bench), **change)  # type: ignore[arg-type]
    with pytest.raises(CalibrationError, match=words):
        plan_circuits(bench, record, A_TO_B)


def test_the_record_of_one_bench_serves_the_same_bench_opened_again() -> None:
    with Bench.emulate(SMALL, seed=5) as first:
        record = record_of_truth(first)
    with Bench.emulate(SMALL, seed=5) as again:
        assert plan_circuits(again, record, A_TO_B).circuits[0].path.source == 1


def test_a_laser_carries_no_circuit(tmp_path: Path) -> None:
    document = yaml.safe_load(SMALL.read_text())
    document["devices"]["tls"] = {"kind": "santec-tsl", "model": "TSL-570"}
    document["wiring"]["inputs"].append({"laser": "tls", "port": 5})
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    with Bench.emulate(path, seed=1) as bench:
        record = record_of_truth(bench)
        assert plan_circuits(bench, record, A_TO_B).circuits
        with pytest.raises(CircuitError, match="tls to sfp-b: tls is a laser, which carries no data"):
            plan_circuits(bench, record, [CircuitRequest("tls", "sfp-b")])
