"""A calibration of an emulated bench with its journal: cut short, and gone on with while the bench lives on or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from calibration.report.hidden_truth import compare
from calibration.run.journal import read_journal
from calibration.run.journaled_run import calibrate, journal_path
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import CalibrationError, LinkLost
from lumion_hw.polarization import Aligner
from lumion_hw.storage import load_record
from tests.calibration.bench_run import SMALL
from tests.recorded_calibration import SEED, in_the_sweeps, killed_in


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench.emulate(SMALL, seed=SEED) as opened:
        yield opened


def failing(stage: str, step: int, error: BaseException) -> Callable[[str, int, int], None]:
    """Return a progress callback in which a run ends at a step of a stage."""

    def progress(at: str, done: int, total: int) -> None:
        if at == stage and done >= step:
            raise error

    return progress


def cut_short(bench: Bench, path: Path, stage: str, step: int, error: BaseException) -> None:
    with pytest.raises(type(error)):
        calibrate(bench, Aligner(bench.clock), 1, path, failing(stage, step, error))
    assert not bench.mesh.confirmed_currents_ma().any()


@pytest.mark.campaign  # test_temperature_lock.py goes on from sweep 11
@pytest.mark.parametrize(
    ("stage", "step", "error"),
    [("chosen settings", 1, LinkLost("unplugged")), ("verification", 7, SystemExit(143))],
)
def test_a_run_goes_on_while_the_bench_lives_on(
    bench: Bench, tmp_path: Path, stage: str, step: int, error: BaseException
) -> None:
    path = tmp_path / "record.json"
    cut_short(bench, path, stage, step, error)
    assert not load_record(path).complete
    measured = len(read_journal(journal_path(path)).entries)
    record = calibrate(bench, Aligner(bench.clock), 1, path, resume=True)
    assert record == load_record(path)
    assert record.complete
    assert record.faults == ()
    assert np.sqrt((compare(bench, record).phase_error_rad ** 2).mean()) < 0.005
    assert len(read_journal(journal_path(path)).entries) > measured > 90
    assert read_journal(journal_path(path)).finished


def test_a_source_that_has_died_since_is_named(bench: Bench, tmp_path: Path) -> None:
    path = killed_in(tmp_path, in_the_sweeps(0.1))
    bench.emulated.faults.kill_port(6)
    with pytest.raises(CalibrationError, match=r"the ports with light: \(1, 6, 11\) at the start, now \(1, 11\)"):
        calibrate(bench, Aligner(bench.clock), 1, path, resume=True)
    assert not bench.mesh.confirmed_currents_ma().any()


@pytest.mark.long
def test_a_source_that_was_dead_is_not_tried_again(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    bench.emulated.faults.kill_port(6)
    cut_short(bench, path, "sweeps", 3, KeyboardInterrupt())
    header = read_journal(journal_path(path)).header
    assert (header.sources, set(header.dead)) == ((1, 11), {6})


@pytest.mark.long
def test_a_heater_that_was_broken_since_is_seen_by_the_last_settings(bench: Bench, tmp_path: Path) -> None:
    path = killed_in(tmp_path, in_the_sweeps(0.6))
    last = read_journal(journal_path(path)).entries[-1].currents_ma[-1]
    heater = int(np.argmax(last))
    bench.emulated.faults.stick_heater(heater // 2, heater % 2)
    with pytest.raises(CalibrationError, match="the bench has changed since the interrupted run"):
        calibrate(bench, Aligner(bench.clock), 1, path, resume=True)
