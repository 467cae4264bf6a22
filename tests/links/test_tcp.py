"""The TCP link against real sockets on loopback."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.errors import ConnectError, LinkLost
from lumion_hw.links.tcp import TcpLink
from tests.waiting import PATIENCE_S, promptly, until

CLOCK = SystemClock()


def soon(seconds: float = PATIENCE_S) -> float:
    return CLOCK.now() + seconds


def open_all(links: list[TcpLink]) -> None:
    for link in links:
        link.open(soon(0.2))


def keep_connections(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Return a list that fills with the sockets of the links that are opened from now on."""
    made: list[socket.socket] = []
    connect = socket.create_connection

    def keep(address: tuple[str, int], timeout: float) -> socket.socket:
        made.append(connect(address, timeout))
        return made[-1]

    monkeypatch.setattr(socket, "create_connection", keep)
    return made


def write_twice(link: TcpLink) -> None:
    link.write(b"x", soon())
    link.write(b"x", soon())


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        yield server


@pytest.fixture
def connected(listener: socket.socket) -> Iterator[tuple[TcpLink, socket.socket]]:
    link = TcpLink("127.0.0.1", listener.getsockname()[1], CLOCK)
    link.open(soon())
    peer, _ = listener.accept()
    with peer:
        yield link, peer
    link.close()


def test_bytes_go_both_ways(connected: tuple[TcpLink, socket.socket]) -> None:
    link, peer = connected
    link.write(b"*IDN?\n", soon())
    assert peer.recv(100) == b"*IDN?\n"
    peer.sendall(b"A,B,C,D\n")
    assert link.read(soon()) == b"A,B,C,D\n"


def test_opening_twice_keeps_the_connection(connected: tuple[TcpLink, socket.socket]) -> None:
    link, peer = connected
    link.open(soon())
    link.write(b"x", soon())
    assert peer.recv(1) == b"x"


