"""`lumion emulate`: the devices of a bench file for other programs, on real TCP ports and pseudo-terminals."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.bench.file.loader import load_bench
from lumion_hw.bench.opening import open_device
from lumion_hw.cli import main
from lumion_hw.clock import SystemClock
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.errors import BusyError, ConnectError, LinkLost, LinkTimeout
from lumion_hw.interfaces import LockStage
from lumion_hw.links.address import open_link
from tests.recorded_calibration import SMALL
from tests.waiting import PATIENCE_S, Bound, PatientClock, until

EMULATE = [sys.executable, "-m", "lumion_hw.cli", "emulate"]
WATCHDOG_S = 2.0
T = TypeVar("T")
HOST = f"""
import sys, time
import numpy as np
from lumion_hw.bench.opening import open_device
from lumion_hw.bench.file.loader import load_bench
from lumion_hw.clock import SystemClock
from lumion_hw.links.address import open_link
clock = SystemClock()
model = load_bench(sys.argv[1]).devices["mesh0"]
controller = open_device("mesh0", model, open_link(sys.argv[2], clock), clock)
controller.program(np.full(30, 1.25))
print("holding", flush=True)
time.sleep(1.1 * {WATCHDOG_S})  # nothing may happen: keep-alives hold the heaters beyond the watchdog's time-out
assert controller.read_back().all() and not controller.faults()
print("still holding", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def served(bench: Path, directory: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Serve a bench while the block runs; yields the process and the addresses."""
    endpoints = directory / "endpoints.json"
    command = [*EMULATE, str(bench), "--endpoints", str(endpoints), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:

            def there() -> bool:
                assert process.poll() is None, process.communicate()
                return endpoints.exists()

            until(there)
            yield process, json.loads(endpoints.read_text())  # complete as soon as it is there
        finally:
            process.terminate()  # so that it takes its links away
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
            process.kill()


def watched(directory: Path, watchdog_s: float) -> Path:
    """Write the small bench with another time of its watchdog."""
    path = directory / "bench.yaml"
    path.write_text(
        SMALL.read_text().replace("total_power_mw: 500.0", f"total_power_mw: 500.0, watchdog_s: {watchdog_s}")
    )
    return path


@pytest.fixture(scope="module")
def bench_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small bench with the longest time of the watchdog: a busy machine may be late with a sign of life."""
    return watched(tmp_path_factory.mktemp("emulate"), 60.0)


@pytest.fixture(scope="module")
def service(bench_file: Path) -> Iterator[tuple[dict[str, str], str]]:
    """The addresses of the served bench, and what its process had in memory before a host asked for anything."""
    with served(bench_file, bench_file.parent, "--seed", "7") as (process, found):
        yield found, Path(f"/proc/{process.pid}/maps").read_text()


@pytest.fixture(scope="module")
def addresses(service: tuple[dict[str, str], str]) -> dict[str, str]:
    return service[0]


def patiently(action: Callable[[], T]) -> T:
    """Do again what was not answered in time, though the host is patient."""
    for _ in range(9):
        with contextlib.suppress(LinkTimeout, ExceptionGroup):
            return action()
    return action()


@pytest.fixture(scope="module")
def host(bench_file: Path, addresses: dict[str, str]) -> Iterator[Bench]:
    """The served bench, opened as hardware would be."""
    with patiently(lambda: Bench.open(bench_file, addresses=addresses, clock=PatientClock())) as bench:
        yield bench


def test_every_device_has_an_address_on_loopback_or_a_pty(addresses: dict[str, str]) -> None:
    assert set(addresses) == {*load_bench(SMALL).devices, "@faults"}
    for name, address in addresses.items():
        wire = "tcp://127.0.0.1:" if name in ("mesh0", "meter0", "@faults") else "serial:///"
        assert address.startswith(wire), name


def test_a_bench_opened_over_real_wires_is_not_an_emulated_one(host: Bench) -> None:
    assert not host.is_emulated
    assert isinstance(host.clock, SystemClock)
    assert host.mesh.controller.info.serial == "SMALL-0001"
    assert host.meters["meter0"].serial == "MY00000044"
    modules = [host.transponders[name] for name in ("sfp-a", "sfp-b", "sfp-c")]
    assert [patiently(module.identify).serial for module in modules] == ["ER-A", "ER-B", "ER-C"]


def test_what_is_programmed_over_tcp_is_read_back(host: Bench) -> None:
    wanted_ma = np.random.default_rng(0).uniform(0.0, 2.0, 30)
    host.mesh.program(wanted_ma)
    assert host.mesh.confirmed_currents_ma() == pytest.approx(
        wanted_ma, abs=0.51 * host.mesh.controller.info.current_step_ma
    )


def test_light_switched_on_over_a_pty_arrives_at_the_monitors(host: Bench) -> None:
    host.mesh.program(np.zeros(30))
    with host.dark():
        for module in host.transponders.values():  # warm modules emit
            patiently(module.disable)
        dark_ma = host.mesh.monitors_ma(16).sum()
        patiently(host.transponders["sfp-a"].enable)
        settings = [np.full(4, 900.0 * step - 1800.0) for step in range(5)]
        totals = []
        for drive_mv in settings:
            host.polarization["pol-a"].set(drive_mv)
            assert host.polarization["pol-a"].read() == pytest.approx(drive_mv)
            host.clock.sleep(0.01)
            totals.append(host.mesh.monitors_ma(16).sum())
        assert max(totals) > 10.0 * dark_ma
        assert max(totals) > 1.1 * min(totals)  # and the polarization matters
        assert all(reading.channel == index for index, reading in enumerate(host.meters["meter0"].read_all(), start=1))


def test_garbage_from_another_connection_disturbs_nobody(host: Bench, addresses: dict[str, str]) -> None:
    noise = np.random.default_rng(1)
    failures: list[BaseException] = []
    stop = threading.Event()

    def shout(name: str) -> None:
        try:
            port = int(addresses[name].rsplit(":", 1)[1])
            while not stop.is_set():
                with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as raw:
                    for _ in range(20):
                        raw.sendall(noise.bytes(200) + b"\n\x00")
                        stop.wait(0.002)
        except (BrokenPipeError, ConnectionResetError):
            return  # hung up on: its good right
        except BaseException as error:
            failures.append(error)
            raise

    shouters = [threading.Thread(target=shout, args=(name,)) for name in ("mesh0", "meter0")]
    for thread in shouters:
        thread.start()
    try:
        for step in range(20):
            patiently(lambda step=step: host.mesh.program(np.full(30, 0.05 * step)))
            assert patiently(host.mesh.confirmed_currents_ma) == pytest.approx(0.05 * step, abs=1e-3)
            assert len(patiently(host.meters["meter0"].read_all)) == 4
    finally:
        stop.set()
        for thread in shouters:
            thread.join(PATIENCE_S)
    assert failures == []
    assert host.mesh.controller.faults() == ()


def test_a_second_host_is_told_that_the_controller_is_held(host: Bench, addresses: dict[str, str]) -> None:
    def is_told() -> bool:
        link = open_link(addresses["mesh0"], host.clock)
        try:
            open_device("mesh0", host.model.devices["mesh0"], link, host.clock)
        except (ConnectError, LinkLost):  # all connections are in use until the server has read the noise of before
            return False
        except BusyError as error:
            assert "mesh0" in str(error)  # noqa: PT017 - other errors are legal for a while
            return True
        pytest.fail("two hosts hold the controller")

    until(is_told)
    host.mesh.program(np.zeros(30))  # and the first one never noticed


def test_the_solver_is_loaded_before_the_first_host_asks_for_light(service: tuple[dict[str, str], str]) -> None:
    # Loading it takes longer than a host waits for a module: the first opening of a served bench failed on that.
    _, maps = service
    assert "llvmlite" in maps or "_superlu" in maps, "neither the compiled solver nor that of scipy"


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, id="SIGTERM"), pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.long)],
)
def test_a_signal_ends_the_service_though_hosts_are_connected_and_takes_the_ptys_away(
    tmp_path: Path, number: int
) -> None:
    with served(SMALL, tmp_path) as (process, found):
        links = [Path(address.removeprefix("serial://")) for address in found.values() if address.startswith("serial")]
        assert len(links) == 6
        assert all(link.is_symlink() and link.exists() for link in links)
        port = int(found["mesh0"].rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S):
            process.send_signal(number)
            stdout, stderr = process.communicate(timeout=PATIENCE_S)
        assert process.returncode in ((0, 143) if number == signal.SIGTERM else (0, 130))
        assert not any(link.is_symlink() for link in links)
        assert not links[0].parent.exists()
        assert list(tmp_path.iterdir()) == [], "the endpoints file leads nowhere"
        assert stdout == ""
        assert "Traceback" not in stderr


