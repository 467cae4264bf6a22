"""Reconnects the driver of the LUMION mesh controller after a lost link.

States: CLOSED; OPEN after ``open()``; BACKOFF after the link is lost. BACKOFF ends in OPEN when an attempt succeeds, or
in CLOSED when the time is used up, a different device replies, or another host has taken over the controller.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from lumion_hw.clock import Clock
from lumion_hw.drivers.mesh.lumion.values import call_back
from lumion_hw.errors import ConfigError, DeviceAddress, LinkLost, LumionError, NotSupportedError
from lumion_hw.links.owner import fork_safe

_log = logging.getLogger(__name__)

_MAX_EVENTS = 64  # limits the memory that an unstable link can use
_SLICE_S = 0.05  # longest single sleep of a waiting call; closing ends the call within this time


@dataclass(frozen=True)
class Attachment:
    """State in which the driver found the controller, and the settings that it restored.

    Attributes:
        first: Whether this is the first connection of the driver.
        restarted: Whether the controller was restarted since the last connection and so lost its settings.
        boot_id: Random number of the controller's last power-up.
        configuration: Result for the limits: ``none`` (none set so far), ``kept``, ``applied`` or ``refused``.
        table: Result for the currents: ``none`` (none confirmed so far), ``same``, ``changed``, ``restored`` or
            ``refused``.
        in_flight_latched: Whether currents that were sent but not confirmed are driven now; ``None`` without such
            currents.
        faults: Names of the latched fault sources.
        refusals: Reasons of the refusals.
    """

    first: bool
    restarted: bool
    boot_id: int
    configuration: str
    table: str
    in_flight_latched: bool | None = None
    faults: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    @property
    def degraded(self) -> bool:
        """Whether some limits or currents could not be restored."""
        return bool(self.refusals)

    def __str__(self) -> str:
        parts = ["controller restarted" if self.restarted else "same boot"]
        parts += [f"configuration {self.configuration}", f"table {self.table}"]
        if self.in_flight_latched is not None:
            parts.append(f"the currents sent without an answer are {'' if self.in_flight_latched else 'not '}driven")
        if self.faults:
            parts.append(f"latched: {', '.join(self.faults)}")
        return "; ".join([*parts, *self.refusals])


class LinkState(StrEnum):
    """State of the connection; BACKOFF waits for the next attempt."""

    CLOSED = "closed"
    OPEN = "open"
    BACKOFF = "backoff"


class LinkEventKind(StrEnum):
    """Kind of a change of the link state."""

    LOST = "lost"
    ATTEMPT_FAILED = "attempt failed"
    RECONNECTED = "reconnected"
    GIVEN_UP = "given up"


@dataclass(frozen=True)
class LinkEvent:
    """A change of the link state, such as a loss or a reconnection.

    Attributes:
        text: Description of the change.
        at_s: Time on the driver's clock.
        gap_s: Time since the link was lost.
        attempts: Number of attempts to reconnect since then.
        attachment: State in which the controller was found; only with ``RECONNECTED``.
    """

    kind: LinkEventKind
    text: str
    at_s: float
    gap_s: float = 0.0
    attempts: int = 0
    attachment: Attachment | None = None


@dataclass(frozen=True)
class ReconnectPolicy:
    """Delays and time limit of the reconnection after a lost link.

    Attributes:
        wait_s: Time that a call waits for the link; 0 fails immediately.
        first_delay_s: Delay before the first attempt; each further delay is twice as long.
        longest_delay_s: Longest delay.
        jitter: Largest random change of each delay, relative to the delay.
        budget_s: Time after which the attempts end.
        seed: Random seed of the jitter.
    """

    wait_s: float = 0.0
    first_delay_s: float = 0.2
    longest_delay_s: float = 10.0
    jitter: float = 0.2
    budget_s: float = 60.0
    seed: int = 0


class Reconnector:
    """Reconnects after a lost link. The driver reports events and calls :meth:`poll`; there is no thread.

    Args:
        policy: Delays and time limit; ``None`` makes no attempts.
        clock: Clock of the link.
        attach: Function that connects and returns the state found; raises ``LumionError``.
        close: Function that closes the link; never raises.
        on_event: Called with every event; ``None`` to store them only.

    Attributes:
        state: State of the connection.
        events: Latest events, oldest first.
    """

    def __init__(
        self,
        policy: ReconnectPolicy | None,
        clock: Clock,
        attach: Callable[[], Attachment],
        close: Callable[[], None],
        on_event: Callable[[LinkEvent], None] | None,
        target: DeviceAddress,
    ) -> None:
        self._is_automatic = policy is not None
        self._policy = policy or ReconnectPolicy()
        self._clock = clock
        self._attach = attach
        self._close = close
        self._on_event = on_event
        self._target = target
        self._random = random.Random(self._policy.seed)
        self._lost_at_s = 0.0
        self._next_s = 0.0
        self._delay_s = 0.0
        self._attempts = 0
        self._reason = "it was never opened"
        self._busy = fork_safe(threading.Lock())
        self._change = fork_safe(threading.Lock())
        self.state = LinkState.CLOSED
        self.events: deque[LinkEvent] = deque(maxlen=_MAX_EVENTS)

    def opened(self) -> None:
        """Record that the application opened the driver."""
        self.state = LinkState.OPEN

    def closed(self) -> None:
        """Record that the application closed the driver."""
        with self._change:
            self.state = LinkState.CLOSED
            self._reason = "it was closed"

    def report_loss(self, error: LumionError, *, for_good: bool) -> None:
        """Close a lost link and schedule the first attempt to reconnect, unless the link is lost ``for_good``."""
        with self._change:  # several threads may detect it at once
            if self.state is not LinkState.OPEN:
                return
            self._lost_at_s = self._clock.now()
            self._attempts = 0
            self._delay_s = self._policy.first_delay_s
            self._next_s = self._lost_at_s + self._delay_s
            self._reason = error.message
            self.state = LinkState.BACKOFF if self._is_automatic and not for_good else LinkState.CLOSED
        if self._is_automatic:
            self._close()
        self._report_event(LinkEventKind.LOST, error.message)
        if self._is_automatic and for_good:
            self._report_event(LinkEventKind.GIVEN_UP, error.message)

    def poll(self) -> None:
        """Try to reconnect if an attempt is due. Link errors are not raised."""
        if self.state is not LinkState.BACKOFF or self._clock.now() < self._next_s:
            return
        # The ticker and calling threads all poll; simultaneous attempts would open the same port twice.
        if self._busy.acquire(blocking=False):
            try:
                self._try()
            finally:
                self._busy.release()

    def _try(self) -> None:
        self._attempts += 1
        try:
            attachment = self._attach()
        except (ConfigError, NotSupportedError) as error:  # a different device replied
            self._abandon(error.message)
        except LumionError as error:
            self._failed(error)
        else:
            with self._change:
                if self.state is not LinkState.BACKOFF:  # closed meanwhile
                    return
                self.state = LinkState.OPEN
            self._report_event(LinkEventKind.RECONNECTED, str(attachment), attachment)

    def wait(self, label: str) -> None:
        """Wait for the link for at most the policy's ``wait_s``.

        Raises ``LinkLost`` if the link did not return in time, or the attempts have ended.
        """
        until = self._clock.now() + self._policy.wait_s
        while self._is_automatic:
            self.poll()
            now_s = self._clock.now()
            if self.state is LinkState.OPEN:
                return
            if self.state is LinkState.CLOSED or now_s >= until:
                raise self._unavailable_error(label, now_s)
            self._clock.sleep(max(0.0, min(self._next_s - now_s, until - now_s, _SLICE_S)))

    def _failed(self, error: LumionError) -> None:
        self._report_event(LinkEventKind.ATTEMPT_FAILED, error.message)
        self._delay_s = min(2 * self._delay_s, self._policy.longest_delay_s)
        # The jitter avoids that several hosts reconnect at the same time after a failure of a network switch. It is
        # seeded, so that runs are reproducible.
        jitter = 1.0 + self._policy.jitter * self._random.uniform(-1.0, 1.0)
        self._next_s = self._clock.now() + self._delay_s * jitter
        # The time of the next attempt decides: an attempt after the budget would never be made.
        if self._next_s - self._lost_at_s > self._policy.budget_s:
            self._abandon(f"{self._attempts} attempts in {self._clock.now() - self._lost_at_s:.1f} s: {error.message}")

    def _abandon(self, reason: str) -> None:
        self.state = LinkState.CLOSED
        self._reason = reason
        self._report_event(LinkEventKind.GIVEN_UP, reason)

    def _unavailable_error(self, label: str, now_s: float) -> LinkLost:
        if self.state is LinkState.CLOSED:
            text, hint = f"{label}: the link is closed: {self._reason.rstrip('.')}", "Open the device again."
        else:
            text = f"{label}: the link was lost {now_s - self._lost_at_s:.1f} s ago, attempts so far: {self._attempts}"
            hint = f"Next attempt in {max(0.0, self._next_s - now_s):.1f} s. The watchdog switches the outputs off."
        return self._target.error(LinkLost, f"{text}.", hint=hint)

    def _report_event(self, kind: LinkEventKind, text: str, attachment: Attachment | None = None) -> None:
        now_s = self._clock.now()
        _log.warning("%s @ %s: link to the controller %s: %s", self._target.device, self._target.address, kind, text)
        event = LinkEvent(kind, text, now_s, now_s - self._lost_at_s, self._attempts, attachment)
        self.events.append(event)
        call_back(self._on_event, event)
