"""Where to read next, and when enough is known: decisions on an ensemble of explanations of the readings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.polarization.state_fit import LightEnsemble

ENOUGH_LOSS_DB = 0.03
"""A search for the brightest may stop when no more than this is missing in 97 of 100 explanations."""
ENOUGH_LEAK = 1e-5
"""A search for the darkest may stop when no more of all light than this could still be taken away, …"""
ENOUGH_OF_FLOOR = 0.1
"""… or no more than this part of the crosstalk that no setting takes away."""
_CONFIDENCE = 0.97
_PREDICTABLE = 0.01
"""Where all members predict the same power to this part, a reading tells nothing about which of them is right."""
_RANDOM_CANDIDATES = 64
_AGREED = 0.03
"""Of all light: explanations that differ by less over the whole range are one and the same. Readings along one squeezer
after the other, each from the brightest place of the last, leave several that agree there and nowhere else."""


@dataclass(frozen=True)
class AlignmentJudgement:
    """What is known of a setting.

    Attributes:
        remaining_loss_db: Light that may be missing at the wanted port, in 97 of 100 explanations no more.
        enough: No better setting is worth a reading.
        floor_power: Least power that any setting reaches, the median of the explanations.
    """

    remaining_loss_db: float
    is_sufficient: bool
    floor_power: float


class ModelStrategy:
    """Decisions of one search; all settings are drive phases in rad.

    Args:
        ensemble: What is known of the light.
        low: Least phases, shape ``(N,)``; equal to the largest for a squeezer that stays.
        high: Largest phases.
        sign: 1 when the brightest is wanted, −1 for the darkest.
        rng: Draws candidates.
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
        """Return where to read: at the best setting, or if that tells nothing new, where the members differ most.

        Args:
            present: Phases in force, shape ``(N,)``.
            last: No reading follows, so that only the best will do.
        """
        ensemble = self._ensemble
        best = self._extremes(present)
        # Every member proposes its own extreme; random ones beside them, for the members may differ most elsewhere.
        candidates = np.vstack([best, self._random_phases()])
        powers = ensemble.powers(candidates)
        extreme = np.diagonal(powers)
        shortfall = self._shortfall(powers[:, : len(best)], extreme)
        # Best on the average over all explanations: with few readings the extreme of the likeliest one is luck.
        favoured = int(np.argmin(shortfall.mean(axis=0)))
        promised = powers[:, favoured]
        predictable = promised.std() < _PREDICTABLE * promised.mean()
        worth_it = not predictable or self._is_enough(shortfall[:, favoured], extreme)
        if last or (worth_it and ensemble.n_readings >= ensemble.n_unknowns - 1):
            return np.asarray(best[favoured])
        return np.asarray(candidates[_most_telling(powers)])

    def is_determined(self) -> bool:
        """Return whether all explanations predict the same powers everywhere, not only at the best setting."""
        powers = self._ensemble.powers(self._random_phases()) / self._ensemble.p0.mean()
        return float(np.sqrt(powers.var(axis=0).mean())) <= _AGREED

    def most_informative_phases(self) -> NDArray[np.float64]:
        """Return where a reading tells most about which explanation is right."""
        candidates = self._random_phases()
        powers = self._ensemble.powers(candidates)
        return np.asarray(candidates[_most_telling(powers)])

    def judge(self, present: NDArray[np.float64]) -> AlignmentJudgement:
        """Judge the present setting."""
        powers = self._ensemble.powers(np.vstack([present, self._extremes(present)]))
        extreme = np.diagonal(powers[:, 1:])
        shortfall = self._shortfall(powers[:, :1], extreme)[:, 0]
        worst = _bound(shortfall)
        loss_db = worst if self._sign > 0.0 else -10.0 * float(np.log10(1.0 - min(worst, 0.999)))
        # At the brightest nothing was read in the dark: only the crosstalk of the explanations says where the floor is.
        floor = np.median(self._ensemble.p0 * self._ensemble.crosstalk) if self._sign > 0.0 else np.median(extreme)
        return AlignmentJudgement(loss_db, self._is_enough(shortfall, extreme), float(floor))

    def _extremes(self, present: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._ensemble.extremes(present, self._low, self._high, sign=self._sign)

    def _random_phases(self) -> NDArray[np.float64]:
        """Return settings within a turn about the middle of the range."""
        middle, reach = 0.5 * (self._low + self._high), np.minimum(0.5 * (self._high - self._low), np.pi)
        return middle + reach * self._rng.uniform(-1.0, 1.0, (_RANDOM_CANDIDATES, len(middle)))

    def _shortfall(self, powers: NDArray[np.float64], extreme: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return by how much settings miss each member's extreme: in dB below it, or leaking above it over P0.

        Args:
            powers: Shape ``(K, C)``.
            extreme: Shape ``(K,)``.
        """
        if self._sign > 0.0:
            shortfall = 10.0 * np.log10(extreme[:, None] / np.maximum(powers, 1e-9 * extreme[:, None]))
        else:
            shortfall = (powers - extreme[:, None]) / self._ensemble.p0[:, None]
        return np.asarray(np.maximum(shortfall, 0.0))

    def _is_enough(self, shortfall: NDArray[np.float64], extreme: NDArray[np.float64]) -> bool:
        """Return whether what is missing at a setting, shape ``(K,)``, is worth no reading."""
        if self._sign > 0.0:
            return _bound(shortfall) <= ENOUGH_LOSS_DB
        # What crosstalk leaves cannot be taken away: a tenth of it more is not worth a reading.
        return _bound(shortfall - ENOUGH_OF_FLOOR * extreme / self._ensemble.p0) <= ENOUGH_LEAK


def _most_telling(powers: NDArray[np.float64]) -> int:
    """Return the candidate at which members differ most, of powers ``(K, C)``."""
    # Noise grows with the power, so a spread between the members counts for more where it is dark.
    return int(np.argmax(powers.std(axis=0) / np.sqrt(powers.mean(axis=0))))


def _bound(values: NDArray[np.float64]) -> float:
    """Return the value that 97 of 100 members do not exceed."""
    return float(np.sort(values)[int(_CONFIDENCE * len(values))])
