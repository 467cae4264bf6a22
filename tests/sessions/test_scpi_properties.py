"""Properties of the SCPI session: any block, any cut, any garbage, at any moment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hypothesis import given, strategies as st

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import FrameError, LinkTimeout
from lumion_hw.links import MemoryLink
from lumion_hw.sessions.scpi import ScpiSession
from tests.effort import examples

IDN = b"Maker,Model,Serial,1.0\n"


class Instrument:
    """Answers each query with the next of its replies, cut into pieces that leave one millisecond apart."""

    def __init__(self, clock: VirtualClock, replies: Iterator[bytes], cuts: list[int]) -> None:
        self._clock = clock
        self._replies = replies
        self._cuts = cuts
        self._under_way: list[tuple[float, bytes]] = []
        self._heard = b""

    def receive(self, data: bytes) -> None:
        *queries, self._heard = (self._heard + data).split(b"\n")
        for query in queries:
            self._send(IDN if query == b"*IDN?" else next(self._replies))

    def _send(self, reply: bytes) -> None:
        ends = sorted({cut % (len(reply) + 1) for cut in self._cuts} | {len(reply)})
        start = 0
        leaves = max([self._clock.now(), *(due for due, _ in self._under_way)])
        for end in ends:
            leaves += 1e-3
            self._under_way.append((leaves, reply[start:end]))
            start = end

    def transmit(self) -> bytes:
        due = [piece for when, piece in self._under_way if when <= self._clock.now()]
        self._under_way = self._under_way[len(due) :]
        return b"".join(due)

    def next_event(self) -> float | None:
        return self._under_way[0][0] if self._under_way else None

    def close(self) -> None:
        self._under_way = []


def session_with(replies: list[bytes], cuts: list[int]) -> ScpiSession:
    clock = VirtualClock()
    instrument = Instrument(clock, iter(replies), cuts)
    session = ScpiSession(
        MemoryLink(lambda: instrument, clock, "memory"), clock, device="x", timeout_s=0.5, block_limit_bytes=10_000
    )
    session.open()
    return session


def block(payload: bytes) -> bytes:
    """The definite-length block of IEEE 488.2 clause 8.7.9."""
    length = str(len(payload)).encode()
    return b"#" + str(len(length)).encode() + length + payload


CUTS = st.lists(st.integers(0, 10_000), max_size=8)


@examples(30)
@given(payload=st.binary(max_size=300), terminator=st.sampled_from([b"\n", b"\r\n", b""]), cuts=CUTS)
def test_any_block_arrives_whole_however_it_is_cut(payload: bytes, terminator: bytes, cuts: list[int]) -> None:
    session = session_with([block(payload) + terminator, b"next\n"], cuts)
    assert session.query_block("A?") == payload
    assert session.query("B?") == "next"
    assert session.counters.incomplete == 0


@examples(30)
@given(text=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=50), cuts=CUTS)
def test_any_line_arrives_whole_however_it_is_cut(text: str, cuts: list[int]) -> None:
    session = session_with([text.encode() + b"\n"], cuts)
    assert session.query("A?") == text


@examples(60)
@given(garbage=st.binary(max_size=80), end=st.sampled_from([b"", b"\n"]), as_block=st.booleans(), cuts=CUTS)
def test_no_bytes_raise_anything_but_a_link_error_and_the_next_reply_is_right(
    garbage: bytes, end: bytes, as_block: bool, cuts: list[int]
) -> None:
    session = session_with([garbage.replace(b"\n", b"") + end, b"right\n"], cuts)
    with contextlib.suppress(FrameError, LinkTimeout):
        session.query_block("A?") if as_block else session.query("A?")
    assert session.query("B?") == "right"


@examples(30)
@given(answered=st.lists(st.booleans(), min_size=1, max_size=8), cuts=CUTS)
def test_replies_never_move_to_another_query_whatever_is_lost(answered: list[bool], cuts: list[int]) -> None:
    replies = [f"{number}\n".encode() if present else b"" for number, present in enumerate(answered)]
    session = session_with(replies, cuts)
    for number, present in enumerate(answered):
        try:
            assert session.query(f"N{number}?") == str(number)
        except LinkTimeout:
            assert not present
