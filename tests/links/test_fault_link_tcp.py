"""The fault link around a real TCP connection and around a pty."""

from __future__ import annotations

import os
import pty
import socket
import threading
import tty
from collections.abc import Iterator

import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.errors import LinkLost
from lumion_hw.links import Link, SerialLink, TcpLink
from lumion_hw.links.fault import Direction, FaultEvent, FaultKind, FaultLink, FaultPlan, FaultRates
from tests.waiting import PATIENCE_S

CLOCK = SystemClock()
TO, FROM = Direction.TO_DEVICE, Direction.FROM_DEVICE
DATA = bytes(range(256)) * 8


def soon(seconds: float = 2.0) -> float:
    return CLOCK.now() + seconds


def echo(listener: socket.socket) -> None:
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with peer:
            while data := peer.recv(4096):
                peer.sendall(data)


@pytest.fixture
def tcp() -> Iterator[Link]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=echo, args=(listener,), daemon=True)
        thread.start()
        link = TcpLink("127.0.0.1", listener.getsockname()[1], CLOCK)
        yield link
        link.close()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_S)


def read_all(link: Link, n_bytes: int) -> bytes:
    data = b""
    while len(data) < n_bytes and (piece := link.read(soon())):
        data += piece
    return data


def test_over_tcp_the_same_seed_damages_the_same_bytes_whatever_the_segments(tcp: Link) -> None:
    plan = FaultPlan(from_device=FaultRates(flip=0.01, drop=0.01, duplicate=0.01))
    seen = []
    for size in (len(DATA), 100):
        link = FaultLink(tcp, plan, CLOCK, seed=4)
        link.open(soon())
        for start in range(0, len(DATA), size):
            link.write(DATA[start : start + size], soon())
        data = b""
        while link.counts(FROM).accepted < len(DATA):
            data += link.read(soon())
        expected = link.counts(FROM).delivered + link.counts(FROM).waiting
        data += read_all(link, expected - len(data))
        seen.append(data)
        link.close()
    assert seen[0] == seen[1]
    assert seen[0] != DATA


def test_a_tcp_connection_is_unplugged_after_byte_n_and_opens_again(tcp: Link) -> None:
    link = FaultLink(tcp, FaultPlan(events=(FaultEvent(FaultKind.UNPLUG, FROM, 1000),)), CLOCK, seed=1)
    link.open(soon())
    link.write(DATA, soon())
    assert read_all(link, 1000) == DATA[:1000]
    with pytest.raises(LinkLost, match="unplugged"):
        link.read(soon())
    link.open(soon())
    link.write(b"again", soon())
    assert read_all(link, 5) == b"again"
    link.close()


def test_a_serial_line_loses_byte_n() -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    inner = SerialLink(os.ttyname(slave), 115200, CLOCK)
    link = FaultLink(inner, FaultPlan(events=(FaultEvent(FaultKind.DROP, TO, 2),)), CLOCK, seed=1)
    try:
        link.open(soon())
        link.write(b"V3=4.5\n", soon())
        assert os.read(master, 100) == b"V34.5\n"
    finally:
        link.close()
        os.close(master)
        os.close(slave)
