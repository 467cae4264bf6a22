"""The same work on a dask cluster on this computer's loopback."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calibration.run.bench_jobs import BenchJob, jobs_for
from calibration.run.cluster import calibrate_on_cluster
from lumion_hw.cli import calibrate_main as main
from lumion_hw.errors import ConfigError, ConnectError
from lumion_hw.storage import load_record
from tests.calibration.run.two_benches import bench_file
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.skipif(find_spec("distributed") is None, reason="dask.distributed, of the extra cluster, is not there"),
    pytest.mark.filterwarnings("ignore"),  # of the cluster: its own, its event loop's, its sockets'
]


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """Let the cluster wait for its own parts as long as a busy machine takes, here and in processes started here."""
    import dask
    import distributed  # noqa: F401 - first, else what it configures goes with what is set here

    with (
        dask.config.set({"distributed.comm.timeouts.connect": f"{PATIENCE_S}s"}),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", f"{PATIENCE_S}s")
        patch.setattr("lumion_hw.cluster._CONNECT_S", PATIENCE_S)
        patch.setattr("calibration.run.cluster._NO_WORKER_S", PATIENCE_S)
        yield


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    import distributed

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address.removeprefix("tcp://")


@pytest.mark.campaign
def test_benches_are_calibrated_on_a_cluster_and_one_that_fails_stops_none(
    tmp_path: Path, scheduler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(bench_file(tmp_path, name, lit=name != "dark")) for name in ("dark", "a")]
    code = main(["many", *files, "--emulate", "--out", str(tmp_path / "out"), "--scheduler", scheduler, "--json"])
    said = capsys.readouterr()
    assert [each["state"] for each in json.loads(said.out)["benches"]] == ["failed", "calibrated"]
    assert code == 3
    assert load_record(tmp_path / "out" / "a.json").complete
    assert "a: global fit" in said.err


@pytest.mark.long
def test_ctrl_c_stops_the_benches_of_a_cluster(tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_for([str(bench_file(tmp_path, name)) for name in ("a", "b")], tmp_path, emulate=True)
    said: list[str] = []
    import distributed

    wait, pressed = distributed.wait, []

    def interrupted_wait(futures: Any, **how: Any) -> Any:
        """As the original, with Ctrl-C pressed once the first bench is at its sweeps."""
        if "a: sweeps" in said and not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        return wait(futures, **how)

    monkeypatch.setattr(distributed, "wait", interrupted_wait)
    ended = calibrate_on_cluster(jobs, scheduler, 1, said.append)
    assert isinstance(ended.interruption, KeyboardInterrupt)
    assert [each.state for each in ended.outcomes] == ["interrupted", "not begun"]
    assert not load_record(tmp_path / "a.json").complete


class NeverDone:
    """A future of it."""

    def cancel(self) -> None:
        """Nobody works at it any more."""


class OneWorker:
    """As much of a cluster's client as a run uses: one worker, lost at the second look, or its scheduler is."""

    address = "tcp://127.0.0.1:1"

    def __init__(self, lost: Exception | None) -> None:
        self._lost = lost
        self.given: list[str] = []

    def nthreads(self) -> dict[str, int]:
        if not self.given:
            return {self.address: 1}
        if self._lost is not None:
            raise self._lost
        return {}

    def submit(self, work: Any, job: BenchJob, *_: Any, **__: Any) -> Any:
        self.given.append(job.name)
        return NeverDone()

    def as_current(self) -> Any:
        return contextlib.nullcontext()

    def ignored(self, *_: Any) -> None:
        """Nobody listens."""

    subscribe_topic = unsubscribe_topic = close = ignored


