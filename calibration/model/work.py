"""How much work fits have done: counted in readings predicted, so that a run is bounded alike on every machine.

One unit is some 1 µs here. The costs below were measured on 72 PUCs (docs/performance.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SLOPES = 8
"""What the slope of the likelihood by all parameters costs for each reading."""
SCANNED = 1
"""What a reading costs for every frequency at which a source is looked at in the phase search."""
DIRECTIONS, SCORED, BESIDE, WEIGHED = 0.08, 0.13, 0.017, 0.013
"""What pairs cost by :func:`pairs_work`: choosing directions, a score of those chosen, pairs beside them in
errors, and in the weights of readings."""
DRIFTED = 8
"""What a reading costs where power and phase of every setting are asked, beside its predictions."""

USUAL = 1800
"""What a whole undisturbed run costs on 72 PUCs, verification and all, per reading of its random settings."""
USUAL_ANYWAY, USUAL_DERIVATIVES = 1350.0, 9.0
"""The same on larger meshes: anyway, and as many times the derivatives by its parameters (on 265 PUCs 4,200 in all)."""
OTHERWISE = 300
"""What a run costs beside its fits."""
MOST_SEARCHED = 1.25
"""As many times of it searches for the phases may cost before the first fit: with more, no work is left for that."""
MOST = 3
"""As many times of an undisturbed run a run may cost, whatever the chip."""
EXPLANATIONS = 0.6
"""Share of what fits may cost after which no cause is looked for but the last; with the rest a run measures on."""
ENDING = 0.15
"""Share of it that a run needs whose work is used up: a fit that explains its readings ends, and errors are stated."""
TAKEN_IN, MEASURED_ON = 7.0, 7.5
"""As many times the derivatives of all readings, those of the batch among them, it takes to take something into a fit
that explains them, or to measure a batch and fit again; and to look at the rest once more and state errors."""


def searched_work(n_pucs: int) -> float:
    """Return what a reading costs in a step of the phase search."""
    return 2.5 + 0.05 * n_pucs


def derivatives_work(parameters: int) -> float:
    """Return what derivatives of a reading by so many parameters cost: the light, and the product of all of them."""
    return 22.0 + 2.5e-5 * parameters**2


def pairs_work(heaters: int, waveguides: int, monitors: int, parameters: int) -> float:
    """Return the products that one direction of pairs takes for a reading, with so many parameters fitted beside it."""
    return heaters * waveguides / monitors + waveguides + 2.0 * parameters


def chosen_work(parameters: int) -> float:
    """Return what choosing a setting by what it tells of so many parameters costs for each of its readings."""
    return 90.0 + 3.9e-4 * parameters**2


def solution_work(parameters: int) -> float:
    """Return what solving the equations of so many parameters costs."""
    return 1.4e-5 * parameters**3


def usual_work(readings: int, parameters: int) -> float:
    """Return what an undisturbed run costs with so many readings of random settings and parameters of every chip."""
    return max(USUAL, USUAL_ANYWAY + USUAL_DERIVATIVES * derivatives_work(parameters)) * float(readings)


@dataclass
class FitWork:
    """A count of readings evaluated, shared by all models of a run.

    Attributes:
        spent: Readings predicted so far; whatever costs more counts for more.
        allowed: What may be spent, the end of the run with it.
        share: Share of it that may be spent now.
    """

    spent: float = 0.0
    allowed: float = math.inf
    share: float = 1.0

    @classmethod
    def allowed_for(cls, readings: int, parameters: int) -> float:
        """Return what fits may cost with so many readings of random settings and parameters of every chip."""
        return MOST * usual_work(readings, parameters) - OTHERWISE * float(readings)

    def reaches(self, work: float) -> bool:
        """Return whether so much more may be spent now, the end of the run with it."""
        return work <= self.left

    @property
    def left(self) -> float:
        """What may still be spent now, the end of the run with it."""
        return self.share * self.allowed - self.spent

    @property
    def is_used_up(self) -> bool:
        """Whether nothing more may be tried, so that what is left reaches for the end of the run."""
        return self.spent >= self.share * (1.0 - ENDING) * self.allowed
