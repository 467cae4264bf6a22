"""HiSLIP in front of an instrument, message by message (IVI-6.1)."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.mesh.line_server import LineServer
from lumion_hw.emulator.wires.hislip import HislipFront
from lumion_hw.emulator.wires.hislip_frames import (
    MAX_PAYLOAD,
    BadHeader,
    HislipDecoder,
    HislipMessage,
    MessageType as Kind,
)
from lumion_hw.errors import ConfigError, LinkLost
from tests.emulator.scpi.scpi_testbench import Meter

FIRST_ID = 0xFFFF_FF00


class Wire:
    """One channel on the host's side."""

    def __init__(self, front) -> None:
        self.peer = front.connect()
        self.decoder = HislipDecoder()

    def send(self, kind, control=0, parameter=0, payload=b""):
        self.peer.receive(HislipMessage(kind, control, parameter, payload).encode())
        return self.take()

    def take(self):
        self.decoder.feed(self.peer.transmit())
        messages = []
        while (message := self.decoder.next()) is not None:
            messages.append(message)
        return messages


class Session:
    """A host with both channels open."""

    def __init__(self, front) -> None:
        self.sync, self.other = Wire(front), Wire(front)
        (opened,) = self.sync.send(Kind.INITIALIZE, 0, 0x0100 << 16 | 0x7878, b"hislip0")
        assert opened.kind == Kind.INITIALIZE_RESPONSE
        assert opened.parameter >> 16 == 0x0100
        assert opened.control == 0, "no preference for overlapped mode"
        (joined,) = self.other.send(Kind.ASYNC_INITIALIZE, 0, opened.parameter & 0xFFFF)
        assert joined.kind == Kind.ASYNC_INITIALIZE_RESPONSE
        self.number = FIRST_ID - 2

    def say(self, text: bytes, taken: bool = True, kind=Kind.DATA_END):
        self.number = (self.number + 2) & 0xFFFF_FFFF
        return self.sync.send(kind, int(taken), self.number, text)

    def ask(self, text: bytes) -> bytes:
        (reply,) = self.say(text)
        assert reply.kind == Kind.DATA_END
        assert reply.parameter == self.number
        return reply.payload

    def status(self, taken: bool = True) -> int:
        (answer,) = self.other.send(Kind.ASYNC_STATUS_QUERY, int(taken), self.number)
        assert answer.kind == Kind.ASYNC_STATUS_RESPONSE
        return answer.control


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def front(clock):
    return HislipFront(Meter(clock).instrument, clock)


@pytest.fixture
def host(front):
    return Session(front)


def test_query_is_answered_in_one_message_with_the_number_of_the_question(host):
    assert host.ask(b"*IDN?") == b"Maker,M1,SN1,1.0\n"
    assert host.ask(b"*IDN?\r\n") == b"Maker,M1,SN1,1.0\n"


def test_end_ends_a_message_without_a_terminator_and_inside_a_block(host):
    assert host.say(b"SENS:CORR:WAV 1310") == []
    assert float(host.ask(b"SENS:CORR:WAV?")) == 1310.0
    assert host.say(b"DATA:BLOB #15ab") == []
    assert host.ask(b"SYST:ERR?").startswith(b"-102,")
    assert host.say(b"DATA:BLOB #12\n\n") == [], "a block may end in LF"
    assert host.ask(b"DATA:BLOB?") == b"#12\n\n\n"


def test_message_may_come_in_pieces(host):
    host.number += 2
    assert host.sync.send(Kind.DATA, 1, host.number, b"*ID") == []
    (reply,) = host.sync.send(Kind.DATA_END, 0, host.number, b"N?")
    assert reply.payload == b"Maker,M1,SN1,1.0\n"


def test_long_reply_comes_in_messages_of_the_agreed_size(host):
    (agreed,) = host.other.send(Kind.ASYNC_MAX_MSG_SIZE, payload=struct.pack("!Q", 26))
    assert struct.unpack("!Q", agreed.payload) == (MAX_PAYLOAD,)
    replies = host.say(b"*IDN?")
    assert [reply.kind for reply in replies] == [Kind.DATA, Kind.DATA_END]
    assert b"".join(reply.payload for reply in replies) == b"Maker,M1,SN1,1.0\n"
    assert len(replies[0].payload) == 10


def test_serial_poll_shows_the_status_byte_and_a_reply_that_was_not_taken(host):
    assert host.status() == 0
    host.say(b"FOO")
    assert host.status() == 4
    host.say(b"*IDN?")
    assert host.status(taken=False) == 4 + 16
    assert host.status(taken=True) == 4


