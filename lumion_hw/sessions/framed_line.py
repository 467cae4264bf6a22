"""The line under a framed session: bytes out, bytes into the inbox, and the names of a lost link and a silent board."""

from __future__ import annotations

import logging
import math
import threading
from enum import StrEnum

from lumion_hw.clock import Clock
from lumion_hw.errors import LinkLost, LinkTimeout
from lumion_hw.links.base import Link
from lumion_hw.links.owner import fork_safe
from lumion_hw.sessions.framed_errors import Where
from lumion_hw.sessions.framed_inbox import Answer, Inbox, Wanted
from lumion_hw.sessions.framed_quality import LinkQuality

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
        where: Names for messages.

    Attributes:
        link: The link.
        inbox: What arrived.
        quality: What the link has shown of losses and delays, over all its sessions.
        state: Where the session on this line stands.
        loss: Why it was lost, ``None`` if it was not.
        last_sent_s: When bytes were last sent.
    """

    def __init__(self, link: Link, clock: Clock, where: Where) -> None:
        self.link = link
        self.inbox = Inbox(HOST_MTU)
        self.quality = LinkQuality()
        self.state = SessionState.CLOSED
        self.loss: Loss | None = None
        self.last_sent_s = -math.inf
        self._clock = clock
        self._where = where
        self._writing = fork_safe(threading.Lock())

    def write(self, wire: bytes, what: str) -> None:
        """Send bytes, whole and not mixed with those of another thread. Raises ``LinkLost``."""
        try:
            with self._writing:
                now = self._clock.now()
                self.link.write(wire, now + _WRITE_PATIENCE_S)
                self.last_sent_s = now
                self.inbox.counts["tx_bytes"] += len(wire)
        except LinkLost as error:
            raise self._lost(what, error) from error

    def read(self, deadline: float, what: str) -> bool:
        """Take in what comes until something did or the deadline is reached. Raises ``LinkLost``."""
        try:
            data = self.link.read(deadline)
        except LinkLost as error:
            raise self._lost(what, error) from error
        if data:
            self.inbox.take(data)
        return bool(data)

    def ask(self, wire: bytes, wanted: Wanted, what: str, deadline: float) -> Answer | None:
        """Send one request once and return its answer, or ``None`` at the deadline."""
        self.inbox.expect(wanted)
        try:
            self.write(wire, what)
            while True:
                arrived = self.read(deadline, what)
                if wanted.answer is not None or not arrived or self._clock.now() >= deadline:
                    return wanted.answer
        finally:
            self.inbox.forget(wanted)

    def lose(self, loss: Loss) -> None:
        """Note that the session is gone."""
        self.state = SessionState.LOST
        self.loss = loss

    def timeout(self, what: str, elapsed_s: float, hint: str, *, took_effect: bool | None = None) -> LinkTimeout:
        """Return, and log, the error for a request nobody answered; it shows the counters, and what became of it."""
        counts = self.inbox.counts
        counts["timeouts"] += 1
        seen = ", ".join(f"{name} {counts[name]}" for name in sorted(counts) if name not in ("requests", "tx_bytes"))
        if counts["echoes"]:
            hint = f"Own requests came back: an echo or a loop-back cable? {hint}"
        became = "whether it was executed is not known" if took_effect is None else "it only asks, nothing was changed"
        text = f"{what}: no answer within {elapsed_s * 1e3:.0f} ms; {became}; counters: {seen}."
        _log.warning("%s @ %s: %s", self._where.device, self._where.address, text)
        error = LinkTimeout(text, device=self._where.device, address=self._where.address, hint=hint)
        error.took_effect = took_effect
        return error

    def _lost(self, what: str, error: LinkLost) -> LinkLost:
        self.lose(Loss.LINK)
        _log.warning("%s @ %s: link lost during %s: %s", self._where.device, self._where.address, what, error.message)
        return LinkLost(
            f"{what}: {error.message}.",
            device=self._where.device,
            address=self._where.address,
            hint="Check cable and power, then open the device again; its watchdog switches the outputs off.",
        )
