"""The server does no unrequested work, and no host suffers from another.

Causes are counted, not timed: how often a device or the light was read, and how many bytes are taken at once.
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.bench.bench import load
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.emulator.lasers.swept_laser import ArmedSweep, LaserProfile, SweptLaser
from lumion_hw.emulator.wires.server import MAX_CONNECTIONS, POLL_PERIOD_S, SLICE_S, EmulatorServer
from tests.waiting import PATIENCE_S

SMALL = Path(__file__).parents[2] / "data" / "small.yaml"


class Counting:
    """A device that counts its accesses; every byte costs it some work."""

    def __init__(self, name: str, work: list[float], byte_s: float = 0.0) -> None:
        self.name, self.due_s = name, None
        self._work, self._byte_s = work, byte_s
        self.calls: Counter[str] = Counter()
        self.pieces: list[int] = []
        self.output = b""

    def connect(self):
        return self

    def advance(self) -> None:
        self.calls["advance"] += 1
        self.due_s = None

    def next_due(self):
        return self.due_s

    def receive(self, data: bytes) -> None:
        self.pieces.append(len(data))
        self._work[0] += self._byte_s * len(data)
        self.output += data[-1:]

    def transmit(self) -> bytes:
        self.calls["transmit"] += 1
        output, self.output = self.output, b""
        return output

    def next_event(self):
        return None

    def close(self) -> None:
        self.calls["close"] += 1


@pytest.fixture
def work():
    return [0.0]


@pytest.fixture
def server(work):
    with EmulatorServer(SystemClock(), lambda: work[0]) as made:
        yield made


def dial(address: str) -> socket.socket:
    host, port = address.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def ask(server: EmulatorServer, host: socket.socket) -> None:
    """Send a byte and run the loop until its echo is back."""
    host.sendall(b"x")
    host.setblocking(False)
    for _ in range(1000):
        server._cycle()
        try:
            assert host.recv(16) == b"x"
        except BlockingIOError:
            continue
        return
    raise AssertionError("no answer")


def test_a_device_nobody_talks_to_does_nothing_while_its_neighbour_is_asked(server, work):
    busy, idle = Counting("busy", work), Counting("idle", work)
    addresses = [server.add_tcp(each) for each in (busy, idle)]
    with dial(addresses[0]) as host, dial(addresses[1]) as other:
        ask(server, host)
        ask(server, other)
        before = idle.calls.copy()
        for _ in range(100):
            ask(server, host)
        assert idle.calls - before == Counter()


def test_what_is_due_is_done_without_a_host(server, work):
    device = Counting("timer", work)
    server.add_tcp(device)
    server._cycle()
    device.due_s = SystemClock().now()
    server.wake()
    while not device.calls["advance"]:
        server._cycle()


@pytest.mark.parametrize("kind", ["thorlabs-pm", "keysight-n77xx", "keysight-816x", "santec-mpm", "santec-tsl"])
def test_identity_does_not_ask_for_light(kind, tmp_path):
    """A device that replies from its own state must not bring the optical world up to date."""
    text = re.sub(r", tap: {meter: meter0, channel: [23], fraction: 0.1}", "", SMALL.read_text())
    if kind == "santec-tsl":
        text = text.replace("mesh:\n", "  tls: {kind: santec-tsl, model: TSL-570}\nmesh:\n", 1)
    else:
        text = re.sub(r"meter0: {.*}", f"meter0: {{kind: {kind}}}", text)
    path = tmp_path / "bench.yaml"
    path.write_text(text)
    clock, looks = VirtualClock(), []
    bench = emulated_bench(load(str(path)), clock, 7)
    bench.world.before_reading.append(lambda: looks.append(clock.now()))
    peer = bench.devices["tls" if kind == "santec-tsl" else "meter0"].connect()
    for _ in range(10):
        clock.sleep(0.01)
        peer.receive(b"*IDN?\r\n")
        assert b"," in peer.transmit()
        peer.next_event()
    assert looks == []
    assert bench.world.meter_w("meter0", 1) > 0.0
    assert len(looks) == 1, "whoever reads the light does bring it up to date"


def test_one_device_takes_no_more_at_once_than_a_slice_of_work(server, work):
    """A host floods a slow device: its bytes are taken in smaller and smaller pieces, and other hosts are served."""
    slow, quick = Counting("slow", work, byte_s=SLICE_S / 100), Counting("quick", work)
    addresses = [server.add_tcp(each) for each in (slow, quick)]
    with dial(addresses[0]) as flood, dial(addresses[1]) as host:
        flood.sendall(bytes(50_000))
        for _ in range(20):
            ask(server, host)
        assert max(slow.pieces[10:]) <= 128, "some 100 bytes are a slice"
        assert quick.calls["transmit"] >= 20


def test_hosts_beyond_the_limit_are_refused_and_those_in_service_are_served(server, work, caplog):
    device = Counting("popular", work)
    address = server.add_tcp(device)
    with dial(address) as host:
        ask(server, host)
        crowd = [dial(address) for _ in range(MAX_CONNECTIONS + 50)]
        for _ in range(10):
            server._cycle()
        ask(server, host)
        assert len(server._channels) == MAX_CONNECTIONS
        refused = 0
        for each in crowd:
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                refused += each.recv(1) == b""
        assert refused == 51, "an orderly end, no reset"
        assert caplog.text.count("further hosts are refused") == 1
        for each in crowd:
            each.close()
        for _ in range(10):
            server._cycle()
        with dial(address) as late:
            ask(server, late)


def test_idle_hosts_cost_the_one_that_asks_no_more_than_a_look_each(server, work):
    device = Counting("board", work)
    address = server.add_tcp(device)
    with dial(address) as host:
        crowd = [dial(address) for _ in range(MAX_CONNECTIONS - 1)]
        ask(server, host)
        for _ in range(5):
            server._cycle()
        before = device.calls["transmit"]
        ask(server, host)
        server._cycle()
        assert device.calls["transmit"] - before <= 3 * MAX_CONNECTIONS
        for each in crowd:
            each.close()


class Starved:
    """The listener of a process without free file descriptors."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.tries = 0

    def fileno(self) -> int:
        return self.listener.fileno()

    def accept(self):
        self.tries += 1
        raise OSError(errno.EMFILE, "Too many open files")

    def close(self) -> None:
        self.listener.close()


