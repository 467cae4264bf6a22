"""Instruments beside the mesh in a bench file: the real drivers on the emulated devices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from lumion_hw import Bench
from lumion_hw.acquisition.columns import Reader, State
from lumion_hw.interfaces import LaserSweep, RangeState

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The small bench with a Thorlabs meter on one tap, and a laser."""
    document = yaml.safe_load(SMALL.read_text())
    document["devices"]["pm0"] = {"kind": "thorlabs-pm", "model": "PM100D"}
    document["devices"]["laser0"] = {"kind": "itla-laser"}
    document["devices"]["laser1"] = {"kind": "keysight-laser", "model": "N7776C", "pin": "1234"}
    document["devices"]["laser2"] = {"kind": "santec-tsl", "model": "TSL-570"}
    document["devices"]["mpm0"] = {"kind": "santec-mpm", "serial": "17110001"}
    document["devices"]["pol-a"] = {"kind": "thorlabs-mpc", "model": "MPC320"}
    document["devices"]["pol-b"] = {"kind": "keysight-n7785c"}
    document["devices"]["sop0"] = {"kind": "novoptel-pm1000", "serial": "77", "frequency_thz": 193.4}
    document["wiring"]["inputs"][0]["polarimeter"] = "sop0"
    document["devices"]["mainframe0"] = {"kind": "keysight-816x", "model": "8164B"}
    meter_light = next(output for output in document["wiring"]["outputs"] if "tap" in output)
    meter_light["tap"] = {**meter_light["tap"], "meter": "pm0", "channel": 1}
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_thorlabs_meter_sees_the_light_of_its_tap(file: Path) -> None:
    with Bench.emulate(file, seed=5) as bench:
        (output,) = [path for path in bench.wiring.outputs if path.meter == "pm0"]
        for module in bench.transponders.values():
            module.enable()
        reading = bench.meters["pm0"].read(1)
        assert reading.state is RangeState.OK
        truth_w = bench.emulated.world.meter_w("pm0", output.meter_channel or 0)
        assert reading.power_w == pytest.approx(truth_w, rel=0.05, abs=1e-9)


def test_every_head_of_a_mainframe_is_a_channel(file: Path) -> None:
    with Bench.emulate(file, seed=5) as bench:
        meter = bench.meters["mainframe0"]
        assert meter.channels == (1, 2, 3, 4)
        assert [reading.channel for reading in meter.read_all()] == [1, 2, 3, 4]


def test_a_laser_sweeps_and_logs_its_wavelengths(file: Path) -> None:
    with Bench.emulate(file, seed=5) as bench:
        laser = bench.lasers["laser1"]
        laser.set_power_dbm(5.0)
        laser.enable()
        laser.wait_ready(60.0)
        log = laser.sweep(LaserSweep(1540.0, 1545.0, 0.01, 50.0, log=True))
        assert log.wavelength_nm is not None
        assert len(log.wavelength_nm) == 501
        assert log.wavelength_nm == pytest.approx(np.linspace(1540.0, 1545.0, 501), abs=0.005)


def test_a_laser_is_tuned_and_switched_on(file: Path) -> None:
    with Bench.emulate(file, seed=5) as bench:
        laser = bench.lasers["laser0"]
        laser.set_frequency_thz(194.1)
        laser.set_power_dbm(10.0)
        laser.enable()
        state = laser.wait_ready(60.0)
        assert state.frequency_thz == pytest.approx(194.1, abs=1e-6)
        assert state.measured_power_dbm == pytest.approx(10.0, abs=0.2)
        laser.disable()
        assert not laser.state().emitting


def test_a_laser_that_is_off_is_logged_as_dark_and_one_that_is_on_with_its_settings(file: Path) -> None:
    with Bench.emulate(file, seed=5) as bench:
        laser = bench.lasers["laser0"]
        laser.set_frequency_thz(194.1)
        laser.set_power_dbm(10.0)
        reader = Reader(bench, ["laser0"])
        assert [(column.name, column.unit) for column in reader.columns] == [
            ("laser0.frequency_thz", "THz"),
            ("laser0.power_dbm", "dBm"),
            ("laser0.measured_power_dbm", "dBm"),
        ]
        frequency, power, measured = reader.read()
        assert frequency.number == pytest.approx(194.1, abs=1e-6)
        assert (power.state, measured.state) == (State.DARK, State.DARK)
        laser.enable()
        laser.wait_ready(60.0)
        _, power, measured = reader.read()
        assert power.number == pytest.approx(10.0, abs=0.01)
        assert measured.number == pytest.approx(10.0, abs=0.2)


def test_santec_instruments_are_emulated_too(file: Path) -> None:
    with Bench.emulate(file, seed=5) as bench:
        assert [reading.channel for reading in bench.meters["mpm0"].read_all()] == [1, 2, 3, 4]
        laser = bench.lasers["laser2"]
        laser.set_frequency_thz(194.1)
        laser.set_power_dbm(5.0)
        laser.enable()
        state = laser.wait_ready(60.0)
        assert state.measured_power_dbm == pytest.approx(5.0, abs=0.8)
        assert laser.sweep(LaserSweep(1540.0, 1545.0, 0.1, 50.0)).wavelength_nm is None


def test_paddles_turn_the_light_and_the_polarimeter_of_the_input_sees_it(file: Path) -> None:
    with Bench.emulate(file, seed=5) as bench:
        bench.transponders["sfp-a"].enable()
        bench.clock.sleep(1.0)
        paddles, polarimeter = bench.polarization["pol-a"], bench.polarimeters["sop0"]
        paddles.set(np.array([10.0, 20.0, 30.0]))
        before = polarimeter.read()
        truth_w = bench.emulated.world.polarimeter_w("sop0")
        assert before.power_w == pytest.approx(truth_w[0], rel=0.06)
        assert before.dop == pytest.approx(1.0, abs=0.02)
        paddles.set(np.array([10.0, 60.0, 30.0]))
        assert np.arccos(np.clip(polarimeter.read().stokes @ before.stokes, -1, 1)) > 0.1


def test_a_stabilizer_takes_steps_for_factors(file: Path) -> None:
    with Bench.emulate(file, seed=5) as bench:
        for name in ("sfp-a", "sfp-c"):
            bench.transponders[name].disable()
        bench.clock.sleep(1.0)
        box, world = bench.polarization_optimizers["pol-b"], bench.emulated.world
        before = float(world.mesh_output_w().sum())
        box.start()
        for _ in range(100):
            box.improve(min(100.0, 50.0 * float(world.mesh_output_w().sum()) / before))
            bench.clock.sleep(0.05)
        box.stop()
        assert float(world.mesh_output_w().sum()) < 0.3 * before
