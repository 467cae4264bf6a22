"""CPU time of the demo, compared with that of a fixed loop of plain Python in the same run.

Run: .venv/bin/python benchmarks/demo.py [--profile] [options of `lumion demo`]
The loop measures the speed of the machine, so only the ratio is comparable between machines and days. With --profile,
the shares of the parts of the demo are printed instead; the profiler itself makes it a fifth slower.
"""

from __future__ import annotations

import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

LOOPS = 10_000_000
PARTS = {
    "imports": ("importlib._bootstrap>", "_find_and_load"),
    "alignment of light and polarization": ("bench_probe.py", "align_all"),
    "survey, heater sweeps, random settings": ("bootstrap.py", "run"),
    "first fit, with its scores of effects": ("procedure.py", "first_fit"),
    "choice and measurement of settings, with a fit": ("planning.py", "run"),
    "final fit and stated errors": ("diagnosed_fit.py", "stated"),
    "verification": ("procedure.py", "_verify"),
    "circuits": ("setup.py", "connect"),
    "recovery": ("steps.py", "lose_and_replace"),
    "report with plots": ("summary.py", "write_report"),
}
"""Parts of the demo: the file and function whose time they are."""


def loop_s() -> float:
    """Return the CPU time of the fixed loop: the smallest of three, because other programs only slow it down."""
    times = []
    for _ in range(3):
        began, total = time.process_time(), 0
        for number in range(LOOPS):
            total += number * number % 7
        times.append(time.process_time() - began)
    return min(times)


def print_profile(options: list[str]) -> None:
    """Run the demo with a profiler, and print the share of each part."""
    with tempfile.TemporaryDirectory() as directory:
        command = ["-m", "cProfile", "-o", f"{directory}/profile", "-m", "lumion_hw.cli", "demo"]
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        subprocess.run([sys.executable, *command, "--out", f"{directory}/run", *options], check=True, env=environment)
        stats: Any = pstats.Stats(f"{directory}/profile")
    print("\n| part | share of the demo, % |\n|---|---|")
    for part, (file, function) in PARTS.items():
        found = [entry[3] for (path, _, name), entry in stats.stats.items() if path.endswith(file) and name == function]
        print(f"| {part} | {100.0 * max(found, default=0.0) / stats.total_tt:.0f} |")


def demo_s(options: list[str]) -> float:
    """Return the CPU time of a demo process, including its start."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "lumion_hw.cli", "demo", "--out", f"{directory}/run", *options]
        subprocess.run(command, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if "--profile" in arguments:
        arguments.remove("--profile")
        print_profile(arguments)
        sys.exit()
    around = loop_s()
    took_s = demo_s(arguments)
    around = 0.5 * (around + loop_s())
    print(f"\n| CPU s of the demo | CPU s of {LOOPS:,} rounds of Python, before and after | ratio |\n|---|---|---|")
    print(f"| {took_s:.1f} | {around:.2f} | {took_s / around:.1f} |")
