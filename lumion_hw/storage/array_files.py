"""Files of named arrays: HDF5 if h5py is installed, otherwise ``.npz``."""

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
from lumion_hw.files.hdf5 import CREATOR_ATTRIBUTE, max_bytes, open_hdf5, require_hdf5, unreadable_reason
from lumion_hw.files.own_files import CREATOR
from lumion_hw.files.reading import MEGABYTE, check_regular
from lumion_hw.files.writing import Overwrite, write_file
from lumion_hw.mesh.record.canonical import Arrays, storable_array

_RESTORE_HINT = "Keep it in the directory of its calibration record: copy both together, or restore it from a backup."


def array_suffix() -> str:
    """Return ``.h5`` if h5py is installed, otherwise ``.npz``."""
    return ".h5" if importlib.util.find_spec("h5py") else ".npz"


def write_arrays(path: Path, arrays: Arrays, description: str = "the arrays", overwrite: Overwrite = "own") -> None:
    """Write arrays by name to an ``.h5`` or ``.npz`` file, atomically.

    ``description`` is the kind of file, for messages.

    Raises:
        ConfigError: An array is not numeric, h5py is missing for an ``.h5`` file, or ``write_file`` raises it.
        LumionError: The disk is full or failed.
    """
    plain = {name: storable_array(name, array) for name, array in arrays.items()}
    if path.suffix == ".h5":
        h5py = require_hdf5()

        def fill(temporary: Path) -> None:
            with h5py.File(temporary, "w") as file:
                file.attrs[CREATOR_ATTRIBUTE] = np.bytes_(CREATOR)
                for name, array in plain.items():
                    file.create_dataset(name, data=array, track_times=False)
    else:

        def fill(temporary: Path) -> None:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.comment = CREATOR.encode()
                for name, array in plain.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)

    write_file(path, description, fill, overwrite)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an ``.h5`` or ``.npz`` file.

    Raises:
        CalibrationError: The file is missing or damaged.
        ConfigError: h5py is missing for an ``.h5`` file.
    """
    if path.suffix == ".h5":
        with open_hdf5(path, "file of arrays", error=CalibrationError, hint=_RESTORE_HINT) as file:
            return {name: file.array(name) for name in file.names()}
    try:
        check_regular(path)
        with zipfile.ZipFile(path) as archive:
            return _read_archive(archive, max_bytes(path.stat().st_size))
    except Exception as error:
        raise CalibrationError(f"{path} {unreadable_reason(error, 'file of arrays')}", hint=_RESTORE_HINT) from error


def _read_archive(archive: zipfile.ZipFile, remaining_bytes: int) -> dict[str, NDArray[Any]]:
    arrays = {}
    for member in archive.infolist():
        if member.file_size > remaining_bytes:
            claimed = f"{member.filename!r} claims a size of {member.file_size / MEGABYTE:.0f} MiB"
            raise ValueError(f"{claimed}, more than this file can contain")
        remaining_bytes -= member.file_size
        data = io.BytesIO(archive.read(member))
        version = np.lib.format.read_magic(data)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = header(data)
        if math.prod(shape) * dtype.itemsize != member.file_size - data.tell():
            raise ValueError(f"the size of {member.filename!r} does not match its shape")
        data.seek(0)
        name = member.filename.removesuffix(".npy")
        if name == "allow_pickle":  # numpy below 2.2 stored this argument of savez_compressed as an array
            continue
        arrays[name] = storable_array(name, np.lib.format.read_array(data, allow_pickle=False))
    return arrays
