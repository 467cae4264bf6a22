"""Conversion of a journal to an HDF5 file for readers of HDF5, NeXus and netCDF; needs h5py (extra ``hdf5``)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from lumion_hw.acquisition.columns import State
from lumion_hw.acquisition.journal import LogHeader, LogTable, read_table
from lumion_hw.files import AnyPath
from lumion_hw.files.hdf5 import CREATOR_ATTRIBUTE, require_hdf5
from lumion_hw.files.json_text import json_text
from lumion_hw.files.own_files import CREATOR
from lumion_hw.files.writing import write_file

DATA = "entry/data"
"""HDF5 group that contains the channels."""
HEADER = "entry/log_header/data"
"""HDF5 data set with the header of the journal."""
TIME = "time_s"
STATE = "_state"
"""Suffix of the names of data sets with the states of a channel."""


def dataset_names(names: Iterable[str]) -> dict[str, str]:
    """Return HDF5 names for channels or devices, made of letters, digits and ``_`` only, as NeXus requires."""
    attributes: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        number = 2
        unique = plain
        while unique in attributes.values() or unique in (TIME, "index"):
            unique, number = f"{plain}_{number}", number + 1
        attributes[name] = unique
    return attributes


def write_hdf5(journal: AnyPath, target: AnyPath) -> int:
    """Write the rows of a journal to an HDF5 file and return their number. After an error there is no file.

    ``/entry/data`` contains ``time_s``, ``index``, and for each column ``device_quantity`` (float64, NaN if missing;
    ``units`` and full name as attributes) and ``device_quantity_state`` (uint8).

    Raises:
        ConfigError: The file is not a journal, h5py is missing, or the target exists or cannot be written.
    """
    h5py = require_hdf5()
    target = Path(target)
    header, rows = read_table(journal)

    def fill(path: Path) -> None:
        with h5py.File(path, "w") as file:
            _about_file(file, header, target.name)
            entry = _group(file, "entry", "NXentry", default="data")
            _about_run(entry, header, rows)
            _about_bench(entry, header)
            _data(entry, header, rows)

    write_file(target, "the HDF5 file", fill, overwrite="nothing")
    return len(rows.index)


def _group(
    parent: Any, name: str, nexus_class: str, values: Mapping[str, object] | None = None, **attrs: object
) -> Any:
    group = parent.create_group(name)
    group.attrs.update(NX_class=nexus_class, **attrs)
    for key, value in (values or {}).items():
        if value != "":
            group[key] = value
    return group


def _about_file(file: Any, header: LogHeader, name: str) -> None:
    program, _, version = header.software.partition(" ")
    file.attrs.update(NX_class="NXroot", default="entry", file_name=name, file_time=header.started)
    file.attrs.update(creator=program or CREATOR, creator_version=version, bench=header.bench)
    file.attrs[CREATOR_ATTRIBUTE] = np.bytes_(CREATOR)


def _about_run(entry: Any, header: LogHeader, rows: LogTable) -> None:
    program, _, version = header.software.partition(" ")
    duration_s = float(rows.time_s[-1]) if len(rows.time_s) else 0.0
    entry["title"] = f"{header.bench}: {len(header.columns)} channels"
    entry["start_time"] = header.started
    with contextlib.suppress(ValueError):  # a journal edited by hand
        entry["end_time"] = (datetime.fromisoformat(header.started) + timedelta(seconds=duration_s)).isoformat()
    entry["program_name"] = program or CREATOR
    entry["program_name"].attrs["version"] = version
    plan = _group(entry, "plan", "NXcollection", {"period": header.period_s, "rows": header.n_rows})
    plan["period"].attrs["units"] = "s"
    note = _group(entry, "log_header", "NXnote", {"type": "application/json"})
    note["data"] = np.frombuffer(header.line(), dtype=np.uint8)


def _about_bench(entry: Any, header: LogHeader) -> None:
    instrument = _group(entry, "instrument", "NXinstrument", {"name": header.bench})
    instrument["name"].attrs["emulated"] = header.emulated
    plain = dataset_names(header.devices)
    for name, identity in header.devices.items():
        attributes = {
            "kind": identity.kind,
            "model": identity.model,
            "serial_number": identity.serial,
            "firmware": identity.firmware,
        }
        _group(instrument, plain[name], "NXcollection", attributes, device=name)
    if header.bench_file is not None:
        file = header.bench_file
        attributes = {"type": "application/yaml", "file_name": file.name, "data": file.text}
        _group(entry, "bench_file", "NXnote", attributes, sha256=file.sha256)
    if header.record is not None:
        attributes = {"record_id": header.record.record_id, "content_sha256": header.record.content_sha256}
        _group(entry, "calibration_record", "NXcollection", attributes)
    if header.settings is not None:
        attributes = {"type": "application/json", "data": json_text(header.settings)}
        _group(entry, "settings_before", "NXnote", attributes)


def _data(entry: Any, header: LogHeader, rows: LogTable) -> None:
    plain = dataset_names(column.name for column in header.columns)
    first, *further = plain.values()
    data = _group(entry, "data", "NXdata", signal=first, axes=[TIME], time_s_indices=0)
    if further:
        data.attrs["auxiliary_signals"] = further
    data[TIME] = rows.time_s
    data[TIME].attrs.update(units="s", long_name="time since the start", start=header.started)
    data[TIME].make_scale(TIME)
    _write_time_series(data, "index", rows.index, long_name="number of the row")
    flags = {
        "flag_values": np.array(list(State), dtype=np.uint8),
        "flag_meanings": " ".join(state.name for state in State),
    }
    for number, column in enumerate(header.columns):
        name = plain[column.name]
        values, states = rows.value[:, number], rows.state[:, number]
        attributes = {"units": column.unit, "channel": column.name, "long_name": f"{column.name} ({column.unit})"}
        _write_time_series(data, name, values, **attributes, device=column.device, ancillary_variables=name + STATE)
        _write_time_series(data, name + STATE, states, **flags)


def _write_time_series(data: Any, name: str, values: Any, **attrs: object) -> None:
    data[name] = values
    data[name].dims[0].attach_scale(data[TIME])
    data[name].attrs.update(attrs)
