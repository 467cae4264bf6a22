"""The SCPI session over a pty, with a plug that is pulled at every moment of a query."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import termios
import threading
import tty
from collections.abc import Iterator

import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.errors import LinkError, LinkLost, LinkTimeout
from lumion_hw.links import SerialLink
from lumion_hw.sessions.scpi import ScpiSession
from tests.waiting import PATIENCE_S, until

CLOCK = SystemClock()
IDN = b"Maker,Model,Serial,1.0\n"


class Instrument:
    """Answers on a pty; some queries make it slow, silent or gone.

    Attributes:
        may_answer: Set when the late reply may leave.
    """

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        self.path = os.ttyname(self._slave)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        heard = b""
        while True:
            heard += os.read(self._master, 1000)
            *queries, heard = heard.split(b"\n")
            for query in queries:
                if query == b"STOP?":
                    return
                if not self._answer(query):
                    self._unplug()
                    return

    def _answer(self, query: bytes) -> bool:
        if query == b"*IDN?":
            os.write(self._master, IDN)
        elif query == b"ECHO?":
            os.write(self._master, b"echo\n")
        elif query == b"LATE?":
            self.may_answer.wait(PATIENCE_S)
            os.write(self._master, b"late\n")
        elif query == b"HALF?":
            os.write(self._master, b"half a re")
            until(lambda: self._unread() == 0)
        return query not in (b"HALF?", b"GONE?")

    def _unread(self) -> int:
        """Return the number of bytes that the host has not read yet."""
        return int.from_bytes(fcntl.ioctl(self._slave, termios.FIONREAD, bytes(4)), sys.byteorder)

    def _unplug(self) -> None:
        for fd in (self._slave, self._master):
            if fd >= 0:
                os.close(fd)
        self._slave = self._master = -1

    def stop(self) -> None:
        self._thread.join(PATIENCE_S)
        self._unplug()


@pytest.fixture
def instrument() -> Iterator[Instrument]:
    instrument = Instrument()
    yield instrument
    instrument.stop()


@pytest.fixture
def session(instrument: Instrument) -> Iterator[ScpiSession]:
    opened = ScpiSession(SerialLink(instrument.path, 115200, CLOCK), CLOCK, device="serial meter", timeout_s=PATIENCE_S)
    opened.open()
    yield opened
    with contextlib.suppress(LinkError):
        opened.query("STOP?", timeout_s=0.01)
    opened.close()


def test_many_queries_in_a_row(session: ScpiSession) -> None:
    assert [session.query("ECHO?") for _ in range(50)] == ["echo"] * 50


def test_a_late_reply_answers_no_other_query(session: ScpiSession, instrument: Instrument) -> None:
    with pytest.raises(LinkTimeout):
        session.query("LATE?", timeout_s=0.05)
    instrument.may_answer.set()
    assert session.query("ECHO?") == "echo"
    assert session.counters.resyncs == 1


@pytest.mark.parametrize("query", ["GONE?", "HALF?"])
def test_a_pulled_plug_is_lost_at_once_and_stays_lost(session: ScpiSession, query: str) -> None:
    for each in (query, "ECHO?"):
        with pytest.raises(LinkLost):
            session.query(each, timeout_s=PATIENCE_S)  # lost, and not when the time is over
