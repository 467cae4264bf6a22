"""The MPM-210H emulator: one-word commands, gains, runs, zeroing."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl
from lumion_hw.emulator.meters.santec_mpm import EmulatedSantecMpm
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.wires.device import EmulatedDevice
from lumion_hw.errors import ConfigError


class Bench:
    """A meter whose light is a function of module, port and time."""

    def __init__(self, **options) -> None:
        self.clock = VirtualClock()
        self.light = lambda module, port, at_s: Light(1e-5 * port)
        self.meter = EmulatedSantecMpm("pm0", self.clock, np.random.default_rng(4), self._light, **options)
        self.peer = self.meter.connect()

    def _light(self, module: int, port: int, at_s: float) -> Light:
        return self.light(module, port, at_s)

    def raw(self, line: str) -> bytes:
        self.peer.receive(line.encode("latin-1") + b"\r\n")
        reply = self.peer.transmit()
        while not reply and (event := self.peer.next_event()) is not None:
            self.clock.sleep(max(event - self.clock.now(), 1e-6))
            reply = self.peer.transmit()
        return reply

    def ask(self, line: str) -> str:
        return self.raw(line).decode().removesuffix("\r\n")

    def error(self) -> int:
        return int(self.ask("ERR?").split(",")[0])

    def logged(self, module: int, port: int) -> np.ndarray:
        raw = self.raw(f"LOGG? {module},{port}")
        digits = int(raw[1:2])
        length = int(raw[2 : 2 + digits])
        assert raw[2 + digits + length :] == b"\r\n"
        return np.frombuffer(raw[2 + digits : 2 + digits + length], "<f4")


@pytest.fixture
def bench():
    return Bench()


def test_identity_and_modules():
    bench = Bench(modules=(0, 3))
    device: EmulatedDevice = bench.meter
    assert device.name == "pm0"
    assert bench.ask("*IDN?") == "SANTEC,MPM-210H,00000001,Ver. 2.00"
    assert bench.ask("IDIS?") == "1,0,0,1,0"
    assert bench.ask("MMVER? 3") == "Santec,MPM-211,00000003M211,Ver1.11"
    assert bench.ask("MMVER? 1") == ""
    assert bench.error() == -301
    with pytest.raises(ConfigError):
        Bench(modules=(5,))


def test_addresses_are_the_makers_and_are_kept(bench):
    assert [bench.ask(f"{word}?") for word in ("ADDR", "GW", "SUBNET", "IP")] == [
        "16",
        "192.168.1.254",
        "255.255.255.0",
        "192.168.1.161",
    ]
    for line in ("ADDR 7", "IP 10.0.0.255"):
        bench.raw(line)
    assert (bench.ask("ADDR?"), bench.ask("IP?")) == ("7", "10.0.0.255")
    for line, code in (("ADDR 32", -222), ("IP 1.2.3.256", -222), ("GW 1.2.3", -104), ("IP 1.2.3.x", -104)):
        bench.raw(line)
        assert bench.error() == code, line
    assert (bench.ask("ADDR?"), bench.ask("GW?")) == ("7", "192.168.1.254")


def test_lines_end_in_cr_lf_or_lf_and_may_come_in_pieces(bench):
    assert bench.raw("*IDN?").endswith(b"\r\n")
    bench.peer.receive(b"*ID")
    bench.peer.receive(b"N?\n")
    assert bench.peer.transmit().startswith(b"SANTEC")
    bench.peer.receive(b"UNIT?\r\nWMOD?\r\n")
    assert bench.peer.transmit() == b"0\r\nCONST1\r\n"


def test_four_ports_are_read_in_dbm_or_milliwatts(bench):
    values = [float(field) for field in bench.ask("READ? 0").split(",")]
    assert values == pytest.approx([-20.0, -16.99, -15.23, -13.98], abs=0.2)
    bench.ask("UNIT 1")
    values = [float(field) for field in bench.ask("READ? 0").split(",")]
    assert values == pytest.approx([0.01, 0.02, 0.03, 0.04], rel=0.04)


def test_reading_takes_its_averaging_time(bench):
    bench.ask("READ? 0")
    bench.ask("AVG 500")
    start = bench.clock.now()
    bench.ask("READ? 0")
    assert bench.clock.now() - start == pytest.approx(0.5, abs=1e-4)
    assert bench.ask("AVG?") == "500"


def test_noise_falls_with_the_averaging_time(bench):
    """0.2 pW at 1 s: 6.3 pW at 1 ms, 0.63 pW at 100 ms; the port's own offset stays."""
    bench.light = lambda module, port, at_s: Light(0.0)
    bench.ask("UNIT 1")
    spread = []
    for averaging_ms in (1, 100):
        bench.ask(f"AVG {averaging_ms}")
        spread.append(np.std([float(bench.ask("READ? 0").split(",")[0]) * 1e-3 for _ in range(300)]))
    assert spread == pytest.approx([6.3e-12, 0.63e-12], rel=0.2)


