"""The Keysight laser driver against an emulated laser that accepts only documented lines."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.lasers.keysight_laser import KeysightLaser
from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser
from lumion_hw.emulator.lasers.swept_laser import LaserProfile
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
from tests.wire_vectors import DocumentedPeer

IDN = "Keysight Technologies,N7776C,MY1,1.000"
PLAN = LaserSweep(1540.0, 1550.0, 0.01, 50.0, log=True)
SWEEP = "SOUR0:WAV:SWE"


class Laser(DocumentedPeer):
    """Emulated N7776C, 1490 to 1640 nm, behind a connection that knows its manual."""

    def __init__(self, clock: VirtualClock, identity: str = IDN) -> None:
        profile = LaserProfile((1490.0, 1640.0))
        laser = EmulatedKeysightLaser("laser0", clock, np.random.default_rng(1), profile=profile)
        super().__init__("keysight_laser", laser, clock)
        self.replies["*IDN?"] = identity
        self.ask_elsewhere("LOCK 0,1234")


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


def test_frequencies_go_out_as_nanometres_and_come_back_as_metres(clock: VirtualClock, peer: Laser) -> None:
    laser: TunableLaser = opened(clock, peer)
    laser.set_frequency_thz(193.1)
    # c / 193.1 THz = 299792.458 / 193.1 nm = 1552.52438 nm
    assert "SOUR0:WAV 1552.52440NM" in peer.sent
    assert laser.state().frequency_thz == pytest.approx(299792.458 / 1552.5244, abs=1e-9)
    assert laser.ranges.frequency_thz == pytest.approx((299792.458 / 1640, 299792.458 / 1490))


def test_a_wavelength_that_is_not_taken_is_noticed(clock: VirtualClock, peer: Laser) -> None:
    laser = opened(clock, peer)
    peer.replies["SOUR0:WAV?"] = "+1.55000000E-006"
    with pytest.raises(VerifyError, match="wavelength in nm"):
        laser.set_frequency_thz(193.1)


def test_a_laser_that_keeps_watts_is_refused(clock: VirtualClock, peer: Laser) -> None:
    peer.replies["SOUR0:POW:UNIT?"] = "+1"
    with pytest.raises(VerifyError, match="unit of the power"):
        opened(clock, peer)


@pytest.mark.parametrize("idn", ["SANTEC,TSL-570,1,1.0", "Keysight Technologies,N7745C,MY1,1", "8164B"])
def test_another_instrument_is_refused(clock: VirtualClock, idn: str) -> None:
    with pytest.raises(IdentityError, match="8164A or 8164B or N7776C"):
        opened(clock, Laser(clock, idn))


def test_a_locked_laser_needs_its_pin(clock: VirtualClock, peer: Laser) -> None:
    peer.ask_elsewhere("LOCK 1,1234")
    laser = opened(clock, peer)
    with pytest.raises(DeviceError, match="locked"):
        laser.enable()
    unlocking = opened(clock, peer, pin="1234")
    unlocking.enable()
    assert unlocking.state().emitting


def test_a_sweep_is_checked_by_the_instrument_and_logged(shining: KeysightLaser, peer: Laser) -> None:
    log = shining.sweep(PLAN)
    assert log.wavelength_nm is not None
    assert log.wavelength_nm.shape == (1001,)
    assert log.wavelength_nm[[0, -1]] == pytest.approx([1540.0, 1550.0], abs=0.02)
    assert 0.2 <= log.ended_s - log.started_s < 1.0  # 10 nm at 50 nm/s, and the start of the motor
    steps = [each for each in peer.sent if each.startswith(SWEEP) and "?" not in each]
    assert steps == [
        f"{SWEEP}:MODE CONT",
        f"{SWEEP}:REP ONEW",
        f"{SWEEP}:STAR 1540.00000NM",
        f"{SWEEP}:STOP 1550.00000NM",
        f"{SWEEP}:STEP 0.01000NM",
        f"{SWEEP}:SPE 50NM/S",
        f"{SWEEP}:LLOG 1",
        f"{SWEEP} 1",
        f"{SWEEP} 0",
        f"{SWEEP}:LLOG 0",
    ]
    assert peer.ask_elsewhere("TRIG0:OUTP?") == "DIS"


def test_a_sweep_the_instrument_refuses_says_why(shining: KeysightLaser, peer: Laser) -> None:
    peer.replies[f"{SWEEP}:CHEC?"] = '371,"trigger frequency too high"'
    with pytest.raises(DeviceError, match="371 the trigger rate is too high") as caught:
        shining.sweep(PLAN)
    assert caught.value.code == 371
    assert f"{SWEEP} 1" not in peer.sent


def test_a_sweep_that_does_not_end_is_stopped_at_its_deadline(
    shining: KeysightLaser, peer: Laser, clock: VirtualClock
) -> None:
    peer.replies[f"{SWEEP}?"] = "2"  # paused
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
        [1540.0] * 1001,  # nanometres
        np.linspace(1.55e-6, 1.54e-6, 1001).tolist(),  # falling
        [1e-7] * 1001,
        [float("nan")] * 1001,
        np.linspace(1.54e-6, 1.55e-6, 1000).tolist(),  # one short
    ],
    ids=["nanometres", "falling", "elsewhere", "no numbers", "one short"],
)
def test_a_log_that_is_not_of_the_sweep_is_refused(shining: KeysightLaser, peer: Laser, values: list[float]) -> None:
    peer.replies["SOUR0:READ:DATA? LLOG"] = as_block(values)
    with pytest.raises(FrameError, match="does not belong to the sweep"):
        shining.sweep(PLAN)
    assert shining.state().emitting


def test_fewer_points_than_triggers_are_refused(shining: KeysightLaser, peer: Laser) -> None:
    peer.replies["SOUR0:READ:POIN? LLOG"] = "+150"
    with pytest.raises(FrameError, match="150 points for 1001 triggers"):
        shining.sweep(PLAN)


def test_a_log_cut_off_in_the_middle_is_a_time_out_and_the_laser_goes_on(shining: KeysightLaser, peer: Laser) -> None:
    peer.replies["SOUR0:READ:DATA? LLOG"] = as_block([1.55e-6] * 1001)[:700]
    with pytest.raises(LinkTimeout):
        shining.sweep(PLAN)
    assert shining.state().frequency_thz == pytest.approx(299792.458 / 1550, abs=1e-6)


def test_a_speed_the_laser_rounds_is_noticed(shining: KeysightLaser, peer: Laser) -> None:
    peer.replies[f"{SWEEP}:SPE?"] = "+8.00000000E-008"
    with pytest.raises(VerifyError, match="speed of the sweep"):
        shining.sweep(PLAN)


def test_a_sweep_in_metres_is_refused(shining: KeysightLaser, peer: Laser) -> None:
    before = len(peer.sent)
    with pytest.raises(LimitError, match="start of the sweep"):
        shining.sweep(LaserSweep(1.54e-6, 1.542e-6, 1e-11, 5e-8))
    assert len(peer.sent) == before
