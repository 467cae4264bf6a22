"""The emulated line server of the SmartLight prototype: greeting, one line of PUC states, progress, end of connection.

Grammar and figures: docs/bench-file.md, smartlight-line-server.
"""

from __future__ import annotations

import socket
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.emulator.mesh.line_server import MAX_CONNECTIONS, MAX_LINE, LineServer, parse_states
from lumion_hw.emulator.wires.server import EmulatorServer
from lumion_hw.errors import ConfigError, ConnectError, DeviceError, LinkLost
from lumion_hw.links.memory import MemoryLink
from tests.effort import examples
from tests.waiting import PATIENCE_S, promptly


class Rig:
    """A server whose applied states are recorded with their times, and its hosts."""

    def __init__(self, apply: Callable[[dict[int, str]], None] | None = None, **settings: object) -> None:
        self.clock = VirtualClock()
        self.applied: list[tuple[float, dict[int, str]]] = []
        self.server = LineServer("unit", self.clock, apply_states=apply or self.note, **settings)

    def note(self, states: dict[int, str]) -> None:
        self.applied.append((self.clock.now(), states))

    def dial(self) -> MemoryLink:
        link = MemoryLink(self.server.connect, self.clock, "memory://unit")
        link.open(0.0)
        return link

    def exchange(self, line: bytes) -> str:
        """Hold one whole conversation; return the server's text from the greeting to the end."""
        link = self.dial()
        assert link.read(0.0) == b"photonic unit ready\n"
        link.write(line, 0.0)
        return self.rest(link)

    def rest(self, link: MemoryLink) -> str:
        """Read until the server closes the connection, which must happen within 10 s."""
        text, deadline = b"", self.clock.now() + 10.0
        while True:
            try:
                data = link.read(deadline)
            except LinkLost:
                link.close()
                return text.decode("utf-8")
            assert data, "the connection is still open"
            text += data


# -- the grammar


