"""What serving a bench costs: heater setpoints over PV Access beside a bare p4p server, and clients that come and go.

    .venv/bin/python benchmarks/serve.py setpoints     144 heaters written and read back, beside the same array bare
    .venv/bin/python benchmarks/serve.py visitors      memory, threads and files over many clients that come and go

The bench is the built-in one with its 72 PUCs, its devices emulated in a process of their own. A bare server keeps the
array; a served bench drives it and reads it back, so what its controller and its line take is measured in the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

BENCH, HEATERS = "lumion-prototype", "lumion-prototype:mesh0:heaters_ma"
BARE = """
import sys, time
import numpy as np
from p4p.nt import NTScalar
from p4p.server import Server
from p4p.server.thread import SharedPV
pv = SharedPV(nt=NTScalar("ad", display=True), initial=np.zeros(144))
@pv.put
def put(pv, op):
    pv.post(op.value())
    op.done()
conf = {"EPICS_PVAS_INTF_ADDR_LIST": "127.0.0.1", "EPICS_PVAS_SERVER_PORT": "0", "EPICS_PVAS_BROADCAST_PORT": "0",
        "EPICS_PVAS_BEACON_ADDR_LIST": "127.0.0.1", "EPICS_PVAS_AUTO_BEACON_ADDR_LIST": "NO"}
server = Server(providers=[{"bare": pv}], conf=conf, useenv=False)
print(server.conf()["EPICS_PVAS_SERVER_PORT"], flush=True)
sys.stdin.read()
"""
VISIT = """
import sys
from lumion_hw import Bench
for _ in range(int(sys.argv[2])):
    with Bench.attach(sys.argv[1]) as bench:
        bench.meters["meter0"].read(1)
        next(bench.mesh.controller.telemetry(0.01))
        bench.polarization["pol-s0n0"].settle_s
"""


@contextlib.contextmanager
def emulated() -> Iterator[Path]:
    """The devices in a process of their own, as hardware is; gives the file with their addresses."""
    with tempfile.TemporaryDirectory() as directory:
        endpoints = Path(directory) / "endpoints.json"
        command = [sys.executable, "-m", "lumion_hw.cli", "emulate", BENCH, "--tcp-only", "--endpoints", str(endpoints)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not endpoints.exists():
            time.sleep(0.1)
        try:
            yield endpoints
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def served(endpoints: Path) -> Iterator[tuple[str, int]]:
    """A server in a process of its own; gives address and process id."""
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "lumion_hw.cli", "serve", BENCH, "--pva", "--pva-port", "0"]
        process = subprocess.Popen(
            [*command, "--endpoints", str(endpoints), "--state", state],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise SystemExit("the server did not start")
        try:
            yield address, process.pid
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def bare() -> Iterator[str]:
    """A p4p server with one array, in a process of its own; gives its address."""
    process = subprocess.Popen([sys.executable, "-c", BARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"pva://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.communicate()


def timed_ms(what: Callable[[int], object], rounds: int) -> list[float]:
    found = []
    for number in range(rounds):
        began_s = time.perf_counter()
        what(number)
        found.append(1e3 * (time.perf_counter() - began_s))
    return found


def shown(name: str, times_ms: list[float]) -> float:
    median = statistics.median(times_ms)
    print(f"{name:58} {median:8.2f} ms median  {np.percentile(times_ms, 10):8.2f} best tenth  "
          f"{np.percentile(times_ms, 90):8.2f} worst tenth")  # fmt: skip
    return median


def measured(address: str, bare_address: str, tables: np.ndarray) -> dict[str, list[float]]:
    """Write and read back the same array on both servers, in turns."""
    from p4p.client.thread import Context

    from lumion_hw import Bench
    from lumion_hw.remote.pv_names import client_conf, parse_address

    ours = Context("pva", conf=client_conf(*parse_address(address)), useenv=False)
    theirs = Context("pva", conf=client_conf(*parse_address(bare_address)), useenv=False)
    ours.put(f"{BENCH}:lease:owner", "benchmark")
    ours.put(HEATERS, tables[0])

    def write(context: Context, name: str) -> Callable[[int], object]:
        def once(number: int) -> object:
            context.put(name, tables[number], get=False)
            return context.get(name)

        return once

    half = len(tables) // 2
    found: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(2):  # in turns: a machine that is busy is so for both
        found["bare"] += timed_ms(write(theirs, "bare"), half)
        found["ours"] += timed_ms(write(ours, HEATERS), half)
    ours.put(f"{BENCH}:lease:owner", "")
    with Bench.attach(address) as bench:
        found["call"] = timed_ms(lambda number: bench.mesh.driven_ma(), half)
    ours.close()
    theirs.close()
    return found


def setpoints(rounds: int) -> None:
    from lumion_hw import Bench

    tables, half, found = np.random.default_rng(0).uniform(0.0, 1.0, (rounds, 144)), rounds // 2, {}
    with emulated() as endpoints, bare() as bare_address:
        with Bench.open(BENCH, addresses=json.loads(endpoints.read_text()), only=["mesh0"]) as own:

            def drive(number: int) -> object:
                own.mesh.program(tables[number], settle_s=0.0)
                return own.mesh.driven_ma()

            found["controller"] = timed_ms(drive, half)
        with served(endpoints) as (address, _):
            found |= measured(address, bare_address, tables)
    plain = shown("bare p4p server, put and get of 144 doubles", found["bare"])
    device = shown("controller alone, programmed and read back in process", found["controller"])
    whole = shown("served bench, put (driven, read back) and get", found["ours"])
    shown("served bench, one call of the interface (read back)", found["call"])
    best = {name: float(np.percentile(times, 10)) for name, times in found.items()}
    print(
        f"served over bare and controller together: {whole / (plain + device):.2f} by medians, "
        f"{best['ours'] / (best['bare'] + best['controller']):.2f} by best tenths; "
        f"over bare, which drives nothing: {whole / plain:.1f}"
    )


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024.0


def visitors(rounds: int, each: int) -> None:
    with emulated() as endpoints, served(endpoints) as (address, pid):

        def visit() -> None:
            subprocess.run([sys.executable, "-c", VISIT, address, str(each)], check=True)

        visit()
        time.sleep(5.0)
        begun = resident_mb(pid), len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))
        print(f"after {each} clients: {begun[0]:.1f} MB, {begun[1]} threads, {begun[2]} files")
        for number in range(rounds):
            visit()
            if (number + 1) % max(rounds // 5, 1) == 0:
                print(f"after {(number + 2) * each} clients: {resident_mb(pid):.1f} MB")
        time.sleep(5.0)
        ended = resident_mb(pid), len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))
        print(f"in the end: {ended[0]:.1f} MB ({100.0 * (ended[0] / begun[0] - 1.0):+.1f} %), "
              f"{ended[1]} threads, {ended[2]} files")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["setpoints", "visitors"])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--each", type=int, default=20, help="Clients of one visiting process.")
    given = parser.parse_args()
    threading.current_thread().name = "benchmark"
    if given.what == "setpoints":
        setpoints(given.rounds)
    else:
        visitors(given.rounds, given.each)


if __name__ == "__main__":
    main()
