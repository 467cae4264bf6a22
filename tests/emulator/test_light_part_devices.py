"""Attenuators, matrix switch, amplifier and analyser, byte by byte, each with and without light."""

from __future__ import annotations

import hashlib
import math
import struct

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.amplifiers.amonics_aedfa import EmulatedAedfa
from lumion_hw.emulator.analyzers.yokogawa_aq6370 import EmulatedAq6370
from lumion_hw.emulator.attenuators.keysight_n77xx_attenuator import EmulatedN776xA
from lumion_hw.emulator.attenuators.oz_da100 import EmulatedDa100
from lumion_hw.emulator.optics.world import SpectralLine
from lumion_hw.emulator.switches.polatis import EmulatedPolatis
from tests.emulator.scpi.scpi_testbench import Host as ScpiHost

CARRIER_HZ = 193.4e12


def db(transmission: float) -> float:
    return -10.0 * math.log10(transmission)


def blocks(reply: bytes) -> list[bytes]:
    """Return the content of the blocks in a reply, separated by semicolons."""
    found = []
    while reply[:1] == b"#":
        digits = int(reply[1:2])
        end = 2 + digits + int(reply[2 : 2 + digits])
        found.append(reply[2 + digits : end])
        reply = reply[end + 1 :]
    return found


class TextHost:
    """A host on a serial line that waits for the complete reply."""

    def __init__(self, device, clock: VirtualClock) -> None:
        self.device, self.clock, self.peer = device, clock, device.connect()

    def ask(self, line: str) -> list[str]:
        self.peer.receive(line.encode() + b"\r\n")
        reply = b""
        while (event := self.peer.next_event()) is not None:
            self.clock.sleep(max(event - self.clock.now(), 1e-6))
            reply += self.peer.transmit()
        return reply.decode().split("\r\n")[:-1]


# Keysight N776xA ------------------------------------------------------------------------------------------------------


@pytest.fixture
def voa():
    clock = VirtualClock()
    device = EmulatedN776xA("voa0", clock, passing_w=lambda _: (1e-3, 1e-3 * device.transmission(2)))
    return device, ScpiHost(device), clock


def test_a_channel_is_its_odd_slot_and_its_shutter_is_closed_at_first(voa) -> None:
    device, host, _ = voa
    assert host.ask(":OUTP3?;:INP3:ATT?") == "0;+0.00000000E+000"
    assert db(device.transmission(2)) == pytest.approx(102.2)
    host.ask(":OUTP3 ON")
    assert db(device.transmission(2)) == pytest.approx(2.2), "insertion loss remains"
    assert db(device.transmission(1)) == pytest.approx(102.2)
    # "each attenuator occupies 2 slots, and all commands are valid for either of these slots"
    assert host.ask(":OUTP4?;:INP4:ATT? MAX") == "1;+4.50000000E+001"
    host.ask(":INP9:ATT 3")
    assert host.errors() == [-114]


def test_the_filter_takes_its_time_and_says_so(voa) -> None:
    device, host, clock = voa
    host.ask(":OUTP3 1;:INP3:ATT:SPE 10;:INP3:ATT 20DB")
    assert host.ask("*OPC?") == "0"
    clock.sleep(1.0)
    assert db(device.transmission(2)) == pytest.approx(2.2 + 10.0)
    clock.sleep(1.0)
    assert host.ask("*OPC?;:INP3:ATT?") == "1;+2.00000000E+001"
    assert db(device.transmission(2)) == pytest.approx(22.2)


def test_what_is_set_is_the_filter_and_the_offset(voa) -> None:
    device, host, clock = voa
    host.ask(":OUTP3 1;:INP3:OFFS 5;:INP3:ATT 12")
    clock.sleep(1.0)
    assert db(device.transmission(2)) == pytest.approx(2.2 + 7.0)
    assert host.ask(":INP3:ATT? MIN;ATT? MAX") == "+5.00000000E+000;+5.00000000E+001"
    host.ask(":INP3:ATT 4")
    assert host.errors() == [-222]


