"""Compare stated and true errors of the calibration on chips with physics that its model does not have.

Run: .venv/bin/python benchmarks/calibration_reality.py [--bench small|prototype] [--seeds 10] [--rows NAME ...]
     [--workers 2] [--out FILE] [--table FILE ...]

A row is a single effect of the emulated chip (docs/emulated-chip.md) with the size of `realistic` or `harsh`, the ideal
chip, or all effects together. Results are appended to --out, one JSON document per line. Existing results are not run
again, so a run of hours can be split. --table prints such files without a measurement; the results of
docs/performance.md are in benchmarks/results/calibration_reality.jsonl. The hidden truth is used only to judge the
results. `small` is the bench of the tests with 15 PUCs, `prototype` the built-in bench with 72 PUCs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import yaml

HERE = Path(__file__).parent
# This folder has a module of the same name as the package calibration.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]

GROUPS = {
    "passive_phase_rad": "passive",
    "loops": "loops",
    "coupler_common_rad": "coupler common",
    "coupler_difference_rad": "coupler difference",
    "loss_db": "loss",
    "law": "laws at each eighth of a turn",
}
"""Parameter groups, with the titles of the columns for error divided by stated error."""


def rows() -> dict[str, dict[str, Any]]:
    """Return the emulation section of the bench file for every row, by name."""
    from lumion_hw.emulator.chip.effects import CHIP_EFFECTS

    rows_by_name: dict[str, dict[str, Any]] = {"ideal": {"physics": "ideal"}}
    for effect in CHIP_EFFECTS:
        for size in dict.fromkeys((effect.realistic, effect.harsh)):
            rows_by_name[f"{effect.name} {size:g}"] = {"physics": "ideal", "effects": {effect.name: size}}
    return rows_by_name | {"realistic": {"physics": "realistic"}, "harsh": {"physics": "harsh"}}


def one(bench: str, row: str, seed: int) -> dict[str, Any]:
    """Calibrate one bench of one row and judge the result."""
    from lumion_hw.bench.file.loader import builtin_path

    source = HERE.parent / "tests" / "data" / "small.yaml" if bench == "small" else builtin_path("lumion-prototype")
    model = yaml.safe_load(Path(source).read_text(encoding="utf-8"))
    model["emulation"] = model.get("emulation", {}) | rows()[row]
    named = {"bench": bench, "row": row, "seed": seed}
    with TemporaryDirectory() as directory:
        path = Path(directory) / "bench.yaml"
        path.write_text(yaml.safe_dump(model), encoding="utf-8")
        try:
            result = _goal_benchmark().calibrated(path, seed)
            normalised = {name: [len(values), _rms(values)] for name, values in result["normalised"].items()}
            return named | result | {"normalised": normalised}
        except Exception as error:  # noqa: BLE001 - a failed seed must not end a run of an hour
            return named | {"figures": {}, "normalised": {}, "faults": [f"{type(error).__name__}: {error}"]}


def _rms(values: Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _goal_benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("goal_benchmark", HERE / "calibration.py")
    if spec is None or spec.loader is None:
        raise RuntimeError("benchmarks/calibration.py is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results(bench: str, cases: Sequence[tuple[str, int]], workers: int) -> Iterator[dict[str, Any]]:
    """Yield every result when it is ready."""
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(one, bench, name, seed) for name, seed in cases]):
            yield done.result()


def read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the results in files; files that do not exist are ignored."""
    return [json.loads(line) for path in paths if path.exists() for line in path.read_text().splitlines()]


def print_table(results: Sequence[Mapping[str, Any]]) -> None:
    """Print one row per effect: medians over seeds, and errors divided by stated errors over all certified seeds."""
    groups = [group for group in GROUPS if any(group in result["normalised"] for result in results)]
    head = (
        "chip",
        "certified",
        "passive mrad",
        "bound",
        *(GROUPS[group] for group in groups),
        "held-out dB",
        "extinction short dB",
        "CPU s",
        "s",
    )
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for name in [row for row in rows() if any(result["row"] == row for result in results)]:
        of_row = [result for result in results if result["row"] == name]
        certified = [result for result in of_row if result["figures"].get("fit_certified")]
        cells = [name, f"{len(certified)}/{len(of_row)}"]
        cells += [
            _median(of_row, figure, form) for figure, form in (("passive_mrad", ".2f"), ("passive_bound_mrad", ".2f"))
        ]
        cells += [_pooled(certified or of_row, group) for group in groups]
        figures = (("held_out_db", ".3f"), ("extinction_short_db", ".2f"), ("cpu_s", ".0f"), ("hardware_s", ".0f"))
        cells += [_median(of_row, figure, form) for figure, form in figures]
        print("| " + " | ".join(cells) + " |")


def _median(results: Sequence[Mapping[str, Any]], figure: str, form: str) -> str:
    values = [result["figures"][figure] for result in results if figure in result["figures"]]
    return format(float(np.median(values)), form) if values else "–"


def _pooled(results: Sequence[Mapping[str, Any]], group: str) -> str:
    rows = [result["normalised"][group] for result in results if group in result["normalised"]]
    if not rows:
        return "–"
    count, rms = np.array(rows).T
    return f"{np.sqrt((count * rms**2).sum() / count.sum()):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", choices=("small", "prototype"), default="prototype")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds per row")
    parser.add_argument("--rows", nargs="+", choices=list(rows()), metavar="NAME", help="names of rows; by default all")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, help="file to which results are appended")
    parser.add_argument("--table", type=Path, nargs="+", help="print the table of these files, without a measurement")
    given = parser.parse_args()
    if given.table:
        print_table(read(given.table))
        return
    stored = read([given.out] if given.out else [])
    there = {(result["bench"], result["row"], result["seed"]) for result in stored}
    seeds = range(given.first, given.first + given.seeds)
    cases = [(name, seed) for seed in seeds for name in given.rows or rows() if (given.bench, name, seed) not in there]
    for result in results(given.bench, cases, given.workers):
        stored.append(result)
        if given.out:
            with given.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
        for fault in result["faults"]:
            print(f"<!-- {result['row']}, seed {result['seed']}: {fault} -->", flush=True)
    print_table(stored)


if __name__ == "__main__":
    main()
