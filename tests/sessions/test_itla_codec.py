"""Frames of the ITLA protocol: the bytes follow OIF-ITLA-MSA-01.3."""

import pytest
from hypothesis import given, strategies as st

from lumion_hw.sessions.codecs.itla import (
    ItlaReplyStatus,
    Reply,
    bip4,
    dbm_times_100,
    decode_reply,
    decode_text,
    join_mhz,
    read_request,
    repeat_request,
    signed,
    split_mhz,
    unsigned,
    write_request,
)

WORDS = st.integers(0, 0xFFFF)
REGISTERS = st.integers(0, 0xFF)


@pytest.mark.parametrize(
    ("register", "data", "frame"),
    [
        (0x31, 1000, "61 31 03 E8"),  # PWR = 10.00 dBm
        (0x31, 0xFE0C, "E1 31 FE 0C"),  # PWR = -5.00 dBm
        (0x35, 193, "A1 35 00 C1"),
        (0x36, 4123, "F1 36 10 1B"),
        (0x67, 0, "01 67 00 00"),
        (0x34, 500, "C1 34 01 F4"),
        (0x30, 1, "31 30 00 01"),
        (0x32, 8, "81 32 00 08"),
        (0x32, 0, "01 32 00 00"),
        (0x31, 3000, "B1 31 0B B8"),
    ],
)
def test_a_write_is_the_frame_of_the_table(register: int, data: int, frame: str) -> None:
    assert write_request(register, data) == bytes.fromhex(frame)


@pytest.mark.parametrize(
    ("register", "frame"),
    [(0x00, "00 00 00 00"), (0x42, "60 42 00 00"), (0x7F, "80 7F 00 00"), (0x01, "10 01 00 00"), (0x0B, "B0 0B 00 00")],
)
def test_a_read_is_the_frame_of_the_table(register: int, frame: str) -> None:
    assert read_request(register) == bytes.fromhex(frame)


@pytest.mark.parametrize(
    ("frame", "reply"),
    [
        ("54 00 00 10", Reply(False, ItlaReplyStatus.OK, 0x00, 0x0010)),
        ("E7 32 00 08", Reply(False, ItlaReplyStatus.PENDING, 0x32, 8)),
        ("44 00 01 10", Reply(False, ItlaReplyStatus.OK, 0x00, 0x0110)),
        ("74 42 03 E8", Reply(False, ItlaReplyStatus.OK, 0x42, 1000)),
        ("F5 31 0B B8", Reply(False, ItlaReplyStatus.EXECUTION_ERROR, 0x31, 3000)),
        ("F6 01 00 08", Reply(False, ItlaReplyStatus.AEA, 0x01, 8)),
        ("A4 0B 43 57", Reply(False, ItlaReplyStatus.OK, 0x0B, 0x4357)),
        ("CC 00 00 00", Reply(True, ItlaReplyStatus.OK, 0x00, 0)),
    ],
)
def test_a_reply_is_read_as_the_table_says(frame: str, reply: Reply) -> None:
    assert decode_reply(bytes.fromhex(frame)) == reply


@given(REGISTERS, WORDS, st.integers(0, 31))
def test_one_wrong_bit_is_always_noticed(register: int, data: int, bit: int) -> None:
    frame = bytearray(write_request(register, data))
    frame[0] |= 0x04  # as if it came from a module
    frame[0] = frame[0] & 0x0F | bip4(bytes(frame)) << 4
    assert decode_reply(bytes(frame)) is not None
    frame[bit // 8] ^= 1 << bit % 8
    assert decode_reply(bytes(frame)) is None


@pytest.mark.parametrize("frame", [b"", b"\x54\x00\x00", b"\x54\x00\x00\x10\x00", b"\x00\x00\x00\x00"])
def test_what_is_no_reply_is_none(frame: bytes) -> None:
    assert decode_reply(frame) is None


def test_the_repeat_request_has_its_bit() -> None:
    assert repeat_request() == bytes.fromhex("88 00 00 00")  # bit 27, and its own nibble as checksum


def test_a_frequency_is_split_into_thz_tenths_of_ghz_and_mhz() -> None:
    assert split_mhz(193_412_350) == (193, 4123, 50)
    assert join_mhz(193, 4123, 50) == 193_412_350


@given(st.integers(180_000_000, 200_000_000))
def test_splitting_and_joining_are_inverse(frequency_mhz: int) -> None:
    thz, ghz_times_10, mhz = split_mhz(frequency_mhz)
    assert 0 <= ghz_times_10 <= 9999
    assert 0 <= mhz <= 99
    assert join_mhz(thz, ghz_times_10, mhz) == frequency_mhz


@given(st.integers(-0x8000, 0x7FFF))
def test_signed_numbers_survive(value: int) -> None:
    assert signed(unsigned(value)) == value


def test_powers_are_steps_of_a_hundredth() -> None:
    assert dbm_times_100(-5.0) == -500
    assert dbm_times_100(10.004) == 1000
    with pytest.raises(ValueError, match="not a finite power"):
        dbm_times_100(float("nan"))


def test_a_string_ends_at_its_nul() -> None:
    assert decode_text(b"CW ITLA\0") == "CW ITLA"
    assert decode_text(b"AB\0junk") == "AB"
