"""``lumion transponder`` on a QSFP module, reached through a memory file as the Linux driver shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lumion_hw.cli import main
from tests.drivers.transponders.qsfp_memories import cable, linear, lr4

BENCH = """
version: 1
name: lab
devices:
  mesh0: {{kind: lumion-mesh}}
  q1: {{kind: qsfp-8636, address: "optoe://{path}/lr4.bin"}}
  q2: {{kind: qsfp-8636, address: "optoe://{path}/dac.bin", profile: 100g-cr4}}
  q3: {{kind: cmis, address: "optoe://{path}/other.bin"}}
mesh: {{controller: mesh0}}
"""


@pytest.fixture
def bench(tmp_path: Path) -> str:
    for name in ("lr4", "other"):
        (tmp_path / f"{name}.bin").write_bytes(linear(lr4()))
    (tmp_path / "dac.bin").write_bytes(linear(cable()))
    path = tmp_path / "bench.yaml"
    path.write_text(BENCH.format(path=tmp_path))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["transponder", *arguments]) == code
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["transponder", *arguments]) != 0
    return capsys.readouterr().err


def test_show_lists_the_lanes(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, "show", bench, "q1", "--json"))
    assert document["identity"]["part_number"] == "QSFP28-LR4-TEST"
    assert (document["power"]["class"], document["power"]["max_w"]) == (4, 3.5)
    assert [lane["rx_power_dbm"] for lane in document["lanes"]] == pytest.approx([0, -3.0103, -6.0206, -10], abs=1e-4)
    assert [lane["rx_los"] for lane in document["lanes"]] == [False] * 4
    assert document["flags"] == []


def test_show_begins_with_what_each_lane_sends_and_receives(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "show", bench, "q1").splitlines()
    assert lines[0].startswith("q1: QSFP28, LUMION TEST QSFP28-LR4-TEST")
    assert "lane 4: transmits 0.0 dBm, receives -10.0 dBm, bias 40.0 mA" in lines
    assert len(lines) <= 25
    assert "tx_bias_ma" in run(capsys, "show", bench, "q1", "--all")


def test_show_a_cable(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, "show", bench, "q2", "--json"))
    assert document["monitors"]["temperature_c"] is None
    assert "lanes" not in document


def test_switching_off_by_the_register(bench: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The power in a file never falls, so the driver says that the light is still on."""
    assert "still emits light" in refusal(capsys, "enable", bench, "q1", "--off")
    assert (tmp_path / "lr4.bin").read_bytes()[86] == 0x0F


def test_the_memory_is_saved_and_decoded(bench: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "dump", bench, "q1", "--out", str(tmp_path / "q1.json"))
    document = json.loads(run(capsys, "decode", str(tmp_path / "q1.json"), "--json"))
    assert (document["standard"], document["form_factor"]) == ("SFF-8636", "QSFP28")
    assert document["checksums"] == {"CC_BASE": True, "CC_EXT": True}
    assert not any(field["name"].endswith("_flag") for field in document["fields"])  # marked as unread


def test_decode_a_memory_file(bench: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "decode", str(tmp_path / "dac.bin"))
    assert "QSFP28, SFF-8636 2.8 to 2.10, flat memory\n\npassive copper cable, 3 m\n" in out
    document = json.loads(run(capsys, "decode", str(tmp_path / "dac.bin"), "--json"))
    assert document["cable"] == "passive copper cable, 3 m"


def test_the_wrong_kind_leads_to_the_right_one(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "use kind qsfp-8636" in refusal(capsys, "show", bench, "q3")


def test_tuning_needs_another_module(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "This module follows SFF-8636." in refusal(capsys, "tune", bench, "q1", "193.1")


def test_the_cookbook_shows_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    page = (root / "docs" / "cookbook" / "module-health.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\$ lumion transponder (show .*)\n((?:.+\n)+?)```$", page, re.MULTILINE)
    assert len(shown) == 2
    for command, printed in shown:
        assert run(capsys, *command.split()) == printed
