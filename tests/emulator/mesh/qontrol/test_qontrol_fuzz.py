"""For any input bytes the emulated Qontrol chain keeps working, with bounded memory and outputs within their limits."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lumion_hw.emulator.mesh.qontrol import OPEN, ErrorOrder, HeaterLoad, OverLimit, ReplyMode
from lumion_hw.emulator.mesh.qontrol.requests import BinaryRequest, RequestReader, TextLine
from lumion_hw.emulator.mesh.qontrol.table import COMMANDS
from tests.effort import examples
from tests.emulator.mesh.qontrol.qontrol_testbench import TWO, Rig

WORDS = [name.encode() for name in COMMANDS] + [
    b"ALL", b"VEC", b"0", b"3", b"8", b"99", b"=", b"?", b",", b"1", b"4.5", b"-1", b"1e5", b"nan", b"\n", b"\r\n",
]  # fmt: skip
HEADERS = [bytes([header]) for header in (0x80, 0x81, 0x82, 0x83, 0x84, 0x88, 0x90, 0xA0, 0xA9, 0xC0, 0xFF)]


def pieces() -> st.SearchStrategy[bytes]:
    """Generate bytes that look like requests more often than by chance."""
    vectors = st.lists(st.integers(0, 65535), max_size=20).map(
        lambda words: (
            b"\x82\x00\x00\x00\x00"
            + len(words).to_bytes(2, "big")
            + b"".join(word.to_bytes(2, "big") for word in words)
        )
    )
    return st.one_of(
        st.binary(max_size=40),
        st.sampled_from(WORDS),
        vectors,
        st.tuples(st.sampled_from(HEADERS), st.binary(min_size=6, max_size=6)).map(b"".join),
    )


def still_good(rig: Rig) -> None:
    """Check: after a pause that ends an incomplete line the chain replies, and no forbidden current flows."""
    rig.clock.sleep(0.3)
    rig.raw(b"\n", 0.5)
    rig.clock.sleep(0.3)
    assert rig.ask("ID?", wait_s=0.5)[-1:] == ["Q8iv-0001"]
    assert np.all((rig.currents_ma >= 0.0) & (rig.currents_ma <= 24.0))
    assert [at_s for at_s, _ in rig.driven] == sorted(at_s for at_s, _ in rig.driven)


@examples(75)
@given(data=st.lists(pieces(), max_size=30).map(b"".join), seed=st.integers(0, 5))
def test_any_bytes_leave_the_chain_alive(data: bytes, seed: int) -> None:
    rig = Rig(TWO, loads=[HeaterLoad(500.0, 0.02)] * 12 + [OPEN] * 4, seed=seed)
    rig.raw(data)
    still_good(rig)


@examples(30)
@given(
    data=st.lists(pieces(), max_size=15).map(b"".join),
    mode=st.sampled_from(ReplyMode),
    baud=st.sampled_from([None, 115_200]),
    order=st.sampled_from(ErrorOrder),
    limit=st.sampled_from(OverLimit),
    lenient=st.booleans(),
)
def test_any_bytes_leave_any_kind_of_chain_alive(
    data: bytes, mode: ReplyMode, baud: int | None, order: ErrorOrder, limit: OverLimit, lenient: bool
) -> None:
    rig = Rig(
        reply_mode=mode, baud=baud, error_order=order, over_limit=limit,
        exponents=lenient, negatives=lenient, short_vectors=lenient, check_parity=not lenient,
    )  # fmt: skip
    rig.raw(data)
    still_good(rig)


@examples(50)
@given(data=st.lists(pieces(), max_size=20).map(b"".join), cuts=st.lists(st.integers(0, 400), max_size=10))
def test_how_the_bytes_are_cut_does_not_matter(data: bytes, cuts: list[int]) -> None:
    whole, cut = RequestReader(80, 64, 0.04), RequestReader(80, 64, 0.04)
    places = sorted({0, len(data), *(min(place, len(data)) for place in cuts)})
    expected = [item for _, item in whole.feed(data, 0.0, 0.0)] if data else []
    found = [
        item for a, b in itertools.pairwise(places) for _, item in cut.feed(data[a:b], 0.0, 0.0)
    ]  # fmt: skip
    assert found == expected


def test_the_reader_gives_every_request_the_time_of_its_last_byte() -> None:
    reader = RequestReader(80, 64, 0.04)
    found = list(reader.feed(b"ID?\n" + bytes(0x81 if i == 0 else 0 for i in range(7)) + b"V", 11.0, 1.0))
    assert found == [(3.0, TextLine(b"ID?")), (10.0, BinaryRequest(b"\x81" + bytes(6), (0,), 1))]


class OutputsModel(RuleBasedStateMachine):
    """Compare sets and reads in both dialects with the simplest model: a list of set values into 1 kOhm each."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(supervision_s=(0.0, 0.0))
        self.expected_ma = [0.0] * 16

    @rule(channel=st.integers(0, 15), value=st.integers(0, 1200))
    def set_voltage(self, channel: int, value: int) -> None:
        assert self.rig.ask(f"V{channel}={value / 100:.2f}") == ["OK"]
        self.expected_ma[channel] = value / 100

    @rule(channel=st.integers(0, 15), value=st.integers(0, 1200))
    def set_current(self, channel: int, value: int) -> None:
        assert self.rig.ask(f"I{channel}={value / 100:.2f}") == ["OK"]
        self.expected_ma[channel] = value / 100

    @rule(module=st.integers(0, 1), words=st.lists(st.integers(0, 32767), min_size=8, max_size=8))
    def set_currents_of_a_module(self, module: int, words: list[int]) -> None:
        body = b"".join(word.to_bytes(2, "big") for word in words)
        assert self.rig.lines(bytes([0x82, 1, 0, 0, 8 * module, 0, 8]) + body) == ["OK"]
        self.expected_ma[8 * module : 8 * module + 8] = [word / 65535 * 24 for word in words]

    @rule(value=st.integers(1201, 5000), channel=st.integers(0, 15))
    def set_too_much(self, value: int, channel: int) -> None:
        assert self.rig.ask(f"V{channel}={value / 100:.2f}") == [f"E01:{channel % 8:02d}"]

    @rule(
        data=st.sampled_from([b"bogus\n", b"V3=x\n", b"V99?\n", b"\x80\x00\x00\x00\x03\xff\xff", b"V3=1" * 40 + b"\n"])
    )
    def send_nonsense(self, data: bytes) -> None:
        assert all(line.startswith("E") for line in self.rig.lines(data))

    @rule()
    def switch_off_and_on(self) -> None:
        self.rig.chain.power_cycle()
        assert self.rig.wait(0.0) == ["E90:00", "E90:00"]
        self.expected_ma = [0.0] * 16

    @invariant()
    def readings_are_the_set_values(self) -> None:
        assert self.rig.currents_ma == pytest.approx(self.expected_ma)
        assert self.rig.ask("IALL?") == [f"{value:+.4f} mA" for value in self.rig.currents_ma]


