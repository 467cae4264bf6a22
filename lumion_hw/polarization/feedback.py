"""The search with a box that improves by itself: power in, factor out, and when enough is enough. No I/O.

What the box does with a factor its maker keeps to himself (docs/polarization.md). So nothing is assumed here but that
its steps lead to smaller factors in the long run, and that it tries things on the way: the end is not the last step,
but a step at which the power is as good as it has ever been.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LARGEST_FACTOR = 100.0
_LEAST_FACTOR = 1e-4
_FAR_AHEAD, _JUST_AHEAD, _NEAR = 2.0, 1.02, 1.005
"""The reference stays above every power: when one comes near, it is raised, and the box begins anew. First far above,
so that this happens seldom; then, for the steps of a box may be as large as its factor, just above the brightest."""
_DARKER = 0.9
"""An improvement worth waiting for (docs/polarization.md, "Three readings")."""
_FINE = (0.02, 80)
"""Improvement in dB worth waiting for at the bright end, and readings without one after which none is expected: a box
that tries six plates, twice each, has gone round them six times."""
_COARSE = (0.5, 24)
_LANDING_DB = {1.0: 0.02, -1.0: 1.0}  # by the sign of the search; in the dark decibels are cheap
_LANDING_PATIENCE = 60
_RELAXING = 1.03  # per reading: a box may never come back to its best, and the search has to end
_DARK_ENOUGH = 1e-5
"""Of the full power: a leak that no longer counts."""
_MOST_READS = 1000
_DARK_READS = 20  # a box that tries things meets some light by then, if there is any
_LIT = 3.0


@dataclass(frozen=True)
class FeedbackStep:
    """What to do with the box next.

    Attributes:
        factor: What the present polarization is worth, above 0 and at most 100, smaller being better.
        anew: Factors mean something else from here on: begin anew, so that none is compared with those of before.
    """

    factor: float
    restart: bool


class FeedbackSearch:
    """One search: tell it each power, and do with the box what it says, until it says nothing.

    Args:
        sign: 1 for the brightest, −1 for the darkest.
        noise_db: Noise of a reading, as expected.
        full_power: About the most that there is, which the darkest is seen against: the factors of a box have to be
            scaled by what they are at the most.
        coarse: Only find bright light.
    """

    def __init__(self, *, sign: float, noise_db: float, full_power: float = 0.0, coarse: bool = False) -> None:
        self._sign = sign
        self._noise = 10.0 ** (2.0 * noise_db / 10.0)
        self._powers: list[float] = []
        self._best = math.nan
        self._best_of_before = math.nan
        self._improved_at = 0
        self._landing_since: int | None = None
        self._reference = 1.2 * full_power
        self._coarse_only = coarse
        self._ahead = _FAR_AHEAD
        self._brighter_db, self._patience = _COARSE if sign > 0.0 else _FINE

    @property
    def powers(self) -> tuple[float, ...]:
        """All readings so far, in their order."""
        return tuple(self._powers)

    @property
    def has_light(self) -> bool:
        """Whether there is light: a reading well above 0, and above what the noise of a meter puts below 0."""
        return max(self._powers) > _LIT * max(-min(self._powers), 0.0) and max(self._powers) > 0.0

    def next_step(self, power: float) -> FeedbackStep | None:
        """Take in the power at the present polarization, in any linear unit; ``None`` means to stop at it."""
        self._powers.append(power)
        self._note(power)
        n_reads = len(self._powers)
        if n_reads >= _MOST_READS or (n_reads >= _DARK_READS and not self.has_light):
            return None
        if self._sign < 0.0 and power <= _DARK_ENOUGH * self._reference:
            return None
        if self._landing_since is None and n_reads - self._improved_at > self._patience:
            if self._sign > 0.0 and self._ahead == _FAR_AHEAD and not self._coarse_only:
                return self._look_closely()
            self._landing_since = n_reads
        if self._landing_since is not None and self._is_good(power, n_reads - self._landing_since):
            return None
        return self._step(power)

    def _note(self, power: float) -> None:
        """Remember the best power, and when it last was better than before by more than noise."""
        if math.isnan(self._best):
            self._best = self._best_of_before = power
        self._best = max(self._best, power) if self._sign > 0.0 else min(self._best, power)
        if self._sign > 0.0:
            improved = self._best > self._best_of_before * self._noise * 10.0 ** (self._brighter_db / 10.0)
        else:
            improved = self._best < self._best_of_before * _DARKER / self._noise
        if improved:
            self._best_of_before = self._best
            self._improved_at = len(self._powers)
            self._landing_since = None

    def _is_good(self, power: float, n_waited: int) -> bool:
        """Return whether to stop here: as good as the best, or, after long waiting, not much worse."""
        slack = self._noise * 10.0 ** (_LANDING_DB[self._sign] / 10.0)
        slack *= _RELAXING ** max(n_waited - _LANDING_PATIENCE, 0)
        return bool(power * slack >= self._best if self._sign > 0.0 else power <= self._best * slack)

    def _look_closely(self) -> FeedbackStep:
        """Let small factors stand for bright light, and wait longer for less."""
        self._ahead = _JUST_AHEAD
        self._brighter_db, self._patience = _FINE
        self._improved_at = len(self._powers)
        self._reference = self._ahead * self._best
        return FeedbackStep(self._factor(self._powers[-1]), restart=True)

    def _step(self, power: float) -> FeedbackStep:
        # Above the reference the factor would be negative, which the box does not take.
        restart = power * _NEAR > self._reference
        if restart:
            self._reference = self._ahead * power
        return FeedbackStep(self._factor(power), restart and len(self._powers) > 1)

    def _factor(self, power: float) -> float:
        share = max(power, 0.0) / self._reference if self._reference > 0.0 else 0.0
        # A factor of 0 is refused by the box: it has to stay positive.
        return max(LARGEST_FACTOR * (1.0 - share if self._sign > 0.0 else share), _LEAST_FACTOR)


def remaining_loss_db(power: float, brightest: float, sign: float) -> float:
    """Return how much light may be missing at the wanted port: next to the brightest, or what still leaks."""
    if not power > 0.0:
        return 0.0
    if sign > 0.0:
        return max(10.0 * math.log10(brightest / power), 0.0)
    return -10.0 * math.log10(1.0 - min(power / brightest, 0.999))
