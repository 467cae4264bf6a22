"""The N77xx emulator's commands, byte by byte (programming guide)."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.wires.device import EmulatedDevice
from lumion_hw.errors import ConfigError
from tests.emulator.scpi.scpi_testbench import Host


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def light():
    return dict.fromkeys(range(1, 9), 1e-3)


def make(clock, light, **options) -> EmulatedKeysightN77xx:
    return EmulatedKeysightN77xx("pm0", clock, np.random.default_rng(7), light.__getitem__, **options)


@pytest.fixture
def host(clock, light):
    return Host(make(clock, light))


def wait(host: Host, clock: VirtualClock, line: str) -> str:
    """Send a query and advance the clock until the reply arrives."""
    reply = host.ask(line)
    while reply is None:
        event = host.peer.next_event()
        clock.sleep(max(event - clock.now(), 1e-6))
        reply = host.peer.transmit().decode("latin-1").removesuffix("\n") or None
    return reply


def block(host: Host, clock: VirtualClock, line: bytes) -> bytes:
    """Query a block; return its payload after checking its frame."""
    raw = host.raw(line)
    while not raw:
        clock.sleep(max(host.peer.next_event() - clock.now(), 1e-6))
        raw = host.peer.transmit()
    digits = int(raw[1:2])
    length = int(raw[2 : 2 + digits])
    assert raw[:1] == b"#"
    assert raw[2 + digits + length :] == b"\n"
    return raw[2 + digits : 2 + digits + length]


def test_it_is_an_emulated_device(clock, light):
    device: EmulatedDevice = make(clock, light)
    assert device.name == "pm0"
    device.advance()


def test_identity_has_four_fields(host, clock, light):
    fields = host.ask("*IDN?").split(",")
    assert fields[:3] == ["Agilent Technologies", "N7745A", "DE00000001"]
    assert len(fields) == 4
    newer = Host(make(clock, light, model="N7744C", serial="MY1", n_ports=4, manufacturer="Keysight Technologies"))
    assert newer.ask("*IDN?").startswith("Keysight Technologies,N7744C,MY1,")


@pytest.mark.parametrize("sent", ["1310NM", "1310 nm", "1.31E-6", "1.31UM", "1310000PM"])
def test_wavelength_is_set_in_any_unit_and_replied_in_metres(host, sent):
    host.ask(f"SENS2:POW:WAV {sent}")
    assert host.ask("SENSE2:POWER:WAVELENGTH?") == "+1.31000000E-006"
    assert host.ask("SENS2:CHAN1:POW:WAV?;:SENS3:POW:WAV?") == "+1.31000000E-006;+1.55000000E-006"
    assert host.errors() == []


def test_wavelength_limits(host):
    assert host.ask("SENS1:POW:WAV? MIN;WAV? MAX;WAV? DEF") == "+1.25000000E-006;+1.65000000E-006;+1.55000000E-006"
    host.ask("SENS1:POW:WAV 1650NM;WAV 1250NM")
    assert host.errors() == []
    host.ask("SENS1:POW:WAV 1249NM;WAV 1651NM;WAV 1550")
    assert host.errors() == [-222] * 3
    assert host.ask("SENS1:POW:WAV?") == "+1.25000000E-006"


def test_wavelength_of_all_ports_at_once(host):
    host.ask("SENS1:POW:WAV:ALL 1310NM")
    assert host.ask("SENS1:POW:WAV?;:SENS8:POW:WAV?") == "+1.31000000E-006;+1.31000000E-006"


def test_averaging_time(host):
    host.ask("SENS1:POW:ATIM 1")
    assert host.ask("SENS1:POW:ATIM?") == "+1.00000000E+000"
    host.ask("SENS1:POW:ATIM 100US")
    assert host.ask("SENS1:POW:ATIM?;ATIM? MIN;ATIM? MAX") == "+1.00000000E-004;+1.00000000E-006;+1.00000000E+001"
    host.ask("SENS1:POW:ATIM 10.1")
    assert host.errors() == [-222]


@pytest.mark.parametrize(
    ("sent", "reply"), [("-20", "-2.00000000E+001"), ("-20DBM", "-2.00000000E+001"), ("-17.2", "-2.00000000E+001")]
)
def test_range_is_rounded_to_the_nearest_multiple_of_ten_and_ends_automatic_ranging(host, sent, reply):
    assert host.ask("SENS1:POW:RANG:AUTO?") == "+1"
    host.ask(f"SENS1:POW:RANG {sent}")
    assert host.ask("SENS1:POW:RANG?;RANG:UPP?;AUTO?") == f"{reply};{reply};+0"


def test_range_outside_the_head_is_rejected(host):
    host.ask("SENS1:POW:RANG 20;RANG -80")
    assert host.errors() == [-222, -222]
    assert host.ask("SENS1:POW:RANG:AUTO?") == "+1"


def test_unit_is_zero_for_dbm_and_one_for_watts(host, clock):
    assert host.ask("SENS1:POW:UNIT?") == "+0"
    assert float(wait(host, clock, "READ1:POW?")) == pytest.approx(0.0, abs=0.2)
    host.ask("SENS1:POW:UNIT 1")
    assert host.ask("SENS1:POW:UNIT?") == "+1"
    assert float(wait(host, clock, "READ1:CHAN1:POW?")) == pytest.approx(1e-3, rel=0.04)
    host.ask("SENS1:POW:UNIT 2")
    assert host.errors() == [-222]


def test_reading_is_a_keysight_float(host, clock):
    host.ask("SENS1:POW:UNIT 1")
    reply = wait(host, clock, "READ1:POW?")
    assert len(reply) == len("+1.33555600E-006")
    assert reply[0] == "+"
    assert reply[11:13] == "E-"


def test_all_ports_come_as_one_little_endian_block_in_the_order_of_the_configuration(host, clock, light):
    light.update({port: port * 1e-5 for port in light})
    for port in light:
        host.ask(f"SENS{port}:POW:UNIT 1")
    assert struct.unpack("<16H", block(host, clock, b"READ:POW:ALL:CONF?\n")) == tuple(
        number for port in range(1, 9) for number in (port, 1)
    )
    powers = struct.unpack("<8f", block(host, clock, b"READ:POW:ALL?\n"))
    assert powers == pytest.approx([port * 1e-5 for port in range(1, 9)], rel=0.04)


def test_channel_map_of_a_four_port_meter_is_the_published_vector(clock, light):
    host = Host(make(clock, light, n_ports=4))
    expected = bytes.fromhex("23 32 31 36 01 00 01 00 02 00 01 00 03 00 01 00 04 00 01 00 0A")
    assert host.raw(b":READ:POW:ALL:CONF?\n") == expected


def test_ports_are_checked(clock, light):
    host = Host(make(clock, light, n_ports=4))
    host.ask("SENS5:POW:UNIT?;:READ0:POW?;:SENS1:CHAN2:POW:UNIT?")
    assert host.errors() == [-114] * 3
    with pytest.raises(ConfigError, match="not 15"):
        make(clock, light, n_ports=15)


@pytest.mark.parametrize("model", ["N7745A", "N7745C"])
def test_booleans_are_words_or_numbers(clock, light, model):
    """The guide lists 0 and 1 as data; a public client tested with an N7744A and an N7745C sends ON (SCPI-1999 7.3)."""
    host = Host(make(clock, light, model=model))
    for sent, held in (("OFF", "+0"), ("ON", "+1"), ("0", "+0"), ("1", "+1")):
        host.ask(f"SENS1:POW:RANG:AUTO {sent};:INIT1:CONT {sent}")
        assert host.ask("SENS1:POW:RANG:AUTO?;:INIT1:CONT?") == f"{held};{held}"
    assert host.errors() == []


@pytest.mark.parametrize(
    ("sent", "held"),
    [("WATT", "+1"), ("dbm", "+0"), ("W", "+1"), ("0", "+0"), ("Watt", "+1"), ("DBM", "+0"), ("1", "+1")],
)
def test_unit_is_a_word_or_a_number(host, sent, held):
    host.ask(f"SENS1:POW:UNIT {1 - int(held)};:SENS1:POW:UNIT {sent}")
    assert host.ask("SENS1:POW:UNIT?") == held
    host.ask("SENS1:POW:UNIT WATTS")
    host.ask("SENS1:POW:UNIT 2")
    assert host.errors() == [-224, -222]


def test_last_readings_of_all_ports_come_as_a_block(host, clock):
    for port in range(1, 9):
        host.ask(f"SENS{port}:POW:UNIT 1")
    values = np.frombuffer(block(host, clock, b"FETC1:POW:ALL?\n"), "<f4")
    assert values == pytest.approx([1e-3] * 8, rel=0.04)
    assert clock.now() == 0.0, "it triggers nothing"


def test_csv_queries_belong_to_the_c_model(clock, light):
    older, newer = Host(make(clock, light)), Host(make(clock, light, model="N7745C"))
    newer.ask("SENS1:POW:UNIT 1;:SENS3:POW:UNIT 1")
    assert newer.ask("SENS:POW:UNIT:ALL:CSV?") == "1,0,1,0,0,0,0,0"
    assert newer.ask("SENS:POW:ATIM:ALL:CSV?").split(",") == ["+1.00000000E-001"] * 8
    # "affects: All instruments", stated for the unit only
    assert older.ask("SENS:POW:UNIT:ALL:CSV?") == "0,0,0,0,0,0,0,0"
    older.ask("SENS:POW:ATIM:ALL:CSV?")
    assert older.errors() == [-113]


def test_gain_automatic_and_continuous_switches(host):
    assert host.ask("SENS1:POW:GAIN:AUTO?;:INIT1:CONT?") == "+1;+1"
    host.ask("SENS1:POW:GAIN:AUTO 0;:INIT1:CONT 0")
    assert host.ask("SENS1:POW:GAIN:AUTO?;:INIT1:CONT?;:INIT2:CONT?") == "+0;+0;+1"


def test_reset_restores_defaults(host):
    host.ask("SENS1:POW:WAV 1310NM;UNIT 1;ATIM 2;RANG -30;:SENS1:CORR 3;:INIT1:CONT 0")
    host.ask("*RST")
    assert host.ask("SENS1:POW:WAV?;UNIT?;ATIM?;RANG:AUTO?") == "+1.55000000E-006;+0;+1.00000000E-001;+1"
    assert host.ask("SENS1:CORR:LOSS:INP:MAGN?;:INIT1:CONT?") == "+0.00000000E+000;+1"


def test_self_test_of_a_head(host):
    assert host.ask("SLOT1:HEAD1:TST?") == '+0,"self test OK"'


def test_responsivity_table_is_pairs_of_float32(host, clock):
    table = np.frombuffer(block(host, clock, b"SLOT1:HEAD1:WAV:RESP?\n"), "<f4").reshape(-1, 2)
    assert table[0, 0] == pytest.approx(1.25e-6, rel=1e-6)
    assert table[-1, 0] == pytest.approx(1.65e-6, rel=1e-6)
    assert ((table[:, 1] > 0.5) & (table[:, 1] < 1.2)).all()


def test_block_header_in_garbage_does_not_swallow_the_next_line(host):
    assert host.raw(b"SENS1:POW:WAV #550000\n*OPC?\n") == b"1\n"
    assert host.errors() == [-102]
    assert host.ask("SENS1:POW:WAV #13abc") is None
    assert host.errors() == [-168]


@pytest.mark.parametrize("header", ["SENS1:POW:WAVE?", "FETC1:POW", "READ:POW:ALL", "POW:UNIT?"])
def test_what_is_not_declared_is_undefined(host, header):
    assert host.ask(header) is None
    assert host.errors() == [-113]
