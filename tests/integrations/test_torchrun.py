"""Jobs of torchrun: the coordinator and its hook with ranks of the test's own, and the example under torchrun."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lumion_hw import Bench
from lumion_hw.errors import ConfigError, DeviceError
from lumion_hw.fabric.hooks import CommandHooks
from lumion_hw.integrations import torchrun
from lumion_hw.integrations.torchrun import Coordinator, call_hook, main, run_member
from tests.fabric.managed_fabric import SMALL, managed
from tests.waiting import until

ROOT = Path(__file__).parents[2]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


class Rank:
    """A rank that reports what the test says. The fixture closes it."""

    opened: ClassVar[list[Rank]] = []

    def __init__(self, address: str, server: str, index: int = 0) -> None:
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), 10.0)
        self.lines = self.socket.makefile("r", encoding="utf-8")
        self.report("hello", server=server, index=index)
        self.report("warm")
        self.opened.append(self)

    def report(self, kind: str, **details: Any) -> None:
        self.socket.sendall((json.dumps({"is": kind, **details}) + "\n").encode())

    def order(self) -> dict[str, Any]:
        order: dict[str, Any] = json.loads(self.lines.readline() or '{"do": "end"}')
        return order

    def train(self, order: dict[str, Any]) -> None:
        for kind in ("group_up", "first_allreduce", "state_restored", "first_step"):
            self.report(kind, generation=order["generation"], step=1)


@pytest.fixture
def address() -> Iterator[str]:
    """Address of a running coordinator of a job on the servers a and b."""
    coordinator = Coordinator(("127.0.0.1", 0), ["a", "b"], 1, 100)
    thread = threading.Thread(target=coordinator.run)
    thread.start()
    address = f"127.0.0.1:{coordinator.address[1]}"
    yield address
    for rank in Rank.opened:
        rank.lines.close()
        rank.socket.close()
    Rank.opened.clear()
    coordinator._progress.hashes = {"a": "", "b": ""}  # the job is done
    thread.join(10.0)
    coordinator.close()
    assert not thread.is_alive()


@needs_torch
def test_the_hook_makes_the_survivors_leave_and_the_spare_take_the_rank(address: str) -> None:
    a, b, c = (Rank(address, server) for server in "abc")
    for number, rank in enumerate((a, b)):
        order = rank.order()
        assert (order["do"], order["rank"], order["world"], order["is_new"]) == ("form", number, 2, True)
        rank.train(order)
    call_hook(address, "stop", ["a", "b", "b"])
    assert a.order()["do"] == "leave"
    assert b.order()["do"] == "end", "the failed server does not come back"
    rebuilding = threading.Thread(target=call_hook, args=(address, "rebuild", ["a", "c"]))
    rebuilding.start()
    orders = {}
    for name, rank in (("a", a), ("c", c)):
        while (order := rank.order())["do"] == "leave":
            pass
        orders[name] = (order["rank"], order["is_new"])
        rank.train(order)
    assert orders == {"a": (0, False), "c": (1, True)}
    rebuilding.join(10.0)
    call_hook(address, "restore", ["a", "c"])
    call_hook(address, "go", ["a", "c"])


@needs_torch
def test_a_rank_that_never_joins_is_named(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ranks = [Rank(address, server) for server in "ab"]
    assert [rank.order()["do"] for rank in ranks] == ["form", "form"]
    monkeypatch.setattr(torchrun, "JOIN_TIMEOUT_S", 0.3)
    assert main(["hook", address, "stop", "train", "a", "b", "b"]) == 0
    assert main(["hook", address, "rebuild", "train", "a", "c"]) == 1
    assert capfd.readouterr().err == "rebuild: rank 0 of c did not join within 0 s\n"


@needs_torch
def test_a_connection_that_says_nothing_or_nonsense_stops_nobody(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port))), socket.create_connection((host, int(port))) as other:
        other.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert other.recv(1) == b"", "closed"
        for rank in [Rank(address, server) for server in "ab"]:
            assert rank.order()["do"] == "form"
    assert "neither a rank nor the hook" in capfd.readouterr().out


@needs_torch
def test_a_restarted_process_has_no_state(address: str) -> None:
    a, b = (Rank(address, server) for server in "ab")
    for rank in (a, b):
        rank.train(rank.order())
    call_hook(address, "stop", ["a", "b", "b"])
    assert a.order()["do"] == "leave"
    again = Rank(address, "b")
    rebuilding = threading.Thread(target=call_hook, args=(address, "rebuild", ["a", "b"]))
    rebuilding.start()
    orders = []
    for rank in (a, again):
        while (order := rank.order())["do"] == "leave":
            pass
        orders.append(order["is_new"])
        rank.train(order)
    rebuilding.join(10.0)
    assert orders == [False, True]


@needs_torch
def test_a_spare_that_dies_while_it_joins_is_named_at_once(address: str) -> None:
    a, _, c = (Rank(address, server) for server in "abc")
    call_hook(address, "stop", ["a", "b", "b"])

    def die_when_ordered() -> None:
        while c.order()["do"] != "form":
            pass
        c.socket.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=die_when_ordered).start()
    with pytest.raises(DeviceError, match="rebuild: rank 0 of c: its process has ended"):
        call_hook(address, "rebuild", ["a", "c"])
    d = Rank(address, "d")
    call_hook(address, "stop", ["a", "c", "c"])
    for rank in (a, d):
        threading.Thread(target=_train_when_ordered, args=(rank, 3)).start()
    call_hook(address, "rebuild", ["a", "d"])


def _train_when_ordered(rank: Rank, generation: int) -> None:
    with contextlib.suppress(OSError):  # the test has ended, and closed the socket
        while (order := rank.order()).get("generation") != generation:
            pass
        rank.train(order)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DeviceError, match=r"the coordinator at 127\.0\.0\.1:1 does not answer"):
        call_hook("127.0.0.1:1", "go", ["a"])
    assert main(["hook", "nowhere", "go", "train", "a"]) == 1
    assert "'nowhere' is no address" in capfd.readouterr().err
    monkeypatch.delenv("LUMION_SERVER", raising=False)
    monkeypatch.setenv("LUMION_COORDINATOR", "127.0.0.1:1")
    monkeypatch.setenv("LOCAL_RANK", "0")
    missing = "has no LUMION_SERVER" if importlib.util.find_spec("torch") else "needs torch"
    with pytest.raises(ConfigError, match=missing):
        run_member(None, None)  # type: ignore[arg-type]


# -- the example under torchrun ---------------------------------------------------------------------------------------


class Job:
    """The example under torchrun on three servers of this computer, and its coordinator."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, steps: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "LUMION_COORDINATOR": self.address}
        words = ["coordinate", self.address, "a", "b", "--per-server", "2", "--steps", str(steps)]
        self._log = folder / "events.jsonl"
        with self._log.open("w", encoding="utf-8") as log:
            self.coordinator = subprocess.Popen(
                [sys.executable, "-m", "lumion_hw.integrations.torchrun", *words], stdout=log
            )
        stack.callback(_end, self.coordinator)
        self.wait_for("waiting")
        self.agents = {}
        for server in "abc":
            launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            with (folder / f"{server}.log").open("w", encoding="utf-8") as log:
                self.agents[server] = subprocess.Popen(
                    [*launch, str(ROOT / "examples" / "torchrun_job.py")],
                    env={**environment, "LUMION_SERVER": server},
                    stdout=log,
                    stderr=log,
                )
            stack.callback(_end, self.agents[server])

    def wait_for(self, event: str, generation: int | None = None) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def has_come() -> bool:
            events = [json.loads(line) for line in self._log.read_text(encoding="utf-8").splitlines()]
            found[:] = [each for each in events if each["event"] == event]
            found[:] = [each for each in found if generation in (None, each.get("generation"))]
            return bool(found)

        until(has_come)
        return found[0]

    def workers(self, server: str) -> list[int]:
        pid = self.agents[server].pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30.0)


