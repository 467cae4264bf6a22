"""Two paths as a pair: equal in length and loss, also in the emulated light."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, explain, plan_circuits
from lumion_hw.circuits.plan.budget import BudgetViolation
from lumion_hw.circuits.plan.refusal import BudgetError
from lumion_hw.emulator.optics.coherent_paths import CoherentLaunch
from lumion_hw.quantities import combined_osnr_db
from tests.circuits.known_mesh import record_of_truth
from tests.circuits.plan.planning_cases import (
    ZR_PAIR,
    db,
    diversity,
    document,
    fully_known,
    model_of,
    record_of,
    with_inputs,
)

BOTH = [CircuitRequest("zr-a", "zr-b"), CircuitRequest("zr-b", "zr-a")]
LAUNCH = CoherentLaunch(1e-3, 193.1e12, 38.0)
SEEDS = [3, 4, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 20))]


@pytest.mark.parametrize("seed", SEEDS)
def test_both_arms_are_equal_in_the_light_itself(tmp_path: Path, seed: int) -> None:
    file = document(ZR_PAIR)
    # So few cells have few ports for the light that is trimmed away: with ports 1 dB apart some seeds are refused.
    file["emulation"]["access_loss_sigma_db"] = 0.5
    (path := tmp_path / "bench.yaml").write_text(yaml.safe_dump(file), encoding="utf-8")
    with Bench.emulate(path, seed=seed) as bench:
        plan = plan_circuits(bench, fully_known(bench), BOTH)
        bench.mesh.program(plan.currents_ma)
        for circuit in plan.circuits:
            bench.emulated.world.set_coherent(circuit.request.source, LAUNCH)
        for circuit in plan.circuits:
            seen = bench.emulated.world.received_coherent(circuit.request.target, 50e9)
            assert seen is not None
            assert seen.pair.rank == 2
            assert circuit.budget.imbalance_db <= 0.25
            assert seen.pair.pdl_db == pytest.approx(circuit.budget.pdl_db, abs=0.1)
            assert seen.pair.dgd_ps == pytest.approx(circuit.budget.dgd_ps, abs=0.5)
            assert db(seen.signal_w * 1e3) == pytest.approx(circuit.budget.received_dbm, abs=0.1)
            assert seen.osnr_db == pytest.approx(circuit.budget.osnr_db, abs=0.2)


def test_light_of_the_receiving_module_that_no_circuit_takes_counts_at_its_own_receiver() -> None:
    """A coherent receiver mixes with its own laser's light, so its transmitter is on; on seed 39 strays come back."""
    with Bench.emulate(ZR_PAIR, seed=39) as bench:
        record = fully_known(bench)
        (circuit,) = (plan := plan_circuits(bench, record, BOTH[:1])).circuits
        bench.mesh.program(plan.currents_ma)
        for name in ("zr-a", "zr-b"):
            bench.emulated.world.set_coherent(name, LAUNCH)
        seen = bench.emulated.world.received_coherent("zr-b", 50e9)
        assert seen is not None
        assert seen.osnr_db < 36.0, "the case shows nothing"
        assert circuit.budget.osnr_db == pytest.approx(seen.osnr_db, abs=0.5)
        assert circuit.budget.crosstalk_db > -45.0


def test_arms_share_nothing_and_are_equally_long() -> None:
    plan = plan_circuits(model_of(document(ZR_PAIR)), record_of(ZR_PAIR), BOTH)
    for circuit in plan.circuits:
        x, y = circuit.paths
        assert [arm.entry.tributary for arm in circuit.arms] == ["x", "y"]
        assert not set(x.pucs) & set(y.pucs)
        assert (x.hops, circuit.budget.dgd_ps) == (y.hops, 0.0)
        for path in circuit.paths:
            assert record_of(ZR_PAIR).mesh.trace(path.source, plan.states).port == path.target


def test_the_better_arm_is_trimmed_by_what_it_has_too_much() -> None:
    file = document(ZR_PAIR)
    file["wiring"]["inputs"][0]["loss_db"] = 2.5  # tributary x: 2 dB more than y
    even = plan_circuits(model_of(document(ZR_PAIR)), record_of(ZR_PAIR), BOTH[:1]).circuits[0]
    odd = plan_circuits(model_of(file), record_of(ZR_PAIR), BOTH[:1]).circuits[0]
    assert odd.budget.imbalance_db == pytest.approx(0.0, abs=0.02)
    trims = [arm.trim for arm in odd.arms]
    assert trims[0] is None
    assert trims[1] is not None
    before = [arm.loss_db - (arm.trim.loss_db if arm.trim else 0.0) for arm in even.arms]
    assert trims[1].loss_db == pytest.approx(2.0 + before[0] - before[1], abs=0.02)
    # Ten to the minus a tenth of that stays: by hand for a cell whose couplers are balanced.
    kept = 10 ** (-trims[1].loss_db / 10)
    assert min(abs(trims[1].coupling - kept), abs(1.0 - trims[1].coupling - kept)) < 1e-3
    # The removed light ends where there is no receiver.
    assert trims[1].stray_port not in {8, 6, 13, 11}


