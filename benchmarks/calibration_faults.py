"""Calibrate the emulated 72-PUC bench with a fault: check that it is located and that the rest meets its goals.

Run: .venv/bin/python benchmarks/calibration_faults.py [--case NAME]... [--seed FIRST] [--seeds NUMBER]
Faults are injected into the emulated bench at random places. Drivers, wire bytes and procedure are the same as for a
real bench. The truth is used only to judge the result. CPU time includes the emulated bench but not the judging.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Cases and judge are those of the tests. This folder is removed from the path, because it would hide calibration.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.calibration.fault_cases import CASES
from tests.calibration.fault_judge import HEADERS, judged
from tests.ideal_bench import ideal_bench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="name of a fault; by default all")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--bench", help="bench file or built-in bench; by default an ideal lumion-prototype")
    given = parser.parse_args()
    with TemporaryDirectory() as directory:
        print_verdicts(given, given.bench or ideal_bench("lumion-prototype", Path(directory)))


def print_verdicts(given: argparse.Namespace, bench: str | Path) -> None:
    print("| " + " | ".join((*HEADERS, "CPU s")) + " |")
    print("|" + "---|" * (len(HEADERS) + 1))
    for name in given.case or CASES:
        for seed in range(given.seed, given.seed + given.seeds):
            verdict = judged(name, seed, bench)
            cells = (*verdict.row(), f"{verdict.record.quality['cpu_s']:.0f}")
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
            if not verdict.good:
                print(f"<!-- {name}, seed {seed}: " + "; ".join(verdict.complaints) + " -->", flush=True)


if __name__ == "__main__":
    main()
