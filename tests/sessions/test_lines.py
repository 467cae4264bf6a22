"""The sessions of devices that end each reply with a word, and of those that answer with one line."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import assume, given, strategies as st

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConfigError, DeviceError, FrameError, LinkLost, LinkTimeout
from lumion_hw.links import RecordedExchange, ReplayPeer, replay_link
from lumion_hw.sessions.lines import LineSession, OneLineSession
from tests.effort import examples

MARKER = RecordedExchange(b"V?\r\n", b"CH1 0 CH2 0 CH3 0 CH4 0\r\nDone\r\n")
LINES = ("CH1 0 CH2 0 CH3 0 CH4 0",)


def opened(*exchanges: RecordedExchange) -> tuple[LineSession, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer([MARKER, *exchanges], clock)
    session = LineSession(
        replay_link(peer, clock),
        clock,
        device="epc",
        done="Done",
        failed="Error!",
        marker="V?",
        is_marker_reply=lambda lines: bool(lines) and lines[0].startswith("CH1"),
    )
    assert session.open() == LINES
    return session, peer, clock


@pytest.mark.parametrize(
    ("reply", "lines"),
    [
        (b"Done\r\n", ()),
        (b"V1,100\r\nDone\r\n", ()),
        (b"\r\nV1,100\r\n\r\nDone\r\n", ()),
        (b"one\r\ntwo\r\nDone\r\n", ("one", "two")),
        (b"V1,100\r\none\nDone\n", ("one",)),
    ],
    ids=["bare", "echo", "echo and empty lines", "two lines", "echo and line, LF only"],
)
def test_a_reply_gives_its_lines_without_echo_and_end_word(reply: bytes, lines: tuple[str, ...]) -> None:
    session, peer, _ = opened(RecordedExchange(b"V1,100\r\n", reply))
    assert session.command("V1,100") == lines
    assert peer.remaining == ()


@pytest.mark.parametrize("echo", [b"", b"V9,100\r\n"])
def test_the_word_for_failure_is_a_device_error_and_no_taint(echo: bytes) -> None:
    session, _, _ = opened(
        RecordedExchange(b"V9,100\r\n", echo + b"Error!\r\n"), RecordedExchange(b"M?\r\n", b"MDC\r\nDone\r\n")
    )
    with pytest.raises(DeviceError, match="refused") as caught:
        session.command("V9,100")
    assert caught.value.command == "V9,100"
    assert not session.is_out_of_sync
    assert session.command("M?") == ("MDC",)


def test_a_late_reply_answers_no_other_command() -> None:
    session, _, _ = opened(
        RecordedExchange(b"M?\r\n", b"MDC\r\nDone\r\n", delay_s=1.1),
        MARKER,
        RecordedExchange(b"F?\r\n", b"10\r\nDone\r\n"),
    )
    with pytest.raises(LinkTimeout):
        session.command("M?")
    assert session.command("F?") == ("10",)
    assert session.counters.resyncs == 1


def test_a_late_marker_reply_is_not_taken_for_the_next_one() -> None:
    old = b"CH1 9 CH2 9 CH3 9 CH4 9\r\nDone\r\n"
    session, _, _ = opened(
        RecordedExchange(b"V?\r\n", old, delay_s=1.5),
        RecordedExchange(b"V?\r\n", MARKER.received, delay_s=0.35),
        MARKER,
        MARKER,
    )
    with pytest.raises(LinkTimeout):
        session.command("V?")
    assert session.command("V?") == LINES


def test_a_device_that_stays_silent_is_lost() -> None:
    silent = RecordedExchange(b"V?\r\n")
    session, _, _ = opened(RecordedExchange(b"M?\r\n"), silent, silent, silent)
    with pytest.raises(LinkTimeout):
        session.command("M?")
    with pytest.raises(LinkLost, match="could not resynchronise"):
        session.command("M?")


def test_garbage_is_refused_and_recovered_from() -> None:
    session, _, _ = opened(
        RecordedExchange(b"M?\r\n", b"\xff\xff\r\nDone\r\n"), MARKER, RecordedExchange(b"M?\r\n", b"MDC\r\nDone\r\n")
    )
    with pytest.raises(FrameError, match="not text"):
        session.command("M?")
    assert session.command("M?") == ("MDC",)


def test_a_reply_without_end_is_refused() -> None:
    session, _, _ = opened(RecordedExchange(b"M?\r\n", b"x\r\n" * 1001))
    with pytest.raises(FrameError, match="has no end word"):
        session.command("M?")


@pytest.mark.parametrize("text", ["", "V?\r\nV?", "V1,5\N{DEGREE SIGN}"])
def test_what_is_not_one_line_is_not_sent(text: str) -> None:
    session, _, _ = opened()
    with pytest.raises(ConfigError):
        session.command(text)


@examples(30)
@given(
    echo=st.booleans(),
    lines=st.lists(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20), max_size=5),
    succeeded=st.booleans(),
)
def test_any_reply_gives_its_lines_and_its_end(echo: bool, lines: list[str], succeeded: bool) -> None:
    assume(not {"Done", "Error!", "X?"} & set(lines))
    told = [*(["X?"] if echo else []), *lines, "Done" if succeeded else "Error!"]
    session, _, _ = opened(RecordedExchange(b"X?\r\n", "".join(f"{line}\r\n" for line in told).encode()))
    if succeeded:
        assert session.command("X?") == tuple(lines)
    else:
        with pytest.raises(DeviceError):
            session.command("X?")
    assert not session.is_out_of_sync


@examples(30)
@given(garbage=st.binary(max_size=60))
def test_no_bytes_raise_anything_but_the_errors_of_the_tree(garbage: bytes) -> None:
    session, _, _ = opened(
        RecordedExchange(b"X?\r\n", garbage), MARKER, MARKER, RecordedExchange(b"M?\r\n", b"MDC\r\nDone\r\n")
    )
    with contextlib.suppress(FrameError, LinkTimeout):
        session.command("X?")
    if session.is_out_of_sync:
        with contextlib.suppress(LinkLost):  # the second marker of the conversation may not be needed
            assert session.command("M?") == ("MDC",)


@pytest.mark.parametrize("spoilt", [b"", b"Error!\r\n", b"\xff\xfe\r\n"])
def test_bytes_left_by_another_program_spoil_only_the_first_command(spoilt: bytes) -> None:
    clock = VirtualClock()
    peer = ReplayPeer([RecordedExchange(b"V?\r\n", spoilt), MARKER], clock)
    session = LineSession(
        replay_link(peer, clock), clock, device="epc", done="Done", failed="Error!", marker="V?", is_marker_reply=bool
    )
    assert session.open() == LINES
    assert peer.remaining == ()


# One line without an end word -----------------------------------------------------------------------------------------


def one_line(*exchanges: RecordedExchange, line_end: str = "\n") -> tuple[OneLineSession, ReplayPeer]:
    clock = VirtualClock()
    peer = ReplayPeer([RecordedExchange(f"W?{line_end}".encode(), b"1550\r\n"), *exchanges], clock)
    session = OneLineSession(
        replay_link(peer, clock), clock, device="meter", marker="W?", marker_reply=r"\d{4}", line_end=line_end
    )
    assert session.open() == "1550"
    return session, peer


@pytest.mark.parametrize(
    "reply", [b"+1.2E-05\n", b"+1.2E-05\r\n", b"+1.2E-05\r", b"D?\r\n+1.2E-05\r\n", b"\r\n+1.2E-05\r\n"]
)
def test_a_query_is_answered_by_one_line_without_its_echo(reply: bytes) -> None:
    session, peer = one_line(RecordedExchange(b"D?\n", reply), RecordedExchange(b"D?\n", b"+3.0E-05\r\n"))
    assert [session.query("D?"), session.query("D?")] == ["+1.2E-05", "+3.0E-05"]
    assert not session.is_out_of_sync
    assert peer.remaining == ()


def test_a_command_waits_for_no_reply() -> None:
    session, peer = one_line(RecordedExchange(b"F3\r", b""), RecordedExchange(b"F?\r", b"3\r"), line_end="\r")
    session.write("F3")
    assert session.query("F?") == "3"
    assert peer.remaining == ()


def test_a_reply_of_another_form_is_an_error_and_the_marker_restores_order() -> None:
    session, peer = one_line(
        RecordedExchange(b"D?\n", b"3\r\n"),
        RecordedExchange(b"W?\n", b"+1.2E-05\r\n"),  # a late reply, which does not pass for that of the marker
        RecordedExchange(b"W?\n", b"1550\r\n"),
        RecordedExchange(b"D?\n", b"+1.2E-05\r\n"),
    )
    with pytest.raises(FrameError, match=r"D\?: the reply is '3'"):
        session.query("D?", expected=r"[+-]\d\.\dE[+-]\d\d")
    assert session.query("D?") == "+1.2E-05"
    assert peer.remaining == ()


def test_silence_is_a_time_out_and_a_device_that_stays_silent_is_lost() -> None:
    session, _ = one_line(RecordedExchange(b"D?\n", b""), *[RecordedExchange(b"W?\n", b"")] * 3)
    with pytest.raises(LinkTimeout):
        session.query("D?")
    with pytest.raises(LinkLost):
        session.query("D?")


@pytest.mark.parametrize("text", ["", "D?\n", "é"])
def test_what_is_no_line_is_refused_before_it_is_sent(text: str) -> None:
    session, peer = one_line()
    for send in (session.query, session.write):
        with pytest.raises(ConfigError, match="is not a command"):
            send(text)
    assert peer.remaining == ()
