"""The server on real sockets and pseudo-terminals: foreign bytes, floods, stalled and disappearing hosts."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import socket
import stat
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.wires.server import SHORTEST_WAIT_S, EmulatorServer
from lumion_hw.emulator.wires.server_channel import BUFFER_LIMIT, SocketWire
from lumion_hw.errors import ConfigError, ConnectError, InUseError, LumionError
from tests.emulator.scpi.scpi_testbench import Meter
from tests.waiting import PATIENCE_S, promptly, until


@pytest.fixture
def server():
    with EmulatorServer(SystemClock()) as made:
        yield made


@pytest.fixture
def meter():
    return Meter(SystemClock()).instrument


def dial(address: str, timeout: float = PATIENCE_S) -> socket.socket:
    host, port = address.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), timeout=timeout)


def line(connection: socket.socket) -> bytes:
    """Read up to and including LF."""
    data = b""
    while not data.endswith(b"\n"):
        chunk = connection.recv(1)
        if not chunk:
            raise EOFError(data)
        data += chunk
    return data


def ask(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text + b"\n")
    return line(connection)


@contextlib.contextmanager
def terminal(path: str):
    """Open a pseudo-terminal like a host."""
    fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        yield fd
    finally:
        os.close(fd)


def read_terminal(fd: int, count: int) -> bytes:
    data, end = b"", time.monotonic() + PATIENCE_S
    while len(data) < count and time.monotonic() < end:
        if select.select([fd], [], [], 0.5)[0]:
            data += os.read(fd, count - len(data))
    return data


class Broken:
    """A device that fails in the named call, or refuses connections."""

    name = "broken"

    def __init__(self, fails_at: str) -> None:
        self.fails_at = fails_at
        self.event_s = None

    def _call(self, name: str) -> None:
        if name == self.fails_at:
            raise RuntimeError(f"planted in {name}")

    def connect(self):
        if self.fails_at == "refuse":
            raise ConnectError("switched off")
        self._call("connect")
        return self

    def advance(self) -> None:
        self._call("advance")

    def next_due(self):
        return 0.0 if self.fails_at == "advance" else None

    def receive(self, data: bytes) -> None:
        self._call("receive")

    def transmit(self) -> bytes:
        self._call("transmit")
        return b""

    def next_event(self):
        self._call("next_event")
        return self.event_s

    def close(self) -> None:
        self._call("close")


class Echo(Broken):
    """A device that replies to every byte with a hundred bytes."""

    name = "echo"

    def __init__(self) -> None:
        super().__init__("")
        self.taken = 0
        self.owed = 0

    def receive(self, data: bytes) -> None:
        self.taken += len(data)
        self.owed += 100 * len(data)

    def transmit(self) -> bytes:
        count = min(self.owed, 1_000_000)
        self.owed -= count
        return b"x" * count

    def next_event(self):
        return 0.0 if self.owed else None


# -- TCP


def test_device_answers_on_an_ephemeral_loopback_port(server, meter):
    address = server.add_tcp(meter)
    assert address.startswith("tcp://127.0.0.1:")
    with server.in_thread(), dial(address) as host:
        assert ask(host, b"*IDN?") == b"Maker,M1,SN1,1.0\n"


def test_it_listens_on_loopback_only_and_without_nagle(server, meter):
    address = server.add_tcp(meter)
    with server.in_thread(), dial(address) as host:
        ask(host, b"*IDN?")
        (listener, _), (channel, _) = next(iter(server._listeners.values())), next(iter(server._channels.values()))
        assert listener.getsockname()[0] == "127.0.0.1"
        assert channel._wire._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_any_bytes_leave_it_alive(server, meter):
    """First the input of `nc` with any file, then a proper client, on the same and on another connection."""
    address = server.add_tcp(meter)
    rng = np.random.default_rng(4)
    with server.in_thread(), dial(address) as noisy, dial(address) as proper:
        for size in (1, 100, 4096, 50_000):
            noisy.sendall(rng.integers(0, 256, size, dtype=np.uint8).tobytes())
            assert ask(proper, b"*IDN?") == b"Maker,M1,SN1,1.0\n"
        noisy.sendall(b"\n*CLS;*IDN?\n")
        assert line(noisy) == b"Maker,M1,SN1,1.0\n"
        assert ask(proper, b"SYST:ERR?") == b'+0,"No error"\n'


def test_many_clients_share_one_device(server, meter):
    address = server.add_tcp(meter)
    with server.in_thread(), contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(dial(address)) for _ in range(30)]
        ask(hosts[0], b"CORR:WAV 1310;*OPC?")
        assert {ask(host, b"CORR:WAV?") for host in hosts} == {b"1.31000000E+03\n"}


def test_query_in_three_segments_and_two_messages_in_one(server, meter, monkeypatch):
    pieces: list[bytes] = []
    receive = SocketWire.recv
    monkeypatch.setattr(SocketWire, "recv", lambda wire, size: pieces.append(receive(wire, size)) or pieces[-1])
    address = server.add_tcp(meter)
    with server.in_thread(), dial(address) as host:
        host.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in (b"*I", b"DN", b"?\n"):
            host.sendall(part)
            until(lambda part=part: pieces[-1:] == [part])
        assert line(host) == b"Maker,M1,SN1,1.0\n"
        host.sendall(b"*OPC?\n*IDN?\n")
        assert (line(host), line(host)) == (b"1\n", b"Maker,M1,SN1,1.0\n")


def test_pending_reply_paces_itself_and_holds_nobody_else_back(server):
    device = EmulatedKeysightN77xx("pm", SystemClock(), np.random.default_rng(1), lambda _: 1e-3)
    address = server.add_tcp(device)
    with server.in_thread(), dial(address) as slow, dial(address) as quick:

        def both() -> None:
            slow.sendall(b"SENS1:POW:ATIM 0.3;:READ1:POW?\n")
            promptly(lambda: ask(quick, b"*OPC?"), 0.25)
            assert abs(float(line(slow))) < 0.3

        promptly(both, PATIENCE_S, at_least_s=0.3)


def test_client_that_vanishes_mid_message_or_before_its_reply_harms_nobody(server, meter):
    address = server.add_tcp(meter)
    with server.in_thread(), dial(address) as stayer:
        for rest in (b"SENS:CORR:W", b"READ?\n", b"*IDN?\n" * 1000):
            leaver = dial(address)
            leaver.sendall(rest)
            leaver.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            leaver.close()
            assert ask(stayer, b"*IDN?") == b"Maker,M1,SN1,1.0\n"
        until(lambda: len(server._channels) == 1)


def test_half_closed_client_still_gets_its_replies(server, meter):
    address = server.add_tcp(meter)
    with server.in_thread(), dial(address) as host:
        host.sendall(b"POW:ATIM 0.1;:READ?;*IDN?\n")
        host.shutdown(socket.SHUT_WR)
        assert line(host) == b"+1.00000000E-003;Maker,M1,SN1,1.0\n"
        assert host.recv(1) == b""


def test_client_that_does_not_read_is_no_longer_listened_to_and_others_go_on(server, meter):
    echo = Echo()
    addresses = server.add_tcp(echo), server.add_tcp(meter)
    with server.in_thread(), dial(addresses[0]) as deaf, dial(addresses[1]) as other:
        deaf.setblocking(False)

        def backlog() -> int:
            return sum(len(channel._output) for channel, _ in list(server._channels.values()) if channel._peer is echo)

        def is_listened_to() -> bool:
            watched = [channel.watched for channel, _ in list(server._channels.values()) if channel._peer is echo]
            return bool(watched and watched[0] & selectors.EVENT_READ)

        sent = 0

        def is_ignored() -> bool:
            """Send what the system takes, serve the other host, and return whether the server took nothing."""
            nonlocal sent
            taken = echo.taken
            with contextlib.suppress(BlockingIOError):
                while sent < 20_000_000:
                    sent += deaf.send(b"x" * 65536)
            for _ in range(3):
                ask(other, b"*OPC?")
            return backlog() >= BUFFER_LIMIT and not is_listened_to() and echo.taken == taken

        until(lambda: is_ignored() or sent >= 20_000_000)
        assert echo.taken < min(sent, 1_000_000)
        assert BUFFER_LIMIT <= backlog() < BUFFER_LIMIT + 1_000_000
        assert ask(other, b"*IDN?") == b"Maker,M1,SN1,1.0\n"


@pytest.mark.parametrize("call", ["connect", "receive", "transmit", "next_event", "close", "advance"])
def test_failing_device_costs_its_own_connection_at_most(server, meter, call, caplog):
    broken, sound = server.add_tcp(Broken(call)), server.add_tcp(meter)
    with server.in_thread():
        with dial(broken) as host:
            if call not in ("advance", "close"):
                host.sendall(b"x")
                with contextlib.suppress(ConnectionError):
                    assert host.recv(1) == b""
        with dial(sound) as host:
            assert ask(host, b"*IDN?") == b"Maker,M1,SN1,1.0\n"
        until(lambda: "planted" in caplog.text)


def test_refused_connection_is_closed_at_once(server, meter):
    refusing, sound = server.add_tcp(Broken("refuse")), server.add_tcp(meter)
    with server.in_thread(), dial(refusing) as host, dial(sound) as other:
        assert host.recv(1) == b""
        assert ask(other, b"*OPC?") == b"1\n"


def test_event_that_is_due_but_brings_nothing_does_not_make_the_loop_spin(server):
    idle = Broken("")
    idle.event_s = 0.0
    address = server.add_tcp(idle)
    begun_s: list[float] = []
    original = server._cycle
    server._cycle = lambda: (begun_s.append(time.monotonic()), original())
    with server.in_thread(), dial(address):
        until(lambda: len(server._channels) == 1)
        n_before = len(begun_s)
        until(lambda: len(begun_s) > n_before + 100)
    assert begun_s[n_before + 100] - begun_s[n_before] > 99 * SHORTEST_WAIT_S


def test_devices_may_be_added_while_the_server_runs(server, meter):
    with server.in_thread(), dial(server.add_tcp(meter)) as host:
        assert ask(host, b"*OPC?") == b"1\n"


def test_a_taken_port_is_in_use_which_a_command_ends_as_busy(server, meter):
    port = int(server.add_tcp(meter).rsplit(":", 1)[1])
    with pytest.raises(InUseError, match=f"127.0.0.1:{port}") as told:
        server.add_tcp(meter, port)
    assert told.value.exit_code == 6


def test_close_ends_everything_and_a_closed_server_takes_no_devices(meter, tmp_path):
    server = EmulatorServer(SystemClock())
    address = server.add_tcp(meter)
    server.add_pty(meter, tmp_path / "pm0")
    with server.in_thread(), dial(address) as host:
        ask(host, b"*OPC?")
    server.close()
    server.close()
    assert not (tmp_path / "pm0").is_symlink()
    with pytest.raises(OSError, match="refused"):
        dial(address, timeout=1.0)
    with pytest.raises(LumionError, match="closed"):
        server.add_tcp(meter)


def test_run_stops_when_the_callable_says_so(server):
    asked = []
    server.run(lambda: bool(asked.append(1)) or len(asked) > 3)
    assert len(asked) == 4
    stop = threading.Event()
    stop.set()
    server.run(stop)


def test_what_ends_the_thread_is_raised_to_its_owner(server):
    def stop():
        raise KeyError("planted")

    server._cycle = stop
    with pytest.raises(KeyError, match="planted"), server.in_thread():
        pass


# -- pseudo-terminals


def test_device_answers_behind_a_stable_symlink(server, meter, tmp_path):
    link = tmp_path / "pm0"
    assert server.add_pty(meter, link) == f"serial://{link}"
    assert stat.S_ISCHR(os.stat(link).st_mode)
    with server.in_thread(), terminal(str(link)) as fd:
        os.write(fd, b"*IDN?\n")
        assert read_terminal(fd, 17) == b"Maker,M1,SN1,1.0\n"


def test_terminal_is_raw_every_byte_passes_both_ways_without_echo(server, tmp_path):
    class Mirror(Broken):
        output = b""

        def receive(self, data: bytes) -> None:
            self.output += data

        def transmit(self) -> bytes:
            output, self.output = self.output, b""
            return output

    every_byte = bytes(range(256)) * 4
    server.add_pty(Mirror(""), tmp_path / "m")
    with server.in_thread(), terminal(str(tmp_path / "m")) as fd:
        os.write(fd, every_byte)
        assert read_terminal(fd, len(every_byte)) == every_byte
        assert select.select([fd], [], [], 0.05)[0] == []


def test_hosts_come_and_go_on_one_line(server, meter, tmp_path):
    server.add_pty(meter, tmp_path / "pm0")
    with server.in_thread():
        for _ in range(3):
            with terminal(str(tmp_path / "pm0")) as fd:
                os.write(fd, b"*OPC?\r\n")
                assert read_terminal(fd, 2) == b"1\n"


def test_line_is_always_drained_even_when_nobody_reads(server, tmp_path):
    echo = Echo()
    server.add_pty(echo, tmp_path / "e")
    with server.in_thread(), terminal(str(tmp_path / "e")) as fd:
        left, end = 200_000, time.monotonic() + PATIENCE_S
        while left and time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                left -= os.write(fd, b"x" * min(left, 4096))
        until(lambda: echo.taken == 200_000)
        assert max(len(channel._output) for channel, _ in server._channels.values()) <= BUFFER_LIMIT


def test_device_that_refuses_a_line_is_asked_again_with_the_next_bytes(server, meter, tmp_path):
    class Switched:
        name = "switched"
        on = False
        refused = 0

        def connect(self):
            if not self.on:
                self.refused += 1
                raise ConnectError("switched off")
            return meter.connect()

        def advance(self) -> None:
            meter.advance()

        def next_due(self):
            return None

    device = Switched()
    server.add_pty(device, tmp_path / "s")
    with server.in_thread(), terminal(str(tmp_path / "s")) as fd:
        os.write(fd, b"*IDN?\n")
        until(lambda: device.refused == 2)  # when the line was made, and with these bytes
        assert select.select([fd], [], [], 0.0)[0] == []
        device.on = True
        os.write(fd, b"*OPC?\n")
        assert read_terminal(fd, 2) == b"1\n"


def test_symlink_is_replaced_but_a_file_of_somebody_else_is_left_alone(server, meter, tmp_path):
    (tmp_path / "stale").symlink_to(tmp_path / "gone")
    server.add_pty(meter, tmp_path / "stale")
    assert stat.S_ISCHR(os.stat(tmp_path / "stale").st_mode)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="was not changed"):
        server.add_pty(meter, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(ConnectError, match="pseudo-terminal"):
        server.add_pty(meter, tmp_path / "missing" / "pm0")


def test_replugged_link_of_another_server_is_not_removed(meter, tmp_path):
    link = Path(tmp_path / "pm0")
    first, second = EmulatorServer(SystemClock()), EmulatorServer(SystemClock())
    first.add_pty(meter, link)
    second.add_pty(meter, link)
    first.close()
    assert stat.S_ISCHR(os.stat(link).st_mode)
    second.close()
    assert not link.is_symlink()


@pytest.mark.long
def test_hundreds_of_noisy_clients_leave_it_alive(server, meter):
    address = server.add_tcp(meter)
    rng = np.random.default_rng(9)
    with server.in_thread(), dial(address) as proper:
        for _ in range(300):
            with dial(address) as noisy:
                noisy.sendall(rng.integers(0, 256, int(rng.integers(1, 20_000)), dtype=np.uint8).tobytes())
            assert ask(proper, b"*IDN?") == b"Maker,M1,SN1,1.0\n"
