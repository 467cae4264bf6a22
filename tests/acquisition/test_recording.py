"""Recordings read back: arrays, tables, labelled data sets, documents of bluesky."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.acquisition import (
    LogJournal,
    State,
    bluesky_documents,
    read_journal,
    read_recording,
    write_documents,
    write_hdf5,
)
from lumion_hw.cli import main
from lumion_hw.errors import ConfigError
from tests.acquisition.test_hdf5 import HEADER, journal

pytest.importorskip("h5py", reason="h5py, of the extra hdf5, is not there")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    write_hdf5(journal(tmp_path / "log"), tmp_path / "r.h5")
    return tmp_path / "r.h5"


def test_what_was_recorded_is_read_back(recording: Path) -> None:
    found = read_recording(recording)
    assert found.header == HEADER
    assert [column.name for column in found.columns] == [column.name for column in HEADER.columns]
    assert read_recording(recording, ["sfp_a"]).columns[0].value.tolist() == [50.0] * 3
    assert repr(found) == "<RecordedLog of small: 3 rows of 3 channels>"


def test_a_journal_of_before_is_gone_on_with(tmp_path: Path) -> None:
    """Journals that say nothing of devices and files are those of an older version."""
    path = journal(tmp_path / "log")
    line, _, rest = path.read_bytes().partition(b"\n")
    known = ("bench", "columns", "period_s", "n_rows", "started")
    older = {"format": "lumion-log 1"} | {key: json.loads(line)[key] for key in known}
    path.write_bytes(json.dumps(older).encode() + b"\n" + rest)
    header, rows = read_journal(path)
    assert (header.bench, len(rows), header.devices) == ("small", 3, {})
    with LogJournal.resume(path) as resumed:
        assert resumed.last_index == 2
    assert write_hdf5(path, tmp_path / "r.h5") == 3


def test_a_table_has_time_and_channels(recording: Path) -> None:
    pytest.importorskip("pandas", reason="pandas, of the extra frames, is not there")
    table = read_recording(recording).to_pandas()
    assert table.index.name == "time_s"
    assert table.loc[1.0, "meter0.power.1"] == -1e-12
    assert np.isnan(table.loc[0.5, "meter0.power.1"])
    assert table.attrs["units"]["sfp-a.temperature_c"] == "°C"
    assert table.attrs["device.meter0"] == "N7744A, serial MY44"


def test_a_data_set_has_units_and_states(recording: Path) -> None:
    pytest.importorskip("xarray", reason="xarray, of the extra frames, is not there")
    data = read_recording(recording).to_xarray()
    assert data["meter0.power.1"].dims == ("time_s",)
    assert data["meter0.power.1"].attrs["units"] == "W"
    assert data["meter0.power.1_state"].values.tolist() == [0, 1, 0]
    assert data.attrs["calibration_record"] == "SMALL-1"


@pytest.mark.parametrize(("package", "ask"), [("pandas", "to_pandas"), ("xarray", "to_xarray")])
def test_without_the_extra_the_command_that_helps_is_named(
    recording: Path, monkeypatch: pytest.MonkeyPatch, package: str, ask: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"pip install 'lumion-hw\[frames\]'"):
        getattr(read_recording(recording), ask)()


def test_the_documents_are_those_of_the_event_model(recording: Path, tmp_path: Path) -> None:
    event_model = pytest.importorskip("event_model", reason="event-model, of the extra test, is not there")
    assert main(["export", str(recording), "-o", str(tmp_path / "run.jsonl")]) == 0
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == ["start", "descriptor", "event", "event", "event", "stop"]
    for line in lines:
        event_model.schema_validators[event_model.DocumentNames[line["name"]]].validate(line["doc"])
    start, descriptor, first, second, _, stop = [line["doc"] for line in lines]
    assert start["calibration_record"]["content_sha256"] == "cd" * 32
    assert descriptor["data_keys"]["meter0-power-1"]["units"] == "W"
    assert descriptor["configuration"]["meter0"]["data"]["meter0-serial"] == "MY44"
    assert first["data"]["meter0-power-1"] == 1e-6
    assert second["data"]["meter0-power-1"] is None
    assert second["data"]["meter0-power-1-state"] == "OVER_RANGE"
    # 2026-11-20T12:00:00Z is 1 795 176 000 s after 1970 (date -d ... +%s); the second row came half a second later.
    assert second["time"] == 1795176000.5
    assert (stop["exit_status"], stop["num_events"]) == ("success", {"primary": 3})
    assert len({line["doc"]["uid"] for line in lines}) == len(lines)


def test_exported_twice_the_documents_are_the_same_and_of_other_recordings_others(recording: Path) -> None:
    found = read_recording(recording)
    assert json.dumps(list(bluesky_documents(found))) == json.dumps(list(bluesky_documents(found)))  # NaN is not NaN
    other = replace(found, header=replace(HEADER, started="2026-11-20T12:00:07+00:00"))
    assert next(bluesky_documents(other))[1]["uid"] != next(bluesky_documents(found))[1]["uid"]


def test_a_column_without_any_number_stays_one_of_numbers(recording: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas, of the extra frames, is not there")
    found = read_recording(recording)
    dark = replace(found.columns[0], value=np.full(3, np.nan), state=np.full(3, State.DARK, dtype=np.uint8))
    documents = bluesky_documents(replace(found, columns=(dark,)))
    table = pandas.DataFrame([content["data"] for name, content in documents if name == "event"])
    assert table["meter0-power-1"].dtype == np.float64
    assert table["meter0-power-1-state"].tolist() == ["DARK"] * 3


def test_a_journal_is_read_and_exported_like_the_file_it_would_have_become(tmp_path: Path, recording: Path) -> None:
    os.link(journal(tmp_path / "log2"), tmp_path / "killed.h5.journal")
    for source in (tmp_path / "killed.h5.journal", tmp_path / "killed.h5"):  # whose journal it is
        found = read_recording(source, ["sfp-a.*"])
        assert [column.name for column in found.columns] == ["sfp-a.temperature_c"]
        assert found.columns[0].value.tolist() == read_recording(recording, ["sfp-a.*"]).columns[0].value.tolist()
    assert main(["export", str(tmp_path / "killed.h5.journal"), "-o", str(tmp_path / "killed.jsonl")]) == 0
    assert main(["export", str(recording), "-o", str(tmp_path / "whole.jsonl")]) == 0
    assert (tmp_path / "killed.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()


def test_a_recording_that_ended_early_is_an_aborted_run(recording: Path) -> None:
    found = read_recording(recording)
    *_, (_, stop) = bluesky_documents(replace(found, header=replace(HEADER, n_rows=5)))
    assert (stop["exit_status"], stop["reason"]) == ("abort", "3 of 5 rows")


def test_documents_are_not_written_over_what_others_made(recording: Path, tmp_path: Path) -> None:
    target = tmp_path / "run.jsonl"
    target.write_text("mine")
    with pytest.raises(ConfigError, match="not from this program"):
        write_documents(read_recording(recording), target)
    target.unlink()
    write_documents(read_recording(recording), target)
    write_documents(read_recording(recording), target)  # over its own
