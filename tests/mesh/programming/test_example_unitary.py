from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.storage import save_record
from tests.mesh.known_truth import drawn, record_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "unitary.py"


def test_the_example_programs_a_unitary_from_a_record_on_disk(
    smartlight: HexMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_record(record_of(smartlight, drawn(smartlight, 6)), tmp_path / "record.json")
    out = tmp_path / "currents.csv"
    monkeypatch.setattr(sys, "argv", ["unitary.py", str(tmp_path / "record.json"), "--modes", "3", "--out", str(out)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert "fidelity predicted 0.999" in printed or "fidelity predicted 1.000" in printed
    assert np.loadtxt(out, delimiter=",", skiprows=1).shape == (144, 3)