@needs_torch
@pytest.mark.long
def test_the_example_goes_on_with_the_spare_that_the_fabric_connects(tmp_path: Path) -> None:
    steps, hashes = 300, list[dict[str, str]]()
    for is_disturbed in (False, True):
        folder = tmp_path / str(is_disturbed)
        folder.mkdir()
        with contextlib.ExitStack() as stack:
            job = Job(folder, stack, steps)
            hook = [sys.executable, "-m", "lumion_hw.integrations.torchrun", "hook", job.address]
            if is_disturbed:
                bench = stack.enter_context(Bench.emulate(SMALL, seed=5))
                hooks = stack.enter_context(contextlib.closing(CommandHooks(hook, 60.0)))
                manager = stack.enter_context(managed(bench, folder, hooks=hooks))
                manager.begin()
                job.wait_for("first_step")
                os.kill(job.workers("b")[0], signal.SIGKILL)
                manager.mark_failed("b", "a process has ended")
                assert manager.state.not_resumed == {}
                assert job.wait_for("first_step", 2)["step"] < steps
            hashes.append(job.wait_for("done")["sha256"])
    by_rank = [sorted(each.items()) for each in hashes]
    assert [name for name, _ in by_rank[1]] == ["rank 0 of a", "rank 0 of c", "rank 1 of a", "rank 1 of c"]
    assert [digest for _, digest in by_rank[0]] == [digest for _, digest in by_rank[1]]
