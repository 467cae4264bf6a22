"""Credits of a telemetry stream, both sides, without clock or queue (section 9).

A credit limit is absolute: event k is sent only while the limit is newer than k, so a lost or doubled renewal does no
harm. The board numbers what it sends and counts what it discards; the host counts what was lost on the way.
"""

from __future__ import annotations

from firmware_protocol.rules import is_newer

_U32 = 1 << 32
_SEQ = 1 << 16


def later_limit(present: int, offered: int) -> int:
    """Return the newer of two absolute limits: a limit never moves back (sections 9.1 and 10.4)."""
    return offered if is_newer(offered, present) else present


class EventCredit:
    """The board's side of one stream: numbers of the events sent, records discarded, and the limit.

    Args:
        credit_limit: Limit of the SUBSCRIBE that opened the stream.
    """

    def __init__(self, credit_limit: int) -> None:
        self.credit_limit = credit_limit
        self.next_event = 0
        self.dropped = 0

    def renew(self, credit_limit: int) -> None:
        """Take the limit of a renewal; an older one is ignored."""
        self.credit_limit = later_limit(self.credit_limit, credit_limit)

    def may_send(self) -> bool:
        """Return whether the next event may be sent now."""
        return is_newer(self.credit_limit, self.next_event)

    def send(self) -> int:
        """Return the number of the event that is sent now; its low 16 bits are the ``seq`` of the frame.

        Raises:
            ValueError: There is no credit; discard the oldest record instead.
        """
        if not self.may_send():
            raise ValueError(f"no credit: event {self.next_event} needs a limit newer than {self.credit_limit}")
        number = self.next_event
        self.next_event = (number + 1) % _U32
        return number

    def discard(self, records: int = 1) -> None:
        """Count records that found no credit or no room; they take no event number."""
        self.dropped = (self.dropped + records) % _U32


class EventTrack:
    """The host's side of one stream: what was received, what was lost, and when to renew.

    Args:
        window: Events the host lets the board be ahead; half of it is the point of renewal.

    Attributes:
        next_event: Number expected next.
        received: Events received.
        lost: Events that were sent and never arrived.
        repeated: Copies of events that had arrived before, to be thrown away.
        dropped: Records the board discarded, as it last said.
        credit_limit: Limit granted last.
    """

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"a window of {window} events would never let one pass")
        self.window = window
        self.next_event = 0
        self.received = 0
        self.lost = 0
        self.repeated = 0
        self.dropped = 0
        self.credit_limit = window

    def receive(self, seq: int, dropped: int) -> int | None:
        """Take an event by the ``seq`` of its frame and return its number; ``None`` for a copy to be thrown away."""
        # Only 16 bits of the event number travel; what lies in the half behind the expected one is a copy.
        ahead = (seq - self.next_event) % _SEQ
        if ahead >= _SEQ // 2:
            self.repeated += 1
            return None
        number = (self.next_event + ahead) % _U32
        self.lost += ahead
        self.received += 1
        self.next_event = (number + 1) % _U32
        self.dropped = dropped
        return number

    def settle(self, next_event: int, dropped: int) -> int:
        """Take the reply of a SUBSCRIBE and return how many events were lost without a later one to show it."""
        # Losses at the end of a stream have no later event whose number would show the gap.
        missing = (next_event - self.next_event) % _U32 if is_newer(next_event, self.next_event) else 0
        self.lost += missing
        self.next_event = (self.next_event + missing) % _U32
        self.dropped = dropped
        return missing

    def renewal(self) -> int | None:
        """Return the new limit once half of the credit is used, else ``None``; :meth:`grant` what was sent."""
        # At half of the credit, so that the renewal is there before the board has to stop sending.
        left = (self.credit_limit - self.next_event) % _U32
        if is_newer(self.credit_limit, self.next_event) and 2 * left > self.window:
            return None
        return (self.next_event + self.window) % _U32

    def grant(self, credit_limit: int) -> None:
        """Note that a renewal with this limit was sent."""
        self.credit_limit = later_limit(self.credit_limit, credit_limit)
