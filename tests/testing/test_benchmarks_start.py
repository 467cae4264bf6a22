"""Benchmarks stand beside a module of the name of a package of ours: each must find the package all the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ABOUT_CALIBRATION = sorted(
    path.name for path in BENCHMARKS.glob("*.py") if re.search(r"^\s*from calibration[. ]", path.read_text(), re.M)
)
START = """
import runpy, sys
sys.path[0] = sys.argv[1]
runpy.run_path(sys.argv[2], run_name="benchmark")
import calibration
assert calibration.__path__
"""


@pytest.mark.parametrize("name", ABOUT_CALIBRATION)
def test_a_benchmark_finds_the_package_and_not_its_neighbour(name: str) -> None:
    command = [sys.executable, "-c", START, str(BENCHMARKS), str(BENCHMARKS / name)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=BENCHMARKS.parent)
    assert ended.returncode == 0, ended.stderr
