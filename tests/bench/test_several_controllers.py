"""Bench files in which several controllers drive one mesh."""

from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.bench.bench import load, with_leave_on
from lumion_hw.bench.emulated import emulated_bench, emulated_on_wires
from lumion_hw.bench.file.loader import check_bench, load_bench
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits import CircuitRequest, PathSetup
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import CalibrationError, ConfigError, IdentityError
from lumion_hw.polarization import Aligner
from lumion_hw.testing.known_record import record_of_truth
from tests.bench.several_controllers import split_bench
from tests.circuits.known_mesh import SMALL
from tests.edited_files import edited


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return split_bench(tmp_path)


def test_several_controllers_are_one_device_with_limits_that_hold_for_all(two: Path) -> None:
    text = two.read_text().replace("SMALL-0001, heater_max_ma: 2.5", "SMALL-0001, heater_max_ma: 2.0")
    model = load_bench(two, text=text)
    assert model.mesh.controller == "mesh0+mesh1"
    whole = model.devices["mesh0+mesh1"]
    assert (whole.parts, whole.heater_max_ma, whole.total_power_mw) == (("mesh0", "mesh1"), 2.0, 1000.0)
    assert model.controller_serial == "SMALL-0000+SMALL-0001"
    assert model.controller_names({"mesh1": "tcp://there:1"}) == "SMALL-0000+tcp://there:1"
    assert BenchModel.model_validate_json(model.model_dump_json(exclude_unset=True)) == model
    held = with_leave_on(model, 60.0)
    assert {held.devices[name].leave_on_s for name in ("mesh0", "mesh1", "mesh0+mesh1")} == {60.0}


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("  controllers: [", "  controller: mesh0\n  controllers: [", "16:3 mesh.controllers", "found both (line 15)"),
        ("  controllers: [mesh0, mesh1]\n", "", "15:3 mesh.controller", "expected this key or controllers, found none"),
        ("[mesh0, mesh1]", "[mesh0, mesh2]", "15:24 mesh.controllers[1]", "'mesh2', which is not in devices. Did you"),
        (
            "[mesh0, mesh1]",
            "[mesh0, mesh0]",
            "15:24 mesh.controllers[1]",
            "expected controller 'mesh0' to be used once",
        ),
        ("[mesh0, mesh1]", "[mesh0]", "15:16 mesh.controllers", "expected at least 2 entries, found a list of 1"),
        ("[mesh0, mesh1]", "[mesh0, pol-a]", "15:24 mesh.controllers[1]", "of kind oz-epc04"),
        ("columns: [2]", "rings: 16", "15:16 mesh.controllers", "at most 4000 drive channels, the limit of 2 controll"),
        (
            "mesh1: {kind: lumion-mesh, serial: SMALL-0001, heater_max_ma: 2.5, heater_ohm: 1000.0",
            "mesh1: {kind: lumion-mesh, serial: SMALL-0001, heater_max_ma: 2.5, heater_ohm: 900",
            "6:82 devices.mesh1.heater_ohm",
            "expected the heater_ohm of 'mesh0', because both drive one mesh, found 900 (line 5)",
        ),
        (
            "mesh1: {kind: lumion-mesh, serial: SMALL-0001,",
            "mesh1: {kind: qontrol-q8,",
            "6:17 devices.mesh1.kind",
            "expected the kind of 'mesh0', because both drive one mesh, found qontrol-q8 (line 5)",
        ),
        (
            "kind: oz-epc04}\n  pol-b",
            "kind: oz-epc04}\n  x+y: {kind: oz-epc04}\n  pol-b",
            "12:3 devices.x+y",
            "without +",
        ),
        ("SMALL-0001,", "SMALL-0001, parts: [mesh0],", "6:50 devices.mesh1.parts", "expected no parts"),
    ],
)
def test_a_contradiction_is_named_with_its_place(two: Path, old: str, new: str, place: str, message: str) -> None:
    text = two.read_text()
    assert text.count(old) == 1
    (problem,) = check_bench("bench.yaml", text=text.replace(old, new))
    assert f"{problem.line}:{problem.column} {problem.path}" == place
    assert message in problem.message


def test_chains_together_need_enough_modules(tmp_path: Path) -> None:
    text = split_bench(tmp_path).read_text()
    for number in range(2):
        entry = f"mesh{number}: {{kind: lumion-mesh, serial: SMALL-000{number}, "
        assert entry in text
        text = text.replace(entry, f"mesh{number}: {{kind: qontrol-q8, modules: [Q8iv-000{number}, Q8iv-001{number}], ")
    assert check_bench("bench.yaml", text=text) == ()
    (problem,) = check_bench("bench.yaml", text=text.replace(", Q8iv-0011", ""))
    assert problem.path == "devices.mesh1.modules"
    assert problem.message == "expected modules with the 30 drive channels that the mesh needs, found 24"


def test_chains_together_drive_a_mesh_and_measure_its_heaters(tmp_path: Path) -> None:
    file = edited(
        SMALL.with_name("small_qontrol.yaml"),
        tmp_path,
        (", Q8iv-0003, Q8iv-0004]", "]"),
        ("  meter0:", "  mesh1: {kind: qontrol-q8}\n  meter0:"),
        ("controller: mesh0", "controllers: [mesh0, mesh1]"),
    )
    with Bench.emulate(file) as bench:
        info, currents_ma = bench.mesh.controller.info, np.linspace(0.5, 1.5, 30)
        assert (info.n_heaters, info.n_monitors, info.watchdog) == (32, 0, False)
        bench.mesh.program(currents_ma)
        assert np.allclose(bench.emulated.world.chip.driven_ma, currents_ma, atol=1e-3)
        assert np.array_equal(bench.mesh.confirmed_currents_ma(), currents_ma)
        ohm = bench.emulated.world.truth.heater_ohm
        assert np.allclose(bench.mesh.heater_resistances_ohm(), ohm, rtol=0.05)


