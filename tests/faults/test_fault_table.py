"""Every fault of the table, on every kind of device, while the device is open through its driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.file.known_kinds import builtin_kinds
from lumion_hw.bench.file.loader import load_bench
from lumion_hw.emulator.faults.bench_faults import BENCH_FAULTS, BenchFaults
from lumion_hw.emulator.faults.device_faults import EVERY_DEVICE
from lumion_hw.emulator.faults.fault_table import BENCH
from lumion_hw.emulator.transponders.cmis.faults import FAULTS as MODULE_FAULTS
from lumion_hw.emulator.transponders.qsfp.faults import FAULTS as QSFP_FAULTS
from lumion_hw.errors import ConfigError, DeviceError, LimitError, LinkError, LumionError
from lumion_hw.interfaces import LaserSweep

QONTROL = Path(__file__).parents[1] / "data" / "small_qontrol.yaml"
FILE = Path(__file__).parents[1] / "data" / "every_kind.yaml"
KINDS = [kind.name for kind in builtin_kinds()]
SINGLE_FAULTS = [(kind.name, fault) for kind in builtin_kinds() for fault in kind.faults()]
FAULTS = [*((BENCH, fault) for fault in BENCH_FAULTS), *((KINDS[0], fault) for fault in EVERY_DEVICE), *SINGLE_FAULTS]
"""What has each fault, and the fault."""

ASK: dict[str, Callable] = {
    "lumion-mesh": lambda driver: driver.read_back(),
    "qontrol-q8": lambda driver: driver.read_back(),
    "smartlight-line-server": lambda driver: driver.program_states({0: "bar"}),
    "sfp-8472": lambda driver: driver.status(),
    "qsfp-8636": lambda driver: driver.status(),
    "cmis": lambda driver: driver.module_state(),
    "keysight-n77xx": lambda driver: driver.read(1),
    "keysight-816x": lambda driver: driver.read(1),
    "thorlabs-pm": lambda driver: driver.read(1),
    "santec-mpm": lambda driver: driver.read(1),
    "itla-laser": lambda driver: driver.state(),
    "keysight-laser": lambda driver: driver.state(),
    "santec-tsl": lambda driver: driver.state(),
    "oz-epc04": lambda driver: driver.read(),
    "thorlabs-mpc": lambda driver: driver.read(),
    "keysight-n7785c": lambda driver: driver.stop(),
    "novoptel-pm1000": lambda driver: driver.set_frequency_thz(193.4),
    "keysight-n776x": lambda driver: driver.settings(1),
    "oz-da100": lambda driver: driver.settings(1),
    "polatis": lambda driver: driver.connections(),
    "amonics-aedfa": lambda driver: driver.state(),
    "yokogawa-aq6370": lambda driver: driver.settings(),
    "arroyo-tec": lambda driver: driver.state(),
}
"""A question to each kind of device that needs an answer over the wire."""
LASERS = {"itla-laser", "keysight-laser", "santec-tsl"}


def opened(*devices: str) -> Bench:
    return Bench.emulate(FILE, seed=1, only=devices or None)


def driver_of(bench: Bench, name: str):
    return bench._devices[name]


NAMES = {device.kind: name for name, device in load_bench(FILE).devices.items()}


def outcome(action: Callable[[], object]) -> str:
    """What a call came to: ``ok``, or the kind of its error."""
    try:
        action()
    except LumionError as error:
        return type(error).__name__
    return "ok"


def light_w(bench: Bench) -> float:
    """Light in the mesh, of all sources."""
    return float(np.sum(bench.emulated.world.mesh_output_w()))


def test_the_bench_has_a_device_of_every_kind() -> None:
    assert set(NAMES) == set(KINDS) == set(ASK)


# Supply and cable -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["no_power", "no_cable"])
def test_supply_and_cable_of_every_device(kind: str, fault: str) -> None:
    name = NAMES[kind]
    with opened(name) as bench:
        driver, faults = driver_of(bench, name), bench.emulated.faults
        dark_w = light_w(bench)
        if kind in LASERS:
            driver.enable()
            driver.wait_ready(60.0)
            lit_w = light_w(bench) - dark_w
            assert lit_w > 1e-7
        ASK[kind](driver)
        faults.inject(name, fault)
        with pytest.raises(LinkError):
            ASK[kind](driver)
        if kind in LASERS:
            left = (light_w(bench) - dark_w) / lit_w
            assert abs(left) < 0.05 if fault == "no_power" else left == pytest.approx(1.0, abs=0.1)
        with pytest.raises(LinkError):
            bench.emulated.link(name).open(0.0)
        faults.end(name, fault)
        bench.emulated.link(name).open(0.0)


@pytest.mark.parametrize("kind", ["keysight-laser", "santec-tsl"])
def test_a_laser_dies_in_the_middle_of_its_sweep(kind: str) -> None:
    name = NAMES[kind]
    with opened(name) as bench:
        laser, faults = driver_of(bench, name), bench.emulated.faults
        dark_w = light_w(bench)
        laser.enable()
        laser.wait_ready(60.0)
        lit_w = light_w(bench) - dark_w
        faults.after(3.0, lambda: faults.inject(name, "no_power"))
        with pytest.raises(LinkError):
            laser.sweep(LaserSweep(1500.0, 1515.0, 0.1, 1.0))
        assert abs(light_w(bench) - dark_w) < 0.05 * lit_w


@pytest.mark.parametrize("fault", ["no_power", "no_cable"])
def test_a_meter_dies_in_the_middle_of_its_log(fault: str) -> None:
    name = NAMES["keysight-n77xx"]
    with opened(name) as bench:
        meter, faults = driver_of(bench, name), bench.emulated.faults
        faults.after(2.0, lambda: faults.inject(name, fault))
        with pytest.raises(LinkError):
            meter.functions.log([1], 1000, 0.01)


# Faults of single kinds -----------------------------------------------------------------------------------------------


def board_faults(driver) -> object:
    return len(driver.faults())


def heated(driver) -> float:
    return outcome(lambda: driver.program(np.full(driver.info.n_heaters, 0.5)))


def chip_c(driver) -> float | None:
    samples = driver.telemetry(0.05)
    try:
        return round(next(samples).chip_temperature_c)
    finally:
        samples.close()


def module_answers(driver) -> object:
    return outcome(driver.status)


def transmits(driver) -> object:
    return driver.monitors().tx_power_dbm is not None and driver.monitors().tx_power_dbm > -30.0


METERS_THAT_ZERO = [(kind, "zero_fails") for kind in ("keysight-n77xx", "keysight-816x", "santec-mpm", "thorlabs-pm")]
SINGLE: dict[tuple[str, str], tuple[dict, Callable]] = {
    ("lumion-mesh", "trip"): ({"source": 5}, board_faults),
    ("lumion-mesh", "hot_chip"): ({"temperature_c": 140.0}, chip_c),
    ("lumion-mesh", "hang"): ({}, lambda driver: outcome(driver.read_back)),
    ("lumion-mesh", "deaf"): ({}, lambda driver: outcome(driver.read_back)),
    ("lumion-mesh", "restart"): ({}, lambda driver: (outcome(driver.read_back), driver.boot_id)),
    ("lumion-mesh", "lose_frames"): ({"count": 50}, lambda driver: outcome(driver.read_back)),
    ("lumion-mesh", "corrupt_bytes"): ({"rate": 0.5}, lambda driver: outcome(driver.read_back)),
    ("qontrol-q8", "trip"): ({"channel": 3}, lambda driver: len(driver.faults())),
    ("qontrol-q8", "open_heater"): ({"channel": 3}, heated),
    ("qontrol-q8", "short_heater"): ({"channel": 3}, heated),
    ("qontrol-q8", "late_reply"): ({"delay_s": 30.0}, lambda driver: outcome(driver.read_back)),
    ("qontrol-q8", "module_out"): ({"index": 1}, lambda driver: outcome(driver.read_back)),
    ("qontrol-q8", "mute"): ({}, lambda driver: outcome(driver.read_back)),
    ("sfp-8472", "module_dead"): ({}, module_answers),
    ("sfp-8472", "bus_stuck"): ({}, module_answers),
    ("sfp-8472", "laser_broken"): ({}, lambda driver: driver.status().tx_fault),
    ("sfp-8472", "tx_disable_pin"): ({}, transmits),
    ("qsfp-8636", "module_dead"): ({}, module_answers),
    ("qsfp-8636", "bus_stuck"): ({}, module_answers),
    ("qsfp-8636", "low_power_pin"): ({}, lambda driver: driver.monitors().tx_power_dbm is None),
    ("cmis", "module_dead"): ({}, module_answers),
    ("cmis", "bus_stuck"): ({}, module_answers),
    ("cmis", "low_power_pin"): ({}, lambda driver: driver.module_state()),
    ("cmis", "no_host_signal"): ({}, transmits),
    ("cmis", "module_reset"): ({}, lambda driver: outcome(driver.module_state)),
    ("itla-laser", "disable_pin"): ({}, lambda driver: driver.state().emitting),
    **dict.fromkeys(METERS_THAT_ZERO, ({}, lambda driver: outcome(driver.zero))),
    ("thorlabs-pm", "no_sensor"): ({}, lambda driver: outcome(lambda: driver.read(1))),
    ("amonics-aedfa", "interlock"): ({}, lambda driver: outcome(driver.enable)),
    ("arroyo-tec", "no_sensor"): ({}, lambda driver: driver.state().faults),
    ("arroyo-tec", "interlock"): ({}, lambda driver: driver.state().faults),
}
"""What each fault takes here, and where its effect is seen."""


def single_faults() -> list[tuple[str, str]]:
    """Return the faults of one kind; those that a module's own panel starts have tests of their own."""
    panels = {"cmis": MODULE_FAULTS, "qsfp-8636": QSFP_FAULTS}
    return [(kind, fault.name) for kind, fault in SINGLE_FAULTS if fault.name not in panels.get(kind, ())]