def test_wavelength_of_all_or_one_port(bench):
    bench.light = lambda module, port, at_s: Light(1e-5, 1310.0)
    bench.ask("UNIT 1")
    wrong = float(bench.ask("READ? 0").split(",")[1])
    bench.ask("DWAV 0,2,1310")
    assert bench.ask("DWAV? 0,2") == "1310"
    assert bench.ask("DWAV? 0,1") == "1550"
    assert float(bench.ask("READ? 0").split(",")[1]) == pytest.approx(1e-2, rel=0.04)
    assert abs(wrong / 1e-2 - 1) > 0.08
    bench.ask("WAV 1600")
    assert bench.ask("WAV?") == "1600"
    bench.ask("WAV 1700")
    assert bench.error() == -222


def test_gain_counts_when_automatic_ranging_is_off_and_above_its_range_is_a_marker(bench):
    bench.ask("UNIT 1")
    bench.ask("LEV 4")
    assert bench.ask("LEV?;") == ""
    assert bench.error() == -103
    assert (bench.ask("LEV?"), bench.ask("AUTO?")) == ("4", "1")
    assert float(bench.ask("READ? 0").split(",")[3]) == pytest.approx(0.04, rel=0.04), "automatic"
    bench.ask("AUTO 0")
    values = bench.ask("READ? 0").split(",")
    assert float(values[0]) == pytest.approx(0.01, rel=0.04)
    assert float(values[3]) == 9.9e37, "40 µW above 20 µW"
    bench.ask("DLEV 0,4,3")
    assert (bench.ask("DLEV? 0,4"), bench.ask("DLEV? 0,1")) == ("3", "4")
    assert float(bench.ask("READ? 0").split(",")[3]) == pytest.approx(0.04, rel=0.04)
    bench.ask("DAUTO 5,1")
    assert bench.ask("DAUTO? 0") == "1"


def test_run_uses_the_gain_unless_its_mode_has_automatic_gain(bench):
    logged = {}
    for mode in ("CONST1", "CONST2"):
        for line in ("UNIT 1", "LEV 4", f"WMOD {mode}", "TRIG 0", "LOGN 5", "MEAS"):
            bench.ask(line)
        bench.clock.sleep(1.0)
        logged[mode] = bench.logged(0, 4)
    assert (logged["CONST1"] > 1e37).all()
    assert logged["CONST2"] == pytest.approx(0.04, rel=0.04)


def test_reading_ends_a_run(bench):
    for line in ("TRIG 0", "LOGN 100", "MEAS"):
        bench.ask(line)
    bench.clock.sleep(0.1)
    assert bench.ask("READ? 0").count(",") == 3
    assert bench.ask("STAT?").split(",")[0] == "-1"


def test_defaults_are_those_of_the_makers_list(bench):
    asked = ("AVG?", "WAV?", "LEV?", "AUTO?", "UNIT?", "WMOD?", "TRIG?", "LOGN?", "WSET?", "SPE?")
    assert [bench.ask(line) for line in asked] == [
        "5",
        "1550",
        "5",
        "1",
        "0",
        "CONST1",
        "1",
        "1",
        "1250,1630,0.005",
        "1",
    ]


