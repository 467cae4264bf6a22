"""Benches that light or use only a part of their mesh: the rest is left out and named, and no goal is missed by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