def test_power_control_holds_the_output(voa) -> None:
    _, host, clock = voa
    host.ask(":OUTP3 1;:OUTP3:POW -12DBM")
    clock.sleep(1.0)
    assert float(host.ask(":READ3:POW?")) == pytest.approx(-12.0, abs=0.01)
    assert host.ask(":OUTP3:POW:CONTR?") == "1"
    host.ask(":OUTP3:POW:UN 1")
    assert float(host.ask(":READ3:POW?")) == pytest.approx(10**-4.2, rel=0.003)


@pytest.mark.parametrize("model", ["N7751A", "N7752A", "N7761A", "N7766A"])
def test_every_model_controls_its_power(model: str) -> None:
    # "affects: N775xA and N776xA attenuators", of OUTPut:POWer:CONTRol, :POWer, :POWer:UNit, :ATIMe and zeroing
    host = ScpiHost(EmulatedN776xA("voa0", VirtualClock(), model=model, n_channels=2))
    host.ask(":OUTP1:POW:CONTR 1;:OUTP1:POW:UN 1;:OUTP1:ATIM 1S;:OUTP1:POW 1E-4")
    assert host.ask(":OUTP1:POW:CONTR?;UN?;:OUTP1:ATIM?;:OUTP1:POW?") == "1;+1;+1.00000000E+000;+1.00000000E-004"
    host.ask(":OUTP1:CORR:COLL:ZERO")
    assert host.errors() == []


def test_one_command_sets_all_attenuators(voa) -> None:
    device, host, clock = voa
    host.ask(":INP:ATT:ALL 12;:INP:WAV:ALL +1.31E-006;:OUTP:STAT:ALL ON")
    clock.sleep(1.0)
    assert [db(device.transmission(channel)) for channel in (1, 2, 3, 4)] == pytest.approx([14.2] * 4)
    assert host.ask(":INP7:WAV?;:OUTP7?") == "+1.31000000E-006;1"
    host.ask(":INP3:OFFS 20;:INP:ATT:ALL 12")
    assert host.errors() == [-224], "if any of the attenuators do not support the attenuation factor"
    assert host.ask(":INP1:ATT?") == "+1.20000000E+001"
    host.ask(":OUTP:STAT:ALL 0;:OUTP:POW:ALL -20")
    assert host.ask(":OUTP7?;:OUTP7:POW?;:OUTP7:POW:CONTR?") == "0;-2.00000000E+001;1"


def test_apmode_tells_what_was_set_last_and_setting_it_has_no_effect(voa) -> None:
    _, host, _ = voa
    host.ask(":INP1:ATT 3")
    assert host.ask(":OUTP1:APMode?") == "0"
    host.ask(":OUTP1:POW -3")
    assert host.ask(":OUTP1:APMode?") == "1"
    host.ask(":OUTP1:APM OFF")
    assert host.ask(":OUTP1:APM?;:OUTP1:POW:CONTR?") == "1;1"


def test_speeds_above_80_db_per_second_are_full_speed(voa) -> None:
    _, host, _ = voa
    for sent, kept in (("0.1", "1.00000000E-001"), ("80", "8.00000000E+001"), ("80.1", "1.00000000E+003")):
        host.ask(f":INP1:ATT:SPE {sent}")
        assert host.ask(":INP1:ATT:SPE?") == f"+{kept}"
    host.ask(":INP1:ATT:SPE 0.09;SPE 1001")
    assert host.errors() == [-222, -222]


def test_zeroing_closes_the_shutters_and_says_when_it_is_over(voa) -> None:
    device, host, clock = voa
    host.ask(":OUTP3 1;:INP3:ATT 10")
    clock.sleep(1.0)
    host.ask(":OUTP1:CORR:COLLECTION:ZERO:ALL")
    assert db(device.transmission(2)) == pytest.approx(112.2), "all shutters are closed"
    assert host.ask("*OPC?;:STAT3:OPER:COND?") == "0;+8"
    clock.sleep(1.0)
    assert host.ask("*OPC?;:OUTP1:CORR:COLL:ZERO?;:OUTP:CORR:COLLECT:ZERO:ALL?;:SENS3:CORR:COLL:ZERO?") == "1;0;0;0"
    assert db(device.transmission(2)) == pytest.approx(12.2)


