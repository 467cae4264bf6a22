"""Small square and triangular meshes, and one with a single loop, calibrated from light at their ports alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumion_hw.cli import calibrate_main as main
from lumion_hw.storage import load_record

pytestmark = pytest.mark.long

BENCH = """
version: 1
name: lattice
devices:
  board: {{kind: lumion-mesh, heater_max_ma: 2.5, heater_ohm: 1000}}
  laser: {{kind: santec-tsl, model: TSL-570}}
  switch: {{kind: polatis}}
mesh: {{controller: board, topology: {topology}, grid: {grid}}}
wiring:
  inputs:
    - {{laser: laser, port: 0, through: [{{device: switch, enters: 1, leaves: 17}}]}}
    - {{laser: laser, port: 5, through: [{{device: switch, enters: 1, leaves: 18}}]}}
  outputs: []
emulation: {{fibre_drift_rad2_per_s: 0.0}}
"""


@pytest.mark.campaign
@pytest.mark.parametrize(("topology", "grid", "pucs"), [("square", [2, 2], 12), ("triangular", [1, 3], 7)])
def test_a_small_lattice_is_certified_and_its_phases_are_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], topology: str, grid: list[int], pucs: int
) -> None:
    bench, out = tmp_path / "bench.yaml", tmp_path / "record.json"
    bench.write_text(BENCH.format(topology=topology, grid=grid))
    common = [str(bench), "--emulate", "--seed", "1"]
    assert main(["run", *common, "--out", str(out)]) == 0
    record = load_record(out)
    assert record.quality["fit_certified"] == 1.0
    assert sum(entry.passive_phase_rad is not None for entry in record.pucs) == pucs
    capsys.readouterr()
    assert main(["verify", str(bench), str(out), "--emulate", "--seed", "1", "--against-truth", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["phase_error_rms_rad"] < 2e-3
    assert found["states_short_of_30_db"] == 0


def test_heat_on_the_other_arm_is_found_on_a_chip_with_one_loop(tmp_path: Path) -> None:
    """Crosstalk of single pairs took its place, larger than on any known chip."""
    bench, out = tmp_path / "bench.yaml", tmp_path / "record.json"
    text = (
        BENCH.replace("grid: {grid}", "ports: 3")
        .replace("port: 5", "port: 2")
        .replace("0.0}}", "0.0, other_arm_crosstalk: 0.05}}")
    )
    bench.write_text(text.format(topology="bell"))
    assert main(["run", str(bench), "--emulate", "--seed", "1", "--out", str(out)]) == 0
    assert load_record(out).quality["fit_certified"] == 1.0
