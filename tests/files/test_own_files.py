"""The program may overwrite exactly the files that it has written itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.acquisition.columns import Column, State, Value
from lumion_hw.acquisition.hdf5 import write_hdf5
from lumion_hw.acquisition.journal import LogHeader, LogJournal, LogRow
from lumion_hw.acquisition.plotting import FORMATS, plot
from lumion_hw.bench.events import EventLog
from lumion_hw.bench.file.loader import builtin_names, builtin_path
from lumion_hw.clock import VirtualClock
from lumion_hw.files.input_kinds import input_kind
from lumion_hw.files.own_files import is_own_file
from lumion_hw.mesh.picture.drawing import mesh_svg
from lumion_hw.storage import save_record
from lumion_hw.storage.array_files import write_arrays
from tests.mesh.sample_record import CELL, sample_record

STRANGERS = {
    "notes.txt": b"lumion-hw: remember to order fibres\n",
    "record.json": b'{"name": "lumion-calibration", "schema": "mine"}',
    "list.json": b'["lumion-"]',
    "page.html": b"<!DOCTYPE html>\n<html><body>about lumion-hw</body></html>",
    "drawing.svg": b'<svg xmlns="http://www.w3.org/2000/svg"><title>lumion-hw</title></svg>',
    "table.csv": b"puc,loss\n1,2\n",
    "photo.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 200,
    "binary.h5": b"\x89HDF\r\n\x1a\n" + b"\0" * 200,
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("data/small.yaml", "a bench file"),
        ("data/calibration-record-v1.json", "a calibration record"),
        ("data/sff8472_golden.csv", None),
    ],
)
def test_input_files_are_recognised(name: str, kind: str | None) -> None:
    assert input_kind((Path(__file__).parents[1] / name).read_bytes()) == kind


@pytest.mark.parametrize("name", builtin_names())
def test_every_built_in_bench_is_recognised(name: str) -> None:
    assert input_kind(builtin_path(name).read_bytes()) == "a bench file"


@pytest.mark.parametrize("name", STRANGERS)
def test_files_of_others_are_not_taken_for_ours(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(STRANGERS[name])
    assert not is_own_file(path)


def test_hdf5_of_others_is_not_taken_for_ours(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py, of the extra hdf5, is not there")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.attrs["made_by"] = "somebody"
        file["a"] = np.zeros(3)
    assert not is_own_file(tmp_path / "x.h5")


def test_records_arrays_pictures_and_events_are_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_record(sample_record(), tmp_path / "record.json")
    (tmp_path / "mesh.json").write_text(json.dumps(CELL.to_dict()))
    (tmp_path / "mesh.svg").write_text(mesh_svg(CELL))
    (tmp_path / "endpoints.json").write_text(json.dumps({"mesh0": "tcp://127.0.0.1:4000"}, indent=1))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "h5py", None)
        write_arrays(tmp_path / "a.npz", {"a": np.zeros(3)})
    log = EventLog(VirtualClock())
    log.add("opened")
    log.write_to(tmp_path / "events.jsonl")
    log.close()
    assert [path.name for path in tmp_path.iterdir() if not is_own_file(path)] == []


def test_recordings_and_their_pictures_are_ours(tmp_path: Path) -> None:
    pytest.importorskip("h5py", reason="h5py, of the extra hdf5, is not there")
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra plots, is not there")
    columns = tuple(Column(f"meter0.power.{n}", "meter0", unit) for n, unit in enumerate(("W", "$\\frac", "_dBm\x1b")))
    with LogJournal.create(tmp_path / "log", LogHeader("small", columns, 0.5, 2, "2026-11-20T12:00:00+00:00")) as log:
        for index in range(2):
            log.append(LogRow(index, 0.5 * index, (Value(State.OK, 1.0),) * 3))
        log.sync()
    write_hdf5(tmp_path / "log", tmp_path / "r.h5")
    write_arrays(tmp_path / "a.h5", {"a": np.zeros(3)})
    for suffix in FORMATS:
        plot(tmp_path / "r.h5", tmp_path / f"r{suffix}")
        plot(tmp_path / "r.h5", tmp_path / f"r{suffix}")  # over its own
    (tmp_path / "log").unlink()
    assert [path.name for path in tmp_path.iterdir() if not is_own_file(path)] == []
