"""The VISA link through the pure-Python backend, on a raw socket of loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.errors import ConnectError, LinkLost
from lumion_hw.links.visa import VisaLink
from tests.waiting import PATIENCE_S, promptly, until

CLOCK = SystemClock()
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pyvisa_py")


def soon(seconds: float = PATIENCE_S) -> float:
    return CLOCK.now() + seconds


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        yield server


def connect(listener: socket.socket) -> tuple[VisaLink, socket.socket]:
    link = VisaLink(f"TCPIP0::127.0.0.1::{listener.getsockname()[1]}::SOCKET", CLOCK)
    link.open(soon())
    peer, _ = listener.accept()
    return link, peer


def test_a_query_and_its_reply(listener: socket.socket) -> None:
    link, peer = connect(listener)
    with peer:
        link.write(b"*IDN?\n", soon())
        assert peer.recv(100) == b"*IDN?\n"
        peer.sendall(b"A,B,C,D\n")
        assert link.read(soon()) == b"A,B,C,D\n"
        link.close()


def test_bytes_without_a_terminator_arrive_too(listener: socket.socket) -> None:
    link, peer = connect(listener)
    with peer:
        peer.sendall(b"#14\n\n\n\nrest")
        received = b""
        while len(received) < 11 and (piece := link.read(soon())):
            received += piece
        assert received == b"#14\n\n\n\nrest"
        link.close()


def test_a_silent_instrument_gives_nothing_at_the_deadline(listener: socket.socket) -> None:
    link, peer = connect(listener)
    with peer:

        def listen() -> None:
            assert link.read(soon(0.15)) == b""

        promptly(listen, 0.4)
        assert link.drain(0.05, soon(0.2)) == 0
        link.close()


def test_closing_one_link_leaves_another_alive(listener: socket.socket) -> None:
    first, first_peer = connect(listener)
    second, second_peer = connect(listener)
    with first_peer, second_peer:
        first.close()
        first.close()
        second.write(b"x\n", soon())
        assert second_peer.recv(10) == b"x\n"
        second.close()


def test_an_instrument_that_went_away_is_lost_within_a_few_writes(listener: socket.socket) -> None:
    link, peer = connect(listener)
    peer.close()
    with pytest.raises(LinkLost):
        until(lambda: link.write(b"x\n", soon()), 10.0)
    with pytest.raises(LinkLost, match="the link is closed"):
        link.read(soon())


def test_a_resource_that_does_not_exist_is_a_connect_error() -> None:
    with pytest.raises(ConnectError, match="cannot open"):
        VisaLink("ASRL/dev/lumion-no-such-port::INSTR", CLOCK).open(soon(0.3))


def test_usb_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    class Manager:
        def open_resource(self, name: str, open_timeout: int) -> None:
            raise ValueError("Please install PyUSB to use this resource type.")  # as pyvisa-py words it

    monkeypatch.setattr("lumion_hw.links.visa._resource_manager", lambda backend: Manager())
    with pytest.raises(ConnectError, match=r"pip install 'lumion-hw\[usb\]'"):
        VisaLink("USB0::0x1313::0x8078::P0000001::INSTR", CLOCK).open(soon())


def test_a_manager_that_somebody_else_closed_is_made_anew(listener: socket.socket) -> None:
    """pyvisa has one manager for everybody; a lab script that closes its own closes ours."""
    import pyvisa

    link, peer = connect(listener)
    link.close()
    peer.close()
    pyvisa.ResourceManager("@py").close()
    again, peer = connect(listener)
    again.write(b"*IDN?\n", soon())
    assert peer.recv(64) == b"*IDN?\n"
    again.close()
    peer.close()


def test_no_read_is_told_to_wait_for_no_time_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """VISA counts whole milliseconds; at 0 pyvisa-py raises at once, and silence would look like a lost instrument."""
    from pyvisa import VisaIOError
    from pyvisa.constants import StatusCode

    clock = VirtualClock()

    class Silent:
        timeouts_ms: list[float] = []  # noqa: RUF012

        def __setattr__(self, name: str, value: float) -> None:
            self.timeouts_ms.append(value)

        def read_raw(self) -> bytes:
            clock.sleep(0.4e-3)
            raise VisaIOError(StatusCode.error_timeout)

        def close(self) -> None: ...

    class Manager:
        def open_resource(self, name: str, open_timeout: int) -> Silent:
            return Silent()

    monkeypatch.setattr("lumion_hw.links.visa._resource_manager", lambda backend: Manager())
    link = VisaLink("TCPIP0::192.0.2.7::hislip0::INSTR", clock)
    link.open(clock.now() + 1.0)
    assert link.read(clock.now() + 3e-3) == b""
    assert len(Silent.timeouts_ms) > 1
    assert min(Silent.timeouts_ms) >= 1.0
    link.close()
