"""The TSL-550 and TSL-570 emulator: two command sets, units, sweeps (instrument facts, section 8)."""

from __future__ import annotations

import numpy as np
import pytest
from scpi_testbench import Host

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.device import EmulatedDevice
from lumion_hw.emulator.santec_tsl import SantecTsl
from lumion_hw.errors import ConfigError


class Bench:
    """A laser, a clock and a host."""

    def __init__(self, **options) -> None:
        self.clock = VirtualClock()
        self.pulses: list[float] = []
        self.laser = SantecTsl(
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


def test_replies_may_end_in_cr_lf():
    assert Bench(terminator=b"\r\n").host.raw(b"*OPC?\r\n") == b"1\r\n"


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
    assert float(bench.ask("POW?")) == pytest.approx(1.995262, abs=1e-6)
    bench.ask("POW 1;POW 100")
    assert float(bench.ask("POW?")) == pytest.approx(1.0)
    assert bench.host.errors() == [-222]
    bench.ask("POW 0DBM;:POW:STAT 1")
    bench.clock.sleep(5.0)
    assert float(bench.ask("POW:ACT?")) == pytest.approx(1.0, rel=0.12)
    bench.ask("POW:UNIT 0")
    assert float(bench.ask("POW:ACT?")) == pytest.approx(0.0, abs=0.5)


def test_dark_monitor_has_no_logarithm(bench):
    assert float(bench.ask("POW:ACT?")) == 9.91e37
    assert bench.host.errors() == [-231]
    bench.ask("POW:UNIT 1")
    assert float(bench.ask("POW:ACT?")) == 0.0


def test_speeds_are_those_of_the_model(bench):
    for speed in (1, 2, 5, 10, 20, 50, 100, 200):
        bench.ask(f"WAV:SWE:SPE {speed}")
        assert float(bench.ask("WAV:SWE:SPE?")) == speed
    bench.ask("WAV:SWE:SPE 30")
    assert bench.host.errors() == [-222]


def sweep(bench: Bench, *lines: str) -> None:
    bench.ask("WAV:SWE:STAR 1550;STOP 1560;STEP 1;SPE 10;MOD 1")
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


def test_sweep_waits_for_its_trigger(bench):
    sweep(bench, "TRIG:INP:STAN 1")
    bench.clock.sleep(60.0)
    assert bench.ask("WAV:SWE?") == "3"
    bench.ask("TRIG:INP:SOFT")
    assert bench.ask("WAV:SWE?") == "1"
    bench.ask("TRIG:INP:SOFT")
    assert bench.host.errors() == [-211]
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
    bench.ask("WAV:SWE:STAR 1480;STOP 1640;STEP 0.0001;:WAV:SWE 1")
    assert bench.host.errors() == [-221, -221]
    assert bench.ask("WAV:SWE?;*OPC?") == "0;1"


def test_frequencies_are_another_view_of_the_sweep(bench):
    bench.ask("FREQ:SWE:STAR 193.1;STOP 192.1")
    assert float(bench.ask("WAV:SWE:STAR?")) == pytest.approx(299_792.458 / 193.1, abs=1e-5)
    assert float(bench.ask("WAV:SWE:STOP?")) == pytest.approx(299_792.458 / 192.1, abs=1e-5)
    bench.ask("FREQ:SWE:STEP 0.05")
    assert float(bench.ask("FREQ:SWE:STEP?")) == 0.05
    assert float(bench.ask("WAV:SWE:RANG:MAX?")) == 1640.0
