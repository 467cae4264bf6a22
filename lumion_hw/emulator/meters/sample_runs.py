"""Logging, stability and min/max measurements of Keysight power meters (N774xC Programming Guide)."""

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
MIN_UPDATE_S = 0.004
"""Shortest time in s between two automatic updates of a measurement."""
_MAX_SAMPLES_PER_UPDATE = 65_536
"""Largest number of samples that one update of a min/max measurement computes; older samples are skipped."""


class RunFunction(enum.Enum):
    """Type of measurement, with the keyword of ``FUNCtion:STATe`` as value."""

    LOGGING = "LOGGing"
    STABILITY = "STABility"
    MINMAX = "MINMax"


class RunStart(enum.Enum):
    """Trigger that starts a measurement, with the keyword of ``TRIGger:INPut`` as value."""

    IGNORE = "IGNore"
    EACH_SAMPLE = "SMEasure"
    COMPLETE = "CMEasure"
    MINMAX = "MMEasure"


@dataclass(frozen=True)
class MeterRunPlan:
    """Parameters of a measurement.

    Attributes:
        points: Number of samples; for a min/max measurement, the length of the window.
        period_s: Time from one sample to the next.
        window: Window of a min/max measurement: ``CONTinuous``, ``WINDow`` or ``REFResh``.
    """

    function: RunFunction
    points: int
    averaging_s: float
    period_s: float
    window: str = ""


class MeterRun:
    """One measurement of one or more heads with a common trigger.

    Args:
        start: Trigger that starts the measurement.
        assumed_nm: Wavelength that selects the responsivity for each sample; by default the set wavelength.
    """

    def __init__(
        self,
        plan: MeterRunPlan,
        heads: Sequence[EmulatedHead],
        start: RunStart,
        now_s: float,
        assumed_nm: NDArray[np.float64] | None = None,
    ) -> None:
        self.plan = plan
        self._assumed_nm = assumed_nm
        self._heads = heads
        self._triggers_each_sample = start is RunStart.EACH_SAMPLE and plan.function is not RunFunction.MINMAX
        self._start_s = now_s if start is RunStart.IGNORE else None
        self._triggers: deque[float] = deque()
        self._free_s = self._updated_s = now_s
        self.n_recorded = 0
        length = 0 if plan.function is RunFunction.MINMAX else plan.points
        self._watts = [np.zeros(length, dtype=np.float32) for _ in heads]
        self._recent = [np.zeros(0) for _ in heads]
        self._extremes = [(math.inf, -math.inf)] * len(heads)
        for head in heads:
            head.start_run()

    @property
    def complete(self) -> bool:
        """Whether every sample is recorded; never for a min/max measurement."""
        return self.plan.function is not RunFunction.MINMAX and self.n_recorded >= self.plan.points

    def end_s(self) -> float | None:
        """Return the time at which the measurement will be complete; ``None`` if this depends on triggers."""
        if self.plan.function is RunFunction.MINMAX or self._start_s is None:
            return None
        return self._start_s + (self.plan.points - 1) * self.plan.period_s + self.plan.averaging_s

    def next_update_s(self) -> float | None:
        """Return the time of the next automatic update."""
        if self.complete:
            return None
        if self._triggers_each_sample:
            end_s_of_next = self._triggers[0] + self.plan.averaging_s if self._triggers else None
        else:
            begin_s = self._start_s
            end_s_of_next = (
                None if begin_s is None else begin_s + self.n_recorded * self.plan.period_s + self.plan.averaging_s
            )
        return None if end_s_of_next is None else max(end_s_of_next, self._updated_s + MIN_UPDATE_S)

    def trigger(self, times_s: Iterable[float]) -> None:
        """Process trigger pulses in order of time."""
        for at_s in times_s:
            if self._triggers_each_sample:
                # A pulse during a sample is lost, and so is a pulse after the last sample.
                if at_s >= self._free_s - _ROUNDING_S and len(self._triggers) + self.n_recorded < self.plan.points:
                    self._triggers.append(at_s)
                    self._free_s = at_s + self.plan.averaging_s
            elif self._start_s is None:
                self._start_s = at_s

    def advance(self, now_s: float) -> bool:
        """Record the samples up to now. Return whether the measurement is complete."""
        if self.complete:
            return True
        self._updated_s = now_s
        middles_s = self._due_triggered_s(now_s) if self._triggers_each_sample else self._due_periodic_s(now_s)
        if len(middles_s) == 0:
            return False
        # By the index of a sample in the run: the meter assumes the sweep that was set.
        assumed_nm = (
            None if self._assumed_nm is None else self._assumed_nm[self.n_recorded : self.n_recorded + len(middles_s)]
        )
        for index, head in enumerate(self._heads):
            samples_w = head.samples(middles_s, self.plan.averaging_s, assumed_nm)
            if self.plan.function is RunFunction.MINMAX:
                self._update_minmax(index, samples_w)
            else:
                self._watts[index][self.n_recorded : self.n_recorded + len(samples_w)] = samples_w
        self.n_recorded += len(middles_s)
        return self.complete

    def _due_triggered_s(self, now_s: float) -> NDArray[np.float64]:
        half_s = 0.5 * self.plan.averaging_s
        due: list[float] = []
        while self._triggers and self._triggers[0] + self.plan.averaging_s <= now_s + _ROUNDING_S:
            due.append(self._triggers.popleft() + half_s)
        return np.array(due)

    def _due_periodic_s(self, now_s: float) -> NDArray[np.float64]:
        if self._start_s is None:
            return np.zeros(0)
        # The first sample ends one averaging time after the start, the others one period apart.
        n_ended = math.floor((now_s + _ROUNDING_S - self._start_s - self.plan.averaging_s) / self.plan.period_s) + 1
        if self.plan.function is not RunFunction.MINMAX:
            n_ended = min(n_ended, self.plan.points)
        elif n_ended - self.n_recorded > _MAX_SAMPLES_PER_UPDATE:
            self.n_recorded = n_ended - _MAX_SAMPLES_PER_UPDATE
        sample_numbers = np.arange(self.n_recorded, max(n_ended, self.n_recorded))
        return np.asarray(
            (self._start_s + 0.5 * self.plan.averaging_s) + sample_numbers * self.plan.period_s, dtype=np.float64
        )

    def _update_minmax(self, index: int, samples_w: NDArray[np.float64]) -> None:
        recent = np.concatenate((self._recent[index], samples_w))
        if self.plan.window == "CONTinuous":
            low, high = self._extremes[index]
            self._extremes[index] = min(low, float(samples_w.min())), max(high, float(samples_w.max()))
            recent = recent[-1:]
        elif self.plan.window == "WINDow":
            recent = recent[-self.plan.points :]
        else:
            # REFResh restarts after every window; only samples of the present window stay.
            n_recent = (self.n_recorded + len(samples_w) - 1) % self.plan.points + 1
            recent = recent[-n_recent:]
        self._recent[index] = recent

    def result_w(self, index: int) -> NDArray[np.float64]:
        """Return the result for one head in W: the samples, or minimum, maximum and present value."""
        if self.plan.function is not RunFunction.MINMAX:
            return self._watts[index][: self.n_recorded].astype(np.float64)
        recent = self._recent[index]
        if len(recent) == 0:
            return np.zeros(0)
        low, high = self._extremes[index]
        if self.plan.window != "CONTinuous":
            low, high = float(recent.min()), float(recent.max())
        return np.array([low, high, float(recent[-1])])
