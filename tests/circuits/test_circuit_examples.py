"""The lab scripts of examples/, called as a user calls them."""

from __future__ import annotations

import csv
import re
import runpy
import sys
from pathlib import Path

import pytest

from lumion_hw import Bench, save_record
from tests.circuits.known_mesh import SMALL, record_of_truth
from tests.circuits.test_coherent_circuits import mixed_file

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str, *arguments: object
) -> str:
    monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    return capsys.readouterr().out


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with Bench.emulate(SMALL, seed=5) as bench:
        save_record(record_of_truth(bench), tmp_path / "record.json")
    return tmp_path / "record.json"


def test_connect_a_pair(record: Path, monkeypatch, capsys) -> None:
    options = ("--emulate", "--seed", 5, "--state", record.parent / "state")
    out = printed(monkeypatch, capsys, "connect_pair.py", SMALL, record, "sfp-b", "sfp-a", *options)
    assert "connected: sfp-b:sfp-a" in out
    measured, predicted = map(float, re.findall(r"(\d+\.\d+) dB", out)[:2])
    assert measured == pytest.approx(predicted, abs=0.5)


@pytest.mark.long
def test_survey_all_pairs(record: Path, monkeypatch, capsys) -> None:
    out = printed(monkeypatch, capsys, "survey_pairs.py", SMALL, record, "--emulate", "--seed", 5, "--out", "all")
    with Path("all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    had = [row for row in rows if row["loss_db"]]
    assert f"{len(had)} of 6 pairs measured" in out
    assert len(had) >= 2
    assert all(float(row["loss_db"]) == pytest.approx(float(row["predicted_db"]), abs=0.5) for row in had)
    assert all(row["why_not"] for row in rows if not row["loss_db"])
    assert Path("all.png").exists() or "pip install matplotlib" in out


@pytest.mark.long
def test_hold_for_an_hour(record: Path, monkeypatch, capsys) -> None:
    options = ("--emulate", "--seed", 5)
    out = printed(monkeypatch, capsys, "hold_an_hour.py", SMALL, record, "sfp-b", "sfp-a", *options)
    assert len(re.findall(r"min  sfp-b:sfp-a", out)) >= 12
    worst_db = float(re.findall(r"loss of light (\d+\.\d+) dB", out)[0])
    assert worst_db < 0.5


@pytest.mark.long
def test_a_coherent_link_with_its_bit_errors(tmp_path: Path, monkeypatch, capsys) -> None:
    file = mixed_file(tmp_path)
    with Bench.emulate(file, seed=3) as bench:
        save_record(record_of_truth(bench), tmp_path / "record.json")
    options = ("zr-a", "zr-b", "--emulate", "--seed", 3)
    out = printed(monkeypatch, capsys, "coherent_link.py", file, tmp_path / "record.json", *options)
    ber, most = map(float, re.findall(r"BER (\S+), at most (\S+) ", out)[0])
    assert 0.0 < ber < most
