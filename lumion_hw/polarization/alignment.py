"""Search for the polarization that the mesh accepts, with power readings alone.

This module connects the search (:mod:`lumion_hw.polarization.search`, without I/O) to a controller, a power reading and
the clock.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.errors import CircuitError, LumionError
from lumion_hw.interfaces import PolarizationController, PolarizationOptimizer
from lumion_hw.polarization.feedback import FeedbackSearch, remaining_loss_db
from lumion_hw.polarization.retarders import RetarderChain
from lumion_hw.polarization.search import Method, PolarizationSearch
from lumion_hw.polarization.squeezer_drives import SqueezerDrives
from lumion_hw.polarization.state_fit import LightEstimate
from lumion_hw.polarization.tracking import DRIFT_RAD, PolarizationTracker, TrackState

ReadPower = Callable[[], float]
"""Returns a power in any linear unit; raises an error if there is no reading."""

EXPECTED_NOISE_DB = 0.013
"""Noise of a power meter that averages over some milliseconds (0.01 dB), with a small margin."""
_SEED = 1507
"""Random seed of the search: the same readings give the same result."""
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Alignment:
    """Result of one polarization search.

    Attributes:
        settings: Present settings, in the controller's units; empty for an automatic controller.
        power: Confirming reading at these settings, in the unit of the readings.
        worst_power: The reading that differs most from ``power``.
        remaining_loss_db: Estimated light that may still be missing at the wanted port.
        floor_power: Lowest power that any setting reaches (crosstalk, or other light); ``None`` if unknown.
        method: ``model`` if the readings matched squeezers or plates, ``three-point`` if the actuators were optimised
            one by one, ``feedback`` if an automatic controller searched on its own.
        light: The fitted model of the light, needed for tracking; ``None`` if no model of squeezers fitted.
    """

    settings: NDArray[np.float64]
    power: float
    worst_power: float
    reads: int
    remaining_loss_db: float
    floor_power: float | None
    method: Method
    light: LightEstimate | None

    @property
    def swing_db(self) -> float:
        """Ratio of ``power`` to ``worst_power`` in dB, at most 60; 0 without any light."""
        dark, bright = sorted((self.power, self.worst_power))
        return 10.0 * math.log10(bright / max(dark, 1e-6 * bright)) if bright > 0.0 else 0.0


class Aligner:
    """Searches for the brightest or darkest polarization.

    The period of each squeezer (change of its drive for a phase of 2π) is measured in the first search and kept for
    later ones.

    Args:
        clock: Clock of the bench, for settling times.
        noise_db: Expected noise of a reading.
    """

    def __init__(self, clock: Clock, *, noise_db: float = EXPECTED_NOISE_DB) -> None:
        self._clock = clock
        self._noise_db = noise_db
        self._periods: dict[str, dict[int, float]] = {}

    def maximise(
        self, name: str, controller: PolarizationController | PolarizationOptimizer, read: ReadPower
    ) -> Alignment:
        """Turn the polarization until the power is as large as possible.

        After an error, the former settings are restored; an automatic controller is stopped.

        Args:
            name: Device name of the controller.
            controller: A controller with settings, or an automatic controller that searches on its own.
            read: Reads the power to maximise.

        Raises:
            CircuitError: There is no light at all.
        """
        return self._search(name, controller, read, 1.0)

    def minimise(
        self, name: str, controller: PolarizationController | PolarizationOptimizer, read: ReadPower
    ) -> Alignment:
        """Turn the polarization until the power is smallest. Arguments and errors are those of :meth:`maximise`."""
        return self._search(name, controller, read, -1.0)

    def track(
        self,
        name: str,
        controller: PolarizationController,
        read: ReadPower,
        measured: Alignment,
        *,
        drift_rad: float = DRIFT_RAD,
    ) -> Tracking:
        """Return an object that tracks the brightest polarization, one reading at a time.

        Args:
            name: Device name of the controller.
            controller: The controller, as :meth:`maximise` has left it.
            read: Reads the power, in the unit of the search.
            measured: Result of :meth:`maximise`.
            drift_rad: Expected change of the polarization from reading to reading.

        Raises:
            CircuitError: The readings of the search did not match squeezers, so there is no model for tracking.
        """
        if measured.light is None:
            raise CircuitError(
                "cannot track: the power does not vary periodically with the squeezer drives, as tracking requires",
                device=name,
                hint="Repeat the search from time to time instead.",
            )
        return Tracking(controller, read, self._clock, measured.light, self._periods[name], drift_rad=drift_rad)

    def periods(self, name: str) -> dict[int, float]:
        """Return the known squeezer periods (drive change for a phase of 2π) by channel, in the controller's units."""
        return dict(self._periods.get(name, {}))

    def _search(
        self, name: str, controller: PolarizationController | PolarizationOptimizer, read: ReadPower, sign: float
    ) -> Alignment:
        if isinstance(controller, PolarizationOptimizer):
            return self._search_by_feedback(name, controller, read, sign)
        before = controller.read()
        search = PolarizationSearch(
            controller.actuators,
            self._periods.setdefault(name, {}),
            before,
            sign=sign,
            rng=np.random.default_rng(_SEED),
            noise_db=self._noise_db,
        )
        try:
            result = run_steps(search.steps(), controller, read, self._clock)
            if not search.has_light:
                raise _no_light(name)
        except BaseException:  # also after Ctrl-C, the light from before the search must be restored
            with contextlib.suppress(LumionError):
                controller.set(before)
            raise
        worst = min(search.powers) if sign > 0.0 else max(search.powers)
        return Alignment(
            settings=result.settings,
            power=result.power,
            worst_power=worst,
            reads=len(search.powers),
            remaining_loss_db=result.remaining_loss_db,
            floor_power=result.floor_power,
            method=result.method,
            light=result.light,
        )

    def _search_by_feedback(self, name: str, box: PolarizationOptimizer, read: ReadPower, sign: float) -> Alignment:
        # A search for the dark needs the full power only roughly.
        bright = FeedbackSearch(sign=1.0, noise_db=self._noise_db, coarse=sign < 0.0)
        searches = [bright]
        try:
            self._run_search(box, bright, read)
            # The factors of a dark search are scaled by the full power, which only a bright search can find.
            if sign < 0.0 and bright.has_light:
                full_power = max(bright.powers)
                searches.append(FeedbackSearch(sign=sign, noise_db=self._noise_db, full_power=full_power))
                self._run_search(box, searches[-1], read)
        except BaseException:
            with contextlib.suppress(LumionError):
                box.stop()
            raise
        # Stop before the confirming reading: a box that keeps stepping would leave this setting again.
        box.stop()
        powers = [power for search in searches for power in search.powers]
        if not bright.has_light:
            raise _no_light(name)
        self._clock.sleep(box.settle_s)
        power = read()
        return Alignment(
            settings=np.empty(0),
            power=power,
            worst_power=min(powers) if sign > 0.0 else max(powers),
            reads=len(powers) + 1,
            remaining_loss_db=remaining_loss_db(power, max(powers), sign),
            floor_power=None,
            method="feedback",
            light=None,
        )

    def _run_search(self, box: PolarizationOptimizer, search: FeedbackSearch, read: ReadPower) -> None:
        box.start()
        while (step := search.next_step(read())) is not None:
            if step.restart:
                box.start()
            box.improve(step.factor)
            self._clock.sleep(box.settle_s)


