"""The SCPI session on a real socket: threads, late replies, an instrument that dies."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.errors import LinkLost, LinkTimeout
from lumion_hw.links import TcpLink
from lumion_hw.sessions.scpi import ScpiSession
from tests.waiting import PATIENCE_S

CLOCK = SystemClock()
IDN = b"Maker,Model,Serial,1.0\n"


class Instrument:
    """Answers ``ECHO? x`` with ``x``, in small pieces, ``LATE?`` when it may, and ``NEXT?`` with the next query.

    Attributes:
        may_answer: Set when the reply to ``LATE?`` may leave.
    """

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self._late = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection, connection.makefile("rb") as lines:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for line in lines:
                if line == b"DIE?\n":
                    return
                self._answer(connection, line.decode().split())

    def _answer(self, connection: socket.socket, words: list[str]) -> None:
        late, self._late = self._late, b""
        connection.sendall(late)
        if words[0] == "*IDN?":
            connection.sendall(IDN)
        elif words[0] == "ECHO?":
            reply = words[1].encode() + b"\n"
            connection.sendall(reply[:1])
            connection.sendall(reply[1:])
        elif words[0] == "LATE?":
            self.may_answer.wait(PATIENCE_S)
            connection.sendall(b"late\n")
        elif words[0] == "NEXT?":
            self._late = b"late\n"

    def close(self) -> None:
        self._server.close()
        self._thread.join(PATIENCE_S)


@pytest.fixture
def instrument() -> Iterator[Instrument]:
    instrument = Instrument()
    yield instrument
    instrument.close()


@pytest.fixture
def session(instrument: Instrument) -> Iterator[ScpiSession]:
    opened = ScpiSession(TcpLink("127.0.0.1", instrument.port, CLOCK), CLOCK, device="echo", timeout_s=PATIENCE_S)
    opened.open()
    yield opened
    opened.close()


def test_two_threads_with_2000_queries_each_never_get_each_others_reply(session: ScpiSession) -> None:
    swapped: list[tuple[str, str]] = []

    def ask(name: str) -> None:
        for number in range(2000):
            expected = f"{name}{number}"
            reply = session.query(f"ECHO? {expected}")
            if reply != expected:
                swapped.append((expected, reply))

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert swapped == []
    assert session.counters.exchanges == 1 + 4000
    assert session.counters.incomplete == 0


def test_a_transaction_keeps_other_threads_out(session: ScpiSession) -> None:
    order: list[str] = []
    inside = threading.Event()

    def intrude() -> None:
        inside.wait(PATIENCE_S)
        session.query("ECHO? other")
        order.append("other")

    intruder = threading.Thread(target=intrude)
    intruder.start()
    with session.transaction():
        inside.set()
        for _ in range(20):
            session.query("ECHO? mine")
        order.append("mine")
    intruder.join(PATIENCE_S)
    assert order == ["mine", "other"]


def test_two_sessions_at_one_address_take_turns(session: ScpiSession) -> None:
    port = int(session.address.rpartition(":")[2])
    other = ScpiSession(TcpLink("127.0.0.1", port, CLOCK), CLOCK, device="other")
    inside, order = threading.Event(), []

    def intrude() -> None:
        inside.wait(PATIENCE_S)
        with other.transaction():
            order.append("other")

    intruder = threading.Thread(target=intrude)
    intruder.start()
    with session.transaction():
        inside.set()
        for _ in range(50):
            session.query("ECHO? mine")
        order.append("mine")
    intruder.join(PATIENCE_S)
    assert order == ["mine", "other"]


def test_a_query_after_a_time_out_gets_its_own_reply(session: ScpiSession, instrument: Instrument) -> None:
    with pytest.raises(LinkTimeout):
        session.query("LATE?", timeout_s=0.05)
    instrument.may_answer.set()
    for number in range(3):
        assert session.query(f"ECHO? {number}") == str(number)
    assert session.counters.resyncs == 1


def test_a_reply_that_is_late_by_more_than_the_silence_is_still_recognised(session: ScpiSession) -> None:
    with pytest.raises(LinkTimeout):
        session.query("NEXT?", timeout_s=0.05)  # "late" arrives when the silence is over and the marker was sent
    assert session.query("ECHO? 7") == "7"


def test_an_instrument_that_dies_is_lost_at_once_and_stays_lost(session: ScpiSession) -> None:
    with pytest.raises(LinkLost) as caught:
        session.query("DIE?", timeout_s=PATIENCE_S)  # lost, and not when the time is over
    assert str(caught.value).startswith("echo @ tcp://127.0.0.1:")
    with pytest.raises(LinkLost):
        session.query("ECHO? 1", timeout_s=PATIENCE_S)
