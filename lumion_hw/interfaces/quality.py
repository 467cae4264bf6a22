"""Quality of a reading."""

from __future__ import annotations

import enum


class Quality(enum.Enum):
    """Whether the value of a reading can be trusted, and why not."""

    OK = "ok"
    BELOW_RANGE = "below_range"
    ABOVE_RANGE = "above_range"
    NOT_SUPPORTED = "not_supported"
    STALE = "stale"
    INCONSISTENT = "inconsistent"
    CHECKSUM_WRONG = "checksum_wrong"
    """The value may be wrong, because a checksum of the memory page is wrong."""
