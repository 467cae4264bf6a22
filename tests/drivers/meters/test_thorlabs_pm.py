"""The Thorlabs driver, in conversations from the PM100D manual, and against an emulated meter."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.meters.thorlabs_pm import ThorlabsPm
from lumion_hw.emulator.meters.thorlabs_pm import ThorlabsPm100
from lumion_hw.emulator.optics.light import Light
from lumion_hw.errors import (
    DeviceError,
    DeviceTimeoutError,
    FrameError,
    IdentityError,
    LimitError,
    LinkTimeout,
    OutOfRangeError,
    VerifyError,
)
from lumion_hw.interfaces import PowerMeter, RangeState
from lumion_hw.links import MemoryLink, RecordedExchange, ReplayPeer, replay_link
from tests.wire_vectors import DocumentedPeer

IDN = "Thorlabs,PM100D,P0000001,2.4.0"
SENSOR = "S154C,17021101,01-Feb-2017,1,18,33"


def ask(command: str, reply: str, delay_s: float = 0.0) -> RecordedExchange:
    return RecordedExchange(command.encode() + b"\n", reply.encode() + b"\n", delay_s)


def put(command: str, *errors: str) -> list[RecordedExchange]:
    return [
        RecordedExchange(command.encode() + b"\n"),
        *(ask("SYST:ERR?", error) for error in (*errors, '+0,"No error"')),
    ]


HELD = "CONF?;:SENS:POW:REF:STAT?;:SENS:POW:UNIT?;:SENS:CORR?"
AS_HELD = "POW;0;W;0.00000000E+00"
OPENING = [
    ask("SYST:ERR?", '+0,"No error"'),
    ask("SYST:SENS:IDN?", SENSOR),
    ask("SENS:POW:RANG? MIN", "1.00000000E-09"),
    ask("SENS:POW:RANG? MAX", "1.00000000E-02"),
    *put("CONF:POW"),
    *put("SENS:POW:REF:STAT 0"),
    *put("SENS:POW:UNIT W"),
    ask("SENS:CORR?", "0.00000000E+00"),
    ask(HELD, AS_HELD),
    ask("SENS:AVER?", "1"),
]


def read(reply: str, held: str = AS_HELD, delay_s: float = 0.0) -> RecordedExchange:
    """A reading in one message with what it depends on."""
    return ask(f"READ?;:{HELD}", f"{reply};{held}", delay_s)


SET_AGAIN = [
    *put("CONF:POW"),
    *put("SENS:POW:REF:STAT 0"),
    *put("SENS:POW:UNIT W"),
    *put("SENS:CORR 0"),
    ask("SENS:CORR?", "0.00000000E+00"),
]


def meter_on(*exchanges: RecordedExchange, **options: str) -> tuple[ThorlabsPm, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer(exchanges, clock)
    return ThorlabsPm(replay_link(peer, clock), clock, device="pm1", **options), peer, clock


def opened(*exchanges: RecordedExchange) -> tuple[ThorlabsPm, ReplayPeer, VirtualClock]:
    meter, peer, clock = meter_on(ask("*IDN?", IDN), *OPENING, *exchanges)
    meter.open()
    return meter, peer, clock


class Pm100(DocumentedPeer):
    """Emulated PM100D with an S154C sensor, behind a connection that knows its manual."""

    def __init__(self, clock: VirtualClock) -> None:
        self.light_w = 0.0
        meter = ThorlabsPm100("pm1", clock, np.random.default_rng(1), lambda: Light(self.light_w))
        super().__init__("thorlabs_pm100", meter, clock)


def test_opening_checks_identity_sensor_and_unit() -> None:
    meter, peer, _ = opened()
    assert peer.remaining == ()
    as_interface: PowerMeter = meter
    assert (as_interface.channels, as_interface.model, as_interface.serial) == ((1,), "PM100D", "P0000001")
    assert (meter.sensor.name, meter.sensor.flags) == ("S154C", 33)


@pytest.mark.parametrize("idn", ["THORLABS,PM100D,P1,1.0.0", "Thorlabs,PM100USB,P1,1.4.0", "thorlabs,pm400,P1,1.0"])
def test_the_maker_is_matched_in_any_letter_case(idn: str) -> None:
    meter, _, _ = meter_on(ask("*IDN?", idn), *OPENING)
    meter.open()
    assert meter.serial == "P1"


@pytest.mark.parametrize(
    "idn", ["Keysight Technologies,N7745C,MY1,1.0", "THORLABS,PM100,P1,1.0", "SANTEC,MPM-210H,1,Ver. 1", "junk"]
)
def test_another_instrument_is_refused(idn: str) -> None:
    meter, _, _ = meter_on(ask("*IDN?", idn))
    with pytest.raises(IdentityError, match="expected PM100D or"):
        meter.open()


def test_a_meter_without_a_sensor_says_so() -> None:
    meter, _, _ = meter_on(
        ask("*IDN?", IDN), ask("SYST:ERR?", '+0,"No error"'), ask("SYST:SENS:IDN?", "no sensor,,,0,0,0")
    )
    with pytest.raises(DeviceError, match="no sensor is connected"):
        meter.open()


def test_a_sensor_of_energy_is_no_power_meter() -> None:
    meter, _, _ = meter_on(
        ask("*IDN?", IDN), ask("SYST:ERR?", '+0,"No error"'), ask("SYST:SENS:IDN?", "ES111C,1,x,2,1,2")
    )
    with pytest.raises(DeviceError, match="does not measure power"):
        meter.open()


def test_a_unit_that_stays_dbm_stops_the_opening() -> None:
    found = ask(HELD, "POW;0;DBM;0.00000000E+00")
    meter, _, _ = meter_on(ask("*IDN?", IDN), *OPENING[:-2], found, *SET_AGAIN, found)
    with pytest.raises(VerifyError, match="unit: wrote W, read back DBM"):
        meter.open()


LIMITS = [ask("SENS:CORR:WAV? MIN", "8.00000000E+02"), ask("SENS:CORR:WAV? MAX", "1.70000000E+03")]


def test_a_wavelength_is_sent_and_read_back_in_nm() -> None:
    meter, peer, _ = opened(*LIMITS, *put("SENS:CORR:WAV 1310"), ask("SENS:CORR:WAV?", "1.31000000E+03"))
    meter.set_wavelength_nm(1, 1310.0)
    assert peer.remaining == ()


@pytest.mark.parametrize("kept", ["1.55000000E+03", "1.31000000E-06"])
def test_a_wavelength_that_is_not_applied_or_in_metres_is_noticed(kept: str) -> None:
    meter, _, _ = opened(*LIMITS, *put("SENS:CORR:WAV 1310"), ask("SENS:CORR:WAV?", kept))
    with pytest.raises(VerifyError, match="wavelength in nm"):
        meter.set_wavelength_nm(1, 1310.0)


def test_a_wavelength_in_metres_is_refused() -> None:
    meter, peer, _ = opened(*LIMITS)
    with pytest.raises(LimitError, match="nm"):
        meter.set_wavelength_nm(1, 1.31e-6)
    assert peer.remaining == ()


def test_over_range_is_no_power() -> None:
    meter, _, _ = opened(read("9.90000000E+37"))
    reading = meter.read(1)
    assert reading.state is RangeState.OVER
    with pytest.raises(OutOfRangeError):
        _ = reading.power_w


def test_a_setting_answered_with_a_mark_is_an_error() -> None:
    meter, _, _ = opened(ask("SENS:CORR:WAV?", "9.91E37"), *put("")[1:])
    with pytest.raises(DeviceError, match="marks a failed query"):
        meter.wavelength_nm()


@pytest.mark.parametrize(
    ("reply", "held", "what"),
    [
        ("-1.95500000E+01", "POW;0;DBM;0.00000000E+00", "unit to DBM"),
        ("-3.00000000E+00", "POW;1;W;0.00000000E+00", "relative readings"),
        ("4.20000000E-06", "CURR;0;W;0.00000000E+00", "measured quantity to CURR"),
        ("1.11000000E-04", "POW;0;W;1.00000000E+01", "correction in dB"),
    ],
)
def test_what_somebody_else_changed_is_set_again_and_the_reading_taken_anew(
    reply: str, held: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    meter, peer, _ = opened(read(reply, held), *SET_AGAIN, read("1.11000000E-05"))
    assert meter.read(1).power_w == 1.11e-5
    assert peer.remaining == ()
    assert f"another program or the front panel changed the {what}" in caplog.text


def test_a_wavelength_changed_by_somebody_else_is_set_again() -> None:
    clock = VirtualClock()
    peer = Pm100(clock)
    meter = ThorlabsPm(MemoryLink(lambda: peer, clock, "pm"), clock, device="pm1")
    meter.open()
    peer.ask_elsewhere("SENS:CORR:WAV 1310")
    meter.read(1)
    assert float(peer.ask_elsewhere("SENS:CORR:WAV?")) == 1310.0  # the driver has set none: that of the panel is right
    meter.set_wavelength_nm(1, 1550.0)
    peer.ask_elsewhere("SENS:CORR:WAV 1310")
    assert meter.settings(1).wavelength_nm == 1310.0  # settings are those in force
    meter.read(1)
    assert float(peer.ask_elsewhere("SENS:CORR:WAV?")) == 1550.0


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        # The sensor's highest range is 10 mW.
        ("2.00000000E-02", RangeState.OK),
        ("2.20000000E-02", RangeState.OVER),
        ("-9.90000000E-05", RangeState.OK),
        ("-1.10000000E-04", RangeState.INVALID),
    ],
)
def test_a_power_that_no_sensor_reads_is_no_power(reply: str, state: RangeState) -> None:
    meter, _, _ = opened(read(reply))
    assert meter.read(1).state is state


def test_replies_in_another_number_are_refused() -> None:
    meter, _, _ = opened(read("1.0E-6;2.0E-6"))
    with pytest.raises(FrameError, match="expected 5 replies"):
        meter.read(1)


def test_long_averaging_is_waited_for() -> None:
    clock = VirtualClock()
    peer = Pm100(clock)
    meter = ThorlabsPm(MemoryLink(lambda: peer, clock, "pm"), clock, device="pm1")
    meter.open()
    peer.light_w = 1e-6
    meter.set_averaging_s(1, 6.0001)
    assert peer.ask_elsewhere("SENS:AVER?") == "2001"  # whole samples of 3 ms, rounded up
    assert meter.read(1).power_w == pytest.approx(1e-6, rel=0.1)


def test_ranges_are_the_meters_own_and_hold_what_was_asked() -> None:
    clock = VirtualClock()
    peer = Pm100(clock)
    meter = ThorlabsPm(MemoryLink(lambda: peer, clock, "pm"), clock, device="pm1")
    meter.open()
    meter.set_range_dbm(1, -23.0)  # 5 uW
    assert meter.range_dbm(1) == pytest.approx(-13.14, abs=0.01)  # 48.5 uW: the next range of the sensor
    with pytest.raises(LimitError):
        meter.set_range_dbm(1, 11.0)


def test_a_zeroing_that_never_ends_is_stopped() -> None:
    clock = VirtualClock()
    peer = Pm100(clock)
    peer.replies["SENS:CORR:COLL:ZERO:STAT?"] = "1"
    meter = ThorlabsPm(MemoryLink(lambda: peer, clock, "pm"), clock, device="pm1")
    meter.open()
    with pytest.raises(DeviceTimeoutError, match="did not end"):
        meter.zero()
    assert "SENS:CORR:COLL:ZERO:ABOR" in peer.sent


def test_a_late_reading_never_answers_the_next_query() -> None:
    meter, peer, _ = opened(
        read("1.00000000E-03", delay_s=2.5),
        ask("*IDN?", IDN),
        ask("SENS:CORR:WAV?", "1.55000000E+03"),
    )
    with pytest.raises(LinkTimeout):
        meter.read(1)
    assert meter.wavelength_nm() == 1550.0
    assert peer.remaining == ()
