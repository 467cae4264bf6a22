"""Draining by reading: the same rule for every kind of link."""

from __future__ import annotations

from lumion_hw.clock import Clock, Deadline
from lumion_hw.links.base import Link


def drain_by_reading(link: Link, clock: Clock, quiet_s: float, deadline: Deadline) -> int:
    """Throw away input until nothing arrived for ``quiet_s`` seconds or ``deadline`` is reached.

    Returns:
        The number of bytes thrown away.

    Raises:
        LinkLost: The peer is gone.
    """
    dropped = 0
    # Until it is quiet and not until it is empty: what is late comes in pieces with gaps.
    while clock.now() < deadline:
        data = link.read(Deadline(min(clock.now() + quiet_s, deadline)))
        if not data:
            break
        dropped += len(data)
    return dropped
