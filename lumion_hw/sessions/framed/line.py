"""Line to the mesh controller: sends and receives bytes, and measures losses and delays (protocol section 4.5)."""

from __future__ import annotations

import logging
import math
import threading
from enum import StrEnum

from firmware_protocol import LONGEST_STEP_RTOS, MAX_SENDS, SENDS
from firmware_protocol.timing import MARGIN_S
from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import DeviceAddress, LinkLost, LinkTimeout
from lumion_hw.links.base import Link
from lumion_hw.links.owner import fork_safe
from lumion_hw.sessions.framed.inbox import Answer, ExpectedReply, Inbox

_RESIDUE = 1e-6  # accepted chance that all sends of a request are lost: one in a million
_PRIOR_BYTES = 1000.0  # assumed loss-free history, so that a single early loss does not dominate
_MEMORY_BYTES = 1e6  # losses older than about this many bytes count half
_LONGEST_MARGIN_S = 0.5
_MAX_BACKOFFS = 4


class LinkQuality:
    """Measured losses and delays of one link.

    Attributes:
        margin_s: Additional time allowed for a reply, in s.
    """

    def __init__(self) -> None:
        self.margin_s = MARGIN_S
        self._loss_error = 0.0
        self._bytes = _PRIOR_BYTES
        self._delay_s: float | None = None
        self._spread_s = 0.0
        self._backoffs = 0

    def rto_s(self, computed_s: float) -> float:
        """Return the time in seconds after which a request is repeated, for a reply that should take ``computed_s``."""
        return (computed_s + self.margin_s) * (1 << self._backoffs)

    def max_sends(self, n_bytes: int) -> int:
        """Return how often a request may be sent, so that at most one request in a million fails.

        Args:
            n_bytes: Bytes of the request and its largest reply.
        """
        if not self._loss_error:
            return SENDS
        # Losses are assumed to hit bytes independently: b bytes survive with probability exp(-e b) (section 4.5).
        loss_probability = -math.expm1(-self._loss_error / self._bytes * n_bytes)
        return min(max(SENDS, math.ceil(math.log(_RESIDUE) / math.log(loss_probability))), MAX_SENDS)

    def record_answer(self, n_bytes: int, repeats: int, late_s: float) -> None:
        """Update the measured losses and delays after a reply.

        Delays of repeated requests are ignored (Karn and Partridge 1987).

        Args:
            n_bytes: Bytes of the request and its largest reply.
            repeats: Number of times that the request was repeated.
            late_s: Arrival time minus the computed time, in seconds.
        """
        self._bytes += n_bytes * (repeats + 1)
        if repeats:
            self._loss_error += repeats
            return
        self._backoffs = 0
        self._timed(late_s)
        if self._bytes > _MEMORY_BYTES:
            # Halving both keeps the rate and gives later losses more weight.
            self._loss_error, self._bytes = 0.5 * self._loss_error, 0.5 * self._bytes

    def record_late_answer(self) -> None:
        """Record a reply that arrived after the time-out, and double the next time-outs (RFC 3522)."""
        # The repeat had been counted as a loss, which it was not.
        self._loss_error = max(self._loss_error - 1.0, 0.0)
        self._backoffs = min(self._backoffs + 1, _MAX_BACKOFFS)

    def _timed(self, late_s: float) -> None:
        """Update the average delay and its spread (RFC 6298)."""
        late_s = max(late_s, 0.0)
        if self._delay_s is None:
            self._delay_s, self._spread_s = late_s, 0.5 * late_s
        else:
            self._spread_s += 0.25 * (abs(late_s - self._delay_s) - self._spread_s)
            self._delay_s += 0.125 * (late_s - self._delay_s)
        self.margin_s = min(max(self._delay_s + 4.0 * self._spread_s, MARGIN_S), _LONGEST_MARGIN_S)


