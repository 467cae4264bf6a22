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
_SURE = 0.97
_FORESEEN = 0.01
"""Where all members predict the same power to this part, a reading tells nothing about which of them is right."""
_ANYWHERE = 64


@dataclass(frozen=True)
class AlignmentJudgement:
    """What is known of a setting.

    Attributes:
        remaining_loss_db: Light that may be missing at the wanted port, in 97 of 100 explanations no more.
        enough: No better setting is worth a reading.
        floor_power: Least power that any setting reaches, the median of the explanations.
    """

    remaining_loss_db: float
    enough: bool
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
        candidates = np.vstack([best, self._anywhere()])
        powers = ensemble.powers(candidates)
        extreme = np.diagonal(powers)
        short = self._short(powers[:, : len(best)], extreme)
        favourite = int(np.argmin(short.mean(axis=0)))
        promised = powers[:, favourite]
        foreseen = promised.std() < _FORESEEN * promised.mean()
        worth_it = not foreseen or self._is_enough(short[:, favourite], extreme)
        if last or (worth_it and ensemble.n_readings >= ensemble.n_unknowns - 1):
            return np.asarray(best[favourite])
        telling = powers.std(axis=0) / np.sqrt(powers.mean(axis=0))
        return np.asarray(candidates[int(np.argmax(telling))])

    def judge(self, present: NDArray[np.float64]) -> AlignmentJudgement:
        """Judge the present setting."""
        powers = self._ensemble.powers(np.vstack([present, self._extremes(present)]))
        extreme = np.diagonal(powers[:, 1:])
        short = self._short(powers[:, :1], extreme)[:, 0]
        worst = _upper(short)
        loss_db = worst if self._sign > 0.0 else -10.0 * float(np.log10(1.0 - min(worst, 0.999)))
        floor = np.median(self._ensemble.p0 * self._ensemble.crosstalk) if self._sign > 0.0 else np.median(extreme)
        return AlignmentJudgement(loss_db, self._is_enough(short, extreme), float(floor))

    def _extremes(self, present: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._ensemble.extremes(present, self._low, self._high, sign=self._sign)

    def _anywhere(self) -> NDArray[np.float64]:
        """Return settings within a turn about the middle of the range."""
        middle, reach = 0.5 * (self._low + self._high), np.minimum(0.5 * (self._high - self._low), np.pi)
        return middle + reach * self._rng.uniform(-1.0, 1.0, (_ANYWHERE, len(middle)))

    def _short(self, powers: NDArray[np.float64], extreme: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return by how much settings miss each member's extreme: in dB below it, or leaking above it over P0.

        Args:
            powers: Shape ``(K, C)``.
            extreme: Shape ``(K,)``.
        """
        if self._sign > 0.0:
            short = 10.0 * np.log10(extreme[:, None] / np.maximum(powers, 1e-9 * extreme[:, None]))
        else:
            short = (powers - extreme[:, None]) / self._ensemble.p0[:, None]
        return np.asarray(np.maximum(short, 0.0))

    def _is_enough(self, short: NDArray[np.float64], extreme: NDArray[np.float64]) -> bool:
        """Return whether what is missing at a setting, shape ``(K,)``, is worth no reading."""
        if self._sign > 0.0:
            return _upper(short) <= ENOUGH_LOSS_DB
        return _upper(short - ENOUGH_OF_FLOOR * extreme / self._ensemble.p0) <= ENOUGH_LEAK


def _upper(values: NDArray[np.float64]) -> float:
    """Return the value that 97 of 100 members do not exceed."""
    return float(np.sort(values)[int(_SURE * len(values))])
