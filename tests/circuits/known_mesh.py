"""Small benches for the tests of circuits and fabric, with calibration records computed from the emulated truth.

A calibration takes seconds, and the tests here only use its result. The tests of the command line include the
calibration.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, PathSetup, PlannedCircuit
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.polarization import Aligner
from lumion_hw.testing.known_record import record_of_truth
from tests.edited_files import edited as edited_copy

__all__ = ["record_of_truth"]  # imported from here by many tests, beside the names of this file

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"

A_TO_B = [CircuitRequest("sfp-a", "sfp-b"), CircuitRequest("sfp-b", "sfp-a")]


def without_outputs(record: CalibrationRecord) -> CalibrationRecord:
    """Return what a calibration without meters behind the mesh knows: nothing of the outputs' losses."""
    blind = (replace(port, output_loss_db=None, output_loss_sigma_db=None) for port in record.ports)
    return replace(record, ports=tuple(blind))


def true_arm_losses_db(bench: Bench, circuit: PlannedCircuit) -> list[float]:
    """Return what each arm loses from module to module, by the hidden truth and the currents driven now."""
    world, losses_db = bench.emulated.world, []
    access_db = world.truth.access_loss_db
    for arm in circuit.arms:
        index = next(i for i, path in enumerate(bench.wiring.inputs) if path == arm.entry)
        hertz = world.chains[index].frequency_hz
        field = world.true_fields(arm.entry.port, hertz)[arm.exit.port]
        outside_db = access_db[arm.entry.port] + access_db[arm.exit.port] + arm.fixed_loss_db - arm.entry.gain_db
        losses_db.append(float(outside_db - 20.0 * np.log10(abs(field))))
    return losses_db


def path_setup(bench: Bench, record: CalibrationRecord | None = None) -> PathSetup:
    """Return a path set-up on a bench that is known perfectly, or by another record."""
    return PathSetup(bench, record or record_of_truth(bench), Aligner(bench.clock))


def with_puc(record: CalibrationRecord, number: int, **changes: object) -> CalibrationRecord:
    """Return a record with one PUC changed."""
    pucs = list(record.pucs)
    pucs[number] = replace(pucs[number], **changes)  # type: ignore[arg-type]
    return replace(record, pucs=tuple(pucs))


def edited(directory: Path, *changes: tuple[str, str]) -> Path:
    """Return a copy of the small bench file with texts replaced."""
    return edited_copy(SMALL, directory, *changes)
