"""``lumion transponder watch`` on every class of module, each reached through a memory file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lumion_hw.cli import main
from tests.drivers.transponders.qsfp_memories import cable, linear, lr4
from tests.drivers.transponders.sfp_memories import A0H, CONSTANTS, IDENTITY, MONITORS, seal

BENCH = """
version: 1
name: lab
devices:
  mesh0: {{kind: lumion-mesh}}
  sfp: {{kind: sfp-8472, address: "optoe://{path}/sfp.bin"}}
  plain: {{kind: sfp-8472, address: "optoe://{path}/plain.bin"}}
  lr4: {{kind: qsfp-8636, address: "optoe://{path}/lr4.bin"}}
  dac: {{kind: qsfp-8636, address: "optoe://{path}/dac.bin", profile: 100g-cr4}}
  flat: {{kind: cmis, address: "optoe://{path}/flat.bin"}}
mesh: {{controller: mesh0}}
"""


def sfp(*, diagnostics: bool = True) -> bytes:
    """A0h and A2h; without diagnostics byte 92 announces none."""
    memory = {A0H: bytearray(IDENTITY.ljust(256, b"\0")), 0x51: bytearray((CONSTANTS + MONITORS).ljust(256, b"\0"))}
    if not diagnostics:
        memory[A0H][92:94] = b"\0\0"
    seal(memory)
    return bytes(memory[A0H] + memory[0x51])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    flat = bytearray(256)
    flat[0], flat[2], flat[128] = 0x18, 0x80, 0x18  # QSFP-DD, flat memory
    flat[166:182] = b"CABLE1".ljust(16)
    files = {"sfp": sfp(), "plain": sfp(diagnostics=False), "lr4": linear(lr4()), "dac": linear(cable()), "flat": flat}
    for name, content in files.items():
        (tmp_path / f"{name}.bin").write_bytes(bytes(content))
    (tmp_path / "bench.yaml").write_text(BENCH.format(path=tmp_path))
    return tmp_path


def line_of(directory: Path, module: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["transponder", "watch", str(directory / "bench.yaml"), module, "--count", "1", "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_an_sfp_and_a_qsfp_show_powers_and_signal(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = line_of(directory, "sfp", capsys)
    assert (line["temperature_c"], line["tx_power_dbm"], line["rx_power_dbm"]) == (45.0, 1.0, -10.0)
    assert line["link"] == "no_fault"
    line = line_of(directory, "lr4", capsys)
    assert line["rx_power_dbm"] == pytest.approx(2.67, abs=0.01)  # 10 log10 of 1 + 0.5 + 0.25 + 0.1 mW
    assert line["link"] == "no_fault"


def test_a_lost_signal_is_the_link_of_the_line(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = bytearray((directory / "sfp.bin").read_bytes())
    memory[256 + 110] = 0x02  # RX_LOS state
    (directory / "sfp.bin").write_bytes(bytes(memory))
    line = line_of(directory, "sfp", capsys)
    assert (line["link"], line["why"]) == ("rx_los", "the receiver has lost its optical signal")


@pytest.mark.parametrize("module", ["plain", "dac", "flat"])
def test_a_module_without_optical_monitors_shows_what_it_has(
    module: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = line_of(directory, module, capsys)
    assert (line["tx_power_dbm"], line["rx_power_dbm"]) == (None, None)
    assert line["link"] == "not_reported"
    assert "does not report" in line["why"]


def test_a_module_that_disappears_is_a_line_and_not_the_end(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
    from lumion_hw.sessions.module.registers import ModuleAbsentError

    def absent(_: object) -> None:
        raise ModuleAbsentError("no reply at byte 0", device="lr4")

    monkeypatch.setattr(QsfpTransponder, "monitors", absent)
    line = line_of(directory, "lr4", capsys)
    assert line["link"] == "absent"
    assert line["tx_power_dbm"] is None
