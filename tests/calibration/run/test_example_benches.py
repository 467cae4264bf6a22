"""The benches of ``examples/benches``: short files, without mistakes, and calibrated as well as their records state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.report.hidden_truth import true_parameters
from calibration.report.truth_errors import phase_errors
from calibration.run.dry_run import expected_heat_mw
from calibration.run.planning import Goal
from lumion_hw.bench.bench import Bench, load
from lumion_hw.bench.file.loader import check_bench
from lumion_hw.cli.common.bench_notes import bench_notes
from tests.calibration.bench_run import calibrated_bench

BENCHES = Path(__file__).parents[3] / "examples" / "benches"
ALL = sorted(path.stem for path in BENCHES.glob("*.yaml"))


def judge(name: str, seed: int, goal: Goal | None = None) -> None:
    """The record is certified, without faults, and as near to the hidden chip as it says."""
    with Bench.emulate(BENCHES / f"{name}.yaml", seed=seed) as bench:
        record = calibrated_bench(bench, seed, goal).record
        normalised, figures = phase_errors(bench, record, true_parameters(bench, record))
    assert record.faults == ()
    assert record.quality["fit_certified"] == 1.0
    assert figures["passive_mrad"] < 1.0
    # The goal of 1 mrad is a standard error; the loops of one chip may be off by half as much again.
    assert figures["loops_mrad"] < 1.5
    assert np.sqrt(np.mean(normalised["loss_db"] ** 2)) < 1.5
    assert np.sqrt(np.mean(normalised["law"] ** 2)) < 1.5


@pytest.mark.parametrize("name", ALL)
def test_the_file_has_no_mistakes_and_limits_that_suffice(name: str) -> None:
    path = BENCHES / f"{name}.yaml"
    assert not check_bench(str(path))
    model = load(path)
    assert model.name == name
    assert bench_notes(model) == []
    assert 0.0 < expected_heat_mw(model) < model.devices[model.mesh_section.controller].total_power_mw


def test_the_file_of_the_smallest_chip_is_short() -> None:
    assert len((BENCHES / "clements-4x4-qontrol.yaml").read_text().splitlines()) <= 25


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        # test_cells.py calibrates a smaller rectangular mesh.
        pytest.param("rectangular-6x6", 1, marks=pytest.mark.campaign),
        # `make test` calibrates another mesh of few cells (test_cells.py), and a hexagonal one (test_procedure.py).
        ("clements-4x4-qontrol", 1),
        ("benes-8x8", 2),
        # The mesh of tests/data/small.yaml, with less light; a laser behind a switch is in test_cells.py.
        pytest.param("small-hexagonal", 1, marks=pytest.mark.campaign),
        ("netlist-3x3", 1),
        # 80 s. test_by_hand.py judges moved fibres on a 4x4 chip, test_dry_run.py the plan of this bench.
        pytest.param("reck-8x8-by-hand", 1, marks=pytest.mark.campaign),
    ],
)
def test_the_chip_is_calibrated(name: str, seed: int) -> None:
    judge(name, seed)


# 32 s. The 4x4 chip is of the same kind.
@pytest.mark.campaign
def test_the_12x12_chip_is_calibrated() -> None:
    # The options of docs/cookbook/photodiodes.md.
    judge("clements-12x12-photodiodes", 1, Goal(hardware_s=180.0, settings=10_000))
