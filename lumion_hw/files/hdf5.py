"""HDF5 files that somebody named: nothing is believed, nothing larger than the file can hold is allocated.

h5py raises whatever the damage happens to hit, ``OSError`` and ``RuntimeError`` as much as ``KeyError``,
``UnicodeDecodeError`` or ``MemoryError``. Here every such fault is one clear error that names the file.
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

MADE_BY_ATTRIBUTE = "made_by"
NUMBERS = "biuf"
"""Kinds of numpy types that are numbers: booleans, integers, floats."""
_SMALL_BYTES, _PACKED = 32 * MEGABYTE, 32
_MOST_NAMES = 100_000


def max_bytes(file_bytes: int) -> int:
    """Return how much a file of a size may claim to hold: some, and more only as far as it could be packed."""
    return _SMALL_BYTES + _PACKED * file_bytes


def require_hdf5() -> Any:
    """Return h5py. Raises ``ConfigError`` with the command that helps, if it is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise ConfigError("HDF5 files need h5py", hint="pip install 'lumion-hw[hdf5]'") from error
    return h5py


def unreadable(found: Exception, what: str) -> str:
    """Return why a file could not be read, the end of a sentence that begins with its name."""
    if isinstance(found, FileNotFoundError):
        return "is missing"
    reason = getattr(found, "strerror", None) or str(found) or type(found).__name__
    return f"is damaged, or is no {what}: {reason}"


class Hdf5Reader:
    """An HDF5 file open for reading; made by :func:`open_hdf5`, which turns what its methods raise into one error."""

    def __init__(self, file: Any, left_bytes: int) -> None:
        self._file = file
        self._left_bytes = left_bytes

    def names(self) -> list[str]:
        """Return the names of the datasets at the top."""
        h5py = require_hdf5()
        if len(self._file) > _MOST_NAMES:
            raise ValueError(f"it has {len(self._file)} entries")
        return [name for name in self._file if self._file.get(name, getclass=True) is h5py.Dataset]

    def made_by(self) -> str:
        """Return what the file says of the program that made it; empty if nothing."""
        attributes = self._file.attrs
        if MADE_BY_ATTRIBUTE not in attributes:
            return ""
        # Text of variable length lies in a heap, and HDF5 1.14 runs for ever in one that is damaged: never read any.
        if attributes.get_id(MADE_BY_ATTRIBUTE).dtype.kind != "S":
            return ""
        return bytes(attributes[MADE_BY_ATTRIBUTE]).decode("ascii", "replace")

    def array(self, name: str, dimensions: int | None = None) -> NDArray[Any]:
        """Return a dataset of numbers that are in this file.

        Args:
            name: Its path.
            dimensions: How many it has to have; any number if not given.
        """
        h5py = require_hdf5()
        dataset = self._file[name]
        if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in NUMBERS:
            raise TypeError(f"{name!r} is no array of numbers")
        if dataset.external or dataset.is_virtual:
            raise TypeError(f"{name!r} lies in another file")
        if dataset.shape is None or (dimensions is not None and dataset.ndim != dimensions):
            raise ValueError(f"{name!r} has the shape {dataset.shape}")
        claimed = math.prod(dataset.shape) * dataset.dtype.itemsize
        if claimed > self._left_bytes:
            raise ValueError(f"{name!r} claims to hold {claimed / MEGABYTE:.0f} MiB, more than can be in this file")
        self._left_bytes -= claimed
        return np.asarray(dataset[()])


@contextlib.contextmanager
def open_hdf5(
    path: Path, what: str, *, error: type[LumionError] = ConfigError, hint: str | None = None
) -> Iterator[Hdf5Reader]:
    """Open an HDF5 file to read from it, and from nothing else, in a block.

    Args:
        path: The file.
        what: What it should be, for the message.
        error: Class of the error.
        hint: What to do instead.

    Raises:
        LumionError: As ``error``: it is missing, no such file, damaged, or claims to hold more than can be in it.
        ConfigError: h5py is missing.
    """
    h5py = require_hdf5()
    try:
        check_regular(path)
        with h5py.File(path, "r") as file:
            yield Hdf5Reader(file, max_bytes(path.stat().st_size))
    except LumionError:
        raise
    except Exception as found:
        raise error(f"{path}: {unreadable(found, what)}", hint=hint) from found
