"""Cost of a calibration as a function of mesh size: CPU time, memory, hardware time, and scaling exponents.

Run: .venv/bin/python benchmarks/calibration_scale.py [--pucs 15 30 72 138 265] [--seed 5] [--out FILE]
     [--table FILE ...]

Runs the whole procedure through drivers and wire bytes on hexagonal meshes, each in a separate process, one after the
other. Every fibre port has a monitor; light enters at eight evenly spaced ports (three on the smallest mesh). CPU time
includes the emulated bench; memory is the largest resident size of the process. The exponent is the log-log slope over
the number of PUCs, from 72 PUCs on and over all sizes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import yaml

HERE = Path(__file__).parent
# This folder has a module of the same name as the package calibration.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]

MESHES: dict[int, dict[str, Any]] = {
    15: {"columns": [2]},
    30: {"rings": 2},
    72: {"columns": [2, 3, 2, 3, 2, 3, 2]},
    138: {"columns": [7, 8, 7, 8, 7]},
    265: {"columns": [8, 9, 8, 9, 8, 9, 8, 9, 8]},
}
COLUMNS = (
    ("settings", "settings", ".0f"),
    ("certified", "fit_certified", ".0f"),
    ("passive mrad", "passive_mrad", ".2f"),
    ("bound", "passive_bound_mrad", ".2f"),
    ("CPU s", "cpu_s", ".0f"),
    ("memory MiB", "memory_mib", ".0f"),
    ("hardware s", "hardware_s", ".0f"),
)
COSTS = ("cpu_s", "memory_mib", "hardware_s")


def document(pucs: int) -> dict[str, Any]:
    """Return the bench file for a mesh size."""
    from lumion_hw.mesh.layout.topologies import build_mesh

    ((word, numbers),) = MESHES[pucs].items()
    ports = build_mesh(word, numbers if isinstance(numbers, list) else [numbers]).fibre_ports
    count = 3 if pucs == 15 else 8
    input_ports = [ports[len(ports) * number // count] for number in range(count)]
    modules = [f"sfp-{number}" for number in range(count)]
    power_mw = 1000.0 * pucs / 72.0
    devices: dict[str, Any] = {
        "mesh0": {"kind": "lumion-mesh", "heater_max_ma": 2.5, "heater_ohm": 1000.0, "total_power_mw": power_mw}
    }
    devices |= {name: {"kind": "sfp-8472"} for name in modules}
    devices |= {f"pol-{number}": {"kind": "oz-epc04"} for number in range(count)}
    inputs = [
        {"transponder": name, "port": port, "polarization": f"pol-{number}", "loss_db": 0.5, "gain_db": 11.0}
        for number, (name, port) in enumerate(zip(modules, input_ports, strict=True))
    ]
    return {
        "version": 1,
        "name": f"mesh-of-{pucs}",
        "devices": devices,
        "mesh": {"controller": "mesh0"} | MESHES[pucs],
        "wiring": {"inputs": inputs},
    }


def one(pucs: int, seed: int) -> dict[str, Any]:
    """Calibrate the bench of one size and judge the result."""
    spec = importlib.util.spec_from_file_location("goal_benchmark", HERE / "calibration.py")
    if spec is None or spec.loader is None:
        raise RuntimeError("benchmarks/calibration.py is missing")
    goals: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(goals)
    with TemporaryDirectory() as directory:
        path = Path(directory) / "bench.yaml"
        path.write_text(yaml.safe_dump(document(pucs)), encoding="utf-8")
        result = goals.calibrated(path, seed)
    # Linux reports kB.
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    return {"pucs": pucs, "faults": result["faults"], "figures": result["figures"] | {"memory_mib": memory_mib}}


def print_table(results: Sequence[Mapping[str, Any]]) -> None:
    """Print a row per size, and the exponents."""
    print("| PUCs | " + " | ".join(title for title, _, _ in COLUMNS) + " |\n|" + "---|" * (len(COLUMNS) + 1))
    for each in sorted(results, key=lambda one: one["pucs"]):
        cells = [format(each["figures"].get(name, np.nan), form) for _, name, form in COLUMNS]
        print(f"| {each['pucs']} | " + " | ".join(cells) + " |")
    for least in (0, 72):
        rows = [each for each in results if each["pucs"] >= least]
        if len({each["pucs"] for each in rows}) > 1:
            sizes = np.log([each["pucs"] for each in rows])
            slopes = [np.polyfit(sizes, np.log([each["figures"][name] for each in rows]), 1)[0] for name in COSTS]
            named = ", ".join(f"{name} {slope:.2f}" for name, slope in zip(COSTS, slopes, strict=True))
            print(f"\nExponents from {max(least, min(each['pucs'] for each in rows))} PUCs on: {named}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pucs", type=int, nargs="+", choices=sorted(MESHES), default=sorted(MESHES))
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=Path, help="file to which results are appended")
    parser.add_argument("--table", type=Path, nargs="+", help="print the table of these files, without a measurement")
    given = parser.parse_args()
    if given.table:
        print_table([json.loads(line) for path in given.table for line in path.read_text().splitlines()])
        return
    results = []
    for pucs in given.pucs:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            results.append(pool.apply(one, (pucs, given.seed)))
        for fault in results[-1]["faults"]:
            print(f"<!-- {pucs} PUCs: {fault} -->", flush=True)
        if given.out:
            with given.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(results[-1]) + "\n")
    print_table(results)


if __name__ == "__main__":
    main()
