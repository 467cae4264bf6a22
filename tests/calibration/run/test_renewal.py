"""Some days after its calibration a bench is looked at again, and two seconds of light renew what is known of it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.fit.drift import Health
from calibration.measure.bench_probe import BenchProbe
from calibration.record.conversion import covariance_from_record, parameters_from_record
from calibration.record.raw_data import load_raw
from calibration.run.renewal import DriftRun, RecordPosterior
from lumion_hw.bench.bench import Bench
from lumion_hw.cli import calibrate_main as main
from lumion_hw.cli.calibrate.drift import next_name
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.programming.prediction import LOOP_DIRECTIONS
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.storage import load_record
from tests.calibration.aged_bench import (
    DAY_S,
    drifting_prototype,
    drifting_small,
    first_day,
    loop_error_rad,
    passive_errors,
)
from tests.calibration.bench_run import SMALL
from tests.calibration.run.test_procedure_interrupted import assert_safe
from tests.ideal_bench import ideal_bench
from tests.recorded_calibration import SEED, recorded_in


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("drift")
    drifting_small(directory)
    recorded_in(directory)
    return directory


@pytest.fixture
def record(home: Path) -> CalibrationRecord:
    return load_record(home / "record.json")


def aged(home: Path, days: float) -> Bench:
    return Bench.emulate(home / "drifting.yaml", seed=SEED, aged_s=days * DAY_S)


def looked_at(bench: Bench, record: CalibrationRecord, days: float) -> DriftRun:
    bench.mesh.check_record(record)  # as the command does: it tells how long the heaters take
    probe = BenchProbe(bench)
    probe.align_all()
    return DriftRun(probe, record, days, seed=11)


def test_a_record_of_today_holds(record: CalibrationRecord) -> None:
    with Bench.emulate(SMALL, seed=SEED) as bench:
        run = looked_at(bench, record, 0.0)
        health = run.check()
        assert_safe(bench)
    assert health.is_valid
    assert health.worst_sigma < 6.0
    # Three sources with all heaters off, and eight pure states.
    assert run.logbook.effort.settings == 11


def test_after_a_day_a_record_no_longer_holds_and_is_renewed_in_two_seconds(
    home: Path, record: CalibrationRecord
) -> None:
    with aged(home, 1.0) as bench:
        run = looked_at(bench, record, 1.0)
        assert not run.check().is_valid
        renewal = run.renew()
        assert_safe(bench)
        child = run.result(renewal)
        before, _ = passive_errors(bench, record)
        error, normalised = passive_errors(bench, child)
        assert loop_error_rad(bench, renewal.parameters) < 2e-3
        warmed_k = bench.emulated.slow_drift.temperature_k
    assert renewal.explains_readings
    assert run.check_renewal(renewal).is_valid
    assert np.sqrt(np.mean(before**2)) > 0.01
    assert np.sqrt(np.mean(error**2)) < 1.5e-3
    assert 0.4 < np.sqrt(np.mean(normalised**2)) < 1.7  # 15 PUCs: 18 % of standard error
    change = run.change(renewal)
    assert change.passive_rms_rad == pytest.approx(0.02, rel=0.5)
    assert change.temperature_k == pytest.approx(warmed_k, abs=0.02)
    assert run.logbook.effort.hardware_s < 2.5


def with_another_temperature(record: CalibrationRecord, seed: int, common_phase_rad: float) -> Health:
    with Bench.emulate(SMALL, seed=seed) as bench:
        bench.emulated.world.truth.common_phase_rad = common_phase_rad
        bench.emulated.world.disturb()
        return looked_at(bench, record, 1.0).check()


@pytest.mark.parametrize(
    "common_phase_rad", [-0.12, *(pytest.param(rad, marks=pytest.mark.long) for rad in (0.06, -0.06))]
)  # 0.1 and 0.2 K at 0.6 rad/K
def test_only_the_temperature_leaves_switching_as_it_was(record: CalibrationRecord, common_phase_rad: float) -> None:
    health = with_another_temperature(record, SEED, common_phase_rad)
    assert not health.is_valid
    assert health.chi2_without_temperature < 1.3


@pytest.mark.campaign
def test_a_temperature_further_away_leaves_switching_as_it_was(tmp_path: Path) -> None:
    record = first_day(SMALL, 3, tmp_path / "record.json")
    health = with_another_temperature(record, 3, -0.1)
    assert not health.is_valid
    assert health.chi2_without_temperature < 1.3


@pytest.mark.long
def test_minutes_after_its_calibration_a_drifting_chip_has_another_temperature_at_most(
    home: Path, record: CalibrationRecord
) -> None:
    with aged(home, 0.0) as bench:  # some 10 mK while the light is aligned
        assert looked_at(bench, record, 0.0).check().chi2_without_temperature < 1.5


@pytest.mark.long
def test_a_heater_that_broke_is_no_drift_and_its_puc_is_mostly_named(home: Path, record: CalibrationRecord) -> None:
    """Readings that fit worst lie beside a PUC as well as in it: of eight heaters one was not among the five worst."""
    named = 0
    for puc in (6, 0, 12):
        with aged(home, 1.0) as bench:
            bench.emulated.faults.stick_heater(puc=puc, arm=0)
            run = looked_at(bench, record, 1.0)
            run.check()
            renewal = run.renew()
        assert not renewal.explains_readings
        named += puc in renewal.worst_pucs
    assert named >= 2


@pytest.mark.campaign
def test_a_renewed_record_can_be_renewed_again(home: Path, record: CalibrationRecord) -> None:
    with aged(home, 1.0) as bench:
        run = looked_at(bench, record, 1.0)
        run.check()
        child = run.result(run.renew())
    with aged(home, 4.0) as bench:
        again = looked_at(bench, child, 3.0)
        again.check()
        grandchild = again.result(again.renew())
        error, _ = passive_errors(bench, grandchild)
    assert grandchild.parent_sha256 == child.content_sha256
    assert child.parent_sha256 == record.content_sha256
    assert np.sqrt(np.mean(error**2)) < 1.5e-3


class Cut(BenchProbe):
    """A probe whose user presses Ctrl-C at a chosen setting."""

    left = 0

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        self.left -= 1
        answer = super().measure(currents_ma)
        if self.left == 0:
            raise KeyboardInterrupt
        return answer


def check_and_renew(run: DriftRun) -> None:
    run.check()
    run.renew()


@pytest.mark.parametrize(
    "after",
    [pytest.param(1, marks=pytest.mark.campaign), *(pytest.param(after, marks=pytest.mark.long) for after in (5, 20))],
)
def test_an_interrupted_look_leaves_the_heaters_off(home: Path, record: CalibrationRecord, after: int) -> None:
    with aged(home, 1.0) as bench:
        probe = Cut(bench)
        probe.align_all()
        run = DriftRun(probe, record, 1.0)
        probe.left = after
        with pytest.raises(KeyboardInterrupt):
            check_and_renew(run)
        assert_safe(bench)


# Command line ---------------------------------------------------------------------------------------------------------


def drift(home: Path, *more: str) -> list[str]:
    return ["drift", str(home / "drifting.yaml"), *more, "--emulate", "--seed", str(SEED)]


def test_the_new_record_names_its_parent_and_the_old_one_is_untouched(
    home: Path, record: CalibrationRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    old = (home / "record.json").read_bytes()
    assert main(drift(home, str(home / "record.json"), "--aged-days", "4", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert Path(document["renewed"]).name == "record.drift-1.json"
    assert document["age_s"] == pytest.approx(4 * DAY_S, abs=300.0)
    assert document["doubts"] == ["the calibration record is 96.0 h old and should have been checked after 69.6 h"]
    assert not document["health"]["holds"]
    assert document["health_after"]["holds"]
    assert (home / "record.json").read_bytes() == old
    new = load_record(home / "record.drift-1.json")
    assert new.parent_sha256 == record.content_sha256
    assert new.provenance["renewed_from"] == record.record_id
    assert new.complete
    assert new.raw is not None
    assert len(load_raw(home / "record.drift-1.json", new.raw)) == document["settings"]
    assert main(drift(home, str(home / "record.drift-1.json"), "--aged-days", "4", "--check-only")) == 0
    assert "The record is valid" in capsys.readouterr().out


def test_check_only_writes_nothing_and_says_no_by_exit_code_3(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(home.iterdir())
    assert main(drift(home, str(home / "record.json"), "--aged-days", "4", "--check-only")) == 3
    said = capsys.readouterr()
    assert "is no longer valid" in said.out
    assert "without --check-only" in said.err
    assert sorted(home.iterdir()) == before


def test_what_is_there_is_never_written_over(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = (home / "record.json").read_bytes()
    assert main(drift(home, str(home / "record.json"), "--out", str(home / "record.json"))) == 2
    assert "exists. Choose another name" in capsys.readouterr().err
    assert (home / "record.json").read_bytes() == old


def test_days_pass_on_emulated_benches_only(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drift", str(home / "drifting.yaml"), str(home / "record.json"), "--aged-days", "1"]) == 2
    assert "--aged-days needs --emulate" in capsys.readouterr().err


def test_names_of_renewed_records_count_on(tmp_path: Path) -> None:
    first = next_name(tmp_path / "mesh.json")
    assert first.name == "mesh.drift-1.json"
    first.touch()
    assert next_name(tmp_path / "mesh.json").name == "mesh.drift-2.json"
    assert next_name(first).name == "mesh.drift-2.json"


# What a record keeps of its fit ---------------------------------------------------------------------------------------


def test_a_record_gives_back_the_fit_it_was_made_by(record: CalibrationRecord) -> None:
    known = RecordPosterior.of(record)
    np.testing.assert_allclose(known.covariance(), covariance_from_record(record), rtol=1e-9, atol=1e-14)
    found = parameters_from_record(record)
    np.testing.assert_allclose(known.parameters.passive_phase_rad, found.passive_phase_rad)


def test_loops_may_be_told_along_other_directions(record: CalibrationRecord) -> None:
    """The same covariance of joint phases, whatever basis the writer used."""
    entry = record.covariance
    assert entry is not None
    loops = entry.rows_of("loops")
    assert loops is not None
    factor, directions = (np.array(record.arrays[name]) for name in ("covariance_factor", LOOP_DIRECTIONS))
    factor[loops], directions = -factor[loops][::-1], -directions[:, ::-1]
    other = CalibrationRecord(
        **{name: getattr(record, name) for name in record.__dataclass_fields__ if name != "arrays"},
        arrays={"covariance_factor": factor, LOOP_DIRECTIONS: directions},
    )
    np.testing.assert_allclose(
        RecordPosterior.of(other).covariance(), RecordPosterior.of(record).covariance(), rtol=1e-6, atol=1e-14
    )


def test_a_record_without_covariance_cannot_be_renewed() -> None:
    stored = load_record(Path(__file__).parents[2] / "data" / "calibration-record-v1.json")
    with pytest.raises(CalibrationError):
        RecordPosterior.of(stored)


@pytest.mark.campaign
def test_on_the_prototype_a_day_is_renewed_to_a_milliradian_and_the_standard_errors_are_true(tmp_path: Path) -> None:
    path, normalised = drifting_prototype(tmp_path), []
    for seed in (1, 2, 3):
        record = first_day(ideal_bench("lumion-prototype", tmp_path), seed, tmp_path / f"{seed}.json")
        with Bench.emulate(path, seed=seed, aged_s=DAY_S) as bench:
            run = looked_at(bench, record, 1.0)
            assert not run.check().is_valid
            renewal = run.renew()
            child = run.result(renewal)
            error, over_sigma = passive_errors(bench, child)
            assert loop_error_rad(bench, renewal.parameters) < 1.5e-3
        assert renewal.explains_readings
        assert run.check_renewal(renewal).is_valid
        assert math.sqrt(np.mean(error**2)) < 1.5e-3
        assert run.logbook.effort.hardware_s < 2.5
        normalised += over_sigma.tolist()
    assert 0.8 < np.std(normalised) < 1.3
