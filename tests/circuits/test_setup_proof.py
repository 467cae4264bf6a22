"""Proof of circuits by measured light: what counts as proven, and what does not."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.circuits import CircuitProof, CircuitRequest, PathSetup
from lumion_hw.errors import CircuitError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from tests.circuits.known_mesh import A_TO_B, SMALL, edited, path_setup, record_of_truth

SFP_B = "  sfp-b: {kind: sfp-8472, serial: ER-B}"


def verdict_with(directory: Path, keys: str) -> str:
    """Return the reason why no circuits were set up with these keys added to the module sfp-b."""
    path = edited(directory, (SFP_B, SFP_B.replace("}", f", {keys}}}")))
    with Bench.emulate(path, seed=5) as bench:
        setup = path_setup(bench)
        with pytest.raises(CircuitError) as caught:
            setup.establish(setup.plan(A_TO_B))
        assert setup.active is None
        return str(caught.value)


def proofs_of(setup: PathSetup, requests: list[CircuitRequest] = A_TO_B) -> tuple[CircuitProof, ...]:
    return setup.establish(setup.plan(requests))


@dataclass(frozen=True)
class Standing:
    """Circuits in both directions, their proofs, and the log of it."""

    bench: Bench
    setup: PathSetup
    proofs: tuple[CircuitProof, ...]
    log: Path


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Circuits set up once for most tests of proofs; the tests leave them active."""
    log = tmp_path_factory.mktemp("standing") / "events.jsonl"
    with Bench.emulate(SMALL, seed=5) as bench:
        bench.events.write_to(log)
        setup = path_setup(bench)
        yield Standing(bench, setup, proofs_of(setup), log)


def test_circuits_on_a_known_mesh_are_proven_in_both_directions(standing: Standing) -> None:
    proofs, setup = standing.proofs, standing.setup
    assert [proof.circuit.request for proof in proofs] == A_TO_B
    assert all(proof.proven and proof.failures == () and not proof.los for proof in proofs)
    assert setup.active is not None
    assert [circuit.request for circuit in setup.active.circuits] == A_TO_B


def test_measured_loss_and_received_power_agree_with_the_light_itself(standing: Standing) -> None:
    for proof in standing.proofs:
        out = proof.circuit.exit
        received_w = standing.bench.emulated.world.received_w(proof.circuit.request.target)
        assert proof.received_dbm is not None
        assert 1e-3 * 10 ** (proof.received_dbm / 10) == pytest.approx(received_w, rel=0.03)
        # By hand: what is received, the tap's tenth (0.458 dB) and the fibre put back, against +1 dBm + 9 dB - 0.5 dB.
        true_loss_db = 9.5 - (proof.received_dbm + 0.458 + out.loss_db)
        assert proof.measured_loss_db == pytest.approx(true_loss_db, abs=1.2)  # the module's own report is off by 1 dB
        assert proof.loss_error_db == pytest.approx(0.0, abs=0.3)  # which a calibration corrects


def test_the_margin_is_measured_not_planned(standing: Standing) -> None:
    proof = standing.proofs[0]
    assert proof.received_dbm is not None
    assert proof.margin_db == pytest.approx(proof.received_dbm + 15.8)


def test_a_circuit_below_sensitivity_is_not_proven_however_clear_its_los(tmp_path: Path) -> None:
    # Planned to arrive with -9.5 dBm from the launch of the file; the module launches less than that.
    verdict = verdict_with(tmp_path, "sensitivity_dbm: -10.0")
    assert "sfp-a to sfp-b: received -10." in verdict
    assert "is below the sensitivity of -10.0 dBm" in verdict
    assert "loss of signal" not in verdict
    assert "1 of 2 circuits could not be verified by their light" in verdict
    assert "Verified: sfp-b to sfp-a" in verdict
    assert "The mesh was rolled back" in verdict


