"""Early ends of a sweep on the emulated board (sections 10.4 and 11): abort, fault, ESTOP, watchdog, new host."""

from __future__ import annotations

import pytest

from firmware_protocol import (
    ESTOP_WIRE,
    EndReason,
    FaultClearRequest,
    FaultListRequest,
    FaultSource,
    HelloFlag,
    HelloReply,
    HelloRequest,
    OutputsState,
    PingRequest,
    ReadbackRequest,
    Refusal,
    RunState,
    StatsCounter,
    Status,
    SweepAbortReply,
    SweepAbortRequest,
    SweepDoneEvent,
    SweepImage,
    SweepPoint,
    SweepReadRequest,
    encode_frame,
    table_crc32,
)
from tests.emulator.mesh.lumion.board_testbench import Bench, Host, done_of

BASE = [100, 200, 300, 400]
ZEROS = [0] * 4
SLOW = SweepImage(tuple(SweepPoint([(0, 1000 * number)]) for number in range(1, 51)), dwell_us=100_000)


def running(**common: int) -> tuple[Bench, Host]:
    """Return a board at generation 6 that has run SLOW from BASE for half a second."""
    bench = Bench()
    host = Host(bench).ready(**common)
    host.drive(5, BASE)
    host.load(SLOW)
    host.started(6)
    bench.sleep(0.45)
    assert bench.board.driven_codes.tolist() == [5000, *BASE[1:]]
    return bench, host


def done_after(host: Host, wait_s: float = 0.1) -> SweepDoneEvent:
    return done_of([*host.heard(), *host.listen(wait_s)])


# -- SWEEP_ABORT ------------------------------------------------------------------------------------------------------


def test_an_abort_drives_the_base_table_at_the_next_edge() -> None:
    bench, host = running()
    asked_s = bench.clock.now()
    reply = host.ask(SweepAbortRequest(6))
    assert isinstance(reply, SweepAbortReply)
    assert (reply.generation, reply.records, reply.reason) == (6, 5, EndReason.ABORTED)
    assert reply.outputs_state is OutputsState.READY
    assert bench.drives[-1][0] == pytest.approx(reply.tick * 1e-3)
    assert asked_s + 1e-3 < bench.drives[-1][0] <= asked_s + 2e-3 + 1e-6
    assert bench.board.driven_codes.tolist() == BASE
    done = done_after(host)
    assert (done.reason, done.records, done.tick, done.crc32) == (EndReason.ABORTED, 5, reply.tick, table_crc32(BASE))
    assert host.progress(6).run_state is RunState.ENDED
    assert host.drive(7, ZEROS).latched


def test_an_abort_again_changes_nothing_and_one_of_another_run_is_stale() -> None:
    bench, host = running()
    assert host.ask(SweepAbortRequest(5)) == Refusal(Status.STALE, value=6)
    first = host.ask(SweepAbortRequest(6))
    bench.sleep(0.5)
    driven = len(bench.drives)
    assert host.ask(SweepAbortRequest(6)) == first
    assert len(bench.drives) == driven
    assert Host(Bench()).ready().ask(SweepAbortRequest(1)) == Refusal(Status.STALE, value=0)


def test_no_point_is_latched_between_an_abort_and_its_edge() -> None:
    bench = Bench()
    host = Host(bench).ready()
    host.drive(5, BASE)
    host.load(SweepImage(tuple(SweepPoint([(0, number)]) for number in range(1, 101))))  # a point per tick
    host.started(6)
    host.ask(SweepAbortRequest(6))
    instants = [instant for instant, _ in bench.drives]
    assert len(set(instants)) == len(instants), "never two tables at one edge"
    assert bench.board.driven_codes.tolist() == BASE


