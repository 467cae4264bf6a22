"""`lumion-calibrate run` ended by signals, by a full disk and by another run, and gone on with; real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from calibration.record.raw_data import load_raw
from calibration.run.journal import read_journal
from lumion_hw.cli import calibrate_main as main
from lumion_hw.mesh.record import CalibrationRecord
from lumion_hw.storage import load_record

pytestmark = pytest.mark.xdist_group("cli-calibrate-resume")

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"
ENTRY = "import sys; from lumion_hw.cli import calibrate_main as main; sys.exit(main())"
SURVEYED = 120_000
"""Bytes of a journal whose run has come to the sweeps."""


def arguments(path: Path, *more: str) -> list[str]:
    return ["run", str(SMALL), "--emulate", "--seed", "1", "--out", str(path), *more]


def start(path: Path, *more: str, entry: str = ENTRY) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", entry, *arguments(path, *more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, size: int, process: subprocess.Popen[str]) -> None:
    """Wait until a journal is so large; its process is still at work then."""
    until = time.monotonic() + 60.0
    while not path.exists() or path.stat().st_size < size:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.01)


def ended_by(number: signal.Signals, path: Path, size: int) -> tuple[int, str]:
    """Start a run, end it by a signal when its journal is so large, and return exit code and what it said."""
    process = start(path)
    wait_for(path.with_suffix(".journal"), size, process)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The record of an undisturbed run, and what the run said on stderr."""
    path = tmp_path_factory.mktemp("undisturbed") / "record.json"
    process = start(path)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return path, said


def assert_same_within_errors(found: CalibrationRecord, wanted: CalibrationRecord) -> None:
    """Two runs with other noise: they differ by no more than their standard errors say."""
    assert found.complete
    assert found.faults == ()
    phases = [[entry.passive_phase_rad for entry in record.pucs] for record in (found, wanted)]
    sigma = [[entry.passive_phase_sigma_rad for entry in record.pucs] for record in (found, wanted)]
    apart = np.subtract(*np.array(phases, dtype=float)) / np.hypot(*np.array(sigma, dtype=float))
    assert np.abs(apart).max() < 4.0


@pytest.mark.parametrize(
    ("number", "code", "size"),
    [
        (signal.SIGTERM, 143, SURVEYED),
        pytest.param(signal.SIGINT, 130, SURVEYED, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, 130, 2_000, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, 143, 300_000, marks=pytest.mark.long),
    ],
)
def test_a_run_ended_by_a_signal_says_how_to_go_on_and_goes_on(
    number: signal.Signals, code: int, size: int, undisturbed: tuple[Path, str], tmp_path: Path
) -> None:
    path = tmp_path / "record.json"
    returned, said = ended_by(number, path, size)
    assert returned == code
    assert "Heaters and light are off" in said
    command = said[said.index("  lumion-calibrate run") :].splitlines()[0].strip()
    assert command.split() == ["lumion-calibrate", *arguments(path), "--resume"]
    assert not load_record(path).complete
    measured = len(read_journal(path.with_suffix(".journal")).entries)
    assert main(command.split()[1:]) == 0
    assert len(read_journal(path.with_suffix(".journal")).entries) > measured
    record = load_record(path)
    assert_same_within_errors(record, load_record(undisturbed[0]))
    assert record.provenance["interruptions"].startswith("1: resumed 2")


