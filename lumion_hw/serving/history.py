"""History of all readings of a served bench, in memory of a fixed size."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.serving.state import AlarmSeverity, Point

PERIOD_S = 2.0
"""Time between two samples."""
MAX_SAMPLES = 3600
"""Number of samples that are kept; fewer on a bench with many readings."""
MAX_BYTES = 32e6
"""Largest memory for the samples."""
MAX_INTERVALS = 360
"""Maximum number of points of a returned curve."""
_MIN_SAMPLES = 60


class ReadingHistory:
    """The last samples of all readings and settings that are numbers. Thread-safe.

    On a bench with many readings fewer samples are kept, so that the memory stays below ``MAX_BYTES``.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._columns: dict[str, int] = {}
        self._times_s = np.zeros(0)
        self._samples = np.zeros((0, 0), dtype=np.float32)
        self._n_added = 0

    def add(self, time_s: float, points: Mapping[str, Point]) -> None:
        """Store the present values, at most once per ``PERIOD_S``; points without a value become gaps."""
        with self._guard:
            if time_s - self._last_s < PERIOD_S:
                return
            values = {name: _number(point) for name, point in points.items() if _has_numbers(point)}
            if not values.keys() <= self._columns.keys():
                self._start(values)
            row = [values.get(name, math.nan) for name in self._columns]
            index = self._n_added % len(self._times_s)
            self._times_s[index], self._samples[index] = time_s, row
            self._n_added += 1

    @property
    def _last_s(self) -> float:
        return float(self._times_s[(self._n_added - 1) % len(self._times_s)]) if self._n_added else -math.inf

    def _start(self, names: Collection[str]) -> None:
        """Begin again with more columns; the points of a bench are known from the start, so this happens once."""
        self._columns = {name: column for column, name in enumerate(names)}
        n_samples = max(min(MAX_SAMPLES, int(MAX_BYTES / (4 * len(names)))), _MIN_SAMPLES)
        self._times_s, self._n_added = np.zeros(n_samples), 0
        self._samples = np.full((n_samples, len(names)), np.nan, dtype=np.float32)

    def curves(self, names: Sequence[str], start_s: float = -math.inf, end_s: float = math.inf) -> dict[str, Any]:
        """Return lowest and highest values of readings over time.

        Args:
            names: Names of readings; unknown names are left out.
            start_s: Start of the time range, in seconds since 1970.
            end_s: End of the time range, in seconds since 1970.

        Returns:
            ``time_s``, the times of at most ``MAX_INTERVALS`` intervals, and ``low`` and ``high`` with as many values
            per name; ``None`` if the reading had no value at some time of the interval.
        """
        with self._guard:
            kept = [name for name in names if name in self._columns]
            n = min(self._n_added, len(self._times_s))
            order = np.arange(self._n_added - n, self._n_added) % max(len(self._times_s), 1)
            times_s = self._times_s[order]
            inside = (times_s >= start_s) & (times_s <= end_s)
            times_s = times_s[inside]
            columns = np.array([self._columns[name] for name in kept], dtype=np.intp)
            samples = self._samples[np.ix_(order[inside], columns)]
        starts = interval_starts(times_s)
        low, high = (f.reduceat(samples, starts) if len(starts) else samples for f in (np.minimum, np.maximum))
        return {
            "time_s": [round(float(time_s), 1) for time_s in times_s[_ends(starts, len(times_s))]],
            "low": {name: _rounded(low[:, column]) for column, name in enumerate(kept)},
            "high": {name: _rounded(high[:, column]) for column, name in enumerate(kept)},
        }


def interval_starts(times_s: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the first sample of each of at most ``MAX_INTERVALS`` intervals of equal duration; none is empty."""
    if not len(times_s):
        return np.zeros(0, dtype=np.intp)
    if len(times_s) <= MAX_INTERVALS:
        return np.arange(len(times_s))
    span_s = max(float(times_s[-1] - times_s[0]), 1e-9)
    numbers = np.minimum((times_s - times_s[0]) / span_s * MAX_INTERVALS, MAX_INTERVALS - 1).astype(int)
    return np.flatnonzero(np.diff(numbers, prepend=-1))


def _ends(starts: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    return np.append(starts[1:], n) - 1 if len(starts) else starts


def _has_numbers(point: Point) -> bool:
    return point.kind in ("number", "flag") and not isinstance(point.value, str | np.ndarray)


def _number(point: Point) -> float:
    if point.value is None or point.severity is AlarmSeverity.INVALID:
        return math.nan
    return float(point.value)


def _rounded(values: NDArray[np.float32]) -> list[float | None]:
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values.tolist()]
