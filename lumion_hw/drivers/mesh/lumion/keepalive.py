"""Food for the watchdog of the LUMION mesh controller, as long as the application itself is alive (section 11.2)."""

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
    """Feeds a quarter of the watchdog's time after the last request, from a ticker and from long waits.

    The lease is the application's own watchdog: every call of the driver renews it, and when it has run out nothing is
    fed any more, so that a control loop that hangs is not kept alive by a healthy thread.

    Args:
        session: The session to feed.
        clock: Its clock; runs the ticker.
        feed: Sends one request of the session, if it is idle (``True`` as argument) or in any case.
        when_lost: Called by the ticker while the session is not open.
        lease_s: Time the application has between two calls; ``None`` for no lease.
    """

    def __init__(
        self,
        session: FramedSession,
        clock: Clock,
        feed: Callable[[bool], None],
        when_lost: Callable[[], None],
        lease_s: float | None,
    ) -> None:
        self._session = session
        self._clock = clock
        self._feed = feed
        self._when_lost = when_lost
        self._lease_s = lease_s
        self._renewed_s = clock.now()
        self._warned = False
        self._period_s = math.inf
        self._ticker: Ticker | None = None
        self._change = fork_safe(threading.Lock())

    def start(self, watchdog_s: float) -> None:
        """Feed from now on; a ticker that runs already is replaced."""
        self._replace(watchdog_s / _FEEDS_PER_WATCHDOG)

    def stop(self) -> None:
        """Stop feeding; idempotent. Waits for a feed under way."""
        self._replace(math.inf)

    def _replace(self, period_s: float) -> None:
        """Exchange the ticker in one step, so that of two threads none leaves a second one behind."""
        with self._change:
            before, self._ticker = self._ticker, None
            self._period_s = period_s
            if period_s < math.inf:
                self._ticker = self._clock.call_every(period_s, self._tick)
        if before is not None:
            # Outside of the lock: it waits for a feed under way, whose
            # callbacks may start or stop this very keep-alive.
            before.cancel()

    def renew(self) -> None:
        """The application is alive."""
        self._renewed_s = self._clock.now()
        self._warned = False

    def feed_if_due(self) -> float:
        """Feed if a quarter of the watchdog's time has passed since the last request; for long waits inside a call.

        Returns:
            The time of the next call.

        Raises:
            LumionError: As of the request.
        """
        if self._clock.now() >= self._session.last_sent_s + self._period_s and self._leased():
            self._feed(False)
        return self._session.last_sent_s + self._period_s if self._leased() else self._clock.now() + self._period_s

    def _tick(self) -> None:
        """Feed from the ticker; a failed feed is the next request's matter, not that of whoever lets the clock run."""
        if not self._session.is_open:
            self._when_lost()
            return
        # Every request of the session feeds (section 11.2); a busy host needs no
        # PING. Half a period, because ticks and requests do not fall together.
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
                "%s @ %s: no call for more than %g s, the lease of the application: its watchdog is not fed any more",
                self._session.device,
                self._session.address,
                self._lease_s,
            )
        return False
