"""The PM1000 driver in both forms of its registers, against an instrument made from its User's Guide."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from lumion_hw.acquisition.columns import Reader
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.drivers.polarization.novoptel_pm1000 import NovoptelPm1000
from lumion_hw.errors import (
    ConfigError,
    ConnectError,
    DeviceError,
    FrameError,
    IdentityError,
    LinkError,
    LinkTimeout,
    OutOfRangeError,
    VerifyError,
)
from lumion_hw.links import MemoryLink, RecordedExchange, ReplayPeer, replay_link
from lumion_hw.sessions.codecs.novoptel import LAN, USB2
from lumion_hw.sessions.novoptel import NovoptelSession
from lumion_hw.testing.contracts import PolarimeterContract
from lumion_hw.testing.wires import DisturbedLink
from tests.drivers.polarization.pm1000_peer import Polarimeter
from tests.drivers.wired_peer import OnAWire
from tests.waiting import PATIENCE_S

STATE = (0.48, -0.6, 0.64)


@pytest.fixture(params=[False, True], ids=["LAN", "USB 2"])
def peer(request: pytest.FixtureRequest, clock: VirtualClock) -> Polarimeter:
    return Polarimeter(clock, text=request.param)


def opened(clock: VirtualClock, peer: Polarimeter, **options: object) -> NovoptelPm1000:
    link = MemoryLink(lambda: peer, clock, "polarimeter")
    driver = NovoptelPm1000(link, clock, device="pm0", serial_line=peer.text, **options)
    driver.open()
    return driver


class TestPm1000OverLanKeepsThePromises(OnAWire, PolarimeterContract):
    text = False

    @pytest.fixture
    def peer(self, clock: VirtualClock) -> Polarimeter:
        return Polarimeter(clock, text=self.text)

    @pytest.fixture
    def driver(self, link: DisturbedLink, clock: VirtualClock) -> Iterator[NovoptelPm1000]:
        driver = NovoptelPm1000(link, clock, device="pm0", serial_line=self.text)
        driver.open()
        yield driver
        driver.close()

    @pytest.fixture
    def shine(self, peer: Polarimeter) -> Callable[[float, tuple[float, float, float], float], None]:
        def shine(power_w: float, state: tuple[float, float, float], dop: float) -> None:
            peer.light = lambda _: (1e6 * power_w, state, dop)

        return shine


class TestPm1000OverUsb2KeepsThePromises(TestPm1000OverLanKeepsThePromises):
    text = True


# -- the conversation, byte by byte


def session_on(form: object, *exchanges: tuple[bytes, bytes]) -> tuple[NovoptelSession, ReplayPeer]:
    clock = VirtualClock()
    peer = ReplayPeer([RecordedExchange(sent, got) for sent, got in exchanges], clock)
    session = NovoptelSession(replay_link(peer, clock), clock, device="pm0", form=form, landmarks=(656, 657, 658))
    session.open_link(1.0)
    return session, peer


def test_the_check_vectors_over_lan_are_met() -> None:
    session, peer = session_on(LAN, (b"\x57\x02\x01\x00\x0a", b""), (b"\x52\x02\x0a", b"\x03\xe8"))
    session.write(513, 10)
    assert session.read(522) == (0x03E8,)
    assert peer.remaining == ()


def test_the_check_vectors_over_usb_2_are_met() -> None:
    session, peer = session_on(USB2, (b"W201000A\r", b""), (b"R20A0000\r", b"03E8\r"))
    session.write(513, 10)
    assert session.read(522) == (1000,)
    assert peer.remaining == ()


@pytest.mark.parametrize("reply", [b"3E8\r0", b"03E8\n", b"0x03\r", b"+3E8\r"])
def test_what_is_no_word_of_four_digits_is_a_frame_error(reply: bytes) -> None:
    session, _ = session_on(USB2, (b"R20A0000\r", reply))
    with pytest.raises(FrameError, match="not a word"):
        session.read(522)


def test_bytes_behind_a_reply_are_a_frame_error() -> None:
    session, _ = session_on(LAN, (b"\x52\x02\x0a", b"\x03\xe8\x00"))
    with pytest.raises(FrameError, match="followed by"):
        session.read(522)


@pytest.mark.parametrize(("address", "word"), [(4096, 0), (-1, 0), (0, 65536), (0, -1)])
def test_an_address_has_twelve_bits_and_a_word_sixteen(address: int, word: int) -> None:
    session, peer = session_on(LAN)
    with pytest.raises(ConfigError, match="12 bits"):
        session.write(address, word)
    assert peer.remaining == ()


# -- readings


def test_the_identity_is_complete_and_constant(clock: VirtualClock, peer: Polarimeter) -> None:
    driver = opened(clock, peer)
    assert (driver.model, driver.serial, driver.firmware) == ("PM1000-100M-XL-FA-N20-D 82", "82", "1.0.7.2")


def test_a_reading_is_power_state_and_degree_of_polarization(clock: VirtualClock, peer: Polarimeter) -> None:
    reading = opened(clock, peer).read()
    assert reading.power_w == pytest.approx(100e-6, rel=1e-6)
    assert reading.stokes == pytest.approx(STATE, abs=1e-6)
    assert reading.dop == pytest.approx(0.9, abs=1e-6)


def test_the_components_are_of_one_instant_although_the_light_turns_meanwhile(
    clock: VirtualClock, peer: Polarimeter
) -> None:
    """At 100 rad/s and 2 ms per access, live registers would be 0.2 rad apart from one component to the next."""
    peer.seconds_per_access = 2e-3
    peer.light = lambda t: (100.0, (np.cos(100.0 * t), np.sin(100.0 * t), 0.0), 1.0)
    driver = opened(clock, peer)
    for _ in range(20):
        reading = driver.read()
        assert reading.dop == pytest.approx(1.0, abs=1e-4)
        assert abs(reading.stokes[2]) < 1e-4
        # The copy was taken when the first of the nine accesses came.
        angle = 100.0 * (reading.time_s + peer.seconds_per_access)
        assert reading.stokes[:2] == pytest.approx([np.cos(angle), np.sin(angle)], abs=1e-3)


def test_a_reading_waits_for_an_average_that_began_after_the_call(clock: VirtualClock, peer: Polarimeter) -> None:
    driver = opened(clock, peer)
    driver.set_averaging_s(10e-3)
    called = clock.now()
    assert driver.read().time_s - called >= 2 * 10.48e-3


def test_a_little_more_than_all_light_may_be_polarized(clock: VirtualClock, peer: Polarimeter) -> None:
    peer.light = lambda _: (100.0, STATE, 1.004)
    assert opened(clock, peer).read().dop == pytest.approx(1.004, abs=1e-4)


def test_unpolarized_light_has_no_state(clock: VirtualClock, peer: Polarimeter) -> None:
    peer.light = lambda _: (100.0, STATE, 0.0)
    with pytest.raises(DeviceError, match="not polarized"):
        opened(clock, peer).read()


@pytest.mark.parametrize(("power_uw", "words"), [(5000.0, "too much light"), (1.0, "too little light"), (0.0, "light")])
def test_alarms_of_the_range_are_errors(clock: VirtualClock, peer: Polarimeter, power_uw: float, words: str) -> None:
    driver = opened(clock, peer)
    peer.light = lambda _: (power_uw, STATE, 1.0)
    with pytest.raises(OutOfRangeError, match=words):
        driver.read()


def test_an_alarm_of_before_is_cleared_and_not_believed(clock: VirtualClock, peer: Polarimeter) -> None:
    driver = opened(clock, peer)
    peer.registers[0] = 0b11
    assert driver.read().power_w == pytest.approx(100e-6)
    assert peer.writes == [(0, 0)]


@pytest.mark.parametrize(("alarms", "words"), [(0b10001, "temperature of the instrument"), (0b1, "unnamed alarm")])
def test_other_alarms_that_stay_are_errors(clock: VirtualClock, peer: Polarimeter, alarms: int, words: str) -> None:
    driver = opened(clock, peer)
    peer.registers[0] = alarms
    peer.keeps.add(0)
    with pytest.raises(DeviceError, match=words):
        driver.read()


# -- settings


@pytest.mark.parametrize(("asked_s", "exponent"), [(10e-9, 0), (1e-6, 7), (1e-3, 17), (10.48e-3, 20)])
def test_the_nearest_averaging_time_is_taken(
    clock: VirtualClock, peer: Polarimeter, asked_s: float, exponent: int
) -> None:
    found_s = opened(clock, peer).set_averaging_s(asked_s)
    assert peer.registers[1] == exponent
    assert found_s == pytest.approx(10e-9 * 2**exponent)  # 2^20 samples: 95.4 S/s


def test_the_frequency_goes_out_in_steps_of_ten_gigahertz(clock: VirtualClock, peer: Polarimeter) -> None:
    found_thz = opened(clock, peer).set_frequency_thz(193.414)
    assert peer.registers[69] == 19341  # GHz/10
    assert found_thz == pytest.approx(193.41)


def test_a_setting_that_is_not_kept_is_a_verify_error(clock: VirtualClock, peer: Polarimeter) -> None:
    driver = opened(clock, peer)
    peer.keeps |= {1, 69}
    with pytest.raises(VerifyError, match="averaging time: wrote 17, read back 10"):
        driver.set_averaging_s(1e-3)
    with pytest.raises(VerifyError, match="wrote 19400, read back 19340"):
        driver.set_frequency_thz(194.0)


# -- hostile wires


def test_a_late_reply_is_not_the_next_word(clock: VirtualClock, peer: Polarimeter) -> None:
    driver = opened(clock, peer)
    peer.late_s = 0.7
    with pytest.raises(LinkTimeout):
        driver.read()
    assert driver.read().stokes == pytest.approx(STATE, abs=1e-6)


@pytest.mark.parametrize("n_registers", [1, 2, 3, 4])
def test_a_strange_word_in_front_shifts_no_others(clock: VirtualClock, peer: Polarimeter, n_registers: int) -> None:
    """Over LAN any two bytes look like a reply: the known word at the end gives them away."""
    link = MemoryLink(lambda: peer, clock, "polarimeter")
    form = USB2 if peer.text else LAN
    session = NovoptelSession(link, clock, device="pm0", form=form, landmarks=tuple(range(656, 672)))
    session.open()
    addresses = (579, 580, 581, 645)[:n_registers]
    peer.latency_s = 1e-3  # so that the surplus reply may not have arrived yet when the last one is taken
    peer.ahead = b"1234\r" if peer.text else b"\x12\x34"
    with pytest.raises(FrameError):
        session.read(*addresses)
    assert session.read(*addresses) == (19130, 19620, 19340, 82)[:n_registers]


@pytest.mark.parametrize("lost", [1, 2])
def test_a_truncated_reply_is_an_error_and_the_next_reading_is_right(
    clock: VirtualClock, peer: Polarimeter, lost: int
) -> None:
    driver = opened(clock, peer)
    peer.lose = lost
    with pytest.raises(LinkError):
        driver.read()
    assert driver.read().stokes == pytest.approx(STATE, abs=1e-6)


def test_half_a_line_of_an_earlier_host_is_ended_at_opening(clock: VirtualClock) -> None:
    peer = Polarimeter(clock, text=True)
    peer.receive(b"W20100")
    assert opened(clock, peer).read().dop == pytest.approx(0.9)
    assert peer.writes == []


def test_another_instrument_is_refused(clock: VirtualClock, peer: Polarimeter) -> None:
    peer.registers |= {144 + i: int.from_bytes(b"EP", "big") for i in range(16)}
    with pytest.raises(IdentityError, match=r"expected a PM1000.*found 'EPEP"):
        opened(clock, peer)


def test_an_instrument_that_speaks_otherwise_is_refused(clock: VirtualClock, peer: Polarimeter) -> None:
    driver = NovoptelPm1000(MemoryLink(lambda: peer, clock, "x"), clock, device="pm0", serial_line=not peer.text)
    with pytest.raises((IdentityError, LinkTimeout)):
        driver.open()


def test_another_serial_number_is_refused(clock: VirtualClock, peer: Polarimeter) -> None:
    with pytest.raises(IdentityError, match=r"serial 83; found PM1000.*serial 82"):
        opened(clock, peer, expected_serial="83")


def test_a_silent_instrument_is_a_timeout(clock: VirtualClock, peer: Polarimeter) -> None:
    peer.alive = False
    with pytest.raises(LinkTimeout):
        opened(clock, peer)


def test_an_instrument_that_was_away_is_opened_again(clock: VirtualClock, peer: Polarimeter) -> None:
    driver = opened(clock, peer)
    driver.close()
    with pytest.raises(ConnectError, match="not open"):
        driver.read()
    driver.open()
    assert driver.read().stokes == pytest.approx(STATE, abs=1e-6)


def test_two_threads_swap_no_words() -> None:
    clock = SystemClock()
    peer = Polarimeter(clock)  # type: ignore[arg-type]
    driver = opened(clock, peer)  # type: ignore[arg-type]
    seen: list[np.ndarray] = []
    reader = threading.Thread(target=lambda: seen.extend(driver.read().stokes for _ in range(50)), daemon=True)
    reader.start()
    for index in range(50):
        assert driver.set_frequency_thz(193.0 + 0.01 * index) == pytest.approx(193.0 + 0.01 * index)
    reader.join(PATIENCE_S)
    assert len(seen) == 50
    assert np.allclose(seen, STATE, atol=1e-6)


@pytest.mark.parametrize(("address", "text"), [("tcp://192.0.2.9:5025", False), ("serial:///dev/x?baud=230400", True)])
def test_a_bench_keeps_it_among_its_polarimeters_and_logs_what_it_reads(
    clock: VirtualClock, address: str, text: bool
) -> None:
    peer = Polarimeter(clock, text=text)
    model = BenchModel.model_validate(
        {
            "version": 1,
            "name": "b",
            "devices": {
                "mesh0": {"kind": "lumion-mesh"},
                "pm0": {"kind": "novoptel-pm1000", "serial": "82", "frequency_thz": 194.0},
            },
            "mesh": {"controller": "mesh0", "columns": [2]},
        }
    )
    with Bench(model, lambda *_: MemoryLink(lambda: peer, clock, address), clock, only=["pm0"]) as bench:
        assert list(bench.polarimeters) == ["pm0"]
        assert (peer.registers[1], peer.registers[69]) == (17, 19400)
        reader = Reader(bench, ["pm0"])
        assert [column.name for column in reader.columns] == ["pm0.power", "pm0.dop", "pm0.s1", "pm0.s2", "pm0.s3"]
        assert [value.number for value in reader.read()] == pytest.approx([100e-6, 0.9, *STATE], abs=1e-6)


def test_averaging_and_frequency_changed_by_somebody_else_are_set_again(
    clock: VirtualClock, peer: Polarimeter, caplog: pytest.LogCaptureFixture
) -> None:
    polarimeter = opened(clock, peer)
    polarimeter.read()
    assert peer.registers[69] == 19340  # no frequency was set: that of the instrument is right
    polarimeter.set_frequency_thz(193.1)
    peer.registers[69], peer.registers[1] = 19500, 20
    polarimeter.read()
    assert (peer.registers[69], peer.registers[1]) == (19310, 10)
    assert "another program changed registers" in caplog.text


def test_a_register_that_somebody_keeps_changing_is_an_error_and_no_state(
    clock: VirtualClock, peer: Polarimeter
) -> None:
    polarimeter = opened(clock, peer)
    light = peer.light

    def changing(at_s: float) -> tuple[float, tuple[float, float, float], float]:
        peer.registers[1] = 20
        return light(at_s)

    peer.light = changing
    with pytest.raises(VerifyError, match="Another program changes these"):
        polarimeter.read()
