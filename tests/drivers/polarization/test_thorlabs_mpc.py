"""The driver of Thorlabs' paddles, in conversations from the APT protocol and against a controller made from it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.drivers.polarization.thorlabs_mpc import ThorlabsMpc
from lumion_hw.errors import (
    ConnectError,
    DeviceError,
    DeviceTimeoutError,
    FrameError,
    IdentityError,
    LimitError,
    LinkTimeout,
    VerifyError,
)
from lumion_hw.interfaces import PolarizationController
from lumion_hw.links import MemoryLink
from lumion_hw.testing.contracts import PolarizationControllerContract
from lumion_hw.testing.wires import DisturbedLink
from tests.drivers.polarization.apt_peer import Controller
from tests.drivers.wired_peer import OnAWire
from tests.waiting import PATIENCE_S

DEG = 170.0 / 1370.0


def opened(clock: VirtualClock, peer: Controller, **options: object) -> ThorlabsMpc:
    driver = ThorlabsMpc(MemoryLink(lambda: peer, clock, "paddles"), clock, device="pol0", **options)
    driver.open()
    return driver


@pytest.fixture
def peer(clock: VirtualClock) -> Controller:
    return Controller(clock)


class TestMpcKeepsThePromises(OnAWire, PolarizationControllerContract):
    @pytest.fixture
    def peer(self, clock: VirtualClock) -> Controller:
        return Controller(clock)

    @pytest.fixture
    def driver(self, link: DisturbedLink, clock: VirtualClock) -> Iterator[ThorlabsMpc]:
        driver = ThorlabsMpc(link, clock, device="pol0")
        driver.open()
        yield driver
        driver.close()

    @pytest.fixture
    def in_force(self, peer: Controller) -> Callable[[], np.ndarray]:
        return lambda: np.array([DEG * paddle.counts for paddle in peer.paddles.values()])


class TestMpcKeepsThePromisesWhileItChatters(TestMpcKeepsThePromises):
    @pytest.fixture
    def peer(self, clock: VirtualClock) -> Controller:
        peer = Controller(clock)
        peer.chatter = True
        return peer


def test_it_is_a_controller_of_angles(clock: VirtualClock, peer: Controller) -> None:
    driver: PolarizationController = opened(clock, peer)
    assert len(driver.actuators) == 3
    paddle = driver.actuators[0]
    assert (paddle.kind, paddle.unit, paddle.minimum, paddle.maximum) == ("angle", "°", 0.0, 170.0)
    assert 1.0 / paddle.step == pytest.approx(8.06, abs=0.005)  # counts per degree


def test_opening_moves_nothing_and_enables_all_paddles_at_once(clock: VirtualClock, peer: Controller) -> None:
    opened(clock, peer)
    assert [frame for frame in peer.log if frame[:2] == b"\x10\x02"] == [bytes.fromhex("10 02 07 01 50 01")]
    assert all(paddle.enabled for paddle in peer.paddles.values())
    assert not [frame for frame in peer.log if frame[0] in (0x43, 0x53)]


def test_angles_go_out_as_the_check_vectors_say(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer)
    driver.set(np.array([685 * DEG, 45.0, 170.0]))
    assert [frame for frame in peer.log if frame[0] == 0x53] == [
        bytes.fromhex("53 04 06 00 D0 01 02 00 6B 01 00 00"),
        bytes.fromhex("53 04 06 00 D0 01 04 00 5A 05 00 00"),
    ]


def test_set_returns_when_the_last_paddle_has_arrived(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer, velocity_percent=10)
    started = clock.now()
    driver.set(np.array([0.0, 85.0, 90.0]))
    assert not any(paddle.moving for paddle in peer.paddles.values())
    assert clock.now() - started == pytest.approx(85.0 / 40.0, abs=0.2)  # 10 % of 400°/s


def test_three_milliseconds_lie_between_two_writes(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer)
    driver.set(np.array([10.0, 20.0, 30.0]))
    gaps = np.diff(peer.written_at)
    assert gaps.min() >= 3e-3 - 1e-9


def test_a_paddle_that_is_there_already_is_not_sent(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer)
    driver.set(np.array([10.0, 20.0, 30.0]))
    peer.log.clear()
    driver.set(np.array([10.0, 21.0, 30.0]))
    assert [frame[6] for frame in peer.log if frame[0] == 0x53] == [2]


@pytest.mark.parametrize("model", ["MPC220", None])
def test_two_paddles_are_two_actuators(clock: VirtualClock, model: str | None) -> None:
    peer = Controller(clock, n_paddles=2)
    driver = opened(clock, peer, model=model)
    assert len(driver.actuators) == 2
    driver.set(np.array([12.0, 13.0]))
    assert driver.read() == pytest.approx([12.0, 13.0], abs=DEG)
    assert peer.log[-1][2] != 4


def test_a_model_with_a_paddle_less_is_refused(clock: VirtualClock) -> None:
    with pytest.raises(IdentityError, match="expected an MPC320; found no paddle 3"):
        opened(clock, Controller(clock, n_paddles=2), model="MPC320")


def test_paddles_that_have_no_home_find_it_before_their_first_move(clock: VirtualClock, peer: Controller) -> None:
    for paddle in peer.paddles.values():
        paddle.homed = False
    driver = opened(clock, peer)
    assert not any(paddle.homed for paddle in peer.paddles.values())
    driver.set(np.array([10.0, 20.0, 30.0]))
    assert all(paddle.homed for paddle in peer.paddles.values())
    assert driver.read() == pytest.approx([10.0, 20.0, 30.0], abs=DEG)


def test_home_leads_the_paddles_to_their_home(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer)
    driver.set(np.array([10.0, 20.0, 30.0]))
    driver.home()
    assert driver.read() == pytest.approx([685 * DEG] * 3)


def test_a_paddle_two_counts_off_is_at_its_setting_and_three_counts_are_too_many(
    clock: VirtualClock, peer: Controller
) -> None:
    driver = opened(clock, peer)
    peer.paddles[1].off = -2
    driver.set(np.array([0.0, 85.0, 85.0]))
    assert driver.read()[0] == 0.0  # a setting that can be set again
    peer.paddles[1].off = 3
    with pytest.raises(VerifyError, match=r"position of paddle 1 in counts: wrote 81, read back 84"):
        driver.set(np.array([10.0, 85.0, 85.0]))


def test_a_paddle_enabled_alone_by_somebody_else_is_joined_by_the_others(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer)
    peer.execute(0x0210, bytes.fromhex("10 02 01 01 50 01"))
    assert not peer.paddles[2].enabled
    driver.set(np.array([10.0, 20.0, 30.0]))
    assert driver.read() == pytest.approx([10.0, 20.0, 30.0], abs=DEG)


def test_a_blocked_paddle_is_named(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer)
    peer.paddles[4].stuck = True
    with pytest.raises(VerifyError, match="position of paddle 3"):
        driver.set(np.array([10.0, 20.0, 30.0]))


def test_a_paddle_that_turns_for_ever_is_given_up(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer)
    peer.velocity = 0.01
    with pytest.raises(DeviceTimeoutError, match=r"paddle 2 did not stop at 20.0°"):
        driver.set(np.array([85.0, 20.0, 85.0]))


def test_a_paddle_that_finds_no_home_is_given_up(clock: VirtualClock, peer: Controller) -> None:
    peer.paddles[2].homed = False
    driver = opened(clock, peer)
    peer.silent_for.clear()
    peer.velocity = 0.001
    peer.paddles[2].target = 0
    with pytest.raises(DeviceTimeoutError, match="paddle 2 did not find its home"):
        driver.set(np.array([10.0, 20.0, 30.0]))


def test_the_error_bit_is_an_error(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer)
    peer.paddles[2].error = True
    with pytest.raises(DeviceError, match="paddle 2 reports an error"):
        driver.set(np.array([10.0, 20.0, 30.0]))


def test_the_velocity_is_set_with_everything_else_as_it_was(clock: VirtualClock, peer: Controller) -> None:
    peer.home, peer.jogs = 700, (10, 20, 30)
    opened(clock, peer, velocity_percent=60)
    assert (peer.velocity, peer.home, peer.jogs) == (60, 700, (10, 20, 30))


def test_a_velocity_that_is_not_kept_is_a_verify_error(clock: VirtualClock, peer: Controller) -> None:
    peer.keeps_velocity = True
    with pytest.raises(VerifyError, match="velocity in %: wrote 60, read back 100"):
        opened(clock, peer, velocity_percent=60)


@pytest.mark.parametrize("percent", [9, 101])
def test_a_velocity_outside_its_limits_is_refused(clock: VirtualClock, peer: Controller, percent: int) -> None:
    with pytest.raises(LimitError, match="velocity"):
        opened(clock, peer, velocity_percent=percent)
    assert not [frame for frame in peer.log if frame[:2] == b"\x30\x05"]


# -- hostile wires


@pytest.mark.parametrize("apart_s", [0.0, 0.01])
def test_messages_nobody_asked_for_arrive_at_any_moment(clock: VirtualClock, peer: Controller, apart_s: float) -> None:
    """pyLabLib #29: 0x0491, 0x0464 and 0x0444 arrive between replies and break readers that expect strict pairs."""
    driver = opened(clock, peer)
    driver.set(np.array([10.0, 20.0, 30.0]))
    for unasked in (
        peer.status(2),
        peer.status(1)[:20] + bytes.fromhex("64 04 02 00 01 50"),
        bytes.fromhex("44 04 04 00 01 50") + peer.status(4),
        bytes.fromhex("64 04 0E 00 81 50 04 00") + bytes(12),
    ):
        peer.ahead, peer.late_s = unasked, apart_s
        assert driver.read() == pytest.approx([10.0, 20.0, 30.0], abs=DEG)


