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
    """The value was read from, or converted with, a page that has a wrong checksum: its bytes may be damaged."""
