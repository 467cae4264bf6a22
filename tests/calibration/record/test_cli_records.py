"""`lumion-calibrate` show, compare and export: what can be done with records and no bench."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration.model.parameters import MeshParameters
from calibration.record.comparison import compare_records
from calibration.record.conversion import build_record
from lumion_hw.cli import calibrate_main as main
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CrosstalkEntry, Defect
from lumion_hw.storage import load_record, save_record
from tests.calibration import one_cell
from tests.calibration.one_cell import CELL, SPACE
from tests.calibration.simulated_mesh import SimulatedMesh

ORIGIN = replace(one_cell.ORIGIN, defects=(Defect("stuck PUC", "puc", 4, "no effect of either heater", ("bar",)),))
SIGMA = {"passive_phase_rad": 2e-3, "loops": 1e-3, "loss_db": 0.01, "source_db": 0.02}


@pytest.fixture(scope="module")
def found() -> MeshParameters:
    return SimulatedMesh.draw(CELL, 5).parameters()


def covariance() -> np.ndarray:
    """Return the covariance of independent parameters with the standard errors above; the others held."""
    variance = SPACE.vector({name: sigma**2 for name, sigma in SIGMA.items()})
    return np.diag(variance)


def record_of(found: MeshParameters, errors: np.ndarray | float = 0.0, **changes: object) -> CalibrationRecord:
    """Return a record whose parameters are off by so many standard errors."""
    vector = SPACE.pack(found) + errors * np.sqrt(np.diag(covariance()))
    return build_record(SPACE, SPACE.unpack(vector), replace(ORIGIN, **changes), covariance())  # type: ignore[arg-type]


@pytest.fixture
def saved(found: MeshParameters, tmp_path: Path) -> tuple[str, str]:
    """Two records of one mesh, independent by their standard errors."""
    rng = np.random.default_rng(1)
    for name in ("a.json", "b.json"):
        save_record(record_of(found, rng.standard_normal(SPACE.size)), tmp_path / name)
    return str(tmp_path / "a.json"), str(tmp_path / "b.json")


# Comparing -----------------------------------------------------------------------------------------------------------


def test_two_honest_records_differ_by_their_errors(saved: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *saved, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    groups = {group["group"]: group for group in document["groups"]}
    # 10 + 10 + 12 errors of ±1σ in both records; χ² per degree of freedom is 1 ± √(2/36).
    assert document["chi2_per_dof"] == pytest.approx(1.0, abs=0.7)
    assert groups["passive_phase_rad"]["rms"] == pytest.approx(2e-3 * np.sqrt(2), rel=0.6)
    assert groups["passive_phase_rad"]["rms_sigma"] == pytest.approx(1.0, abs=0.6)
    assert groups["rho2"]["rms"] == 0.0
    assert groups["rho2"]["rms_sigma"] is None  # held: it has no standard error


def test_a_phase_that_moved_is_found_and_named(found: MeshParameters) -> None:
    errors = np.zeros(SPACE.size)
    errors[SPACE.groups["passive_phase_rad"].start + 7] = 30.0
    result = compare_records(record_of(found), record_of(found, errors))
    group = result.groups[0]
    assert group.worst_at == "passive_phase_rad of PUC 7"
    assert group.worst == pytest.approx(0.06)
    assert group.worst_sigma == pytest.approx(30.0 / np.sqrt(2), rel=1e-3)


def test_whole_turns_and_the_gauge_of_the_joints_are_no_difference(found: MeshParameters) -> None:
    chi = np.random.default_rng(2).uniform(-3.0, 3.0, CELL.n_pucs)
    sign = np.where(CELL.joints % 4 < 2, 1.0, -1.0)
    joints = found.joint_phase_rad + (sign * chi[CELL.joints // 4]).sum(axis=1)
    joints[3] += 2.0 * np.pi
    other = replace(found, joint_phase_rad=joints, passive_phase_rad=found.passive_phase_rad + 2.0 * np.pi)
    first, second = (build_record(SPACE, each, ORIGIN, covariance()) for each in (found, other))
    result = compare_records(first, second)
    assert {group.group: group.rms for group in result.groups}["loops"] < 1e-9
    assert all(group.rms < 1e-9 for group in result.groups)


def test_phases_on_both_sides_of_half_a_turn_are_close(found: MeshParameters) -> None:
    one, other = found.passive_phase_rad.copy(), found.passive_phase_rad.copy()
    one[4], other[4] = np.pi - 0.01, 0.01 - np.pi
    first, second = (build_record(SPACE, replace(found, passive_phase_rad=each), ORIGIN) for each in (one, other))
    assert compare_records(first, second).groups[0].worst == pytest.approx(0.02)


def test_out_of_tolerance_is_exit_code_3_with_one_document(
    saved: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *saved, "--tolerance-sigma", "0.1", "--json"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["exit_code"] == 3
    assert "standard errors rms, tolerance 0.1" in err
    assert main(["compare", *saved, "--tolerance-sigma", "5"]) == 0
    assert "Second minus first" in capsys.readouterr().out


def test_without_covariance_there_is_no_unit_of_error(
    found: MeshParameters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bare.json"
    save_record(build_record(SPACE, found, ORIGIN), path)
    assert main(["compare", str(path), str(path)]) == 0
    assert "has no covariance" in capsys.readouterr().out
    assert main(["compare", str(path), str(path), "--tolerance-sigma", "3"]) == 2
    assert "needs records with a covariance" in capsys.readouterr().err


def test_records_of_other_meshes_are_not_compared(found: MeshParameters) -> None:
    other = replace(record_of(found), mesh_sha256="0" * 64)
    with pytest.raises(CalibrationError, match="belong to different meshes"):
        compare_records(record_of(found), other)


def test_what_only_one_record_knows_is_a_note(found: MeshParameters) -> None:
    other = record_of(found, unknown_pucs={2: "not reached"}, serial="MZ-0002", complete=False)
    result = compare_records(record_of(found), replace(other, joints=None))
    text = "; ".join(result.notes)
    assert "only one record has passive phases of PUCs [2]" in text
    assert "the controllers differ: MZ-0001 and MZ-0002" in text
    assert "the second record is incomplete" in text
    assert "the second record has no joint phases" in text
    assert {group.group: group.count for group in result.groups}["passive_phase_rad"] == 9
    assert "loops" not in {group.group for group in result.groups}


def test_a_child_is_not_independent_of_its_parent(found: MeshParameters) -> None:
    parent = record_of(found)
    child = record_of(found, parent_sha256=parent.content_sha256)
    assert any("not independent" in each for each in compare_records(parent, child).notes)
    assert compare_records(parent, parent).notes == ("both files contain the same record",)


def test_records_from_other_sources_are_compared_without_them(found: MeshParameters) -> None:
    first = record_of(found)
    fewer = replace(first, ports=tuple(replace(port, source_dbm=None) for port in first.ports))
    result = compare_records(first, fewer)
    assert any("sources or monitors differ" in each for each in result.notes)
    assert "source_db" not in {group.group for group in result.groups}
    assert result.chi2_per_dof is None


# Showing -------------------------------------------------------------------------------------------------------------


def test_show_says_who_what_and_how_sure(saved: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", saved[0]]) == 0
    out = capsys.readouterr().out
    assert "- record id: MZ-0001-20260101T000000-" in out
    assert "- loops calibrated: True" in out
    assert "- parent sha256: none\n" in out
    assert re.search(r"- wavelength range nm: 1[\d.]{3,6} … 1[\d.]{3,6}\n|- wavelength range nm: none\n", out)
    assert re.search(r"- crosstalk kernel: amplitude rad per mw 0\.\d{3,6}, length mm 1\.\d+, ", out)
    assert not re.search(r"\d\.\d{8}|None|\{", out.split("Covariance")[0])
    assert "stuck PUC" in out
    assert f"Covariance of {SPACE.size} parameters" in out
    assert main(["show", saved[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["crosstalk_kernel"]["length_mm"] > 0.0


# Exporting -----------------------------------------------------------------------------------------------------------


def test_json_goes_to_stdout_or_a_file(
    saved: tuple[str, str], found: MeshParameters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", saved[0]]) == 0
    document = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(document["parameters"]["heater_law"], found.heater_law)
    assert document["standard_errors"]["passive_phase_rad"] == pytest.approx([2e-3] * 10)
    assert main(["export", saved[0], "--out", str(tmp_path / "x.json")]) == 0
    assert json.loads((tmp_path / "x.json").read_text()) == document


def test_csv_is_one_table_per_file(saved: tuple[str, str], tmp_path: Path) -> None:
    assert main(["export", saved[0], "--format", "csv", "--out", str(tmp_path / "tables")]) == 0
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == [
        "heaters.csv",
        "joints.csv",
        "ports.csv",
        "pucs.csv",
    ]
    rows = list(csv.DictReader((tmp_path / "tables" / "heaters.csv").read_text().splitlines()))
    assert (len(rows), rows[3]["arm"], rows[3]["channel"]) == (20, "lower", "3")
    assert 1.0 < float(rows[3]["p_pi_mw"]) < 2.2  # 1.2 to 2.0 mW per π (Sánchez-Jácome 2025), nominal resistance


def test_npz_holds_the_arrays_and_the_covariance(saved: tuple[str, str], tmp_path: Path) -> None:
    assert main(["export", saved[0], "--format", "npz", "--out", str(tmp_path / "x.npz")]) == 0
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert file["covariance"].shape == (SPACE.size, SPACE.size)
        assert file["heater_law"].shape == (20, 3)
        assert file["monitor_ports"].tolist() == list(CELL.fibre_ports)


def test_what_needs_a_file_says_so(saved: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", saved[0], "--format", "npz"]) == 2
    assert "--format npz needs --out" in capsys.readouterr().err


def test_a_record_that_is_none_is_exit_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["show"], ["export"]):
        assert main([*command, str(tmp_path / "nowhere.json")]) == 3
        assert "cannot read calibration record" in capsys.readouterr().err


def test_version_1_with_a_matrix_of_crosstalk_is_shown_but_not_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stored = str(Path(__file__).parents[2] / "data" / "calibration-record-v1.json")
    assert main(["show", stored]) == 0
    assert "dead heater" in capsys.readouterr().out
    assert main(["compare", stored, stored]) == 3
    assert "is a matrix" in capsys.readouterr().err
    assert isinstance(load_record(Path(stored)).crosstalk, CrosstalkEntry)
