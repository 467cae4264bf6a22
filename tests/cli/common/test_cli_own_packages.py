"""The commands with a ``calibration.py`` of somebody else in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
START = "import sys; from lumion_hw.cli import calibrate_main, main; sys.exit({})"


def started(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a directory that Python searches first, as `python -c` and PYTHONPATH=. do."""
    environment = os.environ | {"PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("call", ["calibrate_main(['--help'])", "main(['demo', '--help'])"])
def test_a_file_of_the_packages_name_is_passed_over(tmp_path: Path, call: str) -> None:
    (tmp_path / "calibration.py").write_text("raise RuntimeError('the lab')")
    done = started(tmp_path, START.format(call))
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout


def test_a_module_that_was_imported_before_is_named(tmp_path: Path) -> None:
    (tmp_path / "calibration.py").write_text("")
    done = started(tmp_path, "import calibration; " + START.format("calibrate_main(['--help'])"))
    assert done.returncode == 2
    assert f"{tmp_path}{os.sep}calibration.py" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_commands_begin_where_nothing_hides_them() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {name: target.partition(".")[0] for name, target in scripts.items()} == dict.fromkeys(
        ("lumion", "lumion-calibrate"), "lumion_hw"
    )