def test_out_of_descriptors_is_said_once_and_waited_for(work, caplog):
    device, clock = Counting("popular", work), VirtualClock()
    with EmulatorServer(clock, lambda: work[0]) as server:
        address = server.add_tcp(device)
        with dial(address) as host:
            ask(server, host)
            listener, port = next(iter(server._listeners.values()))
            starved = Starved(listener)
            server._listeners[listener.fileno()] = (starved, port)
            with dial(address) as waiting:
                for _ in range(20):
                    ask(server, host)
                assert starved.tries == 1, "a loop that tries in every cycle would burn a core"
                clock.sleep(POLL_PERIOD_S)
                for _ in range(20):
                    ask(server, host)
                assert starved.tries == 2
                assert caplog.text.count("accepting no new connections") == 1
                server._listeners[listener.fileno()] = (listener, port)
                clock.sleep(POLL_PERIOD_S)
                ask(server, waiting)


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="other systems acknowledge as they like")
def test_a_message_without_an_answer_is_acknowledged_at_once(server, work):
    """Otherwise Nagle's algorithm delays the host's next message by 40 ms and sends it with the following one."""

    class Silent(Counting):
        def receive(self, data: bytes) -> None:
            self.pieces.append(len(data))
            if data == b"x":
                super().receive(data)

    device = Silent("meter", work)
    with dial(server.add_tcp(device)) as host:
        for _ in range(30):  # in a conversation the system tries to send acknowledgements along with replies
            ask(server, host)
        taken = len(device.pieces)
        host.sendall(b"y")
        while len(device.pieces) == taken:
            server._cycle()
        unacknowledged = int.from_bytes(host.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)[24:28], "little")
        assert unacknowledged == 0


def test_a_mainframe_looks_at_its_sensors_while_its_laser_gives_pulses():
    """Samples must use the light of their own time, so the server must let the meter read without a request."""
    clock, pulses = VirtualClock(), []
    laser = SweptLaser(LaserProfile((1480.0, 1640.0)), clock, np.random.default_rng(1), pulses.extend)
    assert laser.next_update_s() is None, "a laser at rest is left alone"
    laser.sweep(ArmedSweep(1550.0, 1551.0, 0.1, 1.0), wait=False)
    looks = 0
    while (due_s := laser.next_update_s()) is not None:
        clock.sleep(due_s - clock.now())
        laser.advance()
        looks += 1
    assert len(pulses) == looks == 11
