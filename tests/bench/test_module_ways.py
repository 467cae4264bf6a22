"""Ways to a module that are no byte streams, in bench files and from addresses given at opening."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.devices import CmisModel, SfpModel
from lumion_hw.bench.module_ways import ModuleWay, module_way
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConfigError
from lumion_hw.sessions.i2c_ftdi import FtdiDevice
from lumion_hw.sessions.i2c_smbus import SmbusDevice
from lumion_hw.sessions.linear_pages import LinearPages

BENCH = """
version: 1
name: lab
devices:
  mesh0: {kind: lumion-mesh}
  sfp1: {kind: sfp-8472}
  zr1: {kind: cmis}
  zr2: {kind: cmis}
mesh: {controller: mesh0}
wiring:
  inputs: [{transponder: zr1, port: 0}]
"""


@pytest.mark.parametrize(
    ("address", "kind", "name"),
    [
        ("i2c://3", SmbusDevice, "i2c://3"),
        ("ftdi://ftdi:232h/1", FtdiDevice, "ftdi://ftdi:232h/1"),
        ("optoe:///sys/x/eeprom", LinearPages, "/sys/x/eeprom"),
    ],
)
def test_each_way_has_its_session(address: str, kind: type, name: str) -> None:
    way = module_way(address)
    assert way is not None
    assert way.address == address
    device = way.device(VirtualClock(), "zr1")
    assert (type(device), device.name) == (kind, name)
    assert CmisModel(kind="cmis", address=address).address == address


@pytest.mark.parametrize("address", ["i2c://", "i2c://one", "ftdi://", "optoe://x", "optoe://"])
def test_half_a_way_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="is not an address of a module"):
        module_way(address)
    with pytest.raises(ValueError, match="expected an address"):
        CmisModel(kind="cmis", address=address)


def test_byte_streams_are_no_ways_but_bridges_may_stand_behind_them() -> None:
    assert module_way("tcp://127.0.0.1:5000") is None
    assert CmisModel(kind="cmis", address="tcp://127.0.0.1:5000").address == "tcp://127.0.0.1:5000"
    with pytest.raises(ValueError, match="expected an address"):
        CmisModel(kind="cmis", address="carrier-pigeon://x")


def test_other_devices_take_no_ways() -> None:
    with pytest.raises(ValueError, match="not an address"):
        SfpModel(kind="sfp-8472", address="i2c://1")


def test_a_way_given_at_opening_leads_only_to_cmis_modules(tmp_path: Path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(BENCH)
    with pytest.raises(ConfigError, match="leads to no other device"):
        Bench.open(path, addresses={"sfp1": "i2c://1"}, only=["sfp1"])
    memory = bytearray(256)
    memory[0], memory[2], memory[128] = 0x18, 0x80, 0x18
    memory[166:182] = b"CABLE1".ljust(16)
    (tmp_path / "eeprom").write_bytes(bytes(memory))
    with Bench.open(path, addresses={"zr1": f"optoe://{tmp_path}/eeprom"}, only=["zr1"]) as bench:
        assert bench.transponders["zr1"].identify().serial == "CABLE1"
    assert ModuleWay("i2c", "1").address == "i2c://1"
