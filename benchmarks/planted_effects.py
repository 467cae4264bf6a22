"""Calibrate a bench of 15 PUCs with effects that no author of the fit put into the emulated chip.

Run: .venv/bin/python benchmarks/planted_effects.py [--effect NAME]... [--seed 5] [--seeds 3]

The effects are those of tests/calibration/planted_physics.py. A ratio is the rms of true errors over stated ones in the
groups of parameters that a use depends on; laws are judged with each heater driven alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# This folder has a module of the same name as the package calibration; plants are those of the tests.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]
sys.path.insert(0, str(Path(__file__).parents[1]))


def effects() -> dict[str, Any]:
    """Return the planted effects by name; ``None`` for no effect."""
    from tests.calibration.planted_physics import one_sided_crosstalk, range_step, sagging_supply, warmed_sibling

    return {
        "none": None,
        "a heater warms the other arm by 0.5 %": warmed_sibling(0.005),
        "a heater warms the other arm by 2 %": warmed_sibling(0.02),
        "supply sags with the cube of the current, 0.2 % at half load": sagging_supply(0.002, 30.0),
        "crosstalk stronger one way by 10 %": one_sided_crosstalk(0.1),
        "crosstalk stronger one way by 30 %": one_sided_crosstalk(0.3),
        "monitor amplifier changes range at 20 µA by 0.5 %": range_step(0.005),
    }


def calibrated(effect: str, seed: int, folder: Path) -> dict[str, Any]:
    """Return for which uses a calibration with the effect is certified, and the ratios of its errors."""
    import numpy as np
    import yaml

    from calibration.measure.bench_probe import BenchProbe
    from calibration.report.hidden_truth import true_parameters
    from calibration.report.truth_errors import group_errors
    from calibration.run.procedure import Calibration
    from lumion_hw.bench.bench import Bench
    from lumion_hw.mesh.record.calibration_record import USES
    from tests.calibration.bench_run import SMALL

    path = folder / "bench.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(SMALL.read_text(encoding="utf-8"))), encoding="utf-8")
    with Bench.emulate(path, seed=seed) as bench:
        if (plant := effects()[effect]) is not None:
            plant(bench.emulated)
        probe = BenchProbe(bench)
        probe.align_all()
        record = Calibration(probe, probe.device_under_test(), seed).run()
        groups, _ = group_errors(bench, record, true_parameters(bench, record))
    ratios = {name: group.ratio for name, group in groups.items() if len(group.error)}
    return {
        "certified": [use for use in USES if not record.doubts_for(use)],
        "ratios": ratios,
        "law_mrad": 1e3 * float(np.sqrt(np.mean(groups["law"].error ** 2))),
    }


def main() -> None:
    """Print one line per effect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--effect", action="append", choices=list(effects()), help="by default all")
    parser.add_argument("--seed", type=int, default=5, help="first seed")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    print("| effect | certified for all uses | passive | loops | coupler common, difference | laws | laws, mrad |")
    print("|---|---|---|---|---|---|---|")
    for effect in given.effect or effects():
        with TemporaryDirectory() as folder:
            runs = [calibrated(effect, given.seed + number, Path(folder)) for number in range(given.seeds)]
        complete = [run for run in runs if len(run["certified"]) == 3]
        cells = [effect, f"{len(complete)} of {len(runs)}"]
        for names in (("passive_phase_rad",), ("loops",), ("coupler_common_rad", "coupler_difference_rad"), ("law",)):
            cells.append("; ".join(", ".join(f"{run['ratios'][name]:.2f}" for name in names) for run in runs))
        cells.append("; ".join(f"{run['law_mrad']:.2f}" for run in runs))
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
