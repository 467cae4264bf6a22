"""Chips of cells with one heater: one laser behind a switch, meters at the outputs, heaters of a foundry."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from calibration.report.hidden_truth import true_parameters
from calibration.report.truth_errors import phase_errors
from lumion_hw.bench.bench import Bench
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from tests.calibration.bench_run import SMALL, Calibrated, calibrated_bench

SWITCHED = SMALL.with_name("switched.yaml")


def cells_bench(folder: Path, topology: str, ports: int) -> Path:
    """Write a bench file like ``switched.yaml`` for another chip."""
    document: dict[str, Any] = yaml.safe_load(SWITCHED.read_text())
    document["devices"]["mesh0"] |= {"modules": None, "total_power_mw": 6000, "compliance_v": 12}
    del document["devices"]["mesh0"]["modules"]
    document["mesh"] |= {"topology": topology, "ports": ports}
    del document["mesh"]["typical"]["puc_loss_db"]
    document["wiring"] = {
        "inputs": [
            {"laser": "laser", "port": port, "through": [{"device": "switch", "enters": 1, "leaves": 17 + port}]}
            for port in range(ports)
        ],
        "outputs": [{"port": ports + port, "tap": {"meter": "meter", "channel": 1 + port}} for port in range(ports)],
    }
    path = folder / f"{topology}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def calibrated(folder: Path, topology: str, ports: int, seed: int) -> Calibrated:
    with Bench.emulate(cells_bench(folder, topology, ports), seed=seed) as bench:
        found = calibrated_bench(bench, seed)
        judge(bench, found.record)
    return found


def judge(bench: Bench, record: CalibrationRecord) -> None:
    """The record is certified, without faults, and as near to the hidden chip as it says."""
    assert record.faults == ()
    normalised, figures = phase_errors(bench, record, true_parameters(bench, record))
    assert figures["passive_mrad"] < 0.3
    assert figures["loops_mrad"] < 0.5
    assert np.sqrt(np.mean(normalised["loss_db"] ** 2)) < 1.5
    assert np.sqrt(np.mean(normalised["law"] ** 2)) < 1.5


def test_a_fabric_in_which_no_paths_interfere_is_calibrated(tmp_path: Path) -> None:
    """Two trees of one switch each at both sides: light goes from an input to an output on one path only."""
    found = calibrated(tmp_path, "spanke", 2, 1)
    assert all(entry.upper.law is not None and entry.lower.law is not None for entry in found.record.pucs)


@pytest.mark.campaign
@pytest.mark.parametrize("topology", ["dilated-benes", "spanke"])
def test_a_dilated_fabric_is_calibrated(tmp_path: Path, topology: str) -> None:
    """Phases that no light shows are no fault; a dilated Benes network has one, a Spanke network nine."""
    calibrated(tmp_path, topology, 4, 1)


THROUGH_OXIDE = {"other_arm_crosstalk": 0.05, "oxide_decay_mm": 0.1}
THROUGH_SUBSTRATE = {"crosstalk_scale": 36.0}
"""Heaters add 5 % of their own phase to the other arm of their PUC, and 3 % to the arms of the next PUC."""


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("topology", "ports", "crosstalk"),
    [
        ("rectangular", 4, THROUGH_OXIDE),
        ("rectangular", 5, THROUGH_OXIDE),
        ("clements", 3, THROUGH_SUBSTRATE),
        ("rectangular", 5, THROUGH_SUBSTRATE),
    ],
)
def test_a_chip_without_trenches_is_calibrated(
    tmp_path: Path, topology: str, ports: int, crosstalk: dict[str, float]
) -> None:
    path = cells_bench(tmp_path, topology, ports)
    document = yaml.safe_load(path.read_text())
    document["emulation"] = document.get("emulation", {}) | crosstalk
    path.write_text(yaml.safe_dump(document))
    with Bench.emulate(path, seed=1) as bench:
        record = calibrated_bench(bench, 1).record
        assert record.quality["fit_certified"] == 1.0
        assert [fault for fault in record.faults if fault.startswith("not certified")] == []
        normalised, figures = phase_errors(bench, record, true_parameters(bench, record))
    assert figures["passive_mrad"] < 1.5
    assert np.sqrt(np.mean(normalised["law"] ** 2)) < 1.8


@pytest.mark.long
def test_a_chip_from_a_netlist_of_gdsfactory_is_calibrated(tmp_path: Path) -> None:
    """The cells of the rectangular mesh, with heaters as close to each other as they were drawn."""
    document = yaml.safe_load(cells_bench(tmp_path, "clements", 4).read_text())
    del document["mesh"]["ports"]
    document["mesh"] |= {"topology": "netlist", "netlist": "clements4.yml"}
    shutil.copy(SMALL.with_name("netlists") / "clements4.yml", tmp_path)
    path = tmp_path / "netlist.yaml"
    path.write_text(yaml.safe_dump(document))
    with Bench.emulate(path, seed=1) as bench:
        found = calibrated_bench(bench, 1)
        judge(bench, found.record)
    heaters = [heater for entry in found.record.pucs for heater in (entry.upper, entry.lower)]
    # Of 15 heaters five are at inputs and outputs, where no power shows their phase; cells have a second arm.
    assert sum(heater.law is not None for heater in heaters) == 10
    assert [heater.note for heater in heaters].count("no heater") == len(heaters) - 15
    # The record needs neither the bench file nor the netlist.
    assert found.record.mesh.cell_names[0] == "out_0"
