"""The Santec TSL driver in both dialects, against a laser made from its command lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.lasers.santec_tsl import Dialect, SantecTsl
from lumion_hw.drivers.lasers.scpi_laser import thz_from_nm
from lumion_hw.errors import ConfigError, DeviceTimeoutError, FrameError, IdentityError, LimitError, NotSupportedError
from lumion_hw.interfaces import LaserSweep
from lumion_hw.links import MemoryLink, RecordedExchange, ReplayPeer, replay_link
from lumion_hw.testing.contracts import TunableLaserContract
from tests.drivers.scpi_peer import ScpiPeer
from tests.drivers.wired_peer import OnAWire


class Laser(ScpiPeer):
    """1500 to 1630 nm; numbers in nm (Legacy) or metres (SCPI), by ``SYST:COMM:COD``."""

    end = b"\r"
    no_error = '0,"No error"'

    def __init__(self, clock: VirtualClock, dialect: Dialect, model: str = "TSL-570") -> None:
        super().__init__(clock, f"SANTEC,{model},22050001,0001.000")
        self.nm = 1.0 if dialect is Dialect.LEGACY else 1e-9
        self.ends_at = 0.0
        sweep = "WAV:SWE"
        self.numbers = {
            "POW:UNIT": [1.0, 0.0, 1.0],
            "POW": [5.0, -15.0, 13.0],
            "POW:STAT": [0.0, 0.0, 1.0],
            "POW:SHUT": [1.0, 0.0, 1.0],
            "WAV": [1550.0 * self.nm, 1500.0 * self.nm, 1630.0 * self.nm],
            f"{sweep}:STAR": [1500.0 * self.nm, 1500.0 * self.nm, 1630.0 * self.nm],
            f"{sweep}:STOP": [1630.0 * self.nm, 1500.0 * self.nm, 1630.0 * self.nm],
            f"{sweep}:STEP": [0.1 * self.nm, 1e-4 * self.nm, 100 * self.nm],
            f"{sweep}:SPE": [10.0, 1.0, 200.0],
            f"{sweep}:MOD": [0.0, 0.0, 3.0],
            f"{sweep}:CYCL": [5.0, 0.0, 999.0],
            f"{sweep}:DEL": [3.0, 0.0, 999.9],
            "TRIG:INP:EXT": [1.0, 0.0, 1.0],
            "TRIG:INP:STAN": [1.0, 0.0, 1.0],
            "TRIG:OUTP": [0.0, 0.0, 3.0],
            "TRIG:OUTP:STEP": [0.1 * self.nm, 1e-4 * self.nm, 100 * self.nm],
        }
        self.queries = {
            "WAV:SWE:RANG:MIN?": lambda _: f"{1500.0 * self.nm:+.8E}",
            "WAV:SWE:RANG:MAX?": lambda _: f"{1630.0 * self.nm:+.8E}",
            "POW:ACT?": lambda _: f"{self.numbers['POW'][0] + 0.02:.3f}",
            "WAV:SWE?": lambda _: str(int(clock.now() < self.ends_at)),
            "READ:POIN?": lambda _: str(len(self.logged_nm())),
            "READ:DAT?": lambda _: as_block(self.logged_nm(), dialect),
        }
        if model == "TSL-570":
            self.queries["SYST:COMM:COD?"] = lambda _: str(dialect.value)
        self.actions = {"WAV:SWE": self.start_or_stop}

    def command(self, header: str, argument: str) -> None:
        super().command(header, argument)
        if header in ("WAV", "POW:STAT"):
            self.busy_until = self.clock.now() + 0.5

    def start_or_stop(self, text: str) -> None:
        span_nm = (self.numbers["WAV:SWE:STOP"][0] - self.numbers["WAV:SWE:STAR"][0]) / self.nm
        self.ends_at = self.clock.now() + (span_nm / self.numbers["WAV:SWE:SPE"][0] if text == "1" else 0.0)

    def logged_nm(self) -> np.ndarray:
        start, stop = (self.numbers[f"WAV:SWE:{name}"][0] / self.nm for name in ("STAR", "STOP"))
        step = self.numbers["TRIG:OUTP:STEP"][0] / self.nm
        return np.arange(start, stop + 0.5 * step, step)

    @property
    def light(self) -> tuple[float, float] | None:
        if not self.numbers["POW:STAT"][0] or self.numbers["POW:SHUT"][0] or not self.done():
            return None
        return thz_from_nm(self.numbers["WAV"][0] / self.nm), self.numbers["POW"][0]


def as_block(nm: np.ndarray, dialect: Dialect) -> bytes:
    """Little-endian int32 of 0.1 pm, or float64 of metres; 0x0040F844 would be 425.7860 nm."""
    legacy = dialect is Dialect.LEGACY
    payload = (np.rint(nm * 1e4).astype("<i4") if legacy else (nm * 1e-9).astype("<f8")).tobytes()
    return f"#{len(str(len(payload)))}{len(payload)}".encode() + payload


def opened(clock: VirtualClock, peer: Laser, **options: object) -> SantecTsl:
    laser = SantecTsl(MemoryLink(lambda: peer, clock, "laser"), clock, device="laser0", **options)
    laser.open()
    return laser


@pytest.mark.parametrize("dialect", list(Dialect), ids=lambda each: each.name)
class TestSantecTslKeepsThePromises(OnAWire, TunableLaserContract):
    @pytest.fixture
    def peer(self, clock: VirtualClock, dialect: Dialect) -> Laser:
        return Laser(clock, dialect)

    @pytest.fixture
    def driver(self, link, clock) -> Iterator[SantecTsl]:
        laser = SantecTsl(link, clock, device="laser0", limits_dbm=(-15.0, 13.0))
        laser.open()
        yield laser
        laser.close()

    @pytest.fixture
    def emitted(self, peer: Laser) -> Callable[[], tuple[float, float] | None]:
        return lambda: peer.light


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
    peer.queries["WAV?"] = lambda _: "1.55E-6" if dialect is Dialect.LEGACY else "1550.0000"
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
    assert peer.numbers["POW:SHUT"][0] == 0.0
    laser.set_shutter(open_=False)
    assert not laser.state().emitting
    assert laser.state().measured_power_dbm is None


def test_a_sweep_is_once_and_one_way(clock: VirtualClock) -> None:
    peer = Laser(clock, Dialect.SCPI)
    laser = opened(clock, peer)
    laser.enable()
    log = laser.sweep(LaserSweep(1540.0, 1550.0, 0.1, 10.0))
    assert log.wavelength_nm is None
    assert log.ended_s - log.started_s == pytest.approx(1.0, abs=0.06)
    settings = ("MOD", "CYCL", "DEL", "SPE")
    assert [peer.numbers[f"WAV:SWE:{name}"][0] for name in settings] == [1.0, 1.0, 0.0, 10.0]
    assert peer.numbers["WAV:SWE:STAR"][0] == pytest.approx(1540e-9)
    assert peer.numbers["TRIG:OUTP"][0] == 3.0, "a pulse at every step"
    assert peer.numbers["TRIG:OUTP:STEP"][0] == pytest.approx(0.1e-9)


def test_a_sweep_that_waits_for_a_trigger_is_stopped(clock: VirtualClock) -> None:
    peer = Laser(clock, Dialect.LEGACY)
    laser = opened(clock, peer)
    laser.enable()
    peer.queries["WAV:SWE?"] = lambda _: "3"
    with pytest.raises(DeviceTimeoutError):
        laser.sweep(LaserSweep(1540.0, 1550.0, 0.1, 10.0))
    assert "WAV:SWE 0" in peer.sent[-3:]


@pytest.mark.parametrize("dialect", list(Dialect), ids=lambda each: each.name)
@pytest.mark.parametrize("other", list(Dialect), ids=lambda each: f"log in {each.name}")
def test_a_log_is_read_by_its_bytes(clock: VirtualClock, dialect: Dialect, other: Dialect) -> None:
    peer = Laser(clock, dialect)
    peer.queries["READ:DAT?"] = lambda _: as_block(peer.logged_nm(), other)
    laser = opened(clock, peer)
    laser.enable()
    log = laser.sweep(LaserSweep(1540.0, 1550.0, 0.1, 10.0, log=True))
    assert log.wavelength_nm == pytest.approx(np.linspace(1540.0, 1550.0, 101), abs=1e-4)
    assert log.ended_s - log.started_s == pytest.approx(1.0, abs=0.06), "before the log was fetched"


@pytest.mark.parametrize(
    ("points", "block", "why"),
    [
        ("0", None, "0 wavelengths"),
        ("3", as_block(np.array([1540.0, 1541.0]), Dialect.LEGACY), "8 bytes for 3 wavelengths"),
        ("2", as_block(np.array([1541.0, 1540.0]), Dialect.LEGACY), "wavelengths from 1541 to 1540 nm"),
        ("2", as_block(np.array([1600.0, 1601.0]), Dialect.SCPI), "from 1600 to 1601 nm"),
    ],
)
def test_a_log_of_another_sweep_is_an_error(clock: VirtualClock, points: str, block: bytes, why: str) -> None:
    peer = Laser(clock, Dialect.SCPI)
    peer.queries |= {"READ:POIN?": lambda _: points, "READ:DAT?": lambda _: block}
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
        peer.queries["POW:ACT?"] = lambda _, dark=dark: dark
        state = laser.state()
        assert state.emitting
        assert not state.ready
        assert state.measured_power_dbm is None
    peer.queries["POW:ACT?"] = lambda _: "-0.2"
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