@pytest.mark.long
@pytest.mark.parametrize("size", [500, 60_000, 250_000])
def test_a_run_that_was_killed_goes_on(size: int, undisturbed: tuple[Path, str], tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert ended_by(signal.SIGKILL, path, size)[0] == -signal.SIGKILL
    assert not path.exists()
    assert main(arguments(path, "--resume")) == 0
    assert_same_within_errors(load_record(path), load_record(undisturbed[0]))


def test_a_full_disk_ends_the_run_with_what_was_written_whole_and_it_goes_on(
    undisturbed: tuple[Path, str], tmp_path: Path
) -> None:
    path = tmp_path / "record.json"
    process = start(path, entry=f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, ({SURVEYED}, -1)); {ENTRY}")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"cannot write the journal {path.with_suffix('.journal')}" in said
    assert "Traceback" not in said
    assert len(read_journal(path.with_suffix(".journal")).entries) > 10
    assert main(arguments(path, "--resume")) == 0
    assert_same_within_errors(load_record(path), load_record(undisturbed[0]))


def test_a_journal_in_use_by_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.json"
    process = start(path)
    try:
        wait_for(path.with_suffix(".journal"), 500, process)
        process.send_signal(signal.SIGSTOP)
        for more in ([], ["--resume"]):
            assert main(arguments(path, *more)) == 6
            assert "is in use by another process" in capsys.readouterr().err
    finally:
        process.kill()
        process.communicate()


def test_a_run_of_another_seed_is_not_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.json"
    ended_by(signal.SIGKILL, path, SURVEYED)
    assert main([*arguments(path, "--resume"), "--seed", "2"]) == 3
    assert "the seed was 1, is 2" in capsys.readouterr().err
    assert len(read_journal(path.with_suffix(".journal")).entries) > 10


def test_without_a_journal_there_is_nothing_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path / "record.json", "--resume")) == 2
    assert "there is no journal to go on from" in capsys.readouterr().err


# A run that was not disturbed ----------------------------------------------------------------------------------------


def test_off_a_terminal_each_stage_is_a_line_with_the_time_that_is_left(undisturbed: tuple[Path, str]) -> None:
    stages = [line.split(":")[0] for line in undisturbed[1].splitlines()]
    assert stages[:4] == ["alignment", "survey", "sweeps", "random settings"]
    assert stages[-1] == "verification"
    assert {"search", "global fit", "sources", "fibres"} < set(stages)
    assert all("left" in line for line in undisturbed[1].splitlines())


def test_the_raw_readings_lie_beside_the_record(undisturbed: tuple[Path, str]) -> None:
    path = undisturbed[0]
    record = load_record(path)
    assert record.raw is not None
    raw = load_raw(path, record.raw)
    assert raw.monitors == record.monitor_ports
    assert set(np.unique(raw.source)) == {-1, 1, 6, 11}
    in_journal = sum(len(entry.currents_ma) for entry in read_journal(path.with_suffix(".journal")).entries)
    assert len(raw) == in_journal > record.quality["settings"]


def test_the_record_says_where_it_comes_from(undisturbed: tuple[Path, str]) -> None:
    path = undisturbed[0]
    provenance = load_record(path).provenance
    assert provenance["interruptions"] == "0"
    assert provenance["command_line"] == "lumion-calibrate " + " ".join(arguments(path))
    assert provenance["started_utc"] <= provenance["stopped_utc"]
    assert len(provenance["journal_sha256"]) == len(provenance["plan_sha256"]) == 64


def test_the_reference_setting_was_looked_at_through_the_run(undisturbed: tuple[Path, str]) -> None:
    quality = load_record(undisturbed[0]).quality
    assert 0.0 < quality["reference_power_db"] < 0.05
    assert 0.5 < quality["reference_shape_sigma"] < 2.0


def test_a_wanted_standard_error_is_measured_for_and_said_to_be_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = []
    for sigma_mrad, most in (("100", "5000"), ("0.001", "900")):
        path = tmp_path / f"record-{sigma_mrad}.json"
        code = main(arguments(path, "--sigma-mrad", sigma_mrad, "--settings", most, "--json"))
        assert code == (0 if sigma_mrad == "100" else 3)
        assert ("error" in json.loads(capsys.readouterr().out)) == (code == 3)
        records.append(load_record(path))
    enough, missed = records
    assert enough.faults == ()
    assert enough.quality["chosen_settings"] == 0.0
    assert missed.quality["chosen_settings"] > 0.0
    assert missed.quality["phase_sigma_wanted_rad"] == pytest.approx(1e-6)
    assert missed.complete
    assert missed.quality["settings"] <= 900
    assert len(missed.faults) == 1
    assert "wanted 0.001 mrad, reached" in missed.faults[0]
    assert "--sigma-mrad 0.001 --settings 900" in missed.provenance["command_line"]
