"""``lumion snapshot`` and ``lumion restore`` as a user meets them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from lumion_hw import Bench
from lumion_hw.cli import main
from lumion_hw.cli.common.opening import open_bench
from tests import recorded_calibration
from tests.cli.test_cli_emulate import served
from tests.recorded_calibration import RECORD, SMALL

EMULATED = [str(SMALL), "--emulate", "--seed", str(recorded_calibration.SEED)]


@pytest.fixture
def stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A snapshot of the bench, but for one averaging time and one module that is off."""
    path = tmp_path / "s.yaml"
    assert main(["snapshot", *EMULATED, "-o", str(path)]) == 0
    assert "19 settings of 8 devices" in capsys.readouterr().out
    text = path.read_text()
    assert text.count("enabled: true") == 3
    path.write_text(
        text.replace("averaging_s.2: 0.01", "averaging_s.2: 0.25").replace("enabled: true", "enabled: false", 1)
    )
    return path


def test_the_difference_is_shown_and_put_back(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", *EMULATED[:1], str(stored), *EMULATED[1:], "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines()[2:]] == [
        ["meter0.averaging_s.2", "0.01", "0.25", "s"],
        ["sfp-a.enabled", "on", "off"],
    ]
    assert main(["restore", *EMULATED[:1], str(stored), *EMULATED[1:], "--yes", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["complete"]
    assert document["put_back"] == ["meter0.averaging_s.2", "sfp-a.enabled"]
    assert document["differences"][0] == {"setting": "meter0.averaging_s.2", "unit": "s", "now": 0.01, "stored": 0.25}
    assert main(["restore", *EMULATED[:1], str(stored), *EMULATED[1:], "-c", "meter0", "--dry-run"]) == 0
    assert "sfp-a" not in capsys.readouterr().out


def test_a_module_that_does_not_answer_is_noted_and_ends_with_exit_code_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_a_module(*given: Any, **named: Any) -> Bench:
        bench = open_bench(*given, **named)
        bench.emulated.faults.kill_modules(["sfp-a"])
        return bench

    monkeypatch.setattr("lumion_hw.cli.snapshot.open_bench", without_a_module)
    path = str(tmp_path / "s.yaml")
    assert main(["snapshot", *EMULATED, "-o", path]) == 4
    captured = capsys.readouterr()
    assert "18 settings of 7 devices" in captured.out
    assert "Not saved: sfp-a did not answer: sfp-a @ emulated sfp-a" in captured.err
    monkeypatch.undo()
    assert main(["restore", *EMULATED[:1], path, *EMULATED[1:], "--dry-run"]) == 0
    assert "sfp-a did not answer when the snapshot was saved" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [("y\n", 0, "restored: 2 of 2"), ("n\n", 1, "Nothing was changed"), ("", 2, "no user can confirm")],
)
def test_it_asks_before_it_changes_anything(
    stored: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: str, code: int, said: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert main(["restore", *EMULATED[:1], str(stored), *EMULATED[1:]]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


def test_json_asks_nobody(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", *EMULATED[:1], str(stored), *EMULATED[1:], "--json"]) == 2
    assert "Give --yes as well" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_snapshot_of_another_bench_says_so(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "lumion-prototype", str(stored), "--emulate", "--yes"]) == 2
    assert "the snapshot belongs to bench 'small', not to 'lumion-prototype'" in capsys.readouterr().err


def test_on_the_terminal_it_is_the_same_document_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    import yaml

    assert main(["snapshot", *EMULATED, "-c", "sfp-*", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(["snapshot", *EMULATED, "-c", "sfp-*"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown | {"taken_utc": ""} == document | {"taken_utc": ""}
    assert set(document["devices"]) == {"sfp-a", "sfp-b", "sfp-c"}
    assert document["devices"]["sfp-a"]["identity"]["serial"] == "ER-A"


def test_a_file_of_somebody_else_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("mine")
    assert main(["snapshot", *EMULATED, "-o", str(path)]) == 2
    assert path.read_text() == "mine"
    assert main(["snapshot", *EMULATED, "-o", str(path), "--force"]) == 0
    assert main(["snapshot", *EMULATED, "-o", str(path)]) == 0, "one's own is written over"


def test_circuits_that_stand_are_not_taken_down_by_stored_heaters(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = ["--state", str(tmp_path / "state")]
    assert main(["connect", str(SMALL), "sfp-a:sfp-b", *EMULATED[1:], *state, "--record", str(RECORD)]) == 0
    text = stored.read_text()
    assert "heaters_ma: [0.0," in text
    stored.write_text(text.replace("heaters_ma: [0.0,", "heaters_ma: [1.0,"))
    assert main(["restore", *EMULATED[:1], str(stored), *EMULATED[1:], *state, "--yes"]) == 6
    assert "would interrupt the connected circuits sfp-a:sfp-b" in capsys.readouterr().err
    assert main(["restore", *EMULATED[:1], str(stored), *EMULATED[1:], *state, "--yes", "-c", "meter0"]) == 0


@pytest.mark.long
def test_what_is_put_back_stays_after_the_command_and_looking_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a bench that goes on: served by `lumion emulate` in the background."""
    with served(SMALL, tmp_path, "--seed", "1"):
        where = ["--endpoints", str(tmp_path / "endpoints.json"), "--state", str(tmp_path / "state")]
        path = tmp_path / "s.yaml"
        assert main(["snapshot", str(SMALL), *where, "-o", str(path)]) == 0
        path.write_text(path.read_text().replace("heaters_ma: [0.0, 0.0,", "heaters_ma: [1.0, 0.5,"))
        assert main(["restore", str(SMALL), str(path), *where, "--yes"]) == 0
        capsys.readouterr()
        for _ in range(2):
            assert main(["snapshot", str(SMALL), *where, "--json"]) == 0
            settings = json.loads(capsys.readouterr().out)["devices"]["mesh0"]["settings"]
            assert settings["heaters_ma"][:3] == pytest.approx([1.0, 0.5, 0.0], abs=1e-4)
