"""What every link is: bytes out, bytes in, by an absolute deadline on an injected clock."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from lumion_hw.clock import Deadline


class Link(Protocol):
    """A byte stream to one device. Deadlines are absolute times of the link's clock."""

    @property
    def name(self) -> str:
        """The address in words, for messages."""

    def open(self, deadline: Deadline) -> None:
        """Open the stream. Raises ``ConnectError`` when it cannot be opened; opening an open link does nothing."""

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data`` or raise ``LinkLost`` (a partial write is a lost link)."""

    def read(self, deadline: Deadline) -> bytes:
        """Return at least one byte, or ``b""`` at the deadline. Raises ``LinkLost`` when the peer is gone."""

    def drain(self, quiet_s: float, deadline: Deadline) -> int:
        """Throw away input until nothing arrived for ``quiet_s``; return the number of bytes thrown away."""

    def close(self) -> None:
        """Close the stream; idempotent, never raises."""


@runtime_checkable
class BulkLink(Link, Protocol):
    """A link that can put what arrives where it belongs, for blocks of megabytes."""

    def read_into(self, view: memoryview, deadline: Deadline) -> int:
        """Put at least one byte into ``view``; return how many, 0 at the deadline. Raises as :meth:`Link.read`."""


@runtime_checkable
class ModemLink(Link, Protocol):
    """A link with a line by which the host says that it is ready, as some USB bridges want to see."""

    def set_rts(self, on: bool) -> None:
        """Assert or release RTS. Raises ``LinkLost`` when the port is gone; a port without the line does nothing."""


class Peer(Protocol):
    """The far end of an in-process link: one connection to something that speaks bytes, without I/O of its own.

    An emulated device hands out one peer per connection. All times are those of the shared clock.
    """

    def receive(self, data: bytes) -> None:
        """Take bytes from the host, now."""

    def transmit(self) -> bytes:
        """Give the bytes that have left for the host by now. Raises ``LinkLost`` once the device has hung up."""

    def next_event(self) -> float | None:
        """Return the time at which :meth:`transmit` may have more to give, or ``None`` if nothing is under way."""

    def close(self) -> None:
        """The host went away."""