@pytest.mark.parametrize(
    ("lost", "why", "then"),
    [
        (None, f"worker {OneWorker.address} was lost", "the cluster has no worker"),
        (
            OSError("closed"),
            "the connection to the scheduler was lost (OSError)",
            "the connection to the scheduler was lost",
        ),
        (
            CancelledError(),
            "the connection to the scheduler was lost (CancelledError)",
            "the connection to the scheduler was lost",
        ),
    ],
    ids=["worker", "scheduler", "scheduler that cancels"],
)
def test_a_bench_on_a_lost_worker_or_scheduler_has_failed_and_no_other_one_begins(
    lost: Exception | None, why: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the processes of the long test below do when they are killed, without them."""

    def nothing_done(_: Any, **__: Any) -> Any:
        raise TimeoutError

    cluster = OneWorker(lost)
    package = SimpleNamespace(Client=lambda *_, **__: cluster, Event=lambda *_, **__: None, wait=nothing_done)
    for module in ("lumion_hw.cluster", "calibration.run.cluster"):
        monkeypatch.setattr(f"{module}.require_distributed", lambda: package)
    monkeypatch.setattr("calibration.run.cluster._NO_WORKER_S", 0.0)  # nobody starts another one
    monkeypatch.setattr("calibration.run.cluster._POLL_INTERVAL_S", 0.0)
    jobs = [BenchJob(f"{name}.yaml", name, f"{name}.json") for name in ("a", "b")]
    ended = calibrate_on_cluster(jobs, "127.0.0.1:1", 1, print)
    assert ended.interruption is None
    assert cluster.given == ["a"]
    assert [each.state for each in ended.outcomes] == ["failed", "failed"]
    assert ended.outcomes[0].error.startswith(why)
    assert "watchdog" in ended.outcomes[0].error
    assert ended.outcomes[1].error == then


@pytest.fixture
def away(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """A scheduler and one worker, processes of their own: where it listens, and both."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    host, port = address.split(":")
    commands = [
        ["distributed.cli.dask_scheduler", "--host", host, "--port", port, "--no-dashboard"],
        ["distributed.cli.dask_worker", f"tcp://{address}", "--nthreads", "1", "--no-nanny", "--no-dashboard"],
    ]
    scheduler, worker = (
        subprocess.Popen([sys.executable, "-m", *command], cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
        for command in commands
    )
    yield address, scheduler, worker
    for process in (worker, scheduler):
        process.kill()
        process.wait(PATIENCE_S)


@pytest.mark.long
@pytest.mark.parametrize("lost", ["worker", pytest.param("scheduler", marks=pytest.mark.campaign)])
def test_what_is_lost_is_told_and_nobody_waits_for_it(
    tmp_path: Path,
    away: tuple[str, subprocess.Popen[bytes], subprocess.Popen[bytes]],
    lost: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, scheduler, worker = away
    jobs = jobs_for([str(bench_file(tmp_path, name)) for name in ("a", "b")], tmp_path, emulate=True)

    def say(line: str) -> None:
        if line == "a: sweeps":
            monkeypatch.setattr("calibration.run.cluster._NO_WORKER_S", 0.0)  # nobody starts another one
            (worker if lost == "worker" else scheduler).kill()

    ended = calibrate_on_cluster(jobs, address, 1, say)
    assert ended.interruption is None
    assert [each.state for each in ended.outcomes] == ["failed", "failed"]
    assert f"{lost} " in ended.outcomes[0].error
    assert "was lost" in ended.outcomes[0].error
    assert ended.outcomes[1].error == ("the cluster has no worker" if lost == "worker" else "the scheduler was lost")


def test_without_a_scheduler_there_is_one_clear_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_for([str(bench_file(tmp_path, "a"))], tmp_path, emulate=True)
    monkeypatch.setattr("lumion_hw.cluster._CONNECT_S", 0.3)
    with pytest.raises(ConnectError, match=r"no scheduler answers at 127\.0\.0\.1:1"):
        calibrate_on_cluster(jobs, "127.0.0.1:1", 1, lambda line: None)


def test_without_dask_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_for([str(bench_file(tmp_path, "a"))], tmp_path, emulate=True)
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"lumion-hw\[cluster\]"):
        calibrate_on_cluster(jobs, "127.0.0.1:1", 1, lambda line: None)
