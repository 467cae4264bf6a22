"""The journal as an HDF5 file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.acquisition.columns import Column, State, Value
from lumion_hw.acquisition.hdf5 import write_hdf5
from lumion_hw.acquisition.journal import LoggedFile, LoggedRecord, LogHeader, LogJournal, LogRow
from lumion_hw.bench import DeviceIdentity
from lumion_hw.errors import ConfigError

h5py = pytest.importorskip("h5py", reason="h5py, of the extra hdf5, is not there")
COLUMN = Column("meter0.power.1", "meter0", "W")


OTHERS = (Column("sfp-a.temperature_c", "sfp-a", "°C"), Column("sfp_a.temperature_c", "sfp_a", "°C"))
HEADER = LogHeader(
    "small",
    (COLUMN, *OTHERS),
    0.5,
    3,
    "2026-11-20T12:00:00+00:00",
    software="lumion-hw 9.8.7",
    emulated=True,
    devices={"meter0": DeviceIdentity("keysight-n77xx", "N7744A", "MY44", "1.0"), "sfp-a": DeviceIdentity("sfp-8472")},
    bench_file=LoggedFile("small.yaml", "ab" * 32, "name: small\n"),
    record=LoggedRecord("SMALL-1", "cd" * 32),
)


def journal(path: Path) -> Path:
    with LogJournal.create(path, HEADER) as log:
        for index, value in enumerate((Value(State.OK, 1e-6), Value(State.OVER_RANGE), Value(State.OK, -1e-12))):
            log.append(LogRow(index, 0.5 * index, (value, Value(State.OK, 40.0), Value(State.OK, 50.0))))
        log.sync()
    return path


def test_values_states_and_units_arrive(tmp_path: Path) -> None:
    assert write_hdf5(journal(tmp_path / "log"), tmp_path / "r.h5") == 3
    with h5py.File(tmp_path / "r.h5") as file:
        data = file["entry/data"]
        np.testing.assert_array_equal(data["meter0_power_1"], [1e-6, np.nan, -1e-12])
        np.testing.assert_array_equal(data["meter0_power_1_state"], [0, 1, 0])
        np.testing.assert_array_equal(data["time_s"], [0.0, 0.5, 1.0])
        assert dict(data["meter0_power_1"].attrs)["units"] == "W"
        assert data["meter0_power_1"].attrs["channel"] == "meter0.power.1"
        assert data["meter0_power_1_state"].attrs["flag_meanings"].split()[1] == "OVER_RANGE"
        assert data["sfp_a_temperature_c"][0] == 40.0
        assert data["sfp_a_temperature_c_2"][0] == 50.0, "two names that are one in NeXus stay apart"


def test_a_reader_of_nexus_is_led_to_the_readings(tmp_path: Path) -> None:
    """By the rules of NXroot, NXentry and NXdata: default, default, signal, axes; names of letters, digits and _."""
    write_hdf5(journal(tmp_path / "log"), tmp_path / "r.h5")
    with h5py.File(tmp_path / "r.h5") as file:
        assert file.attrs["NX_class"] == "NXroot"
        entry = file[file.attrs["default"]]
        assert entry.attrs["NX_class"] == "NXentry"
        data = entry[entry.attrs["default"]]
        assert data.attrs["NX_class"] == "NXdata"
        (axis,) = data.attrs["axes"]
        assert data[axis].attrs["units"] == "s"
        assert {len(data[name]) for name in (axis, data.attrs["signal"], *data.attrs["auxiliary_signals"])} == {3}
        names: list[str] = []
        file.visit(names.append)
        assert all(re.fullmatch(r"[A-Za-z_]\w*", part) for name in names for part in name.split("/"))
        groups = [file[name] for name in names if isinstance(file[name], h5py.Group)]
        assert all(group.attrs["NX_class"].startswith("NX") for group in groups)


def test_the_file_says_where_the_readings_come_from(tmp_path: Path) -> None:
    write_hdf5(journal(tmp_path / "log"), tmp_path / "r.h5")
    with h5py.File(tmp_path / "r.h5") as file:
        entry = file["entry"]
        assert entry["start_time"].asstr()[()] == "2026-11-20T12:00:00+00:00"
        assert entry["end_time"].asstr()[()] == "2026-11-20T12:00:01+00:00"
        assert entry["program_name"].attrs["version"] == "9.8.7"
        assert entry["instrument/meter0/serial_number"].asstr()[()] == "MY44"
        assert entry["instrument/sfp_a"].attrs["device"] == "sfp-a"
        assert entry["bench_file/data"].asstr()[()] == "name: small\n"
        assert entry["bench_file"].attrs["sha256"] == "ab" * 32
        assert entry["calibration_record/content_sha256"].asstr()[()] == "cd" * 32


def test_xarray_opens_it_with_its_dimension_and_units(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray", reason="xarray, of the extra frames, is not there")
    write_hdf5(journal(tmp_path / "log"), tmp_path / "r.h5")
    with xarray.open_dataset(tmp_path / "r.h5", engine="h5netcdf", group="entry/data") as data:
        assert data.meter0_power_1.dims == ("time_s",)
        assert data.meter0_power_1.sel(time_s=1.0).item() == -1e-12
        assert data.meter0_power_1.units == "W"


def test_a_directory_that_cannot_be_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    log = journal(tmp_path / "log")
    with pytest.raises(ConfigError, match="cannot write the HDF5 file"):
        write_hdf5(log, log / "r.h5")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_without_h5py_the_command_that_helps_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ConfigError, match=r"pip install 'lumion-hw\[hdf5\]'"):
        write_hdf5(journal(tmp_path / "log"), tmp_path / "r.h5")
