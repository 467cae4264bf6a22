"""Manners of all public names: durations, paths, short reprs, types that editors and type checkers see."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench, load_record
from lumion_hw.circuits import CircuitRequest, PathSetup
from lumion_hw.cli import calibrate_main, main
from lumion_hw.fabric import Recovery
from lumion_hw.interfaces import PowerReading, Quality, RangeState, Reading
from tests.effort import LONGEST_FIRST
from tests.recorded_calibration import RECORD, SMALL
from tests.testing.test_public_names import OURS, PLACES
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]

UNITLESS_TIME = re.compile(
    r"seconds?|secs?|timeout|deadline|duration|delay|wait|patience|settle|interval|period|lease|age|time|until|after"
)
OTHER_MEANINGS = {"lumion_hw.interfaces.ActuatorInfo.__init__.period": "of the light, in the unit of the actuator"}

NO_PATHS = {
    "lumion_hw.CalibrationRecord.to_json.arrays_file": "a name within a document",
    "lumion_hw.acquisition.LogJournal.__init__.path": "made by create() and resume()",
    "lumion_hw.circuits.CircuitArm.__init__.path": "of light",
    "lumion_hw.circuits.CircuitRequest.__init__.target": "a device",
    "lumion_hw.serving.ServedCircuit.__init__.target": "a device",
    "lumion_hw.circuits.CircuitService.__init__.record_path": "made by open()",
    "lumion_hw.joined.JoinedFile.__init__.folder": "made by load_joined()",
}


def functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield every function and method that a user can call, constructors included, by its public name."""
    for place in PLACES:
        package = importlib.import_module(place)
        for name in sorted(PLACES[place]):
            thing = getattr(package, name)
            if inspect.isfunction(thing):
                yield f"{place}.{name}", thing
            elif inspect.isclass(thing):
                for member in dir(thing):
                    found = inspect.getattr_static(thing, member, None)
                    found = found.__func__ if isinstance(found, staticmethod | classmethod) else found
                    ours = inspect.isfunction(found) and found.__module__.partition(".")[0] in OURS
                    if ours and (member == "__init__" or not member.startswith("_")):
                        yield f"{place}.{name}.{member}", found


FUNCTIONS = dict(functions())
PARAMETERS = [
    (f"{name}.{parameter.name}", parameter.name, str(parameter.annotation))
    for name, function in FUNCTIONS.items()
    for parameter in inspect.signature(function).parameters.values()
]


def test_there_are_many() -> None:
    assert len(FUNCTIONS) > 1000
    assert {"lumion_hw.Clock.sleep", "lumion_hw.Bench.open", "lumion_hw.load_record"} <= FUNCTIONS.keys()


def test_whatever_takes_seconds_takes_a_duration_and_says_so() -> None:
    wrong = [
        where
        for where, name, annotation in PARAMETERS
        if UNITLESS_TIME.fullmatch(name) and "float" in annotation and where not in OTHER_MEANINGS
    ]
    assert wrong == [], "call it duration_s, timeout_s or the like: seconds from now; an instant is a Deadline"
    instants = [where for where, _, annotation in PARAMETERS if annotation == "Deadline"]
    assert len(instants) > 20, "links and sessions hand one down"


def test_whatever_takes_a_path_takes_a_str_or_a_path() -> None:
    named = re.compile(r"path|.*_path|file|.*_file|folder|directory|journal_path|out|out_path|target")
    # Of a mesh, a path is one of light; what reads a bench file names places in it by paths.
    of_files = [
        each
        for each in PARAMETERS
        if named.fullmatch(each[1]) and not re.search(r"BenchData|\.Check\.|Problem", each[0])
    ]
    takes_one_only = [
        where for where, _, annotation in of_files if re.fullmatch(r"(?:Path|str)(?: \| None)?", annotation)
    ]
    assert set(takes_one_only) <= NO_PATHS.keys(), "take lumion_hw.files.AnyPath"
    assert len(of_files) > 30


# -- what a prompt shows


