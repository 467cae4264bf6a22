"""Files of named arrays beside a document: HDF5 where h5py is installed, else ``.npz``; never pickled."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import CalibrationError, ConfigError

Arrays = Mapping[str, NDArray[Any]]
_KINDS = "biuf"
"""Kinds of numpy types that may be stored: booleans, integers, floats."""


def arrays_sha256(arrays: Arrays) -> str:
    """Return a hash over names, types, shapes and contents, the same whatever file they come from.

    Raises:
        ConfigError: An array holds something else than numbers.
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = _plain(name, arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def array_suffix() -> str:
    """Return ``.h5`` if HDF5 files can be written here, else ``.npz``."""
    return ".h5" if importlib.util.find_spec("h5py") else ".npz"


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays to an ``.h5`` or ``.npz`` file; a reader finds all of it or the file that was there before.

    Raises:
        ConfigError: An array holds something else than numbers, or h5py is missing for an ``.h5``.
    """
    plain = {name: _plain(name, array) for name, array in arrays.items()}
    if path.suffix == ".h5":
        h5py = _h5py(path)

        def fill(temporary: Path) -> None:
            with h5py.File(temporary, "w") as file:
                for name, array in plain.items():
                    file.create_dataset(name, data=array, track_times=False)
    else:

        def fill(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **plain)

    replace_atomically(path, fill)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an ``.h5`` or ``.npz`` file.

    Raises:
        CalibrationError: The file is missing or damaged.
        ConfigError: It is an ``.h5`` and h5py is missing.
    """
    if not path.exists():
        raise CalibrationError(
            f"{path}: is missing", hint="It belongs beside its calibration record: copy both together."
        )
    h5py = _h5py(path) if path.suffix == ".h5" else None
    try:
        if h5py:
            with h5py.File(path, "r") as file:
                return {name: np.asarray(file[name][()]) for name in file}
        with np.load(path, allow_pickle=False) as file:
            return {name: np.asarray(file[name]) for name in file.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise CalibrationError(f"{path}: is damaged: {error}", hint="Restore it from a copy.") from error


def replace_atomically(path: Path, fill: Callable[[Path], None]) -> None:
    """Write a file under another name by ``fill``, sync it, rename it, and sync the directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fill(temporary)
        _sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _plain(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in little-endian order and one piece. Raises ``ConfigError`` if it holds no numbers."""
    plain = np.ascontiguousarray(array)
    if plain.dtype.kind not in _KINDS:
        raise ConfigError(f"array {name!r} of type {plain.dtype} cannot be stored", hint="Give numbers or booleans.")
    return plain.astype(plain.dtype.newbyteorder("<"), copy=False)


def _h5py(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ConfigError(f"{path}: HDF5 files need h5py", hint="pip install 'lumion-hw[hdf5]'") from error
    return h5py
