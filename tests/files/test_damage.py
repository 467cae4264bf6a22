"""Damaged and edited files of every kind are read correctly or rejected with an error of this package."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.model.observations import Observations
from calibration.record.raw_data import load_raw, save_raw
from lumion_hw.acquisition.columns import Column, State, Value
from lumion_hw.acquisition.hdf5 import write_hdf5
from lumion_hw.acquisition.journal import LogHeader, LogJournal, LogRow, read_journal
from lumion_hw.acquisition.recording import read_recording
from lumion_hw.cli import calibrate_main as main
from lumion_hw.errors import CalibrationError, ConfigError, LumionError
from lumion_hw.files.hdf5 import open_hdf5
from lumion_hw.mesh.record.calibration_record import ArrayFile, CovarianceEntry, JointsEntry
from lumion_hw.mesh.record.canonical import arrays_sha256, content_hash
from lumion_hw.storage import load_record, save_record
from lumion_hw.storage.array_files import read_arrays, write_arrays
from tests.files.record_fuzz import damaged, mutated, save_edited
from tests.mesh.sample_record import CELL, sample_record

h5py = pytest.importorskip("h5py", reason="h5py, of the extra hdf5, is not there")
VERSION_1 = Path(__file__).parents[1] / "data" / "calibration-record-v1.json"
ARRAYS = {"a": np.arange(12.0).reshape(3, 4), "b": np.ones(5, dtype=bool)}
COLUMNS = (Column("meter0.power.1", "meter0", "W"), Column("sfp-a.temperature_c", "sfp-a", "°C"))


@pytest.fixture
def record(tmp_path: Path) -> Path:
    found = replace(
        sample_record(),
        joints=JointsEntry((0.1,) * len(CELL.joints)),
        covariance=CovarianceEntry((("passive_phase_rad", 10),), 2, 10),
        mesh_document=CELL.to_dict(),
        arrays={"covariance_factor": np.ones((10, 2))},
    )
    save_record(found, tmp_path / "record.json")
    return tmp_path / "record.json"


@pytest.fixture
def binaries(tmp_path: Path) -> dict[Path, Callable[[Path], object]]:
    """A file of each binary kind, and its reader."""
    with LogJournal.create(tmp_path / "log", LogHeader("small", COLUMNS, 0.5, 4, "2026-11-20T12:00:00+00:00")) as log:
        for index in range(4):
            log.append(LogRow(index, 0.5 * index, (Value(State.OK, 1.0), Value(State.OK, 2.0))))
        log.sync()
    write_hdf5(tmp_path / "log", tmp_path / "r.h5")
    write_arrays(tmp_path / "a.h5", ARRAYS)
    write_arrays(tmp_path / "a.npz", ARRAYS)
    readers = {"log": read_journal, "r.h5": read_recording, "a.h5": read_arrays, "a.npz": read_arrays}
    return {tmp_path / name: reader for name, reader in readers.items()}


def refusal(reader: Callable[[Path], object], path: Path) -> str | None:
    """Return the message of a reader that rejects a file; ``None`` if it accepts the file. Other errors are bugs."""
    try:
        reader(path)
    except LumionError as error:
        return str(error)
    return None


def judge_binaries(binaries: dict[Path, Callable[[Path], object]], seeds: range) -> None:
    ended: Counter[tuple[str, bool]] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        source, reader = list(binaries.items())[seed % len(binaries)]
        path = source.with_name(f"damaged{source.suffix}")
        path.write_bytes(damaged(source.read_bytes(), rng))
        refused = refusal(reader, path)
        assert refused is None or path.name in refused, seed
        ended[source.name, refused is None] += 1
    assert len(ended) == 2 * len(binaries)  # of each kind some could be read, and some not: both were tried


def test_damaged_files_are_read_or_refused(binaries: dict[Path, Callable[[Path], object]]) -> None:
    judge_binaries(binaries, range(200))


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(1000, 2_600), marks=pytest.mark.long),
        pytest.param(range(2_600, 31_000), marks=pytest.mark.campaign),
    ],
    ids=["long", "campaign"],
)
def test_many_damaged_files_are_read_or_refused(binaries: dict[Path, Callable[[Path], object]], seeds: range) -> None:
    judge_binaries(binaries, seeds)


def judge_records(record: Path, seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    """Load edited records with a correct hash, and show, export and compare the accepted ones."""
    documents = [json.loads(record.read_text()), json.loads(VERSION_1.read_text())]
    taken = 0
    for seed in seeds:
        path = record.with_name("edited.json")
        save_edited(mutated(documents[seed % 4 == 0], random.Random(seed)), path)
        if (refused := refusal(load_record, path)) is not None:
            assert record.parent.name in refused, seed
            continue
        taken += 1
        for words in (["show"], ["show", "--json"], ["export"], ["compare", str(record)]):
            main([words[0], str(path), *words[1:]])
            assert "Traceback" not in capsys.readouterr().err, (seed, words)
    assert 0 < taken < len(seeds)


def test_edited_records_are_taken_whole_or_refused(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judge_records(record, range(40), capsys)


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(1000, 1400), marks=pytest.mark.long),
        pytest.param(range(1400, 6000), marks=pytest.mark.campaign),
    ],
    ids=["long", "campaign"],
)
def test_many_edited_records_are_taken_whole_or_refused(
    record: Path, seeds: range, capsys: pytest.CaptureFixture[str]
) -> None:
    judge_records(record, seeds, capsys)


# Single cases --------------------------------------------------------------------------------------------------------


def edited(record: Path, **changes: Any) -> Path:
    """Return the record with changed content and the correct hash."""
    path = record.with_name("edited.json")
    save_edited(json.loads(record.read_text()) | changes, path)
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"wavelength_nm": float("nan")}, "wavelength_nm is NaN"),
        ({"quality": {"a": [1, float("inf")]}}, r"quality\.a\[1\] is infinite"),
        ({"heater_ohm": 10**400}, "heater_ohm is a number that is too large"),
        ({"heater_ohm": 1e300}, "heater_ohm is implausibly large"),
        ({"heater_ohm": -1.0}, "heater_ohm must be positive, but is -1"),
        ({"pucs": []}, "the record has 0 PUCs, but its mesh has 10"),
        ({"monitor_ports": [99]}, "port numbers outside its mesh of 12 ports"),
        ({"mesh_label": "rings 100000", "mesh_document": None}, "cannot build mesh"),
        ({"created_utc": "yesterday"}, "created_utc is not a time"),
        ({"arrays_file": "x" * 5000}, "File name too long"),
        ({"arrays_file": "../../etc/passwd"}, "arrays_file is not a file name"),
    ],
    ids=str,
)
def test_a_record_with_the_right_hash_is_refused_by_what_does_not_fit(
    changes: dict[str, Any], words: str, record: Path
) -> None:
    with pytest.raises(CalibrationError, match=words):
        load_record(edited(record, **changes))


def test_a_record_of_version_1_without_pucs_is_refused(tmp_path: Path) -> None:
    document = json.loads(VERSION_1.read_text())
    del document["pucs"]
    save_edited(document, tmp_path / "edited.json")
    with pytest.raises(CalibrationError, match="not a valid record of schema version 1: KeyError"):
        load_record(tmp_path / "edited.json")


def test_nan_in_the_arrays_of_a_record_is_refused_by_name(record: Path) -> None:
    arrays = {"covariance_factor": np.full((10, 2), np.nan)}
    document = json.loads(record.read_text()) | {"arrays_sha256": arrays_sha256(arrays)}
    save_edited(document, record)
    write_arrays(record.with_name(document["arrays_file"]), arrays)
    with pytest.raises(CalibrationError, match="array 'covariance_factor' contains NaN"):
        load_record(record)


def test_raw_readings_that_do_not_fit_each_other_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    sound = Observations(
        np.zeros((3, 20)), np.zeros(3, int), (1, 2), np.full((3, 2), np.nan), np.ones((3, 2), bool), np.zeros(3)
    )
    raw = save_raw(path, sound)
    load_raw(path, raw)  # a reading that is saturated may be NaN
    arrays = read_arrays(tmp_path / raw.name)
    for name, other, words in (
        ("currents_ma", np.full((3, 20), np.nan), "'currents_ma' holds NaN"),
        ("reading_ma", np.zeros((3, 7)), r"shape \(3, 7\), which does not fit"),
        ("source", np.zeros((3, 1)), r"'source' has the shape \(3, 1\)"),
    ):
        changed = arrays | {name: other}
        write_arrays(tmp_path / raw.name, changed)
        with pytest.raises(CalibrationError, match=words):
            load_raw(path, ArrayFile(raw.name, arrays_sha256(changed)))


def strange_hdf5(path: Path) -> Iterator[tuple[str, str]]:
    """Write one HDF5 file after the other that is none of ours; yield each with what is said of it."""

    def fresh() -> Any:
        path.unlink(missing_ok=True)
        return h5py.File(path, "w")

    with fresh() as file:
        file.create_dataset("a", shape=(60_000, 60_000), dtype="f8", chunks=(100, 100))  # 27 GB, in 1.4 kB
    yield "claims", "'a' claims a size of 27466 MiB, more than this file can contain"
    with fresh() as file:
        file.create_group("a")
    yield "a group", "'a' is not an array of numbers"
    with fresh() as file:
        file["a"] = "text"
    yield "text", "'a' is not an array of numbers"
    path.with_name("secret").write_bytes(bytes(80))
    with fresh() as file:
        file.create_dataset("a", shape=(10,), dtype="f8", external=[(str(path.with_name("secret")), 0, 80)])
    yield "external", "'a' is stored in another file"
    with fresh() as file:
        file["a"] = h5py.Empty("f8")
    yield "empty", "'a' has the shape None"


def test_hdf5_that_claims_or_points_elsewhere_is_refused(tmp_path: Path) -> None:
    for _, words in strange_hdf5(tmp_path / "x.h5"):
        with pytest.raises(ConfigError, match=words), open_hdf5(tmp_path / "x.h5", "recording") as file:
            file.array("a")


def test_an_archive_that_claims_more_than_it_can_hold_is_refused(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(1 << 26))  # 64 MiB of nothing in 65 kB
    with pytest.raises(CalibrationError, match="claims a size of 64 MiB"):
        read_arrays(tmp_path / "a.npz")


def test_the_content_hash_judges_content_alone(record: Path) -> None:
    assert content_hash({"a": 1}) != content_hash({"a": 2})
    assert load_record(edited(record)).device_serial == "MZ-0001"