def test_an_abort_of_a_finished_run_tells_how_it_ended() -> None:
    bench = Bench()
    host = Host(bench).ready()
    host.load(SweepImage((SweepPoint(),)))
    host.started(1)
    bench.sleep(0.1)
    assert host.ask(SweepAbortRequest(1)).reason is EndReason.COMPLETE


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reason"),
    [(FaultSource.HW_ADC, EndReason.FAULT), (24, EndReason.FAULT), (FaultSource.ESTOP, EndReason.ESTOP)],
)
def test_a_fault_ends_the_run_with_zeros_at_once(source: int, reason: EndReason) -> None:
    bench, host = running()
    at_s = bench.clock.now()
    bench.board.trip(source)
    assert bench.drives[-1] == (at_s, [0.0] * 4)
    done = done_after(host)
    assert (done.reason, done.outputs_state, done.crc32) == (reason, OutputsState.SAFE, table_crc32(ZEROS))
    bench.sleep(1.0)
    assert bench.board.driven_codes.tolist() == ZEROS, "no further point"
    assert host.progress(6).reason is reason
    host.ask(FaultClearRequest(1))
    assert bench.board.state is OutputsState.READY
    assert bench.board.driven_codes.tolist() == ZEROS


def test_the_constant_estop_frame_ends_a_run_without_a_session() -> None:
    bench, host = running()
    button = Host(bench)
    assert button.raw(ESTOP_WIRE) is not None
    assert done_after(host).reason is EndReason.ESTOP
    assert bench.board.driven_codes.tolist() == ZEROS


def test_the_fault_is_told_before_the_end_of_the_sweep() -> None:
    bench, host = running()
    bench.board.trip(5)
    assert [frame.command for frame in host.collect(0.1)] == [0x83, 0x82]


# -- watchdog ---------------------------------------------------------------------------------------------------------


def test_watchdog_off_ends_the_run_with_zeros() -> None:
    bench, host = running(wd_timeout_ms=1000)
    bench.sleep(2.0)
    assert bench.board.state is OutputsState.SAFE
    trip = host.ask(FaultListRequest()).records[0]
    done = done_after(host)
    assert (done.reason, done.outputs_state, done.tick) == (EndReason.WATCHDOG, OutputsState.SAFE, trip.tick)
    assert done.crc32 == table_crc32(ZEROS)
    assert bench.drives[-1][0] == pytest.approx(trip.tick * 1e-3)
    assert bench.drives[-1][1] == [0.0] * 4


def test_watchdog_hold_holds_the_base_table() -> None:
    bench, host = running(wd_timeout_ms=1000, wd_policy=2, wd_param_ms=60_000)
    bench.sleep(2.0)
    done = done_after(host)
    assert bench.board.driven_codes.tolist() == BASE
    assert (done.reason, done.outputs_state, done.crc32) == (
        EndReason.WATCHDOG, OutputsState.GRACE, table_crc32(BASE)
    )  # fmt: skip
    host.ask(FaultClearRequest(1))
    assert (bench.board.state, bench.board.driven_codes.tolist()) == (OutputsState.READY, BASE)
    bench.sleep(0.5)
    assert bench.board.driven_codes.tolist() == BASE, "the run is over"


