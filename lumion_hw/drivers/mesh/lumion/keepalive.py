"""Feeds the watchdog of the LUMION mesh controller as long as the application makes calls (protocol section 11.2)."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from lumion_hw.clock import Clock, Ticker
from lumion_hw.errors import LumionError
from lumion_hw.links.owner import fork_safe
from lumion_hw.sessions.framed.session import FramedSession

_log = logging.getLogger(__name__)

_FEEDS_PER_WATCHDOG = 4  # section 11.2: four chances to feed per period


class KeepAlive:
    """Feeds the watchdog four times per watchdog time.

    The lease supervises the application: if no driver call was made for ``lease_s``, the watchdog is no longer fed and
    the controller switches its outputs off.

    Args:
        clock: Clock that calls this object periodically.
        feed: Function that sends one request. If its argument is ``True``, it sends only while the session is idle.
        on_link_lost: Called periodically while the session is not open.
        lease_s: Longest time between two calls of the application; ``None`` for no lease.
    """

    def __init__(
        self,
        session: FramedSession,
        clock: Clock,
        feed: Callable[[bool], None],
        on_link_lost: Callable[[], None],
        lease_s: float | None,
    ) -> None:
        self._session = session
        self._clock = clock
        self._feed = feed
        self._on_link_lost = on_link_lost
        self._lease_s = lease_s
        self._renewed_s = clock.now()
        self._warned = False
        self._period_s = math.inf
        self._ticker: Ticker | None = None
        self._change = fork_safe(threading.Lock())

    def start(self, watchdog_s: float) -> None:
        """Start feeding a watchdog of this time; replaces an earlier start."""
        self._replace(watchdog_s / _FEEDS_PER_WATCHDOG)

    def stop(self) -> None:
        """Stop feeding the watchdog; idempotent. Waits for a request in progress."""
        self._replace(math.inf)

    def _replace(self, period_s: float) -> None:
        with self._change:
            before, self._ticker = self._ticker, None
            self._period_s = period_s
            if period_s < math.inf:
                self._ticker = self._clock.call_every(period_s, self._tick)
        if before is not None:
            # Outside of the lock: it waits for a feed in progress, whose
            # callbacks may start or stop this very keep-alive.
            before.cancel()

    def renew(self) -> None:
        """Renew the lease: the application is alive."""
        self._renewed_s = self._clock.now()
        self._warned = False

    def feed_if_due(self) -> float:
        """Feed the watchdog if it is due, and return the time at which to call again.

        Raises the errors of the request that feeds the watchdog.
        """
        if self._clock.now() >= self._session.last_sent_s + self._period_s and self._leased():
            self._feed(False)
        return self._session.last_sent_s + self._period_s if self._leased() else self._clock.now() + self._period_s

    def _tick(self) -> None:
        if not self._session.is_open:
            self._on_link_lost()
            return
        # Every request feeds the watchdog (section 11.2), so a busy host sends no
        # PING. Half a period, because ticks and requests are not synchronous.
        if self._clock.now() < self._session.last_sent_s + 0.5 * self._period_s or not self._leased():
            return
        try:
            self._feed(True)
        except LumionError as error:
            _log.info("keep-alive failed: %s", error)

    def _leased(self) -> bool:
        if self._lease_s is None or self._clock.now() - self._renewed_s <= self._lease_s:
            return True
        if not self._warned:
            self._warned = True
            _log.error(
                "%s @ %s: no call for more than the lease of %g s; the watchdog is no longer fed",
                self._session.device,
                self._session.address,
                self._lease_s,
            )
        return False
