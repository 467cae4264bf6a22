"""Fault hooks of the emulated board (section 15): temperature, seeded damage, a board that does not read, the queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firmware_protocol import (
    Event,
    FaultClearRequest,
    FaultListRequest,
    FaultSource,
    FaultState,
    Feature,
    Frame,
    OutputsState,
    PingReply,
    PingRequest,
    Refusal,
    SetRequest,
    StatsCounter,
    Status,
    encode_frame,
)
from tests.emulator.mesh.lumion.board_testbench import TINY, Bench, Host, global_block, table

HOT = FaultSource.OVER_TEMPERATURE
CODES = [1000, 2000, 3000, 4000]


def guarded(temp_trip: int | None = 8500, fault_enable: int = HOT.mask) -> tuple[Bench, Host]:
    bench = Bench()
    host = Host(bench)
    host.open()
    host.configure(global_block(temp_trip=temp_trip, fault_enable=fault_enable))
    host.drive(1, CODES)
    return bench, host


# -- temperature ------------------------------------------------------------------------------------------------------


def test_a_chip_that_grows_too_hot_trips_and_cannot_be_cleared_before_it_has_cooled() -> None:
    bench, host = guarded()
    bench.board.set_chip_temperature(85.0)
    assert bench.board.state is OutputsState.READY, "the threshold itself is fine"
    bench.board.set_chip_temperature(85.01)
    assert bench.board.state is OutputsState.SAFE
    assert bench.board.driven_codes.tolist() == [0] * 4
    record = host.ask(FaultListRequest()).records[0]
    assert (record.source, record.fault_state, record.value, record.limit) == (HOT, FaultState.PRESENT, 8501, 8500)
    assert host.ask(FaultClearRequest(1)) == Refusal(Status.INTERLOCK, value=8501, limit=8500)
    bench.board.set_chip_temperature(60.0)
    assert host.ask(FaultListRequest()).latched == HOT.mask, "it stays latched"
    assert not isinstance(host.ask(FaultClearRequest(1)), Refusal)
    assert bench.board.state is OutputsState.READY


@pytest.mark.parametrize(("temp_trip", "enable"), [(None, HOT.mask), (8500, 0)])
def test_without_a_threshold_or_the_source_enabled_heat_does_nothing(temp_trip: int | None, enable: int) -> None:
    bench, _ = guarded(temp_trip, enable)
    bench.board.set_chip_temperature(140.0)
    assert bench.board.driven_codes.tolist() == CODES


def test_a_new_threshold_below_the_present_temperature_trips_when_it_is_applied() -> None:
    bench, host = guarded()
    bench.board.set_chip_temperature(70.0)
    host.configure(global_block(temp_trip=6000, fault_enable=HOT.mask))
    assert bench.board.state is OutputsState.SAFE
    host.configure(global_block(temp_trip=9000, fault_enable=HOT.mask))
    assert not isinstance(host.ask(FaultClearRequest(1)), Refusal), "70 degrees are fine again"


def test_heat_before_a_configuration_trips_with_it() -> None:
    bench = Bench()
    bench.board.set_chip_temperature(120.0)
    host = Host(bench)
    host.open()
    assert bench.board.state is OutputsState.BOOT
    host.configure(global_block(temp_trip=8500, fault_enable=HOT.mask))
    assert bench.board.state is OutputsState.SAFE


def test_a_board_without_the_sensor_does_not_trip() -> None:
    bench = Bench(replace(TINY, features=1 << Feature.SWEEP))
    host = Host(bench).ready()
    bench.board.set_chip_temperature(200.0)
    assert host.ask(PingRequest(1)).outputs_state is OutputsState.READY


# -- damage -----------------------------------------------------------------------------------------------------------


def exchanges(seed: int) -> list[bool]:
    bench = Bench()
    host = Host(bench).ready()
    bench.board.corrupt(0.01, seed)
    return [_answered(host) for _ in range(60)]


def _answered(host: Host) -> bool:
    """Send one request and return whether a good reply came."""
    host.link.write(encode_frame(host.frame(PingRequest(1))), 0.0)
    found = []
    deadline = host.bench.clock.now() + 0.01
    while host.bench.clock.now() < deadline:
        found += host.decoder.feed(host.link.read(deadline))
    return any(isinstance(item, Frame) for item in found)


def test_damage_is_the_same_for_the_same_seed() -> None:
    assert exchanges(1) == exchanges(1) != exchanges(2)
    assert 5 < sum(exchanges(1)) < 60


def test_damage_is_counted_and_never_becomes_a_code() -> None:
    bench = Bench()
    host = Host(bench).ready()
    bench.board.corrupt(0.02, 3)
    for generation in range(1, 200):
        host.link.write(encode_frame(host.frame(SetRequest(generation, table([generation] * 4)))), 0.0)
        bench.sleep(0.003)
        host.link.read(bench.clock.now())
    bench.board.corrupt(0.0)
    host.link.drain(0.05, bench.clock.now() + 1.0)
    host.link.write(b"\0", 0.0)
    host.decoder.feed(b"\0")
    assert all(len({round(value, 6) for value in output}) == 1 for _, output in bench.drives)
    causes = (StatsCounter.BAD_CRC, StatsCounter.BAD_COBS, StatsCounter.BAD_SHORT)
    assert sum(host.counter(cause) for cause in causes) > 50


def test_lost_frames_leave_no_trace() -> None:
    bench = Bench()
    host = Host(bench).ready()
    before = host.counter(StatsCounter.RX_FRAMES)
    bench.board.lose_frames(2)
    assert host.raw(encode_frame(host.frame(PingRequest(1))), 0.1) is None
    assert host.raw(encode_frame(host.frame(PingRequest(1))), 0.1) is None
    assert isinstance(host.ask(PingRequest(1)), PingReply)
    assert host.counter(StatsCounter.RX_FRAMES) == before + 2


def test_a_reset_makes_a_deaf_board_hear_again() -> None:
    bench = Bench()
    host = Host(bench).ready()
    bench.board.stop_reading()
    assert host.raw(encode_frame(host.frame(PingRequest(1))), 0.1) is None
    bench.board.reset()
    host.open()
    assert isinstance(host.ask(PingRequest(1)), PingReply)


# -- FAULT events -----------------------------------------------------------------------------------------------------


def test_of_many_faults_that_cannot_be_sent_the_newest_16_are_kept_and_the_rest_counted() -> None:
    bench = Bench(replace(TINY, pacing="uart:9600"))
    host = Host(bench).ready()
    for channel in range(40):
        bench.board.trip(24, channel=channel)
    frames = [frame for frame in host.collect(2.0) if frame.command == Event.FAULT]
    assert [frame.seq for frame in frames] == list(range(len(frames))), "lost ones took no number"
    assert 16 <= len(frames) <= 17
    assert host.counter(StatsCounter.EVENTS_DROPPED) == 40 - len(frames)
    assert host.counter(StatsCounter.FAULTS) == 40


def test_outputs_follow_a_set_after_all_of_it() -> None:
    bench, host = guarded()
    bench.board.set_chip_temperature(99.0)
    bench.board.set_chip_temperature(20.0)
    host.ask(FaultClearRequest(1))
    assert host.ask(SetRequest(2, table(CODES))).latched
