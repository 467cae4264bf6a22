"""The PM100 emulator's readings as physics."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lumion_hw.emulator.meters.thorlabs_pm_sensor import (
    ES111C,
    RANGE_CHANGE_S,
    S154C,
    S405C,
    SAMPLE_S,
    ZEROING_S,
    Pm100Sensor,
)
from lumion_hw.emulator.optics.light import Light
from tests.emulator.meters.pm100_testbench import Bench

OVER, NOT_A_NUMBER = 9.9e37, 9.91e37


def zeroed(bench: Bench) -> Bench:
    light = bench.light
    bench.shine(0.0)
    assert bench.ask("CORR:COLL:ZERO;*OPC?") == "1"
    bench.light = light
    return bench


def test_reading_agrees_with_the_light_within_the_heads_error():
    for seed in range(10):
        bench = Bench(Light(1e-4, 1310.0), seed=seed)
        bench.ask("CORR:WAV 1310")
        assert bench.power() == pytest.approx(1e-4, rel=0.035)


def test_current_is_power_times_response():
    bench = Bench(Light(1e-4))
    assert bench.power("MEAS:CURR?") == pytest.approx(1.03 * bench.power("MEAS:POW?"), rel=1e-3)


def test_wrong_wavelength_is_a_gain_error():
    """At 1310 nm the diode gives 0.95 A/W; a console set to 1550 nm uses 1.03 A/W."""
    bench = Bench(Light(1e-4, 1310.0))
    wrong = bench.power()
    bench.ask("CORR:WAV 1310")
    assert wrong / bench.power() == pytest.approx(0.95 / 1.03, rel=1e-3)


@pytest.mark.parametrize("averages", [1, 100])
def test_noise_in_watts_falls_with_the_root_of_the_samples(averages):
    """3 pW at 1 s: 54.8 pW for one sample of 3 ms."""
    bench = zeroed(Bench(Light(0.0)))
    bench.ask(f"AVER {averages}")
    spread = np.std([bench.power() for _ in range(400)])
    assert spread == pytest.approx(3e-12 / math.sqrt(averages * SAMPLE_S), rel=0.15)


def test_low_bandwidth_makes_single_samples_quiet_and_slow():
    """At 15 Hz the console averages over 1/30 s, and follows a step with a time constant of 10.6 ms."""
    bench = zeroed(Bench(Light(0.0)))
    bench.ask("INP:PDI:FILT:LPAS:STAT 1")
    spread = np.std([bench.power() for _ in range(400)])
    assert spread == pytest.approx(3e-12 * math.sqrt(30.0), rel=0.15)
    bench.ask("POW:RANG 1E-4")
    bench.shine(1e-4)
    start = bench.power("MEAS:POW?")
    assert 0.05e-4 < start < 0.3e-4, "mean of 0 and 25 % after 3 ms"
    bench.clock.sleep(0.1)
    assert bench.power() == pytest.approx(1e-4, rel=0.035)


def test_thermopile_settles_in_seconds_and_faster_with_the_accelerator():
    bench = Bench(Light(0.0, 1064.0), sensor=S405C)
    bench.shine(1.0, wavelength_nm=1064.0)
    bench.clock.sleep(1.1)
    assert bench.power() == pytest.approx(1.0 - math.exp(-1.0), rel=0.04)
    bench.clock.sleep(10.0)
    settled = bench.power()
    bench.ask("INP:THER:ACC 1;ACC:TAU 1.1")
    bench.shine(0.5, wavelength_nm=1064.0)
    bench.clock.sleep(1.1)
    assert bench.power() == pytest.approx(0.5 * settled, rel=1e-3)


def test_reading_takes_its_samples_time():
    bench = Bench()
    bench.power()
    bench.ask("AVER 200")
    start = bench.clock.now()
    bench.power()
    assert bench.clock.now() - start == pytest.approx(0.6, abs=1e-5)


def test_change_of_range_costs_time():
    bench = Bench(Light(1e-3))
    bench.power()
    bench.shine(1e-6)
    start = bench.clock.now()
    bench.power()
    assert bench.clock.now() - start == pytest.approx(SAMPLE_S + RANGE_CHANGE_S, abs=1e-5)


@pytest.mark.parametrize("power_w", [1e-9, 1e-8, 3e-7, 2e-6, 1e-4, 2e-3])
def test_automatic_range_keeps_the_signal_between_9_and_100_percent(power_w):
    bench = zeroed(Bench(Light(power_w)))
    reading = bench.power()
    assert reading == pytest.approx(power_w, rel=0.08)
    scale = float(bench.ask("POW:RANG?"))
    assert reading <= scale
    assert reading >= 0.085 * scale or scale == pytest.approx(50e-9 / 1.03)


def test_over_range_is_a_marker_and_a_status_bit_and_the_true_value_does_not_leak():
    bench = Bench(Light(1e-4))
    bench.ask("POW:RANG 1E-6")
    assert bench.power() == OVER
    assert bench.power("FETC?") == OVER
    assert bench.ask("STAT:QUES:COND?;EVEN?") == "8;8"
    bench.ask("POW:UNIT DBM")
    assert bench.power() == OVER
    bench.ask("POW:RANG:AUTO 1")
    assert bench.power() == pytest.approx(-10.0, abs=0.2)
    assert bench.ask("STAT:QUES:COND?") == "0"
    bench.shine(10e-3)
    assert bench.power() == OVER, "beyond the highest range"


def test_dark_reading_in_dbm_is_no_number_when_it_is_not_positive():
    """One count is 2.4 pW, -86 dBm; three standard deviations of a sample are 165 pW, -68 dBm."""
    bench = zeroed(Bench(Light(0.0)))
    bench.ask("POW:UNIT DBM")
    readings = [bench.power() for _ in range(50)]
    assert any(reading == NOT_A_NUMBER for reading in readings)
    assert all(reading == NOT_A_NUMBER or -88 < reading < -65 for reading in readings)


def test_reading_has_counts():
    """Full scale over 20 000: at 50 µA and 1.03 A/W, 2.43 nW."""
    bench = Bench(Light(2e-5))
    bench.ask("POW:RANG 4E-5")
    count = 50e-6 / 20_000 / 1.03
    assert bench.power() / count == pytest.approx(round(bench.power() / count), abs=1e-3)


def test_zeroing_in_the_dark_removes_the_offset():
    offsets = []
    for seed in range(12):
        bench = Bench(Light(0.0), seed=seed)
        bench.ask("AVER 1000")
        before = bench.power()
        zeroed(bench)
        offsets.append((before, bench.power()))
        assert bench.ask("SYST:ERR?") == '+0,"No error"'
        assert float(bench.ask("CORR:COLL:ZERO:MAGN?")) == pytest.approx(1.03 * before, abs=3e-11)
    before, after = np.sqrt(np.mean(np.square(offsets), axis=0))
    assert before > 40e-12
    assert after < 6e-12


@pytest.mark.parametrize("when", ["begin", "end"])
def test_zeroing_with_light_on_fails_and_keeps_the_old_zero(when):
    bench = Bench(Light(1e-6 if when == "begin" else 0.0))
    bench.ask("CORR:COLL:ZERO:INIT")
    assert bench.ask("CORR:COLL:ZERO:STAT?;:STAT:OPER:COND?") == "1;1"
    bench.shine(0.0 if when == "begin" else 1e-6)
    bench.clock.sleep(ZEROING_S)
    assert bench.ask("CORR:COLL:ZERO:STAT?") == "0"
    assert bench.host.errors() == [-200]
    assert float(bench.ask("CORR:COLL:ZERO:MAGN?")) == 0.0


def test_zeroing_holds_readings_back_and_can_be_given_up():
    bench = Bench(Light(0.0))
    bench.ask("CORR:COLL:ZERO")
    start = bench.clock.now()
    bench.power()
    assert bench.clock.now() - start > ZEROING_S
    bench.ask("CORR:COLL:ZERO;ZERO")
    assert bench.host.errors() == [-221]
    bench.ask("CORR:COLL:ZERO:ABOR")
    assert bench.ask("CORR:COLL:ZERO:STAT?;:STAT:OPER:COND?;*OPC?") == "0;0;1"


def test_pulse_energy_is_mean_power_over_repetition_rate():
    bench = Bench(Light(1e-3, 1064.0, 10.0), sensor=ES111C)
    assert bench.power("MEAS:ENER?") == pytest.approx(1e-4, rel=0.04)
    assert bench.power("MEAS:FREQ?") == 10.0
    assert bench.power("MEAS:VOLT?") == pytest.approx(100.0 * bench.power("MEAS:ENER?"), rel=0.03)
    bench.shine(1e-3, wavelength_nm=1064.0, repetition_hz=1.0)
    bench.ask("ENER:RANG 5E-4")
    assert bench.power("MEAS:ENER?") == pytest.approx(1e-3, rel=0.04)
    bench.ask("ENER:RANG MAX")
    assert float(bench.ask("ENER:RANG?")) == pytest.approx(0.15)


def test_another_sensor_draws_other_errors_and_the_same_seed_the_same():
    first, again, other = (Bench(seed=seed).power() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_scene_that_gives_no_number_is_an_internal_error(caplog):
    bench = Bench()
    bench.light = Light(math.nan)
    with pytest.raises(ValueError, match="nan"):
        Pm100Sensor(S154C, lambda: bench.light, np.random.default_rng(1), bench.clock.now)
