"""The whole way over a chain of Qontrol modules: calibrated by the power meters on three taps, then circuits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from calibration.measure.bench_probe import BenchProbe
from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, PathSetup
from lumion_hw.errors import CalibrationError
from tests.calibration.bench_run import SMALL, calibrated_bench, within_tolerance

SMALL_QONTROL = SMALL.with_name("small_qontrol.yaml")


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [1])
def test_a_mesh_is_calibrated_by_its_meters_and_carries_circuits(seed: int) -> None:
    with Bench.emulate(SMALL_QONTROL, seed=seed) as bench:
        found = calibrated_bench(bench, seed)
        assert within_tolerance(found)
        assert found.record.faults == ()
        assert found.record.device_serial == "Q8iv-0001,Q8iv-0002,Q8iv-0003,Q8iv-0004"
        assert found.record.monitor_ports == (3, 8, 13)
        setup = PathSetup(bench, found.record)
        requests = [CircuitRequest("sfp-a", "sfp-b"), CircuitRequest("sfp-b", "sfp-a")]
        proofs = setup.establish(setup.plan(requests))
        assert all(proof.proven for proof in proofs)
        assert [proof.loss_error_db for proof in proofs] == pytest.approx([0.0, 0.0], abs=0.5)


def test_without_taps_there_is_nothing_to_calibrate_with(tmp_path: Path) -> None:
    path = tmp_path / "blind.yaml"
    path.write_text(re.sub(r", tap: \{[^}]*\}", "", SMALL_QONTROL.read_text()))
    with Bench.emulate(path) as bench, pytest.raises(CalibrationError, match="mesh0 has no monitors, and no output"):
        BenchProbe(bench)
