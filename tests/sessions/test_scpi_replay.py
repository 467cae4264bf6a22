"""The SCPI session in written-down conversations, on virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConfigError, FrameError, IdentityError, LinkLost, LinkTimeout
from lumion_hw.links import RecordedExchange, ReplayPeer, replay_link
from lumion_hw.sessions.scpi import ScpiSession

IDN = b"Keysight Technologies,N7745C,MY00000001,1.0"
IDENTITY = RecordedExchange(b"*IDN?\n", IDN + b"\n")


def opened(*exchanges: RecordedExchange, **options: object) -> tuple[ScpiSession, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer([IDENTITY, *exchanges], clock)
    session = ScpiSession(replay_link(peer, clock), clock, device="meter", **options)  # type: ignore[arg-type]
    assert session.open() == IDN.decode()
    return session, peer, clock


def test_a_query_gives_the_reply_without_its_terminator() -> None:
    session, peer, _ = opened(RecordedExchange(b"READ1:POW?\n", b"+1.33555600E-006\r\n"))
    assert session.query("READ1:POW?") == "+1.33555600E-006"
    assert peer.remaining == ()


def test_a_reply_in_pieces_is_one_reply() -> None:
    session, _, clock = opened(RecordedExchange(b"UNIT", b""), RecordedExchange(b"?\n", b"1\n"))
    assert session.query("UNIT?") == "1"
    assert clock.now() < 1.0


@pytest.mark.parametrize("pieces", [[b"1\r"], [b"1\r\n"], [b"1\r", b"\n"], [b"1\n"]])
def test_where_messages_end_with_cr_alone_replies_may_too(pieces: list[bytes]) -> None:
    clock = VirtualClock()
    late = [RecordedExchange(b"", piece, 0.01) for piece in pieces[1:]]
    conversation = [
        RecordedExchange(b"*IDN?\r", IDN + b"\r"),
        RecordedExchange(b"POW:UNIT?\r", pieces[0]),
        *late,
        RecordedExchange(b"READ:DAT?\r", b"#12\r\n"),
        RecordedExchange(b"WAV?\r", b"1550.0000\r"),
    ]
    peer = ReplayPeer(conversation, clock)
    session = ScpiSession(replay_link(peer, clock), clock, device="laser", terminator=b"\r")
    assert session.open() == IDN.decode()
    assert session.query("POW:UNIT?") == "1"
    clock.sleep(0.1)
    assert session.query_block("READ:DAT?") == b"\r\n"
    assert session.query("WAV?") == "1550.0000"
    assert peer.remaining == ()
    assert session.counters.foreign_bytes == 0


def test_a_command_has_no_reply() -> None:
    session, peer, _ = opened(RecordedExchange(b"SENS1:POW:UNIT 1\n"))
    session.write("SENS1:POW:UNIT 1")
    assert peer.remaining == ()


@pytest.mark.parametrize(
    "call",
    [
        lambda session: session.query("*CLS"),
        lambda session: session.write("*IDN?"),
        lambda session: session.write(""),
        lambda session: session.write("*CLS\nREAD?"),
        lambda session: session.query("µ?"),
    ],
    ids=["query without ?", "write with ?", "empty", "two lines", "not ASCII"],
)
def test_what_would_break_the_conversation_is_not_sent(call: Callable[[ScpiSession], object]) -> None:
    session, _, _ = opened()
    with pytest.raises(ConfigError):
        call(session)
    assert not session.is_out_of_sync


def test_a_missing_reply_is_a_time_out_that_names_all_there_is_to_know() -> None:
    session, _, clock = opened(RecordedExchange(b"READ1:POW?\n", b"+1.33"))
    started = clock.now()
    with pytest.raises(LinkTimeout) as caught:
        session.query("READ1:POW?", timeout_s=0.5)
    assert clock.now() - started == pytest.approx(0.5)
    for part in ("meter @ replay", "READ1:POW?", "+1.33", "0.5 s"):
        assert part in str(caught.value)
    assert session.is_out_of_sync


def test_after_a_time_out_the_late_reply_answers_no_other_query() -> None:
    session, peer, _ = opened(
        RecordedExchange(b"A?\n", b"answer to A\n", delay_s=2.5), IDENTITY, RecordedExchange(b"B?\n", b"answer to B\n")
    )
    with pytest.raises(LinkTimeout):
        session.query("A?", timeout_s=0.5)
    assert session.query("B?") == "answer to B"
    assert session.counters.resyncs == 1
    assert session.counters.timeouts == 1
    assert session.counters.foreign_bytes >= len("answer to A\n")
    assert peer.remaining == ()


def test_a_late_reply_in_front_of_the_marker_is_passed_over() -> None:
    session, _, _ = opened(
        RecordedExchange(b"A?\n", b""),
        RecordedExchange(b"*IDN?\n", b"answer to A\n" + IDN + b"\n"),
        RecordedExchange(b"B?\n", b"2\n"),
    )
    with pytest.raises(LinkTimeout):
        session.query("A?")
    assert session.query("B?") == "2"


def test_a_marker_that_comes_too_late_does_not_answer_the_next_query() -> None:
    late = RecordedExchange(b"*IDN?\n", IDN + b"\n", delay_s=2.01)
    session, _, _ = opened(RecordedExchange(b"A?\n", b""), late, IDENTITY, RecordedExchange(b"B?\n", b"2\n"))
    with pytest.raises(LinkTimeout):
        session.query("A?")
    assert session.query("B?") == "2"


def test_an_identity_in_answer_to_another_query_is_refused() -> None:
    session, _, _ = opened(RecordedExchange(b"B?\n", IDN + b"\n"), IDENTITY, RecordedExchange(b"B?\n", b"2\n"))
    with pytest.raises(FrameError, match="earlier identity query"):
        session.query("B?")
    assert session.query("B?") == "2"


def test_a_device_that_stays_silent_is_lost_after_three_rounds() -> None:
    silent = RecordedExchange(b"*IDN?\n", b"")
    session, peer, _ = opened(RecordedExchange(b"A?\n", b""), silent, silent, silent, RecordedExchange(b"B?\n", b"2\n"))
    with pytest.raises(LinkTimeout):
        session.query("A?")
    with pytest.raises(LinkLost, match="could not resynchronise"):
        session.query("B?")
    assert len(peer.remaining) == 1  # B? was never sent
    with pytest.raises(LinkLost, match="closed"):
        session.query("B?")


def test_another_identity_is_no_marker() -> None:
    other = RecordedExchange(b"*IDN?\n", b"Keysight Technologies,N7745C,MY99999999,1.0\n")
    session, _, _ = opened(RecordedExchange(b"A?\n", b""), other, other, other)
    with pytest.raises(LinkTimeout):
        session.query("A?")
    with pytest.raises(LinkLost):
        session.query("B?")


def test_two_replies_to_one_query_are_noticed_before_the_next() -> None:
    session, _, _ = opened(RecordedExchange(b"A?\n", b"1\n2\n"), IDENTITY, RecordedExchange(b"B?\n", b"3\n"))
    assert session.query("A?") == "1"
    assert session.query("B?") == "3"
    assert session.counters.incomplete == 1


class Interrupting:
    """A link that is interrupted in its second read, as by Ctrl-C."""

    def __init__(self, peer: ReplayPeer, clock: VirtualClock) -> None:
        self._link = replay_link(peer, clock)
        self.armed = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._link, name)

    def read(self, deadline: float) -> bytes:
        data = self._link.read(deadline)
        if self.armed and data:
            self.armed = False
            raise KeyboardInterrupt
        return data


def test_an_interrupt_between_question_and_answer_taints_too() -> None:
    clock = VirtualClock()
    peer = ReplayPeer([IDENTITY, RecordedExchange(b"A?\n", b"1\n"), IDENTITY, RecordedExchange(b"B?\n", b"2\n")], clock)
    link = Interrupting(peer, clock)
    session = ScpiSession(link, clock, device="meter")  # type: ignore[arg-type]
    session.open()
    link.armed = True
    with pytest.raises(KeyboardInterrupt):
        session.query("A?")
    assert session.is_out_of_sync
    assert session.query("B?") == "2"


def test_reopening_checks_that_the_same_instrument_answers() -> None:
    session, _, _ = opened(RecordedExchange(b"*IDN?\n", b"Thorlabs,PM100D,P0000001,2.4\n"), IDENTITY)
    session.close()
    with pytest.raises(IdentityError, match=r"expected 'Keysight.*found 'Thorlabs"):
        session.open()
    assert session.open() == IDN.decode()


def test_a_forgotten_identity_lets_another_instrument_in() -> None:
    session, _, _ = opened(RecordedExchange(b"*IDN?\n", b"Thorlabs,PM100D,P0000001,2.4\n"))
    session.close()
    session.forget_identity()
    assert session.open() == "Thorlabs,PM100D,P0000001,2.4"


def test_an_answer_with_another_behind_it_is_no_identity() -> None:
    clock = VirtualClock()
    peer = ReplayPeer(
        [RecordedExchange(b"*IDN?\n", b""), RecordedExchange(b"*IDN?\n", b"0\n" + IDN + b"\n"), IDENTITY], clock
    )
    session = ScpiSession(replay_link(peer, clock), clock, device="meter")
    assert session.open() == IDN.decode()
    assert peer.remaining == ()


# Blocks, IEEE 488.2 clause 8.7.9. First vector: #18 and float32 {1e-6, 2e-6} little-endian.
FLOATS = bytes.fromhex("BD378635BD370636")


@pytest.mark.parametrize(
    ("reply", "payload"),
    [
        (b"#18" + FLOATS + b"\n", FLOATS),
        (b"#18" + FLOATS + b"\r\n", FLOATS),
        (b"#18" + FLOATS, FLOATS),
        (b"#10\n", b""),
        (b"#14\n\n\n\n\n", b"\n\n\n\n"),
        (b"#3016" + bytes(16) + b"\n", bytes(16)),
        (b"#212#18*IDN?\n\r\n\n\n", b"#18*IDN?\n\r\n\n"),
    ],
)
def test_a_block_gives_its_content_whatever_it_is(reply: bytes, payload: bytes) -> None:
    session, _, _ = opened(RecordedExchange(b"READ:POW:ALL?\n", reply), RecordedExchange(b"B?\n", b"2\n"))
    assert session.query_block("READ:POW:ALL?") == payload
    assert session.query("B?") == "2"
    assert session.counters.incomplete == 0


def test_a_block_of_line_feeds_costs_no_time() -> None:
    payload = b"\n" * 400_000
    session, _, clock = opened(RecordedExchange(b"A?\n", b"#6400000" + payload + b"\n"))
    started = clock.now()
    assert session.query_block("A?") == payload
    assert clock.now() == started


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"+1.0E-6\n", "not a definite-length block"),
        (b"#0abc\n", "not a definite-length block"),
        (b"#2x1a\n", "with the length"),
        (b"#41001" + bytes(1001) + b"\n", "above the limit of 1000"),
        (b"#11a,#11b\n", "followed by"),
    ],
    ids=["text", "indefinite", "length", "too long", "two blocks"],
)
def test_what_is_not_one_block_is_refused_and_taints(reply: bytes, message: str) -> None:
    session, _, _ = opened(
        RecordedExchange(b"A?\n", reply), IDENTITY, RecordedExchange(b"B?\n", b"2\n"), block_limit_bytes=1000
    )
    with pytest.raises(FrameError, match=message):
        session.query_block("A?")
    assert session.query("B?") == "2"


def test_a_truncated_block_is_a_time_out() -> None:
    session, _, _ = opened(RecordedExchange(b"A?\n", b"#18" + FLOATS[:5]), IDENTITY, RecordedExchange(b"B?\n", b"2\n"))
    with pytest.raises(LinkTimeout):
        session.query_block("A?")
    assert session.query("B?") == "2"


def test_a_reply_that_is_not_text_is_refused() -> None:
    session, _, _ = opened(RecordedExchange(b"A?\n", b"\xff\xfe\n"))
    with pytest.raises(FrameError, match="not text"):
        session.query("A?")


def test_a_line_without_end_is_refused() -> None:
    session, _, _ = opened(RecordedExchange(b"A?\n", bytes(2_000_000)))
    with pytest.raises(FrameError, match="line without an end"):
        session.query("A?")


@pytest.mark.parametrize(
    ("spoilt", "delay_s"),
    [(b"", 0.0), (b"\xff\xfe\n", 0.0), (IDN + b"\n", 2.01)],
    ids=["silence", "no text", "an answer that comes late"],
)
def test_bytes_left_by_another_program_spoil_only_the_first_question(spoilt: bytes, delay_s: float) -> None:
    clock = VirtualClock()
    query = RecordedExchange(b"READ1:POW?\n", b"1\n")
    peer = ReplayPeer([RecordedExchange(b"*IDN?\n", spoilt, delay_s), IDENTITY, query], clock)
    session = ScpiSession(replay_link(peer, clock), clock, device="meter")
    assert session.open() == IDN.decode()
    assert session.query("READ1:POW?") == "1"


def test_an_instrument_that_never_answers_is_asked_twice() -> None:
    clock = VirtualClock()
    peer = ReplayPeer([RecordedExchange(b"*IDN?\n", b"")] * 2, clock)
    with pytest.raises(LinkTimeout):
        ScpiSession(replay_link(peer, clock), clock, device="meter").open()
    assert peer.remaining == ()
    assert clock.now() < 4.3


def test_without_an_identity_yet_four_fields_are_the_marker() -> None:
    clock = VirtualClock()
    silent = [RecordedExchange(b"*IDN?\n", b"")] * 2
    peer = ReplayPeer([*silent, RecordedExchange(b"*IDN?\n", b"0\n" + IDN + b"\n"), IDENTITY], clock)
    session = ScpiSession(replay_link(peer, clock), clock, device="meter")
    with pytest.raises(LinkTimeout):
        session.open()
    assert session.query("*IDN?") == IDN.decode()
    assert peer.remaining == ()


@pytest.mark.parametrize("late_s", [0.0, 0.01])
def test_a_nul_behind_every_line_costs_no_time(late_s: float, caplog: pytest.LogCaptureFixture) -> None:
    nul = [] if late_s == 0.0 else [RecordedExchange(b"", b"\0", late_s)]
    behind = b"\0" if late_s == 0.0 else b""
    conversation = [
        RecordedExchange(b"READ1:POW?\n", b"+1.0E-06\n" + behind),
        *nul,
        RecordedExchange(b"FUNC:RES?\n", b"#14" + bytes(4) + b"\n" + behind),
        *nul,
        RecordedExchange(b"READ1:POW?\n", b"+2.0E-06\r\n" + behind),
        *nul,
        RecordedExchange(b"READ1:POW?\n", b"+3.0E-06\n" + behind),
    ]
    session, peer, clock = opened(*conversation)
    before_s = clock.now()
    assert session.query("READ1:POW?") == "+1.0E-06"
    assert session.query_block("FUNC:RES?") == bytes(4)
    assert session.query("READ1:POW?") == "+2.0E-06"
    assert session.query("READ1:POW?") == "+3.0E-06"
    assert clock.now() - before_s < 0.05
    assert session.counters.resyncs == 0
    assert not caplog.records
    assert peer.remaining == ()


def test_a_nul_inside_a_line_is_no_number() -> None:
    session, _, _ = opened(RecordedExchange(b"READ1:POW?\n", b"+1.\x000E-06\n"))
    assert session.query("READ1:POW?") == "+1.\x000E-06"
