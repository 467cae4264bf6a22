"""The serial link on ptys: everything but the wire's pace."""

from __future__ import annotations

import os
import threading
import tty
from collections.abc import Iterator

import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.errors import ConnectError, InUseError, LinkLost
from lumion_hw.links.serial import SerialLink
from tests.waiting import PATIENCE_S, promptly, until

CLOCK = SystemClock()


def soon(seconds: float = PATIENCE_S) -> float:
    return CLOCK.now() + seconds


class Pty:
    """The device's end of a pty, which can be pulled like a plug."""

    def __init__(self) -> None:
        self.master, self._slave = os.openpty()
        tty.setraw(self._slave)
        self.path = os.ttyname(self._slave)

    def send(self, data: bytes) -> None:
        os.write(self.master, data)

    def receive(self, n_bytes: int = 1) -> bytes:
        """Return what has come, at least ``n_bytes``: a pty hands a write over in pieces of its own choosing."""
        data = b""
        while len(data) < n_bytes:
            data += os.read(self.master, 65536)
        return data

    def unplug(self) -> None:
        ends, self.master, self._slave = (self._slave, self.master), -1, -1  # a timer and the fixture may both come
        for fd in ends:
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def pty() -> Iterator[Pty]:
    device = Pty()
    yield device
    device.unplug()


@pytest.fixture
def link(pty: Pty) -> Iterator[SerialLink]:
    opened = SerialLink(pty.path, 9600, CLOCK)
    opened.open(soon())
    yield opened
    opened.close()


def test_bytes_go_both_ways_unchanged(pty: Pty, link: SerialLink) -> None:
    every_byte = bytes(range(256))
    link.write(every_byte, soon())
    assert pty.receive(len(every_byte)) == every_byte
    pty.send(every_byte)
    received = b""
    while len(received) < 256 and (piece := link.read(soon())):
        received += piece
    assert received == every_byte


def test_a_long_write_goes_out_whole_and_in_order(pty: Pty, link: SerialLink) -> None:
    data = bytes(range(256)) * 40
    received = bytearray()

    def collect() -> None:
        while len(received) < len(data):
            received.extend(pty.receive())

    reader = threading.Thread(target=collect)
    reader.start()
    link.write(data, soon(PATIENCE_S))
    reader.join(PATIENCE_S)
    assert bytes(received) == data


def test_a_silent_device_gives_nothing_at_the_deadline(link: SerialLink) -> None:
    def listen() -> None:
        assert link.read(soon(0.1)) == b""

    promptly(listen, 0.2, at_least_s=0.09)


def test_a_deadline_in_the_past_gives_what_is_there(pty: Pty, link: SerialLink) -> None:
    assert link.read(CLOCK.now() - 1.0) == b""
    pty.send(b"late")
    pieces: list[bytes] = []
    until(lambda: pieces.append(link.read(CLOCK.now() - 1.0)) or b"".join(pieces) == b"late")


def test_draining_throws_away_until_silence(pty: Pty, link: SerialLink) -> None:
    pty.send(b"OK")
    assert link.drain(0.05, soon()) == 2


def test_a_missing_port_is_a_connect_error() -> None:
    with pytest.raises(ConnectError, match="cannot open the port") as caught:
        SerialLink("/dev/lumion-no-such-port", 9600, CLOCK).open(soon())
    assert "no-such-port?baud=9600" in str(caught.value)


def test_a_second_open_of_the_same_port_is_refused_as_in_use(pty: Pty, link: SerialLink) -> None:
    with pytest.raises(InUseError, match="in use") as caught:
        SerialLink(pty.path, 9600, CLOCK).open(soon())
    assert caught.value.exit_code == 6  # busy, as a device that another host holds
    link.open(soon())  # opening an open link does nothing


def test_a_port_can_be_opened_again_after_closing(pty: Pty, link: SerialLink) -> None:
    link.close()
    link.close()
    link.open(soon())
    link.write(b"again", soon())
    assert pty.receive(5) == b"again"


def test_unplugged_while_reading_is_lost(pty: Pty, link: SerialLink) -> None:
    threading.Timer(0.1, pty.unplug).start()
    with pytest.raises(LinkLost):
        link.read(soon(PATIENCE_S))  # not when the time is over: the test would never end
    with pytest.raises(LinkLost, match="the link is closed"):
        link.read(soon())


@pytest.mark.parametrize(
    "call",
    [
        lambda link: link.read(soon()),
        lambda link: link.write(b"x", soon()),
        lambda link: link.drain(0.05, soon()),
    ],
    ids=["read", "write", "drain"],
)
def test_unplugged_before_a_call_is_lost(pty: Pty, link: SerialLink, call: object) -> None:
    pty.unplug()
    assert callable(call)
    with pytest.raises(LinkLost) as caught:
        call(link)
    assert isinstance(caught.value.__cause__, OSError)
    link.close()


def test_unplugged_before_closing_is_closed(pty: Pty, link: SerialLink) -> None:
    pty.unplug()
    link.close()


def test_unplugged_before_opening_again_is_a_connect_error(pty: Pty, link: SerialLink) -> None:
    link.close()
    pty.unplug()
    with pytest.raises(ConnectError):
        link.open(soon())


def test_a_device_that_does_not_read_stalls_the_write_until_it_is_lost(link: SerialLink) -> None:
    def write() -> None:
        link.open(soon())
        with pytest.raises(LinkLost):
            link.write(bytes(200_000), soon(0.3))

    promptly(write, 0.3 + 0.6)  # the deadline, or the port's own write time-out


def test_closing_from_another_thread_ends_a_read_as_lost(link: SerialLink) -> None:
    threading.Timer(0.1, link.close).start()
    with pytest.raises(LinkLost):
        link.read(soon(PATIENCE_S))
