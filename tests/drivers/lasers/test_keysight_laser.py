"""The Keysight laser driver against a laser made from its programming guide."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.lasers.keysight_laser import KeysightLaser
from lumion_hw.drivers.lasers.scpi_laser import thz_from_nm
from lumion_hw.errors import (
    DeviceError,
    DeviceTimeoutError,
    FrameError,
    IdentityError,
    LimitError,
    LinkTimeout,
    VerifyError,
)
from lumion_hw.interfaces import LaserSweep, TunableLaser
from lumion_hw.links import MemoryLink
from lumion_hw.testing.contracts import TunableLaserContract
from tests.drivers.scpi_peer import Fault, ScpiPeer
from tests.drivers.wired_peer import OnAWire

IDN = "Keysight Technologies,N7776C,MY1,1.000"
PLAN = LaserSweep(1540.0, 1542.0, 0.01, 50.0, log=True)
SWEEP = "SOUR0:WAV:SWE"


class Laser(ScpiPeer):
    """1490 to 1640 nm, settling for a second, locked by a pin if a test says so."""

    def __init__(self, clock: VirtualClock, identity: str = IDN) -> None:
        super().__init__(clock, identity)
        self.locked = False
        self.ends_at = 0.0
        self.check = "0,OK"
        self.numbers = {
            "SOUR0:POW:UNIT": [1.0, 0.0, 1.0],
            "SOUR0:POW": [6.0, -13.0, 13.0],
            "SOUR0:WAV": [1.55e-6, 1.49e-6, 1.64e-6],
            f"{SWEEP}:STAR": [1.5e-6, 1.49e-6, 1.64e-6],
            f"{SWEEP}:STOP": [1.6e-6, 1.49e-6, 1.64e-6],
            f"{SWEEP}:STEP": [1e-11, 1e-13, 1e-8],
            f"{SWEEP}:SPE": [5e-8, 5e-10, 2e-7],
            f"{SWEEP}:LLOG": [0.0, 0.0, 1.0],
            "SOUR0:POW:STAT": [0.0, 0.0, 1.0],
        }
        self.words = {
            f"{SWEEP}:MODE": ["STEP", "STEP", "MAN", "CONT"],
            f"{SWEEP}:REP": ["TWOW", "ONEW", "TWOW"],
            "TRIG0:OUTP": ["DIS", "DIS", "STF", "SWF", "SWST"],
            "TRIG:CONF": ["DEF", "DEF", "LOOP"],
        }
        self.queries = {
            "LOCK?": lambda _: str(int(self.locked)),
            f"{SWEEP}?": lambda _: str(int(self.clock.now() < self.ends_at)),
            f"{SWEEP}:CHEC?": lambda _: self.check,
            f"{SWEEP}:EXP?": lambda _: f"+{self.logged().size}",
            "SOUR0:READ:POIN?": lambda _: f"+{self.logged().size}",
            "SOUR0:READ:DATA?": lambda _: self.block(),
        }
        self.actions = {
            "LOCK": self.unlock,
            SWEEP: self.start_or_stop,
            "SOUR0:WAV": lambda text: self.tune("SOUR0:WAV", text),
            "SOUR0:POW:STAT": lambda text: self.tune("SOUR0:POW:STAT", text),
        }

    def unlock(self, text: str) -> None:
        self.locked = text != "0,1234"

    def tune(self, header: str, text: str) -> None:
        if header.endswith("STAT") and text == "1" and self.locked:
            raise Fault(-221, "Settings conflict")
        value = self.number(text)
        _, low, high = self.numbers[header]
        if not low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
            raise Fault(-222, "Data out of range")
        self.numbers[header][0] = value
        self.busy_until = self.clock.now() + 1.0

    def start_or_stop(self, text: str) -> None:
        span, speed = self.at("STOP") - self.at("STAR"), self.at("SPE")
        self.ends_at = self.clock.now() + (span / speed if text == "1" else 0.0)

    def at(self, name: str) -> float:
        return self.numbers[f"{SWEEP}:{name}"][0]

    def logged(self) -> np.ndarray:
        n_steps = round((self.at("STOP") - self.at("STAR")) / self.at("STEP"))
        return self.at("STAR") + self.at("STEP") * np.arange(n_steps + 1) + 1e-13

    def block(self) -> bytes:
        payload = self.logged().astype("<f8").tobytes()
        return b"#%d%d%s" % (len(str(len(payload))), len(payload), payload)

    @property
    def light(self) -> tuple[float, float] | None:
        if not self.numbers["SOUR0:POW:STAT"][0] or not self.done():
            return None
        return thz_from_nm(1e9 * self.numbers["SOUR0:WAV"][0]), self.numbers["SOUR0:POW"][0]


def opened(clock: VirtualClock, peer: Laser, **options: str) -> KeysightLaser:
    laser = KeysightLaser(MemoryLink(lambda: peer, clock, "laser"), clock, device="laser0", **options)
    laser.open()
    return laser


@pytest.fixture
def peer(clock: VirtualClock) -> Laser:
    return Laser(clock)


@pytest.fixture
def shining(clock: VirtualClock, peer: Laser) -> KeysightLaser:
    laser = opened(clock, peer)
    laser.enable()
    laser.wait_ready(10.0)
    return laser


class TestKeysightLaserKeepsThePromises(OnAWire, TunableLaserContract):
    @pytest.fixture
    def peer(self, clock: VirtualClock) -> Laser:
        return Laser(clock)

    @pytest.fixture
    def driver(self, link, clock) -> Iterator[KeysightLaser]:
        laser = KeysightLaser(link, clock, device="laser0")
        laser.open()
        yield laser
        laser.close()

    @pytest.fixture
    def emitted(self, peer: Laser) -> Callable[[], tuple[float, float] | None]:
        return lambda: peer.light


def test_frequencies_go_out_as_nanometres_and_come_back_as_metres(clock: VirtualClock, peer: Laser) -> None:
    laser: TunableLaser = opened(clock, peer)
    laser.set_frequency_thz(193.1)
    # c / 193.1 THz = 299792.458 / 193.1 nm = 1552.52438 nm
    assert "SOUR0:WAV 1552.52440NM" in peer.sent
    assert laser.state().frequency_thz == pytest.approx(299792.458 / 1552.5244, abs=1e-9)
    assert laser.ranges.frequency_thz == pytest.approx((299792.458 / 1640, 299792.458 / 1490))


def test_a_wavelength_that_is_not_taken_is_noticed(clock: VirtualClock, peer: Laser) -> None:
    laser = opened(clock, peer)
    peer.queries["SOUR0:WAV?"] = lambda _: "+1.55000000E-006"
    with pytest.raises(VerifyError, match="wavelength in nm"):
        laser.set_frequency_thz(193.1)


def test_a_laser_that_keeps_watts_is_refused(clock: VirtualClock, peer: Laser) -> None:
    peer.queries["SOUR0:POW:UNIT?"] = lambda _: "+1"
    with pytest.raises(VerifyError, match="unit of the power"):
        opened(clock, peer)


@pytest.mark.parametrize("idn", ["SANTEC,TSL-570,1,1.0", "Keysight Technologies,N7745C,MY1,1", "8164B"])
def test_another_instrument_is_refused(clock: VirtualClock, idn: str) -> None:
    with pytest.raises(IdentityError, match="8164A or 8164B or N7776C"):
        opened(clock, Laser(clock, idn))


def test_a_locked_laser_needs_its_pin(clock: VirtualClock, peer: Laser) -> None:
    peer.locked = True
    laser = opened(clock, peer)
    with pytest.raises(DeviceError, match="locked"):
        laser.enable()
    unlocking = opened(clock, peer, pin="1234")
    unlocking.enable()
    assert unlocking.state().emitting


def test_a_sweep_is_checked_by_the_instrument_and_logged(shining: KeysightLaser, peer: Laser) -> None:
    log = shining.sweep(PLAN)
    assert log.wavelength_nm is not None
    assert log.wavelength_nm.shape == (201,)
    assert log.wavelength_nm[[0, -1]] == pytest.approx([1540.0001, 1542.0001])
    assert log.ended_s - log.started_s == pytest.approx(0.04, abs=0.05)
    steps = [each for each in peer.sent if each.startswith(SWEEP) and "?" not in each]
    assert steps == [
        f"{SWEEP}:MODE CONT",
        f"{SWEEP}:REP ONEW",
        f"{SWEEP}:STAR 1540.00000NM",
        f"{SWEEP}:STOP 1542.00000NM",
        f"{SWEEP}:STEP 0.01000NM",
        f"{SWEEP}:SPE 50NM/S",
        f"{SWEEP}:LLOG 1",
        f"{SWEEP} 1",
        f"{SWEEP} 0",
        f"{SWEEP}:LLOG 0",
    ]
    assert peer.words["TRIG0:OUTP"][0] == "DIS"


def test_a_sweep_the_instrument_refuses_says_why(shining: KeysightLaser, peer: Laser) -> None:
    peer.check = '371,"trigger frequency too high"'
    with pytest.raises(DeviceError, match="371 the trigger rate is too high") as caught:
        shining.sweep(PLAN)
    assert caught.value.code == 371
    assert f"{SWEEP} 1" not in peer.sent


def test_a_sweep_that_does_not_end_is_stopped_at_its_deadline(
    shining: KeysightLaser, peer: Laser, clock: VirtualClock
) -> None:
    peer.queries[f"{SWEEP}?"] = lambda _: "2"  # paused
    started = clock.now()
    with pytest.raises(DeviceTimeoutError, match="did not end"):
        shining.sweep(PLAN)
    assert clock.now() - started < 25.0
    assert peer.sent[-8:].count(f"{SWEEP} 0") == 1


def as_block(values: list[float]) -> bytes:
    payload = struct.pack(f"<{len(values)}d", *values)
    return b"#%d%d%s" % (len(str(len(payload))), len(payload), payload)


@pytest.mark.parametrize(
    "values",
    [
        [1540.0] * 201,  # nanometres
        np.linspace(1.542e-6, 1.540e-6, 201).tolist(),  # falling
        [1e-7] * 201,
        [float("nan")] * 201,
        np.linspace(1.540e-6, 1.542e-6, 200).tolist(),  # one short
    ],
    ids=["nanometres", "falling", "elsewhere", "no numbers", "one short"],
)
def test_a_log_that_is_not_of_the_sweep_is_refused(shining: KeysightLaser, peer: Laser, values: list[float]) -> None:
    peer.queries["SOUR0:READ:DATA?"] = lambda _: as_block(values)
    with pytest.raises(FrameError, match="does not belong to the sweep"):
        shining.sweep(PLAN)
    assert shining.state().emitting


def test_fewer_points_than_triggers_are_refused(shining: KeysightLaser, peer: Laser) -> None:
    peer.queries["SOUR0:READ:POIN?"] = lambda _: "+150"
    with pytest.raises(FrameError, match="150 points for 201 triggers"):
        shining.sweep(PLAN)


def test_a_log_cut_off_in_the_middle_is_a_time_out_and_the_laser_goes_on(shining: KeysightLaser, peer: Laser) -> None:
    peer.queries["SOUR0:READ:DATA?"] = lambda _: peer.block()[:700]
    with pytest.raises(LinkTimeout):
        shining.sweep(PLAN)
    assert shining.state().frequency_thz == pytest.approx(299792.458 / 1550, abs=1e-6)


def test_a_speed_the_laser_rounds_is_noticed(shining: KeysightLaser, peer: Laser) -> None:
    peer.queries[f"{SWEEP}:SPE?"] = lambda _: "+8.00000000E-008"
    with pytest.raises(VerifyError, match="speed of the sweep"):
        shining.sweep(PLAN)


def test_a_sweep_in_metres_is_refused(shining: KeysightLaser, peer: Laser) -> None:
    before = len(peer.sent)
    with pytest.raises(LimitError, match="start of the sweep"):
        shining.sweep(LaserSweep(1.54e-6, 1.542e-6, 1e-11, 5e-8))
    assert len(peer.sent) == before
