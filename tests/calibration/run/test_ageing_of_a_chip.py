"""A foundry's chip on Qontrol modules some weeks later: the check says what has aged, and mends only that."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from calibration.record.conversion import covariance_from_record
from calibration.run.matrices import refine_matrix
from lumion_hw.bench.bench import Bench
from lumion_hw.cli import calibrate_main as main
from lumion_hw.errors import LumionError
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.matrix import (
    amplitude_fidelity,
    fidelity_up_to_port_phases,
    program_matrix,
    source_detunings_hz,
)
from lumion_hw.mesh.record.calibration_record import HEATER_RESISTANCES, CalibrationRecord
from lumion_hw.storage import load_record
from tests.calibration.aged_bench import first_day
from tests.calibration.run.test_matrices import on_chip
from tests.mesh.known_truth import haar_unitary

CHIP = Path(__file__).parents[3] / "examples" / "benches" / "clements-4x4-qontrol.yaml"
SEED = 1
DAYS = 25

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("chip")
    first_day(CHIP, SEED, directory / "chip.json")
    return directory


def checked(home: Path, name: str, capsys: pytest.CaptureFixture[str], **drift: float) -> dict[str, object]:
    """Check the chip after some weeks in which the given quantities drifted; return the JSON document."""
    document = yaml.safe_load(CHIP.read_text())
    document["emulation"] |= drift
    bench = home / f"{name}.yaml"
    bench.write_text(yaml.safe_dump(document))
    out = home / f"{name}.json"
    arguments = ["drift", str(bench), str(home / "chip.json"), "--out", str(out), "--json"]
    assert main([*arguments, "--emulate", "--seed", str(SEED), "--aged-days", str(DAYS)]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


def kinds(document: dict[str, object]) -> set[str]:
    changes = document["changes"]
    assert isinstance(changes, list)
    return {change["kind"] for change in changes}


def laws(record: CalibrationRecord) -> np.ndarray:
    return np.array([one.law.rho2_rad_per_ma2 for p in record.pucs for one in (p.upper, p.lower) if one.law])


def passive(record: CalibrationRecord) -> np.ndarray:
    return np.array([puc.passive_phase_rad for puc in record.pucs], dtype=np.float64)


def test_the_record_has_the_resistance_of_every_heater_that_was_driven(home: Path) -> None:
    record = load_record(home / "chip.json")
    heaters, current_ma, ohm = record.arrays[HEATER_RESISTANCES].T
    assert len(heaters) == len(laws(record)) == 10
    with Bench.emulate(CHIP, seed=SEED) as bench:
        truth = bench.emulated.world.truth
        cold_ohm = truth.heater_ohm[heaters.astype(int)]
        heat_mw = current_ma**2 * ohm * 1e-3
        hot_ohm = cold_ohm * (1.0 + truth.nonlinearity_per_mw[heaters.astype(int)] * heat_mw)
    np.testing.assert_allclose(ohm, hot_ohm, rtol=3e-3)  # offsets of the modules' readings


def test_a_chip_that_did_not_change_keeps_every_value(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = checked(home, "same", capsys)
    assert document["changes"] == []
    assert document["settings"] <= 2 * 10
    assert document["temperature_k"] == 0.0  # feed-forward: no loop shows it
    old, new = load_record(home / "chip.json"), load_record(home / "same.json")
    assert new.pucs == old.pucs
    assert new.joints == old.joints
    np.testing.assert_allclose(covariance_from_record(new), covariance_from_record(old), rtol=1e-5, atol=1e-14)


def test_offsets_that_drifted_are_mended_and_heaters_keep_their_laws(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kinds(checked(home, "offset", capsys, phase_drift_rad_per_root_day=4e-3)) == {"offset", "loop"}
    old, new = load_record(home / "chip.json"), load_record(home / "offset.json")
    np.testing.assert_array_equal(laws(new), laws(old))
    assert np.std(passive(new) - passive(old)) > 5e-3
    with Bench.emulate(home / "offset.yaml", seed=SEED, aged_s=DAYS * 86_400.0) as bench:
        true_rad = bench.emulated.world.truth.passive_phase
        interferes = bench.mesh.topology.interferes
        error = np.angle(np.exp(1j * (passive(new) - true_rad)))[interferes]
    assert np.abs(error).max() < 3e-3


@pytest.mark.parametrize(
    ("kind", "key"), [("gain", "gain_drift_per_root_day"), ("resistance", "resistance_drift_per_root_day")]
)
def test_gain_and_resistance_are_told_apart_by_the_voltage(
    home: Path, capsys: pytest.CaptureFixture[str], kind: str, key: str
) -> None:
    assert kinds(checked(home, kind, capsys, **{key: 2e-3})) == {kind}
    old, new = load_record(home / "chip.json"), load_record(home / f"{kind}.json")
    np.testing.assert_array_equal(passive(new), passive(old))
    assert np.std(laws(new) / laws(old)) > 2e-3


def test_a_chip_that_changed_too_much_is_sent_to_a_new_calibration(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load(CHIP.read_text())
    document["emulation"]["phase_drift_rad_per_root_day"] = 1.0
    bench = home / "other.yaml"
    bench.write_text(yaml.safe_dump(document))
    arguments = ["drift", str(bench), str(home / "chip.json"), "--out", str(home / "other.json")]
    assert main([*arguments, "--emulate", "--seed", str(SEED), "--aged-days", str(DAYS)]) == 3
    said = capsys.readouterr().err
    assert "has changed too much for a check" in said
    assert "calibrate again" in said
    assert load_record(home / "other.json").faults


def test_a_matrix_is_refined_on_the_aged_chip_to_what_its_losses_allow(home: Path) -> None:
    record = load_record(home / "chip.json")
    document = yaml.safe_load(CHIP.read_text())
    document["emulation"] |= {
        "phase_drift_rad_per_root_day": 0.02,
        "gain_drift_per_root_day": 0.001,
        "resistance_drift_per_root_day": 5e-4,
    }
    bench_file = home / "refined.yaml"
    bench_file.write_text(yaml.safe_dump(document))
    wanted = haar_unitary(4, np.random.default_rng(0))
    with Bench.emulate(bench_file, seed=SEED, aged_s=DAYS * 86_400.0) as bench, bench.dark():
        known = CalibratedMesh.from_record(record, bench.mesh.heater_max_ma)
        setting = program_matrix(known, wanted, detunings_hz=source_detunings_hz(record))
        history = refine_matrix(bench, record, setting, rounds=5, readings=200)
        true = [fidelity_up_to_port_phases(wanted, on_chip(bench, record, each.setting)) for each in history]
        amplitudes = [amplitude_fidelity(wanted, on_chip(bench, record, each.setting)) for each in history]
    for measured, fidelity, amplitude in zip(history, true, amplitudes, strict=True):
        assert measured.readings <= 200
        assert measured.phases_are_measured
        assert abs(measured.phase_true.value - fidelity) < 5.0 * measured.phase_true.sigma + 2e-5
        assert abs(measured.amplitude.value - amplitude) < 5.0 * measured.amplitude.sigma + 2e-5
    # Of what ageing has cost, a tenth may remain; unequal losses of the paths stay.
    assert setting.fidelity - true[-1] < 0.1 * (setting.fidelity - true[0])
    assert true[0] < setting.fidelity - 1e-3
    assert len(history) <= 6


def test_a_meter_that_is_unplugged_in_a_refinement_is_named_and_everything_is_off(home: Path) -> None:
    record = load_record(home / "chip.json")
    with Bench.emulate(CHIP, seed=SEED) as bench, bench.dark():
        chip, faults = bench.emulated.world, bench.emulated.faults
        known = CalibratedMesh.from_record(record, bench.mesh.heater_max_ma)
        setting = program_matrix(known, haar_unitary(4, np.random.default_rng(0)))
        with pytest.raises(LumionError, match="meter") as raised:
            refine_matrix(bench, record, setting, on_step=lambda stage, done, total: faults.inject("meter", "no_cable"))
        assert raised.value.hint
        assert not bench.mesh.confirmed_currents_ma().any()
        assert not chip.mesh_output_w().any()