def test_tab_and_dir_show_all_names_and_the_packages_that_have_more() -> None:
    code = (
        "import sys, lumion_hw; shown = dir(lumion_hw); print(*shown);"
        "print(lumion_hw.mesh.HexMesh.__name__, 'lumion_hw.fabric' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    shown, used = ran.stdout.splitlines()
    packages = {place.split(".")[1] for place in PLACES if place.startswith("lumion_hw.")} - {"standards"}
    assert set(shown.split()) == PLACES["lumion_hw"] | packages
    assert used == "HexMesh False"


def test_readings_are_one_line() -> None:
    assert repr(PowerReading(2, RangeState.OK, 5.0, 1e-5)) == "<PowerReading of channel 2: 1e-05 W (-20.00 dBm)>"
    assert repr(PowerReading(1, RangeState.OK, 5.0, -1e-12)) == "<PowerReading of channel 1: -1e-12 W>"
    assert repr(PowerReading(1, RangeState.OVER, 5.0)) == "<PowerReading of channel 1: over-range>"
    assert repr(Reading(31.9, "dB", Quality.OK, "25h:150")) == "<Reading 31.9 dB, from 25h:150>"


def test_records_plans_proofs_and_devices_are_one_short_line() -> None:
    record = load_record(RECORD)
    with Bench.emulate(SMALL, seed=1) as bench:
        setup, request = PathSetup(bench, record), CircuitRequest("sfp-a", "sfp-b")
        plan = setup.plan([request])
        (proof,) = setup.connect([request])
        devices = [device for name in bench.model.devices if (device := bench.opened(name)) is not None]
        recovery = Recovery(None, "b", "c", (), (proof,), ())  # type: ignore[arg-type]
        shown = [record, bench, bench.mesh, plan, plan.circuits[0], proof, recovery, *devices]
        lines = [repr(each) for each in shown]
    assert [line for line in lines if "\n" in line or len(line) > 160 or "object at 0x" in line] == []
    assert "sfp-a:sfp-b" in lines[5]
    assert lines[5].endswith("proven>")
    failed = dataclasses.replace(proof, failures=("too dark",), measured_loss_db=None)
    assert repr(failed) == "<CircuitProof sfp-a:sfp-b, not proven: too dark>"
    assert "c for b, 1 of 1 proofs hold" in lines[6]
    assert np.isfinite(plan.heat_mw)


def test_both_programs_tell_their_version(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for program in (main, calibrate_main):
        assert program(["--version"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert re.fullmatch(r"lumion-hw \d+\.\d+\.\d+\n", said[0])


# -- what type checkers and editors see

SCRIPT = (
    (Path(__file__).parent / "typed_script.py").read_text(encoding="utf-8")
    + """

with Bench.emulate("small-bench", seed=1) as bench:
    script(bench)
    bench.meters["m"].no_such_method()
"""
)


def test_an_editable_install_is_a_path_that_type_checkers_follow() -> None:
    """An import hook, which setuptools makes by default, they cannot."""
    paths = [
        line for file in Path(sysconfig.get_path("purelib")).glob("*.pth") for line in file.read_text().splitlines()
    ]
    assert str(ROOT) in paths
    assert all((ROOT / package / "py.typed").exists() for package in OURS)


@pytest.mark.parametrize(
    "editable",
    [
        pytest.param(True, id="editable", marks=pytest.mark.campaign),
        pytest.param(False, id="copied", marks=pytest.mark.campaign),
    ],
)
def test_a_script_is_type_checked_against_what_is_installed(editable: bool, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    if not editable:  # what `pip install .` leaves, on a path of its own
        source = tmp_path / "source"
        for name in ("pyproject.toml", "README.md", "LICENSE", *OURS):  # a build leaves folders where it is made
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            source.mkdir(exist_ok=True)
            copy(ROOT / name, source / name)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
        subprocess.run([*pip, "--target", str(tmp_path / "site"), str(source)], check=True, timeout=PATIENCE_S * 5)
        assert (tmp_path / "site" / "lumion_hw" / "cli" / "driver_template" / "common").is_dir()
        environment["MYPYPATH"] = str(tmp_path / "site")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "script.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    errors = [line for line in ran.stdout.splitlines() if ": error:" in line and line.startswith("script.py")]
    assert len(errors) == 1, ran.stdout
    assert '"PowerMeter" has no attribute "no_such_method"' in errors[0]


def test_the_modules_that_start_first_exist() -> None:
    assert [module for module in LONGEST_FIRST if not (ROOT / "tests" / module).is_file()] == []
