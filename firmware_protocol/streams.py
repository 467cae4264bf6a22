"""Flow control of a stream of monitor readings, for board and host (section 9).

The host grants a credit limit: the board sends event k only if the limit is above k.
"""

from __future__ import annotations

from firmware_protocol.rules import is_newer

_U32 = 1 << 32
_SEQ = 1 << 16


def later_limit(present: int, offered: int) -> int:
    """Return the newer of two limits (protocol sections 9.1 and 10.4)."""
    return offered if is_newer(offered, present) else present


class EventCredit:
    """The board's side of one stream: events sent, records discarded, and the credit limit."""

    def __init__(self, credit_limit: int) -> None:
        self.credit_limit = credit_limit
        self.next_event = 0
        self.dropped = 0

    def renew(self, credit_limit: int) -> None:
        """Set a newer credit limit; older limits are ignored."""
        self.credit_limit = later_limit(self.credit_limit, credit_limit)

    def can_send(self) -> bool:
        """Return whether the next event can be sent now."""
        return is_newer(self.credit_limit, self.next_event)

    def send(self) -> int:
        """Count one event as sent and return its number.

        Raises:
            ValueError: The credit limit is reached; discard the oldest record instead.
        """
        if not self.can_send():
            raise ValueError(f"no credit for event {self.next_event}: the host's limit is {self.credit_limit}")
        number = self.next_event
        self.next_event = (number + 1) % _U32
        return number

    def discard(self, records: int = 1) -> None:
        """Count discarded records, which get no event number."""
        self.dropped = (self.dropped + records) % _U32


class EventTrack:
    """The host's side of one stream: events received and lost, and the credit limit.

    Args:
        window: Number of events that the board may send without a new limit.

    Attributes:
        next_event: Next expected number.
        received: Events received.
        lost: Events that did not arrive.
        repeated: Events that arrived twice; the second copy is ignored.
        dropped: Records discarded by the board, according to its last report.
        credit_limit: Last granted limit.
    """

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"the window is {window} events, but must be at least 1 so that an event can be sent")
        self.window = window
        self.next_event = 0
        self.received = 0
        self.lost = 0
        self.repeated = 0
        self.dropped = 0
        self.credit_limit = window

    def receive(self, seq: int, dropped: int) -> int | None:
        """Count an event and return its number, or ``None`` for a second copy, which must be ignored."""
        # A frame has only 16 bits of the event number. A number in the half before the expected one is a copy.
        distance = (seq - self.next_event) % _SEQ
        if distance >= _SEQ // 2:
            self.repeated += 1
            return None
        number = (self.next_event + distance) % _U32
        self.lost += distance
        self.received += 1
        self.next_event = (number + 1) % _U32
        self.dropped = dropped
        return number

    def count_final_losses(self, next_event: int, dropped: int) -> int:
        """Count the sent events that did not arrive, and return their number."""
        # At the end of a stream, no later event shows the gap.
        missing = (next_event - self.next_event) % _U32 if is_newer(next_event, self.next_event) else 0
        self.lost += missing
        self.next_event = (self.next_event + missing) % _U32
        self.dropped = dropped
        return missing

    def renewal(self) -> int | None:
        """Return a new limit if half of the credit is used, otherwise ``None``. Call :meth:`grant` after sending it."""
        # At half of the credit, so the renewal arrives before the board must stop sending.
        remaining = (self.credit_limit - self.next_event) % _U32
        if is_newer(self.credit_limit, self.next_event) and 2 * remaining > self.window:
            return None
        return (self.next_event + self.window) % _U32

    def grant(self, credit_limit: int) -> None:
        """Record that this limit was sent."""
        self.credit_limit = later_limit(self.credit_limit, credit_limit)
