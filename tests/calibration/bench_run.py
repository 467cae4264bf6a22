"""An emulated bench, calibrated by the whole procedure, beside its hidden truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from calibration.measure.bench_probe import BenchProbe
from calibration.model.observations import Observations
from calibration.report.hidden_truth import TruthReport, compare
from calibration.run.planning import Goal
from calibration.run.procedure import Calibration
from lumion_hw.bench.bench import Bench
from lumion_hw.emulator.assembly import EmulatedBench
from lumion_hw.mesh.record.calibration_record import CalibrationRecord

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"


@dataclass(frozen=True)
class Calibrated:
    """An emulated bench, its calibration, how it compares with the hidden truth, and the readings it was made from."""

    bench: Bench
    probe: BenchProbe
    record: CalibrationRecord
    report: TruthReport
    seed: int
    observations: Observations


def calibrated_bench(bench: Bench, seed: int, goal: Goal | None = None) -> Calibrated:
    """Calibrate an open bench by the whole procedure; fibres that are moved by hand are plugged in as requested."""
    probe = BenchProbe(bench, on_plug=lambda request: bench.emulated.faults.plug(request.device, request.port))
    dark = probe.align_all()
    run = Calibration(probe, probe.device_under_test(), seed, goal=goal or Goal())
    run.faults += [f"source at port {port}: {reason}" for port, reason in dark.items()]
    record = run.run()
    return Calibrated(bench, probe, record, compare(bench, record), seed, run.logbook.observations())


@contextmanager
def faulty_bench(seed: int, *faults: Callable[[EmulatedBench], None]) -> Iterator[Calibrated]:
    """Inject faults into the small bench, then calibrate it."""
    with Bench.emulate(SMALL, seed=seed) as bench:
        for inject in faults:
            inject(bench.emulated)
        yield calibrated_bench(bench, seed)


def within_tolerance(found: Calibrated) -> bool:
    """Whether phases, states and losses of everything calibrated are as good as on a bench without faults."""
    rms_rad = math.sqrt(float((found.report.phase_error_rad**2).mean()))
    return (
        found.record.complete
        and rms_rad < 0.005
        and found.report.shortfalls() == 0
        and found.record.quality["held_out_excess_db"] < 0.1
    )
