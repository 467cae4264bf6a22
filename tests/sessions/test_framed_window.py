"""Requests of a framed session that overlap: the span of the window, who may overlap, and pieces that were lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import firmware_protocol as fp
from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.errors import LimitError, LinkTimeout, VerifyError
from lumion_hw.links.memory import MemoryLink
from lumion_hw.sessions.framed.session import FramedSession
from tests.least_board import LEAST_BOARD
from tests.waiting import PATIENCE_S

SESSION = 0x51
N = 64
HELLO = replace(
    LEAST_BOARD,
    fw_rx_max=256,
    fw_tx_max=256,
    n_dac=N,
)
ECHO_S = 0.010  # a reply comes this long after its request


class StagingBoard:
    """A board that stages and commits by the book (sections 4.2 and 8), behind a wire that loses what it is told to.

    Attributes:
        arrived: Sequence numbers in the order in which they came, repeats included.
        lose: Told each request frame; a frame for which it is true is lost on the way.
        lose_reply: The same for replies.
    """

    def __init__(self, clock: VirtualClock | SystemClock, hello: fp.HelloReply = HELLO) -> None:
        self.clock, self.hello = clock, hello
        self.writes: list[tuple[float, int]] = []
        self.arrived: list[tuple[float, int, int]] = []
        self.executed: dict[int, int] = {}
        self.latched: list[tuple[int, tuple[int, ...]]] = []
        self.lose: Callable[[fp.Frame], bool] = lambda frame: False
        self.lose_reply: Callable[[fp.Frame], bool] = lambda frame: False
        self.delay_s: Callable[[], float] = lambda: ECHO_S
        self.stale = 0
        self.staged: dict[int, int] = {}
        self.bank = 0
        self.limit = 65535
        self._ring = fp.ReplyRing(hello.window)
        self._decoder = fp.Decoder(hello.fw_rx_max)
        self._out: list[tuple[float, bytes]] = []

    def connect(self) -> StagingBoard:
        return self

    def receive(self, data: bytes) -> None:
        frames = [frame for frame in self._decoder.feed(data) if isinstance(frame, fp.Frame)]
        self.writes.append((self.clock.now(), len(frames)))
        for frame in frames:
            if not self.lose(frame):
                self._take(frame)

    def _take(self, frame: fp.Frame) -> None:
        self.arrived.append((self.clock.now(), frame.command, frame.seq))
        if frame.command == fp.Command.HELLO:
            self._ring.open(frame.seq)
            self._send(frame, fp.StoredReply(frame.command, 0, self.hello.encode()))
        elif frame.command == fp.Command.ESTOP:
            stopped = fp.EstopReply(1, 1, fp.OutputsState.SAFE)
            self._send(frame, fp.StoredReply(frame.command, 0, stopped.encode()))
        else:
            judged = self._ring.judge(frame.seq)
            stored = judged.stored
            if judged.verdict is fp.Verdict.STALE:
                self.stale += 1
            elif judged.verdict is fp.Verdict.EXECUTE:
                self.executed[frame.seq] = self.executed.get(frame.seq, 0) + 1
                answer = self._execute(fp.decode_request(frame.command, frame.payload))
                status = answer.status if isinstance(answer, fp.Refusal) else 0
                stored = fp.StoredReply(frame.command, status, answer.encode())
                self._ring.store(frame.seq, stored)
            if stored is not None:
                self._send(frame, stored)

    def _execute(self, request: fp.AnyRequest) -> fp.Message | fp.Refusal:
        if isinstance(request, fp.StageRequest):
            if request.codes.max() > self.limit:
                return fp.Refusal(fp.Status.LIMIT, request.start, None, int(request.codes.max()), self.limit)
            self.staged = self.staged if request.bank_generation == self.bank else {}
            self.bank = request.bank_generation
            self.staged |= dict(enumerate(request.codes.tolist(), start=request.start))
            return fp.StageReply(self.bank, len(self.staged))
        if isinstance(request, fp.CommitRequest):
            if self.bank != request.bank_generation or len(self.staged) < N:
                return fp.Refusal(fp.Status.INCOMPLETE, 0, None, len(self.staged), N)
            table = [self.staged[channel] for channel in range(N)]
            if fp.table_crc32(table) != request.crc32:
                return fp.Refusal(fp.Status.CRC_MISMATCH, value=fp.table_crc32(table), limit=request.crc32)
            self.latched.append((request.generation, tuple(table)))
            return fp.CommitReply(request.generation, 1, request.crc32, True, fp.OutputsState.READY)
        assert isinstance(request, fp.PingRequest | fp.ConfigGlobalRequest)
        if isinstance(request, fp.ConfigGlobalRequest):
            return fp.ConfigReply(request.op, fp.OutputsState.READY, 0, 0)
        return fp.PingReply(request.token, 1, 1, fp.OutputsState.READY, SESSION)

    def _send(self, frame: fp.Frame, reply: fp.StoredReply) -> None:
        answer = fp.Frame(fp.Kind.RSP, frame.command, frame.seq, frame.session, 0, reply.status, payload=reply.payload)
        if not self.lose_reply(answer):
            self._out.append((self.clock.now() + self.delay_s(), fp.encode_frame(answer)))

    def transmit(self) -> bytes:
        now = self.clock.now()
        due = sorted(entry for entry in self._out if entry[0] <= now)
        self._out = [entry for entry in self._out if entry[0] > now]
        return b"".join(wire for _, wire in due)

    def next_event(self) -> float | None:
        return min((at for at, _ in self._out), default=None)

    def close(self) -> None:
        self._out.clear()


def attach(board: StagingBoard, first_seq: int = 0) -> FramedSession:
    link = MemoryLink(board.connect, board.clock, "memory")
    session = FramedSession(link, board.clock, device="mesh0", session_ids=lambda: SESSION, first_seq=first_seq)
    session.open()
    return session


def pieces(generation: int, table: list[int], size: int = 8) -> list[fp.Request[fp.Message]]:
    stages = [
        fp.StageRequest(generation, 0, start, np.array(table[start : start + size])) for start in range(0, N, size)
    ]
    return [*stages, fp.CommitRequest(generation, generation, fp.table_crc32(table), 0, N)]


@pytest.fixture
def board(clock: VirtualClock) -> StagingBoard:
    return StagingBoard(clock)


# --- the span of the window ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2, 4, 8, 16])
def test_as_many_requests_overlap_as_the_window_spans(clock: VirtualClock, window: int) -> None:
    board = StagingBoard(clock, replace(HELLO, window=window))
    session = attach(board)
    start = clock.now()
    session.request_all([fp.PingRequest(token) for token in range(32)])
    assert clock.now() - start == pytest.approx(32 / window * ECHO_S, rel=0.01)
    assert board.writes[-1][1] == window
    assert sum(count for _, count in board.writes[1:]) == 33  # HELLO and each PING once


def test_a_new_number_waits_for_the_oldest_unanswered_one_not_for_a_free_place(
    board: StagingBoard, clock: VirtualClock
) -> None:
    """Section 4.3: a span, not a count. With number 1 unanswered, 5 may not be sent although 2, 3 and 4 are done."""
    session = attach(board)
    lost = [1]
    board.lose = lambda frame: frame.command == fp.Command.PING and bool(lost) and frame.seq == lost.pop()
    session.request_all([fp.PingRequest(token) for token in range(8)])
    pings = [(at, seq) for at, command, seq in board.arrived if command == fp.Command.PING]
    assert [seq for _, seq in pings] == [2, 3, 4, 1, 5, 6, 7, 8]
    repeated_s = next(at for at, seq in pings if seq == 1)
    assert all(at > repeated_s for at, seq in pings if seq > 4)
    assert board.stale == 0


def test_replies_are_given_in_the_order_of_the_requests(board: StagingBoard, clock: VirtualClock) -> None:
    dice = random.Random(1)
    board.delay_s = lambda: dice.choice([0.001, 0.004, 0.009])
    replies = attach(board).request_all([fp.PingRequest(token) for token in range(50)])
    assert [reply.token for reply in replies if isinstance(reply, fp.PingReply)] == list(range(50))


def test_commands_without_the_mark_travel_alone(board: StagingBoard) -> None:
    session = attach(board)
    block = fp.ConfigGlobalRequest(0, 2000, 0, 400)
    session.request_all([fp.PingRequest(1), block, block, fp.PingRequest(2), fp.PingRequest(3)])
    assert [count for _, count in board.writes[2:]] == [1, 1, 1, 2]


def test_a_request_behind_others_waits_longer_before_it_is_repeated(board: StagingBoard, clock: VirtualClock) -> None:
    session = attach(board)
    start = clock.now()
    board.lose = lambda frame: True
    with pytest.raises(LinkTimeout):
        session.request_all([fp.PingRequest(token) for token in range(4)])
    # Alone: 1 ms + 25 ms. Each one waits 1 ms more for the execution of those before it (section 4.5).
    repeats = [at - start for at, count in board.writes[1:] if at > start]
    assert repeats[:4] == pytest.approx([0.026, 0.027, 0.028, 0.029])


# --- staging and committing in one burst ---------------------------------------------------------------------------


def test_pieces_and_commit_go_out_in_bursts_and_are_latched_once(board: StagingBoard, clock: VirtualClock) -> None:
    session = attach(board)
    start = clock.now()
    session.request_all(pieces(1, list(range(N))))
    assert board.latched == [(1, tuple(range(N)))]
    assert clock.now() - start == pytest.approx(3 * ECHO_S)  # 9 requests, 4 at once


@pytest.mark.parametrize("lost", range(1, 10))
def test_one_lost_piece_costs_that_piece_and_a_second_commit(board: StagingBoard, lost: int) -> None:
    session = attach(board)
    gone = [lost]
    board.lose = lambda frame: frame.seq in gone and not gone.clear()  # type: ignore[func-returns-value]
    session.request_all(pieces(1, list(range(N))))
    assert board.latched == [(1, tuple(range(N)))]
    commits = [command for _, command, _ in board.arrived].count(fp.Command.COMMIT)
    stages = [command for _, command, _ in board.arrived].count(fp.Command.STAGE)
    # A commit that overtook one of the last three pieces is answered INCOMPLETE and issued again.
    assert (stages, commits) == (8, 2 if lost in (6, 7, 8) else 1)


@pytest.mark.parametrize("lost", range(1, 10))
def test_a_lost_reply_is_replayed_and_nothing_happens_twice(board: StagingBoard, lost: int) -> None:
    session = attach(board)
    gone = [lost]
    board.lose_reply = lambda frame: frame.seq in gone and not gone.clear()  # type: ignore[func-returns-value]
    session.request_all(pieces(1, list(range(N))))
    assert board.latched == [(1, tuple(range(N)))]
    assert set(board.executed.values()) == {1}


def test_a_refused_piece_ends_the_burst_with_its_own_reason(board: StagingBoard) -> None:
    session = attach(board)
    board.limit = 40
    with pytest.raises(LimitError, match=r"STAGE.*channel 40.*requested 47 code, limit 40 code"):
        session.request_all(pieces(1, list(range(N))))
    assert board.latched == []
    assert session.request(fp.PingRequest(7)).token == 7
    assert "late" not in session.counters


def test_a_checksum_that_stays_wrong_is_an_error_after_everything_was_sent_twice(board: StagingBoard) -> None:
    session = attach(board)
    wrong = [*pieces(1, list(range(N)))[:-1], fp.CommitRequest(1, 1, 0xBAD, 0, N)]
    with pytest.raises(VerifyError, match="COMMIT"):
        session.request_all(wrong)
    commands = [command for _, command, _ in board.arrived]
    assert (commands.count(fp.Command.STAGE), commands.count(fp.Command.COMMIT)) == (16, 2)


# --- sequence numbers wrap -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("seed", range(3))
def test_numbers_wrap_with_losses_and_late_copies_and_nothing_runs_twice(window: int, seed: int) -> None:
    """Section 18, item 4, where seq wraps: from 65 500 over the end, for every window."""
    clock = VirtualClock()
    board = StagingBoard(clock, replace(HELLO, window=window))
    session = attach(board, first_seq=65_500)
    dice = random.Random(seed)
    board.lose = lambda frame: frame.command != fp.Command.HELLO and dice.random() < 0.1
    board.lose_reply = board.lose
    board.delay_s = lambda: dice.choice([0.001, 0.001, 0.01, 0.04, 0.1])
    confirmed = 0
    for generation in range(1, 26):
        table = [dice.randrange(65536) for _ in range(N)]
        try:
            session.request_all(pieces(generation, table))
        except LinkTimeout:
            continue
        confirmed += 1
        assert board.latched[-1] == (generation, tuple(table))
    generations = [generation for generation, _ in board.latched]
    assert len(generations) == len(set(generations)) >= confirmed > 15
    assert set(board.executed.values()) == {1}
    assert min(board.executed) < 200 < 65_500 < max(board.executed)


# --- the emergency stop does not queue ------------------------------------------------------------------------------


def test_an_emergency_stop_goes_out_while_another_thread_waits_for_a_reply() -> None:
    clock = SystemClock()
    board = StagingBoard(clock)
    session = attach(board)
    board.delay_s = lambda: 0.0
    waiting = threading.Event()

    def lose(frame: fp.Frame) -> bool:
        waiting.set()
        return frame.command == fp.Command.PING

    board.lose = lose

    def ask() -> None:
        with pytest.raises(LinkTimeout):
            session.request(fp.PingRequest())

    thread = threading.Thread(target=ask)
    thread.start()
    assert waiting.wait(PATIENCE_S)
    start = clock.now()
    assert session.emergency_stop().outputs_state is fp.OutputsState.SAFE
    thread.join(PATIENCE_S)
    first = next(at for at, command, _ in board.arrived if command == fp.Command.ESTOP)
    assert first - start < 0.05  # the PING gives up after 182 ms


def test_a_session_opened_again_as_the_same_host_leaps_in_its_numbers(board: StagingBoard) -> None:
    session = attach(board, first_seq=10)
    session.request(fp.PingRequest())
    session.open(is_reconnect=True)
    session.request(fp.PingRequest())
    hellos = [seq for _, command, seq in board.arrived if command == fp.Command.HELLO]
    pings = [seq for _, command, seq in board.arrived if command == fp.Command.PING]
    assert (hellos, pings) == ([10, 11 + 0x4000], [11, 12 + 0x4000])
