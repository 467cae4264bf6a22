"""``lumion scan`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.acquisition import load_scan
from lumion_hw.cli import main

SMALL = str(Path(__file__).parents[1] / "data" / "small.yaml")
POL = "pol-a.setting.1"
pytest.importorskip("h5py", reason="h5py, of the extra hdf5, is not there")


def command(*more: str) -> list[str]:
    return ["scan", SMALL, "--emulate", "--read", "meter0.power.1", *more]


def test_a_scan_is_one_file_with_its_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "s.h5"
    assert main(command("--set", f"{POL}=-100:100:5", "-o", str(out), "--plot", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["points"], document["swept"], document["failed_readings"]) == (5, [POL], 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.h5", "s.png"]
    data = load_scan(out)
    assert data.setting(POL).tolist() == [-100.0, -50.0, 0.0, 50.0, 100.0]
    assert data.header.bench_file.text == Path(SMALL).read_text()


def test_lumion_plot_draws_a_scan_against_its_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out, picture = tmp_path / "s.h5", tmp_path / "p.svg"
    assert main([*command("--set", f"{POL}=-100:100:5", "-o", str(out)), "--read", "meter0.power.2"]) == 0
    assert main(["plot", str(out), "-c", "meter0.power.2", "--out", str(picture)]) == 0
    assert f"{picture}: 1 channel\n" in capsys.readouterr().out
    text = picture.read_text(encoding="utf-8")
    assert f"<!-- {POL}" in text
    assert "time (s)" not in text
    assert "by_instrument" not in text


def test_lumion_plot_fits_the_power_per_pi_of_a_heater(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out, picture = str(tmp_path / "s.h5"), str(tmp_path / "p.png")
    sweep = ("--set", "sfp-a.enabled=on", "--set", "mesh0.heater_ma.0=0:2:31", "--read", "mesh0.monitor.*")
    assert main([*command(*sweep, "-o", out)]) == 0
    capsys.readouterr()
    assert main(["plot", out, "--fit-fringe", "--out", picture, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    with Bench.emulate(SMALL) as bench:
        true_mw = float(bench.emulated.world.truth.p_pi_mw[0])
    assert document["fit"]["p_pi_mw"] == pytest.approx(true_mw, rel=0.1)  # heat reaches the other arm, too
    assert document["fit"]["p_pi_error_mw"] < 0.02
    assert Path(picture).stat().st_size > 10_000


def test_a_grid_of_flags_and_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "s.h5"
    sweep = ("--set", "sfp-a.enabled=on,off", "--set", f"{POL}=0,10,20", "--snake")
    assert main([*command(*sweep, "-o", str(out)), "--read", "sfp-a.tx_power_dbm"]) == 0
    assert capsys.readouterr().out == f"{out}: 6 points of 2 readings\n"
    assert np.isnan(load_scan(out).value["sfp-a.tx_power_dbm"]).tolist() == [[False] * 3, [True] * 3]


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command("--set", f"{POL}=0:10:3", "--dry-run", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["points"], document["run_by"]) == (3, "this program")
    arguments = ["scan", SMALL, "--emulate", "--set", "mesh0.heater_ma.3=0:2:3", "--read", "mesh0.monitor.*"]
    assert main([*arguments, "--dry-run", "--state", str(tmp_path / "state")]) == 0
    assert "3 points of 16 readings, run by the mesh controller" in capsys.readouterr().out
    swept = str(Path(__file__).parents[1] / "data" / "swept_lasers.yaml")
    light = ["scan", swept, "--emulate", "--set", "tls0.wavelength_nm=1530,1560", "--read", "pm0.power.[12]"]
    light += ["--dry-run", "--state", str(tmp_path / "state")]
    assert main(light) == 0
    assert "at each point: pm0.wavelength_nm.1, pm0.wavelength_nm.2" in capsys.readouterr().out
    assert main([*light, "--keep-meters", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["follow"] == []
    assert not list(tmp_path.glob("scan.h5*"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{POL}", "give NAME=START:STOP:N"),
        (f"{POL}=0:1", "give START:STOP:N"),
        (f"{POL}=0:1:0", "not a number of points"),
        (f"{POL}=0:1:2.5", "not a number of points"),
        (f"{POL}=0:nan:3", "give START:STOP:N"),
        (f"{POL}=0,1e9", "requested 1e+09"),
        (f"{POL}=fast", "expected a number, found fast"),
        ("pol-z.setting.1=0", "no device of this bench has a channel"),
        ("meter0.colour.1=0", "no setting 'meter0.colour.1'"),
    ],
)
def test_what_cannot_be_swept_is_said_and_nothing_is_written(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "s.h5"
    assert main(command("--set", text, "-o", str(out))) in (1, 2)
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_is_given_twice_and_a_file_that_is_there_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command("--set", f"{POL}=0", "--set", f"{POL}=1")) == 2
    assert "is listed twice" in capsys.readouterr().err
    out = tmp_path / "s.h5"
    out.write_text("mine")
    assert main(command("--set", f"{POL}=0", "-o", str(out))) == 2
    assert "exists" in capsys.readouterr().err
    assert main(command("--set", f"{POL}=0", "-o", str(tmp_path / "t.h5"), "--resume")) == 2
    assert "cannot read the log" in capsys.readouterr().err


@pytest.mark.parametrize("is_on", [True, False])
def test_a_scan_without_light_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], is_on: bool) -> None:
    light = ("--set", "tls-a.enabled=on") if is_on else ()
    arguments = (*light, "--set", "mesh0.heater_ma.3=0,1", "--read", "mesh0.monitor.15", "-o", str(tmp_path / "a.h5"))
    assert main(["scan", "laser-bench", "--emulate", *arguments]) == 0
    told = "1 of 1 readings of light were zero at every point. Check that the light is on."
    assert (told in capsys.readouterr().err) is not is_on


@pytest.mark.parametrize("is_on", [False, True])
def test_a_laser_that_is_off_during_its_sweep_is_named(capsys: pytest.CaptureFixture[str], is_on: bool) -> None:
    sweep = ["--set", "tls-a.wavelength_nm=1530:1565:4", *(["--set", "tls-a.enabled=on"] if is_on else [])]
    assert main(["scan", "laser-bench", "--emulate", *sweep, "--read", "mesh0.monitor.15", "--dry-run"]) == 0
    warning = "tls-a is off, so it sends no light during the scan; --set tls-a.enabled=on switches it on."
    assert (warning in capsys.readouterr().err) is not is_on


MZI = str(Path(__file__).parents[2] / "examples" / "mzi_bench.yaml")


@pytest.mark.parametrize(
    ("setting", "is_blocked"), [([], True), (["switch0.output.1=6"], False), (["switch0.output.1=5,6"], False)]
)
def test_a_switch_that_blocks_the_swept_laser_is_named(
    capsys: pytest.CaptureFixture[str], setting: list[str], is_blocked: bool
) -> None:
    settings = ["laser0.enabled=on", "laser0.wavelength_nm=1550,1551", *setting]
    sweep = [text for each in settings for text in ("--set", each)]
    assert main(["scan", MZI, "--emulate", *sweep, "--read", "meter0.power.*", "--dry-run"]) == 0
    warning = "switch0 blocks the light of laser0; --set switch0.output.1=5 lets it pass."
    assert (warning in capsys.readouterr().err) is is_blocked


def test_a_closed_shutter_before_a_meter_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "shuttered.yaml"
    text = Path(MZI).read_text()
    text = text.replace("  meter0: {", "  att0: {kind: keysight-n776x, model: N7762A}\n  meter0: {")
    text = text.replace("{port: 4, tap", "{port: 4, through: [{device: att0, channel: 1}], tap")
    file.write_text(text)
    sweep = ["--set", "driver0.heater_ma.0=0,1", "--dry-run"]
    assert main(["scan", str(file), "--emulate", *sweep, "--read", "meter0.power.2"]) == 0
    assert "att0 blocks the light to meter0.power.2; --set att0.passing.1=on lets it pass." in capsys.readouterr().err
    assert main(["scan", str(file), "--emulate", *sweep, "--read", "meter0.power.1"]) == 0
    assert "blocks" not in capsys.readouterr().err
