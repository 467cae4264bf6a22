"""Benches for planning without opening them: planning needs only the checked file and a record."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lumion_hw import Bench
from lumion_hw.bench import BenchModel
from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CouplerEntry, Dispersion, JointsEntry
from tests.circuits.known_mesh import SMALL, record_of_truth

ZR_PAIR = SMALL.with_name("zr_pair.yaml")


@cache
def record_of(path: Path = SMALL) -> CalibrationRecord:
    """Return the result of a perfect calibration of the mesh in a bench file."""
    with Bench.emulate(path, seed=5) as bench:
        return record_of_truth(bench)


def fully_known(bench: Bench) -> CalibrationRecord:
    """Return the record of a perfect calibration that has found couplers and joints too, and true powers."""
    record, truth = record_of_truth(bench), bench.emulated.world.truth
    at_a, at_b = (np.arcsin(np.sqrt(eta)) for eta in (truth.eta_in, truth.eta_out))
    couplers = [CouplerEntry(float(0.5 * (a + b) - np.pi / 4), float(a - b)) for a, b in zip(at_a, at_b, strict=True)]
    pucs = tuple(replace(puc, coupler=coupler) for puc, coupler in zip(record.pucs, couplers, strict=True))
    ports = tuple(replace(port, input_loss_db=port.output_loss_db) for port in record.ports)
    physics, hz = PhysicsParameters(), record.reference_hz
    nm_per_hz = -record.wavelength_nm / hz
    slopes = Dispersion(
        differential_slope_rad_per_hz=physics.differential_slope_per_nm * nm_per_hz,
        # η = sin² a changes at a = π/4 as fast as a does.
        coupler_slope_rad_per_hz=physics.eta_slope_per_nm * nm_per_hz,
    )
    joints = JointsEntry(tuple(truth.joint_phase.tolist()))
    return replace(record, pucs=pucs, ports=ports, joints=joints, dispersion=slopes)


def document(path: Path = SMALL) -> dict[str, Any]:
    """Return a bench file as data that a test may change."""
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def model_of(file: Mapping[str, Any]) -> BenchModel:
    """Return the checked bench of a file."""
    return BenchModel.model_validate(file)


def with_device(name: str, path: Path = SMALL, **keys: object) -> BenchModel:
    """Return a bench with keys of one device changed."""
    file = document(path)
    file["devices"][name] |= keys
    return model_of(file)


def with_inputs(path: Path = SMALL, **keys: object) -> BenchModel:
    """Return a bench with keys of every input changed."""
    file = document(path)
    for fibre in file["wiring"]["inputs"]:
        fibre.update(keys)
    return model_of(file)


def mixed() -> BenchModel:
    """Return a bench of a coherent pair and two SFP+ modules on one mesh, one of which has a splitter."""
    file = document(ZR_PAIR)
    file["devices"] |= {"sfp-a": {"kind": "sfp-8472"}, "sfp-b": {"kind": "sfp-8472"}}
    file["wiring"]["inputs"].append({"transponder": "sfp-a", "port": 1, "gain_db": 9.0})
    file["wiring"]["outputs"].append({"port": 3, "transponder": "sfp-b"})
    return model_of(file)


def diversity(path: Path) -> Path:
    """Write a bench whose module sfp-a reaches sfp-b over a splitter-rotator and a combiner."""
    file = document(ZR_PAIR)
    file["devices"] = {
        "mesh0": file["devices"]["mesh0"],
        "sfp-a": {"kind": "sfp-8472", "serial": "ER-A"},
        "sfp-b": {"kind": "sfp-8472", "serial": "ER-B"},
    }
    names = {"zr-a": "sfp-a", "zr-b": "sfp-b"}
    wiring = file["wiring"]
    wiring["inputs"] = [each | {"transponder": "sfp-a", "gain_db": 9.0} for each in wiring["inputs"][:2]]
    wiring["outputs"] = [each | {"transponder": names[each["transponder"]]} for each in wiring["outputs"][:2]]
    target = path / "diversity.yaml"
    target.write_text(yaml.safe_dump(file), encoding="utf-8")
    return target


def db(ratio: float) -> float:
    """Return a power ratio in dB."""
    return float(10.0 * np.log10(ratio))
