"""Separation of several sources that are on at the same time, by their patterns on the monitors.

While nothing is programmed, the monitor readings of one source are a fixed pattern times the power that enters the
mesh. Sources with separate lasers do not interfere on a monitor, so one reading of all monitors (a scan) is a sum of
patterns, and least squares yields the power of each source. All polarizations can thus be searched at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import DeviceError

Real = NDArray[np.float64]

_DIM = 0.1
"""Smallest brightness relative to the brightest source; a dimmer pattern is too noisy to be separated."""
_LARGEST_CONDITION = 30.0
"""Largest condition number of the normalized patterns; above it noise and drift of one source resemble light of another
source.
"""
_UNEXPLAINED = 0.01
"""Largest fraction of a scan that the patterns may leave unexplained; noise alone leaves a tenth of this limit."""
_SCANS = 20
"""Maximum number of attempts: a polarization change in the middle of a scan spoils only this scan."""


def separable(patterns_ma: Mapping[int, Real]) -> list[int]:
    """Return, by port, the patterns of the sources that the monitors can tell apart while all are on.

    The given patterns are, by source port, the monitor readings while only this source is on, minus dark current; NaN
    if saturated.
    """
    brightest_ma = max((float(np.nansum(seen)) for seen in patterns_ma.values()), default=0.0)
    ports = [port for port, seen in patterns_ma.items() if np.nansum(seen) > _DIM * brightest_ma]
    if len(ports) < 2:
        return []
    columns = np.stack([patterns_ma[port] for port in ports], axis=1)
    columns = columns[np.isfinite(columns).all(axis=1)]
    if len(columns) < len(ports) or not columns.any(axis=0).all():
        return []
    condition = np.linalg.cond(columns / np.linalg.norm(columns, axis=0))
    return ports if condition < _LARGEST_CONDITION else []


class SeparatedLight:
    """Measures the power of each of several sources that are on at the same time.

    Args:
        patterns_ma: By source port, the monitor readings while only this source is on, minus dark current.
        dark_ma: Monitor readings without light.
        scan: Function that reads all monitors.
    """

    def __init__(self, patterns_ma: Mapping[int, Real], dark_ma: Real, scan: Callable[[], Real]) -> None:
        self._ports = tuple(patterns_ma)
        self._columns = np.stack(list(patterns_ma.values()), axis=1)
        self._dark_ma = dark_ma
        self._scan = scan

    def look(self, ports: Collection[int]) -> Mapping[int, float]:
        """Read all monitors and return, by source port, the total photocurrent that the source causes, in mA.

        Raises:
            DeviceError: The patterns do not explain the readings, or too many monitors are saturated.
        """
        del ports  # one scan measures all sources
        for _ in range(_SCANS):
            seen_ma = self._scan() - self._dark_ma
            good = np.isfinite(seen_ma) & np.isfinite(self._columns).all(axis=1)
            columns, wanted_ma = self._columns[good], seen_ma[good]
            sizes, _, rank, _ = np.linalg.lstsq(columns, wanted_ma, rcond=0.1 / _LARGEST_CONDITION)
            if rank < len(self._ports):
                raise DeviceError(f"the {int(good.sum())} unsaturated monitors cannot separate the sources")
            left_ma = float(np.linalg.norm(wanted_ma - columns @ sizes))
            if left_ma <= _UNEXPLAINED * float(np.linalg.norm(wanted_ma)):
                whole_ma = np.nansum(self._columns, axis=0) * np.maximum(sizes, 0.0)
                return dict(zip(self._ports, whole_ma.tolist(), strict=True))
        raise DeviceError("the monitor readings are not the sum of the readings of the single sources")
