"""Files of named arrays beside a document: HDF5 where h5py is installed, else ``.npz``; never pickled."""

from __future__ import annotations

import importlib.util
import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import CalibrationError
from lumion_hw.files.hdf5 import MADE_BY_ATTRIBUTE, max_bytes, open_hdf5, require_hdf5, unreadable
from lumion_hw.files.made_here import MADE_BY
from lumion_hw.files.reading import MEGABYTE, check_regular
from lumion_hw.files.writing import Over, write_file
from lumion_hw.mesh.record.canonical import Arrays, storable_array

_COPY = "It belongs beside its calibration record: copy both together, or restore it from a copy."


def array_suffix() -> str:
    """Return ``.h5`` if HDF5 files can be written here, else ``.npz``."""
    return ".h5" if importlib.util.find_spec("h5py") else ".npz"


def write_arrays(path: Path, arrays: Arrays, what: str = "the arrays", over: Over = "own") -> None:
    """Write arrays to an ``.h5`` or ``.npz`` file; a reader finds all of it or the file that was there before.

    Args:
        path: Where to.
        arrays: The arrays.
        what: What they are, for the message.
        over: What may be written over.

    Raises:
        ConfigError: An array holds something else than numbers, h5py is missing for an ``.h5``, or as ``write_file``.
        LumionError: As ``write_file``.
    """
    plain = {name: storable_array(name, array) for name, array in arrays.items()}
    if path.suffix == ".h5":
        h5py = require_hdf5()

        def fill(temporary: Path) -> None:
            with h5py.File(temporary, "w") as file:
                file.attrs[MADE_BY_ATTRIBUTE] = np.bytes_(MADE_BY)
                for name, array in plain.items():
                    file.create_dataset(name, data=array, track_times=False)
    else:

        def fill(temporary: Path) -> None:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.comment = MADE_BY.encode()
                for name, array in plain.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)

    write_file(path, what, fill, over)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an ``.h5`` or ``.npz`` file.

    Raises:
        CalibrationError: The file is missing or damaged.
        ConfigError: It is an ``.h5`` and h5py is missing.
    """
    if path.suffix == ".h5":
        with open_hdf5(path, "file of arrays", error=CalibrationError, hint=_COPY) as file:
            return {name: file.array(name) for name in file.names()}
    try:
        check_regular(path)
        with zipfile.ZipFile(path) as archive:
            return _unpacked(archive, max_bytes(path.stat().st_size))
    except Exception as error:
        raise CalibrationError(f"{path}: {unreadable(error, 'file of arrays')}", hint=_COPY) from error


def _unpacked(archive: zipfile.ZipFile, left_bytes: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive. Raises whatever its damage leads to."""
    arrays = {}
    for member in archive.infolist():
        if member.file_size > left_bytes:
            claimed = f"{member.filename!r} claims to hold {member.file_size / MEGABYTE:.0f} MiB"
            raise ValueError(f"{claimed}, more than can be in this file")
        left_bytes -= member.file_size
        data = io.BytesIO(archive.read(member))
        version = np.lib.format.read_magic(data)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = header(data)
        if math.prod(shape) * dtype.itemsize != member.file_size - data.tell():
            raise ValueError(f"{member.filename!r} does not hold what it claims to")
        data.seek(0)
        name = member.filename.removesuffix(".npy")
        if name == "allow_pickle":  # an argument of savez_compressed that numpy below 2.2 stored as an array
            continue
        arrays[name] = storable_array(name, np.lib.format.read_array(data, allow_pickle=False))
    return arrays
