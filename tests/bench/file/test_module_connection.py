"""Connections to a module that are no byte streams, in bench files and from addresses given at opening."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.file.module_connection import (
    ModuleConnection,
    module_connection,
    module_device,
    module_registers,
)
from lumion_hw.bench.kinds.cmis import CmisModel
from lumion_hw.bench.kinds.keysight_n77xx import PowerMeterModel
from lumion_hw.bench.kinds.sfp_8472 import SfpModel
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConfigError
from lumion_hw.links import ReplayPeer, replay_link
from lumion_hw.sessions.module.paged_i2c import BridgedI2c

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
    ("address", "name"),
    [
        ("i2c://3", "i2c://3"),
        ("i2c://3?read_bytes=32", "i2c://3?read_bytes=32"),
        ("ftdi://ftdi:232h/1", "ftdi://ftdi:232h/1"),
        ("ftdi://ftdi:232h/1?clock_khz=400", "ftdi://ftdi:232h/1?clock_khz=400"),
        ("mcp2221://0001234567?clock_khz=50&read_bytes=16", "mcp2221://0001234567?clock_khz=50&read_bytes=16"),
        ("optoe:///sys/x/eeprom", "/sys/x/eeprom"),
    ],
)
def test_each_connection_leads_to_both_kinds_of_module(address: str, name: str) -> None:
    way = module_connection(address)
    assert way is not None
    assert way.address == address
    device, pins = way.device(VirtualClock(), "m1")
    assert (device.name, pins) == (name, None)
    assert way.registers(VirtualClock(), "m1").name == name
    assert CmisModel(kind="cmis", address=address).address == address
    assert SfpModel(kind="sfp-8472", address=address).address == address


@pytest.mark.parametrize(
    "address",
    [
        *("i2c://", "i2c://one", "ftdi://", "optoe://x", "optoe://", "mcp2221://", "mcp2221://?clock_khz=100"),
        *("i2c://1?clock_khz=100", "ftdi://ftdi:232h/1?clock_khz=1e3", "mcp2221://0?clock_khz=1000"),
        *("i2c://1?read_bytes=0", "i2c://1?read_bytes=nan", "i2c://1?read_bytes=8&read_bytes=9", "i2c://1?x"),
    ],
)
def test_half_a_connection_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a valid module address|is not a valid option of"):
        module_connection(address)
    with pytest.raises(ValueError, match="expected an address"):
        CmisModel(kind="cmis", address=address)


def test_pins_need_an_adapter_that_has_them_and_one_each() -> None:
    way = module_connection("mcp2221://0")
    assert way is not None
    _, pins = way.device(VirtualClock(), "zr1", {"reset_l": 0})
    assert pins is not None
    assert set(pins.wired) == {"reset_l"}
    without = module_connection("i2c://1")
    assert without is not None
    with pytest.raises(ConfigError, match="has no pins"):
        without.device(VirtualClock(), "zr1", {"reset_l": 0})
    model = CmisModel(kind="cmis", address="ftdi://ftdi:232h/1", pins={"reset_l": 3, "int_l": 5})
    assert model.pins is not None
    assert model.pins.wired() == {"reset_l": 3, "int_l": 5}
    with pytest.raises(ValueError, match="adapter with pins"):
        CmisModel(kind="cmis", address="i2c://1", pins={"reset_l": 3})
    with pytest.raises(ValueError, match="a different pin"):
        CmisModel(kind="cmis", pins={"reset_l": 3, "int_l": 3})


def test_the_length_of_reads_is_a_key_for_bridges_and_in_the_address_of_adapters() -> None:
    clock = VirtualClock()
    bridge, _ = module_device(replay_link(ReplayPeer([], clock), clock), clock, "zr1", None, 1)
    assert isinstance(bridge, BridgedI2c)
    assert bridge.largest_read == 1
    for address, hint in (("i2c://1", r"Append \?read_bytes=1"), ("optoe:///sys/x/eeprom", "Omit read_bytes")):
        way = module_connection(address)
        assert way is not None
        with pytest.raises(ConfigError, match=rf"not for .*{hint}"):
            module_registers(way, clock, "sfp1", 1)


def test_byte_streams_are_no_connections_but_bridges_may_stand_behind_them() -> None:
    assert module_connection("tcp://127.0.0.1:5000") is None
    assert CmisModel(kind="cmis", address="tcp://127.0.0.1:5000").address == "tcp://127.0.0.1:5000"
    with pytest.raises(ValueError, match="expected an address"):
        CmisModel(kind="cmis", address="carrier-pigeon://x")


def test_other_devices_take_no_such_connections() -> None:
    with pytest.raises(ValueError, match="not a device address"):
        PowerMeterModel(kind="keysight-n77xx", address="i2c://1")


def test_a_connection_given_at_opening_leads_only_to_modules(tmp_path: Path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(BENCH)
    with pytest.raises(ConfigError, match="for pluggable modules only"):
        Bench.open(path, addresses={"mesh0": "i2c://1"}, only=["mesh0"])
    memory = bytearray(256)
    memory[0], memory[2], memory[128] = 0x18, 0x80, 0x18
    memory[166:182] = b"CABLE1".ljust(16)
    (tmp_path / "eeprom").write_bytes(bytes(memory))
    with Bench.open(path, addresses={"zr1": f"optoe://{tmp_path}/eeprom"}, only=["zr1"]) as bench:
        assert bench.transponders["zr1"].identify().serial == "CABLE1"
    assert ModuleConnection("i2c", "1").address == "i2c://1"