def _no_light(name: str) -> CircuitError:
    return CircuitError(
        "no light arrives for any polarization",
        device=name,
        hint="Check the source, the fibre and the path behind the controller.",
    )


class Tracking:
    """Tracks a polarization on a controller; created by :meth:`Aligner.track`.

    Args:
        clock: Clock of the bench, for settling times.
        light: Model of the light from the search.
        periods: Change of each actuator's drive for a phase of 2π, in the actuator's units.
        drift_rad: Expected change of the polarization from reading to reading.
    """

    def __init__(
        self,
        controller: PolarizationController,
        read: ReadPower,
        clock: Clock,
        light: LightEstimate,
        periods: Mapping[int, float],
        *,
        drift_rad: float,
    ) -> None:
        self._controller = controller
        self._read = read
        self._clock = clock
        present = controller.read()
        self._drives = SqueezerDrives(controller.actuators, periods, present)
        chain = RetarderChain(len(present))
        self._phases = self._drives.phases(present)
        self._tracker = PolarizationTracker(chain, light, self._phases, *self._drives.phase_limits, drift_rad=drift_rad)

    def step(self) -> TrackState:
        """Do one tracking step: set, wait, read and adjust. After a device error, tracking can continue."""
        settings = self._drives.settings(self._tracker.next())
        self._controller.set(settings)
        # Settings are rounded to the steps of the actuators, so the filter gets the phases that were really set.
        self._phases = self._drives.phases(settings)
        self._clock.sleep(self._controller.settle_s)
        return self._tracker.update(self._phases, self._read())

    def switch_reading(self, read: ReadPower) -> None:
        """Track with another detector from now on. Raises errors of its first reading."""
        self._tracker.rescale(self._phases, read())
        self._read = read

    def freeze(self) -> NDArray[np.float64]:
        """Set the controller to the estimated maximum, without dither, and return its settings."""
        settings = self._drives.settings(self._tracker.centre)
        self._controller.set(settings)
        self._clock.sleep(self._controller.settle_s)
        return settings


def run_steps(
    steps: Generator[NDArray[np.float64], float, _Result],
    controller: PolarizationController,
    read: ReadPower,
    clock: Clock,
) -> _Result:
    """Carry out the steps of a search and return its result.

    Args:
        steps: Yields settings and receives powers.
        controller: The polarization controller.
        read: Reads the power.
        clock: Clock of the bench, for settling times.
    """
    present: NDArray[np.float64] | None = None
    try:
        settings = next(steps)
        while True:
            # The same settings again are a confirming reading: nothing moves, so no settling time is needed.
            if present is None or not np.array_equal(settings, present):
                controller.set(settings)
                clock.sleep(controller.settle_s)
                present = settings.copy()
            settings = steps.send(read())
    except StopIteration as end:
        result: _Result = end.value
        return result
