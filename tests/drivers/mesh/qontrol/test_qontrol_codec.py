"""Bytes of the Qontrol protocol, against recorded requests and reply lines of real modules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.sessions.codecs.qontrol import (
    CHAIN_ENTRY_LINE,
    CHANNEL_READING_LINE,
    CURRENT_LINE,
    ERROR_LINE,
    FIRMWARE_LINE,
    IDENTITY_LINE,
    LOG_ENTRY_LINE,
    OK_LINE,
    RENUMBERED_LINE,
    VOLTAGE_LINE,
    Quantity,
    codes_from_values,
    encode_read_all_binary,
    encode_read_all_text,
    encode_set_channel_text,
    encode_set_vector_binary,
    encode_set_vector_text,
    error_name,
    format_value,
)


def test_a_binary_vector_is_header_code_address_count_and_words() -> None:
    request = encode_set_vector_binary(Quantity.VOLTAGE, 0, np.arange(16, dtype=np.uint16))
    assert request.data[:7] == bytes.fromhex("82 00 00 00 00 00 10")
    assert request.data[7:] == b"".join(word.to_bytes(2, "big") for word in range(16))


@pytest.mark.parametrize(
    ("quantity", "channel", "head"),
    [
        (Quantity.VOLTAGE, 8, "82 00 00 00 08 00 08"),
        (Quantity.CURRENT, 56, "82 01 00 00 38 00 08"),
        (Quantity.VOLTAGE_LIMIT, 0, "82 02 00 00 00 00 08"),
        (Quantity.CURRENT_LIMIT, 256, "82 03 00 01 00 00 08"),
    ],
)
def test_a_module_vector_has_23_bytes(quantity: Quantity, channel: int, head: str) -> None:
    data = encode_set_vector_binary(quantity, channel, np.zeros(8, np.uint16)).data
    assert data[:7] == bytes.fromhex(head)
    assert len(data) == 23


def test_reading_all_channels_is_the_recorded_request() -> None:
    assert encode_read_all_binary(Quantity.VOLTAGE, 16).data == bytes.fromhex("a9 00 00 00 00 00 00")
    assert encode_read_all_binary(Quantity.CURRENT, 16).data == bytes.fromhex("a9 01 00 00 00 00 00")
    assert encode_read_all_binary(Quantity.CURRENT, 16).n_lines == 16
    assert encode_read_all_text(Quantity.CURRENT_LIMIT, 16).data == b"IMAXALL?\n"


@pytest.mark.parametrize(
    ("value", "full", "word"),
    [(1.0, 12.0, 0x1555), (12.0, 12.0, 0xFFFF), (0.0, 24.0, 0), (24.0, 24.0, 0xFFFF), (0.0006, 24.0, 2)],
    # 1.0 V: 65535 / 12 = 5461.25, 0x1555 (the maker's client sends the same); 0.6 uA: 1.64 steps of 0.366 uA
)
def test_a_value_becomes_the_nearest_word(value: float, full: float, word: int) -> None:
    assert codes_from_values(np.array([value]), full).tolist() == [word]


@given(st.integers(0, 65535), st.sampled_from([12.0, 24.0, 100.0, 83.333333]))
def test_a_whole_number_of_steps_keeps_its_word(word: int, full: float) -> None:
    assert codes_from_values(np.array([word / 65535 * full]), full).tolist() == [word]


@given(st.floats(0.0, 24.0))
def test_no_word_is_more_than_half_a_step_off(value: float) -> None:
    word = codes_from_values(np.array([value]), 24.0)[0]
    assert abs(int(word) / 65535 * 24.0 - value) <= 0.5 * 24.0 / 65535 + 1e-9


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (4.5, "4.5"), (13.15, "13.15"), (1e-5, "0.0"), (13.14996, "13.15"), (24.0, "24.0")],
)
def test_values_are_written_without_exponent_and_with_four_decimals_at_most(value: float, text: str) -> None:
    assert format_value(value) == text


def test_text_requests_are_those_of_the_maker() -> None:
    assert encode_set_channel_text(Quantity.VOLTAGE, 3, 4.5).data == b"V3=4.5\n"
    assert encode_set_channel_text(Quantity.CURRENT_LIMIT, 12, 20.0).data == b"IMAX12=20.0\n"
    assert encode_set_vector_text(Quantity.CURRENT, 8, [1.0, 2.5]).data == b"IVEC8=1.0,2.5\n"


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (OK_LINE, "OK"),
        (RENUMBERED_LINE, "\x06OK"),
        (IDENTITY_LINE, "Q8iv-0001"),
        (IDENTITY_LINE, "Q8iv-****"),
        (CHAIN_ENTRY_LINE, "Q8iv-0001: 0"),
        (CHAIN_ENTRY_LINE, "Q8iv-****: 1"),
        (FIRMWARE_LINE, "v2.4.1"),
        (VOLTAGE_LINE, "+4.5000 V"),
        (CURRENT_LINE, "-0.0033 mA"),
        (CHANNEL_READING_LINE, "0,5: +0.2048 V, +0.0009 mA"),
        (CHANNEL_READING_LINE, "0,5: +0.2048 V, +22.0300 mA,   4.5130 mW,      9 Ohm"),
        (LOG_ENTRY_LINE, "#  0, E10:00, 16 m ago"),
        (ERROR_LINE, "E05:03"),
    ],
)
def test_recorded_reply_lines_are_understood_whole(pattern, line: str) -> None:
    assert pattern.fullmatch(line)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (CURRENT_LINE, "+1.2e-03 mA"),
        (CURRENT_LINE, "+1.2000 V"),
        (CURRENT_LINE, "+1.2000"),
        (CURRENT_LINE, "1+1.2000 mA"),
        (VOLTAGE_LINE, "+1.2000 mA"),
        (VOLTAGE_LINE, "nan V"),
        (OK_LINE, "OKOK"),
        (OK_LINE, "\x06OK"),
        (IDENTITY_LINE, "Q8iv"),
        (CHANNEL_READING_LINE, "0,5: +0.2048 V"),
        (ERROR_LINE, "E1"),
    ],
)
def test_damaged_reply_lines_are_not(pattern, line: str) -> None:
    assert not pattern.fullmatch(line)


def test_errors_have_names() -> None:
    assert (error_name(1), error_name(15), error_name(77)) == ("OVER_VOLTAGE", "SERIAL_COMMUNICATION", "ERROR_77")
