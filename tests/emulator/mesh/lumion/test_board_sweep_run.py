"""A sweep running on the emulated board (sections 10.3 and 10.4): points and scans on the clock, ring, events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from firmware_protocol import (
    EndAction,
    EndReason,
    HeaderFlag,
    OutputsState,
    PingRequest,
    PointTiming,
    ReadbackRequest,
    RecordTrack,
    Refusal,
    RunFlag,
    RunState,
    Status,
    Stream,
    SweepAckReply,
    SweepAckRequest,
    SweepDataEvent,
    SweepDoneEvent,
    SweepImage,
    SweepPoint,
    SweepReadRequest,
    SweepTrigger,
    encode_frame,
    table_crc32,
)
from lumion_hw.emulator.mesh.lumion import BoardProfile
from tests.effort import examples
from tests.emulator.mesh.lumion.board_testbench import TINY, Bench, Host, data_of, done_of

BASE = [100, 200, 300, 400]
FULL_SCALE_MA = 10.0


class Lit(Bench):
    """Monitor k shows the share of full scale of output k, so a record identifies its point."""

    def _sense(self, n_avg: int, at_s: float) -> Any:
        super()._sense(n_avg, at_s)
        return np.array(self.drives[-1][1]) / FULL_SCALE_MA if self.drives else np.zeros(4)


def ramp(count: int, **fields: Any) -> SweepImage:
    """Return a sweep in which channel 0 takes the codes 1000, 2000, ..."""
    return SweepImage(tuple(SweepPoint([(0, 1000 * number)]) for number in range(1, count + 1)), **fields)


def ready(image: SweepImage, profile: BoardProfile = TINY, **common: int) -> tuple[Lit, Host]:
    bench = Lit(profile)
    host = Host(bench).ready(**common)
    host.drive(5, BASE)
    host.load(image)
    return bench, host


def until_done(host: Host, wait_s: float = 60.0) -> list[Any]:
    """Listen and feed the watchdog until the run has ended."""
    events: list[Any] = host.heard()
    deadline = host.bench.clock.now() + wait_s
    while not any(isinstance(event, SweepDoneEvent) for event in events):
        assert host.bench.clock.now() < deadline
        events += host.listen(0.2)
        host.ask(PingRequest(1))
        events += host.heard()
    return events


def latches(bench: Bench, since_s: float) -> list[tuple[float, int]]:
    """Return (ms, code of channel 0) of every change of the outputs after a given time."""
    return [
        (round(instant * 1e3, 3), round(output[0] / FULL_SCALE_MA * 65535))
        for instant, output in bench.drives
        if instant >= since_s - 1e-9
    ]


# -- on the clock -----------------------------------------------------------------------------------------------------


def test_points_latch_at_tick_edges_scan_after_their_settling_time_and_last_their_dwell() -> None:
    bench, host = ready(ramp(3, settle_us=2300, dwell_us=10_000, n_avg=4))
    bench.scans.clear()
    start = host.started(6, credit_limit=10)
    done = done_of(until_done(host))
    t0 = start.tick
    assert latches(bench, t0 * 1e-3) == [(t0, 1000), (t0 + 10, 2000), (t0 + 20, 3000), (t0 + 30, 100)]
    assert [(round(at * 1e3, 3), n_avg) for at, n_avg in bench.scans] == [
        (t0 + 2.3, 4), (t0 + 12.3, 4), (t0 + 22.3, 4)
    ]  # fmt: skip
    assert (done.tick, done.late, done.records, done.dropped) == (t0 + 30, 0, 3, 0)


def test_a_board_that_acts_late_asks_for_the_light_of_the_instants_it_missed() -> None:
    bench, host = ready(ramp(3, settle_us=2300, dwell_us=10_000, n_avg=4))
    bench.scans.clear()
    start = host.started(6, credit_limit=10)
    bench.sleep(0.5)  # no advance for half a second, as on an overloaded machine
    t0 = start.tick
    assert latches(bench, t0 * 1e-3) == [(t0, 1000), (t0 + 10, 2000), (t0 + 20, 3000), (t0 + 30, 100)]
    assert [round(at * 1e3, 3) for at, _ in bench.scans] == [t0 + 2.3, t0 + 12.3, t0 + 22.3]


def test_without_a_dwell_time_the_next_point_latches_at_the_edge_after_the_scans() -> None:
    # 2.3 ms settling and 10 scans of 50 us: done at 2.8 ms, next edge at 3 ms
    bench, host = ready(ramp(2, settle_us=2300, n_avg=10))
    start = host.started(6)
    until_done(host)
    assert [at - start.tick for at, _ in latches(bench, start.tick * 1e-3)] == [0, 3, 6]


def test_a_point_may_have_times_of_its_own() -> None:
    points = (
        SweepPoint([(0, 1000)]),
        SweepPoint([(0, 2000)], timing=PointTiming(5_000, 20_000)),
        SweepPoint([(0, 3000)]),
    )
    bench, host = ready(SweepImage(points, settle_us=1_000, dwell_us=2_000))
    bench.scans.clear()
    start = host.started(6)
    until_done(host)
    assert [at - start.tick for at, _ in latches(bench, start.tick * 1e-3)] == [0, 2, 22, 24]
    assert [round(at * 1e3 - start.tick, 3) for at, _ in bench.scans] == [1, 7, 23]


def test_points_are_cumulative_and_a_whole_table_replaces_everything() -> None:
    points = (SweepPoint([(0, 1)]), SweepPoint([(1, 2)]), SweepPoint(table=[9, 8, 7, 6]), SweepPoint([(3, 0)]))
    bench, host = ready(SweepImage(points, dwell_us=1_000))
    start = host.started(6)
    until_done(host)
    driven = [
        np.rint(np.array(output) / FULL_SCALE_MA * 65535).astype(int).tolist()
        for instant, output in bench.drives
        if instant >= start.tick * 1e-3 - 1e-9
    ]
    assert driven == [[1, 200, 300, 400], [1, 2, 300, 400], [9, 8, 7, 6], [9, 8, 7, 0], BASE]


def test_a_start_table_takes_the_place_of_the_base_and_every_pass_begins_with_it() -> None:
    image = SweepImage(
        (SweepPoint([(0, 10)]), SweepPoint([(1, 20)])), start_table=np.array([0, 0, 0, 5]), dwell_us=1_000
    )
    bench, host = ready(image)
    reply = host.started(6, repeat=2)
    assert reply.records == 4
    until_done(host)
    driven = [
        np.rint(np.array(output) / FULL_SCALE_MA * 65535).astype(int).tolist()
        for instant, output in bench.drives
        if instant >= reply.tick * 1e-3 - 1e-9
    ]
    assert driven == [[10, 0, 0, 5], [10, 20, 0, 5], [10, 0, 0, 5], [10, 20, 0, 5], BASE]


def test_records_hold_what_the_monitors_saw_point_by_point_and_pass_by_pass() -> None:
    _, host = ready(ramp(3, settle_us=100, dwell_us=1_000, mask=b"\x05\0"))
    host.started(6, repeat=2)
    until_done(host)
    # monitors 0 and 2 show their own output: the code itself within the rounding of the converters
    assert host.records(6, 0, 6) == [[1000, 300], [2000, 300], [3000, 300]] * 2
    assert host.records(6, 4, 1) == [[2000, 300]]


def test_points_slower_than_their_dwell_by_more_than_a_tick_are_late() -> None:
    fine = SweepPoint([(0, 1000)], timing=PointTiming(1_900, 1_000))  # lasts 2 ms of 1 ms: one tick, not more
    slow = SweepPoint([(0, 2000)], timing=PointTiming(2_900, 1_000))  # lasts 3 ms of 1 ms
    _, host = ready(SweepImage((fine, slow, fine, slow, slow)))
    host.started(6)
    assert done_of(until_done(host)).late == 3


def test_each_point_waits_for_the_external_trigger() -> None:
    bench, host = ready(ramp(2, dwell_us=5_000, trigger=SweepTrigger.EXTERNAL))
    start = host.started(6)
    assert (start.tick, start.outputs_state) == (0, OutputsState.SWEEP)
    bench.sleep(0.1)
    assert bench.board.driven_codes.tolist() == BASE
    bench.board.trigger()
    bench.sleep(0.002)
    assert bench.board.driven_codes[0] == 1000
    bench.board.trigger()  # too early: the point has not had its dwell time
    bench.sleep(0.05)
    assert bench.board.driven_codes[0] == 1000
    bench.board.trigger()
    bench.sleep(0.003)
    assert bench.board.driven_codes[0] == 2000
    assert done_of(until_done(host)).reason is EndReason.COMPLETE


def test_a_sweep_that_nobody_polls_still_drives_every_point_at_its_instant() -> None:
    bench, host = ready(ramp(5, settle_us=500, dwell_us=10_000))
    start = host.started(6)
    bench.sleep(1.0)
    assert [at - start.tick for at, _ in latches(bench, start.tick * 1e-3)] == [0, 10, 20, 30, 40, 50]
    assert host.progress(6).produced == 5


def test_a_freeze_shifts_the_rest_of_a_run() -> None:
    bench, host = ready(ramp(3, settle_us=500, dwell_us=10_000), replace(TINY, features=1 << 2))
    start = host.started(6)
    host.listen(0.012)
    bench.board.freeze()
    bench.sleep(0.5)
    bench.board.thaw()
    bench.sleep(0.2)
    assert [at - start.tick for at, _ in latches(bench, start.tick * 1e-3)] == [0, 10, 520, 530]


# -- the end ----------------------------------------------------------------------------------------------------------


def test_at_the_end_the_base_table_is_driven_again() -> None:
    bench, host = ready(ramp(2, dwell_us=1_000))
    host.started(6, credit_limit=9)
    events = until_done(host)
    done = done_of(events)
    assert (done.generation, done.reason, done.outputs_state) == (6, EndReason.COMPLETE, OutputsState.READY)
    assert done.crc32 == table_crc32(BASE)
    assert bench.board.driven_codes.tolist() == BASE
    readback = host.ask(ReadbackRequest(rb_flags=0))
    assert (readback.generation, readback.tick, readback.crc32) == (6, done.tick, done.crc32)
    progress = host.progress(6)
    assert (progress.run_state, progress.reason) == (RunState.ENDED, EndReason.COMPLETE)


def test_or_the_last_point_stays() -> None:
    bench, host = ready(ramp(2, dwell_us=1_000, end_action=EndAction.KEEP))
    start = host.started(6)
    done = done_of(until_done(host))
    assert bench.board.driven_codes.tolist() == [2000, *BASE[1:]]
    assert (done.crc32, done.tick) == (table_crc32([2000, *BASE[1:]]), start.tick + 1)
    assert isinstance(host.drive(7, BASE).tick, int)


def test_records_stay_readable_until_the_next_run() -> None:
    bench, host = ready(ramp(3, dwell_us=1_000, mask=b"\x01\0"))
    host.started(6)
    until_done(host)
    bench.sleep(1.0)
    assert host.records(6, 0, 3) == [[1000], [2000], [3000]]
    host.started(7)
    assert host.ask(SweepReadRequest(6)) == Refusal(Status.STALE, value=7)


# -- SWEEP_DATA -------------------------------------------------------------------------------------------------------


def test_records_are_pushed_up_to_the_credit() -> None:
    _, host = ready(ramp(20, dwell_us=1_000, mask=b"\x01\0"))
    host.started(6, credit_limit=7)
    events = until_done(host)
    values = [value for event in data_of(events) for value in event.values[:, 0].tolist()]
    assert values == [1000 * number for number in range(1, 8)]
    assert done_of(events).records == 20
    reply = host.ask(SweepAckRequest(6, 7, 12))
    assert reply == SweepAckReply(6, 20, 7)
    late = [*host.heard(), *host.listen(0.1)]
    assert [(event.first, len(event.values)) for event in late] == [(7, 5)]


def pushes(bench: Bench, host: Host, start_s: float) -> list[tuple[float, int, int]]:
    """Return (ms after the start, first record, records) of every push in a run."""
    found = []
    for _ in range(2000):
        for event in host.listen(bench.board.profile.tick_s / 2):
            if isinstance(event, SweepDataEvent):
                found.append(((bench.clock.now() - start_s) * 1e3, event.first, len(event.values)))
            elif isinstance(event, SweepDoneEvent):
                return found
    raise AssertionError("the run did not end")


def test_a_push_waits_20_ms_for_its_frame_to_fill_and_not_beyond_the_end() -> None:
    bench, host = ready(ramp(40, dwell_us=1_000))
    start = host.started(6, credit_limit=1000)
    first, second = pushes(bench, host, start.tick * 1e-3)
    # One record per ms, the first after a scan of 50 us: 20 or 21 records after 20 ms.
    assert first[0] == pytest.approx(20.05, abs=0.6)
    assert (first[1], second[1]) == (0, first[2])
    assert first[2] in (20, 21)
    assert second[0] == pytest.approx(40.05, abs=0.6)
    assert first[2] + second[2] == 40


def test_a_full_frame_is_pushed_at_once() -> None:
    # 241 bytes of payload at MTU 256, 16 of them fixed: 112 values, 28 records of 4; one record per tick of 100 us
    bench, host = ready(ramp(60, mask=b"\x0f\0"), replace(TINY, mtu=256, tick_us=100))
    start = host.started(6, credit_limit=1000)
    found = pushes(bench, host, start.tick * 1e-4)
    assert [(first, count) for _, first, count in found] == [(0, 28), (28, 28), (56, 4)]
    assert [at for at, _, _ in found] == pytest.approx([2.75, 5.55, 6.0], abs=0.11)


def test_every_record_comes_exactly_once_and_in_order_when_nothing_is_lost() -> None:
    bench, host = ready(ramp(60, dwell_us=1_000, mask=b"\x01\0"))
    host.started(6, credit_limit=100_000, repeat=5)
    frames = []
    while bench.board.state is OutputsState.SWEEP:
        frames += host.collect(0.05)
        host.ask(PingRequest(1))
        frames += host.events
        host.events.clear()
    frames += host.collect(0.1)
    assert {frame.status for frame in frames} == {Stream.SWEEP}
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    data = [SweepDataEvent.decode(frame.payload) for frame in frames if frame.command == 0x81]
    indexes = [index for event in data for index in range(event.first, event.first + len(event.values))]
    assert indexes == list(range(300))
    assert all(event.generation == 6 for event in data)
    values = np.concatenate([event.values[:, 0] for event in data])
    assert values.tolist() == [1000 * number for number in range(1, 61)] * 5


def test_the_tick_of_a_push_is_that_of_its_first_scan() -> None:
    _, host = ready(ramp(50, settle_us=3_000, dwell_us=10_000))
    start = host.started(6, credit_limit=1000)
    for event in data_of(until_done(host)):
        assert event.tick == start.tick + 10 * event.first + 3


def test_without_a_listener_records_wait_in_the_ring() -> None:
    bench, host = ready(ramp(10, dwell_us=1_000, mask=b"\x01\0"))
    host.started(6, credit_limit=1000)
    host.link.close()
    bench.sleep(0.5)
    again = Host(bench)
    again.seq = 100
    again.ask(PingRequest(1))
    events = [*again.heard(), *again.listen(0.1)]
    assert [value for event in data_of(events) for value in event.values[:, 0].tolist()] == [
        1000 * number for number in range(1, 11)
    ]
    assert done_of(events).records == 10


# -- SWEEP_READ and SWEEP_ACK -----------------------------------------------------------------------------------------


def test_holes_are_read_by_index() -> None:
    _, host = ready(ramp(50, dwell_us=1_000, mask=b"\x01\0"))
    host.started(6)
    until_done(host)
    reply = host.ask(SweepReadRequest(6, 10, 5))
    assert (reply.first, reply.produced, reply.oldest, reply.dropped) == (10, 50, 0, 0)
    assert reply.values.tolist() == [[1000 * number] for number in range(11, 16)]
    assert host.records(6, 48, 99) == [[49_000], [50_000]], "min(asked, produced - first)"
    assert host.records(6, 50, 5) == []


def test_a_status_question_is_answered_at_any_time() -> None:
    bench, host = ready(ramp(4, dwell_us=10_000))
    nothing = host.ask(SweepReadRequest(0))
    assert (nothing.run_state, nothing.reason, nothing.produced) == (RunState.NONE, None, 0)
    assert host.ask(SweepReadRequest(6)) == Refusal(Status.STALE, value=0)
    host.started(6)
    bench.sleep(0.015)
    running = host.progress(6)
    assert (running.run_state, running.reason, running.produced) == (RunState.RUNNING, None, 2)
    assert host.ask(SweepReadRequest(5)) == Refusal(Status.STALE, value=6)


def test_more_records_than_fit_a_frame_are_too_big() -> None:
    _, host = ready(ramp(2, dwell_us=1_000), replace(TINY, mtu=256))
    host.started(6)
    # 241 - 28 = 213 bytes: 26 records of 4 values
    assert host.ask(SweepReadRequest(6, 0, 27)) == Refusal(Status.TOO_BIG, value=27, limit=26)
    assert len(host.ask(SweepReadRequest(6, 0, 26)).values) <= 2


def test_released_records_are_gone() -> None:
    _, host = ready(ramp(10, dwell_us=1_000, mask=b"\x01\0"))
    host.started(6)
    until_done(host)
    assert host.ask(SweepAckRequest(6, 4, 0)) == SweepAckReply(6, 10, 4)
    assert host.ask(SweepAckRequest(6, 2, 0)) == SweepAckReply(6, 10, 4), "never moves back"
    assert host.ask(SweepReadRequest(6, 3, 1)) == Refusal(Status.OVERFLOW, value=4)
    assert host.records(6, 4, 1) == [[5000]]
    assert host.ask(SweepReadRequest(6, 3, 0)).oldest == 4, "the state alone is always told"


def test_what_was_not_produced_cannot_be_acknowledged() -> None:
    _, host = ready(ramp(2, dwell_us=10_000))
    host.started(6)
    assert host.ask(SweepAckRequest(6, 3, 0)) == Refusal(Status.BAD_VALUE, channel=4, value=3)
    assert host.ask(SweepAckRequest(7, 0, 0)) == Refusal(Status.STALE, value=6)


def test_an_acknowledgement_may_ask_for_no_reply() -> None:
    _, host = ready(ramp(5, dwell_us=1_000))
    host.started(6)
    until_done(host)
    quiet = host.frame(SweepAckRequest(6, 5, 0), flags=HeaderFlag.NO_REPLY)
    assert host.raw(encode_frame(quiet), 0.1) is None
    assert host.progress(6).oldest == 5


# -- the ring ---------------------------------------------------------------------------------------------------------

SMALL_RING = replace(TINY, sweep_ring=19)  # 4 records of 4 values, and 3 values to spare


def test_a_full_ring_pauses_the_run_at_its_present_point() -> None:
    bench, host = ready(ramp(10, dwell_us=1_000), SMALL_RING)
    start = host.started(6)
    bench.sleep(0.5)
    assert bench.board.driven_codes[0] == 4000
    paused = host.progress(6)
    assert (paused.run_state, paused.produced, paused.oldest) == (RunState.PAUSED, 4, 0)
    acked_at = bench.clock.now()
    host.ask(SweepAckRequest(6, 2, 0))
    bench.sleep(0.1)
    assert bench.board.driven_codes[0] == 6000, "two places were free"
    resumed = latches(bench, acked_at)[0][0]
    assert resumed == pytest.approx(np.ceil((acked_at + 1e-3) * 1e3), abs=1.01)
    assert host.progress(6).run_state is RunState.PAUSED
    for up_to in (6, 10):
        host.ask(SweepAckRequest(6, up_to, 0))
        bench.sleep(0.1)
    done = done_of(until_done(host))
    assert (done.records, done.dropped, done.reason) == (10, 0, EndReason.COMPLETE)
    assert done.late >= 2, "the paused points exceeded their dwell time"
    assert start.records == 10


def test_the_last_record_needs_no_further_room() -> None:
    _, host = ready(ramp(4, dwell_us=1_000), SMALL_RING)
    host.started(6)
    assert done_of(until_done(host)).records == 4


def test_overwrite_discards_the_oldest_records_and_says_how_many() -> None:
    _, host = ready(ramp(10, dwell_us=1_000), SMALL_RING)
    host.started(6, run_flags=RunFlag.OVERWRITE)
    done = done_of(until_done(host))
    assert (done.records, done.dropped) == (10, 6)
    assert host.ask(SweepReadRequest(6, 5, 1)) == Refusal(Status.OVERFLOW, value=6)
    assert [row[0] for row in host.records(6, 6, 4)] == [7000, 8000, 9000, 10_000]


def test_pushed_records_that_were_overwritten_are_skipped_not_garbled() -> None:
    bench, host = ready(ramp(60, dwell_us=1_000, mask=b"\x01\0"), replace(TINY, sweep_ring=4))
    host.started(6, credit_limit=1000, run_flags=RunFlag.OVERWRITE)
    for event in data_of(until_done(host)):
        numbers = range(event.first + 1, event.first + 1 + len(event.values))
        assert event.values[:, 0].tolist() == [1000 * number for number in numbers]
    assert bench.board.driven_codes.tolist() == BASE


@examples(20)
@given(data=st.data())
def test_a_host_that_loses_events_gets_every_record_by_asking_for_the_holes(data: st.DataObject) -> None:
    _, host = ready(ramp(40, dwell_us=1_000, mask=b"\x01\0"), replace(TINY, sweep_ring=16, mtu=256))
    window = data.draw(st.integers(1, 16))
    track, values = RecordTrack(window), {}
    host.started(6, credit_limit=window)
    for _ in range(1000):
        for event in [*host.heard(), *host.listen(0.007)]:
            if isinstance(event, SweepDataEvent) and data.draw(st.booleans()):
                track.receive(event.first, len(event.values))
                values |= dict(enumerate(event.values[:, 0].tolist(), event.first))
        progress = host.progress(6)
        for hole in track.missing(progress.produced):
            reply = host.ask(SweepReadRequest(6, hole.start, len(hole)))
            track.receive(reply.first, len(reply.values))
            values |= dict(enumerate(reply.values[:, 0].tolist(), reply.first))
        up_to, limit = track.acknowledgement()
        host.ask(SweepAckRequest(6, up_to, limit))
        if up_to == 40:
            break
    assert values == {index: 1000 * (index + 1) for index in range(40)}
