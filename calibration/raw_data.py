"""Raw readings in a file beside the record: HDF5, or ``.npz`` without h5py."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibration.observations import Observations
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.array_files import array_suffix, arrays_sha256, read_arrays, write_arrays
from lumion_hw.mesh.record import ArrayFile


def save_raw(record_path: Path, observations: Observations) -> ArrayFile:
    """Write readings to ``NAME.raw.h5`` beside ``NAME.json`` and return what the record says of them.

    Raises:
        ConfigError: They hold something else than numbers.
    """
    arrays = {
        "currents_ma": observations.currents_ma,
        "source": observations.source,
        "monitors": np.array(observations.monitors, dtype=np.int64),
        "reading_ma": observations.reading_ma,
        "saturated": observations.saturated,
        "detuning_hz": observations.detunings_hz,
    }
    path = record_path.with_name(f"{record_path.stem}.raw{array_suffix()}")
    write_arrays(path, arrays)
    return ArrayFile(path.name, arrays_sha256(arrays))


def load_raw(record_path: Path, raw: ArrayFile) -> Observations:
    """Read the readings that belong to a record.

    Raises:
        CalibrationError: The file is missing, damaged or another one.
        ConfigError: It is HDF5, and h5py is missing.
    """
    path = record_path.with_name(Path(raw.name).name)
    arrays = read_arrays(path)
    if arrays_sha256(arrays) != raw.sha256:
        raise CalibrationError(f"{path}: is not the raw data of {record_path.name}: another hash")
    return Observations(
        arrays["currents_ma"],
        arrays["source"],
        tuple(arrays["monitors"].tolist()),
        arrays["reading_ma"],
        arrays["saturated"],
        arrays["detuning_hz"],
    )