def test_all_monitors_are_read_in_watts_and_a_dark_one_has_a_level(voa) -> None:
    dark = ScpiHost(EmulatedN776xA("voa0", VirtualClock()))
    assert -80.0 < float(dark.ask(":READ1:POW?")) < -60.0, "0 W comes out; 3.4E38 is no level"
    _, host, clock = voa
    host.ask(":OUTP1 1;:OUTP3 1")
    clock.sleep(1.0)
    light = float(f"{1e-3 * 10**-0.22:.4g}")
    for verb in ("READ", "FETC"):
        host.peer.receive(f":{verb}:POW:ALL?;:{verb}:POW:ALL:CONF?\n".encode())
        levels, places = blocks(host.peer.transmit())
        assert struct.unpack("<4f", levels) == pytest.approx([light] * 4, rel=1e-3)
        assert struct.unpack("<8H", places) == (1, 1, 3, 1, 5, 1, 7, 1)


def test_a_power_offset_is_taken_off_the_measured_power(voa) -> None:
    # P_set = P_att - P_offset
    _, host, clock = voa
    host.ask(":OUTP3 1")
    clock.sleep(1.0)
    before = float(host.ask(":READ3:POW?"))
    host.ask(":OUTP3:POW:OFFS 2")
    assert float(host.ask(":READ3:POW?")) == pytest.approx(before - 2.0, abs=1e-4)
    host.ask(":OUTP3:POW -14")
    clock.sleep(1.0)
    assert float(host.ask(":READ3:POW?")) == pytest.approx(-14.0, abs=0.01)
    assert float(host.ask(":INP3:ATT?")) == pytest.approx(14.0 - 2.0 - 2.2, abs=0.01)


def test_offsets_by_wavelength_are_a_table_that_is_interpolated(voa) -> None:
    _, host, clock = voa
    host.ask(":OUTP3 1")
    clock.sleep(1.0)
    before = float(host.ask(":READ3:POW?"))
    table = ":CONF3:OFFS:WAV"
    host.ask(f"{table}:VAL 1.55E-6,3;{table}:VAL 1530NM,1DB;{table}:VAL 1.55E-6,2")
    assert host.ask(f"{table}:TAB:SIZE?;:{table[1:]}:TAB:SIZE? MAX;:{table[1:]}:STAT?") == "2;1000;0"
    host.peer.receive(f"{table}:TAB?\n".encode())
    (entries,) = blocks(host.peer.transmit())
    assert struct.unpack("<dfdf", entries) == (1.53e-6, 1.0, 1.55e-6, 2.0)
    assert (
        host.ask(f"{table}:VAL:PAIR? 1;:{table[1:]}:VAL:OFFS? 1550NM")
        == "+1.53000000E-006,+1.00000000E+000;+2.00000000E+000"
    )
    assert float(host.ask(":READ3:POW?")) == before, "the table is not in use"
    host.ask(f"{table}:STAT 1")
    # Shutter open 16, offset enabled 32; of the offset 0 exact, 64 below, 128 above, 192 interpolated.
    for nm, offset, bits in ((1550, 2.0, 48), (1540, 1.5, 240), (1500, 1.0, 112), (1600, 2.0, 176)):
        host.ask(f":INP3:WAV {nm}NM")
        assert float(host.ask(":READ3:POW?")) == pytest.approx(before - offset, abs=1e-4)
        assert host.ask(":STAT3:OPER:COND?") == f"+{bits}"
    host.ask(f"{table}:VAL 1.56E-6,3;{table}:VAL:DEL:ALL")
    assert host.errors() == [-221, -221], "only while the table is not in use"
    host.ask(f"{table}:STAT 0;{table}:VAL:DEL 1;{table}:REF 4,1")
    assert host.ask(f"{table}:VAL:WAV? 1;:{table[1:]}:REF?") == "+1.55000000E-006;+4,+1"
    host.ask(f"{table}:VAL 1.5E-6,TOREF")
    assert host.errors() == [-221], "there is no power meter beside it"
    host.ask(f"{table}:VAL:DEL:ALL")
    assert host.ask(f"{table}:TAB:SIZE?") == "0"


