"""How the driver of the LUMION mesh controller comes back after a lost link: a state machine with bounded back-off.

CLOSED → OPEN by ``open()``; OPEN → LOST when the link or the session is gone; LOST → BACKOFF when the handle is closed;
BACKOFF → OPEN when an attempt succeeds, → BACKOFF when it fails, → CLOSED when the budget is used up, another device
answers, or another host has taken the controller over. Any state → CLOSED by ``close()``.
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

# A link that flickers for days must not fill the memory.
_KEPT_EVENTS = 64
_SLICE_S = 0.05  # longest single sleep of a call that waits: closing ends it within this time


@dataclass(frozen=True)
class Attachment:
    """What was found, and what was done, when the driver attached to the controller.

    Attributes:
        first: The driver had not been attached before.
        restarted: The controller was restarted since: everything it held is gone, its outputs are off.
        boot_id: Random number of the controller's last power-up.
        configuration: ``none`` declared so far, ``kept`` as it was, ``applied`` again, or ``refused``.
        table: ``none`` confirmed so far, ``same`` as confirmed last, ``changed`` (outputs stay as they are),
            ``restored`` because the application asked to resume, or ``refused``.
        in_flight_latched: Whether a table that was sent and never answered is driven; ``None`` if there was none.
        faults: Names of the latched fault sources.
        refusals: Why something was refused, in words.
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
        """Something declared could not be brought back."""
        return bool(self.refusals)

    def __str__(self) -> str:
        parts = ["controller restarted" if self.restarted else "same boot"]
        parts += [f"configuration {self.configuration}", f"table {self.table}"]
        if self.in_flight_latched is not None:
            parts.append(f"the unanswered table was {'' if self.in_flight_latched else 'not '}latched")
        if self.faults:
            parts.append(f"latched: {', '.join(self.faults)}")
        return "; ".join([*parts, *self.refusals])


class LinkState(StrEnum):
    """Where the driver stands; BACKOFF waits for the next attempt."""

    CLOSED = "closed"
    OPEN = "open"
    BACKOFF = "backoff"


class LinkEventKind(StrEnum):
    """What happened to the link."""

    LOST = "lost"
    ATTEMPT_FAILED = "attempt failed"
    RECONNECTED = "reconnected"
    GIVEN_UP = "given up"


@dataclass(frozen=True)
class LinkEvent:
    """One thing that happened to the link.

    Attributes:
        kind: What.
        text: In words.
        at_s: When, on the driver's clock.
        gap_s: Time since the link was lost.
        attempts: Attempts made since.
        attachment: What was found, after ``RECONNECTED``.
    """

    kind: LinkEventKind
    text: str
    at_s: float
    gap_s: float = 0.0
    attempts: int = 0
    attachment: Attachment | None = None


@dataclass(frozen=True)
class ReconnectPolicy:
    """How to come back after a lost link.

    Attributes:
        wait_s: How long a call waits for the link to come back; 0 fails at once.
        first_delay_s: Delay before the first attempt; each further one is twice as long.
        longest_delay_s: Longest delay.
        jitter: Part by which a delay is changed at random, up or down.
        budget_s: Time after which it is given up.
        seed: Seed of the jitter.
    """

    wait_s: float = 0.0
    first_delay_s: float = 0.2
    longest_delay_s: float = 10.0
    jitter: float = 0.2
    budget_s: float = 60.0
    seed: int = 0


