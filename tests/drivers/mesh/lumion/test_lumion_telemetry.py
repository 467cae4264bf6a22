"""Telemetry of the LUMION mesh controller: what is pushed arrives once and in order, and what is missing is counted."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest

import firmware_protocol as fp
from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.errors import BusyError, ConfigError, LimitError, LinkLost, LinkTimeout, NotSupportedError
from lumion_hw.interfaces import ControllerLimits, TelemetrySample
from lumion_hw.links.memory import MemoryLink
from tests.drivers.mesh.lumion.lumion_testboard import HELLO, SpecBoard
from tests.waiting import PATIENCE_S

N = HELLO.n_dac
LIMITS = ControllerLimits(np.full(N, 20.0), np.full(N, 10.0), total_power_mw=400.0)


@pytest.fixture
def board(clock: VirtualClock) -> SpecBoard:
    return SpecBoard(clock)


@pytest.fixture
def driver(board: SpecBoard, clock: VirtualClock) -> Iterator[LumionMeshController]:
    made = LumionMeshController(MemoryLink(board.connect, clock, "memory://mesh0"), clock, device="mesh0")
    made.open()
    made.configure(LIMITS)
    yield made
    made.close()


def test_readings_come_with_the_period_and_say_what_was_driven(
    driver: LumionMeshController, board: SpecBoard, clock: VirtualClock
) -> None:
    receipt = driver.program(np.array([20.0, 10.0, 5.0] + [0.0] * (N - 3)))
    with closing(driver.telemetry(0.05)) as samples:
        taken = list(islice(samples, 5))
    # Monitor m reads the code of heater m; 20 mA is code 65535 and saturates, full scale is 2 mA.
    first = taken[0]
    assert first.reading.saturated.tolist() == [True, False, False, False]
    assert math.isnan(first.reading.photocurrent_ma[0])
    assert first.reading.photocurrent_ma[1:] == pytest.approx([1.0, 0.5, 0.0], abs=1e-4)
    assert (first.reading.generation, first.dropped, first.lost) == (receipt.number, 0, 0)
    assert first.chip_temperature_c == pytest.approx(25.34)
    times = [sample.reading.timestamp_s for sample in taken]
    assert [b - a for a, b in pairwise(times)] == pytest.approx([0.05] * 4)


def test_monitors_can_be_chosen_and_come_in_ascending_order(driver: LumionMeshController, board: SpecBoard) -> None:
    driver.program(np.arange(N) * 0.5)
    with closing(driver.telemetry(0.01, monitors=(3, 1), n_avg=4)) as samples:
        reading = next(samples).reading
    assert reading.photocurrent_ma == pytest.approx([0.05, 0.15], abs=1e-4)
    (request, *_) = board.sent(fp.SubscribeRequest)
    assert (request.stream, request.mask, request.n_avg, request.period_ticks) == (2, b"\x0a", 4, 10)


def test_the_subscription_begins_with_the_call_and_ends_with_the_iterator(
    driver: LumionMeshController, board: SpecBoard
) -> None:
    samples = driver.telemetry(0.01)
    assert len(board.sent(fp.SubscribeRequest)) == 1
    samples.close()
    *_, last = board.sent(fp.SubscribeRequest)
    assert (last.stream, last.period_ticks, last.sub_flags) == (2, 0, 0)
    samples.close()
    assert len(board.sent(fp.SubscribeRequest)) == 2


def test_leaving_a_loop_is_enough_to_unsubscribe(driver: LumionMeshController, board: SpecBoard) -> None:
    for _sample in driver.telemetry(0.01):
        break
    gc.collect()
    assert board.stream_due == {}


def test_credit_is_renewed_at_half_and_nothing_is_dropped(driver: LumionMeshController, board: SpecBoard) -> None:
    with closing(driver.telemetry(0.05)) as samples:  # 20 events a second: a window of 20
        taken = list(islice(samples, 100))
    assert {(sample.dropped, sample.lost) for sample in taken} == {(0, 0)}
    renewals = [request for request in board.sent(fp.SubscribeRequest) if request.sub_flags]
    limits = [request.credit_limit for request in renewals]
    assert limits[:3] == [30, 40, 50]  # after 10, 20, 30 of the first 20, 30, 40 granted


def test_a_slow_reader_sees_how_much_was_dropped_and_no_old_readings(
    driver: LumionMeshController, board: SpecBoard, clock: VirtualClock
) -> None:
    with closing(driver.telemetry(0.05)) as samples:
        next(samples)
        clock.sleep(5.0)  # 100 records, 19 with credit
        taken = list(islice(samples, 60))
    assert taken[-1].dropped == pytest.approx(80, abs=3)
    assert taken[-1].lost == 0
    assert clock.now() - taken[-1].reading.timestamp_s < 0.1


def test_events_lost_on_the_wire_are_counted_apart(driver: LumionMeshController, board: SpecBoard) -> None:
    with closing(driver.telemetry(0.05)) as samples:
        next(samples)
        board.lose_events[fp.Event.TELEMETRY] = 3
        after = next(samples)
    assert (after.lost, after.dropped) == (3, 0)


def test_a_window_whose_last_events_were_all_lost_does_not_stop_the_stream(
    driver: LumionMeshController, board: SpecBoard
) -> None:
    with closing(driver.telemetry(0.05)) as samples:
        next(samples)
        board.lose_events[fp.Event.TELEMETRY] = 19  # the rest of the credit: no later event shows the gap
        after = next(samples)
    assert after.lost == 19
    assert after.dropped > 0


def test_two_streams_run_side_by_side_and_a_third_is_refused(driver: LumionMeshController) -> None:
    with closing(driver.telemetry(0.01, monitors=(0,))) as one, closing(driver.telemetry(0.03, monitors=(1, 2))) as two:
        assert [len(next(each).reading.photocurrent_ma) for each in (one, two, one, two)] == [1, 2, 1, 2]
        with pytest.raises(BusyError, match="all 2 streams"):
            driver.telemetry(0.01)
    with closing(driver.telemetry(0.01)) as again:
        next(again)


def test_other_calls_between_two_readings_lose_none(driver: LumionMeshController) -> None:
    with closing(driver.telemetry(0.01)) as samples:
        for level in range(20):
            driver.program(np.full(N, 0.1 * level))
            driver.read_monitors()
            sample = next(samples)
    assert (sample.dropped, sample.lost) == (0, 0)


def test_waiting_for_a_rare_reading_feeds_the_watchdog(
    driver: LumionMeshController, board: SpecBoard, clock: VirtualClock
) -> None:
    driver.program(np.full(N, 1.0))
    with closing(driver.telemetry(30.0)) as samples:
        next(samples)
        next(samples)
    assert clock.now() > 60.0
    assert driver.faults() == ()
    assert board.driven.any()


def test_a_stream_does_not_outlive_its_session(driver: LumionMeshController) -> None:
    samples = driver.telemetry(0.01)
    next(samples)
    driver.open()
    with pytest.raises(LinkLost, match="session of this subscription"):
        next(samples)
    with closing(driver.telemetry(0.01)) as again:
        assert next(again).lost == 0


def test_an_unplugged_controller_ends_the_stream_with_the_reason(
    driver: LumionMeshController, board: SpecBoard
) -> None:
    samples = driver.telemetry(0.01)
    next(samples)
    board.gone = True
    with pytest.raises(LinkLost, match="unplugged"):
        next(samples)
    samples.close()


def test_a_controller_that_answers_and_sends_nothing_is_told_apart_from_a_slow_one(
    driver: LumionMeshController, board: SpecBoard
) -> None:
    samples = driver.telemetry(0.01)
    board.stream_due.clear()
    with pytest.raises(LinkTimeout, match="responds but sent no record"):
        next(samples)


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"period_s": 0.0005}, LimitError, r"period_s.*0.0005 s"),
        ({"period_s": 0.1, "n_avg": 4096}, LimitError, r"period_s.*limit 0.2048 s"),  # 4096 scans of 50 µs
        ({"period_s": math.nan}, LimitError, "period_s"),
        ({"period_s": 1.0, "n_avg": 0}, LimitError, "n_avg"),
        ({"period_s": 1.0, "monitors": (4,)}, ConfigError, "monitor 4"),
        ({"period_s": 1.0, "monitors": ()}, ConfigError, "no monitor"),
    ],
)
def test_what_the_controller_cannot_do_is_refused_before_subscribing(
    driver: LumionMeshController, board: SpecBoard, arguments: dict[str, object], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        driver.telemetry(**arguments)  # type: ignore[arg-type]
    assert board.sent(fp.SubscribeRequest) == []


def test_a_record_that_does_not_fit_the_frame_is_refused(clock: VirtualClock) -> None:
    # Section 2.4: 240 monitors fit one TELEMETRY at MTU 512.
    board = SpecBoard(clock, replace(HELLO, n_adc=241, n_dac=241))
    with LumionMeshController(MemoryLink(board.connect, clock, "memory"), clock, device="mesh0") as driver:
        with pytest.raises(LimitError, match=r"requested 241 monitors, limit 240 monitors"):
            driver.telemetry(0.1)
        with closing(driver.telemetry(0.1, monitors=tuple(range(240)))) as samples:
            assert next(samples).reading.photocurrent_ma.shape == (240,)


def test_a_controller_without_streams_says_so(clock: VirtualClock) -> None:
    board = SpecBoard(clock, replace(HELLO, n_streams=0))
    with LumionMeshController(MemoryLink(board.connect, clock, "memory"), clock, device="mesh0") as driver:
        assert not driver.info.telemetry
        with pytest.raises(NotSupportedError, match="no telemetry"):
            driver.telemetry(0.1)


def test_one_thread_reads_while_another_programs_and_neither_starves() -> None:
    clock = SystemClock()
    board = SpecBoard(clock)
    with LumionMeshController(MemoryLink(board.connect, clock, "memory"), clock, device="mesh0") as driver:
        driver.configure(LIMITS)
        programmed: list[int] = []
        stop = threading.Event()

        def program() -> None:
            while not stop.is_set():
                programmed.append(driver.program(np.full(N, 1.0)).number)

        until_s = clock.now() + PATIENCE_S
        with closing(driver.telemetry(0.02)) as samples:
            thread = threading.Thread(target=program)
            thread.start()
            # Both go on, whichever of them this machine lets run more often: to the end of the slower one's count.
            taken: list[TelemetrySample] = []
            while (len(taken) <= 5 or len(programmed) <= 20) and clock.now() < until_s:
                taken.append(next(samples))
            stop.set()
            thread.join(PATIENCE_S)
    assert (taken[-1].dropped, taken[-1].lost) == (0, 0)
    assert len(taken) > 5
    assert len(programmed) > 20
    assert programmed == sorted(set(programmed))
