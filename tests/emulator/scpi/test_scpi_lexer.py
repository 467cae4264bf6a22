"""From message units to headers and tokens."""

from __future__ import annotations

import pytest

from lumion_hw.emulator.scpi import Call, Numeric
from lumion_hw.emulator.scpi.errors import ScpiError
from lumion_hw.emulator.scpi.lexer import Token, TokenKind, parse_token, parse_unit


def code_of(function, *arguments) -> int:
    with pytest.raises(ScpiError) as refusal:
        function(*arguments)
    return refusal.value.code


def test_white_space_around_unit_header_and_commas_is_ignored():
    unit = parse_unit(b" \t:SENS:FUNC   1 ,\t'a , b' , #15a, ;\n ", 100)
    assert unit.header.mnemonics == ("SENS", "FUNC")
    assert unit.header.absolute
    assert unit.parameters == (b"1", b"'a , b'", b"#15a, ;\n ")


def test_empty_unit_is_nothing():
    assert parse_unit(b" \t ", 100) is None


@pytest.mark.parametrize(("text", "query", "common"), [(b"*IDN?", True, True), (b"a:b", False, False)])
def test_header_kinds(text, query, common):
    header = parse_unit(text, 100).header
    assert (header.query, header.common, header.absolute) == (query, common, False)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"SENS::POW", -102),
        (b"SENS:POW:", -102),
        (b":*IDN?", -102),
        (b"2SENS", -102),
        (b"POW??", -102),
        (b"POW?MIN", -102),
        (b"PO$W", -101),
        (b"POW 1\x80", -101),
        (b"\x00POW", -101),
        (b'POW "a\x07"', -101),
    ],
)
def test_malformed_header_or_foreign_byte(text, code):
    assert code_of(parse_unit, text, 100) == code


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"1", 1),
        (b"+1.5", 1.5),
        (b"-.5E-3", -0.5e-3),
        (b"2.e2", 200),
        (b"1 E 3", 1000),
        (b"#HfF", 255),
        (b"#Q17", 15),
        (b"#b101", 5),
    ],
)
def test_numbers(text, value):
    token = parse_token(text)
    assert token.kind is TokenKind.NUMBER
    assert float(token.text) * 10.0**token.exponent == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "suffix"), [(b"1nm", "NM"), (b"1 NM", "NM"), (b"1e-3W", "W"), (b"4 nm/s", "NM/S"), (b"1", "")]
)
def test_suffix_with_or_without_white_space(text, suffix):
    assert parse_token(text).suffix == suffix


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"1?", -121),
        (b"1.2.3", -121),
        (b"#B12", -121),
        (b"#H", -121),
        (b"1 2", -103),
        (b"+", -120),
        (b".", -120),
        (b"1e32001", -123),
        (b"1e-" + b"9" * 6000, -123),
        (b"9" * 256, -124),
        (b"#H" + b"F" * 256, -124),
        (b"1" + b"V" * 13, -134),
        (b"ab-c", -141),
        (b'"abc', -102),
        (b'"a"b"', -102),
        (b'"', -102),
        (b"#", -102),
        (b"#15ab", -102),
        (b"#12abc", -102),
        (b"#0abc", -102),
        (b"$", -102),
        (b"", -102),
    ],
)
def test_malformed_parameter(text, code):
    assert code_of(parse_token, text) == code


def test_leading_zeros_do_not_count_as_digits():
    assert float(parse_token(b"0" * 5000 + b"7").text) == 7


def test_doubled_quotes_stand_for_one():
    assert parse_token(b'"say ""hi"""').text == 'say "hi"'
    assert parse_token(b"'it''s'").text == "it's"


def test_block_content_is_taken_as_it_is():
    assert parse_token(b"#14\n;\x00\xff ").data == b"\n;\x00\xff"
    assert parse_token(b"#10").data == b""


def test_a_list_of_channels_is_one_parameter_that_only_some_commands_take():
    unit = parse_unit(b":ROUT:ADD (@1,2), (@17,18)", 100)
    assert unit.parameters == (b"(@1,2)", b"(@17,18)")
    assert parse_token(unit.parameters[0]) == Token(TokenKind.EXPRESSION, "@1,2")
    assert code_of(parse_token, b"(@1,2") == -102
    with pytest.raises(ScpiError) as refusal:
        Numeric().parse(parse_token(b"(@1)"), Call({}))
    assert refusal.value.code == -104
