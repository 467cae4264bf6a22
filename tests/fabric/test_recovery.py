"""Replacing a server: which spare, which circuits, which spans; and what stays when nothing can be done."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from known_mesh import A_TO_B, edited, path_setup, record_of_truth, with_puc

from lumion_hw import Bench
from lumion_hw.circuits import CircuitPlan, CircuitProof, CircuitRequest, PathSetup, PlannedCircuit
from lumion_hw.errors import CircuitError, DeviceError, LinkError, NoPathError, SafetyError
from lumion_hw.fabric import FailureVerdict, LightWatch, Recovery, pair_requests, replace_server
from lumion_hw.mesh.topology import State

SPANS = ["los_seen", "spare_chosen", "route_found", "programmed", "settled", "los_clear", "link_up"]
"""From the fault to the link; what follows is the job's."""


def lose(setup: PathSetup, server: str) -> FailureVerdict:
    """Kill a server and return the verdict on it."""
    assert setup.active is not None
    watch = LightWatch(setup.bench, [circuit.request for circuit in setup.active.circuits])
    watch.poll()
    setup.bench.emulated.faults.kill_modules(setup.bench.model.server(server).nics)
    verdict = watch.wait(5.0)
    assert verdict is not None
    assert verdict.server == server
    return verdict


def test_the_spare_takes_the_place_of_the_failed_server(joined: PathSetup) -> None:
    recovery = replace_server(joined, lose(joined, "b"))
    assert (recovery.failed, recovery.spare, recovery.kept) == ("b", "c", ())
    after = [CircuitRequest("sfp-a", "sfp-c"), CircuitRequest("sfp-c", "sfp-a")]
    assert [proof.circuit.request for proof in recovery.proofs] == after
    assert all(proof.proven for proof in recovery.proofs)
    assert joined.active is not None
    assert [circuit.request for circuit in joined.active.circuits] == after


def test_every_span_is_there_in_order_and_none_twice(joined: PathSetup) -> None:
    fault_s = joined.bench.clock.now()
    recovery = replace_server(joined, lose(joined, "b"), fault_s=fault_s)
    assert [span.name for span in recovery.spans] == SPANS
    assert all(span.bench_ms >= 0.0 and span.cpu_ms >= 0.0 for span in recovery.spans)
    # Each span ends where the next begins; the last ends now.
    running = np.cumsum([span.bench_ms for span in recovery.spans])
    assert [span.at_ms for span in recovery.spans] == pytest.approx(running.tolist(), abs=0.01)
    assert recovery.spans[-1].at_ms == pytest.approx((joined.bench.clock.now() - fault_s) * 1e3, abs=0.01)


def test_without_a_known_fault_detection_is_an_upper_bound(joined: PathSetup) -> None:
    verdict = lose(joined, "b")
    now_s = joined.bench.clock.now()
    recovery = replace_server(joined, verdict)
    assert recovery.spans[0].bench_ms == pytest.approx((now_s - verdict.since_s) * 1e3, abs=0.01)


def test_there_is_no_one_number_called_recovery() -> None:
    assert {field.name for field in fields(Recovery)} == {"failed", "spare", "spans", "proofs", "kept"}
    assert not [name for name in dir(Recovery) if "total" in name or "sum" in name or name.endswith("_ms")]


def test_programming_takes_one_commit(joined: PathSetup) -> None:
    verdict = lose(joined, "b")
    before = joined.bench.emulated.faults.board("mesh0").core.generation
    replace_server(joined, verdict)
    assert joined.bench.emulated.faults.board("mesh0").core.generation == before + 1


