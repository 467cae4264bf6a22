"""The N7776C emulator: commands, tuning, sweeps with wavelength logging."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.wires.device import EmulatedDevice
from tests.emulator.scpi.scpi_testbench import Host


class Bench:
    """A laser, a clock and a host."""

    def __init__(self, seed: int = 6) -> None:
        self.clock = VirtualClock()
        self.pulses: list[float] = []
        self.laser = EmulatedKeysightLaser(
            "laser0", self.clock, np.random.default_rng(seed), on_triggers=self.pulses.extend
        )
        self.host = Host(self.laser)

    def ask(self, line: str) -> str | None:
        reply = self.host.ask(line)
        while reply is None and (event := self.host.peer.next_event()) is not None:
            self.clock.sleep(max(event - self.clock.now(), 1e-6))
            reply = self.host.peer.transmit().decode().removesuffix("\n") or None
        return reply

    def block(self, line: str) -> bytes:
        raw = self.host.raw(line.encode() + b"\n")
        digits = int(raw[1:2])
        return raw[2 + digits : 2 + digits + int(raw[2 : 2 + digits])]

    def on(self) -> None:
        self.ask("LOCK 0,1234;:SOUR0:POW:STAT 1")
        self.clock.sleep(5.0)


@pytest.fixture
def bench():
    return Bench()


def prepare(bench: Bench, **more: str) -> None:
    """A sweep of 10 nm in steps of 1 nm at 50 nm/s with wavelength logging."""
    settings = {
        "STAR": "1550NM",
        "STOP": "1560NM",
        "STEP": "1NM",
        "SPE": "50NM/S",
        "MODE": "CONT",
        "LLOG": "1",
    } | more
    bench.ask("TRIG0:OUTP STF")
    for name, value in settings.items():
        bench.ask(f"SOUR0:WAV:SWE:{name} {value}")


def test_identity(bench):
    device: EmulatedDevice = bench.laser
    assert device.name == "laser0"
    assert bench.ask("*IDN?") == "Keysight Technologies,N7776C,DE00000002,1.06.00"


def test_light_needs_the_pin(bench):
    assert bench.ask("LOCK?") == "+1"
    bench.ask("SOUR0:POW:STAT 1")
    assert bench.host.errors() == [-203]
    bench.ask("LOCK 0,4711")
    assert bench.host.errors() == [-224]
    bench.on()
    assert bench.ask("LOCK?;:SOUR0:POW:STAT?;:OUTP0?") == "+0;+1;+1"
    assert bench.laser.light().power_w == pytest.approx(1e-3, rel=0.12)
    bench.ask("LOCK 1,1234")
    assert bench.laser.light().power_w == 0.0


def test_power_units(bench):
    assert bench.ask("SOUR0:POW:UNIT?;:SOUR0:POW?") == "+0;+0.00000000E+000"
    bench.ask("SOUR0:POW 2 mW")
    assert float(bench.ask("SOUR0:POW?")) == pytest.approx(3.0103, abs=1e-4)
    bench.ask("SOUR0:POW:UNIT W")
    assert float(bench.ask("SOUR0:POW?")) == pytest.approx(2e-3)
    bench.ask("SOUR0:POW 0.001")
    assert float(bench.ask("SOUR0:POW?")) == pytest.approx(1e-3)
    bench.ask("SOUR0:POW:UNIT 0;:SOUR0:POW -5;:SOUR0:POW 20DBM")
    assert float(bench.ask("SOUR0:POW?")) == pytest.approx(-5.0)
    assert bench.host.errors() == [-222]
    assert float(bench.ask("SOUR0:POW? MAX")) == pytest.approx(12.0, abs=1e-3)


def test_wavelength_is_replied_in_metres_and_tuning_takes_time(bench):
    bench.ask("SOUR0:WAV 1550nm;*WAI")
    start = bench.clock.now()
    bench.ask("SOUR0:WAV 1600.000000nm")
    assert bench.ask("SOUR0:WAV?") == "+1.60000000E-006"
    assert bench.laser.light().wavelength_nm < 1551
    assert bench.ask("*WAI;*OPC?") == "1"
    assert bench.clock.now() - start == pytest.approx(50 / 100 + 0.3, abs=1e-3)
    assert bench.laser.light().wavelength_nm == pytest.approx(1600.0, abs=0.02)
    bench.ask("SOUR0:WAV 1700NM")
    assert bench.host.errors() == [-222]


def test_wavelength_is_reproducible_but_not_exact():
    errors = {Bench(seed).laser.light().wavelength_nm - 1550.0 for seed in (1, 1, 2)}
    assert len(errors) == 2
    assert all(1e-6 < abs(error) < 0.02 for error in errors)


def test_power_settles_and_the_ends_of_the_range_have_less(bench):
    bench.on()
    low = bench.laser.light().power_w
    bench.ask("SOUR0:POW 10DBM")
    bench.clock.sleep(0.3)
    assert bench.laser.light().power_w / low == pytest.approx(10 - 9 * np.exp(-1), rel=0.01)
    bench.ask("SOUR0:WAV 1480NM;*WAI")
    bench.clock.sleep(3.0)
    assert bench.laser.light().power_w / low == pytest.approx(10**0.8, rel=0.01), "8 dBm at the edge"
    for unit in ("DBM", "WATT"):
        bench.ask(f"SOUR0:POW:UNIT {unit}")
        assert float(bench.ask("WAV:SWE:PMAX? 1480NM,1560NM")) == pytest.approx(10**0.8 * 1e-3), "W whatever the unit"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, 0),
        ({"STOP": "1550NM"}, 368),
        ({"STOP": "1551NM", "SPE": "200NM/S", "STEP": "0.1NM"}, 369),
        ({"STEP": "0.01PM"}, None),
        ({"MODE": "STEP"}, 376),
        ({"STEP": "0.15PM"}, 377),
        ({"STAR": "1480NM", "STOP": "1640NM", "STEP": "0.1PM"}, 373),
    ],
)
def test_parameters_are_checked(bench, change, code):
    prepare(bench, **change)
    if code is None:
        assert bench.host.errors() == [-222]
        return
    assert int(bench.ask("SOUR0:WAV:SWE:CHEC?").split(",")[0]) == code
    bench.ask("SOUR0:WAV:SWE 1")
    assert bench.host.errors() == ([-221] if code else [])


def test_logging_needs_its_trigger_output_and_no_modulation(bench):
    prepare(bench)
    assert bench.ask("SOUR0:WAV:SWE:CHEC?") == "0,OK"
    bench.ask("TRIG0:OUTP DIS")
    assert bench.ask("SOUR0:WAV:SWE:CHEC?").startswith("375,")
    bench.ask("TRIG0:OUTP STF;:SOUR0:AM:STAT ON")
    assert bench.ask("SOUR0:WAV:SWE:CHEC?").startswith("374,")
    bench.ask("SOUR0:WAV:SWE:LLOG 0")
    assert bench.ask("SOUR0:WAV:SWE:CHEC?").startswith("379,")


def test_speed_is_one_of_those_the_laser_has(bench):
    bench.ask("SOUR0:WAV:SWE:SPE 80nm/s")
    assert bench.ask("SOUR0:WAV:SWE:SPE?") == "+8.00000000E-008"
    bench.ask("SOUR0:WAV:SWE:SPE 60nm/s")
    assert bench.host.errors() == [-222]


def test_sweep_runs_logs_and_gives_a_pulse_per_step(bench):
    bench.on()
    prepare(bench)
    assert bench.ask("SOUR0:WAV:SWE:EXP?") == "+11"
    bench.ask("SOUR0:WAV:SWE 1")
    assert bench.ask("SOUR0:WAV:SWE?") == "+1"
    start = bench.clock.now()
    assert bench.ask("*WAI;*OPC?") == "1"
    assert bench.ask("SOUR0:WAV:SWE?") == "+0"
    assert bench.clock.now() - start == pytest.approx(0.3 + 0.1 + 10 / 50, abs=1e-3)
    assert len(bench.pulses) == 11
    assert np.diff(bench.pulses) == pytest.approx(np.full(10, 0.02), abs=1e-9)
    assert bench.ask("SOUR0:READ:POIN? LLOG") == "+11"
    metres = np.frombuffer(bench.block("SOUR0:READ:DATA? LLOG"), "<f8")
    assert metres * 1e9 == pytest.approx(np.arange(1550, 1561), abs=0.02)
    truth = [bench.laser.light_at(at_s).wavelength_nm for at_s in bench.pulses]
    assert metres * 1e9 == pytest.approx(truth, abs=1e-6)


def test_sweep_can_wait_for_its_trigger_and_the_flag_says_so(bench):
    prepare(bench)
    bench.ask("TRIG0:INP SWS")
    assert bench.ask("SOUR0:WAV:SWE:FLAG?") == "+0"
    bench.ask("SOUR0:WAV:SWE:SOFT")
    assert bench.host.errors() == [-211]
    bench.ask("SOUR0:WAV:SWE 1")
    assert bench.ask("SOUR0:WAV:SWE:FLAG?") == "+0"
    bench.clock.sleep(1.0)
    assert bench.ask("SOUR0:WAV:SWE:FLAG?;:SOUR0:WAV:SWE?") == "+1;+1", "odd: it waits"
    bench.clock.sleep(100.0)
    bench.ask("SOUR0:WAV:SWE:SOFT")
    bench.clock.sleep(0.1)
    assert bench.ask("SOUR0:WAV:SWE:FLAG?") == "+1", "there are no data yet"
    bench.clock.sleep(0.11)
    assert bench.ask("SOUR0:WAV:SWE?;:SOUR0:WAV:SWE:FLAG?") == "+0;+2"
    assert bench.ask("SOUR0:READ:POIN? LLOG") == "+11"
    bench.ask("SOUR0:WAV:SWE 1")
    bench.clock.sleep(1.0)
    bench.laser.trigger()
    bench.clock.sleep(0.21)
    assert bench.ask("SOUR0:WAV:SWE:FLAG?") == "+2", "it counts from 0 again at every start"
    bench.ask("SOUR0:WAV:SWE 0")
    assert bench.ask("SOUR0:WAV:SWE:FLAG?") == "+0"


def test_stopping_a_sweep_ends_it_where_it_is(bench):
    prepare(bench, SPE="1NM/S")
    bench.ask("SOUR0:WAV:SWE 1")
    bench.clock.sleep(0.4 + 4.5)
    bench.ask("SOUR0:WAV:SWE 0")
    here = bench.laser.light().wavelength_nm
    assert here == pytest.approx(1554.5, abs=0.05)
    assert bench.ask("SOUR0:WAV:SWE?;:SOUR0:READ:POIN? LLOG;*OPC?") == "+0;+5;1"
    bench.clock.sleep(10.0)
    assert bench.laser.light().wavelength_nm == here


def test_stepped_sweep_dwells_and_two_ways_come_back(bench):
    prepare(bench, MODE="STEP", LLOG="0", DWEL="0.5", REP="TWOW", CYCL="2", STOP="1552NM")
    bench.ask("SOUR0:WAV:SWE 1")
    start = bench.clock.now() + 0.4
    bench.ask("*WAI")
    places = [bench.laser.light_at(start + at_s).wavelength_nm for at_s in (0.25, 0.76, 1.27, 1.78, 2.3, 2.8)]
    assert places == pytest.approx([1550, 1551, 1552, 1552, 1551, 1550], abs=0.02)
    assert len(bench.pulses) == 6


def test_manual_steps(bench):
    prepare(bench, MODE="MAN", LLOG="0")
    bench.ask("SOUR0:WAV:SWE:STEP:NEXT")
    assert bench.host.errors() == [-221]
    bench.ask("SOUR0:WAV:SWE 1;*WAI")
    assert bench.ask("SOUR0:WAV:SWE?") == "+2"
    for command, nm in (("NEXT", 1551), ("NEXT", 1552), ("PREV", 1551)):
        bench.ask(f"SOUR0:WAV:SWE:STEP:{command}")
        bench.clock.sleep(1.0)
        assert bench.laser.light().wavelength_nm == pytest.approx(nm, abs=0.02)
    bench.ask("SOUR0:WAV:SWE:STEP:PREV;PREV")
    assert bench.host.errors() == [-221]
    bench.ask("SOUR0:WAV:SWE 0")
    assert bench.ask("SOUR0:WAV:SWE?") == "+0"


def test_settings_are_read_back_in_metres(bench):
    prepare(bench)
    assert bench.ask("SOUR0:WAV:SWE:STAR?;STOP?;STEP?;STEP:WIDT?") == (
        "+1.55000000E-006;+1.56000000E-006;+1.00000000E-009;+1.00000000E-009"
    )
    assert bench.ask("SOUR0:WAV:SWE:MODE?;REP?;LLOG?;CYCL?;DWEL?") == "CONT;ONEW;+1;+1;+1.00000000E-001"
    assert bench.ask("TRIG0:OUTP?;INP?;:TRIG:CONF?") == "STF;IGN;DEF"
    bench.ask("TRIG:CONF LOOP;:TRIG 1")
    assert bench.ask("TRIG:CONF?") == "LOOP"
    bench.ask("*RST")
    assert bench.ask("SOUR0:WAV:SWE:MODE?;:SOUR0:POW:STAT?;:TRIG0:OUTP?") == "STEP;+0;DIS"


def test_trigger_wiring_is_set_by_word_or_number(bench):
    for number, word in enumerate(("DIS", "DEF", "PASS", "LOOP")):
        bench.ask(f"TRIG:CONF {number}")
        assert bench.ask("TRIG:CONF?") == word


def test_realigning_the_cavity_takes_time(bench):
    bench.ask("SOUR0:WAV:CORR:ARA")
    assert bench.ask("*OPC?") == "0"
    bench.clock.sleep(11.0)
    assert bench.ask("*OPC?;SYST:ERR?") == '1;+0,"No error"'
    bench.ask("OUTP0:PATH LOWS")
    assert bench.host.errors() == [-113], "it has one output"


def test_table_of_greatest_powers(bench):
    raw = bench.block("SOUR0:READ:DATA? PMAX")
    table = np.frombuffer(raw, np.dtype([("m", "<f8"), ("w", "<f4")]))
    assert len(table) == int(bench.ask("SOUR0:READ:POIN? PMAX")) == 161
    assert table["m"][[0, -1]] == pytest.approx([1480e-9, 1640e-9])
    assert table["w"].max() == pytest.approx(10**1.2 * 1e-3, rel=1e-6)


def test_meter_beside_it_sees_the_spectrum_of_what_lies_between(bench):
    """A notch of 1 nm at 1555 nm, swept at 50 nm/s, sampled by the laser's own pulses every 10 pm."""

    def behind_filter(port: int, at_s: float) -> Light:
        light = bench.laser.light_at(at_s)
        notch = 1.0 - 0.9 * np.exp(-(((light.wavelength_nm - 1555.0) / 0.5) ** 2))
        return Light(light.power_w * notch, light.wavelength_nm)

    meter = EmulatedKeysightN77xx(
        "pm0",
        bench.clock,
        np.random.default_rng(3),
        lambda port: behind_filter(port, bench.clock.now()).power_w,
        light_wavelength_nm=lambda port: behind_filter(port, bench.clock.now()).wavelength_nm,
        light_at=behind_filter,
        model="N7744A",
        n_ports=4,
    )
    bench.laser.module._on_triggers = meter.hardware_trigger
    host = Host(meter)
    host.ask("SENS1:POW:UNIT 1;RANG 0DBM;:TRIG1:INP SME;:SENS1:FUNC:PAR:LOGG 1001,100US;:SENS1:FUNC:STAT LOGG,STAR")
    bench.on()
    prepare(bench, STEP="10PM")
    bench.ask("SOUR0:WAV:SWE 1;*WAI")
    bench.clock.sleep(0.01)
    assert host.ask("SENS1:FUNC:STAT?") == "LOGGING_STABILITY,COMPLETE"
    raw = host.raw(b"SENS1:FUNC:RES?\n")
    watts = np.frombuffer(raw[6:-1], "<f4")
    nm = np.frombuffer(bench.block("SOUR0:READ:DATA? LLOG"), "<f8") * 1e9
    assert len(watts) == len(nm) == 1001
    assert nm[np.argmin(watts)] == pytest.approx(1555.0, abs=0.03)
    assert watts.min() / watts.max() == pytest.approx(0.1, rel=0.05)
