"""Interfaces of links: byte streams whose reads and writes have absolute deadlines on an injected clock."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from lumion_hw.clock import Deadline


class Link(Protocol):
    """A byte stream to one device. Deadlines are absolute times of the link's clock."""

    @property
    def name(self) -> str:
        """Address of the link, for messages."""

    def open(self, deadline: Deadline) -> None:
        """Open the byte stream; does nothing if the stream is open. Raises ``ConnectError`` on failure."""

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data``. Raises ``LinkLost`` if only a part or nothing could be written."""

    def read(self, deadline: Deadline) -> bytes:
        """Return received bytes, at least one, or ``b""`` at the deadline. Raises ``LinkLost`` if the link is lost."""

    def drain(self, quiet_s: float, deadline: Deadline) -> int:
        """Discard input until none has arrived for ``quiet_s`` seconds; return the number of discarded bytes."""

    def close(self) -> None:
        """Close the stream; idempotent, never raises."""


@runtime_checkable
class BulkLink(Link, Protocol):
    """A link that can receive directly into a buffer, for blocks of megabytes."""

    def read_into(self, view: memoryview, deadline: Deadline) -> int:
        """Receive at least one byte into ``view``; return the number, or 0 at the deadline. See :meth:`Link.read`."""


@runtime_checkable
class ModemLink(Link, Protocol):
    """A link with an RTS line; some USB bridges send nothing before RTS is asserted."""

    def set_rts(self, on: bool) -> None:
        """Assert or release RTS; a port without RTS ignores it. Raises ``LinkLost`` if the port is lost."""


class Peer(Protocol):
    """The far end of an in-process link: one connection to an emulated device, without real I/O.

    An emulated device creates one peer per connection. Host and device share one clock.
    """

    def receive(self, data: bytes) -> None:
        """Receive bytes from the host at the present time."""

    def transmit(self) -> bytes:
        """Return the bytes that the device has sent by now. Raises ``LinkLost`` once the device has disconnected."""

    def next_event(self) -> float | None:
        """Return the time at which :meth:`transmit` may return more, or ``None`` if nothing is pending."""

    def close(self) -> None:
        """End the connection, because the host has disconnected."""
