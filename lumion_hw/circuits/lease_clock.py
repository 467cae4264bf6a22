"""The time of leases: durations on a clock that nobody sets, with the time of day noted beside them.

The time of day may jump: by hand, by a time server, after a wrong battery. A lease of an hour lasts an hour all the
same. Only where the clock itself began anew, after a restart of the host, does the noted time of day decide.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lumion_hw.clock import Clock, SystemClock, boot_id


@dataclass(frozen=True)
class LeaseEnd:
    """When a lease ends.

    Attributes:
        clock: Names the clock: that of one start of a host, or a virtual one.
        ends_s: The end on that clock, in seconds.
        ends_utc: The end by the time of day when the lease began, ISO 8601.
    """

    clock: str
    ends_s: float
    ends_utc: str


class LeaseClock:
    """The clock of leases and the time of day, as a bench's clock goes: on a virtual clock an hour passes in seconds.

    Args:
        clock: The bench's clock; that of this host if not given.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._is_wall = type(self._clock) is SystemClock
        self._name = boot_id() if self._is_wall else f"{os.getpid()}:{id(self._clock):x}"
        self._start_s, self._start_utc = self._clock.now(), datetime.now(UTC)

    def utc(self) -> datetime:
        """Return the time of day, in UTC."""
        if self._is_wall:
            return datetime.now(UTC)
        return self._start_utc + timedelta(seconds=self._clock.now() - self._start_s)

    def lease_end(self, lease_s: float) -> LeaseEnd:
        """Return the end of a lease that begins now."""
        ends_utc = (self.utc() + timedelta(seconds=lease_s)).isoformat(timespec="milliseconds")
        return LeaseEnd(self._name, self._clock.now() + lease_s, ends_utc)

    def left_s(self, end: LeaseEnd) -> float:
        """Return how long a lease still lasts; negative once it has ended."""
        if end.clock and end.clock == self._name:
            return end.ends_s - self._clock.now()
        return (datetime.fromisoformat(end.ends_utc) - self.utc()).total_seconds()
