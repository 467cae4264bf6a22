"""The Santec TSL driver in both dialects, against emulated lasers that accept only documented lines."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.lasers.santec_tsl import Dialect, SantecTsl
from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl
from lumion_hw.emulator.lasers.swept_laser import LaserProfile
from lumion_hw.errors import ConfigError, DeviceTimeoutError, FrameError, IdentityError, LimitError, NotSupportedError
from lumion_hw.interfaces import LaserSweep
from lumion_hw.links import MemoryLink, RecordedExchange, ReplayPeer, replay_link
from tests.wire_vectors import DocumentedPeer


class Laser(DocumentedPeer):
    """Emulated laser, 1500 to 1630 nm, in nm (Legacy) or metres (SCPI), behind a connection that knows its manual."""

    def __init__(self, clock: VirtualClock, dialect: Dialect, model: str = "TSL-570") -> None:
        profile = LaserProfile((1500.0, 1630.0), power_dbm=(-15.0, 13.0))
        laser = EmulatedSantecTsl("laser0", clock, np.random.default_rng(1), model=model, profile=profile)
        super().__init__("santec_tsl", laser, clock, b"\r")
        if model == "TSL-570":
            self.ask_elsewhere(f"SYST:COMM:COD {dialect.value}")


def as_block(nm: np.ndarray, dialect: Dialect) -> bytes:
    """Little-endian int32 of 0.1 pm, or float64 of metres; 0x0040F844 would be 425.7860 nm."""
    legacy = dialect is Dialect.LEGACY
    payload = (np.rint(nm * 1e4).astype("<i4") if legacy else (nm * 1e-9).astype("<f8")).tobytes()
    return f"#{len(str(len(payload)))}{len(payload)}".encode() + payload


def opened(clock: VirtualClock, peer: Laser, **options: object) -> SantecTsl:
    laser = SantecTsl(MemoryLink(lambda: peer, clock, "laser"), clock, device="laser0", **options)
    laser.open()
    return laser


@pytest.mark.parametrize(("dialect", "sent"), [(Dialect.LEGACY, "WAV 1552.52440"), (Dialect.SCPI, "WAV 1552.52440E-9")])
def test_a_wavelength_is_sent_in_the_dialects_unit(clock: VirtualClock, dialect: Dialect, sent: str) -> None:
    peer = Laser(clock, dialect)
    laser = opened(clock, peer)
    assert laser.dialect is dialect
    laser.set_frequency_thz(193.1)
    assert sent in peer.sent
    assert laser.state().frequency_thz == pytest.approx(299792.458 / 1552.5244, abs=1e-9)


def test_the_dialect_is_asked_for_before_the_first_wavelength(clock: VirtualClock) -> None:
    peer = Laser(clock, Dialect.SCPI)
    opened(clock, peer)
    asked = [index for index, each in enumerate(peer.sent) if each.startswith("WAV")]
    assert peer.sent.index("SYST:COMM:COD?") < asked[0]


@pytest.mark.parametrize("dialect", list(Dialect), ids=lambda each: each.name)
def test_metres_where_nanometres_were_announced_are_an_error(clock: VirtualClock, dialect: Dialect) -> None:
    peer = Laser(clock, dialect)
    laser = opened(clock, peer)
    peer.replies["WAV?"] = "1.55E-6" if dialect is Dialect.LEGACY else "1550.0000"
    with pytest.raises(FrameError, match="expected a wavelength in"):
        laser.state()


def test_an_older_laser_is_legacy_and_needs_its_range(clock: VirtualClock) -> None:
    peer = Laser(clock, Dialect.LEGACY, "TSL-550")
    with pytest.raises(ConfigError, match="does not report its wavelength range"):
        opened(clock, peer)
    laser = opened(clock, peer, limits_nm=(1500.0, 1630.0))
    assert laser.dialect is Dialect.LEGACY
    assert "SYST:COMM:COD?" not in peer.sent


def test_without_limits_of_the_power_the_laser_itself_refuses(clock: VirtualClock) -> None:
    laser = opened(clock, Laser(clock, Dialect.LEGACY))
    assert laser.ranges.power_dbm is None


def test_a_closed_shutter_is_not_emitting(clock: VirtualClock) -> None:
    peer = Laser(clock, Dialect.LEGACY)
    laser = opened(clock, peer)
    laser.enable()
    assert peer.ask_elsewhere("POW:SHUT?") == "0"
    laser.set_shutter(open_=False)
    assert not laser.state().emitting
    assert laser.state().measured_power_dbm is None


def test_a_sweep_is_once_and_one_way(clock: VirtualClock) -> None:
    peer = Laser(clock, Dialect.SCPI)
    laser = opened(clock, peer)
    laser.enable()
    log = laser.sweep(LaserSweep(1540.0, 1550.0, 0.1, 10.0))
    assert log.wavelength_nm is None
    assert log.ended_s - log.started_s == pytest.approx(1.5, abs=0.06)
    settings = ("MOD", "CYCL", "DEL", "SPE")
    assert [float(peer.ask_elsewhere(f"WAV:SWE:{name}?")) for name in settings] == [1.0, 1.0, 0.0, 10.0]
    assert float(peer.ask_elsewhere("WAV:SWE:STAR?")) == pytest.approx(1540e-9)
    assert peer.ask_elsewhere("TRIG:OUTP?") == "3", "a pulse at every step"
    assert float(peer.ask_elsewhere("TRIG:OUTP:STEP?")) == pytest.approx(0.1e-9)


def test_a_sweep_that_waits_for_a_trigger_is_stopped(clock: VirtualClock) -> None:
    peer = Laser(clock, Dialect.LEGACY)
    laser = opened(clock, peer)
    laser.enable()
    peer.replies["WAV:SWE?"] = "3"
    with pytest.raises(DeviceTimeoutError):
        laser.sweep(LaserSweep(1540.0, 1550.0, 0.1, 10.0))
    assert "WAV:SWE 0" in peer.sent[-3:]


@pytest.mark.parametrize("dialect", list(Dialect), ids=lambda each: each.name)
@pytest.mark.parametrize("other", list(Dialect), ids=lambda each: f"log in {each.name}")
def test_a_log_is_read_by_its_bytes(clock: VirtualClock, dialect: Dialect, other: Dialect) -> None:
    peer = Laser(clock, dialect)
    peer.replies["READ:DAT?"] = as_block(np.linspace(1540.0, 1550.0, 101), other)
    laser = opened(clock, peer)
    laser.enable()
    log = laser.sweep(LaserSweep(1540.0, 1550.0, 0.1, 10.0, log=True))
    assert log.wavelength_nm == pytest.approx(np.linspace(1540.0, 1550.0, 101), abs=1e-4)
    assert log.ended_s - log.started_s == pytest.approx(1.5, abs=0.06), "0.5 s of preparation, no fetching"


@pytest.mark.parametrize(
    ("points", "block", "why"),
    [
        ("0", b"", "0 wavelengths"),
        ("3", as_block(np.array([1540.0, 1541.0]), Dialect.LEGACY), "8 bytes for 3 wavelengths"),
        ("2", as_block(np.array([1541.0, 1540.0]), Dialect.LEGACY), "wavelengths from 1541 to 1540 nm"),
        ("2", as_block(np.array([1600.0, 1601.0]), Dialect.SCPI), "from 1600 to 1601 nm"),
    ],
)
def test_a_log_of_another_sweep_is_an_error(clock: VirtualClock, points: str, block: bytes, why: str) -> None:
    peer = Laser(clock, Dialect.SCPI)
    peer.replies |= {"READ:POIN?": points, "READ:DAT?": block}
    laser = opened(clock, peer)
    laser.enable()
    with pytest.raises(FrameError, match=why):
        laser.sweep(LaserSweep(1540.0, 1550.0, 0.1, 10.0, log=True))


def test_more_pulses_than_the_laser_gives_are_refused(clock: VirtualClock) -> None:
    peer = Laser(clock, Dialect.SCPI)
    laser = opened(clock, peer)
    laser.enable()
    for step_nm, speed in ((0.001, 10.0), (1e-5, 0.05)):  # 10 kHz; a million of them
        with pytest.raises(LimitError, match="pulses of the sweep"):
            laser.sweep(LaserSweep(1540.0, 1550.0, step_nm, speed, log=True))
    assert "WAV:SWE 1" not in peer.sent


def test_the_log_of_a_laser_that_nobody_knows_one_of_is_not_supported(clock: VirtualClock) -> None:
    laser = opened(clock, Laser(clock, Dialect.LEGACY, "TSL-510"), limits_nm=(1500.0, 1630.0))
    assert not laser.capabilities.wavelength_log
    assert not laser.ranges.sweep_nm_per_s
    laser.enable()
    with pytest.raises(NotSupportedError, match="cannot log wavelengths"):
        laser.sweep(LaserSweep(1540.0, 1550.0, 0.1, 10.0, log=True))


@pytest.mark.parametrize("end", [b"\r", b"\r\n", b"\n"])
def test_another_instrument_is_refused_and_messages_end_with_cr(end: bytes) -> None:
    clock = VirtualClock()
    peer = ReplayPeer([RecordedExchange(b"*IDN?\r", b"SANTEC,MPM-210H,1,Ver. 1.0" + end)], clock)
    with pytest.raises(IdentityError, match="TSL-510 or"):
        SantecTsl(replay_link(peer, clock), clock, device="laser0").open()


def test_a_measured_power_without_a_logarithm_is_not_ready_yet(clock: VirtualClock) -> None:
    peer = Laser(clock, Dialect.LEGACY)
    laser = opened(clock, peer, settle_s=0.0)
    laser.enable()
    clock.sleep(60.0)
    for dark in ("9.91E37", "-99.99"):
        peer.replies["POW:ACT?"] = dark
        state = laser.state()
        assert state.emitting
        assert not state.ready
        assert state.measured_power_dbm is None
    peer.replies["POW:ACT?"] = "-0.2"
    assert laser.state().ready


def test_the_power_has_time_to_follow_before_the_laser_is_ready(clock: VirtualClock) -> None:
    laser = opened(clock, Laser(clock, Dialect.LEGACY), settle_s=2.0)
    laser.enable()
    clock.sleep(1.9)
    assert not laser.state().ready
    clock.sleep(0.2)
    assert laser.state().ready
    laser.set_power_dbm(3.0)
    assert not laser.state().ready
    started_s = clock.now()
    laser.wait_ready(10.0)
    assert clock.now() - started_s >= 1.9