def test_the_second_averaging_time_is_kept_and_an_echo_accepted(bench):
    assert bench.ask("FGSAVG?") == "5"
    for line in ("FGSAVG 0.25", "ECHO 1"):
        bench.ask(line)
    assert (bench.ask("FGSAVG?"), bench.ask("AVG?")) == ("0.25", "5")
    assert bench.ask("ERR?").startswith("0,")
    for line in ("FGSAVG 0.001", "FGSAVG 10001", "ECHO 2"):
        bench.ask(line)
        assert bench.ask("ERR?").startswith("-222,")
    assert bench.ask("FGSAVG?") == "0.25"


def test_what_has_no_logarithm_is_a_marker(bench):
    bench.light = lambda module, port, at_s: Light(0.0)
    bench.ask("ZERO")
    bench.ask("AUTO 0")
    values = [float(field) for _ in range(30) for field in bench.ask("READ? 0").split(",")]
    assert any(value == -9.9e37 for value in values)
    assert all(value == -9.9e37 or value < -70 for value in values)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("FOO", -113),
        ("READ?", -108),
        ("READ? 0,1", -108),
        ("READ? x", -104),
        ("READ? 4", -301),
        ("READ? 7", -222),
        ("DWAV? 0,9", -222),
        ("AVG 0", -222),
        ("AVG 1_0", -104),
        ("AVG nan", -104),
        ("WAV 1#55", -101),
        ("UNIT\x07 1", -101),
        ("WMOD CONST9", -222),
        ("WSET 1550,1549,0.1", -222),
        ("AVERYLONGCOMMAND", -110),
        ("AVG 1.0000000000000000000000", -109),
        ("LOGG? 0,1", -221),
        ("X" * 300, -101),
        ("VMOD CONST1", -113),
        ("GR?", -113),
    ],
)
def test_refusals(bench, line, code):
    assert bench.ask(line) == ""
    assert bench.error() == code
    assert bench.ask("ERR?") == "0,No Error"


def test_run_at_constant_wavelength_by_the_internal_clock(bench):
    """One trigger every 10 ms; the 51st sample of 1 ms ends 501 ms after the start."""
    bench.light = lambda module, port, at_s: Light(1e-5 * (1 + at_s))
    for line in ("TRIG 0", "LOGN 100", "UNIT 1", "LEV 2", "AVG 1", "MEAS"):
        bench.ask(line)
    assert bench.ask("STAT?") == "0,0"
    bench.clock.sleep(0.501)
    assert bench.ask("STAT?") == "0,51"
    bench.ask("AVG 5")
    assert bench.error() == -221
    bench.clock.sleep(0.5)
    assert bench.ask("STAT?") == "1,100"
    values = bench.logged(0, 1)
    assert len(values) == 100
    assert values[99] / values[0] == pytest.approx(1.99, rel=2e-3)


def test_samples_longer_than_the_internal_clock_miss_pulses(bench):
    """At 25 ms, the pulses 10 and 20 ms later arrive during the sample; the pulse after 30 ms starts the next one."""
    for line in ("TRIG 0", "LOGN 3", "LEV 1", "AVG 25", "MEAS"):
        bench.ask(line)
    bench.clock.sleep(0.084)
    assert bench.ask("STAT?") == "0,2"
    bench.clock.sleep(0.002)
    assert bench.ask("STAT?") == "1,3"


def test_run_can_be_stopped(bench):
    for line in ("TRIG 0", "LOGN 100", "LEV 1", "MEAS"):
        bench.ask(line)
    bench.clock.sleep(0.3)
    bench.ask("STOP")
    state, count = bench.ask("STAT?").split(",")
    assert state == "-1"
    assert 29 <= int(count) <= 31
    assert bench.logged(0, 4) == pytest.approx(-13.98, abs=0.2)


