"""The scripts of examples/ about schedules, called as a user calls them."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"


@pytest.mark.long
def test_a_job_of_phases_from_the_file_to_ten_iterations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, job = ROOT / "examples" / "job_phases.py", ROOT / "examples" / "job_phases.yaml"
    bench, record = DATA / "small.yaml", DATA / "recorded" / "record.json"
    arguments = [str(each) for each in (script, job, bench, record, "--emulate", "--seed", 1)]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(script), run_name="__main__")
    out = capsys.readouterr().out
    measured_ms, modelled_ms = map(float, re.findall(r"iteration (\S+) ms, model (\S+) ms", out)[0])
    assert measured_ms == pytest.approx(modelled_ms, abs=0.3)
    assert measured_ms > 70.0  # the phases alone
    assert float(re.findall(r"heaters: (\S+) mW", out)[0]) > 1.0
    assert re.search(r"to data: \d+\.\d+ ms to light", out)
    assert re.search(r"tensor: waited .*dark: sfp-b to sfp-a \d", out)
