"""Run a served bench for a day of virtual time with new clients every minute, and measure the growth of resources.

    .venv/bin/python benchmarks/served_day.py [--hours 24] [--keep-s 2]

The small bench is emulated in this process on virtual time, with the same owner as in `lumion serve`. Every minute all
devices are read, circuits are maintained for two seconds, and a client takes the lease, changes a setting and starts a
stream of the controller; then it disconnects, dies or stops responding, in turns. Pages and metrics are read. Every
half hour the circuits are torn down and connected again; every hour a module has no power for a minute. The clients
are stand-ins in this process with real connections that carry no data; `serve.py soak` has real clients. Memory is
that of the whole process, including the emulator.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

BENCH, SEED, MINUTE_S, WARM_UP_H, FLAT_PERCENT = "small-bench", 1, 60.0, 2.0, 5.0
CALIBRATE = "import sys; from lumion_hw.cli import calibrate_main; sys.exit(calibrate_main(['run', *sys.argv[1:]]))"
CIRCUITS = "sfp-a:sfp-b,sfp-b:sfp-a"


class Clients:
    """Stand-ins for clients, each with its own connection."""

    def __init__(self, owner: Any) -> None:
        from lumion_hw.serving.metrics import BenchMetrics
        from lumion_hw.serving.page.stream import UpdateStream

        self._owner, self._listener = owner, socket.create_server(("127.0.0.1", 0))
        self._pages, self._left = UpdateStream(owner, {}), list[tuple[socket.socket, socket.socket]]()
        self._metrics = BenchMetrics(owner, self._pages)
        self._numbers, self._page_at = itertools.count(1), 0

    def visit(self) -> None:
        """Run one client from connection to end."""
        from lumion_hw.remote.codec import encode
        from lumion_hw.serving.calls import handle_request
        from lumion_hw.serving.lease import Caller

        owner, number = self._owner, next(self._numbers)
        there = socket.create_connection(self._listener.getsockname())
        here, (host, port) = self._listener.accept()
        caller = Caller(f"client {number}", f"{host}:{port}", "ada@lab")

        def ask(device: str, method: str, *arguments: object, lease: int | None = None) -> Any:
            values = {"arguments": [encode(each) for each in arguments], "named": encode({})}
            request = {"device": device, "method": method, **values, "lease": lease}
            answer = handle_request(request, caller, owner.calls, owner.lease, {})
            if "error" in answer:
                raise SystemExit(f"{device} {method}: {answer['error']}")
            return answer

        with owner.subscribe() as states:
            states.wait(0.0)
            lease = ask("", "take", f"client {number}", 3.0)["value"]
            ask("meter0", "set_averaging_s", 1, 0.01, lease=lease)
            stream = ask("mesh0", "telemetry", 0.01)["handle"]
            ask(stream, "__next__")
            if number % 3 == 0:
                ask(stream, "close")
                ask("", "release", lease=lease)
        if number % 3 == 2:  # stops responding while it has lease and stream; its connection stays open for minutes
            self._left.append((there, here))
            return
        there.close()
        here.close()

    def look(self) -> None:
        """Read an open page, a new page, and the metrics."""
        self._page_at, _ = self._pages.message(self._page_at)
        self._pages.message(0)
        self._metrics.text()

    def close(self, most: int = 0) -> None:
        """Close the connections of all clients that stopped responding, except the last."""
        while len(self._left) > most:
            for each in self._left.pop(0):
                each.close()

    def end(self) -> None:
        """Close all connections."""
        self.close()
        self._pages.close()
        self._listener.close()


def job(owner: Any, what: str, **arguments: object) -> None:
    """Run a job of a client in the owner."""
    from lumion_hw.serving.lease import Caller

    caller = Caller("operator", "", "operator@lab")
    owner.lease.take("operator", caller, lasts_s=600.0, bound=False)
    owner.ask(what, arguments, caller)
    owner.step(0.0)
    owner.lease.release(caller)
    if not owner.state.job.is_over or owner.state.job.error:
        raise SystemExit(f"{what}: {owner.state.job}")


def minute(owner: Any, bench: Any, clients: Clients, number: int, keep_s: float) -> None:
    """Simulate one minute of the day."""
    end_s = bench.clock.now() + MINUTE_S
    if number % 30 == 29:
        job(owner, "disconnect")
        job(owner, "connect", circuits=CIRCUITS)
    faults = bench.emulated.faults
    if number % 60 == 40:
        faults.kill_modules(["sfp-c"])
    elif number % 60 == 41:
        faults.revive_modules(["sfp-c"])
    owner.step(keep_s)
    clients.visit()
    clients.look()
    clients.close(most=1)
    bench.clock.sleep(max(end_s - bench.clock.now(), 0.0))
    owner.step(0.0)


def sample(state: Path) -> dict[str, Any]:
    """Return memory, threads and files of this process."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    sizes = {each.name: each.stat().st_size for each in state.rglob("*") if each.is_file()}
    return {
        "rss_mb": int(status["VmRSS"].split()[0]) / 1024.0,
        "objects": len(gc.get_objects()),
        "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),
        "events_kb": sizes.get("events.jsonl", 0) / 1e3,
        "journal_kb": sizes.get("circuits.jsonl", 0) / 1e3,
    }