def test_external_triggers_give_one_sample_each(bench):
    for line in ("TRIG 1", "LOGN 3", "MEAS"):
        bench.ask(line)
    bench.meter.hardware_trigger([1.0, 2.0])
    bench.clock.sleep(60.0)
    assert bench.ask("STAT?") == "0,2"
    bench.meter.hardware_trigger([50.0])
    assert bench.ask("STAT?") == "1,3"


@pytest.mark.parametrize("word", ["FREERUN", "FREE-RUN"])
def test_first_trigger_starts_a_free_run(bench, word):
    for line in (f"WMOD {word}", "LOGN 50", "AVG 2", "MEAS"):
        bench.ask(line)
    assert bench.ask("WMOD?") == word
    assert bench.ask("ERR?").startswith("0,")
    bench.clock.sleep(10.0)
    assert bench.ask("STAT?") == "0,0"
    bench.meter.hardware_trigger([10.0])
    bench.clock.sleep(0.1)
    assert bench.ask("STAT?") == "1,50"


def test_swept_run_reckons_each_sample_with_its_wavelength(bench):
    """A TSL swept from 1500 to 1600 nm; flat light reads flat, at any wavelength."""
    laser = EmulatedSantecTsl("laser0", bench.clock, np.random.default_rng(2), on_triggers=bench.meter.hardware_trigger)
    bench.light = lambda module, port, at_s: Light(1e-4, laser.light_at(at_s).wavelength_nm)
    for line in ("WMOD SWEEP1", "WSET 1500,1600,0.1", "SPE 50", "LEV 2", "UNIT 1"):
        bench.ask(line)
    assert bench.ask("LOGN?") == "1001"
    bench.ask("MEAS")
    host = laser.connect()
    host.receive(b"TRIG:OUTP 3;OUTP:STEP 0.1;:WAV:SWE:STAR 1500;STOP 1600;SPE 50;MOD 1;:WAV:SWE 1\r")
    for _ in range(40):
        bench.clock.sleep(0.1)
        laser.advance()
        bench.meter.advance()
    assert bench.ask("STAT?") == "1,1001"
    values = bench.logged(0, 1)
    assert values.max() / values.min() == pytest.approx(1.0, abs=2e-3)


def test_zeroing_takes_three_seconds_and_needs_darkness(bench):
    bench.light = lambda module, port, at_s: Light(0.0)
    bench.ask("ZERO")
    start = bench.clock.now()
    bench.ask("READ? 0")
    assert bench.clock.now() - start >= 3.0
    assert bench.error() == 0
    bench.light = lambda module, port, at_s: Light(1e-6)
    bench.ask("ZERO")
    bench.ask("ZERO")
    assert bench.error() == -221
    bench.clock.sleep(3.0)
    assert bench.error() == -300


def test_calibration_tables(bench):
    assert [bench.ask(f"CWAV? 0,{index}") for index in (1, 2, 20)] == ["1250", "1270", "1630"]
    assert abs(float(bench.ask("CWAVPO? 0,1,10"))) < 1.5
    bench.ask("CWAV? 0,21")
    assert bench.error() == -222


def test_scene_that_gives_no_number_is_reported_and_the_meter_lives_on(bench, caplog):
    bench.light = lambda module, port, at_s: Light(float("nan"))
    assert bench.ask("READ? 0") == ""
    assert bench.error() == -300
    bench.ask("TRIG 0")
    bench.ask("MEAS")
    bench.clock.sleep(1.0)
    bench.light = lambda module, port, at_s: Light(1e-5)
    assert bench.ask("*IDN?").startswith("SANTEC")
    assert caplog.text


@pytest.mark.parametrize("seed", range(3))
def test_noise_on_the_wire_leaves_it_alive(bench, seed):
    rng = np.random.default_rng(seed)
    for _ in range(500):
        bench.peer.receive(rng.bytes(int(rng.integers(1, 60))))
        bench.peer.transmit()
    bench.peer.receive(b"\r\n")
    bench.peer.transmit()
    assert bench.ask("*IDN?").startswith("SANTEC")
