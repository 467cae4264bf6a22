"""The session of a Qontrol chain: what is believed, what is raised, and how it gets back in step."""

from __future__ import annotations

import contextlib
import threading

import pytest
from hypothesis import given, strategies as st

from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.errors import DeviceError, FrameError, IdentityError, LinkLost, LinkTimeout
from lumion_hw.links import MemoryLink, RecordedExchange, ReplayPeer, replay_link
from lumion_hw.links.fault import Direction, FaultEvent, FaultKind, FaultLink, FaultPlan
from lumion_hw.sessions.codecs.qontrol import (
    CHAIN_ENTRY_LINE,
    CURRENT_LINE,
    Quantity,
    encode_read_all_text,
    encode_set_channel_text,
    encode_text_request,
)
from lumion_hw.sessions.qontrol import QontrolSession
from tests.drivers.mesh.qontrol.qontrol_wire import ModelChain, lines
from tests.effort import examples
from tests.waiting import PATIENCE_S

MARKER = RecordedExchange(b"ID?\n", b"Q8iv-0001\n")
OK = b"OK\n"


def sets(*channels: int) -> list:
    return [encode_set_channel_text(Quantity.CURRENT, channel, 1.0) for channel in channels]


def ask_i(channel: int):
    return encode_text_request(f"I{channel}?", CURRENT_LINE)


