"""The ITLA driver, in conversations after OIF-ITLA-MSA-01.3 and against a module made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.lasers.itla import ItlaLaser
from lumion_hw.errors import (
    BadValueError,
    BusyError,
    ConfigError,
    ConnectError,
    DeviceError,
    DeviceTimeoutError,
    FrameError,
    IdentityError,
    LimitError,
    LinkTimeout,
    NotSupportedError,
)
from lumion_hw.interfaces import TunableLaser
from lumion_hw.links import MemoryLink, RecordedExchange, ReplayPeer, replay_link
from lumion_hw.sessions.itla import ItlaSession
from lumion_hw.testing.contracts import TunableLaserContract
from lumion_hw.testing.contracts.common import STRAY_BYTES
from lumion_hw.testing.wires import DisturbedLink
from tests.drivers.lasers.itla_peer import Module

THIRD_WORDS = frozenset({0x67, 0x68, 0x69, 0x6A, 0x6B})


def opened(clock: VirtualClock, module: Module, **options: str) -> ItlaLaser:
    laser = ItlaLaser(MemoryLink(lambda: module, clock, "module"), clock, device="laser0", **options)
    laser.open()
    return laser


@pytest.fixture
def module(clock: VirtualClock) -> Module:
    return Module(clock)


class TestItlaKeepsThePromises(TunableLaserContract):
    @pytest.fixture
    def clock(self) -> VirtualClock:
        """That of the contract is the wall clock, on which the module takes its two seconds to tune."""
        return VirtualClock()

    @pytest.fixture
    def link(self, module: Module, clock: VirtualClock) -> DisturbedLink:
        return DisturbedLink(MemoryLink(lambda: module, clock, "module"), clock)

    @pytest.fixture
    def driver(self, link: DisturbedLink, clock: VirtualClock) -> Iterator[ItlaLaser]:
        laser = ItlaLaser(link, clock, device="laser0")
        laser.open()
        yield laser
        laser.close()

    @pytest.fixture
    def emitted(self, module: Module) -> Callable[[], tuple[float, float] | None]:
        return lambda: module.light

    @pytest.fixture
    def unplug(self, link: DisturbedLink) -> Callable[[], None]:
        return link.cut

    @pytest.fixture
    def disturb(self, link: DisturbedLink) -> Callable[[bytes], None]:
        return link.disturb

    @pytest.fixture
    def hold_replies(self, link: DisturbedLink) -> Callable[[bool], None]:
        return link.hold

    @pytest.fixture
    def drip(self, link: DisturbedLink) -> Callable[[], None]:
        return link.drip


def test_a_bench_keeps_it_among_its_lasers_and_leaves_its_light_alone(clock: VirtualClock, module: Module) -> None:
    model = BenchModel.model_validate(
        {
            "version": 1,
            "name": "b",
            "devices": {"mesh0": {"kind": "lumion-mesh"}, "itla0": {"kind": "itla-laser", "serial": "SN42"}},
            "mesh": {"controller": "mesh0", "columns": [2]},
        }
    )
    module.registers[0x32] = 8
    with Bench(model, lambda *_: MemoryLink(lambda: module, clock, "module"), clock, only=["itla0"]) as bench:
        assert list(bench.lasers) == ["itla0"]
        assert module.light is not None
        with bench.dark():
            pass
        assert module.light is None
        bench.lasers["itla0"].enable()
    assert module.registers[0x32] == 8


# -- the conversation, byte by byte


def session_on(*pairs: str) -> tuple[ItlaSession, ReplayPeer]:
    clock = VirtualClock()
    frames = [bytes.fromhex(pair) for pair in pairs]
    peer = ReplayPeer([RecordedExchange(sent, got) for sent, got in zip(frames[::2], frames[1::2], strict=True)], clock)
    session = ItlaSession(replay_link(peer, clock), clock, device="laser0")
    session.open_link(1.0)
    return session, peer


def test_a_power_out_of_range_is_refused_by_the_module_with_its_reason() -> None:
    session, peer = session_on("B1 31 0B B8", "F5 31 0B B8", "00 00 00 00", "64 00 00 13")
    with pytest.raises(BadValueError, match="RVE"):
        session.write(0x31, 3000)
    assert peer.remaining == ()


def test_a_frequency_while_the_output_is_on_is_refused_by_the_module_with_its_reason() -> None:
    session, _ = session_on("A1 35 00 C1", "E5 35 00 C1", "00 00 00 00", "C4 00 00 19")
    with pytest.raises(DeviceError, match="CIE") as caught:
        session.write(0x35, 193)
    assert caught.value.code == 9


def test_an_unknown_register_is_not_supported() -> None:
    session, _ = session_on("80 7F 00 00", "D5 7F 00 00", "00 00 00 00", "44 00 00 11")
    with pytest.raises(NotSupportedError, match="RNI"):
        session.read(0x7F)


def test_an_enable_that_is_pending_says_so() -> None:
    session, _ = session_on("81 32 00 08", "E7 32 00 08")
    assert session.write(0x32, 8) is True
    session, _ = session_on("81 32 00 08", "D4 32 00 08")  # the checksum makes the first nibble D
    assert session.write(0x32, 8) is False


def test_a_string_is_read_word_by_word() -> None:
    words = ("A4 0B 43 57", "04 0B 20 49", "64 0B 54 4C", "A4 0B 41 00")
    pairs = [each for word in words for each in ("B0 0B 00 00", word)]
    session, peer = session_on("10 01 00 00", "F6 01 00 08", *pairs)
    assert session.read_string(0x01) == b"CW ITLA\0"
    assert peer.remaining == ()


def test_a_request_that_arrived_damaged_is_sent_again() -> None:
    session, peer = session_on("60 42 00 00", "CC 00 00 00", "60 42 00 00", "74 42 03 E8")
    assert session.read(0x42) == 1000
    assert peer.remaining == ()


def test_a_reply_that_arrived_damaged_is_asked_for_again_and_not_the_write_repeated() -> None:
    session, peer = session_on("61 31 03 E8", "34 31 03 E9", "88 00 00 00", "34 31 03 E8")
    session.write(0x31, 1000)
    assert peer.remaining == ()


def test_a_write_is_repeated_when_the_last_reply_is_that_of_an_earlier_one() -> None:
    session, peer = session_on(
        *("61 31 03 E8", "34 31 03 E9"), *("88 00 00 00", "A4 36 10 1B"), *("61 31 03 E8", "34 31 03 E8")
    )
    session.write(0x31, 1000)
    assert peer.remaining == ()


def test_replies_that_stay_damaged_are_an_error_and_no_number() -> None:
    session, _ = session_on(*("60 42 00 00", "74 42 03 E9") * 3)
    with pytest.raises(FrameError, match="not a reply to this request"):
        session.read(0x42)
    assert session.is_out_of_sync


def test_the_reply_of_another_register_is_an_error_and_no_number() -> None:
    session, _ = session_on("60 42 00 00", "34 31 03 E8")
    with pytest.raises(FrameError):
        session.read(0x42)


# -- identity


def test_it_says_what_the_module_says(clock: VirtualClock, module: Module) -> None:
    laser: TunableLaser = opened(clock, module)
    assert (laser.model, laser.serial) == ("LX-9", "SN42")
    assert laser.ranges.frequency_thz == pytest.approx((191.5, 196.25))
    assert laser.ranges.power_dbm == (6.0, 13.5)


def test_another_module_is_refused(clock: VirtualClock, module: Module) -> None:
    with pytest.raises(IdentityError, match="serial SN43; found ACME LX-9, serial SN42"):
        opened(clock, module, expected_serial="SN43")


def test_an_instrument_that_speaks_text_is_no_itla(clock: VirtualClock) -> None:
    class Chatty(Module):
        def answer(self, frame: bytes) -> bytes:
            return b"-113"

    with pytest.raises(IdentityError, match="expected an ITLA"):
        opened(clock, Chatty(clock))


def test_a_silent_line_is_a_time_out(clock: VirtualClock, module: Module) -> None:
    module.alive = False
    with pytest.raises(LinkTimeout):
        opened(clock, module)


def test_before_opening_everything_is_refused(clock: VirtualClock, module: Module) -> None:
    laser = ItlaLaser(MemoryLink(lambda: module, clock, "module"), clock, device="laser0")
    for call in (lambda: laser.ranges, lambda: laser.model, lambda: laser.set_frequency_thz(193.1)):
        with pytest.raises(ConnectError, match="not open"):
            call()


# -- settings


def test_the_frequency_is_written_in_three_words_with_channel_one(clock: VirtualClock, module: Module) -> None:
    laser = opened(clock, module)
    laser.set_frequency_thz(193.4123)
    # 193.4123 THz by hand: 0x35 = 193, 0x36 = 4123, 0x67 = 0, 0x30 = 1, 0x65 = 0.
    assert module.log == [(0x35, 193), (0x36, 4123), (0x67, 0), (0x30, 1), (0x65, 0)]


def test_the_words_never_say_a_frequency_outside_the_range_in_between(clock: VirtualClock, module: Module) -> None:
    laser = opened(clock, module)
    for thz in (196.2, 191.6, 196.249999, 191.5, 196.0, 191.999999):
        laser.set_frequency_thz(thz)  # the module refuses each word that would leave its range
        assert laser.state().frequency_thz == pytest.approx(thz, abs=1e-9)


def test_channels_of_a_grid_are_part_of_the_frequency(clock: VirtualClock, module: Module) -> None:
    module.registers |= {0x35: 193, 0x36: 1000, 0x30: 5, 0x34: 500}
    assert opened(clock, module).state().frequency_thz == pytest.approx(193.1 + 4 * 0.05)


def test_a_module_without_the_third_word_takes_steps_of_100_mhz_and_refuses_others(clock: VirtualClock) -> None:
    module = Module(clock, lacks=THIRD_WORDS)
    laser = opened(clock, module)
    assert laser.ranges.frequency_step_thz == 1e-4
    laser.set_frequency_thz(193.4123)
    assert laser.state().frequency_thz == pytest.approx(193.4123, abs=1e-9)
    before = list(module.log)
    with pytest.raises(ConfigError, match="100 MHz"):
        laser.set_frequency_thz(193.41235)
    assert module.log == before


def test_a_wavelength_in_nm_is_no_frequency(clock: VirtualClock, module: Module) -> None:
    with pytest.raises(LimitError, match=r"requested 1550\.12 THz"):
        opened(clock, module).set_frequency_thz(1550.12)
    assert module.log == []


def test_settings_wait_for_a_pending_operation(clock: VirtualClock, module: Module) -> None:
    laser = opened(clock, module)
    laser.enable()
    assert module.pending
    laser.set_power_dbm(9.0)  # the module would refuse it with CIP
    assert clock.now() >= 2.0
    assert module.registers[0x31] == 900


def test_an_operation_that_never_ends_is_a_time_out_that_says_so(clock: VirtualClock) -> None:
    module = Module(clock, tuning_s=1e6)
    laser = opened(clock, module)
    laser.enable()
    with pytest.raises(DeviceTimeoutError, match="operations pending: 0x01"):
        laser.set_power_dbm(9.0)


def test_busy_by_another_host_is_told_apart() -> None:
    session, _ = session_on("61 31 03 E8", "25 31 03 E8", "00 00 00 00", "04 00 01 14")
    with pytest.raises(BusyError, match="CIP"):
        session.write(0x31, 1000)


def test_fine_tuning_works_while_it_emits(clock: VirtualClock, module: Module) -> None:
    laser = opened(clock, module)
    laser.enable()
    laser.set_fine_tuning_mhz(-250)
    assert module.registers[0x62] == 0x10000 - 250
    with pytest.raises(LimitError):
        laser.set_fine_tuning_mhz(6001)


def test_a_fatal_flag_that_is_only_remembered_from_tuning_is_cleared(clock: VirtualClock, module: Module) -> None:
    laser = opened(clock, module)
    laser.enable()
    module.registers[0x20] = 1 << 13 | 1 << 2  # FATAL because of FFREQL; nothing is wrong now
    assert laser.wait_ready(60.0).ready
    assert not module.registers[0x20] >> 13 & 1


def test_a_fatal_module_is_an_error_and_not_waited_for(clock: VirtualClock, module: Module) -> None:
    laser = opened(clock, module)
    laser.enable()
    module.registers[0x20] = 1 << 13 | 1 << 8  # FATAL, and the power is wrong now
    started = clock.now()
    with pytest.raises(DeviceError, match="FPWR, FATAL"):
        laser.wait_ready(60.0)
    assert clock.now() - started < 10.0  # it is believed when tuning, which takes seconds, is over


# -- a bad line


class BusyModule(Module):
    """A module that reads its line only from ``busy_until_s`` on; until then bytes wait in its input buffer."""

    busy_until_s = 0.1

    def receive(self, data: bytes) -> None:
        self.input += data

    def transmit(self) -> bytes:
        if self.clock.now() >= self.busy_until_s:
            super().receive(b"")
        return super().transmit()

    def next_event(self) -> float | None:
        return self.busy_until_s if self.clock.now() < self.busy_until_s else None


@pytest.mark.parametrize("stray", [STRAY_BYTES, b"half a line" * 20])
def test_replies_to_stray_bytes_that_arrive_after_the_first_request_do_not_prevent_opening(
    clock: VirtualClock, stray: bytes
) -> None:
    module = BusyModule(clock)
    module.receive(stray)  # more frames than a request has attempts, and the module answers each: CC 00 00 00
    laser = opened(clock, module)
    assert (laser.model, laser.serial) == ("LX-9", "SN42")
    assert laser.state().power_dbm == 8.0


def test_frames_damaged_both_ways_change_nothing(clock: VirtualClock, module: Module) -> None:
    laser = opened(clock, module)
    module.damage_requests, module.damage_replies = 1, 1
    assert laser.state().power_dbm == 8.0
    assert laser.session.counters.incomplete == 0


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_module_left_in_the_middle_of_a_frame_is_brought_back_in_step(
    clock: VirtualClock, module: Module, lost: int
) -> None:
    laser = opened(clock, module)
    module.input = b"\0" * lost  # as if the rest of a frame was lost on the line
    with pytest.raises((LinkTimeout, FrameError)):
        laser.session.read(0x42)
    assert laser.state().power_dbm == 8.0
    assert module.input == b""
