"""Quality of a reading."""

from __future__ import annotations

import enum


class Quality(enum.Enum):
    """Quality of a reading: whether its value can be trusted, and why not."""

    OK = "ok"
    BELOW_RANGE = "below_range"
    ABOVE_RANGE = "above_range"
    NOT_SUPPORTED = "not_supported"
    STALE = "stale"
    INCONSISTENT = "inconsistent"
    CHECKSUM_WRONG = "checksum_wrong"
    """Read from a page with a wrong checksum, or converted with data from such a page: the bytes may be damaged."""
