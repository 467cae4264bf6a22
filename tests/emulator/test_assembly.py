from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.emulated import device_spec, emulated_bench
from lumion_hw.bench.file.known_kinds import kind_named
from lumion_hw.bench.file.loader import load_bench
from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.assembly import DeviceSpec, EmulatedBench
from lumion_hw.errors import ConfigError, LinkError

MODEL = load_bench(Path(__file__).parents[1] / "data" / "small.yaml")


def bench(seed: int = 3) -> EmulatedBench:
    return emulated_bench(MODEL, VirtualClock(), seed)


def lit(emulated: EmulatedBench, *modules: str) -> np.ndarray:
    """Launch 1 mW from the modules and return the settled light that leaves the mesh."""
    emulated.clock.sleep(0.01)
    for name in ("sfp-a", "sfp-b", "sfp-c"):
        emulated.world.set_transmitter(name, 1e-3 if name in modules else 0.0)
    return emulated.world.mesh_output_w()


# One seed ------------------------------------------------------------------------------------------------------------


def test_the_same_seed_is_the_same_world_down_to_the_noise() -> None:
    one, same = bench(), bench()
    np.testing.assert_array_equal(lit(one, "sfp-a"), lit(same, "sfp-a"))
    ports = np.arange(16)
    np.testing.assert_array_equal(one.world.monitor_ma(ports, 1.0, 4), same.world.monitor_ma(ports, 1.0, 4))


def spec_of(name: str, kind: str, **keys: object) -> DeviceSpec:
    """Return the emulation spec of a device with these keys in its bench file."""
    return device_spec(name, kind_named(kind).model(kind=kind, **keys))


def test_another_seed_is_another_world() -> None:
    assert not np.allclose(lit(bench(3), "sfp-a"), lit(bench(4), "sfp-a"), rtol=0.1)


def test_one_more_device_does_not_change_the_world() -> None:
    spec = bench().spec
    larger = dataclasses.replace(spec, devices=(spec_of("meter9", "keysight-n77xx"), *spec.devices))
    one, other = EmulatedBench(spec, VirtualClock(), 3), EmulatedBench(larger, VirtualClock(), 3)
    np.testing.assert_array_equal(one.world.truth.passive_phase, other.world.truth.passive_phase)
    np.testing.assert_array_equal(lit(one, "sfp-b"), lit(other, "sfp-b"))


def test_noise_does_not_repeat_between_readings() -> None:
    emulated = bench()
    lit(emulated, "sfp-a")
    ports = np.arange(16)
    assert not np.array_equal(emulated.world.monitor_ma(ports, 1.0, 1), emulated.world.monitor_ma(ports, 1.0, 1))


def test_a_board_that_is_late_sees_the_heat_of_each_instant_as_one_in_time() -> None:
    """The heaters are half settled at each reading, so their earlier setting still has an effect."""
    punctual, late = bench(), bench()
    ports = np.arange(16)
    tables = np.random.default_rng(7).uniform(0.0, 1.8, (6, 2 * punctual.world.mesh.n_pucs))
    seen: dict[EmulatedBench, list[np.ndarray]] = {punctual: [], late: []}
    for emulated, looks in seen.items():
        lit(emulated, "sfp-a")
        first_s = emulated.clock.now()
        if emulated is late:
            emulated.clock.sleep(0.05)
        for number, table in enumerate(tables):
            driven_s, looked_s = first_s + 3e-4 * number, first_s + 3e-4 * number + 1.5e-4
            emulated.clock.sleep(max(driven_s - emulated.clock.now(), 0.0))
            emulated.world.drive_heaters(table, driven_s)
            emulated.clock.sleep(max(looked_s - emulated.clock.now(), 0.0))
            looks.append(emulated.world.monitor_ma(ports, 0.8, 1, looked_s))
    np.testing.assert_allclose(seen[late], seen[punctual], rtol=1e-9)
    assert not np.allclose(seen[late][-1], late.world.monitor_ma(ports, 0.8, 1), rtol=0.05), "heat goes on by itself"


# Devices -------------------------------------------------------------------------------------------------------------


def test_every_device_of_the_bench_file_is_there() -> None:
    assert set(bench().devices) == set(MODEL.devices)


