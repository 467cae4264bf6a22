"""Logging, stability, min/max runs and triggers of the N77xx emulator (programming guide)."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.optics.light import Light
from tests.emulator.scpi.scpi_testbench import Host

FLT_MAX = np.float32(3.4028235e38)


class Bench:
    """A four-port meter whose light is a function of port and time."""

    def __init__(self, light=lambda port, at_s: Light(1e-4), *, known_past: bool = True, seed: int = 4) -> None:
        self.clock = VirtualClock()
        self.light = light
        self.meter = EmulatedKeysightN77xx(
            "pm0",
            self.clock,
            np.random.default_rng(seed),
            lambda port: self.light(port, self.clock.now()).power_w,
            light_wavelength_nm=lambda port: self.light(port, self.clock.now()).wavelength_nm,
            light_at=self._light_at if known_past else None,
            model="N7744A",
            n_ports=4,
        )
        self.host = Host(self.meter)
        for port in range(1, 5):
            self.host.ask(f"SENS{port}:POW:UNIT 1;RANG 0DBM")
        self.host.ask("*CLS")

    def _light_at(self, port: int, at_s: float) -> Light:
        return self.light(port, at_s)

    def ask(self, line: str) -> str | None:
        reply = self.host.ask(line)
        while reply is None and (event := self.host.peer.next_event()) is not None:
            self.clock.sleep(max(event - self.clock.now(), 1e-6))
            reply = self.host.peer.transmit().decode().removesuffix("\n") or None
        return reply

    def result(self, port: int = 1) -> np.ndarray:
        raw = self.host.raw(f"SENS{port}:FUNC:RES?\n".encode())
        digits = int(raw[1:2])
        length = int(raw[2 : 2 + digits])
        assert raw[2 + digits + length :] == b"\n"
        return np.frombuffer(raw[2 + digits : 2 + digits + length], "<f4")


@pytest.fixture
def bench():
    return Bench()


def test_parameters_are_read_back_in_the_manuals_form(bench):
    bench.ask("sens1:func:par:logg 64,1ms")
    assert bench.ask("SENS1:FUNC:PAR:LOGG?") == "+64,+1.00000000E-003"
    bench.ask("SENS1:FUNC:PAR:STAB 1S,100MS,100MS")
    assert bench.ask("SENS1:FUNC:PAR:STAB?") == "+1.00000,+1.00000000E-001,+1.00000000E-001"
    bench.ask("SENS1:FUNC:PAR:MINM WIND,10")
    assert bench.ask("SENS1:FUNC:PAR:MINM?") == "WIND,+10"
    assert bench.host.errors() == []


def test_stability_needs_total_period_averaging_in_this_order(bench):
    bench.ask("SENS1:FUNC:PAR:STAB 1,2,0.1")
    bench.ask("SENS1:FUNC:PAR:STAB 1,0.1,0.2")
    assert bench.host.errors() == [-222, -222]
    bench.ask("SENS1:FUNC:PAR:STAB 1,0.1,0.1")
    assert bench.ask("SENS1:FUNC:PAR:LOGG?") == "+10,+1.00000000E-001", "it changes the hidden logging parameters too"


def test_logging_takes_points_times_averaging_time_without_dead_time(bench):
    bench.ask("SENS1:FUNC:PAR:LOGG 100,10MS;:SENS1:FUNC:STAT LOGG,STAR")
    assert bench.ask("SENS1:FUNC:STAT?") == "LOGGING_STABILITY,PROGRESS"
    bench.clock.sleep(0.99)
    assert bench.ask("SENS1:FUNC:STAT?;:STAT:OPER:COND?") == "LOGGING_STABILITY,PROGRESS;+2"
    bench.clock.sleep(0.011)
    assert bench.ask("SENS1:FUNC:STAT?;:STAT:OPER:COND?") == "LOGGING_STABILITY,COMPLETE;+0"
    assert len(bench.result()) == 100
    bench.ask("SENS1:FUNC:STAT LOGG,STOP")
    assert bench.ask("SENS1:FUNC:STAT?").startswith("NONE,")


def test_operation_complete_waits_for_a_run(bench):
    bench.ask("*CLS;:SENS1:FUNC:PAR:LOGG 100,10MS;STAT LOGG,STAR")
    bench.ask("SENS1:FUNC:STAT LOGG,STAR;*OPC")
    start = bench.clock.now()
    assert bench.ask("*WAI;*OPC?") == "1"
    assert bench.clock.now() - start == pytest.approx(1.0, abs=1e-3)
    assert int(bench.ask("*ESR?")) & 1


def test_samples_follow_the_light_in_time():
    """A ramp of 1 mW/s sampled every 10 ms: sample i is the mean of its own 10 ms."""
    bench = Bench(lambda port, at_s: Light(1e-3 * at_s))
    bench.ask("SENS1:FUNC:PAR:LOGG 100,10MS;:SENS1:FUNC:STAT LOGG,STAR")
    bench.clock.sleep(1.0)
    expected = 1e-3 * (np.arange(100) + 0.5) * 0.01
    gain = bench.result() / expected
    assert gain == pytest.approx(np.full(100, gain[-1]), rel=2e-2)
    assert gain[-1] == pytest.approx(1.0, rel=0.03)


def test_light_without_a_past_is_taken_as_changing_linearly():
    bench = Bench(lambda port, at_s: Light(1e-3 * at_s), known_past=False)
    bench.ask("SENS1:FUNC:PAR:LOGG 100,10MS;:SENS1:FUNC:STAT LOGG,STAR")
    bench.clock.sleep(1.0)
    values = bench.result()
    assert values[-1] / values[49] == pytest.approx(99.5 / 49.5, rel=1e-2)


def test_noise_of_samples_is_that_of_readings(bench):
    """1 pW at 1 s: 31.6 pW at 1 ms, in the lowest range."""
    bench.light = lambda port, at_s: Light(0.0)
    bench.ask("SENS1:POW:RANG -60DBM;:SENS1:FUNC:PAR:LOGG 20000,1MS;:SENS1:FUNC:STAT LOGG,STAR;*WAI")
    assert np.std(bench.result()) == pytest.approx(31.6e-12, rel=0.05)


def test_result_is_in_the_unit_set_and_what_has_no_value_is_the_largest_float(bench):
    bench.light = lambda port, at_s: Light(1e-4 if at_s < 0.5 else 5e-3)
    bench.ask("SENS2:POW:UNIT 0;:SENS2:FUNC:PAR:LOGG 10,100MS;:SENS2:FUNC:STAT LOGG,STAR;*WAI")
    values = bench.result(2)
    assert values[:5] == pytest.approx(-10.0, abs=0.2)
    assert (values[5:] == FLT_MAX).all(), "5 mW overflow the range of 0 dBm"


def test_stability_run_samples_once_per_period(bench):
    bench.light = lambda port, at_s: Light(1e-4 * (1 + at_s))
    bench.ask("SENS1:FUNC:PAR:STAB 10,1,0.1;:SENS1:FUNC:STAT STAB,STAR")
    start = bench.clock.now()
    assert bench.ask("*WAI;*OPC?") == "1"
    assert bench.clock.now() - start == pytest.approx(9.1, abs=1e-3)
    values = bench.result()
    assert len(values) == 10
    assert values[9] / values[0] == pytest.approx(10.05 / 1.05, rel=5e-3)


@pytest.mark.parametrize(
    ("window", "low", "high"), [("CONT", 0.005, 0.995), ("WIND,10", 0.905, 0.995), ("REFR,30", 0.905, 0.995)]
)
def test_minmax_gives_minimum_maximum_and_present_value(window, low, high):
    """A ramp in 100 samples of 10 ms: all samples, the last ten, and those since the last refresh at sample 90."""
    bench = Bench(lambda port, at_s: Light(1e-3 * at_s))
    mode, _, count = window.partition(",")
    bench.ask(f"SENS1:POW:ATIM 10MS;:SENS1:FUNC:PAR:MINM {mode},{count or 1}")
    start = bench.clock.now()
    bench.ask("SENS1:FUNC:STAT MINM,STAR")
    bench.light = lambda port, at_s: Light(1e-3 * (at_s - start))
    for _ in range(10):
        bench.clock.sleep(0.1)
        bench.ask("SENS1:FUNC:STAT?")
    assert bench.ask("SENS1:FUNC:STAT?") == "MINMAX,PROGRESS"
    values = bench.result() / 1e-3
    assert values == pytest.approx([low, high, 0.995], rel=0.03, abs=0.002)
    assert bench.ask("*OPC?") == "1", "nobody waits for a run that never ends"


def test_each_trigger_gives_one_sample(bench):
    bench.light = lambda port, at_s: Light(1e-4 * (1 + at_s))
    bench.ask("TRIG1:INP SME;:SENS1:FUNC:PAR:LOGG 5,1MS;:SENS1:FUNC:STAT LOGG,STAR")
    bench.clock.sleep(10.0)
    assert bench.ask("SENS1:FUNC:STAT?") == "LOGGING_STABILITY,PROGRESS", "for ever, without triggers"
    times = bench.clock.now() + np.arange(4)
    bench.clock.sleep(3.5)
    bench.meter.hardware_trigger(times)
    assert bench.ask("SENS1:FUNC:STAT?").endswith("PROGRESS")
    bench.ask("TRIG 1")
    bench.clock.sleep(0.01)
    assert bench.ask("SENS1:FUNC:STAT?").endswith("COMPLETE")
    values = bench.result()
    assert values / values[0] == pytest.approx([1.0, 12 / 11, 13 / 11, 14 / 11, 14.5 / 11], rel=1e-3)


def test_trigger_during_a_sample_is_lost(bench):
    bench.ask("TRIG1:INP SME;:SENS1:FUNC:PAR:LOGG 3,1S;:SENS1:FUNC:STAT LOGG,STAR")
    bench.meter.hardware_trigger([0.0, 0.5, 1.0, 1.5, 2.0])
    bench.clock.sleep(3.1)
    assert bench.ask("SENS1:FUNC:STAT?").endswith("COMPLETE")


def test_one_trigger_starts_a_complete_run(bench):
    bench.ask("TRIG1:INP CME;:SENS1:FUNC:PAR:LOGG 10,100MS;:SENS1:FUNC:STAT LOGG,STAR")
    bench.clock.sleep(5.0)
    bench.ask("TRIG NODEA")
    start = bench.clock.now()
    assert bench.ask("*WAI;*OPC?") == "1"
    assert bench.clock.now() - start == pytest.approx(1.0, abs=1e-3)
    assert len(bench.result()) == 10


def test_triggers_need_their_wiring(bench):
    """Node A is the input connector, node B the output; only LOOPback connects them (816x guide pp. 209, 214)."""
    bench.ask("TRIG:CONF DIS;:TRIG1:INP CME;:SENS1:FUNC:STAT LOGG,STAR;:TRIG 1")
    bench.clock.sleep(100.0)
    assert bench.ask("SENS1:FUNC:STAT?;:TRIG:CONF?") == "LOGGING_STABILITY,PROGRESS;DIS"
    for wiring in ("DEF", "PASS"):
        bench.ask(f"TRIG:CONF {wiring};:TRIG 2")
        bench.clock.sleep(100.0)
        assert bench.ask("SENS1:FUNC:STAT?").endswith("PROGRESS"), wiring
    bench.ask("TRIG:CONF LOOP;:TRIG 2")
    bench.clock.sleep(100.0)
    assert bench.ask("SENS1:FUNC:STAT?").endswith("COMPLETE")
    bench.ask("TRIG 3")
    assert bench.host.errors() == [-222]


def test_trigger_settings_are_read_back(bench):
    bench.ask("TRIG2:INP SME;OUTP AVG;INP:REAR 0;:TRIG2:OUTP:REAR 0")
    assert bench.ask("TRIG2:INP?;:TRIG2:INP:REAR?;:TRIG2:OUTP?;:TRIG2:OUTP:REAR?") == "SME;+0;AVG;+0"
    assert bench.ask("TRIG1:INP?;OUTP?") == "IGN;DIS"


def test_plain_trigger_takes_one_reading_and_with_rearm_every_one(bench):
    bench.ask("INIT1:CONT 0;:TRIG1:INP SME;INP:REAR 0")
    bench.ask("TRIG 1")
    first = bench.ask("FETC1:POW?")
    bench.light = lambda port, at_s: Light(2e-4)
    bench.ask("TRIG 1")
    assert bench.ask("FETC1:POW?") == first, "only the first"
    bench.ask("TRIG1:INP:REAR 1;:TRIG 1")
    assert float(bench.ask("FETC1:POW?")) == pytest.approx(2 * float(first), rel=1e-3)


@pytest.mark.parametrize("line", ["SENS1:POW:ATIM 1", "SENS1:POW:WAV 1310NM", "SENS1:POW:UNIT 0", "TRIG1:INP CME"])
def test_setting_anything_stops_the_run(bench, line):
    bench.ask("SENS1:FUNC:STAT LOGG,STAR")
    bench.ask(line)
    assert bench.ask("SENS1:FUNC:STAT?").startswith("NONE,")
    assert bench.ask("STAT:OPER:COND?;*OPC?") == "+0;1"
    assert bench.ask("SENS1:FUNC:RES?") is None
    assert bench.host.errors() == [-221]


def test_run_of_one_port_leaves_the_others_alone(bench):
    bench.ask("SENS1:FUNC:STAT LOGG,STAR")
    assert float(bench.ask("READ2:POW?")) > 0
    assert bench.ask("READ1:POW?") == "+3.40282347E+038"
    assert bench.host.errors() == [-221]


def test_run_has_a_largest_and_a_shortest_sample(bench):
    bench.ask("SENS1:FUNC:PAR:LOGG 1000001,1MS")
    bench.ask("SENS1:FUNC:PAR:LOGG 10,100NS")
    bench.ask("SENS1:FUNC:PAR:LOGG 0,1MS")
    assert bench.host.errors() == [-222] * 3


def test_million_samples_come_as_one_block(bench):
    bench.ask("SENS1:FUNC:PAR:LOGG 1000000,1US;:SENS1:FUNC:STAT LOGG,STAR;*WAI")
    values = bench.result()
    assert len(values) == 1_000_000
    assert values.mean() == pytest.approx(1e-4, rel=0.03)


def test_reset_ends_runs(bench):
    bench.ask("TRIG1:INP SME;:SENS1:FUNC:STAT LOGG,STAR;*RST")
    assert bench.ask("SENS1:FUNC:STAT?;:TRIG1:INP?;*OPC?") == "NONE,PROGRESS;IGN;1"


def test_scene_that_gives_no_number_ends_the_run_and_is_reported(bench, caplog):
    bench.ask("SENS1:FUNC:STAT LOGG,STAR")
    bench.light = lambda port, at_s: Light(float("nan"))
    bench.clock.sleep(1.0)
    bench.ask("*OPC?")
    assert bench.host.errors() == [-310]
    assert "no valid power" in caplog.text
    assert bench.ask("SENS1:FUNC:STAT?").startswith("NONE,")


def test_automatic_ranging_follows_the_light_without_a_reading():
    """Between 9 and 100 % of full scale, which is 1.9999 times the range: 1 nW is in the range of -60 dBm."""
    bench = Bench(lambda port, at_s: Light(1e-9 if at_s < 5.0 else 1e-4))
    bench.ask("SENS1:POW:RANG:AUTO 1")
    assert bench.ask("SENS1:POW:RANG?") == "-6.00000000E+001"
    bench.clock.sleep(10.0)
    assert bench.ask("SENS1:POW:RANG?") == "-1.00000000E+001"
    bench.ask("INIT1:CONT 0")
    bench.light = lambda port, at_s: Light(1e-9)
    assert bench.ask("SENS1:POW:RANG?") == "-1.00000000E+001", "a head that is not triggered measures nothing"


def test_a_log_with_automatic_ranging_resolves_weak_light():
    """In the range of 10 dBm one count is 1 uW, so 1 nW would read 0 in every sample."""
    bench = Bench(lambda port, at_s: Light(1e-9))
    bench.ask("SENS1:POW:RANG:AUTO 1;:INIT1:CONT 0;:SENS1:FUNC:PAR:LOGG 100,1MS;:SENS1:FUNC:STAT LOGG,STAR;*WAI")
    assert bench.result() == pytest.approx([1e-9] * 100, rel=0.3)


def test_a_triggered_log_ranges_by_the_light_of_its_first_sample():
    """The laser of a sweep is often dark when the meter is armed."""
    bench = Bench(lambda port, at_s: Light(0.0 if at_s < 5.0 else 1e-4))
    bench.ask("SENS1:POW:RANG:AUTO 1;:TRIG1:INP SME;:SENS1:FUNC:PAR:LOGG 3,1MS;:SENS1:FUNC:STAT LOGG,STAR")
    bench.clock.sleep(6.0)
    bench.meter.hardware_trigger(bench.clock.now() + np.arange(3))
    bench.clock.sleep(3.0)
    assert bench.result() == pytest.approx([1e-4] * 3, rel=0.04)


def test_what_is_below_one_count_is_a_plain_zero():
    bench = Bench(lambda port, at_s: Light(0.0))
    bench.ask("SENS1:FUNC:PAR:LOGG 100,1MS;:SENS1:FUNC:STAT LOGG,STAR;*WAI")
    values = bench.result()
    assert (values == 0.0).all(), "the range of 0 dBm is set by hand"
    assert not np.signbit(values).any()
