"""Time to set and verify 64 Qontrol channels on an emulated chain, with our driver and with the maker's client.

Run: .venv/bin/python benchmarks/qontrol.py [--apart] [--modes fast,usb1,ftdi16]
Needs `pip install qontrol` for the comparison; without it only our driver is measured. Every figure is the median of
several sets, each of which is read back and compared. `--apart` serves the chain from a separate
process, because the maker's client polls while it waits and so slows an emulator in the same interpreter. In the mode
without waiting, acknowledgements stay in the input buffer of the maker's client; the benchmark removes them before it
reads. The same mode of our driver sends as far ahead (`window_bytes`).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from lumion_hw.clock import SystemClock
from lumion_hw.drivers.mesh.qontrol.controller import QontrolController
from lumion_hw.drivers.mesh.qontrol.values import Mode
from lumion_hw.errors import LumionError
from lumion_hw.links import open_link
from lumion_hw.sessions.qontrol import WINDOW_BYTES

# This file has the name of the maker's package: without its folder on the path, `import qontrol` finds that package.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

N_MODULES = 8
N = 8 * N_MODULES
RUNS = {"fast": 41, "usb1": 9, "ftdi16": 3}
TABLES = [np.round(np.linspace(0.1, 2.0, N), 4), np.round(np.linspace(9.0, 3.0, N), 4)]
TOLERANCE_MA = 0.1
OURS: dict[str, tuple[Mode, int]] = {
    "ascii": ("ascii", WINDOW_BYTES),
    "binary": ("binary", WINDOW_BYTES),
    "binary, no wait": ("binary", 1024),
}


def serve_forever(transport: str, reply_mode: str, directory: str, told) -> None:
    with served(transport, reply_mode, directory) as address:
        told.send(address)
        told.recv()


@contextlib.contextmanager
def served(transport: str, reply_mode: str, directory: str) -> Iterator[str]:
    """Serve a new chain of 64 channels; return its address."""
    from lumion_hw.emulator.mesh.qontrol import ChainProfile, ModuleSpec, QontrolChain, ReplyMode
    from lumion_hw.emulator.wires.server import EmulatorServer

    clock = SystemClock()
    chain = QontrolChain(
        "mesh0",
        clock,
        np.random.default_rng(1),
        drive=lambda currents_ma, at_s: None,
        modules=[ModuleSpec(number=index + 1) for index in range(N_MODULES)],
        profile=ChainProfile(reply_mode=ReplyMode(reply_mode)),
    )
    with EmulatorServer(clock) as server:
        address = server.add_tcp(chain) if transport == "tcp" else server.add_pty(chain, Path(directory) / reply_mode)
        with server.in_thread():
            yield address


@contextlib.contextmanager
def served_apart(transport: str, reply_mode: str, directory: str) -> Iterator[str]:
    """Serve the chain from another process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_forever, args=(transport, reply_mode, directory, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("end")
        process.join(timeout=10.0)


def check(wanted: np.ndarray, actual: np.ndarray) -> None:
    worst = float(np.abs(np.abs(wanted) - np.abs(actual)).max())
    if worst > TOLERANCE_MA:
        raise SystemExit(f"a current is {worst} mA off: the figures would be of something else")


def median_ms(work: Callable[[np.ndarray], None], runs: int) -> float:
    work(TABLES[1])
    times = []
    for run in range(runs):
        table = TABLES[run % 2]
        began = time.perf_counter()
        work(table)
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def our_times(address: str, runs: int) -> dict[str, float]:
    """Return milliseconds per set with verification, by mode of our driver."""
    times = {}
    for name, (mode, window_bytes) in OURS.items():
        clock = SystemClock()
        controller = QontrolController(
            open_link(address, clock), clock, device="mesh0", mode=mode, window_bytes=window_bytes
        )
        with controller:
            times[name] = median_ms(controller.program, runs)
    return times


@contextlib.contextmanager
def maker_client(address: str, *, binary: bool) -> Iterator[object]:
    """Return the unmodified client of the maker on a port or a TCP address."""
    import qontrol
    import serial

    plain = serial.Serial
    parts = urlsplit(address)
    name = f"socket://{parts.hostname}:{parts.port}" if parts.scheme == "tcp" else parts.path
    if parts.scheme == "tcp":
        serial.Serial = serial.serial_for_url  # type: ignore[misc, assignment]
    client = None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            client = qontrol.QXOutput(serial_port_name=name, binary_mode=binary)
        yield client
    finally:
        serial.Serial = plain  # type: ignore[misc]
        if client is not None:
            client.close()


def maker_times(address: str, runs: int) -> dict[str, float]:
    """Return milliseconds per set with verification, by mode of the maker's client."""

    def one_by_one(client) -> Callable[[np.ndarray], None]:
        def work(table: np.ndarray) -> None:
            for channel, value in enumerate(table.tolist()):
                client.i[channel] = value
            check(table, np.array(client.get_all_values("I")))

        return work

    def vectors(client) -> Callable[[np.ndarray], None]:
        def work(table: np.ndarray) -> None:
            client.set_all_values("I", table.tolist())
            check(table, np.array(client.get_all_values("I")))

        return work

    def no_wait(client) -> Callable[[np.ndarray], None]:
        def work(table: np.ndarray) -> None:
            client.wait_for_responses = False
            client.set_all_values("I", table.tolist())
            acknowledged = client.serial_port.read(len(b"OK\n") * N_MODULES)
            if acknowledged != b"OK\n" * N_MODULES:
                raise SystemExit(f"the maker's client left {acknowledged!r}")
            client.wait_for_responses = True
            check(table, np.array(client.get_all_values("I")))

        return work

    times = {}
    cases = (
        ("ascii, one by one", one_by_one, False),
        ("ascii, vectors", vectors, False),
        ("binary, one by one", one_by_one, True),
        ("binary, vectors", vectors, True),
        ("binary, no wait", no_wait, True),
    )
    for name, make, binary in cases:
        with maker_client(address, binary=binary) as client:
            times[name] = median_ms(make(client), runs)
    return times


def table_rows(transport: str, reply_mode: str, apart: bool, directory: str, compare: bool) -> Iterator[str]:
    runs = RUNS[reply_mode]
    with (served_apart if apart else served)(transport, reply_mode, directory) as address:
        ours = our_times(address, runs)
        place = f"{transport}, {reply_mode}"
        if not compare:
            for mode in OURS:
                yield f"| {place} | {mode} | – | {ours[mode]:.2f} | – |"
            return
        for name, took in maker_times(address, runs).items():
            mode = name if name in OURS else name.partition(",")[0]
            yield f"| {place} | {name} | {took:.2f} | {ours[mode]:.2f} | {took / ours[mode]:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apart", action="store_true", help="serve the chain from a separate process")
    parser.add_argument("--modes", default="fast,usb1,ftdi16", help="reply timings of the emulator")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)  # escapes in the maker's client
    try:
        import qontrol  # noqa: F401
    except ImportError:
        print("The maker's client is not installed (pip install qontrol): no comparison.\n")
        compare = False
    else:
        compare = True
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    print(f"{N} channels set and verified; {machine}")
    print(f"Chain served {'by a process of its own' if options.apart else 'by a thread of this process'}\n")
    print("| link, reply timing | mode | maker's client ms | our driver ms | maker's / ours |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="lumion-") as directory:
        for transport in ("tcp", "pty"):
            for reply_mode in options.modes.split(","):
                try:
                    for row in table_rows(transport, reply_mode, options.apart, directory, compare):
                        print(row, flush=True)
                except LumionError as error:
                    sys.exit(str(error))


if __name__ == "__main__":
    main()
