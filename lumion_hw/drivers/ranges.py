"""Range checks of settings. A value outside its range raises an error and is never clipped."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import BadValueError, ConfigError, LimitError
from lumion_hw.sessions.conversation import Conversation

_SLACK = 1e-9  # a limit in THz converted to nm and back


def check_range(
    label: str, value: float, low_high: tuple[float, float] | None, unit: str, session: Conversation
) -> None:
    """Raise ``LimitError`` if a value is not finite or is outside ``low_high``. ``None`` allows any finite value."""
    low, high = low_high or (-math.inf, math.inf)
    if math.isfinite(value) and low - _SLACK * abs(low) <= value <= high + _SLACK * abs(high):
        return
    raise session.error(
        LimitError,
        label,
        requested=value,
        limit=low if value < low else high,
        unit=unit,
        hint=f"The range is {low:.9g} to {high:.9g} {unit}. Nothing was changed.",
    )


def check_fault_id(fault_id: object, device: str, address: str) -> None:
    """Raise ``BadValueError`` if a fault id is not an integer. Booleans are refused too."""
    if isinstance(fault_id, bool) or not isinstance(fault_id, (int, np.integer)):
        raise BadValueError(
            f"{fault_id!r} is not the id of a fault",
            device=device,
            address=address,
            hint="Ids are whole numbers; faults() lists them. Nothing was cleared.",
        )


def numbers_per_channel(
    values: Any, n: int, label: str, owner: str, *, device: str | None, address: str | None
) -> NDArray[np.float64]:
    """Return ``values`` as one real number per channel.

    Args:
        values: Values given by the caller. Masked, complex, string and boolean values are refused.
        n: Number of channels.
        label: Name of the values, for the message.
        owner: Reason for the number of values, such as "the controller has 144 heaters", for the message.
        device: Device name.
        address: Address of the device.

    Raises:
        ConfigError: The values are not numbers, or their number is not ``n``.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # ragged
        problem = "is not an array"
    else:
        if np.ma.is_masked(values):
            problem = "has masked values"
        elif array.dtype.kind not in "iuf":
            problem = f"holds {array.dtype.name} values, not real numbers"
        elif array.shape != (n,):
            problem = f"has shape {array.shape}"
        else:
            return array.astype(np.float64, copy=False)
    raise ConfigError(
        f"{label} {problem}, but {owner}.",
        device=device,
        address=address,
        hint=f"Give one number per channel, shape ({n},).",
    )
