"""Finds the resonances of a ring in a spectrum with an envelope and ripples.

Dips and peaks are searched relative to the envelope (the slow change of the power). The free spectral range is the
largest spacing that agrees with the dips or peaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]
Places = NDArray[np.intp]

_DARK_DB = 20.0
"""Dips are searched only where the envelope is within this many dB of its maximum."""
_DEGREE = 6
"""Degree of the polynomial that describes the envelope."""
_ENVELOPE_STEPS = 30
_CLEAR = 4.0
"""Minimum height of a dip or peak, relative to the ripples around it."""
_MIN_LIGHT_FRACTION = 0.02
"""Minimum power of a dip or peak, relative to the second largest."""
_MIN_SECOND_LIGHT = 0.05
"""Minimum power of the second largest resonance, relative to the largest."""
_MIN_EXPLAINED_FRACTION = 0.6
"""Minimum fraction of the dips or peaks (by weight) that must be resonances; below it the spacing is ambiguous."""
_MIN_POINTS = 16
_MAX_COMBS = 8
_MAX_ANCHORS, _MAX_FEATURES, _MAX_DIVISOR = 4, 16, 7
_MIN_SPACING = 6.0
"""Minimum number of points between resonances."""
_DISPERSION = 0.03
"""Largest relative change of the spacing from one resonance to the next."""
_MAX_GAPS = 2
"""Maximum number of consecutive missing resonances."""
_GAP_COST = 0.7
_MIN_RELATIVE_SCORE = 0.95
"""The largest spacing with a score above this fraction of the best is chosen."""


class Resonances(NamedTuple):
    """Resonances of a ring in a spectrum.

    Attributes:
        dips: Whether the resonances are dips; otherwise peaks, as at a drop port.
        orders: Relative number of each resonance, shape ``(k,)``, ascending.
        positions: Index of the spectrum point at each resonance, shape ``(k,)``.
    """

    dips: bool
    orders: Places
    positions: Places
    spacing: float


def find_resonances(light: Real) -> Iterator[Resonances]:
    """Yield the resonances for each possible spacing, the most probable first.

    ``light`` is the power at evenly spaced frequencies, shape ``(points,)``.
    """
    dips, peaks = (_features(light, as_dips) for as_dips in (True, False))
    # Narrow dips have broad tops between them, and narrow peaks broad valleys.
    as_dips = dips.clearest >= peaks.clearest
    features = dips if as_dips else peaks
    clearest = set(np.argsort(-features.weight)[:2].tolist())
    for teeth, spacing in _best_combs(features, len(light)):
        light_of = np.sort(features.light[list(teeth.values())])
        # Any two of many features define a spacing, so they must be the two clearest ones.
        is_ambiguous_pair = len(teeth) == 2 and set(teeth.values()) != clearest
        share = float(features.weight[list(teeth.values())].sum() / features.weight.sum())
        if (
            share >= _MIN_EXPLAINED_FRACTION
            and light_of[-2] >= _MIN_SECOND_LIGHT * light_of[-1]
            and not is_ambiguous_pair
        ):
            orders = np.array(sorted(teeth), dtype=np.intp)
            positions = features.positions[[teeth[order] for order in orders.tolist()]]
            yield Resonances(as_dips, orders, positions, spacing)


class _Features(NamedTuple):
    """Dips or peaks of a spectrum: index of the point, power, and width in points."""

    positions: Places
    light: Real
    width: Real

    @property
    def weight(self) -> Real:
        """Weight of each feature, larger for strong and narrow ones; shape ``(n,)``."""
        significance: Real = self.light**1.5 / self.width
        return significance

    @property
    def clearest(self) -> float:
        """Largest weight; 0 without any feature."""
        return float(self.weight.max(initial=0.0))


def _bright_range(light: Real) -> tuple[int, int]:
    level = _running_median(light, max(len(light) // 60, 5))
    top = int(np.argmax(level))
    dark = np.flatnonzero(level < level[top] * 10.0 ** (-_DARK_DB / 10.0))
    before, after = dark[dark < top], dark[dark > top]
    return (int(before[-1]) + 1 if len(before) else 0), (int(after[0]) if len(after) else len(light))


def _decibels(light: Real) -> Real:
    # A step has √2 times the noise of a point. The median ignores the few large steps at resonances.
    steps = np.diff(light)
    noise = 1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / math.sqrt(2.0)
    # The logarithm would turn noise around zero power into deep dips, so it starts at a few times the noise.
    top = float(light.max())
    level_db: Real = 10.0 * np.log10(np.maximum(light, max(1e-9 * top, min(3.0 * noise, 0.1 * top))))
    return level_db


def _features(light: Real, dips: bool) -> _Features:
    from scipy.signal import find_peaks, peak_widths

    low, high = _bright_range(light) if dips else (0, len(light))
    if high - low < _MIN_POINTS:
        return _Features(np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0))
    level_db, sign = _decibels(light[low:high]), -1.0 if dips else 1.0
    smooth, half_width = _smoothed(sign * (level_db - _envelope(level_db, sign)))
    positions, details = find_peaks(smooth, prominence=1e-6, distance=max(2 * half_width, 2))
    height = details["prominences"]
    at = level_db[positions]
    difference = np.abs(10.0 ** ((at - sign * height) / 10.0) - 10.0 ** (at / 10.0))
    clear = height > _CLEAR * _ripple(smooth)[positions]
    if np.count_nonzero(clear) > 1:
        clear &= difference > _MIN_LIGHT_FRACTION * np.sort(difference[clear])[-2]
    positions = positions[clear]
    return _Features(positions + low, difference[clear], peak_widths(smooth, positions, rel_height=0.5)[0])


def _ripple(height: Real) -> Real:
    height_quantile = float(np.quantile(height, 1.0 - 3.0 / len(height)))
    window = max(len(height) // 12, 30)
    scatter = 1.4826 * _running_median(np.abs(height - _running_median(height, window)), window)
    # Broad resonances fill half of the spectrum, so their own height could be taken for ripples.
    limit: Real = np.clip(scatter, max(height_quantile / 60.0, 1e-9), max(height_quantile / 5.0, 1e-9))
    return limit


def _smoothed(height: Real) -> tuple[Real, int]:
    """Return smoothed heights over the envelope in dB, and half the width of the average in points."""
    half_width = 0
    while True:
        smooth = _average(height, half_width)
        # Averages at this distance share no point, so their noise is independent.
        distance = 2 * half_width + 1
        steps = smooth[distance:] - smooth[:-distance]
        noise = 1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / math.sqrt(2.0)
        if float(np.quantile(smooth, 1.0 - 3.0 / len(smooth))) >= 4.0 * noise or 16 * half_width + 16 >= len(height):
            return smooth, half_width
        half_width = max(half_width + 1, int(1.6 * half_width))


def _envelope(level_db: Real, sign: float) -> Real:
    """Return the envelope of a spectrum: a smooth curve through the tops of dips or the bottoms of peaks."""
    terms = np.polynomial.chebyshev.chebvander(np.linspace(-1.0, 1.0, len(level_db)), _DEGREE)
    weight, curve = np.ones(len(level_db)), level_db
    for _ in range(_ENVELOPE_STEPS):
        coefficients = np.linalg.lstsq(terms * weight[:, None], level_db * weight, rcond=None)[0]
        curve = terms @ coefficients
        height = sign * (level_db - curve)
        below = height[height < 0.0]
        spread = max(1.4826 * float(np.median(-below)) if len(below) > 10 else 0.0, 1e-6)
        # Points far on the side of the resonances lose nearly all weight, so that resonances do not bend the envelope.
        far = height / (2.5 * spread)
        weight = np.sqrt(1.0 / np.where(far <= 0.0, 1.0 + np.maximum(-far - 1.0, 0.0), 1.0 + far**2))
    return curve


def _best_combs(features: _Features, n: int) -> Iterator[tuple[dict[int, int], float]]:
    """Yield the best combs: dips or peaks at even spacing by resonance number, and the spacing in points."""
    if len(features.positions) < 2:
        return
    combs = [
        (score, spacing, teeth)
        for anchor, spacing in _trials(features)
        for score, teeth in [_comb(features, anchor, spacing, n)]
        if len(teeth) > 1
    ]
    for _ in range(_MAX_COMBS):
        if not combs:
            return
        best = max(score for score, _, _ in combs)
        _, spacing, teeth = max(
            (comb for comb in combs if comb[0] >= _MIN_RELATIVE_SCORE * best), key=lambda comb: comb[1]
        )
        yield teeth, spacing
        combs = [comb for comb in combs if abs(comb[1] / spacing - 1.0) > _DISPERSION]


def _trials(features: _Features) -> Iterator[tuple[int, float]]:
    """Yield start points and spacings in points of combs to try."""
    largest = np.argsort(-features.light)[:_MAX_FEATURES]
    positions = features.positions[largest].tolist()
    # Resonances between two strong ones may be weak, so a distance can be several spacings.
    spacings = {
        round(abs(a - b) / divisor, 1)
        for i, a in enumerate(positions)
        for b in positions[:i]
        for divisor in range(1, _MAX_DIVISOR + 1)
        if abs(a - b) / divisor >= _MIN_SPACING
    }
    for anchor in largest[:_MAX_ANCHORS].tolist():
        for spacing in sorted(spacings):
            yield anchor, spacing


def _comb(features: _Features, anchor: int, spacing: float, n: int) -> tuple[float, dict[int, int]]:
    """Extend an evenly spaced series from a dip or peak to both sides; return score, and dips or peaks by number."""
    teeth, missing = {0: anchor}, 0
    for direction in (1, -1):
        at, step, order, gaps = float(features.positions[anchor]), spacing, 0, 0
        while True:
            order, expected = order + direction, at + direction * step
            if not 0.0 <= expected < n or gaps > _MAX_GAPS:
                break
            nearby = np.flatnonzero(np.abs(features.positions - expected) <= _DISPERSION * step * (1 + gaps) + 2.0)
            if not len(nearby):
                at, gaps = expected, gaps + 1
                continue
            teeth[order] = tooth = int(nearby[np.argmax(features.light[nearby])])
            position = float(features.positions[tooth])
            # Follow the dispersion, but only a part of the scatter of single positions.
            step, at, missing, gaps = 0.7 * step + 0.3 * direction * (position - at), position, missing + gaps, 0
    share = float(features.weight[list(teeth.values())].sum() / features.weight.sum())
    return share * (1.0 - _GAP_COST * missing / (missing + len(teeth))), teeth


def _average(values: Real, half_width: int) -> Real:
    """Return running averages over ``2 · half_width + 1`` points, fewer at the ends."""
    if half_width == 0:
        return values
    total = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    first, end = np.maximum(at - half_width, 0), np.minimum(at + half_width + 1, len(values))
    mean: Real = (total[end] - total[first]) / (end - first)
    return mean


def _running_median(values: Real, width: int) -> Real:
    from scipy.ndimage import median_filter

    # A sample is enough for a wide window, and the time of a median filter grows with its width.
    step = max(width // 128, 1)
    at = np.arange(0, len(values), step)
    interpolated: Real = np.interp(
        np.arange(len(values)), at, median_filter(values[::step], size=max(width // step, 3) | 1, mode="nearest")
    )
    return interpolated
