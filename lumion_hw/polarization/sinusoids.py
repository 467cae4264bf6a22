"""Fits of power against one actuator of a polarization controller, in linear units.

Against the retardance φ of a squeezer the power is a + b·cos φ + c·sin φ; against the angle θ of a rotating plate it
has the harmonics 2θ and 4θ (docs/polarization.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumion_hw.interfaces import ActuatorInfo

_VISIBLE_SWING = 0.05  # relative to the mean power
_PERIOD_STEPS = 400
_SHORTEST, _LONGEST = 0.22, 0.9
"""Shortest and longest period searched, relative to the drive range."""
_UNEXPLAINED = 0.02  # residual over the squared swing, per reading, up to which a sweep counts as a sinusoid
_GRID = 720
PLATE_PERIOD_DEG = 180.0
"""Period of a rotating plate, in degrees."""


@dataclass(frozen=True)
class Coordinate:
    """One actuator of a polarization controller.

    Attributes:
        minimum: Lowest setting.
        maximum: Highest setting.
        period: Change of the setting after which the polarization is the same again.
        harmonics: 1 for a squeezer, 2 for a rotating plate.
    """

    minimum: float
    maximum: float
    period: float
    harmonics: int

    @classmethod
    def from_actuator(cls, actuator: ActuatorInfo, period: float) -> Coordinate:
        """Return the range of an actuator, and the period and harmonics of the power as a function of its drive."""
        return cls(actuator.minimum, actuator.maximum, period, 2 if actuator.kind == "angle" else 1)

    def other_settings(self, start: float) -> list[float]:
        """Return settings for further readings, equally spaced over a period and inside the range."""
        count = 2 * self.harmonics + 1
        settings = [self.wrap_into_range(start + step * self.period / count, start) for step in range(1, count)]
        if len({round(setting, 9) for setting in [start, *settings]}) < count:  # the range is shorter than a period
            settings = [float(setting) for setting in np.linspace(self.minimum, self.maximum, count)[1:]]
        return settings

    def wrap_into_range(self, setting: float, near: float) -> float:
        """Return a setting moved by full periods to near mid-range, or else the nearer limit."""
        middle = 0.5 * (self.minimum + self.maximum)
        aim = 0.5 * (near + middle)  # towards the middle, where most of the range remains for later moves
        turns = np.arange(-8, 9) * self.period
        options = setting - self.period * np.round((setting - aim) / self.period) + turns
        valid = options[(options >= self.minimum) & (options <= self.maximum)]
        if not len(valid):
            return float(np.clip(setting, self.minimum, self.maximum))
        return float(valid[np.argmin(np.abs(valid - aim))])

    def best(
        self, settings: NDArray[np.float64], readings: NDArray[np.float64], near: float, sign: float
    ) -> tuple[float, float]:
        """Return the setting with the brightest or darkest light, and the predicted power there.

        Args:
            settings: Settings of the readings, shape ``(n,)``, at least ``2·harmonics + 1``.
            readings: Measured powers, linear, shape ``(n,)``.
            near: Setting to stay close to.
            sign: 1 for the largest power, −1 for the smallest.
        """
        fitted, *_ = np.linalg.lstsq(harmonic_columns(settings, self.period, self.harmonics), readings, rcond=None)
        if self.harmonics == 1:
            phase = float(np.arctan2(sign * fitted[2], sign * fitted[1]))
            setting = self.wrap_into_range(phase / (2.0 * np.pi) * self.period, near)
        else:
            # With two harmonics the extreme has no simple formula.
            grid = np.linspace(self.minimum, self.maximum, _GRID)
            setting = float(grid[np.argmax(sign * (harmonic_columns(grid, self.period, self.harmonics) @ fitted))])
        promised = harmonic_columns(np.array([setting]), self.period, self.harmonics) @ fitted
        return setting, float(promised[0])


def harmonic_columns(settings: NDArray[np.float64], period: ArrayLike, harmonics: int = 1) -> NDArray[np.float64]:
    """Return the columns 1, cos, sin, cos 2… of a sinusoid fit, shape ``(..., n, 2·harmonics + 1)``.

    ``period`` is one number, or has shape ``(..., 1)``.
    """
    phase = 2.0 * np.pi * settings / np.asarray(period, dtype=np.float64)
    waves = [wave(order * phase) for order in range(1, harmonics + 1) for wave in (np.cos, np.sin)]
    return np.stack([np.ones_like(phase), *waves], axis=-1)


def changes_power(readings: NDArray[np.float64]) -> bool:
    """Return whether readings vary by more than noise."""
    return float(np.ptp(readings)) > _VISIBLE_SWING * abs(float(np.mean(readings)))


def fit_period(drives: NDArray[np.float64], readings: NDArray[np.float64]) -> float | None:
    """Return the period that fits readings over the whole range best, or ``None`` if no sinusoid fits."""
    if not changes_power(readings):
        return None
    span = float(np.ptp(drives))
    low, high = _SHORTEST * span, _LONGEST * span
    for _ in range(3):  # each time around the best of the previous search
        candidates = np.linspace(low, high, _PERIOD_STEPS)
        residuals = _residuals(drives, readings, candidates)
        best = int(np.argmin(residuals))
        low, high = candidates[max(best - 1, 0)], candidates[min(best + 1, _PERIOD_STEPS - 1)]
    if not residuals.min() <= _UNEXPLAINED * float(np.ptp(readings)) ** 2 * len(readings):
        return None
    return float(candidates[best])


def _residuals(
    drives: NDArray[np.float64], readings: NDArray[np.float64], periods: NDArray[np.float64]
) -> NDArray[np.float64]:
    # With orthonormal columns the fits of all periods are projections, without solving any equations.
    basis, _ = np.linalg.qr(harmonic_columns(drives, periods[:, None]))
    explained = np.einsum("pij,pkj,k->pi", basis, basis, readings)
    squares: NDArray[np.float64] = ((readings - explained) ** 2).sum(axis=1)
    return squares
