"""Cost of serving a bench: heater setpoints over PV Access compared with a bare p4p server, and many short clients.

    .venv/bin/python benchmarks/serve.py setpoints     144 heaters written and read back, compared with a bare array
    .venv/bin/python benchmarks/serve.py visitors      memory, threads and files over many short-lived clients
    .venv/bin/python benchmarks/serve.py soak          the same for hours, with clients of all kinds

The bench is the built-in one with 72 PUCs, with its devices emulated in a separate process. A bare server only stores
the array; a served bench programs it and reads it back, so the time of controller and link is measured separately.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

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
def emulated(bench: str = BENCH, seed: int = 0) -> Iterator[Path]:
    """Emulate the devices in a separate process; return the bench file with their addresses."""
    with tempfile.TemporaryDirectory() as directory:
        endpoints = Path(directory) / "endpoints.json"
        command = [sys.executable, "-m", "lumion_hw.cli", "emulate", bench, "--seed", str(seed), "--tcp-only"]
        process = subprocess.Popen([*command, "--endpoints", str(endpoints)], stderr=subprocess.DEVNULL)
        while not endpoints.exists():
            time.sleep(0.1)
        try:
            yield endpoints
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def served(
    endpoints: Path, bench: str = BENCH, more: Sequence[str] = (), tidied: Path | None = None
) -> Iterator[tuple[str, int]]:
    """Run a server in a separate process; return the address from its first output line, and the process id.

    With ``tidied``, SIGUSR1 makes the server return free memory and write its number of Python blocks to that file.
    """
    with tempfile.TemporaryDirectory() as state:
        how = ["-m", "lumion_hw.cli"] if tidied is None else ["-c", TIDIED, str(tidied)]
        command = [sys.executable, *how, "serve", bench, "--pva", "--pva-port", "0"]
        process = subprocess.Popen(
            [*command, "--endpoints", str(endpoints), "--state", state, *more],
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
    """Run a p4p server with one array in a separate process; return its address."""
    process = subprocess.Popen([sys.executable, "-c", BARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"pva://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.communicate()


def timed_ms(what: Callable[[int], object], rounds: int) -> list[float]:
    times_ms = []
    for number in range(rounds):
        began_s = time.perf_counter()
        what(number)
        times_ms.append(1e3 * (time.perf_counter() - began_s))
    return times_ms


def shown(name: str, times_ms: list[float]) -> float:
    median = statistics.median(times_ms)
    print(f"{name:58} {median:8.2f} ms median  {np.percentile(times_ms, 10):8.2f} best tenth  "
          f"{np.percentile(times_ms, 90):8.2f} worst tenth")  # fmt: skip
    return median


def measured(address: str, bare_address: str, tables: np.ndarray) -> dict[str, list[float]]:
    """Write and read back the same array on both servers in turns."""
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
    times_ms: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(2):  # in turns, so that other load affects both
        times_ms["bare"] += timed_ms(write(theirs, "bare"), half)
        times_ms["ours"] += timed_ms(write(ours, HEATERS), half)
    ours.put(f"{BENCH}:lease:owner", "")
    with Bench.attach(address) as bench:
        times_ms["call"] = timed_ms(lambda number: bench.mesh.confirmed_currents_ma(), half)
    ours.close()
    theirs.close()
    return times_ms


def setpoints(rounds: int) -> None:
    from lumion_hw import Bench

    tables, half, times_ms = np.random.default_rng(0).uniform(0.0, 1.0, (rounds, 144)), rounds // 2, {}
    with emulated() as endpoints, bare() as bare_address:
        with Bench.open(BENCH, addresses=json.loads(endpoints.read_text()), only=["mesh0"]) as own:

            def drive(number: int) -> object:
                own.mesh.program(tables[number], settle_s=0.0)
                return own.mesh.confirmed_currents_ma()

            times_ms["controller"] = timed_ms(drive, half)
        with served(endpoints) as (address, _):
            times_ms |= measured(address, bare_address, tables)
    plain = shown("bare p4p server, put and get of 144 doubles", times_ms["bare"])
    device = shown("controller alone, programmed and read back in process", times_ms["controller"])
    whole = shown("served bench, put (driven, read back) and get", times_ms["ours"])
    shown("served bench, one call of the interface (read back)", times_ms["call"])
    best = {name: float(np.percentile(times, 10)) for name, times in times_ms.items()}
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


# -- soak test: hours of short-lived clients -------------------------------------------------------------------------

SOAKED, WARM_UP_S, SAMPLE_S, FLAT_PERCENT = "small-bench", 600.0, 300.0, 5.0
HOLDER = """
import sys, time
from lumion_hw import Bench
with Bench.attach(sys.argv[1]) as bench:
    bench.meters["meter0"].set_averaging_s(1, 0.01)
    print("holds", flush=True)
    for line in sys.stdin:
        try:
            bench.meters["meter0"].set_averaging_s(1, 0.01)
        except Exception as error:
            print(type(error).__name__, flush=True)
        else:
            print("wrote", flush=True)
