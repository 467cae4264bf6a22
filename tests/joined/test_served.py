"""Joined benches that other processes serve: four racks and a spine, each with its server and its emulator."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.joined.served_benches import ServedBenches, with_free_ports
from tests.waiting import PATIENCE_S, Bound

# Five servers at a time keep two cores busy for minutes.
pytestmark = [pytest.mark.long, pytest.mark.campaign]

EXAMPLE = Path(__file__).parents[2] / "examples" / "four_racks"
SEED = 7
CIRCUITS = ("rack0:sfp0:rack1:sfp1", "rack1:sfp0:rack2:sfp3", "rack2:sfp5:rack3:sfp5", "rack3:sfp7:rack0:sfp0")


@dataclass
class FiveServers(ServedBenches):
    """The servers of the example, on free ports."""

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


@pytest.fixture
def servers(tmp_path: Path, not_for_ever: Bound) -> Iterator[FiveServers]:
    for source in EXAMPLE.glob("*.yaml"):
        text = with_free_ports(source.read_text(encoding="utf-8"))
        (tmp_path / source.name).write_text(text, encoding="utf-8")
    run_script(tmp_path, EXAMPLE / "emulated_records.py")
    with FiveServers(tmp_path, SEED, not_for_ever).running() as servers:
        yield servers


def run_script(folder: Path, script: Path) -> None:
    """Run a script in a folder."""
    subprocess.run([sys.executable, str(script)], cwd=folder, check=True, timeout=PATIENCE_S)


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
