"""What a reading is worth."""

from __future__ import annotations

import enum


class Quality(enum.Enum):
    """What a reading is worth."""

    OK = "ok"
    BELOW_RANGE = "below_range"
    ABOVE_RANGE = "above_range"
    NOT_SUPPORTED = "not_supported"
    STALE = "stale"
    INCONSISTENT = "inconsistent"
    CHECKSUM_WRONG = "checksum_wrong"
    """Read from a page whose check sum does not fit, or with the help of one: the bytes may be damaged."""
