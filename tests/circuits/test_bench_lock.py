"""The lock of a bench: one program at a time, with a known name; ended programs never block."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lumion_hw.circuits import BenchLock, LockOwner, lock, lock_owner
from lumion_hw.circuits.lock import STALE_S
from lumion_hw.errors import BusyError, ConfigError
from tests.waiting import until

HOLDER = """
import sys
from lumion_hw.circuits.lock import BenchLock
with BenchLock(sys.argv[1], "holder") as lock:
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path):
    """Another program that holds the bench."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_program_is_refused_and_told_who_holds_the_bench(holder, tmp_path: Path) -> None:
    name = f"{LockOwner.of_this_process('').user}@{LockOwner.of_this_process('').host}:{holder.pid}"
    with (
        pytest.raises(BusyError, match=rf"{name} has been driving .* 'holder' since .*--take-over {name}") as caught,
        BenchLock(tmp_path, "second"),
    ):
        pass
    assert caught.value.exit_code == 6
    owner = lock_owner(tmp_path)
    assert owner is not None
    assert (owner.name, owner.program) == (name, "holder")
    with pytest.raises(ConfigError, match="'eve@elsewhere' does not hold the bench"):
        BenchLock(tmp_path, "second", take_over="eve@elsewhere").__enter__()


def test_an_owner_that_was_killed_does_not_block_and_is_named(holder, tmp_path: Path) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert lock_owner(tmp_path) is None
    with BenchLock(tmp_path, "second") as lock:
        assert lock.dead_owner is not None
        assert lock.dead_owner.pid == holder.pid
        lock.check()
    with BenchLock(tmp_path, "third") as lock:
        assert lock.dead_owner is None  # the second program released it


def test_who_was_taken_over_finds_out_before_the_next_change(tmp_path: Path) -> None:
    with BenchLock(tmp_path, "first") as first:
        owner = lock_owner(tmp_path)
        assert owner is not None
        with BenchLock(tmp_path, "second", take_over=f"{owner.user}@{owner.host}") as second:
            second.check()
            with pytest.raises(BusyError, match=r"taken over: it now belongs to .*\(second\)"):
                first.check()
            with pytest.raises(BusyError, match="taken over"), first.changing():
                raise AssertionError("it may change nothing")
            with second.changing():
                pass
    assert lock_owner(tmp_path) is None


def test_a_take_over_waits_for_the_change_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[bool] = []
    try_lock = lock._try_lock
    monkeypatch.setattr(lock, "_try_lock", lambda *args, **named: tries.append(try_lock(*args, **named)) or tries[-1])
    with BenchLock(tmp_path, "first") as first:
        owner = lock_owner(tmp_path)
        assert owner is not None
        took, second = threading.Event(), BenchLock(tmp_path, "second", take_over=owner.name)

        def take() -> None:
            second.__enter__()
            took.set()

        with first.changing():
            thread = threading.Thread(target=take)
            thread.start()
            # Refused as a second program, it finds a change under way, and looks again.
            until(lambda: tries.count(False) >= 3 or took.is_set())
            assert not took.is_set()
            first.check()  # the first program still holds it
        thread.join()
        assert took.is_set()
        second.__exit__(None, None, None)


def test_the_owner_on_another_host_counts_until_it_has_been_silent_for_long(tmp_path: Path) -> None:
    far = dataclasses.replace(LockOwner.of_this_process("far"), host="elsewhere", pid=1)
    path = tmp_path / "lock"
    path.write_text(json.dumps(dataclasses.asdict(far)))
    with pytest.raises(BusyError, match="@elsewhere:1 has been driving this bench with 'far'"):
        BenchLock(tmp_path, "near").__enter__()
    long_ago_s = path.stat().st_mtime - STALE_S - 1.0
    os.utime(path, (long_ago_s, long_ago_s))
    with BenchLock(tmp_path, "near") as lock:
        assert lock.dead_owner is None  # unknown
        owner = lock_owner(tmp_path)
        assert owner is not None
        assert owner.program == "near"


@pytest.mark.parametrize("content", [b"", b"{}", b"not JSON", b"\xff" * 10_000, b'{"user": "a"}'])
def test_a_lock_file_that_names_nobody_is_free(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    with BenchLock(tmp_path, "first") as lock:
        assert lock.dead_owner is None


def test_of_many_at_once_exactly_one_gets_it(tmp_path: Path) -> None:
    got, refused, barrier = [], [], threading.Barrier(8)

    def run() -> None:
        lock = BenchLock(tmp_path, "one of many")
        barrier.wait()
        try:
            lock.__enter__()
            got.append(lock)
        except BusyError as error:
            refused.append(error)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert len(refused) == 7
    got[0].__exit__(None, None, None)
    until(lambda: lock_owner(tmp_path) is None)
