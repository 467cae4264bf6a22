"""``lumion transponder`` as a user meets it: on a memory file of a module, and on dumps without hardware."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lumion_hw.cli import main
from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.emulator.transponders.cmis.cdb import firmware_image
from tests.drivers.transponders.cmis_peer import ACTIVATED, Peer
from tests.drivers.transponders.sfp_memories import CONSTANTS, IDENTITY, MONITORS, seal
from tests.standards.module_text_samples import I2CDUMP_SFP

BENCH = """
version: 1
name: lab
devices:
  mesh0: {{kind: lumion-mesh}}
  zr1: {{kind: cmis, address: "optoe://{path}", serial: {serial}}}
mesh: {{controller: mesh0}}
"""


@pytest.fixture
def peer() -> Peer:
    return Peer(VirtualClock())


@pytest.fixture
def bench(peer: Peer, tmp_path: Path) -> str:
    """A bench file whose module is the memory file of an activated module."""
    peer.dp_state(ACTIVATED)
    memory = bytearray((0x9F + 2) * 128)
    memory[:128] = peer.lower
    for page, half in peer.pages.items():
        memory[page * 128 + 128 : page * 128 + 256] = half
    (tmp_path / "eeprom").write_bytes(bytes(memory))
    path = tmp_path / "bench.yaml"
    path.write_text(BENCH.format(path=tmp_path / "eeprom", serial="SN0001"))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["transponder", *arguments]) == code
    return capsys.readouterr().out


def test_show_on_a_memory_file(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "show", bench, "zr1")
    assert "LUMION TEST" in out
    assert "400ZR, DWDM, amplified" in out
    document = json.loads(run(capsys, "show", bench, "zr1", "--json"))
    assert document["identity"]["serial"] == "SN0001"
    assert document["state"]["module"] == "ready"
    assert {item["name"]: item["value"] for item in document["readings"]}["tx_power"] == -10.0
    assert {item["name"]: item["quality"] for item in document["readings"]}["aux1"] == "not_supported"


def test_show_begins_with_what_each_lane_does(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "show", bench, "zr1").splitlines()
    assert lines[0] == "zr1: QSFP-DD, LUMION TEST ZR-400, serial SN0001, 400ZR, DWDM, amplified (C-band tunable laser)"
    assert lines[1].startswith("module: ready, data paths activated, temperature ")
    assert lines[2].startswith("lane 1: transmits -10.0 dBm, receives ")
    assert len(lines) <= 25
    assert "laser: 193.100000 THz" in lines
    everything = run(capsys, "show", bench, "zr1", "--all")
    assert everything.splitlines()[:3] == lines[:3]
    assert "applications" in everything


def test_show_of_an_sfp(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "show", "lumion-prototype", "sfp-s0n0", "--emulate").splitlines()
    assert lines[0].startswith("sfp-s0n0: SFP/SFP+, LUMION EMU EMU-10G-ER, serial ER000000")
    assert lines[2].startswith("lane 1: transmits 0.3 dBm, receives -19.7 dBm (too low) (LOS), bias 85.")


def test_show_warns_of_a_wrong_check_sum(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(bench).with_name("eeprom")
    data = bytearray(file.read_bytes())
    data[222] ^= 1
    file.write_bytes(bytes(data))
    assert "the checksum 00h:222 is wrong" in run(capsys, "show", bench, "zr1")
    assert len(json.loads(run(capsys, "show", bench, "zr1", "--json"))["warnings"]) == 1


def test_dump_and_decode_go_together(bench: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "zr1.json"
    run(capsys, "dump", bench, "zr1", "--out", str(out))
    assert json.loads(out.read_text())["unread"]["11"][0] == 134
    document = json.loads(run(capsys, "decode", str(out), "--json"))
    assert document["identity"]["part_number"] == "ZR-400"
    assert [item for item in document["findings"] if item["severity"] == "error"] == []
    run(capsys, "dump", bench, "zr1", "--out", str(out), code=2)  # never overwritten
    assert json.loads(run(capsys, "dump", bench, "zr1"))["lower"].startswith("1852")


def test_dump_saves_what_can_be_read_and_names_the_rest(
    bench: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eeprom = tmp_path / "eeprom"
    eeprom.write_bytes(eeprom.read_bytes()[: (0x35 + 1) * 128 + 50])  # the bus breaks off in the middle of page 35h
    out = tmp_path / "zr1.json"
    assert main(["transponder", "dump", bench, "zr1", "--out", str(out)]) == 1
    assert "zr1: 35 could not be read: " in capsys.readouterr().err
    document = json.loads(out.read_text())
    assert list(document["unreadable"]) == ["35"]
    assert {"00", "01", "02", "34"} <= document["pages"].keys()
    decoded = run(capsys, "decode", str(out), code=1)
    assert "the page 35h could not be read" in decoded
    assert "LUMION TEST" in decoded


def test_a_hexdump_is_the_same_memory(bench: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, document = tmp_path / "zr1.txt", tmp_path / "zr1.json"
    run(capsys, "dump", bench, "zr1", "--out", str(text), "--format", "hexdump")
    run(capsys, "dump", bench, "zr1", "--out", str(document))
    assert text.read_text().startswith("EEPROM hexdump for port zr1\n        Lower page 0h\n        00000000 18 52")
    from_text, from_json = (json.loads(run(capsys, "decode", str(file), "--json")) for file in (text, document))
    del from_text["source"], from_json["source"]
    assert from_text == from_json
    printed = run(capsys, "dump", bench, "zr1", "--format", "hexdump")
    assert printed == text.read_text()


def test_decode_of_text_names_the_damaged_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "post.txt"
    path.write_text(I2CDUMP_SFP)
    assert "lane 1: transmits -3.0 dBm, receives -3.0 dBm, bias 6.0 mA" in run(capsys, "decode", str(path))
    path.write_text(I2CDUMP_SFP.replace("10: 08 02", "10: 08"))
    assert main(["transponder", "decode", str(path)]) == 2
    assert "line 10: expected 16 bytes in the row, found 15" in capsys.readouterr().err


def test_decode_of_a_linear_file_prints_tables(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(Path(bench).with_name("eeprom"))
    out = run(capsys, "decode", file, "--fields")
    assert out.startswith("QSFP-DD, CMIS 5.2\n")
    assert "400GAUI-8 C2M" in out
    assert "193.100000 THz" in out
    assert "Diagnostics" in out


def test_decode_marks_what_is_wrong(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(bench).with_name("eeprom")
    data = bytearray(file.read_bytes())
    data[14:16] = b"\x7f\xff"
    data[222] ^= 1
    file.write_bytes(bytes(data))
    document = json.loads(run(capsys, "decode", str(file), "--json", code=1))
    assert {item["address"]: item["kind"] for item in document["findings"]}["00h:222"] == "checksum"
    assert document["damaged"] is True
    assert {item["name"]: item["quality"] for item in document["fields"]}["serial_number"] == "checksum_wrong"
    values = {item["name"]: item["value"] for item in document["fields"]}
    assert values["temperature"] is None
    assert document["checksums"]["00h:222"] is False
    out = run(capsys, "decode", str(file), "--fields", code=1)
    assert "!!" in out
    assert "Identity (damaged)" in out
    assert "SN0001 (checksum_wrong)" in out


@pytest.mark.parametrize("content", [b"", b"{", bytes(256), b"\xff" * 300, b"{" + b'"a":{' * 9999, b'{"lower": "zz"}'])
def test_decode_of_something_else_is_one_sentence(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    assert main(["transponder", "decode", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main(["transponder", "decode", str(tmp_path / "missing")]) == 2


def test_decode_of_a_calibration_constant_that_is_none_is_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = {0x50: bytearray(IDENTITY + bytes(160)), 0x51: bytearray(CONSTANTS + MONITORS + bytes(146))}
    memory[0x50][92] = 0x58  # externally calibrated
    memory[0x51][64:68] = bytes.fromhex("7FC00000")  # Rx_PWR(2) is NaN
    seal(memory)
    path = tmp_path / "sfp.bin"
    path.write_bytes(bytes(memory[0x50] + memory[0x51]))

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    document = json.loads(run(capsys, "decode", str(path), "--json", code=1), parse_constant=refuse)
    constant = next(item for item in document["fields"] if item["name"] == "cal_rx_power_2")
    assert (constant["value"], constant["quality"]) == (None, "inconsistent")
    assert "cal_rx_power_2 is nan" in document["findings"][0]["message"]


def test_decode_takes_sfp_dumps_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sfp.bin"
    path.write_bytes(IDENTITY + bytes(160) + CONSTANTS + MONITORS + bytes(146))
    assert run(capsys, "decode", str(path)).startswith("SFP/SFP+, SFF-8472 12.x\n")
    document = json.loads(run(capsys, "decode", str(path), "--json"))
    assert (document["standard"], document["identity"]["technology"]) == ("SFF-8472", "10GBASE-ER")


def test_another_serial_number_or_device_is_refused(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(bench)
    path.write_text(path.read_text().replace("SN0001", "SN0009"))
    assert main(["transponder", "show", bench, "zr1"]) == 2
    assert "SN0001" in capsys.readouterr().err
    assert main(["transponder", "show", bench, "mesh9"]) == 2
    assert "mesh9. Did you mean mesh0" in capsys.readouterr().err
    assert main(["transponder", "show", "lumion-prototype", "meter0", "--emulate"]) == 2
    assert "Its modules are sfp-s0n0, " in capsys.readouterr().err


def test_watch_prints_a_line_per_period(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "watch", bench, "zr1", "--count", "2", "--period", "0.05", "--json").splitlines()
    assert [json.loads(line)["tx_power_dbm"] for line in lines] == [-10.0, -10.0]
    assert "link locked" in run(capsys, "watch", bench, "zr1", "--count", "1")


@pytest.fixture
def scripted(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> Peer:
    """A bench whose module is a scripted one."""
    module = CmisTransponder(peer, peer.clock, device="zr1")
    module.open()

    @contextmanager
    def open_bench(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(transponders={"zr1": module}, clock=peer.clock, model=SimpleNamespace(devices={}))

    monkeypatch.setattr("lumion_hw.cli.common.modules.open_bench", open_bench)
    return peer


def test_tune(scripted: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "tune", "lab", "zr1", "193.775", "--power", "-8")
    assert out == "zr1: 193.775000 THz, channel 27 of 75 GHz\n"
    document = json.loads(run(capsys, "tune", "lab", "zr1", "193.2001", "--json"))
    assert document["tuned"]["fine_ghz"] == pytest.approx(0.1)
    assert main(["transponder", "tune", "lab", "zr1", "200"]) == 2
    assert "nearest" in capsys.readouterr().err


def test_enable_and_lock(scripted: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "enable", "lab", "zr1", "--application", "1", "--lock", "10")
    assert "zr1: on, -10.00 dBm" in out
    assert "locked" in out
    document = json.loads(run(capsys, "enable", "lab", "zr1", "--off", "--json"))
    assert document["monitors"]["tx_power_dbm"] is None
    scripted.receive(False)
    assert main(["transponder", "enable", "lab", "zr1", "--lock", "1"]) == 1
    assert "rx_los" in capsys.readouterr().err


# -- firmware

ZR_PAIR = str(Path(__file__).parents[1] / "data" / "zr_pair.yaml")


def test_firmware_is_downloaded_run_and_committed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "image.bin"
    file.write_bytes(firmware_image(7, 8, 9))
    stored = json.loads(run(capsys, "firmware", ZR_PAIR, "zr-a", "--emulate", "--json"))["images"]
    assert (stored["A"]["running"], stored["A"]["committed"]) == (True, True)
    steps = ["--download", str(file), "--run", "--commit"]
    out = run(capsys, "firmware", ZR_PAIR, "zr-a", "--emulate", "--password", "00001011", *steps, "--json")
    images = json.loads(out)["images"]
    assert (images["B"]["major"], images["B"]["minor"], images["B"]["build"]) == (7, 8, 9)
    assert [images[name]["committed"] for name in "AB"] == [False, True]
    assert main(["transponder", "firmware", ZR_PAIR, "zr-a", "--emulate", *steps]) == 1
    assert "Enter the password of the module" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--download", "missing.bin"], "cannot read the firmware file missing.bin"),
        (["--hitless"], "--hitless needs --run"),
        (["--password", "secret"], "hexadecimal digits"),
        (["--password", "80000000"], "host password"),
    ],
)
def test_firmware_options_that_cannot_be(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transponder", "firmware", ZR_PAIR, "zr-a", "--emulate", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_file_that_is_no_firmware_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "notes.bin"
    file.write_bytes(b"not firmware " * 100)
    assert main(["transponder", "firmware", ZR_PAIR, "zr-a", "--emulate", "--download", str(file)]) == 1
    assert "failed" in capsys.readouterr().err


def test_no_lock_is_one_document_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [ZR_PAIR, "zr-a", "--emulate", "--application", "1", "--lock", "1", "--json"]
    document = json.loads(run(capsys, "enable", *arguments, code=1))
    assert document["lock"]["stage"] != "locked"
