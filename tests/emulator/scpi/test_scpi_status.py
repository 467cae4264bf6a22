"""Status registers, error queue and reply formats."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.scpi.errors import ErrorQueue, event_bit
from lumion_hw.emulator.scpi.formats import (
    FLOAT32_MAX,
    float32,
    keysight_float,
    keysight_float32,
    keysight_int,
    plain_float,
    quoted,
)
from lumion_hw.emulator.scpi.state import RegisterGroup, StatusModel
from lumion_hw.errors import ConfigError
from tests.emulator.scpi.scpi_testbench import Host, Meter


@pytest.fixture
def meter():
    return Meter(VirtualClock())


@pytest.fixture
def host(meter):
    return Host(meter.instrument)


@pytest.mark.parametrize(
    ("code", "weight"),
    [(-100, 32), (-199, 32), (-200, 16), (-299, 16), (-310, 8), (-363, 8), (100, 8), (-410, 4), (-499, 4)],
)
def test_event_bit_of_each_error_class(code, weight):
    assert event_bit(code) == weight


def test_queue_makes_room_for_a_new_overflow_when_one_entry_is_read():
    queue = ErrorQueue(3)
    assert [queue.push(code) for code in (-101, -102, -103, -104)] == [-101, -102, -350, 0]
    assert queue.pop() == -101
    assert queue.push(-105) == -350
    assert [queue.pop() for _ in range(4)] == [-102, -350, -350, 0]


def test_queue_depth_is_a_profile_value():
    host = Host(Meter(VirtualClock(), queue_depth=10).instrument)
    for _ in range(15):
        host.ask("FOO")
    assert host.errors() == [-113] * 9 + [-350]
    with pytest.raises(ConfigError):
        ErrorQueue(1)


def test_positive_codes_take_their_text_from_the_profile():
    meter = Meter(VirtualClock(), error_texts={20: "wrong command for this head"})
    meter.instrument.state.report(20)
    host = Host(meter.instrument)
    assert host.ask("SYST:ERR?") == '+20,"wrong command for this head"'
    assert host.ask("*ESR?") == str(128 + 8)


def test_condition_latches_rises_by_default_and_falls_on_request():
    group = RegisterGroup()
    group.set_bit(3, True)
    group.set_bit(3, False)
    assert group.pop_event() == 8
    assert group.pop_event() == 0
    group.positive, group.negative = 0, 8
    group.set_bit(3, True)
    assert group.pop_event() == 0
    group.set_bit(3, False)
    assert group.pop_event() == 8


def test_bit_15_is_always_zero(host):
    group = RegisterGroup()
    group.condition = 0xFFFF
    assert group.condition == 32767
    host.ask("STAT:OPER:ENAB 65535;PTR 65535;NTR 65535")
    assert host.ask("STAT:OPER:ENAB?;PTR?;NTR?") == "+32767;+32767;+32767"


def test_bit_6_of_the_service_mask_cannot_be_set(host):
    host.ask("*SRE 255")
    assert host.ask("*SRE?") == str(0xBF)


def test_preset_enables_nothing_and_latches_rises(host):
    host.ask("STAT:OPER:ENAB 5;PTR 6;NTR 7;:STAT:QUES:ENAB 9")
    assert host.ask("STAT:OPER:ENAB?;PTR?;NTR?") == "+5;+6;+7"
    host.ask("STAT:PRES")
    assert host.ask("STAT:OPER:ENAB?;PTR?;NTR?;:STAT:QUES:ENAB?") == "+0;+32767;+0;+0"


def test_status_byte_bits():
    status = StatusModel()
    status.pop_events()
    assert status.status_byte(errors=False, message_available=False) == 0
    assert status.status_byte(errors=True, message_available=False) == 4
    assert status.status_byte(errors=False, message_available=True) == 16
    status.latch(1)
    assert status.status_byte(errors=False, message_available=False) == 0
    status.event_enable = 1
    assert status.status_byte(errors=False, message_available=False) == 32
    status.questionable.enable = status.operation.enable = 2
    status.questionable.set_bit(1, True)
    assert status.status_byte(errors=False, message_available=False) == 32 + 8
    status.operation.set_bit(1, True)
    assert status.status_byte(errors=False, message_available=False) == 128 + 32 + 8
    status.service_enable = 0xBF
    assert status.status_byte(errors=False, message_available=False) == 128 + 64 + 32 + 8


def test_reading_the_status_byte_clears_nothing_and_sees_waiting_output(host):
    host.ask("*CLS;*ESE 32;*SRE 32")
    host.ask("FOO")
    assert host.ask("*STB?") == str(4 + 32 + 64)
    assert host.ask("*STB?;*STB?") == f"{4 + 32 + 64};{4 + 16 + 32 + 64}"


def test_cls_clears_events_and_queue_but_not_the_masks(meter, host):
    host.ask("*ESE 21;*SRE 40;:STAT:OPER:ENAB 512")
    meter.instrument.state.status.operation.set_bit(9, True)
    host.ask("FOO")
    host.ask("*CLS")
    assert host.ask("*ESR?;*ESE?;*SRE?;*STB?") == "0;21;40;16"
    assert host.ask("STAT:OPER?;:STAT:OPER:ENAB?;COND?") == "+0;+512;+512"


def test_rst_sets_defaults_but_keeps_queue_and_masks(meter, host):
    host.ask("*ESE 21;:CORR:WAV 1310")
    host.ask("FOO")
    host.ask("*RST")
    assert host.ask("CORR:WAV?;*ESE?") == "1.55000000E+03;21"
    assert host.errors() == [-113]


def test_self_test_and_identity(host):
    assert host.ask("*TST?;*IDN?") == "0;Maker,M1,SN1,1.0"


def test_internal_error_is_reported_and_survived(host, caplog):
    assert host.ask("BUG?;*IDN?") == "Maker,M1,SN1,1.0"
    assert host.ask("*ESR?") == str(128 + 8)
    assert host.errors() == [-310]
    assert "planted" in caplog.text


def test_internal_error_at_the_end_of_an_operation_is_survived_too(meter, host, caplog):
    meter.instrument.state.begin(0.1, lambda: 1 / 0)
    meter.clock.sleep(1.0)
    meter.instrument.advance()
    assert host.errors() == [-310]
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.335556e-6, "+1.33555600E-006"),
        (1.0, "+1.00000000E+000"),
        (-20.0, "-2.00000000E+001"),
        (0.0, "+0.00000000E+000"),
        (1.31e-6, "+1.31000000E-006"),
    ],
)
def test_keysight_floats_have_three_exponent_digits(value, text):
    assert keysight_float(value) == text


def test_float32_maximum_on_the_wire():
    assert keysight_float32(FLOAT32_MAX) == "+3.40282347E+038"
    assert keysight_float32(1e300) == "+3.40282347E+038"
    assert float32(-1e300) == -FLOAT32_MAX


@pytest.mark.parametrize(
    ("value", "text"), [(1.31e-6, "+1.31000000E-006"), (1.335556e-6, "+1.33555600E-006"), (-20.0, "-2.00000000E+001")]
)
def test_value_held_in_32_bits_prints_as_in_the_manual(value, text):
    assert keysight_float32(value) == text


def test_keysight_wavelength_step_is_32_bit():
    """At 1.55 um one float32 step is 2^-20 / 2^23 = 1.137e-13 m."""
    on_grid = round(1.55e-6 * 2.0**43) / 2.0**43
    assert keysight_float32(on_grid + 0.5e-13) == keysight_float32(on_grid)
    assert keysight_float32(on_grid + 0.6e-13) != keysight_float32(on_grid)
    step = 2.0**-43
    assert float32(1.55e-6) == round(1.55e-6 / step) * step


def test_other_formats():
    assert (keysight_int(1), keysight_int(0), keysight_int(-3)) == ("+1", "+0", "-3")
    assert plain_float(1310.0) == "1.31000000E+03"
    assert quoted('a"b') == '"a""b"'


def test_terminator_is_a_profile_value():
    host = Host(Meter(VirtualClock(), terminator=b"\r\n").instrument)
    assert host.raw(b"*OPC?\n") == b"1\r\n"


def test_terminator_after_a_block_can_be_left_out():
    host = Host(Meter(VirtualClock(), terminated_blocks=False).instrument)
    assert host.raw(b"DATA:BLOB #12ab;BLOB?\n") == b"#12ab"
    assert host.raw(b"*OPC?\n") == b"1\n"


def test_vendor_words_and_number_format_of_errors_are_profile_values():
    host = Host(Meter(VirtualClock(), error_texts={-113: "Unknown command"}, error_number=str).instrument)
    host.ask("FOO")
    assert host.ask("SYST:ERR?") == '-113,"Unknown command"'
    assert host.ask("SYST:ERR?") == '0,"No error"'


def test_version_of_the_language_can_be_asked_unless_the_instrument_has_none():
    assert Host(Meter(VirtualClock()).instrument).ask("SYST:VERS?") == "1999.0"
    host = Host(Meter(VirtualClock(), scpi_version=None).instrument)
    assert host.ask("SYST:VERS?") is None
    assert host.errors() == [-113]


def test_group_of_one_vendor_has_its_own_bit_in_the_status_byte():
    model = StatusModel()
    model.extra[1] = RegisterGroup()
    model.extra[1].enable = 4
    model.extra[1].condition = 4
    assert model.status_byte(errors=False, message_available=False) == 2
    model.clear()
    assert model.status_byte(errors=False, message_available=False) == 0
    model.preset()
    assert model.extra[1].enable == 0
    model.reset_conditions()
    assert model.extra[1].condition == 0
