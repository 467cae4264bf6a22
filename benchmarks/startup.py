"""Start-up times compared with their limits: importing the package, and the help of the command line.

Run: .venv/bin/python benchmarks/startup.py
Each figure is the median over new processes; the bare interpreter is measured in the same run.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 15
BIN = Path(sys.executable).parent
CASES = (
    ("bare interpreter", [sys.executable, "-c", "pass"], None),
    ("import lumion_hw", [sys.executable, "-c", "import lumion_hw"], 150.0),
    ("from lumion_hw import Bench", [sys.executable, "-c", "from lumion_hw import Bench"], None),
    ("lumion --help", [str(BIN / "lumion"), "--help"], 300.0),
    ("lumion-calibrate --help", [str(BIN / "lumion-calibrate"), "--help"], 300.0),
)


def milliseconds(command: list[str]) -> float:
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def main() -> None:
    print("| what | ms, whole process | limit ms | ratio to limit |")
    print("|---|---|---|---|")
    for name, command, limit in CASES:
        took = milliseconds(command)
        ratio = "–" if limit is None else f"{took / limit:.2f}"
        print(f"| {name} | {took:.0f} | {'–' if limit is None else f'{limit:.0f}'} | {ratio} |")


if __name__ == "__main__":
    main()
