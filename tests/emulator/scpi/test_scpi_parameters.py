"""Parameters as a host sees them: units, limits, words, strings, blocks."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.scpi import Numeric, ScpiError
from lumion_hw.emulator.scpi.commands import Call
from lumion_hw.emulator.scpi.lexer import parse_token
from lumion_hw.emulator.scpi.units import (
    FREQUENCY_HZ,
    LENGTH_M,
    POWER_DBM,
    POWER_W,
    RATIO_DB,
    SPEED_M_PER_S,
    TIME_S,
)
from tests.emulator.scpi.scpi_testbench import Host, Meter


@pytest.fixture
def meter():
    return Meter(VirtualClock())


@pytest.fixture
def host(meter):
    return Host(meter.instrument)


@pytest.mark.parametrize(
    ("suffixes", "text", "value"),
    [
        (LENGTH_M, b"1550 NM", 1.55e-6),
        (LENGTH_M, b"1650nm", 1.65e-6),
        (LENGTH_M, b"1 MM", 1e-3),
        (LENGTH_M, b"1 M", 1.0),
        (TIME_S, b"3MS", 3e-3),
        (TIME_S, b"3 US", 3e-6),
        (POWER_W, b"5MW", 5e-3),
        (POWER_W, b"2 WATT", 2.0),
        (POWER_W, b"0DBM", 1e-3),
        (POWER_W, b"10 dBm", 1e-2),
        (POWER_W, b"10000 MDBM", 1e-2),
        (POWER_DBM, b"-20 DBM", -20.0),
        (RATIO_DB, b"5MDB", 0.005),
        (FREQUENCY_HZ, b"193.1THZ", 193.1e12),
        (FREQUENCY_HZ, b"1 MHZ", 1e6),
        (SPEED_M_PER_S, b"40NM/S", 40e-9),
    ],
)
def test_units_of_each_table(suffixes, text, value):
    assert Numeric(suffixes=suffixes).parse(parse_token(text), Call({})) == pytest.approx(value, rel=1e-15)


def test_limit_given_in_another_unit_is_met_exactly():
    limit = Numeric(1.25e-6, 1.65e-6, suffixes=LENGTH_M)
    assert limit.parse(parse_token(b"1650 NM"), Call({})) == 1.65e-6
    assert limit.parse(parse_token(b"1250000PM"), Call({})) == 1.25e-6


def test_power_in_dbm_that_no_double_can_hold_is_out_of_range():
    with pytest.raises(ScpiError) as refusal:
        Numeric(suffixes=POWER_W).parse(parse_token(b"1E6DBM"), Call({}))
    assert refusal.value.code == -222


@pytest.mark.parametrize(("word", "value"), [("MIN", "4.0"), ("MAXimum", "17.0"), ("def", "13.1"), ("MINIMUM", "4.0")])
def test_limit_words_in_set_and_query_form(host, word, value):
    expected = f"{float(value) * 100:.8E}"
    assert host.ask(f"CORR:WAV? {word}") == expected
    host.ask(f"CORR:WAV {word}")
    assert host.ask("CORR:WAV?") == expected
    assert host.errors() == []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("CORR:WAV 399.999", -222),
        ("CORR:WAV 1E400", -222),
        ("CORR:WAV 1310NM", -138),
        ("CORR:WAV? 1310", -128),
        ("CORR:WAV MINI", -224),
        ("CORR:WAV INF", -224),
        ("CORR:WAV '1310'", -158),
        ("CORR:WAV #14abcd", -168),
        ("CORR:WAV 1310,1550", -108),
        ("CORR:WAV", -109),
        ("CORR:WAV ,", -108),
        ("POW:RANG 1 S", -131),
        ("POW:UNIT 1", -128),
        ("POW:UNIT LOGGI", -224),
        ("POW:UNIT 'W'", -158),
        ("POW:RANG:AUTO MAYBE", -224),
        ("POW:RANG:AUTO 1W", -138),
        ("DISP:LAB text", -148),
        ("DISP:LAB 1", -128),
        ("DATA:BLOB 'x'", -158),
        ("*ESE 256", -222),
        ("*ESE -1", -222),
        ("*ESE ON", -224),
    ],
)
def test_refused_value_changes_nothing(meter, host, line, code):
    before = dict(meter.values)
    assert host.ask(line) is None
    assert host.errors() == ([code] if code else [])
    assert meter.values == before


@pytest.mark.parametrize(
    ("sent", "value"), [("1", "+1"), ("0", "+0"), ("ON", "+1"), ("off", "+0"), ("7", "+1"), ("-3", "+1"), ("0.4", "+0")]
)
def test_booleans(host, sent, value):
    host.ask(f"POW:RANG:AUTO {sent}")
    assert host.ask("POW:RANG:AUTO?") == value


def test_enumeration_takes_short_and_long_form(host):
    for sent in ("LOGG", "logging"):
        host.ask("POW:UNIT W")
        host.ask(f"POW:UNIT {sent}")
        assert host.ask("POW:UNIT?") == "LOGGing"


def test_integer_parameter_rounds(host):
    host.ask("AVER 2.5")
    assert host.ask("AVER?") == "+3"
    host.ask("AVER 2.4")
    assert host.ask("AVER?") == "+2"


def test_string_with_separators_and_quotes_comes_back(host):
    host.ask('DISP:LAB "a;b,c ""d"""')
    assert host.ask("DISP:LAB?") == '"a;b,c ""d"""'


def test_block_with_every_awkward_byte_comes_back(host):
    payload = b"\n;,\"'#\x00\xff "
    host.raw(b"DATA:BLOB #19" + payload + b"\n")
    assert host.raw(b"DATA:BLOB?\n") == b"#19" + payload + b"\n"
    assert host.errors() == []


def test_silent_profile_ignores_an_out_of_range_value_without_an_error(meter, host):
    assert host.ask("GHOS 99999;*OPC?") == "1"
    assert host.errors() == []
    assert meter.values["wavelength"] == 1550.0


def test_failed_unit_does_not_stop_the_next_one(host):
    assert host.ask("CORR:WAV 9;BEAM?;:AVER;*IDN?") == "3.00000000E+00;Maker,M1,SN1,1.0"
    assert host.errors() == [-222, -109]
