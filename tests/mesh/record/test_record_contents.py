"""The record of schema version 2: arrays in a side file, migration of version 1, validity, faults as data."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumion_hw.errors import CalibrationError, ConfigError, LimitError
from lumion_hw.mesh.record.calibration_record import (
    ArrayFile,
    CalibrationRecord,
    Conditions,
    CouplerEntry,
    CovarianceEntry,
    CrosstalkEntry,
    CrosstalkKernel,
    Defect,
    Dispersion,
    JointsEntry,
)
from lumion_hw.mesh.record.canonical import arrays_sha256
from lumion_hw.mesh.record.validity import CalibrationWarning, UseConditions, check_validity
from lumion_hw.storage import array_files, load_record, save_record
from lumion_hw.storage.array_files import read_arrays, write_arrays
from tests.mesh.sample_record import CELL, LAW, puc_entry, sample_record

VERSION_1 = Path(__file__).parents[2] / "data" / "calibration-record-v1.json"
CONDITIONS = Conditions(
    reference_hz=193.4e12,
    wavelengths_nm=(1550.0, 1550.1),
    wavelength_range_nm=(1549.9, 1550.2),
    temperature_set_c=30.0,
    temperature_range_c=(29.99, 30.02),
    temperature_valid_c=(29.9, 30.1),
    laser_power_dbm=1.0,
    polarization={"0": "TE, searched"},
    valid_for_s=24 * 3600.0,
)


def full_record() -> CalibrationRecord:
    """Return a record with something in every field."""
    pucs = [puc_entry(puc, 0.6 * puc - 2.7) for puc in range(CELL.n_pucs)]
    pucs[0] = dataclasses.replace(pucs[0], coupler=CouplerEntry(0.01, 0.004, 1e-3, 2e-3))
    return dataclasses.replace(
        sample_record(pucs),
        device_vendor="Lumion",
        parent_sha256="ab" * 32,
        conditions=CONDITIONS,
        crosstalk=CrosstalkEntry(kernel=CrosstalkKernel(2e-3, 1.18, 3e-4, 0.81141)),
        joints=JointsEntry(tuple(0.1 * joint for joint in range(len(CELL.joints))), loop_sigma_rad=1e-3),
        dispersion=Dispersion(11.25e-12, 1e-13, 0.0),
        covariance=CovarianceEntry((("passive_phase_rad", 10), ("loss_db", 10)), 18, 20, ("loss_db of PUC 3",)),
        defects=(Defect("stuck PUC", "puc", 4, "both heaters without effect", ("bar",), 0.001),),
        raw=ArrayFile("raw.h5", "cd" * 32),
        mesh_document=CELL.to_dict(),
        arrays={"covariance_factor": np.arange(360.0).reshape(20, 18)},
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A record with arrays on disk."""
    save_record(full_record(), tmp_path / "record.json")
    return tmp_path / "record.json"


def side_file(path: Path) -> Path:
    """Return the side file of a record."""
    return path.parent / json.loads(path.read_text())["arrays_file"]