def test_a_circuit_above_overload_is_not_proven(tmp_path: Path) -> None:
    # The record has 1.5 dB too much loss: planned for -11.0 dBm, and -10.5 dBm arrive.
    path = edited(tmp_path, (SFP_B, SFP_B.replace("}", ", overload_dbm: -10.75}")))
    with Bench.emulate(path, seed=5) as bench:
        setup = path_setup(bench, misjudged(record_of_truth(bench), 1, 1.5, sigma_db=0.6))
        with pytest.raises(CircuitError, match=r"is above the overload level of -10\.8 dBm"):
            proofs_of(setup)


def test_a_circuit_with_plenty_of_power_is_not_proven_while_the_receiver_reports_los(tmp_path: Path) -> None:
    verdict = verdict_with(tmp_path, "los_assert_dbm: 4.0, los_release_dbm: 5.0")
    assert "sfp-a to sfp-b: the receiver reports loss of signal" in verdict
    assert "sensitivity" not in verdict


def misjudged(record: CalibrationRecord, port: int, by_db: float, sigma_db: float = 0.1) -> CalibrationRecord:
    """A record with another input loss at a port, and a small sigma for it."""
    entry = record.port(port)
    assert entry.input_loss_db is not None
    wrong = replace(entry, input_loss_db=entry.input_loss_db + by_db, input_loss_sigma_db=sigma_db)
    return replace(record, ports=tuple(wrong if e.port == port else e for e in record.ports))


@pytest.mark.parametrize("by_db", [-2.6, 2.6])
def test_a_loss_that_differs_from_the_prediction_is_not_proven(bench: Bench, by_db: float) -> None:
    setup = path_setup(bench, misjudged(record_of_truth(bench), 1, by_db))
    with pytest.raises(CircuitError, match=r"sfp-a to sfp-b: loss \d+\.\d dB, predicted \d+\.\d ± 0\.9 dB") as caught:
        proofs_of(setup)
    assert "Verified: sfp-b to sfp-a" in str(caught.value)


def test_a_loss_within_the_uncertainty_of_the_record_is_proven(bench: Bench) -> None:
    proof = proofs_of(path_setup(bench, misjudged(record_of_truth(bench), 1, 1.5, sigma_db=0.6)))[0]
    assert proof.loss_error_db == pytest.approx(-1.5, abs=0.3)
    # By hand: four times the root of 0.6² + 0.1² (out) + 0.1² (launch) + 0.1² (meter) + 0.1² (polarization)
    # + 0.05² (leakage) + 7 PUCs of 0.01².
    assert proof.tolerance_db == pytest.approx(4.0 * np.sqrt(0.36 + 0.04 + 0.0025 + 0.0007), abs=1e-9)


def test_the_tolerance_of_the_bench_file_is_an_upper_bound(tmp_path: Path) -> None:
    path = edited(tmp_path, ("  spares: [c]\n", "  spares: [c]\n  loss_tolerance_db: 1.0\n"))
    with Bench.emulate(path, seed=5) as bench:
        setup = path_setup(bench, misjudged(record_of_truth(bench), 1, 1.5, sigma_db=0.6))
        with pytest.raises(CircuitError, match=r"sfp-a to sfp-b: loss .* ± 1\.0"):
            proofs_of(setup)


def test_an_output_without_a_tap_is_proven_by_the_calibrated_monitor(tmp_path: Path) -> None:
    path = edited(tmp_path, ("loss_db: 0.3, tap: {meter: meter0, channel: 2, fraction: 0.1}}", "loss_db: 0.3}"))
    with Bench.emulate(path, seed=5) as bench:
        bench.emulated.world.truth.monitor_scale[8] = 0.5  # a poor photodiode: half of the nominal responsivity
        proof = proofs_of(path_setup(bench))[0]
        assert proof.circuit.exit.meter is None
        assert proof.circuit.budget.fixed_loss_db == pytest.approx(0.8)
        assert proof.loss_error_db == pytest.approx(0.0, abs=0.3)


def test_an_output_with_neither_tap_nor_monitor_cannot_be_proven(tmp_path: Path) -> None:
    path = edited(
        tmp_path,
        ("loss_db: 0.3, tap: {meter: meter0, channel: 2, fraction: 0.1}}", "loss_db: 0.3}"),
        ("  columns: [2]\n", "  columns: [2]\n  monitor_ports: [0, 3]\n"),
    )
    with Bench.emulate(path, seed=5) as bench, pytest.raises(CircuitError, match="port 8 has neither a meter nor"):
        proofs_of(path_setup(bench))


