"""No input of a host stops the board, and the board understands the next good frame (section 13)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from firmware_protocol import (
    Command,
    CommitRequest,
    Frame,
    HeaderFlag,
    Kind,
    OutputsState,
    PingReply,
    PingRequest,
    SetRequest,
    StageReply,
    StageRequest,
    encode_frame,
    table_crc32,
)
from tests.effort import examples
from tests.emulator.mesh.lumion.board_testbench import Bench, Host, table

SESSION = 0x2F71


def ping_works(host: Host) -> None:
    host.link.write(b"\x00", 0.0)  # ends an incomplete frame
    host.collect(0.3)
    answer = host.raw(encode_frame(Frame(Kind.REQ, Command.PING, 0, 0, payload=PingRequest(0xC0FFEE).encode())))
    assert answer is not None
    assert PingReply.decode(answer.payload).token == 0xC0FFEE


@examples(100)
@given(pieces=st.lists(st.binary(max_size=300), max_size=8))
def test_any_bytes_leave_the_board_alive_and_its_outputs_alone(pieces: list[bytes]) -> None:
    bench = Bench()
    host = Host(bench).ready()
    host.drive(1, [1, 2, 3, 4])
    for piece in pieces:
        host.link.write(piece, 0.0)
        bench.sleep(0.001)
    ping_works(host)
    assert bench.board.driven_codes.tolist() == [1, 2, 3, 4]


@examples(150)
@given(
    command=st.one_of(st.sampled_from(list(Command)), st.integers(0, 255)),
    flags=st.integers(0, 255),
    status=st.integers(0, 255),
    seq=st.integers(0, 65535),
    session=st.sampled_from([0, SESSION, 0x1111]),
    payload=st.binary(max_size=80),
    kind=st.integers(0, 3),
    version=st.integers(0, 3),
)
def test_any_good_frame_with_any_content_leaves_the_board_alive(
    command: int, flags: int, status: int, seq: int, session: int, payload: bytes, kind: int, version: int
) -> None:
    host = Host(Bench()).ready()
    frame = Frame(kind, int(command), seq, session, flags, status, version, payload)
    host.link.write(encode_frame(frame), 0.0)
    ping_works(host)


@examples(100)
@given(
    command=st.sampled_from(list(Command)), payload=st.binary(max_size=64), state=st.sampled_from(list(OutputsState))
)
def test_every_command_with_random_fields_is_answered_in_every_state(
    command: Command, payload: bytes, state: OutputsState
) -> None:
    bench = Bench()
    host = Host(bench)
    host.open()
    if state in (OutputsState.READY, OutputsState.GRACE):
        host.ready(wd_policy=2, wd_param_ms=60_000)
        host.drive(1, [1, 2, 3, 4])
    if state is OutputsState.GRACE:
        bench.sleep(3.0)
        host.open()
    if state is OutputsState.SAFE:
        bench.board.trip(5)
    host.seq += 1
    full = payload.ljust(command.min_request, b"\x01")
    answer = host.raw(encode_frame(Frame(Kind.REQ, command, host.seq, SESSION, payload=full)))
    assert answer is not None
    assert (answer.command, answer.seq, answer.session) == (command, host.seq, SESSION)
    assert not answer.flags & HeaderFlag.MORE


@examples(30)
@given(data=st.data())
def test_any_chunking_of_the_bytes_gives_the_same_result(data: st.DataObject) -> None:
    codes = table([10, 20, 30, 40])
    bench = Bench()
    host = Host(bench).ready()
    requests = (
        StageRequest(1, 0, 2, codes[2:]),
        StageRequest(1, 0, 0, codes[:2]),
        CommitRequest(generation=1, bank_generation=1, crc32=table_crc32(codes), bank=0, count=4),
        SetRequest(2, table([4, 3, 2, 1])),
    )
    stream = b"".join(encode_frame(host.frame(request)) for request in requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        host.link.write(stream[start:end], 0.0)
        bench.sleep(data.draw(st.sampled_from([0.0, 0.0003, 0.002])))
    replies = host.collect(0.2)
    assert [frame.status for frame in replies] == [0, 0, 0, 0]
    full_scale_ma = 10.0
    assert [output for _, output in bench.drives] == [
        pytest.approx(np.array(driven) * full_scale_ma / 65535) for driven in ([10, 20, 30, 40], [4, 3, 2, 1])
    ]


@examples(50)
@given(place=st.integers(0, 200), value=st.integers(0, 255))
def test_a_damaged_byte_costs_at_most_the_frames_it_touches_and_never_a_wrong_code(place: int, value: int) -> None:
    bench = Bench()
    host = Host(bench).ready()
    frames = [encode_frame(host.frame(SetRequest(generation, table([generation] * 4)))) for generation in range(1, 6)]
    stream = bytearray(b"".join(frames))
    stream[place % len(stream)] = value
    host.link.write(bytes(stream), 0.0)
    host.collect(0.2)
    driven = [tuple(output) for _, output in bench.drives]
    allowed = [tuple(np.array([generation] * 4) * (10.0 / 65535)) for generation in range(1, 6)]
    assert all(any(np.allclose(output, table_) for table_ in allowed) for output in driven)
    assert len(driven) >= 4


def test_endless_garbage_without_a_delimiter_is_dropped() -> None:
    host = Host(Bench())
    host.open()
    for _ in range(50):
        host.link.write(b"\x55" * 1000, 0.0)
    ping_works(host)
    assert isinstance(host.ask(StageRequest(1, 0, 0, table([1]))), StageReply)
