"""The LUMION mesh driver after a lost link: how it comes back, what it brings back, what it leaves to the operator."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import firmware_protocol as fp
from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.drivers.mesh.lumion.reconnect import LinkEvent, LinkEventKind, LinkState, ReconnectPolicy
from lumion_hw.errors import BusyError, ForkError, IdentityError, LinkLost, LinkTimeout, SafetyError
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.links.memory import MemoryLink
from lumion_hw.testing.forking import run_in_child
from tests.drivers.mesh.lumion.lumion_testboard import HELLO, SpecBoard
from tests.waiting import PATIENCE_S, until

N = HELLO.n_dac
LIMITS = ControllerLimits(np.full(N, 20.0), np.full(N, 10.0), total_power_mw=400.0)
KIND = LinkEventKind


@pytest.fixture
def board(clock: VirtualClock) -> SpecBoard:
    return SpecBoard(clock)


Make = Callable[..., LumionMeshController]


@pytest.fixture
def make(board: SpecBoard, clock: VirtualClock) -> Make:
    """Makes a driver that is attached and configured; keyword arguments as of the driver."""

    def made(**options: Any) -> LumionMeshController:
        link = MemoryLink(board.connect, clock, "memory://mesh0")
        driver = LumionMeshController(link, clock, device="mesh0", **options)
        driver.open()
        driver.configure(LIMITS)
        return driver

    return made


def table(level_ma: float) -> np.ndarray:  # type: ignore[type-arg]
    return np.full(N, level_ma)


def unplug(board: SpecBoard, driver: LumionMeshController) -> None:
    """Pull the plug, and let a call find out."""
    board.gone = True
    with pytest.raises(LinkLost, match="unplugged"):
        driver.faults()


def kinds(driver: LumionMeshController) -> list[LinkEventKind]:
    return [event.kind for event in driver.link_events]


# --- coming back by itself -----------------------------------------------------------------------------------------


def test_a_short_gap_changes_nothing_that_is_driven(make: Make, board: SpecBoard, clock: VirtualClock) -> None:
    seen: list[LinkEvent] = []
    driver = make(reconnect=ReconnectPolicy(), on_link=seen.append)
    driver.program(table(1.0))
    unplug(board, driver)
    assert driver.link_state is LinkState.BACKOFF
    board.gone = False
    board.requests.clear()
    clock.sleep(1.0)
    assert driver.link_state is LinkState.OPEN
    assert [type(request) for _, request in board.requests][:2] == [fp.HelloRequest, fp.ReadbackRequest]
    assert board.sent(fp.HelloRequest)[0].hello_flags == 0  # its old session id is enough
    assert board.sent(fp.ConfigApplyRequest) == board.sent(fp.SetRequest) == []
    assert [event.kind for event in seen] == [KIND.LOST, KIND.RECONNECTED] == kinds(driver)
    found = seen[-1].attachment
    assert found is not None
    assert (found.restarted, found.configuration, found.table, found.degraded) == (False, "kept", "same", False)
    assert 0.2 <= seen[-1].gap_s <= 0.75
    assert driver.program(table(2.0)).number == board.generation


def test_calls_fail_at_once_while_it_is_away_and_say_when_it_tries_again(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    driver = make(reconnect=ReconnectPolicy())
    unplug(board, driver)
    start = clock.now()
    with pytest.raises(LinkLost, match=r"mesh0 @ memory://mesh0: program: the link was lost .* Next attempt in 0.2 s"):
        driver.program(table(0.0))
    assert clock.now() == start


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_never_comes_back_in_place_of_its_parent(make: Make, board: SpecBoard, clock: VirtualClock) -> None:
    driver = make(reconnect=ReconnectPolicy(wait_s=5.0))
    unplug(board, driver)
    board.gone = False

    def wait_and_call() -> str:
        clock.sleep(10.0)  # the tickers of virtual time go on in a child
        with pytest.raises(ForkError, match="nothing was sent"):
            driver.read_back()
        return f"{len(board.connections)} connection"

    assert run_in_child(wait_and_call) == "'1 connection'"
    clock.sleep(1.0)
    assert driver.link_state is LinkState.OPEN


def test_a_call_may_wait_for_the_link(make: Make, board: SpecBoard, clock: VirtualClock) -> None:
    driver = make(reconnect=ReconnectPolicy(wait_s=5.0))
    unplug(board, driver)
    gone_s = clock.now()

    def plug_in() -> None:
        board.gone = board.gone and clock.now() < gone_s + 2.0

    ticker = clock.call_every(0.1, plug_in)
    driver.program(table(1.0))
    ticker.cancel()
    assert 2.0 < clock.now() - gone_s < 5.0
    assert kinds(driver)[-1] is KIND.RECONNECTED


def test_a_call_that_waits_in_vain_says_so_in_time(make: Make, board: SpecBoard, clock: VirtualClock) -> None:
    driver = make(reconnect=ReconnectPolicy(wait_s=5.0))
    unplug(board, driver)
    start = clock.now()
    with pytest.raises(LinkLost, match=r"attempts so far: [345]"):
        driver.program(table(1.0))
    assert clock.now() - start == pytest.approx(5.0, abs=0.1)


def test_delays_double_with_seeded_jitter_up_to_the_longest_and_end_with_the_budget(
    board: SpecBoard, clock: VirtualClock
) -> None:
    def delays(seed: int) -> list[float]:
        board.gone = False
        link = MemoryLink(board.connect, clock, "memory")
        policy = ReconnectPolicy(seed=seed, longest_delay_s=10.0, budget_s=60.0)
        driver = LumionMeshController(link, clock, device="mesh0", take_over=True, reconnect=policy)
        driver.open()
        driver.configure(replace(LIMITS, watchdog_s=0.1))  # the keep-alive looks every 25 ms
        unplug(board, driver)
        clock.sleep(100.0)
        events = driver.link_events
        assert events[-1].kind is KIND.GIVEN_UP
        assert events[-1].gap_s <= 60.0
        assert driver.link_state is LinkState.CLOSED
        with pytest.raises(LinkLost, match=r"link is closed: \d+ attempts in .* s: unplugged"):
            driver.faults()
        driver.close()
        return [later.at_s - earlier.at_s for earlier, later in pairwise(events[:-1])]

    first = delays(seed=1)
    nominal = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 10.0]
    assert len(first) >= 8
    for delay, plain in zip(first, nominal, strict=False):
        assert 0.8 * plain - 0.03 <= delay <= 1.2 * plain + 0.03
    assert first == pytest.approx(delays(seed=1), abs=0.03)
    assert first != pytest.approx(delays(seed=2), abs=0.3)


def test_a_busy_controller_is_tried_again_and_never_taken_over_without_an_own_loss(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    driver = make(reconnect=ReconnectPolicy())
    other = LumionMeshController(MemoryLink(board.connect, clock, "memory://b"), clock, device="mesh0", take_over=True)
    other.open()
    with pytest.raises(LinkLost, match="taken over"):
        driver.faults()
    assert kinds(driver) == [KIND.LOST, KIND.GIVEN_UP]  # two hosts never take turns by themselves
    board.requests.clear()
    clock.sleep(30.0)
    assert board.requests == []
    other.configure(LIMITS)
    other.faults()
    with pytest.raises(BusyError, match="held by host 'lumion'"):
        driver.open()
    assert {request.hello_flags for request in board.sent(fp.HelloRequest)} == {0}
    other.close()
    clock.sleep(2.1)
    driver.open()
    driver.program(table(1.0))


def test_hello_names_the_program_and_not_the_computer(make: Make, board: SpecBoard) -> None:
    make().faults()
    assert [request.name for request in board.sent(fp.HelloRequest)] == ["lumion"]


def test_another_device_behind_the_same_plug_is_not_driven(make: Make, board: SpecBoard, clock: VirtualClock) -> None:
    driver = make(reconnect=ReconnectPolicy())
    unplug(board, driver)
    board.gone = False
    board.hello = replace(board.hello, serial="FP-0008")
    clock.sleep(1.0)
    assert kinds(driver) == [KIND.LOST, KIND.GIVEN_UP]
    assert "serial number 'FP-0007', found 'FP-0008'" in driver.link_events[-1].text
    with pytest.raises(IdentityError):
        driver.open()


def test_closing_while_it_is_away_ends_the_attempts(make: Make, board: SpecBoard, clock: VirtualClock) -> None:
    driver = make(reconnect=ReconnectPolicy())
    unplug(board, driver)
    driver.close()
    board.gone = False
    board.requests.clear()
    clock.sleep(30.0)
    assert board.requests == []
    assert driver.link_state is LinkState.CLOSED
    with pytest.raises(LinkLost, match="closed"):
        driver.faults()


def test_closing_ends_a_call_that_waits_for_the_link() -> None:
    clock = SystemClock()
    board = SpecBoard(clock)
    driver = LumionMeshController(
        MemoryLink(board.connect, clock, "memory"), clock, device="mesh0", reconnect=ReconnectPolicy(wait_s=30.0)
    )
    driver.open()
    failures: list[LinkLost] = []
    board.gone = True

    def ask() -> None:
        for _ in range(2):  # the first call finds out, the second one waits
            try:
                driver.faults()
            except LinkLost as error:
                failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: failures)
    start = clock.now()
    driver.close()
    thread.join(PATIENCE_S)
    assert clock.now() - start < 1.0
    assert "closed" in str(failures[1])


def test_a_host_that_came_in_between_is_not_thrown_out_by_a_link_that_flickers(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    driver = make(reconnect=ReconnectPolicy(budget_s=20.0), take_over=True)
    unplug(board, driver)
    board.gone = False
    other = LumionMeshController(MemoryLink(board.connect, clock, "memory://b"), clock, device="mesh0", take_over=True)
    other.open()  # its user decided so, while this host was away
    other.configure(LIMITS)
    other.program(table(3.0))
    driven = board.driven.tolist()
    clock.sleep(30.0)
    assert KIND.RECONNECTED not in kinds(driver)
    assert kinds(driver)[-1] is KIND.GIVEN_UP
    assert "held by host" in driver.link_events[-1].text
    assert board.driven.tolist() == driven
    other.program(table(4.0))
    driver.open()  # and now the first one's user decides
    with pytest.raises(LinkLost, match="taken over"):
        other.program(table(3.0))


def test_a_stop_that_finds_the_link_gone_lets_the_driver_come_back(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    driver = make(reconnect=ReconnectPolicy())
    board.gone = True
    with pytest.raises(LinkLost):
        driver.outputs_off()
    assert driver.link_state is LinkState.BACKOFF
    board.gone = False
    clock.sleep(1.0)
    assert driver.link_state is LinkState.OPEN


def test_many_threads_that_find_the_link_gone_report_it_once(make: Make, board: SpecBoard) -> None:
    driver = make(reconnect=ReconnectPolicy())
    board.gone = True
    lost: list[LinkLost] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait(PATIENCE_S)
        try:
            driver.faults()
        except LinkLost as error:
            lost.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(lost) == 8
    assert kinds(driver) == [KIND.LOST]


def test_an_attempt_that_waited_while_the_driver_was_closed_does_not_open_it_again(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    driver = make(reconnect=ReconnectPolicy(wait_s=5.0))
    unplug(board, driver)
    board.gone = False

    def close() -> None:
        ticker.cancel()
        driver.close()

    ticker = clock.call_every(0.1, close)
    with pytest.raises(LinkLost, match="closed"):
        driver.program(table(1.0))
    clock.sleep(10.0)
    assert driver.link_state is LinkState.CLOSED
    assert not driver.session.is_open


# --- what is brought back ------------------------------------------------------------------------------------------


def test_after_a_restart_the_limits_come_back_and_the_outputs_stay_off(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    driver = make(reconnect=ReconnectPolicy())
    driver.program(table(1.0))
    board.power_up(boot_id=78)
    with pytest.raises(LinkLost, match="board restarted"):
        driver.program(table(2.0))
    clock.sleep(1.0)
    found = driver.link_events[-1].attachment
    assert found is not None
    assert (found.restarted, found.boot_id, found.configuration, found.table) == (True, 78, "applied", "changed")
    assert board.state is fp.OutputsState.READY
    assert not board.driven.any()
    assert found.in_flight_latched is False


def test_with_resume_the_confirmed_table_is_driven_again_after_a_restart(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    driver = make(reconnect=ReconnectPolicy(), resume=True)
    driver.program(table(1.0))
    driven = board.driven.tolist()
    board.power_up(boot_id=78)
    clock.sleep(2.0)  # the keep-alive finds out
    found = driver.link_events[-1].attachment
    assert found is not None
    assert (found.restarted, found.table) == (True, "restored")
    assert board.driven.tolist() == driven
    assert "table restored" in driver.link_events[-1].text


def test_with_resume_a_table_that_is_still_driven_is_left_alone(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    driver = make(reconnect=ReconnectPolicy(), resume=True)
    driver.program(table(1.0))
    unplug(board, driver)
    board.gone = False
    board.requests.clear()
    clock.sleep(0.6)
    assert kinds(driver)[-1] is KIND.RECONNECTED
    assert board.sent(fp.SetRequest) == []


def test_what_the_watchdog_switched_off_meanwhile_stays_off_until_its_fault_is_cleared_by_name(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    driver = make(reconnect=ReconnectPolicy(), resume=True)
    driver.program(table(1.0))
    unplug(board, driver)
    clock.sleep(10.0)
    board.advance()
    board.gone = False
    clock.sleep(10.0)
    found = driver.link_events[-1].attachment
    assert found is not None
    assert found.faults == ("WATCHDOG",)
    assert found.table == "refused"
    assert found.degraded
    assert "WATCHDOG" in found.refusals[0]
    assert not board.driven.any()
    driver.clear_fault(1)
    assert not board.driven.any()
    unplug(board, driver)  # what a fault has ended is not resumed by a later gap
    board.gone = False
    clock.sleep(5.0)
    assert not board.driven.any()


def test_a_stop_is_never_undone_by_coming_back(make: Make, board: SpecBoard, clock: VirtualClock) -> None:
    driver = make(reconnect=ReconnectPolicy(), resume=True)
    driver.program(table(1.0))
    driver.outputs_off()
    driver.clear_fault(1)
    unplug(board, driver)
    board.gone = False
    clock.sleep(5.0)
    assert kinds(driver)[-1] is KIND.RECONNECTED
    assert not board.driven.any()


@pytest.mark.parametrize("arrives", [True, False])
def test_the_fate_of_a_command_under_way_is_told_and_it_is_not_repeated(
    make: Make, board: SpecBoard, clock: VirtualClock, arrives: bool
) -> None:
    driver = make(reconnect=ReconnectPolicy())
    driver.program(table(1.0))

    def cut(request: fp.SetRequest) -> fp.Message | fp.Refusal:
        board.gone = True
        if arrives:
            board.latch(request.generation, request.codes)
        return fp.SetReply(request.generation, 0, 0, True, board.state)

    board.do_set = cut  # type: ignore[method-assign]
    with pytest.raises(LinkLost):
        driver.program(table(2.0))
    del board.do_set
    board.gone = False
    clock.sleep(1.0)
    found = driver.link_events[-1].attachment
    assert found is not None
    assert (found.in_flight_latched, found.table) == (arrives, "same")
    assert board.driven[0] == round((2.0 if arrives else 1.0) / 20.0 * 65535)
    assert max(board.latched.values()) == 1
    assert driver.program(table(3.0)).number == board.generation


def test_limits_the_controller_refuses_are_reported_and_declared_again_before_anything_is_driven(
    make: Make, board: SpecBoard, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    driver = make(reconnect=ReconnectPolicy())
    unplug(board, driver)
    board.gone = False
    board.config_crc32 = 1  # another host has configured it otherwise
    board.state = fp.OutputsState.GRACE
    board.faults.append(fp.FaultRecord(1, 0, fp.FaultSource.WATCHDOG, fp.FaultState.LATCHED))
    clock.sleep(1.0)
    found = driver.link_events[-1].attachment
    assert found is not None
    assert (found.configuration, found.degraded) == ("refused", True)
    with pytest.raises(SafetyError, match=r"CONFIG APPLY refused.*WATCHDOG"):
        driver.program(table(1.0))
    driver.clear_fault(1)
    driver.program(table(1.0))
    assert board.config_crc32 not in (0, 1)
    assert "limits were refused" in caplog.text


def test_a_configuration_whose_fate_is_unknown_is_declared_again_before_anything_is_driven(
    make: Make, board: SpecBoard
) -> None:
    driver = make()
    take = board.do_config

    def take_and_fall_silent(request: Any) -> fp.Message | fp.Refusal:
        if isinstance(request, fp.ConfigApplyRequest):
            board.mute.add(fp.Command.CONFIG)
        return take(request)

    board.do_config = take_and_fall_silent  # type: ignore[method-assign]
    with pytest.raises(LinkTimeout):
        driver.configure(replace(LIMITS, heater_max_ma=np.full(N, 19.0)))
    board.do_config = take  # type: ignore[method-assign]
    board.mute.clear()
    assert board.limits["code_max"][0] != 65535
    driver.program(table(19.5))  # allowed by what was declared and confirmed last
    assert board.limits["code_max"][0] == 65535


def test_a_restart_that_kept_its_faults_gets_its_limits_back_and_nothing_is_driven_before_they_are_cleared(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    """A board with flash comes back in SAFE with a configuration nobody has applied in this boot (6.4, 11.3)."""
    driver = make(reconnect=ReconnectPolicy(), resume=True)
    driver.program(table(1.0))
    flash = board.config_crc32
    board.power_up(boot_id=78)
    board.config_crc32 = flash
    board.trip(fp.FaultSource.HW_SPI)
    board.requests.clear()
    clock.sleep(2.0)
    found = driver.link_events[-1].attachment
    assert found is not None
    assert (found.restarted, found.configuration, found.table) == (True, "applied", "refused")
    assert len(board.sent(fp.ConfigApplyRequest)) == 1
    assert found.faults == ("HW_SPI",)
    driver.clear_fault(1)
    driver.program(table(1.0))


# --- without a policy ----------------------------------------------------------------------------------------------


def test_without_a_policy_the_application_attaches_and_is_told_the_same(make: Make, board: SpecBoard) -> None:
    driver = make()
    driver.program(table(1.0))
    unplug(board, driver)
    with pytest.raises(LinkLost):
        driver.faults()
    assert kinds(driver) == [KIND.LOST]
    board.gone = False
    board.power_up(boot_id=99)
    found = driver.open()
    assert (found.first, found.restarted, found.configuration, found.table) == (False, True, "applied", "changed")
    assert str(found) == "controller restarted; configuration applied; table changed"


def test_closing_and_opening_again_needs_no_patience_and_takes_nothing_over(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    driver = make()
    driver.configure(replace(LIMITS, watchdog_s=60.0))
    driver.close()
    board.requests.clear()
    start = clock.now()
    driver.open()  # the controller knows the session and takes it for the same host
    assert clock.now() - start < 0.1
    assert board.sent(fp.HelloRequest)[0].hello_flags == 0
    driver.program(table(1.0))
    assert driver.session.counters.get("late", 0) == 0


def test_after_closing_a_host_that_came_in_between_is_not_disturbed(
    make: Make, board: SpecBoard, clock: VirtualClock
) -> None:
    driver = make()
    driver.close()
    clock.sleep(2.1)
    other = LumionMeshController(MemoryLink(board.connect, clock, "memory://b"), clock, device="mesh0")
    other.open()
    other.configure(replace(LIMITS, watchdog_s=30.0))
    with pytest.raises(BusyError):
        driver.open()
    other.program(table(1.0))


def test_a_callback_that_fails_is_logged_and_disturbs_nobody(
    make: Make, board: SpecBoard, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: LinkEvent) -> None:
        raise RuntimeError(f"cannot handle {event.kind}")

    driver = make(reconnect=ReconnectPolicy(), on_link=broken)
    unplug(board, driver)
    board.gone = False
    with caplog.at_level(logging.ERROR):
        clock.sleep(1.0)
    assert driver.link_state is LinkState.OPEN
    assert "cannot handle reconnected" in caplog.text


def test_a_silent_controller_is_a_time_out_and_no_lost_link(make: Make, board: SpecBoard) -> None:
    driver = make(reconnect=ReconnectPolicy())
    board.mute.add(fp.Command.FAULT_LIST)
    with pytest.raises(LinkTimeout):
        driver.faults()
    assert driver.link_state is LinkState.OPEN
    assert driver.link_events == ()
