"""The driver of the prototype's line server: what it writes, what it believes, and what it never repeats."""

from __future__ import annotations

import re
import socket
import threading

import pytest
from hypothesis import given, strategies as st

from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.drivers.mesh.line_server import LineServerMesh, line_from_states
from lumion_hw.errors import ConfigError, ConnectError, LimitError, LinkLost, LinkTimeout
from lumion_hw.interfaces import Submission
from lumion_hw.links import MemoryLink
from lumion_hw.links.fault import Direction, FaultEvent, FaultKind, FaultLink, FaultPlan
from lumion_hw.links.tcp import TcpLink
from tests.waiting import PATIENCE_S

# -- the line


def test_the_line_is_ascending_with_one_blank_after_each_comma() -> None:
    assert line_from_states({1: "cross", 0: "bar", 71: "cross"}) == "[(0, '='), (1, 'x'), (71, 'x')]"
    assert line_from_states({}) == "[]"


@pytest.mark.parametrize(
    ("pucs", "n_bytes"),
    [
        (range(72), 783),
        (range(57), 618),  # the sizes of the published configurations, LF included
        ([*range(8), *range(10, 42)], 433),
    ],
)
def test_the_published_configurations_have_their_sizes(pucs, n_bytes: int) -> None:
    assert len(line_from_states(dict.fromkeys(pucs, "bar"))) + 1 == n_bytes


@pytest.mark.parametrize("index", [-1, 72, 10**9])
def test_a_unit_cell_that_is_not_there_is_refused(index: int) -> None:
    with pytest.raises(LimitError, match="nothing was sent"):
        line_from_states({0: "bar", index: "cross"})


@pytest.mark.parametrize(
    "states", [{0: "x"}, {0: "="}, {0: "coupling"}, {0: None}, {0: ["bar"]}, {"0": "bar"}, {True: "bar"}, {1.0: "bar"}]
)
def test_what_is_no_state_or_no_index_is_refused(states) -> None:
    with pytest.raises(ConfigError):
        line_from_states(states)


@given(st.dictionaries(st.integers(0, 71), st.sampled_from(["bar", "cross"])))
def test_every_configuration_follows_the_grammar_and_says_what_was_asked(states) -> None:
    line = line_from_states(states)
    assert re.fullmatch(r"\[(\(\d{1,2}, '[x=]'\)(, \(\d{1,2}, '[x=]'\))*)?\]", line)
    said = {int(index): {"x": "cross", "=": "bar"}[word] for index, word in re.findall(r"\((\d+), '(.)'\)", line)}
    assert said == states
    assert list(said) == sorted(said)


# -- the exchange, on a virtual clock


class Server:
    """Greets, takes a line, says something, and closes."""

    def __init__(
        self, clock: VirtualClock, *, greeting: bytes = b"Hello\n", progress: tuple[bytes, ...] = (b"done\n",)
    ) -> None:
        self.clock = clock
        self.greeting = greeting
        self.progress = list(progress)
        self.heard = b""
        self.connections = 0
        self.open_now = 0
        self.closes = True
        self.step_s = 0.1
        self._out: list[bytes] = []
        self._due_s = 0.0

    def connect(self) -> Server:
        self.connections += 1
        self.open_now += 1
        self._out = [self.greeting] if self.greeting else []
        self._due_s = self.clock.now()
        return self

    def receive(self, data: bytes) -> None:
        self.heard += data
        self._out += self.progress
        self._due_s = self.clock.now() + self.step_s

    def transmit(self) -> bytes:
        if self.clock.now() < self._due_s:
            return b""
        if self._out:
            self._due_s = self.clock.now() + self.step_s
            return self._out.pop(0)
        if self.heard and self.closes:
            raise LinkLost("closed by the other side", address="server")
        return b""

    def next_event(self) -> float | None:
        return self._due_s if self._out or (self.heard and self.closes) else None

    def close(self) -> None:
        self.open_now -= 1


def driven(**options) -> tuple[LineServerMesh, Server, VirtualClock]:
    clock = VirtualClock()
    server = Server(clock, **options)
    return LineServerMesh(lambda: MemoryLink(server.connect, clock, "server"), clock, device="proto"), server, clock


def test_a_connection_closed_by_the_server_means_sent() -> None:
    mesh, server, clock = driven(progress=(b"setting 2 PUCs\n", b"ok\n"))
    sent = mesh.program_states({0: "bar", 1: "cross"})
    assert server.heard == b"[(0, '='), (1, 'x')]\n"
    assert sent == Submission("[(0, '='), (1, 'x')]", "Hello\n", "setting 2 PUCs\nok\n", 0, 0.0, clock.now())
    assert server.open_now == 0


def test_each_configuration_has_a_connection_of_its_own() -> None:
    mesh, server, _ = driven()
    mesh.program_states({0: "bar"})
    mesh.program_states({})
    assert (server.connections, server.heard) == (2, b"[(0, '=')]\n[]\n")


def test_what_it_cannot_do_is_said() -> None:
    info = driven()[0].info
    assert info.n_pucs == 72
    assert not any((info.atomic, info.readback, info.watchdog))


def test_bad_states_do_not_even_connect() -> None:
    mesh, server, _ = driven()
    with pytest.raises(LimitError) as caught:
        mesh.program_states({72: "bar"})
    assert caught.value.device == "proto"
    assert server.connections == 0


