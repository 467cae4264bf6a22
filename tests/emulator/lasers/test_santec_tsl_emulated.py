"""The TSL-550 and TSL-570 emulator: two command sets, units, sweeps."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl
from lumion_hw.emulator.wires.device import EmulatedDevice
from lumion_hw.errors import ConfigError
from tests.emulator.scpi.scpi_testbench import Host


class Bench:
    """A laser, a clock and a host."""

    def __init__(self, **options) -> None:
        self.clock = VirtualClock()
        self.pulses: list[float] = []
        self.laser = EmulatedSantecTsl(
            "laser0", self.clock, np.random.default_rng(6), on_triggers=self.pulses.extend, **options
        )
        self.host = Host(self.laser)

    def ask(self, line: str) -> str | None:
        reply = self.host.ask(line)
        while reply is None and (event := self.host.peer.next_event()) is not None:
            self.clock.sleep(max(event - self.clock.now(), 1e-6))
            reply = self.host.peer.transmit().decode().strip() or None
        return reply


@pytest.fixture
def bench():
    return Bench()


def test_identity(bench):
    device: EmulatedDevice = bench.laser
    assert device.name == "laser0"
    assert bench.ask("*IDN?").startswith("SANTEC,TSL-570,")
    with pytest.raises(ConfigError):
        Bench(model="TSL-9000")


@pytest.mark.parametrize("end", [b"\r", b"\r\n", b"\n"])
def test_a_carriage_return_alone_ends_messages_both_ways(end):
    bench = Bench()
    assert bench.host.raw(b"*OPC?" + end + b"WAV:UNIT?" + end) == b"1\r0\r"
    assert bench.host.raw(b"*OPC") == b""
    assert bench.host.raw(b"?" + end) == b"1\r"
    assert bench.host.errors() == []


def test_errors_and_alerts_have_the_makers_words(bench):
    """QMI compares both texts as a whole."""
    assert bench.ask("SYST:ERR?;:SYST:ALER?") == '0,"No error";No alerts.'
    bench.ask("NONSENSE")
    assert bench.ask("SYST:ERR?") == '-113,"Undefined header"'


def test_settings_without_effect_are_told_as_they_were_set(bench):
    for line, query, reply in (
        ("WAV:UNIT 1", "WAV:UNIT?", "1"),
        ("WAV:FIN -12.34", ":SOUR:WAV:FINE?", "-12.34"),
        ("WAV:FIN:DIS", "WAV:FIN?", "0.00"),
        ("COHC 1", ":COHCtrl?", "1"),
        ("WAV:OFFS 0.05", "WAV:OFFS?", "0.0500"),
        ("TRIG:OUTP:SETT 1", "TRIG:OUTP:SETT?", "1"),
        ("POW:ATT:AUT 0", "POW:ATT:AUT?", "0"),
    ):
        bench.ask(line)
        assert bench.ask(query) == reply, line
    bench.ask("WAV:FIN 100.1;FIN -101;:COHC 2")
    assert bench.host.errors() == [-222, -222, -222]
    bench.ask("*RST")
    assert bench.ask("WAV:UNIT?;:COHC?;:POW:ATT:AUT?") == "0;0;1"


def test_every_command_of_the_makers_sample_is_understood(bench):
    """The calls of santec-corporation/python-samples, samples/tsl_instrument, as sent over the wire."""
    queries = (
        "*IDN?;*TST?;*OPC?;*ESE?;*ESR?;*SRE?;*STB?",
        ":WAV?;:WAV:UNIT?;:WAV:FIN?;:COHC?;:FREQ?",
        ":POW:STAT?;:POW:ATT?;:POW:ATT:AUT?;:POW?;:POW:ACT?;:POW:SHUT?;:POW:UNIT?",
        ":WAV:SWE:STAR?;:WAV:SWE:STOP?;:WAV:SWE:RANG:MIN?;:WAV:SWE:RANG:MAX?;:WAV:SWE:STEP?",
        ":FREQ:SWE:STAR?;:FREQ:SWE:STOP?;:FREQ:SWE:RANG:MIN?;:FREQ:SWE:RANG:MAX?;:FREQ:SWE:STEP?",
        ":WAV:SWE:MOD?;:WAV:SWE:SPE?;:WAV:SWE:DWEL?;:WAV:SWE:CYCL?;:WAV:SWE:COUN?;:WAV:SWE:DEL?;:WAV:SWE?",
        ":AM:STAT?;:AM:SOUR?;:TRIG:INP:EXT?;:TRIG:INP:ACT?;:TRIG:INP:STAN?",
        ":TRIG:OUTP?;:TRIG:OUTP:ACT?;:TRIG:OUTP:STEP?;:TRIG:OUTP:SETT?;:TRIG:THR?",
        ":SYST:ERR?;:SYST:COMM:GPIB:ADDR?;:SYST:COMM:GPIB:DEL?;:SYST:COMM:COD?;:SYST:LOCK?;:SYST:VERS?",
        ":DISP:BRIG?;:SYST:ALER?;:READ:POIN?",
    )
    for line in queries:
        assert len(bench.ask(line).split(";")) == line.count("?"), line
    commands = (
        "*CLS;*RST;*ESE 1;*SRE 1",
        ":WAV:UNIT 0;:WAV 1550;:FREQ 193.1;:WAV:FIN 1;:WAV:FIN:DIS;:COHC 0",
        ":POW:STAT 1;:POW:ATT 3;:POW:ATT:AUT 1;:POW 5;:POW:SHUT 0;:POW:UNIT 0",
        ":WAV:SWE:STAR 1500;:WAV:SWE:STOP 1510;:WAV:SWE:STEP 0.1;:FREQ:SWE:STEP 0.1;:WAV:SWE:MOD 1;:WAV:SWE:SPE 20",
        ":WAV:SWE:DWEL 0.1;:WAV:SWE:CYCL 1;:WAV:SWE:DEL 0",
        ":AM:STAT 0;:AM:SOUR 1;:TRIG:INP:EXT 0;:TRIG:INP:ACT 0;:TRIG:INP:STAN 1",
        ":TRIG:OUTP 3;:TRIG:OUTP:ACT 0;:TRIG:OUTP:STEP 0.1;:TRIG:OUTP:SETT 0;:TRIG:THR 0",
        ":SYST:COMM:GPIB:ADDR 1;:SYST:COMM:GPIB:DEL 2;:SYST:COMM:COD 0;:DISP:BRIG 50;:WAV:SWE 1",
    )
    for line in commands:
        assert bench.ask(line) is None
    bench.clock.sleep(2.0)
    bench.ask(":WAV:SWE:SOFT")
    assert bench.host.errors() == []


def test_limits_are_told_in_the_unit_in_force(bench):
    assert bench.ask("WAV:MIN?;MAX?;:POW:LEV:MIN?;MAX?") == "1480.0000;1640.0000;-15.00;13.00"
    assert bench.ask("WAV:FREQ:MIN?;:FREQ:MAX?") == "182.80028;202.56247"  # 299792.458 / 1640 and / 1480
    bench.ask("SYST:COMM:COD 1")
    assert bench.ask("WAV:MIN?") == "+1.48000000E-006"


def test_wavelength_is_in_nm_by_the_legacy_set_and_in_m_by_the_scpi_set(bench):
    bench.ask("WAV 1560;*OPC?")
    assert float(bench.ask("WAV?")) == 1560.0
    assert float(bench.ask("FREQ?")) == pytest.approx(192.174652, abs=1e-5)  # 299792.458 / 1560
    bench.ask("WAV 1.56E-6")
    assert bench.host.errors() == [-222]
    bench.ask("SYST:COMM:COD 1")
    assert bench.ask("SYST:COMM:CODe?;:WAV?") == "1;+1.56000000E-006"
    assert float(bench.ask("FREQ?")) == pytest.approx(192.174652e12, rel=1e-8)
    bench.ask("WAV 1.55E-6;*OPC?")
    bench.ask("WAV 1555")
    assert bench.host.errors() == [-222]
    bench.ask("WAV 1555NM;*OPC?")
    assert bench.ask("WAV?;:WAV? MIN") == "+1.55500000E-006;+1.48000000E-006"
    bench.ask("FREQ 193.1E12;*OPC?")
    assert bench.laser.light().wavelength_nm == pytest.approx(299_792.458 / 193.1, abs=0.02)
    bench.ask("*RST")
    assert bench.ask("SYST:COMM:COD?") == "1", "a reset does not change the command set"


def test_short_forms_are_the_makers(bench):
    bench.ask("WAV:SWE:MOD 3")
    assert bench.ask("WAV:SWE:MODe?") == "3"
    bench.ask("WAV:SWE:MODE 1")
    assert bench.ask("WAV:SWE:MODE?") == "1"
    bench.ask("SYST:COMM:CO 1")
    assert bench.host.errors() == [-113]


def test_light_needs_diode_and_open_shutter():
    bench = Bench(model="TSL-550")
    assert bench.ask("POW:SHUT?") == "1"
    bench.ask("POW:STAT 1")
    assert bench.laser.light().power_w == 0.0
    bench.ask("POW:SHUT 0")
    bench.clock.sleep(5.0)
    assert bench.laser.light().power_w == pytest.approx(1e-3, rel=0.12)
    bench.ask("POW:SHUT 1")
    assert bench.laser.light().power_w == 0.0


def test_older_model_has_one_command_set():
    bench = Bench(model="TSL-550")
    bench.ask("SYST:COMM:COD 1")
    assert bench.ask("WAV:SWE:RANG:MIN?") is None
    assert bench.host.errors() == [-113, -113]
    bench.ask("WAV:SWE:SPE 12.34")
    assert bench.ask("WAV:SWE:SPE?") == "12.3"
    bench.ask("WAV:SWE:SPE 150")
    assert bench.host.errors() == [-222]


def test_power_units(bench):
    bench.ask("POW 3")
    assert float(bench.ask("POW?")) == 3.0
    bench.ask("POW:UNIT 1")
    assert bench.ask("POW?") == "2.00", "hundredths of a milliwatt"
    bench.ask("POW 1;POW 100")
    assert float(bench.ask("POW?")) == pytest.approx(1.0)
    assert bench.host.errors() == [-222]
    bench.ask("POW 0DBM;:POW:STAT 1")
    bench.clock.sleep(5.0)
    assert float(bench.ask("POW:ACT?")) == pytest.approx(1.0, rel=0.12)
    bench.ask("POW:UNIT 0")
    assert float(bench.ask("POW:ACT?")) == pytest.approx(0.0, abs=0.5)


def test_dark_monitor_says_less_than_99_db_below_a_milliwatt(bench):
    assert bench.ask("POW:ACT?") == "-99.99"
    bench.ask("POW:UNIT 1")
    assert bench.ask("POW:ACT?") == "0.00"
    assert bench.host.errors() == []


def test_the_monitor_sits_before_the_shutter(bench):
    bench.ask("POW:STAT 1;SHUT 1")
    bench.clock.sleep(5.0)
    assert float(bench.ask("POW:ACT?")) == pytest.approx(0.0, abs=0.5)
    assert bench.laser.light().power_w == 0.0
    opened_s = bench.clock.now()
    bench.ask("POW:SHUT 0")
    assert bench.laser.light().power_w == pytest.approx(1e-3, rel=0.12), "the diode was warm"
    bench.clock.sleep(1.0)
    assert bench.laser.light_at(opened_s - 0.5).power_w == 0.0


def test_speeds_are_those_of_the_model(bench):
    for speed in (1, 2, 5, 10, 20, 50, 100, 200):
        bench.ask(f"WAV:SWE:SPE {speed}")
        assert float(bench.ask("WAV:SWE:SPE?")) == speed
    bench.ask("WAV:SWE:SPE 30")
    assert bench.host.errors() == [-222]


def sweep(bench: Bench, *lines: str) -> None:
    bench.ask("WAV:SWE:STAR 1550;STOP 1560;STEP 1;SPE 10;MOD 1;:TRIG:OUTP 3;OUTP:STEP 1")
    for line in lines:
        bench.ask(line)
    bench.ask("WAV:SWE 1")


def test_sweep_prepares_runs_and_stops(bench):
    sweep(bench)
    assert bench.ask("WAV:SWE?") == "4"
    bench.clock.sleep(0.5)
    assert bench.ask("WAV:SWE?") == "1"
    start = bench.clock.now()
    assert bench.ask("*OPC?") == "1"
    assert bench.clock.now() - start == pytest.approx(0.9, abs=0.01)
    assert bench.ask("WAV:SWE?;:WAV:SWE:COUN?") == "0;1"
    assert float(bench.ask("WAV?")) == 1560.0
    assert np.diff(bench.pulses) == pytest.approx([0.1] * 10)


@pytest.mark.parametrize(("timing", "pulses"), [(0, []), (1, [1.0]), (2, [0.0]), (3, [0.0, 0.25, 0.5, 0.75, 1.0])])
def test_trigger_output_is_off_at_the_end_at_the_start_or_at_steps(bench, timing, pulses):
    sweep(bench, f"TRIG:OUTP {timing};OUTP:STEP 2.5", "WAV:SWE:DEL 0")
    bench.ask("*OPC?")
    ended_s = bench.clock.now()
    assert np.array(bench.pulses) - ended_s + 1.0 == pytest.approx(pulses, abs=1e-6)
    assert bench.ask("READ:POIN?") == str(len(pulses))


def test_pulses_come_at_most_20_000_times_a_second(bench):
    sweep(bench, "WAV:SWE:STOP 1550.01;:TRIG:OUTP:STEP 0.0001")  # 0.1 pm at 10 nm/s would be 100 kHz
    bench.ask("*OPC?")
    assert np.diff(bench.pulses) == pytest.approx([50e-6] * 20)
    assert bench.ask("READ:POIN?") == "21"


def test_the_log_holds_the_wavelength_of_every_pulse(bench):
    sweep(bench)
    bench.ask("*OPC?")
    assert bench.ask("READ:POIN?") == "11"
    block = bench.host.raw(b"READ:DAT?\r")
    assert block[:4] == b"#244", "nothing follows the block"
    assert len(block) == 4 + 44
    assert np.frombuffer(block[4:], "<i4") * 1e-4 == pytest.approx(np.arange(1550.0, 1561.0), abs=0.02)
    bench.ask("SYST:COMM:COD 1")
    block = bench.host.raw(b"READout:DATa?\r")
    assert np.frombuffer(block[4:], "<f8") == pytest.approx(np.arange(1550.0, 1561.0) * 1e-9, abs=2e-11)


def test_sweep_waits_for_its_trigger(bench):
    sweep(bench, "TRIG:INP:STAN 1")
    bench.clock.sleep(60.0)
    assert bench.ask("WAV:SWE?") == "3"
    bench.ask("TRIG:INP:SOFT")
    assert bench.ask("WAV:SWE?") == "1"
    bench.ask("TRIG:INP:SOFT")
    assert bench.host.errors() == [-200]
    bench.ask("*OPC?")
    sweep(bench, "TRIG:INP:STAN 0", "TRIG:INP:EXT 1")
    bench.clock.sleep(1.0)
    bench.laser.trigger()
    bench.clock.sleep(1.01)
    assert bench.ask("WAV:SWE?") == "0"


def test_cycles_delays_and_two_ways(bench):
    sweep(bench, "WAV:SWE:CYCL 2", "WAV:SWE:DEL 1.5", "WAV:SWE:MOD 3")
    start = bench.clock.now()
    bench.ask("*OPC?")
    assert bench.clock.now() - start == pytest.approx(0.4 + 4 * 1.0 + 3 * 1.5, abs=0.02)
    assert bench.ask("WAV:SWE:COUN?") == "4"
    assert float(bench.ask("WAV?")) == 1550.0


def test_stepped_sweep_dwells(bench):
    sweep(bench, "WAV:SWE:MOD 0", "WAV:SWE:DWEL 0.5")
    start = bench.clock.now() + 0.4
    bench.ask("*OPC?")
    assert len(bench.pulses) == 11
    assert bench.laser.light_at(start + 0.25).wavelength_nm == pytest.approx(1550, abs=0.02)
    assert bench.laser.light_at(start + 0.76).wavelength_nm == pytest.approx(1551, abs=0.02)


def test_repeated_sweeps_go_on_until_stopped(bench):
    bench.ask("WAV:SWE:STAR 1550;STOP 1560;SPE 10;MOD 1")
    bench.ask("WAV:SWE:REP")
    for _ in range(100):
        bench.clock.sleep(0.1)
        bench.laser.advance()
    assert bench.ask("WAV:SWE?") in ("1", "4")
    bench.ask("WAV:SWE 0")
    assert bench.ask("WAV:SWE?;*OPC?") == "0;1"


def test_impossible_sweeps_are_refused(bench):
    bench.ask("WAV:SWE:STAR 1560;STOP 1550;:WAV:SWE 1")
    bench.ask("WAV:SWE:STAR 1480;STOP 1640;SPE 1;:TRIG:OUTP:STEP 0.0001;:WAV:SWE 1")
    assert bench.host.errors() == [-200, -200]
    assert bench.ask("WAV:SWE?;*OPC?") == "0;1"


def test_frequencies_are_another_view_of_the_sweep(bench):
    bench.ask("FREQ:SWE:STAR 193.1;STOP 192.1")
    assert float(bench.ask("WAV:SWE:STAR?")) == pytest.approx(299_792.458 / 193.1, abs=6e-5)
    assert float(bench.ask("WAV:SWE:STOP?")) == pytest.approx(299_792.458 / 192.1, abs=6e-5)
    bench.ask("FREQ:SWE:STEP 0.05")
    assert float(bench.ask("FREQ:SWE:STEP?")) == 0.05
    assert float(bench.ask("WAV:SWE:RANG:MAX?")) == 1640.0


@pytest.mark.parametrize(
    ("word", "factory"),
    [("IPADdress", "192.168.1.100"), ("SMASk", "255.255.255.0"), ("DGATeway", "192.168.1.1")],
)
def test_network_addresses_are_read_set_and_kept_through_a_reset(bench, word, factory):
    header = f":SYSTem:COMMunicate:ETHernet:{word}"
    assert bench.ask(f"{header}?") == factory
    bench.ask(f"{header} 10.0.255.7")
    bench.ask("*RST")
    assert bench.ask(f"{header}?") == "10.0.255.7"
    for wrong, code in (("10.0.256.7", -222), ("10.0.7", -121), ("here", -148)):
        bench.ask(f"{header} {wrong}")
        assert bench.host.errors() == [code], wrong
    assert bench.ask(f"{header}?") == "10.0.255.7"


def test_port_mac_address_and_product_code_are_read(bench):
    assert bench.ask(":SYST:COMM:ETH:PORT?") == "5000"
    bench.ask(":SYST:COMM:ETH:PORT 65535")
    assert bench.ask(":SYST:COMM:ETH:PORT?") == "65535"
    bench.ask(":SYST:COMM:ETH:PORT 65536")
    assert bench.host.errors() == [-222]
    assert re.fullmatch(r"([0-9A-F]{2}-){5}[0-9A-F]{2}", bench.ask(":SYSTem:COMMunicate:ETHernet:MACaddress?"))
    assert re.fullmatch(r".-480640-.-.-..-..-.", bench.ask(":SYSTem:CODe?"))


def test_the_log_holds_the_power_of_every_pulse_too(bench):
    bench.ask("SYST:COMM:COD 1;:POW:STAT 1;:POW 3")
    bench.clock.sleep(10.0)
    sweep(bench, "WAV:SWE:STAR 1550NM;STOP 1560NM;SPE 10;MOD 1;:TRIG:OUTP 3;OUTP:STEP 1NM")
    bench.ask("*OPC?")
    shown_dbm = float(bench.ask(":POW:ACT?"))
    block = bench.host.raw(b":READout:DATa:POWer?\r")
    assert block[:4] == b"#288"
    assert np.frombuffer(block[4:], "<f8") == pytest.approx([shown_dbm] * 11, abs=0.02)
    bench.ask("SYST:COMM:COD 0")
    assert np.frombuffer(bench.host.raw(b":READ:DAT:POW?\r")[4:], "<f4") == pytest.approx([shown_dbm] * 11, abs=0.02)
    bench.ask("POW:STAT 0")
    assert np.frombuffer(bench.host.raw(b":READ:DAT:POW?\r")[4:], "<f4").max() < -90.0, "with the level of now"


def test_an_older_model_has_neither_network_nor_product_code():
    bench = Bench(model="TSL-550")
    for line in (":SYST:COMM:ETH:PORT?", ":SYST:COD?", ":READ:DAT:POW?"):
        assert bench.ask(line) is None
        assert bench.host.errors() == [-113]
