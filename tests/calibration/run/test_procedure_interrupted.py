"""Ctrl-C at any moment: heaters at zero, modules dark, and nothing lost that was measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.measure.bench_probe import BenchProbe
from calibration.run.procedure import Calibration, Progress
from lumion_hw.bench.bench import Bench
from lumion_hw.cli.demo.steps import calibrate
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import CalibrationError
from lumion_hw.polarization import Aligner
from lumion_hw.storage import load_record, save_record
from tests.calibration.bench_run import SMALL, calibrated_bench


class CutProbe(BenchProbe):
    """A probe whose user presses Ctrl-C at a chosen measurement."""

    cut_at = 0

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        self.cut_at -= 1
        if self.cut_at == 0:
            super().measure(currents_ma)  # the heaters are already driven when it comes
            raise KeyboardInterrupt
        return super().measure(currents_ma)

    def measure_batch(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        if 0 < self.cut_at <= len(currents_ma):
            cut_at, self.cut_at = self.cut_at, 0
            super().measure_batch(currents_ma[:cut_at])
            raise KeyboardInterrupt
        self.cut_at -= len(currents_ma)
        return super().measure_batch(currents_ma)


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
    assert bench.emulated.world.mesh_output_w().sum() == 0.0


@pytest.fixture
def clock() -> CutClock:
    return CutClock()


@pytest.fixture
def bench(clock: CutClock) -> Iterator[Bench]:
    with Bench.emulate(SMALL, seed=1, clock=clock) as opened:
        yield opened


@pytest.mark.long  # the interrupts of tests/cli/test_cli_demo.py and the run cut short, below, are the fast ones
@pytest.mark.parametrize(("cut_at", "heaters"), [(60, 0), (450, 30)])
def test_an_interruption_in_a_measurement_leaves_the_bench_safe_and_the_findings(
    bench: Bench, cut_at: int, heaters: int, tmp_path: Path
) -> None:
    probe = CutProbe(bench)
    probe.align_all()
    run = Calibration(probe, probe.device_under_test(), seed=1)
    probe.cut_at = cut_at
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert_safe(bench)
    record = run.record()
    assert not record.complete
    # Some 90 readings to survey, then 7 settings per heater; passive phases come last.
    laws = [arm.law for entry in record.pucs for arm in (entry.upper, entry.lower)]
    assert sum(law is not None for law in laws) >= heaters
    assert all(entry.passive_phase_rad is None and entry.note for entry in record.pucs)
    save_record(record, tmp_path / "record.json")
    assert load_record(tmp_path / "record.json") == record
    with pytest.raises(CalibrationError, match="incomplete"):
        bench.mesh.check_record(record)


@pytest.mark.campaign
def test_a_run_goes_on_with_the_readings_of_the_one_that_was_cut_short(bench: Bench) -> None:
    probe = CutProbe(bench)
    probe.align_all()
    first = Calibration(probe, probe.device_under_test(), seed=1)
    probe.cut_at = 450
    with pytest.raises(KeyboardInterrupt):
        first.run()
    readings = first.logbook.observations()
    assert 350 < len(readings) < 450  # a batch that was cut is no reading
    before_s = probe.elapsed_s()
    resumed = Calibration(probe, probe.device_under_test(), seed=1, before=first.logbook.entries)
    record = resumed.run()
    assert record.complete
    assert record.faults == ()
    np.testing.assert_array_equal(resumed.logbook.observations().reading_ma[: len(readings)], readings.reading_ma)
    truth = bench.emulated.world.truth.passive_phase
    found = np.array([entry.passive_phase_rad for entry in record.pucs], dtype=float)
    assert np.abs((found - truth + np.pi) % (2 * np.pi) - np.pi).max() < 0.01
    assert probe.elapsed_s() - before_s < before_s


@pytest.mark.parametrize(
    "cut_at",
    [1, 3, 8, 40, *(pytest.param(cut, marks=pytest.mark.long) for cut in (2, 5, 13, 60, 250, 700))],
)
def test_an_interruption_in_the_middle_of_a_transaction_leaves_the_bench_safe(
    bench: Bench, clock: CutClock, cut_at: int
) -> None:
    probe = BenchProbe(bench)
    run = Calibration(probe, probe.device_under_test(), seed=1)
    clock.cut_at = cut_at
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert_safe(bench)
    assert not run.record().complete


def test_a_run_cut_short_leaves_an_incomplete_record_behind_that_never_replaces_one_that_is_there(
    bench: Bench, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(day := '{"schema": "lumion-calibration-record", "took": "a day"}')
    with pytest.raises(KeyboardInterrupt):
        calibrate(bench, Aligner(bench.clock), 1, path, stop_after("sweeps", 2))
    assert path.read_text() == day
    record = load_record(tmp_path / "calibration.incomplete.json")
    assert not record.complete
    assert sum(arm.law is not None for entry in record.pucs for arm in (entry.upper, entry.lower)) == 2
    assert_safe(bench)


def stop_after(stage: str, steps: int) -> Progress:
    """Return a progress callback that presses Ctrl-C after some steps of a stage."""
    count = itertools.count(1)

    def progress(at: str, _done: int, _total: int) -> None:
        if at == stage and next(count) == steps:
            raise KeyboardInterrupt

    return progress


@pytest.mark.campaign  # a run that goes on while its bench lives on: test_temperature_lock.py, test_journaled_run.py
def test_a_bench_that_was_interrupted_can_be_calibrated_again(bench: Bench, clock: CutClock) -> None:
    probe = BenchProbe(bench)
    run = Calibration(probe, probe.device_under_test(), seed=1)
    clock.cut_at = 800
    with pytest.raises(KeyboardInterrupt):
        run.run()
    found = calibrated_bench(bench, 1)
    assert found.record.complete
    assert np.sqrt((found.report.phase_error_rad**2).mean()) < 0.003


@pytest.mark.long
@pytest.mark.parametrize("cut_at", np.random.default_rng(10).integers(1, 1500, 4).tolist())
def test_an_interruption_at_any_time_leaves_the_bench_safe(
    bench: Bench, clock: CutClock, cut_at: int, tmp_path: Path
) -> None:
    probe = BenchProbe(bench)
    probe.align_all()
    run = Calibration(probe, probe.device_under_test(), seed=1)
    clock.cut_at = cut_at
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert_safe(bench)
    save_record(run.record(), tmp_path / "record.json")
    assert not load_record(tmp_path / "record.json").complete