@pytest.mark.parametrize(("kind", "fault"), single_faults())
def test_faults_of_one_kind_are_seen_by_its_driver(kind: str, fault: str) -> None:
    name, file = (NAMES[kind], FILE) if kind != "qontrol-q8" else ("mesh0", QONTROL)
    arguments, look = SINGLE[kind, fault]
    only = [name] if file == FILE else [name, "meter0"]  # which are its monitors
    with Bench.emulate(file, seed=1, only=only) as bench:
        driver, faults = driver_of(bench, name), bench.emulated.faults
        if fault == "low_power_pin":  # it was asserted from the start; a module that a driver wakes ignores it
            faults.end(name, fault)
            bench.clock.sleep(60.0)
        elif kind in LASERS or kind in ("cmis", "sfp-8472", "qsfp-8636"):
            driver.enable()
            bench.clock.sleep(90.0)
        elif fault == "zero_fails":  # in the dark
            faults.inject("sfp-a", "module_dead")
        before = look(driver)
        faults.inject(name, fault, **arguments)
        bench.clock.sleep(0.2)
        assert look(driver) != before
        if any(each.name == fault and each.end is not None for each in faults.list_faults(name)):
            faults.end(name, fault, **arguments)


@pytest.mark.parametrize(("fault", "words"), [("no_sensor", "sensor open"), ("interlock", "interlock")])
def test_what_ends_a_temperature_lock_is_named(fault: str, words: str) -> None:
    """By whoever asks, waits for the lock, or switches on: the operator has to know which plug to look at."""
    name = NAMES["arroyo-tec"]
    with opened(name) as bench:
        controller = driver_of(bench, name)
        assert controller.wait_locked(60.0).losses == 0
        bench.emulated.faults.inject(name, fault)
        bench.clock.sleep(0.2)
        state = controller.state()
        assert (state.enabled, state.locked, state.losses) == (False, False, 1)
        assert words in " ".join(state.faults)
        assert (state.temperature_c is None) is (fault == "no_sensor")
        for refused in (controller.enable, lambda: controller.wait_locked(1.0)):
            with pytest.raises(DeviceError) as caught:
                refused()
            assert words in str(caught.value) or caught.value.code in (402, 403), refused
        bench.emulated.faults.end(name, fault)
        assert not controller.state().enabled, "it stays off until somebody switches it on"
        controller.enable()
        assert controller.wait_locked(120.0).locked