def test_the_status_of_a_slot_is_summed_up_where_it_is_enabled(voa) -> None:
    _, host, _ = voa
    assert host.ask(":STAT:OPER:COND?;:STAT3:OPER:COND?;:STAT:QUES:COND?") == "+0;+0;+0"
    host.ask(":STAT3:OPER:ENAB 16;:OUTP3 1;:OUTP1 1")
    assert host.ask(":STAT:OPER:COND?;:STAT3:OPER:COND?;:STAT1:OPER:COND?") == "+8;+16;+16"
    assert host.ask(":STAT3:OPER?;:STAT:OPER:COND?;:STAT:OPER?") == "+16;+0;+8"


def test_settings_are_lost_with_the_power_and_the_shutter_opens_if_told_to(voa) -> None:
    device, host, _ = voa
    host.ask(":INP3:ATT 12;:OUTP3:APOW 1")
    device.power_off()
    assert db(device.transmission(2)) == pytest.approx(100.0)
    device.power_on()
    host = ScpiHost(device)
    assert host.ask(":OUTP3?;:INP3:ATT?;:OUTP1?") == "1;+0.00000000E+000;0"


# OZ Optics DA-100 ---------------------------------------------------------------------------------------------------


def test_done_comes_when_the_motor_has_arrived() -> None:
    clock = VirtualClock()
    device = EmulatedDa100("voa0", clock, attenuation_max_db=60.0)
    host = TextHost(device, clock)
    assert host.ask("A15") == ["Pos:3000", "Done", ""]
    # Four characters to the device, 3000 steps at 3000 per second, and 18 characters back.
    assert clock.now() == pytest.approx(1.0 + 0.002 + (4 + 18) * 10 / 9600, abs=0.01)
    assert host.ask("D") == ["DPos:3000", "ATTEN:15.00", "Done", ""]
    assert db(device.transmission()) == pytest.approx(1.2 + 15.0)
    host.peer.receive(b"A60\r")
    clock.sleep(0.502 + 4 * 10 / 9600)
    device.advance()
    assert 1.2 + 15.0 < db(device.transmission()) < 1.2 + 60.0, "on its way"


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("A61", "Error-6"),
        ("S-1", "Error-6"),
        ("B", "Error-6"),
        ("XYZ", "Error-2"),
        ("A", "Error-2"),
        ("A-3", "Error-2"),
    ],
)
def test_what_it_cannot_do_is_an_error_and_changes_nothing(command: str, answer: str) -> None:
    clock = VirtualClock()
    host = TextHost(EmulatedDa100("voa0", clock), clock)
    assert host.ask(command) == [answer]
    assert host.ask("RES?") == [answer, "Done", ""]
    assert host.ask("S?") == ["Pos:0", "Done", ""]


# Polatis ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def switch():
    clock = VirtualClock()
    device = EmulatedPolatis("sw0", clock)
    return device, ScpiHost(device), clock


def test_connections_are_made_and_told_as_the_manual_writes_them(switch) -> None:
    _, host, _ = switch
    host.ask(":oxc:swit:conn:add (@1,2,3),(@17,18,19)")
    assert host.ask(":oxc:swit:conn:stat?") == "(@1,2,3),(@17,18,19)"
    assert host.ask(":oxc:swit:conn:port? 2") == '"18"'
    assert host.ask(":oxc:swit:conn:port? 19;port? 4") == '"3";""'
    assert host.ask(":oxc:swit:conn:only (@1,2),(@17,20); stat?") == "(@1,2),(@17,20)"
    host.ask(":oxc:swit:conn:sub (@1),(@)")
    assert host.ask(":oxc:swit:conn:stat?;:oxc:swit:size?") == "(@2),(@20);16,16"
    host.ask(":oxc:swit:disc:all")
    assert host.ask(":oxc:swit:conn:stat?") == "(@),(@)"
    assert host.errors() == []


