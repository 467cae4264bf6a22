"""The N77xx emulator's readings as physics."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.meters import photodiode_head as physics
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.meters.photodiode_head import EmulatedHead
from tests.emulator.scpi.scpi_testbench import Host

MARKER = "+3.40282347E+038"


@pytest.fixture
def clock():
    return VirtualClock()


class Scene:
    """Light on eight ports, with one power and one wavelength for all of them."""

    def __init__(self, power_w: float = 1e-3, wavelength_nm: float = 1550.0) -> None:
        self.power_w = power_w
        self.wavelength_nm = wavelength_nm


def bench(clock, scene, seed=3, **options) -> Host:
    device = EmulatedKeysightN77xx(
        "pm0",
        clock,
        np.random.default_rng(seed),
        lambda _: scene.power_w,
        light_wavelength_nm=lambda _: scene.wavelength_nm,
        **options,
    )
    host = Host(device)
    host.device = device
    for port in range(1, 9):
        host.ask(f"SENS{port}:POW:UNIT 1")
    host.ask("*CLS")
    return host


def read(host: Host, clock: VirtualClock, line: str = "READ1:POW?") -> str:
    reply = host.ask(line)
    while reply is None:
        clock.sleep(max(host.peer.next_event() - clock.now(), 1e-6))
        reply = host.peer.transmit().decode().removesuffix("\n") or None
    return reply


def zero(host: Host, clock: VirtualClock, scene: Scene) -> None:
    power_w, scene.power_w = scene.power_w, 0.0
    assert read(host, clock, "SENS1:CORR:COLL:ZERO:ALL;*WAI;*OPC?") == "1"
    scene.power_w = power_w


def offset(host: Host, clock: VirtualClock) -> float:
    """Return the rms over the ports of the mean dark reading (drawn with 20 pW; averaging leaves 1 pW of noise)."""
    means = [np.mean([float(read(host, clock, f"READ{port}:POW?")) for _ in range(10)]) for port in range(1, 9)]
    return float(np.sqrt(np.mean(np.square(means))))


# -- time


@pytest.mark.parametrize("averaging_s", [1e-3, 0.1, 5.0])
def test_reading_takes_its_averaging_time(clock, averaging_s):
    host = bench(clock, Scene())
    read(host, clock)
    host.ask(f"SENS1:POW:ATIM {averaging_s}")
    start = clock.now()
    read(host, clock)
    assert averaging_s - 1e-9 <= clock.now() - start <= averaging_s + 1e-5


def test_all_ports_take_the_longest_averaging_time(clock):
    host = bench(clock, Scene())
    host.ask("SENS3:POW:ATIM 2")
    host.raw(b"READ:POW:ALL?\n")
    assert host.peer.next_event() - clock.now() == pytest.approx(2.0, abs=0.01)


def test_reading_averages_over_its_time(clock):
    scene = Scene(1e-3)
    host = bench(clock, scene)
    steady = float(read(host, clock))
    host.raw(b"READ1:POW?\n")
    scene.power_w = 0.5e-3
    clock.sleep(0.1)
    assert float(host.peer.transmit()) == pytest.approx(0.75 * steady, rel=1e-3)


def test_range_change_costs_time(clock):
    scene = Scene(1e-3)
    host = bench(clock, scene)
    read(host, clock)
    scene.power_w = 1e-6
    start = clock.now()
    read(host, clock)
    assert clock.now() - start == pytest.approx(0.1 + physics.RANGE_CHANGE_S, abs=1e-5)


def test_fetch_replies_at_once_with_the_last_value_and_never_an_error(clock):
    scene = Scene(1e-3)
    host = bench(clock, scene)
    host.ask("INIT1:CONT 0")
    value = read(host, clock)
    scene.power_w = 0.1e-3
    clock.sleep(10.0)
    assert host.ask("FETC1:POW?") == value
    scene.power_w = 0.0
    host.ask("SENS1:POW:UNIT 0")
    for _ in range(20):
        read(host, clock)
        host.errors()
        host.ask("FETC1:POW?")
        assert host.errors() == []


def test_fetch_of_a_continuous_head_follows_the_light_after_an_averaging_time(clock):
    scene = Scene(1e-3)
    host = bench(clock, scene)
    clock.sleep(1.0)
    first = host.ask("FETC1:POW?")
    scene.power_w = 0.1e-3
    assert host.ask("FETC1:POW?") == first
    clock.sleep(0.1)
    assert float(host.ask("FETC1:POW?")) == pytest.approx(0.1 * float(first), rel=5e-3)


def test_initiate_is_an_operation_of_one_averaging_time(clock):
    host = bench(clock, Scene())
    host.ask("INIT2")
    assert host.errors() == [-213]
    host.ask("*CLS;:INIT2:CONT 0;:SENS2:POW:ATIM 1;:INIT2:IMM;*OPC")
    assert host.ask("STAT:OPER:COND?;:STAT:OPER?;*ESR?") == "+4;+4;0"
    host.ask("INIT2")
    assert host.errors() == [-213]
    clock.sleep(1.1)
    assert host.ask("STAT:OPER:COND?") == "+0"
    assert int(host.ask("*ESR?")) & 1
    assert float(host.ask("FETC2:POW?")) == pytest.approx(1e-3, rel=0.04)


# -- noise, zero and dark


def test_noise_falls_with_the_root_of_the_averaging_time(clock):
    """Dark readings in the lowest range: 1 pW at 1 s, 10 pW at 10 ms (the resolution is 0.01 pW)."""
    scene = Scene(0.0)
    host = bench(clock, scene)
    spread = {}
    for averaging_s in (1.0, 0.01):
        host.ask(f"SENS1:POW:ATIM {averaging_s}")
        spread[averaging_s] = np.std([float(read(host, clock)) for _ in range(400)])
    assert spread[1.0] == pytest.approx(1e-12, rel=0.2)
    assert spread[0.01] == pytest.approx(10e-12, rel=0.2)


def test_zeroing_in_the_dark_removes_the_offset(clock):
    scene = Scene(0.0)
    host = bench(clock, scene)
    before, _ = offset(host, clock), zero(host, clock, scene)
    assert before > 8e-12
    assert offset(host, clock) < 2e-12
    assert read(host, clock, "SENS1:CORR:COLL:ZERO?") == "+0"
    assert host.errors() == []


def test_zeroing_takes_time_and_holds_readings_back(clock):
    host = bench(clock, Scene(0.0))
    host.ask("SENS1:CORR:COLL:ZERO")
    assert host.ask("STAT:OPER:COND?") == "+2"
    host.raw(b"READ1:POW?\n")
    assert host.peer.next_event() >= physics.ZEROING_S + 0.1
    other = Host(host.device)
    other.ask("SENS1:CORR:COLL:ZERO:ALL")
    assert other.errors() == [-221]
    other.ask("*RST")
    assert other.ask("STAT:OPER:COND?") == "+0"


@pytest.mark.parametrize("when", ["begin", "end"])
def test_zeroing_with_light_on_fails_and_keeps_the_old_zero(clock, when):
    scene = Scene(1e-6 if when == "begin" else 0.0)
    host = bench(clock, scene)
    host.ask("SENS1:CORR:COLL:ZERO:ALL")
    scene.power_w = 0.0 if when == "begin" else 1e-6
    assert read(host, clock, "SENS1:CORR:COLL:ZERO?") == "-200"
    assert host.errors() == [-200]
    scene.power_w = 0.0
    assert offset(host, clock) > 8e-12


def test_dark_in_dbm_is_an_error_and_the_marker_never_a_number(clock):
    scene = Scene(0.0)
    host = bench(clock, scene)
    zero(host, clock, scene)
    host.ask("SENS1:POW:UNIT 0;ATIM 0.1")
    replies = [read(host, clock) for _ in range(40)]
    dark = replies.count(MARKER)
    assert 5 < dark < 35
    assert all(float(reply) < -75 for reply in replies if reply != MARKER)
    assert host.errors() == [-261] * min(dark, 29) + [-350] * (dark > 29)
    assert int(host.ask("*ESR?")) & 16


def test_dark_port_in_a_block_is_the_float32_maximum_with_one_error(clock):
    scene = Scene(0.0)
    host = bench(clock, scene)
    host.ask("SENS1:POW:UNIT 0")
    values = []
    while not any(value > 1e38 for value in values):
        host.errors()
        raw = host.raw(b"READ:POW:ALL?\n")
        while not raw:
            clock.sleep(0.01)
            raw = host.peer.transmit()
        values = np.frombuffer(raw[4:-1], "<f4")
        scene.power_w = -1e-9
    assert values[0] == np.float32(3.4028235e38)
    assert (np.abs(values[1:]) < 1e-8).all()
    assert host.errors() == [-231]
    assert host.ask("STAT:QUES:COND?") == "+2"


# -- range


def test_overflow_lies_3_01_db_above_the_range(clock):
    scene = Scene()
    host = bench(clock, scene)
    host.ask("SENS1:POW:RANG -20")
    scene.power_w = 1e-5
    gain = float(read(host, clock)) / 1e-5
    scene.power_w = 1.99e-5 / gain
    assert float(read(host, clock)) == pytest.approx(1.99e-5, rel=1e-3)
    scene.power_w = 2.01e-5 / gain
    assert read(host, clock) == MARKER
    assert host.ask("STAT:QUES:COND?") == "+2"
    host.ask("SENS1:POW:UNIT 0")
    assert read(host, clock) == MARKER
    assert 10 * math.log10(1.9999) == pytest.approx(3.01, abs=0.001)
    assert host.errors() == []


def test_highest_range_ends_at_its_nominal_value(clock):
    scene = Scene(9.5e-3)
    host = bench(clock, scene)
    assert float(read(host, clock)) == pytest.approx(9.5e-3, rel=0.04)
    scene.power_w = 10.5e-3
    assert read(host, clock) == MARKER


@pytest.mark.parametrize("power_w", [5e-3, 1.2e-3, 3e-5, 4e-7, 6e-9, 1.9e-9, 1e-10])
def test_automatic_ranging_keeps_the_reading_between_9_and_100_percent(clock, power_w):
    host = bench(clock, Scene(power_w))
    value = float(read(host, clock))
    range_dbm = float(host.ask("SENS1:POW:RANG?"))
    full_scale = 1.9999e-3 * 10 ** (range_dbm / 10)
    assert 0.09 * full_scale <= value * 1.01
    assert value <= full_scale


def test_automatic_ranging_stays_where_it_is_while_the_reading_fits(clock):
    """180 uW fits the -10 dBm range (199.99 uW) and is 9 % of the 0 dBm range; 190 uW keeps either range."""
    scene = Scene(1e-3)
    host = bench(clock, scene)
    read(host, clock)
    scene.power_w = 190e-6
    read(host, clock)
    from_above = host.ask("SENS1:POW:RANG?")
    scene.power_w = 100e-6
    read(host, clock)
    scene.power_w = 190e-6
    read(host, clock)
    assert (from_above, host.ask("SENS1:POW:RANG?")) == ("+0.00000000E+000", "-1.00000000E+001")


def test_new_wavelength_restarts_automatic_ranging(clock):
    """Autoranging starts at the top and goes down with each measurement: at once in continuous measurement."""
    host = bench(clock, Scene(1e-7))
    host.ask("INIT1:CONT 0")
    read(host, clock)
    assert host.ask("SENS1:POW:RANG?") == "-4.00000000E+001"
    host.ask("SENS1:POW:WAV 1540NM")
    assert host.ask("SENS1:POW:RANG?") == "+1.00000000E+001"
    host.ask("INIT1:CONT 1")
    assert host.ask("SENS1:POW:RANG?") == "-4.00000000E+001"


def test_resolution_is_full_scale_over_20000(clock):
    """1.9999 mW / 20000 = 99.995 nW per count in the 0 dBm range."""
    scene = Scene(1e-3)
    host = bench(clock, scene)
    host.ask("SENS1:POW:RANG 0")
    for scene.power_w in np.linspace(0.2e-3, 1.5e-3, 20):
        counts = float(read(host, clock)) / 99.995e-9
        assert counts == pytest.approx(round(counts), abs=0.01)


# -- gain


def test_absolute_error_is_one_fixed_factor_per_head(clock):
    scene = Scene(1e-3)
    host = bench(clock, scene)
    gains = [float(read(host, clock, f"READ{port}:POW?")) / 1e-3 for port in range(1, 9)]
    assert np.std(gains) > 0.003
    assert all(abs(gain - 1) < 0.025 + 0.005 for gain in gains)
    again = [float(read(host, clock, f"READ{port}:POW?")) / 1e-3 for port in range(1, 9)]
    assert again == pytest.approx(gains, rel=2e-4)


def test_wrong_wavelength_is_a_gain_error(clock):
    """Typical InGaAs: 1.02 A/W at 1550 nm and 0.89 A/W at 1300 nm, with a small slope per head."""
    scene = Scene(1e-3, wavelength_nm=1550.0)
    host = bench(clock, scene)
    right = float(read(host, clock))
    host.ask("SENS1:POW:WAV 1300NM")
    assert float(read(host, clock)) / right == pytest.approx(1.02 / 0.89, rel=0.05)
    scene.wavelength_nm = 1300.0
    assert float(read(host, clock)) == pytest.approx(right, rel=5e-4)


def test_calibration_offset_is_added_in_db(clock):
    host = bench(clock, Scene(1e-4))
    before = float(read(host, clock))
    host.ask("SENS1:CORR 3DB")
    assert float(read(host, clock)) / before == pytest.approx(10**0.3, rel=1e-3)


def test_same_seed_gives_the_same_readings_and_ports_do_not_disturb_each_other(clock):
    scene = Scene(1e-6)
    first, second = bench(clock, scene, seed=11), bench(VirtualClock(), scene, seed=11)
    second_clock = second.device._clock
    expected = [read(first, clock) for _ in range(5)]
    measured = []
    for _ in range(5):
        read(second, second_clock, "READ2:POW?")
        measured.append(read(second, second_clock))
    assert [float(value) for value in measured] == pytest.approx([float(value) for value in expected], rel=1e-4)
    other = bench(VirtualClock(), scene, seed=12)
    assert read(other, other.device._clock) != expected[0]


def test_light_that_is_no_number_is_an_internal_error_not_a_reading(clock, caplog):
    host = bench(clock, Scene(math.nan))
    assert host.ask("READ1:POW?") is None
    assert host.errors() == [-310]
    assert "no valid power" in caplog.text


def test_head_full_scales_are_the_published_ones():
    published = {10: 19.999e-3, 0: 1.9999e-3, -10: 199.99e-6, -20: 19.999e-6, -50: 19.999e-9, -70: 199.99e-12}
    for range_dbm, full_scale in published.items():
        assert physics.full_scale_w(range_dbm) == pytest.approx(full_scale, rel=1e-12)
    assert physics.overflow_w(10) == pytest.approx(10e-3)


def test_head_drifts_slowly_around_its_zero():
    now = [0.0]
    head = EmulatedHead(lambda: 0.0, lambda: 1.55e-6, np.random.default_rng(5), lambda: now[0])
    head.settings.averaging_s = 10.0
    values = []
    for now[0] in np.linspace(0, physics.ZERO_DRIFT_PERIOD_S, 200):
        values.append(head.complete(head.expose()).power_w)
    assert 2e-12 < max(values) - min(values) < 8e-12
