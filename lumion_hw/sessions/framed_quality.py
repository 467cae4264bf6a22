"""What a framed link has shown of itself: how often a send is lost, and how much later than computed answers come.

The deadlines of protocol section 4.5 are made from it. Only requests that were answered count: a board that is switched
off says nothing about the wire.
"""

from __future__ import annotations

import math

from firmware_protocol import LONGEST_STEP_RTOS, MOST_SENDS, SENDS
from firmware_protocol.timing import MARGIN_S

_RESIDUE = 1e-6  # chance that all sends of a request are lost: once in a million requests
_PRIOR_BYTES = 1000.0  # taken to have passed before anything was sent, so that one loss does not stand for all
_MEMORY_BYTES = 1e6  # older losses than about this many bytes count half
_LONGEST_MARGIN_S = 0.5
_MOST_BACKOFFS = 4


class LinkQuality:
    """The losses and delays of one link.

    Attributes:
        margin_s: Time allowed for an answer beyond what is computed from sizes and the board's own times.
    """

    def __init__(self) -> None:
        self.margin_s = MARGIN_S
        self._lost = 0.0
        self._bytes = _PRIOR_BYTES
        self._delay_s: float | None = None
        self._spread_s = 0.0
        self._backoffs = 0

    def rto_s(self, computed_s: float) -> float:
        """Return the time after which a request is sent again, from the time computed for its answer."""
        return (computed_s + self.margin_s) * (1 << self._backoffs)

    def sends(self, n_bytes: int) -> int:
        """Return how often a request is sent at most: once in a million all of them are lost.

        Args:
            n_bytes: Bytes of the request and its largest reply, all of which have to arrive.
        """
        if not self._lost:
            return SENDS
        lost = -math.expm1(-self._lost / self._bytes * n_bytes)
        return min(max(SENDS, math.ceil(math.log(_RESIDUE) / math.log(lost))), MOST_SENDS)

    def answered(self, n_bytes: int, repeats: int, late_s: float) -> None:
        """Note an answer.

        Of a request that was sent more than once nobody knows which copy was answered, so its time is not learned from
        (Karn and Partridge 1987).

        Args:
            n_bytes: Bytes of the request and its largest reply.
            repeats: Sends before the last one.
            late_s: How much later than computed it came.
        """
        self._bytes += n_bytes * (repeats + 1)
        if repeats:
            self._lost += repeats
            return
        self._backoffs = 0
        self._timed(late_s)
        if self._bytes > _MEMORY_BYTES:
            self._lost, self._bytes = 0.5 * self._lost, 0.5 * self._bytes

    def came_too_late(self) -> None:
        """Note that an answer came after its request was repeated or given up: nothing was lost, but waited too short.

        The next requests wait twice as long, until one of them is answered at its first send and tells the time it
        takes. A loss leaves no such trace, and is no reason to wait longer (Eifel detection, RFC 3522).
        """
        self._lost = max(self._lost - 1.0, 0.0)
        self._backoffs = min(self._backoffs + 1, _MOST_BACKOFFS)

    def _timed(self, late_s: float) -> None:
        """Smooth delay and spread as RFC 6298 does."""
        late_s = max(late_s, 0.0)
        if self._delay_s is None:
            self._delay_s, self._spread_s = late_s, 0.5 * late_s
        else:
            self._spread_s += 0.25 * (abs(late_s - self._delay_s) - self._spread_s)
            self._delay_s += 0.125 * (late_s - self._delay_s)
        self.margin_s = min(max(self._delay_s + 4.0 * self._spread_s, MARGIN_S), _LONGEST_MARGIN_S)


def step_rtos(attempt: int) -> int:
    """Return how long a send is waited for, in units of the RTO: 1, 2, 4, and 4 from there on."""
    return min(1 << attempt, LONGEST_STEP_RTOS)
