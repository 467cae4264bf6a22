"""Finding the polarization that the mesh takes, with power readings alone.

Against the drive of one squeezer the linear power is exactly a + b·cos φ + c·sin φ (polarization.md 3). The period in
drive is unknown at first: each channel is swept once over its range and its period fitted. From then on three readings
a third of a period apart give the best setting of a channel; the channels are gone round until a confirming reading
stops improving. Fits are made in watts (or any linear unit), never in dB.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.errors import CircuitError, LumionError
from lumion_hw.interfaces import PolarizationController

ReadPower = Callable[[], float]
"""Returns a power in any linear unit; raises if there is no number."""

_LEARNING_POINTS = 13
_MOST_ROUNDS = 6
_GOOD_ENOUGH = 10.0 ** (0.02 / 10.0)
_VISIBLE_SWING = 0.05
_PERIOD_STEPS = 400


@dataclass(frozen=True)
class Alignment:
    """Result of one search.

    Attributes:
        settings: Settings in force, in the controller's units.
        power: Confirming reading at these settings, in the unit of the readings.
        worst_power: Least power seen on the way: that it moved proves which source is looked at.
        reads: Readings taken.
    """

    settings: NDArray[np.float64]
    power: float
    worst_power: float
    reads: int

    @property
    def swing_db(self) -> float:
        """Power at the end over the least power seen, dB."""
        return 10.0 * math.log10(self.power / max(self.worst_power, 1e-6 * self.power))


class Aligner:
    """Searches for the brightest polarization and remembers what it learnt of each controller's periods.

    Args:
        clock: The bench's clock, for settling.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._periods: dict[str, dict[int, float]] = {}

    def maximise(self, name: str, controller: PolarizationController, read: ReadPower) -> Alignment:
        """Turn the polarization until the power is as large as it gets.

        A search that ends in an error, whichever, puts the settings back where they were.

        Args:
            name: Device name of the controller, under which its periods are remembered.
            controller: The controller.
            read: Reads the power to maximise.

        Raises:
            CircuitError: No light at all.
        """
        search = _Search(controller, read, self._clock, self._periods.setdefault(name, {}))
        return search.run(name)


class _Search:
    """One search on one controller."""

    def __init__(
        self, controller: PolarizationController, read: ReadPower, clock: Clock, periods: dict[int, float]
    ) -> None:
        self._controller = controller
        self._read = read
        self._clock = clock
        self._periods = periods
        self._settings = controller.read()
        self._reads = 0
        self._least = math.inf

    def run(self, name: str) -> Alignment:
        """Search, and put the settings back if that fails."""
        before = self._settings.copy()
        try:
            power = self._climb()
            if not power > 0.0:
                raise CircuitError(
                    "no light arrives, whatever the polarization",
                    device=name,
                    hint="Check the source, the fibre and the path behind the controller.",
                )
        except BaseException:
            with contextlib.suppress(LumionError):
                self._controller.set(before)
            raise
        return Alignment(self._settings.copy(), power, self._least, self._reads)

    def _climb(self) -> float:
        """Go round the channels until the confirming reading stops improving; return that reading."""
        power = self._power()
        for turn in range(_MOST_ROUNDS):
            for channel in range(len(self._settings)):
                self._optimise(channel)
            former, power = power, self._power()
            learnt = len(self._periods) == len(self._settings)
            if power <= former * _GOOD_ENOUGH and (learnt or turn > 1):
                break
        return power

    def _power(self) -> float:
        """Read the power at the present settings."""
        self._reads += 1
        power = self._read()
        self._least = min(self._least, power)
        return power

    def _put(self, channel: int, value: float) -> None:
        """Set one channel and wait until the light has followed."""
        self._settings[channel] = value
        self._controller.set(self._settings)
        self._clock.sleep(self._controller.settle_s)

    def _at(self, channel: int, value: float) -> float:
        """Set one channel, wait, and read."""
        self._put(channel, value)
        return self._power()

    def _optimise(self, channel: int) -> None:
        """Put one channel at its maximum."""
        start = float(self._settings[channel])
        if channel in self._periods:
            period = self._periods[channel]
            drives = np.array([start, *self._thirds(channel, start, period)])
            readings = np.array([self._at(channel, float(drive)) for drive in drives])
        else:
            actuator = self._controller.actuators[channel]
            drives = np.linspace(actuator.minimum, actuator.maximum, _LEARNING_POINTS)
            readings = np.array([self._at(channel, float(drive)) for drive in drives])
            learnt = self._fit_period(drives, readings, actuator.maximum - actuator.minimum)
            if learnt is None:
                self._put(channel, float(drives[np.argmax(readings)]) if _acts(readings) else start)
                return
            period = self._periods[channel] = learnt
        best = _brightest(drives, readings, period)
        self._put(channel, self._nearest(channel, best, start, period))

    def _thirds(self, channel: int, start: float, period: float) -> list[float]:
        """Return the two drives a third of a period either way, inside the range."""
        return [self._nearest(channel, start + step * period / 3.0, start, period) for step in (-1.0, 1.0)]

    def _nearest(self, channel: int, drive: float, near: float, period: float) -> float:
        """Return the equivalent of a drive inside the range, the one nearest to the middle between ``near`` and 0."""
        actuator = self._controller.actuators[channel]
        options = [drive + turn * period for turn in range(-8, 9)]
        inside = [option for option in options if actuator.minimum <= option <= actuator.maximum]
        if not inside:
            return min(max(drive, actuator.minimum), actuator.maximum)
        return min(inside, key=lambda option: abs(option - 0.5 * near))

    def _fit_period(self, drives: NDArray[np.float64], readings: NDArray[np.float64], span: float) -> float | None:
        """Return the period that fits a sweep best, ``None`` if the channel hardly acts here, or not as a squeezer."""
        if not _acts(readings):
            return None
        candidates = np.linspace(0.22 * span, 0.9 * span, _PERIOD_STEPS)
        residuals = _residuals(drives, readings, candidates)
        if not residuals.min() <= 0.02 * float(np.ptp(readings)) ** 2 * len(readings):
            return None
        return float(candidates[np.argmin(residuals)])


def _design(drives: NDArray[np.float64], period: float) -> NDArray[np.float64]:
    """Return the columns 1, cos, sin of a sinusoid of this period."""
    phase = 2.0 * np.pi * drives / period
    return np.stack([np.ones_like(phase), np.cos(phase), np.sin(phase)], axis=1)


def _acts(readings: NDArray[np.float64]) -> bool:
    """Return whether a sweep changes the power visibly; it does not in the dark."""
    return float(np.ptp(readings)) > _VISIBLE_SWING * abs(float(np.mean(readings)))


def _residuals(
    drives: NDArray[np.float64], readings: NDArray[np.float64], periods: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the sum of squares left by the best sinusoid of each period."""
    basis, _ = np.linalg.qr(np.stack([_design(drives, period) for period in periods]))
    explained = np.einsum("pij,pkj,k->pi", basis, basis, readings)
    squares: NDArray[np.float64] = ((readings - explained) ** 2).sum(axis=1)
    return squares


def _brightest(drives: NDArray[np.float64], readings: NDArray[np.float64], period: float) -> float:
    """Return the drive at which the fitted sinusoid is largest."""
    coefficients, *_ = np.linalg.lstsq(_design(drives, period), readings, rcond=None)
    return float(np.arctan2(coefficients[2], coefficients[1])) / (2.0 * np.pi) * period
