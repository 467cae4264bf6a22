"""Remote calls: limits on streams, watches and running calls of clients."""

from __future__ import annotations

import contextlib
import inspect
import threading
from functools import partial
from pathlib import Path

import pytest

from lumion_hw.errors import BusyError, ConfigError, LumionError
from lumion_hw.serving import BenchLease
from lumion_hw.serving.calls import Calls
from lumion_hw.serving.lease import Caller
from tests.one_at_a_time import Interleaved
from tests.waiting import PATIENCE_S


class Stream:
    """An endless stream of readings that counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> float:
        return 1.0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def lease(tmp_path: Path) -> BenchLease:
    return BenchLease(tmp_path, lambda: 0.0)


def attempt(calls: Calls, caller: Caller) -> tuple[Stream, LumionError | None]:
    stream = Stream()
    try:
        calls.document(stream, caller, "mesh0")
    except LumionError as error:
        return stream, error
    return stream, None


def test_of_many_readers_at_once_two_have_a_stream_and_the_others_close_theirs(lease: BenchLease) -> None:
    calls = Calls({}, lease)
    threads = Interleaved(lines_of=[Calls])
    found = threads.run(*[partial(attempt, calls, Caller(f"c{n}", connection=f"c{n}")) for n in range(5)])
    refused = [stream for stream, error in found if error is not None]
    assert len(refused) == 3
    assert all(isinstance(error, BusyError) for _, error in found if error is not None)
    assert [stream.closed for stream in refused] == [1, 1, 1]
    calls.drop()
    assert [stream.closed for stream, _ in found] == [1] * 5


def test_the_holder_of_the_lease_has_sixteen_at_most_however_many_it_opens_at_once(lease: BenchLease) -> None:
    ada = Caller("ada", connection="ada")
    lease.take("ada", ada, lasts_s=60.0)
    calls = Calls({}, lease)
    for _ in range(14):
        assert attempt(calls, ada)[1] is None
    found = Interleaved(lines_of=[Calls]).run(*[partial(attempt, calls, ada)] * 5)
    assert sum(error is None for _, error in found) == 2
    assert all(isinstance(error, ConfigError) for _, error in found if error is not None)


def test_no_more_calls_of_one_connection_are_under_way_than_there_may_be(lease: BenchLease, monkeypatch) -> None:
    monkeypatch.setattr("lumion_hw.serving.calls._MAX_CALLS", 2)
    calls = Calls({}, lease)
    threads = Interleaved(lines_of=[inspect.unwrap(Calls._count_call)])
    inside, most, two_are_inside = [0], [0], threading.Event()

    def call() -> None:
        with contextlib.suppress(BusyError), calls._count_call("c"):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            if inside[0] >= 2:
                two_are_inside.set()
            two_are_inside.wait(PATIENCE_S)
            inside[0] -= 1

    threads.run(*[call] * 5)
    assert most == [2]
    assert calls._running_calls == {}
