"""Telemetry credits: absolute limits, numbers only for what is sent, and every loss counted once (section 9)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

import firmware_protocol as fp

u32 = st.integers(0, 0xFFFFFFFF)


def test_an_event_is_sent_only_while_the_limit_is_newer_than_its_number() -> None:
    board = fp.EventCredit(2)
    assert [board.send(), board.send()] == [0, 1]
    assert not board.can_send()
    with pytest.raises(ValueError, match="no credit for event 2"):
        board.send()


def test_a_discarded_record_takes_no_number() -> None:
    board = fp.EventCredit(1)
    board.send()
    board.discard(3)
    board.renew(5)
    assert (board.send(), board.dropped) == (1, 3)


def test_a_limit_never_moves_back_and_a_doubled_renewal_does_no_harm() -> None:
    board = fp.EventCredit(8)
    for limit in (16, 12, 16, 8):
        board.renew(limit)
    assert board.credit_limit == 16


def test_no_credit_at_all_sends_nothing() -> None:
    assert not fp.EventCredit(0).can_send()


def test_numbers_and_limits_count_around_the_wrap() -> None:
    board = fp.EventCredit(0)
    board.next_event = board.credit_limit = 0xFFFFFFFF
    board.renew(1)
    assert [board.send(), board.send()] == [0xFFFFFFFF, 0]
    assert not board.can_send()


@given(u32, u32)
def test_the_later_of_two_limits_is_never_older_than_the_present_one(present: int, offered: int) -> None:
    assert not fp.is_newer(present, fp.later_limit(present, offered))


def test_a_gap_in_seq_is_what_the_wire_has_lost() -> None:
    host = fp.EventTrack(16)
    assert [host.receive(seq, dropped=2) for seq in (0, 1, 4)] == [0, 1, 4]
    assert (host.received, host.lost, host.dropped) == (3, 2, 2)


def test_a_copy_of_an_event_is_thrown_away() -> None:
    host = fp.EventTrack(16)
    host.receive(0, 0)
    host.receive(1, 0)
    assert host.receive(1, 0) is None
    assert host.receive(0, 9) is None
    assert (host.received, host.lost, host.repeated, host.dropped) == (2, 0, 2, 0)


def test_event_numbers_continue_beyond_the_16_bits_of_the_header() -> None:
    host = fp.EventTrack(4)
    host.next_event = 0x1FFFE
    assert [host.receive(seq, 0) for seq in (0xFFFE, 0xFFFF, 0x0001)] == [0x1FFFE, 0x1FFFF, 0x20001]
    assert host.lost == 1


def test_a_host_renews_when_half_of_the_credit_is_used() -> None:
    host = fp.EventTrack(8)
    limits = []
    for seq in range(12):
        host.receive(seq, 0)
        limit = host.renewal()
        if limit is not None:
            host.grant(limit)
        limits.append(limit)
    # Limit 8: four are left after event 3, so the limit becomes 4 + 8; after event 7 it becomes 8 + 8.
    assert limits == [None, None, None, 12, None, None, None, 16, None, None, None, 20]


def test_the_reply_of_a_renewal_shows_the_losses_behind_which_nothing_came() -> None:
    host = fp.EventTrack(8)
    host.receive(0, 0)
    assert host.count_final_losses(next_event=8, dropped=5) == 7
    assert (host.lost, host.dropped, host.renewal()) == (7, 5, 16)
    assert host.count_final_losses(next_event=8, dropped=5) == 0
    assert host.receive(3, 0) is None


def test_an_old_reply_moves_nothing_back() -> None:
    host = fp.EventTrack(8)
    for seq in range(5):
        host.receive(seq, 0)
    assert host.count_final_losses(next_event=2, dropped=0) == 0
    assert host.next_event == 5


def test_a_window_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="window is 0"):
        fp.EventTrack(0)


@pytest.mark.parametrize("seed", range(10))
def test_records_taken_are_received_dropped_or_lost_and_none_is_counted_twice(seed: int) -> None:
    dice = random.Random(seed)
    board, host = fp.EventCredit(16), fp.EventTrack(16)
    taken = 0
    for _ in range(3000):
        taken += 1
        if board.can_send():
            seq = board.send() & 0xFFFF
            for _ in range(dice.choices((0, 1, 2), (10, 85, 5))[0]):
                host.receive(seq, board.dropped)
        else:
            board.discard()
        limit = host.renewal()
        if limit is not None and dice.random() < 0.5:
            host.grant(limit)
            board.renew(limit)
        if dice.random() < 0.02:  # sometimes a renewal gets a reply
            board.renew((host.next_event + host.window) % (1 << 32))
            host.count_final_losses(board.next_event, board.dropped)
    host.count_final_losses(board.next_event, board.dropped)
    assert taken == host.received + host.lost + host.dropped
    assert host.received > 1500
