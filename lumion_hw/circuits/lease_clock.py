"""Clock for circuit leases (reservations of limited time).

Durations do not depend on the time of day, which may jump; after a reboot of the host, the recorded time of day
decides.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lumion_hw.clock import Clock, SystemClock, boot_id


@dataclass(frozen=True)
class LeaseEnd:
    """End of a lease.

    Attributes:
        clock: Name of the clock: one boot of a host, or a virtual clock.
        ends_s: End on that clock, in seconds.
        ends_utc: End as time of day, ISO 8601.
    """

    clock: str
    ends_s: float
    ends_utc: str


class LeaseClock:
    """Clock for circuit leases and the time of day.

    Args:
        clock: Clock of the bench, which may be simulated; the clock of this host if omitted.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._is_wall = type(self._clock) is SystemClock
        # Another process cannot read a virtual clock, so the name of such a clock contains process and object.
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
        """Return the remaining time of a lease in seconds; negative after its end."""
        if end.clock and end.clock == self._name:
            return end.ends_s - self._clock.now()
        # The readings of another clock cannot be compared with this one: only the time of day is common to both.
        return (datetime.fromisoformat(end.ends_utc) - self.utc()).total_seconds()
