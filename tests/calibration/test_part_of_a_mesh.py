"""Benches that light or use only a part of their mesh: the rest is left out and named, and no goal is missed by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from calibration.run.journaled_run import journal_path
from lumion_hw.cli import calibrate_main as main
from lumion_hw.storage import load_record

pytestmark = pytest.mark.long

ONE_INPUT = """
version: 1
name: one-input
devices:
  board: {kind: lumion-mesh}
  laser: {kind: santec-tsl, model: TSL-570}
mesh: {controller: board, topology: rectangular, ports: 4}
wiring:
  inputs: [{laser: laser, port: 0}]
  outputs: []
emulation: {fibre_drift_rad2_per_s: 0.0}
"""


def test_a_dark_puc_costs_one_sentence_and_no_goal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench, out = tmp_path / "bench.yaml", tmp_path / "record.json"
    bench.write_text(ONE_INPUT)
    assert main(["run", str(bench), "--emulate", "--seed", "1", "--out", str(out)]) == 3
    said = capsys.readouterr().out
    assert "The calibration is certified, but 1 fault was found." in said
    assert "missed" not in said
    record = load_record(out)
    assert len(record.faults) == 1
    assert "PUC 1 (channels 2 and 3) gets no light from your inputs" in record.faults[0]
    assert record.joints is not None
    assert record.joints.loop_sigma_rad is not None
    assert record.joints.loop_sigma_rad < 3e-3
    assert record.pucs[1].passive_phase_rad is None
    assert record.pucs[1].upper.law is None
    assert main(["drift", str(bench), str(out), "--emulate", "--seed", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == []


RECTANGULAR = Path(__file__).parents[2] / "examples" / "benches" / "rectangular-6x6.yaml"
PART = (0, 2, 3, 4)


def four_ports(directory: Path) -> Path:
    """Write the bench file of the 6x6 chip for one with four ports, and return its path."""
    document = yaml.safe_load(RECTANGULAR.read_text())
    document["mesh"]["ports"] = 4
    wiring = document["wiring"]
    outputs = [output | {"port": output["port"] - 2} for output in wiring["outputs"][:4]]
    document["wiring"] = {"inputs": wiring["inputs"][:4], "outputs": outputs}
    bench = directory / "bench.yaml"
    bench.write_text(yaml.safe_dump(document))
    return bench


def test_what_one_circuit_uses_is_calibrated_alone_and_joined_to_an_older_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = four_ports(tmp_path)
    whole, part, joined = (tmp_path / f"{name}.json" for name in ("whole", "part", "joined"))
    common = ["run", str(bench), "--emulate", "--seed", "1"]
    assert main([*common, "--out", str(whole)]) == 0
    assert main([*common, "--pucs", ",".join(map(str, PART)), "--out", str(part)]) == 0
    assert "PUCs: 4 of 4 calibrated" in capsys.readouterr().out
    alone = load_record(part)
    assert [puc for puc, entry in enumerate(alone.pucs) if entry.passive_phase_rad is not None] == list(PART)
    assert not alone.defects
    # The same readings once more: the journal of the part, without its last note, is that of a run to be finished.
    *entries, last = journal_path(part).read_bytes().splitlines(keepends=True)
    assert b"finished" in last
    journal_path(joined).write_bytes(b"".join(entries))
    assert main([*common, "--pucs", "0,2,3,4", "--join", str(whole), "--resume", "--out", str(joined)]) == 0
    old, new = load_record(whole), load_record(joined)
    for puc, entry in enumerate(new.pucs):
        if puc not in PART:
            assert entry == old.pucs[puc]
        else:
            assert entry.passive_phase_rad == pytest.approx(alone.pucs[puc].passive_phase_rad, abs=3e-3)
            assert entry != old.pucs[puc]
    assert new.monitor_ports == old.monitor_ports
    assert new.parent_sha256 == old.content_sha256
    capsys.readouterr()
    # The joined record predicts light through both parts together, and can be checked for drift.
    assert main(["verify", str(bench), str(joined), "--emulate", "--seed", "1"]) == 0
    assert main(["drift", str(bench), str(joined), "--emulate", "--seed", "1", "--check-only"]) == 0
    assert "The record is valid" in capsys.readouterr().out


def test_a_part_that_needs_others_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "part.json"
    assert main(["run", str(RECTANGULAR), "--emulate", "--pucs", "0-3", "--out", str(out)]) == 2
    assert "this part cannot be calibrated alone" in capsys.readouterr().err
    assert not out.exists()
