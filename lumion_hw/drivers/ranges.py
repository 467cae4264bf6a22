"""Settings compared with their ranges: refused, never clipped."""

from __future__ import annotations

import math

from lumion_hw.errors import LimitError
from lumion_hw.sessions.conversation import Conversation

_SLACK = 1e-9  # a limit in THz converted to nm and back


def check_range(
    what: str, value: float, low_high: tuple[float, float] | None, unit: str, session: Conversation
) -> None:
    """Compare a value with its range; without one, only see that it is a number.

    Raises:
        LimitError: Outside, or not finite; nothing was changed.
    """
    low, high = low_high or (-math.inf, math.inf)
    if math.isfinite(value) and low - _SLACK * abs(low) <= value <= high + _SLACK * abs(high):
        return
    raise LimitError(
        what,
        asked=value,
        limit=low if value < low else high,
        unit=unit,
        device=session.device,
        address=session.address,
        hint=f"It goes from {low:.9g} to {high:.9g} {unit}. Nothing was changed.",
    )
