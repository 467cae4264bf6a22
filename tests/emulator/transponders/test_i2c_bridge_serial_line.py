"""Bytes on the line: UART time in both directions (mesh controller protocol, section 15)."""

from __future__ import annotations

import pytest

from lumion_hw.emulator.wires.serial_line import SerialLine


def test_bytes_arrive_one_by_one_at_the_line_rate() -> None:
    line = SerialLine(9600)
    line.receive(b"abc", 5.0)
    assert line.take_arrived(5.0 + 0.9 * 10 / 9600) is None
    assert line.take_arrived(5.0 + 2.1 * 10 / 9600) == (pytest.approx(5.0 + 2 * 10 / 9600), b"ab")
    assert line.take_arrived(6.0) == (pytest.approx(5.0 + 3 * 10 / 9600), b"c")
    assert line.take_arrived(6.0) is None


def test_a_second_write_waits_for_the_first() -> None:
    line = SerialLine(10)  # one second per byte
    line.receive(b"ab", 0.0)
    line.receive(b"\x00", 1.0)
    assert line.next_arrival(b"\x00") == pytest.approx(3.0)
    assert [line.take_arrived(10.0), line.take_arrived(10.0)] == [(2.0, b"ab"), (3.0, b"\x00")]


def test_a_mark_ends_a_piece_and_has_its_own_time() -> None:
    line = SerialLine(10)
    line.receive(b"aPbQcP", 0.0)
    assert line.next_arrival(b"PQ") == pytest.approx(2.0)
    pieces = []
    while (piece := line.take_arrived(100.0, b"PQ")) is not None:
        pieces.append(piece)
    assert pieces == [(2.0, b"aP"), (4.0, b"bQ"), (6.0, b"cP")]


def test_without_a_rate_nothing_takes_time() -> None:
    line = SerialLine(None)
    line.receive(b"xy", 1.0)
    assert line.take_arrived(0.9) is None
    assert line.take_arrived(1.0) == (1.0, b"xy")
    assert line.send(b"z", 2.0) == 2.0
    assert line.take_departed(1.9) == b""
    assert line.take_departed(2.0) == b"z"


def test_answers_leave_in_order_and_one_by_one() -> None:
    line = SerialLine(10)
    assert line.send(b"ab", 0.0) == 2.0
    assert line.send(b"c", 1.0) == 3.0
    assert line.next_departure() == 2.0
    departed = [line.take_departed(at_s) for at_s in (1.5, 2.0, 2.9, 3.0)]
    assert departed == [b"a", b"b", b"", b"c"]
    assert line.next_departure() is None


def test_clearing_loses_what_is_under_way() -> None:
    line = SerialLine(10)
    line.receive(b"ab", 0.0)
    line.send(b"ab", 0.0)
    line.clear()
    assert line.take_arrived(100.0) is None
    assert line.take_departed(100.0) == b""
    line.receive(b"c", 1.0)
    assert line.take_arrived(2.0) == (2.0, b"c")
