"""How much work fits have done: counted in readings evaluated, so that a run is bounded alike on every machine.

One unit is some 7 µs here. Parameters beyond those of every chip make derivatives dearer: the information of a reading
is a product of all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SLOPES, DERIVATIVES = 2, 5
"""What slopes by all parameters, and derivatives of every reading, cost against predicting the reading."""

PAIRS = 100
"""What choosing directions of pairs costs for each reading that is looked at."""

USUAL = 500
"""What the fits of an undisturbed run cost, per reading of its random settings (docs/performance.md)."""
MOST = 3
"""As many times that may be spent, whatever the chip."""


def derivatives_work(parameters: int, plain: int) -> float:
    """Return what derivatives of a reading by so many parameters cost, ``plain`` of them of the model of every chip."""
    # The light takes as long as two predictions, the product for a thousand parameters as long as three.
    by_light, by_product = 2.0, 3e-6
    grown = (by_light + by_product * parameters**2) / (by_light + by_product * plain**2)
    return DERIVATIVES * grown


@dataclass
class FitWork:
    """A count of readings evaluated, shared by all models of a run.

    Attributes:
        spent: Readings predicted so far; with slopes or derivatives they count for more.
        allowed: Beyond this nothing new is tried.
    """

    spent: int = 0
    allowed: float = math.inf

    @property
    def is_used_up(self) -> bool:
        """Whether nothing more may be tried."""
        return self.spent >= self.allowed
