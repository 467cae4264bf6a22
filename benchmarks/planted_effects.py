"""Calibrate emulated benches with effects that no author of the fit put into the emulated chip.

Run: .venv/bin/python benchmarks/planted_effects.py [--sealed] [--effect NAME]... [--seed 5] [--seeds 3]
         [--bench small|lumion-prototype] [--json FILE]

Open effects are in tests/calibration/planted_physics.py, sealed effects in tests/calibration/sealed_physics.py. A ratio
is the rms of true errors over stated ones in a group of parameters; laws are judged with each heater driven alone. With
--json, each run is appended to FILE as soon as it ends, and runs that are in FILE are not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# This folder has a module of the same name as the package calibration; plants are those of the tests.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]
sys.path.insert(0, str(Path(__file__).parents[1]))

Run = dict[str, Any]

MAX_RATIO = 1.6
"""Largest rms of true errors over stated ones that the certificate allows in a group."""
MIN_SHARE = 0.98
"""Least share of certified runs and groups that must keep to it."""
_FAULT_CHARACTERS = 120
_WITHHELD = "withheld: "
_BENCHES = {"small": Path(__file__).parents[1] / "tests" / "data" / "small.yaml", "lumion-prototype": None}


def effects(sealed: bool) -> dict[str, Any]:
    """Return the planted effects by name."""
    if sealed:
        from tests.calibration.sealed_physics import EFFECTS

        return EFFECTS
    from tests.calibration import planted_physics as open_physics

    return {
        "none": open_physics.none(),
        "a heater warms the other arm by 0.5 %": open_physics.warmed_sibling(0.005),
        "a heater warms the other arm by 2 %": open_physics.warmed_sibling(0.02),
        "supply sags with the cube of the current, 0.05 % at half load": open_physics.sagging_supply(0.0005),
        "supply sags with the cube of the current, 0.2 % at half load": open_physics.sagging_supply(0.002),
        "supply sags with the cube of the current, 1 % at half load": open_physics.sagging_supply(0.01),
        "crosstalk stronger one way by 10 %": open_physics.one_sided_crosstalk(0.1),
        "crosstalk stronger one way by 30 %": open_physics.one_sided_crosstalk(0.3),
        "monitor amplifier changes range at 20 µA by 0.5 %": open_physics.range_step(0.005),
        "heaters age by 0.05 % in 20 s of heat": open_physics.ageing_heaters(0.0005),
        "heaters age by 0.3 % in 20 s of heat": open_physics.ageing_heaters(0.003),
        "DAC glitches in 3 % of the settings": open_physics.glitches(0.03),
        "lasers warm up by 2 % and 300 MHz": open_physics.warming_laser(0.02, 300e6),
    }


def calibrated(plant: Any, seed: int, bench_name: str) -> Run:
    """Return for which uses a calibration with the effect is certified, and the ratios of its errors."""
    import numpy as np

    from calibration.measure.bench_probe import BenchProbe
    from calibration.report.hidden_truth import true_parameters
    from calibration.report.truth_errors import group_errors
    from calibration.run.procedure import Calibration
    from lumion_hw.bench.bench import Bench
    from lumion_hw.errors import LumionError
    from lumion_hw.mesh.record.calibration_record import USES

    # An effect may take the procedure where it was never tested, so that any error is possible.
    errors = LumionError, ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError
    with Bench.emulate(_BENCHES[bench_name] or bench_name, seed=seed) as bench:
        plant(bench.emulated)
        try:
            probe = BenchProbe(bench)
            dark = probe.align_all()
            calibration = Calibration(probe, probe.device_under_test(), seed)
            calibration.faults += [f"source at port {port}: {reason}" for port, reason in dark.items()]
            record = calibration.run()
            certified = [use for use in USES if not record.doubts_for(use)]
        except errors as error:
            faults = [f"{_WITHHELD}{type(error).__name__}: {error}"]
            return {"certified": [], "ratios": {}, "faults": faults, "quality": {}, "law_mrad": math.nan}
        try:
            groups, _ = group_errors(bench, record, true_parameters(bench, record))
        except errors:
            if certified:
                raise
            groups = {}  # too little of the mesh was measured to compare
    laws = groups["law"].error if groups else np.array([math.nan])
    return {
        "certified": certified,
        "ratios": {name: group.ratio for name, group in groups.items() if len(group.error)},
        "faults": list(record.faults),
        "quality": {name: float(value) for name, value in record.quality.items()},
        "law_mrad": 1e3 * float(np.sqrt(np.mean(laws**2))),
    }


def ratios_for(use: str, run: Run) -> dict[str, float]:
    """Return the ratios of the groups of parameters that a use depends on."""
    return {group: ratio for group, ratio in run["ratios"].items() if group != "law" or use == "single heaters"}


def print_effects(runs: Iterable[Run]) -> None:
    """Print a table with one line per run."""
    print("| effect | seed | certified for | chi2 | worst ratio | ratios | laws, mrad | faults |")
    print("|---|---|---|---|---|---|---|---|")
    for run in runs:
        ratios = run["ratios"]
        worst = max(ratios, key=lambda group: ratios[group], default=None)
        cells = [
            run["effect"],
            str(run["seed"]),
            ", ".join(run["certified"]) or "nothing",
            f"{run['quality'].get('fit_chi2_per_dof', math.nan):.2f}",
            f"{ratios[worst]:.2f} {worst}" if worst else "-",
            ", ".join(f"{group} {ratio:.2f}" for group, ratio in ratios.items()),
            f"{run['law_mrad']:.2f}",
            "; ".join(fault[:_FAULT_CHARACTERS] for fault in run["faults"]) or "-",
        ]
        print("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")


def print_uses(runs: list[Run]) -> None:
    """Print for each use the share of certified runs and groups that keep the certificate's promise."""
    from lumion_hw.mesh.record.calibration_record import USES

    withheld = sum(any(fault.startswith(_WITHHELD) for fault in run["faults"]) for run in runs)
    print(f"\n{len(runs)} runs, {withheld} withheld by an error")
    for use in USES:
        certified = [run for run in runs if use in run["certified"]]
        judged = [(run, group, ratio) for run in certified for group, ratio in ratios_for(use, run).items()]
        # A ratio that is not a number breaks the promise too.
        broken = [entry for entry in judged if not entry[2] <= MAX_RATIO]
        if not judged:
            print(f"{use}: no run certified")
            continue
        share = 1.0 - len(broken) / len(judged)
        print(
            f"{use}: {len(certified)} runs certified; {share:.2%} of {len(judged)} (run, group) have a ratio of at "
            f"most {MAX_RATIO}: promise {'kept' if share >= MIN_SHARE else 'broken'}"
        )
        for run, group, ratio in broken:
            print(f"  {run['effect']}, seed {run['seed']}: {group} {ratio:.2f}")


