"""Parameters of the emulated AQ6370, set and read like the public QCoDeS driver of AQ637x analysers."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.analyzers.yokogawa_aq6370 import EmulatedAq6370
from lumion_hw.emulator.optics.world import SpectralLine
from tests.emulator.scpi.scpi_testbench import Host

LINE = SpectralLine(1e-3, 193.4e12, width_hz=0.0, osnr_db=float("inf"))
LINE_NM = 299792.458 / 193.4


class AnalyzerHost(Host):
    """Return a host that has logged in."""

    def __init__(self, model: str = "AQ6370D", ready: bytes = b"READY\r\n") -> None:
        self.clock = VirtualClock()
        self.device = EmulatedAq6370(
            "osa0", self.clock, model=model, spectrum=lambda: ([LINE], 0.0), rng=np.random.default_rng(1)
        )
        super().__init__(self.device)
        assert self.raw(b'OPEN "anonymous"\r\n') == b"AUTHENTICATE CRAM-MD5.\r\n"
        assert self.raw(b" \r\n") == ready

    def peak(self) -> tuple[float, float]:
        self.ask(":SENSe:WAVelength:STARt 1.549e-06M;STOP 1.551e-06M;:SENSe:BANDwidth:RESolution 2e-10M")
        self.ask(":SENSe:SWEep:POINts 2001;:SENS:SENS MID;:INIT")
        self.clock.sleep(self.device.sweep_s() + 40.0)
        self.ask(":CALC:MARK:MAX")
        wavelength_m, level_dbm = self.ask(":CALC:MARK:X? 0;Y? 0").split(";")
        return 1e9 * float(wavelength_m), float(level_dbm)


@pytest.fixture
def host() -> AnalyzerHost:
    return AnalyzerHost()


@pytest.mark.parametrize(
    ("header", "sent", "read"),
    [
        (":TRACe:STATe:TRB", "1", "1"),
        (":TRACe:STATe:TRA", "OFF", "0"),
        (":TRACe:STATe", "OFF", "0"),
        (":TRACe:ATTRibute:RAVG:TRC", "100", "100"),
        (":DISPlay:COLor", "3", "3"),
        (":DISPlay", "0", "0"),
        (":DISPlay:OVIew:POSition", "2", "2"),
        (":DISPlay:OVIew:POSition", "LEFT", "1"),
        (":DISPlay:OVIew:SIZE", "1", "1"),
        (":DISPlay:SPLit", "1", "1"),
        (":DISPlay:SPLit:HOLD:LOWer", "1", "1"),
        (":DISPlay:SPLit:HOLD:UPPer", "1", "1"),
        (":DISPlay:TEXT:DATA", '"first light"', '"first light"'),
        (":DISPlay:TRACe:X:SCALe:CENTer", "1.56e-06M", "+1.56000000E-006"),
        (":DISPlay:TRACe:X:SCALe:SPAN", "1e-08M", "+1.00000000E-008"),
        (":DISPlay:TRACe:X:SCALe:STARt", "1.54e-06M", "+1.54000000E-006"),
        (":DISPlay:TRACe:X:SCALe:STOP", "1.56e-06M", "+1.56000000E-006"),
        (":DISPlay:TRACe:X:SCALe:SRANge", "1", "1"),
        (":DISPlay:TRACe:Y:NMASk", "-60.0", "-6.00000000E+001"),
        (":DISPlay:TRACe:Y:NMASk:TYPE", "1", "1"),
        (":DISPlay:TRACe:Y:SCALe:DNUMber", "8", "8"),
        (":DISPlay:TRACe:Y1:SCALe:BLEVel", "1e-06", "+1.00000000E-006"),
        (":DISPlay:TRACe:Y1:SCALe:PDIVision", "5", "+5.00000000E+000"),
        (":DISP:TRAC:Y1:PDIV", "5DB", "+5.00000000E+000"),
        (":DISPlay:TRACe:Y1:SCALe:RLEVel", "-20DBM", "-2.00000000E+001"),
        (":DISPlay:TRACe:Y1:SCALe:RPOSition", "10", "10"),
        (":DISPlay:TRACe:Y1:SCALe:SPACing", "1", "1"),
        (":DISPlay:TRACe:Y1:SCALe:UNIT", "3", "3"),
        (":DISPlay:TRACe:Y2:SCALe:AUTO", "1", "1"),
        (":DISPlay:TRACe:Y2:SCALe:LENGth", "2.5KM", "+2.50000000E+000"),
        (":DISPlay:TRACe:Y2:SCALe:OLEVel", "3DB", "+3.00000000E+000"),
        (":DISPlay:TRACe:Y2:SCALe:PDIVision", "2DB", "+2.00000000E+000"),
        (":DISPlay:TRACe:Y2:SCALe:RPOSition", "4", "4"),
        (":DISPlay:TRACe:Y2:SCALe:SMINimum", "20%", "+2.00000000E+001"),
        (":DISPlay:TRACe:Y2:SCALe:UNIT", "2", "2"),
        (":INITiate:SMODe", "4", "4"),
        (":SENSe:AVERage:COUNt", "3", "3"),
        (":SENSe:CHOPper", "2", "2"),
        (":SENSe:CORRection:LEVel:SHIFt", "-1.5", "-1.50000000E+000"),
        (":SENSe:CORRection:RVELocity:MEDium", "0", "0"),
        (":SENSe:CORRection:WAVelength:SHIFt", "1e-10", "+1.00000000E-010"),
        (":SENSe:SETTing:CORRection", "1", "1"),
        (":SENSe:SETTing:FCONnector", "1", "1"),
        (":SENSe:SETTing:SMOothing", "1", "1"),
        (":SENSe:SWEep:SEGMent:POINts", "50", "50"),
        (":SENSe:SWEep:SPEed", "1", "1"),
        (":SENSe:SWEep:STEP", "1e-10M", "+1.00000000E-010"),
        (":SENSe:SWEep:TIME:0NM", "5", "5"),
        (":SENSe:SWEep:TIME:INTerval", "7", "7"),
        (":SENSe:WAVelength:SRANge", "1", "1"),
    ],
)
def test_a_parameter_is_read_as_it_was_set_and_reset_with_the_rest(
    host: AnalyzerHost, header: str, sent: str, read: str
) -> None:
    before = host.ask(f"{header}?")
    assert before not in ("", read), "the test sets something else"
    host.ask(f"{header} {sent}")
    assert host.ask(f"{header}?") == read
    assert host.ask(":SYST:ERR?") == '0,"No error"'
    host.ask("*RST")
    assert host.ask(f"{header}?") == before


def test_a_trace_that_is_set_to_roll_rolls_over_so_many_sweeps(host: AnalyzerHost) -> None:
    host.ask(":TRACe:ATTRibute:RAVG:TRA 4;:TRACe:ATTRibute:TRA 4")
    host.peak()
    before = host.device._traces["TRA"].level_dbm
    for _ in range(6):
        host.peak()
    # The average of four noise sweeps has half the noise.
    away = np.arange(len(before)) < 500
    rough = [np.std(10 ** (host.device._traces["TRA"].level_dbm[away] / 10.0)), np.std(10 ** (before[away] / 10.0))]
    assert rough[0] < 0.8 * rough[1]


def test_the_step_is_another_word_for_the_number_of_points(host: AnalyzerHost) -> None:
    host.ask(":SENS:WAV:STAR 1500NM;STOP 1600NM;:SENS:SWE:STEP 0.1NM")
    assert host.ask(":SENS:SWE:POIN?;POIN:AUTO?") == "1001;0"
    host.ask(":SENS:SWE:POIN 501")
    assert host.ask(":SENS:SWE:STEP?") == "+2.00000000E-010"


def test_shifts_are_in_what_is_measured(host: AnalyzerHost) -> None:
    nm, dbm = host.peak()
    assert nm == pytest.approx(LINE_NM, abs=0.002)
    host.ask(":SENSe:CORRection:WAVelength:SHIFt 1e-10;:SENSe:CORRection:LEVel:SHIFt -3")
    shifted_nm, shifted_dbm = host.peak()
    assert shifted_nm == pytest.approx(nm + 0.1, abs=0.002)
    assert shifted_dbm == pytest.approx(dbm - 3.0, abs=0.05)


def test_the_display_shows_the_sweep_unless_it_is_given_a_scale(host: AnalyzerHost) -> None:
    host.ask(":SENS:WAV:STAR 1500NM;STOP 1600NM")
    assert host.ask(":DISP:TRAC:X:STAR?;STOP?") == "+1.50000000E-006;+1.60000000E-006"
    host.ask(":DISPlay:TRACe:X:SCALe:CENTer 1.56e-06M;SPAN 1e-08M")
    assert host.ask(":DISP:TRAC:X:STAR?;STOP?") == "+1.55500000E-006;+1.56500000E-006"
    assert host.ask(":SENS:WAV:STAR?") == "+1.50000000E-006"
    host.ask(":DISPLAY:TRACE:X:SMSCALE")
    assert host.ask(":SENS:WAV:STAR?;STOP?") == "+1.55500000E-006;+1.56500000E-006"
    host.ask(":SENS:WAV:STAR 1500NM;:DISPlay:TRACe:X:SCALe:INITialize")
    assert host.ask(":DISP:TRAC:X:STAR?") == "+1.50000000E-006"
    host.ask(":DISPlay:TRACe:X:STARt 1.7e-06M")
    assert host.ask(":SYST:ERR?").startswith("-221,")


def test_a_label_is_cleared_and_has_56_characters(host: AnalyzerHost) -> None:
    host.ask(f':DISPlay:TEXT:DATA "{"x" * 56}"')
    assert host.ask(":SYST:ERR?") == '0,"No error"'
    host.ask(f':DISPlay:TEXT:DATA "{"y" * 57}"')
    assert host.ask(":SYST:ERR?").startswith("-222,")
    assert host.ask(":DISPlay:TEXT:DATA?") == f'"{"x" * 56}"'
    host.ask(":DISPlay:TEXT:CLEar")
    assert host.ask(":DISPlay:TEXT:DATA?") == '""'


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (":TRACe:STATe:TRH 1", -113),
        (":TRACe:ATTRibute:RAVG:TRA 1", -222),
        (":TRACe:ATTRibute:RAVG:TRA 101", -222),
        (":DISPlay:TRACe:Y:SCALe:DNUMber 9", -222),
        (":SENSe:CHOPper 1", -224),
        (":SENSe:SWEep:TLSSync 1", -113),
        (":SENSe:SWEep:1NM 1", -113),
    ],
)
def test_what_there_is_not_is_an_error(host: AnalyzerHost, wrong: str, code: int) -> None:
    host.ask(wrong)
    assert host.ask(":SYST:ERR?").startswith(f"{code},")


@pytest.mark.parametrize(
    ("model", "ready"), [("AQ6370C", b"ready\r\n"), ("AQ6370", b"ready\r\n"), ("AQ6370E", b"READY\r\n")]
)
def test_the_login_ends_with_the_word_of_the_model(model: str, ready: bytes) -> None:
    host = AnalyzerHost(model, ready)
    host.ask(":SENSe:SWEep:TLSSync 1")
    assert host.ask(":SYST:ERR?").startswith("-113," if model == "AQ6370E" else "0,")
