"""SWEEP_START on the emulated board (section 10.3): all checks in order, and no output before the last check."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmware_protocol import (
    CommitRequest,
    CommitWhen,
    FaultClearRequest,
    FaultSource,
    OutputsState,
    PingRequest,
    ReadAdcRequest,
    ReadbackRequest,
    Refusal,
    RunFlag,
    SetReply,
    SetRequest,
    StageReply,
    StageRequest,
    Status,
    SweepAbortRequest,
    SweepImage,
    SweepLoadRequest,
    SweepPoint,
    SweepStartReply,
    SweepStartRequest,
    encode_frame,
    table_crc32,
)
from lumion_hw.emulator.mesh.lumion import BoardProfile
from tests.emulator.mesh.lumion.board_testbench import TINY, Bench, Host, table

BASE = [100, 200, 300, 400]
IMAGE = SweepImage((SweepPoint([(0, 10)]), SweepPoint([(0, 20)])), dwell_us=50_000)


def loaded(image: SweepImage = IMAGE, profile: BoardProfile = TINY, **common: int) -> tuple[Bench, Host]:
    """Return a board that drives BASE at generation 5 and holds the image as sweep 1."""
    bench = Bench(profile)
    host = Host(bench).ready(**common)
    host.drive(5, BASE)
    host.load(image)
    return bench, host


def request(generation: int = 6, sweep_id: int = 1, **fields: int) -> SweepStartRequest:
    return SweepStartRequest(generation, sweep_id, **({"base_crc32": table_crc32(BASE), "credit_limit": 0} | fields))


def test_a_good_start_is_answered_when_the_first_point_is_driven() -> None:
    bench, host = loaded(replace(IMAGE, mask=b"\x05\0"))
    reply = host.ask(request(repeat=3))
    assert isinstance(reply, SweepStartReply)
    assert (reply.generation, reply.records, reply.n_adc, reply.outputs_state) == (6, 6, 2, OutputsState.SWEEP)
    assert bench.drives[-1][0] == pytest.approx(reply.tick * 1e-3)
    assert bench.board.driven_codes.tolist() == [10, 200, 300, 400]
    assert host.ask(ReadbackRequest(rb_flags=0)).generation == 6, "it is the active generation at once"


# -- the checks, one by one -------------------------------------------------------------------------------------------


def test_boot_is_not_configured() -> None:
    host = Host(Bench())
    host.open()
    host.load(IMAGE)
    assert host.ask(request()) == Refusal(Status.NOT_CONFIGURED)


def test_a_running_sweep_is_busy() -> None:
    _, host = loaded()
    host.started(6)
    assert host.ask(request(7)) == Refusal(Status.BUSY)


def test_safe_and_grace_are_safe() -> None:
    bench, host = loaded(wd_policy=2, wd_param_ms=60_000)
    bench.sleep(5.0)
    assert bench.board.state is OutputsState.GRACE
    assert host.ask(request()) == Refusal(Status.SAFE, value=FaultSource.WATCHDOG.mask)
    bench.board.trip(5)
    assert host.ask(request()).status == Status.SAFE


def test_repeat_0_is_a_bad_value_and_so_are_too_many_records() -> None:
    image = SweepImage((SweepPoint(),) * 32769)  # x 65535 passes: 2^31 + 32767 records
    profile = replace(TINY, sweep_mem=1 << 20)
    _, host = loaded(image, profile)
    assert host.ask(request(repeat=0)) == Refusal(Status.BAD_VALUE, channel=16, value=0)
    assert host.ask(request(repeat=65535)) == Refusal(Status.BAD_VALUE, channel=16, value=65535)
    assert isinstance(host.ask(request(repeat=65533)), SweepStartReply)


def test_no_image_and_half_an_image_are_incomplete() -> None:
    host = Host(Bench()).ready()
    assert host.ask(request()) == Refusal(Status.INCOMPLETE, value=0, limit=0)
    data = IMAGE.encode()
    host.ask(SweepLoadRequest(1, len(data), 0, IMAGE.crc32(), data[:7]))
    assert host.ask(request()) == Refusal(Status.INCOMPLETE, value=7, limit=len(data))


def test_another_image_than_the_loaded_one_is_stale() -> None:
    _, host = loaded()
    assert host.ask(request(sweep_id=2)) == Refusal(Status.STALE, value=1)


@pytest.mark.parametrize("generation", [5, 4, 0, (5 + (1 << 31)) % (1 << 32)])
def test_a_generation_that_is_not_newer_is_stale(generation: int) -> None:
    _, host = loaded()
    assert host.ask(request(generation)) == Refusal(Status.STALE, value=5)


def test_generations_wrap() -> None:
    _, host = loaded()
    host.drive((5 + (1 << 30)) % (1 << 32), BASE)
    host.drive(0x8000_0000, BASE)
    host.drive(0xFFFF_FFFE, BASE)
    assert isinstance(host.ask(request(2)), SweepStartReply)


def test_another_base_table_than_the_host_believes_in_is_a_crc_mismatch() -> None:
    _, host = loaded()
    refusal = host.ask(request(base_crc32=0x1234))
    assert (refusal.status, refusal.value_u32, refusal.limit) == (Status.CRC_MISMATCH, table_crc32(BASE), 0x1234)
    assert isinstance(host.ask(request(base_crc32=0x1234, run_flags=RunFlag.NO_BASE_CHECK)), SweepStartReply)


def test_a_point_above_the_limit_of_its_channel_is_named_before_anything_is_driven() -> None:
    image = SweepImage((SweepPoint([(0, 10)]), SweepPoint([(1, 999)]), SweepPoint([(1, 1001), (0, 2000)])))
    bench, host = loaded(image)
    host.configure(limits=[(5000, 1000, 0), (1000, 1000, 0), (5000, 1000, 0), (5000, 1000, 0)])
    driven = len(bench.drives)
    assert host.ask(request()) == Refusal(Status.LIMIT, channel=1, index=2, value=1001, limit=1000, text="code")
    assert len(bench.drives) == driven
    assert bench.board.state is OutputsState.READY
    assert host.ask(ReadbackRequest(count=4)).generation == 5


def test_a_point_above_the_power_cap_is_named() -> None:
    # 10 mA full scale, 1000 Ohm: code 65535 is 100 mW, code 32768 is 5000 uA (10000 x 32768 // 65535) and 25 mW.
    image = SweepImage((SweepPoint(table=[32768, 32768, 0, 0]), SweepPoint([(2, 32768)]), SweepPoint([(3, 32768)])))
    _, host = loaded(image, total_power_mw=80)
    assert host.ask(request()) == Refusal(Status.LIMIT, index=2, value=100, limit=80, text="power")


def test_limits_hold_for_what_a_point_keeps_of_the_base_or_start_table() -> None:
    image = SweepImage((SweepPoint([(0, 1)]),), start_table=np.array([0, 0, 0, 3000]))
    _, host = loaded(image)
    host.configure(limits=[(1000, 1000, 0)] * 4)
    assert host.ask(request()) == Refusal(Status.LIMIT, channel=3, index=0, value=3000, limit=1000, text="code")


def test_the_first_wrong_point_is_named_among_thousands() -> None:
    points = tuple(SweepPoint([(0, code)]) for code in range(1, 2001))
    _, host = loaded(SweepImage(points))
    host.configure(limits=[(1234, 1000, 0)] * 4)
    assert host.ask(request()) == Refusal(Status.LIMIT, channel=0, index=1234, value=1235, limit=1234, text="code")


def test_a_ring_too_small_for_one_record_is_no_memory() -> None:
    _, host = loaded(profile=replace(TINY, sweep_ring=3))
    assert host.ask(request()) == Refusal(Status.NO_MEMORY, value=4, limit=3)


def test_a_record_that_fits_no_frame_is_too_big() -> None:
    profile = BoardProfile(n_dac=4, n_adc=200, mtu=256)
    _, host = loaded(profile=profile)
    # 241 bytes of payload, 28 of them fixed in SWEEP_READ: 106 values
    assert host.ask(request()) == Refusal(Status.TOO_BIG, value=200, limit=106)


# -- their order ------------------------------------------------------------------------------------------------------


def test_of_several_wrongs_the_first_in_the_order_of_the_specification_answers() -> None:
    bench, host = loaded(SweepImage((SweepPoint([(0, 60_000)]),)))
    host.configure(limits=[(1000, 1000, 0)] * 4)
    everything = {"generation": 5, "sweep_id": 2, "base_crc32": 0}
    bench.board.trip(5)
    assert host.ask(request(**everything)).status == Status.SAFE
    host.ask(FaultClearRequest(1))
    assert host.ask(request(**everything)) == Refusal(Status.STALE, value=1), "the image"
    assert host.ask(request(**everything | {"sweep_id": 1})) == Refusal(Status.STALE, value=5), "the generation"
    assert host.ask(request(generation=6, base_crc32=0)).status == Status.CRC_MISMATCH
    assert host.ask(request(base_crc32=table_crc32([0] * 4))).status == Status.LIMIT


# -- repeats and neighbours -------------------------------------------------------------------------------------------


def test_the_same_start_again_is_fine_in_any_state_and_restarts_nothing() -> None:
    bench, host = loaded()
    first = host.ask(request())
    again = host.ask(request(base_crc32=0, repeat=9))
    assert (again.tick, again.records, again.outputs_state) == (first.tick, 2, OutputsState.SWEEP)
    bench.sleep(0.2)
    assert host.ask(request()).outputs_state is OutputsState.READY
    assert host.progress(6).produced == 2
    bench.board.trip(5)
    assert host.ask(request()).outputs_state is OutputsState.SAFE
    assert len([codes for _, codes in bench.drives if codes[0] == pytest.approx(10 * 10 / 65535)]) == 1


def test_the_same_generation_of_another_image_or_after_a_set_is_stale() -> None:
    bench, host = loaded()
    host.ask(request())
    bench.sleep(0.2)
    assert host.ask(request(sweep_id=2)).status == Status.STALE
    host.drive(7, BASE)
    assert host.ask(request(6)) == Refusal(Status.STALE, value=7)


def test_an_armed_commit_is_replaced_by_a_start() -> None:
    bench, host = loaded()
    host.ask(StageRequest(1, 0, 0, table([9, 9, 9, 9])))
    tick = host.ask(PingRequest(1)).tick
    armed = CommitRequest(50, 1, table_crc32([9] * 4), 0, 4, at_tick=tick + 30, when=CommitWhen.AT_TICK)
    assert not host.ask(armed).latched
    assert isinstance(host.ask(request()), SweepStartReply)
    bench.sleep(0.5)
    assert bench.board.driven_codes.tolist() == BASE


def test_a_fault_between_acceptance_and_the_edge_refuses_the_start() -> None:
    bench, host = loaded()
    bench.until(round(bench.clock.now(), 3) + 0.0001)
    host.link.write(encode_frame(host.frame(request())), 0.0)
    bench.sleep(0.0012)  # executed after t_cmd = 1 ms, the edge is 0.9 ms later
    bench.board.trip(5)
    frames = [frame for frame in host.collect(0.1) if frame.kind == 1]
    assert [frame.status for frame in frames] == [Status.SAFE]
    assert bench.board.driven_codes.tolist() == [0] * 4


def test_during_a_run_tables_and_configurations_wait_and_monitors_do_not() -> None:
    _, host = loaded()
    host.started(6)
    assert host.ask(SetRequest(7, table(BASE))) == Refusal(Status.BUSY)
    assert isinstance(host.ask(StageRequest(1, 0, 0, table(BASE))), StageReply)
    assert host.ask(CommitRequest(7, 1, table_crc32(BASE), 0, 4)) == Refusal(Status.BUSY)
    assert host.ask(ReadAdcRequest(0, 4)).generation == 6
    host.ask(SweepAbortRequest(6))
    assert isinstance(host.ask(SetRequest(7, table(BASE))), SetReply)


def test_an_image_runs_as_often_as_it_is_started() -> None:
    bench, host = loaded()
    for generation in (6, 7, 8):
        host.started(generation)
        bench.sleep(0.15)
        assert host.progress(generation).produced == 2
    assert bench.board.driven_codes.tolist() == BASE