def test_the_budget_of_a_pair_adds_up_by_hand() -> None:
    budget = (
        plan_circuits(with_inputs(ZR_PAIR, noise_figure_db=7.0, gain_db=8.0), record_of(ZR_PAIR), BOTH[:1])
        .circuits[0]
        .budget
    )
    # 0 dBm, amplified by 8 dB to where power costs no OSNR, 0.5 dB before and 0.3 dB behind the mesh
    assert budget.received_dbm == pytest.approx(0.0 + 8.0 - 0.8 - budget.mesh_loss_db)
    assert budget.launch_dbm + budget.gain_db - budget.fixed_loss_db - budget.mesh_loss_db == pytest.approx(
        budget.received_dbm
    )
    # 38 dB as sent; booster 58 dB + 0 dBm - 7 dB.
    assert budget.osnr_db == pytest.approx(combined_osnr_db(38.0, 51.0), abs=1e-6)
    assert budget.osnr_margin_db == pytest.approx(combined_osnr_db(38.0, 51.0) - 24.0, abs=1e-3)


def test_outputs_are_exchanged_where_only_that_gives_ways() -> None:
    file = document(ZR_PAIR)
    wiring = {side: fibres[:2] for side, fibres in file["wiring"].items()}
    for fibre, port in zip((*wiring["inputs"], *wiring["outputs"]), (5, 2, 8, 4), strict=True):
        fibre["port"] = port
    plan = plan_circuits(model_of(file | {"wiring": wiring}), record_of(ZR_PAIR), BOTH[:1])
    # Ports 5 to 8 and 2 to 4 also have paths of equal length, but they share PUCs.
    assert [(path.source, path.target) for path in plan.circuits[0].paths] == [(5, 4), (2, 8)]
    assert plan.circuits[0].budget.dgd_ps == 0.0


def at_odds() -> dict[str, object]:
    """A pair with one end at a port of the other parity."""
    file = document(ZR_PAIR)
    mesh = record_of(ZR_PAIR).mesh
    taken = {fibre["port"] for side in file["wiring"].values() for fibre in side}
    even = mesh.port_parity(7, 11)
    others = (p for p in mesh.fibre_ports if p not in taken and mesh.port_parity(7, p) not in (even, None))
    file["wiring"]["outputs"][1]["port"] = min(others, key=lambda port: abs(port - 11))
    return file


def test_where_parity_forbids_it_the_nearest_mismatch_is_taken_and_told() -> None:
    plan = plan_circuits(model_of(at_odds()), record_of(ZR_PAIR), BOTH[:1])
    circuit = plan.circuits[0]
    assert abs(circuit.paths[0].hops - circuit.paths[1].hops) == 1
    assert circuit.budget.dgd_ps == pytest.approx(11.25)
    assert circuit.budget.imbalance_db == pytest.approx(0.0, abs=0.02)  # a trim corrects the loss, not the delay
    assert circuit.budget.penalty_db == pytest.approx(0.5 * 1.125**2, abs=1e-3)
    assert "differ by 1 hop" in explain(plan)
    assert "(parity)" in explain(plan)


def test_a_delay_beyond_what_the_receiver_takes_is_refused_with_the_number() -> None:
    file = at_odds()
    file["devices"]["zr-b"]["max_dgd_ps"] = 5.0  # type: ignore[index]
    with pytest.raises(BudgetError, match=r"delay between the arms \(DGD\) is 11.25 ps, expected at most 5") as caught:
        plan_circuits(model_of(file), record_of(ZR_PAIR), BOTH[:1])
    assert isinstance(caught.value.violations[0], BudgetViolation)
    assert caught.value.nearest is None
    assert "equal parity" in str(caught.value)


@pytest.mark.parametrize("seed", [5, pytest.param(6, marks=pytest.mark.long)])
def test_split_light_of_one_polarization_arrives_whatever_the_fibre_does(tmp_path: Path, seed: int) -> None:
    with Bench.emulate(diversity(tmp_path), seed=seed) as bench:
        plan = plan_circuits(bench, record_of_truth(bench), [CircuitRequest("sfp-a", "sfp-b")])
        circuit = plan.circuits[0]
        assert (circuit.strategy, len(circuit.arms)) == ("diversity", 2)
        bench.mesh.program(plan.currents_ma)
        bench.transponders["sfp-a"].enable()
        world = bench.emulated.world
        received = []
        for _ in range(6):
            received.append(db(world.received_w("sfp-b") * 1e3))
            world.turn_fibre("sfp-a", angle_rad=1.3)
        assert np.ptp(received) < 0.5
        assert received[0] == pytest.approx(circuit.budget.received_dbm, abs=1.3)


def test_losses_of_two_ports_that_were_lit_together_are_told_apart() -> None:
    record = record_of(ZR_PAIR)
    changes = {
        # 0 dBm, amplified by 5 dB, 0.5 dB before the mesh: 4.5 dBm, of which -4.5 dBm were found behind port 5.
        5: {"input_loss_db": 9.0, "source_dbm": -4.5},
        7: {"input_loss_db": None, "source_dbm": -5.5, "lit_with": 5},
    }
    ports = tuple(replace(port, **changes.get(port.port, {})) for port in record.ports)  # type: ignore[arg-type]
    circuit = plan_circuits(model_of(document(ZR_PAIR)), replace(record, ports=ports), BOTH[:1]).circuits[0]
    into = []
    for arm in circuit.arms:
        out_db = next(port.output_loss_db for port in ports if port.port == arm.path.target)
        trimmed_db = 0.0 if arm.trim is None else arm.trim.loss_db
        into.append(arm.loss_db - arm.path.loss_db - trimmed_db - (out_db or 0.0))
    # Half of the power is that tributary's: 4.5 dBm - 3.01 dB + 4.5 dBm, and a decibel more for the other one.
    assert into == pytest.approx([5.99, 6.99], abs=0.02)
    assert circuit.budget.imbalance_db == pytest.approx(0.0, abs=0.02)
