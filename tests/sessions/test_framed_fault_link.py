"""The framed session over a bad wire: bits flip, bytes vanish or double, replies come twice or late, all from a seed.

The far end keeps the sequence rule of section 4.2 and drives what it is told, nothing else. Invariants of section 18:
no generation latches twice, no table is ever driven that was not sent, every request ends in a reply or in
``LinkTimeout`` within its deadline, and the first undamaged exchange works.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import firmware_protocol as fp
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import DeviceError, LinkTimeout
from lumion_hw.links.memory import MemoryLink
from lumion_hw.sessions.framed.session import FramedSession, SessionState
from tests.least_board import LEAST_BOARD

N = 32
HELLO = replace(
    LEAST_BOARD,
    n_dac=N,
)


class BadWire:
    """A board of twenty lines behind a wire that damages bytes in both directions."""

    def __init__(self, clock: VirtualClock, seed: int) -> None:
        self.clock = clock
        self.dice = random.Random(seed)
        self.error_rate = 0.0
        self.latched: Counter[int] = Counter()
        self.driven = [0] * N
        self.tables: list[list[int]] = []
        self.session = 0
        self._ring = fp.ReplyRing(HELLO.window)
        self._decoder = fp.Decoder(HELLO.fw_rx_max)
        self._out: list[tuple[float, bytes]] = []

    def damage(self, data: bytes) -> bytes:
        """Flip, drop or double single bytes at the error rate."""
        out = bytearray()
        for byte in data:
            if self.dice.random() >= self.error_rate:
                out.append(byte)
                continue
            out += self.dice.choice([bytes([byte ^ 1 << self.dice.randrange(8)]), b"", bytes([byte, byte])])
        return bytes(out)

    def connect(self) -> BadWire:
        return self

    def receive(self, data: bytes) -> None:
        for frame in self._decoder.feed(self.damage(data)):
            if isinstance(frame, fp.Frame) and frame.kind == fp.Kind.REQ:
                self._take(frame)

    def _take(self, frame: fp.Frame) -> None:
        if frame.command == fp.Command.HELLO:
            self.session = frame.session
            self._ring.open(frame.seq)
            self._send(frame, fp.StoredReply(frame.command, 0, HELLO.encode()))
            return
        if frame.session != self.session:
            return
        judgement = self._ring.judge(frame.seq)
        if judgement.verdict is fp.Verdict.EXECUTE:
            stored = fp.StoredReply(frame.command, 0, self._latch(fp.SetRequest.decode(frame.payload)))
            self._ring.store(frame.seq, stored)
            self._send(frame, stored)
        elif judgement.stored is not None:
            self._send(frame, judgement.stored)

    def _latch(self, request: fp.SetRequest) -> bytes:
        self.latched[request.generation] += 1
        self.driven = request.codes.tolist()
        self.tables.append(self.driven)
        crc32 = fp.table_crc32(request.codes)
        return fp.SetReply(request.generation, 1, crc32, True, fp.OutputsState.READY).encode()

    def _send(self, frame: fp.Frame, reply: fp.StoredReply) -> None:
        wire = fp.encode_frame(
            fp.Frame(fp.Kind.RSP, frame.command, frame.seq, frame.session, status=reply.status, payload=reply.payload)
        )
        copies = 2 if self.dice.random() < 20 * self.error_rate else 1
        for _ in range(copies):
            late_s = self.dice.choice([0.0, 0.0, 0.0, 0.04, 0.15]) if self.error_rate else 0.0
            self._out.append((self.clock.now() + 0.001 + late_s, self.damage(wire)))

    def transmit(self) -> bytes:
        due = b"".join(wire for at, wire in self._out if at <= self.clock.now())
        self._out = [entry for entry in self._out if entry[0] > self.clock.now()]
        return due

    def next_event(self) -> float | None:
        return min((at for at, _ in self._out), default=None)

    def close(self) -> None:
        self._out.clear()


def attach(clock: VirtualClock, wire: BadWire) -> FramedSession:
    session = FramedSession(MemoryLink(wire.connect, clock, "memory"), clock, device="mesh0", session_ids=lambda: 0x77)
    session.open()
    return session


@pytest.mark.parametrize("error_rate", [1e-3, 1e-2])
@pytest.mark.parametrize("seed", range(8))
def test_over_a_bad_wire_nothing_latches_twice_and_no_table_is_mixed(seed: int, error_rate: float) -> None:
    clock = VirtualClock()
    wire = BadWire(clock, seed)
    session = attach(clock, wire)
    wire.error_rate = error_rate
    tables = np.random.default_rng(seed).integers(0, 65536, size=(60, N))
    sent: list[list[int]] = []
    confirmed = 0
    for generation, table in enumerate(tables, start=1):
        request = fp.SetRequest(generation, table)
        sent.append(table.tolist())
        start = clock.now()
        try:
            reply = session.request(request)
        except LinkTimeout:
            assert session.state is SessionState.DEGRADED
        else:
            confirmed += 1
            assert (reply.generation, reply.crc32) == (generation, fp.table_crc32(table))
            assert wire.driven == table.tolist()
        assert clock.now() - start <= fp.LONGEST_DEADLINE_S + 1e-5
    assert all(count == 1 for count in wire.latched.values())
    assert all(table in sent for table in wire.tables)
    assert confirmed > 40 if error_rate < 5e-3 else confirmed > 0

    wire.error_rate = 0.0
    clock.sleep(1.0)  # whatever was late has come by now
    last = session.request(fp.SetRequest(1000, np.zeros(N, np.uint16)))
    assert (last.generation, wire.driven) == (1000, [0] * N)
    assert session.state is SessionState.OPEN


def test_the_bad_wire_really_damages_and_the_session_counts_it() -> None:
    clock = VirtualClock()
    wire = BadWire(clock, seed=1)
    session = attach(clock, wire)
    wire.error_rate = 1e-2
    for generation in range(1, 41):
        try:
            session.request(fp.SetRequest(generation, np.full(N, generation)))
        except (LinkTimeout, DeviceError):
            continue
    counters = session.counters
    assert counters["retries"] > 0
    assert counters["late"] > 0
    assert sum(counters.get(f"bad_{cause}", 0) for cause in fp.BadCause) > 0


def test_the_same_seed_gives_the_same_conversation_to_the_microsecond() -> None:
    ends = []
    for _ in range(2):
        clock = VirtualClock()
        wire = BadWire(clock, seed=5)
        session = attach(clock, wire)
        wire.error_rate = 5e-3
        for generation in range(1, 21):
            try:
                session.request(fp.SetRequest(generation, np.full(N, generation)))
            except LinkTimeout:
                continue
        ends.append((clock.now(), dict(session.counters), wire.tables))
    assert ends[0] == ends[1]
