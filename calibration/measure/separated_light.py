"""Separation of several sources that are on together, by their patterns on the monitors.

The readings of one source are a fixed pattern times its power, so least squares gives the power of each source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from calibration.model.arrays import Real
from lumion_hw.errors import DeviceError

_DIM = 0.1
"""Smallest brightness of a pattern, relative to the brightest."""
_LARGEST_CONDITION = 30.0
"""Largest condition number of the patterns; above it, noise of one source looks like light of another."""
_UNEXPLAINED = 0.01
"""Largest fraction of a reading that the patterns may leave unexplained."""
_SCANS = 20
"""Maximum number of attempts per reading."""


def separable(patterns_ma: Mapping[int, Real]) -> list[int]:
    """Return the patterns, by port, of the sources that the monitors can tell apart.

    ``patterns_ma`` are, by port, the readings with only this source on, minus dark current; NaN if saturated.
    """
    brightest_ma = max((float(np.nansum(pattern)) for pattern in patterns_ma.values()), default=0.0)
    ports = [port for port, pattern in patterns_ma.items() if np.nansum(pattern) > _DIM * brightest_ma]
    if len(ports) < 2:
        return []
    columns = np.stack([patterns_ma[port] for port in ports], axis=1)
    columns = columns[np.isfinite(columns).all(axis=1)]
    if len(columns) < len(ports) or not columns.any(axis=0).all():
        return []
    condition = np.linalg.cond(columns / np.linalg.norm(columns, axis=0))
    return ports if condition < _LARGEST_CONDITION else []


def read_separately(patterns_ma: Mapping[int, Real], dark_ma: Real, scan: Callable[[], Real]) -> Mapping[int, float]:
    """Read all monitors while several sources are on; return the total photocurrent of each source in mA, by port.

    Args:
        patterns_ma: By port, the readings with only this source on, minus dark current.
        dark_ma: Readings without light.
        scan: Reads all monitors.

    Raises:
        DeviceError: The patterns do not explain the readings, or too many monitors are saturated.
    """
    patterns = np.stack(list(patterns_ma.values()), axis=1)
    for _ in range(_SCANS):
        pattern_ma = scan() - dark_ma
        is_usable = np.isfinite(pattern_ma) & np.isfinite(patterns).all(axis=1)
        columns, wanted_ma = patterns[is_usable], pattern_ma[is_usable]
        sizes, _, rank, _ = np.linalg.lstsq(columns, wanted_ma, rcond=0.1 / _LARGEST_CONDITION)
        if rank < len(patterns_ma):
            raise DeviceError(f"the {int(is_usable.sum())} unsaturated monitors cannot separate the sources")
        left_ma = float(np.linalg.norm(wanted_ma - columns @ sizes))
        if left_ma <= _UNEXPLAINED * float(np.linalg.norm(wanted_ma)):
            total_ma = np.nansum(patterns, axis=0) * np.maximum(sizes, 0.0)
            return dict(zip(patterns_ma, total_ma.tolist(), strict=True))
    raise DeviceError("the monitor readings are not the sum of the readings of the single sources")
