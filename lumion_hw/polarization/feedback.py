"""Search with an automatic polarization controller, which minimises a score (factor) on its own. No I/O.

The maker does not document how the controller uses the factor (docs/polarization.md). The search only assumes that
factors become smaller in the long run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_FACTOR = 100.0
_MIN_FACTOR = 1e-4
_COARSE_LEAD, _FINE_LEAD, _NEAR = 2.0, 1.02, 1.005
"""Ratios of a reference power to the brightest reading: at first, in the fine search, and for raising the reference.

Factors are calculated relative to the reference power.
"""
_DARKER = 0.9
"""Ratio of new to former lowest power that counts as an improvement (docs/polarization.md, "Three readings")."""
_FINE = (0.02, 80)
"""Near the maximum: improvement in dB worth waiting for, and number of readings without it after which to stop."""
# For a bright search whose result only scales the factors of a dark search.
_COARSE = (0.5, 24)
_LANDING_DB = {1.0: 0.02, -1.0: 1.0}  # by the sign of the search; decibels matter less in the dark
_LANDING_PATIENCE = 60
_RELAXING = 1.03  # per reading: a box may never return to its best, and the search must end
_DARK_ENOUGH = 1e-5
"""Leakage relative to the full power at which the search for darkness ends."""
_MAX_READS = 1000
_DARK_READS = 20  # the trial steps of a box find some light by then, if there is any
# Times the lowest negative reading, which shows how noisy a dark meter is.
_MIN_LIGHT_RATIO = 3.0


@dataclass(frozen=True)
class FeedbackStep:
    """The next action with an automatic polarization controller.

    Attributes:
        factor: Score of the present polarization, above 0 and at most 100; smaller is better.
        restart: Whether the controller must discard earlier factors and start again.
    """

    factor: float
    restart: bool


class FeedbackSearch:
    """One search by an automatic controller.

    Pass each reading to :meth:`next_step` and apply the result, until the result is ``None``.

    Args:
        sign: 1 for the brightest, −1 for the darkest.
        noise_db: Expected noise of a reading.
        full_power: Approximate full power, for a search for the darkest.
        coarse: Whether to find only roughly the brightest light.
    """

    def __init__(self, *, sign: float, noise_db: float, full_power: float = 0.0, coarse: bool = False) -> None:
        self._sign = sign
        self._noise = 10.0 ** (2.0 * noise_db / 10.0)
        self._powers: list[float] = []
        self._best = math.nan
        self._previous_best = math.nan
        self._improved_at = 0
        self._landing_since: int | None = None
        # The coarse search before ends when improvements of 0.5 dB (12 %) no longer come, so some light may be missing.
        self._reference = 1.2 * full_power
        self._coarse_only = coarse
        self._lead = _COARSE_LEAD
        self._brighter_db, self._patience = _COARSE if sign > 0.0 else _FINE

    @property
    def powers(self) -> tuple[float, ...]:
        """All power readings of the search so far, in order."""
        return tuple(self._powers)

    @property
    def has_light(self) -> bool:
        """Whether there is light: a reading well above 0 and above the noise."""
        return max(self._powers) > _MIN_LIGHT_RATIO * max(-min(self._powers), 0.0) and max(self._powers) > 0.0

    def next_step(self, power: float) -> FeedbackStep | None:
        """Return the next action for the power at the present polarization, in any linear unit; ``None`` to stop."""
        self._powers.append(power)
        self._remember_best(power)
        n_reads = len(self._powers)
        if n_reads >= _MAX_READS or (n_reads >= _DARK_READS and not self.has_light):
            return None
        if self._sign < 0.0 and power <= _DARK_ENOUGH * self._reference:
            return None
        # No improvement for a while: refine once, then wait for a step of the box that is about as good as the best.
        if self._landing_since is None and n_reads - self._improved_at > self._patience:
            if self._sign > 0.0 and self._lead == _COARSE_LEAD and not self._coarse_only:
                return self._start_fine_search()
            self._landing_since = n_reads
        if self._landing_since is not None and self._is_good_enough(power, n_reads - self._landing_since):
            return None
        return self._step(power)

    def _remember_best(self, power: float) -> None:
        if math.isnan(self._best):
            self._best = self._previous_best = power
        self._best = max(self._best, power) if self._sign > 0.0 else min(self._best, power)
        if self._sign > 0.0:
            improved = self._best > self._previous_best * self._noise * 10.0 ** (self._brighter_db / 10.0)
        else:
            improved = self._best < self._previous_best * _DARKER / self._noise
        if improved:
            self._previous_best = self._best
            self._improved_at = len(self._powers)
            self._landing_since = None

    def _is_good_enough(self, power: float, n_waited: int) -> bool:
        slack = self._noise * 10.0 ** (_LANDING_DB[self._sign] / 10.0)
        slack *= _RELAXING ** max(n_waited - _LANDING_PATIENCE, 0)
        return bool(power * slack >= self._best if self._sign > 0.0 else power <= self._best * slack)

    def _start_fine_search(self) -> FeedbackStep:
        self._lead = _FINE_LEAD
        self._brighter_db, self._patience = _FINE
        self._improved_at = len(self._powers)
        self._reference = self._lead * self._best
        return FeedbackStep(self._factor(self._powers[-1]), restart=True)

    def _step(self, power: float) -> FeedbackStep:
        # Above the reference the factor would be negative, which the box does not accept.
        restart = power * _NEAR > self._reference
        if restart:
            self._reference = self._lead * power
        return FeedbackStep(self._factor(power), restart and len(self._powers) > 1)

    def _factor(self, power: float) -> float:
        share = max(power, 0.0) / self._reference if self._reference > 0.0 else 0.0
        # The box rejects a factor of 0.
        return max(MAX_FACTOR * (1.0 - share if self._sign > 0.0 else share), _MIN_FACTOR)


def remaining_loss_db(power: float, brightest: float, sign: float) -> float:
    """Return the light in dB that may be missing at the wanted port."""
    if not power > 0.0:
        return 0.0
    if sign > 0.0:
        return max(10.0 * math.log10(brightest / power), 0.0)
    return -10.0 * math.log10(1.0 - min(power / brightest, 0.999))
