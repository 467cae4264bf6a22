"""The lock of a framed session: re-entrant, and the thread that waits is the next to have it."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.sessions.framed.session import TurnLock
from tests.waiting import PATIENCE_S


def in_thread(action: object) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_its_owner_may_take_it_again_and_gives_it_back_as_often() -> None:
    lock, taken = TurnLock(), threading.Event()

    def other() -> None:
        with lock:
            taken.set()

    with lock:
        with lock:
            thread = in_thread(other)
        assert not taken.wait(0.05)
    assert taken.wait(PATIENCE_S)
    thread.join(PATIENCE_S)


def test_without_waiting_it_is_had_or_refused_at_once() -> None:
    lock = TurnLock()
    answers: list[bool] = []
    with lock:
        in_thread(lambda: answers.append(lock.acquire(blocking=False))).join(PATIENCE_S)
        assert lock.acquire(blocking=False)
        lock.release()
    assert answers == [False]
    assert lock.acquire(blocking=False)
    lock.release()


def test_who_waits_is_next_however_soon_the_owner_wants_it_again() -> None:
    lock, done = TurnLock(), threading.Event()
    owner_turns = [0]
    passed_over: list[int] = []

    def other() -> None:
        for _ in range(40):
            time.sleep(0.0003)
            before = owner_turns[0]
            with lock:
                passed_over.append(owner_turns[0] - before)
        done.set()

    with lock:
        thread = in_thread(other)
    end_s = time.monotonic() + PATIENCE_S
    while not done.is_set():
        assert time.monotonic() < end_s
        with lock:
            owner_turns[0] += 1
            time.sleep(0.003)
    thread.join(PATIENCE_S)
    # Only the turn under way is waited for; a plain RLock is won once more by the thread that has just released it.
    assert passed_over.count(0) >= 30


def test_an_error_inside_gives_it_back() -> None:
    lock = TurnLock()
    with pytest.raises(KeyError), lock:
        raise KeyError("inside")
    answers: list[bool] = []
    in_thread(lambda: answers.append(lock.acquire(blocking=False))).join(PATIENCE_S)
    assert answers == [True]


def test_it_knows_whether_it_is_shared() -> None:
    lock = TurnLock()
    with lock, lock:
        pass
    assert not lock.shared

    def other() -> None:
        with lock:
            pass

    in_thread(other).join(PATIENCE_S)
    assert lock.shared


def test_jobs_on_one_virtual_clock_share_a_lock_while_time_passes() -> None:
    clock, told = VirtualClock(), list[tuple[str, float]]()
    lock = TurnLock(clock.thread_event)

    def job(name: str) -> None:
        for _ in range(2):
            with lock:
                clock.sleep(1.0)
                told.append((name, clock.now()))

    clock.run_parallel([partial(job, "a"), partial(job, "b")])
    assert told == [("a", 1.0), ("b", 2.0), ("a", 3.0), ("b", 4.0)], "in turn, and never both at a time"
