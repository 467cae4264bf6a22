"""``lumion serve``: starts, says where it is, ends cleanly, and refuses with one paragraph what cannot be served."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.cli import main
from tests.waiting import until

SMALL = str(Path(__file__).parents[1] / "data" / "small.yaml")
COMMAND = [sys.executable, "-m", "lumion_hw.cli", "serve", SMALL, "--pva", "--json"]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory) -> Iterator[Path]:
    """The devices of the bench in a process of their own, as hardware is: they outlive the server."""
    endpoints = tmp_path_factory.mktemp("emulated") / "endpoints.json"
    command = [sys.executable, "-m", "lumion_hw.cli", "emulate", SMALL, "--seed", "1", "--endpoints", str(endpoints)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until(endpoints.exists)
    yield endpoints
    process.terminate()
    process.wait()


def served(emulated: Path, state: Path, *options: str) -> subprocess.Popen[str]:
    command = [*COMMAND, "--endpoints", str(emulated), "--state", str(state), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("ends", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_it_says_where_it_is_survives_its_clients_and_ends_with_heaters_off(emulated, tmp_path, ends) -> None:
    process = served(emulated, tmp_path, "--pva-port", "0")
    address = json.loads(process.stdout.readline())["pva"]
    script = f"import os; from lumion_hw import Bench; b = Bench.attach({address!r}); "
    script += "b.mesh.program(b.mesh.confirmed_currents_ma() + 0.5); os._exit(9)"
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    with Bench.attach(address) as bench:
        assert bench.mesh.confirmed_currents_ma() == pytest.approx(1.0, abs=1e-3), (
            "--when-lost hold keeps what was driven"
        )
    process.send_signal(ends)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert said.splitlines()[-1] == "server stopped"
    addresses = json.loads(emulated.read_text())
    with Bench.open(SMALL, addresses=addresses, only=["mesh0"]) as bench:
        assert not bench.mesh.confirmed_currents_ma().any()
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert sum(event["event"] == "lease ended" for event in events) == 2


def test_an_emulator_has_a_process_of_its_own_and_ends_with_a_server_that_is_killed(tmp_path) -> None:
    command = [*COMMAND, "--emulate", "--seed", "1", "--pva-port", "0", "--state", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert json.loads(process.stdout.readline())["emulated"] is True
    (emulator,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert runs(emulator)
    process.kill()
    process.communicate()
    until(lambda: not runs(emulator), 60.0)


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_emulator_that_does_not_start_says_why(tmp_path, capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bench, port = tmp_path / "bench.yaml", taken.getsockname()[1]
        bench.write_text(Path(SMALL).read_text().replace("kind: oz-epc04", f"kind: oz-epc04, emulated_port: {port}", 1))
        assert main(["serve", str(bench), "--emulate", "--pva", "--pva-port", "0"]) == 1
    said = capsys.readouterr().err
    assert "the emulator did not start" in said
    assert str(port) in said


def test_a_bench_has_one_server_and_a_port_one_program(emulated, tmp_path, capsys) -> None:
    def refused(state: str, port: str) -> str:
        options = ["--endpoints", str(emulated), "--state", str(tmp_path / state), "--pva-port", port]
        assert main([*COMMAND[3:], *options]) == 6
        return str(json.loads(capsys.readouterr().out)["error"]["message"])

    first = served(emulated, tmp_path / "one", "--pva-port", "0")
    try:
        port = json.loads(first.stdout.readline())["pva"].rpartition(":")[2]
        assert "lumion serve" in refused("one", "0")
        assert f"port {port} is in use" in refused("other", port)
    finally:
        first.kill()
        first.communicate()


def test_without_p4p_it_says_what_to_install_and_opens_nothing(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "p4p", None)
    assert main(["serve", "no-such-bench.yaml", "--pva"]) == 2
    assert "pip install 'lumion-hw[epics]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "nothing would be served"),
        (["--pva", "--emulate", "--endpoints", os.devnull], "cannot be combined"),
        (["--pva", "--leave-on", "-1"], "-1"),
        (["--pva", "--pva-port", "70000"], "70000"),
        (["--pva", "--emulate", "--host", "0.0.0.0"], "other hosts can reach"),
    ],
)
def test_what_cannot_be_served_is_one_paragraph(options, says, capsys) -> None:
    assert main(["serve", SMALL, *options]) == 2
    assert says in capsys.readouterr().err
