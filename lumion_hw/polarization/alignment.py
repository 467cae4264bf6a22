"""Finding the polarization that the mesh takes, with power readings alone.

The search itself has no I/O (:mod:`lumion_hw.polarization.search`); here it meets a controller, a reading and
the clock. The period of a squeezer in drive is unknown at first: each channel is swept once over its range, and what
was learnt is kept for the next search. A box that searches by itself is told what each of its steps is worth.
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
"""Returns a power in any linear unit; raises if there is no number."""

EXPECTED_NOISE_DB = 0.013
"""Of a power meter that averages for some milliseconds (0.01 dB), and a little more."""
_SEED = 1507
"""Of the draws of the search: the same readings lead the same way."""
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Alignment:
    """Result of one search.

    Attributes:
        settings: Settings in force, in the controller's units; empty for a box that has none.
        power: Confirming reading at these settings, in the unit of the readings.
        worst_power: Reading on the way that was farthest from it: that it moved proves which source is looked at.
        reads: Readings taken.
        remaining_loss_db: Light that may still be missing at the wanted port, as estimated.
        floor_power: Least power that any setting reaches (crosstalk, or other light); ``None`` if that is not known.
        method: ``model`` when the readings were those of squeezers or plates, ``three-point`` when the search had to go
            round the actuators one by one, ``feedback`` when a box searched by itself.
        light: The explanation of the readings from which tracking starts; ``None`` for anything but squeezers, and when
            the model did not fit.
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
        """Brightest over darkest of the final and the worst reading, dB, at most 60; 0 without any light."""
        dark, bright = sorted((self.power, self.worst_power))
        return 10.0 * math.log10(bright / max(dark, 1e-6 * bright)) if bright > 0.0 else 0.0


class Aligner:
    """Searches for the brightest or darkest polarization and remembers each controller's periods.

    Args:
        clock: The bench's clock, for settling.
        noise_db: Noise of a reading as expected. It is judged by the readings as well, but seven readings judge little.
    """

    def __init__(self, clock: Clock, *, noise_db: float = EXPECTED_NOISE_DB) -> None:
        self._clock = clock
        self._noise_db = noise_db
        self._periods: dict[str, dict[int, float]] = {}

    def maximise(
        self, name: str, controller: PolarizationController | PolarizationOptimizer, read: ReadPower
    ) -> Alignment:
        """Turn the polarization until the power is as large as it gets.

        A search that ends in an error, whichever, puts the settings back where they were; a box without any is held.

        Args:
            name: Device name of the controller, under which its periods are remembered.
            controller: The controller, or a box that improves by itself.
            read: Reads the power to maximise.

        Raises:
            CircuitError: No light at all.
        """
        return self._search(name, controller, read, 1.0)

    def minimise(
        self, name: str, controller: PolarizationController | PolarizationOptimizer, read: ReadPower
    ) -> Alignment:
        """Turn the polarization until the power is as small as it gets: that of the complementary port.

        A null is sharper than a maximum (docs/polarization.md), down to the crosstalk, which is reported as the floor.
        Arguments and errors are those of :meth:`maximise`.
        """
        return self._search(name, controller, read, -1.0)

    def track(
        self,
        name: str,
        controller: PolarizationController,
        read: ReadPower,
        found: Alignment,
        *,
        drift_rad: float = DRIFT_RAD,
    ) -> Tracking:
        """Return what follows the brightest polarization from now on, a reading at a time.

        Args:
            name: Device name of the controller.
            controller: The controller, where :meth:`maximise` has left it.
            read: Reads the power, in the unit of the search.
            found: What :meth:`maximise` has found.
            drift_rad: Motion of the polarization from reading to reading to be ready for.

        Raises:
            CircuitError: The readings of the search were not those of squeezers: there is nothing to follow by.
        """
        if found.light is None:
            raise CircuitError(
                "cannot track: the readings of the search were not those of squeezers of constant period",
                device=name,
                hint="Search again from time to time instead.",
            )
        return Tracking(controller, read, self._clock, found.light, self._periods[name], drift_rad=drift_rad)

    def periods(self, name: str) -> dict[int, float]:
        """Return what is known of a controller's periods, by channel, in its units."""
        return dict(self._periods.get(name, {}))

    def _search(
        self, name: str, controller: PolarizationController | PolarizationOptimizer, read: ReadPower, sign: float
    ) -> Alignment:
        """Search, and put the settings back if that fails."""
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
            found = run_steps(search.steps(), controller, read, self._clock)
            if not search.has_light:
                raise _no_light(name)
        except BaseException:  # Ctrl-C too: light that was there before the search has to be there after it
            with contextlib.suppress(LumionError):
                controller.set(before)
            raise
        worst = min(search.powers) if sign > 0.0 else max(search.powers)
        return Alignment(
            settings=found.settings,
            power=found.power,
            worst_power=worst,
            reads=len(search.powers),
            remaining_loss_db=found.remaining_loss_db,
            floor_power=found.floor_power,
            method=found.method,
            light=found.light,
        )

    def _search_by_feedback(self, name: str, box: PolarizationOptimizer, read: ReadPower, sign: float) -> Alignment:
        """Let a box improve until it no longer does, and hold it there, whatever happens."""
        bright = FeedbackSearch(sign=1.0, noise_db=self._noise_db, coarse=sign < 0.0)
        searches = [bright]
        try:
            self._let_improve(box, bright, read)
            # Factors of a search for the dark are scaled by all light, which only a search for the bright one tells.
            if sign < 0.0 and bright.has_light:
                full_power = max(bright.powers)
                searches.append(FeedbackSearch(sign=sign, noise_db=self._noise_db, full_power=full_power))
                self._let_improve(box, searches[-1], read)
        except BaseException:
            with contextlib.suppress(LumionError):
                box.stop()
            raise
        # Stopped before the confirming reading: a box that goes on stepping would leave this setting again.
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

    def _let_improve(self, box: PolarizationOptimizer, search: FeedbackSearch, read: ReadPower) -> None:
        box.start()
        while (step := search.next_step(read())) is not None:
            if step.restart:
                box.start()
            box.improve(step.factor)
            self._clock.sleep(box.settle_s)


