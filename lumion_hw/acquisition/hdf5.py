"""A journal as an HDF5 file, for the tools of the lab. Needs h5py, the extra ``hdf5``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lumion_hw.acquisition.columns import State
from lumion_hw.acquisition.journal import read_journal
from lumion_hw.files import AnyPath
from lumion_hw.files.hdf5 import MADE_BY_ATTRIBUTE, require_hdf5
from lumion_hw.files.made_here import MADE_BY
from lumion_hw.files.writing import write_file


def write_hdf5(journal: AnyPath, target: AnyPath) -> int:
    """Write the rows of a journal to an HDF5 file, all or nothing, and return their number.

    Datasets: ``index``, ``time_s``, and a group per column, ``/device.quantity/value`` (float64, NaN where there is no
    number) and ``/state`` (uint8), with the attribute ``unit``. The names of the states are an attribute of the file.

    Raises:
        ConfigError: The journal is none, h5py is missing, or the target exists or cannot be written.
    """
    h5py = require_hdf5()
    target = Path(target)
    header, rows = read_journal(journal)

    def fill(path: Path) -> None:
        with h5py.File(path, "w") as file:
            file.attrs.update(bench=header.bench, period_s=header.period_s, started=header.started)
            file.attrs[MADE_BY_ATTRIBUTE] = np.bytes_(MADE_BY)
            file["header"] = np.frombuffer(header.line(), dtype=np.uint8)
            file.attrs["states"] = [f"{state.value} {state.name}" for state in State]
            file["index"] = np.array([row.index for row in rows], dtype=np.uint32)
            file["time_s"] = np.array([row.time_s for row in rows])
            for number, column in enumerate(header.columns):
                group = file.create_group(column.name)
                group.attrs["unit"] = column.unit
                group["value"] = np.array([row.values[number].number for row in rows], dtype=np.float64)
                group["state"] = np.array([row.values[number].state for row in rows], dtype=np.uint8)

    write_file(target, "the HDF5 file", fill, over="nothing")
    return len(rows)
