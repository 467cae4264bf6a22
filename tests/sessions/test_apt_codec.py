"""APT frames against check vectors of the Thorlabs APT protocol, and the decoder against streams cut and soiled."""

from __future__ import annotations

from hypothesis import given, strategies as st

from lumion_hw.sessions.codecs.apt import (
    AptDecoder,
    DecodedAptMessage,
    Parameters,
    StatusBit,
    command,
    decode_parameters,
    decode_status,
    move_absolute,
    set_parameters,
)

# Settled, homed and enabled (bits 13, 10 and 31) at 363 counts, channel 2, by hand after its table of status bits.
STATUS = bytes.fromhex("91 04 0E 00 81 50 02 00 6B 01 00 00 00 00 00 00 00 24 00 80")
HOMED = bytes.fromhex("44 04 04 00 01 50")
COMPLETED = bytes.fromhex("64 04 01 00 01 50")
PARAMETERS = bytes.fromhex("32 05 0C 00 81 50 00 00 64 00 AD 02 C9 00 C9 00 C9 00")
FRAMES = (STATUS, HOMED, COMPLETED, PARAMETERS)


def test_the_check_vectors_are_met() -> None:
    assert command(DecodedAptMessage.MOVE_HOME, 1) == bytes.fromhex("43 04 01 00 50 01")
    assert move_absolute(2, 363) == bytes.fromhex("53 04 06 00 D0 01 02 00 6B 01 00 00")
    assert move_absolute(4, 1370) == bytes.fromhex("53 04 06 00 D0 01 04 00 5A 05 00 00")
    assert command(DecodedAptMessage.REQUEST_STATUS, 4) == bytes.fromhex("90 04 04 00 50 01")
    assert set_parameters(Parameters(100, 685, (201, 201, 201))) == bytes.fromhex(
        "30 05 0C 00 D0 01 00 00 64 00 AD 02 C9 00 C9 00 C9 00"
    )


def test_a_status_tells_channel_position_and_bits() -> None:
    (frame,) = AptDecoder().feed(STATUS)
    status = decode_status(frame)
    assert (frame.message, frame.channel) == (DecodedAptMessage.STATUS, 2)
    assert (status.channel, status.counts) == (2, 363)
    assert status.bits == StatusBit.SETTLED | StatusBit.HOMED | StatusBit.ENABLED
    assert not status.moving


def test_a_paddle_that_moves_or_homes_says_so() -> None:
    for bit in (4, 5, 9):
        data = bytearray(STATUS)
        data[16:20] = (1 << bit).to_bytes(4, "little")
        (frame,) = AptDecoder().feed(bytes(data))
        assert decode_status(frame).moving


def test_parameters_come_as_they_are_set() -> None:
    (frame,) = AptDecoder().feed(PARAMETERS)
    assert decode_parameters(frame) == Parameters(100, 685, (201, 201, 201))


def test_events_name_their_channel_in_the_header_or_in_the_data() -> None:
    with_data = bytes.fromhex("64 04 0E 00 81 50 04 00") + bytes(12)
    frames = AptDecoder().feed(COMPLETED + HOMED + with_data)
    assert [(frame.message, frame.channel) for frame in frames] == [(0x0464, 1), (0x0444, 4), (0x0464, 4)]


@given(st.lists(st.sampled_from(FRAMES), max_size=6), st.lists(st.integers(1, 7), min_size=1, max_size=40))
def test_frames_are_found_however_the_stream_is_cut(frames: list[bytes], cuts: list[int]) -> None:
    stream, decoder, found = b"".join(frames), AptDecoder(), []
    for size in [*cuts, len(stream)]:
        found += decoder.feed(stream[:size])
        stream = stream[size:]
    assert [frame.message for frame in found] == [int.from_bytes(frame[:2], "little") for frame in frames]
    assert (decoder.foreign_bytes, decoder.pending) == (0, 0)


@given(st.binary(max_size=60).filter(lambda noise: b"\x50" not in noise))
def test_noise_without_an_address_costs_no_frame_behind_it(noise: bytes) -> None:
    decoder = AptDecoder()
    frames = decoder.feed(noise + STATUS)
    assert [frame.message for frame in frames] == [DecodedAptMessage.STATUS]
    assert decoder.foreign_bytes == len(noise)


@given(st.binary(max_size=400))
def test_no_bytes_break_the_decoder(data: bytes) -> None:
    decoder = AptDecoder()
    for frame in decoder.feed(data):
        assert len(frame.data) <= 255
    decoder.reset()
    assert [frame.message for frame in decoder.feed(STATUS)] == [DecodedAptMessage.STATUS]


def test_a_status_of_the_wrong_length_is_no_status() -> None:
    short = bytes.fromhex("91 04 06 00 81 50 02 00 6B 01 00 00")
    decoder = AptDecoder()
    assert decoder.feed(short + HOMED)[-1].message == DecodedAptMessage.MOVE_HOMED
    assert decoder.foreign_bytes == len(short)
