"""Bytes to messages and units: terminators, strings, blocks, over-long input."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lumion_hw.emulator.scpi.framing import Framer, block_end


def units(data: bytes, limit: int = 1000) -> list[tuple[bytes, ...]]:
    return [message.units for message in Framer(limit).feed(data)]


def test_lf_and_crlf_end_a_message():
    assert units(b"*IDN?\n*CLS\r\n") == [(b"*IDN?",), (b"*CLS",)]


def test_cr_alone_ends_a_message_where_the_instrument_says_so():
    def messages(data: bytes) -> list[tuple[bytes, ...]]:
        return [message.units for message in Framer(20, cr_ends=True).feed(data) if message.units != (b"",)]

    assert messages(b"*IDN?\rA 1;B\r\n*CLS\n") == [(b"*IDN?",), (b"A 1", b"B"), (b"*CLS",)]
    assert messages(b"A #13\r;\n;B\r") == [(b"A #13\r;\n", b"B")], "inside a block it is data"
    assert messages(b"A" * 30 + b"\rB\r") == [(), (b"B",)], "an overrun ends there too"
    assert units(b"*IDN?\rA\n") == [(b"*IDN?\rA",)]


def test_semicolon_separates_units():
    assert units(b"A 1;B 2;;C\n") == [(b"A 1", b"B 2", b"", b"C")]


@pytest.mark.parametrize("text", [b"A 'x;y';B", b'A "x;y";B', b'A "x"";y";B', b"A 'it''s;';B"])
def test_semicolon_inside_a_string_is_data(text):
    assert units(text + b"\n") == [(text[:-2], b"B")]


def test_lf_ends_even_an_open_string():
    assert units(b'A "x\n*IDN?\n') == [(b'A "x',), (b"*IDN?",)]


def test_everything_inside_a_block_is_data():
    block = b"#18\n;\"'\n#\n;"
    assert units(b"A " + block + b";B\n") == [(b"A " + block, b"B")]


def test_block_of_all_lf_arrives_byte_by_byte():
    framer = Framer(1000)
    wire = b"A #220" + b"\n" * 20 + b"\n"
    arrived = [message for byte in wire for message in framer.feed(bytes([byte]))]
    assert [message.units for message in arrived] == [(wire[:-1],)]


def test_cr_that_is_the_last_byte_of_a_block_is_data():
    assert units(b"A #11\r\n") == [(b"A #11\r",)]
    assert units(b"A #11\r\r\n") == [(b"A #11\r",)]
    assert units(b"\r\n") == [(b"",)]


def test_hash_inside_a_word_or_string_or_after_line_noise_is_no_block():
    assert units(b"A#19\n") == [(b"A#19",)]
    assert units(b'A " #19"\n') == [(b'A " #19"',)]
    assert units(b"\x00A #19\n*IDN?\n") == [(b"\x00A #19",), (b"*IDN?",)]


def test_instrument_without_block_parameters_is_in_step_at_every_lf():
    framer = Framer(1000, blocks=False)
    assert [message.units for message in framer.feed(b"A #19\n*IDN?\n")] == [(b"A #19",), (b"*IDN?",)]


def test_block_longer_than_the_input_buffer_is_not_waited_for():
    assert units(b"A #9999999999\n*IDN?\n") == [(b"A #9999999999",), (b"*IDN?",)]


@pytest.mark.parametrize(
    ("data", "end"), [(b" #10", 4), (b" #13abc", 7), (b" #13ab", None), (b" #2", None), (b" #2x", 1), (b" #H1", 1)]
)
def test_end_of_a_block(data, end):
    assert block_end(data, 1, 100) == end


def test_overlong_message_is_reported_once_and_discarded_to_its_terminator():
    framer = Framer(10)
    messages = framer.feed(b"x" * 25)
    assert [message.overrun for message in messages] == [True]
    assert framer.feed(b"y" * 25) == []
    assert [message.units for message in framer.feed(b"z\n*IDN?\n")] == [(b"*IDN?",)]


def test_overlong_message_in_one_piece_does_not_take_the_next_one_with_it():
    messages = Framer(10).feed(b"x" * 25 + b"\n*IDN?\n")
    assert [(message.overrun, message.units) for message in messages] == [(True, ()), (False, (b"*IDN?",))]


@given(st.binary(max_size=400).map(lambda b: b.replace(b"\x01", b" #15").replace(b"\x02", b"\n")), st.data())
def test_messages_do_not_depend_on_how_the_bytes_are_split(data, draw):
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=6)))
    whole = Framer(4096)
    parts = Framer(4096)
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    arrived = [message for piece in pieces for message in parts.feed(piece)]
    expected = whole.feed(data)
    assert [m.units for m in arrived if not m.overrun] == [m.units for m in expected if not m.overrun]
