"""What the LUMION mesh driver leaves behind: on exit, on an exception, on a signal; killed: ``tests/processes``."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import firmware_protocol as fp
from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.drivers.mesh.lumion.safety import safe_on_signals
from lumion_hw.errors import BadValueError, LimitError, LinkLost, SafetyError
from lumion_hw.interfaces import ControllerLimits, Fault
from lumion_hw.links.memory import MemoryLink
from tests.drivers.mesh.lumion.lumion_testboard import HELLO, SpecBoard
from tests.waiting import PATIENCE_S, until

N = HELLO.n_dac
LIMITS = ControllerLimits(np.full(N, 20.0), np.full(N, 10.0), total_power_mw=400.0)
State = fp.OutputsState


@pytest.fixture
def board(clock: VirtualClock) -> SpecBoard:
    return SpecBoard(clock)


Make = Callable[..., LumionMeshController]


@pytest.fixture
def make(board: SpecBoard, clock: VirtualClock) -> Make:
    def made(**options: object) -> LumionMeshController:
        link = MemoryLink(board.connect, clock, "memory://mesh0")
        return LumionMeshController(link, clock, device="mesh0", **options)  # type: ignore[arg-type]

    return made


# --- leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt, SystemExit])
def test_leaving_the_block_in_any_way_switches_the_heaters_off(
    make: Make, board: SpecBoard, error: type[BaseException] | None
) -> None:
    def work() -> None:
        with make() as driver:
            driver.configure(LIMITS)
            driver.program(np.full(N, 1.0))
            assert board.driven.any()
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(error):
            work()
    assert not board.driven.any()
    assert board.faults == []  # closing latches nothing


def test_an_interrupt_in_the_middle_of_a_request_still_switches_off(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    def interrupt() -> None:
        ticker.cancel()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), make() as driver:  # noqa: PT012 - the block is what is tested
        driver.configure(LIMITS)
        driver.program(np.full(N, 1.0))
        ticker = clock.call_every(0.0005, interrupt)  # half a millisecond into the next request
        driver.program(np.full(N, 2.0))
    assert not board.driven.any()
    assert max(board.latched.values()) == 1


def test_held_outputs_survive_the_host_for_the_time_it_chose(make: Make, board: SpecBoard, clock: VirtualClock) -> None:
    with make(on_exit="hold", hold_s=30.0) as driver:
        driver.configure(LIMITS)
        driver.program(np.full(N, 1.0))
        driven = board.driven.tolist()
    assert board.block is not None
    assert (board.block.wd_policy, board.block.wd_param_ms) == (fp.WatchdogPolicy.HOLD, 30_000)
    clock.sleep(5.0)
    board.advance()
    assert (board.state, board.driven.tolist()) == (State.GRACE, driven)  # the watchdog has tripped and holds
    again = make(on_exit="hold", hold_s=30.0)
    found = again.open()
    again.configure(LIMITS)  # the same configuration: left alone, also in GRACE
    assert found.faults == ("WATCHDOG",)
    again.clear_fault(1)
    assert (board.state, board.driven.tolist()) == (State.READY, driven)


@pytest.mark.parametrize("hold_s", [0.0, 3601.0])
def test_a_hold_the_controller_cannot_express_is_refused(make: Make, hold_s: float) -> None:
    with make(on_exit="hold", hold_s=hold_s) as driver, pytest.raises(LimitError, match="hold time"):
        driver.configure(LIMITS)


def test_where_zeros_are_refused_while_something_is_driven_leaving_ends_in_an_emergency_stop(
    make: Make, board: SpecBoard
) -> None:
    driver = make()
    driver.open()
    driver.configure(LIMITS)
    driver.program(np.full(N, 1.0))
    board.state = State.GRACE  # another host's policy holds the outputs: SET is refused, they stay on
    driver.close()
    assert not board.driven.any()
    assert [fault.source for fault in board.faults] == [fp.FaultSource.ESTOP]


def test_where_zeros_are_driven_already_leaving_latches_nothing(make: Make, board: SpecBoard) -> None:
    driver = make()
    driver.open()
    driver.configure(LIMITS)
    board.trip(fp.FaultSource.SUPPLY)
    driver.close()
    assert [fault.source for fault in board.faults] == [fp.FaultSource.SUPPLY]


def test_a_stop_works_before_opening_and_after_closing_and_leaves_the_port_free(make: Make, board: SpecBoard) -> None:
    driver = make()
    for _ in range(2):
        board.drive(np.full(N, 7))
        driver.outputs_off(timeout_s=1.0)
        assert not driver.session.is_open
        driver.open()
        for fault in driver.faults():
            driver.clear_fault(fault.fault_id)
        driver.close()
    assert len(board.connections) == 4  # two stops, two sessions
    assert not any(wire.open for wire in board.connections)


def test_threads_that_configure_and_close_leave_no_keep_alive_behind() -> None:
    clock = SystemClock()
    board = SpecBoard(clock)
    driver = LumionMeshController(MemoryLink(board.connect, clock, "memory"), clock, device="mesh0")
    driver.open()
    before = threading.active_count()

    def configure() -> None:
        for watchdog_s in (0.2, 0.3) * 20:
            try:
                driver.configure(replace(LIMITS, watchdog_s=watchdog_s))
            except LinkLost:
                return

    threads = [threading.Thread(target=configure) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun = board.received
    until(lambda: board.received > begun + 20)
    driver.close()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert threading.active_count() == before


def test_the_controller_s_own_counters_are_there_by_name(make: Make, board: SpecBoard) -> None:
    with make() as driver:
        counters = driver.board_counters()
        assert counters["rx_frames"] == board.received
        assert list(counters)[:5] == ["rx_frames", "rx_bytes", "tx_frames", "tx_bytes", "bad_cobs"]  # section 6.3
        assert len(counters) == 24


# --- the lease of the application ------------------------------------------------------------------------------------


def test_without_a_lease_an_idle_application_keeps_its_heaters(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    with make() as driver:
        driver.configure(LIMITS)
        driver.program(np.full(N, 1.0))
        clock.sleep(600.0)
        board.advance()
        assert board.driven.any()


def test_a_control_loop_that_hangs_loses_its_heaters(
    make: Make, board: SpecBoard, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with make(lease_s=10.0) as driver:
        driver.configure(LIMITS)
        for _ in range(5):
            driver.program(np.full(N, 1.0))
            clock.sleep(9.0)
        assert board.driven.any()
        driver.renew_lease()
        clock.sleep(9.0)
        assert board.driven.any()
        clock.sleep(3.6)  # 10 s of lease, 2 s of watchdog, a quarter of it between feeds
        board.advance()
        assert not board.driven.any()
        assert "more than the lease of" in caplog.text
        assert [fault.source for fault in driver.faults()] == ["WATCHDOG"]
        clock.sleep(5.0)
        assert caplog.text.count("more than the lease of") == 1


def test_nothing_is_fed_while_requests_do_it_anyway(make: Make, board: SpecBoard, clock: VirtualClock) -> None:
    with make() as driver:
        driver.configure(LIMITS)
        for _ in range(100):
            driver.read_back()
            clock.sleep(0.1)
        assert board.sent(fp.PingRequest) == []


# --- faults as they come ---------------------------------------------------------------------------------------------


def test_a_fault_is_announced_once_as_soon_as_it_is_seen(
    make: Make, board: SpecBoard, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Fault] = []
    with make(on_fault=seen.append) as driver:
        driver.configure(LIMITS)
        driver.program(np.full(N, 1.0))
        board.trip(fp.FaultSource.SUPPLY)
        clock.sleep(1.1)  # the keep-alive meets the event
        driver.read_back()
        assert [(fault.fault_id, fault.source, fault.latched) for fault in seen] == [(1, "SUPPLY", True)]
        assert "latched SUPPLY (id 1): 2000 mV, limit 2000 mV" in caplog.text
        driver.faults()
        driver.read_back()
        assert len(seen) == 1


def test_a_fault_whose_event_was_lost_is_announced_by_the_flag(make: Make, board: SpecBoard) -> None:
    seen: list[Fault] = []
    with make(on_fault=seen.append) as driver:
        driver.configure(LIMITS)
        board.lose_events[fp.Event.FAULT] = 1
        board.trip(fp.FaultSource.SUPPLY)
        driver.read_back()
        assert [fault.source for fault in seen] == ["SUPPLY"]


def test_a_second_fault_behind_a_latched_one_is_announced_without_its_event(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    seen: list[Fault] = []
    with make(on_fault=seen.append) as driver:
        driver.configure(LIMITS)
        board.trip(fp.FaultSource.SUPPLY)
        driver.read_back()
        board.lose_events[fp.Event.FAULT] = 1
        board.trip(fp.FaultSource.HW_SPI)
        clock.sleep(0.6)  # the flag stays set, so the keep-alive asks for the list instead of a PING
        assert [fault.source for fault in seen] == ["SUPPLY", "HW_SPI"]
        for fault in seen[:]:
            driver.clear_fault(fault.fault_id)
        clock.sleep(2.0)
        assert len(seen) == 2
        assert board.sent(fp.PingRequest)


@pytest.mark.parametrize("features", [HELLO.features, 0], ids=["CLEAR_ONE", "first edition"])
def test_an_id_no_fault_was_given_is_refused_and_everything_stays_latched(
    make: Make, board: SpecBoard, features: int
) -> None:
    board.hello = replace(HELLO, features=features)
    board.trip(fp.FaultSource.SUPPLY)
    board.trip(fp.FaultSource.HW_SPI)
    with make() as driver:
        for unknown in (0, 3, 999_999):
            with pytest.raises(BadValueError, match=f"{unknown}") as refused:
                driver.clear_fault(unknown)
            assert refused.value.code == fp.Status.UNKNOWN_FAULT
        assert [fault.latched for fault in driver.faults()] == [True, True]


def test_a_newer_fault_is_cleared_before_an_older_one_and_only_that(make: Make, board: SpecBoard) -> None:
    board.trip(fp.FaultSource.SUPPLY)
    board.trip(fp.FaultSource.HW_SPI)
    with make() as driver:
        driver.clear_fault(2)
        assert [fault.latched for fault in driver.faults()] == [True, False]


def test_firmware_that_would_clear_more_than_was_named_is_not_asked_to(make: Make, board: SpecBoard) -> None:
    board.hello = replace(HELLO, features=0)
    board.trip(fp.FaultSource.SUPPLY)
    board.trip(fp.FaultSource.HW_SPI)
    with make() as driver:
        with pytest.raises(SafetyError, match=r"also clear SUPPLY \(id 1\).*oldest first"):
            driver.clear_fault(2)
        assert board.sent(fp.FaultClearRequest) == []
        for fault in driver.faults():
            driver.clear_fault(fault.fault_id)
        assert not any(fault.latched for fault in driver.faults())


def test_faults_that_were_there_before_are_announced_on_opening(make: Make, board: SpecBoard) -> None:
    seen: list[Fault] = []
    board.trip(fp.FaultSource.EXTERNAL_LOOP, present=True)
    with make(on_fault=seen.append):
        assert [(fault.source, fault.present) for fault in seen] == [("EXTERNAL_LOOP", True)]


def test_after_a_restart_fault_ids_begin_again_and_are_announced_again(make: Make, board: SpecBoard) -> None:
    seen: list[Fault] = []
    with make(on_fault=seen.append) as driver:
        board.trip(fp.FaultSource.SUPPLY)
        driver.read_back()
        board.power_up(boot_id=78)
        board.trip(fp.FaultSource.SELF_TEST)
        driver.open()
        assert [(fault.fault_id, fault.source) for fault in seen] == [(1, "SUPPLY"), (1, "SELF_TEST")]


# --- signals ---------------------------------------------------------------------------------------------------------


def test_signals_do_what_they_did_before_once_the_block_is_left() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as caught, safe_on_signals():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 143
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_outside_of_the_main_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    inside: list[object] = []

    def run() -> None:
        with safe_on_signals():
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE_S)
    assert inside == [before]


def test_opening_a_driver_installs_nothing(make: Make) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with make() as driver:
        driver.configure(replace(LIMITS, watchdog_s=1.0))
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
