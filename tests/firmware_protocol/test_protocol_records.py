"""Records of a run: indexes, the ring, the push limit and the records that a host requests (sections 10.3 and 10.4)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

import firmware_protocol as fp


def test_a_record_index_is_pass_times_points_plus_point() -> None:
    assert fp.record_index(3, 17, 240) == 737
    assert fp.record_position(737, 240) == (3, 17)


@pytest.mark.parametrize(("points", "repeat"), [(1 << 16, 1 << 15), (1, 0), (0, 1), (1 << 31, 1)])
def test_a_run_has_at_least_one_and_less_than_two_to_the_31_records(points: int, repeat: int) -> None:
    assert fp.run_records((1 << 31) - 1, 1) == (1 << 31) - 1
    assert fp.run_records(240, 3) == 720
    with pytest.raises(ValueError, match="records"):
        fp.run_records(points, repeat)


def test_the_result_memory_holds_whole_records() -> None:
    assert fp.ring_capacity(4096, 3) == 1365
    assert fp.ring_capacity(2, 3) == 0
    with pytest.raises(ValueError, match="at least one"):
        fp.ring_capacity(4096, 0)


def test_the_mtu_limits_the_records_of_one_frame() -> None:
    # MTU 512 leaves 496 bytes of payload: (496 - 16) / 128 = 3 records of 64 values; 468 / 128 = 3; at 256 one.
    assert fp.max_elements(fp.SweepDataEvent, 512, 64) == 3
    assert fp.max_elements(fp.SweepReadReply, 512, 64) == 3
    assert fp.max_elements(fp.SweepDataEvent, 256, 64) == 1
    assert fp.max_elements(fp.SweepDataEvent, 256, 113) == 0
    with pytest.raises(ValueError, match="no array"):
        fp.max_elements(fp.PingRequest, 512)


def test_a_full_ring_pauses_the_run_until_the_host_acknowledges() -> None:
    ring = fp.RecordRing(3, credit_limit=0)
    assert [ring.produce() for _ in range(3)] == [0, 1, 2]
    assert ring.paused
    with pytest.raises(ValueError, match="paused"):
        ring.produce()
    ring.acknowledge(2, 0)
    assert not ring.paused
    assert (ring.produce(), ring.oldest, ring.dropped) == (3, 2, 0)


def test_with_overwrite_the_oldest_record_goes_and_is_counted() -> None:
    ring = fp.RecordRing(3, credit_limit=0, overwrite=True)
    for _ in range(5):
        ring.produce()
    assert (ring.produced, ring.oldest, ring.dropped, ring.paused) == (5, 2, 2, False)


def test_what_was_acknowledged_is_released_and_not_dropped() -> None:
    ring = fp.RecordRing(3, credit_limit=0, overwrite=True)
    for index in range(5):
        ring.produce()
        ring.acknowledge(index + 1, 0)
    assert ring.dropped == 0


def test_acknowledgements_and_limits_never_move_back() -> None:
    ring = fp.RecordRing(8, credit_limit=4)
    for _ in range(6):
        ring.produce()
    ring.acknowledge(5, 12)
    ring.acknowledge(3, 8)
    assert (ring.oldest, ring.credit_limit) == (5, 12)


def test_what_was_never_produced_cannot_be_acknowledged() -> None:
    ring = fp.RecordRing(8, credit_limit=4)
    ring.produce()
    with pytest.raises(ValueError, match="above the number of produced records, 1"):
        ring.acknowledge(2, 100)
    assert (ring.oldest, ring.credit_limit) == (0, 4)


def test_records_are_pushed_once_in_order_and_only_below_the_limit() -> None:
    ring = fp.RecordRing(10, credit_limit=4)
    for _ in range(6):
        ring.produce()
    assert ring.pushable() == range(4)
    ring.pushed(range(3))
    assert ring.pushable() == range(3, 4)
    ring.acknowledge(0, 100)
    assert ring.pushable() == range(3, 6)


def test_a_record_that_is_gone_is_not_pushed() -> None:
    ring = fp.RecordRing(2, credit_limit=100, overwrite=True)
    for _ in range(5):
        ring.produce()
    assert ring.pushable() == range(3, 5)


def test_without_credit_nothing_is_pushed() -> None:
    ring = fp.RecordRing(2, credit_limit=0)
    ring.produce()
    assert len(ring.pushable()) == 0


def test_a_read_gives_what_is_there_and_overflows_below_the_oldest() -> None:
    ring = fp.RecordRing(4, credit_limit=0, overwrite=True)
    for _ in range(6):
        ring.produce()
    assert ring.readable(2, 3) == range(2, 5)
    assert ring.readable(4, 9) == range(4, 6)
    assert ring.readable(1, 1) is None
    assert ring.readable(0, 0) == range(0)  # the state alone can always be requested
    assert len(ring.readable(9, 5) or ()) == 0


def test_a_ring_without_room_for_one_record_is_refused() -> None:
    with pytest.raises(ValueError, match="too small for one record"):
        fp.RecordRing(0, 0)


def test_a_host_finds_the_holes_and_closes_them() -> None:
    host = fp.RecordTrack(100)
    assert host.receive(0, 2) == [range(2)]
    assert host.receive(5, 3) == [range(5, 8)]
    assert host.receive(10, 1) == [range(10, 11)]
    assert host.missing(12) == [range(2, 5), range(8, 10), range(11, 12)]
    assert host.missing(4) == [range(2, 4)]
    assert host.receive(1, 8) == [range(2, 5), range(8, 9)]  # what had arrived before is not new
    assert (host.contiguous_end, host.missing(12)) == (9, [range(9, 10), range(11, 12)])
    assert host.acknowledgement() == (9, 109)


def test_records_the_board_has_overwritten_are_named_and_given_up() -> None:
    host = fp.RecordTrack(8)
    host.receive(3, 2)
    assert host.give_up(7) == [range(3), range(5, 7)]
    assert host.contiguous_end == 7
    assert host.give_up(2) == []


def test_a_window_without_room_for_a_record_is_refused() -> None:
    with pytest.raises(ValueError, match="window is 0"):
        fp.RecordTrack(0)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=30))
def test_whatever_the_order_each_index_is_new_exactly_once(pieces: list[tuple[int, int]]) -> None:
    host = fp.RecordTrack(10)
    seen: set[int] = set()
    for first, count in pieces:
        fresh = [index for part in host.receive(first, count) for index in part]
        assert fresh == sorted(set(range(first, first + count)) - seen)
        seen |= set(range(first, first + count))
        missing = [index for hole in host.missing(80) for index in hole]
        assert missing == sorted(set(range(80)) - seen)
        assert host.contiguous_end == min(set(range(81)) - seen)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_under_loss_a_host_gets_every_record_or_knows_which_were_overwritten(seed: int, overwrite: bool) -> None:
    dice = random.Random(seed)
    ring, host = fp.RecordRing(16, 8, overwrite=overwrite), fp.RecordTrack(8)
    received: list[int] = []
    given_up: list[int] = []
    total = 400
    for _ in range(20_000):
        if ring.produced < total and not ring.paused:
            ring.produce()
        wave = ring.pushable()[: dice.randint(1, 4)]
        if wave:
            ring.pushed(wave)
            if dice.random() < 0.7:
                received += [index for part in host.receive(wave.start, len(wave)) for index in part]
        if dice.random() < 0.3:
            holes = host.missing(ring.produced)
            found = ring.readable(holes[0].start, 4) if holes else range(0)
            if found is None:
                given_up += [index for part in host.give_up(ring.oldest) for index in part]
            else:
                received += [index for part in host.receive(found.start, len(found)) for index in part]
        if dice.random() < 0.3:
            ring.acknowledge(*host.acknowledgement())
        if host.contiguous_end == total:
            break
    assert sorted(received + given_up) == list(range(total))
    assert ring.dropped >= len(given_up)
    assert not (given_up and not overwrite)