def assert_as_before(setup: PathSetup, before_ma: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    assert np.array_equal(setup.bench.mesh.driven_ma(), before_ma)
    assert setup.active is not None
    assert [circuit.request for circuit in setup.active.circuits] == A_TO_B


def refusal(setup: PathSetup, verdict: FailureVerdict) -> str:
    """Return why no spare was found, with the circuits as they were."""
    before_ma = setup.bench.mesh.driven_ma()
    with pytest.raises(CircuitError) as caught:
        replace_server(setup, verdict)
    assert_as_before(setup, before_ma)
    return str(caught.value)


def test_a_silent_spare_is_refused_by_the_name_of_its_module(joined: PathSetup) -> None:
    verdict = lose(joined, "b")
    joined.bench.emulated.faults.kill_modules(["sfp-c"])
    text = refusal(joined, verdict)
    assert text.startswith("no spare can take the place of b (c: sfp-c does not answer)")
    assert "The circuits are as they were." in text


def test_a_spare_that_stays_dark_is_refused_with_the_reason_and_rolled_back(joined: PathSetup) -> None:
    verdict = lose(joined, "b")
    joined.bench.emulated.faults.kill_port(11)  # the input of sfp-c
    text = refusal(joined, verdict)
    assert "c: 1 of 2 circuits could not be proven (sfp-c to sfp-a: " in text


def test_a_spare_without_a_route_is_refused_with_the_reason(bench: Bench) -> None:
    setup = path_setup(bench)
    setup.establish(setup.plan(A_TO_B))
    verdict = lose(setup, "b")
    boundary = int(bench.mesh.topology.port_puc_port[13]) // 4  # the only PUC in front of c's receiver
    setup.record = with_puc(setup.record, boundary, passive_phase_rad=None)
    assert "c: no path from port 1 to port 13" in refusal(setup, verdict)


def refused_on(path: Path) -> str:
    with Bench.emulate(path, seed=5) as bench:
        setup = path_setup(bench)
        setup.establish(setup.plan(A_TO_B))
        return refusal(setup, lose(setup, "b"))


def test_a_spare_of_the_same_risk_group_is_refused(tmp_path: Path) -> None:
    path = edited(
        tmp_path,
        ("nics: [sfp-b]}", "nics: [sfp-b], risk_group: feed1}"),
        ("nics: [sfp-c]}", "nics: [sfp-c], risk_group: feed1}"),
    )
    assert "c: it shares risk group feed1 with b" in refused_on(path)


def test_servers_without_a_risk_group_share_none(tmp_path: Path) -> None:
    path = edited(tmp_path, ("nics: [sfp-b]}", "nics: [sfp-b], risk_group: feed1}"))
    with Bench.emulate(path, seed=5) as bench:
        setup = path_setup(bench)
        setup.establish(setup.plan(A_TO_B))
        assert replace_server(setup, lose(setup, "b")).spare == "c"


def test_without_any_spare_the_bench_file_is_named(tmp_path: Path) -> None:
    text = refused_on(edited(tmp_path, ("  spares: [c]\n", "")))
    assert "the bench file names none" in text
    assert "'fabric.spares'" in text


def test_a_failed_mesh_controller_is_not_blamed_on_the_spare(joined: PathSetup) -> None:
    verdict = lose(joined, "b")
    joined.bench.mesh.controller.outputs_off()
    with pytest.raises(SafetyError, match="ESTOP"):
        replace_server(joined, verdict)


def test_a_mesh_controller_without_power_is_unreachable_not_without_spares(joined: PathSetup) -> None:
    verdict = lose(joined, "b")
    joined.bench.emulated.faults.board("mesh0").power_off()
    with pytest.raises(LinkError, match="mesh0"):
        replace_server(joined, verdict)


# The prototype: two NICs per server, two spares.


@pytest.fixture
def four(prototype: Bench) -> PathSetup:
    setup = path_setup(prototype)
    setup.establish(setup.plan(pair_requests(prototype.model, "server0", "server1")))
    return setup


def test_spares_are_tried_in_the_order_of_the_bench_file(four: PathSetup) -> None:
    recovery = replace_server(four, lose(four, "server1"))
    assert recovery.spare == "server2"  # spares: [server2, server3]
    assert [proof.circuit.request for proof in recovery.proofs] == pair_requests(four.bench.model, "server0", "server2")


def test_the_next_spare_is_tried_and_the_time_lost_belongs_to_choosing_it(four: PathSetup) -> None:
    fault_s = four.bench.clock.now()
    verdict = lose(four, "server1")
    four.bench.emulated.faults.kill_port(1)  # the input of sfp-s2n1: server2 answers, but cannot be proven
    recovery = replace_server(four, verdict, fault_s=fault_s)
    assert recovery.spare == "server3"
    assert [span.name for span in recovery.spans] == SPANS
    running = np.cumsum([span.bench_ms for span in recovery.spans])
    assert [span.at_ms for span in recovery.spans] == pytest.approx(running.tolist(), abs=0.01)
    spent = {span.name: span.bench_ms for span in recovery.spans}
    assert spent["spare_chosen"] > 1000.0  # the deadline for the first spare's loss of signal to clear


def test_a_spare_whose_laser_does_not_start_is_passed_over(four: PathSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = lose(four, "server1")

    def enable() -> None:
        raise DeviceError("the transmitter did not start", device="sfp-s2n0")

    monkeypatch.setattr(four.bench.transponders["sfp-s2n0"], "enable", enable)
    assert replace_server(four, verdict).spare == "server3"


def with_bystander(bench: Bench) -> tuple[PathSetup, PlannedCircuit]:
    """Servers 0 and 1 joined on NIC 0 only, and a circuit from server 2 back to itself, which is not concerned.

    Every PUC on the way of the latter is dear afterwards: a plan made afresh would lead it round.
    """
    setup = path_setup(bench)
    requests = [*pair_requests(bench.model, "server0", "server1")[:2], CircuitRequest("sfp-s2n0", "sfp-s2n1")]
    setup.establish(setup.plan(requests))
    assert setup.active is not None
    bystander = setup.active.circuits[2]
    setup.record = replace(
        setup.record,
        pucs=tuple(
            replace(entry, loss_db=3.0 if puc in bystander.path.pucs else 0.5, loss_sigma_db=2.0)
            for puc, entry in enumerate(setup.record.pucs)
        ),
    )
    assert setup.plan([bystander.request]).circuits[0].path.pucs != bystander.path.pucs
    tolerant = bench.model.fabric.model_copy(update={"loss_tolerance_db": 20.0})
    bench.model = bench.model.model_copy(update={"fabric": tolerant})  # the file's own bound is 2 dB
    return setup, bystander


def proof_of(recovery: Recovery, request: CircuitRequest) -> CircuitProof:
    return next(proof for proof in recovery.proofs if proof.circuit.request == request)


def test_circuits_of_others_are_not_touched(prototype: Bench) -> None:
    setup, bystander = with_bystander(prototype)
    assert setup.active is not None
    states, settings = setup.active.states, prototype.polarization["pol-s2n0"].read().tolist()
    recovery = replace_server(setup, lose(setup, "server1"))
    assert recovery.spare == "server3"  # server2 is in use
    assert recovery.kept == (bystander.request,)
    assert proof_of(recovery, bystander.request).circuit.path.pucs == bystander.path.pucs
    assert all(setup.active.states[puc] == states[puc] for puc in bystander.path.pucs)
    assert prototype.polarization["pol-s2n0"].read().tolist() == settings


def test_a_spare_in_use_is_refused(prototype: Bench) -> None:
    setup, _ = with_bystander(prototype)
    verdict = lose(setup, "server1")
    prototype.emulated.faults.kill_modules(["sfp-s3n1"])
    with pytest.raises(CircuitError, match=r"server2: it is in use; server3: sfp-s3n1 does not answer"):
        replace_server(setup, verdict)


def test_a_circuit_that_has_to_move_is_not_called_kept(prototype: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    setup, bystander = with_bystander(prototype)
    verdict, plan = lose(setup, "server1"), setup.plan

    def plan_if_free(requests: list[CircuitRequest], *, fixed: dict[int, State] | None = None) -> CircuitPlan:
        if fixed:
            raise NoPathError("no route round the fixed cells")
        return plan(requests)

    monkeypatch.setattr(setup, "plan", plan_if_free)
    recovery = replace_server(setup, verdict)
    assert proof_of(recovery, bystander.request).circuit.path.pucs != bystander.path.pucs
    assert recovery.kept == ()


def test_a_record_of_the_truth_is_what_a_calibration_would_find(prototype: Bench) -> None:
    # The helper of these tests, checked against the light: everything proven within half a decibel.
    setup = path_setup(prototype, record_of_truth(prototype))
    proofs = setup.establish(setup.plan(pair_requests(prototype.model, "server0", "server1")))
    assert all(abs(proof.loss_error_db or 9.9) < 0.5 for proof in proofs)