def test_an_unknown_device_has_no_link() -> None:
    with pytest.raises(ConfigError, match="there is no device sfp-z"):
        bench().link("sfp-z")


def test_a_kind_that_cannot_be_emulated_is_named() -> None:
    spec = bench().spec
    with pytest.raises(ConfigError, match="does not support devices of kind quantum-oracle") as caught:
        EmulatedBench(dataclasses.replace(spec, devices=(DeviceSpec("q1", "quantum-oracle", None),)), VirtualClock(), 0)
    assert caught.value.device == "q1"


def test_a_heater_is_driven_through_its_own_channel() -> None:
    # The channel map belongs to the bench: with two PUCs' channels swapped, the same table heats the other PUC.
    spec = bench().spec
    channels = list(spec.heater_channels)
    channels[0], channels[10] = channels[10], channels[0]
    swapped = EmulatedBench(dataclasses.replace(spec, heater_channels=tuple(channels)), VirtualClock(), 3)
    straight = EmulatedBench(spec, VirtualClock(), 3)
    for emulated, heater in ((straight, 0), (swapped, 10)):
        with _bench_on(emulated) as opened:
            table = np.zeros(opened.mesh.controller.info.n_heaters)
            table[0] = 1.0
            opened.mesh.controller.program(table)
            opened.clock.sleep(0.01)
            cells = emulated.world.cells()
        heated = np.array([cells.phase_upper - emulated.world.truth.passive_phase, cells.phase_lower]).T.ravel()
        assert int(np.argmax(heated)) == heater
        assert heated.max() > 1.0


def _bench_on(emulated: EmulatedBench) -> Bench:
    return Bench(MODEL, lambda name, _device: emulated.link(name), emulated.clock, emulated)


# Scripted faults -----------------------------------------------------------------------------------------------------


def test_a_stuck_heater_shows_in_the_light_and_a_healthy_neighbour_does_not() -> None:
    emulated = bench()
    before = lit(emulated, "sfp-a", "sfp-b", "sfp-c")
    emulated.faults.stick_heater(4, 1, 1.2)
    emulated.clock.sleep(0.01)
    stuck = emulated.world.mesh_output_w()
    assert np.abs(stuck / before - 1).max() > 0.1
    emulated.world.drive_heaters(np.where(np.arange(30) == 9, 0.4, 0.0), emulated.clock.now())
    emulated.clock.sleep(0.01)
    np.testing.assert_allclose(emulated.world.mesh_output_w(), stuck, rtol=1e-9)
    emulated.world.drive_heaters(np.where(np.arange(30) == 8, 0.4, 0.0), emulated.clock.now())
    emulated.clock.sleep(0.01)
    assert np.abs(emulated.world.mesh_output_w() / stuck - 1).max() > 0.01


def test_a_dead_port_lets_nothing_in() -> None:
    emulated = bench()
    before = lit(emulated, "sfp-b")
    emulated.faults.kill_port(6)
    assert emulated.world.mesh_output_w().max() < 1e-7 * before.max()
    assert lit(emulated, "sfp-a").max() > 1e-6


def test_a_dead_port_lets_nothing_out_but_its_own_monitor_still_sees() -> None:
    emulated = bench()
    path = MODEL.to_wiring().output_of("sfp-a")
    before = lit(emulated, "sfp-a", "sfp-b", "sfp-c")
    received = emulated.world.received_w("sfp-a")
    emulated.faults.kill_port(path.port)
    assert emulated.world.received_w("sfp-a") < 1e-7 * received
    assert emulated.world.meter_w("meter0", 1) < 1e-7 * received
    assert emulated.world.mesh_output_w()[path.port] == pytest.approx(before[path.port])


def test_a_moved_fibre_takes_aligned_light_away_until_it_is_aligned_again() -> None:
    emulated = bench()
    drives = np.linspace(0, 4000, 41)
    coupled = [_coupled_at(emulated, drive) for drive in drives]
    bright = _coupled_at(emulated, drives[int(np.argmax(coupled))])
    emulated.faults.turn_polarization("sfp-a")
    assert emulated.world.mesh_output_w().sum() < 0.5 * bright
    emulated.faults.turn_polarization("sfp-b")  # another module has another fibre
    assert emulated.world.mesh_output_w().sum() < 0.5 * bright
    emulated.faults.turn_polarization("sfp-a")  # two turns to the orthogonal state restore it
    assert emulated.world.mesh_output_w().sum() == pytest.approx(bright)


