"""Attenuators, switches and amplifiers in the fibres count in plans and proofs with their present settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lumion_hw import Bench
from lumion_hw.circuits import BudgetError, CircuitRequest, PathSetup, plan_circuits
from tests.circuits.known_mesh import path_setup, record_of_truth
from tests.circuits.plan.planning_cases import document

A_B = CircuitRequest("sfp-a", "sfp-b")
INSERTION_DB = 2.2 + 2.2 + 1.0  # of two attenuators and a switch, from the bench file


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """The small bench with an attenuator after sfp-a, and an attenuator and a switch before sfp-b."""
    file = document()
    file["devices"] |= {
        "att0": {"kind": "keysight-n776x"},
        "oxc0": {"kind": "polatis", "n_inputs": 4, "n_outputs": 4},
    }
    (entry,) = [each for each in file["wiring"]["inputs"] if each["transponder"] == "sfp-a"]
    entry |= {
        "gain_db": 15.0,
        "through": [{"device": "att0", "channel": 1}],
    }
    (out,) = [each for each in file["wiring"]["outputs"] if each["transponder"] == "sfp-b"]
    out |= {
        "through": [{"device": "att0", "channel": 2}, {"device": "oxc0", "enters": 1, "leaves": 5}],
    }
    path = tmp_path / "parts.yaml"
    path.write_text(yaml.safe_dump(file), encoding="utf-8")
    with Bench.emulate(path, seed=5) as opened:
        for channel in (1, 2):
            opened.attenuators["att0"].set_attenuation_db(channel, 0.0)
            opened.attenuators["att0"].enable(channel)
        opened.switches["oxc0"].set_connections({1: 5})
        yield opened


@pytest.fixture
def setup(bench: Bench) -> PathSetup:
    return path_setup(bench)


def test_what_they_are_set_to_is_taken_off_the_margin(bench: Bench) -> None:
    record = record_of_truth(bench)
    (clear,) = plan_circuits(bench, record, [A_B]).circuits
    (by_file,) = plan_circuits(bench.model, record, [A_B]).circuits
    assert clear.budget.margin_db == pytest.approx(by_file.budget.margin_db - INSERTION_DB)
    bench.attenuators["att0"].set_attenuation_db(1, 1.5)
    bench.attenuators["att0"].set_attenuation_db(2, 0.5)
    (dimmed,) = plan_circuits(bench, record, [A_B]).circuits
    assert dimmed.budget.margin_db == pytest.approx(clear.budget.margin_db - 2.0, abs=0.02)
    assert dimmed.budget.mesh_loss_db == pytest.approx(clear.budget.mesh_loss_db, abs=1e-6)
    assert dimmed.budget.fixed_loss_db == pytest.approx(clear.budget.fixed_loss_db + 2.0, abs=0.02)


def test_a_proof_expects_what_the_plan_did(bench: Bench, setup: PathSetup) -> None:
    bench.attenuators["att0"].set_attenuation_db(1, 1.5)
    bench.attenuators["att0"].set_attenuation_db(2, 1.0)
    (proof,) = setup.connect([A_B])
    assert proof.proven
    assert proof.measured_loss_db == pytest.approx(proof.circuit.budget.mesh_loss_db, abs=0.7)


@pytest.mark.parametrize(
    ("block", "named"),
    [
        (lambda bench: bench.attenuators["att0"].disable(1), "att0"),
        (lambda bench: bench.switches["oxc0"].set_connections({1: 6}), "oxc0"),
    ],
)
def test_what_lets_no_light_pass_is_named(bench: Bench, block, named: str) -> None:
    block(bench)
    with pytest.raises(BudgetError, match=rf"{named} blocks the light") as caught:
        plan_circuits(bench, record_of_truth(bench), [A_B])
    assert caught.value.nearest is None
