"""A served bench in processes of its own: a server or a client is struck, and the next one looks at what is left.

Instants are of the wall clock here: a try with the same seed is not the same try to the millisecond.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.random import Generator

from lumion_hw.bench.bench import load
from lumion_hw.bench.emulated import emulated_on_wires
from lumion_hw.emulator.assembly import EmulatedBench
from lumion_hw.errors import BusyError, ConfigError
from lumion_hw.fabric import read_fabric
from lumion_hw.remote.pv_names import client_conf, parse_address
from tests.chaos.scene import Fault, Findings, is_lit
from tests.circuits.known_mesh import SMALL
from tests.recorded_calibration import RECORD, SEED

LAYER = "served bench"
PATIENCE_S = 60.0
CLIENT = """
import sys, time
from lumion_hw import Bench
from lumion_hw.errors import BusyError
end_s = time.monotonic() + float(sys.argv[2])
with Bench.attach(sys.argv[1]) as bench:
    while True:
        try:
            bench.meters["meter0"].set_averaging_s(1, 0.02)
        except BusyError:
            if time.monotonic() > end_s:
                raise
        else:
            print("holding", flush=True)
        time.sleep(0.05)
"""
"""A script that holds the lease, or asks for it for some seconds."""
LEASE_S = 20.0
"""Longer than any lease without its holder."""
WATCHED_S = 1.0
"""Time in which a server that was frozen may blame somebody."""


@dataclass
class ServedScene:
    """A served bench, its emulator, and what a person may do.

    Attributes:
        hurt: Servers that the fault touches.
    """

    rng: Generator
    emulated: EmulatedBench
    addresses: dict[str, str]
    directory: Path
    findings: Findings
    hurt: set[str] = field(default_factory=set)
    process: subprocess.Popen[str] | None = None
    address: str = ""

    def command(self, state: str) -> list[str]:
        """Return the command that serves the bench with a state directory."""
        endpoints = self.directory / "endpoints.json"
        endpoints.write_text(json.dumps(self.addresses))
        command = [sys.executable, "-m", "lumion_hw.cli", "serve", str(SMALL), "--endpoints", str(endpoints), "--json"]
        command += ["--record", str(RECORD), "--state", str(self.directory / state), "--pva", "--pva-port", "0"]
        return [*command, "--leave-on", "600"]

    def start(self) -> None:
        """Start the server, and wait until its job is connected or refused."""
        log = (self.directory / "server.log").open("a")
        self.process = subprocess.Popen(self.command("state"), stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.findings.broken.append(f"the server did not start: {self.log()}")
            return
        self.address = json.loads(line)["pva"]
        self.await_settled()

    def log(self) -> str:
        """Return the end of what the servers have printed."""
        return (self.directory / "server.log").read_text()[-300:]

    def status(self) -> dict[str, Any]:
        """Return the status of the fabric, as the server reports it; empty if it does not answer."""
        from p4p.client.thread import Context
        from p4p.nt import NTURI

        host, port = parse_address(self.address)
        with contextlib.suppress(Exception), Context("pva", conf=client_conf(host, port), useenv=False) as client:
            answer = client.rpc("small:status", NTURI([]).wrap("status"), timeout=5.0)
            return dict(json.loads(answer["result"]))
        return {}

    def await_settled(self) -> dict[str, Any]:
        """Wait until the job is connected by proven light, or refused; return the status, empty without a server."""
        end_s = time.monotonic() + PATIENCE_S
        status: dict[str, Any] = {}
        while time.monotonic() < end_s:
            if self.process is None or self.process.poll() is not None:
                return {}
            status = self.status()
            jobs = status.get("jobs", [])
            if jobs and all(job["condition"] == "refused" for job in jobs):
                return status
            if jobs and all(job["condition"] == "connected" for job in jobs) and not self.dark(status):
                return status
            time.sleep(0.2)
        return status

    def dark(self, status: dict[str, Any]) -> list[str]:
        """Return the circuits of connected jobs that are dark by the emulated truth."""
        names = [name for job in status.get("jobs", []) if job["condition"] == "connected" for name in job["circuits"]]
        return [name for name in names if not is_lit(self.emulated, name)]

    def end(self, number: int) -> None:
        """End the server by a signal, and wait for its end."""
        assert self.process is not None
        self.process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE_S)
        if self.process.poll() is None:
            self.findings.broken.append("the server did not end")
            self.process.kill()
        self.process.communicate()

    def wait(self, longest_s: float) -> None:
        """Let a random time pass, up to a longest one."""
        time.sleep(float(self.rng.uniform(0.0, longest_s)))

    def dies(self) -> str:
        """Let a random server of the job lose its power."""
        name = str(self.rng.choice(["a", "b"]))
        self.hurt.add(name)
        self.emulated.faults.kill_modules([f"sfp-{name}"])
        return name


def run(fault: Fault, rng: Generator, directory: Path) -> Findings:
    """Try a fault of a served bench."""
    findings = Findings()
    with emulated_on_wires(load(SMALL), SEED) as (emulated, addresses):
        scene = ServedScene(rng, emulated, dict(addresses), directory, findings)
        scene.start()
        try:
            if not findings.broken:
                fault.strike(scene)
                judge(scene)
        finally:
            if scene.process is not None and scene.process.poll() is None:
                scene.end(signal.SIGTERM)
        _judge_journals(scene)
    return findings


def judge(scene: ServedScene) -> None:
    """Wait until the job is connected or refused; look at truth, alarms and blame."""
    status, findings = scene.await_settled(), scene.findings
    findings.story.append(json.dumps({key: status.get(key) for key in ("jobs", "alarms")}))
    if not status:
        findings.broken.append(f"the server does not answer: {scene.log()}")
        return
    reported = json.dumps([alarm for alarm in status["alarms"] if alarm["severity"] == "major"])
    findings.lost += [name for name in scene.dark(status) if name not in reported]
    for job in status["jobs"]:
        if job["condition"] not in ("connected", "refused"):
            findings.broken.append(f"job {job['name']} is {job['condition']}: {job['reason']}")


def _judge_journals(scene: ServedScene) -> None:
    try:
        state, _ = read_fabric(scene.directory / "state")
    except ConfigError as error:
        scene.findings.by_hand.append(str(error))
        return
    scene.findings.blamed += [f"{name} ({state.failed[name]})" for name in sorted(set(state.broken) - scene.hurt)]


# -- strikes


def server_killed(scene: ServedScene) -> None:
    """Kill the server, and start it again."""
    scene.wait(1.0)
    scene.end(signal.SIGKILL)
    scene.start()


def server_killed_in_a_recovery(scene: ServedScene) -> None:
    """A server of the job dies; the program is killed while it replaces it, and started again."""
    scene.dies()
    scene.wait(1.5)
    scene.end(signal.SIGKILL)
    scene.start()


def server_terminated(scene: ServedScene) -> None:
    """End the server by SIGTERM, also in a recovery, and start it again."""
    if scene.rng.integers(2):
        scene.dies()
    scene.wait(1.5)
    scene.end(signal.SIGTERM)
    scene.start()


def server_stopped(scene: ServedScene) -> None:
    """Freeze the server for longer or shorter than the watchdog time."""
    assert scene.process is not None
    scene.process.send_signal(signal.SIGSTOP)
    scene.wait(5.0)
    scene.process.send_signal(signal.SIGCONT)
    time.sleep(WATCHED_S)


def server_dies(scene: ServedScene) -> None:
    """A server of the job loses its power."""
    scene.wait(1.0)
    scene.dies()


def disk_full(scene: ServedScene) -> None:
    """The disk is full when a server of the job dies; then there is room again."""
    assert scene.process is not None
    sizes = [path.stat().st_size for path in (scene.directory / "state").glob("*.jsonl")]
    limit = max(sizes) + int(scene.rng.integers(0, 3000))
    resource.prlimit(scene.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    scene.dies()
    scene.wait(4.0)
    if scene.process.poll() is None:
        resource.prlimit(scene.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if not scene.await_settled():
        scene.start()


def hold_of_another_user(scene: ServedScene) -> None:
    """Another user wants to hold the circuits, with the same state directory or with another one."""
    scene.wait(1.0)
    endpoints, record = str(scene.directory / "endpoints.json"), str(RECORD)
    state = str(scene.directory / str(scene.rng.choice(["state", "elsewhere"])))
    command = [sys.executable, "-m", "lumion_hw.cli", "hold", str(SMALL), "--endpoints", endpoints, "--record", record]
    second = subprocess.run(
        [*command, "--state", state, "--connect", "sfp-a:sfp-b", "--for", "1s"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "LOGNAME": "another"},
    )
    scene.findings.story.append(f"hold with {state}: exit {second.returncode}, {second.stderr[-300:]}")
    if second.returncode != BusyError.exit_code:
        scene.findings.broken.append(f"the other user was not refused: exit {second.returncode}")


def second_server(scene: ServedScene) -> None:
    """A second server is started, with the same state directory or with another one."""
    scene.wait(1.0)
    state = str(scene.rng.choice(["state", "elsewhere"]))
    second = subprocess.run(
        scene.command(state), capture_output=True, text=True, timeout=PATIENCE_S, check=False, stdin=subprocess.DEVNULL
    )
    scene.findings.story.append(f"second server in {state}: exit {second.returncode}, {second.stderr[-300:]}")
    if second.returncode in (0, 1):
        scene.findings.broken.append(f"the second server was not refused: exit {second.returncode}")


@contextlib.contextmanager
def client(scene: ServedScene) -> Iterator[subprocess.Popen[str]]:
    """Run a client that holds the lease."""
    command = [sys.executable, "-c", CLIENT, scene.address, str(LEASE_S)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "holding\n":
            scene.findings.broken.append(f"no lease within {LEASE_S:g} s")
        yield process
    finally:
        process.kill()
        process.communicate()


def _ends_lease(number: int) -> Callable[[ServedScene], None]:
    def strike(scene: ServedScene) -> None:
        with client(scene) as holder:
            scene.wait(0.5)
            os.kill(holder.pid, number)
            with client(scene):  # gets the lease, sooner or later
                pass

    return strike


def two_operators(scene: ServedScene) -> None:
    """A second operator wants to change what the first one holds."""
    with client(scene):
        command = [sys.executable, "-c", CLIENT, scene.address, "0"]
        second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if "BusyError" not in second.stderr:
            scene.findings.broken.append(f"the second operator was not refused: {second.stderr[-200:]}")


FAULTS = tuple(
    Fault(name, LAYER, promise, strike, 0.1)
    for name, promise, strike in (
        ("server process killed", "the next one finds every circuit connected", server_killed),
        ("server process killed in a recovery", "the next one finishes it", server_killed_in_a_recovery),
        ("server process ended by SIGTERM", "it ends within 5 s; the next one goes on", server_terminated),
        ("server process frozen for 0 to 5 s", "all circuits come back; no server is blamed", server_stopped),
        ("server of a job loses power", "a spare replaces it", server_dies),
        ("disk full in a recovery", "it is finished when there is room, or by the next server process", disk_full),
        ("second server process", "refused with exit code 6; the first does not notice", second_server),
        ("`lumion hold` of another user", "refused with exit code 6; the server does not notice", hold_of_another_user),
        ("client with the lease killed", "the lease is free at once", _ends_lease(signal.SIGKILL)),
        ("client with the lease frozen", "the lease is free after 3 s", _ends_lease(signal.SIGSTOP)),
        ("two operators", "the second is refused and told who holds the lease", two_operators),
    )
)
