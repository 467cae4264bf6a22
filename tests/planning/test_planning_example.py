"""The script of examples/ about planning, as somebody would call it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest


def test_spares_and_what_they_save_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "spares_for_a_fleet.py"), run_name="__main__")
    out = capsys.readouterr().out
    each, pooled = map(int, re.findall(r"^(\d+) spares in each of 64 racks, or (\d+) in one pool", out)[0])
    assert each < pooled < 64 * each
    assert len(re.findall(r"healthy accelerators out of service", out)) == 4
