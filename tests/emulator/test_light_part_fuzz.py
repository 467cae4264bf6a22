"""Random and mutated lines to attenuators, switch, amplifier, analyser and temperature controller."""

from __future__ import annotations

import pytest

from lumion_hw.emulator.amplifiers.amonics_aedfa import EmulatedAedfa
from lumion_hw.emulator.analyzers.yokogawa_aq6370 import EmulatedAq6370
from lumion_hw.emulator.attenuators.keysight_n77xx_attenuator import EmulatedN776xA
from lumion_hw.emulator.attenuators.oz_da100 import EmulatedDa100
from lumion_hw.emulator.optics.world import SpectralLine
from lumion_hw.emulator.switches.polatis import EmulatedPolatis
from lumion_hw.emulator.temperature.arroyo_tec import EmulatedArroyoTec
from tests.emulator.fuzz_testbench import COMMON, STATUS, Host, Target, hammer, scpi_alive

ATTENUATOR = [b":INP1:ATT 12.5;ATT?;:INP3:OFFS -3DB;OFFS:DISP", b":OUTP1 ON;:OUTP7?;:OUTP:APOW 1", b":INP5:WAV 1310NM"]
ATTENUATOR += [b":OUTP:POW -12DBM;POW?;:OUTP:POW:UN 1;CONTR 1;OFFS 2", b":READ3:POW?;:FETC1:POW?", b":INP:ATT:SPE 0.5"]
ATTENUATOR += [b":OUTP:CORR:COLL:ZERO:ALL;*OPC?", b":SLOT1:IDN?;:OUTP:ATIM 0.1"]
SWITCH = [b":oxc:swit:conn:add (@1,2,3),(@17,18,19)", b":oxc:swit:conn:only (@1:4),(@20:23);stat?", b":oxc:swit:size?"]
SWITCH += [
    b":oxc:swit:conn:sub (@1),(@)",
    b":oxc:swit:conn:port? 2",
    b":oxc:swit:disc:all",
    b":oxc:swit:port:dis (@2,4,6)",
]
SWITCH += [b":oxc:swit:port:stat? (@2,4);:oxc:swit:port:enab (@2)", b":oxc:swit:conn:sub (@1,2),(@17,18)"]
ANALYZER = [
    b":SENS:WAV:CENT 1550NM;SPAN 2NM;STAR?;STOP 1560NM",
    b":SENS:BWID:RES 0.05NM;:SENS:SENS HIGH1;SENS?",
    b":INIT",
]
ANALYZER += [
    b":TRAC:Y? TRA,1,5;:TRAC:X? TRA",
    b":FORM REAL,32;:TRAC:Y? TRA",
    b":INIT:SMOD REP;:INIT;:ABOR",
    b"*TRG;*OPC?",
]
ANALYZER += [b":CALC:MARK:MAX;:CALC:MARK:X? 0;Y? 0", b":TRAC:ATTR:TRB MAX;:TRAC:COPY TRA,TRB;DEL:ALL", b"CLOSE"]
ANALYZER += [b'OPEN "anonymous"', b"", b":SENS:SWE:POIN 101;POIN:AUTO 0;:SENS:AVER:COUN 2", b":CAL:ZERO ONCE"]
OZ = [
    b"A12.34",
    b"A?",
    b"D",
    b"H",
    b"F",
    b"B",
    b"CD",
    b"S300",
    b"S+10",
    b"S-10",
    b"S?",
    b"E1",
    b"E0",
    b"L1.0",
    b"RES?",
    b"RST",
]
AEDFA = [b":CAL:SYS:MODEL?", b":MODE:SW:CH1 APC", b":MODE:SW:CH1?", b":DRIV:ACC:CUR:CH1 500", b":DRIV:APC:CUR:CH1 50.0"]
AEDFA += [b":DRIV:ACC:STAT:CH1 1", b":DRIV:MCTRL 1", b":DRIV:MCTRL?", b":SENS:POW:OUT:CH1?", b":READ:DRIV:MAX:APC:CH1?"]
TEC = [
    b"TEC:T 30;T?;SET:T?;COND?",
    b"TEC:OUT 1;OUT?",
    b"TEC:TOL 0.05,2.0;TOL?",
    b"TEC:LIM:THI 40;TLO 5;ITE 2",
    b"ERRSTR?",
]
TEC += [
    b"TEC:MODE:ITE;MODE?",
    b"TEC:ITE 1.5;ITE?",
    b"TEC:GAIN 300",
    b"*IDN?",
    b"time?;tec:v?;ite?;t?;r?;cond?",
    b"*RST",
]


def spectrum() -> tuple[list[SpectralLine], float]:
    return [SpectralLine(1e-3, 193.4e12, 0.0, float("inf")), SpectralLine(1e-4, 193.0e12, 60e9, 35.0)], 1e-18


class LoggedIn:
    """The analyser behind its login: every connection is logged in until it sends CLOSE."""

    def __init__(self, device: EmulatedAq6370) -> None:
        self._device = device
        self.advance = device.advance

    def connect(self):
        peer = self._device.connect()
        peer.receive(b'OPEN "anonymous"\r\n\r\n')
        assert peer.transmit() == b"AUTHENTICATE CRAM-MD5.\r\nREADY\r\n"
        return peer


def analyzer_alive(host: Host) -> None:
    other = Host(host.device, host.clock)
    other.raw(b"*RST\r\n")  # it may obey a request to sweep repeatedly
    scpi_alive(other)
    other.peer.close()


def text_alive(question: bytes, reply: bytes):
    def alive(host: Host) -> None:
        host.raw(b"\r\n")
        host.wait()
        host.raw(b"E0\r\n")  # the OZ may echo; the others do not know this command
        host.wait()
        host.raw(question + b"\r\n")
        assert host.wait().endswith(reply)

    return alive


TARGETS = {
    "n7764a": Target(
        lambda clock: EmulatedN776xA("voa0", clock, passing_w=lambda _: (1e-3, 1e-4)), COMMON + STATUS + ATTENUATOR
    ),
    "polatis": Target(lambda clock: EmulatedPolatis("sw0", clock), COMMON + STATUS + SWITCH),
    "aq6370": Target(
        lambda clock: LoggedIn(EmulatedAq6370("osa0", clock, spectrum=spectrum)),
        COMMON + STATUS + ANALYZER,
        analyzer_alive,
    ),
    "da100": Target(lambda clock: EmulatedDa100("voa0", clock), OZ, text_alive(b"S9999", b"Error-6\r\n"), b"\r"),
    "aedfa": Target(
        lambda clock: EmulatedAedfa("edfa0", clock, passing_w=lambda: (1e-3, 1e-2)),
        AEDFA,
        text_alive(b":CAL:SYS:MODEL?", b"AEDFA-23-B-FA\r\n"),
        b"\r\n",
    ),
    "arroyo": Target(
        lambda clock: EmulatedArroyoTec("tec0", clock), TEC, text_alive(b"*CLS;NO:SUCH;ERR?", b"123\r\n"), b"\r\n"
    ),
}


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_lines_leave_every_device_alive_and_truthful(name, caplog):
    hammer(TARGETS[name], 1, 150, caplog)


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_more_mutated_lines_leave_every_device_alive_and_truthful(name, caplog):
    hammer(TARGETS[name], 2, 10_000, caplog)