def test_faults_of_a_cmis_module_come_and_go_by_name() -> None:
    """The effect of each is tested beside the module, in tests/emulator/transponders/test_cmis_faults.py."""
    with opened("zr-a") as bench:
        faults, panel = bench.emulated.faults, bench.emulated.transponders["zr-a"].faults
        listed = {fault.name for fault in faults.list_faults("zr-a")}
        assert listed >= set(MODULE_FAULTS) - {"unplug"}
        for name in sorted(set(MODULE_FAULTS) - {"unplug"}):
            faults.inject("zr-a", name)
            assert name in panel.active
            faults.end("zr-a", name)
            assert name not in panel.active


# Faults of the bench --------------------------------------------------------------------------------------------------


def leaving(bench: Bench) -> object:
    return tuple(np.round(bench.emulated.world.mesh_output_w() * 1e12))


def read_light(bench: Bench) -> object:
    ports = np.array(bench.emulated.spec.monitor_ports)
    return tuple(np.round(np.log10(np.abs(bench.emulated.world.monitor_ma(ports, 0.8, 64)) + 1e-5)))


# This bench has no fibre that is moved by hand: tests/emulator/optics/test_moved_fibres.py.
BY_HAND = {"plug": ({"device": "tls-a", "port": 1}, None)}
ON_BENCH: dict[str, tuple[dict, Callable]] = {
    "kill_modules": ({"modules": ["sfp-a", "zr-a"]}, lambda bench: outcome(driver_of(bench, "zr-a").status)),
    "revive_modules": ({"modules": ["sfp-a", "zr-a"]}, lambda bench: outcome(driver_of(bench, "zr-a").status)),
    "stick_heater": ({"puc": 0, "arm": 1, "current_ma": 1.0}, leaving),
    "weaken_heater": ({"puc": 1, "arm": 0, "factor": 2.0}, leaving),
    "swap_channels": ({"heater": 0, "other_heater": 3}, leaving),
    "share_channel": ({"heater": 1, "other_heater": 4}, leaving),
    "unbalance": ({"puc": 0, "common_rad": 0.3}, leaving),
    "hop_mode": ({"port": 5, "shift_hz": 1e12}, leaving),
    "turn_polarization": ({"transponder": "sfp-a"}, leaving),
    "drift_power": ({"port": 5, "trajectory_db": lambda _: -3.0}, leaving),
    "drift_temperature": ({"trajectory_k": lambda _: 2.0}, leaving),
    "walk_resistances": ({"per_root_s": 0.05}, leaving),
    "kill_monitor": ({"port": 0}, read_light),
    "scale_monitor": ({"port": 4, "factor": 1e5}, read_light),
    "kill_port": ({"port": 5}, leaving),
}


