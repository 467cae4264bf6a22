"""``lumion log`` and ``lumion monitor`` as a user meets them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from lumion_hw.cli import main

SMALL = str(Path(__file__).parents[1] / "data" / "small.yaml")
MIXED = str(Path(__file__).parents[2] / "examples" / "mixed_bench.yaml")
h5py = pytest.importorskip("h5py", reason="h5py, of the extra hdf5, is not there")


def test_a_log_is_one_file_with_all_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.h5"
    arguments = ["log", SMALL, "--emulate", "-c", "meter0", "--rate", "20", "--for", "2s", "--out", str(out), "--json"]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"], document["missed"]) == (40, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["r.h5"]
    with h5py.File(out) as file:
        assert file["entry/data/meter0_power_1"].shape == (40,)


@pytest.mark.parametrize(("channels", "is_dark"), [("zr-a.prefec_ber,zr-a.temperature_c", True), ("zr-a.temp*", False)])
def test_the_end_of_a_log_names_the_channels_without_signal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], channels: str, is_dark: bool
) -> None:
    out = str(tmp_path / "r.h5")
    assert main(["log", MIXED, "--emulate", "-c", channels, "--rate", "2", "--for", "1s", "--out", out]) == 0
    text = "1 of 2 channels had no signal in any row, so the file contains NaN for them: zr-a.prefec_ber (NO_SIGNAL)."
    assert (text in capsys.readouterr().err) == is_dark


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.h5"
    out.write_text("mine")
    assert main(["log", SMALL, "--emulate", "--out", str(out)]) == 2
    assert "exists" in capsys.readouterr().err
    assert out.read_text() == "mine"


def test_channels_are_listed_with_their_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", SMALL, "--emulate", "--list", "-c", "meter0", "--json"]) == 0
    channels = json.loads(capsys.readouterr().out)["channels"]
    assert channels[0] == {"name": "meter0.power.1", "unit": "W"}


@pytest.mark.parametrize("text", ["soon", "-3s", "0s", "5 weeks"])
def test_a_time_that_is_none_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", SMALL, "--emulate", f"--for={text}"]) == 2
    assert "30s, 1.5min, 2h or 7d" in capsys.readouterr().err


def test_going_on_with_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", SMALL, "--emulate", "-c", "meter0", "--resume", "--out", str(tmp_path / "r.h5")]) == 2
    assert "cannot read the log" in capsys.readouterr().err


def test_the_monitor_shows_a_table_and_as_json_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", SMALL, "--emulate", "-c", "meter0", "--count", "2"]) == 0
    text = capsys.readouterr().out
    assert text.count("meter0.power.1") == 2
    assert "\x1b" not in text
    assert main(["monitor", SMALL, "--emulate", "-c", "meter0", "--json"]) == 0
    readings = json.loads(capsys.readouterr().out)["readings"]
    assert [reading["channel"] for reading in readings] == [f"meter0.power.{n}" for n in (1, 2, 3, 4)]


def test_devices_without_a_chosen_channel_are_not_opened() -> None:
    from lumion_hw import Bench
    from lumion_hw.errors import ConfigError

    with Bench.emulate(SMALL, only=["meter0"]) as bench:
        assert list(bench.meters) == ["meter0"]
        assert not bench.transponders
        with pytest.raises(ConfigError, match="was not opened"):
            _ = bench.mesh
    with pytest.raises(ConfigError, match="devices that are not in the bench file: meter9"):
        Bench.emulate(SMALL, only=["meter9"])


def test_channels_may_stand_with_commas_between(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "log",
        SMALL,
        "--emulate",
        "--list",
        "--json",
        "-c",
        "meter0.power.1, sfp-a.rx_power_dbm",
        "-c",
        "pol-a",
    ]
    assert main(arguments) == 0
    names = [channel["name"] for channel in json.loads(capsys.readouterr().out)["channels"]]
    assert names[:2] == ["meter0.power.1", "sfp-a.rx_power_dbm"]
    assert {name.split(".")[0] for name in names[2:]} == {"pol-a"}


def test_a_channel_of_no_device_is_told_with_what_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", SMALL, "--emulate", "-c", "metre0"]) == 2
    assert "no device of this bench has a channel 'metre0'. Did you mean meter0" in capsys.readouterr().err
    assert main(["monitor", SMALL, "--emulate", "-c", "meter0", "-c", "zzzz"]) == 2
    assert "There are mesh0, " in capsys.readouterr().err


def test_a_wildcard_reaches_beyond_the_dot(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", SMALL, "--emulate", "--list", "-c", "*power*", "-c", "pol-a", "--json"]) == 0
    names = {channel["name"] for channel in json.loads(capsys.readouterr().out)["channels"]}
    assert {"meter0.power.1", "sfp-b.rx_power_dbm", "pol-a.setting.4"} < names
    assert not any(name.startswith("pol-b") for name in names)


def test_the_commands_of_the_page_on_recording_do_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra plots, is not there")
    page = (Path(__file__).parents[2] / "docs" / "recording.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in page.split("```sh\n")[1:]]
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    for line in "".join(blocks).splitlines():
        command = shlex.split(line, comments=True)
        assert command[0] == "lumion"
        assert main([*command[1:], *(["--count", "1"] if command[1] == "monitor" else [])]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "readings.h5",
        "readings.png",
        "readings.jsonl",
        "friday.yaml",
    }
