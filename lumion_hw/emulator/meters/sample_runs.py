"""Data acquisition of Keysight power meters: logging, stability and min/max runs (N774xC Programming Guide)."""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.meters.photodiode_head import EmulatedHead

_ROUNDING_S = 1e-9
LOOK_S = 0.004
"""Shortest time between two looks at the light of a run that nobody asks about."""
_MOST_AT_ONCE = 65_536
"""A min/max run that nobody has looked at for long takes this many of the samples that went by."""


class RunFunction(enum.Enum):
    """What a meter acquires; the value is the word of ``FUNCtion:STATe``."""

    LOGGING = "LOGGing"
    STABILITY = "STABility"
    MINMAX = "MINMax"


class RunStart(enum.Enum):
    """What a run waits for; the value is the word of ``TRIGger:INPut``."""

    IGNORE = "IGNore"
    EACH = "SMEasure"
    COMPLETE = "CMEasure"
    MINMAX = "MMEasure"


@dataclass(frozen=True)
class Plan:
    """What to acquire.

    Attributes:
        function: Kind of run.
        points: Number of samples; of a min/max run the length of its window.
        averaging_s: Averaging time of each.
        period_s: From one sample to the next.
        window: Min/max: ``CONTinuous``, ``WINDow`` or ``REFResh``.
    """

    function: RunFunction
    points: int
    averaging_s: float
    period_s: float
    window: str = ""


class MeterRun:
    """One run of one or more heads that share their trigger.

    Args:
        plan: What to acquire.
        heads: The heads.
        start: What it waits for.
        now_s: When it was started.
        assumed_nm: Wavelength whose responsivity is used for each sample; the one set if not given.
    """

    def __init__(
        self,
        plan: Plan,
        heads: Sequence[EmulatedHead],
        start: RunStart,
        now_s: float,
        assumed_nm: NDArray[np.float64] | None = None,
    ) -> None:
        self.plan = plan
        self._assumed_nm = assumed_nm
        self._heads = heads
        self._each = start is RunStart.EACH and plan.function is not RunFunction.MINMAX
        self._begin_s = now_s if start is RunStart.IGNORE else None
        self._triggers: deque[float] = deque()
        self._free_s = self._looked_s = now_s
        self.done = 0
        length = 0 if plan.function is RunFunction.MINMAX else plan.points
        self._watts = [np.zeros(length, dtype=np.float32) for _ in heads]
        self._recent = [np.zeros(0) for _ in heads]
        self._extremes = [(math.inf, -math.inf)] * len(heads)
        for head in heads:
            head.begin_run()

    @property
    def complete(self) -> bool:
        """Whether every sample has been taken; a min/max run goes on until it is stopped."""
        return self.plan.function is not RunFunction.MINMAX and self.done >= self.plan.points

    def end_s(self) -> float | None:
        """Return when the run will be complete, ``None`` while that depends on triggers."""
        if self.plan.function is RunFunction.MINMAX or self._begin_s is None:
            return None
        return self._begin_s + (self.plan.points - 1) * self.plan.period_s + self.plan.averaging_s

    def next_look_s(self) -> float | None:
        """Return when samples should be taken next although nobody asks: between two looks light counts as a ramp."""
        if self.complete:
            return None
        if self._each:
            over_s = self._triggers[0] + self.plan.averaging_s if self._triggers else None
        else:
            begin_s = self._begin_s
            over_s = None if begin_s is None else begin_s + self.done * self.plan.period_s + self.plan.averaging_s
        return None if over_s is None else max(over_s, self._looked_s + LOOK_S)

    def trigger(self, times_s: Iterable[float]) -> None:
        """Take hardware triggers, in the order of time."""
        for at_s in times_s:
            if self._each:
                # A pulse during a sample is lost, and so is one beyond the last.
                if at_s >= self._free_s - _ROUNDING_S and len(self._triggers) + self.done < self.plan.points:
                    self._triggers.append(at_s)
                    self._free_s = at_s + self.plan.averaging_s
            elif self._begin_s is None:
                self._begin_s = at_s

    def advance(self, now_s: float) -> bool:
        """Take the samples that are over by now; return whether the run is complete."""
        if self.complete:
            return True
        self._looked_s = now_s
        middles_s = self._due_each(now_s) if self._each else self._due_free(now_s)
        if len(middles_s) == 0:
            return False
        # By the place of a sample in the run: the meter follows the sweep that it was told of.
        assumed_nm = None if self._assumed_nm is None else self._assumed_nm[self.done : self.done + len(middles_s)]
        for place, head in enumerate(self._heads):
            samples_w = head.samples(middles_s, self.plan.averaging_s, assumed_nm)
            if self.plan.function is RunFunction.MINMAX:
                self._watch(place, samples_w)
            else:
                self._watts[place][self.done : self.done + len(samples_w)] = samples_w
        self.done += len(middles_s)
        return self.complete

    def _due_each(self, now_s: float) -> NDArray[np.float64]:
        half_s = 0.5 * self.plan.averaging_s
        due: list[float] = []
        while self._triggers and self._triggers[0] + self.plan.averaging_s <= now_s + _ROUNDING_S:
            due.append(self._triggers.popleft() + half_s)
        return np.array(due)

    def _due_free(self, now_s: float) -> NDArray[np.float64]:
        if self._begin_s is None:
            return np.zeros(0)
        # The first sample ends one averaging time after the start, the others a period apart.
        over = math.floor((now_s + _ROUNDING_S - self._begin_s - self.plan.averaging_s) / self.plan.period_s) + 1
        if self.plan.function is not RunFunction.MINMAX:
            over = min(over, self.plan.points)
        elif over - self.done > _MOST_AT_ONCE:
            self.done = over - _MOST_AT_ONCE
        places = np.arange(self.done, max(over, self.done))
        return np.asarray((self._begin_s + 0.5 * self.plan.averaging_s) + places * self.plan.period_s, dtype=np.float64)

    def _watch(self, place: int, samples_w: NDArray[np.float64]) -> None:
        """Keep what min, max and the present value need."""
        recent = np.concatenate((self._recent[place], samples_w))
        if self.plan.window == "CONTinuous":
            low, high = self._extremes[place]
            self._extremes[place] = min(low, float(samples_w.min())), max(high, float(samples_w.max()))
            recent = recent[-1:]
        elif self.plan.window == "WINDow":
            recent = recent[-self.plan.points :]
        else:
            # REFResh begins anew after every window; what is left is the present one.
            kept = (self.done + len(samples_w) - 1) % self.plan.points + 1
            recent = recent[-kept:]
        self._recent[place] = recent

    def result_w(self, place: int) -> NDArray[np.float64]:
        """Return what one head acquired, in W: the samples, or minimum, maximum and present value."""
        if self.plan.function is not RunFunction.MINMAX:
            return self._watts[place][: self.done].astype(np.float64)
        recent = self._recent[place]
        if len(recent) == 0:
            return np.zeros(0)
        low, high = self._extremes[place]
        if self.plan.window != "CONTinuous":
            low, high = float(recent.min()), float(recent.max())
        return np.array([low, high, float(recent[-1])])
