"""``Bench.open`` by address: the small bench served over TCP and ptys, with the same drivers as in memory."""

from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, get_ident

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.bench.bench import load
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.clock import SystemClock
from lumion_hw.emulator.wires.server import EmulatorServer
from lumion_hw.errors import ConfigError, ConnectError, IdentityError, LinkError
from lumion_hw.interfaces import RangeState
from lumion_hw.links.base import Link
from tests.bench.bench_open_testbench import SMALL, SMALL_DEVICES
from tests.waiting import PATIENCE_S, PatientClock


class Served:
    """The small bench behind sockets or ptys."""

    def __init__(self, transport: str, directory: Path) -> None:
        clock = SystemClock()
        self.emulated = emulated_bench(load(SMALL), clock, seed=3)
        self.board = self.emulated.faults.board("mesh0")
        self.server = EmulatorServer(clock)
        self.addresses = {
            name: self.server.add_tcp(device) if transport == "tcp" else self.server.add_pty(device, directory / name)
            for name, device in self.emulated.devices.items()
        }


@pytest.fixture
def served(request, tmp_path) -> Iterator[Served]:
    served = Served(getattr(request, "param", "tcp"), tmp_path)
    with served.server, served.server.in_thread():
        yield served


def warm_up(bench: Bench) -> np.ndarray:
    currents_ma = np.linspace(0.1, 1.0, 2 * bench.mesh.topology.n_pucs)
    bench.mesh.program(currents_ma)
    return currents_ma


@pytest.mark.parametrize("served", ["tcp", "pty"], indirect=True)
def test_a_bench_opened_by_address_programs_reads_back_and_sees_light(served) -> None:
    with Bench.open(SMALL, addresses=served.addresses, clock=PatientClock()) as bench:
        assert not bench.is_emulated
        assert bench.mesh.controller.info.serial == "SMALL-0001"
        currents_ma = warm_up(bench)
        np.testing.assert_allclose(
            bench.mesh.confirmed_currents_ma(), currents_ma, atol=bench.mesh.controller.info.current_step_ma
        )
        assert served.board.driven_codes.any()

        lit_ma = bench.mesh.monitors_ma(n_avg=8)
        assert lit_ma.shape == (16,)
        assert np.all(np.isfinite(lit_ma))
        for module in bench.transponders.values():
            module.disable()
        assert bench.mesh.monitors_ma(n_avg=8).sum() < 0.01 * lit_ma.sum(), "the light does not come from the modules"

        readings = bench.meters["meter0"].read_all()
        assert [(reading.channel, reading.state) for reading in readings] == [
            (channel, RangeState.OK) for channel in (1, 2, 3, 4)
        ]
        bench.polarization["pol-b"].set(np.array([0.0, 1250.0, -300.0, 4999.0]))
        assert bench.polarization["pol-b"].read().tolist() == [0.0, 1250.0, -300.0, 4999.0]
    assert not served.board.driven_codes.any(), "leaving the bench left heaters on"


def test_an_exception_in_the_script_switches_the_heaters_of_a_real_bench_off(served) -> None:
    opened = Bench.open(SMALL, addresses=served.addresses, clock=PatientClock())
    with pytest.raises(RuntimeError, match="of the script"), opened as bench:  # noqa: PT012
        warm_up(bench)
        assert served.board.driven_codes.any()
        raise RuntimeError("of the script")
    assert not served.board.driven_codes.any()


def test_swapped_cables_are_all_told_with_what_answered(served) -> None:
    swapped = served.addresses | {
        "meter0": served.addresses["pol-a"],
        "sfp-a": served.addresses["sfp-b"],
        "sfp-b": served.addresses["sfp-a"],
    }
    with pytest.raises(ExceptionGroup, match="3 of 8 devices") as caught:
        Bench.open(SMALL, addresses=swapped)
    told = {error.device: error for error in caught.value.exceptions}
    assert set(told) == {"meter0", "sfp-a", "sfp-b"}
    assert all(isinstance(error, IdentityError) for error in told.values())
    assert "ER-B" in str(told["sfp-a"])
    assert told["meter0"].address == served.addresses["pol-a"]


def test_nobody_at_an_address_is_told_with_the_address(served) -> None:
    closed = Served("tcp", Path())  # a port that was free a moment ago
    closed.server.close()
    nobody = closed.addresses["meter0"]
    with pytest.raises(ConnectError) as caught:
        Bench.open(SMALL, addresses=served.addresses | {"meter0": nobody})
    assert (caught.value.device, caught.value.address) == ("meter0", nobody)


def test_a_bench_that_is_gone_in_the_middle_raises_link_errors_and_can_be_closed(tmp_path) -> None:
    served = Served("tcp", tmp_path)
    with served.server.in_thread():
        bench = Bench.open(SMALL, addresses=served.addresses, clock=PatientClock())
        warm_up(bench)
    served.server.close()
    with bench:
        for action in (
            bench.mesh.confirmed_currents_ma,
            bench.meters["meter0"].read_all,
            bench.polarization["pol-a"].read,
        ):
            with pytest.raises(LinkError) as caught:
                action()
            assert caught.value.device in SMALL_DEVICES


def test_devices_on_wires_of_their_own_are_opened_side_by_side_and_told_in_the_order_of_the_file() -> None:
    model = load(SMALL)
    all_at_once = Barrier(len(model.devices), timeout=PATIENCE_S)

    def link(name: str, _device: object) -> Link:
        all_at_once.wait()
        raise ConfigError("no address", device=name)

    with pytest.raises(ExceptionGroup) as caught:
        Bench(model, link, SystemClock())
    assert [error.device for error in caught.value.exceptions] == list(model.devices)


def test_devices_at_one_address_are_opened_one_after_another() -> None:
    model = load(SMALL)
    for name in ("pol-a", "pol-b", "pol-c"):
        model.devices[name] = model.devices[name].model_copy(update={"address": "serial:///dev/ttyUSB0"})
    threads = []

    def link(name: str, _device: object) -> Link:
        threads.append(get_ident())
        raise ConfigError("no address", device=name)

    with pytest.raises(ExceptionGroup, match="3 of 8 devices"):
        Bench(model, link, SystemClock(), only=["pol-a", "pol-b", "pol-c"])
    assert len(threads) == 3
    assert len(set(threads)) == 1, "devices at one address are opened side by side"


def test_addresses_of_devices_that_are_not_in_the_file_are_refused() -> None:
    with pytest.raises(ConfigError, match="mesh9"):
        Bench.open(SMALL, addresses={"mesh9": "tcp://127.0.0.1:1"})


def test_a_device_without_an_address_is_told_by_name() -> None:
    addresses = dict.fromkeys(SMALL_DEVICES - {"meter0", "pol-a"}, "tcp://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"no address for meter0, pol-a\. Add 'address.*endpoints file"):
        Bench.open(SMALL, addresses=addresses)
