"""What a user's script may rely on in types: `make checks` holds it against the sources."""

from typing import assert_type

from lumion_hw import Bench, CalibrationRecord, load_record
from lumion_hw.bench import MeshAccess
from lumion_hw.interfaces import (
    Polarimeter,
    PolarizationController,
    PolarizationOptimizer,
    PowerMeter,
    PowerReading,
    Transponder,
    TunableLaser,
)


def script(bench: Bench) -> float:
    assert_type(bench.meters["m"], PowerMeter)
    assert_type(bench.lasers["l"], TunableLaser)
    assert_type(bench.transponders["t"], Transponder)
    assert_type(bench.polarization["p"], PolarizationController)
    assert_type(bench.polarization_optimizers["p"], PolarizationOptimizer)
    assert_type(bench.polarimeters["p"], Polarimeter)
    assert_type(bench.mesh, MeshAccess)
    assert_type(bench.meters["m"].read(1), PowerReading)
    assert_type(load_record("record.json"), CalibrationRecord)
    return bench.meters["m"].read(1).power_w
