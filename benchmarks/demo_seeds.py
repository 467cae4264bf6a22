"""Run the main job for many seeds; print the proven circuits and the quality of the calibration.

Run: .venv/bin/python benchmarks/demo_seeds.py [first seed] [number of seeds] [bench file]
The truth is used only to judge the results.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.pop(0)  # this folder has a module of the same name as the package calibration

import numpy as np

from calibration.report.hidden_truth import compare
from lumion_hw import Bench
from lumion_hw.cli.demo.steps import run_demo

HEADERS = (
    "seed", "proven", "loss error dB, worst", "held-out dB rms", "phase mrad rms", "phase mrad worst",
    "states short of 30 dB", "crosstalk dB, worst", "least margin dB", "settings", "bench s", "CPU s",
)  # fmt: skip


def one(seed: int, file: str) -> tuple[list[object], list[float], dict[str, float]]:
    began = time.process_time()
    with tempfile.TemporaryDirectory() as directory, Bench.emulate(file, seed=seed) as bench:
        demo_run = run_demo(bench, seed, Path(directory))
        cpu_s = time.process_time() - began
        proofs = (*demo_run.before, *demo_run.recovery.proofs)
        errors = [abs(proof.loss_error_db) for proof in proofs if proof.loss_error_db is not None]
        truth = compare(bench, demo_run.record)
        quality = demo_run.record.quality
        spans = {span.name: span.bench_ms for span in demo_run.recovery.spans}
    phase = truth.phase_error_rad * 1e3
    crosstalk = [db for db in demo_run.crosstalk_db.values() if db is not None]
    row = [
        seed, f"{sum(proof.proven for proof in proofs)}/{len(proofs)}", f"{max(errors):.2f}",
        f"{quality['held_out_rms_db']:.3f}", f"{np.sqrt((phase**2).mean()):.1f}", f"{np.abs(phase).max():.1f}",
        truth.shortfalls(), f"{min(crosstalk):.1f}" if crosstalk else "too dark",
        f"{min(proof.margin_db or -99.0 for proof in proofs):.1f}",
        f"{quality['settings']:.0f}", f"{quality['bench_s']:.0f}", f"{cpu_s:.0f}",
    ]  # fmt: skip
    return row, errors, spans


def main() -> None:
    first, count = (int(argument) for argument in (sys.argv[1:3] + ["0", "20"][len(sys.argv[1:3]) :]))
    file = sys.argv[3] if len(sys.argv) > 3 else "lumion-prototype"
    print("| " + " | ".join(HEADERS) + " |")
    print("|" + "---|" * len(HEADERS))
    everything: list[float] = []
    spans: dict[str, list[float]] = {}
    for seed in range(first, first + count):
        row, errors, times = one(seed, file)
        everything += errors
        for name, value in times.items():
            spans.setdefault(name, []).append(value)
        print("| " + " | ".join(map(str, row)) + " |", flush=True)
    print(f"\nLoss error over {len(everything)} circuits: median {np.median(everything):.3f} dB, "
          f"worst {max(everything):.3f} dB.")  # fmt: skip
    for name, values in spans.items():
        print(f"Span {name}: median {np.median(values):.1f} ms, {min(values):.1f} to {max(values):.1f} ms, bench time.")


if __name__ == "__main__":
    main()
