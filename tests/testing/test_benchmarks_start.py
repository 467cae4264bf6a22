"""Benchmarks start although their folder contains a module with the name of one of our packages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ABOUT_CALIBRATION = sorted(
    path.name
    for path in BENCHMARKS.glob("*.py")
    if re.search(r"^\s*from calibration[. ]", (text := path.read_text()), re.M) and "__main__" in text
)
START = """
import runpy, sys
before = [sys.argv[1], *sys.path[1:]]
for path in sys.argv[2:]:
    sys.path[:] = before  # as if each were started alone: it takes its folder out
    print(path, file=sys.stderr)
    runpy.run_path(path, run_name="benchmark")
    import calibration
    assert calibration.__path__
    for name in [name for name in sys.modules if name.partition(".")[0] == "calibration"]:
        del sys.modules[name]  # the next one looks for itself
"""


def test_each_benchmark_finds_the_package_and_not_its_neighbour() -> None:
    """In one process: to load numpy in one for each took longer than all the rest."""
    assert ABOUT_CALIBRATION
    paths = [str(BENCHMARKS / name) for name in ABOUT_CALIBRATION]
    command = [sys.executable, "-c", START, str(BENCHMARKS), *paths]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=BENCHMARKS.parent)
    assert ended.returncode == 0, ended.stderr
