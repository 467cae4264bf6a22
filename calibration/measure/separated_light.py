"""Several sources lit at once, told apart by the monitors: each makes a pattern of its own, and only its size changes.

What the monitors see of one source, as long as nothing is programmed, is a fixed pattern times the power that its
polarization lets into the mesh. Sources of their own lasers do not interfere on a monitor, so that a scan is the sum of
patterns, and its sizes follow by least squares. So all polarizations can be searched side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import DeviceError

Real = NDArray[np.float64]

_DIM = 0.1
"""Share of the brightest source below which a pattern is too noisy to be taken away from others'."""
_LARGEST_CONDITION = 30.0
"""Of the patterns scaled to one: beyond it noise and drift of one source would pass for another's."""
_UNEXPLAINED = 0.01
"""Share of a scan that patterns may leave; noise leaves a tenth of it."""
_SCANS = 20
"""Scans until one is explained: a polarization that turned in the middle of a scan spoils that one alone."""


def separable(patterns_ma: Mapping[int, Real]) -> list[int]:
    """Return the sources, by port, that monitors can tell apart while all of these are lit; none or two at least.

    Args:
        patterns_ma: By port, what the monitors see of it alone, dark current taken away; NaN where saturated.
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
    """The power of each of several sources that are lit together.

    Args:
        patterns_ma: By port, what the monitors see of it alone, dark current taken away.
        dark_ma: What they see without light.
        scan: Reads all monitors.
    """

    def __init__(self, patterns_ma: Mapping[int, Real], dark_ma: Real, scan: Callable[[], Real]) -> None:
        self._ports = tuple(patterns_ma)
        self._columns = np.stack(list(patterns_ma.values()), axis=1)
        self._dark_ma = dark_ma
        self._scan = scan

    def look(self, ports: Collection[int]) -> Mapping[int, float]:
        """Return the sum over all monitors that each source alone would make, by port, in mA.

        Raises:
            DeviceError: The patterns do not explain what the monitors see, or too many of those are saturated.
        """
        del ports  # one scan has them all
        for _ in range(_SCANS):
            seen_ma = self._scan() - self._dark_ma
            good = np.isfinite(seen_ma) & np.isfinite(self._columns).all(axis=1)
            columns, wanted_ma = self._columns[good], seen_ma[good]
            sizes, _, rank, _ = np.linalg.lstsq(columns, wanted_ma, rcond=0.1 / _LARGEST_CONDITION)
            if rank < len(self._ports):
                raise DeviceError(f"{int(good.sum())} monitors that are not saturated cannot tell the sources apart")
            left_ma = float(np.linalg.norm(wanted_ma - columns @ sizes))
            if left_ma <= _UNEXPLAINED * float(np.linalg.norm(wanted_ma)):
                whole_ma = np.nansum(self._columns, axis=0) * np.maximum(sizes, 0.0)
                return dict(zip(self._ports, whole_ma.tolist(), strict=True))
        raise DeviceError("what the monitors see is not the sum of what they saw of every source alone")
