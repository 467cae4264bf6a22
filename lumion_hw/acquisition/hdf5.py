"""A journal as an HDF5 file, for the tools of the lab. Needs h5py, the extra ``hdf5``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from lumion_hw.acquisition.columns import State
from lumion_hw.acquisition.journal import read_journal
from lumion_hw.bench.files import writing
from lumion_hw.errors import ConfigError


def require_hdf5() -> None:
    """Raise ``ConfigError`` with the command that helps, if h5py is not installed."""
    try:
        import h5py  # noqa: F401
    except ImportError as error:
        raise ConfigError("HDF5 files need h5py", hint="pip install 'lumion-hw[hdf5]'") from error


def write_hdf5(journal: Path, target: Path) -> int:
    """Write the rows of a journal to an HDF5 file, all or nothing, and return their number.

    Datasets: ``index``, ``time_s``, and a group per column, ``/device.quantity/value`` (float64, NaN where there is no
    number) and ``/state`` (uint8), with the attribute ``unit``. The names of the states are an attribute of the file.

    Raises:
        ConfigError: The journal is none, h5py is missing, or the target cannot be written.
    """
    require_hdf5()
    import h5py

    header, rows = read_journal(journal)
    with writing("the HDF5 file", target):
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        os.close(handle)
        try:
            with h5py.File(name, "w") as file:
                file.attrs.update(bench=header.bench, period_s=header.period_s, started=header.started)
                file.attrs["states"] = [f"{state.value} {state.name}" for state in State]
                file["index"] = np.array([row.index for row in rows], dtype=np.uint32)
                file["time_s"] = np.array([row.time_s for row in rows])
                for number, column in enumerate(header.columns):
                    group = file.create_group(column.name)
                    group.attrs["unit"] = column.unit
                    group["value"] = np.array([row.values[number].number for row in rows], dtype=np.float64)
                    group["state"] = np.array([row.values[number].state for row in rows], dtype=np.uint8)
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    return len(rows)