def test_without_a_greeting_nothing_is_sent() -> None:
    mesh, server, clock = driven(greeting=b"")
    with pytest.raises(LinkTimeout, match=r"no greeting within 2 s.*Nothing was sent"):
        mesh.program_states({0: "bar"})
    assert clock.now() == pytest.approx(2.0)
    assert (server.heard, server.open_now) == (b"", 0)


def test_a_server_that_does_not_close_is_given_up_after_ten_seconds_and_not_asked_again() -> None:
    mesh, server, clock = driven()
    server.closes = False
    with pytest.raises(LinkTimeout, match=r"did not close the connection within 10 s.*may not have taken effect"):
        mesh.program_states({0: "bar"})
    assert clock.now() == pytest.approx(10.0)
    assert server.heard.count(b"\n") == 1
    assert server.open_now == 0


def test_a_server_that_never_stops_talking_is_given_up_too() -> None:
    mesh, server, clock = driven(progress=(b"x" * 1000,) * 100_000)
    server.step_s = 1e-3
    with pytest.raises(LinkTimeout):
        mesh.program_states({0: "bar"})
    assert clock.now() == pytest.approx(10.0, abs=0.1)


def test_progress_is_kept_up_to_64_kib_and_counted_beyond() -> None:
    mesh, _, _ = driven(progress=(b"y" * 50_000, b"z" * 50_000, b"!" * 7))
    sent = mesh.program_states({0: "bar"})
    assert len(sent.progress) == 65536
    assert sent.progress_dropped == 100_007 - 65536


def test_progress_is_shown_escaped_and_never_acted_upon() -> None:
    mesh, _, _ = driven(greeting=b"\x1b[31mError: refused\r\n", progress=(b"FAILED \xff\n",))
    sent = mesh.program_states({0: "bar"})
    assert sent.greeting == "\\x1b[31mError: refused\\x0d\n"
    assert sent.progress == "FAILED \\xff\n"


def test_progress_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    driven(progress=(b"15 ms\n",))[0].program_states({0: "bar"})
    assert "15 ms" in caplog.text


def faulty(event: FaultEvent) -> tuple[LineServerMesh, Server, VirtualClock]:
    clock = VirtualClock()
    server = Server(clock)

    def link() -> FaultLink:
        return FaultLink(MemoryLink(server.connect, clock, "server"), FaultPlan(events=(event,)), clock, seed=1)

    return LineServerMesh(link, clock, device="proto"), server, clock


def test_unplugged_before_the_line_says_that_nothing_was_sent() -> None:
    mesh, server, _ = faulty(FaultEvent(FaultKind.UNPLUG, Direction.FROM_DEVICE, 0))
    with pytest.raises(LinkLost, match="Nothing was sent"):
        mesh.program_states({0: "bar"})
    assert server.heard == b""


def test_unplugged_in_the_middle_of_the_line_says_that_the_effect_is_not_known() -> None:
    mesh, server, _ = faulty(FaultEvent(FaultKind.UNPLUG, Direction.TO_DEVICE, 5))
    with pytest.raises(LinkLost, match="may or may not have taken effect") as caught:
        mesh.program_states({0: "bar"})
    assert caught.value.device == "proto"
    assert (server.heard, server.connections) == (b"[(0, ", 1)


def test_unplugged_in_the_middle_of_the_progress_is_no_orderly_end() -> None:
    mesh, _, _ = faulty(FaultEvent(FaultKind.UNPLUG, Direction.FROM_DEVICE, 8))
    with pytest.raises(LinkLost, match="may not have taken effect"):
        mesh.program_states({0: "bar"})


def test_a_stalled_server_is_given_up_at_the_end_of_the_exchange() -> None:
    mesh, _, clock = faulty(FaultEvent(FaultKind.STALL, Direction.FROM_DEVICE, 6, duration_s=60.0))
    with pytest.raises(LinkTimeout, match="may not have taken effect"):
        mesh.program_states({0: "bar"})
    assert clock.now() == pytest.approx(10.0)


# -- over TCP


def serve(listener: socket.socket, heard: list[bytes], *, reset: bool) -> None:
    peer, _ = listener.accept()
    with peer:
        peer.sendall(b"welcome")
        heard.append(peer.recv(4096))
        if reset:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        else:
            peer.sendall(b"configured\n")


def over_tcp(port: int) -> LineServerMesh:
    clock = SystemClock()
    return LineServerMesh(lambda: TcpLink("127.0.0.1", port, clock), clock, device="proto")


@pytest.mark.parametrize("reset", [False, True])
def test_over_tcp_an_orderly_end_is_sent_and_a_reset_is_not(reset: bool) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        thread = threading.Thread(target=serve, args=(listener, heard), kwargs={"reset": reset})
        thread.start()
        mesh = over_tcp(listener.getsockname()[1])
        if reset:
            with pytest.raises(LinkLost, match="may not have taken effect"):
                mesh.program_states({5: "cross"})
        else:
            assert mesh.program_states({5: "cross"}).progress == "configured\n"
        thread.join(PATIENCE_S)
    assert heard == [b"[(5, 'x')]\n"]


def test_a_server_that_is_not_there_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    mesh = over_tcp(port)
    with pytest.raises(ConnectError, match="Nothing was sent"):
        mesh.program_states({0: "bar"})
