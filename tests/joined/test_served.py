"""Joined benches that other processes serve: four racks and a spine, each with its server and its emulator."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lumion_hw.joined import load_joined
from tests.waiting import PATIENCE_S, Bound

# Five servers at a time keep two cores busy for minutes.
pytestmark = [pytest.mark.long, pytest.mark.campaign]

EXAMPLE = Path(__file__).parents[2] / "examples" / "four_racks"
SEED = 7
CIRCUITS = ("rack0:sfp0:rack1:sfp1", "rack1:sfp0:rack2:sfp3", "rack2:sfp5:rack3:sfp5", "rack3:sfp7:rack0:sfp0")


@dataclass
class FiveServers:
    """The servers of the example, on free ports."""

    folder: Path
    not_for_ever: Bound
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start the server of one bench."""
        port = re.search(r"([0-9]+)$", str(load_joined(self.folder / "joined.yaml").benches[name].address))
        assert port is not None
        command = [sys.executable, "-m", "lumion_hw.cli", "serve", f"{name}.yaml", "--emulate", "--seed", str(SEED)]
        command += ["--record", f"{name}.json", "--state", f"state-{name}", "--no-fabric", "--json"]
        command += ["--pva", "--pva-port", port[1], "--joined", "joined.yaml"]
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self.not_for_ever(process)
        self.processes[name] = process

    def await_start(self, name: str) -> None:
        """Wait until a server is ready."""
        output = self.processes[name].stdout
        assert output is not None
        assert json.loads(output.readline())["bench"] == name

    def kill(self, name: str) -> None:
        """Kill a server; its emulator ends with it."""
        self.processes[name].kill()
        self.processes[name].communicate(timeout=PATIENCE_S)

    def lumion(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ``lumion joined`` with the file and the state directory of the operator."""
        verb, *others = arguments
        command = [sys.executable, "-m", "lumion_hw.cli", "joined", verb, "joined.yaml", *others]
        return self.run([*command, "--state", "state-operator"])

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program in the folder of the example."""
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def operator(self, accident: str) -> subprocess.CompletedProcess[str]:
        """Connect one circuit with a program in which an accident happens."""
        pids = {name: process.pid for name, process in self.processes.items()}
        program = f"""
import os, signal
from lumion_hw.joined import JoinedMeshes, JoinedRequest, change, load_joined
pids = {pids!r}
{accident}
with JoinedMeshes.open(load_joined("joined.yaml"), "state-operator") as meshes:
    meshes.connect([JoinedRequest.parse({CIRCUITS[0]!r})])
"""
        return self.run([sys.executable, "-c", program])

    def circuits(self) -> set[str]:
        """Return the circuits that are complete on all benches."""
        document = json.loads(self.lumion("status", "--json").stdout)
        assert not any(circuit["problems"] for circuit in document["circuits"]), document
        return {circuit["circuit"] for circuit in document["circuits"]}


@pytest.fixture
def servers(tmp_path: Path, not_for_ever: Bound) -> Iterator[FiveServers]:
    for source in EXAMPLE.glob("*.yaml"):
        text = with_free_ports(source.read_text(encoding="utf-8"))
        (tmp_path / source.name).write_text(text, encoding="utf-8")
    file = load_joined(tmp_path / "joined.yaml")
    run_script(tmp_path, EXAMPLE / "emulated_records.py")
    servers = FiveServers(tmp_path, not_for_ever)
    for name in file.benches:
        servers.start(name)
    for name in file.benches:
        servers.await_start(name)
    yield servers
    for process in servers.processes.values():
        process.terminate()
    for process in servers.processes.values():
        process.communicate(timeout=PATIENCE_S)


def run_script(folder: Path, script: Path) -> None:
    """Run a script in a folder."""
    subprocess.run([sys.executable, str(script)], cwd=folder, check=True, timeout=PATIENCE_S)


def with_free_ports(text: str) -> str:
    """Return a file with free ports in place of its own, all replaced at once."""
    numbers = re.findall(r"127\.0\.0\.1:([0-9]+)", text) + re.findall(r"emulated_port: ([0-9]+)", text)
    ports = dict(zip(numbers, map(str, free_ports(len(numbers))), strict=True))
    return re.sub(r"\b[0-9]+\b", lambda number: ports.get(number[0], number[0]), text)


def free_ports(count: int) -> list[int]:
    """Return ports that neither TCP nor UDP uses at the moment."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def test_circuits_over_five_servers_survive_killed_programs_and_servers(servers: FiveServers) -> None:
    connected = servers.lumion("connect", *CIRCUITS, "--json")
    assert connected.returncode == 0, connected.stderr
    assert all(circuit["margin_db"] > 0.0 for circuit in json.loads(connected.stdout)["circuits"])
    assert servers.circuits() == set(CIRCUITS)
    assert servers.lumion("disconnect", CIRCUITS[0]).returncode == 0

    # The program is killed when all is lit and nothing is decided: recovery undoes it.
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    died = servers.operator(f"change.identify = lambda *_: {kill}")
    assert died.returncode == -signal.SIGKILL
    refused = servers.lumion("connect", CIRCUITS[0])
    assert refused.returncode != 0
    assert "lumion joined recover" in refused.stderr
    assert "undid the connection" in servers.lumion("recover").stdout
    assert servers.circuits() == set(CIRCUITS[1:])

    # It is killed right after the decision: recovery finishes it.
    died = servers.operator(f"JoinedMeshes._keep = lambda *_: {kill}")
    assert died.returncode == -signal.SIGKILL
    assert "kept" in servers.lumion("recover").stdout
    assert servers.circuits() == set(CIRCUITS)
    assert servers.lumion("disconnect", CIRCUITS[0]).returncode == 0

    # The server of the receiving rack dies between the phases. The other benches are set back at once.
    died = servers.operator("change.identify = lambda *_: os.kill(pids['rack1'], signal.SIGKILL)")
    assert died.returncode == 1
    servers.kill("rack1")
    servers.start("rack1")
    servers.await_start("rack1")
    recovered = servers.lumion("recover")
    assert recovered.returncode == 0, recovered.stderr
    # The circuit that begins in the dead rack is incomplete and says where; the others never ended.
    status = servers.lumion("status", "--json")
    assert status.returncode == 3
    problems = {circuit["circuit"]: circuit["problems"] for circuit in json.loads(status.stdout)["circuits"]}
    assert {name for name, own in problems.items() if not own} == {CIRCUITS[2], CIRCUITS[3]}
    (incomplete,) = problems.keys() - {CIRCUITS[2], CIRCUITS[3]}
    assert any("bench rack1 has no segment to port" in problem for problem in problems[incomplete])
    assert servers.lumion("disconnect", incomplete).returncode == 0
    assert servers.lumion("connect", *CIRCUITS[:2]).returncode == 0
    assert servers.circuits() == set(CIRCUITS)


def test_a_second_operator_waits_for_nobody(servers: FiveServers) -> None:
    holder = servers.operator(
        "original = change.JoinedMeshes._light\n"
        "def light(self, name, plan):\n"
        "    import subprocess, sys\n"
        "    command = [sys.executable, '-m', 'lumion_hw.cli', 'joined', 'connect', 'joined.yaml']\n"
        f"    command += [{CIRCUITS[1]!r}, '--state', 'state-other']\n"
        "    other = subprocess.run(command, capture_output=True, text=True)\n"
        "    print(other.returncode, other.stderr)\n"
        "    return original(self, name, plan)\n"
        "change.JoinedMeshes._light = light"
    )
    assert holder.returncode == 0, holder.stderr
    assert holder.stdout.startswith("6 "), holder.stdout
    assert servers.circuits() == {CIRCUITS[0]}
