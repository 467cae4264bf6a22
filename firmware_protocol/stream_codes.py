"""Codes and bits of streams and sweeps (sections 9 and 10)."""

from __future__ import annotations

from enum import IntEnum, IntFlag

FIRST_TELEMETRY_STREAM = 2
"""Lowest stream number of monitor readings (section 5)."""

IMAGE_VERSION = 1
"""Version of the encoding of sweeps (section 10.1)."""

MAX_CHANGES = 32766
"""Largest number of changes of one sweep point (section 10.1)."""

FULL_TABLE = 32767
"""Number of changes that marks a point with codes for all channels."""

POINT_TIMING = 0x8000
"""Bit that marks a point with its own times."""

MAX_RECORDS = (1 << 31) - 1
"""Largest number of records of one sweep (section 10.3)."""

SWEEP_PUSH_MS = 20
"""Longest time in ms between a record and its transmission (section 10.4)."""


class SubscribeFlag(IntFlag):
    """Flags of the command SUBSCRIBE."""

    RENEW = 0x01


class WatchFlag(IntFlag):
    """Flags of the command WATCH."""

    CLEAR = 0x01


class ImageFlag(IntFlag):
    """Flags in the header of a sweep image (an encoded sweep)."""

    START_TABLE = 0x01


class RunFlag(IntFlag):
    """Flags of the start of a sweep."""

    OVERWRITE = 0x01
    NO_BASE_CHECK = 0x02


class EndAction(IntEnum):
    """Heater codes after the end of a sweep."""

    BASE = 0
    KEEP = 1


class SweepTrigger(IntEnum):
    """Start condition of each point of a sweep."""

    FREE = 0
    EXTERNAL = 1


class RunState(IntEnum):
    """State of the last sweep."""

    NONE = 0
    RUNNING = 1
    PAUSED = 2
    ENDED = 3


class EndReason(IntEnum):
    """Reason why a sweep ended."""

    COMPLETE = 0
    ABORTED = 1
    FAULT = 2
    WATCHDOG = 3
    HOST_CHANGED = 4
    ESTOP = 5
