"""Sweeps on the LUMION mesh controller: checked before they are sent, run by the board, whole or an error."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import firmware_protocol as fp
from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.errors import (
    ConfigError,
    DeviceError,
    LimitError,
    LinkLost,
    LinkTimeout,
    NotSupportedError,
    SafetyError,
    VerifyError,
)
from lumion_hw.interfaces import ControllerLimits, SweepPlan
from lumion_hw.links.memory import MemoryLink
from tests.drivers.mesh.lumion.lumion_testboard import HELLO, SpecBoard
from tests.waiting import PATIENCE_S

N = HELLO.n_dac
LIMITS = ControllerLimits(np.full(N, 10.0), np.full(N, 1000.0), total_power_mw=400.0)
SATURATED_MA = 20.0


@pytest.fixture
def board(clock: VirtualClock) -> SpecBoard:
    return SpecBoard(clock)


@pytest.fixture
def driver(board: SpecBoard, clock: VirtualClock) -> Iterator[LumionMeshController]:
    made = LumionMeshController(MemoryLink(board.connect, clock, "memory://mesh0"), clock, device="mesh0")
    made.open()
    made.configure(LIMITS)
    yield made
    made.close()


def codes(*currents_ma: float) -> list[int]:
    return [round(current / 20.0 * 65535) for current in currents_ma]


def ramp(n: int, heater: int = 0) -> tuple[dict[int, float], ...]:
    return tuple({heater: 0.01 * point} for point in range(n))


def test_points_build_on_each_other_and_every_record_belongs_to_its_point(
    driver: LumionMeshController, board: SpecBoard
) -> None:
    driver.program(np.linspace(1.0, 2.0, N))
    before = board.driven.tolist()
    result = driver.sweep(SweepPlan(({0: 3.0}, {1: 4.0}, {}, {0: 0.0, 2: 5.0})))
    # Monitor m of the board reads the code of heater m: 65535 is 2 mA of photocurrent and 20 mA of heater current.
    driven_ma = result.photocurrent_ma * 10.0
    at_2, at_3 = 1.0 + 2 / 15, 1.0 + 3 / 15
    rows = [[3.0, 1.0 + 1 / 15, at_2, at_3], [3.0, 4.0, at_2, at_3], [3.0, 4.0, at_2, at_3], [0.0, 4.0, 5.0, at_3]]
    assert driven_ma == pytest.approx(np.array(rows), abs=2e-4)
    assert (result.monitors, result.late, result.saturated.any()) == ((0, 1, 2, 3), 0, False)
    assert result.generation == board.generation
    assert board.driven.tolist() == before


def test_a_table_to_start_from_and_monitors_can_be_chosen_and_the_last_point_kept(
    driver: LumionMeshController, board: SpecBoard
) -> None:
    plan = SweepPlan(({1: 2.0}, {3: 1.0}), start_ma=np.full(N, 0.5), monitors=(3, 1), keep_last=True)
    result = driver.sweep(plan)
    assert result.monitors == (1, 3)  # ascending, as they travel
    assert result.photocurrent_ma * 10.0 == pytest.approx(np.array([[2.0, 0.5], [2.0, 1.0]]), abs=2e-4)
    assert board.driven.tolist() == codes(0.5, 2.0, 0.5, 1.0, *[0.5] * (N - 4))
    assert driver.program(np.zeros(N)).number > result.generation


def test_the_image_is_made_of_changes_and_travels_in_pieces_that_fit_the_frame(
    driver: LumionMeshController, board: SpecBoard
) -> None:
    driver.sweep(SweepPlan(ramp(200)))
    pieces = board.sent(fp.SweepLoadRequest)
    # Header 20 B, then 2 B of head and 4 B per change; the first point changes nothing. Section 2.4: 476 B fit MTU 512.
    assert pieces[0].total == 20 + 200 * 2 + 199 * 4
    assert [len(piece.data) for piece in pieces] == [476, 476, 264]
    (start,) = board.sent(fp.SweepStartRequest)
    assert start.base_crc32 == fp.table_crc32([0] * N)
    assert start.run_flags == 0


def test_a_point_waits_before_it_is_measured_and_no_shorter_than_asked(
    driver: LumionMeshController, board: SpecBoard, clock: VirtualClock
) -> None:
    start = clock.now()
    driver.sweep(SweepPlan(ramp(20), settle_s=0.0123456, n_avg=8))
    assert board.run is not None
    image = board.run.image
    assert (image.settle_us, image.n_avg) == (12346, 8)
    assert image.dwell_us == 13_000  # 12346 µs and 8 scans of 50 µs, in whole ticks of 1 ms
    assert clock.now() - start > 20 * 0.0127


def test_a_monitor_above_full_scale_is_no_number(driver: LumionMeshController, board: SpecBoard) -> None:
    driver.configure(replace(LIMITS, heater_max_ma=np.full(N, 20.0)))
    result = driver.sweep(SweepPlan(({0: SATURATED_MA}, {0: 1.0})))
    assert result.saturated[:, 0].tolist() == [True, False]
    assert math.isnan(result.photocurrent_ma[0, 0])


# --- what is refused before anything is sent -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "kind", "text"),
    [
        (SweepPlan(({0: 1.0}, {0: 1.0, 5: 10.1})), LimitError, r"point 1, channel 5.*requested 10.1 mA, limit 10 mA"),
        (SweepPlan(({7: -0.1},)), LimitError, r"point 0, channel 7.*limit 0 mA"),
        (SweepPlan(({7: math.nan},)), LimitError, r"point 0, channel 7.*requested nan mA"),
        (SweepPlan(({N: 1.0},)), ConfigError, r"point 0: heater 16 does not exist.*0 to 15"),
        (SweepPlan(({-1: 1.0},)), ConfigError, r"point 0: heater -1"),
        # 4 heaters of 1000 Ω at 10 mA are 400 mW, the cap; a fifth one at 1 mA adds 1 mW.
        (SweepPlan((dict.fromkeys(range(4), 10.0), {4: 1.0})), LimitError, r"point 1: .*power.*limit 400 mW"),
        (SweepPlan(({0: 1.0},), start_ma=np.full(N, 11.0)), LimitError, r"start_ma, channel 0.*limit 10 mA"),
        (SweepPlan(({0: 1.0},), start_ma=np.zeros(3)), ConfigError, r"start_ma.*\(3,\)"),
        (SweepPlan(({3: 1.0 + 0j},)), ConfigError, "point 0, channel 3.*not a number"),
        (SweepPlan(({3: "1.0"},)), ConfigError, "point 0, channel 3.*not a number"),  # type: ignore[dict-item]
        (SweepPlan(({3: np.ma.masked},)), ConfigError, "point 0, channel 3.*not a number"),
        (SweepPlan(()), ConfigError, "no point"),
        (SweepPlan(({},), n_avg=0), LimitError, "n_avg"),
        (SweepPlan(({},), settle_s=-1.0), LimitError, "settle_s"),
        (SweepPlan(({},), settle_s=5000.0), LimitError, "settle_s"),
        (SweepPlan(({},), monitors=(4,)), ConfigError, r"monitor 4.*0 to 3"),
        (SweepPlan(({},), monitors=()), ConfigError, "no monitor"),
        (SweepPlan(tuple({0: 0.01 * (i % 2)} for i in range(12_000))), LimitError, r"encoded sweep.*65536 B.*Split"),
    ],
)
def test_a_plan_outside_the_limits_is_refused_by_point_and_channel_before_anything_is_sent(
    driver: LumionMeshController, board: SpecBoard, plan: SweepPlan, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        driver.sweep(plan)
    assert not board.sent(fp.SweepLoadRequest)
    assert not board.driven.any()


def test_as_many_points_fit_as_the_controller_says_even_if_all_channels_change(driver: LumionMeshController) -> None:
    most = driver.info.sweep_points
    # A header of 20 B, a mask of 2 B, and per point 2 B and 16 codes (section 10.1).
    assert most == (65536 - 22) // 34
    points = tuple(dict.fromkeys(range(N), 0.1 * (1 + i % 2)) for i in range(most + 1))
    assert len(driver.sweep(SweepPlan(points[:-1])).photocurrent_ma) == most
    with pytest.raises(LimitError, match="encoded sweep"):
        driver.sweep(SweepPlan(points))


def test_the_power_of_the_last_allowed_point_is_allowed(driver: LumionMeshController) -> None:
    assert driver.sweep(SweepPlan((dict.fromkeys(range(4), 10.0),))).late == 0


def test_a_controller_without_sweeps_says_so(board: SpecBoard, driver: LumionMeshController) -> None:
    board.hello = replace(board.hello, features=0)
    assert driver.info.on_board_sweep
    driver.open()
    assert not driver.info.on_board_sweep
    with pytest.raises(NotSupportedError, match="has no sweeps"):
        driver.sweep(SweepPlan(({},)))


def test_latched_faults_keep_a_sweep_from_starting(driver: LumionMeshController, board: SpecBoard) -> None:
    driver.outputs_off()
    with pytest.raises(SafetyError, match=r"SWEEP_START.*ESTOP"):
        driver.sweep(SweepPlan(({},)))


# --- records that do not arrive ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_records_lost_on_the_way_are_fetched_by_their_index(
    driver: LumionMeshController, board: SpecBoard, lost: int
) -> None:
    board.lose_events[fp.Event.SWEEP_DATA] = lost
    result = driver.sweep(SweepPlan(ramp(150)))
    assert board.sent(fp.SweepReadRequest)
    assert np.rint(result.photocurrent_ma[:, 0] / 2.0 * 65535).tolist() == codes(*(0.01 * i for i in range(150)))


def test_a_run_whose_every_event_is_lost_is_read_whole(driver: LumionMeshController, board: SpecBoard) -> None:
    board.lose_events.update({fp.Event.SWEEP_DATA: 10_000, fp.Event.SWEEP_DONE: 1})
    result = driver.sweep(SweepPlan(ramp(90)))
    assert np.rint(result.photocurrent_ma[:, 0] / 2.0 * 65535).tolist() == codes(*(0.01 * i for i in range(90)))
    assert result.late <= 2  # bounded by the length of the run, because SWEEP_DONE was lost


def test_the_ring_is_released_while_it_runs_so_that_it_never_has_to_pause(
    driver: LumionMeshController, board: SpecBoard
) -> None:
    result = driver.sweep(SweepPlan(ramp(900, heater=1)))
    assert HELLO.sweep_ring // 4 == 1024
    acks = [request.up_to for request in board.sent(fp.SweepAckRequest)]
    assert acks == sorted(set(acks))
    assert acks[-1] == 900
    assert (result.late, len(result.photocurrent_ma)) == (0, 900)


def test_a_ring_smaller_than_the_sweep_is_released_in_time(clock: VirtualClock) -> None:
    board = SpecBoard(clock, replace(HELLO, sweep_ring=64))  # 16 records of 4 monitors
    with LumionMeshController(MemoryLink(board.connect, clock, "memory"), clock, device="mesh0") as driver:
        driver.configure(LIMITS)
        result = driver.sweep(SweepPlan(ramp(400)))
    assert np.rint(result.photocurrent_ma[:, 0] / 2.0 * 65535).tolist() == codes(*(0.01 * i for i in range(400)))


# --- runs that end early -------------------------------------------------------------------------------------------


def at(clock: VirtualClock, when_s: float, action: Callable[[], object]) -> None:
    """Do something once, inside whatever waits then."""
    ticker = clock.call_every(when_s, lambda: (ticker.cancel(), action()))


@pytest.mark.parametrize(
    ("source", "reason"), [(fp.FaultSource.SUPPLY, "FAULT"), (fp.FaultSource.ESTOP, "ESTOP")], ids=["fault", "estop"]
)
def test_a_run_that_a_fault_ends_says_why_and_how_many_points_there_are(
    driver: LumionMeshController, board: SpecBoard, clock: VirtualClock, source: fp.FaultSource, reason: str
) -> None:
    at(clock, 0.5005, lambda: board.trip(source))
    with pytest.raises(DeviceError, match=rf"ended early \({reason}\): (\d+) of 1000 points were recorded") as caught:
        driver.sweep(SweepPlan(ramp(1000)))
    recorded = int(str(caught.value).split(": ")[2].split(" ")[0])
    assert 200 < recorded < 500  # 2 ms each, until half a second from the beginning
    assert [fault.source for fault in driver.faults()] == [source.name]


def test_an_interrupted_sweep_is_aborted_and_the_base_table_driven_again(
    driver: LumionMeshController, board: SpecBoard, clock: VirtualClock
) -> None:
    driver.program(np.full(N, 1.0))

    def interrupt() -> None:
        raise KeyboardInterrupt

    at(clock, 0.3, interrupt)
    with pytest.raises(KeyboardInterrupt):
        driver.sweep(SweepPlan(ramp(1000)))
    assert board.run is not None
    assert board.run.reason is fp.EndReason.ABORTED
    assert board.driven.tolist() == codes(*[1.0] * N)
    assert driver.program(np.zeros(N)).number == board.generation  # the session is as good as new


def test_a_run_that_makes_no_progress_is_ended(driver: LumionMeshController, board: SpecBoard) -> None:
    board.next_due = lambda: None  # type: ignore[method-assign]  # nothing ever happens on this board
    with pytest.raises(DeviceError, match=r"no progress for 5.* s: 0 of 3 points"):
        driver.sweep(SweepPlan(ramp(3)))
    assert board.sent(fp.SweepAbortRequest)


def test_a_start_nobody_answered_is_aborted_because_it_may_run(driver: LumionMeshController, board: SpecBoard) -> None:
    board.mute.add(fp.Command.SWEEP_START)
    with pytest.raises(LinkTimeout, match="SWEEP_START"):
        driver.sweep(SweepPlan(ramp(100)))
    assert board.run is not None
    assert board.run.reason is fp.EndReason.ABORTED


def test_a_link_lost_during_a_sweep_is_lost_at_once(
    driver: LumionMeshController, board: SpecBoard, clock: VirtualClock
) -> None:
    def unplug() -> None:
        board.gone = True

    at(clock, 0.2, unplug)
    with pytest.raises(LinkLost):
        driver.sweep(SweepPlan(ramp(1000)))
    assert clock.now() < 0.3


def test_another_table_after_the_run_than_planned_is_not_believed(
    driver: LumionMeshController, board: SpecBoard
) -> None:
    end_run = board.end_run

    def forget_the_base(reason: fp.EndReason) -> None:
        end_run(reason)
        board.drive(np.full(N, 7))

    board.end_run = forget_the_base  # type: ignore[method-assign]
    with pytest.raises(VerifyError, match="currents driven now are not the planned ones"):
        driver.sweep(SweepPlan(ramp(3)))


def test_a_base_that_changed_behind_the_host_s_back_stops_the_sweep(
    driver: LumionMeshController, board: SpecBoard
) -> None:
    start = board.do_sweep_start

    def change(request: fp.SweepStartRequest) -> fp.Message | fp.Refusal:
        board.drive(np.full(N, 7))
        return start(request)

    board.do_sweep_start = change  # type: ignore[method-assign]
    with pytest.raises(VerifyError, match="SWEEP_START"):
        driver.sweep(SweepPlan(ramp(3)))


def test_a_slow_sweep_feeds_the_watchdog(driver: LumionMeshController, board: SpecBoard, clock: VirtualClock) -> None:
    start = clock.now()
    result = driver.sweep(SweepPlan(({0: 1.0}, {0: 2.0}), settle_s=7.0))
    assert clock.now() - start > 14.0
    assert result.photocurrent_ma[:, 0] * 10.0 == pytest.approx([1.0, 2.0], abs=2e-4)
    assert driver.faults() == ()


def test_an_emergency_stop_from_inside_a_sweep_ends_it(
    driver: LumionMeshController, board: SpecBoard, clock: VirtualClock
) -> None:
    at(clock, 0.3, driver.outputs_off)
    with pytest.raises(DeviceError, match=r"ESTOP.*of 1000 points"):
        driver.sweep(SweepPlan(ramp(1000)))
    assert not board.driven.any()


def test_closing_ends_a_sweep_of_another_thread() -> None:
    clock = SystemClock()
    board = SpecBoard(clock)
    driver = LumionMeshController(MemoryLink(board.connect, clock, "memory://mesh0"), clock, device="mesh0")
    driver.open()
    driver.configure(LIMITS)
    failures: list[LinkLost] = []
    begun = threading.Event()
    at_start = board.do_sweep_start

    def start(request: fp.SweepStartRequest) -> fp.Message | fp.Refusal:
        begun.set()
        return at_start(request)

    board.do_sweep_start = start  # type: ignore[method-assign]

    def sweep() -> None:
        try:
            driver.sweep(SweepPlan(ramp(900), settle_s=0.1))
        except LinkLost as error:
            failures.append(error)

    thread = threading.Thread(target=sweep)
    thread.start()
    assert begun.wait(PATIENCE_S)
    driver.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert "closed while waiting" in str(failures[0])
    assert board.run is not None
    assert board.run.reason is fp.EndReason.ABORTED
    assert not board.driven.any()