def test_light_passes_once_the_beam_is_steered_and_a_standing_one_is_left_alone(switch) -> None:
    device, host, clock = switch
    host.ask(":oxc:swit:conn:add (@1),(@17)")
    assert dict(device.connections()) == {}
    clock.sleep(0.025)
    assert dict(device.connections()) == {1: 17, 17: 1}
    host.ask(":oxc:swit:conn:only (@1,2),(@17,18)")
    assert dict(device.connections()) == {1: 17, 17: 1}, "the second is on its way, the first stayed"
    host.ask(":oxc:swit:conn:add (@2),(@17)")
    clock.sleep(0.025)
    assert dict(device.connections()) == {2: 17, 17: 2}, "a port is joined to one other"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("add (@1,2),(@17)", -220),
        ("add (@1,1),(@17,18)", -220),
        ("add (@1),(@33)", -222),
        ("add (@1),(@2)", -222),
        ("add 1,17", -104),
        ("add (1),(17)", -104),
        ("add (@1)", -109),
        ("port? 33", -222),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(switch, command: str, code: int) -> None:
    _, host, _ = switch
    host.ask(f":oxc:swit:conn:{command}")
    assert host.errors() == [code]
    assert host.ask(":oxc:swit:conn:stat?") == "(@),(@)"


def test_a_disabled_port_takes_no_connection(switch) -> None:
    _, host, _ = switch
    host.ask(":oxc:swit:conn:add (@1),(@17);:oxc:swit:port:dis (@17)")
    assert host.ask(":oxc:swit:port:stat? (@16,17);:oxc:swit:conn:stat?") == "(E,D);(@),(@)"
    host.ask(":oxc:swit:conn:add (@1),(@17)")
    assert host.errors() == [-221]


# Amonics AEDFA ------------------------------------------------------------------------------------------------------


def aedfa(input_w: float = 1e-4):
    clock = VirtualClock()
    device = EmulatedAedfa("edfa0", clock, passing_w=lambda: (input_w, input_w * device.amplification(input_w).gain))
    return device, TextHost(device, clock), clock


def test_it_emits_half_a_second_after_channel_and_master_are_on() -> None:
    device, host, clock = aedfa()
    assert device.amplification(1e-4).gain == 1e-4, "without pump it absorbs"
    host.ask(":DRIV:ACC:CUR:CH1 525")
    host.ask(":DRIV:MCTRL 1")
    assert host.ask(":DRIV:MCTRL?") == ["0"], "not while the channel is off"
    host.ask(":DRIV:ACC:STAT:CH1 1")
    host.ask(":DRIV:MCTRL 1")
    assert host.ask(":DRIV:ACC:STAT:CH1?") == ["2"]
    clock.sleep(0.5)
    assert host.ask(":DRIV:ACC:STAT:CH1?") == ["1"]
    # Half way from threshold to 1000 mA is half of 200 mW; 0.1 mW at the input and 30 dB would give the same again.
    assert 1e-4 * device.amplification(1e-4).gain == pytest.approx(0.05, rel=0.05)
    host.ask(":DRIV:ACC:STAT:CH1 0")
    assert host.ask(":DRIV:MCTRL?") == ["0"]


def test_constant_power_holds_the_output_noise_included() -> None:
    device, host, clock = aedfa()
    for line in (":MODE:SW:CH1 APC", ":DRIV:APC:CUR:CH1 20", ":DRIV:APC:STAT:CH1 1", ":DRIV:MCTRL 1"):
        host.ask(line)
    clock.sleep(0.6)
    does = device.amplification(1e-4)
    assert 1e-4 * does.gain + 4.7e12 * does.noise_w_per_hz == pytest.approx(20e-3)
    assert does.noise_figure_db == 5.0
    host.ask(":MODE:SW:CH1 ACC")
    assert host.ask(":MODE:SW:CH1?") == ["APC"], "not while it emits"


