"""Opening a bench on virtual time: everything or nothing, every failure told, and the heaters never left on."""

import os

import numpy as np
import pytest

from firmware_protocol import OutputsState
from lumion_hw import Bench
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import (
    ConfigError,
    ConnectError,
    ForkError,
    IdentityError,
    LinkError,
    LumionError,
    SafetyError,
    exit_code,
)
from lumion_hw.testing.forking import run_in_child
from tests.bench.bench_open_testbench import SMALL, SMALL_DEVICES, SmallBench

WATCHDOG_S = 2.0  # of the small bench, by default


@pytest.fixture
def small() -> SmallBench:
    return SmallBench()


def warm_up(bench: Bench) -> None:
    """Drive every heater with 1 mA."""
    bench.mesh.program(np.ones(2 * bench.mesh.topology.n_pucs))


# -- the built-in bench


def test_the_builtin_bench_opens_with_its_eighteen_devices() -> None:
    with Bench.emulate() as bench:
        assert len(bench.transponders) == len(bench.polarization) == 8
        assert list(bench.meters) == ["meter0"]
        assert (bench.meters["meter0"].model, bench.meters["meter0"].serial) == ("N7745A", "MY00000001")
        assert bench.mesh.controller.info.serial == "LM000001"
        serials = {name: module.identify().serial for name, module in bench.transponders.items()}
        assert serials["sfp-s2n1"] == "ER000021"
        assert len(set(serials.values())) == 8
        assert bench.is_emulated


def test_the_builtin_bench_takes_no_time_but_bench_time() -> None:
    clock = VirtualClock()
    with Bench.emulate("lumion-prototype", clock=clock) as bench:
        before_s = clock.now()
        bench.clock.sleep(600.0)
        assert clock.now() == before_s + 600.0


def test_the_same_seed_gives_the_same_readings_and_another_seed_others() -> None:
    def readings(seed: int) -> list[float]:
        with Bench.emulate(SMALL, seed=seed) as bench:
            warm_up(bench)
            return [*bench.mesh.monitors_ma(), *(reading.power_w for reading in bench.meters["meter0"].read_all())]

    assert readings(4) == readings(4)
    assert readings(4) != readings(5)


def test_meters_and_modules_are_set_up_as_the_file_says() -> None:
    with Bench.emulate(SMALL) as bench:
        meter = bench.meters["meter0"]
        assert [meter.range_dbm(channel) for channel in meter.channels] == [None] * 4
        assert [meter.averaging_s(channel) for channel in meter.channels] == pytest.approx([0.01] * 4, rel=1e-3)
        assert [meter.wavelength_nm(channel) for channel in meter.channels] == pytest.approx([1550.0] * 4, abs=0.006)


# -- failures while opening


def test_a_device_that_cannot_be_opened_raises_its_own_error_and_the_others_are_closed(small) -> None:
    small.refuse("sfp-b")
    with pytest.raises(ConnectError) as caught:
        small.open()
    assert (caught.value.device, caught.value.address) == ("sfp-b", "test://sfp-b")
    assert exit_code(caught.value) == 4
    assert set(small.links) == SMALL_DEVICES, "a device was not even tried"
    assert small.held == set()


def test_several_devices_that_cannot_be_opened_are_all_told(small) -> None:
    small.refuse("meter0", "pol-a", "pol-c")
    with pytest.raises(ExceptionGroup, match="3 of 8 devices could not be opened") as caught:
        small.open()
    assert [error.device for error in caught.value.exceptions] == ["meter0", "pol-a", "pol-c"]
    assert exit_code(caught.value) == 4
    assert small.held == set()


def test_failures_of_different_kinds_have_no_common_exit_code(small) -> None:
    small.refuse("meter0")
    small.refuse("pol-a", error=IdentityError)
    with pytest.raises(ExceptionGroup) as caught:
        small.open()
    assert exit_code(caught.value) == 1


SWITCHED_OFF = {"mesh0": "no_power", "sfp-a": "no_cable", "pol-c": "no_power"}


@pytest.mark.parametrize("device", SWITCHED_OFF)
def test_a_device_that_is_off_is_told_and_the_others_are_closed(small, device) -> None:
    small.emulated.faults.inject(device, SWITCHED_OFF[device])
    with pytest.raises(ConnectError) as caught:
        small.open()
    assert caught.value.device == device
    assert small.held == set()


def test_a_module_whose_server_is_dead_is_told_by_name(small) -> None:
    small.emulated.faults.kill_modules(["sfp-c"])
    with pytest.raises(LinkError) as caught:
        small.open()
    assert caught.value.device == "sfp-c"
    assert "plugged in" in str(caught.value)
    assert small.held == set()


@pytest.mark.parametrize(("device", "found"), [("mesh0", "SMALL-0001"), ("meter0", "MY00000044"), ("sfp-a", "ER-A")])
def test_another_serial_number_than_the_file_expects_is_refused(small, device, found) -> None:
    wrong = small.model.devices[device].model_copy(update={"serial": "OTHER1"})
    model = small.model.model_copy(update={"devices": small.model.devices | {device: wrong}})
    with pytest.raises(IdentityError) as caught:
        small.open(model)
    assert "OTHER1" in str(caught.value)
    assert found in str(caught.value)
    assert caught.value.device == device
    assert exit_code(caught.value) == 2
    assert small.held == set()