def test_a_completed_move_of_before_is_not_taken_for_this_one(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer, velocity_percent=10)
    peer.ahead = bytes.fromhex("64 04 01 00 01 50")
    driver.set(np.array([0.0, 85.0, 85.0]))
    assert peer.paddles[1].counts == 0
    assert not peer.paddles[1].moving


def test_a_truncated_status_is_a_timeout_and_the_next_query_is_right(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer)
    driver.set(np.array([10.0, 20.0, 30.0]))
    peer.cut = 7
    with pytest.raises(LinkTimeout, match="state of paddle 1"):
        driver.read()
    assert driver.read() == pytest.approx([10.0, 20.0, 30.0], abs=DEG)


def test_a_late_status_answers_no_other_question(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer)
    driver.set(np.array([10.0, 20.0, 30.0]))
    peer.late_s = 0.6
    with pytest.raises(LinkTimeout):
        driver.read()
    driver.set(np.array([50.0, 60.0, 70.0]))
    assert driver.read() == pytest.approx([50.0, 60.0, 70.0], abs=DEG)


def test_bytes_that_are_no_message_never_become_a_position(clock: VirtualClock, peer: Controller) -> None:
    driver = opened(clock, peer)
    driver.set(np.array([10.0, 20.0, 30.0]))
    peer.ahead = b"\x13\x37"
    with pytest.raises(FrameError, match="2 bytes that are not a message"):
        driver.read()
    assert driver.read() == pytest.approx([10.0, 20.0, 30.0], abs=DEG)


