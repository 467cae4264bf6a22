"""The fault link: what each fault does to the bytes, and that everything done is counted."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConfigError, ConnectError, LinkLost
from lumion_hw.links import MemoryLink
from lumion_hw.links.fault import Direction, FaultCounts, FaultEvent, FaultKind, FaultLink, FaultPlan, FaultRates
from tests.effort import examples

TO, FROM = Direction.TO_DEVICE, Direction.FROM_DEVICE
LETTERS = b"abcdefghij"


class Echo:
    """A device that keeps what it hears, write by write, and sends it back at once, or what it is told to send."""

    def __init__(self, *, echo: bool = True) -> None:
        self.heard: list[bytes] = []
        self.to_send: list[bytes] = []
        self.connections = 0
        self._echo = echo

    def connect(self) -> Echo:
        self.connections += 1
        return self

    def receive(self, data: bytes) -> None:
        self.heard.append(data)
        if self._echo:
            self.to_send.append(data)

    def transmit(self) -> bytes:
        return self.to_send.pop(0) if self.to_send else b""

    def next_event(self) -> float | None:
        return None

    def close(self) -> None:
        self.connections -= 1
        self.to_send.clear()


class Wire:
    """An open fault link to an echoing device on a virtual clock."""

    def __init__(self, plan: FaultPlan, *, seed: int = 1, echo: bool = True) -> None:
        self.clock = VirtualClock()
        self.device = Echo(echo=echo)
        self.inner = MemoryLink(self.device.connect, self.clock, "bench")
        self.link = FaultLink(self.inner, plan, self.clock, seed)
        self.link.open(1.0)

    def write(self, data: bytes, within_s: float = 1.0) -> None:
        self.link.write(data, self.clock.now() + within_s)

    def read(self, within_s: float = 1.0) -> bytes:
        return self.link.read(self.clock.now() + within_s)

    def read_all(self, within_s: float = 1.0) -> bytes:
        data = b""
        while piece := self.read(within_s):
            data += piece
        return data

    @property
    def heard(self) -> bytes:
        return b"".join(self.device.heard)

    def balanced(self) -> bool:
        return all(adds_up(self.link.counts(direction)) for direction in Direction)


def adds_up(counts: FaultCounts) -> bool:
    return counts.accepted + counts.duplicated == counts.delivered + counts.dropped + counts.swallowed + counts.waiting


def once(kind: FaultKind, at_byte: int, direction: Direction = TO, **options: float) -> FaultPlan:
    return FaultPlan(events=(FaultEvent(kind, direction, at_byte, **options),))  # type: ignore[arg-type]


def bits_that_differ(one: bytes, other: bytes) -> list[tuple[int, int]]:
    """Return (byte, number of wrong bits) where two strings of one length differ."""
    pairs = enumerate(zip(one, other, strict=True))
    return [(at, (a ^ b).bit_count()) for at, (a, b) in pairs if a != b]


def test_without_a_plan_it_is_the_link_it_wraps() -> None:
    wire = Wire(FaultPlan())
    wire.write(LETTERS)
    assert wire.device.heard == [LETTERS]
    assert wire.read() == LETTERS
    assert wire.read(0.5) == b""
    assert wire.clock.now() == 0.5
    assert wire.link.name == "bench"
    assert wire.link.counts(TO) == FaultCounts(accepted=10, delivered=10)
    wire.link.close()
    assert wire.device.connections == 0


def test_a_flip_inverts_one_bit_of_byte_n() -> None:
    wire = Wire(once(FaultKind.FLIP, 13))
    wire.write(LETTERS)
    wire.write(LETTERS)
    assert bits_that_differ(wire.heard, 2 * LETTERS) == [(13, 1)]
    assert wire.link.counts(TO).flipped == 1


@pytest.mark.parametrize(
    ("kind", "at_byte", "left"),
    [
        (FaultKind.DROP, 0, b"bcdefghij"),
        (FaultKind.DROP, 9, b"abcdefghi"),
        (FaultKind.DUPLICATE, 0, b"aabcdefghij"),
        (FaultKind.DUPLICATE, 4, b"abcdeefghij"),
    ],
)
@pytest.mark.parametrize("direction", Direction)
def test_byte_n_vanishes_or_comes_twice(kind: FaultKind, at_byte: int, left: bytes, direction: Direction) -> None:
    wire = Wire(once(kind, at_byte, direction))
    wire.write(LETTERS)
    assert wire.read() == left
    assert wire.balanced()
    counts = wire.link.counts(direction)
    assert counts.dropped + counts.duplicated == 1


def test_a_burst_is_noise_from_byte_n_and_ends_with_its_piece() -> None:
    wire = Wire(once(FaultKind.BURST, 3, n_bytes=4))
    wire.write(LETTERS)
    assert (wire.heard[:3], wire.heard[7:]) == (b"abc", b"hij")
    assert wire.heard[3:7] != b"defg"
    wire = Wire(once(FaultKind.BURST, 8, n_bytes=50))
    wire.write(LETTERS)
    assert len(wire.heard) == 10
    assert wire.link.counts(TO).noise == 2


def test_a_delayed_piece_comes_late_and_nothing_overtakes_it() -> None:
    wire = Wire(once(FaultKind.DELAY, 1, FROM, duration_s=0.3))
    wire.write(b"ab")
    wire.write(b"cd")
    assert wire.read(0.2) == b""
    assert wire.read() == b"ab"
    assert wire.clock.now() == pytest.approx(0.3)
    assert wire.read() == b"cd"
    assert wire.link.counts(FROM).delays == 1


def test_what_is_delayed_on_its_way_out_reaches_the_device_while_the_host_waits() -> None:
    wire = Wire(once(FaultKind.DELAY, 0, duration_s=0.25))
    wire.write(b"ab")
    assert (wire.heard, wire.link.counts(TO).waiting) == (b"", 2)
    assert wire.read() == b"ab"
    assert wire.clock.now() == pytest.approx(0.25)
    assert wire.balanced()


def test_a_split_piece_comes_in_two() -> None:
    wire = Wire(once(FaultKind.SPLIT, 0, FROM, duration_s=0.1))
    wire.write(LETTERS)
    first, second = wire.read(), wire.read()
    assert first
    assert second
    assert first + second == LETTERS
    assert wire.clock.now() == pytest.approx(0.1)


@pytest.mark.parametrize("direction", Direction)
def test_swapped_pieces_change_places(direction: Direction) -> None:
    wire = Wire(once(FaultKind.SWAP, 2, direction, duration_s=0.1))
    for piece in (b"ab", b"cd", b"ef", b"gh"):
        wire.write(piece)
    assert wire.read_all() == b"abefcdgh"
    assert wire.link.counts(direction).swaps == 1


def test_a_piece_that_finds_no_partner_comes_after_its_patience() -> None:
    wire = Wire(once(FaultKind.SWAP, 0, FROM, duration_s=0.1))
    wire.write(b"ab")
    assert wire.read() == b"ab"
    assert wire.clock.now() == pytest.approx(0.1)
    assert wire.link.counts(FROM).swaps == 0


def test_a_stall_holds_the_reply_back_from_byte_n() -> None:
    wire = Wire(once(FaultKind.STALL, 4, FROM, duration_s=2.0))
    wire.write(LETTERS)
    assert wire.read() == b"abcd"
    assert wire.read(1.0) == b""
    assert wire.clock.now() == pytest.approx(1.0)
    assert wire.read(1.5) == b"efghij"
    assert wire.clock.now() == pytest.approx(2.0)


def test_a_write_waits_for_the_end_of_a_stall() -> None:
    wire = Wire(once(FaultKind.STALL, 4, duration_s=0.5))
    wire.write(LETTERS)
    assert wire.device.heard == [b"abcd", b"efghij"]
    assert wire.clock.now() == pytest.approx(0.5)


def test_a_write_stalled_until_its_deadline_is_a_lost_link_and_is_not_repeated() -> None:
    wire = Wire(once(FaultKind.STALL, 4, duration_s=5.0))
    with pytest.raises(LinkLost, match="only 4 of 10 bytes"):
        wire.write(LETTERS)
    assert wire.clock.now() == pytest.approx(1.0)
    assert wire.heard == b"abcd"
    with pytest.raises(LinkLost):
        wire.read()


def test_a_link_half_closed_on_the_way_out_swallows_what_is_written_and_still_reads() -> None:
    wire = Wire(once(FaultKind.HALF_CLOSE, 4))
    wire.write(LETTERS)
    wire.write(LETTERS)
    assert wire.heard == b"abcd"
    assert wire.read() == b"abcd"
    assert wire.read(0.1) == b""
    assert (wire.link.counts(TO).swallowed, wire.link.counts(TO).half_closes) == (16, 1)
    assert wire.balanced()


def test_a_link_half_closed_on_the_way_back_ends_reading_after_byte_n_and_still_writes() -> None:
    wire = Wire(once(FaultKind.HALF_CLOSE, 4, FROM))
    wire.write(LETTERS)
    assert wire.read() == b"abcd"
    wire.write(b"x")
    assert wire.heard == LETTERS + b"x"
    with pytest.raises(LinkLost, match="closed by the other side") as caught:
        wire.read()
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("at_byte", [0, 4, 10])
def test_unplugged_after_n_bytes_written(at_byte: int) -> None:
    wire = Wire(once(FaultKind.UNPLUG, at_byte))
    if at_byte < len(LETTERS):
        with pytest.raises(LinkLost, match=f"only {at_byte} of 10"):
            wire.write(LETTERS)
    else:
        wire.write(LETTERS)
    assert wire.heard == LETTERS[:at_byte]
    assert wire.device.connections == 0
    with pytest.raises(LinkLost, match="unplugged") as caught:
        wire.read()
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(LinkLost, match="unplugged"):
        wire.write(b"x")


def test_unplugged_after_n_bytes_read_gives_those_n_bytes_first() -> None:
    wire = Wire(once(FaultKind.UNPLUG, 4, FROM))
    wire.write(LETTERS)
    assert wire.read() == b"abcd"
    with pytest.raises(LinkLost, match="unplugged"):
        wire.read()


def test_an_unplugged_link_opens_again_when_it_is_plugged_in_and_happens_once() -> None:
    wire = Wire(once(FaultKind.UNPLUG, 4, duration_s=3.0))
    with pytest.raises(LinkLost):
        wire.write(LETTERS)
    with pytest.raises(ConnectError, match="unplugged"):
        wire.link.open(10.0)
    wire.clock.sleep(3.0)
    wire.link.open(10.0)
    wire.write(LETTERS)
    assert wire.read() == LETTERS
    assert wire.link.counts(TO).unplugs == 1
    assert wire.balanced()


def test_bytes_under_way_are_lost_when_the_link_is_closed() -> None:
    wire = Wire(once(FaultKind.DELAY, 0, duration_s=1.0))
    wire.write(b"abc")
    wire.link.close()
    assert wire.heard == b""
    assert (wire.link.counts(TO).swallowed, wire.link.counts(TO).waiting) == (3, 0)
    with pytest.raises(LinkLost, match="closed"):
        wire.read()


def test_what_came_before_the_device_hung_up_is_still_delivered_late() -> None:
    wire = Wire(once(FaultKind.DELAY, 0, FROM, duration_s=0.4), echo=False)
    wire.device.to_send = [b"last words"]
    assert wire.read(0.1) == b""
    wire.inner.close()  # the device is gone while its last piece is under way
    assert wire.read(1.0) == b"last words"
    with pytest.raises(LinkLost):
        wire.read()


def test_draining_sees_the_faults_too() -> None:
    wire = Wire(once(FaultKind.DUPLICATE, 0, FROM))
    wire.write(LETTERS)
    assert wire.link.drain(0.1, 5.0) == 11


def test_another_plan_holds_from_the_next_byte_on() -> None:
    wire = Wire(FaultPlan(FaultRates(drop=1.0)))
    wire.write(LETTERS)
    wire.link.apply(FaultPlan(events=(FaultEvent(FaultKind.DROP, TO, 3), FaultEvent(FaultKind.DROP, TO, 12))))
    wire.write(LETTERS)
    assert wire.heard == b"abdefghij"


BAD_WIRE = FaultRates(
    flip=0.02, drop=0.02, duplicate=0.02, burst=0.05, delay=0.05, split=0.05, swap=0.05, delay_s=0.02, gap_s=0.01
)


@pytest.mark.parametrize("seed", range(4))
def test_the_same_seed_does_the_same_and_another_does_not(seed: int) -> None:
    def run(of_seed: int) -> tuple[bytes, bytes, FaultCounts, float]:
        wire = Wire(FaultPlan(BAD_WIRE, BAD_WIRE), seed=of_seed)
        back = b""
        for _ in range(40):
            wire.write(LETTERS)
            back += wire.read_all(0.01)
        return wire.heard, back, wire.link.counts(FROM), wire.clock.now()

    assert run(seed) == run(seed)
    assert run(seed) != run(seed + 100)


def test_rates_are_what_they_say() -> None:
    wire = Wire(FaultPlan(FaultRates(flip=0.01, drop=0.02, duplicate=0.03)), echo=False)
    for _ in range(200):
        wire.write(bytes(1000))
    counts = wire.link.counts(TO)
    # 200,000 bytes: five standard deviations of a binomial count are 5 * sqrt(n p (1 - p))
    for count, rate in ((counts.flipped, 0.01), (counts.dropped, 0.02), (counts.duplicated, 0.03)):
        assert abs(count - 200_000 * rate) < 5 * (200_000 * rate * (1 - rate)) ** 0.5
    assert wire.balanced()


rates = st.builds(
    FaultRates,
    **{name: st.sampled_from([0.0, 0.0, 0.05, 0.3]) for name in ("flip", "drop", "duplicate")},
    **{name: st.sampled_from([0.0, 0.2, 1.0]) for name in ("burst", "delay", "split", "swap")},
    gap_s=st.sampled_from([0.0, 0.01]),
)
events = st.builds(
    FaultEvent,
    st.sampled_from(FaultKind),
    st.sampled_from(Direction),
    st.integers(0, 120),
    st.sampled_from([0.0, 0.05, 0.4]),
    st.integers(1, 9),
)


def test_damage_goes_on_where_it_should_after_a_half_closed_link_was_opened_again() -> None:
    rates = FaultRates(drop=0.2)
    whole = Wire(FaultPlan(rates))
    whole.write(bytes(range(200)))
    wire = Wire(FaultPlan(rates, events=(FaultEvent(FaultKind.HALF_CLOSE, TO, 50),)))
    wire.write(bytes(range(100)))
    wire.link.close()
    wire.link.open(1.0)
    wire.write(bytes(range(100, 200)))
    assert wire.heard == bytes(byte for byte in whole.heard if not 50 <= byte < 100)


@examples(75)
@given(
    plan=st.builds(FaultPlan, rates, rates, st.lists(events, max_size=4).map(tuple)),
    pieces=st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=20),
    seed=st.integers(0, 99),
)
def test_whatever_happens_every_byte_is_accounted_for_and_no_call_outlives_its_deadline(
    plan: FaultPlan, pieces: list[bytes], seed: int
) -> None:
    wire = Wire(plan, seed=seed)
    for piece in pieces:
        began = wire.clock.now()
        try:
            wire.write(piece, 0.5)
            wire.read(0.5)
        except LinkLost:
            wire.clock.sleep(0.5)
            wire.link.open(wire.clock.now() + 1.0)
            began += 0.5
        assert wire.clock.now() <= began + 1.0 + 1e-9
        assert wire.balanced()


@examples(50)
@given(
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    seed=st.integers(0, 99),
    shots=st.lists(st.integers(0, 99), max_size=4, unique=True),
)
def test_damage_to_bytes_does_not_depend_on_how_they_were_cut(cuts: list[int], seed: int, shots: list[int]) -> None:
    plan = FaultPlan(
        FaultRates(drop=0.1, duplicate=0.1), events=tuple(FaultEvent(FaultKind.DROP, TO, at) for at in shots)
    )
    data = bytes(range(100))
    whole, cut = Wire(plan, seed=seed), Wire(plan, seed=seed)
    whole.write(data)
    start = 0
    while start < len(data):
        size = cuts[start % len(cuts)]
        cut.write(data[start : start + size])
        start += size
    assert cut.heard == whole.heard


@pytest.mark.parametrize(
    "make",
    [
        lambda: FaultRates(flip=1.5),
        lambda: FaultRates(drop=-0.1),
        lambda: FaultRates(flip=0.6, drop=0.6),
        lambda: FaultRates(burst_bytes=0),
        lambda: FaultRates(delay_s=-1.0),
        lambda: FaultEvent(FaultKind.DROP, TO, -1),
        lambda: FaultEvent(FaultKind.STALL, TO, 0, float("nan")),
    ],
)
def test_a_plan_that_cannot_be_is_refused(make) -> None:
    with pytest.raises(ConfigError):
        make()
