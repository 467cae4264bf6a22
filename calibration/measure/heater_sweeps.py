"""Sweeping every heater once, on whatever background there is, one channel changing from setting to setting.

No PUC has to be known to measure a heater (:mod:`calibration.measure.heater_fringe`), so no order is forced: the
heaters are taken by the source nearest to them. The last level of one heater is the background of the next; its last
reading is the first one of the next. Heaters whose law is still uncertain are looked at again from other sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.measure.heater_fringe import HeaterFit, HeaterSweep, fit_heater
from calibration.measure.logbook import Logbook
from calibration.model.ideal_mesh import MeanLight
from calibration.model.observations import NoiseModel

Real = NDArray[np.float64]

# Looks from backgrounds that sweeps leave behind; in the first all heaters move.
_FIXED_VIEWS = 2


@dataclass(frozen=True)
class HeaterSweepPlan:
    """How heaters are swept.

    Attributes:
        levels: Settings per sweep, uniform in I².
        turns: Range of a sweep, in turns of the most reluctant heater expected.
        turn_sigma_rad: A law is good enough when its phase at one turn is known so well.
        views: Most sweeps of a heater, each from another source and on another background.
    """

    levels: int = 8
    turns: float = 1.05
    turn_sigma_rad: float = 0.05
    views: int = 5

    def reach_ma2(self, rho2_range: tuple[float, float], heater_max_ma: float) -> float:
        """Return the largest I² of a sweep."""
        return min(2.0 * np.pi * self.turns / rho2_range[0], heater_max_ma**2)


class HeaterSweeps:
    """The stage that finds the laws of all heaters.

    Args:
        logbook: Access to the mesh.
        light: Mean light of the mesh.
        sources: Ports where light can be injected.
        noise: Noise of a reading.
        rho2_range: Least and largest ρ2 to expect, rad/mA².
        plan: How to sweep.
        rng: First background, and those of late looks.
    """

    def __init__(
        self,
        logbook: Logbook,
        light: MeanLight,
        sources: tuple[int, ...],
        noise: NoiseModel,
        rho2_range: tuple[float, float],
        plan: HeaterSweepPlan,
        rng: np.random.Generator,
    ) -> None:
        self._logbook, self._noise, self._rho2_range, self._plan = logbook, noise, rho2_range, plan
        self._max_ma = logbook.probe.heater_max_ma
        near = light.entering[:, list(sources)]
        # Column v: the source that brings each PUC the most light but v others.
        self._sources = np.array(sources)[np.argsort(-near, axis=1, kind="stable")]
        # From zero and uniform in I²: a law cannot slip by a fringe, and all parts of it count alike.
        self._squares = np.linspace(0.0, plan.reach_ma2(rho2_range, self._max_ma), plan.levels)
        # Every heater somewhere: dark backgrounds are rare when all of them are random.
        self._level = rng.integers(plan.levels, size=2 * logbook.probe.mesh.n_pucs)
        self._other = rng.spawn(1)[0]
        self._sweeps: dict[int, list[HeaterSweep]] = {heater: [] for heater in range(len(self._level))}
        self._last: Real | None = None
        self._lit: int | None = None

    @property
    def currents_ma(self) -> Real:
        """The present setting."""
        currents: Real = np.sqrt(self._squares[self._level])
        return currents

    def run(
        self,
        fits: dict[int, HeaterFit],
        done: Callable[[int, int], None],
        found: Callable[[int, HeaterFit], None] = lambda heater, fit: None,
    ) -> None:
        """Sweep and fit all heaters into ``fits``.

        Args:
            fits: Filled with what is known of each heater.
            done: Told the sweeps made and those planned so far.
            found: Told of every heater swept.
        """
        pending = sorted(self._sweeps)
        made, planned = 0, len(pending)
        for view in range(self._plan.views):
            if view >= _FIXED_VIEWS and pending:
                # Few heaters are still swept, so the light would stay as it is: where it is dark, nothing is ever seen.
                self._level = self._other.integers(self._plan.levels, size=len(self._level))
                self._last = None
            for heater in self._in_order(pending, view):
                self._sweep(heater, view)
                fits[heater] = fit_heater(self._sweeps[heater], self._noise, self._max_ma, self._rho2_range)
                found(heater, fits[heater])
                made += 1
                done(made, planned)
            # The stage plans itself: what is known to 0.05 rad at one turn is good enough for the search.
            pending = [heater for heater in pending if not fits[heater].turn_sigma_rad < self._plan.turn_sigma_rad]
            planned += len(pending)

    def _in_order(self, heaters: list[int], view: int) -> list[int]:
        """Return heaters by source: moving the light costs more than moving a heater."""
        return sorted(heaters, key=lambda heater: (int(self._source(heater, view)), heater))

    def _source(self, heater: int, view: int) -> int:
        return int(self._sources[heater // 2, view % self._sources.shape[1]])

    def _sweep(self, heater: int, view: int) -> None:
        """Step one heater through all its levels, beginning and ending anywhere."""
        source = self._source(heater, view)
        if self._last is None or source != self._lit:
            self._logbook.light_only_port(source)
            self._lit = source
            self._last = self._logbook.measure(self.currents_ma)
        # The reading that is there already is the first of the sweep: one setting less for each heater.
        levels = (self._level[heater] + np.arange(self._plan.levels)) % self._plan.levels
        currents = np.tile(self.currents_ma, (self._plan.levels - 1, 1))
        currents[:, heater] = np.sqrt(self._squares[levels[1:]])
        readings = np.vstack([self._last, self._logbook.measure_many(currents)])
        self._level[heater] = levels[-1]
        self._last = readings[-1]
        self._sweeps[heater].append(HeaterSweep(self._squares[levels], readings))
