"""Enums of the bits and states of streams and sweeps (sections 9 and 10)."""

from __future__ import annotations

from enum import IntEnum, IntFlag

FIRST_TELEMETRY_STREAM = 2
"""Lowest id of a telemetry stream; 0 is FAULT, 1 is the sweep (section 5)."""

IMAGE_VERSION = 1
"""``version`` of the sweep image described here (section 10.1)."""

MAX_CHANGES = 32766
"""Largest number of changes of one point (bits 0 to 14 of ``head``, section 10.1)."""

FULL_TABLE = 32767
"""Value of bits 0 to 14 of ``head`` for a full table instead of changes."""

POINT_TIMING = 0x8000
"""Bit 15 of ``head``: the point has its own times."""

MAX_RECORDS = (1 << 31) - 1
"""Largest number of records of one run: ``n_points × repeat`` is below 2³¹ (section 10.3)."""

SWEEP_PUSH_MS = 20
"""Maximum time in ms between the first record of a SWEEP_DATA event and its sending (section 10.4)."""


class SubscribeFlag(IntFlag):
    """Bits of ``sub_flags``; with RENEW only ``stream`` and ``credit_limit`` count."""

    RENEW = 0x01


class WatchFlag(IntFlag):
    """Bits of ``watch_flags`` in WATCH."""

    CLEAR = 0x01


class ImageFlag(IntFlag):
    """Bits of ``img_flags`` in a sweep image."""

    START_TABLE = 0x01


class RunFlag(IntFlag):
    """Bits of ``run_flags``: handling of a full ring, and whether the base table is compared."""

    OVERWRITE = 0x01
    NO_BASE_CHECK = 0x02


class EndAction(IntEnum):
    """Table that is driven after the end of a sweep."""

    BASE = 0
    KEEP = 1


class SweepTrigger(IntEnum):
    """Start condition of each point of a sweep."""

    FREE = 0
    EXTERNAL = 1


class RunState(IntEnum):
    """State of the last run, in the reply of SWEEP_READ."""

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
