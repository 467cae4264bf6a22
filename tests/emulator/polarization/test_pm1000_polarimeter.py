"""The emulated Novoptel PM1000: requests, registers and physics according to the PM1000 User's Guide 0.4.8."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.polarization.novoptel_pm1000 import Pm1000
from lumion_hw.errors import ConfigError, ConnectError

STATE = np.array([0.6, 0.0, 0.8])


class Bench:
    """A polarimeter in 100 µW of fully polarized light, and a host on one of its interfaces."""

    def __init__(self, link: str = "lan", seed: int = 1) -> None:
        self.clock = VirtualClock()
        self.stokes_w = 1e-4 * np.append(1.0, STATE)
        self.device = Pm1000("pol0", self.clock, np.random.default_rng(seed), lambda: self.stokes_w, link=link)
        self.peer = self.device.connect()

    def read(self, number: int) -> int:
        """Read register 512 + number over the LAN interface."""
        self.peer.receive(b"\x52" + (512 + number).to_bytes(2, "big"))
        reply = self.peer.transmit()
        assert len(reply) == 2
        return int.from_bytes(reply, "big")

    def write(self, number: int, value: int) -> None:
        self.peer.receive(b"\x57" + (512 + number).to_bytes(2, "big") + value.to_bytes(2, "big"))
        assert self.peer.transmit() == b""

    def latched(self) -> np.ndarray:
        """Return the unit vector from the latched copies."""
        self.read(24)
        return np.array([(self.read(28 + axis) - 2**15) / 2**15 for axis in range(3)])

    def usb(self, line: bytes) -> bytes:
        self.peer.receive(line)
        output = b""
        while (event := self.peer.next_event()) is not None:
            self.clock.sleep(max(event - self.clock.now(), 1e-9))
            output += self.peer.transmit()
        return output


@pytest.fixture
def bench() -> Bench:
    return Bench()


# Wires ---------------------------------------------------------------------------------------------------------------


def test_check_vectors_of_the_lan_link(bench):
    bench.peer.receive(bytes.fromhex("57 02 01 00 0A"))
    assert bench.peer.transmit() == b"", "a write is not acknowledged"
    bench.peer.receive(bytes.fromhex("52 02 01"))
    assert bench.peer.transmit() == bytes.fromhex("00 0A")
    bench.peer.receive(bytes.fromhex("52 02 0A"))
    assert 90 <= int.from_bytes(bench.peer.transmit(), "big") <= 110, "S0 in µW"


def test_check_vectors_of_the_usb_link():
    bench = Bench("usb")
    assert bench.usb(b"W201000A\r") == b""
    assert bench.usb(b"R2010000\r") == b"000A\r"
    assert 90 <= int(bench.usb(b"R20A0000\r"), 16) <= 110


def test_requests_may_come_in_pieces_and_together(bench):
    for byte in bytes.fromhex("57 02 01 00 0C 52 02 01"):
        bench.peer.receive(bytes([byte]))
    assert bench.peer.transmit() == b"\x00\x0c"
    bench.peer.receive(bytes.fromhex("52 02 01 52 02 80"))
    assert bench.peer.transmit() == b"\x00\x0c\x10\x15"


def test_noise_between_requests_is_skipped(bench):
    bench.peer.receive(b"\x00hello\xff\r\n" + bytes.fromhex("52 02 01"))
    assert bench.peer.transmit() == b"\x00\x0a"
    usb = Bench("usb")
    assert usb.usb(b"nonsense\rR20100\rR2010000\r") == b"000A\r"


def test_usb_bytes_take_the_time_of_the_line():
    """Nine characters to the device and five back, ten bits each at 230 400 baud: 0.6 ms."""
    bench = Bench("usb")
    bench.usb(b"R2010000\r")
    assert bench.clock.now() >= 14 * 10 / 230_400


def test_every_host_has_its_own_buffer(bench):
    other = bench.device.connect()
    bench.peer.receive(b"\x52\x02")
    other.receive(bytes.fromhex("52 02 01"))
    bench.peer.receive(b"\x01")
    assert (bench.peer.transmit(), other.transmit()) == (b"\x00\x0a", b"\x00\x0a")


# Registers -----------------------------------------------------------------------------------------------------------


def test_identity_is_in_registers(bench):
    text = b"".join(bench.read(144 + place).to_bytes(2, "big") for place in range(16))
    assert text.rstrip(b"\0").startswith(b"PM1000")
    assert bench.read(128) == 0x1015
    assert bench.read(133) == 1
    assert bench.read(134) == 2511, "+4 dBm in µW"


@pytest.mark.parametrize("number", [2, 9, 20 + 23, 47, 72, 84, 104, 127, 160, 200])
def test_reserved_registers_read_0_and_ignore_writes(bench, number):
    bench.write(number, 0x1234)
    assert bench.read(number) == 0
    assert bench.device.read(5) == 0, "below the first address there is nothing"


def test_values_outside_a_register_are_ignored(bench):
    for number, value in ((1, 21), (46, 3), (69, 1), (134, 7), (133, 9)):
        before = bench.read(number)
        bench.write(number, value)
        assert bench.read(number) == before
    assert bench.read(67) <= bench.read(70) <= bench.read(69) <= bench.read(71) <= bench.read(68)
    bench.write(69, 19_310)
    assert bench.read(69) == 19_310


def test_power_is_integer_and_fraction_of_the_same_instant(bench):
    bench.write(1, 0)
    seen = set()
    for _ in range(50):
        integer = bench.read(10)
        bench.clock.sleep(1.0)
        bench.read(25)  # another measurement in between
        seen.add(integer + bench.read(11) / 65536)
    assert np.mean(list(seen)) == pytest.approx(100.0, rel=0.06)
    assert len(seen) > 40, "the fraction is there"


def test_latched_vector_belongs_to_one_instant_and_the_live_one_is_torn(bench):
    """The light rotates by half a turn about S2 between the first component and the last."""
    bench.read(24)
    live = [(bench.read(25) - 2**15) / 2**15]
    bench.stokes_w = bench.stokes_w * [1, -1, 1, -1]
    bench.clock.sleep(1.0)
    live += [(bench.read(number) - 2**15) / 2**15 for number in (26, 27)]
    latched = [(bench.read(number) - 2**15) / 2**15 for number in (28, 29, 30)]
    assert latched == pytest.approx(STATE, abs=0.02)
    assert live == pytest.approx([0.6, 0.0, -0.8], abs=0.02)


def test_three_ways_to_normalise(bench):
    """With half of the light unpolarized: unit length, divided by power, and in units of the reference power."""
    bench.stokes_w = 1e-4 * np.append(1.0, 0.5 * STATE)
    bench.write(38, 200)
    assert bench.read(24) / 2**15 == pytest.approx(0.5, abs=0.01)
    assert bench.latched() == pytest.approx(STATE, abs=0.02)
    bench.read(31)
    exact = np.array([(bench.read(35 + axis) - 2**15) / 2**15 for axis in range(3)])
    assert exact == pytest.approx(0.5 * STATE, abs=0.01)
    relative = np.array([(bench.read(39 + axis) - 2**15) / 2**15 for axis in range(3)])
    assert relative == pytest.approx(0.25 * STATE, abs=0.02)


def test_stokes_parameters_in_microwatts_have_an_offset(bench):
    bench.read(10)
    latched = [bench.read(18 + 2 * axis) - 2**15 + bench.read(19 + 2 * axis) / 65536 for axis in range(3)]
    live = [bench.read(12 + 2 * axis) - 2**15 + bench.read(13 + 2 * axis) / 65536 for axis in range(3)]
    assert latched == pytest.approx(100 * STATE, abs=7)
    assert live == pytest.approx(latched, abs=1e-3)


def test_sign_of_s3_can_be_turned(bench):
    before = bench.latched()
    bench.write(45, 1)
    bench.clock.sleep(1.0)
    assert bench.latched() == pytest.approx(before * [1, 1, -1], abs=1e-3)


# Physics -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_errors_are_within_the_figures(seed):
    """Power ±0.25 dB, degree of polarization ±1 %, states below 0.01 rad."""
    bench = Bench(seed=seed)
    bench.write(1, 20)
    power = (bench.read(10) + bench.read(11) / 65536) * 1e-6
    assert abs(10 * np.log10(power / 1e-4)) < 0.25
    assert bench.read(24) / 2**15 == pytest.approx(1.0, abs=0.0101)
    assert np.linalg.norm(bench.latched() - STATE) < 0.01


def test_noise_falls_with_the_root_of_the_averaging_time(bench):
    """3.5e-4 rad in 40 ns (ATE 2) at -18 dBm; a sixteenth of the time is a quarter of the noise."""
    bench.stokes_w = 10 ** (-4.8) * np.append(1.0, STATE) * 1.07  # within the range for any gain
    spread = []
    for exponent in (2, 6):
        bench.write(1, exponent)
        vectors = []
        for _ in range(600):
            bench.clock.sleep(1e-3)
            vectors.append(bench.latched())
        spread.append(np.std(vectors, axis=0).max())
    assert spread[0] == pytest.approx(3.5e-4, rel=0.15)
    assert spread[0] / spread[1] == pytest.approx(4.0, rel=0.15)


@pytest.mark.parametrize(("power_w", "bits"), [(1e-4, 0), (4e-3, 0b011), (1e-6, 0b101)])
def test_alarms_stay_until_they_are_cleared(bench, power_w, bits):
    bench.stokes_w = power_w * np.append(1.0, STATE)
    bench.read(10)
    bench.stokes_w = 1e-4 * np.append(1.0, STATE)
    bench.clock.sleep(1.0)
    assert bench.read(0) == bits
    bench.write(0, 1)
    assert bench.read(0) == bits, "only 0 clears"
    bench.write(0, 0)
    assert bench.read(0) == 0


def test_more_light_than_the_range_does_not_leak(bench):
    bench.stokes_w = 10e-3 * np.append(1.0, STATE)
    assert bench.read(10) == 2511


def test_no_light_is_no_state(bench):
    bench.stokes_w = np.zeros(4)
    assert bench.read(10) < 5
    assert bench.read(0) == 0b101
    assert bench.read(24) <= 65535


def test_a_polarimeter_without_power_refuses_connections(bench):
    bench.device.power_off()
    with pytest.raises(ConnectError, match="pol0"):
        bench.device.connect()
    with pytest.raises(ConfigError, match="usb3"):
        Pm1000("pol0", bench.clock, np.random.default_rng(1), lambda: bench.stokes_w, link="usb3")
