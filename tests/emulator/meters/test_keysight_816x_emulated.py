"""The 8163B/8164B emulator: dual sensors, their master channel, markers, and the laser in slot 0."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.meters.keysight_816x import EmulatedKeysight816x
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.wires.device import EmulatedDevice
from lumion_hw.errors import ConfigError
from tests.emulator.scpi.scpi_testbench import Host

MARKER = "+3.40282347E+038"
LASER = {0: "81600B-200", 1: "81635A", 2: "81635A"}


class Bench:
    """A mainframe whose light is a function of slot, channel and time."""

    def __init__(self, **options) -> None:
        self.clock = VirtualClock()
        self.light = lambda slot, channel, at_s: Light(1e-4 * channel)
        self.mainframe = EmulatedKeysight816x("mf0", self.clock, np.random.default_rng(8), self._light, **options)
        self.host = Host(self.mainframe)

    def _light(self, slot: int, channel: int, at_s: float) -> Light:
        return self.light(slot, channel, at_s)

    def ask(self, line: str) -> str | None:
        reply = self.host.ask(line)
        while reply is None and (event := self.host.peer.next_event()) is not None:
            self.clock.sleep(max(event - self.clock.now(), 1e-6))
            reply = self.host.peer.transmit().decode().removesuffix("\n") or None
        return reply

    def block(self, line: str, kind: str) -> np.ndarray:
        raw = self.host.raw(line.encode() + b"\n")
        digits = int(raw[1:2])
        return np.frombuffer(raw[2 + digits : 2 + digits + int(raw[2 : 2 + digits])], kind)


@pytest.fixture
def bench():
    return Bench()


def test_identity_and_modules(bench):
    device: EmulatedDevice = bench.mainframe
    assert device.name == "mf0"
    assert bench.ask("*IDN?") == "Agilent Technologies,8164B,DE00000003,V5.25(72637)"
    assert bench.ask("SLOT1:IDN?").split(",")[1] == "81635A"
    assert bench.ask("SLOT1:HEAD2:TST?") == '+0,"self test OK"'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "8168A"}, "no mainframe '8168A'"),
        ({"modules": {5: "81635A"}}, "a 8164B cannot hold a 81635A in slot 5"),
        ({"modules": {}}, "has no modules"),
        ({"modules": {0: "81635A"}}, "a 8164B cannot hold a 81635A in slot 0"),
        ({"modules": {1: "81600B-200"}}, "a 8164B cannot hold a 81600B-200 in slot 1"),
        ({"model": "8163B", "modules": LASER}, "a 8163B cannot hold a 81600B-200 in slot 0"),
    ],
)
def test_impossible_mainframes_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        Bench(**options)


def test_channels_of_a_sensor_are_read_one_by_one_and_together(bench):
    bench.ask("SENS1:CHAN1:POW:UNIT 1;:SENS1:CHAN2:POW:UNIT 1;:SENS2:CHAN1:POW:UNIT 1;:SENS2:CHAN2:POW:UNIT 1")
    assert float(bench.ask("READ1:CHAN1:POW?")) == pytest.approx(1e-4, rel=0.04)
    assert float(bench.ask("READ1:CHAN2:POW?")) == pytest.approx(2e-4, rel=0.04)
    assert bench.block("READ1:POW:ALL:CONF?", "<u2").tolist() == [1, 1, 1, 2, 2, 1, 2, 2]
    bench.host.raw(b"READ1:POW:ALL?\n")
    bench.clock.sleep(1.0)
    assert len(bench.host.peer.transmit()) == len(b"#216" + 4 * b"1234" + b"\n")


def test_empty_slots_and_missing_channels(bench):
    for header in ("SENS3:POW:UNIT?", "SENS1:CHAN3:POW:UNIT?", "SENS4:POW:WAV 1550NM"):
        bench.ask(header)
    assert bench.host.errors() == [-114] * 3


def test_master_channel_sets_averaging_for_both_and_the_slave_may_not(bench):
    bench.ask("SENS1:CHAN1:POW:ATIM 200MS")
    assert bench.ask("SENS1:CHAN2:POW:ATIM?") == "+2.00000000E-001"
    bench.ask("SENS1:CHAN2:POW:ATIM 1")
    bench.ask("SENS1:CHAN2:POW:RANG:AUTO 0")
    bench.ask("SENS1:CHAN2:FUNC:STAT LOGG,STAR")
    assert bench.host.errors() == [-221] * 3
    bench.ask("SENS1:CHAN2:POW:RANG -20DBM;UNIT 1")
    assert bench.ask("SENS1:CHAN2:POW:RANG?;:SENS1:CHAN1:POW:RANG?;UNIT?") == (
        "-2.00000000E+001;-1.00000000E+001;+0"
    ), "range and unit are each channel's own"
    assert bench.host.errors() == []


def test_booleans_are_words_or_numbers(bench):
    bench.ask("SENS1:POW:RANG:AUTO OFF")
    assert bench.ask("SENS1:POW:RANG:AUTO?") == "+0"
    assert bench.ask("SENS1:POW:GAIN:AUTO?") is None
    assert bench.host.errors() == [-113], "the gain switch belongs to the N77xx"


@pytest.mark.parametrize(("sent", "held"), [("WATT", "+1"), ("w", "+1"), ("DBM", "+0"), ("1", "+1"), ("0", "+0")])
def test_units_are_words_or_numbers(bench, sent, held):
    bench.ask(f"SENS1:CHAN2:POW:UNIT {sent}")
    assert bench.ask("SENS1:CHAN2:POW:UNIT?") == held


def test_last_readings_of_all_channels_come_as_a_block(bench):
    bench.ask("SENS1:CHAN1:POW:UNIT W;:SENS1:CHAN2:POW:UNIT W;:SENS2:CHAN1:POW:UNIT W;:SENS2:CHAN2:POW:UNIT W")
    assert bench.block("FETC1:POW:ALL?", "<f4") == pytest.approx([1e-4, 2e-4] * 2, rel=0.04)


def test_wavelength_goes_down_to_800_nm(bench):
    bench.ask("SENS1:POW:WAV 850NM")
    assert bench.ask("SENS1:POW:WAV?;WAV? MIN") == "+8.50000000E-007;+8.00000000E-007"


def test_highest_range_overflows_at_its_full_scale(bench):
    """Unlike the N774x: 19.999 mW, not 10 mW."""
    bench.ask("SENS1:CHAN1:POW:UNIT 1")
    bench.light = lambda slot, channel, at_s: Light(15e-3)
    assert float(bench.ask("READ1:CHAN1:POW?")) == pytest.approx(15e-3, rel=0.04)
    bench.light = lambda slot, channel, at_s: Light(25e-3)
    assert bench.ask("READ1:CHAN1:POW?") == MARKER
    assert bench.ask("STAT:QUES:COND?") == "+2", "bit 1 is slot 1"


def test_failing_queries_answer_a_marker_besides_the_error(bench):
    bench.light = lambda slot, channel, at_s: Light(0.0)
    readings = [bench.ask("READ1:CHAN1:POW?") for _ in range(30)]
    assert MARKER in readings, "dark, in dBm"
    assert set(bench.host.errors()) == {-261}
    assert bench.ask("SENS1:FUNC:RES?") == "#10"
    assert bench.host.errors() == [-221]


def test_runs_act_on_both_channels_and_are_read_in_watts(bench):
    bench.ask("SENS1:POW:UNIT 0;:SENS1:FUNC:PAR:LOGG 50,1MS;:SENS1:FUNC:STAT LOGG,STAR;*WAI")
    assert bench.ask("SENS1:CHAN2:FUNC:STAT?") == "LOGGING_STABILITY,COMPLETE"
    assert bench.block("SENS1:CHAN1:FUNC:RES?", "<f4") == pytest.approx([1e-4] * 50, rel=0.04)
    assert bench.block("SENS1:CHAN2:FUNC:RES?", "<f4") == pytest.approx([2e-4] * 50, rel=0.04)


def test_sensor_has_4000_points_of_at_least_100_us(bench):
    bench.ask("SENS1:FUNC:PAR:LOGG 4001,1MS")
    bench.ask("SENS1:FUNC:PAR:LOGG 4000,50US")
    assert bench.host.errors() == [-222, -222]


def test_mainframe_without_a_laser_has_no_source(bench):
    assert bench.ask("SOUR0:WAV?") is None
    assert bench.ask("TRIG0:OUTP?") is None
    assert set(bench.host.errors()) == {-113, -114}
    with pytest.raises(ConfigError):
        bench.mainframe.light()


@pytest.fixture
def swept():
    """Sweep the mainframe's own laser through a notch at 1555 nm to its own sensor, as `lambda scan' programs do."""
    bench = Bench(modules=LASER)

    def behind_filter(slot, channel, at_s):
        light = bench.mainframe.light_at(at_s)
        notch = 1.0 - 0.9 * np.exp(-(((light.wavelength_nm - 1555.0) / 0.5) ** 2))
        return Light(light.power_w * notch / channel, light.wavelength_nm)

    bench.light = behind_filter
    return bench


def test_laser_and_sensors_share_the_trigger_commands(swept):
    swept.ask("TRIG0:OUTP STF;:TRIG0:INP SWS;:TRIG1:INP SME;:TRIG2:OUTP AVG")
    assert swept.ask("TRIG0:OUTP?;INP?;:TRIG1:INP?;:TRIG2:OUTP?") == "STF;SWS;SME;AVG"
    swept.ask("TRIG0:INP SME")
    swept.ask("TRIG1:INP SWS")
    assert swept.host.errors() == [-224, -224]
    assert swept.ask("SLOT0:IDN?").split(",")[1] == "81600B"
    assert swept.ask("SENS0:POW:UNIT?") is None
    assert swept.host.errors() == [-114]


def test_lambda_scan(swept):
    for line in (
        "LOCK 0,1234;:TRIG:CONF LOOP;:SOUR0:POW:STAT 1;:TRIG0:OUTP STF;:TRIG0:INP SWS",
        "SOUR0:WAV:SWE:STAR 1550NM;STOP 1560NM;STEP 10PM;SPE 5NM/S;MODE CONT;LLOG 1",
    ):
        swept.ask(line)
    assert swept.ask("SOUR0:WAV:SWE:CHEC?") == "0,OK"
    points = int(swept.ask("SOUR0:WAV:SWE:EXP?"))
    swept.ask("SOUR0:WAV:SWE 1;:TRIG1:INP SME;:SENS1:POW:UNIT 1;RANG:AUTO 0;:SENS1:POW:RANG 0DBM;WAV 1555NM")
    swept.ask(f"SENS1:FUNC:PAR:LOGG {points},100US;:SENS1:FUNC:STAT LOGG,STAR")
    while not int(swept.ask("SOUR0:WAV:SWE:FLAG?")) % 2:
        swept.clock.sleep(0.05)
    swept.ask("SOUR0:WAV:SWE:SOFT")
    while swept.ask("SOUR0:WAV:SWE:STAT?") != "+0":
        swept.clock.sleep(0.1)
    swept.clock.sleep(0.1)
    assert swept.ask("SENS1:FUNC:STAT?") == "LOGGING_STABILITY,COMPLETE"
    nm = swept.block("SOUR0:READ:DATA? LLOG", "<f8") * 1e9
    watts = [swept.block(f"SENS1:CHAN{channel}:FUNC:RES?", "<f4") for channel in (1, 2)]
    assert len(nm) == len(watts[0]) == points == 1001
    assert nm[np.argmin(watts[0])] == pytest.approx(1555.0, abs=0.03)
    assert watts[0].min() / watts[0].max() == pytest.approx(0.1, rel=0.05)
    assert np.median(watts[0] / watts[1]) == pytest.approx(2.0, rel=0.05)
    assert swept.host.errors() == []


def test_the_laser_has_the_speeds_of_its_own_model(swept):
    for speed in (0.5, 5, 10, 20, 40, 80):
        swept.ask(f"SOUR0:WAV:SWE:SPE {speed}NM/S")
        assert float(swept.ask("SOUR0:WAV:SWE:SPE?")) == pytest.approx(speed * 1e-9)
    assert swept.host.errors() == []
    swept.ask("*RST")
    assert float(swept.ask("SOUR0:WAV:SWE:SPE?")) == pytest.approx(40e-9)
    swept.ask("SOUR0:WAV:SWE:SPE 50NM/S")
    assert swept.host.errors() == [-222]


def test_the_output_of_low_spontaneous_emission_has_less_power(swept):
    assert swept.ask("OUTP0:PATH?") == "HIGH"
    swept.ask("LOCK 0,1234;:SOUR0:POW:STAT 1;:SOUR0:POW 8DBM")
    swept.clock.sleep(5.0)
    high_w = swept.mainframe.light().power_w
    most_w = float(swept.ask("SOUR0:WAV:SWE:PMAX? 1530NM,1550NM"))
    swept.ask("OUTP0:PATH LOWSse")
    swept.clock.sleep(5.0)
    assert swept.ask("OUTP0:PATH?;:OUTP0?") == "LOWS;+1"
    assert swept.mainframe.light().power_w < 0.5 * high_w
    assert float(swept.ask("SOUR0:WAV:SWE:PMAX? 1530NM,1550NM")) == pytest.approx(most_w * 10**-0.5, rel=1e-6)
    swept.ask("OUTP0:PATH BHR;:OUTP0:PATH MIDDLE")
    assert swept.ask("OUTP0:PATH?") == "BHR"
    assert swept.host.errors() == [-224]


def test_reset_reaches_the_laser(swept):
    swept.ask("LOCK 0,1234;:SOUR0:POW:STAT 1;:SOUR0:WAV 1600NM;*RST")
    assert swept.ask("SOUR0:POW:STAT?;:SOUR0:WAV?") == "+0;+1.55000000E-006"
