"""Several things at once, on the wall clock and on the virtual one, where the same calls give the same run."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable

import pytest

from lumion_hw.clock import Clock, SystemClock, VirtualClock


@pytest.fixture(params=["virtual", "wall"])
def clock(request: pytest.FixtureRequest) -> Clock:
    return VirtualClock() if request.param == "virtual" else SystemClock()


def sleeper(clock: Clock, *waits_s: float, said: list[str] | None = None, name: str = "") -> Callable[[], float]:
    def job() -> float:
        for wait_s in waits_s:
            clock.sleep(wait_s)
            if said is not None:
                said.append(f"{name} {clock.now():.3f}")
        return clock.now()

    return job


def test_answers_come_in_the_order_of_the_jobs(clock: Clock) -> None:
    assert clock.run_parallel([lambda n=n: n * n for n in range(5)]) == [0, 1, 4, 9, 16]
    assert clock.run_parallel([]) == []


def test_the_whole_takes_as_long_as_the_slowest() -> None:
    clock = VirtualClock()
    assert clock.run_parallel([sleeper(clock, 0.5), sleeper(clock, 0.2, 0.2), sleeper(clock, 0.3)]) == [0.5, 0.4, 0.3]
    assert clock.now() == 0.5
    assert clock.run_parallel([sleeper(clock, 1.0)]) == [1.5]  # one alone


def test_on_the_wall_clock_all_are_under_way_at_once() -> None:
    clock, meeting = SystemClock(), threading.Barrier(3, timeout=60.0)
    assert len(clock.run_parallel([meeting.wait] * 3)) == 3


def test_what_is_due_first_goes_first_and_of_those_due_together_the_one_that_waited_longest() -> None:
    clock, said = VirtualClock(), list[str]()
    jobs = [
        sleeper(clock, 0.002, 0.002, said=said, name="a"),
        sleeper(clock, 0.001, 0.001, 0.002, said=said, name="b"),
        sleeper(clock, 0.003, said=said, name="c"),
    ]
    clock.run_parallel(jobs)
    assert said == ["b 0.001", "a 0.002", "b 0.002", "c 0.003", "a 0.004", "b 0.004"]


def test_periodic_actions_run_at_their_instants_whoever_waits() -> None:
    clock, said = VirtualClock(), list[str]()
    ticker = clock.call_every(0.01, lambda: said.append(f"tick {clock.now():.3f}"))
    clock.run_parallel(
        [sleeper(clock, 0.005, 0.02, said=said, name="a"), sleeper(clock, 0.01, 0.012, said=said, name="b")]
    )
    assert said == ["a 0.005", "tick 0.010", "b 0.010", "tick 0.020", "b 0.022", "a 0.025"]
    ticker.cancel()
    clock.sleep(1.0)
    assert len(said) == 6


def test_a_periodic_action_that_waits_itself_holds_up_only_the_job_it_runs_in() -> None:
    clock, said = VirtualClock(), list[str]()

    def talk() -> None:
        clock.sleep(0.005)
        said.append(f"talked {clock.now():.3f}")

    ticker = clock.call_every(0.01, talk)
    jobs = [sleeper(clock, 0.012, said=said, name="a"), sleeper(clock, *[0.003] * 5, said=said, name="b")]
    clock.run_parallel(jobs)
    ticker.cancel()
    assert said.index("b 0.009") < said.index("talked 0.015")
    assert {line.split()[0] for line in said} == {"a", "b", "talked"}
    assert clock.now() >= 0.015


def test_jobs_have_jobs_of_their_own(clock: Clock) -> None:
    inner = [sleeper(clock, 0.001), sleeper(clock, 0.003)]
    outer: list[Callable[[], object]] = [lambda: clock.run_parallel(inner), sleeper(clock, 0.002)]
    begun = clock.now()
    answers = clock.run_parallel(outer)
    assert isinstance(answers[0], list)
    if clock.is_virtual:
        assert (answers, clock.now() - begun) == ([[0.001, 0.003], 0.002], 0.003)


def fail(clock: Clock, wait_s: float, error: BaseException) -> Callable[[], None]:
    def job() -> None:
        clock.sleep(wait_s)
        raise error

    return job


def test_one_that_fails_is_told_as_it_is_and_the_others_end(clock: Clock) -> None:
    ended: list[str] = []
    with pytest.raises(OSError, match="unplugged"):
        clock.run_parallel(
            [fail(clock, 0.001, OSError("unplugged")), sleeper(clock, 0.002, said=ended), lambda: ended.append("third")]
        )
    assert len(ended) == 2
    clock.sleep(0.001)  # the clock goes on


def test_all_that_fail_are_told(clock: Clock) -> None:
    with pytest.raises(OSError, match="a") as caught:  # the first in their order, not in time
        clock.run_parallel([fail(clock, 0.002, OSError("a")), fail(clock, 0.001, ValueError("b")), lambda: None])
    assert caught.value.__notes__ == ["At the same time: b"]


def test_an_interrupt_of_one_is_more_than_a_failure(clock: Clock) -> None:
    with pytest.raises(KeyboardInterrupt):
        clock.run_parallel([fail(clock, 0.0, OSError("a")), fail(clock, 0.0, KeyboardInterrupt())])


def test_an_event_lets_those_that_wait_go_on(clock: Clock) -> None:
    event, order = clock.event(), list[str]()

    def first() -> None:
        event.wait()
        order.append("went on")

    def second() -> None:
        clock.sleep(0.01)
        order.append("set")
        event.set()

    clock.run_parallel([first, second])
    assert order == ["set", "went on"]
    event.wait()  # it stays set


def test_jobs_that_wait_for_an_event_nobody_sets_fail_instead_of_hanging() -> None:
    clock = VirtualClock()
    ended = []
    with pytest.raises(RuntimeError, match="no job is left to set") as caught:
        clock.run_parallel([clock.event().wait, clock.event().wait, sleeper(clock, 1.0, said=ended)])
    assert len(caught.value.__notes__) == 1
    assert ended
    with pytest.raises(RuntimeError, match="no job is left to set"):
        clock.event().wait()
    clock.sleep(1.0)
    assert clock.now() == 2.0


@pytest.mark.parametrize("pressed_at", [0, 1, 20])
def test_ctrl_c_ends_all_jobs_and_what_they_do_in_leaving_is_done(pressed_at: int) -> None:
    clock, left = VirtualClock(), list[str]()
    pressed = threading.Event()

    def job(name: str) -> None:
        try:
            for number in itertools.count():
                if name == "a" and number == pressed_at:
                    os.kill(os.getpid(), signal.SIGINT)
                    pressed.set()
                clock.sleep(0.001)
        finally:
            clock.sleep(0.001)  # such as switching off
            left.append(name)

    with pytest.raises(KeyboardInterrupt):
        clock.run_parallel([lambda: job("a"), lambda: job("b")])
    assert pressed.is_set()
    assert sorted(left) == ["a", "b"]
    assert clock.run_parallel([sleeper(clock, 0.001)] * 2) == [clock.now()] * 2


def test_ctrl_c_reaches_jobs_of_jobs() -> None:
    clock, left = VirtualClock(), list[str]()

    def job(name: str) -> None:
        try:
            for number in itertools.count():
                if name == "a" and number == 5:
                    os.kill(os.getpid(), signal.SIGINT)
                clock.sleep(0.001)
        finally:
            left.append(name)

    with pytest.raises(KeyboardInterrupt):
        clock.run_parallel([lambda: clock.run_parallel([lambda: job("a"), lambda: job("b")]), lambda: job("c")])
    assert sorted(left) == ["a", "b", "c"]


def test_a_hundred_jobs_give_the_same_run_each_time() -> None:
    def run() -> list[str]:
        clock, said = VirtualClock(), list[str]()
        jobs = [
            sleeper(clock, *(0.001 * ((7 * n * k) % 11) for k in range(20)), said=said, name=str(n)) for n in range(100)
        ]
        clock.run_parallel(jobs)
        return said

    assert run() == run()


def test_what_a_periodic_action_holds_while_it_waits_is_free_again_when_a_job_runs() -> None:
    """As the keep-alive of a session does, from inside the wait of whichever job lets the time pass."""
    clock, held, said = VirtualClock(), threading.Lock(), list[str]()

    def feed() -> None:
        if held.acquire(blocking=False):
            clock.sleep(0.003)
            said.append(f"fed {clock.now():.3f}")
            held.release()

    def ask() -> None:
        for _ in range(3):
            clock.sleep(0.0105)
            assert held.acquire(timeout=30.0), "held by an action that has stopped in its middle"
            clock.sleep(0.004)
            said.append(f"asked {clock.now():.4f}")
            held.release()

    ticker = clock.call_every(0.010, feed)
    clock.run_parallel([sleeper(clock, 0.05), ask])
    ticker.cancel()
    assert said == [
        *("fed 0.013", "asked 0.0170", "fed 0.023", "asked 0.0315"),  # that at 0.03 found a request under way
        *("fed 0.043", "asked 0.0470", "fed 0.053"),
    ]


def test_an_action_may_wait_for_what_a_job_has_to_do() -> None:
    clock = VirtualClock()
    done = clock.event()
    ended = list[float]()

    def await_job() -> None:
        done.wait()
        ended.append(clock.now())

    def job() -> None:
        clock.sleep(0.02)
        done.set()

    ticker = clock.call_every(0.01, await_job)
    clock.run_parallel([job, sleeper(clock, 0.015)])
    ticker.cancel()
    assert ended[0] == 0.02
