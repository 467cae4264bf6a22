"""The framed session against a scripted board on a wire: what is sent, when, and what becomes of each kind of reply."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import firmware_protocol as fp
from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.errors import (
    BadValueError,
    BusyError,
    ConfigError,
    ConnectError,
    DeviceError,
    DeviceTimeoutError,
    FrameError,
    LimitError,
    LinkLost,
    LinkTimeout,
    NotSupportedError,
    SafetyError,
    VerifyError,
)
from lumion_hw.links.memory import MemoryLink
from lumion_hw.sessions.framed.session import FramedSession, SessionState
from tests.least_board import LEAST_BOARD
from tests.waiting import PATIENCE_S

SESSION = 0x2F71
HELLO = replace(
    LEAST_BOARD,
    window=8,
    n_adc=4,
    adc_bits=16,
    n_banks=2,
    n_streams=2,
    adc_full_scale=2_000_000,
    t_slow_ms=500,
    adc_scan_us=50,
    active_generation=41,
)
PONG = fp.PingReply(0, 1, 1, fp.OutputsState.READY, SESSION)
Answer = Callable[[fp.Frame], "list[tuple[float, bytes]]"]


def reply_to(frame: fp.Frame, message: fp.Message | fp.Refusal, **header: int) -> bytes:
    """The wire bytes of a reply; ``header`` overrides single header fields."""
    status = message.status if isinstance(message, fp.Refusal) else 0
    fields = {"command": frame.command, "seq": frame.seq, "session": frame.session, "status": status, **header}
    return fp.encode_frame(fp.Frame(fields.pop("kind", fp.Kind.RSP), **fields, payload=message.encode()))


class ScriptedBoard:
    """Far end of a memory link that answers each request by the next entry of its script, the last one for ever."""

    def __init__(self, clock: VirtualClock, hello: fp.HelloReply = HELLO) -> None:
        self.clock = clock
        self.requests: list[tuple[float, fp.Frame]] = []
        self.raw = bytearray()
        self.connections = 0
        self.gone = False
        self._decoder = fp.Decoder(4096)
        self._out: list[tuple[float, bytes]] = []
        self.script: dict[int, list[Answer]] = {
            fp.Command.HELLO: [lambda frame: [(0.0, reply_to(frame, hello))]],
            fp.Command.PING: [lambda frame: [(0.0, reply_to(frame, PONG))]],
        }

    def connect(self) -> ScriptedBoard:
        if self.gone:
            raise ConnectError("unplugged")
        self.connections += 1
        return self

    def receive(self, data: bytes) -> None:
        if self.gone:
            raise LinkLost("unplugged")
        self.raw += data
        for frame in self._decoder.feed(data):
            assert isinstance(frame, fp.Frame)
            self.requests.append((self.clock.now(), frame))
            answers = self.script.get(frame.command, [lambda frame: []])
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            self._out += [(self.clock.now() + delay, wire) for delay, wire in answer(frame)]

    def transmit(self) -> bytes:
        if self.gone:
            raise LinkLost("unplugged")
        due = [entry for entry in self._out if entry[0] <= self.clock.now()]
        self._out = [entry for entry in self._out if entry[0] > self.clock.now()]
        return b"".join(wire for _, wire in due)

    def next_event(self) -> float | None:
        return min((at for at, _ in self._out), default=None)

    def close(self) -> None:
        self._out.clear()

    def seen(self, command: int) -> list[fp.Frame]:
        return [frame for _, frame in self.requests if frame.command == command]

    def times(self, command: int) -> list[float]:
        return [at for at, frame in self.requests if frame.command == command]


def says(message: fp.Message | fp.Refusal, delay: float = 0.0, **header: int) -> Answer:
    return lambda frame: [(delay, reply_to(frame, message, **header))]


def silent(frame: fp.Frame) -> list[tuple[float, bytes]]:
    del frame
    return []


@pytest.fixture
def board(clock: VirtualClock) -> ScriptedBoard:
    return ScriptedBoard(clock)


@pytest.fixture
def session(board: ScriptedBoard, clock: VirtualClock) -> FramedSession:
    """A closed session that will draw the ids 0x2F71, 0x2F72, …"""
    ids = iter(range(SESSION, 0x10000))
    link = MemoryLink(board.connect, clock, "memory://mesh0")
    return FramedSession(link, clock, device="mesh0", session_ids=lambda: next(ids))


# --- opening ---------------------------------------------------------------------------------------------------------


def test_opening_writes_one_delimiter_and_then_hello_in_a_new_session(
    session: FramedSession, board: ScriptedBoard
) -> None:
    assert session.open() == HELLO
    assert session.state is SessionState.OPEN
    assert bytes(board.raw[:2]) == b"\0\0"
    (frame,) = board.seen(fp.Command.HELLO)
    assert (frame.session, frame.flags, frame.version) == (SESSION, 0, 1)
    assert fp.HelloRequest.decode(frame.payload) == fp.HelloRequest(1, 1, 0, 4096, "lumion")


def test_hello_is_repeated_every_quarter_second_with_the_same_number_and_the_retry_flag(
    session: FramedSession, board: ScriptedBoard
) -> None:
    board.script[fp.Command.HELLO][:0] = [silent, silent]
    session.open()
    frames = board.seen(fp.Command.HELLO)
    assert board.times(fp.Command.HELLO) == pytest.approx([0.0, 0.25, 0.5])
    assert [frame.flags for frame in frames] == [0, fp.HeaderFlag.RETRY, fp.HeaderFlag.RETRY]
    assert len({(frame.seq, frame.session) for frame in frames}) == 1


def test_hello_gives_up_after_three_seconds_and_says_where_and_what_to_do(
    session: FramedSession, board: ScriptedBoard, clock: VirtualClock
) -> None:
    board.script[fp.Command.HELLO] = [silent]
    with pytest.raises(LinkTimeout, match=r"mesh0 @ memory://mesh0: HELLO: no answer within 3000 ms.*power"):
        session.open()
    assert clock.now() == pytest.approx(3.0)
    assert len(board.seen(fp.Command.HELLO)) == 12


def test_a_late_hello_reply_of_an_earlier_session_does_not_open_the_next_one(
    session: FramedSession, board: ScriptedBoard
) -> None:
    session.open()
    board.script[fp.Command.HELLO] = [says(HELLO, session=SESSION), says(HELLO)]
    session.open()
    assert session.counters["foreign_session"] == 1
    assert board.seen(fp.Command.HELLO)[-1].session == SESSION + 1


def test_a_host_that_just_died_is_waited_for(session: FramedSession, board: ScriptedBoard) -> None:
    board.script[fp.Command.HELLO].insert(0, says(fp.Refusal(fp.Status.BUSY, value=1500, text="bench-b")))
    session.open()
    assert board.times(fp.Command.HELLO) == pytest.approx([0.0, 1.5])
    first, second = board.seen(fp.Command.HELLO)
    assert second.seq != first.seq  # BUSY was a final answer: asking again is a new request


def test_a_live_host_is_reported_by_name_and_can_be_taken_over(session: FramedSession, board: ScriptedBoard) -> None:
    board.script[fp.Command.HELLO] = [says(fp.Refusal(fp.Status.BUSY, value=2000, text="bench-b"))]
    with pytest.raises(BusyError, match=r"'bench-b'.*2000 ms.*take_over"):
        session.open()
    board.script[fp.Command.HELLO] = [says(HELLO)]
    session.open(take_over=True)
    assert fp.HelloRequest.decode(board.seen(fp.Command.HELLO)[-1].payload).hello_flags == fp.HelloFlag.TAKEOVER


@pytest.mark.parametrize(
    ("status", "hint"), [(fp.Status.TOO_OLD, "Update lumion-hw"), (fp.Status.TOO_NEW, "Update the controller")]
)
def test_a_board_of_another_generation_says_what_to_update(
    session: FramedSession, board: ScriptedBoard, status: fp.Status, hint: str
) -> None:
    board.script[fp.Command.HELLO] = [says(fp.Refusal(status, value=1, limit=2))]
    with pytest.raises(DeviceError, match=rf"{status.name}.*{hint}") as caught:
        session.open()
    assert caught.value.code == status


@pytest.mark.parametrize("wrong", [{"window": 3}, {"n_dac": 0}, {"fw_rx_max": 255}, {"dac_bits": 17}])
def test_a_controller_that_cannot_be_is_refused_by_field(
    session: FramedSession, board: ScriptedBoard, wrong: dict[str, int]
) -> None:
    board.script[fp.Command.HELLO] = [says(replace(HELLO, **wrong))]  # type: ignore[arg-type]
    with pytest.raises(FrameError, match=next(iter(wrong))):
        session.open()


def test_before_opening_and_after_closing_requests_fail_at_once(session: FramedSession) -> None:
    with pytest.raises(LinkLost, match="not been opened"):
        _ = session.hello
    with pytest.raises(LinkLost, match="closed"):
        session.request(fp.PingRequest())
    session.open()
    session.close()
    session.close()
    with pytest.raises(LinkLost, match=r"PING.*closed.*Open"):
        session.request(fp.PingRequest())


# --- retry and deadlines ---------------------------------------------------------------------------------------------


def test_numbers_follow_the_hello_one_by_one(session: FramedSession, board: ScriptedBoard) -> None:
    session.open()
    for _ in range(3):
        session.request(fp.PingRequest())
    assert [frame.seq for frame in board.seen(fp.Command.PING)] == [1, 2, 3]


def test_an_unanswered_request_is_sent_three_times_with_doubling_waits_under_one_number(
    session: FramedSession, board: ScriptedBoard, clock: VirtualClock
) -> None:
    board.script[fp.Command.PING] = [silent]
    session.open()
    session.shorten_retries()
    with pytest.raises(LinkTimeout, match=r"mesh0 @ memory://mesh0: PING: no answer within 182 ms"):
        session.request(fp.PingRequest())
    # No UART: RTO = t_cmd 1 ms + 25 ms (section 4.5), sends at 0, 1 and 3 RTO, deadline 7 RTO.
    assert board.times(fp.Command.PING) == pytest.approx([0.0, 0.026, 0.078])
    assert clock.now() == pytest.approx(0.182)
    frames = board.seen(fp.Command.PING)
    assert [frame.flags for frame in frames] == [0, fp.HeaderFlag.RETRY, fp.HeaderFlag.RETRY]
    assert len({frame.seq for frame in frames}) == 1
    assert session.state is SessionState.DEGRADED


def test_a_question_is_repeated_for_three_seconds_and_a_pause_of_the_board_costs_nothing(
    session: FramedSession, board: ScriptedBoard, clock: VirtualClock
) -> None:
    board.script[fp.Command.PING] = [lambda frame: [] if clock.now() < 1.0 else says(PONG)(frame)]
    session.open()
    assert session.request(fp.PingRequest()) == PONG
    # Repeats at 1, 3, 7, 11, ... RTO of 26 ms: the first one after 1 s comes at 39 RTO.
    assert clock.now() == pytest.approx(39 * 0.026)
    board.script[fp.Command.PING] = [silent]
    began_s = clock.now()
    with pytest.raises(LinkTimeout, match=r"PING: no answer within 3000 ms; nothing was changed"):
        session.request(fp.PingRequest())
    assert clock.now() - began_s == pytest.approx(3.0)


def test_a_command_that_changes_something_is_not_repeated_for_longer(
    session: FramedSession, board: ScriptedBoard, clock: VirtualClock
) -> None:
    board.script[fp.Command.SET] = [silent]
    session.open()
    with pytest.raises(LinkTimeout, match="it may or may not have been executed"):
        session.request(fp.SetRequest(1, np.zeros(4, np.uint16)))
    assert clock.now() == pytest.approx(7 * (0.026 + 0.001))  # t_cmd and the wait for a tick of 1 ms
    assert len(board.seen(fp.Command.SET)) == 3


@pytest.mark.parametrize(
    ("baud", "n", "rto_ms"),
    [(115_200, 144, 56.8), (921_600, 144, 30.7), (3_000_000, 144, 28.1), (115_200, 2000, 380.2), (921_600, 2000, 71.2)],
)
def test_retry_times_of_a_set_are_those_of_the_specification(baud: int, n: int, rto_ms: float) -> None:
    request = fp.SetRequest(1, np.zeros(n, np.uint16))
    assert 1e3 * fp.retry_timeout_s(request, HELLO, baud) == pytest.approx(rto_ms, abs=0.05)


def test_retry_times_of_other_requests_follow_their_work() -> None:
    commit = fp.CommitRequest(1, 1, 0, 0, 144)
    assert 1e3 * fp.retry_timeout_s(commit, HELLO, 115_200) == pytest.approx(32.7, abs=0.05)  # section 4.5
    # 1 ms + 4096 scans of 50 µs + 25 ms; flash 500 ms + 25 ms.
    assert fp.retry_timeout_s(fp.ReadAdcRequest(0, 4, 4096), HELLO, None) == pytest.approx(0.2308)
    assert fp.retry_timeout_s(fp.ConfigApplyRequest(4, 1, fp.ApplyFlag.SAVE), HELLO, None) == pytest.approx(0.525)
    assert fp.largest_reply(fp.ReadbackRequest(count=100, rb_flags=0), HELLO) == 20
    assert fp.largest_reply(fp.ReadbackRequest(count=100), HELLO) == 220
    assert fp.largest_reply(fp.GetStatsRequest(), HELLO) == 112
    assert fp.largest_reply(fp.FaultListRequest(), HELLO) == 496  # whatever fits 512 bytes


def test_after_a_time_out_the_port_stays_open_and_the_next_good_reply_heals(
    session: FramedSession, board: ScriptedBoard
) -> None:
    board.script[fp.Command.PING] = [silent, silent, silent, says(PONG)]
    session.open()
    session.shorten_retries()
    with pytest.raises(LinkTimeout):
        session.request(fp.PingRequest())
    assert session.request(fp.PingRequest()) == PONG
    assert session.state is SessionState.OPEN
    assert board.connections == 1


def test_a_reply_that_comes_after_its_deadline_never_answers_the_next_request(
    session: FramedSession, board: ScriptedBoard
) -> None:
    stale = replace(PONG, token=111)
    board.script[fp.Command.PING] = [
        silent,
        silent,
        says(stale, delay=0.110),
        lambda frame: [(0.02, reply_to(frame, replace(PONG, token=222)))],
    ]
    session.open()
    session.shorten_retries()
    with pytest.raises(LinkTimeout):
        session.request(fp.PingRequest(111))
    assert session.request(fp.PingRequest(222)).token == 222
    assert session.counters["late"] == 1


def test_two_copies_of_a_reply_answer_one_request(session: FramedSession, board: ScriptedBoard) -> None:
    board.script[fp.Command.PING] = [lambda frame: [(0.0, reply_to(frame, PONG) * 2)]]
    session.open()
    for _ in range(3):
        assert session.request(fp.PingRequest()) == PONG
    assert session.counters["late"] == 3
    assert len(board.seen(fp.Command.PING)) == 3


@pytest.mark.parametrize(
    ("header", "counter"),
    [
        ({"session": 0x1111}, "foreign_session"),
        ({"seq": 999}, "late"),
        ({"command": fp.Command.SET}, "mismatched"),
        ({"kind": fp.Kind.REQ}, "echoes"),
        ({"kind": 7}, "bad_kind"),
        ({"version": 2}, "bad_version"),
        ({"flags": fp.HeaderFlag.MORE}, "more_set"),
    ],
)
def test_what_is_no_reply_to_this_request_is_counted_dropped_and_waited_out(
    session: FramedSession, board: ScriptedBoard, header: dict[str, int], counter: str
) -> None:
    board.script[fp.Command.PING] = [says(PONG, **header), says(PONG)]
    session.open()
    assert session.request(fp.PingRequest()) == PONG
    assert session.counters[counter] == 1
    assert len(board.seen(fp.Command.PING)) == 2


def test_a_reply_shorter_than_its_layout_is_counted_and_the_request_retried(
    session: FramedSession, board: ScriptedBoard
) -> None:
    def short(frame: fp.Frame) -> list[tuple[float, bytes]]:
        cut = fp.Frame(fp.Kind.RSP, frame.command, frame.seq, frame.session, payload=PONG.encode()[:-1])
        return [(0.0, fp.encode_frame(cut))]

    board.script[fp.Command.PING] = [short, says(PONG)]
    session.open()
    assert session.request(fp.PingRequest()) == PONG
    assert session.counters["bad_payload"] == 1


def test_damaged_bytes_before_a_reply_are_counted_and_do_not_hide_it(
    session: FramedSession, board: ScriptedBoard
) -> None:
    board.script[fp.Command.PING] = [
        lambda frame: [(0.0, b"\x05ab\0" + reply_to(frame, PONG)[:-3] + b"\0" + b"\xff" * 5000 + reply_to(frame, PONG))]
    ]
    session.open()
    assert session.request(fp.PingRequest()) == PONG
    counters = session.counters
    assert (counters["bad_cobs"] + counters.get("bad_crc", 0), counters["bad_oversize"]) == (2, 1)


def test_a_reply_that_arrives_byte_by_byte_is_one_reply(session: FramedSession, board: ScriptedBoard) -> None:
    def trickle(frame: fp.Frame) -> list[tuple[float, bytes]]:
        return [(i * 5e-4, bytes([byte])) for i, byte in enumerate(reply_to(frame, PONG))]

    board.script[fp.Command.PING] = [trickle]
    session.open()
    assert session.request(fp.PingRequest()) == PONG


def test_own_requests_that_come_back_hint_at_an_echo(session: FramedSession, board: ScriptedBoard) -> None:
    board.script[fp.Command.PING] = [lambda frame: [(0.0, fp.encode_frame(frame))]]
    session.open()
    with pytest.raises(LinkTimeout, match="loop-back"):
        session.request(fp.PingRequest())


# --- refusals --------------------------------------------------------------------------------------------------------

SET = fp.SetRequest(42, np.array([0, 0, 60000, 0]))
REFUSALS = [
    (
        fp.Refusal(fp.Status.LIMIT, 2, None, 60000, 52428),
        LimitError,
        r"SET.*channel 2.*requested 60000 code, limit 52428 code",
    ),
    (fp.Refusal(fp.Status.LIMIT, None, None, 181, 150), LimitError, r"computed power.*requested 181 mW, limit 150 mW"),
    (fp.Refusal(fp.Status.SAFE, value=0x201), SafetyError, r"SET.*OVER_TEMPERATURE, WATCHDOG.*clear"),
    (fp.Refusal(fp.Status.INTERLOCK, 3, None, 9000, 8500), SafetyError, r"channel 3.*measured 9000.*threshold 8500"),
    (fp.Refusal(fp.Status.SESSION, value=0), LinkLost, "board restarted"),
    (fp.Refusal(fp.Status.SESSION, value=0x1234), LinkLost, "taken over by session 0x1234"),
    (fp.Refusal(fp.Status.NOT_SUPPORTED, value=4), NotSupportedError, "CHANNEL_SENSE"),
    (fp.Refusal(fp.Status.NOT_SUPPORTED, value=99), NotSupportedError, "bit 99"),
    (fp.Refusal(fp.Status.NOT_CONFIGURED), DeviceError, r"SET refused with NOT_CONFIGURED.*configure\(\)"),
    (fp.Refusal(fp.Status.LIMIT, 2, 17, 60000, 52428), LimitError, r"SET.*point 17, channel 2.*limit 52428 code"),
    (fp.Refusal(fp.Status.TIMEOUT, value=40), DeviceTimeoutError, r"TIMEOUT, ms 40"),
    (fp.Refusal(fp.Status.BAD_VALUE, None, 3, 120), BadValueError, r"value 120, point 3"),
    (fp.Refusal(fp.Status.BAD_VALUE, 6, None, 5), BadValueError, r"payload offset 6 \(`count`\), value 5"),
    (fp.Refusal(fp.Status.BAD_CHANNEL, 7, None, 0, 4), BadValueError, "channel 7, number of channels 4"),
    (fp.Refusal(fp.Status.STALE, value=0xFFFFFFFF), DeviceError, "number compared with 4294967295"),
    (fp.Refusal(fp.Status.HW_SPI, value=3, text="dac 2"), DeviceError, r"HW_SPI, error register 3 \(dac 2\)"),
    (fp.Refusal(200, value=1), DeviceError, "STATUS_200"),
]


@pytest.mark.parametrize(("refusal", "kind", "text"), REFUSALS)
def test_a_refusal_becomes_the_error_of_its_kind_in_words(
    session: FramedSession, board: ScriptedBoard, refusal: fp.Refusal, kind: type[Exception], text: str
) -> None:
    board.script[fp.Command.SET] = [says(refusal)]
    session.open()
    with pytest.raises(kind, match=text) as caught:
        session.request(SET)
    assert type(caught.value) is kind
    assert str(caught.value).startswith("mesh0 @ memory://mesh0: SET ")
    assert len(board.seen(fp.Command.SET)) == 1  # a refusal is a final answer


@pytest.mark.parametrize(
    ("status", "builtin"),
    [
        (fp.Status.BAD_VALUE, ValueError),
        (fp.Status.BAD_CHANNEL, ValueError),
        (fp.Status.LIMIT, ValueError),
        (fp.Status.TIMEOUT, TimeoutError),
        (fp.Status.NOT_SUPPORTED, NotImplementedError),
        (fp.Status.SESSION, ConnectionError),
    ],
)
def test_errors_are_also_what_python_calls_them(
    session: FramedSession, board: ScriptedBoard, status: fp.Status, builtin: type[Exception]
) -> None:
    board.script[fp.Command.SET] = [says(fp.Refusal(status))]
    session.open()
    with pytest.raises(builtin):
        session.request(SET)


def test_the_error_of_a_device_carries_its_code_and_the_command(session: FramedSession, board: ScriptedBoard) -> None:
    board.script[fp.Command.SET] = [says(fp.Refusal(fp.Status.HW_SPI, value=3))]
    session.open()
    with pytest.raises(DeviceError) as caught:
        session.request(SET)
    assert (caught.value.code, caught.value.command) == (17, "SET")


@pytest.mark.parametrize("value", [0, 0x1234])
def test_a_lost_session_fails_fast_until_it_is_opened_again(
    session: FramedSession, board: ScriptedBoard, value: int
) -> None:
    board.script[fp.Command.PING] = [says(fp.Refusal(fp.Status.SESSION, value=value)), says(PONG)]
    session.open()
    with pytest.raises(LinkLost):
        session.request(fp.PingRequest())
    sent = len(board.requests)
    with pytest.raises(LinkLost, match="lost"):
        session.request(fp.PingRequest())
    assert len(board.requests) == sent
    session.open()
    assert session.request(fp.PingRequest()) == PONG


def test_busy_is_asked_again_with_a_new_number_after_the_time_it_named(
    session: FramedSession, board: ScriptedBoard
) -> None:
    done = fp.FaultClearReply(0, 1, fp.OutputsState.READY)
    board.script[fp.Command.FAULT_CLEAR] = [says(fp.Refusal(fp.Status.BUSY, value=50)), says(done)]
    session.open()
    assert session.request(fp.FaultClearRequest(1)) == done
    assert board.times(fp.Command.FAULT_CLEAR) == pytest.approx([0.0, 0.05])
    first, second = board.seen(fp.Command.FAULT_CLEAR)
    assert second.seq == first.seq + 1


def test_busy_for_longer_than_the_deadline_is_an_error(
    session: FramedSession, board: ScriptedBoard, clock: VirtualClock
) -> None:
    board.script[fp.Command.FAULT_CLEAR] = [says(fp.Refusal(fp.Status.BUSY, value=60))]
    session.open()
    with pytest.raises(BusyError, match=r"FAULT_CLEAR.*wait of 60 ms") as caught:
        session.request(fp.FaultClearRequest(1))
    assert caught.value.exit_code == 6
    assert clock.now() < 0.182  # 7 RTO


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (fp.Status.INCOMPLETE, [0x11, 0x13, 0x13]),  # the piece has arrived by now: only the commit is asked again
        (fp.Status.CRC_MISMATCH, [0x11, 0x13, 0x11, 0x13]),
    ],
)
def test_an_incomplete_or_damaged_set_of_pieces_is_asked_for_once_more(
    session: FramedSession, board: ScriptedBoard, status: fp.Status, sent: list[int]
) -> None:
    staged = fp.StageReply(1, 4)
    receipt = fp.CommitReply(42, 1, 0, True, fp.OutputsState.READY)
    board.script[fp.Command.STAGE] = [says(staged)]
    board.script[fp.Command.COMMIT] = [says(fp.Refusal(status, 3, None, 3, 4)), says(receipt)]
    session.open()
    pieces = [fp.StageRequest(1, 0, 0, np.zeros(4, np.uint16)), fp.CommitRequest(42, 1, 0, 0, 4)]
    assert session.request_all(pieces) == [staged, receipt]
    assert [frame.command for _, frame in board.requests[1:]] == sent
    assert [frame.seq for _, frame in board.requests[1:]] == list(range(1, len(sent) + 1))


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (fp.Refusal(fp.Status.INCOMPLETE, 3, None, 3, 4), "missing channel 3: wrote 4 items, read back 3 items"),
        (fp.Refusal(fp.Status.CRC_MISMATCH, None, None, 0xDEADBEEF, 1), "wrote CRC 0x00000001, read back CRC 0xDEADBE"),
    ],
)
def test_pieces_that_stay_incomplete_or_damaged_are_a_verification_error(
    session: FramedSession, board: ScriptedBoard, refusal: fp.Refusal, text: str
) -> None:
    board.script[fp.Command.COMMIT] = [says(refusal)]
    session.open()
    with pytest.raises(VerifyError, match=text):
        session.request(fp.CommitRequest(42, 1, 0, 0, 4))
    assert len(board.seen(fp.Command.COMMIT)) == 2


def test_what_cannot_be_put_on_the_wire_is_refused_before_sending(session: FramedSession, board: ScriptedBoard) -> None:
    session.open()
    with pytest.raises(ConfigError, match=r"SET cannot be sent.*512"):
        session.request(fp.SetRequest(1, np.zeros(245, np.uint16)))  # 244 codes fit MTU 512, section 2.4
    with pytest.raises(ConfigError, match="token"):
        session.request(fp.PingRequest(1 << 32))
    assert len(board.requests) == 1
    assert session.request(fp.PingRequest()) == PONG


# --- losing the link -------------------------------------------------------------------------------------------------


def test_an_unplugged_link_is_lost_at_once_and_comes_back_by_opening(
    session: FramedSession, board: ScriptedBoard, clock: VirtualClock
) -> None:
    session.open()
    board.gone = True
    with pytest.raises(LinkLost, match=r"PING: unplugged.*watchdog"):
        session.request(fp.PingRequest())
    assert session.state is SessionState.LOST
    assert clock.now() == 0.0
    with pytest.raises(ConnectError):
        session.open()
    board.gone = False
    session.open()
    assert session.request(fp.PingRequest()) == PONG
    assert board.connections == 2


def test_a_link_that_dies_while_waiting_is_lost(session: FramedSession, board: ScriptedBoard) -> None:
    def die(frame: fp.Frame) -> list[tuple[float, bytes]]:
        del frame
        board.gone = True
        return []

    board.script[fp.Command.PING] = [die]
    session.open()
    with pytest.raises(LinkLost, match="PING"):
        session.request(fp.PingRequest())
    assert session.state is SessionState.LOST


# --- events and faults -----------------------------------------------------------------------------------------------


def event(number: int, code: int = fp.Event.FAULT, stream: int = 0, session: int = SESSION) -> bytes:
    record = fp.FaultRecord(number, 7, fp.FaultSource.WATCHDOG, fp.FaultState.LATCHED)
    flags = fp.HeaderFlag.FAULT_PENDING
    return fp.encode_frame(fp.Frame(fp.Kind.EVT, code, number, session, flags, stream, payload=record.encode()))


def test_fault_events_are_kept_and_gaps_between_them_are_counted(session: FramedSession, board: ScriptedBoard) -> None:
    stray = event(6, code=fp.Event.TELEMETRY, stream=2) + event(7, session=0x1111)
    board.script[fp.Command.PING] = [
        lambda frame: [(0.0, event(1) + event(4) + stray + reply_to(frame, PONG, flags=fp.HeaderFlag.FAULT_PENDING))]
    ]
    session.open()
    assert not session.fault_pending
    session.request(fp.PingRequest())
    assert session.fault_pending
    assert [record.fault_id for record in session.take_fault_events()] == [1, 4]
    assert session.take_fault_events() == ()
    counters = session.counters
    # Opening a session starts event numbers at 0 (section 4.1): 0, 2 and 3 are missing.
    assert (counters["events"], counters["lost_events"], counters["unknown_event"]) == (2, 3, 1)
    assert counters["foreign_session"] == 1


# --- emergency stop --------------------------------------------------------------------------------------------------

STOPPED = fp.EstopReply(1, 12400, fp.OutputsState.SAFE)


def test_the_emergency_stop_is_the_constant_frame_repeated_until_answered(
    session: FramedSession, board: ScriptedBoard
) -> None:
    board.script[fp.Command.ESTOP] = [silent] * 5 + [says(STOPPED)]
    session.open()
    board.raw.clear()
    assert session.emergency_stop(3.0) == STOPPED
    assert bytes(board.raw) == fp.ESTOP_WIRE * 6
    assert board.times(fp.Command.ESTOP) == pytest.approx([0.026 * i for i in range(6)])


def test_the_emergency_stop_needs_no_session_and_works_after_the_session_was_lost(
    session: FramedSession, board: ScriptedBoard
) -> None:
    board.script[fp.Command.ESTOP] = [says(STOPPED)]
    board.script[fp.Command.PING] = [says(fp.Refusal(fp.Status.SESSION))]
    assert session.emergency_stop(3.0) == STOPPED
    session.open()
    with pytest.raises(LinkLost):
        session.request(fp.PingRequest())
    assert session.emergency_stop(3.0) == STOPPED


def test_an_emergency_stop_nobody_answers_ends_and_says_that_light_may_still_go(
    session: FramedSession, board: ScriptedBoard, clock: VirtualClock
) -> None:
    session.open()
    with pytest.raises(LinkTimeout, match=r"ESTOP: no answer within 3000 ms.*disconnect"):
        session.emergency_stop(3.0)
    assert clock.now() == pytest.approx(3.0)
    assert len(board.seen(fp.Command.ESTOP)) > 100


# --- several users of one session ------------------------------------------------------------------------------------


def test_a_periodic_action_that_fires_inside_a_wait_skips_instead_of_mixing_two_conversations(
    session: FramedSession, board: ScriptedBoard, clock: VirtualClock
) -> None:
    skipped: list[bool] = []
    board.script[fp.Command.SET] = [says(fp.SetReply(42, 1, 0, True, fp.OutputsState.READY), delay=0.02)]
    session.open()
    ticker = clock.call_every(0.01, lambda: skipped.append(session.request_if_idle(fp.PingRequest()) is None))
    session.request(SET)
    assert skipped
    assert all(skipped)
    assert board.seen(fp.Command.PING) == []
    clock.sleep(0.01)
    ticker.cancel()
    assert skipped[-1] is False


def test_a_plain_request_from_inside_a_wait_is_refused(
    session: FramedSession, board: ScriptedBoard, clock: VirtualClock
) -> None:
    board.script[fp.Command.SET] = [says(fp.SetReply(42, 1, 0, True, fp.OutputsState.READY), delay=0.02)]
    session.open()
    clock.call_every(0.01, lambda: session.request(fp.PingRequest()))
    with pytest.raises(BusyError, match="request_if_idle"):
        session.request(SET)


def test_an_idle_request_on_a_closed_session_sends_nothing(session: FramedSession, board: ScriptedBoard) -> None:
    assert session.request_if_idle(fp.PingRequest()) is None
    assert board.requests == []


def test_an_idle_request_does_not_wait_for_another_thread(session: FramedSession) -> None:
    session.open()
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with session.transaction():
            inside.set()
            leave.wait(PATIENCE_S)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(PATIENCE_S)
    assert session.request_if_idle(fp.PingRequest()) is None
    leave.set()
    holder.join(PATIENCE_S)
    assert session.request_if_idle(fp.PingRequest()) == PONG


def test_two_threads_never_get_each_others_replies() -> None:
    clock = SystemClock()
    board = ScriptedBoard(clock)  # type: ignore[arg-type]
    board.script[fp.Command.PING] = [
        lambda frame: [(0.0, reply_to(frame, replace(PONG, token=fp.PingRequest.decode(frame.payload).token)))]
    ]
    session = FramedSession(MemoryLink(board.connect, clock, "memory"), clock, device="mesh0")
    session.open()
    wrong: list[int] = []

    def ask(tokens: range) -> None:
        wrong.extend(token for token in tokens if session.request(fp.PingRequest(token)).token != token)

    threads = [threading.Thread(target=ask, args=(range(first, first + 500),)) for first in (0, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert wrong == []
    assert session.counters["requests"] == 1000
    assert "late" not in session.counters


def test_random_session_ids_are_never_zero_and_never_repeat_the_last(board: ScriptedBoard, clock: VirtualClock) -> None:
    session = FramedSession(MemoryLink(board.connect, clock, "memory"), clock, device="mesh0")
    for _ in range(20):
        session.open()
    ids = [frame.session for frame in board.seen(fp.Command.HELLO)]
    assert 0 not in ids
    assert all(a != b for a, b in pairwise(ids))
