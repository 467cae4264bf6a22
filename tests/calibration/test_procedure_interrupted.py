"""Ctrl-C at any moment: heaters at zero, modules dark, and nothing lost that was measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from bench_run import SMALL, calibrated_bench
from numpy.typing import NDArray

from calibration.bench_probe import BenchProbe
from calibration.procedure import Calibration, Progress
from calibration.story import calibrate
from lumion_hw.bench.bench import Bench
from lumion_hw.circuits import Aligner
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.record import CalibrationRecord


class CutProbe(BenchProbe):
    """A probe whose user presses Ctrl-C at a chosen measurement."""

    cut_at = 0

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        self.cut_at -= 1
        if self.cut_at == 0:
            super().measure(currents_ma)  # the heaters are already driven when it comes
            raise KeyboardInterrupt
        return super().measure(currents_ma)


class CutClock(VirtualClock):
    """A clock on which Ctrl-C comes in the middle of a wait: inside a driver's transaction, or while heaters settle."""

    cut_at = 0

    def sleep(self, seconds: float) -> None:
        self.cut_at -= 1
        if self.cut_at == 0:
            raise KeyboardInterrupt
        super().sleep(seconds)


def driven_codes(bench: Bench) -> NDArray[np.uint16]:
    """Return what the emulated board really drives."""
    board = bench.emulated.faults.board("mesh0")
    board.advance()
    return board.driven_codes


def assert_safe(bench: Bench) -> None:
    assert not driven_codes(bench).any()
    bench.clock.sleep(1.0)
    assert bench.emulated.world.leaving_w().sum() == 0.0


@pytest.fixture
def clock() -> CutClock:
    return CutClock()


@pytest.fixture
def bench(clock: CutClock) -> Iterator[Bench]:
    with Bench.emulate(SMALL, seed=1, clock=clock) as opened:
        yield opened


@pytest.mark.parametrize(("cut_at", "least"), [(230, 0), (1300, 4)])
def test_an_interruption_in_a_measurement_leaves_the_bench_safe_and_the_findings(
    bench: Bench, cut_at: int, least: int, tmp_path: Path
) -> None:
    probe = CutProbe(bench)
    probe.align_all()
    run = Calibration(probe, probe.subject(), seed=1)
    probe.cut_at = cut_at
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert_safe(bench)
    record = run.record()
    assert not record.complete
    # Some 160 settings per PUC: two sweeps of 48, and 64 for the passive phase.
    found = {puc: entry for puc, entry in enumerate(record.pucs) if entry.passive_phase_rad is not None}
    assert least <= len(found) <= cut_at / 150
    truth = bench.emulated.world.truth.passive_phase
    for puc, entry in enumerate(record.pucs):
        assert (entry.note == "") == (puc in found)
    for puc, entry in found.items():
        assert np.cos(entry.passive_phase_rad - truth[puc]) > 0.8
        assert entry.upper.law is not None
        assert entry.lower.law is not None
    record.save(tmp_path / "record.json")
    assert CalibrationRecord.load(tmp_path / "record.json") == record
    with pytest.raises(CalibrationError, match="incomplete"):
        bench.mesh.check_record(record)


@pytest.mark.parametrize("cut_at", [1, 2, 3, 5, 8, 13, 40, *np.random.default_rng(9).integers(50, 4000, 4).tolist()])
def test_an_interruption_in_the_middle_of_a_transaction_leaves_the_bench_safe(
    bench: Bench, clock: CutClock, cut_at: int
) -> None:
    probe = BenchProbe(bench)
    run = Calibration(probe, probe.subject(), seed=1)
    clock.cut_at = cut_at
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert_safe(bench)
    assert not run.record().complete


def test_the_story_leaves_an_incomplete_record_behind(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    with pytest.raises(KeyboardInterrupt):
        calibrate(bench, Aligner(bench.clock), 1, path, stop_after("wavefront", 2))
    record = CalibrationRecord.load(path)
    assert not record.complete
    assert sum(entry.passive_phase_rad is not None for entry in record.pucs) == 2
    assert_safe(bench)


def test_an_incomplete_record_never_replaces_one_that_is_there(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text("a record that took a day")
    with pytest.raises(KeyboardInterrupt):
        calibrate(bench, Aligner(bench.clock), 1, path, stop_after("survey", 1))
    assert path.read_text() == "a record that took a day"
    assert not CalibrationRecord.load(tmp_path / "calibration.incomplete.json").complete


def stop_after(stage: str, steps: int) -> Progress:
    """Return a progress callback that presses Ctrl-C after some steps of a stage."""
    count = itertools.count(1)

    def progress(at: str, _done: int, _total: int) -> None:
        if at == stage and next(count) == steps:
            raise KeyboardInterrupt

    return progress


@pytest.mark.long
def test_a_bench_that_was_interrupted_can_be_calibrated_again(bench: Bench, clock: CutClock) -> None:
    probe = BenchProbe(bench)
    run = Calibration(probe, probe.subject(), seed=1)
    clock.cut_at = 2500
    with pytest.raises(KeyboardInterrupt):
        run.run()
    found = calibrated_bench(bench, 1)
    assert found.record.complete
    assert np.sqrt((found.report.phase_error_rad**2).mean()) < 0.030


@pytest.mark.long
@pytest.mark.parametrize("cut_at", np.random.default_rng(10).integers(1, 14_000, 8).tolist())
def test_an_interruption_at_any_time_leaves_the_bench_safe(
    bench: Bench, clock: CutClock, cut_at: int, tmp_path: Path
) -> None:
    probe = BenchProbe(bench)
    probe.align_all()
    run = Calibration(probe, probe.subject(), seed=1)
    clock.cut_at = cut_at
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert_safe(bench)
    run.record().save(tmp_path / "record.json")
    assert not CalibrationRecord.load(tmp_path / "record.json").complete
