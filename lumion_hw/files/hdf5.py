"""Reads HDF5 files safely, even if they are damaged or malicious.

No array is allocated that is larger than the file can contain. All exceptions of h5py become one error that names the
file.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.files.reading import MEGABYTE, check_regular

CREATOR_ATTRIBUTE = "made_by"
NUMBERS = "biuf"
"""Kinds of numpy types that are numbers: booleans, integers, floats."""
_ALWAYS_ALLOWED_BYTES, _MAX_COMPRESSION = 32 * MEGABYTE, 32
_MAX_NAMES = 100_000


def max_bytes(file_bytes: int) -> int:
    """Return the largest plausible uncompressed size of a file, in bytes."""
    return _ALWAYS_ALLOWED_BYTES + _MAX_COMPRESSION * file_bytes


def require_hdf5() -> Any:
    """Import and return h5py. Raises ``ConfigError`` with the install command if it is missing."""
    try:
        import h5py
    except ImportError as error:
        hint = "Install it with: pip install 'lumion-hw[hdf5]'"
        raise ConfigError("HDF5 files need h5py", hint=hint) from error
    return h5py


def unreadable_reason(error: Exception, description: str) -> str:
    """Return why a file could not be read, as the end of a sentence."""
    if isinstance(error, FileNotFoundError):
        return "is missing"
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"is damaged, or is not a {description}: {reason}"


class Hdf5Reader:
    """An HDF5 file open for reading; the methods may raise any exception."""

    def __init__(self, file: Any, remaining_bytes: int) -> None:
        self._file = file
        self._remaining_bytes = remaining_bytes

    def names(self) -> list[str]:
        """Return the names of the top-level datasets."""
        h5py = require_hdf5()
        if len(self._file) > _MAX_NAMES:
            raise ValueError(f"it has {len(self._file)} entries, more than {_MAX_NAMES}")
        return [name for name in self._file if self._file.get(name, getclass=True) is h5py.Dataset]

    def creator(self) -> str:
        """Return the name of the program that wrote the file, or an empty text."""
        attributes = self._file.attrs
        if CREATOR_ATTRIBUTE not in attributes:
            return ""
        # Never read text of variable length: HDF5 1.14 loops forever if its heap is damaged.
        if attributes.get_id(CREATOR_ATTRIBUTE).dtype.kind != "S":
            return ""
        return bytes(attributes[CREATOR_ATTRIBUTE]).decode("ascii", "replace")

    def array(self, name: str, dimensions: int | None = None) -> NDArray[Any]:
        """Return a numeric dataset with the required number of dimensions (by default any)."""
        h5py = require_hdf5()
        dataset = self._file[name]
        if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in NUMBERS:
            raise TypeError(f"{name!r} is not an array of numbers")
        if dataset.external or dataset.is_virtual:
            raise TypeError(f"{name!r} is stored in another file")
        if dataset.shape is None or (dimensions is not None and dataset.ndim != dimensions):
            raise ValueError(f"{name!r} has the shape {dataset.shape}")
        claimed = math.prod(dataset.shape) * dataset.dtype.itemsize
        if claimed > self._remaining_bytes:
            raise ValueError(f"{name!r} claims a size of {claimed / MEGABYTE:.0f} MiB, more than this file can contain")
        self._remaining_bytes -= claimed
        return np.asarray(dataset[()])


@contextlib.contextmanager
def open_hdf5(
    path: Path, description: str, *, error: type[LumionError] = ConfigError, hint: str | None = None
) -> Iterator[Hdf5Reader]:
    """Open an HDF5 file for reading during the ``with`` block; links to other files are not followed.

    Args:
        path: The file.
        description: Kind of file, for messages.
        error: Class of the error.
        hint: Hint of the error.

    Raises:
        LumionError: Of class ``error``: the file is missing, damaged, of another kind, or claims an implausible size.
        ConfigError: h5py is missing.
    """
    h5py = require_hdf5()
    try:
        check_regular(path)
        with h5py.File(path, "r") as file:
            yield Hdf5Reader(file, max_bytes(path.stat().st_size))
    except LumionError:
        raise
    except Exception as cause:
        raise error(f"{path} {unreadable_reason(cause, description)}", hint=hint) from cause
