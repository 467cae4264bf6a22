"""Loading of a sweep image into the emulated board (section 10.2): pieces, CRC, structure."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from firmware_protocol import (
    Command,
    Feature,
    PointTiming,
    Refusal,
    Status,
    SweepImage,
    SweepLoadReply,
    SweepLoadRequest,
    SweepPoint,
    SweepStartReply,
    SweepTrigger,
    load_requests,
)
from lumion_hw.emulator.mesh.lumion import BoardProfile
from tests.effort import examples
from tests.emulator.mesh.lumion.board_testbench import TINY, Bench, Host

IMAGE = SweepImage((SweepPoint([(0, 10)]), SweepPoint([(1, 20)]), SweepPoint(table=[1, 2, 3, 4])), settle_us=100)
BYTES = IMAGE.encode()


def loading() -> Host:
    return Host(Bench()).ready()


def piece(
    offset: int, end: int, data: bytes = BYTES, *, sweep_id: int = 7, crc32: int | None = None
) -> SweepLoadRequest:
    return SweepLoadRequest(sweep_id, len(data), offset, zlib.crc32(data) if crc32 is None else crc32, data[offset:end])


def test_the_image_of_the_tests_has_the_bytes_of_the_specification() -> None:
    header = struct.pack("<BBHIIIBBH", 1, 0, 1, 3, 100, 0, 0, 0, 0)
    points = struct.pack("<HHH", 1, 0, 10) + struct.pack("<HHH", 1, 1, 20) + struct.pack("<HHHHH", 32767, 1, 2, 3, 4)
    assert header + points == BYTES


def test_pieces_in_order_are_counted_up_to_the_whole() -> None:
    host = loading()
    assert host.ask(piece(0, 10)) == SweepLoadReply(7, 10)
    assert host.ask(piece(10, 30)) == SweepLoadReply(7, 30)
    assert host.ask(piece(30, 42)) == SweepLoadReply(7, 42)
    assert isinstance(host.start(1, sweep_id=7), SweepStartReply)


def test_a_piece_that_overlaps_or_comes_again_is_fine() -> None:
    host = loading()
    for start, end, received in ((0, 20, 20), (0, 20, 20), (10, 30, 30), (5, 12, 30), (20, 42, 42), (0, 42, 42)):
        assert host.ask(piece(start, end)) == SweepLoadReply(7, received)
    assert isinstance(host.start(1, sweep_id=7), SweepStartReply)


def test_a_hole_is_incomplete_and_says_what_is_there() -> None:
    host = loading()
    assert host.ask(piece(1, 10)) == Refusal(Status.INCOMPLETE, value=0, limit=42)
    host.ask(piece(0, 10))
    assert host.ask(piece(11, 20)) == Refusal(Status.INCOMPLETE, value=10, limit=42)
    assert host.ask(piece(10, 42)) == SweepLoadReply(7, 42)


@pytest.mark.parametrize("change", ["id", "total", "crc"])
def test_another_image_begins_at_offset_0_and_takes_the_place_of_the_old_one(change: str) -> None:
    host = loading()
    host.ask(piece(0, 20))
    data = BYTES + b"\0" if change == "total" else BYTES
    other = {"sweep_id": 8 if change == "id" else 7, "crc32": 1 if change == "crc" else zlib.crc32(BYTES)}
    assert host.ask(piece(20, 30, data, **other)) == Refusal(Status.INCOMPLETE, value=0, limit=len(data))
    assert host.ask(piece(0, 20, data, **other)).received == 20
    assert host.ask(piece(20, 30)) == Refusal(Status.INCOMPLETE, value=0, limit=42), "the old one is gone"


def test_a_wrong_crc_discards_the_image() -> None:
    host = loading()
    host.ask(piece(0, 20, crc32=0x12345678))
    refusal = host.ask(piece(20, 42, crc32=0x12345678))
    assert refusal.status == Status.CRC_MISMATCH
    assert (refusal.value_u32, refusal.limit_u32) == (zlib.crc32(BYTES), 0x12345678)
    assert host.start(1, sweep_id=7).status == Status.INCOMPLETE
    assert host.ask(piece(20, 42, crc32=0x12345678)) == Refusal(Status.INCOMPLETE, value=0, limit=42)


def test_a_changed_overlap_of_a_complete_image_does_not_slip_through() -> None:
    host = loading()
    host.ask(piece(0, 42))
    forged = replace(piece(24, 26), data=b"\xff\xff")
    assert host.ask(forged).status == Status.CRC_MISMATCH
    assert host.start(1, sweep_id=7).status == Status.INCOMPLETE


def test_an_image_larger_than_the_memory_is_refused_at_once() -> None:
    host = loading()
    assert host.ask(SweepLoadRequest(7, 65537, 0, 1, b"x")) == Refusal(Status.NO_MEMORY, value=65537, limit=65536)
    assert host.ask(SweepLoadRequest(7, 65536, 0, 1, b"x")) == SweepLoadReply(7, 1)


@pytest.mark.parametrize(
    ("request_", "offset", "value"),
    [
        (SweepLoadRequest(0, 10, 0, 1, b"x"), 0, 0),
        (SweepLoadRequest(1, 0, 0, 1, b"x"), 4, 0),
        (SweepLoadRequest(1, 10, 10, 1, b"x"), 8, 10),
        (SweepLoadRequest(1, 10, 0, 1, b""), 16, 0),
        (SweepLoadRequest(1, 10, 5, 1, b"123456"), 16, 6),
    ],
)
def test_fields_out_of_range_are_named_by_their_offset(request_: SweepLoadRequest, offset: int, value: int) -> None:
    assert loading().ask(request_) == Refusal(Status.BAD_VALUE, channel=offset, value=value)


def _patched(offset: int, data: bytes) -> bytes:
    return BYTES[:offset] + data + BYTES[offset + len(data) :]


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (_patched(0, b"\2"), Refusal(Status.BAD_VALUE, value=0)),  # version
        (_patched(2, b"\0\0"), Refusal(Status.BAD_VALUE, value=2)),  # n_avg
        (_patched(4, bytes(4)), Refusal(Status.BAD_VALUE, value=4)),  # no points
        (_patched(16, b"\2"), Refusal(Status.BAD_VALUE, value=16)),  # end_action
        (_patched(17, b"\2"), Refusal(Status.BAD_VALUE, value=17)),  # trigger
        (_patched(18, b"\1\0"), Refusal(Status.BAD_VALUE, value=18)),  # odd mask_len
        (_patched(4, b"\4"), Refusal(Status.BAD_VALUE, index=3, value=42)),  # there is no fourth point
        (BYTES + b"\0", Refusal(Status.BAD_VALUE, value=42)),  # bytes after the last point
        (BYTES[:-1], Refusal(Status.BAD_VALUE, index=2, value=34)),  # a table cut short
        (_patched(22, b"\4\0"), Refusal(Status.BAD_CHANNEL, channel=4, index=0, limit=4)),
        (_patched(18, b"\2\0\x10\0"), Refusal(Status.BAD_CHANNEL, channel=4, limit=4)),  # monitor 4 of 4
        (BYTES[:10], Refusal(Status.BAD_VALUE, value=0)),  # half a header
    ],
)
def test_a_wrong_structure_is_named_by_its_image_offset_and_discarded(data: bytes, refusal: Refusal) -> None:
    host = loading()
    assert host.ask(piece(0, len(data), data)) == refusal
    assert host.start(1, sweep_id=7).status == Status.INCOMPLETE


def test_an_image_for_the_external_trigger_needs_the_feature() -> None:
    host = Host(Bench(replace(TINY, features=1 << Feature.SWEEP))).ready()
    data = replace(IMAGE, trigger=SweepTrigger.EXTERNAL).encode()
    assert host.ask(piece(0, len(data), data)) == Refusal(Status.NOT_SUPPORTED, value=3)


def test_an_image_may_be_loaded_in_every_state_but_during_a_run() -> None:
    bench = Bench()
    host = Host(bench)
    host.open()
    assert isinstance(host.ask(piece(0, 42)), SweepLoadReply), "BOOT"
    host.configure()
    host.load(SweepImage((SweepPoint(timing=PointTiming(0, 1_000_000)),)), 9)
    host.started(1, sweep_id=9)
    assert host.ask(piece(0, 42)) == Refusal(Status.BUSY)
    bench.board.trip(5)
    assert isinstance(host.ask(piece(0, 42)), SweepLoadReply), "SAFE"


def test_the_image_outlives_a_session_but_not_a_reset() -> None:
    bench = Bench()
    host = Host(bench).ready()
    host.ask(piece(0, 42))
    host.open()
    assert isinstance(host.start(1, sweep_id=7), SweepStartReply)
    bench.board.reset()
    host.ready()
    assert host.start(1, sweep_id=7) == Refusal(Status.INCOMPLETE, value=0, limit=0)


def test_256_points_of_one_change_take_the_bytes_the_specification_says() -> None:
    # Section 10: 256 one-change points are 1699 bytes on the wire at MTU 512, in four frames (476 bytes of image each).
    image = SweepImage(tuple(SweepPoint([(0, code)]) for code in range(256)))
    assert len(image.encode()) == 20 + 256 * 6
    host = Host(Bench(BoardProfile(mtu=512))).ready()
    pieces = list(load_requests(1, image.encode(), 512))
    assert [len(item.data) for item in pieces] == [476, 476, 476, 128]
    for item in pieces:
        assert item.command is Command.SWEEP_LOAD
        assert isinstance(host.ask(item), SweepLoadReply)
    assert host.started(1).records == 256


@examples(30)
@given(data=st.binary(min_size=1, max_size=120), patch=st.integers(0, 41), value=st.integers(0, 255))
def test_any_bytes_are_an_image_or_a_refusal(data: bytes, patch: int, value: int) -> None:
    host = loading()
    for content in (data, _patched(patch, bytes([value]))):
        reply = host.ask(piece(0, len(content), content))
        assert isinstance(reply, SweepLoadReply | Refusal)
        started = host.start(host.bench.board.core.generation + 1, sweep_id=7)
        assert isinstance(reply, SweepLoadReply) == (not isinstance(started, Refusal) or started.status == Status.LIMIT)
        host.bench.board.reset()
        host.ready()
