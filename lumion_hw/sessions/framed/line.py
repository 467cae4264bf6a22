"""The line under a framed session: bytes out, bytes into the inbox, and how well the link carries them.

The deadlines of protocol section 4.5 are made from :class:`LinkQuality`. Only requests that were answered count there:
a board that is switched off says nothing about the wire.
"""

from __future__ import annotations

import logging
import math
import threading
from enum import StrEnum

from firmware_protocol import LONGEST_STEP_RTOS, MOST_SENDS, SENDS
from firmware_protocol.timing import MARGIN_S
from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import DeviceAddress, LinkLost, LinkTimeout
from lumion_hw.links.base import Link
from lumion_hw.links.owner import fork_safe
from lumion_hw.sessions.framed.inbox import Answer, Inbox, Wanted

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
        # Losses are taken to hit bytes independently: a frame of b bytes survives with exp(-e b) (section 4.5).
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
            # Halved together: the rate stays, and later losses weigh more than old ones.
            self._lost, self._bytes = 0.5 * self._lost, 0.5 * self._bytes

    def came_too_late(self) -> None:
        """Note that an answer came after its request was repeated or given up: nothing was lost, but waited too short.

        The next requests wait twice as long, until one of them is answered at its first send and tells the time it
        takes. A loss leaves no such trace, and is no reason to wait longer (Eifel detection, RFC 3522).
        """
        # The repeat it had caused was counted as a loss and was none.
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


_log = logging.getLogger(__name__)

HOST_MTU = 4096
"""Largest frame this host accepts, in bytes on the wire: the reference value for USB and TCP (section 2.4)."""

_WRITE_PATIENCE_S = 1.0  # a write that hangs loses count of its bytes and with it the link, so it gets ample time


class SessionState(StrEnum):
    """Where a session stands: DEGRADED is open after a time-out until the next good reply, LOST needs ``open()``."""

    CLOSED = "closed"
    OPEN = "open"
    DEGRADED = "degraded"
    LOST = "lost"


class Loss(StrEnum):
    """Why a session was lost. Only after a loss of its own link may a host take the controller back (section 4.1)."""

    LINK = "link lost"
    RESTARTED = "board restarted"
    TAKEN_OVER = "taken over by another host"


class Line:
    """A link with an inbox behind it.

    Args:
        link: The link.
        clock: Its clock.
        target: Device name and address, for messages.

    Attributes:
        link: The link.
        inbox: What arrived.
        quality: What the link has shown of losses and delays, over all its sessions.
        state: DeviceAddress the session on this line stands.
        loss: Why it was lost, ``None`` if it was not.
        last_sent_s: When bytes were last sent.
    """

    def __init__(self, link: Link, clock: Clock, target: DeviceAddress) -> None:
        self.link = link
        self.inbox = Inbox(HOST_MTU)
        self.quality = LinkQuality()
        self.state = SessionState.CLOSED
        self.loss: Loss | None = None
        self.last_sent_s = -math.inf
        self._clock = clock
        self._target = target
        self._writing = fork_safe(threading.Lock())

    def write(self, wire: bytes, label: str) -> None:
        """Send bytes, whole and not mixed with those of another thread. Raises ``LinkLost``."""
        try:
            with self._writing:
                now = self._clock.now()
                self.link.write(wire, Deadline(now + _WRITE_PATIENCE_S))
                self.last_sent_s = now
                self.inbox.counts["tx_bytes"] += len(wire)
        except LinkLost as error:
            raise self._lost(label, error) from error

    def read(self, deadline: Deadline, label: str) -> bool:
        """Take in what comes until something did or the deadline is reached. Raises ``LinkLost``."""
        try:
            data = self.link.read(deadline)
        except LinkLost as error:
            raise self._lost(label, error) from error
        if data:
            self.inbox.take(data)
        return bool(data)

    def ask(self, wire: bytes, wanted: Wanted, label: str, deadline: Deadline) -> Answer | None:
        """Send one request once and return its answer, or ``None`` at the deadline."""
        self.inbox.expect(wanted)
        try:
            self.write(wire, label)
            while True:
                arrived = self.read(deadline, label)
                if wanted.answer is not None or not arrived or self._clock.now() >= deadline:
                    return wanted.answer
        finally:
            self.inbox.forget(wanted)

    def lose(self, loss: Loss) -> None:
        """Note that the session is gone."""
        self.state = SessionState.LOST
        self.loss = loss

    def timeout(self, label: str, elapsed_s: float, hint: str, *, took_effect: bool | None = None) -> LinkTimeout:
        """Return, and log, the error for a request nobody answered; it shows the counters, and what became of it."""
        counts = self.inbox.counts
        counts["timeouts"] += 1
        seen = ", ".join(f"{name} {counts[name]}" for name in sorted(counts) if name not in ("requests", "tx_bytes"))
        if counts["echoes"]:
            hint = f"Own requests came back: an echo or a loop-back cable? {hint}"
        became = "whether it was executed is not known" if took_effect is None else "it only asks, nothing was changed"
        text = f"{label}: no answer within {elapsed_s * 1e3:.0f} ms; {became}; counters: {seen}."
        _log.warning("%s @ %s: %s", self._target.device, self._target.address, text)
        error = self._target.error(LinkTimeout, text, hint=hint)
        error.took_effect = took_effect
        return error

    def _lost(self, label: str, error: LinkLost) -> LinkLost:
        self.lose(Loss.LINK)
        _log.warning(
            "%s @ %s: link lost during %s: %s", self._target.device, self._target.address, label, error.message
        )
        return self._target.error(
            LinkLost,
            f"{label}: {error.message}.",
            hint="Check cable and power, then open the device again; its watchdog switches the outputs off.",
        )
