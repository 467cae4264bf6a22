"""Time to program 144 channels with verification by checksum, compared with a bare echo of the same bytes.

Run: .venv/bin/python benchmarks/programming.py
Host and peers run in one process and in turns on the same kind of link, so that other load affects all equally. The
bare echo is a thread that writes back what it reads. The least board is the same thread plus minimal code that decodes
and checks a SET and replies with a checksum: the difference is the cost of protocol and driver. The emulated board is
served by the emulator's server and replies after its ``t_cmd`` of 1 ms, like a controller. The last rows are the work
of the driver and of the emulated board alone, without a link and without waiting.
"""

from __future__ import annotations

import contextlib
import os
import platform
import pty
import select
import socket
import statistics
import struct
import tempfile
import threading
import time
import tty
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import firmware_protocol as fp
from lumion_hw.clock import Clock, SystemClock
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.links.address import open_link
from lumion_hw.links.base import Link, Peer
from lumion_hw.links.memory import MemoryLink

if TYPE_CHECKING:
    from lumion_hw.emulator.wires.device import EmulatedDevice

N = 144
ROUNDS, PER_ROUND = 40, 50
GOAL = 1.5
ECHO, LEAST = "bare echo of 312 bytes", "program the least board"
LIMITS = ControllerLimits(np.full(N, 20.0), np.full(N, 1.0), total_power_mw=1000.0, watchdog_s=30.0)
TABLES = [np.linspace(0.0, 10.0, N), np.linspace(10.0, 0.0, N)]
HELLO = fp.HelloReply(
    proto=1,
    window=8,
    fw_rx_max=4096,
    fw_tx_max=4096,
    n_dac=N,
    n_adc=0,
    dac_bits=16,
    adc_bits=0,
    n_banks=1,
    n_streams=0,
    outputs_state=fp.OutputsState.READY,
    drive=fp.Drive.CURRENT,
    dac_full_scale=20_000,
    adc_full_scale=0,
    tick_us=1000,
    t_cmd_ms=1,
    t_slow_ms=1,
    latch_skew_us=0,
    adc_scan_us=0,
    features=0,
    schema_crc32=0,
    boot_id=1,
    uptime_ms=0,
    faults=0,
    active_generation=0,
    config_crc32=0,
    sweep_mem=0,
    sweep_ring=0,
    serial="LEAST",
    fw_version="1.0.0",
)
FRAME = fp.encode_frame(fp.Frame(fp.Kind.REQ, fp.Command.SET, 258, 0x2F71, payload=b"\x01" * (8 + 2 * N)))
"""As many bytes as a SET of 144 codes on the wire: 312."""


Answer = Callable[[bytes], bytes]


class LeastBoard:
    """A minimal controller: identity, configuration, and tables that are verified by checksum."""

    def __init__(self) -> None:
        self._decoder = fp.Decoder(4096)
        self._crc32 = 0

    def __call__(self, data: bytes) -> bytes:
        """Return the reply to ``data``."""
        return b"".join(self._answer(frame) for frame in self._decoder.feed(data) if isinstance(frame, fp.Frame))

    def _answer(self, frame: fp.Frame) -> bytes:
        if frame.command == fp.Command.SET:
            (count,) = struct.unpack_from("<H", frame.payload, 6)
            self._crc32 = zlib.crc32(frame.payload[8 : 8 + 2 * count])
            payload = frame.payload[:4] + struct.pack("<IIBBH", 1, self._crc32, 1, fp.OutputsState.READY, 0)
        else:
            payload = self._other(frame).encode()
        header = struct.pack("<BBBBHH", 0x11, 0, frame.command, 0, frame.seq, frame.session)
        return fp.encode_body(header + payload)

    def _other(self, frame: fp.Frame) -> fp.Message:
        state = fp.OutputsState.READY
        if frame.command == fp.Command.HELLO:
            return HELLO
        if frame.command == fp.Command.READBACK:
            return fp.ReadbackReply(0, self._crc32, 0, state, fp.DRIVEN_TABLE, N, 0, np.zeros(0, np.uint16))
        if frame.command == fp.Command.CONFIG:
            applied = fp.decode_request(frame.command, frame.payload)
            return fp.ConfigReply(frame.payload[0], state, N, getattr(applied, "config_crc32", 0))
        return fp.PingReply(0, 0, 0, state, frame.session)


@contextlib.contextmanager
def tcp_far_end(answer: Answer) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                while data := connection.recv(65536):
                    connection.sendall(answer(data))

        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def pty_far_end(answer: Answer) -> Iterator[str]:
    outer, inner = pty.openpty()
    tty.setraw(inner)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            if select.select([outer], [], [], 0.2)[0]:
                os.write(outer, answer(os.read(outer, 65536)))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"serial://{os.ttyname(inner)}"
    finally:
        stop.set()
        thread.join()
        os.close(outer)
        os.close(inner)


FAR_ENDS = {"tcp": tcp_far_end, "pty": pty_far_end}


