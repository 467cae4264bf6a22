"""A circuit between two 400G-FR4 modules: four lanes in one fibre, planned and proven with their total power."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest
from tests.circuits.known_mesh import path_setup

EXAMPLE = Path(__file__).parents[2] / "examples" / "dr4_breakout.yaml"
WIRING = """wiring:
  inputs: [{transponder: dr4-a, port: 0, polarization: pol1}]
  outputs: [{port: 4, transponder: dr4-b}]
"""


def test_a_circuit_of_four_wavelengths_is_proven(tmp_path: Path) -> None:
    devices = EXAMPLE.read_text(encoding="utf-8").partition("wiring:")[0].replace("400g-dr4", "400g-fr4")
    bench_file = tmp_path / "bench.yaml"
    bench_file.write_text(devices + WIRING, encoding="utf-8")
    with Bench.emulate(bench_file, seed=1) as bench:
        proofs = path_setup(bench).connect([CircuitRequest("dr4-a", "dr4-b")])
        assert [proof.proven for proof in proofs] == [True]
        bench.clock.sleep(1.0)
        sent, received = (bench.transponders[name].monitors() for name in ("dr4-a", "dr4-b"))
        assert sent.tx_power_dbm == pytest.approx(7.0, abs=0.3)
        assert received.rx_power_dbm == pytest.approx(7.0 - 3.7, abs=1.0)  # the loss of the chip
