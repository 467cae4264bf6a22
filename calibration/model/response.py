"""Response of the photodiodes: leakage, compression, gain, offset, and light that bypasses the mesh.

    e = X·(L·ripple + background)        reading = e·(1 - c·e + g(log e)) + o

e is the effective photocurrent, L the photocurrent proportional to the light, ripple the transmission of the port for
each source, X the leakage between neighbours, c the compression, g the deviation of the amplifiers' gain and o the
offset. Without additional effects (:mod:`calibration.model.physics`) the reading is L.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real

Slopes = NDArray[np.floating[Any]]

_LN10_PER_10 = np.log(10.0) / 10.0

DETECTOR_ROWS = ("compression_per_ma", "offset_ma", "level_gain", "monitor_leak", "background_share", "port_ripple_db")
"""Names of the effects in ``PHYSICS`` that act on detectors only."""
GAIN_LEVELS = np.arange(-2.5, 0.76, 0.25)
"""Decimal logarithms of the photocurrents in mA at which a gain deviation is given; between them it is linear. A step
below them it is zero, because offsets dominate there."""

REFLECTIONS = ("facet_reflection", "joint_reflection")
"""Names of effects in ``PHYSICS`` that reflect light."""
_OF_MONITORS = (*DETECTOR_ROWS, *REFLECTIONS)


def mesh_physics(extra_physics: Mapping[str, Real]) -> dict[str, Real]:
    """Return the parameters of additional effects inside the mesh."""
    return {name: value for name, value in extra_physics.items() if name not in _OF_MONITORS}


def without_reflections(extra_physics: Mapping[str, Real]) -> dict[str, Real]:
    """Return the parameters of additional effects, without those of reflections."""
    return {name: value for name, value in extra_physics.items() if name not in REFLECTIONS}


@dataclass(frozen=True, eq=False)
class Response:
    """Response of the photodiodes in n settings.

    Attributes:
        ripple: Relative transmission of the ports, shape ``(n, monitors)`` or one number.
        through_ma: Shape ``(n, monitors)``; L times ripple.
        light_ma: Shape ``(n, monitors)``; ``through_ma`` plus light around the mesh.
        mixed_ma: Shape ``(n, monitors)``; e, the photocurrent after leakage between neighbours.
        reading_ma: Predicted readings, shape ``(n, monitors)``.
        gain: Shape ``(n, monitors)``; derivative of the reading by e.
        mixing: Shape ``(monitors, monitors)``; leakage matrix X, ``None`` without leakage.
    """

    ripple: Real | float
    through_ma: Real
    light_ma: Real
    mixed_ma: Real
    reading_ma: Real
    gain: Real
    mixing: Real | None

    @classmethod
    def of(
        cls, extra_physics: Mapping[str, Real], linear_ma: Real, number: NDArray[np.int64], full_ma: Real
    ) -> Response:
        """Return the photodiode response in n settings.

        ``linear_ma`` are the photocurrents L, ``full_ma`` those for full transmission from the source; both ``(n,
        monitors)``. ``number`` is the index of the source in each setting.
        """
        ripple: Real | float = 1.0
        if (ripple_db := extra_physics.get("port_ripple_db")) is not None:
            ripple = 10.0 ** (ripple_db.reshape(-1, linear_ma.shape[1])[number] / 10.0)
        light = through = linear_ma * ripple
        if (past := extra_physics.get("background_share")) is not None:
            light = light + past.reshape(-1, light.shape[1])[number] * full_ma
        mixing: Real | None = None
        if (leak := extra_physics.get("monitor_leak")) is not None:
            from_previous, from_next = np.split(leak, 2)
            mixing = np.eye(len(from_next) + 1) + np.diag(from_previous, -1) + np.diag(from_next, 1)
        mixed = light if mixing is None else light @ mixing.T
        compression = extra_physics.get("compression_per_ma", 0.0)
        reading = mixed * (1.0 - compression * mixed) + extra_physics.get("offset_ma", 0.0)
        gain = np.broadcast_to(1.0 - 2.0 * compression * mixed, mixed.shape)
        if (deviation := extra_physics.get("level_gain")) is not None:
            shares, per_log = _level_shares(mixed)
            at_level = shares @ deviation
            reading = reading + mixed * at_level
            gain = gain + at_level + per_log @ deviation / np.log(10.0)
        return cls(ripple, through, light, mixed, reading, gain, mixing)

    def reading_slopes(self, slopes: Slopes) -> Slopes:
        """Convert derivatives of the photocurrents to derivatives of the readings.

        Both have the shape ``(settings, monitors, parameters)``.
        """
        slopes = slopes * np.broadcast_to(self.ripple, self.light_ma.shape)[..., None].astype(slopes.dtype)
        mixed: Slopes = slopes if self.mixing is None else self.mixing.astype(slopes.dtype) @ slopes
        mixed *= self.gain[..., None].astype(slopes.dtype)
        return mixed

    def light_weights(self, weight: Real) -> Real:
        """Convert weights of readings to weights of the photocurrents L, ``(settings, monitors)``."""
        weighted_gain: Real = weight * self.gain
        return self.ripple * (weighted_gain if self.mixing is None else weighted_gain @ self.mixing)

    def columns(self, name: str, number: NDArray[np.int64], full_ma: Real, n_sources: int) -> Real:
        """Return derivatives of readings by the parameters of an additional effect, ``(settings, monitors, size)``."""
        n, m = self.reading_ma.shape
        every = np.arange(m)
        if name == "monitor_leak":
            columns = np.zeros((n, m, 2 * (m - 1)))
            up, down = every[1:], every[:-1]
            columns[:, up, up - 1] = (self.gain[:, up]) * self.light_ma[:, down]
            columns[:, down, m - 1 + down] = self.gain[:, down] * self.light_ma[:, up]
            return columns
        if name in ("background_share", "port_ripple_db"):
            by_light = full_ma if name == "background_share" else _LN10_PER_10 * self.through_ma
            direct = np.zeros((n, m, n_sources, m))
            mixing = np.eye(m) if self.mixing is None else self.mixing
            direct[np.arange(n), :, number] = self.gain[..., None] * mixing * by_light[:, None]
            return direct.reshape(n, m, -1)
        if name == "level_gain":
            return self.mixed_ma[..., None] * _level_shares(self.mixed_ma)[0]
        columns = np.zeros((n, m, m))
        columns[:, every, every] = -(self.mixed_ma**2) if name == "compression_per_ma" else 1.0
        return columns


def _level_shares(current_ma: Real) -> tuple[Real, Real]:
    """Return the share of each gain level at some currents, ``(..., levels)``, and its derivative by log10."""
    spacing = GAIN_LEVELS[1] - GAIN_LEVELS[0]
    log_ma = np.log10(np.maximum(current_ma, 1e-12))[..., None]
    distance = (np.minimum(log_ma, GAIN_LEVELS[-1]) - GAIN_LEVELS) / spacing
    slopes = np.where((np.abs(distance) < 1.0) & (log_ma < GAIN_LEVELS[-1]), -np.sign(distance) / spacing, 0.0)
    return np.maximum(1.0 - np.abs(distance), 0.0), slopes
