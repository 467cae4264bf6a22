"""`lumion-calibrate run` before anything is measured: what is refused at once, and what Ctrl-C leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from calibration.measure.bench_probe import BenchProbe
from lumion_hw.cli import calibrate_main as main
from tests.calibration.bench_run import SMALL


def test_an_interruption_of_the_alignment_says_how_to_begin_again_and_leaves_no_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cut(_: BenchProbe, dead: Mapping[int, str], done: Callable[[int, int], None]) -> dict[int, str]:
        done(1, 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(BenchProbe, "align_all", cut)
    record = tmp_path / "r.json"
    command = ["run", str(SMALL), "--emulate", "--seed", "1", "--out", str(record)]
    assert main(command) == 130
    shown = capsys.readouterr().err
    assert "nothing was measured yet" in shown
    assert f"lumion-calibrate {' '.join(command)}" in shown
    assert not list(tmp_path.glob("*.journal"))


def test_a_wavelength_that_no_laser_makes_is_refused_before_light_is_aligned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: object) -> dict[int, str]:
        raise AssertionError("aligned")

    monkeypatch.setattr(BenchProbe, "align_all", never)
    command = ["run", "laser-bench", "--emulate", "--wavelengths", "1550,1700", "--out", str(tmp_path / "r.json")]
    assert main(command) == 2
    assert "source at port 1 cannot be tuned to this wavelength" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.journal"))
