"""Sessions, sequence numbers, repeats and two hosts (section 4), and the board's identity (section 6)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmware_protocol import (
    Command,
    CommitReply,
    Frame,
    GetStatsReply,
    GetStatsRequest,
    HeaderFlag,
    HelloFlag,
    HelloReply,
    HelloRequest,
    Kind,
    OutputsState,
    PingReply,
    PingRequest,
    ReadbackRequest,
    Refusal,
    SetReply,
    SetRequest,
    StageReply,
    StageRequest,
    StatsCounter,
    Status,
    encode_frame,
    schema_crc32,
)
from lumion_hw.emulator.mesh.lumion import BoardProfile, preset
from lumion_hw.errors import ConnectError
from tests.emulator.mesh.lumion.board_testbench import TINY, Bench, Host, set_retry, table


def request_frame(request: HelloRequest | PingRequest, session: int, seq: int, **fields: int) -> bytes:
    return encode_frame(Frame(Kind.REQ, request.command, seq, session, payload=request.encode(), **fields))


def test_hello_tells_what_the_board_is() -> None:
    profile = replace(TINY, dac_bits=14, adc_bits=12, mtu=512, window=4, t_cmd_ms=3, serial="S-1", fw_version="9.9")
    bench = Bench(profile, start_s=500.0)
    bench.sleep(12.0)
    reply = Host(bench).open()
    assert (reply.proto, reply.window, reply.fw_rx_max, reply.fw_tx_max) == (1, 4, 512, 512)
    assert (reply.n_dac, reply.n_adc, reply.dac_bits, reply.adc_bits, reply.n_banks) == (4, 4, 14, 12, 2)
    assert (reply.n_streams, reply.sweep_mem, reply.sweep_ring) == (4, 65536, 65536)
    assert reply.outputs_state is OutputsState.BOOT
    assert (reply.serial, reply.fw_version, reply.features) == ("S-1", "9.9", profile.features)
    assert reply.schema_crc32 == schema_crc32()
    assert reply.uptime_ms == 12_003
    assert (reply.faults, reply.active_generation, reply.config_crc32) == (0, 0, 0)


def test_the_board_sends_no_frame_longer_than_the_host_takes() -> None:
    host = Host(Bench(BoardProfile(n_dac=144, n_adc=28)))
    assert host.hello(rx_max=300).fw_tx_max == 300
    # 300 bytes on the wire: 296 of content, 284 of payload, 264 of codes
    assert host.ask(ReadbackRequest(count=144)) == Refusal(Status.TOO_BIG, value=144, limit=132)
    assert len(host.ask(ReadbackRequest(count=132)).codes) == 132
    assert host.last is not None
    assert len(encode_frame(host.last)) <= 300


@pytest.mark.parametrize(
    ("request_", "offset", "value"),
    [
        (HelloRequest(proto_min=0), 0, 0),
        (HelloRequest(proto_max=16), 1, 16),
        (HelloRequest(host_rx_max=255), 4, 255),
    ],
)
def test_hello_fields_out_of_range_open_no_session(request_: HelloRequest, offset: int, value: int) -> None:
    host = Host(Bench())
    assert host.ask(request_) == Refusal(Status.BAD_VALUE, channel=offset, value=value)
    assert host.ask(PingRequest(7), session=0).session == 0


def test_a_host_that_is_too_new_and_session_0_are_refused() -> None:
    host = Host(Bench())
    assert host.ask(HelloRequest(proto_min=2, proto_max=3)) == Refusal(Status.TOO_NEW, value=2, limit=1)
    assert host.ask(HelloRequest(), session=0).status == Status.BAD_VALUE
    assert host.ask(PingRequest(7), session=0).session == 0


def test_a_newer_host_that_also_speaks_version_1_is_welcome() -> None:
    reply = Host(Bench()).ask(HelloRequest(proto_min=1, proto_max=15))
    assert isinstance(reply, HelloReply)
    assert reply.proto == 1


def test_ping_in_the_session_and_as_a_probe() -> None:
    bench = Bench()
    host = Host(bench)
    probe = host.ask(PingRequest(0xDEADBEEF), session=0)
    assert isinstance(probe, PingReply)
    assert (probe.token, probe.tick, probe.session) == (0xDEADBEEF, 1, 0)
    host.open()
    assert host.ask(PingRequest(5)).session == 0x2F71
    assert host.ask(PingRequest(5), session=0).session == 0x2F71


def test_a_foreign_session_is_told_who_holds_the_board() -> None:
    bench = Bench()
    host, stranger = Host(bench), Host(bench, session=0x1111)
    assert stranger.ask(GetStatsRequest()) == Refusal(Status.SESSION, value=0), "0: the board restarted"
    host.open()
    assert stranger.ask(GetStatsRequest()) == Refusal(Status.SESSION, value=0x2F71)
    assert host.counter(StatsCounter.BAD_SESSION) == 2


def test_a_second_host_is_refused_while_the_first_one_lives() -> None:
    bench = Bench()
    first, second = Host(bench), Host(bench, session=0x1111)
    first.open()
    bench.sleep(0.499)
    refusal = second.hello()
    assert refusal == Refusal(Status.BUSY, value=1500, text="bench-a")
    assert first.ask(PingRequest(1)).session == 0x2F71
    bench.sleep(2.0)
    assert isinstance(second.hello(), HelloReply), "2 s after the last feed nobody holds the board"


def test_a_takeover_displaces_the_first_host_which_learns_of_it() -> None:
    bench = Bench()
    first = Host(bench).ready()
    first.drive(5, [1, 2, 3, 4])
    first.ask(StageRequest(1, 0, 0, table([1])))
    second = Host(bench, session=0x1111)
    reply = second.hello(flags=HelloFlag.TAKEOVER)
    assert (reply.active_generation, reply.outputs_state) == (5, OutputsState.READY)
    assert reply.config_crc32 != 0
    assert first.ask(PingRequest(1)) == Refusal(Status.SESSION, value=0x1111)
    assert bench.board.driven_codes.tolist() == [1, 2, 3, 4], "outputs are kept"
    assert second.ask(ReadbackRequest(bank=0, rb_flags=0)).generation == 0, "banks are not"


def test_a_repeated_hello_is_harmless_until_something_else_was_executed() -> None:
    host = Host(Bench())
    host.open()
    host.ask(StageRequest(3, 0, 0, table([1])))
    host.open()  # same session and number, but with a request in between: a new session with empty banks
    assert host.ask(StageRequest(1, 0, 0, table([1]))) == StageReply(1, 1)
    host.seq = 50
    host.open()
    host.open()
    assert host.hello(seq=50).proto == 1


def test_a_repeat_gets_the_stored_reply_and_acts_once() -> None:
    bench = Bench()
    host = Host(bench).ready()
    frame = host.frame(SetRequest(1, table([1, 2, 3, 4])))
    first = host.raw(encode_frame(frame))
    bench.sleep(0.1)
    again = host.raw(set_retry(frame))
    assert first is not None
    assert again is not None
    assert (again.status, again.payload) == (first.status, first.payload)
    assert (first.flags & HeaderFlag.RETRY, again.flags & HeaderFlag.RETRY) == (0, HeaderFlag.RETRY)
    assert len(bench.drives) == 1
    assert host.counter(StatsCounter.REPLAYED) == 1


def test_a_stored_reply_carries_the_present_fault_flag() -> None:
    bench = Bench()
    host = Host(bench).ready()
    frame = host.frame(SetRequest(1, table([1, 2, 3, 4])))
    first = host.raw(encode_frame(frame))
    bench.board.trip(5)
    again = host.raw(set_retry(frame))
    assert first is not None
    assert again is not None
    assert not first.flags & HeaderFlag.FAULT_PENDING
    assert again.flags & HeaderFlag.FAULT_PENDING


def test_a_refusal_is_a_final_answer_for_its_number() -> None:
    host = Host(Bench())
    host.open()
    frame = host.frame(SetRequest(1, table([1, 2, 3, 4])))
    first = host.raw(encode_frame(frame))
    host.configure()
    again = host.raw(set_retry(frame))
    assert first is not None
    assert again is not None
    assert first.status == again.status == Status.NOT_CONFIGURED


def test_a_repeated_read_is_executed_again() -> None:
    bench = Bench()
    host = Host(bench)
    host.open()
    frame = host.frame(PingRequest(1))
    first = host.raw(encode_frame(frame))
    bench.sleep(1.0)
    again = host.raw(set_retry(frame))
    assert first is not None
    assert again is not None
    assert PingReply.decode(again.payload).tick - PingReply.decode(first.payload).tick == 1001
    assert not again.flags & HeaderFlag.RETRY


def test_numbers_outside_the_window_are_stale_and_late_ones_inside_are_executed() -> None:
    host = Host(Bench(replace(TINY, window=4)))
    host.open()
    for seq in (1, 2, 5):
        assert isinstance(host.ask(PingRequest(seq), seq=seq), PingReply)
    for seq in (3, 4):
        assert isinstance(host.ask(StageRequest(1, 0, 0, table([1])), seq=seq), StageReply)
    assert host.ask(PingRequest(1), seq=1) == Refusal(Status.STALE, value=5)
    assert host.ask(PingRequest(1), seq=5 - 32768 + 65536) == Refusal(Status.STALE, value=5)
    host.seq = 5
    stats = host.ask(GetStatsRequest())
    assert (stats.counter(StatsCounter.SEQ_GAPS), stats.counter(StatsCounter.STALE)) == (2, 2)


@pytest.mark.parametrize("window", [1, 2, 4, 8, 16])
def test_the_sequence_number_wraps(window: int) -> None:
    bench = Bench(replace(TINY, window=window))
    host = Host(bench)
    host.seq = 65500
    host.open()
    host.configure()
    for generation in range(1, 80):
        host.drive(generation, [generation] * 4)
    assert host.seq < 100
    assert len(bench.drives) == 79


def test_no_reply_is_honoured_where_it_is_allowed_and_nowhere_else() -> None:
    bench = Bench()
    host = Host(bench).ready()
    quiet = host.frame(StageRequest(1, 0, 0, table([1, 2, 3, 4])), flags=HeaderFlag.NO_REPLY)
    assert host.raw(encode_frame(quiet), 0.1) is None
    assert host.raw(set_retry(quiet), 0.1) is None, "a repeat is dropped silently"
    wrong = host.frame(StageRequest(1, 9, 0, table([1])), flags=HeaderFlag.NO_REPLY)
    assert host.raw(encode_frame(wrong), 0.1) is None
    assert host.ask(ReadbackRequest(bank=0, rb_flags=0)).staged == 4
    assert isinstance(host.ask(SetRequest(1, table([1] * 4)), flags=HeaderFlag.NO_REPLY), SetReply)
    assert host.counter(StatsCounter.NO_REPLY_ERRORS) == 1


def test_more_is_reserved_and_unknown_commands_are_named() -> None:
    host = Host(Bench())
    host.open()
    assert host.ask(PingRequest(1), flags=HeaderFlag.MORE).status == Status.NOT_SUPPORTED
    for command in (0x04, 0x70, 0xC5):
        host.seq += 1
        answer = host.raw(encode_frame(Frame(Kind.REQ, command, host.seq, host.session)))
        assert answer is not None
        assert Refusal.decode(answer.status, answer.payload) == Refusal(Status.UNKNOWN_COMMAND, value=command)
    assert host.counter(StatsCounter.UNKNOWN_COMMAND) == 3


@pytest.mark.parametrize("command", [command for command in Command if command.min_request])
def test_a_payload_shorter_than_its_minimum_is_a_bad_length(command: Command) -> None:
    host = Host(Bench())
    host.open()
    host.seq += 1
    payload = bytes(command.min_request - 1)
    answer = host.raw(encode_frame(Frame(Kind.REQ, command, host.seq, host.session, payload=payload)))
    assert answer is not None
    refusal = Refusal.decode(answer.status, answer.payload)
    assert refusal == Refusal(Status.BAD_LENGTH, value=len(payload), limit=command.min_request)


def test_a_payload_shorter_than_its_own_count_is_a_bad_length() -> None:
    host = Host(Bench())
    host.open()
    host.seq += 1
    payload = StageRequest(1, 0, 0, table([1, 2])).encode()[:-1]
    answer = host.raw(encode_frame(Frame(Kind.REQ, Command.STAGE, host.seq, host.session, payload=payload)))
    assert answer is not None
    assert Refusal.decode(answer.status, answer.payload) == Refusal(Status.BAD_LENGTH, value=13, limit=14)


def test_a_longer_tail_is_ignored() -> None:
    host = Host(Bench())
    host.open()
    host.seq += 1
    payload = PingRequest(9).encode() + b"future"
    answer = host.raw(encode_frame(Frame(Kind.REQ, Command.PING, host.seq, host.session, payload=payload)))
    assert answer is not None
    assert PingReply.decode(answer.payload).token == 9


def test_a_board_without_sweeps_and_streams_says_so() -> None:
    host = Host(Bench(replace(TINY, features=0, n_streams=0)))
    reply = host.open()
    assert (reply.n_streams, reply.sweep_mem, reply.sweep_ring) == (0, 0, 0)
    for command in (
        Command.SWEEP_LOAD,
        Command.SWEEP_START,
        Command.SWEEP_READ,
        Command.SWEEP_ACK,
        Command.SWEEP_ABORT,
    ):
        host.seq += 1
        frame = Frame(Kind.REQ, command, host.seq, host.session, payload=bytes(command.min_request))
        answer = host.raw(encode_frame(frame))
        assert answer is not None
        assert Refusal.decode(answer.status, answer.payload) == Refusal(Status.NOT_SUPPORTED, value=2)
    host.seq += 1
    subscribe = Frame(Kind.REQ, Command.SUBSCRIBE, host.seq, host.session, payload=b"\x02\0\x01" + bytes(13))
    answer = host.raw(encode_frame(subscribe))
    assert answer is not None
    refusal = Refusal.decode(answer.status, answer.payload)
    assert refusal == Refusal(Status.BAD_VALUE, channel=0, value=2), "n_streams is 0: there is no stream 2"


def test_stats_count_frames_and_bytes_and_what_was_wrong() -> None:
    host = Host(Bench())
    host.open()
    stats = host.ask(GetStatsRequest())
    assert isinstance(stats, GetStatsReply)
    assert len(stats.counters) == 24
    assert stats.counter(StatsCounter.RX_FRAMES) == 2
    assert stats.counter(StatsCounter.RX_BYTES) == 39 + 15
    assert (stats.counter(StatsCounter.TX_FRAMES), stats.counter(StatsCounter.TX_BYTES)) == (1, 119)
    host.ask(SetRequest(1, table([1])))
    host.link.write(b"\x00\x05\x01\x00" + b"\x00\x02\x01\x00" + b"\x00" + b"\x0d" + b"\x01" * 12 + b"\x00", 0.0)
    host.link.write(b"\x01" * 5000 + b"\x00", 0.0)
    echo = Frame(Kind.RSP, Command.PING, 1, host.session, payload=bytes(16))
    future = Frame(Kind.REQ, Command.PING, 1, host.session, version=2, payload=bytes(4))
    host.link.write(encode_frame(echo) + encode_frame(future), 0.0)
    after = host.ask(GetStatsRequest())
    wrong = (
        StatsCounter.BAD_COBS,
        StatsCounter.BAD_SHORT,
        StatsCounter.BAD_CRC,
        StatsCounter.BAD_OVERSIZE,
        StatsCounter.BAD_KIND,
        StatsCounter.BAD_VERSION,
        StatsCounter.REFUSED,
    )
    assert [after.counter(counter) for counter in wrong] == [1] * 7


def test_requests_of_a_burst_are_executed_in_order_and_each_is_answered() -> None:
    bench = Bench()
    host = Host(bench).ready()
    burst = b"".join(
        encode_frame(host.frame(request))
        for request in (StageRequest(1, 0, 0, table([1, 2])), StageRequest(1, 0, 2, table([3, 4])), PingRequest(3))
    )
    host.link.write(burst, 0.0)
    replies = host.collect(0.1)
    assert [frame.command for frame in replies] == [Command.STAGE, Command.STAGE, Command.PING]
    assert StageReply.decode(replies[1].payload).staged == 4


def test_a_request_behind_a_set_waits_for_the_latch() -> None:
    bench = Bench()
    host = Host(bench).ready()
    set_frame = host.frame(SetRequest(1, table([1, 2, 3, 4])))
    read_frame = host.frame(ReadbackRequest(count=4))
    bench.sleep(0.00042)
    host.link.write(encode_frame(set_frame) + encode_frame(read_frame), 0.0)
    replies = host.collect(0.1)
    assert [frame.command for frame in replies] == [Command.SET, Command.READBACK]
    assert replies[1].payload[8:12] == CommitReply.decode(replies[0].payload).tick.to_bytes(4, "little")


def test_a_reply_goes_to_the_connection_of_its_request() -> None:
    bench = Bench()
    host = Host(bench)
    host.open()
    other = Host(bench)  # the same session over a second connection
    assert isinstance(other.ask(PingRequest(1), seq=100), PingReply)
    assert host.collect(0.1) == []


def test_a_closed_connection_is_not_an_event() -> None:
    bench = Bench()
    host = Host(bench).ready()
    host.drive(1, [9] * 4)
    host.link.write(encode_frame(host.frame(SetRequest(2, table([8] * 4)))), 0.0)
    host.link.close()
    bench.sleep(1.0)
    assert bench.board.driven_codes.tolist() == [8] * 4, "the watchdog decides, not the connection"


def test_times_of_a_uart_are_those_of_its_bytes() -> None:
    bench = Bench(preset("mesh144", "uart:115200"))
    host = Host(bench)
    host.open()
    assert bench.clock.now() == pytest.approx((39 + 119) * 10 / 115_200 + 1e-3, abs=1e-4)
    host.configure()
    start = bench.clock.now()
    codes = (455 * np.arange(144)).astype(np.uint16)
    reply = host.ask(SetRequest(0x01010101, codes))
    assert isinstance(reply, SetReply)
    spent = bench.clock.now() - start
    # 29.8 ms of bytes (section 14), 1 ms t_cmd, up to one tick to the edge
    assert 29.8e-3 + 1e-3 - 2e-4 <= spent <= 29.8e-3 + 2e-3 + 2e-4


def test_a_board_without_power_refuses_connections() -> None:
    bench = Bench()
    bench.board.power_off()
    with pytest.raises(ConnectError, match="board"):
        Host(bench)


@pytest.mark.parametrize(
    "fields",
    [
        {"window": 3},
        {"n_dac": 0},
        {"mtu": 128},
        {"features": 1 << 32},
        {"n_streams": 15},
        {"pacing": "uart"},
        {"dac_bits": 17},
        {"serial": "S" * 17},
        {"tick_us": 0},
    ],
)
def test_a_profile_the_protocol_cannot_say_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        replace(TINY, **fields)  # type: ignore[arg-type]
