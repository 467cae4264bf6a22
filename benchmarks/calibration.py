"""Calibrate the emulated 72-PUC bench for many seeds: compare with goals, bounds and the stated standard errors.

Run: .venv/bin/python benchmarks/calibration.py [--first 0] [--seeds 50] [--workers 2] [--json FILE] [--csv FILE]
Runs the whole procedure through drivers and wire bytes on the built-in bench lumion-prototype: eight modules, each with
its own wavelength and fibre, and 28 monitors. Every non-ideality of the emulator is on, including chip drift. CPU time
includes the emulated bench. The hidden truth is used only to judge the result.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

# This folder has a module of the same name as the package calibration.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]

COLUMNS = (
    ("seed", "seed", "{:.0f}"),
    ("certified", "fit_certified", "{:.0f}"),
    ("faults", "faults", "{:.0f}"),
    ("settings", "settings", "{:.0f}"),
    ("hardware s", "hardware_s", "{:.1f}"),
    ("CPU s", "cpu_s", "{:.1f}"),
    ("passive mrad rms", "passive_mrad", "{:.2f}"),
    ("worst", "passive_worst_mrad", "{:.1f}"),
    ("bound", "passive_bound_mrad", "{:.2f}"),
    ("loops mrad rms", "loops_mrad", "{:.2f}"),
    ("bound", "loops_bound_mrad", "{:.2f}"),
    ("held out dB", "held_out_db", "{:.3f}"),
    ("random", "held_out_random_db", "{:.3f}"),
    ("states", "held_out_states_db", "{:.3f}"),
    ("extinction short dB", "extinction_short_db", "{:.2f}"),
    ("4x4 fidelity", "fidelity", "{:.5f}"),
    ("χ²/dof", "fit_chi2_per_dof", "{:.2f}"),
)
HONEST = 0.8, 1.3
FURTHER = (
    ("worst differential phase of a seed, mrad", "passive_worst_mrad"),
    ("phase common to all PUCs, mrad of loops", "common_mrad"),
    ("held-out light, random settings, dB rms", "held_out_random_db"),
    ("its bound", "held_out_random_bound_db"),
    ("held-out light, bar and cross states, dB rms", "held_out_states_db"),
    ("its bound", "held_out_states_bound_db"),
    ("held-out readings, all, dB rms", "held_out_read_db"),
    ("what noise and steps of the monitors do to them", "held_out_noise_db"),
    ("share of states within 1 dB of any extinction the couplers allow (least)", "extinction_within_1_db"),
    ("settings chosen by information, not at random", "chosen_settings"),
)


def one(bench_name: str | None, seed: int) -> dict[str, Any]:
    """Calibrate the bench of one seed and judge the result."""
    with TemporaryDirectory() as directory:
        from benchmarks.goals import goal_bench

        return calibrated(bench_name or goal_bench(Path(directory)), seed)


def calibrated(bench_file: str | Path, seed: int) -> dict[str, Any]:
    from benchmarks.goals import judge
    from calibration.measure.bench_probe import BenchProbe
    from calibration.run.procedure import Calibration
    from lumion_hw.bench.bench import Bench

    with Bench.emulate(bench_file, seed=seed) as bench:
        probe = BenchProbe(bench)
        dark = probe.align_all()
        run = Calibration(probe, probe.device_under_test(), seed)
        run.faults += [f"source at port {port}: {reason}" for port, reason in dark.items()]
        record = run.run()
        if run.fitted is None:
            raise RuntimeError(f"seed {seed}: nothing was fitted")
        figures = judge(bench, probe, record, run.fitted, seed)
    return {
        "figures": {"seed": float(seed), **figures.figures},
        "normalised": {name: values.tolist() for name, values in figures.normalised.items()},
        "faults": list(record.faults),
    }


def results(bench_name: str | None, seeds: Sequence[int], workers: int) -> Iterator[dict[str, Any]]:
    """Yield the result of every seed when it is ready. A failed seed is reported and counted as missed."""
    if workers <= 1:
        for seed in seeds:
            yield _safely(bench_name, seed)
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_safely, bench_name, seed) for seed in seeds]):
            yield done.result()


def _safely(bench_name: str | None, seed: int) -> dict[str, Any]:
    try:
        return one(bench_name, seed)
    except Exception as error:  # noqa: BLE001 - a failed seed must not end a run of an hour
        return {"figures": {"seed": float(seed)}, "normalised": {}, "faults": [f"{type(error).__name__}: {error}"]}


def print_row(result: Mapping[str, Any]) -> None:
    figures = result["figures"]
    cells = [
        form.format(figures[name]) if name in figures else "FAILED" if len(figures) == 1 else "–"
        for _, name, form in COLUMNS
    ]
    print("| " + " | ".join(cells) + " |", flush=True)
    for fault in result["faults"]:
        print(f"<!-- seed {figures['seed']:.0f}: {fault} -->", flush=True)


def goal_rows(rows: Sequence[Mapping[str, float]]) -> Iterator[tuple[str, ...]]:
    """Yield one row of text per goal."""
    from benchmarks.goals import GOALS

    for goal in GOALS:
        sign = -1.0 if goal.median < 0.0 else 1.0
        values = np.array([row.get(goal.figure, np.nan) for row in rows])
        values = np.where(np.isnan(values), sign * np.inf, values)
        median, worst = float(np.median(values)), float(sign * (sign * values).max())
        met = sign * median <= goal.median and sign * worst <= goal.worst
        bound = ratio = ""
        if goal.bound:
            bounds = np.array([row.get(goal.bound, np.nan) for row in rows])
            ratios = values / bounds
            bound, ratio = f"{np.nanmedian(bounds):.3g}", f"{np.nanmedian(ratios):.2f} (worst {np.nanmax(ratios):.2f})"
            met = met and float(np.nanmax(ratios)) <= goal.ratio
        wanted = f"{abs(goal.median):g}" + ("" if goal.worst == goal.median else f" / {abs(goal.worst):g}")
        texts = [f"{value:.5f}" if sign < 0.0 else f"{value:.3g}" for value in (median, worst)]
        yield goal.text, ("≥ " if sign < 0.0 else "≤ ") + wanted, *texts, bound, ratio, "yes" if met else "NO"


def further_rows(rows: Sequence[Mapping[str, float]]) -> Iterator[tuple[str, ...]]:
    """Yield one row of text per figure without a goal."""
    for text, name in FURTHER:
        values = np.array([row[name] for row in rows if name in row])
        if len(values):
            yield text, f"{np.median(values):.3g}", f"{values.min() if 'least' in text else values.max():.3g}"


def honesty_rows(results: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield one row of text per parameter group, which compares errors with the stated standard errors."""
    names = {name: None for result in results for name in result["normalised"]}
    for name in names:
        pooled = np.concatenate([np.array(result["normalised"].get(name, ())) for result in results])
        std, outlier_share = float(np.sqrt(np.mean(pooled**2))), float(np.mean(np.abs(pooled) > 3.0))
        met = HONEST[0] <= std <= HONEST[1]
        yield name, str(len(pooled)), f"{std:.3f}", f"{100 * outlier_share:.2f} %", "yes" if met else "NO"


