"""CPU time of the demo, compared with that of a fixed loop of plain Python in the same run.

Run: .venv/bin/python benchmarks/demo.py [options of `lumion demo`]
The loop measures the speed of the machine, so only the ratio is comparable between machines and days.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

LOOPS = 10_000_000


def loop_s() -> float:
    """Return the CPU time of the fixed loop: the smallest of three, because other programs only slow it down."""
    times = []
    for _ in range(3):
        began, total = time.process_time(), 0
        for number in range(LOOPS):
            total += number * number % 7
        times.append(time.process_time() - began)
    return min(times)


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
    around = loop_s()
    took_s = demo_s(sys.argv[1:])
    around = 0.5 * (around + loop_s())
    print(f"\n| CPU s of the demo | CPU s of {LOOPS:,} rounds of Python, before and after | ratio |\n|---|---|---|")
    print(f"| {took_s:.1f} | {around:.2f} | {took_s / around:.1f} |")