def test_circuits_in_service_can_be_proven_again_without_touching_the_mesh(standing: Standing) -> None:
    generation = standing.bench.emulated.faults.board("mesh0").core.generation
    assert all(proof.proven for proof in standing.setup.prove())
    assert standing.bench.emulated.faults.board("mesh0").core.generation == generation


def test_a_circuit_in_service_that_loses_its_light_is_no_longer_proven(bench: Bench, setup: PathSetup) -> None:
    proofs_of(setup)
    bench.emulated.faults.kill_port(8)
    bench.clock.sleep(0.2)
    dark, bright = setup.prove()
    assert not dark.proven
    assert "the receiver reports loss of signal" in dark.failures
    assert bright.proven


def test_nothing_set_up_proves_nothing(setup: PathSetup) -> None:
    assert setup.prove() == ()


def test_a_polarization_in_place_is_not_searched_again_unless_asked_for(bench: Bench, setup: PathSetup) -> None:
    plan = setup.plan(A_TO_B)
    assert all(proof.alignment is not None for proof in setup.establish(plan))
    assert all(proof.alignment is None for proof in setup.establish(plan, align=False))


def test_a_polarization_that_has_moved_is_searched_again(bench: Bench, setup: PathSetup) -> None:
    plan = setup.plan(A_TO_B)
    setup.establish(plan)
    bench.emulated.faults.turn_polarization("sfp-a")
    moved, still = setup.establish(plan, align=False)
    assert moved.alignment is not None
    assert moved.proven
    assert still.alignment is None


def test_a_circuit_in_service_is_compared_with_its_own_last_proof(bench: Bench) -> None:
    # Predicted 0.6 dB too bright: within tolerance, but no reason for a search under somebody's traffic.
    setup = path_setup(bench, misjudged(record_of_truth(bench), 1, -0.6))
    plan = setup.plan(A_TO_B)
    setup.establish(plan)
    settings = bench.polarization["pol-a"].read().tolist()
    assert all(proof.alignment is None for proof in setup.establish(plan, align=False))
    assert bench.polarization["pol-a"].read().tolist() == settings


def test_the_log_tells_each_proof(standing: Standing) -> None:
    lines = [json.loads(line) for line in standing.log.read_text().splitlines()]
    logged = [line for line in lines if line["event"] == "proof"][:2]  # others prove the same circuits again
    assert [(line["source"], line["target"], line["proven"]) for line in logged] == [
        ("sfp-a", "sfp-b", True),
        ("sfp-b", "sfp-a", True),
    ]
    assert logged[0]["measured_loss_db"] == pytest.approx(standing.proofs[0].measured_loss_db, abs=1e-3)


def test_crosstalk_is_the_wanted_light_over_that_of_the_others(standing: Standing) -> None:
    bench, crosstalk_db = standing.bench, standing.setup.crosstalk_db()
    assert list(crosstalk_db) == A_TO_B
    for proof in standing.proofs:
        request = proof.circuit.request
        total_w = bench.emulated.world.received_w(request.target)
        bench.transponders[request.source].disable()
        rest_w = bench.emulated.world.received_w(request.target)
        bench.transponders[request.source].enable()
        true_db = 10.0 * np.log10(total_w / rest_w)
        assert true_db > 20.0
        if true_db < 40.0:
            assert crosstalk_db[request] == pytest.approx(true_db, abs=1.0)
        else:  # the remaining light is at most the meter's noise
            assert crosstalk_db[request] is None or (crosstalk_db[request] or 0.0) > 35.0


def test_measuring_crosstalk_leaves_the_circuits_in_service(standing: Standing) -> None:
    standing.setup.crosstalk_db()
    standing.bench.clock.sleep(0.2)
    assert all(proof.proven for proof in standing.setup.prove())


def test_nothing_set_up_has_no_crosstalk(setup: PathSetup) -> None:
    assert setup.crosstalk_db() == {}
