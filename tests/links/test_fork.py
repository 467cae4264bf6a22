"""A link belongs to the process that opened it: its child can neither use it nor end it."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.errors import ForkError
from lumion_hw.links.base import Link, Peer
from lumion_hw.links.fault import FaultLink, FaultPlan
from lumion_hw.links.memory import MemoryLink
from lumion_hw.links.owner import OwnerProcess, fork_safe
from lumion_hw.links.serial import SerialLink
from lumion_hw.links.tcp import TcpLink
from lumion_hw.links.visa import VisaLink
from lumion_hw.sessions.framed.session import TurnLock
from lumion_hw.sessions.module.adapter_libraries import FtdiAdapter, SmbusAdapter
from lumion_hw.sessions.module.linear_file import LinearFile
from lumion_hw.sessions.scpi import ScpiSession
from lumion_hw.testing.forking import run_in_child
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore::UserWarning:pyvisa_py"),
]
CLOCK = SystemClock()
Far = tuple[Link, Callable[[bytes], object], Callable[[], bytes]]


def soon(seconds: float = 5.0) -> float:
    return CLOCK.now() + seconds


@contextlib.contextmanager
def over_tcp(make: Callable[[int], Link]) -> Iterator[Far]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = make(server.getsockname()[1])
        link.open(soon())
        peer, _ = server.accept()
        with peer:
            peer.settimeout(PATIENCE_S)
            yield link, peer.sendall, lambda: peer.recv(100)


@contextlib.contextmanager
def over_a_pty() -> Iterator[Far]:
    far, near = os.openpty()
    tty.setraw(far)
    link = SerialLink(os.ttyname(near), 115200, CLOCK)
    try:
        link.open(soon())
        yield link, lambda data: os.write(far, data), lambda: os.read(far, 100)
    finally:
        link.close()
        os.close(far)
        os.close(near)


class Echo:
    """A device that sends back what it hears."""

    def __init__(self) -> None:
        self.heard = b""
        self.said = b""

    def connect(self) -> Peer:
        return self

    def receive(self, data: bytes) -> None:
        self.heard += data

    def transmit(self) -> bytes:
        said, self.said = self.said, b""
        return said

    def next_event(self) -> float | None:
        return None

    def close(self) -> None:
        """Nothing to be done."""


@contextlib.contextmanager
def in_memory() -> Iterator[Far]:
    echo = Echo()
    link = MemoryLink(echo.connect, CLOCK, "memory")
    link.open(soon())
    yield link, lambda data: setattr(echo, "said", data), lambda: echo.heard


def faulty(link: Link) -> Link:
    return FaultLink(link, FaultPlan(), CLOCK, seed=0)


WAYS: dict[str, Callable[[], contextlib.AbstractContextManager[Far]]] = {
    "tcp": lambda: over_tcp(lambda port: TcpLink("127.0.0.1", port, CLOCK)),
    "fault": lambda: over_tcp(lambda port: faulty(TcpLink("127.0.0.1", port, CLOCK))),
    "visa": lambda: over_tcp(lambda port: VisaLink(f"TCPIP0::127.0.0.1::{port}::SOCKET", CLOCK)),
    "pty": over_a_pty,
    "memory": in_memory,
}


@pytest.mark.parametrize(
    "way", ["tcp", "pty", "memory", *(pytest.param(way, marks=pytest.mark.long) for way in ("fault", "visa"))]
)
def test_a_child_can_neither_use_the_link_nor_end_it(way: str) -> None:
    with WAYS[way]() as (link, say, heard):
        for use in (
            lambda: link.write(b"child\n", soon()),
            lambda: link.read(soon()),
            lambda: link.drain(0.01, soon()),
            lambda: link.open(soon()),
        ):
            assert run_in_child(use) == "ForkError"

        def leave() -> None:
            link.close()
            gc.collect()

        assert run_in_child(leave) == "None"
        link.write(b"parent\n", soon())
        assert heard() == b"parent\n"
        say(b"reply\n")
        received = b""
        while len(received) < 6 and (piece := link.read(soon())):
            received += piece
        assert received == b"reply\n"
        link.close()


def test_the_visa_library_of_a_child_is_not_asked_to_end_the_session_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with over_tcp(lambda port: VisaLink(f"TCPIP0::127.0.0.1::{port}::SOCKET", CLOCK)) as (link, _, _):
        assert isinstance(link, VisaLink)
        resource = link._resource
        number, close, ended = resource.session, resource.visalib.close, []

        def noted(session: int) -> object:
            ended.append(session)
            return close(session)

        monkeypatch.setattr(resource.visalib, "close", noted)

        def end() -> bool:
            link.close()
            resource._resource_manager.close()  # as pyvisa does at the end of every process
            return number in ended

        assert run_in_child(end) == "False"
        link.close()
        assert ended == [number]


def test_the_error_names_both_processes_and_says_what_to_do() -> None:
    owner = OwnerProcess()
    owner.claim("tcp://a:1", "meter")

    def told() -> bool:
        with pytest.raises(ForkError, match=r"nothing was sent.*spawn") as refused:
            owner.check("tcp://a:1", "meter")
        return f"process {os.getppid()}" in str(refused.value) and f"{os.getpid()}" in str(refused.value)

    assert run_in_child(told) == "True"
    owner.check("tcp://a:1")


def test_what_was_never_opened_may_be_opened_by_a_child() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = TcpLink("127.0.0.1", server.getsockname()[1], CLOCK)
        assert run_in_child(lambda: link.open(soon())) == "None"


@pytest.mark.parametrize("kind", ["smbus", "ftdi", "file"])
def test_a_child_does_not_touch_the_module_its_parent_has_opened(kind: str, tmp_path: Path) -> None:
    used: list[str] = []

    def note(*_: object, **__: object) -> Any:
        used.append("the bus")
        return b"\0"

    bus = SimpleNamespace(i2c_rdwr=note, close=note)
    smbus2 = SimpleNamespace(SMBus=lambda _: bus, i2c_msg=SimpleNamespace(write=lambda *_: None, read=lambda *_: b"\0"))
    port = SimpleNamespace(exchange=note, write=note)
    chip = SimpleNamespace(configure=lambda *_, **__: None, get_port=lambda _: port, close=note)
    pyftdi = SimpleNamespace(I2cController=lambda: chip, I2cNackError=KeyError)
    (tmp_path / "eeprom").write_bytes(bytes(512))
    module = {
        "smbus": lambda: SmbusAdapter("i2c://1", library=smbus2),
        "ftdi": lambda: FtdiAdapter("ftdi://ftdi:232h/1", library=pyftdi),
        "file": lambda: LinearFile(str(tmp_path / "eeprom"), CLOCK, device="sfp"),
    }[kind]()
    module.open()

    def read_all_the_same() -> list[str]:
        with pytest.raises(ForkError):
            module.read(0x50, 0, 1)
        with pytest.raises(ForkError):
            module.open()
        module.close()
        return used

    assert run_in_child(read_all_the_same) == "[]"
    assert module.read(0x50, 0, 1) == b"\0"
    module.close()


# --- locks -----------------------------------------------------------------------------------------------------------


def test_a_session_whose_lock_a_thread_of_the_parent_holds_refuses_the_child_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = TcpLink("127.0.0.1", server.getsockname()[1], CLOCK)
        session = ScpiSession(link, CLOCK, device="meter", timeout_s=30.0)
        replies: list[str] = []
        opening = threading.Thread(target=lambda: replies.append(session.open()), daemon=True)
        opening.start()
        peer, _ = server.accept()
        with peer:
            assert peer.recv(100) == b"*IDN?\n"
            assert run_in_child(lambda: session.query("*IDN?")) == "ForkError"
            assert run_in_child(session.close) == "None"
            peer.sendall(b"A,B,C,D\n")
            opening.join(PATIENCE_S)
            assert replies == ["A,B,C,D"]
            assert session.counters.foreign_bytes == 0
        session.close()


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock, TurnLock])
def test_a_lock_held_by_another_thread_of_the_parent_is_free_in_the_child(make: Callable[[], Any]) -> None:
    lock = fork_safe(make())
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(PATIENCE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(PATIENCE_S)

    def take_and_give_back() -> bool:
        with lock:
            pass
        return bool(lock.acquire(blocking=False))

    assert run_in_child(take_and_give_back) == "True"
    assert lock.acquire(blocking=False) is False
    done.set()
    thread.join()


@pytest.mark.parametrize("make", [threading.RLock, TurnLock])
def test_a_fork_inside_of_a_transaction_leaves_it_whole(make: Callable[[], Any]) -> None:
    lock = fork_safe(make())
    with lock:
        assert run_in_child(lock.release) == "None"
