"""Sweep of every heater while all other heaters keep constant currents.

Where light never turns back, the others are off in the first sweep, so that its readings also show each heater alone.
Heaters are grouped by the nearest source. Heaters with an uncertain law (phase against current) are swept again with
other sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.measure.heater_fringe import FEED_FORWARD, RECIRCULATING, HeaterFit, HeaterSweep, fit_heater
from calibration.measure.logbook import Logbook
from calibration.model.arrays import Real
from calibration.model.ideal_mesh import MeanLight
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.observations import NoiseModel
from lumion_hw.mesh.layout.topology import MeshTopology

# Currents in the first sweep of a heater where light never turns back: a fringe has three unknowns for each monitor,
# and some monitors together determine the law.
_FEW_LEVELS, _MIN_MONITORS = 5, 4
# Sweeps with the backgrounds that earlier sweeps left; before each of them all heaters move.
_FIXED_VIEWS = 2


@dataclass(frozen=True)
class HeaterSweepPlan:
    """Settings of the heater sweeps.

    Attributes:
        levels: Number of currents per sweep, uniform in squared current; the first sweep may have fewer
            (:func:`first_levels`).
        turns: Phase range of a sweep, in turns, for the least efficient heater expected.
        turn_sigma_rad: Largest acceptable standard error of the phase at one turn.
        views: Maximum number of sweeps of a heater, each with another source and other currents of the other heaters.
        dark_views: The same for a heater that no sweep has shown: in meshes of many stages its light may be faint.
    """

    levels: int = 8
    turns: float = 1.05
    turn_sigma_rad: float = 0.05
    views: int = 5
    dark_views: int = 14

    def reach_ma2(self, heaters: NominalHeaters, heater_max_ma: float) -> float:
        """Return the largest squared current of a heater sweep, in mA²."""
        return min(2.0 * np.pi * self.turns / heaters.rho2_range[0], heater_max_ma**2)


def first_levels(plan: HeaterSweepPlan, mesh: MeshTopology, monitors: int) -> int:
    """Return how many currents of one heater usually determine its law in the first sweep."""
    return plan.levels if mesh.faces or monitors < _MIN_MONITORS else min(plan.levels, _FEW_LEVELS)


class HeaterSweeps:
    """Stage of a calibration that finds the phase against current (law) of all heaters.

    Args:
        logbook: Access to the mesh.
        light: Mean light of the mesh.
        sources: Ports with a light source.
        noise: Noise of a reading.
        heaters: Expected heaters of the chip.
        plan: Settings of the sweeps.
        rng: Random generator for the backgrounds.
        driven: Shape ``(2 n_pucs,)``; heaters to sweep, by default all; others stay off.
        earlier: Earlier sweeps, which are extended; by default none.
        views: Maximum number of sweeps of a heater; by default that of the plan.
    """

    def __init__(
        self,
        logbook: Logbook,
        light: MeanLight,
        sources: tuple[int, ...],
        noise: NoiseModel,
        heaters: NominalHeaters,
        plan: HeaterSweepPlan,
        rng: np.random.Generator,
        driven: NDArray[np.bool_] | None = None,
        earlier: dict[int, list[HeaterSweep]] | None = None,
        views: int | None = None,
    ) -> None:
        self._logbook, self._noise, self._heaters, self._plan = logbook, noise, heaters, plan
        self._max_ma = logbook.probe.heater_max_ma
        self._terms = RECIRCULATING if logbook.probe.mesh.faces else FEED_FORWARD
        near = light.entering[:, list(sources)]
        # Column v holds the source that gives each PUC the (v+1)-th most light.
        self._sources = np.array(sources)[np.argsort(-near, axis=1, kind="stable")]
        # Levels start at zero, so the fit cannot slip by a fringe. Uniform in I², all parts of the law count alike.
        self._use_levels(first_levels(plan, logbook.probe.mesh, len(logbook.probe.monitors)))
        # All heaters get random currents, because random backgrounds are rarely dark.
        self._level = rng.integers(self._levels, size=2 * logbook.probe.mesh.n_pucs)
        self._other = rng.spawn(1)[0]
        self._driven = np.ones(len(self._level), dtype=np.bool_) if driven is None else driven
        every: dict[int, list[HeaterSweep]] = {heater: [] for heater in np.flatnonzero(self._driven).tolist()}
        self._sweeps = every if earlier is None else earlier
        self._views = plan.views if views is None else views
        self._dark_views = plan.dark_views if views is None else views
        self._cold_first = not logbook.probe.mesh.faces
        if self._cold_first:
            self._level[:] = 0
        self._last: Real | None = None
        self._active_port: int | None = None

    def _use_levels(self, levels: int) -> None:
        self._levels = levels
        self._squares = np.linspace(0.0, self._plan.reach_ma2(self._heaters, self._max_ma), levels)

    @property
    def currents_ma(self) -> Real:
        """Currents of the present setting."""
        return np.where(self._driven, np.sqrt(self._squares[self._level]), 0.0)

    def run(
        self,
        fits: dict[int, HeaterFit],
        on_step: Callable[[int, int], None],
        on_heater: Callable[[int, HeaterFit], None] = lambda heater, fit: None,
    ) -> None:
        """Sweep all heaters and store their results in ``fits``.

        ``on_step`` is called with the numbers of finished and planned sweeps, ``on_heater`` with a heater and its fit.
        """
        pending = sorted(self._sweeps)
        finished, planned = 0, len(pending)
        for view in range(self._dark_views):
            if view == self._views:
                pending = [heater for heater in pending if fits[heater].law is None]
            if view >= (1 if self._cold_first else _FIXED_VIEWS) and pending:
                # With few heaters left, the background would hardly change, and dark heaters would stay dark.
                self._use_levels(self._plan.levels)
                self._level = self._other.integers(self._levels, size=len(self._level))
                self._last = None
            for heater in sorted(pending, key=lambda heater: (self._source(heater, view), heater)):
                self._sweep(heater, view)
                fits[heater] = fit_heater(self._sweeps[heater], self._noise, self._max_ma, self._heaters, self._terms)
                on_heater(heater, fits[heater])
                finished += 1
                on_step(finished, planned)
            # Heaters known to 0.05 rad at one turn are good enough for the phase search and are not swept again.
            pending = [heater for heater in pending if not fits[heater].turn_sigma_rad < self._plan.turn_sigma_rad]
            planned += len(pending)

    def _source(self, heater: int, view: int) -> int:
        return int(self._sources[heater // 2, view % self._sources.shape[1]])

    def _sweep(self, heater: int, view: int) -> None:
        source = self._source(heater, view)
        if self._last is None or source != self._active_port:
            self._logbook.light_only_port(source)
            self._active_port = source
            self._last = self._logbook.measure(self.currents_ma)
        # The present reading is the first of the sweep, which saves one setting per heater.
        levels = (self._level[heater] + np.arange(self._levels)) % self._levels
        currents = np.tile(self.currents_ma, (self._levels - 1, 1))
        currents[:, heater] = np.sqrt(self._squares[levels[1:]])
        readings = np.vstack([self._last, self._logbook.measure_batch(currents)])
        if not (self._cold_first and view == 0):
            self._level[heater] = levels[-1]
            self._last = readings[-1]
        self._sweeps[heater].append(HeaterSweep(self._squares[levels], readings))