def test_what_it_does_not_support_is_not_answered() -> None:
    _, host, _ = aedfa()
    assert [host.ask(line) for line in ("*IDN?", ":DRIV:APC:CUR:CH1?", ":MODE:SW:CH2?")] == [[], [], []]
    host.ask(":DRIV:ACC:CUR:CH1 1001")
    assert host.ask(":DRIV:ACC:CUR:CH1?") == ["0.0"]
    limits = [":READ:DRIV:MAX:ACC:CH1?", ":READ:DRIV:MAX:APC:CH1?", ":READ:DRIV:UNIT:APC:CH1?", ":CAL:SYS:MODEL?"]
    assert [host.ask(line) for line in limits] == [["1000.0"], ["199.5"], ["mW"], ["AEDFA-23-B-FA"]]


def test_it_answers_what_a_client_asks_when_it_opens() -> None:
    """Queries and forms of the public client ``amonics_edfa``, which follows the programming manual."""
    _, host, _ = aedfa()
    counts = ("DRIV:ACC", "CUR", "POW:IN", "POW:OUT", "POW:PD", "TEMP:BOX", "TEMP:FC", "TEMP:TEC", "VOLT:PS")
    assert host.ask(":READ:MODE:NAMES?")[0].split() == ["ACC", "APC"]
    assert [int(host.ask(f":READ:CH:{what}?")[0]) for what in counts] == [1, 1, 1, 1, 1, 1, 0, 0, 0]
    assert host.ask(":SENS:POW:IN:CH1?") == ["1.000000e-01"]


def test_the_interlock_ends_the_output() -> None:
    device, host, clock = aedfa()
    for line in (":DRIV:ACC:CUR:CH1 500", ":DRIV:ACC:STAT:CH1 1", ":DRIV:MCTRL 1"):
        host.ask(line)
    clock.sleep(1.0)
    device.set_interlock(True)
    assert host.ask(":DRIV:INTERLOCK?") == ["1"]
    assert host.ask(":DRIV:ACC:STAT:CH1?") == ["4"]
    assert device.amplification(1e-4).gain == 1e-4
    device.set_interlock(False)
    assert host.ask(":DRIV:MCTRL?") == ["0"], "it does not come back by itself"


# Yokogawa AQ6370 ----------------------------------------------------------------------------------------------------


class AnalyzerHost(ScpiHost):
    def __init__(self, lines=(), noise_w_per_hz: float = 0.0, **changed) -> None:
        self.clock = VirtualClock()
        self.device = EmulatedAq6370(
            "osa0", self.clock, spectrum=lambda: (list(lines), noise_w_per_hz), rng=np.random.default_rng(1), **changed
        )
        super().__init__(self.device)

    def log_in(self) -> AnalyzerHost:
        assert self.raw(b'OPEN "anonymous"\r\n') == b"AUTHENTICATE CRAM-MD5.\r\n"
        assert self.raw(b"\r\n") == b"READY\r\n"
        return self

    def sweep(self) -> tuple[np.ndarray, np.ndarray]:
        self.ask(":INIT")
        assert self.ask(":STAT:OPER:COND?") == "0"
        self.clock.sleep(self.device.sweep_s() + 1e-3)
        assert self.ask(":STAT:OPER:COND?") == "1"
        told = [self.ask(f":TRAC:{axis}? TRA").split(",") for axis in "XY"]
        return np.array(told[0], float), np.array(told[1], float)


def test_nothing_is_answered_before_the_login() -> None:
    host = AnalyzerHost()
    assert host.raw(b"*IDN?\r\n") == b""
    assert host.raw(b'OPEN "nobody"\r\n') == b"ERROR\r\n"
    assert host.log_in().ask("*IDN?").startswith("YOKOGAWA,AQ6370D,")
    host.raw(b"CLOSE\r\n")
    assert host.raw(b"*IDN?\r\n") == b""


def test_a_password_goes_in_clear_or_as_the_sum_of_a_challenge() -> None:
    host = AnalyzerHost(user="lab", password="secret")
    host.raw(b'OPEN "lab"\r\n')
    assert host.raw(b"wrong\r\n") == b"ERROR\r\n"
    host.raw(b'OPEN "lab"\r\n')
    assert host.raw(b"secret\r\n") == b"READY\r\n"
    other = ScpiHost(host.device)
    other.raw(b'OPEN "lab"\r\n')
    challenge = other.raw(b"AUTHENTICATE CRAM-MD5 OK\r\n").strip()
    answer = hashlib.md5(challenge + b"secret").hexdigest().encode()
    assert other.raw(answer + b"\r\n") == b"READY\r\n"