def _coupled_at(emulated: EmulatedBench, drive_mv: float) -> float:
    host = emulated.devices["pol-a"].connect()
    host.receive(b"V2,%d\r\n" % round(drive_mv))
    emulated.clock.sleep(0.1)
    assert host.transmit().endswith(b"\r\nDone\r\n")
    host.close()
    return float(lit(emulated, "sfp-a").sum())


def test_modules_of_a_dead_host_go_dark_and_do_not_answer() -> None:
    with Bench.emulate(Path(__file__).parents[1] / "data" / "small.yaml", seed=3) as opened:
        for module in opened.transponders.values():
            module.enable()
        opened.clock.sleep(1.0)
        world = opened.emulated.world
        all_three = world.mesh_output_w().sum()
        opened.emulated.faults.kill_modules(["sfp-b"])
        assert 0.0 < world.mesh_output_w().sum() < all_three
        with pytest.raises(LinkError, match="sfp-b"):
            opened.transponders["sfp-b"].monitors()
        opened.emulated.faults.kill_modules(["sfp-a", "sfp-c"])
        assert world.mesh_output_w().sum() == 0.0


def test_a_host_that_comes_back_has_its_module_start_up() -> None:
    with Bench.emulate(Path(__file__).parents[1] / "data" / "small.yaml", seed=3) as opened:
        opened.emulated.faults.kill_modules(["sfp-b"])
        opened.emulated.faults.revive_modules(["sfp-b"])
        opened.clock.sleep(5.0)
        opened.transponders["sfp-b"].enable()
        opened.clock.sleep(1.0)
        assert opened.emulated.world.mesh_output_w().sum() > 0.0


def test_devices_of_the_bench_are_at_hand_for_faults_of_their_own() -> None:
    emulated = bench()
    assert emulated.faults.board("mesh0") is emulated.devices["mesh0"]
    assert emulated.faults.device("pol-a") is emulated.devices["pol-a"]


# Instruments of other manufacturers --------------------------------------------------------------------------------


def with_laser(kind: str) -> EmulatedBench:
    """Return the bench with a laser in place of the module sfp-a."""
    spec = bench().spec
    inputs = tuple(
        dataclasses.replace(path, transponder="laser0") if path.transponder == "sfp-a" else path
        for path in spec.wiring.inputs
    )
    wiring = dataclasses.replace(spec.wiring, inputs=inputs)
    devices = (*(each for each in spec.devices if each.name != "sfp-a"), spec_of("laser0", kind))
    return EmulatedBench(dataclasses.replace(spec, wiring=wiring, devices=devices), VirtualClock(), 3)


@pytest.mark.parametrize(
    ("kind", "switch_on"),
    [
        ("itla-laser", bytes.fromhex("81320008")),
        ("keysight-laser", b"LOCK 0,1234;:SOUR0:WAV 1551NM;POW:STAT 1\n"),
        ("santec-tsl", b"WAV 1551;:POW:STAT 1\n"),
    ],
)
def test_a_laser_is_a_source_of_the_world_at_its_own_wavelength(kind: str, switch_on: bytes) -> None:
    emulated = with_laser(kind)
    for name in ("sfp-b", "sfp-c"):
        emulated.world.set_transmitter(name, 0.0)
    assert emulated.world.mesh_output_w().sum() == 0.0
    link = emulated.link("laser0")
    link.open(emulated.clock.now() + 1.0)
    link.write(switch_on, emulated.clock.now() + 1.0)
    emulated.clock.sleep(10.0)
    assert emulated.world.mesh_output_w().sum() > 1e-5
    light = emulated.devices["laser0"].light()
    index = [path.transponder for path in emulated.world.wiring.inputs].index("laser0")
    assert emulated.world.chains[index].frequency_hz == pytest.approx(299_792_458e9 / light.wavelength_nm)


