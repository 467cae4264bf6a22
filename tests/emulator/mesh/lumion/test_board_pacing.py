"""Pacing and back-pressure of the emulated board (section 15), against the rates of section 14."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from firmware_protocol import (
    ESTOP_WIRE,
    Command,
    CommitReply,
    CommitRequest,
    Decoder,
    Event,
    FaultSource,
    Frame,
    PingReply,
    PingRequest,
    ReadbackRequest,
    SetRequest,
    StageRequest,
    StatsCounter,
    encode_frame,
    table_crc32,
    wire_bound,
)
from lumion_hw.emulator.mesh.lumion import PRESETS, BoardProfile, preset
from lumion_hw.emulator.mesh.lumion.wires import (
    BoardToHostLine,
    HostToBoardLine,
    LatencyTimerDelay,
    Pacing,
    TimedBytes,
    UsbFrameDelay,
    UsbFrames,
)
from lumion_hw.errors import ConfigError
from tests.effort import examples
from tests.emulator.mesh.lumion.board_testbench import TINY, Bench, Host, table

BYTE_S = 10 / 115_200
UART, FTDI, USB, NONE = (Pacing.parse(text) for text in ("uart:115200", "ftdi:115200:16", "usb-fs", "none"))


# -- the modes by name ------------------------------------------------------------------------------------------------


def test_modes_are_written_as_in_the_specification() -> None:
    assert Pacing("none") == NONE
    assert Pacing("usb-fs") == USB
    assert Pacing("uart", BYTE_S) == UART
    assert Pacing("ftdi", BYTE_S, 0.016) == FTDI
    assert Pacing.parse("ftdi:115200") == FTDI, "16 ms is the default"
    assert Pacing.parse("ftdi:921600:1") == Pacing("ftdi", 10 / 921_600, 0.001)


@pytest.mark.parametrize(
    "text",
    ["", "None", "uart", "uart:", "uart:0", "uart:-5", "uart:9600:16", "ftdi", "ftdi:9600:0", "ftdi:9600:256", "usb-hs",
     "none:1", "ftdi:1:2:3", "uart:9.6e3", "uart:²"],
)  # fmt: skip
def test_anything_else_is_refused_with_what_is_possible(text: str) -> None:
    with pytest.raises(ConfigError, match=r"baud|mode"):
        replace(TINY, pacing=text)


def test_presets_have_the_sizes_and_frames_of_section_15() -> None:
    sizes = {name: (profile.n_dac, profile.n_adc) for name, profile in PRESETS.items()}
    assert sizes == {"tiny": (4, 4), "mesh144": (144, 64), "mesh304": (304, 40), "large": (2000, 256)}
    mtu = {pacing: preset("tiny", pacing).mtu for pacing in ("none", "uart:9600", "ftdi:9600:16", "usb-fs")}
    assert mtu == {"none": 4096, "uart:9600": 512, "ftdi:9600:16": 512, "usb-fs": 4096}
    tiny = preset("tiny")
    assert (tiny.window, tiny.t_cmd_ms, tiny.tick_us) == (8, 1, 1000)
    with pytest.raises(KeyError):
        preset("huge")


# -- rates of section 14 ----------------------------------------------------------------------------------------------


def fast(name: str, pacing: str, mtu: int) -> tuple[Bench, Host]:
    """A board with negligible tick time: section 14 counts bytes without turn-around."""
    bench = Bench(replace(preset(name, pacing), mtu=mtu, tick_us=1, n_adc=4))
    return bench, Host(bench).ready()


def stop_and_wait_s(bench: Bench, host: Host, request: SetRequest | CommitRequest) -> float:
    """Return the time of one request and its reply, minus the millisecond of execution."""
    start = bench.clock.now()
    assert isinstance(host.ask(request), CommitReply)
    return bench.clock.now() - start - bench.board.profile.t_cmd_ms * 1e-3


@pytest.mark.parametrize(
    ("name", "baud", "set_ms", "commit_ms"),
    [
        ("mesh144", 115_200, 29.8, 5.73),
        ("mesh144", 921_600, 3.72, 0.716),
        ("mesh144", 3_000_000, 1.14, 0.22),
        ("mesh304", 115_200, 57.6, 5.73),
        ("mesh304", 921_600, 7.2, 0.716),
        ("large", 115_200, 353.0, 5.73),
        ("large", 3_000_000, 13.6, 0.22),
    ],
)
def test_set_and_commit_take_the_time_of_their_bytes_on_a_uart(
    name: str, baud: int, set_ms: float, commit_ms: float
) -> None:
    bench, host = fast(name, f"uart:{baud}", 4096)
    n_dac = bench.board.profile.n_dac
    codes = (np.arange(n_dac) * 31 % 65521 + 1).astype(np.uint16)
    assert stop_and_wait_s(bench, host, SetRequest(1, codes)) * 1e3 == pytest.approx(set_ms, rel=0.05)
    host.ask(StageRequest(1, 0, 0, codes[: n_dac // 2]))
    host.ask(StageRequest(1, 0, n_dac // 2, codes[n_dac // 2 :]))
    commit = CommitRequest(2, 1, table_crc32(codes), 0, n_dac)
    assert stop_and_wait_s(bench, host, commit) * 1e3 == pytest.approx(commit_ms, rel=0.05)


@pytest.mark.parametrize(
    ("pacing", "rate"),
    [
        pytest.param("uart:115200", 72.5, marks=pytest.mark.long),
        ("uart:921600", 580.0),
        ("uart:3000000", 1890.0),
        ("usb-fs", 5030.0),
    ],
)
def test_telemetry_of_64_monitors_reaches_the_rate_of_the_line(pacing: str, rate: float) -> None:
    seconds = 100 / rate
    bench = Bench(replace(preset("mesh144", pacing), tick_us=100, adc_scan_us=10))
    host = Host(bench)
    host.open()
    host.subscribe(period_ticks=1, credit_limit=1_000_000)
    host.collect(0.1)
    assert len(host.collect(seconds)) / seconds == pytest.approx(rate, rel=0.05)


def test_a_latency_timer_makes_a_short_reply_wait_for_it() -> None:
    bench = Bench(preset("tiny", "ftdi:115200:16"))
    host = Host(bench)
    host.open()
    arrivals = []
    for _ in range(40):
        host.ask(PingRequest(1))
        arrivals.append(bench.clock.now())
    gaps_ms = np.diff(arrivals) * 1e3
    # 19 + 31 bytes and 1 ms of execution take 5.3 ms: every reply comes with the next expiry of the timer.
    assert gaps_ms == pytest.approx(np.full(39, 16.0), abs=0.01)


def test_a_short_latency_timer_speeds_the_same_exchange_up() -> None:
    bench = Bench(preset("tiny", "ftdi:115200:1"))
    host = Host(bench)
    host.open()
    start = bench.clock.now()
    for _ in range(40):
        host.ask(PingRequest(1))
    assert (bench.clock.now() - start) / 40 == pytest.approx(6.0e-3, abs=0.5e-3)


def test_long_replies_pass_the_latency_timer_in_packets_of_62_bytes() -> None:
    bench = Bench(preset("mesh144", "ftdi:115200:16"))
    host = Host(bench)
    host.open()
    sizes = []
    host.link.write(encode_frame(host.frame(ReadbackRequest(count=144))), 0.0)
    while sum(sizes) < 300:
        sizes.append(len(host.link.read(bench.clock.now() + 1.0)))
    assert set(sizes[:-1]) <= {62} | set(range(1, 62))
    assert sizes.count(62) >= 4


def test_usb_frames_limit_stop_and_wait_to_the_rates_of_section_14() -> None:
    bench = Bench(preset("tiny", "usb-fs"))
    host = Host(bench)
    host.open()
    start = bench.clock.now()
    for _ in range(100):
        host.ask(PingRequest(1))
    rate = 100 / (bench.clock.now() - start)
    assert 300 <= rate <= 1000


def test_the_answer_is_the_same_in_every_mode() -> None:
    answers = []
    for pacing in ("none", "uart:9600", "ftdi:9600:16", "usb-fs"):
        host = Host(Bench(preset("tiny", pacing))).ready()
        host.drive(3, [1, 2, 3, 4])
        answers.append(host.ask(ReadbackRequest(count=4)).codes.tolist())
    assert answers == [[1, 2, 3, 4]] * 4


# -- outgoing frames ----------------------------------------------------------------------------------------------


def test_a_record_under_way_is_not_cut_and_reply_and_fault_go_before_the_next_one() -> None:
    fault_first = set()
    for offset_ms in range(14):
        bench = Bench(preset("mesh144", "uart:115200"))
        host = Host(bench).ready()
        host.subscribe(period_ticks=1, credit_limit=100_000)
        host.collect(0.2 + offset_ms * 1e-3)
        bench.board.trip(FaultSource.HW_SPI)
        host.link.write(encode_frame(host.frame(PingRequest(7))), 0.0)
        order = [frame.command for frame in host.collect(0.1)]
        reply, fault = order.index(Command.PING), order.index(Event.FAULT)
        before = order[: max(reply, fault)].count(Event.TELEMETRY)
        assert before <= 1 + (reply > fault), "the one under way, and one more when the reply is not ready in time"
        assert order[:fault].count(Event.TELEMETRY) <= 1
        fault_first.add(fault < reply)
    assert fault_first == {True, False}, "a reply that is ready goes before the FAULT"


# -- back-pressure ----------------------------------------------------------------------------------------------------


def test_a_host_that_does_not_read_stops_the_board_from_executing_its_requests() -> None:
    bench = Bench()
    host = Host(bench).ready()
    for _ in range(400):
        host.link.write(encode_frame(host.frame(ReadbackRequest(count=4))), 0.0)
        bench.sleep(0.001)
    replies = -(-4096 // wire_bound(28))
    executed = int(bench.board.core.stats[StatsCounter.TX_FRAMES])
    assert executed <= replies + 16 + 10, "what the wire holds, and the replies that wait"
    frames = host.collect(1.0)
    assert len(frames) >= 300
    assert [frame.seq for frame in frames] == list(range(frames[0].seq, frames[0].seq + len(frames)))


def test_estop_gets_through_a_connection_whose_replies_nobody_reads() -> None:
    bench = Bench()
    host = Host(bench).ready(wd_timeout_ms=60_000)
    host.drive(1, [9] * 4)
    for _ in range(200):
        host.link.write(encode_frame(host.frame(ReadbackRequest(count=4))), 0.0)
        bench.sleep(0.001)
    other = Host(bench)
    assert other.raw(ESTOP_WIRE) is not None
    assert bench.board.driven_codes.tolist() == [0] * 4


def test_one_host_that_does_not_read_does_not_hold_up_another() -> None:
    bench = Bench()
    host = Host(bench).ready()
    for _ in range(200):
        host.link.write(encode_frame(host.frame(PingRequest(1))), 0.0)
        bench.sleep(0.001)
    probe = Host(bench)
    assert isinstance(probe.ask(PingRequest(5), session=0), PingReply)


def test_a_board_that_stops_reading_lets_4096_bytes_pile_up_and_trips_its_watchdog() -> None:
    bench = Bench()
    host = Host(bench).ready()
    host.drive(1, [9] * 4)
    peer = bench.board.connect()
    bench.board.stop_reading()
    peer.receive(bytes(1000))
    assert peer.peer.free_bytes == 3096
    peer.receive(bytes(5000))
    assert peer.peer.free_bytes == 0
    bench.sleep(3.0)
    assert bench.board.driven_codes.tolist() == [0] * 4
    assert host.raw(encode_frame(host.frame(PingRequest(1))), 0.5) is None
    bench.board.resume_reading()
    assert peer.peer.free_bytes == 4096
    assert host.reply() is not None, "what piled up is understood"


def test_a_writer_that_does_not_wait_loses_bytes_beyond_all_bounds_and_they_are_counted() -> None:
    bench = Bench()
    host = Host(bench).ready()
    peer = bench.board.connect()
    bench.board.stop_reading()
    for _ in range(200):
        peer.receive(bytes(1000))
    bench.board.resume_reading()
    assert host.counter(StatsCounter.UART_ERRORS) == 200_000 - 4096 - 65_536


def test_a_flood_of_requests_without_replies_is_executed_in_full() -> None:
    bench = Bench()
    host = Host(bench).ready()
    flood = b"".join(
        encode_frame(host.frame(StageRequest(number, 0, 0, table([number] * 4)), flags=4)) for number in range(1, 1001)
    )
    assert len(flood) > 30_000
    host.link.write(flood, 0.0)
    bench.sleep(0.1)
    assert host.ask(ReadbackRequest(bank=0, rb_flags=0)).generation == 1000


# -- components ---------------------------------------------------------------------------------------------------


def test_bytes_arrive_at_the_line_rate_and_a_second_write_waits_for_the_first() -> None:
    from_host = HostToBoardLine(Pacing("uart", 1.0))
    from_host.write(b"\0ab\0", 10.0)
    from_host.write(b"\0c\0", 11.0)
    assert from_host.next_arrival() == 14.0, "the delimiter behind the frame, not the one before it"
    assert from_host.read_frame(14.0) == b"\0ab\0"
    assert from_host.next_arrival() == 17.0
    assert from_host.read(16.5) == b"\0c"
    assert from_host.read(17.0) == b"\0"
    assert from_host.next_arrival() is None


def test_a_delimiter_that_comes_alone_ends_the_frame_begun_before() -> None:
    from_host = HostToBoardLine(NONE)
    from_host.write(b"\0ab", 1.0)
    assert from_host.next_arrival() is None
    assert from_host.read(1.0) == b"\0ab"
    from_host.write(b"\0", 2.0)
    assert from_host.next_arrival() == 2.0


@examples(50)
@given(
    pacing=st.sampled_from(["none", "uart:115200", "usb-fs"]),
    writes=st.lists(st.tuples(st.floats(0.0, 0.2), st.binary(min_size=1, max_size=6000)), min_size=1, max_size=6),
)
def test_no_byte_is_lost_doubled_or_early_on_the_way_in(pacing: str, writes: list[tuple[float, bytes]]) -> None:
    mode = Pacing.parse(pacing)
    from_host, sent, read, now = HostToBoardLine(mode), b"", b"", 0.0
    for pause, data in writes:
        now += pause
        assert from_host.write(data, now) == 0
        sent += data
        assert from_host.free_bytes <= 4096
    while (arrival := from_host.next_arrival()) is not None:
        now = max(now, arrival)
        read += from_host.read_frame(now)
        assert now >= len(read) * mode.byte_s * (1 - 1e-9)
    read += from_host.read(now + 10.0)
    assert read == sent


@examples(50)
@given(
    pacing=st.sampled_from(["none", "uart:115200", "ftdi:115200:16", "ftdi:921600:1", "usb-fs"]),
    frames=st.lists(st.binary(min_size=15, max_size=4096), min_size=1, max_size=5),
    pauses=st.lists(st.floats(0.0, 0.05), min_size=1, max_size=5),
)
def test_no_byte_is_lost_doubled_or_early_on_the_way_out(pacing: str, frames: list[bytes], pauses: list[float]) -> None:
    mode = Pacing.parse(pacing)
    to_host, taken, now = BoardToHostLine(mode), b"", 0.0
    waiting = list(frames)
    for turn in range(10_000):
        if waiting and not to_host.blocked:
            to_host.send(waiting.pop(0), max(now, to_host.free_s))
        delivery = to_host.next_delivery()
        if delivery is None and not waiting:
            break
        now = max(now, delivery or now) + pauses[turn % len(pauses)]
        piece = to_host.remove(now)
        assert len(piece) <= 4096, "no more lies unread"
        taken += piece
        assert now >= len(taken) * mode.byte_s * (1 - 1e-9)
    assert taken == b"".join(frames)


def test_the_latency_gate_gives_62_bytes_at_once_and_the_rest_with_the_timer() -> None:
    line, delivery_delay = TimedBytes(0.001), LatencyTimerDelay(0.016)
    line.append(bytes(100), 0.0)  # byte j at (j + 1) ms
    assert delivery_delay.next_delivery(line) == pytest.approx(0.016)
    assert len(delivery_delay.deliver(line, 0.0159)) == 0
    assert len(delivery_delay.deliver(line, 0.016)) == 16
    fast_line = TimedBytes(0.0001)
    fast_line.append(bytes(100), 0.016)  # 62 bytes within 6.2 ms
    assert delivery_delay.next_delivery(fast_line) == pytest.approx(0.0222)
    assert len(delivery_delay.deliver(fast_line, 0.0222)) == 62
    assert delivery_delay.next_delivery(fast_line) == pytest.approx(0.0382), "16 ms after that packet"
    assert len(delivery_delay.deliver(fast_line, 0.0382)) == 38


def test_an_idle_latency_timer_runs_on() -> None:
    line, delivery_delay = TimedBytes(0.0), LatencyTimerDelay(0.016)
    line.append(b"x", 1.001)
    assert delivery_delay.next_delivery(line) == pytest.approx(1.008), "63 periods of 16 ms"


def test_a_usb_frame_takes_13_packets() -> None:
    frames = UsbFrames()
    instants = [frames.next_packet(0.0002) for _ in range(30)]
    assert instants == [0.001] * 13 + [0.002] * 13 + [0.003] * 4
    line, delivery_delay = TimedBytes(0.0), UsbFrameDelay()
    line.append(bytes(2000), 0.0002)
    assert [len(delivery_delay.deliver(line, at)) for at in (0.0009, 0.001, 0.0015, 0.002, 0.003)] == [
        0,
        832,
        0,
        832,
        336,
    ]


def test_a_frame_larger_than_the_room_waits_with_its_rest() -> None:
    to_host = BoardToHostLine(NONE)
    to_host.send(bytes(3000), 0.0)
    assert not to_host.blocked
    to_host.send(bytes(3000), 0.0)
    assert to_host.blocked
    assert [len(to_host.remove(1.0)), len(to_host.remove(1.0)), len(to_host.remove(1.0))] == [4096, 1904, 0]


def test_decoding_survives_any_pacing() -> None:
    bench = Bench(BoardProfile(n_dac=4, n_adc=4, pacing="ftdi:9600:3"))
    host = Host(bench).ready()
    host.subscribe(period_ticks=7, credit_limit=10_000)
    decoder, good = Decoder(4096), 0
    deadline = bench.clock.now() + 3.0
    while bench.clock.now() < deadline:
        found = decoder.feed(host.link.read(deadline))
        assert all(isinstance(item, Frame) for item in found)
        good += len(found)
    # 39 bytes at 960 B/s
    assert good == pytest.approx(3.0 * 960 / 39, rel=0.05)