def test_faults_of_the_bench_act_on_an_open_bench() -> None:
    assert set(ON_BENCH) | set(BY_HAND) == {fault.name for fault in BENCH_FAULTS}
    with opened("mesh0", "sfp-a", "zr-a") as bench:
        driver_of(bench, "sfp-a").enable()
        bench.clock.sleep(5.0)
        heat_ma = np.linspace(0.2, 1.5, 2 * bench.emulated.world.mesh.n_pucs)
        mesh = driver_of(bench, "mesh0")

        def settled(look: Callable) -> object:
            mesh.program(heat_ma)
            bench.clock.sleep(1.0)
            return look(bench)

        unseen = []
        for name, (arguments, look) in ON_BENCH.items():
            before = settled(look)
            bench.emulated.faults.inject(BENCH, name, **arguments)
            if name == "revive_modules":
                bench.clock.sleep(2.0)
                driver_of(bench, "sfp-a").enable()
            if settled(look) == before:
                unseen.append(name)
        assert not unseen


# Wrong arguments ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def faults() -> Iterator[BenchFaults]:
    with opened("pol-a") as bench:
        yield bench.emulated.faults


@pytest.mark.parametrize(("kind", "fault"), [(kind, fault) for kind, fault in FAULTS if fault.arguments])
def test_wrong_arguments_are_told(kind: str, fault, faults: BenchFaults) -> None:
    """Missing, unknown, of the wrong kind, not finite, out of range: each message says what may be given."""
    name = BENCH if kind == BENCH else NAMES[kind]
    good = (
        (ON_BENCH | BY_HAND)[fault.name][0]
        if kind == BENCH
        else SINGLE.get((kind, fault.name), ({"strength": 1.0}, None))[0]
    )
    for argument in fault.arguments:
        bad = [object(), None if argument.default is None else "x"]
        if argument.accepts is None:
            bad += [float("nan"), float("inf"), "much", True]
            with pytest.raises(LimitError, match=argument.name):
                faults.inject(name, fault.name, **good | {argument.name: 1e30})
            with pytest.raises(LimitError, match=argument.name):
                faults.inject(name, fault.name, **good | {argument.name: -1e30})
        for value in bad:
            with pytest.raises(ConfigError, match=argument.name):
                faults.inject(name, fault.name, **good | {argument.name: value})
        if argument.default is None:
            with pytest.raises(ConfigError, match=f"needs {argument.name}"):
                faults.inject(name, fault.name, **{key: value for key, value in good.items() if key != argument.name})
    with pytest.raises(ConfigError, match="no argument colour"):
        faults.inject(name, fault.name, **good, colour=1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda faults: faults.inject("sfp-b", "no_power"), "no device sfp-b.*Do you mean sfp-a.*mesh0, chain0"),
        (lambda faults: faults.inject("tls-a", "no_powr"), "no fault no_powr.*Do you mean no_power.*no_cable"),
        (lambda faults: faults.inject("tls-a", "hang"), "tls-a has no fault hang"),
        (lambda faults: faults.end(BENCH, "kill_port", port=1), "kill_port cannot be cleared"),
        (lambda faults: faults.board("chain0"), "chain0 is a qontrol-q8.*Boards on this bench: mesh0"),
        (lambda faults: faults.board("mesh9"), "no device mesh9"),
        (lambda faults: faults.device("mesh9"), "no device mesh9.*mesh0"),
        (lambda faults: faults.kill_modules(["tls-a"]), "no module tls-a.*sfp-a, lr4-a, zr-a"),
        (lambda faults: faults.kill_modules("sfp-a"), "a list of device names"),
        (lambda faults: faults.turn_polarization("meter0"), "no fibre connects meter0.*sfp-a"),
        (lambda faults: faults.kill_port(99), "kill_port: port is out of range.*0 to 15"),
        (lambda faults: faults.kill_port(-1), "port is out of range"),
        (lambda faults: faults.hop_mode(0, 1e9), "number of a port with light: 1, 3, 5"),
        (lambda faults: faults.after(-1.0, lambda: None), "after: delay_s"),
        (lambda faults: faults.after(1.0, "x"), "'x' is not a function"),
    ],
)
def test_unknown_names_say_what_there_is(call, says: str, faults: BenchFaults) -> None:
    with pytest.raises((ConfigError, LimitError), match=f"(?s){says}"):
        call(faults)