def test_every_emulated_controller_drives_its_own_share(two: Path) -> None:
    with Bench.emulate(two) as bench:
        currents_ma = np.linspace(0.1, 1.5, 30)
        bench.mesh.program(currents_ma)
        world, boards = bench.emulated.world, [bench.emulated.faults.board(f"mesh{number}") for number in range(2)]
        assert [board.profile.n_dac for board in boards] == [15, 15]
        assert [board.profile.n_adc for board in boards] == [8, 8]
        assert np.allclose(world.chip.driven_ma, currents_ma, atol=1e-4)
        bench.emulated_faults.inject("mesh1", "no_power")
        assert np.allclose(world.chip.driven_ma[:15], currents_ma[:15], atol=1e-4)
        assert not world.chip.driven_ma[15:].any()
    assert not world.chip.driven_ma.any()


def test_all_monitors_show_the_light_that_one_controller_would_show(two: Path) -> None:
    readings = []
    for file in (SMALL, two):
        with Bench.emulate(file, seed=3) as bench:
            for module in bench.transponders.values():
                module.enable()
            bench.clock.sleep(1.0)
            readings.append(bench.mesh.monitors_ma(256))
    assert np.allclose(*readings, rtol=0.02, atol=1e-4)


def test_controllers_in_the_wrong_order_are_refused_by_their_serial_numbers(two: Path) -> None:
    model, clock = load(two), VirtualClock()
    emulated = emulated_bench(model, clock, 0)
    swapped = {"mesh0": "mesh1", "mesh1": "mesh0"}
    with pytest.raises(ExceptionGroup) as caught:
        Bench(model, lambda name, _: emulated.link(swapped.get(name, name)), clock, emulated)
    assert {type(error) for error in caught.value.exceptions} == {IdentityError}
    with Bench.emulate(two) as bench:
        record = record_of_truth(bench)
        assert record.device_serial == "SMALL-0000+SMALL-0001"
        bench.mesh.check_record(record)
    text = two.read_text().replace("[mesh0, mesh1]", "[mesh1, mesh0]")
    with (
        Bench(load_bench(two, text=text), lambda name, _: emulated.link(name), clock, emulated) as bench,
        pytest.raises(CalibrationError, match=r"made for SMALL-0000\+SMALL-0001, and this is SMALL-0001\+SMALL-0000"),
    ):
        bench.mesh.check_record(record)


def test_controllers_with_too_few_heaters_together_are_refused(two: Path) -> None:
    clock = VirtualClock()
    emulated = emulated_bench(load(two), clock, 0)
    wider = load_bench(two, text=two.read_text().replace("columns: [2]", "columns: [2, 3]"))
    with pytest.raises(
        ConfigError, match=r"controller SMALL-0000\+SMALL-0001 has 30 heaters, but the bench file needs"
    ):
        Bench(wider, lambda name, _: emulated.link(name), clock, emulated)


def test_only_the_mesh_can_be_opened_and_a_part_alone_is_no_mesh(two: Path) -> None:
    with Bench.emulate(two, only=["mesh0+mesh1"]) as bench:
        assert list(bench.devices) == ["mesh0", "mesh1", "mesh0+mesh1"]
        bench.mesh.program(np.zeros(30))
    with (
        Bench.emulate(two, only=["mesh0"]) as bench,
        pytest.raises(ConfigError, match=r"mesh0\+mesh1: the mesh controller was not opened"),
    ):
        _ = bench.mesh


def test_controllers_are_reached_over_wires_of_their_own(two: Path) -> None:
    with emulated_on_wires(load(two), 0) as (emulated, addresses):
        del addresses["mesh1"]
        with pytest.raises(ConfigError, match="the bench file has no address for mesh1"):
            Bench.open(two, addresses=addresses, only=["mesh0+mesh1"])
    with (
        emulated_on_wires(load(two), 0) as (emulated, addresses),
        Bench.open(two, addresses=addresses, only=["mesh0+mesh1"]) as bench,
    ):
        assert {"mesh0", "mesh1"} <= addresses.keys()
        currents_ma = np.linspace(0.1, 1.5, 30)
        bench.mesh.program(currents_ma)
        assert np.allclose(emulated.world.chip.driven_ma, currents_ma, atol=1e-4)
        assert np.allclose(bench.mesh.read_back_ma(), currents_ma, atol=1e-4)
        assert np.isfinite(bench.mesh.monitors_ma()).all()


def test_a_mesh_of_more_than_a_thousand_pucs_carries_a_proven_circuit(tmp_path: Path) -> None:
    file = split_bench(tmp_path, 3, ("columns: [2]", "rings: 11"))
    file.write_text(file.read_text().replace("total_power_mw: 500.0", "total_power_mw: 2000.0"))
    with Bench.emulate(file, seed=5) as bench:
        assert (bench.mesh.topology.n_pucs, bench.mesh.controller.info.n_heaters) == (1056, 2112)
        setup = PathSetup(bench, record_of_truth(bench), Aligner(bench.clock))
        (proof,) = setup.connect([CircuitRequest("sfp-a", "sfp-b")])
        assert proof.proven
        assert all(part.read_back().any() for part in bench.mesh.controller.parts.values())
