"""Host programs that die, leave, fight and lose their link, as real processes on real wires (protocol section 18)."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from firmware_protocol import FaultSource, OutputsState, table_crc32
from lumion_hw.emulator.wires.server import POLL_PERIOD_S
from tests.processes.processes_testbench import BUSY_MACHINE_S, ServedBoard, host
from tests.waiting import until

TICK_S = 1e-3
BOTH = pytest.mark.parametrize("transport", ["tcp", pytest.param("pty", marks=pytest.mark.long)])


def sources(served: ServedBoard) -> list[int]:
    return [record.source for record in served.board.core.faults.records]


def crc32_of(outputs_ma: list[float]) -> int:
    """CRC-32 of the table behind these currents; the board's full scale is 10 mA."""
    return table_crc32(np.rint(np.array(outputs_ma) / 10.0 * 65535).astype(np.uint16))


# --- leaving ---------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("act", [pytest.param("idle", marks=pytest.mark.long), "busy"])
def test_a_host_that_is_killed_leaves_its_heaters_off_within_the_watchdog_and_one_tick(
    tmp_path: Path, transport: str, act: str
) -> None:
    watchdog_s = 1.5
    served = ServedBoard(tmp_path, transport)
    with served.plugged_in() as address, host(address, act, "--watchdog-s", str(watchdog_s)) as program:
        program.expect("driving")
        driven_s = served.history[-1][0]
        # Only the keep-alive, or the tables, hold the watchdog off.
        served.wait(lambda: not served.is_driving or served.board.core.last_fed_s > driven_s + watchdog_s)
        assert served.is_driving
        killed_s = time.monotonic()
        program.end(signal.SIGKILL)
        served.wait(lambda: not served.is_driving)
        seen_s = time.monotonic()
    off_s, fed_s = served.off_since(), served.board.core.last_fed_s
    assert fed_s <= killed_s + BUSY_MACHINE_S  # bytes that it had written reach the board a little later
    assert fed_s + watchdog_s <= off_s <= fed_s + watchdog_s + TICK_S
    assert seen_s <= off_s + BUSY_MACHINE_S  # and it really happened then
    assert sources(served) == [FaultSource.WATCHDOG]
    assert served.board.state is OutputsState.SAFE


@BOTH
def test_children_of_a_host_neither_drive_its_heaters_nor_switch_them_off(tmp_path: Path, transport: str) -> None:
    served = ServedBoard(tmp_path, transport)
    with served.plugged_in() as address, host(address, "fork", "--watchdog-s", "30") as program:
        program.expect("after")
        ends = [said for said in program.said if "way" in said]
        assert [said["code"] for said in ends] == [0, 0, 0]
        assert [said["child"] for said in program.said if "child" in said] == 3 * 4 * ["ForkError"]
        program.end()
    # One milliampere, then two, then the parent's own farewell; nothing between them.
    levels = [round(max(outputs), 2) for _, _, outputs in served.history if any(outputs)]
    assert levels == [1.0, 2.0]
    assert [any(outputs) for _, _, outputs in served.history[-3:]] == [True, True, False]
    assert sources(served) == []


ENDS = {
    "SIGTERM": ("busy", signal.SIGTERM, {143}),
    "SIGTERM, idle": ("idle", signal.SIGTERM, {143}),
    "SIGINT": ("busy", signal.SIGINT, {130, -signal.SIGINT}),
    "exception": ("raise", None, {1}),
    "end of the program": ("leave", None, {0}),
    "end of a program that closes nothing": ("forget", None, {0}),
}


@BOTH
@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=pytest.mark.long if how in ("SIGTERM, idle", "exception") else ()) for how in ENDS]
)
def test_a_host_that_leaves_switches_its_heaters_off_itself_and_at_once(
    tmp_path: Path, transport: str, how: str
) -> None:
    act, number, codes = ENDS[how]
    served = ServedBoard(tmp_path, transport)
    with served.plugged_in() as address, host(address, act, "--watchdog-s", "30") as program:
        program.expect("driving")
        told_s = time.monotonic()
        # Twice, as impatient operators do; the second one may find everything done, and a program without handlers.
        assert program.end(number, times=2) in codes | ({-number} if number else set())
        assert not served.is_driving
        if number is not None:
            assert served.off_since() <= told_s + BUSY_MACHINE_S
    assert sources(served) == []  # zeros were driven: neither the watchdog nor an emergency stop had to
    assert served.board.state is OutputsState.READY


