"""The Santec MPM driver, in conversations from its command list and against a meter made from it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.meters.santec_mpm import SantecMpm
from lumion_hw.errors import (
    BusyError,
    ConfigError,
    DeviceError,
    DeviceTimeoutError,
    FrameError,
    IdentityError,
    LimitError,
    NotSupportedError,
    VerifyError,
)
from lumion_hw.interfaces import PowerMeter, RangeState
from lumion_hw.links import MemoryLink, RecordedExchange, ReplayPeer, replay_link
from lumion_hw.testing.contracts import PowerMeterContract
from tests.drivers.scpi_peer import ScpiPeer
from tests.drivers.wired_peer import OnAWire

IDN = "SANTEC,MPM-210H,17110001,Ver. 1.02"


class Mpm(ScpiPeer):
    """Modules 0 and 2; one last error instead of a queue; no SCPI tree."""

    error_query = "ERR?"
    no_error = "0,No error"
    end = b"\r\n"

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock, IDN)
        self.light_w = dict.fromkeys(range(1, 9), 1e-5)
        self.of_port: dict[str, float] = {}
        self.state, self.pulses = "1,0", False
        self.log_mw = [1e-3]
        self.numbers = {
            "AVG": [10.0, 0.01, 10000.0],
            "UNIT": [0.0, 0.0, 1.0],
            "LOGN": [1.0, 1.0, 1e6],
            "TRIG": [1.0, 0.0, 1.0],
        }
        self.queries = {
            "IDIS?": lambda _: "1,0,1,0,0",
            "READ?": self.read,
            # Without pulses a run at the external trigger never ends.
            "STAT?": lambda _: "0,0" if self.numbers["TRIG"][0] and not self.pulses else self.state,
            "LOGG?": lambda _: self.logged(),
        }
        for word, default in (("DWAV", 1550.0), ("DLEV", 1.0), ("DAUTO", 1.0)):
            self.actions[word] = lambda text, w=word: self.put(w, text)
            self.queries[f"{word}?"] = lambda place, w=word, d=default: f"{self.of_port.get(f'{w} {place}', d):g}"
        self.actions |= {"ZERO": self.zero, "MEAS": lambda _: None, "STOP": lambda _: None, "WMOD": lambda _: None}

    def put(self, word: str, text: str) -> None:
        place, _, value = text.rpartition(",")
        self.of_port[f"{word} {place}"] = float(value)

    def read(self, module: str) -> str:
        first = {"0": 1, "2": 5}[module]
        scale = 1e3 if self.numbers["UNIT"][0] else 0.0
        powers = [self.light_w[first + port] * scale for port in range(4)]
        top = 10.0
        return ",".join(f"{9.9e37 if each > top else each:.6e}" for each in powers)

    def zero(self, _: str) -> None:
        if any(self.light_w.values()):
            self.queue.append("23,Zeroing failed")

    def logged(self) -> bytes:
        payload = struct.pack(f"<{len(self.log_mw)}f", *self.log_mw)
        return b"#%d%d%s" % (len(str(len(payload))), len(payload), payload)


def opened(clock: VirtualClock, peer: Mpm, **options: str) -> SantecMpm:
    meter = SantecMpm(MemoryLink(lambda: peer, clock, "mpm"), clock, device="pm1", **options)
    meter.open()
    return meter


@pytest.fixture
def peer(clock: VirtualClock) -> Mpm:
    return Mpm(clock)


class TestSantecMpmKeepsThePromises(OnAWire, PowerMeterContract):
    wavelength_limits_nm = pytest.fixture(lambda self: (1250.0, 1630.0), name="wavelength_limits_nm")
    averaging_limits_s = pytest.fixture(lambda self: (1e-5, 10.0), name="averaging_limits_s")

    @pytest.fixture
    def peer(self, clock: VirtualClock) -> Mpm:
        return Mpm(clock)

    @pytest.fixture
    def driver(self, link, clock) -> Iterator[SantecMpm]:
        meter = SantecMpm(link, clock, device="pm1")
        meter.open()
        yield meter
        meter.close()

    @pytest.fixture
    def illuminate(self, peer: Mpm) -> Callable[[int, float], None]:
        return peer.light_w.__setitem__

    @pytest.fixture
    def overload(self, peer: Mpm) -> Callable[[int], None]:
        return lambda channel: peer.light_w.__setitem__(channel, 1.0)

    @pytest.fixture
    def active_wavelength_nm(self, driver: SantecMpm) -> Callable[[int], float]:
        return driver.wavelength_nm


def test_a_triggered_log_takes_a_sample_at_each_pulse_and_keeps_the_levels(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    meter.set_range_dbm(6, -20.0)
    peer.sent.clear()
    peer.pulses, peer.log_mw = True, [1e-3, 2e-3, 9.9e37]
    run = meter.start_triggered_log((6,), 3, 2e-4)
    assert [each for each in peer.sent if "?" not in each] == ["AVG 0.2", "LOGN 3", "TRIG 1", "WMOD CONST1", "MEAS"]
    for busy in (lambda: meter.read(1), meter.read_all, meter.zero, lambda: meter.set_range_dbm(1, None)):
        with pytest.raises(BusyError, match="a log is in progress"):
            busy()
    log = run.wait(1.0)
    assert log.power_w[0, :2] == pytest.approx([1e-6, 2e-6])
    assert log.state[0, 2] is RangeState.OVER
    assert log.period_s is None
    assert peer.sent[-1] == "STOP"
    assert meter.read(1).power_w == pytest.approx(1e-5)
    with pytest.raises(NotSupportedError, match="no internal trigger pulses"):
        meter.start_triggered_log((6,), 3, 2e-4, internal_trigger=True)


def test_the_conversation_is_words_with_commas_and_cr_lf() -> None:
    clock = VirtualClock()
    pairs = [
        ("*IDN?", IDN),
        ("IDIS?", "1,1,1,1,1"),
        ("UNIT 1", None),
        ("UNIT?", "1"),
        ("AVG?", "5"),
        ("READ? 1", "0.000100,0.000200,-0.000001,0.000400"),
        ("UNIT?", "1"),
        ("AVG?", "5"),
    ]
    exchanges = [RecordedExchange(f"{sent}\r\n".encode(), f"{got}\r\n".encode() if got else b"") for sent, got in pairs]
    peer = ReplayPeer(exchanges, clock)
    meter = SantecMpm(replay_link(peer, clock), clock, device="pm1")
    meter.open()
    as_interface: PowerMeter = meter
    assert len(as_interface.channels) == 20
    assert meter.module_and_port(6) == (1, 2)
    reading = meter.read(6)
    assert reading.power_w == pytest.approx(200e-9)
    assert reading.timestamp_s >= 2 * 0.005  # the average of 5 ms began after the call
    assert peer.remaining == ()


@pytest.mark.parametrize(("setting", "value"), [("UNIT", 0.0), ("AVG", 9000.0)])
def test_what_somebody_else_changed_is_set_again_and_the_reading_taken_anew(
    clock: VirtualClock, peer: Mpm, setting: str, value: float, caplog: pytest.LogCaptureFixture
) -> None:
    meter = opened(clock, peer)
    kept, peer.light_w[6] = peer.numbers[setting][0], 1e-6
    for read in (lambda: meter.read(6), lambda: meter.read_all()[5]):
        peer.numbers[setting][0] = value
        assert read().power_w == pytest.approx(1e-6)
        assert peer.numbers[setting][0] == kept
    assert "another program or the front panel changed the" in caplog.text


def test_a_wavelength_that_was_set_is_held_for_its_port(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    meter.set_wavelength_nm(6, 1310.0)
    peer.of_port |= {"DWAV 2,2": 1550.0, "DWAV 2,3": 1260.0}
    meter.read(6)
    assert peer.of_port["DWAV 2,2"] == 1310.0
    assert peer.of_port["DWAV 2,3"] == 1260.0  # the driver has set none


def test_a_log_during_which_somebody_changed_the_unit_is_no_log(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    peer.pulses = True
    run = meter.start_triggered_log((6,), 1, 2e-4)
    peer.numbers["UNIT"][0] = 0.0
    with pytest.raises(VerifyError, match="unit"):
        run.wait(1.0)
    assert meter.read(6).power_w == pytest.approx(1e-5)


@pytest.mark.parametrize("idn", ["Keysight Technologies,N7745C,MY1,1.0", "SANTEC,TSL-570,1,1.0"])
def test_another_instrument_is_refused(clock: VirtualClock, peer: Mpm, idn: str) -> None:
    peer.identity = idn
    with pytest.raises(IdentityError, match="MPM-210 or MPM-210H"):
        opened(clock, peer)


def test_channels_follow_the_modules_that_are_there(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    assert meter.channels == (1, 2, 3, 4, 5, 6, 7, 8)
    assert [meter.module_and_port(channel) for channel in (1, 4, 5, 8)] == [(0, 1), (0, 4), (2, 1), (2, 4)]
    with pytest.raises(ConfigError, match="channels 1 to 8"):
        meter.read(9)


@pytest.mark.parametrize("reply", ["1,1", "2,0,0,0,0", "yes"])
def test_a_wrong_list_of_modules_is_refused(clock: VirtualClock, peer: Mpm, reply: str) -> None:
    peer.queries["IDIS?"] = lambda _: reply
    with pytest.raises(FrameError, match="IDIS"):
        opened(clock, peer)


def test_an_empty_mainframe_says_so(clock: VirtualClock, peer: Mpm) -> None:
    peer.queries["IDIS?"] = lambda _: "0,0,0,0,0"
    with pytest.raises(DeviceError, match="no module"):
        opened(clock, peer)


def test_a_meter_that_stays_in_dbm_is_refused(clock: VirtualClock, peer: Mpm) -> None:
    peer.queries["UNIT?"] = lambda _: "0"
    with pytest.raises(VerifyError, match="unit"):
        opened(clock, peer)


@pytest.mark.parametrize("reply", ["1e-5,1e-5,1e-5", "1e-5,1e-5,1e-5,1e-5,1e-5", "a,b,c,d", ""])
def test_readings_of_another_shape_are_refused(clock: VirtualClock, peer: Mpm, reply: str) -> None:
    meter = opened(clock, peer)
    peer.queries["READ?"] = lambda _: reply
    with pytest.raises(FrameError, match="READ"):
        meter.read(1)


def test_averaging_goes_out_in_milliseconds(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    meter.set_averaging_s(8, 0.25)
    assert "AVG 250" in peer.sent


def test_a_wavelength_that_is_not_applied_is_noticed_with_the_instruments_words(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    peer.actions["DWAV"] = lambda _: peer.queue.append("7,Parameter error")
    with pytest.raises(VerifyError, match="7, 'Parameter error'"):
        meter.set_wavelength_nm(1, 1310.0)


def test_ranges_are_gain_levels(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    meter.set_range_dbm(6, -20.0)
    assert peer.of_port == {"DAUTO 2": 0.0, "DLEV 2,2": 4.0}
    with pytest.raises(ConfigError, match="does not exist"):
        meter.set_range_dbm(6, -25.0)
    with pytest.raises(LimitError):
        meter.set_gain_level(6, 6)
    meter.set_range_dbm(6, None)
    assert peer.of_port["DAUTO 2"] == 1.0


def test_a_log_is_fetched_by_module_and_port(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    peer.log_mw = [1e-3, 9.9e37, 2e-3]
    log = meter.log((1, 7), 3)
    assert [each for each in peer.sent if each.startswith("LOGG")] == ["LOGG? 0,1", "LOGG? 2,3"]
    assert log.power_w[1, [0, 2]] == pytest.approx([1e-6, 2e-6], rel=1e-6)
    assert log.state[0].tolist() == [RangeState.OK, RangeState.OVER, RangeState.OK]
    assert np.isnan(log.power_w[0, 1])
    assert log.period_s == pytest.approx(0.01)
    assert {"TRIG 0", "WMOD CONST2"} <= set(peer.sent)


def test_a_log_keeps_the_pace_of_the_internal_trigger(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    meter.set_averaging_s(1, 0.025)
    meter.set_range_dbm(1, 0.0)
    assert meter.log((1,), 1).period_s == pytest.approx(0.03)
    assert "WMOD CONST1" in peer.sent


def test_a_log_of_line_feeds_is_read_by_its_length(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    n_samples = 5000
    peer.queries["LOGG?"] = lambda _: b"#520000" + b"\n" * 4 * n_samples
    log = meter.log((1,), n_samples)
    assert np.all(log.power_w == 1e-3 * struct.unpack("<f", b"\n" * 4)[0])
    assert meter.read(1).power_w == pytest.approx(1e-5)


@pytest.mark.parametrize("state", ["0,17", "-1,17"])
def test_a_log_that_does_not_complete_is_stopped(clock: VirtualClock, peer: Mpm, state: str) -> None:
    meter = opened(clock, peer)
    peer.state = state
    with pytest.raises(DeviceTimeoutError, match="did not complete"):
        meter.log((1,), 100)
    assert peer.sent[-1] == "STOP"
