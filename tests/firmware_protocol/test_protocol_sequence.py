"""The sequence rules of section 4: nothing runs twice, no correct repeat is refused, also when seq wraps around."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, strategies as st

import firmware_protocol as fp
from firmware_protocol.sequence import WINDOWS

OK = fp.StoredReply(fp.Command.SET, fp.Status.OK, b"answer")


def ring(window: int = 8, start: int = 100) -> fp.ReplyRing:
    made = fp.ReplyRing(window)
    made.open(start)
    return made


def test_a_repeated_number_replays_the_stored_reply() -> None:
    board = ring()
    assert board.judge(101).verdict is fp.Verdict.EXECUTE
    board.store(101, OK)
    judgement = board.judge(101)
    assert (judgement.verdict, judgement.stored) == (fp.Verdict.REPLAY, OK)


def test_a_repeated_read_is_executed_again_and_a_silent_repeat_is_dropped() -> None:
    board = ring()
    board.judge(101)
    board.store_read(101)
    board.judge(102)
    board.store_silent(102)
    again = board.judge(101)
    assert (again.verdict, again.repeat) == (fp.Verdict.EXECUTE, True)
    assert board.judge(102).verdict is fp.Verdict.DROP


def test_a_jump_is_executed_and_counted_as_a_gap() -> None:
    board = ring()
    assert board.judge(105).gap == 4
    assert board.judge(106).gap == 0


def test_an_earlier_number_inside_the_window_was_lost_on_the_way_and_runs() -> None:
    board = ring(window=4)
    board.judge(104)
    assert [board.judge(seq).verdict for seq in (103, 102, 101)] == [fp.Verdict.EXECUTE] * 3


@pytest.mark.parametrize("window", WINDOWS)
def test_numbers_older_than_the_window_are_stale(window: int) -> None:
    board = ring(window, start=100)
    board.judge(132)
    assert board.judge(132 - window).verdict is fp.Verdict.STALE
    assert board.judge((132 - 32768) % 65536).verdict is fp.Verdict.STALE
    assert board.judge((132 + 32767) % 65536).verdict is fp.Verdict.EXECUTE


def test_an_old_copy_never_moves_the_newest_number_back() -> None:
    board = ring(window=4)
    board.judge(110)
    board.judge(107)
    assert board.judge(111).gap == 0


def test_a_new_session_forgets_the_stored_replies() -> None:
    board = ring()
    board.judge(101)
    board.store(101, OK)
    board.open(100)
    assert board.judge(101).verdict is fp.Verdict.EXECUTE


def test_the_ring_keeps_no_reply_above_64_bytes() -> None:
    board = ring()
    board.judge(101)
    board.store(101, fp.StoredReply(0x14, 0, bytes(64)))
    with pytest.raises(ValueError, match="64"):
        board.store(101, fp.StoredReply(0x14, 0, bytes(65)))


@pytest.mark.parametrize("window", [0, 3, 32])
def test_a_window_that_is_no_power_of_two_up_to_16_is_refused(window: int) -> None:
    for kind in (fp.ReplyRing, lambda w: fp.SendWindow(w, 0)):
        with pytest.raises(ValueError, match="window"):
            kind(window)


def test_the_send_window_is_a_span_and_not_a_count() -> None:
    host = fp.SendWindow(4, last=65533)
    first, second, *_ = [host.next_seq() for _ in range(4)]
    assert host.outstanding == (65534, 65535, 0, 1)
    host.mark_answered(second)
    assert not host.can_send()  # three are outstanding, but the span from the oldest is four
    with pytest.raises(ValueError, match="oldest unanswered number is 65534"):
        host.next_seq()
    host.mark_answered(first)
    assert host.next_seq() == 2


def test_a_request_without_reply_takes_a_number_but_no_place() -> None:
    host = fp.SendWindow(1, last=0)
    assert [host.next_seq(awaits_reply=False) for _ in range(3)] == [1, 2, 3]
    assert host.next_seq() == 4
    assert not host.can_send()


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(5))
def test_under_loss_duplicates_and_delay_nothing_runs_twice_and_no_retry_is_refused(window: int, seed: int) -> None:
    dice = random.Random(seed)
    board, host = ring(window, start=65500), fp.SendWindow(window, last=65500)
    executed: Counter[int] = Counter()
    refused_first = 0
    delayed: list[int] = []
    commands: dict[int, int] = {}  # seq -> command number, while unanswered
    sent = 0

    def arrive(seq: int, command: int | None) -> bool:
        """One copy reaches the board; return whether a reply for a waiting command comes back."""
        nonlocal refused_first
        judgement = board.judge(seq)
        if judgement.verdict is fp.Verdict.EXECUTE:
            if command is not None:
                executed[command] += 1
            board.store(seq, OK)
        elif judgement.verdict is fp.Verdict.STALE and command is not None:
            refused_first += 1
        return command is not None and dice.random() > 0.1

    while sent < 600 or commands:
        while sent < 600 and host.can_send():
            commands[host.next_seq()] = sent
            sent += 1
        order = list(commands)
        dice.shuffle(order)
        for seq in order:
            if dice.random() < 0.1:
                continue  # lost on the way
            copies = 2 if dice.random() < 0.2 else 1
            answered = [arrive(seq, commands[seq]) for _ in range(copies)]
            if dice.random() < 0.1:
                delayed.append(seq)
            if any(answered):
                del commands[seq]
                host.mark_answered(seq)
        if delayed and dice.random() < 0.5:
            late = delayed.pop(0)
            before = sum(executed.values())
            arrive(late, commands.get(late))
            assert late in commands or sum(executed.values()) == before
    assert set(executed.values()) == {1}
    assert len(executed) == 600
    assert refused_first == 0


@given(st.lists(st.integers(0, 65535), max_size=60), st.sampled_from(WINDOWS))
def test_whatever_arrives_a_number_never_runs_twice_while_its_slot_holds_it(seqs: list[int], window: int) -> None:
    board = ring(window)
    for seq in seqs:
        if board.judge(seq).verdict is fp.Verdict.EXECUTE:
            board.store(seq, OK)
            assert board.judge(seq).verdict is fp.Verdict.REPLAY