def board(clock: Clock) -> EmulatedDevice:
    from lumion_hw.emulator.mesh.lumion import BoardProfile, MeshBoard

    return MeshBoard(
        "mesh0",
        clock,
        np.random.default_rng(1),
        drive=lambda currents_ma, at_s: None,
        sense_ma=lambda n_avg, at_s: np.zeros(4),
        profile=BoardProfile(n_dac=N, n_adc=4, dac_full_scale=20_000, adc_full_scale=1_000_000),
    )


@contextlib.contextmanager
def served(device: EmulatedDevice, kind: str, clock: Clock) -> Iterator[str]:
    from lumion_hw.emulator.wires.server import EmulatorServer

    with tempfile.TemporaryDirectory() as directory, EmulatorServer(clock) as server:
        add = server.add_tcp if kind == "tcp" else lambda each: server.add_pty(each, Path(directory) / "device")
        address = add(device)
        with server.in_thread():
            yield address


def echoing(link: Link, clock: Clock) -> Callable[[], None]:
    link.open(clock.now() + 5.0)

    def once() -> None:
        link.write(FRAME, clock.now() + 1.0)
        left = len(FRAME)
        while left > 0:
            left -= len(link.read(clock.now() + 1.0))

    return once


def programming(driver: LumionMeshController) -> Callable[[], None]:
    driver.open()
    driver.configure(LIMITS)
    turn = 0

    def once() -> None:
        nonlocal turn
        turn += 1
        driver.program(TABLES[turn % 2])

    return once


def run_parallel(actions: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Return the median time of one call in µs of each action, measured in turns."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(ROUNDS):
        for name, action in actions.items():
            for _ in range(PER_ROUND):
                began = time.perf_counter()
                action()
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) * 1e6 for name, values in times.items()}


def measure(kind: str) -> dict[str, float]:
    clock = SystemClock()
    far_end = FAR_ENDS[kind]
    with contextlib.ExitStack() as stack:
        echo = open_link(stack.enter_context(far_end(bytes)), clock)
        stack.callback(echo.close)
        drivers = []
        for address in (far_end(LeastBoard()), served(board(clock), kind, clock)):
            link = open_link(stack.enter_context(address), clock)
            drivers.append(LumionMeshController(link, clock, device="mesh0"))
            stack.callback(drivers[-1].close)
        return run_parallel(
            {
                ECHO: echoing(echo, clock),
                LEAST: programming(drivers[0]),
                "program the emulated board": programming(drivers[1]),
            }
        )


class Timed:
    """A peer that wraps another and measures its working time."""

    def __init__(self, inner: Peer) -> None:
        self._inner = inner
        self.spent_s = 0.0

    def receive(self, data: bytes) -> None:
        """Pass received bytes to the inner peer."""
        began = time.perf_counter()
        self._inner.receive(data)
        self.spent_s += time.perf_counter() - began

    def transmit(self) -> bytes:
        """Return the bytes that the inner peer sends."""
        began = time.perf_counter()
        data = self._inner.transmit()
        self.spent_s += time.perf_counter() - began
        return data

    def next_event(self) -> float | None:
        """Return the time of the next output of the inner peer."""
        return self._inner.next_event()

    def close(self) -> None:
        """Close the inner peer."""
        self._inner.close()


class Waiting(SystemClock):
    """A wall clock that sums its sleeping time, because waiting for the board's tick is not work."""

    slept_s = 0.0

    def sleep(self, seconds: float) -> None:
        """Sleep and add the time to the sum."""
        began = time.perf_counter()
        super().sleep(seconds)
        self.slept_s += time.perf_counter() - began


def without_a_wire() -> tuple[float, float]:
    """Return the working time of driver and board per table in µs, as medians over rounds."""
    clock = Waiting()
    peer = Timed(board(clock).connect())
    driver = LumionMeshController(MemoryLink(lambda: peer, clock, "memory"), clock, device="mesh0")
    once = programming(driver)
    host_s, board_s = [], []
    for _ in range(ROUNDS):
        peer.spent_s = clock.slept_s = 0.0
        began = time.perf_counter()
        for _ in range(PER_ROUND):
            once()
        host_s.append(time.perf_counter() - began - peer.spent_s - clock.slept_s)
        board_s.append(peer.spent_s)
    driver.close()
    return statistics.median(host_s) / PER_ROUND * 1e6, statistics.median(board_s) / PER_ROUND * 1e6


def main() -> None:
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {ROUNDS * PER_ROUND} calls"
    )
    print("| link | what | µs, median | ratio to the bare echo |")
    print("|---|---|---|---|")
    ratios = {}
    for kind in FAR_ENDS:
        times = measure(kind)
        for name, took in times.items():
            print(f"| {kind} | {name} | {took:.1f} | {took / times[ECHO]:.2f} |")
        ratios[kind] = times[LEAST] / times[ECHO], times[LEAST] - times[ECHO]
    driver_us, board_us = without_a_wire()
    print(f"| none | the driver's own work | {driver_us:.1f} | – |")
    print(f"| none | the emulated board's own work | {board_us:.1f} | – |")
    for kind, (ratio, more_us) in ratios.items():
        verdict = "met" if ratio <= GOAL else f"missed; protocol and checks are {more_us:.0f} µs of Python, both ends"
        print(f"{kind}: {ratio:.2f}x the bare echo, goal {GOAL}x: {verdict}")


if __name__ == "__main__":
    main()
