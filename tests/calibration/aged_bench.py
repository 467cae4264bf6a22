"""Benches whose chip drifts as docs/calibration.md, 6, has it, and records of them from the first day."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.model.gauge import gauge_fixed_difference
from calibration.model.parameters import MeshParameters
from calibration.report.hidden_truth import compare
from lumion_hw.bench.bench import Bench
from lumion_hw.cli.demo.steps import calibrate
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.polarization import Aligner
from lumion_hw.quantities import frequency_hz_from_wavelength_m
from tests.calibration.bench_run import SMALL
from tests.ideal_bench import ideal_text

DAY_S = 86_400.0
DRIFTING = "{temperature_sigma_k: 0.1, resistance_drift_per_root_day: 1.0e-3, phase_drift_rad_per_root_day: 0.02}"


def drifting_small(directory: Path) -> Path:
    """The small bench, drifting."""
    path = directory / "drifting.yaml"
    path.write_text(SMALL.read_text() + f"emulation: {DRIFTING}\n")
    return path


def drifting_prototype(directory: Path) -> Path:
    """The built-in bench, its chip ideal and drifting."""
    path = directory / "drifting-prototype.yaml"
    more = "".join(f"  {each.strip()}\n" for each in DRIFTING.strip("{}").split(","))
    path.write_text(ideal_text("lumion-prototype") + more)
    return path


def first_day(bench_file: str | Path, seed: int, path: Path) -> CalibrationRecord:
    """Calibrate the bench on the day its seed draws it, before anything drifts."""
    with Bench.emulate(bench_file, seed=seed) as bench:
        return calibrate(bench, Aligner(bench.clock), seed, path)


def passive_errors(bench: Bench, record: CalibrationRecord) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Errors of the passive phases against the truth of today, and the same over their standard errors."""
    error = compare(bench, record).phase_error_rad
    return error, error / np.array([entry.passive_phase_sigma_rad for entry in record.pucs], dtype=np.float64)


def loop_error_rad(bench: Bench, found: MeshParameters) -> float:
    """Rms error per loop. What frequency the light has in common, and so what all joints have, no port can tell."""
    world = bench.emulated.world
    reference_hz = frequency_hz_from_wavelength_m(1550e-9)
    true_hz = np.mean([chain.frequency_hz for chain in world.chains]) - reference_hz
    offset_hz = float(np.mean(found.source_detuning_hz) - true_hz)
    off = found.joint_phase_rad - world.truth.joint_phase - world.truth.common_phase_rad
    off = gauge_fixed_difference(world.mesh, off + 2 * math.pi * 11.25e-12 * offset_hz)
    common = gauge_fixed_difference(world.mesh, np.full(len(off), 1e-3))
    off = off - common * (common @ off) / (common @ common)
    return float(np.sqrt((off**2).sum() / (len(off) - world.mesh.n_pucs)))