@pytest.mark.parametrize("left", range(1, 12))
def test_a_device_that_waits_for_the_rest_of_a_frame_is_brought_into_step(
    clock: VirtualClock, peer: Controller, left: int
) -> None:
    peer.receive(bytes.fromhex("53 04 06 00 D0 01 02 00 6B 01 00 00")[:left])
    driver = opened(clock, peer)
    assert driver.read() == pytest.approx([685 * DEG] * 3)


def test_a_silent_device_is_a_timeout_in_time(clock: VirtualClock, peer: Controller) -> None:
    peer.alive = False
    with pytest.raises(LinkTimeout, match="no reply to 8 requests"):
        opened(clock, peer)
    assert clock.now() < 5.0


def test_an_instrument_that_speaks_text_is_another_one(clock: VirtualClock) -> None:
    class Text(Controller):
        def receive(self, data: bytes) -> None:
            self.say(b"ERR: unknown command\r\n")

    with pytest.raises(IdentityError, match=r"expected an MPC220 or MPC320; found .* not an APT message"):
        opened(clock, Text(clock))


def test_a_motor_controller_without_paddles_is_another_one(clock: VirtualClock, peer: Controller) -> None:
    peer.velocity = 0
    with pytest.raises(IdentityError, match="a velocity of 0 %"):
        opened(clock, peer)


