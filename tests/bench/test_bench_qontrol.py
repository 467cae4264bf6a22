"""A bench whose mesh is driven by a chain of Qontrol modules: as the file says, safe at once, with meters for eyes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.bench.file.loader import check_bench, load_bench
from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.mesh.qontrol.controller import QontrolController
from lumion_hw.emulator.mesh.qontrol import OPEN
from lumion_hw.errors import ConfigError, DeviceError, IdentityError, NotSupportedError, OutOfRangeError, VerifyError
from tests.edited_files import edited as edited_copy

SMALL_QONTROL = Path(__file__).parents[1] / "data" / "small_qontrol.yaml"
MODULES = "modules: [Q8iv-0001, Q8iv-0002, Q8iv-0003, Q8iv-0004], "


def edited(directory: Path, old: str, new: str) -> Path:
    return edited_copy(SMALL_QONTROL, directory, (old, new))


def mistakes(directory: Path, old: str, new: str) -> str:
    return "\n".join(f"{problem.path}: {problem.message}" for problem in check_bench(edited(directory, old, new)))


# -- the file


def test_the_modules_of_the_file_are_the_ones_that_answer() -> None:
    with Bench.emulate(SMALL_QONTROL) as bench:
        info = bench.mesh.controller.info
        assert info.serial == "Q8iv-0001,Q8iv-0002,Q8iv-0003,Q8iv-0004"
        assert (info.n_heaters, info.n_monitors, info.readback_tolerance_ma) == (32, 0, 0.1)


def test_a_module_is_in_one_place_only_unless_it_has_no_number(tmp_path: Path) -> None:
    twice = "modules: [Q8iv-0001, Q8iv-0002, Q8iv-0001, Q8iv-0004], "
    assert mistakes(tmp_path, MODULES, twice).startswith(
        "devices.mesh0.modules[2]: expected module 'Q8iv-0001' to be used once, "
        "but it is also used by devices.mesh0.modules[0]"
    )
    assert mistakes(tmp_path, MODULES, "modules: ['Q8iv-****', 'Q8iv-****', Q8iv-0003, Q8iv-0004], ") == ""


def test_a_chain_left_open_is_emulated_with_as_many_modules_as_the_mesh_needs(tmp_path: Path) -> None:
    with Bench.emulate(edited(tmp_path, MODULES, "")) as bench:
        assert bench.mesh.controller.info.n_heaters == 32  # 30 heaters, eight to a module


def test_a_module_without_a_number_can_be_expected(tmp_path: Path) -> None:
    with Bench.emulate(edited(tmp_path, "Q8iv-0002", "'Q8iv-****'")) as bench:
        assert bench.mesh.controller.info.serial.startswith("Q8iv-0001,Q8iv-****,")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Q8iv-0003", "Q8iv-3", "devices.mesh0.modules[2]: expected a Qontrol output module such as Q8iv-0001"),
        ("Q8iv-0003", "M2-0003", "devices.mesh0.modules[2]: expected a Qontrol output module such as Q8iv-0001"),
        (", Q8iv-0004", "", "expected modules with the 30 drive channels that the mesh needs, found 24"),
        (
            "columns: [2]",
            "columns: [2]\n  monitor_ports: [1]",
            "expected no monitor_ports: 'mesh0' is of kind qontrol-q8",
        ),
        (MODULES, "mode: hex, ", "devices.mesh0.mode: expected 'binary' or 'ascii'"),
        (MODULES, "compliance_v: 0, ", "devices.mesh0.compliance_v: expected more than 0"),
        (MODULES, "modules: [], ", "devices.mesh0.modules: expected at least 1 entries"),
        (MODULES, "watchdog_s: 2.0, ", "devices.mesh0.watchdog_s: expected one of the keys"),
    ],
)
def test_a_mistake_is_reported_where_it_stands(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert words in mistakes(tmp_path, old, new)


def test_other_modules_are_refused(tmp_path: Path) -> None:
    clock = VirtualClock()
    emulated = emulated_bench(load_bench(SMALL_QONTROL), clock, 0)
    model = load_bench(edited(tmp_path, "Q8iv-0004", "Q8iv-0005"))
    with pytest.raises(IdentityError, match="Q8iv-0005, found"):
        Bench(model, lambda name, _device: emulated.link(name), clock, emulated)


@pytest.mark.parametrize("mode", ["binary", "ascii"])
def test_mode_and_limits_of_the_file_are_in_force(tmp_path: Path, mode: str) -> None:
    with Bench.emulate(edited(tmp_path, MODULES, f"mode: {mode}, compliance_v: 4.5, ")) as bench:
        controller = bench.mesh.controller
        assert isinstance(controller, QontrolController)
        assert controller.compliance.voltage_v == pytest.approx(4.5, abs=12 / 65535)
        assert controller.compliance.current_ma == pytest.approx(2.5, abs=24 / 65535)
        wanted = np.linspace(0.0, 2.0, 30)
        bench.mesh.program(wanted)
        true_ma = bench.emulated.devices["mesh0"].currents_ma  # type: ignore[attr-defined]
        assert true_ma[:30] == pytest.approx(wanted, abs=24 / 65535)


# -- what the modules lack


def test_the_log_names_what_the_controller_lacks(tmp_path: Path) -> None:
    with Bench.emulate(SMALL_QONTROL) as bench:
        bench.events.write_to(tmp_path / "events.jsonl")
        events = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
        (event,) = [event for event in events if event["event"] == "controller lacks"]
        assert (event["controller"], event["what"]) == ("mesh0", "atomic latch, watchdog, monitors, sweeps, telemetry")
        with pytest.raises(NotSupportedError, match="read_monitors"):
            bench.mesh.controller.read_monitors()


def test_currents_that_a_dead_host_left_behind_are_switched_off_at_opening() -> None:
    clock = VirtualClock()
    model = load_bench(SMALL_QONTROL)
    emulated = emulated_bench(model, clock, 0)
    first = QontrolController(emulated.link("mesh0"), clock, device="mesh0", leave_on=True)
    first.open()
    first.program(np.full(32, 0.0) + np.where(np.arange(32) < 30, 1.0, 0.0))
    first.close()  # as a host that was killed
    chain = emulated.devices["mesh0"]
    chain.advance()
    assert chain.currents_ma[:30] == pytest.approx(1.0, abs=1e-3)  # type: ignore[attr-defined]
    with Bench(model, lambda name, _device: emulated.link(name), clock, emulated) as bench:
        assert not chain.currents_ma.any()  # type: ignore[attr-defined]
        assert not bench.mesh.confirmed_currents_ma().any()


# -- the mesh


def test_what_was_programmed_comes_back_to_the_last_bit_although_it_is_measured() -> None:
    with Bench.emulate(SMALL_QONTROL) as bench:
        wanted = np.linspace(0.0, 2.0, 30)
        bench.mesh.program(wanted)
        assert not np.array_equal(bench.mesh.controller.read_back()[:30], wanted)
        assert np.array_equal(bench.mesh.confirmed_currents_ma(), wanted)
        bench.mesh.controller.outputs_off()
        assert not bench.mesh.confirmed_currents_ma().any()


def test_currents_that_nobody_programmed_here_are_said_so() -> None:
    with Bench.emulate(SMALL_QONTROL) as bench:
        table = np.zeros(32)
        table[5] = 1.0
        bench.mesh.controller.program(table)
        with pytest.raises(
            VerifyError,
            match=r"heater 5: measured current does not match the programmed current: wrote 0\.0000 mA, read back",
        ):
            bench.mesh.confirmed_currents_ma()


def test_heaters_of_the_chip_are_the_load_of_the_modules() -> None:
    with Bench.emulate(SMALL_QONTROL, seed=3) as bench:
        bench.mesh.program(np.full(30, 1.5))
        controller, truth = bench.mesh.controller, bench.emulated.world.truth
        assert isinstance(controller, QontrolController)
        # U = P / I with P = I²R / (1 - γ I²R) (docs/calibration.md, 2)
        expected_v = truth.heater_power_mw(np.full(30, 1.5)) / 1.5
        assert controller.read_channels().voltage_v[:30] == pytest.approx(expected_v, abs=0.003)


def test_a_broken_heater_is_told_by_its_channel() -> None:
    with Bench.emulate(SMALL_QONTROL) as bench:
        bench.emulated.devices["mesh0"].set_load(7, OPEN)  # type: ignore[attr-defined]
        with pytest.raises(DeviceError, match="7"):
            bench.mesh.program(np.full(30, 1.0))


# -- the eyes


def test_meters_on_the_taps_stand_in_for_monitors() -> None:
    with Bench.emulate(SMALL_QONTROL, seed=2) as bench:
        assert bench.mesh.monitor_ports == (3, 8, 13)
        bench.mesh.program(np.zeros(30))
        bench.transponders["sfp-a"].enable()
        bench.clock.sleep(1.0)
        seen_ma = bench.mesh.monitors_ma(4)
        world = bench.emulated.world
        ports = list(bench.mesh.monitor_ports)
        in_fibre_mw = 1e3 * world.mesh_output_w()[ports] * 10.0 ** (-world.truth.access_loss_db[ports] / 10.0)
        assert seen_ma == pytest.approx(in_fibre_mw, rel=0.05)  # 1 A/W; meters are good to some per cent
        # 6.85 dB of typical access loss lie between the power on the chip and that in the fibre (Sánchez-Jácome 2025).
        assert bench.mesh.responsivity_a_per_w == pytest.approx(0.2065, abs=1e-4)


def test_an_overloaded_meter_is_an_error_and_no_photocurrent() -> None:
    with Bench.emulate(SMALL_QONTROL, seed=2) as bench:
        bench.mesh.program(np.zeros(30))
        bench.emulated.world.set_transmitter("sfp-a", 1e3)
        with pytest.raises(OutOfRangeError, match=r"meter0.*over-range"):
            bench.mesh.monitors_ma()


def test_the_chain_alone_can_be_driven_and_an_eye_that_was_not_opened_is_named() -> None:
    with Bench.emulate(SMALL_QONTROL, only=["mesh0"]) as bench:
        bench.mesh.program(np.zeros(30))
        with pytest.raises(
            ConfigError, match=r"meter0: this power meter is a monitor of the mesh, but was not opened.*Add it"
        ):
            bench.mesh.monitors_ma()
