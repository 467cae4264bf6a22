"""An emulated bench, calibrated by the whole procedure, beside its hidden truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calibration.against_truth import TruthReport, compare
from calibration.bench_probe import BenchProbe
from calibration.procedure import Calibration
from lumion_hw.bench.bench import Bench
from lumion_hw.mesh.record import CalibrationRecord

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"


@dataclass(frozen=True)
class Calibrated:
    """An emulated bench, its calibration, and how it compares with the hidden truth."""

    bench: Bench
    probe: BenchProbe
    record: CalibrationRecord
    report: TruthReport
    seed: int


def calibrated_bench(bench: Bench, seed: int) -> Calibrated:
    """Calibrate an open bench by the whole procedure."""
    probe = BenchProbe(bench)
    dark = probe.align_all()
    run = Calibration(probe, probe.subject(), seed)
    run.faults += [f"source at port {port}: {reason}" for port, reason in dark.items()]
    record = run.run()
    return Calibrated(bench, probe, record, compare(bench, record), seed)