@pytest.mark.parametrize(
    ("kind", "model", "channel", "ask"),
    [
        ("thorlabs-pm", "PM100D", 1, b"MEAS:POW?\n"),
        ("keysight-816x", "8163B", 2, b"SENS1:CHAN2:POW:UNIT 1;:READ1:CHAN2:POW?\n"),
        ("keysight-n77xx", "N7744A", 2, b"SENS2:POW:UNIT 1;:READ2:POW?\n"),
    ],
)
def test_a_meter_of_any_make_sees_its_tap(kind: str, model: str, channel: int, ask: bytes) -> None:
    spec = bench().spec
    outputs = (
        dataclasses.replace(spec.wiring.outputs[0], meter="pm9", meter_channel=channel, tap_fraction=0.5),
        *spec.wiring.outputs[1:],
    )
    wiring = dataclasses.replace(spec.wiring, outputs=outputs)
    devices = (*spec.devices, spec_of("pm9", kind, model=model))
    emulated = EmulatedBench(dataclasses.replace(spec, wiring=wiring, devices=devices), VirtualClock(), 3)
    lit(emulated, "sfp-a", "sfp-b", "sfp-c")
    truth_w = emulated.world.meter_w("pm9", channel)
    link = emulated.link("pm9")
    link.open(emulated.clock.now() + 1.0)
    link.write(ask, emulated.clock.now() + 1.0)
    reading_w = float(link.read(emulated.clock.now() + 5.0))
    assert truth_w > 0
    assert reading_w == pytest.approx(truth_w, rel=0.06, abs=1e-9)


def test_a_santec_meter_sees_its_taps() -> None:
    spec = bench().spec
    outputs = (
        dataclasses.replace(spec.wiring.outputs[0], meter="pm9", meter_channel=3, tap_fraction=0.5),
        *spec.wiring.outputs[1:],
    )
    wiring = dataclasses.replace(spec.wiring, outputs=outputs)
    devices = (*spec.devices, spec_of("pm9", "santec-mpm"))
    emulated = EmulatedBench(dataclasses.replace(spec, wiring=wiring, devices=devices), VirtualClock(), 3)
    lit(emulated, "sfp-a", "sfp-b", "sfp-c")
    link = emulated.link("pm9")
    link.open(emulated.clock.now() + 1.0)
    link.write(b"UNIT 1\r\nREAD? 0\r\n", emulated.clock.now() + 1.0)
    values_mw = [float(field) for field in link.read(emulated.clock.now() + 5.0).split(b",")]
    assert values_mw[2] == pytest.approx(1e3 * emulated.world.meter_w("pm9", 3), rel=0.06, abs=1e-6)


def test_a_bench_of_a_meter_alone_is_valid_and_has_no_mesh(tmp_path: Path) -> None:
    text = "version: 1\nname: alone\ndevices:\n  meter0: {kind: keysight-n77xx}\n"
    file = tmp_path / "alone.yaml"
    file.write_text(text)
    with Bench.emulate(file) as bench:
        assert bench.meters["meter0"].serial
        assert bench.emulated.world.meter_w("meter0", 1) == 0.0
        with pytest.raises(ConfigError, match="bench alone has no mesh"):
            _ = bench.mesh
    wired = text + "wiring:\n  outputs:\n    - {port: 4, tap: {meter: meter0, channel: 4}}\n"
    with pytest.raises(ConfigError, match="expected a section mesh"):
        load_bench("wired.yaml", text=wired)


def test_a_meter_straight_on_a_port_gets_all_the_light_of_it() -> None:
    """In addition to a tap of a tenth on the same port: ten times as much light, and no transponder."""
    text = (Path(__file__).parents[1] / "data" / "small.yaml").read_text()
    line = "- {port: 13, transponder: sfp-c, loss_db: 0.3, tap: {meter: meter0, channel: 3, fraction: 0.1}}"
    assert line in text
    seen_w = []
    for given in (line, "- {port: 13, loss_db: 0.3, tap: {meter: meter0, channel: 3}}"):
        changed = text.replace(line, given)
        if "sfp-c" not in given:
            changed = changed.replace("  - {name: c, nics: [sfp-c]}\n", "").replace("spares: [c]", "spares: []")
        model = load_bench("small.yaml", text=changed)
        seen_w.append(emulated_bench(model, VirtualClock(), 7).world.meter_w("meter0", 3))
    assert seen_w[0] > 0.0
    assert seen_w[1] == pytest.approx(10.0 * seen_w[0])
