"""Telemetry of the emulated board (section 9): periods, credits, drop counters, and recipients of events."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from firmware_protocol import (
    Event,
    EventTrack,
    Feature,
    HeaderFlag,
    HelloFlag,
    Kind,
    PingRequest,
    Refusal,
    StatsCounter,
    Status,
    SubscribeFlag,
    SubscribeReply,
    SubscribeRequest,
    encode_frame,
)
from lumion_hw.emulator.mesh.lumion import BoardProfile, preset
from tests.emulator.mesh.lumion.board_testbench import TINY, Bench, Host, telemetry_of


def subscribed(**fields: int) -> tuple[Bench, Host]:
    bench = Bench()
    bench.monitors_ma = np.array([0.0, 0.5, 0.25, 1.0])  # 1 mA full scale
    host = Host(bench)
    host.open()
    host.subscribe(**fields)
    return bench, host


# -- period and content -----------------------------------------------------------------------------------------------


def test_records_come_at_their_period_on_the_tick_clock() -> None:
    bench, host = subscribed(period_ticks=10)
    events = host.listen(0.1)
    ticks = [event.tick for event in events]
    assert len(ticks) == 10
    assert [later - earlier for earlier, later in pairwise(ticks)] == [10] * 9
    assert [instant * 1e3 for instant, _ in bench.scans] == pytest.approx(ticks), "looked at the light at those ticks"


def test_a_record_holds_the_selected_codes_the_generation_and_the_temperature() -> None:
    bench = Bench()
    bench.monitors_ma = np.array([0.0, 0.5, 0.25, 1.0])
    host = Host(bench).ready()
    host.drive(17, [1, 2, 3, 4])
    bench.board.set_chip_temperature(31.415)
    assert host.subscribe(period_ticks=5, mask=b"\x0a").count == 2
    event = host.listen(0.02)[0]
    assert (event.generation, event.chip_temp, event.adc.tolist()) == (17, 3142, [32768, 65535])
    assert event.saturated.tolist() == [False, True]


def test_a_board_without_the_sensor_knows_no_temperature() -> None:
    host = Host(Bench(replace(TINY, features=1 << Feature.SWEEP)))
    host.open()
    host.subscribe(period_ticks=5)
    assert host.listen(0.02)[0].chip_temp is None


def test_averaging_is_asked_of_the_monitors_and_delays_the_record() -> None:
    bench, host = subscribed(period_ticks=100, n_avg=1000)  # 50 ms of scans
    (event,) = host.listen(0.08)
    assert bench.scans[0][1] == 1000
    assert bench.clock.now() >= event.tick * 1e-3 + 0.050


def test_events_carry_stream_session_and_number() -> None:
    bench, host = subscribed(stream=3, period_ticks=10)
    frames = host.collect(0.05)
    assert {(frame.kind, frame.command, frame.status, frame.session) for frame in frames} == {
        (Kind.EVT, Event.TELEMETRY, 3, host.session)
    }
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    assert not any(frame.flags & HeaderFlag.FAULT_PENDING for frame in frames)
    bench.board.trip(5)
    assert host.collect(0.02)[-1].flags & HeaderFlag.FAULT_PENDING


def test_streams_run_side_by_side_each_with_its_own_numbers() -> None:
    _, host = subscribed(stream=2, period_ticks=10)
    host.subscribe(stream=5, period_ticks=20, mask=b"\x01")
    frames = host.collect(0.2)
    of = {stream: [frame.seq for frame in frames if frame.status == stream] for stream in (2, 5)}
    assert of[5] == list(range(len(of[5])))
    assert len(of[5]) == 10
    assert len(of[2]) == 20


def test_period_0_stops_a_stream() -> None:
    _, host = subscribed(period_ticks=10)
    assert len(host.listen(0.05)) == 5
    host.subscribe(period_ticks=0)
    assert host.listen(0.05) == []


def test_a_new_subscription_starts_numbers_and_drops_anew() -> None:
    bench, host = subscribed(period_ticks=10, credit_limit=3)
    bench.sleep(0.1)
    assert host.ask(SubscribeRequest(2, 3, sub_flags=SubscribeFlag.RENEW)).next_event == 3
    reply = host.subscribe(period_ticks=10, credit_limit=2)
    assert (reply.next_event, reply.dropped) == (0, 0)
    assert [frame.seq for frame in host.collect(0.1)] == [0, 1]


# -- credit -----------------------------------------------------------------------------------------------------------


def test_events_below_the_limit_are_sent_and_the_rest_is_dropped_and_counted() -> None:
    _, host = subscribed(period_ticks=10, credit_limit=4)
    assert len(host.listen(0.1)) == 4
    reply = host.ask(SubscribeRequest(2, 0, sub_flags=SubscribeFlag.RENEW))
    assert (reply.stream, reply.count, reply.next_event, reply.dropped) == (2, 4, 4, 6)
    assert host.counter(StatsCounter.EVENTS_SENT) == 4
    assert host.counter(StatsCounter.EVENTS_DROPPED) in (6, 7), "time goes on between the two questions"


def test_a_renewal_lets_events_flow_again_without_a_gap_in_their_numbers() -> None:
    _, host = subscribed(period_ticks=10, credit_limit=2)
    host.listen(0.1)
    host.ask(SubscribeRequest(2, 4, sub_flags=SubscribeFlag.RENEW, period_ticks=999, n_avg=0, mask=b"\xff" * 9))
    frames = host.collect(0.1)
    assert [frame.seq for frame in frames] == [2, 3], "only the limit of a renewal is used"


def test_the_limit_is_absolute_and_never_moves_back() -> None:
    _, host = subscribed(period_ticks=10, credit_limit=5)
    for limit in (5, 5, 3, 0):  # repeated and older renewals
        host.ask(SubscribeRequest(2, limit, sub_flags=SubscribeFlag.RENEW))
    assert len(host.listen(0.2)) + len(host.heard()) == 5


def test_what_a_record_says_was_dropped_is_what_was_dropped_before_it() -> None:
    _, host = subscribed(period_ticks=10, credit_limit=1)
    host.listen(0.1)  # 10 records, 1 sent
    host.ask(SubscribeRequest(2, 2, sub_flags=SubscribeFlag.RENEW))
    assert [event.dropped for event in host.listen(0.011)] == [9]


def test_a_renewal_wants_no_reply_if_told_so_a_subscription_always_has_one() -> None:
    _, host = subscribed(period_ticks=0)
    renew = SubscribeRequest(2, 5, sub_flags=SubscribeFlag.RENEW)
    assert host.raw(encode_frame(host.frame(renew, flags=HeaderFlag.NO_REPLY)), 0.1) is None
    fresh = SubscribeRequest(2, 5, period_ticks=0)
    assert isinstance(host.ask(fresh, flags=HeaderFlag.NO_REPLY), SubscribeReply)


def test_without_credit_nobody_looks_at_the_light() -> None:
    bench, host = subscribed(period_ticks=1, credit_limit=0)
    bench.sleep(3600.0)
    assert bench.scans == []
    reply = host.ask(SubscribeRequest(2, 0, sub_flags=SubscribeFlag.RENEW))
    assert reply.dropped == pytest.approx(3_600_000, abs=3)


def test_produced_is_received_and_dropped_and_lost() -> None:
    bench, host = subscribed(period_ticks=3, credit_limit=8)
    track = EventTrack(8)
    produced_from = bench.clock.now()
    for _ in range(40):
        for frame in host.collect(0.01):
            if frame.seq % 5:  # every fifth frame is lost on the way
                track.receive(frame.seq, 0)
        renewal = track.renewal()
        if renewal is not None:
            track.grant(renewal)
            host.ask(SubscribeRequest(2, renewal, sub_flags=SubscribeFlag.RENEW))
            for frame in host.events:
                track.receive(frame.seq, 0)
            host.events.clear()
    host.subscribe(stream=3, period_ticks=0)
    reply = host.ask(SubscribeRequest(2, 0, sub_flags=SubscribeFlag.RENEW))
    track.count_final_losses(reply.next_event, reply.dropped)
    produced = round((bench.clock.now() - produced_from) / 0.003)
    assert track.lost > 0
    assert track.received + track.dropped + track.lost == pytest.approx(produced, abs=1)


# -- queue and line ---------------------------------------------------------------------------------------------------


def test_a_line_too_slow_for_the_period_drops_the_oldest_records_and_sends_the_newest() -> None:
    # 64 monitors are 159 bytes, 13.8 ms at 115 200 baud (72.5 records/s, section 14); 200/s are requested.
    bench = Bench(preset("mesh144", "uart:115200"))
    host = Host(bench)
    host.open()
    host.subscribe(period_ticks=5, credit_limit=10_000)
    frames = host.collect(2.0)
    events = telemetry_of([_decoded(frame) for frame in frames])
    assert [frame.seq for frame in frames] == list(range(len(frames))), "dropped records take no number"
    assert len(events) == pytest.approx(2.0 * 72.5, rel=0.05)
    last = events[-1]
    assert last.dropped + len(events) == pytest.approx(2.0 * 200, abs=12)
    assert bench.clock.now() * 1e3 - last.tick < 8 * 13.8 + 20, "no older than the queue is long"


def test_no_more_records_wait_for_a_busy_line_than_have_credit_and_they_are_the_newest() -> None:
    bench = Bench(preset("mesh144", "uart:9600"))  # 166 ms for the 159 bytes of a record
    host = Host(bench)
    host.open()
    host.subscribe(period_ticks=20, credit_limit=3)
    frames = host.collect(2.0)
    assert [frame.seq for frame in frames] == [0, 1, 2]
    ticks = [event.tick for event in telemetry_of([_decoded(frame) for frame in frames])]
    # The first waits 28 ms for the reply (27 bytes). At 194 ms the line is free and the records of 160 and 180 ms wait;
    # at 360 ms there is credit for one, that of 340 ms.
    assert [tick - ticks[0] for tick in ticks] == pytest.approx([0, 160, 340], abs=20)


def test_a_host_that_reads_nothing_finds_fresh_records_not_minutes_of_old_ones() -> None:
    bench, host = subscribed(period_ticks=10, credit_limit=1_000_000)
    bench.sleep(60.0)
    events = host.listen(0.001)
    sizes = 15 + 16 + 2 * 4
    assert len(events) <= 4096 // sizes + 2 + 8, "what the wire holds, and the queue of the board"
    newest = events[-1]
    assert newest.tick >= 59_900
    assert newest.dropped == pytest.approx(6000 - len(events), abs=10)


def test_the_reply_to_a_request_overtakes_waiting_telemetry() -> None:
    bench = Bench(preset("mesh144", "uart:115200"))
    host = Host(bench)
    host.open()
    for stream in (2, 3, 4, 5):
        host.subscribe(stream=stream, period_ticks=1, credit_limit=10_000)
    host.collect(0.5)
    asked = bench.clock.now()
    host.ask(PingRequest(1))
    # A frame of 159 bytes that is being sent is not cut; the 31 bytes of the reply follow it.
    longest = (19 + 159 + 31) * 10 / 115_200 + 1e-3
    assert bench.clock.now() - asked <= longest + 1e-4


def test_events_go_where_the_session_last_spoke_from() -> None:
    bench, first = subscribed(period_ticks=10)
    second = Host(bench)
    assert len(first.listen(0.05)) == 5
    second.ask(PingRequest(1), seq=100)
    assert first.listen(0.05) == []
    assert len(second.listen(0.05)) + len(second.heard()) == 10
    second.link.close()
    bench.sleep(0.05)
    assert first.listen(0.05) == [], "nobody speaks: records are dropped"
    first.ask(PingRequest(1), seq=101)
    assert len(first.listen(0.05)) >= 5


def test_a_stranger_does_not_draw_the_events_to_itself() -> None:
    bench, host = subscribed(period_ticks=10)
    stranger = Host(bench, session=0x1111)
    stranger.ask(PingRequest(1))
    stranger.ask(PingRequest(1), session=0)
    assert stranger.collect(0.05) == []
    assert len(host.listen(0.05)) > 0


def test_a_new_session_ends_all_streams() -> None:
    bench, host = subscribed(period_ticks=10)
    second = Host(bench, session=0x1111)
    second.hello(flags=HelloFlag.TAKEOVER)
    assert second.collect(0.1) == []
    reply = second.ask(SubscribeRequest(2, 9, sub_flags=SubscribeFlag.RENEW))
    assert (reply.count, reply.next_event) == (0, 0)
    assert host.collect(0.1) == [] or all(frame.session == host.session for frame in host.collect(0.1))


def test_a_reset_ends_all_streams() -> None:
    bench, host = subscribed(period_ticks=10)
    bench.board.reset()
    host.open()
    assert host.collect(0.1) == []


def test_after_a_freeze_the_stream_goes_on_where_its_tick_clock_stood() -> None:
    bench = Bench(replace(TINY, features=0))  # no hardware watchdog
    host = Host(bench)
    host.open()
    host.subscribe(period_ticks=10)
    before = host.listen(0.05)
    bench.board.freeze()
    bench.sleep(10.0)
    bench.board.thaw()
    after = host.listen(0.05)
    assert after[0].tick - before[-1].tick == 10


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "refusal"),
    [
        (SubscribeRequest(0, 9, period_ticks=10), Refusal(Status.BAD_VALUE, channel=0, value=0)),
        (SubscribeRequest(1, 9, period_ticks=10), Refusal(Status.BAD_VALUE, channel=0, value=1)),
        (SubscribeRequest(6, 9, period_ticks=10), Refusal(Status.BAD_VALUE, channel=0, value=6)),
        (SubscribeRequest(6, 9, sub_flags=1), Refusal(Status.BAD_VALUE, channel=0, value=6)),
        (SubscribeRequest(2, 9, period_ticks=10, n_avg=0), Refusal(Status.BAD_VALUE, channel=2, value=0)),
        (SubscribeRequest(2, 9, period_ticks=10, n_avg=4097), Refusal(Status.BAD_VALUE, channel=2, value=4097)),
        # 50 us a scan and 1 ms a tick: 20 scans fit one tick, 21 do not
        (SubscribeRequest(2, 9, period_ticks=1, n_avg=21), Refusal(Status.BAD_VALUE, channel=4, value=1)),
        (SubscribeRequest(2, 9, period_ticks=10, mask=b"\x10"), Refusal(Status.BAD_CHANNEL, channel=4, limit=4)),
        (SubscribeRequest(2, 9, period_ticks=10, mask=b"\0" * 9 + b"\2"), Refusal(Status.BAD_CHANNEL, 73, limit=4)),
    ],
)
def test_a_subscription_the_board_cannot_serve_is_refused(request_: SubscribeRequest, refusal: Refusal) -> None:
    _, host = subscribed(period_ticks=0)
    assert host.ask(request_) == refusal


def test_the_shortest_period_and_a_long_mask_without_further_bits_are_fine() -> None:
    _, host = subscribed(period_ticks=0)
    assert host.subscribe(period_ticks=1, n_avg=20, mask=b"\x05" + bytes(50)).count == 2


def test_a_record_that_exceeds_the_frame_is_too_big() -> None:
    host = Host(Bench(BoardProfile(n_dac=4, n_adc=200)))
    host.hello(rx_max=256)
    # 241 bytes of payload, 16 of them fixed (section 2.4: 112 monitors in one TELEMETRY)
    assert host.ask(SubscribeRequest(2, 9, period_ticks=50)) == Refusal(Status.TOO_BIG, value=200, limit=112)
    assert host.subscribe(period_ticks=50, mask=b"\xff" * 14).count == 112
    (frame,) = host.collect(0.05)
    assert len(encode_frame(frame)) <= 256


def _decoded(frame: object) -> object:
    from firmware_protocol import Frame, decode_event

    assert isinstance(frame, Frame)
    return decode_event(frame.command, frame.payload)
