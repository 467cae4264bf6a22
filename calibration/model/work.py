"""How much work fits have done: counted in readings evaluated, so that a run is bounded alike on every machine."""

from __future__ import annotations

import math
from dataclasses import dataclass

SLOPES, DERIVATIVES = 2, 5
"""What slopes by all parameters, and derivatives of every reading, cost against predicting the reading."""

USUAL = 500
"""What the fits of an undisturbed run cost, per reading of its random settings (docs/performance.md)."""
MOST = 3
"""As many times that may be spent, whatever the chip."""


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