@pytest.mark.parametrize(
    ("line", "states"),
    [
        (b"[]", {}),
        (b"[(0, '='), (1, 'x')]", {0: "=", 1: "x"}),
        (b'[(0, "=")]', {0: "="}),
        (b"[(71,'x'),(0,'=')]", {71: "x", 0: "="}),
        (b"  [ ( 7 , 'x' ) , ( 08 , \"=\" ) ]\t", {7: "x", 8: "="}),
    ],
)
def test_lists_of_pairs_are_understood(line: bytes, states: dict[int, str]) -> None:
    assert parse_states(line) == states


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[", b"]", b"[[]]", b"()", b"[()]", b"[(0)]", b"[(0,)]", b"[(0, 'x'),]", b"[,(0, 'x')]",
        b"[(0, 'x') (1, 'x')]", b"[(0, x)]", b"[(0, 'x\")]", b"[(0, ' x')]", b"[(0, '')]", b"[(0, 'xx')]",
        b"[(0, 'y')]", b"[(0, 'X')]", b"[(-1, 'x')]", b"[(+1, 'x')]", b"[(1.0, 'x')]", b"[(100, 'x')]",
        b"[(072, 'x')]", b"[(1 2, 'x')]", b"[(0, 'x'))]", b"[(0, 'x')] ]", b"[(0, 'x')]#", b"[(0, 'x')]\r",
        b"[(0, 'x')]\x00", b"[(0x1, 'x')]", b"[(0, 'x', 1)]", b"{0: 'x'}", b"0,1;2,3", b"[('x', 0)]",
        b"[(0, 'x')];import os", b"__import__('os')", b"[(0, 'x')]\xff", "[(٣, 'x')]".encode(),
    ],
)  # fmt: skip
def test_what_is_no_list_of_pairs_is_refused(line: bytes) -> None:
    with pytest.raises(ConfigError):
        parse_states(line)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[(72, 'x')]", "no PUC 72"),
        (b"[(3, 'x'), (4, 'x'), (03, '=')]", "PUC 3 is listed twice"),
        (b"[(3, 'x') (4, 'x')]", "character 10"),
        (b"(3, 'x')", "begin"),
        (b"[(3, 'y')]", "characters"),
        (b"[" + b" " * MAX_LINE + b"]", "4096"),
    ],
)
def test_the_reason_is_given(line: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_states(line)


def test_smaller_units_have_fewer_pucs() -> None:
    assert parse_states(b"[(3, 'x')]", n_pucs=4) == {3: "x"}
    with pytest.raises(ConfigError, match="only 0 to 3"):
        parse_states(b"[(4, 'x')]", n_pucs=4)


@pytest.mark.parametrize(("count", "size"), [(57, 618), (40, 433), (72, 783)])
def test_published_configurations_fit(count: int, size: int) -> None:
    first = 2 if count == 40 else 0  # the listed PUCs are unknown, but not the length of the line
    line = "[" + ", ".join(f"({puc}, '=')" for puc in range(first, first + count)) + "]\n"
    assert len(line) == size
    assert len(parse_states(line[:-1].encode())) == count


@given(
    states=st.dictionaries(st.integers(0, 71), st.sampled_from("x="), max_size=72),
    blank=st.sampled_from(["", " ", "  "]),
)
def test_every_configuration_is_read_as_written(states: dict[int, str], blank: str) -> None:
    pairs = f",{blank}".join(f"({puc},{blank}'{state}'{blank})" for puc, state in states.items())
    assert parse_states(f"[{blank}{pairs}{blank}]".encode()) == states


def test_a_long_line_of_nearly_right_text_is_refused_at_once() -> None:
    def parse() -> None:
        for line in (b"[" + b"(" * 4000, b"[" + b" " * 4000, b"[(0,'x')" + b" " * 4000 + b"(", b"[" + b"(1," * 1300):
            with pytest.raises(ConfigError):
                parse_states(line)

    promptly(parse, 1.0)


# -- the conversation


def test_a_configuration_is_applied_told_and_the_connection_closed() -> None:
    rig = Rig()
    assert rig.exchange(b"[(0, '='), (1, 'x')]\n") == "configuring\nconfigured\n"
    assert [states for _, states in rig.applied] == [{0: "=", 1: "x"}]


@pytest.mark.parametrize(("count", "seconds"), [(0, 0.015), (36, 0.0525), (72, 0.090)])
def test_a_reconfiguration_takes_15_to_90_ms(count: int, seconds: float) -> None:
    rig = Rig()
    rig.exchange(("[" + ", ".join(f"({puc}, 'x')" for puc in range(count)) + "]\n").encode())
    assert rig.applied[0][0] == pytest.approx(seconds, abs=1e-5)
    assert len(rig.applied[0][1]) == count


def test_the_progress_is_spread_over_the_time() -> None:
    rig = Rig(progress=("a\n", "b\n", "c\n"), reconfiguration_s=(0.04, 0.04))
    link = rig.dial()
    link.read(0.0)
    link.write(b"[]\n", 0.0)
    told = [(link.read(1.0), round(rig.clock.now(), 4)) for _ in range(3)]
    assert told == [(b"a\n", 0.0), (b"b\n", 0.02), (b"c\n", 0.04)]
    with pytest.raises(LinkLost, match="unit"):
        link.read(1.0)


@pytest.mark.parametrize("progress", [(), ("done\n",)])
def test_a_server_may_say_little(progress: tuple[str, ...]) -> None:
    rig = Rig(progress=progress)
    assert rig.exchange(b"[(3, 'x')]\n") == "".join(progress)
    assert rig.applied[0][1] == {3: "x"}


def test_a_server_may_not_greet() -> None:
    rig = Rig(greeting="")
    link = rig.dial()
    assert link.read(1.0) == b""
    link.write(b"[]\n", 0.0)
    assert rig.rest(link) == "configuring\nconfigured\n"


def test_a_bad_line_is_told_and_changes_nothing() -> None:
    rig = Rig()
    answer = rig.exchange(b"[(72, 'x')]\n")
    assert answer.startswith("error: there is no PUC 72")
    assert answer.endswith("\n")
    assert rig.applied == []
    assert rig.exchange(b"[(71, 'x')]\n") == "configuring\nconfigured\n", "the server lives on"


def test_what_the_optics_refuse_is_told() -> None:
    def refuse(states: dict[int, str]) -> None:
        raise DeviceError("heater 5 is broken")

    assert Rig(refuse).exchange(b"[(3, 'x')]\n") == "configuring\nerror: heater 5 is broken\n"


def test_a_line_may_come_in_pieces_and_what_follows_it_is_ignored() -> None:
    rig = Rig()
    link = rig.dial()
    link.read(0.0)
    for byte in b"[(3, 'x')]":
        link.write(bytes([byte]), 0.0)
        rig.clock.sleep(1.0)
    assert link.read(rig.clock.now() + 100.0) == b"", "it waits for the end of the line"
    link.write(b"\n[(4, 'x')]\n", 0.0)
    link.write(b"[(5, 'x')]\n", 0.0)
    assert rig.rest(link) == "configuring\nconfigured\n"
    assert [states for _, states in rig.applied] == [{3: "x"}]


def test_a_line_without_end_is_refused_at_its_longest() -> None:
    rig = Rig()
    link = rig.dial()
    link.read(0.0)
    link.write(b"[" * (MAX_LINE - 1), 0.0)
    assert link.read(1.0) == b""
    link.write(b"[", 0.0)
    assert rig.rest(link) == "error: the line is longer than 4096 bytes\n"


def test_a_line_of_4096_bytes_with_its_end_is_taken() -> None:
    line = b"[(3, 'x')" + b" " * (MAX_LINE - 11) + b"]\n"
    assert len(line) == MAX_LINE
    assert Rig().exchange(line) == "configuring\nconfigured\n"


def test_reconfigurations_of_two_hosts_happen_one_after_the_other() -> None:
    rig = Rig(reconfiguration_s=(0.05, 0.05))
    first, second = rig.dial(), rig.dial()
    first.write(b"[(1, 'x')]\n", 0.0)
    second.write(b"[(2, 'x')]\n", 0.0)
    rig.rest(second)
    assert rig.applied == [(pytest.approx(0.05), {1: "x"}), (pytest.approx(0.10), {2: "x"})]


def test_a_host_that_leaves_has_still_reconfigured() -> None:
    rig = Rig()
    link = rig.dial()
    link.write(b"[(1, 'x')]\n", 0.0)
    link.close()
    rig.clock.sleep(1.0)
    rig.server.advance()
    assert [states for _, states in rig.applied] == [{1: "x"}]


def test_a_host_that_leaves_before_the_end_of_its_line_has_done_nothing() -> None:
    rig = Rig()
    link = rig.dial()
    link.write(b"[(1, 'x')]", 0.0)
    link.close()
    rig.clock.sleep(1.0)
    rig.server.advance()
    assert rig.applied == []


def test_too_many_hosts_are_refused() -> None:
    rig = Rig()
    links = [rig.dial() for _ in range(MAX_CONNECTIONS)]
    with pytest.raises(ConnectError, match="unit"):
        rig.server.connect()
    links[0].close()
    rig.dial()


def test_hosts_that_leave_do_not_pile_up_work_without_end() -> None:
    rig = Rig()
    for _ in range(MAX_CONNECTIONS):
        link = rig.dial()
        link.write(b"[]\n", 0.0)
        link.close()
    with pytest.raises(ConnectError):
        rig.server.connect()
    rig.clock.sleep(1.0)
    rig.server.advance()
    assert rig.exchange(b"[]\n") == "configuring\nconfigured\n"


def test_power_loss_ends_every_connection_and_what_is_under_way() -> None:
    rig = Rig()
    link = rig.dial()
    link.write(b"[(1, 'x')]\n", 0.0)
    rig.server.power_off()
    assert rig.rest(link) == "photonic unit ready\nconfiguring\n"
    with pytest.raises(ConnectError, match="unit"):
        rig.server.connect()
    rig.server.power_on()
    rig.clock.sleep(1.0)
    rig.exchange(b"[(2, 'x')]\n")
    assert [states for _, states in rig.applied] == [{2: "x"}]


# -- arbitrary bytes


@examples(100)
@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.text(alphabet="[]()',\"x=0129 \t\n;", max_size=200).map(str.encode),
        st.lists(st.sampled_from([b"[", b"(3, 'x')", b"(3", b",", b"'x'", b"]", b"\n", b" "]), max_size=30).map(
            b"".join
        ),
    ),
    cut=st.integers(0, 200),
)
def test_any_bytes_leave_the_server_alive(data: bytes, cut: int) -> None:
    rig = Rig()
    link = rig.dial()
    link.write(data[:cut], 0.0)
    link.write(data[cut:], 0.0)
    rig.clock.sleep(0.2)
    link.write(b"\n", 0.0)
    said = rig.rest(link).removeprefix("photonic unit ready\n")
    line = data.partition(b"\n")[0]
    try:
        states = parse_states(line)
    except ConfigError:
        assert said.startswith("error: ")
        assert rig.applied == []
    else:
        assert said == "configuring\nconfigured\n"
        assert [found for _, found in rig.applied] == [states]
    assert rig.exchange(b"[]\n") == "configuring\nconfigured\n"


