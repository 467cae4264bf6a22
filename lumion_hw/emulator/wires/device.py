"""What every emulated device is: something that hands out connections and follows the clock."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from lumion_hw.links.base import Peer


class EmulatedDevice(Protocol):
    """One emulated device. State and queues belong to the device; input and output buffers to the connection.

    A device never fails on what a host sends: any byte string leaves it alive.
    """

    @property
    def name(self) -> str:
        """Device name of the bench file."""

    def connect(self) -> Peer:
        """Open one more connection. Raises ``ConnectError`` when the device refuses it (unplugged, powered off)."""

    def advance(self) -> None:
        """Bring the device's state to the clock's present time (watchdogs, timers, settling)."""

    def next_due(self) -> float | None:
        """Return when :meth:`advance` has something to do by itself, ``None`` if it waits for a host.

        Whatever only shows when somebody looks needs no hour of its own: :meth:`advance` makes up for it.
        """


@runtime_checkable
class MessagePeer(Peer, Protocol):
    """A connection that knows where messages end, and has a status byte."""

    @property
    def response_pending(self) -> bool:
        """Whether a reply is being worked on or has not been transmitted."""

    def end_message(self) -> None:
        """What was received so far ends here, whether or not a terminator came (END)."""

    def abandon(self) -> None:
        """Forget what was received and what would be replied (device clear)."""

    def interrupt(self) -> None:
        """Forget the reply: the host sent on without taking it (-410)."""

    def serial_poll(self) -> tuple[int, int]:
        """Return the status byte and the mask of ``*SRE``."""