def test_a_device_that_was_away_is_opened_again(clock: VirtualClock, peer: Controller) -> None:
    wire = DisturbedLink(MemoryLink(lambda: peer, clock, "paddles"), clock)
    driver = ThorlabsMpc(wire, clock, device="pol0")
    driver.open()
    driver.close()
    with pytest.raises(ConnectError, match="not open"):
        driver.read()
    for paddle in peer.paddles.values():
        paddle.enabled = paddle.homed = False  # it was switched off meanwhile
    driver.open()
    driver.set(np.array([10.0, 20.0, 30.0]))
    assert driver.read() == pytest.approx([10.0, 20.0, 30.0], abs=DEG)


def test_two_threads_read_whole_settings() -> None:
    clock = SystemClock()
    peer = Controller(clock)  # type: ignore[arg-type]
    peer.chatter = True
    driver = opened(clock, peer)  # type: ignore[arg-type]
    wanted = [np.array([80.0, 81.0, 82.0]), np.array([84.0, 85.0, 86.0])]
    driver.set(wanted[1])
    seen: list[np.ndarray] = []
    reader = threading.Thread(target=lambda: seen.extend(driver.read() for _ in range(6)), daemon=True)
    reader.start()
    for settings in wanted * 2:
        driver.set(settings)
    reader.join(PATIENCE_S)
    assert len(seen) == 6
    for settings in seen:
        assert any(settings == pytest.approx(each, abs=DEG) for each in wanted)


# -- the line


def test_rts_is_released_and_asserted_where_there_is_one(clock: VirtualClock, peer: Controller) -> None:
    class Port(MemoryLink):
        def __init__(self) -> None:
            super().__init__(lambda: peer, clock, "paddles")
            self.rts: list[tuple[bool, float]] = []

        def set_rts(self, on: bool) -> None:
            self.rts.append((on, clock.now()))

    port = Port()
    ThorlabsMpc(port, clock, device="pol0").open()
    (low, released), (high, asserted) = port.rts
    assert (low, high) == (False, True)
    assert asserted - released == pytest.approx(0.05)


def test_a_bench_keeps_it_among_its_polarization_controllers(clock: VirtualClock, peer: Controller) -> None:
    model = BenchModel.model_validate(
        {
            "version": 1,
            "name": "b",
            "devices": {
                "mesh0": {"kind": "lumion-mesh"},
                "pol0": {"kind": "thorlabs-mpc", "model": "MPC320", "velocity_percent": 40},
            },
            "mesh": {"controller": "mesh0", "columns": [2]},
        }
    )
    with Bench(model, lambda *_: MemoryLink(lambda: peer, clock, "paddles"), clock, only=["pol0"]) as bench:
        assert bench.polarizer("pol0") is bench.polarization["pol0"]
        bench.polarization["pol0"].set(np.array([10.0, 20.0, 30.0]))
        assert bench.polarization["pol0"].settle_s == 0.05
    assert peer.velocity == 40