@BOTH
def test_a_host_that_chose_to_hold_hands_its_heaters_to_the_next_one_unchanged(tmp_path: Path, transport: str) -> None:
    served = ServedBoard(tmp_path, transport)
    options = ("--watchdog-s", "1.0", "--hold-s", "60")
    with served.plugged_in() as address:
        with host(address, "idle", *options) as program:
            program.expect("driving")
            assert program.end(signal.SIGTERM) == 143
        changes = len(served.history)
        served.wait(lambda: served.board.state is OutputsState.GRACE)
        assert served.is_driving
        served.wait_for_polls(3 * POLL_PERIOD_S)  # and 150 ticks of the board
        assert served.board.state is OutputsState.GRACE
    assert len(served.history) == changes
    assert sources(served) == [FaultSource.WATCHDOG]


# --- two hosts -------------------------------------------------------------------------------------------------------


def test_a_second_host_is_refused_with_its_own_exit_code_and_disturbs_nobody(tmp_path: Path) -> None:
    served = ServedBoard(tmp_path, "tcp")
    with served.plugged_in() as address, host(address, "idle") as first:
        first.expect("driving")
        with host(address, "leave", "--level-ma", "2") as second:
            assert second.end() == 6
            refusal = second.expect("error", "BusyError")
            assert "held by host 'lumion'" in refusal["text"]
        assert max(served.outputs_ma) < 1.5  # the first host's table, not the second one's zeros
        assert served.is_driving
        assert first.process.poll() is None


@pytest.mark.parametrize(
    "reconnect", [pytest.param((), id="", marks=pytest.mark.long), pytest.param(("--reconnect",), id="reconnect")]
)
def test_a_host_that_was_taken_over_is_told_and_never_takes_back(tmp_path: Path, reconnect: tuple[str, ...]) -> None:
    served = ServedBoard(tmp_path, "tcp")
    with served.plugged_in() as address, host(address, "persist", *reconnect) as first:
        first.expect("crc32")
        with host(address, "persist", "--level-ma", "3", "--take-over") as second:
            driving = second.expect("driving")
            told = first.expect("failed", "LinkLost")
            assert "taken over by session" in told["text"]
            said = len(first.said)
            until(lambda: len(first.said) >= said + 30)  # one call in 50 ms: ten delays of the back-off
            assert {line["failed"] for line in first.said[said:]} == {"LinkLost"}
            latest = second.expect("crc32", after=len(second.said) - 1)
            assert latest["crc32"] != driving["driving"]
            since = next(i for i, (_, _, outputs) in enumerate(served.history) if outputs[1] > 2.5)
            assert all(outputs[1] > 2.5 for _, _, outputs in served.history[since:])  # never again the first one's
            assert second.process.poll() is None
            # The first one ends: it does not switch off what is no longer its own.
            assert first.end(signal.SIGTERM) == 143
            assert served.outputs_ma[1] > 2.5
            assert second.end(signal.SIGTERM) == 143
        assert not served.is_driving


def test_a_third_process_stops_everything_without_a_session(tmp_path: Path) -> None:
    served = ServedBoard(tmp_path, "tcp")
    with served.plugged_in() as address, host(address, "persist") as first:
        first.expect("crc32")
        with host(address, "stop") as button:
            assert button.end() == 0
        assert not served.is_driving
        told = first.expect("error", "SafetyError")
        assert "ESTOP" in told["text"]
        assert first.end() == 5
    assert sources(served) == [FaultSource.ESTOP]


# --- unplugged and plugged in again ----------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("restarted", [False, True], ids=["same boot", "restarted"])
def test_a_host_whose_plug_is_pulled_comes_back_stages_again_and_proves_it(
    tmp_path: Path, transport: str, restarted: bool
) -> None:
    served = ServedBoard(tmp_path, transport)
    with ExitStack() as stack:
        with served.plugged_in() as address:
            program = stack.enter_context(host(address, "persist", "--reconnect", "--watchdog-s", "10"))
            program.expect("crc32")
        program.expect("failed", "LinkLost")  # in the middle of whatever was under way
        if restarted:
            served.board.reset()
            assert not served.is_driving
        said, changes = len(program.said), len(served.history)
        with served.plugged_in():
            back = program.expect("link", "reconnected", after=said)
            assert ("configuration applied" if restarted else "configuration kept") in back["text"]
            assert ("controller restarted" in back["text"]) == restarted
            receipt = program.expect("crc32", after=program.said.index(back))
            assert receipt["crc32"] in {crc32_of(outputs) for _, _, outputs in served.history[changes:]}
            assert program.end(signal.SIGTERM) == 143
            assert not served.is_driving
    assert sources(served) == []
    # All channels but the first carry one level in every table the host has: a mixed one would show.
    assert {len(set(outputs[1:])) for _, _, outputs in served.history} == {1}
