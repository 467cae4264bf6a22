"""The one host session an emulated board knows at a time (section 4)."""

from __future__ import annotations

from firmware_protocol import MIN_MTU, ReplyRing, Stream, max_payload


class Session:
    """Who talks to the board: session number, host name, frame size and sequence rule."""

    def __init__(self, window: int) -> None:
        self.ring = ReplyRing(window)
        self.close()

    def close(self) -> None:
        """No session, as after power-up."""
        self.number = 0
        self.name = ""
        self.tx_max = MIN_MTU
        self.hello_seq = 0
        self.last_seq = 0
        self.untouched = False
        self._events: dict[Stream, int] = {}
        self.ring.open(0)

    def open(self, number: int, seq: int, name: str, tx_max: int) -> None:
        """Start a session with the HELLO that carries ``seq``; the reply ring and the event counters start anew."""
        self.number, self.name, self.tx_max = number, name, tx_max
        self.hello_seq = self.last_seq = seq
        self.untouched = True
        self._events.clear()
        self.ring.open(seq)

    def executes(self, seq: int) -> None:
        """Note that a request other than the HELLO is executed."""
        self.untouched = False
        if 1 <= (seq - self.last_seq) % (1 << 16) <= 32767:  # ahead is what lies within half the circle
            self.last_seq = seq

    def number_event(self, stream: Stream) -> int:
        """Return the number of the event that is sent now on a fixed stream; they count from 0 in each session."""
        number = self._events.get(stream, 0)
        self._events[stream] = number + 1
        return number

    def event_number(self, stream: Stream) -> int:
        """Return the number that the next event of a fixed stream will have."""
        return self._events.get(stream, 0)

    def room(self, fixed: int, element: int) -> int:
        """Return how many elements of a size fit the largest reply, behind ``fixed`` bytes."""
        return max((max_payload(self.tx_max) - fixed) // element, 0)
