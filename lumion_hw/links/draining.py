"""Discards input of any kind of link."""

from __future__ import annotations

import abc

from lumion_hw.clock import Clock, Deadline


class DrainedByReading(abc.ABC):
    """Base of links that discard input by reading it; a subclass sets ``_clock``."""

    _clock: Clock

    @abc.abstractmethod
    def read(self, deadline: Deadline) -> bytes:
        """Return received bytes, or ``b""`` at the deadline."""

    def drain(self, quiet_s: float, deadline: Deadline) -> int:
        """Discard input until none has arrived for ``quiet_s`` seconds; return the number of discarded bytes."""
        dropped = 0
        # Wait for silence, not just for an empty buffer: late data arrives in chunks with gaps.
        while self._clock.now() < deadline:
            data = self.read(Deadline(min(self._clock.now() + quiet_s, deadline)))
            if not data:
                break
            dropped += len(data)
        return dropped