def test_ctrl_c_while_opening_closes_what_is_open(small) -> None:
    small.failing["pol-b"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        small.open()
    assert small.held == set()


def test_the_emulated_controller_drives_as_much_current_as_the_file_allows(tmp_path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(SMALL.read_text().replace("heater_max_ma: 2.5", "heater_max_ma: 4.0"))
    with Bench.emulate(path) as bench:
        currents_ma = np.zeros(2 * bench.mesh.topology.n_pucs)
        currents_ma[0] = 4.0
        bench.mesh.program(currents_ma)
        assert bench.mesh.confirmed_currents_ma()[0] == pytest.approx(4.0, abs=1e-3)


def test_a_file_with_a_mistake_opens_nothing(tmp_path) -> None:
    file = tmp_path / "bench.yaml"
    file.write_text(SMALL.read_text().replace("kind: oz-epc04", "kind: oz-epc40", 1))
    with pytest.raises(ConfigError, match=r"bench\.yaml"):
        Bench.emulate(file)


# -- heaters


def test_leaving_the_bench_switches_the_heaters_off_and_lets_every_device_go(small) -> None:
    with small.open() as bench:
        warm_up(bench)
        assert np.count_nonzero(small.board.driven_codes) == 2 * bench.mesh.topology.n_pucs
    assert not small.board.driven_codes.any()
    assert small.board.state is not OutputsState.SAFE, "closing is no fault"
    assert small.held == set()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, LumionError])
def test_an_exception_inside_the_bench_switches_the_heaters_off_and_comes_through(small, error) -> None:
    with pytest.raises(error, match="of the script"), small.open() as bench:  # noqa: PT012
        warm_up(bench)
        raise error("of the script")
    assert not small.board.driven_codes.any()
    assert small.held == set()


def test_closing_twice_is_harmless(small) -> None:
    bench = small.open()
    bench.close()
    bench.close()


def test_a_bench_can_be_opened_again_once_its_controller_misses_the_last_host(small) -> None:
    for _ in range(2):  # the controller keeps a session for the watchdog's time (protocol, section 4.1)
        with small.open() as bench:
            warm_up(bench)
            assert bench.mesh.controller.faults() == ()
    assert small.clock.now() >= WATCHDOG_S


def test_a_device_that_is_gone_does_not_keep_the_heaters_on(small) -> None:
    with small.open() as bench:
        warm_up(bench)
        for name in SMALL_DEVICES - {"mesh0"}:
            small.links[name].cut()
    assert not small.board.driven_codes.any()


def test_a_watchdog_never_trips_while_the_host_lives(small) -> None:
    with small.open() as bench:
        warm_up(bench)
        bench.clock.sleep(100 * WATCHDOG_S)
        assert small.board.driven_codes.any()
        assert bench.mesh.controller.faults() == ()


def test_when_the_host_vanishes_the_watchdog_switches_the_heaters_off(small) -> None:
    bench = small.open()
    warm_up(bench)
    for link in small.links.values():
        link.cut()
    small.clock.sleep(0.7 * WATCHDOG_S)  # the last sign of life was at most a quarter of the watchdog ago
    small.board.advance()
    assert small.board.driven_codes.any()
    small.clock.sleep(0.31 * WATCHDOG_S)
    small.board.advance()
    assert not small.board.driven_codes.any()
    assert small.board.state is OutputsState.SAFE


def test_after_a_watchdog_the_bench_says_that_a_fault_has_to_be_cleared(small) -> None:
    bench = small.open()
    warm_up(bench)
    small.links["mesh0"].cut()
    small.clock.sleep(1.1 * WATCHDOG_S)
    bench.close()
    with small.open() as again, pytest.raises(SafetyError, match="WATCHDOG") as caught:
        warm_up(again)
    assert exit_code(caught.value) == 5
    with small.open() as again:
        again.mesh.controller.clear_fault(again.mesh.controller.faults()[-1].fault_id)
        warm_up(again)
        assert small.board.driven_codes.any()


# -- faults that users script


def test_scripted_faults_reach_the_devices() -> None:
    with Bench.emulate(SMALL) as bench:
        module = bench.transponders["sfp-a"]
        module.enable()
        bench.emulated.faults.kill_modules(["sfp-a"])
        with pytest.raises(LinkError):
            module.status()
        bench.emulated.faults.revive_modules(["sfp-a"])
        bench.clock.sleep(3.0)  # laser and monitors of a 10GBASE-ER module start up
        assert module.monitors().tx_power_dbm is not None


def test_a_real_bench_has_no_faults_to_script(small) -> None:
    bench = Bench(small.model, small.link, small.clock)
    with bench, pytest.raises(ConfigError, match="not emulated"):
        _ = bench.emulated


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_can_use_no_device_of_its_parents_bench_and_leaves_it_without_a_word() -> None:
    with Bench.emulate(SMALL, seed=3) as bench:
        warm_up(bench)

        def try_all() -> int:
            devices = [
                lambda: warm_up(bench),
                bench.mesh.monitors_ma,
                lambda: [meter.read_all() for meter in bench.meters.values()],
                lambda: [module.identify() for module in bench.transponders.values()],
            ]
            for use in devices:
                with pytest.raises(ForkError):
                    use()
            with bench, bench.dark():
                pass
            return len(devices)

        assert run_in_child(try_all) == "4"
        assert bench.mesh.controller.read_back().any()
