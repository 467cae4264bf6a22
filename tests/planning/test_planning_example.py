"""The scripts of examples/ about planning, called as a user calls them."""

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


def test_a_slice_that_a_torus_has_no_box_for_has_a_place_on_a_fabric(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "slices_of_a_rack.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "torus: a slice of 8 beside 32 busy accelerators does not fit" in out
    assert "fabric: a slice of 8 beside 32 busy accelerators uses 100% of its links" in out
    lost = dict(re.findall(r"^(\w+): accepted .* were free ([\d.]+)%$", out, re.MULTILINE))
    assert float(lost["fabric"]) == 0.0 < float(lost["torus"])
