"""Calibrate chips drawn at random from what foundries make, each with one laser behind a switch.

Run: .venv/bin/python benchmarks/any_chip.py [--chips 100] [--first 0] [--jobs 2] [--max-crosstalk 0.05]

Every chip has another mesh (up to 30 cells), heater power per π, resistance, couplers, losses and crosstalk, and the
emulated physics ``realistic``. A chip counts as calibrated if its record is certified and every group of true errors is
within 0.8 to 1.5 of the stated ones (groups of at least eight parameters; smaller ones scatter too much).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import yaml

# This folder has a module of the same name as the package calibration.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]

MESHES: dict[str, list[tuple[int, ...]]] = {
    "rectangular": [(4,), (5,), (6,), (8,)],
    "clements": [(3,), (4,), (5,)],
    "reck": [(3,), (4,), (5,)],
    "bell": [(3,), (4,), (5,)],
    "benes": [(4,), (8,)],
    "dilated-benes": [(4,)],
    "spanke": [(2,), (4,)],
    "crossbar": [(3,), (4,), (5,)],
    "columns": [(2,), (3,), (4,), (2, 3), (1, 2, 1)],
    "rings": [(1,), (2,)],
    "square": [(2, 2), (2, 3), (3, 3)],
    "triangular": [(2, 3), (3, 3), (3, 4)],
}
"""Sizes of every layout that have at most 30 cells."""
OXIDE_DECAY_MM = (0.01, 0.1)
"""Range of the distance over which the crosstalk through the oxide falls to 1/e (Jacques 2019: 0.01 mm)."""
MIN_GROUP = 8
RATIO = (0.8, 1.5)
DRAWN_QUANTILES = np.linspace(0.0, 1.0, 41)
"""Quantiles that are printed of the ratios that errors drawn from the stated covariance would have."""


def drawn_bench(number: int, max_crosstalk: float = 0.05) -> dict[str, Any]:
    """Return the bench file of a random chip; the same number always gives the same chip.

    ``max_crosstalk`` is the largest phase of a heater on the other arm of its PUC, relative to that on its own arm.
    """
    from lumion_hw.mesh.layout.topologies import LAYOUTS, build_mesh

    rng = np.random.default_rng([0xC41B, number])
    word = list(MESHES)[rng.integers(len(MESHES))]
    size = MESHES[word][rng.integers(len(MESHES[word]))]
    mesh, layout = build_mesh(word, size), LAYOUTS[word]
    # Recirculating meshes have no sides: half of their rim takes light in.
    half = len(mesh.fibre_ports) // 2
    inputs, outputs = mesh.fibre_ports[:half], mesh.fibre_ports[half:]
    p_pi_mw = float(np.exp(rng.uniform(np.log(2.0), np.log(40.0))))
    heat_mw = 2.3 * 1.15 * p_pi_mw
    # A Qontrol drives at most 24 mA and 12 V.
    lowest, highest = max(100.0, 1.05 * heat_mw / 24.0**2 * 1e3), min(2000.0, 0.55 * 12.0**2 / heat_mw * 1e3)
    ohm = float(np.exp(rng.uniform(np.log(lowest), np.log(highest))))
    loss_db = float(rng.uniform(0.1, 1.0))
    low_mw, high_mw = p_pi_mw / 1.15, p_pi_mw * 1.15
    # Enough current for 2.3 π of the least efficient heater, whose resistance may fall by 5 %.
    max_ma = min(float(np.sqrt(2.3 * high_mw / (0.92 * ohm * 1e-3))), 24.0)
    n_heaters = int(mesh.has_heater.sum())
    meters = {f"meter{index}": {"kind": "keysight-n77xx", "model": "N7745A"} for index in range(-(-len(outputs) // 8))}
    return {
        "version": 1,
        "name": f"chip{number}",
        "devices": {
            "mesh0": {
                "kind": "qontrol-q8",
                "heater_max_ma": round(max_ma, 3),
                "heater_ohm": round(ohm, 1),
                "compliance_v": round(min(1.3 * max_ma * ohm * 1e-3, 12.0), 2),
                "total_power_mw": round(2.5 * high_mw * n_heaters, 1),
            },
            "laser": {"kind": "keysight-laser", "model": "N7776C", "pin": "1234"},
            "switch": {"kind": "polatis"},
            **meters,
            **{f"paddles{index}": {"kind": "oz-epc04"} for index in range(len(inputs))},
        },
        "mesh": {
            "controller": "mesh0",
            "topology": mesh.topology,
            str(layout.key): list(size) if layout.many else size[0],
            "typical": {
                "p_pi_min_mw": round(low_mw, 3),
                "p_pi_max_mw": round(high_mw, 3),
                "puc_loss_db": round(loss_db, 3),
                "access_loss_db": 2.5,
            },
        },
        "wiring": {
            "inputs": [
                {
                    "laser": "laser",
                    "port": port,
                    "through": [{"device": "switch", "enters": 1, "leaves": 17 + index}],
                    "polarization": f"paddles{index}",
                }
                for index, port in enumerate(inputs)
            ],
            "outputs": [
                {"port": port, "tap": {"meter": f"meter{index // 8}", "channel": 1 + index % 8}}
                for index, port in enumerate(outputs)
            ],
        },
        "emulation": {
            "physics": "realistic",
            "fibre_drift_rad2_per_s": 0.0,
            "coupler_common_sigma": round(float(rng.uniform(0.01, 0.15)), 4),
            "coupler_difference_rad": round(float(rng.uniform(0.005, 0.1)), 4),
            "thermal_nonlinearity_per_mw": float(rng.uniform(-0.05, 0.05)) / (2.0 * p_pi_mw),
            "other_arm_crosstalk": round(float(rng.uniform(0.0, max_crosstalk)), 5),
            "oxide_decay_mm": round(float(np.exp(rng.uniform(*np.log(OXIDE_DECAY_MM)))), 4),
        },
    }


def calibrated(number: int, max_crosstalk: float) -> dict[str, Any]:
    """Return the result of calibrating one chip."""
    from calibration.measure.bench_probe import BenchProbe
    from calibration.report.hidden_truth import true_parameters
    from calibration.report.truth_errors import group_errors
    from calibration.run.procedure import Calibration
    from lumion_hw.bench.bench import Bench
    from lumion_hw.errors import LumionError

    document = drawn_bench(number, max_crosstalk)
    typical = document["mesh"]["typical"]
    result: dict[str, Any] = {"chip": number}
    result["p_pi_mw"] = round(float(np.sqrt(typical["p_pi_min_mw"] * typical["p_pi_max_mw"])), 2)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.yaml"
        path.write_text(yaml.safe_dump(document))
        try:
            with Bench.emulate(path, seed=number) as bench:
                result["mesh"] = bench.mesh.topology.label
                probe = BenchProbe(bench)
                probe.align_all()
                run = Calibration(probe, probe.device_under_test(), number)
                record = run.run()
                result["cpu_s"] = round(time.process_time() - began, 1)
                result |= {"settings": run.logbook.effort.settings, "hardware_s": run.logbook.effort.hardware_s}
                result["faults"] = list(record.faults)
                result["certified"] = not any(fault.startswith("not certified") for fault in record.faults)
                result["certified"] &= record.quality["fit_certified"] == 1.0
                groups, figures = group_errors(bench, record, true_parameters(bench, record))
                judged = {name: group for name, group in groups.items() if len(group.error) >= MIN_GROUP}
                result["ratios"] = {name: round(group.ratio, 2) for name, group in judged.items()}
                rng = np.random.default_rng(number)
                result["drawn"] = {
                    name: np.quantile(group.drawn_ratios(4000, rng), DRAWN_QUANTILES).round(2).tolist()
                    for name, group in judged.items()
                }
                result["normalised"] = {name: group.normalised.round(2).tolist() for name, group in groups.items()}
                result["mrad"] = {name: round(value, 3) for name, value in figures.items()}
        except (LumionError, ArithmeticError, LookupError, ValueError) as error:
            result |= {"certified": False, "error": str(error), "faults": []}
            result["cpu_s"] = round(time.process_time() - began, 1)
    return result


def main() -> None:
    """Calibrate the chips and print one JSON document per chip, then a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chips", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--max-crosstalk", type=float, default=0.05, help="phase on the other arm, relative to the own")
    arguments = parser.parse_args()
    numbers = range(arguments.first, arguments.first + arguments.chips)
    results = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(calibrated, numbers, [arguments.max_crosstalk] * len(numbers)):
            results.append(result)
            print(json.dumps(result), flush=True)
    certified = [result for result in results if result["certified"]]
    ratios = [ratio for result in certified for ratio in result.get("ratios", {}).values()]
    true = sum(all(RATIO[0] <= ratio <= RATIO[1] for ratio in result["ratios"].values()) for result in certified)
    print(f"certified {len(certified)} of {len(results)}; with true errors as stated {true}")
    if certified:
        print(f"median {np.median([result['cpu_s'] for result in results]):.0f} CPU s", end="; ")
        print(f"ratios of true to stated errors {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
