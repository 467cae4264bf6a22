"""Curves as text, for terminals: each character holds two by four dots of a Braille pattern."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
"""Bits of the dots of a Braille pattern, shape ``(4 rows, 2 columns)`` (Unicode 16.0, U+2800 to U+28FF)."""
_BLANK = 0x2800


def limits_of(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the smallest and largest finite value; ``None`` if no value is finite."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else None


def braille_rows(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    x_limits: tuple[float, float],
    y_limits: tuple[float, float],
    size: tuple[int, int],
) -> list[str]:
    """Return points as lines of Braille patterns; points that are not finite or outside the limits are left out.

    Args:
        x: Positions, shape ``(points,)``.
        y: Values, shape ``(points,)``.
        x_limits: Positions of the first and last column of dots.
        y_limits: Values of the lowest and highest row of dots.
        size: Columns and lines of characters.
    """
    columns, lines = size
    at_x, at_y = _dot(x, x_limits, 2 * columns), _dot(y, y_limits, 4 * lines)
    inside = (at_x >= 0) & (at_x < 2 * columns) & (at_y >= 0) & (at_y < 4 * lines)
    dots = np.zeros((4 * lines, 2 * columns), dtype=np.bool_)
    dots[4 * lines - 1 - at_y[inside], at_x[inside]] = True
    codes = _BLANK + np.einsum("lrcd,rd->lc", dots.reshape(lines, 4, columns, 2), _DOTS)
    return ["".join(map(chr, row)) for row in codes]


def _dot(values: NDArray[np.float64], limits: tuple[float, float], n_dots: int) -> NDArray[np.int64]:
    """Return the number of the dot of each value, -1 if it has none; equal limits put every value in the middle."""
    low, high = limits
    share = np.full(len(values), 0.5) if high == low else (values - low) / (high - low)
    share = np.where(np.isfinite(values) & (share >= 0.0) & (share <= 1.0), share, np.nan)
    return np.where(np.isnan(share), -1, np.nan_to_num(share) * (n_dots - 1) + 0.5).astype(np.int64)