@pytest.mark.parametrize(("word", "seconds"), [("NAUT", 0.2), ("MID", 2.0), ("HIGH3", 75.0)])
def test_a_sweep_takes_the_time_of_its_sensitivity(word: str, seconds: float) -> None:
    host = AnalyzerHost().log_in()
    host.ask(f":SENS:WAV:SPAN 100NM;:SENS:SWE:POIN 1001;:SENS:SENS {word};:INIT")
    host.clock.sleep(0.99 * seconds)
    assert host.ask(":STAT:OPER:COND?;:TRAC:SNUM? TRA") == "0;0"
    assert host.ask(":INIT;:SYST:ERR?").startswith("-213")
    host.clock.sleep(0.02 * seconds)
    assert host.ask(":STAT:OPER:EVEN?;:TRAC:SNUM? TRA") == "1;1001"


def test_noise_is_shown_by_the_band_of_the_filter_and_a_line_by_its_power() -> None:
    """1e-17 W/Hz in 0.1 nm at 1550 nm, 12.48 GHz, times 1.0645 of a Gaussian, is -38.77 dBm."""
    line = SpectralLine(1e-3, CARRIER_HZ, 0.0, math.inf)
    host = AnalyzerHost([line], 1e-17).log_in()
    host.ask(":SENS:WAV:CENT 1550.2NM;SPAN 4NM;:SENS:BWID:RES 0.1NM;:SENS:SENS HIGH2")
    wavelength_m, level_dbm = host.sweep()
    assert level_dbm.max() == pytest.approx(0.0, abs=0.1)
    far = np.abs(wavelength_m - 299_792_458.0 / CARRIER_HZ) > 1e-9
    assert np.median(level_dbm[far]) == pytest.approx(-38.77, abs=0.1)


def test_a_modulated_signal_fills_its_band() -> None:
    """1 mW over 60 GHz in the 13.28 GHz of 0.1 nm is 6.55 dB less."""
    host = AnalyzerHost([SpectralLine(1e-3, CARRIER_HZ, 60e9, 36.0)]).log_in()
    host.ask(":SENS:WAV:CENT 1550.2NM;SPAN 4NM;:SENS:BWID:RES 0.1NM;:SENS:SENS HIGH2")
    _, level_dbm = host.sweep()
    assert level_dbm.max() == pytest.approx(-6.55, abs=0.1)
    # 36 dB below 1 mW in 12.5 GHz, shown through 13.28 GHz.
    assert np.median(level_dbm) == pytest.approx(-36.0 + 0.26, abs=0.15)


def test_darkness_is_the_floor_of_the_sensitivity() -> None:
    host = AnalyzerHost().log_in()
    floors = {}
    for word in ("NHLD", "HIGH1"):
        host.ask(f":SENS:SENS {word};:SENS:SWE:POIN 20001")
        _, level_dbm = host.sweep()
        assert level_dbm.min() == -210.0, "where nothing is measured"
        floors[word] = 10.0 * np.log10(np.mean(10.0 ** (level_dbm[level_dbm > -200.0] / 10.0)))
    # The mean of the positive half of a normal distribution is 0.8 of its spread.
    assert floors["NHLD"] == pytest.approx(-61.0, abs=0.5)
    assert floors["HIGH1"] == pytest.approx(-81.0, abs=0.5)


def test_every_ten_minutes_a_sweep_begins_with_its_offset() -> None:
    host = AnalyzerHost().log_in()
    host.clock.sleep(601.0)
    host.ask(":INIT")
    host.clock.sleep(30.0)
    assert host.ask(":STAT:OPER:COND?") == "0"
    host.clock.sleep(1.0)
    assert host.ask(":STAT:OPER:COND?") == "1"
    host.clock.sleep(700.0)
    host.ask(":CAL:ZERO OFF;:INIT")
    host.clock.sleep(1.0)
    assert host.ask(":STAT:OPER:COND?") == "1"