OutputsModel.TestCase.settings = examples(15, stateful_step_count=20)
TestOutputsModel = OutputsModel.TestCase


FLOODS = [b"V", b"\n", b"\xff", b"\x82", b"\x00", b"V3=1\n", b"ID?\n", b"I3=24\n", b"NVMALL?\n", b"\xa9\x0a" + bytes(5)]


@pytest.mark.parametrize("unit", FLOODS)
@pytest.mark.parametrize("baud", [pytest.param(None, marks=pytest.mark.long), 115_200])
def test_a_flood_is_bounded_in_memory(unit: bytes, baud: int | None) -> None:
    rig = Rig(loads=OPEN, baud=baud)
    rig.chain.connect()  # a host that never reads
    chunk = (unit * 8192)[:8192]
    rig.link.write(chunk, 0.0)
    tracemalloc.start()
    for _ in range(3):
        rig.link.write(chunk, 0.0)
        rig.clock.sleep(0.001)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12_000_000
    rig.chain.power_cycle()
    assert rig.ask("ID?", wait_s=0.1)[-1] == "Q8iv-0001"


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.long if seed < 2 else pytest.mark.campaign) for seed in range(0, 20)],
)
def test_much_noise_leaves_the_chain_alive(seed: int) -> None:
    noise = np.random.default_rng(seed)
    rig = Rig(loads=[HeaterLoad(500.0, 0.02)] * 12 + [OPEN] * 4, seed=seed)
    alphabet = [*WORDS, *HEADERS, *FLOODS]
    for _ in range(3000):
        if noise.random() < 0.3:
            data = noise.integers(0, 256, int(noise.integers(1, 500)), dtype=np.uint8).tobytes()
        else:
            data = b"".join(alphabet[place] for place in noise.integers(0, len(alphabet), 60))
        rig.raw(data)
        rig.clock.sleep(float(noise.choice([0.0, 0.001, 0.05])))
    still_good(rig)