def test_floods_are_bounded_in_memory() -> None:
    rig = Rig()
    links = [rig.dial() for _ in range(8)]
    chunk = b"[(0, " * 10_000
    tracemalloc.start()
    for link in links:
        for _ in range(40):
            link.write(chunk, 0.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
    assert all(rig.rest(link).endswith("error: the line is longer than 4096 bytes\n") for link in links)


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.long if seed < 2 else pytest.mark.campaign) for seed in range(0, 10)],
)
def test_thousands_of_broken_conversations_leave_the_server_alive(seed: int) -> None:
    noise = np.random.default_rng(seed)
    rig = Rig()
    good = b"[(0, '='), (1, 'x'), (71, \"x\")]\n"
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(int(noise.integers(0, 4))):
            data[int(noise.integers(len(data)))] = int(noise.integers(256))
        link = rig.dial()
        link.write(bytes(data), 0.0)
        if noise.random() < 0.2:
            link.close()
            rig.clock.sleep(0.1)
            continue
        link.write(b"\n", 0.0)
        rig.rest(link)
    assert rig.exchange(good) == "configuring\nconfigured\n"


# -- on TCP


def conversation(port: int, *writes: bytes) -> bytes:
    """Talk to a served unit and read until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        text = connection.recv(1024)
        for data in writes:
            connection.sendall(data)
        while data := connection.recv(1024):
            text += data
    return text


def test_a_host_on_tcp_is_served_and_the_connection_closed_by_the_server() -> None:
    applied: list[dict[int, str]] = []
    unit = LineServer("unit", SystemClock(), apply_states=applied.append)
    with EmulatorServer(SystemClock()) as server:
        port = int(server.add_tcp(unit).rpartition(":")[2])
        with server.in_thread():
            start = time.monotonic()
            answer = conversation(port, b"[(0, '='), ", b"(1, 'x')]\n")
            assert answer == b"photonic unit ready\nconfiguring\nconfigured\n"
            assert time.monotonic() - start > 0.015
            assert b"error: " in conversation(port, b"[(0, '='), (0, 'x')]\n")
            assert b"configured\n" in conversation(port, b"[]\n")
    assert applied == [{0: "=", 1: "x"}, {}]
