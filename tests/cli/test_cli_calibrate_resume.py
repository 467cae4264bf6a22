"""`lumion-calibrate run` ended by a signal, by a full disk and by another run, and gone on with."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from calibration.run.journal import RunJournal, read_journal
from lumion_hw.cli import calibrate_main as main
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.storage import load_record
from tests.full_disk import room
from tests.recorded_calibration import RECORD, SMALL, in_the_sweeps, killed_in
from tests.waiting import PATIENCE_S, until

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

    def there() -> bool:
        assert process.poll() is None, process.communicate()[1]
        return path.exists() and path.stat().st_size >= size

    until(there)


def ended_by(number: signal.Signals, path: Path, size: int) -> tuple[int, str]:
    """Start a run, end it by a signal when its journal is so large, and return exit code and what it said."""
    process = start(path)
    wait_for(path.with_suffix(".journal"), size, process)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said


def assert_same_within_errors(found: CalibrationRecord, wanted: CalibrationRecord) -> None:
    """Two runs with other noise: they differ by no more than their standard errors say."""
    assert found.complete
    assert found.faults == ()
    phases = [[entry.passive_phase_rad for entry in record.pucs] for record in (found, wanted)]
    sigma = [[entry.passive_phase_sigma_rad for entry in record.pucs] for record in (found, wanted)]
    apart = np.subtract(*np.array(phases, dtype=float)) / np.hypot(*np.array(sigma, dtype=float))
    assert np.abs(apart).max() < 4.0


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code", "size"),
    [
        (signal.SIGTERM, 143, SURVEYED),
        pytest.param(signal.SIGINT, 130, 2_000, marks=pytest.mark.campaign),
        pytest.param(signal.SIGINT, 130, SURVEYED, marks=pytest.mark.campaign),
        pytest.param(signal.SIGTERM, 143, 300_000, marks=pytest.mark.campaign),
    ],
)
def test_a_run_ended_by_a_signal_says_how_to_go_on_and_goes_on(
    number: signal.Signals, code: int, size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    returned, said = ended_by(number, path, size)
    assert returned == code
    assert "Heaters and light are off" in said
    command = said[said.index("  lumion-calibrate run") :].splitlines()[0].strip()
    assert command.split() == ["lumion-calibrate", *arguments(path), "--resume"]
    assert not load_record(path).complete
    measured = len(read_journal(path.with_suffix(".journal")).entries)
    assert main([*command.split()[1:], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["record"], document["complete"], document["faults"]) == (str(path), True, [])
    assert (document["pucs_calibrated"], document["heaters_calibrated"]) == (15, 30)
    assert len(read_journal(path.with_suffix(".journal")).entries) > measured
    record = load_record(path)
    assert_same_within_errors(record, load_record(RECORD))
    assert record.provenance["interruptions"].startswith("1: resumed 2")


@pytest.mark.campaign
@pytest.mark.parametrize("size", [500, 60_000, 250_000])
def test_a_run_that_was_killed_goes_on(size: int, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert ended_by(signal.SIGKILL, path, size)[0] == -signal.SIGKILL
    assert not path.exists()
    assert main(arguments(path, "--resume")) == 0
    assert_same_within_errors(load_record(path), load_record(RECORD))


def test_a_full_disk_ends_the_run_with_what_was_written_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    with room(SURVEYED):
        assert main(arguments(path)) == 1
    said = capsys.readouterr().err
    assert f"cannot write the journal {path.with_suffix('.journal')}" in said
    assert "Traceback" not in said
    assert len(read_journal(path.with_suffix(".journal")).entries) > 10


def test_a_journal_in_use_by_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = killed_in(tmp_path, in_the_sweeps())
    with contextlib.closing(RunJournal.resume(path.with_suffix(".journal"))):
        for more in ([], ["--resume"]):
            assert main(arguments(path, *more)) == 6
            assert "is in use by another process" in capsys.readouterr().err


@pytest.mark.long
def test_a_run_of_another_seed_is_not_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = killed_in(tmp_path, in_the_sweeps())
    assert main([*arguments(path, "--resume"), "--seed", "2"]) == 3
    assert "the seed: 1 at the start, now 2" in capsys.readouterr().err
    assert len(read_journal(path.with_suffix(".journal")).entries) == in_the_sweeps()


def test_without_a_journal_there_is_nothing_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path / "record.json", "--resume")) == 2
    assert "there is no journal to resume" in capsys.readouterr().err


@pytest.mark.campaign
def test_a_wanted_standard_error_is_measured_for_and_said_to_be_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    assert main(arguments(path, "--sigma-mrad", "0.001", "--settings", "600", "--json")) == 3
    assert "error" in json.loads(capsys.readouterr().out)
    missed = load_record(path)
    assert missed.quality["chosen_settings"] > 0.0
    assert missed.quality["phase_sigma_wanted_rad"] == pytest.approx(1e-6)
    assert missed.complete
    assert missed.quality["settings"] <= 600
    assert len(missed.faults) == 1
    assert "the goal is 0.001 mrad, but only" in missed.faults[0]
    assert "--sigma-mrad 0.001 --settings 600" in missed.provenance["command_line"]
