"""Program, measure and refine matrices on emulated chips of a foundry, and judge them by the hidden chip.

Run: .venv/bin/python benchmarks/matrices.py [--modes 4 6 8 12] [--matrices 50] [--aged-days 0] [--realistic]

Each chip is calibrated once. Couplers are off by 2 % of the power, paths lose unequally, heaters warm other arms and
bare waveguides. ``predicted`` is the fidelity that unequal losses and couplers allow according to the record; the
relative error is ‖V - cU‖ / ‖V‖ with the best factor c. With ``--aged-days``
the chip ages after the calibration and its record alone falls short; the benchmark then shows what refinement recovers.
One JSON document per size is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

# benchmarks/calibration.py would hide the package of that name.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lumion_hw.bench.bench import Bench
    from lumion_hw.mesh.programming.matrix import MatrixSetting
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord

    Complex = NDArray[np.complex128]

_DRIFT = {
    "phase_drift_rad_per_root_day": 0.02,
    "gain_drift_per_root_day": 0.001,
    "resistance_drift_per_root_day": 0.0005,
}


def bench_of(modes: int, topology: str, realistic: bool) -> dict[str, Any]:
    """Return the bench file of a chip with one laser behind a switch and Qontrol modules."""
    meters = {f"meter{index}": {"kind": "keysight-n77xx", "model": "N7745A"} for index in range(-(-modes // 8))}
    inputs = [
        {"laser": "laser", "port": port, "through": [{"device": "switch", "enters": 1, "leaves": 17 + port}]}
        for port in range(modes)
    ]
    outputs = [
        {"port": modes + port, "tap": {"meter": f"meter{port // 8}", "channel": 1 + port % 8}} for port in range(modes)
    ]
    return {
        "version": 1,
        "name": f"{topology}-{modes}",
        "devices": {
            "driver": {
                "kind": "qontrol-q8",
                "heater_max_ma": 10,
                "heater_ohm": 800,
                "compliance_v": 12,
                "total_power_mw": 10_000,
            },
            "laser": {"kind": "keysight-laser", "model": "N7776C", "pin": "1234"},
            "switch": {"kind": "polatis"},
            **meters,
        },
        "mesh": {
            "controller": "driver",
            "topology": topology,
            "ports": modes,
            "typical": {"p_pi_min_mw": 15, "p_pi_max_mw": 35, "puc_loss_db": 0.3, "access_loss_db": 2.5},
        },
        "wiring": {"inputs": inputs, "outputs": outputs},
        "emulation": {
            "fibre_drift_rad2_per_s": 0.0,
            "coupler_common_sigma": 0.02,
            "coupler_difference_rad": 0.02,
            "other_arm_crosstalk": 0.01,
            **({"physics": "realistic"} if realistic else {}),
            **_DRIFT,
        },
    }


def haar(n: int, rng: np.random.Generator) -> Complex:
    """Return a random unitary, uniformly distributed."""
    q, r = np.linalg.qr(rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n)))
    return np.asarray(q * (np.diag(r) / np.abs(np.diag(r))), dtype=np.complex128)


def on_chip(bench: Bench, record: CalibrationRecord, setting: MatrixSetting) -> Complex:
    """Return the matrix that the hidden chip makes of a setting, with the light of each input at its own frequency."""
    from calibration.report.hidden_truth import reference_offset_hz

    bench.mesh.program(setting.currents_ma)
    world = bench.emulated.world
    light_hz = world.slopes.reference_hz + reference_offset_hz(bench, record)
    own_hz = {path.port: chain.frequency_hz for path, chain in zip(world.wiring.inputs, world.chains, strict=True)}
    several = len({path.source for path in world.wiring.inputs}) > 1
    hertz = {port: own_hz.get(port, light_hz) if several else light_hz for port in setting.inputs}
    return np.stack([world.true_fields(port, hertz[port]) for port in setting.inputs], axis=1)[list(setting.outputs)]


def summary(values: list[float]) -> dict[str, float]:
    """Return median and worst of fidelities."""
    return {"median": round(float(np.median(values)), 6), "worst": round(float(np.min(values)), 6)}


def measured_size(modes: int, given: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one size of chip."""
    from calibration.measure.bench_probe import BenchProbe
    from calibration.run.matrices import heater_limits, measure_matrix, refine_matrix
    from calibration.run.procedure import Calibration
    from lumion_hw.bench.bench import Bench
    from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
    from lumion_hw.mesh.programming.matrix import (
        amplitude_fidelity,
        fidelity_up_to_port_phases,
        program_matrix,
        source_detunings_hz,
    )

    result: dict[str, Any] = {"chip": given.bench or f"{given.topology} {modes}", "matrices": given.matrices}
    with tempfile.TemporaryDirectory() as folder:
        path: Path | str = given.bench or Path(folder) / "bench.yaml"
        if isinstance(path, Path):
            path.write_text(yaml.safe_dump(bench_of(modes, given.topology, given.realistic)))
        with Bench.emulate(path, seed=given.seed) as bench, bench.dark():
            probe = BenchProbe(bench)
            probe.align_all()
            record = Calibration(probe, probe.device_under_test(), given.seed).run()
        result["doubts"] = list(record.doubts)
        rng = np.random.default_rng(given.seed)
        rows: dict[str, list[float]] = {}
        with Bench.emulate(path, seed=given.seed, aged_s=given.aged_days * 86_400.0) as bench, bench.dark():
            known = CalibratedMesh.from_record(record, bench.mesh.heater_max_ma)
            limits, detunings_hz = heater_limits(bench), source_detunings_hz(record)
            for number in range(given.matrices):
                wanted = haar(modes, rng)
                if given.general:
                    wanted = rng.standard_normal((modes // 2, modes // 2)).astype(np.complex128)
                began = time.process_time()
                setting = program_matrix(known, wanted, limits=limits, detunings_hz=detunings_hz)
                rows.setdefault("cpu_s", []).append(time.process_time() - began)
                true = on_chip(bench, record, setting)
                rows.setdefault("F_a", []).append(amplitude_fidelity(wanted, true))
                rows.setdefault("F_t", []).append(fidelity_up_to_port_phases(wanted, true))
                rows.setdefault("predicted F_t", []).append(setting.fidelity)
                rows.setdefault("predicted F_a", []).append(amplitude_fidelity(wanted, setting.matrix))
                # Of the matrix as it is, apart from a factor and phases at the ports.
                rows.setdefault("relative error", []).append(math.sqrt(max(1.0 - rows["F_t"][-1], 0.0)))
                if number >= given.measured:
                    continue
                if given.rounds:
                    history = refine_matrix(bench, record, setting, rounds=given.rounds, seed=number)
                else:
                    history = [measure_matrix(bench, record, setting, seed=number)]
                for when, measured in (("first", history[0]), ("last", history[-1])):
                    true = on_chip(bench, record, measured.setting)
                    truly = {"F_a": amplitude_fidelity(wanted, true), "F_t": fidelity_up_to_port_phases(wanted, true)}
                    for name, said in (("F_a", measured.amplitude), ("F_t", measured.phase_true)):
                        rows.setdefault(f"{when} {name}", []).append(truly[name])
                        rows.setdefault(f"{name} off, sigma", []).append((said.value - truly[name]) / said.sigma)
                rows.setdefault("rounds", []).append(len(history) - 1.0)
                rows.setdefault("readings per round", []).append(float(history[0].readings))
    result |= {name: summary(values) for name, values in rows.items() if "F_" in name and "off" not in name}
    errors = rows["relative error"]
    result["relative error"] = {"median": round(float(np.median(errors)), 4), "worst": round(max(errors), 4)}
    result["cpu_s"] = round(float(np.median(rows["cpu_s"])), 2)
    for name in ("F_a off, sigma", "F_t off, sigma"):
        if name in rows:
            result[name] = round(float(np.sqrt(np.mean(np.square(rows[name])))), 2)
    for name in ("rounds", "readings per round"):
        if name in rows:
            result[name] = max(rows[name])
    return result


def main() -> None:
    """Print one document per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", type=int, nargs="+", default=[4, 6, 8, 12])
    parser.add_argument("--topology", default="clements")
    parser.add_argument("--bench", help="bench file or built-in bench instead of such a chip; needs --measured 0")
    parser.add_argument("--matrices", type=int, default=50)
    parser.add_argument("--measured", type=int, default=5, help="how many of them are measured and refined")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--aged-days", type=float, default=0.0)
    parser.add_argument("--general", action="store_true", help="real matrices of half the size that are not unitary")
    parser.add_argument("--realistic", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for modes in given.modes:
        print(json.dumps(measured_size(modes, given)), flush=True)


if __name__ == "__main__":
    main()