def test_watchdog_ramp_ramps_the_base_table_down() -> None:
    bench, host = running(wd_timeout_ms=1000, wd_policy=1, wd_param_ms=100)
    bench.sleep(2.0)
    done = done_after(host)
    assert (done.reason, done.crc32) == (EndReason.WATCHDOG, table_crc32(BASE))
    ramped = [output for instant, output in bench.drives if instant >= done.tick * 1e-3 - 1e-9]
    codes = [[code * (100 - step) // 100 for code in BASE] for step in range(101)]
    assert [[round(value / 10 * 65535) for value in output] for output in ramped] == codes
    assert bench.board.state is OutputsState.SAFE


def test_a_run_that_drives_only_zeros_needs_food_too() -> None:
    bench = Bench()
    host = Host(bench).ready(wd_timeout_ms=500)
    host.load(SweepImage((SweepPoint(),) * 100, dwell_us=100_000))
    host.started(1)
    bench.sleep(2.0)
    assert host.counter(StatsCounter.WD_TRIPS) == 1
    assert done_after(host).reason is EndReason.WATCHDOG


def test_a_fed_run_goes_on() -> None:
    bench, host = running(wd_timeout_ms=600)
    for _ in range(20):
        host.ask(PingRequest(1))
        bench.sleep(0.55)
    host.ask(PingRequest(1))
    assert done_after(host, 0.01).reason is EndReason.COMPLETE


# -- a new session ----------------------------------------------------------------------------------------------------


def test_a_takeover_ends_the_run_and_the_old_host_is_told() -> None:
    bench, host = running()
    second = Host(bench, session=0x1111)
    reply = second.hello(flags=HelloFlag.TAKEOVER)
    assert isinstance(reply, HelloReply)
    assert (reply.outputs_state, reply.active_generation) == (OutputsState.READY, 6)
    assert bench.board.driven_codes.tolist() == BASE
    frames = host.collect(0.1)
    assert {frame.session for frame in frames} == {host.session}
    done = SweepDoneEvent.decode(frames[-1].payload)
    assert (done.reason, done.crc32) == (EndReason.HOST_CHANGED, table_crc32(BASE))
    assert bench.drives[-1][0] == pytest.approx(done.tick * 1e-3)


def test_the_new_host_can_ask_how_the_run_ended_but_its_records_are_gone() -> None:
    bench, _ = running()
    second = Host(bench, session=0x1111)
    second.hello(flags=HelloFlag.TAKEOVER)
    progress = second.progress(6)
    assert (progress.run_state, progress.reason) == (RunState.ENDED, EndReason.HOST_CHANGED)
    assert (progress.produced, progress.oldest) == (5, 5)
    assert second.ask(SweepReadRequest(6, 0, 1)) == Refusal(Status.OVERFLOW, value=5)
    assert second.collect(0.5) == [], "the events of the old session are not its own"


def test_a_hello_of_the_same_host_ends_the_run_too() -> None:
    bench, host = running()
    host.open()
    assert bench.board.driven_codes.tolist() == BASE
    assert host.progress(6).reason is EndReason.HOST_CHANGED
    assert [frame for frame in host.collect(0.2) if frame.command == 0x82] == [], "numbers have started anew"


def test_a_refused_hello_does_not_touch_the_run() -> None:
    bench, _ = running()
    assert Host(bench, session=0x1111).hello().status == Status.BUSY
    assert bench.board.state is OutputsState.SWEEP


def test_a_fault_between_a_takeover_and_its_edge_is_the_reason() -> None:
    bench, host = running()
    second = Host(bench, session=0x1111)
    bench.until(round(bench.clock.now(), 3) + 0.0001)
    hello = HelloRequest(hello_flags=HelloFlag.TAKEOVER)
    second.link.write(encode_frame(second.frame(hello, seq=0)), 0.0)
    bench.sleep(0.0012)
    bench.board.trip(5)
    assert second.reply() is not None
    assert second.progress(6).reason is EndReason.FAULT
    assert bench.board.driven_codes.tolist() == ZEROS
    assert host.collect(0.1)


# -- reset and power --------------------------------------------------------------------------------------------------


def test_a_reset_leaves_nothing_of_a_run() -> None:
    bench, host = running()
    bench.board.reset()
    bench.sleep(1.0)
    assert bench.board.driven_codes.tolist() == ZEROS
    host.open()
    assert host.ask(SweepReadRequest(0)).run_state is RunState.NONE
    assert host.ask(ReadbackRequest(rb_flags=0)).outputs_state is OutputsState.BOOT
    assert host.collect(0.2) == []


def test_a_power_cut_ends_everything() -> None:
    bench, _ = running()
    bench.board.power_off()
    assert bench.drives[-1] == (bench.clock.now(), [0.0] * 4)
    bench.sleep(1.0)
    assert bench.drives[-1][1] == [0.0] * 4
    bench.board.power_on()
    assert bench.board.state is OutputsState.BOOT


def test_a_closed_connection_does_not_end_a_run() -> None:
    bench, host = running(wd_timeout_ms=5000)
    host.link.close()
    bench.sleep(0.5)
    assert bench.board.state is OutputsState.SWEEP
    bench.sleep(5.0)
    assert bench.board.state is OutputsState.SAFE, "the watchdog decides"
