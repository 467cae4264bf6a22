"""Several benches at once: each in a process of its own, so that none can take another with it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, wait
from pathlib import Path

import pytest

from calibration.run.bench_jobs import BenchJob, BenchOutcome, calibrate_bench, calibrate_benches, gather, jobs_for
from lumion_hw.cli import calibrate_main as main
from lumion_hw.cli.calibrate.many import exit_code_of
from lumion_hw.errors import ConfigError
from lumion_hw.storage import load_record
from tests.calibration.run.two_benches import bench_file
from tests.waiting import PATIENCE_S, Bound


def outcome(name: str, code: int = 0) -> BenchOutcome:
    return BenchOutcome(name, "calibrated" if code == 0 else "failed", exit_code=code)


# Whose benches they are -----------------------------------------------------------------------------------------------


def test_every_bench_has_a_record_of_its_name_and_a_seed_of_its_own(tmp_path: Path) -> None:
    files = [str(bench_file(tmp_path, name)) for name in ("a", "b")]
    first, second = jobs_for(files, tmp_path / "out", emulate=True, seed=7)
    assert (first.name, first.record, first.seed) == ("a", str(tmp_path / "out" / "a.json"), 7)
    assert (second.name, second.seed) == ("b", 8)


@pytest.mark.parametrize("serial", ["SMALL-0001", "MY00000044", "ER-B"])
def test_benches_that_share_a_device_are_refused(tmp_path: Path, serial: str) -> None:
    files = [str(bench_file(tmp_path, name, same=(serial,))) for name in ("a", "b")]
    with pytest.raises(ConfigError, match=f"serial {serial}, so they cannot be calibrated at the same time"):
        jobs_for(files, tmp_path)


def test_one_bench_twice_is_refused(tmp_path: Path) -> None:
    file = str(bench_file(tmp_path, "a"))
    with pytest.raises(ConfigError, match="both use the name 'a'"):
        jobs_for([file, file], tmp_path)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tcp://Bench-PC:5025", "tcp://bench-pc:5025"),
        ("serial://{tmp}/port?baud=9600", "serial://{tmp}/by-id/usb-port"),
    ],
)
def test_one_address_written_in_two_ways_is_one_device(tmp_path: Path, one: str, other: str) -> None:
    (tmp_path / "port").touch()
    (tmp_path / "by-id").mkdir()
    (tmp_path / "by-id" / "usb-port").symlink_to(tmp_path / "port")
    files = []
    for name, address in (("a", one), ("b", other)):
        file = bench_file(tmp_path, name)
        known = address.format(tmp=tmp_path)
        file.write_text(file.read_text().replace("{kind: oz-epc04}", f"{{kind: oz-epc04, address: '{known}'}}", 1))
        files.append(str(file))
    with pytest.raises(ConfigError, match="both use device pol-a at"):
        jobs_for(files, tmp_path)


def test_a_refused_set_of_benches_opens_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(bench_file(tmp_path, "a"))
    assert main(["many", file, file, "--emulate", "--out", str(tmp_path / "out")]) == 2
    assert "cannot be calibrated at the same time" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# What a worker does ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_worker_that_is_told_to_stop_leaves_an_incomplete_record(tmp_path: Path) -> None:
    (job,) = jobs_for([str(bench_file(tmp_path, "a"))], tmp_path, emulate=True)
    said: list[str] = []
    found = calibrate_bench(job, lambda: "a: sweeps" in said, said.append)
    assert (found.state, found.exit_code) == ("interrupted", 130)
    assert found.record == job.record
    assert not load_record(Path(job.record)).complete


def test_a_bench_without_light_fails_in_words_and_leaves_no_record(tmp_path: Path) -> None:
    (job,) = jobs_for([str(bench_file(tmp_path, "a", lit=False))], tmp_path, emulate=True)
    found = calibrate_bench(job, lambda: False, lambda line: None)
    assert (found.state, found.record, found.exit_code) == ("failed", None, 3)
    assert "no light is wired" in found.error


def test_an_interruption_drops_what_has_not_begun_and_waits_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [BenchJob("x", name, f"{name}.json") for name in ("a", "b", "c")]
    done, running, queued = Future[BenchOutcome](), Future[BenchOutcome](), Future[BenchOutcome]()
    running.set_running_or_notify_cancel()
    done.set_result(outcome("a"))
    stopped: list[bool] = []

    def stop() -> None:
        stopped.append(True)
        running.set_result(BenchOutcome("b", "interrupted", exit_code=130))

    def interrupted_wait(futures: Sequence[Future[BenchOutcome]]) -> object:
        """As the original, with Ctrl-C pressed the first time."""
        if not stopped:
            raise KeyboardInterrupt
        return wait(futures, timeout=PATIENCE_S)

    monkeypatch.setattr("calibration.run.bench_jobs.wait", interrupted_wait)
    ended = gather(jobs, [done, running, queued], stop, lambda line: None)
    assert isinstance(ended.interruption, KeyboardInterrupt)
    assert stopped == [True]
    assert [each.state for each in ended.outcomes] == ["calibrated", "interrupted", "not begun"]


def test_exit_codes_of_several_benches() -> None:
    assert exit_code_of((outcome("a"), outcome("b"))) == 0
    assert exit_code_of((outcome("a"), outcome("b", 3))) == 3
    assert exit_code_of((outcome("a", 4), outcome("b", 3))) == 4
    assert exit_code_of((outcome("a", 4), outcome("b", 5))) == 1


# Processes ------------------------------------------------------------------------------------------------------------


@pytest.mark.campaign
def test_benches_are_calibrated_and_one_that_fails_stops_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(bench_file(tmp_path, name, lit=name != "dark")) for name in ("dark", "a")]
    out = tmp_path / "out"
    code = main(["many", *files, "--emulate", "--out", str(out), "--workers", "2", "--json"])
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert [each["state"] for each in document["benches"]] == ["failed", "calibrated"]
    assert code == document["exit_code"] == 3
    record = load_record(out / "a.json")
    assert record.complete
    assert record.device_serial == "SMALL-0001-a"
    assert "a: global fit" in said.err


@pytest.mark.long
def test_a_process_that_dies_takes_no_other_bench_with_it(tmp_path: Path) -> None:
    jobs = jobs_for([str(bench_file(tmp_path, name, lit=name == "a")) for name in ("a", "b")], tmp_path, emulate=True)

    def say(line: str) -> None:
        if line == "a: sweeps":
            for child in multiprocessing.active_children():  # one worker at a time: it is a's
                child.kill()

    ended = calibrate_benches(jobs, 1, say)
    assert [each.state for each in ended.outcomes] == ["failed", "failed"]
    assert "the process of this bench died" in ended.outcomes[0].error
    assert "no light is wired" in ended.outcomes[1].error  # it had its turn, in a new process


@pytest.fixture
def at_sweeps(tmp_path: Path, not_for_ever: Bound) -> subprocess.Popen[str]:
    """`many` on three benches in a process of its own, the first two of which are at their sweeps."""
    files = [str(bench_file(tmp_path, name)) for name in ("a", "b", "c")]
    run = "import sys; from lumion_hw.cli import calibrate_main as main; sys.exit(main(sys.argv[1:]))"
    options = ["--emulate", "--out", str(tmp_path), "--workers", "2", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", run, "many", *files, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    not_for_ever(process)
    assert process.stderr is not None
    begun: set[str] = set()
    while not {"a: sweeps", "b: sweeps"} <= begun:
        line = process.stderr.readline()
        assert line, "it ended before its benches were at their sweeps"
        begun.add(line.strip())
    return process


@pytest.mark.campaign
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_stops_all_benches_and_each_leaves_what_it_has_found(
    tmp_path: Path, at_sweeps: subprocess.Popen[str], sent: signal.Signals, code: int
) -> None:
    at_sweeps.send_signal(sent)
    out, err = at_sweeps.communicate(timeout=PATIENCE_S)
    assert at_sweeps.returncode == code, err
    assert [each["state"] for each in json.loads(out)["benches"]] == ["interrupted", "interrupted", "not begun"]
    for name in ("a", "b"):
        assert not load_record(tmp_path / f"{name}.json").complete
    assert not (tmp_path / "c.json").exists()


@pytest.mark.long
def test_workers_whose_parent_is_killed_stop_by_themselves(tmp_path: Path, at_sweeps: subprocess.Popen[str]) -> None:
    at_sweeps.kill()
    at_sweeps.communicate(timeout=PATIENCE_S)  # ends when nobody has its pipes any more: the workers are gone
    for name in ("a", "b"):
        assert not load_record(tmp_path / f"{name}.json").complete
    assert not (tmp_path / "c.json").exists()