def test_question_before_the_reply_was_taken_interrupts(host):
    host.say(b"*IDN?")
    messages = host.say(b"*OPC?", taken=False)
    assert [message.kind for message in messages] == [Kind.INTERRUPTED, Kind.DATA_END]
    assert messages[1].payload == b"1\n"
    assert [message.kind for message in host.other.take()] == [Kind.ASYNC_INTERRUPTED]
    assert host.ask(b"SYST:ERR?") == b'-410,"Query INTERRUPTED"\n'
    assert host.ask(b"*ESR?") == b"132\n"  # power on, query error


def test_question_while_a_reading_is_under_way_drops_the_reading(host, clock):
    assert host.say(b"READ?") == []
    messages = host.say(b"*IDN?")
    assert messages[-1].payload == b"Maker,M1,SN1,1.0\n"
    clock.sleep(5.0)
    assert host.sync.take() == []


def test_command_that_waits_is_not_interrupted(host, clock):
    host.say(b"INIT;*WAI")
    assert host.say(b"*IDN?") == []
    clock.sleep(1.0)
    assert [message.payload for message in host.sync.take()] == [b"Maker,M1,SN1,1.0\n"]
    assert host.ask(b"SYST:ERR?") == b'+0,"No error"\n'


def test_reading_is_sent_when_it_is_ready(host, clock):
    assert host.say(b"READ?") == []
    assert host.sync.peer.next_event() == pytest.approx(1.0)
    clock.sleep(1.0)
    assert [message.payload for message in host.sync.take()] == [b"+1.00000000E-003\n"]


def test_device_clear_forgets_what_is_under_way(host, clock):
    host.say(b"READ?")
    (cleared,) = host.other.send(Kind.ASYNC_DEVICE_CLEAR)
    assert cleared.kind == Kind.ASYNC_DEVICE_CLEAR_ACKNOWLEDGE
    assert host.say(b"*IDN?") == [], "dropped until the host has cleared its channel"
    (done,) = host.sync.send(Kind.DEVICE_CLEAR_COMPLETE)
    assert done.kind == Kind.DEVICE_CLEAR_ACKNOWLEDGE
    clock.sleep(5.0)
    assert host.sync.take() == []
    assert host.ask(b"*OPC?") == b"1\n"
    assert host.ask(b"SYST:ERR?") == b'+0,"No error"\n'


def test_service_is_requested_once_per_reason_and_shown_until_polled(host):
    host.say(b"*CLS;*ESE 32;*SRE 32")
    host.say(b"FOO")
    (request,) = host.other.take()
    assert (request.kind, request.control) == (Kind.ASYNC_SERVICE_REQUEST, 4 + 32 + 64)
    assert host.other.take() == []
    assert host.status() == 4 + 32 + 64
    assert host.status() == 4 + 32, "the poll ends the request, not the reason"
    host.ask(b"*ESR?")
    host.other.take()
    host.say(b"BAR")
    assert [message.kind for message in host.other.take()] == [Kind.ASYNC_SERVICE_REQUEST]


def test_trigger_message_is_a_trg_command(host):
    host.say(b"", kind=Kind.TRIGGER)
    assert host.ask(b"SYST:ERR?").startswith(b"-113,"), "this meter has no *TRG"


def test_exclusive_lock_holds_other_sessions_back(front, host, clock):
    other = Session(front)
    (granted,) = host.other.send(Kind.ASYNC_LOCK, 1, 0)
    assert granted.control == 1
    (refused,) = other.other.send(Kind.ASYNC_LOCK, 1, 0)
    assert refused.control == 0
    (info,) = other.other.send(Kind.ASYNC_LOCK_INFO)
    assert (info.control, info.parameter) == (1, 1)
    assert other.say(b"*OPC?") == []
    assert host.ask(b"*IDN?") == b"Maker,M1,SN1,1.0\n"
    (released,) = host.other.send(Kind.ASYNC_LOCK, 0, host.number)
    assert released.control == 1
    assert [message.payload for message in other.sync.take()] == [b"1\n"]
    assert host.other.send(Kind.ASYNC_LOCK, 0)[0].control == 3, "nothing to release"


def test_lock_request_waits_for_its_time(front, host, clock):
    other = Session(front)
    host.other.send(Kind.ASYNC_LOCK, 1, 0)
    assert other.other.send(Kind.ASYNC_LOCK, 1, 2000) == []
    clock.sleep(1.9)
    assert other.other.take() == []
    clock.sleep(0.2)
    assert [message.control for message in other.other.take()] == [0]
    assert other.other.send(Kind.ASYNC_LOCK, 1, 2000) == []
    host.sync.peer.close()
    assert [message.control for message in other.other.take()] == [1], "the holder went away"


