"""Frames: any chunking, any garbage, one damaged frame costs one frame, memory stays bounded (sections 2 and 13)."""

from __future__ import annotations

import dataclasses
import zlib

import pytest
from hypothesis import given, strategies as st

import firmware_protocol as fp
from firmware_protocol import stuffing

u16 = st.integers(0, 0xFFFF)
u8 = st.integers(0, 0xFF)
frames = st.builds(
    fp.Frame,
    kind=st.integers(0, 15),
    command=u8,
    seq=u16,
    session=u16,
    flags=u8,
    status=u8,
    version=st.integers(0, 15),
    payload=st.one_of(st.binary(max_size=300), st.integers(0, 600).map(bytes)),
)
PING = fp.Frame(fp.Kind.REQ, fp.Command.PING, 7, 0x2F71, payload=b"\1\0\0\0")


@given(frames)
def test_what_is_encoded_is_decoded(frame: fp.Frame) -> None:
    wire = fp.encode_frame(frame)
    assert wire[0] == wire[-1] == 0
    assert len(wire) <= fp.wire_bound(len(frame.payload))
    assert fp.Decoder(4096).feed(wire) == [frame]


@given(st.lists(st.one_of(frames.map(fp.encode_frame), st.binary(max_size=40)), max_size=5), st.data())
def test_any_chunking_of_a_stream_gives_the_same_frames(pieces: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder, found = fp.Decoder(300), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.feed(stream[start:end])
    assert found == fp.Decoder(300).feed(stream)


@given(st.binary(max_size=1500))
def test_after_arbitrary_bytes_the_next_good_frame_is_found(noise: bytes) -> None:
    decoder = fp.Decoder(512)
    decoder.feed(noise)
    assert decoder.feed(fp.encode_frame(PING))[-1] == PING


@given(frames, st.data())
def test_one_damaged_byte_never_gives_another_frame_and_costs_one(frame: fp.Frame, data: st.DataObject) -> None:
    wire = bytearray(fp.encode_frame(frame))
    where, change = data.draw(st.integers(0, len(wire) - 1)), data.draw(st.integers(1, 255))
    wire[where] ^= change
    found = fp.Decoder(4096).feed(bytes(wire) + fp.encode_frame(PING))
    assert found[-1] == PING
    assert all(isinstance(item, fp.BadFrame) or item == frame for item in found[:-1])


@given(st.binary(min_size=8, max_size=600), st.sampled_from([b"", b"\0", b"\0\0"]))
def test_the_fast_path_gives_the_bytes_and_the_body_of_a_frame(body: bytes, around: bytes) -> None:
    wire = fp.encode_body(body)
    (frame,) = fp.Decoder(4096).feed(wire)
    assert isinstance(frame, fp.Frame)
    assert frame.header_bytes() + frame.payload == body
    assert fp.encode_frame(frame) == wire
    assert fp.decode_wire(around + wire[1:-1] + around) == body


@given(st.binary(max_size=60).map(lambda data: data.replace(b"\0", b"\1")))
def test_the_fast_path_says_the_same_of_a_bad_frame(block: bytes) -> None:
    assert fp.Decoder(256).feed(block + b"\0") == ([fp.decode_wire(block)] if block else [])
    assert isinstance(fp.decode_wire(block), fp.BadFrame)


def test_a_frame_made_by_the_decoder_is_like_one_made_by_hand() -> None:
    (found,) = fp.Decoder(256).feed(fp.encode_frame(PING))
    plain = fp.Frame(0, 1, 7, 0x2F71, payload=PING.payload)
    assert (found, hash(found), repr(found)) == (PING, hash(PING), repr(plain))
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.length = 3  # type: ignore[misc]
    assert isinstance(found, fp.Frame)
    assert dataclasses.replace(found, seq=8).seq == 8


def test_delimiters_without_end_between_two_frames_cost_nothing() -> None:
    wire = fp.encode_frame(PING)
    decoder = fp.Decoder(256)
    assert decoder.feed(wire + bytes(100_000) + wire[:5]) == [PING]
    assert decoder.feed(wire[5:-1]) == []
    assert decoder.feed(bytes(3)) == [PING]


def test_frames_back_to_back_may_share_or_repeat_delimiters() -> None:
    wire = fp.encode_frame(PING)
    assert fp.Decoder(256).feed(wire + wire + b"\0\0\0" + wire[1:]) == [PING, PING, PING]


@pytest.mark.parametrize(
    ("block", "cause"),
    [
        (b"\x05abc", fp.BadCause.COBS),
        (stuffing.cobs_encode(b"elevenbytes"), fp.BadCause.SHORT),
        (stuffing.cobs_encode(b"\x10\0\x01\0\0\0\0\0" + b"\0\0\0\0"), fp.BadCause.CRC),
        (b"\x01" * 255, fp.BadCause.OVERSIZE),
    ],
)
def test_a_bad_frame_is_a_value_that_names_its_cause(block: bytes, cause: fp.BadCause) -> None:
    (bad,) = fp.Decoder(256).feed(b"\0" + block + b"\0")
    assert isinstance(bad, fp.BadFrame)
    assert (bad.cause, bad.length) == (cause, len(block))


def test_a_content_of_exactly_twelve_bytes_is_a_frame_without_payload() -> None:
    assert fp.Decoder(256).feed(fp.encode_frame(fp.Frame(fp.Kind.REQ, fp.Command.GET_STATS))) == [
        fp.Frame(fp.Kind.REQ, fp.Command.GET_STATS)
    ]


@pytest.mark.parametrize("mtu", [256, 512, 4096])
def test_the_encoder_refuses_one_byte_more_than_the_mtu_bound(mtu: int) -> None:
    largest = fp.max_payload(mtu)
    for length in (largest - 1, largest):
        assert len(fp.encode_frame(fp.Frame(0, 0x14, payload=b"\1" * length), mtu)) <= mtu
    with pytest.raises(fp.FrameTooBigError, match=str(mtu)):
        fp.encode_frame(fp.Frame(0, 0x14, payload=bytes(largest + 1)), mtu)


@pytest.mark.parametrize("mtu", [256, 512, 4096])
def test_a_frame_of_exactly_the_mtu_is_accepted_and_one_byte_more_is_oversize_once(mtu: int) -> None:
    for payload in (b"\1" * fp.max_payload(mtu), b"\1" * (fp.max_payload(mtu) + 1)):
        frame = fp.Frame(0, 0x14, 0x0101, 0x0101, 1, 1, payload=payload)
        wire = fp.encode_frame(frame)
        found = fp.Decoder(mtu).feed(wire + fp.encode_frame(PING))
        assert found[-1] == PING
        if len(wire) <= mtu:
            assert found[0] == frame
        else:
            assert [item.cause for item in found[:-1] if isinstance(item, fp.BadFrame)] == [fp.BadCause.OVERSIZE]


def test_a_frame_of_512_bytes_with_508_content_bytes_fits_its_mtu() -> None:
    frame = fp.Frame(0, 0x14, 0x0101, 0x0101, 1, 1, payload=b"\1" * 496)
    wire = fp.encode_frame(frame)
    assert len(wire) == 512
    assert fp.Decoder(512).feed(wire) == [frame]
    assert [type(item) for item in fp.Decoder(511).feed(wire)] == [fp.BadFrame]


def test_an_endless_stream_without_delimiters_is_not_kept() -> None:
    decoder = fp.Decoder(256)
    found = [item for _ in range(1000) for item in decoder.feed(b"\x11" * 1000)]
    assert [item.cause for item in found if isinstance(item, fp.BadFrame)] == [fp.BadCause.OVERSIZE]
    assert decoder.feed(fp.encode_frame(PING)) == [PING]


def test_the_longer_cobs_form_is_a_good_frame() -> None:
    body = fp.Frame(0, 0x14, 0x0101, 0x0101, 1, 1).header_bytes() + b"\1" * 242
    for tail in range(1 << 16):
        candidate = body[:-2] + bytes([tail & 0xFF or 1, tail >> 8 or 1])
        crc = zlib.crc32(candidate).to_bytes(4, "little")
        if 0 not in crc:
            break
    block = stuffing.encode_plain(candidate + crc) + b"\x01"
    (frame,) = fp.Decoder(512).feed(b"\0" + block + b"\0")
    assert isinstance(frame, fp.Frame)
    assert frame.payload == candidate[8:]


@pytest.mark.parametrize("field", ["kind", "version", "command", "status", "flags", "seq", "session"])
def test_a_header_value_that_does_not_fit_cannot_be_sent(field: str) -> None:
    with pytest.raises(fp.FieldError):
        fp.encode_frame(fp.Frame(**{"kind": 0, "command": 1, field: 1 << 16}))  # type: ignore[arg-type]
