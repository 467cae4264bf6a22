"""Time of queries and blocks over TCP with our SCPI session, a bare socket and PyMeasure.

Run: .venv/bin/python benchmarks/instruments.py [--queries 20000] [--samples 1000000]
PyMeasure is optional: without `pip install pymeasure` only the rest is measured. The instrument is a separate process
on loopback with fixed replies, so that the figures are those of the host. Every reply is checked. Rounds of the clients
alternate, and a ratio is the median of the ratios of all rounds.

Goals: a query within 2x of the bare socket and at most PyMeasure's time; a block at
least at 0.5 of the bare socket's rate, even if every byte is a line feed.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import platform
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from lumion_hw.clock import SystemClock
from lumion_hw.links import TcpLink
from lumion_hw.sessions.scpi import ScpiSession

IDENTITY = b"Keysight Technologies,N7744C,MY1,1.0\n"
QUERY, REPLY = "READ1:POW?", "+1.33555600E-006"
ROUNDS = 15
BLOCK_ROUNDS = 61
GOAL_QUERY, GOAL_BLOCK = 2.0, 0.5


def payloads(n_samples: int) -> dict[str, bytes]:
    """Return the test blocks: powers as float32, and line feeds only."""
    powers = np.random.default_rng(1).uniform(1e-9, 1e-3, n_samples).astype("<f4")
    return {"powers": powers.tobytes(), "all 0x0A": b"\n" * 4 * n_samples}


def serve(n_samples: int, told) -> None:
    """Answer three queries, one connection after the other, until the process ends."""
    blocks = [b"#%d%d%s\n" % (len(str(len(each))), len(each), each) for each in payloads(n_samples).values()]
    answers = {b"*IDN?": IDENTITY, QUERY.encode(): REPLY.encode() + b"\n", b"BLOCK0?": blocks[0], b"BLOCK1?": blocks[1]}
    server = socket.create_server(("127.0.0.1", 0))
    told.send(server.getsockname()[1])
    while True:
        connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := connection.recv(4096):
                for line in data.splitlines():
                    connection.sendall(answers[line.strip()])


@contextlib.contextmanager
def instrument(n_samples: int) -> Iterator[int]:
    """Run the instrument in a separate process; return its port."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(n_samples, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join(10.0)


class Bare:
    """A bare socket with the minimal work of a client."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def query(self) -> str:
        """Query one reading."""
        self.socket.sendall(QUERY.encode() + b"\n")
        data = self.socket.recv(4096)
        while not data.endswith(b"\n"):
            data += self.socket.recv(4096)
        return data.decode().strip()

    def block(self, command: str) -> memoryview:
        """Fetch a block into one buffer, without a copy."""
        self.socket.sendall(command.encode() + b"\n")
        head = self.socket.recv(2, socket.MSG_WAITALL)
        length = int(self.socket.recv(int(head[1:]), socket.MSG_WAITALL))
        payload = bytearray(length + 1)
        view = memoryview(payload)
        while view:
            view = view[self.socket.recv_into(view) :]
        return memoryview(payload)[:-1]

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class Ours:
    """Our SCPI session, with lock, deadline, check for stray bytes, and counters."""

    def __init__(self, port: int) -> None:
        clock = SystemClock()
        self.session = ScpiSession(TcpLink("127.0.0.1", port, clock), clock, device="bench")
        self.session.open()

    def query(self) -> str:
        """Query one reading."""
        return self.session.query(QUERY)

    def block(self, command: str) -> bytes:
        """Fetch a block."""
        return self.session.query_block(command, 30.0)

    def close(self) -> None:
        """Close the connection."""
        self.session.close()


class PyMeasure:
    """PyMeasure's instrument class on pyvisa-py, used as in its documentation."""

    def __init__(self, port: int) -> None:
        from pymeasure.instruments import Instrument

        self.instrument = Instrument(
            f"TCPIP::127.0.0.1::{port}::SOCKET",
            "meter",
            includeSCPI=False,
            visa_library="@py",
            read_termination="\n",
            write_termination="\n",
        )

    def query(self) -> str:
        """Query one reading."""
        return self.instrument.ask(QUERY).strip()

    def close(self) -> None:
        """Close the connection."""
        self.instrument.adapter.close()


def time_us(work: Callable[[], str], n_queries: int) -> float:
    began = time.perf_counter()
    for _ in range(n_queries):
        if work() != REPLY:
            raise SystemExit("a reply is not that of the query: the figures would be of something else")
    return 1e6 * (time.perf_counter() - began) / n_queries


Rounds = dict[str, list[float]]
"""Times by client, in the order of the rounds."""


def ratio(rounds: Rounds, client: str, other: str = "bare socket") -> float:
    """Return the median ratio of two clients' times, calculated per round because the load of the machine changes."""
    return statistics.median(mine / yours for mine, yours in zip(rounds[client], rounds[other], strict=True))


def queries(port: int, n_queries: int) -> Rounds:
    """Return microseconds per query, by client; one connection at a time, rounds alternating."""
    clients = {"bare socket": Bare, "our session": Ours}
    with contextlib.suppress(PackageNotFoundError):
        clients[f"PyMeasure {version('pymeasure')}"] = PyMeasure
    rounds: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(ROUNDS):
        for name, make in clients.items():
            client = make(port)
            client.query()
            rounds[name].append(time_us(client.query, max(n_queries // ROUNDS, 1)))
            client.close()
    return rounds


def blocks(port: int, n_samples: int) -> dict[str, Rounds]:
    """Return seconds per block, by payload and client."""
    rounds_by_size: dict[str, Rounds] = {}
    for number, (name, payload) in enumerate(payloads(n_samples).items()):
        times: Rounds = {"bare socket": [], "our session": []}
        for _ in range(BLOCK_ROUNDS):
            for client, make in (("bare socket", Bare), ("our session", Ours)):
                opened = make(port)
                opened.block(f"BLOCK{number}?")
                began = time.perf_counter()
                got = opened.block(f"BLOCK{number}?")
                times[client].append(time.perf_counter() - began)
                opened.close()
                if got != payload:
                    raise SystemExit("a block is not what was sent: the figures would be of something else")
        rounds_by_size[name] = times
    return rounds_by_size


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--samples", type=int, default=1_000_000)
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, loopback")
    with instrument(options.samples) as port:
        rounds = queries(port, options.queries)
        print(f"\nquery over TCP, {options.queries} times, medians of {ROUNDS} rounds")
        for name, times_us in rounds.items():
            print(f"  {name:<18} {statistics.median(times_us):8.1f} us  {ratio(rounds, name):5.2f} x bare socket")
        others = [name for name in rounds if name.startswith("PyMeasure")]
        if not others:
            print("  PyMeasure          not measured: it is not installed (pip install pymeasure)")
        met = ratio(rounds, "our session") <= GOAL_QUERY
        met = met and all(ratio(rounds, "our session", other) <= 1.0 for other in others)
        print(f"  goal: at most {GOAL_QUERY:g} x the bare socket and PyMeasure's time: {verdict(met)}")
        print(f"\nblock of {options.samples} float32 samples, medians of {BLOCK_ROUNDS}")
        for payload, rounds in blocks(port, options.samples).items():
            size_mb = 4e-6 * options.samples
            row = "  ".join(f"{name} {size_mb / statistics.median(each):7.0f} MB/s" for name, each in rounds.items())
            share = ratio(rounds, "bare socket", "our session")
            print(f"  {payload:<9} {row}  share {share:.2f}, goal {GOAL_BLOCK:g}: {verdict(share >= GOAL_BLOCK)}")


if __name__ == "__main__":
    main()
