"""The lock of a framed session: re-entrant, and the thread that waits is the next to have it."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.sessions.framed.session import TurnLock
from tests.waiting import PATIENCE_S, until


class WatchedLock(TurnLock):
    """A lock that shows how many threads wait for it."""

    def __init__(self) -> None:
        self.events: list[WatchedEvent] = []
        super().__init__(self._new_event)

    def _new_event(self) -> WatchedEvent:
        self.events.append(WatchedEvent())
        return self.events[-1]

    @property
    def n_waiting(self) -> int:
        return sum(event.is_waited_for for event in self.events)


class WatchedEvent(threading.Event):
    """An event that shows whether a thread waits for it."""

    is_waited_for = False

    def wait(self, timeout: float | None = None) -> bool:
        self.is_waited_for = True
        try:
            return super().wait(timeout)
        finally:
            self.is_waited_for = False


def in_thread(action: object) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_its_owner_may_take_it_again_and_gives_it_back_as_often() -> None:
    lock, taken = WatchedLock(), threading.Event()

    def other() -> None:
        with lock:
            taken.set()

    with lock:
        with lock:
            thread = in_thread(other)
        until(lambda: lock.n_waiting == 1)
        assert not taken.is_set()
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
    lock, done = WatchedLock(), threading.Event()
    turns: list[str] = []

    def take_turn(name: str) -> None:
        with lock:
            turns.append(name)
            until(lambda: lock.n_waiting == 1 or done.is_set())

    def other() -> None:
        for _ in range(40):
            take_turn("other")
        done.set()

    with lock:
        thread = in_thread(other)
        until(lambda: lock.n_waiting == 1)
    while not done.is_set():
        take_turn("owner")
    thread.join(PATIENCE_S)
    # A plain RLock is won once more by the thread that has just released it.
    assert turns == 40 * ["other", "owner"]


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