def main() -> None:
    """Run what is missing, then print the table of effects and the share for each use."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sealed", action="store_true", help="effects that the authors of the fit have not seen")
    parser.add_argument("--effect", action="append", help="by default all")
    parser.add_argument("--seed", type=int, default=5, help="first seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bench", choices=list(_BENCHES), default="small", help="15 PUCs by default, or 72")
    parser.add_argument("--json", type=Path, help="file that keeps one line per run")
    given = parser.parse_args()
    plants = effects(given.sealed)
    names = given.effect or list(plants)
    if unknown := sorted(set(names) - set(plants)):
        parser.error(f"no such effect: {', '.join(unknown)}; there are: {'; '.join(plants)}")
    done: dict[tuple[str, str, int], Run] = {}
    if given.json and given.json.exists():
        for line in given.json.read_text(encoding="utf-8").splitlines():
            run = json.loads(line)
            done[run["bench"], run["effect"], run["seed"]] = run
    runs = []
    for effect in names:
        for seed in range(given.seed, given.seed + given.seeds):
            key = given.bench, effect, seed
            if key not in done:
                done[key] = {"bench": given.bench, "effect": effect, "seed": seed}
                done[key] |= calibrated(plants[effect], seed, given.bench)
                if given.json:
                    with given.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(done[key], ensure_ascii=False) + "\n")
                print(f"{effect}, seed {seed}: done", file=sys.stderr, flush=True)
            runs.append(done[key])
    print_effects(runs)
    print_uses(runs)


if __name__ == "__main__":
    main()
