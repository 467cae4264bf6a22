"""A recorded or written-down conversation as the far end of a link: what is sent is compared, what came is given."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from lumion_hw.clock import Clock
from lumion_hw.errors import LinkLost
from lumion_hw.links.memory import MemoryLink


@dataclass(frozen=True)
class RecordedExchange:
    """One step of a conversation.

    Attributes:
        sent: Bytes the host sends.
        received: Bytes the device answers with, once it has all of ``sent``.
        delay_s: Time until the answer leaves the device.
    """

    sent: bytes
    received: bytes = b""
    delay_s: float = 0.0


class ReplayPeer:
    """The device of a conversation that is known beforehand; a :class:`~lumion_hw.links.base.Peer`.

    Args:
        exchanges: The conversation, in order.
        clock: The clock of the link.
    """

    def __init__(self, exchanges: Iterable[RecordedExchange], clock: Clock) -> None:
        self._ahead = deque(exchanges)
        self._clock = clock
        self._received = bytearray()
        self._replies: deque[tuple[float, bytes]] = deque()

    @property
    def remaining(self) -> tuple[RecordedExchange, ...]:
        """The part of the conversation that has not taken place."""
        return tuple(self._ahead)

    def receive(self, data: bytes) -> None:
        """Compare bytes from the host with the conversation.

        Raises:
            LinkLost: They are not what the conversation has next.
        """
        self._received += data
        while self._received:
            step = self._ahead[0] if self._ahead else None
            received = bytes(self._received)
            # A prefix either way: writes may be cut or joined, but never differ.
            if step is None or not (received.startswith(step.sent) or step.sent.startswith(received)):
                raise LinkLost(
                    f"the host sent {received!r}, the conversation has {step.sent if step else 'nothing'!r}",
                    hint="Compare the two: one of them is wrong.",
                )
            if len(received) < len(step.sent):
                return
            del self._received[: len(step.sent)]
            self._ahead.popleft()
            self._replies.append((self._clock.now() + step.delay_s, step.received))

    def transmit(self) -> bytes:
        """Give the answers that are due."""
        data = b""
        while self._replies and self._replies[0][0] <= self._clock.now():
            data += self._replies.popleft()[1]
        return data

    def next_event(self) -> float | None:
        """Return when the next answer is due."""
        return self._replies[0][0] if self._replies else None

    def close(self) -> None:
        """Do nothing: the conversation goes on with the next connection."""


def replay_link(peer: ReplayPeer, clock: Clock) -> MemoryLink:
    """Return a link to the device of a conversation."""
    return MemoryLink(lambda: peer, clock, "replay")
