"""The UART-to-I2C bridge in written-down conversations; message forms from its data sheet, clause 7.1."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConfigError, ConnectError, FrameError, LinkLost, LinkTimeout
from lumion_hw.links import RecordedExchange, ReplayPeer, replay_link
from lumion_hw.sessions.module.registers import ModuleAbsentError, NotRespondingError, ShortReadError
from lumion_hw.sessions.module.sc18im700 import Sc18im700

STATUS = b"R\x0aP"
OK, NACK_ADDRESS, NACK_DATA, TIME_OUT = b"\xf0", b"\xf1", b"\xf2", b"\xf8"


def status(reply: bytes = OK, delay_s: float = 0.0) -> RecordedExchange:
    return RecordedExchange(STATUS, reply, delay_s)


def read_message(device: int, offset: int, length: int) -> bytes:
    """S, address and W, one byte, the offset; repeated start; address and R, the length; P."""
    return b"S" + bytes([2 * device, 1, offset]) + b"S" + bytes([2 * device + 1, length]) + b"P"


def stored(device: int, offset: int) -> tuple[RecordedExchange, RecordedExchange]:
    """The poll after a write: the offset alone, acknowledged once the module has stored what was written."""
    return RecordedExchange(b"S" + bytes([2 * device, 1, offset]) + b"P"), status()


def opened(*exchanges: RecordedExchange, **options: float) -> tuple[Sc18im700, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer([status(), *exchanges], clock)
    bridge = Sc18im700(replay_link(peer, clock), clock, device="sfp1", **options)  # type: ignore[arg-type]
    bridge.open()
    return bridge, peer, clock


def test_a_read_is_a_write_of_the_offset_and_a_repeated_start() -> None:
    # Data sheet form for A2h (0x51) offset 96, 2 bytes: 53 A2 01 60 53 A3 02 50.
    exchange = RecordedExchange(bytes.fromhex("53A2016053A30250"), b"\x19\x80")
    bridge, peer, _ = opened(exchange, status())
    assert bridge.read(0x51, 96, 2) == b"\x19\x80"
    assert peer.remaining == ()


def test_a_write_is_offset_and_data() -> None:
    # A2h offset 110, one byte 40h: 53 A2 02 6E 40 50.
    bridge, peer, _ = opened(RecordedExchange(bytes.fromhex("53A2026E4050")), status(), *stored(0x51, 110))
    bridge.write(0x51, 110, b"\x40")
    assert peer.remaining == ()


def test_a_write_returns_only_when_the_module_answers_again() -> None:
    busy = RecordedExchange(b"S\xa2\x01\x6eP"), status(NACK_ADDRESS)
    bridge, peer, _ = opened(
        RecordedExchange(bytes.fromhex("53A2026E4050")), status(), *busy, *busy, *stored(0x51, 110)
    )
    bridge.write(0x51, 110, b"\x40")
    assert peer.remaining == ()


def test_no_message_is_longer_than_the_fifo() -> None:
    memory = bytes(range(96))
    bridge, peer, _ = opened(
        *[
            step
            for start in range(0, 96, 16)
            for step in (RecordedExchange(read_message(0x50, start, 16), memory[start : start + 16]), status())
        ]
    )
    assert bridge.read(0x50, 0, 96) == memory
    assert peer.remaining == ()


def test_an_odd_end_is_read_exactly() -> None:
    bridge, _, _ = opened(
        RecordedExchange(read_message(0x50, 2, 16), bytes(16)),
        status(),
        RecordedExchange(read_message(0x50, 18, 1), b"\x07"),
        status(),
    )
    assert bridge.read(0x50, 2, 17) == bytes(16) + b"\x07"


def test_no_number_at_an_even_offset_is_split() -> None:
    bridge, _, _ = opened(
        RecordedExchange(read_message(0x50, 3, 15), bytes(15)),
        status(),
        RecordedExchange(read_message(0x50, 18, 2), b"\x07\x08"),
        status(),
    )
    assert bridge.read(0x50, 3, 17) == bytes(15) + b"\x07\x08"


def test_a_module_that_answers_one_byte_is_read_byte_by_byte() -> None:
    exchanges = [part for byte in (4, 5) for part in (RecordedExchange(read_message(0x50, byte, 1), b"\x09"), status())]
    bridge, peer, _ = opened(*exchanges, largest_read=1)
    assert bridge.read(0x50, 4, 2) == b"\x09\x09"
    assert peer.remaining == ()


def test_writes_stay_inside_rows_of_eight_bytes() -> None:
    bridge, peer, _ = opened(
        RecordedExchange(b"S\xa2\x03\x86\x01\x02P"),
        status(),
        *stored(0x51, 0x86),
        RecordedExchange(b"S\xa2\x09\x88\x03\x04\x05\x06\x07\x08\x09\x0aP"),
        status(),
        *stored(0x51, 0x88),
        RecordedExchange(b"S\xa2\x02\x90\x0bP"),
        status(),
        *stored(0x51, 0x90),
    )
    bridge.write(0x51, 0x86, bytes(range(1, 12)))
    assert peer.remaining == ()


class JustPowered(ReplayPeer):
    """A bridge that has its two bytes of greeting still under way."""

    greeting = b"OK"

    def transmit(self) -> bytes:
        greeting, self.greeting = self.greeting, b""
        return greeting + super().transmit()


def test_the_greeting_after_power_up_is_passed_over() -> None:
    clock = VirtualClock()
    peer = JustPowered([status()], clock)
    bridge = Sc18im700(replay_link(peer, clock), clock, device="sfp1")
    bridge.open()
    assert peer.remaining == ()


@pytest.mark.parametrize("reply", [b"", b"\x55", b"\xf0\xf0"], ids=["silence", "no status", "two bytes"])
def test_what_does_not_answer_like_a_bridge_is_a_connect_error(reply: bytes) -> None:
    clock = VirtualClock()
    bridge = Sc18im700(replay_link(ReplayPeer([status(reply)] * 3, clock), clock), clock, device="sfp1")
    with pytest.raises(ConnectError, match="SC18IM700"):
        bridge.open()


def test_a_module_busy_after_a_write_is_asked_again() -> None:
    busy = [RecordedExchange(read_message(0x51, 110, 1)), status(NACK_ADDRESS)]
    bridge, peer, _ = opened(*busy, *busy, RecordedExchange(read_message(0x51, 110, 1), b"\x40"), status())
    assert bridge.read(0x51, 110, 1) == b"\x40"
    assert peer.remaining == ()


def test_bytes_that_came_with_a_refusal_are_not_believed() -> None:
    bridge, _, _ = opened(
        RecordedExchange(read_message(0x51, 96, 2), b"\xff\xff"),
        status(NACK_DATA),
        RecordedExchange(read_message(0x51, 96, 2), b"\x19\x80"),
        status(),
    )
    assert bridge.read(0x51, 96, 2) == b"\x19\x80"


@pytest.mark.parametrize(
    ("device", "code", "error"),
    [
        (0x50, NACK_ADDRESS, ModuleAbsentError),
        (0x51, NACK_ADDRESS, NotRespondingError),
        (0x50, NACK_DATA, NotRespondingError),
        (0x50, TIME_OUT, NotRespondingError),
    ],
)
def test_a_refusal_that_lasts_says_what_is_missing(device: int, code: bytes, error: type[Exception]) -> None:
    refusals = [RecordedExchange(read_message(device, 0, 1)), status(code)] * 20
    bridge, _, clock = opened(*refusals)
    started = clock.now()
    with pytest.raises(error) as caught:
        bridge.read(device, 0, 1)
    assert 0.5 <= clock.now() - started < 0.8
    assert f"0x{device:02X}" in str(caught.value)


def test_a_write_that_stays_refused_raises() -> None:
    bridge, _, _ = opened(*[RecordedExchange(b"S\xa2\x02\x6e\x40P"), status(NACK_ADDRESS)] * 400)
    with pytest.raises(NotRespondingError, match="writing 0x51:110"):
        bridge.write(0x51, 110, b"\x40")


def test_too_few_bytes_are_a_short_read_and_taint() -> None:
    bridge, _, _ = opened(
        RecordedExchange(read_message(0x50, 0, 4), b"\x03\x04\x07"),
        status(),
        status(),  # resynchronisation
        RecordedExchange(read_message(0x50, 0, 4), b"\x03\x04\x07\x80"),
        status(),
    )
    with pytest.raises(ShortReadError, match="only"):
        bridge.read(0x50, 0, 4)
    assert bridge.is_out_of_sync
    assert bridge.read(0x50, 0, 4) == b"\x03\x04\x07\x80"
    assert bridge.counters.resyncs == 1


@pytest.mark.parametrize(
    ("data", "data_after_s", "status_after_s"),
    [
        pytest.param(b"\x11\x22", 0.3, 0.0, id="data"),
        pytest.param(b"\x11\x22", 0.3, 0.4, id="both"),
        pytest.param(b"\x11\x22", 0.0, 0.4, id="status"),
        pytest.param(b"\xf1\xf0", 0.3, 0.0, id="data that look like a status"),
    ],
)
def test_what_a_busy_host_hands_over_late_is_no_fault_of_the_module(data, data_after_s, status_after_s) -> None:
    bridge, _, _ = opened(
        RecordedExchange(read_message(0x51, 96, 2), data, delay_s=data_after_s),
        status(OK, delay_s=status_after_s),
    )
    assert bridge.read(0x51, 96, 2) == data
    assert not bridge.is_out_of_sync


def test_late_bytes_never_become_another_reads_data() -> None:
    bridge, _, _ = opened(
        RecordedExchange(read_message(0x51, 96, 2), b"\x11\x22", delay_s=0.9),
        status(OK, delay_s=0.9),
        status(),  # answered together with the late status above, so there is a second round
        status(),
        RecordedExchange(read_message(0x51, 98, 2), b"\x33\x44"),
        status(),
    )
    with pytest.raises((LinkTimeout, FrameError)):
        bridge.read(0x51, 96, 2)
    assert bridge.read(0x51, 98, 2) == b"\x33\x44"


def test_a_late_line_feed_is_a_foreign_byte_like_any_other() -> None:
    bridge, _, _ = opened(
        RecordedExchange(read_message(0x51, 96, 1), b"\x11\x0a"),
        status(),
        status(),
        RecordedExchange(read_message(0x51, 97, 1), b"\x33"),
        status(),
    )
    with pytest.raises(FrameError):
        bridge.read(0x51, 96, 1)
    assert bridge.read(0x51, 97, 1) == b"\x33"


def test_a_bridge_that_stops_answering_is_lost_after_its_own_message_time_out() -> None:
    silent = status(b"")
    bridge, _, clock = opened(RecordedExchange(read_message(0x50, 0, 1)), silent, silent, silent, silent)
    with pytest.raises(LinkTimeout):
        bridge.read(0x50, 0, 1)
    started = clock.now()
    with pytest.raises(LinkLost, match="could not resynchronise"):
        bridge.read(0x50, 0, 1)
    assert clock.now() - started > 2 * 0.655


@pytest.mark.parametrize(("device", "offset", "length"), [(0x50, 250, 7), (0x50, -1, 1), (0xA0, 0, 1), (0x50, 0, 0)])
def test_registers_that_do_not_exist_are_refused(device: int, offset: int, length: int) -> None:
    bridge, _, _ = opened()
    with pytest.raises(ConfigError):
        bridge.read(device, offset, length)


def test_closing_twice_is_harmless() -> None:
    bridge, _, _ = opened()
    assert bridge.name == "replay"
    bridge.close()
    bridge.close()
    with pytest.raises(LinkLost):
        bridge.read(0x50, 0, 1)


@pytest.mark.parametrize("spoilt", [b"", TIME_OUT + OK, b"OK" + NACK_DATA])
def test_a_command_that_another_program_has_begun_spoils_only_the_first_question(spoilt: bytes) -> None:
    clock = VirtualClock()
    peer = ReplayPeer([status(spoilt), status(), *stored(0x51, 110)], clock)
    bridge = Sc18im700(replay_link(peer, clock), clock, device="sfp1")
    bridge.open()
    assert len(peer.remaining) == 2
