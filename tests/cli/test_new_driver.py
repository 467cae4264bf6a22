"""`lumion new-driver` makes a package that passes its own tests, lint and types; it writes over nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lumion_hw.cli import main
from lumion_hw.cli.new_driver import ROLES
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
OTHERS = [*(f"--role={role}" for role in ROLES if role != "meter"), "--protocol=lines"]


def made(folder: Path, *options: str) -> Path:
    """Make a package, and leave beside it what pip leaves of one that is installed editable."""
    assert main(["new-driver", "acme-pm8", *options, "--out", str(folder)]) == 0
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    info = folder / "src" / "acme_pm8-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-pm8\nVersion: 0.1.0\n")
    groups = project["project"]["entry-points"]
    lines = [
        line for group, rows in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in rows.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


def run_in(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=PATIENCE_S * 5
    )


@pytest.mark.parametrize(
    "options", ["", *(pytest.param(each, marks=pytest.mark.long) for each in ("--channels=1", *OTHERS))]
)
def test_its_tests_pass_as_it_is_made(options: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "lab", *options.split())
    # What it promises over real wires waits for silences by the wall clock: the long test has it.
    ran = run_in(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not tcp and not pty")
    assert ran.returncode == 0, ran.stdout
    assert "skipped" not in ran.stdout.splitlines()[-1]
    assert int(ran.stdout.splitlines()[-1].split(" passed")[0]) > 25


def test_a_fault_in_its_driver_is_seen_by_its_tests(tmp_path: Path) -> None:
    folder = made(tmp_path / "lab", "--channels=1")
    driver = folder / "src" / "acme_pm8" / "driver.py"
    right = driver.read_text()
    wrong = right.replace("if power_w >= OVER_RANGE:", "if power_w > 1e38:")
    assert wrong != right
    driver.write_text(wrong)
    ran = run_in(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "overload or over_range")
    failed = [line for line in ran.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 2, ran.stdout


@pytest.mark.parametrize("options", ["", "--channels=1", "--channels=64", *OTHERS])
def test_lint_and_form_are_right_as_it_is_made(options: str, tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    assert main(["new-driver", "acme-pm8", *options.split(), "--out", str(folder)]) == 0
    for check in (("check", "--no-cache"), ("format", "--check", "--no-cache")):
        ran = run_in(folder, str(TOOLS / "ruff"), *check)
        assert ran.returncode == 0, ran.stdout


@pytest.mark.long
@pytest.mark.parametrize("options", ["", *(pytest.param(each, marks=pytest.mark.campaign) for each in OTHERS)])
def test_installed_by_pip_all_its_tests_and_types_pass(options: str, tmp_path: Path) -> None:
    folder, site = tmp_path / "lab", tmp_path / "site"
    assert main(["new-driver", "acme-pm8", *options.split(), "--out", str(folder)]) == 0
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(site), str(folder)], check=True, timeout=PATIENCE_S * 5)
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    for command in ([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], [str(TOOLS / "mypy")]):
        ran = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_channels_of_what_has_none_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-driver", "acme-tl1", "--role", "laser", "--channels", "2", "--out", str(tmp_path / "lab")]) == 2
    assert "the role laser has no number of channels" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "why"), [("--role laser", "template for the role meter"), ("--channels 2", "has one channel")]
)
def test_lines_have_a_template_for_a_meter_of_one_channel(
    options: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "lab"
    assert main(["new-driver", "acme-pm8", "--protocol", "lines", *options.split(), "--out", str(folder)]) == 2
    assert why in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("right", "wrong", "failed"),
    [
        ("            self._set_watts()\n", "", "test_bytes or other_session"),
        (", expected=expected)", ")", "reply_to_another_query"),
        ("        if actual != expected:", "        if False:", "not_accepted"),
    ],
)
def test_a_fault_in_a_driver_of_lines_is_seen_by_its_tests(right: str, wrong: str, failed: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "lab", "--protocol=lines")
    driver = folder / "src" / "acme_pm8" / "driver.py"
    text = driver.read_text()
    assert right in text
    driver.write_text(text.replace(right, wrong))
    ran = run_in(
        folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", f"({failed}) and not pty"
    )
    assert ran.returncode == 1, ran.stdout


def test_what_is_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "lab"
    assert main(["new-driver", "acme-pm8", "--out", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["directory"] == str(folder)
    assert sorted(told["files"]) == sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )
    assert "src/acme_pm8/driver.py" in told["files"]


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert main(["new-driver", "acme-pm8", "--out", str(tmp_path)]) == 2
    assert "is not an empty directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert main(["new-driver", "acme-pm8", "--out", str(tmp_path / "thesis.tex" / "below")]) == 2
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Acme", "lower-case letters"),
        ("acme_pm8", "lower-case letters"),
        ("8-acme", "lower-case letters"),
        ("../acme", "lower-case letters"),
        ("class", "lower-case letters"),
        ("thorlabs-pm", "a kind 'thorlabs-pm' already exists"),
        ("numpy", "a package 'numpy' is already installed"),
    ],
)
def test_a_name_that_cannot_be_is_refused(
    name: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-driver", name, "--out", str(tmp_path / "lab")]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "lab").exists()
