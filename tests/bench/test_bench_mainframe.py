"""Keysight mainframes in a bench file: their slots, sensors and lasers, as they are emulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import ValidationError

from lumion_hw import Bench
from lumion_hw.bench.file.loader import bench_schema
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.bench.kinds.keysight_mainframe import DEFAULT_LASER, DEFAULT_SENSORS, MAINFRAME_SLOTS, SENSOR_CHANNELS
from lumion_hw.clock import SystemClock
from lumion_hw.emulator.meters import keysight_816x
from lumion_hw.emulator.meters.keysight_816x import DUAL_SENSORS, EmulatedKeysight816x
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.wires.server import EmulatorServer

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"


def document(**devices: dict[str, object]) -> dict:
    data = yaml.safe_load(SMALL.read_text())
    data["devices"] |= devices
    return data


def emulate(tmp_path: Path, data: dict, only: tuple[str, ...]) -> Bench:
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(data))
    return Bench.emulate(path, seed=5, only=only)


def ask(bench: Bench, device: str, line: str) -> str:
    peer = bench.emulated.devices[device].connect()
    peer.receive(line.encode() + b"\n")
    return peer.transmit().decode().strip()


def test_tables_of_bench_and_emulator_agree():
    assert MAINFRAME_SLOTS == keysight_816x.SLOTS
    assert {model: it.channels for model, it in keysight_816x.SENSORS.items()} == SENSOR_CHANNELS
    assert DEFAULT_SENSORS == DUAL_SENSORS
    assert DEFAULT_LASER in keysight_816x.LASERS
    schema = str(bench_schema())
    assert all(f"'{module}'" in schema for module in (*keysight_816x.LASERS, *keysight_816x.SENSORS))


def test_an_8164b_is_a_mainframe_with_the_speeds_of_its_laser(tmp_path):
    laser = {"kind": "keysight-laser", "model": "8164B", "pin": "1234"}
    with emulate(tmp_path, document(tls0=laser), ("tls0",)) as bench:
        assert ask(bench, "tls0", "*OPT?") == "81600B,  ,  ,  ,"
        for speed in (5, 10, 20, 40):
            assert ask(bench, "tls0", f"SOUR0:WAV:SWE:SPE {speed}NM/S;SPE?;:SYST:ERR?").endswith('+0,"No error"')
        low_thz, high_thz = bench.lasers["tls0"].ranges.frequency_thz
        assert (299_792.458 / high_thz, 299_792.458 / low_thz) == pytest.approx((1440.0, 1640.0))


def test_a_laser_of_another_model_is_chosen_by_its_module(tmp_path):
    laser = {"kind": "keysight-laser", "modules": {0: "81600B-130"}}
    with emulate(tmp_path, document(tls0=laser), ("tls0",)) as bench:
        assert ask(bench, "tls0", "SLOT0:OPT?;:WAV? MAX") == "NO CONNECTOR OPTION, #130;+1.37500000E-006"


def test_slots_and_sensors_are_chosen(tmp_path):
    meter = {"kind": "keysight-816x", "model": "8163B", "modules": {1: "81634B", 2: "81635A"}}
    with emulate(tmp_path, document(mf0=meter), ("mf0",)) as bench:
        driver = bench.meters["mf0"]
        assert [driver.slot_and_head(channel) for channel in driver.channels] == [(1, 1), (2, 1), (2, 2)]


def test_channels_are_counted_over_the_sensors_of_all_slots(tmp_path):
    """The tap is on channel 2: the first input of the dual sensor in slot 4."""
    data = document(mf0={"kind": "keysight-816x", "modules": {2: "81634B", 4: "81635A"}})
    meter_light = next(output for output in data["wiring"]["outputs"] if "tap" in output)
    meter_light["tap"] |= {"meter": "mf0", "channel": 2}
    with emulate(tmp_path, data, None) as bench:
        for module in bench.transponders.values():
            module.enable()
        truth_w = bench.emulated.world.meter_w("mf0", 2)
        assert truth_w > 0
        readings = {each.channel: each.power_w for each in bench.meters["mf0"].read_all()}
        assert readings[2] == pytest.approx(truth_w, rel=0.05, abs=1e-10)
        assert max(readings[1] or 0.0, readings[3] or 0.0) < 1e-9


def test_laser_and_sensors_are_one_instrument(tmp_path):
    data = document(
        mf0={"kind": "keysight-816x", "model": "8164B", "serial": "DE1"},
        tls0={"kind": "keysight-laser", "mainframe": "mf0", "pin": "1234"},
    )
    data["wiring"]["inputs"].append({"laser": "tls0", "port": 2, "loss_db": 0.5})
    with emulate(tmp_path, data, ("mf0", "tls0")) as bench:
        assert bench.emulated.devices["mf0"] is bench.emulated.devices["tls0"]
        assert ask(bench, "mf0", "*OPT?") == "81600B,81635A,81635A,  ,"
        bench.meters["mf0"].set_averaging_s(1, 0.2)
        bench.lasers["tls0"].set_power_dbm(5.0)
        bench.lasers["tls0"].enable()
        bench.clock.sleep(5.0)
        assert bench.lasers["tls0"].state().emitting
        assert ask(bench, "mf0", "SENS1:POW:ATIM?;:SOUR0:POW:STAT?") == "+2.00000000E-001;+1"
        assert bench.emulated.world.mesh_output_w().max() > 1e-6, "its light enters the mesh"


def test_a_laser_is_reached_at_the_address_of_its_mainframe(tmp_path):
    clock = SystemClock()
    modules = {0: DEFAULT_LASER, 1: "81635A"}
    device = EmulatedKeysight816x(
        "mf0", clock, np.random.default_rng(1), lambda *_: Light(1e-4), serial="DE1", modules=modules
    )
    with EmulatorServer(clock) as server, server.in_thread():
        data = document(
            mf0={"kind": "keysight-816x", "address": server.add_tcp(device), "averaging_s": 0.001},
            tls0={"kind": "keysight-laser", "mainframe": "mf0"},
        )
        path = tmp_path / "bench.yaml"
        path.write_text(yaml.safe_dump(data))
        with Bench.open(path, only=("mf0", "tls0")) as bench:
            assert bench.meters["mf0"].channels == (1, 2)
            assert bench.lasers["tls0"].identity.serial == "DE1"


MAINFRAME = {"kind": "keysight-816x", "model": "8164B"}


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ({"mf0": MAINFRAME | {"modules": {5: "81635A"}}}, "expected slots from 0 to 4 of an 8164B, found 5"),
        ({"mf0": MAINFRAME | {"modules": {0: "81635A"}}}, "expected a laser, such as 81600B-200, in slot 0"),
        ({"mf0": MAINFRAME | {"modules": {1: "81600B-200"}}}, "expected a power sensor, such as 81635A, in slot 1"),
        ({"mf0": MAINFRAME | {"modules": {0: "81600B-200"}}}, "expected at least one power sensor"),
        ({"mf0": MAINFRAME | {"modules": {}}}, "expected at least one module"),
        ({"tls0": {"kind": "keysight-laser", "modules": {1: "81635A"}}}, "expected a laser in slot 0, found none"),
        (
            {"tls0": {"kind": "keysight-laser", "model": "N7776C", "modules": {0: "81600B-200"}}},
            "expected model 8164A or 8164B for the keys mainframe and modules, found N7776C",
        ),
        (
            {"mf0": MAINFRAME, "tls0": {"kind": "keysight-laser", "mainframe": "mf0", "address": "tcp://h:1"}},
            "expected either the key mainframe or address, found both",
        ),
        ({"tls0": {"kind": "keysight-laser", "mainframe": "mfx"}}, "found 'mfx', which is not in devices"),
        (
            {"mf0": MAINFRAME | {"model": "8163B"}, "tls0": {"kind": "keysight-laser", "mainframe": "mf0"}},
            "found 'mf0', an 8163B, which has no slot 0",
        ),
        (
            {"mf0": MAINFRAME, "tls0": {"kind": "keysight-laser", "model": "8164A", "mainframe": "mf0"}},
            "expected the model of the mainframe, 8164B, found 8164A",
        ),
        (
            {"mf0": MAINFRAME} | {f"tls{n}": {"kind": "keysight-laser", "mainframe": "mf0"} for n in (0, 1)},
            "expected slot 0 of 'mf0' to be used once",
        ),
    ],
)
def test_what_does_not_fit_is_named(devices, said):
    with pytest.raises(ValidationError, match=said):
        BenchModel.model_validate(document(**devices))


def test_a_tap_needs_a_channel_that_is_there():
    data = document(mf0=MAINFRAME | {"modules": {1: "81634B"}})
    meter_light = next(output for output in data["wiring"]["outputs"] if "tap" in output)
    meter_light["tap"] |= {"meter": "mf0", "channel": 2}
    with pytest.raises(ValidationError, match="expected a channel from 1 to 1"):
        BenchModel.model_validate(data)
