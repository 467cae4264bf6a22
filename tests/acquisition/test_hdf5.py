"""The journal as an HDF5 file."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.acquisition.columns import Column, State, Value
from lumion_hw.acquisition.hdf5 import write_hdf5
from lumion_hw.acquisition.journal import LogHeader, LogJournal, LogRow
from lumion_hw.errors import ConfigError

h5py = pytest.importorskip("h5py", reason="h5py, of the extra hdf5, is not there")
COLUMN = Column("meter0.power.1", "meter0", "W")


def journal(path: Path) -> Path:
    with LogJournal.create(path, LogHeader("small", (COLUMN,), 0.5, 3, "2026-11-20T12:00:00+00:00")) as log:
        for index, value in enumerate((Value(State.OK, 1e-6), Value(State.OVER_RANGE), Value(State.OK, -1e-12))):
            log.append(LogRow(index, 0.5 * index, (value,)))
        log.sync()
    return path


def test_values_states_and_units_arrive(tmp_path: Path) -> None:
    assert write_hdf5(journal(tmp_path / "log"), tmp_path / "r.h5") == 3
    with h5py.File(tmp_path / "r.h5") as file:
        np.testing.assert_array_equal(file["meter0.power.1/value"], [1e-6, np.nan, -1e-12])
        np.testing.assert_array_equal(file["meter0.power.1/state"], [0, 1, 0])
        np.testing.assert_array_equal(file["time_s"], [0.0, 0.5, 1.0])
        assert file["meter0.power.1"].attrs["unit"] == "W"
        assert file.attrs["bench"] == "small"
        assert "1 OVER_RANGE" in list(file.attrs["states"])


def test_a_directory_that_cannot_be_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    log = journal(tmp_path / "log")
    with pytest.raises(ConfigError, match="cannot write the HDF5 file"):
        write_hdf5(log, log / "r.h5")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_without_h5py_the_command_that_helps_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ConfigError, match=r"pip install 'lumion-hw\[hdf5\]'"):
        write_hdf5(journal(tmp_path / "log"), tmp_path / "r.h5")
