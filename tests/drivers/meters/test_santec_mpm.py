"""The Santec MPM driver, in conversations from its command list, and against an emulated meter."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.meters.santec_mpm import SantecMpm
from lumion_hw.emulator.meters.santec_mpm import EmulatedSantecMpm
from lumion_hw.emulator.optics.light import Light
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
from tests.wire_vectors import DocumentedPeer

IDN = "SANTEC,MPM-210H,17110001,Ver. 1.02"


class Mpm(DocumentedPeer):
    """Emulated MPM-210H with modules 0 and 2, behind a connection that knows its manual."""

    def __init__(self, clock: VirtualClock) -> None:
        self.light_w = dict.fromkeys(range(1, 9), 1e-5)
        meter = EmulatedSantecMpm("pm1", clock, np.random.default_rng(1), self._light, modules=(0, 2))
        super().__init__("santec_mpm", meter, clock, b"\r\n")

    def _light(self, module: int, port: int, _at_s: float) -> Light:
        return Light(self.light_w[port + 2 * module])

    def complete_log(self, powers_mw: list[float]) -> None:
        """Let each log that is started be complete at once, with these samples."""
        payload = struct.pack(f"<{len(powers_mw)}f", *powers_mw)
        block = b"#%d%d%s" % (len(str(len(payload))), len(payload), payload)
        self.replies |= {f"LOGG? {module},{port}": block for module in (0, 2) for port in (1, 2, 3, 4)}
        self.replies["STAT?"] = f"1,{len(powers_mw)}"


def opened(clock: VirtualClock, peer: Mpm, **options: str) -> SantecMpm:
    meter = SantecMpm(MemoryLink(lambda: peer, clock, "mpm"), clock, device="pm1", **options)
    meter.open()
    return meter


@pytest.fixture
def peer(clock: VirtualClock) -> Mpm:
    return Mpm(clock)


def test_a_triggered_log_takes_a_sample_at_each_pulse_and_keeps_the_levels(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    meter.set_range_dbm(6, -20.0)
    peer.sent.clear()
    peer.complete_log([1e-3, 2e-3, 9.9e37])
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
    assert meter.read(1).power_w == pytest.approx(1e-5, rel=0.1)
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


@pytest.mark.parametrize(("setting", "value"), [("UNIT", "0"), ("AVG", "1000")])
def test_what_somebody_else_changed_is_set_again_and_the_reading_taken_anew(
    clock: VirtualClock, peer: Mpm, setting: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    meter = opened(clock, peer)
    kept, peer.light_w[6] = peer.ask_elsewhere(f"{setting}?"), 1e-6
    for read in (lambda: meter.read(6), lambda: meter.read_all()[5]):
        peer.ask_elsewhere(f"{setting} {value}")
        assert read().power_w == pytest.approx(1e-6, rel=0.1)
        assert peer.ask_elsewhere(f"{setting}?") == kept
    assert "another program or the front panel changed the" in caplog.text


def test_a_wavelength_that_was_set_is_held_for_its_port(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    meter.set_wavelength_nm(6, 1310.0)
    peer.ask_elsewhere("DWAV 2,2,1550")
    peer.ask_elsewhere("DWAV 2,3,1260")
    meter.read(6)
    assert float(peer.ask_elsewhere("DWAV? 2,2")) == 1310.0
    assert float(peer.ask_elsewhere("DWAV? 2,3")) == 1260.0  # the driver has set none


def test_a_log_during_which_somebody_changed_the_unit_is_no_log(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    peer.complete_log([1e-3])
    run = meter.start_triggered_log((6,), 1, 2e-4)
    peer.replies["UNIT?"] = "0"
    with pytest.raises(VerifyError, match="unit"):
        run.wait(1.0)
    del peer.replies["UNIT?"]
    assert meter.read(6).power_w == pytest.approx(1e-5, rel=0.1)


@pytest.mark.parametrize("idn", ["Keysight Technologies,N7745C,MY1,1.0", "SANTEC,TSL-570,1,1.0"])
def test_another_instrument_is_refused(clock: VirtualClock, peer: Mpm, idn: str) -> None:
    peer.replies["*IDN?"] = idn
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
    peer.replies["IDIS?"] = reply
    with pytest.raises(FrameError, match="IDIS"):
        opened(clock, peer)


def test_an_empty_mainframe_says_so(clock: VirtualClock, peer: Mpm) -> None:
    peer.replies["IDIS?"] = "0,0,0,0,0"
    with pytest.raises(DeviceError, match="no module"):
        opened(clock, peer)


def test_a_meter_that_stays_in_dbm_is_refused(clock: VirtualClock, peer: Mpm) -> None:
    peer.replies["UNIT?"] = "0"
    with pytest.raises(VerifyError, match="unit"):
        opened(clock, peer)


@pytest.mark.parametrize("reply", ["1e-5,1e-5,1e-5", "1e-5,1e-5,1e-5,1e-5,1e-5", "a,b,c,d", ""])
def test_readings_of_another_shape_are_refused(clock: VirtualClock, peer: Mpm, reply: str) -> None:
    meter = opened(clock, peer)
    peer.replies["READ? 0"] = reply
    with pytest.raises(FrameError, match="READ"):
        meter.read(1)


def test_averaging_goes_out_in_milliseconds(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    meter.set_averaging_s(8, 0.25)
    assert "AVG 250" in peer.sent


def test_a_wavelength_that_is_not_applied_is_noticed_with_the_instruments_words(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    peer.ignored.add("DWAV")
    peer.replies["ERR?"] = "7,Parameter error"
    with pytest.raises(VerifyError, match="7, 'Parameter error'"):
        meter.set_wavelength_nm(1, 1310.0)


def test_ranges_are_gain_levels(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    meter.set_range_dbm(6, -20.0)
    assert (peer.ask_elsewhere("DAUTO? 2"), peer.ask_elsewhere("DLEV? 2,2")) == ("0", "4")
    with pytest.raises(ConfigError, match="does not exist"):
        meter.set_range_dbm(6, -25.0)
    with pytest.raises(LimitError):
        meter.set_gain_level(6, 6)
    meter.set_range_dbm(6, None)
    assert peer.ask_elsewhere("DAUTO? 2") == "1"


def test_a_log_is_fetched_by_module_and_port(clock: VirtualClock, peer: Mpm) -> None:
    meter = opened(clock, peer)
    peer.complete_log([1e-3, 9.9e37, 2e-3])
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
    peer.replies["LOGG? 0,1"] = b"#520000" + b"\n" * 4 * n_samples
    log = meter.log((1,), n_samples)
    assert np.all(log.power_w == 1e-3 * struct.unpack("<f", b"\n" * 4)[0])
    assert meter.read(1).power_w == pytest.approx(1e-5, rel=0.1)


@pytest.mark.parametrize("state", ["0,17", "-1,17"])
def test_a_log_that_does_not_complete_is_stopped(clock: VirtualClock, peer: Mpm, state: str) -> None:
    meter = opened(clock, peer)
    peer.replies["STAT?"] = state
    with pytest.raises(DeviceTimeoutError, match="did not complete"):
        meter.log((1,), 100)
    assert peer.sent[-1] == "STOP"