def test_the_endpoints_of_an_emulator_that_was_killed_are_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoints = tmp_path / "endpoints.json"
    with served(SMALL, tmp_path) as (process, _):
        process.kill()
        process.wait()
        for command in (["log", "-c", "meter0"], ["fault", "list"], ["monitor", "-c", "meter0"]):
            name, *more = command
            assert main([name, str(SMALL), *more, "--endpoints", str(endpoints)]) == 4
            assert capsys.readouterr().err == (
                f"lumion: the emulator that wrote {endpoints} is not running. "
                f"Start it again: lumion emulate BENCH --endpoints {endpoints}\n"
            )


def test_an_emulator_leaves_the_endpoints_of_another_alone(tmp_path: Path) -> None:
    with served(SMALL, tmp_path):
        (tmp_path / "endpoints.json").write_text('{"mesh0": "tcp://127.0.0.1:9"}')
    assert (tmp_path / "endpoints.json").read_text() == '{"mesh0": "tcp://127.0.0.1:9"}'


def test_without_a_file_the_addresses_are_one_document_on_stdout(not_for_ever: Bound) -> None:
    with subprocess.Popen(
        [*EMULATE, str(SMALL), "--tcp-only"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            not_for_ever(process)
            assert process.stderr is not None
            assert process.stderr.readline() == "small: serving 8 devices, seed 0. Press Ctrl-C to stop.\n"
            process.send_signal(signal.SIGTERM)
            stdout, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    found = json.loads(stdout)
    assert len(found) == 8
    assert all(address.startswith("tcp://127.0.0.1:") for address in found.values())


def test_ports_are_those_of_the_file_and_visa_programs_get_resource_strings(tmp_path: Path) -> None:
    """A meter straight on a port of the mesh, on fixed ports, asked over a raw socket and by HiSLIP."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        port, hislip_port = [each.getsockname()[1] for each in sockets]
    text = SMALL.read_text()
    fixed = f"emulated_port: {port}, emulated_hislip_port: {hislip_port}"
    text = text.replace("serial: MY00000044", f"serial: MY00000044, {fixed}")
    text = text.replace("servers:", "    - {port: 4, tap: {meter: meter0, channel: 4}}\nservers:")
    bench, visa = tmp_path / "bench.yaml", tmp_path / "visa.json"
    bench.write_text(text)
    with served(bench, tmp_path, "--visa", str(visa)) as (_, found):
        assert found["meter0"] == f"tcp://127.0.0.1:{port}"
        resources = json.loads(visa.read_text())
        socket_name, hislip_name = (
            f"TCPIP::127.0.0.1::{port}::SOCKET",
            f"TCPIP::127.0.0.1::hislip0,{hislip_port}::INSTR",
        )
        assert resources["meter0"] == [socket_name, hislip_name]
        assert resources["pol-a"] == [f"ASRL{found['pol-a'].removeprefix('serial://')}::INSTR"]
        assert len(resources["mesh0"]) == 1, "no SCPI, no HiSLIP"
        import pyvisa

        manager = pyvisa.ResourceManager("@py")
        for name in resources["meter0"]:
            with manager.open_resource(
                name, read_termination="\n", write_termination="\n", timeout=1e3 * PATIENCE_S
            ) as meter:
                assert ",N7744A,MY00000044," in meter.query("*IDN?")
        manager.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.yaml"], "cannot read bench file nowhere.yaml"),
        ([str(SMALL), "--endpoints", "/proc/nowhere/endpoints.json"], "cannot write the endpoints file"),
    ],
)
def test_what_cannot_be_served_is_exit_code_2_with_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["emulate", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"lumion: {words}")
    assert "Traceback" not in err


@pytest.mark.long
def test_heaters_of_a_killed_host_go_off_by_the_watchdog(tmp_path: Path, not_for_ever: Bound) -> None:
    bench = watched(tmp_path, WATCHDOG_S)
    with served(bench, tmp_path) as (_, found):
        with subprocess.Popen(
            [sys.executable, "-c", HOST, str(bench), found["mesh0"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as host:
            try:
                not_for_ever(host)
                assert host.stdout is not None
                assert host.stdout.readline() == "holding\n"
                assert host.stdout.readline() == "still holding\n"
                os.kill(host.pid, signal.SIGKILL)
            finally:
                host.kill()

        clock = PatientClock()
        second = LumionMeshController(open_link(found["mesh0"], clock), clock, device="mesh0")
        second.open()  # waits until the dead host's session is over
        with contextlib.closing(second):
            newest = second.faults()[-1]
            assert (newest.source, newest.latched) == ("WATCHDOG", True)
            assert not second.read_back().any()


@pytest.mark.long
def test_a_bench_of_qontrol_modules_and_a_line_server_is_served_and_opened_like_hardware(tmp_path: Path) -> None:
    text = (SMALL.parent / "small_qontrol.yaml").read_text()
    bench_file = tmp_path / "bench.yaml"
    bench_file.write_text(text.replace("devices:\n", "devices:\n  unit0: {kind: smartlight-line-server}\n"))
    with served(bench_file, tmp_path, "--seed", "7") as (_, addresses):
        assert addresses["mesh0"].startswith("serial:///")
        assert addresses["unit0"].startswith("tcp://127.0.0.1:")
        with patiently(lambda: Bench.open(bench_file, addresses=addresses, clock=PatientClock())) as bench:
            assert bench.mesh.controller.info.serial == "Q8iv-0001,Q8iv-0002,Q8iv-0003,Q8iv-0004"
            wanted_ma = np.linspace(0.0, 2.0, 30)
            patiently(lambda: bench.mesh.program(wanted_ma))
            assert np.array_equal(bench.mesh.confirmed_currents_ma(), wanted_ma)
            assert bench.mesh.monitors_ma().shape == (3,)
            sent = bench.mesh_states["unit0"].program_states({0: "bar", 71: "cross"})
            assert sent.line == "[(0, '='), (71, 'x')]"


def test_the_help_says_in_which_state_modules_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "By default they started long ago: CMIS modules are in low power, others transmit." in words
    path = tmp_path / "modules.yaml"
    kinds = {"zr": "cmis", "lr4": "qsfp-8636", "er": "sfp-8472"}
    devices = "".join(f"  {name}: {{kind: {kind}}}\n" for name, kind in kinds.items())
    path.write_text(f"version: 1\nname: modules\ndevices:\n{devices}")
    with Bench.emulate(path) as opened:
        assert opened.transponders["zr"].lock_state().stage is LockStage.LOW_POWER  # type: ignore[attr-defined]
        powers = {name: opened.transponders[name].monitors().tx_power_dbm for name in ("lr4", "er")}
    assert all(power_dbm is not None and power_dbm > -5.0 for power_dbm in powers.values())