def _no_light(name: str) -> CircuitError:
    return CircuitError(
        "no light arrives, whatever the polarization",
        device=name,
        hint="Check the source, the fibre and the path behind the controller.",
    )


class Tracking:
    """Follows a polarization on a controller; made by :meth:`Aligner.track`.

    Args:
        controller: The controller.
        read: Reads the power.
        clock: The bench's clock, for settling.
        light: The light as the search has found it.
        periods: Periods by actuator, in its units.
        drift_rad: Motion of the polarization from reading to reading to be ready for.
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
        """Set, wait, read and follow once. Raises what controller and reading raise; nothing is lost by that."""
        settings = self._drives.settings(self._tracker.next())
        self._controller.set(settings)
        self._phases = self._drives.phases(settings)
        self._clock.sleep(self._controller.settle_s)
        return self._tracker.update(self._phases, self._read())

    def switch_reading(self, read: ReadPower) -> None:
        """Read the same light at another place from now on, where more or less of it arrives. Raises what it raises."""
        self._tracker.rescale(self._phases, read())
        self._read = read

    def freeze(self) -> NDArray[np.float64]:
        """Put the controller to the estimated maximum, without dither, and return these settings."""
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
    """Carry out steps: set what they ask for, wait until the light follows, and tell them the power read.

    Args:
        steps: Yields settings and is sent powers.
        controller: The controller.
        read: Reads the power.
        clock: The bench's clock, for settling.

    Returns:
        What the steps return.
    """
    present: NDArray[np.float64] | None = None
    try:
        settings = next(steps)
        while True:
            # The same settings again are a confirming reading: nothing moves, so there is nothing to wait for.
            if present is None or not np.array_equal(settings, present):
                controller.set(settings)
                clock.sleep(controller.settle_s)
                present = settings.copy()
            settings = steps.send(read())
    except StopIteration as end:
        result: _Result = end.value
        return result
