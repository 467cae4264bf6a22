"""Settings compared with their ranges: refused, never clipped."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import BadValueError, ConfigError, LimitError
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
    raise session.error(
        LimitError,
        what,
        requested=value,
        limit=low if value < low else high,
        unit=unit,
        hint=f"It goes from {low:.9g} to {high:.9g} {unit}. Nothing was changed.",
    )


def check_fault_id(fault_id: object, device: str, address: str) -> None:
    """Refuse a fault id that is not a whole number: ``True`` would clear fault 1.

    Raises:
        BadValueError: The id is of another type; nothing was cleared.
    """
    if isinstance(fault_id, bool) or not isinstance(fault_id, (int, np.integer)):
        raise BadValueError(
            f"{fault_id!r} is not the id of a fault",
            device=device,
            address=address,
            hint="Ids are whole numbers; faults() lists them. Nothing was cleared.",
        )


def number_each(
    values: Any, n: int, what: str, owner: str, *, device: str | None, address: str | None
) -> NDArray[np.float64]:
    """Return one real number for each of ``n`` channels; nothing is converted that is not one already.

    A masked value is no value, a complex one has no order, and a text or truth value was meant for something else.

    Args:
        values: What was given.
        n: Channels.
        what: What was asked for, for the message.
        owner: Who has so many channels, as in "the controller has 144 heaters".
        device: Its name.
        address: Its address.

    Raises:
        ConfigError: The values are no numbers, or there is not one per channel.
    """
    try:
        given = np.asarray(values)
    except ValueError:  # ragged
        found = "is no array"
    else:
        if np.ma.is_masked(values):
            found = "has masked values"
        elif given.dtype.kind not in "iuf":
            found = f"holds {given.dtype.name} values, not real numbers"
        elif given.shape != (n,):
            found = f"has shape {given.shape}"
        else:
            return given.astype(np.float64, copy=False)
    raise ConfigError(
        f"{what} {found}, {owner}.",
        device=device,
        address=address,
        hint=f"Give one number for each, shape ({n},).",
    )
