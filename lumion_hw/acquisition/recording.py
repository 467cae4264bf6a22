"""Reads a recording of ``lumion log``: as arrays, as a table or as a labelled data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition.columns import State, select_names
from lumion_hw.acquisition.hdf5 import DATA, HEADER, STATE, TIME, dataset_names
from lumion_hw.acquisition.journal import JOURNAL, LogHeader, check_rows, read_table
from lumion_hw.files import AnyPath
from lumion_hw.files.frames import require_pandas, require_xarray
from lumion_hw.files.hdf5 import open_hdf5

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


@dataclass(frozen=True, eq=False)
class RecordedColumn:
    """One column of a recording.

    Attributes:
        name: ``device.quantity``.
        value: Values in the unit of the column, shape ``(rows,)``, NaN where there is no number.
        state: State of each value as a number of :class:`State`, shape ``(rows,)``.
    """

    name: str
    unit: str
    value: NDArray[np.float64]
    state: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class RecordedLog:
    """A recording, read from a file.

    Attributes:
        header: Bench, devices, calibration record, software and start time.
        index: Numbers of the recorded rows, shape ``(rows,)``; numbers of missed rows are skipped.
        time_s: Seconds since the start, shape ``(rows,)``.
    """

    header: LogHeader
    index: NDArray[np.uint32]
    time_s: NDArray[np.float64]
    columns: tuple[RecordedColumn, ...]

    def __repr__(self) -> str:
        return f"<RecordedLog of {self.header.bench}: {len(self.time_s)} rows of {len(self.columns)} channels>"

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with one row per time in s and one column per channel, NaN where there is no number.

        Units are in ``attrs["units"]``, by channel.

        Raises:
            ConfigError: pandas is not installed.
        """
        pandas = require_pandas()
        table: pd.DataFrame = pandas.DataFrame(
            {column.name: column.value for column in self.columns}, index=pandas.Index(self.time_s, name=TIME)
        )
        table.attrs.update(self._about(), units={column.name: column.unit for column in self.columns})
        return table

    def to_xarray(self) -> xr.Dataset:
        """Return a labelled data set along ``time_s``: channels with their units, and their states.

        Raises:
            ConfigError: xarray is not installed.
        """
        xarray = require_xarray()
        meanings = " ".join(state.name for state in State)
        variables: dict[str, Any] = {"index": (TIME, self.index, {"long_name": "number of the row"})}
        for column in self.columns:
            attributes = {"units": column.unit, "ancillary_variables": column.name + STATE}
            variables[column.name] = (TIME, column.value, attributes)
            flags = {"flag_values": np.array(list(State), dtype=np.uint8), "flag_meanings": meanings}
            variables[column.name + STATE] = (TIME, column.state, flags)
        time = (TIME, self.time_s, {"units": "s", "start": self.header.started})
        data: xr.Dataset = xarray.Dataset(variables, coords={TIME: time}, attrs=self._about())
        return data

    def _about(self) -> dict[str, str]:
        header = self.header
        about = {"bench": header.bench, "started": header.started, "software": header.software}
        about |= {f"device.{name}": str(identity) for name, identity in header.devices.items()}
        if header.record is not None:
            about["calibration_record"] = header.record.record_id
        return {key: text for key, text in about.items() if text}


def read_recording(source: AnyPath, patterns: Sequence[str] = ("*",)) -> RecordedLog:
    """Read a file of ``lumion log`` or ``lumion scan``: HDF5, or the journal of an unfinished run.

    Args:
        source: The HDF5 file or the journal. If the file does not exist, ``SOURCE.journal`` is read.
        patterns: Names of columns, with shell wildcards; a device name alone selects all of its columns.

    Raises:
        ConfigError: The file is not a recording, or a pattern matches no column.
    """
    source = Path(source)
    journal = source.with_name(source.name + JOURNAL)
    if not source.exists() and journal.exists():
        source = journal
    return _read_journal(source, patterns) if source.suffix == JOURNAL else _read_hdf5(source, patterns)


def _read_journal(source: Path, patterns: Sequence[str]) -> RecordedLog:
    header, table = read_table(source)
    chosen = set(select_names(patterns, {column.name: column.device for column in header.columns}))
    columns = tuple(
        RecordedColumn(column.name, column.unit, table.value[:, at], table.state[:, at])
        for at, column in enumerate(header.columns)
        if column.name in chosen
    )
    return RecordedLog(header, table.index, table.time_s, columns)


def _read_hdf5(source: Path, patterns: Sequence[str]) -> RecordedLog:
    hint = "Give an HDF5 file that this version of `lumion log` has written."
    with open_hdf5(source, "recording", hint=hint) as file:
        header = LogHeader.parse(file.array(HEADER, 1).astype(np.uint8).tobytes(), source)
        units = {column.name: column.unit for column in header.columns}
        chosen = select_names(patterns, {column.name: column.device for column in header.columns})
        time_s = file.array(f"{DATA}/{TIME}", 1).astype(np.float64)
        index = file.array(f"{DATA}/index", 1).astype(np.uint32)
        plain = dataset_names(column.name for column in header.columns)
        columns = tuple(
            RecordedColumn(
                name,
                units[name],
                file.array(f"{DATA}/{plain[name]}", 1).astype(np.float64),
                file.array(f"{DATA}/{plain[name]}{STATE}", 1).astype(np.uint8),
            )
            for name in chosen
        )
        lengths = {"index": len(index)} | {column.name: len(column.value) for column in columns}
        if longer := [name for name, length in lengths.items() if length != len(time_s)]:
            raise ValueError(f"{longer[0]!r} and {TIME!r} have different numbers of rows")
        if invalid := [
            column.name for column in columns if len(column.state) != len(time_s) or not set(column.state) <= set(State)
        ]:
            raise ValueError(f"this version does not know the reading states of {invalid[0]}")
        check_rows(source, header, index)
        return RecordedLog(header, index, time_s, columns)
