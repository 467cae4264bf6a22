"""Decisions of a polarization search: where to read next, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.polarization.state_fit import LightEnsemble

ACCEPTED_LOSS_DB = 0.03
"""Remaining loss, according to 97 of 100 fitted models, at which a search for the brightest stops."""
ACCEPTED_LEAK = 1e-5
"""Removable light, as a fraction of the total power, at which a search for the darkest stops."""
ACCEPTED_FLOOR_FRACTION = 0.1
"""Removable light, as a fraction of the crosstalk, at which a search for the darkest stops."""
_CONFIDENCE = 0.97
_PREDICTABLE = 0.01
"""If all fitted models predict the same power within this fraction, a reading is not informative."""
_RANDOM_CANDIDATES = 64
_AGREED = 0.03
"""Largest difference in power, relative to the total power, of fitted models that count as equal."""


@dataclass(frozen=True)
class AlignmentJudgement:
    """Quality of a setting of the polarization controller.

    Attributes:
        remaining_loss_db: Upper limit of the missing light at the wanted port, according to 97 of 100 fitted models.
        is_sufficient: Whether the setting is good enough to end the search.
        floor_power: Lowest power that any setting reaches; the median of the fitted models.
    """

    remaining_loss_db: float
    is_sufficient: bool
    floor_power: float


class ModelStrategy:
    """Decisions of one polarization search. Settings are squeezer phases in rad.

    Args:
        ensemble: Fitted models of the light.
        low: Lowest phases, shape ``(N,)``; equal to ``high`` for a squeezer that must stay.
        high: Highest phases, shape ``(N,)``.
        sign: 1 for the brightest, −1 for the darkest.
        rng: Random number generator.
    """

    def __init__(
        self,
        ensemble: LightEnsemble,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        sign: float,
        rng: np.random.Generator,
    ) -> None:
        self._ensemble = ensemble
        self._low = low
        self._high = high
        self._sign = sign
        self._rng = rng

    def next(self, present: NDArray[np.float64], *, last: bool = False) -> NDArray[np.float64]:
        """Return the phases for the next reading: the best setting, or where the fitted models differ most.

        Args:
            present: Present phases, shape ``(N,)``.
            last: Whether this is the last reading; the result is then the best setting.
        """
        ensemble = self._ensemble
        best = self._extremes(present)
        # Every member proposes its own extreme; random candidates are added, as members may differ most elsewhere.
        candidates = np.vstack([best, self._random_phases()])
        powers = ensemble.powers(candidates)
        extreme = np.diagonal(powers)
        shortfall = self._shortfall(powers[:, : len(best)], extreme)
        # Best on average over all explanations: with few readings, the extreme of the likeliest one is chance.
        favoured = int(np.argmin(shortfall.mean(axis=0)))
        promised = powers[:, favoured]
        predictable = promised.std() < _PREDICTABLE * promised.mean()
        is_useful = not predictable or self._is_good_enough(shortfall[:, favoured], extreme)
        # With fewer readings the best setting is still a guess, and a reading elsewhere teaches more.
        if last or (is_useful and ensemble.n_readings >= ensemble.n_unknowns - 1):
            return np.asarray(best[favoured])
        return np.asarray(candidates[_best_measurement(powers)])

    def is_determined(self) -> bool:
        """Return whether all fitted models predict the same powers everywhere."""
        powers = self._ensemble.powers(self._random_phases()) / self._ensemble.p0.mean()
        return float(np.sqrt(powers.var(axis=0).mean())) <= _AGREED

    def best_measurement_phases(self) -> NDArray[np.float64]:
        """Return the phases where a reading best distinguishes between the fitted models."""
        candidates = self._random_phases()
        powers = self._ensemble.powers(candidates)
        return np.asarray(candidates[_best_measurement(powers)])

    def assess(self, present: NDArray[np.float64]) -> AlignmentJudgement:
        """Return the quality of the present phases."""
        powers = self._ensemble.powers(np.vstack([present, self._extremes(present)]))
        extreme = np.diagonal(powers[:, 1:])
        shortfall = self._shortfall(powers[:, :1], extreme)[:, 0]
        worst = _bound(shortfall)
        loss_db = worst if self._sign > 0.0 else -10.0 * float(np.log10(1.0 - min(worst, 0.999)))
        # Near the brightest there are no dark readings, so only the crosstalk of the explanations gives the floor.
        floor = np.median(self._ensemble.p0 * self._ensemble.crosstalk) if self._sign > 0.0 else np.median(extreme)
        return AlignmentJudgement(loss_db, self._is_good_enough(shortfall, extreme), float(floor))

    def _extremes(self, present: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._ensemble.extremes(present, self._low, self._high, sign=self._sign)

    def _random_phases(self) -> NDArray[np.float64]:
        middle, reach = 0.5 * (self._low + self._high), np.minimum(0.5 * (self._high - self._low), np.pi)
        return middle + reach * self._rng.uniform(-1.0, 1.0, (_RANDOM_CANDIDATES, len(middle)))

    def _shortfall(self, powers: NDArray[np.float64], extreme: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._sign > 0.0:
            shortfall = 10.0 * np.log10(extreme[:, None] / np.maximum(powers, 1e-9 * extreme[:, None]))
        else:
            shortfall = (powers - extreme[:, None]) / self._ensemble.p0[:, None]
        return np.asarray(np.maximum(shortfall, 0.0))

    def _is_good_enough(self, shortfall: NDArray[np.float64], extreme: NDArray[np.float64]) -> bool:
        if self._sign > 0.0:
            return _bound(shortfall) <= ACCEPTED_LOSS_DB
        # Crosstalk cannot be removed, so a tenth of it more is not worth a reading.
        return _bound(shortfall - ACCEPTED_FLOOR_FRACTION * extreme / self._ensemble.p0) <= ACCEPTED_LEAK


def _best_measurement(powers: NDArray[np.float64]) -> int:
    # Noise grows with the power, so a spread between members counts more where it is dark.
    return int(np.argmax(powers.std(axis=0) / np.sqrt(powers.mean(axis=0))))


def _bound(values: NDArray[np.float64]) -> float:
    return float(np.sort(values)[int(_CONFIDENCE * len(values))])
