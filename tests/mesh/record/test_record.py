from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import CalibrationError, ConfigError, LumionError
from lumion_hw.files.writing import write_file
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CrosstalkEntry
from lumion_hw.storage import load_record, save_record
from tests.mesh.sample_record import CELL, puc_entry, sample_record


def rewritten(path: Path, **changes: Any) -> Path:
    """Change top-level fields of a document on disk without touching its hash; ``None`` removes one."""
    document = json.loads(path.read_text())
    for key, value in changes.items():
        if value is None:
            del document[key]
        else:
            document[key] = value
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A record on disk."""
    path = tmp_path / "runs" / "calibration.json"
    save_record(sample_record(), path)
    return path


# Round trip ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        sample_record(),
        sample_record(complete=False),
        sample_record([puc_entry(0, 0.1, upper=None), *(puc_entry(puc, None, None, None) for puc in range(1, 10))]),
        sample_record(crosstalk=CrosstalkEntry(((0.0, 1e-3, 2e-3, -1e-17) * 5,) * 10)),
    ],
    ids=["whole", "cut short", "dead heaters", "with crosstalk"],
)
def test_a_record_comes_back_as_it_was_written(record: CalibrationRecord, tmp_path: Path) -> None:
    save_record(record, tmp_path / "record.json")
    assert load_record(tmp_path / "record.json") == record


@pytest.mark.parametrize(
    ("faults", "quality", "doubts"),
    [
        ((), {}, 0),
        (("PUC 3 is stuck",), {"fit_certified": 1.0}, 0),
        (("PUC 3 is stuck", "not certified: a fit that ended early"), {"fit_certified": 1.0}, 1),
        ((), {"fit_certified": 0.0}, 1),
    ],
)
def test_a_record_says_why_it_is_not_certified(faults: tuple[str, ...], quality: dict[str, float], doubts: int) -> None:
    record = dataclasses.replace(sample_record(), faults=faults, quality=quality)
    assert len(record.doubts) == doubts
    assert all(doubt.startswith("not certified: ") for doubt in record.doubts)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-4.0, 4.0))
def test_numbers_come_back_to_the_last_bit(value: float, phase: float) -> None:
    record = dataclasses.replace(sample_record([puc_entry(0, phase)]), quality={"x": value})
    document = json.loads(record.to_json())
    assert document["quality"]["x"] == value
    assert document["pucs"][0]["passive_phase_rad"] == phase


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_no_sentinel_is_ever_written(value: float) -> None:
    with pytest.raises(ConfigError, match=f"cannot write the calibration record: quality.x is {value}"):
        dataclasses.replace(sample_record(), quality={"x": value}).to_json()


def test_the_document_says_what_it_is_and_whose(saved: Path) -> None:
    document = json.loads(saved.read_text())
    assert (document["schema"], document["schema_version"]) == ("lumion-calibration", 2)
    assert document["device_serial"] == "MZ-0001"
    assert document["mesh_sha256"] == CELL.sha256
    # The hash is that of the canonical form (sorted keys, no spaces) without the five header fields.
    stated = document.pop("content_sha256")
    assert document.pop("record_id") == f"MZ-0001-20250601T120000-{stated[:12]}"
    for name in ("schema", "schema_version", "arrays_file"):
        del document[name]
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    assert stated == hashlib.sha256(canonical).hexdigest()


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"wavelength_nm": 1551.0}, "the content does not match its hash"),
        ({"complete": False}, "the content does not match its hash"),
        ({"content_sha256": "0" * 64}, "the content does not match its hash"),
        ({"content_sha256": None}, "the content does not match its hash"),
        ({"remark": "checked by hand"}, "the content does not match its hash"),
        ({"schema_version": 3}, "has schema version 3, but this software reads versions 1 to 2"),
        ({"schema_version": None}, "has schema version None, but this software reads versions 1 to 2"),
        ({"schema": "some-other-file"}, "is not a calibration record"),
        ({"schema": None}, "is not a calibration record"),
    ],
)
def test_a_changed_or_foreign_document_is_refused(saved: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CalibrationError, match=sentence) as caught:
        load_record(rewritten(saved, **changes))
    assert str(saved) in str(caught.value)
    assert caught.value.exit_code == 3


def test_one_digit_deep_inside_is_noticed(saved: Path) -> None:
    text = saved.read_text()
    assert text.count("-2.7") == 1  # the passive phase of PUC 0
    saved.write_text(text.replace("-2.7", "-2.6"))
    with pytest.raises(CalibrationError, match="does not match its hash"):
        load_record(saved)


@pytest.mark.parametrize(
    ("text", "sentence"), [("", "is not JSON"), ("{", "is not JSON"), ("[]", "is not a calibration record")]
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=sentence):
        load_record(path)


def test_half_a_record_is_refused(saved: Path) -> None:
    text = saved.read_text()
    saved.write_text(text[: len(text) // 2])
    with pytest.raises(CalibrationError, match="is not JSON"):
        load_record(saved)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=r"cannot read calibration record .*nowhere\.json: No such file"):
        load_record(tmp_path / "nowhere.json")


def test_a_field_of_the_wrong_kind_is_named(tmp_path: Path) -> None:
    broken = dataclasses.replace(sample_record(), wavelength_nm="red")  # type: ignore[arg-type]
    save_record(broken, tmp_path / "record.json")
    with pytest.raises(CalibrationError, match=r"wavelength_nm: .*valid number"):
        load_record(tmp_path / "record.json")


@pytest.mark.parametrize("channel", [-2, 2**16, 2**63])
def test_a_heater_channel_that_no_controller_has_is_refused(tmp_path: Path, channel: int) -> None:
    made = sample_record()
    other = dataclasses.replace(made, heater_channels=(channel, *made.heater_channels[1:]))
    save_record(other, tmp_path / "record.json")
    with pytest.raises(CalibrationError, match="a heater channel is outside 0 to 65535"):
        load_record(tmp_path / "record.json")


# Whose record it is --------------------------------------------------------------------------------------------------

CHANNELS = tuple(range(2 * CELL.n_pucs))


def test_the_record_of_this_device_is_accepted() -> None:
    sample_record().check_device("MZ-0001", HexMesh.columns([1]), CHANNELS)


@pytest.mark.parametrize(
    ("serial", "mesh", "channels", "sentence"),
    [
        ("MZ-0002", CELL, CHANNELS, "controller serial: it was made for MZ-0001, and this is MZ-0002"),
        ("MZ-0001", HexMesh.columns([2]), CHANNELS, "does not match this mesh"),
        ("MZ-0001", CELL, CHANNELS[::-1], "does not match this heater channel map"),
    ],
    ids=["serial", "mesh", "channel map"],
)
def test_the_record_of_another_device_is_refused(
    serial: str, mesh: HexMesh, channels: tuple[int, ...], sentence: str
) -> None:
    with pytest.raises(CalibrationError, match=sentence) as caught:
        sample_record().check_device(serial, mesh, channels)
    assert "calibrate this device" in str(caught.value)


# What it knows -------------------------------------------------------------------------------------------------------


def test_states_of_pucs_that_cannot_be_set_are_not_for_routing() -> None:
    record = sample_record([puc_entry(0, 0.1), puc_entry(1, None, None, None), puc_entry(2, 0.1, lower=None)])
    assert set(record.unusable_states()) == {(1, "bar"), (1, "cross")}


def test_ports_are_found_by_number_not_by_place() -> None:
    assert sample_record().port(3).output_loss_db == 7.2
    with pytest.raises(CalibrationError, match="has no entry for port 0"):
        sample_record().port(0)


def test_heat_is_that_of_the_nominal_resistance_times_what_the_law_bends_up() -> None:
    # 2 mA through 1000 Ω: 4 mW cold; the law 2·I² + 0.05·I⁴ says 1 + 0.025·4 = 1.1 of that. A dead heater: 4 mW. One
    # known to give off 1.03 of the nominal heat: 4.532 mW.
    entries = [puc_entry(0, 0.1), puc_entry(1, 0.1, lower=None)]
    warm = dataclasses.replace(entries[1].upper, heat_factor=1.03)
    record = sample_record([entries[0], dataclasses.replace(entries[1], upper=warm)])
    np.testing.assert_allclose(record.heater_power_mw(np.array([0.0, 2.0, 2.0, 2.0])), [0.0, 4.4, 4.532, 4.0])


def test_crosstalk_adds_up_over_the_heaters() -> None:
    entry = CrosstalkEntry(((0.0, 1e-3, 2e-3, 0.0), (5e-4, 0.0, 0.0, -1e-3)))
    np.testing.assert_allclose(entry.differential_rad(np.array([2.0, 1.0, 3.0, 4.0])), [7e-3, -3e-3])


# Writing -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    saved: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = saved.read_bytes()

    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        patch.setattr(Path, "replace", fail) if step == "replace" else None
        with pytest.raises(LumionError, match="No space left"):
            save_record(sample_record(complete=False), saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_the_content_is_on_disk_before_it_takes_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    path.write_text("old")
    seen: list[str] = []
    real = os.fsync

    def watched(descriptor: int) -> None:
        seen.append(path.read_text())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write_file(path, "the file", "new", overwrite="any")
    # First the file's own content while the name still shows the old one, then the directory with the new one.
    assert seen == ["old", "new"]
    assert list(tmp_path.iterdir()) == [path]


def test_an_interruption_while_writing_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def interrupt(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_record(sample_record(complete=False), saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]
