"""A bench whose modules light two ports at once, calibrated by the sum of both powers, beside its hidden truth."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml

from calibration.measure.bench_probe import BenchProbe
from calibration.report.hidden_truth import compare, true_parameters
from calibration.report.truth_errors import phase_errors
from calibration.run.dry_run import dry_run
from calibration.run.planning import Goal
from calibration.run.procedure import Calibration
from calibration.run.verification import verify
from lumion_hw.bench.bench import Bench, load
from lumion_hw.cli import calibrate_main as main
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.storage import load_record, save_record

pytestmark = pytest.mark.long  # each test needs a calibration of its own kind; sums of powers: test_phase_search.py
ZR_PAIR = Path(__file__).parents[2] / "data" / "zr_pair.yaml"
SEED = 2
GOAL = Goal(sigma_rad=3e-3)


@dataclass(frozen=True)
class Found:
    """A calibrated bench, its files and its record as it was read back."""

    bench: Bench
    bench_file: Path
    record_file: Path
    record: CalibrationRecord


@pytest.fixture(scope="module")
def bench_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chip as fabricated: passive phases at random, crosstalk."""
    document = yaml.safe_load(ZR_PAIR.read_text()) | {"emulation": {}}
    path = tmp_path_factory.mktemp("zr") / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(scope="module")
def found(bench_file: Path) -> Iterator[Found]:
    with Bench.emulate(bench_file, seed=SEED) as bench:
        probe = BenchProbe(bench)
        path = bench_file.with_name("record.json")
        save_record(Calibration(probe, probe.device_under_test(), SEED, goal=GOAL).run(), path)
        yield Found(bench, bench_file, path, load_record(path))


def test_phases_and_loops_are_those_of_the_hidden_mesh(found: Found) -> None:
    figures = phase_errors(found.bench, found.record, true_parameters(found.bench, found.record))[1]
    assert figures["passive_mrad"] < 3.0
    assert figures["loops_mrad"] < 3.0
    report = compare(found.bench, found.record)
    assert math.sqrt(float((report.phase_error_rad**2).mean())) < 0.005


def test_nothing_is_blamed_and_light_that_no_fit_has_seen_is_as_predicted(found: Found) -> None:
    assert found.record.complete
    assert found.record.faults == ()
    assert found.record.quality["fit_certified"] == 1.0
    assert found.record.quality["held_out_excess_db"] < 0.1


def test_the_record_says_what_was_lit_together_and_both_levels(found: Found) -> None:
    lit = {entry.port: entry for entry in found.record.ports if entry.source_dbm is not None}
    assert {port: entry.lit_with for port, entry in lit.items()} == {5: None, 7: 5, 12: None, 14: 12}
    world = found.bench.emulated.world
    loss_db = world.truth.access_loss_db
    for first, second in ((5, 7), (12, 14)):  # equal at the module and on the way to the chip: the facets are left
        over_first_db = (lit[second].source_dbm or 0.0) - (lit[first].source_dbm or 0.0)
        assert over_first_db == pytest.approx(loss_db[first] - loss_db[second], abs=0.2)
    written = {entry["port"]: entry for entry in json.loads(found.record_file.read_text())["ports"]}
    assert written[7]["lit_with"] == 5
    assert "lit_with" not in written[5]  # so that records of other benches keep their hash


def test_it_verifies_here_and_not_on_another_chip(
    found: Found, bench_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["verify", str(bench_file), str(found.record_file), "--emulate", "--json"]
    assert main([*asked, "--seed", str(SEED)]) == 0
    assert main([*asked, "--seed", str(SEED + 7)]) == 3
    capsys.readouterr()


def test_held_out_light_is_predicted_by_the_record_alone(found: Found) -> None:
    result = verify(BenchProbe(found.bench), found.record, seed=11)
    assert result.excess_db < 0.1
    assert {one.source for one in result.results} == {5, 12}


def test_a_record_made_with_other_ports_lit_together_is_refused_by_name(
    found: Found, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Light at port 5 alone would be 10 dB from what the record says of 5 and 7, and the mesh be blamed for it."""
    document = yaml.safe_load(found.bench_file.read_text())
    document["wiring"]["inputs"] = [path for path in document["wiring"]["inputs"] if path["port"] != 7]
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    for command in ("verify", "drift"):
        assert main([command, str(path), str(found.record_file), "--emulate", "--seed", str(SEED)]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "feeds port 5 alone, but the calibration record was made with light at ports 5 and 7 together" in said


def test_drift_says_that_the_record_holds(found: Found, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["drift", str(found.bench_file), str(found.record_file), "--emulate", "--seed", str(SEED)]
    assert main([*asked, "--out", str(found.record_file.with_name("renewed.json"))]) == 0
    assert "The record is valid" in capsys.readouterr().out


@pytest.mark.campaign
def test_further_wavelengths_are_found_too(bench_file: Path, tmp_path: Path) -> None:
    with Bench.emulate(bench_file, seed=SEED) as bench:
        probe = BenchProbe(bench)
        record = Calibration(probe, probe.device_under_test(), SEED, goal=GOAL, wavelengths_nm=(1545.0, 1560.0)).run()
    assert record.faults == ()
    assert record.quality["unseen_wavelength_excess_db"] < 0.1


def test_the_plan_knows_that_both_are_lit(bench_file: Path) -> None:
    planned = dry_run(load(bench_file), 0, GOAL)
    assert planned.sources == (5, 12)
    assert planned.sigma_rad["second_db"] < 0.2
    assert np.hypot(planned.sigma_rad["passive_phase_rad"], planned.sigma_rad["loops"]) < 5e-3
    assert not planned.shortfall


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.campaign) for seed in (3, 4, 5)])
def test_other_chips_are_found_as_well(bench_file: Path, seed: int) -> None:
    with Bench.emulate(bench_file, seed=seed) as bench:
        probe = BenchProbe(bench)
        record = Calibration(probe, probe.device_under_test(), seed, goal=GOAL).run()
        figures = phase_errors(bench, record, true_parameters(bench, record))[1]
    assert record.faults == ()
    assert figures["passive_mrad"] < 3.0
    assert figures["loops_mrad"] < 6.0


# -- little light


@pytest.fixture
def dim(tmp_path: Path) -> Path:
    """The bench of docs/bench-file.md as it stands there: no amplifier, so that most readings are below one count."""
    page = (Path(__file__).parents[3] / "docs" / "bench-file.md").read_text()
    (example,) = (block for block in re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S) if "tributary: x" in block)
    document = {"version": 1, "name": "dim", "mesh": {"controller": "mesh0", "columns": [2]}} | yaml.safe_load(example)
    path = tmp_path / "dim.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.campaign
def test_with_little_light_nothing_is_called_broken_that_is_only_dark(dim: Path) -> None:
    with Bench.emulate(dim, seed=1) as bench:
        probe = BenchProbe(bench)
        record = Calibration(probe, probe.device_under_test(), seed=1, goal=Goal(sigma_rad=30e-3)).run()
    kinds = {defect.kind for defect in record.defects}
    assert kinds <= {"faint monitor", "unseen PUC", "unseen heater"}
    assert "faint monitor" in kinds
    assert all("Increase the light" in defect.evidence for defect in record.defects)