def test_small_writes_are_not_delayed_and_dead_peers_are_noticed(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = keep_connections(monkeypatch)
    link = TcpLink("127.0.0.1", listener.getsockname()[1], CLOCK)
    link.open(soon())
    assert made[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert made[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    link.close()


def test_a_silent_peer_gives_nothing_at_the_deadline_and_not_later(connected: tuple[TcpLink, socket.socket]) -> None:
    link, _ = connected

    def listen() -> None:
        assert link.read(soon(0.12)) == b""

    promptly(listen, 0.12 + 0.1, at_least_s=0.11)


def test_reading_with_a_deadline_in_the_past_gives_what_is_there(connected: tuple[TcpLink, socket.socket]) -> None:
    link, peer = connected
    assert link.read(CLOCK.now() - 1.0) == b""
    peer.sendall(b"late")
    pieces: list[bytes] = []
    until(lambda: pieces.append(link.read(CLOCK.now() - 1.0)) or b"".join(pieces) == b"late")


def test_a_reply_in_single_bytes_arrives_whole(connected: tuple[TcpLink, socket.socket]) -> None:
    link, peer = connected
    was_read = threading.Semaphore()

    def drip() -> None:
        for byte in b"+1.0E-6\n":
            assert was_read.acquire(timeout=PATIENCE_S)
            peer.sendall(bytes([byte]))

    sender = threading.Thread(target=drip)
    sender.start()
    pieces: list[bytes] = []
    while pieces[-1:] != [b"\n"] and (piece := link.read(soon())):
        pieces.append(piece)
        was_read.release()
    sender.join(PATIENCE_S)
    assert pieces == [bytes([byte]) for byte in b"+1.0E-6\n"]


def test_draining_throws_away_until_silence(connected: tuple[TcpLink, socket.socket]) -> None:
    link, peer = connected
    peer.sendall(b"old reply\n")
    assert link.drain(0.05, soon()) == 10
    assert link.drain(0.01, soon()) == 0


def test_draining_a_talkative_peer_ends_at_the_deadline(connected: tuple[TcpLink, socket.socket]) -> None:
    link, peer = connected
    stop = threading.Event()

    def chatter() -> None:
        while not stop.wait(0.002):
            peer.sendall(b"x")

    sender = threading.Thread(target=chatter)
    sender.start()

    def drain() -> None:
        assert link.drain(0.5, soon(0.15)) > 0

    promptly(drain, 0.25)
    stop.set()
    sender.join(PATIENCE_S)


def test_nobody_listening_is_a_connect_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectError, match="cannot connect") as caught:
        TcpLink("127.0.0.1", port, CLOCK).open(soon())
    assert caught.value.address == f"tcp://127.0.0.1:{port}"
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


def test_an_unknown_host_is_a_connect_error() -> None:
    with pytest.raises(ConnectError):
        TcpLink("name.invalid", 5025, CLOCK).open(soon())


def test_a_host_that_never_answers_is_given_up_at_the_deadline() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        with socket.create_connection(server.getsockname()):  # fills the queue of one
            links = [TcpLink("127.0.0.1", server.getsockname()[1], CLOCK) for _ in range(5)]

            def dial() -> None:
                with pytest.raises(ConnectError, match="no connection within"):
                    open_all(links)

            promptly(dial, 1.5)


def test_a_peer_that_closes_is_lost_at_the_next_read(connected: tuple[TcpLink, socket.socket]) -> None:
    link, peer = connected
    peer.close()
    with pytest.raises(LinkLost, match="closed by the other side"):
        link.read(soon())
    with pytest.raises(LinkLost, match="the link is closed"):
        link.write(b"x", soon())


def test_a_half_closed_peer_is_lost_too(connected: tuple[TcpLink, socket.socket]) -> None:
    link, peer = connected
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(LinkLost):
        link.read(soon())


def test_a_reset_in_the_middle_of_a_reply_is_lost(connected: tuple[TcpLink, socket.socket]) -> None:
    link, peer = connected
    peer.sendall(b"half a rep")
    assert link.read(soon()) == b"half a rep"
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    with pytest.raises(LinkLost) as caught:
        link.read(soon())
    assert isinstance(caught.value.__cause__, ConnectionResetError)


def test_writing_to_a_peer_that_reset_is_lost_within_two_writes(
    monkeypatch: pytest.MonkeyPatch, listener: socket.socket
) -> None:
    made = keep_connections(monkeypatch)
    link = TcpLink("127.0.0.1", listener.getsockname()[1], CLOCK)
    link.open(soon())
    peer, _ = listener.accept()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    assert select.select(made, [], [], PATIENCE_S)[0], "the reset has not arrived"
    with pytest.raises(LinkLost):
        write_twice(link)


def test_draining_a_lost_peer_is_lost(connected: tuple[TcpLink, socket.socket]) -> None:
    link, peer = connected
    peer.close()
    with pytest.raises(LinkLost):
        link.drain(0.05, soon())


def test_a_peer_that_does_not_read_stalls_the_write_until_its_deadline(
    connected: tuple[TcpLink, socket.socket],
) -> None:
    link, _ = connected

    def write() -> None:
        link.open(soon())
        with pytest.raises(LinkLost, match="could not be written in time"):
            link.write(bytes(50_000_000), soon(0.2))

    promptly(write, 0.2 + 0.2)
    with pytest.raises(LinkLost, match="the link is closed"):
        link.read(soon())


def test_closing_from_another_thread_ends_a_read_as_lost(connected: tuple[TcpLink, socket.socket]) -> None:
    link, _ = connected

    def read() -> None:
        link.open(soon())
        threading.Timer(0.1, link.close).start()
        with pytest.raises(LinkLost):
            link.read(soon(60.0))

    promptly(read, 0.4)


def test_closing_is_idempotent_and_reopening_works(listener: socket.socket) -> None:
    link = TcpLink("127.0.0.1", listener.getsockname()[1], CLOCK)
    link.close()
    link.open(soon())
    link.close()
    link.close()
    link.open(soon())
    link.write(b"again", soon())
    first, _ = listener.accept()
    second, _ = listener.accept()
    with first, second:
        assert second.recv(10) == b"again"
    link.close()


def test_an_ipv6_host_is_named_with_brackets() -> None:
    assert TcpLink("::1", 5025, CLOCK).name == "tcp://[::1]:5025"
