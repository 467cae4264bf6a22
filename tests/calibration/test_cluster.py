"""The same work on a dask cluster on this computer's loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from two_benches import bench_file
from waiting import PATIENCE_S

from calibration.run.bench_job import jobs_for
from calibration.run.cluster import calibrate_on_cluster
from lumion_hw.cli import calibrate_main as main
from lumion_hw.errors import ConfigError, ConnectError
from lumion_hw.storage import load_record

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.filterwarnings("ignore")  # of the cluster: its own, its event loop's, its sockets'


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address.removeprefix("tcp://")


def test_benches_are_calibrated_on_a_cluster_and_one_that_fails_stops_none(
    tmp_path: Path, scheduler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(bench_file(tmp_path, name, lit=name != "dark")) for name in ("a", "dark", "b")]
    code = main(["many", *files, "--emulate", "--out", str(tmp_path / "out"), "--scheduler", scheduler, "--json"])
    said = capsys.readouterr()
    assert [each["state"] for each in json.loads(said.out)["benches"]] == ["calibrated", "failed", "calibrated"]
    assert code == 3
    for name in ("a", "b"):
        assert load_record(tmp_path / "out" / f"{name}.json").complete
        assert f"{name}: global fit" in said.err


def test_ctrl_c_stops_the_benches_of_a_cluster(tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_for([str(bench_file(tmp_path, name)) for name in ("a", "b")], tmp_path, emulate=True)
    said: list[str] = []
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


@pytest.mark.parametrize("lost", ["worker", "scheduler"])
def test_what_is_lost_is_told_and_nobody_waits_for_it(
    tmp_path: Path,
    away: tuple[str, subprocess.Popen[bytes], subprocess.Popen[bytes]],
    lost: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("calibration.run.cluster._NO_WORKER_S", 1.0)
    address, scheduler, worker = away
    jobs = jobs_for([str(bench_file(tmp_path, name)) for name in ("a", "b")], tmp_path, emulate=True)

    def say(line: str) -> None:
        if line == "a: sweeps":
            (worker if lost == "worker" else scheduler).kill()

    ended = calibrate_on_cluster(jobs, address, 1, say)
    assert ended.interruption is None
    assert [each.state for each in ended.outcomes] == ["failed", "failed"]
    assert f"{lost} " in ended.outcomes[0].error
    assert "was lost" in ended.outcomes[0].error
    assert ended.outcomes[1].error == ("the cluster has no worker" if lost == "worker" else "the scheduler was lost")


def test_without_a_scheduler_there_is_one_clear_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_for([str(bench_file(tmp_path, "a"))], tmp_path, emulate=True)
    monkeypatch.setattr("calibration.run.cluster._CONNECT_S", 0.3)
    with pytest.raises(ConnectError, match=r"no scheduler answers at 127\.0\.0\.1:1"):
        calibrate_on_cluster(jobs, "127.0.0.1:1", 1, lambda line: None)


def test_without_dask_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_for([str(bench_file(tmp_path, "a"))], tmp_path, emulate=True)
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"lumion-hw\[cluster\]"):
        calibrate_on_cluster(jobs, "127.0.0.1:1", 1, lambda line: None)
