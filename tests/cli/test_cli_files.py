"""Files that commands are told to read and write: regular ones, within bounds, and over nothing of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest

from lumion_hw.cli import calibrate_main, main, run
from lumion_hw.cli.calibrate.commands import calibrate
from lumion_hw.cli.commands import lumion
from lumion_hw.cli.common.outputs import NamedFile
from lumion_hw.storage import load_record, save_record
from tests.cli.common.test_cli_numbers import commands
from tests.waiting import PATIENCE_S

DATA = Path(__file__).parents[1] / "data"
SMALL = str(DATA / "small.yaml")
RECORD = str(DATA / "calibration-record-v1.json")
NOTES = "my notes about lumion-hw\n"
WRITING = {
    "mesh show -o": (main, ["mesh", "show", "--mesh", "columns:1", "-o"]),
    "mesh route --svg": (main, ["mesh", "route", "--mesh", "columns:1", "--connect", "0:5", "--svg"]),
    "emulate --endpoints": (main, ["emulate", SMALL, "--endpoints"]),
    "discover -o": (main, ["discover", "--host", "127.0.0.1:1", "-o"]),
    "log": (main, ["log", SMALL, "--emulate", "-c", "meter0", "--for", "1s", "--out"]),
    "dump": (main, ["transponder", "dump", SMALL, "sfp-a", "--emulate", "--out"]),
    "export": (calibrate_main, ["export", "RECORD", "--out"]),
    "export npz": (calibrate_main, ["export", "RECORD", "--format", "npz", "--out"]),
    "report": (calibrate_main, ["report", "RECORD", "--out"]),
    "run": (calibrate_main, ["run", SMALL, "--emulate", "--out"]),
    "run --report": (calibrate_main, ["run", SMALL, "--emulate", "--report"]),
}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A record that can be exported: that of version 1 without its matrix of crosstalk."""
    path = tmp_path_factory.mktemp("record") / "record.json"
    loaded = load_record(Path(RECORD))
    save_record(replace(loaded, crosstalk=None, monitor_ports=(loaded.ports[0].port,)), path)
    return str(path)


def called(name: str, record: str, *more: str) -> int:
    """Call a command that writes."""
    entry, words = WRITING[name]
    return entry([*(record if word == "RECORD" else word for word in words), *more])


def suffix(name: str) -> str:
    return ".html" if "report" in name else ".h5" if name == "log" else ".json"


@pytest.mark.parametrize("name", WRITING)
def test_no_command_writes_over_a_file_it_did_not_make(
    name: str, record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"notes{suffix(name)}"
    path.write_text(NOTES)
    assert called(name, record, str(path)) == 2
    assert path.read_text() == NOTES
    assert str(path) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", WRITING)
def test_no_command_replaces_what_is_no_file_even_with_force(
    name: str, record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"pipe{suffix(name)}"
    os.mkfifo(path)
    force = ["--force"] if name.split(maxsplit=1)[0] in ("mesh", "emulate", "export", "report", "run") else []
    assert called(name, record, str(path), *force) == 2
    assert path.is_fifo()
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("name", WRITING)
def test_a_name_that_no_file_can_have_is_wrong_usage(
    name: str, record: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(name, record, "") == 2
    assert "is not a file name" in capsys.readouterr().err


@pytest.mark.parametrize("name", WRITING)
def test_no_command_writes_a_file_named_as_the_standard_output(
    name: str, record: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert called(name, record, "-") == 2
    assert "'-' (standard output)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["mesh show -o", "mesh route --svg", "export", "export npz", "report"])
def test_with_force_and_over_its_own_a_command_writes(
    name: str, record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"x{suffix(name) if name != 'export npz' else '.npz'}"
    path.write_text(NOTES)
    assert called(name, record, str(path), "--force") == 0
    assert path.read_bytes() != NOTES.encode()
    assert called(name, record, str(path)) == 0
    capsys.readouterr()


def test_tables_go_over_their_own_and_over_no_others(
    record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", record, "--format", "csv", "--out", str(tmp_path)]
    assert calibrate_main(words) == calibrate_main(words) == 0
    (tmp_path / "pucs.csv").write_text("puc,mine\n")
    assert calibrate_main(words) == 2
    assert (tmp_path / "pucs.csv").read_text() == "puc,mine\n"
    assert "pucs.csv" in capsys.readouterr().err


def test_every_option_that_names_a_file_to_write_is_of_one_type() -> None:
    named = {"out", "output", "svg", "report_file"}
    for path, command in [*commands(lumion, ("lumion",)), *commands(calibrate, ("lumion-calibrate",))]:
        for parameter in command.params:
            directory = isinstance(parameter.type, click.Path) and not parameter.type.file_okay
            if parameter.name in named and not directory:
                assert isinstance(parameter.type, NamedFile), f"{path} {parameter.opts}"


def test_a_path_where_nothing_can_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text(NOTES)
    words = ["mesh", "route", "--mesh", "columns:1", "--connect", "0:5", "--svg", str(tmp_path / "file" / "x.svg")]
    assert main(words) == 2
    assert "cannot write the figure" in capsys.readouterr().err


# Reading -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/dev/zero", "/", "x" * 100_000], ids=["device", "directory", "long"])
@pytest.mark.parametrize(
    "words",
    [["bench", "show"], ["transponder", "decode"], ["plot"], ["monitor", SMALL, "--endpoints"], ["bench", "check"]],
    ids=" ".join,
)
def test_what_is_no_file_is_not_read(words: list[str], path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, path]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("path", ["/dev/zero", "/", "x" * 100_000], ids=["device", "directory", "long"])
@pytest.mark.parametrize("words", [["show"], ["export"], ["report"], ["compare", RECORD]], ids=" ".join)
def test_what_is_no_file_is_no_record(words: list[str], path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate_main([*words, path]) in (2, 3)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("mesh", ["rings:100000", "columns:1000000", "rings:" + "9" * 400])
def test_a_mesh_that_fills_the_memory_is_refused(mesh: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mesh", "show", "--mesh", mesh]) == 2
    assert "is too large" in capsys.readouterr().err


def test_a_mesh_file_of_impossible_numbers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mesh", "show", "--mesh", "columns:1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    for changes in ({"n_cells": 1e300}, {"mate": [10**18] * 40}, {"ends": "x"}, {"fibre_ports": [0.5]}):
        (tmp_path / "m.json").write_text(json.dumps(document | changes))
        assert main(["mesh", "show", "--mesh", str(tmp_path / "m.json")]) == 2
        assert "Traceback" not in capsys.readouterr().err


# Ctrl-C while a program is being loaded ------------------------------------------------------------------------------


def test_ctrl_c_while_a_command_is_loaded_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "interrupted_import.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run("interrupted_import:command", "lumion", []) == 130
    assert capfd.readouterr().err == "lumion: interrupted\n"


def test_ctrl_c_while_click_itself_is_loaded_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("lumion_hw.cli._run_to_exit_code", interrupted)
    assert main([]) == 130
    assert capfd.readouterr().err == "lumion: interrupted\n"


def test_nothing_is_loaded_before_ctrl_c_is_taken_care_of() -> None:
    late = "{'click', 'numpy', 'lumion_hw.cli.calibrate.commands'}"
    script = f"import sys, lumion_hw.cli; sys.exit(bool({late} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
