"""Command lines with known replies, and the meaning of a path after another path (SCPI-99)."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from tests.emulator.scpi.scpi_testbench import Host, Meter


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def meter(clock):
    return Meter(clock).instrument


@pytest.fixture
def host(meter):
    return Host(meter)


@pytest.fixture
def keysight(clock):
    return Host(EmulatedKeysightN77xx("pm", clock, np.random.default_rng(1), lambda _: 1e-3, model="N7744A", n_ports=4))


# -- path table (2.3)


def test_second_unit_is_looked_up_below_the_path_of_the_first(host):
    assert host.ask("SENS:CORR:WAV 1310;BEAM 5") is None
    assert host.ask("SENS:CORR:WAV?;BEAM?") == "1.31000000E+03;5.00000000E+00"
    assert host.errors() == []


def test_common_command_leaves_the_path_alone(host):
    assert host.ask("SENS:CORR:WAV 1310;*OPC?;BEAM?") == "1;3.00000000E+00"
    assert host.errors() == []


def test_leading_colon_goes_back_to_the_root(host):
    assert host.ask("ABOR;:STAT:OPER?") == "+0"
    assert host.errors() == []


def test_there_is_no_second_try_from_the_root(host):
    assert host.ask("MEAS:VOLT?;MEAS:CURR?") == "+1.00000000E+000"
    assert host.errors() == [-113]
    assert host.ask("MEAS:VOLT?;MEAS:VOLT?") == "+1.00000000E+000"
    assert host.errors() == [-113]


def test_optional_last_node_left_out_does_not_lengthen_the_path(host):
    assert host.ask("SENS:POW:RANG 2E-3;UNIT DBM") is None
    assert host.ask("SENS:POW:RANG?;UNIT?") == "2.00000000E-03;DBM"
    assert host.errors() == []


def test_path_is_forgotten_at_the_terminator(host):
    host.ask("SENS:CORR:WAV 1310")
    assert host.ask("BEAM?") is None
    assert host.errors() == [-113]


# -- minimum test vectors (2.11)


def test_short_and_long_forms_in_any_case(host):
    host.ask("sens:correction:WAV 1310")
    assert host.ask("SENS:CORR:WAVelength?") == "1.31000000E+03"
    assert host.errors() == []


@pytest.mark.parametrize(
    ("line", "codes", "event_bits"),
    [
        ("SENS:CORR:WAVEL?", {-113}, 32),
        ("AVER", {-109}, 32),
        ("SENS1:POW:ATIM 1,2", {-108}, 32),
        ("SENS1:POW:ATIM 1V", {-131}, 32),
        ("SENS1:POW:ATIM 1E9", {-222}, 16),
        ("SENS1:POW:ATIM abc", {-224}, 16),
        ("SENS9:POW:UNIT?", {-114}, 32),
    ],
)
def test_refused_line_leaves_no_reply_one_error_and_its_event_bit(host, line, codes, event_bits):
    host.ask("*CLS")
    assert host.ask(line) is None
    assert host.ask("*ESR?") == str(event_bits)
    assert set(host.errors()) == codes
    assert host.ask("SENS1:POW:ATIM?") == "+1.00000000E+000"


@pytest.mark.parametrize(
    ("line", "code", "event_bits"),
    [
        ("SENS1:POW:ATIM 1,2", -108, 32),
        ("SENS1:POW:ATIM 1V", -131, 32),
        ("SENS1:POW:ATIM abc", -224, 16),
        ("SENS1:POW:ATIM 1E9", -222, 16),
        ("SENS9:POW:UNIT?", -114, 32),
    ],
)
def test_keysight_meter_refuses_the_same_lines(keysight, line, code, event_bits):
    keysight.ask("SENS1:POW:ATIM 2;*CLS")
    assert keysight.ask(line) is None
    assert keysight.ask("*ESR?") == str(event_bits)
    assert keysight.errors() == [code]
    assert keysight.ask("SENS1:POW:ATIM?") == "+2.00000000E+000"


def test_event_status_register_says_power_on_once_and_is_cleared_by_reading(host):
    assert host.ask("*ESR?;*ESR?") == "128;0"
    host.ask("*CLS")
    host.ask("FOO:BAR")
    assert host.ask("*ESR?;*ESR?") == "32;0"


def test_forty_unknown_headers_fill_the_queue_and_say_so(host):
    host.ask("*CLS")
    for _ in range(40):
        host.ask("FOO")
    replies = [host.ask("SYST:ERR?") for _ in range(31)]
    assert replies == ['-113,"Undefined header"'] * 29 + ['-350,"Queue overflow"', '+0,"No error"']
    assert host.ask("*ESR?") == str(32 + 8)


def test_cls_empties_event_register_and_queue(host):
    host.ask("FOO")
    assert host.ask("*CLS;*ESR?;SYST:ERR?") == '0;+0,"No error"'


def test_error_of_one_connection_is_read_on_another(meter):
    a, b = Host(meter), Host(meter)
    a.ask("FOO")
    assert b.ask("SYST:ERR?") == '-113,"Undefined header"'
    assert a.ask("SYST:ERR?") == '+0,"No error"'


def test_query_in_three_segments_is_one_query(host, clock):
    host.ask("SENS:POW:ATIM 10US")
    for segment in (b"RE", b"AD", b"?\n"):
        assert host.raw(segment) == b""
        clock.sleep(0.05)
    assert host.peer.transmit() == b"+1.00000000E-003\n"
    assert host.peer.transmit() == b""


def test_two_messages_in_one_segment_are_answered_in_order(host):
    assert host.raw(b"*OPC?\nSENS:CORR:BEAM?\r\n") == b"1\n3.00000000E+00\n"


@pytest.mark.parametrize("seed", range(20))
def test_4096_random_bytes_then_identity(meter, seed):
    host = Host(meter)
    noise = np.random.default_rng(seed).integers(0, 256, 4096, dtype=np.uint8).tobytes()
    host.raw(noise + b"\n")
    assert host.ask("*IDN?") == "Maker,M1,SN1,1.0"
    assert len(host.errors()) >= 1


def test_client_that_closes_before_its_reply_harms_nobody(meter, clock):
    leaver, other = Host(meter), Host(meter)
    leaver.raw(b"READ?\n")
    leaver.raw(b"SENS:CORR:WA")
    leaver.peer.close()
    leaver.peer.close()
    assert other.ask("*IDN?") == "Maker,M1,SN1,1.0"
    clock.sleep(5.0)
    meter.advance()
    assert other.ask("SYST:ERR?") == '+0,"No error"'


def test_block_vectors_are_byte_exact():
    from lumion_hw.emulator.scpi.formats import definite_block, float32_block, uint16_block

    assert float32_block([1e-6, 2e-6]) == bytes.fromhex("23 31 38 BD 37 86 35 BD 37 06 36")
    assert uint16_block([1, 1, 2, 1, 3, 1, 4, 1]) == bytes.fromhex(
        "23 32 31 36 01 00 01 00 02 00 01 00 03 00 01 00 04 00 01 00"
    )
    assert definite_block(b"") == b"#10"