@pytest.fixture
def without_h5py(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where h5py is not installed."""
    monkeypatch.setattr(array_files, "array_suffix", lambda: ".npz")
    monkeypatch.setattr("lumion_hw.storage.record_files.array_suffix", lambda: ".npz")
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)


# Round trip ----------------------------------------------------------------------------------------------------------


def test_everything_comes_back(saved: Path) -> None:
    record = load_record(saved)
    assert record == full_record()
    assert record.content_sha256 == full_record().content_sha256
    np.testing.assert_array_equal(record.arrays["covariance_factor"], full_record().arrays["covariance_factor"])
    assert sorted(path.suffix for path in saved.parent.iterdir()) == [".h5", ".json"]


@pytest.mark.usefixtures("without_h5py")
def test_without_hdf5_the_arrays_go_into_an_npz_of_the_same_hash(tmp_path: Path) -> None:
    save_record(full_record(), tmp_path / "record.json")
    assert side_file(tmp_path / "record.json").suffix == ".npz"
    loaded = load_record(tmp_path / "record.json")
    assert loaded.content_sha256 == full_record().content_sha256


def test_hdf5_without_h5py_names_the_command_that_helps(saved: Path, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("without_h5py")
    with pytest.raises(ConfigError, match=r"pip install 'lumion-hw\[hdf5\]'"):
        load_record(saved)


def test_people_can_read_it(saved: Path) -> None:
    lines = saved.read_text().splitlines()
    assert max(map(len, lines)) <= 220
    assert any('"wavelength_range_nm": [1549.9, 1550.2]' in line for line in lines)


def test_the_mesh_comes_from_the_record_alone() -> None:
    assert full_record().mesh == CELL
    assert sample_record().mesh == CELL  # by its label, columns 1
    foreign = dataclasses.replace(sample_record(), mesh_label="my chip")
    with pytest.raises(CalibrationError, match="cannot build mesh 'my chip' of the record"):
        _ = foreign.mesh
    other = dataclasses.replace(sample_record(), mesh_label="columns 2")
    with pytest.raises(CalibrationError, match="differs from the mesh that was calibrated"):
        _ = other.mesh


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_missing_side_file_is_named(saved: Path) -> None:
    side_file(saved).unlink()
    with pytest.raises(CalibrationError, match=r"record\.[0-9a-f]{12}\.h5 is missing"):
        load_record(saved)


def test_a_damaged_side_file_is_named(saved: Path) -> None:
    side = side_file(saved)
    side.write_bytes(side.read_bytes()[: side.stat().st_size // 2])
    with pytest.raises(CalibrationError, match=r"\.h5 is damaged"):
        load_record(saved)


def test_the_side_file_of_another_record_is_refused(saved: Path) -> None:
    write_arrays(side_file(saved), {"covariance_factor": np.zeros((20, 18))})
    with pytest.raises(CalibrationError, match=r"does not belong to record\.json: its hash differs"):
        load_record(saved)


def test_a_side_file_lies_beside_its_record_and_nowhere_else(saved: Path) -> None:
    document = json.loads(saved.read_text())
    saved.write_text(json.dumps(document | {"arrays_file": "../record.h5"}))
    with pytest.raises(CalibrationError, match="arrays_file is not a file name"):
        load_record(saved)


def test_other_conventions_are_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conventions = {"phase": "exp(+j phase)"}
    monkeypatch.setattr("lumion_hw.storage.record_files.CONVENTIONS", conventions)
    with pytest.raises(CalibrationError, match="uses other sign or phase conventions"):
        load_record(saved)


def test_another_monitor_map_is_refused_where_one_is_given() -> None:
    channels = tuple(range(2 * CELL.n_pucs))
    sample_record().check_device("MZ-0001", CELL, channels, CELL.fibre_ports)
    with pytest.raises(CalibrationError, match="does not match this monitor channel map"):
        sample_record().check_device("MZ-0001", CELL, channels, CELL.fibre_ports[::-1])


def test_a_monitor_found_dead_by_the_calibration_does_not_make_the_record_another_bench_s() -> None:
    record = sample_record()
    live = record.monitor_ports[1:]
    without = dataclasses.replace(record, monitor_ports=live)
    without.check_device(record.device_serial, CELL, record.heater_channels, record.monitor_ports)
    with pytest.raises(CalibrationError, match="does not match this monitor channel map"):
        record.check_device(record.device_serial, CELL, record.heater_channels, live)


def test_an_incomplete_record_is_used_on_request_only() -> None:
    record = sample_record(complete=False)
    with pytest.raises(CalibrationError, match="incomplete because its run was interrupted"):
        record.check_complete()
    record.check_complete(allow_incomplete=True)
    sample_record().check_complete()


# Version 1 -----------------------------------------------------------------------------------------------------------


def test_a_stored_record_of_version_1_is_read() -> None:
    record = load_record(VERSION_1)
    assert (record.device_serial, record.wavelength_nm, record.complete) == ("MZ-0001", 1550.0, True)
    assert record.pucs[0].passive_phase_rad == -2.7
    assert record.pucs[0].upper.law == LAW
    assert record.port(3).output_loss_db == 7.2
    assert record.crosstalk is not None
    assert np.shape(record.crosstalk.differential_rad_per_mw) == (10, 20)
    # What version 1 did not know stays unknown.
    assert (record.joints, record.dispersion, record.covariance, record.raw) == (None, None, None, None)
    assert record.mesh == CELL


def test_migration_makes_faults_data_and_says_where_the_record_comes_from() -> None:
    record = load_record(VERSION_1)
    assert record.defects == (
        Defect("PUC not calibrated", "puc", 3, "neither heater has any effect", ()),
        Defect("dead heater", "heater", 9, ""),
    )
    stated = json.loads(VERSION_1.read_text())["content_sha256"]
    assert record.provenance["migrated_from"] == f"schema version 1, content {stated}"


def test_a_version_1_that_was_edited_is_refused(tmp_path: Path) -> None:
    document = json.loads(VERSION_1.read_text())
    document["wavelength_nm"] = 1551.0
    (tmp_path / "old.json").write_text(json.dumps(document))
    with pytest.raises(CalibrationError, match="does not match its hash"):
        load_record(tmp_path / "old.json")


def test_a_migrated_record_is_saved_as_version_2(tmp_path: Path) -> None:
    record = load_record(VERSION_1)
    save_record(record, tmp_path / "new.json")
    assert json.loads((tmp_path / "new.json").read_text())["schema_version"] == 2
    assert load_record(tmp_path / "new.json") == record


# Validity ------------------------------------------------------------------------------------------------------------


def test_a_wavelength_out_of_range_is_a_limit_error_under_every_policy() -> None:
    with pytest.raises(LimitError, match=r"requested 1550\.3 nm, limit 1550\.2 nm"):
        check_validity(full_record(), UseConditions(wavelength_nm=1550.3), "warn")
    assert check_validity(full_record(), UseConditions(wavelength_nm=1550.0), "refuse") == ()


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (UseConditions(now_utc="2025-06-02T13:00:00+00:00"), r"25\.0 h old and should have been checked after 24\.0 h"),
        (UseConditions(temperature_c=29.5), r"at 29\.50 °C; the calibration record is valid only to 29\.90 °C"),
    ],
)
def test_age_and_temperature_warn_or_refuse_by_policy(use: UseConditions, sentence: str) -> None:
    with pytest.warns(CalibrationWarning, match=sentence):
        assert len(check_validity(full_record(), use)) == 1
    with pytest.raises(CalibrationError, match=sentence):
        check_validity(full_record(), use, "refuse")


def test_within_its_range_and_without_any_a_record_is_not_doubted() -> None:
    use = UseConditions("2025-06-02T11:00:00+00:00", 30.05, 1550.1)
    assert check_validity(full_record(), use, "refuse") == ()
    assert check_validity(sample_record(), UseConditions("2035-01-01T00:00:00", 99.0, 1300.0), "refuse") == ()


# What it knows -------------------------------------------------------------------------------------------------------


def test_a_puc_stuck_in_bar_is_still_good_for_bar() -> None:
    pucs = [puc_entry(0, None, None, None), puc_entry(1, 0.1)]
    stuck = Defect("stuck PUC", "puc", 0, usable_states=("bar",))
    record = dataclasses.replace(sample_record(pucs), defects=(stuck,))
    assert record.unusable_states() == ((0, "cross"),)


def test_reachable_couplings_follow_from_the_coupler_angles() -> None:
    # a1 = π/4 + 0.05 + 0.01, a2 = π/4 + 0.05 - 0.01: sin²(0.02) to sin²(π/2 + 0.1).
    low, high = CouplerEntry(0.05, 0.02).interval
    assert low == pytest.approx(np.sin(0.02) ** 2)
    assert high == pytest.approx(np.sin(np.pi / 2 + 0.1) ** 2)
    assert CouplerEntry().interval == (0.0, 1.0)


def test_covariance_groups_have_their_places() -> None:
    entry = CovarianceEntry((("passive_phase_rad", 10), ("loss_db", 12)), 22, 22)
    assert (entry.size, entry.rows_of("loss_db"), entry.rows_of("loops")) == (22, slice(10, 22), None)


# Files of arrays -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".h5", ".npz"])
def test_arrays_come_back_with_type_shape_and_hash(tmp_path: Path, suffix: str) -> None:
    arrays: dict[str, Any] = {
        "a": np.arange(6.0).reshape(2, 3),
        "b": np.array([True, False]),
        "c": np.array([1, 2], dtype=">i2"),
    }
    write_arrays(tmp_path / f"x{suffix}", arrays)
    back = read_arrays(tmp_path / f"x{suffix}")
    assert arrays_sha256(back) == arrays_sha256(arrays)
    assert back["a"].shape == (2, 3)
    assert back["b"].dtype == bool
    assert back["c"].tolist() == [1, 2]


def test_an_npz_holds_the_arrays_of_the_record_and_nothing_else(tmp_path: Path) -> None:
    write_arrays(tmp_path / "x.npz", {"a": np.arange(3.0)})
    with np.load(tmp_path / "x.npz", allow_pickle=False) as stored:
        assert stored.files == ["a"]
        assert stored["a"].tolist() == [0.0, 1.0, 2.0]


def test_the_argument_that_numpy_below_2_2_stored_as_an_array_is_ignored(tmp_path: Path) -> None:
    # numpy 1.26 `savez_compressed(file, allow_pickle=False, a=...)`: every keyword argument is an array.
    np.savez_compressed(tmp_path / "x.npz", a=np.arange(3.0))
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive, archive.open("allow_pickle.npy", "w") as member:
        np.lib.format.write_array(member, np.array(False), allow_pickle=False)
    assert list(read_arrays(tmp_path / "x.npz")) == ["a"]


def test_objects_are_never_stored(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot store array 'a' of type object"):
        write_arrays(tmp_path / "x.npz", {"a": np.array([{}])})
    assert list(tmp_path.iterdir()) == []


def test_a_pickle_in_an_npz_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.array([{}], dtype=object))
    with pytest.raises(CalibrationError, match="is damaged"):
        read_arrays(tmp_path / "x.npz")


def test_a_hash_depends_on_names_and_shapes() -> None:
    one, two = np.zeros((2, 3)), np.zeros((3, 2))
    assert len({arrays_sha256(arrays) for arrays in ({"a": one}, {"a": two}, {"b": one})}) == 3