def day(hours: float, keep_s: float, directory: Path) -> list[dict[str, Any]]:
    """Simulate the hours; return the resources of the process after the first minutes and after every hour."""
    from lumion_hw import Bench
    from lumion_hw.circuits import BenchLock
    from lumion_hw.clock import VirtualClock
    from lumion_hw.serving.owner import BenchOwner

    record, clock, began_s = directory / "record.json", VirtualClock(), time.time()
    subprocess.run([sys.executable, "-c", CALIBRATE, BENCH, "--emulate", "--seed", str(SEED), "--out", str(record)],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)  # fmt: skip
    state, samples = directory / "state", list[dict[str, Any]]()
    with BenchLock(state, "served day") as lock, Bench.emulate(BENCH, seed=SEED, clock=clock) as bench:
        bench.events.write_to(state / "events.jsonl")
        owner = BenchOwner(bench, lock, state, record, fabric=False, clock=clock, wall_s=lambda: began_s + clock.now())
        clients = Clients(owner)
        owner.step(0.0)
        job(owner, "connect", circuits=CIRCUITS)
        for number in range(round(60.0 * hours)):
            minute(owner, bench, clients, number, keep_s)
            if number % 60 == 59:
                samples.append(sample(state))
                text = "  ".join(f"{name} {value:.10g}" for name, value in samples[-1].items())
                print(f"{(number + 1) // 60:3d} h  {text}", flush=True)
        clients.end()
        owner.stop()
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--keep-s", type=float, default=2.0, help="Time of circuit maintenance per minute, in seconds.")
    given, began_s, before = parser.parse_args(), time.monotonic(), threading.active_count()
    with tempfile.TemporaryDirectory() as directory:
        samples = day(given.hours, given.keep_s, Path(directory))
    warm = samples[min(int(WARM_UP_H), len(samples)) - 1 :]
    for name in ("rss_mb", "objects"):
        first, last = warm[0][name], warm[-1][name]
        grown = 100.0 * (last / first - 1.0)
        flat = "flat" if grown <= FLAT_PERCENT else "not flat"
        print(f"{name} {first:.10g} to {last:.10g} ({grown:+.1f} %): {flat} to {FLAT_PERCENT:g} %")
    print(f"threads {warm[0]['threads']} to {warm[-1]['threads']}, files {warm[0]['files']} to {warm[-1]['files']}; "
          f"threads left over in the end: {threading.active_count() - before}")  # fmt: skip
    print(f"{given.hours:g} h in {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main()
