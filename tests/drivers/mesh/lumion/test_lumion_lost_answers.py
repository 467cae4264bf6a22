"""What the LUMION mesh driver does when no answer comes: it sends as often as the link needs, then asks, then tells.

Protocol section 4.5. The far end is the test board of the specification; frames are held back by what they say.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import firmware_protocol as fp
from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.errors import LinkTimeout
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.links.memory import MemoryLink
from lumion_hw.sessions.framed.line import LinkQuality
from tests.drivers.mesh.lumion.lumion_testboard import HELLO, SpecBoard

N = HELLO.n_dac
LIMITS = ControllerLimits(np.full(N, 20.0), np.full(N, 10.0), total_power_mw=400.0)
TABLE_MA = np.full(N, 1.0)
CODES = [round(65535 / 20.0)] * N


class Sieve(MemoryLink):
    """A link on which requests of some commands go astray, to come through when the test says so."""

    def __init__(self, board: SpecBoard, clock: VirtualClock) -> None:
        super().__init__(board.connect, clock, "memory://mesh0")
        self.astray: set[int] = set()
        self.kept: list[bytes] = []
        self._decoder = fp.Decoder(4096)

    def write(self, data: bytes, deadline: float) -> None:
        for frame in self._decoder.feed(data):
            assert isinstance(frame, fp.Frame)
            if frame.command in self.astray:
                self.kept.append(fp.encode_frame(frame))
            else:
                super().write(fp.encode_frame(frame), deadline)

    def let_through(self) -> None:
        self.astray.clear()
        for wire in self.kept:
            super().write(wire, math.inf)


class Bench:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.board = SpecBoard(clock)
        self.link = Sieve(self.board, clock)
        self.driver = LumionMeshController(self.link, clock, device="mesh0")
        self.driver.open()
        self.driver.configure(LIMITS)


@pytest.fixture
def bench(clock: VirtualClock) -> Bench:
    return Bench(clock)


def test_a_table_whose_answers_were_all_lost_is_found_to_be_driven(bench: Bench) -> None:
    bench.board.mute.add(fp.Command.SET)
    receipt = bench.driver.program(TABLE_MA)
    assert (receipt.number, receipt.crc32) == (1, fp.table_crc32(CODES))
    assert bench.board.latched[1] == 1
    assert bench.board.driven.tolist() == CODES


def test_a_table_that_never_arrived_is_told_and_a_late_copy_of_it_is_refused(bench: Bench) -> None:
    bench.link.astray.add(fp.Command.SET)
    with pytest.raises(LinkTimeout, match="the heater currents have not changed") as told:
        bench.driver.program(TABLE_MA)
    assert told.value.took_effect is False
    bench.link.let_through()  # the copies were slow, not lost
    bench.clock.sleep(0.1)
    assert bench.board.latched[1] == 0
    assert not bench.board.driven.any()
    assert bench.driver.program(TABLE_MA).number == 2


def test_a_table_nobody_tells_about_is_unknown_until_the_driver_attaches_again(bench: Bench) -> None:
    bench.board.mute |= {fp.Command.SET, fp.Command.READBACK}
    with pytest.raises(LinkTimeout, match="it may or may not have been executed") as told:
        bench.driver.program(TABLE_MA)
    assert told.value.took_effect is None
    bench.board.mute.clear()
    assert bench.driver.open().in_flight_latched is True


def test_a_question_that_is_not_answered_changed_nothing(bench: Bench) -> None:
    bench.board.mute.add(fp.Command.READBACK)
    with pytest.raises(LinkTimeout, match="nothing was changed") as told:
        bench.driver.read_back()
    assert told.value.took_effect is False


@pytest.mark.parametrize("arrived", [True, False])
def test_a_clearing_nobody_answered_is_looked_up_in_the_list(bench: Bench, arrived: bool) -> None:
    bench.board.trip(fp.FaultSource.SUPPLY)
    if arrived:
        bench.board.mute.add(fp.Command.FAULT_CLEAR)
        bench.driver.clear_fault(1)
        return
    bench.link.astray.add(fp.Command.FAULT_CLEAR)
    with pytest.raises(LinkTimeout) as told:
        bench.driver.clear_fault(1)
    assert told.value.took_effect is False
    assert bench.driver.faults()[0].latched


@pytest.mark.parametrize("round_trip_s", [0.06, 0.2])
def test_on_a_slow_link_the_driver_learns_to_wait(clock: VirtualClock, round_trip_s: float) -> None:
    board = SpecBoard(clock)
    board.copies = lambda: [round_trip_s]
    driver = LumionMeshController(MemoryLink(board.connect, clock, "memory://mesh0"), clock, device="mesh0")
    driver.open()
    for _ in range(5):
        driver.read_back()
    before = driver.session.counters["retries"]
    for _ in range(50):
        driver.read_back()
    assert driver.session.counters["retries"] == before
    assert driver.session.counters["timeouts"] == 0


def test_a_link_that_turns_slow_is_waited_for_after_the_first_late_answers(bench: Bench) -> None:
    bench.board.copies = lambda: [0.15]
    for _ in range(8):
        bench.driver.read_back()
    before = bench.driver.session.counters["retries"]
    for _ in range(50):
        bench.driver.read_back()
    assert bench.driver.session.counters["retries"] == before


# --- what a link has shown -------------------------------------------------------------------------------------------


def test_without_losses_three_sends_are_made_and_25_ms_are_allowed() -> None:
    quality = LinkQuality()
    for _ in range(1000):
        quality.record_answer(343, 0, 0.001)
    assert quality.max_sends(343) == 3
    assert quality.rto_s(0.003) == pytest.approx(0.028)


def test_the_number_of_sends_leaves_one_request_in_a_million_unanswered() -> None:
    quality = LinkQuality()
    for number in range(4000):  # every fourth of 343 bytes is lost: -ln(3/4)/343 = 0.84e-3 per byte
        quality.record_answer(343, int(number % 3 == 0), 0.001)
    # Lost sends by bytes: 1/4 per 343. p(343) = 1 - exp(-1/4) = 0.221, 0.221^10 = 2.8e-7 < 1e-6 < 0.221^9 = 1.3e-6
    assert quality.max_sends(343) == 10
    # p(56) = 1 - exp(-56/343/4) = 0.040, 0.040^5 = 1e-7 < 1e-6 < 0.040^4 = 2.6e-6
    assert quality.max_sends(56) == 5
    assert quality.max_sends(4000) == fp.MAX_SENDS


def test_losses_are_forgotten_on_a_link_that_has_become_good() -> None:
    quality = LinkQuality()
    for _ in range(300):
        quality.record_answer(343, 1, 0.0)
    assert quality.max_sends(343) == fp.MAX_SENDS
    for _ in range(30_000):  # ten million bytes
        quality.record_answer(343, 0, 0.0)
    assert quality.max_sends(343) <= 4
