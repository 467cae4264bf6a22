"""The bench is brought up to date once per exchange, however many channels are read in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from lumion_hw import Bench
from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge

SMALL = Path(__file__).parents[2] / "data" / "small.yaml"
CHANNELS = {"keysight-n77xx": 8, "keysight-816x": 4, "santec-mpm": 4}


def counted(bench: Bench) -> Counter[int]:
    """Count the updates of each device before light is read, by its position in the list."""
    calls: Counter[int] = Counter()

    def count(place: int, action: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            calls[place] += 1
            action()

        return run

    actions = bench.emulated.world.before_reading
    actions[:] = [count(place, action) for place, action in enumerate(actions)]
    return calls


def small_bench(tmp_path: Path, **devices: dict[str, object]) -> Bench:
    document = yaml.safe_load(SMALL.read_text())
    document["devices"] |= devices
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    return Bench.emulate(path, seed=5)


@pytest.mark.parametrize("kind", CHANNELS)
def test_reading_all_channels_advances_every_device_at_two_instants(kind: str, tmp_path: Path) -> None:
    """One update when averaging begins and one when it ends, not one per channel."""
    with small_bench(tmp_path, meter0={"kind": kind}) as bench:
        for module in bench.transponders.values():
            module.enable()
        bench.clock.sleep(1.0)
        calls = counted(bench)
        readings = bench.meters["meter0"].read_all()
        assert len(readings) == CHANNELS[kind]
        assert calls
        assert set(calls.values()) == {2}


def test_eight_channels_see_the_same_light_as_one_after_the_other() -> None:
    """The cached light of an exchange equals separate readings."""
    with Bench.emulate("lumion-prototype", seed=3) as bench:
        for module in bench.transponders.values():
            module.enable()
        bench.clock.sleep(1.0)
        bench.mesh.program(np.random.default_rng(1).uniform(0.0, 1.0, len(bench.mesh.heater_channels)))
        world = bench.emulated.world
        for _ in range(3):  # while the heaters settle
            alone = [world.meter_w("meter0", channel) for channel in range(1, 9)]
            with world.time:
                together = [world.meter_w("meter0", channel) for channel in range(1, 9)]
            assert together == pytest.approx(alone, rel=1e-12)
            bench.clock.sleep(2e-4)


def test_light_that_changes_within_an_exchange_is_seen() -> None:
    with Bench.emulate("lumion-prototype", seed=3) as bench:
        world, name = bench.emulated.world, bench.wiring.inputs[0].source
        bench.emulated.faults.kill_modules(list(bench.transponders))
        with world.time:
            assert world.mesh_output_w().sum() == 0.0
            world.set_transmitter(name, 1e-3)
            bright_w = world.mesh_output_w().sum()
            assert bright_w > 0.0
            world.set_transmitter(name, 2e-3)
            assert world.mesh_output_w().sum() == pytest.approx(2.0 * bright_w)


def test_a_mainframe_reads_what_its_own_laser_became_by_the_same_message(tmp_path: Path) -> None:
    document = yaml.safe_load(SMALL.read_text())
    document["devices"] |= {
        "meter0": {"kind": "keysight-816x"},
        "tls0": {"kind": "keysight-laser", "mainframe": "meter0", "pin": "1234"},
    }
    document = {key: value for key, value in document.items() if key not in ("servers", "fabric")}
    document["wiring"]["inputs"][0] = {"laser": "tls0", "port": 1, "loss_db": 0.5}
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    with Bench.emulate(path, seed=5, only=("meter0", "tls0")) as bench:
        bench.emulated.faults.kill_modules(["sfp-a", "sfp-b", "sfp-c"])
        peer = bench.emulated.devices["meter0"].connect()
        peer.receive(b":SENS1:CHAN1:POW:UNIT W;:LOCK 0,1234;:SOUR0:POW 1MW;*WAI\n")
        bench.clock.sleep(5.0)
        peer.receive(b":FETC1:CHAN1:POW?;:OUTP0 1;:FETC1:CHAN1:POW?;:READ1:CHAN1:POW?\n")
        bench.clock.sleep(5.0)
        dark_w, _, bright_w = map(float, peer.transmit().decode().split(";"))
        assert bright_w > 10.0 * abs(dark_w)


def test_each_transaction_of_a_module_looks_anew(tmp_path: Path) -> None:
    """Two messages in one write: the second may read a change made by the first."""
    with small_bench(tmp_path) as bench:
        bridge = bench.emulated.devices["sfp-a"]
        assert isinstance(bridge, I2cBridge)
        peer = bridge.connect()
        calls = counted(bench)
        peer.receive(b"S\xa2\x01\x68S\xa3\x02P" * 2)
        bench.clock.sleep(1.0)
        assert len(peer.transmit()) == 4
        assert set(calls.values()) == {2}


def test_between_exchanges_every_look_brings_up_to_date() -> None:
    with Bench.emulate("lumion-prototype", seed=3) as bench:
        calls = counted(bench)
        for _ in range(3):
            bench.emulated.world.mesh_output_w()
        assert set(calls.values()) == {3}