def step_rtos(attempt: int) -> int:
    """Return the wait after each attempt, in multiples of the retry time-out: 1, 2, and then always 4."""
    return min(1 << attempt, LONGEST_STEP_RTOS)


_log = logging.getLogger(__name__)

HOST_MTU = 4096
"""Largest frame that this host accepts, in bytes (protocol section 2.4)."""

_WRITE_TIMEOUT_S = 1.0  # generous, because an incomplete write means that the link is lost


class SessionState(StrEnum):
    """State of a session. DEGRADED is open, but without a reply since the last time-out; LOST needs ``open()``."""

    CLOSED = "closed"
    OPEN = "open"
    DEGRADED = "degraded"
    LOST = "lost"


class Loss(StrEnum):
    """Cause of a lost session (protocol section 4.1)."""

    LINK = "link lost"
    RESTARTED = "board restarted"
    TAKEN_OVER = "taken over by another host"


class Line:
    """A link to the mesh controller, with its receiver and its measured quality.

    Args:
        clock: Clock of the link.

    Attributes:
        inbox: Receiver of the frames.
        quality: Losses and delays of the link.
        state: State of the session on this line.
        loss: Cause of the loss of the session; ``None`` if it was not lost.
        last_sent_s: Time at which bytes were last sent.
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
        """Send bytes. Thread-safe. Raises ``LinkLost``."""
        try:
            with self._writing:
                now_s = self._clock.now()
                self.link.write(wire, Deadline(now_s + _WRITE_TIMEOUT_S))
                self.last_sent_s = now_s
                self.inbox.counts["tx_bytes"] += len(wire)
        except LinkLost as error:
            raise self._loss_error(label, error) from error

    def read(self, deadline: Deadline, label: str) -> bool:
        """Wait until data arrives or the deadline is reached; return whether data arrived. Raises ``LinkLost``."""
        try:
            data = self.link.read(deadline)
        except LinkLost as error:
            raise self._loss_error(label, error) from error
        if data:
            self.inbox.take(data)
        return bool(data)

    def request(self, wire: bytes, expected: ExpectedReply, label: str, deadline: Deadline) -> Answer | None:
        """Send one request once and return its reply, or ``None`` at the deadline."""
        self.inbox.expect(expected)
        try:
            self.write(wire, label)
            while True:
                arrived = self.read(deadline, label)
                if expected.answer is not None or not arrived or self._clock.now() >= deadline:
                    return expected.answer
        finally:
            self.inbox.forget(expected)

    def lose(self, loss: Loss) -> None:
        """Mark the session as lost for this cause."""
        self.state = SessionState.LOST
        self.loss = loss

    def timeout(self, label: str, elapsed_s: float, hint: str, *, took_effect: bool | None = None) -> LinkTimeout:
        """Return and log the error for a request without reply."""
        counts = self.inbox.counts
        counts["timeouts"] += 1
        counters = ", ".join(
            f"{name} {counts[name]}" for name in sorted(counts) if name not in ("requests", "tx_bytes")
        )
        if counts["echoes"]:
            hint = f"The host received its own requests: check for an echo or a loop-back cable. {hint}"
        outcome = "it may or may not have been executed" if took_effect is None else "nothing was changed"
        text = f"{label}: no answer within {elapsed_s * 1e3:.0f} ms; {outcome}."
        _log.warning("%s @ %s: no reply: %s Counters: %s", self._target.device, self._target.address, text, counters)
        error = self._target.error(LinkTimeout, text, hint=hint)
        error.took_effect = took_effect
        return error

    def _loss_error(self, label: str, error: LinkLost) -> LinkLost:
        self.lose(Loss.LINK)
        _log.warning(
            "%s @ %s: the link was lost during %s: %s", self._target.device, self._target.address, label, error.message
        )
        return self._target.error(
            LinkLost,
            f"{label}: {error.message}.",
            hint="Check cable and power, then open the device again; the board's watchdog switches the outputs off.",
        )