def print_table(header: Sequence[str], rows: Iterator[tuple[str, ...]]) -> None:
    print("\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def print_tables(results: list[Mapping[str, Any]]) -> None:
    rows = [result["figures"] for result in sorted(results, key=lambda result: result["figures"]["seed"])]
    print_table(("goal", "wanted: median / worst", "median", "worst", "bound", "ratio to it", "met"), goal_rows(rows))
    print_table(("further figures", "median", "worst"), further_rows(rows))
    print_table(("stated errors of", "errors", "error / stated, rms", "beyond 3", "0.8 … 1.3"), honesty_rows(results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=50, help="number of seeds")
    parser.add_argument(
        "--workers", type=int, default=1, help="number of processes; at most one per core for valid times"
    )
    parser.add_argument(
        "--bench", help="bench file or name of a built-in bench; by default lumion-prototype with drift"
    )
    parser.add_argument("--json", type=Path, help="output file for all figures and normalised errors")
    parser.add_argument("--csv", type=Path, help="output file for the rows")
    parser.add_argument(
        "--tables", type=Path, nargs="+", help="print the tables of a file written by --json, without a measurement"
    )
    given = parser.parse_args()
    if given.tables:
        every = [result for path in given.tables for result in json.loads(path.read_text())]
        print_tables(list({result["figures"]["seed"]: result for result in every}.values()))
        return
    began = time.monotonic()
    print("| " + " | ".join(title for title, _, _ in COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    found = []
    for result in results(given.bench, range(given.first, given.first + given.seeds), given.workers):
        print_row(result)
        found.append(result)
        if given.json:
            given.json.write_text(json.dumps(found))
    print_tables(found)
    print(f"\n{len(found)} seeds in {(time.monotonic() - began) / 60:.0f} min on {given.workers} processes.")
    if given.csv:
        rows = [result["figures"] for result in found]
        with given.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, sorted({name for row in rows for name in row}))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
