"""What a person at a prompt meets: completion, one-line reprs, names that are not there."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import lumion_hw
from calibration.record.export import write_npz, write_tables
from calibration.report.summary import write_report
from lumion_hw import Bench
from lumion_hw.acquisition.hdf5 import write_hdf5
from lumion_hw.acquisition.journal import LogJournal, read_journal
from lumion_hw.acquisition.plotting import plot, read_recording
from lumion_hw.bench.events import EventLog
from lumion_hw.bench.file.loader import check_bench, load_bench
from lumion_hw.errors import ConfigError, UnknownNameError
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.storage import load_record, save_record

RECORD = Path(__file__).parent.parent / "data" / "calibration-record-v1.json"


def test_the_public_names_are_shown_and_there() -> None:
    assert {"Bench", "CalibrationRecord", "LumionError"} <= set(dir(lumion_hw))
    assert all(getattr(lumion_hw, name) is not None for name in lumion_hw.__all__)


def test_completion_imports_nothing() -> None:
    script = "import sys, lumion_hw; dir(lumion_hw); print(*(m for m in sys.modules if m.startswith('lumion_hw.')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_whole_things_show_themselves_in_a_line() -> None:
    record = load_record(RECORD)
    with Bench.emulate("lumion-prototype") as bench:
        for thing in (bench, bench.model, bench.mesh, bench.mesh.topology, record, CalibratedMesh.from_record(record)):
            assert "\n" not in repr(thing)
            assert len(repr(thing)) < 300, repr(thing)
        assert "72 PUCs" in repr(bench.mesh)
        assert repr(bench.meters["meter0"]) == "<KeysightN77xx meter0>"
        assert repr(bench.transponders["sfp-s0n0"]) == "<SfpTransponder sfp-s0n0>"


def test_the_path_of_a_file_may_be_text(tmp_path: Path) -> None:
    record = load_record(str(RECORD))
    save_record(record, str(tmp_path / "copy.json"))
    assert load_record(tmp_path / "copy.json") == record


def test_no_call_for_users_demands_a_path_object() -> None:
    calls = [
        *(save_record, load_record, EventLog.write_to, LogJournal.create, LogJournal.resume),
        *(read_journal, write_hdf5, read_recording, plot, load_bench, check_bench, Bench.open, Bench.emulate),
        *(write_report, write_tables, write_npz),
    ]
    for call in calls:
        demanded = [name for name, kind in inspect.get_annotations(call).items() if kind == "Path"]
        assert [name for name in demanded if name != "return"] == [], call


def test_a_name_that_is_not_there_says_what_is() -> None:
    with Bench.emulate("lumion-prototype", only=["meter0", "sfp-s0n0"]) as bench:
        with pytest.raises(UnknownNameError, match=r"no laser 'x'. There are none\.$"):
            bench.lasers["x"]
        with pytest.raises(KeyError, match=r"'sfp-s0n0': it is a sfp-8472. There is meter0\.$"):
            bench.meters["sfp-s0n0"]
        with pytest.raises(ConfigError, match="left out by 'only'"):
            bench.transponders["sfp-s1n1"]
        assert bench.meters.get("x") is None
        assert "x" not in bench.meters
