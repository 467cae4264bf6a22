"""File with the raw readings next to a record: HDF5, or ``.npz`` without h5py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.model.observations import Observations
from lumion_hw.errors import CalibrationError
from lumion_hw.files import AnyPath
from lumion_hw.mesh.record.calibration_record import ArrayFile
from lumion_hw.mesh.record.canonical import arrays_sha256
from lumion_hw.storage.array_files import array_suffix, read_arrays, write_arrays

_AXES = {
    "currents_ma": ("settings", "heaters"),
    "source": ("settings",),
    "monitors": ("monitors",),
    "reading_ma": ("settings", "monitors"),
    "saturated": ("settings", "monitors"),
    "detuning_hz": ("settings",),
}
"""Arrays of the file, named as in :class:`Observations`, with their axes."""


def save_raw(record_path: Path, observations: Observations) -> ArrayFile:
    """Write readings to ``NAME.raw.h5`` next to ``NAME.json``; return the entry for the record.

    Raises:
        ConfigError: The arrays are not numeric.
    """
    arrays = {name: np.asarray(getattr(observations, name)) for name in _AXES}
    arrays |= {"monitors": np.array(observations.monitors, np.int64), "detuning_hz": observations.detunings_hz}
    path = record_path.with_name(f"{record_path.stem}.raw{array_suffix()}")
    write_arrays(path, arrays, "the raw readings")
    return ArrayFile(path.name, arrays_sha256(arrays))


def load_raw(record_path: AnyPath, raw: ArrayFile) -> Observations:
    """Read the raw readings of a record.

    Raises:
        CalibrationError: The file is missing, damaged or belongs to another record.
        ConfigError: The file is HDF5, and h5py is missing.
    """
    record_path = Path(record_path)
    path = record_path.with_name(Path(raw.name).name)
    arrays = read_arrays(path)
    # Readings of another run would give residuals that look like faults.
    if arrays_sha256(arrays) != raw.sha256:
        raise CalibrationError(
            f"{path}: this file does not contain the raw data of {record_path.name}, because its hash differs"
        )
    for mismatch in _mismatches(arrays):
        raise CalibrationError(f"{path}: this file is not valid raw data: {mismatch}", hint="Calibrate again.")
    columns = {name: arrays[name] for name in _AXES if name != "monitors"}
    return Observations(**columns, monitors=tuple(arrays["monitors"].tolist()))


def _mismatches(arrays: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    sizes: dict[str, int] = {}
    for name, axes in _AXES.items():
        if name not in arrays:
            yield f"it lacks {name!r}"
        elif arrays[name].ndim != len(axes):
            yield f"{name!r} has the shape {arrays[name].shape}"
        elif any(sizes.setdefault(axis, size) != size for axis, size in zip(axes, arrays[name].shape, strict=True)):
            yield f"{name!r} has the shape {arrays[name].shape}, which does not fit the others"
        elif name != "reading_ma" and not np.isfinite(arrays[name]).all():  # saturated readings are NaN
            yield f"{name!r} holds NaN or infinity"