class Reconnector:
    """The state machine. The driver tells it what happened and lets it try; it keeps no thread.

    Args:
        policy: Delays and budget; ``None`` leaves coming back to the application.
        clock: The clock.
        attach: Attaches again and tells what was found; raises ``LumionError``.
        close: Closes the handle; never raises.
        on_event: Called with every event; ``None`` to keep them only.
        target: Device name and address, for messages.

    Attributes:
        state: State of the connection.
        events: The newest events, oldest first.
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
        self._by_itself = policy is not None
        self._policy = policy or ReconnectPolicy()
        self._clock = clock
        self._attach = attach
        self._close = close
        self._on_event = on_event
        self._target = target
        self._dice = random.Random(self._policy.seed)
        self._lost_s = 0.0
        self._next_s = 0.0
        self._delay_s = 0.0
        self._attempts = 0
        self._why = "it was never opened"
        self._busy = fork_safe(threading.Lock())
        self._change = fork_safe(threading.Lock())
        self.state = LinkState.CLOSED
        self.events: deque[LinkEvent] = deque(maxlen=_KEPT_EVENTS)

    def opened(self) -> None:
        """The application attached by itself."""
        self.state = LinkState.OPEN

    def closed(self) -> None:
        """The application closed the driver."""
        with self._change:
            self.state = LinkState.CLOSED
            self._why = "it was closed"

    def lost(self, error: LumionError, *, for_good: bool) -> None:
        """The link is gone: close the handle and begin to wait, or end if another host drives the controller now."""
        with self._change:  # several threads may find out at once
            if self.state is not LinkState.OPEN:
                return
            self._lost_s = self._clock.now()
            self._attempts = 0
            self._delay_s = self._policy.first_delay_s
            self._next_s = self._lost_s + self._delay_s
            self._why = error.message
            self.state = LinkState.BACKOFF if self._by_itself and not for_good else LinkState.CLOSED
        if self._by_itself:
            self._close()
        self._tell(LinkEventKind.LOST, error.message)
        if self._by_itself and for_good:
            self._tell(LinkEventKind.GIVEN_UP, error.message)

    def poll(self) -> None:
        """Make one attempt if it is due and nobody else is at it; never raises because of the link."""
        if self.state is not LinkState.BACKOFF or self._clock.now() < self._next_s:
            return
        # Ticker and calling threads poll alike; a second attempt at the same time would open the same port twice.
        if self._busy.acquire(blocking=False):
            try:
                self._try()
            finally:
                self._busy.release()

    def _try(self) -> None:
        self._attempts += 1
        try:
            attachment = self._attach()
        except (ConfigError, NotSupportedError) as error:  # another device answered
            self._give_up(error.message)
        except LumionError as error:
            self._failed(error)
        else:
            with self._change:
                if self.state is not LinkState.BACKOFF:  # closed meanwhile
                    return
                self.state = LinkState.OPEN
            self._tell(LinkEventKind.RECONNECTED, str(attachment), attachment)

    def wait(self, label: str) -> None:
        """Let a call wait for the link as long as the policy allows; without a policy the call finds out by itself.

        Raises:
            LinkLost: The link did not come back in time, or was given up.
        """
        until = self._clock.now() + self._policy.wait_s
        while self._by_itself:
            self.poll()
            now = self._clock.now()
            if self.state is LinkState.OPEN:
                return
            if self.state is LinkState.CLOSED or now >= until:
                raise self._away(label, now)
            self._clock.sleep(max(0.0, min(self._next_s - now, until - now, _SLICE_S)))

    def _failed(self, error: LumionError) -> None:
        self._tell(LinkEventKind.ATTEMPT_FAILED, error.message)
        self._delay_s = min(2 * self._delay_s, self._policy.longest_delay_s)
        # Several hosts or drivers that lost one switch would else all knock
        # at the same instants. Seeded, so that a run can be repeated.
        jitter = 1.0 + self._policy.jitter * self._dice.uniform(-1.0, 1.0)
        self._next_s = self._clock.now() + self._delay_s * jitter
        # Judged by when the next attempt would come: waiting for one that is beyond the budget tells nobody anything.
        if self._next_s - self._lost_s > self._policy.budget_s:
            self._give_up(f"{self._attempts} attempts in {self._clock.now() - self._lost_s:.1f} s: {error.message}")

    def _give_up(self, why: str) -> None:
        self.state = LinkState.CLOSED
        self._why = why
        self._tell(LinkEventKind.GIVEN_UP, why)

    def _away(self, label: str, now: float) -> LinkLost:
        if self.state is LinkState.CLOSED:
            text, hint = f"{label}: the link is closed: {self._why.rstrip('.')}", "Open the device again."
        else:
            text = f"{label}: the link was lost {now - self._lost_s:.1f} s ago, attempts so far: {self._attempts}"
            hint = f"The next one comes in {max(0.0, self._next_s - now):.1f} s; its watchdog switches the outputs off."
        return self._target.error(LinkLost, f"{text}.", hint=hint)

    def _tell(self, kind: LinkEventKind, text: str, attachment: Attachment | None = None) -> None:
        now = self._clock.now()
        _log.warning("%s @ %s: link %s: %s", self._target.device, self._target.address, kind, text)
        event = LinkEvent(kind, text, now, now - self._lost_s, self._attempts, attachment)
        self.events.append(event)
        call_back(self._on_event, event)
