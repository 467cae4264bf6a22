"""The host session of an emulated board, one at a time (docs/protocol.md, section 4)."""

from __future__ import annotations

from firmware_protocol import MIN_MTU, ReplyRing, Stream, max_payload


class Session:
    """Session with a host."""

    def __init__(self, window: int) -> None:
        self.ring = ReplyRing(window)
        self.close()

    def close(self) -> None:
        """End the session."""
        self.number = 0
        self.name = ""
        self.tx_max = MIN_MTU
        self.hello_seq = 0
        self.last_seq = 0
        self.is_fresh = False
        self._events: dict[Stream, int] = {}
        self.ring.open(0)

    def open(self, number: int, seq: int, name: str, tx_max: int) -> None:
        """Open a session by the HELLO with sequence number ``seq``."""
        self.number, self.name, self.tx_max = number, name, tx_max
        self.hello_seq = self.last_seq = seq
        self.is_fresh = True
        self._events.clear()
        self.ring.open(seq)

    def note_executed(self, seq: int) -> None:
        """Record that a request other than HELLO was executed."""
        self.is_fresh = False
        if 1 <= (seq - self.last_seq) % (1 << 16) <= 32767:  # a number within half the circle ahead is newer
            self.last_seq = seq

    def take_event_number(self, stream: Stream) -> int:
        """Return the next event number of a stream, and count it as used."""
        number = self._events.get(stream, 0)
        self._events[stream] = number + 1
        return number

    def next_event_number(self, stream: Stream) -> int:
        """Return the next event number of a stream."""
        return self._events.get(stream, 0)

    def elements_per_reply(self, fixed: int, element: int) -> int:
        """Return how many elements of ``element`` bytes fit into a reply with ``fixed`` bytes of other fields."""
        return max((max_payload(self.tx_max) - fixed) // element, 0)
