"""Computational work of fits, counted in predicted readings, so that a run has the same limits on every machine.

One unit is about 1 µs on our machine. The costs below were measured on 72 PUCs (docs/performance.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SLOPES = 8
"""Work per reading for the slope of the likelihood by all parameters."""
SCANNED = 1
"""Work per reading and frequency in the frequency scan of the phase search."""
DIRECTIONS, SCORED, BESIDE, WEIGHED = 0.08, 0.13, 0.017, 0.013
"""Factors of :func:`pairs_work` for the parts of fitting pair crosstalk: choose combinations of pairs, score them, add
unfitted pairs to the errors, and add unfitted pairs to the reading weights."""
DRIFTED = 8
"""Work per reading to determine the drift of power and phase of every setting, in addition to predictions."""

USUAL = 1800
"""Work of a whole undisturbed run on 72 PUCs, verification included, per reading of its random settings."""
USUAL_ANYWAY, USUAL_DERIVATIVES = 1350.0, 9.0
"""Work of an undisturbed run on larger meshes: a constant plus a multiple of the work for derivatives (4,200 in total
for 265 PUCs)."""
OTHERWISE = 300
"""Work of a run outside its fits, per reading."""
MAX_SEARCH_WORK = 1.25
"""Limit for phase searches before the first fit, as a multiple of an undisturbed run; more would leave no work for the
fit.
"""
MOST = 3
"""Work limit of any run, as a multiple of the work of an undisturbed run."""
EXPLANATIONS = 0.6
"""Fraction of the work limit for the first fits; only the last cause tested may use more (up to the whole limit)."""
ENDING = 0.15
"""Share of the work limit reserved for the end of a run: to finish the fit and to calculate its errors."""
TAKEN_IN, MEASURED_ON = 7.0, 7.5
"""Work in units of one pass of derivatives over all readings. First value: add physical effects to a fit that explains
its readings, or measure a batch and fit again. Second: score the other effects and calculate errors."""


def searched_work(n_pucs: int) -> float:
    """Return the computational work per reading for one step of the phase search."""
    return 2.5 + 0.05 * n_pucs


def derivatives_work(parameters: int) -> float:
    """Return the computational work per reading for the derivatives by ``parameters`` parameters."""
    return 22.0 + 2.5e-5 * parameters**2


def pairs_work(heaters: int, waveguides: int, monitors: int, parameters: int) -> float:
    """Return the computational work per reading for one direction of pair crosstalk."""
    return heaters * waveguides / monitors + waveguides + 2.0 * parameters


def chosen_work(parameters: int) -> float:
    """Return the work per reading of choosing a setting by its information about ``parameters`` parameters."""
    return 90.0 + 3.9e-4 * parameters**2


def solution_work(parameters: int) -> float:
    """Return the computational work to solve the normal equations of a number of parameters."""
    return 1.4e-5 * parameters**3


def usual_work(readings: int, parameters: int) -> float:
    """Return the work of a run without complications, given its numbers of random readings and parameters."""
    return max(USUAL, USUAL_ANYWAY + USUAL_DERIVATIVES * derivatives_work(parameters)) * float(readings)


@dataclass
class FitWork:
    """Counter of computational work, in predicted readings, shared by all models of a run.

    Attributes:
        spent: Work so far, in predicted readings; expensive operations count as several.
        allowed: Total limit, including the end of the run.
        share: Fraction of ``allowed`` that may be used now.
    """

    spent: float = 0.0
    allowed: float = math.inf
    share: float = 1.0

    @classmethod
    def allowed_for(cls, readings: int, parameters: int) -> float:
        """Return the work limit of a run, given its numbers of random readings and basic parameters."""
        return MOST * usual_work(readings, parameters) - OTHERWISE * float(readings)

    def reaches(self, work: float) -> bool:
        """Return whether the work limit allows the given work and still leaves enough for the end of the run."""
        return work <= self.left

    @property
    def left(self) -> float:
        """Work that may still be done now, including the reserve for the end of the run."""
        return self.share * self.allowed - self.spent

    @property
    def is_used_up(self) -> bool:
        """Whether the only work left is the reserve for the end of the run."""
        return self.spent >= self.share * (1.0 - ENDING) * self.allowed