def test_shared_locks_need_the_same_key(front, host):
    other, third = Session(front), Session(front)
    assert host.other.send(Kind.ASYNC_LOCK, 1, 0, b"k")[0].control == 1
    assert other.other.send(Kind.ASYNC_LOCK, 1, 0, b"k")[0].control == 1
    assert third.other.send(Kind.ASYNC_LOCK, 1, 0, b"x")[0].control == 0
    assert third.say(b"*OPC?") == []
    assert other.ask(b"*OPC?") == b"1\n"
    assert host.other.send(Kind.ASYNC_LOCK, 1, 0)[0].control == 1, "a holder may take it for itself"
    assert other.say(b"*IDN?") == []
    assert host.other.send(Kind.ASYNC_LOCK, 0)[0].control == 1
    assert host.other.send(Kind.ASYNC_LOCK, 0)[0].control == 2


def test_remote_and_unknown_messages_are_answered(host):
    assert host.other.send(Kind.ASYNC_REMOTE_LOCAL_CONTROL, 1)[0].kind == Kind.ASYNC_REMOTE_LOCAL_RESPONSE
    assert (host.other.send(200)[0].kind, host.other.send(200)[0].control) == (Kind.ERROR, 1)
    assert (host.sync.send(Kind.INITIALIZE)[0].kind) == Kind.ERROR
    assert host.ask(b"*OPC?") == b"1\n"


def test_oversized_message_is_refused_and_skipped(host):
    huge = HislipMessage(Kind.DATA_END, 1, 8, b"x" * (MAX_PAYLOAD + 1)).encode()
    host.sync.peer.receive(huge[:100])
    host.sync.peer.receive(huge[100:])
    (refused,) = host.sync.take()
    assert (refused.kind, refused.control) == (Kind.ERROR, 4)
    assert host.ask(b"*OPC?") == b"1\n"


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 1),
        (HislipMessage(Kind.DATA_END, 0, 1, b"*IDN?").encode(), 3),
        (HislipMessage(Kind.ASYNC_INITIALIZE, 0, 4711).encode(), 3),
    ],
)
def test_wrong_beginning_is_fatal(front, first, code):
    wire = Wire(front)
    wire.peer.receive(first)
    (fatal,) = wire.take()
    assert (fatal.kind, fatal.control) == (Kind.FATAL_ERROR, code)
    with pytest.raises(LinkLost):
        wire.peer.transmit()


def test_talking_before_both_channels_are_there_is_fatal(front):
    wire = Wire(front)
    wire.send(Kind.INITIALIZE, 0, 0x0100 << 16, b"hislip0")
    (fatal,) = wire.send(Kind.DATA_END, 0, FIRST_ID, b"*IDN?")
    assert (fatal.kind, fatal.control) == (Kind.FATAL_ERROR, 2)


def test_session_ends_with_either_channel_and_its_number_is_free_again(front, host):
    host.other.peer.close()
    with pytest.raises(LinkLost):
        host.sync.take()
    assert not front.sessions
    for _ in range(40):
        Session(front).sync.peer.close()
    assert Session(front).ask(b"*OPC?") == b"1\n"


def test_too_many_sessions_are_refused(front):
    sessions = [Session(front) for _ in range(32)]
    (fatal,) = Wire(front).send(Kind.INITIALIZE)
    assert (fatal.kind, fatal.control) == (Kind.FATAL_ERROR, 4)
    assert len(sessions) == len(front.sessions)


def test_device_that_exchanges_no_messages_is_refused(clock):
    with pytest.raises(ConfigError, match="sends a byte stream, not IEEE"):
        HislipFront(LineServer("lines", clock, apply_states=lambda states: None), clock)


@pytest.mark.parametrize("seed", range(3))
def test_noise_leaves_the_front_alive(front, host, seed):
    rng = np.random.default_rng(seed)
    for _ in range(300):
        wire = Wire(front)
        for _ in range(3):
            message = HislipMessage(
                int(rng.integers(0, 30)), int(rng.integers(0, 256)), int(rng.integers(0, 2**32)), rng.bytes(8)
            )
            data = bytearray(message.encode())
            if rng.random() < 0.3:
                data[int(rng.integers(0, len(data)))] = int(rng.integers(0, 256))
            try:
                wire.peer.receive(bytes(data))
                wire.peer.transmit()
            except LinkLost:
                break
        wire.peer.close()
    assert host.ask(b"*OPC?") == b"1\n"


def test_decoder_takes_bytes_in_any_pieces():
    messages = [HislipMessage(Kind.DATA, 1, 2, b"abc"), HislipMessage(Kind.DATA_END, 0, 4)]
    decoder, seen = HislipDecoder(), []
    for byte in b"".join(message.encode() for message in messages):
        decoder.feed(bytes([byte]))
        while (message := decoder.next()) is not None:
            seen.append(message)
    assert seen == messages
    decoder.feed(b"HX")
    with pytest.raises(BadHeader):
        decoder.next()
