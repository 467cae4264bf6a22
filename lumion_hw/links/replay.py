"""Replays a recorded conversation with a device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from lumion_hw.clock import Clock
from lumion_hw.errors import LinkLost
from lumion_hw.links.memory import MemoryLink


@dataclass(frozen=True)
class RecordedExchange:
    """One step of a recorded conversation.

    Attributes:
        sent: Bytes that the host sends.
        received: Reply of the device.
        delay_s: Time in seconds until the reply leaves the device.
    """

    sent: bytes
    received: bytes = b""
    delay_s: float = 0.0


class ReplayPeer:
    """Device that replays a recorded conversation; a :class:`~lumion_hw.links.base.Peer`.

    Args:
        exchanges: Steps of the conversation, in order.
        clock: Clock of the link.
    """

    def __init__(self, exchanges: Iterable[RecordedExchange], clock: Clock) -> None:
        self._remaining = deque(exchanges)
        self._clock = clock
        self._received = bytearray()
        self._replies: deque[tuple[float, bytes]] = deque()

    @property
    def remaining(self) -> tuple[RecordedExchange, ...]:
        """Recorded steps that have not been replayed yet."""
        return tuple(self._remaining)

    def receive(self, data: bytes) -> None:
        """Compare bytes from the host with the next recorded step. Raises ``LinkLost`` if they differ."""
        self._received += data
        while self._received:
            step = self._remaining[0] if self._remaining else None
            received = bytes(self._received)
            # Either may be a prefix of the other, because writes may be split or joined.
            if step is None or not (received.startswith(step.sent) or step.sent.startswith(received)):
                raise LinkLost(
                    f"the host sent {received!r}, but the recording has {step.sent if step else 'nothing'!r}",
                    hint="Compare the two.",
                )
            if len(received) < len(step.sent):
                return
            del self._received[: len(step.sent)]
            self._remaining.popleft()
            self._replies.append((self._clock.now() + step.delay_s, step.received))

    def transmit(self) -> bytes:
        """Return the recorded replies whose delay has passed."""
        data = b""
        while self._replies and self._replies[0][0] <= self._clock.now():
            data += self._replies.popleft()[1]
        return data

    def next_event(self) -> float | None:
        """Return the time at which the next reply leaves the device."""
        return self._replies[0][0] if self._replies else None

    def close(self) -> None:
        """Do nothing: the next connection continues the conversation."""


def replay_link(peer: ReplayPeer, clock: Clock) -> MemoryLink:
    """Return a link to the device of a recorded conversation."""
    return MemoryLink(lambda: peer, clock, "replay")
