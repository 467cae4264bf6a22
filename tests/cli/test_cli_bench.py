"""`lumion bench`: what it prints for right and wrong files, as text and as JSON."""

import json
import pathlib

import jsonschema
import pytest

from lumion_hw.bench.file.loader import builtin_path
from lumion_hw.cli import main

PROTOTYPE = builtin_path("lumion-prototype").read_text()


def line_of(word: str) -> int:
    return next(number for number, line in enumerate(PROTOTYPE.splitlines(), start=1) if word in line)


@pytest.fixture
def wrong(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "wrong.yaml"
    path.write_text(PROTOTYPE.replace("port: 12,", "port: 20,").replace("watchdog_s", "watch_dog_s"))
    return path


def test_check_of_a_right_file_says_what_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "check", "lumion-prototype"]) == 0
    out, err = capsys.readouterr()
    assert out == "lumion-prototype: ok: lumion-prototype with 18 devices, 8 inputs, 8 outputs, 4 servers\n"
    assert "of kind oz-epc04: the serial numbers of these devices cannot be read" in err


def test_check_of_a_right_file_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "check", str(builtin_path("lumion-prototype")), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["valid"] is True
    assert (document["name"], document["devices"], document["servers"]) == ("lumion-prototype", 18, 4)
    assert len(document["notes"]) == 1


@pytest.mark.parametrize(
    ("devices", "noted"),
    [
        ("{p: {kind: oz-da100, address: A}, q: {kind: oz-da100, address: B}}", "p, q of kind oz-da100: the serial"),
        ("{p: {kind: oz-da100, address: A}, q: {kind: oz-epc04, address: B}}", ""),
        ("{p: {kind: oz-da100, address: A}, q: {kind: oz-da100}}", ""),
        ("{p: {kind: polatis, address: A}, q: {kind: polatis, address: B}}", ""),
        ("{p: {kind: qontrol-q8, address: A, modules: [Q8iv-0001]}, q: {kind: oz-da100, address: B}}", ""),
    ],
)
def test_check_notes_devices_that_nothing_but_light_tells_apart(
    devices: str, noted: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "b.yaml"
    text = devices.replace("address: A", 'address: "serial:///dev/a"').replace("address: B", 'address: "tcp://b:1"')
    path.write_text(f"version: 1\nname: b\ndevices: {text}\n")
    assert main(["bench", "check", str(path)]) == 0
    err = capsys.readouterr().err
    assert noted in err
    assert bool(err) == bool(noted)


def test_check_of_a_wrong_file_lists_every_mistake_on_stderr(
    wrong: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "check", str(wrong)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"lumion: 2 mistakes in bench file {wrong}:\n")
    assert f"{wrong}:{line_of('watchdog_s')}:5: devices.mesh0.watch_dog_s: " in err
    assert "Did you mean 'watchdog_s'?" in err
    assert "wiring.inputs[1].port: expected port 20 to be used once" in err


def test_check_of_a_wrong_file_as_json_is_one_document_with_every_mistake(
    wrong: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "check", str(wrong), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["type"], error["exit_code"]) == ("ConfigError", 2)
    assert error["message"] == f"2 mistakes in bench file {wrong}"
    first, second = error["problems"]
    assert (first["file"], first["line"], first["column"]) == (str(wrong), line_of("watchdog_s"), 5)
    assert first["path"] == "devices.mesh0.watch_dog_s"
    assert second["path"] == "wiring.inputs[1].port"


def test_check_of_a_missing_file_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "check", "nowhere.yaml", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "ConfigError"


def test_show_prints_devices_wiring_and_servers_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "show", "lumion-prototype"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "meter0    keysight-n77xx  MY00000001  tcp://192.0.2.20:5025" in lines
    assert any(line.split()[:4] == ["sfp-s1n0", "5", "pol-s1n0", "0.6"] for line in lines)
    assert "   9  sfp-s1n0         0.3  meter0        3  10%" in lines
    assert "server1  sfp-s1n0 sfp-s1n1  feed1       paired with server0" in lines
    assert "server2  sfp-s2n0 sfp-s2n1  feed2       spare 1" in lines
    assert any("72 PUCs, 40 ports, 28 fibres, 28 monitors" in line for line in lines)


def test_a_chip_without_photodiodes_is_shown_with_its_power_meters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "show", "examples/benches/clements-4x4-qontrol.yaml"]) == 0
    assert "14 PUCs, 8 ports, 8 fibres, 4 power meter channels" in capsys.readouterr().out


def test_show_of_a_bench_without_taps_servers_and_with_columns(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bare.yaml"
    path.write_text(
        "version: 1\nname: bare\ndevices:\n  m: {kind: lumion-mesh}\n  s: {kind: sfp-8472}\n"
        "mesh: {controller: m, columns: [2, 3, 2]}\nwiring: {outputs: [{port: 0, transponder: s}]}\n"
    )
    assert main(["bench", "show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "columns 2 3 2 on m: 34 PUCs, 24 ports" in out
    assert "   0  s                0.0  -      -        -" in out
    assert "Inputs" not in out
    assert "Servers" not in out


def test_show_as_json_has_the_defaults_filled_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "show", "lumion-prototype", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["devices"]["sfp-s3n1"]["sensitivity_dbm"] == -15.8
    assert document["emulation"]["thermal_tau_s"] == 100e-6


def test_show_of_a_wrong_file_fails_as_check_does(wrong: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "show", str(wrong)]) == 2
    assert "2 mistakes in bench file" in capsys.readouterr().err


def test_schema_prints_a_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == "lumion-hw bench file, version 1"
