"""The helper that proves locks: code with a lock passes, the same code without it fails, every time."""

from __future__ import annotations

import contextlib
import threading
from functools import partial

import pytest

from lumion_hw.clock import Deadline
from tests.one_at_a_time import BLOCKED_S, Interleaved, Yielding, YieldingLink
from tests.waiting import PATIENCE_S

NEVER = Deadline(float("inf"))


class Counter:
    """Counts by a read and a write, which another thread can come between."""

    def __init__(self, lock: contextlib.AbstractContextManager[object]) -> None:
        self.lock = lock
        self.count = 0

    def add(self) -> int:
        with self.lock:
            before = self.count
            self.count = before + 1
            return before


def test_a_lock_around_data_is_needed() -> None:
    counter = Counter(threading.Lock())
    assert sorted(Interleaved([Counter]).run(*[counter.add] * 4)) == [0, 1, 2, 3]
    counter = Counter(contextlib.nullcontext())
    assert Interleaved([Counter], blocked_s=PATIENCE_S).run(*[counter.add] * 4) == [0, 0, 0, 0]


@pytest.mark.parametrize("locked", [True, False])
def test_a_lock_around_bytes_is_needed(locked: bool) -> None:
    # Without a lock no thread ever blocks, so a slow step of a busy machine must not be taken for a blocked thread.
    threads = Interleaved(blocked_s=BLOCKED_S if locked else PATIENCE_S)
    link, lock = YieldingLink(threads), threading.Lock() if locked else contextlib.nullcontext()

    def call(data: bytes) -> None:
        with lock:
            link.write(data, NEVER)

    threads.run(*[partial(call, data) for data in (b"aa", b"bb", b"cc")])
    if locked:
        threads.assert_one_at_a_time()
    else:
        assert bytes(byte for _, byte in threads.traffic) == b"abcabc"  # type: ignore[misc]
        with pytest.raises(AssertionError, match="mixed"):
            threads.assert_one_at_a_time()


def test_a_single_call_proves_nothing() -> None:
    threads = Interleaved()
    threads.run(partial(YieldingLink(threads).write, b"aa", NEVER))
    with pytest.raises(AssertionError, match="nothing was proven"):
        threads.assert_one_at_a_time()


def test_calls_of_a_device_are_noted_and_answered() -> None:
    threads = Interleaved(blocked_s=PATIENCE_S)
    device = Yielding(threads, {1: "one"})
    assert threads.run(partial(device.get, 1), partial(device.get, 2)) == ["one", None]
    assert threads.traffic == [(0, ("get", 1)), (1, ("get", 2))]


def test_an_error_in_a_thread_is_raised() -> None:
    with pytest.raises(KeyError):
        Interleaved().run(partial({}.__getitem__, 1), lambda: None)


def test_a_deadlock_is_reported() -> None:
    lock = threading.Lock()
    with lock, pytest.raises(AssertionError, match="deadlock"):
        Interleaved().run(lambda: lock.acquire() and lock.release(), patience_s=0.05)
