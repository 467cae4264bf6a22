"""Cost of serving benches of 3 and 23 devices: `*IDN?` round trip, a Qontrol set, idle CPU, start time.

Run: .venv/bin/python benchmarks/emulator_latency.py [--rounds 20] [--idle-s 10]
Both benches are served by `lumion emulate` at the same time, in separate processes on loopback, and queried in turns.
Other load affects both equally, so the ratio is more reliable than the times. A bare socket server that echoes the same
bytes is measured too. CPU time is that of the serving processes.

Goals: 23 devices answer within 1.5x of 3; a set of a Qontrol channel takes 5 ms (16 bytes there and back at 115 200
baud, 1 ms in the module, and what the host needs); idle below 3 % of a core; start under 3 s.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import yaml

GOAL_RATIO, GOAL_SET_MS, GOAL_IDLE, GOAL_START_S = 1.5, 5.0, 0.03, 3.0
QUERIES = 50
EXTRA = {
    "pm": {"kind": "thorlabs-pm", "model": "PM160"},
    "q0": {"kind": "qontrol-q8"},
    "pm-b": {"kind": "thorlabs-pm"},
    "pm-c": {"kind": "thorlabs-pm"},
    "mpc": {"kind": "thorlabs-mpc"},
}


def bench_file(directory: Path, n_devices: int) -> Path:
    """Write the built-in prototype with five more instruments (23 devices), or its mesh and two instruments (3)."""
    document = yaml.safe_load((files("lumion_hw.bench") / "builtin" / "lumion-prototype.yaml").read_text())
    document["devices"] |= EXTRA
    if n_devices == 3:
        document["devices"] = {name: document["devices"][name] for name in ("mesh0", "pm", "q0")}
        for part in ("wiring", "servers", "fabric"):
            document.pop(part, None)
    assert len(document["devices"]) == n_devices, len(document["devices"])
    path = directory / f"bench-{n_devices}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


class Served:
    """A served bench in a separate process."""

    def __init__(self, directory: Path, n_devices: int) -> None:
        bench, endpoints = bench_file(directory, n_devices), directory / f"endpoints-{n_devices}.json"
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lumion_hw.cli", "emulate", str(bench), "--endpoints", str(endpoints), "--tcp-only"],
            stderr=subprocess.DEVNULL,
        )
        while not endpoints.exists():
            if self.process.poll() is not None:
                raise SystemExit(f"lumion emulate ended with {self.process.returncode}")
            time.sleep(0.005)
        self.start_s = time.perf_counter() - began
        self.addresses: dict[str, str] = json.loads(endpoints.read_text())

    def dial(self, device: str) -> socket.socket:
        """Connect to a device."""
        host, port = self.addresses[device].removeprefix("tcp://").split(":")
        connection = socket.create_connection((host, int(port)), timeout=30.0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def cpu_s(self) -> float:
        """Return the CPU time used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait(10.0)


def ask(connection: socket.socket, request: bytes) -> bytes:
    """Send a request and return the reply line."""
    connection.sendall(request)
    reply = b""
    while not reply.endswith(b"\n"):
        data = connection.recv(4096)
        if not data:
            raise EOFError(f"hung up after {reply!r}")
        reply += data
    return reply


def median_ms(connection: socket.socket, request: bytes, count: int = QUERIES) -> float:
    """Return the median round trip of some requests."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        ask(connection, request)
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


@contextlib.contextmanager
def echo() -> Iterator[socket.socket]:
    """Connect to an echo server, which is the fastest possible peer."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(4096):
                    connection.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        with socket.create_connection(server.getsockname()) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--idle-s", type=float, default=10.0)
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        small, large = Served(directory, 3), Served(directory, 23)
        stack.callback(small.close)
        stack.callback(large.close)
        time.sleep(1.0)
        before, began = [each.cpu_s() for each in (small, large)], time.perf_counter()
        time.sleep(arguments.idle_s)
        took = time.perf_counter() - began
        idle = [(each.cpu_s() - used) / took for each, used in zip((small, large), before, strict=True)]
        meters = [stack.enter_context(each.dial("pm")) for each in (small, large)]
        chains = [stack.enter_context(each.dial("q0")) for each in (small, large)]
        bare = stack.enter_context(echo())
        rounds = [
            (
                *(median_ms(meter, b"*IDN?\n") for meter in meters),
                *(median_ms(chain, b"V0=1.25\n", 10) for chain in chains),
                median_ms(bare, b"*IDN?\n"),
            )
            for _ in range(arguments.rounds)
        ]
        identity = [statistics.median(each[place] for each in rounds) for place in (0, 1)]
        sets = [statistics.median(each[place] for each in rounds) for place in (2, 3)]
        ratio = statistics.median(each[1] / each[0] for each in rounds)
        loop_ms = statistics.median(each[4] for each in rounds)
    print(
        f"{arguments.rounds} rounds of {QUERIES} queries; an echo of the same bytes by a bare socket: {loop_ms:.3f} ms"
    )
    print()
    print("| what | 3 devices | 23 devices | ratio | goal |")
    print("|---|---|---|---|---|")
    print(f"| `*IDN?`, ms | {identity[0]:.3f} | {identity[1]:.3f} | {ratio:.2f} | ratio {GOAL_RATIO} |")
    print(f"| Qontrol set, ms | {sets[0]:.2f} | {sets[1]:.2f} | {sets[1] / sets[0]:.2f} | {GOAL_SET_MS} ms |")
    print(f"| idle, % of a core | {100 * idle[0]:.1f} | {100 * idle[1]:.1f} | – | {100 * GOAL_IDLE:.0f} % |")
    print(f"| start, s | {small.start_s:.2f} | {large.start_s:.2f} | – | {GOAL_START_S} s |")


if __name__ == "__main__":
    main()