def opened(*exchanges: RecordedExchange, **options) -> tuple[QontrolSession, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer([MARKER, *exchanges], clock)
    session = QontrolSession(replay_link(peer, clock), clock, device="mesh0", **options)
    assert session.open() == "Q8iv-0001"
    return session, peer, clock


def test_a_reply_has_as_many_lines_as_the_request_says() -> None:
    session, peer, _ = opened(RecordedExchange(b"IALL?\n", lines("+4.5000 mA", "-0.0033 mA")))
    assert session.query_lines(encode_read_all_text(Quantity.CURRENT, 2)) == ("+4.5000 mA", "-0.0033 mA")
    assert peer.remaining == ()


def test_requests_go_ahead_of_their_replies_up_to_the_window() -> None:
    exchanges = [RecordedExchange(f"I{channel}=1.0\n".encode(), OK, delay_s=0.016) for channel in range(8)]
    session, _, clock = opened(*exchanges, window_bytes=28)  # four requests of seven bytes
    started_s = clock.now()
    assert session.run(sets(*range(8))) == [("OK",)] * 8
    assert clock.now() - started_s == pytest.approx(2 * 0.016, abs=1e-4)


def test_without_a_window_every_request_waits_for_its_reply() -> None:
    exchanges = [RecordedExchange(f"I{channel}=1.0\n".encode(), OK, delay_s=0.016) for channel in range(8)]
    session, _, clock = opened(*exchanges, window_bytes=0)
    started_s = clock.now()
    session.run(sets(*range(8)))
    assert clock.now() - started_s == pytest.approx(8 * 0.016, abs=1e-4)


@pytest.mark.parametrize("code", [0, 10, 11, 12, 13, 14, 16])
def test_a_refused_request_raises_at_once(code: int) -> None:
    session, _, clock = opened(RecordedExchange(b"I3=1.0\n", f"E{code:02d}:03\n".encode()))
    started_s = clock.now()
    with pytest.raises(DeviceError, match=r"I3=1\.0") as caught:
        session.run(sets(3))
    assert (caught.value.code, caught.value.command) == (code, "I3=1.0")
    assert clock.now() - started_s < 0.01
    assert session.take_reports() == ()


def test_a_set_that_gets_an_error_and_no_acknowledgement_raises_at_the_deadline() -> None:
    session, _, clock = opened(RecordedExchange(b"I3=1.0\n", b"E01:03\n"))
    with pytest.raises(DeviceError, match=r"refused with E01 OVER_VOLTAGE") as caught:
        session.run(sets(3))
    assert caught.value.code == 1
    assert clock.now() < 1.0


@pytest.mark.parametrize(
    ("reply", "reports"),
    [
        # recorded: currents set one by one on two modules
        (["OK", "E01:00"], [(1, 0)]),
        (["OK", "E01:02", "E01:03"], [(1, 2), (1, 3)]),
        (["OK", "E30:00"], [(30, 0)]),
        (["E01:06", "E01:05", "OK"], [(1, 6), (1, 5)]),
        (["E01:03", "OK"], [(1, 3)]),
    ],
)
def test_error_lines_around_an_acknowledgement_are_reports(reply: list[str], reports: list[tuple[int, int]]) -> None:
    session, _, _ = opened(RecordedExchange(b"I3=1.0\n", lines(*reply)), RecordedExchange(b"I4=1.0\n", OK))
    session.run(sets(3))
    session.run(sets(4))
    assert [(report.code, report.channel) for report in session.take_reports()] == reports
    assert session.take_reports() == ()
    assert session.counters.incomplete == 0


def test_error_lines_inside_a_reading_do_not_end_it() -> None:
    session, _, _ = opened(
        RecordedExchange(b"I0?\n", lines("E01:07", "+2.0063 mA", "E01:06")), RecordedExchange(b"I1?\n", b"+1.0000 mA\n")
    )
    assert session.query_lines(ask_i(0)) == ("+2.0063 mA",)
    assert session.query_lines(ask_i(1)) == ("+1.0000 mA",)
    assert [report.channel for report in session.take_reports()] == [7, 6]


def test_a_report_that_comes_in_silence_is_heard_without_asking() -> None:
    clock = VirtualClock()
    model = ModelChain(clock)
    session = QontrolSession(MemoryLink(model.connect, clock, "model"), clock, device="mesh0")
    session.open()
    model.say("E02:04", after_s=0.2)
    session.listen()
    assert session.take_reports() == ()
    clock.sleep(0.3)
    session.listen()
    report = session.take_reports()[0]
    assert (report.code, report.channel, report.during, str(report)) == (2, 4, "", "E02:04 OVER_CURRENT")
    assert not session.is_out_of_sync


def test_a_late_reply_answers_no_other_request() -> None:
    session, _, clock = opened(
        RecordedExchange(b"I1?\n", b"+1.1111 mA\n", delay_s=0.6), MARKER, RecordedExchange(b"I3?\n", b"+3.3333 mA\n")
    )
    with pytest.raises(LinkTimeout):
        session.query_lines(ask_i(1))
    clock.sleep(0.2)
    assert session.query_lines(ask_i(3)) == ("+3.3333 mA",)
    assert session.counters.resyncs == 1


def test_serial_errors_are_repeated_three_times_and_no_more() -> None:
    failed = RecordedExchange(b"I3=1.0\n", b"E15:00\n")
    session, peer, _ = opened(failed, MARKER, failed, MARKER, RecordedExchange(b"I3=1.0\n", OK))
    assert session.run(sets(3)) == [("OK",)]
    assert peer.remaining == ()
    session, peer, _ = opened(failed, MARKER, failed, MARKER, failed, RecordedExchange(b"never"))
    with pytest.raises(DeviceError, match="E15") as caught:
        session.run(sets(3))
    assert caught.value.code == 15
    assert len(peer.remaining) == 1


@pytest.mark.parametrize(
    "reply",
    [b"+1.2e-03 mA\n", b"+1.2000 V\n", b"OK\n", b"\xff\xfe\n", b"+1.2000 mA +1.3000 mA\n", b"\n", b"\x06OK\n"],
    ids=["exponent", "other unit", "acknowledgement", "not text", "two values", "empty line", "control"],
)
def test_a_line_of_another_shape_is_refused_and_recovered_from(reply: bytes) -> None:
    session, _, _ = opened(RecordedExchange(b"I3?\n", reply), MARKER, RecordedExchange(b"I3?\n", b"+1.2000 mA\n"))
    with pytest.raises(FrameError, match="does not fit this request"):
        session.query_lines(ask_i(3))
    assert session.query_lines(ask_i(3)) == ("+1.2000 mA",)


def test_carriage_returns_and_the_echo_of_old_firmware_do_no_harm() -> None:
    session, _, _ = opened(
        RecordedExchange(b"I3=1.0\n", b"I3=1.0\nOK\r\n"), RecordedExchange(b"I3?\n", b"I3?\r\n+1.0000 mA\r\n")
    )
    assert session.run(sets(3)) == [("OK",)]
    assert session.query_lines(ask_i(3)) == ("+1.0000 mA",)


def test_a_line_without_its_end_is_no_line() -> None:
    session, _, _ = opened(
        RecordedExchange(b"I3?\n", b"+1.2000 mA"), MARKER, RecordedExchange(b"I3?\n", b"+1.3000 mA\n")
    )
    with pytest.raises(LinkTimeout, match="incomplete reply"):
        session.query_lines(ask_i(3))
    assert session.query_lines(ask_i(3)) == ("+1.3000 mA",)


def test_bytes_nobody_asked_for_lead_to_a_resynchronisation() -> None:
    session, _, _ = opened(
        RecordedExchange(b"I3?\n", b"+1.0000 mA\nOK\n"), MARKER, RecordedExchange(b"I4?\n", b"+4.0000 mA\n")
    )
    session.query_lines(ask_i(3))
    assert session.query_lines(ask_i(4)) == ("+4.0000 mA",)
    assert session.counters.foreign_bytes == 3


def test_reports_are_not_lost_while_it_resynchronises() -> None:
    session, _, _ = opened(
        RecordedExchange(b"I3?\n"),
        RecordedExchange(b"ID?\n", lines("E02:01", "Q8iv-0001")),
        RecordedExchange(b"I3?\n", b"+1.0000 mA\n"),
    )
    with pytest.raises(LinkTimeout):
        session.query_lines(ask_i(3))
    session.query_lines(ask_i(3))
    assert [(report.code, report.channel) for report in session.take_reports()] == [(2, 1)]


def test_the_remains_of_a_request_spoil_one_question_and_not_the_next() -> None:
    session, _, _ = opened(
        RecordedExchange(b"I3?\n"),
        RecordedExchange(b"ID?\n", b"E10:00\n"),
        MARKER,
        RecordedExchange(b"I3?\n", b"+1.0000 mA\n"),
    )
    with pytest.raises(LinkTimeout):
        session.query_lines(ask_i(3))
    assert session.query_lines(ask_i(3)) == ("+1.0000 mA",)


def test_a_silent_chain_is_lost() -> None:
    session, _, _ = opened(RecordedExchange(b"I3?\n"), *[RecordedExchange(b"ID?\n")] * 3)
    with pytest.raises(LinkTimeout):
        session.query_lines(ask_i(3))
    with pytest.raises(LinkLost, match="could not resynchronise"):
        session.query_lines(ask_i(3))


def test_another_first_module_is_refused() -> None:
    session, _, _ = opened(RecordedExchange(b"ID?\n", b"Q8iv-0002\n"))
    with pytest.raises(IdentityError, match="Q8iv-0002"):
        session.check_identity()


def test_a_list_ends_with_silence() -> None:
    request = encode_text_request("NUPALL?", CHAIN_ENTRY_LINE)
    session, _, _ = opened(
        RecordedExchange(b"NUPALL?\n", b"Q8iv-0001: 0\n"),
        RecordedExchange(b"", b""),
        RecordedExchange(b"NUPALL?\n", b"Q8iv-0001: 0\nQ8i"),
    )
    assert session.request_list(request) == ("Q8iv-0001: 0",)
    with pytest.raises(LinkTimeout):
        session.request_list(request)


def test_renumbering_counts_the_modules_that_answer() -> None:
    session, _, _ = opened(RecordedExchange(b"NUP=0\n", b"\x06OK\n\x06OK\n"))
    assert session.renumber() == 2


class Babbler:
    """A device that never stops saying the same."""

    def __init__(self, clock: VirtualClock, line: bytes) -> None:
        self._clock = clock
        self._line = line

    def connect(self) -> Babbler:
        return self

    def receive(self, data: bytes) -> None:
        pass

    def transmit(self) -> bytes:
        self._clock.sleep(0.001)
        return self._line

    def next_event(self) -> float | None:
        return None

    def close(self) -> None:
        pass


@pytest.mark.parametrize("line", [b"E01:00\n", b"ID?\n", b"x" * 500, b"\n"])
def test_a_device_that_never_stops_talking_ends_in_an_error_in_time(line: bytes) -> None:
    clock = VirtualClock()
    session = QontrolSession(MemoryLink(Babbler(clock, line).connect, clock, "babble"), clock, device="mesh0")
    for _ in range(3):
        started_s = clock.now()
        with pytest.raises((LinkTimeout, FrameError, DeviceError, LinkLost)):
            session.open(timeout_s=1.0)
        assert clock.now() - started_s < 10.0


@examples(60)
@given(
    garbage=st.one_of(
        st.binary(max_size=60),
        st.lists(st.sampled_from([b"OK\n", b"E01:02\n", b"E15:00\n", b"+1.0000 mA\n", b"\xff\n", b"E", b"\n"])).map(
            b"".join
        ),
    )
)
def test_no_reply_raises_anything_but_the_errors_of_the_tree(garbage: bytes) -> None:
    clock = VirtualClock()
    model = ModelChain(clock)
    session = QontrolSession(MemoryLink(model.connect, clock, "model"), clock, device="mesh0")
    session.open()
    model.instead.append(garbage)
    with contextlib.suppress(FrameError, LinkTimeout, DeviceError):
        session.run([*sets(3), encode_read_all_text(Quantity.CURRENT, 16)])
    assert session.query_lines(encode_read_all_text(Quantity.CURRENT_LIMIT, 16)) == ("+24.0000 mA",) * 16


@examples(30)
@given(
    kind=st.sampled_from([FaultKind.FLIP, FaultKind.DROP, FaultKind.DUPLICATE, FaultKind.BURST, FaultKind.DELAY]),
    direction=st.sampled_from(Direction),
    at_byte=st.integers(4, 400),
    seed=st.integers(0, 50),
)
def test_one_fault_on_the_wire_is_an_error_or_nothing_and_the_session_recovers(
    kind: FaultKind, direction: Direction, at_byte: int, seed: int
) -> None:
    clock = VirtualClock()
    model = ModelChain(clock)
    link = FaultLink(MemoryLink(model.connect, clock, "model"), FaultPlan(), clock, seed)
    session = QontrolSession(link, clock, device="mesh0")
    session.open()
    start = link.counts(direction).accepted
    link.apply(FaultPlan(events=(FaultEvent(kind, direction, start + at_byte, duration_s=0.7),)))
    for channel in range(12):
        with contextlib.suppress(FrameError, LinkTimeout, DeviceError, LinkLost):
            session.run([*sets(channel), encode_read_all_text(Quantity.CURRENT_LIMIT, 16)])
    link.apply(FaultPlan())
    if session.is_out_of_sync:
        session.close()
        session.open()
    assert session.query_lines(encode_read_all_text(Quantity.CURRENT_LIMIT, 16)) == ("+24.0000 mA",) * 16


def test_two_threads_never_get_each_others_replies() -> None:
    clock = SystemClock()
    model = ModelChain(clock)
    model.delay_s = 0.0
    for channel in range(16):
        model.values["IMAX"][channel], model.values["VMAX"][channel] = 7.0, 5.0
    session = QontrolSession(MemoryLink(model.connect, clock, "model"), clock, device="mesh0")
    session.open()
    wrong: list[object] = []

    def ask(quantity: Quantity, expected: str) -> None:
        for _ in range(200):
            if set(session.query_lines(encode_read_all_text(quantity, 16))) != {expected}:
                wrong.append(quantity)

    threads = [
        threading.Thread(target=ask, args=(Quantity.CURRENT_LIMIT, "+7.0000 mA")),
        threading.Thread(target=ask, args=(Quantity.VOLTAGE_LIMIT, "+5.0000 V")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not wrong
    assert session.counters.exchanges == 401
