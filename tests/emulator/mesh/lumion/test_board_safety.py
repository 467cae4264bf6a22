"""Safety of the emulated board (section 11): watchdog policies, faults, ESTOP, reset, freeze, power."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from firmware_protocol import (
    ESTOP_WIRE,
    EstopReply,
    EstopRequest,
    Event,
    FaultClearReply,
    FaultClearRequest,
    FaultListReply,
    FaultListRequest,
    FaultRecord,
    FaultSource,
    FaultState,
    Feature,
    Frame,
    HeaderFlag,
    Kind,
    OutputsState,
    PingRequest,
    ReadAdcRequest,
    ReadbackRequest,
    Refusal,
    SetRequest,
    StatsCounter,
    Status,
    Stream,
    encode_frame,
    table_crc32,
)
from tests.effort import examples
from tests.emulator.mesh.lumion.board_testbench import TINY, Bench, Host, global_block, table

ZEROS = [0.0] * 4
CODES = [1000, 2000, 3000, 65535]
WATCHDOG, ESTOP, HW_SPI = FaultSource.WATCHDOG, FaultSource.ESTOP, FaultSource.HW_SPI
HW_ADC = FaultSource.HW_ADC


def energised(**common: int) -> tuple[Bench, Host, float]:
    """Return a driving board and the time of the last watchdog feed."""
    bench = Bench()
    host = Host(bench).ready(**common)
    fed_at = bench.clock.now()
    host.drive(1, CODES)
    return bench, host, fed_at


# -- watchdog ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [100, 777, 2000, 60000])
def test_off_outputs_are_zero_within_the_timeout_and_one_tick(timeout_ms: int) -> None:
    bench, host, _ = energised(wd_timeout_ms=timeout_ms)
    bench.sleep(0.0123)
    fed_at = bench.clock.now()
    host.ask(PingRequest(1))
    bench.until(fed_at + timeout_ms * 1e-3 - 0.0005)
    assert bench.board.driven_codes.tolist() == CODES
    bench.sleep(100.0)  # no communication and no advance: the trip time is exact nevertheless
    instant, output = bench.drives[-1]
    assert output == ZEROS
    assert instant * 1e3 == pytest.approx(math.ceil(fed_at * 1e3 - 1e-6) + timeout_ms), "the first edge after it"
    assert bench.board.state is OutputsState.SAFE
    faults = host.ask(FaultListRequest())
    assert faults.latched == WATCHDOG.mask
    record = faults.records[0]
    assert (record.source, record.limit, record.channel) == (WATCHDOG, timeout_ms, None)
    assert record.value in (timeout_ms, timeout_ms + 1)


def test_any_request_of_the_session_feeds_even_a_refused_one() -> None:
    bench, host, _ = energised(wd_timeout_ms=100)
    for _ in range(5):
        bench.sleep(0.09)
        assert isinstance(host.ask(SetRequest(1, table([9] * 4))), Refusal)
    assert bench.board.state is OutputsState.READY


def test_probes_strangers_and_damaged_frames_do_not_feed() -> None:
    bench, host, _ = energised(wd_timeout_ms=1000)
    stranger = Host(bench, session=0x1111)
    damaged = bytearray(encode_frame(host.frame(PingRequest(1))))
    damaged[9] ^= 0x10
    for _ in range(12):
        bench.sleep(0.09)
        host.ask(PingRequest(1), session=0)
        stranger.ask(PingRequest(1), session=0x1111)
        host.link.write(bytes(damaged), 0.0)
    assert bench.board.state is OutputsState.SAFE


def test_a_repeat_feeds_too() -> None:
    bench, host, _ = energised(wd_timeout_ms=100)
    frame = encode_frame(host.frame(SetRequest(2, table(CODES))))
    for _ in range(10):
        host.raw(frame)
        bench.sleep(0.09)
    assert bench.board.state is OutputsState.READY


def test_a_board_that_drives_zeros_needs_no_food() -> None:
    bench = Bench()
    host = Host(bench).ready(wd_timeout_ms=100)
    bench.sleep(10.0)
    assert bench.board.state is OutputsState.READY
    assert host.counter(StatsCounter.WD_TRIPS) == 0


def test_ramp_goes_down_in_a_straight_line_and_ends_in_safe() -> None:
    bench, host, fed_at = energised(wd_policy=1, wd_timeout_ms=500, wd_param_ms=40)
    bench.until(fed_at + 10.0)
    trip = host.ask(FaultListRequest()).records[0].tick
    ramp = [(instant, output) for instant, output in bench.drives if instant * 1e3 > trip - 0.5]
    assert len(ramp) == 40
    for step, (instant, output) in enumerate(ramp, 1):
        assert instant == pytest.approx((trip + step) * 1e-3)
        codes = [code * (40 - step) // 40 for code in CODES]  # code(t) = code(0) x (P - e) // P
        assert output == pytest.approx(np.array(codes) * 10 / 65535)
    assert ramp[-1][1] == ZEROS
    assert bench.board.state is OutputsState.SAFE


def test_during_a_ramp_feeding_clearing_and_programming_change_nothing() -> None:
    bench, host, fed_at = energised(wd_policy=1, wd_timeout_ms=500, wd_param_ms=1000)
    bench.until(fed_at + 0.8)
    assert bench.board.state is OutputsState.GRACE
    assert host.ask(PingRequest(1)).outputs_state is OutputsState.GRACE
    refusal = host.ask(FaultClearRequest(1))
    assert refusal.status == Status.BUSY
    assert 0 < refusal.value <= 1000
    assert host.ask(SetRequest(2, table(CODES))) == Refusal(Status.SAFE, value=WATCHDOG.mask)
    present = host.ask(ReadbackRequest(count=4))
    assert 0 < present.codes[3] < 65535
    assert present.crc32 == table_crc32(present.codes)
    bench.until(fed_at + 2.0)
    assert bench.drives[-1][1] == ZEROS


def test_hold_keeps_the_outputs_for_its_time_and_then_lets_go() -> None:
    bench, host, fed_at = energised(wd_policy=2, wd_timeout_ms=500, wd_param_ms=3000)
    bench.until(fed_at + 3.49)
    assert bench.board.state is OutputsState.GRACE
    assert len(bench.drives) == 1
    bench.until(fed_at + 60.0)
    instant, output = bench.drives[-1]
    assert output == ZEROS
    assert 3.5 - 1e-9 <= instant - fed_at <= 3.502
    assert bench.board.state is OutputsState.SAFE
    assert host.ask(FaultListRequest()).newest_id == 1


def test_a_host_that_comes_back_during_hold_keeps_the_circuits() -> None:
    bench, _, fed_at = energised(wd_policy=2, wd_timeout_ms=500, wd_param_ms=60_000)
    bench.until(fed_at + 20.0)
    again = Host(bench, session=0x4444)
    reply = again.open()
    assert (reply.outputs_state, reply.faults, reply.active_generation) == (OutputsState.GRACE, WATCHDOG.mask, 1)
    cleared = again.ask(FaultClearRequest(1))
    assert cleared == FaultClearReply(0, 1, OutputsState.READY)
    assert len(bench.drives) == 1, "the outputs never changed"
    bench.sleep(0.4)
    again.drive(2, [1, 1, 1, 1])
    bench.sleep(1.0)
    assert bench.board.state is OutputsState.GRACE, "the watchdog runs again"


@examples(20)
@given(
    policy=st.sampled_from([(0, 0), (1, 50), (2, 200)]),
    timeout_ms=st.integers(100, 400),
    pauses=st.lists(st.floats(0.0, 0.5), max_size=6),
)
def test_outputs_are_zero_within_timeout_policy_and_one_tick_after_the_last_feed(
    policy: tuple[int, int], timeout_ms: int, pauses: list[float]
) -> None:
    bench, host, fed_at = energised(wd_policy=policy[0], wd_param_ms=policy[1], wd_timeout_ms=timeout_ms)
    for pause in pauses:
        bench.sleep(pause)
        fed_at = bench.clock.now()
        host.ask(PingRequest(1))
    bench.sleep(5.0)
    instant, output = bench.drives[-1]
    assert output == ZEROS
    assert instant - fed_at <= (timeout_ms + policy[1] + 1) * 1e-3 + 1e-9
    assert all(late >= early for (early, _), (late, _) in zip(bench.drives, bench.drives[1:], strict=False))


# -- faults -----------------------------------------------------------------------------------------------------------


def test_a_fault_takes_the_outputs_to_zero_at_once_and_is_reported_three_ways() -> None:
    bench, host, _ = energised()
    bench.sleep(0.12345)
    now = bench.clock.now()
    fault_id = bench.board.trip(HW_SPI, value=0x55)
    assert bench.drives[-1] == (now, ZEROS)
    answer = host.raw(encode_frame(host.frame(PingRequest(1))))
    assert answer is not None
    assert answer.flags & HeaderFlag.FAULT_PENDING
    event = host.events[0]
    assert (event.kind, event.command, event.status, event.session) == (
        Kind.EVT,
        Event.FAULT,
        Stream.FAULT,
        host.session,
    )
    assert event.seq == 0
    assert event.flags & HeaderFlag.FAULT_PENDING
    record = FaultRecord.decode(event.payload)
    assert (record.fault_id, record.source, record.fault_state, record.value) == (
        fault_id,
        HW_SPI,
        FaultState.LATCHED,
        0x55,
    )
    listed = host.ask(FaultListRequest())
    assert isinstance(listed, FaultListReply)
    assert listed == FaultListReply(HW_SPI.mask, 1, OutputsState.SAFE, (record,))
    assert host.ask(SetRequest(2, table(CODES))) == Refusal(Status.SAFE, value=HW_SPI.mask)


def test_after_a_trip_the_old_generation_cannot_be_taken_for_driven() -> None:
    bench, host, _ = energised()
    bench.board.trip(HW_SPI)
    host.ask(FaultClearRequest(1))
    present = host.ask(ReadbackRequest(count=4))
    assert (present.generation, present.codes.tolist()) == (1, [0, 0, 0, 0])
    assert host.ask(SetRequest(1, table(CODES))) == Refusal(Status.STALE, value=1)
    host.drive(2, CODES)


def test_a_fault_is_cleared_by_its_id_and_a_newer_one_stays() -> None:
    bench, host, _ = energised()
    first, second = bench.board.trip(HW_SPI), bench.board.trip(FaultSource.HW_ADC)
    assert (first, second) == (1, 2)
    assert host.ask(FaultClearRequest(1)) == FaultClearReply(FaultSource.HW_ADC.mask, 2, OutputsState.SAFE)
    assert host.ask(FaultClearRequest(1)).latched == FaultSource.HW_ADC.mask, "clearing twice is no error"
    assert host.ask(FaultClearRequest(2)) == FaultClearReply(0, 2, OutputsState.READY)
    states = [record.fault_state for record in host.ask(FaultListRequest()).records]
    assert states == [FaultState.CLEARED, FaultState.CLEARED]
    assert bench.drives[-1][1] == ZEROS, "outputs stay 0 until they are programmed"


def test_clearing_a_fault_leaves_an_older_one_latched() -> None:
    bench, host, _ = energised()
    bench.board.trip(HW_SPI)
    bench.board.trip(HW_ADC)
    assert host.ask(FaultClearRequest(2)) == FaultClearReply(HW_SPI.mask, 2, OutputsState.SAFE)
    assert host.ask(FaultClearRequest(1)) == FaultClearReply(0, 2, OutputsState.READY)


@pytest.mark.parametrize("fault_id", [0, 3, 999_999, 0xFFFF_FFFF])
def test_an_id_that_no_fault_was_given_is_refused_and_clears_nothing(fault_id: int) -> None:
    bench, host, _ = energised()
    bench.board.trip(HW_SPI)
    bench.board.trip(HW_ADC)
    refused = host.ask(FaultClearRequest(fault_id))
    assert (refused.status, refused.value_u32, refused.limit) == (25, fault_id, 2)
    assert host.ask(FaultListRequest()).latched == HW_SPI.mask | HW_ADC.mask


def test_a_present_condition_refuses_the_clear_of_its_own_fault() -> None:
    bench, host, _ = energised()
    bench.board.trip(HW_SPI)
    bench.board.trip(FaultSource.MEMORY, channel=3, value=7, limit=5, present=True)
    assert host.ask(FaultListRequest(first_id=2)).records[0].fault_state is FaultState.PRESENT
    assert host.ask(FaultClearRequest(2)) == Refusal(Status.INTERLOCK, channel=3, value=7, limit=5)
    assert host.ask(FaultListRequest()).latched == HW_SPI.mask | FaultSource.MEMORY.mask
    assert host.ask(FaultClearRequest(1)).latched == FaultSource.MEMORY.mask, "another one is not held back by it"
    bench.board.remove_condition(FaultSource.MEMORY, 3)
    assert host.ask(FaultListRequest()).latched != 0, "the latch stays when the cause is gone"
    assert host.ask(FaultClearRequest(2)).latched == 0


def test_optional_sources_trip_only_when_they_are_enabled() -> None:
    bench, host, _ = energised()
    assert bench.board.trip(FaultSource.OVER_TEMPERATURE, value=9000, limit=8500, present=True) is None
    assert bench.board.state is OutputsState.READY
    host.configure(global_block(fault_enable=1))
    assert bench.board.state is OutputsState.SAFE, "the condition is there when the source is enabled"
    assert host.ask(FaultListRequest()).records[0].value == 9000


def test_a_latched_source_is_not_doubled_and_vendor_sources_trip() -> None:
    bench, host, _ = energised()
    assert bench.board.trip(HW_SPI) == bench.board.trip(HW_SPI) == 1
    assert bench.board.trip(31) == 2
    assert host.ask(FaultListRequest()).latched == HW_SPI.mask | 1 << 31


def test_the_list_keeps_the_last_16_and_can_be_read_in_parts() -> None:
    bench, host, _ = energised()
    for number in range(1, 21):
        assert bench.board.trip(HW_SPI, channel=number) == number
        host.ask(FaultClearRequest(number))
    ids = [record.fault_id for record in host.ask(FaultListRequest()).records]
    assert ids == list(range(5, 21))
    part = host.ask(FaultListRequest(first_id=10, max_records=3))
    assert [record.fault_id for record in part.records] == [10, 11, 12]
    host.hello(rx_max=256)  # 241 bytes of payload: 12 and eleven records of 20
    assert len(host.ask(FaultListRequest()).records) == 11
    assert host.ask(FaultListRequest(max_records=12)) == Refusal(Status.TOO_BIG, value=12, limit=11)


def test_events_without_a_session_are_counted_as_dropped() -> None:
    bench = Bench()
    bench.board.trip(HW_SPI)
    host = Host(bench)
    assert host.open().outputs_state is OutputsState.SAFE
    assert host.counter(StatsCounter.EVENTS_DROPPED) == 1
    assert host.counter(StatsCounter.FAULTS) == 1


def test_events_are_numbered_within_the_session() -> None:
    bench, host, _ = energised()
    for source in (5, 6, 7):
        bench.board.trip(source)
    host.ask(PingRequest(1))
    assert [event.seq for event in host.events] == [0, 1, 2]
    host.events.clear()
    host.open()
    bench.board.trip(12)
    host.ask(PingRequest(1))
    assert [event.seq for event in host.events] == [0]


# -- ESTOP ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["boot", "ready", "grace-hold", "grace-ramp", "safe", "armed"])
def test_estop_works_in_any_state_without_a_session(state: str) -> None:
    bench = Bench()
    host = Host(bench)
    if state != "boot":
        policy = {"grace-hold": (2, 60_000), "grace-ramp": (1, 60_000)}.get(state, (0, 0))
        host.ready(wd_policy=policy[0], wd_param_ms=policy[1])
        host.drive(1, CODES)
    if state.startswith("grace"):
        bench.sleep(3.0)
        assert bench.board.state is OutputsState.GRACE
    if state == "safe":
        bench.board.trip(HW_SPI)
    button = Host(bench, session=0)
    now = bench.clock.now()
    answer = button.raw(ESTOP_WIRE)
    assert answer is not None
    assert (answer.command, answer.seq, answer.session, answer.status) == (2, 0, 0, 0)
    reply = EstopReply.decode(answer.payload)
    assert reply.outputs_state is OutputsState.SAFE
    assert bench.board.driven_codes.tolist() == [0] * 4
    if state not in ("boot", "safe"):
        assert bench.drives[-1] == (now, ZEROS), "at once, not at a tick and not after t_cmd"
    again = button.raw(ESTOP_WIRE)
    assert again is not None
    assert EstopReply.decode(again.payload) == reply, "an existing ESTOP is kept, not doubled"
    bench.sleep(100.0)
    assert bench.drives == [] or bench.drives[-1][1] == ZEROS


def test_estop_is_answered_in_a_foreign_session_and_does_not_disturb_the_sequence() -> None:
    _, host, _ = energised()
    assert isinstance(host.ask(EstopRequest(), session=0x9999, seq=12345), EstopReply)
    assert isinstance(host.ask(EstopRequest(), seq=host.seq), EstopReply), "a number that was used already"
    assert host.ask(FaultClearRequest(1)).outputs_state is OutputsState.READY


def test_estop_with_a_wrong_magic_does_nothing() -> None:
    bench, host, _ = energised()
    refusal = host.ask(EstopRequest(magic="STOp"))
    assert (refusal.status, refusal.channel, refusal.value) == (Status.BAD_VALUE, 0, int.from_bytes(b"STOp", "little"))
    assert bench.board.state is OutputsState.READY


def test_estop_overtakes_a_commit_that_waits_for_its_edge_and_a_long_scan() -> None:
    bench, host, _ = energised()
    host.link.write(encode_frame(host.frame(ReadAdcRequest(0, 4, n_avg=4096))), 0.0)
    bench.sleep(0.01)
    now = bench.clock.now()
    host.link.write(ESTOP_WIRE, 0.0)
    assert bench.drives[-1] == (now, ZEROS)


# -- restarts ---------------------------------------------------------------------------------------------------------


def test_a_reset_is_visible_by_its_boot_id_and_forgets_all_but_latched_faults() -> None:
    bench, host, _ = energised()
    before = host.open()
    bench.board.reset()
    assert bench.drives[-1][1] == ZEROS
    assert host.ask(PingRequest(1)) == Refusal(Status.SESSION, value=0)
    after = host.open()
    assert after.boot_id not in (0, before.boot_id)
    assert (after.outputs_state, after.faults, after.active_generation) == (OutputsState.BOOT, 0, 0)
    assert (after.config_crc32, after.uptime_ms) == (0, 2)
    assert host.ask(FaultListRequest()).newest_id == 0


@pytest.mark.parametrize("restart", ["reset", "power cycle"])
def test_a_latched_fault_outlives_a_restart_and_leaves_by_its_id_only(restart: str) -> None:
    bench, host, _ = energised()
    bench.board.trip(HW_ADC, value=7)
    bench.board.trip(HW_SPI, value=9)
    host.ask(FaultClearRequest(1))
    if restart == "reset":
        bench.board.reset()
    else:
        bench.board.power_off()
        bench.board.power_on()
    after = host.open()
    assert (after.outputs_state, after.faults) == (OutputsState.SAFE, 1 << HW_SPI)
    listed = host.ask(FaultListRequest())
    assert [(item.fault_id, item.source, item.tick, item.value) for item in listed.records] == [(1, HW_SPI, 0, 9)]
    host.configure()
    refused = host.ask(SetRequest(1, table(CODES)))
    assert refused.status == Status.SAFE
    bench.board.reset()
    host.open()
    assert host.ask(FaultClearRequest(1)).latched == 0
    assert host.open().outputs_state is OutputsState.BOOT


def test_a_condition_that_outlives_the_reset_latches_again() -> None:
    bench, host, _ = energised()
    bench.board.trip(FaultSource.SELF_TEST, value=4, present=True)
    bench.board.reset()
    assert host.open().outputs_state is OutputsState.SAFE
    assert host.ask(FaultListRequest()).records[0].value == 4


def test_power_loss_means_zero_and_silence_and_power_up_is_a_new_boot() -> None:
    bench, host, _ = energised()
    boot_id = bench.board.boot_id
    bench.board.power_off()
    assert bench.drives[-1] == (bench.clock.now(), ZEROS)
    assert host.raw(encode_frame(host.frame(PingRequest(1))), 1.0) is None
    bench.board.power_on()
    bench.board.power_on()
    assert host.open().boot_id != boot_id


def test_a_frozen_board_keeps_its_outputs_and_says_nothing() -> None:
    bench = Bench(replace(TINY, features=0))
    host = Host(bench).ready()
    host.drive(1, CODES)
    tick = host.ask(PingRequest(1)).tick
    bench.board.freeze()
    bench.board.freeze()
    assert host.raw(encode_frame(host.frame(PingRequest(1))), 30.0) is None
    assert bench.board.driven_codes.tolist() == CODES, "the software watchdog is frozen too"
    bench.board.thaw()
    bench.board.thaw()
    answer = host.reply()
    assert answer is not None, "what was sent meanwhile is executed then"
    later = host.ask(PingRequest(1)).tick
    assert later - tick <= 3, "no time has passed for the board"
    assert host.counter(StatsCounter.TICK_OVERRUNS) == 30_000
    bench.sleep(10.0)
    assert bench.drives[-1][1] == ZEROS


def test_with_a_hardware_watchdog_a_frozen_board_restarts_with_outputs_zero() -> None:
    bench = Bench(replace(TINY, features=1 << Feature.HW_WATCHDOG, hw_watchdog_s=0.5))
    host = Host(bench).ready()
    host.drive(1, CODES)
    boot_id, now = bench.board.boot_id, bench.clock.now()
    bench.board.freeze()
    bench.sleep(10.0)
    assert bench.drives[-1] == (pytest.approx(now + 0.5), ZEROS)
    assert host.open().boot_id != boot_id


def test_lost_frames_are_recovered_by_the_host_repeating_them() -> None:
    bench, host, _ = energised()
    bench.board.lose_frames(2)
    frame = encode_frame(host.frame(SetRequest(2, table([1, 2, 3, 4]))))
    assert [host.raw(frame, 0.1) is None for _ in range(3)] == [True, True, False]
    assert bench.board.driven_codes.tolist() == [1, 2, 3, 4]


def test_the_watchdog_hook_latches_like_any_other_fault() -> None:
    bench, host, _ = energised(wd_policy=2, wd_param_ms=1000)
    bench.board.trip(WATCHDOG)
    assert bench.drives[-1][1] == ZEROS
    assert host.ask(FaultListRequest()).latched == WATCHDOG.mask


def test_a_frame_of_another_kind_in_the_middle_of_everything_is_ignored() -> None:
    bench, host, _ = energised()
    host.link.write(encode_frame(Frame(Kind.EVT, Event.FAULT, 0, host.session, payload=bytes(20))), 0.0)
    assert host.ask(PingRequest(1)).outputs_state is OutputsState.READY
    assert bench.board.state is OutputsState.READY