"""
CALIBRATE = "import sys; from lumion_hw.cli import calibrate_main; sys.exit(calibrate_main(['run', *sys.argv[1:]]))"
TIDIED = """
import ctypes, gc, signal, sys
from lumion_hw.cli import main
def tidy(*_):
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open(sys.argv[1], "w") as told:
        told.write(f"{sys.getallocatedblocks()}")
signal.signal(signal.SIGUSR1, tidy)
sys.exit(main(sys.argv[2:]))
"""
SOAK_VISIT = """
import sys
from lumion_hw import Bench
for _ in range(int(sys.argv[2])):
    with Bench.attach(sys.argv[1]) as bench:
        bench.meters["meter0"].read(1)
        next(bench.mesh.controller.telemetry(0.01))
        bench.meters["meter0"].set_averaging_s(1, 0.01)
"""
WATCHER = """
import sys, time
from p4p.client.thread import Context
conf = {"EPICS_PVA_NAME_SERVERS": sys.argv[1].removeprefix("pva://"), "EPICS_PVA_AUTO_ADDR_LIST": "NO"}
context = Context("pva", conf=conf, useenv=False)
names = ["small:meter0:power:1", "small:mesh0:heaters_ma", "small:circuits", "small:events", "small:heartbeat"]
watched = [context.monitor(name, lambda value: None) for name in names]
print("watches", flush=True)
time.sleep(3600)
"""


class OpenPage(threading.Thread):
    """A client of the page that reads all events, or none."""

    def __init__(self, address: str, reads: bool = True) -> None:
        super().__init__(daemon=True)
        host, _, port = address.removeprefix("http://").strip("/").rpartition(":")
        self._socket = socket.socket()
        if not reads:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect((host, int(port)))
        self._socket.sendall(f"GET /events HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
        self.n_updates, self.longest_silence_s = 0, 0.0
        if reads:
            self.start()

    def run(self) -> None:
        """Read until the server or the page ends."""
        heard_s = time.monotonic()
        with contextlib.suppress(OSError):
            while chunk := self._socket.recv(1 << 16):
                self.n_updates += chunk.count(b'data: {"previous"')
                heard_s, before_s = time.monotonic(), heard_s
                self.longest_silence_s = max(self.longest_silence_s, heard_s - before_s)

    def was_given_up(self) -> bool:
        """Return whether the server has closed the connection of a client that read nothing."""
        self._socket.settimeout(5.0)
        try:
            while self._socket.recv(1 << 20):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Soak:
    """Runs cycles of clients on one server and measures the memory of the server."""

    def __init__(self, pva: str, page: str, pid: int, state: Path, tidied: Path) -> None:
        self.pva, self.page, self._pid, self._state, self._tidied = pva, page, pid, state, tidied
        self.counts: Counter[str] = Counter()
        self.page_open: OpenPage | None = None

    def _process(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, self.pva, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if process.stdout is None or not process.stdout.readline().strip():
            self.counts["did not begin"] += 1
        return process

    def _end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()

    def visit(self) -> None:
        """Run attached scripts that read and disconnect, one after the other."""
        ended = subprocess.run([sys.executable, "-c", SOAK_VISIT, self.pva, "3"], timeout=120.0, check=False)
        self.counts["scripts that left" if ended.returncode == 0 else "scripts that failed"] += 3

    def die(self) -> None:
        """Kill a script while it holds the lease."""
        self._end(self._process(HOLDER))
        self.counts["killed with the lease"] += 1

    def freeze(self) -> None:
        """Freeze a script that holds the lease; after that it continues, is refused and disconnects."""
        process = self._process(HOLDER)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(6.0)
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(2.0)
        told, _ = process.communicate("write\n", timeout=60.0)
        self.counts[f"frozen, and then {told.split()[-1] if told.split() else 'silent'}"] += 1

    def recover(self) -> None:
        """Declare a server of the fabric failed, so that its spare takes over, and repair it."""
        from p4p.client.thread import Context
        from p4p.nt import NTURI

        from lumion_hw.remote.pv_names import client_conf, parse_address

        with Context("pva", conf=client_conf(*parse_address(self.pva)), useenv=False) as context:

            def rpc(name: str, **arguments: str) -> None:
                uri = NTURI([(key, "s") for key in arguments])
                try:
                    context.rpc(f"small:{name}", uri.wrap(name, kws=arguments), timeout=60.0)
                except Exception as error:  # noqa: BLE001 - count the error and continue: one error must not end a test of hours
                    self.counts[f"{name}: {type(error).__name__} {error}"[:120]] += 1
                else:
                    self.counts[name] += 1

            rpc("lease:take", owner="soak", for_s="60")
            for failed in ("b", "c"):
                rpc("fail", unit=failed)
                rpc("repaired", unit=failed)
            rpc("lease:release")

    def scrape(self) -> None:
        """Read the metrics like Prometheus."""
        with urllib.request.urlopen(f"{self.page.rstrip('/')}/metrics", timeout=10.0) as answer:
            self.counts["scrapes"] += b"lumion_reading" in answer.read()

    def cycle(self) -> None:
        """Run all clients once in 90 s, together with a PV Access client that reads nothing and a stalled page."""
        began_s, stalled = time.monotonic(), OpenPage(self.page, reads=False)
        watcher = self._process(WATCHER)
        os.kill(watcher.pid, signal.SIGSTOP)
        for step in (self.visit, self.die, self.freeze, self.recover):
            pages = [OpenPage(self.page) for _ in range(3)]
            try:
                step()
            except (OSError, subprocess.SubprocessError) as error:
                self.counts[f"{step.__name__}: {error}"[:160]] += 1
            self.scrape()
            time.sleep(3.0)
            for page in pages:
                self.counts["pages closed" if page.n_updates else "pages without a word"] += 1
                page.close()
        time.sleep(max(began_s + 75.0 - time.monotonic(), 0.0))
        self.counts["stalled pages given up" if stalled.was_given_up() else "stalled pages kept"] += 1
        stalled.close()
        self._end(watcher)
        self.counts["watchers that read nothing"] += 1
        time.sleep(max(began_s + 90.0 - time.monotonic(), 5.0))

    def _memory(self) -> tuple[float, float]:
        """Return the resident memory, in total and without mapped files."""
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self._pid}/status").read_text().splitlines())
        return tuple(round(int(status[name].split()[0]) / 1024.0, 2) for name in ("VmRSS", "RssAnon"))  # type: ignore[return-value]

    def _held(self, what: str) -> int:
        """Return the smallest number of threads or files over some time, because short queries open temporary ones."""
        counts = []
        for _ in range(20):
            counts.append(len(os.listdir(f"/proc/{self._pid}/{what}")))
            time.sleep(0.1)
        return min(counts)

    def sample(self, at_s: float) -> dict[str, object]:
        """Return memory, threads and files of the server between two cycles, before and after freeing memory."""
        rss_mb, anon_mb = self._memory()
        self._tidied.unlink(missing_ok=True)
        os.kill(self._pid, signal.SIGUSR1)
        for _ in range(100):
            if self._tidied.exists():
                break
            time.sleep(0.1)
        time.sleep(0.2)
        tidy_rss_mb, tidy_anon_mb = self._memory()
        page, files = self.page_open, list(self._state.rglob("*"))
        return {
            "at_s": round(at_s),
            "rss_mb": rss_mb,
            "anon_mb": anon_mb,
            "tidy_rss_mb": tidy_rss_mb,
            "tidy_anon_mb": tidy_anon_mb,
            "blocks": int(self._tidied.read_text() or 0),
            "threads": self._held("task"),
            "files": self._held("fd"),
            "cpu_s": cpu_s(self._pid),
            "clients_cpu_s": round(sum(os.times()[:4]), 1),
            "load": os.getloadavg()[1],
            "state_kb": {each.name: round(each.stat().st_size / 1e3, 1) for each in files if each.is_file()},
            "page_updates": 0 if page is None else page.n_updates,
            "page_longest_silence_s": 0.0 if page is None else round(page.longest_silence_s, 2),
            "counts": dict(self.counts),
        }


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def soak(hours: float, out: Path) -> None:
    """Serve a small bench with circuits, fabric and page for hours; print a line of JSON every five minutes."""
    with tempfile.TemporaryDirectory() as directory:
        record, state = Path(directory) / "record.json", Path(directory) / "state"
        calibrate = [sys.executable, "-c", CALIBRATE, SOAKED, "--emulate", "--seed", "1", "--out", str(record)]
        subprocess.run(calibrate, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        more = ["--state", str(state), "--page", "--page-port", "0", "--record", str(record), "--json"]
        tidied = Path(directory) / "tidied"
        with (
            emulated(SOAKED, 1) as endpoints,
            served(endpoints, SOAKED, more, tidied) as (told, pid),
            out.open("a") as file,
        ):
            addresses = json.loads(told)
            soaked = Soak(addresses["pva"], addresses["page"], pid, state, tidied)

            def note(kind: str, **more: object) -> None:
                line = {"kind": kind, **soaked.sample(time.monotonic() - began_s), **more}
                print(json.dumps(line), file=file, flush=True)
                samples.append(line)

            began_s, samples = time.monotonic(), list[dict[str, Any]]()
            soaked.cycle()
            note("nobody there")
            soaked.page_open = OpenPage(soaked.page)
            due_s = SAMPLE_S
            while (at_s := time.monotonic() - began_s) < 3600.0 * hours:
                soaked.cycle()
                if at_s >= due_s:
                    due_s += SAMPLE_S
                    note("soaked")
            soaked.page_open.close()
            time.sleep(60.0)
            note("nobody there")
        told_of(samples)


def told_of(samples: list[dict[str, Any]]) -> None:
    """Print whether memory stayed constant after warm-up, and remaining threads and files."""
    warm = [each for each in samples if each["kind"] == "soaked" and each["at_s"] >= WARM_UP_S]
    memory = [each["tidy_rss_mb"] for each in warm]
    for each in ("threads", "files"):
        print(f"{each} with nobody there: {samples[0][each]} after the first clients, {samples[-1][each]} in the end")
    if warm:
        growth = 100.0 * (memory[-1] / memory[0] - 1.0)
        print(f"memory from {memory[0]} to {memory[-1]} MB, {min(memory)} to {max(memory)}: {growth:+.1f} %, "
              f"{'flat' if abs(growth) <= FLAT_PERCENT else 'not flat'} to {FLAT_PERCENT:g} %")  # fmt: skip
    print(json.dumps(samples[-1]["counts"], indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["setpoints", "visitors", "soak"])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--each", type=int, default=20, help="Number of clients per visiting process.")
    parser.add_argument("--hours", type=float, default=2.0, help="Duration of the soak test.")
    parser.add_argument(
        "--out", type=Path, default=Path("soak.jsonl"), help="Output file for the JSON lines of the soak test."
    )
    given = parser.parse_args()
    threading.current_thread().name = "benchmark"
    if given.what == "setpoints":
        setpoints(given.rounds)
    elif given.what == "soak":
        soak(given.hours, given.out)
    else:
        visitors(given.rounds, given.each)


if __name__ == "__main__":
    main()
