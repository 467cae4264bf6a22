"""Computational work of fits, counted in predicted readings, so that limits are equal on every computer."""

from __future__ import annotations

import math
from dataclasses import dataclass

SLOPE_WORK = 8
"""Work per reading for the slope of the likelihood by all parameters."""
SCAN_WORK = 1
"""Work per reading and frequency of a frequency scan."""
CHOOSE_PAIRS_WORK, SCORE_PAIRS_WORK, UNFITTED_PAIRS_WORK, REWEIGHT_WORK = 0.08, 0.13, 0.017, 0.013
"""Factors of :func:`pairs_work`: choose pair combinations, score them, add the others to the errors, add them to the
weights.
"""
DRIFT_WORK = 8
"""Work per reading to determine the drift of every setting."""

RUN_WORK_72_PUCS = 1800
"""Work of a usual run on 72 PUCs, per random reading."""
RUN_WORK_CONSTANT, RUN_WORK_PER_DERIVATIVE = 1350.0, 9.0
"""Work of a usual run on larger meshes: a constant, plus a multiple of the work for derivatives."""
WORK_OUTSIDE_FITS = 300
"""Work of a run outside its fits, per reading."""
MAX_SEARCH_WORK = 1.25
"""Limit for phase searches before the first fit, as a multiple of a usual run."""
MAX_RUN_WORK = 4
"""Work limit of a run, as a multiple of a usual run."""
FIRST_FITS_SHARE = 0.6
"""Fraction of the work limit for the first fits."""
FINAL_SHARE = 0.15
"""Fraction of the work limit reserved for the end of a run."""
ADD_EFFECT_WORK, SCORE_EFFECTS_WORK = 7.0, 7.5
"""Work in units of one calculation of all derivatives.

First: add physical effects to a fit, or measure a batch and fit again. Second: score the other effects and calculate
the errors.
"""


def searched_work(n_pucs: int) -> float:
    """Return the work per reading of one step of the phase search."""
    return 2.5 + 0.05 * n_pucs


def derivatives_work(parameters: int) -> float:
    """Return the work per reading of derivatives by ``parameters`` parameters."""
    return 22.0 + 2.5e-5 * parameters**2


def pairs_work(heaters: int, waveguides: int, monitors: int, parameters: int) -> float:
    """Return the work per reading of one combination of pair crosstalk."""
    return heaters * waveguides / monitors + waveguides + 2.0 * parameters


def chosen_work(parameters: int) -> float:
    """Return the work per reading of choosing a setting."""
    return 90.0 + 3.9e-4 * parameters**2


def solution_work(parameters: int) -> float:
    """Return the work to solve the normal equations."""
    return 1.4e-5 * parameters**3


def usual_work(readings: int, parameters: int) -> float:
    """Return the work of a usual run."""
    return max(RUN_WORK_72_PUCS, RUN_WORK_CONSTANT + RUN_WORK_PER_DERIVATIVE * derivatives_work(parameters)) * float(
        readings
    )


@dataclass
class FitWork:
    """Counter of computational work, shared by all models of a run.

    Attributes:
        spent: Work so far, in predicted readings.
        allowed: Limit of the whole run.
        share: Fraction of ``allowed`` that may be used now.
    """

    spent: float = 0.0
    allowed: float = math.inf
    share: float = 1.0

    @classmethod
    def allowed_for(cls, readings: int, parameters: int) -> float:
        """Return the work limit of a run."""
        return MAX_RUN_WORK * usual_work(readings, parameters) - WORK_OUTSIDE_FITS * float(readings)

    def reaches(self, work: float) -> bool:
        """Return whether the limit allows the given work, with enough left for the end of the run."""
        return work <= self.remaining

    @property
    def remaining(self) -> float:
        """Work that may be done now, including the reserve for the end of the run."""
        return self.share * self.allowed - self.spent

    @property
    def is_used_up(self) -> bool:
        """Whether only the reserve for the end of the run is left."""
        return self.spent >= self.share * (1.0 - FINAL_SHARE) * self.allowed
