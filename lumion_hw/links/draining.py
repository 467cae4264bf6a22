"""Discards input of any kind of link."""

from __future__ import annotations

from lumion_hw.clock import Clock, Deadline
from lumion_hw.links.base import Link


def drain_by_reading(link: Link, clock: Clock, quiet_s: float, deadline: Deadline) -> int:
    """Discard input until none has arrived for ``quiet_s`` seconds or ``deadline`` is reached.

    Returns:
        The number of discarded bytes.

    Raises:
        LinkLost: The peer closed the connection.
    """
    dropped = 0
    # Wait for silence, not just for an empty buffer: late data arrives in chunks with gaps.
    while clock.now() < deadline:
        data = link.read(Deadline(min(clock.now() + quiet_s, deadline)))
        if not data:
            break
        dropped += len(data)
    return dropped
